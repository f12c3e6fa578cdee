"""A figure of individual messages with their arrival, wait and service."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from sipsched.pages.drawing import LIMIT, SERIES, Layout, legend, themed
from sipsched.pages.explore.timeline import US, Messages, name_of, provenance, within
from sipsched.pages.parts import Figure
from sipsched.records.messages import MESSAGE_TYPES
from sipsched.words import number, plural

MOST_SINGLE = 60
"""The largest number of messages that a figure draws, one per line."""


def single(messages: Messages, start_s: float, length_s: float) -> Figure | None:
    """Draw each message that arrived in a period of time on a line of its own.

    Returns
    -------
    Figure or None
        None if no message or more than `MOST_SINGLE` messages arrived.
    """
    stretch = within(messages.at_s, start_s, start_s + length_s)
    count = stretch.stop - stretch.start
    if not 0 < count <= MOST_SINGLE:
        return None
    names = {code: name for name, code in MESSAGE_TYPES.items()}

    def draw(layout: Layout) -> str:
        canvas = Canvas(figsize=(layout.width_in, 1.3 + 0.17 * count), layout="constrained")
        grid = canvas.subplots(1, 1, squeeze=False)
        axis: Axes = grid[0, 0]
        labels = []
        for line, index in enumerate(range(stretch.start, stretch.stop)):
            _draw_message(axis, messages, index, line, start_s)
            kind = names[int(messages.kind[index])]
            labels.append(f"{kind}, worker {messages.worker[index]}")
        for at_s in messages.drop_at_s[within(messages.drop_at_s, start_s, start_s + length_s)]:
            axis.axvline((at_s - start_s) * US, color=LIMIT, linewidth=0.8, label="refused")
        axis.set_yticks(range(count), labels)
        axis.set_ylim(count - 0.4, -0.6)
        axis.set_axisbelow(True)
        axis.tick_params(axis="y", labelsize=7.5)
        axis.set_xlabel(f"µs since {start_s:.6f} s after the first arrival")
        axis.set_title(",\n".join(name_of(messages.run)), loc="left")
        legend(canvas, grid, columns=3)
        return themed(canvas)

    return Figure(
        identity="figure-single",
        draw=draw,
        caption="Each message that arrived in the selected period: its wait (K_rcv), its service (T_sip) and its "
        "sending (K_snd).",
        reading="The pale part of the service is the time off CPU. The run recorded only the length of this part, so "
        "the figure draws it at the end of the service. A worker that holds a message takes no other message.",
        seen=(_words(messages, stretch),),
        provenance=provenance([messages]),
    )


def _draw_message(axis: Axes, messages: Messages, index: int, line: int, start_s: float) -> None:
    at = (messages.at_s[index] - start_s) * US
    wait, service, off, send = (
        float(np.nan_to_num(values[index]))
        for values in (messages.wait_us, messages.service_us, messages.off_us, messages.send_us)
    )
    parts = (
        ("waits: K_rcv", wait, SERIES[1], 1.0),
        ("served, on a CPU", service - off, SERIES[0], 1.0),
        ("served, off CPU", off, SERIES[0], 0.35),
        ("sent: K_snd", send, SERIES[2], 1.0),
    )
    for name, length, color, alpha in parts:
        if length > 0:
            axis.barh(line, length, left=at, height=0.7, color=color, alpha=alpha, label=name)
        at += length


def _words(messages: Messages, stretch: slice) -> str:
    wait, service = messages.wait_us[stretch], messages.service_us[stretch]
    workers = len(np.unique(messages.worker[stretch]))
    text = f"{plural(len(wait), 'message')}, received by {plural(workers, 'worker')}"
    known = wait[~np.isnan(wait)]
    if not len(known):
        return f"{text}; the times of these messages are unknown."
    slowest = int(np.nanargmax(wait))
    text += f"; the longest wait is {number(float(known.max()))} µs"
    if not np.isnan(service[slowest]):
        text += f", before {number(float(service[slowest]))} µs of service"
    return f"{text}."
