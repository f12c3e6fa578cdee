"""How precisely a study knows what it was to be repeated for."""

import json

import numpy as np
import xarray as xr

from sipsched.analysis.precision import Known, level_of_a_look, look
from sipsched.analysis.run_table import provenance
from sipsched.pages.parts import Table
from sipsched.plan.config import Precision
from sipsched.words import number, plural

ATTRIBUTE = "precision"
"""Of a study's summary: what its runs were to reach, as JSON."""


def table(summary: xr.Dataset) -> Table | None:
    """Show what the repetitions of a study reached; None where their number was fixed."""
    if ATTRIBUTE not in summary.attrs:
        return None
    precision = Precision(**json.loads(summary.attrs[ATTRIBUTE]))
    found = look(summary, precision)
    reached = sum(known.half_width <= precision.relative for known in found)
    looks = len(precision.looks)
    return Table(
        identity="table-precision",
        header=(
            "SUT",
            "mode",
            "cores",
            "threads",
            "cps",
            precision.of,
            "half-width (%)",
            "reached",
        ),
        rows=tuple(_row(known, precision) for known in found),
        none="nothing was planned",
        caption=f"Runs were added until the interval of {precision.of} was within {100 * precision.relative:g} % of "
        f"it on either side, {precision.at_least} to {plural(precision.at_most, 'run')} each; reached in {reached} of "
        f"{len(found)}. It is looked at {plural(looks, 'time')} at most, and each look's interval has "
        f"{100 * level_of_a_look(precision):.3g} %, so that the one stopped at holds at 95 %. Other intervals "
        "of this page are made as if the number of runs had been fixed.",
        provenance=provenance(summary),
    )


def _row(known: Known, precision: Precision) -> tuple[str, ...]:
    wide = known.half_width
    if wide <= precision.relative:
        word = "yes"
    elif known.interval.n >= precision.at_most:
        word = f"no, with the {precision.at_most} runs that there may be"
    else:
        word = "not yet"
    return (
        *(known.sut, known.mode, *map(str, known.group)),
        known.interval.text("µs"),
        number(100 * wide) if np.isfinite(wide) else "no interval",
        word,
    )
