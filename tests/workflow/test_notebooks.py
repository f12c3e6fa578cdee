"""Test every notebook as JupyterLab runs it: in a fresh kernel, in the notebook's own folder."""

import json
from pathlib import Path

import nbclient
import notebook_inputs
import papermill
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.study import TESTBED_PAGES

NOTEBOOKS = list(notebook_inputs.NOTEBOOK_FILES.values())
IN_A_KERNEL = ("explore", "question", "load_sweep", "crossover")
"""Notebooks to run in a kernel, which takes 10 to 20 s each. test_golden.py runs all notebooks in one process."""
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inputs")


def execute(path, parameters):
    """Run a notebook in its own folder, and return the executed notebook."""
    notebook = parameterize_notebook(load_notebook_node(str(path)), parameters)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    return notebook


@pytest.mark.parametrize("name", IN_A_KERNEL)
def test_a_notebook_runs_in_jupyterlab(name, folder):
    path = notebook_inputs.NOTEBOOK_FILES[name]
    parameters = notebook_inputs.parameters(path.stem, folder)
    finished = execute(path, json.loads(json.dumps(parameters, default=str)))
    outputs = [out for cell in finished.cells for out in cell.get("outputs", ())]
    assert any("text/html" in out.get("data", {}) for out in outputs)
    said = [out["text"] for out in outputs if out.output_type == "stream"]
    assert said == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_defaults_of_a_notebook_name_no_folder_of_one_machine(path):
    """Check that default paths are relative. A relative path starts at the project's root, wherever the kernel runs."""
    for name, parameter in papermill.inspect_notebook(str(path)).items():
        default = parameter["default"]
        assert not default.strip("\"'").startswith(("/", "~", "..")), (name, default)


def test_without_data_a_notebook_says_in_one_line_what_to_run(tmp_path):
    explore = notebook_inputs.NOTEBOOK_FILES["explore"]
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        execute(explore, {"records": str(tmp_path)})
    assert "snakemake measures missing runs" in caught.value.evalue
    assert caught.value.traceback.strip().splitlines()[-1].startswith("StableError: ")


def test_every_notebook_is_a_study_a_document_or_a_page() -> None:
    rules = "".join(path.read_text() for path in Path(PROJECT_ROOT, "workflow/rules").glob("*.smk"))
    files = [
        *Path(PROJECT_ROOT, "config").rglob("*.yaml"),
        *Path(PROJECT_ROOT, "recorded").rglob("config.yaml"),
    ]
    configuration = "".join(path.read_text() for path in files)
    others = {"explore", "question", *TESTBED_PAGES}
    for path in NOTEBOOKS:
        in_rules = f"{{NOTEBOOKS}}/{path.name}" in rules
        assert path.stem in others or in_rules or f"notebooks/{path.name}" in configuration, path
