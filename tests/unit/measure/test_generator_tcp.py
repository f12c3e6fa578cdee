"""Tests of `sipload` over TCP with AddressSanitizer, through a relay that cuts, divides and stops TCP streams."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from agents import CALLS, LOOPBACK, SENT_BY_UAC, SENT_BY_UAS, build, call, free_port, server, sums

Chop = Callable[[bytes], list[bytes]]


@pytest.fixture(scope="module")
def sipload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("generator", "sipload", tmp_path_factory.mktemp("generator"))


class Way:
    """A relay that replaces the proxy between UAC and UAS, and forwards data in the pieces that `chop` returns.

    After `cut_after` bytes from the UAC, the relay closes both connections. After `stop_after` bytes, the relay stops
    reading.
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
def test_all_calls_complete_for_any_division_of_the_streams(
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


def test_a_connection_that_is_cut_loses_only_its_own_calls(sipload: Path, tmp_path: Path) -> None:
    with server(sipload, tmp_path) as (port, uas_report):
        # the relay cuts the stream within the first line of a message, far after the first message
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


def test_every_call_fails_at_once_without_a_server(sipload: Path, tmp_path: Path) -> None:
    for connections in ("2", "per-call"):
        uac = call(sipload, tmp_path, free_port(), connections)
        assert uac["calls"]["no_connection"] == CALLS
        assert uac["ended_by"] == "calls"
        assert sums(uac, SENT_BY_UAC, "sent") == 0
        assert sums(uac, SENT_BY_UAC, "not_sent") == CALLS


def test_messages_in_a_full_send_buffer_count_as_not_sent(sipload: Path, tmp_path: Path) -> None:
    with server(sipload, tmp_path) as (port, uas_report):
        way = Way(port, stop_after=8192)
        way.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        uac = call(sipload, tmp_path, way.port, "1", buffer_bytes="4096")
        way.close()
    uas = json.loads(uas_report.read_text())
    told = uac["connections"]
    assert told["blocked"] >= 1
    # sending is blocked until the end: the schedule lasts half a second, and the drain time lasts one second
    assert 0.5e9 < told["blocked_ns"] < 2e9
    assert uac["calls"]["unfinished_at_end"] > 0
    assert uac["ended_by"] == "drain"
    waited = sums(uac, SENT_BY_UAC, "not_sent")
    assert waited > 0
    assert sums(uac, SENT_BY_UAC, "sent", "not_sent") >= CALLS
    # the UAS has not received the messages that are still in the kernel's buffers
    assert sums(uas, SENT_BY_UAC, "received") < sums(uac, SENT_BY_UAC, "sent")


def test_calls_answered_after_the_limit_are_late(sipload: Path, tmp_path: Path) -> None:
    with server(sipload, tmp_path) as (port, _):
        none = call(sipload, tmp_path, port, "1", late_ms="500")
        every = call(sipload, tmp_path, port, "1", late_ms="4.9")
    assert none["calls"]["completed"] == every["calls"]["completed"] == CALLS
    assert (none["calls"]["late"], every["calls"]["late"]) == (0, CALLS)
