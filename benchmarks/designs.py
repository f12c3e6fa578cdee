"""Compare the precision of two designs of an experiment with two modes: crossover runs, and pairs of separate runs.

A crossover run switches between both modes. The modes can also be instances, as in
`--modes default default+threads=4`.

The two designs have the same load in the same hour. The benchmark first measures half of the crossover's load, then the
pairs, then the other half, so that drift of the machine affects both designs. The two runs of a pair have the same
arrivals. Every second pair has the opposite order, as in the papers. The benchmark prints the half-widths of the 95 %
intervals for the log ratios of mean K_rcv and mean T_sip, per design, and their ratio. The crossover's seconds of load
include the sham windows, which repeat the reference mode. The benchmark also prints the time of a crossover run in
addition to its load, and the duration of its switches. Finally, the benchmark prints the stolen time and the machine's
speed. The interval of the pairs is Student's t interval of their log ratios, the narrowest common interval. The
interval of the crossover is the interval on the pages.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr
import zstandard
from scipy import stats

from sipsched.analysis import crossover
from sipsched.analysis.intervals import Interval, mean_interval
from sipsched.errors import SipschedError, TransientError
from sipsched.measure import acquisition, crossing_search
from sipsched.pages.numbers import in_words
from sipsched.plan.config import Config, load_config
from sipsched.plan.crossover import is_comparison
from sipsched.plan.modes import split_name
from sipsched.plan.run import Point, Run
from sipsched.records import crossing, windows
from sipsched.records.messages import (
    k_rcv,
    messages_from_record,
    nanoseconds,
    write_messages,
)
from sipsched.records.record import COUNTERS_FILE
from sipsched.records.run_document import read_run
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.counters import parse_stat
from sipsched.validity.rules import SHARED_MACHINE, Limits

QUANTITIES = {"k_rcv_mean": "mean K_rcv", "t_sip_mean": "mean T_sip"}
HALVES = 2
ATTEMPTS = 3
RATIO_TARGET, BESIDE_TARGET_S = 0.25, 15

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Done:
    """A valid run of this benchmark, with its duration and the state of the machine.

    Attributes
    ----------
    load_s
        Seconds of measured load.
    beside_s
        Wall time of the run minus `load_s`.
    steal_share
        Share of the SPS's CPU time that the hypervisor stole during the run.
    speed
        Speed index of the machine before and after the run.
    tries
        Number of attempts.
    """

    run: Run
    record: Path
    load_s: float
    beside_s: float
    steal_share: float
    speed: tuple[float, float]
    tries: int


def order(point: Point, modes: tuple[str, str], cps: int, pairs: int) -> list[Run]:
    """Return the runs in the order of measurement: a crossover run, the pairs of separate runs, a crossover run."""
    halves = [replace(point, mode=",".join(modes)).run(cps, half + 1) for half in range(HALVES)]
    separate = [
        alone(point, mode).run(cps, pair + 1)
        for pair in range(pairs)
        for mode in (modes if pair % 2 == 0 else modes[::-1])
    ]
    return [halves[0], *separate, *halves[1:]]


def alone(point: Point, mode: str) -> Point:
    """Return the settings of a separate run. The mode's name can also change the SUT, the workers and the cores."""
    base, other, rest = split_name(mode)
    return replace(
        point,
        mode="+".join((base, *rest)),
        sut=other.sut or point.sut,
        threads=other.threads or point.threads,
        cores=other.cores or point.cores,
    )


def half_width(interval: Interval) -> float:
    """Return half the width of an interval, or NaN if the interval is unknown."""
    return (interval.high - interval.low) / 2 if interval.known else math.nan


def of_pairs(first: Values, second: Values) -> Interval:
    """Return the mean of ln(second / first) over the pairs, with Student's t interval."""
    return mean_interval(np.log(second / first))


def by_chance(ratio: float, df: float, df_other: float) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of two half-widths. An estimate of a half-width from few values is rough.

    The interval follows from the F distribution, which is the distribution of a ratio of two variances of normal
    values.
    """
    low, high = (ratio / math.sqrt(stats.f.ppf(p, df, df_other)) for p in (0.975, 0.025))
    return low, high


def measure(run: Run, config: Config, testbed: Testbed, raw: Path) -> Done | None:
    """Perform a run, with up to `ATTEMPTS` attempts. Return None if every attempt was disturbed."""
    for attempt in range(1, ATTEMPTS + 1):
        started = time.monotonic()
        try:
            record = acquisition.measure(run, config, testbed, raw)
        except TransientError as error:
            print(f"  attempt {attempt}: {error}", file=sys.stderr, flush=True)
            continue
        elapsed_s = time.monotonic() - started
        document = read_run(record)
        load_s = document.timeline.load_ended - document.timeline.load_started
        speed = document.speed
        assert speed is not None
        steal = steal_share(record, document.hosts.sps.cpus)
        return Done(
            run, record, load_s, elapsed_s - load_s, steal, (speed.before, speed.after), attempt
        )
    return None


def steal_share(record: Path, cpus: Sequence[int]) -> float:
    """Return the share of CPU time that the hypervisor stole during a run."""
    counters = zstandard.decompress((record / COUNTERS_FILE).read_bytes())
    sps = json.loads(counters)["sps"]
    before, after = (parse_stat(sps[moment]["/proc/stat"]) for moment in ("before", "after"))
    names = [f"cpu{cpu}" for cpu in cpus]
    spent = sum(sum(after[name].values()) - sum(before[name].values()) for name in names)
    return sum(after[name]["steal"] - before[name]["steal"] for name in names) / spent


def reduced(done: Done, results: Path) -> xr.Dataset:
    """Return the windows of a crossover run, and write them to `windows.nc` as input for sham.py."""
    folder = results / done.run.path
    folder.mkdir(parents=True, exist_ok=True)
    messages = folder / "messages.nc"
    write_messages(messages_from_record(done.record), messages)
    reduced_windows = windows.windows_from_record(messages, done.record)
    windows.write_windows(reduced_windows, folder / "windows.nc")
    return reduced_windows


def means(done: Done) -> list[float]:
    """Return the means of a separate run in ns over all messages of its load, in the order of `QUANTITIES`."""
    ds = messages_from_record(done.record)
    return [float(np.nanmean(k_rcv(ds))), float(np.nanmean(nanoseconds(ds, "t_sip")))]


def compare_windows(halves: Sequence[xr.Dataset], name: str, arm: int) -> crossover.Effect:
    """Return the difference between the reference and another mode or the sham, from both runs that compare modes.

    Arm 1 is the other mode. Arm 2 is the sham, a second window in the reference mode.
    """
    reference: crossover.Arms = (0, 2) if arm == 1 else 0
    return crossover.effect([windows.by_arm(ds, name) for ds in halves], reference, arm)


def compare_pairs(done: Sequence[Done], reference: Point, modes: tuple[str, str]) -> list[Interval]:
    """Return one interval per quantity in `QUANTITIES`: the log ratio of the two modes, over all complete pairs."""
    by_run = {(run.run.rep, run.run.point): means(run) for run in done}
    points = [alone(reference, mode) for mode in modes]
    reps = sorted({rep for rep, _ in by_run if all((rep, point) in by_run for point in points)})
    tables = [np.array([by_run[rep, point] for rep in reps]) for point in points]
    if not reps:
        return [of_pairs(np.empty(0), np.empty(0))] * len(QUANTITIES)
    return [of_pairs(tables[0][:, q], tables[1][:, q]) for q in range(len(QUANTITIES))]


def in_percent(interval: Interval) -> str:
    """Return text with a log ratio in percent and the half-width of its interval."""
    return f"{in_words(crossover.percent(interval), '%')}: half-width {half_width(interval):.3f}"


def show_machine(what: str, done: Sequence[Done]) -> None:
    steal = np.array([run.steal_share for run in done])
    speed = np.array([run.speed for run in done])
    print(
        f"  {what}: {len(done)} runs, {sum(run.load_s for run in done):.0f} s of load, additional time per run "
        f"{', '.join(f'{run.beside_s:.1f}' for run in done)} s; "
        f"{sum(run.tries - 1 for run in done)} attempts were invalid; "
        f"steal {steal.mean():.1%} (at most {steal.max():.1%}), "
        f"speed index {np.median(speed):.0f} ({speed.min():.0f} to {speed.max():.0f})"
    )


def show(done: Sequence[Done], modes: tuple[str, str], results: Path) -> None:
    """Print the precision of comparisons within runs and of comparisons between runs."""
    halves = [run for run in done if is_comparison(run.run.mode)]
    separate = [run for run in done if not is_comparison(run.run.mode)]
    if not halves or not separate:
        print("designs: one design has no valid run, so there is no comparison")
        return
    show_machine("crossover", halves)
    show_machine("separate ", separate)
    half_windows = [reduced(run, results) for run in halves]
    print(
        "  windows of "
        + " and ".join(
            f"{ds.attrs['window_s']:.2g} s (washout {1000 * ds.attrs['washout_s']:.0f} ms, CPU "
            f"{ds.attrs['utilisation']:.0%} busy, {int((ds['left_out'] != 0).sum())} of "
            f"{ds.sizes['window']} excluded)"
            for ds in half_windows
        )
    )
    pairs = compare_pairs(separate, replace(halves[0].run.point, mode=modes[0]), modes)
    for (name, words), paired in zip(QUANTITIES.items(), pairs, strict=True):
        crossed, sham = (compare_windows(half_windows, name, arm) for arm in (1, 2))
        inner, outer = half_width(crossed.interval), half_width(paired)
        ratio = inner / outer
        low, high = by_chance(ratio, max(crossed.interval.n - 1, 1), max(paired.n - 1, 1))
        print(
            f"  {words}, {modes[1]} against {modes[0]}: crossover {in_percent(crossed.interval)} (blocks); "
            f"separate {in_percent(paired)} (pairs); sham {in_percent(sham.interval)}"
        )
        print(
            f"  {words}: half-widths, crossover / separate runs: {ratio:.2f} "
            f"(95 % interval of this ratio: {low:.2f} to {high:.2f}; target <= {RATIO_TARGET})"
        )
    switches = np.concatenate([ds["switch"].to_numpy()[1:] for ds in half_windows])
    switches = switches[np.isfinite(switches)]
    tasks = half_windows[0].attrs["tasks"]
    print(
        f"  wall time of a crossover run without its load: at most {max(run.beside_s for run in halves):.1f} s "
        f"(target <= {BESIDE_TARGET_S}); {len(switches)} switches of {tasks} tasks took "
        f"{np.median(switches):.0f} µs (median), {switches.max():.0f} µs (longest)"
    )


def offered(options: argparse.Namespace, config: Config, testbed: Testbed, raw: Path) -> int:
    """Return the requested load in cps, or a share of the load at which the proxy drops 1 % of its messages."""
    if options.cps:
        return int(options.cps)
    point = Point(options.testbed, options.sut, "default", 1, options.threads)
    crossing_search.search_crossing(point, config, testbed, raw)
    lower, upper = crossing.read_crossings(raw, [point])[point]
    print(f"designs: 1 % crossing between {lower} and {upper} cps", flush=True)
    return max(1, round(float(options.share) * lower / 10)) * 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="seconds of load per design")
    parser.add_argument("--run-s", type=float, default=6, help="seconds of load per separate run")
    parser.add_argument("--cps", type=int, help="offered load; default: a share of the crossing")
    parser.add_argument("--share", type=float, default=0.6, help="share of the crossing")
    parser.add_argument("--testbed", default="local", help="testbed of the runs")
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--modes", nargs=2, default=["baseline", "enhanced"])
    parser.add_argument("--disturbed", action="store_true", help="use disturbed runs too")
    parser.add_argument("--keep", type=Path, help="folder for records and windows.nc")
    options = parser.parse_args()
    modes = (options.modes[0], options.modes[1])
    pairs = round(options.seconds / (2 * options.run_s))
    if pairs < 2:
        parser.error(
            f"{options.seconds:g} s have room for fewer than 2 pairs of {options.run_s:g} s"
        )
    campaign = load_config()
    if options.disturbed:
        lifted = dict.fromkeys(SHARED_MACHINE, Limits(math.inf, math.inf))
        campaign = replace(campaign, validity={**campaign.validity, **lifted})
    # use the same seconds of load and the same retransmissions in both designs, so that only the design differs
    load = replace(
        campaign.load,
        duration_s=options.run_s,
        retransmissions=campaign.crossover.retransmissions,
    )
    # divide by the number of modes plus 1, because the sham (the repeated reference) has as many windows as a mode
    mode_s = options.seconds / HALVES / (len(modes) + 1)
    config = replace(campaign, load=load, crossover=replace(campaign.crossover, mode_s=mode_s))
    testbed = load_testbed(options.testbed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        try:
            cps = offered(options, campaign, testbed, folder / "raw")
            point = Point(options.testbed, options.sut, modes[0], 1, options.threads)
            print(
                f"designs: {options.sut}, {options.threads} threads on one core, {cps} cps, "
                f"{modes[0]} and {modes[1]}, {options.seconds:g} s of load per design",
                flush=True,
            )
            runs = order(point, modes, cps, pairs)
            tried = [measure(run, config, testbed, folder / "raw") for run in runs]
            show([run for run in tried if run], modes, folder / "results")
        except SipschedError as error:
            print(f"designs: not measured: {error}")


if __name__ == "__main__":
    main()
