"""Checks of runs that switch between modes: windows (periods in one mode), settling, switches, machine speed."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.advice import Advice, ComparedLoad, Ranking
from sipsched.analysis.switching import Aligned, Drift, Switching, aligned, switching
from sipsched.pages.crossover.wording import (
    AA,
    IN_WORDS,
    effect_words,
    load_among,
    looks_of,
    provenance,
)
from sipsched.pages.drawing import GRID, LIMIT
from sipsched.pages.numbers import NO_ENTRY, in_us
from sipsched.pages.parts import Figure, Folded, Table, Words
from sipsched.pages.plots import draw_line, from_zero, panels
from sipsched.plan.crossover import (
    RELAXATIONS,
    SHORT_TAIL_S,
    WASHOUT_MAX_S,
    WINDOW_MIN_S,
    WINDOW_WASHOUTS,
)
from sipsched.records.window_time import STOLEN, SWITCH, UNFINISHED
from sipsched.records.windows import DROPPED, FEW, LEFT_OUT, SHAM
from sipsched.words import grouped, number, plural

REASONS = {
    SWITCH: "switch failed",
    UNFINISHED: "run ended",
    STOLEN: "steal above the limit",
    DROPPED: "drop",
    FEW: "few messages",
}
"""Column headings for the reasons why a window (a period of a run in one mode) is invalid or has less weight."""
EXPECTED_US = 1000
"""The longest expected duration of a switch, as the page's section on switches says."""
MOST_LINES = 6
MARKERS_PER_LINE = 10
SPEED_MOVED = 0.05
"""The page mentions a change of the machine's speed index only if the relative change is at least this large."""


def response(comparisons: Sequence[Advice]) -> Figure | Words:
    """Draw the mean message time since a switch to each mode, and mark the washout (the excluded settling time)."""
    rankings = [ranking for advice in comparisons for ranking in advice.rankings]
    loads = [ranking.load for ranking in rankings]
    known = [
        (ranking, alignment)
        for ranking in rankings
        if (alignment := aligned(ranking.load)) is not None
    ]
    if not known:
        return Words(
            (
                "It is unknown when the message times become stable after a switch of the mode, because no "
                "window is valid.",
            )
        )

    every = dict.fromkeys(arm for _, alignment in known for arm in alignment.by_arm)
    shown = _shown_arms(known) & every.keys()
    looks = looks_of(loads)

    def draw(axis: Axes, row: int, column: int) -> None:
        ranking, alignment = known[column]
        load = ranking.load
        since_ms = 1000 * alignment.since_s
        for arm, (mean, error) in alignment.by_arm.items():
            if arm not in shown:
                continue
            look = looks[load.place.reference if arm == SHAM else arm]
            label = AA if arm == SHAM else load.label(arm)
            marked = slice(None, None, max(1, len(mean) // MARKERS_PER_LINE))
            titles = [
                f"{label}, {number(ms)} ms after the switch: {in_us(us)}"
                for ms, us in zip(since_ms[marked], mean[marked], strict=True)
            ]
            draw_line(
                *(axis, since_ms, mean, look, titles),
                label=label,
                linestyle="--" if arm == SHAM else "-",
                markevery=marked,
                markersize=3.5,
            )
            axis.fill_between(
                since_ms, mean - error, mean + error, color=look.color, alpha=0.2, lw=0
            )
        for washout_s in dict.fromkeys(alignment.washouts_s):
            axis.axvspan(0, 1000 * washout_s, color=GRID, alpha=0.5, linewidth=0)
            axis.axvline(1000 * washout_s, color=LIMIT, linestyle=":", linewidth=1)
        axis.set_xlim(left=0)
        from_zero(axis)
        axis.set_ylabel("mean K_rcv + T_sip (µs)")

    return Figure(
        identity="figure-since-switch",
        draw=panels(
            [""],
            [load_among(ranking.load, loads) for ranking, _ in known],
            draw,
            "since the switch (ms)",
            shared=("", ""),
        ),
        caption="Mean time per message (K_rcv + T_sip) against the time since the switch of the mode, over all "
        "valid windows.",
        reading="The bands show standard errors. The dashed line shows the A/A comparison. The grey area is the "
        "washout, which is excluded from the results. "
        + "The runs have different washouts: the darker area shows the shortest one, and the lighter area the longest. "
        * any(short < long for _, alignment in known for short, long in [alignment.washouts_s])
        + "If the lines are flat to the right of the washout, the washout is long enough. A line with a wide band "
        "depends on a few windows with long queues, so its rise or fall can be chance. The mean of each line after the "
        "washout is the mean of the reference, multiplied by the effect that was measured within runs."
        + (
            " The figure shows the reference, the A/A comparison, the recommended modes, the modes that still change "
            "after the washout, and the best modes of the ranking. It omits the lines of "
            f"{plural(len(every) - len(shown), 'other mode')}."
            if len(shown) < len(every)
            else ""
        ),
        seen=tuple(
            _drifts(load_among(ranking.load, loads), ranking.load, alignment)
            for ranking, alignment in known
        ),
        provenance=provenance(loads),
    )


def _shown_arms(known: Sequence[tuple[Ranking, Aligned]]) -> set[str]:
    """Return the arms that the figure shows: the reference, A/A, and the modes that the page recommends or names.

    If there is room, the figure also shows the best modes of the ranking. Many lines of few colours could not be
    distinguished.
    """
    always: set[str] = set()
    ranks: dict[str, list[int]] = {}
    for ranking, alignment in known:
        always |= {SHAM, ranking.load.place.reference}
        always |= {arm for arm, drift in alignment.drifts.items() if drift.beyond_chance}
        always |= {ranking.best.mode} if ranking.best else set()
        for rank, candidate in enumerate(ranking.candidates):
            ranks.setdefault(candidate.mode, []).append(rank)
    others = sorted(ranks.keys() - always, key=lambda mode: (np.mean(ranks[mode]), mode))
    return always | set(others[: max(MOST_LINES - len(always), 0)])


def _drifts(name: str, load: ComparedLoad, alignment: Aligned) -> str:
    """State which modes' message times still change after the washout, and what this change does to the results."""
    ends = list(dict.fromkeys(f"{1000 * washout_s:.0f}" for washout_s in alignment.washouts_s))
    washout = f"the washout{'s' * (len(ends) > 1)} of {' to '.join(ends)}\u00a0ms"
    if all(math.isnan(drift.errors) for drift in alignment.drifts.values()):
        return f"{name}: the windows are too short to show whether the message time is constant after {washout}."
    beyond = {arm: drift for arm, drift in alignment.drifts.items() if drift.beyond_chance}
    if not beyond:
        return f"{name}: after {washout}, no message time changes by more than random variation explains."
    return f"{name}: after {washout}, " + " ".join(
        _drift_words(load, arm, drift) for arm, drift in beyond.items()
    )


def _drift_words(load: ComparedLoad, arm: str, drift: Drift) -> str:
    label = AA if arm == SHAM else load.label(arm)
    text = (
        f"the message time with {label} still changes. It is {abs(100 * drift.share):.0f}\u00a0% "
        f"{'lower' if drift.share < 0 else 'higher'} in the first quarter of the window after the washout than in "
        "the last half of this window. "
    )
    text += (
        "The message time is not constant in any part of the window that is long enough for the test. "
        if math.isnan(drift.constant_s)
        else f"The message time is constant from {1000 * drift.constant_s:.0f}\u00a0ms after the switch. "
    )
    text += f"So the results of {label} may depend on the mode of the previous window."
    if arm == load.place.reference:
        return text
    change = load.change(arm, "total_mean", 1)
    return (
        f"{text} With a washout of twice this length, the effect on {IN_WORDS['total_mean']} is "
        f"{effect_words(change.second, 'total_mean')} instead of {effect_words(change.first, 'total_mean')}."
    )


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def design(loads: Iterable[ComparedLoad]) -> Words:
    """Return sentences on the design of the runs: windows (periods in one mode), blocks of windows, and washout."""
    runs = [run for load in loads for run in load.runs]
    if not runs:
        return Words(("This study compares modes within runs, but nothing was measured.",))
    lengths = sorted({round(float(run.attrs["window_s"]), 2) for run in runs})
    span = f"{lengths[0]:g}" + (f" to {lengths[-1]:g}" if lengths[1:] else "")
    blocks = plural(sum(int(run["block"].max()) + 1 for run in runs), "block")
    again = {bool(run.attrs["retransmissions"]) for run in runs}
    sent = {1: "on" if again == {True} else "off", 2: "on in some runs"}[len(again)]
    lines = [
        f"A run switches between the modes in windows (periods in one mode) of {span} s. The study has {blocks} in "
        f"{plural(len(runs), 'run')}. A block contains a window of each mode. SIP retransmissions are {sent}."
    ]
    # The configuration sets the washout of a run without a utilisation or a tail (NaN).
    automatic = [
        (tail_s, float(run.attrs["washout_s"]))
        for run in runs
        if not math.isnan(float(run.attrs["utilisation"]))
        and not math.isnan(tail_s := float(run.attrs.get("call_tail_s", SHORT_TAIL_S)))
    ]
    if not automatic:
        lines.append("The configuration sets the lengths of windows and washouts.")
    else:
        tails, washouts = zip(*automatic, strict=True)
        ends = dict.fromkeys(grouped(1000 * end) for end in (min(tails), max(tails)))
        sentences = [
            f"The washout is the sum of two times: {' to '.join(ends)} ms, in which the calls of the previous window "
            f"end, and {RELAXATIONS} times the relaxation time of the queue M/M/1 at the load of the warm-up."
        ]
        if max(washouts) >= WASHOUT_MAX_S:
            sentences.append(
                f"If the sum is longer than {WASHOUT_MAX_S:g} s, the washout is {WASHOUT_MAX_S:g} s."
            )
        sentences.append(
            f"A window is {WINDOW_WASHOUTS} times as long as its washout, and at least {WINDOW_MIN_S:g} s."
        )
        lines.append(" ".join(sentences))
    return Words(tuple(lines))


def machine(loads: Sequence[ComparedLoad]) -> Words:
    """Return sentences on mode switches, invalid windows, CPU time stolen by the hypervisor, and machine speed."""
    switchings = [switching(run) for load in loads for run in load.runs]
    if not switchings:
        return Words(("No valid run compares modes.",))
    lines = []
    medians = [record.switch_median_us for record in switchings if record.switch_median_us >= 0]
    failed, total = (
        sum(record.failed for record in switchings),
        sum(record.windows for record in switchings),
    )
    if medians:
        longest = max(record.switch_max_us for record in switchings if record.switch_max_us >= 0)
        lines.append(
            f"Switching the mode of all {max(record.tasks for record in switchings)} processes of the proxy took "
            f"{number(float(np.median(medians)))} µs (median) and {number(longest)} µs at most. Of "
            f"{grouped(total)} switches, {failed} failed."
        )
        if longest > EXPECTED_US:
            lines.append(
                "The longest switch took more than the expected millisecond. A window begins at the end of its switch, "
                "so a long switch shortens the window, but the results contain no message of the switch itself."
            )
    stolen = sum(record.left_out.get(STOLEN, 0) for record in switchings)
    invalid = sum(sum(record.left_out.values()) for record in switchings) - stolen
    lines.append(
        f"Of {plural(total, 'window')}, {grouped(invalid)} {'is' if invalid == 1 else 'are'} invalid."
    )
    if stolen:
        lines.append(
            f"In {grouped(stolen)} of the valid windows, the hypervisor took more CPU time from the proxy than the "
            "limit allows. The comparisons correct for this time, and give these windows less weight."
        )
    lines.extend(_idle_instances([record for record in switchings if record.idle_instances]))
    moved = [
        record
        for record in switchings
        if abs(record.speed_after / record.speed_before - 1) > SPEED_MOVED
    ]
    if moved:
        lines.append(
            f"In {len(moved)} of {plural(len(switchings), 'run')}, the speed of the machine changed by more than "
            f"{100 * SPEED_MOVED:.0f}\u00a0% from before to after the run. The windows of a block are close together "
            "in time, so these windows are comparable. Results at different loads are not comparable."
        )
    return Words(tuple(lines))


def _idle_instances(switchings: Sequence[Switching]) -> Iterator[str]:
    """Yield sentences on the cost of instances without calls, if a run measured their CPU time."""
    if switchings:
        counts = sorted({record.idle_instances for record in switchings})
        shares = sorted(100 * record.idle_share for record in switchings)
        fewest = f"{counts[0]} to " if counts[1:] else ""
        used = " to ".join(dict.fromkeys(map(number, (shares[0], shares[-1]))))
        yield (
            f"After the washout of a window, the {fewest}{plural(counts[-1], 'instance')} without new calls used "
            f"{used}\u00a0% of the proxy's CPU time (mean over the valid windows of a run). The section Limits of "
            "docs/methodology/crossover.md states what an instance without calls costs in memory and caches."
        )


def table(loads: Sequence[ComparedLoad]) -> Folded:
    """Return a collapsed table with one row per run: windows (periods in one mode), mode switches and machine speed."""
    switchings = [(load, switching(run)) for load in loads for run in load.runs]
    failures = any(record.failed for _, record in switchings)
    every = {reason for _, record in switchings for reason in record.left_out}
    # Windows with stolen time are valid, so their column does not belong to the invalid windows.
    stolen = [reason for reason in every if reason == STOLEN]
    invalid = sorted(every - {STOLEN})
    reasons = [*stolen, *invalid]
    shown = Table(
        identity="table-switches",
        places=1,
        groups=(
            *(("", 2), ("warm-up", 2), ("", 4 + len(stolen)), ("invalid windows", len(invalid))),
            *(("switch (µs)", 4 + failures), ("steal (%)", 2), ("speed index", 3)),
        ),
        header=(
            *("load", "run", "busy (%)", "relaxation (ms)", "window (s)", "washout (ms)"),
            *(
                "whole blocks",
                "windows",
                *(REASONS.get(reason, LEFT_OUT[reason]) for reason in reasons),
            ),
            *("processes", "median", "longest", "latest"),
            *(["failed"] if failures else []),
            *("mean", "worst window", "before", "after", "change (%)"),
        ),
        rows=tuple(
            (load_among(load, loads), *_row(load, record, reasons, failures))
            for load, record in switchings
        ),
        none="no valid run compares modes",
        caption="Windows (periods in one mode), switches between modes and speed of the machine, for each run.",
        reading=" ".join(
            (
                *(
                    f"{REASONS[reason]}: {LEFT_OUT[reason]}."
                    for reason in reasons
                    if reason in REASONS
                ),
                'A switch changes the mode of all processes of the proxy. The column "latest" shows the largest '
                'delay of a switch after its planned time. The column "relaxation" shows the relaxation time of the '
                "queue M/M/1, computed from the utilisation in the warm-up. A block is whole if all its windows are "
                "valid. Steal is the share of CPU time that the hypervisor took from the SPS. Windows with a steal "
                "above the limit are valid, but have less weight. The speed index is the speed at which a fixed piece "
                "of work runs before and after the load.",
            )
        ),
        provenance=provenance(loads),
    )
    return Folded("Windows and switches of each run", (shown,))


def _row(
    load: ComparedLoad, record: Switching, reasons: Sequence[int], failures: bool
) -> list[str]:
    """Return the table cells of a run without the first cell, which contains the load.

    The cell with the number of failed switches exists only with `failures`.
    """
    several = len({run.attrs["mode"] for run in load.runs}) > 1
    moved = record.speed_after / record.speed_before - 1
    return [
        f"{', '.join(map(load.label, record.mode.split(',')))}, {record.rep}"
        if several
        else str(record.rep),
        _cell(100 * record.utilisation),
        _cell(1000 * record.relaxation_s),
        f"{record.window_s:.2g}",
        f"{1000 * record.washout_s:.0f}",
        f"{record.whole_blocks} of {record.blocks}",
        str(record.windows),
        *(str(record.left_out.get(reason, 0)) for reason in reasons),
        str(record.tasks),
        *map(_cell, (record.switch_median_us, record.switch_max_us, record.late_max_us)),
        *([str(record.failed)] if failures else []),
        *(_cell(100 * share) for share in (record.steal_mean, record.steal_max)),
        *map(_cell, (record.speed_before, record.speed_after)),
        NO_ENTRY if math.isnan(moved) else _signed(100 * moved, 1),
    ]


def _cell(value: float) -> str:
    return NO_ENTRY if math.isnan(value) else number(value)
