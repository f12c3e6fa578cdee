"""The parts of `run.json` about the CPU time of the proxy and of other tasks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskCounts:
    """The context switches, CPU migrations and CPU time of all tasks of the proxy during the load.

    Attributes
    ----------
    voluntary, involuntary
        Context switches. At a voluntary switch, a task begins to wait. An involuntary switch is a preemption or a
        sched_yield.
    migrations
        Moves to another CPU; None if the kernel does not count moves.
    user_ns, system_ns
        CPU time in user mode and in the kernel. The kernel samples these times at its periodic ticks.
    """

    tasks: int
    voluntary: int
    involuntary: int
    migrations: int | None
    user_ns: int
    system_ns: int

    def __sub__(self, other: "TaskCounts") -> "TaskCounts":
        """Return the counts since an earlier reading of the same counters."""
        told = self.migrations is not None and other.migrations is not None
        return TaskCounts(
            tasks=self.tasks,
            voluntary=self.voluntary - other.voluntary,
            involuntary=self.involuntary - other.involuntary,
            migrations=(self.migrations or 0) - (other.migrations or 0) if told else None,
            user_ns=self.user_ns - other.user_ns,
            system_ns=self.system_ns - other.system_ns,
        )


@dataclass(frozen=True)
class Wait:
    """The number of waits for one kind of lock, and the total duration of these waits in ns."""

    count: int
    ns: int


@dataclass(frozen=True)
class Waits:
    """The number and duration of waits for locks, by kind of lock (kernel or program) and way of waiting.

    Attributes
    ----------
    kernel_spin, kernel_sleep
        Waits for locks of the kernel, by spinning and by sleeping. For a native spinlock, the first waiter is not
        counted.
    futex, sched_yield
        Waits for locks of the program, by sleeping in futex and by calling sched_yield.
    descriptors
        File descriptors that were sent to another process (SCM_RIGHTS).
    """

    kernel_spin: Wait
    kernel_sleep: Wait
    futex: Wait
    sched_yield: Wait
    descriptors: int


@dataclass(frozen=True)
class Factors:
    """The report of the program `sipfactors`: lock waits of the proxy's tasks, and of all other tasks on the host.

    `runs` and `run_ns` are the number of executions and the CPU time of the BPF programs; 0 if the kernel does not
    count them.
    """

    proxy: Waits
    others: Waits
    runs: int
    run_ns: int


@dataclass(frozen=True)
class FactorReport:
    """The lock waits among the proxy's processes during the load, or the reason why the counts are missing.

    Attributes
    ----------
    unavailable
        Reason why `waits` is missing; empty if `waits` exists.
    tasks, waits
        Counts of the proxy's tasks, and of all waits; None if no program counted them.
    """

    unavailable: str
    tasks: TaskCounts | None
    waits: Factors | None


@dataclass(frozen=True)
class CpuParts:
    """The CPU time of the SPS during the load in ns, divided by the programs that used it. The parts add up to `total`.

    Attributes
    ----------
    workers, proxy
        Tasks of the proxy that received messages according to the probe, and all other tasks of the proxy and its front
        end. Without a trace, `proxy` contains all of these tasks.
    own
        Programs of sipsched: the probe, the generator, the switcher, and the commands of its SSH connections.
    softirq, irq
        Softirqs, including softirqs in ksoftirqd, and interrupts of devices.
    kernel
        Threads of the kernel.
    realtime, fair, idle_class
        All other tasks by scheduling class. `realtime` is SCHED_FIFO, SCHED_RR and SCHED_DEADLINE; `fair` is
        SCHED_OTHER and SCHED_BATCH; `idle_class` is SCHED_IDLE.
    stolen
        Time that the hypervisor took, from /proc/stat. The clock that measures the other parts keeps running during the
        stolen time. So the stolen time is subtracted from every part except `idle`, in proportion to the part.
    idle
        Time during which no task ran.
    """

    total: int
    workers: int
    proxy: int
    own: int
    softirq: int
    irq: int
    kernel: int
    realtime: int
    fair: int
    idle_class: int
    stolen: int
    idle: int

    @property
    def competitor_share(self) -> float:
        """Return the share of CPU time that other programs used, from 0 to 1, without tasks of class SCHED_IDLE."""
        return (self.realtime + self.fair) / self.total


@dataclass(frozen=True)
class Competitor:
    """A task on the SPS's CPUs that belongs neither to the proxy nor to sipsched.

    Attributes
    ----------
    comm, pid
        Name, of which the kernel keeps 15 characters, and thread id.
    policy, nice
        Scheduling policy (such as `SCHED_OTHER`) and nice value when the task last ran.
    ns, bursts, longest_ns
        CPU time, number of uninterrupted runs on a CPU, and length of the longest of these runs.
    cpu
        CPU of the longest uninterrupted run.
    """

    comm: str
    pid: int
    policy: str
    nice: int
    ns: int
    bursts: int
    longest_ns: int
    cpu: int

    def __str__(self) -> str:
        """Return the competitor as text, such as `sh (nice -20, pid 7) ran 2.0 s on CPU 1`."""
        rank = f"nice {self.nice}" if self.policy == "SCHED_OTHER" else self.policy
        return f"{self.comm} ({rank}, pid {self.pid}) ran {self.ns / 1e9:.2g} s on CPU {self.cpu}"


@dataclass(frozen=True)
class Account:
    """The use of the SPS's CPUs during the load, as the program `sipaccount` counted it in the kernel's scheduler.

    Attributes
    ----------
    parts
        CPU time, divided by the kind of task that used it.
    competitors
        The competitors with the most CPU time (at most five), in descending order. At most five competitors of class
        SCHED_IDLE follow, because `competitor_share` excludes this class.
    wait_ns, wait_by
        `wait_ns`: longest time during which competitors used a CPU while a runnable task of the proxy waited for this
        CPU. `wait_by`: the competitor that ran longest during this wait.
    stopped_ns, stopped_pid
        Longest time during which a signal or a tracer stopped a task of the proxy, and the thread id of this task. The
        id is 0 if no task was stopped, and in older records.
    frozen_ns
        Longest time during which messages waited in the proxy's sockets, but no task of the proxy was running or
        runnable. If `stopped_ns` is longer, or if no trace shows the waiting messages, the value is `stopped_ns`.
    trace_stops
        Number of times that a tracer stopped a task of the proxy.
    tasks_lost
        Number of times that the table of `sipaccount` had no room for a task. `parts` includes the time of such tasks.
    runs, run_ns
        Number of executions and CPU time of the BPF programs; 0 if the kernel does not count them.
    planned
        Tasks of the competitors that the testbed declares. sipsched starts these tasks, so `parts` counts their time
        under `own`, and `competitors` does not list these tasks.
    """

    parts: CpuParts
    competitors: tuple[Competitor, ...]
    wait_ns: int
    wait_by: Competitor | None
    stopped_ns: int
    frozen_ns: int
    trace_stops: int
    tasks_lost: int
    runs: int
    run_ns: int
    planned: tuple[Competitor, ...] = ()
    stopped_pid: int = 0


@dataclass(frozen=True)
class AccountReport:
    """The account of the SPS's CPU time (or the reason why no account exists), and the state of the proxy's tasks.

    Attributes
    ----------
    unavailable
        Reason why `account` is missing; empty if `account` exists.
    account
        The account; None if the kernel does not allow the counting.
    moved
        Number of the proxy's tasks whose CPU affinity changed during the load.
    tracers
        Number of the proxy's tasks that had a tracer at the end.
    """

    unavailable: str
    account: Account | None
    moved: int
    tracers: int


@dataclass(frozen=True)
class SpeedIndex:
    """The speed of a CPU of the SPS before and after the run, as an amount of work per µs of CPU time."""

    before: float
    after: float
