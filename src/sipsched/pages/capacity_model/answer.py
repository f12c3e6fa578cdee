"""How many cores and threads a load needs, in which mode."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from sipsched.analysis.capacity.options import MEASURED, PUBLISHED, Option, Plan, plan
from sipsched.analysis.capacity.predictions import known_options, predictor
from sipsched.analysis.capacity.systems import Evidence, System
from sipsched.pages.capacity_model.panels import DODGE, core_axis, empty, hide, make_panels
from sipsched.pages.capacity_model.wording import NOT_MEASURED
from sipsched.pages.drawing import (
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
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Answer, Cell, Figure, Table, Words
from sipsched.words import grouped, number, plural


def plans(
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
        for sut in evidence.suts
    )


def answer(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Answer:
    """Answer the operator's question in one sentence: what was measured here first, then the papers."""
    own = {each.sut for each in evidence.own}
    named = zip(evidence.suts, plans(evidence, cps, cores, threads), strict=True)
    told = [
        f"{name}: {_short(found)}"
        for name, found in sorted(named, key=lambda each: each[0] not in own)
    ]
    if not told:
        return Answer("There is no answer: nothing is known of any proxy.")
    measured = "" if own else " (nothing was measured here)"
    return Answer(
        f"For {grouped(cps)} calls per second, of at most {plural(cores, 'core')}: {'; '.join(told)}{measured}."
    )


def _short(found: Plan) -> str:
    if found.choice is not None:
        option = found.choice
        size = f"{plural(option.cores, 'core')} with {plural(option.threads, 'thread')}"
        return f"{size}, mode {option.mode} ({option.basis})"
    if found.largest is None or not found.largest.carries_cps:
        return "no setting is known to carry a load"
    most = found.largest
    size = f"{plural(most.cores, 'core')}, {plural(most.threads, 'thread')}"
    return (
        f"no setting that is known, the most is {grouped(most.carries_cps)} ({size}, {most.basis})"
    )


def words(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Words:
    """Answer the operator's question in sentences, a SUT each."""
    lines = []
    for name, found in zip(evidence.suts, plans(evidence, cps, cores, threads), strict=True):
        published = any(each.published for each in evidence.systems if each.sut == name)
        line = plan_words(found, PUBLISHED if published else MEASURED)
        shown = found.choice or found.largest
        if shown is not None and not shown.known:
            line += _how(evidence, shown, cps, cores, threads)
        lines.append(line)
    if not evidence.own:
        lines.append("This testbed: not measured, no answer of its own.")
    return Words(tuple(lines))


def plan_words(found: Plan, kind: str) -> str:
    """Say what carries a load, or what comes closest.

    Parameters
    ----------
    found
        The plan of a SUT.
    kind
        What its known settings are: `MEASURED` or `PUBLISHED`.
    """
    load = f"{number(found.cps)} cps"
    if found.choice is None:
        line = f"{load}: nothing that is known carries it."
        if found.largest is None:
            return line
        most = (
            f"The most is {number(found.largest.carries_cps)} cps"
            if found.largest.carries_cps
            else "No load that was measured is sure to stay under the limit"
        )
        return f"{line} {most}: {_setting(found.largest)}, {found.largest.basis}."
    line = (
        f"{load}: {_setting(found.choice)}, {found.choice.basis}: carries "
        f"{number(found.choice.carries_cps)} cps, {found.margin_percent:.0f} % to spare."
    )
    if not found.choice.known:
        line += f" Smallest {kind}: {_setting(found.known) if found.known else 'none'}."
    return f"{line} Its capacity: {in_words(found.choice.interval, 'cps')}."


def _setting(option: Option) -> str:
    cores, threads = plural(option.cores, "core"), plural(option.threads, "thread")
    return f"{option.sut}, {option.mode}, {cores}, {threads}"


def _how(
    evidence: Evidence, shown: Option, cps: float, cores: int, threads: Collection[int] | None
) -> str:
    """Say what predicts a setting, and what would do if the prediction were exact."""
    system = next(
        each for each in evidence.systems if (each.sut, each.mode) == (shown.sut, shown.mode)
    )
    by = predictor(system, evidence)
    exact = [
        replace(option, carries_cps=option.interval.estimate) if not option.known else option
        for option in known_options(system, evidence, range(1, cores + 1))
    ]
    choice = plan(cps, exact, cores, threads).choice
    text = f" Predicted by: {by[0] if by else 'nothing'}."
    if (choice is not None and choice.carries_cps > shown.carries_cps) or shown.carries_cps < cps:
        would = (
            f"{plural(choice.cores, 'core')} would do"
            if choice is not None
            else "no number of cores would do"
        )
        text += f" If the prediction has no error, {would}."
    return text


def smallest(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Table:
    """List for each system and mode the smallest setting that carries a load, or what comes closest."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        known = known_options(system, evidence, range(1, cores + 1))
        found = plan(cps, known, cores, threads)
        shown = found.choice or found.largest
        if shown is None:
            rows.append((system.name, "nothing is known", *[""] * 5))
            continue
        rows.append(
            (
                *(system.name, "yes" if found.choice else "no, at most:"),
                *(
                    str(shown.cores),
                    str(shown.threads),
                    grouped(shown.carries_cps) if shown.carries_cps else "none",
                ),
                *(shown.basis, told(shown.interval, "cps")),
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


def _allowed(threads: Collection[int] | None) -> str:
    return "" if threads is None else f" and {', '.join(map(str, sorted(threads)))} threads"


def carried(
    evidence: Evidence, cps: float, cores: int, threads: Collection[int] | None = None
) -> Figure:
    """Draw what can be relied on by cores, known and predicted, and the load that is asked for."""
    names = evidence.suts
    modes = list(dict.fromkeys(system.mode for system in evidence.systems))
    seen: dict[str, None] = {}

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            panels = [*names, *([] if evidence.own else [NOT_MEASURED])]
            canvas, grid = make_panels(layout, len(panels), sharey="all")
            for axis, name in zip(grid.ravel(), panels, strict=False):
                axis.set_title(name if name != NOT_MEASURED else "this testbed", loc="left")
                for system in (each for each in evidence.systems if each.sut == name):
                    known = known_options(system, evidence, range(1, cores + 1))
                    most = _most(known, cores, threads)
                    _draw_carried(axis, system, most, cores, modes.index(system.mode))
                    seen.setdefault(
                        _carried_words(system, most, plan(cps, known, cores, threads).choice)
                    )
                axis.axhline(
                    cps,
                    color=LIMIT,
                    linestyle="--",
                    linewidth=1,
                    label=f"{grouped(cps)} cps asked for",
                )
                core_axis(axis, cores)
                axis.set_xlabel("cores available")
                axis.set_ylabel("load to rely on (cps)")
                if name == NOT_MEASURED:
                    empty(axis, "not measured: no run of any study")
            hide(grid, len(panels))
            legend(canvas, grid)
            return themed(canvas)

    svg, narrow = both(draw)
    caption = (
        "The largest load to rely on by cores available, some of them idle if fewer carry more, with the "
        "best of the threads allowed: filled, measured or published; open, predicted or beyond the data, "
        "the lower end of its interval. Dashed: the load asked for."
    )
    return Figure(
        identity="figure-plan",
        svg=svg,
        narrow=narrow,
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
            markerfacecolor=color if option.known else PAPER,
            label=system.mode,
        )


def _carried_words(system: System, most: Sequence[Option], enough: Option | None) -> str:
    if not most:
        return f"{system.name}: nothing is known."
    largest = max(most, key=lambda option: option.carries_cps)
    text = (
        f"{plural(enough.cores, 'core')} with {plural(enough.threads, 'thread')} carry it ({enough.basis})"
        if enough is not None
        else "nothing carries it"
    )
    if largest.carries_cps == 0:
        return f"{system.name}: {text}; no load measured is sure to stay under the limit."
    return (
        f"{system.name}: {text}; at most {grouped(largest.carries_cps)} cps can be relied on, with "
        f"{plural(largest.cores, 'core')} ({largest.basis})."
    )
