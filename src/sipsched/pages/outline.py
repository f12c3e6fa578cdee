"""The outline of a page: a JSON file with the page's title and the ids of its figures.

The overview page and the archive are made from the outlines of the pages.
"""

import re
from dataclasses import asdict, dataclass
from html import unescape
from pathlib import Path

from sipsched.errors import MAKE_AGAIN
from sipsched.files import read_json, write_json
from sipsched.pages.parts import Page
from sipsched.paths import PROJECT_ROOT, project_path
from sipsched.records.conversion import as_part

HOME = "index.html"
"""The overview page, which links to all other pages of the folder."""
TITLE = re.compile("<title>(.*?)</title>", re.DOTALL)


@dataclass(frozen=True)
class Outline:
    """The outline of a page: its title, the ids of its figures, and the study summaries behind the figures.

    Attributes
    ----------
    page
        Path of the HTML file, relative to the working directory.
    figures
        The ids of the figures, in the order of the page.
    summaries
        Paths of the study summaries from which the figures are computed, relative to the working directory.
    """

    page: str
    title: str
    figures: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file name of the page, which is its address for other pages of the folder."""
        return Path(self.page).name


def write_outline(page: Page, html: Path, path: Path) -> None:
    """Write the outline of a page (title, figures, sources) as JSON to `path`. `html` is the path of the page.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    outline = Outline(
        project_path(html),
        page.title,
        tuple(figure.identity for figure in page.figures),
        tuple(source.path for source in page.sources),
    )
    write_json(path, asdict(outline))


def read_outline(path: Path) -> Outline:
    """Read the outline of a page (title, figures, sources) from JSON.

    Raises
    ------
    StableError
        The file is missing or damaged.
    """
    return as_part(Outline, read_json(path, None, MAKE_AGAIN), str(path), MAKE_AGAIN)


def nested_pages(folder: Path) -> dict[Path, str]:
    """Return the existing pages in the folders below a folder of pages, with their titles.

    For example, `reports/recorded/virtual` has the pages of the runs in virtual time. A folder with an overview is
    omitted, because its own overview lists the folder's pages.

    Parameters
    ----------
    folder
        Folder of pages, relative to the working directory or to the project's folder.
    """
    if folder == Path():
        return {}
    found = sorted((PROJECT_ROOT / folder).glob("*/*.html"))
    return {
        folder / page.parent.name / page.name: _title(page)
        for page in found
        if not (page.parent / HOME).exists()
    }


def _title(page: Path) -> str:
    """Return the title of an HTML page. A page without a title has its file name as title."""
    title = TITLE.search(page.read_text(encoding="utf-8"))
    return unescape(title[1]) if title else page.name
