"""The recommendation of a scheduler mode for each load, from runs that compare modes.

A mode *beats* the reference mode if it lowers the time per message by more than chance explains. This time is the
receiving time plus the service time (K_rcv + T_sip), which a caller notices. Its 99th percentile decides. If chance
explains the effect on the percentile, the mean decides. A mode beats the reference *at a cost* if it also raises the
drop rate, the CPU time per message or the mean time by more than chance explains. Sham windows are additional windows
in the reference mode. If the sham differs from the reference, an effect must exceed this difference. See
docs/methodology/advice.md.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sipsched.analysis.blocks import mean_of_blocks
from sipsched.analysis.covariates import Adjusted, adjusted
from sipsched.analysis.crossover import Arms, Change, Effect, Scale, Tables, change
from sipsched.analysis.families import ArmsToCompare, Effects, effects_together
from sipsched.analysis.intervals import NOT_MEASURED, TOO_FEW, Interval, Values
from sipsched.analysis.probe_cost import STILLED
from sipsched.analysis.run_table import read_campaigns
from sipsched.analysis.starts import effect_of_starts
from sipsched.plan.crossover import compared, compares_instances
from sipsched.plan.modes import first_start, is_translation, label, relabel, split_name
from sipsched.records.crossing import SearchRecord, read_searches
from sipsched.records.summary_files import split_summary_path
from sipsched.records.system_capacity import SystemCapacity
from sipsched.records.windows import SHAM, by_arm, open_windows

DECIDING = ("total_p99", "total_mean")
"""Quantities that decide whether a mode is better, in order of priority.

`total` is the receiving time plus the service time of a message (K_rcv + T_sip).
"""
GUARDS = ("pdr", "cpu_per_message")
"""Quantities (drop rate and CPU time) that a better mode must not raise. A mode that raises one of them has a cost."""
SQUEEZED = "squeezed_per_s"
"""Name of a quantity: how often per second the kernel's packet processing used up its budget (`time_squeeze`)."""
ADVISED_QUANTITIES = (
    *("k_rcv_mean", "k_rcv_p99", "t_sip_mean", "t_sip_p99"),
    *("total_mean", "total_p50", "total_p99", "cpu_per_message", "pdr", SQUEEZED),
)
DIFFERENCES = frozenset({"pdr", SQUEEZED})
"""Quantities that may be 0. Modes are compared by the difference of such a quantity, because a ratio may not exist."""
SMALL_COSTS = {"cpu_per_message": math.log(1.01)}
"""For a quantity of `GUARDS`, the logarithm of the largest rise that is no cost. The CPU time may rise by 1 %."""
ALIKE = math.log(1.05)
"""Logarithm of the largest change of a quantity that does not matter in practice, which is 5 %."""


class ModeEffect(StrEnum):
    """The result of the comparison of a scheduler mode with the reference mode: better, worse, alike or unknown."""

    BETTER = "better"
    TRADE = "better, at a cost"
    WORSE = "worse"
    ALIKE = "alike"
    UNSURE = "not told apart"
    UNKNOWN = "not known"


class ReferenceSystem(NamedTuple):
    """A system under test on a testbed, with numbers of cores and threads, and with the reference mode."""

    testbed: str
    sut: str
    cores: int
    threads: int
    reference: str


@dataclass(frozen=True)
class ComparedLoad:
    """Runs on one system at one load that compare scheduler modes with a reference mode.

    Attributes
    ----------
    capacity
        Capacity of the SUT in the reference mode, or else in another mode; None if it was not estimated.
    The highest load at which a search before the runs stayed within the drop limit, or else the lowest load above the
    limit. The planned loads are shares of this load. None without a search.
    runs
        One dataset per run, from `open_windows`. The runs may compare different sets of modes.
    """

    place: ReferenceSystem
    cps: int
    capacity: SystemCapacity | None
    planned_cps: int | None
    runs: tuple[xr.Dataset, ...]

    @property
    def share(self) -> float | None:
        """The load as a share of the capacity; None if the capacity was not estimated."""
        known = self.capacity and self.capacity.estimate_cps
        return self.cps / known if known else None

    @cached_property
    def modes(self) -> tuple[str, ...]:
        """The modes that were compared with the reference mode, in the order in which the runs list them.

        Modes that only switch the probe off are excluded, because `probe_cost` evaluates them.
        """
        played = dict.fromkeys(mode for run in self.runs for mode in modes_of(run)[1:])
        return tuple(mode for mode in played if not mode.endswith(STILLED))

    @property
    def one_instance(self) -> bool:
        """True if the runs compare modes of one proxy instance, and not instances with different settings."""
        return not any(compares_instances(run.attrs["mode"]) for run in self.runs)

    @property
    def unavailable(self) -> dict[str, str]:
        """The modes that the kernel refused in every run, each with the reason for the refusal as text."""
        refused = {
            k: v for run in self.runs for k, v in json.loads(run.attrs["unavailable"]).items()
        }
        return {mode: why for mode, why in refused.items() if mode not in self.modes}

    @property
    def same_settings(self) -> tuple[tuple[str, ...], ...]:
        """Groups of modes that are equal on the runs' kernel. A run measures only the first mode of each group."""
        groups = (
            tuple(group) for run in self.runs for group in json.loads(run.attrs["same_settings"])
        )
        return tuple(dict.fromkeys(groups))

    def label(self, mode: str) -> str:
        """Return a mode's name for pages, without a remark that the mode was translated for another scheduler."""
        if mode == self.place.reference and not self.one_instance:
            # If the compared proxies differ in a setting, the name of the mode contains this setting.
            others = [split_name(compared_mode)[1] for compared_mode in self.modes]
            sut = f"+sut={self.place.sut}" if any(other.sut for other in others) else ""
            threads = f"+threads={self.place.threads}" if any(o.threads for o in others) else ""
            cores = f"+cores={self.place.cores}" if any(o.cores for o in others) else ""
            buffer, size = "", self.receive_buffer_bytes(mode)
            if size and any(other.receive_buffer_bytes for other in others):
                # The kernel doubles the requested size of a receive buffer, so the requested size is half of the
                # recorded size.
                buffer = f"+receive_buffer_bytes={size // 2}"
            return label(f"{mode}{sut}{threads}{cores}{buffer}", translated=False, missing=())
        return relabel(mode, self._recorded_labels.get(mode, ""))

    @property
    def translations(self) -> tuple[str, ...]:
        """The modes whose settings were translated from the scheduler CFS to the scheduler of the runs' kernel."""
        labels = self._recorded_labels
        return tuple(mode for mode in labels if is_translation(labels[mode]))

    @property
    def _recorded_labels(self) -> dict[str, str]:
        labels_by_mode: dict[str, str] = {}
        for run in self.runs:
            labels = zip(modes_of(run), json.loads(run.attrs["labels"]), strict=False)
            labels_by_mode = {mode: str(label) for mode, label in labels} | labels_by_mode
        return labels_by_mode

    def receive_buffer_bytes(self, mode: str) -> int | None:
        """Return the effective SO_RCVBUF of the proxy instance that a mode uses; None if no run recorded the size."""
        for run in self.runs:
            sizes = json.loads(run.attrs.get("receive_buffers", "[]"))
            if mode in modes_of(run) and sizes and (size := sizes[modes_of(run).index(mode)]):
                return int(size)
        return None

    @property
    def truesize(self) -> float:
        """Mean number of bytes per message that the kernel charges to the receive buffer; NaN if unknown."""
        sizes = np.array([run.attrs.get("truesize", np.nan) for run in self.runs])
        known = sizes[np.isfinite(sizes)]
        return float(known.mean()) if known.size else np.nan

    def settings(self, mode: str) -> list[dict[str, Any]]:
        """Return the settings of a mode as in `run.json`; empty for a mode that changes no setting."""
        for run in self.runs:
            if mode in modes_of(run):
                steps = dict(zip(modes_of(run), json.loads(run.attrs["settings"]), strict=False))
                return list(steps.get(mode, []))
        return []

    def tables(self, arm: str, quantity: str, washout: int = 0) -> Tables:
        """Return one table of a quantity per run: a row per block, and columns for reference mode, sham and `arm`."""
        return [adjustment.table for adjustment in self._adjusted(arm, quantity, washout)]

    def _adjusted(self, arm: str, quantity: str, washout: int = 0) -> list[Adjusted]:
        adjustments = []
        for i, run in enumerate(self.runs):
            arms = arms_of(run)
            if arm in arms:
                adjustment = self._adjusted_run(i, quantity, washout)
                table = adjustment.table[:, [0, -1, arms.index(arm)]]
                adjustments.append(replace(adjustment, table=table))
        return adjustments

    @cached_property
    def _adjusted_run(self) -> Callable[[int, str, int], Adjusted]:
        """A cached function that adjusts the i-th run for disturbances, because each adjustment takes milliseconds."""

        @cache
        def adjusted_run(i: int, quantity: str, washout: int) -> Adjusted:
            ratio = scale_of(quantity) is Scale.RATIO
            return adjusted(self.runs[i], quantity, washout, ratio=ratio)

        return adjusted_run

    def asked(self, arm: str, quantity: str) -> ArmsToCompare:
        """Return the values of `arm` (a mode or the sham) and of the reference mode in each block, for a comparison.

        Each block has two windows in the reference mode, at random positions. A mode is compared with the average of
        both windows, which scatters less than one window. One of the two reference windows is the sham.
        """
        reference: Arms = 0 if arm == SHAM else (0, 1)
        statistics = self._adjusted(arm, quantity)
        tables, weights = (
            [statistic.table for statistic in statistics],
            [statistic.weights for statistic in statistics],
        )
        return ArmsToCompare(tables, reference, 2, scale_of(quantity), weights)

    def effect(self, arm: str, quantity: str) -> Effect:
        """Return the effect of `arm` (a mode, or the sham) on a quantity, compared with the reference mode."""
        return effects_together({arm: self.asked(arm, quantity)}).effects[arm]

    def start_effect(self, mode: str, quantity: str) -> Effect:
        """Return the difference of a quantity between two starts of a proxy with equal settings."""
        first = first_start(mode)
        ratio = scale_of(quantity) is Scale.RATIO
        runs = [run for run in self.runs if {mode, first} <= set(arms_of(run))]
        adjustments = [adjusted(run, quantity, 0, ratio=ratio) for run in runs]
        columns = [[arms_of(run).index(arm) for arm in (first, mode)] for run in runs]
        asked = ArmsToCompare(
            [
                adjustment.table[:, pair]
                for adjustment, pair in zip(adjustments, columns, strict=True)
            ],
            *(0, 1, scale_of(quantity)),
            [adjustment.weights for adjustment in adjustments],
        )
        return effects_together({mode: asked}).effects[mode]

    def effect_of_all_starts(self, mode: str, quantity: str) -> Interval:
        """Return a mode's effect on a quantity, where each start of the proxy counts as one observation.

        The sham windows use the second start of the reference mode, so the sham counts as a start of the reference.
        """

        def starts(run: xr.Dataset, first: str) -> list[int]:
            return [place for place, arm in enumerate(arms_of(run)) if first_start(arm) == first]

        runs = [run for run in self.runs if len(starts(run, mode)) > 1]
        if not runs:
            return Interval.without(math.nan, 0, why=NOT_MEASURED)
        arms = arms_of(runs[0])
        runs = [run for run in runs if arms_of(run) == arms]
        adjustments = [
            adjusted(run, quantity, 0, ratio=scale_of(quantity) is Scale.RATIO) for run in runs
        ]
        return effect_of_starts(
            [adjustment.table for adjustment in adjustments],
            [*starts(runs[0], self.place.reference), arms.index(SHAM)],
            starts(runs[0], mode),
            scale_of(quantity),
            [adjustment.weights for adjustment in adjustments],
        )

    def change(self, arm: str, quantity: str, tests: int) -> Change:
        """Return how much an effect changes if the washout (the excluded start of each window) is twice as long."""
        asked = self.asked(arm, quantity)
        later = self.tables(arm, quantity, washout=1)
        return change(
            *(asked.tables, later, asked.reference, asked.other, asked.scale, tests),
            weights=asked.weights,
        )

    def windows(self, arm: str, quantity: str) -> list[Values]:
        """Return the values of a quantity in the valid windows of `arm`: one array per run that compares `arm`."""
        columns = [
            by_arm(run, quantity)[:, arms_of(run).index(arm)]
            for run in self.runs
            if arm in arms_of(run)
        ]
        return [column[~np.isnan(column)] for column in columns]

    def mean(self, arm: str, quantity: str) -> Interval:
        """Return the mean of a quantity over the valid windows of `arm`, which is a mode or the sham."""
        values = [column for column in self.windows(arm, quantity) if column.size > 1]
        pooled = np.concatenate([np.empty(0), *values])
        if not pooled.size:
            return Interval.without(np.nan, 0, why=NOT_MEASURED)
        # If all blocks of each run have the same value, the standard error is 0 and no interval exists.
        if not any(map(np.ptp, values)):
            return Interval.without(float(pooled.mean()), pooled.size, why=TOO_FEW)
        mean = mean_of_blocks(values)
        low, high = mean.ends()
        if not np.isfinite((low, high)).all():
            return Interval.without(mean.estimate, pooled.size, why=TOO_FEW)
        # Times, counts and shares cannot be negative, so the interval ends at 0.
        return Interval(mean.estimate, max(low, 0.0), high, pooled.size, method="blocks")


def modes_of(run: xr.Dataset) -> tuple[str, ...]:
    """Return the scheduler modes that a run compares, with the reference first."""
    return tuple(json.loads(run.attrs["modes"]))


def arms_of(run: xr.Dataset) -> list[str]:
    """Return the modes of a run, followed by the name of the sham (windows that repeat the reference mode)."""
    return [str(arm) for arm in run["arm"].to_numpy()]


def scale_of(quantity: str) -> Scale:
    """Return the scale on which a quantity of two modes is compared: difference or ratio."""
    return Scale.DIFFERENCE if quantity in DIFFERENCES else Scale.RATIO


def is_lower(interval: Interval, floor: float = 0.0) -> bool:
    """Return True if the whole confidence interval lies below -`floor`; False if no interval exists."""
    return interval.known and interval.high < -floor


def is_higher(interval: Interval, floor: float = 0.0) -> bool:
    """Return True if the whole confidence interval lies above `floor`; False if no interval exists."""
    return interval.known and interval.low > floor


@dataclass(frozen=True)
class Candidate:
    """A scheduler mode at one load, with the results of the comparison with the reference mode.

    Attributes
    ----------
    effects
        Effects, by quantity. The intervals of `DECIDING` quantities are simultaneous over all modes and loads of the
        page. Every other interval has its own confidence level of 95 %.
    decided_by
        Quantity that decided the result; empty if no quantity decided the result.
    costs
        Quantities of `GUARDS` that the mode raises by more than chance. A rise of the CPU time by at most 1 % is no
        cost. If the mode lowers one quantity of `DECIDING` and raises the other, the raised quantity is a cost, too.
    """

    mode: str
    effects: Mapping[str, Effect]
    verdict: ModeEffect
    decided_by: str
    costs: tuple[str, ...]

    @property
    def beats(self) -> bool:
        """True if the mode lowers the sum K_rcv + T_sip and raises no other quantity, such as the drop rate."""
        return self.verdict is ModeEffect.BETTER


@dataclass(frozen=True)
class Ranking:
    """The compared modes at one load, ordered by the 99th percentile of K_rcv + T_sip, from low to high.

    Attributes
    ----------
    candidates
        The compared modes in this order, without the reference.
    sham
        Effects of the sham, by quantity. The intervals of `DECIDING` quantities are simultaneous over the loads.
    floors
        Per `DECIDING` quantity, the size that an effect must exceed. The size is 0 if the sham's effect is
        indistinguishable from chance. Otherwise the size is the largest effect inside the sham's interval.
    tests, sham_tests
        Number of simultaneous intervals of `DECIDING` quantities, for the candidates and for the sham.
    loads_beaten
        Per mode, the number of loads of the system at which the mode beats the reference.
    """

    load: ComparedLoad
    candidates: tuple[Candidate, ...]
    sham: Mapping[str, Effect]
    floors: Mapping[str, float]
    tests: int
    sham_tests: int
    loads_beaten: Mapping[str, int]

    @property
    def best(self) -> Candidate | None:
        """The recommended mode, or None if no mode beats the reference.

        If several modes beat the reference, the recommended mode is the one that beats it at the most loads. The
        operator then needs few different settings for all loads.
        """
        better = [
            candidate
            for candidate in self.candidates
            if candidate.beats and first_start(candidate.mode) == candidate.mode
        ]
        return max(better, key=lambda candidate: self.loads_beaten[candidate.mode], default=None)

    @property
    def trades(self) -> tuple[Candidate, ...]:
        """The modes that lower the sum K_rcv + T_sip but raise another quantity, such as the drop rate."""
        return tuple(
            candidate
            for candidate in self.candidates
            if candidate.verdict is ModeEffect.TRADE
            and first_start(candidate.mode) == candidate.mode
        )

    @property
    def judged(self) -> bool:
        """True if the effect of at least one mode has a confidence interval, so that a judgement is possible."""
        return any(candidate.verdict is not ModeEffect.UNKNOWN for candidate in self.candidates)

    @property
    def alike(self) -> bool:
        """True if the confidence intervals of all modes' effects are within ± 5 %."""
        return bool(self.candidates) and all(
            candidate.verdict is ModeEffect.ALIKE for candidate in self.candidates
        )

    def detectable(self) -> float:
        """Return the smallest effect that the runs would detect in every mode with a power of 80 %; NaN if unknown."""
        sizes = [candidate.effects[DECIDING[0]].detectable for candidate in self.candidates]
        return max(sizes) if sizes and not any(map(math.isnan, sizes)) else math.nan


@dataclass(frozen=True)
class Advice:
    """The recommendations for a system, one per load, in ascending order of loads."""

    place: ReferenceSystem
    rankings: tuple[Ranking, ...]
    tests: int


def find_windows(summary: Path, given: Iterable[str | Path] | None = None) -> list[Path]:
    """Return the paths of the `windows.nc` files (statistics per window) of a study's valid runs.

    Parameters
    ----------
    given
        Paths to choose from. None: all existing files in the folder `runs` beside the study's summary.
    """
    (campaign,) = read_campaigns([summary])
    names = [Path(run.path, "windows.nc") for run in campaign.comparisons]
    if given is None:
        runs = split_summary_path(summary).results / "runs"
        files = [runs / name for name in names]
        return [path for path in files if path.is_file()]
    wanted = {name.parts for name in names}
    length = max(map(len, wanted), default=0)
    return [path for path in map(Path, given) if path.parts[-length:] in wanted]


def read_loads(
    windows: Iterable[Path],
    crossings: Iterable[Path] = (),
    capacities: Sequence[SystemCapacity] = (),
) -> tuple[ComparedLoad, ...]:
    """Read the `windows.nc` files of runs that compare modes, and group the runs by system and load.

    Parameters
    ----------
    crossings
        Paths of `crossing.json`. The loads of the runs were planned as shares of the loads that these searches found.
    capacities
        Capacity of each system. Pages show the loads as shares of these capacities.

    Returns
    -------
    tuple
        Groups in the order of the first run of each system, then by load.

    Raises
    ------
    StableError
        A file is missing, damaged or has another version.
    """
    searches = read_searches(crossings)
    return loads_of(map(open_windows, windows), searches, capacities)


def loads_of(
    runs: Iterable[xr.Dataset],
    crossings: Sequence[SearchRecord] = (),
    capacities: Sequence[SystemCapacity] = (),
) -> tuple[ComparedLoad, ...]:
    """Group runs that compare modes by system, reference mode and load.

    Runs that compare several instances of the proxy are grouped separately.
    """
    grouped: dict[ReferenceSystem, dict[tuple[int, bool], list[xr.Dataset]]] = {}
    for run in runs:
        attrs = run.attrs
        if all(mode.endswith(STILLED) for mode in compared(attrs["mode"])[1:]):
            # A run that only switches the probe's recording off measures the cost of the probe. `probe_cost` evaluates
            # it.
            continue
        counts = (int(attrs["cores"]), int(attrs["threads"]))
        system = ReferenceSystem(attrs["testbed"], attrs["sut"], *counts, modes_of(run)[0])
        load = (int(attrs["cps"]), compares_instances(attrs["mode"]))
        grouped.setdefault(system, {}).setdefault(load, []).append(_with_rates(run))
    return tuple(
        ComparedLoad(
            *(system, cps, _capacity(system, capacities), _planned_cps(system, crossings)),
            tuple(sorted(of_load, key=_order)),
        )
        for system, by_load in grouped.items()
        for (cps, _), of_load in sorted(by_load.items())
    )


def _order(run: xr.Dataset) -> tuple[str, int]:
    return run.attrs["mode"], int(run.attrs["rep"])


def _with_rates(run: xr.Dataset) -> xr.Dataset:
    """Add the number of `time_squeeze` events (softnet_stat) per second to each window of a run."""
    rate = (run["time_squeeze"] / run["length"]).to_numpy()
    return run.assign({SQUEEZED: (("washout", "window"), np.tile(rate, (run.sizes["washout"], 1)))})


def _capacity(
    system: ReferenceSystem, capacities: Sequence[SystemCapacity]
) -> SystemCapacity | None:
    """Return a system's capacity for its lowest drop limit, in the reference mode if known, else in another mode."""
    there = [
        capacity
        for capacity in capacities
        if (capacity.testbed, capacity.sut, capacity.cores, capacity.threads) == system[:4]
    ]
    of_reference = [capacity for capacity in there if capacity.mode == system.reference]
    return min(of_reference or there, key=lambda capacity: capacity.limit, default=None)


def _planned_cps(system: ReferenceSystem, crossings: Sequence[SearchRecord]) -> int | None:
    """Return the load (cps) that an earlier search for the capacity found. Planned loads are shares of this load."""
    searches = [
        crossing
        for crossing in crossings
        if (
            crossing.point.testbed,
            crossing.point.sut,
            crossing.point.cores,
            crossing.point.threads,
        )
        == system[:4]
    ]
    of_reference = [search for search in searches if search.point.mode == system.reference]
    found_search = next(iter(of_reference or searches), None)
    return found_search.loads[0] if found_search else None


def advise(
    loads: Iterable[ComparedLoad], quantities: Sequence[str] = ADVISED_QUANTITIES
) -> tuple[Advice, ...]:
    """Compare the modes of each system with the reference mode at each load, and recommend one mode per load.

    Parameters
    ----------
    quantities
        Quantities whose effects are computed in addition to the quantities that decide.
    """
    places: dict[ReferenceSystem, list[ComparedLoad]] = {}
    for load in loads:
        places.setdefault(load.place, []).append(load)
    return tuple(_advise(system, of_place, quantities) for system, of_place in places.items())


def _advise(
    system: ReferenceSystem, loads: Sequence[ComparedLoad], quantities: Sequence[str]
) -> Advice:
    modes = _together((load, mode) for load in loads for mode in load.modes)
    shams = _together((load, SHAM) for load in loads)
    needed = [name for name in (*GUARDS, *quantities) if name not in DECIDING]
    rankings = []
    loads_beaten: Counter[str] = Counter()
    for load in loads:
        here = {name: shams.effects[load.cps, SHAM, name] for name in DECIDING}
        sham = here | {name: load.effect(SHAM, name) for name in dict.fromkeys(needed)}
        floors = {name: _floor(effect.interval) for name, effect in here.items()}
        candidates = []
        for mode in load.modes:
            deciding = {name: modes.effects[load.cps, mode, name] for name in DECIDING}
            others = {name: load.effect(mode, name) for name in dict.fromkeys(needed)}
            candidates.append(_candidate(mode, deciding | others, floors))
        candidates = [_confirmed(candidate, candidates) for candidate in candidates]
        ranked = tuple(sorted(candidates, key=_rank))
        loads_beaten.update(candidate.mode for candidate in ranked if candidate.beats)
        tests = (modes.tests, shams.tests)
        rankings.append(Ranking(load, ranked, sham, floors, *tests, loads_beaten))
    return Advice(system, tuple(rankings), modes.tests)


def _together(asked: Iterable[tuple[ComparedLoad, str]]) -> Effects[tuple[int, str, str]]:
    return effects_together(
        {(load.cps, arm, name): load.asked(arm, name) for load, arm in asked for name in DECIDING}
    )


def _floor(interval: Interval) -> float:
    return max(abs(interval.low), abs(interval.high)) if interval.excludes_zero else 0.0


def _rank(candidate: Candidate) -> tuple[bool, float]:
    estimate = candidate.effects[DECIDING[0]].interval.estimate
    return math.isnan(estimate), estimate


def _candidate(mode: str, effects: Mapping[str, Effect], floors: Mapping[str, float]) -> Candidate:
    intervals = {name: effect.interval for name, effect in effects.items()}
    costs = [
        name
        for name in GUARDS
        if is_higher(intervals[name]) and intervals[name].estimate > SMALL_COSTS.get(name, 0.0)
    ]
    for name in DECIDING:
        if is_lower(intervals[name], floors[name]):
            # The mode improves the quantity `name`. If the other quantity in DECIDING rises, the rise is a cost of the
            # mode.
            rises = [
                quantity
                for quantity in DECIDING
                if is_higher(intervals[quantity], floors[quantity])
            ]
            costs += rises
            verdict = ModeEffect.TRADE if costs else ModeEffect.BETTER
            return Candidate(mode, effects, verdict, name, tuple(costs))
        if is_higher(intervals[name], floors[name]):
            return Candidate(mode, effects, ModeEffect.WORSE, name, tuple(costs))
    deciding = [intervals[name] for name in DECIDING]
    if all(_within(effect) for effect in deciding):
        verdict = ModeEffect.ALIKE
    elif any(effect.known for effect in deciding):
        verdict = ModeEffect.UNSURE
    else:
        verdict = ModeEffect.UNKNOWN
    return Candidate(mode, effects, verdict, "", tuple(costs))


def _confirmed(candidate: Candidate, candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate, with the result `UNSURE` if the mode is not better after every start of the proxy."""
    lower = (ModeEffect.BETTER, ModeEffect.TRADE)
    starts = [
        other for other in candidates if first_start(other.mode) == first_start(candidate.mode)
    ]
    if candidate.verdict not in lower or all(candidate.verdict in lower for candidate in starts):
        return candidate
    return replace(candidate, verdict=ModeEffect.UNSURE, decided_by="")


def _within(interval: Interval) -> bool:
    """Return True if an effect's confidence interval lies within ± 5 %, or if all windows have equal values."""
    if not interval.known:
        return interval.estimate == 0
    return interval.low >= -ALIKE and interval.high <= ALIKE
