"""Words that the tables and figures of the modes share."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.families import ComparedCell, Family
from sipsched.analysis.intervals import LEVEL
from sipsched.analysis.papers import SHORT
from sipsched.analysis.run_table import provenance
from sipsched.pages.numbers import NO_ENTRY, Number, told
from sipsched.pages.parts import Cell
from sipsched.words import plural

NOT_PRINTED = NO_ENTRY
NOTHING = "No valid run of both modes: nothing to see yet."
NOT_SEEN = "not seen by the probe"
PUBLISHED_MODES = " Published numbers are of the papers' own modes of that name, on CFS."
SERVICE = (
    "E[x] = K_stack + K_sockq^s + K_copy + T_sip + K_snd, the overall service time of the "
    "single-core paper (section III). K_sockq^s, waking the worker and dequeuing, has no timestamp of "
    "its own. It is the mean K_sockq of the messages that arrived at an empty SPS."
)


def study_of(cores: int) -> str:
    """Name the paper with tables for this number of cores."""
    return "singlecore" if cores == 1 else "multicore"


def with_papers(summary: xr.Dataset, *studies: str) -> str:
    """Describe the origin of simulated and of published numbers."""
    here = provenance(summary)
    papers = f"Published: {'; '.join(SHORT[study] for study in studies)}." if studies else ""
    return ". ".join(filter(None, (here.rstrip("."), papers)))


def corrected(found: Family[Any]) -> str:
    """Describe the correction for the number of cells in a family."""
    if not found.tests:
        return "No pair of runs to compare."
    return (
        "Pairs: runs of one load and repetition, which meet the same arrivals. Intervals of "
        f"comparisons hold together at {100 * LEVEL:g} % over {plural(found.tests, 'cell')} "
        f"(each at {100 * found.level:.3g} %, Bonferroni); p: paired t test, after Holm."
    )


def compared(found: ComparedCell, unit: str) -> tuple[Cell, Cell, Cell]:
    """Write a comparison as three cells: both typical runs, and the percentage with its p-value."""
    n = found.comparison.difference.n
    if np.isnan(found.reference.estimate) or np.isnan(found.other.estimate):
        return NO_ENTRY, NO_ENTRY, NOT_SEEN
    return told(found.reference, unit, n), told(found.other, unit, n), lower(found, n)


def lower(found: ComparedCell, n: int) -> Number:
    """Write the percentage by which the other mode is lower, as a cell."""
    return Number(found.comparison.percent_lower, "%", n=n, p_value=found.p_value)


def relative_to(value: float) -> Callable[[float], float]:
    """Return a function that converts a mean to its difference from a value in percent."""
    return lambda mean: 100 * (mean / value - 1)


def identity(*parts: object) -> str:
    """Make the id of an element."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(map(str, parts)))
