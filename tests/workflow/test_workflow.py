"""Tests of the workflow: its planned jobs, their order, and its errors."""

import itertools
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import synthetic
import yaml
from bs4 import BeautifulSoup
from helpers import change_config, change_study, copy_project, snakemake

from sipsched.analysis import papers
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.plan.study import TESTBED_PAGES
from sipsched.records.reduced import identity, reduce
from sipsched.records.summary_files import open_summary

STUDIES = sorted((PROJECT_ROOT / "config" / "studies").glob("*.yaml"))
JOINED = Path("results/load_sweep/local/summary.nc")


def make_project(folder: Path) -> Path:
    """Copy the project without generated files and with only one study. The copy uses the installed library."""
    copy_project(folder)
    change_config(folder, lambda document: document.update(only=["load_sweep"]))
    # set the CPUs of the hosts, so that plans are the same on every machine
    bed = folder / "hardware" / "testbeds" / "local.yaml"
    file = yaml.safe_load(bed.read_text())
    for host in file["hosts"].values():
        host |= {"cpus": [0], "helper_cpus": [0]}
    file["hosts"]["sps"]["cpus"] = [*range(1, 13), 0]
    bed.write_text(yaml.safe_dump(file))
    # set fixed loads, which need no capacity search
    change_study(folder, cps=[1000, 2000])
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def planned_jobs(project: Path, *arguments: str) -> dict[str, int]:
    done = snakemake(project, "--dry-run", "--quiet", "rules", *arguments)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    jobs = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            jobs[words[0]] = int(words[1])
    return jobs


def pretend_measured(project: Path) -> None:
    for run in load_config(project / "config" / "config.yaml").runs():
        folder = project / "raw" / run.path
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")


def test_each_run_has_one_job(project: Path) -> None:
    runs = len(load_config(project / "config" / "config.yaml").runs())
    jobs = planned_jobs(project)
    assert jobs["measure_run"] == jobs["parse_run"] == jobs["summarise_run"] == runs


def test_nothing_recorded_is_measured_again(project: Path) -> None:
    pretend_measured(project)
    assert "measure_run" not in planned_jobs(project)


def test_a_new_load_measures_only_the_new_points(project: Path) -> None:
    pretend_measured(project)
    study = load_config().studies["load_sweep"]
    change_config(project, lambda d: d["studies"]["load_sweep"]["cps"].append(1750))
    expected = len(study.threads) * study.repetitions
    assert planned_jobs(project)["measure_run"] == expected


def reformat(rules: Path, line: str) -> None:
    """Break a line of a rule into two lines, as a formatter may."""
    text = rules.read_text()
    assert line in text
    rules.write_text(text.replace(line, line.replace(": ", ":\n        ")))


def test_reformatting_a_rule_repeats_no_measurement(project: Path) -> None:
    pretend_measured(project)
    reformat(project / "workflow" / "rules" / "measure.smk", "priority: 100")
    script = project / "workflow" / "scripts" / "measure_run.py"
    script.write_text(script.read_text() + "\n# another comment\n")
    assert "measure_run" not in planned_jobs(project)


def test_a_testbed_is_checked_once(project: Path) -> None:
    assert planned_jobs(project)["measure_noise"] == 1
    noise = project / "raw" / "local" / "noise.json"
    noise.parent.mkdir(parents=True)
    noise.write_text("{}")
    reformat(project / "workflow" / "rules" / "noise.smk", "priority: 101")
    assert "measure_noise" not in planned_jobs(project)


def test_with_only_measured_no_measurement_is_planned(project: Path) -> None:
    run = load_config(project / "config" / "config.yaml").runs()[0]
    folder = project / "raw" / run.path
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    jobs = planned_jobs(project, "--config", "only_measured=True")
    assert not {"measure_run", "measure_noise"} & set(jobs)
    assert jobs["parse_run"] == 1


def test_each_rule_reserves_its_share_of_the_machine() -> None:
    """Check the resources of all rules. The tests of the planner check that a measurement reserves all shares."""
    text = "\n".join(path.read_text() for path in (PROJECT_ROOT / "workflow/rules").glob("*.smk"))
    rules = re.split(r"^ *(?:rule|checkpoint) (?=\w+:$)", text, flags=re.MULTILINE)[1:]
    shares = {
        rule.partition(":")[0]: re.findall(r"^ +machine=(.+),$", rule, re.MULTILINE)
        for rule in rules
    }
    measuring = {name for name, result in shares.items() if result == ["CLAIMS.machine"]}
    assert measuring == {"measure_run", "find_crossing", "measure_noise"}
    assert all(result == ["1"] for name, result in shares.items() if name not in measuring)
    assert len(shares) > 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(colour="red"), "config/config.yaml: unknown key 'colour'"),
        (lambda d: d["studies"]["load_sweep"].update(cores=[64]), "ask for more: cores=64"),
        (lambda d: d.update(testbeds=["nowhere"]), "testbed 'nowhere'"),
        (
            lambda d: d["documents"]["published"].update(files=[]),
            "files: expected array of length >= 1",
        ),
        (lambda d: d["documents"]["capacity_model"].update(studies=["x"]), "'x' is not defined"),
    ],
)
def test_bad_configuration_stops_before_any_job(project: Path, change: Any, message: str) -> None:
    change_config(project, change)
    done = snakemake(project)
    assert done.returncode != 0
    told = [line for line in (done.stdout + done.stderr).splitlines() if message in line]
    assert len(told) == 1
    assert not (project / "raw").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"pdr_limit: 0.02\n",
            "config/config.yaml: line {next} is not YAML: the key 'pdr_limit' exists twice",
        ),
        (b"# \x91\n", "config/config.yaml: line {next} is not UTF-8 text"),
        (b"more: [\n", "config/config.yaml: line {after} is not YAML"),
        (b"__use_yte__: true\n", "config/config.yaml: unknown key '__use_yte__'"),
    ],
)
def test_wrong_configuration_files_that_snakemake_accepts_are_refused(
    project: Path, content: bytes, message: str
) -> None:
    path = project / "config" / "config.yaml"
    head = path.read_bytes().partition(b"\nstudies:")[0] + b"\n"
    path.write_bytes(head + content)
    end = head.count(b"\n")
    done = snakemake(project, "--dry-run")
    assert done.returncode != 0
    (line,) = (line for line in (done.stdout + done.stderr).splitlines() if "error: " in line)
    assert line.startswith(f"error: {message.format(next=end + 1, after=end + 2)}")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("raw/local/{sut}/threads~0/cps~100/rep~1/run.json", "MissingRuleException"),
        ("raw/local/{sut}/threads~08/cps~100/rep~1/run.json", "MissingRuleException"),
        (
            "raw/local/{sut}/threads~251/cps~100/rep~1/run.json",
            "error: local/.*threads.*expected int <= 250, found 251",
        ),
        (
            "results/runs/local/{sut}/threads~251/cps~9/rep~1/summary.nc.zst",
            "threads.*expected int <= 250, found 251",
        ),
        (
            "raw/local/{sut}/threads~251/crossing.json",
            "error: local/.*threads.*expected int <= 250, found 251",
        ),
        ("raw/vm/{sut}/threads~2/cps~100/rep~1/run.json", "testbed 'vm' is not among testbeds"),
    ],
)
def test_a_requested_file_obeys_the_schema(project: Path, target: str, message: str) -> None:
    name = target.format(sut="kamailio-udp/default/cores~1")
    done = snakemake(project, "--dry-run", name)
    assert done.returncode != 0
    assert re.search(message, done.stdout + done.stderr)


def test_a_run_of_no_study_is_measured_if_its_file_is_requested(project: Path) -> None:
    target = "raw/local/kamailio-udp/default/cores~1/threads~250/cps~40000/rep~1000/run.json"
    assert planned_jobs(project, "--", target) == {"measure_run": 1, "total": 1}


@pytest.mark.parametrize(
    ("path", "named"),
    [(path, ()) for path in STUDIES] + [(STUDIES[0], ("config/config.yaml",))],
    ids=[*(path.stem for path in STUDIES), "after the other"],
)
def test_a_study_file_plans_only_its_own_study(
    project: Path, path: Path, named: tuple[str, ...]
) -> None:
    """Plan with a study file, with and without config.yaml. The plan has only the points of the file's studies."""
    file = yaml.safe_load(path.read_text())
    studies, testbeds = file["studies"], file.get("testbeds", ["local"])
    cut, runs, searches, summaries = {}, set(), set(), 0
    for name, study in studies.items():
        beds = study.get("testbeds", testbeds)
        # a comparison of capacities has searches, but neither runs nor repetitions
        has_runs = {"repetitions", "precision"} & {*study}
        summaries += len(beds) if has_runs else 0
        if "capacity" in study:
            cut[name] = {"repetitions": 1} if has_runs else {}
            axes = (study[key] for key in ("suts", "modes", "cores"))
            searches |= set(itertools.product(beds, *axes))
            continue
        # loads that depend on a search are unknown before the search
        loads = study["cps"][:3] if isinstance(study["cps"], list) else [1000]
        listed = study.get("points", [])
        points = [
            point
            for point in itertools.product(study["cores"], study["threads"], loads)
            if not listed or [*point] in listed or [*point[:2]] in listed
        ]
        repetitions = 2 if "precision" in study else 1
        often = {"precision": {"at_least": 2, "at_most": 2}}
        cut[name] = {"cps": loads, **(often if repetitions == 2 else {"repetitions": 1})}
        if listed:
            cut[name]["points"] = [[*point] for point in points]
        arms = itertools.product(study["modes"], study["suts"], range(repetitions))
        runs |= {(bed, *point, *arm) for bed, point, arm in itertools.product(beds, points, arms)}
    (project / "cut.yaml").write_text(yaml.safe_dump({"studies": cut}))
    files = (*named, f"config/studies/{path.name}")
    jobs = planned_jobs(project, "--configfile", *files, "cut.yaml")
    assert jobs.get("measure_run", 0) == len(runs)
    assert jobs.get("find_crossing", 0) == len(searches)
    assert jobs["combine_summaries"] == summaries


def test_snakemake_lint_reports_nothing(project: Path) -> None:
    done = snakemake(project, "--lint", "json")
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_a_finished_campaign_starts_no_job(project: Path) -> None:
    pretend_measured(project)
    for run in load_config(project / "config" / "config.yaml").runs():
        for name in ("messages.nc", "summary.nc.zst"):
            path = project / "results" / "runs" / run.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for path in (
        "results/load_sweep/local/summary.nc",
        "results/capacity/local.json",
        "reports/load_sweep-local.html",
        "raw/local/noise.json",
        *(f"results/predicted/{name}" for name in ("papers.csv", "local/fit.json")),
        *(f"results/predicted/local/{name}" for name in ("settings.nc", "capacity.json")),
        *(f"reports/{page}-local.html" for page in TESTBED_PAGES),
        *(f"reports/{name}.html" for name in load_config(project / "config/config.yaml").documents),
        "reports/index.html",
    ):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).touch()
    assert planned_jobs(project) == {}


def rules_looked_at(project: Path, *arguments: str) -> set[str]:
    """Return the rules for which Snakemake considers a job, even if the job has nothing to do."""
    done = snakemake(project, "--rulegraph", "dot", *arguments)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r'label = "([a-z_]+)', done.stdout))


def join_summaries(project: Path) -> None:
    """Make the joined summary of a study of four runs."""
    change_study(project, cps=[500, 1000], threads=[2], repetitions=2)
    for cps in (500, 1000):
        record_campaign(project, "raw", cps)
    done = snakemake(project, str(JOINED))
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_project(tmp_path_factory.mktemp("made_once"))
    join_summaries(folder)
    return folder


@pytest.fixture
def joined(made_once: Path, project: Path) -> Path:
    """Copy a project with the joined summary of a study of four runs, and return the path of the summary."""
    shutil.copytree(made_once, project, dirs_exist_ok=True, symlinks=True)
    return JOINED


def test_no_job_is_made_for_runs_in_a_studys_summary(project: Path) -> None:
    # not a copy of such a project, because the workflow looks at copied records again
    join_summaries(project)
    joined, target = JOINED, str(JOINED)
    assert rules_looked_at(project, target) == {"combine_summaries"}
    assert planned_jobs(project, "--", target) == {}
    before = open_summary(project / joined)

    record = sorted((project / "raw").rglob("run.json"))[1]
    synthetic.rewrite(record.parent, {"finished_at": "2026-01-01T00:01:00Z"})
    of_a_run = {"parse_run", "summarise_run"}
    assert of_a_run < rules_looked_at(project, target)
    expected = {**dict.fromkeys(of_a_run, 1), "combine_summaries": 1, "total": 3}
    assert planned_jobs(project, "--", target) == expected
    done = snakemake(project, target)
    assert done.returncode == 0, done.stderr
    after = open_summary(project / joined)
    assert after.drop_vars("record").identical(before.drop_vars("record"))
    assert not after["record"].equals(before["record"])
    assert rules_looked_at(project, target) == {"combine_summaries"}

    again = planned_jobs(project, "--forcerun", "summarise_run", "--", target)
    assert again == {"summarise_run": 4, "combine_summaries": 1, "total": 5}
    (project / joined.with_name("settled.json")).unlink()
    assert of_a_run < rules_looked_at(project, target)
    assert planned_jobs(project, "--", target) == {}
    shutil.rmtree(record.parent)
    assert planned_jobs(project, "--", target) == {**expected, "measure_run": 1, "total": 4}


@pytest.mark.parametrize(
    "lost", [[], ["summary.nc"], ["settled.json"], ["summary.nc", "settled.json"]]
)
def test_a_record_that_an_older_one_replaced_is_parsed_again(
    project: Path, joined: Path, lost: list[str]
) -> None:
    run = synthetic.Run(testbed="local", threads=2, cps=500, rep=1)
    place, other = project / "raw" / run.path, project / "other"
    before = open_summary(project / joined).sel(rep=1, cps=500).squeeze()
    synthetic.write_record(other, run, calls=70)
    for path in (other / run.path).iterdir():
        os.utime(path, (1_500_000_000, 1_500_000_000))
    shutil.rmtree(place)
    shutil.copytree(other / run.path, place)
    for name in lost:
        (project / joined.with_name(name)).unlink()
    expected = dict.fromkeys(("parse_run", "summarise_run", "combine_summaries"), 1)
    assert planned_jobs(project, "--", str(joined)) == {**expected, "total": 3}
    done = snakemake(project, str(joined))
    assert done.returncode == 0, done.stderr
    after = open_summary(project / joined).sel(rep=1, cps=500).squeeze()
    assert (before["calls_created"].item(), after["calls_created"].item()) == (40, 70)
    assert after["record"].item() == identity(place)
    assert planned_jobs(project, "--", str(joined)) == {}


def test_a_copy_of_a_record_is_not_parsed_again(project: Path, joined: Path) -> None:
    for path in (project / "raw").rglob("run.json"):
        path.write_bytes(path.read_bytes())
    assert planned_jobs(project, "--", str(joined)) == {}


def test_settled_runs_count_among_the_planned_runs(project: Path, joined: Path) -> None:
    cut_off(project)
    change_study(project, cps=[500, 1000, 1500])
    done = snakemake(project, str(joined))
    assert done.returncode != 0
    assert "2 of 6 runs are missing" in done.stdout + done.stderr


def test_a_document_needs_no_measurement(project: Path) -> None:
    target = ("--", "reports/published.html")
    assert planned_jobs(project, *target) == {"render_document": 1, "total": 1}


def test_the_predictions_are_simulated_for_the_page_that_shows_them(project: Path) -> None:
    files = ("--configfile", "config/config.yaml", "config/studies/papers_simulated.yaml")
    target = (*files, "--", "reports/papers_predicted.html")
    jobs = {"predict_papers": 1, "render_document": 1, "total": 2}
    assert planned_jobs(project, *target) == jobs
    # after a new fit of the model, the runs are simulated again
    held = project / "results" / "predicted" / "papers.csv"
    held.parent.mkdir(parents=True)
    held.touch()
    assert planned_jobs(project, *target) == {"render_document": 1, "total": 1}
    os.utime(project / "config" / "models" / "opensips-papers.yaml")
    assert planned_jobs(project, *target) == jobs
    # a campaign that measures no more runs (only_measured) uses the recorded file
    recorded = project / "recorded" / "predicted" / "papers.csv"
    recorded.parent.mkdir(parents=True)
    recorded.touch()
    options = ("--config", "only_measured=True", "records=recorded/raw", *files)
    target = ("--", "reports/recorded/papers_predicted.html")
    assert planned_jobs(project, *options, *target) == {"render_document": 1, "total": 1}


def test_a_document_is_made_again_if_one_of_its_files_changes(project: Path) -> None:
    target = ("--", "reports/published.html")
    page = project / "reports" / "published.html"
    page.parent.mkdir(exist_ok=True)
    page.touch()
    assert planned_jobs(project, *target) == {}
    for path in (*load_config().documents["published"].files, "notebooks/published.ipynb"):
        os.utime(project / path, (page.stat().st_mtime + 60,) * 2)
        assert planned_jobs(project, *target) == {"render_document": 1, "total": 1}
        os.utime(project / path, (page.stat().st_mtime - 60,) * 2)


def test_a_page_of_several_studies_waits_for_their_summaries(project: Path) -> None:
    pretend_measured(project)
    runs = len(load_config(project / "config" / "config.yaml").runs())
    jobs = planned_jobs(project, "--", "reports/capacity_model.html")
    assert jobs["render_document"] == jobs["combine_summaries"] == 1
    assert jobs["summarise_run"] == runs
    assert "render_report" not in jobs


def test_a_page_of_several_studies_is_made_without_a_measurement(project: Path) -> None:
    target = ("--config", "only_measured=True", "--", "reports/capacity_model.html")
    jobs = planned_jobs(project, *target)
    computed = {"estimate_capacities": 1, "fit_model": 1, "predict_capacity": 1}
    assert jobs == {"combine_summaries": 1, **computed, "render_document": 1, "total": 5}
    done = snakemake(project, *target)
    assert done.returncode == 0, done.stderr
    page = (project / "reports" / "capacity_model.html").read_text()
    text = BeautifulSoup(page, "html.parser").get_text()
    assert "load_sweep/local/summary.nc: the file has no valid run." in text
    assert "crossover" not in text.partition("The code that made this page")[0]


def test_loads_around_a_crossing_are_planned_once_it_is_found(project: Path) -> None:
    change_config(project, lambda d: d.update(only=["crossover"]))
    study = load_config().studies["crossover"]
    jobs = planned_jobs(project)
    assert jobs["find_crossing"] == 1
    assert "measure_run" not in jobs
    (point,) = study.searches("local")
    path = project / "raw" / point.crossing_path
    path.parent.mkdir(parents=True)
    path.write_text(synthetic.sealed(synthetic.crossing(point, 1900, 2000)))
    jobs = planned_jobs(project)
    assert "find_crossing" not in jobs
    runs = study.runs("local", {point: (1900, 2000)})
    # the loads are half and four fifths of the load that the search found
    assert {run.cps for run in runs} == {950, 1520}
    assert jobs["measure_run"] == jobs["summarise_run"] == jobs["reduce_windows"] == len(runs)
    # without the record of a search, no run is planned, and the page states the reason
    path.unlink()
    assert "measure_run" not in planned_jobs(project, "--config", "only_measured=True")


def test_the_published_document_names_every_file_that_it_reads() -> None:
    held = {f"config/published/{name}" for name in papers.FILES}
    assert set(load_config().documents["published"].files) == held


def test_a_campaign_may_have_no_documents(project: Path) -> None:
    pretend_measured(project)
    change_config(project, lambda d: d.pop("documents"))
    assert "render_document" not in planned_jobs(project)


def cut_off(project: Path) -> None:
    """Make the testbed unreachable: set its SSH port to port 1 of this machine, on which no program listens."""
    testbed = project / "hardware" / "testbeds" / "local.yaml"
    document = yaml.safe_load(testbed.read_text())
    document["kind"] = "ssh"
    for host in document["hosts"].values():
        host.update(address="127.0.0.1", port=1, known_hosts="/dev/null")
    testbed.write_text(yaml.safe_dump(document))


def test_an_unreachable_host_stops_no_other_run_and_leaves_no_partial_file(project: Path) -> None:
    """Measure on an unreachable host. Two runs fail, and the workflow sets the testbed aside."""
    cut_off(project)
    change_study(project, cps=[100], threads=[2, 4])
    change_study(project, repetitions=1)
    change_config(project, lambda d: d.pop("documents"))
    done = snakemake(project)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    for threads in (2, 4):
        run = f"kamailio-udp default cores=1 threads={threads} cps=100 rep=1 on local"
        assert text.count(f"lost: {run}: host uac (root@127.0.0.1:1) is unreachable") == 1
        place = f"measuring {run}: run {threads // 2} of 2, about "
        assert len([line for line in text.splitlines() if line.startswith(place)]) == 1
    assert text.count("local is set aside: its remaining 2 runs must wait; ") == 1
    assert "local is still unreachable: its remaining 2 runs must wait for the next" in text
    # only the measurement of idle CPUs announces another attempt
    assert text.count("attempt 2 of 3: host uac (root@127.0.0.1:1) is unreachable") == 1
    target = "raw/local/kamailio-udp/default/cores~1/threads~3/cps~100/rep~1/run.json"
    alone = snakemake(project, target)
    assert ": run 1 of 1, about " in alone.stdout + alone.stderr
    assert "1 of 1 run is missing: snakemake measures it" in alone.stdout + alone.stderr
    assert [path for path in (project / "raw").rglob("*") if path.is_file()] == []


def record_campaign(project: Path, folder: str, cps: int) -> None:
    """Write the records of a small campaign on a testbed called local, without a measurement."""
    for rep in (1, 2):
        run = synthetic.Run(testbed="local", threads=2, cps=cps, rep=rep)
        synthetic.write_record(project / folder, run, calls=40)


def test_reports_of_a_recorded_campaign_need_no_testbed(project: Path) -> None:
    """Make reports as `make reports` does, and check that records and pages of other folders are kept apart."""
    asked = {"cps": [500, 1000], "threads": [2], "repetitions": 2}
    change_study(project, **asked)
    change_config(project, lambda d: d["documents"].pop("capacity_model"))
    record_campaign(project, "recorded/raw", 500)
    predictions = project / "recorded" / "predicted" / "papers.csv"
    predictions.parent.mkdir()
    synthetic.predictions().to_csv(predictions, index=False)
    options = ("--config", "only_measured=True", "records=recorded/raw")
    own = project / "reports" / "index.html"
    own.parent.mkdir(exist_ok=True)
    own.write_text("one's own")
    done = snakemake(project, *options)
    assert done.returncode == 0, done.stderr
    assert not (project / "raw").exists()
    assert own.read_text() == "one's own"
    text = (project / "reports" / "recorded" / "index.html").read_text()
    assert synthetic.FIDELITY in text
    assert "2 of 4 planned runs are valid" in text
    pages = [path.name for path in (project / "reports" / "recorded").glob("*.html")]
    assert len(pages) > 4
    for page in pages:
        assert page == "index.html" or f'<a href="{page}">' in text
    assert planned_jobs(project, *options) == {}

    done = snakemake(project, "--report", "report.zip", *options)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(project / "report.zip") as report:
        held = {Path(name).name for name in report.namelist()}
        content = report.read("report/report.html").decode()
    assert held >= set(pages)
    for category in ("Overview", "Studies", "Several studies", "Testbeds"):
        assert f'"{category}"' in content

    for name in ("requirements.lock", "pyproject.toml", "environment.yml", "LICENSE"):
        shutil.copy(PROJECT_ROOT / name, project / name)
    done = snakemake(project, "publish", *options)
    assert done.returncode == 0, done.stderr
    (archive,) = (project / "publish").iterdir()
    with zipfile.ZipFile(archive) as bundle:
        held = set(bundle.namelist())
    assert {f"reports/recorded/{page}" for page in pages} <= held
    assert {
        "results/recorded/raw/load_sweep/local/summary.nc",
        "config/config.yaml",
        "SHA256SUMS",
    } <= held
    assert {"hardware/testbeds/local.yaml", "requirements.lock"} <= held

    record_campaign(project, "raw", 500)
    jobs = planned_jobs(project, "--config", "only_measured=True")
    assert jobs["parse_run"] == jobs["summarise_run"] == 2
    assert jobs["render_report"] == 1


def test_an_archive_is_the_same_from_any_folder(project: Path) -> None:
    """Make an archive in two folders. The archives have the same bytes, and no name of a folder, machine or user."""
    asked = {"cps": [500], "threads": [2], "repetitions": 2}
    change_study(project, **asked)
    change_config(project, lambda d: d.pop("documents"))
    record_campaign(project, "raw", 500)
    place = project / "raw" / "local/kamailio-udp/default/cores~1/threads~2/cps~500/rep~1.failed-1"
    place.mkdir()
    (place / "failure.txt").write_text("host sps (jane@lab7:22) is unreachable: /home/jane/key\n")
    for name in ("requirements.lock", "pyproject.toml", "environment.yml", "LICENSE"):
        shutil.copy(PROJECT_ROOT / name, project / name)
    folders = [project / "one", project / "of" / "another-name"]
    archives = []
    for folder in folders:
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns("one", "of"))
        done = snakemake(folder, "publish", "--config", "only_measured=True")
        assert done.returncode == 0, done.stderr
        archives += (folder / "publish").iterdir()
    held = [read_archive(archive) for archive in archives]
    for name in held[0]:
        assert held[0][name] == held[1][name], name
    assert archives[0].read_bytes() == archives[1].read_bytes()
    told = [str(project), str(PROJECT_ROOT), str(Path.home()) + "/", "jane", "lab7"]
    for name, data in held[0].items():
        assert [text for text in told if text.encode() in data] == [], name


def read_archive(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def test_one_job_unpacks_all_reduced_records(project: Path) -> None:
    asked = {"cps": [500], "threads": [2], "repetitions": 2}
    change_config(project, lambda d: d.update(only=["load_sweep"]))
    change_study(project, **asked)
    record_campaign(project, "whole/raw", 500)
    whole = ("--config", "only_measured=True", "records=whole/raw")
    target = "results/{}/raw/load_sweep/local/summary.nc"
    done = snakemake(project, target.format("whole"), *whole)
    assert done.returncode == 0, done.stderr
    for document in (project / "whole" / "raw").rglob("run.json"):
        run = document.parent.relative_to(project / "whole" / "raw")
        results = project / "results" / "whole" / "raw" / "runs" / run
        reduce(document.parent, results, project / "kept" / "raw" / run)
    kept = ("--config", "only_measured=True", "records=kept/raw")
    jobs = planned_jobs(project, *kept, "--", target.format("kept"))
    assert jobs == {"unpack_reduced": 1, "combine_summaries": 1, "total": 2}
    done = snakemake(project, target.format("kept"), *kept)
    assert done.returncode == 0, done.stderr
    first, second = (open_summary(project / target.format(name)) for name in ("whole", "kept"))
    assert second["k_rcv_mean"].equals(first["k_rcv_mean"])
    assert planned_jobs(project, *kept, "--", target.format("kept")) == {}
