"""Histograms of durations, and quantiles from histograms. The counts of several runs can be added.

The bins are the bins of DDSketch (Masson, Rim and Lee, PVLDB 12(12), 2019): the upper bounds of neighbouring bins
differ by a constant factor.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.01
"""Largest relative difference between a quantile from a histogram and the exact quantile."""
_FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
LONGEST_NS = 4 * 2**32
"""Largest possible sum of four intervals in ns. Each interval saturates at 2^32 ns (docs/data-format.md)."""
BINS = 1 + int(np.ceil(np.log(LONGEST_NS) / np.log(_FACTOR)))
UPPER_NS: npt.NDArray[np.float64] = np.power(_FACTOR, np.arange(BINS), dtype=np.float64)
"""Upper bounds of the histogram's bins in ns. A bin includes the upper bound. The first bin begins at 0."""


def count(times_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return a histogram of times in ns: the number of times in each bin, as int64 with shape (`BINS`,).

    NaN is not counted. Times above `LONGEST_NS` count in the last bin.
    """
    return np.bincount(bin_of(times_ns[~np.isnan(times_ns)]), minlength=BINS)


def bin_of(times_ns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the index of the histogram's bin for each time in ns. Times above `LONGEST_NS` are in the last bin."""
    bins = np.ceil(np.log(np.maximum(times_ns, 1)) / np.log(_FACTOR))
    return np.asarray(np.minimum(bins, BINS - 1), np.int64)


def quantile_ns(counts: npt.NDArray[np.integer], share: float) -> npt.NDArray[np.float64]:
    """Return a quantile of message times in ns: the time that the given share of messages does not exceed.

    Parameters
    ----------
    counts
        Shape (..., `BINS`). To pool several runs, add their counts.
    share
        Share of the messages, in (0, 1].

    Returns
    -------
    ndarray
        float64, shape (...), ns: within `RELATIVE_ERROR` of the exact quantile, or within 1 ns for a quantile below 1
        ns; NaN if nothing was counted.
    """
    reached = np.cumsum(counts, axis=-1)
    total = reached[..., -1:]
    # The quantile is the first bin at which the cumulative count reaches the share, as in numpy's method inverted_cdf.
    rank = np.maximum(np.ceil(share * total - 1e-9 * total), 1)
    bins = np.argmax(reached >= rank, axis=-1)
    middles = 2 * UPPER_NS / (1 + _FACTOR)
    return np.where(total[..., 0] > 0, middles[bins], np.nan)
