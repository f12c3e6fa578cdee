"""The measured mean of the sum beside the two bounds that queueing theory has for one core."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sipsched.analysis.advice import Advice, Load
from sipsched.analysis.sojourn import Sojourn, sojourn
from sipsched.pages.crossover.wording import (
    Section,
    Sections,
    identity,
    place_name,
    provenance,
    short_load,
)
from sipsched.pages.drawing import (
    INK,
    LIMIT,
    MARKERS,
    NARROW_IN,
    SERIES,
    STYLE,
    WIDTH_IN,
    legend,
    themed,
)
from sipsched.pages.numbers import NO_ENTRY, told, with_unit
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.words import grouped, number


def page(found: Sequence[Advice]) -> Sections:
    """Draw and list the bounds of each proxy that has one core."""
    sections = []
    for advice in found:
        loads = [ranking.load for ranking in advice.rankings]
        known = [(load, each) for load in loads if (each := sojourn(load)) is not None]
        if advice.place.cores != 1:
            line = "The bounds are for one core; this proxy has more."
            sections.append(Section(place_name(advice.place), (Words((line,)),)))
        elif not known:
            line = "No bounds: no window of the reference has a CPU time a message."
            sections.append(Section(place_name(advice.place), (Words((line,)),)))
        else:
            parts = (_figure(advice, known), _table(advice, known))
            sections.append(Section(place_name(advice.place), parts))
    if not sections:
        sections.append(Section("", (Words(("No bounds: nothing was measured.",)),)))
    return Sections(tuple(sections))


def _figure(advice: Advice, known: Sequence[tuple[Load, Sojourn]]) -> Figure:
    seen = tuple(_seen(load, each) for load, each in known)
    caption = (
        "Mean of K_rcv + T_sip against the load, by mode, with 95 % intervals; lines: the mean sojourn of M/G/1 "
        "under processor sharing and first come first served, at the CPU time a message that was measured "
        "under the reference. Short slices come near the one, SCHED_FIFO near the other; the "
        "proxy's other work and the kernel's packet work are in the measured times and not in the lines."
    )
    return Figure(
        identity=identity("figure-bounds", *advice.place[1:4]),
        svg=_draw(advice, known, WIDTH_IN),
        narrow=_draw(advice, known, NARROW_IN),
        alt=f"Measured response and bounds of queueing theory. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance([load for load, _ in known]),
    )


def _draw(advice: Advice, known: Sequence[tuple[Load, Sojourn]], width: float) -> str:
    modes = list(
        dict.fromkeys([advice.place.reference, *(m for load, _ in known for m in load.modes)])
    )
    with rc_context({**STYLE, "font.size": 8.5}):
        canvas = Canvas(figsize=(width, 3.2), layout="constrained")
        axis = canvas.subplots()
        at = np.arange(len(known), dtype=float)
        for name, values, style in (
            ("processor sharing", [each.sharing_us for _, each in known], "--"),
            ("first come first served", [each.fcfs_us for _, each in known], ":"),
        ):
            drawn = np.where(np.isfinite(values), values, np.nan)
            colour = INK if style == "--" else LIMIT
            for x, value in zip(at, drawn, strict=True):
                axis.plot([x - 0.42, x + 0.42], [value, value], style, color=colour, label=name)
        step = 0.7 / max(len(modes), 1)
        for i, mode in enumerate(modes):
            x, y, low, high = [], [], [], []
            for place, (load, _) in zip(at, known, strict=True):
                if mode != advice.place.reference and mode not in load.modes:
                    continue
                mean = load.mean(mode, "total_mean")
                if math.isnan(mean.estimate):
                    continue
                x.append(place + step * (i - (len(modes) - 1) / 2))
                y.append(mean.estimate)
                low.append(mean.estimate - mean.low if mean.known else 0.0)
                high.append(mean.high - mean.estimate if mean.known else 0.0)
            axis.errorbar(x, y, yerr=[low, high], label=known[0][0].label(mode), **_mark(i))
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xticks(at, [short_load(load).replace(" (", "\n(") for load, _ in known])
        axis.set_ylabel("mean of K_rcv + T_sip (µs)")
        axis.grid(False, axis="x")
        legend(canvas, np.array([axis]), columns=4 if width == WIDTH_IN else 2)
        return themed(canvas)


def _mark(i: int) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": MARKERS[i % len(MARKERS)],
        "color": SERIES[i % len(SERIES)],
        "markersize": 4.5,
        "elinewidth": 1.2,
    }


def _seen(load: Load, found: Sojourn) -> str:
    measured = load.mean(load.place.reference, "total_mean")
    name = short_load(load)
    reference = load.label(load.place.reference)
    if math.isinf(found.sharing_us):
        return (
            f"{name}: {number(found.service_us)} µs of CPU a message leave no time free at this load: no bound; "
            f"{reference} measured {with_unit(measured, 'µs')}."
        )
    lower = "processor sharing" if found.sharing_us < found.fcfs_us else "first come first served"
    told = (
        f"{lower} would be the shorter, {_us(found.sharing_us)} against {_us(found.fcfs_us)}"
        if not math.isnan(found.fcfs_us)
        else f"processor sharing {_us(found.sharing_us)}; how the service varies is not known"
    )
    return (
        f"{name}: {number(found.service_us)} µs of CPU a message, {100 * found.utilisation:.0f}\u00a0% busy"
        + ("" if math.isnan(found.scv) else f", squared coefficient of variation {found.scv:.2g}")
        + f": {told}; {reference} measured {with_unit(measured, 'µs')}."
    )


def _us(value: float) -> str:
    return f"{value / 1000:.3g}\u00a0ms" if value >= 1000 else f"{number(value)}\u00a0µs"


def _table(advice: Advice, known: Sequence[tuple[Load, Sojourn]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for load, each in known:
        for mode in (advice.place.reference, *load.modes):
            rows.append(
                (
                    short_load(load),
                    load.label(mode),
                    told(load.mean(mode, "total_mean"), "µs"),
                    _bound(each.sharing_us),
                    _bound(each.fcfs_us),
                    number(each.service_us),
                    f"{100 * each.utilisation:.0f}",
                    NO_ENTRY if math.isnan(each.scv) else f"{each.scv:.2g}",
                )
            )
    return Table(
        identity=identity("table-bounds", *advice.place[1:4]),
        groups=(("", 3), ("bounds", 2), ("made of", 3)),
        places=1,
        header=(
            *("load", "mode", "mean of the sum", "processor sharing", "first come first served"),
            *("CPU a message (µs)", "busy (%)", "scv"),
        ),
        rows=tuple(rows),
        none="nothing was measured",
        caption="The measured mean of the sum, and the bounds it can be held against.",
        provenance=provenance([load for load, _ in known]),
    )


def _bound(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return "none: no time is free" if math.isinf(value) else _us(value)
