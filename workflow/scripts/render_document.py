"""Run the notebook of a page that belongs to no single study."""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render

log = snakemake.log[0]
with scripting.one_line_errors(log), scripting.stderr_into(log):
    render.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        {},
        {
            "summaries": [Path(path) for path in snakemake.input.summaries],
            "windows": [Path(path) for path in snakemake.input.windows],
            "crossings": [Path(path) for path in snakemake.input.crossings],
            "predictions": [Path(path) for path in snakemake.input.predictions],
            "pdr_limit": snakemake.params.pdr_limit,
        },
    )
