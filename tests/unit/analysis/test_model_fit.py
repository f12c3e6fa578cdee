"""Tests that the numbers of the committed models follow from their records."""

from dataclasses import replace
from pathlib import Path

import pytest

from sipsched.analysis.model_fit import Fit, fit, fit_campaign, read_messages
from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.plan.documents import read_yaml
from sipsched.plan.run import Point
from sipsched.plan.simulated import KINDS, MODELS, load_model
from sipsched.testbed.inventory import load_testbed

FITTED_TO = {"kamailio-qm": PROJECT_ROOT / "recorded" / "fit" / "local"}


def runs(folder: Path) -> list[Path]:
    """List the recorded runs of mode `default` with traces."""
    return sorted(folder.glob("kamailio-udp/default/cores~1/threads~8/cps~*/rep~*"))


@pytest.fixture(scope="module", params=FITTED_TO)
def fitted(request: pytest.FixtureRequest) -> tuple[str, Fit]:
    folder = FITTED_TO[request.param]
    result = runs(folder)
    assert len(result) == 6
    return request.param, fit(map(read_messages, result), folder / "noise.json")


def test_service_times_are_those_of_the_records(fitted: tuple[str, Fit]) -> None:
    name, result = fitted
    types = read_yaml(MODELS / f"{name}.yaml")["service"]["types"]
    for kind in KINDS:
        assert types[kind]["mean_ns"] == round(result.service[kind].mean_ns), kind
        assert types[kind]["scv"] == round(result.service[kind].scv, 3), kind


def test_every_number_called_fitted_is_what_the_records_give(fitted: tuple[str, Fit]) -> None:
    name, result = fitted
    model = read_yaml(MODELS / f"{name}.yaml")
    written = {
        name: each["value"]
        for name, each in model["numbers"].items()
        if each["source"].startswith("Fitted")
    }
    assert written == result.numbers
    assert model["lengths"]["types"] == result.lengths


def test_the_fit_recovers_the_parameters_of_simulated_runs(tmp_path: Path) -> None:
    """Fit runs of a model with known parameters. Each fitted number must equal the model's parameter."""
    config = load_config()
    config = replace(config, load=replace(config.load, duration_s=2.0))
    bed = load_testbed("simulated")
    point = Point(bed.name, "kamailio-udp", "default", 1, 8)
    records = [
        acquisition.measure(point.run(cps, 1), config, bed, tmp_path) for cps in (900, 1400, 1900)
    ]
    result = fit(map(read_messages, records), None)
    model = load_model("kamailio-qm").numbers
    numbers = result.simulator_numbers()
    for name in ("copy_ns", "send_ns", "truesize", "length"):
        assert numbers[name] == model[name], name
    for name in ("loop_ns", "refill_ns"):
        assert numbers[name] == pytest.approx(model[name], rel=0.15, abs=600), name
    # more messages arrive during a long service, which the fit must not mistake for a cost of arrivals
    for name in ("receive_ns", "interrupt_ns"):
        assert numbers[name] == pytest.approx(model[name], abs=1000), name
    assert numbers["wake_ns"] == pytest.approx(model["wake_ns"], abs=2000)
    # compare the sum: the exit from idle is part of K_stack on the recorded machine, but of K_sockq in the model
    woken = ("wake_ns", "idle_exit_ns", "switch_ns")
    assert sum(numbers[name] for name in woken) == pytest.approx(
        sum(model[name] for name in woken), rel=0.1
    )
    assert numbers["service_ns"] == pytest.approx(model["service_ns"], rel=0.02)
    assert numbers["service_scv"][1:] == pytest.approx(model["service_scv"][1:], rel=0.5)


def test_a_campaign_without_traces_has_no_fit_and_a_reason() -> None:
    reduced = PROJECT_ROOT / "recorded" / "raw" / "local" / "kamailio-udp" / "default"
    records = [path.parent for path in reduced.glob("cores~1/threads~8/cps~1600/rep~*/run.json")]
    result = fit_campaign(records, None, load_config().suts)
    assert records
    assert not result.numbers
    assert result.why.startswith("no trace of a run")


def test_fits_to_samples_scatter_about_the_fit() -> None:
    folder = FITTED_TO["kamailio-qm"]
    result = fit_campaign(runs(folder), folder / "noise.json", load_config().suts, draws=4)
    assert len(result.runs) == 6
    assert (
        result.numbers
        == fit(map(read_messages, runs(folder)), folder / "noise.json").simulator_numbers()
    )
    drawn = [draw["refill_ns"] for draw in result.draws]
    assert min(drawn) <= result.numbers["refill_ns"] <= max(drawn)


def test_without_runs_there_is_no_fit() -> None:
    with pytest.raises(StableError, match="needs records"):
        fit([], FITTED_TO["kamailio-qm"] / "noise.json")
