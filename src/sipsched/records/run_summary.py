"""The summary of one run: counts, means, quantiles and histograms over its messages."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.files import read_zstd
from sipsched.records import histogram
from sipsched.records.conversion import part_of_json
from sipsched.records.cpu_report import Wait
from sipsched.records.load_report import GeneratorReport, Sends
from sipsched.records.messages import (
    FLAGS,
    MESSAGE_TYPES,
    UNKNOWN,
    k_rcv,
    nanoseconds,
    open_messages,
)
from sipsched.records.publishable import publishable_hosts, publishable_reason
from sipsched.records.record import COUNTERS_FILE, read_record
from sipsched.records.reduced import SUMMARY_FILE, identity, kept
from sipsched.records.run_document import RunDocument
from sipsched.records.scheduler_report import SchedulerReport
from sipsched.records.summary_files import open_run
from sipsched.records.summary_variables import (
    COUNTED,
    CPU_PARTS,
    HISTOGRAM,
    OF_A_RUN,
    RUN_DIMS,
    STATISTICS,
    SUMMARY_TIMES,
    TYPES,
    describe,
)
from sipsched.validity import counters
from sipsched.validity.certificate import WINDOWS_MS, ks_p_value
from sipsched.versions import SUMMARY_VERSION


def summarise_run(messages: Path, record: Path) -> xr.Dataset:
    """Compute the summary of one run from the files `messages.nc` and the record.

    Parameters
    ----------
    record
        The run's folder in raw/, with `run.json` and `counters.json.zst`. For a reduced record, the function returns
        the summary that the record contains.

    Returns
    -------
    Dataset
        Dimension `message_type` (str: "all", then the types). `count` (int64): received messages; "all" includes
        retransmissions and the type `other`. `drops` (float64): refused datagrams that the probe saw, NaN without a
        probe. For each of K_rcv (`k_rcv`), `k_stack`, `k_sockq`, `k_copy`, `t_sip`, `t_sip_off`, `k_snd`: `<name>_n`,
        the number of messages with this value, and `<name>_mean`, `_sd` (n - 1), `_p50`, `_p95`, `_p99` (linear
        interpolation), float64 µs, NaN without messages. `histogram` (int64, over quantity and bin): histograms of
        `COUNTED` over all messages, see `sipsched.records.histogram`. For scalars, see `RUN_LEVEL`. The settings of the
        run are scalar coordinates.

        `pdr` = ΔRcvbufErrors / (ΔInDatagrams + ΔRcvbufErrors), from the Udp counters of the SPS in /proc/net/snmp. This
        is the packet drop rate of the papers, in which a socket of the SPS either takes or refuses every SIP message
        that reaches the SPS.

    Raises
    ------
    StableError
        A file is missing, damaged or of another version, or the messages come from another record.
    """
    document = read_record(record)
    stored = kept(record, SUMMARY_FILE)
    if stored is not None:
        return _of_reduced(stored, document, record)
    ds = open_messages(messages, record)
    variables: dict[str, Any] = {
        "count": ("message_type", _by_type(ds["message_type"])),
        "drops": ("message_type", _drops(ds)),
        **_statistics(ds),
        HISTOGRAM: (("quantity", "bin"), _histograms(ds)),
    }
    snapshots = _read_counters(record)
    level = _run_level(document, snapshots["sps"], ds.sizes.get("drop", 0)) | _alone(ds)
    level |= _factors(document) | _account(document) | {"record": identity(record)}
    variables |= {name: ((), value) for name, value in level.items()}
    result = xr.Dataset(
        variables,
        coords={"message_type": list(TYPES), "quantity": list(COUNTED)}
        | {key: getattr(document.run, key) for key in RUN_DIMS},
        attrs={**_attrs(ds, document), "source": f"{messages} and {record}"},
    )
    return describe(result)


def _attrs(ds: xr.Dataset, document: RunDocument) -> dict[str, Any]:
    """Return the attributes of a run's summary, without addresses and names of private machines."""
    missing = {
        str(name): variable.attrs["missing_reason"]
        for name, variable in ds.data_vars.items()
        if "missing_reason" in variable.attrs
    }
    return {
        "title": "summary of one run",
        "format": OF_A_RUN,
        "format_version": SUMMARY_VERSION,
        **{key: ds.attrs[key] for key in ("testbed", "kind", "fidelity", "kernel")},
        "testbed_description": document.testbed.description,
        "hosts": json.dumps(publishable_hosts(asdict(document.hosts)), sort_keys=True),
        "settings": json.dumps(asdict(document.settings), sort_keys=True),
        "load": json.dumps(asdict(document.load), sort_keys=True),
        "probe_mode_reason": publishable_reason(document.probe.mode_reason),
        "columns_missing": json.dumps(missing),
    }


def _of_reduced(stored: Path, document: RunDocument, record: Path) -> xr.Dataset:
    """Return the summary in a reduced record, with the SHA-256 of the reduced record as the summary's source."""
    summary = open_run(stored)
    if summary["record"].item() != document.sha256:
        raise StableError(
            f"{stored}: this file was made from another record than {record}; restore it from a copy"
        )
    summary["record"] = summary["record"].copy(data=identity(record))
    return summary


def _by_type(types: xr.DataArray) -> npt.NDArray[np.int64]:
    by_type = np.bincount(types.to_numpy(), minlength=len(MESSAGE_TYPES))
    counts = [types.size, *(by_type[code] for code in MESSAGE_TYPES.values())]
    return np.array(counts, np.int64)


def _drops(ds: xr.Dataset) -> npt.NDArray[np.float64]:
    if ds.attrs["probe_mode"] == "off":
        return np.full(len(TYPES), np.nan)
    return _by_type(ds["drop_type"]).astype(np.float64)


def _alone(ds: xr.Dataset) -> dict[str, float]:
    """Return statistics of the SPS's busy periods, and the mean wait in the socket of messages that met an idle SPS."""
    intervals = (k_rcv(ds), nanoseconds(ds, "t_sip"), nanoseconds(ds, "k_snd"))
    arrived = ds["t_arr"].to_numpy()
    # ASSUME a message that arrives while the SPS is empty finds an idle worker, so the message waits only until the
    # kernel has delivered the message and has woken the worker
    left = arrived + sum(
        (np.nan_to_num(interval) for interval in intervals), np.zeros(len(arrived))
    )
    latest = np.maximum.accumulate(left)
    met_none = np.zeros(len(arrived), bool)
    # Exclude the first message, because the proxy may still have served an earlier, unrecorded message when it arrived.
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
    """Return statistics of the busy periods of the proxy (SPS).

    A busy period begins with a message that finds the SPS empty.
    """
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
    for name in SUMMARY_TIMES:
        values = (k_rcv(ds) if name == "k_rcv" else nanoseconds(ds, name)) / 1000
        if name in ("k_stack", "k_sockq") and unseen.any():
            # Discard k_stack and k_sockq of messages without t_stack (the time of queueing), which the probe missed.
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


@dataclass(frozen=True)
class _Texts:
    """The contents of a host's counter files, such as /proc/net/snmp, before and after the load. The keys are paths."""

    before: dict[str, str]
    after: dict[str, str]


@dataclass(frozen=True)
class _Counters:
    """The content of `counters.json`: the counter files of the hosts before and after the load."""

    sps: _Texts
    uac: _Texts | None = None
    uas: _Texts | None = None
    front: _Texts | None = None


def _read_counters(record: Path) -> dict[str, Any]:
    path = record / COUNTERS_FILE
    hosts = part_of_json(_Counters, read_zstd(path, "counters", "repeat the run"), str(path))
    return {role: vars(texts) for role, texts in vars(hosts).items() if texts is not None}


def _run_level(
    document: RunDocument, snapshots: Mapping[str, Mapping[str, str]], drops: int
) -> dict[str, Any]:
    udp, steal = {}, {}
    # Count only the CPUs of the SPS, because a network namespace shows all CPUs of its machine.
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
        # Exclude messages between the front end and its instances, because they did not come from UAC or UAS.
        # Include the drops of a front end on its own host.
        delta["InDatagrams"] = document.ledger.to_sps.received
        delta["RcvbufErrors"] = document.ledger.to_sps.refused
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
        "calls_incomplete": float(generator.calls_created - generator.calls_completed),
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
    """Return the share of calls that failed or were set up late, or NaN if the set-up times are unknown."""
    if generator.calls_late is None or not generator.calls_created:
        return np.nan
    good = generator.calls_completed - generator.calls_late
    return 1 - good / generator.calls_created


def _account(document: RunDocument) -> dict[str, float]:
    """Return the shares of the SPS's CPU time that the proxy, other programs and interrupts used; NaN if unknown."""
    account = document.account.account if document.account else None
    if account is None:
        return dict.fromkeys((*CPU_PARTS, "competitor_wait_s"), np.nan)
    parts = account.parts
    summed = {
        "proxy_share": parts.workers + parts.proxy,
        "interrupt_share": parts.softirq + parts.irq,
        "kernel_share": parts.kernel,
        "own_share": parts.own,
        "competitor_share": parts.realtime + parts.fair,
        "idle_class_share": parts.idle_class,
        "stolen_share": parts.stolen,
        "idle_share": parts.idle,
    }
    shares = {name: summed[name] / parts.total for name in CPU_PARTS}
    return shares | {"competitor_wait_s": account.wait_ns / 1e9}


def _factors(document: RunDocument) -> dict[str, float]:
    """Return the lock waits, CPU times and context switches of the proxy's tasks; NaN if not counted."""
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
    """Return how closely calls started as planned, from the run's arrival certificate; NaN without a certificate."""
    certificate = document.certificate
    named = [f"variance_to_mean_{window}ms" for window in WINDOWS_MS]
    late = [f"lateness_{which}_us" for which in ("p50", "p99", "max")]
    if certificate is None:
        names = ("ks_distance", "ks_p_value", "cv", *named, *late)
        return {"offered_cps": float(document.run.cps), **dict.fromkeys(names, np.nan)}
    distance = certificate.ks_distance
    return {
        "offered_cps": certificate.schedule_cps,
        "ks_distance": _number(distance),
        "ks_p_value": np.nan
        if distance is None
        else ks_p_value(distance, certificate.distinct_gaps),
        "cv": certificate.cv,
        **dict(zip(named, map(_number, certificate.variance_to_mean), strict=True)),
        **{name: _number(getattr(certificate, name)) for name in late},
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _settings(scheduler: SchedulerReport) -> dict[str, Any]:
    """Return the scheduler settings of the run's mode, as the kernel of the run applied them."""
    steps = [asdict(step) for step in scheduler.steps]
    for step in steps:
        del step["read_back"]
    return {
        "translated": scheduler.translated,
        "steps": steps,
        "in_force": scheduler.in_force,
    }


def _sent_again(requests: Mapping[str, Sends] | None) -> float:
    return np.nan if requests is None else float(sum(sends.again for sends in requests.values()))
