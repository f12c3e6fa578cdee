"""What the probe costs: the proxy's CPU time a message with recording on and off, by crossover.

One proxy serves one load at about half its capacity. Recording is switched off and on in windows, in random order
within each pair; the start of each window is left out. The CPU time is that of all the proxy's processes, by their
own clocks, receive work of the kernel that runs in their context included; the messages are the datagrams that the
SPS's sockets took. Printed: the mean of the pairs' log ratios as a percentage, with its 95 % interval.
"""

import argparse
import dataclasses
import math
import os
import socket
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from sipsched.measure.probe import CONTROL_SOCKET
from sipsched.measure.serving import Serving
from sipsched.measure.tuning import tuned
from sipsched.plan import config
from sipsched.plan.modes import find_mode, load_modes
from sipsched.records.record import UnfinishedRecord
from sipsched.testbed.inventory import load_testbed
from sipsched.testbed.session import open_hosts

SUT = "kamailio-udp"
THREADS = 8
CPUCLOCK_SCHED = 2
"""Of a process's clock id, the bits that say: CPU time by the scheduler (include/linux/posix-timers.h)."""
LEAD_S = 0.5
"""From the start of the load to the first window."""


@dataclass(frozen=True)
class Sample:
    """What the SPS had done by an instant."""

    t_ns: int
    cpu_ns: int
    datagrams: int


@dataclass(frozen=True)
class Window:
    """A stretch of the load, its washout left out.

    Attributes
    ----------
    recording
        `on` or `off`.
    switch_ns
        How long the switch took that began it.
    """

    pair: int
    recording: str
    switch_ns: int
    first: Sample
    last: Sample

    @property
    def datagrams(self) -> int:
        """Messages that the SPS's sockets took."""
        return self.last.datagrams - self.first.datagrams

    @property
    def cpu_us(self) -> float:
        """CPU time of the proxy a message."""
        return (self.last.cpu_ns - self.first.cpu_ns) / 1e3 / self.datagrams


class Windows(threading.Thread):
    """Switches recording while a load is offered; runs on the SPS itself, away from the proxy's CPUs."""

    def __init__(
        self, control: str, pids: list[int], cpus: tuple[int, ...], options: argparse.Namespace
    ) -> None:
        super().__init__()
        self.windows: list[Window] = []
        self._control = control
        self._pids = pids
        self._cpus = cpus
        self._options = options

    def run(self) -> None:
        """Play all pairs of windows."""
        options = self._options
        os.sched_setaffinity(threading.get_native_id(), self._cpus)
        order = np.random.default_rng(options.seed)
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(5)
            control.connect(self._control)
            answers = control.makefile()
            time.sleep(LEAD_S)
            for pair in range(pair_count(options)):
                for recording in order.permutation(["off", "on"]):
                    begin_ns = time.monotonic_ns()
                    control.sendall(f"{recording}\n".encode())
                    answer = answers.readline().strip()
                    if answer != "ok":
                        raise RuntimeError(f"recording {recording}: {answer}")
                    switch_ns = time.monotonic_ns() - begin_ns
                    # longer or shorter by a tenth: no timer's period is met window by window
                    length_s = options.window_s * order.uniform(0.9, 1.1)
                    sleep_until(begin_ns + options.washout_s * 1e9)
                    first = self._sample()
                    sleep_until(begin_ns + length_s * 1e9)
                    self.windows.append(Window(pair, recording, switch_ns, first, self._sample()))

    def _sample(self) -> Sample:
        datagrams = udp_datagrams(self._pids[0])
        cpu_ns = sum(time.clock_gettime_ns(~pid << 3 | CPUCLOCK_SCHED) for pid in self._pids)
        return Sample(time.monotonic_ns(), cpu_ns, datagrams)


def sleep_until(t_ns: float) -> None:
    """Sleep until an instant of CLOCK_MONOTONIC."""
    time.sleep(max(0.0, t_ns - time.monotonic_ns()) / 1e9)


def udp_datagrams(pid: int) -> int:
    """Read InDatagrams of the network namespace of a process."""
    lines = Path(f"/proc/{pid}/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("InDatagrams")])


def pair_count(options: argparse.Namespace) -> int:
    """Count the pairs of windows that the load has time for."""
    return int((options.seconds - LEAD_S) / (2.2 * options.window_s))


def measure(options: argparse.Namespace) -> tuple[list[Window], str]:
    """Serve the load; give the windows, and the probe's report of its switches."""
    campaign = config.load_config()
    load = dataclasses.replace(campaign.load, duration_s=options.seconds)
    campaign = dataclasses.replace(campaign, load=load, probe=options.mode)
    testbed = load_testbed("local")
    point = config.Point("local", SUT, "default", 1, THREADS)
    calls = round(options.cps * options.seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_hosts(testbed, "probe cost") as hosts,
    ):
        record = UnfinishedRecord.begin(Path(folder), point.run(options.cps, 1))
        serving = Serving(hosts, point, campaign, record, options.seconds + 90, controlled=True)
        serving.check_hosts(calls)
        mode = find_mode("default", load_modes())
        with tuned(hosts.sps, testbed, mode, 1, THREADS) as state, serving.started(state):
            serving.warm_up(options.cps, 1)
            group = f"{serving.proxy_process.group}/cgroup.procs"
            pids = [int(line) for line in hosts.sps.run(["cat", group]).stdout.split()]
            control = str(hosts.sps.workdir / CONTROL_SOCKET)
            windows = Windows(control, pids, hosts.sps.spec.helper_cpus, options)
            windows.start()
            observed = serving.observe("uac", calls, options.cps, 2)
            windows.join()
            report = serving.probe.end(Path(folder))
    refused = observed.ledger.to_sps.refused
    said = (
        f"mode {report.mode}, {report.switches_off} switches off, slowest "
        f"{(report.slowest_off_ns or 0) / 1e6:.1f} ms off and {(report.slowest_on_ns or 0) / 1e6:.1f} ms on, "
        f"{report.lost} records lost, {report.cut_arrivals} arrivals and {report.cut_services} services cut; "
        f"{observed.statistics.calls_failed} calls failed, {refused} datagrams refused"
    )
    return windows.windows, said


def log_ratios(windows: list[Window]) -> list[float]:
    """Give ln(on / off) of the CPU time a message of each pair."""
    cpu = {(window.pair, window.recording): window.cpu_us for window in windows}
    pairs = sorted({pair for pair, _ in cpu})
    return [math.log(cpu[pair, "on"] / cpu[pair, "off"]) for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--washout-s", type=float, default=0.2)
    parser.add_argument("--cps", type=int, default=1500)
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    windows, said = measure(options)
    ratios = log_ratios(windows)
    mean = statistics.mean(ratios)
    half = stats.sem(ratios) * stats.t.ppf(0.975, len(ratios) - 1)
    share = sum(w.last.cpu_ns - w.first.cpu_ns for w in windows) / sum(
        w.last.t_ns - w.first.t_ns for w in windows
    )
    off, on = (
        statistics.median(w.cpu_us for w in windows if w.recording == recording)
        for recording in ("off", "on")
    )
    low, middle, high = (100 * math.expm1(mean + by) for by in (-half, 0, half))
    print(f"probe cost: {said}")
    print(
        f"probe cost: {middle:+.1f} % ({low:+.1f} to {high:+.1f}) of the proxy's CPU time a message, "
        f"half-width {100 * half:.1f} %; medians {off:.1f} -> {on:.1f} µs; {len(ratios)} pairs of windows of "
        f"{options.window_s:g} s, {options.washout_s:g} s left out; {SUT}, {THREADS} threads, "
        f"{options.cps} cps, CPU {100 * share:.0f} % busy"
    )


if __name__ == "__main__":
    main()
