"""Histograms of times that merge by addition, and quantiles from them (docs/data-format.md).

The bins are the same as in DDSketch (Masson, Rim and Lee, PVLDB 12(12), 2019): the upper bounds of neighbouring bins
differ by a fixed factor.
"""

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.01
"""Largest relative error of a quantile, compared with the exact quantile."""
_FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
LONGEST_NS = 4 * 2**32
"""Sum of four saturated intervals (docs/data-format.md), the largest possible sum of intervals."""
BINS = 1 + int(np.ceil(np.log(LONGEST_NS) / np.log(_FACTOR)))
UPPER_NS: npt.NDArray[np.float64] = np.power(_FACTOR, np.arange(BINS), dtype=np.float64)
"""Upper ends of the bins, inclusive; the first bin begins at 0."""


def count(times_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Count times in ns by bin; return int64, shape (`BINS`,).

    NaN is in no bin, and times above `LONGEST_NS` are in the last bin.
    """
    known = times_ns[~np.isnan(times_ns)]
    bins = np.ceil(np.log(np.maximum(known, 1)) / np.log(_FACTOR)).astype(np.int64)
    return np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)


def quantile_ns(counts: npt.NDArray[np.integer], share: float) -> npt.NDArray[np.float64]:
    """Return the time that a share of the messages does not exceed.

    Parameters
    ----------
    counts
        Shape (..., `BINS`); add the counts of several runs to pool them.
    share
        Share of the messages, in (0, 1].

    Returns
    -------
    ndarray
        float64, shape (...), ns: within `RELATIVE_ERROR` of the exact quantile, or within 1 ns where the quantile is
        less than 1 ns; NaN where nothing was counted.
    """
    reached = np.cumsum(counts, axis=-1)
    total = reached[..., -1:]
    # numpy's inverted_cdf: the first bin at which the cumulative count reaches the share, in whole messages
    rank = np.maximum(np.ceil(share * total - 1e-9 * total), 1)
    bins = np.argmax(reached >= rank, axis=-1)
    middles = 2 * UPPER_NS / (1 + _FACTOR)
    return np.where(total[..., 0] > 0, middles[bins], np.nan)
