"""Tests of the competitors that a testbed declares: the start, the end, and the program that competes."""

import os
import re
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.measure.competitors import CHRT, Competitors
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.inventory import DeclaredCompetitor

LOGGER = DeclaredCompetitor("logger", 3000, 20000, (0, 1))
CRON = DeclaredCompetitor("cron", 1, 2)
SYSLOGD = DeclaredCompetitor("syslogd", 20, cpus=(1,))


class Sps:
    """A host that records what is started and stopped, and whose processes run until `ended` names them."""

    def __init__(self, *, ready: bool = True) -> None:
        self.spec = SimpleNamespace(cpus=(0, 1, 2, 3))
        self.base = Path("/work")
        self.ready, self.ended = ready, set[str]()
        self.cpu_ns = 0
        self.events: list[Any] = []

    def require_built(self, part: str, programs: list[str]) -> None:
        self.events.append((part, *programs))

    def start(self, name: str, argv: list[str], *, cpus: tuple[int, ...], limit_s: float) -> Any:
        self.events.append((name, argv, cpus, limit_s))
        return SimpleNamespace(name=name, pid_file="pid", log_file="log")

    def stop(self, process: Any) -> None:
        self.events.append(f"stop {process.name}")

    def wait_while_running(self, *arguments: Any, **more: Any) -> bool:
        return self.ready

    def run(self, argv: list[str], *, check: bool) -> Any:
        return SimpleNamespace(stdout="competitor: usage\n")

    def processes(self, process: Any) -> dict[int, str]:
        number = 10 * len(process.name)
        return {number: "timeout", number + 1: process.name.removeprefix("competitor-")}

    def cpu_time_ns(self, process: Any) -> int:
        return self.cpu_ns

    def is_running(self, process: Any) -> bool:
        return process.name not in self.ended


def competitors(sps: Sps, *declared: DeclaredCompetitor) -> Competitors:
    return Competitors(sps, declared, 60)  # type: ignore[arg-type]


def test_competitors_run_for_the_load_only_and_their_tasks_are_known() -> None:
    sps = Sps()
    declared = competitors(sps, LOGGER, CRON)
    with declared.running():
        program = "/work/native/scheduler/competitor"
        assert sps.events == [
            ("scheduler", "competitor"),
            ("competitor-logger", [program, "logger", "3000", "20000"], (0, 1), 60),
            # A competitor without declared CPUs may use all CPUs of the SPS.
            ("competitor-cron", [program, "cron", "1", "2"], (0, 1, 2, 3), 60),
        ]
        # The program `timeout`, which limits a competitor's time, does not count as a competitor.
        assert declared.tasks == {171: "logger", 151: "cron"}
    assert sps.events[3:] == ["stop competitor-cron", "stop competitor-logger"]


def test_the_reader_of_the_log_starts_before_the_load() -> None:
    sps = Sps()
    declared = competitors(sps, LOGGER, SYSLOGD)
    argv = ["/work/native/scheduler/competitor", "syslogd", "20", "/dev/log"]
    with declared.reading_log():
        assert sps.events[1:] == [("competitor-syslogd", argv, (1,), 60)]
        with declared.running():
            assert sps.events[3][0] == "competitor-logger"
            assert sorted(declared.tasks.values()) == ["logger", "syslogd"]
            sps.cpu_ns = 20_000
        assert sps.events[4:] == ["stop competitor-logger"]
    assert sps.events[5:] == ["stop competitor-syslogd"]


def test_a_proxy_that_logs_nothing_fails_the_run() -> None:
    sps = Sps()
    declared = competitors(sps, SYSLOGD)
    with (
        declared.reading_log(),
        pytest.raises(StableError, match="the proxy logged no line to /dev/log"),
        declared.running(),
    ):
        sps.cpu_ns = 19_999


@pytest.mark.parametrize(
    ("declared", "before"),
    [
        ({"policy": "batch", "nice": 5}, ["nice", "-n", "5", "chrt", "--batch", "0"]),
        ({"policy": "idle"}, ["chrt", "--idle", "0"]),
        ({"policy": "fifo"}, ["chrt", "--fifo", "1"]),
        ({"nice": -5}, ["nice", "-n", "-5"]),
    ],
)
def test_a_competitor_starts_with_its_policy_and_nice_value(
    declared: dict[str, Any], before: list[str]
) -> None:
    sps = Sps()
    with competitors(sps, replace(CRON, **declared)).running():
        _, argv, _, _ = sps.events[1]
    assert argv == [*before, "/work/native/scheduler/competitor", "cron", "1", "2"]


def test_a_testbed_without_competitors_starts_nothing() -> None:
    sps = Sps()
    with competitors(sps).running():
        pass
    assert sps.events == []


def test_competitors_stop_after_an_error() -> None:
    sps = Sps()
    with pytest.raises(KeyError), competitors(sps, LOGGER).running():
        raise KeyError
    assert sps.events[-1] == "stop competitor-logger"


def test_a_competitor_that_does_not_start_is_an_error() -> None:
    sps = Sps(ready=False)
    running = competitors(sps, LOGGER).running()
    with pytest.raises(StableError, match="competitor-logger: competitor: usage"), running:
        pass
    assert sps.events[-1] == "stop competitor-logger"


def test_a_competitor_that_ends_during_the_load_fails_the_run() -> None:
    sps = Sps()
    with (
        pytest.raises(TransientError, match="competitor-logger ended during the run"),
        competitors(sps, LOGGER).running(),
    ):
        sps.ended.add("competitor-logger")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    for part in ("common", "scheduler"):
        shutil.copytree(PROJECT_ROOT / "hardware" / part, folder / part)
    make = ["make", "--silent", "--directory", str(folder / "scheduler"), "competitor"]
    subprocess.run(make, check=True)
    return folder / "scheduler" / "competitor"


def test_the_program_has_its_name_and_sleeps_between_periods(program: Path) -> None:
    with subprocess.Popen([program, "logger", "1000", "1000000"]) as process:
        name = Path(f"/proc/{process.pid}/comm")
        while name.read_text() != "logger\n":
            time.sleep(0.01)
        time.sleep(0.2)
        used_ns = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0])
        process.terminate()
        assert process.wait(timeout=30) == 0
    # The competitor uses 1 ms of the first second, and some CPU time for its start.
    assert 1e6 <= used_ns < 1e8


def sleeps(pid: int) -> int:
    """Return how often a task has slept, which is its number of voluntary context switches."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE)[0])


def test_the_program_keeps_its_policy_and_may_compute_all_the_time(program: Path) -> None:
    argv = ["nice", "-n", "5", *CHRT["batch"], program, "logger", "20000", "20000"]
    with subprocess.Popen(argv) as process:
        name = Path(f"/proc/{process.pid}/comm")
        while name.read_text() != "logger\n":
            time.sleep(0.01)
        policy = os.sched_getscheduler(process.pid)
        nice = os.getpriority(os.PRIO_PROCESS, process.pid)
        before = sleeps(process.pid)
        time.sleep(0.5)
        after = sleeps(process.pid)
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert policy == os.SCHED_BATCH
    assert nice == os.getpriority(os.PRIO_PROCESS, 0) + 5
    # A competitor that sleeps between its periods would sleep about 12 times in this time.
    assert after - before < 3


def test_the_program_works_for_each_line_and_blocks_a_fast_sender(
    program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    argv = [program, "syslogd", "100", path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            while sender.connect_ex(str(path)):
                time.sleep(0.01)
            began = time.monotonic()
            for number in range(1000):
                sender.send(f"line {number}".encode())
            passed = time.monotonic() - began
            second = subprocess.run(argv, check=False, capture_output=True, text=True)
            while int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) < 100e6:
                time.sleep(0.01)
            time.sleep(0.1)
        process.terminate()
        said, _ = process.communicate(timeout=30)
    # At most eleven lines wait, or as many as the kernel allows, so the sender waits for the other lines.
    waiting = 1 + int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    assert passed > (1000 - waiting - 1) * 100e-6
    assert said.splitlines()[0] == "line 0"
    assert said.splitlines()[-2:] == ["line 99", "1000 lines"]
    assert second.returncode == 1
    assert "another program reads this socket; stop it" in second.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments", [[], ["logger", "2", "1"], ["logger", "0", "1"], ["sixteen-letters-", "1", "2"]]
)
def test_the_program_says_how_to_use_it(program: Path, arguments: list[str]) -> None:
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("competitor: usage: competitor NAME BUSY_US PERIOD_US|SOCKET")
