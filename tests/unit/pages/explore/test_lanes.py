"""Tests of the recorded work while a slow message waited."""

import numpy as np
import pytest
import synthetic

from sipsched.pages.explore.lanes import lanes, slow_message, unseen
from sipsched.pages.explore.timeline import place_in_time
from sipsched.records.messages import messages_from_record

RUN = synthetic.Run(threads=2)
START_NS = synthetic.START_NS


def placed(folder, records):
    record = synthetic.write_record(folder, RUN, records=records)
    return place_in_time(messages_from_record(record), RUN)


@pytest.fixture
def one_behind_another(tmp_path):
    """A worker serves an INVITE for 900 µs, 400 µs of them off its CPU, and then a BYE that arrived at 100 µs."""
    records = synthetic.six_per_call(np.random.default_rng(1), 1, 1000, threads=1)[:2]
    records["in_cost_ns"] = records["out_cost_ns"] = 0
    records["kind"] = (1, 5)
    for stamp, instants in {
        "t_arr": (0, 100_000),
        "t_stack": (1_000, 101_000),
        "t_sockq": (4_000, 909_000),
        "t_sip_in": (5_000, 910_000),
        "t_sip_out": (905_000, 960_000),
        "t_dep": (909_000, 965_000),
    }.items():
        records[stamp] = START_NS + np.array(instants)
    records["off_cpu_ns"] = (400_000, 0)
    return placed(tmp_path, records)


def test_recorded_work_during_the_wait_is_drawn_and_described(one_behind_another):
    assert slow_message(one_behind_another) == 1
    figure = lanes(one_behind_another)
    (seen,) = figure.seen
    assert seen.startswith("The BYE waits 810 µs and is served in 50 µs.")
    assert "1 worker served 1 other message during the wait, and was off CPU for 400 µs" in seen
    # the BYE's time in the stack and its copy are certain, but the INVITE's service was partly off CPU
    assert "For 2 µs (0 %) of the wait" in seen
    assert "For 808 µs (100 %), a worker held a message" in seen
    assert "nothing is recorded:" not in seen
    # the figure has one bar for the wait, and one mark in the legend
    assert figure.wide.count("fill: var(--series5)") == 1 + 1


def test_an_interval_without_recorded_work_is_named(one_behind_another):
    assert unseen(one_behind_another, 0, 5).tolist() == pytest.approx(np.array([[1, 4]]))
    assert unseen(one_behind_another, 0, 950, certain=True).tolist() == pytest.approx(
        np.array([[1, 100], [101, 909]])
    )
    (seen,) = lanes(one_behind_another, 0).seen
    assert "a worker had to be woken" in seen
    assert "For 3 µs (60 %), nothing is recorded" in seen
    assert "who ran in that time is not recorded" in seen


def test_without_times_there_is_no_picture(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 1, 1000)
    records["t_sip_out"] = 0
    assert lanes(placed(tmp_path, records)) is None
