"""The tables, figures and sentences of the page of capacity."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sipsched.analysis import papers
from sipsched.analysis.capacity_evidence import (
    BORROWED,
    LINEAR,
    PAPERS_CORES,
    RULE_OF_ONE,
    Evidence,
    Model,
    ServiceTimes,
    System,
    choose,
    extrapolations,
    known_options,
    level,
    predictor,
    settled,
    single_core,
    suts,
)
from sipsched.analysis.capacity_models import (
    BEYOND,
    MEASURED,
    MESSAGES_PER_CALL,
    PREDICTED,
    Option,
    Plan,
    endless_wait_us,
    plan,
    queue,
    queue_capacity_cps,
)
from sipsched.analysis.run_table import facet_name
from sipsched.analysis.statistics import Interval, mean_intervals
from sipsched.errors import StableError
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
from sipsched.pages.parts import Figure, Table, Words
from sipsched.pages.tables import Heading
from sipsched.words import grouped, number, plural

# ASSUME the papers' receive buffer holds 50 to 1000 messages.
PLACES_ASSUMED = 200
"""Messages that the papers' receive buffer holds; their tables do not print it."""
PLACES_RANGE = (50, 1000)
SCV_RANGE = (0.0, 4.0)
SERVERS = {"cores": "cores, CPU time", "threads": "threads, T_sip"}
NOT_MEASURED = "not measured"
DODGE = 0.09
"""How far the modes stand apart, in cores."""

Values = npt.NDArray[np.float64]


def heading(evidence: Evidence) -> Heading:
    """Say first what the numbers are worth: those measured here, and the published ones."""
    own = evidence.fidelity or "nothing measured here; published numbers alone"
    return Heading(
        fidelity=f"{own}. Beside it published numbers, not measured here.",
        testbed=f"{evidence.provenance}.".replace("..", "."),
        description="What a model says is labelled predicted, or beyond the data where it leaves the "
        "numbers of cores measured.",
    )


def sources(evidence: Evidence) -> Words:
    """Say what was read, and what C(1,1) is for each system."""
    lines = [*evidence.read]
    for system in evidence.systems:
        if ruled(system):
            lines.append(f"C(1,1) of {system.name}: {single_core(system)[1]}")
    return Words(tuple(lines))


def ruled(system: System) -> bool:
    """Tell whether the papers' rule is applied: of the published modes, to enhanced only."""
    return system.stated is not None or not system.published


def settings(evidence: Evidence) -> Table:
    """List the capacity of every setting, published and measured."""
    rows = []
    for system in evidence.systems:
        for option in sorted(system.options, key=lambda each: (each.cores, each.threads)):
            grid = grouped(option.grid_cps) if np.isfinite(option.grid_cps) else "none"
            best = "best" if option in system.best else ""
            place = (system.sut, system.mode, str(option.cores), str(option.threads))
            rows.append((*place, grid, _text(option.interval), best))
    share = f"{100 * evidence.limit:g}\u00a0%"
    return Table(
        identity="table-settings",
        header=(
            *("SUT", "mode", "cores", "threads", f"last load ≤\u00a0{share} (cps)"),
            *("crossing (cps)", "of its cores"),
        ),
        rows=tuple(rows),
        none="no capacity is known",
        caption=f"Capacity at {share}: the last load measured at or under it, and the load at which the "
        "mean drop rate crosses it, with its 95 % interval; n counts runs, or the papers' experiments "
        "of a column.",
        provenance=evidence.provenance,
    )


def rule(evidence: Evidence) -> Table:
    """Set the papers' rule beside what was published and what was measured."""
    rows = []
    for system in evidence.systems:
        if not ruled(system):
            continue
        best = {option.cores: option for option in system.best}
        for cores in sorted({*PAPERS_CORES, *best} - {1}):
            said = extrapolations(system, evidence, cores)
            model, there = said[RULE_OF_ONE], best.get(cores)
            cells = [_text(said[name]) for name in (RULE_OF_ONE, LINEAR, BORROWED)]
            if system.published:
                cells[2] = "this is it"
            threads = str(evidence.threads(cores))
            place = (system.name, str(cores), str(evidence.processors[cores]), threads)
            if there is None:
                rest = (_basis(system, cores), NOT_MEASURED, NOT_MEASURED, "no check")
            else:
                rest = (
                    *("published" if system.published else MEASURED, str(there.threads)),
                    *(_text(level(there)), _error(model, there)),
                )
            rows.append((*place, *cells, *rest))
    return Table(
        identity="table-rule",
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
        if not ruled(system):
            continue
        single, _ = single_core(system)
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
                f"{system.name}: off by {_percent(min(errors))} to {_percent(max(errors))} over "
                f"{plural(len(errors), 'number')} of cores; T(p,c) is the best number of threads in {best}."
            )
    return Words(tuple(lines))


def _off(evidence: Evidence, single: Interval, option: Option) -> float:
    model = evidence.threads(option.cores) * single.estimate
    return 100 * (model / level(option).estimate - 1)


def by_cores(evidence: Evidence, cores_available: int) -> Figure:
    """Draw capacity by cores: what is known, the papers' rule, and the law that fits best."""
    names = suts(evidence)
    modes = list(dict.fromkeys(system.mode for system in evidence.systems))
    most = max(
        cores_available, *PAPERS_CORES, *(o.cores for s in evidence.systems for o in s.options)
    )
    seen: list[str] = []
    with rc_context(STYLE):
        panels = [*names, *([] if evidence.own else [NOT_MEASURED])]
        canvas, grid = _panels(len(panels), sharey=False)
        for axis, name in zip(grid.ravel(), panels, strict=False):
            axis.set_title(name if name != NOT_MEASURED else "this testbed", loc="left")
            among = [system for system in evidence.systems if system.sut == name]
            for system in among:
                seen.append(_draw_system(axis, evidence, system, modes.index(system.mode), most))
            _core_axis(axis, most)
            axis.set_ylabel(f"capacity at {100 * evidence.limit:g} % (cps)")
            if not among:
                _empty(axis, "not measured: no run of any study")
        _hide(grid, len(panels))
        legend(canvas, grid)
        svg = themed(canvas)
    caption = (
        "Capacity by cores with the best number of threads: filled, measured or published, with its 95 % "
        "interval where there is one; stars, T(p,c) × C(1,1), and stars without filling beyond the data; "
        "line and band, the law with the smallest leave-one-out errors and its 95 % prediction interval, "
        "dotted outside the cores it was fitted to; where nothing can be fitted, dotted, one core scaled as "
        "the papers' server. Linear scales from zero; those of the panels differ."
    )
    return Figure(
        identity="figure-cores",
        svg=svg,
        alt=f"Capacity by cores. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen),
        provenance=evidence.provenance,
    )


def _draw_system(axis: Axes, evidence: Evidence, system: System, place: int, most: int) -> str:
    """Draw one system and say what is seen."""
    color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    shift = DODGE * (place - 1)
    known = [option for option in system.best if np.isfinite(level(option).estimate)]
    for option in known:
        interval = level(option)
        ends = np.array([[interval.estimate - interval.low], [interval.high - interval.estimate]])
        axis.errorbar(
            option.cores + shift,
            interval.estimate,
            yerr=np.where(np.isfinite(ends), ends, 0),
            linestyle="none",
            marker=marker,
            markersize=6,
            color=color,
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
    single, _ = single_core(system)
    for cores_of in PAPERS_CORES if ruled(system) and np.isfinite(single.estimate) else ():
        beyond = not system.published and _basis(system, cores_of) == BEYOND
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
    spread = any(level(option).known for option in known)
    best = "; ".join(
        f"{plural(option.cores, 'core')} {_text(level(option), 'cps') if spread else grouped(level(option).estimate)}, "
        f"{plural(option.threads, 'thread')}"
        for option in known
    )
    if known and not spread:
        best += f" (cps, n = {level(known[0]).n} each: {level(known[0]).why})"
    law = f" {chosen.name} fits best." if chosen is not None else ""
    return f"{system.name}: {best or 'no capacity known'}.{law}"


def laws(evidence: Evidence) -> Table:
    """List each law fitted over cores, with its parameters, its errors, and what it says of eight cores."""
    rows: list[tuple[str, ...]] = []
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
            predicted = _text(model.predict(8))
            rows.append((system.name, model.name, str(model.points), error, predicted, said))
    return Table(
        identity="table-laws",
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
                cells.append("no point")
            elif np.isnan(row.predicted_cps):
                cells.append(f"too few others to predict {grouped(row.measured_cps)}")
            else:
                error = _percent(row.error_percent)
                cells.append(
                    f"{grouped(row.predicted_cps)} for {grouped(row.measured_cps)}: {error}"
                )
        rows.append((system.name, model.name, *cells))
    return Table(
        identity="table-left-out",
        header=("system", "law", *(plural(int(count), "core") for count in cores)),
        rows=tuple(rows),
        none="no system is known on several numbers of cores",
        caption="Leave-one-out, in cps: each capacity as the law fitted to the other ones predicts it, the "
        "capacity itself, and the error. One core of the papers is no point of their rule, since it has "
        "more than one thread.",
        provenance=evidence.provenance,
    )


def queues(evidence: Evidence) -> Table:
    """Set the capacities of queues with the measured service times beside the measured ones."""
    rows = []
    for each in evidence.services:
        for by, service in (("cores", each.cpu_us), ("threads", each.t_sip_us)):
            cells = []
            for general in (False, True):
                found = each.predict(by, general, evidence.limit)
                cells.append("; ".join(filter(None, (_text(found), _error(found, each.measured)))))
            rows.append(
                (
                    *(each.name, _text(level(each.measured)), SERVERS[by]),
                    *(_text(service), grouped(each.at_cps), *cells),
                )
            )
    return Table(
        identity="table-queues",
        header=(
            *("setting", "measured (cps)", "servers, service", "service time (µs)", "at (cps)"),
            *("M/M/c/K (cps)", "M/G/c/K (cps)"),
        ),
        rows=tuple(rows),
        none="nothing measured: no service times",
        caption="Capacity as queues with finite room predict it from measured service times, and by how "
        "much they are off. Two choices of what serves: the cores, for the CPU time of a message (T_sip "
        "on CPU + K_stack + K_copy + K_snd); the threads, for T_sip, which contains waiting for a CPU. "
        "Service times are from the highest load at or under the limit. Intervals: 95 %, of the mean "
        "service time over runs; n counts runs. Arrivals are taken for Poisson.",
        provenance=evidence.own_provenance,
    )


def queue_words(evidence: Evidence) -> Words:
    """Say how well each choice of servers predicts."""
    lines = []
    for by, name in SERVERS.items():
        errors = [
            100 * (found.estimate / level(each.measured).estimate - 1)
            for each in evidence.services
            if settled(each.measured)
            and np.isfinite((found := each.predict(by, False, evidence.limit)).estimate)
        ]
        if errors:
            span = f"{_percent(min(errors))} to {_percent(max(errors))}"
            lines.append(
                f"M/M/c/K with {name}: off by {span if len(errors) > 1 else _percent(errors[0])}, "
                f"median {_percent(float(np.median(errors)))}, over {len(errors)} settings."
            )
    if not evidence.services:
        lines.append("Nothing measured here: the queues cannot be checked against a load sweep.")
    elif not lines:
        lines.append("No setting has both a crossing and service times.")
    return Words(tuple(lines))


def queue_curves(evidence: Evidence) -> Figure:
    """Draw drop rate and wait against load, measured and as the queues with cores as servers have them."""
    facets = list(dict.fromkeys(each.facet for each in evidence.services))
    counts = sorted({each.threads for each in evidence.services})
    seen = []
    with rc_context(STYLE):
        rows = max(len(facets), 1)
        canvas = Canvas(figsize=(WIDTH_IN, 0.7 + 2.4 * rows), layout="constrained")
        grid = canvas.subplots(rows, 2, squeeze=False)
        for axes, facet in zip(grid, facets, strict=False):
            among = [each for each in evidence.services if each.facet == facet]
            axes[0].set_title(f"{facet_name(facet)}\nPDR", loc="left")
            axes[1].set_title("mean K_sockq", loc="left")
            for each in among:
                _draw_queue(axes, each, counts.index(each.threads))
                seen.append(_queue_words(each, evidence.limit))
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
                _empty(axis, NOT_MEASURED)
        for axis in grid[-1]:
            axis.set_xlabel("offered load (cps)")
        legend(canvas, grid)
        svg = themed(canvas)
    caption = (
        "Packet drop rate, and mean wait in the socket queue, against load: points, mean of runs with 95 % "
        "t interval; lines, queues whose servers are the cores, with the CPU time of the highest load at "
        "or under the limit. M/G/c has endless room, and no wait from full load on. Dashed: the limit. PDR: "
        "symmetric log scale, linear under 0.01 %; wait: log scale, and what waking the worker takes is in "
        "the measured wait only. Messages sent again come on top of the load and are not in the lines."
    )
    return Figure(
        identity="figure-queues",
        svg=svg,
        alt=f"Queue models against measurement. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen) or ("Nothing measured here: no load sweep to hold the queues against.",),
        provenance=evidence.own_provenance,
    )


def _draw_queue(axes: Sequence[Axes], each: ServiceTimes, place: int) -> None:
    color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    label = plural(each.threads, "thread")
    for axis, values, scale in ((axes[0], each.pdr, 100), (axes[1], each.waits_us, 1)):
        mean, half, _ = mean_intervals(scale * values)
        lower = np.minimum(half, np.maximum(mean * (1 if scale == 100 else 0.9), 0))
        axis.errorbar(
            each.loads,
            mean,
            yerr=np.nan_to_num(np.array([lower, half])),
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
    measured = level(each.measured)
    if np.isnan(found.estimate):
        return f"{each.name}: measured {_text(measured, 'cps')}; nothing predicted: {found.why}."
    text = f"{each.name}: measured {_text(measured, 'cps')}; M/M/c/K {_text(found, 'cps')}"
    if not settled(each.measured):
        return f"{text}."
    inside = "no interval to judge it by"
    if found.known and measured.known:
        apart = found.low > measured.high or found.high < measured.low
        inside = f"the intervals {'do not overlap' if apart else 'overlap'}"
    return f"{text}, {_error(found, each.measured)}: {inside}."


def published_queues(evidence: Evidence) -> Table:
    """Set what the published T_sip makes of capacity beside the published capacity."""
    rows = []
    for system, option, found in _published_services(evidence):
        if option in system.best:
            cells = [grouped(cps) for _, cps in found]
            errors = [_percent(100 * (cps / level(option).estimate - 1)) for _, cps in found]
            rows.append(
                (
                    *(system.mode, str(option.cores), str(option.threads)),
                    *(number(found[0][0]), grouped(level(option).estimate)),
                    *(f"{cell}; {error}" for cell, error in zip(cells, errors, strict=True)),
                )
            )
    return Table(
        identity="table-published-queues",
        header=(
            *("mode", "cores", "threads", "T_sip (µs)", "published (cps)"),
            *("M/M/c/K, c = threads (cps)", "M/M/c/K, c = cores (cps)"),
        ),
        rows=tuple(rows),
        none="no capacity in the tables",
        caption="Capacity by M/M/c/K with the T_sip that the papers print for the last load at or under the "
        "limit, at the best number of threads, and by how much it is off; n = 30 experiments, whose spread "
        f"is not printed. The receive buffer is not printed either: {PLACES_ASSUMED} messages are assumed.",
        provenance=papers.provenance("multicore", "singlecore"),
    )


def published_queue_words(evidence: Evidence) -> Words:
    """Say over all published columns how far the queues are off, and what the assumptions weigh."""
    errors: dict[int, list[float]] = {0: [], 1: []}
    for _, option, found in _published_services(evidence):
        for i, (_, cps) in enumerate(found):
            errors[i].append(100 * (cps / level(option).estimate - 1))
    lines = [
        f"c = {name}: off by {_percent(min(errors[i]))} to {_percent(max(errors[i]))}, median "
        f"{_percent(float(np.median(errors[i])))}, over {len(errors[i])} settings of both modes."
        for i, name in enumerate(("threads", "cores"))
        if errors[i]
    ]
    usual = queue_capacity_cps(80, 4, PLACES_ASSUMED + 4, limit=evidence.limit)
    places = [queue_capacity_cps(80, 4, n + 4, limit=evidence.limit) for n in PLACES_RANGE]
    scvs = [queue_capacity_cps(80, 4, PLACES_ASSUMED + 4, v, evidence.limit) for v in SCV_RANGE]
    by_places, by_scv = (
        " to ".join(_percent(100 * (each / usual - 1), 1) for each in values)
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
            if not settled(option) or place not in points.index:
                continue
            t_sip = float(points[place])
            counts = (option.threads, min(option.cores, option.threads))
            first, second = (
                (t_sip, queue_capacity_cps(t_sip, c, PLACES_ASSUMED + c, limit=evidence.limit))
                for c in counts
            )
            yield system, option, (first, second)


def answer(
    evidence: Evidence,
    cps: float,
    cores: int,
    threads: Collection[int] | None = None,
    modes: Sequence[str] | None = None,
) -> tuple[Plan, ...]:
    """Answer how many cores and threads, in which mode, carry so many calls per second at the limit.

    Parameters
    ----------
    evidence
        What is known.
    cps
        Calls per second to carry.
    cores
        Cores available.
    threads
        Numbers of threads allowed; any by default.
    modes
        Modes allowed, the preferred one first; any by default.

    Returns
    -------
    tuple
        A plan a SUT, published ones first; `choice` is the smallest setting, fewest cores first.
    """
    return tuple(
        plan(
            cps,
            [
                option
                for system in evidence.systems
                if system.sut == sut
                for option in known_options(system, evidence, range(1, cores + 1))
            ],
            cores,
            threads,
            modes,
        )
        for sut in suts(evidence)
    )


def answer_words(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Words:
    """Answer the operator's question in sentences, a SUT each."""
    lines = []
    for name, found in zip(suts(evidence), answer(evidence, cps, cores, threads), strict=True):
        text = str(found)
        if found.choice is not None:
            text += f" Its capacity: {_text(found.choice.interval, 'cps')}."
        elif found.largest is not None:
            text = f"{text[:-1]}, {found.largest.basis}."
        shown = found.choice or found.largest
        if shown is not None and shown.basis != MEASURED:
            text += _how(evidence, shown, cps, cores, threads)
        if any(system.published for system in evidence.systems if system.sut == name):
            text = text.replace(", measured:", ", published:").replace("measured:", "published:")
        lines.append(text)
    if not evidence.own:
        lines.append("This testbed: not measured, no answer of its own.")
    return Words(tuple(lines))


def _how(
    evidence: Evidence, shown: Option, cps: float, cores: int, threads: Collection[int] | None
) -> str:
    """Say what predicts a setting, and what would do if the prediction were exact."""
    system = next(
        each for each in evidence.systems if (each.sut, each.mode) == (shown.sut, shown.mode)
    )
    by = predictor(system, evidence)
    exact = [
        replace(option, carries_cps=option.interval.estimate)
        if option.basis != MEASURED
        else option
        for option in known_options(system, evidence, range(1, cores + 1))
    ]
    choice = plan(cps, exact, cores, threads).choice
    text = f" Predicted by: {by[0] if by else 'nothing'}."
    if (choice is not None and choice.carries_cps > shown.carries_cps) or shown.carries_cps < cps:
        would = (
            f"{plural(choice.cores, 'core')} would do"
            if choice is not None
            else "nothing would do either"
        )
        text += f" Were the prediction exact, {would}."
    return text


def options(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Table:
    """List for each system and mode the smallest setting that carries a load, or what comes closest."""
    rows = []
    for system in evidence.systems:
        known = known_options(system, evidence, range(1, cores + 1))
        found = plan(cps, known, cores, threads)
        shown = found.choice or found.largest
        if shown is None:
            rows.append((system.name, "nothing is known", *[""] * 5))
            continue
        basis = "published" if system.published and shown.basis == MEASURED else shown.basis
        rows.append(
            (
                *(system.name, "yes" if found.choice else "no, at most:"),
                *(
                    str(shown.cores),
                    str(shown.threads),
                    grouped(shown.carries_cps) if shown.carries_cps else "none",
                ),
                *(basis, _text(shown.interval)),
            )
        )
    return Table(
        identity="table-plan",
        header=(
            *("system", f"carries {grouped(cps)} cps?", "cores", "threads", "to rely on (cps)"),
            *("basis", "capacity (cps)"),
        ),
        rows=tuple(rows),
        none="nothing is known",
        caption=f"The smallest setting for {grouped(cps)} cps at {100 * evidence.limit:g} %, of at most "
        f"{plural(cores, 'core')}{_allowed(threads)}: fewest cores, then fewest threads. To rely on: the lower end "
        "of the interval; without one, the last load at or under the limit, or what the model says.",
        provenance=evidence.provenance,
    )


def carried(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Figure:
    """Draw what can be relied on by cores, known and predicted, and the load that is asked for."""
    names = suts(evidence)
    modes = list(dict.fromkeys(system.mode for system in evidence.systems))
    seen = []
    with rc_context(STYLE):
        panels = [*names, *([] if evidence.own else [NOT_MEASURED])]
        canvas, grid = _panels(len(panels), sharey=True)
        for axis, name in zip(grid.ravel(), panels, strict=False):
            axis.set_title(name if name != NOT_MEASURED else "this testbed", loc="left")
            for system in (each for each in evidence.systems if each.sut == name):
                known = known_options(system, evidence, range(1, cores + 1))
                most = _most(known, cores, threads)
                _draw_carried(axis, system, most, cores, modes.index(system.mode))
                seen.append(_carried_words(system, most, plan(cps, known, cores, threads).choice))
            axis.axhline(
                cps, color=LIMIT, linestyle="--", linewidth=1, label=f"{grouped(cps)} cps asked for"
            )
            _core_axis(axis, cores)
            axis.set_xlabel("cores available")
            axis.set_ylabel("load to rely on (cps)")
            if name == NOT_MEASURED:
                _empty(axis, "not measured: no run of any study")
        _hide(grid, len(panels))
        legend(canvas, grid)
        svg = themed(canvas)
    caption = (
        "The largest load to rely on by cores available, some of them idle if fewer carry more, with the "
        "best of the threads allowed: filled, measured or published; open, predicted or beyond the data, "
        "the lower end of its interval. Dashed: the load asked for."
    )
    return Figure(
        identity="figure-plan",
        svg=svg,
        alt=f"Load to rely on by cores. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen),
        provenance=evidence.provenance,
    )


def _most(known: Sequence[Option], cores: int, threads: Collection[int] | None) -> list[Option]:
    """Give for each number of cores available the setting that carries most; it may leave some idle."""
    found = []
    for count in range(1, cores + 1):
        among = [
            option
            for option in known
            if option.cores <= count
            and (threads is None or option.threads in threads)
            and np.isfinite(option.carries_cps)
        ]
        if among:
            found.append(max(among, key=lambda option: option.carries_cps))
    return found


def _draw_carried(
    axis: Axes, system: System, most: Sequence[Option], cores: int, place: int
) -> None:
    color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
    # Where the first numbers of cores have no setting, `most` is shorter.
    available = range(cores - len(most) + 1, cores + 1)
    for count, option in zip(available, most, strict=True):
        axis.plot(
            count + DODGE * (place - 1),
            option.carries_cps,
            linestyle="none",
            marker=marker,
            markersize=6,
            color=color,
            markerfacecolor=color if option.basis == MEASURED else PAPER,
            label=system.mode,
        )


def _carried_words(system: System, most: Sequence[Option], enough: Option | None) -> str:
    if not most:
        return f"{system.name}: nothing is known."
    largest = max(most, key=lambda option: option.carries_cps)
    text = (
        f"{plural(enough.cores, 'core')} with {plural(enough.threads, 'thread')} carry it ({_said(system, enough)})"
        if enough is not None
        else "nothing carries it"
    )
    if largest.carries_cps == 0:
        return f"{system.name}: {text}; no load measured is sure to stay under the limit."
    return (
        f"{system.name}: {text}; at most {grouped(largest.carries_cps)} cps can be relied on, with "
        f"{plural(largest.cores, 'core')} ({_said(system, largest)})."
    )


def _said(system: System, option: Option) -> str:
    return "published" if system.published and option.basis == MEASURED else option.basis


def _basis(system: System, cores: int) -> str:
    """Say whether a number of cores that was not measured lies between those that were."""
    known = [option.cores for option in system.options]
    return PREDICTED if known and min(known) < cores < max(known) else BEYOND


def _panels(count: int, sharey: bool) -> tuple[Canvas, npt.NDArray[np.object_]]:
    rows = -(-count // 2)
    canvas = Canvas(figsize=(WIDTH_IN, 0.7 + 2.9 * rows), layout="constrained")
    return canvas, canvas.subplots(rows, 2, squeeze=False, sharey=sharey)


def _hide(grid: npt.NDArray[np.object_], used: int) -> None:
    for axis in grid.ravel()[used:]:
        axis.set_visible(False)


def _core_axis(axis: Axes, most: int) -> None:
    axis.set_xlim(0.5, most + 0.5)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("cores")
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(grouped))


def _empty(axis: Axes, text: str) -> None:
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center")


def _allowed(threads: Collection[int] | None) -> str:
    return "" if threads is None else f" and {', '.join(map(str, sorted(threads)))} threads"


def _percent(value: float, decimals: int | None = None) -> str:
    """Write a difference in percent with its sign, and a real minus; below 10 % with a decimal."""
    digits = decimals if decimals is not None else int(abs(value) < 10)
    return f"{value:+.{digits}f}\u00a0%".replace("-", "−")


def _error(model: Interval, option: Option) -> str:
    """Say by how much a model is off; nothing where one of the two is not known."""
    measured = level(option).estimate
    if not settled(option) or not np.isfinite(model.estimate) or not measured > 0:
        return ""
    return _percent(100 * (model.estimate / measured - 1))


def _text(interval: Interval, unit: str = "") -> str:
    """Write a number with its interval, ends beyond the loads measured in words."""
    return interval.text(unit, _bound)


def _parameters(model: Model) -> str:
    """Write a law's parameters; why they have no intervals stands once."""
    values = [value for _, _, value in model.parameters]
    if any(value.known for value in values):
        return "; ".join(
            f"{name} = {v.text(unit, _parameter)}" for name, unit, v in model.parameters
        )
    said = "; ".join(
        f"{name} = {_parameter(value.estimate)} {unit}".strip()
        for name, unit, value in model.parameters
    )
    return f"{said}; n = {values[0].n}: {values[0].why}"


def _parameter(value: float) -> str:
    return "unbounded" if np.isinf(value) else "0" if abs(value) < 1e-6 else number(value)


def _bound(value: float) -> str:
    if np.isinf(value):
        return "beyond all loads" if value > 0 else "below all loads"
    return number(value)
