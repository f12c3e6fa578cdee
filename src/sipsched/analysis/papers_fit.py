"""The fit of the simulator to the papers' tables for one and two cores in baseline mode."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize

from sipsched.analysis.intervals import Values
from sipsched.analysis.papers import wide
from sipsched.plan.simulated import KINDS, LOG_QUEUE

METRICS = ("t_sip_us", "k_rcv_us", "pdr")
FITTED_MODE, FITTED_CORES = "baseline", (1, 2)
"""Mode and numbers of cores of the published numbers to which the simulator is fitted.

The simulator predicts all other published numbers.
"""
FLOOR = {"t_sip_us": 0.0, "k_rcv_us": 0.0, "pdr": 0.001}
"""Constants that are added to both numbers of the ratio predicted / published, because a drop rate may be 0."""
FAR = 5
"""ASSUME a cache refill from another processor takes five times as long as a refill within a processor.

SEE config/models/kamailio-qm.yaml
"""
RECEIVE_BUFFER_BYTES = 524_288
"""Receive buffer in bytes of the SUT opensips-udp, after the kernel has doubled its size."""
FAILED = 1e3
"""Loss value for parameters with which a simulated run does not finish."""
SEARCHED, POLISHED = 1, 5
"""Number of random arrival sequences per column of the tables, in the global search and in the later local search."""
RACED = 8
"""Number of candidates from the global search that are compared again with more arrival sequences."""


@dataclass(frozen=True)
class Free:
    """A parameter of the simulator that the fit searches on a logarithmic scale, with the bounds of the search."""

    name: str
    low: float
    high: float
    meaning: str


COSTS = (
    Free("service_ns", 20e3, 100e3, "service time of a message, mean of the six types"),
    Free("loop_ns", 1e3, 60e3, "CPU time of a message outside T_sip"),
    Free("switch_ns", 500, 60e3, "CPU time of a context switch"),
    Free(
        "lock_share",
        0.005,
        0.6,
        "share of the service time in which a worker holds a lock that all workers share",
    ),
    Free("refill_near_ns", 300, 60e3, "time to refill caches after a migration within a processor"),
)
STALLS = (
    Free("stall_every_ns", 1e7, 5e9, "mean time between stalls of a CPU"),
    Free("stall_ns", 2e5, 3e7, "mean length of a stall of a CPU"),
)
BURSTS = (
    Free("burst_every_ns", 1e7, 5e9, "mean time between bursts of another program on a CPU"),
    Free("burst_ns", 2e5, 3e7, "mean CPU time of a burst"),
    Free("burst_weight", 1024, 88761, "weight of the other program; 1024 for nice 0"),
)
QUEUE = Free("queue", 15, 800, "number of messages that fit into the socket's queue")
FREE = (*COSTS, *STALLS, QUEUE)
COLD = Free(
    "refill_doubling_ns",
    10,
    60e3,
    "time to refill caches, per doubling of 1 + the number of other workers that ran meanwhile",
)
LOGGER = Free(
    "logger_ns", 1e3, 60e3, "time of syslogd per message, on a CPU that the proxy does not use"
)
LOG = {"logger_apart": 1, "logger_queue": LOG_QUEUE}
"""Parameters of the simulator that belong to the parameter `LOGGER`."""
VARIANTS = {
    "stalls": FREE,
    "bursts": (*COSTS, *BURSTS, QUEUE),
    "cold": (*COSTS, COLD, *STALLS, QUEUE),
    "log": (*COSTS, LOGGER, *STALLS, QUEUE),
}
"""Parameters of four fits. In the fits `stalls` and `bursts`, stalls or bursts of other programs take the CPUs from the
proxy. The fit `cold` has stalls, and a worker refills its caches for longer if more other workers ran meanwhile. The
fit `log` has stalls, and a worker waits if too many lines of its log wait for syslogd."""


def numbers(
    values: npt.ArrayLike, model: Mapping[str, Any], free: Sequence[Free] = FREE
) -> dict[str, Any]:
    """Return parameters of the simulator (hardware/simulator/model.h) from the values of the fitted parameters.

    Parameters
    ----------
    values
        Shape (free,).
    model
        Parameters of the model's file. The ratios of service times between message types stay unchanged.
    """
    chosen = dict(
        zip((parameter.name for parameter in free), np.asarray(values).tolist(), strict=True)
    )
    scale = chosen.pop("service_ns") / float(np.mean(model["service_ns"][1:]))
    queue, lock_share = chosen.pop("queue"), chosen.pop("lock_share")
    whole = {name: round(value) for name, value in chosen.items()}
    return {
        **{"stall_every_ns": 0, "burst_every_ns": 0},
        **whole,
        **(LOG if LOGGER in free else {}),
        "service_ns": [scale * mean_ns for mean_ns in model["service_ns"]],
        "lock_share": lock_share,
        "refill_far_ns": FAR * whole["refill_near_ns"],
        "truesize": [round(RECEIVE_BUFFER_BYTES / queue)] * (len(KINDS) + 1),
    }


def values_of(model: Mapping[str, Any], free: Sequence[Free] = FREE) -> Values:
    """Read the values of the parameters in `free` from a model's file. Return an array with one value per parameter.

    If the model has no bursts, each stall becomes a burst of the largest weight. If the model's refills do not grow
    with the number of workers, the growth is as small as possible. If the model has no syslogd, its time per message is
    as short as possible.
    """
    known = {
        **model,
        "service_ns": float(np.mean(model["service_ns"][1:])),
        "queue": RECEIVE_BUFFER_BYTES / model["truesize"][1],
        COLD.name: model[COLD.name] or COLD.low,
        LOGGER.name: model[LOGGER.name] or LOGGER.low,
    }
    if not model["burst_every_ns"]:
        known |= {f"burst_{name}": model[f"stall_{name}"] for name in ("every_ns", "ns")}
        known["burst_weight"] = BURSTS[-1].high
    return np.array([known[parameter.name] for parameter in free], float)


def fitted_half(points: pd.DataFrame) -> pd.DataFrame:
    """Return the part of the papers' tables to which the simulator is fitted, with one column per metric."""
    columns = wide(points)
    half = (columns["mode"] == FITTED_MODE) & columns["cores"].isin(FITTED_CORES)
    return columns[half].reset_index(drop=True)


def log_ratios(predicted: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return log(predicted / published) for each row of the two tables, with one column per metric."""
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
    """Return the mean square of log(predicted / published), with equal weights for all numbers."""
    return float((log_ratios(predicted, published).to_numpy() ** 2).mean())


@dataclass(frozen=True)
class PapersFit:
    """The simulator's parameters that fit the papers' numbers best, and the quality of the fit.

    Attributes
    ----------
    values
        Best values, shape (free,), in the order of the argument `free` of `fit`.
    points
        Number of published numbers to which the simulator is fitted.
    columns
        Number of simulations of a column of the papers' tables during the search.
    """

    values: Values
    loss: float
    points: int
    columns: int


def fit(
    published: pd.DataFrame,
    model: Mapping[str, Any],
    predict: Callable[[Mapping[str, Any], int], pd.DataFrame | None],
    free: Sequence[Free] = FREE,
    generations: int = 14,
    polish: int = 90,
    seed: int = 1,
) -> PapersFit:
    """Search for the simulator's parameters that predict the published numbers best.

    The global search is differential evolution (Storn and Price 1997) with one arrival sequence per column. The first
    generation contains the model's own parameters. The best candidates of the last generation are compared again with
    more arrival sequences. The best candidate is the start of Nelder and Mead's simplex. All evaluations have the same
    arrivals and services, so their results differ only because of the parameters.

    Parameters
    ----------
    predict
        Function that simulates a model's parameters (first argument) with a number of arrival sequences (second
        argument). The function returns the means `METRICS` with one row per row of `published`, or None if a run does
        not finish.
    free
        The parameters that the search varies.
    generations, polish
        Number of generations of the global search, and number of evaluations of the local search.
    """
    spent = 0

    def score(logs: Values, arrivals: int) -> float:
        nonlocal spent
        spent += arrivals * len(published)
        predicted = predict(numbers(np.exp(logs), model, free), arrivals)
        return FAILED if predicted is None else loss(predicted, published)

    bounds = np.log([(parameter.low, parameter.high) for parameter in free])
    low, high = bounds.T
    broad = optimize.differential_evolution(
        score,
        bounds,
        args=(SEARCHED,),
        # By rounding, scipy may regard a start at a bound as outside of the bounds.
        x0=np.clip(np.log(values_of(model, free)), low + 1e-9, high - 1e-9),
        popsize=4,
        maxiter=generations,
        rng=seed,
        polish=False,
        tol=0.0,
    )
    best = broad.population[np.argsort(broad.population_energies)[:RACED]]
    start = best[np.argmin([score(logs, POLISHED) for logs in best])]
    simplex = np.vstack([start, start + 0.15 * np.eye(len(free))])
    fine = optimize.minimize(
        score,
        start,
        args=(POLISHED,),
        method="Nelder-Mead",
        bounds=bounds,
        options={"maxfev": polish, "initial_simplex": np.clip(simplex, *bounds.T)},
    )
    return PapersFit(np.exp(fine.x), float(fine.fun), published[list(METRICS)].size, spent)
