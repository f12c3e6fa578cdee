"""The search for the load (calls per second) at which the packet drop rate exceeds its limit, in short trials.

The library MLRsearch performs the search, which is a Multiple Loss Ratio search (Polák and Konstantynowicz,
draft-ietf-bmwg-mlrsearch). A load becomes a lower or upper bound when the trials at this load are long enough in total,
and most of their drop rates are on the same side of the limit.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import MLRsearch
from MLRsearch import AbstractMeasurer, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from sipsched.errors import StableError, TransientError
from sipsched.plan.loads import Capacity, Search
from sipsched.records.cpu_report import AccountReport

MAJORITY_OF = 3
"""Number of trials that decide by majority whether a load is below the capacity.

After two equal results, no third trial is needed.
"""
AROUND_GUESS = 1.2
"""Factor for the first range of loads in a search: the range is from guess / factor to guess × factor."""


@dataclass(frozen=True)
class Trial:
    """A short measurement at one load (calls per second), and the result of the measurement.

    Attributes
    ----------
    cps, duration_s
        Offered calls per second, and duration in seconds.
    received, refused
        SIP messages that the SPS's socket received, and messages that the socket dropped (RcvbufErrors). TCP drops no
        message. So over TCP, `received` counts the calls that completed and were set up in time, and `refused` counts
        the other calls.
    attempts
        Number of attempts, including the final attempt without a disturbance.
    calls, calls_lost
        Number of started calls, and number of calls that failed or were set up late; None if the generator did not
        report these numbers.
    started_at
        Start time in UTC, ISO 8601; None for a simulated trial.
    cpu_us
        CPU time of the proxy per received message in µs; None for a simulated trial, or if no message was received.
    steal_share
        Share of the SPS's CPU time that the hypervisor took; None for a simulated trial.
    account
        The account of the SPS's CPU time; None for a simulated trial.
    probe_mode
        Mode of the probe that ran during the trial; None if it is unknown.
    mode, round, carried_cps
        For a trial of a paired search: the compared mode, the number of the round from 1, and the load in calls per
        second that the proxy handled. Otherwise None.
    """

    cps: int
    duration_s: float
    received: int
    refused: int
    attempts: int = 1
    calls: int | None = None
    calls_lost: int | None = None
    started_at: str | None = None
    cpu_us: float | None = None
    steal_share: float | None = None
    account: AccountReport | None = None
    probe_mode: str | None = None
    mode: str | None = None
    round: int | None = None
    carried_cps: float | None = None

    @property
    def pdr(self) -> float:
        """Packet drop rate from 0 to 1: refused / (received + refused)."""
        reached = self.received + self.refused
        return self.refused / reached if reached else 0.0


@dataclass(frozen=True)
class Bracket:
    """The result of a search: the highest load below the drop limit, and the lowest load above the limit.

    Attributes
    ----------
    lower_cps
        Highest load at or below the limit; None if the lowest load of the range exceeds the limit.
    upper_cps
        Lowest load above the limit; None if the highest load of the range does not exceed the limit.
    in_time
        Whether the search ended before its time limit.
    """

    lower_cps: int | None
    upper_cps: int | None
    trials: tuple[Trial, ...]
    in_time: bool = True

    @property
    def ended_by(self) -> str:
        """The reason why the search ended: `width`, `time` or `range`."""
        if not self.in_time:
            return "time"
        return "range" if self.lower_cps is None or self.upper_cps is None else "width"


Offer = Callable[[int, float], Trial]
"""A function that performs a trial. The arguments are the load in calls per second and the duration in seconds."""
Clock = Callable[[], float]
"""A function that returns a time in seconds."""


def find_crossing(
    offer: Offer, pdr_limit: float, search: Search, now: Clock = time.monotonic
) -> Bracket:
    """Search for the load (calls per second) at which the packet drop rate passes a given limit.

    At the end, the search repeats one trial at each bound, because the uncertainty of the crossing is estimated from
    the agreement between trials of the same load (`sipsched.analysis.search`).

    Parameters
    ----------
    pdr_limit
        Packet drop rate, 0 to 1.
    now
        The clock that counts the search's time limit.

    Raises
    ------
    StableError
        Even the lowest load has a drop rate above the limit, or even the highest load has a drop rate below the limit.
    TransientError
        The search exceeds its time limit, because trials at equal loads have contradictory results.
    """
    trials = _Trials(offer, now, search.limit_s)
    goal = _goal(pdr_limit, search.relative_width, search.trials_s, search)
    lower, upper, in_time = _bracket(trials, goal, search.lowest_cps, search.highest_cps)
    if not in_time:
        raise TransientError(
            f"search for the crossing: not found within {search.limit_s:g} s, since trials contradict each other"
        )
    if lower is None or upper is None:
        where, bound = (
            ("the lowest load already exceeds", search.lowest_cps)
            if lower is None
            else ("even the highest load stays below", search.highest_cps)
        )
        raise StableError(
            f"search for the crossing: {where} a packet drop rate of {pdr_limit:.0%} at {bound} cps; "
            "widen the range of loads, `search` in the configuration"
        )
    return _tried_again(trials, lower, upper, search)


def find_capacity(
    offer: Offer,
    goal: Capacity,
    search: Search,
    guess_cps: float | None = None,
    now: Clock = time.monotonic,
) -> Bracket:
    """Search for two loads around the capacity: a load within the limit of the drop rate, and a load above the limit.

    Three trials of `search.trial_s` decide by majority whether a load is a bound. The search ends when two bounds are
    `goal.relative_width` apart. The search also ends after `search.limit_s`, because trials near the capacity can
    contradict each other on a noisy machine. After such an early end, the bounds are computed from all trials so far.
    At the end, the search repeats one trial at each bound.

    Parameters
    ----------
    search
        Range of loads, and durations.
    guess_cps
        Load at which the search begins. The search then widens a small range around this load until the range contains
        the capacity. None: the search begins at the geometric mean of the lowest and the highest load, because trials
        far above the capacity take long in virtual time.
    now
        The clock that counts the search's time limit.

    Returns
    -------
    Bracket
        The two loads. One of the two loads is None if the drop rate does not pass the limit within the range.

    Raises
    ------
    TransientError
        The time limit ended the search before trials existed on both sides of the drop limit.
    """
    trials = _Trials(offer, now, search.limit_s)
    aim = _goal(goal.limit, goal.relative_width, MAJORITY_OF * search.trial_s, search)
    low, high = _first_range(search, guess_cps)
    step = AROUND_GUESS**2
    while True:
        lower, upper, in_time = _bracket(trials, aim, low, high)
        if not in_time:
            break
        if lower is None and low > search.lowest_cps:
            low, high = max(search.lowest_cps, round(low / step)), low
        elif upper is None and high < search.highest_cps:
            low, high = high, min(search.highest_cps, round(high * step))
        else:
            break
        step *= step
    if not in_time:
        lower, upper = _bounds_of(trials.made, goal.limit)
        if lower is None or upper is None:
            raise TransientError(
                f"search for the capacity: no loads below and above it within {search.limit_s:g} s (search.limit_s)"
            )
    return _tried_again(trials, lower, upper, search, in_time)


def _bounds_of(trials: Iterable[Trial], limit: float) -> tuple[int | None, int | None]:
    """Compute the lower and the upper bound of the capacity from trials at several loads.

    The upper bound is the lowest load at which at least half of the trials exceed the limit. The lower bound is the
    highest load below the upper bound.
    """
    exceeded: dict[int, list[bool]] = defaultdict(list)
    for trial in trials:
        exceeded[trial.cps].append(trial.pdr > limit)
    above = [cps for cps, answers in exceeded.items() if 2 * sum(answers) >= len(answers)]
    upper = min(above, default=None)
    below = [cps for cps in exceeded if cps not in above and (upper is None or cps < upper)]
    return max(below, default=None), upper


def _first_range(search: Search, guess_cps: float | None) -> tuple[int, int]:
    guess_cps = guess_cps or math.sqrt(search.lowest_cps * search.highest_cps)
    low = max(search.lowest_cps, round(guess_cps / AROUND_GUESS))
    high = min(search.highest_cps, round(guess_cps * AROUND_GUESS))
    return (low, high) if low < high else (search.lowest_cps, search.highest_cps)


def _goal(limit: float, relative_width: float, trials_s: float, search: Search) -> SearchGoal:
    return SearchGoal(
        loss_ratio=limit,
        exceed_ratio=0.5,
        relative_width=relative_width,
        initial_trial_duration=search.trial_s,
        final_trial_duration=search.trial_s,
        duration_sum=trials_s,
        preceding_targets=2,
        fail_fast=False,
    )


def _bracket(
    trials: "_Trials", goal: SearchGoal, low_cps: int, high_cps: int
) -> tuple[int | None, int | None, bool]:
    """Search a range of loads for the two loads around the drop limit. Stop at the time limit of the trials.

    Returns
    -------
    tuple
        The highest load at or below the limit, the lowest load above the limit, and whether the search ended in time.
        The lower load is None if the whole range is above the limit. The upper load is None if the whole range is below
        the limit. If the search did not end in time, both loads are None.
    """
    settings = MLRsearch.Config()
    settings.goals = [goal]
    settings.min_load, settings.max_load = min(low_cps, high_cps - 1), high_cps
    # The library MLRsearch knows only this machine's clock. So `_Measurer` ends the search at its time limit.
    settings.search_duration_max = math.inf
    settings.warmup_duration = None
    try:
        results = MultipleLossRatioSearch(settings).search(
            _Measurer(trials), debug=lambda text: None
        )
    except _TimeIsUpError:
        # A search at its time limit is no failure, because the caller then uses the trials so far.
        return None, None, False
    except RuntimeError as error:
        raise TransientError(f"search: {error}") from error
    result = results[goal]
    lower, upper = (
        None if bound is None else round(float(bound))
        for bound in (result.relevant_lower_bound, result.relevant_upper_bound)
    )
    return lower, upper, True


def _tried_again(
    trials: "_Trials", lower: int | None, upper: int | None, search: Search, in_time: bool = True
) -> Bracket:
    for cps in (lower, upper):
        if cps is not None:
            trials.make(cps, search.trial_s)
    return Bracket(lower, upper, tuple(trials.made), in_time)


class _TimeIsUpError(Exception):
    """The search has reached its time limit."""


class _Trials:
    """The trials that one search has performed, and the time limit of the search."""

    def __init__(self, offer: Offer, now: Clock, limit_s: float) -> None:
        self._offer = offer
        self._now = now
        self._ends_at = now() + limit_s
        self.made: list[Trial] = []

    @property
    def in_time(self) -> bool:
        """True if the search has not reached its time limit."""
        return self._now() < self._ends_at

    def make(self, cps: int, duration_s: float) -> Trial:
        """Perform one more trial, and store its result."""
        self.made.append(self._offer(cps, duration_s))
        return self.made[-1]


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    """The interface through which the library MLRsearch requests a trial. Results of earlier trials are reused."""

    def __init__(self, trials: _Trials) -> None:
        self._trials = trials
        self._known = list(trials.made)

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._trial(round(intended_load), intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.received + trial.refused,
            loss_count=trial.refused,
            # MLRsearch compares the sum of `duration_with_overheads` over all trials with `duration_sum`, which
            # contains no overheads.
            duration_with_overheads=intended_duration,
        )

    def _trial(self, cps: int, duration_s: float) -> Trial:
        for trial in self._known:
            if (trial.cps, trial.duration_s) == (cps, duration_s):
                self._known.remove(trial)
                return trial
        if not self._trials.in_time:
            raise _TimeIsUpError
        return self._trials.make(cps, duration_s)
