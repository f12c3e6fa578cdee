"""Families of comparisons that a reader sees together, and the correction for the number of comparisons.

One of twenty differences exceeds its 95 % limit by chance. The intervals of a family are simultaneous (Bonferroni).
P-values are adjusted by Bonferroni within runs, like the intervals, and by Holm between separate runs.
docs/methodology/statistics.md gives the reasons.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from sipsched.analysis.crossover import Arms, Effect, Scale, Tables, Weights, effect
from sipsched.analysis.intervals import Interval, Values, simultaneous_level, typical_interval
from sipsched.analysis.pairs import Comparison, compare, holm

SIGNIFICANT = 0.05
"""Limit of a p-value after the adjustment for the family.

A difference is significant if its p-value is at most this limit.
"""

Pair = tuple[Values, Values]
"""Runs of the reference and of the other side, shape (rep,) each, paired by arrivals; NaN for no run."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Cell:
    """One comparison of a family: two modes, or two other sides.

    Attributes
    ----------
    reference, other
        Means over runs, each with its own 95 % interval.
    comparison
        Difference over pairs of runs with the same arrivals, at the simultaneous level of the family.
    p_value
        P-value of the paired t test, adjusted by Holm over the family; NaN with fewer than two pairs.
    """

    reference: Interval
    other: Interval
    comparison: Comparison
    p_value: float

    @property
    def stands_out(self) -> bool:
        """True if the difference is significant."""
        return self.p_value <= SIGNIFICANT


@dataclass(frozen=True)
class Family(Generic[Key]):
    """Comparisons with simultaneous intervals, because a reader sees them together.

    Attributes
    ----------
    cells
        Comparisons by key, in the order of the request.
    tests
        Number of cells with two pairs or more.
    level
        Level of each interval.
    """

    cells: Mapping[Key, Cell]
    tests: int
    level: float


def compare_together(pairs: Mapping[Key, Pair]) -> Family[Key]:
    """Compare the two sides of each pair, corrected for the number of pairs.

    Parameters
    ----------
    pairs
        Runs of both sides by key, not negative. A comparison of fewer than two pairs has no interval and no test. The
        correction ignores such a comparison.

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
        key: Cell(
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
    """A requested comparison within runs.

    Attributes
    ----------
    tables
        A table per run, shape (block, arm); NaN for excluded windows.
    reference, other
        Indices of the arms; several if a side has several arms.
    scale
        Scale of the comparison.
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
    """Effects with simultaneous intervals, because a reader sees them together.

    Attributes
    ----------
    effects
        Effects by key, in the order of the request.
    tests
        Number of comparisons with a p-value.
    """

    effects: Mapping[Key, Effect]
    tests: int


def effects_together(asked: Mapping[Key, ArmsToCompare]) -> Effects[Key]:
    """Compute the effect of each comparison, corrected for the number of comparisons.

    The interval and the p-value of an effect have the same Bonferroni correction, so that they never disagree.

    Parameters
    ----------
    asked
        Comparisons by key. The correction ignores a comparison without a p-value, such as a comparison over a single
        block.

    Raises
    ------
    StableError
        A table has another shape or lacks an arm.
    """
    alone = [_effect(question) for question in asked.values()]
    tests = sum(not np.isnan(each.p_value) for each in alone)
    effects = [_effect(question, tests) for question in asked.values()] if tests > 1 else alone
    return Effects(dict(zip(asked, effects, strict=True)), tests)


def _effect(asked: ArmsToCompare, tests: int = 1) -> Effect:
    return effect(asked.tables, asked.reference, asked.other, asked.scale, tests, asked.weights)
