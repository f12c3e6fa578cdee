"""Test how many 95 % intervals of means and of capacities contain the true value.

The benchmark prints the tables of docs/methodology/statistics.md. The simulated runs have small noise, lognormal noise,
or noise that multiplies the result of every fifth run by five. The first table compares two intervals. The table shows
in how many samples Student's t interval contains the mean, and in how many samples the interval of a typical run
contains the median. A further column is the ratio of the widths (medians over samples). The second table is about the
load at which drop curves pass the limit. The curves are smooth or steep, at random positions among loads 200 cps apart.
The table shows how many intervals contain the true load, and how many results are a number instead of a range between
two loads. The benchmark measures no real machine, prints the same numbers each time, and takes a minute of CPU time.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

from sipsched.analysis import crossing_load, intervals
from sipsched.analysis.crossing_load import PDR_LIMIT

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
    """Sample values with median 1, of which one in five is an outlier: five times as large."""
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
"""Logistic curves of the drop rate, by their final drop rate and their width in cps.

Each curve passes `PDR_LIMIT` at `KNEE_CPS`.
"""


def show_runs(noise: str) -> None:
    rng = np.random.default_rng(SEED)
    mean = NOISES[noise](rng, (1_000_000,)).mean()
    for n in RUNS:
        values = NOISES[noise](rng, (DRAWS, n))
        average, half, _ = intervals.mean_intervals(values)
        typical = intervals.typical_intervals(values)
        of_mean = np.mean(np.abs(average - mean) <= half)
        of_median = np.mean((typical.low <= 1) & (typical.high >= 1))
        wider = np.median(typical.high - typical.low) / np.median(2 * half)
        print(
            f"  {noise}, {n} runs: t contains the mean {100 * of_mean:.0f} %, "
            f"the typical run contains the median {100 * of_median:.0f} %, {wider:.2f} times as wide",
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
            crossing = crossing_load.crossing(LOADS, pdr, resamples=CROSSING_RESAMPLES, seed=draw)
            interval = crossing.interval
            held.append(interval.low <= KNEE_CPS + shift <= interval.high)
            numbers.append(interval.resolved)
            wide.append(interval.high - interval.low)
        print(
            f"  {knee} ({width:g} cps), {noise}, {n} runs: {100 * np.mean(held):.0f} %, "
            f"{np.median(wide):.0f} cps wide, a number instead of a range in {100 * np.mean(numbers):.0f} %",
            flush=True,
        )


def main() -> None:
    print(f"95 % intervals of runs, {DRAWS} samples each:")
    for noise in NOISES:
        show_runs(noise)
    print(f"95 % intervals of a crossing that contain it, {CROSSING_DRAWS} samples each:")
    for knee in KNEES:
        for noise in list(NOISES)[1:]:
            show_crossing(knee, noise)


if __name__ == "__main__":
    main()
