"""Join the summaries of a study's runs on one testbed."""

from pathlib import Path

from sipsched import config, scripting, summary

with scripting.one_line_errors(snakemake.log[0]):
    study = config.parse_config(snakemake.config).studies[snakemake.wildcards.study]
    combined = summary.combine(
        [Path(path) for path in snakemake.input.summaries],
        study.runs(snakemake.wildcards.testbed),
    )
    summary.write(combined, Path(snakemake.output.summary))
