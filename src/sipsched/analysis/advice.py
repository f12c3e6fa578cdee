"""Which of the modes that were compared within runs is to be advised, by load: the decision, as values.

A mode *beats* the reference where the sum K_rcv + T_sip, which is what a caller feels, is lower by
more than chance: its 99th percentile decides, and where that is not told from 0 its mean. It does so
*at a cost* where PDR, CPU time a message or the mean of the sum are higher by more than chance. The sham
windows play the reference against itself: where they show a difference, only what lies beyond it counts.
docs/methodology.md, "Crossover runs: advice".
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from sipsched.analysis.blocks import POWER, mean_of_blocks
from sipsched.analysis.crossover import Change, Doubt, Effect, Scale, Tables, change, effect
from sipsched.analysis.families import Asked, Effects, effects_together
from sipsched.analysis.probe_cost import STILLED
from sipsched.analysis.run_table import read_campaigns
from sipsched.analysis.statistics import (
    LEVEL,
    NOT_MEASURED,
    TOO_FEW,
    Interval,
)
from sipsched.plan.crossover import compared
from sipsched.plan.modes import is_translation, plain
from sipsched.records.crossing import Crossing, read_crossing
from sipsched.records.windows import SHAM, by_arm, open_windows

DECIDING = ("total_p99", "total_mean")
"""What decides, in this order: `total` is K_rcv + T_sip of the same message."""
GUARDS = ("pdr", "cpu_per_message")
"""What a mode must not raise."""
SQUEEZED = "squeezed_per_s"
"""Times a second that the kernel's packet work ran out of its budget (softnet_stat, time_squeeze)."""
QUANTITIES = (
    *("k_rcv_mean", "k_rcv_p99", "t_sip_mean", "t_sip_p99"),
    *("total_mean", "total_p50", "total_p99", "cpu_per_message", "pdr", SQUEEZED),
)
DIFFERENCES = frozenset({"pdr", SQUEEZED})
"""Compared as differences, since they may be 0."""
RUNS_AS_SAMPLE = 6
"""Runs from which they are taken as a sample of all runs."""
ALIKE = math.log(1.05)
"""An effect whose interval lies within ± 5 % does nothing that matters."""


class Verdict(StrEnum):
    """What a mode does to the sum, compared with the reference."""

    BETTER = "better"
    TRADE = "better, at a cost"
    WORSE = "worse"
    ALIKE = "alike"
    UNSURE = "not told apart"
    UNKNOWN = "not known"


class Place(NamedTuple):
    """What the load is put on, and the mode that others are compared with."""

    testbed: str
    sut: str
    cores: int
    threads: int
    reference: str


@dataclass(frozen=True)
class Load:
    """The runs that compare modes with one reference at one load of a place.

    Attributes
    ----------
    place, cps
        Where.
    capacity
        The search that found what the SPS carries; None if there is none.
    runs
        What `open_windows` gives; runs of several comparisons may stand here together.
    """

    place: Place
    cps: int
    capacity: Crossing | None
    runs: tuple[xr.Dataset, ...]

    @property
    def share(self) -> float | None:
        """The load as a share of the highest that the search found under the limit."""
        return self.cps / self.capacity.loads[0] if self.capacity else None

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """The modes that were played beside the reference, in the order of the comparisons.

        The same mode with the probe stilled is none: `probe_cost` compares the two.
        """
        found = dict.fromkeys(mode for run in self.runs for mode in modes_of(run)[1:])
        return tuple(mode for mode in found if not mode.endswith(STILLED))

    @property
    def unavailable(self) -> dict[str, str]:
        """Modes that the kernel refused in every run, to its reason."""
        refused = {
            k: v for run in self.runs for k, v in json.loads(run.attrs["unavailable"]).items()
        }
        return {mode: why for mode, why in refused.items() if mode not in self.modes}

    @property
    def same_settings(self) -> tuple[tuple[str, ...], ...]:
        """Groups of modes that come to the same settings: only the first of each was played."""
        groups = (
            tuple(each) for run in self.runs for each in json.loads(run.attrs["same_settings"])
        )
        return tuple(dict.fromkeys(groups))

    def label(self, mode: str) -> str:
        """Name a mode as it was on the kernel at hand, but for `translations`."""
        return plain(self._recorded_labels.get(mode, mode))

    @property
    def translations(self) -> tuple[str, ...]:
        """The modes that were translations there."""
        found = self._recorded_labels
        return tuple(mode for mode in found if is_translation(found[mode]))

    @property
    def _recorded_labels(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for run in self.runs:
            labels = zip(modes_of(run), json.loads(run.attrs["labels"]), strict=False)
            found = {mode: str(label) for mode, label in labels} | found
        return found

    def settings(self, mode: str) -> list[dict[str, Any]]:
        """Give the steps of a mode as `run.json` has them; none of a mode that changes nothing."""
        for run in self.runs:
            if mode in modes_of(run):
                steps = dict(zip(modes_of(run), json.loads(run.attrs["settings"]), strict=False))
                return list(steps.get(mode, []))
        return []

    def tables(self, arm: str, quantity: str, washout: int = 0) -> Tables:
        """Give a table a run of the reference beside another arm, shape (block, 2)."""
        return [
            by_arm(run, quantity, washout)[:, [0, arms_of(run).index(arm)]]
            for run in self.runs
            if arm in arms_of(run)
        ]

    def effect(self, arm: str, quantity: str, level: float = LEVEL) -> Effect:
        """Tell what an arm does to a quantity."""
        return effect(self.tables(arm, quantity), 0, 1, scale_of(quantity), level)

    def change(self, arm: str, quantity: str, level: float) -> Change:
        """Tell how far an effect moves from the first washout to the second."""
        first, second = (self.tables(arm, quantity, washout) for washout in (0, 1))
        # whether an effect moves is told by intervals: no test by randomisation
        return change(first, second, 0, 1, scale_of(quantity), level, resamples=1)

    def mean(self, arm: str, quantity: str) -> Interval:
        """Average a quantity over the windows of an arm that count."""
        columns = [
            by_arm(run, quantity)[:, arms_of(run).index(arm)]
            for run in self.runs
            if arm in arms_of(run)
        ]
        values = [column[~np.isnan(column)] for column in columns]
        values = [column for column in values if column.size > 1]
        pooled = np.concatenate([np.empty(0), *values])
        if not pooled.size:
            return Interval.without(np.nan, 0, why=NOT_MEASURED)
        # what does not vary within a run has no error that its blocks could tell
        if not any(map(np.ptp, values)):
            return Interval.without(float(pooled.mean()), pooled.size, why=TOO_FEW)
        mean = mean_of_blocks(values)
        low, high = mean.ends()
        # times, counts and shares
        return Interval(mean.estimate, max(low, 0.0), high, pooled.size, method="blocks")


def modes_of(run: xr.Dataset) -> tuple[str, ...]:
    """Name the modes that a run played, the reference first."""
    return tuple(json.loads(run.attrs["modes"]))


def arms_of(run: xr.Dataset) -> list[str]:
    """Name the arms of a run: its modes and the sham."""
    return [str(arm) for arm in run["arm"].to_numpy()]


def scale_of(quantity: str) -> Scale:
    """Say how a quantity is compared."""
    return Scale.DIFFERENCE if quantity in DIFFERENCES else Scale.RATIO


def settled(effect: Effect) -> Interval:
    """Give the interval to decide by: of any run like these where there are enough, else of these runs.

    With three runs t has two degrees of freedom: at the level of 24 comparisons its quantile is 22. Below
    `RUNS_AS_SAMPLE` runs that agree within what their blocks explain, the blocks are the sample.
    """
    few = effect.runs < RUNS_AS_SAMPLE and Doubt.RUNS_DIFFER not in effect.doubts
    return effect.here if few else effect.interval


def is_conditional(effect: Effect) -> bool:
    """Tell whether `settled` speaks of these runs only."""
    return effect.conditional or settled(effect) is not effect.interval


def detectable(effect: Effect) -> float:
    """Give the smallest effect that would have been seen with a power of 80 %; NaN without an interval."""
    interval = settled(effect)
    if interval is effect.interval or not interval.known:
        return effect.detectable
    quantile = float(special.ndtri((1 + interval.level) / 2))
    half = (interval.high - interval.low) / 2
    return half * (quantile + float(special.ndtri(POWER))) / quantile


def is_lower(interval: Interval, floor: float = 0.0) -> bool:
    """Tell whether an interval lies below 0, by more than a floor."""
    return interval.known and interval.high < -floor


def is_higher(interval: Interval, floor: float = 0.0) -> bool:
    """Tell whether an interval lies above 0, by more than a floor."""
    return interval.known and interval.low > floor


@dataclass(frozen=True)
class Candidate:
    """A mode at a load, compared with the reference.

    Attributes
    ----------
    mode
        Its name.
    effects
        By quantity. Of `DECIDING` ones the intervals hold together over the page's modes and loads, any
        other has its own 95 %.
    verdict
        What it does to the sum.
    decided_by
        The quantity that the verdict rests on; empty if none.
    costs
        Quantities that it raises by more than chance, of those it must not.
    """

    mode: str
    effects: Mapping[str, Effect]
    verdict: Verdict
    decided_by: str
    costs: tuple[str, ...]

    @property
    def beats(self) -> bool:
        """Whether it lowers the sum and costs nothing."""
        return self.verdict is Verdict.BETTER


@dataclass(frozen=True)
class Ranking:
    """The modes compared at a load, the lowest 99th percentile of the sum first.

    Attributes
    ----------
    load
        Where.
    candidates
        Ranked; the reference stands where its 0 does.
    sham
        The reference against itself, by quantity; `DECIDING` ones hold together over the loads.
    floors
        By `DECIDING` quantity: the largest effect that the sham may have, where it is told from 0; else 0.
    level
        Of the `DECIDING` intervals of the candidates.
    """

    load: Load
    candidates: tuple[Candidate, ...]
    sham: Mapping[str, Effect]
    floors: Mapping[str, float]
    level: float

    @property
    def best(self) -> Candidate | None:
        """The mode to be advised; None if none beats the reference."""
        return next((each for each in self.candidates if each.beats), None)

    @property
    def trades(self) -> tuple[Candidate, ...]:
        """Modes that lower the sum at a cost."""
        return tuple(each for each in self.candidates if each.verdict is Verdict.TRADE)

    @property
    def judged(self) -> bool:
        """Whether any mode has an interval to be judged by."""
        return any(each.verdict is not Verdict.UNKNOWN for each in self.candidates)

    @property
    def alike(self) -> bool:
        """Whether all modes come within ± 5 % of the reference."""
        return bool(self.candidates) and all(
            each.verdict is Verdict.ALIKE for each in self.candidates
        )

    def detectable(self, quantity: str = DECIDING[0]) -> float:
        """Give the smallest effect that would have been seen in every mode; NaN if none would."""
        found = [detectable(each.effects[quantity]) for each in self.candidates]
        return max(found) if found and not any(map(math.isnan, found)) else math.nan


@dataclass(frozen=True)
class Advice:
    """What is known of a place, by load, ascending.

    Attributes
    ----------
    place
        Where.
    rankings
        A load each.
    tests
        Comparisons that the advice rests on, over all loads.
    """

    place: Place
    rankings: tuple[Ranking, ...]
    tests: int

    @property
    def recommended(self) -> tuple[str, ...]:
        """The modes advised at any load."""
        return tuple(dict.fromkeys(each.best.mode for each in self.rankings if each.best))


def find_windows(summary: Path, given: Iterable[str | Path] | None = None) -> list[Path]:
    """List the `windows.nc` of the runs of a study that count.

    Parameters
    ----------
    summary
        Its combined summary, `results/STUDY/TESTBED/summary.nc`.
    given
        Files to choose from; None: what there is in `results/runs`, beside the study.
    """
    (campaign,) = read_campaigns([summary])
    names = [Path(run.path, "windows.nc") for run in campaign.comparisons]
    if given is None:
        found = [summary.parents[2] / "runs" / name for name in names]
        return [path for path in found if path.is_file()]
    wanted = {name.parts for name in names}
    length = max(map(len, wanted), default=0)
    return [path for path in map(Path, given) if path.parts[-length:] in wanted]


def read_loads(windows: Iterable[Path], crossings: Iterable[Path] = ()) -> tuple[Load, ...]:
    """Read the windows of runs, and put those that belong together together.

    Parameters
    ----------
    windows
        Files `windows.nc`.
    crossings
        Files `crossing.json`; loads are then known as shares of what was found.

    Returns
    -------
    tuple
        Ordered by place as first met, then by load.

    Raises
    ------
    StableError
        A file is missing, damaged or of another version.
    """
    return loads_of(map(open_windows, windows), [read_crossing(path) for path in crossings])


def loads_of(runs: Iterable[xr.Dataset], crossings: Sequence[Crossing] = ()) -> tuple[Load, ...]:
    """Put runs together that compare with one reference at one load of a place."""
    found: dict[Place, dict[int, list[xr.Dataset]]] = {}
    for run in runs:
        attrs = run.attrs
        if all(mode.endswith(STILLED) for mode in compared(attrs["mode"])[1:]):
            # of the probe's cost alone
            continue
        counts = (int(attrs["cores"]), int(attrs["threads"]))
        place = Place(attrs["testbed"], attrs["sut"], *counts, modes_of(run)[0])
        found.setdefault(place, {}).setdefault(int(attrs["cps"]), []).append(_with_rates(run))
    return tuple(
        Load(place, cps, _capacity(place, crossings), tuple(sorted(of_load, key=_order)))
        for place, by_load in found.items()
        for cps, of_load in sorted(by_load.items())
    )


def _order(run: xr.Dataset) -> tuple[str, int]:
    return run.attrs["mode"], int(run.attrs["rep"])


def _with_rates(run: xr.Dataset) -> xr.Dataset:
    """Add what the kernel's packet work ran out of, a second, in the form of the other quantities."""
    rate = (run["time_squeeze"] / run["length"]).to_numpy()
    return run.assign({SQUEEZED: (("washout", "window"), np.tile(rate, (run.sizes["washout"], 1)))})


def _capacity(place: Place, crossings: Sequence[Crossing]) -> Crossing | None:
    """Take the search of this place: in the reference mode, or else the first there is."""
    there = [
        each
        for each in crossings
        if (each.point.testbed, each.point.sut, each.point.cores, each.point.threads) == place[:4]
    ]
    of_reference = [each for each in there if each.point.mode == place.reference]
    return next(iter(of_reference or there), None)


def advise(loads: Iterable[Load], quantities: Sequence[str] = QUANTITIES) -> tuple[Advice, ...]:
    """Compare the modes of each place with its reference, load by load, and decide.

    Parameters
    ----------
    loads
        What `read_loads` gives.
    quantities
        Those to give effects of, beside what the decision needs.
    """
    places: dict[Place, list[Load]] = {}
    for load in loads:
        places.setdefault(load.place, []).append(load)
    return tuple(_advise(place, of_place, quantities) for place, of_place in places.items())


def _advise(place: Place, loads: Sequence[Load], quantities: Sequence[str]) -> Advice:
    modes = _together((load, mode) for load in loads for mode in load.modes)
    shams = _together((load, SHAM) for load in loads)
    needed = [name for name in (*GUARDS, *quantities) if name not in DECIDING]
    rankings = []
    for load in loads:
        here = {name: shams.effects[load.cps, SHAM, name].effect for name in DECIDING}
        sham = here | {name: load.effect(SHAM, name) for name in dict.fromkeys(needed)}
        floors = {name: _floor(settled(each)) for name, each in here.items()}
        found = []
        for mode in load.modes:
            deciding = {name: modes.effects[load.cps, mode, name].effect for name in DECIDING}
            others = {name: load.effect(mode, name) for name in dict.fromkeys(needed)}
            found.append(_candidate(mode, deciding | others, floors))
        rankings.append(Ranking(load, tuple(sorted(found, key=_rank)), sham, floors, modes.level))
    return Advice(place, tuple(rankings), modes.tests)


def _together(asked: Iterable[tuple[Load, str]]) -> Effects[tuple[int, str, str]]:
    return effects_together(
        {
            (load.cps, arm, name): Asked(load.tables(arm, name), 0, 1, scale_of(name))
            for load, arm in asked
            for name in DECIDING
        }
    )


def _floor(interval: Interval) -> float:
    told = is_lower(interval) or is_higher(interval)
    return max(abs(interval.low), abs(interval.high)) if told else 0.0


def _rank(candidate: Candidate) -> tuple[bool, float]:
    estimate = settled(candidate.effects[DECIDING[0]]).estimate
    return math.isnan(estimate), estimate


def _candidate(mode: str, effects: Mapping[str, Effect], floors: Mapping[str, float]) -> Candidate:
    intervals = {name: settled(each) for name, each in effects.items()}
    costs = [name for name in GUARDS if is_higher(intervals[name])]
    for name in DECIDING:
        if is_lower(intervals[name], floors[name]):
            # of the two that decide, the other is a cost where it rises
            rises = [each for each in DECIDING if is_higher(intervals[each], floors[each])]
            costs += rises
            verdict = Verdict.TRADE if costs else Verdict.BETTER
            return Candidate(mode, effects, verdict, name, tuple(costs))
        if is_higher(intervals[name], floors[name]):
            return Candidate(mode, effects, Verdict.WORSE, name, tuple(costs))
    deciding = [intervals[name] for name in DECIDING]
    if all(_within(each) for each in deciding):
        verdict = Verdict.ALIKE
    elif any(each.known for each in deciding):
        verdict = Verdict.UNSURE
    else:
        verdict = Verdict.UNKNOWN
    return Candidate(mode, effects, verdict, "", tuple(costs))


def _within(interval: Interval) -> bool:
    """Tell whether an effect lies within ± 5 %; windows that are all equal have one of 0."""
    if not interval.known:
        return interval.estimate == 0
    return interval.low >= -ALIKE and interval.high <= ALIKE
