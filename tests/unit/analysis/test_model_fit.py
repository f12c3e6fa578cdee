"""Tests that the numbers of the committed models follow from their records."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sipsched.analysis import model_fit
from sipsched.analysis.model_fit import Fit, find_competitors, fit, fit_campaign, read_messages
from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.plan.documents import read_yaml
from sipsched.plan.run import Point
from sipsched.plan.simulated import KINDS, MODELS, load_model
from sipsched.records.cpu_report import Account, Competitor, CpuParts
from sipsched.records.fitted import CompetingPrograms
from sipsched.records.record import read_record
from sipsched.testbed.inventory import load_testbed

FITTED_TO = {"kamailio-qm": PROJECT_ROOT / "recorded" / "fit" / "local"}


def runs(folder: Path) -> list[Path]:
    """List the recorded runs of mode `default` with traces."""
    return sorted(folder.glob("kamailio-udp/default/cores~1/threads~8/cps~*/rep~*"))


@pytest.fixture(scope="module", params=FITTED_TO)
def fitted(request: pytest.FixtureRequest) -> tuple[str, Fit]:
    folder = FITTED_TO[request.param]
    result = runs(folder)
    assert len(result) == 6
    return request.param, fit(map(read_messages, result), folder / "noise.json")


def test_service_times_are_those_of_the_records(fitted: tuple[str, Fit]) -> None:
    name, result = fitted
    types = read_yaml(MODELS / f"{name}.yaml")["service"]["types"]
    for kind in KINDS:
        assert types[kind]["mean_ns"] == round(result.service[kind].mean_ns), kind
        assert types[kind]["scv"] == round(result.service[kind].scv, 3), kind


def test_every_number_called_fitted_is_what_the_records_give(fitted: tuple[str, Fit]) -> None:
    name, result = fitted
    model = read_yaml(MODELS / f"{name}.yaml")
    written = {
        name: each["value"]
        for name, each in model["numbers"].items()
        if each["source"].startswith("Fitted")
    }
    assert written == result.numbers
    assert model["lengths"]["types"] == result.lengths


def test_the_fit_recovers_the_parameters_of_simulated_runs(tmp_path: Path) -> None:
    """Fit runs of a model with known parameters. Each fitted number must equal the model's parameter."""
    config = load_config()
    config = replace(config, load=replace(config.load, duration_s=2.0))
    bed = load_testbed("simulated")
    point = Point(bed.name, "kamailio-udp", "default", 1, 8)
    records = [
        acquisition.measure(point.run(cps, 1), config, bed, tmp_path) for cps in (900, 1400, 1900)
    ]
    result = fit(map(read_messages, records), None)
    model = load_model("kamailio-qm").numbers
    numbers = result.simulator_numbers()
    for name in ("copy_ns", "send_ns", "truesize", "length"):
        assert numbers[name] == model[name], name
    for name in ("loop_ns", "refill_ns"):
        assert numbers[name] == pytest.approx(model[name], rel=0.15, abs=600), name
    # more messages arrive during a long service, which the fit must not mistake for a cost of arrivals
    for name in ("receive_ns", "interrupt_ns"):
        assert numbers[name] == pytest.approx(model[name], abs=1000), name
    assert numbers["wake_ns"] == pytest.approx(model["wake_ns"], abs=2000)
    # compare the sum: the exit from idle is part of K_stack on the recorded machine, but of K_sockq in the model
    woken = ("wake_ns", "idle_exit_ns", "switch_ns")
    assert sum(numbers[name] for name in woken) == pytest.approx(
        sum(model[name] for name in woken), rel=0.1
    )
    assert numbers["service_ns"] == pytest.approx(model["service_ns"], rel=0.02)
    assert numbers["service_scv"][1:] == pytest.approx(model["service_scv"][1:], rel=0.5)


def test_a_campaign_without_traces_has_no_fit_and_a_reason() -> None:
    reduced = PROJECT_ROOT / "recorded" / "raw" / "local" / "kamailio-udp" / "default"
    records = [path.parent for path in reduced.glob("cores~1/threads~8/cps~1600/rep~*/run.json")]
    result = fit_campaign(records, None, load_config().suts)
    assert records
    assert not result.numbers
    assert result.why.startswith("no trace of a run")


def test_fits_to_samples_scatter_about_the_fit() -> None:
    folder = FITTED_TO["kamailio-qm"]
    result = fit_campaign(runs(folder), folder / "noise.json", load_config().suts, draws=4)
    assert len(result.runs) == 6
    assert (
        result.numbers
        == fit(map(read_messages, runs(folder)), folder / "noise.json").simulator_numbers()
    )
    drawn = [draw["refill_ns"] for draw in result.draws]
    assert min(drawn) <= result.numbers["refill_ns"] <= max(drawn)


def account(
    *, seen: tuple[Competitor, ...] = (), planned: tuple[Competitor, ...] = (), **parts_ns: int
) -> Account:
    """Return the account of one CPU in a run of 10 s, with the time of some parts and the tasks of competitors."""
    parts = CpuParts(
        **{field.name: 0 for field in fields(CpuParts)} | {"total": 10_000_000_000} | parts_ns
    )
    return Account(parts, seen, 0, None, 0, 0, 0, 0, 0, 0, planned)


def task(policy: str, ms: int, bursts: int, nice: int = 0) -> Competitor:
    """Return a task with a CPU time in ms and a number of bursts."""
    return Competitor("task", 7, policy, nice, ms * 1_000_000, bursts, 0, 1)


def test_competitors_have_the_share_class_and_bursts_of_the_accounts() -> None:
    first = account(
        fair=300_000_000,
        realtime=200_000_000,
        seen=(task("SCHED_OTHER", 200, 400, 5), task("SCHED_RR", 200, 100)),
    )
    second = account(
        fair=100_000_000,
        idle_class=5_000_000_000,
        seen=(task("SCHED_BATCH", 100, 200), task("SCHED_IDLE", 5_000, 50_000)),
    )
    normal, idle, real_time = find_competitors([first, second])
    # the normal programs used 400 ms of 20 s, of which tasks with 600 bursts used 300 ms
    assert normal == CompetingPrograms("other", 5, 500, 25_000)
    assert normal.share == pytest.approx(0.02)
    assert idle == CompetingPrograms("idle", 0, 100, 400)
    assert real_time == CompetingPrograms("fifo", 0, 2_000, 200_000)


def test_rare_competitors_are_none_and_declared_competitors_count() -> None:
    rare = account(fair=49_000_000, seen=(task("SCHED_OTHER", 49, 49),))
    assert find_competitors([rare]) == ()
    assert find_competitors([]) == ()
    # the account adds declared competitors to the programs of sipsched, not to the part `fair`
    declared = account(own=1_500_000_000, planned=(task("SCHED_OTHER", 1_500, 500),))
    assert find_competitors([declared]) == (CompetingPrograms("other", 0, 3_000, 20_000),)


def test_the_model_of_a_campaign_has_the_competitors_of_its_runs() -> None:
    folder = PROJECT_ROOT / "recorded" / "raw" / "local"
    records = runs(folder)
    result = fit_campaign(records, folder / "noise.json", load_config().suts, draws=1)
    reports = [read_record(folder.parent / path).account for path in result.runs]
    parts = [report.account.parts for report in reports if report and report.account]
    assert len(parts) == 2
    (programs,) = result.competitors
    assert programs.policy == "other"
    share = sum(each.fair for each in parts) / sum(each.total for each in parts)
    assert share > 0.01
    assert programs.share == pytest.approx(share, rel=0.001)
    assert "account of CPU time in 2 of 2 runs" in result.competitors_source


def test_a_model_without_competitors_says_that_their_share_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_fit, "LEAST_SHARE", 0.03)
    folder = PROJECT_ROOT / "recorded" / "raw" / "local"
    result = fit_campaign(runs(folder), None, load_config().suts, draws=1)
    assert result.numbers
    assert result.competitors == ()
    assert "less than 3\u00a0%" in result.competitors_source


def test_without_an_account_the_model_has_no_competitors_and_a_reason() -> None:
    folder = FITTED_TO["kamailio-qm"]
    result = fit_campaign(runs(folder)[:2], folder / "noise.json", load_config().suts, draws=1)
    assert result.numbers
    assert result.competitors == ()
    assert result.competitors_source == "no run of the fit has an account of CPU time"


def test_bursts_of_competitors_do_not_count_as_stalls(tmp_path: Path) -> None:
    noise = tmp_path / "noise.json"
    gaps_ns = [*[10_000] * 100, *[400_000] * 10]
    noise.write_text(json.dumps({"cpus": [{"duration_ns": 100_000_000, "gaps_ns": gaps_ns}]}))
    # normal programs use 2 ms of the 100 ms, so the fit excludes 5 of the 10 long gaps
    normal = CompetingPrograms("other", 0, 300, 15_000)
    real_time = CompetingPrograms("fifo", 0, 300, 3_000)
    idle = CompetingPrograms("idle", 0, 300, 600)
    messages = read_messages(runs(FITTED_TO["kamailio-qm"])[0])

    def stalled(*competitors: CompetingPrograms) -> float:
        numbers = fit([messages], noise, competitors).numbers
        return numbers["stall_ns"] / numbers["stall_every_ns"]

    assert stalled() == pytest.approx(0.05, rel=0.001)
    assert stalled(normal) == pytest.approx(0.03, rel=0.001)
    assert stalled(real_time) == pytest.approx(0.01, rel=0.001)
    assert stalled(idle) == stalled()


def test_without_runs_there_is_no_fit() -> None:
    with pytest.raises(StableError, match="needs records"):
        fit([], FITTED_TO["kamailio-qm"] / "noise.json")
