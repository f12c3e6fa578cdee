"""Look whether the runs of a study on one testbed are precise enough, and write which are to be repeated."""

from pathlib import Path

from sipsched import scripting
from sipsched.analysis import precision
from sipsched.plan import config
from sipsched.records import crossing, look, summary

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    campaign = config.parse_config(snakemake.config)
    study, name = campaign.studies[snakemake.wildcards.study], snakemake.wildcards.testbed
    output = Path(snakemake.output.look)
    results = output.parents[2]
    crossings = crossing.read_crossings(campaign.records, study.searches(name))
    repeats = look.read_repeats(results, study, name, until=int(snakemake.wildcards.rep))
    planned = study.runs(name, crossings, repeats)
    combined = summary.combine([Path(path) for path in snakemake.input.summaries], planned)
    found = precision.look(combined, study.precision)
    look.write_look(output, precision.still_wide(found, study.precision))
