"""Test switcher, which switches tasks between modes, in its own network namespace."""

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import SANITIZED
from helpers import build_native

MS = 1_000_000
AUTOCORKING = "/proc/sys/net/ipv4/tcp_autocorking"
SOMAXCONN = "/proc/sys/net/core/somaxconn"
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[3])):
    s.sendto(sys.argv[1].encode(), ("127.0.0.1", int(sys.argv[2])))
"""
OVER_TCP = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
s = socket.create_connection(server.getsockname())
peer, _ = server.accept()
def send(text):
    s.sendall(text)
    assert peer.recv(1000) == text
    time.sleep(0.01)
send(b"BYE sip:a")
send(b"the INVITE sip:a")
before = time.monotonic_ns()
send(b"INVITE sip:a")
print(before, time.monotonic_ns())
time.sleep(0.1)
for number in range(20):
    send(b"ACK sip:a")
"""
SLOW_RECEIVER = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.bind(("127.0.0.1", 7000))
print("bound", flush=True)
while True:
    s.recv(2000)
    time.sleep(0.02)
"""
TWO_THREADS = """
import threading, time
def work():
    print(f"{threading.get_native_id()}\\n", end="", flush=True)
    while True:
        sum(range(1000))
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
work()
"""
MODES = """\
mode 0 task other nice 0 priority 0 slice 0   # what a task has anyway
mode 1 task batch nice 5 priority 0 slice 300000
mode 2 task fifo nice 0 priority 7 slice 0
mode 3 task rr nice 0 priority 3 slice 0
mode 4 task other nice -3 priority 0 slice 100000000
"""
WITHOUT_NICE = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")
POLICIES = {
    0: (os.SCHED_OTHER, 0, 0),
    1: (os.SCHED_BATCH, 5, 0),
    2: (os.SCHED_FIFO, None, 7),
    3: (os.SCHED_RR, None, 3),
    4: (os.SCHED_OTHER, -3, 0),
}


def plan_text(modes: str, order: list[int], window_ns: int, sample_ns: int = 10 * MS) -> str:
    windows = "".join(f"window {i * window_ns} {mode}\n" for i, mode in enumerate(order))
    end = f"end {len(order) * window_ns}\n"
    return f"{modes}first {2 * MS}\nsample {sample_ns}\n{windows}{end}"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the programs as provisioning does, with sanitizers."""
    return build_native("scheduler", tmp_path_factory.mktemp("native"), cflags=SANITIZED)


@pytest.fixture(scope="session")
def namespace() -> Iterator[list[str]]:
    """Return the start of a command line that runs a program in an otherwise empty network namespace."""
    script = "ip link set lo up && echo up && exec sleep 600"
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
    holder.kill()
    holder.wait()


Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start processes, and stop them after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


class Switcher:
    """A started `switcher run`, which writes its log into the folder of the test."""

    def __init__(
        self, program: Path, namespace: list[str], folder: Path, plan: str, *arguments: object
    ) -> None:
        self.namespace = namespace
        self.log_file = folder / "log.json"
        plan_file = folder / "plan.txt"
        plan_file.write_text(plan)
        argv = [program, "run", "--plan", plan_file, "--log", self.log_file, *arguments]
        self.process = subprocess.Popen(
            [*namespace, *map(str, argv)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 10)[0]
        assert self.process.stdout.readline() == "ready\n"

    def send(self, text: str = "INVITE sip:a", port: int = 5060, times: int = 1) -> tuple[int, int]:
        """Send datagrams. Return the times before the first and after the last datagram, in ns."""
        before = time.monotonic_ns()
        argv = [sys.executable, "-c", SEND, text, str(port), str(times)]
        subprocess.run([*self.namespace, *argv], check=True)
        return before, time.monotonic_ns()

    def end(self, code: int = 0, timeout_s: float = 20) -> dict[str, Any]:
        """Wait until `switcher` ends, check its exit code, and return its log."""
        _, error = self.process.communicate(timeout=timeout_s)
        assert (self.process.returncode, error) == (code, "")
        assert not self.log_file.with_suffix(".json.partial").exists()
        log: dict[str, Any] = json.loads(self.log_file.read_text())
        return log


Start = Callable[..., Switcher]


@pytest.fixture
def start(programs: Path, namespace: list[str], tmp_path: Path) -> Iterator[Start]:
    started: list[Switcher] = []

    def start_one(plan: str, *arguments: object, before: tuple[str, ...] = ()) -> Switcher:
        program = programs / "switcher"
        started.append(Switcher(program, [*namespace, *before], tmp_path, plan, *arguments))
        return started[-1]

    yield start_one
    for switcher in started:
        switcher.process.kill()
        switcher.process.wait()


def sleepers(spawn: Spawn, n: int) -> list[int]:
    return [spawn("sleep", "600").pid for _ in range(n)]


def sleep_until(instant_ns: int) -> None:
    time.sleep(max(0, instant_ns - time.monotonic_ns()) / 1e9)


def settings(pid: int) -> tuple[int, int | None, int]:
    policy = os.sched_getscheduler(pid)
    fair = policy in (os.SCHED_OTHER, os.SCHED_BATCH)
    nice = os.getpriority(os.PRIO_PROCESS, pid) if fair else None
    return policy, nice, os.sched_getparam(pid).sched_priority


def slices_ns(programs: Path, *pids: int) -> list[int]:
    argv = [programs / "taskslice", "read", *map(str, pids)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [int(line.split()[-1]) for line in done.stdout.splitlines()]


def test_taskslice_refuses_a_task_that_is_no_number(programs: Path) -> None:
    argv = [programs / "taskslice", "read", "1x"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("taskslice: usage: ")


def expect_slices(programs: Path) -> None:
    argv = [programs / "taskslice", "try", *("other", "0", "0", "300000")]
    tried = subprocess.run(argv, capture_output=True, text=True)
    if "read back as other 0 0 0" in tried.stderr:
        pytest.skip("this kernel has no slices of single tasks (Linux 6.12 and later do)")
    assert (tried.stdout, tried.stderr) == ("other 0 0 300000\n", "")


def test_each_mode_is_in_force_in_its_window(
    start: Start, spawn: Spawn, programs: Path, namespace: list[str]
) -> None:
    expect_slices(programs)
    threads = spawn(sys.executable, "-c", TWO_THREADS)
    assert threads.stdout is not None
    tasks = [*sleepers(spawn, 3), *(int(threads.stdout.readline()) for _ in range(2))]
    (base,) = slices_ns(programs, tasks[0])
    order = [0, 1, 2, 3, 0, 0, 4, 2, 1, 4]
    window = 600 * MS
    switcher = start(plan_text(MODES, order, window), "--fifo", 20, *tasks)
    before, after = switcher.send()
    seen, slices = [], []
    for i in range(len(order)):
        sleep_until(after + i * window + window // 4)
        seen.append({settings(task) for task in tasks})
        slices.append(set(slices_ns(programs, *tasks)))
    log = switcher.end()
    assert seen == [{POLICIES[mode]} for mode in order]
    expected = {0: base, 1: 300_000, 2: 0, 3: 0, 4: 100_000_000}
    assert slices == [{expected[mode]} for mode in order]
    assert log["version"] == 1
    assert (log["tasks"], log["ended"], log["scheduler"]) == (5, "plan", "fifo")
    assert before <= log["t0_ns"] + 2 * MS <= after
    assert len(log["windows"]) == len(order)
    for i, made in enumerate(log["windows"]):
        assert made["asked_ns"] == log["t0_ns"] + i * window
        assert (made["errors"], made["unlike"], made["error"]) == (0, 0, "")
        assert 0 < made["done_ns"] - made["began_ns"] < 50 * MS
    late = [made["began_ns"] - made["asked_ns"] for made in log["windows"]]
    # The first switch waits for the first INVITE.
    assert late[0] >= 2 * MS
    assert min(late) >= 0
    assert max(late) < 100 * MS


def test_settings_that_a_mode_does_not_name_keep_their_values(
    start: Start, spawn: Spawn, programs: Path, namespace: list[str]
) -> None:
    expect_slices(programs)
    (task,) = sleepers(spawn, 1)
    other = int(
        spawn(
            str(programs / "taskslice"), "run", *("other", "0", "0", "700000"), "sleep", "600"
        ).pid
    )
    time.sleep(0.2)
    os.setpriority(os.PRIO_PROCESS, task, 4)

    def somaxconn() -> str:
        argv = [*namespace, "cat", SOMAXCONN]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    def seen() -> tuple[object, ...]:
        return somaxconn(), settings(task), *slices_ns(programs, task, other)

    result = seen()
    fifo = f"mode 0 task fifo nice 0 priority 1 slice 0\nmode 0 file {SOMAXCONN} 77\n"
    other_file = f"mode 1 file {AUTOCORKING} 0\n"
    switcher = start(plan_text(fifo + other_file, [0, 1, 0, 1], 600 * MS), task, other)
    _, after = switcher.send()
    during = []
    for i in range(4):
        sleep_until(after + i * 600 * MS + 150 * MS)
        during.append(seen())
    log = switcher.end()
    assert during[0] == during[2] == ("77", (os.SCHED_FIFO, None, 1), 0, 0)
    assert during[1] == during[3] == result
    assert [made["error"] for made in log["windows"]] == [""] * 4


def test_switcher_waits_for_the_answer_of_the_probe(
    start: Start, spawn: Spawn, tmp_path: Path
) -> None:
    # The fourth answer is late, the fifth is missing, the sixth is an error.
    said, delay_s = list[str](), 0.1
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
        control.listen()

        def answer() -> None:
            connection = control.accept()[0]
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    said.append(line)
                    time.sleep(delay_s if len(said) == 4 else 0)
                    if len(said) != 5:
                        lines.write("error: cannot\n" if len(said) == 6 else "ok\n")
                        lines.flush()

        answerer = threading.Thread(target=answer)
        answerer.start()
        modes = "mode 0 task other nice 0 priority 0 slice 0\nmode 1 probe off\n"
        plan = plan_text(modes, [0, 1, 1, 0, 1, 0], 400 * MS)
        switcher = start(plan, "--probe-control", tmp_path / "control", *sleepers(spawn, 1))
        switcher.send()
        log = switcher.end()
        answerer.join(10)
    # `switcher` sets the first mode twice: before the load, and at the start of the load.
    assert said == ["on\n", "on\n", "off\n", "off\n", "on\n", "off\n", "on\n"]
    took = [(made["done_ns"] - made["began_ns"]) / 1e9 for made in log["windows"]]
    assert took[2] >= delay_s
    assert took[3] >= 0.2
    assert max(took[i] for i in (0, 1, 4, 5)) < delay_s
    assert [made["error"] for made in log["windows"]] == [
        *("", "", ""),
        "ETIMEDOUT: the probe's control: Connection timed out",
        "EIO: error: cannot: Input/output error",
        "",
    ]


def test_missing_probe_is_an_error_of_each_window(
    start: Start, spawn: Spawn, tmp_path: Path
) -> None:
    plan = plan_text("mode 0 probe off\n", [0, 0], 100 * MS)
    switcher = start(plan, "--probe-control", tmp_path / "none", *sleepers(spawn, 1))
    switcher.send()
    expected = (1, "ENOENT: the probe's control: No such file or directory")
    assert [(made["errors"], made["error"]) for made in switcher.end()["windows"]] == [expected] * 2


def test_dead_task_is_an_error_of_later_windows(start: Start, spawn: Spawn) -> None:
    first, second = spawn("sleep", "600"), spawn("sleep", "600")
    window = 400 * MS
    plan = plan_text(MODES, [0, 1, 2, 0], window)
    switcher = start(plan, first.pid, second.pid)
    _, after = switcher.send()
    sleep_until(after + window + window // 2)
    first.kill()
    first.wait()
    sleep_until(after + 2 * window + window // 2)
    assert settings(second.pid) == POLICIES[2]
    log = switcher.end()
    assert [made["errors"] for made in log["windows"]] == [0, 0, 1, 1]
    assert log["windows"][2]["error"] == "ESRCH: sched_setattr: No such process"
    assert log["ended"] == "plan"
    assert settings(second.pid) == POLICIES[0]
    assert log["samples"]["cpu_ns"] == sorted(log["samples"]["cpu_ns"])


def test_errors_of_files_are_reported(start: Start, spawn: Spawn) -> None:
    # The kernel accepts a hexadecimal number and returns a decimal number.
    modes = (
        f"mode 0 file {SOMAXCONN} 0x50\nmode 1 file {SOMAXCONN} 80\nmode 2 file /proc/sys/none 1\n"
    )
    switcher = start(plan_text(modes, [0, 1, 2], 100 * MS), *sleepers(spawn, 1))
    switcher.send()
    made = switcher.end()["windows"]
    assert [(one["errors"], one["unlike"]) for one in made] == [(0, 1), (0, 0), (1, 0)]
    assert made[0]["error"] == f"{SOMAXCONN}: asked 0x50, read back 80"
    assert made[2]["error"] == "ENOENT: /proc/sys/none: No such file or directory"


def test_missing_privilege_is_an_error_of_its_windows_only(start: Start, spawn: Spawn) -> None:
    # Start the tasks with the privileges of the switcher, because otherwise the switcher could not change them at all.
    tasks = [spawn(*WITHOUT_NICE, "sleep", "600").pid for _ in range(2)]
    plan = plan_text(MODES, [1, 2, 1], 100 * MS)
    switcher = start(plan, "--fifo", 20, *tasks, before=WITHOUT_NICE)
    switcher.send()
    log = switcher.end()
    assert log["scheduler"] == "other"
    assert [made["errors"] for made in log["windows"]] == [0, 2, 0]
    assert log["windows"][1]["error"] == "EPERM: sched_setattr: Operation not permitted"


def test_switcher_waits_for_an_invite_to_its_port(start: Start, spawn: Spawn) -> None:
    switcher = start(plan_text(MODES, [0, 1], 200 * MS), "--port", 5070, *sleepers(spawn, 1))
    switcher.send("BYE sip:a", 5070)
    switcher.send("INVITE sip:a", 5060)
    switcher.send("IN", 5070)
    before, after = switcher.send("INVITE sip:a", 5070)
    assert before <= switcher.end()["t0_ns"] + 2 * MS <= after


def test_switcher_waits_for_an_invite_over_tcp_and_counts_segments(
    start: Start, spawn: Spawn, namespace: list[str]
) -> None:
    plan = plan_text(MODES, [0, 1], 300 * MS)
    switcher = start(plan, "--tcp", "--port", 5071, *sleepers(spawn, 1))
    switcher.send("INVITE sip:a", 5071)
    argv = [*namespace, sys.executable, "-c", OVER_TCP, "5071"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    before, after = map(int, done.stdout.split())
    log = switcher.end()
    assert before <= log["t0_ns"] + 2 * MS <= after
    sent = log["samples"]["datagrams"]
    # The segments that end the two streams are counted, too.
    assert sent[-1] - sent[0] == 20 + 2
    assert set(log["samples"]["refused"]) == {0}


def test_the_cpu_time_of_each_instance_is_sampled(start: Start, spawn: Spawn) -> None:
    (idle,) = sleepers(spawn, 1)
    busy = spawn("sh", "-c", "while :; do :; done").pid
    switcher = start(plan_text(MODES, [0, 0], 250 * MS), idle, "+", busy, *sleepers(spawn, 1))
    switcher.send()
    log = switcher.end()
    first, second = log["cpu_ns_of_instances"]
    assert [sum(both) for both in zip(first, second, strict=True)] == log["samples"]["cpu_ns"]
    assert first[-1] == first[0]
    assert second[-1] > second[0]
    assert log["tasks"] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_load(start: Start, spawn: Spawn, number: signal.Signals) -> None:
    switcher = start(plan_text(MODES, [1, 2], 100 * MS), *sleepers(spawn, 2))
    time.sleep(0.3)
    switcher.process.send_signal(number)
    log = switcher.end()
    assert (log["t0_ns"], log["ended"]) == (None, "signal")
    (made,) = log["windows"]
    assert made["asked_ns"] == made["began_ns"] < made["done_ns"]
    assert set(map(len, log["samples"].values())) == {0}


def test_signal_during_the_load(start: Start, spawn: Spawn) -> None:
    # Choose times such that the signal arrives far from switches and samples.
    switcher = start(
        plan_text(MODES, [0, 1, 2], 1000 * MS, sample_ns=2000 * MS), *sleepers(spawn, 1)
    )
    _, after = switcher.send()
    sleep_until(after + 1500 * MS)
    switcher.process.terminate()
    log = switcher.end(timeout_s=0.4)
    assert log["ended"] == "signal"
    assert len(log["windows"]) == 2
    assert len(log["samples"]["t_ns"]) == 3


def cpu_ns(pid: int) -> int:
    """Return the CPU time of all threads in ns. For a running thread, /proc has the CPU time until the last tick."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files)


def test_samples(start: Start, spawn: Spawn, namespace: list[str]) -> None:
    idle = sleepers(spawn, 1)
    busy = spawn("sh", "-c", "while :; do :; done")
    threads = spawn(sys.executable, "-c", TWO_THREADS)
    assert threads.stdout is not None
    tasks = [*idle, busy.pid, *(int(threads.stdout.readline()) for _ in range(2))]
    receiver = spawn(*namespace, sys.executable, "-c", SLOW_RECEIVER)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "bound\n"
    window = 250 * MS
    plan = plan_text(MODES, [0, 1, 0, 1], window, sample_ns=50 * MS)
    switcher = start(plan, "--cpus", 0, *tasks)
    switcher.send()
    first = sum(map(cpu_ns, (busy.pid, threads.pid)))
    first_ns = time.monotonic_ns()
    switcher.send("x" * 1000, 7000, 50)
    time.sleep(0.5)
    last = sum(map(cpu_ns, (busy.pid, threads.pid)))
    last_ns = time.monotonic_ns()
    log = switcher.end()
    samples = log["samples"]
    for name, column in samples.items():
        # `idle_ticks` is the sum of two rounded numbers, so it may decrease by 2.
        rounded = 2 if name == "idle_ticks" else 0
        assert all(b >= a - rounded for a, b in itertools.pairwise(column)), name
        assert len(column) == len(samples["t_ns"])
    times = samples["t_ns"]
    # `switcher` samples every 50 ms for a quarter of a second, and once before each switch.
    assert 4 * 4 <= len(times) <= 4 * 6 + 3
    for made in log["windows"][1:]:
        before = max(t for t in times if t < made["began_ns"])
        assert made["asked_ns"] - before < 100 * MS
    between = [i for i, t in enumerate(times) if first_ns <= t <= last_ns]
    counted = samples["cpu_ns"][between[-1]] - samples["cpu_ns"][between[0]]
    assert 0 < counted <= (times[between[-1]] - times[between[0]]) * (os.cpu_count() or 1)
    outer = last - first
    share = (times[between[-1]] - times[between[0]]) / (last_ns - first_ns)
    assert counted == pytest.approx(outer * share, rel=0.35)
    refused = samples["refused"][-1] - samples["refused"][0]
    received = samples["datagrams"][-1] - samples["datagrams"][0]
    # No socket is bound to the SIP port, so the INVITE is not counted.
    assert refused > 0
    assert received > 0
    assert refused + received == 50
    ticks = log["ticks_per_s"]
    spent = (times[-1] - times[0]) / 1e9 * ticks
    for name in ("steal_ticks", "idle_ticks", "softirq_ticks"):
        assert samples[name][-1] - samples[name][0] <= spent * 1.2 + 5


def test_all_cpus_are_counted_by_default(start: Start, spawn: Spawn) -> None:
    def idle(*arguments: object) -> int:
        switcher = start(plan_text(MODES, [0], 50 * MS), *arguments, *sleepers(spawn, 1))
        switcher.send()
        return int(switcher.end()["samples"]["idle_ticks"][-1])

    cpus = [line.split() for line in Path("/proc/stat").read_text().splitlines()[1:]]
    rows = {int(f[0][3:]): int(f[4]) + int(f[5]) for f in cpus if f[0].startswith("cpu")}
    assert idle() == pytest.approx(sum(rows.values()), rel=0.05, abs=500)
    assert idle("--cpus", max(rows)) == pytest.approx(rows[max(rows)], rel=0.05, abs=500)


def test_full_disk_is_an_error_in_one_line(
    programs: Path, namespace: list[str], spawn: Spawn, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    plan = tmp_path / "plan.txt"
    plan.write_text(plan_text(MODES, [0] * 200, 2 * MS))
    run = [str(programs / "switcher"), "run", "--plan", str(plan), "--log", str(disk / "log")]
    script = 'mount -t tmpfs -o size=4k none "$1" && shift && "$@"; code=$?; ls "$DISK"; exit $code'
    process = subprocess.Popen(
        [*namespace, "unshare", "--mount", "sh", "-c", script, "sh", str(disk), *run]
        + [str(pid) for pid in sleepers(spawn, 1)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DISK": str(disk)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    argv = [sys.executable, "-c", SEND, "INVITE", "5060", "1"]
    subprocess.run([*namespace, *argv], check=True)
    left, error = process.communicate(timeout=20)
    assert process.returncode == 1
    assert error == f"switcher: {disk}/log: No space left on device\n"
    assert left == ""


GOOD = "mode 0 task other nice 0 priority 0 slice 0\nfirst 0\nsample 1000000\nwindow 0 0\nend 10\n"


@pytest.mark.parametrize(
    ("plan", "line", "said"),
    [
        ("", 0, "expected a line 'mode', found the end of the file"),
        ("# nothing\n\n", 2, "expected a line 'mode', found the end of the file"),
        ("mode 0 probe on\n", 1, "expected a line 'window', found the end of the file"),
        (GOOD.replace("end 10\n", ""), 4, "expected a line 'end', found the end of the file"),
        (GOOD.replace("other", "idle"), 1, "a policy, other, batch, fifo or rr, found idle"),
        (GOOD.replace("slice 0", "slice 99999"), 1, "from 100000 to 100000000, found 99999"),
        (GOOD.replace("slice 0", "slice 100000001"), 1, "to 100000000, found 100000001"),
        (GOOD.replace("slice 0", "slice"), 1, "found nothing"),
        (GOOD.replace("slice 0", "slice 0 0"), 1, "expected the end of the line, found 0"),
        (GOOD.replace("nice 0", "nice 20"), 1, "a nice value from -20 to 19, found 20"),
        (GOOD.replace("priority 0", "priority 1"), 1, "a priority from 0 to 0, found 1"),
        (GOOD.replace("other", "fifo"), 1, "a priority from 1 to 99, found 0"),
        (GOOD.replace("mode 0", "mode 64"), 1, "the number of a mode from 0 to 63, found 64"),
        (GOOD.replace("window 0 0", "window 0 1"), 4, "a mode with lines of its own"),
        (
            GOOD.replace("window 0 0", "window 0 0\nwindow 0 0"),
            5,
            "a start after the previous window",
        ),
        (GOOD.replace("window 0 0", "window 10 0"), 5, "an end after the start of the last window"),
        (GOOD.replace("end 10", "end 1e9"), 5, "ns from 1 to 86400000000000, found 1e9"),
        (GOOD + "end 11\n", 6, "expected this line once, found end"),
        (GOOD + "mode 0 task other nice 0 priority 0 slice 0\n", 6, "one line 'task' per mode"),
        (GOOD + "mode 0 file proc 1\n", 6, "expected the path of a file, from /, found proc"),
        (GOOD + "mode 0 file /proc\n", 6, "expected a value to write, found nothing"),
        (GOOD + "mode 0 probe maybe\n", 6, "expected on or off, found maybe"),
        (GOOD + "\x1b[31m\n", 6, "mode, first, sample, window or end, found ?[31m"),
        (GOOD + "a " * 20 + "\n", 6, "at most 16 words"),
        (GOOD.replace("end 10", "end 86400000000000"), 5, "at most 10,000,000 samples"),
    ],
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_bad_plan_is_an_error_in_one_line(
    programs: Path, tmp_path: Path, command: str, plan: str, line: int, said: str
) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(plan)
    rest = ["--log", str(tmp_path / "log"), str(os.getpid())] if command == "run" else []
    argv = [str(programs / "switcher"), command, "--plan", str(path), *rest]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert done.stderr.startswith(f"switcher: {path}:{line}: expected ")
    assert said in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert [file.name for file in tmp_path.iterdir()] == ["plan.txt"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["play"],
        ["run", "--plan", "{plan}", "1"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log", "+", "+"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log", "0"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log", "--cpus", "1-0", "1"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log", "--fifo", "100", "1"],
        ["run", "--plan", "{plan}", "--log", "{folder}/log", "--port", "x", "1"],
        ["run", "--plan", "{probe}", "--log", "{folder}/log", "1"],
        ["run", "--plan", "{folder}/none", "--log", "{folder}/log", "1"],
        ["check"],
        ["check", "--plan", "{plan}", "1"],
        ["speed", "--seconds", "0"],
        ["speed", "1"],
    ],
)
def test_wrong_usage_is_an_error_in_one_line(
    programs: Path, tmp_path: Path, arguments: list[str]
) -> None:
    plan, probe = tmp_path / "plan.txt", tmp_path / "probe.txt"
    plan.write_text(GOOD)
    probe.write_text(GOOD + "mode 0 probe off\n")
    filled = [text.format(plan=plan, probe=probe, folder=tmp_path) for text in arguments]
    argv = [str(programs / "switcher"), *filled]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("switcher: ")
    assert done.stderr.count("\n") == 1


def test_unwritable_log_is_an_error_before_the_load(programs: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text(GOOD)
    argv = [str(programs / "switcher"), "run", "--plan", str(plan), "--log", f"{tmp_path}/no/log"]
    done = subprocess.run([*argv, str(os.getpid())], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1
    assert done.stderr == f"switcher: {tmp_path}/no/log: No such file or directory\n"


def test_check_tries_each_mode(programs: Path, namespace: list[str], tmp_path: Path) -> None:
    expect_slices(programs)
    plan = tmp_path / "plan.txt"
    files = (
        f"mode 5 file {SOMAXCONN} 70\nmode 6 file /proc/sys/none 1\nmode 7 file {SOMAXCONN} no\n"
    )
    plan.write_text(plan_text(MODES + files, [0], MS))
    show = [*namespace, "cat", SOMAXCONN]
    before = subprocess.run(show, capture_output=True, check=True).stdout
    check = [str(programs / "switcher"), "check", "--plan", str(plan)]

    def lines(*argv: str) -> list[str]:
        done = subprocess.run([*namespace, *argv], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    good = [f"{mode} ok" for mode in range(6)]
    bad = [
        "6 ENOENT: /proc/sys/none: No such file or directory",
        f"7 EINVAL: {SOMAXCONN}: Invalid argument",
    ]
    assert lines(*check) == good + bad
    assert subprocess.run(show, capture_output=True, check=True).stdout == before
    refused = "EPERM: sched_setattr: Operation not permitted"
    unprivileged = ["0 ok", "1 ok", f"2 {refused}", f"3 {refused}", f"4 {refused}"]
    assert lines(*WITHOUT_NICE, *check)[:5] == unprivileged


def test_speed(programs: Path, tmp_path: Path) -> None:
    # Build without sanitizers, because sanitizers would lower the speed index.
    switcher = build_native("scheduler", tmp_path, "switcher") / "switcher"

    def speed(*arguments: str) -> dict[str, float]:
        argv = [str(switcher), "speed", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        document: dict[str, float] = json.loads(done.stdout)
        return document

    result = [speed() for _ in range(5)]
    for one in result:
        assert one["index"] == pytest.approx(one["work"] / (one["cpu_ns"] / 1e3), abs=1e-3)
        assert 50 * MS <= one["cpu_ns"] < 100 * MS
        assert one["wall_ns"] > 0.99 * one["cpu_ns"]
    rates = [one["index"] for one in result]
    assert max(rates) < 2 * min(rates)
    assert speed("--seconds", "0.2")["cpu_ns"] == pytest.approx(200 * MS, rel=0.2)
