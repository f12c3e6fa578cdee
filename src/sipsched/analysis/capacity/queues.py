"""Queues of messages: M/M/c/K exactly, M/G/c/K and M/G/c by approximations, and the capacity they have."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from sipsched.analysis.statistics import PDR_LIMIT
from sipsched.errors import StableError

MESSAGES_PER_CALL = 6
"""INVITE, 180, 200, ACK, BYE, 200: the messages of a call that reach the SPS."""


@dataclass(frozen=True)
class Queue:
    """A queue of messages in its steady state.

    Attributes
    ----------
    blocking
        Share of the messages that find every place taken.
    waiting_us
        Mean wait before service of those that got a place, in µs.
    waiting
        Mean number of messages that wait.
    utilisation
        Share of the time in which a server is busy.
    """

    blocking: float
    waiting_us: float
    waiting: float
    utilisation: float


def queue(
    arrivals_per_s: float, service_us: float, servers: int, places: int, scv: float = 1.0
) -> Queue:
    """Solve M/M/c/K exactly, and M/G/c/K by Kimura's approximation.

    With `scv` 1 the result is M/M/c/K's own, and without waiting places Erlang's loss formula, which
    holds for any service time. Computed in logarithms: any `places` that fits into memory.

    Source: Kimura, A transform-free approximation for the finite capacity M/G/s queue, Operations Research
    44(6), 1996. Its ratio of mean waits, M/G/s to M/M/s, is (1 + scv) / 2 as in Allen and Cunneen's
    formula (Allen, Probability, Statistics, and Queueing Theory, 1990).

    Parameters
    ----------
    arrivals_per_s
        λ, messages per second; Poisson.
    service_us
        Mean service time of a message in µs.
    servers
        c.
    places
        K, messages in the system at most, those in service included.
    scv
        Squared coefficient of variation of the service time.

    Raises
    ------
    StableError
        A parameter out of range, or a load so far above capacity that the approximation ends
        (utilisation ≥ 2 / (1 - scv), for scv below 1).
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
    # Levels c to K - 1 fall geometrically; flow balance then fixes the last one.
    levels = logs[-1] - np.log(damping) + np.arange(room) * step
    every = np.concatenate((logs[:-1], levels, [logs[-1] + room * step]))
    shares = np.exp(every - special.logsumexp(every))
    blocking = float(shares[-1])
    waiting = float(shares[servers:] @ np.arange(room + 1))
    admitted = arrivals_per_s * (1 - blocking)
    return Queue(blocking, 1e6 * waiting / admitted, waiting, rho * (1 - blocking))


def endless_wait_us(
    arrivals_per_s: float, service_us: float, servers: int, scv: float = 1.0
) -> float:
    """Give the mean wait in M/G/c with endless room, in µs; inf from full load on.

    Erlang's C times (1 + scv) / 2. Source: Allen, Probability, Statistics, and Queueing Theory, 1990
    (Allen-Cunneen approximation, Poisson arrivals).

    Parameters
    ----------
    arrivals_per_s, service_us, servers, scv
        As for `queue`.
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
    """Give K: the messages that fit into the receive buffer, and one in each server.

    Parameters
    ----------
    receive_buffer_bytes
        Effective SO_RCVBUF, as the kernel reads it back.
    message_bytes
        What the kernel charges a message with (skb->truesize; `rmem` in a trace shows it), not its
        length.
    servers
        c.
    """
    return int(receive_buffer_bytes // message_bytes) + servers


def queue_capacity_cps(
    service_us: float,
    servers: int,
    places: int,
    scv: float = 1.0,
    limit: float = PDR_LIMIT,
    messages_per_call: int = MESSAGES_PER_CALL,
) -> float:
    """Give the calls per second at which a queue turns away the limit's share of its messages.

    Parameters
    ----------
    service_us, servers, places, scv
        As for `queue`; by M/M/c/K with scv 1, by M/G/c/K else.
    limit
        Packet drop rate, as a share.
    messages_per_call
        Arrivals that a call makes.
    """
    # ASSUME messages arrive as a Poisson process; those of one call follow each other.
    # Servers never do more than they can: at this rate at least the limit's share is turned away.
    most = servers / (service_us * 1e-6 * (1 - limit))
    rate = optimize.brentq(
        lambda rate: queue(rate, service_us, servers, places, scv).blocking - limit,
        most * 1e-9,
        most * (1 + 1e-9),
        rtol=1e-10,
    )
    return float(rate) / messages_per_call
