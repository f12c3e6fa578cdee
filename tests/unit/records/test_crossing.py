"""Tests of reading valid and invalid files `crossing.json`."""

from pathlib import Path
from typing import Any

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.plan.run import Point
from sipsched.records.crossing import TrialRecord, read_crossing, read_crossings

POINT = Point("bed", "a", "baseline", 1, 8)


def written(raw: Path, text: str) -> Path:
    path = raw / POINT.crossing_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_record_of_a_search_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, synthetic.sealed(synthetic.crossing(POINT, 900, 1000)))
    crossing = read_crossing(path)
    assert (crossing.point, crossing.label) == (POINT, "baseline")
    assert (crossing.lower_cps, crossing.upper_cps) == (900, 1000)
    assert crossing.trials == (TrialRecord(4000, 6.0, 0.5), TrialRecord(900, 6.0, 0.0))
    assert read_crossings(tmp_path, [POINT]) == {POINT: (900, 1000)}
    assert crossing.testbed is None
    assert crossing.probe_modes == ()


def test_the_probe_modes_of_the_trials_are_read(tmp_path: Path) -> None:
    crossing = synthetic.crossing(POINT, 900, 1000)
    modes = ("exact", "preload", "exact")
    trials = [{**crossing["trials"][0], "probe_mode": mode} for mode in modes]
    path = written(tmp_path, synthetic.sealed(crossing | {"trials": trials}))
    assert read_crossing(path).probe_modes == ("exact", "preload")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lower_cps": -900}, r"Expected `int` >= 1 - at `\$\.lower_cps`; move the file away"),
        ({"lower_cps": "900"}, r"Expected `int \| null`, got `str` - at `\$\.lower_cps`"),
        ({"lower_cps": 1000}, r"lower_cps \(1000\) must be less than upper_cps \(1000\)"),
        ({"upper_cps": float("inf")}, "not JSON: JSON is malformed"),
        ({"upper_cps": float("nan")}, "not JSON: JSON is malformed"),
        ({"trials": [{}]}, r"missing required field `cps` - at `\$\.trials\[0\]`"),
        ({"trials": None}, r"Expected `array`, got `null` - at `\$\.trials`"),
        ({"point": []}, r"Expected `object`, got `array` - at `\$\.point`"),
        ({"schema_version": [2]}, r"schema_version: expected 2, found \[2\]"),
        ({"schema_version": True}, "schema_version: expected 2, found True"),
    ],
)
def test_an_invalid_record_is_reported_in_one_line(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    path = written(tmp_path, synthetic.sealed(synthetic.crossing(POINT, 900, 1000) | change))
    with pytest.raises(StableError, match=expected) as error:
        read_crossings(tmp_path, [POINT])
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"schema_version": 1e999}', "not JSON: Number out of range"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("[1]", "expected a JSON object"),
    ],
)
def test_a_text_that_is_no_record_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    written(tmp_path, text)
    with pytest.raises(StableError, match=expected):
        read_crossings(tmp_path, [POINT])


def test_the_crossing_of_another_point_is_refused(tmp_path: Path) -> None:
    other = Point("bed", "a", "baseline", 1, 4)
    written(tmp_path, synthetic.sealed(synthetic.crossing(other, 900, 1000)))
    with pytest.raises(
        StableError, match="this record belongs to a baseline cores=1 threads=4 on bed"
    ):
        read_crossings(tmp_path, [POINT])
