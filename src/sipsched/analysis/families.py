"""Families of comparisons (all comparisons on one page), with a correction for the number of comparisons.

By chance, one of twenty differences exceeds its 95 % limit. So the intervals of a family are widened until all of them
hold simultaneously (Bonferroni). P-values of comparisons within the same run have the same Bonferroni correction.
P-values of comparisons between separate runs are adjusted by Holm's method. docs/methodology/statistics.md explains
these corrections.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from sipsched.analysis.crossover import Arms, Effect, Scale, Tables, Weights, effect
from sipsched.analysis.intervals import Interval, Values, simultaneous_level, typical_interval
from sipsched.analysis.pairs import Comparison, compare, holm

SIGNIFICANT = 0.05
"""Largest p-value of a significant comparison, after the adjustment for the number of comparisons.

A difference is significant if its p-value is at most this limit.
"""

Pair = tuple[Values, Values]
"""Values of runs in the reference mode and of runs in another mode, shape (rep,) each.

Runs with equal indices have the same arrivals. A missing run has the value NaN.
"""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class ComparedCell:
    """The result of one comparison on a page, such as the comparison of two modes at one load.

    Attributes
    ----------
    reference, other
        Values of a typical run in both modes (`typical_interval`), each with its own 95 % interval.
    comparison
        Difference and ratio over pairs of runs with the same arrivals, with simultaneous intervals.
    p_value
        P-value of the paired t test, adjusted by Holm's method over the family; NaN for fewer than two pairs.
    """

    reference: Interval
    other: Interval
    comparison: Comparison
    p_value: float

    @property
    def stands_out(self) -> bool:
        """True if the difference between the two modes is statistically significant."""
        return self.p_value <= SIGNIFICANT


@dataclass(frozen=True)
class Family(Generic[Key]):
    """The comparisons that one page shows, with confidence intervals that hold simultaneously.

    Attributes
    ----------
    cells
        Comparisons by key, in the order of the arguments.
    tests
        Number of comparisons with two or more pairs.
    level
        Confidence level of each interval.
    """

    cells: Mapping[Key, ComparedCell]
    tests: int
    level: float


def compare_together(pairs: Mapping[Key, Pair]) -> Family[Key]:
    """Compare two modes for each key of `pairs`, and correct intervals and p-values for the number of comparisons.

    Parameters
    ----------
    pairs
        Values of both modes by key, 0 or more. A comparison of fewer than two pairs has no interval and no test. The
        correction does not count such a comparison.

    Raises
    ------
    StableError
        A value is negative, or the shapes of a pair differ.
    """
    counts = (np.count_nonzero(~np.isnan(first + second)) for first, second in pairs.values())
    tests = sum(int(count) > 1 for count in counts)
    level = simultaneous_level(tests)
    comparisons = [compare(first, second, level) for first, second in pairs.values()]
    adjusted = holm([comparison.p_value for comparison in comparisons])
    cells = {
        key: ComparedCell(
            typical_interval(first),
            typical_interval(second),
            comparison,
            float(p_value),
        )
        for (key, (first, second)), comparison, p_value in zip(
            pairs.items(), comparisons, adjusted, strict=True
        )
    }
    return Family(cells, tests, level)


@dataclass(frozen=True)
class ArmsToCompare:
    """A comparison of two modes within the same runs, as input of `effects_together`.

    Attributes
    ----------
    tables
        One table per run, shape (block, arm); NaN for excluded windows.
    reference, other
        Columns of the tables (arms) with the windows of each mode. A mode can have several arms.
    scale
        Whether modes are compared by ratio or by difference.
    weights
        Weights of the blocks of each table; None for equal weights.
    """

    tables: Tables
    reference: Arms
    other: Arms
    scale: Scale = Scale.RATIO
    weights: Weights = None


@dataclass(frozen=True)
class Effects(Generic[Key]):
    """The effects of modes that one page shows, with confidence intervals that hold simultaneously.

    Attributes
    ----------
    effects
        Effects by key, in the order of the arguments.
    tests
        Number of comparisons with a p-value.
    """

    effects: Mapping[Key, Effect]
    tests: int


def effects_together(asked: Mapping[Key, ArmsToCompare]) -> Effects[Key]:
    """Compute the effects of modes in several comparisons, and correct for the number of comparisons.

    The interval and the p-value of an effect have the same Bonferroni correction. Otherwise, the interval could exclude
    "no effect" although the p-value is not significant.

    Parameters
    ----------
    asked
        Comparisons by key. The correction does not count a comparison without a p-value, such as a comparison over one
        block.

    Raises
    ------
    StableError
        A table has another shape, or lacks an arm.
    """
    alone = [_effect(question) for question in asked.values()]
    tests = sum(not np.isnan(effect.p_value) for effect in alone)
    effects = [_effect(question, tests) for question in asked.values()] if tests > 1 else alone
    return Effects(dict(zip(asked, effects, strict=True)), tests)


def _effect(asked: ArmsToCompare, tests: int = 1) -> Effect:
    return effect(asked.tables, asked.reference, asked.other, asked.scale, tests, asked.weights)
