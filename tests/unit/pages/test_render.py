import html
import os
from pathlib import Path

import nbformat
import pytest

from sipsched.errors import StableError
from sipsched.pages import render

FOLDER = Path(__file__).parents[3] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("lab/*.ipynb")])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs_and_has_one_parameters_cell(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    tags = [tag for cell in code for tag in cell.metadata.get("tags", [])]
    assert tags.count("parameters") == 1
    assert notebook.cells[0].source.startswith("# ")


def broken_notebook(path, source):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Broken"),
            nbformat.v4.new_code_cell("x = 1", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(source),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}},
    )
    nbformat.write(notebook, path)
    return path


def rendered(notebook, *parameters):
    """Make the page of a notebook beside the notebook, and return the path of the page."""
    page = notebook.with_suffix(".html")
    render.render(notebook, page, page.with_suffix(".json"), *parameters)
    return page


def test_an_error_in_a_cell_names_notebook_and_cell_and_leaves_nothing(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "y = x / 0\ny")
    page = tmp_path / "out" / "page.html"
    with pytest.raises(StableError) as caught:
        render.render(path, page, page.with_suffix(".json"), {"x": 2})
    assert str(caught.value) == f"{path}: cell 3 (y = x / 0): ZeroDivisionError: division by zero"
    assert not page.parent.exists()


def test_unknown_parameters_and_notebooks_are_refused(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "")
    with pytest.raises(StableError, match="unknown parameters nope; its parameters cell has x"):
        rendered(path, {"nope": 1})
    with pytest.raises(StableError, match="no such notebook"):
        rendered(tmp_path / "none.ipynb", {})


def test_a_notebook_gets_only_values_for_its_parameters(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "assert x == 5")
    assert rendered(path, {}, {"x": 5, "nope": 1}).is_file()


def test_a_page_shows_paths_as_a_reader_elsewhere_can_use_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside, outside = Path("results/a.nc"), Path("/etc/elsewhere.nc")
    check = f"assert x == [{str(tmp_path / inside)!r}, {str(outside)!r}]"
    path = broken_notebook(tmp_path / "broken.ipynb", check.replace(str(tmp_path), "' + root + '"))
    notebook = nbformat.read(path, 4)
    notebook.cells[2].source = "import os; root = os.environ['ROOT']\n" + notebook.cells[2].source
    nbformat.write(notebook, path)
    monkeypatch.setenv("ROOT", str(tmp_path))
    text = html.unescape(rendered(path, {"x": [inside, outside]}).read_text())
    assert 'x = ["results/a.nc", "elsewhere.nc"]' in text
    assert str(tmp_path) not in text


def test_a_notebook_runs_in_this_process_and_leaves_nothing_in_it(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = f"import os\nassert os.getpid() == {os.getpid()}\nleft = x"
    rendered(broken_notebook(tmp_path / "a.ipynb", source), {"x": 7})
    assert Path.cwd() == tmp_path
    assert capfd.readouterr() == ("", "")
    with pytest.raises(StableError, match="NameError: name 'left' is not defined"):
        rendered(broken_notebook(tmp_path / "b.ipynb", "left"), {})


def test_output_of_cells_is_on_the_page(tmp_path):
    source = "import sys\nprint('printed')\nprint('warned', file=sys.stderr)\n"
    source += "from IPython.display import HTML, display\ndisplay(HTML('<i>shown</i>'))\nHTML('<b>last</b>')"
    page = rendered(broken_notebook(tmp_path / "a.ipynb", source), {}).read_text()
    for part in ("<pre>printed", "<pre>warned", "<i>shown</i>", "<b>last</b>"):
        assert part in page


def test_an_interrupt_ends_the_page_and_is_not_an_error_of_a_cell(tmp_path):
    path = broken_notebook(tmp_path / "a.ipynb", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        rendered(path, {})
    assert not (tmp_path / "a.html").exists()
