"""The probe's recording switched off and on under traffic whose every message is known."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import relay
from helpers import wait_for

from sipsched.records.trace import HEADER, RECORD, Event, Flag
from sipsched.testbed.inventory import Testbed, native_folder

MOMENT_S = 0.15
STEER = """\
set -e
mount -t sysfs none /sys
printf '%x' $(((1 << $(nproc)) - 1)) > /sys/class/net/lo/queues/rx-0/rps_cpus
exec "$@"
"""


@dataclass
class Watched:
    """A relay under traffic, and the probe that watches it."""

    folder: Path
    relay: subprocess.Popen[bytes]
    probe: subprocess.Popen[bytes]

    @property
    def control(self) -> Path:
        return self.folder / "control"

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(str(self.control))
        return client

    def begin(self, client: socket.socket) -> None:
        """Start afresh while nothing is on its way between the counters."""
        assert ask(client, "off") == "ok"
        self.probe.send_signal(signal.SIGUSR1)
        wait_for(lambda: "fresh" in (self.folder / "ready").read_text(), 5)
        assert ask(client, "on") == "ok"

    def finish(self) -> tuple[dict[str, Any], npt.NDArray[Any], dict[str, list[int]]]:
        """End the traffic and the probe; give the report, the records and what the relay saw."""
        assert self.relay.stdin is not None
        self.relay.stdin.write(b"end\n")
        self.relay.stdin.flush()
        wait_for((self.folder / "seen.json").exists, 10)
        time.sleep(MOMENT_S)
        self.probe.terminate()
        assert self.probe.wait(10) == 0, (self.folder / "probe.log").read_text()
        report = json.loads((self.folder / "probe.json").read_text())
        trace = (self.folder / "trace.bin").read_bytes()
        records = np.frombuffer(trace, RECORD, offset=HEADER.itemsize)
        return report, records, json.loads((self.folder / "seen.json").read_text())


def ask(client: socket.socket, line: str) -> str:
    """Send a line and read the one that answers it."""
    client.sendall(f"{line}\n".encode())
    return client.makefile().readline().rstrip("\n")


def is_gone(client: socket.socket) -> bool:
    """Tell whether nobody is at the other end."""
    try:
        return client.recv(10) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def watched(
    testbed: Testbed,
    folder: Path,
    mode: str,
    rate: float = 1500,
    burst: int = 1,
    receive_buffer: int = 200_000,
    steered: bool = False,
) -> Iterator[Watched]:
    """Watch a relay; `steered`: what it receives interrupts whatever another CPU does."""
    program = native_folder(testbed.workdir, "probe") / "sipprobe"
    how = ("4", str(rate), str(burst), str(receive_buffer), str(folder / "seen.json"))
    argv = [sys.executable, relay.__file__, *how]
    steer = ["sh", "-c", STEER, "sh"] if steered else []
    traffic = subprocess.Popen(
        ["unshare", "--net", "--mount", *steer, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    probe = None
    try:
        assert traffic.stdout is not None
        assert traffic.stdout.readline() == b"serving\n"
        log = (folder / "probe.log").open("wb")
        probe = subprocess.Popen(
            [
                *("nsenter", f"--net=/proc/{traffic.pid}/ns/net", str(program), "run"),
                *("--mode", mode, "--port", str(relay.PORT), "--comm", relay.NAME),
                *("--output", str(folder / "trace.bin"), "--report", str(folder / "probe.json")),
                *("--ready", str(folder / "ready"), "--control", str(folder / "control")),
            ],
            stderr=log,
        )
        ready = folder / "ready"
        wait_for(
            lambda: probe.poll() is not None or (ready.exists() and "ready" in ready.read_text()),
            10,
        )
        if probe.poll() is not None:
            pytest.skip(f"this kernel has no mode {mode}: {(folder / 'probe.log').read_text()}")
        yield Watched(folder, traffic, probe)
    finally:
        for process in (traffic, probe):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)


MODES = pytest.mark.parametrize("mode", ["exact", "tracepoint"])


@MODES
def test_what_is_sent_while_recording_is_off_is_not_there_and_all_else_is(
    testbed: Testbed, tmp_path: Path, mode: str
) -> None:
    off = []
    with watched(testbed, tmp_path, mode) as run, run.connect() as client:
        run.begin(client)
        began = time.monotonic_ns()
        for _ in range(8):
            time.sleep(MOMENT_S)
            asked_off = time.monotonic_ns()
            assert ask(client, "off") == "ok"
            is_off = time.monotonic_ns()
            time.sleep(MOMENT_S)
            asked_on = time.monotonic_ns()
            assert ask(client, "on") == "ok"
            off.append((asked_off, is_off, asked_on, time.monotonic_ns()))
        time.sleep(MOMENT_S)
        report, records, seen = run.finish()

    assert report["switches_off"] == 8
    assert sum(on - off for _, off, on, _ in off) < report["off_ns"]
    assert report["off_ns"] < sum(on - off for off, _, _, on in off) + MOMENT_S * 1e9
    assert report["lost"] == report["unmatched"] == report["refused_unseen"] == 0
    assert report["arrived"] == report["received"] + report["cut_arrivals"]
    assert report["received"] == report["records"] + report["cut_services"]
    # the switches end well within a window's washout
    assert 0 < report["slowest_off_ns"] < 100e6
    assert 0 < report["slowest_on_ns"] < 100e6

    sent = np.array(seen["sent"])
    number = records["cseq"].astype(int) - 1
    assert np.unique(number).size == number.size == report["records"]
    # each record is of the message it says: nothing of one is taken for another's
    assert np.all(sent[number] <= records["t_arr"])
    assert np.all(records["t_arr"] <= records["t_stack"])
    assert np.all(records["t_stack"] <= records["t_sockq"])
    assert np.all(records["t_sockq"] <= records["t_sip_in"])
    assert np.all(records["t_sip_in"] < records["t_sip_out"])
    assert np.all(records["t_sip_out"] <= np.array(seen["returned"])[number])
    assert not np.any(records["flags"] & (Flag.UNMATCHED | Flag.NO_SEND | Flag.NO_DEP))

    recorded = np.isin(np.arange(sent.size), number)
    while_off = np.zeros(sent.size, bool)
    perhaps = np.zeros(sent.size, bool)
    for asked_off, is_off, asked_on, is_on in off:
        while_off |= (sent > is_off) & (sent < asked_on)
        perhaps |= (sent > asked_off - 5e6) & (sent < is_on)
    assert while_off.sum() > 8 * 100
    assert not np.any(recorded & while_off)
    missing = (sent > began) & ~perhaps & ~recorded
    assert missing.sum() <= report["cut_arrivals"] + report["cut_services"]


@MODES
def test_no_drop_and_no_loss_is_made_up_when_the_queue_is_full(
    testbed: Testbed, tmp_path: Path, mode: str
) -> None:
    full = {"rate": 8000, "burst": 400, "receive_buffer": 20_000}
    with watched(testbed, tmp_path, mode, **full) as run, run.connect() as client:
        run.begin(client)
        for _ in range(10):
            for line in ("off", "on"):
                time.sleep(0.07)
                assert ask(client, line) == "ok"
        time.sleep(MOMENT_S)
        report, records, seen = run.finish()
    assert report["drops"] > 100, "the queue was never full"
    assert report["lost"] == report["unmatched"] == 0
    assert report["drops"] == report["refused"]
    accounted = report["received"] + report["refused"]
    accounted += report["refused_unseen"] + report["cut_arrivals"]
    assert report["arrived"] == accounted
    assert report["received"] == report["records"] + report["cut_services"]
    sent, returned = np.array(seen["sent"]), np.array(seen["returned"])
    number = records["cseq"].astype(int) - 1
    assert np.all(sent[number] <= records["t_arr"])
    dropped = records["event"] == Event.DROP
    assert np.all(returned[number[dropped]] == 0)
    assert np.all(returned[number[~dropped]] > 0)


@MODES
def test_of_thousands_that_wait_in_the_queue_every_arrival_is_known(
    testbed: Testbed, tmp_path: Path, mode: str
) -> None:
    with watched(testbed, tmp_path, mode, rate=8000, burst=80, receive_buffer=4_000_000) as run:
        with run.connect() as client:
            run.begin(client)
        relay_pid = run.relay.pid
        workers = Path(f"/proc/{relay_pid}/task/{relay_pid}/children").read_text().split()
        for _ in range(4):
            for signal_number, wait_s in ((signal.SIGSTOP, 0.6), (signal.SIGCONT, 1.0)):
                for worker in workers:
                    os.kill(int(worker), signal_number)
                time.sleep(wait_s)
        report, records, _ = run.finish()
    records = records[records["event"] != Event.DROP]
    waited = records["t_sip_in"] - records["t_arr"]
    assert np.count_nonzero(waited > 0.3e9) > 4 * 1000, "the queue was never long"
    assert report["evicted"] == report["unmatched"] == report["lost"] == 0
    assert report["received"] == report["records"]


def syscall_ns() -> float:
    """Time of the fastest of many system calls that do nothing."""
    rounds = []
    for _ in range(30):
        begin = time.perf_counter_ns()
        for _ in range(2000):
            os.getppid()
        rounds.append((time.perf_counter_ns() - begin) / 2000)
    return min(rounds)


def test_off_takes_system_calls_off_the_slow_path(testbed: Testbed, tmp_path: Path) -> None:
    with (
        watched(testbed, tmp_path, "tracepoint", rate=50) as run,
        run.connect() as client,
    ):
        on = [syscall_ns()]
        assert ask(client, "off") == "ok"
        off = syscall_ns()
        assert ask(client, "on") == "ok"
        on.append(syscall_ns())
    assert off < min(on) - 40, (off, on)


def chatter() -> None:
    """Write to a unix socket for ever: its reader is told where the reader of a UDP socket is."""
    one, other = socket.socketpair()
    while True:
        one.send(b"x")
        other.recv(1)


def test_a_hook_that_is_busy_with_another_socket_loses_no_record(
    testbed: Testbed, tmp_path: Path
) -> None:
    chatters = [multiprocessing.Process(target=chatter) for _ in range(2)]
    for process in chatters:
        process.start()
    try:
        with watched(testbed, tmp_path, "tracepoint", rate=5000, steered=True) as run:
            with run.connect() as client:
                run.begin(client)
            time.sleep(5)
            report, records, _ = run.finish()
    finally:
        for process in chatters:
            process.kill()
            process.join()
    assert report["recursion_misses"] > 0
    assert report["arrived"] == report["received"] == report["records"] == records.size
    assert report["lost"] == 0


def test_a_word_that_is_no_command_is_answered_and_changes_nothing(
    testbed: Testbed, tmp_path: Path
) -> None:
    with watched(testbed, tmp_path, "auto", rate=200) as run:
        with run.connect() as client:
            assert ask(client, "of").startswith('error: expected off or on, found "of"')
            assert ask(client, "").startswith("error: ")
            assert ask(client, "\0off").startswith("error: ")
            assert ask(client, "on") == "ok"
            client.sendall(b"x" * 1000)
            assert client.makefile().readline().startswith("error: the line is too long")
        with run.connect() as client:
            client.sendall(b"of")
        with run.connect() as client:
            # one that is gone before its answer
            client.sendall(b"off\non\n" * 5)
        with run.connect() as client:
            client.sendall(b"off\non\noff\n")
            answers = client.makefile()
            assert [answers.readline() for _ in range(3)] == ["ok\n"] * 3
            client.sendall(b"o")
            time.sleep(0.05)
            client.sendall(b"n\n")
            assert answers.readline() == "ok\n"
        # it is on; forty messages come
        time.sleep(0.2)
        report, records, _ = run.finish()
    assert report["lost"] == 0
    assert report["records"] == records.size > 0


def test_many_clients_are_served_one_by_one(testbed: Testbed, tmp_path: Path) -> None:
    with watched(testbed, tmp_path, "auto", rate=200) as run, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(run.connect()) for _ in range(8)]
        for client in clients:
            assert ask(client, "off") == "ok"
        waiting = stack.enter_context(run.connect())
        waiting.sendall(b"on\n")
        clients[0].close()
        assert waiting.makefile().readline() == "ok\n"
        assert ask(clients[1], "off") == "ok"
        report, _, _ = run.finish()
    # off when it was off already is no switch; the time off goes to the end
    assert report["switches_off"] == 2
    assert report["off_ns"] > MOMENT_S * 1e9
    assert report["lost"] == report["refused_unseen"] == 0


def test_afresh_while_off_counts_from_there(testbed: Testbed, tmp_path: Path) -> None:
    with watched(testbed, tmp_path, "auto", rate=200) as run, run.connect() as client:
        assert ask(client, "off") == "ok"
        time.sleep(MOMENT_S)
        run.probe.send_signal(signal.SIGUSR1)
        wait_for(lambda: "fresh" in (run.folder / "ready").read_text(), 5)
        assert ask(client, "on") == "ok"
        time.sleep(MOMENT_S)
        report, records, _ = run.finish()
    assert report["switches_off"] == 0
    assert 0 < report["off_ns"] < MOMENT_S * 1e9
    assert report["lost"] == report["refused_unseen"] == 0
    assert report["arrived"] == report["received"] == records.size > 0


def test_the_socket_goes_with_the_probe_and_a_dead_ones_is_replaced(
    testbed: Testbed, tmp_path: Path
) -> None:
    with watched(testbed, tmp_path, "auto", rate=50) as run:
        with run.connect() as client:
            assert run.control.stat().st_mode & 0o777 == 0o600
            run.probe.kill()
            run.probe.wait(10)
            assert is_gone(client)
        assert run.control.is_socket()
    (tmp_path / "ready").unlink()
    (tmp_path / "seen.json").unlink(missing_ok=True)
    with watched(testbed, tmp_path, "auto", rate=50) as run, run.connect() as client:
        assert ask(client, "off") == "ok"
        run.finish()
        assert is_gone(client)
        assert not run.control.exists()


def test_a_socket_in_use_is_an_error_that_says_so(testbed: Testbed, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "control"))
        other.listen()
        with (
            pytest.raises(pytest.skip.Exception, match="Address already in use"),
            watched(testbed, tmp_path, "auto", rate=50),
        ):
            pass
    assert (tmp_path / "control").is_socket()
