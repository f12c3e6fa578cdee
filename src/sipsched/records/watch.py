"""The record of a watched proxy: counters per second and times per message, but no content of SIP messages.

The folder of a record contains four files: `watch.json` (the proxy and the privileges), `seconds.jsonl` (one line per
second), `trace.bin.zst` (the probe's trace, in frames of zstd) and `messages.nc`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.records import histogram
from sipsched.records.conversion import as_part
from sipsched.records.messages import (
    DESCRIPTIONS,
    FLAGS,
    MESSAGE_TYPES,
    assemble,
    columns_of,
)
from sipsched.records.trace import HEADER, RECORD, Event, Flag, MessageKind, ProbeMode, read_trace
from sipsched.versions import MESSAGES_VERSION

WATCH_FILE, SECONDS_FILE, TRACE_FILE = "watch.json", "seconds.jsonl", "trace.bin.zst"
MESSAGES_FILE, PAGE_FILE = "messages.nc", "page.html"
WATCH_VERSION = 1
TESTBED, MODE = "production", "as found"
"""The attributes `testbed` and `mode` in the `messages.nc` of a watched proxy."""
FIDELITY = "a proxy in production, with real traffic and unchanged settings"
KIND_BITS = 3
KIND_MASK = (1 << KIND_BITS) - 1
# METHODS and STATUSES must equal TRACE_METHODS and TRACE_STATUSES of hardware/common/trace.h.
OTHER_REQUEST = "other request"
METHODS = (
    *("CANCEL", "OPTIONS", "REGISTER", "PRACK", "SUBSCRIBE", "NOTIFY", "PUBLISH", "INFO", "REFER"),
    *("MESSAGE", "UPDATE", OTHER_REQUEST),
)
STATUSES = (
    *("100", "183", "1xx", "2xx", "3xx", "401", "403", "404", "407", "408", "486", "487", "4xx"),
    *("500", "503", "5xx", "6xx"),
)
NOT_SIP, NOT_SIP_CODE = "not SIP", 30
ANSWERED = 1 << 12
"""Flag of a message that the proxy answered instead of sending it on (`TRACE_FLAG_ANSWERED`)."""
OVER_TCP = 1 << 13
"""Flag of a message that arrived over TCP. `fab watch` sets this flag in the records of the TCP probe."""
HISTOGRAMS = "histograms"
"""The mode of a probe that counts times in the kernel and records no per-message times."""
_FIRST = 8
"""Smallest code of a method or status that is not in `MESSAGE_TYPES`."""
NAMES: Mapping[str, int] = {
    **{
        name: code
        for name, code in MESSAGE_TYPES.items()
        if name not in ("other", "retransmission")
    },
    **{name: _FIRST + i for i, name in enumerate((*METHODS, *STATUSES))},
    NOT_SIP: _FIRST + NOT_SIP_CODE - 1,
}
"""The code of each method and status that a message can have."""
_NAME_OF = {code: name for name, code in NAMES.items()}
INVITE = NAMES["INVITE"]


@dataclass(frozen=True)
class CpuShare:
    """A process or program, with its CPU time as a share of one CPU, and the number of messages that it received."""

    name: str
    busy: float
    messages: int = 0


@dataclass(frozen=True)
class Second:
    """The counts and times of an interval of about one second in which a proxy is watched.

    Attributes
    ----------
    t_s, length_s
        End of the interval in seconds since the start of the watch, and its length.
    recording
        Whether the probe recorded during the interval. Otherwise only the kernel's counters are known.
    one_in
        The probe samples one call in `one_in` calls. `messages`, `calls` and `over_tcp` are already multiplied by this
        number.
    messages, calls, over_tcp
        Received messages by method or status, new calls (INVITE with a new Call-ID), and messages that came over TCP.
    waiting, service
        Histograms of K_rcv and T_sip (`sipsched.records.histogram`), as pairs of bin and count.
    datagrams
        Datagrams that programs received from UDP sockets of the network namespace (InDatagrams), with or without the
        probe.
    queued_bytes, largest_queue_bytes
        Memory of the queue of the UDP sockets in bytes: at the end of the interval, and the largest value of a socket
        at the arrival of a datagram.
    drops
        Lost datagrams by cause.
    receive_errors
        Datagrams that the kernel rejected, such as datagrams with a wrong checksum.
    workers
        Processes of the proxy that received a message since the start of the watch.
    others, competitors
        Other programs, by their CPU time: all programs, and programs that can take CPU time from the workers. Such a
        program last ran on a CPU of the workers, and its scheduling class is not SCHED_IDLE.
    cpus
        Number of CPUs on which the workers may run. A program such as taskset or a container can limit these CPUs.
    cpu_busy, cpu_stolen
        Share of these CPUs' time without idle time and waits for I/O, and share that the hypervisor took.
    delayed_ns
        Time during which workers were runnable but had no CPU.
    same_tasks
        Whether the proxy had the same processes and threads at both ends of the interval. Otherwise, `proxy_cpu_ns`
        lacks the CPU time of tasks that started or ended in the interval.
    connections
        Open TCP connections from or to the watched port.
    throttled, throttled_ns
        How often and how long the kernel stopped the proxy's control groups at their CPU limits (`cpu.max`). The time
        is the sum over all CPUs.
    lost, unmatched, threads_untraced
        Records that the probe lost, messages whose arrival the probe did not find, and threads that the probe could not
        trace.
    """

    t_s: float
    length_s: float
    recording: bool
    one_in: int
    messages: Mapping[str, int]
    calls: int
    waiting: Sequence[tuple[int, int]]
    service: Sequence[tuple[int, int]]
    datagrams: int
    queued_bytes: int
    largest_queue_bytes: int
    drops: Mapping[str, int]
    receive_errors: int
    workers: Sequence[CpuShare]
    others: Sequence[CpuShare]
    cpus: int
    cpu_busy: float
    cpu_stolen: float
    proxy_cpu_ns: int
    lost: int
    unmatched: int
    threads_untraced: int
    service_ns: int = 0
    off_cpu_ns: int = 0
    delayed_ns: int = 0
    connections: int = 0
    processes: int = 0
    over_tcp: int = 0
    throttled: int = 0
    throttled_ns: int = 0
    competitors: Sequence[CpuShare] = ()
    same_tasks: bool = True

    @property
    def received(self) -> int:
        """Return the number of received messages of all kinds."""
        return sum(self.messages.values())


@dataclass(frozen=True)
class WatchDocument:
    """The content of `watch.json`: a description of the watched proxy and of the watch."""

    program: str
    transports: str
    udp_ports: Sequence[int]
    tcp_port: int | None
    workers: int
    cpus: int
    kernel: str
    probe_mode: str
    one_in: int
    started: float
    seconds: float
    messages: int
    calls_per_s: float
    ended_by: str
    restarts: int = 0
    lost: int = 0
    not_written: int = 0
    unwatched: Sequence[str] = ()
    cost: Sequence[float] = field(default_factory=tuple)
    receive_buffer_bytes: int | None = None
    cpu_stolen: float = 0.0
    """Share of the CPUs' time that the hypervisor took during the watch."""
    cpu_limit: float | None = None
    """The option `--cpu`: the largest cost of the probe, as a share of the proxy's CPU time per message."""


def names_of(records: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the code of each record's SIP method or status, with shape (record,). `NAMES` lists the codes."""
    kind, detail = records["kind"] & KIND_MASK, records["kind"] >> KIND_BITS
    known = np.where(kind != MessageKind.OTHER, kind, _FIRST + detail - 1)
    return np.where(known == _FIRST - 1, NAMES[NOT_SIP], known).astype(np.uint8)


def count_names(records: npt.NDArray[Any]) -> dict[str, int]:
    """Return the number of records of a trace for each SIP method or status."""
    codes, counts = np.unique(names_of(records), return_counts=True)
    return {_NAME_OF[int(code)]: int(count) for code, count in zip(codes, counts, strict=True)}


def times_of(records: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return K_rcv and T_sip of received messages in ns, each with shape (record,). A missing time is NaN."""
    flags, received = records["flags"], records["t_sip_in"].astype(np.int64)
    waited = received - records["t_arr"].astype(np.int64)
    unknown = (flags & Flag.UNMATCHED != 0) | (records["t_arr"] == 0)
    served = records["t_sip_out"].astype(np.int64) - received - records["in_cost_ns"]
    unsent = (flags & Flag.NO_SEND != 0) | (records["t_sip_out"] == 0)
    return (
        np.where(unknown, np.nan, np.maximum(waited, 0)),
        np.where(unsent, np.nan, np.maximum(served, 0)),
    )


def bins_of(times_ns: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return a histogram of times as pairs of bin and count, without the empty bins."""
    counts = histogram.count(times_ns)
    filled = np.flatnonzero(counts)
    return [(int(i), int(counts[i])) for i in filled]


def bins_of_counted(counted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the non-empty bins of a histogram, as pairs of bin and count, from pairs of time in ns and count."""
    if not counted:
        return []
    times, counts = np.array(counted, np.int64).T
    bins = np.bincount(histogram.bin_of(times), counts).astype(np.int64)
    return [(int(i), int(bins[i])) for i in np.flatnonzero(bins)]


def name_of_status(status: str) -> str:
    """Return the name in `NAMES` for a SIP status: the status itself, such as 404, or else the class, such as 4xx."""
    known = f"{status[0]}xx"
    return status if status in NAMES else known if known in NAMES else NOT_SIP


def add_bins(several: Iterable[Sequence[Sequence[int]]]) -> npt.NDArray[np.int64]:
    """Add the histograms of several one-second intervals, and return int64 counts with shape (`histogram.BINS`,)."""
    total = np.zeros(histogram.BINS, np.int64)
    for bins in several:
        for i, count in bins:
            total[i] += count
    return total


def write_watch(path: Path, document: WatchDocument) -> None:
    """Write the description of a watched proxy and of the watch to `watch.json`."""
    content = {"watch_version": WATCH_VERSION, **asdict(document)}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_watch(folder: Path) -> WatchDocument:
    """Read the description of a watched proxy and of the watch from a `watch.json`.

    Raises
    ------
    StableError
        The file is missing, damaged, or of another version.
    """
    path = folder / WATCH_FILE
    content = read_json(path, None, "name a folder that fab watch has written")
    if content.get("watch_version") != WATCH_VERSION:
        raise StableError(f"{path}: expected watch_version {WATCH_VERSION}")
    return as_part(WatchDocument, content, str(path))


def read_seconds(folder: Path) -> list[Second]:
    """Read the counts per second from `seconds.jsonl`. Ignore an incomplete last line after a full disk or a crash."""
    path = folder / SECONDS_FILE
    seconds = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for line in lines[:-1]:
        seconds.append(as_part(Second, json.loads(line), str(path)))
    return seconds


def messages_of_watch(folder: Path, document: WatchDocument) -> xr.Dataset:
    """Convert the trace of a watched proxy into the columns of `messages.nc`.

    Returns
    -------
    Dataset
        The columns of `messages_from_record`, and further columns on the dimension `message`: `name` (method or status,
        see `NAMES`), `length` (bytes) and `queued_bytes` (memory in the queue at the arrival, with the message). The
        flag `answered_by_proxy` marks a message that the proxy answered instead of sending it on; `t_sip` then ends
        with the first message that the worker sent. The flag `over_tcp` marks a message that arrived over TCP. A method
        or status that `MESSAGE_TYPES` lacks has type `other`. The attribute `transport` contains the transports of the
        recorded messages.
    """
    records = read_trace(folder / TRACE_FILE).records.copy()
    name = names_of(records)
    records["kind"] &= KIND_MASK
    over_tcp = records["flags"] & OVER_TCP != 0
    transports = [name for name, of in (("udp", ~over_tcp), ("tcp", over_tcp)) if of.any()]
    columns, drops, tids = columns_of(records)
    order = _order(records)
    is_message = records["event"][order] == Event.MESSAGE
    received = order[is_message]
    again = _repeated_requests(records[order], name[order])[is_message]
    columns["message_type"][again] = MESSAGE_TYPES["retransmission"]
    flags = FLAGS | {"answered_by_proxy": ANSWERED, "over_tcp": OVER_TCP}
    attrs = {
        "title": "SIP messages through a proxy in production, with one row per message",
        "format": "sipsched messages",
        "format_version": MESSAGES_VERSION,
        "testbed": TESTBED,
        "sut": f"{document.program}-{document.transports}",
        "mode": MODE,
        "cores": document.cpus,
        "threads": document.workers,
        "cps": round(document.calls_per_s),
        "rep": 1,
        "kind": TESTBED,
        "fidelity": FIDELITY,
        "transport": "+".join(transports),
        "probe_mode": document.probe_mode,
        "kernel": document.kernel,
        "clock": "CLOCK_MONOTONIC of the SPS",
        "source": folder.name,
        "record": "",
        "one_in": document.one_in,
        "cpu_stolen": document.cpu_stolen,
    }
    if document.receive_buffer_bytes is not None:
        attrs["receive_buffer_bytes"] = document.receive_buffer_bytes
    ds = assemble(columns, drops, tids, {}, attrs)
    ds["flags"].attrs = DESCRIPTIONS["flags"] | {
        "flag_masks": np.array(list(flags.values()), np.uint16),
        "flag_meanings": " ".join(flags),
    }
    for key, (values, described) in _further(records[received], name[received]).items():
        ds[key] = ("message", values, described)
    return ds


def _repeated_requests(
    records: npt.NDArray[Any], names: npt.NDArray[np.uint8]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the requests with the Call-ID, CSeq and method of an earlier request, with shape (record,).

    Only methods in `METHODS` are compared, because `columns_of` marks the retransmissions of the other messages. Two
    responses with the same status, such as 183, need not be retransmissions.

    Parameters
    ----------
    records, names
        The records in the order of their arrival, and the code of each record's method or status.
    """
    methods = [NAMES[method] for method in METHODS if method != OTHER_REQUEST]
    rows = np.flatnonzero(np.isin(names, methods) & (records["call_id_hash"] != 0))
    keys = (names[rows], records["cseq"][rows], records["call_id_hash"][rows])
    ordered = np.lexsort(keys)
    same = np.ones(max(0, len(rows) - 1), bool)
    for key in keys:
        same &= np.diff(key[ordered]) == 0
    repeated = np.zeros(len(records), bool)
    repeated[rows[ordered[1:][same]]] = True
    return repeated


def _further(
    received: npt.NDArray[Any], names: npt.NDArray[Any]
) -> dict[str, tuple[npt.NDArray[Any], dict[str, Any]]]:
    """Return the additional columns for messages of a watched proxy: method or status, size and queue length."""
    return {
        "name": (
            names,
            {
                "long_name": "method of the request or status of the response",
                "units": "1",
                "definition": "RFC 3261; x stands for any digit",
                "flag_values": np.array(list(NAMES.values()), np.uint8),
                "flag_meanings": " ".join(key.replace(" ", "_") for key in NAMES),
            },
        ),
        "length": (
            received["length"],
            {"long_name": "size of the message", "units": "byte", "definition": "UDP payload"},
        ),
        "queued_bytes": (
            received["rmem"],
            {
                "long_name": "memory of the socket's queue at the arrival",
                "units": "byte",
                "definition": "sk_rmem_alloc, with the message itself",
            },
        ),
    }


def _order(records: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the indices that sort trace records by arrival time, in the same order as `columns_of`."""
    arrived = records["t_arr"].astype(np.int64)
    return np.argsort(
        np.where(arrived != 0, arrived, records["t_sip_in"].astype(np.int64)), kind="stable"
    )


def trace_header(mode: ProbeMode) -> bytes:
    """Return the header bytes of a trace file (hardware/common/trace.h) for a mode of the probe."""
    header = np.zeros(1, HEADER)
    header["magic"], header["version"] = b"SIPTRACE", 1
    header["record_size"], header["mode"] = RECORD.itemsize, mode
    return header.tobytes()
