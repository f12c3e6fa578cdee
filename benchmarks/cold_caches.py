"""Compare formulas for the cost of cold caches, with the traces to which the simulator is fitted.

Other workers may displace the data of a worker from the caches. For each trace, the first lines print how much longer a
service takes if 1 to 7 other workers received messages since the worker's previous message, with standard errors. The
last lines print the chi-squared distance between these times and each formula, summed over the traces of a machine. The
estimation is the same as in `sipsched.analysis.model_fit`, but with a separate cost for each number of other workers.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter
from scipy.optimize import minimize_scalar

from sipsched.analysis.model_fit import NEIGHBOURS, TAIL, TURNS, ReceivedMessages, read_messages
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.simulated import KINDS
from sipsched.records.record import TRACE_FILE
from sipsched.records.trace import Event, read_trace

TRACES = sorted(
    (PROJECT_ROOT / "recorded").glob(f"*/local/kamailio-udp/default/*/*/*/*/{TRACE_FILE}")
)
OTHERS = np.arange(1, 8)
"""Possible numbers of other workers: 1 to 7, because all traces have 8 workers."""
ASIDS = 6
"""On AMD processors, Linux keeps the address translations of up to this number of processes per CPU."""
FORMULAS = {
    "one cost": np.ones((7, 1)),
    "cost per doubling of 1 + N": np.log2(1 + OTHERS)[:, None],
    "cost per worker": OTHERS[:, None],
    "one cost, and a cost per doubling": np.column_stack((np.ones(7), np.log2(1 + OTHERS))),
    f"one cost, and another from {ASIDS} workers on": np.column_stack(
        (np.ones(7), OTHERS >= ASIDS)
    ),
}

Floats = npt.NDArray[np.float64]


def others(path: Path) -> npt.NDArray[np.int64]:
    """Return per message the number of other workers that received messages since its worker's last one; -1: none."""
    records = read_trace(path).records
    records = records[(records["event"] == Event.MESSAGE) & (records["t_dep"] > 0)]
    recent: list[int] = []
    counts = []
    for worker in records["tid"][np.argsort(records["t_sip_in"], kind="stable")].tolist():
        counts.append(recent.index(worker) if worker in recent else -1)
        recent = [worker, *(other for other in recent if other != worker)]
    return np.array(counts)


def costs(messages: ReceivedMessages, count: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the additional service time in µs for each number of other workers, and the covariance of these times."""
    types = messages.kind[:, None] == np.arange(1, len(KINDS) + 1)
    used = messages.whole & types.any(axis=1) & (count >= 0)
    for of_type in types.T:
        longest = np.quantile(messages.served[of_type & messages.whole], 1 - TAIL)
        used &= ~of_type | (messages.served <= longest)
    known = np.column_stack((types, count[:, None] == OTHERS))
    causes = np.column_stack((known, messages.woke, messages.met))[used].astype("f8")
    early = np.column_stack((known, messages.woke_early, messages.met_early))[used].astype("f8")
    times = messages.served[used] / 1000
    slowness = np.ones(len(times))
    for _ in range(TURNS):
        served = np.linalg.solve(early.T @ causes, early.T @ (times / slowness))
        slowness = median_filter(times / (causes @ served), NEIGHBOURS, mode="nearest")
        slowness /= slowness.mean()
    left = times / slowness - causes @ served
    inverse = np.linalg.inv(early.T @ causes)
    covariance = inverse @ (early.T @ (early * left[:, None] ** 2)) @ inverse.T
    place = slice(len(KINDS), len(KINDS) + len(OTHERS))
    return served[place], covariance[place, place]


def distance(found: Floats, covariance: Floats, formula: Floats) -> float:
    """Return the chi-squared distance between found costs and a formula with fitted numbers."""
    weights = np.linalg.inv(covariance)
    numbers = np.linalg.solve(formula.T @ weights @ formula, formula.T @ weights @ found)
    left = found - formula @ numbers
    return float(left @ weights @ left)


def saturating(found: Floats, covariance: Floats) -> float:
    """Return the chi-squared distance between found costs and a cost that approaches a limit exponentially."""
    return float(
        minimize_scalar(
            lambda scale: distance(found, covariance, 1 - np.exp(-OTHERS[:, None] / scale)),
            bounds=(0.2, 60),
            method="bounded",
        ).fun
    )


if __name__ == "__main__":
    distances: defaultdict[tuple[str, str], float] = defaultdict(float)
    for path in TRACES:
        folder = path.parent.relative_to(PROJECT_ROOT / "recorded")
        found, covariance = costs(read_messages(path.parent), others(path))
        errors = np.sqrt(np.diag(covariance))
        text = ", ".join(
            f"{cost:.1f} ± {error:.1f}" for cost, error in zip(found, errors, strict=True)
        )
        print(f"{folder}: {text} µs")
        machine = folder.parts[0]
        for name, formula in FORMULAS.items():
            distances[machine, name] += distance(found, covariance, formula)
        distances[machine, "cost that approaches a limit"] += saturating(found, covariance)
    for (machine, name), value in distances.items():
        print(f"recorded/{machine}, {name}: chi-squared {value:.1f}")
