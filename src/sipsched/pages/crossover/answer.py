"""The answer of a page that compares scheduler modes: the recommended mode, its evidence and its cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType

import numpy as np
import xarray as xr

from sipsched.analysis.advice import (
    DECIDING,
    SQUEEZED,
    Advice,
    Candidate,
    ComparedLoad,
    ModeEffect,
    Ranking,
    is_higher,
    is_lower,
)
from sipsched.analysis.crossover import RUNS_AS_SAMPLE, Doubt, percent, to_percent
from sipsched.analysis.run_table import IN_VIRTUAL_TIME
from sipsched.pages.crossover.effects import RANKED, sham_differs
from sipsched.pages.crossover.setting import InForce, in_force, what
from sipsched.pages.crossover.wording import (
    AA,
    IN_WORDS,
    TITLES,
    effect_cell,
    effect_words,
    fall_words,
    load_among,
    loads_name,
    place_name,
    planned,
    provenance,
    reference_name,
    size_words,
)
from sipsched.pages.numbers import NO_ENTRY, with_unit
from sipsched.pages.parts import Answer, Cell, Folded, Table, Title, Words, translated
from sipsched.pages.tables import suspect_runs
from sipsched.plan.modes import DEFAULT, first_start, split_name
from sipsched.records.window_time import COUNTS
from sipsched.records.windows import LEFT_OUT
from sipsched.words import grouped, listed, listed_cores, plural

ADVICE = "advice"
"""Name of the study (a set of runs) that asks which scheduler settings an operator should use."""
PARTS = ("k_rcv_mean", "t_sip_mean")
"""The means of the two parts of K_rcv + T_sip: the wait and the service."""
COSTS = ("k_rcv_mean", "t_sip_mean", "cpu_per_message", "pdr", SQUEEZED)
MOST_NAMED = 4
QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "threads": "How many workers should {} have?",
        "cores": "How many cores should {} have?",
        "receive_buffer_bytes": "How large should the receive buffer of {} be?",
    }
)
"""Titles of pages on studies whose proxies differ in only one setting. The keys are fields of `OtherInstance`."""
NOTHING = "No recommendation: no valid run compares modes. The command `snakemake` measures the missing runs."


def title(study: str, loads: Sequence[ComparedLoad], given: str = "") -> Title:
    """Return the title of the page of a study (a set of runs). The title is the question that the study answers.

    Parameters
    ----------
    given
        The question. If empty, the question is made from the study and the modes of the study.
    """
    if given:
        return Title(given)
    if study == ADVICE:
        return Title("What replaces the papers' advice on this kernel?")
    modes = list(
        dict.fromkeys(mode for load in loads for mode in (load.place.reference, *load.modes))
    )
    if not modes:
        return Title("What do scheduler settings do to the proxy?")
    if not all(load.one_instance for load in loads):
        return _title_of_instances(loads)
    if len(modes) > MOST_NAMED:
        return Title(f"What do {len(modes)} scheduler settings (modes) do to the proxy?")
    return Title(f"What do the scheduler settings {listed(modes)} do to the proxy?")


def _title_of_instances(loads: Sequence[ComparedLoad]) -> Title:
    """Return the page title of a study that compares proxy instances with different settings, such as worker counts."""
    suts = listed(list(dict.fromkeys(load.place.sut for load in loads)))
    names = [split_name(mode) for load in loads for mode in load.modes]
    changed = _changed(loads)
    question = QUESTIONS.get(next(iter(changed), "")) if len(changed) == 1 else None
    if question and not any(rest for _, _, rest in names):
        text = question.format(suts)
        cores = sorted({load.place.cores for load in loads})
        return Title(text if "cores" in changed else f"{text[:-1]} on {listed_cores(cores)}?")
    if changed == {"sut"} and not any(rest for _, _, rest in names):
        every = list(dict.fromkeys(name for load in loads for name in _suts(load)))
        return Title(f"Which is faster: {listed(every, 'or')}?")
    labels = dict.fromkeys(load.label(mode) for load in loads for mode in load.modes)
    return Title(f"What do {listed(list(labels))} do to {suts}?")


def _suts(load: ComparedLoad) -> Iterator[str]:
    """Yield the name of each proxy that a load compares, with the reference first."""
    yield load.place.sut
    yield from (sut for mode in load.modes if (sut := split_name(mode)[1].sut))


def _changed(loads: Sequence[ComparedLoad]) -> set[str]:
    """Return the settings of the proxy that differ between the compared modes, as fields of `OtherInstance`."""
    others = [split_name(mode)[1] for load in loads for mode in load.modes]
    return {
        key.name
        for other in others
        for key in fields(other)
        if key.name != "start" and getattr(other, key.name) is not None
    }


def answer(
    comparisons: Sequence[Advice],
    summary: xr.Dataset | None = None,
    differences: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    """Return the page's answer: sentences with the recommended scheduler mode for each proxy.

    Parameters
    ----------
    summary
        The summary of the study, from which the suspect runs are counted. None: the answer counts no suspect run.
    differences
        The differences of the compared SUTs, from `setting.differences`. The answer explains the recommended SUTs.
    """
    lines = [*map(advised_for, comparisons), *filter(None, (cautions(comparisons),))]
    if summary is not None and lines:
        lines += filter(None, (suspect_runs(summary),))
    recommended = [
        split_name(ranking.best.mode)[1].sut
        for advice in comparisons
        for ranking in advice.rankings
        if ranking.best
    ]
    lines += [
        f"{sut} has {differences[sut]}."
        for sut in dict.fromkeys(recommended)
        if sut and sut in differences
    ]
    loads = [ranking.load for advice in comparisons for ranking in advice.rankings]
    names = dict.fromkeys(name for load in loads for name in load.translations)
    return Answer((" ".join(lines) or NOTHING) + translated(tuple(names)))


def advised_for(advice: Advice) -> str:
    """Return the recommended modes for a proxy as text that starts with the name of the proxy."""
    text = advised(advice)
    return f"{_system(advice)}: {text[0].lower()}{text[1:]}"


def _system(advice: Advice) -> str:
    """Return the name of a proxy, its cores and its workers as text, without the setting that the modes change."""
    changed = _changed([ranking.load for ranking in advice.rankings])
    place = advice.place
    words = {
        "sut": place.sut,
        "cores": plural(place.cores, "core"),
        "threads": plural(place.threads, "worker"),
    }
    return ", ".join(text for key, text in words.items() if changed != {key})


def advised(advice: Advice) -> str:
    """Return the recommended modes for a proxy as text. Loads with the same recommendation share one sentence."""
    if not advice.rankings:
        return NOTHING
    groups: dict[tuple[str, str], list[Ranking]] = {}
    for ranking in advice.rankings:
        groups.setdefault(_kind(ranking), []).append(ranking)
    settings_first = sorted(groups.items(), key=lambda group: group[0][0] != "set")
    return " ".join(_sentences(*group) for group in settings_first)


def cautions(comparisons: Sequence[Advice]) -> str:
    """Return the cautions about the recommendations for all proxies: on further runs, intervals and fidelity."""
    judged = [ranking for advice in comparisons for ranking in advice.rankings if ranking.judged]
    kinds = {run.attrs["kind"] for ranking in judged for run in ranking.load.runs}
    lines = []
    if any(_shown(ranking).effects[DECIDING[0]].conditional for ranking in judged):
        lines.append("Another run may have another result.")
    if kinds:
        lines.append("Numbers in brackets are 95\u00a0% intervals.")
    if "simulated" in kinds:
        lines.append("The numbers are predicted by a model, not measured.")
    elif "virtual" in kinds:
        lines.append(IN_VIRTUAL_TIME)
    return " ".join(lines)


def _kind(ranking: Ranking) -> tuple[str, str]:
    """Return the kind of recommendation at a load, and its detail.

    The kind is "set" if a mode is better than the reference, and "trade" if a mode is better only at a cost. The detail
    is then the name of this mode. The kind is "unknown" if the modes cannot be compared. The detail is then the reason.
    The kind is "alike" if all modes are nearly equal, and "none" if no mode is better. The detail is then empty.
    """
    if ranking.best:
        return "set", ranking.best.mode
    if ranking.trades:
        return "trade", ranking.trades[0].mode
    if not ranking.judged:
        return "unknown", _why_unknown(ranking)
    return ("alike" if ranking.alike else "none"), ""


def _sentences(kind: tuple[str, str], rankings: Sequence[Ranking]) -> str:
    name, detail = kind
    where = loads_name([ranking.load for ranking in rankings])
    reference = reference_name(rankings[0].load)
    if name == "unknown":
        return f"No recommendation for {where}: {detail}."
    if name == "alike":
        return (
            f"{_kept(rankings[0].load)} at {where}: with every mode, the time per message (K_rcv + T_sip) is at "
            f"most 5\u00a0% higher or lower than with {reference}. {_shifts(rankings)}{_amount(rankings)}"
        )
    if name == "none":
        return (
            f"{_kept(rankings[0].load)} at {where}: {_none_better(rankings, reference)} {_shifts(rankings)}"
            f"{_amount(rankings)}"
        )
    chosen = [_chosen(ranking) for ranking in rankings]
    label = rankings[0].load.label(detail)
    falls = " and ".join(
        f"{IN_WORDS[quantity]} by {listed(_sizes(quantity, chosen))}"
        for quantity in dict.fromkeys(candidate.decided_by for candidate in chosen if candidate)
    )
    if name == "trade":
        rises = listed(
            [
                f"{IN_WORDS[quantity]} by {listed(_sizes(quantity, chosen, costs=True))}"
                for quantity in dict.fromkeys(
                    name for candidate in chosen if candidate for name in candidate.costs
                )
            ]
        )
        return (
            f"{_kept(rankings[0].load)} at {where}: no mode is better than {reference} without a cost. The mode "
            f"{label} lowers {falls}, but raises {rises}. {_amount(rankings)}"
        )
    others: dict[str, list[str]] = {}
    for ranking in rankings:
        for candidate in ranking.candidates:
            # A further start of a proxy has the settings of its first start, so the sentence names only first starts.
            if candidate.beats and candidate.mode == first_start(candidate.mode) != detail:
                name = ranking.load.label(candidate.mode)
                others.setdefault(name, []).append(grouped(ranking.load.cps))
    too = (
        f" Other settings that are better than {reference}: "
        f"{listed([_at(name, loads, len(rankings)) for name, loads in others.items()])}."
        if others
        else ""
    )
    applied = in_force(rankings[0].load.settings(detail))
    sets = "" if applied.empty else f" ({what(applied)})"
    risks = "".join(f" Risk: {risk}" for risk in dict.fromkeys(_grave(applied)))
    return (
        f"Set {label}{sets} at {where}. This setting lowers {falls}, compared with {reference}.{too}{risks} "
        f"{_amount(rankings)}"
    )


def _grave(applied: InForce) -> Iterator[str]:
    """Yield the risks that an operator must know before the setting is used, each as one sentence."""
    yield from (caution.grave for caution in applied.cautions if caution.grave)


def _kept(load: ComparedLoad) -> str:
    """Return the recommendation to keep the reference mode, with the settings of this mode, as the start of a sentence.

    Without these settings, a reader would mistake a declared reference mode for the kernel's default.
    """
    reference = load.place.reference
    applied = in_force(load.settings(reference))
    sets = f"which sets {what(applied)}" if not applied.empty else ""
    missing = load.one_instance and DEFAULT not in (reference, *load.modes)
    default = "the kernel's default was not measured" if missing else ""
    notes = "; ".join(filter(None, (sets, default)))
    return f"Keep {reference_name(load)}" + (f" ({notes})" if notes else "")


def _shifts(rankings: Sequence[Ranking]) -> str:
    """Return a sentence on modes that shorten the wait and lengthen the service by more than chance, or the reverse.

    The sentence names only modes whose sum K_rcv + T_sip does not change by more than chance explains. The text is
    empty if no such mode exists.
    Otherwise, the text ends with a space.
    """
    lines = []
    for ranking in rankings:
        for candidate in ranking.candidates:
            effects = {name: candidate.effects[name] for name in PARTS if name in candidate.effects}
            lower = [name for name, effect in effects.items() if is_lower(effect.interval)]
            higher = [name for name, effect in effects.items() if is_higher(effect.interval)]
            same_sum = candidate.verdict in (ModeEffect.ALIKE, ModeEffect.UNSURE)
            if not (lower and higher and same_sum) or first_start(candidate.mode) != candidate.mode:
                continue
            fall, rise = (
                f"{IN_WORDS[name]} by {size_words(effects[name], name)}"
                for name in (*lower, *higher)
            )
            unequal = [
                f"{IN_WORDS[name]} by {effect_words(ranking.sham[name], name)}"
                for name in PARTS
                if ranking.sham[name].interval.excludes_zero
            ]
            lines.append(
                f"At {grouped(ranking.load.cps)} cps, {ranking.load.label(candidate.mode)} lowers {fall}, but raises "
                f"{rise}. Chance explains the change of the sum of both times."
                + (
                    f" However, two windows of the reference also differ in {listed(unequal)}."
                    if unequal
                    else ""
                )
            )
    return "".join(f"{line} " for line in lines[:MOST_NAMED])


def _at(name: str, loads: Sequence[str], of: int) -> str:
    """Return the name of a mode as text, followed by the loads (cps) at which the mode is better than the reference.

    If the mode is better at all loads, omit the loads. `of` is the number of all loads.
    """
    return name if len(loads) == of else f"{name} at {listed(loads)} cps"


def _chosen(ranking: Ranking) -> Candidate | None:
    """Return the recommended mode at a load. If none is recommended, return the best mode that helps at a cost.

    A mode that helps at a cost lowers the sum K_rcv + T_sip, but raises another quantity, such as the drop rate.
    """
    return ranking.best or next(iter(ranking.trades), None)


def _sizes(quantity: str, chosen: Sequence[Candidate | None], *, costs: bool = False) -> list[str]:
    """Return by how much the mode that was chosen at each load changes a quantity, with one text per load.

    The texts are decreases, at the loads at which this quantity decided the recommendation. If `costs` is true, the
    texts are increases, at the loads at which the chosen mode raises this quantity.
    """
    return [
        size_words(candidate.effects[quantity], quantity)
        for candidate in chosen
        if candidate
        and (quantity in candidate.costs if costs else quantity == candidate.decided_by)
    ]


def _shown(ranking: Ranking) -> Candidate:
    """Return the recommended mode at a load, or the first mode of the ranking if no mode is recommended."""
    return _chosen(ranking) or next(iter(ranking.candidates))


def _amount(rankings: Sequence[Ranking]) -> str:
    """Return the amount of evidence as a sentence: the number of blocks (one window of each mode) and of runs per load.

    If the loads have different numbers, the text states the smallest ones, as in "at least 12 blocks in 3 runs".
    """
    effects = [_shown(ranking).effects[DECIDING[0]] for ranking in rankings]
    runs, blocks = (
        min(effect.runs for effect in effects),
        min(sum(effect.blocks) for effect in effects),
    )
    least = "at least " if len({(effect.runs, effect.blocks) for effect in effects}) > 1 else ""
    of_blocks = f"{least}{plural(blocks, 'block')} (each contains every mode)"
    return f"The evidence is {of_blocks} in {plural(runs, 'run')} per load."


def _none_better(rankings: Sequence[Ranking], reference: str) -> str:
    """Return text which says that no mode is better than the reference mode, and which modes are worse.

    If known, the text includes the decrease of the 99th percentile that the test would have detected in every mode.
    """
    worse = dict.fromkeys(
        ranking.load.label(candidate.mode)
        for ranking in rankings
        for candidate in ranking.candidates
        if candidate.verdict is ModeEffect.WORSE and candidate.mode == first_start(candidate.mode)
    )
    text = (
        "no mode lowers the 99th percentile or the mean of the time per message (K_rcv + T_sip) by more than chance "
        f"explains, compared with {reference}"
    )
    if worse:
        text += f", and {listed(list(worse))} {_are(worse)} worse"
    modes = {candidate.mode for ranking in rankings for candidate in ranking.candidates}
    if len(modes) == 1:
        # For several modes, the table below the answer shows the intervals, so the text omits them.
        changes = [
            effect_words(ranking.candidates[0].effects[DECIDING[0]], DECIDING[0])
            for ranking in rankings
        ]
        label = rankings[0].load.label(next(iter(modes)))
        text += f". With {label}, the 99th percentile changes by {listed(changes)}"
    falls = [fall for ranking in rankings if not np.isnan(fall := ranking.detectable())]
    if not falls:
        return f"{text}."
    return (
        f"{text}. In every mode, the test would have detected a decrease of the 99th percentile by "
        f"{fall_words(max(falls))} or more."
    )


def _are(names: Sequence[str] | dict[str, None]) -> str:
    return "is" if len(names) == 1 else "are"


def _why_unknown(ranking: Ranking) -> str:
    """Return as text the reason why no mode can be recommended at a load."""
    load = ranking.load
    if not load.modes:
        refused = listed(list(load.unavailable))
        same = [mode for group in load.same_settings for mode in group[1:]]
        why = [f"the kernel does not accept the settings of {refused}"] if refused else []
        if same:
            verb = "have" if same[1:] else "has"
            why.append(f"{listed(same)} {verb} the same settings as {load.place.reference}")
        return f"{' and '.join(why) or 'no other mode was active'}, so nothing is compared"
    left_out = [int(code) for run in load.runs for code in run["left_out"].to_numpy()]
    if left_out and COUNTS not in left_out:
        reasons = listed([LEFT_OUT[code] for code in sorted(set(left_out))])
        return f"none of {plural(len(left_out), 'window')} is valid: {reasons}"
    blocks = max(sum(candidate.effects[DECIDING[0]].blocks) for candidate in ranking.candidates)
    if blocks < 2:
        return (
            f"the runs have {plural(blocks, 'block')} with valid windows of both modes, but an interval needs two "
            "blocks"
        )
    return ranking.candidates[0].effects[DECIDING[0]].interval.why


def recommendations(comparisons: Sequence[Advice]) -> Table:
    """Return a table of recommended modes per load, with effects and the A/A check (reference mode against itself)."""
    loads = [ranking.load for advice in comparisons for ranking in advice.rankings]
    rows = tuple(
        (load_among(ranking.load, loads), *_evidence(ranking))
        for advice in comparisons
        for ranking in advice.rankings
    )
    return Table(
        identity="table-recommendations",
        groups=(("", 2), ("effect on K_rcv + T_sip (%)", 2), (AA, 1), ("", 3)),
        header=(
            *("load", "recommendation", "p99", "mean", "p99 (%)"),
            *("smallest detectable fall", "blocks", "runs"),
        ),
        rows=rows,
        none="nothing was compared",
        caption="The recommendation for each load, and the evidence for it.",
        reading="Each row shows the effect of the recommended mode. If no mode is recommended, the row shows the "
        "mode with the lowest 99th percentile. The A/A comparison compares the reference with itself, so the effect "
        'of this comparison differs from 0 only by chance. The column "smallest detectable fall" shows the '
        "sensitivity of the test for the mode of the row. If a mode lowers the 99th percentile by this amount, the "
        "test detects this decrease in four of five cases.",
        provenance=provenance(loads),
    )


def _evidence(ranking: Ranking) -> tuple[Cell, ...]:
    shown = _chosen(ranking) or next(iter(ranking.candidates), None)
    if shown is None or not ranking.judged:
        return ("none", *(NO_ENTRY,) * 6)
    p99, mean = (shown.effects[name] for name in DECIDING)
    label = ranking.load.label(shown.mode)
    fall = p99.detectable
    return (
        f"set {label}"
        if ranking.best
        else f"keep {reference_name(ranking.load)} (the row shows {label})",
        effect_cell(p99, DECIDING[0]),
        effect_cell(mean, DECIDING[1]),
        effect_cell(ranking.sham[DECIDING[0]], DECIDING[0]),
        NO_ENTRY if np.isnan(fall) else fall_words(fall),
        str(sum(p99.blocks)),
        str(p99.runs),
    )


def consequences(comparisons: Sequence[Advice]) -> Words:
    """Return sentences on the costs of the recommended modes, and on loads where equal settings (A/A) differed."""
    return Words(tuple(line for advice in comparisons for line in _consequences(advice)))


def _consequences(advice: Advice) -> Iterator[str]:
    yield from _costs(advice)
    if advice.rankings and (shares := planned([ranking.load for ranking in advice.rankings])):
        yield shares
    for ranking in advice.rankings:
        for name in DECIDING:
            if floor := ranking.floors[name]:
                yield (
                    f"Do not trust small effects at {loads_name([ranking.load])}. In the A/A comparison, two windows "
                    f"with {reference_name(ranking.load)} differ in {IN_WORDS[name]} by "
                    f"{effect_words(ranking.sham[name], name)}. At this load, this page therefore considers only "
                    f"effects larger than {to_percent(floor):.0f}\u00a0%."
                )


def _costs(advice: Advice) -> Iterator[str]:
    for ranking in advice.rankings:
        chosen = _chosen(ranking)
        if chosen is None:
            continue
        beyond: list[str] = []
        within: list[str] = []
        for name in COSTS:
            if name in chosen.effects:
                effect = chosen.effects[name]
                differs = effect.interval.excludes_zero
                words = f"{TITLES[name]} {effect_words(effect, name)}"
                (beyond if differs else within).append(words)
        where = f"{ranking.load.label(chosen.mode)} at {loads_name([ranking.load])}"
        text = f"Other effects of {where}: {'; '.join(beyond) or 'none is larger than chance explains'}."
        yield (
            f"{text} These changes are indistinguishable from chance: {'; '.join(within)}."
            if within
            else text
        )


def starts(comparisons: Sequence[Advice]) -> Words:
    """Return sentences on how much the results change if a proxy is started again with the same settings."""
    loads = [ranking.load for advice in comparisons for ranking in advice.rankings]
    lines = []
    for load in loads:
        again = [mode for mode in load.modes if first_start(mode) != mode]
        lines += [
            f"{loads_name([load])}: if the proxy with {load.label(first_start(mode))} is started once more, "
            f"{IN_WORDS[name]} changes by {effect_words(load.start_effect(mode, name), name)}."
            for mode in again
            for name in DECIDING
        ]
        settings = dict.fromkeys(map(first_start, again))
        settings.pop(load.place.reference, None)
        for mode in settings:
            for name in (*DECIDING, "cpu_per_message"):
                effect = load.effect_of_all_starts(mode, name)
                lines.append(
                    f"{loads_name([load])}: on average over {effect.n} starts of the proxy, {load.label(mode)} "
                    f"changes {IN_WORDS[name]} by {with_unit(percent(effect), '%', '+')}. This interval includes the "
                    "differences between the starts."
                )
    return Words(tuple(lines))


def reservations(comparisons: Sequence[Advice]) -> Words:
    """Return sentences on reasons to doubt the confidence intervals, such as correlation or too few runs."""
    lines = [line for advice in comparisons for line in _reservations(advice, len(comparisons) > 1)]
    none = (
        "The data give no reason to doubt the intervals of the 99th percentile of the time per message "
        "(K_rcv + T_sip)."
    )
    return Words(tuple(lines) or (none if comparisons else NOTHING,))


def _reservations(advice: Advice, named: bool) -> Iterator[str]:
    where = f"{place_name(advice.place)}: " if named else ""
    loads_by_text: dict[str, list[ComparedLoad]] = {}
    for ranking in advice.rankings:
        if differ := sham_differs(ranking):
            words = [f"{TITLES[name]} {effect_words(ranking.sham[name], name)}" for name in differ]
            own = sum(name not in DECIDING for name in RANKED)
            text = (
                f"in the A/A comparison, two windows of the reference differ in {listed(words)}. Each of the {own} "
                "quantities that do not decide has its own interval, so a difference by chance is expected in one of "
                "20 comparisons"
            )
            loads_by_text.setdefault(text, []).append(ranking.load)
        effects = [candidate.effects[DECIDING[0]] for candidate in ranking.candidates]
        if any(effect.interval.known and effect.conditional for effect in effects):
            runs = plural(max(effect.runs for effect in effects), "run")
            text = (
                f"with {runs}, the intervals describe only the measured runs. With {RUNS_AS_SAMPLE} or more runs, the "
                "intervals would also describe further runs"
            )
            loads_by_text.setdefault(text, []).append(ranking.load)
        for doubt, text in DOUBTS.items():
            modes = [
                ranking.load.label(candidate.mode)
                for candidate in ranking.candidates
                if doubt in candidate.effects[DECIDING[0]].doubts
            ]
            if modes:
                loads_by_text.setdefault(f"{listed(modes)}: {text}", []).append(ranking.load)
    for text, loads in loads_by_text.items():
        yield f"{where}{loads_name(loads)}: {text}."


DOUBTS = {
    Doubt.FEW_BLOCKS: "the runs have fewer than 10 blocks, which is too few to show long tails or correlation",
    Doubt.FEW_CHANGED: "the modes differ in fewer than 10 blocks",
    Doubt.ONE_BLOCK: "one block causes more than half of the variance",
    Doubt.SKEWED: "the distribution of the blocks is skewed, so the interval may be too short on the side of the "
    "longer tail",
    Doubt.AUTOCORRELATED: "neighbouring blocks are correlated, so the interval was widened",
    Doubt.RUNS_DIFFER: "the runs differ from each other by more than the variance of their blocks explains",
}


def rule(comparisons: Sequence[Advice]) -> Folded:
    """Make the collapsed section that explains when a mode is recommended, with the number of comparisons."""
    tests = [
        f"{place_name(advice.place)}: {plural(advice.tests, 'comparison')}"
        for advice in comparisons
        if advice.tests
    ]
    together = (
        f" contain their true values at the same time with a probability of 95\u00a0% ({'; '.join(tests)})"
        if tests
        else " have a level of 95\u00a0%"
    )
    words = Words(
        (
            "A mode is better than the reference if it lowers the 99th percentile of K_rcv + T_sip by more than "
            "chance explains. K_rcv is a message's waiting time, and T_sip is its service time. Both times are "
            "added for each message before the percentile is computed. If the "
            "change of this percentile is indistinguishable from 0, the mean of K_rcv + T_sip decides. A better mode "
            "has a cost if it raises the drop rate (PDR), the CPU time per message or the mean of K_rcv + T_sip by "
            "more than chance explains. A rise of the CPU time per message by at most 1\u00a0% is too small to be a "
            "cost.",
            "Modes are ordered by the 99th percentile. If several modes are better, the mode that is better at the "
            f"largest number of loads is recommended. The intervals of the 99th percentile and the mean{together}. "
            "Every other interval contains its own true value with a probability of 95\u00a0%.",
            "A window is a part of a run in which one mode is active. A block contains one window of each mode, in "
            "random order. All windows of a block have the same calls. The first part of each window is the washout, "
            "which is excluded from the results.",
            f"The {AA} comparison: each block has a second window of the reference at a random position. Each mode "
            "is compared with the average of both windows of the reference. If the two windows differ by more than "
            "chance explains, only an effect that is larger than this difference is considered.",
        )
    )
    return Folded("When a mode is recommended", (words,))
