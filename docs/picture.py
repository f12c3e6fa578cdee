"""Draw docs/picture.svg, the figure of README.md, from runs that come with the repository.

.venv/bin/python docs/picture.py

The SVG's <title> and <desc> describe the figure. README.md repeats times from this description.
"""

import html
import sys
from pathlib import Path

import sipsched
from sipsched.pages.drawing import THEME

COMMAND = ".venv/bin/python docs/picture.py"


def colours(dark: bool) -> str:
    """Return the colours of all figures as CSS variables."""
    return "".join(f"--{name}:{(bright, night)[dark]};" for name, bright, night in THEME.values())


def picture() -> str:
    """Return an SVG of the share of messages that exceed a time, per load of recorded/fit, with its description."""
    figure = sipsched.open("local", "recorded/fit").plot.ccdf()
    svg = figure.wide
    words = html.escape(" ".join(figure.seen))
    dark = f"@media(prefers-color-scheme:dark){{:root{{{colours(True)}}}}}"
    head = (
        "<title>Share of messages that exceed a time, one line per load</title>"
        f"<desc>Made by: {COMMAND}. {words}</desc>"
        f"<style>:root{{{colours(False)}}}{dark}</style>"
    )
    end_of_tag = svg.index(">") + 1
    return svg[:end_of_tag] + head + svg[end_of_tag:]


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    path.write_text(picture(), encoding="utf-8")
