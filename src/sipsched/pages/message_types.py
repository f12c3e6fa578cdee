"""The figure on a load sweep's page that compares message times between types of SIP messages."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from sipsched.analysis.intervals import Interval, Values, typical_interval
from sipsched.analysis.run_table import Facet, facet_name, facets, provenance
from sipsched.pages.drawing import GRID
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Figure
from sipsched.pages.plots import draw_line, log_ticks, look, not_measured, panels
from sipsched.plan.run import Run
from sipsched.records.messages import MESSAGE_TYPES, k_rcv, nanoseconds, open_messages
from sipsched.records.study_summary import MEASURED
from sipsched.words import grouped, plural

MAX_RUNS_READ = 10
TIMES = {"k_rcv": "K_rcv", "t_sip": "T_sip"}
PERCENTILES = {"p50": "median", "p95": "95th percentile", "p99": "99th percentile"}
KINDS = {kind: code for kind, code in MESSAGE_TYPES.items() if 1 <= code <= 6}
GRID_US = np.geomspace(0.1, 1e7, 641)
"""Times in µs at which the cumulative distributions of message times are computed."""

Shares = Mapping[str, Mapping[str, Values]]
"""Per message type and time (K_rcv or T_sip), the share of messages at or below each time of `GRID_US`."""
LoadPoint = tuple[int, int]
"""A load in cps, and a number of threads."""


def distributions(
    summary: xr.Dataset,
    messages_root: Path,
    cps: int | None = None,
    threads: int | None = None,
) -> Figure:
    """Return a figure of the distributions of K_rcv and T_sip per message type, at one load of each configuration.

    If the runs have no records of single messages, the figure shows three percentiles of each type instead.

    Parameters
    ----------
    messages_root
        Directory of the runs' `messages.nc`.
    cps, threads
        The drawn load and number of threads. By default, the median of the measured loads, and the largest number of
        threads at this load.
    """
    points = {
        facet: point
        for facet in facets(summary)
        if (point := _choose_point(summary, facet, cps, threads)) is not None
    }
    shares = {
        facet: _shares(summary, messages_root, facet, point) for facet, point in points.items()
    }
    if any(len(by_name["k_rcv"]) for kinds in shares.values() for by_name in kinds.values()):
        draw, medians = _curves(shares)
        caption = "Share of messages whose time K_rcv or T_sip is at most the value on the x axis, by message type."
        reading = (
            f"A thin line is one run. A thick line is the mean of at most {MAX_RUNS_READ} runs."
        )
    else:
        draw, medians = _percentiles(summary, points)
        caption = "Median, 95th and 99th percentile of waiting time K_rcv and service time T_sip, by message type."
        reading = (
            "Each point is the percentile of the typical run. The full distribution of the times is unknown, because "
            "these runs did not record single messages. The time axis is logarithmic."
        )
    rows = facets(summary)
    names = [
        f"{facet_name(facet)}: {grouped(point[0])} cps, {plural(point[1], 'thread')}"
        for facet, point in points.items()
    ]
    return Figure(
        identity="figure-distributions",
        draw=panels(
            [facet_name(facet) for facet in rows],
            list(TIMES.values()),
            lambda axis, row, column: draw(axis, rows[row], list(TIMES)[column]),
            "time (µs)",
            shared=("column", "all"),
            beside=False,
        ),
        caption=caption,
        reading=f"{reading} The figure shows {'; '.join(names) or 'no run'}.",
        seen=_seen(dict(zip(names, points, strict=True)), medians),
        provenance=provenance(summary),
    )


Draw = Callable[[Axes, Facet, str], None]
Medians = Callable[[Facet, str], dict[str, Interval]]


def _seen(facets_by_name: Mapping[str, Facet], medians: Medians) -> tuple[str, ...]:
    """Return one sentence per configuration with the shortest and longest median time of the message types."""
    words = {
        name: _words({time: medians(facet, time) for time in TIMES})
        for name, facet in facets_by_name.items()
    }
    seen = tuple(f"{name}: {text}" for name, text in words.items() if text)
    return seen or ("There is nothing to show yet, because no run is valid.",)


def _curves(shares: Mapping[Facet, Shares]) -> tuple[Draw, Medians]:
    """Return two functions: one draws the distributions of message times, and one returns the median times."""

    def draw(axis: Axes, facet: Facet, name: str) -> None:
        axis.set_xscale("log")
        log_ticks(axis.xaxis)
        axis.set_ylabel("messages at or below (%)")
        ends = []
        for i, (kind, by_name) in enumerate(shares.get(facet, {}).items()):
            runs = by_name[name]
            if not len(runs):
                continue
            mean = runs.mean(axis=0)
            color = look(i).color
            for run in runs:
                axis.plot(GRID_US, 100 * run, color=color, linewidth=0.6, alpha=0.35)
            style = ("-", "--", "-.")[i % 3]
            axis.plot(GRID_US, 100 * mean, color=color, label=kind, linestyle=style)
            ends.append((_time_at(mean, 0.002), _time_at(mean, 0.998)))
        if ends:
            lowest, highest = zip(*ends, strict=True)
            axis.set_xlim(min(lowest), max(highest))
        else:
            not_measured(axis)

    def medians(facet: Facet, name: str) -> dict[str, Interval]:
        return {
            kind: typical_interval([_time_at(run, 0.5) for run in by_name[name]])
            for kind, by_name in shares[facet].items()
            if len(by_name[name])
        }

    return draw, medians


def _percentiles(summary: xr.Dataset, points: Mapping[Facet, LoadPoint]) -> tuple[Draw, Medians]:
    """Return two functions: one draws percentiles of message times per type, and one returns the median times."""

    def typical(facet: Facet, name: str) -> dict[str, Interval]:
        sut, mode, cores = facet
        cps, threads = points[facet]
        at = {"sut": sut, "mode": mode, "cores": cores, "threads": threads, "cps": cps}
        by_kind = {
            kind: typical_interval(summary[name].sel({**at, "message_type": kind}).to_numpy())
            for kind in KINDS
        }
        return {kind: known for kind, known in by_kind.items() if np.isfinite(known.estimate)}

    def draw(axis: Axes, facet: Facet, name: str) -> None:
        known = {
            label: typical(facet, f"{name}_{short}")
            for short, label in PERCENTILES.items()
            if facet in points
        }
        kinds = list(KINDS)
        if not any(known.values()):
            not_measured(axis)
            return
        for kind in kinds:
            times = [by_kind[kind].estimate for by_kind in known.values() if kind in by_kind]
            if times:
                axis.hlines(kinds.index(kind), min(times), max(times), color=GRID, linewidth=3)
        for i, (label, by_kind) in enumerate(known.items()):
            heights = [kinds.index(kind) for kind in by_kind]
            times = [interval.estimate for interval in by_kind.values()]
            titles = [f"{kind}, {label}: {in_words(of, 'µs')}" for kind, of in by_kind.items()]
            draw_line(axis, times, heights, look(i), titles, linestyle="none", label=label)
        axis.set_xscale("log")
        log_ticks(axis.xaxis)
        axis.set_yticks(np.arange(len(kinds)), kinds)
        axis.set_ylim(len(kinds) - 0.5, -0.5)

    return draw, lambda facet, name: typical(facet, f"{name}_p50")


def _words(medians: Mapping[str, Mapping[str, Interval]]) -> str:
    """Return text that names the message types with the shortest and the longest median of K_rcv and of T_sip."""
    parts = []
    for name, by_kind in medians.items():
        ordered = sorted(by_kind, key=lambda kind: by_kind[kind].estimate)
        if ordered:
            quick, slow = ordered[0], ordered[-1]
            parts.append(
                f"the median of {TIMES[name]} depends on the message type, from {in_words(by_kind[quick], 'µs')} "
                f"({quick}) to {in_words(by_kind[slow], 'µs')} ({slow})"
            )
    return f"{'; '.join(parts)}." if parts else ""


def _time_at(shares: Values, share: float) -> float:
    """Return the time in µs at which a cumulative distribution reaches a share of the messages.

    If no time reaches the share, return the last time.
    """
    return float(GRID_US[min(int(np.searchsorted(shares, share)), len(shares) - 1)])


def _choose_point(
    summary: xr.Dataset, facet: Facet, cps: int | None, threads: int | None
) -> LoadPoint | None:
    """Return the load and the number of threads to draw. None if no valid run has this load and these threads."""
    sut, mode, cores = facet
    measured = (summary["status"].sel(sut=sut, mode=mode, cores=cores) == MEASURED).any("rep")
    loads = measured["cps"].to_numpy()[measured.any("threads").to_numpy()].tolist()
    if cps is None:
        cps = loads[(len(loads) - 1) // 2] if loads else -1
    if cps not in loads:
        return None
    counts = measured["threads"].to_numpy()[measured.sel(cps=cps).to_numpy()].tolist()
    if threads is None:
        return cps, counts[-1]
    return (cps, threads) if threads in counts else None


def _shares(summary: xr.Dataset, root: Path, facet: Facet, point: LoadPoint) -> Shares:
    """Return the share of messages at or below each time, per message type, from the runs that recorded messages."""
    sut, mode, cores = facet
    cps, threads = point
    status = summary["status"].sel(sut=sut, mode=mode, cores=cores, cps=cps, threads=threads)
    reps = status["rep"].to_numpy()[(status == MEASURED).to_numpy()].tolist()
    shares: dict[str, dict[str, list[Values]]] = {
        kind: {name: [] for name in TIMES} for kind in KINDS
    }
    for rep in reps[:MAX_RUNS_READ]:
        run = Run(summary.attrs["testbed"], sut, mode, cores, threads, cps, rep)
        path = root / run.path / "messages.nc"
        if not path.exists():
            continue
        messages = open_messages(path)
        types = messages["message_type"].to_numpy()
        times_of = {"k_rcv": k_rcv(messages), "t_sip": nanoseconds(messages, "t_sip")}
        for name, values in times_of.items():
            for kind, code in KINDS.items():
                times = np.sort(values[(types == code) & ~np.isnan(values)]) / 1000
                if times.size:
                    below = np.searchsorted(times, GRID_US, side="right") / times.size
                    shares[kind][name].append(below)
    return {
        kind: {name: np.array(runs) for name, runs in by_name.items()}
        for kind, by_name in shares.items()
    }
