"""Figures of the packet drop rate and of message times against the load, for each mode."""

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.comparison import Case, Place, Side, SutOnCores
from sipsched.analysis.crossing_load import RATE_RANGE, typical_drop_rates
from sipsched.analysis.intervals import typical_intervals
from sipsched.pages.modes.marks import look_of
from sipsched.pages.modes.wording import by_system, identity, with_papers
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Figure, Several
from sipsched.pages.plots import (
    Curve,
    draw_curve,
    from_zero,
    limit_line,
    load_axis,
    not_measured,
    panels,
    symlog_scale,
)
from sipsched.words import grouped, plural

COLUMNS = {"pdr": ("PDR", "%", 100.0), "k_rcv": ("K_rcv", "µs", 1.0), "t_sip": ("T_sip", "µs", 1.0)}
"""For each quantity, the title, the unit and the factor that converts a value to this unit."""


def figures(case: Case) -> Several:
    """Draw packet drop rate (PDR), wait (K_rcv) and service (T_sip) against load per mode, with a figure per proxy."""
    return by_system(
        case, lambda system: [_figure(case, system)], "PDR, K_rcv and T_sip at each load"
    )


def _figure(case: Case, system: SutOnCores) -> Figure:
    sut, cores = system
    places = case.places(system)

    def draw(axis: Axes, row: int, column: int) -> None:
        _draw_modes(axis, case, places[row], list(COLUMNS)[column])

    linear = 100 * case.limit / RATE_RANGE
    return Figure(
        identity=identity("figure-load", sut, cores),
        draw=panels(
            [plural(place.threads, "thread") for place in places],
            [title for title, *_ in COLUMNS.values()],
            draw,
            "offered load (cps)",
            prepare=lambda axis, width_in: load_axis(axis, case.loads_cps, width_in),
        ),
        caption="Packet drop rate (PDR), mean waiting time K_rcv and mean service time T_sip against the offered "
        f"load: {sut}, {plural(cores, 'core')}.",
        reading="Each small point is a run. A line joins the typical run of each load, and the bars are 95\u00a0% "
        f"intervals. The dashed line marks a PDR of {case.share}. The scale of PDR is linear below {linear:g} % "
        "and logarithmic above.",
        seen=tuple(_words(case, place) for place in places),
        provenance=with_papers(case.summary),
    )


def _draw_modes(axis: Axes, case: Case, place: Place, name: str) -> None:
    title, unit, _ = COLUMNS[name]
    curves = [_curve(case.side(place, mode), name, i) for i, mode in enumerate(case.modes)]
    curves = [curve for curve in curves if (curve.of.n > 0).any()]
    if name == "pdr":
        limit_line(axis, 100 * case.limit, case.share)
    for curve in curves:
        draw_curve(axis, curve)
    if not curves:
        not_measured(axis)
    axis.set_ylabel(f"{title} ({unit})")
    if name == "pdr":
        symlog_scale(axis, 100 * case.limit / RATE_RANGE)
    else:
        from_zero(axis)


def _curve(side: Side, name: str, i: int) -> Curve:
    """Return the curve of a quantity against the load, for the i-th mode."""
    _, unit, scale = COLUMNS[name]
    case, runs = side.case, scale * side.runs(name)
    loads = case.loads_cps
    step = float(np.diff(loads).min()) if len(loads) > 1 else 0.0
    rates = name == "pdr"
    return Curve(
        name=side.label,
        look=look_of(case, side.mode),
        x=loads,
        of=typical_drop_rates(runs, scale * case.limit, whole=scale)
        if rates
        else typical_intervals(runs),
        runs=runs,
        unit=unit,
        shift=0.1 * step * (i - (len(case.modes) - 1) / 2),
    )


def _words(case: Case, place: Place) -> str:
    """Return a sentence with the mean wait K_rcv of each mode, at the lowest and at the highest load."""
    parts = []
    for mode in case.modes:
        side = case.side(place, mode)
        met = side.loads_met
        ends = [
            f"{in_words(side.mean('k_rcv', cps), 'µs')} at {grouped(cps)} cps"
            for cps in dict.fromkeys((*met[:1], *met[-1:]))
        ]
        if ends:
            parts.append(f"{side.label} {' and '.join(ends)}")
    if not parts:
        return f"{case.name(place)}: there is nothing to show yet, because no run is valid."
    return f"{case.name(place)}, mean waiting time K_rcv at the lowest and the highest load: {'; '.join(parts)}."
