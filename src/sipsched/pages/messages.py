"""The page of single messages: how long they take, what of it is waiting, and what a slow one waits for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sipsched.pages import tables
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.heat import heat_map
from sipsched.pages.explore.lanes import lanes
from sipsched.pages.explore.timeline import Messages, provenance, read_messages, timeline
from sipsched.pages.explore.waterfall import STAGES, slow_way, waterfall
from sipsched.pages.numbers import in_us
from sipsched.pages.parts import Answer, Figure, Several, Table, Words
from sipsched.plan.config import Run
from sipsched.plan.modes import DEFAULT
from sipsched.records.catalogue import Catalogue, find_runs
from sipsched.words import grouped, number, plural

MOST_LOADS, MOST_REPETITIONS = 3, 3
"""Of a campaign with more, the lowest load, the one in the middle and the highest, and their first runs."""
NOTHING = "There is nothing to say: no run of mode default has its single messages kept."
NO_STAGES = (
    "Not seen: too few messages, or a probe without BPF, which does not know a message's stages."
)
PERCENTILES = (50.0, 99.0, 99.9)


@dataclass(frozen=True)
class Found:
    """What the page shows.

    Attributes
    ----------
    by_load
        The runs at each load, ascending, with at least one message that has wait and service; alike in all but
        load and repetition.
    files
        Their `messages.nc`.
    """

    by_load: dict[int, list[Messages]]
    files: tuple[Path, ...] = ()

    @property
    def all(self) -> list[Messages]:
        """Every run."""
        return [run for runs in self.by_load.values() for run in runs]

    @property
    def highest(self) -> list[Messages]:
        """Those at the highest load; none if there is no run."""
        return self.by_load[max(self.by_load)] if self.by_load else []


def read(testbed: str, folders: Iterable[Path]) -> Found:
    """Read the messages of runs of mode default.

    Parameters
    ----------
    testbed
        Its name.
    folders
        Of records; of these the one with runs at the most loads. Of its configurations the one with the most
        runs.
    """
    chosen: Catalogue | None = None
    for folder in folders:
        there = find_runs(folder, testbed)
        whole = [run for run in there.runs if run.mode == DEFAULT and there.has_messages(run)]
        kept = Catalogue(there.records, there.results, tuple(_most(whole)))
        if chosen is None or len(kept.values("cps")) > len(chosen.values("cps")):
            chosen = kept
    if chosen is None or not chosen.runs:
        return Found({})
    loads = chosen.values("cps")
    picked = sorted({loads[0], loads[(len(loads) - 1) // 2], loads[-1]}) if loads else []
    by_load, files = {}, []
    for cps in picked[:MOST_LOADS]:
        runs = [run for run in chosen.runs if run.cps == cps][:MOST_REPETITIONS]
        opened = [read_messages(chosen, run) for run in runs]
        known = [run for run in opened if len(_totals(run))]
        if known:
            by_load[cps] = known
            files += [chosen.messages_file(run.run) for run in known]
    return Found(by_load, tuple(files))


def answer(found: Found) -> Answer:
    """Say how long a slow message takes at the highest load, and what it spends it in."""
    runs = found.highest
    if not runs:
        return Answer(NOTHING)
    usual, slow, _ = np.percentile(_pooled(runs), PERCENTILES)
    first = (
        f"At {grouped(runs[0].run.cps)} calls per second one message in a hundred takes longer than {in_us(slow)} "
        f"from its arrival until the proxy sends it on, {number(slow / usual)} times as long as a usual one"
    )
    way = slow_way(runs)
    if way is None:
        return Answer(f"{first}.")
    most = int(np.argmax(way.stages_us))
    share = 100 * way.stages_us[most] / way.stages_us.sum()
    return Answer(f"{first}; {share:.0f} % of that is spent {list(STAGES.values())[most]}.")


def distributions(found: Found) -> Figure | Words:
    """Draw how many messages take longer than a time, by load."""
    return _of_page(ccdf(found.all), found) if found.by_load else Words((NOTHING,))


def by_load(found: Found) -> Table:
    """List how long messages take at each load, and what a slow one spends its time in."""
    rows = []
    for cps, runs in found.by_load.items():
        total = _pooled(runs)
        refused = sum(len(run.drop_at_s) for run in runs)
        way = slow_way(runs)
        shares: tuple[str, ...] = ("not seen",) * 3
        if way is not None:
            stages = 100 * way.stages_us / way.stages_us.sum()
            shares = tuple(f"{value:.0f} %" for value in (stages[:3].sum(), stages[3], stages[4]))
        rows.append(
            (
                grouped(cps),
                str(len(runs)),
                grouped(len(total)),
                grouped(refused),
                *(in_us(value) for value in np.percentile(total, PERCENTILES)),
                *shares,
            )
        )
    return Table(
        identity="table-messages",
        header=(
            "cps",
            "runs",
            "messages",
            "refused",
            "median",
            "p99",
            "99.9 %",
            "wait",
            "service on a CPU",
            "service off CPU",
        ),
        groups=(("", 4), ("K_rcv + T_sip", 3), ("of a slow message's time", 3)),
        rows=tuple(rows),
        none=NOTHING,
        caption="How long the messages of all runs at a load take, and what the time of those next to the 99th "
        "percentile is made of.",
        provenance=_provenance(found),
    )


def ways(found: Found) -> Several:
    """Draw what a message's time is made of, by type, at the lowest load and at the highest."""
    ends = {min(found.by_load), max(found.by_load)} if found.by_load else set()
    drawn = [waterfall(found.by_load[cps]) for cps in sorted(ends)]
    return _several(drawn, found, NO_STAGES)


def around(found: Found) -> Several:
    """Draw who ran while a slow message waited, at the lowest load and at the highest."""
    ends = {min(found.by_load), max(found.by_load)} if found.by_load else set()
    return _several([lanes(found.by_load[cps][0]) for cps in sorted(ends)], found, NOTHING)


def over_time(found: Found) -> Several:
    """Draw the first run at the highest load over time: a heat map; and beside the lowest, waits, queue and drops."""
    if not found.by_load:
        return _several([], found, NOTHING)
    ends = sorted({min(found.by_load), max(found.by_load)})
    pair = timeline([found.by_load[cps][0] for cps in ends], on_phone=True)
    return _several([heat_map(found.highest[0]), pair], found, NOTHING)


def versions(found: Found) -> Words:
    """Name the versions that made this page, and the hashes of its data."""
    return tables.versions(*found.files)


def conditions(found: Found) -> Words:
    """Say which runs these are, and where they were made."""
    runs = found.all
    if not runs:
        return Words((NOTHING,))
    run = runs[0].run
    of_all = (
        f"{run.sut}, mode {run.mode}, {plural(run.cores, 'core')}, {plural(run.threads, 'thread')}"
    )
    return Words((f"{plural(len(runs), 'run')}: {of_all}.", f"{provenance(runs)}."))


def _provenance(found: Found) -> str:
    """Say of what was not measured what it is; of what was the page says once where."""
    return provenance(found.all) if any(r.testbed_kind == "simulated" for r in found.all) else ""


def _of_page(figure: Figure, found: Found) -> Figure:
    return replace(figure, provenance=_provenance(found))


def _several(figures: Iterable[Figure | None], found: Found, otherwise: str) -> Several:
    drawn = tuple(
        _of_page(replace(figure, identity=f"{figure.identity}-{place}"), found)
        for place, figure in enumerate(figures, start=1)
        if figure is not None
    )
    return Several(drawn or (Words((otherwise,)),))


def _most(runs: list[Run]) -> list[Run]:
    """Keep those of the configuration that has the most."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.sut, run.cores, run.threads), []).append(run)
    return max(groups.values(), key=len, default=[])


def _totals(run: Messages) -> npt.NDArray[np.float64]:
    total = run.wait_us + run.service_us
    return total[~np.isnan(total)]


def _pooled(runs: Iterable[Messages]) -> npt.NDArray[np.float64]:
    return np.concatenate([_totals(run) for run in runs])
