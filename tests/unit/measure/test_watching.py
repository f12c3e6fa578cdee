"""Test reading the counters of a watched proxy."""

import os
import subprocess
from pathlib import Path, PurePosixPath

import numpy as np

from sipsched.measure.running_proxy import Running, Target
from sipsched.measure.watching import (
    COUNTERS,
    Counters,
    CounterStream,
    Means,
    _drops,
    _others,
    connection_pattern,
    parse_counters,
    probe_commands,
)
from sipsched.records.trace import RECORD, Event
from sipsched.testbed.machine import Machine

LINES = """\
pids 100 101
uptime 1000.50 3000.00
cpu  100 0 50 800 10 0 5 35 0 0
stat 100 (kamailio) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0
stat 9 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0
softnet 000000ff 00000003 00000000
ran 100 5000
allowed 0,2-3
table udp  1: 0100007F:13C4 00000000:0000 07 00000000:00000500 00:00000000 00000000 0 0 77 2 0000 7
table udp  2: 0100007F:0035 00000000:0000 07 00000000:00000900 00:00000000 00000000 0 0 78 2 0000 9
snmp 1000 2 11 900 7 0 0 0 0
snmp6 InDatagrams 10
snmp6 InErrors 5
snmp6 RcvbufErrors 4
end
""".splitlines()


def test_counters_are_those_of_the_ports() -> None:
    counters = parse_counters(LINES, [5060])
    assert counters.pids == (100, 101)
    assert counters.t_s == 1000.5
    assert (counters.total, counters.busy, counters.stolen) == (1000, 190, 35)
    assert counters.programs == {100: ("kamailio", 42), 9: ("a (b) c", 42)}
    assert counters.ran_ns == {100: 5000}
    assert counters.allowed == 3
    assert counters.queued_bytes == 0x500
    assert counters.socket_drops == {77: 7}
    assert counters.backlog_drops == 3
    # over both versions of IP; datagrams for a full buffer are drops and not errors
    assert counters.datagrams == 1010
    assert counters.errors == 11 - 7 + 5 - 4


def test_drops_have_causes_and_a_new_socket_starts_at_zero() -> None:
    before = Counters(socket_drops={1: 10}, backlog_drops=5)
    now = Counters(socket_drops={1: 13, 2: 4}, backlog_drops=5)
    records = np.zeros(3, RECORD)
    records["event"][:2] = Event.DROP
    assert _drops(records, before, now) == {"socket buffer full": 7, "seen by the probe": 2}


def test_other_programs_are_added_up_by_name_without_the_proxy() -> None:
    before = Counters(programs={1: ("a", 0), 2: ("a", 0), 3: ("kamailio", 0)})
    now = Counters(
        pids=(3,), programs={1: ("a", 20), 2: ("a", 30), 3: ("kamailio", 90), 4: ("new", 9)}
    )
    assert [(share.name, share.busy) for share in _others(before, now, 1.0)] == [
        ("a", 50 / os.sysconf("SC_CLK_TCK"))
    ]


def test_counters_of_this_machine_are_read_repeatedly() -> None:
    stream = CounterStream(Machine(), "no such program", 0)
    try:
        first, second = stream.read([]), stream.read([])
    finally:
        stream.end()
    assert first.pids == ()
    assert second.total >= first.total > 0
    assert any(pid == os.getpid() for pid in second.programs)
    assert "touch" not in COUNTERS


def test_each_transport_has_its_own_probe() -> None:
    proxy = Running("kamailio", (42,), 7, "", ())
    udp, tcp = probe_commands(Target(proxy, (5060, 5061), 5060, ()), PurePosixPath("/p"), 3)
    assert udp[-4:] == ["--port", "5060", "--ports", "2"]
    assert tcp[-2:] == ["--mode", "stream"]
    assert udp[udp.index("--netns") + 1] == "/proc/42/ns/net"
    assert udp[udp.index("--one-in") + 1] == "3"
    assert len(probe_commands(Target(proxy, (5060,), None, ()), PurePosixPath("/p"), 1)) == 1


def test_only_open_connections_of_the_port_are_counted(tmp_path: Path) -> None:
    rows = """\
   0: 0100007F:13C4 00000000:0000 0A 00000000:00000000
   1: 0100007F:13C4 0200007F:A001 01 00000000:00000000
   2: 0100007F:A002 0200007F:13C4 01 00000000:00000000
   3: 0100007F:13C4 0200007F:A003 06 00000000:00000000
   4: 0100007F:13C5 0200007F:A004 01 00000000:00000000
"""
    (tmp_path / "tcp").write_text(rows)
    argv = ["grep", "-cE", connection_pattern(5060), str(tmp_path / "tcp")]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "2\n"


def test_missing_capabilities_are_named() -> None:
    assert Means(2**41 - 1, 1, "", True).missing == []
    assert Means(1 << 39 | 1 << 38, 1, "", True).missing == ["CAP_SYS_PTRACE"]
