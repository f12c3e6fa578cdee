"""How runs were switched: the response since the switch, windows and washouts, switches, the machine."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from sipsched.analysis.advice import Load
from sipsched.analysis.carry_over import settled_after
from sipsched.analysis.statistics import Values
from sipsched.analysis.switching import Aligned, Switching, aligned, switching
from sipsched.pages.crossover.forest import AA
from sipsched.pages.crossover.wording import (
    design,
    loads_name,
    place_apart,
    place_name,
    provenance,
    short_load,
)
from sipsched.pages.drawing import GRID, LIMIT, NARROW_IN, SERIES, STYLE, WIDTH_IN, legend, themed
from sipsched.pages.numbers import NO_ENTRY, rounded
from sipsched.pages.parts import Figure, Table, Words
from sipsched.plan.crossover import CALL_TAIL_S, RELAXATIONS, WINDOW_MIN_S, WINDOW_WASHOUTS
from sipsched.records.window_time import STOLEN, SWITCH, UNFINISHED
from sipsched.records.windows import DROPPED, FEW, LEFT_OUT, SHAM
from sipsched.words import number, plural

LINES = ("-", "--", ":", "-.")
REASONS = {
    SWITCH: "switch failed",
    UNFINISHED: "run ended",
    STOLEN: "stolen",
    DROPPED: "drop",
    FEW: "few messages",
}
"""Of windows left out, as the head of a column."""
ERRORS_MOST = 3.0
"""Standard errors that the response may move after the washout by chance: of some ten modes at most."""
BINS_LEAST = 8
SPEED_MOVED = 0.05
"""A change of the speed index that is said: the same work took so much longer or shorter."""


def response(loads: Sequence[Load]) -> Figure | Words:
    """Draw the mean response since the switch, by mode, and what is left out."""
    found = [(load, each) for load in loads if (each := aligned(load)) is not None]
    if not found:
        return Words(("The response since the switch is not known: no window counts.",))
    seen = tuple(_settles(_name(load, loads), load, each) for load, each in found)
    caption = (
        "Mean of K_rcv + T_sip by the time since the switch, over the windows that count, with its standard "
        "error as a band. What is left of the dashed line is left out (washout). A washout is long "
        "enough where the lines are flat to its right."
    )
    return Figure(
        identity="figure-since-switch",
        svg=_draw(found, 3, WIDTH_IN),
        narrow=_draw(found, 1, NARROW_IN),
        alt=f"Response since the switch. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(loads),
    )


def _name(load: Load, loads: Iterable[Load]) -> str:
    """Name a load, and its proxy where there are several."""
    return f"{place_apart(load.place, (each.place for each in loads))}{short_load(load)}"


def _draw(found: Sequence[tuple[Load, Aligned]], most_across: int, width: float) -> str:
    across = min(most_across, len(found))
    down = math.ceil(len(found) / across)
    with rc_context({**STYLE, "font.size": 8.0, "axes.titlesize": 8.5}):
        canvas = Canvas(figsize=(width, 0.6 + 2.1 * down), layout="constrained")
        grid = canvas.subplots(down, across, squeeze=False)
        for axis, (load, each) in zip(grid.ravel(), found, strict=False):
            for i, (arm, (mean, error)) in enumerate(each.by_arm.items()):
                colour = SERIES[i % len(SERIES)]
                label = AA if arm == SHAM else load.label(arm)
                style = LINES[(i // len(SERIES)) % len(LINES)]
                axis.plot(1000 * each.since_s, mean, style, color=colour, label=label)
                axis.fill_between(
                    1000 * each.since_s,
                    mean - error,
                    mean + error,
                    color=colour,
                    alpha=0.2,
                    linewidth=0,
                )
            axis.axvspan(0, 1000 * each.washout_s, color=GRID, alpha=0.5, linewidth=0)
            axis.axvline(1000 * each.washout_s, color=LIMIT, linestyle="--", linewidth=1)
            axis.set_xlim(left=0)
            axis.set_ylim(bottom=0)
            name = _name(load, (each for each, _ in found))
            axis.set_title(name.replace(", ", "\n"), loc="left")
            axis.set_xlabel("since the switch (ms)")
        for axis in grid.ravel()[len(found) :]:
            axis.set_visible(False)
        for row in grid:
            row[0].set_ylabel("mean of the sum (µs)")
        legend(canvas, grid, columns=4 if across > 1 else 2)
        return themed(canvas)


def _settles(name: str, load: Load, found: Aligned) -> str:
    """Say whether the response still moves after the washout, in the mode where it moves most."""
    moves = {arm: _moves(found, *each) for arm, each in found.by_arm.items()}
    arm = max(moves, key=lambda each: abs(moves[each][1]))
    share, errors = moves[arm]
    if math.isnan(errors):
        return f"{name}: too little is left of a window to see whether the response settles."
    if abs(errors) <= ERRORS_MOST:
        return (
            f"{name}: after the washout of {1000 * found.washout_s:.0f} ms the response is flat in every mode, "
            "within chance."
        )
    label = AA if arm == SHAM else load.label(arm)
    since = settled_after(found.since_s, *found.by_arm[arm])
    until = since.why
    if since.known:
        estimate, low, high = rounded(since.map(lambda seconds: 1000 * seconds))
        until = f"flat from {estimate} ms ({low} to {high}) on"
    return (
        f"{name}: after the washout of {1000 * found.washout_s:.0f} ms the response still moves in mode {label}: its "
        f"first quarter is {_signed(100 * share)}\u00a0% off its last half ({until}). Part of it is carried over."
    )


def _moves(found: Aligned, mean: Values, error: Values) -> tuple[float, float]:
    """Compare the first quarter after the washout with the last half: as a share, and in standard errors."""
    after = found.since_s >= found.washout_s
    mean, error = mean[after], error[after]
    bins = len(mean)
    if bins < BINS_LEAST:
        return math.nan, math.nan
    early, late = slice(0, bins // 4), slice(bins - bins // 2, bins)
    level = float(mean[late].mean())
    moved = float(mean[early].mean()) - level
    spread = math.hypot(
        *(float(np.sqrt((error[at] ** 2).sum())) / len(error[at]) for at in (early, late))
    )
    return (moved / level, moved / spread) if level and spread else (0.0, 0.0)


def _signed(value: float) -> str:
    return f"{value:+.0f}".replace("-", "−")


def design_words(loads: Sequence[Load]) -> Words:
    """Say how the runs were made."""
    return Words((design(loads),))


def chosen(loads: Sequence[Load]) -> Words:
    """Say where the lengths of windows and washouts come from."""
    lines = []
    for place in dict.fromkeys(load.place for load in loads):
        of_place = [load for load in loads if load.place == place]
        given = [
            load
            for load in of_place
            if all(math.isnan(float(run.attrs["utilisation"])) for run in load.runs)
        ]
        if given:
            lines.append(
                f"{place_name(place)}, {loads_name(given)}: lengths of windows and washout as configured."
            )
        for load in of_place:
            if load in given:
                continue
            busy = [100 * float(run.attrs["utilisation"]) for run in load.runs]
            relax = [1000 * float(run.attrs["relaxation_s"]) for run in load.runs]
            windows_s = [float(run.attrs["window_s"]) for run in load.runs]
            washout_ms = [1000 * float(run.attrs["washout_s"]) for run in load.runs]
            lines.append(
                f"{_name(load, loads)}: the proxy took {_range(busy)} % of its CPUs in the "
                f"warm-up, where a queue forgets within {_range(relax)} ms: washout {_range(washout_ms)} ms, "
                f"windows of {_range(windows_s)} s."
            )
    if any(not math.isnan(float(run.attrs["utilisation"])) for load in loads for run in load.runs):
        lines.append(
            f"The washout is {1000 * CALL_TAIL_S:.0f} ms, in which calls of the window before end, and "
            f"{RELAXATIONS} times what a queue needs to forget (the relaxation time of M/M/1); a window is "
            f"{WINDOW_WASHOUTS} washouts, at least {WINDOW_MIN_S:g} s."
        )
    return Words(tuple(lines))


def _range(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "n/a"
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"


def windows(loads: Sequence[Load]) -> Table:
    """Count the windows of each run, and those left out, by reason."""
    rows = []
    found = [(load, switching(run)) for load in loads for run in load.runs]
    reasons = sorted({reason for _, each in found for reason in each.left_out})
    for load, each in found:
        rows.append(
            (
                *_run(load, each),
                f"{each.window_s:.2g}",
                f"{1000 * each.washout_s:.0f}",
                f"{each.whole_blocks} of {each.blocks}",
                str(each.windows),
                *(str(each.left_out.get(reason, 0)) for reason in reasons),
            )
        )
    header = ("SUT", "load", "run", "window (s)", "washout (ms)", "whole blocks", "windows")
    return Table(
        identity="table-windows",
        places=2,
        groups=(("", len(header)), ("left out because", len(reasons))) if reasons else (),
        header=(*header, *(REASONS.get(reason, LEFT_OUT[reason]) for reason in reasons)),
        rows=tuple(rows),
        none="no run that compares modes counts",
        caption="Windows as drawn, and those that do not count. "
        + (
            " ".join(f"{REASONS.get(each, '')}: {LEFT_OUT[each]}." for each in reasons)
            or "Every window counts."
        ),
        provenance=provenance(loads),
    )


def switches(loads: Sequence[Load]) -> Table:
    """Show how long switches took and how late they came, and what the machine did meanwhile."""
    rows = []
    for load in loads:
        for run in load.runs:
            each = switching(run)
            moved = each.speed_after / each.speed_before - 1
            rows.append(
                (
                    *_run(load, each),
                    str(each.tasks),
                    _or_dash(each.switch_median_us),
                    _or_dash(each.switch_max_us),
                    _or_dash(each.late_max_us),
                    str(each.failed),
                    _or_dash(100 * each.steal_mean),
                    _or_dash(100 * each.steal_max),
                    _or_dash(each.speed_before),
                    _or_dash(each.speed_after),
                    NO_ENTRY if math.isnan(moved) else f"{100 * moved:+.1f}".replace("-", "−"),
                )
            )
    return Table(
        identity="table-switches",
        places=2,
        groups=(("", 4), ("switch (µs)", 4), ("steal (%)", 2), ("speed index", 3)),
        header=(
            *("SUT", "load", "run", "processes", "median", "longest", "latest", "failed"),
            *("mean", "worst window", "before", "after", "change (%)"),
        ),
        rows=tuple(rows),
        none="no run that compares modes counts",
        caption="Switches of all of the proxy's processes: duration and lateness by the switcher's own log; the "
        "share of the SPS's CPUs that the hypervisor took; and how fast a fixed piece of work ran before and "
        "after the run.",
        provenance=provenance(loads),
    )


def machine(loads: Sequence[Load]) -> Words:
    """Say in words how switching went and whether the machine changed."""
    found = [switching(run) for load in loads for run in load.runs]
    if not found:
        return Words(("No run that compares modes counts.",))
    longest = max(
        (each.switch_max_us for each in found if each.switch_max_us >= 0), default=math.nan
    )
    middle = [each.switch_median_us for each in found if each.switch_median_us >= 0]
    failed, total = sum(each.failed for each in found), sum(each.windows for each in found)
    lines = []
    if middle:
        tasks = max(each.tasks for each in found)
        typical = number(float(np.median(middle)))
        lines.append(
            f"A switch of all {tasks} processes of the proxy took {typical} µs in the middle and "
            f"{number(longest)} µs at most; {failed} of {total} failed."
        )
    out = sum(sum(each.left_out.values()) for each in found)
    lines.append(f"{out} of {plural(total, 'window')} do not count.")
    moved = [each for each in found if abs(each.speed_after / each.speed_before - 1) > SPEED_MOVED]
    if moved:
        lines.append(
            f"In {len(moved)} of {plural(len(found), 'run')} the machine's speed changed by more than "
            f"{100 * SPEED_MOVED:.0f}\u00a0% from before to after. Windows of a "
            "block meet the same machine; loads do not."
        )
    return Words(tuple(lines))


def _run(load: Load, each: Switching) -> tuple[str, str, str]:
    modes = {run.attrs["mode"] for run in load.runs}
    name = f"{each.mode}, {each.rep}" if len(modes) > 1 else str(each.rep)
    return load.place.sut, short_load(load), name


def _or_dash(value: float) -> str:
    return NO_ENTRY if math.isnan(value) else number(value)
