"""Simulate the papers' tables, their figure 2, what makes the difference of the modes, and the grid of cells."""

from pathlib import Path

import pandas as pd

from sipsched import files, paths, scripting
from sipsched.analysis import papers, predicted
from sipsched.measure.prediction import Predictor
from sipsched.plan.config import load_config
from sipsched.testbed.inventory import load_testbed

with scripting.one_line_errors(snakemake.log[0]):
    folder = Path(snakemake.input.points).parent
    bed = load_testbed("simulated-papers", paths.TESTBEDS)
    # the load is the one of the fit, whatever the campaign's is
    predictor = Predictor(load_config(), bed, "opensips-udp", predicted.CALLS)
    wanted = predicted.wanted(papers.load_points(folder), papers.load_comparison(folder))
    tables = predictor.predict(wanted).assign(part=predicted.TABLES)
    near = predictor.near_limit(
        predicted.grid(),
        papers.PDR_LIMIT,
        papers.LOAD_STEP_CPS,
        predicted.MOST_CPS,
        predicted.GRID_REPETITIONS,
    )
    table = pd.concat([tables, near.assign(part=predicted.NEAR_LIMIT)])[predicted.COLUMNS]
    with files.whole(Path(snakemake.output.predictions)) as path:
        table.to_csv(path, index=False)
