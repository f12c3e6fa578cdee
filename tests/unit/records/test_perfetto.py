"""Tests that traces of recorded runs follow the Trace Event Format, which the viewer Perfetto reads."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import pytest
import synthetic

from sipsched.paths import PROJECT_ROOT
from sipsched.records.messages import messages_from_record, open_messages, write_messages
from sipsched.records.perfetto import write_trace

RECORDED = PROJECT_ROOT / "recorded/fit/local/kamailio-udp/default/cores~1/threads~8"


def traced(record, folder):
    """Write the trace of a record for Perfetto, and return the trace and the record's messages."""
    write_messages(messages_from_record(record), folder / "messages.nc")
    ds = open_messages(folder / "messages.nc")
    write_trace(ds, folder / "run.json.gz")
    with gzip.open(folder / "run.json.gz", "rt") as file:
        return json.load(file), ds


@pytest.mark.parametrize("point", ["cps~1000/rep~1", "cps~2400/rep~2"])
def test_a_recorded_run(point, tmp_path):
    document, ds = traced(RECORDED / point, tmp_path)
    by_phase = defaultdict(list)
    for event in document["traceEvents"]:
        by_phase[event["ph"]].append(event)
    assert set(by_phase) == {"M", "b", "e", "X", "C"}
    services = [event for event in by_phase["X"] if event["cat"] == "service"]
    assert 0.99 * ds.sizes["message"] < len(services) <= ds.sizes["message"]
    assert {event["tid"] for event in services} <= set(ds["worker"].attrs["thread_ids"].tolist())
    # the slices of a thread must be consecutive or nested, because Perfetto shows no other slices
    threads = defaultdict(list)
    for event in by_phase["X"]:
        threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        slices.sort()
        assert all(end <= start + 0.0011 for (_, end), (start, _) in pairwise(slices))
    begun = {event["id"]: event["ts"] for event in by_phase["b"]}
    ended = {event["id"]: event["ts"] for event in by_phase["e"]}
    assert begun.keys() == ended.keys()
    assert all(begun[one] <= ended[one] for one in begun)
    waiting = [event for event in by_phase["C"] if event["name"] == "messages waiting"]
    assert [event["ts"] for event in waiting] == sorted(event["ts"] for event in waiting)
    assert waiting[-1]["args"]["value"] == 0
    assert min(event["args"]["value"] for event in waiting) == 0


def test_drops_are_a_counter(tmp_path):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), drops=5)
    document, _ = traced(record, tmp_path)
    refused = [
        event for event in document["traceEvents"] if event.get("name") == "datagrams refused"
    ]
    assert [event["args"]["value"] for event in refused] == [1, 2, 3, 4, 5]


def test_without_bpf_there_are_waits_and_services(tmp_path):
    record = synthetic.write_record(tmp_path / "raw", synthetic.Run(), calls=5, mode=3)
    document, ds = traced(record, tmp_path)
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.count("X") == phases.count("b") == ds.sizes["message"] == 30
