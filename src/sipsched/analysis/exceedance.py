"""What share of a run's messages takes longer than a time: the complement of the distribution (CCDF)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
LEVELS = 200
"""Times at which the share is told, evenly apart on a log scale."""


@dataclass(frozen=True)
class Exceedance:
    """Of runs alike.

    Attributes
    ----------
    at
        Shape (time,), ascending, all above 0.
    shares
        Shape (run, time): share of the run's messages that take longer. The replicate is the run.
    """

    at: Values
    shares: Values

    @property
    def mean(self) -> Values:
        """Over the runs: shape (time,)."""
        return np.asarray(self.shares.mean(axis=0))

    @property
    def lowest(self) -> Values:
        """Over the runs: shape (time,)."""
        return np.asarray(self.shares.min(axis=0))

    @property
    def highest(self) -> Values:
        """Over the runs: shape (time,)."""
        return np.asarray(self.shares.max(axis=0))


def exceedance(runs: Sequence[Values]) -> Exceedance | None:
    """Tell what share of messages takes longer than each of some times.

    Parameters
    ----------
    runs
        Of each run the times of its messages, NaN where a message has none.

    Returns
    -------
    Exceedance or None
        From the shortest time to the longest. None if no message has one above 0.
    """
    known = [values[~np.isnan(values)] for values in runs]
    known = [np.sort(values) for values in known if len(values)]
    above_0 = [values[values > 0] for values in known]
    if not any(map(len, above_0)):
        return None
    shortest = min(values[0] for values in above_0 if len(values))
    longest = max(values[-1] for values in known)
    at = np.geomspace(shortest, longest, LEVELS)
    # a rounding upwards would lose the longest
    at[-1] = longest
    shares = [1 - np.searchsorted(values, at, side="right") / len(values) for values in known]
    return Exceedance(at, np.array(shares))
