"""SIPp's statistics, read from what SIPp 3.6.1 wrote."""

from pathlib import Path

import pytest

from sipsched.errors import StableError
from sipsched.generator import read_sipp_statistics

DATA = Path(__file__).parents[1] / "data" / "sipp"
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
