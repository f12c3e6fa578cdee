"""Tests of the configuration: the runs that it requests, and the one-line error for each mistake."""

import copy
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from sipsched import paths
from sipsched.errors import StableError
from sipsched.plan import config, crossover, described, documents, modes
from sipsched.plan.keys import bare, describe, key_types, options
from sipsched.plan.loads import Precision
from sipsched.plan.modes import DeclaredMode
from sipsched.plan.run import Point, Run
from sipsched.plan.simulated import DeclaredModel
from sipsched.plan.study import OWN_PAGES, TESTBED_PAGES, Document
from sipsched.plan.sut import Sut
from sipsched.records.forecast import Lanes, outlooks
from sipsched.testbed import inventory
from sipsched.testbed.inventory import DeclaredTestbed, HostSpec, load_testbed
from sipsched.testbed.topology import Core
from sipsched.validity.rules import RULES

README = paths.PROJECT_ROOT / "config" / "README.md"
STUDIES = sorted((paths.PROJECT_ROOT / "config" / "studies").glob("*.yaml"))
AXES = {"suts": ["a"], "modes": ["default"], "cores": [1], "threads": [1], "cps": [1]}
STUDY = {"notebook": "n.ipynb", "repetitions": 1, **AXES}
DOCUMENT = {"notebook": "n.ipynb", "files": ["f"]}
SIMULATED = {
    "kernel": "6.18",
    "processors": 1,
    "cores_per_processor": 1,
    "model": "kamailio-qm",
    "without": [],
}


@pytest.fixture
def document() -> dict[str, Any]:
    whole = documents.read_yaml(paths.PROJECT_ROOT / "config" / "config.yaml")
    whole["studies"] = {"load_sweep": whole["studies"]["load_sweep"]}
    for page in whole["documents"].values():
        if "studies" in page:
            page["studies"] = ["load_sweep"]
    return copy.deepcopy(whole)


def test_run_path_and_wildcards_agree() -> None:
    run = Run("local", "kamailio-udp", "enhanced+migration_cost_ns=500000", 2, 4, 4200, 7)
    assert str(run.path) == (
        "local/kamailio-udp/enhanced+migration_cost_ns=500000/cores~2/threads~4/cps~4200/rep~7"
    )
    wildcards = {name: str(value) for name, value in vars(run).items()}
    assert Run.from_wildcards(wildcards) == run


def test_the_log_of_a_search_is_not_its_record() -> None:
    point = Point("local", "kamailio-udp", "default", 1, 8)
    assert str(point.log) == f"logs/measure/{point.crossing_path}.log"
    assert str(point.run(100, 1).log) == f"logs/measure/{point.run(100, 1).path}.log"


def test_runs_come_in_blocks_of_one_repetition(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(threads=[2, 8], cps=[100, 200], repetitions=3)
    runs = config.parse_config(document).runs()
    assert len(runs) == 12
    assert [run.rep for run in runs] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({(run.threads, run.cps) for run in runs[:4]}) == 4


def test_the_repetitions_of_a_study_spread_over_the_campaign(document: dict[str, Any]) -> None:
    sweep, other = document["studies"]["load_sweep"], dict(document["studies"]["load_sweep"])
    sweep.update(cps=[100, 200], repetitions=3)
    other.update(modes=["default", "baseline"], cps=[300, 400], repetitions=1)
    document["studies"] = {"load_sweep": sweep, "other": other}
    document["documents"] = {}
    runs = config.parse_config(document).runs()
    assert [run.cps for run in runs] == [100, 200, 300, 300, 100, 200, 100, 400, 400, 200]
    # runs that a study compares follow each other
    assert [run.mode for run in runs if run.cps >= 300] == ["default", "baseline"] * 2


def test_the_length_of_a_run_follows_from_its_number_of_calls(document: dict[str, Any]) -> None:
    run = Run("local", "kamailio-udp", "default", 4, 8, 800, 1)
    assert config.parse_config(document).load_of(run).duration_s == 6
    document["load"]["calls"] = 4000
    campaign = config.parse_config(document)
    assert campaign.load_of(run).duration_s == 5
    assert campaign.load_of(replace(run, cores=1)).duration_s == 5
    document["load"]["calls"] = {"2": 8000, "6": 1600}
    campaign = config.parse_config(document)
    seconds = [campaign.load_of(replace(run, cores=cores)).duration_s for cores in (1, 2, 4, 6, 8)]
    assert seconds == [10, 10, 10, 2, 2]
    # a run that compares two modes lasts three times as long as one mode, because the sham counts as a mode
    comparison = replace(run, mode="default,baseline")
    assert campaign.load_of(comparison).duration_s == 3 * campaign.crossover.mode_s
    document["load"]["calls"] = {"2": 0}
    with pytest.raises(StableError, match=r"load\.calls\.2: expected int >= 1, found 0"):
        config.parse_config(document)


def test_one_testbed_replaces_all_others(document: dict[str, Any]) -> None:
    document |= {"testbeds": ["a", "b"], "testbed": "c"}
    assert config.parse_config(document).testbeds == ("c",)


def test_a_study_is_measured_on_its_own_testbeds(document: dict[str, Any]) -> None:
    document["testbeds"] = ["a", "b"]
    document["studies"]["again"] = {
        **document["studies"]["load_sweep"],
        **{"cps": [500], "testbeds": ["b"]},
    }
    campaign = config.parse_config(document)
    again = campaign.studies["again"]
    assert again.runs("a") == again.searches("a") == []
    assert {run.testbed for run in again.runs("b")} == {"b"}
    assert {run.testbed for run in campaign.runs()} == {"b"}
    assert {point.testbed for point in campaign.searches()} == {"a", "b"}
    alone = config.parse_config({**document, "testbed": "c"}).studies["again"]
    assert {run.testbed for run in alone.runs("c")} == {"c"}
    document["studies"]["again"]["testbeds"] = ["c"]
    with pytest.raises(StableError, match=r"studies\.again\.testbeds: 'c' is not among testbeds"):
        config.parse_config(document)


def test_a_run_of_two_studies_is_listed_once(document: dict[str, Any]) -> None:
    document["studies"]["again"] = document["studies"]["load_sweep"]
    runs = config.parse_config(document).runs()
    assert len(runs) == len(set(runs))


def cores_of(count: int) -> tuple[Core, ...]:
    """Return the cores of a machine with one processor and no hyper-threads."""
    return tuple(Core(0, (cpu,)) for cpu in range(count))


def test_the_study_of_many_cores_lasts_25_minutes_and_names_a_machine_that_is_too_small(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = paths.PROJECT_ROOT / "config" / "studies" / "multi_core_local.yaml"
    over(document, documents.read_yaml(path))
    campaign = config.parse_config(document)
    (outlook,) = outlooks(campaign, tmp_path, Lanes(frozenset({"local"})))
    told = re.search(r"take about (\d+) minutes", path.read_text())
    assert told
    assert round(outlook.work_s / 60) == int(told[1]) <= 25

    for cores, end in ((2, "with the SPS, also the second CPU of the SPS"), (13, "with the SPS")):
        monkeypatch.setattr(inventory, "read_cores", partial(cores_of, cores))
        assert load_testbed("local").fidelity.endswith(end)
    monkeypatch.setattr(inventory, "read_cores", lambda: cores_of(12))
    too_large = (
        r"the SPS has 7 CPU.* from the cores of this machine.* ask for more: cores=8 threads=8"
    )
    with pytest.raises(StableError, match=too_large):
        load_testbed("local").check_cores([*campaign.searches(), *campaign.runs()])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_file_is_valid_and_fits_the_example_of_a_testbed(
    document: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "read_cores", lambda: cores_of(19))
    file = documents.read_yaml(path)
    over(document, file)
    campaign = config.parse_config(document)
    assert set(campaign.studies) == set(file["only"]) == set(file["studies"])
    beds = [load_testbed(name) for name in campaign.testbeds]
    # assume a result for each search, because the result changes the loads but not the number of runs
    result = dict.fromkeys(campaign.searches(), (2000, 2100))
    runs = campaign.runs(result)
    for bed in beds:
        bed.check_cores([run for run in runs if run.testbed == bed.name])
    crossover.check({run.mode for run in runs}, modes.load_modes())
    told = re.search(r"has (\d+) runs(?:.* takes about (\d+) hours?)?", path.read_text())
    assert told is not None
    listed = re.search(rf"`studies/{path.name}` \|.*\| (\d+) \|\n", README.read_text())
    assert listed is not None, f"config/README.md has no row for {path.name}"
    assert len(runs) == int(told[1]) == int(listed[1])
    if all(bed.simulated for bed in beds):
        return
    # about 6 s pass between two runs
    load_s = sum(campaign.load_of(run).duration_s + campaign.load.warmup_s + 6 for run in runs)
    assert round(load_s / 3600) == int(told[2] or 0)


def over(document: dict[str, Any], other: dict[str, Any]) -> None:
    """Merge one configuration into another as Snakemake does."""
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
    with pytest.raises(StableError, match=r"load_sweep.points: \[1, 4, 100\] is not a combination"):
        config.parse_config(document)
    study["points"] = [[1, 2]]
    with pytest.raises(StableError, match=r"\[1, 2\] is not a combination .* cores, threads, cps"):
        config.parse_config(document)


def test_points_without_a_load_pick_the_systems_of_a_search(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(cores=[1, 2], threads=[2, 8], points=[[1, 2], [2, 8]], repetitions=1)
    campaign = config.parse_config(document)
    points = campaign.searches()
    assert [(point.cores, point.threads) for point in points] == [(1, 2), (2, 8)]
    runs = campaign.runs(dict.fromkeys(points, (2000, 2100)))
    assert {(run.cores, run.threads) for run in runs} == {(1, 2), (2, 8)}
    study["points"] = [[1, 2, 100]]
    with pytest.raises(StableError, match=r"\[1, 2, 100\] is not a combination .* cores, threads$"):
        config.parse_config(document)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"capacity": {"limit": 0.01}}, r"capacity.relative_width is missing: Distance"),
        (
            {"capacity": {"limit": 1, "relative_width": 0.02}},
            "capacity.limit: expected float < 1.0, found 1",
        ),
        (
            {"capacity": {"limit": 0.01, "relative_width": 0}},
            "capacity.relative_width: expected float >= 0.001, found 0",
        ),
        ({"cps": [100]}, ": expected one of cps and capacity, found cps and capacity"),
        ({"capacity": None}, ": expected one of cps and capacity, found neither"),
        (
            {"modes": ["default,batch", "rr"]},
            "modes: 'rr' is a single mode, and the study compares",
        ),
        ({"modes": ["default,batch"]}, "repetitions: a comparison of capacities has trials and no"),
        ({"points": [[1, 8, 100]]}, r"points: \[1, 8, 100\] is not a combination"),
    ],
)
def test_a_wrong_key_of_a_capacity_study_is_named_with_its_file(
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


def test_capacities_of_systems_that_no_run_can_compare_are_compared(
    document: dict[str, Any],
) -> None:
    study = document["studies"]["load_sweep"]
    del study["cps"], study["repetitions"], study["notebook"]
    suts = ("opensips-udp", "kamailio-udp-sockets")
    mode = ",".join(("default", *(f"default+sut={sut}" for sut in suts)))
    study |= {"modes": [mode], "capacity": {"limit": 0.01, "relative_width": 0.05}}
    parsed = config.parse_config(document, "my.yaml")
    (point, *_) = parsed.studies["load_sweep"].searches("local")
    assert point.mode == mode
    parsed.check_search(point)
    known = dict.fromkeys(parsed.searches(), (900, 1000))
    assert not parsed.studies["load_sweep"].runs("local", known)
    with pytest.raises(StableError, match="opensips; the probe finds the workers of one program"):
        parsed.check_run(point.run(100, 1))
    with pytest.raises(StableError, match="search in one of these modes, or compare"):
        parsed.check_search(replace(point, goal=None))
    for sut, mode, reason in (
        ("kamailio-udp", "default,default+sut=kamailio-udp-front", "counts each message twice"),
        ("kamailio-udp-front", "default,batch", "counts each message twice"),
        ("kamailio-udp", "default,default+sut=kamailio-tcp", "over TCP, an overload delays calls"),
        ("kamailio-tcp", "default,batch", "over TCP, an overload delays calls"),
    ):
        study |= {"suts": [sut], "modes": [mode]}
        with pytest.raises(StableError, match=rf"has no comparable load, because .*{reason}"):
            config.parse_config(document, "my.yaml")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"precision": {"of": "k_rcv_mean"}}, "precision.relative is missing: The goal"),
        ({"of": "pdr"}, "precision.of: expected str matching regex .*found 'pdr'"),
        ({"relative": 0}, "precision.relative: expected float > 0.0, found 0"),
        ({"at_least": 1}, "precision.at_least: expected int >= 2, found 1"),
        ({"at_least": 31}, r"precision: at_least \(31\) must not be more than at_most \(30\)"),
        ({"repetitions": 5}, "expected one of repetitions and precision, found repetitions and"),
        ({"precision": None}, "expected one of repetitions and precision, found neither"),
        ({"modes": ["default,batch"]}, "precision: 'default,batch' compares modes within each run"),
    ],
)
def test_a_wrong_precision_is_named_with_file_and_key(
    document: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    study = document["studies"]["load_sweep"]
    del study["repetitions"]
    asked = {"of": "k_rcv_mean", "relative": 0.05, "at_least": 5, "at_most": 30}
    study["precision"] = asked
    parsed = config.parse_config(document, "my.yaml").studies["load_sweep"]
    assert parsed.precision == Precision(**asked) and parsed.repetitions == 5
    for key, value in changes.items():
        (asked if key in asked else study)[key] = value
    if study["precision"] is None:
        del study["precision"]
    with pytest.raises(StableError, match=rf"\Amy.yaml: studies.load_sweep.*{expected}.*\Z"):
        config.parse_config(document, "my.yaml")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"twins": ["local"]}, "twins: expected at least two testbeds, found local"),
        ({"twins": ["local", "rack"]}, r"twins: 'rack' is not among testbeds \(local, vm\)"),
        (
            {"aside": ["local"]},
            "aside: 'local' has no twin that could measure its runs; twins: none",
        ),
        (
            {"twins": ["local", "vm"], "aside": ["vm", "local"]},
            "aside: no twin is left to measure",
        ),
    ],
)
def test_wrong_twins_are_named_with_file_and_key(
    document: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    document |= {"testbeds": ["local", "vm"]} | changes
    with pytest.raises(StableError, match=rf"\Amy.yaml: {expected}.*\Z"):
        config.parse_config(document, "my.yaml")


def test_studies_of_different_lengths_progress_at_the_same_rate(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study.update(cps=[100], repetitions=2)
    document["studies"]["again"] = study | {"cps": [200], "repetitions": 3}
    assert [(run.rep, run.cps) for run in config.parse_config(document).runs()] == [
        *((1, 200), (1, 100), (2, 200), (2, 100), (3, 200)),
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
        (("load", "durations_s"), 1, "load: unknown key 'durations_s'; did you mean 'duration_s'"),
        (("search", "highest_cps"), 200, r"lowest_cps \(200\) must be less than highest_cps"),
        (("studies", "load_sweep", "cps"), [0], r"cps\[0\]: expected int >= 1, found 0"),
        (
            ("studies", "load_sweep", "cps"),
            [10**6],
            r"cps\[0\]: expected int <= 40000, found 1000000",
        ),
        (
            ("load", "duration_s"),
            0,
            "load.duration_s: expected float > 0.0, found 0. Seconds of load",
        ),
        (("probe",), "kprobe", "probe: expected one of auto, exact, .*found 'kprobe'"),
        (
            ("studies", "load_sweep", "cores"),
            [0],
            r"load_sweep.cores\[0\]: expected int >= 1, found 0",
        ),
        (("studies", "load_sweep", "suts"), ["asterisk-udp"], "'asterisk-udp' is not defined"),
        (
            ("studies", "load_sweep", "modes"),
            ["Turbo"],
            "expected str matching regex .*found 'Turbo'",
        ),
        (("testbeds",), [], "testbeds: expected array of length >= 1"),
        (("records",), "/elsewhere", "records: expected str matching regex"),
        (("records",), "../../etc", "records: expected str matching regex"),
        (("records",), "raw/../../etc", "records: expected str matching regex"),
        *(
            (("studies", name), STUDY, f"studies: expected str .*found name '{name}'")
            for name in TESTBED_PAGES
        ),
        *(
            (("documents", name), DOCUMENT, f"documents: expected str .*found name '{name}'")
            for name in OWN_PAGES
        ),
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


def asked(**other: Any) -> Run:
    return replace(Run("local", "kamailio-udp", "default", 1, 8, 1000, 1), **other)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (asked(threads=0), "threads~0/.*: threads: expected int >= 1, found 0"),
        (asked(threads=100000), "threads: expected int <= 250, found 100000"),
        (asked(cores=0), "cores: expected int >= 1, found 0"),
        (asked(cps=0), "cps: expected int >= 1, found 0"),
        (asked(cps=10**6), "cps: expected int <= 40000, found 1000000"),
        (asked(rep=1001), "rep: expected int <= 1000, found 1001"),
        (asked(mode="Turbo"), "mode: expected str matching regex"),
        (asked(sut="asterisk-udp"), "'asterisk-udp' is not defined under suts"),
        (asked(testbed="vm"), r"testbed 'vm' is not among testbeds \(local\)"),
    ],
)
def test_a_run_that_is_requested_directly_obeys_the_schema(
    document: dict[str, Any], run: Run, expected: str
) -> None:
    campaign = config.parse_config(document)
    campaign.check_run(asked())
    with pytest.raises(StableError, match=expected) as error:
        campaign.check_run(run)
    assert "\n" not in str(error.value)


def test_a_search_that_is_requested_directly_obeys_the_schema(document: dict[str, Any]) -> None:
    campaign = config.parse_config(document)
    campaign.check_search(Point("local", "kamailio-udp", "default", 1, 8))
    with pytest.raises(
        StableError, match=r"threads~251/crossing\.json: threads: expected int <= 250"
    ):
        campaign.check_search(Point("local", "kamailio-udp", "default", 1, 251))


def test_a_mode_name_with_a_line_break_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(StableError, match="mode: expected str matching regex"):
        config.parse_config(document).check_run(asked(mode="default\n"))


def test_a_name_of_two_lines_does_not_break_the_message(document: dict[str, Any]) -> None:
    document["studies"]["load_sweep"]["suts"] = ["a\nb"]
    with pytest.raises(StableError, match=r"load_sweep\.suts: 'a b' is not defined under suts"):
        config.parse_config(document)


def test_half_of_a_surrogate_pair_is_refused(document: dict[str, Any]) -> None:
    document["load"]["law"] = "\ud800"
    with pytest.raises(StableError, match=r"load\.law: expected Unicode text, found '\\ud800'"):
        config.parse_config(document)


def test_a_document_reads_existing_studies(document: dict[str, Any]) -> None:
    pages = document["documents"]
    pages["published"]["studies"] = ["load_sweep"]
    assert config.parse_config(document).documents["published"].studies == ("load_sweep",)
    pages["published"]["studies"] = ["nowhere"]
    with pytest.raises(StableError, match=r"documents\.published\.studies: 'nowhere' is not def"):
        config.parse_config(document)


@pytest.mark.parametrize(
    ("sut", "message"),
    [
        ({"connections": 2}, r"suts\.x\.connections: only TCP has connections"),
        (
            {"program": "/a/b", "release": "trixie"},
            r"suts\.x: program and release exclude each other",
        ),
        ({"transport": "tcp", "probe": "off"}, r"suts\.x\.connections is missing: a number"),
        (
            {"transport": "tcp", "connections": 1, "probe": "exact"},
            r"suts\.x\.probe: expected auto or off over TCP, found exact",
        ),
        (
            {"transport": "tcp", "connections": 1, "probe": "off", "deployment": "sockets"},
            r"suts\.x\.deployment: expected one of shared, listeners, dispatcher over TCP, found sockets",
        ),
        (
            {"deployment": "dispatcher"},
            r"suts\.x\.deployment: expected one of shared, .* over UDP, found",
        ),
        (
            {"deployment": "front"},
            r"suts\.x\.probe: expected off, found none.* every message twice",
        ),
        (
            {"front_host": "front"},
            r"suts\.x\.front_host: expected sps, found front; deployment shared has no front end",
        ),
        (
            {"shard_by": "user"},
            r"suts\.x\.shard_by: expected call-id, found user; with deployment shared, neither",
        ),
        ({"shard_by": "from"}, r"suts\.x\.shard_by: expected one of call-id, user, found 'from'"),
        ({"transport": "sctp"}, r"suts\.x\.transport: expected one of udp, tcp, found 'sctp'"),
        ({"transport": "tcp", "connections": 0, "probe": "off"}, r"suts\.x\.connections"),
    ],
)
def test_an_inconsistent_transport_is_one_clear_error(
    document: dict[str, Any], sut: dict[str, Any], message: str
) -> None:
    document["suts"]["x"] = document["suts"]["kamailio-udp"] | sut
    with pytest.raises(StableError, match=message):
        config.parse_config(document)


def test_modes_are_not_compared_behind_a_front(
    document: dict[str, Any],
) -> None:
    study = document["studies"]["load_sweep"]
    study["suts"] = ["kamailio-tcp"]
    campaign = config.parse_config(document)
    campaign.check_run(Run("local", "kamailio-tcp", "default,batch", 1, 8, 100, 1))
    run = Run("local", "kamailio-tcp-dispatcher", "default,batch", 1, 8, 100, 1)
    with pytest.raises(StableError, match="'default,batch' compares modes by the timestamps"):
        campaign.check_run(run)
    study |= {"suts": ["kamailio-tcp-dispatcher"], "modes": ["default,batch"]}
    with pytest.raises(StableError, match="compares modes by the timestamps"):
        config.parse_config(document)


def test_the_error_for_a_misspelt_key_names_the_right_key(document: dict[str, Any]) -> None:
    study = document["studies"]["load_sweep"]
    study["cbs"] = study.pop("cps")
    with pytest.raises(StableError, match=r"load_sweep: unknown key 'cbs'; did you mean 'cps'\?"):
        config.parse_config(document)
    document["suts"]["kamailio-udp"]["routing"] = "statefull"
    study["cps"] = study.pop("cbs")
    with pytest.raises(StableError, match=r"kamailio-udp\.routing: .*did you mean 'stateful'\?"):
        config.parse_config(document)


def test_a_sut_has_the_defaults_of_its_proxy_and_its_own_keys_over_them(
    document: dict[str, Any],
) -> None:
    document["sut_defaults"]["kamailio"] |= {"package_memory_mib": 64}
    document["suts"]["x"] = {"proxy": "kamailio", "memory_manager": "fm"}
    sut = config.parse_config(document).suts["x"]
    assert (sut.package_memory_mib, sut.memory_manager, sut.routing) == (64, "fm", "stateful")
    assert config.parse_config(document).suts["opensips-udp"].package_memory_mib == 32
    document["sut_defaults"]["kamailio"]["memory"] = 1
    with pytest.raises(StableError, match=r"sut_defaults\.kamailio: unknown key 'memory'"):
        config.parse_config(document)


def test_the_tables_are_made_from_the_declarations() -> None:
    for document in described.TABLES:
        assert document.read_text() == described.renewed(document), "run: make tables"


def keys_of(kind: Any) -> Iterator[tuple[Any, str]]:
    """Yield each key of a dataclass and of all nested dataclasses, as (class, key)."""
    for key, hint in key_types(kind).items():
        yield kind, key
        for option in options(hint):
            for part in (bare(option), *get_args(bare(option))):
                if dataclasses.is_dataclass(part):
                    yield from keys_of(part)


def test_every_key_is_described() -> None:
    kinds = (config.Declared, Sut, Document, DeclaredMode, DeclaredModel, DeclaredTestbed, HostSpec)
    keys = {key for kind in kinds for key in keys_of(kind)}
    assert len(keys) > 150
    given = {"name", "role"}
    undescribed = {
        f"{kind.__name__}.{key}"
        for kind, key in keys
        if key not in given and not describe(key_types(kind)[key])
    }
    assert undescribed == set()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "virtual"}, "virtual is missing: a testbed of kind virtual needs it"),
        ({"kind": "vm"}, "vm is missing: a testbed of kind vm needs it"),
        ({"simulated": SIMULATED}, "simulated: a testbed of kind local has no such key"),
        (
            {"kind": "simulated", "simulated": SIMULATED},
            "workdir: a testbed of kind simulated has no",
        ),
        (
            {"tuning": {"receive_cpus": [0]}},
            "tuning: receive_interfaces and receive_cpus belong together",
        ),
        ({"tuning": {"quiet": ["halt"]}}, "tuning.quiet: halt needs autogroup"),
        ({"tuning": {"receive_cpus": None}}, "tuning.receive_cpus has no value; add a value"),
        ({"tuning": {"quite": []}}, "tuning: unknown key 'quite'; did you mean 'quiet'"),
        ({"hosts": {"uac": {}}}, "hosts: expected 3 or more entries, found 1"),
        ({"lock_wait": 1}, "unknown key 'lock_wait'; did you mean 'lock_wait_s'"),
        ({"hosts": "sps"}, "hosts: expected keys and values, found 'sps'"),
        ({"hosts": {"uac": {}, "sps": {}, "front": {}}}, r"hosts\.uac\.address is missing"),
    ],
)
def test_a_wrong_testbed_file_names_the_key(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    document = yaml.safe_load((paths.TESTBEDS / "local.yaml").read_text()) | change
    (tmp_path / "local.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StableError, match=rf"local\.yaml: {expected}"):
        load_testbed("local", tmp_path)


@pytest.mark.parametrize("address", ["256.1.1.1", "1.2.3", "1.2.3.4.", "host", "1.2.3.04"])
def test_a_wrong_sip_address_is_refused(tmp_path: Path, address: str) -> None:
    document = yaml.safe_load((paths.TESTBEDS / "local.yaml").read_text())
    document["hosts"]["sps"]["sip_address"] = address
    (tmp_path / "local.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StableError, match=r"hosts\.sps\.sip_address: .*IPv4 address"):
        load_testbed("local", tmp_path)


@pytest.mark.parametrize(
    "file", sorted((paths.PROJECT_ROOT / paths.TESTBEDS).glob("*.yaml")), ids=lambda f: f.stem
)
def test_every_testbed_file_loads(file: Any) -> None:
    testbed = load_testbed(file.stem)
    front = ["front"] if file.stem == "local-front" else []
    assert [host.role for host in testbed.hosts] == ["uac", "sps", "uas", *front]
    testbed.check_cores([Run(file.stem, "kamailio-udp", "default", 1, 2, 100, 1)])


@pytest.mark.parametrize("kind", ["vm", "virtual"])
def test_a_guest_has_no_host_for_a_front_end(tmp_path: Path, kind: str) -> None:
    document = yaml.safe_load((paths.TESTBEDS / f"{kind}.yaml").read_text())
    document["hosts"]["front"] = copy.deepcopy(document["hosts"]["uas"])
    (tmp_path / f"{kind}.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StableError, match=rf"hosts\.front: a testbed of kind {kind} has no host"):
        load_testbed(kind, tmp_path)


def test_a_testbed_has_the_keys_of_the_file_it_is_based_on(tmp_path: Any) -> None:
    (tmp_path / "local.yaml").write_text((paths.TESTBEDS / "local.yaml").read_text())
    (tmp_path / "slow.yaml").write_text(
        "name: slow\nbased_on: local\nlock_wait_s: 5\nhosts: {sps: {sip_port: 5070}}\n"
    )
    local, slow = load_testbed("local", tmp_path), load_testbed("slow", tmp_path)
    assert slow == replace(local, name="slow", lock_wait_s=5, sps=replace(local.sps, sip_port=5070))
    (tmp_path / "local.yaml").write_text("name: local\nbased_on: slow\n")
    with pytest.raises(StableError, match=r"local\.yaml: based_on: 'slow' is based on this file"):
        load_testbed("slow", tmp_path)
    (tmp_path / "slow.yaml").write_text("name: slow\nbased_on: fast\n")
    with pytest.raises(
        StableError, match=r"testbed 'fast': no file .*; existing files: local, slow"
    ):
        load_testbed("slow", tmp_path)


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
            "UAS on CPU 0; probe and helper programs on CPU 0 of the SPS",
        ),
        (
            "local-front",
            "Four network namespaces on one machine, joined by veth: UAC on CPU 0; SPS on CPUs 1, 0; "
            "UAS on CPU 0; FRONT on CPU 0; probe and helper programs on CPU 0 of the SPS",
        ),
        (
            "vm",
            "SPS in a QEMU guest (2 sockets of 4 cores, Debian's 6.1 kernel (CFS)), UAC and UAS in "
            "network namespaces outside it: UAC on CPU 0; SPS on CPUs 0–6; UAS on CPU 0; probe "
            "and helper programs on CPU 7 of the SPS",
        ),
        (
            "virtual",
            "SPS, UAC and UAS in network namespaces of one QEMU guest (1 socket of 8 cores, Debian's 6.1 "
            "kernel (CFS)), joined by veth: UAC on CPU 5; SPS on CPUs 0–3; UAS on CPU 6; probe and "
            "helper programs on CPU 4 of the SPS",
        ),
        (
            "example-physical",
            "Three hosts reached by SSH: UAC on CPUs 0–3; SPS on CPUs 0–7; UAS on CPUs 0–3; probe "
            "and helper programs on CPU 8 of the SPS. One switch, 10 Gbit/s",
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
    assert (
        "SPS on CPUs 1, 3–5; UAS on CPU 0; probe and helper programs on CPU 2 of the SPS"
        in bed.description
    )


def test_the_error_for_an_unknown_testbed_names_the_existing_testbeds() -> None:
    with pytest.raises(StableError, match=r"testbed 'nowhere'.*example-physical, local"):
        load_testbed("nowhere")


def test_more_cores_than_the_sps_has() -> None:
    runs = [
        Run("local", "kamailio-udp", "default", cores, 2, 100, rep)
        for cores, rep in ((1, 1), (64, 1), (64, 2))
    ]
    with pytest.raises(StableError, match=r"local\.yaml.* 1 point.* ask for more: cores=64"):
        load_testbed("local").check_cores(runs)


def test_the_cores_of_every_instance_are_checked() -> None:
    bed = load_testbed("local")
    bed = replace(bed, sps=replace(bed.sps, cpus=(0, 1)))
    run = Run("local", "kamailio-udp", "default,default+cores=2", 1, 2, 100, 1)
    bed.check_cores([run])
    with pytest.raises(StableError, match="ask for more: cores=3"):
        bed.check_cores([replace(run, mode="default,default+cores=3")])
    bed = replace(bed, tuning=replace(bed.tuning, cores_by="hotplug"))
    bed.check_cores([replace(run, mode="default,batch")])
    with pytest.raises(StableError, match=r"takes other CPUs offline.* set it to cpuset"):
        bed.check_cores([run])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: bad\nhosts: [", r"line \d+ is not YAML"),
        ("local", "expected keys and values, found 'local'"),
    ],
)
def test_testbed_file_without_keys(tmp_path: Any, text: str, expected: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(StableError, match=rf"bad\.yaml: {expected}"):
        load_testbed("bad", tmp_path)


def test_the_configuration_changes_single_limits(document: dict[str, Any]) -> None:
    document["validity"] = {"steal_share": {"invalid": 0.2}}
    limits = config.parse_config(document).validity
    default = RULES["steal_share"].limits
    assert limits["steal_share"] == dataclasses.replace(default, invalid=0.2)
    assert limits["cv_error"] == RULES["cv_error"].limits


@pytest.mark.parametrize(
    ("validity", "expected"),
    [
        ({"moon_phase": {"suspect": 1}}, "validity: no rule is named 'moon_phase'"),
        ({"steal_share": {"suspect": 0.9}}, "validity.steal_share: suspect .* at most invalid"),
        ({"steal_share": {"suspekt": 0.9}}, "validity.steal_share.*suspekt"),
    ],
)
def test_a_limit_that_no_rule_can_have_is_refused(
    document: dict[str, Any], validity: dict[str, Any], expected: str
) -> None:
    document["validity"] = validity
    with pytest.raises(StableError, match=rf"\Amy.yaml: {expected}"):
        config.parse_config(document, "my.yaml")
