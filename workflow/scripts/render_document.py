"""Run the notebook of a page that belongs to no single study."""

from pathlib import Path

from sipsched import scripting
from sipsched.pages import render

with scripting.one_line_errors(snakemake.log[0]):
    offered = {
        "summaries": [Path(path) for path in snakemake.input.summaries],
        "pdr_limit": snakemake.params.pdr_limit,
    }
    if snakemake.input.predictions:
        offered["predictions"] = Path(snakemake.input.predictions[0])
    render.render(Path(snakemake.input.notebook), Path(snakemake.output.html), {}, offered)
