"""Tests of reading the files that sipload writes."""

import re
from pathlib import Path

import numpy as np
import pytest
import zstandard

from sipsched.errors import StableError
from sipsched.measure.generator import (
    CALL,
    CALLS_HEADER,
    Sipload,
    read_calls,
    read_sipload_report,
)
from sipsched.paths import PROJECT_ROOT

REPORT = (Path(__file__).parents[2] / "data" / "sipload" / "uac-1600cps.json").read_text()


CALLS = np.zeros(3, CALL)
CALLS["t_intended"] = [1000, 2000, 3000]
CALLS["t_invite"] = [1005, 2005, 0]
CALLS["t_ok_bye"] = [1900, 0, 0]
HEADER = np.array([(b"SIPCALLS", 1, CALL.itemsize, 3, 1000)], CALLS_HEADER)


def calls_file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "uac.calls.zst"
    path.write_bytes(zstandard.compress(data))
    return path


def test_the_dtype_of_calls_is_the_struct_of_calls_h() -> None:
    header = (PROJECT_ROOT / "hardware" / "common" / "calls.h").read_text()
    assert f"sizeof(struct call_record) == {CALL.itemsize}," in header
    assert "#define CALLS_VERSION 1\n" in header
    body = header[header.index("struct call_record {") : header.index("_Static_assert")]
    assert re.findall(r"\buint\d+_t (\w+)", body) == list(CALL.names or ())


def test_calls_that_did_not_start_are_excluded(tmp_path: Path) -> None:
    calls_file(tmp_path, HEADER.tobytes() + CALLS.tobytes())
    starts = Sipload().starts(tmp_path, "uac")
    assert starts.actual_ns.tolist() == [1005, 2005]
    assert starts.intended_ns.tolist() == [1000, 2000]
    assert starts.scheduled_ns.tolist() == [0, 1000]
    assert starts.completed.tolist() == [True, False]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a calls file"),
        (HEADER.tobytes()[:20], "not a calls file"),
        (b"X" + HEADER.tobytes()[1:], "not a calls file"),
        (HEADER.tobytes() + CALLS.tobytes()[:-1], "truncated: expected 296 bytes for 3 calls"),
    ],
)
def test_a_damaged_calls_file_is_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(StableError, match=message):
        read_calls(calls_file(tmp_path, data))


def test_a_truncated_report_is_an_error() -> None:
    with pytest.raises(StableError, match=r"^uac\.json: not a complete sipload report"):
        read_sipload_report('{"calls": {"offered": 3', "uac.json")


def test_a_real_report_is_read() -> None:
    """Read a report in which two of 8000 calls have no 180, because the proxy received the 200 first."""
    report = read_sipload_report(REPORT, "uac.json")
    assert report.calls_offered == report.calls_created == report.calls_completed == 8000
    assert (
        report.no_ringing,
        report.overtaken,
        report.unexpected,
        report.calls_failed,
    ) == (2, 0, 0, 0)
    assert report.cpu_us == pytest.approx(1839596 / 8000)


def test_a_missing_calls_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StableError, match=r"uac.calls.zst: no such calls file; repeat the run"):
        read_calls(tmp_path / "uac.calls.zst")
