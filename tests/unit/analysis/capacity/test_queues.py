"""Tests of queues against theory, and against Markov chains solved by linear algebra."""

import numpy as np
import pytest
from scipy import linalg

from sipsched.analysis.capacity import queues
from sipsched.errors import StableError


def markov_chain(arrivals, service, servers, places):
    """Solve the birth-death chain of M/M/c/K by linear algebra."""
    generator = np.zeros((places + 1, places + 1))
    for level in range(places):
        generator[level, level + 1] = arrivals
        generator[level + 1, level] = min(level + 1, servers) / service
    np.fill_diagonal(generator, -generator.sum(axis=1))
    shares = linalg.null_space(generator.T)[:, 0]
    return shares / shares.sum()


@pytest.mark.parametrize(("servers", "places"), [(1, 1), (1, 7), (2, 2), (3, 12), (8, 60)])
@pytest.mark.parametrize("rho", [0.2, 0.9, 1.0, 1.5])
def test_queue_is_the_markov_chain(servers, places, rho):
    service_us = 75.0
    arrivals = rho * servers / (service_us * 1e-6)
    shares = markov_chain(arrivals, service_us * 1e-6, servers, places)
    levels = np.arange(places + 1)
    queue = queues.queue(arrivals, service_us, servers, places)
    waiting = shares @ np.maximum(levels - servers, 0)
    assert queue.blocking == pytest.approx(shares[-1])
    mean = queue.waiting_us * 1e-6 * arrivals * (1 - shares[-1])
    assert mean == pytest.approx(waiting, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rho", [0.5, 0.97, 1.02])
def test_queue_of_one_server_is_the_closed_form(rho):
    places = 229
    queue = queues.queue(rho / 75e-6, 75, 1, places)
    assert queue.blocking == pytest.approx((1 - rho) * rho**places / (1 - rho ** (places + 1)))


def test_queue_is_stable_with_much_room():
    under = queues.queue(24_000, 75, 2, 1_000_000)
    assert under.blocking == 0
    assert under.waiting_us == pytest.approx(queues.endless_wait_us(24_000, 75, 2))
    over = queues.queue(40_000, 75, 2, 1_000_000)
    assert over.blocking == pytest.approx(1 - 1 / 1.5)
    many = queues.queue(20e6, 75, 2000, 3000)
    assert 0 < many.blocking < 1e-6


@pytest.mark.parametrize("scv", [0, 0.3, 1, 4])
def test_queue_with_much_room_waits_as_allen_and_cunneen_say(scv):
    wait = queues.endless_wait_us(24_000, 75, 2, scv)
    assert queues.queue(24_000, 75, 2, 20_000, scv).waiting_us == pytest.approx(wait)
    # compare with the formula of Pollaczek and Khinchine, which is exact for one server
    one = queues.endless_wait_us(12_000, 75, 1, scv)
    assert one == pytest.approx((1 + scv) / 2 * 0.9 / 0.1 * 75)
    assert queues.endless_wait_us(30_000, 75, 2) == np.inf


@pytest.mark.parametrize("scv", [0, 0.3, 4])
def test_queue_without_waiting_places_is_erlangs_for_any_service(scv):
    # compute Erlang's loss formula by a recursion over the number of servers
    loss = 1.0
    for servers in range(1, 6):
        loss = 3 * loss / (servers + 3 * loss)
    assert queues.queue(3e6 / 75, 75, 5, 5, scv).blocking == pytest.approx(loss)


def test_a_queue_outside_the_range_of_its_formula_is_an_error():
    with pytest.raises(StableError, match="1 ≤ servers ≤ places"):
        queues.queue(1000, 75, 4, 3)
    with pytest.raises(StableError, match=r"utilisation 2\.25 is beyond"):
        queues.queue(30_000, 75, 1, 10, 0)


def test_the_queue_capacity_refuses_one_percent():
    for scv in (0.0, 1.0, 2.5):
        cps = queues.queue_capacity_cps(75, 2, 229, scv)
        assert queues.queue(6 * cps, 75, 2, 229, scv).blocking == pytest.approx(0.01)
    # Erlang's loss formula for one server is ρ / (1 + ρ)
    assert queues.queue_capacity_cps(75, 1, 1) == pytest.approx(1 / 99 / 75e-6 / 6)
    # with unlimited places, the load may exceed the servers' rate by 1 %, because 1 % of messages may be lost
    endless = queues.queue_capacity_cps(75, 2, 1_000_000)
    assert endless == pytest.approx(2 / 75e-6 / 0.99 / 6, rel=1e-4)


def test_places_follow_the_kernels_accounting_of_the_buffer():
    # a buffer of 524288 bytes held 227 INVITEs, because the kernel charged 2304 bytes per INVITE
    assert queues.system_places(524_288, 2304, 2) == 227 + 2
