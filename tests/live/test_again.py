"""Test that the workflow repeats a disturbed run after the other runs, on the embedded testbed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.checks import make_project
from helpers import LOAD, change_study, pids, wait_for_load

from sipsched.plan.config import load_config
from sipsched.records.record import failed_attempts, is_recorded
from sipsched.records.run_document import read_run
from sipsched.testbed.inventory import Testbed

pytestmark = pytest.mark.quiet


def test_disturbed_run_is_repeated_after_the_others(testbed: Testbed, tmp_path: Path) -> None:
    path = make_project(tmp_path, duration_s=2, warmup_s=0.5)
    change_study(tmp_path, cps=[100], threads=[2], repetitions=3)
    config = load_config(path)
    runs = config.runs()
    with subprocess.Popen(
        [sys.executable, "-m", "snakemake", "results/load_sweep/local/summary.nc"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        wait_for_load(child)
        time.sleep(0.5)
        for pid in pids(LOAD):
            os.kill(pid, signal.SIGKILL)
        assert child.stderr is not None
        said = child.stderr.read().splitlines()
    assert child.returncode == 0, "\n".join(said)
    raw = tmp_path / "raw"
    assert all(is_recorded(raw, run) for run in runs)
    started = [read_run(raw / run.path).started_at for run in runs]
    assert max(started) == started[0]
    (attempt,) = failed_attempts(raw, runs)
    assert attempt.run == runs[0]
    told = [line.split(":")[0] for line in said if str(runs[0]) in line]
    assert told == [f"measuring {runs[0]}", "disturbed", "attempt 2 of 3"]
    # Skip Snakemake's first line, which names its profile, and the lines about progress.
    rest = [line for line in said[1:] if not line.endswith(" steps done")]
    assert len(rest) == 5, "\n".join(said)
