"""Tests of messages over time, on runs with known times."""

import numpy as np
import pytest
import synthetic

from sipsched.pages.explore import timeline
from sipsched.plan.run import Run
from sipsched.records.messages import messages_from_record

RUN = Run("synthetic", "kamailio-udp", "default", 1, 8, 1000, 1)


def messages(tmp_path, records, **options):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), records=records, **options)
    return timeline.place_in_time(messages_from_record(record), RUN)


def burst(waits_us):
    """Make messages that arrive 1 ms apart.

    Each message spends 2 µs in the stack and then waits in the queue for the given time.
    """
    records = synthetic.six_per_call(np.random.default_rng(1), 1, 1000)
    records = np.repeat(records[:1], len(waits_us))
    records["call_id_hash"] = np.arange(1, len(waits_us) + 1)
    start = synthetic.START_NS + 1_000_000 * np.arange(len(waits_us), dtype=np.uint64)
    records["t_arr"] = start
    records["t_stack"] = start + np.uint64(2_000)
    records["t_sockq"] = records["t_stack"] + np.array(waits_us, np.uint64) * np.uint64(1000)
    records["t_sip_in"] = records["t_sockq"] + np.uint64(1_000)
    records["t_sip_out"] = records["t_sip_in"] + np.uint64(100_000)
    records["t_dep"] = records["t_sip_out"] + np.uint64(10_000)
    return records


def test_the_queue_contains_messages_that_arrived_and_have_not_left(tmp_path):
    # The first message waits until 3.5 ms. The second and the third message leave before the next message arrives.
    result = messages(tmp_path, burst([3500, 500, 500, 100]))
    assert result.at_s.tolist() == pytest.approx([0, 0.001, 0.002, 0.003])
    at = np.array([0.0, 0.0001, 0.0012, 0.0018, 0.0022, 0.00305, 0.0034, 0.004])
    assert result.queue_length(at).tolist() == [0, 1, 2, 1, 2, 2, 1, 0]
    edges, longest = result.longest_queue(0.0, 0.005, steps=5)
    assert edges.tolist() == pytest.approx([0, 0.001, 0.002, 0.003, 0.004, 0.005])
    assert longest.tolist() == [1, 2, 2, 2, 0]
    assert not result.queue_is_whole_way
    assert result.wait_us.tolist() == pytest.approx([3503, 503, 503, 103])


def test_without_bpf_the_queue_includes_the_network_stack(tmp_path):
    result = messages(tmp_path, burst([3500, 500, 500, 100]), mode=3)
    assert result.queue_is_whole_way
    assert result.queue_length(np.array([0.0012, 0.004])).tolist() == [2, 0]
    figure = timeline.timeline([result])
    assert "between driver and proxy" in figure.caption


def test_the_caption_describes_a_run_and_its_drops(tmp_path):
    rng = np.random.default_rng(2)
    records = synthetic.refuse(synthetic.six_per_call(rng, 200, 1000), 40, rng)
    result = messages(tmp_path, records)
    figure = timeline.timeline([result, result])
    assert len(figure.seen) == 2
    assert "1160 messages" in figure.seen[0]
    assert "40 dropped, the first at" in figure.seen[0]
    half = timeline.timeline([result], 0.0, result.length_s / 2).seen[0]
    dropped = int(half.split("; ")[-1].split()[0])
    assert 0 < dropped < 40
    assert synthetic.FIDELITY in figure.provenance


def test_runs_without_messages_can_be_drawn(tmp_path):
    rng = np.random.default_rng(2)
    records = synthetic.six_per_call(rng, 5, 1000)
    only_drops = messages(tmp_path, synthetic.refuse(records, 30, rng))
    untraced = synthetic.write_record(tmp_path / "off", synthetic.Run(), mode=0)
    nothing = timeline.place_in_time(messages_from_record(untraced), RUN)
    figure = timeline.timeline([only_drops, nothing])
    assert "0 messages; at most 0 messages waiting at the same time; 30 dropped" in figure.seen[0]
    assert figure.seen[1].endswith(
        "0 messages; at most 0 messages waiting at the same time; 0 dropped."
    )


def test_an_interval_is_named_as_precisely_as_it_was_chosen(tmp_path):
    result = messages(tmp_path, burst([500] * 20))
    assert "0.0123 to 0.0143 s: 2 messages" in timeline.timeline([result], 0.0123, 0.002).seen[0]
