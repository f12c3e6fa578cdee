"""Tests of the ratios of capacities from the records of paired searches."""

from pathlib import Path

import numpy as np
import pytest
import synthetic

from sipsched.analysis.capacity_ratios import ratios, speed_up
from sipsched.errors import StableError
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point
from sipsched.records.crossing import SearchRecord, read_crossing, read_searches

MODE = "default,default+cores=2,fifo+sut=other"


def paired(*, rounds: int = 20, **changes: object) -> SearchRecord:
    """Return a paired search in which the second system has 1.2 times and the third 0.8 times the capacity."""
    return synthetic.paired_search(
        Point("bed", "a", MODE, 1, 4, Capacity(0.01, 0.05)), (1.0, 1.2, 0.8), rounds, **changes
    )


def test_ratios_are_paired_within_rounds() -> None:
    second, third = ratios(paired())
    # the speed of the machine changes by a factor of 2, and cancels in every round
    for found, truth in ((second, 1.2), (third, 0.8)):
        assert found.ratio.low < truth < found.ratio.high
        assert found.ratio.high / found.ratio.low < 1.05
        assert (found.ratio.n, found.search.begun_rounds) == (20, 20)
        assert found.reference.instance.cores == 1
    assert (second.other.instance.cores, second.other.mode) == (2, "default")
    assert (third.other.instance.sut, third.other.mode) == ("other", "fifo")
    assert third.other.handled_cps == pytest.approx(0.8 * second.reference.handled_cps, rel=0.02)


def test_only_rounds_that_overload_every_system_count() -> None:
    second, _ = ratios(paired(pdr={3: 0.005, 4: 0.6, 5: 0.01}))
    assert (second.ratio.n, second.search.begun_rounds) == (17, 20)
    none, _ = ratios(paired(rounds=2, pdr={1: 0.0, 2: 0.0}))
    assert np.isnan(none.ratio.estimate) and np.isnan(none.other.handled_cps)


def test_the_speed_up_is_the_ratio_of_equal_systems_on_other_cores() -> None:
    known = ratios(paired())
    found = speed_up(known, "bed", "a", 4, 2)
    assert found is not None and found.estimate == pytest.approx(1.2, rel=0.02)
    for other in (("other", "a", 4, 2), ("bed", "b", 4, 2), ("bed", "a", 8, 2), ("bed", "a", 4, 4)):
        assert speed_up(known, *other) is None


def test_the_record_of_a_paired_search_searches_no_loads(tmp_path: Path) -> None:
    search = paired(rounds=1)
    path = tmp_path / "capacity.json"
    path.write_text(synthetic.sealed(synthetic.search_document(search)))
    assert read_crossing(path) == search
    assert search.found == "1 of 1 round overloaded all systems"
    assert read_searches([path]) == []


@pytest.mark.parametrize("change", [{"mode": "fifo"}, {"round": 7}, {"carried_cps": None}])
def test_trials_that_form_no_rounds_are_damage(tmp_path: Path, change: dict[str, object]) -> None:
    document = synthetic.search_document(paired())
    document["trials"][4] |= change
    path = tmp_path / "capacity.json"
    path.write_text(synthetic.sealed(document))
    with pytest.raises(StableError, match=r"round \d+ lacks the trial of a mode, or the load"):
        read_crossing(path)


def test_a_record_without_trials_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    document = synthetic.search_document(paired()) | {"trials": []}
    path.write_text(synthetic.sealed(document))
    with pytest.raises(StableError, match="the record has no trial"):
        read_crossing(path)
