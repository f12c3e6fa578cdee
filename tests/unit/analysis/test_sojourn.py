"""Tests of the theoretical mean time of a message under two scheduling disciplines, against known values."""

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis import advice
from sipsched.analysis.sojourn import fcfs, sharing, sojourn


def test_exponential_service_has_the_same_mean_under_both_disciplines() -> None:
    """The mean sojourn of M/M/1 is E[S] / (1 - rho) under both disciplines."""
    assert sharing(50, 0.8) == pytest.approx(250)
    assert fcfs(50, 0.8, 1) == pytest.approx(250)
    assert fcfs(50, 0.8, 0) == pytest.approx(150)
    assert fcfs(50, 0.8, 3) > sharing(50, 0.8)


def test_first_come_first_served_agrees_with_a_simulated_queue() -> None:
    rng = np.random.default_rng(1)
    n, mean, sigma = 400_000, 50.0, 0.8
    service = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, n)
    gaps = rng.exponential(mean / 0.6, n)
    # compute Lindley's recursion by running minima
    walk = np.concatenate(([0], np.cumsum(service[:-1] - gaps[1:])))
    waits = walk - np.minimum.accumulate(walk)
    assert fcfs(mean, 0.6, np.expm1(sigma**2)) == pytest.approx(
        float((waits + service).mean()), rel=0.03
    )


def test_bounds_are_of_one_core_and_of_the_reference() -> None:
    effects = {"default": {}, "fifo": {"cpu_per_message": 1.0}}

    def at(cores: int = 1, cps: int = 1000):
        run = synthetic.windows(Run(mode="default,fifo", cores=cores, cps=cps), effects)
        (load,) = advice.loads_of([run])
        return sojourn(load)

    result = at()
    assert result.service_us == pytest.approx(70, rel=0.05)
    assert result.utilisation == pytest.approx(0.42, rel=0.05)
    assert result.fcfs_us < result.sharing_us
    assert at(cores=2) is None
    assert np.isinf(at(cps=3000).sharing_us)
