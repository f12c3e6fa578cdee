"""Test the papers' modes on a CFS kernel with the papers' numbers of cores."""

import os
import signal
from pathlib import Path

import pytest
from helpers import Measure, run_json, start_run, wait_for_load

from sipsched.errors import StableError, TransientError
from sipsched.measure.scheduler import DEBUGFS, KernelFamily
from sipsched.measure.tuning import tuned
from sipsched.plan.modes import PAPERS, Counts, Setting, find_mode, load_modes
from sipsched.records.switch_log import read_windows
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

DECLARED = load_modes()
ONLINE = "/sys/devices/system/cpu/online"
ALL_CPUS = "0-7"
COSTS_NS = (0, 500_000, 1_000_000, 5_000_000)


def settings(sps: Host) -> dict[Setting, int]:
    files = [DEBUGFS + setting for setting in PAPERS]
    values = sps.run(["cat", *files]).stdout.split()
    return dict(zip(PAPERS, map(int, values), strict=True))


def online(sps: Host) -> str:
    return sps.run(["cat", ONLINE]).stdout.strip()


@pytest.mark.parametrize(
    ("cores", "modes"),
    [(2, ("enhanced",)), (4, ("enhanced",)), (6, ("default", "desktop", "baseline", "enhanced"))],
)
def test_every_mode_at_the_papers_cores(guest: Testbed, cores: int, modes: tuple[str, ...]) -> None:
    # Test all modes with six cores only, because an emulated machine needs seconds to switch a CPU off or on.
    with open_hosts(guest) as hosts:
        sps = hosts.sps
        before = settings(sps)
        assert online(sps) == ALL_CPUS
        for name in modes:
            mode = find_mode(name, DECLARED)
            with tuned(sps, guest, mode, cores, threads=8) as state:
                # Each processor of the guest has four cores.
                processors = 1 if cores <= 4 else 2
                assert state.layout.processors == processors, name
                asked = mode.settings(Counts(cores, 8, processors))
                result = settings(sps)
                assert {setting: result[setting] for setting in asked} == asked, name
                assert state.kernel.family is KernelFamily.DEBUGFS
                assert state.unlike_asked == 0, name
                assert state.label == name
                # The helper CPU stays online.
                assert online(sps) == f"0-{cores - 1},7", name
            assert online(sps) == ALL_CPUS, name
            assert settings(sps) == before, name


def test_every_migration_cost_of_figure_2_is_in_force(guest: Testbed) -> None:
    with open_hosts(guest) as hosts:
        for cost_ns in COSTS_NS:
            mode = find_mode(f"enhanced+migration_cost_ns={cost_ns}", DECLARED)
            with tuned(hosts.sps, guest, mode, 4, threads=6) as state:
                assert settings(hosts.sps)[Setting.MIGRATION_COST] == cost_ns
                assert state.unlike_asked == 0


def test_settings_are_restored_after_an_error(guest: Testbed) -> None:
    with open_hosts(guest) as hosts:
        before = settings(hosts.sps)
        with (
            pytest.raises(StableError, match="planned"),
            tuned(hosts.sps, guest, find_mode("enhanced", DECLARED), 2, threads=2),
        ):
            assert settings(hosts.sps) != before
            raise StableError("planned")
        assert settings(hosts.sps) == before
        assert online(hosts.sps) == ALL_CPUS


@pytest.mark.long
def test_next_run_restores_settings_of_a_killed_run_and_then_its_own(
    guest: Testbed, measure: Measure, tmp_path: Path
) -> None:
    with open_hosts(guest) as hosts:
        before = settings(hosts.sps)
    with start_run(tmp_path / "raw", bed="vm", mode="baseline", cores=2) as worker:
        wait_for_load(worker)
        os.kill(worker.pid, signal.SIGKILL)
    with open_hosts(guest) as hosts:
        assert settings(hosts.sps) != before
        assert online(hosts.sps) == "0-1,7"
    run = run_json(measure(bed=guest, threads=2, cps=20, duration_s=1.0, mode="enhanced"))
    assert run["scheduler"]["repaired"]
    assert run["scheduler"]["family"].startswith("CFS")
    steps = run["scheduler"]["steps"]
    assert len(steps) > 3
    for step in steps:
        assert step["unavailable"] is None, step
        assert int(step["read_back"]) == step["applied"], step
    # During the run, only one core and the helper CPU are online.
    assert run["hosts"]["sps"]["online_cpus"] == "0,7"
    with open_hosts(guest) as hosts:
        assert settings(hosts.sps) == before
        assert online(hosts.sps) == ALL_CPUS


def test_crossover_run_switches_files_of_the_kernel(
    guest: Testbed, measure: Measure, tmp_path: Path
) -> None:
    try:
        record = measure(
            bed=guest, mode="baseline,enhanced", cores=2, threads=2, cps=20, mode_s=6, washout_s=0.1
        )
    except TransientError as error:
        pytest.fail(str(error))
    recorded = read_windows(record)
    assert sum(switch.good for switch in recorded.log.windows) > 10
    run = run_json(record)
    places = {
        step["place"]
        for mode in run["crossover"]["modes"]
        for step in mode["steps"]
        if step["place"]
    }
    assert any("debug/sched/latency_ns" in place for place in places)
