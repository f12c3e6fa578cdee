"""The configuration: what is asked for, and one line for what is wrong with it."""

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sipsched import paths
from sipsched.errors import StableError
from sipsched.plan import config, crossover, documents, modes
from sipsched.testbed.inventory import load_testbed

STUDIES = sorted((paths.PROJECT_ROOT / "config" / "studies").glob("*.yaml"))
AXES = {"suts": ["a"], "modes": ["default"], "cores": [1], "threads": [1], "cps": [1]}
STUDY = {"notebook": "n.ipynb", "repetitions": 1, **AXES}
DOCUMENT = {"notebook": "n.ipynb", "files": ["f"]}


@pytest.fixture
def document() -> dict[str, Any]:
    whole = documents.read_yaml(paths.PROJECT_ROOT / "config" / "config.yaml")
    whole["studies"] = {"load_sweep": whole["studies"]["load_sweep"]}
    for page in whole["documents"].values():
        if "studies" in page:
            page["studies"] = ["load_sweep"]
    return copy.deepcopy(whole)


def test_run_path_and_wildcards_agree() -> None:
    run = config.Run("local", "kamailio-udp", "enhanced+migration_cost_ns=500000", 2, 4, 4200, 7)
    assert str(run.path) == (
        "local/kamailio-udp/enhanced+migration_cost_ns=500000/cores~2/threads~4/cps~4200/rep~7"
    )
    wildcards = {name: str(value) for name, value in vars(run).items()}
    assert config.Run.from_wildcards(wildcards) == run


def test_runs_come_in_blocks_of_one_repetition(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(threads=[2, 8], cps=[100, 200], repetitions=3)
    runs = config.parse_config(document).runs()
    assert len(runs) == 12
    assert [run.rep for run in runs] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({(run.threads, run.cps) for run in runs[:4]}) == 4


def test_a_run_that_two_studies_ask_for_is_listed_once(document: dict[str, Any]) -> None:
    document["studies"]["again"] = document["studies"]["load_sweep"]
    runs = config.parse_config(document).runs()
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_file_is_valid_and_fits_the_example_of_a_testbed(
    document: dict[str, Any], path: Path
) -> None:
    file = documents.read_yaml(path)
    over(document, file)
    campaign = config.parse_config(document)
    assert set(campaign.studies) == set(file["only"]) == set(file["studies"])
    bed = load_testbed(*campaign.testbeds)
    # what a search would find decides which loads, not how many
    found = dict.fromkeys(campaign.searches(), (2000, 2100))
    runs = campaign.runs(found)
    bed.check_cores(runs)
    crossover.check({run.mode for run in runs}, modes.load_modes())
    told = re.search(
        r"# (\d+) runs(?: of [^,]*)?, (?:about (\d+) hours|some minutes)", path.read_text()
    )
    assert told is not None
    assert len(runs) == int(told[1])
    if bed.simulated:
        return
    # between two runs pass some 6 s
    load_s = sum(campaign.load_of(run).duration_s + campaign.load.warmup_s + 6 for run in runs)
    assert round(load_s / 3600) == int(told[2] or 0)


def over(document: dict[str, Any], other: dict[str, Any]) -> None:
    """Put one configuration over another as Snakemake does."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            over(document[key], value)
        else:
            document[key] = value


def test_points_pick_some_of_all_combinations(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(threads=[2, 8], cps=[100, 200], points=[[1, 2, 100], [1, 8, 200]], repetitions=1)
    runs = config.parse_config(document).runs()
    assert [(run.cores, run.threads, run.cps) for run in runs] == [(1, 2, 100), (1, 8, 200)]
    study["points"].append([1, 4, 100])
    with pytest.raises(StableError, match=r"load_sweep.points: \[1, 4, 100\] is not among"):
        config.parse_config(document)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"capacity": {"limit": 0.01}}, r"must contain \['relative_width'\] properties"),
        (
            {"capacity": {"limit": 1, "relative_width": 0.02}},
            "capacity.limit must be smaller than 1, found 1",
        ),
        (
            {"capacity": {"limit": 0.01, "relative_width": 0}},
            "capacity.relative_width must be bigger than or equal to 0.001, found 0",
        ),
        ({"cps": [100]}, ": expected one of cps and capacity, found cps and capacity"),
        ({"capacity": None}, ": expected one of cps and capacity, found neither"),
        ({"modes": ["default,batch"]}, "modes: 'default,batch' compares modes; a capacity is"),
        ({"points": [[1, 8, 100]]}, r"points: \[1, 8, 100\] is not among"),
    ],
)
def test_what_a_study_of_capacities_may_not_ask_for_is_told_with_file_and_key(
    document: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    study = document["studies"]["load_sweep"]
    del study["cps"]
    study["capacity"] = {"limit": 0.01, "relative_width": 0.02}
    assert config.parse_config(document, "my.yaml").studies["load_sweep"].searches("local")
    study.update(changes)
    if study["capacity"] is None:
        del study["capacity"]
    with pytest.raises(StableError, match=rf"\Amy.yaml: studies.load_sweep.*{expected}.*\Z"):
        config.parse_config(document, "my.yaml")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"precision": {"of": "k_rcv_mean"}}, "must contain .*'at_least', 'at_most', 'relative'"),
        ({"of": "pdr"}, "precision.of must match pattern .*found 'pdr'"),
        ({"relative": 0}, "precision.relative must be bigger than 0, found 0"),
        ({"at_least": 1}, "precision.at_least must be bigger than or equal to 2, found 1"),
        ({"at_least": 31}, r"precision: at_least \(31\) must not be more than at_most \(30\)"),
        ({"repetitions": 5}, "expected one of repetitions and precision, found repetitions and"),
        ({"precision": None}, "expected one of repetitions and precision, found neither"),
        ({"modes": ["default,batch"]}, "precision: 'default,batch' compares modes within each run"),
    ],
)
def test_what_a_precision_may_not_be_is_told_with_file_and_key(
    document: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    study = document["studies"]["load_sweep"]
    del study["repetitions"]
    asked = {"of": "k_rcv_mean", "relative": 0.05, "at_least": 5, "at_most": 30}
    study["precision"] = asked
    parsed = config.parse_config(document, "my.yaml").studies["load_sweep"]
    assert parsed.precision == config.Precision(**asked) and parsed.repetitions == 5
    for key, value in changes.items():
        (asked if key in asked else study)[key] = value
    if study["precision"] is None:
        del study["precision"]
    with pytest.raises(StableError, match=rf"\Amy.yaml: studies.load_sweep.*{expected}.*\Z"):
        config.parse_config(document, "my.yaml")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"twins": ["local"]}, "twins must contain at least 2 items"),
        ({"twins": ["local", "rack"]}, r"twins: 'rack' is not among testbeds \(local, vm\)"),
        ({"aside": ["local"]}, "aside: 'local' has no twin to give its runs to; twins: none"),
        (
            {"twins": ["local", "vm"], "aside": ["vm", "local"]},
            "aside: none of the twins is left to measure",
        ),
    ],
)
def test_what_twins_may_not_be_is_told_with_file_and_key(
    document: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    document |= {"testbeds": ["local", "vm"]} | changes
    with pytest.raises(StableError, match=rf"\Amy.yaml: {expected}.*\Z"):
        config.parse_config(document, "my.yaml")


def test_every_study_is_measured_once_before_any_is_repeated(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(cps=[100], repetitions=2)
    document["studies"]["again"] = study | {"cps": [200], "repetitions": 3}
    assert [(run.rep, run.cps) for run in config.parse_config(document).runs()] == [
        *((1, 100), (1, 200), (2, 100), (2, 200), (3, 200)),
    ]


def test_only_the_studies_that_are_named_are_measured(document: dict[str, Any]) -> None:
    document["studies"]["again"] = document["studies"]["load_sweep"]
    assert list(config.parse_config(document).studies) == ["load_sweep", "again"]
    document["only"] = ["again"]
    assert list(config.parse_config(document).studies) == ["again"]
    document["only"] = ["never"]
    with pytest.raises(StableError, match="only: 'never' is not defined under studies"):
        config.parse_config(document)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("load", "durations_s"), 1, "load must not contain {'durations_s'} properties"),
        (("load", "generator"), "sipp", "load.law: SIPp .*: expected constant, found exponential"),
        (("search", "highest_cps"), 200, r"lowest_cps \(200\) must be less than highest_cps"),
        (("studies", "load_sweep", "cps"), [0], r"cps\[0\] must be bigger than or equal to 1"),
        (("studies", "load_sweep", "cps"), [10**6], r"cps\[0\] must be smaller than .* 40000"),
        (("load", "duration_s"), 0, "load.duration_s must be bigger than 0, found 0"),
        (("probe",), "kprobe", "probe must be one of .*found 'kprobe'"),
        (
            ("studies", "load_sweep", "cores"),
            [0],
            r"load_sweep.cores\[0\] must be bigger than or equal to 1, found 0",
        ),
        (("studies", "load_sweep", "suts"), ["asterisk-udp"], "'asterisk-udp' is not defined"),
        (("studies", "load_sweep", "modes"), ["Turbo"], "must match pattern .*found 'Turbo'"),
        (("testbeds",), [], "testbeds must contain at least 1 items"),
        (("records",), "/elsewhere", "records must match pattern"),
        (("studies", "testbed"), STUDY, "studies must be named by propertyName definition"),
        (("documents", "index"), DOCUMENT, "documents must be named by propertyName definition"),
    ],
)
def test_bad_configuration_is_named_in_one_line(
    document: dict[str, Any], path: tuple[str, ...], value: object, expected: str
) -> None:
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(StableError, match=expected) as error:
        config.parse_config(document)
    assert "\n" not in str(error.value)


def asked(**other: Any) -> config.Run:
    return replace(config.Run("local", "kamailio-udp", "default", 1, 8, 1000, 1), **other)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (asked(threads=0), "threads~0/.*: threads must be bigger than or equal to 1, found 0"),
        (asked(threads=100000), "threads must be smaller than or equal to 250, found 100000"),
        (asked(cores=0), "cores must be bigger than or equal to 1, found 0"),
        (asked(cps=0), "cps must be bigger than or equal to 1, found 0"),
        (asked(cps=10**6), "cps must be smaller than or equal to 40000, found 1000000"),
        (asked(rep=1001), "rep must be smaller than or equal to 1000, found 1001"),
        (asked(mode="Turbo"), "mode must match pattern"),
        (asked(sut="asterisk-udp"), "'asterisk-udp' is not defined under suts"),
        (asked(testbed="vm"), r"testbed 'vm' is not among testbeds \(local\)"),
    ],
)
def test_a_run_that_is_asked_for_directly_obeys_the_schema(
    document: dict[str, Any], run: config.Run, expected: str
) -> None:
    campaign = config.parse_config(document)
    campaign.check_run(asked())
    with pytest.raises(StableError, match=expected) as error:
        campaign.check_run(run)
    assert "\n" not in str(error.value)


def test_a_search_that_is_asked_for_directly_obeys_the_schema(document: dict[str, Any]) -> None:
    campaign = config.parse_config(document)
    campaign.check_search(config.Point("local", "kamailio-udp", "default", 1, 8))
    with pytest.raises(StableError, match=r"threads~251/crossing\.json: threads must be smaller"):
        campaign.check_search(config.Point("local", "kamailio-udp", "default", 1, 251))


def test_a_name_of_a_mode_that_goes_on_in_the_next_line(document: dict[str, Any]) -> None:
    with pytest.raises(StableError, match="mode must match pattern"):
        config.parse_config(document).check_run(asked(mode="default\n"))


def test_a_name_of_two_lines_does_not_break_the_message(document: dict[str, Any]) -> None:
    document["studies"]["load_sweep"]["suts"] = ["a\nb"]
    with pytest.raises(StableError, match=r"load_sweep\.suts: 'a b' is not defined under suts"):
        config.parse_config(document)


def test_a_document_reads_studies_that_are_there(document: dict[str, Any]) -> None:
    pages = document["documents"]
    pages["published"]["studies"] = ["load_sweep"]
    assert config.parse_config(document).documents["published"].studies == ("load_sweep",)
    pages["published"]["studies"] = ["nowhere"]
    with pytest.raises(StableError, match=r"documents\.published\.studies: 'nowhere' is not def"):
        config.parse_config(document)


@pytest.mark.parametrize(
    ("sut", "message"),
    [
        ({"connections": 2}, r"suts\.x\.connections: only TCP has them"),
        ({"transport": "tcp", "probe": "off"}, r"suts\.x\.connections: missing; TCP takes"),
        (
            {"transport": "tcp", "connections": 1, "probe": "exact"},
            r"suts\.x\.probe: over TCP .* expected auto or off, found exact",
        ),
        (
            {"transport": "tcp", "connections": 1, "probe": "off", "deployment": "sockets"},
            r"suts\.x\.deployment: over TCP there are shared, listeners, dispatcher; found sockets",
        ),
        ({"deployment": "dispatcher"}, r"suts\.x\.deployment: over UDP there are shared, .* found"),
        ({"deployment": "front"}, r"suts\.x\.probe: every message would be two .* found none"),
        ({"transport": "sctp"}, r"suts\.x\.transport must be one of"),
        ({"transport": "tcp", "connections": 0, "probe": "off"}, r"suts\.x\.connections"),
    ],
)
def test_a_transport_that_is_not_thought_through_is_one_clear_error(
    document: dict[str, Any], sut: dict[str, Any], message: str
) -> None:
    document["suts"]["x"] = document["suts"]["kamailio-udp"] | sut
    with pytest.raises(StableError, match=message):
        config.parse_config(document)


def test_over_tcp_sipp_is_not_run_and_behind_a_front_modes_are_not_compared(
    document: dict[str, Any],
) -> None:
    study = document["studies"]["load_sweep"]
    study["suts"] = ["kamailio-tcp"]
    campaign = config.parse_config(document)
    campaign.check_run(config.Run("local", "kamailio-tcp", "default,batch", 1, 8, 100, 1))
    run = config.Run("local", "kamailio-tcp-dispatcher", "default,batch", 1, 8, 100, 1)
    with pytest.raises(StableError, match="'default,batch' compares modes by the messages"):
        campaign.check_run(run)
    document["load"] |= {"generator": "sipp", "law": "constant"}
    with pytest.raises(StableError, match="load_sweep: kamailio-tcp: SIPp is run over UDP"):
        config.parse_config(document)
    document["load"]["generator"] = "sipload"
    study |= {"suts": ["kamailio-tcp-dispatcher"], "modes": ["default,batch"]}
    with pytest.raises(StableError, match="compares modes by the messages"):
        config.parse_config(document)


def test_every_key_of_the_schemas_is_described() -> None:
    def undescribed(schema: Any, where: str) -> list[str]:
        if not isinstance(schema, dict):
            return []
        found = []
        for key, body in schema.get("properties", {}).items():
            if "description" not in body and "$ref" not in body:
                found.append(f"{where}.{key}")
            found += undescribed(body, f"{where}.{key}")
        found += undescribed(schema.get("additionalProperties"), f"{where}.*")
        return found

    for file in paths.SCHEMAS.glob("*.yaml"):
        schema = documents.read_yaml(file)
        assert undescribed(schema, file.stem) == []
        for name, body in schema.get("$defs", {}).items():
            assert undescribed(body, f"{file.stem}.{name}") == []


@pytest.mark.parametrize(
    "file", sorted((paths.PROJECT_ROOT / paths.TESTBEDS).glob("*.yaml")), ids=lambda f: f.stem
)
def test_every_testbed_file_loads(file: Any) -> None:
    testbed = load_testbed(file.stem)
    assert [host.role for host in testbed.hosts] == ["uac", "sps", "uas"]
    testbed.check_cores([config.Run(file.stem, "kamailio-udp", "default", 1, 2, 100, 1)])


def test_a_testbed_says_how_long_to_wait_for_it(tmp_path: Any) -> None:
    text = (paths.TESTBEDS / "local.yaml").read_text()
    assert load_testbed("local").lock_wait_s == 600
    (tmp_path / "local.yaml").write_text(f"{text}lock_wait_s: 7200\n")
    assert load_testbed("local", tmp_path).lock_wait_s == 7200
    for wrong in ("-1", ".inf", "soon"):
        (tmp_path / "local.yaml").write_text(f"{text}lock_wait_s: {wrong}\n")
        with pytest.raises(StableError, match=r"lock_wait_s|\.inf is no number"):
            load_testbed("local", tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "local",
            "Three network namespaces on one machine, joined by veth: UAC on CPU 0; SPS on CPUs 1, 0; "
            "UAS on CPU 0, what watches the SPS on its CPU 0",
        ),
        (
            "vm",
            "SPS in a QEMU guest (2 sockets of 4 cores, Debian's 6.1 kernel (CFS)), UAC and UAS in "
            "network namespaces outside it: UAC on CPU 0; SPS on CPUs 0–6; UAS on CPU 0, what "
            "watches the SPS on its CPU 7",
        ),
        (
            "example-physical",
            "Three hosts reached by SSH: UAC on CPUs 0–3; SPS on CPUs 0–7; UAS on CPUs 0–3, what "
            "watches the SPS on its CPU 8. One switch, 10 Gbit/s",
        ),
    ],
)
def test_a_testbed_is_described_by_its_file(name: str, expected: str) -> None:
    assert load_testbed(name).labels.description == expected


def test_a_copied_testbed_is_described_by_what_was_changed_in_it(tmp_path: Path) -> None:
    document = yaml.safe_load((paths.TESTBEDS / "local.yaml").read_text())
    document["name"] = "copy"
    document["hosts"]["sps"] |= {"cpus": [1, 3, 4, 5], "helper_cpus": [2]}
    (tmp_path / "copy.yaml").write_text(yaml.safe_dump(document))
    bed = load_testbed("copy", tmp_path)
    assert "SPS on CPUs 1, 3–5; UAS on CPU 0, what watches the SPS on its CPU 2" in bed.description


def test_unknown_testbed_names_those_there_are() -> None:
    with pytest.raises(StableError, match=r"testbed 'nowhere'.*example-physical, local"):
        load_testbed("nowhere")


def test_more_cores_than_the_sps_has() -> None:
    runs = [
        config.Run("local", "kamailio-udp", "default", cores, 2, 100, rep)
        for cores, rep in ((1, 1), (64, 1), (64, 2))
    ]
    with pytest.raises(StableError, match=r"local\.yaml.* 1 point.* ask for more: cores=64"):
        load_testbed("local").check_cores(runs)


def test_testbed_file_that_is_not_yaml(tmp_path: Any) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nhosts: [")
    with pytest.raises(StableError, match=r"bad\.yaml: line \d+ is not YAML"):
        load_testbed("bad", tmp_path)
