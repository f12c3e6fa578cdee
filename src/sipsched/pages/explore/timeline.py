"""Figures of runs over time: the waits of messages, the length of the queue, and drops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes

from sipsched.pages.drawing import LIMIT, MARKERS, SERIES, Layout, legend, themed
from sipsched.pages.parts import Figure
from sipsched.plan.run import Run
from sipsched.records.bursts import Bursts, read_bursts
from sipsched.records.catalogue import Catalogue
from sipsched.records.messages import (
    FLAGS,
    MESSAGE_TYPES,
    PARTS,
    k_rcv,
    nanoseconds,
    open_messages,
)
from sipsched.words import grouped, number, plural

MOST_DRAWN = 1500
"""The largest number of messages in a figure. The numbers in sentences always cover all messages."""
STEPS = 400
"""Number of steps on the time axis. The figure shows the longest queue of each step."""
DROP_STEPS = 60
NS = 1_000_000_000
US = 1e6

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Messages:
    """The messages of one run, on a time axis that starts at the run's first arrival.

    Attributes
    ----------
    run
        The tuple of the run.
    fidelity, kernel, testbed_kind
        Labels from the record: how realistic the numbers are, the kernel, and the kind of the testbed.
    at_s
        Arrivals in ascending order, shape (message,).
    wait_us, service_us
        K_rcv and T_sip in µs, shape (message,); NaN where missing.
    kind
        Codes of `MESSAGE_TYPES`, shape (message,).
    worker, cpu
        Index of the worker that received a message, and its CPU; shape (message,).
    parts_us
        The `PARTS` of K_rcv in µs, each of shape (message,); NaN where missing.
    off_us, send_us
        The part of T_sip off CPU, and K_snd, in µs, shape (message,); NaN where missing.
    queued_s, taken_s
        Times at which messages joined and left the queue, each in ascending order, shape (message,). A message is in
        the socket's queue from t_stack to t_sockq. If a run lacks these timestamps, the message counts as queued from
        t_arr to t_sip_in, and `queue_is_whole_way` is true.
    drop_at_s
        Arrivals of refused datagrams in ascending order, shape (drop,).
    start_ns
        The first arrival, on the clock of the SPS (CLOCK_MONOTONIC).
    record
        Folder of the record; None if unknown. `bursts` is then None, too.
    """

    run: Run
    fidelity: str
    kernel: str
    testbed_kind: str
    at_s: Values
    wait_us: Values
    service_us: Values
    kind: npt.NDArray[np.uint8]
    worker: npt.NDArray[Any]
    cpu: npt.NDArray[Any]
    parts_us: Mapping[str, Values]
    off_us: Values
    send_us: Values
    queued_s: Values
    taken_s: Values
    queue_is_whole_way: bool
    drop_at_s: Values
    start_ns: int = 0
    record: Path | None = None

    @cached_property
    def bursts(self) -> Bursts | None:
        """The programs that ran beside the proxy on the CPUs of the SPS (proxy host). None if none are recorded.

        Raises
        ------
        StableError
            The file is damaged.
        """
        return read_bursts(self.record) if self.record else None

    @property
    def length_s(self) -> float:
        """Time from the first to the last arrival."""
        last = [times[-1] for times in (self.at_s, self.drop_at_s) if len(times)]
        return float(max(last, default=0.0))

    @property
    def taken_us(self) -> Values:
        """Times at which a worker had received each message, in µs since the first arrival; shape (message,)."""
        return np.asarray(self.at_s * US + self.wait_us)

    @property
    def sent_us(self) -> Values:
        """Times at which a worker had forwarded each message, in µs since the first arrival; shape (message,)."""
        return np.asarray(self.taken_us + self.service_us)

    def steps_us(self) -> dict[str, tuple[Values, Values]]:
        """Return the start and the end of the recorded work on each message, in µs since the first arrival.

        Returns
        -------
        dict
            `stack`: the kernel receives a packet. `service`: a worker copies, serves and sends a message, and may be
            off CPU meanwhile. Each value has two arrays of shape (message,); NaN where a timestamp is missing.
        """
        arrived = self.at_s * US
        copy, send = np.nan_to_num(self.parts_us["k_copy"]), np.nan_to_num(self.send_us)
        return {
            "stack": (arrived, arrived + self.parts_us["k_stack"]),
            "service": (self.taken_us - copy, self.sent_us + send),
        }

    def queue_length(self, at_s: Values) -> npt.NDArray[np.int64]:
        """Return the number of messages in the socket's queue at each of the given times."""
        joined = np.searchsorted(self.queued_s, at_s, side="right")
        return np.asarray(joined - np.searchsorted(self.taken_s, at_s, side="right"))

    def longest_queue(
        self, start_s: float, end_s: float, steps: int = STEPS
    ) -> tuple[Values, npt.NDArray[np.int64]]:
        """Divide a period of time into steps, and find the longest queue in each step.

        Returns
        -------
        edges, longest
            Edges of the steps in s, shape (step + 1,), and messages, shape (step,).
        """
        edges = np.linspace(start_s, end_s, steps + 1)
        longest = self.queue_length(edges[:-1])
        # The queue is longest right after a message joined it, so only these moments are examined.
        joins = self.queued_s[(self.queued_s >= start_s) & (self.queued_s < end_s)]
        place = np.searchsorted(edges, joins, side="right") - 1
        np.maximum.at(longest, place, self.queue_length(joins))
        return edges, longest


def read_messages(runs: Catalogue, run: Run) -> Messages:
    """Read the messages of a run.

    Raises
    ------
    StableError
        The messages are not recorded, or the file is damaged.
    """
    return place_in_time(open_messages(runs.messages_file(run)), run, runs.records / run.path)


def place_in_time(ds: xr.Dataset, run: Run, record: Path | None = None) -> Messages:
    """Compute the times of a run's messages relative to the run's first arrival.

    Parameters
    ----------
    ds
        Dataset from `sipsched.records.messages.open_messages`.
    run
        Tuple of the run.
    record
        Folder of the run's record, from which `Messages.bursts` is read. None omits the bursts.
    """
    arrival, drops = ds["t_arr"].to_numpy(), ds["drop_t_arr"].to_numpy()
    start = min((times[0] for times in (arrival, drops) if len(times)), default=0)
    t_arr = (arrival - start).astype(np.float64)
    wait = k_rcv(ds)
    queued = t_arr + nanoseconds(ds, "k_stack")
    taken = queued + nanoseconds(ds, "k_sockq")
    # If the probe could not observe the queue, t_stack equals t_arr. The message then counts as queued from t_arr on.
    known = ~np.isnan(taken)
    whole_way = bool(len(known)) and not bool(known.any())
    if whole_way:
        queued, taken = t_arr, t_arr + wait
        # If the probe did not see the arrival, the row has the flag `arrival_not_found` and contains t_sip_in as t_arr.
        # From these values, the wait would be 0, although the wait is unknown.
        known = ~np.isnan(taken) & ((ds["flags"].to_numpy() & FLAGS["arrival_not_found"]) == 0)
    return Messages(
        run=run,
        fidelity=str(ds.attrs["fidelity"]),
        kernel=str(ds.attrs["kernel"]),
        testbed_kind=str(ds.attrs["kind"]),
        at_s=t_arr / NS,
        wait_us=wait / 1000,
        service_us=nanoseconds(ds, "t_sip") / 1000,
        kind=ds["message_type"].to_numpy(),
        worker=ds["worker"].to_numpy(),
        cpu=ds["cpu"].to_numpy(),
        parts_us={name: nanoseconds(ds, name) / 1000 for name in PARTS},
        off_us=nanoseconds(ds, "t_sip_off") / 1000,
        send_us=nanoseconds(ds, "k_snd") / 1000,
        queued_s=np.sort(queued[known]) / NS,
        taken_s=np.sort(taken[known]) / NS,
        queue_is_whole_way=whole_way,
        drop_at_s=(drops - start) / NS,
        start_ns=int(start),
        record=record,
    )


def timeline(
    messages: Sequence[Messages],
    start_s: float = 0.0,
    length_s: float | None = None,
) -> Figure:
    """Draw several runs over the same period of time: the waits, the length of the queue, and the drops."""
    end_s = start_s + length_s if length_s else max(run.length_s for run in messages)
    end_s = max(end_s, start_s + 1e-3)
    labels = (
        "K_rcv of a message (µs)",
        "most messages waiting",
        f"dropped in {(end_s - start_s) / DROP_STEPS:.2g} s",
    )

    def draw(layout: Layout) -> str:
        canvas, grid = layout.panels(3, len(messages), 1.9, shared=("all", ""))
        for column, run in zip(grid.T, messages, strict=True):
            _draw_waits(column[0], run, start_s, end_s)
            _draw_queue(column[1], run, start_s, end_s)
            _draw_drops(column[2], run, start_s, end_s)
            column[0].set_title(",\n".join(name_of(run.run)), loc="left")
            column[2].set_xlabel("time since the first arrival (s)")
            column[2].set_xlim(start_s, end_s)
        # All runs share the limits of the axes, which are known only after everything is drawn.
        for row in (grid[1], grid[2]):
            highest = max(float(axis.dataLim.y1) for axis in row if axis.has_data())
            for axis in row:
                axis.set_ylim(0, max(1.0, 1.05 * highest))
                axis.set_axisbelow(True)
        ends = [axis.get_ylim() for axis in grid[0] if axis.has_data()]
        for axis in grid[0] if ends else ():
            axis.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        for row, label in zip(grid, labels, strict=True):
            for place, axis in enumerate(row):
                axis.set_ylabel("" if place and not layout.stacked else label)
                axis.tick_params(labelleft=layout.stacked or not place)
        legend(canvas, grid, marker_scale=3)
        return themed(canvas)

    whole = any(run.queue_is_whole_way for run in messages)
    return Figure(
        identity="figure-timeline",
        draw=draw,
        caption="Waiting time (K_rcv) of each message at the time of its arrival, the number of messages that wait "
        f"{'between driver and proxy' if whole else 'in the socket queue'}, and the refused datagrams.",
        reading=f"If a run has more than {MOST_DRAWN} messages, the figure shows only a part of them (every n-th "
        "message). The axis of K_rcv is logarithmic.",
        seen=tuple(_words(run, start_s, end_s) for run in messages),
        provenance=provenance(messages),
    )


def provenance(messages: Sequence[Messages]) -> str:
    """Return as text the testbed, the kernel and the fidelity (real, virtual or simulated) of the runs."""
    return " | ".join(
        dict.fromkeys(
            f"Testbed {run.run.testbed}, kernel {run.kernel}. Fidelity: {run.fidelity}"
            for run in messages
        )
    )


def name_of(run: Run) -> tuple[str, str]:
    """Return the name of a run as two lines of text."""
    return (
        f"{run.sut}, {run.mode}, {plural(run.cores, 'core')}",
        f"{run.threads} threads, {grouped(run.cps)} cps, repetition {run.rep}",
    )


def name_of_all(runs: Sequence[Messages]) -> str:
    """Return one name for several runs that differ only in the repetition."""
    run = runs[0].run
    which = f"repetition {run.rep}" if len(runs) == 1 else plural(len(runs), "run")
    configuration, _ = name_of(run)
    return f"{configuration}, {run.threads} threads, {grouped(run.cps)} cps, {which}"


def within(times: Values, start_s: float, end_s: float) -> slice:
    """Return the slice of an ascending array whose times lie between a start and an end."""
    first = np.searchsorted(times, start_s, side="left")
    return slice(int(first), int(np.searchsorted(times, end_s, side="right")))


def _draw_waits(axis: Axes, messages: Messages, start_s: float, end_s: float) -> None:
    stretch = within(messages.at_s, start_s, end_s)
    at, wait, kind = (
        values[stretch] for values in (messages.at_s, messages.wait_us, messages.kind)
    )
    step = max(1, -(-len(at) // MOST_DRAWN))
    at, wait, kind = at[::step], wait[::step], kind[::step]
    axis.set_yscale("log", nonpositive="clip")
    groups = {
        "request": ("INVITE", "ACK", "BYE"),
        "response": ("180", "200-INVITE", "200-BYE"),
        "retransmission": ("retransmission",),
    }
    for i, (name, kinds) in enumerate(groups.items()):
        chosen = np.isin(kind, [MESSAGE_TYPES[word] for word in kinds])
        axis.plot(
            at[chosen],
            wait[chosen],
            linestyle="none",
            marker=MARKERS[i],
            markersize=2,
            markeredgewidth=0,
            color=SERIES[i],
            alpha=0.6,
            label=name,
        )


def _draw_queue(axis: Axes, messages: Messages, start_s: float, end_s: float) -> None:
    edges, longest = messages.longest_queue(start_s, end_s)
    axis.stairs(longest, edges, fill=True, color=SERIES[3])


def _draw_drops(axis: Axes, messages: Messages, start_s: float, end_s: float) -> None:
    counts, edges = np.histogram(messages.drop_at_s, bins=DROP_STEPS, range=(start_s, end_s))
    axis.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=LIMIT)
    if not counts.any():
        axis.text(0.5, 0.5, "no drops", transform=axis.transAxes, ha="center", va="center")


def _words(messages: Messages, start_s: float, end_s: float) -> str:
    stretch = within(messages.at_s, start_s, end_s)
    wait = messages.wait_us[stretch]
    wait = wait[~np.isnan(wait)]
    drops = messages.drop_at_s[within(messages.drop_at_s, start_s, end_s)]
    _, waiting = messages.longest_queue(start_s, end_s)
    name = ", ".join(name_of(messages.run))
    text = f"{name}, {start_s:.6g} to {end_s:.6g} s: {stretch.stop - stretch.start} messages"
    if len(wait):
        middle, slow = np.percentile(wait, (50, 99))
        text += (
            f", median K_rcv {number(float(middle))} µs, 99th percentile "
            f"{number(float(slow))} µs, longest {number(float(wait.max()))} µs"
        )
    return (
        f"{text}; at most {waiting.max()} messages waiting at the same time; {len(drops)} dropped"
        + (f", the first at {drops[0]:.3f} s." if len(drops) else ".")
    )
