"""The lower part of the overview page: links to all pages, the campaigns and the versions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from sipsched import paths
from sipsched.analysis.advice import DECIDING, Advice, is_higher, is_lower
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.families import SIGNIFICANT, ComparedCell, compare_together
from sipsched.analysis.probe_cost import ProbeCost
from sipsched.analysis.run_table import (
    STATUSES,
    Campaign,
    SettingKey,
    pairs,
)
from sipsched.pages.capacities import systems
from sipsched.pages.crossover.wording import IN_WORDS, effect_words, loads_name, place_name
from sipsched.pages.drawing import Layout
from sipsched.pages.index.tiles import NOT_MEASURED
from sipsched.pages.numbers import in_words
from sipsched.pages.outline import HOME, Outline, nested_pages, read_outline
from sipsched.pages.parts import (
    Definitions,
    Figure,
    Heading,
    Links,
    Several,
    Table,
    Words,
    translated,
)
from sipsched.plan.modes import is_translation, plain
from sipsched.records.messages import PROBE_OFF
from sipsched.records.study_summary import MEASURED
from sipsched.validity.verdict import in_general
from sipsched.words import grouped, plural

REFERENCE, CHANGED = "baseline", "enhanced"
NO_PAIRS = f"{NOT_MEASURED}: no runs of {REFERENCE} mode and {CHANGED} mode have the same point and the same arrivals."
BOUND = (
    "the exact end of the queueing time K_sockq (a probe in mode tracepoint measures only a lower bound of this "
    "time)"
)

DIAGRAM = paths.PROJECT_ROOT / "docs" / "testbed.svg"
SVG = "http://www.w3.org/2000/svg"


def diagram() -> Figure:
    """Return the figure of the testbed and of the six timestamps of a message on the SPS (the proxy's host)."""
    ElementTree.register_namespace("", SVG)

    def draw(layout: Layout) -> str:
        svg = ElementTree.parse(DIAGRAM).getroot()  # noqa: S314 (a file of this project)
        if not layout.stacked:
            # The page stretches the diagram to its own width. A wide page would make the text twice as large as on a
            # phone, so double the width of the view box by free space on the right.
            left, top, width, height = map(int, svg.attrib["viewBox"].split())
            svg.set("viewBox", f"{left} {top} {2 * width} {height}")
        return ElementTree.tostring(svg, encoding="unicode")

    return Figure(
        identity="figure-testbed-diagram",
        draw=draw,
        caption="The testbed: the UAC starts calls, the UAS answers them, and each message gets six timestamps on "
        "its way through the SPS.",
    )


def headings(campaigns: Sequence[Campaign]) -> Several:
    """Return a heading per campaign (all runs of a testbed): fidelity (real or virtual), testbed, kernel and dates."""
    return Several(
        [
            Heading(
                campaign.fidelity,
                f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}.",
                f"{campaign.description.rstrip('.')}. {when(campaign)}".removeprefix(". "),
            )
            for campaign in campaigns
        ]
    )


def when(campaign: Campaign) -> str:
    """Return a sentence with the first and the last start time of the valid runs, in UTC."""
    started = sorted(text for text in campaign.counted["started_at"] if text)
    if not started:
        return "No valid run was measured."
    first, last = (
        f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}" for text in (started[0], started[-1])
    )
    done = "Simulated" if campaign.kind == "simulated" else "Measured"
    return f"{done} {first} to {last} UTC."


def other_pages(outlines: Iterable[str] | None) -> list[Outline]:
    """Read the outlines (titles and figures) of pages, without the overview. If `outlines` is None, read every file."""
    files = (
        paths.locate("results/pages").glob("*.json") if outlines is None else map(Path, outlines)
    )
    pages = map(read_outline, sorted(files) if outlines is None else files)
    return [page for page in pages if page.name != HOME]


def links(pages: Sequence[Outline]) -> Links:
    """Return a list of links to pages for the overview page, with the titles of the pages.

    The existing pages of campaigns in folders below (`nested_pages`) follow the given pages.
    """
    folders = dict.fromkeys(Path(page.page).parent for page in pages)
    nested = [
        (file.relative_to(folder).as_posix(), title)
        for folder in folders
        for file, title in nested_pages(folder).items()
    ]
    return Links((*((page.name, page.title) for page in pages), *nested))


def coverage(campaigns: Sequence[Campaign]) -> Table:
    """Return a table of the number of planned runs by status, such as measured or invalid, per testbed and proxy."""
    rows = []
    for campaign in campaigns:
        for sut, runs in campaign.runs.groupby("sut", sort=False):
            counts = runs["status"].value_counts()
            suspect = (runs["status"] == MEASURED) & (runs["grade"] == "suspect")
            numbers = [len(runs), *(counts.get(status, 0) for status in STATUSES)]
            numbers.insert(2, int(suspect.sum()))
            rows.append((campaign.testbed, str(sut), *map(str, numbers)))
    return Table(
        identity="table-coverage",
        header=("testbed", "SUT", "planned", MEASURED, "suspect", *STATUSES[1:]),
        rows=tuple(rows),
        none="no run was planned",
        caption="Number of planned runs by status.",
        reading='The column "measured" counts valid runs. The column "suspect" counts the suspect runs among them. The '
        'column "invalid" counts runs for which every attempt was invalid. The column "impossible" counts runs '
        "that need more cores than the testbed has.",
        provenance=" ".join(campaign.provenance for campaign in campaigns),
    )


def details(
    campaign: Campaign,
    limit: float = PDR_LIMIT,
    costs: Sequence[ProbeCost] = (),
    compared: Sequence[Advice] = (),
) -> Definitions:
    """Return three questions with answers for a testbed: on the papers' settings, valid runs and the probe's cost.

    Parameters
    ----------
    limit
        Packet drop rate at which capacity ends, as a share.
    compared
        Comparisons of modes within runs. If no two runs compare the papers' modes, these comparisons give the answer.
    """
    return Definitions(
        f"answers-{campaign.testbed}",
        f"Testbed {campaign.testbed} (kind: {campaign.kind})",
        (
            ("What do the papers' settings change?", modes(campaign, limit, compared)),
            ("How many runs of the campaign are valid?", counting(campaign)),
            ("What does measuring cost, and what could not be measured?", probing(campaign, costs)),
        ),
    )


def modes(campaign: Campaign, limit: float, compared: Sequence[Advice] = ()) -> str:
    """Return sentences that compare the papers' enhanced mode with baseline mode.

    Pairs of runs are compared at the load nearest to the capacity. Without such pairs, the sentences state the result
    of runs that alternate between both modes (`compared`).
    """
    runs = campaign.traced
    for sut in dict.fromkeys(runs["sut"]):
        chosen = runs[runs["sut"] == sut]
        waits = pairs(chosen, "k_rcv_mean", REFERENCE, CHANGED)
        drops = pairs(chosen, "pdr", REFERENCE, CHANGED)
        common = [key for key in waits if key in drops]
        if common:
            break
    else:
        return _modes_within_runs(campaign, compared) or NO_PAIRS
    values = {"k_rcv": waits, "pdr": drops}
    together = compare_together(
        {(key, name): by_key[key] for key in common for name, by_key in values.items()}
    )
    full = systems(campaign.capacities, limit, sut, REFERENCE)
    target = full[0].likely_cps if full else max(key[-1] for key in common)
    near = (full[0].cores, full[0].threads) if full else common[-1][1:3]

    def distance(key: SettingKey) -> tuple[bool, float]:
        return key[1:3] != near, abs(key[3] - target)

    at = min(common, key=distance)
    wait, drop = together.cells[at, "k_rcv"], together.cells[at, "pdr"]
    standing = Counter(name for (_, name), cell in together.cells.items() if cell.stands_out)
    percent = wait.comparison.ratio.map(lambda ratio: 100 * (ratio - 1))
    points = drop.comparison.difference.map(lambda share: 100 * share)
    labels = [_label(chosen, mode) for mode in (CHANGED, REFERENCE)]
    return (
        f"{sut}, {plural(at[1], 'core')}, {plural(at[2], 'thread')}, at {grouped(at[3])} cps (the load nearest to "
        f"the capacity of {REFERENCE} mode): with {labels[0]} instead of {labels[1]}, the mean wait K_rcv changes by "
        f"{in_words(percent, '%', '+')}, which {_judged(wait)}. The packet drop rate changes by "
        f"{in_words(points, 'percentage points', '+')}, which {_judged(drop)}. Of all {plural(len(common), 'point')} "
        "(combinations of cores, threads and load), K_rcv differs significantly between the two modes at "
        f"{standing['k_rcv']}, and the drop rate at {standing['pdr']}. The test is a paired t test with Holm's "
        f"correction, at a significance level of {100 * SIGNIFICANT:g}\u00a0%. With a probability of 95\u00a0%, all "
        "these intervals contain their true "
        f"values.{translated(_translations(chosen))}"
    )


def _modes_within_runs(campaign: Campaign, compared: Sequence[Advice]) -> str:
    """Return sentences on the runs that alternate between the papers' modes. Empty if no run does."""
    quantity = DECIDING[0]
    lines: list[str] = []
    names: dict[str, None] = {}
    for advice in compared:
        if (advice.place.testbed, advice.place.reference) != (campaign.testbed, REFERENCE):
            continue
        by_load = [
            (ranking.load, candidate.effects[quantity])
            for ranking in advice.rankings
            if ranking.judged
            for candidate in ranking.candidates
            if candidate.mode == CHANGED
        ]
        if by_load:
            runs = plural(sum(len(load.runs) for load, _ in by_load), "run")
            lines.append(
                f"{place_name(advice.place)}: {runs} alternated between {REFERENCE} and {CHANGED} mode."
            )
        for load, effect in by_load:
            told = is_lower(effect.interval) or is_higher(effect.interval)
            lines.append(
                f"At {loads_name([load])}, {CHANGED} mode changes {IN_WORDS[quantity]} by "
                f"{effect_words(effect, quantity)}, which {_beyond_chance(told)}."
            )
            names |= dict.fromkeys(load.translations)
    known = [name for name in names if name in (REFERENCE, CHANGED)]
    return " ".join(lines) + translated(known) if lines else ""


def _translations(runs: pd.DataFrame) -> list[str]:
    """Return the names of the papers' modes that this kernel can only approximate with other settings."""
    labels = runs[["mode", "mode_label"]].drop_duplicates().itertuples(index=False)
    translated = [mode for mode, label in labels if is_translation(str(label))]
    return [mode for mode in dict.fromkeys(translated) if mode in (REFERENCE, CHANGED)]


def _judged(cell: ComparedCell) -> str:
    return _beyond_chance(cell.stands_out)


def _beyond_chance(told: bool) -> str:
    return "is more than chance explains" if told else "is indistinguishable from chance"


def counting(campaign: Campaign) -> str:
    """Return sentences with the numbers of valid runs, of other planned runs by status, and of repeated attempts."""
    status = campaign.runs["status"].value_counts()
    grades = campaign.counted["grade"].value_counts()
    others = ", ".join(f"{status.get(word, 0)} {word}" for word in STATUSES[1:])
    text = (
        f"{status.get(MEASURED, 0)} of {plural(len(campaign.runs), 'planned run')} are valid. Of the valid runs, "
        f"{grades.get('suspect', 0)} are suspect. The other planned runs are: {others}."
    )
    if not campaign.attempts:
        return f"{text} No attempt at a run was repeated."
    causes = Counter(cause for attempt in campaign.attempts for cause in attempt.causes)
    ((most, count),) = causes.most_common(1)
    return (
        f"{text} {plural(len(campaign.attempts), 'attempt')} at a run were invalid and were repeated. The most "
        f"frequent reason ({plural(count, 'attempt')}) is: {in_general(most)}."
    )


def probing(campaign: Campaign, costs: Sequence[ProbeCost] = ()) -> str:
    """Return sentences on the CPU time that the probe costs the proxy, and on timestamps that the probe missed."""
    cost = (
        " ".join(map(_cost_words, costs))
        or "The cost of the probe was not measured, because no run has windows in which the probe is stopped."
    )
    missing = [
        f"{column} ({reason})"
        for column, reason, _ in campaign.columns_missing
        if reason != PROBE_OFF
    ]
    missing += [BOUND] * ("tracepoint" in set(campaign.traced["probe_mode"]))
    measured = (
        f"The probe did not measure: {', '.join(missing)}."
        if missing
        else "The probe measured every part of a message's time."
    )
    return f"{cost} {measured}"


def _cost_words(cost: ProbeCost) -> str:
    added, sham = (effect_words(effect, "cpu_per_message") for effect in (cost.effect, cost.sham))
    return (
        f"{cost.sut}, {cost.mode} mode at {grouped(cost.cps)} cps: the probe changes the proxy's CPU time per "
        f"message by {added}. This number compares windows with and without the probe in the same runs. For "
        f"comparison, two windows with the same setting differ by {sham}."
    )


def _label(runs: pd.DataFrame, mode: str) -> str:
    """Return the label of a mode in the runs, without the note that this kernel only approximates the mode."""
    labels = [label for label in runs.loc[runs["mode"] == mode, "mode_label"].unique() if label]
    return plain(str(labels[0])) if len(labels) == 1 else mode


def software(campaigns: Sequence[Campaign]) -> Words:
    """Return a sentence per testbed with the CPU, the kernel and the versions of all programs."""
    lines = []
    for campaign in campaigns:
        sps = campaign.hosts.get("sps", {})
        programs = dict.fromkeys(
            f"{name} ({version})"
            for host in campaign.hosts.values()
            for name, version in (host.get("versions") or {}).items()
        )
        versions = ", ".join(programs) or "versions not recorded"
        listed_cpus = [str(cpu) for cpu in sps.get("cpus") or ()]
        cpus = ", ".join(listed_cpus) or "not recorded"
        if len(listed_cpus) > 1:
            cpus += f" (a proxy with one core runs on CPU {listed_cpus[0]})"
        lines.append(
            f"{campaign.testbed}: CPU {sps.get('cpu_model') or 'not recorded'}, the SPS on CPUs "
            f"{cpus}, kernel {campaign.kernels}; {versions}."
        )
    return Words(tuple(lines))
