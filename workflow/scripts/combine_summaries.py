"""Join the summaries of a study's runs on one testbed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from sipsched import scripting
from sipsched.plan import config
from sipsched.records import crossing, publishable, record, summary

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    campaign = config.parse_config(snakemake.config)
    study, name = campaign.studies[snakemake.wildcards.study], snakemake.wildcards.testbed
    planned = study.runs(name, crossing.read_crossings(campaign.records, study.searches(name)))
    combined = summary.combine([Path(path) for path in snakemake.input.summaries], planned)
    attempts = [
        replace(each, error=publishable.publishable_text(each.error))
        for each in record.failed_attempts(campaign.records, planned)
    ]
    combined.attrs["failed_attempts"] = json.dumps([asdict(each) for each in attempts])
    summary.write(combined, Path(snakemake.output.summary))
