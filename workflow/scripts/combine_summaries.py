"""Join the summaries of a study's runs on one testbed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from sipsched import scripting
from sipsched.plan import config
from sipsched.records import crossing, look, publishable, record, summary

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    campaign = config.parse_config(snakemake.config)
    study, name = campaign.studies[snakemake.wildcards.study], snakemake.wildcards.testbed
    output = Path(snakemake.output.summary)
    raw, results = campaign.records, output.parents[2]
    crossings = crossing.read_crossings(raw, study.searches(name))
    if campaign.only_measured:
        repeats = look.recorded_repeats(raw, study, name, crossings)
    else:
        repeats = look.read_repeats(results, study, name)
    planned = study.runs(name, crossings, repeats)
    paths = [Path(path) for path in snakemake.input.summaries]
    joined, settled = summary.join_again(output, paths, planned, raw)
    attempts = [
        replace(each, error=publishable.publishable_text(each.error))
        for each in record.failed_attempts(raw, planned)
    ]
    joined.attrs["failed_attempts"] = json.dumps([asdict(each) for each in attempts])
    if study.precision:
        joined.attrs["precision"] = json.dumps(asdict(study.precision))
    summary.write_again(joined, settled, output)
