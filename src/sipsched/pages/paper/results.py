"""The paper's results: comparisons within runs, the capacity, the cause of slow messages, and the simulator."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis.advice import DECIDING, Candidate, Ranking, is_lower
from sipsched.analysis.comparison import Place, runs_at
from sipsched.analysis.crossing_load import typical_drop_rates
from sipsched.analysis.intervals import typical_interval
from sipsched.analysis.run_table import counted
from sipsched.pages import load_sweep, messages, predicted
from sipsched.pages.capacities import carries, disagreements, doubts_near, evidence
from sipsched.pages.crossover import effects
from sipsched.pages.crossover.setting import advised as how_to_set
from sipsched.pages.crossover.wording import (
    effect_cell,
    identity,
    provenance,
    reference_name,
    short_load,
)
from sipsched.pages.index.tiles import system_name
from sipsched.pages.numbers import in_words
from sipsched.pages.paper.claims import NOT_MEASURED, PARAGRAPH, origin
from sipsched.pages.paper.material import COMPARED, PAPERS_MODES, REPLACING, SETTINGS, Material
from sipsched.pages.papers_predicted.wording import counted as directions
from sipsched.pages.parts import Cell, Several, Table, Words
from sipsched.records.system_capacity import SystemCapacity
from sipsched.words import grouped, listed, plural

INSIDE = ("total_p99", "k_rcv_mean", "t_sip_mean", "cpu_per_message")
"""The quantities in the columns of the table of effects."""


MARKS = (
    "If a mode lies left of 0, its messages take less time than with the reference. The marker is filled if chance "
    "alone cannot explain the difference from 0. The bar is the confidence interval. The first row and the grey "
    "band show the reference compared with itself (A/A). The axis is logarithmic."
)


def figures(material: Material, study: str) -> Several:
    """Draw the effects of a study's modes on the 99th percentile of the message time, with one figure per proxy."""
    comparisons = [advice for advice in material.advice(study) if advice.rankings]
    if not comparisons:
        return Several((Words((NOT_MEASURED.format(study),), PARAGRAPH),))
    return Several(
        [
            replace(effects.by_load(advice, identity("figure", study, *place)), seen=())
            for advice in comparisons
            for place in [advice.place[1:4] if comparisons[1:] else ()]
        ]
    )


def marks(material: Material) -> Words:
    """Return the sentences that explain the marks in the figures of effects; empty if no such figure exists."""
    return Words((MARKS,) if material.rankings(*COMPARED) else (), PARAGRAPH)


def table(material: Material) -> Table:
    """Return a table of the effects of enhanced mode, and of the other modes whose result chance cannot explain."""
    rows: list[tuple[Cell, ...]] = []
    for study in COMPARED:
        changes: dict[str, list[tuple[Cell, ...]]] = {}
        for ranking in material.rankings(study):
            for candidate in ranking.candidates:
                if candidate.decided_by or study == PAPERS_MODES:
                    load = ranking.load
                    name = f"{load.label(candidate.mode)} instead of {reference_name(load)}"
                    changes.setdefault(name, []).append(_row(name, ranking, candidate))
        rows += [row for of_change in changes.values() for row in of_change]
    loads = [ranking.load for ranking in material.rankings(*COMPARED)]
    return Table(
        identity="table-effects",
        places=1,
        header=(
            *("change", "load", "K_rcv + T_sip, p99 (%)", "K_rcv, mean (%)", "T_sip, mean (%)"),
            *("CPU per message (%)", "blocks", "runs"),
        ),
        rows=tuple(rows),
        none="No valid run compares modes.",
        caption="The effects of enhanced mode, and of every other setting that differs from its reference by more than "
        "chance explains.",
        reading='In the column "load", the first number is the share of the capacity. If an effect is negative, '
        "messages take less time. In each study, all intervals of the 99th percentile contain their true values at "
        "the same time with a probability of 95 %. Every other interval contains its own true value with this "
        "probability.",
        provenance=provenance(loads),
    )


def _row(name: str, ranking: Ranking, candidate: Candidate) -> tuple[Cell, ...]:
    p99 = candidate.effects[DECIDING[0]]
    return (
        name,
        short_load(ranking.load),
        *(effect_cell(candidate.effects[quantity], quantity) for quantity in INSIDE),
        str(sum(p99.blocks)),
        str(p99.runs),
    )


def operating(material: Material) -> Words:
    """Return sentences on how an operator applies and reverts the recommended settings, and on their risks."""
    comparisons = [advice for advice in material.advice(SETTINGS) if advice.rankings]
    return (
        how_to_set(comparisons)
        if comparisons
        else Words((NOT_MEASURED.format(SETTINGS),), PARAGRAPH)
    )


def capacity(material: Material) -> Several:
    """Return a paragraph on the capacity and the doubts about this estimate, and a figure of drop rate against load."""
    if material.sweep is None or material.campaign is None:
        return Several(
            (Words(("Not measured: no valid run of the study load_sweep exists.",), PARAGRAPH),)
        )
    figure = load_sweep.pdr(material.sweep, material.limit, material.campaign.capacities)
    system = material.system
    if system is None:
        return Several((figure,))
    runs = _of_system(material.campaign.single, system)
    lines = (
        f"{system_name(system)} {carries(system)}. The capacity is estimated from {evidence(system)} (n = "
        f"{system.trials + system.runs}).",
        *disagreements(system),
        *below_limit(material.sweep, system),
        *doubts_near(runs, system),
    )
    caption = "Packet drop rate (PDR) against offered load."
    return Several(
        (Words((" ".join(lines),), PARAGRAPH), replace(figure, caption=caption, seen=()))
    )


def below_limit(sweep: xr.Dataset, system: SystemCapacity) -> Iterator[str]:
    """Yield a sentence on loads above the capacity at which typical runs of the sweep drop no more than the limit."""
    loads = sweep["cps"].to_numpy()
    place = Place(system.sut, system.cores, system.threads)
    rates = typical_drop_rates(
        runs_at(counted(sweep)["pdr"], place, system.mode), system.limit
    ).estimate
    above = loads[(rates <= system.limit) & (loads > (system.estimate_cps or np.inf))]
    if above.size:
        share = f"{100 * system.limit:g}\u00a0%"
        yield (
            "The line in the figure joins typical runs of the load sweep alone, while the estimate also uses the "
            f"trials of the searches. At {listed([*map(grouped, above)])} cps, which is more than this capacity, the "
            f"typical run drops at most {share}."
        )


def _of_system(runs: pd.DataFrame, system: SystemCapacity) -> pd.DataFrame:
    """Return the rows of the runs that have the same proxy, mode, cores and threads as a system."""
    for name in ("sut", "mode", "cores", "threads"):
        runs = runs[runs[name] == getattr(system, name)]
    return runs


def cause(material: Material) -> Words:
    """Return sentences on the stage that dominates a slow message's time, and on the part that better modes shorten."""
    lines = [messages.answer(material.traced).line, *_off_cpu(material), *_shortened(material)]
    lines[-1] += origin(material)
    return Words(tuple(lines), PARAGRAPH)


def _off_cpu(material: Material) -> Iterator[str]:
    """Yield a sentence with the share of service time off CPU, at the lowest and the highest load of the main proxy."""
    system = material.system
    if system is None or material.campaign is None:
        return
    runs = _of_system(material.campaign.traced, system)
    runs = runs.assign(share=100 * runs["t_sip_off_mean"] / runs["t_sip_mean"]).dropna(
        subset="share"
    )
    if runs.empty:
        return
    loads = dict.fromkeys((runs["cps"].min(), runs["cps"].max()))
    said = [
        f"{in_words(typical_interval(runs.loc[runs['cps'] == cps, 'share'].to_numpy(float)), '%')} at "
        f"{grouped(cps)} cps"
        for cps in loads
    ]
    yield (
        f"In the load sweep of {system_name(system)}, a worker spends a part of its service time T_sip off CPU: "
        f"{' and '.join(said)}."
    )


def _shortened(material: Material) -> Iterator[str]:
    """Yield a sentence: how many of the better modes shorten the service time, and how many shorten the wait."""
    better = _better(material)
    if better:
        service, wait = (_lower(better, name) for name in ("t_sip_mean", "k_rcv_mean"))
        yield (
            f"In the table of effects, {plural(len(better), 'change')} (counted once per load) are better than their "
            f"reference. The mean service time T_sip is significantly lower for {service} of these changes, and the "
            f"mean wait K_rcv for {wait} of these changes."
        )


def _better(material: Material) -> list[Candidate]:
    """Return the modes that are better than their reference mode, with one entry per load."""
    return [
        candidate
        for ranking in material.rankings(*REPLACING)
        for candidate in ranking.candidates
        if candidate.beats
    ]


def _lower(candidates: Sequence[Candidate], quantity: str) -> int:
    """Return the number of modes that lower a quantity by more than chance explains."""
    return sum(is_lower(candidate.effects[quantity].interval) for candidate in candidates)


def explanation(material: Material) -> Words:
    """Return a paragraph on the likely cause of slow messages, if most better modes shorten service but not waiting."""
    better = _better(material)
    service, wait = (_lower(better, name) for name in ("t_sip_mean", "k_rcv_mean"))
    if 2 * service <= len(better) or 2 * wait >= len(better):
        line = "The comparisons within runs do not show which part of a message's time causes slow messages."
        return Words((line,), PARAGRAPH)
    return Words(
        (
            "One explanation fits these measurements. A worker takes a message and loses the CPU to another worker "
            "before the message is served. The message then waits although it is already out of the queue. A real-time "
            "policy, fewer workers and a shorter service make this loss rarer. This is an interpretation, because no "
            "comparison recorded each preemption.",
        ),
        PARAGRAPH,
    )


def waits(material: Material) -> Several:
    """Return a table of the parts of a slow message's time by load, and a figure of these parts by message type."""
    return Several((messages.by_load(material.traced), *messages.ways(material.traced).parts))


def simulator(material: Material) -> Several:
    """Return a paragraph and a table on how many of the simulator's predictions agree with the measurements."""
    predictions = material.predictions
    wrong = [
        contrast
        for contrast in predictions.check.comparable
        if contrast.told and contrast.sign_wrong
    ]
    names = dict.fromkeys(predicted.setting_name(contrast) for contrast in wrong)
    signs = (
        f" The predicted sign is wrong in {plural(len(wrong), 'prediction')}, for: {'; '.join(names)}."
        if wrong
        else ""
    )
    line = f"{predicted.MODEL}. {predicted.answer(predictions).line}{signs}"
    return Several((Words((line,), PARAGRAPH), predicted.by_kind(predictions)))


def papers_simulated(material: Material) -> Words:
    """Return a sentence with the number of published effects that the simulation of the papers' testbed reproduces."""
    found_effects = material.simulated
    if not found_effects:
        return Words(("Not simulated: no prediction for the papers' testbed exists.",), PARAGRAPH)
    seen = [effect.detectable for effect in found_effects if np.isfinite(effect.detectable)]
    power = (
        f" The smallest decrease that the simulation detects in four of five cases is {np.median(seen):.0f}\u00a0% "
        "in the median over these effects."
        if seen
        else ""
    )
    return Words(
        (
            f"{predicted.MODEL}: a second simulation describes the papers' testbed with CFS. Of "
            f"{plural(len(found_effects), 'published effect')} of enhanced mode, "
            f"{directions(effect.direction for effect in found_effects)} in this simulation.{power}",
        ),
        PARAGRAPH,
    )
