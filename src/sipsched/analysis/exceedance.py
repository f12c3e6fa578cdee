"""The share of a run's messages that take longer than a given time (CCDF)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.intervals import Values

LEVELS = 200
"""Number of points on the time axis (logarithmic scale) at which the share of longer messages is computed."""


@dataclass(frozen=True)
class Exceedance:
    """Shares of messages that take longer than given times, for runs with equal settings.

    Attributes
    ----------
    at
        Shape (time,), ascending, all above 0.
    shares
        Shape (run, time): share of the run's messages that take longer than the time. The replicate is the run.
    """

    at: Values
    shares: Values

    @property
    def mean(self) -> Values:
        """The share of messages that take longer than each time: mean over all runs, shape (time,)."""
        return np.asarray(self.shares.mean(axis=0))

    @property
    def lowest(self) -> Values:
        """The share of messages that take longer than each time: minimum over all runs, shape (time,)."""
        return np.asarray(self.shares.min(axis=0))

    @property
    def highest(self) -> Values:
        """The share of messages that take longer than each time: maximum over all runs, shape (time,)."""
        return np.asarray(self.shares.max(axis=0))


def exceedance(runs: Sequence[Values]) -> Exceedance | None:
    """Return the share of messages that exceed each of several times; None if all message times are 0.

    Parameters
    ----------
    runs
        Times of the messages per run; NaN where a time is missing.
    """
    known = [values[~np.isnan(values)] for values in runs]
    known = [np.sort(values) for values in known if len(values)]
    above_0 = [values[values > 0] for values in known]
    if not any(map(len, above_0)):
        return None
    shortest = min(values[0] for values in above_0 if len(values))
    longest = max(values[-1] for values in known)
    at = np.geomspace(shortest, longest, LEVELS)
    # Rounding may put the last point of the time axis above the longest message, so this point is set exactly.
    at[-1] = longest
    shares = [1 - np.searchsorted(values, at, side="right") / len(values) for values in known]
    return Exceedance(at, np.array(shares))
