"""Tests of the archive for publication: its content, its validity, and its reproducibility."""

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import requests
import rocrate
import synthetic
import yaml
from bs4 import BeautifulSoup
from rocrate.rocrate import ROCrate
from rocrate_validator import services
from rocrate_validator.utils.http import HttpRequester

from sipsched import versions
from sipsched.analysis import run_table
from sipsched.errors import StableError
from sipsched.pages import archive, html, parts
from sipsched.pages.outline import read_outline, write_outline
from sipsched.pages.sources import find_sources
from sipsched.paths import PROJECT_ROOT


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Make a working directory with a summary, a page and a configuration."""
    monkeypatch.chdir(tmp_path)
    summary = synthetic.write_study(tmp_path, [synthetic.Run(rep=rep) for rep in (1, 2)])
    names = ("config/config.yaml", "requirements.lock", "LICENSE", archive.WORKFLOW)
    for name in (*names, archive.MEASURE):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"{name}: é\n", encoding="utf-8")
    figure = parts.Figure("curve", lambda layout: "<svg></svg>", "A caption.")
    sources = find_sources({"summary": summary})
    page = parts.Page("A page", [figure], code=["1"], sources=sources)
    Path("reports").mkdir()
    Path("reports/index.html").write_text(html.document(page), encoding="utf-8")
    write_outline(page, Path("reports/index.html"), Path("outline.json"))
    names = ("reports/index.html", "config/config.yaml", archive.WORKFLOW, archive.MEASURE)
    files = [Path(name) for name in names]
    files += [Path("requirements.lock"), Path("LICENSE"), summary.relative_to(tmp_path)]
    return files, run_table.read_campaigns([summary])


def publish(name, tree, files=()):
    path = Path("publish") / name
    outlines = [read_outline(Path("outline.json"))] if tree[0] else []
    archive.publish(path, [*tree[0], *files], tree[1], outlines, "0.1.0-gabc", '{"a": 1}')
    return path


def test_the_archive_holds_every_file_and_its_checksum(tree):
    path = publish("a.zip", tree)
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        names = bundle.namelist()
        contents = {name: bundle.read(name) for name in names}
    held = {str(path) for path in tree[0]}
    made = {archive.CONFIGURATION, archive.METADATA, archive.CHECKSUMS}
    assert set(names) == held | made
    assert len(names) == len(set(names))
    for name in held:
        assert contents[name] == Path(name).read_bytes()
    assert json.loads(contents[archive.CONFIGURATION]) == {"a": 1}
    told = dict(
        reversed(line.split("  ")) for line in contents[archive.CHECKSUMS].decode().splitlines()
    )
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    del expected[archive.CHECKSUMS]
    assert told == expected
    assert list(path.parent.iterdir()) == [path]


def test_sha256sum_accepts_the_checksums(tree, tmp_path):
    with zipfile.ZipFile(publish("a.zip", tree)) as bundle:
        bundle.extractall(tmp_path / "out")
    command = ["sha256sum", "--check", "--strict", archive.CHECKSUMS]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_archive_is_an_ro_crate(tree):
    crate = ROCrate(str(publish("a.zip", tree)))
    root = crate.root_dataset
    assert root["datePublished"] == "2026-01-01"
    assert root["license"].id == archive.LICENSE
    assert synthetic.FIDELITY in root["description"]
    assert "2 of 2 planned runs are valid" in root["description"]
    parts = {part.id: part for part in root["hasPart"]}
    assert set(parts) == {
        *(str(path) for path in tree[0]),
        archive.CONFIGURATION,
        archive.CHECKSUMS,
    }
    for name, part in parts.items():
        if name in map(str, tree[0]):
            assert part["sha256"] == hashlib.sha256(Path(name).read_bytes()).hexdigest()
            assert part["encodingFormat"]
    measurement = crate.get("#execution")
    assert measurement["instrument"] == root["mainEntity"]
    assert root["mainEntity"]["version"] == "0.1.0-gabc"
    assert measurement["startTime"] <= measurement["endTime"]
    assert {result.id for result in measurement["result"]} == {
        "reports/index.html",
        "results/load_sweep/synthetic/summary.nc",
    }
    assert crate.metadata["conformsTo"] == "https://w3id.org/ro/crate/1.1"


def test_the_archive_conforms_to_the_workflow_run_crate_profile(tree, tmp_path):
    report = validated(publish("a.zip", tree), tmp_path / "out")
    assert report == []


def test_the_validator_reports_a_crate_without_its_workflow(tree, tmp_path):
    folder = tmp_path / "out"
    validated(publish("a.zip", tree), folder)
    metadata = folder / archive.METADATA
    metadata.write_text(metadata.read_text().replace('"ComputationalWorkflow"', '"Thing"'))
    assert any("ComputationalWorkflow" in message for message in messages(folder))


def validated(path, folder):
    with zipfile.ZipFile(path) as bundle:
        bundle.extractall(folder)
    return messages(folder)


CONTEXT = Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld"
PLACES = ("ComputationalWorkflow", "FormalParameter", "input", "output")
"""Terms for which RO-Crate 1.1 has another address than the JSON-LD context in the package rocrate.

SEE https://bioschemas.org/ComputationalWorkflow and the context of RO-Crate 1.1.
"""


@pytest.fixture(autouse=True)
def contexts(monkeypatch):
    """Give the validator local copies of two JSON-LD contexts, because the validator would download these files."""
    terms = json.loads(CONTEXT.read_text())["@context"]
    properties = {name: f"https://bioschemas.org/ComputationalWorkflow#{name}" for name in PLACES}
    classes = {name: f"https://bioschemas.org/{name}" for name in PLACES if name[0].isupper()}
    known = {
        "https://w3id.org/ro/crate/1.1/context": {"@context": terms | properties | classes},
        archive.TERMS: {"@context": {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}},
    }

    def get(self, url, *args, **kwargs):
        response = requests.Response()
        response.status_code = 200
        response.headers["Content-Type"] = "application/ld+json"
        response._content = json.dumps(known[url]).encode()
        return response

    monkeypatch.setattr(HttpRequester, "get", get, raising=False)


def messages(folder):
    """Return the problems in the archive's metadata that the validator reports."""
    settings = services.ValidationSettings(
        rocrate_uri=str(folder),
        profile_identifier="workflow-run-crate",
        requirement_severity="REQUIRED",
        offline=True,
    )
    return [issue.message for issue in services.validate(settings).get_issues()]


def test_each_figure_links_to_its_runs(tree):
    crate = ROCrate(str(publish("a.zip", tree)))
    (summary,) = crate.get("reports/index.html#curve")["isBasedOn"]
    records = {record.id for record in summary["isBasedOn"]}
    folder = "synthetic/kamailio-udp/default/cores~1/threads~8/cps~1000"
    assert records == {f"#record/{folder}/rep~{rep}" for rep in (1, 2)}
    for record in records:
        assert len(crate.get(record)["identifier"]) == 64
        run = crate.get(record.replace("#record", "#run"))
        assert [result.id for result in run["result"]] == [record]
        assert run["instrument"].id == archive.MEASURE
        assert run["agent"].id == "#operator"
        assert run["startTime"]
    page = Path("reports/index.html").read_text()
    assert '<a class="runs" href="#runs">Runs</a>' in page
    listed = BeautifulSoup(page, "html.parser").select(".runs li")
    assert [run.text for run in listed] == [f"{folder}/rep~{{1,2}}"]


def test_how_hosts_are_reached_is_not_published(tree):
    for name in ("example-physical", "vm", "virtual"):
        path = Path("hardware", "testbeds", f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (PROJECT_ROOT / path).read_text()
        path.write_text(text.replace('kernel: "6.1"', "kernel: ~/kernels/bzImage"))
        with zipfile.ZipFile(publish("a.zip", tree, [path])) as bundle:
            held = yaml.safe_load(bundle.read(str(path)))
        whole = yaml.safe_load(path.read_text())
        for host in whole["hosts"].values():
            for key in ("address", "port", "user", "identity_file", "known_hosts", "sip_address"):
                host.pop(key, None)
        del whole["workdir"]
        if name in whole:
            whole[name]["kernel"] = "bzImage"
        assert held == whole


def test_the_same_files_give_the_same_bytes(tree):
    first = publish("a.zip", tree).read_bytes()
    for path in tree[0]:
        path.touch()
    assert publish("b.zip", tree).read_bytes() == first


def test_a_missing_or_foreign_file_is_refused(tree):
    for path in (Path("missing.html"), Path("/etc/hostname"), Path("../x")):
        with pytest.raises(StableError, match="expected a file under the working directory"):
            publish("a.zip", tree, [path])
    assert not Path("publish").exists()


def test_a_campaign_without_measurements_is_not_published(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = synthetic.write_study(tmp_path, [synthetic.Run()], lambda run: None)
    with pytest.raises(StableError, match="no run is valid"):
        publish("a.zip", ([], run_table.read_campaigns([summary])))


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_the_version_names_the_commit_and_uncommitted_changes(tmp_path):
    package = versions.code_version(tmp_path)
    assert "-g" not in package
    git(tmp_path, "init")
    file = tmp_path / "file"
    file.write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--message", "one")
    clean = versions.code_version(tmp_path)
    assert clean.startswith(f"{package}-g")
    file.write_text("2")
    assert versions.code_version(tmp_path) == f"{clean}-dirty"
