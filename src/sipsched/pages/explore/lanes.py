"""Who ran while a slow message waited: a lane for each worker around it."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context

from sipsched.pages.drawing import INK, PAPER, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.explore.timeline import Messages, name_of, provenance
from sipsched.pages.parts import Figure
from sipsched.records.messages import MESSAGE_TYPES
from sipsched.words import number, plural

US = 1e6
PERCENTILE = 99.0
"""Of the wait: the message whose surroundings are drawn."""
LETTER_IN = 0.086
"""What a letter takes."""
MARGIN = 0.15
"""Of the message's time, shown before and after it."""


def slow_message(messages: Messages) -> int | None:
    """Find the message whose wait is next to the 99th percentile; None if no message has wait and service."""
    wait = np.where(np.isnan(messages.service_us), np.nan, messages.wait_us)
    if np.isnan(wait).all():
        return None
    return int(np.nanargmin(np.abs(wait - np.nanpercentile(wait, PERCENTILE))))


def lanes(messages: Messages, place: int | None = None) -> Figure | None:
    """Draw what each worker served, and on which CPU, while one message waited and was served.

    Parameters
    ----------
    messages
        Of one run.
    place
        Which message, by its place in order of arrival; None: `slow_message`.

    Returns
    -------
    Figure or None
        None if there is no message with wait and service.
    """
    place = slow_message(messages) if place is None else place
    if place is None:
        return None
    taken = messages.at_s * US + messages.wait_us
    sent = taken + messages.service_us
    begin = float(messages.at_s[place] * US)
    margin = MARGIN * (sent[place] - begin)
    left, right = begin - margin, float(sent[place] + margin)
    chosen = np.flatnonzero((sent > left) & (taken < right))
    workers = sorted(set(messages.worker[chosen].tolist()))
    cpus = sorted(set(messages.cpu[chosen].tolist()))
    names = {code: name for name, code in MESSAGE_TYPES.items()}

    def draw(layout: Layout) -> str:
        canvas, grid = layout.panels(1, 1, 0.5 + 0.28 * len(workers), above_in=1.0)
        axis = grid[0, 0]
        axis.barh(
            0, taken[place] - begin, left=0.0, height=0.5, color=SERIES[5], label="it waits: K_rcv"
        )
        for one in chosen:
            line = 1 + workers.index(int(messages.worker[one]))
            color = SERIES[cpus.index(int(messages.cpu[one])) % 5]
            off = min(float(np.nan_to_num(messages.off_us[one])), float(messages.service_us[one]))
            at, on = taken[one] - begin, float(messages.service_us[one]) - off
            cpu = f"serves, on CPU {messages.cpu[one]}"
            axis.barh(line, on, left=at, height=0.7, color=color, label=cpu)
            axis.barh(line, off, left=at + on, height=0.7, color=color, alpha=0.35, label="off CPU")
            if one == place:
                axis.barh(
                    line,
                    on + off,
                    left=at,
                    height=0.7,
                    fill=False,
                    edgecolor=INK,
                    label="it is served",
                )
            kind = names[int(messages.kind[one])]
            seen_from, seen_to = max(at, left - begin), min(at + on + off, right - begin)
            part = (seen_to - seen_from) / (right - left)
            if part * layout.width_in > LETTER_IN * len(kind):
                middle = (seen_from + seen_to) / 2
                ink = PAPER if middle < at + on else INK
                axis.text(middle, line, kind, ha="center", va="center", fontsize=6.5, color=ink)
        axis.set_xlim(left - begin, right - begin)
        axis.set_yticks(
            range(len(workers) + 1), ["the message", *(f"worker {each}" for each in workers)]
        )
        axis.set_ylim(len(workers) + 0.6, -0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel("µs since its arrival")
        legend(canvas, grid, columns=4)
        return themed(canvas)

    with rc_context(STYLE):
        svg, narrow = both(draw)
    kind = names[int(messages.kind[place])]
    wait, service = float(messages.wait_us[place]), float(messages.service_us[place])
    caption = (
        f"{', '.join(name_of(messages.run))}: around a message whose wait is next to the 99th percentile, what each "
        "worker serves, from receiving a message to sending it on. When in a service the worker is off its CPU is not "
        "recorded, only for how long: that part is drawn pale, at the end."
    )
    told = f"The {kind} waits {number(wait)} µs and is served in {number(service)} µs."
    seen = (f"{told} {_ahead(messages, place, taken, sent)}",)
    return Figure(
        identity="figure-lanes",
        svg=svg,
        narrow=narrow,
        alt=f"Workers over time around a slow message. {caption} {seen[0]}",
        caption=caption,
        seen=seen,
        provenance=provenance([messages]),
    )


def _ahead(messages: Messages, place: int, taken: npt.NDArray[Any], sent: npt.NDArray[Any]) -> str:
    """Say who was served while it waited, and how long they were off CPU."""
    begin = messages.at_s[place] * US
    during = np.flatnonzero((sent > begin) & (taken < taken[place]))
    during = during[during != place]
    if not len(during):
        return "No other message was being served meanwhile: it waited for a worker to be woken."
    off = float(np.nansum(messages.off_us[during]))
    workers = len(np.unique(messages.worker[during]))
    text = f"Meanwhile {plural(workers, 'worker')} had {plural(len(during), 'other message')} in service"
    if np.isnan(messages.off_us[during]).all():
        return f"{text}."
    return f"{text}, and were off CPU for {number(off)} µs of it in all."
