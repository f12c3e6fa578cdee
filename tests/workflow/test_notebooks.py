"""Every notebook, run as JupyterLab runs it: a fresh kernel, in the notebook's own folder."""

from pathlib import Path

import nbclient
import papermill
import pytest
import synthetic
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from sipsched.paths import PROJECT_ROOT
from sipsched.records.windows import write_windows

NOTEBOOKS = sorted((PROJECT_ROOT / "notebooks").glob("*.ipynb"))
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def parameters_of(tmp_path_factory):
    """What a notebook of a given name is run with: the sweep, or for the migration study its own."""
    folder = tmp_path_factory.mktemp("campaign")
    summaries = synthetic.write_campaign(folder)
    sweep = [
        synthetic.Run(mode=f"enhanced+migration_cost_ns={cost}", cores=2, threads=4, rep=rep)
        for cost in (0, 500_000)
        for rep in (1, 2)
    ]
    migration = synthetic.write_study(folder, sweep, study="migration_cost")
    campaign = {
        "summary": str(summaries[1]),
        "summaries": [str(path) for path in summaries],
        "messages_root": str(folder / "results" / "runs"),
        "testbed": "synthetic",
        "pages": [],
    }
    compared = [synthetic.Run(mode="default,fifo", cps=cps) for cps in (1000, 1600)]
    comparison = synthetic.write_study(folder, compared, study="crossover")
    for run in compared:
        found = synthetic.windows(run, {"default": {}, "fifo": {"total_p99": -0.5}})
        write_windows(found, folder / "results" / "runs" / run.path / "windows.nc")
    to_work_in = {"records": str(folder / "raw")}
    own = {
        "explore": to_work_in,
        "question": to_work_in,
        "messages": {"records": [str(folder / "raw")]},
        "migration_cost": {"summary": str(migration)},
        "crossover": {"summary": str(comparison), "crossings": []},
        "papers_predicted": {"predictions": [str(folder / "papers.csv")]},
    }
    synthetic.predictions().to_csv(folder / "papers.csv", index=False)
    return lambda name: campaign | own.get(name, {})


def execute(path, parameters):
    """Run a notebook in its own folder and return it; parameters that it does not have are left out."""
    known = set(papermill.inspect_notebook(str(path)))
    notebook = load_notebook_node(str(path))
    given = {name: value for name, value in parameters.items() if name in known}
    if given:
        notebook = parameterize_notebook(notebook, given)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_by_hand(path, parameters_of):
    finished = execute(path, parameters_of(path.stem))
    outputs = [out for cell in finished.cells for out in cell.get("outputs", ())]
    assert any("text/html" in out.get("data", {}) for out in outputs)
    said = [out["text"] for out in outputs if out.output_type == "stream"]
    assert said == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_defaults_name_no_folder_of_one_machine(path):
    """Relative paths start at the project's root, wherever that is and wherever the kernel started."""
    for name, parameter in papermill.inspect_notebook(str(path)).items():
        default = parameter["default"]
        assert not default.strip("\"'").startswith(("/", "~", "..")), (name, default)


def test_without_data_a_notebook_says_in_one_line_what_to_run(tmp_path):
    explore = PROJECT_ROOT / "notebooks" / "explore.ipynb"
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        execute(explore, {"records": str(tmp_path)})
    assert "snakemake measures what is missing" in caught.value.evalue
    assert caught.value.traceback.strip().splitlines()[-1].startswith("StableError: ")


def test_every_notebook_is_a_study_a_document_or_a_page() -> None:
    rules = "".join(path.read_text() for path in Path(PROJECT_ROOT, "workflow/rules").glob("*.smk"))
    configuration = "".join(
        path.read_text() for path in Path(PROJECT_ROOT, "config").rglob("*.yaml")
    )
    by_hand = {"explore.ipynb", "question.ipynb"}
    for path in NOTEBOOKS:
        name = f"notebooks/{path.name}"
        assert path.name in by_hand or name in rules or name in configuration, name
