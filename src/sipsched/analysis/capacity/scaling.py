"""Scaling laws that predict the capacity from the number of cores."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from sipsched.analysis.crossing_load import SEED
from sipsched.analysis.intervals import LEVEL, Interval, Values, percentiles
from sipsched.errors import StableError

PAPER_SINGLE_CORE_CPS = 1000.0
"""C(1,1) in cps: the papers' capacity of one core. Source: Krishnamurthy and Rouskas 2016, end of section V."""
PAPER_EXTRA_THREADS = 2
"""T(1,c) - c: threads minus cores on one processor. Source: Krishnamurthy and Rouskas 2016, section V."""
MIN_SPARE_POINTS = 2
"""A confidence interval needs at least this many more points than the law has parameters."""


class TooFewPointsError(StableError):
    """The exception that is raised if too few capacities are known to fit a scaling law.

    Attributes
    ----------
    why
        The expected and the actual number of points, without the name of the law.
    """

    def __init__(self, law: str, why: str) -> None:
        super().__init__(f"{law}: {why}")
        self.why = why


@dataclass(frozen=True)
class ScalingLaw:
    """The Universal Scalability Law, fitted to capacities with several numbers of cores.

    C(N) = λ N / (1 + σ (N - 1) + κ N (N - 1)). Source: Gunther, Guerrilla Capacity Planning, 2007.

    Attributes
    ----------
    single_cps
        λ: capacity with one core, in cps.
    contention
        σ: share of the work that is serial.
    coherency
        κ: cost of keeping the data of a pair of cores consistent.
    peak_cores
        N*: the number of cores with the largest capacity; infinity if κ is below 1e-6.
    draws
        Shape (resample, 4): λ, σ, κ, and the standard deviation of measurements around the law in cps, per bootstrap
        sample; empty with too few points.
    """

    single_cps: Interval
    contention: Interval
    coherency: Interval
    peak_cores: Interval
    draws: Values

    def curve(self, cores: float) -> float:
        """Return the capacity in cps that the law predicts for a number of cores."""
        parameters = (self.single_cps, self.contention, self.coherency)
        return float(scaling_law(cores, *(parameter.estimate for parameter in parameters)))

    def predict(self, cores: float, seed: int = SEED) -> Interval:
        """Predict the capacity that a new measurement with `cores` cores would have, with a prediction interval.

        The interval includes the scatter of measurements around the law.
        """
        n, level = self.single_cps.n, self.single_cps.level
        if self.single_cps.why:
            return Interval.without(self.curve(cores), n, level, self.single_cps.why)
        noise = np.random.default_rng(seed).standard_normal(len(self.draws)) * self.draws[:, 3]
        drawn = scaling_law(cores, *self.draws[:, :3].T) + noise
        low, high = percentiles(drawn, level)
        return Interval(self.curve(cores), low, high, n, level, "prediction")


@dataclass(frozen=True)
class PapersRule:
    """The papers' rule: the capacity is the number of threads times the capacity of one core, which is a fitted number.

    In symbols, the rule is C(p,c) = T(p,c) × C(1,1) for p processors and c cores.

    Attributes
    ----------
    single_cps
        C(1,1), the capacity with one core and one thread.
    threads
        T(p,c), the number of threads, by number of cores.
    residual_cps
        Standard deviation of the points around the rule; NaN if the fit has only one point.
    weight
        Sum of the squares of T over the points.
    """

    single_cps: Interval
    threads: Callable[[float], int]
    residual_cps: float
    weight: float

    def predict(self, cores: float) -> Interval:
        """Predict the capacity that a new measurement with `cores` cores would have, with a prediction interval.

        The interval includes the scatter of measurements around the rule.
        """
        threads, single = self.threads(cores), self.single_cps
        estimate = threads * single.estimate
        if single.why:
            return Interval.without(estimate, single.n, single.level, single.why)
        error = self.residual_cps * np.sqrt(1 + threads**2 / self.weight)
        half = float(special.stdtrit(single.n - 1, (1 + single.level) / 2) * error)
        return Interval(estimate, estimate - half, estimate + half, single.n, single.level, "t")


def paper_threads(processors: int, cores: int) -> int:
    """Return T(p,c), the best number of threads according to the papers' rule.

    T(p,c) is c + 2 on one processor, and c on two or more. T(1,1) is 1, because C(1,1) is defined as the capacity of a
    single-core, single-thread system.

    Source: Krishnamurthy and Rouskas 2016, section V.

    Parameters
    ----------
    processors
        p, number of processor packages.
    cores
        c, the total number of cores.

    Raises
    ------
    StableError
        The number of processors is below one, or the number of cores is below the number of processors.
    """
    if not 1 <= processors <= cores:
        raise StableError(
            f"capacity: expected at least one core per processor, found {processors} processors "
            f"and {cores} cores"
        )
    if processors > 1 or cores == 1:
        return cores
    return cores + PAPER_EXTRA_THREADS


def scaling_law(cores: Any, single_cps: Any, contention: Any, coherency: Any) -> Any:
    """Return the capacity by the Universal Scalability Law, C(N) = λ N / (1 + σ (N - 1) + κ N (N - 1))."""
    return single_cps * cores / (1 + contention * (cores - 1) + coherency * cores * (cores - 1))


def fit_scaling(
    cores: npt.ArrayLike,
    cps: npt.ArrayLike,
    contention_only: bool = False,
    resamples: int = 499,
    seed: int = SEED,
) -> ScalingLaw:
    """Fit the Universal Scalability Law to capacities by least squares.

    The parameters' intervals are percentiles of a parametric bootstrap. The bootstrap samples the errors of the points
    around the curve. The bootstrap also samples the standard deviation of these errors, because a few points do not
    determine this deviation precisely.

    Parameters
    ----------
    cores, cps
        Numbers of cores and their capacities, shape (point,). Points with NaN are excluded.
    contention_only
        Fix κ at 0 (Amdahl's law).
    resamples, seed
        Number and seed of the bootstrap samples.

    Raises
    ------
    TooFewPointsError
        The points have fewer distinct numbers of cores than the law has parameters.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    points, rates = points[np.isfinite(rates)], rates[np.isfinite(rates)]
    n, parameters = len(points), 2 if contention_only else 3
    if len(np.unique(points)) < parameters:
        raise TooFewPointsError(
            "scaling law",
            f"too few capacities: the law needs at least {parameters} different numbers of cores, found "
            f"{len(np.unique(points))}",
        )
    best = _fit_law(points, rates, contention_only)
    spare = n - parameters
    fitted = scaling_law(points, *best)
    draws = np.empty((0, 4))
    if spare >= MIN_SPARE_POINTS:
        rng = np.random.default_rng(seed)
        squares = float(((rates - fitted) ** 2).sum())
        spread = np.sqrt(squares / spare) * np.sqrt(spare / rng.chisquare(spare, resamples))
        drawn = [
            _fit_law(points, fitted + deviation * rng.standard_normal(n), contention_only, best)
            for deviation in spread
        ]
        draws = np.column_stack((np.array(drawn).reshape(-1, 3), spread))

    interval = functools.partial(_interval, n=n, spare=spare)
    single, contention, coherency = map(interval, best, draws[:, :3].T)
    if contention_only:
        coherency = Interval.without(0.0, n, why="held at 0")
    return ScalingLaw(
        single_cps=single,
        contention=contention,
        coherency=coherency,
        peak_cores=interval(float(_peak(*best)), _peak(*draws[:, :3].T)),
        draws=draws,
    )


def _interval(value: float, draws: Values, n: int, spare: int) -> Interval:
    """Return the estimate of a law's parameter with the confidence interval from bootstrap samples."""
    if not len(draws):
        why = f"too few points for an interval (points minus parameters: {spare})"
        return Interval.without(value, n, why=why)
    return Interval(value, *percentiles(draws, LEVEL), n, method="parametric bootstrap")


def _fit_law(
    cores: Values, cps: Values, contention_only: bool, start: Sequence[float] | None = None
) -> tuple[float, float, float]:
    scale = float(np.abs(cps).max())
    smallest = int(np.argmin(cores))
    first = (cps[smallest] / cores[smallest], 0.1, 0.001) if start is None else start
    held = 2 if contention_only else 3
    guess = np.array([first[0] / scale, *first[1:]])[:held]
    upper = np.array([np.inf, 1.0, 1.0])[:held]
    with warnings.catch_warnings():
        # With as many points as parameters, curve_fit warns that the covariance cannot be estimated.
        # Hide the warning, because no code uses the covariance.
        warnings.simplefilter("ignore", optimize.OptimizeWarning)
        fitted, _ = optimize.curve_fit(
            lambda cores, *law: scaling_law(cores, *law, *[0.0] * (3 - held)),
            cores,
            cps / scale,
            p0=np.clip(guess, 1e-9, upper),
            bounds=(0, upper),
            xtol=1e-10,
            ftol=1e-10,
            max_nfev=10_000,
        )
    law = [*fitted.tolist(), *[0.0] * (3 - held)]
    return law[0] * scale, law[1], law[2]


def _peak(single_cps: npt.ArrayLike, contention: npt.ArrayLike, coherency: npt.ArrayLike) -> Values:
    """Return N* = √((1 - σ) / κ), the number of cores with the largest capacity; infinity for κ below 1e-6."""
    kappa = np.asarray(coherency, float)
    least = np.where(kappa < 1e-6, np.nan, kappa)
    peak = np.sqrt((1 - np.asarray(contention, float)) / least)
    return np.where(np.isnan(peak), np.inf, peak)


def fit_rule(cores: npt.ArrayLike, cps: npt.ArrayLike, processors: Mapping[int, int]) -> PapersRule:
    """Fit the papers' rule (see `PapersRule`) to capacities: estimate the capacity of one core by least squares.

    The fit assumes equal errors in cps for all numbers of cores.

    Parameters
    ----------
    cores, cps
        Numbers of cores and their capacities, shape (point,).
    processors
        Number of processors, by number of cores; 1 for other numbers of cores.

    Raises
    ------
    TooFewPointsError
        No point exists.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    n = len(points)
    if not n:
        raise TooFewPointsError(
            "papers' rule", "too few capacities: the rule needs at least 1, found 0"
        )

    def threads(cores: float) -> int:
        return paper_threads(processors.get(int(cores), 1), int(cores))

    counts = np.array([threads(point) for point in points], float)
    weight = float(counts @ counts)
    single = float(counts @ rates) / weight
    spare = n - 1
    squares = float(((rates - single * counts) ** 2).sum())
    residual = float(np.sqrt(squares / spare)) if spare else np.nan
    if spare < MIN_SPARE_POINTS:
        why = f"too few points for an interval (points minus parameters: {spare})"
        return PapersRule(Interval.without(single, n, why=why), threads, residual, weight)
    half = float(special.stdtrit(spare, (1 + LEVEL) / 2)) * residual / np.sqrt(weight)
    interval = Interval(single, single - half, single + half, n, method="t")
    return PapersRule(interval, threads, residual, weight)


def leave_one_out(
    cores: npt.ArrayLike,
    cps: npt.ArrayLike,
    fit: Callable[[Values, Values], ScalingLaw | PapersRule],
) -> tuple[float, ...]:
    """Return the leave-one-out errors: each capacity is predicted by a law that is fitted to all other capacities.

    Parameters
    ----------
    cores, cps
        Numbers of cores and their capacities, shape (point,).
    fit
        Function that fits a law to cores and capacities.

    Returns
    -------
    tuple
        100 (predicted / measured - 1) per point; NaN if too few other points exist.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    errors = []
    for i, (point, rate) in enumerate(zip(points, rates, strict=True)):
        others = np.arange(len(points)) != i
        try:
            predicted = fit(points[others], rates[others]).predict(float(point)).estimate
        except TooFewPointsError:
            predicted = np.nan
        errors.append(100 * (predicted / float(rate) - 1))
    return tuple(errors)
