"""How often 95 % intervals hold the truth where this field lives: the table of docs/methodology.md.

Shows, for runs that differ little, by factors (lognormal, sigma 1), and of which one in five is five
times as large: the share of draws in which Student's t interval holds the mean, and the interval of a
typical run the median, with the latter's width over the former's (median of the draws); the same of
crossings, on smooth and steep knees that lie anywhere among loads 200 cps apart, with how many of them are
a number and not "between". Nothing is measured: the numbers are the same each time. It takes a minute of CPU.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

from sipsched.analysis import statistics
from sipsched.analysis.statistics import PDR_LIMIT

SEED = 1
DRAWS = 2000
RUNS = (3, 5, 10, 30)
CV = 0.3
OUTLIERS, TIMES = 0.2, 5
CROSSING_RUNS = (3, 5, 10)
CROSSING_DRAWS = 300
CROSSING_RESAMPLES = 299
LOADS = np.arange(1400, 3000, 200.0)
KNEE_CPS = 2000

Values = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Values]


def outliers(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Draw runs of median 1; that of all is a higher quantile of those that are no outliers."""
    middle = CV * stats.norm.ppf(0.5 / (1 - OUTLIERS))
    return rng.lognormal(-middle, CV, shape) * np.where(rng.random(shape) < OUTLIERS, TIMES, 1)


NOISES: dict[str, Draw] = {
    "normal, cv 0.1": lambda rng, shape: rng.normal(1, 0.1, shape),
    "lognormal, sigma 0.3": lambda rng, shape: rng.lognormal(0, CV, shape),
    "lognormal, sigma 1": lambda rng, shape: rng.lognormal(0, 1, shape),
    "a fifth 5 times as large": outliers,
}
KNEES: dict[str, tuple[float, float]] = {
    "smooth": (0.05, 150),
    "medium": (0.3, 60),
    "steep": (0.3, 30),
}
"""Logistic: PDR at the end and width in cps; they pass the limit at `KNEE_CPS`."""


def show_runs(noise: str) -> None:
    rng = np.random.default_rng(SEED)
    mean = NOISES[noise](rng, (1_000_000,)).mean()
    for n in RUNS:
        values = NOISES[noise](rng, (DRAWS, n))
        average, half, _ = statistics.mean_intervals(values)
        typical = statistics.typical_intervals(values)
        of_mean = np.mean(np.abs(average - mean) <= half)
        of_median = np.mean((typical.low <= 1) & (typical.high >= 1))
        wider = np.median(typical.high - typical.low) / np.median(2 * half)
        print(
            f"  {noise}, {n} runs: t of the mean {100 * of_mean:.0f} %, "
            f"typical run {100 * of_median:.0f} %, {wider:.2f} times as wide",
            flush=True,
        )


def show_crossing(knee: str, noise: str) -> None:
    rng = np.random.default_rng(SEED)
    end, width = KNEES[knee]
    foot = width * np.log(end / PDR_LIMIT - 1)
    for n in CROSSING_RUNS:
        held, numbers, wide = [], [], []
        for draw, shift in enumerate(rng.uniform(-100, 100, CROSSING_DRAWS)):
            true = end / (1 + np.exp((KNEE_CPS + shift + foot - LOADS) / width))
            pdr = np.minimum(true[:, None] * NOISES[noise](rng, (len(LOADS), n)), 1)
            found = statistics.crossing(LOADS, pdr, resamples=CROSSING_RESAMPLES, seed=draw)
            interval = found.interval
            held.append(interval.low <= KNEE_CPS + shift <= interval.high)
            numbers.append(interval.resolved)
            wide.append(interval.high - interval.low)
        print(
            f"  {knee} ({width:g} cps), {noise}, {n} runs: {100 * np.mean(held):.0f} %, "
            f"{np.median(wide):.0f} cps wide, a number in {100 * np.mean(numbers):.0f} %",
            flush=True,
        )


def main() -> None:
    print(f"95 % intervals of runs cover, in {DRAWS} draws:")
    for noise in NOISES:
        show_runs(noise)
    print(f"95 % intervals of a crossing cover, in {CROSSING_DRAWS} draws:")
    for knee in KNEES:
        for noise in list(NOISES)[1:]:
            show_crossing(knee, noise)


if __name__ == "__main__":
    main()
