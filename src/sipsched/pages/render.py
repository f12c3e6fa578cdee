"""Functions that make a page from a notebook. papermill runs the notebook, and the cells show the page's parts."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.pages.outline import HOME, write_outline
from sipsched.pages.parts import Page, Part, Prose, Section, Title
from sipsched.paths import PROJECT_ROOT, project_path

NOT_ON_PAGE = "notebook-only"
"""Tag of a notebook's text cell that the page omits, because the page has a title computed from the data."""


def render(
    notebook: Path,
    output_html: Path,
    outline: Path,
    parameters: Mapping[str, Any],
    offered: Mapping[str, Any] = MappingProxyType({}),
    overview: str = HOME,
) -> None:
    """Run a notebook and write its page as one self-contained HTML file.

    Parameters
    ----------
    notebook, parameters, offered
        As in `make_page`.
    overview
        The address of the overview, relative to the page. The overview itself has no link to this address.
    output_html
        The page. A missing directory of the page is created.
    outline
        The outline of the page, for the overview and the archive (`sipsched.pages.outline`).

    Raises
    ------
    StableError
        As in `make_page`. No page is left half-written.
    """
    from sipsched.pages import html

    page = make_page(notebook, parameters, offered, "" if output_html.name == HOME else overview)
    with whole(output_html) as partial:
        partial.write_text(html.document(page), encoding="utf-8")
    write_outline(page, output_html, outline)


def make_page(
    notebook: Path,
    parameters: Mapping[str, Any],
    offered: Mapping[str, Any] = MappingProxyType({}),
    home: str = HOME,
) -> Page:
    """Run a notebook and return its page. The figures are drawn when the page is written.

    Parameters
    ----------
    notebook
        An .ipynb file with one cell tagged `parameters`. The file is not changed.
    parameters
        Values for that cell. Paths, also in lists, are made absolute for the notebook. The page shows them relative to
        the working directory, because the folders of this machine are private.
    offered
        Optional values. The notebook receives only the values for which it has a parameter.
    home
        The address of the overview.

    Raises
    ------
    StableError
        The notebook does not exist, does not know a parameter, or raises an error in a cell. The message names the
        notebook and the cell.
    """
    # Import papermill only here, because papermill loads slowly, and a wrong path should fail immediately.
    import papermill

    from sipsched.pages import engine, sources

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
    shown: dict[int, list[Part]] = {}
    try:
        finished = papermill.execute_notebook(
            str(notebook),
            None,
            parameters={name: _plain(value) for name, value in given.items()},
            engine_name=engine.NAME,
            cwd=str(PROJECT_ROOT),
            progress_bar=False,
            shown=shown,
        )
    except StableError as error:
        raise StableError(f"{notebook}: {error}") from None
    _show_parameters(finished, {name: _shown(value) for name, value in given.items()})
    page = _page(finished.cells, shown, notebook.stem, home)
    is_article = bool(finished.metadata.get("sipsched", {}).get("article"))
    return replace(page, sources=sources.find_sources(given), article=is_article)


def _plain(value: Any) -> Any:
    """Return a parameter value in which each path is replaced by its absolute path as text.

    A notebook runs in another folder, and papermill accepts only text.
    """
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value.resolve()) if isinstance(value, Path) else value


def _shown(value: Any) -> Any:
    """Return a parameter value in which paths are relative to the working directory, for readers of the page."""
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if not isinstance(value, Path):
        return value
    return project_path(value)


def _show_parameters(notebook: Any, values: Mapping[str, Any]) -> None:
    """Replace the parameter values in a notebook's cell by values for readers, such as short paths."""
    from papermill.translators import translate_parameters

    from sipsched.pages.engine import INJECTED

    for cell in notebook.cells:
        if INJECTED in cell.metadata.get("tags", ()):
            kernel = notebook.metadata.kernelspec
            cell.source = translate_parameters(kernel.name, kernel.language, values, "Parameters")


def _page(
    cells: Sequence[Any], shown: Mapping[int, Sequence[Part]], fallback_title: str, home: str
) -> Page:
    """Return the page of a notebook: its text and the parts that its cells showed, in the notebook's order."""
    opening: list[Part] = []
    sections: list[tuple[str, str, list[Part]]] = []
    for index, cell in enumerate(cells):
        if cell.cell_type == "code":
            (sections[-1][2] if sections else opening).extend(shown.get(index, ()))
        elif cell.cell_type == "markdown" and NOT_ON_PAGE not in cell.metadata.get("tags", ()):
            before, *parts = re.split(r"^## (.+)$", cell.source, flags=re.MULTILINE)
            (sections[-1][2] if sections else opening).extend(_opening(before))
            for heading, text in zip(parts[::2], parts[1::2], strict=True):
                paragraphs = re.split(r"\n\s*\n", text.strip())
                expected = [text for text in paragraphs if text.startswith("Expected")]
                rest = [Prose(text) for text in paragraphs if text and text not in expected]
                sections.append((heading.replace("`", ""), "\n\n".join(expected), [*rest]))
    titles = (part.text for part in opening if isinstance(part, Title))
    return Page(
        title=next(titles, fallback_title),
        parts=(*opening, *(Section(*section) for section in sections)),
        home=home,
        code=[cell.source for cell in cells if cell.cell_type == "code" and cell.source.strip()],
    )


def _opening(markdown: str) -> list[Part]:
    """Return the title and the remaining text from the Markdown before the first section, as page parts."""
    title, _, rest = markdown.partition("\n")
    if not title.startswith("# "):
        title, rest = "", markdown
    return [
        *([Title(title.removeprefix("# ").strip())] if title else []),
        *([Prose(rest)] if rest.strip() else []),
    ]
