"""The upper part of the overview page: three tiles (boxes) that answer an operator's questions, and two curves."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sipsched.analysis.advice import DECIDING, Advice, Candidate, Ranking
from sipsched.analysis.capacity.estimate import interval_of
from sipsched.analysis.crossing_load import typical_drop_rates
from sipsched.analysis.crossover import RUNS_AS_SAMPLE, percent
from sipsched.analysis.intervals import FEWEST, Interval
from sipsched.analysis.message_times import LoadTimes, times_by_load
from sipsched.analysis.run_table import Campaign, Configuration, by_load, lost
from sipsched.pages.capacities import (
    apart,
    bound,
    disagreements,
    doubt,
    doubts_near,
    draw_drop_rates,
    estimate,
    evidence,
    first_shown,
    rates_below,
    systems,
)
from sipsched.pages.crossover.setting import in_force, restarted, what
from sipsched.pages.crossover.wording import fall_words, reference_name, short_load
from sipsched.pages.drawing import INK, LIMIT, SERIES, Layout, themed, titled
from sipsched.pages.numbers import in_us, with_unit
from sipsched.pages.parts import Figure, Part, Several, Tile, Tiles
from sipsched.pages.plots import Curve, load_axis, mode_look, panels
from sipsched.plan.modes import DEFAULT
from sipsched.records import histogram
from sipsched.records.study_summary import MEASURED
from sipsched.records.system_capacity import SystemCapacity
from sipsched.words import grouped, listed, plural

STRONG, FAIR = (RUNS_AS_SAMPLE, 0.1), (FEWEST, 0.25)
"""Limits for strong and fair evidence: the fewest runs, and the largest half-width relative to the estimate."""
NOT_MEASURED = "Not measured"
NO_EVIDENCE = "No evidence"
TILE = Layout(3.0, stacked=True)
LOAD, TIME, SETTING = (
    "How much load does the proxy handle?",
    "How long do the slowest 1 in 100 messages take at {}?",
    "Which scheduler setting is best?",
)
HALF = TIME.format("half of the capacity")
MOST_CURVES = 3


def graded(runs: int, half_width: float, doubts: Sequence[str] = ()) -> str:
    """Return the grade of the evidence for a number as text, such as "Strong evidence".

    Parameters
    ----------
    runs
        Number of runs and trials behind the number.
    half_width
        Half of the width of the interval, as a share of the number.
    doubts
        Reasons to doubt the number. If any reason exists, the grade is at most fair.
    """
    for name, (fewest, widest) in (("Strong evidence", STRONG), ("Fair evidence", FAIR)):
        if runs >= fewest and half_width <= widest and not (doubts and widest == STRONG[1]):
            return name
    return "Weak evidence"


def overview(
    campaigns: Sequence[Campaign],
    limit: float,
    compared: Sequence[Advice],
    pages: Collection[str],
) -> Several:
    """Return the top of the overview: three boxes (tiles) with answers per testbed, and then two figures.

    Parameters
    ----------
    campaigns
        The runs of each testbed. Testbeds with a known capacity come first.
    limit
        Packet drop rate at which capacity ends, as a share.
    """
    described = [(campaign, *main_system(campaign, limit)) for campaign in campaigns]
    described.sort(key=lambda of_testbed: of_testbed[1] is None)
    return Several(
        [
            Several(
                _of_testbed(campaign, system, times, limit, compared, pages),
                f"Testbed {campaign.testbed}" if campaigns[1:] else "",
            )
            for campaign, system, times in described
        ]
    )


def _of_testbed(
    campaign: Campaign,
    system: SystemCapacity | None,
    times: Sequence[LoadTimes],
    limit: float,
    compared: Sequence[Advice],
    pages: Collection[str],
) -> list[Part]:
    parts: list[Part] = [
        Tiles(
            (
                _load_tile(campaign, system, limit, pages),
                _time_tile(campaign, system, times, pages),
                _setting_tile(campaign, system, compared, pages),
            )
        )
    ]
    if system is not None and len(_rows(campaign, system)):
        parts.append(_drop_curve(campaign, system))
    if system is not None and times:
        parts.append(_ccdf(campaign, system, times))
    return parts


def main_system(campaign: Campaign, limit: float) -> tuple[SystemCapacity | None, list[LoadTimes]]:
    """Return the proxy configuration that all tiles (boxes) describe, and the message times at each load.

    The system is the first SUT in its first mode, with the cores and threads that have the most trials and runs.
    Systems with message times take precedence.
    """
    for sut, mode in campaign.traced[["sut", "mode"]].drop_duplicates().itertuples(index=False):
        capacities = systems(campaign.capacities, limit, sut, mode)
        capacities.sort(key=lambda system: -(system.trials + system.runs))
        for system in capacities:
            times = times_by_load(campaign.summaries, _system(system), "total")
            if times:
                return system, times
        if capacities:
            return capacities[0], []
    return None, []


def system_name(capacity: SystemCapacity) -> str:
    """Return the name of a proxy configuration as text, with its mode, cores and threads."""
    size = f"{plural(capacity.cores, 'core')}, {plural(capacity.threads, 'thread')}"
    return f"{capacity.sut}, {capacity.mode} mode, {size}"


def _system(capacity: SystemCapacity) -> Configuration:
    return Configuration(capacity.sut, capacity.mode, capacity.cores, capacity.threads)


def _rows(campaign: Campaign, capacity: SystemCapacity) -> pd.DataFrame:
    """Return the table rows of the valid runs of a proxy configuration."""
    runs = campaign.single
    for name, value in _system(capacity)._asdict().items():
        runs = runs[runs[name] == value]
    return runs


def _trust(campaign: Campaign, *sentences: str) -> str:
    """Join sentences about the evidence into one text. If the numbers are simulated, the text begins with a label."""
    origin = campaign.provenance and f"{campaign.provenance.rstrip('.')}."
    return " ".join(filter(None, (origin, *sentences)))


def _unknown(question: str, meaning: str) -> Tile:
    return Tile(question, NOT_MEASURED, meaning, NO_EVIDENCE)


def _load_tile(
    campaign: Campaign, system: SystemCapacity | None, limit: float, pages: Collection[str]
) -> Tile:
    """Make the tile (box) with the capacity of the main proxy configuration."""
    if system is None:
        return _unknown(
            LOAD,
            "No system was measured at two or more loads. The command `snakemake` measures the missing runs.",
        )
    interval, share = interval_of(system), f"{100 * limit:g}\u00a0%"
    known = system.estimate_cps is not None
    most = systems(campaign.capacities, limit, system.sut, system.mode)[0]
    among = (
        f" {plural(most.cores, 'core').capitalize()} and {plural(most.threads, 'thread')} handle more: "
        f"{with_unit(interval_of(most), 'cps')}. {apart(system, most)}".rstrip()
        if most is not system
        else ""
    )
    beyond = (
        f"With more load, the proxy drops over {share} of its messages."
        if known
        else f"{doubt(system)}"
    )
    doubts = doubts_near(_rows(campaign, system), system)
    return Tile(
        question=LOAD,
        value=with_unit(interval, "calls per second")
        if known
        else f"{bound(system)} calls per second",
        meaning=f"{system_name(system)}. {beyond}{among}",
        grade=graded(interval.n, _half_width(interval), doubts) if known else "A bound only",
        trust=_trust(
            campaign,
            f"The capacity is estimated from {evidence(system)}. The 95\u00a0% interval in brackets is the capacity "
            f"±{100 * _half_width(interval):.0f}\u00a0%."
            if known
            else f"The lower or upper bound of the capacity comes from {evidence(system)}.",
            *doubts,
            _calls(campaign),
        ),
        link=_page(campaign, pages, lambda ds: _loads_measured(ds, system)),
        link_text="Every load and every run",
        figure=_load_strip(campaign, system),
    )


def _half_width(interval: Interval) -> float:
    """Return half of a confidence interval's width, divided by the estimate. Infinite if no interval exists."""
    return (interval.high - interval.low) / 2 / interval.estimate if interval.known else np.inf


def _calls(campaign: Campaign) -> str:
    """Return a sentence on the length of test calls, so that no reader mistakes the capacity for a production limit."""
    load = campaign.load
    if not {"ring_time_ms", "hold_time_ms"} <= set(load):
        return ""
    return (
        f"Test calls ring for {load['ring_time_ms']:g} ms and last {load['hold_time_ms']:g} ms, so the capacity for "
        "longer calls may differ. The capacity is not a limit for production."
    )


def _strip(identity: str, draw_axis: Callable[[Axes], None], x_label: str, caption: str) -> Figure:
    """Make the small figure of a tile (box), from a function that draws the content of the axes."""

    def draw(_: Layout) -> str:
        canvas, grid = TILE.panels(1, 1, 1.15, above_in=0.3)
        draw_axis(grid[0, 0])
        grid[0, 0].set_xlabel(x_label)
        return themed(canvas)

    return Figure(identity, draw, caption)


def _load_strip(campaign: Campaign, system: SystemCapacity) -> Figure:
    """Draw the measured loads on a line, and the capacity above the line."""
    rows = _rows(campaign, system)
    curve = _drop_rates(rows, system)
    above = curve.of.estimate > 100 * system.limit

    def draw(axis: Axes) -> None:
        for chosen, color, marker in ((~above, SERIES[0], "o"), (above, LIMIT, "X")):
            (points,) = axis.plot(
                curve.x[chosen], np.zeros(int(chosen.sum())), marker, color=color, markersize=5
            )
            titled(points, [f"{grouped(cps)} cps" for cps in curve.x[chosen]])
        interval = interval_of(system)
        if system.estimate_cps is not None:
            axis.plot([interval.low, interval.high], [1, 1], color=INK, alpha=0.3, linewidth=6)
            if interval.resolved:
                axis.plot(
                    [interval.estimate], [1], "|", color=INK, markersize=14, markeredgewidth=2
                )
        axis.set_ylim(-0.7, 1.7)
        axis.set_yticks([0, 1], ["loads", "capacity"])
        axis.set_xlim(0, 1.08 * max(system.highest_cps, system.high_cps or 0))
        axis.locator_params(axis="x", nbins=4)
        axis.xaxis.set_major_formatter(FuncFormatter(grouped))

    return _strip(
        f"figure-tile-load-{campaign.testbed}",
        draw,
        "calls per second",
        "The capacity with its 95 % interval, and the measured loads"
        + (f" (crosses: over {100 * system.limit:g} % dropped)." if above.any() else "."),
    )


def _drop_rates(rows: pd.DataFrame, system: SystemCapacity) -> Curve:
    """Return the curve of the typical drop rate against the load, for one proxy configuration."""
    table = by_load(rows.assign(lost=100 * lost(rows)), ["lost"])["lost"]
    runs = table.transpose("cps", "rep").to_numpy().astype(float)
    return Curve(
        name=f"{plural(system.cores, 'core')}, {plural(system.threads, 'thread')}",
        look=mode_look(system.mode),
        x=table["cps"].to_numpy().astype(float),
        of=typical_drop_rates(runs, 100 * system.limit, whole=100.0),
        runs=runs,
        unit="%",
    )


def _time_tile(
    campaign: Campaign,
    system: SystemCapacity | None,
    times: Sequence[LoadTimes],
    pages: Collection[str],
) -> Tile:
    """Make the tile (box) with the 99th percentile of message times, at the load nearest to half of the capacity."""
    if system is None:
        return _unknown(HALF, "The capacity is unknown, so half of the capacity is unknown too.")
    if not times:
        return _unknown(
            HALF, f"The probe recorded no message times of {system.sut} in {system.mode} mode."
        )
    if system.estimate_cps is None and system.dropped:
        return _unknown(
            HALF, f"At every offered load, the proxy drops more than {100 * system.limit:g}\u00a0%."
        )
    here = _nearest(times, 0.5 * _whole(system))
    rows = _rows(campaign, system)
    waits = rows.loc[rows["cps"] == here.cps, "k_rcv_p99"].dropna().to_numpy(float)
    spread = (waits.max() - waits.min()) / 2 / np.median(waits) if len(waits) > 1 else np.inf
    spread_words = (
        f"In single runs, the 99th percentile of the wait K_rcv is {in_us(waits.min())} to {in_us(waits.max())}."
        if np.isfinite(spread)
        else "Another run may have another result."
    )
    return Tile(
        question=TIME.format(_share(here.cps, system, "the")),
        value=f"{in_us(here.quantile_us(0.99))} or longer",
        meaning=f"{system_name(system)}. The load is {grouped(here.cps)} calls per second, the measured load that is "
        f"nearest to half of {_whole_words(system, 'the')}. The time of a message runs from its arrival at the "
        "network driver until the proxy sends the message on (K_rcv + T_sip).",
        grade=graded(here.runs, spread),
        trust=_trust(
            campaign,
            f"The 99th percentile is computed from {plural(here.runs, 'run')} with {grouped(here.counts.sum())} "
            f"messages. {spread_words}",
        ),
        link=_page(campaign, pages, lambda ds: _loads_measured(ds, system, here.cps))
        or f"#{_ccdf_identity(campaign)}",
        link_text="Times at several loads",
        figure=_time_strip(campaign, here),
    )


def _whole(capacity: SystemCapacity) -> float:
    """Return the load that counts as 100 %: the capacity, the lower end of its interval, or the highest load."""
    interval = interval_of(capacity)
    if not interval.known:
        return capacity.highest_cps
    return interval.estimate if interval.resolved else interval.low


def _whole_words(capacity: SystemCapacity, article: str) -> str:
    """Return the name of the load that counts as 100 %, such as "its capacity". `article` is "its" or "the"."""
    interval = interval_of(capacity)
    if not interval.known:
        return "the highest offered load"
    return f"{article} capacity" if interval.resolved else f"the lower end of {article} capacity"


def _share(cps: float, capacity: SystemCapacity, article: str = "its") -> str:
    """Return a load as text in percent, such as "56 % of its capacity"."""
    return f"{100 * cps / _whole(capacity):.0f}\u00a0% of {_whole_words(capacity, article)}"


def _nearest(times: Sequence[LoadTimes], cps: float) -> LoadTimes:
    return min(times, key=lambda load_times: abs(load_times.cps - cps))


def _time_strip(campaign: Campaign, times: LoadTimes) -> Figure:
    """Draw the median, the 99th and the 99.9th percentile of the message time, with one row per percentile."""
    named = {"median": 0.5, "99 %": 0.99, "99.9 %": 0.999}
    values = [times.quantile_us(share) for share in named.values()]

    def draw(axis: Axes) -> None:
        (points,) = axis.plot(values, range(len(named)), "o", color=SERIES[0])
        titled(points, [f"{name}: {in_us(us)}" for name, us in zip(named, values, strict=True)])
        for i, us in enumerate(values):
            axis.annotate(in_us(us), (us, i), (6, 0), textcoords="offset points", va="center")
        axis.set_xscale("log")
        axis.set_xlim(0.5 * values[0], 6 * values[-1])
        axis.set_ylim(-0.6, len(named) - 0.4)
        axis.set_yticks(range(len(named)), list(named))
        _log_ticks(axis)

    return _strip(
        f"figure-tile-time-{campaign.testbed}",
        draw,
        "time (µs)",
        f"The times within which half, 99 % and 99.9 % of the messages are served, at {grouped(times.cps)} cps.",
    )


def _log_ticks(axis: Axes) -> None:
    """Label at most five decades of a logarithmic x axis."""
    axis.xaxis.set_major_locator(LogLocator(numticks=5))
    axis.xaxis.set_major_formatter(FuncFormatter(grouped))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _setting_tile(
    campaign: Campaign,
    system: SystemCapacity | None,
    compared: Sequence[Advice],
    pages: Collection[str],
) -> Tile:
    """Make the tile (box) with the setting that outperforms the default mode, if such a setting exists."""
    here = [comparison for comparison in compared if comparison.place.testbed == campaign.testbed]
    if not here:
        return _unknown(
            SETTING,
            "No valid run compares settings. The command `snakemake` measures the missing runs.",
        )
    advice = min(here, key=lambda comparison: _foreignness(comparison, system))
    judged = [ranking for ranking in advice.rankings if ranking.judged]
    reference_system = advice.place
    size = f"{plural(reference_system.cores, 'core')}, {plural(reference_system.threads, 'thread')}"
    of_what = f"{reference_system.sut}, {size}."
    if not judged:
        return Tile(
            SETTING,
            "No answer yet",
            f"{of_what} Too few windows of the compared settings are valid to compute an interval.",
            NO_EVIDENCE,
        )
    reference = reference_name(judged[0].load)
    labels = dict.fromkeys(
        ranking.load.label(ranking.best.mode) for ranking in judged if ranking.best
    )
    shown = [(ranking, _shown_candidate(ranking)) for ranking in judged]
    doubts = _comparison_doubts(advice, shown)
    effects = [candidate.effects[DECIDING[0]] for _, candidate in shown]
    runs = min(effect.runs for effect in effects)
    width = max(_half_percent(effect.interval) for effect in effects)
    blocks = sum(sum(effect.blocks) for effect in effects)
    settings = {
        ranking.load.label(ranking.best.mode): what(
            in_force(ranking.load.settings(ranking.best.mode))
        )
        for ranking in judged
        if ranking.best and not restarted(ranking.best.mode, advice.place.sut)
    }
    means = "".join(f" {label} sets {words}." for label, words in settings.items())
    return Tile(
        question=SETTING,
        value=listed(tuple(labels), "or") if labels else f"Keep {reference}",
        meaning=f"{of_what}{means} The numbers below are changes of the 99th percentile of the time per message "
        f"(K_rcv + T_sip), compared with {reference}. Numbers in brackets are 95\u00a0% intervals. "
        f"{' '.join(map(_of_load, judged))}",
        grade=graded(runs, width / 100, doubts),
        trust=_trust(
            campaign,
            f"The evidence is {plural(runs, 'run')} per comparison, with {plural(blocks, 'block')} (each contains "
            f"every compared setting) at {plural(len(judged), 'load')}.",
            *doubts,
        ),
        link=_page(campaign, pages, lambda ds: _runs_that_compare(ds, advice)),
        link_text="The evidence, the risks, and how to set it",
        figure=_effect_strip(campaign, shown, reference),
    )


def _foreignness(advice: Advice, system: SystemCapacity | None) -> tuple[bool, bool, bool]:
    """Return a sort key that puts comparisons with the default mode first, then comparisons of the tiles' proxy."""
    reference_system = advice.place
    other_sut = system is None or reference_system.sut != system.sut
    other_size = system is None or (reference_system.cores, reference_system.threads) != (
        system.cores,
        system.threads,
    )
    return reference_system.reference != DEFAULT, other_sut, other_size


def _shown_candidate(ranking: Ranking) -> Candidate:
    """Return the best mode at a load. If no mode is best, return the mode with the lowest 99th percentile."""
    known = [
        candidate
        for candidate in ranking.candidates
        if candidate.effects[DECIDING[0]].interval.known
    ]
    return ranking.best or (known or ranking.candidates)[0]


def _half_percent(interval: Interval) -> float:
    shown = percent(interval)
    return (shown.high - shown.low) / 2 if shown.known else np.inf


def _of_load(ranking: Ranking) -> str:
    """Return a short sentence on the best setting at a load, and on how it changes the 99th percentile of times."""
    at = f"At {short_load(ranking.load)}:"
    if ranking.best:
        decisive = ranking.best.decided_by
        change = with_unit(percent(ranking.best.effects[decisive].interval), "%", "+")
        by = "" if decisive == DECIDING[0] else " in the mean"
        return f"{at} {ranking.load.label(ranking.best.mode)} {change}{by}."
    if ranking.trades:
        return (
            f"{at} with {ranking.load.label(ranking.trades[0].mode)}, messages take less time, but another quantity "
            "becomes worse."
        )
    if ranking.alike:
        return f"{at} every setting changes the 99th percentile by at most 5\u00a0%."
    fall = ranking.detectable()
    missed = (
        "" if np.isnan(fall) else f" (the test can miss a decrease of less than {fall_words(fall)})"
    )
    return f"{at} the change is indistinguishable from chance with every setting{missed}."


def _comparison_doubts(
    advice: Advice, shown: Sequence[tuple[Ranking, Candidate]]
) -> tuple[str, ...]:
    """Return sentences with the reasons to doubt a comparison of settings, such as too few runs."""
    effects = [candidate.effects[DECIDING[0]] for _, candidate in shown]
    loads = [short_load(ranking.load) for ranking in advice.rankings if ranking.floors[DECIDING[0]]]
    flagged = sum(bool(effect.doubts) for effect in effects)
    return tuple(
        filter(
            None,
            (
                "Another run may have another result."
                if any(effect.conditional for effect in effects)
                else "",
                f"At {listed(loads)}, two windows with {reference_name(shown[0][0].load)} differ by more than chance "
                "explains (A/A comparison)."
                if loads
                else "",
                f"At {plural(flagged, 'load')}, the data contradict an assumption with which the interval is computed."
                if flagged
                else "",
            ),
        )
    )


def _effect_strip(
    campaign: Campaign, shown: Sequence[tuple[Ranking, Candidate]], reference: str
) -> Figure:
    """Draw the change of the message time's 99th percentile at each load, with the confidence interval."""
    changes = [percent(candidate.effects[DECIDING[0]].interval) for _, candidate in shown]
    names = [
        f"{ranking.load.label(candidate.mode)}, {grouped(ranking.load.cps)}"
        for ranking, candidate in shown
    ]

    def draw(axis: Axes) -> None:
        axis.axvline(0, color=INK, linewidth=1)
        for i, (pair, change) in enumerate(zip(shown, changes, strict=True)):
            color = mode_look(pair[1].mode).color
            if change.known:
                axis.plot([change.low, change.high], [-i, -i], color=color, linewidth=2)
            (point,) = axis.plot([change.estimate], [-i], "o", color=color)
            titled(point, [f"{names[i]} cps: {with_unit(change, '%', '+')}"])
        axis.set_xlim(-100, 100)
        axis.set_ylim(0.5 - len(shown), 0.5)
        axis.set_yticks([-i for i in range(len(shown))], names)

    return _strip(
        f"figure-tile-setting-{campaign.testbed}",
        draw,
        "change (%)",
        f"Change of the 99th percentile of the time per message, compared with {reference}, with intervals, for each "
        "setting and load in cps.",
    )


def _page(campaign: Campaign, pages: Collection[str], weight: Callable[[xr.Dataset], int]) -> str:
    """Return the file name of the page with the largest `weight` (amount of evidence). Empty if no page exists."""
    candidates = [
        (weight(ds), name)
        for study, ds in zip(campaign.studies, campaign.summaries, strict=True)
        for name in (f"{study}-{campaign.testbed}.html", f"{study}.html")
        if name in pages
    ]
    most, name = max(candidates, default=(0, ""), key=lambda pair: pair[0])
    return name if most else ""


def _loads_measured(
    summary: xr.Dataset, capacity: SystemCapacity, needed_cps: float | None = None
) -> int:
    """Return the number of loads at which a study (a set of runs) measured a proxy configuration.

    If the study did not measure the load `needed_cps`, return 0.
    """
    at = _system(capacity)._asdict()
    if any(value not in summary[name].to_numpy() for name, value in at.items()):
        return 0
    measured = (summary["status"].sel(at) == MEASURED).any("rep")
    if needed_cps is not None and not measured.where(summary["cps"] == needed_cps, False).any():
        return 0
    return int(measured.sum())


def _runs_that_compare(summary: xr.Dataset, advice: Advice) -> int:
    """Return the number of runs in a study that belong to a comparison of modes."""
    modes = {run.attrs["mode"] for ranking in advice.rankings for run in ranking.load.runs}
    there = [mode for mode in summary["mode"].to_numpy().tolist() if mode in modes]
    return int((summary["status"].sel(mode=there) == MEASURED).sum())


def _drop_curve(campaign: Campaign, system: SystemCapacity) -> Figure:
    """Draw the drop rate of the main proxy configuration against the load."""
    curve = _drop_rates(_rows(campaign, system), system)
    near = first_shown(curve.x, curve.of.estimate[None], [system])
    loads = curve.x[near:]
    limit = 100 * system.limit
    dropping = curve.of.estimate > limit
    first = np.flatnonzero(dropping)
    seen = (
        f"{grouped(curve.x[first[0]])} cps is the lowest measured load at which the typical run drops more than "
        f"{limit:g} %."
        if first.size
        else rates_below(curve, system, system.limit)
    )
    return Figure(
        identity=f"figure-overview-pdr-{campaign.testbed}",
        draw=panels(
            [""],
            [""],
            lambda axis, *_: draw_drop_rates(axis, curve, system, system.limit),
            "offered load (cps)",
            prepare=lambda axis, width_in: load_axis(axis, loads, width_in),
        ),
        caption=f"Packet drop rate (PDR) of {system_name(system)} against offered load.",
        seen=(seen, *disagreements(system)),
        reading="Each small point is a run. The line joins the typical run of each load. The dashed line marks a drop "
        f"rate of {limit:g}\u00a0%, at which the capacity is reached. The band on the dashed line is the "
        f"interval of the capacity, and the tick in the band is the capacity of {estimate(system)} cps. Lower "
        "loads without drops are not shown.",
        provenance=campaign.provenance,
    )


def _ccdf_identity(campaign: Campaign) -> str:
    return f"figure-overview-ccdf-{campaign.testbed}"


def _ccdf(campaign: Campaign, system: SystemCapacity, times: Sequence[LoadTimes]) -> Figure:
    """Draw the share of messages that take longer than a given time, at up to three loads."""
    chosen = {
        near.cps: near
        for near in (_nearest(times, part * _whole(system)) for part in (0.5, 0.8, 1))
    }
    curves = sorted(chosen.values())[-MOST_CURVES:]
    at_us = histogram.UPPER_NS / 1000

    def draw_panel(axis: Axes, *_: int) -> None:
        for load_times, color in zip(curves, SERIES, strict=False):
            shares = load_times.exceedance
            part = (shares > 0.5 / load_times.counts.sum()) & (shares < 1)
            name = f"{grouped(load_times.cps)} cps"
            axis.plot(at_us[part], shares[part], color=color, label=name)
            slow = load_times.quantile_us(0.99)
            (point,) = axis.plot([slow], [0.01], "o", color=color)
            titled(point, [f"{name}: 1 in 100 messages takes {in_us(slow)} or longer"])
        axis.set_xscale("log")
        axis.set_yscale("log")
        _log_ticks(axis)
        axis.set_ylabel("share that takes longer")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))

    return Figure(
        identity=_ccdf_identity(campaign),
        draw=panels([""], [""], draw_panel, "K_rcv + T_sip (µs)", height_in=2.8),
        caption=f"Share of the messages of {system_name(system)} that take longer than the time on the x axis (CCDF), "
        f"for each load.",
        seen=tuple(
            f"At {grouped(load_times.cps)} cps ({_share(load_times.cps, system)}), 1 in 100 messages takes "
            f"{in_us(load_times.quantile_us(0.99))} or longer, over {plural(load_times.runs, 'run')}."
            for load_times in curves
        ),
        reading="A point marks the 99th percentile. Both axes are logarithmic. Each line shows the messages of all "
        "runs at a load. The proxy never receives refused datagrams, so the figure excludes them.",
        provenance=campaign.provenance,
    )
