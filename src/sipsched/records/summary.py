"""What a run comes to, `summary.nc.zst`, and many runs side by side, `summary.nc` (docs/data-format.md)."""

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import numpy.typing as npt
import xarray as xr
import zstandard

from sipsched.errors import ComputedFileError, StableError
from sipsched.files import parse_json, read_json, read_zstd, whole
from sipsched.plan.config import Run
from sipsched.plan.documents import validate
from sipsched.records import histogram
from sipsched.records.messages import (
    FLAGS,
    INTERVALS,
    MESSAGE_TYPES,
    UNKNOWN,
    check_format,
    k_rcv,
    nanoseconds,
    open_messages,
)
from sipsched.records.publishable import publishable_hosts, publishable_text
from sipsched.records.record import COUNTERS_FILE, EARLIER_COUNTERS_FILE, read_record
from sipsched.records.reduced import SUMMARY_FILE, kept
from sipsched.records.run_document import (
    GeneratorReport,
    RunDocument,
    SchedulerReport,
    Sends,
    Wait,
)
from sipsched.records.settled import Settled, read_settled, settled_file, stamps, write_settled
from sipsched.validity import counters
from sipsched.validity.certificate import WINDOWS_MS, ks_p_value
from sipsched.versions import SUMMARY_VERSION

ALL = "all"
TYPES = (ALL, *MESSAGE_TYPES)
QUANTITIES = ("k_rcv", "k_stack", "k_sockq", "k_copy", "t_sip", "t_sip_off", "k_snd")
STATISTICS = ("n", "mean", "sd", "p50", "p95", "p99")
OF_A_RUN = "sipsched run summary"
BY_TYPE, OF_RUN, HISTOGRAM = "by_type", "of_run", "histogram"
"""In the file of a run: its numbers by message type, those of the run, and counts by time."""
COUNTED = ("k_rcv", "t_sip", "total")
"""What has a histogram; `total` is K_rcv + T_sip of the same message."""
OLDER_RUNS = (8, 9)
"""Versions of a run's summary that reduced records hold: what they lack is NaN, and histograms are empty."""
LEVEL = 12
REMEDY = "delete it and run snakemake"
RUN_DIMS = ("sut", "mode", "cores", "threads", "cps", "rep")
ABOUT = (
    *("kind", "fidelity", "kernel", "testbed_description", "probe_mode_reason"),
    *("hosts", "settings", "load", "columns_missing"),
)
"""Attributes of a run's summary that a join's are made of."""

# Run-level variables: units ("" for text) and definition.
RUN_LEVEL = {
    "pdr": ("1", "RcvbufErrors of the SPS in the run / SIP messages that reached it"),
    "rcvbuf_errors": ("1", "RcvbufErrors of the SPS in the run"),
    "in_datagrams": ("1", "InDatagrams of the SPS in the run, but what it sent itself"),
    "probe_drops": ("1", "refused datagrams by the probe: seen, and arrived but never received"),
    "lost_records": ("1", "records that the probe lost"),
    "offered_cps": ("s-1", "calls per second of the generator's schedule"),
    "achieved_cps": ("s-1", "calls per second that the generator offered"),
    "calls_created": ("1", "calls begun"),
    "calls_completed": ("1", "calls that ended as they should"),
    "calls_failed": ("1", "calls that did not: failed, or open at the end of the drain time"),
    "calls_late": (
        "1",
        "calls completed whose 200 came later than the ring time and `setup_limit_ms`",
    ),
    "call_loss": (
        "1",
        "calls that failed or were set up late / calls begun; over TCP its capacity ends here",
    ),
    "messages": ("1", "SIP messages that the SPS took; datagrams over UDP"),
    "so_rcvbuf": ("B", "effective SO_RCVBUF of the proxy's socket"),
    "proxy_cpu_ns": ("ns", "CPU time of all processes of the proxy during the load"),
    "proxy_user_ns": ("ns", "of it in the program, by the clock's ticks"),
    "proxy_system_ns": ("ns", "of it in the kernel, by the clock's ticks"),
    "wake_ups": ("1", "voluntary context switches of the proxy's tasks: each ends with a wake-up"),
    "preemptions": ("1", "their involuntary context switches; with those of sched_yield"),
    "migrations": ("1", "their moves to another CPU"),
    "kernel_locks": ("1", "times they waited for a lock of the kernel, spinning or asleep"),
    "kernel_locks_ns": ("ns", "and for how long; of native spinlocks the first waiter is not seen"),
    "own_locks": ("1", "times they waited for each other in futex or gave way in sched_yield"),
    "own_locks_ns": ("ns", "and for how long"),
    "descriptors": ("1", "file descriptors that they sent to each other (SCM_RIGHTS)"),
    "generator_cpu_us": ("us", "CPU time of the generators, client and server, a call"),
    "steal_s": ("s", "time stolen from the CPUs of the SPS during the run, summed"),
    "ks_distance": ("1", "Kolmogorov-Smirnov distance of inter-arrival times to their law"),
    "ks_p_value": ("1", "asymptotic p-value of that distance"),
    "cv": ("1", "coefficient of variation of inter-arrival times; 1 if exponential"),
    **{
        f"variance_to_mean_{window}ms": (
            "1",
            f"variance over mean of starts in {window} ms; 1 if Poisson",
        )
        for window in WINDOWS_MS
    },
    "lateness_p50_us": ("us", "median of start minus intended start"),
    "lateness_p99_us": ("us", "99th percentile of start minus intended start"),
    "lateness_max_us": ("us", "largest start minus intended start"),
    "generator_cpu_share": ("1", "CPU time over wall time of the generator's client"),
    "generator_drops": ("1", "datagrams that the sockets of UAC and UAS refused"),
    "link_drops": ("1", "packets that the interfaces of all hosts dropped"),
    "ledger_residual": ("1", "datagrams sent and not accounted for, the larger of both directions"),
    "requests_again_uac": ("1", "requests that the UAC sent again"),
    "requests_again_sps": ("1", "requests that reached the SPS again, refused ones included"),
    "proxy": ("", "program of the SUT"),
    "transport": ("", "udp or tcp"),
    "deployment": ("", "how workers, sockets, instances and a dispatcher make one SPS"),
    "clocksource": ("", "clock source of the SPS"),
    "grade": ("", "valid, suspect or invalid: the verdict of the run"),
    "valid": ("1", "1: the run counts; 0: it does not, see findings"),
    "findings": ("", "JSON: rules that the run broke, each with value, grade and limit"),
    "mode_label": ("", "name of the mode as it was on this kernel"),
    "scheduler_family": ("", "CFS or EEVDF, and where the kernel keeps the settings"),
    "mode_settings": (
        "",
        "JSON: translated (whether the kernel's scheduler is not the papers'), steps (setting, "
        "asked, place, applied, unavailable), in_force (place: value)",
    ),
    "k_sockq_alone": (
        "us",
        "mean K_sockq of messages that met no other in the SPS: waking the worker and dequeuing, "
        "without waiting for a worker",
    ),
    "k_sockq_alone_n": ("1", "messages that met no other in the SPS"),
    "busy_periods": ("1", "times between two at which the SPS holds no message"),
    "busy_periods_effective": (
        "1",
        "square of their summed length over the sum of squares: as many as there would be of equal length",
    ),
    "busy_longest_s": ("s", "length of the longest of them"),
    "busy_longest_share": (
        "1",
        "and its share of the time from the first arrival to the last departure",
    ),
    "probe_mode": ("", "exact, tracepoint, stream, preload, off or simulated"),
    "kernel": ("", "kernel release of the SPS"),
    "started_at": ("", "UTC, ISO 8601"),
}
_NO_COUNTS = np.zeros((len(COUNTED), histogram.BINS), np.int32)
# Outcomes: what an invalid run must not contribute to any average.
OUTCOMES = (
    *("call_loss", "pdr", "drops", "k_sockq_alone", "k_sockq_alone_n"),
    *("busy_periods", "busy_periods_effective", "busy_longest_s", "busy_longest_share"),
    *(f"{name}_{stat}" for name in QUANTITIES for stat in STATISTICS),
)

MEASURED, MISSING, INVALID, NOT_PLANNED = "measured", "missing", "invalid", "not planned"


def summarise_run(messages: Path, record: Path) -> xr.Dataset:
    """Reduce one run to its numbers.

    Parameters
    ----------
    messages
        The run's `messages.nc`.
    record
        The run's directory in raw/, for `run.json` and `counters.json.zst`. Of a reduced one the summary that
        it holds comes back.

    Returns
    -------
    Dataset
        Dimension `message_type` (str: "all", then the types). `count` (int64): messages received;
        "all" is every received message, retransmissions and `other` included. `drops` (float64):
        refused datagrams that the probe saw, NaN without a probe. For each of K_rcv (`k_rcv`),
        `k_stack`, `k_sockq`, `k_copy`, `t_sip`, `t_sip_off`, `k_snd`: `<name>_n`, the messages that
        have the value, and `<name>_mean`, `_sd` (n - 1), `_p50`, `_p95`, `_p99` (linear
        interpolation), float64 µs, NaN without messages. `histogram` (int64, over quantity and bin):
        of `COUNTED` of all messages, see `sipsched.records.histogram`; nothing but 0 of a record that was
        reduced before there were any. Scalars: see `RUN_LEVEL`; scalar coordinates: the tuple.

        `pdr` = ΔRcvbufErrors / (ΔInDatagrams + ΔRcvbufErrors), Udp counters of the SPS from
        /proc/net/snmp: the packet drop rate of the papers, where a SIP message that reached the SPS
        is one that its sockets either took or refused.

    Raises
    ------
    StableError
        A file is missing, damaged or of another version, or the two are not of the same run.
    """
    document = read_record(record)
    stored = kept(record, SUMMARY_FILE)
    if stored is not None:
        return open_run(stored)
    ds = open_messages(messages)
    run = asdict(document.run)
    for key in ("testbed", *RUN_DIMS):
        if ds.attrs.get(key) != run[key]:
            raise StableError(
                f"{messages}: {key}: expected {run[key]} as in {record}/run.json, "
                f"found {ds.attrs.get(key)}; delete it and run snakemake"
            )
    variables: dict[str, Any] = {
        "count": ("message_type", _by_type(ds["message_type"])),
        "drops": ("message_type", _drops(ds)),
    }
    variables |= _statistics(ds)
    variables[HISTOGRAM] = (("quantity", "bin"), _histograms(ds))
    snapshots = _read_counters(record)
    level = _run_level(document, snapshots["sps"], ds.sizes.get("drop", 0)) | _alone(ds)
    level |= _factors(document)
    variables |= {name: ((), value) for name, value in level.items()}
    result = xr.Dataset(
        variables,
        coords={"message_type": list(TYPES), "quantity": list(COUNTED)}
        | {key: run[key] for key in RUN_DIMS},
        attrs={
            "title": "summary of one run",
            "format": OF_A_RUN,
            "format_version": SUMMARY_VERSION,
            **{key: ds.attrs[key] for key in ("testbed", "kind", "fidelity", "kernel")},
            "testbed_description": document.testbed.description,
            "hosts": json.dumps(publishable_hosts(asdict(document.hosts)), sort_keys=True),
            "settings": json.dumps(asdict(document.settings), sort_keys=True),
            "load": json.dumps(asdict(document.load), sort_keys=True),
            "probe_mode_reason": publishable_text(document.probe.mode_reason),
            "columns_missing": json.dumps(
                {
                    str(name): variable.attrs["missing_reason"]
                    for name, variable in ds.data_vars.items()
                    if "missing_reason" in variable.attrs
                }
            ),
            "source": f"{messages} and {record}",
        },
    )
    return _described(result)


def _by_type(types: xr.DataArray) -> npt.NDArray[np.int64]:
    by_type = np.bincount(types.to_numpy(), minlength=len(MESSAGE_TYPES))
    counts = [types.size, *(by_type[code] for code in MESSAGE_TYPES.values())]
    return np.array(counts, np.int64)


def _drops(ds: xr.Dataset) -> npt.NDArray[np.float64]:
    if ds.attrs["probe_mode"] == "off":
        return np.full(len(TYPES), np.nan)
    return _by_type(ds["drop_type"]).astype(np.float64)


def _alone(ds: xr.Dataset) -> dict[str, float]:
    """Say how long the SPS is never empty, and average K_sockq over the messages that it was empty for."""
    intervals = (k_rcv(ds), nanoseconds(ds, "t_sip"), nanoseconds(ds, "k_snd"))
    arrived = ds["t_arr"].to_numpy()
    # ASSUME a message that finds the SPS empty waits for the kernel alone, not for a worker
    left = arrived + sum(
        (np.nan_to_num(interval) for interval in intervals), np.zeros(len(arrived))
    )
    latest = np.maximum.accumulate(left)
    met_none = np.zeros(len(arrived), bool)
    # what was on its way before the first message is not known
    met_none[1:] = arrived[1:] > latest[:-1]
    waits = nanoseconds(ds, "k_sockq") / 1000
    seen = (ds["flags"].to_numpy() & FLAGS["enqueue_not_seen"]) == 0
    waits = waits[met_none & seen & ~np.isnan(waits)]
    mean = float(waits.mean()) if waits.size else np.nan
    return {
        "k_sockq_alone": mean,
        "k_sockq_alone_n": float(waits.size),
        **_busy_periods(arrived, latest, np.flatnonzero(met_none)),
    }


def _busy_periods(
    arrived: npt.NDArray[np.int64], latest: npt.NDArray[np.float64], begun: npt.NDArray[np.intp]
) -> dict[str, float]:
    """Measure the periods that begin with the first message and with those that find the SPS empty."""
    names = ("busy_periods", "busy_periods_effective", "busy_longest_s", "busy_longest_share")
    if not len(arrived):
        return dict.fromkeys(names, np.nan)
    first, last = np.concatenate(([0], begun)), np.concatenate((begun - 1, [-1]))
    lengths = (latest[last] - arrived[first]) / 1e9
    run_s = float(latest[-1] - arrived[0]) / 1e9
    squares = float((lengths**2).sum())
    effective = float(lengths.sum()) ** 2 / squares if squares else float(lengths.size)
    longest = float(lengths.max())
    share = longest / run_s if run_s else 1.0
    return dict(zip(names, (float(lengths.size), effective, longest, share), strict=True))


def _statistics(ds: xr.Dataset) -> dict[str, tuple[str, npt.NDArray[np.float64]]]:
    types = ds["message_type"].to_numpy()
    order = np.argsort(types, kind="stable")
    bounds = np.searchsorted(types[order], np.arange(len(MESSAGE_TYPES) + 1))
    unseen = (ds["flags"].to_numpy() & FLAGS["enqueue_not_seen"]) != 0
    statistics = {}
    for name in QUANTITIES:
        values = (k_rcv(ds) if name == "k_rcv" else nanoseconds(ds, name)) / 1000
        if name in ("k_stack", "k_sockq") and unseen.any():
            # The trace then has t_stack = t_arr: right for K_rcv, wrong for its parts.
            values[unseen] = np.nan
        values = values[order]
        groups = [values] + [
            values[bounds[code] : bounds[code + 1]] for code in MESSAGE_TYPES.values()
        ]
        table = np.array([_describe(group) for group in groups])
        for column, statistic in enumerate(STATISTICS):
            statistics[f"{name}_{statistic}"] = ("message_type", table[:, column])
    return statistics


def _histograms(ds: xr.Dataset) -> npt.NDArray[np.int64]:
    waited, served = k_rcv(ds), nanoseconds(ds, "t_sip")
    return np.array([histogram.count(times) for times in (waited, served, waited + served)])


def _describe(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return (0.0, *([np.nan] * 5))
    sd = float(values.std(ddof=1)) if n > 1 else np.nan
    return (float(n), float(values.mean()), sd, *np.percentile(values, (50, 95, 99)).tolist())


def _read_counters(record: Path) -> dict[str, Any]:
    path = record / COUNTERS_FILE
    remedy = "repeat the run"
    if path.exists():
        try:
            document = parse_json(read_zstd(path, "counters", remedy).decode())
        except ValueError as error:
            raise StableError(f"{path}: not JSON: {error}; {remedy}") from None
    else:
        path = record / EARLIER_COUNTERS_FILE
        document = read_json(path, None, remedy)
    validate(document, "counters", str(path))
    return {
        role: {moment: document[role][moment] for moment in ("before", "after")}
        for role in ("uac", "sps", "uas")
        if role in document
    }


def _run_level(
    document: RunDocument, snapshots: Mapping[str, Mapping[str, str]], drops: int
) -> dict[str, Any]:
    udp, steal = {}, {}
    # A namespace sees all CPUs of its machine: count those that the SPS is held to.
    names = {f"cpu{cpu}" for cpu in document.settings.sps_cpus}
    for moment, files in snapshots.items():
        where = f"counters.json: sps {moment} "
        snmp = counters.parse_snmp(files.get("/proc/net/snmp", ""), where + "/proc/net/snmp")
        if not {"InDatagrams", "RcvbufErrors"} <= snmp.get("Udp", {}).keys():
            raise StableError(f"{where}/proc/net/snmp: expected Udp InDatagrams and RcvbufErrors")
        udp[moment] = snmp["Udp"]
        stat = counters.parse_stat(files.get("/proc/stat", ""), where + "/proc/stat")
        steal[moment] = sum(cpu["steal"] for name, cpu in stat.items() if name in names)
    delta = counters.difference(udp["before"], udp["after"])
    if document.sut.fronted and document.ledger.unit == "datagrams":
        # what its front and its instances sent each other came from nobody else
        delta["InDatagrams"] = document.ledger.to_sps.received
    reached = delta["InDatagrams"] + delta["RcvbufErrors"]
    generator, probe, ledger = document.generator, document.probe, document.ledger
    agents, scheduler, verdict = ledger.from_sps, document.scheduler, document.verdict
    return {
        "pdr": delta["RcvbufErrors"] / reached if reached else np.nan,
        "rcvbuf_errors": float(delta["RcvbufErrors"]),
        "in_datagrams": float(delta["InDatagrams"]),
        "probe_drops": np.nan if probe.mode == "off" else float(drops + probe.refused_unseen),
        "lost_records": float(probe.lost),
        "achieved_cps": generator.achieved_cps,
        "calls_created": float(generator.calls_created),
        "calls_completed": float(generator.calls_completed),
        "calls_failed": float(generator.calls_created - generator.calls_completed),
        "calls_late": _number(generator.calls_late),
        "call_loss": _call_loss(generator),
        "messages": float(ledger.to_sps.received),
        "so_rcvbuf": _number(document.settings.so_rcvbuf_bytes),
        "proxy_cpu_ns": float(document.proxy.cpu_ns),
        "steal_s": steal["after"] - steal["before"],
        **_arrivals(document),
        "generator_cpu_share": _number(generator.cpu_share),
        "generator_cpu_us": _number(generator.cpu_us),
        "generator_drops": float(agents.refused + agents.other_errors),
        "link_drops": float(ledger.link_drops),
        "requests_again_uac": _sent_again(document.requests.uac),
        "requests_again_sps": _sent_again(document.requests.sps),
        "proxy": document.sut.proxy,
        "transport": document.sut.transport,
        "deployment": document.sut.deployment,
        "clocksource": document.hosts.sps.clocksource or UNKNOWN,
        "ledger_residual": float(ledger.residual),
        "grade": verdict.grade,
        "valid": float(verdict.valid),
        "findings": json.dumps([asdict(finding) for finding in verdict.broken]),
        "mode_label": scheduler.label,
        "scheduler_family": scheduler.family,
        "mode_settings": json.dumps(_settings(scheduler), sort_keys=True),
        "probe_mode": probe.mode,
        "kernel": document.hosts.sps.kernel or UNKNOWN,
        "started_at": document.started_at,
    }


def _call_loss(generator: GeneratorReport) -> float:
    """Give the share of calls that a person would miss; NaN where nobody noted when they were set up."""
    if generator.calls_late is None or not generator.calls_created:
        return np.nan
    good = generator.calls_completed - generator.calls_late
    return 1 - good / generator.calls_created


def _factors(document: RunDocument) -> dict[str, float]:
    """Give what kept the proxy's tasks from each other; NaN where it was not counted."""
    report = document.factors
    tasks = report.tasks if report else None
    waits = report.waits.proxy if report and report.waits else None
    kernel = (waits.kernel_spin, waits.kernel_sleep) if waits else ()
    own = (waits.futex, waits.sched_yield) if waits else ()

    def summed(of: tuple[Wait, ...], name: str) -> float:
        return float(sum(getattr(wait, name) for wait in of)) if waits else np.nan

    return {
        "proxy_user_ns": _number(tasks.user_ns if tasks else None),
        "proxy_system_ns": _number(tasks.system_ns if tasks else None),
        "wake_ups": _number(tasks.voluntary if tasks else None),
        "preemptions": _number(tasks.involuntary if tasks else None),
        "migrations": _number(tasks.migrations if tasks else None),
        "kernel_locks": summed(kernel, "count"),
        "kernel_locks_ns": summed(kernel, "ns"),
        "own_locks": summed(own, "count"),
        "own_locks_ns": summed(own, "ns"),
        "descriptors": _number(waits.descriptors if waits else None),
    }


def _arrivals(document: RunDocument) -> dict[str, float]:
    """Give the numbers of the arrival certificate; NaN where there is none."""
    found = document.certificate
    named = [f"variance_to_mean_{window}ms" for window in WINDOWS_MS]
    late = [f"lateness_{which}_us" for which in ("p50", "p99", "max")]
    if found is None:
        names = ("ks_distance", "ks_p_value", "cv", *named, *late)
        return {"offered_cps": float(document.run.cps), **dict.fromkeys(names, np.nan)}
    distance = found.ks_distance
    return {
        "offered_cps": found.schedule_cps,
        "ks_distance": _number(distance),
        "ks_p_value": np.nan if distance is None else ks_p_value(distance, found.distinct_gaps),
        "cv": found.cv,
        **dict(zip(named, map(_number, found.variance_to_mean), strict=True)),
        **{name: _number(getattr(found, name)) for name in late},
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _settings(scheduler: SchedulerReport) -> dict[str, Any]:
    """Give what the mode came to on this kernel."""
    steps = [asdict(step) for step in scheduler.steps]
    for step in steps:
        del step["read_back"]
    return {
        "translated": scheduler.is_translation,
        "steps": steps,
        "in_force": scheduler.in_force,
    }


def _sent_again(requests: Mapping[str, Sends] | None) -> float:
    return np.nan if requests is None else float(sum(sends.again for sends in requests.values()))


def _described(ds: xr.Dataset) -> xr.Dataset:
    """Give every variable its units, name and definition."""
    names = {"mean": "mean", "sd": "standard deviation", "n": "messages that have it"}
    names |= {f"p{q}": f"{q}th percentile" for q in (50, 95, 99)}
    for quantity in QUANTITIES:
        definition = INTERVALS[quantity] if quantity != "k_rcv" else "t_sip_in - t_arr"
        for statistic in STATISTICS:
            ds[f"{quantity}_{statistic}"].attrs = {
                "long_name": f"{quantity}: {names[statistic]}",
                "units": "1" if statistic == "n" else "us",
                "definition": definition,
            }
    for name, (units, definition) in RUN_LEVEL.items():
        ds[name].attrs = {"long_name": definition, "definition": definition}
        if units:
            ds[name].attrs["units"] = units
    ds["count"].attrs = {
        "long_name": "messages received",
        "units": "1",
        "definition": "rows of messages.nc; 'all' counts retransmissions and other too",
    }
    ds["drops"].attrs = {
        "long_name": "datagrams refused by the full socket queue",
        "units": "1",
        "definition": "drops of messages.nc; a refused datagram that came again is a retransmission",
    }
    ds[HISTOGRAM].attrs = {
        "long_name": "messages by time",
        "units": "1",
        "definition": f"bin i ends at ((1 + e) / (1 - e))^i ns, e = {histogram.RELATIVE_ERROR}",
    }
    ds["cps"].attrs = {"long_name": "offered calls per second", "units": "s-1"}
    return ds


def overall_service_time(ds: xr.Dataset) -> xr.DataArray:
    """Compute the single-core paper's overall service time E[x] from means over all messages of runs.

    E[x] = K_stack + K_sockq^s + K_copy + T_sip + K_snd: all that is not waiting. K_sockq^s, waking the
    worker and dequeuing, is `k_sockq_alone`.

    Source: Krishnamurthy and Rouskas 2015, section III.

    Parameters
    ----------
    ds
        Summary of a run or of many; where it is that of one message type, of `all`.

    Returns
    -------
    DataArray
        The dimensions of the runs, µs; NaN where a part is missing.
    """
    total = _sum_of_means(ds, "k_stack", "k_copy", "t_sip", "k_snd") + ds["k_sockq_alone"]
    return total.assign_attrs(
        long_name="overall service time E[x]",
        units="us",
        definition="K_stack + K_sockq^s + K_copy + T_sip + K_snd, means over messages",
    )


def cpu_time(ds: xr.Dataset) -> xr.DataArray:
    """Compute the CPU time of a message that the stamps enclose, from means over all messages of runs.

    K_stack + K_copy + (T_sip - its time off CPU) + K_snd. What waking the worker costs lies in K_sockq
    and is missing here: a lower bound.

    Parameters
    ----------
    ds
        Summary of a run or of many; where it is that of one message type, of `all`.

    Returns
    -------
    DataArray
        The dimensions of the runs, µs; NaN where a part is missing.
    """
    on_and_off = _sum_of_means(ds, "k_stack", "k_copy", "t_sip", "k_snd")
    total = on_and_off - _sum_of_means(ds, "t_sip_off")
    return total.assign_attrs(
        long_name="CPU time of a message, without waking the worker",
        units="us",
        definition="K_stack + K_copy + T_sip - T_sip off CPU + K_snd, means over messages",
    )


def _sum_of_means(ds: xr.Dataset, *parts: str) -> xr.DataArray:
    every = ds.sel(message_type=ALL, drop=True) if "message_type" in ds.dims else ds
    means = (every[f"{name}_mean"] for name in parts)
    return reduce(operator.add, means)


def write(ds: xr.Dataset, path: Path) -> None:
    """Write a summary, whole or not at all: that of a study as it is, that of a run packed and compressed."""
    with whole(path) as partial:
        if ds.attrs["format"] == OF_A_RUN:
            # a variable of netCDF-4 takes 0.7 kB and 0.17 ms to read, whatever it holds
            content = bytes(_packed(ds).to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
            partial.write_bytes(zstandard.compress(content, LEVEL))
        else:
            shrunk = {HISTOGRAM: {"compression": "zlib", "complevel": 1}}
            ds.to_netcdf(partial, engine="netcdf4", encoding=shrunk)


def _packed(ds: xr.Dataset) -> xr.Dataset:
    """Put the numbers of a run into two variables, and their names and all text into attributes."""
    names: dict[str, list[str]] = {BY_TYPE: [], OF_RUN: []}
    texts = {}
    for name, variable in ds.drop_vars(("message_type", "quantity", HISTOGRAM)).variables.items():
        if variable.dtype.kind == "U":
            texts[str(name)] = str(variable.values)
        else:
            names[BY_TYPE if variable.dims else OF_RUN].append(str(name))
    return xr.Dataset(
        {
            BY_TYPE: (
                ("statistic", "message_type"),
                np.array([ds[n] for n in names[BY_TYPE]], float),
            ),
            OF_RUN: ("number", np.array([ds[n] for n in names[OF_RUN]], float)),
            HISTOGRAM: ds[HISTOGRAM].variable.astype(np.int32),
        },
        attrs=ds.attrs | {"names": json.dumps(names), "texts": json.dumps(texts)},
    )


def _unpacked(
    arrays: Mapping[str, Any], attrs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give what `_packed` put away, by name: values of a run and those by message type, and attributes."""
    rest = dict(attrs)
    names, texts = json.loads(rest.pop("names")), json.loads(rest.pop("texts"))
    values = dict(texts)
    for group in (BY_TYPE, OF_RUN):
        values |= dict(zip(names[group], arrays[group], strict=True))
    for name in RUN_DIMS:
        if name not in texts:
            values[name] = int(values[name])
    values[HISTOGRAM] = arrays.get(HISTOGRAM, _NO_COUNTS)
    return values, rest


@dataclass(frozen=True)
class Joined:
    """Summaries of runs side by side.

    Attributes
    ----------
    summary
        As `combine` gives it.
    attrs
        What each run's file says beside its numbers, as far as the attributes of `summary` are made of it.
    """

    summary: xr.Dataset
    attrs: Mapping[Run, Mapping[str, str]]


def combine(paths: Sequence[Path], planned: Sequence[Run]) -> xr.Dataset:
    """Put the summaries of many runs side by side.

    Parameters
    ----------
    paths, planned
        As `join` takes them.

    Returns
    -------
    Dataset
        Dimensions (sut, mode, cores, threads, cps, rep), and message_type where it applies; the
        variables of `summarise_run`, but `histogram` over the dimensions other than rep: of the runs that
        are measured, together. `histogram_runs` says how many have one. `status` (str) is "measured",
        "invalid" (diagnostics stand, but pdr and all statistics are NaN so that no average takes them
        in), "missing" (planned, not there: NaN, empty text) or "not planned". Attributes carry testbed, kind, fidelity,
        kernels, the hosts of the first run, and per column why it is missing in how many runs.

    Raises
    ------
    StableError
        As `join`.
    """
    return join(paths, planned).summary


def join(paths: Sequence[Path], planned: Sequence[Run], earlier: Joined | None = None) -> Joined:
    """Put the summaries of many runs side by side, or to those that are.

    Parameters
    ----------
    paths
        `summary.nc.zst` of the runs that there are.
    planned
        The runs that the study asks for, all on one testbed.
    earlier
        A join of other runs, all of them planned; `paths` come to it.

    Raises
    ------
    StableError
        Nothing is planned, plans for several testbeds, or a summary is damaged, of another
        version, of another testbed, not planned, or there twice.
    """
    testbeds = sorted({run.testbed for run in planned})
    if len(testbeds) != 1:
        raise StableError(
            f"combine: expected runs planned on one testbed, found {testbeds or 'none'}; "
            "combine each testbed apart"
        )
    axes = _axes(planned)
    index = {dim: {value: i for i, value in enumerate(values)} for dim, values in axes.items()}
    shape = tuple(len(values) for values in axes.values())

    statistics = [f"{name}_{stat}" for name in QUANTITIES for stat in STATISTICS]
    arrays: dict[str, npt.NDArray[Any]] = {
        name: np.full((*shape, len(TYPES)), np.nan) for name in ("count", "drops", *statistics)
    }
    for name, (units, _) in RUN_LEVEL.items():
        arrays[name] = np.full(shape, np.nan) if units else np.full(shape, "", object)
    counts = np.zeros((*shape[:-1], *_NO_COUNTS.shape), np.int64)
    counted_runs = np.zeros(shape[:-1], np.int64)
    status = np.full(shape, NOT_PLANNED, object)
    for run in planned:
        status[tuple(index[dim][getattr(run, dim)] for dim in RUN_DIMS)] = MISSING

    about: dict[Run, Mapping[str, str]] = {}
    if earlier is not None:
        about |= earlier.attrs
        of_cells = {HISTOGRAM: counts, "histogram_runs": counted_runs}
        _take(earlier.summary, index, status, arrays | of_cells)
    for path in paths:
        values, attrs = _read_summary(path)
        if attrs["testbed"] != testbeds[0]:
            raise StableError(
                f"{path}: testbed: expected {testbeds[0]}, found {attrs['testbed']}; "
                "combine each testbed apart"
            )
        key = {dim: values[dim] for dim in RUN_DIMS}
        try:
            place = tuple(index[dim][key[dim]] for dim in RUN_DIMS)
        except KeyError:
            place = None
        if place is None or status[place] != MISSING:
            problem = "not planned" if place is None or status[place] == NOT_PLANNED else "twice"
            raise StableError(f"{path}: expected a planned run, once; found {key}, {problem}")
        valid = values["valid"] == 1
        status[place] = MEASURED if valid else INVALID
        for name, array in arrays.items():
            # a record reduced before there was such a number has none
            if name in values and (valid or name not in OUTCOMES):
                array[place] = values[name]
        if valid and values[HISTOGRAM].any():
            counts[place[:-1]] += values[HISTOGRAM]
            counted_runs[place[:-1]] += 1
        about[Run(testbeds[0], **key)] = {name: str(attrs[name]) for name in ABOUT}

    dims = tuple(RUN_DIMS)
    result = xr.Dataset(
        {
            name: ((*dims, "message_type") if array.ndim > len(dims) else dims, array)
            for name, array in arrays.items()
        }
        | {
            "status": (dims, status),
            HISTOGRAM: ((*dims[:-1], "quantity", "bin"), counts),
            "histogram_runs": (dims[:-1], counted_runs),
        },
        coords={**axes, "message_type": list(TYPES), "quantity": list(COUNTED)},
        attrs=_combined_attrs(testbeds[0], [about[run] for run in planned if run in about]),
    )
    result = _described(result)
    result["status"].attrs = {
        "long_name": "what became of the run",
        "definition": f"{MEASURED}, {INVALID}, {MISSING} or {NOT_PLANNED}",
    }
    result["histogram_runs"].attrs = {
        "long_name": "runs in the histogram",
        "units": "1",
        "definition": "measured, not reduced before there were histograms, and with messages",
    }
    return Joined(result, about)


def join_again(
    path: Path, paths: Sequence[Path], planned: Sequence[Run], raw: Path
) -> tuple[xr.Dataset, Settled]:
    """Put the summaries of a study's runs side by side; of runs that came to it, read these alone.

    Parameters
    ----------
    path
        The study's summary, `STUDY/TESTBED/summary.nc`, which need not be there.
    paths, planned
        As `join` takes them.
    raw
        Folder of the records.

    Returns
    -------
    summary, settled
        As `combine` gives it, and what it is joined of.

    Raises
    ------
    StableError
        As `join`.
    """
    results = path.parents[2]
    runs = {str(run.path): run for run in planned}
    files = {str(file.parent.relative_to(results / "runs")): file for file in paths}
    now = {run: stamps(raw, results, run) for run in files}
    before, earlier = read_settled(path), None
    if before.stamps and all(
        run in runs and now.get(run) == stamp for run, stamp in before.stamps.items()
    ):
        attrs = {runs[run]: about for run, about in before.attrs.items()}
        earlier = Joined(open_summary(path), attrs)
    added = [file for run, file in files.items() if earlier is None or run not in before.stamps]
    joined = join(added, planned, earlier)
    return joined.summary, Settled(now, {str(run.path): joined.attrs[run] for run in joined.attrs})


def write_again(ds: xr.Dataset, settled: Settled, path: Path) -> None:
    """Write a study's summary, and what it is joined of; after an interrupt it is not known of what."""
    settled_file(path).unlink(missing_ok=True)
    write(ds, path)
    write_settled(path, settled)


def _take(
    earlier: xr.Dataset,
    index: Mapping[str, Mapping[Any, int]],
    status: npt.NDArray[Any],
    arrays: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Copy the runs of an earlier join to their places."""
    places = [[index[dim][value] for value in earlier[dim].values.tolist()] for dim in RUN_DIMS]
    for name, array in arrays.items():
        dims = len(places) - (name in (HISTOGRAM, "histogram_runs"))
        array[np.ix_(*places[:dims])] = earlier[name].values
    into, found = np.ix_(*places), earlier["status"].values
    status[into] = np.where(np.isin(found, (MEASURED, INVALID)), found, status[into])


def _axes(planned: Sequence[Run]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for dim in RUN_DIMS:
        values = dict.fromkeys(getattr(run, dim) for run in planned)
        # Names stay in the order of the configuration: it puts the reference first.
        axes[dim] = list(values) if dim in ("sut", "mode") else sorted(values)
    return axes


def _read_summary(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read one run's summary by netCDF4 itself: of thousands of files, xarray takes 10 ms each."""
    try:
        content = read_zstd(path, "summary", REMEDY)
        with netCDF4.Dataset(path, memory=content) as file:
            file.set_auto_mask(False)
            attrs = {name: file.getncattr(name) for name in file.ncattrs()}
            values = {name: variable[...] for name, variable in file.variables.items()}
        if attrs.get("format_version") in OLDER_RUNS:
            attrs["format_version"] = SUMMARY_VERSION
        check_format(attrs, path, OF_A_RUN, SUMMARY_VERSION)
    except OSError as error:
        raise ComputedFileError(f"{path}: not a netCDF file: {error}; {REMEDY}", path) from None
    except StableError as error:
        raise ComputedFileError(str(error), path) from None
    if BY_TYPE in values:
        return _unpacked(values, attrs)
    # a variable for each, as the earliest of them are
    return {HISTOGRAM: _NO_COUNTS} | {
        name: value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        for name, value in values.items()
    }, attrs


def _combined_attrs(testbed: str, found: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    def distinct(key: str) -> list[str]:
        return list(dict.fromkeys(attrs[key] for attrs in found))

    first: Mapping[str, str] = found[0] if found else {}
    return {
        "title": "summaries of the runs of one study on one testbed",
        "format": "sipsched summary",
        "format_version": SUMMARY_VERSION,
        "testbed": testbed,
        "kind": "; ".join(distinct("kind")) or "unknown",
        "fidelity": "; ".join(distinct("fidelity")) or "unknown: no run was measured",
        "kernels": ", ".join(distinct("kernel")) or "unknown",
        "testbed_description": "; ".join(distinct("testbed_description")),
        "probe_mode_reasons": json.dumps([text for text in distinct("probe_mode_reason") if text]),
        "hosts": first.get("hosts", "{}"),
        "settings": first.get("settings", "{}"),
        "load": first.get("load", "{}"),
        "columns_missing": json.dumps(_tally(json.loads(a["columns_missing"]) for a in found)),
    }


def _tally(missing: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Count the runs in which a column is missing for a reason."""
    tally: dict[tuple[str, str], int] = {}
    for columns in missing:
        for column, reason in columns.items():
            tally[column, reason] = tally.get((column, reason), 0) + 1
    return [
        {"column": column, "reason": reason, "runs": runs}
        for (column, reason), runs in tally.items()
    ]


def open_summary(path: Path) -> xr.Dataset:
    """Read a combined `summary.nc`.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format version.
    """
    try:
        ds = xr.load_dataset(path, engine="netcdf4")
    except FileNotFoundError:
        raise StableError(
            f"{path}: no such file; make reports makes those of the recorded campaign, snakemake measures "
            "what is missing, with --configfile a study of config/studies"
        ) from None
    except (OSError, ValueError) as error:
        raise StableError(f"{path}: not a netCDF-4 file: {error}; delete it") from None
    check_format(ds.attrs, path, "sipsched summary", SUMMARY_VERSION)
    return ds


def pooled_quantile(
    ds: xr.Dataset, quantity: str, share: float, over: Sequence[str] = ()
) -> xr.DataArray:
    """Compute a quantile over all messages of several runs together.

    Parameters
    ----------
    ds
        What `combine` gives.
    quantity
        One of `COUNTED`.
    share
        In (0, 1]: 0.999 for the 99.9th percentile.
    over
        Dimensions to pool over, such as cps, beside rep.

    Returns
    -------
    DataArray
        µs, over the dimensions left, within `histogram.RELATIVE_ERROR`; NaN where there is no message, or one
        of the measured runs has no histogram.
    """
    counts = ds[HISTOGRAM].sel(quantity=quantity, drop=True).sum(list(over))
    found = xr.apply_ufunc(
        histogram.quantile_ns, counts, kwargs={"share": share}, input_core_dims=[["bin"]]
    )
    has_messages = ds["k_rcv_n"].sel(message_type=ALL, drop=True) > 0
    measured = has_messages.sum(["rep", *over])
    pooled = (found / 1000).where(measured == ds["histogram_runs"].sum(list(over)))
    described: xr.DataArray = pooled.assign_attrs(
        long_name=f"{100 * share:g}th percentile of {quantity}",
        units="us",
        definition="of all messages of the runs together, from their histograms",
    )
    return described


def open_run(path: Path) -> xr.Dataset:
    """Read the `summary.nc.zst` of a run.

    Raises
    ------
    StableError
        The file is missing, damaged, or has another format version.
    """
    values, attrs = _read_summary(path)
    run = {name: values.pop(name) for name in RUN_DIMS}
    values.pop("message_type", None)
    counts = values.pop(HISTOGRAM).astype(np.int64)
    lacking = {
        name: np.nan if units else ""
        for name, (units, _) in RUN_LEVEL.items()
        if name not in values
    }
    variables: dict[str, Any] = {
        name: ("message_type", value) if np.ndim(value) else ((), value)
        for name, value in (values | lacking).items()
    }
    variables[HISTOGRAM] = (("quantity", "bin"), counts)
    axes = {"message_type": list(TYPES), "quantity": list(COUNTED)}
    opened = xr.Dataset(variables, axes | run, attrs)
    return _described(opened.assign(count=opened["count"].astype(np.int64)))


def is_current(path: Path) -> bool:
    """Tell whether a summary of a run is there, whole, in the version of this program."""
    try:
        return bool(_read_summary(path)[1]["format_version"] == SUMMARY_VERSION)
    except StableError:
        return False
