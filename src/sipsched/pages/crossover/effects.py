"""The effects of scheduler modes: figures of the two deciding quantities, and tables of all quantities."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sipsched.analysis.advice import (
    DECIDING,
    Advice,
    Candidate,
    ModeEffect,
    Ranking,
)
from sipsched.analysis.crossover import Effect, to_percent
from sipsched.analysis.papers import PAPERS, load_comparison
from sipsched.pages.crossover.wording import (
    AA,
    IN_WORDS,
    TITLES,
    by_proxy,
    effect_cell,
    effect_words,
    identity,
    loads_name,
    looks_of,
    provenance,
    short_load,
    unit,
)
from sipsched.pages.drawing import GRID, INK, PAPER
from sipsched.pages.numbers import told
from sipsched.pages.parts import Cell, Figure, Several, Table
from sipsched.pages.plots import Look, draw_line, panels
from sipsched.plan.modes import first_start
from sipsched.records.windows import SHAM
from sipsched.words import number, plural

RANKED = (
    *("total_p99", "total_mean", "total_p50", "k_rcv_mean", "k_rcv_p99"),
    *("t_sip_mean", "t_sip_p99", "cpu_per_message", "pdr"),
)
TICKS = (-90, -75, -50, -35, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 25, 50, 100, 200, 300, 900)
"""Ticks of the axis of effects, as percentages by which a mode's value differs from the reference mode's value."""
FARTHEST = math.log(20)
"""The logarithm of the largest drawn ratio of a mode to the reference mode. Larger ratios are drawn at this value."""
COMPARED = ("baseline", "enhanced")
"""The two scheduler modes that the papers compare: the reference mode first, then the papers' proposal."""
WORDS = {
    ModeEffect.ALIKE: "within 5\u00a0%",
    ModeEffect.UNSURE: "within chance",
}
"""Verdicts in a table of modes. The texts are short, because the table has many columns."""
MEANINGS = {
    ModeEffect.ALIKE: 'The verdict "within 5\u00a0%" means that the 99th percentile and the mean of K_rcv + T_sip '
    "differ from the reference by at most 5\u00a0%. ",
    ModeEffect.UNSURE: 'The verdict "within chance" means that chance explains the differences of the 99th '
    "percentile and of the mean of K_rcv + T_sip. ",
}


def figures(comparisons: Sequence[Advice]) -> Several:
    """Draw the effect of each scheduler mode on the message time (K_rcv + T_sip), with one figure per proxy."""
    looks = looks_of(ranking.load for advice in comparisons for ranking in advice.rankings)
    return by_proxy(comparisons, lambda advice: (_figure(advice, looks),))


def _figure(advice: Advice, looks: Mapping[str, Look]) -> Figure:
    rankings = advice.rankings
    names = [AA, *ordered_modes(advice)]
    reach = [_reach(rankings, quantity) for quantity in DECIDING]

    def draw(axis: Axes, row: int, column: int) -> None:
        _draw_effects(axis, rankings[row], names, DECIDING[column], looks)
        _percent_axis(axis, *reach[column], apart=0.1)

    seen = [_words(ranking) for ranking in rankings]
    if published := printed(advice):
        seen.append(f"Published: {published}")
    reference = rankings[0].load.label(advice.place.reference)
    return Figure(
        identity=identity("figure-effects", *advice.place[1:4]),
        draw=panels(
            [short_load(ranking.load) for ranking in rankings],
            ["99th percentile", "mean"],
            draw,
            "difference (%)",
            shared=("column", "all"),
            height_in=0.4 + 0.2 * len(names),
        ),
        caption=f"The effect of each mode on the time per message (K_rcv + T_sip), compared with {reference}.",
        reading="If a mode lies left of 0, its messages take less time than with the reference. A marker is filled "
        "if the effect differs from 0 by more than chance explains. The bar is a confidence interval. With a "
        "probability of 95 %, all bars of the figure contain their true values at the same time. The first row and "
        "the grey band show the reference compared with itself (A/A). The axis is logarithmic."
        + (
            'The name "start 2" marks a second start of a proxy with equal settings. Its row shows by how much two '
            "starts differ."
            if any(first_start(name) != name for name in names)
            else ""
        ),
        seen=tuple(seen),
        provenance=provenance(ranking.load for ranking in rankings),
    )


def by_load(advice: Advice, identity: str) -> Figure:
    """Draw each mode's effect on the 99th percentile of the message time (K_rcv + T_sip), with one panel per load.

    Parameters
    ----------
    identity
        The id of the figure, for a page with several comparisons of one system.
    """
    rankings = advice.rankings
    names = [AA, *ordered_modes(advice)]
    reach = _reach(rankings, DECIDING[0])
    looks = looks_of(ranking.load for ranking in rankings)

    def draw(axis: Axes, _: int, column: int) -> None:
        _draw_effects(axis, rankings[column], names, DECIDING[0], looks)
        _percent_axis(axis, *reach, apart=0.05 * len(rankings))

    reference = rankings[0].load.label(advice.place.reference)
    return Figure(
        identity=identity,
        draw=panels(
            [""],
            [short_load(ranking.load) for ranking in rankings],
            draw,
            "difference (%)",
            shared=("all", "all"),
            height_in=0.5 + 0.19 * len(names),
        ),
        caption="The effect of each mode on the 99th percentile of the time per message (K_rcv + T_sip), compared "
        f"with {reference}, by load.",
        seen=tuple(_words(ranking) for ranking in rankings),
        provenance=provenance(ranking.load for ranking in rankings),
    )


def ordered_modes(advice: Advice) -> list[str]:
    """Return the names of the modes, ordered by their mean rank over all loads. The best mode comes first."""
    ranks: dict[str, list[int]] = {}
    for ranking in advice.rankings:
        for rank, candidate in enumerate(ranking.candidates):
            ranks.setdefault(candidate.mode, []).append(rank)
    return sorted(ranks, key=lambda mode: sum(ranks[mode]) / len(ranks[mode]))


def _effects(ranking: Ranking, quantity: str) -> dict[str, Effect]:
    """Return each mode's effect on a quantity, including the comparison of the reference mode with itself (A/A)."""
    effects = {candidate.mode: candidate.effects[quantity] for candidate in ranking.candidates}
    with_sham = {AA: ranking.sham[quantity]} | effects
    return {
        name: effect
        for name, effect in with_sham.items()
        if not math.isnan(effect.interval.estimate)
    }


def _ends(effect: Effect) -> tuple[float, float, float]:
    """Return an effect's estimate and both ends of the confidence interval, clipped to the drawn range."""
    interval = effect.interval
    ends = (interval.low, interval.high) if interval.known else (interval.estimate,) * 2
    middle, low, high = np.clip((interval.estimate, *ends), -FARTHEST, FARTHEST).tolist()
    return middle, low, high


def _reach(rankings: Sequence[Ranking], quantity: str) -> tuple[float, float]:
    """Return the lowest and the highest value on the axis of a quantity. The panels of all loads share the axis."""
    ends = [
        _ends(effect) for ranking in rankings for effect in _effects(ranking, quantity).values()
    ]
    least = math.log(1.1)
    low = min((low for _, low, _ in ends), default=-least)
    high = max((high for *_, high in ends), default=least)
    return min(low, -least / 2), max(high, least / 2)


def _draw_effects(
    axis: Axes,
    ranking: Ranking,
    names: Sequence[str],
    quantity: str,
    looks: Mapping[str, Look],
) -> None:
    axis.axvline(0, color=INK, linewidth=0.8)
    for name, effect in _effects(ranking, quantity).items():
        middle, low, high = _ends(effect)
        row = names.index(name)
        if name == AA and effect.interval.known:
            axis.axvspan(low, high, color=GRID, alpha=0.5, linewidth=0)
        look = looks[name if name != AA else ranking.load.place.reference]
        differs = effect.interval.excludes_zero
        axis.hlines(row, low, high, color=look.color, linewidth=1.3)
        label = AA if name == AA else ranking.load.label(name)
        titles = [f"{label}: {TITLES[quantity]} {effect_words(effect, quantity)}"]
        face = look.color if differs else PAPER
        draw_line(axis, [middle], [row], look, titles, markersize=5, markerfacecolor=face)
    labels = [name if name == AA else ranking.load.label(name) for name in names]
    axis.set_yticks(range(len(names)), labels)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(False, axis="y")
    axis.tick_params(left=False)
    axis.spines["left"].set_visible(False)


def spread_ticks(low: float, high: float, apart: float) -> list[int]:
    """Return the ticks, in percent, for an axis of logarithmic ratios. The tick at 0 comes first.

    Parameters
    ----------
    low, high
        The ends of the axis, as logarithms of ratios.
    apart
        Smallest distance of two ticks, as a share of the axis.
    """
    chosen: dict[int, float] = {}
    for tick in sorted(TICKS, key=lambda tick: abs(math.log1p(tick / 100))):
        at = math.log1p(tick / 100)
        far = all(abs(at - other) >= apart * (high - low) for other in chosen.values())
        if far and low <= at <= high:
            chosen[tick] = at
    return list(chosen)


def _percent_axis(axis: Axes, low: float, high: float, apart: float = 0.0) -> None:
    """Label an axis of log ratios with percentages. `apart` is the smallest distance of ticks, as in `spread_ticks`."""
    margin = 0.06 * (high - low)
    axis.set_xlim(low - margin, high + margin)
    inside = spread_ticks(low - margin, high + margin, apart)
    axis.xaxis.set_major_locator(FixedLocator([math.log1p(tick / 100) for tick in inside]))
    axis.xaxis.set_major_formatter(
        FuncFormatter(
            lambda value, _: f"{round(to_percent(value)):+d}".replace("-", "−").replace("+0", "0")
        )
    )
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(bottom=True, labelbottom=True)


def _words(ranking: Ranking) -> str:
    """Return as text which modes differ from the reference at a load, and the result of the A/A comparison.

    The A/A comparison compares the reference mode with itself, so it should show no difference beyond chance.
    """
    sham = ranking.sham[DECIDING[0]]
    text = (
        "has too few windows to be judged"
        if not sham.interval.known
        else "shows no difference beyond chance"
    )
    if ranking.floors[DECIDING[0]]:
        text = "shows a difference beyond chance"
    differ = [
        f"{ranking.load.label(candidate.mode)} changes {IN_WORDS[candidate.decided_by]} by "
        f"{effect_words(candidate.effects[candidate.decided_by], candidate.decided_by)}, which is "
        f"{verdict_words(candidate)}"
        for candidate in ranking.candidates
        if candidate.decided_by
    ]
    modes = "; ".join(differ) or "no mode differs from the reference by more than chance explains"
    return (
        f"{loads_name([ranking.load])}: {modes}. The A/A comparison {text}: {IN_WORDS[DECIDING[0]]} changes by "
        f"{effect_words(sham, DECIDING[0])}."
    )


def verdict_words(candidate: Candidate) -> str:
    """Return as text whether a mode is better or worse than the reference mode, and by which quantity."""
    if candidate.verdict is ModeEffect.TRADE:
        return f"better, but {' and '.join(TITLES[name] for name in candidate.costs)} higher"
    if candidate.decided_by == DECIDING[1]:
        return f"{candidate.verdict.value} by the mean"
    return WORDS.get(candidate.verdict, candidate.verdict.value)


def printed(advice: Advice) -> str:
    """Return the papers' published result for the same cores, threads and modes as text; empty if none is published."""
    system, (reference, other) = advice.place, COMPARED
    played = {mode for ranking in advice.rankings for mode in ranking.load.modes}
    rows = load_comparison()
    rows = rows[(rows["cores"] == system.cores) & (rows["threads"] == system.threads)]
    if system.reference != reference or other not in played or not len(rows):
        return ""
    row = rows.iloc[0]
    points = 100 * (row["pdr_enhanced"] - row["pdr_baseline"])
    return (
        f"{PAPERS[row['study']]}, Table {row['table']}, {plural(system.cores, 'core')}, "
        f"{plural(system.threads, 'thread')}, {number(row['cps'])} cps, on another machine and kernel: the mean "
        f"waiting time K_rcv was {number(row['k_rcv_lower_pct'])} % lower in enhanced mode than in baseline mode, "
        f"and the packet drop rate (PDR) was {number(abs(points))} percentage points "
        f"{'lower' if points < 0 else 'higher'}."
    )


def tables(comparisons: Sequence[Advice]) -> Several:
    """Return tables per proxy and load: all modes with all effects, ordered by the message time's 99th percentile."""
    return by_proxy(comparisons, lambda advice: tuple(map(_table, advice.rankings)))


def _table(ranking: Ranking) -> Table:
    load = ranking.load
    reference = load.place.reference
    no_drops = _no_drops(ranking)
    quantities = RANKED[:-1] if no_drops else RANKED
    absolute = [_absolute(ranking, reference, name) for name in quantities]
    sham = "differs" if sham_differs(ranking, quantities) else "as expected"
    rows: list[tuple[Cell, ...]] = [
        (load.label(reference), "reference", *absolute),
        (AA, sham, *_cells(ranking.sham, quantities)),
    ]
    rows += [
        (
            load.label(candidate.mode),
            verdict_words(candidate),
            *_cells(candidate.effects, quantities),
        )
        for candidate in ranking.candidates
    ]
    return Table(
        identity=identity("table-ranking", *load.place[1:4], load.cps),
        groups=(
            *(("", 2), ("K_rcv + T_sip (%)", 3), ("K_rcv (%)", 2), ("T_sip (%)", 2)),
            ("", len(quantities) - 7),
        ),
        header=(
            *("mode", "verdict", "p99", "mean", "p50", "mean", "p99", "mean", "p99"),
            *(f"{TITLES[name]} ({unit(name)})" for name in quantities[7:]),
        ),
        rows=tuple(rows),
        none="no window is valid",
        caption=f"{short_load(load)}: modes ordered by the 99th percentile of K_rcv + T_sip, from the lowest to the "
        f"highest.",
        reading=f"The first row shows the values of {load.label(reference)}, averaged over its windows. All other rows "
        "show by how much a mode differs from the first row. "
        + "".join(
            MEANINGS[verdict]
            for verdict in (ModeEffect.ALIKE, ModeEffect.UNSURE)
            if any(candidate.verdict is verdict for candidate in ranking.candidates)
        )
        + "No message was dropped, so PDR has no column." * no_drops,
        provenance=provenance([load]),
    )


def sham_differs(ranking: Ranking, quantities: Sequence[str] = RANKED) -> list[str]:
    """Return the names of the quantities in which the reference differs from itself (A/A) by more than chance."""
    return [name for name in quantities if ranking.sham[name].interval.excludes_zero]


def _absolute(ranking: Ranking, mode: str, quantity: str) -> Cell:
    mean = ranking.load.mean(mode, quantity)
    if quantity == "pdr":
        # A rare drop may have happened in only one of the two windows of the reference, so the cell shows their mean.
        both = [mean.estimate, ranking.load.mean(SHAM, quantity).estimate]
        known = not np.isnan(both).all()
        return f"{number(100 * float(np.nanmean(both)))}\u00a0%" if known else mean.why
    return told(mean, "µs")


def _cells(effects: Mapping[str, Effect], quantities: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(effect_cell(effects[name], name) for name in quantities)


def _no_drops(ranking: Ranking) -> bool:
    """Return whether no mode dropped a message at a load, so that a column of drop rates would contain only zeros."""
    effects = (ranking.sham, *(candidate.effects for candidate in ranking.candidates))
    reference = ranking.load.mean(ranking.load.place.reference, "pdr").estimate
    return reference == 0 and all(each["pdr"].interval.estimate == 0 for each in effects)
