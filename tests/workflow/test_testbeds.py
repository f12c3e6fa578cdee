"""Several testbeds in one campaign: which measure at the same time, and what one that fails does to the others.

Runs are not measured here, as in test_terminal: what is looked at is when each of them starts and ends.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
import yaml
from faults.checks import make_project

from sipsched.paths import PROJECT_ROOT

MEASURE_RUN = """
import sys, time
from pathlib import Path
from sipsched import scripting
from sipsched.errors import TransientError
from sipsched.plan import config
sys.path.insert(0, {tests!r})
import synthetic

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0], snakemake.resources.attempt):
    run = config.Run.from_wildcards(snakemake.wildcards)
    began = time.time()
    time.sleep(60 if run.testbed == "stuck" else 1)
    with Path("measured").open("a") as file:
        file.write(f"{{run.testbed}} {{began}} {{time.time()}}\\n")
    if run.testbed == "rack-b":
        raise TransientError(f"{{run}}: sps (root@rack-b:22): no answer")
    (Path("raw") / run.path).rmdir()
    synthetic.write_record(Path("raw"), run, calls=5)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two runs on each of three testbeds of kind ssh and the local one; nothing is analysed."""
    path = make_project(tmp_path)
    document = yaml.safe_load(path.read_text())
    document["testbeds"] = ["rack-a", "rack-b", "rack-c", "local"]
    document["studies"]["load_sweep"] |= {"cps": [500], "threads": [2], "repetitions": 2}
    document.pop("documents")
    path.write_text(yaml.safe_dump(document))
    beds = tmp_path / "hardware" / "testbeds"
    example = (beds / "example-physical.yaml").read_text()
    for name in document["testbeds"][:3]:
        (beds / f"{name}.yaml").write_text(
            example.replace("name: example-physical", f"name: {name}")
        )
    script = tmp_path / "workflow" / "scripts" / "measure_run.py"
    script.write_text(MEASURE_RUN.format(tests=str(Path(synthetic.__file__).parent)))
    for name in document["testbeds"]:
        noise = tmp_path / "raw" / name / "noise.json"
        noise.parent.mkdir(parents=True)
        noise.write_text(json.dumps(synthetic.noise()))
    return tmp_path


def test_testbeds_measure_side_by_side_alone_on_this_machine_and_one_that_fails_stops_none(
    project: Path,
) -> None:
    command = [sys.executable, "-m", "snakemake", "--until", "measure_run", "--cores", "1"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    spans: dict[str, list[tuple[float, float]]] = {}
    for line in (project / "measured").read_text().splitlines():
        name, began, ended = line.split()
        spans.setdefault(name, []).append((float(began), float(ended)))
    # what fails is tried three times; what does not is measured all the same
    assert {name: len(of_bed) for name, of_bed in spans.items()} == {
        **{"rack-a": 2, "rack-b": 6, "rack-c": 2, "local": 2}
    }
    assert len(list((project / "raw").glob("*/kamailio-udp/**/run.json"))) == 6
    for of_bed in spans.values():
        assert not any(overlap(*pair) for pair in itertools.combinations(of_bed, 2))
    for name in ("rack-a", "rack-b", "rack-c"):
        assert not any(overlap(*pair) for pair in itertools.product(spans[name], spans["local"]))
    # more than one at a time, though there is one core
    racks = itertools.product(spans["rack-a"], spans["rack-b"] + spans["rack-c"])
    assert any(overlap(*pair) for pair in racks)
    said = [line for line in done.stderr.splitlines() if line.startswith("disturbed: ")]
    assert len(said) == 6 and all("on rack-b: sps" in line for line in said)


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_a_second_controller_is_refused_and_told_of_the_first(project: Path) -> None:
    path = project / "config" / "config.yaml"
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(document | {"testbeds": ["stuck"]}))
    bed = (PROJECT_ROOT / "hardware" / "testbeds" / "example-physical.yaml").read_text()
    (project / "hardware" / "testbeds" / "stuck.yaml").write_text(
        bed.replace("name: example-physical", "name: stuck")
    )
    command = [sys.executable, "-m", "snakemake", "--until", "measure_run"]
    with subprocess.Popen(
        command, cwd=project, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if line.startswith("measuring "):
                break
        second = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        os.killpg(first.pid, signal.SIGKILL)
    assert second.returncode == 1
    (line,) = (line for line in second.stderr.splitlines() if "error" in line.lower())
    assert line.startswith(f"error: these files are being made by snakemake (pid {first.pid} of ")
    # one that was killed is in nobody's way
    third = subprocess.run([*command, "-n"], cwd=project, capture_output=True, text=True)
    assert third.returncode == 0
