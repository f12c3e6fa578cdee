"""Tests of the search for ratios of capacities, on systems whose capacities are known."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sipsched.errors import LostError, TransientError
from sipsched.measure import paired_search
from sipsched.measure.bracketing import Trial
from sipsched.measure.paired_search import AIM, FEWEST_ROUNDS, find_ratios
from sipsched.plan.loads import Capacity, Search

GOAL = Capacity(0.01, 0.05)
SEARCH = Search(200, 5000, 0.1, 3.0, 3.0, 600.0)
CAPACITIES = (1000.0, 1500.0)
TRIAL_S = 5.0


class Systems:
    """Systems with known capacities, and a clock that advances with every trial."""

    def __init__(self, *capacities: float, luck: Callable[[int], float] = lambda n: 1.0) -> None:
        self.capacities, self.luck = capacities, luck
        self.time_s = 0.0
        self.asked: list[tuple[int, int]] = []

    def offer(self, system: int, cps: int, duration_s: float) -> Trial:
        self.asked.append((system, cps))
        self.time_s += TRIAL_S
        handled = min(cps, self.capacities[system] * self.luck(len(self.asked)))
        received = round(6 * handled * duration_s)
        refused = round(6 * cps * duration_s) - received
        return Trial(cps, duration_s, received, refused, carried_cps=handled)

    def now(self) -> float:
        return self.time_s


def test_trials_alternate_until_the_ratio_is_precise() -> None:
    systems = Systems(*CAPACITIES)
    found = find_ratios(systems.offer, 2, GOAL, SEARCH, 400, systems.now)
    assert found.ended_by == "width"
    rounds = [found.trials[place : place + 2] for place in range(0, len(found.trials), 2)]
    assert [trial.round for trial in found.trials] == [
        number for number in range(1, len(rounds) + 1) for _ in CAPACITIES
    ]
    counting = [pair for pair in rounds if all(GOAL.limit < trial.pdr < 0.5 for trial in pair)]
    assert len(counting) == FEWEST_ROUNDS
    # the loads rise until both systems are overloaded, and then stay a little above each capacity
    for trial, capacity in zip(rounds[-1], CAPACITIES, strict=True):
        assert trial.cps == pytest.approx(capacity / (1 - AIM), rel=0.01)
    asked = [system for system, _ in systems.asked]
    orders = set(zip(asked[::2], asked[1::2], strict=True))
    assert orders == {(0, 1), (1, 0)}
    assert (found.lower_cps, found.upper_cps) == (400, max(cps for _, cps in systems.asked))


def test_a_scattering_ratio_is_searched_until_the_time_limit() -> None:
    rng = np.random.default_rng(1)
    systems = Systems(*CAPACITIES, luck=lambda n: float(rng.uniform(0.7, 1.3)))
    found = find_ratios(systems.offer, 2, GOAL, SEARCH, 1000, systems.now)
    assert found.ended_by == "time"
    # the next round would end after the limit
    assert SEARCH.limit_s - 2 * TRIAL_S <= systems.time_s <= SEARCH.limit_s


def test_the_round_of_a_disturbed_trial_does_not_count() -> None:
    systems = Systems(*CAPACITIES)

    def disturbed(system: int, cps: int, duration_s: float) -> Trial:
        trial = systems.offer(system, cps, duration_s)
        if len(systems.asked) % 5 == 0:
            raise TransientError("another program ran")
        return trial

    found = find_ratios(disturbed, 2, GOAL, SEARCH, 1500, systems.now)
    assert len(found.trials) < len(systems.asked) - len(systems.asked) // 5
    numbers = [trial.round for trial in found.trials]
    assert numbers[::2] == numbers[1::2]
    # the numbers of the incomplete rounds are missing
    assert (found.trials[-1].round or 0) > len(set(numbers))


def test_a_load_that_no_proxy_survives_is_lowered() -> None:
    systems = Systems(*CAPACITIES)

    def collapsing(system: int, cps: int, duration_s: float) -> Trial:
        trial = systems.offer(system, cps, duration_s)
        if cps > 3000:
            raise TransientError("no call completed")
        return trial

    found = find_ratios(collapsing, 2, GOAL, SEARCH, 5000, systems.now)
    assert found.ended_by == "width"
    assert all(trial.cps <= 3000 for trial in found.trials)


@pytest.mark.parametrize(
    ("kind", "expected", "tried"),
    [(TransientError, "5 trials failed, the last: dead", 5), (LostError, "^dead$", 1)],
)
def test_a_system_that_always_fails_ends_the_search_with_its_reason(
    kind: type[TransientError], expected: str, tried: int
) -> None:
    systems = Systems(*CAPACITIES)

    def failing(system: int, cps: int, duration_s: float) -> Trial:
        trial = systems.offer(system, cps, duration_s)
        if system == 1:
            raise kind("dead")
        return trial

    with pytest.raises(TransientError, match=expected):
        find_ratios(failing, 2, GOAL, SEARCH, 1000, systems.now)
    assert sum(system == 1 for system, _ in systems.asked) == tried


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [(0.975, 7, 2.365), (0.975, 20, 2.086), (0.9875, 7, 2.841), (0.995, 9, 3.250)],
)
def test_the_quantiles_are_those_of_students_t(
    probability: float, degrees: int, expected: float
) -> None:
    assert paired_search._student(probability, degrees) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("highest_cps", [1200, 1510])
def test_a_system_that_is_never_overloaded_has_no_ratio(highest_cps: int) -> None:
    systems = Systems(*CAPACITIES)
    search = replace(SEARCH, highest_cps=highest_cps)
    with pytest.raises(TransientError, match=rf"within 600 s .* rise to {highest_cps} cps"):
        find_ratios(systems.offer, 2, GOAL, search, 1000, systems.now)
    assert max(cps for _, cps in systems.asked) == highest_cps
