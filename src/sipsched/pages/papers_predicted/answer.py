"""The sentences of the page that predicts the papers' published numbers with a simulation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers_fit import FREE, METRICS, values_of
from sipsched.analysis.papers_predicted import (
    ABLATED,
    READINGS,
    Ablation,
    Direction,
    Error,
    MigrationCost,
    PaperGroup,
    PublishedEffect,
    load_predictions,
    repeated,
)
from sipsched.pages.numbers import signed
from sipsched.pages.papers_predicted.ablation import whole_words
from sipsched.pages.papers_predicted.wording import (
    GROUPS,
    NAMES,
    PREDICTED,
    WHOLE_PERCENT,
    counted,
    place,
    published_sign,
    simulated,
)
from sipsched.pages.parts import Answer, Heading, Table, Words
from sipsched.plan.simulated import Model
from sipsched.words import grouped, listed, listed_cores, number, plural, ranged


def heading(model: Model, runs: pd.DataFrame) -> Heading:
    """Return the page's heading, which describes the simulation model behind all numbers of the page."""
    return Heading(
        fidelity=f"{PREDICTED}. The model describes {model.description.rstrip('.')}. The model was fitted to "
        f"{model.fitted_to}.",
        testbed=simulated(runs),
        description="The simulated scheduler is newer than the papers' kernels.",
    )


def answer(effects: Sequence[PublishedEffect]) -> Answer:
    """Return the page's answer as text: whether the simulation reproduces the published effects of enhanced mode."""
    return Answer(_directions(effects))


def words(
    errors: Sequence[Error],
    costs: Sequence[MigrationCost],
    ablations: Sequence[Ablation],
) -> Words:
    """Return sentences on prediction errors, on the scheduler's best migration cost, and on the causes of effects."""
    return Words(
        (
            _reach(errors),
            _costs(costs),
            *(f"{place(*ABLATED)}: {whole_words(ablation)}" for ablation in ablations),
        )
    )


def _reach(errors: Sequence[Error]) -> str:
    unseen = [error for error in errors if error.group is not PaperGroup.FITTED]
    if not unseen:
        return "No published number was predicted."
    better = [error for error in unseen if error.best]
    told = [f"{NAMES[error.metric]} ({GROUPS[error.group]})" for error in better]
    what = "groups of published numbers that were not used for the fit"
    start = (
        f"For {len(better)} of {len(unseen)} {what}, the simulator is more accurate than both simple predictions, "
        '"same threads" and "mean"'
    )
    return f"{start}: {', '.join(told)}." if told else f"{start}."


def _directions(effects: Sequence[PublishedEffect]) -> str:
    if not effects:
        return "No published difference between the modes was simulated."
    counts = Counter(effect.direction for effect in effects)
    reproduced, holds = counts[Direction.REPRODUCED], sum(effect.holds for effect in effects)
    answer = "No" if not reproduced else "Yes" if reproduced == len(effects) else "In part"
    untold = [effect for effect in effects if effect.direction is Direction.NOT_TOLD]
    seen = sum(effect.published >= effect.detectable for effect in untold)
    least = _would_have_been_seen([effect.detectable for effect in untold])
    detectable = (
        f" Of the {plural(len(untold), 'effect')} that are indistinguishable from chance, {seen} have a published size "
        "that the simulation would detect."
    )
    return (
        f"{answer}. The papers publish {plural(len(effects), 'effect')} of enhanced mode. In the simulation, "
        f"{counted(effect.direction for effect in effects)}. For {plural(holds, 'effect')}, the predicted interval "
        f"contains the published size of the effect.{least}{detectable if least else ''}"
    )


def _costs(costs: Sequence[MigrationCost]) -> str:
    told = [direction for cost in costs for direction in cost.directions.values()]
    if not told:
        return "No migration cost of figure 2 was simulated."
    least = [
        cost.detectable[other]
        for cost in costs
        for other, direction in cost.directions.items()
        if direction is Direction.NOT_TOLD
    ]
    return (
        "Figure 2 of the multi-core paper shows which migration cost is best. The simulation compares this cost with "
        f"the other costs. Of {plural(len(told), 'comparison')}, {counted(told)}.{_would_have_been_seen(least)}"
    )


def readings(
    changes: Mapping[tuple[str, int, tuple[str, str]], Interval],
    printed: Sequence[PublishedEffect],
    scaled: Sequence[PublishedEffect],
) -> Words:
    """Return sentences on how the effects of enhanced mode change if the times of baseline mode are scaled.

    The parameters are the parameters of `sipsched.pages.papers_predicted.directions.readings`.
    """
    if not changes or len(scaled) < len(printed):
        return Words(("Baseline mode was not simulated with scaled times.",))
    cores = sorted({cores for _, cores, _ in changes})
    lines = [
        f"With the printed times of baseline mode, {published_sign(printed)} simulated effects of enhanced mode have "
        f"the published sign. With the scaled times, {published_sign(scaled)} simulated effects have the published "
        "sign. These counts include effects that chance explains. In a test against chance, "
        f"{counted(effect.direction for effect in printed)} with the printed times. In the same test, "
        f"{counted(effect.direction for effect in scaled)} with the scaled times."
    ]
    for metric in dict.fromkeys(metric for metric, _, _ in changes):
        shown = [
            listed([signed(changes[metric, count, modes].estimate) for count in cores])
            for modes in READINGS[:2]
        ]
        lines.append(
            f"{NAMES[metric]}: on {listed_cores(cores)}, enhanced mode changes the mean by {shown[0]}\u00a0% compared "
            f"with the printed times, and by {shown[1]}\u00a0% compared with the scaled times."
        )
    return Words(tuple(lines))


def _would_have_been_seen(least: Sequence[float]) -> str:
    """Return sentences on the smallest decreases that the simulation detects. No quantity decreases by over 100 %."""
    known = [value for value in least if value <= WHOLE_PERCENT]
    none = sum(value > WHOLE_PERCENT for value in least)
    lines = []
    if known:
        middle = f" (median {number(median(known))}\u00a0%)" if known[1:] else ""
        lines.append(
            f" For {plural(len(known), 'effect')} that {'is' if len(known) == 1 else 'are'} indistinguishable from "
            "chance, the smallest decrease that the simulation detects in four of five cases is "
            f"{ranged(known)}\u00a0%{middle}."
        )
    if none:
        effects = plural(none, "other effect" if known else "effect")
        lines.append(
            f" For {effects}, the simulation detects no decrease at all, because its runs differ too much."
        )
    return "".join(lines)


def origin(path: Path, recorded: Path) -> Words:
    """Return a sentence on which runs were simulated here, and whether their numbers equal the recorded numbers."""
    return Words((_origin(path, recorded),))


def _origin(path: Path, recorded: Path) -> str:
    if not recorded.is_file():
        return "All runs were simulated here."
    if path.samefile(recorded):
        return (
            "The results of all simulated runs are in the repository. The command `snakemake` "
            "reports/papers_predicted.html simulates these runs again."
        )
    same, runs = repeated(load_predictions(path), load_predictions(recorded))
    if same == runs:
        return (
            f"All {grouped(runs)} runs of the table above (the grid) were simulated on this machine. Their numbers "
            "equal the recorded numbers to the last digit. The results of all other runs are in the repository."
        )
    return (
        f"All runs were simulated on this machine. Only {grouped(same)} of the {grouped(runs)} runs of the table "
        "above (the grid) equal the recorded runs to the last digit. The reason is a change of the model, of the "
        "simulator or of the machine's arithmetic."
    )


def free_numbers(model: Model, points: int) -> Table:
    """Return a table of the fitted numbers of the simulation model, with the bounds of the search for each number."""
    rows = [
        (free.meaning, free.name, number(value), number(free.low), number(free.high))
        for free, value in zip(FREE, values_of(model.numbers), strict=True)
    ]
    return Table(
        identity="table-free",
        header=("meaning", "name", "fitted", "lower bound", "upper bound"),
        rows=tuple(rows),
        none="nothing was fitted",
        caption=f"The {len(rows)} parameters of the model that were fitted to {points} published numbers.",
        reading=f"Times are in ns. The published numbers are {len(METRICS)} numbers from each of "
        f"{points // len(METRICS)} columns of the papers' tables. The bounds limit the search for the fitted "
        "value. All other parameters of the model are assumptions. config/models/opensips-papers.yaml lists each "
        "assumption with its source.",
        provenance=f"{PREDICTED}: numbers of a model.",
    )
