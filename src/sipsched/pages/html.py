"""Conversion of page parts to HTML with the template page.html.j2."""

import base64
import functools
from pathlib import Path

import jinja2
import mistune
from markupsafe import Markup, escape

from sipsched.pages import glossary, parts
from sipsched.pages.numbers import Number
from sipsched.pages.theme import THEME


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
        words=marker.words,
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


def _csv_address(table: parts.Table) -> str:
    """Return a data: link that contains a table as CSV, so that the download needs no network."""
    # The mark at the start tells spreadsheets that the file is UTF-8.
    data = base64.b64encode(table.to_csv().encode("utf-8-sig")).decode()
    return f"data:text/csv;charset=utf-8;base64,{data}"


def _prose(marker: glossary.Marker, markdown: str) -> Markup:
    """Return Markdown as HTML, with explanations of the glossary's terms."""

    class Marked(mistune.HTMLRenderer):
        def text(self, text: str) -> str:
            return str(marker.words(text))

        def link(self, text: str, url: str, title: str | None = None) -> str:
            return f'<a href="{escape(url)}">{text}</a>'

    # The HTML is not escaped again, because the text comes from the project's own notebooks.
    return Markup(mistune.create_markdown(renderer=Marked(), plugins=["table"])(markdown))  # noqa: S704
