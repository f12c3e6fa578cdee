"""What the tables and figures of the modes say alike."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.families import Cell as Compared
from sipsched.analysis.families import Family
from sipsched.analysis.papers import SHORT
from sipsched.analysis.run_table import provenance
from sipsched.analysis.statistics import LEVEL
from sipsched.pages.numbers import NO_ENTRY, Number, told
from sipsched.pages.parts import Cell
from sipsched.words import plural

NOT_PRINTED = NO_ENTRY
NOT_SEEN = "not seen by the probe"
PUBLISHED_MODES = " Published numbers are of the papers' own modes of that name, on CFS."
SERVICE = (
    "E[x] = K_stack + K_sockq^s + K_copy + T_sip + K_snd, the overall service time of the "
    "single-core paper (section III). K_sockq^s, waking the worker and dequeuing, has no stamp of "
    "its own: it is the mean K_sockq of messages that came when every earlier one had left the SPS."
)


def study_of(cores: int) -> str:
    """Name the paper that has tables of this number of cores."""
    return "singlecore" if cores == 1 else "multicore"


def with_papers(summary: xr.Dataset, *studies: str) -> str:
    """Say what the numbers are where nothing was measured, and whose the published ones are."""
    here = provenance(summary)
    papers = f"Published: {'; '.join(SHORT[study] for study in studies)}." if studies else ""
    return ". ".join(filter(None, (here.rstrip("."), papers)))


def corrected(found: Family[Any]) -> str:
    """Say how the cells of a family are corrected for their number."""
    if not found.tests:
        return "No pair of runs to compare."
    return (
        "Pairs: runs of one load and repetition, which meet the same arrivals. Intervals of "
        f"comparisons hold together at {100 * LEVEL:g} % over {plural(found.tests, 'cell')} "
        f"(each at {100 * found.level:.3g} %, Bonferroni); p: paired t test, after Holm."
    )


def compared(found: Compared, unit: str) -> tuple[Cell, Cell, Cell]:
    """Write a comparison as cells: both typical runs, in their unit, and percent lower with its p-value."""
    n = found.comparison.difference.n
    if np.isnan(found.reference.estimate) or np.isnan(found.other.estimate):
        return NO_ENTRY, NO_ENTRY, NOT_SEEN
    return told(found.reference, unit, n), told(found.other, unit, n), lower(found, n)


def lower(found: Compared, n: int) -> Number:
    """Write by how many percent the other is lower, as a cell."""
    return Number(found.comparison.percent_lower, "%", n=n, p_value=found.p_value)


def relative_to(value: float) -> Callable[[float], float]:
    """Turn a mean into how many percent it is more than a value."""
    return lambda mean: 100 * (mean / value - 1)


def identity(*parts: object) -> str:
    """Make an id of an element that CSS can name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(map(str, parts)))
