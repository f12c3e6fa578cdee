"""The file `windows.nc`, which has one row per window of a run that compares modes (docs/data-format.md)."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.files import read_zstd, whole
from sipsched.plan.crossover import Instances
from sipsched.records.computed import open_netcdf
from sipsched.records.messages import k_rcv, nanoseconds, open_messages
from sipsched.records.record import TRACE_FILE, read_record
from sipsched.records.reduced import REDUCED_WINDOWS_FILE, WINDOWS_FILE, identity, kept
from sipsched.records.run_document import RunDocument
from sipsched.records.switch_log import Samples, WindowsDocument, read_windows
from sipsched.records.trace import read_trace, truesize_bytes
from sipsched.records.window_time import (
    COUNTS,
    STOLEN,
    SWITCH,
    UNFINISHED,
    Floats,
    Spans,
    left_out,
    machine,
    spans,
)
from sipsched.versions import WINDOWS_VERSION

SHAM = "sham"
"""Name of the last arm (group of windows), which repeats the reference mode as a check. Other arms are modes."""
WINDOW_TIMES = ("k_rcv", "t_sip", "total")
"""Times that have statistics per window. `total` is K_rcv + T_sip of the same message."""
STATISTICS = ("mean", "p50", "p90", "p99")
WASHOUTS = (1, 2)
"""Factors that multiply the washout (the excluded start of a window). Each statistic is computed per factor."""
BINS = 30
"""Number of bins into which the shortest window is divided, for message times by the time since the mode switch."""
MESSAGES_MIN = 30
DROPPED, FEW = 4, 5
LEFT_OUT = {
    COUNTS: "counts",
    SWITCH: "the switch at the window's start failed, or the settings that were read back differ",
    UNFINISHED: "the run ended before the window",
    STOLEN: "the hypervisor took more of the SPS's CPU time than the limit, in the block or just before it; "
    "comparisons of modes adjust for this time",
    DROPPED: "a message was dropped in this block or in the previous block, and retransmissions were on",
    FEW: f"fewer than {MESSAGES_MIN} messages",
}
VARIABLES = {
    "messages": ("1", "messages that arrived in the window, received by a worker"),
    "drops": ("1", "messages that arrived in the window and that the full socket queue refused"),
    "datagrams": (
        "1",
        "InDatagrams of the SPS, sampled near the window's ends; over TCP, TCPOrigDataSent",
    ),
    "refused": ("1", "RcvbufErrors of the SPS, sampled near the window's ends"),
    "pdr": ("1", "refused / (datagrams + refused)"),
    "cpu_per_message": (
        "us",
        "CPU time of all processes of the proxy, divided by the number of datagrams",
    ),
    **{
        f"{name}_{statistic}": (
            "us",
            f"{statistic} of "
            + {
                "k_rcv": "K_rcv",
                "t_sip": "T_sip",
                "total": "K_rcv + T_sip",
            }[name],
        )
        for name in WINDOW_TIMES
        for statistic in STATISTICS
    },
    "service": (
        "us",
        "mean of T_sip minus its time off CPU, which is the proxy's own work on a message",
    ),
    "service_scv": (
        "1",
        "squared coefficient of variation of the proxy's own work: its variance divided by its squared mean",
    ),
}
"""Units and definitions of the statistics with the dimensions (washout, window) in `windows.nc`."""


@dataclass(frozen=True)
class _Messages:
    """The messages of one run: ascending arrival times in ns, and the values of each quantity in µs or NaN."""

    t_arr: npt.NDArray[np.int64]
    values: Mapping[str, Floats]
    service: Floats
    drops: npt.NDArray[np.int64]


def windows_from_record(messages: Path, record: Path) -> xr.Dataset:
    """Return the `windows.nc` dataset (statistics per window) from the messages of a run that compares modes.

    Parameters
    ----------
    record
        The run's folder in raw/, with `run.json` and `windows.json.zst`. For a reduced record, the function returns the
        windows that the record contains.

    Returns
    -------
    Dataset
        Dimension `window`, in the order of time: `block`, `mode` (index into the attribute `modes`), `window_arm`
        (equal to `mode`, except that the sham is the last arm), `sham`, `start` and `length` (s, as planned), `switch`
        (duration of the switch, µs), `late` (lateness of the switch, µs), `steal_share`, `time_squeeze`,
        `competitor_share` and `left_out`, see `LEFT_OUT`. If the record has the CPU time of each proxy instance:
        `idle_instances_share`, the share of the proxy's CPU time that all instances without calls used.

        Dimensions `washout` (s), `window`: see `VARIABLES`; NaN where unknown.

        Dimensions `arm`, `since_switch` (s): `aligned_total`, the mean K_rcv + T_sip of messages by the time since the
        switch, averaged over the valid windows, µs, and `aligned_total_error`, its standard error; `aligned_k_rcv` is
        the same for K_rcv.

    Raises
    ------
    StableError
        A file is missing, damaged or of another version.
    """
    document = read_record(record)
    stored = kept(record, REDUCED_WINDOWS_FILE)
    if stored is not None:
        return _of_reduced(stored, document, record)
    recorded = read_windows(record)
    arrived = _messages(open_messages(messages, record))
    design, log = recorded.design, recorded.log
    placed = spans(recorded)
    washouts_s = [design.washout_s * factor for factor in WASHOUTS]
    tables = {name: np.full((len(WASHOUTS), len(design.windows)), np.nan) for name in VARIABLES}
    for row, washout_s in enumerate(washouts_s):
        for window in range(len(placed.done)):
            begin, end = placed.done[window] + round(washout_s * 1e9), placed.end[window]
            values = _reduced(arrived, begin, end) | _sampled(log.samples, begin, end)
            for name, value in values.items():
                tables[name][row, window] = value
    by_window = _drawn(recorded) | vars(machine(recorded, placed))
    by_window |= _idle_instances(recorded, document, placed, record)
    by_window["left_out"] = _left_out(recorded, document, tables, by_window["steal_share"])
    return xr.Dataset(
        {name: ("window", values) for name, values in by_window.items()}
        | {
            name: (
                ("washout", "window"),
                values,
                dict(zip(("units", "definition"), VARIABLES[name], strict=True)),
            )
            for name, values in tables.items()
        }
        | _aligned(recorded, arrived, placed, by_window),
        coords={"washout": washouts_s, "arm": [*design.modes, SHAM]},
        attrs={**_attrs(document, recorded, record), "record": identity(record)},
    )


def _of_reduced(stored: Path, document: RunDocument, record: Path) -> xr.Dataset:
    """Return the dataset `windows.nc` of a reduced record, with the SHA-256 of the reduced record as the source."""
    with tempfile.TemporaryDirectory(prefix="sipsched-reduced-") as scratch:
        path = Path(scratch) / WINDOWS_FILE
        path.write_bytes(read_zstd(stored, WINDOWS_FILE, "copy it from the complete campaign"))
        windows = open_windows(path)
    if windows.attrs["record"] != document.sha256:
        raise StableError(
            f"{stored}: this file was made from another record than {record}; restore it from a copy"
        )
    return windows.assign_attrs(record=identity(record))


def _messages(ds: xr.Dataset) -> _Messages:
    parts = {"k_rcv": k_rcv(ds) / 1000, "t_sip": nanoseconds(ds, "t_sip") / 1000}
    return _Messages(
        ds["t_arr"].to_numpy(),
        parts | {"total": parts["k_rcv"] + parts["t_sip"]},
        parts["t_sip"] - nanoseconds(ds, "t_sip_off") / 1000,
        ds["drop_t_arr"].to_numpy() if "drop_t_arr" in ds else np.empty(0, np.int64),
    )


def _drawn(recorded: WindowsDocument) -> dict[str, npt.NDArray[Any]]:
    windows, modes = recorded.design.windows, len(recorded.design.modes)
    late, took = (np.full(len(windows), np.nan) for _ in range(2))
    for index, switch in enumerate(recorded.log.windows):
        late[index] = max(0, switch.began_ns - switch.asked_ns) / 1e3
        took[index] = (switch.done_ns - switch.began_ns) / 1e3
    return {
        "block": np.array([window.block for window in windows], np.int32),
        "mode": np.array([window.mode for window in windows], np.int16),
        "window_arm": np.array(
            [modes if window.sham else window.mode for window in windows], np.int16
        ),
        "sham": np.array([window.sham for window in windows], np.int8),
        "start": np.array([window.start_ns / 1e9 for window in windows]),
        "length": np.array([window.length_ns / 1e9 for window in windows]),
        "switch": took,
        "late": late,
    }


def _reduced(arrived: _Messages, begin: int, end: int) -> dict[str, float]:
    """Return the statistics (counts, means, quantiles) of the messages that arrived between two times in ns."""
    first, last = np.searchsorted(arrived.t_arr, (begin, end))
    refused = np.searchsorted(arrived.drops, (begin, end))
    reduced = {"messages": float(last - first), "drops": float(refused[1] - refused[0])}
    for name, column in arrived.values.items():
        values = column[first:last]
        values = values[~np.isnan(values)]
        if values.size < MESSAGES_MIN:
            continue
        reduced[f"{name}_mean"] = float(values.mean())
        quantiles = np.percentile(values, (50, 90, 99))
        for statistic, value in zip(STATISTICS[1:], quantiles, strict=True):
            reduced[f"{name}_{statistic}"] = float(value)
    service = arrived.service[first:last]
    service = service[~np.isnan(service)]
    if service.size >= MESSAGES_MIN and service.mean() > 0:
        reduced["service"] = float(service.mean())
        reduced["service_scv"] = float(service.var() / service.mean() ** 2)
    return reduced


def _between(samples: Samples, begin: int, end: int) -> tuple[int, int] | None:
    """Return the indices of the first and last counter sample between two times; None for fewer than two samples."""
    first = int(np.searchsorted(samples.t_ns, begin, side="left"))
    last = int(np.searchsorted(samples.t_ns, end, side="right")) - 1
    return (first, last) if last > first else None


def _sampled(samples: Samples, begin: int, end: int) -> dict[str, float]:
    """Return CPU time per message, drop rate and datagrams between two times in ns, from counter samples."""
    places = _between(samples, begin, end)
    if places is None:
        return {}
    first, last = places
    datagrams = samples.datagrams[last] - samples.datagrams[first]
    refused = samples.refused[last] - samples.refused[first]
    sampled = {"datagrams": float(datagrams), "refused": float(refused)}
    if datagrams + refused:
        sampled["pdr"] = refused / (datagrams + refused)
    if datagrams:
        cpu_ns = samples.cpu_ns[last] - samples.cpu_ns[first]
        sampled["cpu_per_message"] = cpu_ns / datagrams / 1e3
    return sampled


def _idle_instances(
    recorded: WindowsDocument, document: RunDocument, placed: Spans, record: Path
) -> dict[str, Floats]:
    """Return the share of the proxy's CPU time that instances without calls used per window, by the variable's name.

    The washout is excluded, because in this time, calls of the previous window end at another instance. Without the CPU
    time of each instance, the result is empty.

    Raises
    ------
    StableError
        The log has the CPU time of another number of instances than the run.
    """
    design, log, crossover = recorded.design, recorded.log, document.crossover
    if crossover is None or not log.cpu_ns_of_instances:
        return {}
    if len(log.cpu_ns_of_instances) != len(crossover.instances):
        raise StableError(
            f"{record}: expected the CPU time of {len(crossover.instances)} instances, found "
            f"{len(log.cpu_ns_of_instances)}; repeat the run"
        )
    instances = Instances(crossover.instances, crossover.instance_of_mode)
    cpu_ns = np.array(log.cpu_ns_of_instances, np.int64)
    shares = np.full(len(design.windows), np.nan)
    for window, (done, end) in enumerate(zip(placed.done, placed.end, strict=True)):
        places = _between(log.samples, done + round(design.washout_s * 1e9), end)
        if places is None:
            continue
        first, last = places
        used_ns = cpu_ns[:, last] - cpu_ns[:, first]
        if used_ns.any():
            shares[window] = (
                1 - used_ns[instances.of_window(design.windows[window])] / used_ns.sum()
            )
    return {"idle_instances_share": shares}


def _left_out(
    recorded: WindowsDocument,
    document: RunDocument,
    tables: Mapping[str, Floats],
    steal_share: Floats,
) -> npt.NDArray[np.uint8]:
    """Return a code per window of a run: valid, or the reason for exclusion. Steal and drops exclude whole blocks."""
    reasons = left_out(recorded, steal_share)
    if document.load.retransmissions:
        blocks = np.array([window.block for window in recorded.design.windows])
        lossy = np.unique(blocks[np.nan_to_num(tables["refused"][0]) > 0])
        # Exclude the next block, too, because clients retransmit dropped messages after T1 = 0.5 s, 1 s and so on.
        reasons[(reasons == COUNTS) & np.isin(blocks, (*lossy, *(lossy + 1)))] = DROPPED
    # Use the kernel's count of datagrams, because the probe may be off in some windows.
    few = np.nan_to_num(tables["datagrams"][-1]) < MESSAGES_MIN
    reasons[(reasons == COUNTS) & few] = FEW
    return reasons


def _aligned(
    recorded: WindowsDocument,
    arrived: _Messages,
    placed: Spans,
    by_window: Mapping[str, npt.NDArray[Any]],
) -> dict[str, Any]:
    """Return the mean message times of valid windows for each time since the last mode switch."""
    design = recorded.design
    arms = len(design.modes) + 1
    shortest_ns = min(window.length_ns for window in design.windows)
    width_ns = shortest_ns // BINS
    counted = np.flatnonzero(by_window["left_out"][: len(placed.done)] == COUNTS)
    variables: dict[str, Any] = {}
    for name in ("k_rcv", "total"):
        means = np.full((len(counted), BINS), np.nan)
        for row, window in enumerate(counted):
            begin = placed.done[window]
            first, last = np.searchsorted(arrived.t_arr, (begin, begin + width_ns * BINS))
            values = arrived.values[name][first:last]
            known = ~np.isnan(values)
            bins = ((arrived.t_arr[first:last] - begin) // width_ns)[known]
            totals = np.bincount(bins, values[known], BINS)
            counts = np.bincount(bins, minlength=BINS)
            np.divide(totals, counts, out=means[row], where=counts > 0)
        estimate, error = (np.full((arms, BINS), np.nan) for _ in range(2))
        for arm in range(arms):
            rows = means[by_window["window_arm"][counted] == arm]
            n = np.count_nonzero(~np.isnan(rows), axis=0)
            several = n > 1
            if several.any():
                estimate[arm, several] = np.nanmean(rows[:, several], axis=0)
                spread = np.nanstd(rows[:, several], axis=0, ddof=1)
                error[arm, several] = spread / np.sqrt(n[several])
        described = {"units": "us", "definition": f"mean of {name} by time since the switch"}
        variables[f"aligned_{name}"] = (("arm", "since_switch"), estimate, described)
        variables[f"aligned_{name}_error"] = (("arm", "since_switch"), error, {"units": "us"})
    middles = (np.arange(BINS) + 0.5) * width_ns / 1e9
    variables["since_switch"] = ("since_switch", middles, {"units": "s"})
    return variables


def _attrs(document: RunDocument, recorded: WindowsDocument, record: Path) -> dict[str, Any]:
    design, crossover = recorded.design, document.crossover
    return {
        "title": "windows of a crossover run, with one row per window",
        "format": "sipsched windows",
        "format_version": WINDOWS_VERSION,
        **asdict(document.run),
        "kind": document.testbed.kind,
        "fidelity": document.testbed.fidelity,
        "kernel": document.hosts.sps.kernel or "unknown",
        "probe_mode": document.probe.mode,
        "started_at": document.started_at,
        "modes": json.dumps(design.modes),
        "labels": json.dumps([mode.label for mode in crossover.modes] if crossover else []),
        "settings": json.dumps(
            [[asdict(step) for step in mode.steps] for mode in crossover.modes] if crossover else []
        ),
        "same_settings": json.dumps(crossover.same_settings if crossover else []),
        "unavailable": json.dumps(crossover.unavailable if crossover else {}),
        "window_s": design.window_s,
        "washout_s": design.washout_s,
        "call_tail_s": np.nan if design.call_tail_s is None else design.call_tail_s,
        "utilisation": np.nan if design.utilisation is None else design.utilisation,
        "relaxation_s": np.nan if design.relaxation_s is None else design.relaxation_s,
        "steal_limit": recorded.steal_share,
        "retransmissions": int(document.load.retransmissions),
        "tasks": recorded.log.tasks,
        "instances": len(crossover.instances) if crossover else 0,
        "speed": json.dumps(asdict(document.speed) if document.speed else None),
        "receive_buffers": json.dumps(_receive_buffers(document, len(design.modes))),
        "truesize": _truesize(document, record),
    }


def _receive_buffers(document: RunDocument, modes: int) -> list[int | None]:
    """Return, per mode, the effective SO_RCVBUF in bytes of the instance that serves the mode; None if unknown."""
    sizes, crossover = document.settings.so_rcvbuf_of_instances, document.crossover
    if crossover is None or not sizes:
        return [document.settings.so_rcvbuf_bytes] * modes
    return [sizes[number] for number in crossover.instance_of_mode]


def _truesize(document: RunDocument, record: Path) -> float:
    """Return the mean memory in bytes that the kernel charges per message; NaN over TCP, or without a trace."""
    path = record / TRACE_FILE
    if document.sut.over_tcp or not path.exists():
        return np.nan
    return truesize_bytes(read_trace(path))


def write_windows(ds: xr.Dataset, path: Path) -> None:
    """Write `windows.nc` as netCDF-4 with zlib compression, in one atomic step."""
    encoding = {
        name: {"compression": "zlib", "complevel": 4}
        for name, variable in ds.variables.items()
        if variable.dtype.kind in "fiu"
    }
    with whole(path) as partial:
        ds.to_netcdf(partial, engine="netcdf4", encoding=encoding)


def open_windows(path: Path) -> xr.Dataset:
    """Read the statistics per window from a `windows.nc`.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format version.
    """
    return open_netcdf(path, "sipsched windows", WINDOWS_VERSION)


def by_arm(ds: xr.Dataset, name: str) -> Floats:
    """Return a table of one statistic per window: a row per block, a column per mode, and a last column for the sham.

    Parameters
    ----------
    name
        One of `VARIABLES`. The values after the declared washout are used.

    Returns
    -------
    ndarray
        float64, shape (block, arm), with the sham last; NaN for excluded windows.
    """
    return laid_out(ds, ds[name].isel(washout=0).to_numpy(), (COUNTS,))


def laid_out(ds: xr.Dataset, values: npt.NDArray[Any], kept: Sequence[int]) -> Floats:
    """Return a table of windows' values, by block and arm (mode or sham). NaN if the window's code is not in `kept`."""
    blocks, arms = ds["block"].to_numpy(), ds["window_arm"].to_numpy()
    table = np.full((int(blocks.max()) + 1, ds.sizes["arm"]), np.nan)
    counts = np.isin(ds["left_out"].to_numpy(), kept)
    table[blocks[counts], arms[counts]] = values[counts]
    return table
