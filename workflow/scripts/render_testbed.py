"""Run the notebook of a testbed on all studies that were measured on it."""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render

log = snakemake.log[0]
with scripting.one_line_errors(log), scripting.stderr_into(log):
    render.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        {
            "testbed": snakemake.wildcards.testbed,
            "summaries": [Path(path) for path in snakemake.input.summaries],
            "noise": Path(snakemake.params.noise),
        },
    )
