"""The glossary of a page, generated from docs/glossary.md.

Each abbreviation is explained at its first use in the page. A list at the end of the page explains all terms of the
page.
"""

import functools
import re
from typing import NamedTuple

from markupsafe import Markup, escape

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT

SOURCE = PROJECT_ROOT / "docs" / "glossary.md"


class Term(NamedTuple):
    """A term of the glossary.

    Attributes
    ----------
    meaning
        The meaning of the term, without a full stop.
    expansion
        The words for which an abbreviation stands; empty for a word.
    """

    meaning: str
    expansion: str = ""


@functools.cache
def terms() -> dict[str, Term]:
    """Return the terms of docs/glossary.md by name. Abbreviations have an expansion.

    Raises
    ------
    StableError
        A row of a table has neither two nor three cells.
    """
    known = {}
    for number, line in enumerate(SOURCE.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("| ") or line.startswith(("| term |", "| --- |")):
            continue
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if len(cells) not in (2, 3):
            raise StableError(
                f"{SOURCE.name}:{number}: expected a term and its meaning: {line:.60}"
            )
        known[cells[0]] = Term(cells[-1], cells[1] if len(cells) == 3 else "")
    return known


@functools.cache
def _word() -> re.Pattern[str]:
    names = sorted(terms(), key=len, reverse=True)
    several = (rf"{re.escape(name)}{'s?' if not terms()[name].expansion else ''}" for name in names)
    return re.compile(rf"(?<![\w/.=-])({'|'.join(several)})(?![\w/=-]|\.\w)")


class Marker:
    """The object that marks the terms in the text of one page, and remembers which terms the page uses."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._explained: set[str] = set()
        self._folds = 0

    def fold(self, step: int) -> str:
        """Note that the template enters (1) or leaves (-1) collapsed text, in which abbreviations are not explained.

        Return an empty text, because the template prints the result of each call.
        """
        self._folds += step
        return ""

    def words(self, text: str) -> Markup:
        """Return text as HTML. Each abbreviation gets an explanation at its first use in the page."""
        pieces = []
        end = 0
        for match in _word().finditer(text):
            pieces += [escape(text[end : match.start()]), self._marked(match)]
            end = match.end()
        return Markup("").join((*pieces, escape(text[end:])))

    def _marked(self, match: re.Match[str]) -> Markup:
        name = match[1] if match[1] in terms() else match[1][:-1]
        if name == "n" and not match.string.startswith(" = ", match.end()):
            return escape(match[0])
        self._used.add(name)
        expansion = terms()[name].expansion
        if not expansion or name in self._explained or self._folds:
            return escape(match[0])
        self._explained.add(name)
        return Markup('<abbr title="{}" tabindex="0">{}</abbr>').format(expansion, name)

    def used_terms(self) -> list[tuple[str, str]]:
        """Return the glossary terms that the page has used so far, each with its meaning."""
        return [
            (name, ": ".join(filter(None, (term.expansion, term.meaning))) + ".")
            for name, term in terms().items()
            if name in self._used
        ]
