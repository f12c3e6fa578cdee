"""Tests of predictions against published numbers, on runs with known effects."""

import numpy as np
import pandas as pd
import pytest
import synthetic

from sipsched import paths
from sipsched.analysis import papers, papers_predicted
from sipsched.analysis.papers_predicted import ABLATED, MECHANISMS, Direction, PaperGroup
from sipsched.errors import StableError
from sipsched.measure.simulated_point import WITHOUT
from sipsched.plan.modes import Setting
from sipsched.plan.simulated import CASE


@pytest.fixture(scope="module")
def points():
    return papers.load_points()


@pytest.fixture(scope="module")
def compared():
    return papers.load_comparison()


def test_the_wanted_runs_cover_all_columns_and_both_modes(points, compared):
    asked = papers_predicted.wanted(points, compared)
    assert not asked.duplicated().any()
    keys = [*papers_predicted.CELL, "cps"]
    have = set(asked[keys].itertuples(index=False, name=None))
    assert set(papers.wide(points)[keys].itertuples(index=False, name=None)) <= have
    for row in compared.itertuples():
        assert {(mode, row.cores, row.threads, row.cps) for mode in papers.MODES} <= have
    plain = asked[asked["without"] == ""]
    assert plain.groupby(keys)["rep"].nunique().min() >= papers_predicted.REPETITIONS
    assert set(asked["without"]) - {""} == set(MECHANISMS) <= set(WITHOUT)
    scaled = asked[asked["mode"] == papers_predicted.SCALED]
    assert len(scaled) == 14 * papers_predicted.COMPARED_REPETITIONS
    assert set(scaled["cores"]) == {2, 4, 6}


def test_the_recorded_file_has_exactly_the_wanted_runs(points, compared):
    recorded = papers_predicted.load_predictions(paths.PROJECT_ROOT / paths.RECORDED_PAPERS)
    tables = recorded.loc[recorded["part"] == papers_predicted.TABLES, CASE]
    asked = papers_predicted.wanted(points, compared)
    pd.testing.assert_frame_equal(tables.reset_index(drop=True), asked)


def test_the_grid_contains_the_papers_grid():
    cells = set(papers_predicted.GRID)
    assert len(cells) == len(papers_predicted.GRID) == 29
    printed = papers.load_points()[["cores", "threads"]].drop_duplicates()
    assert set(printed.itertuples(index=False, name=None)) <= cells
    assert len(papers_predicted.grid()) == 58


def test_only_settings_that_differ_are_put_back():
    names = papers_predicted.settings_put_back()
    assert names[Setting.WAKEUP_GRANULARITY] == "enhanced+wakeup_granularity_ns=25000"
    assert names[Setting.MIGRATION_COST] == "enhanced+migration_cost_ns=5000000"
    # the minimal granularity must be absent from the settings, because baseline and enhanced mode set it to 100 µs
    assert Setting.MIN_GRANULARITY not in names


@pytest.mark.parametrize(
    ("mode", "cores", "group"),
    [
        ("baseline", 1, PaperGroup.FITTED),
        ("baseline", 2, PaperGroup.FITTED),
        ("enhanced", 2, PaperGroup.OTHER_HALF),
        ("baseline", 4, PaperGroup.FOUR),
        ("enhanced", 6, PaperGroup.SIX),
    ],
)
def test_the_group_of_a_column_depends_on_mode_and_cores(mode, cores, group):
    assert papers_predicted.group_of(mode, cores) is group


def test_an_exact_simulator_has_no_error_and_the_naive_predictions_have(points, compared):
    printed = papers.wide(points)
    keys = [*papers_predicted.CELL, "cps"]
    runs = synthetic.predictions()
    exact = runs.drop(columns=papers_predicted.MEANS).merge(
        printed[[*keys, *papers_predicted.MEANS]], on=keys
    )
    table = papers_predicted.against_published(exact, points)
    assert len(table) == 3 * 76
    assert table["predicted"].to_numpy() == pytest.approx(table["published"].to_numpy())
    for error in papers_predicted.errors(table):
        assert error.simulator == pytest.approx(0, abs=1e-9)
        assert error.best
        assert min(error.mean, error.same_threads) > 0.01
    sizes = {error.group: error.n for error in papers_predicted.errors(table)}
    assert list(sizes.values()) == [20, 20, 20, 16]


def test_naive_predictions_use_only_the_fitted_half(points):
    runs = synthetic.predictions()
    before = papers_predicted.against_published(runs, points)
    changed = points.copy()
    unseen = (changed["mode"] == "enhanced") | (changed["cores"] > 2)
    changed.loc[unseen, "value"] *= 7
    after = papers_predicted.against_published(runs, changed)
    for name in ("mean", "same_threads"):
        assert after[name].to_numpy() == pytest.approx(before[name].to_numpy())
    two = before[(before["cores"] == 2) & (before["metric"] == "t_sip_us")]
    six = before[(before["cores"] == 6) & (before["metric"] == "t_sip_us")]
    by_threads = two.groupby("threads")["same_threads"].first()
    assert (six["same_threads"].to_numpy() == by_threads[six["threads"]].to_numpy()).all()


def test_effects_of_known_size_are_reproduced_and_their_opposite_is_not(compared):
    for lower, direction in ((0.3, Direction.REPRODUCED), (-0.3, Direction.OPPOSITE)):
        effects = papers_predicted.effects(synthetic.predictions(lower), compared)
        assert len(effects) == 38
        assert {each.direction for each in effects} == {direction}
        assert [each.predicted.estimate for each in effects] == pytest.approx([100 * lower] * 38)
    printed = {
        (effect.cores, effect.threads, effect.metric): effect.published
        for effect in papers_predicted.effects(synthetic.predictions(0.3), compared)
    }
    assert printed[2, 2, "k_rcv_us"] == 72.72
    assert printed[6, 16, "pdr"] == 36.22


def test_both_readings_of_baseline_mode_are_compared(compared):
    runs = synthetic.predictions(0.3)
    scaled = runs["mode"] == papers_predicted.SCALED
    runs.loc[scaled & (runs["cores"] == 4), "k_rcv_us"] *= 0.5
    changes = papers_predicted.readings(runs, compared)
    assert len(changes) == 27
    printed, to_scaled, between = papers_predicted.READINGS
    for cores, expected in ((2, (-30, -30, 0)), (4, (-30, 40, -50)), (6, (-30, -30, 0))):
        shown = [
            changes["k_rcv_us", cores, modes].estimate for modes in (printed, to_scaled, between)
        ]
        assert shown == pytest.approx(expected), cores
        assert changes["t_sip_us", cores, printed].estimate == pytest.approx(0)
    effects = papers_predicted.effects(runs, compared, papers_predicted.SCALED)
    assert len(effects) == 38
    for effect in effects:
        changed = (effect.cores, effect.metric) == (4, "k_rcv_us")
        assert effect.predicted.estimate == pytest.approx(-40 if changed else 30)
        assert effect.direction is (Direction.OPPOSITE if changed else Direction.REPRODUCED)


def test_equal_runs_show_no_difference(compared):
    effects = papers_predicted.effects(synthetic.predictions(), compared)
    assert {each.direction for each in effects} == {Direction.NONE}
    assert not any(each.holds for each in effects)


def test_noise_is_indistinguishable_from_chance(compared):
    runs = synthetic.predictions()
    noise = np.exp(0.5 * np.random.default_rng(3).normal(size=(len(runs), 2)))
    runs[["k_rcv_us", "pdr"]] *= noise
    effects = papers_predicted.effects(runs, compared)
    directions = [each.direction for each in effects]
    assert directions.count(Direction.NOT_TOLD) >= 36
    assert Direction.NONE not in directions
    # The detectable effect is 4.2 standard errors: Student's t with 99 degrees of freedom at 1 - 0.05 / 76 plus at 0.8.
    # The standard error is the scatter of a difference of two runs, 75 % of the mean, divided by 10 (100 pairs).
    assert np.median([each.detectable for each in effects]) == pytest.approx(31, rel=0.2)


def test_without_simulations_there_are_no_results(points, compared):
    none = synthetic.predictions().iloc[:0]
    assert papers_predicted.effects(none, compared) == []
    assert papers_predicted.readings(none, compared) == {}
    assert papers_predicted.migration_costs(none) == []
    assert papers_predicted.ablation(none, "pdr") is None
    assert papers_predicted.against_published(none, points).empty
    assert papers_predicted.errors(papers_predicted.capacities(none, points)) == []


def test_capacities_are_read_between_two_loads_a_step_apart(points):
    runs = synthetic.predictions(loads=lambda cores, threads: 800 * cores + 200 * threads)
    table = papers_predicted.capacities(runs, points).set_index(papers_predicted.CELL)
    assert len(table) == 58
    assert table.loc[("baseline", 2, 4), "predicted"] == 2400
    assert table.loc[("baseline", 2, 4), "published"] == 3600
    assert np.isnan(table.loc[("baseline", 8, 4), "published"])
    above = runs[~((runs["part"] == papers_predicted.NEAR_LIMIT) & (runs["pdr"] < 0.01))]
    assert papers_predicted.capacities(above, points)["predicted"].isna().all()


def test_figure_2_compares_the_published_best_with_the_others():
    runs = synthetic.predictions()
    migration_costs = papers_predicted.migration_costs(runs)
    assert len(migration_costs) == 6
    best = {each.cores: each.best_ns for each in migration_costs}
    assert best == {2: 0, 4: 0, 6: 500_000}
    assert all(
        set(each.lower) == set(papers_predicted.COSTS_NS) - {each.best_ns}
        for each in migration_costs
    )
    worse = runs["mode"] == papers_predicted.cost_mode(5_000_000)
    runs.loc[worse, ["k_rcv_us", "pdr"]] *= 2
    for cost in papers_predicted.migration_costs(runs):
        assert cost.directions[5_000_000] is Direction.REPRODUCED
        assert cost.lower[5_000_000].estimate == pytest.approx(50)


def test_a_known_ablation_is_decomposed():
    parts = {"placement": 0.75, "wakeup_granularity_ns": 0.5}
    ablation = papers_predicted.ablation(synthetic.predictions(0.4, parts=parts), "k_rcv_us")
    assert ablation.whole.excludes_zero
    whole = ablation.whole.estimate
    assert whole == pytest.approx(0.4 * ablation.baseline.estimate)
    by_name = {part.name: part for part in (*ablation.mechanisms, *ablation.settings)}
    for name, part in by_name.items():
        share = parts.get(name, 0.0)
        assert part.part.estimate == pytest.approx(share * whole, abs=1e-6), name
        assert part.left.estimate == pytest.approx((1 - share) * whole, abs=1e-6), name
        assert (part.part.low <= 0 <= part.part.high) == (share == 0)


def test_an_undetected_effect_names_the_detectable_effect():
    runs = synthetic.predictions()
    here = (runs["cores"] == ABLATED[0]) & (runs["threads"] == ABLATED[1])
    here &= runs["cps"] == ABLATED[2]
    noise = np.random.default_rng(5).normal(400, 40, here.sum())
    runs.loc[here, "k_rcv_us"] = noise
    ablation = papers_predicted.ablation(runs, "k_rcv_us")
    assert not ablation.whole.excludes_zero
    # the detectable effect is 2.13 + 0.87 standard errors of a difference (Student's t with 15 degrees of freedom)
    error = 40 * np.sqrt(2 / papers_predicted.ABLATION_REPETITIONS)
    assert ablation.detectable == pytest.approx(3.0 * error, rel=0.4)


def test_a_file_of_other_columns_is_refused(tmp_path):
    path = tmp_path / "papers.csv"
    with pytest.raises(StableError, match="no such file; snakemake"):
        papers_predicted.load_predictions(path)
    runs = synthetic.predictions()
    runs.to_csv(path, index=False)
    pd.testing.assert_frame_equal(
        papers_predicted.load_predictions(path), runs.reset_index(drop=True), check_dtype=False
    )
    runs.drop(columns="calls").to_csv(path, index=False)
    with pytest.raises(StableError, match="expected the columns part, mode"):
        papers_predicted.load_predictions(path)
