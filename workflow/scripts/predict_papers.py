"""Simulate the runs of the papers' tables and figure 2, runs without one part of the model, and other settings."""

from pathlib import Path

import pandas as pd

from sipsched import files, paths, scripting
from sipsched.analysis import papers, papers_predicted
from sipsched.measure.simulated_means import GridPredictor
from sipsched.plan.config import load_config
from sipsched.plan.simulated import CASE
from sipsched.testbed.inventory import load_testbed


def simulate(predictor: GridPredictor, published: Path) -> pd.DataFrame:
    """Return a table of simulated runs for the papers' tables and figures, and for a grid of scheduler settings."""
    wanted = papers_predicted.wanted(
        papers.load_points(published), papers.load_comparison(published)
    )
    tables = predictor.predict(wanted).assign(part=papers_predicted.TABLES)
    near = predictor.near_limit(
        papers_predicted.grid(),
        papers.PDR_LIMIT,
        papers.LOAD_STEP_CPS,
        papers_predicted.MOST_CPS,
        papers_predicted.GRID_REPETITIONS,
    )
    return pd.concat([tables, near.assign(part=papers_predicted.NEAR_LIMIT)])


def simulate_grid(predictor: GridPredictor, recorded: pd.DataFrame) -> pd.DataFrame | None:
    """Simulate again the runs of a recorded table that belong to the grid of scheduler settings.

    Return the recorded table with the new numbers for the grid, or None if the new numbers differ.
    """
    near = recorded[recorded["part"] == papers_predicted.NEAR_LIMIT]
    again = predictor.predict(near[CASE]).assign(part=papers_predicted.NEAR_LIMIT)
    rest = recorded.drop(near.index)
    same, runs = papers_predicted.repeated(again, recorded)
    return pd.concat([rest, again]) if same == runs else None


with scripting.one_line_errors(snakemake.log[0]):
    bed = load_testbed("simulated-papers", paths.provided(paths.TESTBEDS))
    # The model was fitted with the load of config/config.yaml, so read this file, not the campaign's configuration.
    predictor = GridPredictor(load_config(), bed, "opensips-udp", papers_predicted.CALLS)
    table = None
    for path in map(Path, snakemake.input.recorded):
        table = simulate_grid(predictor, papers_predicted.load_predictions(path))
    if table is None:
        table = simulate(predictor, Path(snakemake.input.points).parent)
    with files.whole(Path(snakemake.output.predictions)) as path:
        table[papers_predicted.COLUMNS].to_csv(path, index=False, float_format="%.6g")
