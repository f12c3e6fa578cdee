"""Test comparisons between proxy instances, whose intervals become narrower if the proxy starts more often.

`measure` performs short runs on a testbed and keeps their windows in a folder. Every instance of a run is
started anew. `measure equal` starts 15 instances with equal settings. `measure planted` starts two instances whose
routing script has an additional busy loop, and instances without the loop. A first run with a long loop shows the cost
of an iteration. This cost determines the number of iterations for the planted difference. `show` judges the runs.

- A/A: the benchmark groups the instances of a run at random into comparisons with two starts per side. No instance is
  in two comparisons. The true difference is 0, so an interval should exclude 0 in 5 % of comparisons.
- Planted: every trial has the same number of runs. The benchmark counts the trials that find the loop, and the trials
  in which the instances without the loop differ. The benchmark also counts such trials in random choices of the runs.
  From the variances of starts and windows, it computes the seconds of load after which 9 of 10 trials find the planted
  difference.

`simulate` measures nothing, and samples comparisons with given standard deviations of starts and windows.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from sipsched.analysis.advice import arms_of
from sipsched.analysis.covariates import adjusted
from sipsched.analysis.crossover import to_percent
from sipsched.analysis.starts import effect_of_starts
from sipsched.errors import StableError, TransientError
from sipsched.measure import acquisition
from sipsched.pages.numbers import in_words
from sipsched.plan.config import Config, load_config
from sipsched.plan.crossover import duration_s
from sipsched.plan.modes import first_start
from sipsched.plan.run import Point, Run
from sipsched.records import windows
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.run_document import RunDocument, read_run
from sipsched.testbed.inventory import load_testbed
from sipsched.validity.rules import SHARED_MACHINE, Limits

QUANTITIES = {"cpu_per_message": "CPU time per message", "total_p99": "p99 of K_rcv + T_sip"}
SUT, PLANTED = "kamailio-udp", "planted"
ALIKE = tuple("abcdefghijklm")
"""Names for copies of SUT with equal settings. The names are short, because the text of a mode has at most
200 characters."""
EQUAL = ",".join(("default", *(f"default+sut={name}" for name in ALIKE)))
"""Modes of a run with 15 instances of equal settings. The 15th instance is the sham, which repeats the reference."""
BESIDE = (
    f"default,default+sut={PLANTED},default+sut={PLANTED}+start=2,default+start=2,default+start=3"
)
CALIBRATION = 60
"""Iterations of the busy loop in the run that shows the cost of an iteration."""
GOAL = 3.0
"""Difference in percent that a comparison of 10 minutes should find."""
SHARED_MIB = 128
WASHOUT_S = 0.06
WRAPPER = """\
#!/bin/sh
# Start Kamailio with a busy loop at the beginning of its routing script.
loop='$var(n) = 0; while ($var(n) < {iterations}) {{ $var(n) = $var(n) + 1; }}'
for argument in "$@"; do
    case $argument in
    */proxy.cfg)
        # sipsched finds the processes of an instance by the end of this path
        folder=${{argument%/*}}
        changed=$folder/planted/${{folder##*/}}/proxy.cfg
        mkdir -p "${{changed%/*}}"
        sed "s/^request_route {{/max_while_loops=1000000\\nrequest_route {{ $loop/" "$argument" > "$changed"
        set -- "$@" "$changed"
        ;;
    *) set -- "$@" "$argument" ;;
    esac
    shift
done
exec kamailio "$@"
"""
SAMPLES, RESAMPLES = 2000, 400

Values = npt.NDArray[np.float64]


# ---- measuring ----


def campaign(folder: Path, options: argparse.Namespace) -> Config:
    config = load_config()
    sut = replace(config.sut(SUT), shared_memory_mib=SHARED_MIB, package_memory_mib=16)
    planted = replace(sut, name=PLANTED, program=str(folder / "kamailio"))
    limits = dict(config.validity)
    if options.disturbed:
        wide = (*SHARED_MACHINE, "uas_lateness_p99_us")
        limits |= dict.fromkeys(wide, Limits(math.inf, math.inf))
    lengths = {"mode_s": options.mode_s, "window_s": options.window_s, "washout_s": WASHOUT_S}
    crossover = replace(config.crossover, **lengths)
    alike = {name: replace(sut, name=name) for name in ALIKE}
    suts = {**config.suts, SUT: sut, PLANTED: planted, **alike}
    return replace(config, suts=suts, validity=limits, crossover=crossover)


def plant(folder: Path, iterations: int) -> None:
    program = folder / "kamailio"
    program.write_text(WRAPPER.format(iterations=iterations))
    program.chmod(0o755)


def measure_one(run: Run, config: Config, results: Path, attrs: dict[str, object]) -> bool:
    """Measure one run, and write its windows to `results`. Return False if the run failed because of a disturbance."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            record = acquisition.measure(
                run, config, load_testbed(run.testbed), Path(scratch, "raw")
            )
        except TransientError as error:
            print(f"restarts: {error}", file=sys.stderr, flush=True)
            return False
        document = read_run(record)
        write_messages(messages_from_record(record), Path(scratch, "messages.nc"))
        found = windows.windows_from_record(Path(scratch, "messages.nc"), record)
        load_s = document.timeline.load_ended - document.timeline.load_started
        found.attrs |= {**attrs, "load_s": load_s, "competition": competition(document)}
        results.mkdir(parents=True, exist_ok=True)
        windows.write_windows(found, results / f"{len(list(results.glob('*.nc'))):03d}.nc")
    elapsed_s = time.monotonic() - started
    print(
        f"restarts: {load_s:.0f} s of load, {elapsed_s:.0f} s in all; {competition(document)}",
        flush=True,
    )
    return True


def competition(document: RunDocument) -> str:
    """Describe the CPU time that other programs used on the SPS during a run."""
    counted = document.account.account if document.account else None
    if counted is None:
        return "other programs were not counted"
    parts = counted.parts
    return (
        f"other programs used {parts.competitor_share:.1%} of the SPS's CPU time, programs of class SCHED_IDLE "
        f"{parts.idle_class / parts.total:.1%}, and {parts.stolen / parts.total:.1%} were stolen"
    )


def measure(options: argparse.Namespace) -> None:
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    mode = EQUAL if options.what == "equal" else BESIDE
    config = campaign(folder, options)
    point = Point(options.testbed, SUT, mode, 1, options.threads)
    until = time.monotonic() + options.limit_s
    needed_s = duration_s(mode, config.crossover) + 20
    rep = len(list((folder / options.what).glob("*.nc"))) + 1
    if options.what == "planted":
        plant(folder, options.iterations or CALIBRATION)
        if not options.iterations:
            pair = replace(point, mode=f"default,default+sut={PLANTED}").run(options.cps, rep)
            if not measure_one(pair, config, folder / "calibration", {"iterations": CALIBRATION}):
                return
            options.iterations = iterations_for(folder, options.percent)
            plant(folder, options.iterations)
    while time.monotonic() + needed_s < until:
        attrs = {"iterations": options.iterations or 0}
        rep += measure_one(point.run(options.cps, rep), config, folder / options.what, attrs) or 1


def iterations_for(folder: Path, percent: float) -> int:
    """Return the number of loop iterations that increase the CPU time per message by `percent`."""
    per_iteration = percent_per_iteration(folder)
    found = max(1, round(percent / per_iteration))
    print(
        f"restarts: an iteration costs {per_iteration:.2f} % of the CPU time per message, so {found} iterations "
        f"cost {found * per_iteration:.1f} %",
        flush=True,
    )
    return found


def percent_per_iteration(folder: Path) -> float:
    """Return the cost of a loop iteration in percent of the CPU time per message, from the calibration run."""
    runs = opened(folder / "calibration")
    costs = [to_percent(effect(run, "cpu_per_message", [0, -1], [1])) for run in runs]
    return float(np.mean(costs)) / int(runs[0].attrs["iterations"])


def effect(run: xr.Dataset, quantity: str, reference: Sequence[int], other: Sequence[int]) -> float:
    return effect_of_starts([table(run, quantity)], reference, other).estimate


# ---- judging ----


def opened(folder: Path) -> list[xr.Dataset]:
    return [windows.open_windows(path) for path in sorted(folder.glob("*.nc"))]


def table(run: xr.Dataset, quantity: str) -> Values:
    return adjusted(run, quantity, 0, ratio=True).table


def starts_of(run: xr.Dataset, setting: str) -> list[int]:
    return [number for number, arm in enumerate(arms_of(run)) if first_start(arm) == setting]


def rate(rejected: int, of: int) -> str:
    found = stats.binomtest(rejected, of).proportion_ci(method="exact")
    return f"{rejected} of {of} = {100 * rejected / of:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f} %)"


def equal_arms(run: xr.Dataset) -> list[int]:
    """Return the numbers of the instances that have the settings of the reference, including the sham."""
    names = [f"default+sut={name}" for name in ALIKE]
    alike = [number for name in ("default", *names) for number in starts_of(run, name)]
    return [*alike, len(arms_of(run)) - 1]


def variances(runs: Sequence[xr.Dataset], quantity: str) -> tuple[float, float]:
    """Return the standard deviations of starts and of windows, as logarithms, from instances with equal settings.

    The mean of a start varies by the start itself and by the scatter of its windows. The standard deviation of starts
    excludes the scatter of windows.
    """
    between, within, blocks = [], [], []
    for run in runs:
        equal = equal_arms(run)
        values = np.log(table(run, quantity)[:, equal])
        values = values[np.isfinite(values).all(axis=1)]
        means = values.mean(axis=0)
        rest = values - means - values.mean(axis=1, keepdims=True) + means.mean()
        within.append((rest**2).sum() / ((len(values) - 1) * (len(equal) - 1)))
        between.append(means.var(ddof=1))
        blocks.append(len(values))
    window = float(np.mean(within))
    start = float(np.mean(between)) - window * float(np.mean(1 / np.array(blocks)))
    return math.sqrt(max(start, 0.0)), math.sqrt(window)


def pairs_of_pairs(run: xr.Dataset, rng: np.random.Generator) -> Iterator[list[int]]:
    """Divide instances with equal settings at random into groups of four, for a comparison of two with two starts."""
    equal = rng.permutation(equal_arms(run))
    for first in range(0, len(equal) - 3, 4):
        yield [int(arm) for arm in equal[first : first + 4]]


def show_equal(runs: Sequence[xr.Dataset]) -> None:
    if not runs:
        return
    print(f"A/A: {len(runs)} runs, two starts per side, no instance in two comparisons")
    for quantity, words in QUANTITIES.items():
        rng = np.random.default_rng(1)
        found = [
            effect_of_starts([table(run, quantity)], group[:2], group[2:])
            for run in runs
            for group in pairs_of_pairs(run, rng)
        ]
        known = [one for one in found if one.known]
        rejected = sum(one.low > 0 or one.high < 0 for one in known)
        start, window = variances(runs, quantity)
        print(
            f"  {words}: rejected {rate(rejected, len(known))}; starts differ by {100 * start:.1f} %, windows by "
            f"{100 * window:.1f} % (standard deviations)"
        )


def show_planted(runs: Sequence[xr.Dataset], runs_per_trial: int, percent: float) -> None:
    trials = [
        runs[first : first + runs_per_trial]
        for first in range(0, len(runs) - runs_per_trial + 1, runs_per_trial)
    ]
    if not trials:
        return
    arms = arms_of(runs[0])
    loop = starts_of(runs[0], f"default+sut={PLANTED}")
    reference = [0, len(arms) - 1]
    beside = [number for number in starts_of(runs[0], "default") if number]
    seconds = np.mean([sum(run.attrs["load_s"] for run in trial) for trial in trials])
    print(
        f"planted {percent:.1f} % ({runs[0].attrs['iterations']} iterations): {len(trials)} trials of "
        f"{runs_per_trial} runs, {seconds:.0f} s of load per trial"
    )
    for quantity, words in QUANTITIES.items():
        found, none = (
            [
                effect_of_starts([table(run, quantity) for run in trial], reference, other)
                for trial in trials
            ]
            for other in (loop, beside)
        )
        print(f"  {words}: found {rate(sum(one.low > 0 for one in found), len(found))}:")
        print("    " + "; ".join(in_words(one.map(to_percent), "%") for one in found))
        print(
            f"  {words}, without the loop: differ {rate(sum(one.low > 0 or one.high < 0 for one in none), len(none))}:"
        )
        print("    " + "; ".join(in_words(one.map(to_percent), "%") for one in none))
    show_resampled([table(run, "cpu_per_message") for run in runs], runs_per_trial, reference, loop)
    start, window = variances(runs, "cpu_per_message")
    blocks = int(np.mean([len(table(run, "cpu_per_message")) for run in runs]))
    run_s = seconds / runs_per_trial
    print(
        f"  starts differ by {100 * start:.1f} %, windows by {100 * window:.1f} % (standard deviations), "
        f"{blocks} blocks per run"
    )
    for size in (GOAL, percent):
        count = runs_needed(size, math.sqrt(start**2 + window**2 / blocks))
        print(
            f"  9 of 10 trials find {size:.1f} % with {count} runs, {count * run_s:.0f} s of load for all six instances"
        )


def show_resampled(
    tables: Sequence[Values], runs_per_trial: int, reference: Sequence[int], loop: Sequence[int]
) -> None:
    """Print how many random trials find the loop, and how many find a difference between equal instances.

    The trials in order of time are too few for a precise estimate of these shares. A random trial is a random choice of
    the runs.
    """
    rng = np.random.default_rng(1)
    equal = [number for number in range(tables[0].shape[1]) if number not in loop]
    found = differ = 0
    for _ in range(RESAMPLES):
        trial = [tables[run] for run in rng.permutation(len(tables))[:runs_per_trial]]
        pairs = [int(arm) for arm in rng.permutation(equal)]
        found += effect_of_starts(trial, reference, loop).low > 0
        none = effect_of_starts(trial, pairs[:2], pairs[2:4])
        differ += none.low > 0 or none.high < 0
    print(
        f"  CPU time per message, {RESAMPLES} random choices of {runs_per_trial} of {len(tables)} runs: "
        f"{found / RESAMPLES:.1%} find the loop, and {differ / RESAMPLES:.1%} find a difference without the loop"
    )


def runs_needed(percent: float, error: float) -> int:
    """Return the number of runs that a comparison needs to find a difference with a probability of 90 %.

    `error` is the standard error of one run on the log scale.
    """
    shift = math.log1p(percent / 100)
    return next(
        (n for n in range(1, 1000) if power(shift / (error / math.sqrt(n)), 2 * n) >= 0.9), 1000
    )


def power(shift: float, df: float) -> float:
    """Return the power of a two-sided t test at 5 %. `shift` is the effect divided by its standard error."""
    return float(stats.nct.sf(stats.t.ppf(0.975, df), df, shift))


def simulate(options: argparse.Namespace) -> None:
    """Print how often comparisons of equal simulated instances find a difference. Starts and windows vary at random."""
    rng = np.random.default_rng(1)
    for start in (0.0, options.start, 2 * options.start):
        for runs in (1, 3):
            found = []
            for _ in range(SAMPLES):
                tables = []
                for _ in range(runs):
                    speed = 0.1 * rng.standard_normal((options.blocks, 1))
                    luck = start / 100 * rng.standard_normal(4)
                    noise = (
                        options.window
                        / 100
                        * rng.standard_t(5, (options.blocks, 4))
                        / math.sqrt(5 / 3)
                    )
                    tables.append(np.exp(speed + luck + noise))
                found.append(effect_of_starts(tables, (0, 1), (2, 3)))
            rejected = sum(one.low > 0 or one.high < 0 for one in found)
            print(
                f"simulated, starts differ by {start:g} %, {runs} runs: rejected {rate(rejected, SAMPLES)}",
                flush=True,
            )


def show(options: argparse.Namespace) -> None:
    planted = opened(options.folder / "planted")
    # use the runs with a planted loop for A/A (equal settings) too, because several of their instances have no loop
    show_equal([*opened(options.folder / "equal"), *planted])
    if planted:
        percent = planted[0].attrs["iterations"] * percent_per_iteration(options.folder)
        show_planted(planted, options.runs, percent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure", help="measure runs, as root")
    measuring.add_argument("what", choices=["equal", "planted"])
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--testbed", default="local", help="testbed of the runs")
    measuring.add_argument("--limit-s", type=float, default=470, help="seconds for all runs")
    measuring.add_argument("--cps", type=int, default=500)
    measuring.add_argument("--threads", type=int, default=4)
    measuring.add_argument("--mode-s", type=float, default=4, help="seconds of load per instance")
    measuring.add_argument("--window-s", type=float, default=0.5)
    measuring.add_argument("--percent", type=float, default=GOAL, help="planted difference")
    measuring.add_argument(
        "--iterations", type=int, help="iterations of the loop; default: calibrate"
    )
    measuring.add_argument("--disturbed", action="store_true", help="use disturbed runs too")
    measuring.set_defaults(do=measure)
    showing = commands.add_parser("show", help="judge the runs of a folder")
    showing.add_argument("folder", type=Path)
    showing.add_argument("--runs", type=int, default=3, help="runs per trial")
    showing.set_defaults(do=show)
    sampling = commands.add_parser("simulate", help="sample A/A comparisons")
    sampling.add_argument(
        "--start", type=float, default=1, help="standard deviation of starts in percent"
    )
    sampling.add_argument(
        "--window", type=float, default=10, help="standard deviation of windows in percent"
    )
    sampling.add_argument("--blocks", type=int, default=8)
    sampling.set_defaults(do=simulate)
    options = parser.parse_args()
    try:
        options.do(options)
    except StableError as error:
        sys.exit(f"restarts: {error}")


if __name__ == "__main__":
    main()
