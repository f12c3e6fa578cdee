"""What the advice rests on: every estimate with its interval, two washouts, the runs' own spread."""

import math
from collections.abc import Sequence

from sipsched.analysis.advice import (
    DECIDING,
    Advice,
    Ranking,
    detectable,
    settled,
)
from sipsched.analysis.crossover import Change, Doubt, Effect
from sipsched.pages.crossover.forest import AA
from sipsched.pages.crossover.wording import (
    SCALES,
    TITLES,
    effect_cell,
    no_interval,
    place_apart,
    provenance,
    short_load,
    shown,
    unit,
)
from sipsched.pages.numbers import NO_ENTRY, p_text, rounded
from sipsched.pages.parts import Cell, Several, Table, Words
from sipsched.records.windows import SHAM
from sipsched.words import plural

ESTIMATED = (
    *("total_p99", "total_mean", "k_rcv_mean", "k_rcv_p99", "t_sip_mean", "t_sip_p99"),
    *("cpu_per_message", "pdr"),
)
MOST_SHOWN = 24


def _name(found: Sequence[Advice], advice: Advice, ranking: Ranking) -> str:
    places = [each.place for each in found]
    return f"{place_apart(advice.place, places)}{short_load(ranking.load)}"


def estimates(found: Sequence[Advice]) -> Table:
    """Show every estimate: mean and interval, robust estimate, test by randomisation, what stands behind it."""
    rows: list[tuple[Cell, ...]] = []
    for advice in found:
        for ranking in advice.rankings:
            arms = [(AA, ranking.sham)]
            arms += [(ranking.load.label(each.mode), each.effects) for each in ranking.candidates]
            for quantity in ESTIMATED:
                for name, effects in arms:
                    row = _estimate(effects[quantity], quantity)
                    rows.append((_name(found, advice, ranking), TITLES[quantity], name, *row))
    return Table(
        identity="table-estimates",
        places=2,
        header=(
            *("load", "quantity", "mode", "effect", "in", "robust"),
            *(
                "randomisation p",
                "blocks",
                "runs",
                "lag\u00a01",
                "paid for",
                "would have been seen",
            ),
        ),
        rows=tuple(rows),
        none="nothing was compared",
        caption="Every estimate: mean over blocks with its 95 % interval (of the sum's p99 and mean for all modes and "
        "loads together), Hodges and Lehmann's robust one, the test that redraws the order within each "
        "block, how blocks follow each other (lag 1; paid for: the interval is wider for it), and the smallest "
        "effect that would have been seen with a power of 80 %.",
        provenance=provenance([each.load for advice in found for each in advice.rankings]),
        shown=MOST_SHOWN,
    )


def _estimate(effect: Effect, quantity: str) -> tuple[Cell, ...]:
    interval = shown(effect, quantity)
    if math.isnan(interval.estimate):
        return (settled(effect).why, unit(quantity), *(NO_ENTRY,) * 7)
    robust = shown(effect, quantity, effect.robust)
    lags = effect.autocorrelation.lags
    return (
        *(effect_cell(effect, quantity), unit(quantity)),
        NO_ENTRY if math.isnan(robust.estimate) else rounded(robust, unit(quantity), "+")[0],
        p_text(effect.p_randomisation).removeprefix("p\u00a0=\u00a0").removeprefix("p\u00a0")
        or NO_ENTRY,
        str(sum(effect.blocks)),
        str(effect.runs),
        f"{lags[0]:+.2f}".replace("-", "−") if lags.size else NO_ENTRY,
        "yes" if Doubt.AUTOCORRELATED in effect.doubts else NO_ENTRY,
        _seen(effect, quantity),
    )


def _seen(effect: Effect, quantity: str) -> str:
    smallest = detectable(effect)
    if math.isnan(smallest):
        return no_interval(effect)
    if quantity in SCALES:
        return f"{SCALES[quantity] * smallest:.2g} {unit(quantity)}"
    return f"{100 * math.expm1(smallest):.2g} %"


def washouts(found: Sequence[Advice]) -> Several:
    """Show the sum under two washouts, side by side, and say whether the estimate moves."""
    rows: list[tuple[Cell, ...]] = []
    moved = []
    for advice in found:
        for ranking in advice.rankings:
            for quantity in DECIDING:
                for arm in (SHAM, *(each.mode for each in ranking.candidates)):
                    change = ranking.load.change(arm, quantity, ranking.level)
                    label = AA if arm == SHAM else ranking.load.label(arm)
                    name = _name(found, advice, ranking)
                    said = _moves(change)
                    cells = [
                        effect_cell(each, quantity)
                        for each in (change.first, change.second, change.moved)
                    ]
                    rows.append((name, TITLES[quantity], label, *cells, said))
                    if _beyond(change):
                        moved.append(f"{name}: {label}, {TITLES[quantity]}: {said}.")
    if not rows:
        words = "Washouts are not compared: nothing was measured."
    elif moved:
        words = (
            f"Of {plural(len(rows), 'estimate')}, {len(moved)} {'moves' if len(moved) == 1 else 'move'} by more "
            "than the interval when twice as much is left out at the start of each window: there windows "
            "are too short for what is carried over."
        )
    else:
        words = (
            f"None of {plural(len(rows), 'estimate')} moves by more than its interval when twice as much is left "
            "out at the start of each window."
        )
    spans = [
        run["washout"].to_numpy()
        for advice in found
        for ranking in advice.rankings
        for run in ranking.load.runs
    ]
    first, second = (
        _span([float(washout[place]) for washout in spans]) if spans else NO_ENTRY
        for place in (0, 1)
    )
    table = Table(
        identity="table-washouts",
        header=(
            "load",
            "quantity",
            "mode",
            f"washout {first} (%)",
            f"washout {second} (%)",
            "moved by",
            "",
        ),
        places=2,
        rows=tuple(rows),
        none="nothing was compared",
        caption="The effect on the sum with what is left out at the start of each window, and with twice that; the "
        "movement is that of the same blocks.",
        provenance=provenance([each.load for advice in found for each in advice.rankings]),
        shown=MOST_SHOWN,
    )
    return Several((Words((words, *moved)), table))


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2g} s" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g} s"


def _beyond(change: Change) -> bool:
    first, second = settled(change.first), settled(change.second)
    return first.known and not first.low <= second.estimate <= first.high


def _moves(change: Change) -> str:
    if _beyond(change):
        return "moves by more than the interval"
    if not settled(change.first).known:
        return "not known"
    moved = settled(change.moved)
    if moved.known and not moved.low <= 0 <= moved.high:
        return "moves, within the interval"
    return "does not move"
