"""What the tables and figures of the modes say alike."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.families import Cell, Family
from sipsched.analysis.papers import SHORT
from sipsched.analysis.run_table import provenance
from sipsched.analysis.statistics import LEVEL
from sipsched.pages.numbers import p_text, plain, told
from sipsched.words import plural

NO_ENTRY = "–"
NOT_PRINTED = "not printed"
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
    """Say where the numbers come from, the published ones too."""
    here = provenance(summary)
    papers = f" Published: {'; '.join(SHORT[study] for study in studies)}." if studies else ""
    return f"{here}{'' if here.endswith('.') else '.'}{papers}"


def corrected(found: Family[Any]) -> str:
    """Say how the cells of a family are corrected for their number."""
    if not found.tests:
        return "No pair of runs to compare."
    return (
        "Pairs: runs of one load and repetition, which meet the same arrivals. Intervals of "
        f"comparisons hold together at {100 * LEVEL:g} % over {plural(found.tests, 'cell')} "
        f"(each at {100 * found.level:.3g} %, Bonferroni); p: paired t test, after Holm."
    )


def compared(cell: Cell) -> tuple[str, str, str, str, str]:
    """Write a comparison as cells: pairs, both means, percent lower, p-value."""
    n = cell.comparison.difference.n
    if np.isnan(cell.reference.estimate) or np.isnan(cell.other.estimate):
        return str(n), NO_ENTRY, NO_ENTRY, NOT_SEEN, NO_ENTRY
    return (
        str(n),
        told(cell.reference, n),
        told(cell.other, n),
        told(cell.comparison.percent_lower, n, plain),
        p_text(cell.p_value) or NO_ENTRY,
    )


def relative_to(value: float) -> Callable[[float], float]:
    """Turn a mean into how many percent it is more than a value."""
    return lambda mean: 100 * (mean / value - 1)


def identity(*parts: object) -> str:
    """Make an id of an element that CSS can name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(map(str, parts)))
