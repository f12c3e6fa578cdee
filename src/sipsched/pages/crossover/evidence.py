"""The evidence for a recommendation: all effects with intervals, and a check of the washout (settling time)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sipsched.analysis.advice import DECIDING, Advice, Ranking
from sipsched.analysis.crossover import Change, Doubt, Effect
from sipsched.analysis.families import SIGNIFICANT
from sipsched.pages.crossover.wording import (
    AA,
    SCALES,
    TITLES,
    effect_cell,
    fall_words,
    load_among,
    no_interval,
    provenance,
    shown,
    unit,
)
from sipsched.pages.numbers import NO_ENTRY, p_text, rounded
from sipsched.pages.parts import EMPTY, Cell, Folded, Several, Table, Words
from sipsched.records.windows import SHAM
from sipsched.words import number, plural

ESTIMATED = (
    *("total_p99", "total_mean", "k_rcv_mean", "k_rcv_p99", "t_sip_mean", "t_sip_p99"),
    *("cpu_per_message", "pdr"),
)
MOST_SHOWN = 24


def estimates(comparisons: Sequence[Advice]) -> Folded:
    """Return a folded table with one row per effect: estimate, interval, p-value, robust estimate and blocks."""
    rows: list[tuple[Cell, ...]] = []
    for name, ranking in _named(comparisons):
        arms = [(AA, ranking.sham)]
        arms += [
            (ranking.load.label(candidate.mode), candidate.effects)
            for candidate in ranking.candidates
        ]
        rows += [
            (name, TITLES[quantity], arm, *_estimate(effects[quantity], quantity))
            for quantity in ESTIMATED
            for arm, effects in arms
        ]
    header = (
        *("load", "quantity", "mode", "effect", "unit", "robust", "p", "blocks", "runs"),
        *("lag 1", "widened", "smallest detectable fall"),
    )
    table = Table(
        identity="table-estimates",
        places=2,
        header=header,
        rows=tuple(rows),
        none="nothing was compared",
        caption="Estimated effects of modes, with intervals, p-values and numbers of blocks (groups of windows).",
        reading='The effect is the mean over the blocks with its 95\u00a0% interval, and "p" is the p-value for the '
        "hypothesis of no effect. For the 99th percentile and the mean of K_rcv + T_sip, intervals and p-values are "
        'corrected for the number of modes and loads. The column "robust" shows the estimate of Hodges and Lehmann, '
        'which depends less on single blocks. The column "lag 1" shows the correlation of neighbouring blocks. '
        + (
            'If the correlation is large, the interval was widened, and the column "widened" says "yes". '
            if any(row[header.index("widened")] not in EMPTY for row in rows[:MOST_SHOWN])
            else ""
        )
        + "The last column shows the smallest decrease that the test detects in four of five cases.",
        provenance=provenance(ranking.load for _, ranking in _named(comparisons)),
        shown=MOST_SHOWN,
    )
    return Folded("Estimates with intervals and p-values", (table,))


def _named(comparisons: Sequence[Advice]) -> Iterator[tuple[str, Ranking]]:
    """Yield the name of each load as text, with the ranking of the modes at this load."""
    loads = [ranking.load for advice in comparisons for ranking in advice.rankings]
    for advice in comparisons:
        for ranking in advice.rankings:
            yield load_among(ranking.load, loads), ranking


def _estimate(effect: Effect, quantity: str) -> tuple[Cell, ...]:
    if math.isnan(effect.interval.estimate):
        return (effect.interval.why, unit(quantity), *(NO_ENTRY,) * 7)
    robust = replace(effect, interval=replace(effect.interval, estimate=effect.robust))
    return (
        effect_cell(effect, quantity),
        unit(quantity),
        NO_ENTRY
        if math.isnan(effect.robust)
        else rounded(shown(robust, quantity), unit(quantity), "+")[0],
        p_text(effect.p_value).removeprefix("p\u00a0=\u00a0").removeprefix("p\u00a0") or NO_ENTRY,
        str(sum(effect.blocks)),
        str(effect.runs),
        NO_ENTRY if math.isnan(effect.lag_one) else f"{effect.lag_one:+.2f}".replace("-", "−"),
        "yes" if Doubt.AUTOCORRELATED in effect.doubts else NO_ENTRY,
        _seen(effect, quantity),
    )


def _seen(effect: Effect, quantity: str) -> str:
    if math.isnan(effect.detectable):
        return no_interval(effect)
    if quantity in SCALES:
        return f"{number(SCALES[quantity] * effect.detectable)} {unit(quantity)} less"
    return f"{fall_words(effect.detectable)} less"


def washouts(comparisons: Sequence[Advice]) -> Several:
    """Return sentences and a table that compare effects for a normal and a doubled washout (excluded settling time)."""
    rows: list[tuple[Cell, ...]] = []
    moved = []
    for name, ranking in _named(comparisons):
        for quantity in DECIDING:
            for arm in (SHAM, *(candidate.mode for candidate in ranking.candidates)):
                tests = ranking.sham_tests if arm == SHAM else ranking.tests
                change = ranking.load.change(arm, quantity, tests)
                label = AA if arm == SHAM else ranking.load.label(arm)
                each_change = (change.first, change.second, change.moved)
                cells = [effect_cell(effect, quantity) for effect in each_change]
                rows.append((name, TITLES[quantity], label, *cells, _verdict(change)))
                if _beyond(change):
                    moved.append(f"{name}: {label}, {TITLES[quantity]}: {_verdict(change)}.")
    first, second = (_washout(comparisons, place) for place in (0, 1))
    table = Table(
        identity="table-washouts",
        header=(
            *("load", "quantity", "mode", f"washout {first} (%)", f"washout {second} (%)"),
            *("change (%)", ""),
        ),
        places=2,
        rows=tuple(rows),
        none="nothing was compared",
        caption="The effect on the time per message (K_rcv + T_sip) for the normal washout and for a washout of "
        "twice this length, and the difference of the two effects. The washout is the excluded start of each "
        "window. The last column says whether the longer washout changes the effect by more than chance explains.",
        provenance=provenance(ranking.load for _, ranking in _named(comparisons)),
        shown=MOST_SHOWN,
    )
    words = (_summary(len(rows), len(moved)), *moved)
    return Several((Words(words), Folded("Effects with two lengths of the washout", (table,))))


def _summary(estimates: int, moved: int) -> str:
    if not estimates:
        return "Two lengths of the washout cannot be compared, because nothing was measured."
    if not moved:
        return (
            f"If the washout is twice as long, none of {plural(estimates, 'estimated effect')} moves out of its "
            "95\u00a0% interval."
        )
    return (
        f"If the washout is twice as long, {moved} of {plural(estimates, 'estimated effect')} "
        f"{'moves' if moved == 1 else 'move'} out of the 95\u00a0% interval. For these effects, the washout is too "
        "short to exclude the influence of the previous window."
    )


def _washout(comparisons: Sequence[Advice], place: int) -> str:
    """Return the range of washouts (settling times) as text. `place`: 0 for the normal and 1 for the doubled one."""
    values = [
        float(run["washout"][place])
        for _, ranking in _named(comparisons)
        for run in ranking.load.runs
    ]
    if not values:
        return NO_ENTRY
    low, high = (f"{end(values):.2g}" for end in (min, max))
    return f"{low} s" if low == high else f"{low} to {high} s"


def _beyond(change: Change) -> bool:
    first, second = change.first.interval, change.second.interval
    return first.known and not first.low <= second.estimate <= first.high


def _verdict(change: Change) -> str:
    if _beyond(change):
        return "moves out of its interval"
    if not change.first.interval.known:
        return "not known"
    return "moves inside its interval" if change.moved.p_value <= SIGNIFICANT else "does not move"
