"""Each fault of the table, done to a real run; each ends in the same three checks."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from faults import checks
from faults.table import CASES, INTO_LOAD_S, CannotInjectError, Case, Target
from helpers import LOAD, pids, start_run, wait_for

from sipsched.errors import StableError
from sipsched.measure import acquisition
from sipsched.plan.config import Run, load_config
from sipsched.records import record
from sipsched.records.run_document import read_run
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed
from sipsched.validity.verdict import VALID

CPS = 200
RAW_MIB = 256
LONGEST_S = 60


@dataclass(frozen=True)
class Project:
    """A scratch project that measures on a testbed that is up.

    Attributes
    ----------
    settings
        Its configuration.
    raw
        Its records, on a small disk of their own.
    state
        The host once a plain run has ended.
    """

    settings: Path
    raw: Path
    bed: Testbed
    state: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.settings.parent.parent

    def measure(self, run: Run) -> Path:
        """Measure a plain run; one second of load tells whether it succeeds."""
        campaign = load_config(self.settings)
        load = replace(campaign.load, duration_s=1.0, drain_s=0.5)
        return acquisition.measure(run, replace(campaign, load=load), self.bed, self.raw)


def run_of(rep: int) -> Run:
    return Run("local", "kamailio-udp", "default", 1, 2, CPS, rep)


@pytest.fixture(scope="module")
def project(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    settings = checks.make_project(folder, duration_s=2, warmup_s=0.1, drain_s=1.0)
    raw = folder / "raw"
    raw.mkdir()
    size = f"size={RAW_MIB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(raw)], check=True)
    try:
        local.take_down()
        local.ensure_up(testbed)
        made = Project(settings, raw, testbed, {})
        made.measure(run_of(1))
        # the host lets go of our last connection a moment after we do
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
                cps=CPS,
                rep=run.rep,
                settings=project.settings,
                retransmissions=case.retransmissions,
                stderr=stderr,
            )
        # as a terminal does: a process group of its own
        target = f"raw/{run.path}/run.json"
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", target],
            cwd=project.folder,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )


def disturb(case: Case, project: Project, run: Run, said: Path) -> None:
    """Start the run, do the fault at its time, and wait for the end of what was started."""
    target = Target(None, project.raw, project.bed)
    if case.before:
        with case.inject(target), start(case, project, run, said) as process:
            process.wait(LONGEST_S)
        return
    with start(case, project, run, said) as process:
        wait_for(lambda: bool(pids(LOAD)), 20)
        time.sleep(INTO_LOAD_S)
        with case.inject(replace(target, pid=process.pid)):
            process.wait(LONGEST_S)


def plain_run_succeeds(case: Case, project: Project, run: Run) -> None:
    if not case.through_snakemake:
        if record.is_recorded(project.raw, run):
            run = replace(run, rep=run.rep + 1000)
        project.measure(run)
        return
    target = f"raw/{run.path}/run.json"
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", target],
        cwd=project.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert record.is_recorded(project.raw, run)


def reasons(project: Project, run: Run) -> str:
    """What was kept of why attempts at a run failed."""
    place = project.raw / run.path
    files = sorted(place.parent.glob(f"{place.name}.failed-*/{record.REASON_FILE}"))
    return "".join(path.read_text() for path in files)


def rules_broken(project: Project, run: Run) -> set[str]:
    """Rules that the run or its failed attempts broke."""
    place = project.raw / run.path
    found = set()
    for folder in (place, *place.parent.glob(f"{place.name}.failed-*")):
        try:
            findings = read_run(folder).verdict.broken
        except StableError:
            continue
        found |= {finding.rule for finding in findings}
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_fault(case: Case, project: Project, tmp_path: Path) -> None:
    run = run_of(100 + CASES.index(case))
    recorded = checks.digests(project.raw)
    said = tmp_path / "said"
    try:
        disturb(case, project, run, said)
    except CannotInjectError as error:
        pytest.skip(f"this machine cannot: {error}")
    lines = said.read_text().splitlines()
    text = "\n".join(lines)
    # what came of it: nothing but what is expected, in a line
    assert "Traceback" not in text, text
    assert len([line for line in lines if re.match("error:|interrupted:", line)]) <= 1, text
    broken = rules_broken(project, run)

    assert not (found := checks.unlike(project.state)), "\n".join(found)
    assert checks.changed(recorded, project.raw) == []
    survived = record.is_recorded(project.raw, run)
    plain_run_succeeds(case, project, run)
    assert not (found := checks.unlike(project.state)), "\n".join(found)
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
