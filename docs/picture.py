"""Draw docs/picture.svg, the picture of README.md, from runs that come with the repository.

.venv/bin/python docs/picture.py

What it shows is in its <title> and <desc>, and the sentence under it in README.md is one of those.
"""

import html
import sys
from pathlib import Path

import sipsched

COMMAND = ".venv/bin/python docs/picture.py"


def picture() -> str:
    """Draw how long messages take at each load of recorded/fit, with the words of the figure in it."""
    figure = sipsched.open("local", "recorded/fit").plot.ccdf()
    words = " ".join((figure.caption, *figure.seen, figure.provenance))
    end_of_tag = figure.svg.index(">", figure.svg.index("<svg")) + 1
    told = (
        f"<title>{html.escape(figure.alt.partition('.')[0])}</title>"
        f"<desc>Made by: {COMMAND}. {html.escape(words)}</desc>"
    )
    return figure.svg[:end_of_tag] + told + figure.svg[end_of_tag:]


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    path.write_text(picture(), encoding="utf-8")
