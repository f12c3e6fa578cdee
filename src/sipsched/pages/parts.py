"""What every page is made of: figures, tables and sentences, each with its words and as HTML."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

_IN_ADDRESS = " '()*+,-./:;=?@[]_~!$\n"
"""What may stand in the address of a picture, in an attribute with double quotes."""


@dataclass(frozen=True)
class Figure:
    """A picture with its words; Jupyter shows it by itself.

    Attributes
    ----------
    identity
        The id of the element in the page.
    svg
        The picture.
    alt
        What a person who cannot see it is told.
    caption
        What is drawn, and from what.
    seen
        Sentences computed from the data.
    provenance
        Testbed, kind, fidelity, kernel.
    narrow
        The picture laid out for a phone; where there is none, the other one is scrolled there.
    """

    identity: str
    svg: str
    alt: str
    caption: str
    seen: tuple[str, ...]
    provenance: str
    narrow: str = ""

    def _repr_html_(self) -> str:
        img = f'<img id="{self.identity}" alt="{html.escape(self.alt)}" src="{_address(self.svg)}">'
        if self.narrow:
            # blanks and commas would part one address of a set from the next
            data = base64.b64encode(self.narrow.encode()).decode()
            source = (
                f'<source media="(max-width: 36rem)" srcset="data:image/svg+xml;base64,{data}">'
            )
            img = f"<picture>{source}{img}</picture>"
        return (
            f'<figure><div class="scroll">{img}</div>'
            f"<figcaption>{html.escape(self.caption)} "
            f"<small>{html.escape(self.provenance)}</small></figcaption></figure>"
            + sentences(self.seen)
        )


def _address(svg: str) -> str:
    """Put a picture into an address: with its own characters a quarter smaller than in base 64."""
    return f"data:image/svg+xml,{quote(svg, safe=_IN_ADDRESS)}"


@dataclass(frozen=True)
class Table:
    """A table with its words; Jupyter shows it by itself.

    Attributes
    ----------
    identity
        The id of the element in the page.
    header, rows
        Text of the cells.
    none
        What is said if there are no rows.
    caption, provenance
        As in `Figure`.
    groups
        A line above the header: text, and how many columns it spans.
    shown
        How many rows the page shows; the CSV has all. None for all.
    """

    identity: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    provenance: str
    none: str
    groups: tuple[tuple[str, int], ...] = ()
    shown: int | None = None

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(line(row, "td") for row in self.rows[: self.shown])
        more = len(self.rows) - (self.shown or len(self.rows))
        if more > 0:
            body += f'<tr><td colspan="{len(self.header)}">and {more} more: see the CSV</td></tr>'
        if not self.rows:
            none = html.escape(self.none)
            body = f'<tr><td colspan="{len(self.header)}">{none}</td></tr>'
        above = "".join(
            f'<th colspan="{span}">{html.escape(text)}</th>' for text, span in self.groups
        )
        head = (f"<tr>{above}</tr>" if above else "") + line(self.header, "th")
        grouped = ' class="grouped"' if above else ""
        return (
            f'<figure class="table"><figcaption>{html.escape(self.caption)} {self._download()}'
            f"<small>{html.escape(self.provenance)}</small></figcaption>"
            f'<div class="scroll"><table id="{self.identity}"{grouped}><thead>{head}'
            f"</thead><tbody>{body}</tbody></table></div></figure>"
        )

    def to_csv(self) -> str:
        """Write the table as CSV (RFC 4180): one header line, no typographic spaces or minus."""
        spans = [text for text, span in self.groups for _ in range(span)]
        spans += [""] * (len(self.header) - len(spans))
        header = [": ".join(filter(None, pair)) for pair in zip(spans, self.header, strict=True)]
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerows([_plain(cell) for cell in line] for line in (header, *self.rows))
        return buffer.getvalue()

    def _download(self) -> str:
        """Make a link that needs no network: the file is in the address."""
        if not self.rows:
            return ""
        # The mark tells spreadsheets that it is UTF-8.
        data = base64.b64encode(self.to_csv().encode("utf-8-sig")).decode()
        return (
            f'<a class="download" download="{html.escape(self.identity)}.csv" '
            f'href="data:text/csv;charset=utf-8;base64,{data}">CSV</a> '
        )


def _plain(text: str) -> str:
    """Take out what a spreadsheet does not read as part of a number: thin spaces, the real minus."""
    thin = text.replace("\u202f", "").replace("\u2009", "")
    return thin.replace("\u00a0", " ").replace("−", "-")


@dataclass(frozen=True)
class Words:
    """Sentences computed from the data; Jupyter shows them as a list."""

    lines: tuple[str, ...]
    css_class: str = "seen"

    def _repr_html_(self) -> str:
        return sentences(self.lines, self.css_class)


@dataclass(frozen=True)
class Several:
    """Figures, tables and sentences one after the other; Jupyter shows them by itself."""

    parts: tuple[Figure | Table | Words, ...]

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts)


def sentences(lines: Sequence[str], css_class: str = "seen") -> str:
    """Write sentences as an HTML list, or as nothing."""
    if not lines:
        return ""
    return (
        f'<ul class="{css_class}">'
        + "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        + "</ul>"
    )
