"""The parts of the page of predictions: what they say of known runs, of few and of none."""

import re

import numpy as np
import pytest
import synthetic

from sipsched.analysis import papers, papers_predicted
from sipsched.pages import drawing
from sipsched.pages.papers_predicted import ablation, answer, directions, numbers
from sipsched.plan.simulated import load_model


def said(runs):
    """Give every part of the page, by the names of its elements."""
    points, compared = papers.load_points(), papers.load_comparison()
    table, grid = (
        papers_predicted.against_published(runs, points),
        papers_predicted.capacities(runs, points),
    )
    errors = [*papers_predicted.errors(table), *papers_predicted.errors(grid)]
    effects, costs = (
        papers_predicted.effects(runs, compared),
        papers_predicted.migration_costs(runs),
    )
    parts = [
        found
        for metric in papers_predicted.EFFECTS
        if (found := papers_predicted.ablation(runs, metric)) is not None
    ]
    model = load_model("opensips-papers")
    shown = [
        numbers.figure(table, grid, errors, runs),
        numbers.errors(errors, runs),
        numbers.numbers(table, runs),
        numbers.capacities(grid, runs),
        answer.free_numbers(model, 60),
        directions.figure(effects, runs),
        directions.table(effects, runs),
        directions.costs(costs, runs),
        ablation.figure(parts, runs),
        ablation.table(parts, runs),
    ]
    words = answer.words(errors, costs, parts)
    return (
        (answer.answer(effects).line, *words.lines),
        {each.identity: each for each in shown},
        answer.heading(model, runs),
    )


@pytest.fixture(scope="module")
def lower():
    return said(synthetic.predictions(0.3, parts={"lock": 1.0}))


def test_everything_says_that_it_is_predicted(lower):
    _, shown, heading = lower
    assert heading.fidelity.startswith("Predicted by simulation, not measured")
    for each in shown.values():
        assert each.provenance.startswith("Predicted by simulation, not measured")


def test_the_first_sentence_is_the_answer(lower):
    assert lower[0][0].startswith(
        "Yes, in simulation: of 38 published effects of enhanced mode 38 reproduced"
    )
    lines, _, _ = said(synthetic.predictions(-0.3))
    assert lines[0].startswith(
        "No, in simulation: of 38 published effects of enhanced mode 38 opposite"
    )
    lines, _, _ = said(synthetic.predictions())
    assert "38 no difference at all" in lines[0]


def test_what_is_not_told_says_what_would_have_been_seen():
    runs = synthetic.predictions()
    noise = np.exp(0.1 * np.random.default_rng(3).normal(size=(len(runs), 2)))
    runs[["k_rcv_us", "pdr"]] *= noise
    lines, shown, _ = said(runs)
    found = re.search(r"with a power of 80 %, the published one for (\d+)\.$", lines[0])
    assert found
    assert re.search(r"where it is not told, a fall by \d", lines[2])
    rows = shown["table-directions"].rows
    place = shown["table-directions"].header.index("would have been seen (%)")
    assert all(10 < float(row[place]) < 100 for row in rows)
    assert int(found[1]) == sum(float(row[2]) >= float(row[place]) for row in rows)


def test_runs_of_some_rows_answer_in_part():
    runs = synthetic.predictions(0.3)
    alike = runs["cores"] == 6
    runs.loc[alike, ["k_rcv_us", "pdr"]] = (200.0, 0.01)
    assert said(runs)[0][0].startswith("In part, in simulation: of 38")


def test_an_ablation_says_what_comes_from_where(lower):
    lines, shown, _ = lower
    assert "from the lock that workers share" in lines[-1]
    assert "context switches" not in lines[-1]
    rows = [row for row in shown["table-ablation"].rows if row[1] == "without context switches"]
    assert all(str(row[3]).startswith("0") for row in rows)
    lines, _, _ = said(synthetic.predictions())
    assert "not told from 0; 0 µs would have been seen with a power of 80 %" in lines[-1]
    assert lines[-1].endswith("No part of it is told from 0.")


def test_the_number_of_free_numbers_stands_beside_that_of_points(lower):
    caption = lower[1]["table-free"].caption
    assert caption.startswith("8 free numbers beside 60 printed ones, 3 of each of 20 columns")
    assert len(lower[1]["table-free"].rows) == 8


def test_tables_have_a_row_a_thing(lower):
    shown = lower[1]
    assert len(shown["table-numbers"].rows) == 228
    assert len(shown["table-directions"].rows) == 38
    assert len(shown["table-costs"].rows) == 18
    assert len(shown["table-grid"].rows) == 29
    for each in shown.values():
        if hasattr(each, "rows"):
            assert all(len(row) == len(each.header) for row in each.rows)


def test_figures_are_drawn_for_a_phone_too(lower):
    for name in ("figure-predicted", "figure-directions", "figure-ablation"):
        figure = lower[1][name]
        assert figure.narrow
        assert not any(marker in figure.svg for marker in drawing.THEME)
        assert all(seen in figure.alt for seen in figure.seen)


def test_without_a_run_every_sentence_still_holds():
    lines, shown, _ = said(synthetic.predictions().iloc[:0])
    assert lines[0] == "No published difference between the modes was simulated."
    assert not any("nan" in line for line in lines)
    for each in shown.values():
        assert "nan" not in f"{getattr(each, 'rows', '')} {getattr(each, 'seen', '')}"
    assert "no run" in shown["table-errors"].provenance


def test_one_repetition_has_no_interval_and_no_direction():
    runs = synthetic.predictions(0.3)
    lines, shown, _ = said(runs[runs["rep"] == 1])
    assert lines[0].startswith(
        "No, in simulation: of 38 published effects of enhanced mode 38 not told"
    )
    assert "38 not told from chance" in lines[0]
    assert (
        "(one run)" in str(shown["table-directions"].rows[0][3])
        or shown["table-directions"].rows[0][3].interval.n == 1
    )


@pytest.mark.parametrize(
    ("changed", "rows", "said"),
    [
        (1.0, 0, "All 522 runs of the grid were simulated here and have the recorded numbers"),
        (1 + 1e-15, 1, "Of 522 of the grid 521 have the recorded numbers to the last digit"),
        (1.1, 600, "Of 522 of the grid 0 have"),
    ],
)
def test_it_says_what_was_simulated_here_and_comes_out_as_recorded(tmp_path, changed, rows, said):
    runs = synthetic.predictions().reset_index(drop=True)
    here, recorded = tmp_path / "papers.csv", tmp_path / "recorded.csv"
    runs.to_csv(recorded, index=False)
    runs.loc[runs.index[len(runs) - rows :], "k_rcv_us"] *= changed
    runs.to_csv(here, index=False)
    assert said in answer.origin(here, recorded).lines[0]


def test_it_says_that_nothing_was_simulated_here_or_all_of_it(tmp_path):
    path = tmp_path / "papers.csv"
    assert answer.origin(path, path).lines == ("All runs were simulated here.",)
    synthetic.predictions().to_csv(path, index=False)
    assert answer.origin(path, path).lines[0].startswith("All runs come with the repository")
