"""Heat maps of drop rate and waiting time (99th percentile of K_rcv), over number of threads and load."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas

from sipsched.analysis.intervals import Values
from sipsched.analysis.run_table import Facet, counted, facet_name, facets, provenance
from sipsched.pages.drawing import INK, Layout, themed
from sipsched.pages.parts import Figure, Several
from sipsched.records.summary_variables import ALL
from sipsched.words import grouped, number, plural

MOST_LABELLED = 12
"""If a heat map has more loads than this, its cells do not show their numbers."""
CELL_IN, TITLE_IN = 0.28, 0.9
LEAST = {"PDR": 0.01, "wait": 1.0}
"""The lower ends of the colour scales: drop rate in percent, and waiting time in microseconds."""


@dataclass(frozen=True)
class ThreadsMap:
    """The drop rate and waiting time of one configuration, shape (threads, load). NaN if no run is valid."""

    facet: Facet
    threads: tuple[int, ...]
    cps: tuple[int, ...]
    pdr: Values
    wait: Values


def heat_maps(summary: xr.Dataset) -> Several:
    """Return heat maps of drop rate and waiting time, for configurations with several numbers of threads and loads."""
    panels = [panel for facet in facets(summary) if (panel := _panel(summary, facet)) is not None]
    if not panels:
        return Several(())
    seen = tuple(map(_words, panels))
    figure = Figure(
        identity="figure-threads",
        draw=lambda layout: _drawn(panels, layout),
        caption="Packet drop rate and 99th percentile of the waiting time K_rcv, for each number of threads and load.",
        seen=seen,
        reading="Each cell shows the median of its runs. The colour scale is logarithmic, and darker cells have "
        "smaller values. A cell without colour has no drops or no valid run.",
        provenance=provenance(summary),
    )
    return Several((figure,))


def _drawn(panels: Sequence[ThreadsMap], layout: Layout) -> str:
    across = 1 if layout.stacked else 2
    heights = [
        TITLE_IN + CELL_IN * len(panel.threads) for panel in panels for _ in range(2 // across)
    ]
    with rc_context({"axes.grid": False}):
        canvas = Canvas(figsize=(layout.width_in, 0.3 + sum(heights)), layout="constrained")
        grid = canvas.subplots(
            len(heights), across, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for pair, panel in zip(grid.reshape(-1, 2), panels, strict=True):
            _draw(pair[0], panel, panel.pdr, LEAST["PDR"], lambda value: f"{value:.2g}")
            _draw(pair[1], panel, panel.wait, LEAST["wait"], number)
            pair[0].set_title(f"{facet_name(panel.facet)}: PDR (%)", loc="left")
            pair[1].set_title("99th percentile of K_rcv (µs)", loc="left")
            pair[0].set_ylabel("threads")
        for axis in grid[-1]:
            axis.set_xlabel("calls per second")
        return themed(canvas)


def _panel(summary: xr.Dataset, facet: Facet) -> ThreadsMap | None:
    sut, mode, cores = facet
    runs = counted(summary).sel(sut=sut, mode=mode, cores=cores)
    pdr = 100 * runs["pdr"].median("rep").transpose("threads", "cps")
    wait = runs["k_rcv_p99"].sel(message_type=ALL).median("rep").transpose("threads", "cps")
    known = pdr.notnull()
    threads, cps = known.any("cps").to_numpy(), known.any("threads").to_numpy()
    if threads.sum() < 2 or cps.sum() < 2:
        return None
    return ThreadsMap(
        facet,
        tuple(pdr["threads"].to_numpy()[threads].tolist()),
        tuple(pdr["cps"].to_numpy()[cps].tolist()),
        pdr.to_numpy()[np.ix_(threads, cps)],
        wait.to_numpy()[np.ix_(threads, cps)],
    )


def _draw(
    axis: Axes, panel: ThreadsMap, values: Values, least: float, say: Callable[[float], str]
) -> None:
    shown = np.where(values > 0, values, np.nan)
    highest = float(np.nanmax(shown, initial=2 * least))
    norm = LogNorm(least, max(highest, 2 * least))
    axis.pcolormesh(shown, norm=norm, cmap="viridis", rasterized=True)
    axis.set_xticks(np.arange(len(panel.cps)) + 0.5, [grouped(load) for load in panel.cps])
    axis.tick_params(axis="x", labelrotation=0 if len(panel.cps) <= 6 else 60)
    axis.set_yticks(np.arange(len(panel.threads)) + 0.5, [str(thread) for thread in panel.threads])
    if len(panel.cps) > MOST_LABELLED:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            # Dark cells need light text. The lower half of the colour map is dark, also in the dark mode of the page.
            color = INK if value <= 0 else "white" if norm(value) < 0.6 else "black"
            axis.text(
                column + 0.5,
                row + 0.5,
                say(float(value)),
                ha="center",
                va="center",
                fontsize=6.5,
                color=color,
            )


def _words(panel: ThreadsMap) -> str:
    """Return a sentence with the highest load without drops, and the numbers of threads that handle this load."""
    name = facet_name(panel.facet)
    clean = np.where(panel.pdr > 0, -1.0, np.array(panel.cps, float))
    clean = np.where(np.isnan(panel.pdr), -1.0, clean)
    highest = clean.max(axis=1)
    if (highest < 0).all():
        return f"{name}: every load drops messages, with any number of threads."
    best = [
        threads for threads, cps in zip(panel.threads, highest, strict=True) if cps == highest.max()
    ]
    most = grouped(highest.max())
    with_threads = plural(best[0], "thread")
    if len(best) == len(panel.threads):
        with_threads = f"any of {', '.join(map(str, best))} threads"
    elif len(best) > 1:
        with_threads = f"{' or '.join(map(str, best))} threads"
    return f"{name}: the highest load without a drop is {most} cps, with {with_threads}."
