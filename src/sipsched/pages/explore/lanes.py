"""The recorded work on the CPUs during a slow message, with lanes for the kernel, workers and other programs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.intervals import Values
from sipsched.pages.drawing import GRID, INK, PAPER, SERIES, Layout, legend, themed, titled
from sipsched.pages.explore.ran import named, ran_words
from sipsched.pages.explore.timeline import US, Messages, name_of, provenance
from sipsched.pages.parts import Figure
from sipsched.records.bursts import SHORTEST_US, Program
from sipsched.records.frames import KIND_NAMES
from sipsched.words import number, plural

PERCENTILE = 99.0
"""The page draws the message whose K_rcv + T_sip is nearest to this percentile over all messages."""
LETTER_IN = 0.086
"""The width of a letter of the figure's text, in inches."""
MARGIN = 0.15
"""The figure also shows the time before and after the message, for this share of the message's own duration each."""
UNSEEN = "nothing recorded"
OTHERS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("softirq", "kernel"), ("softirq or kernel thread", 2)),
    **dict.fromkeys(("realtime", "fair", "idle_class"), ("another program", 7)),
    "own": ("a program of sipsched", 6),
}
"""For each kind of other program, the name in the legend and the index of the colour in `SERIES`."""
LEAST = 0.005
"""The page mentions a part of the wait only if this part takes at least this share of the wait."""


def slow_message(messages: Messages) -> int | None:
    """Return the index of the message whose time is nearest to the 99th percentile; None if no times are known."""
    total = messages.wait_us + messages.service_us
    if np.isnan(total).all():
        return None
    return int(np.nanargmin(np.abs(total - np.nanpercentile(total, PERCENTILE))))


def lanes(messages: Messages, index: int | None = None) -> Figure | None:
    """Draw the recorded work of the kernel and of each worker while one message waited and was served.

    Returns
    -------
    Figure or None
        None if no message has K_rcv and T_sip.
    """
    if index is None and (index := slow_message(messages)) is None:
        return None
    begin, end = float(messages.at_s[index] * US), float(messages.sent_us[index])
    margin = MARGIN * (end - begin)
    left, right = begin - margin, end + margin
    steps = messages.steps_us()
    inside = {
        name: np.flatnonzero((ends > left) & (starts < right))
        for name, (starts, ends) in steps.items()
    }
    workers = sorted(set(messages.worker[inside["service"]].tolist()))
    others = other_bursts(messages, index, left, right)
    names = ["the message", "kernel receives", *(f"worker {worker}" for worker in workers)]
    names += [] if others is None else [f"others on CPU {messages.cpu[index]}"]
    others_lane = len(names) - 1
    gaps = unseen(messages, begin, float(messages.taken_us[index]), others=others or ())
    has_gaps = float(np.diff(gaps).sum()) > LEAST * float(messages.wait_us[index])
    names += [UNSEEN] if has_gaps else []

    def draw(layout: Layout) -> str:
        canvas, grid = layout.panels(1, 1, 0.6 + 0.28 * len(names), above_in=0.5)
        axis: Axes = grid[0, 0]
        axis.barh(0, messages.wait_us[index], left=0, height=0.5, color=SERIES[5], label="waits")
        starts, ends = (times[inside["stack"]] for times in steps["stack"])
        axis.barh(1, ends - starts, left=starts - begin, height=0.4, color=SERIES[2])
        if has_gaps:
            starts, ends = gaps.T
            axis.barh(len(names) - 1, ends - starts, left=starts - begin, height=0.7, color=GRID)
        for one in inside["service"]:
            row = 2 + workers.index(int(messages.worker[one]))
            _draw_service(axis, messages, int(one), row, begin, outlined=int(one) == index)
            _write_kind(axis, messages, int(one), row, begin, (left, right), layout)
        for other in others or ():
            _draw_other(axis, other, others_lane, begin, right - left, layout)
        axis.set_xlim(left - begin, right - begin)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel("time since its arrival (µs)")
        legend(canvas, grid, columns=4)
        return themed(canvas)

    return Figure(
        identity="figure-lanes",
        draw=draw,
        caption=f"{', '.join(name_of(messages.run))}: recorded work during the time of a slow message.",
        reading="The figure shows the message whose K_rcv + T_sip is nearest to the 99th percentile. A bar of a worker "
        "begins when the worker takes a message from the socket's queue. The bar ends when the kernel passes the "
        "sent message to the network driver. The pale part is the time off CPU. The run recorded only the length "
        "of this part, so the figure draws it at the end of the service. "
        + ("" if others is None else 'The lane "others" shows other programs and softirqs. ')
        + (
            f'The lane "{UNSEEN}" shows the parts of the wait without any recorded work.'
            if has_gaps
            else ""
        ),
        seen=(_words(messages, index),),
        provenance=provenance([messages]),
    )


def other_bursts(
    messages: Messages, place: int, start_us: float, end_us: float
) -> list[tuple[float, float, Program]] | None:
    """Return the bursts (periods on a CPU) of other programs on a message's CPU; None if no bursts were recorded.

    Returns
    -------
    list
        Start and end of each burst in µs since the first arrival, clipped to the searched period, and its program.
    """
    bursts = messages.bursts
    if bursts is None:
        return None
    start, end = (messages.start_ns + round(us * 1000) for us in (start_us, end_us))
    some = bursts.during(int(messages.cpu[place]), start, end)
    starts, ends = (
        (np.clip(times[some], start, end) - messages.start_ns) / 1000
        for times in (bursts.start_ns, bursts.end_ns)
    )
    programs = [bursts.programs[number] for number in bursts.program[some].tolist()]
    return list(zip(starts.tolist(), ends.tolist(), programs, strict=True))


def unseen(
    messages: Messages,
    start_us: float,
    end_us: float,
    *,
    certain: bool = False,
    others: Sequence[tuple[float, float, Program]] = (),
) -> Values:
    """Return the periods in which no work of the kernel or of a worker is recorded.

    Parameters
    ----------
    start_us, end_us
        The searched period, in µs since the first arrival.
    certain
        If true, a service counts as work only if the worker stayed on a CPU throughout.
    others
        Bursts of other programs that count as recorded work, from `other_bursts`.

    Returns
    -------
    array
        Start and end of each period in µs since the first arrival, shape (period, 2).
    """
    (received, stacked), (begun, sent) = messages.steps_us().values()
    if certain:
        whole = ~(messages.off_us > 0)
        begun, sent = begun[whole], sent[whole]
    bursts = np.array([burst[:2] for burst in others]).reshape(-1, 2)
    starts = np.concatenate((received, begun, bursts[:, 0]))
    ends = np.concatenate((stacked, sent, bursts[:, 1]))
    inside = (ends > start_us) & (starts < end_us)
    order = np.argsort(starts[inside])
    starts, ends = starts[inside][order], ends[inside][order]
    # Steps of work can overlap, so a gap begins only at the latest end of all earlier steps.
    before = np.maximum.accumulate(np.concatenate(([start_us], ends)))
    after = np.concatenate((starts, [end_us]))
    gaps = np.column_stack((before, np.minimum(after, end_us)))
    return np.asarray(gaps[gaps[:, 1] > gaps[:, 0]])


def _draw_service(
    axis: Axes, messages: Messages, one: int, row: int, begin: float, *, outlined: bool
) -> None:
    """Draw a worker's work on one message: copying, service on a CPU, time off CPU, and sending."""
    taken, sent = float(messages.taken_us[one]), float(messages.sent_us[one])
    copy, off, send = (
        float(np.nan_to_num(values[one]))
        for values in (messages.parts_us["k_copy"], messages.off_us, messages.send_us)
    )
    off = min(off, sent - taken)
    color = SERIES[int(messages.cpu[one]) % 5]
    cpu = f"on CPU {messages.cpu[one]}"
    start, at = taken - copy - begin, taken - begin
    bars = axis.barh(row, copy + sent - taken - off, left=start, height=0.7, color=color, label=cpu)
    kind = KIND_NAMES[int(messages.kind[one])]
    titled(bars[0], [f"{kind}: T_sip {number(sent - taken)} µs, of which {number(off)} µs off CPU"])
    axis.barh(
        row, off, left=at + sent - taken - off, height=0.7, color=color, alpha=0.35, label="off CPU"
    )
    axis.barh(row, send, left=sent - begin, height=0.7, color=color)
    if outlined:
        axis.barh(
            *(row, copy + sent - taken + send),
            left=start,
            height=0.7,
            fill=False,
            edgecolor=INK,
            label="serves the message",
        )


def _draw_other(
    axis: Axes,
    burst: tuple[float, float, Program],
    row: int,
    begin: float,
    width_us: float,
    layout: Layout,
) -> None:
    """Draw a bar for a burst (a period in which another program ran on the CPU), with the program's name."""
    start, stop, program = burst
    label, series = OTHERS[program.owner]
    bars = axis.barh(
        row, stop - start, left=start - begin, height=0.7, color=SERIES[series], label=label
    )
    titled(bars[0], [f"{named(program)}: {number(stop - start)} µs"])
    if _has_room(layout, stop - start, width_us, program.name):
        _write(axis, program.name, row, (start + stop) / 2 - begin)


def _write_kind(
    axis: Axes,
    messages: Messages,
    one: int,
    row: int,
    begin: float,
    span: tuple[float, float],
    layout: Layout,
) -> None:
    """Draw the type of a message, such as INVITE, as text into the message's bar, if the bar is wide enough."""
    seen_from, seen_to = max(messages.taken_us[one], span[0]), min(messages.sent_us[one], span[1])
    kind = KIND_NAMES[int(messages.kind[one])]
    if _has_room(layout, seen_to - seen_from, span[1] - span[0], kind):
        middle = (seen_from + seen_to) / 2
        on_end = messages.sent_us[one] - np.nan_to_num(messages.off_us[one])
        _write(axis, kind, row, middle - begin, PAPER if middle < on_end else INK)


def _has_room(layout: Layout, length_us: float, whole_us: float, text: str) -> bool:
    """Return whether a bar is wide enough for a text."""
    return length_us / whole_us * layout.width_in > LETTER_IN * len(text)


def _write(axis: Axes, text: str, row: int, at_us: float, color: str = PAPER) -> None:
    axis.text(at_us, row, text, ha="center", va="center", fontsize=6.5, color=color)


def _words(messages: Messages, index: int) -> str:
    """Return sentences about the longer part of a message's time, which is its wait or its time off CPU."""
    begin, taken = float(messages.at_s[index] * US), float(messages.taken_us[index])
    wait = taken - begin
    service, off = float(messages.service_us[index]), float(messages.off_us[index])
    times = (
        f"The {KIND_NAMES[int(messages.kind[index])]} waits {number(wait)} µs and is served in "
        f"{number(service)} µs."
    )
    if off > wait:
        stretch = (taken, float(messages.sent_us[index]))
        text = f"Its worker is off CPU for {_part(off, service)} of the service."
        return " ".join(
            (
                f"{times} {text} {others_served(messages, index, *stretch)}",
                *filter(None, [ran_words(messages, index, *stretch)]),
            )
        )
    nothing, uncertain = (
        float(np.diff(unseen(messages, begin, taken, certain=certain)).sum())
        for certain in (False, True)
    )
    others = other_bursts(messages, index, begin, taken)
    rest = float(np.diff(unseen(messages, begin, taken, others=others or ())).sum())
    sentences = [
        times,
        others_served(messages, index, begin, taken),
        f"During {_part(wait - uncertain, wait)} of the wait, the kernel or a worker worked on a CPU.",
    ]
    if uncertain - nothing > LEAST * wait:
        sentences.append(
            f"During {_part(uncertain - nothing, wait)} of the wait, a worker held a message and was off CPU for "
            "some of this time."
        )
    if others is not None:
        sentences.append(ran_words(messages, index, begin, taken))
    if rest > LEAST * wait:
        another = (
            "another task ran"
            if others is None
            else f"another task ran for less than {SHORTEST_US} µs"
        )
        sentences.append(
            f"During {_part(rest, wait)} of the wait, nothing is recorded. Either a worker was between two messages, "
            f"or {another}, or the CPU was idle."
        )
    return " ".join(sentences)


def _part(time_us: float, whole_us: float) -> str:
    return f"{number(time_us)} µs ({100 * time_us / whole_us:.0f} %)"


def others_served(messages: Messages, index: int, start_us: float, end_us: float) -> str:
    """Return a sentence with the number of other messages that workers served during a part of a message's time.

    Parameters
    ----------
    start_us, end_us
        The part of the message's time, in µs since the first arrival.
    """
    taken, sent = messages.taken_us, messages.sent_us
    during = np.flatnonzero((sent > start_us) & (taken < end_us))
    during = during[during != index]
    if not during.size:
        return "Meanwhile, no worker served another message."
    workers = np.unique(messages.worker[during]).size
    text = f"Meanwhile, {plural(workers, 'worker')} served {plural(during.size, 'other message')}"
    off = messages.off_us[during]
    if np.isnan(off).all():
        return f"{text}."
    # A service may begin before this part of the message's time and end after it. Only the overlap counts.
    inside = np.minimum(sent[during], end_us) - np.maximum(taken[during], start_us)
    share = np.nansum(np.minimum(off, inside)) / inside.sum()
    return f"{text}, and spent up to {100 * share:.0f} % of the service of these messages off CPU."
