"""Find the load at which a point's packet drop rate crosses its limit, and record it under raw/."""

from pathlib import Path

from sipsched import scripting
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.records import crossing
from sipsched.testbed import inventory

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0]):
    names = dict(snakemake.wildcards.items()) | {"cps": "0", "rep": "0"}
    point = config.Run.from_wildcards(names)
    campaign = config.parse_config(snakemake.config)
    raw = campaign.records
    bed = inventory.load_testbed(point.testbed, Path("hardware/testbeds"))
    scripting.say(f"searching where {point.point} drops {campaign.pdr_limit:.0%}")
    if point not in crossing.read_crossings(raw, [point]):
        acquisition.search_crossing(point, campaign, bed, raw)
