"""Measure what is missing, make the pages of what there is, and say whether every study has an answer.

`make reproduce` runs this. It is `snakemake`, and if runs are missing after that, `snakemake --config
only_measured=True`. The exit code is 0 if the pages are there and every study has an answer (the rule:
`sipsched.records.missing.Missing`), else 1.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

from sipsched import scripting
from sipsched.plan.config import load_config
from sipsched.records.missing import find_missing

PAGE = Path("reports/index.html")


def snakemake(*arguments: str) -> bool:
    """Run Snakemake on this terminal, and tell whether it did all that it was asked for.

    Ctrl-C reaches it by itself; SIGTERM is passed on.
    """
    command = [sys.executable, "-m", "snakemake", "--no-hooks", *arguments]
    with subprocess.Popen(command) as child:
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate() or end())
        return child.wait() == 0


def end(*_: object) -> None:
    """Take note of a signal: nothing is begun after it."""
    ended.append(True)


ended: list[bool] = []
signal.signal(signal.SIGINT, end)
with scripting.one_line_errors():
    config = load_config(Path("config/config.yaml"))
    began = time.time()
    whole = snakemake()
    jobs_ran = any(log.stat().st_mtime >= began for log in Path("logs").rglob("*.log"))
    # without a job that failed, it is Snakemake that has said why it does not begin
    pages = whole or (not ended and jobs_ran and snakemake("--config", "only_measured=True"))
    if ended or not (pages or jobs_ran):
        sys.exit(1)
    if pages:
        print(f"Open: {PAGE.resolve()}", flush=True)
    missing = find_missing(config, config.records)
    logs = [Path("logs/measure") / f"{run.path}.log" for run in missing.runs]
    logs += [Path("logs/measure") / point.crossing_path for point in missing.searches]
    line = missing.line(sum(not scripting.may_pass(log) for log in logs))
    for said in filter(None, (line, *map(str, missing.unanswered))):
        scripting.say(said)
    sys.exit(not pages or bool(missing.unanswered))
