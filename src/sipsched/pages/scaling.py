"""The page about the proxy's speed-up with the number of cores, and about the costs that limit the speed-up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from sipsched.analysis.capacity_ratios import PAIRED, CapacityRatio, ComparedSystem, ratios
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.intervals import Estimates, Interval
from sipsched.analysis.run_table import IN_VIRTUAL_TIME, Campaign, Configuration, campaigns_of
from sipsched.analysis.speedup import (
    AT_CAPACITY,
    FACTORS,
    REMEDIES,
    SHARED,
    Cost,
    Herd,
    MeasuredSetting,
    Published,
    SpeedUp,
    carried,
    herds,
    load_published,
    shares_cpus,
    speed_ups,
)
from sipsched.analysis.speedup import costs as costs_of
from sipsched.pages.capacities import HOW
from sipsched.pages.crossings import probe_modes
from sipsched.pages.drawing import INK, LIMIT
from sipsched.pages.numbers import NO_ENTRY, about, rounded, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Heading, Table, Words
from sipsched.pages.plots import (
    Curve,
    Look,
    draw_curve,
    draw_line,
    from_zero,
    look,
    not_measured,
    panels,
)
from sipsched.pages.tables import competitors
from sipsched.plan.modes import DEFAULT
from sipsched.records.crossing import SearchRecord, read_crossing
from sipsched.records.speedups import Speedup, read_speedups
from sipsched.records.summary_files import open_summary, split_summary_path
from sipsched.records.system_capacity import SystemCapacity
from sipsched.words import binary_size, grouped, number, plural

TRANSPORTS = {"udp": "UDP", "tcp": "TCP"}
NOTHING = "There is no answer yet, because no run was measured."
SIMULATED = "Predicted by simulation, not measured."
RECEIVING = ("one CPU receives", "each core receives")
"""The two simulated ways to receive packets. The names of simulated models contain these texts."""
LOCK = "assumed lock share"
REPORT = "Zhou, Liang and Dai, IBM Research Report RC24501, 2008"


@dataclass(frozen=True)
class ScalingData:
    """The data of the page about the speed-up with the number of cores.

    Attributes
    ----------
    campaign
        The measurements of one testbed: the testbed with the most systems for which a search measured the capacity.
        None if nothing was measured.
    """

    campaign: Campaign | None
    carried: tuple[MeasuredSetting, ...]
    speed_ups: tuple[SpeedUp, ...]
    costs: Mapping[Configuration, Cost]
    herds: tuple[Herd, ...]
    published: tuple[Published, ...]
    simulated: tuple[Speedup, ...]
    limit: float
    ratios: tuple[CapacityRatio, ...] = ()

    @property
    def provenance(self) -> str:
        """The origin of the measured numbers (such as the testbed) as text, for the page."""
        if self.campaign:
            return self.campaign.provenance
        searched = (each.search.testbed for each in self.ratios)
        return (
            "; ".join(dict.fromkeys(bed.fidelity for bed in searched if bed)) or "Nothing measured"
        )

    def over(self, transport: str) -> list[MeasuredSetting]:
        """Return the measured proxies, with their numbers of cores, that use a transport (UDP or TCP)."""
        return [setting for setting in self.carried if setting.place.transport == transport]

    def gained(self, setting: MeasuredSetting) -> SpeedUp | None:
        """Return the speed-up of a proxy on several cores over one core. None if the speed-up is unknown."""
        return next((one for one in self.speed_ups if one.more is setting), None)


def find(
    summaries: Iterable[Path],
    crossings: Iterable[Path],
    published: Path,
    simulated: Path,
    limit: float = PDR_LIMIT,
    capacities: Sequence[SystemCapacity] = (),
) -> ScalingData:
    """Read the measured, published and simulated speed-ups that the page shows.

    Parameters
    ----------
    summaries, crossings
        Files of studies on any testbeds. Missing files are skipped.
    published, simulated
        Tables of speed-ups. The simulated table may be missing.
    """
    studies = [
        (split_summary_path(path).study, open_summary(path)) for path in summaries if path.is_file()
    ]
    known = [read_crossing(path) for path in crossings if path.is_file()]
    predicted = read_speedups(simulated) if simulated.is_file() else ()
    campaigns = campaigns_of(studies, capacities)
    return found_of(campaigns, known, load_published(published), predicted, limit)


def found_of(
    campaigns: Sequence[Campaign],
    crossings: Sequence[SearchRecord],
    published: Sequence[Published],
    simulated: Sequence[Speedup],
    limit: float = PDR_LIMIT,
) -> ScalingData:
    """Return the data of the page, made from campaigns, searches and tables that were already read."""
    single = [search for search in crossings if not search.is_paired]
    by_campaign = [(campaign, carried(campaign, single, limit)) for campaign in campaigns]
    campaign, places = max(by_campaign, key=lambda pair: len(pair[1]), default=(None, []))
    paired = [each for search in crossings if search.is_paired for each in ratios(search)]
    bed = campaign.testbed if campaign else next((one.search.point.testbed for one in paired), "")
    paired = [each for each in paired if each.search.point.testbed == bed]
    at_limit = [each for each in paired if each.search.goal and each.search.goal.limit == limit]
    return ScalingData(
        campaign=campaign,
        carried=tuple(places),
        speed_ups=tuple(speed_ups(places, campaign, at_limit)) if campaign else (),
        costs=costs_of(campaign.single, limit) if campaign else {},
        herds=tuple(herds(campaign.single)) if campaign else (),
        published=tuple(published),
        simulated=tuple(simulated),
        limit=limit,
        ratios=tuple(paired),
    )


def heading(scaling: ScalingData) -> Heading:
    """Return the heading of the page: the origin of the numbers, the testbed and its kernel."""
    campaign = scaling.campaign
    if campaign is None:
        beds = [each.search.testbed for each in scaling.ratios if each.search.testbed]
        if not beds:
            return Heading("Nothing was measured.", "No testbed.", "")
        bed = beds[0]
        return Heading(bed.fidelity, f"Testbed {bed.name} (kind: {bed.kind}).", bed.description)
    return Heading(
        fidelity=campaign.fidelity,
        testbed=f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}.",
        description=campaign.description,
    )


def others(scaling: ScalingData) -> Words:
    """Return sentences on the CPU time that other programs used, and on how the probe recorded messages in searches."""
    lines = [*competitors([scaling.campaign] if scaling.campaign else []).lines]
    for transport, name in TRANSPORTS.items():
        searches = [
            (f"{setting.place.sut} on {plural(setting.place.cores, 'core')}", setting.probe_modes)
            for setting in scaling.over(transport)
        ]
        lines += [f"Over {name}: {line}" for line in probe_modes(searches)]
    return Words(tuple(lines))


def answer(scaling: ScalingData) -> Answer:
    """Return sentences on whether the capacity grows with the number of cores, and on what limits the growth."""
    lines = [
        line
        for transport, name in TRANSPORTS.items()
        for line in _verdict(scaling, scaling.over(transport), name)
    ]
    cores = {setting.place.cores for setting in scaling.carried}
    if not lines and scaling.ratios:
        lines = [*map(_ratio, scaling.ratios)]
    elif len(cores) == 1:
        lines.append(
            f"Only runs on {plural(min(cores), 'core')} were measured, so the speed-up is unknown."
        )
    elif scaling.carried and not lines:
        lines.append(
            "No SUT was measured both on one core and on several cores, so the speed-up is unknown."
        )
    if lines and scaling.campaign and scaling.campaign.kind == "virtual":
        lines.append(IN_VIRTUAL_TIME)
    return Answer(" ".join(lines or [NOTHING]))


def _ratio(found: CapacityRatio) -> str:
    """Return as a sentence how the capacity of a system compares with the capacity of the reference."""
    system, reference = map(_name, (found.other, found.reference))
    if not np.isfinite(found.ratio.estimate):
        return f"The capacity of {system} relative to {reference} is unknown, because no round overloaded all systems."
    return f"{system} handles {_times(found.ratio)} the load of {reference}."


def _name(system: ComparedSystem) -> str:
    """Return as text the SUT, workers, cores, buffer and mode of a system in a paired search."""
    own = system.instance
    words = [own.sut, plural(own.threads, "worker"), plural(own.cores or 1, "core")]
    words += [f"{binary_size(own.receive_buffer_bytes)} buffer"] if own.receive_buffer_bytes else []
    words += [f"mode {system.mode}"] if system.mode != DEFAULT else []
    words += [f"start {own.start}"] if own.start > 1 else []
    return f"{words[0]} ({', '.join(words[1:])})"


def capacity_ratios(scaling: ScalingData) -> Table | Words:
    """Return a table of the ratios that paired searches measured."""
    if not scaling.ratios:
        return Words(("No paired search was made.",))
    rows: list[tuple[Cell, ...]] = [
        (
            _name(found.other),
            _name(found.reference),
            told(found.ratio, n=found.ratio.n),
            f"{found.ratio.n} of {found.search.begun_rounds}",
            _handled(found.other),
            _handled(found.reference),
        )
        for found in scaling.ratios
    ]
    return Table(
        identity="table-capacity-ratios",
        places=2,
        header=("system", "reference", "ratio", "rounds", "system (cps)", "reference (cps)"),
        rows=tuple(rows),
        none="no paired search was made",
        caption="Ratios of capacities from paired searches, whose trials alternate between the systems.",
        reading="The ratio is the capacity of the system divided by the capacity of the reference. A round has one "
        "trial of each system, in random order, so slow changes of the machine's speed hardly affect the ratio. Each "
        "trial offers about 1.4 times the load that the system handles. The last two columns show this handled "
        'load, as the median over the rounds. The column "rounds" shows how many rounds count. A round counts if '
        "each of its trials dropped more than the limit of the search and less than half of the messages. The "
        "intervals of all ratios of a search hold simultaneously at 95 %.",
        provenance=scaling.provenance,
    )


def _handled(system: ComparedSystem) -> str:
    return grouped(round(system.handled_cps)) if np.isfinite(system.handled_cps) else "not known"


def _verdict(
    scaling: ScalingData, places: Sequence[MeasuredSetting], transport: str
) -> Iterator[str]:
    """Yield sentences on the speed-up of the best deployment on the most cores, and on the limits of the speed-up."""
    gains = [gained for place in places if (gained := scaling.gained(place)) is not None]
    gains = [gained for gained in gains if np.isfinite(gained.measured.estimate)]
    if not gains:
        return
    most = max(gained.cores for gained in gains)
    best, _ = _best([gained.more for gained in gains if gained.cores == most])
    (gained,) = (gained for gained in gains if gained.more is best)
    yield (
        f"Over {transport}, {_scales(gained)}: on {plural(most, 'core')}, {best.place.sut} handles "
        f"{_times(gained.measured)} its capacity on one core (ideal: {most} times)."
    )
    yield from _limits(gained)


def _scales(gained: SpeedUp) -> str:
    """Return as text whether a capacity grows with the number of cores, from the interval of the speed-up."""
    measured = gained.measured
    if not measured.known:
        return "perhaps (the speed-up has no interval)"
    if measured.high <= 1:
        return "no"
    if measured.low <= 1:
        return "perhaps (the interval includes 1, no gain)"
    return "yes" if measured.high >= gained.cores else "in part"


def _limits(gained: SpeedUp) -> Iterator[str]:
    """Yield sentences on what limits a speed-up: used CPUs, the CPU time per message, or waits."""
    one, more, measured = gained.one.at_capacity, gained.more.at_capacity, gained.measured
    room = _room(gained)
    if room:
        yield f"{room[0].upper()}{room[1:]}."
    if one is None or more is None or not np.isfinite(gained.bound):
        if not room:
            yield "The limit is unknown, because no runs near the capacities show the CPU time per message."
    elif measured.known and measured.low > gained.bound:
        yield f"The CPU time per message allows a speed-up of only {about(gained.bound)} times{_exceeded(gained)}."
    elif measured.known and measured.high < gained.bound:
        waits = " and ".join(_grown(one, more, ("kernel_locks", "own_locks")))
        grown = f" These waits per message grow with the number of cores: {waits}." if waits else ""
        yield (
            f"The CPU time per message allows a speed-up of {about(gained.bound)} times, so it is not the only "
            f"limit.{grown}"
        )
    elif measured.known and not room:
        yield "The CPU time per message explains the speed-up."


def _exceeded(gained: SpeedUp) -> str:
    """Return a warning if the measured speed-up is larger than the largest possible speed-up. Otherwise return ""."""
    if gained.measured.estimate <= gained.bound:
        return ""
    if gained.measured.known and gained.measured.low <= gained.bound:
        return ", which is within the interval of the speed-up"
    return (
        ". The measured speed-up is larger, so the measurements contradict each other, for example because the speed "
        "of the machine changed"
    )


def choices(scaling: ScalingData) -> Words:
    """Return sentences that name the deployment with the largest capacity, per transport and number of cores."""
    lines = [
        line
        for transport, name in TRANSPORTS.items()
        for line in _choices(scaling, scaling.over(transport), name)
    ]
    return Words(tuple(lines))


def expectation(scaling: ScalingData) -> Words:
    """Return sentences on whether the workers at a shared socket gain little from more cores, as the report says."""
    # Later speed-ups have more cores, and replace earlier ones in this dictionary.
    last = {gained.one.kind: gained for gained in scaling.speed_ups}
    lines = []
    for gained in last.values():
        measured, half = gained.measured, gained.cores / 2
        if gained.one.place.deployment != SHARED or not measured.known:
            continue
        holds = (
            "larger than expected"
            if measured.low > half
            else "as small as expected"
            if measured.high < half
            else "perhaps as small as expected"
        )
        lines.append(
            f"In {gained.one.place.sut}, all workers share the sockets. On {plural(gained.cores, 'core')}, the "
            f"capacity is {_times(measured)} the capacity on one core. Half of the ideal speed-up is {number(half)}, "
            f"so the gain is {holds}."
        )
    return Words(tuple(lines))


def _choices(
    scaling: ScalingData, places: Sequence[MeasuredSetting], transport: str
) -> Iterator[str]:
    """Yield a sentence per number of cores that names the deployment with the largest capacity."""
    known = [setting for setting in places if np.isfinite(setting.capacity.estimate)]
    suts = {setting.place.sut for setting in known}
    for cores in sorted({setting.place.cores for setting in known}):
        among = [setting for setting in known if setting.place.cores == cores]
        yield f"Over {transport} on {plural(cores, 'core')}, {_choice(scaling, among)}"
        if len(among) == 1 < len(suts):
            yield "No other deployment was measured on this number of cores."
    if len(suts) == 1:
        yield f"No other deployment was measured over {transport}."


def _best(among: Sequence[MeasuredSetting]) -> tuple[MeasuredSetting, MeasuredSetting | None]:
    """Return the setting to choose, and the setting with a shared socket if it exists and is not the best.

    The shared socket is chosen unless another deployment is distinguishably better, because a shared socket is
    simplest.
    """
    best = max(among, key=lambda setting: setting.capacity.estimate)
    plain = next((setting for setting in among if setting.place.deployment == SHARED), None)
    if plain is None or best is plain:
        return best, None
    return best if _apart(best.capacity, plain.capacity) else plain, plain


def _choice(scaling: ScalingData, among: Sequence[MeasuredSetting]) -> str:
    best, plain = _best(among)
    reason = ""
    if best is plain:
        reason = (
            " No other deployment is distinguishably better, and this deployment is the simplest."
        )
    elif plain is not None:
        reason = f" For comparison, {plain.place.sut} handles {_cps(plain.capacity)}."
    choice = f"choose {best.place.sut}. This deployment" if len(among) > 1 else best.place.sut
    text = f"{choice} handles {_cps(best.capacity)}"
    gained = scaling.gained(best)
    if gained is not None and gained.measured.method == PAIRED:
        text += f". A paired search measured {_times(gained.measured)} the capacity on one core"
    elif gained is not None:
        text += f", which is {_times(gained.measured)} its capacity on one core"
    return f"{text}.{reason}"


def _room(gained: SpeedUp) -> str:
    """Return as text how many CPUs the load generators left to the proxy. Empty if the proxy has all CPUs."""
    if not np.isfinite(gained.room) or gained.room >= gained.cores:
        return ""
    return f"the load generators left {about(gained.room)} of {plural(gained.cores, 'CPU')} to the proxy"


def _apart(one: Interval, other: Interval) -> bool:
    """Return whether the first confidence interval lies entirely above the second."""
    return one.known and other.known and one.low > other.high


def _cps(capacity: Interval) -> str:
    return with_unit(capacity, "cps")


def _times(speedup: Interval) -> str:
    if np.isnan(speedup.estimate):
        return "an unknown multiple of"
    estimate, low, high = rounded(speedup)
    return f"{estimate} times ({low} to {high})" if low and high else f"{estimate} times"


def stops(scaling: ScalingData) -> Words:
    """Return sentences about the costs per message that grow with the number of cores, for each proxy."""
    lines = [_stop(speed_up) for speed_up in scaling.speed_ups]
    if not lines and scaling.carried:
        lines = [
            "No SUT was measured both on one core and on several cores, so it is unknown what limits the speed-up."
        ]
    return Words(tuple(lines or [NOTHING]))


def _stop(speed_up: SpeedUp) -> str:
    one, more = speed_up.one.cost, speed_up.more.cost
    name, cores = speed_up.more.place.sut, plural(speed_up.cores, "core")
    text = (
        f"{name} on {cores}: the capacity is {_times(speed_up.measured)} the capacity on one core. "
    )
    if room := _room(speed_up):
        text += f"At this capacity, {room}. "
    if one is None or more is None:
        return (
            f"{text}No run with losses within the drop limit shows the cost of a message on "
            f"{cores if more is None else 'one core'}, so the change of this cost is unknown."
        )
    text += (
        f"A message costs {about(more.cpu_us)} µs of CPU time on {cores} at {grouped(more.cps)} cps, and "
        f"{about(one.cpu_us)} µs on one core at {grouped(one.cps)} cps"
    )
    first, last = speed_up.one.at_capacity, speed_up.more.at_capacity
    if first is not None and last is not None and np.isfinite(speed_up.bound):
        if (first, last) != (one, more):
            text += (
                f". Near the capacities, a message costs {about(last.cpu_us)} µs on {cores} at "
                f"{grouped(last.cps)} cps, and {about(first.cpu_us)} µs on one core at {grouped(first.cps)} cps"
            )
        text += (
            f". If only the CPU time near the capacities limited the capacity, the speed-up would be "
            f"{about(speed_up.bound)}{_exceeded(speed_up)}"
        )
    grown = list(_grown(one, more, FACTORS))
    if grown:
        text += f". These numbers per message grow from one core to {cores}: {', '.join(grown)}"
    elif np.isfinite([more.factors[key] for key in FACTORS]).any():
        text += ". None of the measured costs per message grows"
    return f"{text}."


def _grown(one: Cost, more: Cost, names: Iterable[str]) -> Iterator[str]:
    """Yield the numbers per message that are larger on several cores, with both values."""
    for key in names:
        before, after = one.factors[key], more.factors[key]
        if np.isfinite((before, after)).all() and after > before and after >= 0.005:
            yield f"{FACTORS[key][0]} {about(before)} → {about(after)}"


def capacities(scaling: ScalingData) -> Table:
    """Return a table of the capacity and the speed-up of each deployment on each number of cores."""
    rows: list[tuple[Cell, ...]] = []
    for setting in scaling.carried:
        gained = scaling.gained(setting)
        good, runs = setting.confirmed
        rows.append(
            (
                TRANSPORTS.get(setting.place.transport, setting.place.transport),
                setting.place.sut,
                str(setting.place.threads),
                str(setting.place.cores),
                told(setting.capacity, "cps", setting.capacity.n),
                told(setting.by_calls, "cps", setting.capacity.n),
                f"{good} of {plural(runs, 'run')}" if runs else "no run",
                told(gained.measured, n=gained.measured.n) if gained else NO_ENTRY,
                _plain(gained.bound) if gained else NO_ENTRY,
                _plain(gained.room) if gained else NO_ENTRY,
            )
        )
    share = f"{100 * scaling.limit:g} %"
    return Table(
        identity="table-scaling",
        places=1,
        header=(
            *("transport", "SUT", "workers", "cores", "capacity (cps)", "by calls (cps)"),
            *("confirmed", "speed-up", "bound", "CPUs of proxy"),
        ),
        rows=tuple(rows),
        none="no run was measured near a searched capacity",
        caption="Capacity and speed-up of each deployment (named by its SUT) on each number of cores.",
        reading=f"The capacity is the load at which the loss is {share}. Over UDP, the loss counts dropped datagrams "
        "that reached the SPS. Over TCP, the loss counts calls that failed or took too long to set up. The column "
        '"by calls" shows the capacity by lost calls, over UDP too. This capacity is computed '
        f"only from the trials of the search. {HOW}. After a search, runs repeat the two final loads of the search. "
        'The column "confirmed" shows how many of these runs agree with the search. A run at the lower load agrees '
        "if its loss is within the limit, and a run at the upper load agrees if its loss exceeds the limit. The "
        'column "CPUs of proxy" shows the number of cores minus the CPU time of the generators on a shared CPU. The '
        'column "bound" shows the largest speed-up that the CPU time per message allows: CPUs of proxy × CPU time '
        "per message on one core / CPU time per message on this number of cores. These CPU times are from the runs "
        f"at the highest loads within the limit. If such a load is below {100 * AT_CAPACITY:g} % of the capacity, "
        'the column shows "not known". A speed-up has no meaning on one core, so these columns are empty there. If a '
        "paired search measured a speed-up, the table shows its result.",
        provenance=scaling.provenance,
    )


def costs(scaling: ScalingData) -> Table:
    """Return a table of the CPU time per message and its causes, per deployment, number of workers and cores."""
    rows = [
        (
            *(key.sut, str(key.threads), str(key.cores), str(cost.cps)),
            *map(_plain, (cost.cpu_us, cost.user_us, cost.system_us)),
            *(_plain(cost.factors[name]) for name in FACTORS),
        )
        for key, cost in scaling.costs.items()
    ]
    return Table(
        identity="table-factors",
        header=(
            *(
                "SUT",
                "workers",
                "cores",
                "cps",
                "CPU (µs)",
                "in the program (µs)",
                "in the kernel (µs)",
            ),
            *(words for words, _ in FACTORS.values()),
        ),
        rows=tuple(rows),
        none="every run exceeded the drop limit",
        caption="The cost of a message: CPU time and events per message, summed over all processes of the proxy.",
        reading="The cost depends on the load. If all rows with the same SUT and number of workers have a load in "
        "common, these rows show this load. Otherwise, each row shows the highest load at which its drop rate is "
        "within the limit. The CPU time is from the scheduler's clock. The kernel estimates the shares of "
        "program and kernel in this time at timer ticks. Waits for the proxy's own locks are counted as calls of "
        "futex and sched_yield. If a worker spins before such a call, this time counts as CPU time of the "
        "program. A passed descriptor is an open connection that one process of the proxy passes to another "
        "process. The first waiter for a kernel spinlock cannot be counted. A wait uses no CPU time. Several workers "
        "can wait at the same time, so the sum of their waits can exceed the CPU time of a message."
        + (
            " In some of these runs, the probe recorded messages, which also costs CPU time."
            if any(cost.probed for cost in scaling.costs.values())
            else ""
        ),
        provenance=scaling.provenance,
    )


def _plain(value: float) -> str:
    return number(value) if np.isfinite(value) else "not known"


def curves(scaling: ScalingData) -> Figure:
    """Return a figure of the speed-up of each deployment against the number of cores."""
    names = [name for name in TRANSPORTS if scaling.over(name)] or ["udp"]
    every = dict.fromkeys(speed_up.one.kind for speed_up in scaling.speed_ups)
    looks = {kind: look(i) for i, kind in enumerate(every)}

    def draw(axis: Axes, _: int, column: int) -> None:
        among = [
            speed_up
            for speed_up in scaling.speed_ups
            if speed_up.one.place.transport == names[column]
        ]
        if not among:
            not_measured(axis)
            return
        cores = sorted({1, *(speed_up.cores for speed_up in among)})
        _draw_ideal(axis, [1, cores[-1]])
        kinds = list(dict.fromkeys(speed_up.one.kind for speed_up in among))
        for i, kind in enumerate(kinds):
            of_kind = [speed_up for speed_up in among if speed_up.one.kind == kind]
            shift = 0.02 * (cores[-1] - 1) * (i - (len(kinds) - 1) / 2)
            _draw_speed_up(axis, of_kind, kind.sut, looks[kind], shift)
        axis.plot(
            *([], []),
            linestyle="none",
            marker="o",
            markerfacecolor="none",
            color=INK,
            label="bound by CPU time",
        )
        axis.xaxis.set_major_locator(FixedLocator(cores))
        axis.set_ylabel("C(c) / C(1)")
        from_zero(axis)

    return Figure(
        identity="figure-speed-up",
        draw=panels(
            [""],
            [f"over {TRANSPORTS[name]}" for name in names],
            draw,
            "cores",
            shared=("", "all"),
            beside=False,
        ),
        caption="Speed-up against the number of cores, for each transport and deployment.",
        seen=()
        if scaling.speed_ups
        else ("No SUT was measured both on one core and on several cores.",),
        reading="The speed-up is the capacity divided by the capacity of the same SUT on one core. Bars are 95 % "
        "intervals. A hollow point shows the largest speed-up that the CPU time per message and the CPUs of the proxy "
        "allow. On the dashed line (ideal), the speed-up equals the number of cores. Points of different SUTs are "
        "drawn side by side.",
        provenance=scaling.provenance,
    )


def _draw_ideal(axis: Axes, cores: Sequence[int]) -> None:
    """Draw the line on which the speed-up equals the number of cores."""
    axis.plot(cores, cores, color=LIMIT, linestyle="--", linewidth=1, label="ideal")


def _draw_speed_up(
    axis: Axes, of_kind: Sequence[SpeedUp], name: str, style: Look, shift: float
) -> None:
    intervals = [Interval(1.0, 1.0, 1.0, 0), *(speed_up.measured for speed_up in of_kind)]
    cores = np.array([1.0, *(speed_up.cores for speed_up in of_kind)])
    draw_curve(
        axis,
        Curve(
            *(name, style, cores, Estimates.of(intervals)),
            runs=np.empty((len(cores), 0)),
            unit="times",
            x_names=[plural(int(count), "core") for count in cores],
            shift=shift,
        ),
    )
    bounds = [speed_up.bound for speed_up in of_kind]
    axis.plot(
        cores[1:] + shift,
        bounds,
        linestyle="none",
        marker=style.marker,
        color=style.color,
        markerfacecolor="none",
    )


def herd(scaling: ScalingData) -> Figure | Words:
    """Return a figure of the number of wake-ups per message against the number of workers."""
    if not scaling.herds:
        return Words(
            (
                "There is nothing to show yet, because wake-ups were counted for at most one number of workers.",
            )
        )

    def draw(axis: Axes, _: int, __: int) -> None:
        for i, proxy in enumerate(scaling.herds):
            name = f"{proxy.sut}, {grouped(proxy.cps)} cps"
            titles = [
                f"{name}, {plural(workers, 'worker')}: {about(value)} wake-ups per message"
                for workers, value in proxy.by_threads.items()
            ]
            values = list(proxy.by_threads.values())
            draw_line(axis, list(proxy.by_threads), values, look(i), titles, label=name)
        workers = sorted({threads for proxy in scaling.herds for threads in proxy.by_threads})
        axis.xaxis.set_major_locator(FixedLocator(workers))
        from_zero(axis)
        axis.set_ylabel("wake-ups per message")

    return Figure(
        identity="figure-herd",
        draw=panels([""], [""], draw, "workers"),
        caption="Wake-ups of the proxy's tasks per message, against the number of workers that share one UDP socket "
        "on one core.",
        seen=tuple(map(_herd_words, scaling.herds)),
        reading="The number of wake-ups is counted as the number of voluntary context switches. The counts include the "
        "timer processes and all other processes of the proxy.",
        provenance=scaling.provenance,
    )


def _herd_words(proxy: Herd) -> str:
    fewest, most = min(proxy.by_threads), max(proxy.by_threads)
    first, last = proxy.by_threads[fewest], proxy.by_threads[most]
    text = (
        f"{proxy.sut}: {about(first)} wake-ups per message with {plural(fewest, 'worker')}, "
        f"{about(last)} with {most}"
    )
    if last > 1.5:
        return f"{text}. A message wakes more workers than necessary."
    return f"{text}. A message wakes one worker or none."


def published(scaling: ScalingData) -> Table:
    """Return a table of speed-ups before and after remedies against poor scaling: published and measured here."""
    rows: list[tuple[str, ...]] = [
        (
            f"{remedy.platform}, {remedy.operating_system} (published)",
            TRANSPORTS[remedy.transport],
            "not printed",
            number(remedy.before),
            number(remedy.after),
            number(remedy.gain),
        )
        for remedy in scaling.published
    ]
    gains = list(_gains(scaling))
    for before, after in gains:
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
        caption=f"Speed-ups before and after remedies against poor scaling: published in {REPORT}"
        + (", and measured here." if gains else ". No remedy was measured here."),
        reading="The published rows were measured with other hardware, another proxy and more cores. "
        + (
            "The comparison therefore answers only two questions: whether a remedy helps, and whether it helps more "
            "over UDP or over TCP."
            if gains
            else "A comparison needs a SUT with shared sockets and a SUT with a remedy, both on one core and on "
            "several cores."
        ),
        provenance="The published rows were not measured here.",
    )


def _gains(scaling: ScalingData) -> Iterator[tuple[SpeedUp, SpeedUp]]:
    """Yield pairs of speed-ups on equal numbers of cores: with sockets that all workers share, and with a remedy.

    The remedy is the deployment that is most similar to the remedy in the published report.
    """
    for transport, deployments in REMEDIES.items():
        among = [
            speed_up for speed_up in scaling.speed_ups if speed_up.one.place.transport == transport
        ]
        for cores in sorted({speed_up.cores for speed_up in among}):
            there = [speed_up for speed_up in among if speed_up.cores == cores]
            first = {s.one.place.deployment: s for s in reversed(there)}
            after = next((first[name] for name in deployments if name in first), None)
            if SHARED in first and after is not None:
                yield first[SHARED], after


def simulated(scaling: ScalingData) -> Table:
    """Return a table of the simulated speed-ups of each deployment on each number of cores."""
    cores = sorted({row.cores for row in scaling.simulated})
    kinds = dict.fromkeys((row.transport, row.deployment, row.model) for row in scaling.simulated)
    rows = []
    for kind in kinds:
        by_cores = {
            row.cores: row
            for row in scaling.simulated
            if (row.transport, row.deployment, row.model) == kind
        }
        cells = [_plain(by_cores[core].speedup) if core in by_cores else "–" for core in cores]
        rows.append((TRANSPORTS.get(kind[0], kind[0]), *kind[1:], *cells))
    return Table(
        identity="table-simulated-speed-ups",
        groups=(("", 3), ("simulated speed-up on this number of cores", len(cores)))
        if cores
        else (),
        header=("transport", "deployment", "model", *map(str, cores)),
        rows=tuple(rows),
        none="nothing was simulated",
        caption="Simulated speed-ups of each deployment on each number of cores.",
        reading='The numbers come from a simulation of the proxy and of the kernel\'s scheduler. The column "model" '
        "names the origin of the model's parameters. Each speed-up compares a deployment with itself on one core.",
        provenance=SIMULATED,
    )


def simulated_answer(scaling: ScalingData) -> Words:
    """Return sentences that name the deployment with the largest simulated capacity on the most cores."""
    lines = []
    for transport, name in TRANSPORTS.items():
        of_transport = [row for row in scaling.simulated if row.transport == transport]
        for receiving in sorted({row.receive_cpus > 1 for row in of_transport}):
            among = [row for row in of_transport if (row.receive_cpus > 1) == receiving]
            most = max(row.cores for row in among)
            known = [r for r in among if r.cores == most and np.isfinite(r.capacity_cps)]
            if not known:
                continue
            best = max(known, key=lambda row: row.capacity_cps)
            lines.append(
                f"Simulated over {name}, if "
                f"{'each core receives packets' if receiving else 'one CPU receives all packets'}: on "
                f"{plural(most, 'core')}, the deployment {best.deployment} handles the highest load, "
                f"{number(best.capacity_cps)} cps. This load is {number(best.speedup)} times the capacity of this "
                f"deployment on one core (model: {best.model})."
            )
    return Words(tuple(lines or ["There is no answer yet, because nothing was simulated."]))


def simulated_curves(scaling: ScalingData) -> Figure | Words:
    """Return a figure of simulated speed-ups against the number of cores.

    The first panel shows machines on which one CPU receives all packets. The second panel shows machines on which every
    core receives packets.
    """
    rows = [row for row in scaling.simulated if LOCK not in row.model]
    kinds = list(dict.fromkeys((row.transport, row.deployment) for row in rows))
    columns = {
        name: [row for row in rows if name in row.model]
        for name in RECEIVING
        if any(name in row.model for row in rows)
    }
    if not columns:
        return Words(())

    def draw(axis: Axes, _: int, column: int) -> None:
        among = list(columns.values())[column]
        cores = sorted({row.cores for row in among})
        _draw_ideal(axis, cores)
        for i, (transport, deployment) in enumerate(kinds):
            line = [
                row for row in among if (row.transport, row.deployment) == (transport, deployment)
            ]
            if line:
                # Points on a logarithmic axis are side by side if each is shifted by a constant factor.
                shift = 1.02 ** (i - (len(kinds) - 1) / 2)
                name = f"{deployment}, {TRANSPORTS[transport]}"
                _draw_simulated(axis, line, name, look(i), shift)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.xaxis.set_major_locator(FixedLocator(cores))
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(FuncFormatter(grouped))
        axis.set_ylabel("C(c) / C(1)")

    return Figure(
        identity="figure-simulated-speedups",
        draw=panels([""], list(columns), draw, "cores", shared=("", "all"), beside=False),
        caption="Simulated speed-up against the number of cores, for each deployment and transport.",
        reading="The bars show the range of results over many models, each fitted to a random sample of the recorded "
        "runs. Lines of TCP are dashed. On the straight dashed line (ideal), the speed-up equals the number of cores. "
        "Both axes are logarithmic. Points of different deployments are drawn side by side. In this model, the lock "
        "of a socket costs no time. A message over TCP costs more CPU time than over UDP, by a constant factor.",
        provenance=SIMULATED,
    )


def _draw_simulated(
    axis: Axes, rows: Sequence[Speedup], name: str, style: Look, shift: float
) -> None:
    cores = [shift * row.cores for row in rows]
    ends = [row.speedup_low for row in rows], [row.speedup_high for row in rows]
    axis.vlines(cores, *ends, color=style.color)
    titles = [
        f"{name}, {plural(row.cores, 'core')}: {number(row.speedup)} times, {number(row.capacity_cps)} cps"
        for row in rows
    ]
    dashes = "--" if rows[0].transport == "tcp" else "-"
    speedups = [row.speedup for row in rows]
    draw_line(axis, cores, speedups, style, titles, linestyle=dashes, label=name)


def sharing(scaling: ScalingData) -> Words:
    """Return sentences about the CPU time that the load generators leave to the proxy on shared CPUs."""
    if scaling.campaign is None or not scaling.carried:
        return Words((NOTHING,))
    most = max(setting.place.cores for setting in scaling.carried)
    if not shares_cpus(scaling.campaign, most):
        return Words(
            ("The proxy shared no CPU with the generators on any measured number of cores.",)
        )
    lines = [
        f"With {plural(most, 'core')}, the proxy shares a CPU with the load generators, which have priority "
        "(SCHED_FIFO)."
    ]
    for speed_up in scaling.speed_ups:
        place, used = speed_up.more.place, speed_up.more.highest
        if used is None:
            continue
        if not np.isfinite(speed_up.room):
            lines.append(
                f"The records of {place.sut} do not contain the CPU time of the generators."
            )
            continue
        lines.append(
            f"While {place.sut} runs on {plural(place.cores, 'core')}, UAC and UAS need "
            f"{about(used.generator_us)} µs of CPU time per call at {grouped(used.cps)} cps. If a call needs the "
            f"same CPU time at the capacity of {_cps(speed_up.more.capacity)}, the generators leave "
            f"{_cpus(speed_up.room)} to the proxy."
        )
    if len(lines) == 1:
        lines.append(
            "No SUT was measured both on one core and on several cores, so the cost of sharing is unknown."
        )
    return Words(tuple(lines))


def _cpus(count: float) -> str:
    text = about(count)
    return f"{text} CPU{'' if text == '1' else 's'}"
