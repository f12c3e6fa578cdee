"""Run the notebook of a page that rests on no measurement."""

from pathlib import Path

from sipsched import report, scripting

with scripting.one_line_errors(snakemake.log[0]):
    report.render(Path(snakemake.input.notebook), Path(snakemake.output.html), {})
