"""Test how many confidence intervals from crossover runs contain the true difference between two modes.

The benchmark prints the tables of docs/methodology/crossover-intervals.md.

A simulated queue serves messages in the order of arrival. The distribution of service times changes from window to
window, and messages that wait at the end of a window stay in the queue. The machine's speed drifts, and a hypervisor
takes the CPU in bursts. Another part of the benchmark samples windows directly, with stronger noise. In the tables,
"t" is Student's interval of the blocks' differences, and "shown" is the interval of `sipsched.analysis.crossover`,
which the pages show. The benchmark measures no real machine, prints the same numbers each time, and takes a little more
than three minutes of CPU time.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numba
import numpy as np
from scipy import signal, stats

from sipsched.analysis.blocks import mean_of_blocks
from sipsched.analysis.covariates import adjust
from sipsched.analysis.crossover import Doubt, Scale, block_differences, effect
from sipsched.analysis.intervals import mean_interval

DRAWS = 400
PROCESSES = 2
ARMS = 3
"""Windows per block: the reference mode, the other mode, and the sham, which repeats the reference mode."""
FAMILY = 12
COVERS = 93.0
"""Smallest coverage in percent at which a 95 % interval counts as valid."""
BLOCKS = (8, 20, 60)
LONGEST = BLOCKS[-1]
TELLING = {Doubt.FEW_BLOCKS, Doubt.FEW_CHANGED, Doubt.ONE_BLOCK}

PER_S = 2000.0
WINDOW_S = 0.5
JITTER = 0.2
SCV = 0.5
"""Squared coefficient of variation of service times in the other mode. In the reference mode, the value is 1."""
SHORT, LONG = 0.0, 0.2
"""Two lengths of the washout, as shares of a window. The washout is the start of a window, which all means exclude."""
WANDER, WANDER_S = 0.1, 60.0
"""Standard deviation of the logarithm of the machine's slowdown, and its correlation time in seconds."""
SETUP_S = 12.0
PAIRS = 5


@dataclass(frozen=True)
class SimulatedQueue:
    """A simulated queue, and the machine that serves it.

    Attributes
    ----------
    load
        Share of time in service, at the machine's usual speed.
    slower
        Relative slowdown of the machine from start to end.
    bursts_per_s, burst_s
        Rate (Poisson) and mean length (exponential) of the hypervisor's bursts.
    """

    load: float
    slower: float = 0.0
    bursts_per_s: float = 0.0
    burst_s: float = 0.0
    limit: float = np.inf
    """Share of a window's time that the hypervisor may take.

    If it takes more time, the window's block counts as disturbed.
    """
    next_too: bool = False
    """Whether the next window's block also counts as disturbed after a disturbed window."""
    adjusts: bool = False
    """Whether the analysis adjusts and weights disturbed blocks. If false, the analysis excludes disturbed blocks."""
    sham_follows: bool = False
    """Whether the sham window always follows the reference window. If false, the order in the block is random."""


BURSTS = SimulatedQueue(0.7, bursts_per_s=0.2, burst_s=0.1)
SHORT_BURSTS = SimulatedQueue(0.7, bursts_per_s=2, burst_s=0.01)
QUEUES = {
    "load 0.5": SimulatedQueue(0.5),
    "load 0.7, 20 % slower at the end": SimulatedQueue(0.7, slower=0.2),
    "load 0.7, 2 % stolen in bursts of 0.1 s": BURSTS,
    "load 0.85": SimulatedQueue(0.85),
}
ABOVE, NEXT_TOO = replace(BURSTS, limit=0.05), replace(BURSTS, limit=0.05, next_too=True)
BRIEF = replace(SHORT_BURSTS, limit=0.05, next_too=True)
DISTURBED = {
    "bursts of 0.1 s, all windows count": BURSTS,
    "blocks above 5 % excluded": ABOVE,
    "blocks above 5 % and after excluded": NEXT_TOO,
    "adjusted": replace(NEXT_TOO, adjusts=True),
    "sham behind the reference, blocks above 5 % excluded": replace(ABOVE, sham_follows=True),
    "sham behind the reference, and after excluded": replace(NEXT_TOO, sham_follows=True),
    "bursts of 0.01 s, blocks above 5 % and after excluded": BRIEF,
    "bursts of 0.01 s, adjusted": replace(BRIEF, adjusts=True),
}


@numba.njit(cache=False)
def serve(arrivals, work, starts, modes, slowness):
    """Return the waiting time plus service time in s of each message, in a queue with one server.

    `work` holds the service time of each message, with one column per mode. Window i begins at starts[i] with the mode
    modes[i]. In second k, the server needs slowness[k] times as long.
    """
    free, window = 0.0, 0
    spent = np.empty(len(arrivals))
    for i in range(len(arrivals)):
        begin = max(arrivals[i], free)
        while window + 1 < len(starts) and starts[window + 1] <= begin:
            window += 1
        free = begin + work[i, modes[window]] * slowness[min(int(begin), len(slowness) - 1)]
        spent[i] = free - arrivals[i]
    return spent


def wander(rng, seconds):
    """Sample the factor by which the machine prolongs service times, for each second of a run."""
    keep = np.exp(-1 / WANDER_S)
    noise = rng.normal(0, WANDER * np.sqrt(1 - keep**2), seconds)
    noise[0] = rng.normal(0, WANDER)
    return np.exp(signal.lfilter([1], [1, -keep], noise))


def poisson(rng, per_s, length):
    return np.sort(rng.uniform(0, length, rng.poisson(per_s * length)))


def play(rng, queue, offsets, starts, lengths, modes, slowness):
    """Simulate the queue. Return the messages of the queue, and the CPU time that a hypervisor would have stolen.

    Returns four arrays. Three arrays have one value per message: the number of its window, its arrival after the
    window's start in s, and its waiting and service time in s. The fourth array is the stolen share per window.
    """
    times = np.concatenate([start + times for start, times in zip(starts, offsets, strict=True)])
    window = np.repeat(np.arange(len(starts)), [len(times) for times in offsets])
    stolen = poisson(rng, queue.bursts_per_s, starts[-1] + lengths[-1])
    count, mean_s = len(times), queue.load / PER_S
    work = np.column_stack(
        (rng.exponential(mean_s, count), rng.gamma(1 / SCV, mean_s * SCV, count))
    )
    taken = np.repeat(rng.exponential(queue.burst_s, len(stolen))[:, None], 2, axis=1)
    order = np.argsort(np.concatenate((times, stolen)), kind="stable")
    spent = np.empty(len(order))
    spent[order] = serve(
        np.concatenate((times, stolen))[order],
        np.concatenate((work, taken))[order],
        starts,
        modes,
        slowness,
    )
    share = np.bincount(np.searchsorted(starts, stolen, "right") - 1, taken[:, 0], len(starts))
    return window, times - starts[window], spent[:count], share / lengths


def window_means(window, since, spent, _, lengths, washout):
    counts = since >= washout * lengths[window]
    sums = np.bincount(window[counts], spent[counts], len(lengths))
    return sums / np.bincount(window[counts], minlength=len(lengths))


def crossed(rng, queue, blocks):
    """Simulate a run that compares modes. For each washout, return means by block and mode, and the blocks' weights."""
    order = rng.permuted(np.tile([0, 1, 2], (blocks, 1)), axis=1)
    if queue.sham_follows:
        order = np.where(rng.random(blocks)[:, None] < 0.5, [0, 2, 1], [1, 0, 2])
    lengths = np.repeat(WINDOW_S * rng.uniform(1 - JITTER, 1 + JITTER, blocks), 3)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    offsets = [times for length in lengths[::3] for times in [poisson(rng, PER_S, length)] * 3]
    slowness = wander(rng, int(lengths.sum()) + 1)
    slowness *= 1 + queue.slower * np.linspace(0, 1, len(slowness))
    modes = (order.ravel() == 1).astype(np.int64)
    played = play(rng, queue, offsets, starts, lengths, modes, slowness)
    over = played[-1].reshape(blocks, 3) > queue.limit
    # also mark the block of the window after a burst, which serves the messages that waited during the burst
    over[1:, 0] |= queue.next_too & over[:-1, -1]
    disturbed = over.any(axis=1)
    by_arm = np.argsort(order, axis=1)
    stolen = [played[-1], np.concatenate(([0], played[-1][:-1]))]
    shares = [np.take_along_axis(share.reshape(blocks, 3), by_arm, axis=1) for share in stolen]
    tables = []
    for washout in (SHORT, LONG):
        means = window_means(*played, lengths, washout).reshape(blocks, 3)
        table, weights = np.take_along_axis(means, by_arm, axis=1), np.ones(blocks)
        if queue.adjusts:
            adjusted = adjust(table, shares, disturbed, ratio=True)
            table, weights = adjusted.table, adjusted.weights
        else:
            table[disturbed] = np.nan
        tables.append((table, weights))
    return tables


def apart(rng, queue, blocks):
    """Simulate `PAIRS` pairs of separate runs, and return the log ratio of the means for each pair.

    All pairs together have as much load as two modes of a crossover run.
    """
    length = np.array([blocks * WINDOW_S / PAIRS])
    slowness = wander(rng, int(2 * PAIRS * (length[0] + SETUP_S)) + 1)
    slowness *= 1 + queue.slower * np.linspace(0, 1, len(slowness))
    logs = np.empty((PAIRS, 2))
    for pair in range(PAIRS):
        arrivals = poisson(rng, PER_S, length[0])
        for number, mode in enumerate(rng.permutation(2)):
            begin = int((2 * pair + number) * (length[0] + SETUP_S))
            seen = slowness[begin : begin + int(length[0]) + 1]
            modes = np.array([mode])
            played = play(rng, queue, [arrivals], np.zeros(1), length, modes, seen)
            logs[pair, mode] = np.log(window_means(*played, length, 0)[0])
    return logs[:, 1] - logs[:, 0]


@dataclass(frozen=True)
class Result:
    """Several intervals for the same simulated run. An interval is (estimate, low, high).

    `t`, `bca` and `flips` are common kinds of intervals. `shown` is the interval on the pages, and `strict` is the same
    interval with a correction for 12 comparisons. `flips` and `shown` both invert a randomisation test, but only
    `shown` is protected against correlated blocks.
    """

    t: tuple[float, float, float]
    bca: tuple[float, float, float]
    flips: tuple[float, float, float]
    shown: tuple[float, float, float]
    strict: tuple[float, float, float]
    p_value: float
    doubted: bool


def ends(interval):
    return interval.estimate, interval.low, interval.high


def bca(differences):
    if not np.ptp(differences):
        return differences.mean(), np.nan, np.nan
    rng = np.random.default_rng(1)
    bootstrap = stats.bootstrap((differences,), np.mean, n_resamples=999, method="BCa", rng=rng)
    return differences.mean(), *bootstrap.confidence_interval


def flips(differences):
    """Return the mean of differences and its interval by a randomisation test, which treats blocks as independent."""
    if not np.ptp(differences):
        return differences.mean(), np.nan, np.nan
    mean = mean_of_blocks([np.array([difference]) for difference in differences])
    return mean.estimate, *mean.ends()


def judge(tables, other=1, scale=Scale.RATIO) -> Result:
    reference = (0, 2) if other == 1 and tables[0].shape[1] == ARMS else 0
    shown, strict = (effect(tables, reference, other, scale, tests) for tests in (1, FAMILY))
    differences = [block_differences(table, reference, other, scale) for table in tables]
    pooled = np.concatenate(differences)
    pooled = pooled[~np.isnan(pooled)]
    doubted = bool(shown.doubts & TELLING) or not shown.interval.known
    return Result(
        ends(mean_interval(pooled)),
        bca(pooled),
        flips(pooled),
        ends(shown.interval),
        ends(strict.interval),
        shown.p_value,
        doubted,
    )


def draw_queue(case, seed):
    name, blocks = case
    rng = np.random.default_rng([seed, blocks, list(QUEUES).index(name)])
    short, long = crossed(rng, QUEUES[name], blocks)
    separate = mean_interval(apart(rng, QUEUES[name], blocks))
    results = [judge([table], arm) for arm in (1, 2) for table, _ in (short, long)]
    return results, ends(separate)


def stationary(case, seed):
    """Simulate one run per mode without switching, and return the difference of the logarithms of both means."""
    name, blocks = case
    rng = np.random.default_rng([seed, 77, list(QUEUES).index(name)])
    queue, lengths = QUEUES[name], np.full(blocks, WINDOW_S)
    starts = np.arange(blocks) * WINDOW_S
    slowness = wander(rng, int(lengths.sum()) + 1)
    slowness *= 1 + queue.slower * np.linspace(0, 1, len(slowness))
    offsets = [poisson(rng, PER_S, WINDOW_S) for _ in range(blocks)]
    logs = []
    for mode in (0, 1):
        played = play(
            rng, queue, offsets, starts, lengths, np.full(blocks, mode, np.int64), slowness
        )
        logs.append(np.log(window_means(*played, lengths, 0)).mean())
    return logs[1] - logs[0]


def followed(rng, coefficient, shape):
    noise = rng.normal(0, np.sqrt(1 - coefficient**2), (shape[0] + 50, *shape[1:]))
    return signal.lfilter([1], [1, -coefficient], noise, axis=0)[50:]


def in_random_order(rng, series):
    """Assign the windows of each block at random to the reference, the other mode and the sham (reference again)."""
    return rng.permuted(series.reshape(-1, ARMS), axis=1)


def lognormal(rng, n, cv):
    return rng.normal(0, np.sqrt(np.log1p(cv**2)), (n, ARMS))


def exponential(rng, n):
    return np.log(rng.exponential(1, (n, ARMS)))


def outliers(rng, n):
    return rng.normal(0, 0.1, (n, ARMS)) + np.log(5) * (rng.random((n, ARMS)) < 0.2)


def outliers_of_one_arm(rng, n):
    windows = rng.normal(0, 0.1, (n, ARMS)) + np.log(5) * (rng.random((n, ARMS)) < [0, 0.2, 0])
    return windows - [0, 0.2 * np.log(5), 0]


def skewed_effect(rng, n):
    """Sample windows with effects that differ between blocks and have a long tail on one side."""
    windows = rng.normal(0, 0.1, (n, ARMS))
    windows[:, 1] += 0.3 * (rng.lognormal(0, 0.5, n) - np.exp(0.125))
    return windows


def machine(rng, n, coefficient):
    return in_random_order(rng, followed(rng, coefficient, (ARMS * n,)))


def slowing(rng, n):
    """Return random results of windows on a machine that gradually becomes 20 % slower."""
    drift = np.log(np.linspace(1, 1.2, ARMS * n))
    return in_random_order(rng, rng.normal(0, 0.05, ARMS * n) + drift)


def effects(rng, n, coefficient):
    windows = rng.normal(0, 0.01, (n, ARMS))
    windows[:, 1] += followed(rng, coefficient, (n,))
    return windows


def moving(rng, n):
    """Sample windows in which the mode's effect on the log scale rises from -0.3 to 0.3 during the run."""
    windows = rng.normal(0, 0.3, (n, ARMS))
    windows[:, 1] += np.linspace(-0.3, 0.3, n)
    return windows


def shares(rng, n, chance):
    """Sample one drop rate per window, which is above 0 with the probability `chance`."""
    episodes = rng.random((n, ARMS)) < chance
    return 0.002 * episodes * rng.lognormal(0, 1, (n, ARMS))


def one_sided_shares(rng, n):
    windows = shares(rng, n, 0.5)
    windows[:, [0, 2]] = 0
    return windows - [0, 0.002 * 0.5 * np.exp(0.5), 0]


DRAWN: dict[str, tuple[Callable[..., np.ndarray], Scale]] = {
    "lognormal, cv 0.1": (partial(lognormal, cv=0.1), Scale.RATIO),
    "lognormal, cv 0.3": (partial(lognormal, cv=0.3), Scale.RATIO),
    "lognormal, cv 1": (partial(lognormal, cv=1.0), Scale.RATIO),
    "exponential": (exponential, Scale.RATIO),
    "a fifth five times as large": (outliers, Scale.RATIO),
    "a fifth five times as large, in one arm only": (outliers_of_one_arm, Scale.RATIO),
    "effects with a long tail": (skewed_effect, Scale.RATIO),
    "the machine 20 % slower at the end": (slowing, Scale.RATIO),
    "windows AR(1) 0.6": (partial(machine, coefficient=0.6), Scale.RATIO),
    "effects AR(1) 0.3": (partial(effects, coefficient=0.3), Scale.RATIO),
    "effects AR(1) 0.6": (partial(effects, coefficient=0.6), Scale.RATIO),
    "the effect drifts": (moving, Scale.RATIO),
    "PDR, drops in half of the windows": (partial(shares, chance=0.5), Scale.DIFFERENCE),
    "PDR, drops in a tenth of the windows": (partial(shares, chance=0.1), Scale.DIFFERENCE),
    "PDR, drops in one arm only": (one_sided_shares, Scale.DIFFERENCE),
}


def draw_windows(case, seed):
    name, blocks = case
    make, scale = DRAWN[name]
    windows = make(np.random.default_rng([seed, blocks, list(DRAWN).index(name)]), blocks)
    return judge([np.exp(windows) if scale is Scale.RATIO else windows], scale=scale)


def draw_runs(case, seed):
    runs, between = case
    rng = np.random.default_rng([seed, runs, round(10 * between)])
    tables, centres = [], rng.normal(0, between * 0.3 * np.sqrt(2 / 20), runs)
    for centre in centres:
        windows = rng.normal(0, 0.3, (20, 2))
        windows[:, 1] += centre
        tables.append(np.exp(windows))
    return judge(tables), float(centres.mean())


def covers(intervals, truths):
    estimates, low, high = np.array(intervals).T
    known = ~np.isnan(low)
    if not known.any():
        return np.nan
    truths = np.broadcast_to(truths, estimates.shape)
    return 100 * np.mean((low <= truths)[known] & (truths <= high)[known])


def half(intervals):
    _, low, high = np.array(intervals).T
    return np.nan if np.isnan(low).all() else np.nanmean(high - low) / 2


def percent(value):
    return "–" if np.isnan(value) else f"{value:.0f}"


def cells(results: list[Result], truth: float) -> list[str]:
    """Return the cells of a table row: coverage, widths, and shares of significant results and of results in doubt."""
    by_way = {
        way: [getattr(result, way) for result in results] for way in ("t", "bca", "flips", "shown")
    }
    covered = {way: covers(intervals, truth) for way, intervals in by_way.items()}
    widths = {way: half(intervals) for way, intervals in by_way.items()}
    good = [widths[way] for way in ("t", "bca", "flips") if covered[way] >= COVERS]
    strict = [result.strict for result in results]
    known = np.mean([not np.isnan(low) for _, low, _ in strict])
    return [
        *(percent(covered[way]) for way in by_way),
        f"{widths['t']:.2g}",
        "–" if np.isnan(widths["shown"]) else f"{widths['shown'] / widths['t']:.2f}",
        f"{widths['shown'] / min(good):.2f}" if good else "–",
        f"{covers(strict, truth):.1f}" if known >= 0.5 else "–",
        percent(100 * np.mean([result.p_value <= 0.05 for result in results])),
        percent(100 * np.mean([result.doubted for result in results])),
    ]


def row(name, columns: list[list[str]]) -> str:
    """Return a row of the table. A cell lists one result per number of blocks in `BLOCKS`."""
    return f"| {name} | " + " | ".join(" ".join(cell) for cell in zip(*columns, strict=True)) + " |"


def head(*names):
    return "\n| " + " | ".join(names) + " |\n|" + " --- |" * len(names)


HEAD = head(
    "windows",
    "t covers",
    "BCa",
    "flips",
    "shown",
    "half-width of t",
    "shown / t",
    "shown / best that covers",
    "shown at 99.58 %",
    "rejects no effect",
    "doubted",
)


def show_drawn(pool, seeds):
    print("\nSampled windows, no effect:", HEAD)
    for name, (_, scale) in DRAWN.items():
        columns = []
        for blocks in BLOCKS:
            results = pool.map(partial(draw_windows, (name, blocks)), seeds, 25)
            columns.append(cells(results, 0.0))
        print(row(f"{name} ({scale})", columns), flush=True)


def show_queue(pool, seeds):
    print(
        "\nWindows of a queue. A fifth of each window is washout. The true A/B difference is the mean of all samples.",
        HEAD,
    )
    notes = []
    for name in QUEUES:
        level = np.mean(
            pool.map(partial(stationary, (name, 600)), seeds[: max(len(seeds) // 5, 1)], 5)
        )
        effects_, shams = [], []
        for blocks in BLOCKS:
            drawn = pool.map(partial(draw_queue, (name, blocks)), seeds, 10)
            short, long, _, sham = ([results[i] for results, _ in drawn] for i in range(4))
            truth = float(np.mean([result.shown[0] for result in long]))
            effects_.append(cells(long, truth))
            shams.append(cells(sham, 0.0))
            crossover, separate = (
                half([result.shown for result in long]),
                half([runs for _, runs in drawn]),
            )
            notes.append(
                f"| {name} | {blocks} | {level:+.3f} | "
                f"{np.mean([result.shown[0] for result in short]) - level:+.3f} | {truth - level:+.3f} | "
                f"{crossover:.3f} | {separate:.3f} | {separate / crossover:.1f} |"
            )
        print(row(f"{name}: A/B", effects_))
        print(row(f"{name}: A/A", shams), flush=True)
    print(
        f"\nBias by messages of the previous window, and {PAIRS} pairs of separate runs of the same length; log ratios."
    )
    print(
        head(
            *("queue", "blocks", "never switched", "bias, no washout", "bias, a fifth is washout"),
            *("half-width, crossover", "half-width, separate runs", "separate / crossover"),
        )
    )
    print("\n".join(notes))


def draw_disturbed(name, seed):
    """Return the intervals of the other mode and of the sham.

    The seed does not depend on `name`, so every row of the table simulates the same arrivals.
    """
    queue = DISTURBED[name]
    rng = np.random.default_rng([seed, LONGEST])
    _, (table, weights) = crossed(rng, queue, LONGEST)
    both = ((0, 2), 1), (0, 2)
    return [ends(effect([table], *arms, weights=[weights]).interval) for arms in both]


def show_disturbed(pool, seeds):
    print(f"\nLoad 0.7, 2 % of time stolen, {LONGEST} blocks per run; half-widths of log ratios.")
    print(
        head(
            *("windows", "error of A/A (%)", "A/A covers", "half-width, A/A"),
            *("A/B", "A/B covers its mean", "half-width, A/B"),
        )
    )
    for name in DISTURBED:
        drawn = pool.map(partial(draw_disturbed, name), seeds, 5)
        modes, shams = (
            [interval for interval in intervals if not np.isnan(interval[1])]
            for intervals in zip(*drawn, strict=True)
        )
        off, truth = (np.array(intervals)[:, 0] for intervals in (shams, modes))
        print(
            f"| {name} | {100 * off.mean():+.1f} ± {100 * off.std() / np.sqrt(len(off)):.1f} | "
            f"{percent(covers(shams, 0))} | {half(shams):.3f} | {truth.mean():+.3f} | "
            f"{percent(covers(modes, truth.mean()))} | {half(modes):.3f} |",
            flush=True,
        )


def show_runs(pool, seeds):
    print("\nRuns of 20 blocks; between: spread of runs in standard errors of one run; in percent.")
    print(head("runs", "between", "covers these runs", "covers all runs", "half-width"))
    for runs in (1, 2, 3, 6, 10):
        for between in (0.0, 1.0, 2.0):
            drawn = pool.map(partial(draw_runs, (runs, between)), seeds, 25)
            judged, own = zip(*drawn, strict=True)
            shown = [result.shown for result in judged]
            line = [
                percent(covers(shown, np.array(own))),
                percent(covers(shown, 0)),
                f"{half(shown):.2f}",
            ]
            print(f"| {runs} | {between:.0f} | " + " | ".join(line) + " |", flush=True)


PARTS = {
    "drawn": show_drawn,
    "queue": show_queue,
    "disturbed": show_disturbed,
    "runs": show_runs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help=f"samples per case, default {DRAWS}"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        sizes = ", ".join(map(str, BLOCKS))
        print(
            f"{options.draws} samples per case; each cell has the results for {sizes} blocks; percent."
        )
        for part in options.parts:
            PARTS[part](pool, range(options.draws))


if __name__ == "__main__":
    main()
