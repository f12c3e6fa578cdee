"""Write an archive of all measurements: pages, run summaries, configuration, and versions of programs."""

import json
from pathlib import Path

from sipsched import scripting
from sipsched.analysis import run_table
from sipsched.pages import archive, outline

with scripting.one_line_errors(snakemake.log[0]):
    outlines = snakemake.input.outlines
    archive.publish(
        Path(snakemake.output.archive),
        [Path(path) for path in snakemake.input if path not in outlines],
        run_table.read_campaigns(snakemake.input.summaries),
        [outline.read_outline(Path(path)) for path in outlines],
        snakemake.params.version,
        json.dumps(snakemake.config, indent=1, sort_keys=True),
    )
