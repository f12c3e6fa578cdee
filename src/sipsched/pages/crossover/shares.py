"""Figures of the share of messages that take longer than a given time, for each mode and load."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sipsched.analysis.advice import Advice, Ranking
from sipsched.analysis.intervals import Values
from sipsched.pages.crossover.effects import ordered_modes
from sipsched.pages.crossover.wording import (
    by_proxy,
    identity,
    loads_name,
    looks_of,
    provenance,
    short_load,
)
from sipsched.pages.numbers import in_us
from sipsched.pages.parts import Figure, Several
from sipsched.pages.plots import Look, draw_line, log_ticks, not_measured, panels

SHARES = {"total_p50": 0.5, "total_p90": 0.1, "total_p99": 0.01}
"""The drawn percentiles of the message time, each with the share of messages that take longer than the percentile."""
MOST = 6
"""The largest number of modes in the figure."""


def figures(comparisons: Sequence[Advice]) -> Several:
    """Draw the share of messages that take longer than a given time, for each mode, with one figure per proxy."""
    looks = looks_of(ranking.load for advice in comparisons for ranking in advice.rankings)
    return by_proxy(comparisons, lambda advice: (_figure(advice, looks),))


def _figure(advice: Advice, looks: Mapping[str, Look]) -> Figure:
    rankings = advice.rankings
    modes = [advice.place.reference, *ordered_modes(advice)]
    by_load = [times(ranking, modes[:MOST]) for ranking in rankings]

    def draw(axis: Axes, row: int, column: int) -> None:
        _draw_shares(axis, rankings[column], by_load[column], looks)
        axis.set_ylabel("share that takes longer")

    more = len(modes) - MOST
    return Figure(
        identity=identity("figure-shares", *advice.place[1:4]),
        draw=panels(
            [""],
            [short_load(ranking.load) for ranking in rankings],
            draw,
            "K_rcv + T_sip (µs)",
            shared=("", "all"),
        ),
        caption="The share of messages whose waiting plus service time (K_rcv + T_sip) exceeds the time on the x "
        "axis, for each mode.",
        reading="If a line lies further left, messages take less time. The points of a line mark the median, the 90th "
        "and the 99th percentile. The points of the reference mode are means over its windows. The points of "
        "another mode are computed: a point is the reference's point multiplied by the mode's measured effect. "
        "This product is free of differences in the machine's speed between runs. Both axes are logarithmic."
        + (
            f" The figure shows the {MOST - 1} modes that are best over all loads. The tables also contain the other "
            f"{more}."
            if more > 0
            else ""
        ),
        seen=tuple(filter(None, map(_words, rankings, by_load))) or ("No window is valid.",),
        provenance=provenance(ranking.load for ranking in rankings),
    )


def times(ranking: Ranking, modes: Sequence[str]) -> dict[str, Values]:
    """Return the median, 90th and 99th percentile of the message time in µs per mode, for modes that have all three."""
    load = ranking.load
    of_reference = np.array([load.mean(load.place.reference, name).estimate for name in SHARES])
    by_mode = {
        mode: of_reference
        * np.exp(
            [
                0.0 if mode == load.place.reference else load.effect(mode, name).interval.estimate
                for name in SHARES
            ]
        )
        for mode in modes
        if mode in (load.place.reference, *load.modes)
    }
    return {mode: values for mode, values in by_mode.items() if np.isfinite(values).all()}


def _draw_shares(
    axis: Axes, ranking: Ranking, by_mode: dict[str, Values], looks: Mapping[str, Look]
) -> None:
    if not by_mode:
        not_measured(axis)
        return
    shares = list(SHARES.values())
    for mode, values in by_mode.items():
        label = ranking.load.label(mode)
        titles = [
            f"{label}: {100 * share:g} % of messages take longer than {in_us(value)}"
            for share, value in zip(shares, values, strict=True)
        ]
        draw_line(axis, values, shares, looks[mode], titles, markersize=4, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    log_ticks(axis.xaxis)
    axis.yaxis.set_major_locator(FixedLocator(shares))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def _words(ranking: Ranking, by_mode: dict[str, Values]) -> str:
    """Return a sentence with the time that one message in a hundred exceeds, for each mode at a load."""
    listed = ", ".join(
        f"{in_us(float(values[-1]))} with {ranking.load.label(mode)}"
        for mode, values in by_mode.items()
        if math.isfinite(values[-1])
    )
    name = loads_name([ranking.load])
    return f"{name}: one message in a hundred takes longer than {listed}." if listed else ""
