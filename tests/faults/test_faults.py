"""Test each fault of tests/faults/table.py on a real run, and check host and records after the run."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from faults import checks
from faults.table import (
    CASES,
    FAULTY,
    INTO_LOAD_S,
    LONG,
    OF_INSTANCES,
    CannotInjectError,
    Case,
    Target,
    kill_target,
)
from helpers import snakemake, start_run, wait_for_load

from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.records import record
from sipsched.records.run_document import read_run
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed
from sipsched.validity.verdict import VALID

CPS = 200
RAW_MIB = 256
LONGEST_S = 60
AGAIN = 1000
"""Number to add to the repetition of the run after the fault, so that the record of this run has a new path."""


@dataclass(frozen=True)
class Project:
    """A scratch project that measures on a running testbed.

    Attributes
    ----------
    settings
        Path of its configuration.
    strict
        The same configuration with the default limits of the rules on other programs.
    raw
        Folder of its records, on its own small disk.
    state
        State of the host after a plain run.
    """

    settings: Path
    strict: Path
    raw: Path
    bed: Testbed
    state: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.settings.parent.parent

    def measure(self, run: Run) -> Path:
        """Measure a plain run with one second of load."""
        campaign = load_config(self.settings)
        load = replace(campaign.load, duration_s=1.0, drain_s=0.5)
        return acquisition.measure(run, replace(campaign, load=load), self.bed, self.raw)


def run_of(rep: int, sut: str | None = None, mode: str = "default") -> Run:
    return Run("local", sut or "kamailio-udp", mode, 1, 2, CPS, rep)


@pytest.fixture(scope="module")
def project(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    checks.make_project(folder, duration_s=2, warmup_s=0.1, drain_s=1.0)
    settings = checks.declare_faulty(folder)
    strict = checks.with_real_limits(
        settings, ("competitor_share", "competitor_wait_us", "frozen_us")
    )
    raw = folder / "raw"
    raw.mkdir()
    size = f"size={RAW_MIB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(raw)], check=True)
    try:
        local.take_down()
        local.ensure_up(testbed)
        made = Project(settings, strict, raw, testbed, {})
        made.measure(run_of(1))
        # Wait before the state is read, because the host closes the last connection a moment later.
        time.sleep(0.5)
        yield replace(made, state=checks.host_state())
    finally:
        local.take_down()
        subprocess.run(["umount", "--lazy", str(raw)], check=True)


def start(case: Case, project: Project, run: Run, said: Path) -> "subprocess.Popen[bytes]":
    with said.open("w") as stderr:
        if not case.through_snakemake:
            return start_run(
                project.raw,
                sut=run.sut,
                mode=run.mode,
                cps=CPS,
                rep=run.rep,
                settings=project.strict if case.competes else project.settings,
                retransmissions=case.retransmissions,
                stderr=stderr,
            )
        # Start Snakemake in its own process group as a terminal does, so that a fault can send SIGINT to the group.
        target = f"raw/{run.path}/run.json"
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", target],
            cwd=project.folder,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )


def disturb(case: Case, project: Project, run: Run, said: Path) -> None:
    """Start the run, inject the fault at the time that the case names, and wait for the end of the run."""
    target = Target(None, project.raw, project.bed)
    if case.before:
        with case.inject(target), start(case, project, run, said) as process:
            process.wait(LONGEST_S)
        return
    with start(case, project, run, said) as process:
        wait_for_load(process)
        time.sleep(INTO_LOAD_S)
        with case.inject(replace(target, pid=process.pid)):
            process.wait(LONGEST_S)


def plain_run_succeeds(case: Case, project: Project, run: Run) -> None:
    if not case.through_snakemake:
        if record.is_recorded(project.raw, run):
            run = replace(run, rep=run.rep + AGAIN)
        project.measure(run)
        return
    target = f"raw/{run.path}/run.json"
    done = snakemake(project.folder, target)
    assert done.returncode == 0, done.stderr
    assert record.is_recorded(project.raw, run)


def remove_attempts(project: Project, run: Run) -> None:
    """Remove the records of an earlier attempt at this test."""
    for rep in (run.rep, run.rep + AGAIN):
        place = project.raw / replace(run, rep=rep).path
        for folder in (place, *place.parent.glob(f"{place.name}.failed-*")):
            shutil.rmtree(folder, ignore_errors=True)


def reasons(project: Project, run: Run) -> str:
    """Return the recorded reasons of failed attempts at a run."""
    place = project.raw / run.path
    files = sorted(place.parent.glob(f"{place.name}.failed-*/{record.REASON_FILE}"))
    return "".join(path.read_text() for path in files)


def rules_broken(project: Project, run: Run) -> set[str]:
    """Return the rules that the run or its failed attempts broke."""
    place = project.raw / run.path
    result = set()
    for folder in (place, *place.parent.glob(f"{place.name}.failed-*")):
        try:
            findings = read_run(folder).verdict.broken
        except StableError:
            continue
        result |= {finding.rule for finding in findings}
    return result


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=[
                *([pytest.mark.quiet] if case.competes else ()),
                *([pytest.mark.long] if case.name in LONG else ()),
            ],
        )
        for case in (*CASES, *OF_INSTANCES)
    ],
    ids=lambda case: case.name.replace(" ", "-"),
)
def test_fault(case: Case, project: Project, tmp_path: Path) -> None:
    run = run_of(100 + (*CASES, *OF_INSTANCES).index(case), case.sut, case.mode)
    # After most faults, a run of one instance is enough, because it uses the same parts of the testbed. Only the next
    # attempt at the same run writes the reason why the killed process left no record. A faulty SUT would fail again.
    other = case.sut in FAULTY or (case in OF_INSTANCES and case.inject is not kill_target)
    plain = run_of(run.rep) if other else run
    for each in (run, plain):
        remove_attempts(project, each)
    recorded = checks.digests(project.raw)
    said = tmp_path / "said"
    try:
        disturb(case, project, run, said)
    except CannotInjectError as error:
        pytest.skip(f"this machine cannot: {error}")
    lines = said.read_text().splitlines()
    text = "\n".join(lines)
    # The run ends without a traceback and with at most one error line.
    assert "Traceback" not in text, text
    assert len([line for line in lines if re.match("error:|interrupted:", line)]) <= 1, text
    broken = rules_broken(project, run)

    assert not (result := checks.unlike(project.state)), "\n".join(result)
    assert checks.changed(recorded, project.raw) == []
    survived = record.is_recorded(project.raw, run)
    plain_run_succeeds(case, project, plain)
    assert not (result := checks.unlike(project.state)), "\n".join(result)
    assert checks.changed(recorded, project.raw) == []

    text += reasons(project, run)
    match case.expected:
        case None:
            assert read_run(project.raw / run.path).verdict.grade == VALID, text
            assert survived or case.through_snakemake, text
        case str(words):
            assert re.search(words, text, re.MULTILINE), text
            assert not survived
        case rules:
            assert rules <= broken, (broken, text)


def test_the_faults_of_the_soak_test_exist() -> None:
    assert {case.name for case in (*CASES, *OF_INSTANCES)} >= LONG
