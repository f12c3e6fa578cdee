"""Run the notebook of single messages on the runs of mode default of a testbed."""

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
            "records": [Path(folder) for folder in snakemake.params.records],
        },
    )
