"""The answer and the figures of the page about a load sweep."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.crossing_load import PDR_LIMIT, RATE_RANGE, typical_drop_rates
from sipsched.analysis.intervals import (
    FEWEST,
    Estimates,
    Values,
    typical_intervals,
)
from sipsched.analysis.run_length import BusyPeriods, busy_periods
from sipsched.analysis.run_table import Facet, counted, facet_name, facets, provenance
from sipsched.pages.capacities import (
    HOW,
    capacity_words,
    carries,
    disagreements,
    doubt,
    doubts_near,
    draw_drop_rates,
    evidence,
    first_shown,
    rates_below,
)
from sipsched.pages.drawing import Layout
from sipsched.pages.message_types import distributions
from sipsched.pages.numbers import in_words, with_unit
from sipsched.pages.parts import Answer, Figure, Several
from sipsched.pages.plots import (
    Curve,
    draw_curve,
    from_zero,
    limit_line,
    load_axis,
    log_scale,
    look,
    not_measured,
    panels,
    symlog_scale,
)
from sipsched.pages.threads_map import heat_maps
from sipsched.records.study_summary import INVALID, MEASURED
from sipsched.records.summary_variables import ALL
from sipsched.records.system_capacity import SystemCapacity, capacity_of
from sipsched.words import grouped, number, plural

__all__ = (
    "answer",
    "by_threads",
    "distributions",
    "load",
    "pdr",
    "receive_parts",
    "receive_time",
    "service_time",
)
Estimate = Callable[[Values], Estimates]
"""A function that estimates one value per load from the values of single runs, shape (load, run)."""
Line = tuple[Facet, int]
"""One line of a figure: a configuration (proxy, mode and number of cores), and a number of threads."""
Capacities = Sequence[SystemCapacity]


def answer(summary: xr.Dataset, limit: float = PDR_LIMIT, capacities: Capacities = ()) -> Answer:
    """Return sentences about the configuration with the largest capacity.

    The sentences state this capacity, and the median waiting times at the lowest and at the highest load. Further
    sentences count suspect runs and too short runs at loads near the capacity.

    Parameters
    ----------
    limit
        Packet drop rate at which capacity ends, as a share.
    """
    by_line = {
        line: known
        for line in _lines(summary)
        if (known := _capacity(summary, line, limit, capacities))
    }
    if not by_line:
        return Answer(
            "There is no answer yet, because no system of this study was measured at two or more loads."
        )
    line, capacity = max(by_line.items(), key=lambda item: item[1].likely_cps)
    among = f", the best of {len(by_line)} configurations," if len(by_line) > 1 else ""
    text = f"{_name(line)}{among} {carries(capacity)}"
    waits = _curve(summary, line, summary["k_rcv_p50"].sel(message_type=ALL), "µs")
    ends = [
        f"{with_unit(waits.of.at(i), 'µs')} at {grouped(waits.x[i])}"
        for i in _first_and_last(waits)
    ]
    if ends:
        text += f". The median waiting time (K_rcv) is {' and '.join(ends)} calls per second"
    return Answer(
        " ".join((f"{text}.", *doubts_near(_rows(summary, line), capacity, "of this study")))
    )


def pdr(summary: xr.Dataset, limit: float = PDR_LIMIT, capacities: Capacities = ()) -> Figure:
    """Return a figure of the packet drop rate against the offered load (calls per second), with the capacities."""
    rates = 100 * summary["pdr"]

    def typical(runs: Values) -> Estimates:
        return typical_drop_rates(runs, 100 * limit, whole=100.0)

    lines = _lines(summary)
    typical_rates = [_curve(summary, line, rates, "%", typical).of.estimate for line in lines]
    first = first_shown(
        summary["cps"].to_numpy().astype(float),
        np.array([np.nan_to_num(typical_rate) for typical_rate in typical_rates]).reshape(
            len(lines), summary.sizes["cps"]
        ),
        [_capacity(summary, line, limit, capacities) for line in lines],
    )
    shown = summary.isel(cps=slice(first, None))

    ends = (_capacity(summary, line, limit, capacities) for line in lines)
    # The x axis has ticks up to the end of the widest capacity interval.
    beyond_cps = max(
        (100 * np.ceil(end.high_cps / 100) for end in ends if end and end.high_cps), default=0
    )

    def draw(axis: Axes, facet: Facet) -> None:
        there = _lines(shown, facet)
        if not there:
            not_measured(axis)
        for line in there:
            curve = _curve(shown, line, 100 * shown["pdr"], "%", typical)
            hollow = np.isin(curve.x, list(_too_short(shown, line)))
            curve = dataclasses.replace(curve, hollow=hollow)
            draw_drop_rates(axis, curve, _capacity(summary, line, limit, capacities), limit)

    def words(line: Line) -> str:
        curve = _curve(summary, line, rates, "%", typical)
        known = _capacity(summary, line, limit, capacities)
        sentences = []
        if known is not None:
            capacity = f"The capacity is {capacity_words(known)}, estimated from {evidence(known)}."
            sentences += [capacity, doubt(known), *disagreements(known)]
        above = np.flatnonzero(curve.of.estimate > 100 * limit)
        if len(above):
            drops = in_words(curve.of.at(above[0]), "%")
            sentences.append(
                f"{grouped(curve.x[above[0]])} cps is the lowest measured load at which the typical run drops more "
                f"than {100 * limit:g}\u00a0%. At this load, the typical run drops {drops}."
            )
        elif (curve.of.n > 0).any():
            sentences.append(rates_below(curve, known, limit))
        return " ".join(filter(None, (*sentences, _short_words(summary, line))))

    return _figure(
        summary,
        "figure-pdr",
        _load_panels(shown, {"": draw}, beyond_cps=beyond_cps),
        "Packet drop rate (PDR) against offered load, for each number of worker threads.",
        "PDR is the kernel counter RcvbufErrors divided by the number of messages that reached the SPS. The dashed "
        f"line marks a PDR of {100 * limit:g}\u00a0%, at which the capacity is reached. A tick on the dashed line is "
        f"the capacity of a system, and the band around the tick is the capacity's interval. {HOW}. At a hollow "
        "point, at least one run is too short to contain many busy periods (times in which the proxy always holds a "
        f"message). The scale of PDR is linear below {100 * limit / RATE_RANGE:g} % and logarithmic above. The "
        "typical run is a kind of geometric mean (docs/methodology/statistics.md), in which a run without drops "
        f"counts as {100 * limit / RATE_RANGE:g} %. The x axis begins at the highest load at which no message is "
        "dropped.",
        words,
    )


def by_threads(summary: xr.Dataset) -> Several:
    """Return heat maps of drop rate and waiting time over threads and load. Empty for a single number of threads."""
    return heat_maps(summary)


def receive_time(summary: xr.Dataset) -> Figure:
    """Return a figure of K_rcv, a message's time from network driver to proxy, against the offered load."""
    values = {
        name: summary[f"k_rcv_{name}"].sel(message_type=ALL) for name in ("mean", "p50", "p99")
    }

    def words(line: Line) -> str:
        parts = [
            f"{name} {_first_to_last(_curve(summary, line, of, 'µs'))}"
            for name, of in values.items()
        ]
        return f"At the lowest and the highest load, the waiting time K_rcv has these values: {'; '.join(parts)}."

    return _figure(
        summary,
        "figure-k-rcv",
        _times_panels(summary, values, "K_rcv (µs)"),
        "K_rcv, the time from the driver to the proxy, against offered load.",
        "The panels show the mean, the median and the 99th percentile over all messages that the proxy received in a "
        "run. The time axis is logarithmic.",
        words,
    )


def service_time(summary: xr.Dataset) -> Figure:
    """Return a figure of T_sip, the service time in the proxy, and of its share off CPU, against the offered load."""
    mean = summary["t_sip_mean"].sel(message_type=ALL)
    share = 100 * summary["t_sip_off_mean"].sel(message_type=ALL) / mean

    def words(line: Line) -> str:
        text = (
            "At the lowest and the highest load, the service time T_sip has these values: mean "
            f"{_first_to_last(_curve(summary, line, mean, 'µs'))}"
        )
        off = _curve(summary, line, share, "%")
        if (off.of.n > 0).any():
            text += f"; share of T_sip off CPU {_first_to_last(off)}"
        return f"{text}."

    return _figure(
        summary,
        "figure-t-sip",
        _load_panels(
            summary,
            {
                "mean": _from_zero(summary, mean, "µs", "T_sip (µs)"),
                "share off CPU": _from_zero(summary, share, "%", "T_sip off CPU (%)"),
            },
        ),
        "T_sip, the service time in the proxy, against offered load.",
        "The left panel shows the mean T_sip over all messages that the proxy sent on. The right panel shows the "
        "share of T_sip that the worker spends off CPU, which is the mean time off CPU divided by the mean T_sip.",
        words,
    )


def receive_parts(summary: xr.Dataset) -> Figure:
    """Return a figure of the three parts of the receive time K_rcv: network stack, queue and copy."""
    means = {
        title: summary[f"{name}_mean"].sel(message_type=ALL)
        for title, name in (("K_stack", "k_stack"), ("K_sockq", "k_sockq"), ("K_copy", "k_copy"))
    }

    def words(line: Line) -> str:
        curves = {title: _curve(summary, line, values, "µs") for title, values in means.items()}
        if not all((curve.of.n > 0).any() for curve in curves.values()):
            return ""
        last = max(_first_and_last(curves["K_sockq"]))
        parts = [f"{title} {in_words(curve.of.at(last), 'µs')}" for title, curve in curves.items()]
        return f"The mean K_rcv at {grouped(curves['K_sockq'].x[last])} cps has these parts: {'; '.join(parts)}."

    tracepoints = "tracepoint" in set(summary["probe_mode"].to_numpy().ravel().tolist())
    return _figure(
        summary,
        "figure-k-rcv-parts",
        _times_panels(summary, means, "mean (µs)"),
        "The three parts of the mean waiting time K_rcv against offered load.",
        "K_stack is the time from the driver to the socket's queue. K_sockq is the time in the queue. K_copy is the "
        "time from the queue until the proxy's receive call returns. K_rcv is the sum of these three times. The time "
        "axis is logarithmic."
        + (
            " A probe in mode tracepoint measures only a lower bound of t_sockq. The true K_sockq may be about 1 µs "
            "larger than the figure shows, and the true K_copy about 1 µs smaller."
            if tracepoints
            else ""
        ),
        words,
    )


def load(summary: xr.Dataset) -> Figure:
    """Return a figure of the call rate that the generator achieved, and of the datagrams refused by a full socket."""
    achieved = 100 * summary["achieved_cps"] / summary["offered_cps"]
    kernel, probe = summary["rcvbuf_errors"], summary["probe_drops"]
    valid = summary["status"] == MEASURED

    def draw_rate(axis: Axes, facet: Facet) -> None:
        for edge in (99, 101):
            limit_line(axis, edge)
        _draw_lines(axis, summary, facet, achieved.where(valid), "%")
        _draw_invalid(axis, summary, facet, achieved)
        axis.set_ylabel("achieved / offered (%)")

    def draw_drops(axis: Axes, facet: Facet) -> None:
        _draw_lines(axis, summary, facet, kernel.where(valid), "datagrams")
        _draw_invalid(axis, summary, facet, kernel)
        symlog_scale(axis, 1)
        axis.set_ylabel("refused per run")

    def words(line: Line) -> str:
        curve = _curve(summary, line, achieved.where(valid), "%")
        if not (curve.of.n > 0).any():
            return "no valid run."
        worst = int(np.nanargmax(np.abs(curve.of.estimate - 100)))
        return (
            f"the achieved rate differs most from the offered rate at {grouped(curve.x[worst])} cps, by "
            f"{in_words(curve.of.at(worst).map(lambda share: share - 100), '%')}."
        )

    figure = _figure(
        summary,
        "figure-load",
        _load_panels(summary, {"achieved rate": draw_rate, "RcvbufErrors of the SPS": draw_drops}),
        "The call rate that the generator achieved, and the datagrams that the proxy's full socket refused, against "
        "offered load.",
        "The left panel shows the achieved rate in percent of the offered rate. The dashed lines mark deviations of "
        "±1\u00a0%. Crosses are invalid runs.",
        words,
    )
    both = np.isfinite(kernel.to_numpy()) & np.isfinite(probe.to_numpy())
    agree = int((kernel.to_numpy() == probe.to_numpy())[both].sum())
    line = f"The kernel and the probe count the same number of drops in {agree} of {int(both.sum())} runs."
    return dataclasses.replace(figure, seen=(*figure.seen, line))


def _lines(summary: xr.Dataset, facet: Facet | None = None) -> list[Line]:
    """Return the pairs of configuration and number of threads with a valid run, which are the lines of a figure."""
    return [
        (where, threads)
        for where in facets(summary)
        if facet in (None, where)
        for threads in summary["threads"].to_numpy().tolist()
        if bool((_of_line(summary["status"], (where, threads)) == MEASURED).any())
    ]


def _name(line: Line) -> str:
    return f"{facet_name(line[0])}, {plural(line[1], 'thread')}"


def _of_line(values: xr.DataArray, line: Line) -> xr.DataArray:
    """Select the values of one configuration and number of threads. The result has the dimensions (cps, rep)."""
    (sut, mode, cores), threads = line
    return values.sel(sut=sut, mode=mode, cores=cores, threads=threads).transpose("cps", "rep")


def _curve(
    summary: xr.Dataset,
    line: Line,
    values: xr.DataArray,
    unit: str,
    estimate: Estimate = typical_intervals,
) -> Curve:
    """Return the curve of one quantity against the load, for one configuration and number of threads."""
    runs = _of_line(values, line)
    loads = summary["cps"].to_numpy().astype(float)
    threads = summary["threads"].to_numpy().tolist()
    i, count = threads.index(line[1]), len(threads)
    step = float(np.diff(loads).min()) if len(loads) > 1 else 0.0
    return Curve(
        name=plural(line[1], "thread"),
        look=look(i),
        x=loads,
        of=estimate(runs.to_numpy()),
        runs=runs.to_numpy(),
        unit=unit,
        shift=0.0 if count < 2 else step * 0.08 * (i / (count - 1) - 0.5),
    )


def _first_and_last(curve: Curve) -> list[int]:
    """Return the indices of the lowest and the highest load of a curve at which runs exist."""
    some = np.flatnonzero(curve.of.n > 0)
    return list(dict.fromkeys([int(i) for i in (*some[:1], *some[-1:])]))


def _first_to_last(curve: Curve) -> str:
    """Return as text the values of a curve at its lowest and highest load."""
    ends = _first_and_last(curve)
    if not ends:
        return "not measured"
    return ", ".join(
        f"{in_words(curve.of.at(i), curve.unit)} at {grouped(curve.x[i])} cps" for i in ends
    )


def _capacity(
    summary: xr.Dataset, line: Line, limit: float, capacities: Capacities
) -> SystemCapacity | None:
    (sut, mode, cores), threads = line
    return capacity_of(capacities, limit, summary.attrs["testbed"], sut, mode, int(cores), threads)


def _rows(summary: xr.Dataset, line: Line) -> pd.DataFrame:
    """Return a table with a row for each valid run of one configuration and number of threads."""
    names = ("grade", "busy_periods_effective", "busy_longest_share", "pdr", "status")
    rows = pd.DataFrame(
        {name: _of_line(summary[name], line).to_numpy().ravel() for name in names}
        | {"cps": np.repeat(summary["cps"].to_numpy(), summary.sizes["rep"])}
    )
    return rows[rows["status"] == MEASURED]


def _too_short(summary: xr.Dataset, line: Line) -> dict[int, BusyPeriods]:
    """Return the loads at which a run is so short that it contains too few busy periods of the proxy."""
    runs = counted(summary)
    at = dict(zip(("sut", "mode", "cores"), line[0], strict=True)) | {"threads": line[1]}
    by_load = {int(cps): busy_periods(runs, at | {"cps": cps}) for cps in runs["cps"].to_numpy()}
    return {cps: busy for cps, busy in by_load.items() if busy is not None and busy.short}


def _short_words(summary: xr.Dataset, line: Line) -> str:
    """Return a sentence per load with too short runs, after an introduction. Empty without such runs."""
    by_load = [
        f"At {grouped(cps)} cps, {busy.short} of {plural(busy.runs, 'run')} {'is' if busy.short == 1 else 'are'} too "
        f"short. The longest busy period of the runs at this load takes {number(busy.longest_s)} s, and a busy "
        f"period fills up to {number(100 * busy.longest_share)}\u00a0% of its run."
        for cps, busy in _too_short(summary, line).items()
    ]
    return (
        " ".join(
            (
                "Some runs are too short to contain many busy periods (times in which the proxy always holds a "
                "message), so their results depend strongly on chance.",
                *by_load,
            )
        )
        if by_load
        else ""
    )


def _draw_lines(
    axis: Axes, summary: xr.Dataset, facet: Facet, values: xr.DataArray, unit: str
) -> None:
    curves = [_curve(summary, line, values, unit) for line in _lines(summary, facet)]
    curves = [curve for curve in curves if (curve.of.n > 0).any()]
    for curve in curves:
        draw_curve(axis, curve)
    if not curves:
        not_measured(axis)


def _draw_invalid(axis: Axes, summary: xr.Dataset, facet: Facet, values: xr.DataArray) -> None:
    """Draw a cross for each invalid run of one configuration into a panel."""
    for threads in summary["threads"].to_numpy().tolist():
        line = (facet, threads)
        curve = _curve(summary, line, values.where(summary["status"] == INVALID), "")
        axis.plot(curve.x + curve.shift, curve.runs, "x", color=curve.look.color)


def _from_zero(
    summary: xr.Dataset, values: xr.DataArray, unit: str, label: str
) -> Callable[[Axes, Facet], None]:
    """Return a function that draws one quantity against the load, on a linear axis that starts at zero."""

    def draw(axis: Axes, facet: Facet) -> None:
        _draw_lines(axis, summary, facet, values, unit)
        axis.set_ylabel(label)
        from_zero(axis)
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))

    return draw


def _times_panels(
    summary: xr.Dataset, values: Mapping[str, xr.DataArray], label: str
) -> Callable[[Layout], str]:
    """Return a function that draws times against the load, in panels that share one logarithmic time axis."""
    # The figure draws each single run, so the axis has to include the runs and not only the typical runs.
    runs = np.concatenate([of.to_numpy().ravel() for of in values.values()])
    runs = runs[runs > 0]
    low, high = (np.log10(runs.min()), np.log10(runs.max())) if runs.size else (0.0, 1.0)
    limits = (float(10 ** np.floor(low)), float(10 ** max(np.ceil(high), np.floor(low) + 1)))

    def panel(of: xr.DataArray) -> Callable[[Axes, Facet], None]:
        def draw(axis: Axes, facet: Facet) -> None:
            _draw_lines(axis, summary, facet, of, "µs")
            log_scale(axis, limits)
            axis.set_ylabel(label)

        return draw

    return _load_panels(summary, {name: panel(of) for name, of in values.items()}, "all")


def _load_panels(
    summary: xr.Dataset,
    columns: Mapping[str, Callable[[Axes, Facet], None]],
    shared_y: str = "column",
    beyond_cps: float = 0.0,
) -> Callable[[Layout], str]:
    """Return a function that draws quantities against the offered load, with a row of panels per configuration.

    The x axis ends after the highest load, or after `beyond_cps` if this load is higher.
    """
    rows, draws = facets(summary), list(columns.values())
    loads = summary["cps"].to_numpy().astype(float)
    if beyond_cps > loads[-1]:
        loads = np.append(loads, beyond_cps)
    return panels(
        [facet_name(facet) for facet in rows],
        list(columns),
        lambda axis, row, column: draws[column](axis, rows[row]),
        "offered load (cps)",
        shared=("all", shared_y),
        prepare=lambda axis, width_in: load_axis(axis, loads, width_in),
    )


def _figure(
    summary: xr.Dataset,
    identity: str,
    draw: Callable[[Layout], str],
    caption: str,
    reading: str,
    words: Callable[[Line], str],
) -> Figure:
    """Return a figure with its caption, and with a sentence per curve (a configuration and a number of threads)."""
    seen = [f"{_name(line)}: {text}" for line in _lines(summary) if (text := words(line))]
    if not seen and _lines(summary):
        seen = [
            "The probe of these runs does not measure this quantity. A table below lists all quantities that are "
            "missing."
        ]
    return Figure(
        identity=identity,
        draw=draw,
        caption=caption,
        reading=f"Each small point is a run. The line joins the typical run of each load. {_replicates(summary)} "
        f"{reading}",
        seen=tuple(seen) or ("There is nothing to show yet, because no run is valid.",),
        provenance=provenance(summary),
    )


def _replicates(summary: xr.Dataset) -> str:
    """Return sentences with the number of runs per point, and the meaning of the error bars."""
    counts = (summary["status"] == MEASURED).sum("rep").to_numpy().ravel()
    counts = counts[counts > 0]
    if not counts.size:
        return "No run is valid (n = 0)."
    low, high = int(counts.min()), int(counts.max())
    runs = f"n = {low}" if low == high else f"n = {low} to {high}"
    bars = (
        f"Error bars are 95 % intervals, drawn for {FEWEST} or more runs"
        if high >= FEWEST
        else f"An interval needs at least {FEWEST} runs"
    )
    return f"The number of runs per point is {runs}. {bars}."
