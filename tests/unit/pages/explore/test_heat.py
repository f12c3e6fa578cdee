"""Tests of the heat map that counts messages by arrival and by duration."""

import re

import numpy as np
import synthetic

from sipsched.pages.explore.heat import heat_map
from sipsched.pages.explore.timeline import place_in_time
from sipsched.records.messages import messages_from_record
from sipsched.words import number

RUN = synthetic.Run()


def read(folder, **wanted):
    return place_in_time(messages_from_record(synthetic.write_record(folder, RUN, **wanted)), RUN)


def test_a_stall_is_shown_at_its_time(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 1000, 1000)
    at = records["t_arr"] - records["t_arr"].min()
    stalled = (at > 400_000_000) & (at < 410_000_000)
    for stamp in ("t_sockq", "t_sip_in", "t_sip_out", "t_dep"):
        records[stamp][stalled] += 50_000_000
    messages = read(tmp_path, records=records)
    figure = heat_map(messages)
    slowest = re.search(
        r"slowest column, at ([\d.]+) s, the median is ([\d\u202f]+) µs", figure.seen[0]
    )
    step_s = messages.length_s / 120
    assert abs(float(slowest[1]) - 0.405) < 0.005 + step_s
    assert float(slowest[2].replace("\u202f", "")) > 50_000
    assert figure.seen[0].endswith(" 0 datagrams were refused.")


def test_drops_are_counted_and_marked(tmp_path):
    figure = heat_map(read(tmp_path, drops=20))
    assert figure.seen[0].endswith("20 datagrams were refused.")
    assert "var(--limit)" in figure.wide


def test_equal_times_are_drawn_and_missing_times_are_not(tmp_path):
    records = synthetic.six_per_call(np.random.default_rng(1), 50, 1000)
    records["t_stack"] = records["t_sockq"] = records["t_arr"] + 1_000
    records["t_sip_in"] = records["t_arr"] + 2_000
    records["t_sip_out"] = records["t_arr"] + 100_000 + records["in_cost_ns"]
    figure = heat_map(read(tmp_path / "alike", records=records))
    assert figure.seen[0].startswith(
        f"In a usual column of the figure, the median time is {number(100)} µs."
    )
    records["t_sip_out"] = 0
    assert heat_map(read(tmp_path / "none", records=records)) is None
