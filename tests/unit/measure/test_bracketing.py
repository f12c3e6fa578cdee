"""Tests of capacity searches on model proxies with a known capacity."""

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.measure import crossing_search
from sipsched.measure.bracketing import (
    Bracket,
    Clock,
    Offer,
    Trial,
    find_capacity,
    find_crossing,
)
from sipsched.measure.crossing_search import taken_and_refused
from sipsched.measure.generator import CallStatistics
from sipsched.measure.observed import Observed
from sipsched.plan.config import load_config
from sipsched.plan.loads import Capacity, Search
from sipsched.plan.run import Point
from sipsched.testbed import virtual_clock
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.ledger import Balance, Ledger, Tally

SEARCH = Search(
    lowest_cps=200, highest_cps=8000, relative_width=0.05, trial_s=2, trials_s=4, limit_s=60
)


def proxy_with_knee(knee_cps: float, asked: list[int] | None = None):
    """Return a model proxy that serves a number of calls per second, and drops the messages of further calls."""

    def offer(cps: int, duration_s: float) -> Trial:
        if asked is not None:
            asked.append(cps)
        messages = round(6 * cps * duration_s)
        refused = round(messages * max(0.0, 1 - knee_cps / cps))
        return Trial(cps, duration_s, messages - refused, refused)

    return offer


@pytest.mark.parametrize("knee_cps", [300, 1234, 2000, 7000])
def test_the_crossing_lies_between_the_bounds(knee_cps: int) -> None:
    asked: list[int] = []
    found = find_crossing(proxy_with_knee(knee_cps, asked), 0.01, SEARCH)
    crossing = knee_cps / 0.99
    assert found.lower_cps <= crossing * 1.001
    assert found.upper_cps >= crossing * 0.999
    assert found.upper_cps - found.lower_cps <= 0.06 * found.upper_cps
    assert [trial.cps for trial in found.trials] == asked
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("knee_cps", "message"), [(50, "already exceeds .* at 200"), (9000, "stays below .* at 8000")]
)
def test_a_crossing_outside_the_range_is_an_error(knee_cps: int, message: str) -> None:
    with pytest.raises(StableError, match=f"{message} cps; widen .*`search`"):
        find_crossing(proxy_with_knee(knee_cps), 0.01, SEARCH)


GOAL = Capacity(0.01, 0.02)


@pytest.mark.parametrize("guess_cps", [None, 1234, 1500, 400, 7900, 30_000])
def test_any_guess_leads_to_the_width_that_is_asked(
    guess_cps: float | None,
) -> None:
    asked: list[int] = []
    found = find_capacity(proxy_with_knee(1234, asked), GOAL, SEARCH, guess_cps)
    assert found.lower_cps is not None and found.upper_cps is not None
    assert found.lower_cps <= 1234 / 0.99 * 1.001 and found.upper_cps >= 1234 / 0.99 * 0.999
    assert found.upper_cps - found.lower_cps <= 0.021 * found.upper_cps
    assert found.ended_by == "width"
    # the result lists every trial
    assert [trial.cps for trial in found.trials] == asked
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("knee_cps", "bounds"), [(50, (None, 200)), (9000, (8000, None)), (1e9, (8000, None))]
)
@pytest.mark.parametrize("guess_cps", [None, 1000])
def test_a_range_on_one_side_of_the_limit_gives_one_bound(
    knee_cps: float, bounds: tuple[int | None, int | None], guess_cps: float | None
) -> None:
    found = find_capacity(proxy_with_knee(knee_cps), GOAL, SEARCH, guess_cps)
    assert (found.lower_cps, found.upper_cps, found.ended_by) == (*bounds, "range")


def test_a_search_out_of_time_keeps_the_bounds_by_its_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Search with a proxy that drops half of all messages above its capacity, so the drop rate shows no distance.

    Only the clock of the caller, such as the clock of a guest, counts the time limit.
    """
    clock = [0.0]
    real_s = itertools.count(0, 10_000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(real_s)))

    def timed(cps: int, duration_s: float) -> Trial:
        clock[0] += 9
        return Trial(cps, duration_s, 600, 600 if cps > 1234 else 0)

    def search(limit_s: float, guess_cps: float | None = None) -> Bracket:
        limited = dataclasses.replace(SEARCH, limit_s=limit_s)
        return find_capacity(timed, Capacity(0.01, 0.001), limited, guess_cps, lambda: clock[0])

    within = search(600)
    assert within.ended_by == "width"
    found = search(135, 1500)
    assert found.ended_by == "time" and len(found.trials) <= 17 < len(within.trials)
    assert found.lower_cps is not None and found.upper_cps is not None
    assert found.lower_cps <= 1234 < found.upper_cps
    with pytest.raises(TransientError, match=r"no loads below and above it within 5 s"):
        search(5)
    short = dataclasses.replace(SEARCH, limit_s=5)
    with pytest.raises(TransientError, match=r"not found within 5 s"):
        find_crossing(timed, 0.01, short, lambda: clock[0])


def test_the_clock_of_the_hosts_counts_the_limit_of_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks: list[Clock] = []
    bracket = Bracket(900, 950, ())
    idle = virtual_clock.Statistics(7 * 10**9, *[0] * 7)

    @contextmanager
    def ready(point: Point, config: Any, testbed: Testbed) -> Iterator[Any]:
        described = SimpleNamespace(sps=SimpleNamespace(kernel="6.1"))
        hosts = SimpleNamespace(testbed=testbed)
        yield (
            SimpleNamespace(hosts=hosts, describe=lambda: described),
            SimpleNamespace(label="default"),
        )

    def look(offer: Offer, now: Clock) -> Bracket:
        clocks.append(now)
        return bracket

    monkeypatch.setattr(crossing_search, "ready_for_trials", ready)
    monkeypatch.setattr(virtual_clock, "read_statistics", lambda state: idle)
    for name in ("virtual", "local"):
        point = Point(name, "kamailio-udp", "default", 1, 8)
        found = crossing_search._search(point, load_config(), load_testbed(name), look)
        assert found.bracket is bracket
    guest, real = clocks
    assert guest() == 7.0
    assert real is time.monotonic


def test_the_third_trial_decides_between_two() -> None:
    """Disturb the first trial at a load. Without further trials, this load would wrongly become an upper bound.

    Two of three trials at the same load agree, and determine the bound.
    """
    offer, asked = proxy_with_knee(2000), Counter()

    def disturbed(cps: int, duration_s: float) -> Trial:
        asked[cps] += 1
        good = offer(cps, duration_s)
        if cps > 1900 or asked[cps] > 1:
            return good
        return Trial(cps, duration_s, good.received // 2, good.received // 2)

    found = find_capacity(disturbed, GOAL, SEARCH, 2000)
    assert found.lower_cps is not None and found.lower_cps > 1900


def test_over_tcp_failed_and_late_calls_count_as_refused() -> None:
    calls = CallStatistics(
        *(1000, 990, 970, 20, 100.0, 0, 0), calls_late=50, requests={}, messages=Tally(0, 0)
    )
    none = Balance(0, 0, 0, 0, 0)
    datagrams = Ledger(Balance(100, 93, 7, 0, 0), none, 0)
    load = Observed(0.0, 1.0, calls, {}, datagrams, 0, 0.0, 0)
    assert taken_and_refused(load) == (93, 7)
    streams = dataclasses.replace(load, ledger=Ledger(none, none, 0, "messages"))
    assert taken_and_refused(streams) == (920, 70)
    assert Trial(100, 1.0, 0, 0).pdr == 0.0
