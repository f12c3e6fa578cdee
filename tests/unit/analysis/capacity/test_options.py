"""Tests of the comparison of settings by capacity, with the papers' tables and with invented settings."""

import itertools

import pytest
import synthetic

from sipsched.analysis import crossing_load
from sipsched.analysis.capacity import scaling
from sipsched.analysis.capacity.options import (
    best_by_cores,
    measured_option,
    measured_options,
)
from sipsched.analysis.run_table import campaigns_of
from sipsched.records import study_summary

# Krishnamurthy and Rouskas 2016, tables II, V and VIII (enhanced mode). A row has cores, processors, threads, the last
# load with a PDR of at most 1 %, the PDR at this load, the first load with a higher PDR, and the PDR at that load.
PUBLISHED = [
    (2, 1, 2, 3800, 0.0084, 4000, 0.011),
    (2, 1, 4, 4400, 0.0086, 4600, 0.0118),
    (2, 1, 6, 3800, 0.0089, 4000, 0.0147),
    (2, 1, 8, 3200, 0.0098, 3400, 0.0149),
    (2, 1, 16, 2600, 0.0096, 2800, 0.0172),
    (4, 1, 2, 4200, 0.0092, 4400, 0.0139),
    (4, 1, 4, 5000, 0.0096, 5200, 0.013),
    (4, 1, 6, 5400, 0.0066, 5600, 0.0159),
    (4, 1, 8, 4600, 0.0088, 4800, 0.0119),
    (4, 1, 16, 4600, 0.0064, 4800, 0.0138),
    (6, 2, 4, 6000, 0.0080, 6200, 0.013),
    (6, 2, 6, 6600, 0.0072, 6800, 0.0117),
    (6, 2, 8, 6400, 0.0090, 6600, 0.0146),
    (6, 2, 16, 4200, 0.00935, 4400, 0.0157),
]
PROCESSORS = {6: 2}


def published():
    options = []
    for cores, _, threads, low, low_pdr, high, high_pdr in PUBLISHED:
        capacity = crossing_load.capacity([low, high], [low_pdr, high_pdr])
        options.append(measured_option("opensips", "enhanced", cores, threads, capacity))
    return options


def test_papers_model_finds_the_best_threads_of_the_papers_tables():
    best = best_by_cores(published())
    assert [each.threads for each in best] == [4, 6, 6]
    assert [each.grid_cps for each in best] == [4400, 5400, 6600]
    threads = [scaling.paper_threads(PROCESSORS.get(each.cores, 1), each.cores) for each in best]
    assert threads == [4, 6, 6]
    off = [
        100 * (count * scaling.PAPER_SINGLE_CORE_CPS / each.grid_cps - 1)
        for count, each in zip(threads, best, strict=True)
    ]
    assert [round(each, 1) for each in off] == [-9.1, 11.1, -9.1]


def test_options_of_a_summary():
    loads, reps = [800, 1000, 1200], [1, 2, 3]
    pdr = {(2, 800): [0, 0, 0], (2, 1000): [0.001, 0.002, 0.003], (2, 1200): [0.03, 0.04, 0.05]}
    planned = [
        synthetic.Run(threads=threads, cps=cps, rep=rep)
        for threads, cps, rep in itertools.product((8, 2, 16), loads, reps)
    ]

    def outcome(run):
        if run.threads == 16:
            return None
        return {"pdr": pdr[2, run.cps][run.rep - 1] if run.threads == 2 else 0}

    (campaign,) = campaigns_of([("study", synthetic.combined(planned, outcome))])
    crossing, above = measured_options(campaign.counted)
    assert (crossing.cores, crossing.threads, crossing.grid_cps) == (1, 2, 1000)
    assert crossing.carries_cps == crossing.interval.low < crossing.interval.estimate
    assert crossing.interval.estimate == pytest.approx(1110.2, abs=0.1)
    assert (above.threads, above.carries_cps, above.grid_cps) == (8, 1200, 1200)
    assert (above.interval.n, above.interval.why) == (
        9,
        "at no load did the drop rate exceed the limit",
    )
    assert best_by_cores([crossing, above]) == (above,)
    over = measured_option("a", "b", 1, 2, crossing_load.capacity([500], [0.2]))
    assert (over.carries_cps, over.interval.estimate) == (0, 0)
    assert [each.settled for each in (crossing, above, over)] == [True, False, False]


def test_without_measurements_there_are_no_options():
    (campaign,) = campaigns_of([("study", study_summary.combine([], [synthetic.Run()]))])
    assert measured_options(campaign.counted) == ()
