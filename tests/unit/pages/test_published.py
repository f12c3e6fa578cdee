"""Tests of the parts of the page of published numbers."""

import pytest

from sipsched.analysis import papers
from sipsched.pages import published
from sipsched.pages.theme import THEME


@pytest.fixture(scope="module")
def points():
    return papers.load_points()


@pytest.mark.parametrize("table", ["I", "II", "IV", "V", "VII", "VIII"])
def test_a_table_of_measurements_has_the_form_of_the_paper(points, table):
    shown = published.measurements(points, "multicore", table)
    loads = 8 if table in ("VII", "VIII") else 10
    assert len(shown.header) == 1 + loads
    assert sum(span for _, span in shown.groups) == len(shown.header)
    assert [text for text, _ in shown.groups][-1] == "16 threads"
    assert all(len(row) == len(shown.header) for row in shown.rows)
    assert all(cell for row in shown.rows for cell in row)
    names = [row[0] for row in shown.rows]
    assert len(names) == 8
    assert ("RCV errors (recovered)" in names) == bool(shown.reading) == (table == "I")


def test_a_table_that_no_paper_has_is_reported(points):
    compared = papers.load_comparison()
    for shown in (
        published.measurements(points, "singlecore", "IX"),
        published.comparison(compared, "singlecore", "IX"),
    ):
        assert "the paper has no such table" in shown._repr_html_()


def test_figures_state_the_source_of_their_numbers(points):
    predicted = papers.load_capacity()
    for figure in (
        published.crossing(points),
        published.capacity(points, predicted),
    ):
        assert figure.provenance.startswith("Published numbers, not measured here")
        assert not any(marker in figure.wide for marker in THEME)
    assert "6 cores, 6\u202f600 cps with 6 threads" in figure.seen[1]


def test_figures_of_another_limit_and_of_one_paper(points):
    alone = points[points["study"] == "singlecore"]
    for limit in (0.001, 0.01, 0.1):
        crossing = published.crossing(alone, limit)
        capacity = published.capacity(alone, papers.load_capacity(), limit)
        assert crossing.seen[0].startswith("1 core (single-core paper)")
        assert "2016" not in crossing.provenance + capacity.provenance
    assert "no load at which PDR is within its limit" in published.crossing(alone, 0.001).seen[0]
    rows = published.capacity_model(alone, papers.load_capacity()).rows
    assert all(row[-1] == "–" for row in rows)


def test_words_of_the_audit_follow_the_checks():
    checks = papers.load_audit()
    (before,) = published.audit_words(checks).lines
    assert before.endswith("In 12 checks, the numbers disagree.")
    checks.loc[checks["agrees"].idxmax(), "agrees"] = False
    assert published.audit_words(checks).lines[0].endswith("In 13 checks, the numbers disagree.")
    truncated = [papers.CUT_OFF in row[-1] for row in published.audit_disagreements(checks).rows]
    assert len(truncated) == (~checks["agrees"]).sum()
    assert truncated == sorted(truncated)
    assert truncated.count(False) == 13
    counts = [tuple(map(int, row[1:])) for row in published.audit_summary(checks).rows]
    assert all(total == hold + cut + off for total, hold, cut, off in counts)
    assert sum(total for total, *_ in counts) == len(checks)


def test_an_audit_that_finds_nothing_says_so():
    checks = papers.load_audit()
    checks = checks[checks["agrees"]]
    table = published.audit_disagreements(checks)
    assert "none: every check holds" in table._repr_html_()
    assert published.audit_words(checks).lines[0].endswith("In 0 checks, the numbers disagree.")
