"""How far an invocation has come: what is measured now, and when the last run should end."""

import os
import re
import statistics
from datetime import datetime, timedelta
from pathlib import Path

from sipsched.plan.config import Config, Run
from sipsched.records.crossing import read_crossings
from sipsched.records.record import is_recorded
from sipsched.records.run_document import read_run
from sipsched.scripting import RUN_PLACE, say

OVERHEAD_S = 4.0
"""Seconds of a run outside its load, before any run was measured."""
RUNS_FOR_PACE = 10


def say_progress(run: Run, config: Config, raw: Path) -> None:
    """Print what is measured now, how many runs are left of those asked for, and when the last should end.

    What was asked for is what the workflow's scheduler says in the environment; without it, only the
    run is named.
    """
    place = re.fullmatch(r"([0-9]+)/([0-9]+)", os.environ.get(RUN_PLACE, ""))
    if place is None:
        say(f"measuring {run}")
        return
    number, total = int(place[1]), int(place[2])
    planned = config.runs(read_crossings(raw, config.searches()))
    done = [other for other in planned if is_recorded(raw, other)]
    left = total - number
    end = datetime.now() + timedelta(seconds=(left + 1) * _seconds_per_run(done, config, raw))
    say(
        f"measuring {run}: run {number} of {total}, {left} left after it, done about {end:%H:%M:%S}"
    )


def _seconds_per_run(done: list[Run], config: Config, raw: Path) -> float:
    times: list[float] = []
    for run in done[-RUNS_FOR_PACE:]:
        timeline = read_run(raw / run.path).timeline
        times.append(timeline.fetched - timeline.started)
    if times:
        return statistics.median(times) + 1.0
    return config.load.warmup_s + config.load.duration_s + OVERHEAD_S
