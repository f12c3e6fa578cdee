"""The estimate of a proxy's capacity from all search trials and runs, with the statistical model in `drift.py`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from sipsched.analysis.capacity.drift import Observations, fit, speeds
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.intervals import LEVEL, Interval
from sipsched.analysis.run_table import Campaign, Configuration, configurations, lost
from sipsched.plan.loads import WIDEST_BRACKET
from sipsched.records.crossing import SearchRecord
from sipsched.records.system_capacity import Searched, SystemCapacity

TRIAL_S = 9.0
"""Assumed seconds between the starts of two trials, for records without start times."""
ALL_UNDER = "at no load did the drop rate exceed the limit"
ALL_ABOVE = "at every load, the drop rate exceeded the limit"
METHOD = "model of a drifting machine"


def estimate_capacities(
    testbed: str,
    campaign: Campaign | None,
    crossings: Iterable[SearchRecord],
    limit: float = PDR_LIMIT,
) -> tuple[SystemCapacity, ...]:
    """Estimate the capacity of each system that has runs or trials at two or more loads.

    Parameters
    ----------
    campaign
        All runs of the testbed. The estimate uses the valid runs of a single mode. None if only searches exist.
    crossings
        Records of searches. Searches on other testbeds are ignored.

    Returns
    -------
    tuple
        Capacities in the order of the runs, and then the capacities of systems that only searches measured.
    """
    runs = configurations(campaign.single) if campaign else {}
    searches: dict[Configuration, list[SearchRecord]] = {key: [] for key in runs}
    for crossing in crossings:
        point = crossing.point
        if point.testbed == testbed:
            key = Configuration(point.sut, point.mode, point.cores, point.threads)
            searches.setdefault(key, []).append(crossing)
    own = [search for of_system in searches.values() for search in of_system]
    recorded = (
        [campaign.fidelity]
        if campaign
        else [search.testbed.fidelity for search in own if search.testbed]
    )
    fidelity = "; ".join(dict.fromkeys(recorded))
    systems = []
    for key, of_system in searches.items():
        observed = observe(runs.get(key, _NO_RUNS), of_system)
        if len(np.unique(observed.cps)) > 1:
            system = _estimate(testbed, key, observed, of_system, limit)
            systems.append(replace(system, fidelity=fidelity))
    return tuple(systems)


_NO_RUNS = pd.DataFrame({"cps": []}, dtype=float)


def capacity_of_search(search: SearchRecord, limit: float = PDR_LIMIT) -> Interval:
    """Estimate the capacity only from the trials of one search."""
    observed = observe(_NO_RUNS, [search])
    if not len(observed.cps):
        return Interval.without(np.nan, 0, LEVEL, "no trial")
    point = search.point
    key = Configuration(point.sut, point.mode, point.cores, point.threads)
    return interval_of(_estimate(point.testbed, key, observed, [search], limit))


def observe(runs: pd.DataFrame, searches: Iterable[SearchRecord]) -> Observations:
    """Collect the trials and runs of one system into one table, with the trials first."""
    parts = [*map(of_search, searches), _of_runs(runs)]
    return Observations(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def of_search(search: SearchRecord) -> Observations:
    """Return the trials of a search as observations. Unknown start times are spread evenly over the search."""
    trials, began = search.trials, _seconds(search.started_at)
    step = search.took_s / len(trials) if search.took_s and trials else TRIAL_S
    times = [
        began + i * step if trial.started_at is None else _seconds(trial.started_at)
        for i, trial in enumerate(trials)
    ]
    return Observations(
        np.array(times, float),
        np.array([trial.cps for trial in trials], float),
        np.array([trial.pdr for trial in trials], float),
        np.array([trial.cpu_us for trial in trials], float),
        1 - np.array([trial.steal_share for trial in trials], float),
    )


def _of_runs(runs: pd.DataFrame) -> Observations:
    if not len(runs):
        return Observations(*np.empty((len(Observations._fields), 0)))
    rates = lost(runs)
    runs = runs[rates.notna()]
    load_s = runs["calls_created"].to_numpy(float) / runs["cps"].to_numpy(float)
    return Observations(
        np.array([_seconds(text) for text in runs["started_at"]], float),
        runs["cps"].to_numpy(float),
        rates.dropna().to_numpy(float),
        (runs["proxy_cpu_ns"] / runs["messages"] / 1000).to_numpy(float),
        1 - runs["steal_s"].to_numpy(float) / (load_s * runs["cores"].to_numpy(float)),
    )


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _estimate(
    testbed: str,
    key: Configuration,
    observed: Observations,
    searches: Sequence[SearchRecord],
    limit: float,
) -> SystemCapacity:
    above = observed.loss > limit
    estimate = fit(observed, limit) if above.any() and not above.all() else None
    ends = np.cumsum([0, *(len(search.trials) for search in searches)]).tolist()
    trials = ends[-1]
    return SystemCapacity(
        *(testbed, *key, limit, LEVEL),
        estimate_cps=estimate.estimate_cps if estimate else None,
        low_cps=estimate.low_cps if estimate else None,
        high_cps=estimate.high_cps if estimate else None,
        lowest_cps=float(observed.cps.min()),
        highest_cps=float(observed.cps.max()),
        dropped=bool(above.any()),
        trials=trials,
        runs=len(observed.cps) - trials,
        drift=estimate.drift if estimate else None,
        scatter=estimate.scatter if estimate else None,
        searches=tuple(
            _searched(search, observed, slice(*own))
            for search, own in zip(searches, pairwise(ends), strict=True)
        ),
    )


def _searched(search: SearchRecord, observed: Observations, own: slice) -> Searched:
    """Return the loads and times of a search, and how much slower the machine was than during the other measurements.

    The result contains the CPU time per message in these trials, divided by the CPU time per message in all other
    trials and runs. The dependence of the CPU time on the load is removed (`drift.speeds`).
    """
    slow = -speeds(observed)
    known = observed.cpu_us > 0
    mine = np.zeros(len(slow), bool)
    mine[own] = True
    ratio = None
    if (known & mine).any() and (known & ~mine).any():
        ratio = float(np.exp(slow[known & mine].mean() - slow[known & ~mine].mean()))
    return Searched(
        *(search.lower_cps, search.upper_cps, search.started_at, search.finished_at, ratio)
    )


def interval_of(capacity: SystemCapacity) -> Interval:
    """Return a capacity with an interval: infinity for a capacity above all measured loads, and 0 below all loads."""
    n = capacity.trials + capacity.runs
    if capacity.estimate_cps is None or capacity.low_cps is None or capacity.high_cps is None:
        beyond = 0.0 if capacity.dropped else np.inf
        return Interval.without(
            beyond, n, capacity.level, ALL_ABOVE if capacity.dropped else ALL_UNDER
        )
    return Interval(
        *(capacity.estimate_cps, capacity.low_cps, capacity.high_cps, n, capacity.level, METHOD),
        resolved=capacity.high_cps <= WIDEST_BRACKET**2 * capacity.low_cps,
    )
