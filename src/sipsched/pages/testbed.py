"""The page about a testbed: valid runs, noise (interruptions) of its CPUs, cost of the probe, arrivals of calls."""

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
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
from sipsched.pages.drawing import PAPER, SERIES, Layout, themed, titled
from sipsched.pages.numbers import NO_ENTRY, in_us, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Heading, Table, Words
from sipsched.pages.plots import look, panels
from sipsched.pages.tables import MAX_RUNS_LISTED, conditions_of
from sipsched.records.noise_record import CpuNoise, Noise, read_noise
from sipsched.records.study_summary import INVALID, MEASURED, MISSING
from sipsched.validity.verdict import in_general
from sipsched.words import grouped, listed, number, plural

NARROW_CELL_IN = 0.45
"""Cells of the coverage figure that are narrower than this, in inches, have vertical text."""
MOST_LEVEL_LOADS = 6
MARKED_GAPS = 12
WIDE_NAME, NARROW_NAME = 40, 20
"""Largest number of characters in a line of the coverage figure's row names: on a page, and on a phone."""
SUSPECT = "suspect"
# The statuses of a point, from the best to the worst, with colour, sign in the cell, and meaning.
KINDS = {
    MEASURED: (SERIES[0], "", "every planned run is valid"),
    SUSPECT: (SERIES[3], "?", "a run is suspect"),
    MISSING: (SERIES[4], "–", "a run is not measured yet"),
    INVALID: (SERIES[1], "×", "no attempt at a run is valid"),
    IMPOSSIBLE: (SERIES[5], "∅", "the testbed has too few cores"),
}


def heading(campaign: Campaign) -> Heading:
    """Return the heading of the page: the origin of the numbers, the testbed and its kernel."""
    return Heading(
        fidelity=campaign.fidelity,
        testbed=f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}. Studies: "
        f"{', '.join(campaign.studies)}.",
        description=campaign.description,
    )


def answer(campaign: Campaign, noise_file: Path, windows: Sequence[Path]) -> Answer:
    """Return a sentence about the number of valid runs, the interruptions of the CPUs, and the cost of the probe."""
    status = campaign.runs["status"].value_counts()
    suspect = int((campaign.counted["grade"] == "suspect").sum())
    said = [
        f"{status.get(MEASURED, 0)} of {plural(len(campaign.runs), 'planned run')} are valid ({suspect} of the valid "
        "runs are suspect)"
    ]
    cpu_noises = read_noise(noise_file).cpus if noise_file.is_file() else ()
    if cpu_noises:
        lost = max(cpu.lost_share for cpu in cpu_noises)
        said.append(f"an idle CPU is interrupted for {100 * lost:.2g}\u00a0% of its time")
    costs = [percent(cost.effect.interval) for cost in probe_costs(windows)]
    known = [cost for cost in costs if not np.isnan(cost.estimate)]
    if known:
        most = max(known, key=lambda cost: cost.estimate)
        said.append(
            f"the probe changes the proxy's CPU time per message by up to {with_unit(most, '%', '+')}"
        )
    return Answer(f"{listed(said)}.")


def coverage(campaign: Campaign) -> Figure:
    """Return a figure with one coloured cell per planned point (configuration and load) for the runs' status."""
    points = _points(campaign.runs)
    by_sut = {sut: points[points["sut"] == sut] for sut in dict.fromkeys(points["sut"])}
    tally = points["kind"].value_counts()
    counts = (f"{tally.get(kind, 0)} {kind} ({meaning})" for kind, (_, _, meaning) in KINDS.items())
    seen = [f"Number of planned points: {len(points)}. Of these points: {', '.join(counts)}."]
    for sut, of_sut in by_sut.items():
        words = [
            f"{kind} at {_listed(here)}"
            for kind in list(KINDS)[1:]
            if len(here := of_sut[of_sut["kind"] == kind])
        ]
        if words:
            seen.append(f"{sut}: {'; '.join(words)}.")
    return Figure(
        identity="figure-coverage",
        draw=_heat_maps({sut: _grid(of_sut) for sut, of_sut in by_sut.items()}),
        caption="The planned points. The colour of a point shows the worst status of its runs.",
        seen=tuple(seen),
        reading="Each cell is a point. The text in a cell is the number of valid runs / the number of planned runs. "
        "Empty cells are not planned.",
        provenance=campaign.provenance,
    )


def _heat_maps(
    grids: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
) -> Callable[[Layout], str]:
    """Return a function that draws one grid of coloured cells per proxy, from status codes and cell texts."""
    # Import seaborn only here, because seaborn and its pyplot take a second to load.
    import seaborn

    colours = ListedColormap([colour for colour, _, _ in KINDS.values()])

    def draw(layout: Layout) -> str:
        with rc_context({"axes.grid": False}):
            names = {
                sut: [_broken(str(name), layout.stacked) for name in codes.index]
                for sut, (codes, _) in grids.items()
            }
            lines = [max(1 + name.count("\n") for name in labels) for labels in names.values()]
            heights = [
                (0.12 + 0.14 * most) * len(lines_of_name)
                for most, lines_of_name in zip(lines, names.values(), strict=True)
            ]
            height = 0.9 + 0.9 * len(grids) + sum(heights)
            canvas = Canvas(figsize=(layout.width_in, height), layout="constrained")
            axes = canvas.subplots(
                max(len(grids), 1), 1, squeeze=False, gridspec_kw={"height_ratios": heights or [1]}
            )[:, 0]
            for axis, (sut, (codes, labels)) in zip(axes, grids.items(), strict=False):
                seaborn.heatmap(
                    codes,
                    annot=labels,
                    fmt="",
                    cmap=colours,
                    vmin=-0.5,
                    vmax=len(KINDS) - 0.5,
                    mask=codes.isna(),
                    cbar=False,
                    linewidths=1,
                    linecolor=PAPER,
                    annot_kws=_cell_text(codes.shape[1], layout),
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

    return draw


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the worst status and the numbers of valid and planned runs of each planned setting and load."""
    kinds = list(KINDS)
    suspect = (runs["status"] == MEASURED) & (runs["grade"] == "suspect")
    status = runs["status"].where(~suspect, SUSPECT)
    ranked = runs.assign(rank=status.map(kinds.index))
    merged = ranked.groupby(list(POINT), sort=False).agg(
        rank=("rank", "max"),
        counted=("rank", lambda ranks: int((ranks <= kinds.index(SUSPECT)).sum())),
        planned=("rank", "size"),
    )
    return merged.assign(kind=[kinds[rank] for rank in merged["rank"]]).reset_index()


def _grid(points: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables, status codes and cell texts, with one row per configuration and one column per load."""
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


def _cell_text(loads: int, layout: Layout) -> dict[str, Any]:
    """Return the text style of the coverage figure's cells. Narrow cells have vertical text."""
    upright = layout.width_in / loads < NARROW_CELL_IN
    return {
        "color": PAPER,
        "fontsize": 5.5 if layout.stacked or upright else 7.5,
        "rotation": 90 if upright else 0,
    }


def _configuration(mode: str, cores: int, threads: int) -> str:
    return f"{mode}, {plural(cores, 'core')}, {plural(threads, 'thread')}"


def _broken(configuration: str, narrow: bool) -> str:
    """Return the name of a configuration, broken into lines that fit beside the figure."""
    parted = configuration.replace(",", ", ").replace(",  ", ", ")
    return textwrap.fill(parted, NARROW_NAME if narrow else WIDE_NAME, break_on_hyphens=False)


def _listed(points: pd.DataFrame) -> str:
    """Return the first four measured configurations with their loads as text, and the number of further ones."""
    few = 4
    words = [
        f"{_configuration(mode, cores, threads)}, {grouped(cps)} cps"
        for _, mode, cores, threads, cps in points[list(POINT)].itertuples(index=False)
    ]
    more = f" and {len(words) - few} more" if len(words) > few else ""
    return " | ".join(words[:few]) + more


def noise(path: Path, campaign: Campaign) -> Figure | Words:
    """Return a figure of how often and how long an idle CPU of the proxy machine is interrupted.

    Parameters
    ----------
    path
        The testbed's `noise.json`. Without it, a sentence replaces the figure.
    """
    if not path.is_file():
        return Words(
            (
                f"The noise was not measured, because the file {path.name} is missing. The command snakemake "
                f"measures the noise.",
            )
        )
    return draw_noise(read_noise(path), campaign)


def draw_noise(found_noise: Noise, campaign: Campaign) -> Figure:
    """Return a figure of the rate of interruptions that are longer than the time on the x axis, for each CPU."""

    def draw_panel(axis: Axes, *_: int) -> None:
        for i, cpu in enumerate(found_noise.cpus):
            lengths = np.sort(cpu.gaps_us)
            rate = np.arange(len(lengths), 0, -1) / cpu.duration_s
            shape = look(i)
            axis.step(lengths, rate, where="pre", color=shape.color, label=f"CPU {cpu.cpu}")
            shown = slice(None, None, max(1, len(lengths) // MARKED_GAPS))
            (points,) = axis.plot(
                *(lengths[shown], rate[shown], shape.marker), color=shape.color, markersize=3.5
            )
            titled(
                points,
                [
                    f"CPU {cpu.cpu}: {number(per_second)} gaps per second of {in_us(us)} or longer"
                    for us, per_second in zip(lengths[shown], rate[shown], strict=True)
                ],
            )
        if any(cpu.gaps_us.size for cpu in found_noise.cpus):
            axis.set_xscale("log")
            axis.set_yscale("log")
        axis.set_ylabel("longer gaps per second")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(FuncFormatter(grouped))

    return Figure(
        identity="figure-noise",
        draw=panels([""], [""], draw_panel, "length of a gap (µs)"),
        caption="How often per second an idle CPU of the SPS is interrupted for longer than the time on the x axis.",
        reading="The noise was measured by a program that reads the clock without a pause. A gap between two "
        "readings is an interruption of this program. Both scales are logarithmic. The noise was measured only once, "
        f"so no number has an interval. The measurement started at {found_noise.started_at}, with kernel "
        f"{found_noise.kernel}.",
        seen=tuple(map(_noise_words, found_noise.cpus)),
        provenance=campaign.provenance,
    )


def _noise_words(cpu: CpuNoise) -> str:
    start = (
        f"On CPU {cpu.cpu} (observed for {cpu.duration_s:.1f} s, every {cpu.resolution_ns:.0f} ns),"
    )
    if not cpu.gaps_us.size:
        return f"{start} no gap was longer than {cpu.threshold_ns / 1000:g} µs."
    middle, slow = np.percentile(cpu.gaps_us, (50, 99))
    unlisted = f" ({cpu.gaps_unlisted} more not listed)" if cpu.gaps_unlisted else ""
    return (
        f"{start} the number of gaps longer than {cpu.threshold_ns / 1000:g} µs is "
        f"{number(cpu.gaps_us.size / cpu.duration_s)} per second{unlisted}. Together, the gaps take "
        f"{100 * cpu.lost_share:.2g} % of the time. The median gap is {number(float(middle))} µs long, the 99th "
        f"percentile is {number(float(slow))} µs, and the longest gap is {number(float(cpu.gaps_us.max()))} µs. "
        f"During the observation, the hypervisor stole {cpu.steal_s:.2f} s of CPU time."
    )


def conditions(campaign: Campaign) -> Words:
    """Return sentences about kernels, receive buffers and stolen CPU time in the runs of all studies."""
    buffers = receive_buffers(campaign.runs, "sut", "mode")
    steal = campaign.runs["steal_s"].to_numpy(float)
    return conditions_of(campaign.kernels, buffers, steal, campaign.cpu_shares)


def cost_of_the_probe(campaign: Campaign, windows: Sequence[Path]) -> Table:
    """Return a table of the proxy's CPU time per message with and without the probe, per configuration and load."""
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
        none="not measured: no run compares windows with the probe and windows without the probe (mode recording=off)",
        caption="CPU time of the proxy per message, with and without the probe.",
        reading="The CPU times with and without the probe are measured in the same runs, in alternating windows. "
        'Intervals are 95\u00a0% confidence intervals. The column "sham" compares two windows with the same '
        "probe setting, so its true value is 0.",
        provenance=campaign.provenance,
    )


def certificates(campaign: Campaign) -> Table:
    """Return a table of how closely calls arrived on schedule in the valid runs, with a row per proxy and load."""
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
                number(rate_error.max()),
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
        none="no run is valid",
        caption="Arrival certificates of the valid runs. A certificate checks that the calls of a run arrived at the "
        "times of their schedule.",
        reading="Each cell shows the smallest and the largest value of the runs at a load.",
        provenance=campaign.provenance,
    )


def _range(values: pd.Series) -> str:
    there = values.dropna()
    if not len(there):
        return NO_ENTRY
    low, high = number(float(there.min())), number(float(there.max()))
    return low if low == high else f"{low} to {high}"


def reasons(campaign: Campaign) -> Table:
    """Return a table that counts the reasons for suspect runs and for invalid attempts."""
    suspect = campaign.counted[campaign.counted["grade"] == "suspect"]["findings"]
    told = Counter(finding.rule for text in suspect for finding in findings_of(text))
    refused = Counter(cause for attempt in campaign.attempts for cause in attempt.causes)
    rows = [
        (in_general(cause), str(told[cause] or ""), str(refused[cause] or ""))
        for cause, _ in (told + refused).most_common()
    ]
    return Table(
        identity="table-reasons",
        header=("why", "suspect\u00a0runs", "invalid\u00a0attempts"),
        rows=tuple(rows),
        none="none, because no run is suspect and every attempt was valid",
        caption=f"Reasons for {plural(len(suspect), 'suspect run')} and "
        f"{plural(len(campaign.attempts), 'invalid attempt')}.",
        reading="A run may have several reasons.",
        provenance=campaign.provenance,
    )


def doubtful_runs(campaign: Campaign) -> Table:
    """Return a table of the planned runs that are suspect or not valid, with the reasons."""
    runs = campaign.runs
    suspect = (runs["status"] == MEASURED) & (runs["grade"] == "suspect")
    shown = runs.assign(status=runs["status"].where(~suspect, SUSPECT))
    shown = shown[(runs["status"] != MEASURED) | suspect]
    rows = [
        (*map(str, row[:-1]), str(row[-1]) or "no record")
        for row in shown[[*POINT, "rep", "status", "reasons"]].itertuples(index=False)
    ]
    return Table(
        identity="table-doubtful-runs",
        places=4,
        header=(*POINT, "rep", "status", "why"),
        rows=tuple(rows),
        none="none, because every planned run is valid, and no run is suspect",
        caption="Planned runs that are suspect or not valid.",
        provenance=campaign.provenance,
        shown=MAX_RUNS_LISTED,
    )
