"""Models of capacity, and what to buy: the papers' rule, queues with a finite buffer, scaling laws.

Capacity itself is `sipsched.analysis.statistics.capacity`: measured, or what a model says it would be. Every
table is a tuple of frozen dataclasses, a row each; `pandas.DataFrame(rows)` takes them as they are.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import optimize, special

from sipsched.analysis.statistics import (
    LEVEL,
    PDR_LIMIT,
    SEED,
    Capacity,
    Interval,
    capacity,
    percentiles,
)
from sipsched.errors import StableError
from sipsched.words import number, plural

PAPER_SINGLE_CORE_CPS = 1000.0
"""C(1,1) of the papers' server. Source: Krishnamurthy and Rouskas 2016, section V, last paragraph."""
PAPER_EXTRA_THREADS = 2
"""T(1,c) - c on one processor. Source: the same, section V."""
MESSAGES_PER_CALL = 6
"""INVITE, 180, 200, ACK, BYE, 200: the messages of a call that reach the SPS."""
MIN_SPARE_POINTS = 2
"""Points beyond the parameters of a fit, below which its errors say nothing."""

ALL_UNDER = "no load was above the limit"
ALL_ABOVE = "every load was above it"
MEASURED, PREDICTED, BEYOND = "measured", "predicted", "beyond the data"

Values = npt.NDArray[np.float64]
Predictor = Callable[[float], float]


@dataclass(frozen=True)
class Queue:
    """A queue of messages in its steady state.

    Attributes
    ----------
    blocking
        Share of the messages that find every place taken.
    waiting_us
        Mean wait before service of those that got a place, in µs.
    waiting
        Mean number of messages that wait.
    utilisation
        Share of the time in which a server is busy.
    """

    blocking: float
    waiting_us: float
    waiting: float
    utilisation: float


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


@dataclass(frozen=True)
class PaperRow:
    """The papers' model beside a measurement.

    Attributes
    ----------
    sut, mode, processors, cores
        The system.
    model_threads, best_threads
        T(p,c), and the number of threads measured to carry most.
    model_cps, measured_cps
        C(p,c), and the capacity measured on the papers' grid with the best number of threads.
    error_percent
        100 (model / measured - 1).
    """

    sut: str
    mode: str
    processors: int
    cores: int
    model_threads: int
    best_threads: int
    model_cps: float
    measured_cps: float
    error_percent: float


@dataclass(frozen=True)
class Option:
    """A setting that an operator can choose, and what it carries.

    Attributes
    ----------
    sut, mode, cores, threads
        The setting.
    interval
        Its capacity in cps.
    carries_cps
        What one can rely on: the lower end of the interval; without an interval the papers' grid
        load if measured, the estimate if predicted. 0 where even the least load measured may be too much.
    grid_cps
        The papers' grid capacity; NaN if it was not measured.
    basis
        `measured`, `predicted` (between measured numbers of cores) or `beyond the data`.
    """

    sut: str
    mode: str
    cores: int
    threads: int
    interval: Interval
    carries_cps: float
    grid_cps: float
    basis: str

    def __str__(self) -> str:
        """Name the setting as a person would."""
        cores, threads = plural(self.cores, "core"), plural(self.threads, "thread")
        return f"{self.sut}, {self.mode}, {cores}, {threads}"


@dataclass(frozen=True)
class Plan:
    """The smallest setting that carries a load.

    Attributes
    ----------
    cps
        The load.
    choice
        Fewest cores, then fewest threads, then the mode named first; None if nothing carries it.
    margin_percent
        100 (what the choice carries / load - 1); NaN without a choice.
    measured
        The same among measured settings only.
    largest
        What carries most of all that was allowed; None if nothing was.
    """

    cps: float
    choice: Option | None
    margin_percent: float
    measured: Option | None
    largest: Option | None

    def __str__(self) -> str:
        """Answer in a sentence or two."""
        load = f"{number(self.cps)} cps"
        if self.choice is None:
            text = f"{load}: nothing that is known carries it."
            if self.largest is not None and self.largest.carries_cps == 0:
                text += (
                    f" No load that was measured is sure to stay under the limit: {self.largest}."
                )
            elif self.largest is not None:
                text += f" The most is {number(self.largest.carries_cps)} cps: {self.largest}."
            return text
        text = (
            f"{load}: {self.choice}, {self.choice.basis}: carries "
            f"{number(self.choice.carries_cps)} cps, {self.margin_percent:.0f} % to spare."
        )
        if self.choice.basis != MEASURED:
            text += f" Smallest measured: {self.measured or 'none'}."
        return text


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


def paper_capacity(
    processors: int, cores: int, single_core_cps: float = PAPER_SINGLE_CORE_CPS
) -> float:
    """Give C(p,c) = T(p,c) × C(1,1) in cps, at a packet drop rate of 1 % in enhanced mode.

    Source: Krishnamurthy and Rouskas 2016, section V.

    Parameters
    ----------
    processors, cores
        As for `paper_threads`.
    single_core_cps
        C(1,1), the capacity of one core and one thread.
    """
    return paper_threads(processors, cores) * single_core_cps


def queue(
    arrivals_per_s: float, service_us: float, servers: int, places: int, scv: float = 1.0
) -> Queue:
    """Solve M/M/c/K exactly, and M/G/c/K by Kimura's approximation.

    With `scv` 1 the result is M/M/c/K's own, and without waiting places Erlang's loss formula, which
    holds for any service time. Computed in logarithms: any `places` that fits into memory.

    Source: Kimura, A transform-free approximation for the finite capacity M/G/s queue, Operations Research
    44(6), 1996. Its ratio of mean waits, M/G/s to M/M/s, is (1 + scv) / 2 as in Allen and Cunneen's
    formula (Allen, Probability, Statistics, and Queueing Theory, 1990).

    Parameters
    ----------
    arrivals_per_s
        λ, messages per second; Poisson.
    service_us
        Mean service time of a message in µs.
    servers
        c.
    places
        K, messages in the system at most, those in service included.
    scv
        Squared coefficient of variation of the service time.

    Raises
    ------
    StableError
        A parameter out of range, or a load so far above capacity that the approximation ends
        (utilisation ≥ 2 / (1 - scv), for scv below 1).
    """
    if not (arrivals_per_s > 0 and service_us > 0 and 1 <= servers <= places and scv >= 0):
        raise StableError(
            "queue: expected a positive rate and service time, scv of at least 0 and 1 ≤ servers ≤ "
            f"places; found {arrivals_per_s}, {service_us}, {scv}, {servers}, {places}"
        )
    load = arrivals_per_s * service_us * 1e-6
    rho = load / servers
    ratio = (1 + scv) / 2
    damping = 1 - rho * (1 - ratio)
    if damping <= 0:
        raise StableError(
            f"queue: utilisation {rho:.3g} is beyond the approximation for scv {scv:.3g}; "
            f"expected below {1 / (1 - ratio):.3g}"
        )
    busy = np.arange(servers + 1)
    logs = busy * np.log(load) - special.gammaln(busy + 1)
    room = places - servers
    step = np.log(rho * ratio / damping)
    # Levels c to K - 1 fall geometrically; flow balance then fixes the last one.
    levels = logs[-1] - np.log(damping) + np.arange(room) * step
    every = np.concatenate((logs[:-1], levels, [logs[-1] + room * step]))
    shares = np.exp(every - special.logsumexp(every))
    blocking = float(shares[-1])
    waiting = float(shares[servers:] @ np.arange(room + 1))
    admitted = arrivals_per_s * (1 - blocking)
    return Queue(blocking, 1e6 * waiting / admitted, waiting, rho * (1 - blocking))


def endless_wait_us(
    arrivals_per_s: float, service_us: float, servers: int, scv: float = 1.0
) -> float:
    """Give the mean wait in M/G/c with endless room, in µs; inf from full load on.

    Erlang's C times (1 + scv) / 2. Source: Allen, Probability, Statistics, and Queueing Theory, 1990
    (Allen-Cunneen approximation, Poisson arrivals).

    Parameters
    ----------
    arrivals_per_s, service_us, servers, scv
        As for `queue`.
    """
    load = arrivals_per_s * service_us * 1e-6
    if load >= servers:
        return np.inf
    busy = np.arange(servers)
    below = special.logsumexp(busy * np.log(load) - special.gammaln(busy + 1))
    all_busy = servers * np.log(load) - special.gammaln(servers + 1) - np.log1p(-load / servers)
    waits = special.expit(all_busy - below)
    return float((1 + scv) / 2 * waits * service_us / (servers - load))


def system_places(receive_buffer_bytes: float, message_bytes: float, servers: int) -> int:
    """Give K: the messages that fit into the receive buffer, and one in each server.

    Parameters
    ----------
    receive_buffer_bytes
        Effective SO_RCVBUF, as the kernel reads it back.
    message_bytes
        What the kernel charges a message with (skb->truesize; `rmem` in a trace shows it), not its
        length.
    servers
        c.
    """
    return int(receive_buffer_bytes // message_bytes) + servers


def queue_capacity_cps(
    service_us: float,
    servers: int,
    places: int,
    scv: float = 1.0,
    limit: float = PDR_LIMIT,
    messages_per_call: int = MESSAGES_PER_CALL,
) -> float:
    """Give the calls per second at which a queue turns away the limit's share of its messages.

    Parameters
    ----------
    service_us, servers, places, scv
        As for `queue`; by M/M/c/K with scv 1, by M/G/c/K else.
    limit
        Packet drop rate, as a share.
    messages_per_call
        Arrivals that a call makes.
    """
    # ASSUME messages arrive as a Poisson process; those of one call follow each other.
    # Servers never do more than they can: at this rate at least the limit's share is turned away.
    most = servers / (service_us * 1e-6 * (1 - limit))
    rate = optimize.brentq(
        lambda rate: queue(rate, service_us, servers, places, scv).blocking - limit,
        most * 1e-9,
        most * (1 + 1e-9),
        rtol=1e-10,
    )
    return float(rate) / messages_per_call


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
    StableError
        Fewer different numbers of cores than parameters.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    points, rates = points[np.isfinite(rates)], rates[np.isfinite(rates)]
    n, parameters = len(points), 2 if contention_only else 3
    if len(np.unique(points)) < parameters:
        raise StableError(
            f"scaling law: expected capacities of at least {parameters} different numbers of cores, "
            f"found {len(np.unique(points))}"
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
    StableError
        No point.
    """
    points, rates = np.asarray(cores, float), np.asarray(cps, float)
    n = len(points)
    if not n:
        raise StableError("papers' rule: expected the capacity of one number of cores, found none")

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
        except StableError:
            predicted = np.nan
        error = 100 * (predicted / float(rate) - 1)
        rows.append(LeftOut(float(point), float(rate), predicted, error))
    return tuple(rows)


def measured_options(
    summary: xr.Dataset, limit: float = PDR_LIMIT, level: float = LEVEL
) -> tuple[Option, ...]:
    """List every measured setting of a study with its capacity.

    Parameters
    ----------
    summary
        Combined summary: `pdr` over (sut, mode, cores, threads, cps, rep).
    limit
        Packet drop rate, as a share.
    level
        Confidence.
    """
    pdr = summary["pdr"].transpose("sut", "mode", "cores", "threads", "cps", "rep")
    values = pdr.to_numpy()
    options = []
    for place in np.ndindex(values.shape[:4]):
        if np.isnan(values[place]).all():
            continue
        sut, mode, cores, threads = (
            pdr[name].to_numpy()[i] for name, i in zip(pdr.dims[:4], place, strict=True)
        )
        found = capacity(pdr["cps"].to_numpy(), values[place], limit, level)
        options.append(measured_option(str(sut), str(mode), int(cores), int(threads), found))
    return tuple(options)


def measured_option(sut: str, mode: str, cores: int, threads: int, found: Capacity) -> Option:
    """Make an option of a measured capacity.

    A capacity above the loads measured is taken as the highest of them, one below the lowest as 0.
    """
    interval = found.crossing.interval
    if np.isposinf(interval.estimate):
        highest = found.crossing.highest_cps
        interval = Interval.without(highest, interval.n, interval.level, ALL_UNDER)
    elif np.isneginf(interval.estimate):
        interval = Interval.without(0.0, interval.n, interval.level, ALL_ABOVE)
    return Option(
        sut, mode, cores, threads, interval, max(found.safe_cps, 0.0), found.grid_cps, MEASURED
    )


def predicted_options(
    measured: Iterable[Option],
    sut: str,
    mode: str,
    cores: Iterable[int],
    predict: Callable[[int], Interval],
    threads: Callable[[int], int],
) -> tuple[Option, ...]:
    """List settings that were not measured, with the capacity that a model predicts.

    Parameters
    ----------
    measured
        What was measured; numbers of cores in it are left out, and its extremes part `predicted` from
        `beyond the data`.
    sut, mode
        What is predicted.
    cores
        Numbers of cores to predict.
    predict
        Capacity in cps by cores: `Scaling.predict`, or a model's number as `Interval.without`.
    threads
        Threads by cores: `paper_threads` for instance.
    """
    known = [each.cores for each in measured if (each.sut, each.mode) == (sut, mode)]
    options = []
    for count in cores:
        if count in known:
            continue
        interval = predict(count)
        carries = interval.low if interval.known else interval.estimate
        inside = bool(known) and min(known) < count < max(known)
        options.append(
            Option(
                sut,
                mode,
                count,
                threads(count),
                interval,
                max(carries, 0.0),
                np.nan,
                PREDICTED if inside else BEYOND,
            )
        )
    return tuple(options)


def best_by_cores(options: Iterable[Option]) -> tuple[Option, ...]:
    """Choose for each SUT, mode and number of cores what has the largest capacity.

    By the papers' grid first, then by the estimate between its loads, then the fewest threads.
    """
    best: dict[tuple[str, str, int], Option] = {}
    for option in sorted(options, key=lambda each: each.threads):
        key = (option.sut, option.mode, option.cores)
        if key not in best or _rank(option) > _rank(best[key]):
            best[key] = option
    return tuple(best[key] for key in sorted(best, key=lambda key: key[2]))


def _rank(option: Option) -> tuple[float, float]:
    grid = option.interval.estimate if np.isnan(option.grid_cps) else option.grid_cps
    return grid, option.interval.estimate


def paper_rows(
    options: Iterable[Option],
    single_core_cps: float = PAPER_SINGLE_CORE_CPS,
    processors: Mapping[int, int] | None = None,
) -> tuple[PaperRow, ...]:
    """Set the papers' model beside the best measured setting of each number of cores.

    Parameters
    ----------
    options
        Measured settings.
    single_core_cps
        C(1,1) of this server.
    processors
        Cores to the processors that they lie in; 1 where it says nothing.
    """
    rows = []
    for best in best_by_cores(options):
        count = (processors or {}).get(best.cores, 1)
        model = paper_capacity(count, best.cores, single_core_cps)
        error = 100 * (model / best.grid_cps - 1) if best.grid_cps > 0 else np.nan
        rows.append(
            PaperRow(
                best.sut,
                best.mode,
                count,
                best.cores,
                paper_threads(count, best.cores),
                best.threads,
                model,
                best.grid_cps,
                error,
            )
        )
    return tuple(rows)


def plan(
    cps: float,
    options: Iterable[Option],
    cores: int,
    threads: Collection[int] | None = None,
    modes: Sequence[str] | None = None,
) -> Plan:
    """Find the smallest setting that carries a load at the limit of the options' capacities.

    Parameters
    ----------
    cps
        Calls per second to carry.
    options
        `measured_options` and, if wanted, `predicted_options`, of one SUT.
    cores
        Cores available.
    threads
        Numbers of threads allowed; any by default.
    modes
        Modes allowed, the preferred one first; any by default, in the order of the options.
    """
    given = list(options)
    order = list(modes) if modes is not None else list(dict.fromkeys(o.mode for o in given))
    allowed = [
        option
        for option in given
        if option.cores <= cores
        and (threads is None or option.threads in threads)
        and option.mode in order
        and not np.isnan(option.carries_cps)
    ]
    enough = sorted(
        (option for option in allowed if option.carries_cps >= cps),
        key=lambda option: (option.cores, option.threads, order.index(option.mode)),
    )
    choice = next(iter(enough), None)
    return Plan(
        cps=cps,
        choice=choice,
        margin_percent=np.nan if choice is None else 100 * (choice.carries_cps / cps - 1),
        measured=next((option for option in enough if option.basis == MEASURED), None),
        largest=max(allowed, key=lambda option: option.carries_cps, default=None),
    )
