"""Test the accuracy of the capacity models, and how many of their 95 % intervals contain the true value.

The benchmark prints the numbers of docs/methodology/models.md. The benchmark compares Kimura's approximation of the
queue M/G/c/K with a simulated queue, and prints the error of the blocking probability. The interval of the error comes
from 20 parts of the simulation. The benchmark also samples capacities from a scaling law with known parameters, and
fits the law to these capacities. The benchmark prints how often the intervals of the fit contain the true parameters,
and how often the intervals of predictions contain a new capacity. The benchmark measures no real machine, prints the
same numbers each time, and takes about a minute of CPU time. Another benchmark, interval_coverage.py, tests intervals
of runs and of crossings.
"""

import numba
import numpy as np
import numpy.typing as npt

from sipsched.analysis import intervals
from sipsched.analysis.capacity import queues, scaling

SEED = 1

MESSAGES = 10_000_000
PARTS = 20
WAITING_PLACES = 20
SERVERS = (1, 2, 4, 8)
SCVS = (0.0, 0.25, 4.0)
RHOS = (0.9, 1.0)

LAW = (1000.0, 0.08, 0.004)
CORES = ((1, 2, 4, 6, 8), (1, 2, 3, 4, 5, 6, 7, 8))
PREDICTED_CORES = (5, 12)
ALIKE_CPS = 50.0
SHARE = 0.02
LAW_DRAWS = 300
LAW_RESAMPLES = 39
"""Number of bootstrap resamples. With 39 resamples, the smallest and the largest value bound the middle 95 %.

The default of 499 in `fit_scaling` takes 13 times as long.
"""

Values = npt.NDArray[np.float64]


def lognormal(rng: np.random.Generator, cv: float, shape: int | tuple[int, ...]) -> Values:
    """Sample lognormal values with mean 1 and the given coefficient of variation."""
    sigma = np.sqrt(np.log(1 + cv**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, shape)


@numba.njit
def refused(
    arrivals: Values, services: Values, servers: int, waiting_places: int
) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages that a first-come, first-served queue refuses because no waiting place is free."""
    free = np.zeros(servers)
    starts = np.zeros(waiting_places)
    full = np.zeros(len(arrivals), np.bool_)
    admitted = 0
    for message, arrival in enumerate(arrivals):
        # Services start in the order of arrival. So if the message that was admitted `waiting_places` messages earlier
        # still waits, all waiting places are occupied.
        slot = admitted % waiting_places
        full[message] = starts[slot] > arrival
        if not full[message]:
            server = free.argmin()
            starts[slot] = max(arrival, free[server])
            free[server] = starts[slot] + services[message]
            admitted += 1
    return full


def queue_error(rng: np.random.Generator, scv: float, rho: float, servers: int) -> str:
    """Return text with the error in percent of Kimura's blocking probability, compared with a simulated queue."""
    rate = rho * servers
    arrivals = rng.exponential(1 / rate, MESSAGES).cumsum()
    full = refused(arrivals, lognormal(rng, np.sqrt(scv), MESSAGES), servers, WAITING_PLACES)
    model = queues.queue(rate, 1e6, servers, servers + WAITING_PLACES, scv).blocking
    simulated = intervals.mean_interval(full.reshape(PARTS, -1).mean(axis=1))
    error = simulated.map(lambda blocking: 100 * (model / blocking - 1))
    return f"c = {servers} {error.estimate:+.1f} ({error.low:+.1f} to {error.high:+.1f})"


def show_queue() -> None:
    print(
        f"M/G/c/K: error of Kimura's blocking in %, against {MESSAGES:,} simulated messages each; "
        f"lognormal service times, {WAITING_PLACES} waiting places"
    )
    rng = np.random.default_rng(SEED)
    for scv in SCVS:
        for rho in RHOS:
            errors = ", ".join(queue_error(rng, scv, rho, servers) for servers in SERVERS)
            print(f"  scv {scv:g}, rho {rho}: {errors}", flush=True)


def show_scaling(cores: tuple[int, ...], alike: bool) -> None:
    rng = np.random.default_rng(SEED)
    cps, later = (scaling.scaling_law(np.array(at), *LAW) for at in (cores, PREDICTED_CORES))
    errors, later_errors = (
        ALIKE_CPS if alike else SHARE * capacities for capacities in (cps, later)
    )
    held = []
    for draw in range(LAW_DRAWS):
        drawn = rng.normal(cps, errors)
        fitted = scaling.fit_scaling(cores, drawn, resamples=LAW_RESAMPLES, seed=draw)
        predicted = (fitted.predict(number, seed=draw) for number in PREDICTED_CORES)
        intervals = (fitted.single_cps, fitted.contention, fitted.coherency, *predicted)
        truths = (*LAW, *rng.normal(later, later_errors))
        held.append([i.low <= true <= i.high for i, true in zip(intervals, truths, strict=True)])
    names = ("λ", "σ", "κ", *(f"prediction at {number} cores" for number in PREDICTED_CORES))
    shares = (f"{n} {100 * s:.1f}" for n, s in zip(names, np.mean(held, axis=0), strict=True))
    size = f"{ALIKE_CPS:g} cps" if alike else f"{100 * SHARE:g} % of each capacity"
    print(f"  {len(cores)} points, errors of {size}: {', '.join(shares)}", flush=True)


def main() -> None:
    show_queue()
    print(
        f"Universal Scalability Law: intervals that contain the true value, in % of {LAW_DRAWS} samples, "
        f"{LAW_RESAMPLES} resamples each"
    )
    for alike in (True, False):
        for cores in CORES:
            show_scaling(cores, alike)


if __name__ == "__main__":
    main()
