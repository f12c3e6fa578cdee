"""The main answer and findings of this project's paper, and the effects of two earlier papers' settings."""

import math
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from sipsched.analysis.advice import (
    DECIDING,
    Advice,
    ComparedLoad,
    ModeEffect,
    Ranking,
)
from sipsched.analysis.papers import MODES, PAPERS, PAPERS_RUNS
from sipsched.pages import published
from sipsched.pages.capacities import carries, evidence
from sipsched.pages.crossover import effects
from sipsched.pages.crossover.answer import advised, advised_for, cautions
from sipsched.pages.crossover.setting import in_force, what
from sipsched.pages.crossover.wording import (
    IN_WORDS,
    effect_words,
    fall_words,
    reference_name,
)
from sipsched.pages.index.tiles import system_name
from sipsched.pages.numbers import NO_ENTRY
from sipsched.pages.paper.material import PAPERS_MODES, SETTINGS, VERSIONS, WORKERS, Material
from sipsched.pages.parts import Answer, Definitions, Table, Words, translated
from sipsched.pages.predicted import MODEL
from sipsched.pages.predicted import answer as predicted
from sipsched.plan.modes import PAPERS as PAPERS_SETTINGS
from sipsched.plan.modes import Counts, Setting, find_mode, load_modes, value_name
from sipsched.words import grouped, listed, listed_cores, number, plural

PARAGRAPH = "paragraphs"
"""CSS class of sentences that the page shows as paragraphs."""
NOT_MEASURED = "Not measured: no valid run of the study {} exists."
SEVERAL_CORES = Counts(cores=4, threads=8, processors=1)
"""The example with several cores in the table of the earlier papers' settings."""


def answer(material: Material) -> Answer:
    """Return the paper's answer: whether the earlier papers' settings help on this kernel, and which changes help."""
    return Answer(f"{_worth(material)} {_replacing(material)}{origin(material)}")


def origin(material: Material) -> str:
    """Return a sentence that labels the numbers as predicted if the runs are simulated; otherwise an empty text."""
    simulated = material.campaign is not None and material.campaign.provenance
    return " The numbers are predicted by a model, not measured." if simulated else ""


def _worth(material: Material) -> str:
    """Return a sentence with the number of loads at which the enhanced settings are better or worse than baseline."""
    rankings = material.rankings(PAPERS_MODES)
    enhanced = [
        candidate for r in rankings for candidate in r.candidates if candidate.mode == MODES[1]
    ]
    if not enhanced:
        return "Whether the papers' enhanced settings help on this kernel was not measured."
    better = sum(
        candidate.verdict in (ModeEffect.BETTER, ModeEffect.TRADE) for candidate in enhanced
    )
    worse = sum(candidate.verdict is ModeEffect.WORSE for candidate in enhanced)
    loads = plural(len(enhanced), "measured load")
    if not better and not worse:
        return (
            "On this kernel, the 99th percentile of the time per message with the papers' enhanced settings is "
            "indistinguishable from the percentile with their baseline settings at "
            f"{'each of ' if enhanced[1:] else ''}{loads}."
        )
    return (
        f"On this kernel, the papers' enhanced settings are better than their baseline settings at {better} of "
        f"{loads}, and worse at {worse} of these loads."
    )


def _replacing(material: Material) -> str:
    """Return a sentence on the changes that lower the 99th percentile of the time per message most.

    A change is another scheduler setting, number of workers, proxy version or memory allocator.
    """
    falls: dict[str, list[float]] = {}
    for study in (SETTINGS, WORKERS, VERSIONS):
        for ranking in material.rankings(study):
            if ranking.best:
                load, best = ranking.load, ranking.best
                name = f"{_change(load, best.mode)} instead of {reference_name(load)}"
                falls.setdefault(name, []).append(-best.effects[DECIDING[0]].interval.estimate)
    if not falls:
        return "No measured change shortens the time of the slowest messages by more than chance explains."
    changes = [f"by {_between(sizes)} with {name}" for name, sizes in falls.items()]
    return f"The 99th percentile of the time per message is lower {listed(changes)}."


def _between(falls: Sequence[float]) -> str:
    """Return the smallest and the largest decrease as text: "35 % to 49 %"."""
    return " to ".join(dict.fromkeys((fall_words(min(falls)), fall_words(max(falls)))))


def _change(load: ComparedLoad, mode: str) -> str:
    """Return the name of a mode as text, with the settings of the mode if the mode sets a scheduling policy."""
    applied = in_force(load.settings(mode))
    return f"{what(applied)} (mode {mode})" if applied.policy else load.label(mode)


def at(load: ComparedLoad) -> str:
    """Return a load as text: "740 cps (43 % of the capacity)"."""
    share = "" if load.share is None else f" ({100 * load.share:.0f}\u00a0% of the capacity)"
    return f"{grouped(load.cps)} cps{share}"


def findings(material: Material) -> Definitions:
    """Return the list of findings: each topic, such as the number of workers, with the result in a sentence or two."""
    system = material.system
    capacity = (
        f"{system_name(system)} {carries(system)} ({evidence(system)})."
        if system
        else "Not measured: no system was measured at two or more loads."
    )
    rankings = material.rankings(PAPERS_MODES)
    moved = " ".join(_moved(rankings))
    return Definitions(
        "findings",
        "",
        (
            (
                "The papers' settings",
                " ".join(filter(None, (_worth(material), _power(rankings), moved))),
            ),
            ("Policies, nice values and slices", _found(material, SETTINGS)),
            ("Number of workers", _found(material, WORKERS)),
            ("Version and memory allocator", _found(material, VERSIONS)),
            ("Capacity", capacity),
            ("Simulation", f"{MODEL}. {predicted(material.predictions).line}"),
        ),
    )


def _found(material: Material, study: str) -> str:
    """Return the recommended scheduler modes of a study (a set of runs) as text."""
    comparisons = material.advice(study)
    if not any(advice.rankings for advice in comparisons):
        return NOT_MEASURED.format(study)
    told = map(advised if len(comparisons) == 1 else advised_for, comparisons)
    return " ".join(filter(None, (*told, cautions(comparisons))))


def _power(rankings: Iterable[Ranking]) -> str:
    """Return a sentence with the decreases that the tests at all loads would probably detect. Empty if unknown."""
    falls = sorted(fall for ranking in rankings if not math.isnan(fall := ranking.detectable()))
    if not falls:
        return ""
    ends = dict.fromkeys(map(fall_words, (falls[0], falls[-1])))
    where = ", depending on the load" if len(ends) > 1 else ""
    return f"In four of five cases, the test would detect a decrease by {' to '.join(ends)}{where}."


def papers_say(material: Material) -> Words:
    """Return a paragraph with the improvements that the two earlier papers published for enhanced mode."""
    lines = ["All numbers of this paragraph are published and were not measured here."]
    lines += [
        f"{PAPERS[str(study)]}: in {plural(len(rows), 'comparison')} with {listed_cores(sorted(set(rows['cores'])))}, "
        f"enhanced mode lowers the packet drop rate (PDR) by {_range(rows['pdr_lower_pct'])} % and the mean waiting "
        f"time K_rcv by {_range(rows['k_rcv_lower_pct'])} %. Each printed number is the mean of {PAPERS_RUNS} "
        "experiments, without an interval."
        for study, rows in material.comparison.groupby("study", sort=False)
    ]
    lines.append(published.answer(material.points, material.checks, material.limit).line)
    return Words((" ".join(lines),), PARAGRAPH)


def _range(values: "pd.Series[float]") -> str:
    return f"{number(values.min())} to {number(values.max())}"


def settings(material: Material) -> Table:
    """Return a table of the papers' settings, with the file or call that applies a setting on the measured kernel."""
    advice = next(iter(material.advice(PAPERS_MODES)), None)
    load = advice.rankings[0].load if advice and advice.rankings else None
    one = Counts(1, load.place.threads if load else SEVERAL_CORES.threads, 1)
    declared = load_modes()
    columns = [
        find_mode(mode, declared).settings(counts)
        for counts in (one, SEVERAL_CORES)
        for mode in MODES
    ]
    steps = {mode: load.settings(mode) if load else [] for mode in MODES}
    rows = [
        (
            setting.key,
            *(_asked(setting, values) for values in columns),
            place_here(setting, steps) if load else "not measured",
        )
        for setting in PAPERS_SETTINGS
        if any(setting in values for values in columns)
    ]
    return Table(
        identity="table-papers-settings",
        groups=(
            ("", 1),
            *((f"{plural(c.cores, 'core')}, {c.threads} threads", 2) for c in (one, SEVERAL_CORES)),
            ("", 1),
        ),
        header=("setting (ns)", *MODES * 2, "on the measured kernel, 1 core"),
        rows=tuple(rows),
        none="no setting is declared",
        caption="The papers' settings for CFS, and their equivalents on the measured kernel.",
        reading="The values are from config/modes.yaml, which names their source. If a cell has no number, the mode "
        "does not change this setting.",
    )


def _asked(setting: Setting, values: dict[Setting, int]) -> str:
    if setting not in values:
        return NO_ENTRY
    text = value_name(setting, values[setting])
    return grouped(int(text)) if text.isdecimal() else text


def place_here(setting: Setting, steps: dict[str, list[dict[str, object]]]) -> str:
    """Return as text a setting's values and the file or call that sets them, or why the kernel lacks the setting."""
    mine = [step for of_mode in steps.values() for step in of_mode if step["setting"] == setting]
    missing = dict.fromkeys(str(step["unavailable"]) for step in mine if step["unavailable"])
    if missing:
        return "; ".join(missing)
    values = dict.fromkeys(str(step["applied"]) for step in mine)
    shown = [grouped(int(text)) if text.isdecimal() else text for text in values]
    places = dict.fromkeys(str(step["place"]) for step in mine)
    return f"{' and '.join(shown)}, by {listed([*places])}" if mine else NO_ENTRY


def compared(material: Material) -> Words:
    """Return a paragraph that compares the time per message in enhanced mode with baseline mode, at each load.

    The paragraph also names the smallest decrease that the measurement would probably detect.
    """
    rankings = material.rankings(PAPERS_MODES)
    if not rankings:
        return Words((NOT_MEASURED.format(PAPERS_MODES),), PARAGRAPH)
    names = dict.fromkeys(name for ranking in rankings for name in ranking.load.translations)
    lines = [*_percentiles(rankings), *_moved(rankings), *_printed(material.advice(PAPERS_MODES))]
    return Words((" ".join(lines) + translated(tuple(names)) + origin(material),), PARAGRAPH)


def _percentiles(rankings: Iterable[Ranking]) -> Iterator[str]:
    """Yield sentences per load and mode on the change of the 99th percentile of the time per message.

    The sentences also name the smallest decrease that the test detects in four of five cases.
    """
    for ranking in rankings:
        for candidate in ranking.candidates:
            p99, fall = candidate.effects[DECIDING[0]], ranking.detectable()
            detected = (
                ""
                if math.isnan(fall)
                else f" The test detects a decrease by {fall_words(fall)} in four of five cases."
            )
            yield (
                f"At {at(ranking.load)}, {ranking.load.label(candidate.mode)} changes the 99th percentile of the "
                f"time per message (K_rcv + T_sip) by {effect_words(p99, DECIDING[0])}, compared with "
                f"{reference_name(ranking.load)} (n = {plural(sum(p99.blocks), 'block')} in "
                f"{plural(p99.runs, 'run')}).{detected}"
            )


def _moved(rankings: Iterable[Ranking]) -> Iterator[str]:
    """Yield a sentence per load and mode, if K_rcv or T_sip differs significantly from the reference mode's."""
    for ranking in rankings:
        for candidate in ranking.candidates:
            changed = {
                name: effect
                for name in ("k_rcv_mean", "t_sip_mean")
                if (effect := candidate.effects[name]).interval.excludes_zero
            }
            if changed:
                words = [
                    f"{IN_WORDS[name]} by {effect_words(e, name)}" for name, e in changed.items()
                ]
                yield (
                    f"At {at(ranking.load)}, {ranking.load.label(candidate.mode)} changes {listed(words)}, which is "
                    "more than chance explains."
                )


def _printed(comparisons: Iterable[Advice]) -> Iterator[str]:
    for advice in comparisons:
        if text := effects.printed(advice):
            yield f"Published, not measured here: {text}"
