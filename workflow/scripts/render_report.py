"""Run a study's notebook and write its report."""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render

log = snakemake.log[0]
with scripting.one_line_errors(log), scripting.stderr_into(log):
    render.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        {"summary": Path(snakemake.input.summary)},
        {
            "study": snakemake.wildcards.study,
            "messages_root": Path(snakemake.params.messages_root),
            "windows": [Path(path) for path in snakemake.input.windows],
            "crossings": [Path(path) for path in snakemake.input.crossings],
            "pdr_limit": snakemake.params.pdr_limit,
        },
    )
