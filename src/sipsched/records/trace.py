"""The binary format of traces, which the probe writes for each run, and a function that reads a trace."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.files import zstd_pieces

MAGIC = b"SIPTRACE"
TRACE_VERSION = 1
FRESH_TRACE = "repeat the run"


class ProbeMode(IntEnum):
    """The way in which the probe took the timestamps (`enum trace_mode` of hardware/common/trace.h)."""

    EXACT = 1
    TRACEPOINT = 2
    PRELOAD = 3
    STREAM = 4


class Event(IntEnum):
    """The event that a record of the trace describes: a message or a dropped datagram (`enum trace_event`)."""

    MESSAGE = 0
    DROP = 1


class MessageKind(IntEnum):
    """The type of a message (`enum trace_kind`)."""

    OTHER = 0
    INVITE = 1
    RINGING = 2
    OK_INVITE = 3
    ACK = 4
    BYE = 5
    OK_BYE = 6


class Flag(IntFlag):
    """The flags by which the probe marks special properties of a trace record (`enum trace_flag`)."""

    SOCKQ_BOUND = 1 << 0
    DUPLICATE = 1 << 1
    NO_STACK = 1 << 2
    NO_SEND = 1 << 3
    NO_DEP = 1 << 4
    MORE_SENDS = 1 << 5
    UNMATCHED = 1 << 6
    SHARED_READ = 1 << 9
    SPLIT = 1 << 10
    LEFT = 1 << 11


# HEADER and RECORD have the layout of struct trace_header and struct trace_record in hardware/common/trace.h, which are
# packed and little-endian.
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("record_size", "<u4"),
        ("mode", "<u4"),
        ("reserved", "<u4"),
    ]
)
RECORD = np.dtype(
    [
        ("t_arr", "<u8"),
        ("t_stack", "<u8"),
        ("t_sockq", "<u8"),
        ("t_sip_in", "<u8"),
        ("t_sip_out", "<u8"),
        ("t_dep", "<u8"),
        ("call_id_hash", "<u8"),
        ("cseq", "<u4"),
        ("tid", "<u4"),
        ("off_cpu_ns", "<u4"),
        ("rmem", "<u4"),
        ("in_cost_ns", "<u2"),
        ("out_cost_ns", "<u2"),
        ("cpu", "<u2"),
        ("length", "<u2"),
        ("flags", "<u2"),
        ("switches", "<u2"),
        ("event", "u1"),
        ("kind", "u1"),
        ("n_send", "u1"),
        ("drop_reason", "u1"),
    ]
)


@dataclass(frozen=True)
class Trace:
    """The trace of a run, as the probe wrote it.

    Attributes
    ----------
    mode
        The way in which the probe took the timestamps.
    records
        Array of dtype `RECORD`, shape (n,), in the order in which the probe wrote them. Timestamps are CLOCK_MONOTONIC
        in ns; 0 means that a timestamp is unknown.
    """

    mode: ProbeMode
    records: npt.NDArray[Any]


def read_trace(path: Path, expected: int | None = None) -> Trace:
    """Read the trace from a `trace.bin.zst`.

    Parameters
    ----------
    expected
        Number of messages and drops that the probe reports; None if the number is unknown.

    Returns
    -------
    Trace
        The trace, with read-only records. Records that the preload library reserved but never filled (t_sip_in = 0) are
        excluded.

    Raises
    ------
    StableError
        The file is not zstd, is truncated, or ends within a record. Or its magic, version, mode, record size or number
        of records differs from the expected value. The message names the file.
    """
    data = _read(path, expected)
    if len(data) < HEADER.itemsize:
        raise StableError(
            f"{path}: truncated: expected a header of {HEADER.itemsize} bytes, found {len(data)}; "
            f"{FRESH_TRACE}"
        )
    header = np.frombuffer(data, HEADER, count=1)[0]
    _check_header(path, header)
    payload = len(data) - HEADER.itemsize
    count, partial = divmod(payload, RECORD.itemsize)
    if partial:
        raise StableError(
            f"{path}: truncated: expected whole records of {RECORD.itemsize} bytes, found "
            f"{count} and {partial} bytes more; {FRESH_TRACE}"
        )
    records = np.frombuffer(data, RECORD, offset=HEADER.itemsize)
    mode = ProbeMode(int(header["mode"]))
    if mode is ProbeMode.PRELOAD:
        records = records[(records["t_sip_in"] != 0) | (records["event"] == Event.DROP)]
    if expected is not None and len(records) != expected:
        verdict = "truncated" if len(records) < expected else "not of this run"
        raise StableError(
            f"{path}: {verdict}: expected {expected} records as run.json's probe report says, "
            f"found {len(records)}; {FRESH_TRACE}"
        )
    return Trace(mode, records)


def truesize_bytes(trace: Trace) -> float:
    """Return the mean memory in bytes that one message occupies in the receive buffer, or NaN if unknown.

    A record contains the memory that the kernel charges for the whole queue. Some messages arrive at an empty queue. So
    the smallest charge among the messages of a type is the charge of a single message (its truesize).
    """
    charged = trace.records[(trace.records["event"] == Event.MESSAGE) & (trace.records["rmem"] > 0)]
    kinds, numbers = np.unique(charged["kind"], return_inverse=True)
    if not kinds.size:
        return np.nan
    smallest = np.full(kinds.size, np.iinfo(np.uint32).max, np.uint32)
    np.minimum.at(smallest, numbers, charged["rmem"])
    return float(smallest[numbers].mean())


def _read(path: Path, expected: int | None) -> npt.NDArray[np.uint8]:
    """Return the uncompressed bytes of a trace. If the number of records is known, allocate memory only once."""
    pieces = zstd_pieces(path, "trace", f"{FRESH_TRACE} with the probe on")
    room = 0 if expected is None else HEADER.itemsize + expected * RECORD.itemsize
    data, length = np.empty(room, np.uint8), 0
    rest: list[npt.NDArray[np.uint8]] = []
    for piece in pieces:
        if rest or length + len(piece) > room:
            rest.append(np.frombuffer(piece, np.uint8))
            continue
        data[length : length + len(piece)] = np.frombuffer(piece, np.uint8)
        length += len(piece)
    return np.concatenate((data[:length], *rest)) if rest else data[:length]


def _check_header(path: Path, header: Any) -> None:
    magic = bytes(header["magic"])
    if magic != MAGIC:
        raise StableError(f"{path}: not a trace: expected magic {MAGIC!r}, found {magic!r}")
    if header["version"] != TRACE_VERSION:
        raise StableError(
            f"{path}: unknown trace version: expected {TRACE_VERSION}, found {header['version']}; "
            "read it with the version of sipsched that wrote it"
        )
    if header["record_size"] != RECORD.itemsize:
        raise StableError(
            f"{path}: record size: expected {RECORD.itemsize} bytes, found "
            f"{header['record_size']}; build the probe from this tree's hardware/probe"
        )
    if int(header["mode"]) not in set(ProbeMode):
        raise StableError(
            f"{path}: unknown probe mode: expected 1 to 4, found {header['mode']}; "
            "build the probe from this tree's hardware/probe"
        )
