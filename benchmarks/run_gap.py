"""How long the testbed idles between two runs of a campaign, as the workflow does them, and where that time goes.

Shows the gap from the end of one load to the start of the next run's warm-up and to its load, and its parts (medians):
what is stopped, fetched and judged after the load; the end of one job and the start of the next; reaching the hosts;
checking them and starting UAS, proxy and probe; describing settings. It takes a minute.
"""

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config

RUNS = 6
PARTS = {
    "after the load": ("load_ended", "fetched"),
    "hosts reached": ("started", "connected"),
    "servers up": ("connected", "servers_ready"),
    "described": ("servers_ready", "warmup_started"),
}
"""Of a run, by two marks of its timeline; between `fetched` and the next `started` one job ends and another starts."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name in ("Snakefile", "config", "hardware", "workflow", "profiles", "notebooks"):
            source = PROJECT_ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)
        path = project / "config" / "config.yaml"
        document = yaml.safe_load(path.read_text())
        document["load"]["duration_s"] = 2
        document["only"] = ["load_sweep"]
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
        name: statistics.median(each[end] - each[begin] for each in timelines)
        for name, (begin, end) in PARTS.items()
    }
    parts["between jobs"] = statistics.median(b["started"] - a["fetched"] for a, b in pairs)
    print("  " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items()))


if __name__ == "__main__":
    main()
