"""Simulated runs, whose records have the same form as the records of measured runs."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from sipsched.measure.conclusion import Performed
from sipsched.measure.generator import Arrivals, Served, read_sipload_report
from sipsched.measure.observed import Observed
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulator import (
    Outputs,
    SimulatorReport,
    simulate,
    version,
)
from sipsched.measure.switching import Playable
from sipsched.plan.config import Config
from sipsched.plan.crossover import Crossover, Design, choose, cores_of
from sipsched.plan.loads import Load
from sipsched.plan.run import Run
from sipsched.plan.sut import Sut
from sipsched.records.probe_report import ProbeReport, TracedThread
from sipsched.records.proxy_report import FrontReport, ProxyReport, ShardReport
from sipsched.records.record import TRACE_FILE, UnfinishedRecord
from sipsched.records.run_document import HostReport, HostReports, Settings
from sipsched.records.switch_log import SwitchLog, WindowsDocument, parse_log
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import Testbed
from sipsched.validity.counters import USER_HZ
from sipsched.validity.ledger import Ledger, Snapshots, Tally, balance, balance_messages

PLAN_FILE, BLOCKS_FILE = "simulator-plan.txt", "uac.blocks"


def simulated_run(
    run: Run, config: Config, testbed: Testbed, record: UnfinishedRecord, arrivals: Arrivals
) -> Performed:
    """Simulate a run, and write the files of the generator and the probe to the record.

    A simulated run has no warm-up, because the model has no caches to fill. So the first calls arrive at an empty
    queue. If the run compares modes, a short load of the same rate is simulated first, because the length of the
    windows depends on the utilisation.

    Raises
    ------
    StableError
        The model has no parameters for the SUT, or the simulator cannot simulate the mode or the competitors.
    """
    started = time.time()
    load = config.load
    plan = plan_point(run.point, config, testbed)
    design = None
    if plan.modes:
        design = _choose(run, plan, plan.modes, load, config.crossover, arrivals)
        of_window = plan.modes.instances.of_window
        blocks = [(window.block, window.length_ns, of_window(window)) for window in design.windows]
        arrivals = Arrivals.in_blocks(run.cps, arrivals.seed, blocks)
    report, log, records = _simulate(plan, load, arrivals, design, record)
    ended = time.time()
    cpus = tuple(cpu.number for cpu in plan.state.layout.cpus)
    windows = None
    if design and log:
        windows = WindowsDocument(design, cpus, config.crossover.steal_share, log)
    observed = _observed(plan, report, records, (record.folder / "uac.json").read_text())
    probe = ProbeReport(mode="off", mode_reason="asked for", records=0, drops=0, lost=0)
    if plan.sut.probe != "off":
        probe = _probe_report(report, len(records))
    return Performed(
        run=run,
        load=load,
        testbed=testbed.labels,
        sut=plan.sut,
        proxies=[(plan.sut, one.threads) for one in plan.modes.instances.started]
        if plan.modes
        else [(plan.sut, run.threads)],
        state=plan.state,
        timeline={
            **dict.fromkeys(("started", "connected", "servers_ready", "warmup_started"), started),
            "fetched": ended,
        },
        seed=arrivals.seed,
        observed=replace(observed, started=started, ended=ended),
        probe=probe,
        generator_version=version(),
        hosts=_hosts(plan.kernel, cpus),
        settings=_settings(plan, cpus),
        windows=windows,
        modes=plan.modes,
    )


def _observed(
    plan: SimulatedPoint, report: SimulatorReport, records: npt.NDArray[np.void], uac: str
) -> Observed:
    """Convert the reports of the simulator and of its UAC into the counts of a load."""
    served = _served(report, records) if plan.sut.told_apart else None
    counters = _counters(report, plan.sut.over_tcp)
    return Observed(
        started=0.0,
        ended=0.0,
        statistics=read_sipload_report(uac, "uac.json"),
        counters=counters,
        ledger=_ledger(plan.sut, report, counters),
        no_ports=0,
        clock_step_s=0.0,
        proxy=_proxy_report(plan, report, served),
        served=served,
    )


def _choose(
    run: Run,
    plan: SimulatedPoint,
    modes: Playable,
    load: Load,
    crossover: Crossover,
    arrivals: Arrivals,
) -> Design:
    """Return random windows (short stretches of time in one mode), with lengths from a simulation of the warm-up."""
    calls = max(1, round(run.cps * load.warmup_s))
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        before = Arrivals(run.cps, calls, arrivals.seed + 1)
        report = simulate(plan.at(load, before), Path(scratch))
    # All calls of the warm-up go to the instance of the reference mode. The instance with the fewest cores decides how
    # long windows must be.
    cores = min(cores_of(run.mode, run.cores))
    cpu_s, servers = report.charged_ns / 1e9, 1 if plan.sut.sharded else cores
    # `report.served` is at least 1, because the proxy serves at least the first message. So no division by 0 can occur.
    busy = (cpu_s / before.duration_s / cores, cpu_s / report.served / servers)
    return choose(modes.names, load, crossover, *busy, arrivals.seed)


def _simulate(
    plan: SimulatedPoint,
    load: Load,
    arrivals: Arrivals,
    design: Design | None,
    record: UnfinishedRecord,
) -> tuple[SimulatorReport, SwitchLog | None, npt.NDArray[np.void]]:
    """Simulate a load, and write its files to the record.

    Returns
    -------
    tuple
        The counts, the log of the switches (None without windows), and the records of the trace (dtype `RECORD`).
    """
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        here = Path(scratch)
        outputs = Outputs(here / "trace.bin", here / "uac.calls", here / "uac.json")
        written = [outputs.uac]
        if design:
            outputs = replace(
                outputs, plan=here / PLAN_FILE, blocks=here / BLOCKS_FILE, log=here / "windows.json"
            )
            (here / PLAN_FILE).write_text(plan.text(design))
            (here / BLOCKS_FILE).write_text(arrivals.blocks_text)
            written += [here / PLAN_FILE, here / BLOCKS_FILE]
        report = simulate(plan.at(load, arrivals), here, outputs)
        log = parse_log(outputs.log.read_text(), outputs.log.name) if outputs.log else None
        if plan.sut.probe != "off":
            _compress(record, outputs.trace, TRACE_FILE)
        _compress(record, outputs.calls, "uac.calls.zst")
        for path in written:
            record.write(path.name, path.read_bytes())
        for name in ("report.json", "model.txt"):
            record.write(f"simulator-{name}", (here / name).read_bytes())
        records = np.frombuffer(outputs.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
    return report, log, records


def _served(report: SimulatorReport, records: npt.NDArray[np.void]) -> Served:
    """Return the counts of a simulated UAS, such as the calls per proxy instance.

    Each simulated instance has only one worker, so the worker of a message identifies the instance.
    """
    taken = records[records["event"] == Event.MESSAGE]
    pairs = np.unique(taken[["call_id_hash", "tid"]])
    calls = np.unique(pairs["call_id_hash"]).size
    _, of_worker = np.unique(pairs["tid"], return_counts=True)
    messages = Tally(
        sent=report.arrived - report.from_uac, received=report.datagrams_sent - report.sent_to_uac
    )
    # A simulated UAS is never late, so its lateness is 0.
    return Served(messages, tuple(map(int, of_worker)), pairs.size - calls, 0.0)


def _proxy_report(
    plan: SimulatedPoint, report: SimulatorReport, served: Served | None
) -> ProxyReport:
    shards = front = calls = None
    if plan.sut.sharded:
        # The simulated proxy starts together with the load, so its sockets receive only messages of the load.
        shards = ShardReport(report.selected or (report.arrived,), 0, 0, 0, 0)
    if plan.sut.fronted:
        host = plan.sut.front_host
        cpus = tuple(cpu.number for cpu in plan.state.layout.cpus) if host == "sps" else ()
        used_ns = sum(front.charged_ns for front in report.fronts)
        front = FrontReport("sipsim", cpus, used_ns, host=host)
    if served:
        calls = (*served.calls, *(0,) * (plan.point.threads - len(served.calls)))
    return ProxyReport(report.charged_ns, shards, front, calls)


def _settings(plan: SimulatedPoint, cpus: tuple[int, ...]) -> Settings:
    """Return the receive buffers and the CPUs of the simulated proxy, and of each instance that the run compares."""
    own = 2 * plan.sut.receive_buffer_bytes
    started = plan.modes.instances.started if plan.modes else ()
    sizes = tuple(
        2 * one.receive_buffer_bytes if one.receive_buffer_bytes else own for one in started
    )
    return Settings(own, cpus, so_rcvbuf_of_instances=sizes if len(sizes) > 1 else ())


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
    # ASSUME the simulated UAC and UAS lose no message
    agents = Tally(report.arrived, report.datagrams_sent)
    return balance_messages(counters, agents, Tally(report.datagrams_sent, report.received))


def simulated_counts(plan: SimulatedPoint, load: Load, arrivals: Arrivals) -> tuple[int, int]:
    """Simulate a load, and return two counts: received and dropped messages, or over TCP good and other calls.

    Returns
    -------
    tuple of int
        The numbers of SIP messages that the sockets received and refused. Over TCP, the number of calls that completed
        and were set up in time, and the number of other calls.
    """
    with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as scratch:
        report = simulate(plan.at(load, arrivals), Path(scratch))
    if plan.sut.over_tcp:
        return report.calls_good, report.calls_started - report.calls_good
    return report.received, report.refused


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


def _counters(report: SimulatorReport, over_tcp: bool) -> dict[str, dict[str, dict[str, str]]]:
    """Convert the simulator's counts into texts in the format of the kernel's counter files, such as /proc/stat."""
    from_uas = report.arrived - report.from_uac
    to_uas = report.datagrams_sent - report.sent_to_uac
    idle = _proc_stat([(0, 0, 0, 0)] * len(report.cpus))
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
    """Convert the user, idle, softirq and stolen times of CPUs from ns into the format of /proc/stat."""
    rows = [tuple(ns * USER_HZ // 10**9 for ns in cpu) for cpu in cpus]
    total = tuple(map(sum, zip(*rows, strict=True))) or (0, 0, 0, 0)
    named = [("cpu", total), *((f"cpu{i}", row) for i, row in enumerate(rows))]
    return "".join(
        f"{name} {user} 0 0 {idle} 0 0 {softirq} {stolen} 0 0\n"
        for name, (user, idle, softirq, stolen) in named
    )
