"""The page about the migration cost, a scheduler parameter: figure 2 of the multi-core paper, measured again here.

SEE Krishnamurthy and Rouskas, Performance Evaluation of Multi-Core, Multi-Threaded SIP Proxy Servers,
IEEE ICC 2016, section IV-A.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from sipsched.analysis.comparison import (
    Place,
    quantities,
    runs_at,
    settings_of,
    why_not_measured,
)
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.families import Family, Pair, compare_together
from sipsched.analysis.intervals import Interval, Values, typical_interval, typical_intervals
from sipsched.analysis.run_table import counted, provenance
from sipsched.errors import StableError
from sipsched.pages.modes.percent_lower import least
from sipsched.pages.numbers import NO_ENTRY, Number, in_words, p_text, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Table, Words
from sipsched.pages.plots import (
    Curve,
    categories,
    draw_curve,
    from_zero,
    limit_line,
    look,
    not_measured,
    panels,
)
from sipsched.plan.modes import Setting, find_mode, label, load_modes
from sipsched.records.study_summary import NOT_PLANNED
from sipsched.words import grouped, listed, plural

DEFAULT_COST_NS = 500_000
"""The kernel's default of the scheduler setting sched_migration_cost_ns."""
PUBLISHED_BEST = {2: 0, 4: 0, 6: 500_000}
"""The migration cost in ns that the paper found best, per number of cores (sections III-A and IV-A)."""
TITLES = {"pdr": "PDR (%)", "k_rcv": "K_rcv (µs)"}
SCALES = {"pdr": 100.0, "k_rcv": 1.0}
CHANGES = {
    "pdr": ("the proxy drops fewer messages", "the proxy drops more messages"),
    "k_rcv": ("messages wait for a shorter time", "messages wait for a longer time"),
}
"""Words for a decrease and for an increase of a quantity."""
MOST_NAMED = 3
"""Largest number of points that the answer names. The table of the page names all points."""


class Spot(NamedTuple):
    """A proxy (with its numbers of cores and threads) and a load, for which the figure has one line."""

    place: Place
    cps: int

    def __str__(self) -> str:
        """Return the numbers of cores and threads and the load (calls per second) as text."""
        return f"{self.place}, {grouped(self.cps)} cps"


@dataclass(frozen=True)
class CostPoint:
    """The measured drop rate and waiting time with one migration cost, for one proxy and load.

    Attributes
    ----------
    why
        The reason why the figure excludes this cost, for example because the cost was not in force. Empty if the point
        is drawn.
    values
        PDR (%) and K_rcv (µs) by run, shape (rep,).
    """

    spot: Spot
    mode: str
    cost_ns: int
    why: str
    values: dict[str, Values]


class Asked(NamedTuple):
    """The key of a comparison between a migration cost and the default cost: proxy and load, mode, and quantity."""

    spot: Spot
    mode: str
    quantity: str


@dataclass(frozen=True)
class CostStudy:
    """The data of the page about the migration cost: measured values, and comparisons with the default cost.

    Attributes
    ----------
    against
        The comparisons of each cost with the default, over pairs of runs with the same arrivals.
    default_ns
        The reference cost of all comparisons.
    """

    summary: xr.Dataset
    points: tuple[CostPoint, ...]
    against: Family[Asked]
    default_ns: int
    limit: float

    @property
    def spots(self) -> list[Spot]:
        """The pairs of a proxy and a load. Each pair has one line in the figure."""
        return list(dict.fromkeys(point.spot for point in self.points))

    def at(self, spot: Spot) -> list[CostPoint]:
        """Return the results of one proxy and load, in ascending order of the migration cost."""
        return sorted((p for p in self.points if p.spot == spot), key=lambda p: p.cost_ns)

    def name(self, spot: Spot) -> str:
        """Return cores, threads and load as text. If several proxies were measured, the text begins with the proxy."""
        return str(spot) if self.summary.sizes["sut"] == 1 else f"{spot.place.sut}, {spot}"


def cost_of(mode: str) -> int | None:
    """Return the migration cost that a mode sets, in ns. None if the mode keeps the kernel's cost.

    Raises
    ------
    StableError
        The mode is not declared in config/modes.yaml.
    """
    return find_mode(mode, load_modes()).overrides.get(Setting.MIGRATION_COST)


def study(
    summary: xr.Dataset, default_ns: int = DEFAULT_COST_NS, limit: float = PDR_LIMIT
) -> CostStudy:
    """Collect the results of a study whose modes set different migration costs.

    Parameters
    ----------
    default_ns
        The reference cost of all comparisons.
    limit
        Packet drop rate at which capacity ends, as a share.

    Raises
    ------
    StableError
        No mode of the study overrides the cost.
    """
    costs = {str(mode): cost_of(str(mode)) for mode in summary["mode"].to_numpy()}
    costs = {mode: cost for mode, cost in costs.items() if cost is not None}
    if not costs:
        raise StableError(
            "migration cost: no mode of this study overrides it; expected modes such as "
            f"enhanced+{Setting.MIGRATION_COST}={DEFAULT_COST_NS}"
        )
    values = quantities(counted(summary))
    points = []
    for spot, mode in _planned(summary):
        cost = costs.get(mode)
        if cost is None:
            continue
        runs = {
            name: SCALES[name] * runs_at(values[name], spot.place, mode, spot.cps)
            for name in TITLES
        }
        why = _why_not_in_force(summary, spot.place, mode, cost)
        if np.isnan(runs["pdr"]).all():
            why = why_not_measured(summary, spot.place, mode)
        points.append(CostPoint(spot, mode, cost, why, runs))
    against = compare_together(_pairs(points, default_ns))
    return CostStudy(summary, tuple(points), against, default_ns, limit)


def _planned(summary: xr.Dataset) -> Iterator[tuple[Spot, str]]:
    planned = (summary["status"] != NOT_PLANNED).any("rep")
    for place in np.argwhere(
        planned.transpose("sut", "cores", "threads", "cps", "mode").to_numpy()
    ):
        sut, cores, threads, cps, mode = (
            summary[dim].to_numpy()[i]
            for dim, i in zip(("sut", "cores", "threads", "cps", "mode"), place, strict=True)
        )
        yield Spot(Place(str(sut), int(cores), int(threads)), int(cps)), str(mode)


def _why_not_in_force(summary: xr.Dataset, place: Place, mode: str, cost: int) -> str:
    """Return as text why the migration cost of a mode was not in force. Empty if the cost was in force."""
    recorded = settings_of(summary, place, mode)
    if not recorded:
        return "the record does not say whether the kernel applied the cost"
    for settings in recorded:
        steps = {step["setting"]: step for step in settings["steps"]}
        step = steps.get(str(Setting.MIGRATION_COST))
        if step is None:
            return "the run did not request the cost"
        if step["unavailable"]:
            return f"this kernel does not allow setting the cost: {step['unavailable']}"
        if step["applied"] != cost:
            return f"the kernel applied another cost, {_cost(int(step['applied']))}"
    return ""


def _pairs(points: Sequence[CostPoint], default_ns: int) -> dict[Asked, Pair]:
    """Return, per migration cost and quantity, the values of runs with the default cost and of runs with this cost."""
    pairs: dict[Asked, Pair] = {}
    for point in points:
        reference = next(
            (p for p in points if p.spot == point.spot and p.cost_ns == default_ns and not p.why),
            None,
        )
        if point.why or reference is None or point is reference:
            continue
        for name in TITLES:
            asked = Asked(point.spot, point.mode, name)
            pairs[asked] = (reference.values[name], point.values[name])
    return pairs


def answer(cost_study: CostStudy) -> Answer:
    """Return sentences that list the migration costs which change waits or drops by more than chance explains."""
    drawn = [point for point in cost_study.points if not point.why]
    if not drawn:
        why = listed(list(dict.fromkeys(point.why for point in cost_study.points)))
        return Answer(f"There is no answer yet ({why or 'no run was planned'}).")
    judged = {
        asked: cell
        for asked, cell in cost_study.against.cells.items()
        if not np.isnan(cell.p_value)
    }
    default = f"the default, {_cost(cost_study.default_ns)}"
    if not judged:
        return Answer(
            f"There is no answer yet. To compare costs, more runs with {default}, and runs with other costs must "
            "have the same arrivals."
        )
    places: dict[tuple[str, str], list[str]] = {}
    for name, words in CHANGES.items():
        for is_lower, change in zip((True, False), words, strict=True):
            for asked, cell in judged.items():
                lower = cell.comparison.percent_lower.estimate > 0
                if asked.quantity == name and cell.stands_out and lower is is_lower:
                    cost = _cost(_cost_at(cost_study, asked))
                    places.setdefault((cost, change), []).append(cost_study.name(asked.spot))
    told = [
        f"With a migration cost of {cost}, {change} at {_points(names)}."
        for (cost, change), names in places.items()
    ]
    if told:
        return Answer(f"All migration costs are compared with {default}. {' '.join(told)}")
    limits = [
        least(
            [cell.comparison for asked, cell in judged.items() if asked.quantity == name],
            f" of {title}",
        )
        for name, title in (("k_rcv", "the mean wait K_rcv"), ("pdr", "the drop rate"))
    ]
    return Answer(
        "No migration cost changes waits or drops by more than chance explains, compared with "
        f"{default} (in {plural(len(judged), 'comparison')}).{''.join(limits)}"
    )


def _points(names: Sequence[str]) -> str:
    """Return the names of points as text, or only their number if they are many."""
    return (
        " and at ".join(names)
        if len(names) <= MOST_NAMED
        else f"{len(names)} points (see the table)"
    )


def _cost_at(cost_study: CostStudy, asked: Asked) -> int:
    return next(
        point.cost_ns
        for point in cost_study.points
        if (point.spot, point.mode) == (asked.spot, asked.mode)
    )


def curves(cost_study: CostStudy) -> Figure:
    """Return a figure of K_rcv (waiting time) and PDR (drop rate) against the migration cost."""
    costs = sorted({point.cost_ns for point in cost_study.points})

    names = ["k_rcv", "pdr"]

    def draw(axis: Axes, _: int, column: int) -> None:
        name = names[column]
        curves = [
            _curve(cost_study, spot, name, i, costs) for i, spot in enumerate(cost_study.spots)
        ]
        categories(axis, [_cost(cost) for cost in costs])
        axis.tick_params(axis="x", labelrotation=45)
        for curve in filter(None, curves):
            draw_curve(axis, curve)
        if not any(curves):
            not_measured(axis)
            return
        from_zero(axis)
        if name == "pdr":
            limit_line(axis, 100 * cost_study.limit)

    return Figure(
        identity="figure-migration-cost",
        draw=panels(
            [""],
            [TITLES[name] for name in names],
            draw,
            "sched_migration_cost",
            shared=("", ""),
            height_in=3.0,
            beside=False,
        ),
        caption="Mean waiting time (K_rcv) and packet drop rate (PDR) against the scheduler's migration cost "
        f"(sched_migration_cost), for each number of cores. In all runs, {_others(cost_study)}.",
        seen=best(cost_study).lines,
        reading="Each small point is a run. The line shows the typical run with its 95 % interval. The costs on the x "
        "axis are evenly spaced, not to scale. The dashed line marks a PDR of "
        f"{100 * cost_study.limit:g}\u00a0%. The figure excludes runs in which the kernel did not apply the cost.",
        provenance=provenance(cost_study.summary),
    )


def _curve(cost_study: CostStudy, spot: Spot, name: str, i: int, costs: list[int]) -> Curve | None:
    """Return the curve of one quantity against the migration cost, for one proxy and load. None without data."""
    points = [point for point in cost_study.at(spot) if not point.why]
    if not points:
        return None
    runs = np.array([point.values[name] for point in points])
    return Curve(
        name=cost_study.name(spot),
        look=look(i),
        x=np.array([costs.index(point.cost_ns) for point in points], float),
        of=typical_intervals(runs),
        runs=runs,
        unit="%" if name == "pdr" else "µs",
        x_names=[_cost(point.cost_ns) for point in points],
        shift=0.08 * (i - (len(cost_study.spots) - 1) / 2),
    )


def best(cost_study: CostStudy) -> Words:
    """Return sentences that compare the best migration cost with the default cost and with the paper's result."""
    lines = list(_obstacles(cost_study))
    for spot in cost_study.spots:
        points = [point for point in cost_study.at(spot) if not point.why]
        if not points:
            continue
        for name, title in (("pdr", "PDR"), ("k_rcv", "K_rcv")):
            means = {p.cost_ns: (p, typical_interval(p.values[name])) for p in points}
            known = {cost: m for cost, m in means.items() if not np.isnan(m[1].estimate)}
            if known:
                lines.append(f"{cost_study.name(spot)}: {_best(cost_study, name, title, known)}")
        told_by_paper = PUBLISHED_BEST.get(spot.place.cores)
        if told_by_paper is not None:
            lines.append(
                f"In the multi-core paper, a cost of {_cost(told_by_paper)} was best on "
                f"{plural(spot.place.cores, 'core')}."
            )
    return Words(tuple(lines or ["There is nothing to show yet, because no run is valid."]))


def _best(
    cost_study: CostStudy, name: str, title: str, means: Mapping[int, tuple[CostPoint, Interval]]
) -> str:
    least = min(mean.estimate for _, mean in means.values())
    winners = [cost for cost, (_, mean) in means.items() if mean.estimate == least]
    cost = winners[0]
    point, mean = means[cost]
    if len(winners) > 1:
        which = ", ".join(map(_cost, winners))
        return f"{title} is the same, {_unit(mean, name)}, at costs of {which}."
    text = f"{title} is lowest, {_unit(mean, name)}, at a cost of {_cost(cost)}"
    if len(means) == 1:
        return f"{text}. No other cost was measured."
    if cost == cost_study.default_ns:
        return f"{text}. This is the default cost."
    against = cost_study.against.cells.get(Asked(point.spot, point.mode, name))
    if against is None:
        return f"{text}. The default, {_cost(cost_study.default_ns)}, was not measured."
    lower = against.comparison.percent_lower
    text += f". This value is {with_unit(lower, '%')} lower than at the default cost of {_cost(cost_study.default_ns)}"
    if np.isnan(against.p_value):
        return f"{text}."
    return f"{text} ({p_text(against.p_value)}). " + (
        "The difference is larger than chance explains."
        if against.stands_out
        else "The difference is indistinguishable from chance."
    )


def _obstacles(cost_study: CostStudy) -> Iterator[str]:
    """Yield sentences that list the migration costs which the figure excludes, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for point in cost_study.points:
        if point.why:
            where = f"{cost_study.name(point.spot)} at {_cost(point.cost_ns)}"
            reasons.setdefault(point.why, []).append(where)
    for why, places in reasons.items():
        if len(places) == len(cost_study.points):
            yield f"There is nothing to show yet ({why})."
        else:
            yield f"The figure excludes these costs ({why}): {'; '.join(places)}."
    if any(spot.place.cores == 1 for spot in cost_study.spots):
        yield "With one core, workers cannot migrate, so the migration cost has no effect."


def costs(cost_study: CostStudy) -> Table:
    """Return a table of drop rate (PDR) and waiting time (K_rcv), with one row per proxy, load and migration cost."""
    rows: list[tuple[Cell, ...]] = []
    for spot in cost_study.spots:
        for point in cost_study.at(spot):
            where = (cost_study.name(spot), _cost(point.cost_ns))
            if point.why:
                rows.append((*where, "0", point.why, *[NO_ENTRY] * 3))
                continue
            means = {name: typical_interval(point.values[name]) for name in TITLES}
            n = means["pdr"].n
            cells: list[Cell] = []
            for name, mean in means.items():
                cells += [
                    told(mean, "%" if name == "pdr" else "µs", n),
                    _against(cost_study, point, name, n),
                ]
            rows.append((*where, str(n), *cells))
    lower = f"lower than at {_cost(cost_study.default_ns)} (%)"
    return Table(
        identity="table-migration-cost",
        header=("", "cost", "runs", "PDR (%)", lower, "K_rcv", lower),
        places=1,
        rows=tuple(rows),
        none="no run is planned",
        caption="Packet drop rate (PDR) and mean waiting time (K_rcv) at each migration cost "
        "(sched_migration_cost). In all runs, "
        f"{_others(cost_study)}.",
        reading=f"Each number describes the typical run, with its 95 % interval. {_family(cost_study)}",
        provenance=provenance(cost_study.summary),
    )


def _family(cost_study: CostStudy) -> str:
    """Return sentences that explain how the intervals are corrected for the number of comparisons."""
    tests = cost_study.against.tests
    if not tests:
        return f"No run has the same arrivals as a run at {_cost(cost_study.default_ns)}, so no costs are compared."
    return (
        f"Each cost is compared with {_cost(cost_study.default_ns)} over pairs of runs with the same arrivals. Each "
        f"interval of the {plural(tests, 'comparison')} has a level of {100 * cost_study.against.level:.3g}\u00a0% "
        "(Bonferroni's correction). With a probability of 95\u00a0%, all these intervals contain their true values. "
        "The p-values are from paired t tests with Holm's correction."
    )


def _against(cost_study: CostStudy, point: CostPoint, name: str, n: int) -> Cell:
    if point.cost_ns == cost_study.default_ns:
        return "the default"
    against = cost_study.against.cells.get(Asked(point.spot, point.mode, name))
    if against is None:
        return "default not measured"
    return Number(against.comparison.percent_lower, "%", n=n, p_value=against.p_value)


def _others(cost_study: CostStudy) -> str:
    """Return as text which mode determines all settings other than the migration cost."""
    bases = set()
    for point in cost_study.points:
        name = point.mode.replace(f"+{Setting.MIGRATION_COST}={point.cost_ns}", "")
        known = settings_of(cost_study.summary, point.spot.place, point.mode)
        bases |= {
            label(name, settings["translated"], _missing(settings)) for settings in known
        } or {name}
    return f"all other settings are those of {' or '.join(sorted(bases))}"


def _missing(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the requested scheduler settings that the kernel lacks, except the migration cost."""
    return [
        step["setting"]
        for step in settings["steps"]
        if step["unavailable"] and step["setting"] != Setting.MIGRATION_COST
    ]


def _unit(mean: Interval, name: str) -> str:
    return in_words(mean, "%" if name == "pdr" else "µs")


def _cost(cost_ns: int) -> str:
    """Return a migration cost as text with its unit, such as "500 µs"."""
    if cost_ns == 0:
        return "0"
    if cost_ns >= 1_000_000:
        return f"{cost_ns / 1e6:g}\u00a0ms"
    return f"{cost_ns / 1e3:g}\u00a0µs" if cost_ns >= 1000 else f"{cost_ns}\u00a0ns"
