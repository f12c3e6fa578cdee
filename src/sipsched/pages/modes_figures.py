"""The figures of the report on baseline and enhanced mode."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from sipsched.analysis.comparison import (
    KINDS,
    PARTS,
    SERVICE,
    Asked,
    Case,
    Comparisons,
    Place,
    Values,
    capacity_of,
    compared_load,
    corrected,
    identity,
    loads_met,
    places,
    plain,
    printed_comparison,
    printed_loads,
    runs_at,
    study_of,
    systems,
    where,
    with_papers,
)
from sipsched.analysis.statistics import Crossing, mean_interval, mean_intervals
from sipsched.pages.drawing import (
    INK,
    LIMIT,
    MARKERS,
    PAPER,
    SERIES,
    STYLE,
    WIDTH_IN,
    legend,
    themed,
)
from sipsched.pages.parts import Figure, Several
from sipsched.pages.published import HEADROOM
from sipsched.words import grouped, number, plural

DRAWN_FROM_PERCENT = -150
"""What is more than so many percent higher is drawn at the edge."""
SYMLOG_FROM_PERCENT = 0.01


def load_curves(case: Case) -> Several:
    """Draw PDR, K_rcv and T_sip against the load under every mode, a figure a system."""
    return Several(tuple(_load_curves(case, sut, cores) for sut, cores in systems(case.summary)))


def _load_curves(case: Case, sut: str, cores: int) -> Figure:
    rows = [place for place in places(case) if place[:2] == (sut, cores)]
    columns = (
        ("pdr", "PDR (%)", 100.0),
        ("k_rcv", "K_rcv (µs)", 1.0),
        ("t_sip", "T_sip (µs)", 1.0),
    )
    loads = case.summary["cps"].to_numpy().astype(float)
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, 0.7 + 2.2 * len(rows)), layout="constrained")
        grid = canvas.subplots(len(rows), len(columns), squeeze=False, sharex=True)
        for axes, place in zip(grid, rows, strict=True):
            for axis, (name, title, scale) in zip(axes, columns, strict=True):
                if name == "pdr":
                    axis.axhline(100 * case.limit, color=LIMIT, linestyle="--", linewidth=1)
                drawn = _curves(axis, case, place, name, scale, loads)
                axis.set_ylabel(title)
                if name == "pdr":
                    axis.set_yscale("symlog", linthresh=SYMLOG_FROM_PERCENT, linscale=0.5)
                    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                    axis.yaxis.set_minor_formatter(NullFormatter())
                if drawn:
                    axis.set_ylim(bottom=0)
                if len(loads) <= 4:
                    axis.xaxis.set_major_locator(FixedLocator(loads.tolist()))
            axes[0].set_title(plural(place.threads, "thread"), loc="left")
        for axis in grid[-1]:
            axis.set_xlabel("load (cps)")
        legend(canvas, grid)
        svg = themed(canvas)
    seen = [line for place in rows for line in _curve_words(case, place)]
    caption = (
        f"PDR, mean K_rcv and mean T_sip against the offered load, {sut}, {plural(cores, 'core')}, by "
        f"threads and mode. Small: runs; line: their mean; bars: 95 % t interval. Dashed: {case.share}; "
        f"PDR on a symmetric log scale, linear under {SYMLOG_FROM_PERCENT:g} %."
    )
    return _figure(case, identity("figure-load", sut, cores), "Modes by load", svg, caption, seen)


def _curves(axis: Axes, case: Case, place: Place, name: str, scale: float, loads: Values) -> bool:
    step = float(np.diff(loads).min()) if len(loads) > 1 else 0.0
    drawn = False
    for i, mode in enumerate(case.modes):
        runs = scale * runs_at(case.values[name], place, mode)
        mean, half, n = mean_intervals(runs)
        some = n > 0
        if not some.any():
            continue
        drawn = True
        at = loads + step * 0.1 * (i - (len(case.modes) - 1) / 2)
        for run in runs.T:
            axis.plot(at, run, **_small(i))
        axis.errorbar(
            at[some],
            mean[some],
            yerr=np.nan_to_num([np.minimum(half, mean)[some], half[some]]),
            **_large(i),
            label=case.label(mode),
        )
    if not drawn:
        _nothing(axis)
    return drawn


def _curve_words(case: Case, place: Place) -> list[str]:
    parts = []
    for mode in case.modes:
        met = loads_met(case, place, mode)
        ends = [
            mean_interval(runs_at(case.values["k_rcv"], place, mode, cps), least=0).text("µs")
            + f", at {cps} cps"
            for cps in dict.fromkeys((*met[:1], *met[-1:]))
        ]
        if ends:
            parts.append(f"{case.label(mode)} {' and '.join(ends)}")
    if not parts:
        return [f"{where(case, place)}: no valid run, nothing to see yet."]
    return [f"{where(case, place)}, mean K_rcv: {'; '.join(parts)}."]


def crossing_loads(case: Case) -> Figure:
    """Draw the load at which PDR passes the limit, by threads and mode, here and as published."""
    rows = systems(case.summary)
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, 0.8 + 2.6 * max(len(rows), 1)), layout="constrained")
        grid = canvas.subplots(max(len(rows), 1), 1, squeeze=False)
        for (axis,), (sut, cores) in zip(grid, rows, strict=False):
            among = [place for place in places(case, published=True) if place[:2] == (sut, cores)]
            drawn = _crossings(axis, case, among)
            axis.set_title(f"{sut}, {plural(cores, 'core')}", loc="left")
            axis.set_ylabel(f"load at PDR = {case.share} (cps)")
            axis.set_xlabel("server threads")
            axis.set_ylim(0, HEADROOM * axis.dataLim.y1 if drawn else 1)
        legend(canvas, grid, columns=2)
        svg = themed(canvas)
    seen = []
    for place in places(case):
        said = [
            f"{case.label(mode)} {capacity_of(case, place, mode).crossing}"
            for mode in case.modes
            if loads_met(case, place, mode)
        ]
        if said:
            seen.append(f"{where(case, place)}: {'; '.join(said)}.")
    caption = (
        f"Load at which PDR passes {case.share}, by server threads and mode. Filled: this testbed, "
        "interpolated, with its 95 % interval, cut off at the loads measured; a triangle: outside "
        "them. Open, joined: the two loads that the papers print on either side (one alone: the other "
        "is not printed), on other hardware and another kernel."
    )
    cores_met = [cores for _, cores in rows]
    return _figure(case, "figure-crossings", "Load at the limit", svg, caption, seen, cores_met)


def _crossings(axis: Axes, case: Case, among: Sequence[Place]) -> bool:
    wide = 0.5 / len(case.modes)
    drawn = False
    for i, mode in enumerate(case.modes):
        shift = wide * (i - (len(case.modes) - 1) / 2)
        for x, place in enumerate(among):
            printed = [cps for cps in printed_loads(case, place, mode) if cps is not None]
            if printed:
                drawn = True
                at = [x + shift] * len(printed)
                axis.plot(at, printed, **_open(i), linewidth=1, label=f"{mode}, published")
            if loads_met(case, place, mode):
                drawn = True
                found = capacity_of(case, place, mode).crossing
                _crossing(axis, x + shift + wide / 3, found, i, case.label(mode))
    if not drawn:
        _nothing(axis)
    axis.xaxis.set_major_locator(FixedLocator(list(range(len(among)))))
    axis.set_xticklabels([str(place.threads) for place in among])
    axis.set_xlim(-0.5, len(among) - 0.5)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value) if value else "0"))
    return drawn


def _crossing(axis: Axes, x: float, found: Crossing, i: int, label: str) -> None:
    interval = found.interval
    low, y, high = np.clip(
        (interval.low, interval.estimate, interval.high), found.lowest_cps, found.highest_cps
    )
    style = _large(i) | {"linestyle": "none"}
    if np.isinf(interval.estimate):
        style["marker"] = "^" if interval.estimate > 0 else "v"
    ends = None if np.isnan(low) else [[max(y - low, 0)], [max(high - y, 0)]]
    axis.errorbar([x], [y], yerr=ends, **style, label=f"{label}, this testbed")


def percent_lower(case: Case, found: Comparisons) -> Figure:
    """Draw by how many percent PDR and K_rcv are lower under the other mode, here and as published."""
    among = [
        place
        for place in places(case, published=True)
        if printed_comparison(case, place) is not None or compared_load(case, place) is not None
    ]
    columns = (("pdr", "PDR"), ("k_rcv", "K_rcv"))
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, 1.4 + 0.45 * max(len(among), 1)), layout="constrained")
        grid = canvas.subplots(1, len(columns), squeeze=False, sharey=True, sharex=True)
        for axis, (name, title) in zip(grid[0], columns, strict=True):
            axis.axvline(0, color=INK, linewidth=1)
            for y, place in enumerate(among):
                _lower(axis, case, found, place, name, y)
            axis.set_title(title, loc="left")
            axis.set_xlabel("lower by (%)")
            if not among:
                _nothing(axis)
        low, _ = grid[0][0].get_xlim()
        grid[0][0].set_xlim(max(low, 1.08 * DRAWN_FROM_PERCENT), 108)
        grid[0][0].yaxis.set_major_locator(FixedLocator(list(range(len(among)))))
        grid[0][0].set_yticklabels([_tick(case, place) for place in among])
        grid[0][0].set_ylim(len(among) - 0.5, -0.5)
        legend(canvas, grid)
        svg = themed(canvas)
    seen = []
    compared = {
        asked: cell.comparison.percent_lower
        for asked, cell in found.cells.items()
        if asked.cps == compared_load(case, asked.place)
    }
    for name, title in columns:
        percents = [
            lower
            for asked, lower in compared.items()
            if asked.quantity == name and not np.isnan(lower.estimate)
        ]
        if percents:
            sure = sum(each.known and (each.low > 0 or each.high < 0) for each in percents)
            lower = sum(each.estimate > 0 for each in percents)
            seen.append(
                f"{title} is lower under {case.label(case.other)} at {lower} of {len(percents)} "
                f"places; the interval leaves 0 out at {sure} of the "
                f"{sum(each.known for each in percents)} that have one."
            )
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    caption = (
        f"By how many percent PDR and K_rcv are lower under {second} than under {first}, at the "
        f"first load with PDR > {case.share} under the latter. Filled: this testbed; open: published, "
        f"without interval, each at the papers' own load. Cut off at "
        f"{plain(DRAWN_FROM_PERCENT)} %. {corrected(found)}"
    )
    cores_met = [cores for _, cores in systems(case.summary)]
    return _figure(case, "figure-lower", "Lower by percent", svg, caption, seen, cores_met)


def _tick(case: Case, place: Place) -> str:
    cps = compared_load(case, place)
    return f"{where(case, place)}\n" + ("not measured" if cps is None else f"{cps} cps")


def _lower(axis: Axes, case: Case, found: Comparisons, place: Place, name: str, y: float) -> None:
    printed = printed_comparison(case, place)
    if printed is not None:
        axis.plot([printed[f"{name}_lower_pct"]], [y + 0.15], **_open(1), label="published")
    cps = compared_load(case, place)
    cell = None if cps is None else found.cells.get(Asked(place, cps, name))
    if cell is None or np.isnan(cell.comparison.percent_lower.estimate):
        return
    lower = cell.comparison.percent_lower
    low, x, high = np.clip((lower.low, lower.estimate, lower.high), DRAWN_FROM_PERCENT, 100)
    ends = None if np.isnan(low) else [[x - low], [high - x]]
    axis.errorbar(
        [x], [y - 0.15], xerr=ends, **(_large(1) | {"linestyle": "none"}), label="this testbed"
    )


def parts(case: Case) -> Several:
    """Draw where a message's time goes under every mode at the compared load, a figure a system."""
    wanted = {name: title.removesuffix(" (µs)") for name, title in PARTS.items()}

    def runs(place: Place, cps: int, mode: str, name: str) -> Values:
        return runs_at(case.values[name], place, mode, cps)

    return Several(
        tuple(
            _dots(
                case,
                (sut, cores),
                ("figure-parts", "Where a message's time goes"),
                (("mean (µs)", wanted, runs),),
                f"Mean time of a message in each part of the SPS. {SERVICE}",
                _part_words,
            )
            for sut, cores in systems(case.summary)
        )
    )


def types(case: Case) -> Several:
    """Draw K_rcv and T_sip by message type under every mode at the compared load, a figure a system."""

    def runs_of(quantity: str) -> Callable[[Place, int, str, str], Values]:
        values = case.counted[f"{quantity}_mean"]

        def runs(place: Place, cps: int, mode: str, kind: str) -> Values:
            return runs_at(values.sel(message_type=kind), place, mode, cps)

        return runs

    kinds = {kind: kind for kind in KINDS}
    return Several(
        tuple(
            _dots(
                case,
                (sut, cores),
                ("figure-types", "K_rcv and T_sip by message type"),
                (
                    ("K_rcv, mean (µs)", kinds, runs_of("k_rcv")),
                    ("T_sip, mean (µs)", kinds, runs_of("t_sip")),
                ),
                "Mean K_rcv and T_sip by message type.",
                _type_words,
            )
            for sut, cores in systems(case.summary)
        )
    )


def _dots(
    case: Case,
    system: tuple[str, int],
    names: tuple[str, str],
    columns: Sequence[tuple[str, dict[str, str], Callable[[Place, int, str, str], Values]]],
    what: str,
    words: Callable[[Case, Place, int], str],
) -> Figure:
    """Draw means with intervals in rows, a row a part or type, a panel a place and column."""
    sut, cores = system
    loads = {
        place: cps
        for place in places(case)
        if place[:2] == system and (cps := compared_load(case, place)) is not None
    }
    height = 0.9 + max(len(loads), 1) * (0.7 + 0.3 * len(columns[0][1]))
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, height), layout="constrained")
        grid = canvas.subplots(
            max(len(loads), 1), len(columns), squeeze=False, sharey=True, sharex="col"
        )
        for axes, (place, cps) in zip(grid, loads.items(), strict=False):
            for axis, (label, wanted, runs) in zip(axes, columns, strict=True):
                _panel(
                    axis,
                    case,
                    wanted,
                    partial(runs, place, cps),
                )
                axis.set_xlabel(label)
            axes[0].set_title(f"{plural(place.threads, 'thread')}, {cps} cps", loc="left")
        if not loads:
            for axis in grid.ravel():
                _nothing(axis)
        legend(canvas, grid)
        svg = themed(canvas)
    seen = [
        f"{where(case, place)}, {cps} cps: {text}."
        for place, cps in loads.items()
        if (text := words(case, place, cps))
    ]
    caption = (
        f"{what} {sut}, {plural(cores, 'core')}, at the compared load of each number of threads. "
        "Small: runs; large: their mean with its 95 % t interval, cut off at the axis. Log scale."
    )
    return _figure(case, identity(names[0], sut, cores), names[1], svg, caption, seen)


def _panel(
    axis: Axes, case: Case, wanted: dict[str, str], runs: Callable[[str, str], Values]
) -> None:
    wide = 0.6 / len(case.modes)
    drawn = []
    for i, mode in enumerate(case.modes):
        for row, name in enumerate(wanted):
            values = runs(mode, name)
            mean = mean_interval(values, least=0)
            if np.isnan(mean.estimate):
                continue
            drawn.append(mean.estimate)
            y = row + wide * (i - (len(case.modes) - 1) / 2)
            axis.plot(values, np.full(len(values), y), **_small(i))
            x = mean.estimate
            ends = [[min(x - mean.low, 0.95 * x)], [mean.high - x]] if mean.known else None
            axis.errorbar(
                [x], [y], xerr=ends, **(_large(i) | {"linestyle": "none"}), label=case.label(mode)
            )
    axis.yaxis.set_major_locator(FixedLocator(list(range(len(wanted)))))
    axis.set_yticklabels(list(wanted.values()))
    axis.set_ylim(len(wanted) - 0.5, -0.5)
    if not drawn or min(drawn) <= 0:
        _nothing(axis)
        return
    axis.set_xscale("log")
    low, high = 10 ** np.floor(np.log10(min(drawn))), 10 ** np.ceil(np.log10(max(drawn) * 1.01))
    axis.set_xlim(low, high)
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: number(value) if value < 100 else grouped(value))
    )
    axis.xaxis.set_minor_formatter(NullFormatter())


def _part_words(case: Case, place: Place, cps: int) -> str:
    said = []
    for name in ("k_sockq", "t_sip_off", "service"):
        means = {
            case.label(mode): mean_interval(runs_at(case.values[name], place, mode, cps), least=0)
            for mode in (case.reference, case.other)
        }
        texts = [
            f"{m.text('µs')}, under {label}"
            for label, m in means.items()
            if not np.isnan(m.estimate)
        ]
        if texts:
            said.append(f"{PARTS[name].removesuffix(' (µs)')} {' and '.join(texts)}")
    return "; ".join(said)


def _type_words(case: Case, place: Place, cps: int) -> str:
    said = []
    for name, title in (("k_rcv", "K_rcv"), ("t_sip", "T_sip")):
        values = case.counted[f"{name}_mean"]
        for mode in (case.reference, case.other):
            means = {
                kind: mean_interval(
                    runs_at(values.sel(message_type=kind), place, mode, cps), least=0
                )
                for kind in KINDS
            }
            means = {kind: mean for kind, mean in means.items() if not np.isnan(mean.estimate)}
            if means:
                most = max(means, key=lambda kind: means[kind].estimate)
                least = min(means, key=lambda kind: means[kind].estimate)
                said.append(
                    f"{title} under {case.label(mode)} from {means[least].text('µs')}, of {least} "
                    f"to {means[most].text('µs')}, of {most}"
                )
    return "; ".join(said)


def _figure(
    case: Case,
    name: str,
    title: str,
    svg: str,
    caption: str,
    seen: Sequence[str],
    published: Sequence[int] = (),
) -> Figure:
    return Figure(
        identity=name,
        svg=svg,
        alt=f"{title}. {caption} {' '.join(seen)}".strip(),
        caption=caption,
        seen=tuple(seen) or ("No valid run of both modes: nothing to see yet.",),
        provenance=with_papers(case, *dict.fromkeys(map(study_of, published))),
    )


def _small(i: int) -> dict[str, Any]:
    marker = MARKERS[i % len(MARKERS)]
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 3,
        "markeredgewidth": 0,
        "color": SERIES[i % len(SERIES)],
        "alpha": 0.45,
    }


def _large(i: int) -> dict[str, Any]:
    return {
        "color": SERIES[i % len(SERIES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 4.5,
        "elinewidth": 1,
        "capsize": 2.5,
    }


def _open(i: int) -> dict[str, Any]:
    return {
        "color": SERIES[i % len(SERIES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markerfacecolor": PAPER,
    }


def _nothing(axis: Axes) -> None:
    axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center")
    axis.tick_params(left=False, labelleft=False)
