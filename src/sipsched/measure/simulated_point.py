"""The parameters of the simulator for one combination of cores, threads and mode."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.measure import scheduler
from sipsched.measure.cpu_layout import Cpu, CpuLayout
from sipsched.measure.generator import Arrivals
from sipsched.measure.scheduler import KernelScheduler, compile_mode, task_attributes, writes
from sipsched.measure.simulator import ModelNumbers, Value, write_numbers
from sipsched.measure.switching import SAMPLE_NS, Playable, playable
from sipsched.measure.tuning import Tuned
from sipsched.plan.config import Config
from sipsched.plan.crossover import Design, compared, cores_of, instances, is_comparison
from sipsched.plan.loads import Load
from sipsched.plan.modes import Counts, Mode, Scaling, Setting, find_mode, load_modes
from sipsched.plan.run import Point
from sipsched.plan.simulated import LOG_QUEUE, load_model
from sipsched.plan.sut import Sut
from sipsched.testbed.inventory import DeclaredCompetitor, SimulatedMachine, Testbed

# SEE RFC 3261, 17.1.1.1 for the defaults of the retransmission timers T1 and T2
T1_NS, T2_NS = 500_000_000, 4_000_000_000
NORMAL_LATENCY_NS, NORMAL_GRANULARITY_NS, NORMAL_WAKEUP_NS = 6_000_000, 750_000, 1_000_000
"""Settings of CFS on a machine with one CPU. SEE kernel/sched/fair.c of Linux 5.10"""
NORMAL_SLICE_NS = 700_000
"""Base slice of EEVDF on one CPU, in ns. SEE kernel/sched/fair.c of Linux 6.18: normalized_sysctl_sched_base_slice"""
MIGRATION_COST_NS = 500_000
COMPETITORS_MAX, COMPARED_MAX = 16, 32
"""Largest numbers of competitors and of compared instances. SEE hardware/simulator/model.h"""
EVENTS_A_CALL = 5_000
"""Largest number of simulated events per call. Usual runs have 35. If 250 workers wake at once, a run has 2,000."""
WITHOUT: Mapping[str, Mapping[str, Value]] = {
    "lock": {"lock_share": 0.0, "socket_lock_ns": 0},
    "switches": {"switch_ns": 0, "idle_exit_ns": 0},
    "refills": dict.fromkeys(
        ("refill_ns", "refill_doubling_ns", "refill_near_ns", "refill_far_ns", "transfer_ns"), 0
    ),
    "stalls": {"stall_every_ns": 0},
    "receive": {"interrupt_ns": 0, "receive_ns": 0, "wake_ns": 0},
    "placement": {"placement": False},
    "herd": {"wake_all": False},
    "migration_cost": {"migration_cost_ns": 0},
    "competitors": {"competitors": 0, "logger_ns": 0, "burst_every_ns": 0},
}
"""Per mechanism of the simulator, the parameter values that switch the mechanism off."""
SWITCHED = (
    *("policy", "nice", "slice_ns", "latency_ns", "min_granularity_ns", "wakeup_granularity_ns"),
    *("nr_latency", "migration_cost_ns"),
)
"""Parameters that can differ between the modes of a run. SEE hardware/simulator/plan.c"""


@dataclass(frozen=True)
class SimulatedPoint:
    """The simulator's parameters for a point (SUT, mode, cores and threads), without the load.

    Attributes
    ----------
    state
        The settings of the mode. For a run that compares modes, the settings of the reference mode.
    numbers
        The simulator's parameters, without the load.
    modes
        The compared modes that differ on this kernel; None for a run of one mode.
    switched
        For a run that compares modes, the parameters to which each mode switches the workers.
    setattr_ns
        CPU time in ns that a switch of the mode takes from a worker.
    """

    point: Point
    sut: Sut
    state: Tuned
    kernel: str
    numbers: ModelNumbers
    modes: Playable | None
    switched: tuple[ModelNumbers, ...]
    setattr_ns: int

    def at(self, load: Load, arrivals: Arrivals) -> ModelNumbers:
        """Return all parameters of the simulator for these settings and a load (number, rate and timing of calls)."""
        return {
            **self.numbers,
            "rate_cps": float(arrivals.cps),
            "calls": arrivals.calls,
            "seed": arrivals.seed,
            "constant_arrivals": load.law == "constant",
            # SEE RFC 3261, 17.1.1.2 and 17.1.2.2: over TCP, a client does not retransmit requests
            "retransmissions": load.retransmissions and not self.sut.over_tcp,
            "answered": True,
            "hold_exponential": load.hold_law == "exponential",
            "ring_ns": load.ring_time_ms * 1_000_000,
            "hold_ns": load.hold_time_ms * 1_000_000,
            "drain_ns": round(load.drain_s * 1e9),
            "setup_limit_ns": load.setup_limit_ms * 1_000_000,
            "t1_ns": T1_NS,
            "t2_ns": T2_NS,
            "events_max": 1_000_000 + EVENTS_A_CALL * arrivals.calls,
        }

    def text(self, design: Design) -> str:
        """Return the windows of a run that compares modes, in the text format that the simulator reads."""
        lines = [
            f"sample {SAMPLE_NS}",
            f"setattr {self.setattr_ns}",
            *(
                f"mode {number} {line}"
                for number, values in enumerate(self.switched)
                for line in write_numbers(values).splitlines()
            ),
            *(f"window {window.start_ns} {window.mode}" for window in design.windows),
            f"end {design.end_ns}",
        ]
        return "\n".join(lines) + "\n"


def plan_point(point: Point, config: Config, testbed: Testbed) -> SimulatedPoint:
    """Compute the simulator's parameters for a point from the model's file, the kernel and the mode.

    Raises
    ------
    StableError
        The model has no parameters for the SUT, or the simulator cannot simulate the mode or the competitors.
    """
    simulated, sut = _simulated(testbed), config.sut(point.sut)
    models = [load_model(name) for name in simulated.models]
    model = next((model for model in models if model.sut.proxy == sut.proxy), models[0])
    model.check_sut(sut)
    cores = max(cores_of(point.mode, point.cores))
    layout = _layout(simulated, cores)
    kernel = simulated_kernel(simulated.kernel, cores, simulated.base_slice_ns)
    declared = load_modes()
    found_modes = [find_mode(name, declared) for name in compared(point.mode)]
    states = [_tuned(mode, layout, kernel, point.threads) for mode in found_modes]
    several = instances(found_modes, point.sut, point.threads, point.cores)
    modes = playable(point.mode, states, several) if is_comparison(point.mode) else None
    state = states[0]
    numbers: dict[str, Value] = {
        **model.numbers,
        **model.deployed(sut, point.threads, cores),
        "cores": cores,
        "cores_per_processor": simulated.cores_together(cores),
        # ASSUME all other cores are offline, as in the single-core paper
        **{"online": 0, "online_per_processor": 0, "numa": simulated.numa},
        "receive_cpus": min(int(model.numbers["receive_cpus"]), cores),
        # If the cores are numbered in turn, neighbouring cores belong to different processors.
        "receive_step": simulated.cores_together(cores) if simulated.alternate else 1,
        "receive_buffer_bytes": 2 * sut.receive_buffer_bytes,
        # SEE net/ipv4/udp.c: Linux 6.15 changed the condition on which __udp_enqueue_schedule_skb() refuses a datagram
        "queue_rule": "within" if simulated.is_eevdf else "until_over",
        # SEE udp_rmem_release() in net/ipv4/udp.c: since Linux 4.10, readers return the memory of datagrams later
        "deferred_release": simulated.kernel != "3.2",
        "workers": point.threads,
        **_compared(point, sut, modes),
        "placement": True,
        **_competitors(testbed.competitors, cores),
        **_reader(testbed.competitors, cores),
        "competitor_slice_ns": kernel.base_slice_ns or NORMAL_SLICE_NS,
        **_scheduling(state, simulated),
    }
    for mechanism in simulated.without:
        numbers |= WITHOUT[mechanism]
    switched = []
    for mode in modes.modes if modes else ():
        scheduling = _scheduling(mode, simulated)
        switched.append({name: scheduling[name] for name in SWITCHED})
    return SimulatedPoint(
        point=point,
        sut=sut,
        state=state,
        kernel=f"{simulated.kernel} (simulated)",
        numbers=numbers,
        modes=modes,
        switched=tuple(switched),
        setattr_ns=simulated.setattr_ns,
    )


def _compared(point: Point, sut: Sut, modes: Playable | None) -> dict[str, Value]:
    """Return the simulator's parameters for the instances that a run compares. For one instance, all numbers are 0.

    Raises
    ------
    StableError
        The run compares instances over TCP, instances with several sockets, other SUTs, or too many instances.
    """
    started = modes.instances.started if modes else ()
    if len(started) < 2:
        return {
            "compared": 0,
            **dict.fromkeys(("compared_workers", "compared_cores"), [0] * COMPARED_MAX),
            "compared_buffer_bytes": [0] * COMPARED_MAX,
        }
    suts = dict.fromkeys(one.sut for one in started)
    if len(suts) > 1 or sut.over_tcp or sut.sharded or len(started) > COMPARED_MAX:
        raise StableError(
            f"{point}: the simulator compares up to {COMPARED_MAX} instances of one SUT over UDP with deployment "
            f"shared, found {len(started)} instances of {', '.join(suts)} over {sut.transport.upper()} with "
            f"deployment {sut.deployment}; compare them on another testbed"
        )
    lists = {
        "compared_workers": [one.threads for one in started],
        "compared_cores": [one.cores or point.cores for one in started],
        "compared_buffer_bytes": [
            2 * (one.receive_buffer_bytes or sut.receive_buffer_bytes) for one in started
        ],
    }
    rest = [0] * (COMPARED_MAX - len(started))
    counts = dict.fromkeys(("compared", "sockets", "instances"), len(started))
    return {
        **counts,
        "workers": sum(lists["compared_workers"]),
        **{name: [*values, *rest] for name, values in lists.items()},
    }


def simulated_kernel(kernel: str, cores: int, base_slice_ns: int | None = None) -> KernelScheduler:
    """Return the default scheduler settings of a simulated kernel for a number of CPUs.

    Parameters
    ----------
    kernel
        Version of the kernel, such as `6.18` or `5.10`.
    base_slice_ns
        Base slice of EEVDF in ns; None for the default for the number of CPUs.
    """
    # SEE get_update_sysctl_factor() in kernel/sched/fair.c for the factor by which settings grow with the CPUs
    factor = 1 + int(math.log2(min(cores, 8)))
    scaling = list(Scaling).index(Scaling.LOGARITHMIC)
    if kernel != "6.18":
        values = {
            Setting.LATENCY: NORMAL_LATENCY_NS * factor,
            Setting.MIN_GRANULARITY: NORMAL_GRANULARITY_NS * factor,
            Setting.WAKEUP_GRANULARITY: NORMAL_WAKEUP_NS * factor,
            Setting.MIGRATION_COST: MIGRATION_COST_NS,
            Setting.TUNABLE_SCALING: scaling,
        }
        files = {f"{scheduler.SYSCTL}sched_{key}": str(value) for key, value in values.items()}
        return KernelScheduler(files, task_slices=False)
    base_ns = base_slice_ns or NORMAL_SLICE_NS * factor
    files = {
        scheduler.DEBUGFS + Setting.MIGRATION_COST: str(MIGRATION_COST_NS),
        scheduler.DEBUGFS + Setting.TUNABLE_SCALING: str(scaling),
        scheduler.BASE_SLICE: str(base_ns),
    }
    return KernelScheduler(files, task_slices=True, base_slice_ns=base_ns)


def _simulated(testbed: Testbed) -> SimulatedMachine:
    if testbed.simulated is None:
        raise StableError(f"testbed {testbed.name} is of kind {testbed.kind}, not simulated")
    return testbed.simulated


def _layout(simulated: SimulatedMachine, cores: int) -> CpuLayout:
    """Return the layout of the first CPUs of a simulated machine. The CPUs of a processor have consecutive numbers."""
    processors = [number // simulated.cores_per_processor for number in range(cores)]
    return CpuLayout(tuple(Cpu(n, n, where, where, where) for n, where in enumerate(processors)))


def _tuned(mode: Mode, layout: CpuLayout, kernel: KernelScheduler, threads: int) -> Tuned:
    counts = Counts(len(layout.cpus), threads, layout.processors)
    steps = compile_mode(mode.settings(counts), kernel)
    if any(step.setting is Setting.RECORDING for step in steps):
        raise StableError(
            f"mode {mode.name}: the simulator has no probe, so it cannot switch the recording on or off"
        )
    task = task_attributes(steps)
    read_back = {
        step.place: [task.value(step.place)] * threads
        for step in steps
        if step.place and scheduler.is_of_tasks(step) and not step.unavailable
    }
    return Tuned(mode, layout, kernel, steps, {**read_back, **dict(writes(steps))})


def _competitors(declared: Sequence[DeclaredCompetitor], cores: int) -> dict[str, Value]:
    """Return the simulator's parameters for the competitors, which are other programs on the proxy's CPUs.

    Raises
    ------
    StableError
        Too many competitors are declared, or the simulator cannot simulate one of them.
    """
    rows: list[tuple[int, int, str, int, int, int]] = []
    for one in declared:
        if one.period_us is None:
            continue
        cpus = [cpu for cpu in one.cpus or range(cores) if cpu < cores]
        if cpus and cpus != list(range(cpus[0], cpus[-1] + 1)):
            raise StableError(
                f"competitor {one.name}: cpus: the simulator needs consecutive CPUs, found {cpus}"
            )
        if one.policy == "fifo" and one.is_always_busy:
            raise StableError(
                f"competitor {one.name}: the simulator has no limit for real-time tasks, so a SCHED_FIFO task that "
                "computes all the time would never let the proxy run; set busy_us to less than period_us"
            )
        if cpus:
            # The simulator's competitors without a period compute all the time.
            period_ns = 0 if one.is_always_busy else one.period_us * 1000
            work_ns = one.busy_us * 1000
            rows.append((period_ns, work_ns, one.policy, one.nice, cpus[0], len(cpus)))
    count = len(rows)
    if count > COMPETITORS_MAX:
        raise StableError(
            f"competitors: the simulator has at most {COMPETITORS_MAX}, found {count}"
        )
    rows += [(0, 0, "other", 0, 0, 1)] * (COMPETITORS_MAX - count)
    period, work, policy, nice, first, number = zip(*rows, strict=True)
    return {
        "competitors": count,
        "competitor_period_ns": period,
        "competitor_work_ns": work,
        "competitor_policy": policy,
        "competitor_nice": nice,
        "competitor_first_cpu": first,
        "competitor_cpus": number,
    }


def _reader(declared: Sequence[DeclaredCompetitor], cores: int) -> dict[str, Value]:
    """Return the simulator's parameters for the competitor that reads the proxy's log; empty if none is declared.

    Raises
    ------
    StableError
        The simulator cannot simulate the reader's CPUs or its scheduling policy.
    """
    readers = [one for one in declared if one.reads_log]
    if not readers:
        return {}
    (reader,) = readers
    on_proxy = {cpu for cpu in reader.cpus or range(cores) if cpu < cores}
    if on_proxy and len(on_proxy) < cores:
        raise StableError(
            f"competitor {reader.name}: cpus: the simulator's reader of the log uses all CPUs of the proxy or another "
            f"CPU, found {sorted(on_proxy)} of {cores} CPUs"
        )
    if reader.policy != "other" or reader.nice:
        raise StableError(
            f"competitor {reader.name}: the simulator's reader of the log has policy other and nice value 0; remove "
            "policy and nice"
        )
    return {
        "logger_ns": reader.busy_us * 1000,
        "logger_queue": LOG_QUEUE,
        "logger_apart": not on_proxy,
    }


def _scheduling(state: Tuned, simulated: SimulatedMachine) -> dict[str, Value]:
    """Return the simulator's scheduler parameters: the defaults of the kernel, changed by the settings of the mode."""
    defaults = {path: int(text) for path, text in state.kernel.files.items() if text is not None}
    values = defaults | dict(writes(state.steps))
    task = task_attributes(state.steps)

    def value(setting: Setting, otherwise: int) -> int:
        path = state.kernel.place(setting)
        return otherwise if path is None else values[path]

    latency_ns = value(Setting.LATENCY, NORMAL_LATENCY_NS)
    granularity_ns = value(Setting.MIN_GRANULARITY, NORMAL_GRANULARITY_NS)
    return {
        "rules": "eevdf" if simulated.is_eevdf else "cfs",
        # With EEVDF, the parameter `release` affects one decision: when a newly idle CPU takes a task from another CPU.
        # For this decision, Linux 6.18 has the same conditions as Linux 6.1.
        "release": "6.1" if simulated.is_eevdf else simulated.kernel,
        "policy": str(task.policy),
        "nice": task.nice,
        "slice_ns": task.slice_ns or values.get(scheduler.BASE_SLICE, NORMAL_SLICE_NS),
        "base_slice_ns": NORMAL_SLICE_NS,
        # SEE kernel/sched/features.h of Linux 6.18 for the defaults of the scheduler's features
        "place_lag": True,
        "run_to_parity": True,
        "preempt_short": True,
        "delay_dequeue": True,
        "latency_ns": latency_ns,
        "min_granularity_ns": granularity_ns,
        "wakeup_granularity_ns": value(Setting.WAKEUP_GRANULARITY, NORMAL_WAKEUP_NS),
        # SEE sched_proc_update_handler() in kernel/sched/fair.c of Linux 5.10, which divides latency by granularity
        "nr_latency": -(-latency_ns // granularity_ns),
        "migration_cost_ns": value(Setting.MIGRATION_COST, MIGRATION_COST_NS),
    }
