"""Tests of the speed-ups of simulated deployments."""

import numpy as np
import pytest

from sipsched.analysis.capacity.deployments import speedups
from sipsched.records.speedups import Deployed


def deployed(
    cores: int, cps: float, drawn: tuple[float, ...] = (), deployment: str = "shared"
) -> Deployed:
    """Return the simulated capacity of a deployment, with an uncertainty."""
    return Deployed(deployment, "udp", cores, 2 * cores, cores, "m", cps, drawn)


def test_each_sample_is_divided_by_its_own_single_core() -> None:
    one, four = speedups(
        [deployed(1, 2000, (1000.0, 2000.0, 4000.0)), deployed(4, 6000, (3000.0, 6000.0, 12000.0))]
    )
    assert (one.speedup, one.speedup_low, one.speedup_high) == (1, 1, 1)
    # the capacities are uncertain, but the speed-up is exact, because each sample has a ratio of 3
    assert four.low < 3000
    assert four.high > 12_000
    assert (four.speedup, four.speedup_low, four.speedup_high) == pytest.approx((3, 3, 3))


def test_an_interval_holds_the_estimate() -> None:
    _, two = speedups([deployed(1, 1000, (1000.0, 1000.0)), deployed(2, 1900, (1800.0, 1801.0))])
    assert two.low < 1800 < two.high == two.capacity_cps == 1900


def test_without_samples_there_is_no_interval() -> None:
    _, two = speedups([deployed(1, 1000), deployed(2, 1500)])
    assert two.speedup == 1.5
    assert np.isnan([two.low, two.high, two.speedup_low, two.speedup_high]).all()


def test_each_deployment_is_divided_by_its_own_single_core() -> None:
    result = speedups(
        [
            *(deployed(1, 1000), deployed(2, 1500)),
            *(deployed(1, 500, (), "front"), deployed(2, 1000, (), "front")),
        ]
    )
    assert [row.speedup for row in result] == [1, 1.5, 1, 2]
