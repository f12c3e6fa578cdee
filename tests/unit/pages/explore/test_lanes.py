"""Who ran while a slow message waited."""

import numpy as np
import pytest
import synthetic

from sipsched.pages.explore.lanes import lanes, slow_message
from sipsched.pages.explore.timeline import place_in_time
from sipsched.records.messages import messages_from_record

RUN = synthetic.Run(threads=2)
START_NS = synthetic.START_NS


def placed(folder, records):
    record = synthetic.write_record(folder, RUN, records=records)
    return place_in_time(messages_from_record(record), RUN)


@pytest.fixture
def one_behind_another(tmp_path):
    """A worker serves an INVITE for 900 µs, 400 of them off its CPU, and then a BYE that came at 100 µs."""
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


def test_who_was_served_meanwhile_is_said_and_drawn(one_behind_another):
    assert slow_message(one_behind_another) == 1
    figure = lanes(one_behind_another)
    assert figure.seen == (
        "The BYE waits 810 µs and is served in 50 µs. Meanwhile 1 worker had 1 other message in service, "
        "and were off CPU for 400 µs of it in all.",
    )
    # a bar of each and one in the legend: the wait; both services; what of the INVITE's was off CPU is drawn twice
    assert figure.svg.count("fill: var(--series5)") == 1 + 1
    assert figure.svg.count("fill: var(--series0)") >= 2 + 1


def test_nobody_before_it_is_said(one_behind_another):
    figure = lanes(one_behind_another, 0)
    assert figure.seen[0].endswith(
        "No other message was being served meanwhile: it waited for a worker to be woken."
    )


def test_without_times_there_is_no_picture(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 1, 1000)
    records["t_sip_out"] = 0
    assert lanes(placed(tmp_path, records)) is None
