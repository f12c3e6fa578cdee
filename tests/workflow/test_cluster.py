"""Tests of the analysis on a real Slurm cluster of one node: killed jobs, a node that is down, a damaged record."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest
import synthetic
import yte
from faults.checks import make_project
from helpers import change_config, change_study, pids, wait_for

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.testbed import provision, requirements

CHECK_EVERY_S = 6
"""Seconds until Snakemake's Slurm plugin first asks for the state of its jobs.

If no job has finished, the next interval is 10 s longer.
"""
PROFILE = ("--workflow-profile", "profiles/slurm")


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """Start the cluster of this machine, and return the environment for Slurm's commands."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: namespaces")
    provision.install_here(requirements.CLUSTER_PACKAGES)
    cluster.take_down()
    cluster.bring_up()
    yield os.environ | {"SLURM_CONF": str(cluster.SLURM_CONF)}
    cluster.take_down()
    assert not cluster.STATE.exists()
    assert pids(f"slurm.* -f {cluster.SLURM_CONF}|munged .*{cluster.STATE}") == []


def start(project: Path, slurm: dict[str, str], *targets: str) -> "subprocess.Popen[str]":
    checks = ("--campaign-slurm-init-seconds-before-status-checks", str(CHECK_EVERY_S))
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *PROFILE, *checks, "--", *targets],
        cwd=project,
        env=slurm,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask(slurm: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_cluster_analyses_local_runs_despite_killed_jobs_and_a_failed_node(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    path = make_project(tmp_path, duration_s=0.5)
    change_config(tmp_path, lambda d: d.update(testbeds=["simulated"]))
    change_study(tmp_path, cps=[400], threads=[2, 4], repetitions=1)
    targets = [f"results/runs/{run.path}/summary.nc.zst" for run in load_config(path).runs()]
    with start(tmp_path, slurm, *targets) as child:
        running = ("squeue", "--noheader", "--states=running", "--format=%i")
        wait_for(lambda: len(ask(slurm, *running)) == 2, 60)
        killed, lost = ask(slurm, *running)
        ask(slurm, "scancel", killed)
        state = ("scontrol", "update", f"nodename={cluster.node()}")
        ask(slurm, *state, "state=down", "reason=test")
        wait_for(lambda: ask(slurm, *running) == [], 20)
        ask(slurm, *state, "state=resume")
        assert child.stderr is not None
        said = child.stderr.read()
    assert child.returncode == 0, said
    assert all((tmp_path / target).is_file() for target in targets)
    # the measurements ran on this machine, before the cluster had a job
    rules = ask(slurm, "squeue", "--noheader", "--states=all", "--format=%k")
    assert len(rules) == 4 and not [rule for rule in rules if "measure" in rule]
    assert "measuring kamailio-udp default cores=1 threads=2 cps=400 rep=1 on simulated" in said
    told = {line.split()[3]: line for line in said.splitlines() if line.startswith("disturbed: ")}
    assert set(told) == {killed, lost}, said
    assert all("(parse_run, summarise_run of simulated/" in line for line in told.values())
    assert all(line.endswith("attempt 2 of 3 follows") for line in told.values())
    assert "CANCELLED" in told[killed] or "NODE_FAIL" in told[killed]
    assert "NODE_FAIL" in told[lost]


def test_a_failed_cluster_job_is_reported_once_and_not_repeated(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    path = make_project(tmp_path)
    change_study(tmp_path, cps=[500], threads=[2], repetitions=1)
    (run,) = load_config(path).runs()
    synthetic.write_record(tmp_path / "raw", run, calls=40)
    (tmp_path / "raw" / run.path / "trace.bin.zst").write_bytes(b"damaged")
    before = len(ask(slurm, "squeue", "--noheader", "--states=all", "--format=%i"))
    with start(tmp_path, slurm, f"results/runs/{run.path}/summary.nc.zst") as child:
        assert child.stderr is not None
        said = child.stderr.read()
    assert child.returncode == 1
    (line,) = (line for line in said.splitlines() if "trace.bin.zst" in line)
    assert line.startswith("error: ") and "(rule parse_run, logs/parse/" in line
    jobs = ask(slurm, "squeue", "--noheader", "--states=all", "--format=%i")
    assert len(jobs) == before + 1


def test_cluster_jobs_compute_quantiles_of_all_messages(
    slurm: dict[str, str],
) -> None:
    """Run the benchmark, which fails if a quantile differs from the exact quantile by more than 1 %."""
    benchmark = PROJECT_ROOT / "benchmarks" / "messages_on_dask.py"
    done = subprocess.run(
        [sys.executable, benchmark, "--messages", "3000000", "--workers", "2", "--slurm"],
        env=slurm,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("% from the exact value") == 4
    names = ask(slurm, "squeue", "--noheader", "--states=all", "--format=%j")
    assert names.count("dask-worker") == 2


def test_a_killed_cluster_leaves_nothing_that_blocks_the_next(
    slurm: dict[str, str],
) -> None:
    """Kill one process. All processes of the cluster and their jobs must end, and the next cluster must start empty."""
    ask(slurm, "sbatch", "--output=/dev/null", "--wrap=exec sleep 600.125")
    wait_for(lambda: bool(pids("^sleep 600.125")), 10)
    (keeper,) = pids(f"^unshare .*{cluster.KEEPER}")
    os.kill(keeper, 9)
    wait_for(lambda: not pids(f"^sleep 600.125|slurm.* -f {cluster.SLURM_CONF}"), 10)
    began = time.monotonic()
    cluster.bring_up()
    assert time.monotonic() - began < cluster.PATIENCE_S
    assert ask(slurm, "squeue", "--noheader", "--states=all", "--format=%i") == []


def test_common_keys_of_the_two_profiles_are_equal() -> None:
    default, slurm = (
        yte.process_yaml((PROJECT_ROOT / "profiles" / name / "config.yaml").read_text())
        for name in ("default", "slurm")
    )
    shared = set(default) - {"cores", "executor"}
    assert {key: slurm[key] for key in shared} == {key: default[key] for key in shared}
