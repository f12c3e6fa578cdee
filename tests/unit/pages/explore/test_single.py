"""Tests of the figure of single messages."""

import pytest
import synthetic

from sipsched.pages.explore.single import MOST_SINGLE, single
from sipsched.pages.explore.timeline import place_in_time
from sipsched.records.messages import messages_from_record
from sipsched.words import number

RUN = synthetic.Run()
WAITS, SENT = "var(--series1)", "var(--series2)"
"""Colours of K_rcv and K_snd."""


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    record = synthetic.write_record(tmp_path_factory.mktemp("raw"), RUN, drops=20)
    return place_in_time(messages_from_record(record), RUN)


def test_each_message_of_an_interval_has_a_line_with_its_kind_and_worker(messages):
    count = 12
    length_s = float(messages.at_s[count] - messages.at_s[0]) - 1e-9
    figure = single(messages, 0.0, length_s)
    # the figure has one bar per message, and one bar in the legend
    assert figure.wide.count(f"fill: {WAITS}") == count + 1
    workers = len(set(messages.worker[:count].tolist()))
    longest = number(messages.wait_us[:count].max())
    assert figure.seen[0].startswith(f"{count} messages, received by {workers} workers; ")
    assert f"the longest wait is {longest} µs, before " in figure.seen[0]
    assert synthetic.FIDELITY in figure.provenance


def test_too_many_messages_or_no_messages_are_not_drawn(messages):
    assert single(messages, 0.0, messages.length_s) is None
    assert len(messages.at_s) > MOST_SINGLE
    assert single(messages, messages.length_s + 1, 1.0) is None


def test_without_bpf_unknown_times_are_not_drawn(tmp_path):
    record = synthetic.write_record(tmp_path, RUN, calls=5, mode=3)
    result = place_in_time(messages_from_record(record), RUN)
    figure = single(result, 0.0, result.length_s)
    assert f"fill: {SENT}" not in figure.wide
    assert f"fill: {WAITS}" in figure.wide
