"""Count the runs that a study needs for narrow intervals, and test how many of its intervals contain the median.

The benchmark prints the table of docs/methodology/precision.md. A study analyses its runs repeatedly, and stops when
the interval is as narrow as its setting `precision` demands. Each interim analysis is a look. The benchmark prints the
mean number of runs, the share of samples that reached the precision, and the coverage of the final interval, for
several noises of runs and several precisions. The intervals of studies ("corrected") have the confidence level
1 - 0.05 / looks. The benchmark compares corrected intervals with intervals that have the level 95 % at each look
("uncorrected"). Corrected intervals contain the median in at least 95 % of samples, uncorrected intervals in fewer
samples. The benchmark measures no real machine, prints the same numbers each time, and takes two minutes of CPU time.
"""

import numpy as np
import numpy.typing as npt
from interval_coverage import NOISES, SEED

from sipsched.analysis.intervals import LEVEL, typical_intervals
from sipsched.analysis.precision import level_of_a_look
from sipsched.plan.loads import Precision

DRAWS = 2000
PRECISIONS = (0.05, 0.1, 0.2)
AT_LEAST, AT_MOST = 5, 30

Values = npt.NDArray[np.float64]


def stopped(values: Values, precision: Precision, level: float) -> tuple[Values, Values, Values]:
    """Add runs to each sample until the interval is narrow enough or the largest number of runs is reached.

    Returns
    -------
    runs, reached, holds
        Shape (sample,): the number of runs, whether the interval is narrow enough, and whether the interval contains 1,
        the true median.
    """
    runs = np.zeros(len(values))
    reached, holds = np.zeros(len(values), bool), np.zeros(len(values), bool)
    open_still = np.ones(len(values), bool)
    for n in precision.looks:
        intervals = typical_intervals(values[open_still, :n], level)
        narrow = (intervals.high - intervals.low) / 2 / intervals.estimate <= precision.relative
        ends = narrow | (n == precision.at_most)
        at = np.flatnonzero(open_still)[ends]
        runs[at], reached[at] = n, narrow[ends]
        holds[at] = ((intervals.low <= 1) & (intervals.high >= 1))[ends]
        open_still[at] = False
    return runs, reached, holds


def main() -> None:
    print(f"analyses after {Precision('', 1, AT_LEAST, AT_MOST).looks} runs, {DRAWS} samples:")
    for name, draw in NOISES.items():
        values = draw(np.random.default_rng(SEED), (DRAWS, AT_MOST))
        for relative in PRECISIONS:
            precision = Precision("k_rcv_mean", relative, AT_LEAST, AT_MOST)
            parts = []
            for word, level in (("corrected", level_of_a_look(precision)), ("uncorrected", LEVEL)):
                runs, reached, holds = stopped(values, precision, level)
                parts.append(
                    f"{word}: {runs.mean():.0f} runs, reached {100 * reached.mean():.0f} %, "
                    f"contains the median {100 * holds.mean():.1f} %"
                )
            print(f"  {name}, within {100 * relative:g} %: {'; '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
