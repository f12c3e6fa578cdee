"""The figures, tables and sentences of the page of a testbed: what it is, how quiet, how far to be trusted."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.crossover import percent
from sipsched.analysis.probe_cost import probe_costs
from sipsched.analysis.run_table import (
    IMPOSSIBLE,
    POINT,
    Campaign,
    findings_of,
    receive_buffers,
)
from sipsched.pages.drawing import MARKERS, PAPER, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.numbers import NO_ENTRY, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Table, Words
from sipsched.pages.tables import Heading, conditions_of
from sipsched.records.noise_record import CpuNoise, Noise, read_noise
from sipsched.records.summary import INVALID, MEASURED, MISSING
from sipsched.validity.verdict import in_general
from sipsched.words import listed, number, plural

MOST_LABELLED_LOADS = 14
MOST_LEVEL_LOADS = 6
WIDE_NAME, NARROW_NAME = 40, 20
"""Characters of a configuration's name on a line."""
MOST_POINTS_LISTED = 50
COST_CAPTION = (
    "CPU time of all of the proxy's processes a message: windows of the same runs with the probe's recording "
    "and without, over the same calls, and 95 % interval of the difference. Sham: what the same windows show "
    "where nothing is changed."
)
# What a point is, from the best to the worst: colour, sign in its cell, and words.
KINDS = {
    MEASURED: (SERIES[0], "", "every planned run counts"),
    MISSING: (SERIES[4], "–", "some are not measured yet"),
    INVALID: (SERIES[1], "×", "some were tried, and no attempt counts"),
    IMPOSSIBLE: (SERIES[5], "∅", "more cores than the testbed has"),
}


def heading(campaign: Campaign) -> Heading:
    """Say what the numbers of this testbed are worth, and where they come from."""
    return Heading(
        fidelity=campaign.fidelity,
        testbed=f"Testbed {campaign.testbed}, kind {campaign.kind}, kernel {campaign.kernels}; "
        f"studies: {', '.join(campaign.studies)}.",
        description=campaign.description,
    )


def answer(campaign: Campaign, noise_file: Path, windows: Sequence[Path]) -> Answer:
    """Say how much of what was planned counts, how quiet the CPUs are, and what the probe costs."""
    status = campaign.runs["status"].value_counts()
    suspect = int((campaign.counted["grade"] == "suspect").sum())
    said = [
        f"{status.get(MEASURED, 0)} of {plural(len(campaign.runs), 'planned run')} count, {suspect} of them with "
        "reservations"
    ]
    found = read_noise(noise_file).cpus if noise_file.is_file() else ()
    if found:
        lost = max(cpu.lost_share for cpu in found)
        said.append(f"an idle CPU is interrupted for {100 * lost:.2g}\u00a0% of its time")
    costs = [percent(cost.effect.interval) for cost in probe_costs(windows)]
    known = [cost for cost in costs if not np.isnan(cost.estimate)]
    if known:
        most = max(known, key=lambda cost: cost.estimate)
        said.append(
            f"the probe changes the proxy's CPU time a message by {with_unit(most, '%', '+')}"
        )
    return Answer(f"{listed(said)}.")


def coverage(campaign: Campaign) -> Figure:
    """Draw every planned point by what became of its runs: measured, missing, invalid, impossible."""
    # Imported here: with pyplot it takes a second that other pages need not spend.
    import seaborn

    points = _points(campaign.runs)
    suts = list(dict.fromkeys(points["sut"]))
    grids = {sut: _grid(points[points["sut"] == sut]) for sut in suts}
    colours = ListedColormap([colour for colour, _, _ in KINDS.values()])

    def draw(layout: Layout) -> str:
        with rc_context({**STYLE, "axes.grid": False}):
            names = {
                sut: [_broken(str(name), layout.stacked) for name in codes.index]
                for sut, (codes, _) in grids.items()
            }
            lines = [max(1 + name.count("\n") for name in each) for each in names.values()]
            heights = [
                (0.12 + 0.14 * most) * len(each)
                for most, each in zip(lines, names.values(), strict=True)
            ]
            height = 0.9 + 0.9 * len(suts) + sum(heights)
            canvas = Canvas(figsize=(layout.width_in, height), layout="constrained")
            axes = canvas.subplots(
                max(len(suts), 1), 1, squeeze=False, gridspec_kw={"height_ratios": heights or [1]}
            )[:, 0]
            for axis, (sut, (codes, labels)) in zip(axes, grids.items(), strict=False):
                seaborn.heatmap(
                    codes,
                    annot=labels if codes.shape[1] <= MOST_LABELLED_LOADS else None,
                    fmt="",
                    cmap=colours,
                    vmin=-0.5,
                    vmax=len(KINDS) - 0.5,
                    mask=codes.isna(),
                    cbar=False,
                    linewidths=1,
                    linecolor=PAPER,
                    annot_kws={"color": PAPER, "fontsize": 5.5 if layout.stacked else 7.5},
                    xticklabels=True,
                    yticklabels=names[sut],
                    ax=axis,
                )
                axis.set_title(sut, loc="left")
                axis.set_ylabel("")
                axis.set_xlabel("offered load (cps)" if axis is axes[-1] else "")
                axis.tick_params(length=0)
                axis.tick_params(axis="y", rotation=0)
                axis.tick_params(axis="x", rotation=90 if codes.shape[1] > MOST_LEVEL_LOADS else 0)
            canvas.legend(
                [Patch(color=colour) for colour, _, _ in KINDS.values()],
                [f"{kind} {sign}".strip() for kind, (_, sign, _) in KINDS.items()],
                loc="outside upper left",
                ncols=2 if layout.stacked else len(KINDS),
            )
            return themed(canvas)

    svg, narrow = both(draw)
    tally = points["kind"].value_counts()
    seen = [
        f"{len(points)} points planned: "
        + ", ".join(
            f"{tally.get(kind, 0)} {kind} ({words})" for kind, (_, _, words) in KINDS.items()
        )
        + "."
    ]
    for sut in suts:
        words = [
            f"{kind} at {_listed(here)}"
            for kind in (INVALID, MISSING, IMPOSSIBLE)
            if len(here := points[(points["sut"] == sut) & (points["kind"] == kind)])
        ]
        if words:
            seen.append(f"{sut}: {'; '.join(words)}.")
    caption = (
        "Planned points by what became of their runs: colour and sign say the worst of them, the "
        "number how many count of how many planned. No colour: not planned."
    )
    return Figure(
        identity="figure-coverage",
        svg=svg,
        narrow=narrow,
        alt=f"Coverage of the campaign. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen),
        provenance=campaign.provenance,
    )


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    """Give one row a point: the worst of its runs, how many count, how many were planned."""
    kinds = list(KINDS)
    ranked = runs.assign(rank=[kinds.index(status) for status in runs["status"]])
    found = ranked.groupby(list(POINT), sort=False).agg(
        rank=("rank", "max"),
        counted=("rank", lambda ranks: int((ranks == 0).sum())),
        planned=("rank", "size"),
    )
    return found.assign(kind=[kinds[rank] for rank in found["rank"]]).reset_index()


def _grid(points: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give kinds as numbers and the texts of the cells, a row a configuration, a column a load."""
    names = points[["mode", "cores", "threads"]].itertuples(index=False)
    row = [_configuration(*name) for name in names]
    label = [
        f"{counted}/{planned}{KINDS[kind][1]}"
        for counted, planned, kind in zip(
            points["counted"], points["planned"], points["kind"], strict=True
        )
    ]
    table = points.assign(row=row, label=label)
    order, loads = list(dict.fromkeys(row)), sorted(set(points["cps"]))

    def wide(column: str) -> pd.DataFrame:
        return table.pivot(index="row", columns="cps", values=column).reindex(
            index=order, columns=loads
        )

    return wide("rank").astype(float), wide("label").fillna("")


def _configuration(mode: str, cores: int, threads: int) -> str:
    return f"{mode}, {plural(cores, 'core')}, {plural(threads, 'thread')}"


def _broken(configuration: str, narrow: bool) -> str:
    """Break the name of a configuration, between the modes of a comparison, too."""
    parted = configuration.replace(",", ", ").replace(",  ", ", ")
    return textwrap.fill(parted, NARROW_NAME if narrow else WIDE_NAME, break_on_hyphens=False)


def _listed(points: pd.DataFrame) -> str:
    """Name points in words, the first few of them."""
    few = 4
    words = [
        f"{_configuration(mode, cores, threads)}, {cps} cps"
        for _, mode, cores, threads, cps in points[list(POINT)].itertuples(index=False)
    ]
    more = f" and {len(words) - few} more" if len(words) > few else ""
    return " | ".join(words[:few]) + more


def noise(path: Path, campaign: Campaign) -> Figure | Words:
    """Draw how often an idle CPU of the SPS is interrupted, and for how long.

    Parameters
    ----------
    path
        The testbed's `noise.json`; where it is not there, one sentence says so.
    campaign
        For the label of the figure.
    """
    if not path.is_file():
        return Words(
            (f"Not measured: no file {path.name} among the records; snakemake measures it.",)
        )
    return draw_noise(read_noise(path), campaign)


def draw_noise(found: Noise, campaign: Campaign) -> Figure:
    """Draw the gaps of each CPU: how many a second are longer than a time."""

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(1, 1, 2.5)
            axis = grid[0, 0]
            for i, cpu in enumerate(found.cpus):
                lengths = np.sort(cpu.gaps_us)[::-1]
                rate = np.arange(1, len(lengths) + 1) / cpu.duration_s
                axis.step(
                    lengths,
                    rate,
                    where="post",
                    color=SERIES[i % len(SERIES)],
                    marker=MARKERS[i % len(MARKERS)],
                    markevery=max(1, len(lengths) // 12),
                    markersize=3.5,
                    label=f"CPU {cpu.cpu}",
                )
            if any(cpu.gaps_us.size for cpu in found.cpus):
                axis.set_xscale("log")
                axis.set_yscale("log")
            axis.set_xlabel("length of a gap (µs)")
            axis.set_ylabel("longer gaps a second")
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            legend(canvas, np.array([axis]))
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(_noise_words(cpu) for cpu in found.cpus)
    caption = (
        "Gaps in the time of a program that reads the clock on an idle CPU of the SPS: how many a "
        f"second are longer than a time. Both scales are logarithmic. Measured {found.started_at}, "
        f"kernel {found.kernel}; one look, n = 1, so no number has an interval."
    )
    return Figure(
        identity="figure-noise",
        svg=svg,
        narrow=narrow,
        alt=f"Noise of the idle testbed. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=campaign.provenance,
    )


def _noise_words(cpu: CpuNoise) -> str:
    start = (
        f"CPU {cpu.cpu}, looked at for {cpu.duration_s:.1f} s every {cpu.resolution_ns:.0f} ns: "
    )
    if not cpu.gaps_us.size:
        return f"{start}no gap longer than {cpu.threshold_ns / 1000:g} µs."
    middle, slow = np.percentile(cpu.gaps_us, (50, 99))
    unlisted = f" ({cpu.gaps_unlisted} more not listed)" if cpu.gaps_unlisted else ""
    return (
        f"{start}{number(cpu.gaps_us.size / cpu.duration_s)} gaps a second longer than "
        f"{cpu.threshold_ns / 1000:g} µs{unlisted}, together {100 * cpu.lost_share:.2g} % of the "
        f"time; half of them longer than {number(float(middle))} µs, one in a hundred longer than "
        f"{number(float(slow))} µs, the longest {number(float(cpu.gaps_us.max()))} µs; stolen by "
        f"the hypervisor: {cpu.steal_s:.2f} s."
    )


def conditions(campaign: Campaign) -> Words:
    """Say what varied between the runs of all studies that should not."""
    buffers = receive_buffers(campaign.runs, "sut", "mode")
    return conditions_of(campaign.kernels, buffers, campaign.runs["steal_s"].to_numpy(float))


def cost_of_the_probe(campaign: Campaign, windows: Sequence[Path]) -> Table:
    """Compare the proxy's CPU time a message with the probe and without, point by point."""
    rows: list[tuple[Cell, ...]] = []
    for cost in probe_costs(windows):
        rows.append(
            (
                *(cost.sut, cost.mode, str(cost.cores), str(cost.threads), str(cost.cps)),
                f"{cost.without_us:.1f}",
                told(percent(cost.effect.interval), "%", plus="+"),
                told(percent(cost.sham.interval), "%", plus="+"),
                str(sum(cost.effect.blocks)),
            )
        )
    return Table(
        identity="table-probe-cost",
        places=4,
        header=(
            *("SUT", "mode", "cores", "threads", "cps", "without the probe (µs)"),
            *("the probe adds (%)", "sham (%)", "blocks"),
        ),
        rows=tuple(rows),
        none="not measured: no run compares a mode with itself and recording=off",
        caption=COST_CAPTION,
        provenance=campaign.provenance,
    )


def certificates(campaign: Campaign) -> Table:
    """Show for each SUT and load whether calls arrived on schedule: the certificates of its runs."""
    rows = []
    for (sut, cps), runs in campaign.counted.groupby(["sut", "cps"], sort=True):
        grades = runs["grade"].value_counts()
        rate_error = 100 * (runs["achieved_cps"] / runs["offered_cps"] - 1).abs()
        rows.append(
            (
                *(str(sut), str(cps), str(len(runs))),
                _range(runs["ks_distance"]),
                _range(runs["cv"]),
                _range(runs["lateness_p99_us"]),
                _range(100 * runs["generator_cpu_share"]),
                f"{rate_error.max():.1g}",
                ", ".join(f"{count}\u00a0{grade}" for grade, count in grades.items()),
            )
        )
    return Table(
        identity="table-certificates",
        places=1,
        header=(
            *("SUT", "cps", "runs", "KS distance", "CV", "lateness p99 (µs)"),
            *("generator CPU (%)", "worst rate error (%)", "verdicts"),
        ),
        rows=tuple(rows),
        none="no run counts",
        caption="Arrival certificates of the runs that count: smallest to largest value of the runs "
        "at a load, and their verdicts.",
        provenance=campaign.provenance,
    )


def _range(values: pd.Series) -> str:
    there = values.dropna()
    if not len(there):
        return NO_ENTRY
    low, high = number(float(there.min())), number(float(there.max()))
    return low if low == high else f"{low} to {high}"


def reasons(campaign: Campaign) -> Table:
    """Count the reasons of verdicts: of runs that count and are suspect, and of attempts that do not."""
    suspect = campaign.counted[campaign.counted["grade"] == "suspect"]["findings"]
    told = Counter(finding.rule for text in suspect for finding in findings_of(text))
    refused = Counter(cause for attempt in campaign.attempts for cause in attempt.causes)
    rows = [
        (in_general(cause), str(told[cause] or ""), str(refused[cause] or ""))
        for cause, _ in (told + refused).most_common()
    ]
    return Table(
        identity="table-reasons",
        header=("why", "suspect\u00a0runs", "refused\u00a0attempts"),
        rows=tuple(rows),
        none="none: no run is suspect, and every attempt counted",
        caption=f"Reasons of verdicts, without their numbers. Suspect runs, which count: {len(suspect)}; "
        f"refused attempts, which do not: {len(campaign.attempts)}. One may have "
        "several.",
        provenance=campaign.provenance,
    )


def runs_that_are_not_there(campaign: Campaign) -> Table:
    """List the planned runs that do not count, and why."""
    absent = campaign.runs[campaign.runs["status"] != MEASURED]
    rows = [
        (*map(str, row[:-1]), str(row[-1]) or "no record")
        for row in absent[[*POINT, "rep", "status", "reasons"]].itertuples(index=False)
    ]
    more = len(rows) - MOST_POINTS_LISTED
    if more > 0:
        rows = [*rows[:MOST_POINTS_LISTED], (f"and {more} more",)]
    return Table(
        identity="table-runs-not-there",
        places=4,
        header=(*POINT, "rep", "status", "why"),
        rows=tuple(rows),
        none="none: every planned run was measured and counts",
        caption="Planned runs that no average contains.",
        provenance=campaign.provenance,
    )
