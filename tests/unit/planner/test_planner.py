"""Tests of the planner without Snakemake: the inputs of rules, and the order of measuring."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.documents import read_yaml
from sipsched.plan.run import Run
from sipsched.planner.campaign import Plan
from sipsched.planner.claims import SHARES, Claims
from sipsched.planner.needs import Needs

FILES = ["config/config.yaml"]


class Snakemake:
    """An object that replaces Snakemake and records the planner's requests."""

    def __init__(self, forces_jobs: bool = False) -> None:
        self.forces_jobs = forces_jobs
        self.waited: list[str] = []
        self.again: list[str] = []

    def wait_for(self, path: str) -> None:
        self.waited.append(path)

    def as_it_is(self, path: str) -> str:
        return f"as it is: {path}"

    def make_again(self, path: str) -> None:
        self.again.append(path)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Make the plan of the default campaign in an empty project."""
    for name in ("hardware", "config"):
        (tmp_path / name).symlink_to(PROJECT_ROOT / name)
    monkeypatch.chdir(tmp_path)
    return Plan.load(read_yaml(PROJECT_ROOT / FILES[0]), FILES, cpus=2)


@pytest.mark.usefixtures("plan")
def test_a_front_end_on_its_own_host_needs_a_testbed_with_this_host() -> None:
    document = read_yaml(PROJECT_ROOT / FILES[0])
    document["suts"]["apart"] = document["suts"]["kamailio-udp-front"] | {"front_host": "front"}
    run = Run("local", "apart", "default", 1, 2, 100, 1)
    error = (
        r"testbed local: SUT apart .*local\.yaml names no such host; add hosts\.front .*, or set"
    )
    with pytest.raises(StableError, match=error):
        Plan.load(document, FILES, cpus=2).check_run(run)
    document["studies"]["load_sweep"]["suts"] = ["apart"]
    with pytest.raises(StableError, match=error):
        Plan.load(document, FILES, cpus=2)
    for bed in ("local-front", "simulated"):
        plan = Plan.load(document | {"testbed": bed}, FILES, cpus=2)
        plan.check_run(replace(run, testbed=bed))


def find_crossing(plan: Plan, lower: int, upper: int) -> None:
    """Write the record of the campaign's search, which found a crossing between `lower` and `upper` cps."""
    (point,) = plan.searches
    path = plan.raw / point.crossing_path
    path.parent.mkdir(parents=True)
    trial = {"cps": lower, "duration_s": 6, "received": 9, "refused": 0, "attempts": 1, "pdr": 0.0}
    document = {
        "schema_version": 2,
        "testbed": {
            "name": "local",
            "kind": "local",
            "description": "three network namespaces",
            "fidelity": "as on this machine",
        },
        "point": {name: value for name, value in vars(point).items() if name != "goal"},
        "label": "default",
        "kernel": "6.18",
        "started_at": "2026-11-22T00:00:00Z",
        "finished_at": "2026-11-22T00:01:00Z",
        "pdr_limit": 0.01,
        "search": vars(plan.config.search),
        "load": vars(plan.config.load),
        "lower_cps": lower,
        "upper_cps": upper,
        "trials": [trial],
    }
    path.write_text(synthetic.sealed(document))


def of_study(study: str) -> SimpleNamespace:
    return SimpleNamespace(study=study, testbed="local")


def test_runs_have_a_position_in_the_order_after_the_search(plan: Plan) -> None:
    assert plan.runs == []
    find_crossing(plan, 1400, 1600)
    runs = plan.runs_by_now()
    assert [plan.order.position(run) for run in runs] == list(range(1, len(runs) + 1))
    assert plan.order.position(replace(runs[0], rep=99)) == 0
    assert plan.order.expected_s(runs[0]) >= plan.config.load.duration_s


def test_a_run_that_offers_more_calls_is_expected_to_take_longer(plan: Plan) -> None:
    find_crossing(plan, 1400, 1600)
    document = read_yaml(PROJECT_ROOT / FILES[0])
    document["load"]["calls"] = 60_000
    plan = Plan.load(document, FILES, cpus=2)
    run = plan.runs_by_now()[0]
    slow = replace(run, cps=run.cps // 4)
    more_s = plan.order.expected_s(slow) - plan.order.expected_s(run)
    assert more_s == pytest.approx(60_000 * (4 - 1) / run.cps, abs=2)


def test_a_study_needs_its_search_first_and_then_its_runs(plan: Plan) -> None:
    find_crossing(plan, 1400, 1600)
    asked = Snakemake()
    summaries = Needs(plan, asked, True).study_summaries(of_study("load_sweep"))
    (point,) = plan.searches
    assert asked.waited == [str(plan.raw / point.crossing_path)]
    planned = plan.planned(plan.config.studies["load_sweep"], "local")
    assert summaries == [f"results/runs/{run.path}/summary.nc.zst" for run in planned]
    assert {run.rep for run in planned} == {1, 2, 3}


def test_a_study_without_runs_has_searches_and_no_summary(plan: Plan) -> None:
    document = read_yaml(PROJECT_ROOT / FILES[0])
    ratios = read_yaml(PROJECT_ROOT / "config" / "studies" / "capacity_ratios.yaml")
    document |= {key: ratios[key] for key in ("only", "testbeds")}
    document["studies"] |= ratios["studies"]
    document["documents"] |= ratios["documents"]
    plan = Plan.load(document, FILES, cpus=2)
    needs, wildcards = Needs(plan, Snakemake(), True), SimpleNamespace(document="scaling")
    assert needs.document_crossings(wildcards) == [
        str(plan.raw / point.crossing_path) for point in plan.searches
    ]
    assert len(plan.searches) == 2
    # only the study `costs` has runs
    assert needs.document_summaries(wildcards) == plan.all_summaries
    assert plan.all_summaries == ["results/costs/local/summary.nc"]
    assert "reports/testbed-local.html" in plan.pages
    without_runs = Plan.load(document | {"only": ["allocators"]}, FILES, cpus=2)
    assert not any("testbed-" in page or "messages-" in page for page in without_runs.pages)


def test_a_run_whose_record_is_missing_is_measured_again(plan: Plan) -> None:
    find_crossing(plan, 1400, 1600)
    asked, study = Snakemake(), of_study("load_sweep")
    lost = plan.planned(plan.config.studies["load_sweep"], "local")[3]
    summary = plan.results / "runs" / lost.path / "summary.nc.zst"
    summary.parent.mkdir(parents=True)
    summary.touch()
    Needs(plan, asked, True).study_summaries(study)
    assert asked.again == [f"raw/{lost.path}/run.json"]
    asked.again.clear()
    Needs(plan, asked, False).study_summaries(study)
    assert asked.again == []


def test_without_measuring_only_existing_records_are_needed(plan: Plan) -> None:
    find_crossing(plan, 1400, 1600)
    config = replace(plan.config, only_measured=True)
    recorded = plan.planned(plan.config.studies["load_sweep"], "local")[0]
    (plan.raw / recorded.path).mkdir(parents=True)
    (plan.raw / recorded.path / "run.json").touch()
    asked = Snakemake()
    needs = Needs(replace(plan, config=config), asked, True)
    assert needs.study_summaries(of_study("load_sweep")) == [
        f"results/runs/{recorded.path}/summary.nc.zst"
    ]
    assert not asked.waited


def test_a_campaign_with_other_records_has_separate_files(plan: Plan) -> None:
    other = replace(plan, config=replace(plan.config, records=Path("recorded/raw")))
    assert (str(other.results), str(other.reports)) == ("results/recorded/raw", "reports/recorded")
    assert other.overview == "index.html"
    inside = replace(plan, config=replace(plan.config, records=Path("recorded/virtual/raw")))
    assert (str(inside.reports), inside.overview) == ("reports/recorded/virtual", "../index.html")
    assert not {*other.pages} & {*plan.pages}
    assert other.whole == Path("recorded/fit")


def test_a_run_on_this_machine_occupies_all_cpus(plan: Plan) -> None:
    claims, local = Claims(plan), SimpleNamespace(testbed="local")
    assert claims.limits == {"machine": SHARES, "turn_local": 1}
    assert (claims.machine(local), claims.threads(local)) == (SHARES, 1)
    assert {name: takes(local) for name, takes in claims.turns.items()} == {"turn_local": 1}


def test_a_run_of_cores_that_the_testbed_lacks_is_refused(plan: Plan) -> None:
    find_crossing(plan, 1400, 1600)
    run = plan.runs_by_now()[0]
    plan.check_run(run)
    with pytest.raises(StableError, match="cores"):
        plan.check_run(replace(run, cores=256))
