import dataclasses
import itertools

import numpy as np
import pytest
import synthetic

from sipsched.analysis import crossing_load
from sipsched.analysis.run_table import campaigns_of
from sipsched.pages import load_sweep, message_types, plots, tables
from sipsched.pages.capacities import capacity_words
from sipsched.pages.numbers import told
from sipsched.records import study_summary

DRAWINGS = (
    load_sweep.pdr,
    load_sweep.receive_time,
    load_sweep.service_time,
    load_sweep.receive_parts,
    load_sweep.load,
)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_figures_without_measurements_say_so(draw):
    ds = study_summary.combine([], [synthetic.Run(cps=500), synthetic.Run(cps=1000)])
    figure = draw(ds)
    assert "no run is valid" in figure.seen[0]
    assert figure.wide.startswith("<svg")


LOADS = (1000, 1200, 1400, 2000)
RATES = {
    # drop rates at four loads: knee between close loads, jump between close loads, knee between distant loads, no knee
    1: (0.0, 0.004, 0.03, 0.3),
    2: (0.0, 0.0, 0.25, 0.4),
    4: (0.0, 0.0, 0.0, 0.4),
    8: (0.0, 0.0, 0.0, 0.001),
}


def knees():
    planned = [
        synthetic.Run(threads=threads, cps=cps, rep=rep)
        for threads, cps, rep in itertools.product(RATES, LOADS, (1, 2, 3))
    ]

    def outcome(run):
        pdr = RATES[run.threads][LOADS.index(run.cps)]
        longest = 0.35 if (run.threads, run.cps) == (1, 1200) else 0.02
        busy = {
            "busy_periods_effective": 25.0,
            "busy_longest_share": longest,
            "busy_longest_s": 2.1,
        }
        return {"pdr": pdr * (0.9 + 0.1 * run.rep)} | busy

    return synthetic.combined(planned, outcome)


def known(ds):
    (campaign,) = campaigns_of([("load_sweep", ds)])
    return synthetic.with_capacities(campaign).capacities


def test_the_drop_rate_is_shown_beside_the_capacity():
    ds = knees()
    capacities = known(ds)
    figure = load_sweep.pdr(ds, capacities=capacities)
    for capacity, line in zip(capacities, figure.seen, strict=True):
        assert f"{capacity.threads} thread" in line
        assert (
            f"The capacity is {capacity_words(capacity)}, estimated from 0 trials and 12 runs."
            in line
        )
    between = ((1200, 1400), (1200, 1400), (1400, 2000))
    for capacity, (low, high) in zip(capacities[:3], between, strict=True):
        assert low < capacity.estimate_cps < high
    assert "Measure" not in figure.seen[0]
    assert "Measure a load above 2\u202f000 cps" in figure.seen[3]
    above = [capacity for capacity in capacities if capacity.threads == 8]
    below = [dataclasses.replace(one, estimate_cps=1500.0, high_cps=2500.0) for one in above]
    (*_, seen) = load_sweep.pdr(ds, capacities=below).seen
    # no typical run exceeds the limit, although the capacity is below the highest load
    assert "2\u202f000 cps, lies inside the interval" in seen
    assert "lies inside" not in figure.seen[3]


def test_the_answer_says_that_its_runs_are_too_short():
    ds = knees()
    (first, *_) = known(ds)
    near = dataclasses.replace(first, low_cps=1100.0, high_cps=1500.0)
    far = dataclasses.replace(first, low_cps=1450.0, high_cps=1550.0)
    told = load_sweep.answer(ds, capacities=[near]).line
    assert "Of the 12 runs of this study at loads near the capacity, 3 are too short" in told
    assert "busy periods" not in load_sweep.answer(ds, capacities=[far]).line


def test_runs_that_are_too_short_for_their_busy_periods_are_named():
    ds = knees()
    said = (
        "At 1\u202f200 cps, 3 of 3 runs are too short. The longest busy period of the runs at this load takes 2.1 s, "
        "and a busy period fills up to 35\u00a0% of its run."
    )
    assert said in load_sweep.pdr(ds).seen[0]
    assert not any("too short" in line for line in load_sweep.pdr(ds).seen[1:])
    cells = {(row[3], row[4]): row[-3:] for row in tables.drops(ds).rows}
    assert cells["1", "1200"] == ("25", "35", "3")
    assert cells["1", "1000"] == ("25", "2", "")


def test_table_and_figure_agree_if_one_of_several_runs_drops_messages():
    """Make two runs without drops and one run that drops 8 %. The typical rate is neither 0 nor the mean of 2.7 %."""
    planned = [synthetic.Run(threads=8, cps=1000, rep=rep) for rep in (1, 2, 3)]
    ds = synthetic.combined(planned, lambda run: {"pdr": 0.08 if run.rep == 3 else 0.0})
    drawn = crossing_load.typical_drop_rates(
        100 * ds["pdr"].to_numpy().reshape(1, 3), 1.0, whole=100.0
    ).at(0)
    assert str(tables.drops(ds).rows[0][7]) == str(told(drawn, "%", 3)) == "0.053 (runs: 0 to 8.0)"


def test_the_answer_distinguishes_several_runs_from_one_run():
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (1000, 1400) for rep in (1, 2, 3)]
    data = synthetic.combined(
        planned,
        lambda run: {"pdr": 0.1 * (run.cps > 1000), "k_rcv_p50": 40.0 + run.rep},
    )
    line = load_sweep.answer(data, capacities=known(data)).line
    assert "The median waiting time (K_rcv) is 42\u00a0µs (runs: 41 to 43) at 1\u202f000" in line
    assert "one run" not in line


def test_without_single_messages_percentiles_by_type_are_drawn(tmp_path):
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (1000, 1400) for rep in (1, 2, 3)]

    def outcome(run):
        named = itertools.product(message_types.TIMES, ((50, 1.0), (95, 4.0), (99, 9.0)))
        return {f"{name}_p{share}": 10 * slow * run.rep for name, (share, slow) in named}

    shown = load_sweep.distributions(synthetic.combined(planned, outcome), tmp_path)
    assert "did not record single messages" in shown.reading
    (words,) = shown.seen
    assert "1\u202f000 cps" in words and "19\u00a0µs (runs: 10 to 30), n = 3 (INVITE)" in words
    nothing = load_sweep.distributions(synthetic.combined(planned, lambda run: None), tmp_path)
    assert "The figure shows no run." in nothing.reading
    assert nothing.seen == ("There is nothing to show yet, because no run is valid.",)


@pytest.mark.parametrize(
    ("loads", "gap", "named"),
    [
        ((1400, 2000, 2200, 2400, 2600), 250, [1400, 2200, 2600]),
        ((1400, 2000, 2200, 2400, 2600), 0, [1400, 2000, 2200, 2400, 2600]),
        ((1000, 1001), 500, [1001]),
        ((1000,), 500, [1000]),
    ],
)
def test_labels_of_loads_that_would_overlap_are_omitted(loads, gap, named):
    assert plots.loads_apart(np.array(loads, float), gap) == named


def test_a_time_axis_includes_every_single_run(monkeypatch):
    """Make one of three runs ten times as long as the typical run. The point of this run must lie on the axis, too."""
    waits = (20.0, 21.0, 250.0)
    planned = [synthetic.Run(cps=cps, rep=rep) for cps in (1000, 1400) for rep in (1, 2, 3)]
    ds = synthetic.combined(
        planned,
        lambda run: {f"k_rcv_{name}": waits[run.rep - 1] for name in ("mean", "p50", "p99")},
    )
    axes = []
    monkeypatch.setattr(load_sweep, "log_scale", lambda _, limits: axes.append(limits))
    assert load_sweep.receive_time(ds).wide
    assert axes and all(low <= min(waits) and max(waits) <= high for low, high in axes)
