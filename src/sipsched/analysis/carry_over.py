"""How long a switch is felt: what a washout and a window have to outlast.

A queue that serves whatever waits forgets its past when it runs empty: from then on nothing depends on
the mode in force before. So there are two things to look at: busy periods, and the response since the switch.
"""

import numpy as np
import numpy.typing as npt

from sipsched.analysis.statistics import (
    LEVEL,
    NOT_MEASURED,
    RESAMPLES,
    SEED,
    Interval,
    Values,
    percentiles,
)
from sipsched.errors import StableError

NOT_SETTLED = "not settled within half of the window"
MIN_BINS = 8


def carried_over(busy_s: npt.ArrayLike, load: float, after: npt.ArrayLike) -> Values:
    """Tell in which share of switches the queue of the mode before is not yet served out.

    A switch finds a busy period with the chance `load`, a long one in proportion to its length, at
    any point of it alike: the share is load × E[(B - w)⁺] / E[B], the tail of the residual life of B.

    Parameters
    ----------
    busy_s
        Shape (period,): lengths of whole busy periods, or their quantiles at equal steps.
    load
        Share of time in which the server is busy.
    after
        Times since the switch, any shape, in the same unit.

    Returns
    -------
    ndarray
        The shape of `after`; NaN without a busy period.
    """
    lengths, times = np.sort(np.asarray(busy_s, float)), np.asarray(after, float)
    total = float(lengths.sum())
    if not total:
        return np.full(times.shape, np.nan)
    # of the periods longer than w: the sum of lengths less w for each of them
    longer = np.searchsorted(lengths, times, side="right")
    tails = np.concatenate((np.cumsum(lengths[::-1])[::-1], [0]))
    left: Values = load * (tails[longer] - (lengths.size - longer) * times) / total
    return np.clip(left, 0, 1)


def settled_after(
    since_switch: npt.ArrayLike,
    response: npt.ArrayLike,
    error: npt.ArrayLike,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Find from when on the mean response since the switch is flat.

    The marginal standard error rule: what to cut from the start so that the mean of the rest is known
    best, which weighs the bias that is cut against the bins that are lost. It finds a transient that is
    larger than the noise of the bins, and no other.

    SEE White, An Effective Truncation Heuristic for Bias Reduction in Simulation Output (Simulation 69, 1997)

    Parameters
    ----------
    since_switch
        Shape (bin,): a time in each bin, such as its middle, ascending.
    response, error
        Shape (bin,): the mean over windows and its standard error; NaN where a bin has none.
    level
        Confidence.
    resamples, seed
        Of the interval: each bin is drawn anew from the normal distribution about its mean.

    Returns
    -------
    Interval
        The time of the first bin that is kept, n the number of bins. NaN with a reason if less than half of
        the window would be left, or there are fewer than MIN_BINS bins; a high end may be infinite.

    Raises
    ------
    StableError
        The shapes differ.
    """
    # ASSUME errors of bins are independent; a shift that bins have in common moves nothing
    starts, means, errors = (np.asarray(each, float) for each in (since_switch, response, error))
    if not starts.shape == means.shape == errors.shape == (starts.size,):
        raise StableError(
            f"settled: expected a response and an error for each bin, found shapes "
            f"{starts.shape}, {means.shape} and {errors.shape}"
        )
    has = np.isfinite(means) & np.isfinite(errors)
    starts, means, errors = starts[has], means[has], errors[has]
    if starts.size < MIN_BINS:
        return Interval.without(np.nan, starts.size, level, NOT_MEASURED)
    found = float(_cut(starts, means[None])[0])
    if np.isinf(found):
        return Interval.without(np.nan, starts.size, level, NOT_SETTLED)
    rng = np.random.default_rng(seed)
    drawn = _cut(starts, rng.normal(means, errors, (resamples, starts.size)))
    low, high = percentiles(drawn, level)
    return Interval(
        found, min(low, found), max(high, found), starts.size, level, "marginal standard error"
    )


def _cut(starts: Values, rows: Values) -> Values:
    """Give where each row is cut; inf where that is not before its half."""
    bins = starts.size
    left = np.arange(bins, 0, -1)
    centred = rows - rows.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred[:, ::-1], axis=1)[:, ::-1]
    squares = np.cumsum(centred[:, ::-1] ** 2, axis=1)[:, ::-1]
    errors = (squares - sums**2 / left) / left**2
    # the last few bins agree by chance
    place = np.argmin(errors[:, : bins - MIN_BINS // 2], axis=1)
    return np.where(place <= bins // 2, starts[place], np.inf)
