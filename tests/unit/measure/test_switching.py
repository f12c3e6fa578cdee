"""Tests of the modes between which a run switches, and of the tasks of the proxy that the switcher gets."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen, run

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.measure.cpu_layout import Cpu, CpuLayout
from sipsched.measure.proxy import together
from sipsched.measure.scheduler import (
    DEBUGFS,
    KernelScheduler,
    compile_mode,
    refuse_tasks,
)
from sipsched.measure.switching import TASKS, Playable, _by_instance, playable
from sipsched.measure.tuning import Tuned
from sipsched.plan.crossover import Instance, compared, instances
from sipsched.plan.modes import Counts, find_mode, load_modes

DECLARED = load_modes()
LAYOUT = CpuLayout((Cpu(0, 0, 0, None, None),))
EEVDF = KernelScheduler({}, task_slices=True, base_slice_ns=1_400_000)
CFS = KernelScheduler({DEBUGFS + "latency_ns": "24000000"}, task_slices=False)


def here(name: str, kernel: KernelScheduler, refused: Sequence[str] = ()) -> list[Tuned]:
    states = []
    for one in compared(name):
        mode = find_mode(one, DECLARED)
        steps = compile_mode(mode.settings(Counts(1, 8, 1)), kernel)
        if one in refused:
            steps = refuse_tasks(steps, "the kernel refuses: Operation not permitted")
        states.append(Tuned(mode, LAYOUT, kernel, steps))
    return states


def played(name: str, states: Sequence[Tuned]) -> Playable:
    return playable(name, states, instances([state.mode for state in states], "kamailio-udp", 8, 1))


def test_all_modes_that_differ_are_played() -> None:
    name = "default,slice-1ms,batch,nice-10,fifo,rr"
    result = played(name, here(name, EEVDF))
    assert result.names == compared(name)
    assert (result.refused, result.same) == ({}, ())


def test_the_first_of_equal_modes_is_played() -> None:
    name = "default,batch,default+slice_ns=1400000,fifo,default+policy=batch"
    result = played(name, here(name, EEVDF))
    assert result.names == ("default", "batch", "fifo")
    assert result.same == (
        ("default", "default+slice_ns=1400000"),
        ("batch", "default+policy=batch"),
    )


def test_refused_modes_are_reported() -> None:
    name = "default,fifo,batch"
    result = played(name, here(name, EEVDF, refused=["fifo"]))
    assert result.names == ("default", "batch")
    assert result.refused == {"fifo": "the kernel refuses: Operation not permitted"}
    cfs = played("default,slice-1ms,batch", here("default,slice-1ms,batch", CFS))
    assert cfs.names == ("default", "batch")
    assert "CFS has no slices of single tasks" in cfs.refused["slice-1ms"]


def test_a_comparison_of_a_mode_with_itself_is_an_error() -> None:
    name = "batch,default+policy=batch"
    with pytest.raises(
        StableError, match=r"no two modes differ .*have the same settings on this kernel"
    ):
        played(name, here(name, EEVDF))
    with pytest.raises(StableError, match=r"the reference fifo cannot be set: the kernel refuses"):
        played("fifo,default", here("fifo,default", EEVDF, refused=["fifo"]))


def test_the_switcher_gets_the_tasks_of_each_instance(tmp_path: Path) -> None:
    files = [tmp_path / f"instance-{number}" / "proxy.cfg" for number in range(3)]
    for file in files:
        file.parent.mkdir()
        file.touch()
    with ExitStack() as stack:
        pids: list[str] = []
        # `tail` replaces the proxy; instance 1 has two processes
        for number in (1, 0, 2, 1):
            group = int(pids[0]) if pids else 0
            process = Popen(["tail", "-f", str(files[number])], process_group=group)
            stack.callback(process.wait)
            stack.callback(process.kill)
            pids.append(str(process.pid))
        (tmp_path / "pid").write_text(pids[0])
        script = ["sh", "-c", TASKS, "sh", str(tmp_path / "pid"), "tail"]
        listing = run(script, capture_output=True, text=True, check=True).stdout
    first, second, third, fourth = pids
    own = sorted([first, fourth], key=int)
    assert _by_instance(listing, 3, "host") == [second, "+", *own, "+", third]
    # without instances, no command line names one
    alone = listing.replace("/instance-", "/")
    assert sorted(_by_instance(alone, 1, "host")) == sorted(pids)
    for strange in ("4999999 tail", f"4999999 tail -f {tmp_path}/instance-3/proxy.cfg"):
        with pytest.raises(TransientError, match=f"host: .* no instance .*: {strange}$"):
            _by_instance(f"{listing}{strange}\n", 3, "host")


def test_the_shells_that_start_the_instances_are_no_tasks_of_the_proxy(tmp_path: Path) -> None:
    files = [tmp_path / f"instance-{number}" / "proxy.cfg" for number in range(2)]
    for file in files:
        file.parent.mkdir()
        file.touch()
    commands = [["tail", "-f", str(file)] for file in files]
    with Popen(["timeout", "60", *together(commands)], process_group=0) as process:
        (tmp_path / "pid").write_text(str(process.pid))
        script = ["sh", "-c", TASKS, "sh", str(tmp_path / "pid"), "tail"]
        listing = ""
        deadline = time.monotonic() + 30
        while listing.count("proxy.cfg") < 2 and time.monotonic() < deadline:
            listing = run(script, capture_output=True, text=True, check=True).stdout
        os.killpg(process.pid, signal.SIGKILL)
    tasks = _by_instance(listing, 2, "host")
    assert (len(tasks), tasks[1]) == (3, "+")


def test_modes_of_different_instances_always_differ() -> None:
    name = "default,default+threads=2,default+slice_ns=1400000,batch+threads=2"
    result = played(name, here(name, EEVDF))
    assert result.names == ("default", "default+threads=2", "batch+threads=2")
    assert result.same == (("default", "default+slice_ns=1400000"),)
    eight, two = Instance("kamailio-udp", 8, 1), Instance("kamailio-udp", 2, 1)
    assert result.instances.started == (eight, two, eight)
    assert result.instances.of_mode == (0, 1, 1)
