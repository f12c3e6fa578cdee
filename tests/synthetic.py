"""Synthetic records with known properties, for tests and benchmarks. No record was measured."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
import zstandard

from sipsched.analysis import comparison, papers, papers_predicted
from sipsched.analysis.capacity.estimate import estimate_capacities
from sipsched.analysis.capacity.queues import queue
from sipsched.analysis.run_table import Campaign
from sipsched.files import seal
from sipsched.plan.crossover import Design, draw
from sipsched.plan.run import Point, TestbedLabels
from sipsched.plan.run import Run as PlannedRun
from sipsched.plan.sut import Sut
from sipsched.records import (
    manifest,
    record,
    run_summary,
    study_summary,
    summary_files,
    summary_variables,
    trace,
)
from sipsched.records.bursts import BURSTS_FILE
from sipsched.records.conversion import as_part
from sipsched.records.crossing import SearchRecord, TrialRecord
from sipsched.records.load_report import GeneratorReport, OfferedLoad, Requests, Sends
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.probe_report import ProbeReport
from sipsched.records.proxy_report import ProxyReport
from sipsched.records.record import GENERATOR_FILES
from sipsched.records.run_document import HostReport, HostReports, RunDocument, Settings, Timeline
from sipsched.records.scheduler_report import CrossoverReport, SchedulerReport
from sipsched.records.switch_log import (
    WINDOWS_FILE,
    Samples,
    Switch,
    SwitchLog,
    WindowsDocument,
)
from sipsched.records.system_capacity import SystemCapacity
from sipsched.records.windows import SHAM, STATISTICS, VARIABLES
from sipsched.validity.ledger import Balance, Ledger
from sipsched.validity.verdict import INVALID, Finding, Verdict
from sipsched.versions import WINDOWS_VERSION

FIDELITY = (
    "SYNTHETIC: numbers drawn from fixed distributions to test the software; nothing measured"
)
DESCRIPTION = "No machine: records written by tests/synthetic.py."
KINDS = (1, 2, 3, 4, 5, 6)
Burst = tuple[int, int, int, str, str, int]
"""A line of `bursts.json.zst`: CPU, start, end, owner, name and thread id."""
START_NS = 3_000_000_000_000
SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: {received} 0 {dropped} {sent} {dropped} 0 0
"""
LATE = Finding("lateness_p99_us", 2100.0, INVALID, 2000.0)
SPOILT = Verdict(INVALID, (LATE,))
NETSTAT = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 0 0\n"
SOFTNET = "{packets:08x} 00000000 00000000 00000000 00000000\n"
UDP = (
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode ref pointer drops\n"
    "  210: 0200C80A:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 "
    "33112 2 000000000fd9c3f3 {drops}\n"
)
STAT = """\
cpu  4654 0 2018 186104 405 0 59 {steal} 0 0
cpu0 1447 0 775 94364 32 0 10 7 0 0
cpu1 3207 0 1243 91740 373 0 49 {steal} 0 0
"""


def Run(  # noqa: N802
    testbed: str = "synthetic",
    sut: str = "kamailio-udp",
    mode: str = "default",
    cores: int = 1,
    threads: int = 8,
    cps: int = 1000,
    rep: int = 1,
) -> PlannedRun:
    """Return a run of the synthetic testbed."""
    return PlannedRun(testbed, sut, mode, cores, threads, cps, rep)


GRID = [
    Run(mode=mode, cps=cps, rep=rep)
    for mode in ("default", "batch")
    for cps in (500, 1000)
    for rep in (1, 2)
]
"""Runs of two modes at two loads, with two repetitions."""


def six_per_call(
    rng: np.random.Generator, calls: int, cps: float, threads: int = 8, load: float = 0.5
) -> npt.NDArray[Any]:
    """Sample the trace records of `calls` complete calls, in the order of emission (by t_sip_out).

    Intervals are lognormal with wide tails (12.9 bytes of entropy per message at 8 workers), so a file of these
    records compresses like a measured trace.
    """
    n = 6 * calls
    records = np.zeros(n, trace.RECORD)
    call_start = START_NS + rng.exponential(1e9 / cps, calls).cumsum()
    offsets = np.array([0, 1e6, 11e6, 12e6, 22e6, 23e6])
    arrival = call_start[:, None] + offsets + rng.exponential(200e3, (calls, 6)).cumsum(axis=1)
    records["t_arr"] = arrival.ravel().astype(np.uint64)
    records["kind"] = np.tile(np.array(KINDS, np.uint8), calls)
    records["call_id_hash"] = np.repeat(rng.integers(1, 2**63, calls, dtype=np.uint64), 6)
    records["cseq"] = np.tile(np.array([1, 1, 1, 1, 2, 2], np.uint32), calls)
    records["tid"] = 4200 + rng.integers(0, threads, n)

    def lognormal(median_ns: float, sigma: float) -> npt.NDArray[np.uint64]:
        return (median_ns * np.exp(sigma * rng.standard_normal(n))).astype(np.uint64)

    records["t_stack"] = records["t_arr"] + lognormal(2_000, 0.4)
    records["t_sockq"] = records["t_stack"] + lognormal(30_000 / (1 - load), 1.2)
    records["t_sip_in"] = records["t_sockq"] + lognormal(1_200, 0.3)
    off = np.where(rng.random(n) < 0.3, rng.exponential(200e3, n), 0).astype(np.uint64)
    records["in_cost_ns"] = rng.integers(250, 700, n)
    records["out_cost_ns"] = rng.integers(250, 700, n)
    records["t_sip_out"] = records["t_sip_in"] + records["in_cost_ns"] + lognormal(90e3, 0.5) + off
    records["t_dep"] = records["t_sip_out"] + records["out_cost_ns"] + lognormal(8_000, 0.4)
    records["off_cpu_ns"] = off
    records["switches"] = off > 0
    records["cpu"] = 1
    records["length"] = 430
    records["n_send"] = 1
    records["rmem"] = 1280
    records["flags"] = trace.Flag.SOCKQ_BOUND
    return records[np.argsort(records["t_sip_out"], kind="stable")]


def refuse(records: npt.NDArray[Any], count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return the records with `count` messages turned into drops."""
    records = records.copy()
    chosen = rng.choice(len(records), count, replace=False)
    for name in ("t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep", "tid", "off_cpu_ns"):
        records[name][chosen] = 0
    records["flags"][chosen] = 0
    records["event"][chosen] = trace.Event.DROP
    records["drop_reason"][chosen] = 12
    return records


def scale_wait(records: npt.NDArray[Any], factor: float | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Multiply each message's wait in the queue by `factor`, and shift the later timestamps by the difference."""
    records = records.copy()
    wait = (records["t_sockq"] - records["t_stack"]).astype(np.float64)
    shift = (factor * wait).astype(np.int64) - wait.astype(np.int64)
    for name in ("t_sockq", "t_sip_in", "t_sip_out", "t_dep"):
        records[name] = (records[name].astype(np.int64) + shift).astype(np.uint64)
    return records


def step(setting: str, asked: int, place: str = "", unavailable: str = "") -> dict[str, Any]:
    """Return one setting of a mode in the form of run.json."""
    return {
        "setting": setting,
        "asked": asked,
        "place": place or None,
        "applied": None if unavailable else asked,
        "read_back": None,
        "unavailable": unavailable or None,
    }


def resend(records: npt.NDArray[Any], count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Append `count` retransmissions: copies of messages, 500 ms after the original message."""
    again = records[rng.choice(len(records), count, replace=False)].copy()
    again["event"] = trace.Event.MESSAGE
    again["drop_reason"] = 0
    for name in ("t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep"):
        again[name] = (
            again["t_arr"]
            + np.uint64(500_000_000)
            + {
                "t_stack": np.uint64(2_000),
                "t_sockq": np.uint64(40_000),
                "t_sip_in": np.uint64(41_000),
                "t_sip_out": np.uint64(99_000),
                "t_dep": np.uint64(108_000),
            }[name]
        )
    again["t_arr"] += np.uint64(500_000_000)
    again["tid"] = 4200
    return np.concatenate([records, again])


def without_bpf(records: npt.NDArray[Any], tail: int = 100) -> npt.NDArray[Any]:
    """Reduce records to the content that a probe in preload mode records: three timestamps, other fields unused."""
    records = records.copy()
    for name in ("t_stack", "t_sockq", "t_dep", "off_cpu_ns", "flags"):
        records[name] = 0
    return np.concatenate([records, np.zeros(tail, trace.RECORD)])


def encode(records: npt.NDArray[Any], mode: int = 2, **header: Any) -> bytes:
    """Return header and records as the bytes of a trace. Keywords change the header."""
    values = {
        "magic": trace.MAGIC,
        "version": trace.TRACE_VERSION,
        "record_size": trace.RECORD.itemsize,
        "mode": mode,
        "reserved": 0,
    } | header
    head = np.zeros(1, trace.HEADER)
    for name, value in values.items():
        head[name] = value
    return head.tobytes() + records.tobytes()


def encode_bursts(bursts: Sequence[Burst], lost: int = 0) -> bytes:
    """Return the text that sipaccount writes for bursts."""
    lines = ",\n".join(json.dumps(burst) for burst in bursts)
    return f'{{"version": 1, "bursts": [\n{lines}\n], "lost": {lost}}}\n'.encode()


def compress(data: bytes) -> bytes:
    """Compress data as a stream of unknown length, as the program `zstd` compresses its standard input."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    return compressor.compress(data) + compressor.flush()


def host(**more: Any) -> HostReport:
    """Return the description of a synthetic host."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("cpu_model", "clocksource", "governor", "address"), "none"
    )
    return HostReport(
        **nothing,
        kernel="0.0.0-synthetic",
        cpus=(1,),
        helper_cpus=(0,),
        online_cpus="0-1",
        versions=more.get("versions", {}),
        lscpu={},
        files={},
    )


def mode_report(run: PlannedRun, **chosen: Any) -> SchedulerReport:
    """Return the `scheduler` part of run.json for a mode, without a kernel."""
    return as_part(
        SchedulerReport,
        {
            "mode": run.mode,
            "label": run.mode,
            "source": "none",
            "family": "unknown",
            "found": {},
            "steps": [],
            "quiet": [],
            "repaired": False,
            "translated": False,
        }
        | chosen,
        "synthetic",
    )


@dataclass(frozen=True)
class Recorded:
    """The content of a record that `write_record` writes.

    `drops` is the number of refused messages, and `resent` is the number of retransmissions. `records` replaces the
    sampled trace records. `wait` is a factor for each wait in the queue. `scheduler` and `crossover` are the parts of
    run.json with these names; `write_comparison` writes a complete crossover run. `bursts` and `bursts_lost` are
    the content of `bursts.json.zst`; without bursts, the record lacks this file.
    """

    calls: int = 300
    drops: int = 0
    resent: int = 0
    mode: int = 2
    load: float = 0.5
    valid: bool = True
    cpu_ns_per_message: float = 70_000
    seed: int = 1
    records: npt.NDArray[Any] | None = None
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    wait: float = 1.0
    crossover: CrossoverReport | None = None
    bursts: Sequence[Burst] | None = None
    bursts_lost: int = 0

    def trace_of(self, run: PlannedRun) -> npt.NDArray[Any]:
        """Return the trace records of a run. Runs that differ only in their mode have the same arrivals."""
        records = self.records
        if records is None:
            rng = np.random.default_rng([self.seed, run.threads, run.cps, run.rep])
            records = six_per_call(rng, self.calls, run.cps, run.threads, self.load)
            records = refuse(scale_wait(records, self.wait), self.drops, rng)
            records = resend(records, self.resent, rng)
        return records


def write_record(raw: Path, run: PlannedRun, **content: Any) -> Path:
    """Write a complete record of a run, and return its directory. `content` sets attributes of `Recorded`."""
    asked = Recorded(**content)
    records = asked.trace_of(run)
    n_drops = int((records["event"] == trace.Event.DROP).sum())
    n = len(records) - n_drops
    if asked.mode == trace.ProbeMode.PRELOAD:
        records = without_bpf(records)
    directory = raw / run.path
    directory.mkdir(parents=True)
    if asked.mode:
        (directory / "trace.bin.zst").write_bytes(compress(encode(records, asked.mode)))
    if asked.bursts is not None:
        bursts = encode_bursts(asked.bursts, asked.bursts_lost)
        (directory / BURSTS_FILE).write_bytes(compress(bursts))
    (directory / record.COUNTERS_FILE).write_bytes(
        zstandard.compress(json.dumps(counters(n, n_drops)).encode())
    )
    for name in GENERATOR_FILES:
        (directory / name).write_bytes(compress(b""))
    record.UnfinishedRecord(directory, directory).close(run_document(run, asked, n, n_drops))
    return directory


def run_document(run: PlannedRun, asked: Recorded, n: int, n_drops: int) -> RunDocument:
    """Return the content of `run.json` for a run with `n` received messages and `n_drops` refused messages."""
    requests = {"INVITE": Sends(asked.calls, asked.resent)}
    return RunDocument(
        run=run,
        testbed=TestbedLabels(run.testbed, "simulated", DESCRIPTION, FIDELITY),
        sut=Sut(run.sut, "kamailio", "stateful", "qm", 64, 8, 212_992),
        started_at=f"2026-01-01T00:{run.rep:02d}:00Z",
        finished_at=f"2026-01-01T00:{run.rep:02d}:10Z",
        timeline=Timeline(*(float(second) for second in range(7))),
        load=OfferedLoad(
            law="exponential",
            duration_s=max(asked.calls, 1) / run.cps,
            warmup_s=0.0,
            ring_time_ms=10,
            hold_time_ms=10,
            hold_law="fixed",
            retransmissions=asked.resent > 0,
            drain_s=1.0,
            calls=asked.calls,
            seed=asked.seed,
        ),
        generator=GeneratorReport(
            version="none",
            calls_offered=asked.calls,
            calls_created=asked.calls,
            calls_completed=asked.calls - asked.drops // 6,
            calls_failed=asked.drops // 6,
            achieved_cps=run.cps * (1.0 + 1e-4 * run.rep),
            retransmissions=asked.resent,
            unexpected=0,
        ),
        certificate=None,
        requests=Requests(uac=requests, sps=requests, disagreement=0),
        proxy=ProxyReport(int(n * asked.cpu_ns_per_message)),
        probe=ProbeReport(
            mode={0: "off", 1: "exact", 2: "tracepoint", 3: "preload", 4: "stream"}[asked.mode],
            mode_reason="synthetic",
            records=n,
            drops=n_drops,
            lost=0,
        ),
        hosts=HostReports(host(), host(versions={"kamailio": "none"}), host()),
        settings=Settings(so_rcvbuf_bytes=425984, sps_cpus=(1,)),
        scheduler=mode_report(run, **asked.scheduler),
        layout={},
        ledger=Ledger(Balance(n + n_drops, n, n_drops, 0, 0), Balance(n, n, 0, 0, 0), 0),
        verdict=Verdict("valid", ()) if asked.valid else SPOILT,
        crossover=asked.crossover,
    )


def rewrite(directory: Path, changes: Mapping[str, Any] | None = None) -> None:
    """Write `run.json` again after a test has changed files of the record.

    `changes` replaces the values of keys. The value `...` removes a key.
    """
    path = directory / "run.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    content["files"] = {
        name: dataclasses.asdict(report) for name, report in manifest.reports(directory).items()
    }
    content |= changes or {}
    path.write_text(seal(json.dumps({k: v for k, v in content.items() if v is not ...})))


def samples_of(
    records: npt.NDArray[Any],
    factors: npt.NDArray[Any],
    starts: npt.NDArray[Any],
    end_ns: int,
    steal_ticks: Mapping[int, int],
    rng: np.random.Generator,
) -> Samples:
    """Return the samples of CPU time and datagrams during the windows of a crossover run."""
    t_arr = np.sort(records["t_arr"].astype(np.int64))
    by_arrival = factors[np.argsort(records["t_arr"], kind="stable")]
    cpu = np.cumsum(np.rint(rng.normal(70_000, 5_000, len(by_arrival)) * by_arrival))
    refused = records["t_arr"][records["event"] == trace.Event.DROP].astype(np.int64)
    t_ns = np.unique(np.concatenate((np.arange(START_NS, end_ns, 50_000_000), starts - 1_000)))
    t_ns = np.append(t_ns, end_ns)
    seen = np.searchsorted(t_arr, t_ns)
    stolen = np.zeros(len(t_ns), np.int64)
    for window, ticks in steal_ticks.items():
        stolen[t_ns >= starts[window] + 250_000_000] += ticks
    nothing = (0,) * len(t_ns)
    return Samples(
        t_ns=tuple(t_ns.tolist()),
        cpu_ns=tuple(int(cpu[n - 1]) if n else 0 for n in seen),
        datagrams=tuple((seen - np.searchsorted(np.sort(refused), t_ns)).tolist()),
        refused=tuple(np.searchsorted(np.sort(refused), t_ns).tolist()),
        steal_ticks=tuple(stolen.tolist()),
        idle_ticks=nothing,
        softirq_ticks=nothing,
        time_squeeze=nothing,
    )


# The function has nine parameters, because each test sets only the few that it needs.
def write_comparison(
    raw: Path,
    run: PlannedRun,
    waits: Mapping[str, float],
    *,
    total_s: float = 30.0,
    steal_ticks: Mapping[int, int] | None = None,
    broken: Sequence[int] = (),
    dropped: Sequence[int] = (),
    steps: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    seed: int = 1,
) -> Path:
    """Write the record of a crossover run, and return its directory.

    `waits` has, per mode, a factor for waits in the queue and for the CPU time per message. `steal_ticks` has the
    stolen ticks per window. The switches to windows in `broken` failed. In each window in `dropped`, one message is
    refused. `steps` has the settings of each mode.
    """
    rng = np.random.default_rng([seed, run.threads, run.cps, run.rep])
    design = draw(tuple(waits), total_s, 0.5, 0.05, seed)
    calls = round(1.2 * run.cps * design.end_ns / 1e9)
    records = six_per_call(rng, calls, run.cps, run.threads, 0.5)
    records = records[records["t_arr"].astype(np.int64) < START_NS + design.end_ns]
    starts = np.array([window.start_ns for window in design.windows]) + START_NS
    place = np.searchsorted(starts, records["t_arr"].astype(np.int64), side="right") - 1
    records = records[place >= 0]
    place = place[place >= 0]
    factors = np.array([waits[design.modes[window.mode]] for window in design.windows])[place]
    records = scale_wait(records, factors)
    for window in dropped:
        one = np.flatnonzero(place == window)[300:301]
        records[one] = refuse(records[one], 1, rng)
    end_ns = START_NS + design.end_ns
    samples = samples_of(records, factors, starts, end_ns, steal_ticks or {}, rng)
    switches = tuple(
        Switch(int(start), int(start) + 20_000, int(start) + 120_000, int(number in broken), 0)
        for number, start in enumerate(starts)
    )
    log = SwitchLog(1, START_NS, run.threads + 3, "plan", switches, samples)
    crossover = CrossoverReport(
        modes=tuple(
            mode_report(dataclasses.replace(run, mode=mode), steps=(steps or {}).get(mode, []))
            for mode in design.modes
        ),
        unavailable={},
        same_settings=(),
        window_s=design.window_s,
        washout_s=design.washout_s,
        blocks=design.windows[-1].block + 1,
        windows=len(design.windows),
        failed_switches=len(broken),
        tasks=run.threads + 3,
    )
    directory = write_record(raw, run, calls=calls, records=records, crossover=crossover)
    document = WindowsDocument(design, (1,), 0.05, log)
    (directory / WINDOWS_FILE).write_bytes(document.to_bytes())
    rewrite(directory)
    return directory


def window_attrs(
    run: PlannedRun, steps: Mapping[str, Sequence[Mapping[str, Any]]], modes: Sequence[str]
) -> dict[str, Any]:
    """Return the attributes of the windows of a crossover run."""
    return {
        "format": "sipsched windows",
        "format_version": WINDOWS_VERSION,
        **dataclasses.asdict(run),
        "kind": "simulated",
        "fidelity": FIDELITY,
        "kernel": "0.0.0-synthetic",
        "probe_mode": "exact",
        "started_at": "2026-01-01T00:00:00+00:00",
        "modes": json.dumps(modes),
        "labels": json.dumps(modes),
        "settings": json.dumps([list(steps.get(mode, [])) for mode in modes]),
        "same_settings": "[]",
        "unavailable": "{}",
        "window_s": 0.5,
        "washout_s": 0.05,
        "utilisation": 0.42,
        "relaxation_s": 0.002,
        "steal_limit": 0.05,
        "retransmissions": 0,
        "tasks": run.threads + 3,
        "speed": json.dumps({"before": 310.0, "after": 307.0}),
    }


LEVELS = {
    f"{name}_{statistic}": value * factor
    for name, value in {"k_rcv": 300.0, "t_sip": 200.0, "total": 500.0}.items()
    for statistic, factor in zip(STATISTICS, (1, 0.7, 2, 5), strict=True)
} | {"cpu_per_message": 70.0, "service": 60.0, "service_scv": 0.9}
"""Values of the quantities of a synthetic window in the reference mode."""


def values_by_window(
    design: Design,
    arm: npt.NDArray[np.int64],
    by_arm: Sequence[Mapping[str, float]],
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[Any]]:
    """Return the values per window that do not depend on the washout, by name."""
    squeeze = np.array([each.get("time_squeeze", 0.0) for each in by_arm])[arm]
    return {
        "block": np.array([window.block for window in design.windows], np.int32),
        "mode": np.array([window.mode for window in design.windows], np.int16),
        "window_arm": arm.astype(np.int16),
        "sham": np.array([window.sham for window in design.windows], np.int8),
        "start": np.array([window.start_ns / 1e9 for window in design.windows]),
        "length": np.array([window.length_ns / 1e9 for window in design.windows]),
        "switch": 100 + 20 * rng.random(arm.size),
        "late": 20 + 10 * rng.random(arm.size),
        "steal_share": 0.01 * rng.random(arm.size),
        "time_squeeze": squeeze,
    }


# The function has nine parameters, because each test sets only the few that it needs.
def windows(
    run: PlannedRun,
    effects: Mapping[str, Mapping[str, float]],
    *,
    blocks: int = 40,
    spread: float = 0.1,
    sham: Mapping[str, float] | None = None,
    later: Mapping[str, float] | None = None,
    left_out: Mapping[int, int] | None = None,
    steps: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    seed: int = 1,
    **attrs: Any,
) -> xr.Dataset:
    """Return the windows of a crossover run with known effects.

    `effects` has, per mode (the reference first) and quantity, the natural logarithm of the ratio to the reference. For
    `pdr` and `time_squeeze`, it has the difference from the reference. `sham` has the effects of the sham in the same
    form. Blocks vary by `spread`. `later` is added to the values with the second length of the washout. `left_out` has,
    per window, the reason why results exclude the window.
    """
    rng = np.random.default_rng([seed, run.cps, run.rep])
    modes = tuple(effects)
    design = draw(modes, 0.5 * (len(modes) + 1) * (blocks + 0.5), 0.5, 0.05, seed + run.rep)
    n = len(design.windows)
    arm = np.array([len(modes) if window.sham else window.mode for window in design.windows])
    by_arm = [*effects.values(), sham or {}]
    variables: dict[str, Any] = {}
    for name, (unit, text) in VARIABLES.items():
        effect = np.array([each.get(name, 0.0) for each in by_arm])[arm]
        both = np.tile(effect, (2, 1))
        both[1] += np.where((arm == 0) | (arm == len(modes)), 0, (later or {}).get(name, 0.0))
        luck = spread * rng.standard_normal((2, n))
        luck[1] = luck[0] + 0.1 * luck[1]
        if name in LEVELS:
            values = LEVELS[name] * np.exp(both + luck)
        elif name in ("pdr", "drops", "refused"):
            values = np.clip(both + 0.01 * luck, 0, None) * (both.max() > 0)
        else:
            values = np.full((2, n), 6.0 * run.cps * 0.4)
        described = {"units": unit, "definition": text}
        variables[name] = (("washout", "window"), values, described)
    reasons = np.zeros(n, np.uint8)
    for window, reason in (left_out or {}).items():
        reasons[window] = reason
    bins = np.arange(30) / 70 + 0.007
    means = 500 * np.exp([[each.get("total_mean", 0.0)] * 30 for each in by_arm])
    means *= 1 + 0.5 * np.exp(-bins / 0.02) if (reasons == 0).any() else np.nan
    for name in ("aligned_k_rcv", "aligned_total"):
        variables[name] = (("arm", "since_switch"), means)
        variables[f"{name}_error"] = (("arm", "since_switch"), 0.05 * means)
    by_window = values_by_window(design, arm, by_arm, rng) | {"left_out": reasons}
    return xr.Dataset(
        variables | {name: ("window", values) for name, values in by_window.items()},
        coords={"washout": [0.05, 0.1], "arm": [*modes, SHAM], "since_switch": bins},
        attrs=window_attrs(run, steps or {}, modes) | attrs,
    )


def counters(received: int, dropped: int) -> dict[str, Any]:
    """Return the counters of all hosts, with the SPS's numbers of received and dropped messages, and 0.05 s stolen."""

    def snapshot(n: int, lost: int, steal: int) -> dict[str, str]:
        return {
            "/proc/net/snmp": SNMP.format(received=1000 + n, dropped=5 + lost, sent=1000 + n),
            "/proc/net/netstat": NETSTAT,
            "/proc/net/softnet_stat": SOFTNET.format(packets=1000 + n + lost),
            "/proc/net/udp": UDP.format(drops=lost),
            "/proc/net/dev": "",
            "/proc/stat": STAT.format(steal=24 + steal),
        }

    idle = {"before": snapshot(0, 0, 0), "after": snapshot(0, 0, 0)}
    sps = {"before": snapshot(0, 0, 0), "after": snapshot(received, dropped, 5)}
    return {"uac": idle, "sps": sps, "uas": idle}


def combined(
    planned: Sequence[PlannedRun], outcome: Callable[[PlannedRun], dict[str, Any] | None]
) -> xr.Dataset:
    """Return the summary of a study without records. `outcome` returns the values of a run, or None for a missing run.

    If a variable depends on the message type, its value is the same for all types.
    """
    ds = study_summary.combine([], planned)
    ds.attrs |= {"fidelity": FIDELITY, "kind": "simulated", "kernels": "0.0.0-synthetic"}
    ds.attrs["testbed_description"] = DESCRIPTION
    for run in planned:
        values = outcome(run)
        if values is None:
            continue
        at = {dim: getattr(run, dim) for dim in summary_variables.RUN_DIMS}
        common = {
            "status": study_summary.MEASURED,
            "grade": "valid",
            "valid": 1.0,
            "probe_mode": "exact",
        }
        for name, value in (common | values).items():
            ds[name].loc[at] = value
    return ds


def two_modes(
    run: PlannedRun,
    knee_cps: float = 1900,
    pdr_ratio: float = 0.6,
    k_rcv_ratio: float = 0.7,
    translated: bool = True,
) -> dict[str, Any]:
    """Return an outcome in which enhanced mode changes PDR and K_rcv by exactly `pdr_ratio` and `k_rcv_ratio`.

    Runs of one load and repetition share a random factor, as runs with equal arrivals do. In baseline mode, PDR is
    1 % at the knee and grows sixfold per 10 % of load.
    """
    luck = np.exp(0.15 * np.random.default_rng([run.threads, run.cps, run.rep]).standard_normal())
    other = run.mode.startswith("enhanced")
    pdr = min(0.5, 0.01 * luck * 6 ** (10 * (run.cps / knee_cps - 1))) * (pdr_ratio if other else 1)
    queue = 300 * luck * (run.cps / knee_cps) ** 3 * (k_rcv_ratio if other else 1)
    rest = 5.0 * (k_rcv_ratio if other else 1)
    calls = 8.0 * run.cps
    means = {
        **{"k_stack": 0.6 * rest, "k_sockq": queue, "k_copy": 0.4 * rest, "k_rcv": queue + rest},
        **{"t_sip": 90 * luck, "t_sip_off": 30 * luck, "k_snd": 8.0},
    }
    steps = [step("min_granularity_ns", 100_000 if run.threads == 2 or not other else 250_000)]
    steps[0]["place"] = "sched_setattr of each worker"
    steps.append(step("latency_ns", 800_000 if other else 1_000_000, unavailable="no such thing"))
    force = {"sched_setattr of each worker": str(steps[0]["applied"])}
    return {
        "pdr": pdr,
        "rcvbuf_errors": round(pdr * 6 * calls),
        "in_datagrams": 6 * calls - round(pdr * 6 * calls),
        "count": calls * (1 - pdr),
        "drops": calls * pdr,
        **{f"{name}_mean": value for name, value in means.items()},
        "k_sockq_alone": 6.0,
        "k_sockq_alone_n": 1000.0,
        "offered_cps": float(run.cps),
        "achieved_cps": float(run.cps),
        "calls_created": calls,
        "so_rcvbuf": 425984.0,
        "steal_s": 0.01,
        "lost_records": 0.0,
        "mode_label": f"{run.mode} (EEVDF translation)" if translated else run.mode,
        "scheduler_family": "EEVDF (Linux 6.6 and later)" if translated else "CFS",
        "mode_settings": json.dumps({"translated": translated, "steps": steps, "in_force": force}),
    }


def modes_plan(
    cores: Sequence[int] = (1,),
    threads: Sequence[int] = (8,),
    cps: Sequence[int] = (1800, 1900, 2000),
    reps: int = 5,
    modes: Sequence[str] = ("baseline", "enhanced"),
) -> list[PlannedRun]:
    """Return the runs of a study of modes."""
    axes = itertools.product(modes, cores, threads, cps, range(1, reps + 1))
    return [Run(mode=mode, cores=c, threads=t, cps=load, rep=rep) for mode, c, t, load, rep in axes]


def modes_case(
    planned: Sequence[PlannedRun],
    outcome: Callable[[PlannedRun], dict[str, Any] | None] = two_modes,
) -> comparison.Case:
    """Return the comparison of baseline and enhanced mode of the runs in a summary, beside the published numbers."""
    ds = combined(planned, outcome)
    points, printed = papers.load_points(), papers.load_comparison()
    return comparison.Case(ds, points, printed, "baseline", "enhanced")


def write_study(
    folder: Path,
    planned: Sequence[PlannedRun],
    options: Callable[[PlannedRun], dict[str, Any] | None] = lambda run: {},
    study: str = "load_sweep",
) -> Path:
    """Write, parse, summarise and combine the runs of a study, and return the path of the summary.

    `options` returns the keywords of `write_record` for a run, or None for a missing run. Records are in `raw` and
    other files in `results` of the folder, as in the workflow. Existing runs are kept.
    """
    paths = []
    raw = folder / "raw"
    for run in planned:
        messages = folder / "results" / "runs" / run.path / "messages.nc"
        wanted = options(run)
        if wanted is None:
            continue
        paths.append(messages.with_name("summary.nc.zst"))
        if not messages.exists():
            directory = write_record(raw, run, **({"calls": 40} | wanted))
            write_messages(messages_from_record(directory), messages)
            summary_files.write(run_summary.summarise_run(messages, directory), paths[-1])
    combined = study_summary.combine(paths, planned)
    combined.attrs["failed_attempts"] = json.dumps(
        [
            dataclasses.asdict(failed_attempt)
            for failed_attempt in record.failed_attempts(raw, planned)
        ]
    )
    path = folder / "results" / study / planned[0].testbed / "summary.nc"
    summary_files.write(combined, path)
    return path


def queue_summary(
    cpu_us: Mapping[tuple[str, int, int], float],
    loads: Sequence[int],
    repetitions: int = 5,
    testbed: str = "synthetic",
    spread: float = 0.02,
) -> xr.Dataset:
    """Return the summary of a study in which the SPS is an M/M/c/K queue with one server per core.

    `cpu_us` has the CPU time per message in µs by (mode, cores, threads). The receive buffer holds 227 messages. With
    more threads than cores, T_sip is twice the CPU time. CPU times and drop rates vary by `spread` between runs.
    """
    rng = np.random.default_rng(1)
    names = {
        Run(testbed, "kamailio-udp", *setting, cps, rep): time
        for setting, time in cpu_us.items()
        for cps in loads
        for rep in range(1, repetitions + 1)
    }
    data = study_summary.combine([], list(names))
    for run, mean_us in names.items():
        at = {name: getattr(run, name) for name in summary_variables.RUN_DIMS}
        time_us = mean_us * (1 + spread * rng.standard_normal())
        servers = min(run.cores, run.threads)
        result = queue(6 * run.cps, mean_us, servers, 227 + servers)
        off_us = time_us if run.threads > run.cores else 0.0
        values = {
            **{"k_stack_mean": 10.0, "k_copy_mean": 1.0, "k_snd_mean": 2.0},
            **{"t_sip_mean": time_us - 13 + off_us, "t_sip_off_mean": off_us},
            **{"t_sip_sd": time_us, "t_sip_off_sd": 0.0, "k_sockq_mean": result.waiting_us},
        }
        for name, value in values.items():
            data[name].loc[at | {"message_type": summary_variables.ALL}] = value
        data["pdr"].loc[at] = result.blocking * (1 + 10 * spread * rng.standard_normal())
        data["so_rcvbuf"].loc[at] = 227 * 2304
        data["status"].loc[at] = study_summary.MEASURED
    return data.assign_attrs(kind="simulated", fidelity=FIDELITY, kernels="0.0.0-synthetic")


def repeated(
    loads: Sequence[int] = (500, 1000, 1500, 2000), n: int = 3, **more: Any
) -> list[PlannedRun]:
    """Return planned runs, one per load and repetition."""
    return [Run(cps=cps, rep=rep, **more) for cps in loads for rep in range(1, n + 1)]


def plausible(run: PlannedRun) -> dict[str, Any]:
    """Return the content of a run's record: about 5 % drops from 2000 cps on, half as many in enhanced mode.

    Without the probe, the CPU time per message is lower, so the probe seems to cost 10 %.
    """
    if run.sut.endswith("-untraced"):
        return {"mode": 0, "cpu_ns_per_message": 70_000 + 100 * run.rep}
    quick = run.mode == "enhanced"
    return {
        "drops": (12 + run.rep if run.cps >= 2000 else 0) // (1 + quick),
        "load": 0.2 if quick else 0.7,
        "calls": 60,
        "cpu_ns_per_message": 77_000 + 100 * run.rep,
    }


def write_campaign(folder: Path) -> list[Path]:
    """Write three studies, two of which share runs, and return the paths of their summaries.

    At 500 cps in the default mode, one run is missing and one has two invalid attempts. Another run needs more cores
    than the SPS has. Baseline mode, enhanced mode and the control runs without the probe have the same arrivals.
    """
    sweep = [*repeated(), *repeated((500,), 1, cores=4)]
    missing, failed = sweep[:2]
    for number in (1, 2):
        kept = write_record(folder / "raw", failed, calls=10, valid=False)
        kept.rename(kept.with_name(f"{kept.name}.failed-{number}"))

    def given(run: PlannedRun) -> dict[str, Any] | None:
        return None if run in (missing, failed) or run.cores == 4 else plausible(run)

    modes = [run for mode in ("baseline", "enhanced") for run in repeated(mode=mode)]
    return [
        write_study(folder, sweep, given, "load_sweep"),
        write_study(folder, sweep[:6] + modes, given, "modes"),
        write_study(folder, repeated((500, 1000), sut="kamailio-udp-untraced"), given, "control"),
    ]


def sealed(document: Mapping[str, Any]) -> str:
    """Return the JSON text of a record that is a single file, including the SHA-256 of its content."""
    return seal(json.dumps(document))


def crossing(point: Point, lower_cps: int, upper_cps: int) -> dict[str, Any]:
    """Return the content of a `crossing.json`: a search with two trials, one on each side of the limit."""
    trials = [
        {"cps": 4000, "duration_s": 6.0, "received": 10_000, "refused": 10_000, "pdr": 0.5},
        {"cps": lower_cps, "duration_s": 6.0, "received": 5_000, "refused": 0, "pdr": 0.0},
    ]
    names = ("testbed", "sut", "mode", "cores", "threads")
    return {
        "schema_version": 2,
        "point": {name: getattr(point, name) for name in names},
        "label": point.mode,
        "lower_cps": lower_cps,
        "upper_cps": upper_cps,
        "trials": trials,
    }


def paired_search(
    point: Point,
    capacities: Sequence[float],
    rounds: int,
    pdr: Mapping[int, float] = MappingProxyType({}),
    base_cps: float = 1000,
) -> SearchRecord:
    """Return a paired search on a machine whose speed changes by a factor of 2.

    `pdr` has the drop rates of the last system in some rounds, and all other trials drop a fifth of the messages.
    """
    rng = np.random.default_rng(3)
    modes, trials = point.mode.split(","), []
    for number in range(1, rounds + 1):
        speed = base_cps * rng.uniform(0.7, 1.4)
        for mode, share in zip(modes, capacities, strict=True):
            handled = speed * share * rng.normal(1, 0.01)
            last = mode == modes[-1]
            trials.append(
                TrialRecord(
                    *(round(handled / 0.8), 3.0, pdr.get(number, 0.2) if last else 0.2),
                    **{"mode": mode, "round": number, "carried_cps": handled},
                )
            )
    loads = sorted(trial.cps for trial in trials)
    return SearchRecord(
        *(point, "default", loads[0], loads[-1], tuple(trials), point.goal, "width")
    )


def search_document(search: SearchRecord) -> dict[str, Any]:
    """Return the content of the file that records a search."""
    document = dataclasses.asdict(search)
    goal, trials = document["point"].pop("goal"), list(document["trials"])
    return document | {"schema_version": 2, "goal": goal, "trials": trials}


def capacity(estimate_cps: float | None, **more: Any) -> SystemCapacity:
    """Return the capacity of a system with an interval of ± 10 %. An estimate of None means no load above the limit."""
    known = estimate_cps is not None
    made: dict[str, Any] = {
        "testbed": "synthetic",
        "sut": "kamailio-udp",
        "mode": "default",
        "cores": 1,
        "threads": 8,
        "limit": 0.01,
        "level": 0.95,
        "estimate_cps": estimate_cps,
        "low_cps": 0.9 * estimate_cps if estimate_cps else None,
        "high_cps": 1.1 * estimate_cps if estimate_cps else None,
        "lowest_cps": 500.0,
        "highest_cps": 2000.0,
        "dropped": known,
        "trials": 7,
        "runs": 15,
    }
    return SystemCapacity(**made | more)


def with_capacities(campaign: Campaign, searches: Iterable[SearchRecord] = ()) -> Campaign:
    """Estimate the capacities of all systems of a campaign, as the workflow does."""
    result = estimate_capacities(campaign.testbed, campaign, searches)
    return dataclasses.replace(campaign, capacities=result)


def noise(**jitter: Any) -> dict[str, Any]:
    """Return the content of a `noise.json` with one CPU, on which other work interrupted the measurement twice."""
    entry = {
        "cpu": 1,
        "cpu_changes": 0,
        "threshold_ns": 1000,
        "duration_ns": 2_000_000_000,
        "reads": 40_000_000,
        "gaps_unlisted": 0,
        "gaps_at_ns": [4_000_000, 8_000_000],
        "gaps_ns": [3_000, 1_000_000],
        "steal_s": 0.01,
    }
    return {
        "schema_version": 2,
        "testbed": {"name": "local"},
        "kernel": "6.1",
        "started_at": "2026-01-01T00:00:00+00:00",
        "quiet": [],
        "cpus": [entry | jitter],
    }


def predictions(
    lower: float = 0.0,
    spread: float = 0.1,
    parts: Mapping[str, float] | None = None,
    loads: Callable[[int, int], int] = lambda cores, threads: 1000 * cores,
    seed: int = 1,
) -> pd.DataFrame:
    """Write a `results/predicted/papers.csv` with lognormal numbers around the printed numbers.

    Parameters
    ----------
    lower
        Share by which enhanced mode is lower than baseline mode.
    spread
        Standard deviation of the logarithm between arrivals, the only random effect.
    parts
        Share of this difference that vanishes without a mechanism or setting, by its name.
    loads
        The last load of the grid below the limit, by cores and threads.
    """
    asked = papers_predicted.wanted(papers.load_points(), papers.load_comparison())
    noise = np.exp(spread * np.random.default_rng(seed).normal(size=1000))
    gone = dict.fromkeys(asked["without"], 0.0) | dict(parts or {})

    def factor(mode: str, without: str) -> float:
        if not mode.startswith("enhanced"):
            return 1.0
        back = mode.partition("+")[2].partition("=")[0]
        return 1 - lower * (1 - gone[without]) * (1 - gone.get(back, 0.0))

    size = np.array(
        [
            noise[hash((row.cores, row.threads, row.cps, row.rep)) % 1000]
            * factor(row.mode, row.without)
            for row in asked.itertuples()
        ]
    )
    tables = asked.assign(
        part=papers_predicted.TABLES,
        calls=100,
        k_rcv_us=400 * size,
        t_sip_us=20.0 * asked["threads"],
        pdr=0.01 * size,
    )
    near = [
        (
            *(papers_predicted.NEAR_LIMIT, mode, cores, threads, loads(cores, threads) + by, rep),
            *("", 100, 300.0, 60.0, 0.005 if by <= 0 else 0.02),
        )
        for mode, cores, threads in papers_predicted.grid().itertuples(index=False)
        for by in (-200, 0, 200)
        for rep in (1, 2, 3)
    ]
    return pd.concat([tables, pd.DataFrame(near, columns=papers_predicted.COLUMNS)])[
        papers_predicted.COLUMNS
    ]
