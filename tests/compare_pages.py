"""Compare two folders of pages word for word: `python tests/compare_pages.py before after`.

Use this program for changes of the code that must not change a page. Run `make reports` before and after the change,
and keep a copy of each folder. The program compares text, alternative texts, CSV files and figures. The program
excludes the code of a page, and lines with versions, commits and hashes of data.
"""

import base64
import difflib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

VERSIONS = re.compile(r"sipsched [0-9]|SHA-256|[0-9a-f]{40}|-g[0-9a-f]{7}")
SILENT = {"script", "style", "pre"}
"""HTML elements whose text the comparison ignores. The element `pre` contains the code of the page."""


class Reader(HTMLParser):
    """A parser that collects the lines of a page: text, alternative texts, and embedded files."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect alternative texts and embedded files from the attributes of an element."""
        if tag in SILENT:
            self._inside.append(tag)
        for name, value in attrs:
            if name in ("alt", "id", "title"):
                self._take(f"{tag} {name}: {value}")
            if name in ("src", "href") and value and value.startswith("data:"):
                head, _, body = value.partition(",")
                data = base64.b64decode(body) if head.endswith("base64") else unquote(body).encode()
                self._take(data.decode("utf-8", "replace"))

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element, after which the text counts again if the element was excluded."""
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        """Collect text, unless the text is in an excluded element."""
        if not self._inside:
            self._take(data)

    def _take(self, text: str) -> None:
        lines = (" ".join(line.split()) for line in text.splitlines())
        self.lines += [line for line in lines if line and not VERSIONS.search(line)]


def lines_of(page: Path) -> list[str]:
    """Return the lines of a page to compare."""
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.lines


def main(before: Path, after: Path) -> int:
    """Print the differences between two folders of pages, and return the number of pages that differ."""
    names = sorted({page.name for folder in (before, after) for page in folder.glob("*.html")})
    differ = 0
    for name in names:
        pages = [folder / name for folder in (before, after)]
        missing = [str(page) for page in pages if not page.is_file()]
        if missing:
            print(f"{name}: only one of the folders has it: no {missing[0]}")
            differ += 1
            continue
        old, new = map(lines_of, pages)
        difference = list(difflib.unified_diff(old, new, "before", "after", lineterm="", n=0))
        print(f"{name}: {len(old)} lines, {'the same' if not difference else 'different'}")
        print("\n".join(line[:300] for line in difference[:60]))
        differ += bool(difference)
    if not names:
        print(f"no pages in {before} and {after}")
    return differ or not names


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
