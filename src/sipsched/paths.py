"""Where the parts of the project are."""

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = PROJECT_ROOT / "workflow" / "schemas"
TESTBEDS = Path("hardware", "testbeds")
"""In a project: the workflow reads those of the folder that it runs in, which may be a copy."""
RECORDED_PAPERS = Path("recorded", "predicted", "papers.csv")
"""Likewise: what the simulator said of the papers' testbed (workflow/rules/predict_papers.smk)."""
RUN_FILE = "run.json"
"""What a record has when it is whole."""
RECORDED = {"results": "results/recorded/raw", "raw": "recorded/raw"}


def locate(path: str | Path) -> Path:
    """Resolve a path of a notebook's parameters: relative ones start at the project's root.

    JupyterLab starts a notebook in its own directory and a page elsewhere, so the working
    directory says nothing. Where no study of this project was summarised, `results/` and `raw/` are
    those of the campaign that comes with it, as `make reports` leaves them.
    """
    path = Path(path)
    first, *rest = path.parts or ("",)
    measured = any((PROJECT_ROOT / "results").glob("*/*/summary.nc"))
    if first in RECORDED and not measured:
        path = Path(RECORDED[first], *rest)
    return PROJECT_ROOT / path
