"""The paths of the project's files."""

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
TESTBEDS = Path("hardware", "testbeds")
"""Folder of the YAML files that describe testbeds, relative to the working directory or the project's folder."""
RECORDED_PAPERS = Path("recorded", "predicted", "papers.csv")
"""Published file with simulated runs of the papers' testbed (workflow/rules/predict_papers.smk)."""
RUN_FILE = "run.json"
"""Name of the file that every complete record of a run contains."""
RECORDED = {"results": "results/recorded/raw", "raw": "recorded/raw"}


def provided(path: str | Path) -> Path:
    """Return the path of a project file in the working directory, or else in the project's own folder.

    The working directory lacks the project's files if another workflow uses this workflow as a module.
    """
    own = PROJECT_ROOT / path
    return own if own.exists() and not Path(path).exists() else Path(path)


def locate(path: str | Path) -> Path:
    """Return the absolute path of a file that a notebook reads. Relative paths start at the project's root.

    JupyterLab and the workflow run a notebook in different working directories. If no study has a summary, paths below
    `results/` and `raw/` lead to the recorded campaign, which `make reports` computes.
    """
    path = Path(path)
    first, *rest = path.parts or ("",)
    measured = any((PROJECT_ROOT / "results").glob("*/*/summary.nc"))
    if first in RECORDED and not measured:
        path = Path(RECORDED[first], *rest)
    return PROJECT_ROOT / path


def project_path(path: Path) -> str:
    """Return a path relative to the working directory, or only the file name for a path outside this directory."""
    path, here = path.resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name
