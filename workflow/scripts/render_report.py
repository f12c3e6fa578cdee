"""Run a study's notebook and write its report."""

from pathlib import Path

from sipsched import report, scripting

with scripting.one_line_errors(snakemake.log[0]):
    report.render(
        Path(snakemake.input.notebook),
        Path(snakemake.output.html),
        {
            "study": snakemake.wildcards.study,
            "summary": Path(snakemake.input.summary),
            "messages_root": Path(snakemake.params.messages_root),
        },
    )
