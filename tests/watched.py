"""Helpers that make the counters of a watched proxy, per second, for tests."""

from dataclasses import replace
from typing import Any

import numpy as np

from sipsched.records.watch import CpuShare, Second, WatchDocument, bins_of

QUIET = Second(
    t_s=1.0,
    length_s=1.0,
    recording=True,
    one_in=1,
    messages={"INVITE": 100, "200-INVITE": 100},
    calls=100,
    waiting=bins_of(np.full(200, 50e3)),
    service=bins_of(np.full(200, 100e3)),
    datagrams=400,
    queued_bytes=0,
    largest_queue_bytes=1280,
    drops={},
    receive_errors=0,
    workers=(CpuShare("11", 0.2, 100), CpuShare("12", 0.4, 100)),
    others=(CpuShare("backup", 0.05),),
    competitors=(CpuShare("backup", 0.05),),
    cpus=2,
    cpu_busy=0.4,
    cpu_stolen=0.0,
    proxy_cpu_ns=600_000_000,
    lost=0,
    unmatched=0,
    threads_untraced=0,
    service_ns=20_000_000,
    off_cpu_ns=0,
    processes=3,
)


def second(**changes: Any) -> Second:
    """Return the counters of a second in which no message waits long. `changes` replaces values."""
    return replace(QUIET, **changes)


def restart() -> list[Second]:
    """Return five seconds in which a proxy ends, is down, starts again, and then waits for its first datagram.

    The network counters are read through a process of the proxy. The second in which the first process runs again
    therefore counts all datagrams since the last second before the end. A second lacks the CPU time of processes that
    started within this second.
    """
    silent: dict[str, Any] = {"messages": {}, "calls": 0, "waiting": [], "service": []}
    down = second(**silent, datagrams=0, workers=(), processes=0, proxy_cpu_ns=0, service_ns=0)
    ending = replace(down, same_tasks=False)
    first = replace(down, processes=1, datagrams=900, same_tasks=False)
    others = second(workers=(), processes=3, proxy_cpu_ns=1_000_000, same_tasks=False)
    idle = second(**silent, datagrams=0, proxy_cpu_ns=1_000_000)
    return [ending, down, first, others, idle]


def workers(*busy: float) -> tuple[CpuShare, ...]:
    """Return workers that use the given shares of a CPU."""
    return tuple(CpuShare(str(i), share, 10) for i, share in enumerate(busy))


def document(**changes: Any) -> WatchDocument:
    """Return the document that describes a watch. `changes` replaces values."""
    plain = WatchDocument(
        program="kamailio",
        transports="udp",
        udp_ports=[5060],
        tcp_port=None,
        workers=2,
        cpus=2,
        kernel="Linux 6.1",
        probe_mode="exact",
        one_in=1,
        started=0.0,
        seconds=20.0,
        messages=4000,
        calls_per_s=100.0,
        ended_by="the user",
    )
    return replace(plain, **changes)
