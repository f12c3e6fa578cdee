"""Where a proxy starts to drop: trials that close in on the load of a packet drop rate."""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

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
from sipsched.plan.config import Config, Limits, Point, Search, TestbedLabels
from sipsched.plan.modes import find_mode, load_modes
from sipsched.records.crossing import SCHEMA_VERSION as CROSSING_VERSION
from sipsched.records.record import UnfinishedRecord
from sipsched.records.run_document import CallCounts
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts
from sipsched.validity.verdict import RULES, in_words, judge
from sipsched.words import utc

TRIAL_ATTEMPTS = 3


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
        The highest load found at or under the limit.
    upper_cps
        The lowest load found above it.
    trials
        All of them, in their order.
    """

    lower_cps: int
    upper_cps: int
    trials: tuple[Trial, ...]


def search_crossing(point: Point, config: Config, testbed: Testbed, raw: Path) -> Path:
    """Find where the packet drop rate crosses its limit at a point, and record it.

    Parameters
    ----------
    point
        What is measured.
    config
        The campaign: limit, range and width of the search.
    testbed
        Three hosts that SSH reaches.
    raw
        Folder of all records.

    Returns
    -------
    Path
        The `crossing.json`, beside the folders of that point's loads.

    Raises
    ------
    StableError
        The limit is not crossed within the range of loads, or a run cannot be done here.
    TransientError
        It was disturbed.
    """
    testbed.check_cores([point])
    path = raw / point.crossing_path
    search, started = config.search, time.time()
    found = (_search_simulated if testbed.simulated else _search)(point, config, testbed)
    document = {
        "schema_version": CROSSING_VERSION,
        "testbed": asdict(found.testbed),
        "point": asdict(point),
        "label": found.label,
        "kernel": found.kernel,
        "started_at": utc(started),
        "finished_at": utc(time.time()),
        "pdr_limit": config.pdr_limit,
        "search": asdict(search),
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


def _search(point: Point, config: Config, testbed: Testbed) -> _Found:
    search = config.search
    # each trial's files take the place of the last one's
    calls = round(search.highest_cps * search.trial_s)
    mode = find_mode(point.mode, load_modes())
    with tempfile.TemporaryDirectory(prefix="sipsched-search-") as scratch:
        # nothing of a run is kept: the proxy's log would be the record of many loads
        record = UnfinishedRecord.begin(Path(scratch), point.run(0, 0))
        with open_hosts(testbed, f"a search at {point}") as hosts:
            serving = Serving(hosts, point, config, record, search.limit_s + 60)
            serving.check_hosts(calls)
            with tuned(hosts.sps, testbed, mode, point.cores, point.threads) as state:
                offer = _with_own_arrivals(partial(_offer, serving, state, config.validity))
                found = find_crossing(offer, config.pdr_limit, search)
                kernel = serving.describe().sps.kernel
    return _Found(found, hosts.testbed.labels, state.label, kernel)


def _search_simulated(point: Point, config: Config, testbed: Testbed) -> _Found:
    plan = plan_point(point, config, testbed)

    def offer(cps: int, duration_s: float, rep: int) -> Trial:
        arrivals = Arrivals(cps, max(1, round(cps * duration_s)), arrival_seed(cps, rep))
        return Trial(cps, duration_s, *simulated_counts(plan, config.load, arrivals))

    found = find_crossing(_with_own_arrivals(offer), config.pdr_limit, config.search)
    return _Found(found, testbed.labels, plan.state.label, plan.kernel)


def _with_own_arrivals(offer: Callable[[int, float, int], Trial]) -> Callable[[int, float], Trial]:
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
        with serving.started(state):
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


def find_crossing(
    offer: Callable[[int, float], Trial], pdr_limit: float, search: Search
) -> Bracket:
    """Search for the load at which the packet drop rate crosses a limit.

    Multiple Loss Ratio search (Polák and Konstantynowicz, draft-ietf-bmwg-mlrsearch), from the library of
    that name: a load is a bound once trials of `trial_s` on it, at least `trials_s` together, agree by majority.
    Each bound is tried once more, whatever comes of it: how far trials agree is what an interval rests on
    (`sipsched.analysis.search`).

    Parameters
    ----------
    offer
        Offers a load in calls per second for some seconds.
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
    measurer = _Measurer(offer)
    goal = SearchGoal(
        loss_ratio=pdr_limit,
        exceed_ratio=0.5,
        relative_width=search.relative_width,
        initial_trial_duration=search.trial_s,
        final_trial_duration=search.trial_s,
        duration_sum=search.trials_s,
        preceding_targets=2,
        fail_fast=False,
    )
    settings = MLRsearch.Config()
    settings.goals = [goal]
    settings.min_load = search.lowest_cps
    settings.max_load = search.highest_cps
    settings.search_duration_max = search.limit_s
    settings.warmup_duration = None
    try:
        result = MultipleLossRatioSearch(settings).search(measurer, debug=lambda text: None)[goal]
    except RuntimeError as error:
        raise TransientError(f"search for the crossing: {error}") from error
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
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
    bounds = round(float(lower)), round(float(upper))
    again = (offer(cps, search.trial_s) for cps in bounds)
    return Bracket(*bounds, (*measurer.trials, *again))


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    """The library's side of a trial."""

    def __init__(self, offer: Callable[[int, float], Trial]) -> None:
        self._offer = offer
        self.trials: list[Trial] = []

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._offer(round(intended_load), intended_duration)
        self.trials.append(trial)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.received + trial.refused,
            loss_count=trial.refused,
            # the library sums this up, and `trials_s` is about seconds of load
            duration_with_overheads=intended_duration,
        )
