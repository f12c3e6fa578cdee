"""How many messages take longer than a time, by whatever the runs differ in."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes

from sipsched.analysis.exceedance import exceedance
from sipsched.errors import StableError
from sipsched.pages.drawing import SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.explore.timeline import Messages, provenance
from sipsched.pages.parts import Figure
from sipsched.plan.config import Run
from sipsched.words import grouped, number, plural

Values = npt.NDArray[np.float64]
PANELS = {
    "K_rcv (µs)": "wait: K_rcv",
    "T_sip (µs)": "service: T_sip",
    "K_rcv + T_sip (µs)": "both of the same message",
}
NAMES = {"cores": "core", "threads": "thread", "cps": "cps"}
"""What a person calls a key of the tuple that is a number."""


def ccdf(runs: Sequence[Messages]) -> Figure:
    """Draw for K_rcv, T_sip and their sum the share of messages that takes longer, both axes log.

    Parameters
    ----------
    runs
        At least one. Those that differ in the repetition alone make one line, their mean, in a band from
        the lowest to the highest of them.

    Raises
    ------
    StableError
        More groups than can be told apart.
    """
    groups = _groups(runs)
    if len(groups) > len(SERIES):
        raise StableError(
            f"{len(groups)} groups of runs ({', '.join(groups)}), of which {len(SERIES)} can be told "
            "apart: choose fewer with sel"
        )

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            height_in, shared = (2.4, "") if layout.stacked else (2.7, "all")
            canvas, grid = layout.panels(1, len(PANELS), height_in, shared=("", shared))
            panels = zip(grid[0], PANELS.items(), strict=True)
            for column, (axis, (label, title)) in enumerate(panels):
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.set_xlabel(label)
                axis.set_title(title, loc="left")
                for color, (name, members) in zip(SERIES, groups.items(), strict=False):
                    _draw(axis, [_times(each)[column] for each in members], name, color)
            for axis in grid[0] if layout.stacked else grid[0, :1]:
                axis.set_ylabel(
                    "share that takes longer"
                    if layout.stacked
                    else "share of messages that take longer"
                )
            legend(canvas, grid, columns=3)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(_words(name, members) for name, members in groups.items())
    caption = (
        "Share of the messages that a worker received whose time is longer than that below: of a "
        "line that is lower, fewer messages take long. Mean over runs, band from the lowest run to the highest; "
        "a refused datagram has no time and is in no line."
    )
    return Figure(
        identity="figure-ccdf",
        svg=svg,
        narrow=narrow,
        alt=f"Complementary distributions of a message's times. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(runs),
    )


def _times(run: Messages) -> tuple[Values, Values, Values]:
    """Give K_rcv, T_sip and their sum, µs."""
    return run.wait_us, run.service_us, run.wait_us + run.service_us


def _groups(runs: Sequence[Messages]) -> Mapping[str, list[Messages]]:
    """Put runs together that differ in nothing but the repetition, and name what tells the groups apart."""
    keys = ("sut", "mode", "cores", "threads", "cps")
    varied = [key for key in keys if len({getattr(each.run, key) for each in runs}) > 1]
    found: dict[str, list[Messages]] = {}
    for each in runs:
        found.setdefault(_name(each.run, varied), []).append(each)
    return found


def _name(run: Run, keys: Sequence[str]) -> str:
    named = []
    for key in keys or ("mode", "cps"):
        value = getattr(run, key)
        unit = NAMES.get(key)
        named.append(
            str(value) if unit is None else f"{value} cps" if unit == "cps" else plural(value, unit)
        )
    return ", ".join(named)


def _draw(axis: Axes, runs: Sequence[Values], name: str, color: str) -> None:
    found = exceedance(runs)
    if found is None:
        return
    some = found.mean > 0
    axis.plot(found.at[some], found.mean[some], color=color, label=name)
    band = found.lowest > 0
    if len(found.shares) > 1:
        axis.fill_between(
            found.at[band],
            found.lowest[band],
            found.highest[band],
            color=color,
            alpha=0.25,
            linewidth=0,
        )


def _words(name: str, runs: Sequence[Messages]) -> str:
    """Say what one message in a hundred takes longer than, run by run, and what was refused."""
    slow = [np.nanpercentile(total, 99) for each in runs if _known(total := _times(each)[2])]
    received = sum(len(each.at_s) for each in runs)
    refused = sum(len(each.drop_at_s) for each in runs)
    text = f"{name}, {plural(len(runs), 'run')}: "
    if slow:
        low, high = number(min(slow)), number(max(slow))
        text += "one message in a hundred takes longer than " + (
            f"{low} µs" if low == high else f"{low} to {high} µs, by run"
        )
    else:
        text += "no message has both times"
    return f"{text}; {grouped(received + refused)} reached the proxy, {grouped(refused)} of them were refused."


def _known(values: Values) -> bool:
    return bool((~np.isnan(values)).any())
