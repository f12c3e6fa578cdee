"""How long a switch is felt, on queues and transients that are known."""

import numpy as np
import pytest

from sipsched.analysis.carry_over import NOT_SETTLED, carried_over, settled_after
from sipsched.errors import StableError

SINCE_S = np.arange(30) * 0.02


def transient(decay_s, seed=0, noise=0.02, height=1.0):
    rng = np.random.default_rng(seed)
    return 1 + height * np.exp(-SINCE_S / decay_s) + rng.normal(0, noise, 30)


def test_what_is_carried_over_is_what_a_queue_carries():
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(1, 200_000))
    work = rng.exponential(0.7, arrivals.size)
    # the server is free when all before are done: Lindley by running maxima
    done = np.cumsum(work) + np.maximum.accumulate(arrivals - np.cumsum(work) + work)
    first = np.flatnonzero(np.concatenate(([True], arrivals[1:] > done[:-1])))
    begins, ends = arrivals[first], done[np.concatenate((first[1:] - 1, [done.size - 1]))]
    switches = rng.uniform(0, ends[-1], 100_000)
    place = np.maximum(np.searchsorted(begins, switches, "right") - 1, 0)
    left = np.where(begins[place] <= switches, ends[place] - switches, 0).clip(0)
    after = np.array([0, 1, 5, 20.0])
    lengths = ends - begins
    found = carried_over(lengths, lengths.sum() / ends[-1], after)
    assert found == pytest.approx([(left > each).mean() for each in after], abs=0.005)
    assert found[0] == pytest.approx(0.7, abs=0.01)


def test_what_is_carried_over_by_hand():
    assert carried_over([1, 3], 0.5, [0, 1, 2, 3, 9]) == pytest.approx([0.5, 0.25, 0.125, 0, 0])
    assert carried_over([2.0], 1, 0.5) == pytest.approx(0.75)
    assert np.isnan(carried_over([], 0.5, [0, 1])).all()


@pytest.mark.parametrize("height", [1.0, -0.8])
def test_a_transient_is_cut_where_noise_hides_it(height):
    found = settled_after(SINCE_S, transient(0.03, height=height), np.full(30, 0.02))
    # 0.02 of noise hides the rest of 1 after 4 decay times, the mean of the rest sooner
    assert 0.05 < found.estimate < 0.2
    assert found.low <= found.estimate <= found.high
    longer = settled_after(SINCE_S, transient(0.06, height=height), np.full(30, 0.02))
    assert longer.estimate > found.estimate


def test_a_flat_response_is_settled_early():
    found = [
        settled_after(SINCE_S, transient(1, seed, height=0), np.full(30, 0.02), resamples=99)
        for seed in range(200)
    ]
    starts = [each.estimate for each in found if each.known]
    assert len(starts) > 170
    assert np.median(starts) <= 0.06


def test_what_does_not_settle_says_so():
    found = settled_after(SINCE_S, transient(0.5), np.full(30, 0.02))
    assert np.isnan(found.estimate)
    assert found.why == NOT_SETTLED
    assert settled_after(SINCE_S[:5], np.ones(5), np.ones(5)).why == "not measured"
    assert settled_after(SINCE_S, np.full(30, np.nan), np.ones(30)).why == "not measured"
    with pytest.raises(StableError, match="a response and an error for each bin"):
        settled_after(SINCE_S, np.ones(29), np.ones(30))


def test_bins_without_messages_are_left_out():
    response = transient(0.03)
    response[[3, 20]] = np.nan
    found = settled_after(SINCE_S, response, np.full(30, 0.02))
    assert (found.known, found.n) == (True, 28)
