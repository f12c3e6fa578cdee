"""Whether the proxy scales with cores, by deployment and transport, and what stops it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from sipsched.analysis.run_table import Campaign, Configuration, campaigns_of
from sipsched.analysis.speedup import (
    FACTORS,
    REMEDIES,
    SHARED,
    Carried,
    Cost,
    Herd,
    Published,
    SpeedUp,
    carried,
    herds,
    load_published,
    shares_cpus,
    speed_ups,
)
from sipsched.analysis.speedup import costs as costs_of
from sipsched.analysis.statistics import PDR_LIMIT, Interval
from sipsched.pages.drawing import LIMIT, MARKERS, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.numbers import NO_ENTRY, rounded, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Table, Words
from sipsched.pages.tables import Heading
from sipsched.records.crossing import Crossing, read_crossing
from sipsched.records.speedups import Speedup, read_speedups
from sipsched.records.summary import open_summary
from sipsched.words import number, plural

TRANSPORTS = {"udp": "UDP", "tcp": "TCP"}
NOTHING = "Nothing was measured of it yet: no answer."
REPORT = "Zhou, Liang and Dai, IBM Research Report RC24501, 2008"


@dataclass(frozen=True)
class Found:
    """What the page shows.

    Attributes
    ----------
    campaign
        The testbed with the most places; None if none was measured.
    """

    campaign: Campaign | None
    carried: tuple[Carried, ...]
    speed_ups: tuple[SpeedUp, ...]
    costs: Mapping[Configuration, Cost]
    herds: tuple[Herd, ...]
    published: tuple[Published, ...]
    simulated: tuple[Speedup, ...]
    limit: float

    @property
    def provenance(self) -> str:
        """Say where the numbers come from."""
        return self.campaign.provenance if self.campaign else "Nothing measured"

    def over(self, transport: str) -> list[Carried]:
        """Give the places over a transport."""
        return [each for each in self.carried if each.place.transport == transport]

    def gained(self, each: Carried) -> SpeedUp | None:
        """Give the speed-up of a place."""
        return next((one for one in self.speed_ups if one.more is each), None)


def find(
    summaries: Iterable[Path],
    crossings: Iterable[Path],
    published: Path,
    simulated: Path,
    limit: float = PDR_LIMIT,
) -> Found:
    """Read everything that the page shows.

    Parameters
    ----------
    summaries, crossings
        Of studies on any testbeds; those that are not there are left out.
    published, simulated
        Tables of speed-ups; of the simulator there may be none.
    limit
        Share at which capacity ends.
    """
    studies = [
        (path.parent.parent.name, open_summary(path)) for path in summaries if path.is_file()
    ]
    known = [read_crossing(path) for path in crossings if path.is_file()]
    predicted = read_speedups(simulated) if simulated.is_file() else ()
    return found_of(campaigns_of(studies), known, load_published(published), predicted, limit)


def found_of(
    campaigns: Sequence[Campaign],
    crossings: Sequence[Crossing],
    published: Sequence[Published],
    simulated: Sequence[Speedup],
    limit: float = PDR_LIMIT,
) -> Found:
    """Do the same with what was read."""
    by_campaign = [(each, carried(each, crossings, limit)) for each in campaigns]
    campaign, places = max(by_campaign, key=lambda pair: len(pair[1]), default=(None, []))
    return Found(
        campaign=campaign,
        carried=tuple(places),
        speed_ups=tuple(speed_ups(places, campaign)) if campaign else (),
        costs=costs_of(campaign.single, limit) if campaign else {},
        herds=tuple(herds(campaign.single)) if campaign else (),
        published=tuple(published),
        simulated=tuple(simulated),
        limit=limit,
    )


def heading(found: Found) -> Heading:
    """Say what the numbers are worth, and where they come from."""
    campaign = found.campaign
    if campaign is None:
        return Heading("Nothing was measured.", "No testbed.", "")
    return Heading(
        fidelity=campaign.fidelity,
        testbed=f"Testbed {campaign.testbed}, kind {campaign.kind}, kernel {campaign.kernels}.",
        description=campaign.description,
    )


def answer(found: Found) -> Answer:
    """Say which deployment to choose, at how many cores, over which transport."""
    lines = [
        line
        for transport, name in TRANSPORTS.items()
        if (line := _choice(found, found.over(transport), name))
    ]
    lines = lines or [NOTHING]
    cores = {each.place.cores for each in found.carried}
    if len(cores) == 1:
        lines.append(
            f"Only runs on {plural(min(cores), 'core')} were measured: how it scales is not told."
        )
    return Answer(" ".join(lines))


def _choice(found: Found, places: Sequence[Carried], transport: str) -> str:
    """Name the deployment that carries the most at each number of cores."""
    parts = []
    for cores in sorted({each.place.cores for each in places}):
        among = [
            each
            for each in places
            if each.place.cores == cores and np.isfinite(each.capacity.estimate)
        ]
        if among:
            parts.append(f"on {plural(cores, 'core')} {_best(found, among)}")
    return f"Over {transport}, {'; '.join(parts)}." if parts else ""


def _best(found: Found, among: Sequence[Carried]) -> str:
    best = max(among, key=lambda each: each.capacity.estimate)
    plain = next((each for each in among if each.place.deployment == SHARED), None)
    if plain is not None and best is not plain and not _apart(best.capacity, plain.capacity):
        best, reason = plain, " (none carries more beyond doubt, and it is the simplest)"
    elif plain is None or best is plain:
        reason = "" if len(among) > 1 else " (no other was measured there)"
    else:
        reason = f", beside {_cps(plain.capacity)} with {plain.place.sut}"
    text = f"choose {best.place.sut}: it carries {_cps(best.capacity)}"
    gained = found.gained(best)
    if gained is not None:
        text += f", {_times(gained.measured)} what it does on one core"
    return f"{text}{reason}"


def _apart(one: Interval, other: Interval) -> bool:
    """Whether the intervals do not meet."""
    return one.known and other.known and one.low > other.high


def _cps(capacity: Interval) -> str:
    return with_unit(capacity, "cps")


def _times(speedup: Interval) -> str:
    if np.isnan(speedup.estimate):
        return "an unknown part of"
    estimate, low, high = rounded(speedup)
    return f"{estimate} times ({low} to {high})" if low and high else f"{estimate} times"


def stops(found: Found) -> Words:
    """Say what grows with the second core and beyond, a line a SUT that was measured on both."""
    lines = [_stop(each) for each in found.speed_ups]
    if not lines and found.carried:
        lines = ["No SUT was measured on one core and on more: what stops it is not told."]
    return Words(tuple(lines or [NOTHING]))


def _stop(each: SpeedUp) -> str:
    one, more = each.one.cost, each.more.cost
    name, cores = each.more.place.sut, plural(each.cores, "core")
    text = f"{name}: {_times(each.measured)} on {cores}"
    if np.isfinite(each.room) and each.room < each.cores:
        text += f", of which the generators left it {_about(each.room)}"
    if one is None or more is None:
        return f"{text}; no run kept the limit, so what a message cost is not known."
    text += (
        f". A message costs {_about(more.cpu_us)} µs of CPU, {_about(one.cpu_us)} µs on one core"
    )
    if np.isfinite(each.bound):
        text += f": by that alone it would be {_about(each.bound)} times"
    grown = []
    for key, (words, _) in FACTORS.items():
        before, after = one.factors[key], more.factors[key]
        if np.isfinite((before, after)).all() and after > before and after >= 0.005:
            grown.append((after - before, f"{words} {_about(before)} → {_about(after)}"))
    if grown:
        text += ". What grows, a message: " + ", ".join(words for _, words in grown)
    elif np.isfinite([more.factors[key] for key in FACTORS]).any():
        text += ". None of what is counted grows"
    return f"{text}."


def capacities(found: Found) -> Table:
    """List what each deployment carries, by cores, and its speed-up beside its bound."""
    rows: list[tuple[Cell, ...]] = []
    for each in found.carried:
        gained = found.gained(each)
        good, runs = each.confirmed
        rows.append(
            (
                TRANSPORTS.get(each.place.transport, each.place.transport),
                each.place.sut,
                str(each.place.threads),
                str(each.place.cores),
                told(each.capacity, "cps", each.capacity.n),
                told(each.by_calls, "cps", each.capacity.n),
                f"{good} of {plural(runs, 'run')}" if runs else "no run",
                told(gained.measured, n=gained.measured.n) if gained else NO_ENTRY,
                _plain(gained.bound) if gained else NO_ENTRY,
                _plain(gained.room) if gained else NO_ENTRY,
            )
        )
    share = f"{100 * found.limit:g} %"
    return Table(
        identity="table-scaling",
        places=1,
        header=(
            *("transport", "SUT", "workers", "cores", "capacity (cps)", "by calls (cps)"),
            *("confirmed", "speed-up", "bound", "CPUs it had"),
        ),
        rows=tuple(rows),
        none="no search was made",
        caption=f"Capacity: the load at which {share} is lost, over UDP of the datagrams that reached the SPS, over "
        f"TCP of the calls, which failed or took longer to set up than is allowed; by calls: that measure over both. "
        "From the trials of a search, with its 95 % interval, which does not hold how the machine's own speed moved "
        "until the next search; runs that do not confirm a bracket show it. Confirmed: runs on the bracket that fell "
        "on the side that the search says. Bound: cores × CPU time of a message on one core / CPU time here. CPUs "
        "it had: cores, less what the generators need of one that they share, as a run on one core shows it.",
        provenance=found.provenance,
    )


def costs(found: Found) -> Table:
    """List what a message costs, and the factors, by deployment, workers and cores."""
    rows = [
        (
            *(key.sut, str(key.threads), str(key.cores), str(cost.cps)),
            *map(_plain, (cost.cpu_us, cost.user_us, cost.system_us)),
            *(_plain(cost.factors[name]) for name in FACTORS),
        )
        for key, cost in found.costs.items()
    ]
    return Table(
        identity="table-factors",
        header=(
            *("SUT", "workers", "cores", "cps", "CPU (µs)", "in the program", "in the kernel"),
            *(words for words, _ in FACTORS.values()),
        ),
        rows=tuple(rows),
        none="no run kept the limit",
        caption="What a message costs at the highest load measured that kept the limit, of all processes of the proxy: "
        "CPU time by the scheduler's clock, its parts by ticks, and the three factors. Waits for the proxy's own locks "
        "are futex and sched_yield; what it spins before is CPU time in the program. Of the kernel's native spinlocks "
        "the first waiter is not seen."
        + (
            " The probe timed messages in some of the runs, which costs CPU time, too."
            if any(cost.probed for cost in found.costs.values())
            else ""
        ),
        provenance=found.provenance,
    )


def _about(value: float) -> str:
    """Write what has no interval, of one run or few, with two digits."""
    return number(float(f"{value:.2g}"))


def _plain(value: float) -> str:
    return number(value) if np.isfinite(value) else "not known"


def curves(found: Found) -> Figure:
    """Draw the speed-up over cores by deployment, with the bound that the cost of a message sets."""
    names = [name for name in TRANSPORTS if found.over(name)] or ["udp"]

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(1, len(names), 2.8, shared=("", "all"))
            for axis, name in zip(grid[0], names, strict=True):
                _draw_speed_ups(axis, [s for s in found.speed_ups if s.one.place.transport == name])
                axis.set_title(f"over {TRANSPORTS[name]}", loc="left")
            grid[0][0].set_ylabel("C(c) / C(1)")
            legend(canvas, grid, columns=3)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(
        f"{each.more.place.sut}, {plural(each.cores, 'core')}: {_times(each.measured)}."
        for each in found.speed_ups
    ) or ("No SUT was measured on one core and on more.",)
    caption = (
        "Speed-up over cores: capacity over that of the same SUT on one core, with its 95 % interval. Hollow: the "
        "bound by the CPU time of a message. Dashed: as many times as there are cores."
    )
    return Figure(
        identity="figure-speed-up",
        svg=svg,
        narrow=narrow,
        alt=f"Speed-up by cores. {caption} {' '.join(seen)}",
        caption=caption,
        seen=(),
        provenance=found.provenance,
    )


def _draw_speed_ups(axis: Axes, among: Sequence[SpeedUp]) -> None:
    axis.set_xlabel("cores")
    if not among:
        _nothing(axis)
        return
    most = max(each.cores for each in among)
    axis.plot([1, most], [1, most], color=LIMIT, linestyle="--", linewidth=1)
    kinds = list(dict.fromkeys(each.one.kind for each in among))
    for i, kind in enumerate(kinds):
        of_kind = [each for each in among if each.one.kind == kind]
        shift = 0.02 * (most - 1) * (i - (len(kinds) - 1) / 2)
        color, marker = SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]
        cores = np.array([1, *(each.cores for each in of_kind)]) + shift
        middle = np.array([1.0, *(each.measured.estimate for each in of_kind)])
        low = np.array([1.0, *(each.measured.low for each in of_kind)])
        high = np.array([1.0, *(each.measured.high for each in of_kind)])
        ends = np.nan_to_num([middle - low, high - middle])
        axis.errorbar(
            cores, middle, yerr=ends, color=color, marker=marker, capsize=2.5, label=kind.sut
        )
        axis.plot(
            cores[1:],
            [each.bound for each in of_kind],
            linestyle="none",
            marker=marker,
            color=color,
            markerfacecolor="none",
        )
    axis.xaxis.set_major_locator(FixedLocator(sorted({1, *(each.cores for each in among)})))
    axis.set_ylim(bottom=0)


def _nothing(axis: Axes) -> None:
    axis.text(0.5, 0.5, "nothing to draw", transform=axis.transAxes, ha="center", va="center")
    axis.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)


def herd(found: Found) -> Figure:
    """Draw the wake-ups a message against workers."""

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(1, 1, 2.6)
            axis = grid[0][0]
            for i, each in enumerate(found.herds):
                axis.plot(
                    list(each.by_threads),
                    list(each.by_threads.values()),
                    color=SERIES[i % len(SERIES)],
                    marker=MARKERS[i % len(MARKERS)],
                    label=f"{each.sut}, {each.cps} cps",
                )
            axis.set_xlabel("workers")
            axis.set_ylabel("wake-ups a message")
            if found.herds:
                workers = sorted({threads for each in found.herds for threads in each.by_threads})
                axis.xaxis.set_major_locator(FixedLocator(workers))
                axis.set_ylim(bottom=0)
            else:
                _nothing(axis)
            legend(canvas, grid, columns=2)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(map(_herd_words, found.herds)) or (
        "Wake-ups were not counted at two numbers of workers.",
    )
    caption = (
        "Wake-ups of the proxy's tasks a message against workers that share one UDP socket, on one core: voluntary "
        "context switches, of timers and other processes of the proxy, too."
    )
    return Figure(
        identity="figure-herd",
        svg=svg,
        narrow=narrow,
        alt=f"Wake-ups a message against workers. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=found.provenance,
    )


def _herd_words(each: Herd) -> str:
    fewest, most = min(each.by_threads), max(each.by_threads)
    first, last = each.by_threads[fewest], each.by_threads[most]
    text = (
        f"{each.sut}: {_about(first)} wake-ups a message with {plural(fewest, 'worker')}, "
        f"{_about(last)} with {most}"
    )
    if last > 1.5:
        return f"{text}: a message wakes more workers than it needs."
    return f"{text}: a message wakes one worker or none."


def published(found: Found) -> Table:
    """Set the report's gain by its remedies beside the gain measured here."""
    rows: list[tuple[str, ...]] = [
        (
            f"{each.platform}, {each.operating_system} (published)",
            TRANSPORTS[each.transport],
            "not told",
            number(each.before),
            number(each.after),
            number(each.gain),
        )
        for each in found.published
    ]
    for before, after in _gains(found):
        first, second = before.measured.estimate, after.measured.estimate
        rows.append(
            (
                f"{before.one.place.sut} and {after.one.place.sut} (measured here)",
                TRANSPORTS[before.one.place.transport],
                str(before.cores),
                *map(number, (first, second, second / first)),
            )
        )
    return Table(
        identity="table-published-speed-ups",
        header=("", "transport", "cores", "before", "after", "after / before"),
        rows=tuple(rows),
        none="no speed-up is known",
        caption=f"Speed-ups before and after remedies: those that the abstract of {REPORT}, prints, on other hardware, "
        "another proxy and more cores, and those measured here. What can be compared is whether the remedies help, and "
        "over which transport they help more.",
        provenance=f"Published rows: not measured here. Measured rows: {found.provenance}",
    )


def _gains(found: Found) -> Iterator[tuple[SpeedUp, SpeedUp]]:
    """Give the speed-ups without and with the report's remedy, by transport and cores."""
    for transport, deployments in REMEDIES.items():
        among = [each for each in found.speed_ups if each.one.place.transport == transport]
        for cores in sorted({each.cores for each in among}):
            there = [each for each in among if each.cores == cores]
            first = {s.one.place.deployment: s for s in reversed(there)}
            after = next((first[name] for name in deployments if name in first), None)
            if SHARED in first and after is not None:
                yield first[SHARED], after


def compared(found: Found) -> Words:
    """Say whether the remedies help here as the report says."""
    lines = []
    for transport, name in TRANSPORTS.items():
        gains = [each.gain for each in found.published if each.transport == transport]
        if gains:
            lines.append(
                f"Published over {name}: the remedies multiply the speed-up by {number(min(gains))} to "
                f"{number(max(gains))}."
            )
    here = list(_gains(found))
    for before, after in here:
        lines.append(
            f"Measured here over {TRANSPORTS[before.one.place.transport]}, {plural(before.cores, 'core')}: "
            f"{_times(before.measured)} what one core carries with {before.one.place.sut}, "
            f"{_times(after.measured)} with {after.one.place.sut}."
        )
    if not here:
        lines.append("Here no remedy was measured beside its transport's deployment without one.")
    return Words(tuple(lines))


def simulated(found: Found) -> Table:
    """List what the simulator says of more cores than there are here."""
    cores = sorted({row.cores for row in found.simulated})
    kinds = dict.fromkeys((row.transport, row.deployment, row.model) for row in found.simulated)
    rows = []
    for kind in kinds:
        by_cores = {
            row.cores: row
            for row in found.simulated
            if (row.transport, row.deployment, row.model) == kind
        }
        cells = [_plain(by_cores[each].speedup) if each in by_cores else "–" for each in cores]
        rows.append((TRANSPORTS.get(kind[0], kind[0]), *kind[1:], *cells))
    return Table(
        identity="table-simulated-speed-ups",
        groups=(("", 3), ("C(c) / C(1), simulated, on so many cores", len(cores))) if cores else (),
        header=("transport", "deployment", "model", *map(str, cores)),
        rows=tuple(rows),
        none="nothing was simulated",
        caption="Speed-ups by simulation, not measured: a model of the proxy under the kernel's scheduler, fitted to "
        "one core. Each is over the same deployment on one core, with the number of workers that carries most.",
        provenance="Simulated; nothing measured",
    )


def simulated_answer(found: Found) -> Words:
    """Say which deployment carries most at the most cores, by the simulator and by model."""
    lines = []
    for transport, name in TRANSPORTS.items():
        of_transport = [row for row in found.simulated if row.transport == transport]
        for receiving in sorted({row.receive_cpus > 1 for row in of_transport}):
            among = [row for row in of_transport if (row.receive_cpus > 1) == receiving]
            most = max(row.cores for row in among)
            known = [r for r in among if r.cores == most and np.isfinite(r.capacity_cps)]
            if not known:
                continue
            best = max(known, key=lambda row: row.capacity_cps)
            lines.append(
                f"Simulated, over {name}, {'each core receives' if receiving else 'one CPU receives'}: on "
                f"{plural(most, 'core')} {best.deployment} carries the most, {number(best.capacity_cps)} cps, "
                f"{number(best.speedup)} times what it does on one core ({best.model})."
            )
    return Words(tuple(lines or ["Nothing was simulated."]))


def _beside(gained: SpeedUp) -> str:
    more = gained.more.cost
    if more is None or not np.isfinite(more.generator_us):
        return ""
    return f", {_about(more.generator_us)} with the proxy on their CPU at {more.cps} cps"


def sharing(found: Found) -> Words:
    """Say how a CPU is shared with the generators, and what that costs, by the runs on one core."""
    if found.campaign is None or not found.carried:
        return Words((NOTHING,))
    most = max(each.place.cores for each in found.carried)
    if not shares_cpus(found.campaign, most):
        return Words(("The proxy had its CPUs to itself, on every number of cores measured.",))
    lines = [
        f"With {plural(most, 'core')} the proxy shares a CPU with the generators, which run first there (SCHED_FIFO)."
    ]
    for each in found.speed_ups:
        control = each.one.cost
        if control is None:
            continue
        if not np.isfinite(each.room):
            lines.append(
                f"The CPU time of the generators beside {each.one.place.sut} is not in the records: what that costs is "
                "not known."
            )
            continue
        lines.append(
            f"Control, {each.one.place.sut} on one core at {control.cps} cps: client and server take "
            f"{_about(control.generator_us)} µs of CPU time for a call{_beside(each)}. At what it carries on "
            f"{plural(each.cores, 'core')} they leave {_about(each.room)} of them."
        )
    if len(lines) == 1:
        lines.append("No control was measured: what that costs is not known.")
    return Words(tuple(lines))
