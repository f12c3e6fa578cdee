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
TYPES = dict(zip(KINDS, (2.77, 0.43, 0.40, 0.82, 1.15, 0.43), strict=True))
"""ASSUME service times of the types stand to each other as Kamailio's in kamailio-qm; the mean of all is 1."""
FAR = 5
"""ASSUME a refill from another processor's cache takes five times one from the same, as in kamailio-qm."""
RECEIVE_BUFFER_BYTES = 524_288
"""Of the SUT opensips-udp, doubled by the kernel."""
FAILED = 1e3
"""The loss of numbers with which a run does not end."""

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


def numbers(values: npt.ArrayLike) -> dict[str, Any]:
    """Turn values of `FREE` into numbers of hardware/simulator/model.h."""
    found = dict(zip((free.name for free in FREE), np.asarray(values).tolist(), strict=True))
    whole = {
        name: round(found[name])
        for name in ("loop_ns", "switch_ns", "refill_near_ns", "stall_every_ns", "stall_ns")
    }
    return {
        **whole,
        "service_ns": [0.0, *(share * found["service_ns"] for share in TYPES.values())],
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
    evaluations
        How often all of them were simulated.
    """

    values: Values
    loss: float
    points: int
    evaluations: int


def fit(
    published: pd.DataFrame,
    predict: Callable[[Mapping[str, Any]], pd.DataFrame | None],
    generations: int = 12,
    polish: int = 120,
    seed: int = 1,
) -> Fitted:
    """Search the numbers that predict the published ones best.

    Differential evolution within the bounds (Storn and Price 1997), then Nelder and Mead's simplex from the
    best. Arrivals and services are the same in each evaluation, so that a difference is one of the numbers.

    Parameters
    ----------
    published
        As `fitted_half` returns it.
    predict
        From numbers of a model to `METRICS`, a row a row of published; None where a run does not end.
    generations, polish
        Generations of the one, evaluations of the other.
    seed
        Of the first search.
    """
    spent = 0

    def score(logs: Values) -> float:
        nonlocal spent
        spent += 1
        found = predict(numbers(np.exp(logs)))
        return FAILED if found is None else loss(found, published)

    bounds = np.log([(free.low, free.high) for free in FREE])
    broad = optimize.differential_evolution(
        score, bounds, popsize=4, maxiter=generations, rng=seed, polish=False, tol=0.0
    )
    simplex = np.vstack([broad.x, broad.x + 0.15 * np.eye(len(FREE))])
    fine = optimize.minimize(
        score,
        broad.x,
        method="Nelder-Mead",
        bounds=bounds,
        options={"maxfev": polish, "initial_simplex": np.clip(simplex, *bounds.T)},
    )
    best = min((broad, fine), key=lambda found: float(found.fun))
    points = len(published) * len(METRICS)
    return Fitted(np.exp(best.x), float(best.fun), points, spent)
