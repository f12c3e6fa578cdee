"""Tests of the whole chain on a simulated testbed: search, runs, parsing, summary, report.

The tests need no host and no root.
"""

import json
from pathlib import Path

import pytest
import yaml
from helpers import copy_project, snakemake

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
    copy_project(tmp_path)
    (tmp_path / "simulated.yaml").write_text(yaml.safe_dump(STUDY))
    return tmp_path


def simulate(project: Path, *arguments: str) -> list[str]:
    """Run Snakemake on the simulated testbed, and return the lines of its output."""
    done = snakemake(project, "--configfile", "simulated.yaml", *arguments)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).splitlines()


def test_a_search_leads_to_a_report_that_is_labelled_as_simulated(project: Path) -> None:
    pages = [project / "reports" / f"{name}-simulated.html" for name in STUDY["only"]]
    simulate(project, "--", *(str(page.relative_to(project)) for page in pages))
    runs, windows = (page.read_text() for page in pages)
    assert "Predicted by a model, not measured" in runs
    assert "kind: simulated" in runs
    assert "Predicted by a model, not measured" in windows
    assert "The numbers are predicted by a model, not measured." in windows
    assert "A/A" in windows
    place = project / "raw" / "simulated" / "kamailio-udp" / "default" / "cores~2" / "threads~8"
    assert (place / "crossing.json").is_file()
    assert len(list(place.glob("cps~*/rep~1/run.json"))) == 1
    assert not (project / "raw" / "simulated" / "noise.json").exists()


CAPACITIES = {
    "testbeds": ["simulated-cfs"],
    "only": ["capacities"],
    "load": {"duration_s": 1},
    "search": {"trial_s": 0.5, "trials_s": 0.5, "lowest_cps": 500, "highest_cps": 4500},
    "studies": {
        "capacities": {
            "notebook": "notebooks/modes.ipynb",
            "suts": ["kamailio-udp"],
            "modes": ["baseline", "enhanced"],
            "cores": [1, 4],
            "threads": [4],
            "capacity": {"limit": 0.01, "relative_width": 0.05},
            "repetitions": 2,
        }
    },
    "documents": {},
}


def test_capacities_are_searched_in_every_cell_and_measured_at_the_loads_around_them(
    project: Path,
) -> None:
    """Search in all cells (combinations of mode, cores and threads), of which one exceeds the search's highest load.

    The page reports this cell, and has tables for the other cells.
    """
    (project / "simulated.yaml").write_text(yaml.safe_dump(CAPACITIES))
    page = "reports/capacities-simulated-cfs.html"
    said = simulate(project, "--cores", "1", "--", page)
    raw = project / "raw" / "simulated-cfs" / "kamailio-udp"
    result = {
        (document["point"]["mode"], document["point"]["cores"]): document
        for path in raw.rglob("capacity~0.01~0.05.json")
        for document in [json.loads(path.read_text())]
    }
    assert len(result) == 4
    for mode in ("baseline", "enhanced"):
        one, four = result[mode, 1], result[mode, 4]
        assert (
            one["ended_by"] == "width"
            and one["upper_cps"] - one["lower_cps"] <= 0.055 * one["upper_cps"]
        )
        assert (four["ended_by"], four["lower_cps"], four["upper_cps"]) == ("range", 4500, None)
        line = (
            f"kamailio-udp {mode} cores=4 threads=4 on simulated-cfs: the limit of 1 % is crossed above 4\u202f500 "
            "cps, as even the highest load of the search did not exceed the limit"
        )
        assert line in said
    # every search except the first search began with a guess of the capacity
    assert sum(each["guess_cps"] is None for each in result.values()) == 1
    loads = {
        result[mode, 1][end]
        for mode in ("baseline", "enhanced")
        for end in ("lower_cps", "upper_cps")
    }
    runs = {path.relative_to(raw).parts for path in raw.rglob("run.json")}
    assert runs == {
        (mode, f"cores~{cores}", "threads~4", f"cps~{cps}", f"rep~{rep}", "run.json")
        for mode in ("baseline", "enhanced")
        for cores, of_cores in ((1, loads), (4, {4500}))
        for cps in of_cores
        for rep in (1, 2)
    }
    text = (project / page).read_text()
    assert "above 4\u202f500\u00a0cps, as even the highest load of the search" in text
    # if the file of one search is lost, Snakemake repeats only this search, and keeps the measured runs
    lost = raw / "enhanced" / "cores~1" / "threads~4" / "capacity~0.01~0.05.json"
    lost.unlink()
    said = simulate(project, "--cores", "1", "--", str(lost.relative_to(project)))
    (again,) = (line for line in said if line.startswith(("searching", "measuring")))
    assert again.startswith(
        "searching for the load at which kamailio-udp enhanced cores=1 threads=4 on simulated-cfs drops 1 %, "
        "beginning at "
    )
    assert lost.is_file() and runs <= {
        path.relative_to(raw).parts for path in raw.rglob("run.json")
    }


def test_runs_are_added_to_wide_intervals_up_to_the_maximum(
    project: Path,
) -> None:
    """Measure two loads. Well below the capacity, three runs suffice. Near the capacity, even seven runs differ."""
    study = {
        "testbeds": ["simulated"],
        "only": ["precise"],
        "load": {"duration_s": 1},
        "studies": {
            "precise": {
                "notebook": "notebooks/load_sweep.ipynb",
                "suts": ["kamailio-udp"],
                "modes": ["default"],
                "cores": [1],
                "threads": [4],
                "cps": [500, 2400],
                "precision": {"of": "k_rcv_mean", "relative": 0.2, "at_least": 3, "at_most": 7},
            }
        },
        "documents": {},
    }
    (project / "simulated.yaml").write_text(yaml.safe_dump(study))
    page = "reports/precise-simulated.html"
    before = simulate(project, "--dry-run", "--", page)
    assert any("0 of 6 runs measured, up to 8 runs more where" in line for line in before)
    said = simulate(project, "--", page)
    raw, results = project / "raw" / "simulated", project / "results" / "precise" / "simulated"
    repetitions = {
        cps: len(list(raw.rglob(f"cps~{cps}/rep~*/run.json")))
        for cps in study["studies"]["precise"]["cps"]
    }
    assert repetitions == {500: 3, 2400: 7}
    # the study adds two runs at a time
    last = [line.split(":")[0] for line in said if line.startswith("measuring ")][-2:]
    assert {line.split(" rep=")[1] for line in last} == {"6 on simulated", "7 on simulated"}
    assert sorted(path.name for path in results.glob("look~*")) == ["look~3.json", "look~5.json"]
    text = (project / page).read_text()
    assert "1 of 2 systems reached" in text and "at least 3 and at most 7 runs" in text
    assert "no, although the largest number of 7 runs was made" in text
    # if the file of an interim analysis (look) is lost, the look is repeated with the existing runs
    lost = results / "look~3.json"
    content = lost.read_bytes()
    lost.unlink()
    said = simulate(project, "--", str(lost.relative_to(project)))
    assert not any(line.startswith("measuring ") for line in said)
    assert lost.read_bytes() == content


def test_a_fit_to_simulated_runs_predicts_other_numbers_of_threads(project: Path) -> None:
    """Test all steps from runs to the page of predictions. A model replaces the measured machine."""
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
    simulate(project, "--", "reports/predicted.html")
    text = page.read_text()
    assert "10 predictions lie inside the 95\u00a0% interval of their measurement" in text
    assert "fitted to 4 runs of the default mode" in text
    fitted = project / "results" / "predicted" / "simulated" / "fit.json"
    # a sample of the fit needs both loads, so some samples are missing
    assert 1 <= len(json.loads(fitted.read_text())["draws"]) <= 8
