"""Tests of means of many simulated runs, compared with single simulations."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_means import GridPredictor
from sipsched.measure.simulated_point import WITHOUT, plan_point
from sipsched.measure.simulator import simulate
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.plan.simulated import CASE, MEANS
from sipsched.testbed.inventory import load_testbed

BED = load_testbed("simulated-papers")


@pytest.fixture(scope="module")
def predictor() -> GridPredictor:
    return GridPredictor(load_config(), BED, "opensips-udp", 300)


def cases(*rows):
    return pd.DataFrame(rows, columns=CASE)


def test_the_means_of_a_case_are_those_of_a_single_simulation(predictor, tmp_path):
    from sipsched.measure.acquisition import arrival_seed

    result = predictor.predict(cases(("baseline", 2, 4, 3600, 2, ""))).iloc[0]
    plan = plan_point(
        Point(BED.name, "opensips-udp", "baseline", 2, 4), predictor.config, replace(BED)
    )
    arrivals = Arrivals(3600, 300, arrival_seed(3600, 2))
    report = simulate(plan.at(predictor.config.load, arrivals), tmp_path)
    assert result["k_rcv_us"] == report.k_rcv_ns / report.served / 1000
    assert result["t_sip_us"] == report.t_sip_ns / report.served / 1000
    assert result["pdr"] == report.refused / report.arrived


def test_equal_cases_have_equal_numbers(predictor):
    asked = cases(*product(("baseline", "enhanced"), (2,), (4,), (3600,), (1, 2), ("",)))
    first, second = predictor.predict(asked), predictor.predict(asked)
    pd.testing.assert_frame_equal(first, second)
    assert first.groupby("rep")["k_rcv_us"].nunique().max() > 0
    assert first["k_rcv_us"].nunique() > 1


def test_modes_do_not_differ_if_each_worker_finds_an_idle_core(predictor):
    asked = cases(*product(("baseline", "enhanced"), (4,), (2,), (3200,), (1,), ("",)))
    result = predictor.predict(asked)[MEANS]
    assert result.iloc[0].equals(result.iloc[1])


@pytest.mark.parametrize("mechanism", ["switches", "receive", "stalls"])
def test_a_mechanism_that_is_off_takes_no_time(predictor, mechanism):
    """With one worker on one CPU at a low load, the time of a message is shorter without the mechanism."""
    rows = product(("baseline",), (1,), (1,), (200,), (1,), ("", mechanism))
    result = (
        predictor.predict(cases(*rows)).set_index("without")[["k_rcv_us", "t_sip_us"]].sum(axis=1)
    )
    assert result[mechanism] < result[""]


def test_every_mechanism_can_be_switched_off(predictor):
    everything = ",".join(WITHOUT)
    prediction = predictor.predict(cases(("baseline", 4, 8, 2000, 1, everything)))
    assert prediction["t_sip_us"].iloc[0] > 0


def test_changed_numbers_replace_those_of_the_file(predictor):
    case = cases(("baseline", 1, 2, 500, 1, ""))
    slower = replace(predictor, change={"service_ns": [0.0] + [200_000.0] * 6})
    assert slower.predict(case)["t_sip_us"].iloc[0] > 199
    assert predictor.predict(case)["t_sip_us"].iloc[0] < 150


def test_the_loads_of_a_cell_lie_on_both_sides_of_the_limit(predictor):
    cells = pd.DataFrame(
        [("baseline", 1, 2), ("enhanced", 2, 4)], columns=["mode", "cores", "threads"]
    )
    # without stalls, the drop rate increases with the load
    steady = replace(predictor, calls=3000, change={"stall_every_ns": 0})
    result = steady.near_limit(cells, 0.01, 200, 12_800, 2)
    for _, cell in result.groupby(["mode", "cores", "threads"]):
        means = cell.groupby("cps")["pdr"].mean()
        assert len(means) >= 3
        assert set(np.diff(means.index)) == {200}
        assert means.min() <= 0.01 < means.max()
        assert cell.groupby("cps").size().eq(2).all()
    capacity = result.groupby("cores")["cps"].median()
    assert capacity[2] > 1.2 * capacity[1]
