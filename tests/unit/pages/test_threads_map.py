"""Tests of heat maps of threads against load."""

import itertools

import pytest
import synthetic

from sipsched.pages import threads_map
from sipsched.records import study_summary

LOADS = (1000, 1500, 2000)
DROPPED = {2: (0.0, 0.2, 0.4), 8: (0.0, 0.0, 0.1), 16: (0.01, 0.02, 0.3)}


def study(dropped):
    planned = [
        synthetic.Run(threads=threads, cps=cps, rep=rep)
        for threads, cps, rep in itertools.product(dropped, LOADS, (1, 2))
    ]

    def outcome(run):
        rate = dropped[run.threads][LOADS.index(run.cps)]
        return None if rate is None else {"pdr": rate, "k_rcv_p99": 100.0 * run.threads}

    return synthetic.combined(planned, outcome)


def test_the_number_of_threads_with_the_highest_capacity_is_named():
    (figure,) = threads_map.heat_maps(study(DROPPED)).parts
    assert figure.seen == (
        "kamailio-udp, default, 1 core: the highest load without a drop is 1\u202f500 cps, with 8 threads.",
    )
    assert figure.identity == "figure-threads"


def test_ties_and_drops_at_all_loads_are_reported():
    (figure,) = threads_map.heat_maps(study({2: (0.0, 0.0, 0.1), 8: (0.0, 0.0, 0.1)})).parts
    assert figure.seen[0].endswith("1\u202f500 cps, with any of 2, 8 threads.")
    (figure,) = threads_map.heat_maps(study({2: (0.1,) * 3, 8: (0.2,) * 3})).parts
    assert figure.seen[0].endswith("every load drops messages, with any number of threads.")


@pytest.mark.parametrize(
    "dropped",
    [
        {8: (0.0, 0.1, 0.2)},
        {2: (None,) * 3, 8: (0.0,) * 3},
        {2: (0.0, None, None), 8: (0.1, None, None)},
    ],
)
def test_one_number_of_threads_or_one_load_is_no_map(dropped):
    assert threads_map.heat_maps(study(dropped)).parts == ()


def test_without_measurements_there_is_no_map():
    planned = [synthetic.Run(threads=threads, cps=cps) for threads in (2, 8) for cps in LOADS]
    assert threads_map.heat_maps(study_summary.combine([], planned)).parts == ()
