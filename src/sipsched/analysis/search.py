"""What the trials of a search tell of the load at which the packet drop rate crosses its limit."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from sipsched.analysis.statistics import LEVEL, Interval
from sipsched.records.crossing import Trial

SPREAD = 0.05
"""How much the load that a machine carries differs from trial to trial, as far as nothing is known: median."""
SPREAD_FACTOR = 2.0
"""It is believed to be within this factor of it in two cases of three."""
WIDEST = 4.0
"""Times the least and the highest load tried, that a crossing is looked for between."""


def search_interval(trials: Sequence[Trial], limit: float, level: float = LEVEL) -> Interval:
    """Estimate a crossing, with an interval, from all trials of a search.

    A search that tries each load once calls a load a bound that went well, or badly, once. Here each trial
    has a crossing of its own, lognormal about that of the point, and was above the limit if its load was
    above that. The spread from trial to trial is not known: it gets a lognormal prior (`SPREAD`), the
    crossing a flat one in log load; the interval is the middle of the posterior.

    Parameters
    ----------
    trials
        All of them.
    limit
        Packet drop rate, as a share.
    level
        Of the interval.
    """
    if not trials:
        return Interval.without(np.nan, 0, level, "no trial")
    loads = np.log([trial.cps for trial in trials])
    over = np.array([trial.pdr > limit for trial in trials])
    places = np.linspace(loads.min() - np.log(WIDEST), loads.max() + np.log(WIDEST), 1200)
    spreads = np.geomspace(SPREAD / SPREAD_FACTOR**3, SPREAD * SPREAD_FACTOR**3, 25)
    beyond = (loads - places[:, None, None]) / spreads[:, None]
    logs = special.log_ndtr(np.where(over, beyond, -beyond)).sum(axis=2)
    logs -= (np.log(spreads / SPREAD) / np.log(SPREAD_FACTOR)) ** 2 / 2
    posterior = np.exp(logs - logs.max()).sum(axis=1)
    below = np.cumsum(posterior) / posterior.sum()
    parts = ((1 - level) / 2, 0.5, (1 + level) / 2)
    low, middle, high = (float(np.exp(places[np.searchsorted(below, part)])) for part in parts)
    return Interval(middle, low, high, len(trials), level, "posterior of the trials")
