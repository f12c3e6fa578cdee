"""Tests of Snakemake's internals on which the planner depends. A test fails if a new Snakemake behaves differently."""

import subprocess
import sys
from pathlib import Path

SNAKEFILE = """\
from snakemake_executor_plugin_campaign import internals

ASKED = internals.CurrentWorkflow(workflow, checkpoints)
POINT = "bed/sut/default/cores~1/threads~2"


def measured_again(wildcards):
    ASKED.wait_for("bed.crossing")
    if not ASKED.forces_jobs:
        ASKED.make_again(f"{POINT}/cps~5/rep~1.run")
    return [ASKED.as_it_is("settled.summary.nc.zst"), f"{POINT}/cps~5/rep~1.summary"]


rule page:
    default_target: True
    input:
        measured_again,
    output:
        "index.html",
    shell:
        "touch {output}"


rule summarise:
    input:
        "{run}.run",
    output:
        "{run}.summary",
    shell:
        "touch {output}"


# this rule makes a file that the planner wants to use unchanged, so Snakemake must start no job of the rule
rule not_looked_for:
    output:
        "settled.summary.nc.zst",
    shell:
        "exit 1"


checkpoint find_crossing:
    output:
        "{testbed}.crossing",
    resources:
        measures=1,
    shell:
        "touch {output}"


rule measure:
    output:
        update("{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}/cps~{cps}/rep~{rep}.run"),
    log:
        "measure-{testbed}-{sut}-{mode}-{cores}-{threads}-{cps}-{rep}.log",
    resources:
        measures=1,
        expected_s=1,
    shell:
        "echo 'error: out of order' > {log}; exit 1"


onerror:
    jobs = [job for job in workflow.dag.jobs if internals.measures_run(job)]
    assert internals.left_to_measure(workflow.dag) == jobs
    assert [job.rule.name for job in workflow.dag.jobs if internals.searches(job)] == ["find_crossing"]
    assert internals.config_of(workflow) is config
    assert not internals.runs_jobs(workflow.scheduler)
    internals.report_failure(workflow, jobs[0])
    for line in internals.missing_lines(workflow, "index.html"):
        print(line)
"""


def snakemake(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_each_question_has_its_answer(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "settled.summary.nc.zst").touch()
    point = tmp_path / "bed/sut/default/cores~1/threads~2/cps~5"
    point.mkdir(parents=True)
    for name in ("rep~1.run", "rep~1.summary"):
        (point / name).touch()
    done = snakemake(tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "not_looked_for" not in said
    assert "1 of 2 runs is missing" in said
    assert "only_measured=True" in said

    # if the user forces jobs (--forcerun), the planner must not force other jobs
    forced = snakemake(tmp_path, "--forcerun", "summarise")
    assert forced.returncode == 0, forced.stdout + forced.stderr


MANY_JOBS = """\
from types import SimpleNamespace

from sipsched.measure.aside import Aside

PLAN = SimpleNamespace(aside=Aside())


rule all:
    input:
        expand("quick-{i}", i=range(12)),
        "slow",
        "last",


rule quick:
    priority: 2
    output:
        "quick-{i}",
    shell:
        "touch {output}"


rule slow:
    priority: 1
    output:
        "slow",
    shell:
        "sleep 3; touch {output}"


# this job is ready, and waits for the core that `slow` occupies
rule wait:
    output:
        "last",
    shell:
        "touch {output}"
"""


def test_snakemake_looks_for_new_jobs_only_when_a_job_ends(tmp_path: Path) -> None:
    """Count how often Snakemake looks for jobs. A look takes milliseconds on the proxy's CPU, and delays messages."""
    (tmp_path / "Snakefile").write_text(MANY_JOBS)
    done = snakemake(tmp_path, "--scheduler", "campaign", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "15 of 15 steps (100%) done" in done.stderr
    # Snakemake may look for jobs once per start of a job, and once per end of a job
    assert done.stderr.count("Ready jobs: ") <= 2 * 15
