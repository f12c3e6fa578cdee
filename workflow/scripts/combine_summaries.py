"""Combine the summaries of a study's runs on one testbed into one study summary."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from sipsched import scripting
from sipsched.plan import config
from sipsched.planner.campaign import planned_runs
from sipsched.records import publishable, record, study_summary

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    campaign = config.parse_config(snakemake.config)
    study, results = campaign.studies[snakemake.wildcards.study], Path(snakemake.params.results)
    output, raw = Path(snakemake.output.summary), campaign.records
    planned = planned_runs(campaign, results, study, snakemake.wildcards.testbed)
    paths = [Path(path) for path in snakemake.input.summaries]
    joined, settled = study_summary.join_again(output, paths, planned, raw, results)
    attempts = [
        asdict(replace(attempt, error=publishable.publishable_error(attempt.error)))
        for attempt in record.failed_attempts(raw, planned)
    ]
    joined.attrs["failed_attempts"] = json.dumps(attempts)
    if study.precision:
        joined.attrs["precision"] = json.dumps(asdict(study.precision))
    study_summary.write_again(joined, settled, output)
