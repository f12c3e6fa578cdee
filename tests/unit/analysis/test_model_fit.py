"""The numbers of the model that comes with the project are those that its records give."""

import pytest

from sipsched.analysis.model_fit import Fit, fit
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.documents import read_yaml
from sipsched.plan.simulated import KINDS, MODELS

RECORDED = PROJECT_ROOT / "recorded" / "fit" / "local"


@pytest.fixture(scope="module")
def fitted() -> Fit:
    runs = sorted((RECORDED / "kamailio-udp" / "default").glob("cores~1/threads~8/cps~*/rep~*"))
    assert len(runs) == 6
    switch_ns = read_yaml(MODELS / "kamailio-qm.yaml")["numbers"]["switch_ns"]["value"]
    return fit(runs, RECORDED / "noise.json", switch_ns)


def test_service_times_are_those_of_the_records(fitted: Fit) -> None:
    types = read_yaml(MODELS / "kamailio-qm.yaml")["service"]["types"]
    for kind in KINDS:
        assert types[kind]["mean_ns"] == round(fitted.service[kind].mean_ns), kind
        assert types[kind]["scv"] == round(fitted.service[kind].scv, 3), kind


def test_every_number_called_fitted_is_what_the_records_give(fitted: Fit) -> None:
    model = read_yaml(MODELS / "kamailio-qm.yaml")
    written = {
        name: each["value"]
        for name, each in model["numbers"].items()
        if each["source"].startswith("Fitted")
    }
    assert written == fitted.numbers
    assert model["lengths"]["types"] == fitted.lengths
