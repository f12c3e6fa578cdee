"""From a notebook to a page: papermill runs it, in this process; nbconvert and a template of our own write it."""

import html
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.pages.glossary import expanded
from sipsched.paths import PROJECT_ROOT

TEMPLATE = "report_template"
HOME = "index.html"
"""The page that links all others, in the same folder."""
_HEADING = re.compile(r"<h2>(.*?)</h2>")
NOT_ON_PAGE = "notebook-only"
"""Tag of a cell of text for those who open the notebook; the page has a title from its data instead."""


def render(
    notebook: Path,
    output_html: Path,
    parameters: Mapping[str, Any],
    offered: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Run a notebook and write it as one self-contained HTML file.

    Parameters
    ----------
    notebook
        An .ipynb with one cell tagged `parameters`. It is not changed.
    output_html
        The page; its directory is made. It asks for nothing outside itself.
    parameters
        Values for that cell; paths, also in lists, are made absolute. The page shows them relative to the
        working directory: where on this machine they are is nobody's business.
    offered
        The same, of which a notebook gets those that it has a parameter for.

    Raises
    ------
    StableError
        No such notebook, a parameter that it does not know, or an error in one of its cells; the
        message names notebook and cell. No page is left half-written.
    """
    # jsonschema loads a grammar of IRIs, which no notebook has: two thirds of what follows.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    # Imported here: papermill and nbconvert take time that a wrong path need not cost.
    import papermill

    from sipsched.pages import engine

    if not notebook.is_file():
        raise StableError(f"{notebook}: no such notebook; see `notebook` in config/config.yaml")
    known = set(papermill.inspect_notebook(str(notebook)))
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise StableError(
            f"{notebook}: unknown parameters {', '.join(unknown)}; "
            f"its parameters cell has {', '.join(sorted(known)) or 'none'}"
        )
    given = {name: value for name, value in offered.items() if name in known} | dict(parameters)
    logging.getLogger("papermill").setLevel(logging.WARNING)
    try:
        finished = papermill.execute_notebook(
            str(notebook),
            None,
            parameters={name: _plain(value) for name, value in given.items()},
            engine_name=engine.NAME,
            cwd=str(PROJECT_ROOT),
            progress_bar=False,
        )
    except StableError as error:
        raise StableError(f"{notebook}: {error}") from None
    _show_parameters(finished, {name: _shown(value) for name, value in given.items()})
    page = _to_html(finished, notebook.stem, "" if output_html.name == HOME else HOME)
    with whole(output_html) as partial:
        partial.write_text(page, encoding="utf-8")


def _plain(value: Any) -> Any:
    """Make paths absolute, since a notebook runs elsewhere, and text, since papermill writes them down."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value.resolve()) if isinstance(value, Path) else value


def _shown(value: Any) -> Any:
    """Write paths as a reader elsewhere can use them: relative, and of others the name alone."""
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if not isinstance(value, Path):
        return value
    path, here = value.resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _show_parameters(notebook: Any, values: Mapping[str, Any]) -> None:
    """Put these values in the place of those that papermill wrote into the notebook."""
    from papermill.translators import translate_parameters

    from sipsched.pages.engine import INJECTED

    for cell in notebook.cells:
        if INJECTED in cell.metadata.get("tags", ()):
            kernel = notebook.metadata.kernelspec
            cell.source = translate_parameters(kernel.name, kernel.language, values, "Parameters")


def _to_html(notebook: Any, fallback_title: str, home: str) -> str:
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name=TEMPLATE,
        extra_template_basedirs=[str(Path(__file__).parent)],
        exclude_anchor_links=True,
    )
    resources = {
        "metadata": {"name": _title(notebook) or fallback_title},
        "home": home,
        "contents": [*_contents(notebook), ("glossary", "Glossary")],
    }
    body, _ = exporter.from_notebook_node(notebook, resources)
    return _HEADING.sub(_with_id, expanded(str(body)))


def _contents(notebook: Any) -> Iterator[tuple[str, str]]:
    """Give id and text of each section."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and NOT_ON_PAGE not in cell.metadata.get("tags", ()):
            for text in re.findall(r"^## (.+)$", cell.source, re.MULTILINE):
                yield _identity(text), text


def _with_id(heading: re.Match[str]) -> str:
    return f'<h2 id="{_identity(heading[1])}">{heading[1]}</h2>'


def _identity(heading: str) -> str:
    """Make an id of a heading, as text or as HTML."""
    plain = html.unescape(re.sub(r"<[^>]*>|`", "", heading))
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def _title(notebook: Any) -> str:
    """Take the title from the first heading: of a cell of text that the page has, or of what a cell shows."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and NOT_ON_PAGE not in cell.metadata.get("tags", ()):
            return str(cell.source.splitlines()[0].lstrip("# ")) if cell.source else ""
        for output in cell.get("outputs", ()):
            heading = re.search(r"<h1>(.*?)</h1>", output.get("data", {}).get("text/html", ""))
            if heading:
                return html.unescape(heading[1])
    return ""
