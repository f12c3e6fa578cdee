"""A figure of the stages through which a typical and a slow message of each type pass, with their durations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.intervals import Values
from sipsched.pages.drawing import SERIES, titled
from sipsched.pages.explore.timeline import Messages, name_of_all, provenance
from sipsched.pages.parts import Figure
from sipsched.pages.plots import panels
from sipsched.records.messages import MESSAGE_TYPES
from sipsched.words import grouped, number

PERCENTILES = {"a usual message": (49.0, 51.0), "a slow message": (98.5, 99.5)}
"""Column titles for usual and slow messages, with the range of percentiles of the total time for each column."""
FEWEST = 100
"""The smallest number of messages of a type for which a percentile is computed."""
STAGES = {
    "K_stack": "in the kernel's receive path",
    "K_sockq": "in the socket's queue",
    "K_copy": "on the copy to the worker",
    "T_sip on CPU": "in service on a CPU",
    "T_sip off CPU": "with a worker that holds the message and is off its CPU",
    "K_snd": "in the kernel's send path",
}
"""The stages of a message in order. Each has a name for the legend, and words that complete "the time is spent ..."."""


@dataclass(frozen=True)
class Way:
    """The mean duration of each processing stage, over messages of one type with similar total times.

    Attributes
    ----------
    kind
        Type of the messages.
    count
        Number of messages.
    stages_us
        Mean time of each stage in the order of `STAGES`, in µs; shape (stage,).
    """

    kind: str
    count: int
    stages_us: Values


def ways(runs: Sequence[Messages], between: tuple[float, float]) -> list[Way]:
    """Return the mean time of each stage per message type, over messages between two percentiles of total time.

    Returns
    -------
    list
        Types with at least `FEWEST` messages that have every timestamp.
    """
    kind = np.concatenate([run.kind for run in runs])
    stages = np.concatenate([_stages(run) for run in runs], axis=1)
    ways = (_way(name, stages[:, kind == code], between) for name, code in MESSAGE_TYPES.items())
    return [way for way in ways if way is not None]


def slow_way(runs: Sequence[Messages]) -> Way | None:
    """Return the mean time of each stage over slow messages of all types; None if too few have every timestamp."""
    stages = np.concatenate([_stages(run) for run in runs], axis=1)
    return _way("message", stages, PERCENTILES["a slow message"])


def _way(kind: str, stages: Values, between: tuple[float, float]) -> Way | None:
    total = stages.sum(axis=0)
    stages, total = stages[:, ~np.isnan(total)], total[~np.isnan(total)]
    if len(total) < FEWEST:
        return None
    low, high = np.percentile(total, between)
    near = (total >= low) & (total <= high)
    return Way(kind, int(near.sum()), stages[:, near].mean(axis=1))


def waterfall(runs: Sequence[Messages]) -> Figure | None:
    """Draw the parts of the time of a usual and of a slow message, for each message type.

    Parameters
    ----------
    runs
        At least one run; the runs differ only in the repetition.

    Returns
    -------
    Figure or None
        None if no type has `FEWEST` messages with every timestamp, for example in runs without BPF.
    """
    paths = {title: ways(runs, between) for title, between in PERCENTILES.items()}
    if not any(paths.values()):
        return None
    drawn = sum(way.count for rows in paths.values() for way in rows)
    columns = list(paths.values())
    most = max(map(len, columns))
    return Figure(
        identity="figure-waterfall",
        draw=panels(
            [""],
            list(paths),
            lambda axis, _, column: _draw(axis, columns[column], most),
            "time since its arrival (µs)",
            shared=("", ""),
            height_in=0.6 + 0.24 * most,
            beside=False,
        ),
        caption=f"{name_of_all(runs)}: the parts of a message's time, for each message type.",
        reading="The time of a message begins when the network driver receives the message, and ends when the driver "
        "sends it. Each bar is a mean over the messages of one type whose time is near the median, or near the "
        f"99th percentile. The figure uses {grouped(drawn)} messages in total.",
        seen=tuple(filter(None, (_words(title, rows) for title, rows in paths.items()))),
        provenance=provenance(runs),
    )


def _stages(run: Messages) -> Values:
    """Return each stage's duration in µs for each message, shape (stage, message); NaN if a timestamp is missing."""
    off = np.minimum(run.off_us, run.service_us)
    return np.array([*run.parts_us.values(), run.service_us - off, off, run.send_us])


def _draw(axis: Axes, ways_drawn: Sequence[Way], most: int) -> None:
    """Draw a stacked bar of the stages for each message type."""
    for row, way in enumerate(ways_drawn):
        start = 0.0
        for name, color, length in zip(STAGES, SERIES, way.stages_us, strict=False):
            (bar,) = axis.barh(row, length, left=start, height=0.7, color=color, label=name)
            titled(bar, [f"{way.kind}, {name}: {number(length)} µs"])
            start += length
    axis.set_yticks(range(len(ways_drawn)), [way.kind for way in ways_drawn])
    axis.set_ylim(most - 0.4, -0.6)
    axis.set_axisbelow(True)


def _words(title: str, rows: Sequence[Way]) -> str:
    """Return sentences with the slowest message type, and the stage that takes most of this type's time."""
    if not rows:
        return ""
    longest = max(rows, key=lambda way: float(way.stages_us.sum()))
    total = float(longest.stages_us.sum())
    most = int(np.argmax(longest.stages_us))
    kind = title.removesuffix(" message").capitalize()
    return (
        f"{kind} {longest.kind} takes {number(total)} µs, and no other message type takes longer. "
        f"{100 * longest.stages_us[most] / total:.0f} % of this time is spent {list(STAGES.values())[most]}."
    )
