"""The probe's stamps of messages in TCP streams, against what a relay and a packet socket saw of each."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import stream_relay
from helpers import wait_for

from sipsched.records.trace import HEADER, RECORD, Flag
from sipsched.testbed.inventory import Testbed, native_folder

LOAD_S = 3.0
CLOCKS_NS = 2_000
"""The packet socket stamps with CLOCK_REALTIME: what reading two clocks one after the other may be wrong by."""
PLAN: dict[str, Any] = {
    "workers": 2,
    "rate": 400,
    "size": 500,
    "chunks": [],
    "read": 4096,
    "cut": 0,
}


@dataclass
class Relayed:
    """A relay under traffic, and the probe that watches it."""

    folder: Path
    relay: subprocess.Popen[bytes]
    probe: subprocess.Popen[bytes]

    def tell(self) -> None:
        assert self.relay.stdin is not None
        self.relay.stdin.write(b"\n")
        self.relay.stdin.flush()

    def ask(self, line: str) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(self.folder / "control"))
            client.sendall(f"{line}\n".encode())
            assert client.recv(100) == b"ok\n"

    def finish(self) -> tuple[dict[str, Any], npt.NDArray[Any], dict[str, Any]]:
        """End the traffic and the probe; give the report, the records and what was seen."""
        self.tell()
        wait_for((self.folder / "seen.json").exists, 20)
        time.sleep(0.2)
        self.probe.send_signal(signal.SIGTERM)
        assert self.probe.wait(10) == 0, (self.folder / "probe.log").read_text()
        self.tell()
        self.relay.wait(10)
        trace = (self.folder / "trace.bin").read_bytes()
        return (
            json.loads((self.folder / "probe.json").read_text()),
            np.frombuffer(trace, RECORD, offset=HEADER.itemsize),
            json.loads((self.folder / "seen.json").read_text()),
        )


@contextlib.contextmanager
def relayed(testbed: Testbed, folder: Path, *options: str, **plan: Any) -> Iterator[Relayed]:
    """Let a relay serve and the probe watch it; it gets traffic when told to."""
    program = native_folder(testbed.workdir, "probe") / "sipprobe"
    argv = (stream_relay.__file__, json.dumps(PLAN | plan), str(folder / "seen.json"))
    relay = subprocess.Popen(
        ["unshare", "--net", sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    probe = None
    try:
        assert relay.stdout is not None
        assert relay.stdout.readline() == b"serving\n"
        probe = subprocess.Popen(
            [
                *("nsenter", f"--net=/proc/{relay.pid}/ns/net", str(program), "run"),
                *("--mode", "stream", "--comm", stream_relay.NAME),
                *("--output", str(folder / "trace.bin"), "--report", str(folder / "probe.json")),
                *("--ready", str(folder / "ready"), "--control", str(folder / "control")),
                *options,
            ],
            stderr=(folder / "probe.log").open("wb"),
        )
        ready = folder / "ready"
        wait_for(
            lambda: probe.poll() is not None or (ready.exists() and "ready" in ready.read_text()),
            10,
        )
        assert probe.poll() is None, (folder / "probe.log").read_text()
        yield Relayed(folder, relay, probe)
    finally:
        for process in (relay, probe):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)


def captured(seen: dict[str, Any], size: int, *, to_server: bool) -> dict[int, int]:
    """When the packet socket saw the segment with a message's last byte arrive, or leave the server, ns by CSeq."""
    found = {}
    for port, client in seen["clients"].items():
        wanted = [to_server, not to_server, int(port)]
        mine = [segment for segment in seen["segments"] if segment[:3] == wanted]
        first = mine[0][3]
        ends = np.array([(segment[3] - first) % 2**32 + segment[4] for segment in mine])
        for place, number in enumerate(client["order"]):
            # what comes back comes in the same order
            found[number] = mine[int(np.searchsorted(ends, (place + 1) * size))][5]
    return found


def check_bounds(records: npt.NDArray[Any], seen: dict[str, Any], size: int) -> None:
    """Compare every record with the clocks read around its system calls, and with the packets."""
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
        # packet sockets see what comes behind the driver and before the protocol layer, and what leaves right before
        # the driver gets it
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
        # segments and reads end within messages, and hold several
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
def test_every_message_of_a_stream_has_its_row_and_its_stamps(
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
    # two connections ended within a message
    assert report["cut"] == 2
    assert report["descriptors_sent"] == report["descriptors_received"] == 4
    assert 0 < report["descriptor_send_ns"] < 1e9
    assert not np.any(records["flags"] & (Flag.UNMATCHED | Flag.NO_SEND | Flag.NO_DEP))
    check_bounds(records, seen, (PLAN | plan)["size"])


def test_what_the_ring_cannot_hold_is_counted_and_nothing_is_made_up(
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


def test_what_comes_while_recording_is_off_is_not_there_and_all_else_is(
    testbed: Testbed, tmp_path: Path
) -> None:
    off = []
    with relayed(testbed, tmp_path) as run:
        run.tell()
        for _ in range(5):
            time.sleep(0.3)
            asked_off = time.monotonic_ns()
            run.ask("off")
            is_off = time.monotonic_ns()
            time.sleep(0.3)
            asked_on = time.monotonic_ns()
            run.ask("on")
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
