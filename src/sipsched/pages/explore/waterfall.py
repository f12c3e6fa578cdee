"""A message's way through the SPS: what the time of a usual and of a slow message is made of, by its type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from sipsched.pages.drawing import SERIES, STYLE, WIDTH_IN, legend, themed
from sipsched.pages.explore.timeline import Messages, name_of_all, provenance
from sipsched.pages.parts import Figure
from sipsched.records.messages import MESSAGE_TYPES
from sipsched.words import grouped, number

Values = npt.NDArray[np.float64]
PERCENTILES = {"a usual message": (49.0, 51.0), "a slow one": (98.5, 99.5)}
"""Of the whole time from arrival to departure: between which a message has to be."""
FEWEST = 100
"""Messages of a type, below which there is no hundredth."""
STAGES = {
    "K_stack: to the socket": "in the kernel's receive path",
    "K_sockq: in its queue": "in the socket's queue",
    "K_copy: to the worker": "on the copy to the worker",
    "T_sip, on a CPU": "in service on a CPU",
    "T_sip, off CPU": "with a worker that holds it and is off its CPU",
    "K_snd: to the driver": "in the kernel's send path",
}
"""In the order of the way: as the legend names each, and as a sentence does that says where time is spent."""


@dataclass(frozen=True)
class Way:
    """Of messages alike in type and in how long they take, what their time is made of.

    Attributes
    ----------
    kind
        Their type.
    count
        How many these are.
    stages_us
        Shape (stage,), in the order of `STAGES`: mean of each, µs; the sum is their mean time.
    """

    kind: str
    count: int
    stages_us: Values


def ways(runs: Sequence[Messages], between: tuple[float, float]) -> list[Way]:
    """Find of each type the messages whose whole time lies between two percentiles of it.

    Parameters
    ----------
    runs
        Percentiles are of the messages of all of them.
    between
        Two percentiles, 0 to 100.

    Returns
    -------
    list
        A type that has fewer than `FEWEST` messages with every stamp is left out.
    """
    kind = np.concatenate([run.kind for run in runs])
    stages = np.concatenate([_stages(run) for run in runs], axis=1)
    found = (_way(name, stages[:, kind == code], between) for name, code in MESSAGE_TYPES.items())
    return [way for way in found if way is not None]


def slow_way(runs: Sequence[Messages]) -> Way | None:
    """Find what the time of messages of all types next to the 99th percentile is made of; None if they are too few."""
    stages = np.concatenate([_stages(run) for run in runs], axis=1)
    return _way("message", stages, PERCENTILES["a slow one"])


def _way(kind: str, stages: Values, between: tuple[float, float]) -> Way | None:
    total = stages.sum(axis=0)
    stages, total = stages[:, ~np.isnan(total)], total[~np.isnan(total)]
    if len(total) < FEWEST:
        return None
    low, high = np.percentile(total, between)
    near = (total >= low) & (total <= high)
    return Way(kind, int(near.sum()), stages[:, near].mean(axis=1))


def waterfall(runs: Sequence[Messages]) -> Figure | None:
    """Draw of each type what the time of a usual message, and of a slow one, is made of.

    Parameters
    ----------
    runs
        At least one, alike in all but the repetition.

    Returns
    -------
    Figure or None
        None where no type has `FEWEST` messages with every stamp, as without BPF.
    """
    found = {title: ways(runs, between) for title, between in PERCENTILES.items()}
    if not any(found.values()):
        return None
    with rc_context(STYLE):
        svg = _draw(found, WIDTH_IN, beside=True)
        narrow = _draw(found, 3.4, beside=False)
    seen = tuple(filter(None, (_words(title, rows) for title, rows in found.items())))
    drawn = sum(way.count for rows in found.values() for way in rows)
    caption = (
        f"{name_of_all(runs)}: from the driver that hands a message up to the driver that takes it "
        "away. Each bar is a mean over messages whose whole time is next to the median of their type, or next to "
        f"its 99th percentile ({grouped(drawn)} messages in all); the two panels have axes of their own."
    )
    return Figure(
        identity="figure-waterfall",
        svg=svg,
        narrow=narrow,
        alt=f"What the time of a message is made of, by type. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(runs),
    )


def _stages(run: Messages) -> Values:
    """Give the stages of each message, shape (stage, message), µs; NaN where one is missing."""
    off = np.minimum(run.off_us, run.service_us)
    return np.array([*run.parts_us.values(), run.service_us - off, off, run.send_us])


def _draw(found: Mapping[str, Sequence[Way]], width_in: float, *, beside: bool) -> str:
    rows = max(map(len, found.values()))
    height_in = 0.9 + 0.24 * rows
    canvas = Canvas(
        figsize=(width_in, height_in + 0.3 if beside else 2 * height_in + 0.9), layout="constrained"
    )
    shape = (1, len(found)) if beside else (len(found), 1)
    grid = canvas.subplots(*shape, squeeze=False)
    for axis, (title, each) in zip(grid.ravel(), found.items(), strict=True):
        for line, way in enumerate(each):
            start = 0.0
            for name, color, length in zip(STAGES, SERIES, way.stages_us, strict=True):
                axis.barh(line, length, left=start, height=0.7, color=color, label=name)
                start += length
        axis.set_yticks(range(len(each)), [way.kind for way in each])
        axis.set_ylim(rows - 0.4, -0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel("µs since its arrival")
        axis.set_title(title, loc="left")
    legend(canvas, grid, columns=3 if beside else 1)
    return themed(canvas)


def _words(title: str, rows: Sequence[Way]) -> str:
    """Say what the type that takes longest spends most of its time in."""
    if not rows:
        return ""
    longest = max(rows, key=lambda way: float(way.stages_us.sum()))
    total = float(longest.stages_us.sum())
    most = int(np.argmax(longest.stages_us))
    kind = title.removesuffix(" one").removesuffix(" message").capitalize()
    return (
        f"{kind} {longest.kind} takes {number(total)} µs, the longest of the types; "
        f"{100 * longest.stages_us[most] / total:.0f} % of it is spent {list(STAGES.values())[most]}."
    )
