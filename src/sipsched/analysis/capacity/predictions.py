"""What is said of capacities that were not measured: laws fitted to a system, and one core carried to several."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sipsched.analysis.capacity.options import Option, best_by_cores, predicted_options
from sipsched.analysis.capacity.scaling import (
    Scaling,
    TooFewPointsError,
    contention_model,
    fit_rule,
    fit_scaling,
    law_model,
    leave_one_out,
    paper_model,
)
from sipsched.analysis.capacity.systems import Evidence, Model, System
from sipsched.analysis.statistics import Interval

RESAMPLES = 499
"""Fits of a law for its intervals: 2 s."""
RULE, LAW, AMDAHL = "papers' rule, fitted", "Universal Scalability Law", "Amdahl's law"
RULE_OF_ONE, LINEAR, BORROWED = "T(p,c) × C(1,1)", "c × one core", "scaled as the papers' server"
LEAST = "the least of T(p,c) × C(1,1), c × one core, and one core scaled as the papers' server"


def rule_points(system: System) -> tuple[Option, ...]:
    """Give what the papers' rule is fitted to: one core with one thread only, T(1,1) being 1."""
    return tuple(option for option in system.fitted if option.cores > 1 or option.threads == 1)


def fit_models(
    system: System, processors: Mapping[int, int], resamples: int = RESAMPLES
) -> tuple[Model, ...]:
    """Fit each model of capacity by cores.

    Parameters
    ----------
    system
        Its `fitted` settings are the points.
    processors
        Cores to the processors that they lie in.
    resamples
        Of the bootstrap.
    """
    points = _points(rule_points(system))
    try:
        rule = fit_rule(*points, processors)
        left = leave_one_out(*points, paper_model(processors))
        single = (("C(1,1)", "cps", rule.single_cps),)
        first = Model(RULE, len(points[0]), single, rule.predict, left)
    except TooFewPointsError as error:
        first = Model(RULE, len(points[0]), (), None, (), error.why)
    models = [first]
    points = _points(system.fitted)
    for name, make, only in ((LAW, law_model, False), (AMDAHL, contention_model, True)):
        try:
            law = fit_scaling(*points, contention_only=only, resamples=resamples)
        except TooFewPointsError as error:
            models.append(Model(name, len(points[0]), (), None, (), error.why))
            continue
        left = leave_one_out(*points, make)
        models.append(Model(name, len(points[0]), _parameters(law, only), law.predict, left))
    return tuple(models)


def _points(options: Iterable[Option]) -> tuple[list[float], list[float]]:
    chosen = list(options)
    return [float(each.cores) for each in chosen], [each.capacity.estimate for each in chosen]


def _parameters(law: Scaling, contention_only: bool) -> tuple[tuple[str, str, Interval], ...]:
    found = [("λ", "cps", law.single_cps), ("σ", "", law.contention)]
    if not contention_only:
        found += [("κ", "", law.coherency), ("N*", "cores", law.peak_cores)]
    return tuple(found)


def choose(models: Sequence[Model]) -> Model | None:
    """Choose the model with the smallest leave-one-out errors; None if no model has them all."""
    judged = [model for model in models if np.isfinite(model.rms_percent)]
    return min(judged, key=lambda model: model.rms_percent, default=None)


@dataclass(frozen=True)
class SingleCore:
    """C(1,1) of a system, and what it is.

    Attributes
    ----------
    capacity
        In cps; NaN if there is none, and it says why.
    threads
        Threads of the setting that it is measured with; None if a paper states it, or there is none.
    best
        The best setting of one core; None if none is between the loads measured.
    """

    capacity: Interval
    threads: int | None
    best: Option | None


def single_core(system: System) -> SingleCore:
    """Choose C(1,1): as a paper states it, else measured with one thread, else with the best number."""
    among = [option for option in system.options if option.cores == 1]
    ones = [option for option in among if option.settled]
    best = next(iter(best_by_cores(ones)), None)
    if system.stated is not None:
        return SingleCore(system.stated, None, best)
    chosen = next((option for option in ones if option.threads == 1), best)
    if chosen is not None:
        return SingleCore(chosen.capacity, chosen.threads, best)
    none = "no capacity of one core lies between the loads measured"
    why = none if among else "one core was not measured"
    return SingleCore(Interval.without(np.nan, 0, why=why), None, None)


def extrapolations(system: System, evidence: Evidence, cores: int) -> dict[str, Interval]:
    """Carry what one core does to several, where nothing is fitted.

    Returns
    -------
    dict
        `RULE_OF_ONE`: T(p,c) × C(1,1), with the interval of C(1,1). `LINEAR`: as many times the best of
        one core, with its interval; cores do not exceed it. `BORROWED`: the same, falling behind as
        Amdahl's law has it for the papers' server in enhanced mode; its interval also holds that law's
        prediction interval. NaN, and why, where one core is not known.
    """
    single = single_core(system).capacity
    ones = [option.capacity for option in system.best if option.cores == 1 and option.settled]
    none = Interval.without(np.nan, 0, why="no capacity of one core")
    best = ones[0] if ones else none
    law = next(
        model
        for each in evidence.systems
        if each.stated is not None
        for model in each.models
        if model.name == AMDAHL
    )
    borrowed = none
    if law.predict is not None and ones:
        said, unit = law.predict(cores), law.predict(1).estimate
        borrowed = replace(
            best,
            estimate=best.estimate * said.estimate / unit,
            low=best.low * max(said.low, 0.0) / unit,
            high=best.high * said.high / unit,
        )
    return {
        RULE_OF_ONE: times(single, evidence.threads(cores)),
        LINEAR: times(best, cores),
        BORROWED: borrowed,
    }


def predictor(system: System, evidence: Evidence) -> tuple[str, Callable[[int], Interval]] | None:
    """Choose what predicts capacities that were not measured.

    The model with the smallest leave-one-out errors; without any, the least of `extrapolations`.

    Returns
    -------
    name, predict
        None if one core is not known either.
    """
    chosen = choose(system.models)
    if chosen is not None and chosen.predict is not None:
        return chosen.name, chosen.predict

    def least(cores: int) -> Interval:
        found = extrapolations(system, evidence, cores).values()
        return min(found, key=lambda each: (np.isnan(each.estimate), each.estimate))

    if np.isnan(least(1).estimate):
        return None
    return LEAST, least


def times(interval: Interval, factor: float) -> Interval:
    """Multiply a number and the ends of its interval."""
    return interval.map(lambda value: factor * value)


def known_options(system: System, evidence: Evidence, cores: Iterable[int]) -> tuple[Option, ...]:
    """List the settings of a system: the measured ones, then predictions for the other cores."""
    found = predictor(system, evidence)
    if found is None:
        return system.options
    predicted = predicted_options(
        system.options, system.sut, system.mode, cores, found[1], evidence.threads
    )
    return (*system.options, *predicted)
