"""The theoretical mean time of a message in a proxy on one core, for two scheduling disciplines of queueing theory.

Short slices approximate processor sharing, and SCHED_FIFO approximates first come first served. For both disciplines,
the mean sojourn times of the queue M/G/1 are known. First come first served is faster if and only if the service time
varies less than an exponential service time.

SEE Kleinrock, Queueing Systems, volume 1 (1975), section 5.6, and volume 2 (1976), section 4.4.
"""

from dataclasses import dataclass

import numpy as np

from sipsched.analysis.advice import ComparedLoad
from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers import MESSAGES_PER_CALL


@dataclass(frozen=True)
class Sojourn:
    """The theoretical mean time of a message for two scheduling disciplines, and the parameters of the queue.

    Attributes
    ----------
    service_us
        Mean CPU time of a message in the reference mode, in µs.
    utilisation
        Messages per second times the CPU time per message in seconds.
    scv
        Squared coefficient of variation of the proxy's own work per message; NaN if the probe cannot measure this work.
    sharing_us, fcfs_us
        Mean sojourn time in µs with processor sharing, and with first come first served. Infinite for a utilisation of
        1 or more; NaN if a parameter is unknown.
    """

    service_us: float
    utilisation: float
    scv: float
    sharing_us: float
    fcfs_us: float


def sojourn(load: ComparedLoad) -> Sojourn | None:
    """Return a message's theoretical mean time in the proxy; None for several cores or an unknown CPU time."""
    service: Interval = load.mean(load.place.reference, "cpu_per_message")
    if load.place.cores != 1 or np.isnan(service.estimate):
        return None
    scv = load.mean(load.place.reference, "service_scv").estimate
    # ASSUME the calls in a window have the offered rate
    # An actual rate that differs is equal in all modes, because all windows of a block replay the same calls.
    rate_per_us = MESSAGES_PER_CALL * load.cps / 1e6
    busy = rate_per_us * service.estimate
    if busy >= 1:
        return Sojourn(service.estimate, busy, scv, np.inf, np.inf)
    return Sojourn(
        service_us=service.estimate,
        utilisation=busy,
        scv=scv,
        sharing_us=sharing(service.estimate, busy),
        fcfs_us=fcfs(service.estimate, busy, scv),
    )


def sharing(service_us: float, utilisation: float) -> float:
    """Return the mean sojourn time of M/G/1 with processor sharing, which depends only on the mean service time."""
    return service_us / (1 - utilisation)


def fcfs(service_us: float, utilisation: float, scv: float) -> float:
    """Return the mean sojourn time of M/G/1 with first come first served (Pollaczek and Khinchine)."""
    return service_us * (1 + utilisation * (1 + scv) / (2 * (1 - utilisation)))
