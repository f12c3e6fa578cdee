"""Measure the gap between the loads of two runs of a campaign, and how long each part of the gap takes.

The gap lasts from the end of one run's load to the warm-up of the next run. The benchmark also prints the time to the
load of the next run. The benchmark prints the medians of the gap and of its parts. The parts are: stopping programs,
fetching files and judging the run; the end of one job and the start of the next job; reaching the hosts; checking the
hosts and starting UAS, proxy and probe; and recording the settings of the hosts. The benchmark takes a minute.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import yaml
from faults.checks import make_project

from sipsched.plan.config import load_config

RUNS = 6
PARTS = {
    "after the load": ("load_ended", "fetched"),
    "hosts reached": ("started", "connected"),
    "servers up": ("connected", "servers_ready"),
    "described": ("servers_ready", "warmup_started"),
}
"""Parts of the gap, each between two events of a run's timeline. A new job starts between `fetched` and `started`."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        path = make_project(project, timing=True, duration_s=2)
        document = yaml.safe_load(path.read_text())
        study = document["studies"]["load_sweep"]
        study.update(threads=[4], cps=[1000], repetitions=RUNS)
        path.write_text(yaml.safe_dump(document))
        runs = load_config(path).runs()
        targets = [f"raw/{run.path}/run.json" for run in runs]
        subprocess.run([sys.executable, "-m", "snakemake", *targets], cwd=project, check=True)
        timelines = sorted(
            (json.loads((project / target).read_text())["timeline"] for target in targets),
            key=lambda timeline: timeline["started"],
        )
    pairs = list(itertools.pairwise(timelines))
    to_warmup = [b["warmup_started"] - a["load_ended"] for a, b in pairs]
    to_load = [b["load_started"] - a["load_ended"] for a, b in pairs]
    print(
        f"gap: end of load to next warm-up {statistics.median(to_warmup):.2f} s "
        f"(max {max(to_warmup):.2f}), to next measured load {statistics.median(to_load):.2f} s "
        f"(max {max(to_load):.2f}); {RUNS} runs, warm-up {document['load']['warmup_s']} s"
    )
    parts = {
        name: statistics.median(timeline[end] - timeline[begin] for timeline in timelines)
        for name, (begin, end) in PARTS.items()
    }
    parts["between jobs"] = statistics.median(b["started"] - a["fetched"] for a, b in pairs)
    print("  " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items()))


if __name__ == "__main__":
    main()
