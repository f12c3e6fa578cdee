"""Join the summaries of a study's runs on one testbed."""

import json
from pathlib import Path

from sipsched import config, record, scripting, summary

with scripting.one_line_errors(snakemake.log[0]):
    campaign = config.parse_config(snakemake.config)
    planned = campaign.studies[snakemake.wildcards.study].runs(snakemake.wildcards.testbed)
    combined = summary.combine([Path(path) for path in snakemake.input.summaries], planned)
    attempts = record.failed_attempts(campaign.records, planned)
    combined.attrs["failed_attempts"] = json.dumps(attempts)
    summary.write(combined, Path(snakemake.output.summary))
