"""Fit a model of the proxy and machine of the two papers, and print the parameters for opensips-papers.yaml.

    python workflow/fit_papers.py           # stalls interrupt the proxy, as in config/models/opensips-papers.yaml
    python workflow/fit_papers.py bursts    # on each CPU, bursts of another program interrupt the proxy instead
    python workflow/fit_papers.py cold      # stalls, and a cost of cold caches that grows with the number of workers
    python workflow/fit_papers.py log       # stalls, and a syslogd on another CPU that limits how fast workers log

    python workflow/fit_papers.py bursts --values 35320,16250,2118,0.102,3059,49.9e6,4.654e6,50770,68.79

With --values, the program skips the search, and only prints how these values of the parameters (in the order of
`sipsched.analysis.papers_fit.VARIANTS`) predict the papers' other numbers and the effects of enhanced mode. During the
search, the program prints better parameters as soon as it finds them. The program does not change the file
config/models/opensips-papers.yaml.
"""

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from sipsched.analysis.papers import load_comparison, load_points
from sipsched.analysis.papers_fit import (
    FAILED,
    METRICS,
    POLISHED,
    VARIANTS,
    fit,
    fitted_half,
    log_ratios,
    loss,
    numbers,
)
from sipsched.analysis.papers_predicted import (
    MODES,
    SCALED,
    TABLES,
    against_published,
    effects,
    errors,
    wanted,
)
from sipsched.errors import StableError
from sipsched.measure.simulated_means import GridPredictor
from sipsched.plan.config import load_config
from sipsched.plan.simulated import CELL, load_model
from sipsched.testbed.inventory import load_testbed

CALLS = 10_000
FIRST_REP, OTHER_REP = 1001, 2001
"""First seeds of random call arrivals for two sets of simulations. The seeds of the pages begin at 1."""
PUBLISHED = fitted_half(load_points())
MODEL = load_model("opensips-papers").numbers
SMALLEST: dict[int, float] = {}
"""The smallest mean square that the search has found, by the number of sets of random arrivals per column."""
PREDICTOR = GridPredictor(load_config(), load_testbed("simulated-papers"), "opensips-udp", CALLS)


def predict(
    change: Mapping[str, Any], arrivals: int, first: int = FIRST_REP
) -> pd.DataFrame | None:
    """Simulate the papers' tables with changed model parameters. Return a table of means, or None if a run fails."""
    predictor = replace(PREDICTOR, change=change)
    columns = PUBLISHED[[*CELL, "cps"]].assign(column=PUBLISHED.index, without="")
    cases = pd.concat([columns.assign(rep=rep) for rep in range(first, first + arrivals)])
    try:
        runs = predictor.predict(cases.reset_index(drop=True))
    except StableError:
        return None
    return runs.groupby("column")[list(METRICS)].mean()


def predict_and_print(change: Mapping[str, Any], arrivals: int) -> pd.DataFrame | None:
    """Call `predict`. If the mean square is the smallest so far with as many sets of arrivals, print the parameters."""
    means = predict(change, arrivals)
    found = FAILED if means is None else loss(means, PUBLISHED)
    if found < SMALLEST.get(arrivals, FAILED):
        SMALLEST[arrivals] = found
        print(
            f"mean square {found:.4f} with {arrivals} sets of arrivals: {dict(change)}", flush=True
        )
    return means


def mean_square(change: Mapping[str, Any], first: int = FIRST_REP) -> float:
    """Return the mean squared log ratio of simulated to published values for changed parameters; NaN if a run fails."""
    means = predict(change, POLISHED, first)
    return float("nan") if means is None else loss(means, PUBLISHED)


def print_predictions(change: Mapping[str, Any]) -> None:
    """Print the errors of all numbers in the papers' tables, and the effects in both readings of baseline mode."""
    compared, points = load_comparison(), load_points()
    cases = wanted(points, compared)
    simulated = cases["mode"].isin([*MODES, SCALED])
    cases = cases[(cases["without"] == "") & simulated].reset_index(drop=True)
    runs = replace(PREDICTOR, change=change).predict(cases).assign(part=TABLES)
    table = against_published(runs[runs["mode"].isin(MODES)], points)
    for mode in MODES:
        for error in errors(table[table["mode"] == mode]):
            factor = math.exp(error.simulator)
            print(f"{mode}, {error.group}: {error.metric} wrong by a factor of {factor:.2f}")
    for baseline in (MODES[0], SCALED):
        found = effects(runs, compared, baseline)
        for effect in found:
            print(
                f"{baseline}, {effect.cores} cores, {effect.threads} threads, {effect.metric}: lower by "
                f"{effect.predicted.estimate:.1f} %, published {effect.published} %, {effect.direction}"
            )
        same = sum(effect.published * effect.predicted.estimate > 0 for effect in found)
        counts = Counter(effect.direction for effect in found)
        told = ", ".join(f"{count} {direction}" for direction, count in counts.items())
        print(
            f"{len(found)} effects of enhanced mode against {baseline}: {told}; {same} estimates have the published "
            "sign"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fit the model of the papers' proxy.")
    parser.add_argument("variant", nargs="?", choices=VARIANTS, default="stalls")
    parser.add_argument("--values", help="values of the parameters, separated by commas")
    arguments = parser.parse_args()
    free_parameters = VARIANTS[arguments.variant]
    if arguments.values:
        given = [float(value) for value in arguments.values.split(",")]
        changed = numbers(given, MODEL, free_parameters)
        own, others = mean_square(changed), mean_square(changed, OTHER_REP)
        print(f"mean square {own:.3f}, with other random arrivals {others:.3f}", flush=True)
        print_predictions(changed)
        sys.exit()
    began = time.monotonic()
    fitted = fit(PUBLISHED, MODEL, predict_and_print, free_parameters)
    if fitted.loss >= FAILED:
        sys.exit("fit_papers: no simulated run of the best parameters finished")
    values = fitted.values.tolist()
    print(
        f"mean square of {fitted.points} log ratios: {fitted.loss:.4f}, with {len(free_parameters)} free parameters"
    )
    times = os.times()
    cpu_s = times.children_user + times.children_system + times.user + times.system
    print(
        f"{fitted.columns} columns of {CALLS} calls simulated, "
        f"{time.monotonic() - began:.0f} s, {cpu_s:.0f} CPU s",
        flush=True,
    )
    for which, (free, value) in enumerate(zip(free_parameters, values, strict=True)):
        half, twice = (
            mean_square(
                numbers([*values[:which], by * value, *values[which + 1 :]], MODEL, free_parameters)
            )
            for by in (0.5, 2.0)
        )
        print(
            f"{free.name}: {value:.4g}; mean square at half of this value {half:.3f}, at twice {twice:.3f}",
            flush=True,
        )
    other = predict(numbers(values, MODEL, free_parameters), POLISHED, OTHER_REP)
    if other is not None:
        off = (log_ratios(other, PUBLISHED) ** 2).mean() ** 0.5
        told = ", ".join(f"{name} {off[name]:.3f}" for name in METRICS)
        print(f"root mean square of the log ratios with other random arrivals: {told}")
    print_predictions(numbers(values, MODEL, free_parameters))
