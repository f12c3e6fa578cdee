"""Unpack compact published records of runs into the files that the other Snakemake rules read."""

from pathlib import Path

from sipsched import scripting
from sipsched.records import messages, run_summary, summary_files, windows

with scripting.one_line_errors(snakemake.log[0]):
    wanted = set(snakemake.output.windows)
    for run, target in zip(snakemake.input.runs, snakemake.output.messages, strict=True):
        record, path = Path(run).parent, Path(target)
        messages.write_messages(messages.messages_from_record(record), path)
        summary_files.write(
            run_summary.summarise_run(path, record), path.with_name("summary.nc.zst")
        )
        reduced = path.with_name("windows.nc")
        if str(reduced) in wanted:
            windows.write_windows(windows.windows_from_record(path, record), reduced)
