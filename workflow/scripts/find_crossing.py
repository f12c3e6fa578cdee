"""Search for the load in calls per second at which the packet drop rate reaches its limit, and record the load."""

from functools import partial

from sipsched import paths, scripting
from sipsched.measure import crossing_search
from sipsched.plan import config
from sipsched.plan.run import Point
from sipsched.records import crossing
from sipsched.testbed import inventory

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0]):
    point = Point.from_wildcards(snakemake.wildcards)
    campaign = config.parse_config(snakemake.config)
    raw = campaign.records
    bed = inventory.load_testbed(point.testbed, paths.provided(paths.TESTBEDS))
    guess = None
    if point.goal:
        # SciPy makes this import slow, so only searches that need the module import it.
        from sipsched.analysis.capacity import guess as guessing

        guess = guessing.guess_cps(point, crossing.read_crossings(raw, campaign.searches()))
    limit = point.goal.limit if point.goal else campaign.pdr_limit
    begins = f", beginning at {guess:.0f} cps" if guess else ""
    scripting.say(f"searching for the load at which {point} drops {100 * limit:g} %{begins}")
    if point not in crossing.read_crossings(raw, [point]):
        search = partial(crossing_search.search_crossing, point, campaign, bed, raw, guess)
        scripting.attempted(search)
    if point.goal:
        found = crossing.read_crossing(raw / point.crossing_path)
        crosses = "" if found.is_paired else f"the limit of {100 * limit:g} % is crossed "
        scripting.say(f"{point}: {crosses}{found.found}")
