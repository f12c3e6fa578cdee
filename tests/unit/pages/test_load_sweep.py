import itertools

import numpy as np
import pytest
import synthetic

from sipsched.analysis import statistics
from sipsched.analysis.statistics import crossing
from sipsched.pages import crossings, drawing, load_sweep, tables
from sipsched.pages.numbers import told
from sipsched.records import summary

DRAWINGS = (
    load_sweep.pdr,
    load_sweep.receive_time,
    load_sweep.service_time,
    load_sweep.receive_parts,
    load_sweep.load,
)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_figures_of_nothing_measured_still_say_so(draw):
    ds = summary.combine([], [synthetic.Run(cps=500), synthetic.Run(cps=1000)])
    figure = draw(ds)
    assert "No valid run" in figure.seen[0]
    assert figure.svg.startswith("<?xml")


def test_colours_follow_the_reader():
    svg = load_sweep.pdr(summary.combine([], [synthetic.Run()])).svg
    assert "prefers-color-scheme:dark" in svg
    assert "var(--ink)" in svg
    assert not any(marker in svg for marker in drawing.THEME)


LOADS = (1000, 1200, 1400, 2000)
RATES = {
    # a knee that the loads resolve, one that jumps between loads, one between loads that are far apart
    1: ((0.0, 0.004, 0.03, 0.3), "typical PDR passes 1 % at 1\u202f282\u00a0cps (1"),
    2: (
        (0.0, 0.0, 0.25, 0.4),
        "typical PDR passes 1 % between 1\u202f200 and 1\u202f400\u00a0cps, n = 12",
    ),
    4: (
        (0.0, 0.0, 0.0, 0.4),
        "typical PDR passes 1 % between 1\u202f400 and 2\u202f000\u00a0cps, n = 12",
    ),
    8: ((0.0, 0.0, 0.0, 0.001), "no crossing of 1 % is seen: above 2\u202f000\u00a0cps, n = 12"),
}


def knees():
    planned = [
        synthetic.Run(threads=threads, cps=cps, rep=rep)
        for threads, cps, rep in itertools.product(RATES, LOADS, (1, 2, 3))
    ]

    def outcome(run):
        pdr = RATES[run.threads][0][LOADS.index(run.cps)]
        longest = 0.35 if (run.threads, run.cps) == (1, 1200) else 0.02
        busy = {
            "busy_periods_effective": 25.0,
            "busy_longest_share": longest,
            "busy_longest_s": 2.1,
        }
        return {"pdr": pdr * (0.9 + 0.1 * run.rep)} | busy

    return synthetic.combined(planned, outcome)


def test_the_words_of_the_drop_rate_claim_no_more_than_the_loads_tell():
    figure = load_sweep.pdr(knees())
    for (threads, (_, said)), line in zip(RATES.items(), figure.seen, strict=True):
        assert f"{threads} thread" in line
        assert said in line
    assert "Measure" not in figure.seen[0]
    assert "1\u202f400 cps): where between them is not told" in figure.seen[1]
    assert "43 % apart" in figure.seen[2]
    assert "Measure a load above 2\u202f000 cps" in figure.seen[3]


def test_runs_that_are_too_short_for_their_busy_periods_are_named():
    ds = knees()
    said = "1200 cps, 3 of 3 runs: busy without a break for up to 2.1 s, 35 % of the run."
    assert said in load_sweep.pdr(ds).seen[0]
    assert not any("Too short" in line for line in load_sweep.pdr(ds).seen[1:])
    cells = {(row[3], row[4]): row[-1] for row in tables.points(ds).rows}
    assert cells["1", "1200"] == "25, longest 35\u00a0%: 3 of 3 too short"
    assert cells["1", "1000"] == "25, longest 2\u00a0%"


def test_no_line_is_drawn_where_the_crossing_is_only_between_two_loads():
    loads = np.array(LOADS, float)
    ds = knees()
    found = {
        threads: crossing(loads, ds["pdr"].sel(threads=threads).squeeze().transpose("cps", "rep"))
        for threads in RATES
    }
    parts = {threads: crossings.unbroken(loads, each) for threads, each in found.items()}
    assert [loads[part].tolist() for part in parts[1]] == [list(LOADS)]
    assert [loads[part].tolist() for part in parts[2]] == [[1000, 1200], [1400, 2000]]
    assert [loads[part].tolist() for part in parts[4]] == [[1000, 1200, 1400], [2000]]
    assert [loads[part].tolist() for part in parts[8]] == [list(LOADS)]


@pytest.mark.parametrize("threads", RATES)
def test_a_line_passes_the_limit_at_the_crossing_that_is_printed(threads):
    loads, ds = np.array(LOADS, float), knees()
    runs = ds["pdr"].sel(threads=threads).squeeze().transpose("cps", "rep")
    found = crossing(loads, runs)
    typical = statistics.typical_drop_rates(100 * runs.to_numpy(), 1.0, whole=100.0).estimate
    parts = crossings.unbroken(loads, found)
    lines = [crossings.through(loads[part], typical[part], found, 1.0) for part in parts]
    passed = [x[y == 1.0].tolist() for x, y in lines]
    told = found.interval.resolved and found.bracketed
    assert passed == ([[found.interval.estimate]] if told else [[] for _ in parts])
    # nothing is drawn over the limit where the crossing is not told
    assert all((y > 1.0).all() or (y < 1.0).all() for _, y in lines if not told)


def test_table_and_figure_say_the_same_of_runs_of_which_one_drops():
    """Two runs without a drop and one of 8 %: typical is neither 0 nor their mean, 2.7 %."""
    planned = [synthetic.Run(threads=8, cps=1000, rep=rep) for rep in (1, 2, 3)]
    ds = synthetic.combined(planned, lambda run: {"pdr": 0.08 if run.rep == 3 else 0.0})
    drawn = statistics.typical_drop_rates(
        100 * ds["pdr"].to_numpy().reshape(1, 3), 1.0, whole=100.0
    ).at(0)
    assert str(tables.points(ds).rows[0][6]) == str(told(drawn, "%", 3)) == "0.053 (runs: 0 to 8.0)"


def test_the_answer_tells_runs_apart_from_one_run():
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (1000, 1400) for rep in (1, 2, 3)]
    data = synthetic.combined(
        planned,
        lambda run: {"pdr": 0.1 * (run.cps > 1000), "k_rcv_p50": 40.0 + run.rep},
    )
    line = load_sweep.answer(data).line
    assert (
        "half of the messages wait no more than 42\u00a0µs (runs: 41 to 43) at 1\u202f000" in line
    )
    assert "one run" not in line


def test_without_single_messages_percentiles_by_type_are_drawn(tmp_path):
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (1000, 1400) for rep in (1, 2, 3)]

    def outcome(run):
        named = itertools.product(load_sweep.TIMES, ((50, 1.0), (95, 4.0), (99, 9.0)))
        return {f"{name}_p{share}": 10 * slow * run.rep for name, (share, slow) in named}

    shown = load_sweep.distributions(synthetic.combined(planned, outcome), tmp_path)
    assert "Single messages are not in the records of these runs" in shown.caption
    assert "1000 cps" in shown.caption
    (said,) = shown.seen
    assert "At 1000 cps: median K_rcv from 19\u00a0µs (runs: 10 to 30), n = 3, of INVITE" in said
    nothing = load_sweep.distributions(synthetic.combined(planned, lambda run: None), tmp_path)
    assert "No run to draw" in nothing.caption
    assert nothing.seen == ("No valid run: nothing to see yet.",)


@pytest.mark.parametrize(
    ("loads", "gap", "named"),
    [
        ((1400, 2000, 2200, 2400, 2600), 250, [1400, 2200, 2600]),
        ((1400, 2000, 2200, 2400, 2600), 0, [1400, 2000, 2200, 2400, 2600]),
        ((1000, 1001), 500, [1001]),
        ((1000,), 500, [1000]),
    ],
)
def test_loads_that_would_overlap_are_not_named(loads, gap, named):
    assert load_sweep.apart(np.array(loads, float), gap) == named
