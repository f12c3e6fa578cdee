"""`crossing.json`: what a search found, and what is no such thing."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.plan.config import Point
from sipsched.records.crossing import Trial, read_crossing, read_crossings

POINT = Point("bed", "a", "baseline", 1, 8)


def written(raw: Path, text: str) -> Path:
    path = raw / POINT.crossing_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_a_search_found(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(synthetic.crossing(POINT, 900, 1000)))
    found = read_crossing(path)
    assert (found.point, found.label) == (POINT, "baseline")
    assert (found.lower_cps, found.upper_cps) == (900, 1000)
    assert found.trials == (Trial(4000, 6.0, 0.5), Trial(900, 6.0, 0.0))
    assert read_crossings(tmp_path, [POINT]) == {POINT: (900, 1000)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lower_cps": -900}, "lower_cps must be bigger than or equal to 1, found -900"),
        ({"lower_cps": "900"}, "lower_cps must be integer or null, found '900'"),
        ({"lower_cps": 1000}, r"lower_cps \(1000\) must be less than upper_cps \(1000\)"),
        ({"upper_cps": float("inf")}, "not JSON: Infinity is no number"),
        ({"upper_cps": float("nan")}, "not JSON: NaN is no number"),
        ({"upper_cps": 10**30}, "not JSON: 10* is too large a number"),
        ({"trials": [{}]}, r"trials\[0\] must contain"),
        ({"trials": None}, "trials must be array, found None"),
        ({"point": []}, r"point must be object, found \[\]"),
        ({"schema_version": [2]}, r"schema_version: expected 1, found \[2\]"),
        ({"schema_version": True}, "schema_version: expected 1, found True"),
    ],
)
def test_what_is_none_is_said_in_one_line(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    path = written(tmp_path, json.dumps(synthetic.crossing(POINT, 900, 1000) | change))
    with pytest.raises(StableError, match=expected) as error:
        read_crossings(tmp_path, [POINT])
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"schema_version": 1, "lower_cps": 1, "lower_cps": 2}',
            "the key 'lower_cps' is there tw",
        ),
        ('{"schema_version": 1e999}', "not JSON: 1e999 is too large a number"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("[1]", "expected a JSON object"),
    ],
)
def test_what_no_record_holds(tmp_path: Path, text: str, expected: str) -> None:
    written(tmp_path, text)
    with pytest.raises(StableError, match=expected):
        read_crossings(tmp_path, [POINT])


def test_the_crossing_of_another_point_is_refused(tmp_path: Path) -> None:
    other = Point("bed", "a", "baseline", 1, 4)
    written(tmp_path, json.dumps(synthetic.crossing(other, 900, 1000)))
    with pytest.raises(StableError, match="this is of a baseline cores=1 threads=4 on bed"):
        read_crossings(tmp_path, [POINT])
