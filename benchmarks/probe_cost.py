"""What watching costs: the proxy's CPU time a message with the probe's recording and without, in windows of one run.

About half of the proxy's capacity. The comparison is default,default+recording=off: the probe lets go of every hook
and attaches again while the proxy serves the same calls in each window of a block, and a sham beside them. The CPU
time is that of all the proxy's processes, by their own clocks, the kernel's receive work in their context included;
the messages are the datagrams that the SPS's sockets took, over TCP the segments with data that it sent. Printed with
the 95 % interval of the mean over blocks and that of Hodges and Lehmann, which a few windows of a disturbed machine
move less. With `--of factors` the probe records all the time, as in any run, and what is stilled in those windows is
the program that counts waits for locks (sipfactors).
"""

import argparse
import dataclasses
import math
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event

from sipsched.analysis.crossover import percent
from sipsched.analysis.probe_cost import ProbeCost, probe_costs
from sipsched.analysis.statistics import Interval
from sipsched.measure import acquisition
from sipsched.measure.factors import PROGRAM
from sipsched.measure.probe import CONTROL_SOCKET
from sipsched.pages.numbers import in_words
from sipsched.plan import config
from sipsched.plan.modes import Setting
from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.run_document import ProbeReport, read_run
from sipsched.testbed.inventory import load_testbed, native_folder
from sipsched.testbed.places import RUN_FOLDER

TESTBED = load_testbed("local")
MODE = f"default,default+{Setting.RECORDING}=off"
ARMS = 3
WINDOW_S, WASHOUT_S = 0.4, 0.1
"""A switch takes 2 to 16 ms, 50 ms more where a preempted worker keeps its message."""
SHARED_MACHINE = (
    *("rate_error", "ks_excess", "cv_error", "lateness_p99_us"),
    *("generator_cpu_share", "steal_share"),
)
"""Rules that other work of the machine breaks: it falls on the windows of all arms alike."""


def measure(run: config.Run, seconds: float, folder: Path) -> tuple[ProbeCost, ProbeReport]:
    """Do the run; give the cost, and the probe's report of its switches."""
    campaign = config.load_config()
    tolerant = dict.fromkeys(SHARED_MACHINE, config.Limits(math.inf, math.inf))
    campaign = dataclasses.replace(
        campaign,
        crossover=dataclasses.replace(
            campaign.crossover, mode_s=seconds / ARMS, window_s=WINDOW_S, washout_s=WASHOUT_S
        ),
        validity={**campaign.validity, **tolerant},
    )
    record = acquisition.measure(run, campaign, TESTBED, folder / "raw")
    write_messages(messages_from_record(record), folder / "messages.nc")
    reduced = folder / "windows.nc"
    windows.write_windows(windows.windows_from_record(folder / "messages.nc", record), reduced)
    (cost,) = probe_costs([reduced])
    return cost, read_run(record).probe


def count_factors(ended: Event) -> None:
    """Once the probe runs, take its place at the socket where the switcher stills it, until the run is over."""
    sps = Path(TESTBED.workdir, "sps")
    socket, aside = sps / CONTROL_SOCKET, sps / "aside.control"
    socket.unlink(missing_ok=True)
    while not socket.exists():
        if ended.wait(0.1):
            return
    socket.rename(aside)
    group = Path(RUN_FOLDER, "sps", "proxy.pid").read_text().strip()
    files = (
        "--report",
        sps / "stilled.json",
        "--ready",
        sps / "stilled.ready",
        "--control",
        socket,
    )
    argv = [native_folder(TESTBED.workdir, "probe") / PROGRAM, "--group", group, *files]
    helpers = ",".join(map(str, TESTBED.sps.helper_cpus))
    with subprocess.Popen(["taskset", "--cpu-list", helpers, *map(str, argv)]) as process:
        ended.wait()
        process.terminate()
    aside.unlink(missing_ok=True)


@contextmanager
def factors_stilled() -> Iterator[None]:
    """Have the factors counted in runs of the block, and stilled where the probe would be."""
    ended = Event()
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count_factors, ended)
        try:
            yield
        finally:
            ended.set()
    counting.result()


def half_width(interval: Interval) -> float:
    """Give half the width of the interval of a log ratio, in percent."""
    return 100 * (interval.high - interval.low) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cps", type=int, default=1500)
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--of", choices=("probe", "factors"), default="probe")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the run and its windows, which stay"
    )
    options = parser.parse_args()
    run = config.Run("local", options.sut, MODE, 1, 8, options.cps, 1)
    stilled = factors_stilled() if options.of == "factors" else nullcontext()
    with tempfile.TemporaryDirectory() as scratch, stilled:
        cost, report = measure(run, options.seconds, options.keep or Path(scratch))
    mean, robust = cost.effect.interval, cost.effect.robust
    print(
        f"{options.of} cost: {in_words(percent(mean), '%')} of the proxy's CPU time a message (half-width "
        f"{half_width(mean):.1f} %), Hodges-Lehmann {in_words(percent(robust), '%')} ({half_width(robust):.1f} %); "
        f"without it {cost.without_us:.1f} µs a message; sham {in_words(percent(cost.sham.interval), '%')}"
    )
    print(
        f"  mode {report.mode}, {sum(cost.effect.blocks)} blocks of windows of {WINDOW_S:g} s ({WASHOUT_S:g} s left "
        f"out), {options.seconds:g} s of load, {run.sut}, {run.threads} threads, {run.cps} cps; probe: "
        f"{report.switches_off} switches off, slowest {(report.slowest_off_ns or 0) / 1e6:.1f} ms off and "
        f"{(report.slowest_on_ns or 0) / 1e6:.1f} ms on; {report.lost} records lost, {report.cut_arrivals} "
        f"arrivals and {report.cut_services} services cut short"
    )


if __name__ == "__main__":
    main()
