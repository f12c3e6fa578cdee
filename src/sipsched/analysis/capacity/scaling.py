"""Laws of capacity by cores: the papers' rule, the Universal Scalability Law, Amdahl's; how each is judged."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from sipsched.analysis.statistics import LEVEL, SEED, Interval, percentiles
from sipsched.errors import StableError

PAPER_SINGLE_CORE_CPS = 1000.0
"""C(1,1) of the papers' server. Source: Krishnamurthy and Rouskas 2016, section V, last paragraph."""
PAPER_EXTRA_THREADS = 2
"""T(1,c) - c on one processor. Source: the same, section V."""
MIN_SPARE_POINTS = 2
"""Points beyond the parameters of a fit, below which its errors say nothing."""

Values = npt.NDArray[np.float64]
Predictor = Callable[[float], float]


class TooFewPointsError(StableError):
    """A law cannot be fitted to so few points.

    Attributes
    ----------
    why
        What was expected and found, without the law's name.
    """

    def __init__(self, law: str, why: str) -> None:
        super().__init__(f"{law}: {why}")
        self.why = why


@dataclass(frozen=True)
class Scaling:
    """The Universal Scalability Law fitted to capacities by cores.

    C(N) = λ N / (1 + σ (N - 1) + κ N (N - 1)). Source: Gunther, Guerrilla Capacity Planning, 2007.

    Attributes
    ----------
    single_cps
        λ: capacity of one core.
    contention
        σ: share of the work that is serial.
    coherency
        κ: cost of keeping a pair of cores consistent.
    peak_cores
        N*: where capacity is largest; inf where κ is 0.
    cores
        The cores that it was fitted to, ascending, each once.
    residual_cps
        Standard deviation of the points about the curve; NaN without points to spare.
    draws
        Shape (resample, 4): λ, σ, κ and the standard deviation, of the bootstrap; none if there are
        too few points.
    """

    single_cps: Interval
    contention: Interval
    coherency: Interval
    peak_cores: Interval
    cores: tuple[float, ...]
    residual_cps: float
    draws: Values

    def curve(self, cores: float) -> float:
        """Give the capacity of so many cores in cps."""
        parameters = (self.single_cps, self.contention, self.coherency)
        return float(scaling_law(cores, *(each.estimate for each in parameters)))

    def predict(self, cores: float, seed: int = SEED) -> Interval:
        """Predict a capacity measured anew: the interval holds the measurement, not just the curve."""
        n, level = self.single_cps.n, self.single_cps.level
        if self.single_cps.why:
            return Interval.without(self.curve(cores), n, level, self.single_cps.why)
        noise = np.random.default_rng(seed).standard_normal(len(self.draws)) * self.draws[:, 3]
        drawn = scaling_law(cores, *self.draws[:, :3].T) + noise
        low, high = percentiles(drawn, level)
        return Interval(self.curve(cores), low, high, n, level, "prediction")


@dataclass(frozen=True)
class Rule:
    """The papers' rule, C(p,c) = T(p,c) × C(1,1), with C(1,1) fitted to capacities by cores.

    Attributes
    ----------
    single_cps
        C(1,1).
    threads
        T(p,c) by cores.
    residual_cps
        Standard deviation of the points about the rule; NaN without points to spare.
    weight
        Sum of the squares of T over the points.
    """

    single_cps: Interval
    threads: Callable[[float], int]
    residual_cps: float
    weight: float

    def predict(self, cores: float) -> Interval:
        """Predict a capacity measured anew: the interval holds the measurement, not just the rule."""
        threads, single = self.threads(cores), self.single_cps
        estimate = threads * single.estimate
        if single.why:
            return Interval.without(estimate, single.n, single.level, single.why)
        error = self.residual_cps * np.sqrt(1 + threads**2 / self.weight)
        half = float(special.stdtrit(single.n - 1, (1 + single.level) / 2) * error)
        return Interval(estimate, estimate - half, estimate + half, single.n, single.level, "t")


@dataclass(frozen=True)
class LeftOut:
    """What a model, fitted to the other points, says of the point left out.

    Attributes
    ----------
    cores
        Of the point left out.
    measured_cps, predicted_cps
        Its capacity, and what the model says; NaN where the others are too few to fit.
    error_percent
        100 (predicted / measured - 1).
    """

    cores: float
    measured_cps: float
    predicted_cps: float
    error_percent: float


def paper_threads(processors: int, cores: int) -> int:
    """Give T(p,c), the number of threads that carries most by the papers' rule.

    c + 2 on one processor, c on two or more. T(1,1) is 1, since C(1,1) is defined as the capacity of
    a single-core, single-thread system.

    Source: Krishnamurthy and Rouskas 2016, section V.

    Parameters
    ----------
    processors
        p, packages that the cores lie in.
    cores
        c, cores in all.

    Raises
    ------
    StableError
        Fewer than one processor, or fewer cores than processors.
    """
    if not 1 <= processors <= cores:
        raise StableError(
            f"capacity: expected at least one core a processor, found {processors} processors "
            f"and {cores} cores"
        )
    if processors > 1 or cores == 1:
        return cores
    return cores + PAPER_EXTRA_THREADS


def scaling_law(cores: Any, single_cps: Any, contention: Any, coherency: Any) -> Any:
    """Compute the Universal Scalability Law, C(N) = λ N / (1 + σ (N - 1) + κ N (N - 1))."""
    return single_cps * cores / (1 + contention * (cores - 1) + coherency * cores * (cores - 1))


def fit_scaling(
    cores: npt.ArrayLike,
    cps: npt.ArrayLike,
    contention_only: bool = False,
    level: float = LEVEL,
    resamples: int = 499,
    seed: int = SEED,
) -> Scaling:
    """Fit the Universal Scalability Law to capacities by least squares.

    The parameters' intervals are percentiles of a parametric bootstrap: errors drawn about the curve,
    their standard deviation drawn too, as so few points do not tell it.

    Parameters
    ----------
    cores, cps
        Shape (point,): the capacity of so many cores; NaN is left out.
    contention_only
        Hold κ at 0 (Amdahl's law).
    level
        Confidence.
    resamples, seed
        Of the bootstrap.

    Raises
    ------
    TooFewPointsError
        Fewer different numbers of cores than parameters.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    points, rates = points[np.isfinite(rates)], rates[np.isfinite(rates)]
    n, parameters = len(points), 2 if contention_only else 3
    if len(np.unique(points)) < parameters:
        raise TooFewPointsError(
            "scaling law",
            f"expected capacities of at least {parameters} different numbers of cores, "
            f"found {len(np.unique(points))}",
        )
    best = _fit_law(points, rates, contention_only)
    spare = n - parameters
    fitted = scaling_law(points, *best)
    squares = float(((rates - fitted) ** 2).sum())
    residual = np.sqrt(squares / spare) if spare else np.nan
    draws = np.empty((0, 4))
    if spare >= MIN_SPARE_POINTS:
        rng = np.random.default_rng(seed)
        spread = residual * np.sqrt(spare / rng.chisquare(spare, resamples))
        drawn = [
            _fit_law(points, fitted + deviation * rng.standard_normal(n), contention_only, best)
            for deviation in spread
        ]
        draws = np.column_stack((np.array(drawn).reshape(-1, 3), spread))

    def interval(value: float, column: Values) -> Interval:
        if not len(column):
            why = f"too few points for an interval, {spare} to spare"
            return Interval.without(value, n, level, why)
        return Interval(value, *percentiles(column, level), n, level, "parametric bootstrap")

    single, contention, coherency = map(interval, best, draws[:, :3].T)
    if contention_only:
        coherency = Interval.without(0.0, n, level, "held at 0")
    return Scaling(
        single_cps=single,
        contention=contention,
        coherency=coherency,
        peak_cores=interval(float(_peak(*best)), _peak(*draws[:, :3].T)),
        cores=tuple(np.unique(points).tolist()),
        residual_cps=residual,
        draws=draws,
    )


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
        # As many points as parameters: a curve, and no covariance, which is not used anyway.
        warnings.simplefilter("ignore", optimize.OptimizeWarning)
        found, _ = optimize.curve_fit(
            lambda cores, *law: scaling_law(cores, *law, *[0.0] * (3 - held)),
            cores,
            cps / scale,
            p0=np.clip(guess, 1e-9, upper),
            bounds=(0, upper),
            xtol=1e-10,
            ftol=1e-10,
            max_nfev=10_000,
        )
    law = [*found.tolist(), *[0.0] * (3 - held)]
    return law[0] * scale, law[1], law[2]


def _peak(single_cps: npt.ArrayLike, contention: npt.ArrayLike, coherency: npt.ArrayLike) -> Values:
    """Give N* = √((1 - σ) / κ); inf for a κ under 1e-6, which a bounded fit cannot tell from 0."""
    kappa = np.asarray(coherency, float)
    least = np.where(kappa < 1e-6, np.nan, kappa)
    peak = np.sqrt((1 - np.asarray(contention, float)) / least)
    return np.where(np.isnan(peak), np.inf, peak)


def fit_rule(
    cores: npt.ArrayLike,
    cps: npt.ArrayLike,
    processors: Mapping[int, int],
    level: float = LEVEL,
) -> Rule:
    """Fit C(1,1) of the papers' rule by least squares.

    Errors are taken to be alike in cps for every number of cores.

    Parameters
    ----------
    cores, cps
        Shape (point,): the capacity of so many cores.
    processors
        Cores to the processors that they lie in; 1 where it says nothing.
    level
        Confidence.

    Raises
    ------
    TooFewPointsError
        No point.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    n = len(points)
    if not n:
        raise TooFewPointsError(
            "papers' rule", "expected the capacity of one number of cores, found none"
        )

    def threads(cores: float) -> int:
        return paper_threads(processors.get(int(cores), 1), int(cores))

    counts = np.array([threads(each) for each in points], float)
    weight = float(counts @ counts)
    single = float(counts @ rates) / weight
    spare = n - 1
    squares = float(((rates - single * counts) ** 2).sum())
    residual = float(np.sqrt(squares / spare)) if spare else np.nan
    if spare < MIN_SPARE_POINTS:
        why = f"too few points for an interval, {spare} to spare"
        return Rule(Interval.without(single, n, level, why), threads, residual, weight)
    half = float(special.stdtrit(spare, (1 + level) / 2)) * residual / np.sqrt(weight)
    interval = Interval(single, single - half, single + half, n, level, "t")
    return Rule(interval, threads, residual, weight)


def law_model(cores: Values, cps: Values) -> Predictor:
    """Fit the Universal Scalability Law, for `leave_one_out`."""
    return fit_scaling(cores, cps, resamples=0).curve


def contention_model(cores: Values, cps: Values) -> Predictor:
    """Fit Amdahl's law, for `leave_one_out`."""
    return fit_scaling(cores, cps, contention_only=True, resamples=0).curve


def paper_model(
    processors: Mapping[int, int],
) -> Callable[[Values, Values], Predictor]:
    """Make the papers' model, with C(1,1) by least squares, for `leave_one_out`.

    Parameters
    ----------
    processors
        Cores to the processors that they lie in; 1 where it says nothing.
    """

    def fit(cores: Values, cps: Values) -> Predictor:
        rule = fit_rule(cores, cps, processors)
        return lambda cores: rule.predict(cores).estimate

    return fit


def leave_one_out(
    cores: npt.ArrayLike, cps: npt.ArrayLike, model: Callable[[Values, Values], Predictor]
) -> tuple[LeftOut, ...]:
    """Predict each point from a model fitted to the others.

    Parameters
    ----------
    cores, cps
        Shape (point,).
    model
        Takes cores and capacities, returns the capacity by cores: `law_model`, `contention_model`,
        `paper_model(…)`.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    rows = []
    for i, (point, rate) in enumerate(zip(points, rates, strict=True)):
        others = np.arange(len(points)) != i
        try:
            predicted = model(points[others], rates[others])(float(point))
        except TooFewPointsError:
            predicted = np.nan
        error = 100 * (predicted / float(rate) - 1)
        rows.append(LeftOut(float(point), float(rate), predicted, error))
    return tuple(rows)
