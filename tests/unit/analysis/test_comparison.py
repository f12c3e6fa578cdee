"""Baseline beside enhanced, and both beside the papers, on data whose truth is known."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import synthetic

from sipsched.analysis import comparison, papers
from sipsched.analysis.comparison import Place
from sipsched.pages import modes_figures, modes_tables
from sipsched.plan import config

MODES = ("baseline", "enhanced")
EIGHT = Place("kamailio-udp", 1, 8)
TABLES = (modes_tables.measurements, modes_tables.crossing_loads)
FIGURES = (
    modes_figures.load_curves,
    modes_figures.crossing_loads,
    modes_figures.parts,
    modes_figures.types,
)


def plan(cores=(1,), threads=(8,), cps=(1800, 1900, 2000), reps=5, modes=MODES):
    axes = itertools.product(modes, cores, threads, cps, range(1, reps + 1))
    return [
        synthetic.Run(mode=mode, cores=c, threads=t, cps=load, rep=rep)
        for mode, c, t, load, rep in axes
    ]


def case_of(planned, outcome=synthetic.two_modes, **more):
    ds = synthetic.combined(planned, outcome)
    values = {"reference": "baseline", "other": "enhanced"} | more
    return comparison.Case(ds, papers.load_points(), papers.load_comparison(), **values)


def everything(case):
    """Render every figure and table; what they say, as text."""
    family = comparison.family(case)
    shown = [make(case) for make in (*TABLES, *FIGURES)]
    shown += [modes_tables.settings(case), modes_tables.settings_words(case)]
    for make in (modes_tables.comparisons, modes_tables.both_loads):
        shown.append(make(case, family))
    shown += [
        modes_tables.verdict(case, family),
        modes_figures.percent_lower(case, family),
        modes_tables.parts(case, comparison.family_of_parts(case)),
        modes_tables.types(case, comparison.family_of_types(case)),
    ]
    return "".join(each._repr_html_() for each in shown)


def test_percent_lower_is_what_the_mode_does():
    case = case_of(plan())
    assert comparison.compared_load(case, EIGHT) == 2000
    family = comparison.family(case)
    assert family.tests == 4  # two loads around the crossings, two quantities
    assert family.level == pytest.approx(1 - 0.05 / 4)
    for name, percent in (("pdr", 40), ("k_rcv", 30)):
        cell = family.at(EIGHT, 2000, name)
        assert cell.comparison.percent_lower.estimate == pytest.approx(percent)
        assert cell.comparison.percent_lower.n == 5
        assert cell.p_value < 0.05
    words = modes_tables.verdict(case, family).lines
    assert "PDR under enhanced (EEVDF translation) is 40\u00a0% lower" in words[0]
    assert words[0].endswith("more than chance.")


def test_modes_that_do_nothing_differ_within_chance():
    def alike(run):
        rng = np.random.default_rng([run.cps, run.rep, run.mode == "enhanced"])
        luck = np.exp(0.2 * rng.standard_normal())
        return synthetic.two_modes(run) | {"pdr": 0.02 * luck, "k_rcv_mean": 300 * luck}

    case = case_of(plan(), alike)
    lines = modes_tables.verdict(case, comparison.family(case)).lines
    assert len(lines) == 2
    assert all(line.endswith("within chance.") for line in lines)


def test_what_other_loads_and_modes_bring_changes_no_comparison():
    case = case_of(plan())
    more = case_of(
        plan(modes=("default", *MODES), cps=(500, 1800, 1900, 2000, 2400)),
    )
    for name in ("pdr", "k_rcv"):
        cells = [comparison.family(each).at(EIGHT, 2000, name) for each in (case, more)]
        assert cells[0] == cells[1]


def test_the_papers_table_beside_this_testbed():
    case = case_of(plan())
    baseline, enhanced = modes_tables.measurements(case).parts
    rows = {row[0]: row[1:] for row in baseline.rows}
    # what is measured comes first: 8 threads, the last load under the limit and the first above it
    assert baseline.groups[1:3] == (
        ("8 threads, last ≤\u00a01\u00a0%", 3),
        ("8 threads, first >\u00a01\u00a0%", 3),
    )
    assert sum(span for _, span in baseline.groups) == len(baseline.header) == len(baseline.rows[0])
    assert rows["Load (cps)"][3:6] == ("1800", "2\u202f000", "+11.1")
    assert rows["Runs (n)"][3:6] == ("30", "5", "–")
    assert rows["PDR"][3] == "0.018"
    mean = np.mean([synthetic.two_modes(run)["pdr"] for run in plan() if run.cps == 2000][:5])
    assert rows["PDR"][4].startswith(f"{mean:.3g} (")
    assert rows["PDR"][5].startswith(f"+{100 * (mean / 0.018 - 1):.3g} (")
    # of counts the difference is one per call: 6 messages a call here, 447876 / 200000 there
    assert rows["Total messages"][3:5] == ("447876", "96\u202f000 (96\u202f000 to 96\u202f000)")
    assert rows["Total messages"][5].startswith("+168 (")
    assert rows["Call-setup messages"][3:6] == (
        *("not printed", "64\u202f000 (64\u202f000 to 64\u202f000)", "–"),
    )
    assert rows["PDR"][6:9] == ("0.0062", "not measured", "–")
    assert "Table I (baseline), beside baseline (EEVDF translation) on this testbed" in (
        baseline.caption
    )
    assert "Table II (enhanced)" in enhanced.caption


def test_the_parts_add_up():
    values = comparison.quantities(case_of(plan()).summary)
    run = next(run for run in plan() if run.mode == "baseline")
    truth = synthetic.two_modes(run)
    at = {"mode": "baseline", "cps": run.cps, "rep": run.rep}
    expected = 3 + 6 + 2 + truth["t_sip_mean"] + 8
    assert values["service"].sel(at).item() == pytest.approx(expected)
    assert values["t_sip_off_share"].sel(at).item() == pytest.approx(100 / 3)
    refused = comparison.refused_share(case_of(plan()).summary)
    assert refused.sel(at | {"message_type": "ACK"}).item() == pytest.approx(100 * truth["pdr"])


def test_crossing_loads_beside_the_papers():
    case = case_of(plan())
    table = modes_tables.crossing_loads(case)
    rows = {row[:2]: row[2:] for row in table.rows}
    here = rows["1 core, 8 threads", "baseline (EEVDF translation)"]
    assert here[:2] == ("1600", "1800")
    assert here[3:5] == ("1\u202f900", "2\u202f000")
    crossing = comparison.capacity_of(case, EIGHT, "baseline").crossing.interval
    assert crossing.estimate == pytest.approx(1900, rel=0.01)
    # log-linear: 0.6 of the drops are reached where the load is log(1/0.6)/log(6)/10 = 2.9 % more
    more = comparison.more_load(case, EIGHT, "enhanced", 0.95)
    assert more.low < 2.9 < more.high + 1
    assert rows["1 core, 2 threads", "enhanced (EEVDF translation)"][3] == "not planned"


def test_tables_are_chosen_by_cores():
    case = case_of(plan(cores=(2, 6), threads=(4,), cps=(3000, 4000)))
    captions = [table.caption for table in modes_tables.measurements(case).parts]
    for caption, table in zip(captions, ("I", "II", "VII", "VIII"), strict=True):
        assert f"Multi-core paper, Table {table} (" in caption
    compared = modes_tables.comparisons(case, comparison.family(case)).parts
    assert [table.caption.split(",")[1] for table in compared] == [" Table III", " Table IX"]


def test_a_translated_mode_never_goes_by_its_plain_name():
    text = everything(case_of(plan(threads=(2, 8))))
    for cell in (">enhanced<", ">baseline<"):
        assert cell not in text
    labelled = comparison.labelled(case_of(plan()).summary)
    assert labelled["mode"].to_numpy().tolist() == [f"{mode} (EEVDF translation)" for mode in MODES]


def test_equal_settings_are_named():
    case = case_of(plan(threads=(2, 8)))
    assert comparison.same_settings(case, Place("kamailio-udp", 1, 2)) is True
    assert comparison.same_settings(case, EIGHT) is False
    lines = modes_tables.settings_words(case).lines
    assert any(
        "1 core, 2 threads: baseline (EEVDF" in line and "same settings" in line for line in lines
    )
    assert "Their settings differ at: 1 core, 8 threads." in lines
    assert "no such thing" in modes_tables.settings(case)._repr_html_()


@pytest.mark.parametrize("modes", [(), ("baseline",), ("enhanced",)])
def test_half_measured_studies_still_render(modes):
    def outcome(run):
        return synthetic.two_modes(run) if run.mode in modes else None

    case = case_of(plan(), outcome)
    text = everything(case)
    assert "not measured: 15 missing" in text
    assert "nan" not in text.lower().replace("dominant", "")
    assert comparison.same_settings(case, EIGHT) is None


def test_one_run_a_point_says_that_it_is_too_few():
    case = case_of(plan(reps=1))
    text = everything(case)
    assert "too few for an interval" in text
    assert comparison.family(case).tests == 0


def test_a_probe_without_parts_and_loads_that_never_pass_the_limit():
    def outcome(run):
        values = synthetic.two_modes(run)
        missing = ("k_stack", "k_sockq", "k_copy", "t_sip_off", "k_snd")
        values |= {f"{name}_mean": np.nan for name in missing}
        return values | {"pdr": 0.0, "k_sockq_alone": np.nan, "probe_mode": "preload"}

    case = case_of(plan(), outcome)
    text = everything(case)
    assert "not seen by the probe" in text
    assert "none: PDR ≤ 1\u00a0% up to 2000 cps" in text
    assert "undefined: the reference is 0 in every run" in text
    assert comparison.compared_load(case, EIGHT) == 2000


def test_several_proxies_are_told_apart():
    runs = [
        dataclasses.replace(r, sut=sut) for sut in ("kamailio-udp", "opensips-udp") for r in plan()
    ]
    text = everything(case_of(runs))
    assert "opensips-udp, 1 core, 8 threads" in text
    assert 'id="table-measurements-opensips-udp-1-enhanced"' in text


def test_invalid_runs_are_named():
    ds = synthetic.combined(
        plan(), lambda run: None if run.mode == "enhanced" else synthetic.two_modes(run)
    )
    ds["status"].loc[{"mode": "enhanced", "rep": [1, 2]}] = "invalid"
    assert (
        comparison.why_not_measured(ds, EIGHT, "enhanced") == "not measured: 6 invalid, 9 missing"
    )
    assert comparison.why_not_measured(ds, Place("kamailio-udp", 1, 4), "enhanced") == "not planned"


def test_the_search_behind_the_loads_is_shown(tmp_path):
    path = tmp_path / "crossing.json"
    point = config.Run("bed", "a", "baseline", 1, 8, 0, 0)
    path.write_text(json.dumps(synthetic.crossing(point, 900, 1000)))
    table = modes_tables.searches(case_of(plan()), [path])
    assert table.rows == (
        ("baseline, 1 core, 8 threads", "1", "4000", "6", "50"),
        ("baseline, 1 core, 8 threads", "2", "900", "6", "0"),
    )
    assert "baseline, 1 core, 8 threads: between 900 and 1000 cps" in table.caption
    assert modes_tables.searches(case_of(plan()), []).rows == ()


def test_numbers_without_meaning_are_told_as_bounds():
    assert comparison.signed(-3e31) == "below −9\u202f999"
    assert comparison.plain(np.inf) == "above 9\u202f999"
    assert comparison.plain(12.3) == "12.3"
    assert comparison.signed(-12.3) == "−12.3"
    assert comparison.signed(0) == "0"
