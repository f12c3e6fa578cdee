"""Find the load at which a point's packet drop rate crosses its limit, and record it under raw/."""

from functools import partial

from sipsched import paths, scripting
from sipsched.measure import crossing_search
from sipsched.plan import config
from sipsched.records import crossing
from sipsched.testbed import inventory

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0]):
    point = config.Point.from_wildcards(snakemake.wildcards)
    campaign = config.parse_config(snakemake.config)
    raw = campaign.records
    bed = inventory.load_testbed(point.testbed, paths.TESTBEDS)
    scripting.say(f"searching where {point} drops {campaign.pdr_limit:.0%}")
    if point not in crossing.read_crossings(raw, [point]):
        scripting.attempted(partial(crossing_search.search_crossing, point, campaign, bed, raw))
