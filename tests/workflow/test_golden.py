"""Test that the words of each page, from synthetic data and without data, equal the words in tests/golden."""

import difflib
from collections.abc import Iterator
from typing import Any

import page_text
import pytest
from notebook_inputs import NOTEBOOKS, WITHOUT_DATA, parameters_of_nothing

from sipsched.pages import parts
from sipsched.paths import PROJECT_ROOT

GOLDEN = PROJECT_ROOT / "tests" / "golden"
ROWS = 10
"""Largest number of rows per table in a golden file. Tests of the pages check the values of all rows."""
COMMAND = ".venv/bin/pytest tests/workflow/test_golden.py --renew"


def words(part: Any) -> Iterator[str]:
    """Yield the computed lines of a page or of a part.

    The lines exclude the text of the notebook, HTML from outside the project, and versions.
    """
    match part:
        case parts.Prose() | parts.Foreign() | parts.Words(css_class="versions"):
            return
        case parts.Section():
            yield from ("", f"## {part.heading}", *many(part.parts))
        case parts.Folded():
            yield from (f"### {part.summary}", *many(part.parts))
        case parts.Several():
            yield from (f"### {part.heading}" if part.heading else "", *many(part.parts))
        case parts.Page():
            yield from many(part.parts)
        case parts.Table():
            yield from ("", f"[{part.identity}]", part.caption, part.provenance, part.reading)
            yield " | ".join(part.header) if part.rows else part.none
            yield from (" | ".join(map(str, row)) for row in part.rows[:ROWS])
            if more := part.rows[ROWS:]:
                yield f"and {len(more)} more"
        case parts.Figure():
            yield from ("", f"[{part.identity}]", *page_text.lines(part))
        case parts.Tiles():
            yield from many(part.tiles)
        case _:
            yield from page_text.lines(part)


def many(several: Any) -> Iterator[str]:
    """Yield the computed lines of several parts, one part after the other."""
    for part in several:
        yield from words(part)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_words_of_a_page_are_those_of_its_golden_file(notebook, page_of, request):
    lines = [*words(page_of(notebook))]
    if notebook in WITHOUT_DATA:
        lines += ["", "# Nothing measured", *words(page_of(notebook, parameters_of_nothing))]
    # split again at line ends, because the text of a cell may have several lines or be empty
    lines = "\n".join([*lines, ""]).split("\n")
    result = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    golden = GOLDEN / f"{notebook}.txt"
    if request.config.getoption("--renew"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("\n".join(result), encoding="utf-8")
    known = golden.read_text(encoding="utf-8").split("\n") if golden.exists() else []
    changes = difflib.unified_diff(known, result, golden.name, "page", lineterm="", n=1)
    if difference := "\n".join(changes):
        pytest.fail(f"{difference}\n\nIf the new words are right, run: {COMMAND}", pytrace=False)
