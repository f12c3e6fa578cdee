"""How many messages took how long, and when: a heat map (Gregg 2010, doi:10.1145/1785414.1785435)."""

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter

from sipsched.pages.drawing import LIMIT, STYLE, Layout, both, themed
from sipsched.pages.explore.timeline import Messages, name_of, provenance
from sipsched.pages.parts import Figure
from sipsched.words import grouped, number

Values = npt.NDArray[np.float64]
TIMES, LATENCIES = 120, 40
"""Cells across and up."""


def heat_map(messages: Messages) -> Figure | None:
    """Draw how many messages arrived in a step of time and took how long, wait and service together.

    Parameters
    ----------
    messages
        Of one run.

    Returns
    -------
    Figure or None
        None if no message has both times, above 0.
    """
    total = messages.wait_us + messages.service_us
    known = total > 0
    at, total = messages.at_s[known], total[known]
    if not len(total):
        return None
    times = np.linspace(0.0, max(messages.length_s, 1e-3), TIMES + 1)
    # a hair wider: a message at a bound is in a cell, and all alike have one
    latencies = np.geomspace(0.99 * total.min(), 1.01 * total.max(), LATENCIES + 1)
    counts, _, _ = np.histogram2d(at, total, bins=(times, latencies))
    refused, _ = np.histogram(messages.drop_at_s, times)

    def draw(layout: Layout) -> str:
        canvas, ((axis,),) = layout.panels(1, 1, 3.2, above_in=0.0)
        mesh = axis.pcolormesh(
            times,
            latencies,
            np.ma.masked_equal(counts.T, 0),
            norm=LogNorm(1, max(counts.max(), 2)),
            cmap="viridis",
            rasterized=True,
        )
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))
        axis.set_ylabel("K_rcv + T_sip (µs)")
        axis.set_xlabel("time since the first arrival (s)")
        axis.grid(visible=False)
        for step in np.flatnonzero(refused):
            left, right = times[step : step + 2]
            axis.axvspan(left, right, ymax=0.03, color=LIMIT, linewidth=0)
        where = {"location": "top", "aspect": 40} if layout.stacked else {"pad": 0.01}
        bar = canvas.colorbar(mesh, ax=axis, format=FuncFormatter(grouped), **where)
        bar.set_label("messages in a cell")
        return themed(canvas)

    with rc_context(STYLE):
        svg, narrow = both(draw)
    step_s = times[1] - times[0]
    caption = (
        f"{', '.join(name_of(messages.run))}: each cell counts the messages that arrived in {step_s:.2g} s and took "
        "so long from the driver until the proxy sent them on. Kinds of message are bands, a stall is a spike; a red "
        "mark below is a step with refused datagrams."
    )
    seen = (_words(messages, at, total, times),)
    return Figure(
        identity="figure-heat",
        svg=svg,
        narrow=narrow,
        alt=f"Heat map of latency over time. {caption} {seen[0]}",
        caption=caption,
        seen=seen,
        provenance=provenance([messages]),
    )


def _words(messages: Messages, at: Values, total: Values, times: Values) -> str:
    """Say how far the worst step is from the usual one, and how many steps refused datagrams."""
    place = np.clip(np.digitize(at, times) - 1, 0, TIMES - 1)
    steps = np.unique(place)
    medians = [float(np.median(total[place == step])) for step in steps]
    worst = int(np.argmax(medians))
    return (
        f"In the usual step of time the median is {number(float(np.median(medians)))} µs, in the slowest, "
        f"at {times[steps[worst]]:.2f} s, {number(medians[worst])} µs; {grouped(len(messages.drop_at_s))} datagrams "
        "were refused."
    )
