"""`sipload` over TCP, built with AddressSanitizer, through a way that cuts, chops and stops its streams."""

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sipsched.paths import PROJECT_ROOT

SOURCE = PROJECT_ROOT / "hardware" / "generator"
SANITIZED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
LOOPBACK = "127.0.0.1"
CALLS = 200
RATE = 400
SENT_BY_UAC, SENT_BY_UAS = ("INVITE", "ACK", "BYE"), ("180", "200_INVITE", "200_BYE")

Chop = Callable[[bytes], list[bytes]]


@pytest.fixture(scope="module")
def sipload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("generator")
    for path in [*SOURCE.glob("*.[ch]"), SOURCE / "Makefile"]:
        shutil.copy(path, folder)
    argv = ["make", "--silent", "-C", str(folder), "sipload"]
    subprocess.run(argv, check=True, env={**os.environ, "CFLAGS": SANITIZED})
    return folder / "sipload"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


class Way:
    """Between UAC and UAS, in the place of the proxy: passes on what it reads, as `chop` says.

    After `cut_after` bytes of the UAC's it ends both connections of the way; after `stop_after` it reads no more.
    """

    def __init__(
        self,
        uas_port: int,
        chop: Chop = lambda data: [data],
        cut_after: int | None = None,
        stop_after: int | None = None,
    ) -> None:
        self.uas_port, self.chop = uas_port, chop
        self.cut_after, self.stop_after = cut_after, stop_after
        self.cuts = 0
        self.over = threading.Event()
        self.listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                uac, _ = self.listener.accept()
                uas = socket.create_connection((LOOPBACK, self.uas_port))
                for sock in (uac, uas):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pair in ((uac, uas, True), (uas, uac, False)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, from_uac: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(4096):
                if from_uac and self.stop_after is not None and passed > self.stop_after:
                    self.over.wait()
                    break
                cut_here = self.cut_after is not None and from_uac and not self.cuts
                if cut_here and passed + len(data) > (self.cut_after or 0):
                    self.cuts += 1
                    sink.sendall(data[: (self.cut_after or 0) - passed])
                    break
                passed += len(data)
                for piece in self.chop(data):
                    sink.sendall(piece)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.over.set()
        self.listener.close()


@contextmanager
def server(sipload: Path, folder: Path) -> Iterator[tuple[int, Path]]:
    """Run `sipload uas`; its report is there when the block has ended."""
    port, report, ready = free_port(), folder / "uas.json", folder / "ready"
    argv = [sipload, "uas", "--transport", "tcp", "--local", f"{LOOPBACK}:{port}"]
    process = subprocess.Popen([*argv, "--report", report, "--ready", ready, "--ring-ms", "5"])
    try:
        for _ in range(500):
            if ready.exists():
                break
            assert process.poll() is None
            threading.Event().wait(0.01)
        yield port, report
    finally:
        process.terminate()
        assert process.wait(10) == 0


def call(sipload: Path, folder: Path, port: int, connections: str, **more: str) -> dict[str, Any]:
    """Make the calls; gives the client's report."""
    schedule, report = folder / "s", folder / "uac.json"
    argv = [sipload, "schedule", "--output", schedule, "--rate", str(RATE), "--calls", str(CALLS)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    options = {"hold-ms": "5", "drain-s": "1", "tcp-connections": connections} | {
        name.replace("_", "-"): value for name, value in more.items()
    }
    argv = [
        *(sipload, "uac", "--transport", "tcp", "--local", f"{LOOPBACK}:{free_port()}"),
        *("--remote", f"{LOOPBACK}:{port}", "--schedule", schedule, "--report", report),
        *("--calls-file", folder / "calls"),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    subprocess.run(argv, check=True, timeout=30)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def sums(report: dict[str, Any], kinds: tuple[str, ...], *columns: str) -> int:
    of_none = dict.fromkeys(columns, 0)
    return sum(report["messages"].get(kind, of_none)[name] for kind in kinds for name in columns)


@pytest.mark.parametrize("connections", ["1", "3", "per-call"])
@pytest.mark.parametrize(
    "chop",
    [
        lambda data: [data],
        lambda data: [data[at : at + 113] for at in range(0, len(data), 113)],
        lambda data: [data[:1], data[1:-1], data[-1:]],
    ],
    ids=["whole", "pieces", "edges"],
)
def test_all_calls_complete_however_the_streams_are_cut(
    sipload: Path, tmp_path: Path, connections: str, chop: Chop
) -> None:
    with server(sipload, tmp_path) as (port, uas_report):
        way = Way(port, chop)
        uac = call(sipload, tmp_path, way.port, connections)
        way.close()
    uas = json.loads(uas_report.read_text())
    assert uac["calls"]["completed"] == CALLS
    assert uac["connections"]["opened"] == (
        CALLS if connections == "per-call" else int(connections)
    )
    assert [uac["connections"][key] for key in ("again", "lost", "cut", "blocked")] == [0] * 4
    assert sums(uac, SENT_BY_UAC, "sent") == sums(uas, SENT_BY_UAC, "received") == 3 * CALLS
    assert sums(uas, SENT_BY_UAS, "sent") == sums(uac, SENT_BY_UAS, "received") == 3 * CALLS
    assert uac["unparsable"] == uas["unparsable"] == 0


def test_a_connection_cut_within_a_message_loses_its_calls_and_no_others(
    sipload: Path, tmp_path: Path
) -> None:
    with server(sipload, tmp_path) as (port, uas_report):
        # in the first line of a message far from the first
        way = Way(port, cut_after=20_003)
        uac = call(sipload, tmp_path, way.port, "2")
        way.close()
    uas = json.loads(uas_report.read_text())
    assert way.cuts == 1
    assert uac["connections"] | {"blocked_ns": 0} == {
        **{"opened": 3, "again": 1, "lost": 1, "cut": 0, "blocked": 0, "blocked_ns": 0},
    }
    assert uas["connections"]["cut"] == 1
    lost = uac["calls"]["no_connection"]
    assert 0 < lost < CALLS / 4
    assert uac["calls"]["completed"] == CALLS - lost
    assert uac["unparsable"] == uas["unparsable"] == 0


def test_a_server_that_is_gone_fails_every_call_at_once(sipload: Path, tmp_path: Path) -> None:
    for connections in ("2", "per-call"):
        uac = call(sipload, tmp_path, free_port(), connections)
        assert uac["calls"]["no_connection"] == CALLS
        assert uac["ended_by"] == "calls"
        assert sums(uac, SENT_BY_UAC, "sent") == 0
        assert sums(uac, SENT_BY_UAC, "not_sent") == CALLS


def test_a_full_send_buffer_is_told_and_what_it_held_was_not_sent(
    sipload: Path, tmp_path: Path
) -> None:
    with server(sipload, tmp_path) as (port, uas_report):
        way = Way(port, stop_after=8192)
        way.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        uac = call(sipload, tmp_path, way.port, "1", buffer_bytes="4096")
        way.close()
    uas = json.loads(uas_report.read_text())
    told = uac["connections"]
    assert told["blocked"] >= 1
    # the schedule lasts half a second, the time to drain one
    assert 0.5e9 < told["blocked_ns"] < 2e9
    assert uac["calls"]["unfinished_at_end"] > 0
    assert uac["ended_by"] == "drain"
    waited = sums(uac, SENT_BY_UAC, "not_sent")
    assert waited > 0
    assert sums(uac, SENT_BY_UAC, "sent", "not_sent") >= CALLS
    # the rest is in the kernel's buffers
    assert sums(uas, SENT_BY_UAC, "received") < sums(uac, SENT_BY_UAC, "sent")


def test_late_calls_are_those_answered_after_the_time(sipload: Path, tmp_path: Path) -> None:
    with server(sipload, tmp_path) as (port, _):
        none = call(sipload, tmp_path, port, "1", late_ms="500")
        every = call(sipload, tmp_path, port, "1", late_ms="4.9")
    assert none["calls"]["completed"] == every["calls"]["completed"] == CALLS
    assert (none["calls"]["late"], every["calls"]["late"]) == (0, CALLS)
