"""Test sockets that share the proxy's port: all messages of a call must reach the same socket."""

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from helpers import Measure, findings, run_json, wait_for

from sipsched.plan.config import Config

PORT, SOCKETS = 25060, 3
RECEIVER = """
import collections, json, re, signal, socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
sock.bind(("127.0.0.1", int(sys.argv[1])))
calls = collections.Counter()
# At SIGTERM, read all queued messages, and then stop.
signal.signal(signal.SIGTERM, lambda *_: sock.setblocking(False))
print("bound", flush=True)
try:
    while True:
        found = re.search(rb"(?im)^(?:call-id|i)[ \\t]*:[ \\t]*(\\S+)", sock.recv(65536))
        calls[found[1].decode() if found else ""] += 1
except BlockingIOError:
    print(json.dumps(calls), flush=True)
"""
CALL_ID = ("Call-ID: %s", "i:%s", "CALL-ID :  %s  ", "call-id:\t%s", "I : %s")
WITHOUT = (
    b"",
    b"\r\n\r\n",
    b"\xff" * 60_000,
    b"A\r\nCall-ID",
    b"A\ni",
    b"A\r\n" + b"X: y\r\n" * 400,
)


@contextmanager
def receivers(dispatcher: Path, apart: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start programs that do not set SO_REUSEPORT, and that bind to ports `apart` numbers apart."""
    shared = {"SIPSHARD_PORT": str(PORT), "SIPSHARD_SOCKETS": str(SOCKETS)}
    environment = {**os.environ, **shared, "LD_PRELOAD": str(dispatcher / "libsipshard.so")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RECEIVER, str(PORT + apart * number)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(SOCKETS)
    ]
    try:
        for one in started:
            assert one.stdout
            assert one.stdout.readline() == "bound\n"
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


def command(dispatcher: Path, folder: Path, *owners: subprocess.Popen[str]) -> list[str]:
    return [
        *(str(dispatcher / "sipshard"), "--port", str(PORT), "--sockets", str(SOCKETS)),
        *("--report", str(folder / "report"), "--ready", str(folder / "ready")),
        *(str(one.pid) for one in owners),
    ]


@contextmanager
def attached(argv: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv)
    try:
        wait_for(lambda: (folder / "ready").exists() or process.poll() is not None, 5)
        assert process.poll() is None
        yield process
    finally:
        process.terminate()
        process.wait(5)


def got(receiver: subprocess.Popen[str]) -> dict[str, int]:
    """Return the number of messages that a receiver got, by Call-ID."""
    receiver.terminate()
    assert receiver.stdout
    calls: dict[str, int] = json.loads(receiver.stdout.readline())
    return calls


def send(*datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for datagram in datagrams:
            sock.sendto(datagram, ("127.0.0.1", PORT))


def sip(call: int, form: str, padding: int) -> bytes:
    head = "INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK-Call-ID: no\r\n"
    call_id = form % f"{call:08x}-5eed@10.0.0.1"
    return f"{head}X-Long: {'a' * padding}\r\n{call_id}\r\nCSeq: 1 INVITE\r\n\r\n".encode()


@pytest.mark.parametrize("apart", [1, 0], ids=["sockets", "partitioned"])
def test_each_call_reaches_one_socket_for_every_spelling_of_call_id(
    dispatcher: Path, tmp_path: Path, apart: int
) -> None:
    paddings = [17 * number % 1200 for number in range(400)]
    with (
        receivers(dispatcher, apart) as started,
        attached(command(dispatcher, tmp_path, *started), tmp_path),
    ):
        for message in range(5):
            for call, padding in enumerate(paddings):
                send(sip(call, CALL_ID[(call + message) % len(CALL_ID)], padding))
        send(*WITHOUT)
        taken = [got(one) for one in started]
    report = json.loads((tmp_path / "report").read_text())
    assert sorted(report["selected"]) == sorted(sum(calls.values()) for calls in taken)
    assert sum(report["selected"]) == 2000 + len(WITHOUT)
    assert (report["without_call_id"], report["gone"]) == (len(WITHOUT), 0)
    whole = [count for calls in taken for name, count in calls.items() if name]
    assert whole == [5] * 400
    # Each socket gets 133 calls on average, with a standard deviation of 9.4.
    assert all(95 < len(calls) < 172 for calls in taken)


def test_only_calls_of_a_closed_socket_are_lost(dispatcher: Path, tmp_path: Path) -> None:
    with (
        receivers(dispatcher, 0) as started,
        attached(command(dispatcher, tmp_path, *started), tmp_path),
    ):
        started[1].kill()
        started[1].wait()
        send(*(sip(call, CALL_ID[0], 0) for call in range(400)))
        taken = [got(started[at]) for at in (0, 2)]
    report = json.loads((tmp_path / "report").read_text())
    assert 95 < report["gone"] < 172
    assert sum(map(len, taken)) == 400 - report["gone"]


def test_missing_sockets_are_an_error_in_one_line(dispatcher: Path, tmp_path: Path) -> None:
    with receivers(dispatcher, 0) as started:
        argv = command(dispatcher, tmp_path, *started[:2])
        done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"sipshard: 2 sockets share UDP port {PORT}, expected 3\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "--port 0 --sockets 3 1",
        "--port 5060 --sockets x 1",
        "--port 5060 --sockets 3 y",
        "--port 5060 --sockets 3 --key to 1",
    ],
)
def test_wrong_usage_prints_the_usage(dispatcher: Path, arguments: str) -> None:
    argv = [dispatcher / "sipshard", "--report", "r", "--ready", "y", *arguments.split()]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("sipshard: usage: ")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        # A kernel without bpf_loop, or without programs of the type SK_REUSEPORT, returns EINVAL.
        ("bpf", "EINVAL", r"cannot load the program; it needs Linux 5\.17 .*: Invalid argument"),
        ("bpf", "EPERM", r"cannot load the program; .* CAP_BPF: Operation not permitted"),
        ("setsockopt", "ENOPROTOOPT", "cannot attach the program: Protocol not available"),
        ("pidfd_getfd", "EPERM", "cannot take the sockets of a process: Operation not permitted"),
        ("pidfd_open", "ENOSYS", "cannot take the sockets of a process: Function not implemented"),
    ],
)
def test_missing_feature_of_the_kernel_is_an_error_in_one_line(
    dispatcher: Path, tmp_path: Path, call: str, error: str, said: str
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace, which makes system calls fail")
    inject = [
        "strace",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error={error}",
    ]
    with receivers(dispatcher, 0) as started:
        argv = [*inject, *command(dispatcher, tmp_path, *started)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert re.fullmatch(f"sipshard: {said}\n", done.stderr)
    assert not (tmp_path / "ready").exists()


def test_killed_sipshard_leaves_nothing_in_the_kernel(dispatcher: Path, tmp_path: Path) -> None:
    def shown() -> bool:
        listed = subprocess.run(["bpftool", "prog", "show"], capture_output=True, text=True)
        return "name sipshard" in listed.stdout

    with (
        receivers(dispatcher, 1) as started,
        attached(command(dispatcher, tmp_path, *started), tmp_path) as process,
    ):
        process.kill()
        process.wait()
        # The program stays loaded as long as the sockets exist.
        assert shown()
    wait_for(lambda: not shown(), 5)


@pytest.mark.parametrize(
    ("deployment", "shard_by"),
    [("sockets", "call-id"), ("partitioned", "call-id"), ("partitioned", "user")],
)
def test_each_call_stays_at_one_worker(
    measure: Measure, campaign: Config, deployment: str, shard_by: Literal["call-id", "user"]
) -> None:
    name = f"kamailio-udp-{deployment}"
    suts = {name: dataclasses.replace(campaign.sut(name), shard_by=shard_by)}
    record = measure(sut=name, suts=suts, threads=4, cps=200, duration_s=2.5)
    run = run_json(record)
    assert run["generator"]["calls_completed"] == 500
    assert run["generator"]["retransmissions"] == 0
    assert run["probe"]["records"] == 3000
    assert findings(run)["calls_split"] == findings(run)["share_excess"] == 0
    assert len(run["proxy"]["shards"]["selected"]) == 4
    assert run["proxy"]["shards"]["gone"] == 0
    # The counts include the messages of the warm-up.
    assert sum(run["proxy"]["shards"]["selected"]) >= 3000
    client, server = (json.loads((record / f"{role}.json").read_text()) for role in ("uac", "uas"))
    took_us = (client["cpu_ns"] / 500 + server["cpu_ns"] / server["calls"]["begun"]) / 1000
    assert run["generator"]["cpu_us"] == pytest.approx(took_us)
