"""Measure the cost of the probe: the proxy's CPU time per message with and without recording.

The load should be about half of the proxy's capacity. The run compares the modes default and default+recording=off: the
probe attaches its hooks to the kernel in some windows, and detaches them in other windows. All windows of a block have
the same calls. Each block also has a sham window. The CPU time is the sum of the CPU clocks of the proxy's processes,
which includes the kernel's receive work in their context. The benchmark divides the CPU time by the datagrams that the
SPS's sockets received. Over TCP, the divisor is the number of segments with data that the SPS sent. The result is the
mean over blocks with its 95 % interval. The benchmark also prints the estimate of Hodges and Lehmann, which a few
disturbed windows change less. With `--of factors`, the probe always records. The windows switch sipfactors, the program
that counts waits for locks, instead of the probe. With `--of watch`, the run has no probe. Instead, `fab watch` watches
the proxy, with the hooks attached in one of every two seconds. `--of histograms` uses `fab watch --histograms`.
"""

import argparse
import dataclasses
import math
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median
from threading import Event

from sipsched.analysis import crossover
from sipsched.analysis.crossover import percent
from sipsched.analysis.intervals import Interval
from sipsched.analysis.probe_cost import ProbeCost, probe_costs
from sipsched.analysis.watched import probe_cost
from sipsched.measure import acquisition, running_proxy
from sipsched.measure.factors import PROGRAM
from sipsched.measure.probe import CONTROL_SOCKET
from sipsched.measure.running_proxy import PROGRAMS, parse_processes
from sipsched.pages.numbers import in_words
from sipsched.plan import config
from sipsched.plan.modes import Setting
from sipsched.plan.run import Run
from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.probe_report import ProbeReport
from sipsched.records.run_document import read_run
from sipsched.records.watch import Second, read_seconds, read_watch
from sipsched.testbed.inventory import load_testbed, native_folder
from sipsched.testbed.machine import Machine
from sipsched.testbed.places import RUN_FOLDER
from sipsched.validity.rules import SHARED_MACHINE, Limits
from sipsched.watch import Stop, WatchOptions, watch

TESTBED = load_testbed("local")
MODE = f"default,default+{Setting.RECORDING}=off"
ARMS = 3
WINDOW_S, WASHOUT_S = 0.4, 0.1
"""Length of a window, and of the washout at its start, which results exclude.

The washout is longer than a switch, which takes 2 to 16 ms, or 50 ms more if a preempted worker keeps its message.
"""


def measure(run: Run, seconds: float, folder: Path) -> tuple[ProbeCost, ProbeReport]:
    """Measure a run that switches the probe off and on. Return the cost of the probe, and the probe's report."""
    campaign = config.load_config()
    # accept disturbances of the machine, because disturbances affect windows with and without the probe equally
    tolerant = dict.fromkeys(SHARED_MACHINE, Limits(math.inf, math.inf))
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
    """Run sipfactors on the socket that normally controls the probe. The run then switches sipfactors on and off."""
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
    """Start sipfactors, which counts waits for locks, before the run that is measured in the `with` block.

    In the windows without recording, sipfactors stops counting, while the probe continues to record.
    """
    ended = Event()
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count_factors, ended)
        try:
            yield
        finally:
            ended.set()
    counting.result()


def watch_cost(
    run: Run, seconds: float, folder: Path, *, histograms: bool
) -> tuple[Interval, Path]:
    """Run `fab watch` on the proxy during a run without a probe.

    Return the cost of the watch as a share of the proxy's CPU time per message, and the folder of its record.
    """
    campaign = config.load_config()
    tolerant = dict.fromkeys(SHARED_MACHINE, Limits(math.inf, math.inf))
    campaign = dataclasses.replace(
        campaign,
        probe="off",
        load=dataclasses.replace(campaign.load, duration_s=seconds),
        validity={**campaign.validity, **tolerant},
    )
    stop, output = Stop(), folder / "watched"

    def watch_proxy() -> None:
        # try again each second, because the proxy starts only after the testbed is ready
        while not stop.asked.wait(1):
            with suppress(OSError, ValueError):
                for pid in processes_of_run():
                    options = WatchOptions(pid=pid, output=output, cpu=1.0, histograms=histograms)
                    watch(options, say=lambda line: None, stop=stop)
                    return

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch_proxy)
        try:
            acquisition.measure(run, campaign, TESTBED, folder / "raw")
        finally:
            stop.asked.set()
        watching.result()
    return probe_cost(under_load(read_seconds(output))), output


def processes_of_run() -> Iterator[int]:
    """Yield the first process id of each proxy with a socket in the network namespace of the SPS."""
    supervisor = int(Path(RUN_FOLDER, "sps", "proxy.pid").read_text())
    namespace = Path(f"/proc/{supervisor}/ns/net").stat().st_ino
    for proxy in parse_processes(Machine().shell(running_proxy.FIND, *PROGRAMS)):
        if proxy.netns == namespace and proxy.sockets:
            yield proxy.pids[0]


def under_load(seconds: Sequence[Second]) -> list[Second]:
    """Return the seconds of a watch in which the proxy received at least half of the median number of datagrams."""
    typical = median(second.datagrams for second in seconds)
    return [second for second in seconds if second.datagrams >= typical / 2]


def half_width(interval: Interval) -> float:
    """Return half the width of the interval of a logarithm of a ratio, in percent."""
    return 100 * (interval.high - interval.low) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cps", type=int, default=1500)
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument(
        "--of", choices=("probe", "factors", "watch", "histograms"), default="probe"
    )
    parser.add_argument(
        "--keep", type=Path, help="folder that keeps the record and the windows of the run"
    )
    options = parser.parse_args()
    if options.of in ("watch", "histograms"):
        run = Run("local", options.sut, "default", 1, 8, options.cps, 1)
        with tempfile.TemporaryDirectory() as scratch:
            interval, output = watch_cost(
                run,
                options.seconds,
                options.keep or Path(scratch),
                histograms=options.of == "histograms",
            )
            document = read_watch(output)
        print(
            f"{options.of} cost: {in_words(interval.map(lambda ratio: 100 * ratio), '%')} of the proxy's CPU time "
            f"per message while the hooks are attached; {interval.n} pairs of seconds, {options.seconds:g} s of load, "
            f"{run.sut}, {run.cps} cps, mode {document.probe_mode}, {document.lost} records lost"
        )
        return
    run = Run("local", options.sut, MODE, 1, 8, options.cps, 1)
    stilled = factors_stilled() if options.of == "factors" else nullcontext()
    with tempfile.TemporaryDirectory() as scratch, stilled:
        cost, report = measure(run, options.seconds, options.keep or Path(scratch))
    mean, robust = cost.effect.interval, crossover.to_percent(cost.effect.robust)
    print(
        f"{options.of} cost: {in_words(percent(mean), '%')} of the proxy's CPU time per message (half-width "
        f"{half_width(mean):.1f} %), Hodges-Lehmann {robust:.2g} %; "
        f"without it {cost.without_us:.1f} µs per message; sham {in_words(percent(cost.sham.interval), '%')}"
    )
    print(
        f"  mode {report.mode}, {sum(cost.effect.blocks)} blocks of windows of {WINDOW_S:g} s ({WASHOUT_S:g} s "
        f"excluded), {options.seconds:g} s of load, {run.sut}, {run.threads} threads, {run.cps} cps; probe: "
        f"{report.switches_off} switches off, slowest {(report.slowest_off_ns or 0) / 1e6:.1f} ms off and "
        f"{(report.slowest_on_ns or 0) / 1e6:.1f} ms on; {report.lost} records lost, {report.cut_arrivals} "
        f"arrivals and {report.cut_services} services cut short"
    )


if __name__ == "__main__":
    main()
