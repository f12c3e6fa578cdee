"""Test that sipaccount assigns CPU time correctly to programs with known behaviour."""

import ctypes
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from helpers import Measure, build_native, run_json

import sipsched
from sipsched.errors import TransientError
from sipsched.files import read_zstd
from sipsched.measure.account import read_account
from sipsched.measure.crossing_search import search_crossing
from sipsched.pages.explore.ran import who_ran
from sipsched.pages.explore.timeline import read_messages
from sipsched.pages.parts import Table
from sipsched.plan.config import Config
from sipsched.plan.run import Point
from sipsched.records.bursts import BURSTS_FILE, SHORTEST_US, Program, read_bursts
from sipsched.records.cpu_report import Account
from sipsched.records.probe_report import ProbeReport
from sipsched.records.verification import verify
from sipsched.testbed.inventory import Testbed
from sipsched.validity.rules import SHARED_MACHINE, Limits

pytestmark = pytest.mark.quiet
CPU = max(os.sched_getaffinity(0))
NO_PROBE = ProbeReport("off", "", 0, drops=0, lost=0)
# WORKER wakes up 100 times a second, as a worker does for messages.
WORKER = "import time\nwhile True: time.sleep(0.01)"
# IN_BURSTS uses a CPU for 5 ms, and then sleeps for 15 ms.
IN_BURSTS = """
import time
open("/proc/self/comm", "w").write("in_bursts")
while True:
    end = time.monotonic() + 0.005
    while time.monotonic() < end: pass
    time.sleep(0.015)
"""
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_CONT = 0x4206, 0x4207, 7


@pytest.fixture(scope="session")
def sipaccount(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program as provisioning does."""
    return build_native("probe", tmp_path_factory.mktemp("native"), "sipaccount") / "sipaccount"


@contextmanager
def running(*argv: str, cpu: int = CPU) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program on one CPU, in its own process group."""
    command = ["taskset", "-c", str(cpu), *argv]
    with subprocess.Popen(command, start_new_session=True) as process:
        time.sleep(0.3)
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def counting(program: Path, folder: Path, *options: str) -> Iterator[dict[str, Any]]:
    """Run sipaccount during the block. The yielded mapping contains its report after the block."""
    report, ready = folder / "report.json", folder / "ready"
    argv = [program, "--cpu", CPU, *options, "--report", report, "--ready", ready]
    result: dict[str, Any] = {}
    with subprocess.Popen(list(map(str, argv))) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.01)
        yield result
        process.terminate()
        assert process.wait(10) == 0
    result |= json.loads(report.read_text())


def parsed(found: dict[str, Any]) -> Account:
    return read_account(found, NO_PROBE, None, "report.json")


@pytest.mark.parametrize(
    ("prefix", "part", "policy"),
    [
        (("nice", "-n", "-20"), "fair", "SCHED_OTHER"),
        (("chrt", "--fifo", "50"), "realtime", "SCHED_FIFO"),
        (("chrt", "--idle", "0"), "idle_class", "SCHED_IDLE"),
    ],
)
def test_busy_loop_is_reported_with_class_and_name(
    sipaccount: Path, tmp_path: Path, prefix: tuple[str, ...], part: str, policy: str
) -> None:
    loop = [*prefix, "sh", "-c", "while :; do :; done"]
    with running(*loop) as process, counting(sipaccount, tmp_path, "--sample", "20") as result:
        before = cpu_ns(process.pid)
        time.sleep(1.0)
        used = cpu_ns(process.pid) - before
    account = parsed(result)
    by_pid = {competitor.pid: competitor for competitor in account.competitors}
    assert by_pid[process.pid].policy == policy
    assert by_pid[process.pid].comm == "sh"
    # allow 10 %, because the kernel's own count for the loop includes interrupts, which the account excludes
    assert by_pid[process.pid].ns == pytest.approx(used, rel=0.1, abs=0.02e9)
    # The account subtracts the stolen time from the parts of the classes, but not from the time of each competitor.
    assert getattr(account.parts, part) + account.parts.stolen >= by_pid[process.pid].ns * 0.99
    # The samples exclude competitors of the idle class, because such competitors do not delay the proxy.
    samples = result["samples"]
    sampled = samples["competed_ns"][-1] - samples["competed_ns"][0]
    lasted = samples["t_ns"][-1] - samples["t_ns"][0]
    assert lasted == pytest.approx(1e9, rel=0.2)
    expected = 0 if part == "idle_class" else by_pid[process.pid].ns * lasted / account.parts.total
    assert sampled == pytest.approx(expected, abs=0.1e9)


def test_parts_add_up_to_total_time(sipaccount: Path, tmp_path: Path) -> None:
    with counting(sipaccount, tmp_path) as result:
        time.sleep(1.0)
    (cpu,) = result["cpus"]
    outside = ("cpu", "total_ns", "stolen_ns")
    assert sum(ns for part, ns in cpu.items() if part not in outside) == cpu["total_ns"]
    assert cpu["total_ns"] >= 1e9
    parts = vars(parsed(result).parts)
    assert sum(ns for part, ns in parts.items() if part != "total") == parts["total"]
    assert min(parts.values()) >= 0


def cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def test_wait_names_the_competitor_that_ran(sipaccount: Path, tmp_path: Path) -> None:
    loop = ("chrt", "--fifo", "50", "sh", "-c", "while :; do :; done")
    with (
        running(sys.executable, "-c", WORKER) as worker,
        counting(sipaccount, tmp_path, "--group", str(worker.pid)) as result,
    ):
        time.sleep(0.3)
        with running(*loop) as process:
            time.sleep(0.2)
        time.sleep(0.2)
    account = parsed(result)
    assert account.wait_ns > 0.3e9
    assert account.wait_by is not None
    assert account.wait_by.pid == process.pid
    assert account.parts.proxy > 0


def test_stop_of_the_proxy_is_reported(sipaccount: Path, tmp_path: Path) -> None:
    with (
        running(sys.executable, "-c", WORKER) as worker,
        counting(sipaccount, tmp_path, "--group", str(worker.pid)) as result,
    ):
        time.sleep(0.2)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    account = parsed(result)
    assert 0.45e9 < account.stopped_ns < 0.8e9
    assert account.frozen_ns == account.stopped_ns
    assert account.trace_stops == 0
    longest = max(end - begin for begin, end in result["gaps"])
    assert 0.45e9 < longest < 0.8e9


def test_stops_by_a_tracer_are_counted(sipaccount: Path, tmp_path: Path) -> None:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    with (
        running(sys.executable, "-c", WORKER) as worker,
        counting(sipaccount, tmp_path, "--group", str(worker.pid)) as result,
    ):
        assert ptrace(PTRACE_SEIZE, worker.pid, None, None) == 0
        assert ptrace(PTRACE_INTERRUPT, worker.pid, None, None) == 0
        time.sleep(0.2)
        assert ptrace(PTRACE_CONT, worker.pid, None, None) == 0
        time.sleep(0.2)
    assert parsed(result).trace_stops >= 1


def test_own_program_is_not_a_competitor(sipaccount: Path, tmp_path: Path) -> None:
    loop = ("sh", "-c", "while :; do :; done")
    options = ("--own", str(os.getpid()))
    with running(*loop) as process, counting(sipaccount, tmp_path, *options) as result:
        time.sleep(0.5)
    account = parsed(result)
    assert process.pid not in {competitor.pid for competitor in account.competitors}
    assert account.parts.own > 0


def sum_of_bursts(path: Path, pid: int) -> int:
    lines = json.loads(read_zstd(path, "bursts", ""))["bursts"]
    return sum(end - start for _, start, end, _, _, number in lines if number == pid)


def test_bursts_of_a_busy_program_add_up_to_its_total(sipaccount: Path, tmp_path: Path) -> None:
    file = tmp_path / "bursts"
    # Use SCHED_FIFO, so that other programs of this machine do not interrupt the bursts.
    with (
        running(sys.executable, "-c", WORKER) as worker,
        running("chrt", "--fifo", "50", sys.executable, "-c", IN_BURSTS) as process,
        counting(sipaccount, tmp_path, "--group", str(worker.pid), "--bursts", str(file)) as result,
    ):
        time.sleep(2.0)
    (tmp_path / BURSTS_FILE).write_bytes(zstandard.compress(file.read_bytes()))
    by_pid = {competitor.pid: competitor for competitor in parsed(result).competitors}
    assert sum_of_bursts(tmp_path / BURSTS_FILE, process.pid) == pytest.approx(
        by_pid[process.pid].ns, rel=0.05
    )
    lines = json.loads(file.read_text())["bursts"]
    assert worker.pid not in {line[5] for line in lines}
    assert min(end - start for _, start, end, *_ in lines) >= SHORTEST_US * 1000
    own = [(start, end) for _, start, end, _, _, pid in lines if pid == process.pid]
    assert 4e6 < np.median([end - start for start, end in own]) < 7e6
    bursts = read_bursts(tmp_path)
    assert bursts is not None and bursts.lost == 0
    start, end = max(own, key=lambda burst: burst[1] - burst[0])
    assert next(iter(bursts.ran_ns(CPU, start, end))) == Program("in_bursts", "realtime")


def test_program_that_delays_messages_of_a_run_is_named(measure: Measure, testbed: Testbed) -> None:
    program = ("nice", "-n", "-20", sys.executable, "-c", IN_BURSTS)
    with running(*program, cpu=testbed.sps.cpus[0]) as process:
        record = measure(cps=200, duration_s=5.0)
    run = run_json(record)
    assert BURSTS_FILE in run["files"]
    competitors = {each["pid"]: each for each in run["account"]["account"]["competitors"]}
    total = competitors[process.pid]["ns"]
    assert sum_of_bursts(record / BURSTS_FILE, process.pid) == pytest.approx(total, rel=0.05)
    assert verify(record.parents[6]).intact
    runs = sipsched.open(testbed.name, record.parents[6])
    explanations = runs.slowest(10)["explanation"]
    assert explanations.str.contains(r"in_bursts \(other program\)").sum() >= 8
    table = who_ran([read_messages(runs, runs.one)])
    assert isinstance(table, Table) and table.rows[0][0] == "in_bursts"


def test_missing_cpu_is_an_error_in_one_line(sipaccount: Path, tmp_path: Path) -> None:
    argv = [sipaccount, "--cpu", "200", "--report", tmp_path / "r", "--ready", tmp_path / "y"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", ["--cpu x", "--cpu -1", "--cpu 0 --group 0", "--cpu 0 --sample 1s", ""]
)
def test_wrong_usage_prints_the_usage(sipaccount: Path, arguments: str) -> None:
    argv = [sipaccount, *arguments.split(), "--report", "r", "--ready", "y"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("sipaccount: usage: ")


def test_trial_of_a_search_names_the_program_that_disturbs_it(
    campaign: Config, testbed: Testbed, tmp_path: Path
) -> None:
    point = Point(testbed.name, "kamailio-udp", "default", 1, 4)
    search = dataclasses.replace(
        campaign.search, trial_s=0.5, trials_s=0.5, highest_cps=8000, relative_width=0.8
    )
    lifted = {rule: Limits(math.inf, math.inf) for rule in SHARED_MACHINE}
    tolerant = dataclasses.replace(
        campaign, search=search, validity={**campaign.validity, **lifted}
    )
    refusing = dataclasses.replace(
        tolerant,
        validity={**tolerant.validity, "competitor_share": campaign.validity["competitor_share"]},
    )
    with running("sh", "-c", "while :; do :; done", cpu=testbed.sps.cpus[0]) as loop:
        path = search_crossing(point, tolerant, testbed, tmp_path / "raw")
        with pytest.raises(TransientError, match=rf"other programs used .*: sh .*pid {loop.pid}\)"):
            search_crossing(point, refusing, testbed, tmp_path / "refused")
    for trial in json.loads(path.read_text())["trials"]:
        assert trial["account"]["unavailable"] == ""
        account = trial["account"]["account"]
        parts = account["parts"]
        assert sum(ns for part, ns in parts.items() if part != "total") == parts["total"]
        assert parts["fair"] > 0
        assert loop.pid in {competitor["pid"] for competitor in account["competitors"]}
