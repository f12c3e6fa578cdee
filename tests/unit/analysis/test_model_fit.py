"""The numbers of the models that come with the project are those that their records give."""

from pathlib import Path

import pytest

from sipsched.analysis.model_fit import Fit, fit, read_messages
from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.documents import read_yaml
from sipsched.plan.simulated import KINDS, MODELS

FITTED_TO = {"kamailio-qm": PROJECT_ROOT / "recorded" / "fit" / "local"}


def runs(folder: Path) -> list[Path]:
    """Name the runs of mode `default` that come with their traces."""
    return sorted(folder.glob("kamailio-udp/default/cores~1/threads~8/cps~*/rep~*"))


@pytest.fixture(scope="module", params=FITTED_TO)
def fitted(request: pytest.FixtureRequest) -> tuple[str, Fit]:
    folder = FITTED_TO[request.param]
    found = runs(folder)
    assert len(found) == 6
    return request.param, fit(map(read_messages, found), folder / "noise.json")


def test_service_times_are_those_of_the_records(fitted: tuple[str, Fit]) -> None:
    name, found = fitted
    types = read_yaml(MODELS / f"{name}.yaml")["service"]["types"]
    for kind in KINDS:
        assert types[kind]["mean_ns"] == round(found.service[kind].mean_ns), kind
        assert types[kind]["scv"] == round(found.service[kind].scv, 3), kind


def test_every_number_called_fitted_is_what_the_records_give(fitted: tuple[str, Fit]) -> None:
    name, found = fitted
    model = read_yaml(MODELS / f"{name}.yaml")
    written = {
        name: each["value"]
        for name, each in model["numbers"].items()
        if each["source"].startswith("Fitted")
    }
    assert written == found.numbers
    assert model["lengths"]["types"] == found.lengths


def test_without_runs_there_is_no_fit() -> None:
    with pytest.raises(StableError, match="no records"):
        fit([], FITTED_TO["kamailio-qm"] / "noise.json")
