import base64
import csv
import html
import json
import re
from pathlib import Path

import nbformat
import pytest
import synthetic

from sipsched import paths
from sipsched.analysis.run_table import find_summaries
from sipsched.errors import StableError
from sipsched.pages import figures, render, tables
from sipsched.records import summary

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))
DRAWINGS = (
    figures.pdr,
    figures.receive_time,
    figures.service_time,
    figures.receive_parts,
    figures.load,
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs_and_has_one_parameters_cell(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    tags = [tag for cell in code for tag in cell.metadata.get("tags", [])]
    assert tags.count("parameters") == 1
    assert notebook.cells[0].source.startswith("# ")


@pytest.mark.parametrize("draw", DRAWINGS)
def test_figures_of_nothing_measured_still_say_so(draw):
    ds = summary.combine([], [synthetic.Run(cps=500), synthetic.Run(cps=1000)])
    figure = draw(ds)
    assert "No valid run" in figure.seen[0]
    assert "Fidelity: unknown" in figure.provenance
    assert figure.svg.startswith("<?xml")


def test_colours_follow_the_reader():
    svg = figures.pdr(summary.combine([], [synthetic.Run()])).svg
    assert "prefers-color-scheme:dark" in svg
    assert "var(--ink)" in svg
    assert not any(marker in svg for marker in figures.THEME)


def test_tables_of_nothing_measured():
    ds = summary.combine([], [synthetic.Run()])
    for make in (tables.points, tables.runs_not_counted, tables.columns_missing, tables.hosts):
        assert "<table" in make(ds)._repr_html_()
    assert "1 runs planned: 0 measured, 0 invalid, 1 missing." in tables.coverage(ds).lines[0]


def test_text_from_the_data_is_escaped():
    ds = summary.combine([], [synthetic.Run()])
    ds.attrs["fidelity"] = "<script>alert(1)</script>"
    ds.attrs["hosts"] = json.dumps({"sps": {"<b>": "&"}})
    text = tables.heading(ds, "x")._repr_html_() + tables.hosts(ds)._repr_html_()
    text += figures.pdr(ds)._repr_html_()
    assert "<script" not in text
    assert "<b>" not in text


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


def test_an_error_in_a_cell_names_notebook_and_cell_and_leaves_nothing(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "y = x / 0\ny")
    page = tmp_path / "out" / "page.html"
    with pytest.raises(StableError) as caught:
        render.render(path, page, {"x": 2})
    assert str(caught.value) == f"{path}: cell 3 (y = x / 0): ZeroDivisionError: division by zero"
    assert not page.parent.exists()


def test_unknown_parameters_and_notebooks_are_refused(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "")
    with pytest.raises(StableError, match="unknown parameters nope; its parameters cell has x"):
        render.render(path, tmp_path / "page.html", {"nope": 1})
    with pytest.raises(StableError, match="no such notebook"):
        render.render(tmp_path / "none.ipynb", tmp_path / "page.html", {})


def test_without_studies_of_ones_own_paths_are_those_of_the_recorded_campaign(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "PROJECT_ROOT", tmp_path)
    sweep = Path("results/load_sweep/local/summary.nc")
    recorded = tmp_path / "results/recorded/raw/load_sweep/local/summary.nc"
    for path in (tmp_path / "recorded/raw/local/noise.json", recorded):
        path.parent.mkdir(parents=True)
        path.touch()
    assert paths.locate("raw/local/noise.json").is_file()
    assert paths.locate(str(sweep)) == recorded
    assert paths.locate("config") == tmp_path / "config"
    assert find_summaries("local") == [recorded]
    (tmp_path / sweep).parent.mkdir(parents=True)
    (tmp_path / sweep).touch()
    assert paths.locate(sweep) == tmp_path / sweep
    assert not paths.locate("raw/local/noise.json").exists()
    assert find_summaries() == [tmp_path / sweep]


def test_a_notebook_gets_what_it_has_a_parameter_for(tmp_path):
    path = broken_notebook(tmp_path / "broken.ipynb", "assert x == 5")
    render.render(path, tmp_path / "page.html", {}, {"x": 5, "nope": 1})
    assert (tmp_path / "page.html").is_file()


def test_a_page_shows_paths_as_a_reader_elsewhere_can_use_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside, outside = Path("results/a.nc"), Path("/etc/elsewhere.nc")
    check = f"assert x == [{str(tmp_path / inside)!r}, {str(outside)!r}]"
    path = broken_notebook(tmp_path / "broken.ipynb", check.replace(str(tmp_path), "' + root + '"))
    notebook = nbformat.read(path, 4)
    notebook.cells[2].source = "import os; root = os.environ['ROOT']\n" + notebook.cells[2].source
    nbformat.write(notebook, path)
    monkeypatch.setenv("ROOT", str(tmp_path))
    render.render(path, tmp_path / "page.html", {"x": [inside, outside]})
    text = html.unescape((tmp_path / "page.html").read_text())
    assert 'x = ["results/a.nc", "elsewhere.nc"]' in text
    assert str(tmp_path) not in text


def csv_link(page):
    (link,) = re.findall(r'<a class="download" download="([^"]+)" href="([^"]+)">', page)
    kind, data = link[1].split(";base64,")
    assert kind == "data:text/csv;charset=utf-8"
    text = base64.b64decode(data).decode("utf-8-sig")
    return link[0], list(csv.reader(text.splitlines()))


def test_a_table_is_downloadable_without_network():
    table = figures.Table(
        identity="table-x",
        header=("load (cps)", "mean (µs)", 'p99, "worst"'),
        rows=(("1\u202f000", "12\u00a0±\u00a03", "−1,5"),),
        caption="c",
        provenance="p",
        none="none",
        groups=(("", 1), ("K_rcv", 2)),
    )
    name, lines = csv_link(table._repr_html_())
    assert name == "table-x.csv"
    assert lines == [
        ["load (cps)", "K_rcv: mean (µs)", 'K_rcv: p99, "worst"'],
        ["1000", "12 ± 3", "-1,5"],
    ]


def test_a_long_table_is_whole_in_its_csv():
    table = figures.Table("table-x", ("n",), (("1",), ("2",), ("3",)), "c", "p", "none", shown=2)
    page = table._repr_html_()
    assert "<td>2</td>" in page and "<td>3</td>" not in page
    assert "and 1 more" in page
    assert csv_link(page)[1] == [["n"], ["1"], ["2"], ["3"]]


def test_a_table_without_rows_has_nothing_to_download():
    table = tables.points(summary.combine([], [synthetic.Run()]))
    assert "download" not in table._repr_html_()
