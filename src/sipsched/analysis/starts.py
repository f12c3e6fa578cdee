"""The effect of a setting that needs a restart of the proxy. Each start of the proxy counts as one observation.

Two instances of the proxy with equal settings differ by chance, for example in the addresses of their memory. The
blocks of a run cannot show this difference, because all blocks use the same instances. So an interval over blocks holds
only for these instances. The interval of this module holds for every start with the setting.
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
    """Return the effect of a setting, from runs that start the proxy several times with each of two settings.

    The value of a start is its mean over the complete blocks of its run. The effect in a run is the difference between
    the mean of the starts with each setting. The result is the mean effect over the runs. The standard error comes from
    the differences between starts with equal settings in the same run. So the standard error contains both the chance
    differences of starts and the scatter of windows. The interval is Student's t with the number of starts minus 2
    degrees of freedom per run.

    Parameters
    ----------
    tables
        One table per run, shape (block, arm); NaN for excluded windows.
    reference, other
        Columns of the tables (arms) with the starts of each setting. Each arm is one start.
    scale
        Whether the settings are compared by their ratio or by their difference.
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
