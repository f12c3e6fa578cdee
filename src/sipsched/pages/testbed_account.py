"""A figure for the testbed's page: which programs used the CPU time of the proxy machine in each run."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sipsched.analysis.run_table import Campaign, findings_of
from sipsched.pages.drawing import INK, SERIES, Layout, legend, themed, titled
from sipsched.pages.parts import Figure, Words
from sipsched.pages.plots import TICK_IN, loads_apart
from sipsched.pages.tables import competitors_of
from sipsched.records.summary_variables import CPU_PARTS
from sipsched.words import grouped, plural

LABELS = {
    "proxy_share": "proxy",
    "interrupt_share": "interrupts",
    "kernel_share": "kernel threads",
    "own_share": "sipsched's programs",
    "competitor_share": "other programs",
    "idle_class_share": "SCHED_IDLE",
    "stolen_share": "stolen",
    "idle_share": "idle",
}
COLOURS = (SERIES[0], SERIES[2], SERIES[3], SERIES[4], SERIES[1], SERIES[5], INK, "none")
"""The colours of the uses of CPU time. Other programs have the warning colour, and idle time has no colour."""

MOST_TITLED = 200
"""If a figure has more runs than this number, its points show no values on hover, because the page would be large."""


def cpu_account(campaign: Campaign) -> Figure | Words:
    """Return a figure of the uses of the proxy machine's CPU time, with a bar per run. Without data, a sentence."""
    counted = campaign.counted
    known = counted[counted["idle_share"].notna()].sort_values(["cps", "competitor_share"])
    said = competitors_of(campaign.cpu_shares)
    if known.empty:
        return Words((said,))
    seen = (
        said,
        *_suspect(known),
        *_worst(known, "competitor_share", "Other programs"),
        *_worst(known, "own_share", "The programs of sipsched"),
    )
    return Figure(
        identity="figure-cpu-account",
        draw=lambda layout: _drawn(known, layout),
        caption="Shares of the SPS's CPU time, by use, during the load of each run. Each bar is a run.",
        seen=seen,
        reading=f"The runs are sorted by load, from {grouped(known['cps'].min())} to {grouped(known['cps'].max())} "
        "cps, and at the same load by the share of other programs. The programs of sipsched are the load generators, "
        "the probe and their helpers, as far as they run on the SPS's CPUs. The parts of a bar add up to 1. Empty "
        f"space is idle time. {len(known)} of {plural(len(counted), 'run')} recorded the use of CPU time.",
        provenance=campaign.provenance,
    )


def _drawn(runs: pd.DataFrame, layout: Layout) -> str:
    canvas, grid = layout.panels(1, 1, 2.5)
    axis = grid[0, 0]
    # The bars are drawn as one step curve, because thousands of bars would be thousands of SVG shapes.
    edges = np.arange(len(runs) + 1)
    below = np.zeros(len(runs))
    for name, colour in zip(CPU_PARTS, COLOURS, strict=True):
        above = below + runs[name].to_numpy(float)
        axis.fill_between(
            edges,
            np.append(below, below[-1]),
            np.append(above, above[-1]),
            step="post",
            color=colour,
            linewidth=0,
            label=None if colour == "none" else LABELS[name],
        )
        below = above
    if len(runs) <= MOST_TITLED:
        # The page shows the shares of a run on hover over its bar. The marks are as high as the panel and invisible.
        (marks,) = axis.plot(
            *(edges[:-1] + 0.5, np.full(len(runs), 0.5), "|"),
            markersize=150,
            alpha=0,
            markeredgewidth=3,
        )
        titled(marks, list(map(_title, runs.to_dict("records"))))
    axis.set_xlim(0, len(runs))
    axis.set_ylim(0, 1)
    axis.set_xlabel("runs, by load (cps)")
    axis.set_ylabel("share of CPU time")
    loads = runs["cps"].to_numpy()
    starts = np.flatnonzero(np.append(True, loads[1:] != loads[:-1]))
    gap = TICK_IN / (0.8 * layout.width_in) * len(runs)
    shown = loads_apart(starts.astype(float), gap)
    axis.set_xticks(shown, [grouped(loads[int(start)]) for start in shown])
    axis.set_xticks(starts, minor=True)
    axis.set_axisbelow(True)
    legend(canvas, grid, columns=4)
    return themed(canvas)


def _title(run: Mapping[Hashable, Any]) -> str:
    shares = [
        f"{LABELS[name]} {100 * run[name]:.2g} %"
        for name in CPU_PARTS
        if name in LABELS and run[name] > 0
    ]
    return f"{run['sut']}, {run['mode']}, {grouped(run['cps'])} cps, repetition {run['rep']}: {', '.join(shares)}"


def _suspect(runs: pd.DataFrame) -> tuple[str, ...]:
    """Return a sentence that counts the runs that are suspect because other programs used much CPU time, if any are."""
    limits = [
        finding.limit
        for text in runs["findings"]
        for finding in findings_of(text)
        if finding.rule == "competitor_share" and finding.limit is not None
    ]
    if not limits:
        return ()
    return (
        f"{len(limits)} of {plural(len(runs), 'run')} are suspect because the share of other programs exceeds "
        f"{100 * min(limits):g}\u00a0%.",
    )


def _worst(runs: pd.DataFrame, share: str, users: str) -> tuple[str, ...]:
    """Return a sentence about the run in which some programs used the largest share of CPU time, if any did."""
    worst = runs.loc[runs[share].idxmax()]
    if not worst[share] > 0:
        return ()
    return (
        f"{users} used the largest share, {100 * worst[share]:.1f}\u00a0%, in repetition "
        f"{worst['rep']} of {worst['sut']}, {worst['mode']}, {plural(int(worst['cores']), 'core')}, "
        f"{plural(int(worst['threads']), 'worker')}, {grouped(worst['cps'])} cps.",
    )
