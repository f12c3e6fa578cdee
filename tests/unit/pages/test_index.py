"""The five sentences, on campaigns whose truth is known."""

import dataclasses

import pytest
import synthetic

from sipsched.analysis import advice, papers, run_table
from sipsched.analysis.capacity.evidence import collect
from sipsched.analysis.probe_cost import probe_costs
from sipsched.errors import StableError
from sipsched.pages import index, tables
from sipsched.records.windows import write_windows

LOADS = {500, 1000, 1500, 2000}


def read(folder, planned, given=synthetic.plausible):
    (found,) = run_table.read_campaigns([synthetic.write_study(folder, planned, given)])
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    paths = synthetic.write_campaign(tmp_path_factory.mktemp("whole"))
    (found,) = run_table.read_campaigns(paths)
    return found


def test_studies_of_a_testbed_are_put_together_and_each_run_is_there_once(whole):
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
    assert impossible["reasons"] == "it asks for 4 cores, the SPS has 1"
    assert len(whole.attempts) == 2


def test_five_sentences_of_a_whole_campaign(whole):
    answers = index.answers(whole)
    told = [answer for _, answer in answers.pairs]
    assert len(told) == 5
    assert all(answer.endswith(".") for answer in told)
    assert all("not measured" not in answer.lower() for answer in told[:-1])
    load, modes, wait, counts, cost = told
    assert load.startswith(
        "kamailio-udp, mode default, 1 core, 8 threads, carries between 1\u202f500 and"
    )
    assert "n = 10" in load
    assert "kamailio-udp at 1500 cps" in modes or "kamailio-udp at 2000 cps" in modes
    assert "changes the mean wait K_rcv by −" in modes
    assert "of 4 points compared, K_rcv stands out at" in modes
    assert "at 1000 cps, the measured load nearest to half" in wait
    assert "40 of 43 planned runs count" in counts
    assert "1 invalid, 1 missing, 1 impossible" in counts
    assert (
        "attempts that did not count and were made again: 2, most often (2) because one call"
        in counts
    )
    assert "more than N µs late" in counts
    assert cost.startswith("Not measured: no run stills the probe in some of its windows")
    assert "the probe was off" not in cost


def test_capacity_lies_between_the_loads_that_bracket_it(whole):
    best = index.best_configuration(whole)
    assert 1500 < best.estimate_cps < 2000
    assert best.capacity.grid_cps == 1500


def test_what_was_simulated_was_not_measured(whole):
    assert whole.kind == "simulated"
    assert index.when(whole).startswith("Simulated 20")
    assert index.when(dataclasses.replace(whole, kind="local")).startswith("Measured 20")


def test_each_sentence_says_what_was_not_measured(tmp_path):
    found = read(tmp_path, synthetic.repeated(), lambda run: None)
    told = [answer for _, answer in index.answers(found).pairs]
    counts = told.pop(3)
    assert all(answer.startswith("Not measured: ") for answer in told)
    assert counts.startswith("0 of 12 planned runs count")
    assert "12 missing" in counts
    assert index.when(found) == "Nothing was measured."


def test_one_load_has_no_capacity(tmp_path):
    found = read(tmp_path, synthetic.repeated((500,)))
    load, _, wait, *_ = (answer for _, answer in index.answers(found).pairs)
    assert load.startswith("Not measured: no configuration has runs that count at two loads")
    assert wait.startswith("Not measured")


def test_a_probe_without_bpf_is_said(tmp_path):
    found = read(tmp_path, synthetic.repeated(n=1), lambda run: {"mode": 3})
    cost = index.answers(found).pairs[-1][1]
    assert "k_sockq (the preload fallback cannot see t_stack; it needs eBPF)" in cost


def test_testbeds_stay_apart(tmp_path):
    here, there = (
        synthetic.write_study(tmp_path, synthetic.repeated((500,), testbed=name))
        for name in ("a", "b")
    )
    found = run_table.read_campaigns([here, there])
    assert [each.testbed for each in found] == ["a", "b"]
    table = index.coverage(found)
    assert [row[:4] for row in table.rows] == [
        ("a", "kamailio-udp", "3", "3"),
        ("b", "kamailio-udp", "3", "3"),
    ]


def test_the_whole_of_a_comparison_is_of_no_mode(tmp_path):
    """Its runs are planned, counted and graded; what they average belongs to no mode."""
    mixed = synthetic.repeated(mode="default,batch")
    found = read(tmp_path, [*synthetic.repeated(), *mixed])
    assert len(found.counted) == 24
    assert set(found.traced["mode"]) == {"default"}
    assert found.comparisons == mixed
    assert run_table.facets(found.first) == [("kamailio-udp", "default", 1)]
    assert index.counting(found).startswith("24 of 24 planned runs count")
    assert {row[0] for row in tables.points(found.first).rows} == {"kamailio-udp"}
    assert {row[1] for row in tables.points(found.first).rows} == {"default"}
    assert len(tables.arrivals(found.first).rows) == 8
    path = tmp_path / "results" / "load_sweep" / "synthetic" / "summary.nc"
    evidence = collect(papers.load_points(), [path], resamples=99)
    assert {each.mode for each in evidence.own} == {"default"}


def test_a_campaign_of_comparisons_alone_has_no_capacity(tmp_path):
    found = read(tmp_path, synthetic.repeated(mode="default,batch"))
    load, modes, wait, counts, _ = (answer for _, answer in index.answers(found).pairs)
    assert all(answer.startswith("Not measured") for answer in (load, modes, wait))
    assert counts.startswith("12 of 12 planned runs count")


def test_modes_compared_within_runs_have_their_answer_on_their_testbed(tmp_path):
    found = read(tmp_path, synthetic.repeated())
    effects = {"default": {}, "fifo": {"total_p99": -0.5}}
    runs = [
        synthetic.windows(synthetic.Run(mode="default,fifo", testbed=bed, sut=sut), effects)
        for bed, sut in (("synthetic", "kamailio-udp"), ("elsewhere", "opensips-udp"))
    ]
    compared = advice.advise(advice.loads_of(runs), quantities=())
    pairs = dict(index.answers(found, compared=compared).pairs)
    assert len(pairs) == 6
    assert pairs[index.WITHIN].startswith(
        "kamailio-udp, 1 core, 8 threads: at 1\u202f000 cps set fifo"
    )
    assert "opensips" not in pairs[index.WITHIN]
    assert len(index.answers(found).pairs) == 5


def test_the_probes_cost_is_told_by_windows_where_there_are_any(tmp_path):
    found = read(tmp_path, synthetic.repeated((500,)))
    run = synthetic.Run(mode="default,default+recording=off", cps=500)
    effects = {"default": {}, "default+recording=off": {"cpu_per_message": -0.1}}
    path = tmp_path / "windows.nc"
    write_windows(synthetic.windows(run, effects), path)
    cost = index.probing(found, probe_costs([path]))
    assert cost.startswith(
        "kamailio-udp, mode default at 500 cps: the probe changes the proxy's CPU time a message by +"
    )
    assert "the same mode against itself by" in cost
    assert index.probing(found).startswith("Not measured: no run stills the probe")


def test_no_summary_says_what_to_run():
    with pytest.raises(StableError, match="make reports"):
        run_table.read_campaigns([])


def test_links_go_by_the_title_of_a_page(tmp_path):
    page = tmp_path / "a.html"
    page.write_text("<!doctype html><title>\n1 &lt; 2 </title>")
    link = index.links([page])
    assert link.pages == (("a.html", "1 < 2"),)
    assert '<a href="a.html">1 &lt; 2</a>' in link._repr_html_()


def test_pairs_have_the_same_arrivals(whole):
    paired = run_table.pairs(whole.counted, "pdr", "mode", "baseline", "default")
    assert {key[-1] for key in paired} == LOADS
    # of 500 cps one repetition was missing and one never valid
    assert len(paired["kamailio-udp", 1, 8, 500][0]) == 1
    assert run_table.pairs(whole.counted, "pdr", "mode", "baseline", "nobody") == {}
