"""What looking until an interval is narrow enough costs, paid for and not: the table of docs/methodology.md.

Shows, for runs that differ in several ways and for several precisions: how many runs were made (mean), how often the
precision was reached, and how often the interval that was stopped at holds the median of all runs: as `precision` of a
study makes it, each look's at 1 - 0.05 / looks, and as if the number of runs had been fixed, each look's at 95 %.
How to read it: what is paid for holds in 95 % or more; what is not, in less. Nothing is measured: the numbers are
the same each time. It takes two minutes of CPU.
"""

import numpy as np
import numpy.typing as npt
from interval_coverage import NOISES, SEED

from sipsched.analysis.precision import level_of_a_look
from sipsched.analysis.statistics import LEVEL, typical_intervals
from sipsched.plan.config import Precision

DRAWS = 2000
PRECISIONS = (0.05, 0.1, 0.2)
AT_LEAST, AT_MOST = 5, 30

Values = npt.NDArray[np.float64]


def stopped(values: Values, precision: Precision, level: float) -> tuple[Values, Values, Values]:
    """Look at draws until each is narrow.

    Returns
    -------
    runs, reached, holds
        Shape (draw,): how many runs there were, whether that was for their width, whether the interval holds 1.
    """
    runs = np.zeros(len(values))
    reached, holds = np.zeros(len(values), bool), np.zeros(len(values), bool)
    open_still = np.ones(len(values), bool)
    for n in precision.looks:
        found = typical_intervals(values[open_still, :n], level)
        narrow = (found.high - found.low) / 2 / found.estimate <= precision.relative
        ends = narrow | (n == precision.at_most)
        at = np.flatnonzero(open_still)[ends]
        runs[at], reached[at] = n, narrow[ends]
        holds[at] = ((found.low <= 1) & (found.high >= 1))[ends]
        open_still[at] = False
    return runs, reached, holds


def main() -> None:
    print(f"looking at {Precision('', 1, AT_LEAST, AT_MOST).looks} runs, {DRAWS} draws:")
    for name, draw in NOISES.items():
        values = draw(np.random.default_rng(SEED), (DRAWS, AT_MOST))
        for relative in PRECISIONS:
            precision = Precision("k_rcv_mean", relative, AT_LEAST, AT_MOST)
            parts = []
            for word, level in (("paid for", level_of_a_look(precision)), ("not", LEVEL)):
                runs, reached, holds = stopped(values, precision, level)
                parts.append(
                    f"{word}: {runs.mean():.0f} runs, reached {100 * reached.mean():.0f} %, "
                    f"holds {100 * holds.mean():.1f} %"
                )
            print(f"  {name}, within {100 * relative:g} %: {'; '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
