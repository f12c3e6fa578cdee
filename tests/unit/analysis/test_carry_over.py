"""Tests of how long a switch of the mode affects later messages, on known queues and transients."""

import numpy as np
import pytest

from sipsched.analysis.carry_over import NOT_SETTLED, settled_after
from sipsched.errors import StableError

SINCE_S = np.arange(30) * 0.02


def transient(decay_s, seed=0, noise=0.02, height=1.0):
    rng = np.random.default_rng(seed)
    return 1 + height * np.exp(-SINCE_S / decay_s) + rng.normal(0, noise, 30)


@pytest.mark.parametrize("height", [1.0, -0.8])
def test_a_transient_is_cut_where_it_falls_below_the_noise(height):
    interval = settled_after(SINCE_S, transient(0.03, height=height), np.full(30, 0.02))
    # noise of 0.02 hides a transient of 1 after 4 decay times, and hides the mean of the remaining transient sooner
    assert 0.05 < interval.estimate < 0.2
    assert interval.low <= interval.estimate <= interval.high
    longer = settled_after(SINCE_S, transient(0.06, height=height), np.full(30, 0.02))
    assert longer.estimate > interval.estimate


def test_a_flat_response_is_settled_early():
    result = [
        settled_after(SINCE_S, transient(1, seed, height=0), np.full(30, 0.02), resamples=99)
        for seed in range(200)
    ]
    starts = [each.estimate for each in result if each.known]
    assert len(starts) > 170
    assert np.median(starts) <= 0.06


def test_a_response_that_does_not_settle_has_a_reason():
    interval = settled_after(SINCE_S, transient(0.5), np.full(30, 0.02))
    assert np.isnan(interval.estimate)
    assert interval.why == NOT_SETTLED
    assert settled_after(SINCE_S[:5], np.ones(5), np.ones(5)).why == "not measured"
    assert settled_after(SINCE_S, np.full(30, np.nan), np.ones(30)).why == "not measured"
    with pytest.raises(StableError, match="a response and an error for each bin"):
        settled_after(SINCE_S, np.ones(29), np.ones(30))


def test_bins_without_messages_are_left_out():
    response = transient(0.03)
    response[[3, 20]] = np.nan
    interval = settled_after(SINCE_S, response, np.full(30, 0.02))
    assert (interval.known, interval.n) == (True, 28)
