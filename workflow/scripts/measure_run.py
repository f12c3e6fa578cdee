"""Measure one run, and write the record of the run into raw/."""

from sipsched import paths, scripting
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.plan.run import Run
from sipsched.records import record
from sipsched.testbed import inventory

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0], snakemake.resources.attempt):
    run = Run.from_wildcards(snakemake.wildcards)
    campaign = config.parse_config(snakemake.config)
    bed = inventory.load_testbed(run.testbed, paths.provided(paths.TESTBEDS))
    if not record.is_recorded(campaign.records, run):
        acquisition.measure(run, campaign, bed, campaign.records)
