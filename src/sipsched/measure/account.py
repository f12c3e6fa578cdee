"""The account of the CPU time on the proxy's host: programs that used the CPUs, and tasks that delayed the proxy."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sipsched.errors import SipschedError, StableError
from sipsched.measure.competitors import Competitors
from sipsched.measure.counting import ReportingProgram
from sipsched.records.bursts import BURSTS_FILE
from sipsched.records.conversion import as_part
from sipsched.records.cpu_report import Account, AccountReport, Competitor, CpuParts
from sipsched.records.probe_report import ProbeReport
from sipsched.records.switch_log import Competed
from sipsched.records.trace import Trace
from sipsched.testbed.host import Process
from sipsched.testbed.session import Hosts

PROGRAM = "sipaccount"
MOST_COMPETITORS = 5
ZSTD_LEVEL = 1
SAMPLE_MS = 50
"""Time between two samples in ms, much shorter than a window (a short stretch of time in one mode of the proxy)."""
COUNTED, IDLE_CLASS = ("realtime", "fair"), ("idle_class",)
"""Scheduling classes whose tasks count as competitors of the proxy, and the class whose tasks do not count."""
BUSY = ("proxy", "own", "softirq", "irq", "kernel", *COUNTED, *IDLE_CLASS)
# SEE include/uapi/linux/sched.h for the names and numbers of the scheduling policies.
POLICIES = {
    **{0: "SCHED_OTHER", 1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH"},
    **{5: "SCHED_IDLE", 6: "SCHED_DEADLINE", 7: "SCHED_EXT"},
}
NONE_PLANNED: Mapping[int, str] = MappingProxyType({})
READ_TASKS = """\
while [ $# -gt 0 ]; do
    cat "$1/cgroup.procs" 2>/dev/null || pgrep --pgroup "$(cat "$2")"
    shift 2
done |
while read -r pid; do
    awk '/^Pid/ { pid = $2 } /^TracerPid/ { tracer = $2 } /^Cpus_allowed_list/ { print pid, $2, tracer }' \
        "/proc/$pid/task/"*/status
done 2>/dev/null
true"""
"""Shell command that prints the thread id, CPU affinity and tracer (process id or 0) of each task of process groups."""
FIND_SSH = """\
cat /proc/sys/kernel/random/boot_id
pid=$PPID
while [ "$pid" -gt 1 ]; do
    case "$(cat "/proc/$pid/comm")" in
    sshd*) echo "$pid"; break ;;
    esac
    pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
done"""
"""Shell command that prints the machine's boot id, and the id of the sshd process that started this command."""


@dataclass(frozen=True)
class _Task:
    """The CPU affinity of a task of the proxy, and the process id of its tracer (ptrace), both from /proc."""

    affinity: str
    tracer: int


class CpuAccount:
    """The account of the CPU time on the proxy's host during a load. The BPF program `sipaccount` counts this time.

    Parameters
    ----------
    proxy
        The processes on the SPS: the proxy, and its front end.
    sampled
        Whether the program also samples the competitors' CPU time during the load.
    with_bursts
        Whether the program also writes the bursts of all other tasks and of softirqs; see `fetch_bursts`.
    planned
        The competitors that the testbed declares.
    """

    def __init__(
        self,
        hosts: Hosts,
        proxy: Sequence[Process],
        cpus: Sequence[int],
        limit_s: float,
        *,
        sampled: bool = False,
        with_bursts: bool = False,
        planned: Competitors | None = None,
    ) -> None:
        sps = hosts.sps
        self._sps, self._hosts, self._proxy, self._sampled = sps, hosts.all, proxy, sampled
        self._bursts = sps.workdir / f"{PROGRAM}.bursts" if with_bursts else None
        self._planned = planned
        self._cpus, self._program = cpus, ReportingProgram(sps, "probe", PROGRAM, limit_s)
        self._moved = self._tracers = 0
        self._found: tuple[str, Any] = ("no load was offered", None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count CPU time during the `with` block. If counting fails, the load continues and `report` has the reason."""
        before = self._tasks()
        reason = self._start()
        try:
            yield
            self._found = (reason, None) if reason else self._end()
            after = self._tasks()
            self._moved = sum(
                task.affinity != before[pid].affinity
                for pid, task in after.items()
                if pid in before
            )
            self._tracers = sum(task.tracer != 0 for task in after.values())
        finally:
            self._program.stop()

    def report(self, probe: ProbeReport | None = None, trace: Trace | None = None) -> AccountReport:
        """Return the account of the CPU time on the proxy's host as a report, or the reason why no account exists.

        Parameters
        ----------
        probe
            The probe's report, which names the workers among the proxy's tasks. Without a report (None), no task is
            known as a worker, so all tasks count as other tasks of the proxy.
        trace
            The probe's trace, which shows when messages waited. Without a trace (None), the proxy counts as frozen only
            while one of its tasks is stopped.
        """
        reason, content = self._found
        account = None
        if not reason:
            try:
                planned = self._planned.tasks if self._planned else {}
                account = read_account(content, probe, trace, self._program.where, planned)
            except SipschedError as error:
                reason = str(error)
        return AccountReport(reason, account, self._moved, self._tracers)

    def fetch_bursts(self, folder: Path) -> None:
        """Compress the file of CPU bursts on the proxy's host, and copy the result to a folder on this machine.

        Do nothing if no bursts were requested, or if counting failed.
        """
        if self._bursts is None or self._found[0]:
            return
        compressed = self._sps.workdir / BURSTS_FILE
        zstd = ["zstd", "-q", "-f", f"-{ZSTD_LEVEL}", "--rm", str(self._bursts)]
        self._sps.run([*zstd, "-o", str(compressed)], timeout_s=120)
        self._sps.get_file(compressed, folder / BURSTS_FILE)
        self._sps.run(["rm", "-f", str(compressed)])

    def competed(self) -> Competed | None:
        """Return samples of the CPU time that other programs used during the load, or None if no samples exist."""
        reason, content = self._found
        if reason or not self._sampled:
            return None
        try:
            return as_part(_Report, content, self._program.where).samples
        except SipschedError:
            return None  # `report` returns the reason.

    def _start(self) -> str:
        """Start `sipaccount`. Return an empty text on success, and the reason on failure."""
        options = [text for cpu in self._cpus for text in ("--cpu", str(cpu))]
        options += [text for pid in self._connections() for text in ("--own", pid)]
        if self._sampled:
            options += ["--sample", str(SAMPLE_MS)]
        if self._bursts is not None:
            options += ["--bursts", str(self._bursts)]
        return self._program.start(options, self._proxy)

    def _connections(self) -> list[str]:
        """List the ids of the SSH server processes on the proxy's machine that run the commands of sipsched.

        `sipaccount` counts these processes as programs of sipsched instead of competitors.
        """
        answers = [host.shell(FIND_SSH).stdout.split() for host in self._hosts]
        here, *_ = self._sps.shell(FIND_SSH).stdout.split()
        return sorted({pid for boot, *pids in answers if boot == here for pid in pids})

    def _end(self) -> tuple[str, Any]:
        try:
            return "", self._program.end()
        except StableError as error:
            return str(error), None

    def _tasks(self) -> dict[int, _Task]:
        groups = [path for process in self._proxy for path in (process.group, process.pid_file)]
        lines = map(str.split, self._sps.shell(READ_TASKS, *groups).stdout.splitlines())
        return {int(pid): _Task(affinity, int(tracer)) for pid, affinity, tracer in lines}


@dataclass(frozen=True)
class _Cpu:
    """The time in ns that one CPU spent on each kind of task, from the report of `sipaccount`."""

    total_ns: int
    stolen_ns: int
    idle: int
    proxy: int
    own: int
    kernel: int
    realtime: int
    fair: int
    idle_class: int
    softirq: int
    irq: int


@dataclass(frozen=True)
class _Seen:
    """The running times of one task, from the report of `sipaccount`."""

    comm: str
    pid: int
    part: str
    policy: int
    nice: int
    ns: int
    bursts: int
    longest_ns: int
    cpu: int

    def competitor(self) -> Competitor:
        policy = POLICIES.get(self.policy, str(self.policy))
        numbers = (self.nice, self.ns, self.bursts, self.longest_ns, self.cpu)
        return Competitor(self.comm, self.pid, policy, *numbers)


@dataclass(frozen=True)
class _Wait:
    competed_ns: int
    by: _Seen | None


@dataclass(frozen=True)
class _Stopped:
    ns: int
    pid: int
    traced: int


@dataclass(frozen=True)
class _Report:
    """The report of `sipaccount`, as hardware/probe/sipaccount.c writes it."""

    cpus: tuple[_Cpu, ...]
    tasks: tuple[_Seen, ...]
    wait: _Wait | None
    gaps: tuple[tuple[int, int], ...]
    stopped: _Stopped
    samples: Competed
    tasks_lost: int
    runs: int
    run_ns: int


def read_account(
    content: Any,
    probe: ProbeReport | None,
    trace: Trace | None,
    where: str,
    planned: Mapping[int, str] = NONE_PLANNED,
) -> Account:
    """Convert the report of the program `sipaccount` into an account of the CPU time on the proxy's host.

    Parameters
    ----------
    content
        The report, parsed from JSON.
    probe, trace
        The probe's report and trace of the same run; None if the run has none.
    where
        The host and the path of the report, for error messages.
    planned
        Names of the tasks of competitors that the testbed declares, by thread id.

    Raises
    ------
    StableError
        The content is not a report of `sipaccount`.
    """
    report = as_part(_Report, content, where)
    # `sipaccount` counts every program that sipsched started as "own", also the competitors that the testbed
    # declares. The thread ids and names of these competitors distinguish them from the other programs of sipsched.
    is_planned = {
        task.pid: task.part == "own" and planned.get(task.pid) == task.comm for task in report.tasks
    }
    counted, idle_class = (
        [task for task in report.tasks if task.part in kinds][:MOST_COMPETITORS]
        for kinds in (COUNTED, IDLE_CLASS)
    )
    threads = probe.threads if probe else ()
    workers = {thread.tid for thread in threads if thread.messages}
    worker_ns = sum(task.ns for task in report.tasks if task.pid in workers)
    stopped_ns = report.stopped.ns
    return Account(
        parts=add_up(report.cpus, worker_ns),
        competitors=tuple(task.competitor() for task in (*counted, *idle_class)),
        wait_ns=report.wait.competed_ns if report.wait else 0,
        wait_by=report.wait.by.competitor() if report.wait and report.wait.by else None,
        stopped_ns=stopped_ns,
        frozen_ns=max(stopped_ns, frozen_ns(report.gaps, trace)),
        trace_stops=report.stopped.traced,
        tasks_lost=report.tasks_lost,
        runs=report.runs,
        run_ns=report.run_ns,
        planned=tuple(task.competitor() for task in report.tasks if is_planned[task.pid]),
        stopped_pid=report.stopped.pid,
    )


def add_up(cpus: Sequence[_Cpu], worker_ns: int) -> CpuParts:
    """Return the sum over all CPUs of each part of the CPU time (workers, interrupts, idle time, and so on).

    The hypervisor's stolen time is subtracted from every part, in proportion to the part. The workers' time is
    subtracted from the proxy's time, so that no time counts twice.
    """
    sums = dict.fromkeys(BUSY, 0)
    stolen = 0
    for cpu in cpus:
        busy = sum(getattr(cpu, part) for part in BUSY)
        # ASSUME the hypervisor takes time only from running tasks, because an idle guest leaves its CPU to the
        # hypervisor.
        taken = min(cpu.stolen_ns, busy)
        stolen += taken
        for part in BUSY:
            sums[part] += round(getattr(cpu, part) * (1 - taken / busy)) if busy else 0
    workers = min(worker_ns, sums["proxy"])
    total = sum(cpu.total_ns for cpu in cpus)
    # The idle time is the rest of the total, so it absorbs rounding errors of a few ns.
    return CpuParts(
        total=total,
        workers=workers,
        stolen=stolen,
        idle=total - stolen - sum(sums.values()),
        **{**sums, "proxy": sums["proxy"] - workers},
    )


def frozen_ns(gaps: Sequence[tuple[int, int]], trace: Trace | None) -> int:
    """Return the longest time in ns during which a message waited but no task of the proxy could run.

    Parameters
    ----------
    gaps
        Beginning and end of each gap in which no task of the proxy could run, CLOCK_MONOTONIC in ns.
    trace
        The probe's trace, in the order in which the proxy received the messages. Without a trace (None), the result is
        0.
    """
    if trace is None:
        return 0
    records = trace.records
    taken = records[(records["t_sockq"] != 0) & (records["t_stack"] != 0)]
    queued = np.sort(taken["t_stack"].astype("i8"))
    left = np.sort(taken["t_sockq"].astype("i8"))
    longest = 0
    for begin, end in gaps:
        # In a gap, the proxy did not run. If more messages were queued than dequeued before the gap, a message already
        # waits at the start of the gap.
        # If no message waits at the start, the wait begins when the next message is queued.
        waiting = np.searchsorted(queued, begin, "right") > np.searchsorted(left, begin, "right")
        after = np.searchsorted(queued, begin, "right")
        arrives = begin if waiting else int(queued[after]) if after < queued.size else end
        longest = max(longest, end - arrives)
    return longest


def name_competitors(competitors: Sequence[Competitor]) -> str:
    """Return a text that names the first two competitors in a list (other programs that used the proxy's CPUs)."""
    return ", ".join(map(str, itertools.islice(competitors, 2)))
