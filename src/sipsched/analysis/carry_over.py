"""The time after a switch of scheduler modes during which the switch still influences message times.

A run that compares modes switches the proxy between the modes. Results exclude the start of each stretch in one mode
(the washout). The washout must be longer than the time that this module estimates.
"""

import numpy as np
import numpy.typing as npt

from sipsched.analysis.crossing_load import RESAMPLES, SEED
from sipsched.analysis.intervals import LEVEL, NOT_MEASURED, Interval, Values, percentiles
from sipsched.errors import StableError

NOT_SETTLED = "not settled within half of the window"
MIN_BINS = 8


def settled_after(
    since_switch: npt.ArrayLike,
    response: npt.ArrayLike,
    error: npt.ArrayLike,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Estimate the time after a switch of modes during which the switch still changes the mean message time.

    Each window is divided into bins by the time since the switch. The marginal standard error rule removes the number
    of first bins that makes the mean of the remaining bins most precise. Removing bins reduces the bias but also the
    number of bins. The rule detects an initial change only if this change exceeds the noise of the bins.

    SEE White, An Effective Truncation Heuristic for Bias Reduction in Simulation Output (Simulation 69, 1997)

    Parameters
    ----------
    since_switch
        Shape (bin,): the time since the switch for each bin, such as the middle of the bin, in ascending order.
    response, error
        Shape (bin,): the mean over windows, and its standard error; NaN for bins without a value.
    level
        Confidence level of the interval.
    resamples, seed
        Number and seed of the bootstrap samples for the interval. Each bin is sampled from a normal distribution around
        its mean.

    Returns
    -------
    Interval
        Time of the first remaining bin; n is the number of bins. NaN with a reason if less than half of the window
        would remain, or if fewer than MIN_BINS bins exist. The upper end of the interval may be infinite.

    Raises
    ------
    StableError
        The shapes differ.
    """
    # ASSUME the errors of the bins are independent. An error that is equal in all bins does not change the result.
    starts, means, errors = _bins(since_switch, response, error)
    if starts.size < MIN_BINS:
        return Interval.without(np.nan, starts.size, level, NOT_MEASURED)
    settled_s = float(_cut(starts, means[None])[0])
    if np.isinf(settled_s):
        return Interval.without(np.nan, starts.size, level, NOT_SETTLED)
    rng = np.random.default_rng(seed)
    drawn = _cut(starts, rng.normal(means, errors, (resamples, starts.size)))
    low, high = percentiles(drawn, level)
    return Interval(
        settled_s,
        min(low, settled_s),
        max(high, settled_s),
        starts.size,
        level,
        "marginal standard error",
    )


def _bins(*columns: npt.ArrayLike) -> list[Values]:
    """Return the times, means and standard errors of the bins, without bins that lack a mean or an error."""
    starts, means, errors = (np.asarray(column, float) for column in columns)
    if not starts.shape == means.shape == errors.shape == (starts.size,):
        raise StableError(
            f"settled: expected a response and an error for each bin, found shapes "
            f"{starts.shape}, {means.shape} and {errors.shape}"
        )
    has = np.isfinite(means) & np.isfinite(errors)
    return [starts[has], means[has], errors[has]]


def _cut(starts: Values, rows: Values) -> Values:
    """Return, for each row of bins, the time at which the initial change of the message times ends.

    The time is infinite if the change lasts longer than half of the bins.
    """
    bins = starts.size
    left = np.arange(bins, 0, -1)
    centred = rows - rows.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred[:, ::-1], axis=1)[:, ::-1]
    squares = np.cumsum(centred[:, ::-1] ** 2, axis=1)[:, ::-1]
    errors = (squares - sums**2 / left) / left**2
    # The search excludes the last bins. Otherwise, the smallest error could belong to a few bins that agree by chance.
    index = np.argmin(errors[:, : bins - MIN_BINS // 2], axis=1)
    return np.where(index <= bins // 2, starts[index], np.inf)
