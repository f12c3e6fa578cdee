"""The answer of a page of comparisons: the advice, how to follow it, what it costs, and how far to trust it."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from sipsched.analysis.advice import (
    DECIDING,
    RUNS_AS_SAMPLE,
    SQUEEZED,
    Advice,
    Candidate,
    Load,
    Ranking,
    Verdict,
    is_conditional,
    is_higher,
    is_lower,
    settled,
)
from sipsched.analysis.crossover import Doubt, to_percent
from sipsched.pages.crossover.setting import how, in_force
from sipsched.pages.crossover.wording import (
    IN_WORDS,
    TITLES,
    effect_words,
    fall_seen,
    load_name,
    loads_name,
    lowered,
    place_name,
    raised,
    reference_name,
    short_load,
)
from sipsched.pages.parts import Answer, Title, Words, translated
from sipsched.records.window_time import COUNTS
from sipsched.records.windows import LEFT_OUT
from sipsched.words import listed, plural

ADVICE = "advice"
"""The study that asks an operator's question of today."""
COSTS = ("k_rcv_mean", "cpu_per_message", "pdr", SQUEEZED)
MOST_NAMED = 4
ORDER = ("best", "trade", "none", "alike", "unknown")
"""Of clauses in the first sentence."""
NOTHING = "No answer: no run that compares modes within itself counts yet; snakemake measures what is missing."


def title(study: str, loads: Sequence[Load], given: str = "") -> Title:
    """Ask the question of a study.

    Parameters
    ----------
    study
        Its name.
    loads
        What it compares.
    given
        The question, if it is not to be made from these.
    """
    if given:
        return Title(given)
    if study == ADVICE:
        return Title("What replaces the papers' advice on this kernel?")
    modes = list(
        dict.fromkeys(mode for load in loads for mode in (load.place.reference, *load.modes))
    )
    if not modes:
        return Title("What do the settings compared do to the proxy?")
    if len(modes) > MOST_NAMED:
        return Title(f"What do {len(modes)} scheduler settings do to the proxy?")
    return Title(f"What do {listed(modes)} settings do to the proxy?")


def answer(found: Sequence[Advice]) -> Answer:
    """Answer in a sentence: for each proxy what to set."""
    lines = [advised_for(advice) if len(found) > 1 else advised(advice) for advice in found]
    loads = [ranking.load for advice in found for ranking in advice.rankings]
    names = dict.fromkeys(name for load in loads for name in load.translations)
    return Answer((" ".join(lines) or NOTHING) + translated(tuple(names)))


def consequences(found: Sequence[Advice]) -> Words:
    """Say how the advice is followed, what it costs, and where switching itself shows."""
    return Words(tuple(line for advice in found for line in _follow(advice, len(found) > 1)))


def _follow(advice: Advice, named: bool) -> Iterator[str]:
    yield from _how(advice, named)
    yield from _costs(advice)
    yield from distrust(advice)


def advised_for(advice: Advice) -> str:
    """Give the advice in a sentence that names what it is for."""
    text = advised(advice)
    return f"{place_name(advice.place)}: {text[0].lower()}{text[1:]}"


def advised(advice: Advice) -> str:
    """Give the advice in a sentence, by load where it differs."""
    if not advice.rankings:
        return NOTHING
    kinds: dict[tuple[str, str], list[Ranking]] = {}
    for ranking in advice.rankings:
        kinds.setdefault(_kind(ranking), []).append(ranking)
    # what is to be done comes before what is not
    ordered = sorted(kinds, key=lambda kind: ORDER.index(kind[0]))
    text = "; ".join(_clause(kinds[kind]) for kind in ordered)
    return f"{text[0].upper()}{text[1:]}{_predicted(advice.rankings)}."


def _predicted(rankings: Sequence[Ranking]) -> str:
    answered = (run for each in rankings if each.judged for run in each.load.runs)
    simulated = any(run.attrs["kind"] == "simulated" for run in answered)
    return " (predicted by a model, not measured)" if simulated else ""


def _kind(ranking: Ranking) -> tuple[str, str]:
    if ranking.best:
        return "best", ranking.best.mode
    if ranking.trades:
        return "trade", ranking.trades[0].mode
    if not ranking.judged:
        return "unknown", _why_unknown(ranking)
    return ("alike" if ranking.alike else "none"), ""


def _clause(rankings: list[Ranking]) -> str:
    kind, why = _kind(rankings[0])
    loads = [ranking.load for ranking in rankings]
    at, reference = f"at {loads_name(loads)}", reference_name(loads[0])
    if kind == "unknown":
        return f"{at} there is no answer: {why}"
    if kind == "alike":
        return f"{at} nothing beats {reference}: all that was compared comes within ±\u00a05\u00a0% of it"
    if kind == "none":
        return f"{at} nothing beats {reference}{_worse(rankings)}{_seen(rankings)}"
    chosen = [ranking.best or ranking.trades[0] for ranking in rankings]
    name = loads[0].label(chosen[0].mode)
    gains = _gains(rankings, chosen)
    if kind == "trade":
        return f"{at} nothing beats {reference} without a cost: {name} lowers {gains}{_but(chosen)}"
    return f"{at} set {name} instead of {reference}: it lowers {gains}{_also(rankings)}"


def _gains(rankings: Sequence[Ranking], chosen: Sequence[Candidate]) -> str:
    """Say by how much the sum falls, for each load."""
    texts = []
    for name, several in groupby(
        zip(rankings, chosen, strict=True), key=lambda pair: pair[1].decided_by
    ):
        pairs = list(several)
        falls = [lowered(each.effects[name], name) for _, each in pairs]
        if len(rankings) > 1:
            falls = [
                f"{fall} at {short_load(ranking.load)}"
                for fall, (ranking, _) in zip(falls, pairs, strict=True)
            ]
        texts.append(f"{IN_WORDS[name]} {listed(falls)}")
    return listed(texts)


def _but(chosen: Sequence[Candidate]) -> str:
    costs = dict.fromkeys(name for each in chosen for name in each.costs)
    told = []
    for name in costs:
        rises = [raised(each.effects[name], name) for each in chosen if name in each.costs]
        told.append(f"{IN_WORDS[name]} {listed(rises)}")
    return f", and raises {listed(told)}"


def _also(rankings: Sequence[Ranking]) -> str:
    """Name the other modes that beat the reference; they are not told apart from the best here."""
    best = {ranking.best.mode for ranking in rankings if ranking.best}
    others = dict.fromkeys(
        ranking.load.label(each.mode)
        for ranking in rankings
        for each in ranking.candidates
        if each.beats and each.mode not in best
    )
    verb = "beat" if len(others) > 1 else "beats"
    return f" ({listed(list(others))} {verb} it too)" if others else ""


def _worse(rankings: Sequence[Ranking]) -> str:
    worse = dict.fromkeys(
        ranking.load.label(each.mode)
        for ranking in rankings
        for each in ranking.candidates
        if each.verdict is Verdict.WORSE
    )
    return f", and {listed(list(worse))} {'are' if len(worse) > 1 else 'is'} worse" if worse else ""


def _seen(rankings: Sequence[Ranking]) -> str:
    """Say what effect would have been seen at each of the loads."""
    falls = [fall for ranking in rankings if not np.isnan(fall := ranking.detectable())]
    if not falls:
        return ""
    return f"; a 99th percentile lower by {fall_seen(max(falls))} or more would have been seen"


def _why_unknown(ranking: Ranking) -> str:
    """Say why a load has no answer."""
    load = ranking.load
    if not load.modes:
        refused = listed(list(load.unavailable))
        same = [mode for group in load.same_settings for mode in group[1:]]
        why = [f"the kernel refuses {refused}"] if refused else []
        if same:
            verb = "come" if same[1:] else "comes"
            why.append(f"{listed(same)} {verb} to the settings of {load.place.reference}")
        return f"{' and '.join(why) or 'no other mode was played'}, so nothing is compared"
    left_out = [int(code) for run in load.runs for code in run["left_out"].to_numpy()]
    if left_out and COUNTS not in left_out:
        reasons = listed([LEFT_OUT[code] for code in sorted(set(left_out))])
        return f"none of {plural(len(left_out), 'window')} counts: {reasons}"
    blocks = max(sum(each.effects[DECIDING[0]].blocks) for each in ranking.candidates)
    if blocks < 2:
        return f"{plural(blocks, 'block')} with windows of both modes, and an interval needs two"
    return settled(ranking.candidates[0].effects[DECIDING[0]]).why


def _how(advice: Advice, named: bool) -> Iterator[str]:
    """Say how the modes advised are set; else those that would be a trade."""
    modes = advice.recommended
    if modes:
        for mode in modes:
            yield _set(advice, mode)
        return
    if any(ranking.trades for ranking in advice.rankings):
        for mode in dict.fromkeys(
            ranking.trades[0].mode for ranking in advice.rankings if ranking.trades
        ):
            yield f"{_set(advice, mode)}"
        return
    if not named and any(ranking.judged for ranking in advice.rankings):
        yield "So there is nothing to set."


def _set(advice: Advice, mode: str) -> str:
    load = next(each.load for each in advice.rankings if mode in each.load.modes)
    found = in_force(load.settings(mode))
    label = load.label(mode)
    if found.empty:
        return (
            f"Mode {label}: config/modes.yaml says what it sets; the record names no setting of it."
        )
    return f"To set {label}: {how(found, advice.place.sut)}."


def _costs(advice: Advice) -> Iterator[str]:
    """Say what the modes advised cost, load by load."""
    for ranking in advice.rankings:
        chosen = ranking.best or next(iter(ranking.trades), None)
        if chosen is None:
            continue
        told: list[str] = []
        silent: list[str] = []
        for name in COSTS:
            if name not in chosen.effects:
                continue
            interval = settled(chosen.effects[name])
            words = f"{TITLES[name]} {effect_words(chosen.effects[name], name)}"
            (told if is_higher(interval) or is_lower(interval) else silent).append(words)
        where = f"With {ranking.load.label(chosen.mode)} at {load_name(ranking.load)}"
        text = (
            f"{where} also change: {'; '.join(told)}" if told else f"{where} nothing else changes"
        )
        yield f"{text}. Within chance: {'; '.join(silent)}." if silent else f"{text}."


def distrust(advice: Advice) -> Iterator[str]:
    """Say where the reference played against itself differs: differences below that count for nothing."""
    for ranking in advice.rankings:
        for name in DECIDING:
            floor = ranking.floors[name]
            if floor:
                yield (
                    f"Not to be trusted at {load_name(ranking.load)}: "
                    f"{reference_name(ranking.load)} played against itself (A/A) changes "
                    f"{IN_WORDS[name]} by {effect_words(ranking.sham[name], name)}; a difference of less "
                    f"than {to_percent(floor):.0f}\u00a0% there counts for nothing."
                )


def reservations(found: Sequence[Advice]) -> Words:
    """Say what is seen in the data under which an interval may be too narrow, or speaks of these runs only."""
    lines = [line for advice in found for line in _reservations(advice, len(found) > 1)]
    none = "Nothing in the data speaks against the intervals of the sum's p99."
    return Words(tuple(lines) or (none,))


def _reservations(advice: Advice, named: bool) -> Iterator[str]:
    where = f"{place_name(advice.place)}: " if named else ""
    told: dict[str, list[Load]] = {}
    for ranking in advice.rankings:
        effects = [each.effects[DECIDING[0]] for each in ranking.candidates]
        if any(settled(each).known and is_conditional(each) for each in effects):
            runs = plural(max(each.runs for each in effects), "run")
            text = f"{runs}: intervals speak of these runs; {RUNS_AS_SAMPLE} or more would speak of any run like them"
            told.setdefault(text, []).append(ranking.load)
        for doubt, text in DOUBTS.items():
            modes = [
                ranking.load.label(each.mode)
                for each in ranking.candidates
                if doubt in each.effects[DECIDING[0]].doubts
            ]
            if modes:
                told.setdefault(f"{listed(modes)}: {text}", []).append(ranking.load)
    for text, loads in told.items():
        yield f"{where}{loads_name(loads)}: {text}."


DOUBTS = {
    Doubt.FEW_BLOCKS: "fewer than 10 blocks, of which tails and dependence cannot be seen",
    Doubt.FEW_CHANGED: "fewer than 10 blocks differ at all",
    Doubt.ONE_BLOCK: "one block makes more than half of the spread",
    Doubt.SKEWED: "one tail is longer; the interval is wider for it, and robust means differ from it",
    Doubt.AUTOCORRELATED: "blocks follow each other; the interval is wider for it",
    Doubt.RUNS_DIFFER: "runs differ by more than their blocks explain",
}


def rule(found: Sequence[Advice]) -> Words:
    """Say when a mode beats the reference, and over how many comparisons that holds."""
    tests = [
        f"{place_name(advice.place)}: {plural(advice.tests, 'comparison')}"
        for advice in found
        if advice.tests
    ]
    corrected = (
        f" The intervals of the sum hold together at 95\u00a0% ({'; '.join(tests)})."
        if tests
        else ""
    )
    return Words(
        (
            "A mode beats the reference where the sum K_rcv + T_sip of the same message is lower by more "
            "than chance: its 99th percentile decides, and where that is not told from 0 its mean. It "
            "does so at a cost where PDR, CPU time a message or the other of the two are higher by more than "
            f"chance. Modes are ranked by the 99th percentile of the sum.{corrected} Every other "
            "interval is one of 95\u00a0% for itself.",
            "A window is a stretch of load under one mode. A block has a window of every mode, in random order, with "
            "the same calls in each. The start of a window, the washout, is left out.",
            "A/A: after each window of the reference it is played once more, with the same switch "
            "before it. Where that shows a difference, a mode has to differ by more than the A/A may.",
        )
    )
