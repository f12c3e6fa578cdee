"""Test reading the counters of a watched proxy."""

import os
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest

from sipsched.measure.running_proxy import Running, Target
from sipsched.measure.watching import (
    Counters,
    Means,
    Program,
    Watching,
    _cpu_use,
    _cpus_of,
    _drops,
    _others,
    _throttled,
    parse_counters,
    parse_histograms,
    probe_commands,
)
from sipsched.records import histogram
from sipsched.records.trace import RECORD, Event
from sipsched.records.watch import INVITE, OVER_TCP, add_bins

LINES = """\
pids 100 101
uptime 1000.50 3000.00
cpu0 100 0 50 800 10 0 5 35 0 0
cpu1 0 0 0 1000 0 0 0 0 0 0
stat 100 (kamailio) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0 5 6 7 8 1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 0 0 0 0
stat 9 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20 0 1 0 5 6 7 8 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 5 0 0 0
softnet 000000ff 00000003 00000000
ran 100 5000 600 7
allowed 100 0,2-3
limit nr_throttled 4
limit throttled_usec 70
limit nr_throttled 1
limit throttled_time 500
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
    assert counters.ticks == {0: (1000, 190, 35), 1: (1000, 0, 0)}
    assert counters.programs == {100: ("kamailio", 42, 3, 0), 9: ("a (b) c", 42, 1, os.SCHED_IDLE)}
    assert counters.ran_ns == {100: 5000}
    assert counters.delayed_ns == {100: 600}
    assert counters.allowed == {100: (0, 2, 3)}
    # control groups of version 2 and 1 have different units
    assert (counters.throttled, counters.throttled_ns) == (5, 70_500)
    assert counters.queued_bytes == 0x500
    assert counters.socket_drops == {77: 7}
    assert counters.backlog_drops == 3
    # counters add IPv4 and IPv6; datagrams for a full buffer count as drops, not as errors
    assert counters.datagrams == 1010
    assert counters.errors == 11 - 7 + 5 - 4


@pytest.mark.parametrize("pids", ["pids", "pids 7"], ids=["down", "ends meanwhile"])
def test_datagrams_are_not_lost_while_the_proxy_is_down(pids: str) -> None:
    running, restarted = (
        parse_counters(["pids 7", f"snmp {count} 0 {errors} 0 0 0"], [5060])
        for count, errors in ((1000, 3), (1100, 4))
    )
    down = parse_counters([pids], [5060]).after(running)
    assert (down.datagrams, down.errors) == (1000, 3)
    after = restarted.after(down)
    assert (after.datagrams - down.datagrams, after.errors - down.errors) == (100, 1)


SOCKET = (
    "table udp  1: 0100007F:13C4 00000000:0000 07 00000000:{} 00:00000000 00000000 0 0 77 2 0 {}"
)


def reading(pids: str, throttled: int, drops: int) -> Counters:
    limits = [f"limit nr_throttled {throttled}", f"limit throttled_usec {throttled}"]
    lines = [pids, *limits, SOCKET.format("00000500", drops), "snmp 9 0 0 0 0 0", "connections 3"]
    return parse_counters(lines, [5060])


def test_counters_are_kept_if_the_process_through_which_they_are_read_ends() -> None:
    before, later = reading("pids 7 8", 50, 900), reading("pids 8", 51, 901)
    now = parse_counters(["pids 7 8"], [5060]).after(before)
    assert (now.connections, now.queued_bytes) == (3, 0x500)
    assert (_drops(before, now), _throttled(before, now)) == ({}, (0, 0))
    assert (_drops(now, later), _throttled(now, later)) == ({"socket buffer full": 1}, (1, 1000))


def test_a_new_proxy_whose_first_process_ends_was_not_throttled() -> None:
    down = parse_counters(["pids"], [5060]).after(reading("pids 5", 50, 900))
    assert (down.connections, down.queued_bytes, down.socket_drops) == (0, 0, {})
    now = parse_counters(["pids 7 8"], [5060]).after(down)
    assert _throttled(now, reading("pids 8", 51, 0)) == (0, 0)


def test_the_number_of_stops_is_never_negative() -> None:
    # The processes of a proxy can move to another control group.
    assert _throttled(reading("pids 7", 50, 0), reading("pids 7", 2, 0)) == (0, 0)


def test_only_the_cpus_of_the_workers_count() -> None:
    before = Counters(ticks={0: (0, 0, 0), 1: (0, 0, 0)})
    now = Counters(ticks={0: (100, 95, 10), 1: (100, 5, 0)}, allowed={7: (0,), 8: (1,), 9: (0, 1)})
    assert _cpus_of(before, now, [7]) == {0}
    assert _cpus_of(before, now, [7, 8]) == _cpus_of(before, now, []) == {0, 1}
    assert _cpus_of(before, Counters(ticks=now.ticks), []) == {0, 1}
    # a CPU that was switched on within the second is unknown at its beginning
    assert _cpus_of(Counters(ticks={0: (0, 0, 0)}), now, []) == {0}
    assert _cpu_use(before, now, {0}) == (0.95, 0.1)
    assert _cpu_use(before, now, {0, 1}) == (0.5, 0.05)


def test_drops_have_causes_and_a_new_socket_starts_at_zero() -> None:
    before = Counters(socket_drops={1: 10}, backlog_drops=5)
    now = Counters(socket_drops={1: 13, 2: 4}, backlog_drops=5)
    assert _drops(before, now) == {"socket buffer full": 7}


def test_messages_over_tcp_are_counted_for_all_calls() -> None:
    watching = Watching.__new__(Watching)
    watching._one_in, watching._calls = 5, OrderedDict()
    records = np.zeros(4, RECORD)
    records["kind"] = INVITE
    records["flags"][:2] = OVER_TCP
    records["event"][2] = Event.DROP
    records["rmem"] = (900, 900, 400, 500)
    received = watching._received(records)
    assert received.names == {"INVITE": 15}
    assert received.over_tcp == 10
    # advice for the receive buffer needs the queue of the UDP sockets
    assert received.largest_queue_bytes == 500


@pytest.mark.parametrize(("tasks", "same"), [((7, 8), True), ((7, 9), False), ((7,), False)])
def test_a_second_states_whether_the_proxy_kept_its_tasks(
    tasks: tuple[int, ...], same: bool
) -> None:
    watching = Watching.__new__(Watching)
    watching._probes, watching._lost, watching._on, watching._one_in = [], {}, True, 1
    watching._calls, watching._workers, watching._first = OrderedDict(), set(), 0.0
    before, now = (
        Counters(t_s=t_s, ran_ns=dict.fromkeys(of, ran), delayed_ns=dict.fromkeys(of, 0))
        for t_s, of, ran in ((0.0, (7, 8), 100), (1.0, tasks, 300))
    )
    second = watching._second(watching._received(np.zeros(0, RECORD)), {}, before, now)
    assert second.same_tasks == same
    assert second.proxy_cpu_ns == 200 * len({7, 8} & {*tasks})


def test_other_programs_are_added_up_by_name_without_the_proxy() -> None:
    def programs(**ticks: int) -> dict[int, Program]:
        used = enumerate(ticks.items(), 1)
        return {pid: Program(name.rstrip("2"), count, 0, 0) for pid, (name, count) in used}

    before = Counters(programs=programs(a=0, a2=0, kamailio=0))
    now = Counters(pids=(3,), programs=programs(a=20, a2=30, kamailio=90, new=9))
    assert [(share.name, share.busy) for share in _others(before, now, 1.0)] == [
        ("a", 50 / os.sysconf("SC_CLK_TCK"))
    ]


def test_competitors_run_on_the_cpus_of_the_workers_and_not_in_the_idle_class() -> None:
    names = {"near": (0, 0), "far": (1, 0), "idle": (0, os.SCHED_IDLE)}

    def counters(ticks: int) -> Counters:
        found = enumerate(names.items())
        return Counters(
            programs={pid: Program(name, ticks, *where) for pid, (name, where) in found}
        )

    found = _others(counters(0), counters(50), 1.0, {0})
    assert [share.name for share in found] == ["near"]
    assert len(_others(counters(0), counters(50), 1.0)) == 3


def test_each_transport_has_its_own_probe() -> None:
    proxy = Running("kamailio", (42,), 7, "", ())
    udp, tcp = probe_commands(Target(proxy, (5060, 5061), 5060, ()), PurePosixPath("/p"), 3)
    assert udp[-4:] == ["--port", "5060", "--ports", "2"]
    assert tcp[-2:] == ["--mode", "stream"]
    assert udp[udp.index("--netns") + 1] == "/proc/42/ns/net"
    assert udp[udp.index("--one-in") + 1] == "3"
    assert len(probe_commands(Target(proxy, (5060,), None, ()), PurePosixPath("/p"), 1)) == 1


def test_histograms_have_one_command_without_records() -> None:
    proxy = Running("kamailio", (42,), 7, "", ())
    (argv,) = probe_commands(
        Target(proxy, (5060, 5061), None, ()), PurePosixPath("/p"), 1, histograms=True
    )
    assert argv[1] == "histograms"
    assert argv[-4:] == ["--port", "5060", "--ports", "2"]


def test_histograms_of_the_kernel_are_converted() -> None:
    counts = {
        "waiting": [[1000, 3], [50_000, 1]],
        "service": [],
        "names": {"INVITE": 5, "200": 2, "202": 1, "180": 4, "699": 1, "999": 1},
        "tasks": {"17": 14},
        "unmatched": 1,
        "service_ns": 7,
        "largest_queue_bytes": 8,
    }
    received = parse_histograms(counts)
    assert received.calls == 5
    assert received.names == {"INVITE": 5, "2xx": 3, "180": 4, "6xx": 1, "not SIP": 1}
    assert received.by_task == {17: 14}
    bins = add_bins([received.waiting])
    assert bins.sum() == 4
    assert histogram.quantile_ns(bins, 0.5) == pytest.approx(1000, rel=0.01)
    assert received.service == []


def test_missing_capabilities_are_named() -> None:
    assert Means(2**41 - 1, 1, "", True).missing == []
    assert Means(1 << 39 | 1 << 38, 1, "", True).missing == ["CAP_SYS_PTRACE"]
