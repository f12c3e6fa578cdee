"""Measure what a large campaign costs beside its measurements, on files that no testbed made.

Shows, for `--runs` runs: CPU seconds (user + system) and memory of a `snakemake` that finds everything to do, of one
that finds one run new, from its record to the study's summary, of one that finds nothing to do after that, and of one
that finds nothing to do and does not know what the summary was joined of; CPU seconds of the join of all summaries, and
bytes of one; of the page on progress. Records and datasets are empty files of the right names; the summaries are those
of one synthetic run under every name, its hosts described as in a recorded one.
Reach, at 36,000 runs on two cores: nothing to do 15 CPU s, one run added 30 CPU s, join 60 CPU s, a summary 8 kB, 2 GiB
for the controller.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import synthetic
import yaml
from faults.checks import make_project

from sipsched.pages.progress import write_page
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Config, Run, load_config
from sipsched.records import summary
from sipsched.records.forecast import Lanes, outlooks
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.publishable import publishable_hosts
from sipsched.records.run_document import read_run
from sipsched.records.settled import read_settled, settled_file

TARGET = "results/load_sweep/local/summary.nc"
THREADS, REPETITIONS = 4, 30
CALLS = 10_000
MODES = 3


def campaign(project: Path, runs: int) -> Config:
    """Make a project whose study has about so many runs: modes, threads, loads and repetitions as the papers."""
    path = make_project(project)
    document = yaml.safe_load(path.read_text())
    loads = max(1, round(runs / (MODES * THREADS * REPETITIONS)))
    document["studies"]["load_sweep"] |= {
        "modes": ["default", "baseline", "enhanced"],
        "threads": [2, 4, 8, 16][:THREADS],
        "cps": [100 * n for n in range(1, loads + 1)],
        "repetitions": REPETITIONS,
    }
    path.write_text(yaml.safe_dump(document))
    return load_config(path)


def children(project: Path, says: str, *command: str) -> tuple[float, float]:
    """Run Snakemake; its CPU seconds and the largest memory of any child so far, in MiB, come back."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *command],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or says not in done.stdout + done.stderr:
        sys.exit(f"snakemake {' '.join(command)}: expected '{says}': {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1024


def write_files(project: Path, planned: list[Run]) -> list[Path]:
    """Write what measuring and reducing leave, each newer than what it is made of."""
    scratch = project / "one"
    record = synthetic.write_record(scratch, planned[0], calls=CALLS)
    write_messages(messages_from_record(record), scratch / "messages.nc")
    measured = next((PROJECT_ROOT / "recorded" / "fit").rglob("run.json")).parent
    hosts = publishable_hosts(asdict(read_run(measured).hosts))
    one = summary.summarise_run(scratch / "messages.nc", record)
    one.attrs["hosts"] = json.dumps(hosts, sort_keys=True)
    now, paths = time.time(), []
    for run in planned:
        results = project / "results" / "runs" / run.path
        files = [project / "raw" / run.path / "run.json", results / "messages.nc"]
        for age, file in zip((300, 200), files, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, (now - age, now - age))
        named = one.assign_coords({name: getattr(run, name) for name in summary.RUN_DIMS})
        paths.append(results / "summary.nc.zst")
        summary.write(named, paths[-1])
        os.utime(paths[-1], (now - 100, now - 100))
    shutil.rmtree(scratch)
    return paths


def measure_one(project: Path, run: Run) -> None:
    """Put a record in the place of one run that there is, newer than all else, and its results away."""
    shutil.rmtree(project / "raw" / run.path)
    shutil.rmtree(project / "results" / "runs" / run.path)
    synthetic.write_record(project / "raw", run, calls=CALLS)


def main() -> None:
    """Make the project, do each thing once, print what it took."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=3600)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        config = campaign(project, options.runs)
        planned = config.runs()
        print(f"{len(planned)} runs, {os.cpu_count()} CPUs; CPU seconds, user and system")
        seconds, mib = children(project, "measure_run", "--dry-run", TARGET)
        print(f"all to do, dry run: {seconds:.1f} s, {mib:.0f} MiB")
        paths = write_files(project, planned)
        target = project / TARGET
        began = time.process_time()
        joined, of = summary.join_again(target, paths[:-1], planned, project / "raw")
        took = time.process_time() - began
        print(
            f"join of {len(paths) - 1} summaries: {took:.1f} s, {took / len(paths) * 1e3:.2f} ms a run; "
            f"a summary: {paths[0].stat().st_size} bytes"
        )
        summary.write_again(joined.assign_attrs(failed_attempts="[]"), of, target)
        measure_one(project, planned[-1])
        seconds, mib = children(project, "", TARGET)
        if str(planned[-1].path) not in read_settled(target).stamps:
            sys.exit("the run that was added is not in the study's summary")
        print(f"one run added, {6 * CALLS} messages: {seconds:.1f} s, {mib:.0f} MiB at most so far")
        for known in ("", ", not known to be settled"):
            seconds, mib = children(project, "Nothing to be done", TARGET)
            print(f"nothing to do{known}: {seconds:.1f} s, {mib:.0f} MiB at most so far")
            settled_file(target).unlink(missing_ok=True)
        began = time.process_time()
        found = outlooks(config, project / "raw", Lanes())
        write_page(project / "reports" / "progress.html", found, {}, datetime.now(UTC))
        print(f"page on progress: {time.process_time() - began:.2f} s")


if __name__ == "__main__":
    main()
