"""The searches for the load at which a proxy's drop rate passes a limit, on hosts or in the simulator.

At a point that compares modes, a paired search measures the ratios of the capacities of these modes.
"""

import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sipsched import scripting
from sipsched.errors import TransientError
from sipsched.files import seal, whole
from sipsched.measure.acquisition import arrival_seed
from sipsched.measure.bracketing import Bracket, Clock, Offer, Trial, find_capacity, find_crossing
from sipsched.measure.findings import account_numbers, causes, load_numbers
from sipsched.measure.generator import Arrivals
from sipsched.measure.observed import Observed
from sipsched.measure.paired_search import find_ratios
from sipsched.measure.serving import MESSAGES_A_CALL, Serving, sut_of
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulation import simulated_counts
from sipsched.measure.tuning import Tuned, tuned
from sipsched.plan.config import Config
from sipsched.plan.crossover import compared, instance_of, is_comparison
from sipsched.plan.loads import Capacity, Load
from sipsched.plan.modes import find_mode, load_modes, split_name
from sipsched.plan.run import Point, TestbedLabels
from sipsched.records.crossing import SCHEMA_VERSION as CROSSING_VERSION
from sipsched.records.load_report import CallCounts
from sipsched.records.record import UnfinishedRecord
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts, patience
from sipsched.validity.rules import RULES, Limits
from sipsched.validity.verdict import in_words, judge
from sipsched.words import utc

TRIAL_ATTEMPTS = 3


def search_crossing(
    point: Point, config: Config, testbed: Testbed, raw: Path, guess_cps: float | None = None
) -> Path:
    """Search for the load at which a proxy's packet drop rate passes its limit, and write a record of the search.

    Parameters
    ----------
    point
        The point to search. If the point has a goal (an accuracy), the result is the capacity of the point. If the
        point also compares modes, the result is a paired search.
    guess_cps
        A guess of the capacity, which follows from the capacities of other points.

    Returns
    -------
    Path
        Path of the record, which lies beside the folders of the point's loads.

    Raises
    ------
    StableError
        The range of loads is entirely below or above the limit, and the point has no goal. Or the testbed cannot
        perform a trial.
    TransientError
        Something disturbed a trial three times, or the search exceeded its time limit.
    """
    testbed.check_cores([point])
    path = raw / point.crossing_path
    started, goal = time.time(), point.goal
    if goal and is_comparison(point.mode):
        # a retransmitted message would count twice in the load that the proxy handled
        config = replace(config, load=replace(config.load, retransmissions=False))
        pair = _pair_simulated if testbed.simulated else _pair
        result = pair(point, goal, config, testbed, guess_cps)
    else:
        look = partial(_look, point=point, config=config, guess_cps=guess_cps)
        result = (_search_simulated if testbed.simulated else _search)(point, config, testbed, look)
    document = {
        "schema_version": CROSSING_VERSION,
        "testbed": asdict(result.testbed),
        "point": {name: value for name, value in vars(point).items() if name != "goal"},
        **(_of_capacity(goal, guess_cps, result.bracket) if goal else {}),
        "label": result.label,
        "kernel": result.kernel,
        "started_at": utc(started),
        "finished_at": utc(time.time()),
        "pdr_limit": goal.limit if goal else config.pdr_limit,
        "search": asdict(config.search),
        "load": asdict(config.load),
        "lower_cps": result.bracket.lower_cps,
        "upper_cps": result.bracket.upper_cps,
        "trials": [asdict(trial) | {"pdr": trial.pdr} for trial in result.bracket.trials],
    }
    with whole(path) as partial_file:
        partial_file.write_text(seal(json.dumps(document, indent=1, allow_nan=False)))
    return path


@dataclass(frozen=True)
class _Found:
    """The loads that a search found below and above the drop limit, with testbed, label of the mode and kernel."""

    bracket: Bracket
    testbed: TestbedLabels
    label: str
    kernel: str | None


def _of_capacity(goal: Capacity, guess_cps: float | None, bracket: Bracket) -> dict[str, Any]:
    return {"goal": asdict(goal), "guess_cps": guess_cps, "ended_by": bracket.ended_by}


def _look(
    offer: Offer, now: Clock, point: Point, config: Config, guess_cps: float | None
) -> Bracket:
    goal = point.goal
    if goal is None:
        offer = _with_progress(offer, point, config.pdr_limit)
        return find_crossing(offer, config.pdr_limit, config.search, now)
    offer = _with_progress(offer, point, goal.limit)
    return find_capacity(offer, goal, config.search, guess_cps, now)


def _with_progress(offer: Offer, point: Point, limit: float) -> Offer:
    """Return a function that performs a trial, and prints the load, the drop rate and the bounds so far."""
    reached: Counter[int] = Counter()
    refused: Counter[int] = Counter()

    def reported(cps: int, duration_s: float) -> Trial:
        trial = offer(cps, duration_s)
        reached[cps] += trial.received + trial.refused
        refused[cps] += trial.refused
        above = [load for load in reached if refused[load] > limit * reached[load]]
        upper = min(above, default=None)
        below = [load for load in reached if upper is None or load < upper]
        bounds = [f"above {max(below)} cps"] if below else []
        bounds += [] if upper is None else [f"below {upper} cps"]
        scripting.say(
            f"{point}: {trial.pdr:.2%} dropped at {cps} cps; the load with {100 * limit:g} % is {' and '.join(bounds)}"
        )
        return trial

    return reported


@contextmanager
def ready_for_trials(
    point: Point, config: Config, testbed: Testbed
) -> Iterator[tuple[Serving, Tuned]]:
    """Prepare a testbed's hosts for trials at a point. At the end of the block, restore the hosts."""
    mode = find_mode(point.mode, load_modes())
    with (
        _servings(point, [(point, config)], testbed) as (serving,),
        tuned(serving.hosts.sps, testbed, mode, point.cores, point.threads) as state,
    ):
        yield serving, state


@contextmanager
def _servings(
    point: Point, systems: Sequence[tuple[Point, Config]], testbed: Testbed
) -> Iterator[list[Serving]]:
    """Open a testbed's hosts for a search at a point, and check that the hosts can serve each system of the search."""
    search = systems[0][1].search
    # The files of a trial replace the files of the previous trial, so the disk needs room only for the files of the
    # largest trial.
    calls = round(search.highest_cps * search.trial_s)
    with tempfile.TemporaryDirectory(prefix="sipsched-search-") as scratch:
        # The record of a search excludes the proxy's log, because the log mixes lines from trials at many loads.
        record = UnfinishedRecord.begin(Path(scratch), point.run(0, 0))
        with open_hosts(testbed, f"a search at {point}") as hosts:
            limit_s = search.limit_s + testbed.control_s
            servings = [Serving(hosts, *system, record, limit_s) for system in systems]
            for serving in servings:
                serving.clear_hosts()
                serving.check_hosts(calls)
            yield servings


def _search(
    point: Point, config: Config, testbed: Testbed, look: Callable[[Offer, Clock], Bracket]
) -> _Found:
    with ready_for_trials(point, config, testbed) as (serving, state):
        offer = _with_own_arrivals(partial(_offer, serving, state, config.validity))
        # The hosts stop the programs of the search after the same limit, so both limits use the clock of the hosts.
        bracket = look(offer, patience(testbed).now)
        kernel = serving.describe().sps.kernel
    return _Found(bracket, serving.hosts.testbed.labels, state.label, kernel)


def _search_simulated(
    point: Point, config: Config, testbed: Testbed, look: Callable[[Offer, Clock], Bracket]
) -> _Found:
    plan = plan_point(point, config, testbed)
    offer = partial(_simulated_trial, plan, config.load)
    bracket = look(_with_own_arrivals(offer), time.monotonic)
    return _Found(bracket, testbed.labels, plan.state.label, plan.kernel)


def _simulated_trial(
    plan: SimulatedPoint, load: Load, cps: int, duration_s: float, rep: int
) -> Trial:
    arrivals = Arrivals(cps, max(1, round(cps * duration_s)), arrival_seed(cps, rep))
    return Trial(cps, duration_s, *simulated_counts(plan, load, arrivals), probe_mode="simulated")


@dataclass(frozen=True)
class _System:
    """One of the systems of a paired search: the compared mode, the system's own point, and its configuration."""

    name: str
    point: Point
    config: Config

    def handled(self, trial: Trial) -> Trial:
        """Return a trial with the compared mode and the load that the proxy handled, and print this load."""
        cps = trial.received / MESSAGES_A_CALL / trial.duration_s
        scripting.say(
            f"{self.point}: {trial.pdr:.2%} dropped at {trial.cps} cps, {cps:.0f} cps handled"
        )
        return replace(trial, mode=self.name, carried_cps=cps)


def _systems(point: Point, config: Config) -> list[_System]:
    """Return the systems that a point compares, with the reference first."""
    systems = []
    for name in compared(point.mode):
        base, other, rest = split_name(name)
        own = instance_of(other, point.sut, point.threads, point.cores)
        sut = sut_of(own, config.sut(own.sut))
        mode = "+".join((base, *rest))
        place = Point(point.testbed, sut.name, mode, own.cores or point.cores, own.threads)
        suts = {**config.suts, sut.name: sut}
        systems.append(_System(name, place, replace(config, suts=suts)))
    return systems


def _alternate(
    systems: Sequence[_System],
    offers: Sequence[Callable[[int, float, int], Trial]],
    goal: Capacity,
    guess_cps: float | None,
    now: Clock,
) -> Bracket:
    search = systems[0].config.search
    own = [_with_own_arrivals(offer) for offer in offers]

    def offer(number: int, cps: int, duration_s: float) -> Trial:
        system = systems[number]
        try:
            return system.handled(own[number](cps, duration_s))
        except TransientError as error:
            scripting.say(f"{system.point}: {error}")
            raise

    first_cps = guess_cps or math.sqrt(search.lowest_cps * search.highest_cps)
    return find_ratios(offer, len(systems), goal, search, first_cps, now)


def _pair(
    point: Point, goal: Capacity, config: Config, testbed: Testbed, guess_cps: float | None
) -> _Found:
    labels, systems = dict[str, None](), _systems(point, config)

    def offer(serving: Serving, cps: int, duration_s: float, rep: int) -> Trial:
        own = serving.point
        mode = find_mode(own.mode, load_modes())
        with tuned(serving.hosts.sps, testbed, mode, own.cores, own.threads) as state:
            labels[state.label] = None
            return _offer(serving, state, config.validity, cps, duration_s, rep)

    with _servings(point, [(one.point, one.config) for one in systems], testbed) as servings:
        offers = [partial(offer, serving) for serving in servings]
        bracket = _alternate(systems, offers, goal, guess_cps, patience(testbed).now)
        kernel = servings[0].describe().sps.kernel
    return _Found(bracket, servings[0].hosts.testbed.labels, ", ".join(labels), kernel)


def _pair_simulated(
    point: Point, goal: Capacity, config: Config, testbed: Testbed, guess_cps: float | None
) -> _Found:
    systems = _systems(point, config)
    plans = [plan_point(one.point, one.config, testbed) for one in systems]
    offers = [partial(_simulated_trial, plan, config.load) for plan in plans]
    bracket = _alternate(systems, offers, goal, guess_cps, time.monotonic)
    label = ", ".join(dict.fromkeys(plan.state.label for plan in plans))
    return _Found(bracket, testbed.labels, label, plans[0].kernel)


def _with_own_arrivals(offer: Callable[[int, float, int], Trial]) -> Offer:
    """Return a function that performs trials. Repeated trials at the same load have different random arrivals."""
    asked: Counter[int] = Counter()

    def again(cps: int, duration_s: float) -> Trial:
        asked[cps] += 1
        # The repetition number determines the arrivals. Runs have the numbers 1, 2 and so on.
        # Trials have the numbers 0, -1 and so on, so the arrivals of trials differ from the arrivals of all runs.
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
    """Start a new proxy, offer a load to the proxy, and return the counts of messages and calls as a trial.

    Each trial starts a new proxy, because an overload leaves transactions in the memory of the proxy. The rules for an
    invalid run also apply to a trial. An invalid trial is repeated.
    """
    seed = arrival_seed(cps, rep)
    for attempt in range(1, TRIAL_ATTEMPTS + 1):
        started = time.time()
        with serving.starting():
            serving.start(state)
            serving.warm_up(cps, seed + 1)
            calls = max(1, round(cps * duration_s))
            account = serving.account()
            observed = serving.observe("trial", Arrivals(cps, calls, seed), [account.counting()])
        accounted = account.report()
        numbers = {
            **dict.fromkeys(RULES),
            **load_numbers(observed, serving.cpus),
            **account_numbers(accounted, len(serving.cpus)),
        }
        verdict = judge(numbers, validity, causes(accounted))
        if verdict.valid:
            begun, said = observed.statistics.calls_created, observed.statistics.calls_late
            lost = None if said is None else begun - _good(observed.statistics)
            taken = observed.ledger.to_sps.received
            return Trial(
                *(cps, duration_s, *taken_and_refused(observed), attempt, begun, lost),
                started_at=utc(started),
                cpu_us=observed.proxy.cpu_ns / 1000 / taken if taken else None,
                steal_share=numbers["steal_share"],
                account=accounted,
                probe_mode=serving.probe.mode(),
            )
    raise TransientError(
        f"the trial at {cps} cps was disturbed {TRIAL_ATTEMPTS} times: {in_words(verdict.broken)}"
    )


def taken_and_refused(observed: Observed) -> tuple[int, int]:
    """Return the numbers of received and dropped messages. Over TCP, return the numbers of good and failed calls."""
    if observed.ledger.unit == "datagrams":
        reached = observed.ledger.to_sps
        return reached.received, reached.refused
    good = _good(observed.statistics)
    return good, observed.statistics.calls_created - good


def _good(calls: CallCounts) -> int:
    """Return the number of calls that completed and that were set up within the time limit."""
    return calls.calls_completed - (calls.calls_late or 0)
