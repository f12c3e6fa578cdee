"""Fit the model of the papers' proxy and machine, and print what goes into config/models/opensips-papers.yaml.

    python workflow/fit_papers.py

Nothing is written: a number of the model's file changes when a person puts it there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from sipsched.analysis.papers import load_points
from sipsched.analysis.papers_fit import FREE, METRICS, fit, fitted_half, log_ratios, loss, numbers
from sipsched.errors import StableError
from sipsched.measure.simulated_means import Predictor
from sipsched.plan.config import load_config
from sipsched.plan.simulated import CASE
from sipsched.testbed.inventory import load_testbed

CALLS = 10_000
PUBLISHED = fitted_half(load_points())
PREDICTOR = Predictor(load_config(), load_testbed("simulated-papers"), "opensips-udp", CALLS)


def predict(change: Mapping[str, Any], calls: int = CALLS, rep: int = 1) -> pd.DataFrame | None:
    """Simulate the fitted half with other numbers; None where a run does not end."""
    predictor = replace(PREDICTOR, change=change, calls=calls)
    try:
        return predictor.predict(PUBLISHED.assign(rep=rep, without="")[CASE])
    except StableError:
        return None


def mean_square(values: Sequence[float]) -> float:
    """Give the loss of values of `FREE`, with the arrivals of the fit; NaN where a run does not end."""
    found = predict(numbers(values))
    return float("nan") if found is None else loss(found, PUBLISHED)


if __name__ == "__main__":
    found = fit(PUBLISHED, predict)
    values = found.values.tolist()
    print(f"mean square {found.loss:.4f} of {found.points} log ratios, {len(FREE)} free numbers")
    print(f"{found.evaluations} evaluations of {CALLS} calls a column")
    for which, (free, value) in enumerate(zip(FREE, values, strict=True)):
        half, twice = (
            mean_square([*values[:which], by * value, *values[which + 1 :]]) for by in (0.5, 2.0)
        )
        print(
            f"{free.name}: {value:.4g}; mean square with half of it {half:.3f}, twice {twice:.3f}"
        )
    other = predict(numbers(values), 20_000, 2)
    if other is not None:
        off = (log_ratios(other, PUBLISHED) ** 2).mean() ** 0.5
        told = ", ".join(f"{name} {off[name]:.3f}" for name in METRICS)
        print(f"other arrivals, 20,000 calls a column, root mean square: {told}")
