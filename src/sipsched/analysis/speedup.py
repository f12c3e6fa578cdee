"""The capacity of a proxy and its cost per message, on one core and on several cores.

The cost includes the waits of workers for each other, for example at locks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from sipsched.analysis.capacity.estimate import capacity_of_search, interval_of
from sipsched.analysis.capacity_ratios import CapacityRatio, speed_up
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.intervals import LEVEL, Interval
from sipsched.analysis.papers import PrintedNumber, read_table
from sipsched.analysis.run_table import Campaign, Configuration, configurations, lost
from sipsched.errors import StableError
from sipsched.plan.modes import DEFAULT
from sipsched.records.crossing import SearchRecord
from sipsched.records.system_capacity import capacity_of

SHARED = "shared"
"""The deployment in which all workers share the sockets, so that workers wait for each other."""
REMEDIES = {"udp": ("partitioned",), "tcp": ("dispatcher", "listeners")}
"""Deployments in which workers wait less for each other, by transport, as in the remedies of IBM's report.

The deployment that is most similar to the published remedy comes first.
"""
NEAR = 1.1
"""A run near a load of a search can confirm this load. The two loads must differ by at most this factor."""
AT_CAPACITY = 0.8
"""A run shows the cost of a message at the capacity if the run's load is at least this share of the capacity."""
COLUMNS = ("study", "platform", "operating_system", "transport", "remedies", "speedup", "place")
FACTORS = {
    "wake_ups": ("wake-ups", 1.0),
    "preemptions": ("preemptions", 1.0),
    "migrations": ("migrations", 1.0),
    "kernel_locks": ("waits for the kernel's locks", 1.0),
    "kernel_locks_ns": ("wait for the kernel's locks (µs)", 1e-3),
    "own_locks": ("waits for the proxy's locks", 1.0),
    "own_locks_ns": ("wait for the proxy's locks (µs)", 1e-3),
    "descriptors": ("descriptors passed", 1.0),
}
"""Variables of a run that pages show per message, with the name on the page and the factor to the page's unit."""


class WorkerSetting(NamedTuple):
    """A system under test with its deployment, number of cores, and total number of workers (`threads`)."""

    transport: str
    deployment: str
    sut: str
    threads: int
    cores: int


class SystemKind(NamedTuple):
    """A system under test with a fixed number of workers. Pages compare its capacity on different numbers of cores."""

    transport: str
    sut: str
    threads: int


@dataclass(frozen=True)
class Cost:
    """The costs of the proxy per message in a run. A cost that was not counted is NaN.

    Attributes
    ----------
    cps
        Load of the run.
    cpu_us, user_us, system_us
        CPU time of the proxy's processes per message: in total, in user mode, and in the kernel.
    factors
        Counts per message, by the names in `FACTORS`.
    generator_us
        CPU time of the load generators per call.
    probed
        Whether the probe recorded the run. Recording also costs CPU time.
    """

    cps: int
    cpu_us: float
    user_us: float
    system_us: float
    factors: Mapping[str, float]
    generator_us: float
    probed: bool


@dataclass(frozen=True)
class MeasuredSetting:
    """A system under test on a number of cores, with the measured capacity.

    Attributes
    ----------
    capacity
        Load in calls per second at the limit of the share of refused datagrams (UDP) or lost calls (TCP).
    by_calls
        Capacity with a limit for the share of failed and late calls, over UDP and TCP.
    confirmed
        Number of runs that confirm the search, and number of all runs near the two loads that the search found. A run
        just below the lower load confirms the search if its losses are within the limit. A run just above the upper
        load must exceed the limit.
    cost
        Cost at a load whose losses are within the limit. If possible, the load is equal for all numbers of cores. None
        without such a run.
    highest
        Cost at the highest load whose losses are within the limit. None without such a run.
    probe_modes
        Modes of the probe during the search; empty if they were not recorded.
    """

    place: WorkerSetting
    capacity: Interval
    by_calls: Interval
    confirmed: tuple[int, int]
    cost: Cost | None
    highest: Cost | None
    probe_modes: tuple[str, ...] = ()

    @property
    def at_capacity(self) -> Cost | None:
        """The cost at a load near the capacity; None if no run with losses within the limit has such a load."""
        near = self.highest is not None and self.highest.cps >= AT_CAPACITY * self.capacity.estimate
        return self.highest if near else None

    @property
    def kind(self) -> SystemKind:
        """The transport, the SUT and the number of workers, without the number of cores."""
        return SystemKind(self.place.transport, self.place.sut, self.place.threads)


@dataclass(frozen=True)
class SpeedUp:
    """The ratio of a SUT's capacity on several cores to its capacity on one core.

    Attributes
    ----------
    measured
        C(c) / C(1), the ratio of measured capacities. If a paired search measured this ratio, its result.
    bound
        room x cost(1) / cost(c), the speed-up that the CPU time of a message allows. The costs are from runs near the
        capacities. NaN if no such run exists or if `room` is unknown.
    room
        Number of CPUs that the proxy had at its capacity: c minus the share of a common CPU that the load generators
        used. The share is computed from the generators' CPU time per call at the highest load within the limit.
    """

    one: MeasuredSetting
    more: MeasuredSetting
    measured: Interval
    bound: float
    room: float

    @property
    def cores(self) -> int:
        """Number of cores."""
        return self.more.place.cores


@dataclass(frozen=True)
class Herd:
    """The number of worker wake-ups per message, by number of workers, at one load on one core."""

    sut: str
    cps: int
    by_threads: Mapping[int, float]


@dataclass(frozen=True)
class Published:
    """A speed-up that IBM's report RC24501 published (config/published/README.md).

    `before` and `after` are the speed-ups before and after the report's change of the proxy.
    """

    platform: str
    operating_system: str
    transport: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """The speed-up after IBM's change of the proxy, divided by the speed-up before the change."""
        return self.after / self.before


def carried(
    campaign: Campaign, crossings: Iterable[SearchRecord], limit: float = PDR_LIMIT
) -> list[MeasuredSetting]:
    """Return, for each system with a search in the default mode, the capacity that was found and the cost per message.

    A search measures loads until it knows two loads around the capacity. The result contains the number of runs that
    confirm these loads.

    Parameters
    ----------
    crossings
        Records of searches. Searches on other testbeds are ignored.

    Returns
    -------
    list
        Settings in the order of transport, SUT, threads and cores. A search is excluded if its system has no valid run.
        Only a run records the transport, and the limit applies to other losses over TCP than over UDP.
    """
    systems = []
    settings = configurations(campaign.single)
    costs_by_setting = _compared(campaign.single, limit)
    highest = _highest(campaign.single, limit)
    for crossing in crossings:
        point = crossing.point
        key = Configuration(point.sut, point.mode, point.cores, point.threads)
        if point.testbed != campaign.testbed or point.mode != DEFAULT:
            continue
        runs = settings.get(key)
        if runs is None:
            continue
        first = runs.iloc[0]
        worker_setting = WorkerSetting(
            str(first["transport"]),
            str(first["deployment"]),
            point.sut,
            point.threads,
            point.cores,
        )
        systems.append(
            MeasuredSetting(
                place=worker_setting,
                capacity=_capacity(campaign, crossing, limit),
                by_calls=_by_calls(crossing, limit),
                confirmed=_confirmed(runs, crossing, limit),
                cost=costs_by_setting.get(key),
                highest=highest.get(key),
                probe_modes=crossing.probe_modes,
            )
        )
    suts = [system.place.sut for system in systems]
    return sorted(
        systems,
        key=lambda setting: (
            setting.place.transport != "udp",
            suts.index(setting.place.sut),
            setting.place.threads,
            setting.place.cores,
        ),
    )


def _by_calls(crossing: SearchRecord, limit: float) -> Interval:
    trials = [
        replace(trial, pdr=trial.call_loss)
        for trial in crossing.trials
        if trial.call_loss is not None
    ]
    if len(trials) < len(crossing.trials):
        return Interval.without(np.nan, 0, LEVEL, "not noted")
    return capacity_of_search(replace(crossing, trials=tuple(trials)), limit)


def _capacity(campaign: Campaign, crossing: SearchRecord, limit: float) -> Interval:
    point = crossing.point
    system = (point.sut, point.mode, point.cores, point.threads)
    known = capacity_of(campaign.capacities, limit, point.testbed, *system)
    return interval_of(known) if known else Interval.without(np.nan, 0, why="not estimated")


def _confirmed(runs: pd.DataFrame, crossing: SearchRecord, limit: float) -> tuple[int, int]:
    rates = lost(runs)
    lower, upper = crossing.lower_cps or 0, crossing.upper_cps or np.inf
    below = runs["cps"].between(lower / NEAR, lower)
    above = runs["cps"].between(upper, upper * NEAR)
    good = int((below & (rates <= limit)).sum() + (above & (rates > limit)).sum())
    return good, int(((below | above) & rates.notna()).sum())


def costs(runs: pd.DataFrame, limit: float = PDR_LIMIT) -> dict[Configuration, Cost]:
    """Return the costs per message in the default mode, for all settings with counts of waits and wake-ups.

    Returns
    -------
    dict
        Costs by SUT, cores and workers, at the load that `_compared` chooses.
    """
    return _compared(runs[runs["wake_ups"].notna()], limit)


def _compared(runs: pd.DataFrame, limit: float) -> dict[Configuration, Cost]:
    """Return each setting's costs per message, at a load with losses within the drop limit.

    The cost of a message depends on the load. So the numbers of cores are compared at the highest load that all of them
    have, for each SUT and number of workers. Without a common load, each number of cores has its own highest load.
    """
    settings = configurations(_within(runs, limit))
    shared: dict[tuple[str, int], set[int]] = {}
    for key, group in settings.items():
        loads = set(group["cps"])
        shared[key.sut, key.threads] = shared.get((key.sut, key.threads), loads) & loads
    chosen = {}
    for key, group in settings.items():
        load = max(shared[key.sut, key.threads] or set(group["cps"]))
        chosen[key] = cost(group[group["cps"] == load].iloc[0])
    return chosen


def _highest(runs: pd.DataFrame, limit: float) -> dict[Configuration, Cost]:
    """Return each setting's costs per message, at the highest load with losses within the drop limit."""
    return {
        key: cost(group.sort_values("cps").iloc[-1])
        for key, group in configurations(_within(runs, limit)).items()
    }


def _within(runs: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return the runs in the default mode whose losses are within the drop limit."""
    return runs[(runs["mode"] == DEFAULT) & (lost(runs) <= limit) & (runs["messages"] > 0)]


def cost(run: pd.Series) -> Cost:
    """Return the proxy's costs per message (CPU time, waits, wake-ups) in one run."""
    messages = float(run["messages"])
    return Cost(
        cps=int(run["cps"]),
        cpu_us=float(run["proxy_cpu_ns"]) / messages / 1000,
        user_us=float(run["proxy_user_ns"]) / messages / 1000,
        system_us=float(run["proxy_system_ns"]) / messages / 1000,
        factors={name: scale * float(run[name]) / messages for name, (_, scale) in FACTORS.items()},
        generator_us=float(run["generator_cpu_us"]),
        probed=run["probe_mode"] != "off",
    )


def speed_ups(
    systems: Sequence[MeasuredSetting], campaign: Campaign, paired: Sequence[CapacityRatio] = ()
) -> list[SpeedUp]:
    """Compute the speed-up of each SUT from one core to several cores.

    A speed-up from a paired search replaces the ratio of two capacities, which were measured in different minutes.
    """
    ones = {system.kind: system for system in systems if system.place.cores == 1}
    found = []
    for more in systems:
        one = ones.get(more.kind)
        if one is None or more is one:
            continue
        room = _room(more, campaign)
        place = more.place
        within = speed_up(paired, campaign.testbed, place.sut, place.threads, place.cores)
        measured = within or ratio(more.capacity, one.capacity)
        found.append(SpeedUp(one, more, measured, _bound(one, more, room), room))
    return found


def ratio(more: Interval, one: Interval) -> Interval:
    """Return the ratio of two estimates with independent errors, with an interval from the intervals of the estimates.

    Returns
    -------
    Interval
        The squared half-width of the ratio's logarithm is the sum of the squared half-widths of the two logarithms.
    """
    estimate = more.estimate / one.estimate
    ends = (more.low, more.high, one.low, one.high)
    if not (np.isfinite(ends).all() and min(ends) > 0):
        why = more.why or one.why or "no interval"
        return Interval.without(estimate, more.n + one.n, more.level, why)
    down = np.hypot(np.log(more.estimate / more.low), np.log(one.high / one.estimate))
    up = np.hypot(np.log(more.high / more.estimate), np.log(one.estimate / one.low))
    return Interval(
        estimate,
        float(estimate * np.exp(-down)),
        float(estimate * np.exp(up)),
        more.n + one.n,
        more.level,
        "ratio of two posteriors",
    )


def _bound(one: MeasuredSetting, more: MeasuredSetting, room: float) -> float:
    before, after = one.at_capacity, more.at_capacity
    if before is None or after is None or not after.cpu_us > 0:
        return float("nan")
    return room * before.cpu_us / after.cpu_us


def _room(more: MeasuredSetting, campaign: Campaign) -> float:
    """Estimate how many CPUs the proxy could use beside the load generators, which share one CPU with the proxy."""
    cores = more.place.cores
    if not shares_cpus(campaign, cores):
        return float(cores)
    if more.highest is None or shares_cpus(campaign, 1):
        return float("nan")
    # ASSUME the CPU time of the generators is proportional to the number of calls
    taken = more.highest.generator_us / 1e6 * more.capacity.estimate
    # Python's min would return 1.0 for an unknown share (NaN). NumPy's minimum returns NaN.
    return float(cores - np.minimum(1.0, taken))


def shares_cpus(campaign: Campaign, cores: int) -> bool:
    """Return True if the proxy shares a CPU with the load generators, which is possible only on a single machine."""
    if campaign.kind != "local" or "sps" not in campaign.hosts:
        return False
    cpus = {role: list(campaign.hosts[role].get("cpus", ())) for role in ("uac", "sps", "uas")}
    return bool(set(cpus["sps"][:cores]) & {*cpus["uac"], *cpus["uas"]})


def herds(runs: pd.DataFrame) -> list[Herd]:
    """Return the number of worker wake-ups per message, for proxies whose workers share one UDP socket.

    Returns
    -------
    list
        One entry per SUT with several numbers of workers, at the load on one core at which the most numbers of workers
        were measured. If several loads qualify, the lowest load is used.
    """
    among = runs[
        (runs["deployment"] == SHARED)
        & (runs["transport"] == "udp")
        & (runs["cores"] == 1)
        & (runs["mode"] == DEFAULT)
        & (runs["messages"] > 0)
    ]
    among = among.assign(wake_ups=among["wake_ups"] / among["messages"]).dropna(subset="wake_ups")
    all_herds = []
    for sut, of_sut in among.groupby("sut", sort=False):
        loads = {
            int(cps): {
                int(threads): float(of_point["wake_ups"].mean())
                for threads, of_point in of_load.groupby("threads")
            }
            for cps, of_load in of_sut.groupby("cps")
        }
        cps = max(loads, key=lambda load: (len(loads[load]), -load))
        if len(loads[cps]) > 1:
            all_herds.append(Herd(str(sut), cps, loads[cps]))
    return all_herds


def load_published(path: Path) -> list[Published]:
    """Read the published speed-ups of IBM's report RC24501 from a CSV file.

    Raises
    ------
    StableError
        A row differs from the description in config/published/README.md, or a row before or after the change is
        missing.
    """
    columns: dict[str, Any] = dict.fromkeys(COLUMNS, str) | {
        "transport": Literal[tuple(REMEDIES)],
        "remedies": Literal["before", "after"],
        "speedup": PrintedNumber,
    }
    key = ["platform", "operating_system", "transport"]
    rows = read_table(path, columns, [*key, "remedies"])
    both = rows.pivot(index=key, columns="remedies", values="speedup")
    if both.isna().any(axis=None):
        raise StableError(
            f"{path}: expected a row `before` and a row `after` per platform, operating system and transport"
        )
    places = rows[key].drop_duplicates().itertuples(index=False, name=None)
    return [Published(*place, *both.loc[place, ["before", "after"]]) for place in places]
