"""The file `messages.nc` with the times of each message of one run (docs/data-format.md)."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import ComputedFileError, StableError
from sipsched.files import whole
from sipsched.records import record, reduced, trace
from sipsched.records.computed import check_format, check_record
from sipsched.records.run_document import RunDocument
from sipsched.versions import MESSAGES_VERSION

MISSING = 0xFFFFFFFF
SATURATED = 0xFFFFFFFE
MESSAGE_TYPES = {
    "INVITE": 1,
    "180": 2,
    "200-INVITE": 3,
    "ACK": 4,
    "BYE": 5,
    "200-BYE": 6,
    "retransmission": 7,
    "other": 0,
}
FLAGS = {
    "sockq_is_lower_bound": 1 << 0,
    "matched_oldest_first": 1 << 1,
    "enqueue_not_seen": 1 << 2,
    "nothing_sent": 1 << 3,
    "departure_not_seen": 1 << 4,
    "more_sends_than_kept": 1 << 5,
    "arrival_not_found": 1 << 6,
    "saturated": 1 << 7,
    "clipped": 1 << 8,
    "read_with_others": 1 << 9,
    "read_in_pieces": 1 << 10,
    "sent_by_another": 1 << 11,
}
INTERVALS = {
    "k_stack": "t_stack - t_arr: network stack, from the driver to the socket queue",
    "k_sockq": "t_sockq - t_stack: waiting in the socket queue",
    "k_copy": "t_sip_in - t_sockq: taken from the queue until recv returns",
    "t_sip": "t_sip_out - t_sip_in: service in the proxy, without the probe's own work",
    "t_sip_off": "the part of t_sip that the worker spent off CPU",
    "k_snd": "t_dep - t_sip_out: from send to the driver, without the probe's own work",
    "k_rcv": "t_sip_in - t_arr; exists only if its three parts are missing",
}
ARRIVALS = {
    "t_arr": {
        "long_name": "arrival: the driver hands the packet to the kernel",
        "units": "ns",
        "definition": "CLOCK_MONOTONIC; t_sip_in where flag arrival_not_found is set",
    },
    "drop_t_arr": {
        "long_name": "arrival of a datagram that the full socket queue refused",
        "units": "ns",
        "definition": "CLOCK_MONOTONIC",
    },
}
_TYPE_CODES = {
    "flag_values": np.array(list(MESSAGE_TYPES.values()), np.uint8),
    "flag_meanings": " ".join(MESSAGE_TYPES),
}
DESCRIPTIONS: Mapping[str, dict[str, Any]] = {
    **ARRIVALS,
    "message_type": {
        "long_name": "kind of message; request by method, response by status and CSeq method",
        "units": "1",
        "definition": "RFC 3261; retransmission: a later datagram of same Call-ID, CSeq, kind",
        **_TYPE_CODES,
    },
    "worker": {
        "long_name": "worker that received the message",
        "units": "1",
        "definition": "index into thread_ids, ascending",
    },
    "cpu": {
        "long_name": "CPU at t_sip_in",
        "units": "1",
        "definition": "smp_processor_id() when recv returned",
    },
    "flags": {
        "long_name": "flags of the probe and of the parser",
        "units": "1",
        "definition": "bits 7 and 8 from sipsched.records.messages, the others from hardware/common/trace.h",
        "flag_masks": np.array(list(FLAGS.values()), np.uint16),
        "flag_meanings": " ".join(FLAGS),
    },
    "drop_type": {
        "long_name": "kind of the refused datagram",
        "units": "1",
        "definition": "as message_type",
        **_TYPE_CODES,
    },
    "drop_reason": {
        "long_name": "errno that the kernel returned",
        "units": "1",
        "definition": "12: counted in RcvbufErrors, 105: counted in MemErrors",
    },
}
"""The netCDF attributes of all columns of messages, except the columns of time differences such as K_rcv."""
STAMPS = {
    "t_stack": ("k_stack", "k_sockq"),
    "t_sockq": ("k_sockq", "k_copy"),
    "t_dep": ("k_snd",),
    "off_cpu_ns": ("t_sip_off",),
}
"""Timestamps that the preload library (a probe without eBPF) cannot take, with the columns that need each one."""
UNKNOWN = "unknown"
"""Text for a fact that the kernel of a host does not report."""
PROBE_OFF = "the probe was off"
"""Reason why a run without the probe has no times."""
PARTS = ("k_stack", "k_sockq", "k_copy")
GAPS = {"t_arr": "gap", "drop_t_arr": "drop_gap"}
"""Columns of arrival times, and for each the column of inter-arrival times that the file contains instead."""
BY_BYTES = ("k_stack", "k_copy", "k_snd", "t_sip_off")
"""Columns that the compression shuffles by byte, not by bit, because high bytes often repeat between messages."""
NOISY = ("gap", "k_sockq", "t_sip", "k_rcv")
"""Columns for which a slower compression saves a tenth of a byte per message and costs a few ns per message."""
CHUNK = 1 << 16
BY_BYTE: Mapping[str, Any] = {"compression": "blosc_zstd", "blosc_shuffle": 1, "complevel": 1}
BY_BIT: Mapping[str, Any] = {"compression": "blosc_zstd", "blosc_shuffle": 2, "complevel": 1}
BY_BIT_SLOWLY: Mapping[str, Any] = {"compression": "blosc_zstd", "blosc_shuffle": 2, "complevel": 5}
ZLIB: Mapping[str, Any] = {"compression": "zlib", "shuffle": True, "complevel": 4}


def messages_from_record(record_dir: Path) -> xr.Dataset:
    """Convert the trace of a run into columns with one entry per message.

    Parameters
    ----------
    record_dir
        A folder of raw/ with `run.json`, and with `trace.bin.zst` unless the probe was off. For a record without a
        trace, the dataset has no messages, and each column has an attribute with the reason.

    Returns
    -------
    Dataset
        Dimension `message`, sorted by `t_arr`:

        - `t_arr`: int64, ns, CLOCK_MONOTONIC of the SPS. If the flag `arrival_not_found` is set,
          the value is t_sip_in.
        - `k_stack`, `k_sockq`, `k_copy`, `t_sip`, `t_sip_off`, `k_snd`: uint32, ns. 0xFFFFFFFF
          (_FillValue) is missing, 0xFFFFFFFE is 4.29 s or more and sets the flag `saturated`. K_rcv is k_stack +
          k_sockq + k_copy. If the probe cannot measure one of these three columns, the whole column is missing, its
          attribute `missing_reason` gives the reason, and `k_rcv` is stored.
        - `message_type`, `worker`, `cpu`: uint8 (uint16 above 256 workers or CPUs). A
          retransmission is a later datagram of the same Call-ID, CSeq and kind; the first may have been dropped. Among
          datagrams of kind `other`, retransmissions are not recognised.
        - `flags`: uint16, see `FLAGS`.

        Dimension `drop`, sorted by `drop_t_arr`: datagrams that the full socket queue refused;
        `drop_t_arr` int64 ns, `drop_type` uint8, `drop_reason` uint8 (errno).

    Raises
    ------
    StableError
        A file of the record is missing or differs from its entry in `run.json`. Or the trace is damaged, or does not
        contain the number of records that the probe wrote.

    Notes
    -----
    docs/methodology/timestamps.md defines the timestamps. A timestamp that is out of order is moved, and the message
    gets a flag.
    """
    document = record.read_record(record_dir)
    probe = document.probe
    path = record_dir / record.TRACE_FILE
    left_out = reduced.read_reduced(record_dir) is not None and not path.exists()
    if left_out or (probe.mode == "off" and not path.exists()):
        records = np.empty(0, trace.RECORD)
        reasons = dict.fromkeys(INTERVALS, reduced.REASON if left_out else PROBE_OFF)
    else:
        read = trace.read_trace(path, probe.records + probe.drops)
        records = read.records
        reasons = _missing_reasons(read.mode)
    columns, drops, tids = columns_of(records)
    return assemble(columns, drops, tids, reasons, _global_attrs(document, record_dir))


def columns_of(
    records: npt.NDArray[Any],
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]], list[int]]:
    """Sort the records by arrival, and return the columns of received messages and of drops."""
    # Import numba only here, because the import takes 0.4 s, and reading a finished dataset does not need numba.
    from sipsched.records.message_loop import arrivals, empty_columns, fill, no_calls

    t_arr = np.empty(len(records), np.int64)
    n_drops = arrivals(records, t_arr)
    order = np.argsort(t_arr, kind="stable")
    messages, drops = empty_columns(len(records) - n_drops, n_drops)
    fill(records, t_arr, order, no_calls(len(records)), messages, drops)
    tids, cpu = np.unique(messages.tid), messages.cpu
    columns = {
        "t_arr": messages.t_arr,
        **dict(zip(INTERVALS, messages.intervals, strict=True)),
        "message_type": messages.message_type,
        "worker": _workers(messages.tid, tids),
        "cpu": cpu if cpu.size and cpu.max() > 255 else cpu.astype(np.uint8),
        "flags": messages.flags,
    }
    return columns, drops._asdict(), [int(value) for value in tids]


def _workers(tid: npt.NDArray[np.uint32], tids: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
    """Return the index of each message's worker. Workers are numbered in ascending order of thread ids."""
    dtype = np.uint8 if len(tids) <= 256 else np.uint16
    if not len(tids):
        return np.empty(0, dtype)
    # Use a lookup table, because thread ids are below 2²² (pid_max), and a search would take five times as long.
    numbers: npt.NDArray[Any] = np.zeros(int(tids[-1] - tids[0]) + 1, dtype)
    numbers[tids - tids[0]] = np.arange(len(tids))
    worker: npt.NDArray[Any] = numbers[tid - tids[0]]
    return worker


def _missing_reasons(mode: trace.ProbeMode) -> dict[str, str]:
    """Return the columns that a mode of the probe cannot measure, each with the reason as text."""
    if mode is not trace.ProbeMode.PRELOAD:
        return {}
    reasons: dict[str, str] = {}
    for stamp, columns in STAMPS.items():
        for column in columns:
            reasons.setdefault(
                column, f"the preload library cannot take the timestamp {stamp}, which needs eBPF"
            )
    return reasons


def _global_attrs(document: RunDocument, record_dir: Path) -> dict[str, Any]:
    return {
        "title": "SIP messages through a proxy in one run, with one row per message",
        "format": "sipsched messages",
        "format_version": MESSAGES_VERSION,
        **asdict(document.run),
        "kind": document.testbed.kind,
        "fidelity": document.testbed.fidelity,
        "transport": document.sut.transport,
        "probe_mode": document.probe.mode,
        "kernel": document.hosts.sps.kernel or UNKNOWN,
        "clock": "CLOCK_MONOTONIC of the SPS",
        "source": str(record_dir),
        "record": reduced.identity(record_dir),
    }


def assemble(
    columns: dict[str, npt.NDArray[Any]],
    drops: Mapping[str, npt.NDArray[Any]],
    tids: list[int],
    reasons: dict[str, str],
    attrs: dict[str, Any],
) -> xr.Dataset:
    """Return the columns of messages and drops as one dataset, with units and descriptions.

    Parameters
    ----------
    tids
        The thread id of each worker.
    reasons
        Reason for each missing column of intervals.
    """
    n = len(columns["t_arr"])
    for name in INTERVALS:
        if name in reasons:
            columns[name].fill(MISSING)
        elif n and bool((columns[name] == MISSING).all()):
            reasons[name] = f"not measured for any of the {n} messages"
    if not set(PARTS) & set(reasons):
        del columns["k_rcv"]
    described: dict[str, Mapping[str, Any]] = dict(DESCRIPTIONS)
    described["worker"] = DESCRIPTIONS["worker"] | {"thread_ids": np.array(tids, np.int64)}
    for name, definition in INTERVALS.items():
        interval: dict[str, Any] = {
            "long_name": definition.split(": ")[-1],
            "units": "ns",
            "definition": definition,
            "_FillValue": np.uint32(MISSING),
            "saturation": np.uint32(SATURATED),
        }
        if name in reasons:
            interval["missing_reason"] = reasons[name]
        described[name] = interval
    variables = {
        name: ("drop" if name in drops else "message", values, described[name])
        for name, values in {**columns, **drops}.items()
    }
    return xr.Dataset(variables, attrs=attrs)


def write_messages(ds: xr.Dataset, path: Path) -> None:
    """Write `messages.nc` as netCDF-4, in one atomic step.

    The file contains the gaps between arrivals instead of the arrival times.
    """
    stored = _with_gaps(ds)
    encoding = {}
    for name, variable in stored.variables.items():
        encoding[name] = {
            **_encoding(str(name), variable.to_numpy()),
            "chunksizes": (min(CHUNK, max(1, variable.size)),),
        }
        if "_FillValue" not in variable.attrs:
            encoding[name]["_FillValue"] = None
    with whole(path) as partial:
        stored.to_netcdf(partial, engine="netcdf4", encoding=encoding)


def _with_gaps(ds: xr.Dataset) -> xr.Dataset:
    """Return the dataset with the time since the previous arrival instead of each arrival time."""
    stored = {}
    for name, variable in ds.variables.items():
        if name not in GAPS:
            stored[name] = variable
            continue
        instants = variable.to_numpy()
        gaps = np.diff(instants, prepend=instants[:1])
        fits = not gaps.size or gaps.max() < 2**32
        attrs = variable.attrs | {
            "long_name": "time since the value in the previous row",
            "first": instants[0] if instants.size else np.int64(0),
            "definition": f"{name} is first + the sum of the gaps up to it; "
            + variable.attrs["definition"],
        }
        gaps = gaps.astype(np.uint32 if fits else np.uint64)
        stored[GAPS[name]] = xr.Variable(variable.dims, gaps, attrs)
    return xr.Dataset(stored, attrs=ds.attrs)


def with_arrivals(ds: xr.Dataset) -> xr.Dataset:
    """Return the dataset with arrival times instead of the times between arrivals.

    Parameters
    ----------
    ds
        A `messages.nc` as the file contains it, in memory or as Dask arrays.

    Returns
    -------
    Dataset
        The same dataset with `t_arr` and `drop_t_arr`, int64 ns, instead of `gap` and `drop_gap`.
    """
    variables = {}
    for name, variable in ds.variables.items():
        instant = next((key for key, gap in GAPS.items() if gap == name), None)
        if instant is None:
            variables[name] = variable
            continue
        (dimension,) = variable.dims
        instants = variable.astype(np.int64).cumsum(str(dimension)) + variable.attrs["first"]
        variables[instant] = xr.Variable(variable.dims, instants.data, ARRIVALS[instant])
    return xr.Dataset(variables, attrs=ds.attrs)


def _encoding(name: str, values: npt.NDArray[Any]) -> Mapping[str, Any]:
    """Return the netCDF compression options for a column, chosen so that the compression cannot fail.

    HDF5's blosc filter fails ("Buffer is uncompressible") on an incompressible chunk, which zlib would store unchanged.
    Blosc failed with 30 drops, and with uniform 32-bit values. Blosc is safe if a byte is 0 in seven of eight rows.
    With bitshuffle, blosc is also safe if two bits never change, except in the two reserved values.
    """
    if values.size < CHUNK // 16:
        return ZLIB
    if name in BY_BYTES and _largest_share(values >= 1 << 24) <= 1 / 8:
        return BY_BYTE
    if values.dtype == np.uint32:
        values = values[values < SATURATED]
        if not values.size:
            return BY_BIT
    varying = int(np.bitwise_or.reduce(values ^ values[0]))
    if varying.bit_count() > 8 * values.itemsize - 2:
        return ZLIB
    return BY_BIT_SLOWLY if name in NOISY else BY_BIT


def _largest_share(rows: npt.NDArray[np.bool_]) -> float:
    """Return the share of true rows in the chunk (the unit of netCDF compression) in which this share is largest."""
    return max(float(rows[at : at + CHUNK].mean()) for at in range(0, len(rows), CHUNK))


def open_messages(path: Path, of_record: Path | None = None) -> xr.Dataset:
    """Open a `messages.nc` without converting integers to floats. A missing value remains 0xFFFFFFFF.

    Parameters
    ----------
    of_record
        The record from which the file must have been made. None: the record is not checked.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, has another format version, or was made from another record.
    """
    try:
        stored = xr.load_dataset(path, engine="netcdf4", mask_and_scale=False, decode_times=False)
        check_format(stored.attrs, path, "sipsched messages", MESSAGES_VERSION)
        if of_record is not None:
            check_record(str(stored.attrs["record"]), path, of_record)
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; make it with snakemake") from None
    # The netCDF4 library raises a RuntimeError for a chunk that cannot be decompressed.
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"{path}: not a netCDF-4 file: {error}; delete it and run snakemake"
        raise ComputedFileError(problem, path) from None
    except StableError as error:
        raise ComputedFileError(str(error), path) from None
    return with_arrivals(stored)


def k_rcv(ds: xr.Dataset) -> npt.NDArray[np.float64]:
    """Return K_rcv, the time from arrival at the host to reception by a worker, of each message in ns.

    Returns
    -------
    ndarray
        float64, shape (message,), exact whole nanoseconds; NaN where missing.
    """
    if "k_rcv" in ds:
        return nanoseconds(ds, "k_rcv")
    total: npt.NDArray[np.float64] = sum(
        (nanoseconds(ds, part) for part in PARTS), np.zeros(ds.sizes["message"])
    )
    return total


def nanoseconds(ds: xr.Dataset, name: str) -> npt.NDArray[np.float64]:
    """Return a column of times such as K_rcv in ns, as float64 with shape (message,); NaN for a missing value."""
    values = ds[name].to_numpy()
    return np.where(values == MISSING, np.nan, values.astype(np.float64))
