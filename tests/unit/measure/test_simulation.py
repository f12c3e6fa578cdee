"""Tests of runs on simulated testbeds: the records of runs, and the errors for runs that cannot be simulated."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from sipsched.analysis.capacity_ratios import ratios
from sipsched.analysis.crossover import effect
from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.measure.crossing_search import search_crossing
from sipsched.measure.generator import Sipload
from sipsched.measure.simulated_point import WITHOUT, plan_point
from sipsched.measure.simulator import T0_NS
from sipsched.plan.config import Config, load_config
from sipsched.plan.crossover import draw
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point, Run
from sipsched.plan.simulated import load_model
from sipsched.plan.sut import DEPLOYMENTS
from sipsched.records.crossing import read_crossing, read_crossings
from sipsched.records.messages import (
    k_rcv,
    messages_from_record,
    nanoseconds,
    write_messages,
)
from sipsched.records.record import damages, read_record
from sipsched.records.run_summary import summarise_run
from sipsched.records.switch_log import read_windows
from sipsched.records.window_time import in_force
from sipsched.records.windows import COUNTS, SHAM, by_arm, windows_from_record
from sipsched.testbed.inventory import DeclaredCompetitor, Testbed, load_testbed
from sipsched.testbed.session import open_hosts

EEVDF, CFS = "simulated", "simulated-cfs"


@pytest.fixture(scope="module")
def campaign() -> Config:
    """Return the default campaign with loads of one second."""
    config = load_config()
    search = replace(config.search, trial_s=1.0, trials_s=1.0, highest_cps=8000)
    return replace(config, load=replace(config.load, duration_s=1.0), search=search)


def changed_machine(name: str, **changes: Any) -> Testbed:
    """Return a simulated testbed, with changes to its machine."""
    bed = load_testbed(name)
    assert bed.simulated is not None
    return replace(bed, simulated=replace(bed.simulated, **changes))


def point(bed: str = EEVDF, mode: str = "default", cores: int = 1, threads: int = 8) -> Point:
    """Return a point of the SUT that has a model."""
    return Point(bed, "kamailio-udp", mode, cores, threads)


def measured(run: Run, config: Config, raw: Path) -> Path:
    """Perform a run and return its record."""
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
    # the socket refuses the messages of an overload, and every message is still accounted for
    overload = read_record(measured(point(bed).run(4000, 1), campaign, tmp_path))
    assert overload.probe.drops == overload.ledger.to_sps.refused > 1000
    assert overload.ledger.residual == 0


@pytest.mark.parametrize("mode", ["baseline", "baseline,enhanced"])
def test_the_stalls_of_a_model_do_not_break_a_run(
    mode: str, campaign: Config, tmp_path: Path
) -> None:
    run = replace(point("simulated-papers", mode, threads=2), sut="opensips-udp").run(1000, 1)
    record = measured(run, crossed(campaign, 4), tmp_path)
    report = json.loads((record / "simulator-report.json").read_text())
    # The papers' model stalls each CPU for 7.8 % of the time, which is above the rule's limit of 5 %.
    assert report["cpus"][0]["stall"] > 0.05 * report["t_end_ns"]
    assert read_record(record).verdict.grade == "valid"


def test_the_record_of_a_simulated_run_is_summarised_like_others(
    campaign: Config, tmp_path: Path
) -> None:
    record = measured(point().run(1000, 1), campaign, tmp_path)
    messages = tmp_path / "messages.nc"
    ds = messages_from_record(record)
    assert ds.sizes["message"] == 6000
    assert k_rcv(ds).min() > 0
    write_messages(ds, messages)
    summary = summarise_run(messages, record)
    assert summary.attrs["kind"] == "simulated"
    assert float(summary["pdr"]) == 0
    # the CPU time in the record lies near the utilisation that follows from the service times
    assert 0.3 < float(summary["proxy_cpu_ns"]) / 1e9 < 0.6


def test_a_full_disk_leaves_no_record_of_a_search(campaign: Config, small_disk: Path) -> None:
    place = replace(point(), goal=Capacity(0.01, 0.1))
    path = small_disk / place.crossing_path
    search = partial(search_crossing, place, campaign, load_testbed(EEVDF), small_disk)
    ballast = small_disk / "ballast"
    with suppress(OSError):
        ballast.write_bytes(bytes(1 << 20))
    with pytest.raises(StableError, match=rf"{path}: cannot write: .*No space left on device"):
        search()
    assert not list(small_disk.rglob("*capacity*"))
    ballast.unlink()
    search(guess_cps=2250)
    crossing = read_crossing(path)
    assert crossing.ended_by == "width" and crossing.took_s is not None
    assert crossing.loads[0] >= 0.89 * crossing.loads[1]
    # one core is saturated at 2250 cps, because a call has 6 messages of about 74 µs
    assert 1500 < crossing.loads[0] < crossing.loads[1] < 3500


def test_a_paired_search_finds_the_ratio_of_two_simulated_capacities(
    campaign: Config, tmp_path: Path
) -> None:
    # a worker alone cannot use the second core, and two buffers of equal size are equal systems
    size = campaign.sut("kamailio-udp").receive_buffer_bytes
    mode = (
        f"default,default+cores=2+threads=2,default+start=2,fifo+receive_buffer_bytes={size // 2}"
    )
    place = replace(point(), mode=mode, threads=1, goal=Capacity(0.01, 0.1))
    search = replace(campaign.search, highest_cps=9000, trial_s=1.0)
    path = search_crossing(
        place, replace(campaign, search=search), load_testbed(EEVDF), tmp_path, guess_cps=2250
    )
    assert json.loads(path.read_text())["load"]["retransmissions"] is False
    found = read_crossing(path)
    two_cores, equal, fifo = ratios(found)
    assert two_cores.ratio.low > 1.7
    # the simulator gives equal results for equal arrivals
    assert equal.ratio.estimate == 1
    assert fifo.other.mode == "fifo" and fifo.other.instance.receive_buffer_bytes == size // 2
    assert found.label == "default, fifo"


@pytest.mark.parametrize(
    ("bed", "mode", "expected", "label"),
    [
        # the settings of mode enhanced in config/modes.yaml for 2 cores, 8 threads and one processor
        (
            CFS,
            "enhanced",
            {
                **{"rules": "cfs", "latency_ns": 1_600_000, "min_granularity_ns": 150_000},
                **{"wakeup_granularity_ns": 0, "migration_cost_ns": 0, "nr_latency": 11},
            },
            "enhanced",
        ),
        (
            EEVDF,
            "enhanced",
            {"rules": "eevdf", "slice_ns": 150_000},
            "enhanced (EEVDF translation)",
        ),
        (EEVDF, "default", {"slice_ns": 1_400_000, "policy": "other", "nice": 0}, "default"),
        (EEVDF, "default+slice_ns=100000", {"slice_ns": 100_000}, None),
        (EEVDF, "default+policy=batch", {"policy": "batch"}, None),
        (EEVDF, "default+policy=fifo", {"policy": "fifo"}, None),
        (EEVDF, "default+nice=-5", {"nice": -5}, None),
    ],
)
def test_the_settings_of_a_mode_reach_the_model(
    bed: str, mode: str, expected: dict[str, object], label: str | None, campaign: Config
) -> None:
    plan = plan_point(point(bed, mode, cores=2), campaign, load_testbed(bed))
    assert {name: plan.numbers[name] for name in expected} == expected
    assert plan.state.label == (label or mode)
    assert plan.state.unlike_asked == 0


@pytest.mark.parametrize(("cores", "together"), [(1, 1), (2, 1), (4, 2), (6, 3), (8, 4)])
def test_alternate_numbers_spread_the_cores_over_all_processors(
    cores: int, together: int, campaign: Config
) -> None:
    enhanced = point(CFS, "enhanced", cores=cores)
    plan = plan_point(enhanced, campaign, changed_machine(CFS, alternate=True))
    assert plan.numbers["cores_per_processor"] == together
    # the migration cost of enhanced mode is 500 µs from the second processor on, if a run fills one after another
    assert plan.numbers == {
        **plan_point(enhanced, campaign, load_testbed(CFS)).numbers,
        "cores_per_processor": together,
        "receive_step": together,
    }


@pytest.mark.parametrize("numa", [False, True])
def test_numa_nodes_reach_the_model(numa: bool, campaign: Config) -> None:
    plan = plan_point(point(CFS, "enhanced", cores=4), campaign, changed_machine(CFS, numa=numa))
    assert plan.numbers["numa"] is numa


@pytest.mark.parametrize(("kernel", "deferred"), [("3.2", False), ("5.10", True)])
def test_readers_free_memory_late_since_linux_4_10(
    kernel: str, deferred: bool, campaign: Config
) -> None:
    changed = changed_machine(CFS, kernel=kernel)
    assert plan_point(point(CFS), campaign, changed).numbers["deferred_release"] == deferred


def test_the_competitors_of_a_testbed_reach_the_model(campaign: Config) -> None:
    declared = (
        DeclaredCompetitor("logger", 3_000, 20_000, (1,), nice=-5),
        DeclaredCompetitor("cron", 10, 10, policy="idle"),
    )
    bed = replace(load_testbed(CFS), competitors=declared)
    numbers: Any = plan_point(point(CFS, cores=2), campaign, bed).numbers
    assert numbers["competitors"] == 2
    # A competitor whose work fills its period computes all the time, which is a period of 0 in the simulator.
    assert numbers["competitor_period_ns"][:3] == (20_000_000, 0, 0)
    assert numbers["competitor_work_ns"][0] == 3_000_000
    assert numbers["competitor_policy"][:3] == ("other", "idle", "other")
    assert numbers["competitor_nice"][:3] == (-5, 0, 0)
    assert numbers["competitor_first_cpu"][:2] == (1, 0)
    assert numbers["competitor_cpus"][:2] == (1, 2)


def test_a_real_time_competitor_that_never_sleeps_cannot_be_simulated(campaign: Config) -> None:
    endless = DeclaredCompetitor("endless", 10, 10, policy="fifo")
    bed = replace(load_testbed(CFS), competitors=(endless,))
    with pytest.raises(StableError, match=r"competitor endless: .* would never let the proxy run"):
        plan_point(point(CFS), campaign, bed)


def test_the_reader_of_the_log_reaches_the_model(campaign: Config) -> None:
    def numbers(cores: int, **reader: Any) -> Any:
        bed = replace(load_testbed(CFS), competitors=(DeclaredCompetitor("syslogd", 20, **reader),))
        return plan_point(point(CFS, cores=cores), campaign, bed).numbers

    names = ("logger_ns", "logger_queue", "logger_apart", "competitors")
    for cpus, apart in (((), False), ((0, 1), False), ((2,), True)):
        beside = numbers(2, cpus=cpus)
        assert [beside[name] for name in names] == [20_000, 11, apart, 0]
    with pytest.raises(StableError, match=r"syslogd: cpus: .* found \[1\] of 2 CPUs"):
        numbers(2, cpus=(1,))
    with pytest.raises(StableError, match=r"syslogd: .* remove policy and nice"):
        numbers(2, nice=5)


def test_a_mechanism_that_is_off_has_no_numbers(campaign: Config) -> None:
    off = ("lock", "switches", "refills", "stalls", "receive", "placement")
    without = changed_machine(EEVDF, without=off)
    numbers = plan_point(point(), campaign, without).numbers
    names = ("switch_ns", "idle_exit_ns", "refill_far_ns", "stall_every_ns", "receive_ns")
    assert not any(numbers[name] for name in (*names, "lock_share", "placement"))
    refills = {name for name in numbers if name.startswith(("refill", "transfer"))}
    assert refills == WITHOUT["refills"].keys()
    assert not any(numbers[name] for name in refills)
    assert "without lock, switches" in without.description


def test_runs_of_one_load_and_repetition_have_the_same_arrivals(
    campaign: Config, tmp_path: Path
) -> None:
    starts = []
    for mode in ("default", "default+policy=fifo"):
        record = measured(point(mode=mode).run(500, 1), campaign, tmp_path)
        result = Sipload().starts(record, "uac")
        assert result is not None
        starts.append(result.actual_ns)
    assert np.array_equal(*starts)


def windows_of(run: Run, config: Config, folder: Path) -> xr.Dataset:
    """Perform a run that compares modes, and return its windows."""
    record = measured(run, config, folder / "raw")
    write_messages(messages_from_record(record), folder / "messages.nc")
    return windows_from_record(folder / "messages.nc", record)


@pytest.fixture(scope="module")
def compared(campaign: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, xr.Dataset]:
    """Compare default with FIFO in one run on one core near its capacity. Return its record and its windows."""
    folder = tmp_path_factory.mktemp("compared")
    config = crossed(campaign, 10)
    run = point(mode=FIFO).run(1600, 1)
    result = windows_of(run, config, folder)
    return folder / "raw" / run.path, result


FIFO = "default,default+policy=fifo"


def crossed(config: Config, mode_s: float) -> Config:
    """Return the configuration with `mode_s` seconds per mode in runs that compare modes."""
    return replace(config, crossover=replace(config.crossover, mode_s=mode_s))


def test_the_record_of_a_comparison_is_whole_and_valid(compared: tuple[Path, xr.Dataset]) -> None:
    record, result = compared
    document = read_record(record)
    assert not damages(record, document)
    assert document.verdict.grade == "valid"
    assert document.ledger.residual == 0
    assert document.crossover is not None
    assert document.crossover.failed_switches == 0
    assert [mode.mode for mode in document.crossover.modes] == FIFO.split(",")
    assert document.certificate is not None
    assert document.certificate.replays == pytest.approx(3)
    assert (result.attrs["kind"], result.attrs["probe_mode"]) == ("simulated", "simulated")
    assert "not measured" in result.attrs["fidelity"]
    assert np.all(result["left_out"] == COUNTS)
    # samples and trace have the same messages, except at the edges of windows
    off = result["messages"].isel(washout=0) - result["datagrams"].isel(washout=0)
    assert float(abs(off).max()) < 0.2 * float(result["messages"].min())


def test_each_window_of_a_block_has_the_same_calls(compared: tuple[Path, xr.Dataset]) -> None:
    record, _ = compared
    starts = Sipload().starts(record, "uac")
    assert starts is not None
    windows = read_windows(record).design.windows
    edges = [window.start_ns + T0_NS for window in windows]
    place = np.searchsorted(edges, starts.intended_ns, side="right") - 1
    since = [starts.intended_ns[place == n] - edge for n, edge in enumerate(edges)]
    for n in range(0, len(windows), 3):
        assert len(since[n]) > 100
        assert np.array_equal(since[n], since[n + 1])
        assert np.array_equal(since[n], since[n + 2])


def test_equal_comparisons_have_equal_files(campaign: Config, tmp_path: Path) -> None:
    result = []
    for name in ("first", "second"):
        config = crossed(campaign, 4)
        record = measured(point(CFS, "baseline,enhanced").run(300, 1), config, tmp_path / name)
        files = sorted(record.glob("*"))
        result.append({path.name: path.read_bytes() for path in files if path.name != "run.json"})
    assert {"windows.json.zst", "simulator-plan.txt", "trace.bin.zst"} <= set(result[0])
    assert result[0] == result[1]


def test_a_sham_differs_by_chance_only(campaign: Config, tmp_path: Path) -> None:
    """Allow three of twelve shams to differ. At 5 %, four or more would differ by chance once in 450 tests."""
    differ = {"k_rcv_mean": 0, "total_mean": 0}
    for rep in range(1, 13):
        folder = tmp_path / str(rep)
        result = windows_of(point(mode=FIFO).run(800, rep), crossed(campaign, 4), folder)
        for name in differ:
            assert result["arm"].to_numpy().tolist()[-1] == SHAM
            sham = effect([by_arm(result, name)], 0, result.sizes["arm"] - 1)
            # the windows differ a little, because stalls and ticks differ between windows
            assert sham.interval.high > sham.interval.low
            differ[name] += sham.p_value <= 0.05
    assert max(differ.values()) <= 3


def test_effects_within_a_run_equal_effects_between_runs(
    compared: tuple[Path, xr.Dataset], campaign: Config, tmp_path: Path
) -> None:
    _, result = compared
    means: dict[str, list[float]] = {"k_rcv": [], "t_sip": []}
    longer = replace(campaign, load=replace(campaign.load, duration_s=10, retransmissions=False))
    for mode in FIFO.split(","):
        ds = messages_from_record(measured(point(mode=mode).run(1600, 1), longer, tmp_path))
        means["k_rcv"].append(float(np.nanmean(k_rcv(ds))))
        means["t_sip"].append(float(np.nanmean(nanoseconds(ds, "t_sip"))))
    for name, (default, fifo) in means.items():
        within = effect([by_arm(result, f"{name}_mean")], 0, 1).interval
        apart = np.log(fifo / default)
        assert within.low > 0 if apart > 0 else within.high < 0
        assert abs(within.estimate - apart) < 0.2


def test_effects_between_instances_equal_effects_between_runs(
    campaign: Config, tmp_path: Path
) -> None:
    """Compare workers and cores within a run, and in separate runs. The interval contains the separate effect."""
    mode = "default,default+threads=1,default+cores=2"
    run, config = point(mode=mode, threads=4).run(1500, 1), crossed(campaign, 12)
    result = windows_of(run, config, tmp_path)
    record = tmp_path / "raw" / run.path
    document = read_record(record)
    assert document.verdict.grade == "valid"
    assert document.ledger.residual == 0
    assert document.crossover is not None
    assert [(one.threads, one.cores) for one in document.crossover.instances] == [
        *((4, 1), (1, 1), (4, 2), (4, 1))
    ]
    ds = messages_from_record(record)
    placed = in_force(read_windows(record), ds["t_arr"].to_numpy())
    workers = {
        name: np.unique(ds["worker"].to_numpy()[placed.evaluated & (placed.mode == name)])
        for name in mode.split(",")
    }
    # The reference and its sham have four workers each.
    assert [len(found) for found in workers.values()] == [8, 1, 4]
    assert len(np.unique(np.concatenate(list(workers.values())))) == 13
    longer = replace(campaign, load=replace(campaign.load, duration_s=20, retransmissions=False))
    apart = {}
    for cores, threads in ((1, 4), (1, 1), (2, 4)):
        alone = point(cores=cores, threads=threads).run(1500, 1)
        total = messages_from_record(measured(alone, longer, tmp_path))
        apart[cores, threads] = float(np.nanmean(k_rcv(total)))
    for arm, other in ((1, (1, 1)), (2, (2, 4))):
        within = effect([by_arm(result, "k_rcv_mean")], 0, arm).interval
        assert abs(within.estimate - np.log(apart[other] / apart[1, 4])) < 0.25
    assert effect([by_arm(result, "k_rcv_mean")], 0, 3).p_value > 0.01


def test_modes_that_change_no_service_take_the_same_cpu_time(
    campaign: Config, tmp_path: Path
) -> None:
    """Simulate without costs of switches and caches. A mode then changes only the order, not the service times."""
    bed = changed_machine(EEVDF, without=("switches", "refills", "stalls"))
    mode = "default,default+policy=fifo,default+slice_ns=100000,default+nice=-10"
    run, config = point(mode=mode).run(1200, 1), crossed(campaign, 6)
    record = acquisition.measure(run, config, bed, tmp_path)
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows_from_record(tmp_path / "messages.nc", record)
    for arm in range(1, dataset.sizes["arm"]):
        cost = effect([by_arm(dataset, "cpu_per_message")], 0, arm).interval
        assert abs(cost.estimate) < 0.01
        assert cost.low <= 0.003
        assert cost.high >= -0.003


def test_a_switch_of_the_mode_costs_the_worker_cpu_time(campaign: Config) -> None:
    dear = changed_machine(EEVDF, setattr_ns=2_000)
    plan = plan_point(point(mode=FIFO), campaign, dear)
    assert plan.modes is not None
    assert "setattr 2000\n" in plan.text(draw(plan.modes.names, 20, 0.5, 0.05, 1))
    assert [values["policy"] for values in plan.switched] == ["other", "fifo"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sut": "opensips-udp"}, "model kamailio-qm describes kamailio, found opensips"),
        ({"sut": "kamailio-udp-fm"}, "memory_manager: model kamailio-qm describes qm, found fm"),
        (
            {"mode": "default,default+recording=off"},
            "the simulator has no probe, so it cannot switch",
        ),
        ({"mode": "default,default+latency_ns=900000"}, "would compare a mode with itself"),
        ({"cores": 9}, "the SPS has 8 CPU"),
        (
            {"mode": "default,default+threads=2", "sut": "kamailio-tcp"},
            "up to 32 instances of one SUT over UDP .* found 3 instances of kamailio-tcp over TCP",
        ),
        (
            {"mode": "default,default+threads=2", "sut": "kamailio-udp-sockets"},
            "with deployment shared, found 3 instances .* with deployment sockets",
        ),
    ],
)
def test_a_run_that_the_model_cannot_do_is_refused(
    changes: dict[str, object], words: str, campaign: Config, tmp_path: Path
) -> None:
    run = replace(point().run(500, 1), **changes)  # type: ignore[arg-type]
    with pytest.raises(StableError, match=words):
        measured(run, campaign, tmp_path)


@pytest.mark.parametrize(
    ("bed", "sut", "changes", "words"),
    [
        (
            "simulated-papers",
            "opensips-udp",
            {"deployment": "sockets"},
            r"deployments\.dispatch_ns",
        ),
        (EEVDF, "kamailio-udp", {"probe": "off"}, "the simulator has no probe"),
    ],
)
def test_a_sut_that_the_model_lacks_is_refused(
    bed: str, sut: str, changes: dict[str, str], words: str, campaign: Config
) -> None:
    config = replace(campaign, suts={sut: replace(campaign.sut(sut), **changes)})
    with pytest.raises(StableError, match=words):
        plan_point(replace(point(bed), sut=sut), config, load_testbed(bed))


def test_a_testbed_with_a_model_per_proxy_uses_the_model_of_the_suts_proxy(
    campaign: Config,
) -> None:
    bed = load_testbed(CFS)
    for sut, model in (("kamailio-udp", "kamailio-qm"), ("opensips-udp", "opensips-papers")):
        numbers = plan_point(replace(point(CFS), sut=sut), campaign, bed).numbers
        assert numbers["service_ns"] == load_model(model).numbers["service_ns"]
        assert model in bed.description


def test_a_simulated_testbed_has_no_hosts() -> None:
    with pytest.raises(StableError, match="it has no hosts"), open_hosts(load_testbed(EEVDF)):
        pass


def named(config: Config, transport: str, deployment: str) -> str:
    """Return the name of the SUT with a transport and a deployment, with persistent connections over TCP."""
    wanted = (
        sut.name
        for sut in config.suts.values()
        if (sut.proxy, sut.transport, sut.deployment) == ("kamailio", transport, deployment)
        and (sut.routing, sut.memory_manager) == ("stateful", "qm")
        and sut.connections != "per-call"
    )
    return next(wanted)


@pytest.mark.parametrize(("transport", "deployment"), DEPLOYMENTS)
def test_a_run_of_every_deployment_is_valid_and_a_search_ends(
    transport: str, deployment: str, campaign: Config, tmp_path: Path
) -> None:
    place = replace(point(cores=2, threads=4), sut=named(campaign, transport, deployment))
    record = measured(place.run(1000, 1), campaign, tmp_path)
    document = read_record(record)
    assert not damages(record, document)
    assert document.verdict.grade == "valid"
    assert document.generator.calls_completed == 1000
    assert document.ledger.residual == 0
    findings = {finding.rule: finding.value for finding in document.verdict.findings}
    shards, calls = document.proxy.shards, document.proxy.calls_of_instances
    assert findings["calls_split"] == (None if deployment == "shared" else 0)
    even = deployment not in ("shared", "listeners")
    assert findings["share_excess"] == (0 if even else None)
    assert (shards is not None) == (deployment in ("sockets", "partitioned"))
    if shards:
        assert (sum(shards.selected), len(shards.selected)) == (6000, 4)
    if deployment in ("front", "listeners", "dispatcher"):
        assert calls is not None
        assert (sum(calls), len(calls)) == (1000, 4)
    front = document.proxy.front
    assert (front is not None) == (deployment in ("front", "dispatcher"))
    assert front is None or 0 < front.cpu_ns < document.proxy.cpu_ns
    assert (document.probe.mode == "off") == (deployment in ("front", "dispatcher"))
    assert (document.ledger.unit == "messages") == (transport == "tcp")
    search_crossing(place, campaign, load_testbed(place.testbed), tmp_path)
    lower, upper = read_crossings(tmp_path, [place])[place]
    assert 1000 < lower < upper < 8000


@pytest.mark.parametrize(("transport", "deployment"), [("udp", "front"), ("tcp", "dispatcher")])
def test_a_front_end_on_its_own_host_takes_no_time_of_the_proxys_cores(
    transport: str, deployment: str, campaign: Config, tmp_path: Path
) -> None:
    sut = campaign.sut(named(campaign, transport, deployment))
    place = replace(point(cores=2, threads=4), sut=sut.name)
    reports = []
    for name, host in (("sps", sut), ("front", replace(sut, front_host="front"))):
        config = replace(campaign, suts={sut.name: host})
        document = read_record(measured(place.run(1000, 1), config, tmp_path / name))
        assert document.verdict.grade == "valid"
        assert document.proxy.front is not None
        assert document.proxy.front.host == name
        reports.append(document.proxy)
    same, own = reports
    assert same.calls_of_instances == own.calls_of_instances
    assert same.front and own.front
    assert (own.front.cpu_ns, own.front.cpus) == (0, ())
    # only the time of the front end is missing, apart from waits for locks and other effects of the order
    assert own.cpu_ns == pytest.approx(same.cpu_ns - same.front.cpu_ns, rel=0.1)


def test_the_model_has_the_costs_of_every_deployment() -> None:
    named = {name for kind in DEPLOYMENTS.values() for name in kind.costs.values()}
    assert named == set(load_model("kamailio-qm").costs)


WITHOUT_LINUX = """
import os, select, socket, sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
# import these libraries before Linux's calls are removed, because the libraries use these calls during their import
import dask.array, numba, xarray

for module, starts in ((os, ("sched_", "memfd_", "pidfd_", "eventfd", "posix_f")), (select, "epoll"),
                       (socket, ("AF_NETLINK", "AF_PACKET"))):
    for name in [name for name in dir(module) if name.startswith(starts)]:
        delattr(module, name)
opened = []
def look(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        opened.append(arguments[0])
sys.addaudithook(look)

from sipsched.measure import acquisition
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.run_summary import summarise_run
from sipsched.records.windows import windows_from_record
from sipsched.testbed.inventory import load_testbed

config, folder = load_config(), Path(sys.argv[1])
config = replace(config, crossover=replace(config.crossover, mode_s=4))
run = Run("simulated", "kamailio-udp", "default,default+policy=fifo", 1, 4, 100, 1)
record = acquisition.measure(run, config, load_testbed("simulated"), folder)
write_messages(messages_from_record(record), folder / "messages.nc")
summarise_run(folder / "messages.nc", record)
windows_from_record(folder / "messages.nc", record)
assert any("run.json" in path for path in opened)
print(*(path for path in opened if path.startswith(("/proc", "/sys/"))), sep="\\n")
"""


def test_a_simulated_run_needs_no_linux(tmp_path: Path) -> None:
    """Simulate without /proc and without Linux's system calls, as on macOS."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LINUX, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # numba reads the file /proc/cpuinfo on Linux
    assert set(done.stdout.split()) <= {"/proc/cpuinfo"}
