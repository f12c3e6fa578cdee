"""The simulated speed-up of each deployment with more cores, with prediction intervals."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sipsched.analysis.predicted import replicates
from sipsched.records.speedups import Deployed, Speedup


def speedups(deployed: Iterable[Deployed]) -> tuple[Speedup, ...]:
    """Return the speed-up of each deployment: the simulated capacity divided by the capacity with one core.

    Dividend and divisor are from the same transport and simulation model. If each core receives packets, the proxy with
    one core has one receiving CPU.
    """
    rows = list(deployed)
    ones = {_kind(row): row for row in rows if row.cores == 1}
    return tuple(_of(row, ones[_kind(row)]) for row in rows)


def _kind(row: Deployed) -> tuple[str, str, str]:
    return row.transport, row.deployment, row.model


def _of(row: Deployed, one: Deployed) -> Speedup:
    drawn, drawn_one = np.array(row.drawn), np.array(one.drawn)
    low, high = _ends(row.cps, drawn)
    speedup = row.cps / one.cps
    least, most = _ends(speedup, drawn / drawn_one)
    return Speedup(
        deployment=row.deployment,
        transport=row.transport,
        cores=row.cores,
        threads=row.threads,
        capacity_cps=row.cps,
        low=low,
        high=high,
        speedup=speedup,
        speedup_low=least,
        speedup_high=most,
        receive_cpus=row.receive_cpus,
        model=row.model,
    )


def _ends(estimate: float, drawn: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of the samples' 95 % interval, widened to contain the estimate; NaN for a single sample."""
    if drawn.size < 2:
        return np.nan, np.nan
    spread = replicates(np.log(drawn))
    return min(estimate, float(np.exp(spread.low))), max(estimate, float(np.exp(spread.high)))
