"""Forecast the hours of measurement for the papers' settings and loads, with two rules for the repetition of loads.

For the settings in the papers' tables, the benchmark prints the number of cells (one mode, cores and threads), runs and
hours. The first rule repeats each load 30 times, as in the papers. The second rule searches for the capacity of each
cell, and repeats only the two loads around the capacity 30 times. Each mode runs at the loads of both modes. Three
numbers are medians of existing records in the named folder (default: raw): the trials per search, and the additional
seconds per trial and per run. The forecast assumes that a load lasts `LOAD_S` seconds, and that the time between runs
is as in the existing records. The benchmark measures nothing.
"""

import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.records.crossing import read_crossing
from sipsched.records.forecast import BETWEEN_S
from sipsched.records.run_document import read_run


class Grid(NamedTuple):
    """The cores, threads and loads in a paper's tables, with one additional lower and one higher load."""

    cores: tuple[int, ...]
    threads: tuple[int, ...]
    cps: range


GRIDS = {
    "single_core": Grid((1,), (1, 2, 4, 6, 8, 16), range(800, 2801, 200)),
    "multi_core": Grid((2, 4, 6), (2, 4, 6, 8, 16), range(2200, 7001, 200)),
}
MODES = 2
LOAD_S = 32
"""Seconds of load per run, including the warm-up."""
REPETITIONS = 30
CELL = "*/*/*/cores~*/threads~*"
RUNS = 30
"""Largest number of existing runs that the forecast reads."""


def around_runs_s(paths: Iterable[Path]) -> list[float]:
    """Return the seconds from one run's start to the next run's start, minus the warm-up and the load."""
    seconds = []
    for path in list(paths)[:RUNS]:
        document = read_run(path.parent)
        whole = document.timeline.fetched - document.timeline.started
        seconds.append(whole - document.load.duration_s - document.load.warmup_s + BETWEEN_S)
    return seconds


def main() -> None:
    raw = Path(sys.argv[1]) if sys.argv[1:] else PROJECT_ROOT / "raw"
    searches = [read_crossing(path) for path in sorted(raw.glob(f"{CELL}/capacity~*.json"))]
    timed = [search for search in searches if search.took_s is not None]
    runs_s = around_runs_s(sorted(raw.glob(f"{CELL}/cps~*/rep~*/run.json")))
    if not timed or not runs_s:
        print(
            f"{raw} contains no capacity search that has runs, too (`capacity` in config/README.md)"
        )
        return
    warmup_s = load_config().load.warmup_s
    trials = statistics.median(len(search.trials) for search in timed)
    around_trial_s = statistics.median(
        (search.took_s - sum(trial.duration_s for trial in search.trials)) / len(search.trials)
        - warmup_s
        for search in timed
        if search.took_s is not None
    )
    around_run_s = statistics.median(runs_s)
    print(
        f"{len(timed)} searches of {trials:g} trials, {around_trial_s:.1f} s per trial in addition to its load; "
        f"{len(runs_s)} runs, {around_run_s:.1f} s per run in addition to its load"
    )
    for name, study in GRIDS.items():
        places = len(study.cores) * len(study.threads)
        cells = MODES * places
        grid = cells * len(study.cps) * REPETITIONS
        confirming = places * 2 * MODES * MODES * REPETITIONS
        grid_h = grid * (LOAD_S + around_run_s) / 3600
        search_h = cells * trials * (LOAD_S + around_trial_s) / 3600
        confirm_h = confirming * (LOAD_S + around_run_s) / 3600
        print(
            f"  {name}, {cells} cells: every load: {grid} runs, {grid_h:.0f} hours; with search: {cells} searches, "
            f"{search_h:.1f} hours, and at most {confirming} runs, {confirm_h:.0f} hours; "
            f"{100 * (search_h + confirm_h) / grid_h:.0f} % of the hours for every load"
        )


if __name__ == "__main__":
    main()
