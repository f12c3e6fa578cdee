"""Run the notebook of a page that belongs to no single study."""

from pathlib import Path

from sipsched import report, scripting

with scripting.one_line_errors(snakemake.log[0]):
    # without studies there is no such parameter
    summaries = {"summaries": [Path(path) for path in snakemake.input.summaries]}
    report.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        summaries if snakemake.input.summaries else {},
    )
