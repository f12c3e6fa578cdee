"""How far a campaign has come: what is measured now, and when the last run should end."""

import json
import statistics
from datetime import datetime, timedelta
from pathlib import Path

from sipsched.plan.config import Config, Run
from sipsched.records.crossing import read_crossings
from sipsched.records.record import RUN_FILE, is_recorded
from sipsched.scripting import say

OVERHEAD_S = 4.0
"""Seconds of a run outside its load, before any run was measured."""
RUNS_FOR_PACE = 10


def say_progress(run: Run, config: Config, raw: Path) -> None:
    """Print what is measured now, how many runs are left, and when the last should end."""
    planned = config.runs(read_crossings(raw, config.searches()))
    left = [other for other in planned if not is_recorded(raw, other)]
    done = [other for other in planned if other not in set(left)]
    end = datetime.now() + timedelta(seconds=len(left) * _seconds_per_run(done, config, raw))
    say(
        f"measuring {run}: run {len(done) + 1} of {len(planned)}, "
        f"{len(left) - 1} left after it, done about {end:%H:%M:%S}"
    )


def _seconds_per_run(done: list[Run], config: Config, raw: Path) -> float:
    times: list[float] = []
    for run in done[-RUNS_FOR_PACE:]:
        timeline = json.loads((raw / run.path / RUN_FILE).read_text())["timeline"]
        times.append(timeline["fetched"] - timeline["started"])
    if times:
        return statistics.median(times) + 1.0
    return config.load.warmup_s + config.load.duration_s + OVERHEAD_S
