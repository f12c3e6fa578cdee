"""The figures of the page of a load sweep: one function a figure, each saying in words what it shows.

The replicate is the run: a point is one run, a line what a typical run is with its 95 %
interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from sipsched.analysis.run_length import BusyPeriods, busy_periods
from sipsched.analysis.run_table import Facet, counted, facet_name, facets, provenance
from sipsched.analysis.statistics import (
    FEWEST,
    PDR_LIMIT,
    RATE_RANGE,
    Crossing,
    Estimates,
    Interval,
    crossing,
    typical_drop_rates,
    typical_interval,
    typical_intervals,
)
from sipsched.pages.crossings import HOW, carries, crossing_words, doubt, through, unbroken
from sipsched.pages.drawing import (
    GRID,
    LIMIT,
    MARKERS,
    PAPER,
    SERIES,
    STYLE,
    Layout,
    both,
    legend,
    themed,
)
from sipsched.pages.numbers import in_words, with_unit
from sipsched.pages.parts import Answer, Figure, Several
from sipsched.pages.threads_map import heat_maps
from sipsched.plan.config import Run
from sipsched.records.messages import MESSAGE_TYPES, k_rcv, nanoseconds, open_messages
from sipsched.records.summary import ALL, INVALID, MEASURED
from sipsched.words import grouped, number, plural

MAX_RUNS_READ = 10
MAX_LOADS_AS_TICKS = 5
TICK_IN = 0.45
"""A load takes so much of an axis."""
TIMES = {"k_rcv": "K_rcv", "t_sip": "T_sip"}
PERCENTILES = {"p50": "median", "p95": "95th percentile", "p99": "99th percentile"}

Values = npt.NDArray[np.float64]
Column = tuple[str, Callable[[Axes, Facet], None]]
"""A column of panels: its title, and what draws a panel."""


@dataclass(frozen=True)
class Picture:
    """Panels as SVG, and what their points and bars are; empty where the caption says it."""

    svg: str
    narrow: str
    points: str


def answer(summary: xr.Dataset, limit: float = PDR_LIMIT) -> Answer:
    """Say how much load the configuration that carries most carries, and what its messages wait."""
    found = {}
    for facet in facets(summary):
        for threads in summary["threads"].to_numpy():
            if _any_run(summary, facet, int(threads)):
                runs = _runs(summary["pdr"], facet, int(threads))
                passes = crossing(runs["cps"].to_numpy(), runs.to_numpy(), limit)
                if not np.isnan(passes.interval.estimate):
                    found[facet, int(threads)] = passes
    if not found:
        return Answer("There is no answer yet: no run of this study counts.")
    facet, threads = max(found, key=lambda key: found[key].interval.estimate)
    among = f", the best of {len(found)} configurations," if len(found) > 1 else ""
    text = (
        f"{facet_name(facet)}, {plural(threads, 'thread')}{among} "
        f"{carries(found[facet, threads], limit)}"
    )
    waits = _series(summary, facet, threads, summary["k_rcv_p50"].sel(message_type=ALL))
    if len(waits.cps):
        text += f"; half of the messages wait no more than {_ends(waits)}"
    return Answer(f"{text}.")


def _ends(series: "Series") -> str:
    """Say what a time is at the lowest load and at the highest."""
    said = [
        f"{with_unit(series.of.at(i), 'µs')} at {grouped(series.cps[i])}"
        for i in dict.fromkeys((0, len(series.cps) - 1))
    ]
    return f"{' and '.join(said)} calls per second"


def pdr(summary: xr.Dataset, limit: float = PDR_LIMIT) -> Figure:
    """Draw the packet drop rate against the offered load, and where it passes the limit."""
    rates = 100 * summary["pdr"]

    def typical(runs: Values) -> Estimates:
        return typical_drop_rates(runs, 100 * limit, whole=100.0)

    def found(facet: Facet, threads: int) -> Crossing:
        runs = _runs(summary["pdr"], facet, threads)
        return crossing(runs["cps"].to_numpy(), runs.to_numpy(), limit)

    def draw(axis: Axes, facet: Facet) -> None:
        axis.axhline(100 * limit, color=LIMIT, linestyle="--", linewidth=1)
        axis.annotate(
            f"{100 * limit:g} %",
            (0, 100 * limit),
            xycoords=("axes fraction", "data"),
            xytext=(3, 2),
            textcoords="offset points",
            color=LIMIT,
        )
        crossings = {int(each): found(facet, each) for each in summary["threads"].to_numpy()}
        _lines(axis, summary, facet, rates, typical, crossings, 100 * limit)
        for i, each in enumerate(crossings.values()):
            _mark(axis, each, 100 * limit, SERIES[i % len(SERIES)], _dodge(summary, i))
        for i, threads in enumerate(crossings):
            series = _series(summary, facet, threads, rates, typical)
            short = np.isin(series.cps, list(_too_short(summary, facet, threads)))
            _hollow(axis, i, series.cps[short] + _dodge(summary, i), series.of.estimate[short])
        _symlog(axis, 100 * limit / RATE_RANGE, ("PDR (%)", "{:g}"))

    def words(facet: Facet, threads: int) -> str:
        series = _series(summary, facet, threads, rates, typical)
        passes = found(facet, threads)
        above = series.of.estimate > 100 * limit
        said = (
            f"typical PDR passes {100 * limit:g} % {'at ' if passes.interval.resolved else ''}{crossing_words(passes)}"
            if passes.bracketed
            else f"no crossing of {100 * limit:g} % is seen: {crossing_words(passes)}"
        )
        if above.any():
            first = int(np.argmax(above))
            said += f"; it is {in_words(series.of.at(first), '%')} at {series.cps[first]:g} cps"
        return " ".join(
            filter(None, (f"{said}.", doubt(passes, limit), _short_words(summary, facet, threads)))
        )

    return _figure(
        summary,
        "figure-pdr",
        "Packet drop rate",
        _load_panels(summary, (("", draw),)),
        f"Packet drop rate (RcvbufErrors / messages that reached the SPS) against offered load, by "
        f"worker threads; dashed: {100 * limit:g} %, and on it the crossing with its 95 % interval. {HOW}; "
        f"the line has a gap there. Without filling: a run is too short. "
        f"Symmetric log scale, linear under {100 * limit / RATE_RANGE:g} %, and what is "
        "less counts as that.",
        words,
        middle="typical run",
    )


def _too_short(summary: xr.Dataset, facet: Facet, threads: int) -> dict[int, BusyPeriods]:
    """Find the loads at which a run is too short for its busy periods."""
    runs = counted(summary)
    at = dict(zip(("sut", "mode", "cores"), facet, strict=True)) | {"threads": threads}
    found = {int(cps): busy_periods(runs, at | {"cps": cps}) for cps in runs["cps"].to_numpy()}
    return {cps: busy for cps, busy in found.items() if busy is not None and busy.short}


def _short_words(summary: xr.Dataset, facet: Facet, threads: int) -> str:
    found = _too_short(summary, facet, threads)
    said = [
        f"{cps} cps, {busy.short} of {plural(busy.runs, 'run')}: busy without a break for up to "
        f"{number(busy.longest_s)} s, {100 * busy.longest_share:.2g} % of the run"
        for cps, busy in found.items()
    ]
    return f"Too short to hold many busy periods: {'; '.join(said)}." if said else ""


def _hollow(axis: Axes, i: int, cps: Values, values: Values) -> None:
    """Take the filling from points of the i-th series."""
    axis.plot(
        cps,
        values,
        linestyle="none",
        marker=MARKERS[(i + i // len(SERIES)) % len(MARKERS)],
        markersize=5,
        color=SERIES[i % len(SERIES)],
        markerfacecolor=PAPER,
        zorder=4,
    )


def _mark(axis: Axes, found: Crossing, limit: float, color: str, shift: float) -> None:
    """Draw a crossing on the line of the limit, cut off at the loads measured."""
    interval = found.interval
    ends = np.clip((interval.low, interval.high), found.lowest_cps, found.highest_cps)
    axis.plot(ends + shift, [limit] * 2, color=color, linewidth=5, alpha=0.3, solid_capstyle="butt")
    if interval.resolved and np.isfinite(interval.estimate):
        axis.plot(
            [interval.estimate + shift],
            [limit],
            color=color,
            marker="|",
            markersize=11,
            markeredgewidth=2,
        )


def by_threads(summary: xr.Dataset) -> Several:
    """Draw threads against load; nothing where one number of threads was measured."""
    return heat_maps(summary)


def receive_time(summary: xr.Dataset) -> Figure:
    """Draw K_rcv, from driver to proxy, against the offered load."""
    values = {
        name: summary[f"k_rcv_{name}"].sel(message_type=ALL) for name in ("mean", "p50", "p99")
    }
    columns = tuple((name, _panel(summary, each, "K_rcv (µs)")) for name, each in values.items())

    def words(facet: Facet, threads: int) -> str:
        parts = [
            f"{name} {_from_to(_series(summary, facet, threads, each))}"
            for name, each in values.items()
        ]
        return "K_rcv: " + "; ".join(parts) + "."

    return _figure(
        summary,
        "figure-k-rcv",
        "K_rcv, the time from driver to proxy",
        _load_panels(summary, columns, log_values=tuple(values.values())),
        "K_rcv (t_sip_in - t_arr) of all received messages against offered load: per-run mean, "
        "median and 99th percentile. Log scale.",
        words,
    )


def service_time(summary: xr.Dataset) -> Figure:
    """Draw T_sip, the service in the proxy, and how much of it is off CPU."""
    mean = summary["t_sip_mean"].sel(message_type=ALL)
    share = 100 * summary["t_sip_off_mean"].sel(message_type=ALL) / mean
    columns = (
        ("mean", _panel(summary, mean, "T_sip (µs)", from_zero=True)),
        ("share off CPU", _panel(summary, share, "of T_sip off CPU (%)", from_zero=True)),
    )

    def words(facet: Facet, threads: int) -> str:
        text = f"T_sip: mean {_from_to(_series(summary, facet, threads, mean))}"
        off = _series(summary, facet, threads, share)
        if len(off.cps):
            text += f"; of it off CPU {_from_to(off, '%')}"
        return text + "."

    return _figure(
        summary,
        "figure-t-sip",
        "T_sip, the service time in the proxy",
        _load_panels(summary, columns),
        "T_sip (t_sip_out - t_sip_in) of all messages that were sent on, against offered load, and "
        "the share of it that the worker spent off CPU (mean of the one / mean of the other).",
        words,
    )


def receive_parts(summary: xr.Dataset) -> Figure:
    """Draw K_rcv split into stack, queue and copy."""
    parts = {"stack": "k_stack", "queue": "k_sockq", "copy": "k_copy"}
    means = {title: summary[f"{name}_mean"].sel(message_type=ALL) for title, name in parts.items()}
    columns = tuple(
        (f"K_{title}" if title != "queue" else "K_sockq", _panel(summary, values, "mean (µs)"))
        for title, values in means.items()
    )

    def words(facet: Facet, threads: int) -> str:
        texts = []
        for title, values in means.items():
            loads = _series(summary, facet, threads, values).cps
            if not len(loads):
                return ""
            at = dict(zip(("sut", "mode", "cores"), facet, strict=True))
            runs = values.sel(at | {"threads": threads, "cps": loads[-1]}).to_numpy()
            texts.append(f"{title} {in_words(typical_interval(runs), 'µs')}")
        return f"Of mean K_rcv at {loads[-1]:g} cps: {'; '.join(texts)}."

    bound = "tracepoint" in set(summary["probe_mode"].to_numpy().ravel().tolist())
    return _figure(
        summary,
        "figure-k-rcv-parts",
        "K_rcv split into stack, queue and copy",
        _load_panels(summary, columns, log_values=tuple(means.values())),
        "Means of K_stack (driver to socket queue), K_sockq (waiting in it) and K_copy (taken from "
        "it until recv returns); their sum is K_rcv. Log scale."
        + (
            " Tracepoint probe: t_sockq is a lower bound, so K_sockq is at least and K_copy at "
            "most what is drawn, about 1 µs apart."
            if bound
            else ""
        ),
        words,
    )


def load(summary: xr.Dataset) -> Figure:
    """Draw what the generator achieved and what was refused."""
    every, runs = (
        each.assign(achieved=100 * each["achieved_cps"] / each["offered_cps"])
        for each in (summary, counted(summary))
    )
    kernel, probe = summary["rcvbuf_errors"], summary["probe_drops"]

    def draw_rate(axis: Axes, facet: Facet) -> None:
        for edge in (99, 101):
            axis.axhline(edge, color=LIMIT, linestyle="--", linewidth=1)
        _lines(axis, summary, facet, runs["achieved"])
        _invalid(axis, summary, facet, every["achieved"])
        axis.set_ylabel("achieved / offered (%)")

    def draw_drops(axis: Axes, facet: Facet) -> None:
        _lines(axis, summary, facet, runs["rcvbuf_errors"])
        _invalid(axis, summary, facet, kernel)
        _symlog(axis, 1, ("datagrams refused in a run", "{:g}"))
        axis.set_ylim(bottom=0)

    def words(facet: Facet, threads: int) -> str:
        series = _series(summary, facet, threads, runs["achieved"])
        if not len(series.cps):
            return "no valid run."
        worst = int(np.argmax(np.abs(series.of.estimate - 100)))
        return (
            f"the achieved rate is furthest from the offered one at {series.cps[worst]:g} cps, by "
            f"{in_words(series.of.at(worst).map(lambda share: share - 100), '%')}."
        )

    figure = _figure(
        summary,
        "figure-load",
        "Achieved load and refused datagrams",
        _load_panels(
            summary, (("achieved rate", draw_rate), ("RcvbufErrors of the SPS", draw_drops))
        ),
        "Calls per second that the generator offered, in % of what was asked (dashed: ±1 %), and "
        "datagrams that the full socket queue refused, per run. Crosses: runs that do not count.",
        words,
    )
    both = np.isfinite(kernel.to_numpy()) & np.isfinite(probe.to_numpy())
    agree = int((kernel.to_numpy() == probe.to_numpy())[both].sum())
    line = f"Kernel and probe count the same drops in {agree} of {int(both.sum())} runs."
    return replace(figure, seen=(*figure.seen, line))


def distributions(
    summary: xr.Dataset,
    messages_root: Path,
    cps: int | None = None,
    threads: int | None = None,
) -> Figure:
    """Draw the distributions of K_rcv and T_sip by message type at one point of each facet.

    Parameters
    ----------
    summary
        Combined summary.
    messages_root
        Directory of the runs' `messages.nc`.
    cps, threads
        The point; by default the median of the loads measured, and the most threads measured there.
    """
    points = {
        facet: point
        for facet in facets(summary)
        if (point := _choose_point(summary, facet, cps, threads)) is not None
    }
    grid = np.geomspace(0.1, 1e7, 641)
    curves: dict[Facet, dict[str, dict[str, Values]]] = {}
    unread: list[str] = []
    for facet, (at_cps, at_threads) in points.items():
        curves[facet], problems = _shares_below(
            summary, messages_root, facet, at_cps, at_threads, grid
        )
        unread += problems

    if not any(
        len(runs)
        for kinds in curves.values()
        for by_name in kinds.values()
        for runs in by_name.values()
    ):
        return _by_type(summary, points)

    def panel(name: str) -> Callable[[Axes, Facet], None]:
        def draw(axis: Axes, facet: Facet) -> None:
            axis.set_xscale("log")
            axis.set_ylabel("messages at or below (%)")
            low, high = [], []
            for i, (kind, by_name) in enumerate(curves.get(facet, {}).items()):
                runs = by_name[name]
                if not len(runs):
                    continue
                mean = runs.mean(axis=0)
                for run in runs:
                    axis.plot(grid, 100 * run, color=SERIES[i], linewidth=0.6, alpha=0.35)
                axis.plot(
                    grid,
                    100 * mean,
                    color=SERIES[i],
                    label=kind,
                    linestyle=("-", "--", "-.")[i % 3],
                )
                low.append(grid[_first_at(mean, 0.002)])
                high.append(grid[_first_at(mean, 0.998)])
            if low:
                axis.set_xlim(min(low), max(high))
            else:
                _empty(axis)

        return draw

    def medians(facet: Facet, name: str) -> dict[str, Interval]:
        return {
            kind: typical_interval([grid[_first_at(run, 0.5)] for run in by_name[name]])
            for kind, by_name in curves[facet].items()
            if len(by_name[name])
        }

    where = _points_words(points)
    return _figure(
        summary,
        "figure-distributions",
        "Distributions of K_rcv and T_sip by message type",
        _time_panels(summary, tuple((symbol, panel(name)) for name, symbol in TIMES.items())),
        f"Share of messages at or below a time, by message type; thin: one run, thick: mean of the "
        f"runs (at most {MAX_RUNS_READ}). {where}."
        + (f" Not read: {'; '.join(unread)}." if unread else ""),
        _medians_words(points, medians),
    )


def _by_type(summary: xr.Dataset, points: Mapping[Facet, tuple[int, int]]) -> Figure:
    """Draw percentiles by message type, where no record keeps single messages."""
    kinds = [kind for kind, code in MESSAGE_TYPES.items() if 1 <= code <= 6]

    def typical(facet: Facet, name: str, kind: str) -> Interval:
        cps, threads = points[facet]
        return typical_interval(
            _runs(summary[name].sel(message_type=kind), facet, threads).sel(cps=cps).to_numpy()
        )

    def panel(name: str) -> Callable[[Axes, Facet], None]:
        def draw(axis: Axes, facet: Facet) -> None:
            if facet not in points:
                _empty(axis)
                return
            drawn = np.array(
                [
                    [typical(facet, f"{name}_{each}", kind).estimate for each in PERCENTILES]
                    for kind in kinds
                ]
            )
            if not np.isfinite(drawn).any():
                _empty(axis)
                return
            places = np.arange(len(kinds))
            axis.hlines(places, drawn[:, 0], drawn[:, -1], color=GRID, linewidth=3)
            for i, (at, label) in enumerate(zip(drawn.T, PERCENTILES.values(), strict=True)):
                axis.plot(
                    at, places, linestyle="none", marker=MARKERS[i], color=SERIES[i], label=label
                )
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(FuncFormatter(grouped))
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.set_yticks(places, kinds)
            axis.set_ylim(len(kinds) - 0.5, -0.5)

        return draw

    def medians(facet: Facet, name: str) -> dict[str, Interval]:
        found = {kind: typical(facet, f"{name}_p50", kind) for kind in kinds}
        return {kind: each for kind, each in found.items() if np.isfinite(each.estimate)}

    return _figure(
        summary,
        "figure-distributions",
        "K_rcv and T_sip by message type",
        _time_panels(summary, tuple((symbol, panel(name)) for name, symbol in TIMES.items())),
        "Median, 95th and 99th percentile by message type, each of a typical run. Single messages are not in "
        f"the records of these runs, so no distribution is drawn. {_points_words(points)}. Log scale.",
        _medians_words(points, medians),
    )


def _points_words(points: Mapping[Facet, tuple[int, int]]) -> str:
    told = (
        f"{facet_name(facet)}: {at} cps, {plural(count, 'thread')}"
        for facet, (at, count) in points.items()
    )
    return "; ".join(told) or "No run to draw"


def _medians_words(
    points: Mapping[Facet, tuple[int, int]], medians: Callable[[Facet, str], Mapping[str, Interval]]
) -> Callable[[Facet, int], str]:
    """Name the types of the shortest and the longest median of each time, where a facet is drawn."""

    def words(facet: Facet, threads: int) -> str:
        if facet not in points or points[facet][1] != threads:
            return ""
        cps, parts = points[facet][0], []
        for name, symbol in TIMES.items():
            by_kind = medians(facet, name)
            ordered = sorted(by_kind, key=lambda kind: by_kind[kind].estimate)
            if ordered:
                quick, slow = ordered[0], ordered[-1]
                parts.append(
                    f"median {symbol} from {in_words(by_kind[quick], 'µs')}, of {quick} to "
                    f"{in_words(by_kind[slow], 'µs')}, of {slow}"
                )
        return f"At {cps} cps: {'; '.join(parts)}." if parts else f"nothing to draw at {cps} cps."

    return words


def _first_at(shares: Values, share: float) -> int:
    """Find where a growing curve reaches a share; its last element if nowhere."""
    return min(int(np.searchsorted(shares, share)), len(shares) - 1)


def _choose_point(
    summary: xr.Dataset, facet: Facet, cps: int | None, threads: int | None
) -> tuple[int, int] | None:
    sut, mode, cores = facet
    there = (summary["status"].sel(sut=sut, mode=mode, cores=cores) == MEASURED).any("rep")
    loads = [int(c) for c in there["cps"].to_numpy() if bool(there.sel(cps=c).any())]
    if cps is None:
        if not loads:
            return None
        cps = loads[(len(loads) - 1) // 2]
    elif cps not in loads:
        return None
    counts = [int(t) for t in there["threads"].to_numpy() if bool(there.sel(cps=cps, threads=t))]
    if threads is None:
        return cps, counts[-1]
    return (cps, threads) if threads in counts else None


def _shares_below(
    summary: xr.Dataset, root: Path, facet: Facet, cps: int, threads: int, grid: Values
) -> tuple[dict[str, dict[str, Values]], list[str]]:
    """Compute, for each type and run, the share of messages at or below each time of the grid.

    Returns
    -------
    curves, unread
        Type to "k_rcv" and "t_sip" to shape (run, grid); and the files that are not there.
    """
    sut, mode, cores = facet
    status = summary["status"].sel(sut=sut, mode=mode, cores=cores, cps=cps, threads=threads)
    reps = [int(rep) for rep in status["rep"].to_numpy() if status.sel(rep=rep) == MEASURED]
    kinds = {kind: code for kind, code in MESSAGE_TYPES.items() if 1 <= code <= 6}
    found: dict[str, dict[str, list[Values]]] = {kind: {"k_rcv": [], "t_sip": []} for kind in kinds}
    unread = []
    for rep in reps[:MAX_RUNS_READ]:
        run = Run(summary.attrs["testbed"], sut, mode, cores, threads, cps, rep)
        path = root / run.path / "messages.nc"
        if not path.exists():
            unread.append(str(run.path))
            continue
        ds = open_messages(path)
        types = ds["message_type"].to_numpy()
        for name, values in (("k_rcv", k_rcv(ds)), ("t_sip", nanoseconds(ds, "t_sip"))):
            for kind, code in kinds.items():
                times = np.sort(values[(types == code) & ~np.isnan(values)]) / 1000
                if times.size:
                    below = np.searchsorted(times, grid, side="right") / times.size
                    found[kind][name].append(below)
    return {
        kind: {name: np.array(runs) for name, runs in by_name.items()}
        for kind, by_name in found.items()
    }, unread


def _panel(
    summary: xr.Dataset, values: xr.DataArray, label: str, from_zero: bool = False
) -> Callable[[Axes, Facet], None]:
    """Make the drawing of one quantity against the offered load."""

    def draw(axis: Axes, facet: Facet) -> None:
        _lines(axis, summary, facet, values)
        axis.set_ylabel(label)
        if from_zero:
            axis.set_ylim(bottom=0)

    return draw


def _decades(values: Sequence[xr.DataArray]) -> tuple[float, float] | None:
    """Find the whole decades that hold all means: the limits of a log axis; None without data."""
    means = np.concatenate(
        [typical_intervals(v.transpose(..., "rep").to_numpy()).estimate.ravel() for v in values]
    )
    means = means[means > 0]
    if not means.size:
        return None
    low, high = np.floor(np.log10(means.min())), np.ceil(np.log10(means.max()))
    return float(10**low), float(10 ** max(high, low + 1))


@dataclass(frozen=True)
class Series:
    """One quantity by load: what it is of a point's runs, with intervals; shape (load,)."""

    cps: Values
    of: Estimates


def _series(
    summary: xr.Dataset,
    facet: Facet,
    threads: int,
    values: xr.DataArray,
    estimate: Callable[[Values], Estimates] = typical_intervals,
) -> Series:
    """Estimate one quantity over repetitions; loads without a run are left out."""
    runs = _runs(values, facet, threads)
    found = estimate(runs.to_numpy())
    some = found.n > 0
    low, high = found.low[some], found.high[some]
    ends = found.least[some], found.most[some]
    of = Estimates(found.estimate[some], low, high, found.n[some], *ends)
    return Series(runs["cps"].to_numpy()[some].astype(float), of)


def _runs(values: xr.DataArray, facet: Facet, threads: int) -> xr.DataArray:
    """Take the runs of one line: dimensions cps, rep."""
    sut, mode, cores = facet
    return values.sel(sut=sut, mode=mode, cores=cores, threads=threads).transpose("cps", "rep")


def _dodge(summary: xr.Dataset, i: int) -> float:
    """Move the series apart sideways, so that their intervals do not hide each other."""
    loads = summary["cps"].to_numpy()
    step = float(np.diff(loads).min()) if len(loads) > 1 else 0.0
    count = summary.sizes["threads"]
    return 0.0 if count < 2 else step * 0.08 * (i / (count - 1) - 0.5)


def _lines(
    axis: Axes,
    summary: xr.Dataset,
    facet: Facet,
    values: xr.DataArray,
    estimate: Callable[[Values], Estimates] = typical_intervals,
    crossings: Mapping[int, Crossing] = MappingProxyType({}),
    limit: float = np.nan,
) -> bool:
    """Draw points (runs), what they are together and intervals, a series for each number of threads.

    A line is not drawn across loads of which nothing more is said than that the crossing is between; where the
    crossing is told, the line passes the limit there.
    """
    drawn = False
    for i, threads in enumerate(summary["threads"].to_numpy()):
        series = _series(summary, facet, threads, values, estimate)
        cps, of = series.cps, series.of
        if not len(cps):
            continue
        drawn = True
        color, marker = SERIES[i % len(SERIES)], MARKERS[(i + i // len(SERIES)) % len(MARKERS)]
        shift = _dodge(summary, i)
        runs = _runs(values, facet, threads)
        for rep in runs["rep"].to_numpy():
            axis.plot(
                runs["cps"].to_numpy() + shift,
                runs.sel(rep=rep).to_numpy(),
                linestyle="none",
                marker=marker,
                markersize=3,
                markeredgewidth=0,
                color=color,
                alpha=0.45,
            )
        axis.errorbar(
            cps + shift,
            of.estimate,
            yerr=of.bars,
            linestyle="none",
            color=color,
            marker=marker,
            markersize=4,
            elinewidth=1,
            capsize=2.5,
            label=_name_of(threads),
        )
        passes = crossings.get(int(threads))
        for part in unbroken(cps, passes):
            x, y = through(cps[part], of.estimate[part], passes, limit)
            axis.plot(x + shift, y, color=color)
    if not drawn:
        _empty(axis)
    return drawn


def _name_of(series: Any) -> str:
    """Name a series: of a number of threads, or of a message type that stands in its place."""
    return series if isinstance(series, str) else plural(int(series), "thread")


def _invalid(axis: Axes, summary: xr.Dataset, facet: Facet, values: xr.DataArray) -> None:
    """Mark the runs that do not count with crosses."""
    chosen = values.where(summary["status"] == INVALID)
    chosen = chosen.sel(sut=facet[0], mode=facet[1], cores=facet[2])
    for i, threads in enumerate(chosen["threads"].to_numpy()):
        runs = chosen.sel(threads=threads)
        for rep in runs["rep"].to_numpy():
            axis.plot(
                runs["cps"].to_numpy() + _dodge(summary, i),
                runs.sel(rep=rep).to_numpy(),
                linestyle="none",
                marker="x",
                color=SERIES[i % len(SERIES)],
            )


def _empty(axis: Axes) -> None:
    axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center")
    axis.tick_params(left=False, labelleft=False)


def _symlog(axis: Axes, threshold: float, label: tuple[str, str]) -> None:
    name, form = label
    axis.set_yscale("symlog", linthresh=threshold, linscale=0.5)
    _, high = axis.get_ylim()
    axis.set_ylim(0, max(high, 3 * threshold))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))
    axis.set_ylabel(name)


def _load_panels(
    summary: xr.Dataset, columns: Sequence[Column], log_values: Sequence[xr.DataArray] = ()
) -> Picture:
    """Draw panels against the offered load; `log_values` puts all on one log axis that holds their means."""
    limits = _decades(log_values) if log_values else None
    loads = summary["cps"].to_numpy().astype(float)
    margin = 0.08 * (loads[-1] - loads[0]) or 0.5 * loads[0]

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            shared = ("all", "all" if limits else "column")
            canvas, grid = _panels(summary, columns, layout, shared)
            for axis in grid.ravel():
                if limits:
                    axis.set_yscale("log", nonpositive="clip")
                    axis.set_ylim(limits)
                    axis.yaxis.set_major_formatter(FuncFormatter(grouped))
                    axis.yaxis.set_minor_locator(NullLocator())
                if len(loads) <= MAX_LOADS_AS_TICKS:
                    across = 1 if layout.stacked else len(columns)
                    wide = 0.8 * layout.width_in / across
                    gap = TICK_IN / wide * (loads[-1] - loads[0] + 2 * margin)
                    axis.xaxis.set_major_locator(FixedLocator(apart(loads, gap)))
                    axis.xaxis.set_minor_locator(FixedLocator(loads.tolist()))
                    axis.xaxis.set_minor_formatter(NullFormatter())
                else:
                    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
                axis.set_xlim(loads[0] - margin, loads[-1] + margin)
            one_scale = limits is not None and not layout.stacked
            return _finish(canvas, grid, "offered load (cps)", one_scale)

    return Picture(*both(draw), _replicates(summary))


def apart(loads: Values, gap: float) -> list[float]:
    """Choose loads to name on an axis: the last, and each that is no less than a gap below the next named."""
    chosen: list[float] = []
    for cps in loads[::-1].tolist():
        if not chosen or chosen[0] - cps >= gap:
            chosen.insert(0, cps)
    return chosen


def _time_panels(summary: xr.Dataset, columns: Sequence[Column]) -> Picture:
    """Draw panels against time."""

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = _panels(summary, columns, layout, ("column", "all"))
            return _finish(canvas, grid, "time (µs)", one_scale=not layout.stacked)

    return Picture(*both(draw), "")


def _panels(
    summary: xr.Dataset, columns: Sequence[Column], layout: Layout, shared: tuple[str, str]
) -> tuple[Canvas, npt.NDArray[Any]]:
    """Draw a grid of panels, a row a facet."""
    rows = facets(summary)
    canvas, grid = layout.panels(len(rows), len(columns), 2.4, shared=shared)
    for axes, facet in zip(grid, rows, strict=True):
        for axis, (name, draw) in zip(axes, columns, strict=True):
            draw(axis, facet)
            above = facet_name(facet) if axis is axes[0] else ""
            axis.set_title("\n".join(filter(None, (above, name))), loc="left")
    return canvas, grid


def _finish(canvas: Canvas, grid: npt.NDArray[Any], below: str, one_scale: bool) -> str:
    """Label the axes and write the SVG; on one scale the first column names it for all."""
    for axes in grid:
        for axis in axes[1:] if one_scale else ():
            axis.set_ylabel("")
    for axis in grid[-1]:
        axis.set_xlabel(below)
    legend(canvas, grid)
    return themed(canvas)


def _figure(
    summary: xr.Dataset,
    identity: str,
    title: str,
    picture: Picture,
    caption: str,
    words: Callable[[Facet, int], str],
    middle: str = "typical run",
) -> Figure:
    """Put the words to a picture, those of each facet and number of threads that was measured.

    `middle` names what the lines join.
    """
    seen = []
    for facet in facets(summary):
        for threads in summary["threads"].to_numpy():
            if not _any_run(summary, facet, int(threads)):
                continue
            text = words(facet, int(threads))
            if text:
                seen.append(f"{facet_name(facet)}, {_name_of(threads)}: {text}")
    return Figure(
        identity=identity,
        svg=picture.svg,
        narrow=picture.narrow,
        alt=f"{title}. {caption} {' '.join(seen)}".strip(),
        caption=f"{caption} {picture.points.format(middle=middle)}".strip(),
        seen=tuple(seen) or (_why_nothing(summary),),
        provenance=provenance(summary),
    )


def _why_nothing(summary: xr.Dataset) -> str:
    if bool((summary["status"] == MEASURED).any()):
        return "The probe of these runs cannot give it; the columns missing are listed below."
    return "No valid run: nothing to see yet."


def _any_run(summary: xr.Dataset, facet: Facet, threads: int) -> bool:
    status = summary["status"].sel(sut=facet[0], mode=facet[1], cores=facet[2], threads=threads)
    return bool((status == MEASURED).any())


def _replicates(summary: xr.Dataset) -> str:
    counts = (summary["status"] == MEASURED).sum("rep").to_numpy().ravel()
    counts = counts[counts > 0]
    if not counts.size:
        return "n = 0 runs."
    low, high = int(counts.min()), int(counts.max())
    n = f"n = {low}" if low == high else f"n = {low} to {high}"
    if high >= FEWEST:
        bars = f"bars: 95 % interval, from {FEWEST} runs on"
    else:
        bars = f"{plural(high, 'run')} a point at most, so no interval"
    return f"Points: runs ({n} a point); line: the {{middle}}; {bars}."


def _from_to(series: Series, unit: str = "µs") -> str:
    cps = series.cps
    if not len(cps):
        return "not measured"
    text = f"{in_words(series.of.at(0), unit)} at {cps[0]:g} cps"
    if len(cps) > 1:
        text += f", {in_words(series.of.at(-1), unit)} at {cps[-1]:g} cps"
    return text
