"""Test that scheduler modes are applied, read back and restored on the kernel of this machine."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Measure, run_json, start_run, wait_for

from sipsched.measure.mode_tables import modes_table
from sipsched.measure.scheduler import PLAIN, TASK_SLICE, KernelFamily, TaskAttributes
from sipsched.measure.tuning import (
    compile_modes,
    read_kernel,
    try_attributes,
)
from sipsched.plan.modes import Counts, Policy, find_mode, load_modes
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.places import UNDO_FILE
from sipsched.testbed.session import open_hosts

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


@pytest.fixture
def autogroup() -> Iterator[str]:
    """Switch autogroup on, because `make test` switches it off, and return the text of its file."""
    if not AUTOGROUP.exists():
        pytest.skip("this kernel has no autogroup to switch off and on")
    before = AUTOGROUP.read_text()
    AUTOGROUP.write_text("1")
    yield AUTOGROUP.read_text()
    AUTOGROUP.write_text(before)


@pytest.mark.parametrize(
    ("mode", "threads", "slice_ns"),
    [
        ("baseline", 8, 100_000),
        ("enhanced", 8, 250_000),
        ("enhanced", 4, 150_000),
        ("default+min_granularity_ns=3000000", 4, 3_000_000),
    ],
)
def test_mode_is_in_force_in_every_worker(
    measure: Measure, testbed: Testbed, mode: str, threads: int, slice_ns: int
) -> None:
    with open_hosts(testbed) as hosts:
        kernel = read_kernel(hosts.sps)
    if kernel.family is not KernelFamily.EEVDF or not kernel.task_slices:
        pytest.skip(f"this kernel has no slices of single tasks: {kernel.family}")
    run = run_json(measure(threads=threads, cps=200, duration_s=1.0, mode=mode))
    scheduler = run["scheduler"]
    (step,) = (s for s in scheduler["steps"] if s["setting"] == "min_granularity_ns")
    if step["place"] == TASK_SLICE:
        assert len(step["read_back"]) > threads
        assert set(step["read_back"]) == {slice_ns}
    else:
        assert int(step["read_back"]) == slice_ns
    assert scheduler["label"] == f"{mode} (EEVDF translation)"
    for other in scheduler["steps"]:
        assert other["read_back"] is not None or other["unavailable"]


@pytest.mark.parametrize(
    ("mode", "read_back"),
    [
        ("batch", {"policy": os.SCHED_BATCH}),
        ("nice-10", {"nice": -10}),
        ("slice-10ms", {"slice_ns": 10_000_000}),
        ("default+policy=fifo+priority=1", {"policy": os.SCHED_FIFO, "priority": 1}),
        ("default+policy=rr", {"policy": os.SCHED_RR, "priority": 1}),
        ("batch+nice=5", {"policy": os.SCHED_BATCH, "nice": 5}),
    ],
)
def test_every_process_has_the_attributes_of_a_mode(
    measure: Measure, testbed: Testbed, mode: str, read_back: dict[str, int]
) -> None:
    with open_hosts(testbed) as hosts:
        asked = find_mode(mode, load_modes())
        (steps,) = compile_modes(
            hosts.sps, [asked], read_kernel(hosts.sps), Counts(cores=1, threads=4, processors=1)
        ).values()
    unavailable = [step.unavailable for step in steps if step.unavailable]
    if unavailable:
        pytest.skip(f"this kernel does not take {mode}: {unavailable[0]}")
    run = run_json(measure(cps=200, duration_s=1.0, mode=mode))
    result = {step["setting"]: step["read_back"] for step in run["scheduler"]["steps"]}
    assert {setting: set(values) for setting, values in result.items()} == {
        setting: {value} for setting, value in read_back.items()
    }
    assert all(len(values) > 4 for values in result.values())
    assert run["scheduler"]["label"] == mode


def test_attribute_that_the_kernel_refuses_is_named(testbed: Testbed) -> None:
    """Choose a slice below the kernel's minimum. The kernel uses the minimum instead, which counts as a refusal."""
    too_short = TaskAttributes(slice_ns=50_000)
    with open_hosts(testbed) as hosts:
        kernel = read_kernel(hosts.sps)
        plain, short = try_attributes(hosts.sps, (PLAIN, too_short))
    assert isinstance(plain, TaskAttributes)
    assert plain.policy is Policy.OTHER
    assert kernel.base_slice_ns == (plain.slice_ns or None)
    assert isinstance(short, str)
    assert "accepted, but read back as other 0 0" in short


def test_setting_that_lockdown_forbids_is_named(measure: Measure, testbed: Testbed) -> None:
    with open_hosts(testbed) as hosts:
        kernel = read_kernel(hosts.sps)
        table = "\n".join(modes_table(hosts.sps, 1, 8))
    assert re.search(r"baseline-scaled +not declared", table)
    assert re.search(r"enhanced +sched_min_granularity_ns +250,000 ns", table)
    if None not in kernel.files.values():
        pytest.skip("this kernel is not locked down: its settings can be opened")
    record = measure(threads=2, cps=100, duration_s=1.0, mode="baseline+migration_cost_ns=5000000")
    steps = run_json(record)["scheduler"]["steps"]
    (cost,) = (step for step in steps if step["setting"] == "migration_cost_ns")
    assert cost["asked"] == 5_000_000
    assert cost["applied"] is None
    assert "locked down" in cost["unavailable"]


def test_quiet_settings_are_restored_after_the_run(
    measure: Measure, testbed: Testbed, autogroup: str
) -> None:
    run = run_json(measure(threads=2, cps=100, duration_s=1.0))
    (entry,) = (e for e in run["scheduler"]["quiet"] if e["name"] == "autogroup")
    assert (entry["asked"], entry["read_back"]) == ("0", "0")
    assert AUTOGROUP.read_text() == autogroup
    assert not Path(UNDO_FILE).exists()


def test_host_restores_settings_of_a_killed_run(
    testbed: Testbed, tmp_path: Path, measure: Measure, autogroup: str
) -> None:
    local.take_down()
    with start_run(tmp_path / "raw", mode="enhanced") as worker:
        wait_for(lambda: Path(UNDO_FILE).exists() and AUTOGROUP.read_text().strip() == "0", 20)
        os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: AUTOGROUP.read_text() == autogroup and not Path(UNDO_FILE).exists(), 5)
    run = measure(threads=2, cps=100, duration_s=1.0)
    assert not run_json(run)["scheduler"]["repaired"]


def test_next_run_restores_settings_that_the_host_could_not(
    measure: Measure, testbed: Testbed, autogroup: str
) -> None:
    local.ensure_up(testbed)
    # Leave the file that undoes the settings, as a power failure does.
    Path(UNDO_FILE).write_text(f"echo {autogroup.strip()} > {AUTOGROUP}\n")
    AUTOGROUP.write_text("0")
    run = measure(threads=2, cps=100, duration_s=1.0)
    assert run_json(run)["scheduler"]["repaired"]
    assert AUTOGROUP.read_text() == autogroup
    assert not Path(UNDO_FILE).exists()
