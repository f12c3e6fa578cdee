"""Measure how another program on the proxy's CPU delays the proxy's messages.

During one run, a test program changes its behaviour each second, in random order. A behaviour is a share of CPU time
and a length of bursts. The effect is the change of the mean waiting and service times. The benchmark groups messages
by the second of their arrival, and compares groups of the same round. A round contains each behaviour once. The
verdict's limits on competitors come from this table (docs/methodology/competitors.md).

    python benchmarks/competitors.py --cps 800 --seconds 90
    python benchmarks/competitors.py --cps 600 --seconds 90 --sut kamailio-tcp
"""

import argparse
import dataclasses
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sipsched.analysis.intervals import mean_interval
from sipsched.measure import acquisition
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Run
from sipsched.records.record import TRACE_FILE
from sipsched.records.run_document import read_run
from sipsched.records.trace import read_trace
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.rules import RULES, Limits

SEGMENT_S, WASHOUT_S = 1.0, 0.25


@dataclass(frozen=True)
class CompetitorPlan:
    """The behaviour of the test program during one second.

    Attributes
    ----------
    name
        Name in the table.
    share
        Share of the CPU; at 0 the program sleeps.
    burst_s
        Length of a burst of computing.
    policy
        Scheduling policy.
    nice
        Nice value.
    """

    name: str
    share: float
    burst_s: float
    policy: int = os.SCHED_OTHER
    nice: int = 0


NOTHING = CompetitorPlan("nothing", 0.0, SEGMENT_S)
PLANS = (
    NOTHING,
    CompetitorPlan("SCHED_IDLE, all idle time", 1.0, SEGMENT_S, os.SCHED_IDLE),
    CompetitorPlan("1 % in bursts of 1 ms", 0.01, 0.001),
    CompetitorPlan("2 % in bursts of 1 ms", 0.02, 0.001),
    CompetitorPlan("5 % in bursts of 1 ms", 0.05, 0.001),
    CompetitorPlan("10 % in bursts of 1 ms", 0.1, 0.001),
    CompetitorPlan("a burst of 2 ms per second, SCHED_FIFO", 0.002, 0.002, os.SCHED_FIFO),
    CompetitorPlan("a burst of 5 ms per second, SCHED_FIFO", 0.005, 0.005, os.SCHED_FIFO),
    CompetitorPlan("a burst of 20 ms per second, SCHED_FIFO", 0.02, 0.02, os.SCHED_FIFO),
)


@dataclass(frozen=True)
class Segment:
    """One second of a run, during which the test program had one behaviour.

    Attributes
    ----------
    plan
        Number of the behaviour.
    round
        Number of the round, which contains each behaviour once.
    begin_ns, end_ns
        Times on CLOCK_MONOTONIC, without the washout (the excluded start of the second).
    used_ns
        CPU time of the test program.
    proxy_ns
        CPU time of the proxy.
    """

    plan: int
    round: int
    begin_ns: int
    end_ns: int
    used_ns: int
    proxy_ns: int


def proxy_ns(pids: Sequence[str]) -> int:
    """Return the total CPU time of processes in ns."""
    return sum(int(Path("/proc", pid, "schedstat").read_text().split()[0]) for pid in pids)


def behave(plan: CompetitorPlan, until: float) -> None:
    """Alternate between computing and sleeping as the plan prescribes. Stop at `until`, a time of CLOCK_MONOTONIC."""
    while time.monotonic() < until:
        if plan.share:
            ends = min(until, time.monotonic() + plan.burst_s)
            while time.monotonic() < ends:
                pass
        pause = plan.burst_s * (1 / plan.share - 1) if plan.share else until - time.monotonic()
        time.sleep(max(0.0, min(pause, until - time.monotonic())))


def compete(cpu: int, ended: Event, send: "multiprocessing.Queue[list[Segment]]") -> None:
    """Compete with the proxy for a CPU until the run ends, and then send the times of each behaviour."""
    os.sched_setaffinity(0, {cpu})
    while not ended.is_set() and not loads():
        time.sleep(0.1)
    time.sleep(1.0)
    pids = subprocess.run(["pgrep", "kamailio"], capture_output=True, text=True).stdout.split()
    segments: list[Segment] = []
    for number in range(10**6):
        for plan in np.random.default_rng(number).permutation(len(PLANS)).tolist():
            if ended.is_set() or not loads():
                send.put(segments)
                return
            try:
                segments.append(_segment(plan, number, pids))
            except FileNotFoundError:
                # the process of the proxy has ended, so the run is over
                send.put(segments)
                return


def _segment(number: int, in_round: int, pids: Sequence[str]) -> Segment:
    plan, until = PLANS[number], time.monotonic() + SEGMENT_S
    priority = 50 if plan.policy == os.SCHED_FIFO else 0
    os.sched_setscheduler(0, plan.policy, os.sched_param(priority))
    # wait, so that the start of the new behaviour has no effect on the segment
    begins = time.monotonic() + WASHOUT_S
    behave(plan, begins)
    used, of_proxy = time.process_time_ns(), proxy_ns(pids)
    behave(plan, until)
    times = (int(begins * 1e9), time.monotonic_ns())
    return Segment(
        number, in_round, *times, time.process_time_ns() - used, proxy_ns(pids) - of_proxy
    )


def loads() -> bool:
    """Return whether the run's load generator (UAC) is sending calls at this moment."""
    pattern = "sipload uac --local .*/uac.schedule"
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True).returncode == 0


def perform(
    campaign: Config, testbed: Testbed, sut: str, cps: int, folder: Path
) -> tuple[Path, list[Segment]]:
    """Measure a run while the test program competes for the proxy's CPU, and return the record and the segments."""
    ended, received = multiprocessing.Event(), multiprocessing.Queue()
    cpu = testbed.sps.cpus[0]
    planted = multiprocessing.Process(target=compete, args=(cpu, ended, received))
    planted.start()
    try:
        run = Run(testbed.name, sut, "default", 1, 8, cps, 1)
        record = acquisition.measure(run, campaign, testbed, folder / "raw")
    finally:
        ended.set()
        segments = received.get(timeout=10)
        planted.join()
    return record, segments


def means(record: Path, segments: Sequence[Segment]) -> npt.NDArray[np.float64]:
    """Return a row per segment: mean K_rcv, T_sip and CPU time per message in µs, and the test program's CPU share."""
    records = read_trace(record / TRACE_FILE).records
    good = (records["t_arr"] > 0) & (records["t_sip_in"] > 0) & (records["t_sip_out"] > 0)
    records = records[good]
    records = records[np.argsort(records["t_arr"])]
    rows = []
    for segment in segments:
        begin, end = np.searchsorted(records["t_arr"], (segment.begin_ns, segment.end_ns))
        inside = records[begin:end]
        count = max(1, inside.size)
        wait = (inside["t_sip_in"] - inside["t_arr"].astype("i8")).mean() / 1e3
        service = (inside["t_sip_out"] - inside["t_sip_in"].astype("i8")).mean() / 1e3
        length = segment.end_ns - segment.begin_ns
        rows.append((wait, service, segment.proxy_ns / count / 1e3, segment.used_ns / length))
    return np.array(rows)


def print_table(segments: Sequence[Segment], values: npt.NDArray[np.float64]) -> None:
    """Print how each behaviour of the test program changes the means, compared with a second in which it sleeps."""
    plans = np.array([segment.plan for segment in segments])
    rounds = np.array([segment.round for segment in segments])
    complete = [n for n in np.unique(rounds) if np.count_nonzero(rounds == n) == len(PLANS)]
    table = np.array(
        [[values[(rounds == n) & (plans == p)][0] for p in range(len(PLANS))] for n in complete]
    )
    print(
        f"{len(complete)} rounds; without a competitor: K_rcv {table[:, 0, 0].mean():.1f} µs, T_sip "
        f"{table[:, 0, 1].mean():.1f} µs, {table[:, 0, 2].mean():.1f} µs of CPU per message"
    )
    print(
        f"{'test program':42s} {'used':>6s}  change of K_rcv, T_sip, CPU per message in % (95 % interval)"
    )
    for number, plan in enumerate(PLANS[1:], 1):
        cells = []
        for column in range(3):
            change = 100 * (
                table[:, number, column] / table[:, 0, column].mean()
                - table[:, 0, column] / table[:, 0, column].mean()
            )
            interval = mean_interval(change)
            cells.append(f"{interval.estimate:+7.1f} ({interval.low:+.1f} to {interval.high:+.1f})")
        print(f"{plan.name:42s} {table[:, number, 3].mean():6.1%}  {'  '.join(cells)}")


def main() -> None:
    """Perform a run with the test program and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--cps", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()
    campaign = load_config()
    campaign = dataclasses.replace(
        campaign,
        load=dataclasses.replace(campaign.load, duration_s=options.seconds),
        validity=dict.fromkeys(RULES, Limits(math.inf, math.inf)),
    )
    with tempfile.TemporaryDirectory() as scratch:
        record, segments = perform(
            campaign, load_testbed("local"), options.sut, options.cps, Path(scratch)
        )
        account = read_run(record).account
        print(account)
        print_table(segments, means(record, segments))


if __name__ == "__main__":
    sys.exit(main())
