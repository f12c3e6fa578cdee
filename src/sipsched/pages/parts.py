"""The parts of a page as plain data: figures, tables, sentences and sections.

A part holds words and data, but no HTML. `sipsched.pages.html` turns parts into HTML, with one template for all.
"""

import csv
import functools
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from sipsched.pages.numbers import NO_ENTRY, Number
from sipsched.words import grouped, listed, plural

if TYPE_CHECKING:
    from sipsched.pages.drawing import Layout

FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")
"""If a cell begins with one of these characters, a spreadsheet runs the cell as a formula."""
NUMBER = re.compile(r"<?([+-]?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?)(?: ?(%|µs|ms|s))?")
"""Pattern of a number and its unit. Such text is no formula, even if it begins like one (`FORMULA_BEGINS`)."""
IN_US = {"ms": 1e3, "s": 1e6}
"""Factors that convert a time to microseconds, so that a column with several units of time is sorted by the times."""


class Part:
    """Base class of page parts, such as figures and tables. A part looks the same in JupyterLab and on a page."""

    @property
    def kind(self) -> str:
        """Return the name of the HTML template's macro that shows this part."""
        return type(self).__name__

    def _repr_html_(self) -> str:
        # Import the template only here, because only a displayed part needs it.
        from sipsched.pages.html import fragment

        return fragment(self)


@dataclass(frozen=True)
class Figure(Part):
    """A figure with its caption and its sentences.

    Attributes
    ----------
    identity
        The id of the figure in the page.
    draw
        Draws the figure for a layout, as SVG (`sipsched.pages.drawing.themed`).
    caption
        One sentence that names the quantities. The caption is also the alternative text for readers who cannot see the
        figure.
    seen
        Sentences with the values of the figure.
    reading
        Sentences that explain the marks of the figure. The page folds these sentences.
    provenance
        The label of numbers that were not measured: simulated, predicted or published.
    """

    identity: str
    draw: Callable[["Layout"], str]
    caption: str
    seen: tuple[str, ...] = ()
    reading: str = ""
    provenance: str = ""

    @functools.cached_property
    def wide(self) -> str:
        """The figure as SVG in the wide form, for a page."""
        from sipsched.pages.drawing import WIDE, in_form

        return in_form(self.draw, WIDE, self.identity)

    @functools.cached_property
    def narrow(self) -> str:
        """The figure as SVG in the narrow form, for a phone. Empty if this form is equal to the wide form."""
        from sipsched.pages.drawing import NARROW, in_form

        svg = in_form(self.draw, NARROW, f"{self.identity}-narrow")
        return "" if svg == self.wide else svg


Cell = str | Number
"""A cell of a table: text, or a number with its interval."""
EMPTY = frozenset(("", NO_ENTRY))
"""Cells without information. A column or row with only such cells is not shown."""
LONG_CELL = 60
"""A text cell with more characters than this is shown in several lines."""
BROAD = 130
"""A table whose rows need more characters than this has a smaller font on the screen, and a landscape page in print."""
LONGEST_LINE = 20
"""The estimate of a table's width assumes at most this number of characters per line of a text cell."""
COLUMN_GAP = 2
"""The gap between two columns of a table, in characters."""


@dataclass(frozen=True)
class Table(Part):
    """A table with its caption and its explanation.

    Empty columns and rows are not shown. Consecutive rows with equal values in the first `places` columns share a
    heading.

    Attributes
    ----------
    identity
        The id of the table in the page, and the name of its CSV file.
    header, rows
        The names of the columns, each with its unit in brackets at the end, and the rows of cells.
    none
        The sentence that replaces a table without rows.
    caption, provenance
        As in `Figure`.
    groups
        Texts of a line above the header, each with the number of columns that it spans.
    places
        The number of leading columns that form the headings of rows.
    shown
        The number of rows on the page; the CSV has all rows. None shows all rows.
    reading
        Sentences that explain the columns. The page folds these sentences.
    """

    identity: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    none: str
    provenance: str = ""
    groups: tuple[tuple[str, int], ...] = ()
    places: int = 0
    shown: int | None = None
    reading: str = ""

    @property
    def more(self) -> int:
        """The number of rows that are only in the CSV and not on the page."""
        return max(0, len(self.rows) - (self.shown or len(self.rows)))

    @functools.cached_property
    def columns(self) -> list[int]:
        """The indices of the shown columns after the row headings. Columns without an entry are not shown."""
        return [
            i
            for i in range(self.places, len(self.header))
            if any(str(row[i]) not in EMPTY for row in self.rows[: self.shown])
        ]

    @functools.cached_property
    def numeric(self) -> frozenset[int]:
        """The indices of the shown columns that contain only numbers.

        The first column is excluded, because a cell of the first column names a row.
        """
        return frozenset(
            i
            for i in self.columns[1:]
            if all(
                isinstance(row[i], Number) or str(row[i]) in EMPTY or _is_number(str(row[i]))
                for row in self.rows[: self.shown]
            )
        )

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of all columns, each after the heading of its group."""
        groups = [text for text, span in self.groups for _ in range(span)]
        groups += [""] * (len(self.header) - len(groups))
        pairs = zip(groups, self.header, strict=True)
        return [": ".join(filter(None, pair)) for pair in pairs]

    @functools.cached_property
    def has_prose(self) -> bool:
        """True if a shown cell, except the first of its row, has a long text. A phone then shows each row as a list."""
        return any(
            len(str(row[i])) > LONG_CELL
            for row in self.rows[: self.shown]
            for i in self.columns[1:]
            if i not in self.numeric
        )

    @property
    def is_broad(self) -> bool:
        """True if a row needs more than `BROAD` characters. The interval of a number may stand below the number."""
        columns = (
            [
                *self.header[i].split(),
                *(line for row in self.rows[: self.shown] for line in _lines(row[i])),
            ]
            for i in self.columns
        )
        return sum(max(map(len, column), default=0) + COLUMN_GAP for column in columns) > BROAD

    def spanners(self) -> list[tuple[str, int]]:
        """Return the group headings above the table's header, each with the number of shown columns that it spans."""
        ends = list(accumulate((span for _, span in self.groups), initial=0))
        return [
            (text, count)
            for (text, span), start in zip(self.groups, ends, strict=False)
            if (count := sum(start <= i < start + span for i in self.columns))
        ]

    def bodies(self) -> dict[str, list[list[Cell]]]:
        """Return the cells of the shown rows, grouped by the heading that consecutive rows share."""
        by_place: dict[str, list[list[Cell]]] = {}
        for row in self.rows[: self.shown]:
            cells = [row[i] for i in self.columns]
            if any(str(cell) not in EMPTY for cell in cells):
                by_place.setdefault(self._place(row), []).append(cells)
        return by_place

    def _place(self, row: Sequence[Cell]) -> str:
        """Return the heading of a row as text, made from the first cells, such as "mode default, 2 cores"."""
        names = []
        for name, cell in zip(self.header, row[: self.places], strict=False):
            text = str(cell)
            if text.isdecimal():
                text = plural(int(text), name.removesuffix("s"))
            elif name == "mode":
                text = f"mode {text}"
            names.append(text)
        return ", ".join(filter(None, names))

    def to_csv(self) -> str:
        """Return the table as CSV text (RFC 4180), with one header line, plain spaces and ASCII minus signs.

        A number with an interval has columns for estimate, low, high, n and unit. If a test was made, the
        number also has a column for p.
        """
        columns = []
        for i, title in enumerate(self.labels):
            cells = [row[i] if i < len(row) else "" for row in self.rows]
            columns += _csv_columns(title, cells)
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow([_plain(title) for title, _ in columns])
        writer.writerows(zip(*(cells for _, cells in columns), strict=True))
        return buffer.getvalue().replace("`", "")


def sort_key(cell: Cell) -> str:
    """Return the number by which the page sorts a cell, as text. Empty for a cell with words."""
    if isinstance(cell, Number):
        return _written(cell.interval.estimate)
    match = NUMBER.fullmatch(_plain(cell))
    if match is None:
        return ""
    digits, unit = match.groups()
    return _written(IN_US[unit] * float(digits)) if unit in IN_US else digits


def cell_text(cell: Cell) -> str:
    """Return a cell as text for the page. The digits of whole numbers are grouped by three."""
    text = str(cell)
    return grouped(int(text)) if text.isdecimal() else text


def number_and_interval(cell: Number) -> tuple[str, str]:
    """Return the text of a number in two parts: the number, and the interval in brackets after the number."""
    text, bracket, rest = str(cell).partition(" (")
    return text, f"({rest}" if bracket else ""


def _lines(cell: Cell) -> Iterator[str]:
    """Yield the pieces of a cell's text between which a narrow column may break the line."""
    if isinstance(cell, Number):
        yield from number_and_interval(cell)
    else:
        yield cell_text(cell)[:LONGEST_LINE]


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(_plain(text)) is not None


def _csv_columns(title: str, cells: Sequence[Cell]) -> list[tuple[str, list[str]]]:
    """Return the CSV columns (title and cells) for one column of a table. Numbers with intervals need several."""
    numbers = [cell for cell in cells if isinstance(cell, Number)]
    if not numbers:
        return [(title, [_plain(str(cell)) for cell in cells])]
    units = dict.fromkeys(cell.unit for cell in numbers if cell.unit)
    name = title.removesuffix(f" ({next(iter(units), '')})")

    def column(part: str, value: Callable[[Number], float | int | str]) -> tuple[str, list[str]]:
        return f"{name}: {part}", [
            _written(value(cell)) if isinstance(cell, Number) else "" for cell in cells
        ]

    columns = [
        (name, ["" if isinstance(cell, Number) else _plain(str(cell)) for cell in cells]),
        column("estimate", lambda cell: cell.interval.estimate),
        column("low", lambda cell: cell.interval.low),
        column("high", lambda cell: cell.interval.high),
        column("n", lambda cell: cell.interval.n),
        column("unit", lambda cell: cell.unit),
        column("p", lambda cell: cell.p_value),
    ]
    always = (": estimate", ": low", ": high", ": n")
    return [(name, texts) for name, texts in columns if any(texts) or name.endswith(always)]


def _written(value: float | int | str) -> str:
    """Return a number as text for a CSV. Empty for infinite and missing numbers."""
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if math.isfinite(value) else ""


def _plain(text: str) -> str:
    """Return text in a form in which a spreadsheet recognises numbers and never runs text as a formula.

    The function removes thin spaces and replaces the typographic minus by a hyphen. The function puts an apostrophe
    before text that begins like a formula, because spreadsheets treat cells with an apostrophe as text.
    """
    thin = text.replace("\u202f", "").replace("\u2009", "")
    plain = thin.replace("\u00a0", " ").replace("−", "-")
    is_formula = plain.startswith(FORMULA_BEGINS) and not NUMBER.fullmatch(plain)
    return f"'{plain}" if is_formula else plain


@dataclass(frozen=True)
class Title(Part):
    """The question that the page answers."""

    text: str


@dataclass(frozen=True)
class Answer(Part):
    """The answer to the page's question, shown in larger type."""

    line: str


@dataclass(frozen=True)
class Words(Part):
    """A list of sentences on a page, computed from the data."""

    lines: tuple[str, ...]
    css_class: str = "seen"


@dataclass(frozen=True)
class Prose(Part):
    """Markdown text from a notebook, shown on a page."""

    markdown: str


@dataclass(frozen=True)
class Heading(Part):
    """The origin of a page's numbers: measured or simulated, on which testbed, with which kernel."""

    fidelity: str
    testbed: str
    description: str


@dataclass(frozen=True)
class Definitions(Part):
    """A list of questions or terms, each with an explanation, under an optional heading."""

    identity: str
    heading: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Links(Part):
    """A list of links to pages, each with an address and a title."""

    pages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Several(Part):
    """Several parts of a page in a row, under an optional heading of the third level."""

    parts: Sequence[Part]
    heading: str = ""


@dataclass(frozen=True)
class Folded(Part):
    """Hidden parts of a page. The reader opens the parts by a click on their summary."""

    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Tile(Part):
    """A short answer in a box at the top of a page.

    Attributes
    ----------
    question, value
        The question in a few words, and its answer in large type.
    meaning
        The system and the conditions of the answer.
    grade, trust
        The grade of the evidence in two or three words, and sentences that explain the grade.
    link, link_text
        The page with the evidence.
    figure
        A small picture.
    """

    question: str
    value: str
    meaning: str
    grade: str
    trust: str = ""
    link: str = ""
    link_text: str = ""
    figure: Figure | None = None


@dataclass(frozen=True)
class Tiles(Part):
    """Several tiles (boxes with short answers) side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True)
class LoadAnswers:
    """The answers for one system (such as a proxy), for every load that a reader may enter on the page.

    Attributes
    ----------
    steps
        The answers, in ascending order of the load. Each entry has four values: the largest load for which the answer
        is valid, the answer, the capacity from which the used share is computed, and the words before this share.
    beyond
        The answer for loads above all entries.
    """

    steps: tuple[tuple[float, str, float, str], ...]
    beyond: str

    def at(self, cps: float) -> str:
        """Return the answer for a load (calls per second) as text. The page's script computes the same text."""
        for limit, text, capacity, words in self.steps:
            if cps <= limit:
                return f"{text}, {words}{100 * cps / capacity:.0f}\u00a0% used"
        return self.beyond


@dataclass(frozen=True)
class LoadBox(Part):
    """A box on a page in which the reader enters a load (calls per second), with a table of answers for this load.

    Attributes
    ----------
    identity
        The id of the box in the page.
    first, highest
        The load that the box initially shows, and the largest load that it accepts, in calls per second.
    kinds
        The names of the kinds of answers, such as measured and simulated.
    rows
        The name of each system, with its answers of each kind.
    """

    identity: str
    first: float
    highest: float
    kinds: tuple[str, ...]
    rows: tuple[tuple[str, tuple[LoadAnswers, ...]], ...]


@dataclass(frozen=True)
class Printed(Part):
    """Text that a cell of a notebook printed."""

    text: str


@dataclass(frozen=True)
class Foreign(Part):
    """The HTML representation of an object that is no page part, such as a data frame."""

    html: str


@dataclass(frozen=True)
class Section(Part):
    """A section of a page: a heading, the expected result, and parts such as figures and tables.

    Attributes
    ----------
    expected
        The result to expect, as Markdown from the notebook. The page folds this text.
    """

    heading: str
    expected: str
    parts: Sequence[Part]

    @property
    def identity(self) -> str:
        """The id of the section in the HTML page, made from the section's heading."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


@dataclass(frozen=True)
class Source:
    """A study summary from which the figures of a page are computed.

    Attributes
    ----------
    path
        Path of the summary, relative to the working directory.
    valid
        Number of valid runs in the summary.
    runs
        Folders of these runs' records, relative to the folder of all records. Braces abbreviate several folders, as in
        a shell.
    """

    path: str
    valid: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page: its title, its parts, and the runs from which its figures are computed.

    Attributes
    ----------
    title
        The question that the page answers.
    parts
        The parts before the first section, then the sections.
    home
        The address of the overview; empty on the overview.
    code
        The source of the cells that made the page.
    refresh_s
        Seconds after which a browser reloads the page. 0 means never.
    sources
        The runs from which the figures of the page are computed.
    article
        Whether the page is an article. A printed article has small figures and no folded text.
    """

    title: str
    parts: Sequence[Part]
    home: str = ""
    code: Sequence[str] = ()
    refresh_s: float = 0
    sources: Sequence[Source] = ()
    article: bool = False

    @property
    def sections(self) -> list[Section]:
        """The sections of the page."""
        return [part for part in self.parts if isinstance(part, Section)]

    @property
    def figures(self) -> list[Figure]:
        """All figures of the page, including the figures in sections, in folded parts and in tiles."""
        return list(_figures(self.parts))


def _figures(several: Iterable[Part]) -> Iterator[Figure]:
    for part in several:
        if isinstance(part, Figure):
            yield part
        elif isinstance(part, Tiles):
            yield from (tile.figure for tile in part.tiles if tile.figure)
        elif isinstance(part, Section | Several | Folded):
            yield from _figures(part.parts)


def translated(names: Sequence[str]) -> str:
    """Return a sentence about the modes of the papers that this kernel can only approximate.

    Return an empty text without names.
    """
    if not names:
        return ""
    kind = "are EEVDF translations" if names[1:] else "is an EEVDF translation"
    return (
        f" On this kernel, {listed(names)} {kind}: this kernel's scheduler does not have the settings of the papers' "
        "scheduler CFS, so the modes use similar settings."
    )
