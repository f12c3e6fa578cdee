"""Measure for how long the proxy's cores are idle while messages wait, on two processor packages in virtual time.

Each run has a trace of the scheduler (events sched_switch and sched_wakeup). Without arguments, the kernel is Linux
5.10, and the runs have two cores in two packages, and baseline mode. The first runs have the usual scheduling domains,
which contain all CPUs of the guest. In the other runs, a cpuset gives the proxy's cores a domain of their own, so that
the scheduler does not count the other CPUs of their packages.

    python benchmarks/idle_cores.py
    python benchmarks/idle_cores.py virtual-32-packages-4 5000    # Linux 3.2, 4 cores, 5000 calls per second

If the testbed isolates all other CPUs, the runs use all its cores, in baseline mode and in enhanced mode with a
migration cost of 0.

For each run, the benchmark prints the mean K_rcv, the drop rate, the workers' moves between the cores, the time in
which a core was idle while a worker waited for a core, and the longest such period. If the probe knows when messages
reach the queue, the benchmark also prints the time in which a core was idle while messages waited. A part of this time
is printed separately: in this part, a worker slept in the middle of a message, because it waited for a lock of the
proxy.
"""

import argparse
import bisect
import gzip
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
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
from sipsched.records.run_document import read_run
from sipsched.records.trace import Event, read_trace
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import load_testbed

TESTBED, SUT, CORES, CPS = "virtual-papers-packages", "kamailio-udp", 2, 3700
MODES = ("baseline", "enhanced+migration_cost_ns=0")
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
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing || true
# Linux 3.2 has these files only in debugfs, and no clock mono.
cd /sys/kernel/tracing || cd /sys/kernel/debug/tracing
echo 0 > tracing_on
echo mono > trace_clock || echo global > trace_clock
echo 30000 > buffer_size_kb
echo sched:sched_switch sched:sched_wakeup > set_event
echo > trace
echo 1 > tracing_on
"""
STOP_TRACE = """\
cd /sys/kernel/tracing || cd /sys/kernel/debug/tracing
echo 0 > tracing_on
gzip -1 < trace > "$1"
echo > set_event
"""
SWITCH = re.compile(
    r"\[(\d+)\].* (\d+\.\d+): sched_switch: .*prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> .* next_pid=(\d+)"
)
WAKEUP = re.compile(r" (\d+\.\d+): sched_wakeup: .*\bpid=(\d+) ")


@dataclass
class Schedule:
    """The idle times of each CPU, and of each task the begins and ends of sleep, and the waits for a CPU, in s."""

    idle: dict[int, list[tuple[float, float]]]
    sleeps: dict[int, list[tuple[float, bool]]]
    waits: dict[int, list[tuple[float, float]]]

    def is_asleep(self, pid: int, at: float) -> bool:
        changes = self.sleeps.get(pid, [])
        before = bisect.bisect_right(changes, (at, True)) - 1
        return before >= 0 and changes[before][1]

    def wasted(self, cpus: Sequence[int], pids: Iterable[int]) -> list[float]:
        """Return the lengths of the periods in which a CPU was idle while a task waited for a CPU, in s.

        Periods of several CPUs or tasks at the same time are one period.
        """
        changes = [
            (at, kind, step)
            for kind, spans in enumerate(
                (
                    [span for cpu in cpus for span in self.idle.get(cpu, [])],
                    [span for pid in pids for span in self.waits.get(pid, [])],
                )
            )
            for begin, end in spans
            for at, step in ((begin, 1), (end, -1))
        ]
        counts, since, found = [0, 0], None, []
        for at, kind, step in sorted(changes):
            counts[kind] += step
            if all(counts) and since is None:
                since = at
            elif not all(counts) and since is not None:
                found.append(at - since)
                since = None
        return [length for length in found if length > 0]


def read_schedule(path: Path) -> Schedule:
    """Parse the text of a trace."""
    schedule = Schedule({}, {}, {})
    idle_since: dict[int, float] = {}
    waits_since: dict[int, float] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if switch := SWITCH.search(line):
                cpu, at = int(switch[1]), float(switch[2])
                if cpu in idle_since:
                    schedule.idle.setdefault(cpu, []).append((idle_since.pop(cpu), at))
                if switch[5] == "0":
                    idle_since[cpu] = at
                before, after = int(switch[3]), int(switch[5])
                schedule.sleeps.setdefault(before, []).append((at, switch[4][0] in "SD"))
                if switch[4][0] == "R":
                    waits_since[before] = at
                if after in waits_since:
                    schedule.waits.setdefault(after, []).append((waits_since.pop(after), at))
            elif wakeup := WAKEUP.search(line):
                at, pid = float(wakeup[1]), int(wakeup[2])
                schedule.sleeps.setdefault(pid, []).append((at, False))
                waits_since.setdefault(pid, at)
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
    ledger = read_run(record).ledger.to_sps
    pids = np.unique(served["tid"]).tolist()
    unseen = [pid for pid in pids if pid not in schedule.waits]
    if unseen:
        # Each worker waits for a core at least between a wake-up and the switch to this worker.
        raise SystemExit(f"{title}: the trace of the scheduler has no wait of the workers {unseen}")
    moves = sum(
        int((np.diff(served["cpu"][served["tid"] == pid].astype(int)) != 0).sum()) for pid in pids
    )
    wasted = schedule.wasted(cpus, pids)
    k_rcv_us = (served["t_sip_in"] - served["t_arr"]).mean() / 1000
    print(
        f"{title}: K_rcv {k_rcv_us:.0f} µs, PDR {100 * ledger.refused / ledger.sent:.1f} %, {moves} moves; "
        f"a core idle while a worker waits for a core: {1000 * sum(wasted):.0f} ms, "
        f"at most {1000 * max(wasted, default=0):.1f} ms at a time"
        + (idle_while_messages_wait(served, schedule, cpus) if served["t_stack"].any() else ""),
        flush=True,
    )


def idle_while_messages_wait(served: np.ndarray, schedule: Schedule, cpus: Sequence[int]) -> str:
    """Return for how long cores were idle while messages waited, as text."""
    queued, taken = (np.sort(served[name]) / 1e9 for name in ("t_stack", "t_sockq"))
    first, last = served["t_arr"].min() / 1e9, served["t_arr"].max() / 1e9
    messages = {
        pid: (one["t_sockq"] / 1e9, np.maximum(one["t_dep"], one["t_sip_out"]) / 1e9)
        for pid in np.unique(served["tid"]).tolist()
        for one in [np.sort(served[served["tid"] == pid], order="t_sockq")]
    }

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
    return (
        f"; idle while messages wait: {1000 * idle_s:.0f} ms of {1000 * len(cpus) * (last - first):.0f} ms, "
        f"of these {1000 * locked_s:.0f} ms while a worker waits for a lock"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("testbed", nargs="?", default=TESTBED)
    parser.add_argument("cps", nargs="?", type=int, default=CPS)
    arguments = parser.parse_args()
    testbed, config = load_testbed(arguments.testbed), load_config()
    assert testbed.virtual is not None
    load = replace(config.load, duration_s=0.6, warmup_s=0.1, drain_s=0.3, retransmissions=False)
    isolated = bool(testbed.virtual.isolated)
    sut = replace(
        config.sut(SUT),
        receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
        # a kernel file of one's own may be too old for BPF
        probe="preload" if testbed.virtual.kernel.startswith("/") else "auto",
    )
    config = replace(config, load=load, suts={SUT: sut})
    cores = len(testbed.sps.cpus) if isolated else CORES
    cpus = testbed.sps.cpus[:cores]
    online = testbed.virtual.sockets * testbed.virtual.cores_per_socket
    observe = Serving.observe
    kinds = [(False, mode) for mode in MODES] if isolated else [(False, MODES[0]), (True, MODES[0])]
    with tempfile.TemporaryDirectory() as scratch:
        for (separate, mode), threads, rep in product(kinds, (4, 8), (1, 2)):
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

            run = Run(arguments.testbed, SUT, mode, cores, threads, arguments.cps, rep)
            with patch.object(Serving, "observe", observe_and_trace):
                record = acquisition.measure(run, config, testbed, Path(scratch, str(separate)))
            domain = "domain of their own" if separate or isolated else "usual domains"
            title = f"{domain}, {mode}, {threads} workers, repetition {rep}"
            tell(title, record, read_schedule(events), cpus)


if __name__ == "__main__":
    main()
