"""Predictions of unmeasured capacities, from laws that are fitted to measured capacities."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sipsched.analysis.capacity.estimate import interval_of
from sipsched.analysis.capacity.options import (
    EXTRAPOLATED,
    IN_VIRTUAL_TIME,
    Option,
    predicted_option,
)
from sipsched.analysis.capacity.scaling import (
    ScalingLaw,
    TooFewPointsError,
    fit_rule,
    fit_scaling,
    leave_one_out,
)
from sipsched.analysis.capacity.systems import CapacityEvidence, CapacityModel, System
from sipsched.analysis.intervals import Interval
from sipsched.analysis.speedup import ratio
from sipsched.errors import StableError
from sipsched.records.system_capacity import SystemCapacity

RESAMPLES = 499
"""Number of bootstrap fits of a scaling law for the law's confidence intervals. All fits together take 2 s."""
RULE, LAW, AMDAHL = "papers' rule, fitted", "Universal Scalability Law", "Amdahl's law"
BORROWED = "Amdahl's law of the papers' server"


def rule_points(system: System) -> tuple[Option, ...]:
    """Return the settings for the fit of the papers' rule: capacity = number of threads × capacity of one core.

    In symbols, the rule is C(p,c) = T(p,c) × C(1,1) for p processors and c cores. For one core, only a setting with one
    thread is used, because the papers define T(1,1) as 1.
    """
    return tuple(option for option in system.fitted if option.cores > 1 or option.threads == 1)


def fit_models(
    system: System, processors: Mapping[int, int], resamples: int = RESAMPLES
) -> tuple[CapacityModel, ...]:
    """Fit each model of capacity as a function of cores to the known capacities of a system.

    Parameters
    ----------
    system
        System whose `fitted` settings are used for the fit.
    """
    points = _points(rule_points(system))
    try:
        rule = fit_rule(*points, processors)
        left = leave_one_out(*points, functools.partial(fit_rule, processors=processors))
        single = (("C(1,1)", "cps", rule.single_cps),)
        first = CapacityModel(RULE, len(points[0]), single, rule.predict, left)
    except TooFewPointsError as error:
        first = CapacityModel(RULE, len(points[0]), (), None, (), error.why)
    models = [first]
    points = _points(system.fitted)
    for name, only in ((LAW, False), (AMDAHL, True)):
        fit = functools.partial(fit_scaling, contention_only=only)
        try:
            law = fit(*points, resamples=resamples)
        except TooFewPointsError as error:
            models.append(CapacityModel(name, len(points[0]), (), None, (), error.why))
            continue
        left = leave_one_out(*points, functools.partial(fit, resamples=0))
        models.append(
            CapacityModel(name, len(points[0]), _parameters(law, only), law.predict, left)
        )
    return tuple(models)


def _points(options: Iterable[Option]) -> tuple[list[float], list[float]]:
    chosen = list(options)
    return [float(option.cores) for option in chosen], [
        option.capacity.estimate for option in chosen
    ]


def _parameters(law: ScalingLaw, contention_only: bool) -> tuple[tuple[str, str, Interval], ...]:
    parameters = [("λ", "cps", law.single_cps), ("σ", "", law.contention)]
    if not contention_only:
        parameters += [("κ", "", law.coherency), ("N*", "cores", law.peak_cores)]
    return tuple(parameters)


def choose(models: Sequence[CapacityModel]) -> CapacityModel | None:
    """Return the capacity model with the smallest leave-one-out errors.

    Models without these errors are ignored. The result is None if no model remains.
    """
    judged = [model for model in models if np.isfinite(model.rms_percent)]
    return min(judged, key=lambda model: model.rms_percent, default=None)


def borrowed(system: System, evidence: CapacityEvidence, cores: int) -> Interval:
    """Predict the capacity with `cores` cores: the known capacity of one core times the speed-up of the papers' server.

    The speed-up is the curve of Amdahl's law that was fitted to the papers' capacities.

    Returns
    -------
    Interval
        The ends are the products of the ends of the one-core capacity's interval and of the law's prediction interval.
        NaN if the capacity with one core is unknown.
    """
    ones = [option.capacity for option in system.best if option.cores == 1 and option.settled]
    law = next(
        model
        for system in evidence.systems
        if system.stated is not None
        for model in system.models
        if model.name == AMDAHL
    )
    if law.predict is None or not ones:
        return Interval.without(np.nan, 0, why="no capacity of one core")
    said, unit = law.predict(cores), law.predict(1).estimate
    return replace(
        ones[0],
        estimate=ones[0].estimate * said.estimate / unit,
        low=ones[0].low * max(said.low, 0.0) / unit,
        high=ones[0].high * said.high / unit,
    )


def predictor(
    system: System, evidence: CapacityEvidence
) -> tuple[str, Callable[[int], Interval]] | None:
    """Return the law that predicts a system's capacity for unmeasured numbers of cores.

    If capacities for three or more numbers of cores are known, the law with the smallest leave-one-out errors is used.
    Capacities for two numbers of cores determine Amdahl's law. If only the capacity of one core is known, Amdahl's law
    has the parameters of the papers' server.

    Returns
    -------
    name, predict
        Name of the law, and function from cores to capacity; None if no suitable capacity lies between two measured
        loads.
    """
    chosen = choose(system.models)
    count = len(system.fitted)
    if count > 2 and chosen is not None and chosen.predict is not None:
        return chosen.name, chosen.predict
    if count > 1:
        return AMDAHL, functools.partial(_through, system.fitted)
    if np.isfinite(borrowed(system, evidence, 1).estimate):
        return BORROWED, functools.partial(borrowed, system, evidence)
    return None


def _through(points: Sequence[Option], cores: int) -> Interval:
    """Predict the capacity with `cores` cores by Amdahl's law, fitted to the known capacities (usually two).

    Curves through the lower ends and through the upper ends of the capacities' intervals determine the ends of the
    predicted interval.
    """

    def law(values: Sequence[float]) -> float:
        numbers = [float(option.cores) for option in points]
        return fit_scaling(numbers, values, contention_only=True, resamples=0).curve(cores)

    capacities = [option.capacity for option in points]
    estimate = law([capacity.estimate for capacity in capacities])
    n = sum(capacity.n for capacity in capacities)
    if not all(capacity.known for capacity in capacities):
        return Interval.without(estimate, n, why="no interval of the measured capacities")
    low, high = ([getattr(capacity, end) for capacity in capacities] for end in ("low", "high"))
    return Interval(estimate, law(low), law(high), n, method="laws through the ends of intervals")


def extrapolated(
    system: System, evidence: CapacityEvidence, cores: Iterable[int]
) -> tuple[Option, ...]:
    """Return the known capacities of a system, and predictions by a scaling law for all other numbers of cores."""
    law = predictor(system, evidence)
    if law is None:
        return ()
    known = {option.cores: option for option in system.best}
    return tuple(
        known.get(count)
        or predicted_option(
            *(system.sut, system.mode, count, evidence.threads(count), law[1](count)), EXTRAPOLATED
        )
        for count in cores
    )


def in_virtual_time(system: System, capacities: Sequence[SystemCapacity]) -> tuple[Option, ...]:
    """Return the known capacity of one core, multiplied by the speed-ups of a proxy in virtual time.

    Parameters
    ----------
    capacities
        Capacities in virtual time, of one SUT with one number of workers, on one core and on several cores. A speed-up
        is the capacity on several cores, divided by the capacity on one core.

    Returns
    -------
    tuple
        The known option of one core, then one predicted option per number of cores, in ascending order. Empty if a
        capacity on one core is missing, or if only one core was measured in virtual time. The intervals contain the
        uncertainty of all three capacities.

    Raises
    ------
    StableError
        The capacities belong to several systems, or have several drop limits.
    """
    kinds = {(known.sut, known.mode, known.threads, known.limit) for known in capacities}
    if len(kinds) > 1:
        raise StableError(
            "the capacities in virtual time belong to several systems: "
            + "; ".join(
                f"{sut}, {mode}, {threads} threads, limit {limit:g}"
                for sut, mode, threads, limit in sorted(kinds)
            )
        )
    by_cores = {
        capacity.cores: capacity for capacity in capacities if capacity.estimate_cps is not None
    }
    one = next((option for option in system.fitted if option.cores == 1), None)
    if one is None or 1 not in by_cores or len(by_cores) == 1:
        return ()
    slower = interval_of(by_cores.pop(1))
    return (
        one,
        *(
            predicted_option(
                *(system.sut, system.mode, cores, faster.threads),
                ratio(one.capacity, ratio(slower, interval_of(faster))),
                IN_VIRTUAL_TIME,
            )
            for cores, faster in sorted(by_cores.items())
        ),
    )
