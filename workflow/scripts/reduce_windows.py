"""Compute statistics per window (a short stretch in one scheduler mode) from the messages of a run."""

from pathlib import Path

from sipsched import scripting
from sipsched.records import windows

with scripting.one_line_errors(snakemake.log[0], computed=[snakemake.input.messages]):
    record = Path(snakemake.input.run).parent
    windows.write_windows(
        windows.windows_from_record(Path(snakemake.input.messages), record),
        Path(snakemake.output.windows),
    )
