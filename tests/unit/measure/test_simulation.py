"""Runs on simulated testbeds: records like those of measured ones, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.measure.crossing_search import search_crossing
from sipsched.measure.generator import Sipload
from sipsched.measure.simulation import plan_point
from sipsched.plan.config import Config, Point, Run, load_config
from sipsched.records.crossing import read_crossings
from sipsched.records.messages import k_rcv, messages_from_record, write_messages
from sipsched.records.record import damages, read_record
from sipsched.records.summary import summarise_run
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.session import open_hosts

EEVDF, CFS = "simulated", "simulated-cfs"


@pytest.fixture(scope="module")
def campaign() -> Config:
    """The default campaign with loads of a second."""
    config = load_config()
    search = replace(config.search, trial_s=1.0, trials_s=1.0, highest_cps=8000)
    return replace(config, load=replace(config.load, duration_s=1.0), search=search)


def point(bed: str = EEVDF, mode: str = "default", cores: int = 1, threads: int = 8) -> Point:
    """Give a point of the SUT that there is a model of."""
    return Point(bed, "kamailio-udp", mode, cores, threads)


def measured(run: Run, config: Config, raw: Path) -> Path:
    """Do a run; its record comes back."""
    return acquisition.measure(run, config, load_testbed(run.testbed), raw)


@pytest.mark.parametrize("bed", [EEVDF, CFS])
def test_a_run_leaves_a_whole_and_valid_record(bed: str, campaign: Config, tmp_path: Path) -> None:
    record = measured(point(bed, cores=2).run(1500, 1), campaign, tmp_path)
    document = read_record(record)
    assert not damages(record, document)
    assert document.verdict.grade == "valid"
    assert (document.testbed.kind, document.probe.mode) == ("simulated", "simulated")
    assert "not measured" in document.testbed.fidelity
    assert document.generator.calls_completed == document.load.calls == 1500
    assert document.ledger.residual == 0
    assert document.requests.disagreement == 0


def test_what_comes_after_a_record_is_the_same_code(campaign: Config, tmp_path: Path) -> None:
    record = measured(point().run(1000, 1), campaign, tmp_path)
    messages = tmp_path / "messages.nc"
    ds = messages_from_record(record)
    assert ds.sizes["message"] == 6000
    assert k_rcv(ds).min() > 0
    write_messages(ds, messages)
    summary = summarise_run(messages, record)
    assert summary.attrs["kind"] == "simulated"
    assert float(summary["pdr"]) == 0
    # utilisation of the proxy: what the record's CPU time says and what the service times say
    assert 0.3 < float(summary["proxy_cpu_ns"]) / 1e9 < 0.6


def test_an_overload_is_refused_by_the_socket_and_the_ledger_balances(
    campaign: Config, tmp_path: Path
) -> None:
    document = read_record(measured(point().run(4000, 1), campaign, tmp_path))
    assert document.ledger.to_sps.refused > 1000
    assert document.ledger.residual == 0
    assert document.probe.drops == document.ledger.to_sps.refused


def test_a_search_brackets_the_limit(campaign: Config, tmp_path: Path) -> None:
    place = point()
    search_crossing(place, campaign, load_testbed(EEVDF), tmp_path)
    lower, upper = read_crossings(tmp_path, [place])[place]
    # one core is full at 6 messages of some 74 µs a call: 2250 cps
    assert 1500 < lower < upper < 3500


def test_the_papers_settings_act_on_cfs_as_they_are(campaign: Config) -> None:
    plan = plan_point(point(CFS, "enhanced", cores=2), campaign, load_testbed(CFS))
    # config/modes.yaml, enhanced, 2 cores, 8 threads, one processor
    expected = {
        "rules": "cfs",
        "latency_ns": 1_600_000,
        "min_granularity_ns": 150_000,
        "wakeup_granularity_ns": 0,
        "migration_cost_ns": 0,
        "nr_latency": 11,
    }
    assert {name: plan.numbers[name] for name in expected} == expected
    assert plan.state.label == "enhanced"


def test_on_eevdf_they_are_translated_and_called_a_translation(campaign: Config) -> None:
    plan = plan_point(point(EEVDF, "enhanced", cores=2), campaign, load_testbed(EEVDF))
    assert (plan.numbers["rules"], plan.numbers["slice_ns"]) == ("eevdf", 150_000)
    assert "EEVDF translation" in plan.state.label
    assert plan.state.unlike_asked == 0


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("default", {"slice_ns": 1_400_000, "policy": "other", "nice": 0}),
        ("default+slice_ns=100000", {"slice_ns": 100_000}),
        ("default+policy=batch", {"policy": "batch"}),
        ("default+policy=fifo", {"policy": "fifo"}),
        ("default+nice=-5", {"nice": -5}),
    ],
)
def test_settings_of_tasks_reach_the_model(
    mode: str, expected: dict[str, object], campaign: Config
) -> None:
    plan = plan_point(point(EEVDF, mode, cores=2), campaign, load_testbed(EEVDF))
    assert {name: plan.numbers[name] for name in expected} == expected
    assert plan.state.unlike_asked == 0


def test_what_is_switched_off_is_off_and_the_description_says_so(campaign: Config) -> None:
    bed = load_testbed(EEVDF)
    assert bed.simulated is not None
    off = ("lock", "switches", "refills", "stalls", "receive", "placement")
    without = replace(bed, simulated=replace(bed.simulated, without=off))
    numbers = plan_point(point(), campaign, without).numbers
    names = ("switch_ns", "idle_exit_ns", "refill_far_ns", "stall_every_ns", "receive_ns")
    assert not any(numbers[name] for name in (*names, "lock_share", "placement"))
    assert "without lock, switches" in without.description


def test_runs_of_one_load_and_repetition_have_the_same_arrivals(
    campaign: Config, tmp_path: Path
) -> None:
    starts = []
    for mode in ("default", "default+policy=fifo"):
        record = measured(point(mode=mode).run(500, 1), campaign, tmp_path)
        found = Sipload().starts(record, "uac")
        assert found is not None
        starts.append(found.actual_ns)
    assert np.array_equal(*starts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sut": "opensips-udp"}, "model kamailio-qm is of kamailio, found opensips"),
        ({"sut": "kamailio-udp-fm"}, "memory_manager: model kamailio-qm is of qm, found fm"),
        ({"sut": "kamailio-udp-sockets"}, "share a UDP socket, found udp, sockets"),
        ({"sut": "kamailio-tcp"}, "share a UDP socket, found tcp, shared"),
        ({"mode": "baseline,enhanced"}, "not compared within a simulated run"),
        ({"mode": "default+recording=off"}, "no probe whose recording"),
        ({"cores": 9}, "the SPS has 8 CPU"),
    ],
)
def test_what_the_model_has_not_is_refused(
    changes: dict[str, object], words: str, campaign: Config, tmp_path: Path
) -> None:
    run = replace(point().run(500, 1), **changes)  # type: ignore[arg-type]
    with pytest.raises(StableError, match=words):
        measured(run, campaign, tmp_path)


def test_a_control_run_without_a_probe_is_refused(campaign: Config) -> None:
    sut = replace(campaign.sut("kamailio-udp"), probe="off")
    untraced = replace(campaign, suts={**campaign.suts, "kamailio-udp": sut})
    with pytest.raises(StableError, match="no probe that could be off"):
        plan_point(point(), untraced, load_testbed(EEVDF))


def test_nobody_looks_for_its_hosts() -> None:
    with pytest.raises(StableError, match="it has no hosts"), open_hosts(load_testbed(EEVDF)):
        pass
