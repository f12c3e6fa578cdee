"""Conversion of page parts to HTML with the template page.html.j2."""

import base64
import functools
import re
from pathlib import Path

import jinja2
import mistune
from markupsafe import Markup, escape

from sipsched.pages import glossary, parts
from sipsched.pages.numbers import Number
from sipsched.pages.theme import THEME

UNIT_AFTER = re.compile(r"(?<=\d) (?=(?:%|ns|µs|ms|s|cps)(?![\w=]))")
"""Pattern of the space between a number and its unit."""
BARE_PERCENT = re.compile(r"(?<![\w=.])(\d+(?:\.\d+)?|N)%")
"""Pattern of a percentage without a space before the percent sign, as the verdicts of records write it.

A setting such as "Quota=5%" does not match. The letter N stands for any number.
"""
CODE = re.compile(r"`([^`]+)`")
"""Pattern of code in backticks, as in Markdown."""
NAME = re.compile(r"<[^>]*>|\b[A-Za-z]\w*(?:-\w+)*-\d\w*|(?<=\w)[,+/](?=[A-Za-z{]\w)")
"""Pattern of a tag, of a name such as "slice-1ms", or of a separator in a long name."""


def document(page: parts.Page) -> str:
    """Return a page as one self-contained HTML document."""
    return _rendered(page=page)


def fragment(part: parts.Part) -> str:
    """Return one page part as HTML, with the styles that figures need outside a page."""
    return _rendered(part=part)


def _rendered(**values: parts.Page | parts.Part) -> str:
    marker = glossary.Marker()
    return _template().render(
        values,
        words=functools.partial(_words, marker),
        breaking=_breaking,
        fold=marker.fold,
        prose=functools.partial(_prose, marker),
        used_terms=marker.used_terms,
        colors=THEME.values(),
        csv_address=_csv_address,
        sort_key=parts.sort_key,
        cell_text=parts.cell_text,
        long_cell=parts.LONG_CELL,
        number_and_interval=parts.number_and_interval,
        is_number=lambda cell: isinstance(cell, Number),
        svg=Markup,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


def _words(marker: glossary.Marker, text: str) -> Markup:
    """Return text as HTML, with explanations of terms and with breaks of lines. Text in backticks becomes code."""
    pieces = CODE.split(text)
    # A command must stay as it is, without explanations and without other spaces.
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if i % 2 else _sentence(marker, piece)
        for i, piece in enumerate(pieces)
    )


def _sentence(marker: glossary.Marker, text: str) -> Markup:
    spaced = UNIT_AFTER.sub("\u00a0", BARE_PERCENT.sub("\\1\u00a0%", text))
    return _breaking(marker.words(spaced))


def _breaking(text: str) -> Markup:
    """Return text as HTML in which long names can break after a separator, but not at a hyphen before a digit."""

    def marked(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("<"):
            return found
        return f"{found}<wbr>" if len(found) == 1 else f'<span class="whole">{found}</span>'

    # The text is escaped, and the function adds only tags that contain no part of the text.
    return Markup(NAME.sub(marked, str(escape(text))))  # noqa: S704


def _csv_address(table: parts.Table) -> str:
    """Return a data: link that contains a table as CSV, so that the download needs no network."""
    # The byte order mark at the start tells spreadsheets that the file is UTF-8.
    data = base64.b64encode(table.to_csv().encode("utf-8-sig")).decode()
    return f"data:text/csv;charset=utf-8;base64,{data}"


def _prose(marker: glossary.Marker, markdown: str) -> Markup:
    """Return Markdown as HTML, with explanations of the glossary's terms."""

    class Marked(mistune.HTMLRenderer):
        def text(self, text: str) -> str:
            return str(_words(marker, text))

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return f'<a href="{escape(url)}">{text}</a>'

    # The HTML is not escaped again, because the text comes from the project's own notebooks.
    return Markup(mistune.create_markdown(renderer=Marked(), plugins=["table"])(markdown))  # noqa: S704
