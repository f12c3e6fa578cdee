"""Compare a run in virtual time with two other counts inside the guest.

- A packet capture (`capture.c`, an AF_PACKET socket with the kernel's timestamps) contains every message that enters or
  leaves the proxy's host. The benchmark compares the number of messages and their times with the probe's trace.
- The kernel's scheduler counts the CPU time of each process (/proc/PID/schedstat). The benchmark compares the sum with
  the account of `sipaccount`, which BPF programs count.

The argument is a testbed of the kind `virtual` (default: virtual-2000).
"""

import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import patch

import numpy as np

from sipsched.measure import acquisition
from sipsched.measure.serving import Serving
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.records.trace import Event, MessageKind, read_trace
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.session import Hosts

HEADER = struct.Struct("=QqII")
KINDS = {
    "INVITE sip": MessageKind.INVITE,
    "ACK sip": MessageKind.ACK,
    "BYE sip": MessageKind.BYE,
    "180 INVITE": MessageKind.RINGING,
    "200 INVITE": MessageKind.OK_INVITE,
    "200 BYE": MessageKind.OK_BYE,
}
Times = dict[tuple[int, int], int]
"""Time of a message in ns, by the hash of its Call-ID and its type."""


def call_hash(call_id: bytes) -> int:
    """Return the 64-bit FNV-1a hash of a Call-ID, as in the trace."""
    result = 0xCBF29CE484222325
    for byte in call_id:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


def captured(content: bytes) -> tuple[Times, Times]:
    """Return the first time of each message that entered the proxy's host, and of each message that left the host."""
    entered: Times = {}
    left: Times = {}
    at = 0
    while at < len(content):
        realtime_ns, offset_ns, outgoing, length = HEADER.unpack_from(content, at)
        at += HEADER.size
        text = content[at : at + length]
        at += length
        first = re.match(rb"(?:SIP/2.0 (\d+)|(\w+) sip)", text)
        call = re.search(rb"\r\nCall-ID: *(\S+)", text, re.IGNORECASE)
        method = re.search(rb"\r\nCSeq: *\d+ +(\w+)", text, re.IGNORECASE)
        if not (first and call and method):
            continue
        status, request = first.groups()
        name = f"{request.decode()} sip" if request else f"{status.decode()} {method[1].decode()}"
        if name in KINDS:
            times = left if outgoing else entered
            times.setdefault((call_hash(call[1]), KINDS[name]), realtime_ns + offset_ns)
    return entered, left


@contextmanager
def capturing(hosts: Hosts, program: Path, to: Path) -> Iterator[None]:
    """Capture the messages of the proxy's host during the block, and store them in the file `to`."""
    sps = hosts.sps
    on_host, file = (PurePosixPath(sps.workdir / name) for name in ("capture", "captured"))
    sps.put_file(program, on_host)
    sps.run(["chmod", "+x", str(on_host)])
    port = str(sps.spec.sip_port)
    process = sps.start(
        "capture", [str(on_host), port, str(file)], cpus=sps.spec.helper_cpus, limit_s=600
    )
    try:
        yield
    finally:
        sps.stop(process)
        sps.get_file(file, to)


def compare(name: str, capture: Times, trace: Times) -> None:
    """Print how many messages only one side has, and by how much the times of the others differ."""
    both = capture.keys() & trace.keys()
    off_us = np.array([(trace[key] - capture[key]) / 1000 for key in both])
    middle, low, high = np.percentile(off_us, [50, 1, 99]) if both else (np.nan,) * 3
    print(
        f"{name}: {len(both)} messages in both, {len(capture.keys() - both)} only in the capture, "
        f"{len(trace.keys() - both)} only in the trace; trace minus capture: median {middle:.2f} µs, "
        f"98 % of the messages between {low:.2f} and {high:.2f} µs"
    )


def main(name: str = "virtual-2000") -> None:
    testbed, config = load_testbed(name), load_config()
    config = replace(config, load=replace(config.load, duration_s=2.0, warmup_s=0.2))
    observe = Serving.observe
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program, packets = folder / "capture", folder / "packets"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=True)

        def observe_and_capture(serving: Serving, *arguments: Any) -> Any:
            with capturing(serving.hosts, program, packets):
                return observe(serving, *arguments)

        run = Run(name, "kamailio-udp", "default", 2, 4, 600, 1)
        with patch.object(Serving, "observe", observe_and_capture):
            record = acquisition.measure(run, config, testbed, folder / "raw")
        document = json.loads((record / "run.json").read_text())
        entered, left = captured(packets.read_bytes())
        records = read_trace(record / "trace.bin.zst").records
    records = records[(records["event"] == Event.MESSAGE) & (records["kind"] != MessageKind.OTHER)]
    keys = [(int(one["call_id_hash"]), int(one["kind"])) for one in records]
    print(f"{run}, verdict {document['verdict']['grade']}")
    for title, capture, column in (("arrivals", entered, "t_arr"), ("departures", left, "t_dep")):
        compare(title, capture, dict(zip(keys, records[column].astype(int).tolist(), strict=True)))
    parts, counted_ns = document["account"]["account"]["parts"], document["proxy"]["cpu_ns"]
    ours_ns = parts["workers"] + parts["proxy"] + parts["softirq"] + parts["irq"]
    print(
        f"CPU time of the proxy: {counted_ns / 1e6:.3f} ms in /proc/PID/schedstat, {ours_ns / 1e6:.3f} ms in the "
        f"account with the interrupts, {100 * (ours_ns / counted_ns - 1):+.3f} %"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
