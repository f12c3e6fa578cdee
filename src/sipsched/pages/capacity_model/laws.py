"""Capacity by cores: what is known, the papers' rule, and the laws fitted to it."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from sipsched.analysis.capacity.options import BEYOND, Option
from sipsched.analysis.capacity.predictions import (
    BORROWED,
    LINEAR,
    RULE_OF_ONE,
    choose,
    extrapolations,
    predictor,
    single_core,
)
from sipsched.analysis.capacity.systems import Evidence, Model, System
from sipsched.analysis.statistics import Interval
from sipsched.pages.capacity_model.panels import DODGE, core_axis, empty, hide, make_panels
from sipsched.pages.capacity_model.wording import NOT_MEASURED, off_by, percent
from sipsched.pages.drawing import MARKERS, PAPER, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.numbers import NO_ENTRY, in_words, told
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.words import grouped, number, plural

PAPERS_CORES = (2, 4, 6)
"""Cores that the papers' rule is set out for."""


def by_cores(evidence: Evidence, cores_available: int) -> Figure:
    """Draw capacity by cores: what is known, the papers' rule, and the law that fits best."""
    names = evidence.suts
    modes = list(dict.fromkeys(system.mode for system in evidence.systems))
    most = max(
        cores_available, *PAPERS_CORES, *(o.cores for s in evidence.systems for o in s.options)
    )
    seen: dict[str, None] = {}

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            panels = [*names, *([] if evidence.own else [NOT_MEASURED])]
            canvas, grid = make_panels(layout, len(panels), sharey="")
            for axis, name in zip(grid.ravel(), panels, strict=False):
                axis.set_title(name if name != NOT_MEASURED else "this testbed", loc="left")
                among = [system for system in evidence.systems if system.sut == name]
                for system in among:
                    seen.setdefault(
                        _draw_system(axis, evidence, system, modes.index(system.mode), most)
                    )
                core_axis(axis, most)
                axis.set_ylabel(f"capacity at {100 * evidence.limit:g} % (cps)")
                if not among:
                    empty(axis, "not measured: no run of any study")
            hide(grid, len(panels))
            legend(canvas, grid)
            return themed(canvas)

    svg, narrow = both(draw)
    caption = (
        "Capacity by cores with the best number of threads: filled, measured or published, with its 95 % "
        "interval where there is one, without filling if it is only between its ends; stars, "
        "T(p,c) × C(1,1), and stars without filling beyond the data; line and band, the law with the "
        "smallest leave-one-out errors and its 95 % prediction interval, "
        "dotted outside the cores it was fitted to; where nothing can be fitted, dotted, one core scaled as "
        "the papers' server. Linear scales from zero; those of the panels differ."
    )
    return Figure(
        identity="figure-cores",
        svg=svg,
        narrow=narrow,
        alt=f"Capacity by cores. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen),
        provenance=evidence.provenance,
    )


def _draw_system(axis: Axes, evidence: Evidence, system: System, place: int, most: int) -> str:
    """Draw one system and say what is seen."""
    color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    shift = DODGE * (place - 1)
    known = [option for option in system.best if np.isfinite(option.capacity.estimate)]
    for option in known:
        interval = option.capacity
        ends = np.array([[interval.estimate - interval.low], [interval.high - interval.estimate]])
        axis.errorbar(
            option.cores + shift,
            interval.estimate,
            yerr=np.where(np.isfinite(ends), ends, 0),
            linestyle="none",
            marker=marker,
            markersize=6,
            color=color,
            markerfacecolor=color if interval.resolved else PAPER,
            capsize=2.5,
            label=system.mode,
        )
    chosen = choose(system.models)
    if chosen is not None and chosen.predict is not None:
        fitted = [row.cores for row in chosen.left_out]
        cores = np.arange(1, most + 1)
        said = [chosen.predict(int(count)) for count in cores]
        inside = (cores >= min(fitted)) & (cores <= max(fitted))
        line = np.array([each.estimate for each in said])
        for part, style in (
            (inside, "-"),
            (cores >= max(fitted), ":"),
            (cores <= min(fitted), ":"),
        ):
            axis.plot(cores[part], line[part], linestyle=style, color=color, linewidth=1.2)
        if all(each.known for each in said):
            low, high = ([getattr(each, end) for each in said] for end in ("low", "high"))
            axis.fill_between(cores, np.maximum(low, 0), high, color=color, alpha=0.12, linewidth=0)
    found = predictor(system, evidence) if chosen is None else None
    if found is not None:
        cores = np.arange(1, most + 1)
        line = np.array([found[1](int(count)).estimate for count in cores])
        axis.plot(cores, line, linestyle=":", color=color, linewidth=1.2)
    single = single_core(system).capacity
    for cores_of in PAPERS_CORES if system.ruled and np.isfinite(single.estimate) else ():
        beyond = not system.published and system.basis(cores_of) == BEYOND
        axis.plot(
            cores_of + shift,
            evidence.threads(cores_of) * single.estimate,
            linestyle="none",
            marker="*",
            markersize=11,
            color=color,
            markerfacecolor=PAPER if beyond else color,
            label="T × C(1,1)" if place == 1 else None,
        )
    spread = any(option.capacity.known for option in known)
    best = "; ".join(
        f"{plural(option.cores, 'core')} {capacity}, {plural(option.threads, 'thread')}"
        for option in known
        for capacity in [
            "no load at or under the limit"
            if not option.capacity.estimate > 0
            else in_words(option.capacity, "cps")
            if spread
            else grouped(option.capacity.estimate)
        ]
    )
    if known and not spread:
        best += f" (cps, n = {known[0].capacity.n} each: {known[0].capacity.why})"
    law = f" {chosen.name} fits best." if chosen is not None else ""
    return f"{system.name}: {best or 'no capacity known'}.{law}"


def rule(evidence: Evidence) -> Table:
    """Set the papers' rule beside what was published and what was measured."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        if not system.ruled:
            continue
        best = {option.cores: option for option in system.best}
        for cores in sorted({*PAPERS_CORES, *best} - {1}):
            said = extrapolations(system, evidence, cores)
            model, there = said[RULE_OF_ONE], best.get(cores)
            cells: list[Cell] = [
                told(said[name], "cps") for name in (RULE_OF_ONE, LINEAR, BORROWED)
            ]
            if system.published:
                cells[2] = "this is it"
            threads = str(evidence.threads(cores))
            place = (system.name, str(cores), str(evidence.processors[cores]), threads)
            if there is None:
                rest: tuple[Cell, ...] = (
                    system.basis(cores),
                    NOT_MEASURED,
                    NOT_MEASURED,
                    "no check",
                )
            else:
                rest = (
                    *(there.basis, str(there.threads)),
                    *(told(there.capacity, "cps"), off_by(model, there)),
                )
            rows.append((*place, *cells, *rest))
    return Table(
        identity="table-rule",
        places=1,
        groups=(
            ("", 1),
            ("papers' rule", 4),
            ("from one core (cps)", 2),
            ("", 1),
            ("best known", 2),
            ("", 1),
        ),
        header=(
            *("system", "cores c", "processors p", "threads T", "T × C(1,1) (cps)"),
            *(LINEAR, BORROWED, "basis", "threads", "capacity (cps)", "rule off by"),
        ),
        rows=tuple(rows),
        none="nothing to predict",
        caption="C(p,c) = T(p,c) × C(1,1), with T(1,c) = c + 2 and T(p,c) = c for p ≥ 2, for enhanced "
        "mode at 1 %; beside it the best setting known. Intervals are those of C(1,1): the rule's own "
        "error comes on top. No more than c × one core can be carried; scaled as the papers' server: "
        "one core, falling behind as Amdahl's law has it for their enhanced mode, whose prediction interval it "
        "contains.",
        provenance=evidence.provenance,
    )


def rule_words(evidence: Evidence) -> Words:
    """Say how far the rule is off, and for which systems it could not be checked."""
    lines = []
    for system in evidence.systems:
        if not system.ruled:
            continue
        single = single_core(system).capacity
        checked = [option for option in system.fitted if option.cores > 1]
        if np.isnan(single.estimate):
            lines.append(f"{system.name}: nothing predicted, C(1,1) is not known.")
        elif not checked:
            lines.append(
                f"{system.name}: measured on one core only; for more cores the rule is a prediction "
                "beyond the data, and cannot be checked here."
            )
        else:
            errors = [_off(evidence, single, option) for option in checked]
            best = sum(option.threads == evidence.threads(option.cores) for option in checked)
            lines.append(
                f"{system.name}: off by {percent(min(errors))} to {percent(max(errors))} over "
                f"{plural(len(errors), 'number')} of cores; T(p,c) is the best number of threads in {best}."
            )
    return Words(tuple(lines))


def _off(evidence: Evidence, single: Interval, option: Option) -> float:
    model = evidence.threads(option.cores) * single.estimate
    return 100 * (model / option.capacity.estimate - 1)


def fitted(evidence: Evidence) -> Table:
    """List each law fitted over cores, with its parameters, its errors, and what it says of eight cores."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        chosen = choose(system.models)
        for model in system.models:
            if model.predict is None:
                cells = ("not fitted", "not fitted", model.why)
                rows.append((system.name, model.name, str(model.points), *cells))
                continue
            said = _parameters(model)
            error = (
                "too few points"
                if np.isnan(model.rms_percent)
                else f"{model.rms_percent:.1f}\u00a0%"
            )
            if model is chosen:
                error += ", the least"
            predicted = told(model.predict(8), "cps")
            rows.append((system.name, model.name, str(model.points), error, predicted, said))
    return Table(
        identity="table-laws",
        places=1,
        header=(
            *("system", "law", "points", "leave-one-out error (rms)"),
            *("predicted for 8 cores (cps)", "parameters"),
        ),
        rows=tuple(rows),
        none="nothing to fit",
        caption="Laws of capacity by cores, fitted to the best setting of each number of cores; n counts "
        "these points. Universal Scalability Law: C(N) = λ N / (1 + σ (N − 1) + κ N (N − 1)), largest at N*; "
        "Amdahl's has κ = 0. Intervals: 95 %, where there are two points more than parameters; that of a "
        "prediction holds a new measurement. The papers' one core ran another kernel than their others.",
        provenance=evidence.provenance,
    )


def left_out(evidence: Evidence) -> Table:
    """Show each point as each law, fitted to the others, predicts it."""
    models = [(each, model) for each in evidence.systems for model in each.models if model.left_out]
    cores = sorted({row.cores for _, model in models for row in model.left_out})
    rows = []
    for system, model in models:
        said = {row.cores: row for row in model.left_out}
        cells = []
        for count in cores:
            row = said.get(count)
            if row is None:
                cells.append(NO_ENTRY)
            elif np.isnan(row.predicted_cps):
                cells.append(f"too few others to predict {grouped(row.measured_cps)}")
            else:
                error = percent(row.error_percent)
                cells.append(
                    f"{grouped(row.predicted_cps)} for {grouped(row.measured_cps)}: {error}"
                )
        rows.append((system.name, model.name, *cells))
    return Table(
        identity="table-left-out",
        places=1,
        header=("system", "law", *(plural(int(count), "core") for count in cores)),
        rows=tuple(rows),
        none="no system is known on several numbers of cores",
        caption="Leave-one-out, in cps: each capacity as the law fitted to the other ones predicts it, the "
        "capacity itself, and the error. One core of the papers is no point of their rule, since it has "
        "more than one thread.",
        provenance=evidence.provenance,
    )


def _parameters(model: Model) -> str:
    """Write a law's parameters; why they have no intervals stands once."""
    values = [value for _, _, value in model.parameters]
    if any(value.known for value in values):
        return "; ".join(f"{name} = {in_words(v, unit)}" for name, unit, v in model.parameters)
    said = "; ".join(
        f"{name} = {_parameter(value.estimate)} {unit}".strip()
        for name, unit, value in model.parameters
    )
    return f"{said}; n = {values[0].n}: {values[0].why}"


def _parameter(value: float) -> str:
    return "unbounded" if np.isinf(value) else "0" if abs(value) < 1e-6 else number(value)
