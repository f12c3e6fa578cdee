"""Write an archive with the reports, summaries, configuration and versions of a campaign."""

import json
from pathlib import Path

from sipsched import scripting
from sipsched.analysis import run_table
from sipsched.pages import archive

with scripting.one_line_errors(snakemake.log[0]):
    archive.publish(
        Path(snakemake.output.archive),
        [Path(path) for path in snakemake.input],
        run_table.read_campaigns(snakemake.input.summaries),
        snakemake.params.version,
        json.dumps(snakemake.config, indent=1, sort_keys=True),
    )
