"""Tests of the terminal's output, and of runs that are disturbed, refused or broken.

No run is measured here. A test script replaces the measuring script: it writes a synthetic record, or fails as
requested. Everything else is the real workflow.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import synthetic
from bs4 import BeautifulSoup
from faults.checks import make_project
from helpers import change_config, change_study, python

from sipsched.plan.config import load_config

NOISE_WORDS = (
    *("RuleException", "CalledProcessError", "Error in rule", "Trying to restart", "Traceback"),
    *("Cannot restore", "WorkflowError", "Exiting because", "Building DAG", "Select jobs"),
)
"""Snakemake's texts about errors, which must not appear, because the project reports errors in its own words."""
MEASURE_RUN = """
import json, sys, time
from pathlib import Path
from sipsched import scripting
from sipsched.errors import StableError, TransientError
from sipsched.plan import config
from sipsched.plan.run import Run

scripting.end_in_order()
with scripting.one_line_errors(snakemake.log[0], snakemake.resources.attempt):
    run = Run.from_wildcards(snakemake.wildcards)
    attempt = snakemake.resources.attempt
    with Path("started").open("a") as file:
        file.write(f"{{run.threads}}/{{run.rep}} {{attempt}}\\n")
    fate = json.loads(Path("fates.json").read_text()).get(f"{{run.threads}}/{{run.rep}}", "")
    if fate == "refused":
        raise StableError(f"{{run}}: kamailio is not installed")
    if fate == "broken":
        raise KeyError("a mistake in the program")
    if fate == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "slow":
        time.sleep(60)
    if fate and attempt <= int(fate):
        raise TransientError(f"{{run}}: run is not valid: the hypervisor took 4.0% of it")
    sys.path.insert(0, {tests!r})
    import synthetic
    # remove the run's folder, which Snakemake has created
    (Path("raw") / run.path).rmdir()
    synthetic.write_record(Path("raw"), run, calls=40)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project of four runs (2 and 4 threads, two repetitions) without documents."""
    make_project(tmp_path)
    change_study(tmp_path, cps=[500], threads=[2, 4], repetitions=2)
    change_config(tmp_path, lambda d: d.pop("documents"))
    tests = str(Path(synthetic.__file__).parent)
    script = tmp_path / "workflow" / "scripts" / "measure_run.py"
    script.write_text(MEASURE_RUN.format(tests=tests))
    noise = tmp_path / "raw" / "local" / "noise.json"
    noise.parent.mkdir(parents=True)
    noise.write_text(synthetic.sealed(synthetic.noise()))
    return tmp_path


def run(project: Path, fates: Mapping[str, str], *command: str) -> tuple[int, list[str], list[str]]:
    """Run Snakemake or a script. Return its exit code, its output, and the runs in the order of their start."""
    (project / "fates.json").write_text(json.dumps(fates))
    started = project / "started"
    started.unlink(missing_ok=True)
    done = python(project, *(command or ("-m", "snakemake", *RUNS)))
    said = (done.stdout + done.stderr).splitlines()
    return done.returncode, said, started.read_text().splitlines() if started.exists() else []


def told_by_snakemake(said: list[str]) -> list[str]:
    return [words for words in NOISE_WORDS if any(words in line for line in said)]


RUNS = [
    f"raw/local/kamailio-udp/default/cores~1/threads~{threads}/cps~500/rep~{rep}/run.json"
    for threads in (2, 4)
    for rep in (1, 2)
]
"""Paths of the records of all four runs, which require only measurements if they are Snakemake's targets."""


def test_a_disturbed_run_is_tried_again_after_the_others(project: Path) -> None:
    code, said, started = run(project, {"2/1": "1", "4/1": "2"})
    assert code == 0, "\n".join(said)
    assert started[:4] == ["2/1 1", "4/1 1", "2/2 1", "4/2 1"]
    assert started[4:] == ["2/1 2", "4/1 2", "4/1 3"]
    text = "\n".join(said)
    assert not told_by_snakemake(said), text
    first = "kamailio-udp default cores=1 threads=2 cps=500 rep=1 on local"
    assert f"measuring {first}: run 1 of 4, about " in text
    assert (
        f"disturbed: {first}: run is not valid: the hypervisor took 4.0% of it; attempt 2 of 3"
        in text
    )
    assert f"attempt 2 of 3: measuring {first}: run 1 of 4, about " in text
    (log,) = (project / ".snakemake" / "log").iterdir()
    kept = log.read_text()
    assert all(words in kept for words in ("Error in rule measure_run", "Cannot restore", first))


def test_a_run_that_is_always_disturbed_is_skipped_and_tried_again_next_time(
    project: Path,
) -> None:
    code, said, started = run(project, {"4/2": "9"})
    assert code == 1
    assert [line for line in started if line.startswith("4/2")] == ["4/2 1", "4/2 2", "4/2 3"]
    assert said[-1] == "1 of 4 runs is missing: snakemake measures it"
    assert not told_by_snakemake(said), "\n".join(said)
    code, said, started = run(project, {"4/2": "1"})
    assert (code, started) == (0, ["4/2 1", "4/2 2"])


def test_permanent_errors_are_not_tried_again(project: Path) -> None:
    """Check a refused run, a mistake in the program, and a killed job. Each error message names the remedy."""
    code, said, started = run(project, {"2/1": "refused", "4/1": "broken", "2/2": "killed"})
    assert code == 1
    assert started == ["2/1 1", "4/1 1", "2/2 1", "4/2 1"]
    text = "\n".join(said)
    point = "kamailio-udp/default/cores~1/threads~{}/cps~500/rep~{}"
    refused = (
        "error: kamailio-udp default cores=1 threads=2 cps=500 rep=1 on local: kamailio is not"
    )
    assert len([line for line in said if line.startswith(refused)]) == 1
    for place, first, last in (
        (point.format(4, 1), "  the end of {}:", "    KeyError: 'a mistake in the program'"),
        (point.format(2, 2), "  {} is empty", "SIGKILL"),
    ):
        what = f"error: rule measure_run failed, which makes raw/local/{place}/run.json (update)"
        line = said.index(what)
        assert said[line + 1] == first.format(f"logs/measure/local/{place}.log")
        assert last in "\n".join(said[line + 2 : line + 15])
    assert "Error in rule" not in text
    assert said[-1] == (
        "3 of 4 runs are missing: snakemake measures them after the errors above are fixed"
    )


def test_a_failing_notebook_is_reported_with_its_cell_and_rule(project: Path) -> None:
    change_study(project, threads=[2], repetitions=1)
    path = project / "notebooks" / "load_sweep.ipynb"
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells[0]["source"] = ["1 / 0"]
    path.write_text(json.dumps(notebook))
    code, said, _ = run(project, {}, "-m", "snakemake", "reports/load_sweep-local.html")
    assert code == 1
    (line,) = (line for line in said if line.startswith("error: "))
    assert re.search(r"load_sweep\.ipynb: cell \d+ \(1 / 0\): ZeroDivisionError", line)
    assert line.endswith("(rule render_report, logs/report/load_sweep-local.log)")


def test_pages_are_made_from_existing_runs_and_a_study_with_all_points_has_an_answer(
    project: Path,
) -> None:
    change_study(project, threads=[2])
    code, said, _ = run(project, {"2/2": "9"}, "workflow/reproduce.py")
    assert code == 0, "\n".join(said)
    page = project / "reports" / "index.html"
    assert f"Open: {page}" in said
    assert page.exists() and "1 of 2 planned runs are valid" in page.read_text()
    assert said[-1] == "1 of 2 runs is missing: snakemake measures it"
    assert said.count(said[-1]) == 1
    assert not told_by_snakemake(said), "\n".join(said)


def test_a_study_without_an_answer_is_no_success(project: Path) -> None:
    change_study(project, repetitions=1)
    code, said, started = run(project, {"2/1": "9"}, "workflow/reproduce.py")
    assert code == 1
    assert len(started) == 1 + 3
    assert f"Open: {project / 'reports' / 'index.html'}" in said
    assert said[-2:] == [
        "1 of 2 runs is missing: snakemake measures it",
        "load_sweep on local has no answer, because nothing is recorded for "
        "kamailio-udp default cores=1 threads=2 cps=500",
    ]


def test_without_any_recorded_run_no_page_is_tried(project: Path) -> None:
    change_study(project, threads=[2], repetitions=1)
    code, said, _ = run(project, {"2/1": "9"}, "workflow/reproduce.py")
    assert code == 1
    assert not [line for line in said if "combine" in line or line.startswith("Open:")]
    assert said[-2] == "1 of 1 run is missing: snakemake measures it"
    assert said[-1].startswith("load_sweep on local has no answer")


def test_an_error_that_prevents_the_start_is_reported_once(project: Path) -> None:
    path = project / "config" / "config.yaml"
    path.write_text(
        path.read_text().replace("[local]", "[nowhere]").replace("- local", "- nowhere")
    )
    code, said, started = run(project, {}, "workflow/reproduce.py")
    assert (code, started) == (1, [])
    assert len([line for line in said if "nowhere" in line]) == 1
    assert not [line for line in said if line.startswith("Open:")]


@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_an_interrupt_is_reported_in_one_line(project: Path, after_s: float) -> None:
    """Interrupt a run at its start, while the program may still load modules, or later during the run."""
    (project / "fates.json").write_text(json.dumps({"2/1": "slow"}))
    command = [sys.executable, "-m", "snakemake", *RUNS]
    with subprocess.Popen(
        command, cwd=project, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            if line.startswith("measuring "):
                break
        time.sleep(after_s)
        os.killpg(child.pid, signal.SIGINT)
        rest = child.stderr.read().splitlines()
    assert child.returncode == 1
    assert rest == [
        "interrupted: nothing measured before is lost; the same command continues from here"
    ]
    assert not list((project / "raw").rglob("run.json"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("after_s", [0.0, 0.7])
def test_an_interrupt_while_snakemake_starts_leaves_no_traceback(
    project: Path, after_s: float
) -> None:
    with subprocess.Popen(
        [sys.executable, "workflow/reproduce.py"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        while not children.read_text():
            time.sleep(0.01)
        time.sleep(after_s)
        os.killpg(child.pid, signal.SIGINT)
        text = child.stdout.read()
    assert child.returncode == 1
    assert "Traceback" not in text, text
    assert not list((project / "raw").rglob("run.json"))


def test_a_dry_run_says_how_many_runs_are_left_and_when_they_would_end(project: Path) -> None:
    def outlook(*command: str) -> list[str]:
        _, said, _ = run(project, {}, "-m", "snakemake", "-n", *command)
        return [line for line in said if line.startswith("local: ")]

    (line,) = outlook()
    assert re.fullmatch(
        r"local: 0 of 4 runs measured, 1 minute of testbed time left, done about \d\d:\d\d UTC "
        r"\(estimated from the length of the load, because no run is recorded yet\)",
        line,
    )
    assert not (project / "reports" / "progress.html").exists()
    run(project, {"4/2": "9"})
    (line,) = outlook(*RUNS)
    assert line.startswith("local: 3 of 4 runs measured, 1 minute of testbed time left")
    assert line.endswith("(estimated from the times of 3 recorded runs)")
    run(project, {})
    assert outlook(*RUNS) == ["local: all 4 runs measured"]
    assert outlook("--config", "only_measured=True") == []


def test_a_page_shows_the_progress_and_the_refused_runs(project: Path) -> None:
    page = project / "reports" / "progress.html"
    failed = project / "raw/local/kamailio-udp/default/cores~1/threads~4/cps~500/rep~2.failed-1"
    failed.mkdir(parents=True)
    (failed / "failure.txt").write_text("the link of <uac> was lost\n")
    (project / "fates.json").write_text(json.dumps({"2/2": "slow"}))
    command = [sys.executable, "-m", "snakemake", *RUNS]
    with subprocess.Popen(
        command, cwd=project, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("measuring ") and "threads=2 cps=500 rep=2" in line:
                break
        during = page.read_text()
        os.killpg(child.pid, signal.SIGINT)
        child.stderr.read()
    # the workflow writes the page about progress when the first run starts, and again at the end
    assert (
        "this run is being measured: kamailio-udp default cores=1 threads=2 cps=500 rep=1 on local"
        in during
    )
    after = page.read_text()
    assert "No run is measured now." in after and "the same command continues" in after
    for text in (during, after):
        assert "the link of &lt;uac&gt; was lost" in text
        assert "kamailio-udp default cores=1 threads=4 cps=500 rep=2 on local" in text
    rows = [
        [cell.get_text() for cell in row.select("th, td")]
        for row in BeautifulSoup(after, "html.parser").select("tr")
    ]
    assert ["local", "2", "2"] in [row[:3] for row in rows]


HANGING = """
import sys, time
import snakemake_executor_plugin_campaign as plugin
from snakemake import cli, workflow

plugin.LAST_S = 1
workflow.Workflow.tear_down = lambda self: time.sleep(600)
cli.main(sys.argv[1:])
"""
"""A Snakemake that never ends by itself, like a Snakemake whose event loop waits for a task."""


def test_an_interrupted_snakemake_ends_even_if_it_waits_forever(project: Path) -> None:
    (project / "fates.json").write_text(json.dumps({"2/1": "slow"}))
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, RUNS[0]],
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("measuring "):
                break
        os.killpg(child.pid, signal.SIGINT)
        try:
            assert child.wait(60) == 1
        finally:
            child.kill()


def test_snakemakes_options_dry_run_and_quiet_still_work(project: Path) -> None:
    runs = len(load_config(project / "config" / "config.yaml").runs())
    _, said, started = run(project, {}, "-m", "snakemake", "-n")
    assert started == []
    assert "measure_run" in [line.split()[0] for line in said if line.split()[1:] == [str(runs)]]
    assert not [line for line in said if line.startswith("rule ")]
    _, said, _ = run(project, {}, "-m", "snakemake", "-n", "-p")
    assert len([line for line in said if ": Measure kamailio-udp" in line]) == runs
    target, profile = RUNS[0], "Using workflow specific profile"
    refused = {"2/1": "refused"}
    code, said, _ = run(project, refused, "-m", "snakemake", "--quiet", "all", "--", target)
    assert (code, [line for line in said if not line.startswith(profile)]) == (1, [])
    _, said, _ = run(project, refused, "-m", "snakemake", "-p", target)
    assert said.count("Error in rule measure_run:") == 1
    _, said, _ = run(project, {"2/1": "1"}, "-m", "snakemake", "--quiet", "progress", "--", target)
    assert [line for line in said if "measuring " in line] == []
    assert len([line for line in said if line.startswith("disturbed: ")]) == 1
