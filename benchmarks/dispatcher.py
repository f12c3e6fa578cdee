"""What choosing a socket by Call-ID costs: CPU time of the BPF program a datagram, on the embedded testbed.

A run of kamailio-udp-partitioned with 8 workers, whose messages are those of calls; the kernel times its BPF programs
(kernel.bpf_stats_enabled), which is in the figure. Printed: ns a datagram, and the share of each socket. At most
1 µs is wanted.
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sipsched.measure.acquisition import measure
from sipsched.plan.config import Run, load_config
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
    # the probe's programs are BPF, too, and would be in its way
    sut = dataclasses.replace(campaign.sut(SUT), probe="off")
    campaign = dataclasses.replace(campaign, suts={SUT: sut})
    run = Run("local", SUT, "default", 1, WORKERS, RATE_CPS, 1)
    with tempfile.TemporaryDirectory() as folder, programs_timed():
        record = measure(run, campaign, load_testbed("local"), Path(folder))
        shards = json.loads((record / "run.json").read_text())["proxy"]["shards"]
    total = sum(shards["selected"])
    shares = ", ".join(f"{count / total:.3f}" for count in shards["selected"])
    print(f"{shards['run_ns'] / shards['runs']:.0f} ns a datagram, {shards['runs']} datagrams")
    print(f"shares of {WORKERS} sockets: {shares}")


if __name__ == "__main__":
    main()
