"""The whole chain on a simulated testbed: search, runs, parsing, summary, report; no host and no root."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sipsched.paths import PROJECT_ROOT

STUDY = {
    "testbeds": ["simulated"],
    "only": ["load_sweep", "crossover"],
    "load": {"duration_s": 0.5},
    "crossover": {"mode_s": 4},
    "search": {"trial_s": 0.5, "trials_s": 0.5, "highest_cps": 8000, "relative_width": 0.3},
    "studies": {
        "load_sweep": {
            "modes": ["default"],
            "cores": [2],
            "cps": {"around_crossing_of": "default", "shares": [0.5]},
            "repetitions": 1,
        },
        "crossover": {
            "modes": ["default,default+policy=fifo"],
            "cores": [2],
            "cps": {"around_crossing_of": "default", "shares": [0.2]},
        },
    },
    "documents": {},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the tree without anything generated; the library stays the installed one."""
    for name in ("Snakefile", "config", "hardware", "workflow", "profiles", "notebooks"):
        source = PROJECT_ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    (tmp_path / "simulated.yaml").write_text(yaml.safe_dump(STUDY))
    return tmp_path


def test_from_a_search_to_a_report_that_says_what_it_is(project: Path) -> None:
    pages = [project / "reports" / f"{name}-simulated.html" for name in STUDY["only"]]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "snakemake",
            "--configfile",
            "simulated.yaml",
            "--",
            *(str(page.relative_to(project)) for page in pages),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs, windows = (page.read_text() for page in pages)
    assert "Predicted by a model, not measured" in runs
    assert "kind simulated" in runs
    assert "Predicted by a model, not measured" in windows
    assert "(predicted by a model, not measured)." in windows
    assert "A/A" in windows
    place = project / "raw" / "simulated" / "kamailio-udp" / "default" / "cores~2" / "threads~8"
    assert (place / "crossing.json").is_file()
    assert len(list(place.glob("cps~*/rep~1/run.json"))) == 1
    assert not (project / "raw" / "simulated" / "noise.json").exists()


def test_a_fit_to_simulated_runs_predicts_other_numbers_of_threads(project: Path) -> None:
    """The model is the machine here: the whole way from runs to the page of predictions."""
    study = {
        **STUDY,
        "load": {"duration_s": 1},
        "studies": {
            "load_sweep": {
                "modes": ["default"],
                "cores": [1],
                "threads": [4, 8],
                "cps": [900, 1700],
                "repetitions": 2,
            }
        },
        "documents": {
            "predicted": {
                "notebook": "notebooks/predicted.ipynb",
                "files": ["config/modes.yaml"],
                "studies": ["load_sweep"],
                "predictions": "settings",
            }
        },
    }
    (project / "simulated.yaml").write_text(yaml.safe_dump(study))
    page = project / "reports" / "predicted.html"
    argv = ["-m", "snakemake", "--configfile", "simulated.yaml", "--", "reports/predicted.html"]
    done = subprocess.run(
        [sys.executable, *argv], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "10 predictions lie inside the measured 95 % interval" in text
    assert "fitted to 4 runs of mode default" in text
    fitted = project / "results" / "predicted" / "simulated" / "fit.json"
    # a sample without both loads is none
    assert 1 <= len(json.loads(fitted.read_text())["draws"]) <= 8
