"""Tests of `sipdispatch`, built with AddressSanitizer: it passes all messages of a call to the same server."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from agents import CALLS, LOOPBACK, SENT_BY_UAC, build, call, free_port, running, server, sums

INSTANCES = 3
BYE = b"BYE sip:b SIP/2.0\r\nCall-ID: a\r\nContent-Length: 0\r\n\r\n"
LARGE = BYE.replace(b"Length: 0", b"Length: 60000") + b"x" * 60_000
UNKNOWN = (
    b"BYE sip:b SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n"
    b"To: <sip:b@h>;tag=2\r\nCall-ID: %d\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
)


@pytest.fixture(scope="module")
def sipload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("generator", "sipload", tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="module")
def sipdispatch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("dispatcher", "sipdispatch", tmp_path_factory.mktemp("dispatcher"))


@contextmanager
def dispatching(
    program: Path, folder: Path, ports: list[int], files: int = 1024
) -> Iterator[tuple[int, Path]]:
    """Run sipdispatch in front of servers. Yield the port and the path of the report, which exists after the block."""
    port, report, ready = free_port(), folder / "dispatch.json", folder / "dispatch.ready"
    instances = [word for one in ports for word in ("--instance", f"{LOOPBACK}:{one}")]
    argv = [str(program), "--listen", f"{LOOPBACK}:{port}", "--report", str(report)]
    limited = ["prlimit", f"--nofile={files}", *argv, "--ready", str(ready), *instances]
    with running(limited, ready):
        yield port, report


@contextmanager
def one_instance(
    program: Path, folder: Path, files: int = 1024
) -> Iterator[tuple[socket.socket, int, Path]]:
    """Run sipdispatch in front of one listening socket. Yield the socket, the port, and the path of the report."""
    with socket.create_server((LOOPBACK, 0)) as instance:
        instance.settimeout(5)
        ports = [instance.getsockname()[1]]
        with dispatching(program, folder, ports, files) as (port, report):
            yield instance, port, report


def connect(port: int, timeout_s: float = 5) -> socket.socket:
    client = socket.create_connection((LOOPBACK, port))
    client.settimeout(timeout_s)
    return client


def accept(instance: socket.socket) -> socket.socket:
    accepted, _ = instance.accept()
    accepted.settimeout(5)
    return accepted


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.parametrize("connections", ["1", "per-call"])
def test_each_call_is_whole_at_one_instance(
    sipload: Path, sipdispatch: Path, tmp_path: Path, connections: str
) -> None:
    with ExitStack() as stack:
        folders = [tmp_path / str(number) for number in range(INSTANCES)]
        for folder in folders:
            folder.mkdir()
        servers = [stack.enter_context(server(sipload, folder)) for folder in folders]
        ports = [port for port, _ in servers]
        port, report = stack.enter_context(dispatching(sipdispatch, tmp_path, ports))
        uac = call(sipload, tmp_path, port, connections)
    told = read(report)
    assert uac["calls"]["completed"] == CALLS
    assert sum(told["to_instances"]) == told["to_clients"] == 3 * CALLS
    assert (told["lost"], told["broken"], told["without_call_id"]) == (0, 0, 0)
    assert told["clients"] == (CALLS if connections == "per-call" else 1)
    of_each = [read(path) for _, path in servers]
    # no server received the ACK or BYE of another server's call, which would count as unexpected
    for uas, handed in zip(of_each, told["to_instances"], strict=True):
        assert sums(uas, SENT_BY_UAC, "unexpected") == 0
        assert 3 * uas["calls"]["begun"] == 3 * uas["calls"]["ended"] == handed
        # each server gets 67 calls on average, with a standard deviation of 6.7
        assert 35 < uas["calls"]["begun"] < 100


def test_an_unreachable_instance_loses_only_its_own_calls(
    sipload: Path, sipdispatch: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        port_there, _ = stack.enter_context(server(sipload, tmp_path))
        ports = [port_there, free_port()]
        port, report = stack.enter_context(dispatching(sipdispatch, tmp_path, ports))
        uac = call(sipload, tmp_path, port, "1")
    told = read(report)
    gone = told["to_instances"][1]
    assert told["lost"] == gone == CALLS - uac["calls"]["completed"]
    assert 60 < gone < 140


def test_an_instance_that_ends_loses_only_its_own_calls(
    sipload: Path, sipdispatch: Path, tmp_path: Path
) -> None:
    calls = b"".join(UNKNOWN % number for number in range(100))

    def answered(client: socket.socket) -> int:
        got = b""
        with suppress(TimeoutError):
            while True:
                got += client.recv(65536)
        # count the answers: the server answers each request with 481, because the server knows none of the calls
        return got.count(b"481 ")

    with ExitStack() as stack:
        port_there, _ = stack.enter_context(server(sipload, tmp_path))
        dying = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        ports = [port_there, dying.getsockname()[1]]
        port, report = stack.enter_context(dispatching(sipdispatch, tmp_path, ports))
        client = stack.enter_context(connect(port, 1))
        client.sendall(calls)
        accepted, _ = dying.accept()
        # the instance ends in the middle of an answer
        accepted.sendall(BYE[:30])
        accepted.close()
        dying.close()
        first = answered(client)
        client.sendall(calls)
        second = answered(client)
    told = read(report)
    assert told["to_instances"] == [2 * first, 200 - 2 * first]
    assert first == second
    assert 30 < first < 70
    # the instance that ended loses all messages of the second round, and the unsent messages of the first round
    assert 100 - first <= told["lost"] <= 200 - 2 * first
    assert told["broken"] == 0


def test_a_failed_start_has_an_error_message(sipdispatch: Path, tmp_path: Path) -> None:
    report = ("--report", str(tmp_path / "r"))
    with socket.create_server((LOOPBACK, 0)) as taken:
        at = f"{LOOPBACK}:{taken.getsockname()[1]}"
        argv = [str(sipdispatch), "--listen", at, "--instance", at, *report]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stderr) == (
        1,
        "sipdispatch: cannot listen: Address already in use\n",
    )
    many = [word for port in range(1, 252) for word in ("--instance", f"{LOOPBACK}:{port}")]
    done = subprocess.run(
        [str(sipdispatch), "--listen", at, *many, *report],
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert done.returncode == 2
    assert "at most 250 instances" in done.stderr


def test_clients_beyond_the_limit_of_files_are_refused_and_counted(
    sipdispatch: Path, tmp_path: Path
) -> None:
    with (
        one_instance(sipdispatch, tmp_path, files=16) as (instance, port, report),
        ExitStack() as clients,
    ):
        first = clients.enter_context(connect(port))
        first.sendall(BYE)
        accepted = clients.enter_context(accept(instance))
        got = accepted.recv(65536)
        for _ in range(29):
            clients.enter_context(connect(port))
        # existing connections must still work
        first.sendall(BYE)
        while got.count(b"BYE") < 2:
            got += accepted.recv(65536)
    told = read(report)
    assert told["clients"] == 30
    assert 15 < told["refused"] < 30


@pytest.mark.parametrize(
    ("stream", "passed", "without", "broken"),
    [
        (BYE * 3, 3, 0, 0),
        (b"\r\n\r\n" + BYE, 1, 0, 0),
        (BYE.replace(b"Call-ID: a\r\n", b""), 1, 1, 0),
        # without Content-Length, the end of the message is unknown
        (BYE + BYE.replace(b"Content-Length: 0\r\n", b""), 1, 0, 1),
        (BYE.replace(b"Length: 0", b"Length: 70000"), 0, 0, 1),
        (BYE.replace(b"Length: 0", b"Length: 18446744073709551617"), 0, 0, 1),
        # a message with two lengths is malformed, even if the lengths are equal (RFC 3261, 7.3.1)
        (BYE + BYE.replace(b"Length: 0", b"Length: 0\r\nl: 5"), 1, 0, 1),
        (BYE.replace(b"Length: 0", b"Length: 0\r\nContent-Length: 0"), 0, 0, 1),
        (b"X" * 70_000, 0, 0, 1),
        # the stream ends within a message
        (BYE + BYE[:30], 1, 0, 0),
    ],
)
def test_a_malformed_stream_closes_only_its_own_connection(
    sipdispatch: Path, tmp_path: Path, stream: bytes, passed: int, without: int, broken: int
) -> None:
    with one_instance(sipdispatch, tmp_path) as (instance, port, report):
        with connect(port) as client:
            client.sendall(stream)
            if broken:
                # the connection is closed, or reset if unread data remains
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
            elif passed:
                with accept(instance) as accepted:
                    got = b""
                    while got.count(b"BYE") < passed:
                        got += accepted.recv(65536)
                    assert got.count(b"BYE") == passed
        with connect(port) as other:
            other.sendall(BYE)
            accept(instance).close()
    told = read(report)
    assert (told["without_call_id"], told["broken"]) == (without, broken)
    assert sum(told["to_instances"]) == passed + 1


def test_a_client_that_closes_its_sending_side_still_gets_its_answers(
    sipload: Path, sipdispatch: Path, tmp_path: Path
) -> None:
    with (
        server(sipload, tmp_path) as (uas, _),
        dispatching(sipdispatch, tmp_path, [uas]) as (port, report),
        connect(port) as client,
    ):
        client.sendall(b"".join(UNKNOWN % number for number in range(100)))
        client.shutdown(socket.SHUT_WR)
        got = b""
        # sipdispatch closes the connection after it has sent all answers
        while more := client.recv(65536):
            got += more
    assert got.count(b"SIP/2.0 481 ") == 100
    told = read(report)
    assert (told["to_clients"], told["lost"], told["unsent"]) == (100, 0, 0)


def test_a_client_that_sent_only_ack_is_closed_at_once(sipdispatch: Path, tmp_path: Path) -> None:
    ack = BYE.replace(b"BYE", b"ACK", 1)
    with (
        one_instance(sipdispatch, tmp_path) as (instance, port, _),
        connect(port) as client,
    ):
        client.sendall(ack)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        with accept(instance) as accepted:
            assert accepted.recv(65536) == ack


def test_connections_that_begin_with_an_answer_are_counted(
    sipdispatch: Path, tmp_path: Path
) -> None:
    answer = BYE.replace(b"BYE sip:b SIP/2.0", b"SIP/2.0 200 OK")
    with (
        one_instance(sipdispatch, tmp_path) as (instance, port, report),
        ExitStack() as stack,
    ):
        for stream in (answer + BYE, BYE + answer, b""):
            stack.enter_context(connect(port)).sendall(stream)
            if stream:
                assert stack.enter_context(accept(instance)).recv(4) == stream[:4]
    told = read(report)
    assert (told["clients"], told["answering"]) == (3, 1)


def test_messages_that_are_queued_at_the_end_are_counted(sipdispatch: Path, tmp_path: Path) -> None:
    message = LARGE
    with (
        socket.create_server((LOOPBACK, 0)) as instance,
        socket.socket() as client,
    ):
        ports = [instance.getsockname()[1]]
        with dispatching(sipdispatch, tmp_path, ports) as (port, report):
            client.connect((LOOPBACK, port))
            client.settimeout(1.0)
            with pytest.raises(TimeoutError):
                for _ in range(1000):
                    client.sendall(message)
        got = 0
        # the connection is closed, or reset if unread data remains
        with accept(instance) as accepted, suppress(ConnectionResetError):
            while more := len(accepted.recv(1 << 20)):
                got += more
    told = read(report)
    # sipdispatch queues more than a mebibyte before sipdispatch stops reading
    assert told["unsent"] > (1 << 20) // len(message)
    handed = sum(told["to_instances"]) - told["unsent"]
    assert got // len(message) == handed


def test_an_instance_that_does_not_read_stops_its_client(sipdispatch: Path, tmp_path: Path) -> None:
    message = LARGE
    with (
        one_instance(sipdispatch, tmp_path) as (instance, port, report),
        connect(port, 1) as client,
    ):
        sent = 0
        # send some megabytes, until the buffers of the kernel and of sipdispatch are full
        with pytest.raises(TimeoutError):
            while sent < 1000:
                client.sendall(message)
                sent += 1
        with accept(instance) as accepted:
            got = 0
            while got < sent * len(message):
                got += len(accepted.recv(1 << 20))
    told = read(report)
    assert told["stalls"] >= 1
    assert told["lost"] == 0
    assert sum(told["to_instances"]) >= sent
