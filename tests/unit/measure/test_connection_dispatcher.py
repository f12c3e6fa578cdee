"""`sipdispatch`, built with AddressSanitizer: calls of few connections, each whole at one of several servers."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from agents import CALLS, LOOPBACK, SENT_BY_UAC, build, call, free_port, server, sums
from helpers import wait_for

INSTANCES = 3
BYE = b"BYE sip:b SIP/2.0\r\nCall-ID: a\r\nContent-Length: 0\r\n\r\n"
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
    """Run it before some servers, with so many files; its report is there when the block has ended."""
    port, report, ready = free_port(), folder / "dispatch.json", folder / "dispatch.ready"
    instances = [word for one in ports for word in ("--instance", f"{LOOPBACK}:{one}")]
    argv = [str(program), "--listen", f"{LOOPBACK}:{port}", "--report", str(report)]
    limited = ["prlimit", f"--nofile={files}", *argv, "--ready", str(ready), *instances]
    process = subprocess.Popen(limited)
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, 10)
        yield port, report
    finally:
        process.terminate()
        assert process.wait(10) == 0


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


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
    # a server that got another's ACK or BYE would call it unexpected
    for uas, handed in zip(of_each, told["to_instances"], strict=True):
        assert sums(uas, SENT_BY_UAC, "unexpected") == 0
        assert 3 * uas["calls"]["begun"] == 3 * uas["calls"]["ended"] == handed
        # 67 on average, with a standard deviation of 6.7
        assert 35 < uas["calls"]["begun"] < 100


def test_an_instance_that_is_not_there_loses_its_calls_and_no_others(
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


def test_an_instance_that_dies_loses_its_calls_and_no_others(
    sipload: Path, sipdispatch: Path, tmp_path: Path
) -> None:
    calls = b"".join(UNKNOWN % number for number in range(100))

    def answered(client: socket.socket) -> int:
        got = b""
        with suppress(TimeoutError):
            while True:
                got += client.recv(65536)
        # the server knows none of them
        return got.count(b"481 ")

    with ExitStack() as stack:
        port_there, _ = stack.enter_context(server(sipload, tmp_path))
        dying = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        ports = [port_there, dying.getsockname()[1]]
        port, report = stack.enter_context(dispatching(sipdispatch, tmp_path, ports))
        client = stack.enter_context(socket.create_connection((LOOPBACK, port)))
        client.settimeout(1)
        client.sendall(calls)
        accepted, _ = dying.accept()
        # it goes in the middle of an answer
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
    # what the dead one had not yet been sent, and all of the second time
    assert 100 - first <= told["lost"] <= 200 - 2 * first
    assert told["broken"] == 0


def test_what_cannot_be_started_is_one_clear_error(sipdispatch: Path, tmp_path: Path) -> None:
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


def test_clients_that_there_is_no_descriptor_for_are_closed_and_counted(
    sipdispatch: Path, tmp_path: Path
) -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as instance,
        dispatching(sipdispatch, tmp_path, [instance.getsockname()[1]], files=16) as (port, report),
        ExitStack() as clients,
    ):
        instance.settimeout(5)
        first = clients.enter_context(socket.create_connection((LOOPBACK, port)))
        first.sendall(BYE)
        accepted = clients.enter_context(instance.accept()[0])
        accepted.settimeout(5)
        got = accepted.recv(65536)
        for _ in range(29):
            clients.enter_context(socket.create_connection((LOOPBACK, port)))
        # it goes on with those that it has
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
        # no length: nobody can say where it ends
        (BYE + BYE.replace(b"Content-Length: 0\r\n", b""), 1, 0, 1),
        (BYE.replace(b"Length: 0", b"Length: 70000"), 0, 0, 1),
        (BYE.replace(b"Length: 0", b"Length: 18446744073709551617"), 0, 0, 1),
        (b"X" * 70_000, 0, 0, 1),
        # cut within a message
        (BYE + BYE[:30], 1, 0, 0),
    ],
)
def test_a_hostile_stream_costs_its_own_connection(
    sipdispatch: Path, tmp_path: Path, stream: bytes, passed: int, without: int, broken: int
) -> None:
    with socket.create_server((LOOPBACK, 0)) as instance:
        ports = [instance.getsockname()[1]]
        with dispatching(sipdispatch, tmp_path, ports) as (port, report):
            with socket.create_connection((LOOPBACK, port)) as client:
                client.sendall(stream)
                if broken:
                    client.settimeout(5)
                    # closed, or reset if something is left unread
                    with suppress(ConnectionResetError):
                        assert client.recv(1) == b""
                elif passed:
                    accepted, _ = instance.accept()
                    accepted.settimeout(5)
                    with accepted:
                        got = b""
                        while got.count(b"BYE") < passed:
                            got += accepted.recv(65536)
                        assert got.count(b"BYE") == passed
            with socket.create_connection((LOOPBACK, port)) as other:
                other.sendall(BYE)
                accepted, _ = instance.accept()
                accepted.close()
    told = read(report)
    assert (told["without_call_id"], told["broken"]) == (without, broken)
    assert sum(told["to_instances"]) == passed + 1


def test_an_instance_that_does_not_read_stops_its_client_and_that_is_told(
    sipdispatch: Path, tmp_path: Path
) -> None:
    body = b"x" * 60_000
    message = BYE.replace(b"Length: 0", b"Length: 60000") + body
    with (
        socket.create_server((LOOPBACK, 0)) as instance,
        dispatching(sipdispatch, tmp_path, [instance.getsockname()[1]]) as (port, report),
        socket.create_connection((LOOPBACK, port)) as client,
    ):
        sent = 0
        client.settimeout(1.0)
        # the kernels' buffers and the dispatcher's own take some megabytes
        with pytest.raises(TimeoutError):
            while sent < 1000:
                client.sendall(message)
                sent += 1
        accepted, _ = instance.accept()
        with accepted:
            accepted.settimeout(5)
            got = 0
            while got < sent * len(message):
                got += len(accepted.recv(1 << 20))
    told = read(report)
    assert told["stalls"] >= 1
    assert told["lost"] == 0
    assert sum(told["to_instances"]) >= sent
