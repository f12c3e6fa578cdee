"""Tests of merging histograms, and of computing quantiles from histograms."""

import numpy as np
import pytest
from damage import steady
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from sipsched.records.histogram import BINS, LONGEST_NS, RELATIVE_ERROR, count, quantile_ns

times = st_np.arrays(
    np.float64,
    st.integers(0, 200),
    elements=st.one_of(
        st.integers(0, 3 * 2**32).map(float), st.floats(0, 2e4), st.just(float("nan"))
    ),
)
shares = st.one_of(st.sampled_from([0.5, 0.95, 0.99, 0.999, 1.0]), st.floats(1e-6, 1))


@steady
@given(times, times)
def test_merged_histograms_equal_the_histogram_of_all_times(one, other):
    np.testing.assert_array_equal(count(one) + count(other), count(np.concatenate((one, other))))


@steady
@given(times, shares)
def test_a_quantile_of_a_histogram_is_within_one_percent(drawn, share):
    known = drawn[~np.isnan(drawn)]
    result = float(quantile_ns(count(drawn), share))
    if not known.size:
        assert np.isnan(result)
        return
    exact = float(np.quantile(known, share, method="inverted_cdf"))
    assert result == pytest.approx(exact, rel=RELATIVE_ERROR * (1 + 1e-9), abs=1)


def test_quantiles_of_a_million_messages_are_computed_per_cell():
    rng = np.random.default_rng(5)
    drawn = np.exp(rng.normal(11, [[1.0], [2.0]], (2, 500_000)))
    counts = np.array([count(row) for row in drawn])
    for share in (0.5, 0.9, 0.99, 0.999, 0.9999):
        np.testing.assert_allclose(
            quantile_ns(counts, share), np.quantile(drawn, share, axis=1), rtol=RELATIVE_ERROR
        )
        together = quantile_ns(counts.sum(axis=0), share)
        assert together == pytest.approx(np.quantile(drawn, share), rel=RELATIVE_ERROR)


def test_longer_times_are_in_the_last_bin():
    result = count(np.array([0.0, 1.0, 2.0 * LONGEST_NS]))
    assert (result[0], result[-1], result.sum()) == (2, 1, 3)
    assert result.shape == (BINS,)
    assert np.isnan(quantile_ns(np.zeros(BINS, np.int64), 0.5))
