"""Simulations of many runs for a grid of settings. The result contains only the mean values of each run."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from sipsched.measure.acquisition import arrival_seed
from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulator import Value, simulate
from sipsched.plan.config import Config
from sipsched.plan.run import Point
from sipsched.plan.simulated import CASE, CELL, MEANS
from sipsched.testbed.inventory import Testbed

EXTENSIONS = 10
"""Largest number of times that `near_limit` adds loads to the first three loads of a combination."""


@dataclass(frozen=True)
class GridPredictor:
    """A predictor that simulates many short runs of one proxy with different modes, cores, threads and loads.

    Attributes
    ----------
    calls
        Number of calls of each simulated run.
    change
        Parameters that override the parameters of the model's file and the parameters that `without` changes.
    """

    config: Config
    testbed: Testbed
    sut: str
    calls: int
    change: Mapping[str, Value] = field(default_factory=dict)

    def predict(self, cases: pd.DataFrame) -> pd.DataFrame:
        """Simulate one run per row of a table, in parallel. Rows with equal load and repetition have equal arrivals.

        Parameters
        ----------
        cases
            Table with the columns `CASE`.

        Returns
        -------
        DataFrame
            The cases, with the columns `calls` and `MEANS` added.

        Raises
        ------
        StableError
            See `sipsched.measure.simulated_point.plan_point` and `sipsched.measure.simulator.simulate`.
        """
        plan = lru_cache(maxsize=None)(self._plan)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(
                pool.map(
                    lambda case: self._one(plan(*case[:3], case[5]), *case[3:5]),
                    cases[CASE].itertuples(index=False, name=None),
                )
            )
        means = pd.DataFrame(rows, columns=MEANS, index=cases.index, dtype=float)
        return pd.concat([cases.assign(calls=self.calls), means], axis=1)

    def near_limit(
        self, cells: pd.DataFrame, limit: float, step_cps: int, most_cps: int, repetitions: int
    ) -> pd.DataFrame:
        """Simulate each combination of mode, cores and threads at loads on both sides of the drop rate's limit.

        A bisection with one run per trial searches for the capacity among the multiples of the step. The function then
        simulates the highest load whose packet drop rate is at most the limit, and the loads one step below and above.
        Finally, the function adds lower or higher loads until the mean drop rates are on both sides of the limit.

        Parameters
        ----------
        cells
            Table with the columns `CELL`, one row per combination.
        limit
            Limit of the packet drop rate, 0 to 1.
        step_cps, most_cps
            Step between loads, and the highest load, in calls per second.
        repetitions
            Number of repetitions per load.
        """
        low = np.zeros(len(cells), int)
        high = np.full(len(cells), most_cps // step_cps)
        trial = cells[CELL].assign(rep=1, without="").reset_index(drop=True)
        while (high - low > 1).any():
            middle = np.maximum((low + high) // 2, 1)
            dropped = self.predict(trial.assign(cps=middle * step_cps))["pdr"].to_numpy() > limit
            high, low = np.where(dropped, middle, high), np.where(dropped, low, middle)

        def at(steps: pd.Series) -> pd.DataFrame:
            loads = trial.loc[steps.index].assign(cps=steps * step_cps)
            repeated = [loads.assign(rep=rep) for rep in range(1, repetitions + 1)]
            return self.predict(pd.concat(repeated, ignore_index=True))

        steps = pd.Series(np.maximum(low, 2))
        simulated = pd.concat([at(steps + by) for by in (-1, 0, 1)])
        for _ in range(EXTENSIONS):
            means = simulated.groupby([*CELL, "cps"])["pdr"].mean().reset_index("cps")
            ends = means.groupby(CELL)["cps"].agg(["min", "max"]) // step_cps
            dropped = means.assign(dropped=means["pdr"] > limit).groupby(CELL)["dropped"]
            lower = (ends["min"] - 1)[dropped.all() & (ends["min"] > 1)]
            higher = (ends["max"] + 1)[~dropped.any() & (ends["max"] < most_cps // step_cps)]
            onwards = pd.concat([lower, higher])
            if onwards.empty:
                break
            places = pd.MultiIndex.from_frame(trial[CELL])
            simulated = pd.concat(
                [simulated, at(onwards.set_axis(places.get_indexer(onwards.index)))]
            )
        return simulated.reset_index(drop=True)

    def _plan(self, mode: str, cores: int, threads: int, without: str) -> SimulatedPoint:
        simulated = self.testbed.simulated
        if simulated is not None and without:
            simulated = replace(simulated, without=tuple(without.split(",")))
        bed = replace(self.testbed, simulated=simulated)
        return plan_point(Point(bed.name, self.sut, mode, cores, threads), self.config, bed)

    def _one(self, plan: SimulatedPoint, cps: int, rep: int) -> Sequence[float]:
        arrivals = Arrivals(cps, self.calls, arrival_seed(cps, rep))
        with tempfile.TemporaryDirectory(prefix="sipsched-simulated-") as folder:
            numbers = {**plan.at(self.config.load, arrivals), **self.change}
            report = simulate(numbers, Path(folder))
        times = (ns / max(report.served, 1) / 1000 for ns in (report.k_rcv_ns, report.t_sip_ns))
        return *times, report.refused / max(report.arrived, 1)
