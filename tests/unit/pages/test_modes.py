"""Tests of the page that compares baseline and enhanced mode, on data with known effects."""

import dataclasses
from pathlib import Path

import numpy as np
import page_text
import pytest
import synthetic
from matplotlib.axes import Axes
from synthetic import modes_case as case_of
from synthetic import modes_plan as plan

from sipsched.analysis import comparison
from sipsched.analysis.comparison import ComparedQuantity, Place
from sipsched.analysis.intervals import typical_interval
from sipsched.pages.drawing import SERIES
from sipsched.pages.modes import (
    crossing_loads,
    load_curves,
    marks,
    measurements,
    message_time,
    percent_lower,
    settings,
)
from sipsched.pages.numbers import NO_ENTRY
from sipsched.pages.parts import Table
from sipsched.pages.plots import mode_look
from sipsched.plan.run import Point

MODES = ("baseline", "enhanced")
EIGHT = Place("kamailio-udp", 1, 8)
TABLES = (measurements.tables, crossing_loads.table)
FIGURES = (
    load_curves.figures,
    crossing_loads.figure,
    message_time.parts_figures,
)


def tables_in(part):
    return [each for each in page_text.parts(part) if isinstance(each, Table)]


def everything(case):
    """Make all figures and tables of the page, and return the words in them."""
    family = case.family()
    shown = [make(case) for make in (*TABLES, *FIGURES)]
    shown += [settings.table(case), settings.words(case)]
    for make in (percent_lower.tables, percent_lower.both_loads):
        shown.append(make(case, family))
    shown += [
        percent_lower.verdict(case, family),
        percent_lower.figure(case, family),
        message_time.parts_table(case, case.family_of_parts()),
        message_time.types_table(case, case.family_of_types()),
    ]
    return page_text.text(*shown)


def test_percent_lower_is_the_effect_of_the_mode():
    case = case_of(plan())
    assert case.compared_load(EIGHT) == 2000
    family = case.family()
    assert family.tests == 4  # two loads around the crossings, two quantities
    assert family.level == pytest.approx(1 - 0.05 / 4)
    for name, percent in (("pdr", 40), ("k_rcv", 30)):
        cell = family.cells[ComparedQuantity(EIGHT, 2000, name)]
        assert cell.comparison.percent_lower.estimate == pytest.approx(percent)
        assert cell.comparison.percent_lower.n == 5
        assert cell.p_value < 0.05


def drawn_by(monkeypatch, case, draw):
    """Call `draw`, and return the drawn points and the drawn error bars with the ends of each interval."""
    bars, points = [], []

    def errorbar(axis, x, y, xerr=None, **style):
        bars.append((x[0], None if xerr is None else (x[0] - xerr[0][0], x[0] + xerr[1][0])))
        points.append((np.ravel(x), axis, style))
        return original(axis, x, y, xerr=xerr, **style)

    def plot(axis, *args, **style):
        points.append((np.ravel(args[0]), axis, style))
        return original_plot(axis, *args, **style)

    original, original_plot = Axes.errorbar, Axes.plot
    monkeypatch.setattr(Axes, "errorbar", errorbar)
    monkeypatch.setattr(Axes, "plot", plot)
    for figure in getattr(shown := draw(case), "parts", [shown]):
        assert figure.wide
    return bars, points


def test_intervals_are_drawn_as_in_the_text_and_all_runs_are_visible(monkeypatch):
    """Draw five runs, of which the largest value is a thousand times the smallest value."""

    def wide(run):
        values = synthetic.two_modes(run)
        return values | {f"{name}_mean": 10.0**run.rep for name in ("k_sockq", "k_rcv", "t_sip")}

    case = case_of(plan(), wide)
    side = case.side(EIGHT, "baseline")
    mean = side.mean("k_sockq", case.compared_load(EIGHT))
    bars, points = drawn_by(monkeypatch, case, message_time.parts_figures)
    (ends,) = {ends for x, ends in bars if x == mean.estimate and ends}
    assert ends == pytest.approx((mean.low, mean.high))
    # all runs of K_sockq, from 10 to 100 000 µs, lie within the axis
    runs = [(x, axis.get_xlim()) for x, axis, _ in points if len(x) == 5 and x.max() == 1e5]
    assert runs
    assert all(low <= x.min() and x.max() <= high for x, (low, high) in runs)


def test_estimates_without_bounds_are_drawn_differently(monkeypatch):
    """Draw runs of which only one in five has drops, so the percentage has no bounds."""

    def rarely(run):
        return synthetic.two_modes(run) | {"pdr": 0.05 * (run.rep == 1)}

    case = case_of(plan(), rarely)
    family = case.family()
    cps = case.compared_load(EIGHT)
    fall = family.cells[comparison.ComparedQuantity(EIGHT, cps, "pdr")].comparison.percent_lower
    assert not fall.known
    bars, _ = drawn_by(monkeypatch, case, lambda case: percent_lower.figure(case, case.family()))
    assert {ends is None for x, ends in bars if x == fall.estimate} == {True}
    assert {ends is None for x, ends in bars if x != fall.estimate} == {False}


def test_an_increase_is_drawn_if_only_one_panel_has_it(monkeypatch):
    def longer(run):
        return synthetic.two_modes(run, k_rcv_ratio=1.8)

    case = case_of([run for run in plan() if run.rep <= 2], longer)
    _, points = drawn_by(monkeypatch, case, lambda case: percent_lower.figure(case, case.family()))
    increases = [(x.min(), axis.get_xlim()[0]) for x, axis, _ in points if x.min() < -50]
    assert increases
    assert all(low < x for x, low in increases)


def test_modes_without_effect_are_indistinguishable_from_chance():
    def alike(run):
        rng = np.random.default_rng([run.cps, run.rep, run.mode == "enhanced"])
        luck = np.exp(0.2 * rng.standard_normal())
        return synthetic.two_modes(run) | {"pdr": 0.02 * luck, "k_rcv_mean": 300 * luck}

    case = case_of(plan(), alike)
    lines = percent_lower.verdict(case, case.family()).lines
    assert len(lines) == 2
    assert all(line.endswith("Chance can explain this difference.") for line in lines)


def test_the_papers_percentage_stands_beside_the_paired_percentage():
    case = case_of(plan())
    (table,) = percent_lower.tables(case, case.family()).parts
    assert sum(span for _, span in table.groups) == len(table.header)
    rows = {row[1].partition(",")[0]: row for row in table.rows if row[0] == "8 threads"}
    published, here, difference = (
        rows[key] for key in ("published", "this testbed", "difference (%)")
    )
    # the papers' Table III: 8 threads, 1800 cps
    assert published[3:] == (
        *("0.018", "0.0113", "–", "37.22"),
        *("1974.84", "1321.15", "–", "33.08"),
    )
    baseline, enhanced = (case.side(EIGHT, mode).runs("pdr", 2000) for mode in MODES)
    assert here[6].interval.estimate == pytest.approx(100 * (1 - enhanced.mean() / baseline.mean()))
    assert difference[6].interval.estimate == pytest.approx(here[6].interval.estimate - 37.22)
    both = percent_lower.both_loads(case, case.family())
    assert all(len(row) == len(both.header) for row in both.rows)


def test_call_setup_drops_are_the_papers_share_of_rcv_errors():
    case = case_of(plan(), lambda run: synthetic.two_modes(run))
    side = case.side(EIGHT, "baseline")
    names = ("call_setup_drops", "rcv_errors", "call_setup_messages", "total_messages")
    drops, errors, setup, total = (side.runs(name, 2000) for name in names)
    assert np.array_equal(drops, errors * setup / total, equal_nan=True)


def test_the_papers_table_is_shown_beside_this_testbeds():
    case = case_of(plan())
    baseline, _ = measurements.tables(case).parts
    # measured numbers come first: 8 threads, at the last load under the limit and at the first load above the limit
    assert baseline.rows[0][0] == "8 threads"
    assert baseline.groups[1:] == (("last ≤\u00a01\u00a0%", 3), ("first >\u00a01\u00a0%", 3))
    rows = {row[1]: row[2:] for row in baseline.rows if row[0] == "8 threads"}
    assert sum(span for _, span in baseline.groups) == len(baseline.header) == len(baseline.rows[0])
    assert rows["Load (cps)"][3:6] == ("1\u202f800", "2\u202f000", "+11.1")
    assert rows["Runs (n)"][3:6] == ("30", "5", "–")
    assert rows["PDR"][3] == "0.018"
    rates = [synthetic.two_modes(run)["pdr"] for run in plan() if run.cps == 2000][:5]
    typical = typical_interval(rates).estimate
    assert rows["PDR"][4].interval.estimate == pytest.approx(typical)
    assert rows["PDR"][5].interval.estimate == pytest.approx(100 * (typical / 0.018 - 1))
    # the page compares counts per call: 6 messages per call on this testbed, 447876 / 200000 in the paper
    total, setup = (
        rows[f"{name} messages, difference per call"] for name in ("Total", "Call-setup")
    )
    assert total[3] == "447876"
    assert str(total[4]) == "96\u202f000"
    assert total[5].interval.estimate == pytest.approx(168, abs=0.5)
    assert (setup[3], setup[5]) == ("–", "–")
    # the table omits rows of the papers that this testbed did not measure, and its caption names these rows
    assert {row[0] for row in baseline.rows} == {"8 threads"}
    assert "2, 4, 6 and 16 threads" in baseline.caption


def test_times_beside_published_times_have_the_same_unit():
    def slow(run):
        return synthetic.two_modes(run) | {"k_rcv_mean": 2000.0 + run.rep}

    baseline, _ = measurements.tables(case_of(plan(), slow)).parts
    (cell,) = {str(row[6]) for row in baseline.rows if row[1] == "K_rcv (µs)"}
    assert cell.startswith("2\u202f00")


def test_an_undecided_comparison_is_neither_equality_nor_an_effect():
    """Compare two modes whose waits differ by a random factor. A small decrease would not be significant."""

    def alike(run):
        rng = np.random.default_rng([run.cps, run.rep, run.mode == "enhanced"])
        return synthetic.two_modes(run) | {
            "pdr": 0.0,
            "k_rcv_mean": 300 * np.exp(0.2 * rng.standard_normal()),
        }

    case = case_of(plan(), alike)
    family = case.family()
    cell = family.cells[ComparedQuantity(EIGHT, 2000, "k_rcv")]
    assert not cell.stands_out
    least = cell.comparison.least_significant_percent
    text = percent_lower.answer(case, family).line
    assert f"{least:.0f}\u00a0%" in text
    # an effect of this size, with the same scatter, has an interval that ends at 0
    ratio = cell.comparison.ratio
    assert (1 - least / 100) * ratio.high / ratio.estimate == pytest.approx(1)


def test_crossing_loads_are_shown_beside_the_papers():
    case = case_of(plan())
    table = crossing_loads.table(case)
    rows = {row[:2]: row[2:] for row in table.rows}
    here = rows["1 core, 8 threads", "baseline"]
    assert here[:2] == ("1\u202f600", "1\u202f800")
    assert here[3:5] == ("1\u202f900", "2\u202f000")
    crossing = case.side(EIGHT, "baseline").capacity.crossing.interval
    assert crossing.estimate == pytest.approx(1900, rel=0.01)
    # PDR grows sixfold per 10 % of load, so a load log(1/0.6)/log(6)/10 = 2.9 % higher makes up for 0.6 times the drops
    more = case.more_load(EIGHT, "enhanced", 0.95)
    assert more.low < 2.9 < more.high + 1
    assert rows["1 core, 2 threads", "enhanced"][3] == "not planned"


def test_tables_are_chosen_by_cores():
    case = case_of(plan(cores=(2, 6), threads=(4,), cps=(3000, 4000)))
    captions = [table.caption for table in tables_in(measurements.tables(case))]
    for caption, table in zip(captions, ("I", "II", "VII", "VIII"), strict=True):
        assert f"Multi-core paper, Table {table} (" in caption
    compared = percent_lower.tables(case, case.family()).parts
    assert [table.caption.split(",")[1] for table in compared] == [" Table III", " Table IX"]


def test_a_page_says_once_that_its_modes_are_translations():
    case = case_of(plan(threads=(2, 8)))
    assert percent_lower.answer(case, case.family()).line.count("EEVDF") == 1
    assert "EEVDF translation" not in everything(case)
    labelled = comparison.labelled(case.summary)
    assert labelled["mode"].to_numpy().tolist() == list(MODES)

    def genuine(run):
        return synthetic.two_modes(run) | {"mode_label": f"{run.mode} (without latency_ns)"}

    case = case_of(plan(), genuine)
    assert "translation" not in percent_lower.answer(case, case.family()).line
    assert case.both == tuple(f"{mode} (without latency_ns)" for mode in MODES)


def test_each_mode_has_a_curve_with_its_look_and_its_values():
    case = case_of(plan())
    (figure,) = load_curves.figures(case).parts
    for mode in MODES:
        assert mode_look(mode).color in SERIES
        assert f"{mode}, 2\u202f000 cps: " in figure.wide
    assert f"series{SERIES.index(mode_look('baseline').color)}" in figure.wide


def test_equal_settings_are_named():
    case = case_of(plan(threads=(2, 8)))
    assert case.same_settings(Place("kamailio-udp", 1, 2)) is True
    assert case.same_settings(EIGHT) is False
    assert "no such thing" in settings.table(case)._repr_html_()


def test_settings_name_the_sizes_that_share_them():
    sizes = {
        (row[1], row[0].partition(" ")[0]): row[-1]
        for row in settings.table(case_of(plan((1, 2), (4, 8), cps=(2000,), reps=2))).rows
    }
    shared = "1 core, 4, 8 threads; 2 cores, 4, 8 threads"
    assert sizes["sched_latency_ns", "baseline"] == shared
    assert sizes["sched_min_granularity_ns", "enhanced"] == shared


@pytest.mark.parametrize("modes", [(), ("baseline",), ("enhanced",)])
def test_partly_measured_studies_have_a_page(modes):
    def outcome(run):
        return synthetic.two_modes(run) if run.mode in modes else None

    case = case_of(plan(), outcome)
    text = everything(case)
    assert "not measured: 15 missing" in text
    assert "nan" not in text.lower().replace("dominant", "")
    assert case.same_settings(EIGHT) is None


def test_the_page_says_that_one_run_per_point_is_too_few():
    case = case_of(plan(reps=1))
    text = everything(case)
    assert "(one run)" in text
    assert "too few runs exist" in percent_lower.answer(case, case.family()).line
    assert case.family().tests == 0


def test_a_probe_without_parts_and_loads_that_never_pass_the_limit():
    def outcome(run):
        values = synthetic.two_modes(run)
        missing = ("k_stack", "k_sockq", "k_copy", "t_sip_off", "k_snd")
        values |= {f"{name}_mean": np.nan for name in missing}
        return values | {"pdr": 0.0, "k_sockq_alone": np.nan, "probe_mode": "preload"}

    case = case_of(plan(), outcome)
    text = everything(case)
    assert "not measured by the probe" in text
    assert "none: PDR ≤ 1\u00a0% up to 2\u202f000 cps" in text
    assert "the reference is 0 in every run" in text
    assert (
        "highest load that was measured in both modes, because no PDR in mode"
        in percent_lower.figure(case, case.family()).caption
    )
    assert case.compared_load(EIGHT) == 2000


def test_each_proxy_has_its_own_tables():
    suts = ("kamailio-udp", "opensips-udp")
    case = case_of([dataclasses.replace(run, sut=sut) for sut in suts for run in plan()])
    names = [table.identity for table in tables_in(measurements.tables(case))]
    assert [name.removeprefix("table-measurements-") for name in names] == [
        f"{sut}-1-{mode}" for sut in suts for mode in MODES
    ]


def search(folder: Path, mode: str, probe_mode: str | None = None) -> Path:
    """Write the record of a capacity search whose trials ran with the probe in `probe_mode`."""
    crossing = synthetic.crossing(Point("bed", "a", mode, 1, 8), 900, 1000)
    if probe_mode:
        crossing["trials"] = [{**each, "probe_mode": probe_mode} for each in crossing["trials"]]
    path = folder / f"{mode}.json"
    path.write_text(synthetic.sealed(crossing))
    return path


def test_searches_with_different_probe_modes_have_a_warning(tmp_path):
    exact = search(tmp_path, "baseline", "exact")
    same, other = search(tmp_path, "enhanced", "exact"), search(tmp_path, "default", "preload")
    unknown = search(tmp_path, "rr")

    def said(*paths: Path) -> str:
        return " ".join(crossing_loads.search_probes(paths).lines)

    assert said() == ""
    assert "exact" in said(exact, same)
    assert "Warning" not in said(exact, same)
    warning = said(exact, same, other)
    assert "Warning" in warning
    assert "exact (baseline, 1 core, 8 threads and enhanced, 1 core, 8 threads)" in warning
    assert "preload (default, 1 core, 8 threads)" in warning
    assert "1 of 2 searches" in said(exact, unknown)
    table = crossing_loads.searches(case_of(plan()), [other])
    assert [row[-1] for row in table.rows] == ["preload", "preload"]


def test_the_search_behind_the_loads_is_shown(tmp_path):
    path = search(tmp_path, "baseline")
    table = crossing_loads.searches(case_of(plan()), [path])
    assert table.rows == (
        ("baseline, 1 core, 8 threads", "1", "4000", "6", "50", NO_ENTRY),
        ("baseline, 1 core, 8 threads", "2", "900", "6", "0", NO_ENTRY),
    )
    assert crossing_loads.searches(case_of(plan()), []).rows == ()


def test_the_page_says_that_modes_were_measured_with_different_buffers():
    planned = plan(modes=(*MODES, "default"))

    def outcome(run):
        sizes = {"baseline": 425984.0, "enhanced": 524288.0, "default": 212992.0}
        return synthetic.two_modes(run) | {"so_rcvbuf": sizes[run.mode]}

    lines = settings.words(case_of(planned, outcome)).lines
    (line,) = set(lines) - set(settings.words(case_of(planned)).lines)
    assert all(f"{size} bytes" in line for size in (425984, 524288))
    # the page compares no default mode
    assert "212992" not in line


def test_the_parts_of_all_panels_lie_within_their_shared_axis(monkeypatch):
    """Draw two panels. The times in the first panel are a hundred times as long as in the second panel."""

    def slower(run):
        values = synthetic.two_modes(run)
        factor = 100 if run.threads == 2 else 1
        return values | {"k_sockq_mean": 50.0 * factor}

    case = case_of(plan(threads=(2, 8)), slower)
    _, points = drawn_by(monkeypatch, case, message_time.parts_figures)
    ends = [(x, axis.get_xlim()) for x, axis, _ in points if len(x) == 5 and x.min() > 0]
    assert any(x.max() == 5000 for x, _ in ends)
    assert all(low <= x.min() and x.max() <= high for x, (low, high) in ends)


def test_kernels_have_different_looks():
    case = dataclasses.replace(
        case_of(plan(modes=("CFS", "EEVDF"))), reference="CFS", other="EEVDF"
    )
    kernels = dataclasses.replace(case, compares="kernel")
    first, second = (marks.look_of(kernels, mode) for mode in ("CFS", "EEVDF"))
    assert first.color != second.color
    assert first.marker != second.marker
    assert marks.look_of(case_of(plan()), "baseline") == mode_look("baseline")


def test_many_undecided_comparisons_are_counted_in_one_sentence():
    def alike(run):
        rng = np.random.default_rng([run.cps, run.rep, run.threads, run.mode == "enhanced"])
        luck = np.exp(0.2 * rng.standard_normal())
        return synthetic.two_modes(run) | {"pdr": 0.02 * luck, "k_rcv_mean": 300 * luck}

    few, many = (case_of(plan(threads=threads), alike) for threads in ((2, 4), (2, 4, 6, 8)))
    assert len(percent_lower.verdict(few, few.family()).lines) == 4
    (line,) = percent_lower.verdict(many, many.family()).lines
    assert "8 comparisons" in line


def test_the_page_names_the_kernel_the_competing_task_and_rows_without_runs():
    case = case_of(plan(), lambda run: synthetic.two_modes(run) if run.cps > 1600 else None)
    case.summary.attrs["testbed_description"] = (
        "SPS on CPU 1; competitor logger (3 µs of every 9 µs)"
    )
    text = page_text.text(percent_lower.measured(case))
    assert case.summary.attrs["kernels"] in text
    assert "logger (3 µs of every 9 µs)" in text
    assert "1 core, 2 threads" in text
    assert case.name(EIGHT) not in text
