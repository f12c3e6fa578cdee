"""Estimate the capacity in calls per second of each proxy on a testbed, for each limit of the packet drop rate."""

from pathlib import Path

from sipsched import scripting
from sipsched.analysis import run_table
from sipsched.analysis.capacity.estimate import estimate_capacities
from sipsched.records.crossing import read_searches
from sipsched.records.system_capacity import write_capacities

with scripting.one_line_errors(snakemake.log[0], computed=snakemake.input.summaries):
    summaries = snakemake.input.summaries
    # If all runs of a campaign compare modes, this rule reads only searches, so the list of summaries is empty.
    campaign = run_table.read_campaigns(summaries)[0] if summaries else None
    searches = read_searches(map(Path, snakemake.input.crossings))
    capacities = [
        capacity
        for limit in snakemake.params.limits
        for capacity in estimate_capacities(snakemake.wildcards.testbed, campaign, searches, limit)
    ]
    write_capacities(capacities, Path(snakemake.output.capacities))
