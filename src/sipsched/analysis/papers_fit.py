"""A model of the papers' proxy and machine, fitted to half of what they print of one and two cores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize

from sipsched.analysis.papers import wide
from sipsched.plan.simulated import KINDS

METRICS = ("t_sip_us", "k_rcv_us", "pdr")
FITTED_MODE, FITTED_CORES = "baseline", (1, 2)
"""The half: Table I of either paper. The modes' difference and more cores are left to be predicted."""
FLOOR = {"t_sip_us": 0.0, "k_rcv_us": 0.0, "pdr": 0.001}
"""Added to both sides before a ratio is taken: a drop rate may be 0."""
FAR = 5
"""ASSUME a refill from another processor's cache takes five times one from the same, as in kamailio-qm."""
RECEIVE_BUFFER_BYTES = 524_288
"""Of the SUT opensips-udp, doubled by the kernel."""
FAILED = 1e3
"""The loss of numbers with which a run does not end."""
SEARCHED, POLISHED = 1, 5
"""Arrivals that a column is predicted over: in the search within the bounds, and from its best."""
RACED = 8
"""Of the last generation, those that are predicted over as many arrivals, to choose from."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Free:
    """A number that the fit may choose, between two others; it is searched by its logarithm."""

    name: str
    low: float
    high: float
    meaning: str


FREE = (
    Free("service_ns", 20e3, 100e3, "service time of a message, mean of the six types"),
    Free("loop_ns", 1e3, 60e3, "CPU time of a message outside T_sip"),
    Free("switch_ns", 500, 60e3, "a context switch"),
    Free("lock_share", 0.005, 0.6, "share of the service time under a lock that all share"),
    Free("refill_near_ns", 300, 60e3, "cache refill after a migration within a processor"),
    Free("stall_every_ns", 1e7, 5e9, "mean time between stalls of a CPU"),
    Free("stall_ns", 2e5, 3e7, "their mean length"),
    Free("queue", 15, 800, "messages that the socket's queue holds"),
)


def numbers(values: npt.ArrayLike, model: Mapping[str, Any]) -> dict[str, Any]:
    """Turn values of `FREE` into numbers of hardware/simulator/model.h.

    Parameters
    ----------
    values
        Shape (free,).
    model
        Numbers of the model's file; the service times of the types stand to each other as there.
    """
    found = dict(zip((free.name for free in FREE), np.asarray(values).tolist(), strict=True))
    whole = {
        name: round(found[name])
        for name in ("loop_ns", "switch_ns", "refill_near_ns", "stall_every_ns", "stall_ns")
    }
    scale = found["service_ns"] / float(np.mean(model["service_ns"][1:]))
    return {
        **whole,
        "service_ns": [scale * mean_ns for mean_ns in model["service_ns"]],
        "lock_share": found["lock_share"],
        "refill_far_ns": FAR * whole["refill_near_ns"],
        "truesize": [round(RECEIVE_BUFFER_BYTES / found["queue"])] * (len(KINDS) + 1),
    }


def values_of(model: Mapping[str, Any]) -> Values:
    """Read the values of `FREE` from a model's numbers; shape (free,)."""
    service = float(np.mean(model["service_ns"][1:]))
    special = {
        "service_ns": service,
        "queue": RECEIVE_BUFFER_BYTES / model["truesize"][1],
    }
    return np.array([special.get(free.name, model.get(free.name)) for free in FREE], float)


def fitted_half(points: pd.DataFrame) -> pd.DataFrame:
    """Take the columns that the model is fitted to.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.

    Returns
    -------
    DataFrame
        As `sipsched.analysis.papers.wide` returns it.
    """
    columns = wide(points)
    half = (columns["mode"] == FITTED_MODE) & columns["cores"].isin(FITTED_CORES)
    return columns[half].reset_index(drop=True)


def log_ratios(predicted: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Compare row by row, by the logarithm of predicted over published; columns `METRICS`."""
    return pd.DataFrame(
        {
            name: np.log(
                (predicted[name].to_numpy(float) + FLOOR[name])
                / (published[name].to_numpy(float) + FLOOR[name])
            )
            for name in METRICS
        },
        index=published.index,
    )


def loss(predicted: pd.DataFrame, published: pd.DataFrame) -> float:
    """Give the mean square of `log_ratios`: each metric of each column counts alike."""
    return float((log_ratios(predicted, published).to_numpy() ** 2).mean())


@dataclass(frozen=True)
class Fitted:
    """What the search found.

    Attributes
    ----------
    values
        Shape (free,), in the order of `FREE`.
    loss
        Of these.
    points
        Printed numbers that it was fitted to.
    columns
        How many columns of the papers' tables were simulated.
    """

    values: Values
    loss: float
    points: int
    columns: int


def fit(
    published: pd.DataFrame,
    model: Mapping[str, Any],
    predict: Callable[[Mapping[str, Any], int], pd.DataFrame | None],
    generations: int = 14,
    polish: int = 90,
    seed: int = 1,
) -> Fitted:
    """Search the numbers that predict the published ones best.

    Differential evolution within the bounds (Storn and Price 1997) with few arrivals a column, the model's own
    numbers in the first generation; of its last one the best with more arrivals, and from there Nelder and Mead's
    simplex. Arrivals and services are the same in each evaluation, so that a difference is one of the numbers.

    Parameters
    ----------
    published
        As `fitted_half` returns it.
    model
        As `numbers` takes it.
    predict
        From numbers of a model to `METRICS`, a row a row of published, each the mean over so many arrivals;
        None where a run does not end.
    generations, polish
        Generations of the one, evaluations of the other.
    seed
        Of the first search.
    """
    spent = 0

    def score(logs: Values, arrivals: int) -> float:
        nonlocal spent
        spent += arrivals * len(published)
        found = predict(numbers(np.exp(logs), model), arrivals)
        return FAILED if found is None else loss(found, published)

    bounds = np.log([(free.low, free.high) for free in FREE])
    broad = optimize.differential_evolution(
        score,
        bounds,
        args=(SEARCHED,),
        x0=np.clip(np.log(values_of(model)), *bounds.T),
        popsize=4,
        maxiter=generations,
        rng=seed,
        polish=False,
        tol=0.0,
    )
    best = broad.population[np.argsort(broad.population_energies)[:RACED]]
    start = best[np.argmin([score(logs, POLISHED) for logs in best])]
    simplex = np.vstack([start, start + 0.15 * np.eye(len(FREE))])
    fine = optimize.minimize(
        score,
        start,
        args=(POLISHED,),
        method="Nelder-Mead",
        bounds=bounds,
        options={"maxfev": polish, "initial_simplex": np.clip(simplex, *bounds.T)},
    )
    return Fitted(np.exp(fine.x), float(fine.fun), published[list(METRICS)].size, spent)
