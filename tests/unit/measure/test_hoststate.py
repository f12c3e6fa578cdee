"""Tests of reading a host's state from the output of shell commands."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.measure.generator import CallStatistics
from sipsched.measure.hoststate import parse_clock_offset_s, split_sections
from sipsched.measure.observed import CpuTime
from sipsched.measure.serving import Serving, _receive_buffers
from sipsched.plan.config import load_config
from sipsched.records.load_report import Sends
from sipsched.testbed.session import Hosts
from sipsched.validity.ledger import Tally

SS = """\
UNCONN 0      0      198.18.0.1:5060 0.0.0.0:* users:(("kamailio",pid=13471,fd=4))
\t skmem:(r0,rb524288,t0,tb212992,f0,w0,o0,bl0,d0)
"""


def test_sections() -> None:
    text = "==> /proc/a <==\none\ntwo\n==> /proc/empty <==\n==> /proc/b <==\nthree\n"
    assert split_sections(text) == {
        "/proc/a": "one\ntwo\n",
        "/proc/empty": "",
        "/proc/b": "three\n",
    }


def test_no_text() -> None:
    assert split_sections("") == {}


def test_effective_receive_buffer_from_ss() -> None:
    second = SS.replace(":5060", ":5061").replace("rb524288", "rb131072")
    assert _receive_buffers(SS + second) == {5060: 524288, 5061: 131072}
    assert _receive_buffers("") == {}


def test_the_smallest_offset_of_the_clocks_counts() -> None:
    text = "100.00 7.00\n1000100.250000000\n101.00 7.00\n1000101.010000000\n"
    assert parse_clock_offset_s(text, "host") == pytest.approx(1_000_000.01)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "100.00 7.00\n", "100.00 7.00\n1000100.N\n", "x y\n1000100.2\n", "\n1000100.2\n"],
)
def test_a_missing_clock_is_an_error(text: str) -> None:
    with pytest.raises(StableError, match=r"^host: expected /proc/uptime .* found "):
        parse_clock_offset_s(text, "host")


def calls(completed: int, acks: int) -> CallStatistics:
    """Return the counts of 10 calls, with the numbers of completed calls and of ACKs."""
    numbers = (10, 10, completed, 0, 10.0, 0, 0)
    return CallStatistics(*numbers, requests={"ACK": Sends(acks, 0)}, messages=Tally(0, 0))


def test_a_warm_up_without_an_answered_call_keeps_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(Serving, "_offer", lambda *args: calls(completed=0, acks=0))
    monkeypatch.setattr(Serving, "_cpu_ns", lambda self: CpuTime(0, 0))
    monkeypatch.setattr(Serving, "record_proxy_log", lambda self: kept.append("proxy.log"))
    serving = object.__new__(Serving)
    serving.load = load_config().load
    serving.proxies = [(load_config().sut("kamailio-udp"), 8)]
    with pytest.raises(TransientError, match=r"none answered; see proxy\.log"):
        serving.warm_up(100, 1)
    assert kept == ["proxy.log"]


def test_an_overload_may_complete_no_call_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((0, 10**9))
    renewed: list[Any] = []
    monkeypatch.setattr(Serving, "_offer", lambda *args: calls(completed=0, acks=1))
    monkeypatch.setattr(Serving, "_cpu_ns", lambda self: CpuTime(next(readings), 0))
    monkeypatch.setattr(Serving, "_silence", lambda self: None)
    monkeypatch.setattr(Serving, "_start_server", lambda self: renewed.append("UAS"))
    serving = object.__new__(Serving)
    serving.load = replace(load_config().load, drain_s=0.25)
    serving.sut = load_config().sut("kamailio-udp")
    serving.proxies, serving._cores = [(serving.sut, 8)], [1]
    serving.hosts = cast(Hosts, SimpleNamespace(uas=SimpleNamespace(run=renewed.append)))
    assert serving.warm_up(100, 1).service_s == pytest.approx(1 / 6)
    # The UAS first answers the requests that the proxy repeats after 0.5 and 1.5 s.
    assert renewed == [["sleep", "1.75"], "UAS"]


@pytest.mark.parametrize(("sut", "servers"), [("kamailio-udp", 4), ("kamailio-udp-sockets", 1)])
def test_only_one_worker_empties_a_socket_of_its_own(
    monkeypatch: pytest.MonkeyPatch, sut: str, servers: int
) -> None:
    readings = iter((0, 10**9))
    monkeypatch.setattr(Serving, "_offer", lambda *args: calls(completed=10, acks=10))
    monkeypatch.setattr(Serving, "_cpu_ns", lambda self: CpuTime(next(readings), 0))
    serving = object.__new__(Serving)
    serving.load, serving.sut = load_config().load, load_config().sut(sut)
    serving.proxies = [(serving.sut, 8)]
    serving._cores = [4]
    warm_up = serving.warm_up(100, 1)
    # One second of CPU time on four CPUs in 0.1 s, for 60 messages.
    assert warm_up.utilisation == pytest.approx(2.5)
    assert warm_up.service_s == pytest.approx(1 / 60 / servers)
