"""Hold the models and their 95 % intervals against a known truth: the figures of docs/methodology.md.

Shows: by how much Kimura's approximation of M/G/c/K is off the blocking of a simulated queue, with an
interval from 20 parts of the simulation; how often the intervals of the scaling law hold the law that
the capacities were drawn from, and its predictions a capacity drawn anew. Nothing is measured: the numbers
are the same each time. It takes about a minute of CPU. Intervals of runs and crossings: interval_coverage.py.
"""

import numba
import numpy as np
import numpy.typing as npt

from sipsched.analysis import statistics
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
"""Their least and largest part off the middle 95 %; the library's 499 take 13 times as long."""

Values = npt.NDArray[np.float64]


def lognormal(rng: np.random.Generator, cv: float, shape: int | tuple[int, ...]) -> Values:
    """Draw positive values of mean 1 with this coefficient of variation."""
    sigma = np.sqrt(np.log(1 + cv**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, shape)


@numba.njit
def refused(
    arrivals: Values, services: Values, servers: int, waiting_places: int
) -> npt.NDArray[np.bool_]:
    """Say of each message whether it finds every place to wait taken; first come, first served."""
    free = np.zeros(servers)
    starts = np.zeros(waiting_places)
    full = np.zeros(len(arrivals), np.bool_)
    admitted = 0
    for message, arrival in enumerate(arrivals):
        # Messages start in order: all places are taken while the one that many before has not.
        place = admitted % waiting_places
        full[message] = starts[place] > arrival
        if not full[message]:
            server = free.argmin()
            starts[place] = max(arrival, free[server])
            free[server] = starts[place] + services[message]
            admitted += 1
    return full


def queue_error(rng: np.random.Generator, scv: float, rho: float, servers: int) -> str:
    """Say by how many % Kimura's blocking is above a simulated one."""
    rate = rho * servers
    arrivals = rng.exponential(1 / rate, MESSAGES).cumsum()
    full = refused(arrivals, lognormal(rng, np.sqrt(scv), MESSAGES), servers, WAITING_PLACES)
    model = queues.queue(rate, 1e6, servers, servers + WAITING_PLACES, scv).blocking
    simulated = statistics.mean_interval(full.reshape(PARTS, -1).mean(axis=1))
    error = simulated.map(lambda blocking: 100 * (model / blocking - 1))
    return f"c = {servers} {error.estimate:+.1f} ({error.low:+.1f} to {error.high:+.1f})"


def show_queue() -> None:
    print(
        f"M/G/c/K: Kimura's blocking is too high by, in %, against {MESSAGES:,} simulated messages each; "
        f"lognormal service times, {WAITING_PLACES} places to wait"
    )
    rng = np.random.default_rng(SEED)
    for scv in SCVS:
        for rho in RHOS:
            errors = ", ".join(queue_error(rng, scv, rho, servers) for servers in SERVERS)
            print(f"  scv {scv:g}, rho {rho}: {errors}", flush=True)


def show_scaling(cores: tuple[int, ...], alike: bool) -> None:
    rng = np.random.default_rng(SEED)
    cps, later = (scaling.scaling_law(np.array(at), *LAW) for at in (cores, PREDICTED_CORES))
    errors, later_errors = (ALIKE_CPS if alike else SHARE * each for each in (cps, later))
    held = []
    for draw in range(LAW_DRAWS):
        drawn = rng.normal(cps, errors)
        found = scaling.fit_scaling(cores, drawn, resamples=LAW_RESAMPLES, seed=draw)
        predicted = (found.predict(each, seed=draw) for each in PREDICTED_CORES)
        intervals = (found.single_cps, found.contention, found.coherency, *predicted)
        truths = (*LAW, *rng.normal(later, later_errors))
        held.append([i.low <= true <= i.high for i, true in zip(intervals, truths, strict=True)])
    names = ("λ", "σ", "κ", *(f"prediction at {each} cores" for each in PREDICTED_CORES))
    shares = (f"{n} {100 * s:.1f}" for n, s in zip(names, np.mean(held, axis=0), strict=True))
    size = f"{ALIKE_CPS:g} cps" if alike else f"{100 * SHARE:g} % of each capacity"
    print(f"  {len(cores)} points, errors of {size}: {', '.join(shares)}", flush=True)


def main() -> None:
    show_queue()
    print(
        f"Universal Scalability Law: the intervals cover, in % of {LAW_DRAWS} draws, "
        f"{LAW_RESAMPLES} resamples each"
    )
    for alike in (True, False):
        for cores in CORES:
            show_scaling(cores, alike)


if __name__ == "__main__":
    main()
