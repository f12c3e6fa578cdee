"""The sentences of the page of predictions for the papers' testbed."""

from collections import Counter
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from statistics import median

import pandas as pd

from sipsched.analysis.papers_fit import FREE, METRICS, values_of
from sipsched.analysis.papers_predicted import (
    ABLATED,
    Ablation,
    Direction,
    Error,
    MigrationCost,
    PaperGroup,
    PublishedEffect,
    load_predictions,
    repeated,
)
from sipsched.pages.papers_predicted.ablation import whole_words
from sipsched.pages.papers_predicted.wording import GROUPS, NAMES, PREDICTED, place, simulated
from sipsched.pages.parts import Answer, Heading, Table, Words
from sipsched.plan.simulated import Model
from sipsched.words import grouped, number, plural


def heading(model: Model, runs: pd.DataFrame) -> Heading:
    """Name the model that predicts all numbers of the page."""
    return Heading(
        fidelity=f"{PREDICTED}. {model.description.rstrip('.')}, as a model; fitted to {model.fitted_to}.",
        testbed=simulated(runs),
        description="The papers' kernels are older than the rules that are simulated.",
    )


def answer(effects: Sequence[PublishedEffect]) -> Answer:
    """Answer whether the simulation reproduces the published effects."""
    return Answer(_directions(effects))


def words(
    found: Sequence[Error],
    costs: Sequence[MigrationCost],
    ablations: Sequence[Ablation],
) -> Words:
    """Report the errors, the best cost of migration, and the causes of the effects, in one sentence each."""
    return Words(
        (
            _reach(found),
            _costs(costs),
            *(f"{place(*ABLATED)}: {whole_words(each)}" for each in ablations),
        )
    )


def _reach(found: Sequence[Error]) -> str:
    unseen = [error for error in found if error.group is not PaperGroup.FITTED]
    if not unseen:
        return "No published number was predicted."
    better = [error for error in unseen if error.best]
    told = [f"{NAMES[each.metric]} ({GROUPS[each.group]})" for each in better]
    what = "kinds of published numbers that the fit did not see"
    start = f"Of {len(unseen)} {what}, the simulator is nearer than both naive predictions for {len(better)}"
    return f"{start}: {', '.join(told)}." if told else f"{start}."


def _directions(effects: Sequence[PublishedEffect]) -> str:
    if not effects:
        return "No published difference between the modes was simulated."
    counts = Counter(effect.direction for effect in effects)
    reproduced, holds = counts[Direction.REPRODUCED], sum(effect.holds for effect in effects)
    answer = "No" if not reproduced else "Yes" if reproduced == len(effects) else "In part"
    told = ", ".join(f"{counts[each]} {each}" for each in Direction if counts[each])
    untold = [effect for effect in effects if effect.direction is Direction.NOT_TOLD]
    seen = sum(effect.published >= effect.detectable for effect in untold)
    least = _would_have_been_seen([effect.detectable for effect in untold])
    return (
        f"{answer}, in simulation: of {plural(len(effects), 'published effect')} of enhanced mode {told}; the "
        f"published size lies in the predicted interval for {holds}{least}"
        f"{f', the published one for {seen}' if least else ''}."
    )


def _costs(costs: Sequence[MigrationCost]) -> str:
    told = [direction for cost in costs for direction in cost.directions.values()]
    if not told:
        return "No migration cost of figure 2 was simulated."
    counts = Counter(told)
    words = ", ".join(f"{counts[each]} {each}" for each in Direction)
    least = [
        cost.detectable[other]
        for cost in costs
        for other, direction in cost.directions.items()
        if direction is Direction.NOT_TOLD
    ]
    return (
        "That the migration cost which the paper's figure 2 has as its best is better than another, of "
        f"{plural(len(told), 'comparison')}: {words}{_would_have_been_seen(least)}."
    )


def _would_have_been_seen(least: Sequence[float]) -> str:
    known = sorted(each for each in least if not isnan(each))
    if not known:
        return ""
    return (
        f"; where it is not told, a fall by {number(median(known))} % (median; {number(known[0])} to "
        f"{number(known[-1])} %) would have been seen with a power of 80 %"
    )


def origin(path: Path, recorded: Path) -> Words:
    """Report which runs were simulated on this machine, and whether they equal the recorded runs."""
    return Words((_origin(path, recorded),))


def _origin(path: Path, recorded: Path) -> str:
    if not recorded.is_file():
        return "All runs were simulated here."
    if path.samefile(recorded):
        return (
            "All runs come with the repository; snakemake reports/papers_predicted.html simulates those of "
            "the grid again."
        )
    same, runs = repeated(load_predictions(path), load_predictions(recorded))
    if same == runs:
        return (
            f"All {grouped(runs)} runs of the grid were simulated here and have the recorded numbers to the "
            "last digit; all other runs come with the repository."
        )
    return (
        f"All runs were simulated here. Of {grouped(runs)} of the grid {grouped(same)} have the recorded numbers to "
        "the last digit: the model, the simulator or the machine's arithmetic is another."
    )


def free_numbers(model: Model, points: int) -> Table:
    """List the fitted numbers and the bounds of the search."""
    rows = [
        (free.meaning, free.name, number(value), number(free.low), number(free.high))
        for free, value in zip(FREE, values_of(model.numbers), strict=True)
    ]
    return Table(
        identity="table-free",
        header=("what", "name", "fitted", "from", "to"),
        rows=tuple(rows),
        none="nothing was fitted",
        caption=f"{len(rows)} free numbers beside {points} printed ones, {len(METRICS)} of each of "
        f"{points // len(METRICS)} columns.",
        reading="Times are in ns. All other numbers of the model are assumed. config/models/opensips-papers.yaml has "
        "each number with its source.",
        provenance=f"{PREDICTED}: numbers of a model.",
    )
