"""Testbed hours of the papers' grid by both protocols, side by side, from trials and runs that were recorded.

Shows, for the studies of config/studies that have the papers' grids: cells (modes, cores, threads), runs and hours
where each load is run 30 times, as the papers did; and where the capacity of each cell is searched and the two
loads around it are run 30 times, in each mode at the loads of both. Trials a search and the seconds around a trial and
around a run are medians of what is recorded in the folder that is named (raw if none is).
How to read it: a forecast for loads of the studies' length on a testbed as fast between runs as the one recorded;
searches on it may take more trials, or fewer. Nothing is measured.
"""

import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.plan.documents import read_yaml
from sipsched.records.crossing import read_crossing
from sipsched.records.forecast import BETWEEN_S
from sipsched.records.run_document import read_run

GRIDS = ("single_core", "multi_core")
REPETITIONS = 30
PLACE = "*/*/*/cores~*/threads~*"
RUNS = 30
"""So many recorded runs are looked at."""


def around_runs_s(paths: Iterable[Path]) -> list[float]:
    """Say how long runs took beside their warm-up and load, up to the start of the next."""
    found = []
    for path in list(paths)[:RUNS]:
        document = read_run(path.parent)
        whole = document.timeline.fetched - document.timeline.started
        found.append(whole - document.load.duration_s - document.load.warmup_s + BETWEEN_S)
    return found


def main() -> None:
    raw = Path(sys.argv[1]) if sys.argv[1:] else PROJECT_ROOT / "raw"
    searches = [read_crossing(path) for path in sorted(raw.glob(f"{PLACE}/capacity~*.json"))]
    timed = [each for each in searches if each.took_s is not None]
    runs_s = around_runs_s(sorted(raw.glob(f"{PLACE}/cps~*/rep~*/run.json")))
    if not timed or not runs_s:
        print(
            f"{raw}: no search for a capacity with its runs is recorded: see `capacity` in config/README.md"
        )
        return
    warmup_s = load_config().load.warmup_s
    trials = statistics.median(len(each.trials) for each in timed)
    around_trial_s = statistics.median(
        (each.took_s - sum(trial.duration_s for trial in each.trials)) / len(each.trials) - warmup_s
        for each in timed
        if each.took_s is not None
    )
    around_run_s = statistics.median(runs_s)
    print(
        f"{len(timed)} searches: {trials:g} trials each, {around_trial_s:.1f} s around a trial; {len(runs_s)} runs: "
        f"{around_run_s:.1f} s around each"
    )
    for name in GRIDS:
        document = read_yaml(PROJECT_ROOT / "config" / "studies" / f"{name}.yaml")
        study, load = document["studies"][name], document["load"]
        load_s = load["duration_s"] + load["warmup_s"]
        modes, places = len(study["modes"]), len(study["cores"]) * len(study["threads"])
        cells = modes * places
        grid = cells * len(study["cps"]) * REPETITIONS
        confirming = places * 2 * modes * modes * REPETITIONS
        grid_h = grid * (load_s + around_run_s) / 3600
        search_h = cells * trials * (load_s + around_trial_s) / 3600
        confirm_h = confirming * (load_s + around_run_s) / 3600
        print(
            f"  {name}, {cells} cells: each load {grid} runs, {grid_h:.0f} hours; searched {cells} searches, "
            f"{search_h:.1f} hours, and at most {confirming} runs, {confirm_h:.0f} hours: "
            f"{100 * (search_h + confirm_h) / grid_h:.0f} % of it"
        )


if __name__ == "__main__":
    main()
