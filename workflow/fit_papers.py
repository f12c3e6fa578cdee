"""Fit the model of the papers' proxy and machine, and print what goes into config/models/opensips-papers.yaml.

    python workflow/fit_papers.py

Nothing is written: a number of the model's file changes when a person puts it there.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from sipsched.analysis.papers import load_points
from sipsched.analysis.papers_fit import (
    FREE,
    METRICS,
    POLISHED,
    fit,
    fitted_half,
    log_ratios,
    loss,
    numbers,
)
from sipsched.errors import StableError
from sipsched.measure.simulated_means import Predictor
from sipsched.plan.config import load_config
from sipsched.plan.simulated import CELL, load_model
from sipsched.testbed.inventory import load_testbed

CALLS = 10_000
FIRST_REP, OTHER_REP = 1001, 2001
"""Repetitions from which the arrivals are; the page has those from 1."""
PUBLISHED = fitted_half(load_points())
MODEL = load_model("opensips-papers").numbers
PREDICTOR = Predictor(load_config(), load_testbed("simulated-papers"), "opensips-udp", CALLS)


def predict(
    change: Mapping[str, Any], arrivals: int, first: int = FIRST_REP
) -> pd.DataFrame | None:
    """Simulate the fitted half with other numbers, means over arrivals; None where a run does not end."""
    predictor = replace(PREDICTOR, change=change)
    columns = PUBLISHED[[*CELL, "cps"]].assign(column=PUBLISHED.index, without="")
    cases = pd.concat([columns.assign(rep=rep) for rep in range(first, first + arrivals)])
    try:
        found = predictor.predict(cases.reset_index(drop=True))
    except StableError:
        return None
    return found.groupby("column")[list(METRICS)].mean()


def mean_square(change: Mapping[str, Any]) -> float:
    """Give the loss of numbers, with the arrivals of the fit; NaN where a run does not end."""
    found = predict(change, POLISHED)
    return float("nan") if found is None else loss(found, PUBLISHED)


if __name__ == "__main__":
    began = time.monotonic()
    found = fit(PUBLISHED, MODEL, predict)
    values = found.values.tolist()
    print(f"mean square {found.loss:.4f} of {found.points} log ratios, {len(FREE)} free numbers")
    times = os.times()
    cpu_s = times.children_user + times.children_system + times.user + times.system
    print(
        f"{found.columns} columns of {CALLS} calls simulated, "
        f"{time.monotonic() - began:.0f} s, {cpu_s:.0f} CPU s",
        flush=True,
    )
    for which, (free, value) in enumerate(zip(FREE, values, strict=True)):
        half, twice = (
            mean_square(numbers([*values[:which], by * value, *values[which + 1 :]], MODEL))
            for by in (0.5, 2.0)
        )
        print(
            f"{free.name}: {value:.4g}; mean square with half of it {half:.3f}, twice {twice:.3f}",
            flush=True,
        )
    other = predict(numbers(values, MODEL), POLISHED, OTHER_REP)
    if other is not None:
        off = (log_ratios(other, PUBLISHED) ** 2).mean() ** 0.5
        told = ", ".join(f"{name} {off[name]:.3f}" for name in METRICS)
        print(f"other arrivals, root mean square: {told}")
