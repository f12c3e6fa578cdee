"""What every page is made of: figures, tables and sentences, each with its words and as HTML."""

import base64
import csv
import html
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol
from urllib.parse import quote

from sipsched.pages.numbers import NO_ENTRY, Number
from sipsched.words import listed, plural

LONG_NAME = 12
"""Characters of a row's name, beyond which it is given room."""
_IN_ADDRESS = " '()*+,-./:;=?@[]_~!$\n"
"""What may stand in the address of a picture, in an attribute with double quotes."""


class Shown(Protocol):
    """What Jupyter shows by itself."""

    def _repr_html_(self) -> str: ...


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
        What the numbers are where nothing was measured: simulated, predicted, published. Of what was
        measured the page says once where.
    narrow
        The picture laid out for a phone.
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
            f"<figure>{img}"
            f"<figcaption>{html.escape(self.caption)}{_mark(self.provenance)}</figcaption></figure>"
            + sentences(self.seen)
        )


def _mark(provenance: str) -> str:
    """Say under a figure or a table what its numbers are."""
    return f" <small>{html.escape(provenance)}</small>" if provenance else ""


def _address(svg: str) -> str:
    """Put a picture into an address: with its own characters a quarter smaller than in base 64."""
    return f"data:image/svg+xml,{quote(svg, safe=_IN_ADDRESS)}"


Cell = str | Number
"""What a table holds: words, or a number with its interval."""
EMPTY = frozenset(("", NO_ENTRY))
"""Cells that say nothing: a column or row of nothing else is not shown."""


@dataclass(frozen=True)
class Table:
    """A table with its words; Jupyter shows it by itself.

    Columns and rows without any entry are left out. Rows that agree in the columns that name their place
    stand under one heading.

    Attributes
    ----------
    identity
        The id of the element in the page.
    header, rows
        Names of the columns, each with its unit in brackets at the end; and cells.
    none
        What is said if there are no rows.
    caption, provenance
        As in `Figure`.
    groups
        A line above the header: text, and how many columns it spans.
    places
        How many columns, from the first on, name the place that rows may share.
    shown
        How many rows the page shows; the CSV has all. None for all.
    """

    identity: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    provenance: str
    none: str
    groups: tuple[tuple[str, int], ...] = ()
    places: int = 0
    shown: int | None = None

    def _repr_html_(self) -> str:
        caption = f'<figcaption id="{self.identity}-caption">{html.escape(self.caption)}'
        if not self.rows:
            none = html.escape(self.none)
            return f'<figure class="table" id="{self.identity}">{caption}</figcaption><p>{none}</p></figure>'
        more = len(self.rows) - (self.shown or len(self.rows))
        rest = f"<p>{more} more in the CSV.</p>" if more > 0 else ""
        return (
            f'<figure class="table">{caption} {self._download()}{_mark(self.provenance)}</figcaption>'
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{self.identity}-caption">'
            f"{self._drawn()}</div>{rest}</figure>"
        )

    def _drawn(self) -> str:
        """Draw the columns and rows that say something, under spanners and headings of rows."""
        kept = self._columns()
        by_place: dict[str, list[str]] = {}
        for row in self.rows[: self.shown]:
            if any(str(row[i]) not in EMPTY for i in kept):
                first, *rest = (row[i] for i in kept)
                cells = "".join(map(_data, rest))
                long = ' class="long"' if len(str(first)) > LONG_NAME else ""
                line = f'<tr><th scope="row"{long}>{html.escape(str(first))}</th>{cells}</tr>'
                by_place.setdefault(self._place(row), []).append(line)
        body = "".join(
            "<tbody>"
            + (f'<tr class="place"><th scope="rowgroup" colspan="{len(kept)}">' if place else "")
            + (f"<span>{html.escape(place)}</span></th></tr>" if place else "")
            + "".join(lines)
            + "</tbody>"
            for place, lines in by_place.items()
        )
        return f'<table id="{self.identity}"><thead>{self._head(kept)}</thead>{body}</table>'

    def _columns(self) -> list[int]:
        """Find the columns after those of the place that have an entry in some row."""
        return [
            i
            for i in range(self.places, len(self.header))
            if any(str(row[i]) not in EMPTY for row in self.rows[: self.shown])
        ]

    def _head(self, kept: Sequence[int]) -> str:
        """Draw the names of columns, under what spans them."""
        ends = list(accumulate((span for _, span in self.groups), initial=0))
        above = "".join(
            f'<th scope="colgroup" colspan="{count}">{html.escape(text)}</th>'
            if text
            else f'<td colspan="{count}"></td>'
            for (text, span), start in zip(self.groups, ends, strict=False)
            if (count := sum(start <= i < start + span for i in kept))
        )
        names = "".join(
            f'<th scope="col">{html.escape(self.header[i])}</th>' if self.header[i] else "<td></td>"
            for i in kept
        )
        return (f'<tr class="spanners">{above}</tr>' if above else "") + f"<tr>{names}</tr>"

    def _place(self, row: Sequence[Cell]) -> str:
        """Name the place of a row: its first cells, a count with its noun."""
        said = []
        for name, cell in zip(self.header, row[: self.places], strict=False):
            text = str(cell)
            if text.isdecimal():
                text = plural(int(text), name.removesuffix("s"))
            elif name == "mode":
                text = f"mode {text}"
            said.append(text)
        return ", ".join(filter(None, said))

    def to_csv(self) -> str:
        """Write the table as CSV (RFC 4180): one header line, no typographic spaces or minus.

        A number with an interval has columns for estimate, low, high, n, unit, and p where there was a test.
        """
        spans = [text for text, span in self.groups for _ in range(span)]
        spans += [""] * (len(self.header) - len(spans))
        columns = []
        for i, (span, name) in enumerate(zip(spans, self.header, strict=True)):
            title = ": ".join(filter(None, (span, name)))
            cells = [row[i] if i < len(row) else "" for row in self.rows]
            columns += _apart(title, cells)
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow([_plain(title) for title, _ in columns])
        writer.writerows(zip(*(cells for _, cells in columns), strict=True))
        return buffer.getvalue()

    def _download(self) -> str:
        """Make a link that needs no network: the file is in the address."""
        # The mark tells spreadsheets that it is UTF-8.
        data = base64.b64encode(self.to_csv().encode("utf-8-sig")).decode()
        return (
            f'<a class="download" download="{html.escape(self.identity)}.csv" '
            f'href="data:text/csv;charset=utf-8;base64,{data}">CSV</a> '
        )


def _data(cell: Cell) -> str:
    """Write a cell; of a number neither it nor its interval is parted on a screen."""
    text = html.escape(str(cell))
    if not isinstance(cell, Number):
        return f"<td>{text}</td>"
    if math.isnan(cell.interval.estimate):
        return f'<td class="why">{text}</td>'
    number, bracket, rest = text.partition(" (")
    return f"<td><span>{number}</span>{f' <span>({rest}</span>' if bracket else ''}</td>"


def _apart(title: str, cells: Sequence[Cell]) -> list[tuple[str, list[str]]]:
    """Part a column of a table into those of its CSV."""
    numbers = [cell for cell in cells if isinstance(cell, Number)]
    if not numbers:
        return [(title, [_plain(str(cell)) for cell in cells])]
    units = dict.fromkeys(cell.unit for cell in numbers if cell.unit)
    name = title.removesuffix(f" ({next(iter(units), '')})")

    def column(part: str, value: Callable[[Number], float | int | str]) -> tuple[str, list[str]]:
        return f"{name}: {part}", [
            _written(value(cell)) if isinstance(cell, Number) else "" for cell in cells
        ]

    found = [
        (name, ["" if isinstance(cell, Number) else _plain(str(cell)) for cell in cells]),
        column("estimate", lambda cell: cell.interval.estimate),
        column("low", lambda cell: cell.interval.low),
        column("high", lambda cell: cell.interval.high),
        column("n", lambda cell: cell.interval.n),
        column("unit", lambda cell: cell.unit),
        column("p", lambda cell: cell.p_value),
    ]
    kept = (": estimate", ": low", ": high", ": n")
    return [each for each in found if any(each[1]) or each[0].endswith(kept)]


def _written(value: float | int | str) -> str:
    """Write a number for a CSV: nothing where there is none."""
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if math.isfinite(value) else ""


def _plain(text: str) -> str:
    """Take out what a spreadsheet does not read as part of a number: thin spaces, the real minus."""
    thin = text.replace("\u202f", "").replace("\u2009", "")
    return thin.replace("\u00a0", " ").replace("−", "-")


@dataclass(frozen=True)
class Title:
    """The question that the page answers; Jupyter shows it by itself."""

    text: str

    def _repr_html_(self) -> str:
        return f"<h1>{html.escape(self.text)}</h1>"


@dataclass(frozen=True)
class Answer:
    """The answer to the page's question in one sentence, set larger than what follows."""

    line: str

    def _repr_html_(self) -> str:
        return f'<p class="answer">{html.escape(self.line)}</p>'


def translated(names: Sequence[str]) -> str:
    """Say which modes are translations, as a page does once and then uses their plain names; or nothing."""
    if not names:
        return ""
    kind = "are EEVDF translations" if names[1:] else "is an EEVDF translation"
    return f" Here {listed(names)} {kind}: what this kernel's scheduler has in the place of the papers' settings."


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

    parts: tuple[Shown, ...]

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
