"""Tests of the parts of the page of predictions, on known runs, on few runs and without runs."""

import re

import numpy as np
import pytest
import synthetic

from sipsched.analysis import papers, papers_predicted
from sipsched.pages.papers_predicted import ablation, answer, directions, numbers
from sipsched.pages.theme import THEME
from sipsched.plan.simulated import load_model


def said(runs):
    """Return the text of each part of the page, by the name of the part."""
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
        result
        for metric in papers_predicted.EFFECTS
        if (result := papers_predicted.ablation(runs, metric)) is not None
    ]
    scaled = papers_predicted.effects(runs, compared, papers_predicted.SCALED)
    changes = papers_predicted.readings(runs, compared)
    model = load_model("opensips-papers")
    shown = [
        numbers.figure(table, grid, errors, runs),
        numbers.errors(errors, runs),
        numbers.numbers(table, runs),
        numbers.capacities(grid, runs),
        answer.free_numbers(model, 60),
        directions.figure(effects, runs),
        directions.table(effects, runs),
        directions.readings(changes, effects, scaled, runs),
        directions.costs(costs, runs),
        ablation.figure(parts, runs),
        ablation.table(parts, runs),
    ]
    words = answer.words(errors, costs, parts)
    readings = answer.readings(changes, effects, scaled)
    return (
        (answer.answer(effects).line, *words.lines, *readings.lines),
        {each.identity: each for each in shown},
        answer.heading(model, runs),
    )


@pytest.fixture(scope="module")
def lower():
    return said(synthetic.predictions(0.3, parts={"lock": 1.0}))


def one_repetition():
    runs = synthetic.predictions(0.3)
    return runs[runs["rep"] == 1]


def half():
    runs = synthetic.predictions(0.3)
    runs.loc[runs["cores"] == 6, ["k_rcv_us", "pdr"]] = (200.0, 0.01)
    return runs


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        (lambda: synthetic.predictions(0.3), "Yes"),
        (half, "In part"),
        (lambda: synthetic.predictions(-0.3), "No"),
        (synthetic.predictions, "No"),
        (one_repetition, "No"),
    ],
)
def test_the_answer_begins_with_its_verdict(runs, first):
    assert said(runs())[0][0].startswith(f"{first}. The papers publish 38 ")


def test_an_undetected_effect_is_shown_with_the_detectable_effect():
    runs = synthetic.predictions()
    noise = np.exp(0.3 * np.random.default_rng(3).normal(size=(len(runs), 2)))
    runs[["k_rcv_us", "pdr"]] *= noise
    lines, shown, _ = said(runs)
    match = re.search(r"indistinguishable from chance, (\d+) have a published size", lines[0])
    assert match
    assert re.search(r"detects in four of five cases is \d", lines[2])
    rows = shown["table-directions"].rows
    place = shown["table-directions"].header.index("detectable (%)")
    assert all(10 < float(row[place]) < 100 for row in rows)
    assert int(match[1]) == sum(float(row[2]) >= float(row[place]) for row in rows)


def test_a_simulation_that_varies_too_much_detects_no_decrease():
    runs = synthetic.predictions()
    runs[["k_rcv_us", "pdr"]] *= np.exp(2 * np.random.default_rng(3).normal(size=(len(runs), 2)))
    lines, shown, _ = said(runs)
    place = shown["table-directions"].header.index("detectable (%)")
    assert "none" in {row[place] for row in shown["table-directions"].rows}
    assert "detects no decrease at all" in lines[0]
    assert not [
        float(percent) for percent in re.findall(r"(\d+)\u00a0%", lines[0]) if float(percent) > 100
    ]


def test_a_lower_metric_at_the_best_migration_cost_is_a_negative_change():
    runs = synthetic.predictions()
    worse = runs["mode"].str.endswith("=5000000")
    runs.loc[worse, ["k_rcv_us", "pdr"]] *= 2
    runs[["k_rcv_us", "pdr"]] *= np.exp(0.01 * np.random.default_rng(3).normal(size=(len(runs), 2)))
    rows = [row for row in said(runs)[1]["table-costs"].rows if row[2].startswith("5\u202f000")]
    assert len(rows) == 6
    for row in rows:
        assert row[4].startswith("−")
        assert row[4].endswith("reproduced")


def test_published_signs_are_counted_for_both_readings_of_baseline_mode():
    runs = synthetic.predictions(0.3)
    scaled = (runs["mode"] == papers_predicted.SCALED) & (runs["cores"] == 6)
    runs.loc[scaled, ["k_rcv_us", "pdr"]] *= 0.5
    lines, shown, _ = said(runs)
    words = next(line for line in lines if line.startswith("With the printed times"))
    assert re.findall(r"(\d+) of 38", words) == ["38", "30"]
    signs = {row[:2]: row[-2:] for row in shown["table-readings"].rows}
    assert signs["K_rcv", "4 cores"] == ("5 of 5", "5 of 5")
    assert signs["PDR", "6 cores"] == ("4 of 4", "0 of 4")
    assert signs["T_sip", "6 cores"] == ("", "")
    assert any("by −30, −30 and +40\u00a0%" in line for line in lines)


def test_runs_without_scaled_times_are_named():
    runs = synthetic.predictions(0.3)
    lines, shown, _ = said(runs[runs["mode"] != papers_predicted.SCALED])
    assert lines[-1] == "Baseline mode was not simulated with scaled times."
    assert not any("nan" in str(cell) for row in shown["table-readings"].rows for cell in row)


def test_an_ablation_of_a_mechanism_without_effect_shows_no_effect(lower):
    rows = [row for row in lower[1]["table-ablation"].rows if row[1] == "without context switches"]
    assert rows
    assert all(str(row[3]).startswith("0") for row in rows)


def test_tables_have_one_row_per_number(lower):
    shown = lower[1]
    assert len(shown["table-free"].rows) == 8
    assert len(shown["table-numbers"].rows) == 228
    assert len(shown["table-directions"].rows) == 38
    assert len(shown["table-costs"].rows) == 18
    assert len(shown["table-readings"].rows) == 9
    assert len(shown["table-grid"].rows) == 29
    for each in shown.values():
        if hasattr(each, "rows"):
            assert all(len(row) == len(each.header) for row in each.rows)


def test_figures_are_drawn_for_a_phone_too(lower):
    for name in ("figure-predicted", "figure-directions", "figure-ablation"):
        figure = lower[1][name]
        assert figure.narrow
        assert not any(marker in figure.wide for marker in THEME)


def test_without_a_run_every_sentence_still_holds():
    lines, shown, _ = said(synthetic.predictions().iloc[:0])
    assert lines[0] == "No published difference between the modes was simulated."
    assert not any("nan" in line for line in lines)
    for each in shown.values():
        assert "nan" not in f"{getattr(each, 'rows', '')} {getattr(each, 'seen', '')}"
    assert "no run" in shown["table-errors"].provenance


def test_one_repetition_has_no_interval():
    shown = said(one_repetition())[1]
    assert shown["table-directions"].rows[0][3].interval.n == 1


@pytest.mark.parametrize(
    ("changed", "rows", "counts"),
    [(1.0, 0, ["522"]), (1 + 1e-4, 1, ["521", "522"]), (1.1, 600, ["0", "522"])],
)
def test_runs_simulated_here_are_compared_with_the_recorded_runs(tmp_path, changed, rows, counts):
    runs = synthetic.predictions().reset_index(drop=True)
    here, recorded = tmp_path / "papers.csv", tmp_path / "recorded.csv"
    runs.to_csv(recorded, index=False)
    runs.loc[runs.index[len(runs) - rows :], "k_rcv_us"] *= changed
    runs.to_csv(here, index=False)
    line = answer.origin(here, recorded).lines[0]
    assert re.findall(r"\b\d+\b", line)[: len(counts)] == counts
    assert len(answer.origin(here, here).lines) == 1
