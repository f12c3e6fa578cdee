"""Test the probe's timestamps over TCP against the timestamps of a relay and a packet socket."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import stream_relay
from probed import Probed, ask, probed

from sipsched.records.trace import RECORD, Flag
from sipsched.testbed.inventory import Testbed

LOAD_S = 3.0
CLOCKS_NS = 2_000
"""Largest error in ns of the conversion from the packet socket's CLOCK_REALTIME to CLOCK_MONOTONIC.

The error arises because the conversion reads the two clocks one after the other.
"""
PLAN: dict[str, Any] = {
    "workers": 2,
    "rate": 400,
    "size": 500,
    "chunks": [],
    "read": 4096,
    "cut": 0,
}


@contextlib.contextmanager
def relayed(testbed: Testbed, folder: Path, *options: str, **plan: Any) -> Iterator[Probed]:
    """Start a relay and the probe. Traffic starts with `tell`."""
    relay = (sys.executable, stream_relay.__file__, json.dumps(PLAN | plan))
    stream = ("--mode", "stream", "--comm", stream_relay.NAME, *options)
    with probed(testbed, folder, [*relay, str(folder / "seen.json")], *stream) as run:
        assert run.probe.poll() is None, run.log
        yield run


def captured(seen: dict[str, Any], size: int, *, to_server: bool) -> dict[int, int]:
    """Return the time in ns at which the packet socket saw the last byte of each message, by CSeq.

    With `to_server`, these are the arrivals at the server. Without `to_server`, these are the departures.
    """
    result = {}
    for port, client in seen["clients"].items():
        wanted = [to_server, not to_server, int(port)]
        mine = [segment for segment in seen["segments"] if segment[:3] == wanted]
        first = mine[0][3]
        ends = np.array([(segment[3] - first) % 2**32 + segment[4] for segment in mine])
        for place, number in enumerate(client["order"]):
            # Answers arrive in the order of the messages.
            result[number] = mine[int(np.searchsorted(ends, (place + 1) * size))][5]
    return result


def check_bounds(records: npt.NDArray[Any], seen: dict[str, Any], size: int) -> None:
    """Compare each record's timestamps with clock readings around the system calls, and with captured packets."""
    rows = {row["number"]: row for row in seen["rows"]}
    sent = {int(n): t for c in seen["clients"].values() for n, t in c["sent"].items()}
    returned = {int(n): t for c in seen["clients"].values() for n, t in c["returned"].items()}
    seen_in, seen_out = (captured(seen, size, to_server=way) for way in (True, False))
    late_in, late_out = [], []
    for record in records:
        number = int(record["cseq"])
        row = rows[number]
        t = {name: int(record[name]) for name in RECORD.names or () if name.startswith("t_")}
        assert sent[number] <= t["t_arr"] <= t["t_stack"] <= t["t_sockq"] <= t["t_sip_in"]
        assert row["before_read"] <= t["t_sockq"]
        assert t["t_sip_in"] <= row["after_read"]
        assert row["before_send"] <= t["t_sip_out"] <= row["after_send"]
        assert t["t_sip_out"] < t["t_dep"] <= returned[number]
        assert bool(record["flags"] & Flag.SHARED_READ) == (row["together"] > 1)
        assert bool(record["flags"] & Flag.SPLIT) == (row["reads"] > 1)
        assert record["n_send"] == 1
        assert record["length"] == size
        # A packet socket sees an arriving packet between the driver and the protocol layer, and a leaving packet just
        # before the driver.
        assert t["t_arr"] - CLOCKS_NS <= seen_in[number] <= t["t_stack"] + CLOCKS_NS
        assert t["t_sip_out"] - CLOCKS_NS <= seen_out[number] <= t["t_dep"] + CLOCKS_NS
        late_in.append(seen_in[number] - t["t_arr"])
        late_out.append(t["t_dep"] - seen_out[number])
    for late in (late_in, late_out):
        assert float(np.median(late)) < 20_000, np.percentile(late, (0, 1, 50, 99, 100))
    print({"packet after t_arr": np.median(late_in), "t_dep after packet": np.median(late_out)})


@pytest.mark.parametrize(
    "plan",
    [
        {},
        # With small chunks and reads, segments and reads end within messages, and contain several messages.
        {"chunks": [1300, 700, 3000, 50], "read": 1500},
        {"chunks": [5000], "rate": 2000},
        {"size": 20_000, "rate": 200},
        {"size": 60_000, "rate": 50, "read": 1 << 17},
    ],
    ids=[
        "a message a segment",
        "cut anywhere",
        "ten a segment",
        "larger than a read",
        "the largest",
    ],
)
def test_every_message_of_a_stream_has_a_record_with_timestamps(
    testbed: Testbed, tmp_path: Path, plan: dict[str, Any]
) -> None:
    with relayed(testbed, tmp_path, cut=2, **plan) as run:
        run.tell()
        time.sleep(LOAD_S)
        report, records, seen = run.finish()
    numbers = sorted(int(n) for c in seen["clients"].values() for n in c["sent"])
    assert len(numbers) > 100
    assert sorted(records["cseq"].tolist()) == numbers
    assert report["records"] == report["received"] == report["sent"] == len(numbers)
    assert report["lost"] == report["unmatched"] == report["broken"] == 0
    # Two connections ended in the middle of a message.
    assert report["cut"] == 2
    assert report["descriptors_sent"] == report["descriptors_received"] == 4
    assert 0 < report["descriptor_send_ns"] < 1e9
    assert not np.any(records["flags"] & (Flag.UNMATCHED | Flag.NO_SEND | Flag.NO_DEP))
    check_bounds(records, seen, (PLAN | plan)["size"])


def test_records_that_the_ring_cannot_hold_are_counted_as_lost(
    testbed: Testbed, tmp_path: Path
) -> None:
    with relayed(testbed, tmp_path, "--ring-bytes", "16384", rate=3000) as run:
        run.tell()
        time.sleep(LOAD_S)
        report, records, seen = run.finish()
    sent = {int(n): t for c in seen["clients"].values() for n, t in c["sent"].items()}
    rows = {row["number"]: row for row in seen["rows"]}
    assert report["lost_ring"] > 0
    assert report["lost"] >= report["lost_ring"]
    assert 0 < records.size == report["records"] < len(sent)
    assert np.unique(records["cseq"]).size == records.size
    for record in records:
        row = rows[int(record["cseq"])]
        assert row["before_read"] <= int(record["t_sip_in"]) <= row["after_read"]
        assert not record["t_arr"] or sent[int(record["cseq"])] <= int(record["t_arr"])
        assert not record["t_sip_out"] or row["before_send"] <= int(record["t_sip_out"])


def test_only_messages_of_streams_while_recording_is_on_are_recorded(
    testbed: Testbed, tmp_path: Path
) -> None:
    off = []
    with relayed(testbed, tmp_path) as run, run.connect() as client:
        run.tell()
        for _ in range(5):
            time.sleep(0.3)
            asked_off = time.monotonic_ns()
            assert ask(client, "off") == "ok"
            is_off = time.monotonic_ns()
            time.sleep(0.3)
            asked_on = time.monotonic_ns()
            assert ask(client, "on") == "ok"
            off.append((asked_off, is_off, asked_on, time.monotonic_ns()))
        time.sleep(0.3)
        report, records, seen = run.finish()
    assert report["switches_off"] == 5
    assert report["lost"] == 0
    sent = {int(n): t for c in seen["clients"].values() for n, t in c["sent"].items()}
    numbers = np.array(sorted(sent))
    instants = np.array([sent[number] for number in numbers])
    recorded = np.isin(numbers, records["cseq"])
    while_off = np.zeros(numbers.size, bool)
    perhaps = np.zeros(numbers.size, bool)
    for asked_off, is_off, asked_on, is_on in off:
        while_off |= (instants > is_off) & (instants < asked_on - 1e6)
        perhaps |= (instants > asked_off - 50e6) & (instants < is_on + 50e6)
    assert while_off.sum() > 100
    assert not np.any(recorded & while_off)
    assert np.all(recorded | perhaps)
    check_bounds(records, seen, PLAN["size"])
