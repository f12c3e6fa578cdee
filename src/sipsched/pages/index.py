"""The page that links all others: what was measured where, and a few sentences computed from it."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from sipsched.analysis.advice import Advice
from sipsched.analysis.families import SIGNIFICANT, Cell, compare_together
from sipsched.analysis.probe_cost import ProbeCost
from sipsched.analysis.run_table import (
    STATUSES,
    Campaign,
    Carried,
    Point,
    capacities,
    pairs,
)
from sipsched.analysis.statistics import (
    PDR_LIMIT,
    typical_interval,
)
from sipsched.pages.crossings import carries, doubt
from sipsched.pages.crossover.answer import advised_for
from sipsched.pages.crossover.wording import effect_words
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Answer, Figure, Table, Words, translated
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.crossover import is_comparison
from sipsched.plan.modes import is_translation, plain
from sipsched.records.messages import PROBE_OFF
from sipsched.records.summary import MEASURED
from sipsched.validity.verdict import in_general
from sipsched.words import listed, number, plural

REFERENCE, CHANGED = "baseline", "enhanced"
NOT_MEASURED = "Not measured"
NO_PAIRS = (
    f"{NOT_MEASURED}: no runs of mode {REFERENCE} alone and {CHANGED} alone at the same point with the same "
    "arrivals."
)
WITHIN = "Which of the scheduler's settings is better, compared within runs?"
BOUND = "the exact end of K_sockq, of which probe mode tracepoint gives a lower bound"
TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


DIAGRAM = PROJECT_ROOT / "docs" / "testbed.svg"
ALONE, BESIDE = 'viewBox="0 0 400 405"', 'viewBox="0 0 800 405"'
"""The diagram as it is, for a phone; and with room on its right, for a page twice as wide."""


def diagram() -> Figure:
    """Show the testbed, and the six instants at which a message is stamped on the SPS."""
    svg = DIAGRAM.read_text(encoding="utf-8")
    return Figure(
        identity="figure-testbed-diagram",
        svg=svg.replace(ALONE, BESIDE),
        narrow=svg,
        alt="Three hosts: the UAC sends calls to the SPS, whose proxy passes them to the UAS, which answers. On the "
        "SPS each message is stamped at six instants: t_arr, t_stack, t_sockq, t_sip_in, t_sip_out, t_dep. Between "
        "them lie K_stack, K_sockq and K_copy, together K_rcv, then T_sip and K_snd.",
        caption="The testbed: a run offers calls from the UAC, and each message is stamped on its way through the SPS.",
        seen=(),
        provenance="",
    )


@dataclass(frozen=True)
class Answers:
    """Questions and their answers in a sentence each; Jupyter shows them by themselves."""

    identity: str
    heading: str
    pairs: tuple[tuple[str, str], ...]

    def _repr_html_(self) -> str:
        items = "".join(
            f"<dt>{html.escape(question)}</dt><dd>{html.escape(answer)}</dd>"
            for question, answer in self.pairs
        )
        heading = f"<h3>{html.escape(self.heading)}</h3>"
        return f'{heading}<dl class="answers" id="{html.escape(self.identity)}">{items}</dl>'


@dataclass(frozen=True)
class Links:
    """Pages of the same folder, by their titles; Jupyter shows them by themselves."""

    pages: tuple[tuple[str, str], ...]

    def _repr_html_(self) -> str:
        items = "".join(
            f'<li><a href="{html.escape(name)}">{html.escape(title)}</a> '
            f"<small>{html.escape(name)}</small></li>"
            for name, title in self.pages
        )
        return f'<ul class="pages">{items}</ul>' if items else "<p>No page was made.</p>"


@dataclass(frozen=True)
class Headings:
    """Fidelity first, then testbed, kind and kernel, for each testbed."""

    campaigns: tuple[Campaign, ...]

    def _repr_html_(self) -> str:
        return "".join(
            f"<p>{html.escape(campaign.fidelity.rstrip('.'))}.</p>"
            f'<p class="testbed">Testbed {html.escape(campaign.testbed)}, kind '
            f"{html.escape(campaign.kind)}, kernel {html.escape(campaign.kernels)}. "
            f"{html.escape(campaign.description.rstrip('.'))}. {html.escape(when(campaign))}</p>"
            for campaign in self.campaigns
        )


def when(campaign: Campaign) -> str:
    """Say when the runs that count were measured, or simulated, in UTC."""
    started = sorted(text for text in campaign.counted["started_at"] if text)
    if not started:
        return "Nothing was measured."
    first, last = (
        f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}" for text in (started[0], started[-1])
    )
    done = "Simulated" if campaign.kind == "simulated" else "Measured"
    return f"{done} {first} to {last} UTC."


def answer(
    campaigns: Sequence[Campaign], compared: Sequence[Advice] = (), limit: float = PDR_LIMIT
) -> Answer:
    """Answer in one sentence: how much the proxy carries, and what the scheduler can do for it.

    Parameters
    ----------
    campaigns
        All runs, by testbed; the first that measured a capacity answers.
    compared
        What runs that compare modes come to.
    limit
        Packet drop rate at which capacity ends, as a share.
    """
    for campaign in campaigns:
        best = best_configuration(campaign, limit)
        if best is None:
            continue
        here = [each for each in compared if each.place.testbed == campaign.testbed]
        gains = dict.fromkeys(
            ranking.load.label(ranking.best.mode)
            for each in here
            for ranking in each.rankings
            if ranking.best
        )
        setting = (
            f"; its slowest messages are faster with {listed(tuple(gains), 'or')}"
            if gains
            else "; no scheduler setting compared beats the one it has"
            if any(ranking.judged for each in here for ranking in each.rankings)
            else ""
        )
        told = f"{best} {carries(best.capacity.crossing, limit)}{setting}"
        predicted = " (predicted)" if campaign.kind == "simulated" else ""
        return Answer(f"{told}{predicted}.{translated(_translations(campaigns, compared))}")
    return Answer(
        "There is no answer yet: no configuration has runs that count at two loads or more."
        f"{translated(_translations(campaigns, compared))}"
    )


def _translations(campaigns: Sequence[Campaign], compared: Sequence[Advice]) -> tuple[str, ...]:
    """Name the modes that were translations on any testbed."""
    found = [
        str(mode)
        for campaign in campaigns
        for mode, label in zip(campaign.runs["mode"], campaign.runs["mode_label"], strict=True)
        if is_translation(str(label)) and not is_comparison(mode)
    ]
    found += [
        mode for each in compared for ranking in each.rankings for mode in ranking.load.translations
    ]
    return tuple(dict.fromkeys(found))


def links(pages: Iterable[Path]) -> Links:
    """Link pages by their titles.

    Parameters
    ----------
    pages
        HTML files of the folder that the linking page will be in.
    """
    found = []
    for page in pages:
        title = TITLE.search(page.read_text(encoding="utf-8"))
        found.append((page.name, html.unescape(title[1]).strip() if title else page.stem))
    return Links(tuple(found))


def coverage(campaigns: Sequence[Campaign]) -> Table:
    """Count the planned runs of each testbed and SUT by what became of them."""
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
        header=("testbed", "SUT", "planned", MEASURED, "of these suspect", *STATUSES[1:]),
        rows=tuple(rows),
        none="no run was planned",
        caption="Planned runs, and what became of them. Invalid: tried, and no attempt counts. "
        "Impossible: more cores than the testbed has.",
        provenance=" ".join(campaign.provenance for campaign in campaigns),
    )


def answers(
    campaign: Campaign,
    limit: float = PDR_LIMIT,
    compared: Sequence[Advice] = (),
    costs: Sequence[ProbeCost] = (),
) -> Answers:
    """Answer what a manager asks about a testbed, in a few sentences computed from its runs.

    Parameters
    ----------
    campaign
        All runs of the testbed.
    limit
        Packet drop rate at which capacity ends, as a share.
    compared
        What runs that compare modes come to, on any testbed.
    costs
        What the probe costs on this one.
    """
    best = best_configuration(campaign, limit)
    here = [each for each in compared if each.place.testbed == campaign.testbed]
    within = (WITHIN, " ".join(map(advised_for, here)))
    return Answers(
        f"answers-{campaign.testbed}",
        f"Testbed {campaign.testbed}, kind {campaign.kind}",
        (
            ("How much load does the proxy carry?", carried(campaign, best, limit)),
            *((within,) if here else ()),
            (
                "What do the papers' settings change, from run to run?",
                modes(campaign, limit) or NO_PAIRS,
            ),
            ("How long does a message wait at half of that load?", waiting(campaign, best)),
            ("How much of the campaign counts?", counting(campaign)),
            ("What does measuring cost, and what was not seen?", probing(campaign, costs)),
        ),
    )


def best_configuration(campaign: Campaign, limit: float = PDR_LIMIT) -> Carried | None:
    """Take the first SUT of the configuration, in its first mode, with the cores and threads that carry most."""
    traced = campaign.traced
    if not len(traced):
        return None
    # Of the two names the first that has loads to tell a capacity from.
    for sut, mode in traced[["sut", "mode"]].drop_duplicates().itertuples(index=False):
        found = capacities(traced, limit, sut, mode)
        if found:
            return found[0]
    return None


def carried(campaign: Campaign, best: Carried | None, limit: float) -> str:
    """Say the capacity of the proxy, with its interval."""
    if best is None:
        return f"{NOT_MEASURED}: no configuration has runs that count at two loads or more."
    crossing = best.capacity.crossing
    doubted = doubt(crossing, limit)
    same = capacities(campaign.traced, limit, best.sut, best.mode)
    among = f" (the best of {len(same)} combinations of cores and threads)" if same[1:] else ""
    return (
        f"{best}{among}, {carries(crossing, limit)}, n = {crossing.interval.n}."
        f"{' ' if doubted else ''}{doubted}"
    )


def modes(campaign: Campaign, limit: float) -> str | None:
    """Say what the papers' enhanced mode changes against their baseline, where the baseline is full.

    None if no runs of the two have the same arrivals.
    """
    runs = campaign.traced
    for sut in dict.fromkeys(runs["sut"]):
        chosen = runs[runs["sut"] == sut]
        waits = pairs(chosen, "k_rcv_mean", "mode", REFERENCE, CHANGED)
        drops = pairs(chosen, "pdr", "mode", REFERENCE, CHANGED)
        common = [key for key in waits if key in drops]
        if common:
            compared = compare_together(
                {
                    (key, name): by_key[key]
                    for key in common
                    for name, by_key in (("k_rcv", waits), ("pdr", drops))
                }
            )
            break
    else:
        return None
    full = capacities(chosen, limit, sut, REFERENCE)
    target = full[0].estimate_cps if full else max(key[-1] for key in common)
    near = (full[0].cores, full[0].threads) if full else common[-1][1:3]

    def distance(key: Point) -> tuple[bool, float]:
        return key[1:3] != near, abs(key[3] - target)

    at = min(common, key=distance)
    wait, drop = compared.cells[at, "k_rcv"], compared.cells[at, "pdr"]
    standing = Counter(name for (_, name), cell in compared.cells.items() if cell.stands_out)
    percent = wait.comparison.ratio.map(lambda ratio: 100 * (ratio - 1))
    points = drop.comparison.difference.map(lambda share: 100 * share)
    return (
        f"{sut} at {at[3]} cps, next to the {REFERENCE} mode's capacity ({plural(at[1], 'core')}, "
        f"{plural(at[2], 'thread')}): {_label(chosen, CHANGED)} against {_label(chosen, REFERENCE)} changes the mean "
        f"wait K_rcv by {in_words(percent, '%', '+')}, which {_said(wait)}, and the packet drop "
        f"rate by {in_words(points, 'percentage points', '+')}, which {_said(drop)}; of "
        f"{plural(len(common), 'point')} compared, K_rcv stands out at {standing['k_rcv']} and the drop rate at "
        f"{standing['pdr']} (paired t test, Holm, {100 * SIGNIFICANT:g} %; these intervals hold together at 95 %)."
    )


def _said(cell: Cell) -> str:
    return "stands out" if cell.stands_out else "is within chance"


def waiting(campaign: Campaign, best: Carried | None) -> str:
    """Say what the slowest message in a hundred waits at half the capacity."""
    if best is None:
        return f"{NOT_MEASURED}: without a capacity there is no half of it."
    runs = campaign.traced
    chosen = runs[
        (runs["sut"] == best.sut)
        & (runs["mode"] == best.mode)
        & (runs["cores"] == best.cores)
        & (runs["threads"] == best.threads)
        & runs["k_rcv_p99"].notna()
    ]
    if not len(chosen):
        return f"{NOT_MEASURED}: the probe gave no K_rcv for {best}."
    half = best.estimate_cps / 2
    loads = chosen["cps"].to_numpy()
    cps = loads[np.argmin(np.abs(loads - half))]
    there = chosen[chosen["cps"] == cps]
    p99, median = (typical_interval(there[f"k_rcv_{which}"]) for which in ("p99", "p50"))
    return (
        f"{best}: at {cps} cps, the measured load nearest to half of that ({number(half)}), the "
        f"slowest message in a hundred waits {in_words(p99, 'µs')}, or longer, from network card to proxy "
        f"(99th percentile of K_rcv), and the median one {in_words(median, 'µs')}."
    )


def counting(campaign: Campaign) -> str:
    """Say how many runs count, what became of the others, and why attempts were repeated."""
    status = campaign.runs["status"].value_counts()
    grades = campaign.counted["grade"].value_counts()
    others = ", ".join(f"{status.get(word, 0)} {word}" for word in STATUSES[1:])
    text = (
        f"{status.get(MEASURED, 0)} of {len(campaign.runs)} planned runs count, "
        f"{grades.get('suspect', 0)} of them suspect; {others}"
    )
    if not campaign.attempts:
        return f"{text}; no attempt was repeated."
    causes = Counter(cause for attempt in campaign.attempts for cause in attempt.causes)
    ((most, count),) = causes.most_common(1)
    return (
        f"{text}; attempts that did not count and were made again: {len(campaign.attempts)}, most "
        f"often ({count}) because {in_general(most)}."
    )


def probing(campaign: Campaign, costs: Sequence[ProbeCost] = ()) -> str:
    """Say what the probe costs the proxy, and which times it could not see."""
    if costs:
        text = "; ".join(map(_cost_words, costs))
    else:
        text = f"{NOT_MEASURED}: no run stills the probe in some of its windows"
    missing = [
        f"{column} ({reason})"
        for column, reason, _ in campaign.columns_missing
        if reason != PROBE_OFF
    ]
    missing += [BOUND] * ("tracepoint" in set(campaign.traced["probe_mode"]))
    return f"{text}; not seen: {', '.join(missing) or 'nothing'}."


def _cost_words(cost: ProbeCost) -> str:
    added, sham = (effect_words(each, "cpu_per_message") for each in (cost.effect, cost.sham))
    return (
        f"{cost.sut}, mode {cost.mode} at {cost.cps} cps: the probe changes the proxy's CPU time a message by "
        f"{added}, told by windows of the same runs with it and without; the same mode against itself by {sham}"
    )


def _label(runs: pd.DataFrame, mode: str) -> str:
    """Name a mode as it was on the kernel at hand."""
    labels = [label for label in runs.loc[runs["mode"] == mode, "mode_label"].unique() if label]
    return plain(str(labels[0])) if len(labels) == 1 else mode


def software(campaigns: Sequence[Campaign]) -> Words:
    """Name for each testbed the CPU, the kernel, and the versions of what was measured and what measured it."""
    lines = []
    for campaign in campaigns:
        sps = campaign.hosts.get("sps", {})
        found = dict.fromkeys(
            f"{name} ({said})"
            for host in campaign.hosts.values()
            for name, said in (host.get("versions") or {}).items()
        )
        versions = ", ".join(found) or "versions not recorded"
        cpus = ", ".join(map(str, sps.get("cpus") or ())) or "not recorded"
        lines.append(
            f"{campaign.testbed}: CPU {sps.get('cpu_model') or 'not recorded'}, the SPS on CPUs "
            f"{cpus}, kernel {campaign.kernels}; {versions}."
        )
    return Words(tuple(lines))
