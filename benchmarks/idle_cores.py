"""Measure for how long the proxy's cores are idle while messages wait, on two processor packages in virtual time.

Each run has baseline mode, two cores in two packages, and a trace of the scheduler (events sched_switch and
sched_wakeup). The first runs have the usual scheduling domains, which contain all CPUs of the guest. In the other runs,
a cpuset gives the proxy's cores a domain of their own, so that the scheduler does not count the other CPUs of their
packages.

For each run, the benchmark prints the mean K_rcv, the drop rate, the workers' moves between the cores, and the time in
which a core was idle while messages waited. A part of this time is printed separately: in this part, a worker slept in
the middle of a message, because it waited for a lock of the proxy.
"""

import bisect
import gzip
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sipsched.measure import acquisition
from sipsched.measure.serving import Serving
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.records.trace import Event, read_trace
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import load_testbed

TESTBED, SUT, MODE, CORES, CPS = "virtual-papers-packages", "kamailio-udp", "baseline", 2, 3700
RECEIVE_BUFFER_BYTES = 65_536
OWN_DOMAIN = """\
set -e
mkdir -p /run/cpuset
mount -t cgroup -o cpuset none /run/cpuset
cd /run/cpuset
echo 0 > cpuset.sched_load_balance
mkdir proxy others
echo "$1" > proxy/cpuset.cpus
echo "$2" > others/cpuset.cpus
echo 0 | tee proxy/cpuset.mems > others/cpuset.mems
"""
USUAL_DOMAINS = """\
cd /run/cpuset
rmdir proxy others
echo 1 > cpuset.sched_load_balance
cd /
umount /run/cpuset
"""
START_TRACE = """\
set -e
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
echo 0 > tracing_on
echo mono > trace_clock
echo 30000 > buffer_size_kb
echo sched:sched_switch sched:sched_wakeup > set_event
echo > trace
echo 1 > tracing_on
"""
STOP_TRACE = """\
cd /sys/kernel/tracing
echo 0 > tracing_on
gzip -1 < trace > "$1"
echo > set_event
"""
SWITCH = re.compile(
    r"\[(\d+)\].* (\d+\.\d+): sched_switch: .* prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> .* next_pid=(\d+)"
)
WAKEUP = re.compile(r" (\d+\.\d+): sched_wakeup: .* pid=(\d+) ")


@dataclass
class Schedule:
    """The idle times of each CPU, and the times at which each task began and stopped to sleep, in s."""

    idle: dict[int, list[tuple[float, float]]]
    sleeps: dict[int, list[tuple[float, bool]]]

    def is_asleep(self, pid: int, at: float) -> bool:
        changes = self.sleeps.get(pid, [])
        before = bisect.bisect_right(changes, (at, True)) - 1
        return before >= 0 and changes[before][1]


def read_schedule(path: Path) -> Schedule:
    """Parse the text of a trace."""
    schedule = Schedule({}, {})
    idle_since: dict[int, float] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if switch := SWITCH.search(line):
                cpu, at = int(switch[1]), float(switch[2])
                if cpu in idle_since:
                    schedule.idle.setdefault(cpu, []).append((idle_since.pop(cpu), at))
                if switch[5] == "0":
                    idle_since[cpu] = at
                schedule.sleeps.setdefault(int(switch[3]), []).append((at, switch[4][0] in "SD"))
            elif wakeup := WAKEUP.search(line):
                schedule.sleeps.setdefault(int(wakeup[2]), []).append((float(wakeup[1]), False))
    return schedule


@contextmanager
def tracing(sps: Host, to: Path) -> Iterator[None]:
    """Trace the scheduler of the proxy's host during the block, and store the trace in the file `to`."""
    sps.shell(START_TRACE)
    file = sps.workdir / "sched.gz"
    try:
        yield
    finally:
        sps.shell(STOP_TRACE, file)
        sps.get_file(file, to)


@contextmanager
def own_domain(sps: Host, cpus: Sequence[int], online: int) -> Iterator[None]:
    """Give some CPUs a scheduling domain of their own during the block."""
    others = sorted(set(range(online)) - set(cpus))
    sps.shell(OWN_DOMAIN, *(",".join(map(str, some)) for some in (cpus, others)))
    try:
        yield
    finally:
        sps.shell(USUAL_DOMAINS)


def tell(title: str, record: Path, schedule: Schedule, cpus: Sequence[int]) -> None:
    """Print the numbers of a run."""
    untraced = [cpu for cpu in cpus if cpu not in schedule.idle]
    if untraced:
        # The cores are idle after the load, so a complete trace has idle times.
        raise SystemExit(f"{title}: the trace of the scheduler has no idle time of CPU {untraced}")
    records = read_trace(record / "trace.bin.zst").records
    served = records[records["event"] == Event.MESSAGE]
    drops = len(records) - len(served)
    queued, taken = (np.sort(served[name]) / 1e9 for name in ("t_stack", "t_sockq"))
    first, last = served["t_arr"].min() / 1e9, served["t_arr"].max() / 1e9
    messages = {
        pid: (one["t_sockq"] / 1e9, np.maximum(one["t_dep"], one["t_sip_out"]) / 1e9)
        for pid in np.unique(served["tid"]).tolist()
        for one in [np.sort(served[served["tid"] == pid], order="t_sockq")]
    }
    moves = sum(
        int((np.diff(served["cpu"][served["tid"] == pid].astype(int)) != 0).sum())
        for pid in messages
    )

    def waits_for_lock(pid: int, at: float) -> bool:
        begins, ends = messages[pid]
        current = int(np.searchsorted(begins, at)) - 1
        return current >= 0 and ends[current] > at and schedule.is_asleep(pid, at)

    idle_s = locked_s = 0.0
    for cpu in cpus:
        for begin, end in schedule.idle.get(cpu, []):
            at = (begin + end) / 2
            waiting = np.searchsorted(queued, at) - np.searchsorted(taken, at)
            if first < at < last and waiting:
                idle_s += end - begin
                locked_s += (end - begin) * any(waits_for_lock(pid, at) for pid in messages)
    k_rcv_us = (served["t_sip_in"] - served["t_arr"]).mean() / 1000
    print(
        f"{title}: K_rcv {k_rcv_us:.0f} µs, PDR {100 * drops / len(records):.1f} %, {moves} moves; "
        f"idle while messages wait: {1000 * idle_s:.0f} ms of {1000 * len(cpus) * (last - first):.0f} ms, "
        f"of these {1000 * locked_s:.0f} ms while a worker waits for a lock",
        flush=True,
    )


def main() -> None:
    testbed, config = load_testbed(TESTBED), load_config()
    assert testbed.virtual is not None
    load = replace(config.load, duration_s=0.6, warmup_s=0.1, drain_s=0.3, retransmissions=False)
    sut = replace(config.sut(SUT), receive_buffer_bytes=RECEIVE_BUFFER_BYTES)
    config = replace(config, load=load, suts={SUT: sut})
    cpus = testbed.sps.cpus[:CORES]
    online = testbed.virtual.sockets * testbed.virtual.cores_per_socket
    observe = Serving.observe
    with tempfile.TemporaryDirectory() as scratch:
        for separate, threads, rep in product((False, True), (4, 8), (1, 2)):
            events = Path(scratch, "sched.gz")

            def observe_and_trace(
                serving: Serving, *arguments: Any, to: Path = events, apart: bool = separate
            ) -> Any:
                sps = serving.hosts.sps
                with tracing(sps, to):
                    if not apart:
                        return observe(serving, *arguments)
                    with own_domain(sps, cpus, online):
                        return observe(serving, *arguments)

            run = Run(TESTBED, SUT, MODE, CORES, threads, CPS, rep)
            with patch.object(Serving, "observe", observe_and_trace):
                record = acquisition.measure(run, config, testbed, Path(scratch, str(separate)))
            domain = "domain of their own" if separate else "usual domains"
            title = f"{domain}, {threads} workers, repetition {rep}"
            tell(title, record, read_schedule(events), cpus)


if __name__ == "__main__":
    main()
