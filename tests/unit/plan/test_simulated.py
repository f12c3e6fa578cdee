"""Tests of the choice of a model for a SUT."""

from pathlib import Path
from shutil import copy

import pytest

from sipsched.errors import StableError
from sipsched.plan.config import load_config
from sipsched.plan.simulated import MODELS, load_model, model_of


def test_only_a_model_of_recorded_runs_is_replaced_by_a_campaigns_fit() -> None:
    """Find no model for OpenSIPS, because assumptions on the papers' machine do not hold for another machine."""
    suts = load_config().suts
    result = model_of(suts["kamailio-udp"])
    assert result is not None
    assert result.name == "kamailio-qm"
    load_model("opensips-papers").check_sut(suts["opensips-udp"])
    assert model_of(suts["opensips-udp"]) is None


def test_a_model_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    copy(MODELS / "kamailio-qm.yaml", path)
    path.write_text(path.read_text().replace("version: 1", "version: 2"))
    with pytest.raises(StableError, match=r"old\.yaml: version: .*1.*found 2"):
        load_model("old", tmp_path)
