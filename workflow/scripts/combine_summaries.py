"""Join the summaries of a study's runs on one testbed."""

import json
from pathlib import Path

from sipsched import config, record, scripting, summary

with scripting.one_line_errors(snakemake.log[0]):
    study = config.parse_config(snakemake.config).studies[snakemake.wildcards.study]
    name, raw = snakemake.wildcards.testbed, Path("raw")
    planned = study.runs(name, record.read_crossings(raw, study.searches(name)))
    combined = summary.combine([Path(path) for path in snakemake.input.summaries], planned)
    attempts = record.failed_attempts(raw, planned)
    combined.attrs["failed_attempts"] = json.dumps(attempts)
    summary.write(combined, Path(snakemake.output.summary))
