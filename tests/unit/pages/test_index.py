"""Tests of the overview, on campaigns with known capacities and effects."""

import dataclasses

import pytest
import synthetic

from sipsched.analysis import advice, papers, run_table
from sipsched.analysis.capacity.evidence import collect
from sipsched.analysis.probe_cost import probe_costs
from sipsched.errors import StableError
from sipsched.pages import outline, parts, tables
from sipsched.pages.capacities import apart, disagreements, doubts_near, estimate
from sipsched.pages.index import campaigns as index
from sipsched.pages.index import tiles
from sipsched.pages.outline import write_outline
from sipsched.records.system_capacity import Searched
from sipsched.records.windows import write_windows

LOADS = {500, 1000, 1500, 2000}


def read(folder, planned, given=synthetic.plausible):
    (result,) = run_table.read_campaigns([synthetic.write_study(folder, planned, given)])
    return synthetic.with_capacities(result)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    paths = synthetic.write_campaign(tmp_path_factory.mktemp("whole"))
    (result,) = run_table.read_campaigns(paths)
    return synthetic.with_capacities(result)


def test_the_diagram_names_the_six_timestamps_and_has_room_beside_it_on_a_wide_page():
    figure = index.diagram()
    for name in ("t_arr", "t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep"):
        assert f">{name}</text>" in figure.wide
    assert figure.wide != figure.narrow


def test_studies_of_a_testbed_are_combined_and_each_run_occurs_once(whole):
    assert whole.studies == ("load_sweep", "modes", "control")
    assert len(whole.runs) == 12 + 1 + 24 + 6
    tally = whole.runs["status"].value_counts()
    assert tally.to_dict() == {"measured": 40, "missing": 1, "invalid": 1, "impossible": 1}
    invalid = whole.runs[whole.runs["status"] == "invalid"].iloc[0]
    assert (invalid["cps"], invalid["rep"], invalid["reasons"]) == (
        *(500, 2),
        str(synthetic.LATE),
    )
    impossible = whole.runs[whole.runs["status"] == "impossible"].iloc[0]
    assert impossible["reasons"] == "the run needs 4 cores, but the SPS has 1"
    assert len(whole.attempts) == 2


def overview(*campaigns, compared=(), pages=()):
    """Return the three tiles (short answers) for the first testbed on the overview, and the figures."""
    (first, *_) = tiles.overview(campaigns, 0.01, compared, pages).parts
    shown, *figures = first.parts
    return *shown.tiles, figures


def test_the_tiles_of_a_campaign_answer_with_evidence_and_a_page(whole):
    load, time, setting, figures = overview(whole, pages=["load_sweep-synthetic.html"])
    best, _ = tiles.main_system(whole, 0.01)
    assert load.value.startswith(f"{estimate(best)}\u00a0calls per second (")
    assert load.meaning.startswith("kamailio-udp, default mode, 1 core, 8 threads")
    assert synthetic.FIDELITY.rstrip(".") in load.trust and "0 trials and 10 runs" in load.trust
    assert time.value.endswith(("µs or longer", "ms or longer"))
    assert "The load is 1\u202f000 calls per second" in time.meaning
    assert f"at {100_000 / best.estimate_cps:.0f}\u00a0% of the capacity?" in time.question
    assert "3 runs with" in time.trust
    assert load.link == time.link == "load_sweep-synthetic.html"
    document, *_ = overview(whole, pages=["load_sweep.html", "modes-elsewhere.html"])
    assert document.link == "load_sweep.html"
    assert (setting.value, setting.grade, setting.link) == ("Not measured", "No evidence", "")
    assert [figure.identity for figure in figures] == [
        "figure-overview-pdr-synthetic",
        "figure-overview-ccdf-synthetic",
    ]
    assert len(figures[1].seen) == 3


@pytest.mark.parametrize(
    ("runs", "half_width", "doubts", "grade"),
    [
        (6, 0.1, (), "Strong evidence"),
        (6, 0.1, ("a doubt",), "Fair evidence"),
        (5, 0.1, (), "Fair evidence"),
        (6, 0.26, (), "Weak evidence"),
        (3, 0.01, (), "Weak evidence"),
        (9, float("inf"), (), "Weak evidence"),
    ],
)
def test_evidence_is_graded_by_runs_interval_and_doubts(runs, half_width, doubts, grade):
    assert tiles.graded(runs, half_width, doubts) == grade


def test_the_capacity_lies_between_the_two_loads_around_it(whole):
    best, _ = tiles.main_system(whole, 0.01)
    assert 1500 < best.estimate_cps < 2000
    assert best.low_cps < best.estimate_cps < best.high_cps


def test_the_tiles_describe_the_system_of_the_most_trials_and_runs(whole):
    system, _ = tiles.main_system(whole, 0.01)
    more = dataclasses.replace(
        system, cores=2, threads=4, trials=1, runs=1, estimate_cps=2800, low_cps=2300, high_cps=3400
    )
    both = dataclasses.replace(whole, capacities=(more, system))
    assert tiles.main_system(both, 0.01)[0] == system
    load, *_ = overview(both)
    assert "2 cores and 4 threads handle more" in load.meaning
    assert "2\u202f800" in load.meaning
    assert "apart" not in load.meaning


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("2026-11-22T22:06:00+00:00", ""),
        (None, ""),
        ("2026-11-23T00:26:00+00:00", "3 hours apart"),
        ("2026-11-27T20:26:00+00:00", "5 days apart"),
    ],
)
def test_capacities_from_other_hours_are_compared_with_a_warning(whole, second, words):
    system, _ = tiles.main_system(whole, 0.01)
    one, other = (
        dataclasses.replace(system, searches=(Searched(1500, 2000, start),))
        for start in ("2026-11-22T21:26:00+00:00", second)
    )
    assert words in apart(one, other)
    assert bool(apart(one, other)) == bool(words)


def test_a_search_that_disagrees_is_named_with_the_reason(whole):
    """Check three searches: one agrees, one is from a slower machine, and one has no difference in CPU time."""
    held, slow, chance = (
        Searched(1500, 2000, "2026-11-22T21:26:00+00:00", None, 1.2),
        Searched(1400, 1600, "2026-11-22T21:26:00+00:00", None, 1.12),
        Searched(1400, 1600, "2026-11-22T21:26:00+00:00", None, 1.01),
    )
    told = [
        " ".join(disagreements(synthetic.capacity(1775, searches=(search,))))
        for search in (held, slow, chance)
    ]
    assert not told[0]
    assert "between 1\u202f400 and 1\u202f600 cps" in told[1]
    assert "12 % more CPU time than in the runs, so the machine was slower" in told[1]
    assert "the range that the search found is based on only a few trials of one minute" in told[2]


def test_a_capacity_beyond_all_loads_is_a_bound(whole):
    above, below = (
        dataclasses.replace(whole, capacities=(synthetic.capacity(None, **more),))
        for more in ({"highest_cps": 1800}, {"dropped": True, "lowest_cps": 600})
    )
    load, time, *_ = overview(above)
    assert (load.value, load.grade) == ("at least 1\u202f800 calls per second", "A bound only")
    assert "Measure a load above 1\u202f800 cps." in load.meaning
    assert "of the highest offered load" in time.meaning
    load, time, *_ = overview(below)
    assert (load.value, load.grade) == ("less than 600 calls per second", "A bound only")
    assert (time.value, time.grade) == ("Not measured", "No evidence")


def test_only_doubtful_runs_near_the_capacity_make_it_doubtful(whole):
    best, _ = tiles.main_system(whole, 0.01)
    for cps, is_near in ((1500, True), (500, False)):
        grades = whole.runs["grade"].where(whole.runs["cps"] != cps, "suspect")
        doubtful = dataclasses.replace(whole, runs=whole.runs.assign(grade=grades))
        result = doubts_near(tiles._rows(doubtful, best), best)
        assert any("are suspect" in doubt for doubt in result) == is_near
        load, *_ = overview(doubtful)
        assert all(doubt in load.trust for doubt in result)


def test_simulated_runs_are_not_called_measured(whole):
    assert whole.kind == "simulated"
    assert index.when(whole).startswith("Simulated 20")
    assert index.when(dataclasses.replace(whole, kind="local")).startswith("Measured 20")


def test_without_measurements_every_tile_says_so(tmp_path):
    result = read(tmp_path, synthetic.repeated(), lambda run: None)
    *shown, figures = overview(result)
    assert all((tile.value, tile.grade) == ("Not measured", "No evidence") for tile in shown)
    assert all(tile.figure is None and not tile.link for tile in shown)
    assert figures == []
    modes, counts, cost = (answer for _, answer in index.details(result).pairs)
    assert modes.startswith("Not measured: ") and "cost of the probe was not measured" in cost
    assert counts.startswith("0 of 12 planned runs") and "12 missing" in counts
    assert index.when(result) == "No valid run was measured."


def test_one_load_has_no_capacity(tmp_path):
    load, time, *_ = overview(read(tmp_path, synthetic.repeated((500,))))
    assert (load.value, time.value) == ("Not measured", "Not measured")


def test_a_probe_without_bpf_is_reported(tmp_path):
    result = read(tmp_path, synthetic.repeated(n=1), lambda run: {"mode": 3})
    cost = index.details(result).pairs[-1][1]
    assert (
        "k_sockq (the preload library cannot take the timestamp t_stack, which needs eBPF)" in cost
    )


def test_testbeds_are_shown_separately(tmp_path):
    here, there = (
        synthetic.write_study(tmp_path, synthetic.repeated((500,), testbed=name))
        for name in ("a", "b")
    )
    campaigns = run_table.read_campaigns([here, there])
    assert [each.testbed for each in campaigns] == ["a", "b"]
    table = index.coverage(campaigns)
    assert [row[:4] for row in table.rows] == [
        ("a", "kamailio-udp", "3", "3"),
        ("b", "kamailio-udp", "3", "3"),
    ]


def test_the_averages_of_a_whole_comparison_belong_to_no_mode(tmp_path):
    """Plan, count and grade runs that compare modes, but exclude their averages, which belong to no single mode."""
    mixed = synthetic.repeated(mode="default,batch")
    result = read(tmp_path, [*synthetic.repeated(), *mixed])
    assert len(result.counted) == 24
    assert set(result.traced["mode"]) == {"default"}
    assert result.comparisons == mixed
    assert run_table.facets(result.first) == [("kamailio-udp", "default", 1)]
    assert index.counting(result).startswith("24 of 24 planned runs")
    assert {row[0] for row in tables.drops(result.first).rows} == {"kamailio-udp"}
    assert {row[1] for row in tables.drops(result.first).rows} == {"default"}
    assert len(tables.arrivals(result.first).rows) == 8
    path = tmp_path / "results" / "load_sweep" / "synthetic" / "summary.nc"
    evidence = collect(papers.load_points(), [path], resamples=99)
    assert {each.mode for each in evidence.own} == {"default"}


def test_a_campaign_with_only_comparisons_has_no_capacity(tmp_path):
    result = read(tmp_path, synthetic.repeated(mode="default,batch"))
    load, time, *_ = overview(result)
    assert (load.value, time.value) == ("Not measured", "Not measured")
    modes, counts, _ = (answer for _, answer in index.details(result).pairs)
    assert modes.startswith("Not measured")
    assert counts.startswith("12 of 12 planned runs")


def test_modes_compared_within_runs_have_their_answer_on_their_testbed(tmp_path):
    result = read(tmp_path, synthetic.repeated())
    effects = {"default": {}, "fifo": {"total_p99": -0.5}}
    runs = [
        synthetic.windows(synthetic.Run(mode="default,fifo", testbed=bed, sut=sut), effects)
        for bed, sut in (("synthetic", "kamailio-udp"), ("elsewhere", "opensips-udp"))
    ]
    compared = advice.advise(advice.loads_of(runs), quantities=())
    *_, setting, _ = overview(result, compared=compared)
    assert setting.value == "fifo"
    assert setting.meaning.startswith("kamailio-udp, 1 core, 8 threads")
    assert "opensips" not in setting.meaning
    assert setting.grade == "Weak evidence" and "1 run per comparison" in setting.trust
    (there,) = [each for each in compared if each.place.testbed == "elsewhere"]
    *_, unknown, _ = overview(result, compared=[there])
    assert unknown.value == "Not measured"


def test_the_papers_settings_are_compared_within_runs_if_no_pairs_of_runs_exist(tmp_path):
    result = read(tmp_path, synthetic.repeated())
    effects = {"baseline": {}, "enhanced": {"total_p99": -0.5}}
    runs = [
        synthetic.windows(synthetic.Run(mode="baseline,enhanced", testbed=bed), effects)
        for bed in ("synthetic", "elsewhere")
    ]
    here, elsewhere = advice.advise(advice.loads_of(runs), quantities=())
    (_, text), *_ = index.details(result, compared=[here, elsewhere]).pairs
    assert "1 run alternated" in text and "which is more than chance explains" in text
    assert "by −41\xa0%" in text
    (_, text), *_ = index.details(result, compared=[elsewhere]).pairs
    assert text.startswith("Not measured")


def test_a_setting_that_changes_nothing_is_not_advised(tmp_path):
    result = read(tmp_path, synthetic.repeated())
    run = synthetic.windows(synthetic.Run(mode="default,fifo"), {"default": {}, "fifo": {}})
    *_, setting, _ = overview(result, compared=advice.advise(advice.loads_of([run]), quantities=()))
    assert setting.value == "Keep the kernel's default"


def test_the_cost_of_the_probe_comes_from_windows_if_windows_exist(tmp_path):
    result = read(tmp_path, synthetic.repeated((500,)))
    run = synthetic.Run(mode="default,default+recording=off", cps=500)
    effects = {"default": {}, "default+recording=off": {"cpu_per_message": -0.1}}
    path = tmp_path / "windows.nc"
    write_windows(synthetic.windows(run, effects), path)
    cost = index.probing(result, probe_costs([path]))
    assert cost.startswith(
        "kamailio-udp, default mode at 500 cps: the probe changes the proxy's CPU time per message by +"
    )
    assert "two windows with the same setting" in cost
    assert index.probing(result).startswith("The cost of the probe was not measured")


def test_without_a_summary_the_page_says_which_command_to_run():
    with pytest.raises(StableError, match="make reports"):
        run_table.read_campaigns([])


def test_links_show_the_title_of_a_page(tmp_path):
    page, path = parts.Page("1 < 2", ()), tmp_path / "a.json"
    write_outline(page, tmp_path / "a.html", path)
    link = index.links(index.other_pages([str(path)]))
    assert link.pages == (("a.html", "1 < 2"),)
    assert '<a href="a.html">1 &lt; 2</a>' in link._repr_html_()


def test_pages_of_a_folder_below_are_linked_if_it_has_no_overview(tmp_path, monkeypatch):
    monkeypatch.setattr(outline, "PROJECT_ROOT", tmp_path)
    for name in ("virtual/a.html", "own/a.html", "own/index.html"):
        page = tmp_path / "reports/recorded" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("<title>1 &lt; 2</title>", encoding="utf-8")
    links = index.links([outline.Outline("reports/recorded/b.html", "b")])
    assert links.pages == (("b.html", "b"), ("virtual/a.html", "1 < 2"))


def test_pairs_have_the_same_arrivals(whole):
    paired = run_table.pairs(whole.counted, "pdr", "baseline", "default")
    assert {key[-1] for key in paired} == LOADS
    # at 500 cps, one repetition was missing and one was never valid
    assert len(paired["kamailio-udp", 1, 8, 500][0]) == 1
    assert run_table.pairs(whole.counted, "pdr", "baseline", "nobody") == {}
