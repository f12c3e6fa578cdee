"""List the settings and loads on one testbed that need more repeated runs to reach the study's precision."""

from pathlib import Path

from sipsched import scripting
from sipsched.analysis import precision
from sipsched.plan import config
from sipsched.planner.campaign import planned_runs
from sipsched.records import look, study_summary

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    campaign = config.parse_config(snakemake.config)
    study, results = campaign.studies[snakemake.wildcards.study], Path(snakemake.params.results)
    testbed, until = snakemake.wildcards.testbed, int(snakemake.wildcards.rep)
    planned = planned_runs(campaign, results, study, testbed, until)
    combined = study_summary.combine([Path(path) for path in snakemake.input.summaries], planned)
    intervals = precision.look(combined, study.precision)
    look.write_look(Path(snakemake.output.look), precision.still_wide(intervals, study.precision))
