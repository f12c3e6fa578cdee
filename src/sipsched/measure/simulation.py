"""Runs on a testbed of kind `simulated`: the simulator's output as the record of a run."""

import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from sipsched.errors import StableError
from sipsched.measure import scheduler
from sipsched.measure.cpu_layout import Cpu, Layout
from sipsched.measure.findings import (
    arrival_numbers,
    certificate,
    compare_requests,
    foreign_datagrams,
    load_numbers,
    spread_numbers,
    window_numbers,
)
from sipsched.measure.generator import Arrivals, Served, Sipload, read_sipload_report
from sipsched.measure.scheduler import KernelScheduler, compile_mode, task_attributes, writes
from sipsched.measure.serving import Observed
from sipsched.measure.simulator import (
    Numbers,
    Outputs,
    SimulatorReport,
    Value,
    simulate,
    version,
    write_numbers,
)
from sipsched.measure.switching import SAMPLE_NS, Playable, playable
from sipsched.measure.tuning import Tuned
from sipsched.plan.config import Config, Load, Point, Run, Sut
from sipsched.plan.crossover import Crossover, Design, choose, compared, duration_s, is_comparison
from sipsched.plan.modes import Counts, Mode, Scaling, Setting, find_mode, load_modes
from sipsched.plan.simulated import load_model
from sipsched.records.record import COUNTERS_FILE, TRACE_FILE, UnfinishedRecord
from sipsched.records.run_document import (
    FrontReport,
    GeneratorReport,
    HostReport,
    HostReports,
    OfferedLoad,
    ProbeReport,
    ProxyReport,
    RunDocument,
    Settings,
    ShardReport,
    Timeline,
    TracedThread,
)
from sipsched.records.switch_log import WINDOWS_FILE, WindowsDocument, parse_log
from sipsched.records.trace import HEADER, RECORD, Event, read_trace
from sipsched.testbed.inventory import Simulated, Testbed
from sipsched.validity.counters import USER_HZ
from sipsched.validity.ledger import Ledger, Snapshots, Tally, balance, balance_messages
from sipsched.validity.verdict import RULES, judge
from sipsched.words import utc

# SEE RFC 3261, 17.1.1.1
T1_NS, T2_NS = 500_000_000, 4_000_000_000
NORMAL_LATENCY_NS, NORMAL_GRANULARITY_NS, NORMAL_WAKEUP_NS = 6_000_000, 750_000, 1_000_000
"""CFS's settings on one CPU. SEE kernel/sched/fair.c of Linux 5.10"""
NORMAL_SLICE_NS = 700_000
"""EEVDF's. SEE kernel/sched/fair.c of Linux 6.18: normalized_sysctl_sched_base_slice"""
MIGRATION_COST_NS = 500_000
EVENTS_A_CALL = 5_000
"""Events a call beyond which a run will not end; 35 is usual, and a herd of 250 workers has 2,000."""
_BEFORE_LOAD = ("started", "connected", "servers_ready", "warmup_started", "load_started")
WITHOUT: Mapping[str, Mapping[str, Value]] = {
    "lock": {"lock_share": 0.0},
    "switches": {"switch_ns": 0, "idle_exit_ns": 0},
    "refills": {"refill_ns": 0, "refill_near_ns": 0, "refill_far_ns": 0},
    "stalls": {"stall_every_ns": 0},
    "receive": {"interrupt_ns": 0, "receive_ns": 0, "wake_ns": 0},
    "placement": {"placement": False},
    "herd": {"wake_all": False},
    "migration_cost": {"migration_cost_ns": 0},
}
"""Mechanism to the numbers that switch it off."""


SWITCHED = (
    *("policy", "nice", "slice_ns", "latency_ns", "min_granularity_ns", "wakeup_granularity_ns"),
    *("nr_latency", "migration_cost_ns"),
)
"""What differs between the modes of a comparison. SEE hardware/simulator/plan.c"""
PLAN_FILE, BLOCKS_FILE = "simulator-plan.txt", "uac.blocks"


@dataclass(frozen=True)
class Plan:
    """A point on a simulated testbed: everything but the load.

    Attributes
    ----------
    state
        Its mode, of a comparison the reference.
    numbers
        Of the model, without the load.
    modes
        Of a comparison those that differ on this kernel, else None.
    switched
        By mode of the comparison, what its workers are switched to: names and numbers of the model.
    """

    point: Point
    sut: Sut
    state: Tuned
    kernel: str
    numbers: Numbers
    modes: Playable | None
    switched: tuple[Numbers, ...]
    setattr_ns: int

    def at(self, load: Load, arrivals: Arrivals) -> Numbers:
        """Give the model complete."""
        return {
            **self.numbers,
            "rate_cps": float(arrivals.cps),
            "calls": arrivals.calls,
            "seed": arrivals.seed,
            "constant_arrivals": load.law == "constant",
            # SEE RFC 3261, 17.1.1.2 and 17.1.2.2: over a reliable transport requests are not sent again
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
        """Write the windows as the simulator reads them."""
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


@dataclass(frozen=True)
class _Simulated:
    """What a simulated load leaves beside the files of its record."""

    report: SimulatorReport
    records: int
    windows: WindowsDocument | None
    served: Served | None


def simulated_run(
    run: Run, config: Config, testbed: Testbed, record: UnfinishedRecord, arrivals: Arrivals
) -> RunDocument:
    """Do a run in the simulator; files go to the record, the content of run.json comes back.

    Nothing warms up: the model has no caches of its own, and its first calls meet an empty queue. Before a
    comparison of modes a load of the same rate, of which nothing is kept, tells how long its windows are to be.

    Raises
    ------
    StableError
        The run asks for what the model has not: another SUT, SIPp, a probe that could be stilled.
    """
    started = time.time()
    load = config.load_of(run)
    plan = plan_point(run.point, config, testbed)
    design = None
    if plan.modes:
        design = _choose(run, plan, plan.modes, load, config.crossover, arrivals)
        blocks = [(window.block, window.length_ns) for window in design.windows]
        arrivals = Arrivals.in_blocks(run.cps, arrivals.seed, blocks)
    folder = record.folder
    done = _simulate(plan, load, arrivals, design, config.crossover.steal_share, record)
    ended = time.time()
    report, windows = done.report, done.windows
    statistics = read_sipload_report((folder / "uac.json").read_text(), "uac.json")
    counters = _counters(report, run.cores, plan.sut.over_tcp)
    record.write(COUNTERS_FILE, zstandard.compress(json.dumps(counters).encode()))
    observed = Observed(
        started=started,
        ended=ended,
        statistics=statistics,
        counters=counters,
        ledger=_ledger(plan.sut, report, counters),
        no_ports=0,
        clock_step_s=0.0,
        proxy=_proxy_report(plan, report, done.served),
        served=done.served,
    )
    trace = None
    probe = ProbeReport(mode="off", mode_reason="asked for", records=0, drops=0, lost=0)
    if plan.sut.probe != "off":
        trace = read_trace(folder / TRACE_FILE, done.records)
        probe = _probe_report(report, done.records)
    certified = certificate(Sipload(), folder, trace, run.cps, load.law, statistics.replays)
    requests = compare_requests(statistics.requests, trace, probe)
    cpus = tuple(cpu.number for cpu in plan.state.layout.cpus)
    verdict = judge(
        {
            **dict.fromkeys(RULES),
            **arrival_numbers(certified),
            **load_numbers(observed, cpus),
            **window_numbers(windows),
            **spread_numbers(trace, observed.served, plan.sut, run.threads),
            "foreign_datagrams": foreign_datagrams(trace),
            "probe_lost": 0,
            "retransmission_disagreement": requests.disagreement,
            "settings_unlike_asked": plan.state.unlike_asked,
        },
        config.validity,
    )
    return RunDocument(
        run=run,
        testbed=testbed.labels,
        sut=plan.sut,
        started_at=utc(started),
        finished_at=utc(time.time()),
        timeline=Timeline(**dict.fromkeys(_BEFORE_LOAD, started), load_ended=ended, fetched=ended),
        load=OfferedLoad(**vars(load), calls=statistics.calls_offered, seed=arrivals.seed),
        generator=GeneratorReport(version=version(), **statistics.counts),
        certificate=certified,
        requests=requests,
        proxy=observed.proxy,
        probe=probe,
        hosts=_hosts(plan.kernel, cpus),
        settings=Settings(2 * plan.sut.receive_buffer_bytes, cpus),
        scheduler=plan.state.report(),
        layout=plan.state.layout.describe(),
        ledger=observed.ledger,
        verdict=verdict,
        crossover=plan.modes.report(windows) if plan.modes and windows else None,
    )


def _choose(
    run: Run, plan: Plan, modes: Playable, load: Load, crossover: Crossover, arrivals: Arrivals
) -> Design:
    """Draw the windows, by what a load beforehand takes of the SPS's CPUs."""
    calls = max(1, round(run.cps * load.warmup_s))
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        before = Arrivals(run.cps, calls, arrivals.seed + 1)
        report = simulate(plan.at(load, before), Path(scratch))
    cpu_s = report.charged_ns / 1e9 / run.cores
    # one message at least is served: a socket that holds nothing takes any
    busy = (cpu_s / before.duration_s, cpu_s / report.served)
    total_s = duration_s(run.mode, crossover)
    return choose(modes.names, total_s, crossover, *busy, arrivals.seed)


def _simulate(
    plan: Plan,
    load: Load,
    arrivals: Arrivals,
    design: Design | None,
    steal_share: float,
    record: UnfinishedRecord,
) -> _Simulated:
    """Offer a load in the simulator; its files go to the record."""
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        here = Path(scratch)
        outputs = Outputs(here / "trace.bin", here / "uac.calls", here / "uac.json")
        written = [outputs.uac]
        if design:
            outputs = replace(
                outputs, plan=here / PLAN_FILE, blocks=here / BLOCKS_FILE, log=here / "windows.json"
            )
            blocks = arrivals.blocks or ()
            (here / PLAN_FILE).write_text(plan.text(design))
            (here / BLOCKS_FILE).write_text("".join(f"{b} {ns}\n" for b, ns in blocks))
            written += [here / PLAN_FILE, here / BLOCKS_FILE]
        report = simulate(plan.at(load, arrivals), here, outputs)
        windows = None
        if design and outputs.log:
            log = parse_log(outputs.log.read_text(), outputs.log.name)
            cpus = tuple(cpu.number for cpu in plan.state.layout.cpus)
            windows = WindowsDocument(design, cpus, steal_share, log)
            record.write(WINDOWS_FILE, windows.to_bytes())
        if plan.sut.probe != "off":
            _compress(record, outputs.trace, TRACE_FILE)
        _compress(record, outputs.calls, "uac.calls.zst")
        for path in written:
            record.write(path.name, path.read_bytes())
        for name in ("report.json", "model.txt"):
            record.write(f"simulator-{name}", (here / name).read_bytes())
        records = np.frombuffer(outputs.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
        served = _served(report, records) if plan.sut.told_apart else None
    return _Simulated(report, len(records), windows, served)


def _served(report: SimulatorReport, records: npt.NDArray[np.void]) -> Served:
    """Tell instances apart as a UAS does by their addresses: here by the worker, of which each has one."""
    taken = records[records["event"] == Event.MESSAGE]
    pairs = np.unique(taken[["call_id_hash", "tid"]])
    calls = np.unique(pairs["call_id_hash"]).size
    _, of_worker = np.unique(pairs["tid"], return_counts=True)
    messages = Tally(
        sent=report.arrived - report.from_uac, received=report.datagrams_sent - report.sent_to_uac
    )
    return Served(messages, tuple(map(int, of_worker)), pairs.size - calls)


def _proxy_report(plan: Plan, report: SimulatorReport, served: Served | None) -> ProxyReport:
    shards = front = calls = None
    if plan.sut.sharded:
        # the proxy with its sockets is as old as the load
        shards = ShardReport(report.selected or (report.arrived,), 0, 0, 0, 0)
    if plan.sut.fronted:
        cpus = tuple(cpu.number for cpu in plan.state.layout.cpus)
        front = FrontReport("sipsim", cpus, sum(each.charged_ns for each in report.fronts))
    if served:
        calls = (*served.calls, *(0,) * (plan.point.threads - len(served.calls)))
    return ProxyReport(report.charged_ns, shards, front, calls)


def _probe_report(report: SimulatorReport, records: int) -> ProbeReport:
    return ProbeReport(
        mode="simulated",
        mode_reason="the model's own instants; nothing was measured",
        records=records - report.refused,
        drops=report.refused,
        lost=0,
        arrived=report.arrived,
        received=report.received,
        sent=report.datagrams_sent,
        refused=report.refused,
        threads=tuple(
            TracedThread(1000 + i, "worker", worker.messages)
            for i, worker in enumerate(report.workers)
        ),
    )


def _ledger(sut: Sut, report: SimulatorReport, counters: Snapshots) -> Ledger:
    if not sut.over_tcp:
        return balance(counters)
    # ASSUME agents lose nothing: what reaches the SPS was sent, and what it sends arrives
    agents = Tally(report.arrived, report.datagrams_sent)
    return balance_messages(counters, agents, Tally(report.datagrams_sent, report.received))


def simulated_counts(plan: Plan, load: Load, arrivals: Arrivals) -> tuple[int, int]:
    """Offer a load in the simulator and keep nothing of it.

    Returns
    -------
    tuple of int
        SIP messages that the sockets took, and that they refused; over TCP calls that were set up in time and
        completed, and the others.
    """
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        report = simulate(plan.at(load, arrivals), Path(scratch))
    if plan.sut.over_tcp:
        return report.calls_good, report.calls_started - report.calls_good
    return report.received, report.refused


def plan_point(point: Point, config: Config, testbed: Testbed) -> Plan:
    """Give the numbers of a point: those of the model's file, of the kernel, and of the mode.

    Raises
    ------
    StableError
        As `simulated_run`.
    """
    simulated, sut = _simulated(testbed), config.sut(point.sut)
    if config.load.generator != "sipload":
        raise StableError(
            f"testbed {testbed.name}: load.generator: the model starts calls as sipload does; "
            f"expected sipload, found {config.load.generator}"
        )
    model = load_model(simulated.model)
    model.check_sut(sut)
    layout = _layout(simulated, point.cores)
    kernel = simulated_kernel(simulated.kernel, point.cores, simulated.base_slice_ns)
    declared = load_modes()
    states = [
        _tuned(find_mode(name, declared), layout, kernel, point.threads)
        for name in compared(point.mode)
    ]
    modes = playable(point.mode, states) if is_comparison(point.mode) else None
    state = states[0]
    numbers: dict[str, Value] = {
        **model.numbers,
        **model.deployed(sut, point.threads, point.cores),
        "cores": point.cores,
        "cores_per_processor": simulated.cores_per_processor,
        "receive_cpus": min(int(model.numbers["receive_cpus"]), point.cores),
        "receive_buffer_bytes": 2 * sut.receive_buffer_bytes,
        # SEE net/ipv4/udp.c: __udp_enqueue_schedule_skb(), changed in Linux 6.15
        "queue_rule": "within" if simulated.is_eevdf else "until_over",
        "deferred_release": True,
        "workers": point.threads,
        "placement": True,
        **_scheduling(state, simulated),
    }
    for mechanism in simulated.without:
        numbers |= WITHOUT[mechanism]
    switched = []
    for each in modes.modes if modes else ():
        scheduling = _scheduling(each, simulated)
        switched.append({name: scheduling[name] for name in SWITCHED})
    return Plan(
        point=point,
        sut=sut,
        state=state,
        kernel=f"{simulated.kernel} (simulated)",
        numbers=numbers,
        modes=modes,
        switched=tuple(switched),
        setattr_ns=simulated.setattr_ns,
    )


def simulated_kernel(kernel: str, cores: int, base_slice_ns: int | None = None) -> KernelScheduler:
    """Say what a simulated kernel shows of its scheduler: its defaults for that many CPUs.

    Parameters
    ----------
    kernel
        `6.18` or `5.10`.
    cores
        CPUs online.
    base_slice_ns
        EEVDF's, if it is not that of so many CPUs.
    """
    # SEE kernel/sched/fair.c: get_update_sysctl_factor()
    factor = 1 + int(math.log2(min(cores, 8)))
    scaling = list(Scaling).index(Scaling.LOGARITHMIC)
    if kernel == "5.10":
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


def _simulated(testbed: Testbed) -> Simulated:
    if testbed.simulated is None:
        raise StableError(f"testbed {testbed.name} is of kind {testbed.kind}, not simulated")
    return testbed.simulated


def _layout(simulated: Simulated, cores: int) -> Layout:
    """Take one processor's CPUs first, as a testbed's file lists them."""
    processors = [number // simulated.cores_per_processor for number in range(cores)]
    return Layout(tuple(Cpu(n, n, where, where, where) for n, where in enumerate(processors)))


def _tuned(mode: Mode, layout: Layout, kernel: KernelScheduler, threads: int) -> Tuned:
    counts = Counts(len(layout.cpus), threads, layout.processors)
    steps = compile_mode(mode.settings(counts), kernel)
    if any(step.setting is Setting.RECORDING for step in steps):
        raise StableError(f"mode {mode.name}: a model has no probe whose recording costs anything")
    task = task_attributes(steps)
    read_back = {
        step.place: [task.value(step.place)] * threads
        for step in steps
        if step.place and scheduler.is_of_tasks(step) and not step.unavailable
    }
    return Tuned(mode, layout, kernel, steps, {**read_back, **dict(writes(steps))})


def _scheduling(state: Tuned, simulated: Simulated) -> dict[str, Value]:
    """Give the scheduler's numbers: the kernel's own, and what the mode writes over them."""
    found = {path: int(text) for path, text in state.kernel.files.items() if text is not None}
    values = found | dict(writes(state.steps))
    task = task_attributes(state.steps)

    def value(setting: Setting, otherwise: int) -> int:
        path = state.kernel.place(setting)
        return otherwise if path is None else values[path]

    latency_ns = value(Setting.LATENCY, NORMAL_LATENCY_NS)
    granularity_ns = value(Setting.MIN_GRANULARITY, NORMAL_GRANULARITY_NS)
    return {
        "rules": "eevdf" if simulated.is_eevdf else "cfs",
        "policy": str(task.policy),
        "nice": task.nice,
        "slice_ns": task.slice_ns or values.get(scheduler.BASE_SLICE, NORMAL_SLICE_NS),
        "base_slice_ns": NORMAL_SLICE_NS,
        # SEE kernel/sched/features.h of Linux 6.18
        "place_lag": True,
        "run_to_parity": True,
        "preempt_short": True,
        "delay_dequeue": True,
        "latency_ns": latency_ns,
        "min_granularity_ns": granularity_ns,
        "wakeup_granularity_ns": value(Setting.WAKEUP_GRANULARITY, NORMAL_WAKEUP_NS),
        # SEE kernel/sched/fair.c of Linux 5.10: sched_proc_update_handler()
        "nr_latency": -(-latency_ns // granularity_ns),
        "migration_cost_ns": value(Setting.MIGRATION_COST, MIGRATION_COST_NS),
    }


def _compress(record: UnfinishedRecord, source: Path, name: str) -> None:
    record.write(name, zstandard.ZstdCompressor(level=1).compress(source.read_bytes()))


def _hosts(kernel: str, cpus: tuple[int, ...]) -> HostReports:
    def host(cpus: tuple[int, ...], versions: Mapping[str, str]) -> HostReport:
        return HostReport(
            address="simulated",
            kernel=kernel,
            cpu_model=None,
            cpus=cpus,
            helper_cpus=(),
            online_cpus=None,
            clocksource=None,
            governor=None,
            versions=versions,
            lscpu={},
            files={},
        )

    program = {"sipsim": version()}
    return HostReports(host((), program), host(cpus, program), host((), program))


def _counters(
    report: SimulatorReport, cores: int, over_tcp: bool
) -> dict[str, dict[str, dict[str, str]]]:
    """Write what the model counted as the kernel's files have it; nothing else is in them."""
    from_uas = report.arrived - report.from_uac
    to_uas = report.datagrams_sent - report.sent_to_uac
    idle = _proc_stat([(0, 0, 0, 0)] * cores)
    busy = _proc_stat(
        [(cpu.task + cpu.switch, cpu.idle, cpu.receive, cpu.stall) for cpu in report.cpus]
    )
    ends = {
        "uac": (_snmp(report.sent_to_uac, 0, report.from_uac), _proc_stat([])),
        "sps": (_snmp(report.received, report.refused, report.datagrams_sent), busy),
        "uas": (_snmp(to_uas, 0, from_uas), _proc_stat([])),
    }
    none = _snmp(0, 0, 0)
    return {
        role: {
            "before": _files(none, idle if role == "sps" else stat),
            "after": _files(none if over_tcp else snmp, stat),
        }
        for role, (snmp, stat) in ends.items()
    }


def _files(snmp: str, stat: str) -> dict[str, str]:
    interfaces = "Inter-|   Receive |  Transmit\n face |bytes packets errs drop|bytes packets\n"
    return {"/proc/net/snmp": snmp, "/proc/net/dev": interfaces, "/proc/stat": stat}


def _snmp(received: int, refused: int, sent: int) -> str:
    return (
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n"
        f"Udp: {received} 0 {refused} {sent} {refused} 0\n"
    )


def _proc_stat(cpus: list[tuple[int, int, int, int]]) -> str:
    """Write user, idle, softirq and stolen time, in ns, as the ticks of /proc/stat."""
    rows = [tuple(ns * USER_HZ // 10**9 for ns in cpu) for cpu in cpus]
    total = tuple(map(sum, zip(*rows, strict=True))) or (0, 0, 0, 0)
    named = [("cpu", total), *((f"cpu{i}", row) for i, row in enumerate(rows))]
    return "".join(
        f"{name} {user} 0 0 {idle} 0 0 {softirq} {stolen} 0 0\n"
        for name, (user, idle, softirq, stolen) in named
    )
