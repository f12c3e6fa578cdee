"""Bundle reports, summaries, configuration and versions."""

import json
from pathlib import Path

from sipsched import campaign, publication, scripting

with scripting.one_line_errors(snakemake.log[0]):
    publication.publish(
        Path(snakemake.output.archive),
        [Path(path) for path in snakemake.input],
        campaign.read_campaigns(snakemake.input.summaries),
        snakemake.params.version,
        json.dumps(snakemake.config, indent=1, sort_keys=True),
    )
