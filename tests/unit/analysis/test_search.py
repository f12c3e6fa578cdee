"""The interval of a search, on machines whose capacity differs from trial to trial."""

import numpy as np
import pytest

from sipsched.analysis.search import search_interval
from sipsched.measure.crossing_search import Trial, find_crossing
from sipsched.plan.config import Search

SEARCH = Search(
    lowest_cps=200, highest_cps=4000, relative_width=0.1, trial_s=6, trials_s=6, limit_s=300
)


def machine(carries_cps, spread, rng):
    """Drop what is more than the machine carries in each trial."""

    def offer(cps, duration_s):
        carried = carries_cps * np.exp(spread * rng.standard_normal())
        messages = round(6 * cps * duration_s)
        refused = round(messages * min(max(0.0, 1 - 0.99 * carried / cps), 1))
        return Trial(cps, duration_s, messages - refused, refused)

    return offer


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05, 0.1])
def test_the_interval_holds_the_crossing_and_two_searches_agree(spread):
    """The bounds of the search alone hold it in two of three searches where trials differ by 5 %."""
    rng = np.random.default_rng(7)
    told, true = [], []
    for carries_cps in np.repeat(np.exp(rng.uniform(np.log(700), np.log(2800), 30)), 2):
        found = find_crossing(machine(carries_cps, spread, rng), 0.01, SEARCH)
        told.append(search_interval(found.trials, 0.01))
        true.append(carries_cps)
    held = [each.low <= cps <= each.high for each, cps in zip(told, true, strict=True)]
    assert np.mean(held) >= 0.93
    agree = [
        max(first.low, second.low) <= min(first.high, second.high)
        for first, second in zip(told[::2], told[1::2], strict=True)
    ]
    assert np.mean(agree) >= 0.95
    assert np.median([each.high / each.low for each in told]) < 1.35


def test_trials_that_contradict_each_other_widen_it():
    agree = [Trial(900, 6, 1000, 0), Trial(1000, 6, 950, 50)] * 2
    contradict = [*agree, Trial(900, 6, 950, 50), Trial(1000, 6, 1000, 0)]
    first, second = (search_interval(trials, 0.01) for trials in (agree, contradict))
    assert 850 < first.low < 900 < first.estimate < 1000 < first.high < 1060
    assert second.high / second.low > 1.05 * first.high / first.low
    assert search_interval([], 0.01).why == "no trial"
