"""Comparisons that are read together, so corrected together: the one place where that is done.

Who looks at twenty differences finds one by chance. Intervals of a family hold together (Bonferroni),
and a p-value is adjusted for the family's other tests (Holm); docs/methodology.md says why.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from sipsched.analysis.crossover import Effect, Scale, Tables, effect
from sipsched.analysis.statistics import (
    LEVEL,
    Comparison,
    Interval,
    Values,
    compare,
    holm,
    simultaneous_level,
    typical_interval,
)

SIGNIFICANT = 0.05
"""A p-value, adjusted for the family, at or under which a difference is more than chance."""

Pair = tuple[Values, Values]
"""Reference and other, shape (rep,) each, in the same order of arrivals; NaN where there is no run."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Cell:
    """One quantity of two modes, or of two of anything, as one of its family.

    Attributes
    ----------
    reference, other
        Means over runs, each with its own interval at `statistics.LEVEL`.
    comparison
        Over pairs of runs with the same arrivals, at the simultaneous level of its family.
    p_value
        Of the paired t test, after Holm over the family; NaN below two pairs.
    """

    reference: Interval
    other: Interval
    comparison: Comparison
    p_value: float

    @property
    def stands_out(self) -> bool:
        """Whether the difference is more than chance."""
        return self.p_value <= SIGNIFICANT


@dataclass(frozen=True)
class Family(Generic[Key]):
    """Comparisons that are read together, so that all of them hold together.

    Attributes
    ----------
    cells
        What was compared, in the order asked for, to its comparison.
    tests
        Cells with two pairs or more.
    level
        Of each interval.
    """

    cells: Mapping[Key, Cell]
    tests: int
    level: float


def compare_together(pairs: Mapping[Key, Pair]) -> Family[Key]:
    """Compare the two of each pair, corrected for the number of pairs.

    Parameters
    ----------
    pairs
        What is compared to its runs, which are not negative. Fewer than two pairs of runs make no
        interval and no test, and do not count as one.

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
class Asked:
    """A crossover comparison that is asked for.

    Attributes
    ----------
    tables
        A table a run, shape (block, arm); NaN where a window is left out.
    reference, other
        Indices of the arms.
    scale
        How the two are compared.
    """

    tables: Tables
    reference: int
    other: int
    scale: Scale = Scale.RATIO


@dataclass(frozen=True)
class Judged:
    """An effect as one of its family.

    Attributes
    ----------
    effect
        Its intervals at the simultaneous level of the family, so its `detectable`; its own p-values
        are not adjusted.
    p_value, p_randomisation
        After Holm over the family; NaN where there is no test.
    """

    effect: Effect
    p_value: float
    p_randomisation: float

    @property
    def stands_out(self) -> bool:
        """Whether the effect is more than chance."""
        return self.p_value <= SIGNIFICANT


@dataclass(frozen=True)
class Effects(Generic[Key]):
    """Effects that are read together, so that all of them hold together.

    Attributes
    ----------
    effects
        What was asked, in the order of asking, to its effect.
    tests
        Those that have a p-value.
    level
        Of each interval.
    """

    effects: Mapping[Key, Judged]
    tests: int
    level: float


def effects_together(asked: Mapping[Key, Asked]) -> Effects[Key]:
    """Tell the effects of each comparison, corrected for the number of comparisons.

    Parameters
    ----------
    asked
        What is compared to its windows. What has no p-value, such as one block, does not count.

    Raises
    ------
    StableError
        A table has another shape, or no such arm.
    """
    alone = [_effect(each) for each in asked.values()]
    tests = sum(not np.isnan(each.p_value) for each in alone)
    level = simultaneous_level(tests)
    found = [_effect(each, level) for each in asked.values()] if tests > 1 else alone
    adjusted = zip(
        holm([each.p_value for each in found]),
        holm([each.p_randomisation for each in found]),
        strict=True,
    )
    effects = {
        key: Judged(each, float(p_value), float(p_randomisation))
        for key, each, (p_value, p_randomisation) in zip(asked, found, adjusted, strict=True)
    }
    return Effects(effects, tests, level)


def _effect(asked: Asked, level: float = LEVEL) -> Effect:
    return effect(asked.tables, asked.reference, asked.other, asked.scale, level)
