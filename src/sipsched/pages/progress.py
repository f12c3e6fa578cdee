"""The progress of a campaign, as a page and as lines for the terminal.

The page is renewed every few minutes during measurements. No notebook makes the page, because running a notebook takes
seconds of CPU time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sipsched.files import whole
from sipsched.pages import html
from sipsched.pages.parts import Page, Table, Title, Words
from sipsched.plan.run import Run
from sipsched.records.forecast import Outlook
from sipsched.validity.rules import RULES
from sipsched.validity.verdict import in_general
from sipsched.words import number, plural

TITLE = "Progress of the measurements"
EVERY_S = 120.0
"""Seconds between two updates of the progress page during measurements."""
NEXT_RUNS = 5
"""Number of upcoming runs that the page lists for each testbed."""


def line(outlook: Outlook, now: datetime) -> str:
    """Return a line about the progress of a testbed: measured runs, remaining runs, and the expected end."""
    name, runs = outlook.testbed, outlook.measured + len(outlook.left)
    if outlook.is_done:
        return f"{name}: all {plural(runs, 'run')} measured" if runs else f"{name}: no run"
    parts = [f"{outlook.measured} of {plural(runs, 'run')} measured"]
    if outlook.searches:
        behind = outlook.behind_searches
        them = "it" if len(outlook.searches) == 1 else "them"
        after = f" and about {plural(behind, 'run')} after {them}" if behind else ""
        parts.append(f"{_searches(len(outlook.searches))} to make{after}")
    if outlook.at_most_more:
        parts.append(f"up to {plural(outlook.at_most_more, 'run')} more where intervals are wide")
    parts.append(
        f"{_hours(outlook.work_s)} of testbed time left, done about {_clock(outlook, now)} UTC"
    )
    return f"{name}: {', '.join(parts)} ({basis(outlook)})"


def basis(outlook: Outlook) -> str:
    """Return as text how the remaining time of a testbed was estimated."""
    by_limit = outlook.searches and outlook.by_search_limit
    searching = "assuming that each search takes its longest time" if by_limit else ""
    if outlook.from_runs:
        times = f"estimated from the times of {plural(outlook.from_runs, 'recorded run')}"
    else:
        times = "estimated from the length of the load, because no run is recorded yet"
    return "; ".join(filter(None, (times, searching)))


def write_page(
    path: Path, outlooks: Sequence[Outlook], measuring: Mapping[Run, datetime], now: datetime
) -> None:
    """Write the HTML page about the progress of the measurements.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    page = Page(TITLE, (Title(TITLE), *_parts(outlooks, measuring, now)), refresh_s=EVERY_S / 2)
    with whole(path) as partial:
        partial.write_text(html.document(page), encoding="utf-8")


def _parts(
    outlooks: Sequence[Outlook], measuring: Mapping[Run, datetime], now: datetime
) -> list[Words | Table]:
    made = f"This page was made at {now:%Y-%m-%d %H:%M} UTC."
    if measuring:
        said = [
            f"Since {since:%H:%M} UTC, this run is being measured: {run}."
            for run, since in measuring.items()
        ]
    else:
        said = ["No run is measured now."]
    if not all(outlook.is_done for outlook in outlooks):
        said.append("If the measurements are interrupted, the same command continues them.")
    following = [
        (outlook.testbed, str(run))
        for outlook in outlooks
        for run in [run for run in outlook.left if run not in measuring][:NEXT_RUNS]
    ]
    refused = [
        (outlook.testbed, in_general(cause) if cause in RULES else cause, str(count))
        for outlook in outlooks
        for cause, count in outlook.refused
    ]
    return [
        Words((made, *said)),
        _table_of_runs(outlooks, now),
        Table(
            identity="table-next",
            header=("testbed", "run"),
            rows=tuple(following),
            caption="The next runs in their order. Runs with an invalid attempt are repeated after all other runs.",
            none="No run with a known load is left.",
        ),
        Table(
            identity="table-refused",
            header=("testbed", "why", "attempts"),
            rows=tuple(refused),
            caption="Invalid attempts by cause. An attempt may have several causes.",
            none="No attempt was invalid.",
        ),
    ]


def _table_of_runs(outlooks: Sequence[Outlook], now: datetime) -> Table:
    return Table(
        identity="table-progress",
        header=(
            *("testbed", "measured", "left", "searches left", "runs after these searches"),
            *("time left (h)", "done about (UTC)", "times"),
        ),
        rows=tuple(
            (
                outlook.testbed,
                str(outlook.measured),
                str(len(outlook.left)),
                str(len(outlook.searches)),
                f"about {outlook.behind_searches}" if outlook.behind_searches else "0",
                number(outlook.work_s / 3600),
                "done" if outlook.is_done else _clock(outlook, now),
                "" if outlook.is_done else basis(outlook),
            )
            for outlook in outlooks
        ),
        caption="Runs of the campaign by testbed, with the expected end if no attempt fails.",
        none="The campaign has no testbed.",
    )


def _searches(count: int) -> str:
    return "1 search" if count == 1 else f"{count} searches"


def _hours(seconds: float) -> str:
    if seconds < 3600:
        return plural(max(1, round(seconds / 60)), "minute")
    return f"{number(seconds / 3600)} hours"


def _clock(outlook: Outlook, now: datetime) -> str:
    end = now + timedelta(seconds=outlook.done_in_s)
    return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
