"""A heat map of message times over the course of a run (Gregg 2010, doi:10.1145/1785414.1785435)."""

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.intervals import Values
from sipsched.pages.drawing import LIMIT, Layout, themed
from sipsched.pages.explore.timeline import Messages, name_of, provenance
from sipsched.pages.parts import Figure
from sipsched.words import grouped, number

TIMES, LATENCIES = 120, 40
"""Numbers of columns and rows of the heat map."""
COLOURS = ListedColormap(colormaps["viridis"](np.linspace(0.3, 0.95, 256)))
"""The colours of the cells, without the ends of the scale, which are invisible on a dark or on a white page."""


def heat_map(messages: Messages) -> Figure | None:
    """Draw a heat map of the waiting plus service time of messages over their arrival time; None without such times."""
    total = messages.wait_us + messages.service_us
    known = total > 0
    at, total = messages.at_s[known], total[known]
    if not len(total):
        return None
    times = np.linspace(0.0, max(messages.length_s, 1e-3), TIMES + 1)
    # The range is slightly wider than the times, so that the extreme messages also fall into a cell.
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
            cmap=COLOURS,
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

    return Figure(
        identity="figure-heat",
        draw=draw,
        caption=f"{', '.join(name_of(messages.run))}: number of messages by arrival time and by waiting plus service "
        "time (K_rcv + T_sip).",
        reading=f"The colour of a cell shows the number of messages that arrived within {times[1] - times[0]:.2g} s "
        "and took about equally long. A stall of the proxy appears as "
        "a spike. A red mark at the bottom shows that the full socket refused datagrams at this time.",
        seen=(_words(messages, at, total, times),),
        provenance=provenance([messages]),
    )


def _words(messages: Messages, at: Values, total: Values, times: Values) -> str:
    """Return sentences with the median message times in a typical and in the slowest column of the heat map.

    The last sentence counts the refused datagrams.
    """
    column = np.clip(np.digitize(at, times) - 1, 0, TIMES - 1)
    steps = np.unique(column)
    medians = [float(np.median(total[column == step])) for step in steps]
    worst = int(np.argmax(medians))
    return (
        f"In a usual column of the figure, the median time is {number(float(np.median(medians)))} µs. In the slowest "
        f"column, at {times[steps[worst]]:.2f} s, the median is {number(medians[worst])} µs. "
        f"{grouped(len(messages.drop_at_s))} datagrams were refused."
    )
