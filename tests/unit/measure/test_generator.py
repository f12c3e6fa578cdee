"""What the generators left: SIPp 3.6.1's statistics, verbatim, and the calls of sipload."""

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
    read_sipp_statistics,
)
from sipsched.paths import PROJECT_ROOT

DATA = Path(__file__).parents[2] / "data" / "sipp"
REPORT = (DATA.parent / "sipload" / "uac-1600cps.json").read_text()
VERBATIM = (DATA / "sipp-3.6.1-1000cps.csv").read_text()


def test_verbatim_file() -> None:
    found = read_sipp_statistics(VERBATIM, 4000, "uac.csv")
    assert found.calls_offered == found.calls_created == found.calls_completed == 4000
    assert found.calls_failed == 0
    # SIPp's own column CallRate(C) says the same a period before the last call started
    assert found.achieved_cps == pytest.approx(1000, rel=0.01)


def test_file_cut_after_whole_lines_says_what_was_done_so_far() -> None:
    lines = VERBATIM.splitlines(keepends=True)
    found = read_sipp_statistics("".join(lines[:15]), 4000, "uac.csv")
    assert 0 < found.calls_created < 4000
    assert found.achieved_cps == pytest.approx(1000, rel=0.05)


def test_half_a_line_at_the_end_is_left_out() -> None:
    lines = VERBATIM.splitlines(keepends=True)
    whole = read_sipp_statistics("".join(lines[:15]), 4000, "uac.csv")
    assert read_sipp_statistics("".join(lines[:15]) + lines[15][:200], 4000, "uac.csv") == whole


@pytest.mark.parametrize("cut", [0, 100, VERBATIM.index("\n") + 50])
def test_truncated_file_is_one_clear_error(cut: int) -> None:
    with pytest.raises(StableError, match=r"^uac\.csv: not a complete SIPp statistics file"):
        read_sipp_statistics(VERBATIM[:cut], 4000, "uac.csv")


CALLS = np.zeros(3, CALL)
CALLS["t_intended"] = [1000, 2000, 3000]
CALLS["t_invite"] = [1005, 2005, 0]
HEADER = np.array([(b"SIPCALLS", 1, CALL.itemsize, 3, 0)], CALLS_HEADER)


def calls_file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "uac.calls.zst"
    path.write_bytes(zstandard.compress(data))
    return path


def test_layout_is_that_of_calls_h() -> None:
    header = (PROJECT_ROOT / "hardware" / "generator" / "calls.h").read_text()
    assert f"sizeof(struct call_record) == {CALL.itemsize}," in header
    assert "#define CALLS_VERSION 1\n" in header
    body = header[header.index("struct call_record {") : header.index("_Static_assert")]
    assert re.findall(r"\buint\d+_t (\w+)", body) == list(CALL.names or ())


def test_starts_are_those_of_the_calls_that_started(tmp_path: Path) -> None:
    calls_file(tmp_path, HEADER.tobytes() + CALLS.tobytes())
    starts = Sipload().starts(tmp_path, "uac")
    assert starts is not None
    assert starts.actual_ns.tolist() == [1005, 2005]
    assert starts.intended_ns.tolist() == [1000, 2000]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a calls file"),
        (HEADER.tobytes()[:20], "not a calls file"),
        (b"X" + HEADER.tobytes()[1:], "not a calls file"),
        (HEADER.tobytes() + CALLS.tobytes()[:-1], "truncated: expected 296 bytes for 3 calls"),
    ],
)
def test_bad_calls_file_is_one_clear_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(StableError, match=message):
        read_calls(calls_file(tmp_path, data))


def test_sipload_report_that_is_cut() -> None:
    with pytest.raises(StableError, match=r"^uac\.json: not a complete sipload report"):
        read_sipload_report('{"calls": {"offered": 3', "uac.json")


def test_a_verbatim_report_tells_of_calls_whose_180_was_overtaken() -> None:
    """At 1600 cps two calls of 8000 had no 180: the proxy got it after the 200, and sent it no further."""
    found = read_sipload_report(REPORT, "uac.json")
    assert found.calls_offered == found.calls_created == found.calls_completed == 8000
    assert (found.no_ringing, found.overtaken, found.unexpected, found.calls_failed) == (2, 0, 0, 0)
    assert found.cpu_us == pytest.approx(1839596 / 8000)


def test_a_missing_calls_file_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(StableError, match=r"uac.calls.zst: no such calls file; repeat the run"):
        read_calls(tmp_path / "uac.calls.zst")
