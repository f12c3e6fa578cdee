"""Tests of the shares of messages above a time."""

import numpy as np

from sipsched.analysis.exceedance import exceedance


def test_shares_are_counted_run_by_run():
    shares = exceedance([np.array([1.0, 10.0, 100.0, np.nan]), np.array([1.0, 1.0, 1.0, 1000.0])])
    assert shares.at[[0, -1]].tolist() == [1.0, 1000.0]
    assert shares.shares[:, 0].tolist() == [1 - 1 / 3, 1 - 3 / 4]
    assert shares.shares[:, -1].tolist() == [0, 0]
    at_50 = int(np.searchsorted(shares.at, 50))
    assert shares.shares[0, at_50] == 1 - 2 / 3
    assert shares.mean[at_50] == np.mean([1 - 2 / 3, 1 / 4])
    assert (shares.lowest[at_50], shares.highest[at_50]) == (1 / 4, 1 - 2 / 3)


def test_equal_times_and_zeros_have_a_share():
    shares = exceedance([np.array([5.0, 5.0])])
    assert shares.shares.max() == 0
    assert exceedance([np.array([0.0, 5.0])]).at[0] == 5.0


def test_a_point_without_known_crossings_has_no_guess():
    assert exceedance([]) is None
    assert exceedance([np.array([np.nan])]) is None
    assert exceedance([np.array([0.0])]) is None
