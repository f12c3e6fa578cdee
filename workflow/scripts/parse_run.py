"""Convert the trace of a run into `messages.nc`, which has one row per message."""

from pathlib import Path

from sipsched import scripting
from sipsched.records.messages import messages_from_record, write_messages

with scripting.one_line_errors(snakemake.log[0]):
    messages = messages_from_record(Path(snakemake.input.run).parent)
    write_messages(messages, Path(snakemake.output.messages))
