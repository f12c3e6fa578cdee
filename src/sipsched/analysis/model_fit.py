"""Numbers of a model for the simulator, from recorded runs and a recorded look at the idle CPU."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.plan.simulated import KINDS
from sipsched.records.record import TRACE_FILE, read_record
from sipsched.records.trace import RECORD, Event, read_trace

TAIL = 0.001
"""Share of the longest services of a type that is left out: interrupts, which the model has by themselves."""
FREE_STACK_PERCENTILE = 5
SHORTEST_STALL_NS = 5_000


@dataclass(frozen=True)
class Service:
    """T_sip without the time off CPU, of one message type: mean, and variance over mean square."""

    mean_ns: float
    scv: float


@dataclass(frozen=True)
class Fit:
    """What records tell of a model's numbers.

    Attributes
    ----------
    service, lengths
        By message type.
    numbers
        By the names of a model's file.
    messages
        How many messages it is from.
    """

    service: dict[str, Service]
    lengths: dict[str, int]
    numbers: dict[str, int]
    messages: int


def fit(records: Iterable[Path], noise: Path, switch_ns: int) -> Fit:
    """Fit a model to records of runs whose probe saw all six instants.

    Parameters
    ----------
    records
        Folders of the runs; their messages are pooled.
    noise
        A `noise.json` of the machine.
    switch_ns
        What a context switch is taken to cost: it is in the CPU time of the proxy, and no instant shows it.

    Raises
    ------
    StableError
        There is no record, or one is damaged.
    """
    folders = list(records)
    if not folders:
        raise StableError("no records to fit a model to")
    cpu_ns = sum(read_record(folder).proxy.cpu_ns for folder in folders)
    traces = [read_trace(folder / TRACE_FILE).records for folder in folders]
    arrived = np.concatenate(traces)
    received = arrived[arrived["event"] == Event.MESSAGE]
    sent = received[(received["t_sip_out"] > 0) & (received["t_dep"] > 0)]
    stack, copy, serve, send = _intervals(sent)
    service, lengths = {}, {}
    for number, kind in enumerate(KINDS, start=1):
        these = sent["kind"] == number
        service[kind] = _service(serve[these])
        lengths[kind] = int(np.median(sent["length"][these]))
    copy_ns, send_ns = int(np.median(copy)), int(np.median(send))
    rest_ns = cpu_ns / len(received) - float(serve.mean()) - copy_ns - send_ns - switch_ns
    gaps, seconds = _gaps(noise)
    return Fit(
        service=service,
        lengths=lengths,
        numbers={
            "copy_ns": copy_ns,
            "send_ns": send_ns,
            "loop_ns": round(rest_ns),
            "receive_ns": round(float(np.percentile(stack, FREE_STACK_PERCENTILE))),
            "stall_every_ns": round(seconds * 1e9 / len(gaps)),
            "stall_ns": round(float(gaps.mean())),
            "truesize": int(np.gcd.reduce(received["rmem"])),
        },
        messages=len(sent),
    )


def _intervals(records: npt.NDArray[Any]) -> Sequence[npt.NDArray[np.int64]]:
    """Give K_stack, K_copy, T_sip without off CPU, and K_snd."""
    at = {name: records[name].astype("i8") for name in RECORD.fields or ()}
    return (
        at["t_stack"] - at["t_arr"],
        at["t_sip_in"] - at["t_sockq"],
        at["t_sip_out"] - at["t_sip_in"] - at["in_cost_ns"] - at["off_cpu_ns"],
        at["t_dep"] - at["t_sip_out"] - at["out_cost_ns"],
    )


def _service(times: npt.NDArray[np.int64]) -> Service:
    kept = times[times <= np.quantile(times, 1 - TAIL)]
    return Service(float(kept.mean()), float(kept.var() / kept.mean() ** 2))


def _gaps(noise: Path) -> tuple[npt.NDArray[np.int64], float]:
    """Give the gaps that count as stalls, and the seconds of looking."""
    cpus = json.loads(noise.read_text())["cpus"]
    gaps = np.concatenate([np.asarray(cpu["gaps_ns"], np.int64) for cpu in cpus])
    seconds = sum(cpu["duration_ns"] for cpu in cpus) / 1e9
    return gaps[gaps >= SHORTEST_STALL_NS], seconds
