"""How often the intervals of crossover runs hold the truth: the tables of docs/methodology.md.

The queue is served first come first served; the law of service is switched at windows, what waits is carried
over, the machine's speed wanders, a hypervisor takes bursts. The drawn windows are worse than that. "t" is
Student's interval of the blocks' differences, "shown" and "robust" are those of `sipsched.analysis.crossover`.
Nothing is measured: the numbers are the same each time. It takes a little more than three minutes of CPU.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numba
import numpy as np
from scipy import signal

from sipsched.analysis.crossover import Doubt, Effect, Scale, effect
from sipsched.analysis.statistics import mean_interval

DRAWS = 400
RESAMPLES = 999
PROCESSES = 2
BLOCKS = (8, 20, 60)
TELLING = {Doubt.FEW_BLOCKS, Doubt.FEW_CHANGED, Doubt.ONE_BLOCK}

PER_S = 2000.0
WINDOW_S = 0.5
JITTER = 0.2
SCV = 0.5
"""Of the other law of service; the reference's is 1 (exponential), the means are equal."""
SHORT, LONG = 0.0, 0.2
"""Washouts, as shares of a window."""
WANDER, WANDER_S = 0.1, 60.0
"""Standard deviation of the logarithm of the time a piece of work takes, and how long it remembers."""
SETUP_S = 12.0
PAIRS = 5


@dataclass(frozen=True)
class Queue:
    """A queue that is served on a machine.

    Attributes
    ----------
    load
        Share of time in which it serves, at the machine's usual speed.
    slower
        By how much the machine is slower at the end than at the start, as a share.
    bursts_per_s, burst_s
        What the hypervisor takes: Poisson, exponential.
    """

    load: float
    slower: float = 0.0
    bursts_per_s: float = 0.0
    burst_s: float = 0.0
    limit: float = np.inf
    """Stolen share of a window above which its block is left out."""
    next_too: bool = False
    """Whether the block of the window after it is, too."""


QUEUES = {
    "load 0.5": Queue(0.5),
    "load 0.7, 20 % slower at the end": Queue(0.7, slower=0.2),
    "load 0.7, 2 % stolen in bursts of 0.1 s": Queue(0.7, bursts_per_s=0.2, burst_s=0.1),
    "the same, windows above 5 % left out": Queue(0.7, bursts_per_s=0.2, burst_s=0.1, limit=0.05),
    "the same, and the window after": Queue(
        0.7, bursts_per_s=0.2, burst_s=0.1, limit=0.05, next_too=True
    ),
    "load 0.85": Queue(0.85),
}


@numba.njit(cache=False)
def serve(arrivals, work, starts, modes, slowness):
    """Give the time that each spends in the queue; work has a column a mode and is done at the speed of its start."""
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
    """Draw the machine's slowness by the second."""
    keep = np.exp(-1 / WANDER_S)
    noise = rng.normal(0, WANDER * np.sqrt(1 - keep**2), seconds)
    noise[0] = rng.normal(0, WANDER)
    return np.exp(signal.lfilter([1], [1, -keep], noise))


def poisson(rng, per_s, length):
    return np.sort(rng.uniform(0, length, rng.poisson(per_s * length)))


def play(rng, queue, offsets, starts, lengths, modes, slowness):
    """Serve the arrivals of each window; give each window's arrivals from its start, and their times spent."""
    times = np.concatenate([start + each for start, each in zip(starts, offsets, strict=True)])
    window = np.repeat(np.arange(len(starts)), [len(each) for each in offsets])
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
    """Play a crossover run; its tables (block; reference, other, sham) under both washouts."""
    order = np.where(rng.random(blocks)[:, None] < 0.5, [0, 2, 1], [1, 0, 2])
    lengths = np.repeat(WINDOW_S * rng.uniform(1 - JITTER, 1 + JITTER, blocks), 3)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    offsets = [each for length in lengths[::3] for each in [poisson(rng, PER_S, length)] * 3]
    slowness = wander(rng, int(lengths.sum()) + 1)
    slowness *= 1 + queue.slower * np.linspace(0, 1, len(slowness))
    modes = (order.ravel() == 1).astype(np.int64)
    played = play(rng, queue, offsets, starts, lengths, modes, slowness)
    tables = []
    for washout in (SHORT, LONG):
        means = window_means(*played, lengths, washout).reshape(blocks, 3)
        over = played[-1].reshape(blocks, 3) > queue.limit
        # what a burst leaves waiting is served in the next window
        over[1:, 0] |= queue.next_too & over[:-1, -1]
        means[over.any(axis=1)] = np.nan
        tables.append(np.take_along_axis(means, np.argsort(order, axis=1), axis=1))
    return tables


def apart(rng, queue, blocks):
    """Play PAIRS of separate runs for as many seconds of load in all as two modes have in a crossover run."""
    length = np.array([blocks * WINDOW_S / PAIRS])
    slowness = wander(rng, int(2 * PAIRS * (length[0] + SETUP_S)) + 1)
    slowness *= 1 + queue.slower * np.linspace(0, 1, len(slowness))
    logs = np.empty((PAIRS, 2))
    for pair in range(PAIRS):
        arrivals = poisson(rng, PER_S, length[0])
        for place, mode in enumerate(rng.permutation(2)):
            begin = int((2 * pair + place) * (length[0] + SETUP_S))
            seen = slowness[begin : begin + int(length[0]) + 1]
            modes = np.array([mode])
            played = play(rng, queue, [arrivals], np.zeros(1), length, modes, seen)
            logs[pair, mode] = np.log(window_means(*played, length, 0)[0])
    return logs[:, 1] - logs[:, 0]


@dataclass(frozen=True)
class Found:
    """What one draw says of each way; an interval is (estimate, low, high)."""

    t: tuple[float, float, float]
    shown: tuple[float, float, float]
    robust: tuple[float, float, float]
    p_value: float
    p_randomisation: float
    doubted: bool


def ends(interval):
    return interval.estimate, interval.low, interval.high


def judge(tables, other=1, scale=Scale.RATIO) -> tuple[Found, Effect]:
    found = effect(tables, 0, other, scale, resamples=RESAMPLES)
    windows = np.concatenate(tables)
    if scale is Scale.RATIO:
        windows = np.log(windows)
    plain = mean_interval(windows[:, other] - windows[:, 0])
    doubted = bool(found.doubts & TELLING) or not found.interval.known
    return Found(
        ends(plain),
        ends(found.interval),
        ends(found.robust),
        found.p_value,
        found.p_randomisation,
        doubted,
    ), found


def draw_queue(case, seed):
    name, blocks = case
    rng = np.random.default_rng([seed, blocks, list(QUEUES).index(name)])
    short, long = crossed(rng, QUEUES[name], blocks)
    separate = mean_interval(apart(rng, QUEUES[name], blocks))
    found = [judge([table], arm)[0] for arm in (1, 2) for table in (short, long)]
    return found, ends(separate)


def stationary(case, seed):
    """Give the difference of log means of windows that are never switched."""
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
    """Deal the windows of a series to two arms, the order within each block drawn."""
    pairs = series.reshape(-1, 2)
    return rng.permuted(pairs, axis=1)


def independent(rng, n):
    return rng.normal(0, 0.3, (n, 2))


def lognormal(rng, n):
    return rng.normal(0, 1, (n, 2))


def outliers(rng, n):
    return rng.normal(0, 0.1, (n, 2)) + np.log(5) * (rng.random((n, 2)) < 0.2)


def outliers_of_one_arm(rng, n):
    windows = rng.normal(0, 0.1, (n, 2)) + np.log(5) * (rng.random((n, 2)) < [0, 0.2])
    return windows - [0, 0.2 * np.log(5)]


def machine(rng, n, coefficient):
    return in_random_order(rng, followed(rng, coefficient, (2 * n,)))


def slowing(rng, n):
    """Slow down by 20 % in all, over the noise of windows."""
    return in_random_order(rng, rng.normal(0, 0.05, 2 * n) + np.log(np.linspace(1, 1.2, 2 * n)))


def effects(rng, n, coefficient):
    windows = rng.normal(0, 0.01, (n, 2))
    windows[:, 1] += followed(rng, coefficient, (n,))
    return windows


def moving(rng, n):
    """Let the effect itself drift, by as much as its spread."""
    windows = rng.normal(0, 0.3, (n, 2))
    windows[:, 1] += np.linspace(-0.3, 0.3, n)
    return windows


def shares(rng, n, chance):
    """Give drop rates: none in most windows; a tenth more episodes in the other arm would be a difference."""
    episodes = rng.random((n, 2)) < chance
    return 0.002 * episodes * rng.lognormal(0, 1, (n, 2))


def one_sided_shares(rng, n):
    windows = shares(rng, n, 0.5)
    windows[:, 0] = 0
    return windows - [0, 0.002 * 0.5 * np.exp(0.5)]


DRAWN: dict[str, tuple[Callable[..., np.ndarray], Scale]] = {
    "independent": (independent, Scale.RATIO),
    "lognormal, sigma 1": (lognormal, Scale.RATIO),
    "a fifth five times as large": (outliers, Scale.RATIO),
    "the same in one arm only": (outliers_of_one_arm, Scale.RATIO),
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
    return judge([np.exp(windows) if scale is Scale.RATIO else windows], scale=scale)[0]


def draw_runs(case, seed):
    runs, between = case
    rng = np.random.default_rng([seed, runs, round(10 * between)])
    tables, centres = [], rng.normal(0, between * 0.3 * np.sqrt(2 / 20), runs)
    for centre in centres:
        windows = rng.normal(0, 0.3, (20, 2))
        windows[:, 1] += centre
        tables.append(np.exp(windows))
    found, whole = judge(tables)
    return found, ends(whole.here), ends(whole.across), float(centres.mean())


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


def cells(draws: list[Found], truth: float, symmetric: bool) -> list[str]:
    """Coverage; half-widths in those of t; rejections; doubts; coverage where nothing is doubted."""
    t, shown, robust = ([getattr(each, way) for each in draws] for way in ("t", "shown", "robust"))
    trusted = [each.shown for each in draws if not each.doubted]
    # what is not symmetric has another middle than its mean
    middle = truth if symmetric else float(np.mean([estimate for estimate, _, _ in robust]))
    return [
        *(percent(covers(each, truth)) for each in (t, shown)),
        percent(covers(robust, middle)),
        f"{half(t):.2g}",
        *(
            "–" if np.isnan(half(each)) else f"{half(each) / half(t):.1f}"
            for each in (shown, robust)
        ),
        percent(100 * np.mean([each.p_randomisation <= 0.05 for each in draws])),
        percent(100 - 100 * len(trusted) / len(draws)),
        percent(covers(trusted, truth)) if len(trusted) >= 0.2 * len(draws) else "–",
    ]


def row(name, columns: list[list[str]]) -> str:
    """Set the numbers of blocks beside each other in each cell."""
    return f"| {name} | " + " | ".join(" ".join(each) for each in zip(*columns, strict=True)) + " |"


def head(*names):
    return "\n| " + " | ".join(names) + " |\n|" + " --- |" * len(names)


HEAD = head(
    "windows",
    "t covers",
    "shown covers",
    "robust covers",
    "half-width of t",
    "shown / t",
    "robust / t",
    "randomisation rejects",
    "doubted",
    "shown covers, not doubted",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"of each case; {DRAWS}")
    draws = parser.parse_args().draws
    seeds = range(draws)
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        sizes = ", ".join(map(str, BLOCKS))
        print(f"{draws} draws a case; in each cell {sizes} blocks; percent.")
        print("\nWindows drawn, no effect:", HEAD)
        for name, (_, scale) in DRAWN.items():
            columns = []
            for blocks in BLOCKS:
                found = pool.map(partial(draw_windows, (name, blocks)), seeds, 25)
                columns.append(cells(found, 0.0, "one arm" not in name))
            print(row(f"{name} ({scale})", columns), flush=True)
        print(
            "\nWindows of a queue, a fifth of each washed out; truth of A/B: the mean of all draws.",
            HEAD,
        )
        notes = []
        for name in QUEUES:
            level = np.mean(
                pool.map(partial(stationary, (name, 600)), seeds[: max(draws // 5, 1)], 5)
            )
            effects_, shams = [], []
            for blocks in BLOCKS:
                found = pool.map(partial(draw_queue, (name, blocks)), seeds, 10)
                short, long, _, sham = ([each[0][i] for each in found] for i in range(4))
                truth = float(np.mean([each.shown[0] for each in long]))
                effects_.append(cells(long, truth, False))
                shams.append(cells(sham, 0.0, True))
                crossover, separate = (
                    half([each.shown for each in long]),
                    half([e[1] for e in found]),
                )
                notes.append(
                    f"| {name} | {blocks} | {level:+.3f} | "
                    f"{np.mean([each.shown[0] for each in short]) - level:+.3f} | {truth - level:+.3f} | "
                    f"{crossover:.3f} | {separate:.3f} | {separate / crossover:.1f} |"
                )
            print(row(f"{name}: A/B", effects_))
            print(row(f"{name}: A/A", shams), flush=True)
        print(
            f"\nCarry-over, and {PAIRS} pairs of separate runs of the same seconds of load; log ratios."
        )
        print(
            head(
                "queue",
                "blocks",
                "never switched",
                "bias, no washout",
                "bias, a fifth washed out",
                "half-width, crossover",
                "half-width, separate runs",
                "separate / crossover",
            )
        )
        print("\n".join(notes))
        print("\nRuns of 20 blocks; between: spread of runs in standard errors of one; percent.")
        print(
            head(
                "runs",
                "between",
                "shown covers all runs",
                "robust covers all runs",
                "here covers these runs",
                "here covers all runs",
                "across covers all runs",
                "half-width of here",
                "of across",
            )
        )
        for runs in (1, 2, 3, 5, 10):
            for between in (0.0, 1.0, 2.0):
                found = pool.map(partial(draw_runs, (runs, between)), seeds, 25)
                judged, here, across, own = zip(*found, strict=True)
                shown, robust = ([getattr(e, way) for e in judged] for way in ("shown", "robust"))
                line = [
                    *(percent(covers(each, 0)) for each in (shown, robust)),
                    percent(covers(here, np.array(own))),
                    percent(covers(here, 0)),
                    percent(covers(across, 0)),
                    f"{half(here):.2f}",
                    "–" if runs == 1 else f"{half(across):.2f}",
                ]
                print(f"| {runs} | {between:.0f} | " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
