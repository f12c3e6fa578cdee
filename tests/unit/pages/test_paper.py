"""Tests of the paper, on comparisons with known effects, and without data."""

import dataclasses
import json

import notebook_inputs
import page_text
import pytest

from sipsched.analysis.papers import FOLDER
from sipsched.pages import html, parts
from sipsched.pages.crossover.effects import TICKS, spread_ticks
from sipsched.pages.paper import claims, limits, material, results
from sipsched.words import grouped


def read(given):
    return material.read(
        given["summaries"],
        given["windows"],
        given["crossings"],
        given["capacities"],
        given["predictions"],
        given["records"],
        published=FOLDER,
        simulated=given["simulated"],
        limit=0.01,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return read(notebook_inputs.paper(tmp_path_factory.mktemp("paper") / "own"))


@pytest.fixture(scope="module")
def nothing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nothing")
    return read(notebook_inputs.parameters_of_nothing("paper", folder))


def test_each_study_has_its_own_comparisons_and_a_study_without_runs_has_none(found):
    assert set(found.compared) == {"crossover", "advice", "workers"}
    (workers,) = found.rankings("workers")
    assert [candidate.mode for candidate in workers.candidates] == ["default+threads=4"]
    assert not workers.load.one_instance


def test_the_table_has_the_papers_mode_and_every_mode_that_differs(found):
    rows = {str(row[0]).split(" instead")[0]: row for row in results.table(found).rows}
    assert list(rows) == ["enhanced", "fifo", "batch", "4 workers"]
    estimates = {name: row[2].interval.estimate for name, row in rows.items()}
    # the planted effects are logarithms of ratios
    assert estimates["fifo"] == pytest.approx(-39, abs=5)
    assert estimates["batch"] == pytest.approx(22, abs=6)
    assert estimates["4 workers"] == pytest.approx(-26, abs=5)
    assert {row[-2:] for row in rows.values()} == {("40", "1")}


def test_the_settings_are_those_of_the_papers(found):
    rows = {row[0]: row[1:5] for row in claims.settings(found).rows}
    plain = {name: [cell.replace("\u202f", "") for cell in row] for name, row in rows.items()}
    assert plain["sched_latency_ns"] == ["1000000", "800000", "1000000", "3200000"]
    assert plain["sched_min_granularity_ns"][:2] == ["100000", "250000"]
    assert plain["sched_tunable_scaling"][2:] == ["logarithmic", "none"]


def test_the_place_of_a_setting_is_its_value_or_the_reason_for_its_absence():
    step = {"setting": "latency_ns", "applied": None, "place": "", "unavailable": "no period"}
    steps = {"baseline": [step], "enhanced": [step]}
    assert claims.place_here(claims.Setting.LATENCY, steps) == "no period"
    steps = {
        mode: [{"setting": "min_granularity_ns", "applied": ns, "place": "p", "unavailable": ""}]
        for mode, ns in (("baseline", 100000), ("enhanced", 250000))
    }
    text = claims.place_here(claims.Setting.MIN_GRANULARITY, steps).replace("\u202f", "")
    assert text == "100000 and 250000, by p"


def test_the_paper_names_loads_above_the_capacity_that_drop_little(found):
    loads = found.sweep["cps"].to_numpy()
    (line,) = results.below_limit(found.sweep, dataclasses.replace(found.system, estimate_cps=1.0))
    assert grouped(loads[0]) in line
    highest = dataclasses.replace(found.system, estimate_cps=float(loads[-1]))
    assert list(results.below_limit(found.sweep, highest)) == []


def test_simulated_numbers_are_labelled(found):
    label = claims.origin(found)
    assert label
    for part in (claims.answer(found), claims.compared(found), results.cause(found)):
        assert label in page_text.text(part)
    for part in (results.simulator(found), results.papers_simulated(found)):
        assert "not measured" in page_text.text(part)


def test_without_data_every_part_exists_and_names_what_is_missing(nothing):
    assert nothing.campaign is None
    for make in (
        claims.answer,
        claims.compared,
        results.cause,
        results.explanation,
        results.operating,
        limits.method,
    ):
        assert page_text.text(make(nothing))
    for study in material.COMPARED:
        assert study in page_text.text(results.figures(nothing, study))
    assert results.table(nothing).rows == ()
    assert "nan" not in page_text.text(limits.threats(nothing), limits.not_shown(nothing))


def test_ticks_are_apart_and_include_zero():
    for reach, apart in ((1.0, 0.2), (3.0, 0.15), (0.2, 0.5)):
        ticks = spread_ticks(-reach, reach, apart)
        assert 0 in ticks
        assert set(ticks) <= set(TICKS)
    assert sorted(spread_ticks(-3.0, 3.0, 0.0)) == sorted(TICKS)
    # Narrow axes, such as those of small effects on the mean, have ticks on both sides of 0, too.
    for reach in (0.03, 0.05, 0.2, 0.6):
        assert {-1, 0, 1} <= {(tick > 0) - (tick < 0) for tick in spread_ticks(-reach, reach, 0.1)}
    assert sorted(spread_ticks(-1.6, 1.6, 0.15)) == [-75, -50, 0, 100, 300]


def test_an_article_keeps_its_folds_when_it_is_printed():
    part = parts.Folded("more", (parts.Words(("folded",)),))
    page = html.document(parts.Page("t?", (part,)))
    article = html.document(parts.Page("t?", (part,), article=True))
    assert '<body class="article">' in article
    assert '<body class="article">' not in page


def test_the_notebook_of_the_paper_is_an_article():
    path = FOLDER.parents[1] / "notebooks" / "paper.ipynb"
    assert json.loads(path.read_text())["metadata"]["sipsched"] == {"article": True}
