"""The page that says how far measuring has come, and the lines on it for the terminal.

It is made every few minutes beside measurements: a notebook would cost seconds of a CPU each time.
"""

import html
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sipsched.files import whole
from sipsched.pages.parts import Table, Words
from sipsched.plan.config import Run
from sipsched.records.forecast import Outlook
from sipsched.records.publishable import publishable_text
from sipsched.validity.verdict import in_general
from sipsched.words import number, plural

TITLE = "How far measuring has come"
EVERY_S = 120.0
"""Seconds from one page to the next while runs are measured."""
NEXT_RUNS = 5
"""So many runs of each testbed are named as the next."""
TEMPLATE = Path(__file__).parent / "report_template" / "index.html.j2"
"""Where the look of all pages is."""


def line(outlook: Outlook, now: datetime) -> str:
    """Say what a testbed has done of a campaign, what is left, and when it would be done.

    Parameters
    ----------
    outlook
        Of the testbed.
    now
        The instant from which its times count.
    """
    name, runs = outlook.testbed, outlook.measured + len(outlook.left)
    if outlook.is_done:
        return f"{name}: all of its {plural(runs, 'run')} measured" if runs else f"{name}: no run"
    parts = [f"{outlook.measured} of {plural(runs, 'run')} measured"]
    if outlook.searches:
        behind = outlook.behind_searches
        them = "it" if len(outlook.searches) == 1 else "them"
        after = f" and about {plural(behind, 'run')} behind {them}" if behind else ""
        parts.append(f"{_searches(len(outlook.searches))} to make{after}")
    if outlook.at_most_more:
        parts.append(f"up to {plural(outlook.at_most_more, 'run')} more where intervals are wide")
    parts.append(
        f"{_hours(outlook.work_s)} of testbed time left, done about {_clock(outlook, now)} UTC"
    )
    return f"{name}: {', '.join(parts)} ({basis(outlook)})"


def basis(outlook: Outlook) -> str:
    """Say what the time that a run takes is taken from."""
    by_limit = outlook.searches and outlook.by_search_limit
    searching = "a search counts as the most it may take" if by_limit else ""
    if outlook.from_runs:
        times = f"by the times of {plural(outlook.from_runs, 'recorded run')}"
    else:
        times = "by the length of the load, since no run is recorded"
    return "; ".join(filter(None, (times, searching)))


def write_page(
    path: Path, outlooks: Sequence[Outlook], measuring: Mapping[Run, datetime], now: datetime
) -> None:
    """Write the page.

    Parameters
    ----------
    path
        The file; it appears whole.
    outlooks
        Of the campaign's testbeds.
    measuring
        Runs that are measured now, and since when.
    now
        When the outlooks were made.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    text = TEMPLATE.read_text(encoding="utf-8")
    style = text[text.index("<style>") : text.index("</style>")] + "</style>"
    body = "".join(part._repr_html_() for part in _parts(outlooks, measuring, now))
    title = html.escape(TITLE)
    with whole(path) as partial:
        partial.write_text(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f'<meta http-equiv="refresh" content="{EVERY_S / 2:.0f}">\n<title>{title}</title>\n'
            f'<link rel="icon" href="data:,">\n{style}\n</head>\n<body>\n<main>\n'
            f"<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n",
            encoding="utf-8",
        )


def _parts(
    outlooks: Sequence[Outlook], measuring: Mapping[Run, datetime], now: datetime
) -> list[Words | Table]:
    made = f"Made {now:%Y-%m-%d %H:%M} UTC."
    if measuring:
        said = [
            f"Measured now: {run}, since {since:%H:%M} UTC." for run, since in measuring.items()
        ]
    else:
        said = ["No run is measured now."]
    if not all(each.is_done for each in outlooks):
        said.append("After an interrupt the same command goes on from there.")
    following = [
        (each.testbed, str(run))
        for each in outlooks
        for run in [run for run in each.left if run not in measuring][:NEXT_RUNS]
    ]
    refused = [
        (each.testbed, publishable_text(in_general(cause)), str(count))
        for each in outlooks
        for cause, count in each.refused
    ]
    return [
        Words((made, *said)),
        Table(
            identity="table-progress",
            header=(
                *("testbed", "measured", "left", "searches left", "runs behind them"),
                *("testbed hours left", "done about (UTC)", "times"),
            ),
            rows=tuple(
                (
                    each.testbed,
                    str(each.measured),
                    str(len(each.left)),
                    str(len(each.searches)),
                    f"about {each.behind_searches}" if each.behind_searches else "0",
                    number(each.work_s / 3600),
                    "done" if each.is_done else _clock(each, now),
                    "" if each.is_done else basis(each),
                )
                for each in outlooks
            ),
            caption="Runs of the campaign by testbed, and when each would be done if no attempt fails.",
            provenance="",
            none="The campaign has no testbed.",
        ),
        Table(
            identity="table-next",
            header=("testbed", "run"),
            rows=tuple(following),
            caption="What is measured next, in this order; attempts that failed come again after all others.",
            provenance="",
            none="No run with a known load is left.",
        ),
        Table(
            identity="table-refused",
            header=("testbed", "why", "attempts"),
            rows=tuple(refused),
            caption="Attempts that do not count, by their cause; an attempt may have several.",
            provenance="",
            none="No attempt was refused.",
        ),
    ]


def _searches(count: int) -> str:
    return "1 search" if count == 1 else f"{count} searches"


def _hours(seconds: float) -> str:
    if seconds < 3600:
        return plural(max(1, round(seconds / 60)), "minute")
    return f"{number(seconds / 3600)} hours"


def _clock(outlook: Outlook, now: datetime) -> str:
    end = now + timedelta(seconds=outlook.done_in_s)
    return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
