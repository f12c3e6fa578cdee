"""Test whether virtual time in an emulated machine is accurate, on an idle host and on a busy host.

The benchmark boots the emulated machine (the guest) with a self-test. During half of the boots, the host should run no
other program. During the other half of the boots, busy loops run at idle priority, which is also the guest's priority.
The benchmark prints the results and the real time of each boot, and the difference between the mean waits of messages
in both halves. The argument is a kernel release (default: 6.1), or the path of a bzImage on machines without a guest
image.

With `--proxy`, the guest runs Kamailio instead of the self-test, and each trial offers the same calls. The load is
slightly above the capacity of one core, so a slower or faster proxy would drop a different number of messages.

With `--cost`, Kamailio runs on four cores of the testbed `virtual`. The benchmark prints the CPU time that QEMU uses
per second of load, and the share of this machine's CPU time that QEMU uses.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sipsched.measure.crossing_search import _offer, ready_for_trials
from sipsched.plan.config import Config, load_config
from sipsched.plan.modes import DEFAULT
from sipsched.plan.run import Point
from sipsched.testbed.inventory import VirtualClock, load_testbed
from sipsched.testbed.virtual import STATE
from sipsched.testbed.virtual_clock import find_kernel, judge, read_statistics, self_test

BOOTS = 10
LOOPS_PER_CPU = 3
CORES = 4
CLOCK = VirtualClock(mips=2000, quantum_ns=5000, kernel_weight=1, wake_ns=0)
POINT = Point("virtual-2000", "kamailio-udp", DEFAULT, cores=1, threads=8)
TRIALS, TRIAL_CPS, TRIAL_S = 5, 720, 2.0
COSTLY_POINT = Point("virtual", "kamailio-udp", DEFAULT, cores=4, threads=8)
COSTLY_CPS, COSTLY_S = 6800, 1.0
"""Load that keeps the four cores busy for about 85 % of the time."""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep the CPUs busy with `count` endless loops at idle priority until the end of the block."""
    argv = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def halves() -> tuple[int, int]:
    """Return the number of busy loops in each half of a benchmark."""
    return 0, LOOPS_PER_CPU * (os.cpu_count() or 1)


def proxy_config() -> Config:
    """Return the settings of trials in the guest."""
    campaign = load_config()
    load = replace(campaign.load, warmup_s=0.1, drain_s=0.3, retransmissions=False)
    return replace(campaign, probe="off", load=load)


def used_cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds, from /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_cost() -> None:
    """Offer calls to Kamailio on four cores, and print the CPU time of QEMU per second of load."""
    config = proxy_config()
    with ready_for_trials(COSTLY_POINT, config, load_testbed(COSTLY_POINT.testbed)) as (
        serving,
        state,
    ):
        pid = int((STATE / "qemu.pid").read_text())
        first, before_s, began = read_statistics(STATE), used_cpu_s(pid), time.monotonic()
        trial = _offer(serving, state, config.validity, COSTLY_CPS, COSTLY_S, 0)
        last, after_s, ended = read_statistics(STATE), used_cpu_s(pid), time.monotonic()
    assert first is not None
    assert last is not None
    cpu_s, guest_s = after_s - before_s, (last.virtual_ns - first.virtual_ns) / 1e9
    load_s = config.load.warmup_s + COSTLY_S
    print(
        f"{load_s:g} s of load at {COSTLY_CPS} cps ({trial.pdr:.2%} dropped) in {guest_s:.2f} s of guest time: "
        f"{cpu_s:.0f} CPU seconds, which are {cpu_s / load_s:.0f} per second of load with the start of the proxy; "
        f"{cpu_s / (ended - began) / (os.cpu_count() or 1):.0%} of this machine's CPU time"
    )


def try_proxy() -> None:
    """Offer the same calls to Kamailio in the guest several times, and print the dropped messages and the CPU time."""
    config = proxy_config()
    costs: dict[int, list[float]] = {}
    with ready_for_trials(POINT, config, load_testbed(POINT.testbed)) as (serving, state):
        for loops, number in itertools.product(halves(), range(TRIALS)):
            start = time.monotonic()
            with busy_loops(loops):
                trial = _offer(serving, state, config.validity, TRIAL_CPS, TRIAL_S, 0)
            assert trial.cpu_us is not None
            costs.setdefault(loops, []).append(trial.cpu_us)
            print(
                f"{loops} busy loops, trial {number}: {trial.refused} of "
                f"{trial.received + trial.refused} messages dropped, {trial.cpu_us:.1f} µs of CPU time per message; "
                f"{time.monotonic() - start:.0f} s real",
                flush=True,
            )
    alone, beside = (statistics.fmean(values) for values in costs.values())
    print(f"change of the CPU time per message by busy loops: {beside / alone - 1:+.2%}")


def test_clock(release: str) -> None:
    """Boot the guest with the self-test several times, and print the results."""
    kernel = find_kernel(release)
    waits: dict[int, list[float]] = {}
    print(f"{CORES} cores, {CLOCK}")
    for loops in halves():
        with busy_loops(loops):
            for boot in range(BOOTS):
                start = time.monotonic()
                result, counters = self_test(CLOCK, CORES, kernel)
                failed = judge(result, counters, CLOCK)[1]
                waits.setdefault(loops, []).append(result.wait_ns)
                errors = ", ".join(
                    f"{name} {error:.2%}" for name, (error, _) in result.errors(CLOCK).items()
                )
                print(
                    f"{loops} busy loops, boot {boot}: {errors}; {time.monotonic() - start:.1f} s real"
                    f"{''.join(f'; FAILED: {line}' for line in failed)}",
                    flush=True,
                )
    alone, beside = (statistics.fmean(values) for values in waits.values())
    spread = max(max(values) / min(values) - 1 for values in waits.values())
    print(
        f"change of the mean wait by busy loops: {beside / alone - 1:+.2%}; spread per half: {spread:.2%}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", nargs="?", default="6.1")
    parser.add_argument("--proxy", action="store_true")
    parser.add_argument("--cost", action="store_true")
    asked = parser.parse_args()
    if asked.cost:
        measure_cost()
    elif asked.proxy:
        try_proxy()
    else:
        test_clock(asked.kernel)
