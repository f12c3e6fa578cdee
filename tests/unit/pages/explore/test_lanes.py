"""Tests of the figure of what workers and other programs did while a slow message waited."""

import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.pages.explore.lanes import lanes, slow_message, unseen
from sipsched.pages.explore.ran import who_ran
from sipsched.pages.explore.slowest import slowest
from sipsched.pages.explore.timeline import place_in_time
from sipsched.pages.parts import Words
from sipsched.records.bursts import BURSTS_FILE
from sipsched.records.messages import messages_from_record

RUN = synthetic.Run(threads=2)
START_NS = synthetic.START_NS


def placed(folder, records, **bursts):
    record = synthetic.write_record(folder, RUN, records=records, **bursts)
    return place_in_time(messages_from_record(record), RUN, record)


def burst(start_us, end_us, owner, name, cpu=0):
    return (cpu, START_NS + start_us * 1000, START_NS + end_us * 1000, owner, name, 7)


BURSTS = [
    burst(300, 700, "fair", "backup"),
    burst(400, 450, "softirq", "NET_RX"),
    burst(-100, 130, "kernel", "kworker/0:1"),
    burst(200, 900, "fair", "elsewhere", cpu=1),
]


@pytest.fixture
def one_behind_another(tmp_path):
    """A worker serves an INVITE for 900 µs, 400 µs of them off its CPU, and then a BYE that arrived at 100 µs."""
    return placed(tmp_path, two_messages())


def two_messages():
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
    records["cpu"] = 0
    return records


def test_recorded_work_during_the_wait_is_drawn_and_described(one_behind_another):
    figure = lanes(one_behind_another, 1)
    (seen,) = figure.seen
    assert seen.startswith("The BYE waits 810 µs and is served in 50 µs.")
    # at most 400 µs of the INVITE's 805 µs of service during the wait were off CPU
    assert "1 worker served 1 other message" in seen and "up to 50 %" in seen
    # work is certain only during the 2 µs of the BYE's stack and copy, because the INVITE's worker was off CPU at times
    assert "During 2 µs (0 %) of the wait" in seen
    assert "During 808 µs (100 %) of the wait, a worker held a message" in seen
    assert "nothing is recorded" not in seen
    assert "nothing recorded" not in figure.wide
    # the figure has one bar for the wait, and one mark in the legend
    assert figure.wide.count("fill: var(--series5)") == 1 + 1


def test_an_interval_without_recorded_work_is_named(one_behind_another):
    assert unseen(one_behind_another, 0, 5).tolist() == pytest.approx(np.array([[1, 4]]))
    assert unseen(one_behind_another, 0, 950, certain=True).tolist() == pytest.approx(
        np.array([[1, 100], [101, 909]])
    )
    (seen,) = lanes(one_behind_another, 0).seen
    assert "400 µs (44 %) of the service" in seen


def test_the_message_near_the_99th_percentile_of_the_time_is_chosen(one_behind_another):
    # the INVITE takes 905 µs, and the BYE 860 µs
    assert slow_message(one_behind_another) == 0


def test_an_unexplained_part_of_the_wait_has_a_lane(tmp_path):
    records = two_messages()
    records["off_cpu_ns"] = 0
    figure = lanes(placed(tmp_path, records), 0)
    (seen,) = figure.seen
    assert "no worker served another message" in seen
    assert "During 3 µs (60 %) of the wait, nothing is recorded" in seen
    assert "nothing recorded" in figure.wide


def test_who_ran_during_the_wait_is_drawn_and_named(tmp_path):
    messages = placed(tmp_path, two_messages(), bursts=BURSTS)
    figure = lanes(messages, 1)
    (seen,) = figure.seen
    assert (
        "CPU 0 ran backup (other program) for 350 µs, NET_RX (softirq) for 50 µs and 1 more."
        in seen
    )
    assert "elsewhere" not in seen
    assert "unknown" not in seen
    for title in ("backup (other program): 250 µs", "NET_RX (softirq): 50 µs", "others on CPU 0"):
        assert title in figure.wide
    assert "others on CPU" not in lanes(placed(tmp_path / "without", two_messages())).wide
    # message 0 was off CPU longer than it waited, so the programs during its service are named
    (seen,) = lanes(messages, 0).seen
    assert "backup (other program) for 350 µs" in seen


def test_a_wait_without_any_burst_is_no_unknown_wait(tmp_path):
    records = two_messages()
    records["off_cpu_ns"] = 0
    (seen,) = lanes(placed(tmp_path, records, bursts=[]), 0).seen
    assert "no other program kept CPU 0 busy for 20 µs" in seen
    assert (
        "nothing is recorded. Either a worker was between two messages, or another task ran for less than 20 µs"
        in seen
    )


def test_the_slowest_messages_name_the_program_that_ran(tmp_path):
    messages = placed(tmp_path, two_messages(), bursts=BURSTS)
    table = slowest([(messages, np.full(2, "default"))], (), 2)
    by_type = table.set_index("type")["explanation"]
    assert "Meanwhile, CPU 0 ran backup (other program) for 350 µs" in by_type["BYE"]
    without = placed(tmp_path / "without", two_messages())
    for explanation in slowest([(without, np.full(2, "default"))], (), 2)["explanation"]:
        assert "CPU 0 ran" not in explanation


def test_the_table_adds_up_to_the_waits(tmp_path):
    messages = placed(tmp_path, two_messages(), bursts=BURSTS, bursts_lost=3)
    table = who_ran([messages])
    assert [row[:4] for row in table.rows[:3]] == [
        ("backup", "other program", "1", "350\u00a0µs"),
        ("NET_RX", "softirq", "1", "50\u00a0µs"),
        ("kworker/0:1", "kernel thread", "1", "30\u00a0µs"),
    ]
    shares = [float(row[4].removesuffix(" %")) for row in table.rows]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert shares[0] == pytest.approx(100 * 350 / 810, abs=0.1)
    assert "3 bursts are missing" in table.caption
    nothing = who_ran([placed(tmp_path / "without", two_messages())])
    assert isinstance(nothing, Words) and "unknown" in nothing.lines[0]


def test_a_truncated_file_of_bursts_is_refused(tmp_path):
    messages = placed(tmp_path, two_messages(), bursts=BURSTS)
    path = messages.record / BURSTS_FILE
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StableError, match="truncated"):
        lanes(messages)


def test_without_times_there_is_no_picture(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 1, 1000)
    records["t_sip_out"] = 0
    assert lanes(placed(tmp_path, records)) is None
