"""Measure the CPU time that the BPF program needs to choose a socket by Call-ID, per datagram.

The benchmark runs kamailio-udp-partitioned with 8 workers on the embedded testbed. Each worker has its own socket.
During the run, the kernel measures the time of its BPF programs (kernel.bpf_stats_enabled). The result includes the
cost of this measurement. The benchmark prints the CPU time per datagram in ns, and the share of datagrams per socket.
The CPU time should be at most 1 µs per datagram.
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sipsched.measure.acquisition import measure
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.testbed.inventory import load_testbed

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
SUT, WORKERS, RATE_CPS = "kamailio-udp-partitioned", 8, 500


@contextmanager
def programs_timed() -> Iterator[None]:
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def main() -> None:
    campaign = load_config()
    # switch the probe off, because the CPU time of its BPF programs would disturb the measurement
    sut = dataclasses.replace(campaign.sut(SUT), probe="off")
    campaign = dataclasses.replace(campaign, suts={SUT: sut})
    run = Run("local", SUT, "default", 1, WORKERS, RATE_CPS, 1)
    with tempfile.TemporaryDirectory() as folder, programs_timed():
        record = measure(run, campaign, load_testbed("local"), Path(folder))
        shards = json.loads((record / "run.json").read_text())["proxy"]["shards"]
    total = sum(shards["selected"])
    shares = ", ".join(f"{count / total:.3f}" for count in shards["selected"])
    print(f"{shards['run_ns'] / shards['runs']:.0f} ns per datagram, {shards['runs']} datagrams")
    print(f"shares of {WORKERS} sockets: {shares}")


if __name__ == "__main__":
    main()
