"""Two modes compared within one run and in separate runs: how exactly, at the same seconds of load, in the same hour.

Half of the crossover's load, then pairs of separate runs with the same arrivals in a pair (the papers' design, order
turned in every second pair), then the crossover's other half: what drifts hits both. The sham windows are of the
crossover's seconds. Shows the 95 % half-width of the log ratio of mean K_rcv and mean T_sip by each design, the ratio
of the two, what a crossover run takes beside its load, how long its switches took, and the machine's steal and speed.
The interval of pairs is Student's t of their log ratios, the narrowest in use; that of windows is what pages print.
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
from scipy import stats

from sipsched.analysis import crossover
from sipsched.analysis.statistics import Interval, mean_interval
from sipsched.errors import SipschedError, TransientError
from sipsched.measure import acquisition, crossing_search
from sipsched.pages.numbers import in_words
from sipsched.plan.config import Config, Limits, Point, Run, load_config
from sipsched.records import crossing, windows
from sipsched.records.messages import (
    k_rcv,
    messages_from_record,
    nanoseconds,
    write_messages,
)
from sipsched.records.run_document import read_run
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.validity.counters import parse_stat

QUANTITIES = {"k_rcv_mean": "mean K_rcv", "t_sip_mean": "mean T_sip"}
HALVES = 2
ATTEMPTS = 3
RATIO_TARGET, BESIDE_TARGET_S = 0.25, 15
DISTURBED = ("rate_error", "ks_excess", "cv_error", "lateness_p99_us", "generator_cpu_share")
"""Rules of the verdict that other work of the machine breaks, beside `steal_share`."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Done:
    """A run that counts.

    Attributes
    ----------
    load_s
        Seconds of measured load.
    beside_s
        Wall time of the run less that.
    steal_share
        Of the SPS's CPUs' time between the run's first and last look at them.
    speed
        Index before and after.
    tries
        Attempts it took.
    """

    run: Run
    record: Path
    load_s: float
    beside_s: float
    steal_share: float
    speed: tuple[float, float]
    tries: int


def order(point: Point, modes: tuple[str, str], cps: int, pairs: int) -> list[Run]:
    """List the runs: half of the crossover, the pairs, the other half."""
    halves = [replace(point, mode=",".join(modes)).run(cps, half + 1) for half in range(HALVES)]
    separate = [
        replace(point, mode=mode).run(cps, pair + 1)
        for pair in range(pairs)
        for mode in (modes if pair % 2 == 0 else modes[::-1])
    ]
    return [halves[0], *separate, *halves[1:]]


def half_width(interval: Interval) -> float:
    """Give half the width of an interval; NaN where there is none."""
    return (interval.high - interval.low) / 2 if interval.known else math.nan


def of_pairs(first: Values, second: Values) -> Interval:
    """Give ln(second / first) of pairs with Student's t interval."""
    return mean_interval(np.log(second / first))


def by_chance(ratio: float, df: float, df_other: float) -> tuple[float, float]:
    """Say between what a ratio of half-widths lies: widths of few values are no sharp numbers.

    95 %, from the F distribution of the ratio of variances of normal values.
    """
    low, high = (ratio / math.sqrt(stats.f.ppf(p, df, df_other)) for p in (0.975, 0.025))
    return low, high


def measure(run: Run, config: Config, testbed: Testbed, raw: Path) -> Done | None:
    """Perform a run, up to `ATTEMPTS` times; None if it was disturbed each time."""
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
    """Give the stolen share of the time of some CPUs over a run."""
    sps = json.loads((record / "counters.json").read_text())["sps"]
    before, after = (parse_stat(sps[moment]["/proc/stat"]) for moment in ("before", "after"))
    names = [f"cpu{cpu}" for cpu in cpus]
    spent = sum(sum(after[name].values()) - sum(before[name].values()) for name in names)
    return sum(after[name]["steal"] - before[name]["steal"] for name in names) / spent


def reduced(done: Done, results: Path) -> xr.Dataset:
    """Reduce a crossover run to its windows; its `windows.nc` is there for sham.py."""
    folder = results / done.run.path
    folder.mkdir(parents=True, exist_ok=True)
    messages = folder / "messages.nc"
    write_messages(messages_from_record(done.record), messages)
    found = windows.windows_from_record(messages, done.record)
    windows.write_windows(found, folder / "windows.nc")
    return found


def means(done: Done) -> list[float]:
    """Give the means of a separate run over all messages of its load, ns, in the order of `QUANTITIES`."""
    ds = messages_from_record(done.record)
    return [float(np.nanmean(k_rcv(ds))), float(np.nanmean(nanoseconds(ds, "t_sip")))]


def compare_windows(found: Sequence[xr.Dataset], name: str, arm: int) -> crossover.Effect:
    """Compare an arm of the crossover's halves with the reference."""
    return crossover.effect([windows.by_arm(ds, name) for ds in found], 0, arm)


def compare_pairs(done: Sequence[Done], modes: tuple[str, str]) -> list[Interval]:
    """Compare the separate runs in pairs, as `QUANTITIES`; what lost its other half is left out."""
    by_run = {(one.run.rep, one.run.mode): means(one) for one in done}
    reps = sorted({rep for rep, _ in by_run if all((rep, mode) in by_run for mode in modes)})
    tables = [np.array([by_run[rep, mode] for rep in reps]) for mode in modes]
    if not reps:
        return [of_pairs(np.empty(0), np.empty(0))] * len(QUANTITIES)
    return [of_pairs(tables[0][:, q], tables[1][:, q]) for q in range(len(QUANTITIES))]


def said(interval: Interval) -> str:
    """Write the logarithm of a ratio as percent, with the half-width that is compared."""
    return f"{in_words(crossover.percent(interval), '%')}: half-width {half_width(interval):.3f}"


def show_machine(what: str, done: Sequence[Done]) -> None:
    steal = np.array([one.steal_share for one in done])
    speed = np.array([one.speed for one in done])
    print(
        f"  {what}: {len(done)} runs, {sum(one.load_s for one in done):.0f} s of load, beside it "
        f"{', '.join(f'{one.beside_s:.1f}' for one in done)} s; "
        f"{sum(one.tries - 1 for one in done)} attempts did not count; "
        f"steal {steal.mean():.1%} (at most {steal.max():.1%}), "
        f"speed index {np.median(speed):.0f} ({speed.min():.0f} to {speed.max():.0f})"
    )


def show(done: Sequence[Done], modes: tuple[str, str], results: Path) -> None:
    """Print what the runs say."""
    halves = [one for one in done if one.run.mode not in modes]
    separate = [one for one in done if one.run.mode in modes]
    if not halves or not separate:
        print("designs: one design has no run that counts: nothing to compare")
        return
    show_machine("crossover", halves)
    show_machine("separate ", separate)
    found = [reduced(one, results) for one in halves]
    print(
        "  windows of "
        + " and ".join(
            f"{ds.attrs['window_s']:.2g} s (washout {1000 * ds.attrs['washout_s']:.0f} ms, CPU "
            f"{ds.attrs['utilisation']:.0%} busy, {int((ds['left_out'] != 0).sum())} of "
            f"{ds.sizes['window']} left out)"
            for ds in found
        )
    )
    pairs = compare_pairs(separate, modes)
    for (name, words), paired in zip(QUANTITIES.items(), pairs, strict=True):
        crossed, sham = (compare_windows(found, name, arm) for arm in (1, 2))
        inner, outer = half_width(crossed.interval), half_width(paired)
        ratio = inner / outer
        low, high = by_chance(ratio, max(crossed.interval.n - 1, 1), max(paired.n - 1, 1))
        print(
            f"  {words}, {modes[1]} against {modes[0]}: crossover {said(crossed.interval)} (blocks); "
            f"separate {said(paired)} (pairs); sham {said(sham.interval)}"
        )
        print(
            f"  {words}: half-widths, crossover / separate runs: {ratio:.2f} "
            f"(by chance of so few pairs {low:.2f} to {high:.2f}; target <= {RATIO_TARGET})"
        )
    switches = np.concatenate([ds["switch"].to_numpy()[1:] for ds in found])
    switches = switches[np.isfinite(switches)]
    tasks = found[0].attrs["tasks"]
    print(
        f"  wall time beside the load of a crossover run: at most {max(one.beside_s for one in halves):.1f} s "
        f"(target <= {BESIDE_TARGET_S}); {len(switches)} switches of {tasks} tasks took "
        f"{np.median(switches):.0f} µs (median), {switches.max():.0f} µs (longest)"
    )


def offered(options: argparse.Namespace, config: Config, testbed: Testbed, raw: Path) -> int:
    """Give the load: as told, or a share of what is found."""
    if options.cps:
        return int(options.cps)
    point = Point("local", options.sut, "default", 1, options.threads)
    crossing_search.search_crossing(point, config, testbed, raw)
    lower, upper = crossing.read_crossings(raw, [point])[point]
    print(f"designs: 1 % crossing between {lower} and {upper} cps", flush=True)
    return max(1, round(float(options.share) * lower / 10)) * 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of load, by each design")
    parser.add_argument("--run-s", type=float, default=6, help="of load, a separate run")
    parser.add_argument("--cps", type=int, help="offered load; else it is searched")
    parser.add_argument("--share", type=float, default=0.6, help="of the load that is found")
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--modes", nargs=2, default=["baseline", "enhanced"])
    parser.add_argument("--disturbed", action="store_true", help="count disturbed runs, too")
    parser.add_argument("--keep", type=Path, help="folder for records and windows.nc")
    options = parser.parse_args()
    modes = (options.modes[0], options.modes[1])
    pairs = round(options.seconds / (2 * options.run_s))
    if pairs < 2:
        parser.error(f"{options.seconds:g} s hold fewer than 2 pairs of {options.run_s:g} s")
    campaign = load_config()
    if options.disturbed:
        lifted = dict.fromkeys((*DISTURBED, "steal_share"), Limits(math.inf, math.inf))
        campaign = replace(campaign, validity={**campaign.validity, **lifted})
    # of both designs the same: they differ in nothing but the design
    load = replace(
        campaign.load,
        duration_s=options.run_s,
        retransmissions=campaign.crossover.retransmissions,
    )
    # with as many windows of the sham as of each mode
    mode_s = options.seconds / HALVES / (len(modes) + 1)
    config = replace(campaign, load=load, crossover=replace(campaign.crossover, mode_s=mode_s))
    testbed = load_testbed("local")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        try:
            cps = offered(options, campaign, testbed, folder / "raw")
            point = Point("local", options.sut, modes[0], 1, options.threads)
            print(
                f"designs: {options.sut}, {options.threads} threads on one core, {cps} cps, "
                f"{modes[0]} and {modes[1]}, {options.seconds:g} s of load by each design",
                flush=True,
            )
            runs = order(point, modes, cps, pairs)
            tried = [measure(run, config, testbed, folder / "raw") for run in runs]
            show([one for one in tried if one], modes, folder / "results")
        except SipschedError as error:
            print(f"designs: not measured: {error}")


if __name__ == "__main__":
    main()
