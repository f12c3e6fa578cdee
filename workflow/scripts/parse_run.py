"""Turn the trace of a run into messages.nc."""

from pathlib import Path

from sipsched import dataset, scripting

with scripting.one_line_errors(snakemake.log[0]):
    messages = dataset.messages_from_record(Path(snakemake.input.run).parent)
    dataset.write_messages(messages, Path(snakemake.output.messages))
