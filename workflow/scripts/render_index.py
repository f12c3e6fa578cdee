"""Run the notebook that links all pages and says what they come to."""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render

log = snakemake.log[0]
with scripting.one_line_errors(log), scripting.stderr_into(log):
    render.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        {
            "summaries": [Path(path) for path in snakemake.input.summaries],
            "crossings": [Path(path) for path in snakemake.input.crossings],
            "pages": [Path(path) for path in snakemake.input.pages],
            "pdr_limit": snakemake.params.pdr_limit,
        },
    )
