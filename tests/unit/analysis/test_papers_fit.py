"""Tests that the fit recovers parameters, and that the model's file holds the result of the fit."""

import re
from dataclasses import replace

import numpy as np
import pytest

from sipsched.analysis.papers import load_points, wide
from sipsched.analysis.papers_fit import (
    FREE,
    METRICS,
    VARIANTS,
    fit,
    fitted_half,
    log_ratios,
    loss,
    numbers,
    values_of,
)
from sipsched.measure.simulated_means import GridPredictor
from sipsched.plan.config import load_config
from sipsched.plan.documents import read_yaml
from sipsched.plan.simulated import CASE, MODELS, load_model
from sipsched.testbed.inventory import load_testbed

CALLS = 5000
MODEL = load_model("opensips-papers").numbers


@pytest.fixture(scope="module")
def half():
    return fitted_half(load_points())


@pytest.fixture(scope="module")
def predictor():
    return GridPredictor(load_config(), load_testbed("simulated-papers"), "opensips-udp", CALLS)


def predict(predictor, half, change, rep=1):
    return replace(predictor, change=change).predict(half.assign(rep=rep, without="")[CASE])


def test_the_fitted_half_is_table_i_of_each_paper(half):
    assert set(half["mode"]) == {"baseline"}
    assert set(half["table"]) == {"I"}
    assert len(half) == 20
    assert half[list(METRICS)].notna().all(axis=None)
    both = wide(load_points())
    assert 2 * len(half) == (both["cores"] <= 2).sum()


def test_an_exact_prediction_has_no_loss(half):
    assert loss(half, half) == 0
    twice = half.assign(t_sip_us=2 * half["t_sip_us"])
    assert loss(twice, half) == pytest.approx(np.log(2) ** 2 / 3)
    assert not log_ratios(half.assign(pdr=0.0), half).isna().any(axis=None)


def test_numbers_and_values_are_inverse_functions():
    values = np.array([np.sqrt(free.low * free.high) for free in FREE])
    found = numbers(values, MODEL)
    assert values_of({**MODEL, **found}) == pytest.approx(values, rel=1e-3)
    bursts = np.array([np.sqrt(free.low * free.high) for free in VARIANTS["bursts"]])
    stalls = [MODEL["stall_every_ns"], MODEL["stall_ns"], 88761]
    assert values_of(MODEL, VARIANTS["bursts"])[5:8].tolist() == stalls
    changed = numbers(bursts, MODEL, VARIANTS["bursts"])
    assert changed["stall_every_ns"] == 0
    assert found["burst_every_ns"] == 0
    assert values_of({**MODEL, **changed}, VARIANTS["bursts"]) == pytest.approx(bursts, rel=1e-3)
    shares = np.array(found["service_ns"]) / values[0]
    assert shares == pytest.approx(np.array(MODEL["service_ns"]) / values_of(MODEL)[0])


def test_a_fit_to_simulated_points_also_predicts_other_arrivals(half, predictor):
    """Fit points that the simulator made. Few points and a short search do not determine each parameter."""
    some = half.iloc[[1, 5, 11, 17]].reset_index(drop=True)
    short = replace(predictor, calls=800)
    truth = numbers([45e3, 8e3, 4e3, 0.05, 3e3, 2e8, 4e6, 90], MODEL)
    made = [some.assign(**predict(short, some, truth, rep)[list(METRICS)]) for rep in (1, 2)]
    other = numbers([90e3, 30e3, 20e3, 0.3, 9e3, 5e7, 9e6, 300], MODEL)
    starts = [loss(predict(short, some, other, rep), made[rep - 1]) for rep in (1, 2)]
    found = fit(made[0], MODEL, lambda change, _: predict(short, some, change), FREE, 6, 60)
    assert found.points == 12
    assert found.loss < starts[0] / 10
    change = numbers(found.values, MODEL)
    assert loss(predict(short, some, change), made[0]) == pytest.approx(found.loss)
    assert loss(predict(short, some, change, 2), made[1]) < starts[1] / 5


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_fit_continues_after_a_run_that_does_not_end(variant, half):
    free = VARIANTS[variant]
    found = fit(half, MODEL, lambda change, arrivals: None, free, generations=1, polish=2)
    assert found.loss == 1000


def test_the_file_names_exactly_the_fitted_numbers():
    body = read_yaml(MODELS / "opensips-papers.yaml")
    fitted = {name for name, each in body["numbers"].items() if "Fitted" in each["source"]}
    free = {free.name for free in FREE} - {"service_ns", "queue"}
    assert fitted == free | {"truesize"}
    assert "Fitted" in body["service"]["source"]
    everything = (each["source"] for each in body["numbers"].values())
    assert all(re.match("Fitted|Assumed|CONFIG_HZ", source) for source in everything)


def test_each_fitted_number_of_the_file_is_within_its_bounds(half, predictor):
    values = values_of(MODEL)
    assert all(free.low <= value <= free.high for free, value in zip(FREE, values, strict=True))
    for name, value in numbers(values, MODEL).items():
        assert MODEL[name] == pytest.approx(value, rel=1e-3), name


def test_with_other_service_times_the_loss_is_higher(half, predictor):
    """Change the service time, on which every published number depends. The loss of the fit must grow."""
    values = values_of(MODEL)

    def at(by):
        change = numbers([by * values[0], *values[1:]], MODEL)
        return loss(predict(predictor, half, change, 2), half)

    best = at(1.0)
    assert at(0.3) > best
    assert at(3.0) > best


def test_the_fit_is_nearer_to_the_fitted_half_than_its_mean(half, predictor):
    model = predict(predictor, half, {}, rep=2)
    off = (log_ratios(model, half) ** 2).mean()
    spread = np.log(half[["t_sip_us", "k_rcv_us"]]).var(ddof=0)
    assert off["t_sip_us"] < spread["t_sip_us"]
    assert off["k_rcv_us"] < spread["k_rcv_us"]


def test_a_fit_of_growing_refills_starts_with_the_model_and_the_smallest_growth():
    cold = VARIANTS["cold"]
    values = dict(zip((free.name for free in cold), values_of(MODEL, cold), strict=True))
    changed = numbers(list(values.values()), MODEL, cold)

    assert changed["refill_doubling_ns"] == values.pop("refill_doubling_ns") == 10
    assert list(values.values()) == values_of(MODEL).tolist()
    again = values_of({**MODEL, **changed, "refill_doubling_ns": 7000}, cold)
    assert dict(zip((free.name for free in cold), again, strict=True))["refill_doubling_ns"] == 7000
