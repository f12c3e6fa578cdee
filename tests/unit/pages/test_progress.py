"""Tests of the page about a campaign's progress: before the first run, after one run, and after all runs."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import synthetic

from sipsched.pages.progress import line, write_page
from sipsched.records.forecast import Outlook

NOW = datetime(2026, 3, 4, 21, 30, tzinfo=UTC)
RUNS = tuple(synthetic.Run(testbed="rack", cps=100 * n) for n in range(1, 9))
NOTHING = Outlook("rack", 0, RUNS, (), 0, (), 720.0, 720.0, 0)
SOME = replace(NOTHING, measured=1, left=RUNS[1:], from_runs=1)
POINT = RUNS[0].point


@pytest.mark.parametrize(
    ("outlook", "said"),
    [
        (
            NOTHING,
            "rack: 0 of 8 runs measured, 12 minutes of testbed time left, done about 21:42 UTC "
            "(estimated from the length of the load, because no run is recorded yet)",
        ),
        (
            replace(SOME, work_s=14_400.0, done_in_s=14_400.0),
            "rack: 1 of 8 runs measured, 4 hours of testbed time left, done about 2026-03-05 01:30 "
            "UTC (estimated from the times of 1 recorded run)",
        ),
        (
            replace(NOTHING, left=(), searches=(POINT,), behind_searches=9),
            "rack: 0 of 0 runs measured, 1 search to make and about 9 runs after it, 12 minutes of "
            "testbed time left, done about 21:42 UTC (estimated from the length of the load, "
            "because no run is recorded yet; assuming that each search takes its longest time)",
        ),
        (
            replace(SOME, searches=(POINT, POINT), behind_searches=1),
            "rack: 1 of 8 runs measured, 2 searches to make and about 1 run after them, 12 minutes "
            "of testbed time left, done about 21:42 UTC (estimated from the times of 1 recorded run; assuming "
            "that each search takes its longest time)",
        ),
        (replace(SOME, measured=8, left=()), "rack: all 8 runs measured"),
        (replace(SOME, measured=1, left=()), "rack: all 1 run measured"),
        (replace(NOTHING, left=()), "rack: no run"),
    ],
)
def test_a_line_says_how_many_runs_are_left_and_when_they_will_end(
    outlook: Outlook, said: str
) -> None:
    assert line(outlook, NOW) == said


def test_the_page_names_the_current_the_next_and_the_refused_runs(tmp_path: Path) -> None:
    page = tmp_path / "reports" / "progress.html"
    refused = (("steal_share", 3), ("uac (me@rack:22): lost <now>", 1))
    write_page(page, [replace(SOME, refused=refused)], {RUNS[1]: NOW}, NOW)
    text = page.read_text()
    assert "This page was made at 2026-03-04 21:30 UTC." in text
    assert f"Since 21:30 UTC, this run is being measured: {RUNS[1]}." in text
    following = text[text.index('id="table-next"') : text.index('id="table-refused"')]
    assert str(RUNS[1]) not in following
    assert all(str(run) in following for run in RUNS[2:7]) and str(RUNS[7]) not in following
    assert ">3</td>" in text and "steal_share" not in text
    # the page about progress shows the complete cause with users and hosts, because nobody publishes the page
    assert ">uac (me@rack:22): lost &lt;now&gt;</td>" in text
    assert "src=" not in text and "http://" not in text and "https://" not in text


def test_the_page_says_that_a_campaign_is_done_or_has_not_begun(tmp_path: Path) -> None:
    page = tmp_path / "progress.html"
    write_page(page, [replace(SOME, measured=8, left=(), work_s=0.0)], {}, NOW)
    text = page.read_text()
    assert "No run is measured now." in text and "the same command continues" not in text
    assert ">done</td>" in text and "No attempt was invalid." in text
    write_page(page, [NOTHING], {}, NOW)
    assert "the same command continues" in page.read_text()
