"""Where a proxy starts to drop: trials that close in on the load of a packet drop rate.

By Multiple Loss Ratio search (Polák and Konstantynowicz, draft-ietf-bmwg-mlrsearch), from the library of that name: a
load is a bound once trials of `trial_s` on it, long enough together, agree by majority.
"""

import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import MLRsearch
from MLRsearch import AbstractMeasurer, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from sipsched.errors import StableError, TransientError
from sipsched.files import whole
from sipsched.measure.acquisition import arrival_seed
from sipsched.measure.findings import load_numbers
from sipsched.measure.generator import Arrivals
from sipsched.measure.serving import Observed, Serving
from sipsched.measure.simulation import plan_point, simulated_counts
from sipsched.measure.tuning import Tuned, tuned
from sipsched.plan.config import Capacity, Config, Limits, Point, Search, TestbedLabels
from sipsched.plan.modes import find_mode, load_modes
from sipsched.records.crossing import SCHEMA_VERSION as CROSSING_VERSION
from sipsched.records.record import UnfinishedRecord
from sipsched.records.run_document import CallCounts
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts
from sipsched.validity.verdict import RULES, in_words, judge
from sipsched.words import utc

TRIAL_ATTEMPTS = 3
MAJORITY_OF = 3
"""Trials of a load that decide whether it is a bound of a capacity; the third only where two disagree."""
AROUND_GUESS = 1.2
"""Times a guess, up and down, that a capacity is looked for first."""


@dataclass(frozen=True)
class Trial:
    """A load and what the SPS's socket made of it; over TCP, which refuses nothing, what became of the calls.

    Attributes
    ----------
    cps
        Offered calls per second.
    duration_s
        For how long.
    received, refused
        SIP messages that the socket took, and that it refused (RcvbufErrors). Over TCP calls that were set up in
        time and completed, and those that failed or were late.
    attempts
        How often it was made until it was not disturbed.
    calls, calls_lost
        Calls begun, and of them those that failed or were set up late: over both transports. None where it is not
        told.
    """

    cps: int
    duration_s: float
    received: int
    refused: int
    attempts: int = 1
    calls: int | None = None
    calls_lost: int | None = None

    @property
    def pdr(self) -> float:
        """Packet drop rate: refused / reached."""
        reached = self.received + self.refused
        return self.refused / reached if reached else 0.0


@dataclass(frozen=True)
class Bracket:
    """Two loads with the crossing of the limit between them.

    Attributes
    ----------
    lower_cps
        The highest load found at or under the limit; None: it is exceeded at the lowest of the range.
    upper_cps
        The lowest load found above it; None: it is not exceeded at the highest of the range.
    trials
        All of them, in their order.
    in_time
        Whether they are as close as was asked for, and not what there was when the time was up.
    """

    lower_cps: int | None
    upper_cps: int | None
    trials: tuple[Trial, ...]
    in_time: bool = True

    @property
    def ended_by(self) -> str:
        """Say what ended the search."""
        if not self.in_time:
            return "time"
        return "range" if self.lower_cps is None or self.upper_cps is None else "width"


def search_crossing(
    point: Point, config: Config, testbed: Testbed, raw: Path, guess_cps: float | None = None
) -> Path:
    """Find where the packet drop rate crosses its limit at a point, and record it.

    Parameters
    ----------
    point
        What is measured; with a goal its capacity is searched.
    config
        The campaign: limit, range and width of the search.
    testbed
        Three hosts that SSH reaches.
    raw
        Folder of all records.
    guess_cps
        Where a capacity may be, by what is known of other points.

    Returns
    -------
    Path
        The record, beside the folders of that point's loads.

    Raises
    ------
    StableError
        The limit is not crossed within the range of loads, unless that is what is to be found out, or a run cannot
        be done here.
    TransientError
        It was disturbed.
    """
    testbed.check_cores([point])
    path = raw / point.crossing_path
    started, goal = time.time(), point.goal
    look = partial(_look, goal=goal, config=config, guess_cps=guess_cps)
    found = (_search_simulated if testbed.simulated else _search)(point, config, testbed, look)
    document = {
        "schema_version": CROSSING_VERSION,
        "testbed": asdict(found.testbed),
        "point": {name: value for name, value in vars(point).items() if name != "goal"},
        **(_of_capacity(goal, guess_cps, found.bracket) if goal else {}),
        "label": found.label,
        "kernel": found.kernel,
        "started_at": utc(started),
        "finished_at": utc(time.time()),
        "pdr_limit": goal.limit if goal else config.pdr_limit,
        "search": asdict(config.search),
        "load": asdict(config.load),
        "lower_cps": found.bracket.lower_cps,
        "upper_cps": found.bracket.upper_cps,
        "trials": [asdict(trial) | {"pdr": trial.pdr} for trial in found.bracket.trials],
    }
    with whole(path) as partial_file:
        partial_file.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


@dataclass(frozen=True)
class _Found:
    """A bracket, and what it was found on: testbed, mode as it is there, kernel."""

    bracket: Bracket
    testbed: TestbedLabels
    label: str
    kernel: str | None


def _of_capacity(goal: Capacity, guess_cps: float | None, found: Bracket) -> dict[str, Any]:
    return {"goal": asdict(goal), "guess_cps": guess_cps, "ended_by": found.ended_by}


Offer = Callable[[int, float], Trial]
"""Offers a load in calls per second for some seconds."""


def _look(offer: Offer, goal: Capacity | None, config: Config, guess_cps: float | None) -> Bracket:
    if goal is None:
        return find_crossing(offer, config.pdr_limit, config.search)
    return find_capacity(offer, goal, config.search, guess_cps)


def _search(
    point: Point, config: Config, testbed: Testbed, look: Callable[[Offer], Bracket]
) -> _Found:
    search = config.search
    # each trial's files take the place of the last one's
    calls = round(search.highest_cps * search.trial_s)
    mode = find_mode(point.mode, load_modes())
    with tempfile.TemporaryDirectory(prefix="sipsched-search-") as scratch:
        # nothing of a run is kept: the proxy's log would be the record of many loads
        record = UnfinishedRecord.begin(Path(scratch), point.run(0, 0))
        with open_hosts(testbed, f"a search at {point}") as hosts:
            serving = Serving(hosts, point, config, record, search.limit_s + 60)
            serving.clear_hosts()
            serving.check_hosts(calls)
            with tuned(hosts.sps, testbed, mode, point.cores, point.threads) as state:
                found = look(_with_own_arrivals(partial(_offer, serving, state, config.validity)))
                kernel = serving.describe().sps.kernel
    return _Found(found, hosts.testbed.labels, state.label, kernel)


def _search_simulated(
    point: Point, config: Config, testbed: Testbed, look: Callable[[Offer], Bracket]
) -> _Found:
    plan = plan_point(point, config, testbed)

    def offer(cps: int, duration_s: float, rep: int) -> Trial:
        arrivals = Arrivals(cps, max(1, round(cps * duration_s)), arrival_seed(cps, rep))
        return Trial(cps, duration_s, *simulated_counts(plan, config.load, arrivals))

    return _Found(look(_with_own_arrivals(offer)), testbed.labels, plan.state.label, plan.kernel)


def _with_own_arrivals(offer: Callable[[int, float, int], Trial]) -> Offer:
    """Give each trial of a load arrivals of its own: the same again would fall into the same bursts."""
    asked: Counter[int] = Counter()

    def again(cps: int, duration_s: float) -> Trial:
        asked[cps] += 1
        # repetitions of runs are counted from 1
        return offer(cps, duration_s, 1 - asked[cps])

    return again


def _offer(
    serving: Serving,
    state: Tuned,
    validity: Mapping[str, Limits],
    cps: int,
    duration_s: float,
    rep: int,
) -> Trial:
    """Offer a load as a run does, and read what the SPS's sockets refused; nothing else is kept.

    On a proxy started for it: an overload leaves memory and transactions behind. A trial that would
    not count as a run is made again.
    """
    seed = arrival_seed(cps, rep)
    for attempt in range(1, TRIAL_ATTEMPTS + 1):
        with serving.starting():
            serving.start(state)
            serving.warm_up(cps, seed + 1)
            calls = max(1, round(cps * duration_s))
            observed = serving.observe("trial", Arrivals(cps, calls, seed))
        numbers = dict.fromkeys(RULES) | load_numbers(observed, serving.cpus)
        verdict = judge(numbers, validity)
        if verdict.valid:
            begun, said = observed.statistics.calls_created, observed.statistics.calls_late
            lost = None if said is None else begun - _good(observed.statistics)
            return Trial(cps, duration_s, *taken_and_refused(observed), attempt, begun, lost)
    raise TransientError(
        f"the trial at {cps} cps was disturbed {TRIAL_ATTEMPTS} times: {in_words(verdict.broken)}"
    )


def taken_and_refused(observed: Observed) -> tuple[int, int]:
    """Count what a `Trial` has: messages, or over TCP calls."""
    if observed.ledger.unit == "datagrams":
        reached = observed.ledger.to_sps
        return reached.received, reached.refused
    good = _good(observed.statistics)
    return good, observed.statistics.calls_created - good


def _good(calls: CallCounts) -> int:
    """Count the calls that completed and were set up in time."""
    return calls.calls_completed - (calls.calls_late or 0)


def find_crossing(offer: Offer, pdr_limit: float, search: Search) -> Bracket:
    """Search for the load at which the packet drop rate crosses a limit.

    A load is a bound once `trials_s` of trials agree. Each bound is tried once more, whatever comes of it: how far
    trials agree is what an interval rests on (`sipsched.analysis.search`).

    Parameters
    ----------
    offer
        Makes a trial.
    pdr_limit
        Packet drop rate, 0 to 1.
    search
        Range of loads, width and durations.

    Raises
    ------
    StableError
        The limit is exceeded at the lowest load, or not at the highest.
    TransientError
        No crossing within the time allowed: the trials contradict each other too often.
    """
    trials = _Trials(offer)
    goal = _goal(pdr_limit, search.relative_width, search.trials_s, search)
    ends_at = time.monotonic() + search.limit_s
    lower, upper, in_time = _bracket(trials, goal, search.lowest_cps, search.highest_cps, ends_at)
    if not in_time:
        raise TransientError(
            f"search for the crossing: not found within {search.limit_s:g} s, since trials contradict each other"
        )
    if lower is None or upper is None:
        where, bound = (
            ("at the lowest load", search.lowest_cps)
            if lower is None
            else ("not even at the highest load", search.highest_cps)
        )
        raise StableError(
            f"search for the crossing: more than {pdr_limit:.0%} is dropped {where}, {bound} cps; "
            "widen `search` in the configuration"
        )
    return _tried_again(trials, lower, upper, search)


def find_capacity(
    offer: Offer, goal: Capacity, search: Search, guess_cps: float | None = None
) -> Bracket:
    """Search for the two loads around a capacity.

    A load is a bound by the majority of three trials of `search.trial_s`, and the search ends when two bounds are
    `goal.relative_width` apart, or `search.limit_s` after it began, with the bounds that its trials make by then,
    however few of each load: near the knee trials of a machine that is not quiet contradict each other, and more of
    them would not end that. Each bound is tried once more.

    Parameters
    ----------
    offer
        Makes a trial.
    goal
        Limit and width.
    search
        Range of loads, durations.
    guess_cps
        Where to begin; from there the range widens until it holds the capacity. None: with the whole range.

    Returns
    -------
    Bracket
        Without a lower or an upper load where the range ends before the limit is crossed.

    Raises
    ------
    TransientError
        No two loads around it within the time allowed.
    """
    trials = _Trials(offer)
    aim = _goal(goal.limit, goal.relative_width, MAJORITY_OF * search.trial_s, search)
    ends_at = time.monotonic() + search.limit_s
    low, high = _first_range(search, guess_cps)
    step = AROUND_GUESS**2
    while True:
        lower, upper, in_time = _bracket(trials, aim, low, high, ends_at)
        if lower is None and low > search.lowest_cps:
            low, high = max(search.lowest_cps, round(low / step)), low
        elif upper is None and high < search.highest_cps:
            low, high = high, min(search.highest_cps, round(high * step))
        else:
            break
        if not in_time:
            break
        step *= step
    if not in_time:
        lower, upper = _bounds_of(trials.made, goal.limit)
    if not in_time and (lower is None or upper is None):
        raise TransientError(
            f"search for the capacity: no two loads around it within {search.limit_s:g} s (search.limit_s)"
        )
    return _tried_again(trials, lower, upper, search, in_time)


def _bounds_of(trials: Iterable[Trial], limit: float) -> tuple[int | None, int | None]:
    """Give the lowest load of which half of all trials or more were above the limit, and the highest other below it."""
    by_load: dict[int, list[bool]] = defaultdict(list)
    for trial in trials:
        by_load[trial.cps].append(trial.pdr > limit)
    over = {cps: 2 * sum(each) >= len(each) for cps, each in by_load.items()}
    upper = min((cps for cps in over if over[cps]), default=None)
    lower = max(
        (cps for cps in over if not over[cps] and (upper is None or cps < upper)), default=None
    )
    return lower, upper


def _first_range(search: Search, guess_cps: float | None) -> tuple[int, int]:
    whole = search.lowest_cps, search.highest_cps
    if guess_cps is None:
        return whole
    low = max(search.lowest_cps, round(guess_cps / AROUND_GUESS))
    high = min(search.highest_cps, round(guess_cps * AROUND_GUESS))
    return (low, high) if low < high else whole


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
    trials: "_Trials", goal: SearchGoal, low_cps: int, high_cps: int, ends_at: float
) -> tuple[int | None, int | None, bool]:
    """Search within a range of loads, until some instant of `time.monotonic`.

    Returns
    -------
    tuple
        Highest load under the limit, lowest above it, None where the range ends before; and whether they are as
        close as the goal says.
    """
    settings = MLRsearch.Config()
    settings.goals = [goal]
    settings.min_load, settings.max_load = min(low_cps, high_cps - 1), high_cps
    settings.search_duration_max = max(0.001, ends_at - time.monotonic())
    settings.warmup_duration = None
    searching, in_time = MultipleLossRatioSearch(settings), True
    try:
        searching.search(_Measurer(trials), debug=lambda text: None)
    except RuntimeError as error:
        # the library's word for the end of its time, too
        if time.monotonic() < ends_at:
            raise TransientError(f"search: {error}") from error
        in_time = False
    target = searching.scaling.goal_to_final_target[goal]
    bounds = searching.database.get_relevant_bounds(target=target)
    lower, upper = (
        None if bound is None else round(float(bound)) for bound in (bounds.clo, bounds.chi)
    )
    return lower, upper, in_time


def _tried_again(
    trials: "_Trials", lower: int | None, upper: int | None, search: Search, in_time: bool = True
) -> Bracket:
    for cps in (lower, upper):
        if cps is not None:
            trials.make(cps, search.trial_s)
    return Bracket(lower, upper, tuple(trials.made), in_time)


class _Trials:
    """Those made so far."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self.made: list[Trial] = []

    def make(self, cps: int, duration_s: float) -> Trial:
        """Make one more."""
        self.made.append(self._offer(cps, duration_s))
        return self.made[-1]


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    """The library's side of a trial; those of an earlier range it takes once more."""

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
            # the library sums this up, and `trials_s` is about seconds of load
            duration_with_overheads=intended_duration,
        )

    def _trial(self, cps: int, duration_s: float) -> Trial:
        for trial in self._known:
            if (trial.cps, trial.duration_s) == (cps, duration_s):
                self._known.remove(trial)
                return trial
        return self._trials.make(cps, duration_s)
