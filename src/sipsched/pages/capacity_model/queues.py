"""Queues with finite room beside the capacities that were measured and published."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis import papers
from sipsched.analysis.capacity.options import Option
from sipsched.analysis.capacity.queues import (
    MESSAGES_PER_CALL,
    endless_wait_us,
    queue,
    queue_capacity_cps,
)
from sipsched.analysis.capacity.service_times import ServiceTimes
from sipsched.analysis.capacity.systems import Evidence, System
from sipsched.analysis.run_table import facet_name
from sipsched.analysis.statistics import typical_drop_rates, typical_intervals
from sipsched.errors import StableError
from sipsched.pages.capacity_model.panels import empty
from sipsched.pages.capacity_model.wording import NOT_MEASURED, off_by, percent
from sipsched.pages.drawing import INK, LIMIT, MARKERS, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.words import grouped, number, plural

# ASSUME the papers' receive buffer holds 50 to 1000 messages.
PLACES_ASSUMED = 200
"""Messages that the papers' receive buffer holds; their tables do not print it."""
PLACES_RANGE = (50, 1000)
SCV_RANGE = (0.0, 4.0)
SERVERS = {"cores": "cores, CPU time", "threads": "threads, T_sip"}


def measured(evidence: Evidence) -> Table:
    """Set the capacities of queues with the measured service times beside the measured ones."""
    rows: list[tuple[Cell, ...]] = []
    for each in evidence.services:
        for by, service in (("cores", each.cpu_us), ("threads", each.t_sip_us)):
            cells: list[Cell] = []
            for general in (False, True):
                found = each.predict(by, general, evidence.limit)
                cells += [told(found, "cps"), off_by(found, each.measured)]
            rows.append(
                (
                    *(each.name, SERVERS[by], told(each.measured.capacity, "cps")),
                    *(told(service, "µs"), grouped(each.at_cps), *cells),
                )
            )
    return Table(
        identity="table-queues",
        header=(
            *("setting", "servers, service", "measured (cps)", "service time", "at (cps)"),
            *("predicted (cps)", "off by") * 2,
        ),
        groups=(("", 5), ("M/M/c/K", 2), ("M/G/c/K", 2)),
        places=1,
        rows=tuple(rows),
        none="nothing measured: no service times",
        caption="Capacity as queues with finite room predict it from measured service times, and by how "
        "much they are off. Two choices of what serves: the cores, for the CPU time of a message (T_sip "
        "on CPU + K_stack + K_copy + K_snd); the threads, for T_sip, which contains waiting for a CPU. "
        "Service times are from the highest load at or under the limit. Intervals: 95 %, of the mean "
        "service time over runs; n counts runs. Arrivals are taken for Poisson.",
        provenance=evidence.own_provenance,
    )


def measured_words(evidence: Evidence) -> Words:
    """Say how well each choice of servers predicts."""
    lines = []
    for by, name in SERVERS.items():
        errors = [
            100 * (found.estimate / each.measured.capacity.estimate - 1)
            for each in evidence.services
            if each.measured.settled
            and np.isfinite((found := each.predict(by, False, evidence.limit)).estimate)
        ]
        if errors:
            span = f"{percent(min(errors))} to {percent(max(errors))}"
            lines.append(
                f"M/M/c/K with {name}: off by {span if len(errors) > 1 else percent(errors[0])}, "
                f"median {percent(float(np.median(errors)))}, over {len(errors)} settings."
            )
    if not evidence.services:
        lines.append("Nothing measured here: the queues cannot be checked against a load sweep.")
    elif not lines:
        lines.append("No setting has both a crossing and service times.")
    return Words(tuple(lines))


def curves(evidence: Evidence) -> Figure:
    """Draw drop rate and wait against load, measured and as the queues with cores as servers have them."""
    facets = list(dict.fromkeys(each.facet for each in evidence.services))
    counts = sorted({each.threads for each in evidence.services})
    seen: dict[str, None] = {}

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(max(len(facets), 1), 2, 2.4)
            for axes, facet in zip(grid, facets, strict=False):
                among = [each for each in evidence.services if each.facet == facet]
                axes[0].set_title(f"{facet_name(facet)}\nPDR", loc="left")
                axes[1].set_title("mean K_sockq", loc="left")
                for each in among:
                    _draw_queue(axes, each, counts.index(each.threads), evidence.limit)
                    seen.setdefault(_queue_words(each, evidence.limit))
                axes[0].axhline(100 * evidence.limit, color=LIMIT, linestyle="--", linewidth=1)
                axes[0].set_yscale("symlog", linthresh=0.01, linscale=0.5)
                axes[0].set_ylim(0, 100)
                axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes[0].set_ylabel("PDR (%)")
                axes[1].set_yscale("log")
                axes[1].yaxis.set_major_formatter(FuncFormatter(grouped))
                axes[1].set_ylabel("wait (µs)")
            if not facets:
                for axis in grid[0]:
                    empty(axis, NOT_MEASURED)
            for axis in grid[-1]:
                axis.set_xlabel("offered load (cps)")
            legend(canvas, grid)
            return themed(canvas)

    svg, narrow = both(draw)
    caption = (
        "Packet drop rate, and mean wait in the socket queue, against load: points, a typical run with its "
        "95 % interval; lines, queues whose servers are the cores, with the CPU time of the highest load at "
        "or under the limit. M/G/c has endless room, and no wait from full load on. Dashed: the limit. PDR: "
        "symmetric log scale, linear under 0.01 %; wait: log scale, and what waking the worker takes is in "
        "the measured wait only. Messages sent again come on top of the load and are not in the lines."
    )
    return Figure(
        identity="figure-queues",
        svg=svg,
        narrow=narrow,
        alt=f"Queue models against measurement. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen) or ("Nothing measured here: no load sweep to hold the queues against.",),
        provenance=evidence.own_provenance,
    )


def _draw_queue(axes: Sequence[Axes], each: ServiceTimes, place: int, limit: float) -> None:
    color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    label = plural(each.threads, "thread")
    rates = typical_drop_rates(100 * each.pdr, 100 * limit, whole=100.0)
    for axis, found in zip(axes, (rates, typical_intervals(each.waits_us)), strict=True):
        axis.errorbar(
            each.loads,
            found.estimate,
            yerr=found.bars,
            linestyle="none",
            color=color,
            marker=marker,
            markersize=4.5,
            capsize=2.5,
            label=label,
        )
    loads = np.linspace(0.5 * each.loads[0], 1.02 * each.loads[-1], 120)
    for name, style in (("M/M/c/K", "-"), ("M/G/c/K", "--"), ("M/G/c", ":")):
        solved = np.array([_solve(each, name, load) for load in loads])
        for axis, values in zip(axes, (100 * solved[:, 0], solved[:, 1]), strict=True):
            if np.isfinite(values).any():
                axis.plot(loads, values, linestyle=style, color=color, linewidth=1.1)
        # The legend's line is of no series.
        axes[0].plot([], [], linestyle=style, color=INK, linewidth=1.1, label=name)


def _solve(each: ServiceTimes, name: str, cps: float) -> tuple[float, float]:
    """Give drop rate and wait in µs; NaN where the model says nothing."""
    service, servers = each.cpu_us.estimate, each.servers("cores")
    scv = 1.0 if name == "M/M/c/K" else each.cpu_scv
    if np.isnan(service) or np.isnan(scv) or np.isnan(each.room):
        return np.nan, np.nan
    rate = MESSAGES_PER_CALL * cps
    if name == "M/G/c":
        wait = endless_wait_us(rate, service, servers, scv)
        return np.nan, wait if np.isfinite(wait) else np.nan
    try:
        found = queue(rate, service, servers, int(each.room) + servers, scv)
    except StableError:
        return np.nan, np.nan
    return found.blocking, found.waiting_us


def _queue_words(each: ServiceTimes, limit: float) -> str:
    found = each.predict("cores", False, limit)
    measured = each.measured.capacity
    if np.isnan(found.estimate):
        return f"{each.name}: measured {in_words(measured, 'cps')}; nothing predicted: {found.why}."
    text = f"{each.name}: measured {in_words(measured, 'cps')}; M/M/c/K {in_words(found, 'cps')}"
    if not each.measured.settled:
        return f"{text}."
    inside = "no interval to judge it by"
    if found.known and measured.known:
        apart = found.low > measured.high or found.high < measured.low
        inside = f"the intervals {'do not overlap' if apart else 'overlap'}"
    return f"{text}, {off_by(found, each.measured)}: {inside}."


def published(evidence: Evidence) -> Table:
    """Set what the published T_sip makes of capacity beside the published capacity."""
    rows = []
    for system, option, found in _published_services(evidence):
        if option in system.best:
            pairs = [
                (grouped(cps), percent(100 * (cps / option.capacity.estimate - 1)))
                for _, cps in found
            ]
            rows.append(
                (
                    *(system.mode, str(option.cores), str(option.threads)),
                    *(number(found[0][0]), grouped(option.capacity.estimate)),
                    *(cell for pair in pairs for cell in pair),
                )
            )
    return Table(
        identity="table-published-queues",
        header=(
            *("mode", "cores", "threads", "T_sip (µs)", "published (cps)"),
            *("predicted (cps)", "off by") * 2,
        ),
        groups=(("", 5), ("M/M/c/K, c = threads", 2), ("M/M/c/K, c = cores", 2)),
        places=1,
        rows=tuple(rows),
        none="no capacity in the tables",
        caption="Capacity by M/M/c/K with the T_sip that the papers print for the last load at or under the "
        "limit, at the best number of threads, and by how much it is off; n = 30 experiments, whose spread "
        f"is not printed. The receive buffer is not printed either: {PLACES_ASSUMED} messages are assumed.",
        provenance=papers.provenance("multicore", "singlecore"),
    )


def published_words(evidence: Evidence) -> Words:
    """Say over all published columns how far the queues are off, and what the assumptions weigh."""
    errors: dict[int, list[float]] = {0: [], 1: []}
    for _, option, found in _published_services(evidence):
        for i, (_, cps) in enumerate(found):
            errors[i].append(100 * (cps / option.capacity.estimate - 1))
    lines = [
        f"c = {name}: off by {percent(min(errors[i]))} to {percent(max(errors[i]))}, median "
        f"{percent(float(np.median(errors[i])))}, over {len(errors[i])} settings of both modes."
        for i, name in enumerate(("threads", "cores"))
        if errors[i]
    ]
    usual = queue_capacity_cps(80, 4, PLACES_ASSUMED + 4, limit=evidence.limit)
    places = [queue_capacity_cps(80, 4, n + 4, limit=evidence.limit) for n in PLACES_RANGE]
    scvs = [queue_capacity_cps(80, 4, PLACES_ASSUMED + 4, v, evidence.limit) for v in SCV_RANGE]
    by_places, by_scv = (
        " to ".join(percent(100 * (each / usual - 1), 1) for each in values)
        for values in (places, scvs)
    )
    lines.append(
        f"What is assumed weighs little: a buffer of {PLACES_RANGE[0]} to {PLACES_RANGE[1]} messages moves "
        f"c = 4 with 80 µs by {by_places}, a squared coefficient of variation of {SCV_RANGE[0]:g} to "
        f"{SCV_RANGE[1]:g} (M/G/c/K) by {by_scv}."
    )
    return Words(tuple(lines))


def _published_services(
    evidence: Evidence,
) -> Iterator[tuple[System, Option, tuple[tuple[float, float], tuple[float, float]]]]:
    """Yield each published setting with T_sip and capacity: with threads, and with cores, as servers."""
    points = evidence.points.set_index(["cores", "threads", "mode", "cps"])["t_sip_us"]
    for system in evidence.systems:
        for option in system.options if system.published else ():
            place = (option.cores, option.threads, system.mode, option.grid_cps)
            if not option.settled or place not in points.index:
                continue
            t_sip = float(points[place])
            counts = (option.threads, min(option.cores, option.threads))
            first, second = (
                (t_sip, queue_capacity_cps(t_sip, c, PLACES_ASSUMED + c, limit=evidence.limit))
                for c in counts
            )
            yield system, option, (first, second)
