"""What queueing theory allows: the mean time of a message in a proxy of one core, served in two ways.

Short slices come near processor sharing, SCHED_FIFO near first come first served. Of M/G/1 these are the
two known mean sojourn times, and which is lower hangs on whether the service varies more than an
exponential one does.

SEE Kleinrock, Queueing Systems, volume 1 (1975), section 5.6, and volume 2 (1976), section 4.4.
"""

from dataclasses import dataclass

import numpy as np

from sipsched.analysis.advice import Load
from sipsched.analysis.papers import MESSAGES_PER_CALL
from sipsched.analysis.statistics import Interval


@dataclass(frozen=True)
class Sojourn:
    """The two bounds at a load, with what they are made of.

    Attributes
    ----------
    service_us
        CPU time of a message under the reference.
    utilisation
        Messages a second times that.
    scv
        Squared coefficient of variation of the proxy's own work on a message; NaN where the probe does
        not see it.
    sharing_us, fcfs_us
        Mean sojourn under processor sharing and first come first served; infinite from a utilisation of 1
        on, NaN where something is not known.
    """

    service_us: float
    utilisation: float
    scv: float
    sharing_us: float
    fcfs_us: float


def sojourn(load: Load) -> Sojourn | None:
    """Compute the bounds at a load.

    Parameters
    ----------
    load
        Of one core.

    Returns
    -------
    Sojourn or None
        None on several cores, or where no window of the reference has a CPU time.
    """
    service: Interval = load.mean(load.place.reference, "cpu_per_message")
    if load.place.cores != 1 or np.isnan(service.estimate):
        return None
    scv = load.mean(load.place.reference, "service_scv").estimate
    # ASSUME calls in a window are as many as offered: all windows of a block play the same ones
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
    """Give the mean sojourn of M/G/1 under processor sharing; it hangs on the mean service alone."""
    return service_us / (1 - utilisation)


def fcfs(service_us: float, utilisation: float, scv: float) -> float:
    """Give the mean sojourn of M/G/1, first come first served (Pollaczek and Khinchine)."""
    return service_us * (1 + utilisation * (1 + scv) / (2 * (1 - utilisation)))
