"""The effect of a setting that needs a restart, with the starts of the proxy as the replicates.

An instance of the proxy differs from another instance with equal settings by chance, for example in the places of its
memory. The blocks of a run cannot show this difference, because each block uses the same instances. So an interval over
blocks describes these instances. The interval of this module describes the setting.
"""

from collections.abc import Sequence

import numpy as np

from sipsched.analysis.blocks import Student
from sipsched.analysis.crossover import Scale, Tables
from sipsched.analysis.intervals import LEVEL, NOT_MEASURED, TOO_FEW, Interval, Values


def effect_of_starts(
    tables: Tables,
    reference: Sequence[int],
    other: Sequence[int],
    scale: Scale = Scale.RATIO,
    weights: Sequence[Values] | None = None,
) -> Interval:
    """Compare two settings of the proxy, with each of which the proxy was started several times in every run.

    The value of a start is its mean over the complete blocks of its run. The effect is the difference of the two means
    of starts, averaged over the runs. The standard error comes from the differences between starts with equal settings
    in the same run, so it contains both the luck of a start and the scatter of windows. The interval is Student's t.
    Each run contributes the number of its starts minus 2 to the degrees of freedom.

    Parameters
    ----------
    tables
        One table per run, shape (block, arm); NaN for excluded windows.
    reference, other
        Indices of the arms of both settings. Each arm is one start.
    scale
        Whether the settings are compared by ratio or by difference.
    weights
        Weights of the blocks of each table; None for equal weights.

    Returns
    -------
    Interval
        The logarithm of a ratio, or a difference, with a 95 % interval. `n` is the number of starts.
    """
    effects: list[float] = []
    squares, variances, df, n = 0.0, 0.0, 0, 0
    for number, table in enumerate(tables):
        values = np.asarray(table, np.float64)[:, [*reference, *other]]
        if scale is Scale.RATIO:
            values = np.log(np.where(values > 0, values, np.nan))
        complete = np.isfinite(values).all(axis=1)
        if not complete.any():
            continue
        weight = None if weights is None else weights[number][complete]
        of_starts = np.average(values[complete], axis=0, weights=weight)
        first, second = of_starts[: len(reference)], of_starts[len(reference) :]
        effects.append(float(second.mean() - first.mean()))
        squares += sum(float(((side - side.mean()) ** 2).sum()) for side in (first, second))
        variances += 1 / len(reference) + 1 / len(other)
        df += of_starts.size - 2
        n += of_starts.size
    if not effects:
        return Interval.without(np.nan, 0, why=NOT_MEASURED)
    estimate = float(np.mean(effects))
    if df < 1:
        return Interval.without(estimate, n, why=TOO_FEW)
    error = float(np.sqrt(squares / df * variances)) / len(effects)
    return Interval(
        estimate, *Student(estimate, error, df).ends(LEVEL), n, LEVEL, "Student's t of starts"
    )
