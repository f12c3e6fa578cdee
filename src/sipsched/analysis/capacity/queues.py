"""Queueing models of a proxy: the exact model M/M/c/K, and the approximate models M/G/c/K and M/G/c."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.papers import MESSAGES_PER_CALL
from sipsched.errors import StableError


@dataclass(frozen=True)
class Queue:
    """The steady state of a queue of messages.

    Attributes
    ----------
    blocking
        Share of the messages that arrive when all places are occupied, so that they are refused.
    waiting_us
        Mean waiting time of the accepted messages before service, in µs.
    """

    blocking: float
    waiting_us: float


def queue(
    arrivals_per_s: float, service_us: float, servers: int, places: int, scv: float = 1.0
) -> Queue:
    """Return the steady state of a queue: exactly for M/M/c/K, and by Kimura's approximation for M/G/c/K.

    For an `scv` of 1, the result is exact for M/M/c/K. Without waiting places, the result is Erlang's loss formula,
    which is exact for any service time. The computation uses logarithms, so only memory limits `places`.

    Source: Kimura, A transform-free approximation for the finite capacity M/G/s queue, Operations Research
    44(6), 1996. In Kimura's paper, the ratio of mean waiting times, M/G/s to M/M/s, is (1 + scv) / 2 as in Allen and
    Cunneen's formula (Allen, Probability, Statistics, and Queueing Theory, 1990).

    Parameters
    ----------
    arrivals_per_s
        λ, messages per second of a Poisson process.
    service_us
        Mean service time of a message in µs.
    servers
        c, the number of servers.
    places
        K, the largest number of messages in the system, including messages in service.
    scv
        Squared coefficient of variation of the service time.

    Raises
    ------
    StableError
        A parameter is out of range, or the load exceeds the range of the approximation (utilisation ≥ 2 / (1 - scv),
        for scv below 1).
    """
    if not (arrivals_per_s > 0 and service_us > 0 and 1 <= servers <= places and scv >= 0):
        raise StableError(
            "queue: expected a positive rate and service time, scv of at least 0 and 1 ≤ servers ≤ "
            f"places; found {arrivals_per_s}, {service_us}, {scv}, {servers}, {places}"
        )
    load = arrivals_per_s * service_us * 1e-6
    rho = load / servers
    ratio = (1 + scv) / 2
    damping = 1 - rho * (1 - ratio)
    if damping <= 0:
        raise StableError(
            f"queue: utilisation {rho:.3g} is beyond the approximation for scv {scv:.3g}; "
            f"expected below {1 / (1 - ratio):.3g}"
        )
    busy = np.arange(servers + 1)
    logs = busy * np.log(load) - special.gammaln(busy + 1)
    room = places - servers
    step = np.log(rho * ratio / damping)
    # The probabilities of c to K - 1 messages (c = servers, K = places) form a geometric sequence. The balance between
    # arrivals and departures determines the probability of K messages.
    levels = logs[-1] - np.log(damping) + np.arange(room) * step
    every = np.concatenate((logs[:-1], levels, [logs[-1] + room * step]))
    shares = np.exp(every - special.logsumexp(every))
    blocking = float(shares[-1])
    waiting = float(shares[servers:] @ np.arange(room + 1))
    admitted = arrivals_per_s * (1 - blocking)
    return Queue(blocking, 1e6 * waiting / admitted)


def endless_wait_us(
    arrivals_per_s: float, service_us: float, servers: int, scv: float = 1.0
) -> float:
    """Return the mean waiting time in µs in M/G/c with unlimited places; infinity if the utilisation is 1 or more.

    The result is Erlang's C times (1 + scv) / 2. Source: Allen, Probability, Statistics, and Queueing Theory, 1990
    (Allen-Cunneen approximation, Poisson arrivals).

    Parameters
    ----------
    arrivals_per_s, service_us, servers, scv
        See `queue`.
    """
    load = arrivals_per_s * service_us * 1e-6
    if load >= servers:
        return np.inf
    busy = np.arange(servers)
    below = special.logsumexp(busy * np.log(load) - special.gammaln(busy + 1))
    all_busy = servers * np.log(load) - special.gammaln(servers + 1) - np.log1p(-load / servers)
    waits = special.expit(all_busy - below)
    return float((1 + scv) / 2 * waits * service_us / (servers - load))


def system_places(receive_buffer_bytes: float, message_bytes: float, servers: int) -> int:
    """Return K: the number of messages that fit into the receive buffer, plus the number of servers.

    Parameters
    ----------
    receive_buffer_bytes
        Effective SO_RCVBUF, as the kernel reads it back.
    message_bytes
        Bytes that the kernel charges per message: skb->truesize, which a trace records as `rmem`. The length of the
        message is smaller.
    servers
        c, the number of servers.
    """
    return int(receive_buffer_bytes // message_bytes) + servers


def queue_capacity_cps(
    service_us: float,
    servers: int,
    places: int,
    scv: float = 1.0,
    limit: float = PDR_LIMIT,
) -> float:
    """Return the load in calls per second at which a queue refuses a given share of the messages (`limit`).

    Parameters
    ----------
    service_us, servers, places, scv
        See `queue`. For an scv of 1 the model is M/M/c/K, otherwise M/G/c/K.
    """
    # ASSUME messages arrive as a Poisson process, although the messages of one call depend on each other.
    # At the rate `most`, the servers are saturated, so the share of refused messages is at least the limit.
    most = servers / (service_us * 1e-6 * (1 - limit))
    rate = optimize.brentq(
        lambda rate: queue(rate, service_us, servers, places, scv).blocking - limit,
        most * 1e-9,
        most * (1 + 1e-9),
        rtol=1e-10,
    )
    return float(rate) / MESSAGES_PER_CALL
