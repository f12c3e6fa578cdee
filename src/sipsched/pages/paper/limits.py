"""The paper's method in numbers, its threats to validity, and the questions that it leaves open."""

import math
from collections.abc import Iterator

from sipsched.analysis.advice import DECIDING
from sipsched.analysis.intervals import Interval
from sipsched.pages import tables
from sipsched.pages.crossover import windows
from sipsched.pages.crossover.wording import effect_words, fall_words
from sipsched.pages.index.campaigns import counting, diagram, probing, software, when
from sipsched.pages.paper.claims import PARAGRAPH, at
from sipsched.pages.paper.material import COMPARED, PAPERS_MODES, Material
from sipsched.pages.parts import Definitions, Figure, Heading, Several, Words, translated
from sipsched.words import listed, listed_cores, number, plural

NOTHING = "No run was measured."


def heading(material: Material) -> Heading | Words:
    """Return the paper's heading: the testbed, the kernel and the dates of the measured runs."""
    campaign = material.campaign
    if campaign is None:
        return Words((NOTHING,), PARAGRAPH)
    return Heading(
        campaign.fidelity,
        f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}.",
        f"{campaign.description.rstrip('.')}. {when(campaign)}".removeprefix(". "),
    )


def testbed() -> Figure:
    """Return the figure of the testbed and of the six timestamps of a message."""
    return diagram()


def method(material: Material) -> Words:
    """Return paragraphs with numbers on windows (periods in one mode), mode switches, valid runs and the probe cost."""
    campaign = material.campaign
    if campaign is None:
        return Words((NOTHING,), PARAGRAPH)
    lines = [windows.design(material.loads).lines[0], *windows.machine(material.loads).lines]
    return Words(
        (" ".join(lines), f"{counting(campaign)} {probing(campaign, material.costs)}"), PARAGRAPH
    )


def threats(material: Material) -> Definitions:
    """Return the list of threats to validity, each with numbers from the measured runs."""
    return Definitions("threats", "", tuple(_threats(material)))


def _threats(material: Material) -> Iterator[tuple[str, str]]:
    campaign = material.campaign
    if campaign is not None:
        yield (
            "One machine",
            f"All measurements come from one testbed. {software((campaign,)).lines[0]}",
        )
        yield "Other programs and other guests", tables.competitors((campaign,)).lines[0]
        runs = campaign.counted
        suspect = int((runs["grade"] == "suspect").sum())
        yield (
            "Suspect runs",
            f"In {suspect} of {plural(len(runs), 'valid run')}, a disturbance exceeds the first limit of a verdict "
            "rule, but not its second limit. Such a run is called suspect. The results include these runs.",
        )
    yield "Few runs per comparison", _few(material)
    yield "The reference differs from itself", _aa(material)
    names = dict.fromkeys(name for load in material.loads for name in load.translations)
    yield (
        "Translation",
        translated(tuple(names)).strip()
        or "No compared mode is a translation, or no mode was compared.",
    )
    if campaign is not None and {"ring_time_ms", "hold_time_ms"} <= set(campaign.load):
        yield (
            "Short calls",
            f"Test calls ring for {campaign.load['ring_time_ms']:g} ms and last {campaign.load['hold_time_ms']:g} ms. "
            "Longer calls keep more transactions and timers alive.",
        )
    yield (
        "Simulated numbers",
        "The simulator is fitted to runs of the default mode on the same machine. The simulator's numbers are "
        "predictions, and replace no measurement.",
    )


def _few(material: Material) -> str:
    """Return sentences on the number of runs per comparison, and on intervals whose assumptions may be wrong."""
    effects = [
        candidate.effects[DECIDING[0]]
        for ranking in material.rankings(*COMPARED)
        for candidate in ranking.candidates
        if candidate.effects[DECIDING[0]].interval.known
    ]
    if not effects:
        return "No comparison has a confidence interval."
    counts = sorted({effect.runs for effect in effects})
    runs = f"{counts[0]} to {plural(counts[-1], 'run')}" if counts[1:] else plural(counts[0], "run")
    conditional = sum(effect.conditional for effect in effects)
    doubted = sum(bool(effect.doubts) for effect in effects)
    return (
        f"A comparison has {runs}. {conditional} of {plural(len(effects), 'interval')} of the 99th percentile "
        f"describe only the measured runs, so another run may have another result. For {doubted} of these intervals, "
        "the measured blocks contradict an assumption with which the interval was computed. If more runs were "
        "measured hours apart, the intervals would be valid for this machine, and not only for these runs."
    )


def _aa(material: Material) -> str:
    """Return sentences on A/A comparisons (reference mode with itself): how many exclude 0, and the widest interval."""
    rankings = material.rankings(*COMPARED)
    known = [r for r in rankings if r.sham[DECIDING[0]].interval.known]
    if not known:
        return "No A/A comparison has an interval."
    outside = [r for r in known if r.floors[DECIDING[0]]]
    widest = max(known, key=lambda r: _width(r.sham[DECIDING[0]].interval))
    return (
        f"In an A/A comparison, the true effect is 0. {len(outside)} of {plural(len(known), 'A/A interval')} of the "
        "99th percentile exclude 0. The widest of these intervals is "
        f"{effect_words(widest.sham[DECIDING[0]], DECIDING[0])}, at {at(widest.load)}."
    )


def _width(interval: Interval) -> float:
    return interval.high - interval.low


def not_shown(material: Material) -> Words:
    """Return sentences on the questions that the recorded runs leave open."""
    return Words(tuple(_open_questions(material)))


def _open_questions(material: Material) -> Iterator[str]:
    loads = material.loads
    if not loads:
        yield "This paper shows nothing about modes, because no valid run compares modes."
    else:
        counts = sorted({load.place.cores for load in loads})
        suts = dict.fromkeys(load.place.sut for load in loads)
        yield (
            f"Other systems: modes were compared with {listed([*suts])} on {listed_cores(counts)} only. The papers "
            "used OpenSIPS, and the second paper used several cores."
        )
    falls = [
        fall
        for ranking in material.rankings(PAPERS_MODES)
        if not math.isnan(fall := ranking.detectable())
    ]
    if falls:
        yield (
            "Small effects of the papers' settings: at the load with the most precise comparison, the test can miss "
            f"a decrease of the 99th percentile by less than {fall_words(min(falls))}. At the load with the least "
            f"precise comparison, the test can miss a decrease by less than {fall_words(max(falls))}."
        )
    drops = [
        rate
        for load in loads
        if not math.isnan(rate := 100 * load.mean(load.place.reference, "pdr").estimate)
    ]
    if drops:
        yield (
            f"Effects on drops: the papers' main number is the drop rate near the capacity. In the compared runs, the "
            f"reference drops at most {number(max(drops))} % of its messages, so these runs say little about drops."
        )
    campaign = material.campaign
    if campaign is not None and campaign.capacities:
        modes = listed([*dict.fromkeys(capacity.mode for capacity in campaign.capacities)])
        yield (
            f"Other capacities: the capacity was estimated only in mode {modes}. It is unknown how much the settings "
            "that shorten the time per message raise the capacity."
        )
    if any(load.translations for load in loads):
        yield (
            "The papers' own scheduler: this kernel lacks the papers' settings, so the compared modes use similar "
            "settings instead. The papers' results on their kernels are therefore neither confirmed nor contradicted."
        )
    yield (
        "Effects on other programs: no run measures how a proxy with a real-time policy slows down other programs on "
        "the same CPU."
    )
    if campaign is not None and campaign.kind == "local":
        yield (
            "Real network cards: the hosts of the campaign are network namespaces of one machine, so no run used a "
            "network card."
        )


def versions(material: Material) -> Several:
    """Return the versions of the programs that made the paper, and the hashes of the data files, for the page."""
    return tables.versions(*material.files)
