"""Tests of the check that the SPS has enough memory for the proxy."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sipsched.errors import StableError
from sipsched.measure import memory
from sipsched.measure.memory import Need, available_mib, front_need, memory_need
from sipsched.plan.config import load_config

MEMINFO = """\
MemTotal:       24682980 kB
MemFree:        19183304 kB
MemAvailable:   23671460 kB
Buffers:          112540 kB
HugePages_Total:       0
"""


def test_available_memory() -> None:
    assert available_mib(MEMINFO) == 23116


def test_memory_on_a_kernel_without_memavailable() -> None:
    old = "".join(line for line in MEMINFO.splitlines(True) if "Available" not in line)
    assert available_mib(old) == 18733


@pytest.mark.parametrize(
    "text", ["", MEMINFO[:50], MEMINFO[:70], "MemAvailable: much kB", "MemAvailable: 1"]
)
def test_a_file_without_the_line_is_an_error(text: str) -> None:
    with pytest.raises(StableError, match="expected a line 'MemAvailable: <number> kB'"):
        available_mib(text)


@pytest.mark.parametrize(
    ("sut", "threads", "need"),
    [
        ("kamailio-udp", 8, Need(2048, 8, 32)),
        ("kamailio-udp-partitioned", 8, Need(2048, 8, 32)),
        # a front end adds 64 MiB, and one worker per core
        ("kamailio-udp-front", 8, Need(2048 + 64, 8 + 2, 32)),
        # each instance needs at least 16 MiB
        ("kamailio-udp-partitioned", 250, Need(16 * 250, 250, 32)),
    ],
)
def test_the_need_of_all_instances(sut: str, threads: int, need: Need) -> None:
    assert memory_need(load_config().sut(sut), threads, 2) == need


def test_a_front_end_on_its_own_host_needs_no_memory_of_the_sps() -> None:
    sut = replace(load_config().sut("kamailio-udp-front"), front_host="front")
    assert memory_need(sut, 8, 2) == Need(2048, 8, 32)
    assert front_need(sut, 2) == Need(64, 2, 32)


def test_the_memory_of_all_compared_instances_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    sut = load_config().sut("kamailio-udp")
    monkeypatch.setattr(memory, "read_files", lambda *_: {memory.MEMINFO: MEMINFO})
    sps, need = SimpleNamespace(spec="sps"), memory_need(sut, 8, 1)
    memory.check_memory(sps, [sut.name] * 10, [need] * 10)
    with pytest.raises(StableError, match=r"88 workers in 11 instances may use 25344 MiB"):
        memory.check_memory(sps, [sut.name] * 11, [need] * 11)


def test_memory_adds_up() -> None:
    assert Need(2112, 10, 32).total_mib == 2432
