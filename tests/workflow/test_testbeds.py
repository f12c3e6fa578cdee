"""Tests of several testbeds in one campaign: simultaneous measurements, and a failing testbed.

As in test_terminal.py, another script replaces the measuring script. The tests check the start and end of each run.
"""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from faults.checks import make_project
from helpers import change_config, change_study, snakemake

from sipsched.paths import PROJECT_ROOT

MEASURE_RUN = """
import sys, time
from pathlib import Path
from sipsched import scripting
from sipsched.errors import LostError, TransientError
from sipsched.plan import config
from sipsched.plan.run import Run
sys.path.insert(0, {tests!r})
import synthetic

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0], snakemake.resources.attempt):
    run = Run.from_wildcards(snakemake.wildcards)
    began = time.time()
    time.sleep(60 if run.testbed == "stuck" else 1)
    with Path("measured").open("a") as file:
        file.write(f"{{run.testbed}} {{began}} {{time.time()}}\\n")
    lost = Path("lost")
    if run.testbed == "rack-b" and lost.exists():
        left = int(lost.read_text())
        if left:
            lost.write_text(str(left - 1))
            raise LostError(f"{{run}}: host sps (root@rack-b:22) is unreachable")
    elif run.testbed == "rack-b":
        raise TransientError(f"{{run}}: sps (root@rack-b:22): no answer")
    (Path("raw") / run.path).rmdir()
    synthetic.write_record(Path("raw"), run, calls=5)
"""


MEASURE = ("--until", "measure_run")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project of two runs on three testbeds of kind ssh and on the local testbed, without analysis."""
    make_project(tmp_path)
    names = ["rack-a", "rack-b", "rack-c", "local"]
    change_study(tmp_path, cps=[500], threads=[2], repetitions=2)
    change_config(tmp_path, lambda d: d.update(testbeds=names, documents={}))
    beds = tmp_path / "hardware" / "testbeds"
    example = (beds / "example-physical.yaml").read_text()
    for name in names[:3]:
        (beds / f"{name}.yaml").write_text(
            example.replace("name: example-physical", f"name: {name}")
        )
    script = tmp_path / "workflow" / "scripts" / "measure_run.py"
    script.write_text(MEASURE_RUN.format(tests=str(Path(synthetic.__file__).parent)))
    for name in names:
        noise = tmp_path / "raw" / name / "noise.json"
        noise.parent.mkdir(parents=True)
        noise.write_text(synthetic.sealed(synthetic.noise()))
    return tmp_path


def test_testbeds_measure_simultaneously_and_a_failing_testbed_stops_no_other(
    project: Path,
) -> None:
    done = snakemake(project, *MEASURE, "--cores", "1")
    assert done.returncode == 1
    spans: dict[str, list[tuple[float, float]]] = {}
    for line in (project / "measured").read_text().splitlines():
        name, began, ended = line.split()
        spans.setdefault(name, []).append((float(began), float(ended)))
    # the workflow tries failing runs three times, and still measures all other runs
    assert {name: len(of_bed) for name, of_bed in spans.items()} == {
        **{"rack-a": 2, "rack-b": 6, "rack-c": 2, "local": 2}
    }
    assert len(list((project / "raw").glob("*/kamailio-udp/**/run.json"))) == 6
    for of_bed in spans.values():
        assert not any(overlap(*pair) for pair in itertools.combinations(of_bed, 2))
    for name in ("rack-a", "rack-b", "rack-c"):
        assert not any(overlap(*pair) for pair in itertools.product(spans[name], spans["local"]))
    # several testbeds measure at the same time, although Snakemake has only one core
    racks = itertools.product(spans["rack-a"], spans["rack-b"] + spans["rack-c"])
    assert any(overlap(*pair) for pair in racks)
    said = [line for line in done.stderr.splitlines() if line.startswith("disturbed: ")]
    assert len(said) == 6 and all("on rack-b: sps" in line for line in said)


@pytest.mark.parametrize("attempts_lost", [2, 1000])
def test_an_unreachable_testbed_is_set_aside_and_its_runs_wait(
    project: Path, attempts_lost: int
) -> None:
    change_study(project, repetitions=5)
    change_config(project, lambda d: d.update(testbeds=["rack-a", "rack-b"]))
    (project / "lost").write_text(str(attempts_lost))
    done = snakemake(project, *MEASURE)
    code, said = done.returncode, done.stderr.splitlines()
    attempts = [line.split()[0] for line in (project / "measured").read_text().splitlines()]
    recorded = {
        name: len(list((project / "raw" / name).rglob("run.json"))) for name in ("rack-a", "rack-b")
    }
    told = [line for line in said if line.startswith("rack-b ")]
    # after two attempts at an unreachable testbed, its runs wait until no other work remains
    assert attempts[-1] == "rack-b" and recorded["rack-a"] == 5
    assert told[0] == (
        "rack-b is set aside: its remaining 5 runs must wait; snakemake tries to reach it every 5 minutes, and "
        "when nothing else is left to do"
    )
    lost = [line for line in said if line.startswith("lost: ")]
    if attempts_lost == 2:
        assert (code, recorded["rack-b"], len(lost)) == (0, 5, 2)
        assert told[1:] == ["rack-b is reachable again"]
        return
    assert (code, recorded["rack-b"], len(lost)) == (1, 0, 3)
    assert told[1:] == [
        "rack-b is still unreachable: its remaining 5 runs must wait for the next snakemake"
    ]
    assert attempts.count("rack-b") == 3
    (project / "lost").write_text("0")
    assert snakemake(project, *MEASURE).returncode == 0
    assert len(list((project / "raw" / "rack-b").rglob("run.json"))) == 5


def test_twins_share_the_runs_and_one_takes_over_the_runs_of_a_lost_twin(
    project: Path,
) -> None:
    twins, asked = ["rack-a", "rack-b"], {"repetitions": 4, "modes": ["default", "batch"]}
    change_config(project, lambda d: d.update(testbeds=twins, twins=twins[:]))
    change_study(project, **asked)
    (project / "lost").write_text("1000")

    def measured(*arguments: str) -> tuple[list[str], set[tuple[str, ...]]]:
        done = snakemake(project, *MEASURE, *arguments)
        raw = project / "raw"
        records = {path.relative_to(raw).parts for path in raw.rglob("run.json")}
        return done.stderr.splitlines(), {(r[0], r[2], r[6]) for r in records}

    said, there = measured()
    assert there == {
        ("rack-a", mode, f"rep~{rep}") for mode in ("default", "batch") for rep in (2, 4)
    }
    assert (
        said.count(
            "rack-b is still unreachable: its remaining 4 runs must wait for the next snakemake; "
            "snakemake --config 'aside=[rack-b]' passes them to its twin"
        )
        == 1
    )
    # without rack-b, rack-a measures all runs, and keeps these runs when rack-b is reachable again
    every = {("rack-a", mode, f"rep~{rep}") for mode in ("default", "batch") for rep in range(1, 5)}
    assert measured("--config", "aside=[rack-b]")[1] == every
    (project / "lost").write_text("0")
    assert measured()[1] == every


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_a_second_controller_is_refused_with_the_name_of_the_first(project: Path) -> None:
    change_config(project, lambda d: d.update(testbeds=["stuck"]))
    bed = (PROJECT_ROOT / "hardware" / "testbeds" / "example-physical.yaml").read_text()
    (project / "hardware" / "testbeds" / "stuck.yaml").write_text(
        bed.replace("name: example-physical", "name: stuck")
    )
    command = [sys.executable, "-m", "snakemake", *MEASURE]
    with subprocess.Popen(
        command, cwd=project, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if line.startswith("measuring "):
                break
        second = snakemake(project, *MEASURE)
        os.killpg(first.pid, signal.SIGKILL)
    assert second.returncode == 1
    (line,) = (line for line in second.stderr.splitlines() if "error" in line.lower())
    assert line.startswith(f"error: these files are being made by snakemake (pid {first.pid} of ")
    # a killed controller does not block the next controller
    assert snakemake(project, *MEASURE, "-n").returncode == 0
