"""Text that the tables and figures of the modes page share."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.comparison import Case, SutOnCores
from sipsched.analysis.families import ComparedCell, Family
from sipsched.analysis.intervals import LEVEL
from sipsched.analysis.papers import SHORT
from sipsched.analysis.run_table import provenance
from sipsched.pages.numbers import NO_ENTRY, Number, told, trusted
from sipsched.pages.parts import Cell, Folded, Part, Several
from sipsched.pages.tables import RANGES
from sipsched.words import plural

NOT_PRINTED = NO_ENTRY
NOTHING = "There is nothing to show yet, because no load has valid runs of both modes."
NOT_SEEN = "not measured by the probe"
PUBLISHED_MODES = " The published numbers describe the papers' own modes with the same names, on the scheduler CFS."
MEANS_OF_ZERO = (
    "If a value of a run is 0, the table shows and compares means over the runs. A figure of PDR against load always "
    "shows typical runs, so the PDR in a figure can differ from the PDR in the table."
)
SERVICE = (
    "E[x] is the overall service time of the single-core paper (section III): E[x] = K_stack + K_sockq^s + K_copy + "
    "T_sip + K_snd. K_sockq^s is the time to wake the worker and to dequeue the message. The probe cannot measure "
    "K_sockq^s. Instead, this page uses the mean K_sockq of messages that arrived while the SPS held no other "
    "message."
)


def by_system(case: Case, parts: Callable[[SutOnCores], Sequence[Part]], what: str) -> Several:
    """Return parts for each proxy and number of cores.

    If the study has several proxies or numbers of cores, the parts are folded, because they are long. `what` describes
    the folded parts.
    """
    if len(case.systems) == 1:
        return Several(parts(case.systems[0]))
    return Several(
        [
            Folded(f"{sut}, {plural(cores, 'core')}: {what}", parts((sut, cores)))
            for sut, cores in case.systems
        ]
    )


def study_of(cores: int) -> str:
    """Return the key of the paper that has tables for a number of cores: "singlecore" or "multicore"."""
    return "singlecore" if cores == 1 else "multicore"


def with_papers(summary: xr.Dataset, *studies: str) -> str:
    """Return as text the labels that mark the numbers of a figure or table as simulated or as published."""
    here = provenance(summary)
    papers = f"Published: {'; '.join(SHORT[study] for study in studies)}." if studies else ""
    return ". ".join(filter(None, (here.rstrip("."), papers)))


def corrected(family: Family[Any]) -> str:
    """Return sentences on how intervals and p-values are corrected for the number of comparisons."""
    if not family.tests:
        return "No two runs of different modes have the same arrivals, so nothing can be compared."
    pair = "A pair consists of one run in each mode, with the same load and the same arrivals."
    tests = "The p-values are from paired t tests with Holm's correction"
    if not any(trusted(cell.comparison.difference) for cell in family.cells.values()):
        return f"{pair} {tests} for {plural(family.tests, 'comparison')}."
    return (
        f"{pair} Each interval of the {plural(family.tests, 'comparison')} has a level of "
        f"{100 * family.level:.3g}\u00a0% (Bonferroni's correction). With a probability of {100 * LEVEL:g}\u00a0%, "
        f"all these intervals contain their true values. {tests}."
    )


def typical(family: Family[Any]) -> str:
    """Return sentences on the estimate and the interval that a table shows for each mode."""
    shown = [each for cell in family.cells.values() for each in (cell.reference, cell.other)]
    if all(trusted(each) for each in shown if each.known):
        lines = "The values describe typical runs, with 95\u00a0% intervals."
    elif any(map(trusted, shown)):
        lines = f"The values describe typical runs, with 95\u00a0% intervals. {RANGES}"
    else:
        lines = f"The values describe typical runs. {RANGES}"
    return (
        f"{lines} {MEANS_OF_ZERO}" if any(each.least == 0 < each.most for each in shown) else lines
    )


def compared(cell: ComparedCell, unit: str) -> tuple[Cell, Cell, Cell]:
    """Return a comparison as three table cells: the typical value in each mode, and the decrease in percent."""
    n = cell.comparison.difference.n
    if np.isnan(cell.reference.estimate) or np.isnan(cell.other.estimate):
        return NO_ENTRY, NO_ENTRY, NOT_SEEN
    return told(cell.reference, unit, n), told(cell.other, unit, n), lower(cell, n)


def lower(cell: ComparedCell, n: int) -> Number:
    """Return the cell with the percentage by which a quantity is lower in the other mode than in the reference mode."""
    return Number(cell.comparison.percent_lower, "%", n=n, p_value=cell.p_value)


def relative_to(value: float) -> Callable[[float], float]:
    """Return a function that converts a mean to the percentage by which it differs from `value`."""
    return lambda mean: 100 * (mean / value - 1)


def identity(*parts: object) -> str:
    """Make the HTML id of an element from the given parts."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(map(str, parts)))
