"""Measure how often and how long the idle CPUs of the proxy's host are interrupted, and record the result."""

from functools import partial
from pathlib import Path

from sipsched import paths, scripting
from sipsched.measure import noise
from sipsched.testbed import inventory

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0]):
    path = Path(snakemake.output.noise)
    if not path.exists():
        scripting.say(f"measuring the idle CPUs of {snakemake.wildcards.testbed}")
        bed = inventory.load_testbed(snakemake.wildcards.testbed, paths.provided(paths.TESTBEDS))
        scripting.attempted(partial(noise.measure_noise, bed, path))
