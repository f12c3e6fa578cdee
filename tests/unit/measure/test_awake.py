"""Tests of the programs that keep the CPUs of a testbed from halting."""

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sipsched.errors import TransientError
from sipsched.measure.quiet import awake
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.inventory import Testbed, load_testbed


class Sps:
    """A host that records what is started and stopped, and whose programs run unless `ended` is True."""

    def __init__(self, *, ended: bool = False) -> None:
        self.base, self.ended = Path("/work"), ended
        self.events: list[Any] = []

    def require_built(self, part: str, programs: list[str]) -> None:
        self.events.append((part, *programs))

    def start(self, name: str, argv: list[str], *, cpus: list[int], limit_s: float) -> Any:
        self.events.append((name, argv, cpus, limit_s))
        return SimpleNamespace(name=name)

    def stop(self, process: Any) -> None:
        self.events.append(f"stop {process.name}")

    def is_running(self, process: Any) -> bool:
        return not self.ended


@pytest.fixture
def testbed() -> Testbed:
    bed = load_testbed("local-awake")
    generators = {role: replace(getattr(bed, role), cpus=(5,)) for role in ("uac", "uas")}
    return replace(bed, **generators)


def test_a_program_of_the_lowest_class_runs_on_each_cpu(testbed: Testbed) -> None:
    sps = Sps()
    program = ["chrt", "--idle", "0", "/work/native/scheduler/awake"]
    with awake(sps, testbed, (1, 2), 60):  # type: ignore[arg-type]
        assert sps.events == [
            ("scheduler", "awake"),
            ("awake-1", program, [1], 60),
            ("awake-2", program, [2], 60),
            # The load generators of the embedded testbed are on the same machine.
            ("awake-5", program, [5], 60),
        ]
    assert sps.events[4:] == ["stop awake-5", "stop awake-2", "stop awake-1"]


def test_other_hosts_keep_their_own_cpus(testbed: Testbed) -> None:
    sps = Sps()
    with awake(sps, replace(testbed, kind="ssh"), (1,), 60):  # type: ignore[arg-type]
        pass
    assert [event[0] for event in sps.events if isinstance(event, tuple)] == [
        "scheduler",
        "awake-1",
    ]


def test_a_testbed_that_does_not_ask_for_it_starts_nothing() -> None:
    sps = Sps()
    with awake(sps, load_testbed("local"), (1,), 60):  # type: ignore[arg-type]
        pass
    assert sps.events == []


def test_a_program_that_ended_fails_the_run(testbed: Testbed) -> None:
    with (
        pytest.raises(TransientError, match="awake-5 ended during the run"),
        awake(Sps(ended=True), testbed, (), 60),  # type: ignore[arg-type]
    ):
        pass


def test_the_program_keeps_its_cpu_busy_until_it_is_stopped(tmp_path: Path) -> None:
    source = PROJECT_ROOT / "hardware/scheduler"
    common = [str(PROJECT_ROOT / "hardware/common" / name) for name in ("arguments.c", "program.c")]
    program = tmp_path / "awake"
    subprocess.run(
        ["cc", "-O2", "-D_GNU_SOURCE", str(source / "awake.c"), *common, "-o", str(program)],
        check=True,
    )
    assert subprocess.run([str(program), "now"], capture_output=True).returncode == 2
    process = subprocess.Popen([str(program)])
    time.sleep(0.5)
    used = Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    process.terminate()
    assert process.wait() == 0
    assert int(used[11]) / os.sysconf("SC_CLK_TCK") > 0.05
