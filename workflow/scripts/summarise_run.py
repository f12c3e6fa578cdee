"""Compute the summary file of a run (counts, means and quantiles) from the file of its messages."""

from pathlib import Path

from sipsched import scripting
from sipsched.records import run_summary, summary_files

with scripting.one_line_errors(snakemake.log[0], computed=[snakemake.input.messages]):
    record = Path(snakemake.input.run).parent
    summary_files.write(
        run_summary.summarise_run(Path(snakemake.input.messages), record),
        Path(snakemake.output.summary),
    )
