"""Capacities that queueing theory predicts for a finite buffer, beside the measured capacities."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.capacity.options import Option
from sipsched.analysis.capacity.queues import endless_wait_us, queue
from sipsched.analysis.capacity.service_times import MeasuredService
from sipsched.analysis.capacity.systems import CapacityEvidence
from sipsched.analysis.crossing_load import typical_drop_rates
from sipsched.analysis.intervals import Interval, typical_intervals
from sipsched.analysis.papers import MESSAGES_PER_CALL
from sipsched.analysis.run_table import facet_name
from sipsched.errors import StableError
from sipsched.pages.drawing import INK, titled
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.pages.plots import (
    Look,
    limit_line,
    look,
    not_measured,
    panels,
    symlog_scale,
)
from sipsched.words import grouped, number, plural, ranged

SERVERS = {"cores": "cores (CPU time)", "threads": "threads (T_sip)"}


def measured(evidence: CapacityEvidence) -> Table:
    """Return a table of measured capacities, beside the capacities that queueing theory predicts from service times."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.services:
        for by, service in (("cores", system.cpu_us), ("threads", system.t_sip_us)):
            cells: list[Cell] = []
            for general in (False, True):
                interval = system.predict(by, general, evidence.limit)
                cells += [told(interval, "cps"), off_by(interval, system.measured)]
            rows.append(
                (
                    *(system.name, SERVERS[by], told(system.measured.capacity, "cps")),
                    *(told(service, "µs"), grouped(system.at_cps), *cells),
                )
            )
    return Table(
        identity="table-queues",
        header=(
            *("setting", "servers", "measured (cps)", "service time", "at load (cps)"),
            *("predicted (cps)", "off by") * 2,
        ),
        groups=(("", 5), ("M/M/c/K", 2), ("M/G/c/K", 2)),
        places=1,
        rows=tuple(rows),
        none="no service time was measured",
        caption="The measured capacity, and the capacity that queueing theory predicts from measured service times.",
        reading="The queue holds a limited number of messages, which arrive as a Poisson process. The servers of the "
        "queue are either the cores or the threads. If the servers are the cores, the service time is the CPU "
        "time of a message: T_sip on CPU + K_stack + K_copy + K_snd. If the servers are the threads, the service "
        "time is T_sip, which includes waiting for a CPU. Service times were measured at the highest load with a "
        f'PDR of at most {100 * evidence.limit:g}\u00a0%. The column "off by" shows the error of the prediction. '
        "The 95 % intervals reflect the differences between the mean service times of the runs.",
        provenance=evidence.own_provenance,
    )


def measured_words(evidence: CapacityEvidence) -> Words:
    """Return sentences with the errors of the M/M/c/K prediction, once with cores and once with threads as servers."""
    lines: list[str] = []
    for by, name in SERVERS.items():
        errors = [
            100 * (interval.estimate / service.measured.capacity.estimate - 1)
            for service in evidence.services
            if service.measured.settled
            and np.isfinite((interval := service.predict(by, False, evidence.limit)).estimate)
        ]
        if errors:
            span, middle = ranged(errors, percent), percent(float(np.median(errors)))
            over = f"over {len(errors)} settings" if len(errors) > 1 else ""
            note = ", ".join(filter(None, ("" if span == middle else f"median {middle}", over)))
            lines.append(
                f"If the servers of the queue M/M/c/K are the {name}, the error of its predicted capacity is {span}"
                f"{f' ({note})' if note else ''}."
            )
    if not evidence.services:
        lines.append(
            "Nothing was measured here, so the predictions of queueing theory cannot be tested."
        )
    elif not lines:
        lines.append("No setting has both a measured capacity and service times.")
    return Words(tuple(lines))


def curves(evidence: CapacityEvidence) -> Figure:
    """Draw the measured drop rate and wait against load, beside the predictions of queues with one server per core."""
    facets = list(dict.fromkeys(service.facet for service in evidence.services))
    counts = sorted({service.threads for service in evidence.services})
    limit = 100 * evidence.limit

    def draw(axis: Axes, row: int, column: int) -> None:
        if not facets:
            not_measured(axis)
            return
        for service in evidence.services:
            if service.facet == facets[row]:
                _draw_queue(axis, service, look(counts.index(service.threads)), column, limit)
        if column:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(FuncFormatter(grouped))
            axis.set_ylabel("wait (µs)")
        else:
            limit_line(axis, limit, f"{limit:g} %")
            symlog_scale(axis, 0.01)
            axis.set_ylabel("PDR (%)")

    return Figure(
        identity="figure-queues",
        draw=panels(
            [*map(facet_name, facets)] or [""],
            ["PDR", "mean K_sockq"],
            draw,
            "offered load (cps)",
            shared=("", ""),
            beside=False,
        ),
        caption="Packet drop rate (PDR) and mean wait in the socket queue against load, measured and predicted by "
        "queueing theory.",
        seen=tuple(
            dict.fromkeys(_queue_words(service, evidence.limit) for service in evidence.services)
        )
        or measured_words(evidence).lines,
        reading="Each point is the typical run at a load, with its 95 % interval. The lines are calculated for queues "
        "whose servers are the cores. In these queues, the service time is the CPU time of a message, measured "
        f"at the highest load with a PDR of at most {limit:g}\u00a0%. The queue M/G/c has unlimited room, so its "
        "line ends at the load that keeps all cores busy. The axis of PDR is linear below 0.01 % and logarithmic "
        "above. The measured wait includes the time to wake the worker, but the calculated wait does not. The "
        "calculation ignores retransmissions.",
        provenance=evidence.own_provenance,
    )


def _draw_queue(
    axis: Axes, service: MeasuredService, style: Look, column: int, limit: float
) -> None:
    label = plural(service.threads, "thread")
    values = service.waits_us if column else 100 * service.pdr
    estimates = (
        typical_intervals(values) if column else typical_drop_rates(values, limit, whole=100.0)
    )
    points = axis.errorbar(
        service.loads,
        estimates.estimate,
        yerr=estimates.bars,
        linestyle="none",
        color=style.color,
        marker=style.marker,
        markersize=4.5,
        capsize=2.5,
        label=label,
    )
    unit = "µs" if column else "%"
    titled(
        points[0],
        [
            f"{label}, {load:g} cps: {in_words(estimates.at(i), unit)}"
            for i, load in enumerate(service.loads)
        ],
    )
    loads = np.linspace(0.5 * service.loads[0], 1.02 * service.loads[-1], 120)
    for name, line in (("M/M/c/K", "-"), ("M/G/c/K", "--"), ("M/G/c", ":")):
        solved = np.array([_solve(service, name, load)[column] for load in loads])
        if np.isfinite(solved).any():
            axis.plot(
                loads,
                solved * (1 if column else 100),
                linestyle=line,
                color=style.color,
                linewidth=1.1,
            )
        # the prediction does not depend on the number of threads, so its legend entry omits this number
        axis.plot([], [], linestyle=line, color=INK, linewidth=1.1, label=name)


def _solve(system: MeasuredService, name: str, cps: float) -> tuple[float, float]:
    """Return the drop rate and the wait (µs) that a queue predicts at a load; NaN where the queue has no solution."""
    service, servers = system.cpu_us.estimate, system.servers("cores")
    scv = 1.0 if name == "M/M/c/K" else system.cpu_scv
    if np.isnan(service) or np.isnan(scv) or np.isnan(system.room):
        return np.nan, np.nan
    rate = MESSAGES_PER_CALL * cps
    if name == "M/G/c":
        wait = endless_wait_us(rate, service, servers, scv)
        return np.nan, wait if np.isfinite(wait) else np.nan
    try:
        found_queue = queue(rate, service, servers, int(system.room) + servers, scv)
    except StableError:
        return np.nan, np.nan
    return found_queue.blocking, found_queue.waiting_us


def _queue_words(service: MeasuredService, limit: float) -> str:
    interval = service.predict("cores", False, limit)
    measured, known = service.measured.capacity, in_words(service.measured.capacity, "cps")
    if not service.measured.settled and measured.estimate:
        known = f"at least {known}"
    if np.isnan(interval.estimate):
        return f"{service.name}: the measured capacity is {known}. The queue M/M/c/K predicts nothing: {interval.why}."
    text = f"{service.name}: the measured capacity is {known}. The queue M/M/c/K predicts {in_words(interval, 'cps')}"
    if not service.measured.settled:
        return f"{text}. {_beside_bound(interval, service.measured)}."
    inside = "no interval exists to judge this error"
    if interval.known and measured.known:
        apart = interval.low > measured.high or interval.high < measured.low
        inside = f"the intervals {'do not overlap' if apart else 'overlap'}"
    return f"{text}. The error is {off_by(interval, service.measured)}, and {inside}."


def _beside_bound(interval: Interval, measured: Option) -> str:
    """Return as text whether a predicted capacity is above or below a measured lower bound of the capacity."""
    bound = measured.interval.estimate
    if not bound:
        return "Every measured load is above the capacity, so no comparison is possible"
    where = "above" if interval.estimate >= bound else "below"
    return (
        f"The capacity is at least {number(bound)} cps, and the prediction is {where} this bound. The error of the "
        "prediction is unknown"
    )


def percent(value: float) -> str:
    """Return a difference in percent as text with its sign. Differences below 10 % have one decimal."""
    return f"{value:+.{int(abs(value) < 10)}f}\u00a0%".replace("-", "−")


def off_by(model: Interval, option: Option) -> str:
    """Return a prediction's error in percent as text; empty if the predicted or the measured capacity is unknown."""
    measured = option.capacity.estimate
    if not option.settled or not np.isfinite(model.estimate) or not measured > 0:
        return ""
    return percent(100 * (model.estimate / measured - 1))
