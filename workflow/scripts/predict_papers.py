"""Simulate the papers' tables, their figure 2, what makes the difference of the modes, and the grid of cells."""

from pathlib import Path

import pandas as pd

from sipsched import files, paths, scripting
from sipsched.analysis import papers, papers_predicted
from sipsched.measure.simulated_means import Predictor
from sipsched.plan.config import load_config
from sipsched.testbed.inventory import load_testbed

with scripting.one_line_errors(snakemake.log[0]):
    folder = Path(snakemake.input.points).parent
    bed = load_testbed("simulated-papers", paths.TESTBEDS)
    # the load is the one of the fit, whatever the campaign's is
    predictor = Predictor(load_config(), bed, "opensips-udp", papers_predicted.CALLS)
    wanted = papers_predicted.wanted(papers.load_points(folder), papers.load_comparison(folder))
    tables = predictor.predict(wanted).assign(part=papers_predicted.TABLES)
    near = predictor.near_limit(
        papers_predicted.grid(),
        papers.PDR_LIMIT,
        papers.LOAD_STEP_CPS,
        papers_predicted.MOST_CPS,
        papers_predicted.GRID_REPETITIONS,
    )
    table = pd.concat([tables, near.assign(part=papers_predicted.NEAR_LIMIT)])[
        papers_predicted.COLUMNS
    ]
    with files.whole(Path(snakemake.output.predictions)) as path:
        table.to_csv(path, index=False)
