"""Measure the CPU time and memory that a large campaign needs in addition to its measurements.

For `--runs` runs, the benchmark prints CPU seconds (user and system) and memory of several `snakemake` invocations. The
first invocation plans all work without doing it. The second invocation adds one new run from its record to the study's
summary. Three more invocations have nothing to do: after the added run, after all records were copied to other files,
and after the file was deleted that lists the summary's runs. The benchmark also prints the CPU seconds for joining all
summaries and for the page on progress, and the bytes of a summary. All files are synthetic. A record is a `run.json`
with a SHA-256 and without a measurement. Datasets are empty files with the right names. Each summary is the summary of
one synthetic run under another name, with the description of recorded hosts. The goals for 36,000 runs on two cores are
15 CPU s without work, 30 CPU s for one added run, and 60 CPU s for joining. A summary should have at most 8 kB, and the
controller should use at most 2 GiB.
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
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import synthetic
import yaml
from faults.checks import make_project

from sipsched.files import seal
from sipsched.pages.progress import write_page
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Run
from sipsched.records import run_summary, study_summary, summary_files, summary_variables
from sipsched.records.forecast import Lanes, outlooks
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.publishable import publishable_hosts
from sipsched.records.reduced import identity
from sipsched.records.run_document import read_run
from sipsched.records.settled import read_settled, settled_file

TARGET = "results/load_sweep/local/summary.nc"
THREADS, REPETITIONS = 4, 30
CALLS = 10_000
MODES = 3


def campaign(project: Path, runs: int) -> Config:
    """Create a project whose study has about `runs` runs.

    The modes, threads and repetitions are the same as in the papers.
    """
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
    """Run Snakemake.

    Return Snakemake's CPU time in s, and the largest memory of any child process of this benchmark in MiB.
    """
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
    """Write the files of all planned runs, each newer than its input files, so that Snakemake has nothing to do."""
    scratch = project / "template"
    record = synthetic.write_record(scratch, planned[0], calls=CALLS)
    write_messages(messages_from_record(record), scratch / "messages.nc")
    measured = next((PROJECT_ROOT / "recorded" / "fit").rglob("run.json")).parent
    hosts = publishable_hosts(asdict(read_run(measured).hosts))
    summary = run_summary.summarise_run(scratch / "messages.nc", record)
    summary.attrs["hosts"] = json.dumps(hosts, sort_keys=True)
    now, paths = time.time(), []
    for run in planned:
        results = project / "results" / "runs" / run.path
        files = [project / "raw" / run.path / "run.json", results / "messages.nc"]
        for age, file in zip((300, 200), files, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(seal(json.dumps({"run": str(run.path)})) if age == 300 else "")
            os.utime(file, (now - age, now - age))
        named = summary.assign_coords(
            {name: getattr(run, name) for name in summary_variables.RUN_DIMS}
        )
        named["record"] = identity(files[0].parent)
        paths.append(results / "summary.nc.zst")
        summary_files.write(named, paths[-1])
        os.utime(paths[-1], (now - 100, now - 100))
    shutil.rmtree(scratch)
    return paths


def measure_one(project: Path, run: Run) -> None:
    """Replace the record of a run by a new record, and remove the run's results."""
    shutil.rmtree(project / "raw" / run.path)
    shutil.rmtree(project / "results" / "runs" / run.path)
    synthetic.write_record(project / "raw", run, calls=CALLS)


def copy_records(project: Path) -> None:
    """Replace each record by a copy with another inode, as a restored backup does."""
    for path in (project / "raw").rglob("run.json"):
        shutil.copy2(path, path.with_name("copy"))
        path.with_name("copy").replace(path)


def main() -> None:
    """Make the project, perform each step once, and print the cost of each step."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=3600)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        config = campaign(project, options.runs)
        planned = config.runs()
        print(f"{len(planned)} runs, {os.cpu_count()} CPUs; CPU seconds, user and system")
        seconds, mib = children(project, "measure_run", "--dry-run", TARGET)
        print(f"everything to do, dry run: {seconds:.1f} s, {mib:.0f} MiB")
        paths = write_files(project, planned)
        target = project / TARGET
        began = time.process_time()
        joined, of = study_summary.join_again(
            target, paths[:-1], planned, project / "raw", project / "results"
        )
        took = time.process_time() - began
        print(
            f"join of {len(paths) - 1} summaries: {took:.1f} s, {took / len(paths) * 1e3:.2f} ms per run; "
            f"one summary: {paths[0].stat().st_size} bytes"
        )
        study_summary.write_again(joined.assign_attrs(failed_attempts="[]"), of, target)
        measure_one(project, planned[-1])
        seconds, mib = children(project, "", TARGET)
        if str(planned[-1].path) not in read_settled(target).marks:
            sys.exit("the added run is missing in the study's summary")
        print(f"one run added, {6 * CALLS} messages: {seconds:.1f} s, {mib:.0f} MiB at most so far")
        for known, change in (
            ("", partial(copy_records, project)),
            (", other files of the same content", settled_file(target).unlink),
            (", not known to be settled", list),
        ):
            seconds, mib = children(project, "Nothing to be done", TARGET)
            print(f"nothing to do{known}: {seconds:.1f} s, {mib:.0f} MiB at most so far")
            change()
        began = time.process_time()
        forecasts = outlooks(config, project / "raw", Lanes())
        write_page(project / "reports" / "progress.html", forecasts, {}, datetime.now(UTC))
        print(f"page about progress: {time.process_time() - began:.2f} s")


if __name__ == "__main__":
    main()
