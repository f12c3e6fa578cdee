"""A function that exports a run to a trace file for the viewer Perfetto (https://ui.perfetto.dev)."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.files import whole
from sipsched.records.messages import FLAGS, MESSAGE_TYPES, k_rcv, nanoseconds

PROXY, SOCKET = 1, 2
"""Process numbers of two groups of tracks in the viewer: the proxy, and messages that wait for the proxy."""


def write_trace(ds: xr.Dataset, path: Path) -> None:
    """Write a run's messages as a trace file for Perfetto: Trace Event Format (JSON), compressed by gzip.

    A worker is a thread with two slices per message: `service` (T_sip) and `send` (K_snd). The waiting time of a
    message (K_rcv) is an asynchronous slice. Counters show the number of messages between network driver and proxy, and
    the number of refused datagrams.
    """
    encode = msgspec.json.Encoder().encode
    attributes = {key: str(value) for key, value in ds.attrs.items()}
    with whole(path) as partial, gzip.open(partial, "wb", compresslevel=4) as out:
        out.write(b'{"displayTimeUnit":"ns","otherData":' + encode(attributes))
        out.write(b',"traceEvents":[')
        separator = b"\n"
        for event in _events(ds):
            out.write(separator + encode(event))
            separator = b",\n"
        out.write(b"\n]}\n")


def _events(ds: xr.Dataset) -> Iterator[dict[str, Any]]:
    tids = ds["worker"].attrs["thread_ids"]
    yield from _names(np.atleast_1d(tids))
    arrival, drops = ds["t_arr"].to_numpy(), ds["drop_t_arr"].to_numpy()
    start = min((times[0] for times in (arrival, drops) if len(times)), default=0)
    arrived = (arrival - start) / 1000
    wait, service, off, send = (
        values / 1000
        for values in (
            k_rcv(ds),
            nanoseconds(ds, "t_sip"),
            nanoseconds(ds, "t_sip_off"),
            nanoseconds(ds, "k_snd"),
        )
    )
    names = {code: name for name, code in MESSAGE_TYPES.items()}
    kinds = [names[code] for code in ds["message_type"].to_numpy().tolist()]
    threads = np.atleast_1d(tids)[ds["worker"].to_numpy()]
    cpus = ds["cpu"].to_numpy()
    # If the flag `arrival_not_found` is set, the column t_arr contains t_sip_in, so the waiting time is unknown.
    waited = ~np.isnan(wait) & ((ds["flags"].to_numpy() & FLAGS["arrival_not_found"]) == 0)
    for i, kind in enumerate(kinds):
        taken = arrived[i] + (0.0 if np.isnan(wait[i]) else wait[i])
        thread = {"pid": PROXY, "tid": int(threads[i])}
        if waited[i]:
            track = {"cat": "wait", "id": i, "pid": SOCKET, "tid": SOCKET, "name": kind}
            yield {"ph": "b", "ts": _us(arrived[i]), **track}
            yield {"ph": "e", "ts": _us(taken), **track}
        if np.isnan(service[i]):
            continue
        told = {"K_rcv_us": wait[i], "T_sip_off_us": off[i]}
        args = {key: _us(value) for key, value in told.items() if not np.isnan(value)}
        args["cpu"] = int(cpus[i])
        yield {
            "ph": "X",
            "name": kind,
            "cat": "service",
            "ts": _us(taken),
            "dur": _us(service[i]),
        } | {
            **thread,
            "args": args,
        }
        if not np.isnan(send[i]):
            sent = taken + service[i]
            yield {
                "ph": "X",
                "name": "send",
                "cat": "send",
                "ts": _us(sent),
                "dur": _us(send[i]),
            } | thread
    yield from _counters(arrived[waited], (arrived + wait)[waited], (drops - start) / 1000)


def _names(tids: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    for pid, name in ((PROXY, "SIP proxy"), (SOCKET, "waiting for the proxy")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    for number, tid in enumerate(tids.tolist()):
        yield {"ph": "M", "name": "thread_name", "pid": PROXY, "tid": tid} | {
            "args": {"name": f"worker {number}"}
        }


def _counters(
    joined: npt.NDArray[Any], taken: npt.NDArray[Any], drops: npt.NDArray[Any]
) -> Iterator[dict[str, Any]]:
    at = np.concatenate([joined, taken])
    change = np.concatenate([np.ones(len(joined), int), -np.ones(len(taken), int)])
    # At equal timestamps, count departures first and then arrivals, because the counter of messages would otherwise
    # briefly be one too high.
    order = np.lexsort((change, at))
    for instant, waiting in zip(at[order], np.cumsum(change[order]), strict=True):
        yield _counter("messages waiting", instant, int(waiting))
    for refused, instant in enumerate(np.sort(drops), start=1):
        yield _counter("datagrams refused", instant, refused)


def _counter(name: str, at_us: float, value: int) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": SOCKET, "ts": _us(at_us), "args": {"value": value}}


def _us(value: float) -> float:
    """Return a time in µs, rounded to whole nanoseconds."""
    return round(float(value), 3)
