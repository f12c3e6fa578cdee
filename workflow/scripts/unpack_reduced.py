"""Put what reduced records hold where the workflow computes it of whole ones."""

from pathlib import Path

from sipsched import scripting
from sipsched.records import messages, summary, windows

with scripting.one_line_errors(snakemake.log[0]):
    wanted = set(snakemake.output.windows)
    for run, target in zip(snakemake.input.runs, snakemake.output.messages, strict=True):
        record, path = Path(run).parent, Path(target)
        messages.write_messages(messages.messages_from_record(record), path)
        summary.write(summary.summarise_run(path, record), path.with_name("summary.nc.zst"))
        reduced = path.with_name("windows.nc")
        if str(reduced) in wanted:
            windows.write_windows(windows.windows_from_record(path, record), reduced)
