"""The estimate of a proxy's capacity from all its trials and runs, on a machine whose speed changes slowly.

The capacity is estimated for a SUT in a mode, with its cores and threads, on a testbed. docs/methodology/capacity.md
describes the model, the threats to its validity, and the measured coverage of its intervals.
"""

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import special

from sipsched.analysis.intervals import LEVEL, Values

READ_WITHIN = 10.0
"""The estimate uses the exact value of a drop rate only if the drop rate is within this factor of the drop limit.

A drop rate beyond this factor only bounds the capacity.
"""
STEEPNESS = ((14.0, 25.0), (1.0, 1.0))
"""Values and prior weights of the steepness: the change of the log drop rate per change of the log load."""
SCATTER = ((0.02, 0.04, 0.08, 0.16), (1.0, 2.0, 2.0, 1.0))
"""Values and prior weights of the standard deviation of the log capacity from trial to trial."""
MEMORY_S = ((60.0, 600.0, 3600.0), (1.0, 1.0, 1.0))
"""Values (s) and prior weights of the time after which a slow deviation of the speed has decayed to 37 %."""
DRIFT = ((0.02, 0.05, 0.10, 0.20), (1.0, 2.0, 2.0, 1.0))
"""Values and prior weights of the standard deviation of slow changes of the log speed."""
DRIFT_BEYOND_CPU = ((0.01, 0.03, 0.06), (2.0, 2.0, 1.0))
"""Values and prior weights of the standard deviation of slow changes that the CPU time per message does not show."""
SHARE_OF_SPEED = ((0.5, 1.0), (1.0, 2.0))
"""Values and prior weights of the change of the log capacity per change of the log speed.

The change is 1 if only CPU time limits the capacity.
"""
NO_SHARE = ((0.0,), (1.0,))
FEWEST_SPEEDS = 4
"""Smallest number of trials and runs with a measured CPU time from which the machine's speed is estimated."""
SPEED_NOISE = (0.01, 0.03, 0.06, 0.12)
"""Values of the standard deviation of the measured log speed from trial to trial, in addition to the slow changes."""
WIDEST = 4.0
"""The searched capacities range from the lowest load divided by this factor to the highest load times this factor."""
COARSE, FINE = 32, 48
"""Numbers of evaluated capacities: first in the whole range, then in the range with non-negligible probability."""
SHORTEST_S = 1.0
NEWTON_STEPS = 30
CLOSE = 1e-3
SCALE = float(np.sqrt(3) / np.pi)
"""Scale parameter of a logistic distribution with standard deviation 1."""
RESOLUTION = 400


class Observations(NamedTuple):
    """The trials of searches and the runs of one system. Every array has one entry per trial or run.

    Attributes
    ----------
    time_s
        Start time in seconds, from an arbitrary origin.
    cps
        Offered load in calls per second.
    loss
        Packet drop rate, or over TCP the share of lost calls, from 0 to 1.
    cpu_us
        CPU time of the proxy per message, in µs; NaN where it was not measured.
    available
        Share of the CPU time that the hypervisor and competing programs left to the proxy; NaN where it was not
        measured.
    """

    time_s: Values
    cps: Values
    loss: Values
    cpu_us: Values
    available: Values


@dataclass(frozen=True)
class Posterior:
    """The estimated capacity with a credible interval, and the estimated parameters of the model.

    Attributes
    ----------
    estimate_cps, low_cps, high_cps
        Median of the capacity, and ends of the central interval with probability `LEVEL`.
    drift, scatter, share_of_speed
        Posterior means of the model's parameters.
    """

    estimate_cps: float
    low_cps: float
    high_cps: float
    drift: float
    scatter: float
    share_of_speed: float


def fit(observations: Observations, limit: float) -> Posterior:
    """Estimate the capacity of a system from all trials of searches and all runs of the system.

    Parameters
    ----------
    observations
        The trials and runs, at least one.
    limit
        Drop rate that defines the capacity, as a share.
    """
    order = np.argsort(observations.time_s, kind="stable")
    ordered = Observations(*(values[order] for values in observations))
    time_s, cps, loss, _, available = ordered
    speed = speeds(ordered)
    loads = np.log(cps)
    # Without measured speeds, their effect on the capacity cannot be fitted, so this effect is fixed at 0.
    known = bool(speed.any())
    drifts, shares = (DRIFT_BEYOND_CPU, SHARE_OF_SPEED) if known else (DRIFT, NO_SHARE)
    priors = (STEEPNESS, SCATTER, drifts, MEMORY_S, shares)
    settings = np.array(list(product(*(values for values, _ in priors))), float)
    weights = np.array(list(product(*(weights for _, weights in priors))), float).prod(axis=1)
    places = np.linspace(loads.min() - np.log(WIDEST), loads.max() + np.log(WIDEST), COARSE)
    grid = _Grid(loads, np.log(np.maximum(loss, 1e-12) / limit), speed, _centred(available))
    rough = grid.evidence(settings, places, time_s)
    # The coarse grid finds the range of probable capacities, because a fine grid over the whole range would be slow.
    total = _weighted(rough, weights)
    inside = np.flatnonzero(total.sum(axis=0) > 1e-7)
    step = places[1] - places[0]
    fine = np.linspace(places[inside[0]] - step, places[inside[-1]] + step, FINE)
    total = _weighted(grid.evidence(settings, fine, time_s), weights)
    _, scatter, drift, _, share = (total.sum(axis=1) @ settings).tolist()
    unseen = _usual_speed(time_s, speed).scaled(share)
    beyond = 4 * unseen.spread + abs(unseen.middle)
    loads = np.linspace(fine[0] - beyond, fine[-1] + beyond, RESOLUTION)
    # The computed capacity applies to the machine's mean speed during the trials, which may differ from its usual
    # speed. The next lines convert the capacity to the machine's usual speed.
    away = loads[:, None] - fine - unseen.middle
    below = special.ndtr(away / max(unseen.spread, fine[1] - fine[0])) @ total.sum(axis=0)
    ends = np.interp(((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2), below, loads)
    low, middle, high = np.exp(ends).tolist()
    return Posterior(middle, low, high, drift, scatter, share)


def speeds(observations: Observations) -> Values:
    """Estimate the logarithm of the machine's speed in each trial and run, relative to the mean; 0 if not measured.

    At a higher load, the proxy needs less CPU time per message, because it sleeps less often between messages. A
    straight line through the logarithms removes this dependence. The rest of the variation comes from the machine: from
    its clock frequency, its caches, and other virtual machines on the same host.
    """
    # ASSUME at a constant load, the CPU time per message changes only with the speed of the machine
    known = observations.cpu_us > 0
    logs = np.zeros(len(known))
    if known.sum() < FEWEST_SPEEDS:
        return logs
    costs, loads = np.log(observations.cpu_us[known]), np.log(observations.cps[known])
    line = np.polynomial.Polynomial.fit(loads, costs, min(1, len(np.unique(loads)) - 1))
    logs[known] = line(loads) - costs
    return logs


class _Offset(NamedTuple):
    """The estimated difference between the logarithms of two speeds of the machine, with a standard deviation."""

    middle: float
    spread: float

    def scaled(self, factor: float) -> "_Offset":
        """Return the difference and the standard deviation, multiplied by a factor."""
        return _Offset(factor * self.middle, factor * self.spread)


def _usual_speed(time_s: Values, speed: Values) -> _Offset:
    """Estimate the difference between the machine's usual log speed and the mean log speed of the trials.

    The model of the speeds is an autocorrelated process plus noise. If the trials are few or strongly correlated, their
    mean is an imprecise estimate of the usual speed.
    """
    known = speed != 0
    if not known.any():
        return _Offset(0.0, 0.0)
    times, values = time_s[known], speed[known]
    apart = np.abs(times[:, None] - times)
    logs, means, variances = [], [], []
    for (drift, weight), (memory_s, beside), noise in product(
        zip(*DRIFT, strict=True), zip(*MEMORY_S, strict=True), SPEED_NOISE
    ):
        covariance = drift**2 * np.exp(-apart / memory_s) + noise**2 * np.eye(len(times))
        solved = np.linalg.solve(covariance, np.array([np.ones(len(times)), values]).T)
        certainty = solved[:, 0].sum()
        mean = solved[:, 1].sum() / certainty
        misfit = values @ solved[:, 1] - certainty * mean**2
        logs.append(
            np.log(weight * beside)
            - (np.linalg.slogdet(covariance)[1] + np.log(certainty) + misfit) / 2
        )
        means.append(mean)
        variances.append(1 / certainty)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    middle = float(weights @ means)
    spread = float(np.sqrt(weights @ (np.array(variances) + (np.array(means) - middle) ** 2)))
    return _Offset(middle, spread)


def _centred(values: Values) -> Values:
    """Return the logarithms of values minus the mean logarithm; 0 for values that were not measured."""
    logs = np.log(np.where(values > 0, values, np.nan))
    if np.isnan(logs).all():
        return np.zeros(len(logs))
    return np.asarray(np.nan_to_num(logs - np.nanmean(logs)))


def _weighted(evidence: Values, weights: Values) -> Values:
    """Return the posterior probabilities, shape (setting, capacity), from log likelihoods and prior weights."""
    logs = evidence + np.log(weights)[:, None]
    likelihoods = np.exp(logs - logs.max())
    return np.asarray(likelihoods / likelihoods.sum())


@dataclass(frozen=True)
class _Grid:
    """The input of the capacity estimate for each trial: load, drop rate, speed of the machine, and available CPU time.

    Each array has the shape (trial,).
    """

    loads: Values
    logs: Values
    speed: Values
    available: Values

    def evidence(self, settings: Values, places: Values, time_s: Values) -> Values:
        """Return the log likelihood of each parameter combination and capacity, shape (setting, capacity).

        Laplace's method integrates over the unknown speeds. All likelihoods are log-concave, so Newton's method finds
        the only maximum. The precision matrix of the Ornstein-Uhlenbeck process is tridiagonal, so the computing time
        per step is linear in the number of trials.
        """
        steepness, scatter, drift, memory_s, share = (column[:, None] for column in settings.T)
        window = np.log(READ_WITHIN)
        # `shown` is the log capacity that a single trial implies, or for extreme drop rates a bound of this capacity.
        shown = self.loads - np.clip(self.logs, -window, window) / steepness
        shown -= self.available + share * self.speed
        target = shown.T[:, :, None] - places
        above, below = (mask[:, None, None] for mask in (self.logs >= window, self.logs <= -window))
        width, pull = scatter * SCALE, drift / (scatter * SCALE)
        process = _Process.of(time_s, memory_s)
        speeds = np.zeros(target.shape)
        for _ in range(NEWTON_STEPS):
            beyond = special.expit((target - drift * speeds) / width)
            slope = np.where(above, 1 - beyond, np.where(below, -beyond, 1 - 2 * beyond))
            bend = np.where(above | below, 1, 2) * beyond * (1 - beyond)
            weight = pull**2 * bend
            moved, determinant = process.solve(weight, weight * speeds - pull * slope)
            change = np.abs(moved - speeds).max()
            speeds = moved
            if change < CLOSE:
                break
        u = (target - drift * speeds) / width
        under, over = special.log_expit(u), special.log_expit(-u)
        density = under + over - np.log(width * steepness)
        likelihood = np.where(above, under, np.where(below, over, density)).sum(axis=0)
        return np.asarray(
            likelihood - process.energy(speeds) - (determinant - process.determinant) / 2
        )


@dataclass(frozen=True)
class _Process:
    """The tridiagonal precision matrix of an Ornstein-Uhlenbeck process with variance 1 at given times.

    `diagonal` has shape (trial, setting, 1). The off-diagonal `beside` has one entry less. `determinant` is the
    logarithm of the determinant.
    """

    diagonal: Values
    beside: Values
    determinant: Values

    @classmethod
    def of(cls, time_s: Values, memory_s: Values) -> "_Process":
        """Return the precision matrix for ascending times and for time constants of shape (setting, 1)."""
        gaps = np.maximum(np.diff(time_s), SHORTEST_S)[:, None, None]
        kept = np.exp(-gaps / memory_s)
        fresh = 1 / (1 - kept**2)
        first = np.ones((1, *memory_s.shape))
        diagonal = np.concatenate((first, fresh))
        diagonal[:-1] += kept**2 * fresh
        return cls(diagonal, -kept * fresh, np.log(fresh).sum(axis=0))

    def solve(self, weight: Values, right: Values) -> tuple[Values, Values]:
        """Solve (precision + weight) x = right, and return x and the log determinant of precision + weight."""
        pivots, solved = self.diagonal + weight, right.copy()
        for i, beside in enumerate(self.beside, start=1):
            factor = beside / pivots[i - 1]
            pivots[i] -= factor * beside
            solved[i] -= factor * solved[i - 1]
        solved[-1] /= pivots[-1]
        for i in range(len(solved) - 2, -1, -1):
            solved[i] = (solved[i] - self.beside[i] * solved[i + 1]) / pivots[i]
        return solved, np.log(pivots).sum(axis=0)

    def energy(self, speeds: Values) -> Values:
        """Return xᵀPx / 2 for a vector x of speeds, where P is this precision matrix."""
        own = (self.diagonal * speeds**2).sum(axis=0) / 2
        return np.asarray(own + (self.beside * speeds[1:] * speeds[:-1]).sum(axis=0))
