"""The page about effects of the papers' settings, measured in virtual time, beside the simulator's predictions.

In virtual time, the clock of a QEMU guest counts executed instructions. The predictions were recorded before the runs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sipsched.analysis.advice import ComparedLoad
from sipsched.analysis.guest_effects import USUAL_QUANTUM_US, GuestEffect
from sipsched.pages.crossover.effects import spread_ticks
from sipsched.pages.crossover.wording import identity, provenance
from sipsched.pages.drawing import INK
from sipsched.pages.numbers import NO_ENTRY, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Heading, Several, Table, Words
from sipsched.pages.plots import draw_line, look, panels
from sipsched.words import plural

TICKS_APART = 0.12
"""Smallest distance of two ticks, as a share of the x axis. The labels then do not touch on a phone."""
SERIES = ("measured", "same mode (A/A)", "simulated before")
SHIFTS = (-0.22, 0.0, 0.22)


@dataclass(frozen=True)
class Panel:
    """The effects of one setting on one SUT and number of cores, against a reference mode. A panel of the figure."""

    setting: str
    reference: str
    where: str
    effects: tuple[GuestEffect, ...]

    @property
    def title(self) -> str:
        """The name of the panel: the setting, the SUT, the number of cores and the program beside the proxy."""
        return f"{self.setting}, {self.where}"


def panels_of(effects: Sequence[GuestEffect]) -> list[Panel]:
    """Group the effects into panels by setting, reference mode, SUT, number of cores and competing program."""
    groups: dict[tuple[str, str, str], list[GuestEffect]] = {}
    for effect in effects:
        reference = effect.place.reference
        where = f"{effect.place.sut}, {plural(effect.place.cores, 'core')}, {_beside(effect)}"
        setting = effect.mode.removeprefix(f"{reference}+")
        groups.setdefault((setting, reference, where), []).append(effect)
    return [Panel(*names, tuple(members)) for names, members in groups.items()]


def _by_setting(effects: Sequence[GuestEffect]) -> dict[tuple[str, str], list[GuestEffect]]:
    """Group the effects by setting and reference mode."""
    settings: dict[tuple[str, str], list[GuestEffect]] = {}
    for panel in panels_of(effects):
        settings.setdefault((panel.setting, panel.reference), []).extend(panel.effects)
    return settings


def _beside(effect: GuestEffect) -> str:
    """Return which program ran beside the proxy as text."""
    if effect.shares_cores:
        return f"beside the task {effect.competitor}"
    if effect.competitor:
        return f"task {effect.competitor} elsewhere"
    return "without other programs"


def _row(effect: GuestEffect) -> str:
    """Return the name of a row in the figure: the kernel, the number of workers, and an unusual step of the clock."""
    step = f", {effect.quantum_us:g} µs" if _unusual_step(effect) else ""
    return f"{effect.kernel}, {plural(effect.place.threads, 'worker')}{step}"


def _unusual_step(effect: GuestEffect) -> bool:
    return effect.quantum_us != USUAL_QUANTUM_US


def answer(effects: Sequence[GuestEffect]) -> Answer:
    """Return sentences on the condition under which each setting changes the mean K_rcv, and by how much."""
    measured = [effect for effect in effects if effect.measured.known]
    if not measured:
        return Answer("There is no answer yet, because no valid run compares these modes.")
    lines = [
        line
        for names, members in _by_setting(measured).items()
        for line in _of_setting(" instead of ".join(names), members)
    ]
    by_chance = 0.05 * len(measured)
    lines.append(
        f"By chance alone, about {by_chance:.1f} of {plural(len(measured), 'comparison')} would show a change."
    )
    return Answer(" ".join(lines))


def _condition(effect: GuestEffect) -> str:
    if not effect.shares_cores:
        return "no other program uses the proxy's cores"
    if effect.place.threads <= effect.place.cores:
        return "another program uses the proxy's cores, and no core has more than one worker"
    return "another program uses the proxy's cores, and there are more workers than cores"


def _of_setting(setting: str, effects: Sequence[GuestEffect]) -> Iterator[str]:
    """Yield a sentence that names the condition with the most frequent and largest changes, and one per condition."""
    groups: dict[str, list[GuestEffect]] = {}
    for effect in sorted(effects, key=_condition):
        groups.setdefault(_condition(effect), []).append(effect)
    frequent, largest = (
        max(groups, key=lambda name: measure(groups[name]))
        for measure in (_share_of_outstanding, _largest_logarithm)
    )
    shares = sorted(map(_share_of_outstanding, groups.values()))
    if len(groups) > 1:
        clear = frequent == largest and shares[-1] > shares[-2]
        yield (
            f"The setting {setting} matters most if {frequent}."
            if clear
            else f"No condition was found under which the setting {setting} matters most."
        )
    for condition, group in groups.items():
        outstanding = [effect.measured.estimate for effect in group if effect.stands_out]
        ends = dict.fromkeys(f"{end:+.0f}\u00a0%".replace("-", "−") for end in sorted(outstanding))
        sizes = f" ({' to '.join([*ends][:: max(1, len(ends) - 1)])})" if ends else ""
        yield (
            f"If {condition}, the mean wait K_rcv changes in {len(outstanding)} of "
            f"{plural(len(group), 'comparison')} by more than chance explains{sizes}."
        )


def _share_of_outstanding(effects: Sequence[GuestEffect]) -> float:
    return sum(effect.stands_out for effect in effects) / len(effects)


def _largest_logarithm(effects: Sequence[GuestEffect]) -> float:
    """Return the size of the largest change that chance does not explain, as a logarithm of a ratio."""
    return max(
        (abs(math.log1p(e.measured.estimate / 100)) for e in effects if e.stands_out), default=0.0
    )


def words(effects: Sequence[GuestEffect]) -> Words:
    """Return sentences that compare measured effects with predictions and with A/A comparisons (equal modes)."""
    measured = [effect for effect in effects if effect.measured.known]
    inside = sum(effect.contains_prediction for effect in measured)
    # Comparisons of the same system at the same load share one A/A comparison.
    shams = {(effect.place, effect.cps): effect.sham for effect in measured}
    differ = sum(sham.excludes_zero for sham in shams.values())
    lines = [
        f"{len(measured)} of {plural(len(effects), 'predicted comparison')} were measured.",
        f"The measured interval contains the simulator's prediction in {inside} of "
        f"{plural(len(measured), 'comparison')}.",
        f"In {differ} of {plural(len(shams), 'A/A comparison')}, two windows with the same mode differ "
        f"significantly. By chance alone, about {0.05 * len(shams):.1f} such comparisons are expected.",
    ]
    return Words(tuple(lines))


def figures(effects: Sequence[GuestEffect], loads: Sequence[ComparedLoad]) -> Several:
    """Return a figure per setting: each measured effect, its A/A comparison (equal modes) and its prediction.

    Sentences about all figures follow the last figure.
    """
    # The figures have the same x axis, so that a reader can compare the figures.
    ends = _reach(effects)
    parts = [
        _figure(*names, members, ends, loads) for names, members in _by_setting(effects).items()
    ]
    return Several((*parts, words(effects)))


def _figure(
    setting: str,
    reference: str,
    effects: Sequence[GuestEffect],
    ends: tuple[float, float],
    loads: Sequence[ComparedLoad],
) -> Figure:
    groups = panels_of(effects)
    low, high = ends

    def draw(axis: Axes, row: int, _: int) -> None:
        _draw(axis, groups[row].effects)
        margin = 0.06 * (high - low)
        axis.set_xlim(low - margin, high + margin)
        ticks = spread_ticks(low - margin, high + margin, TICKS_APART)
        axis.xaxis.set_major_locator(FixedLocator([math.log1p(t / 100) for t in ticks]))
        axis.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{round(100 * math.expm1(value))}".replace("-", "−"))
        )
        axis.xaxis.set_minor_locator(NullLocator())
        # A stack of panels is taller than a screen, so each panel has labels.
        axis.tick_params(bottom=True, labelbottom=True)

    return Figure(
        identity=identity("figure-virtual-effects", setting),
        draw=panels(
            # A title in one line would be too broad for a phone.
            [",\n".join(group.where.rsplit(", ", 1)) for group in groups],
            [""],
            draw,
            "change of K_rcv (%), log scale",
            shared=("all", ""),
            height_in=0.6 + 0.26 * max(len(group.effects) for group in groups),
            beside=False,
        ),
        caption=f"The change of the mean waiting time K_rcv with {setting}, compared with {reference}, in virtual "
        "time.",
        reading="The name of each row contains the kernel and the number of workers. The virtual clock advances in "
        f"steps of {USUAL_QUANTUM_US:g} µs. If a run used steps of another length, the name of the row ends with "
        "this length. The bar of a measured effect is its 95 % confidence interval. The bar of a simulated effect "
        "ends at the smallest and the largest value over six simulations with different random numbers. The A/A "
        "comparison compares two windows with the same mode, so its true value is 0. The axis is logarithmic: a wait "
        "that is twice as long and a wait that is half as long lie at the same distance from 0.",
        provenance=provenance(loads),
    )


def _reach(effects: Sequence[GuestEffect]) -> tuple[float, float]:
    """Return the left and right end of the x axis, as logarithms of ratios."""
    ends = [
        math.log1p(end / 100)
        for effect in effects
        for interval in (effect.measured, effect.sham, effect.predicted)
        for end in (interval.low, interval.high)
        if math.isfinite(end)
    ]
    return max(min(ends, default=0.0), math.log(0.1)) - 0.02, min(
        max(ends, default=0.0), math.log(4)
    ) + 0.02


def _draw(axis: Axes, effects: Sequence[GuestEffect]) -> None:
    axis.axvline(0, color=INK, linewidth=0.8)
    for i, (name, shift) in enumerate(zip(SERIES, SHIFTS, strict=True)):
        style = look(i)
        intervals = [(e.measured, e.sham, e.predicted)[i] for e in effects]
        rows = np.arange(len(effects)) + shift
        titles = [
            f"{_row(e)}, {name}: {with_unit(v, '%', '+')}"
            for e, v in zip(effects, intervals, strict=True)
        ]
        x = _logarithms([value.estimate for value in intervals])
        draw_line(axis, x, rows, style, titles, label=name, linestyle="", markersize=4)
        axis.hlines(
            rows,
            _logarithms([value.low for value in intervals]),
            _logarithms([value.high for value in intervals]),
            color=style.color,
            linewidth=1.2,
        )
    # A short name leaves more room for the panel on a phone.
    names = [_row(effect).replace("steps of ", "") for effect in effects]
    axis.set_yticks(range(len(effects)), names)
    axis.set_ylim(len(effects) - 0.5, -0.5)
    axis.grid(False, axis="y")
    axis.tick_params(left=False)


def _logarithms(percents: Sequence[float]) -> list[float]:
    return [math.log1p(value / 100) if value > -100 else math.nan for value in percents]


def table(effects: Sequence[GuestEffect], loads: Sequence[ComparedLoad]) -> Table:
    """Return a table of all measured effects, with their predictions and A/A comparisons (equal modes)."""
    rows: list[tuple[Cell, ...]] = [
        (
            f"{panel.title}, against {panel.reference}",
            _row(effect),
            str(effect.cps),
            told(effect.measured, "%", plus="+"),
            _result(effect),
            told(effect.predicted, "%", plus="+"),
            told(effect.sham, "%", plus="+"),
            str(effect.measured.n),
        )
        for panel in panels_of(effects)
        for effect in panel.effects
    ]
    return Table(
        identity="table-virtual-effects",
        header=(
            *("setting", "kernel, workers", "calls per second", "measured (%)", "result"),
            *("simulated before (%)", "A/A (%)", "blocks"),
        ),
        rows=tuple(rows),
        caption="The change of the mean waiting time K_rcv with each setting: measured, and predicted by simulation "
        "before the measurement.",
        reading='In the column "result", a wait is "shorter" or "longer" if the 95 % interval of the measured change '
        "excludes 0.",
        none="No effect was predicted.",
        places=1,
        provenance=provenance(loads),
    )


def _result(effect: GuestEffect) -> str:
    """Return whether chance explains a measured effect. Rounding can hide whether an interval contains 0."""
    if not effect.measured.known:
        return NO_ENTRY
    if not effect.stands_out:
        return "within chance"
    return "shorter" if effect.measured.estimate < 0 else "longer"


def heading(loads: Sequence[ComparedLoad]) -> Heading:
    """Return the heading of the page: the origin of the measured numbers, and the testbeds' kernels."""
    kernels = {load.place.testbed: load.runs[0].attrs["kernel"] for load in loads}
    return Heading(
        fidelity=provenance(loads) or "Nothing was measured here",
        testbed="The simulator's predictions are not measurements. The predictions were recorded before the runs.",
        description=" ".join(f"{name}: kernel {kernel}." for name, kernel in kernels.items()),
    )
