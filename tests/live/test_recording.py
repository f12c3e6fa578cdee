"""Test that the probe switches its recording off and on correctly while known messages arrive."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import relay
from helpers import wait_for
from probed import Probed, ask, probed

from sipsched.records.trace import Event, Flag
from sipsched.testbed.inventory import Testbed

MOMENT_S = 0.15
STEER = """\
set -e
mount -t sysfs none /sys
printf '%x' $(((1 << $(nproc)) - 1)) > /sys/class/net/lo/queues/rx-0/rps_cpus
exec "$@"
"""


def is_gone(client: socket.socket) -> bool:
    """Return whether the other end has closed the connection."""
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
) -> Iterator[Probed]:
    """Run a relay with known messages, and the probe. If `steered`, receive softirqs run on all CPUs."""
    traffic = ("4", str(rate), str(burst), str(receive_buffer), str(folder / "seen.json"))
    steer = ["sh", "-c", STEER, "sh"] if steered else []
    argv = ["--mount", *steer, sys.executable, relay.__file__, *traffic]
    options = ("--mode", mode, "--port", str(relay.PORT), "--comm", relay.NAME)
    with probed(testbed, folder, argv, *options) as run:
        if run.probe.poll() is not None:
            pytest.skip(f"this kernel has no mode {mode}: {run.log}")
        yield run


MODES = pytest.mark.parametrize("mode", ["exact", "tracepoint"])


@MODES
def test_only_messages_while_recording_is_on_are_recorded(
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
    # A switch must be much shorter than the washout of a window.
    assert 0 < report["slowest_off_ns"] < 100e6
    assert 0 < report["slowest_on_ns"] < 100e6

    sent = np.array(seen["sent"])
    number = records["cseq"].astype(int) - 1
    assert np.unique(number).size == number.size == report["records"]
    # The timestamps of each record belong to the message that the record names.
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
def test_drops_of_a_full_queue_are_counted_exactly(
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
def test_arrivals_of_thousands_of_queued_messages_are_known(
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


def attached(pid: int) -> int:
    """Return the number of hooks in the kernel to which a process has attached BPF programs."""
    infos = Path(f"/proc/{pid}/fdinfo").iterdir()
    return sum("link_type:" in info.read_text() for info in infos)


def test_no_hook_costs_time_while_recording_is_off(testbed: Testbed, tmp_path: Path) -> None:
    with (
        watched(testbed, tmp_path, "tracepoint", rate=50) as run,
        run.connect() as client,
    ):
        while_on = attached(run.probe.pid)
        assert while_on > 0
        assert ask(client, "off") == "ok"
        assert attached(run.probe.pid) == 0
        assert ask(client, "on") == "ok"
        assert attached(run.probe.pid) == while_on


def chatter() -> None:
    """Write to a unix socket forever. Waking its reader uses the same kernel function as UDP sockets."""
    one, other = socket.socketpair()
    while True:
        one.send(b"x")
        other.recv(1)


def test_hook_that_is_busy_with_another_socket_loses_no_record(
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
    # The chatters use the CPUs, so the relay's queue may be full. A refused message is recorded too.
    assert report["arrived"] == report["received"] + report["refused"]
    assert report["received"] == report["records"]
    assert records.size == report["records"] + report["drops"]
    assert report["lost"] == 0


def test_unknown_command_is_an_error_and_changes_nothing(testbed: Testbed, tmp_path: Path) -> None:
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
            # Close a client's connection before the probe answers. The probe must still answer the next client.
            client.sendall(b"off\non\n" * 5)
        with run.connect() as client:
            client.sendall(b"off\non\noff\n")
            answers = client.makefile()
            assert [answers.readline() for _ in range(3)] == ["ok\n"] * 3
            client.sendall(b"o")
            time.sleep(0.05)
            client.sendall(b"n\n")
            assert answers.readline() == "ok\n"
        # Recording is on again, and forty messages arrive.
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
    # The second `off` is not counted as a switch. Recording stays off until the end.
    assert report["switches_off"] == 2
    assert report["off_ns"] > MOMENT_S * 1e9
    assert report["lost"] == report["refused_unseen"] == 0


def test_reset_while_recording_is_off(testbed: Testbed, tmp_path: Path) -> None:
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


def test_control_socket_of_a_dead_probe_is_replaced(testbed: Testbed, tmp_path: Path) -> None:
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


def test_control_socket_in_use_is_an_error(testbed: Testbed, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "control"))
        other.listen()
        with (
            pytest.raises(pytest.skip.Exception, match="Address already in use"),
            watched(testbed, tmp_path, "auto", rate=50),
        ):
            pass
    assert (tmp_path / "control").is_socket()
