"""The papers' modes on a real CFS kernel, at the papers' cores: applied, read back, undone."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import start_run, wait_for

from sipsched.errors import StableError, TransientError
from sipsched.measure.scheduler import DEBUGFS, Family
from sipsched.measure.tuning import tuned
from sipsched.plan.modes import PAPERS, Counts, Setting, find_mode, load_modes
from sipsched.records.switch_log import read_windows
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

pytestmark = pytest.mark.guest
Measure = Callable[..., Path]
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


@pytest.mark.parametrize("cores", [2, 4, 6])
def test_every_mode_at_the_papers_cores(guest: Testbed, cores: int) -> None:
    with open_hosts(guest) as hosts:
        sps = hosts.sps
        before = settings(sps)
        assert online(sps) == ALL_CPUS
        for name in ("default", "desktop", "baseline", "enhanced"):
            mode = find_mode(name, DECLARED)
            with tuned(sps, guest, mode, cores, threads=8) as state:
                # four cores a processor
                processors = 1 if cores <= 4 else 2
                assert state.layout.processors == processors, name
                asked = mode.settings(Counts(cores, 8, processors))
                found = settings(sps)
                assert {setting: found[setting] for setting in asked} == asked, name
                assert state.kernel.family is Family.DEBUGFS
                assert state.unlike_asked == 0, name
                assert state.label == name
                # the helper's CPU stays
                assert online(sps) == f"0-{cores - 1},7", name
            assert online(sps) == ALL_CPUS, name
            assert settings(sps) == before, name


def test_every_migration_cost_of_the_papers_figure_is_in_force(guest: Testbed) -> None:
    with open_hosts(guest) as hosts:
        for cost_ns in COSTS_NS:
            mode = find_mode(f"enhanced+migration_cost_ns={cost_ns}", DECLARED)
            with tuned(hosts.sps, guest, mode, 4, threads=6) as state:
                assert settings(hosts.sps)[Setting.MIGRATION_COST] == cost_ns
                assert state.unlike_asked == 0


def test_what_fails_in_the_middle_is_undone(guest: Testbed) -> None:
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


@pytest.mark.parametrize("cost_ns", [min(COSTS_NS), max(COSTS_NS)])
def test_a_sweep_of_the_migration_cost(guest: Testbed, measure: Measure, cost_ns: int) -> None:
    record = measure(
        bed=guest,
        mode=f"enhanced+migration_cost_ns={cost_ns}",
        cores=4,
        threads=6,
        cps=20,
        duration_s=2.0,
    )
    run = json.loads((record / "run.json").read_text())
    steps = {step["setting"]: step for step in run["scheduler"]["steps"]}
    assert int(steps["migration_cost_ns"]["read_back"]) == cost_ns
    assert int(steps["latency_ns"]["read_back"]) == 3_200_000
    assert run["generator"]["calls_completed"] == 40
    assert len(run["layout"]["cpus"]) == 4
    if run["testbed"]["accelerator"] == "tcg":
        assert "functional only" in run["testbed"]["fidelity"]


def test_a_killed_workflow_is_undone_by_the_next_command(
    guest: Testbed, measure: Measure, tmp_path: Path
) -> None:
    with open_hosts(guest) as hosts:
        before = settings(hosts.sps)
    with start_run(tmp_path / "raw", bed="vm", mode="baseline", cores=2) as worker:
        wait_for(lambda: any("sipload uac" in line for line in processes()), 60)
        os.kill(worker.pid, signal.SIGKILL)
    with open_hosts(guest) as hosts:
        assert settings(hosts.sps) != before
        assert online(hosts.sps) == "0-1,7"
    run = json.loads((measure(bed=guest, cps=20, duration_s=1.0) / "run.json").read_text())
    assert run["scheduler"]["repaired"]
    with open_hosts(guest) as hosts:
        assert settings(hosts.sps) == before
        assert online(hosts.sps) == ALL_CPUS


def test_files_of_the_kernel_are_switched_on_a_guest(
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
    run = json.loads((record / "run.json").read_text())
    places = {
        step["place"]
        for mode in run["crossover"]["modes"]
        for step in mode["steps"]
        if step["place"]
    }
    assert any("debug/sched/latency_ns" in place for place in places)


def processes() -> list[str]:
    """Command lines of everything on this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
