"""What a deployment carries on more cores, what a message costs there, and what its workers do to each other."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sipsched.analysis.run_table import Campaign, Configuration, configurations
from sipsched.analysis.search import search_interval
from sipsched.analysis.statistics import LEVEL, PDR_LIMIT, Interval
from sipsched.errors import StableError
from sipsched.plan.modes import DEFAULT
from sipsched.records.crossing import Crossing

SHARED = "shared"
"""The deployment without a remedy."""
REMEDIES = {"udp": ("partitioned",), "tcp": ("dispatcher", "listeners")}
"""Deployments that are the report's remedy over each transport, the nearest to it first."""
NEAR = 1.1
"""A run confirms a bound of a bracket from at most so many times farther off."""
COLUMNS = ("study", "platform", "operating_system", "transport", "remedies", "speedup", "place")
FACTORS = {
    "wake_ups": ("wake-ups", 1.0),
    "preemptions": ("preemptions", 1.0),
    "migrations": ("migrations", 1.0),
    "kernel_locks": ("waits for the kernel's locks", 1.0),
    "kernel_locks_ns": ("in the kernel's locks (µs)", 1e-3),
    "own_locks": ("waits for the proxy's locks", 1.0),
    "own_locks_ns": ("in the proxy's locks (µs)", 1e-3),
    "descriptors": ("descriptors passed", 1.0),
}
"""Run-level numbers that are given a message: how a page names them, and their scale."""


class Place(NamedTuple):
    """What carries a load; `threads` are workers in all."""

    proxy: str
    transport: str
    deployment: str
    sut: str
    threads: int
    cores: int


class Kind(NamedTuple):
    """What is compared over cores: the SUT with its workers."""

    transport: str
    sut: str
    threads: int


@dataclass(frozen=True)
class Cost:
    """What a message cost in a run, each NaN where it was not counted.

    Attributes
    ----------
    cps
        Load of the run.
    cpu_us, user_us, system_us
        CPU time of the proxy's processes, and of it in the program and in the kernel.
    factors
        By the names of `FACTORS`, a message.
    generator_us
        CPU time of the generators a call.
    probed
        Whether the probe timed messages meanwhile, which costs CPU time, too.
    """

    cps: int
    cpu_us: float
    user_us: float
    system_us: float
    factors: Mapping[str, float]
    generator_us: float
    probed: bool


@dataclass(frozen=True)
class Carried:
    """A place with what it carries.

    Attributes
    ----------
    capacity
        Calls per second at which the limit is crossed: of refused datagrams over UDP, of calls lost over TCP.
    by_calls
        The same by calls that failed or were late, over both.
    confirmed
        Runs just under the lower load of the bracket that kept the limit, and runs just over the upper one that did
        not; and all such runs.
    cost
        At the highest load that kept the limit; None where there is no such run.
    """

    place: Place
    capacity: Interval
    by_calls: Interval
    confirmed: tuple[int, int]
    cost: Cost | None

    @property
    def kind(self) -> Kind:
        """What it is at another number of cores, too."""
        return Kind(self.place.transport, self.place.sut, self.place.threads)


@dataclass(frozen=True)
class SpeedUp:
    """What more cores give.

    Attributes
    ----------
    measured
        C(c) / C(1).
    bound
        c x cost(1) / cost(c): what the CPU time of a message would allow; NaN where it was not counted.
    room
        CPUs that the proxy had at that load: c, less what the generators took of one that they share, by the run on
        one core.
    """

    one: Carried
    more: Carried
    measured: Interval
    bound: float
    room: float

    @property
    def cores(self) -> int:
        """How many cores."""
        return self.more.place.cores


@dataclass(frozen=True)
class Herd:
    """Wake-ups a message of a proxy by workers, at one load on one core."""

    sut: str
    cps: int
    by_threads: Mapping[int, float]


@dataclass(frozen=True)
class Published:
    """A speed-up that the report prints."""

    platform: str
    operating_system: str
    transport: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """By what the remedies multiply it."""
        return self.after / self.before


def lost(runs: pd.DataFrame) -> pd.Series:
    """Give what the limit is on: the packet drop rate, over TCP the share of calls lost."""
    return runs["call_loss"].where(runs["transport"] == "tcp", runs["pdr"])


def carried(
    campaign: Campaign, crossings: Iterable[Crossing], limit: float = PDR_LIMIT
) -> list[Carried]:
    """Put what searches found beside the runs that confirm it, of mode default.

    Parameters
    ----------
    campaign
        All runs of a testbed.
    crossings
        Of the same testbed; others are left out.
    limit
        Share at which capacity ends.

    Returns
    -------
    list
        By transport, SUT, threads and cores. A crossing without any run that counts is left out: nothing says what was
        measured.
    """
    found = []
    for crossing in crossings:
        point = crossing.point
        if point.testbed != campaign.testbed or point.mode != DEFAULT:
            continue
        runs = campaign.single
        runs = runs[
            (runs["sut"] == point.sut)
            & (runs["mode"] == point.mode)
            & (runs["cores"] == point.cores)
            & (runs["threads"] == point.threads)
        ]
        if not len(runs):
            continue
        first = runs.iloc[0]
        place = Place(
            str(first["proxy"]),
            str(first["transport"]),
            str(first["deployment"]),
            point.sut,
            point.threads,
            point.cores,
        )
        found.append(
            Carried(
                place=place,
                capacity=search_interval(crossing.trials, limit),
                by_calls=_by_calls(crossing, limit),
                confirmed=_confirmed(runs, crossing, limit),
                cost=_busiest(runs, limit),
            )
        )
    order = dict.fromkeys(each.place.sut for each in found)
    suts = list(order)
    return sorted(
        found,
        key=lambda each: (
            each.place.transport != "udp",
            suts.index(each.place.sut),
            each.place.threads,
            each.place.cores,
        ),
    )


def _by_calls(crossing: Crossing, limit: float) -> Interval:
    trials = [
        replace(trial, pdr=trial.call_loss)
        for trial in crossing.trials
        if trial.call_loss is not None
    ]
    if len(trials) < len(crossing.trials):
        return Interval.without(np.nan, 0, LEVEL, "not noted")
    return search_interval(trials, limit)


def _confirmed(runs: pd.DataFrame, crossing: Crossing, limit: float) -> tuple[int, int]:
    rates = lost(runs)
    lower, upper = crossing.lower_cps or 0, crossing.upper_cps or np.inf
    below = runs["cps"].between(lower / NEAR, lower)
    above = runs["cps"].between(upper, upper * NEAR)
    good = int((below & (rates <= limit)).sum() + (above & (rates > limit)).sum())
    return good, int(((below | above) & rates.notna()).sum())


def _busiest(runs: pd.DataFrame, limit: float) -> Cost | None:
    kept = runs[(lost(runs) <= limit) & (runs["messages"] > 0)]
    if not len(kept):
        return None
    return cost(kept.loc[kept["cps"].idxmax()])


def costs(runs: pd.DataFrame, limit: float = PDR_LIMIT) -> dict[Configuration, Cost]:
    """Say what a message cost wherever what keeps tasks from each other was counted, in mode default.

    Returns
    -------
    dict
        By SUT, cores and workers, at the highest load that kept the limit.
    """
    among = runs[(runs["mode"] == DEFAULT) & runs["wake_ups"].notna()]
    found = {key: _busiest(group, limit) for key, group in configurations(among).items()}
    return {key: cost for key, cost in found.items() if cost is not None}


def cost(run: pd.Series) -> Cost:
    """Say what a message cost in a run with at least one."""
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


def speed_ups(found: Sequence[Carried], campaign: Campaign) -> list[SpeedUp]:
    """Compare each SUT on more cores with itself on one."""
    ones = {each.kind: each for each in found if each.place.cores == 1}
    return [
        SpeedUp(
            one=ones[each.kind],
            more=each,
            measured=ratio(each.capacity, ones[each.kind].capacity),
            bound=_bound(ones[each.kind], each),
            room=_room(ones[each.kind], each, campaign),
        )
        for each in found
        if each.place.cores > 1 and each.kind in ones
    ]


def ratio(more: Interval, one: Interval) -> Interval:
    """Divide two estimates whose errors are independent, on a log scale.

    Returns
    -------
    Interval
        Its half-widths on the log scale are the root of the sum of squares of the two.
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


def _bound(one: Carried, more: Carried) -> float:
    if one.cost is None or more.cost is None or not more.cost.cpu_us > 0:
        return float("nan")
    return more.place.cores * one.cost.cpu_us / more.cost.cpu_us


def _room(one: Carried, more: Carried, campaign: Campaign) -> float:
    """Say how many CPUs the proxy had, by what the generators needed for a call where they had one alone."""
    cores = more.place.cores
    if not shares_cpus(campaign, cores):
        return float(cores)
    if one.cost is None or shares_cpus(campaign, 1):
        return float("nan")
    # ASSUME what the generators need of a CPU grows with the calls
    taken = one.cost.generator_us / 1e6 * more.capacity.estimate
    # not Python's min, which would take what is not known for a whole CPU
    return float(cores - np.minimum(1.0, taken))


def shares_cpus(campaign: Campaign, cores: int) -> bool:
    """Tell whether the SPS has a CPU of the generators among its first so many: on one machine only."""
    if campaign.kind != "local" or "sps" not in campaign.hosts:
        return False
    cpus = {role: list(campaign.hosts[role].get("cpus", ())) for role in ("uac", "sps", "uas")}
    return bool(set(cpus["sps"][:cores]) & {*cpus["uac"], *cpus["uas"]})


def herds(runs: pd.DataFrame) -> list[Herd]:
    """Gather the wake-ups a message by workers, where a shared UDP socket was measured at two numbers of them.

    Parameters
    ----------
    runs
        Rows that count, each of one mode.

    Returns
    -------
    list
        For each SUT the load on one core with the most numbers of workers, of those the lowest.
    """
    among = runs[
        (runs["deployment"] == SHARED)
        & (runs["transport"] == "udp")
        & (runs["cores"] == 1)
        & (runs["mode"] == DEFAULT)
        & (runs["messages"] > 0)
    ]
    among = among.assign(wake_ups=among["wake_ups"] / among["messages"]).dropna(subset="wake_ups")
    found = []
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
            found.append(Herd(str(sut), cps, loads[cps]))
    return found


def load_published(path: Path) -> list[Published]:
    """Read the speed-ups that the report prints.

    Raises
    ------
    StableError
        A row is not what config/published/README.md says, or lacks its other half.
    """
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise StableError(f"{path}: expected the columns {', '.join(COLUMNS)}")
        for line, row in enumerate(reader, start=2):
            key = (row["platform"], row["operating_system"], row["transport"])
            try:
                speedup = float(row["speedup"])
            except ValueError:
                speedup = float("nan")
            known = row["transport"] in REMEDIES and row["remedies"] in ("before", "after")
            if not known or not speedup > 0 or row["remedies"] in values.get(key, {}):
                raise StableError(
                    f"{path}: line {line}: not a speed-up, or one that is there twice"
                )
            values.setdefault(key, {})[row["remedies"]] = speedup
    for key, both in values.items():
        if len(both) < 2:
            raise StableError(f"{path}: {', '.join(key)}: expected a row before and one after")
    return [Published(*key, both["before"], both["after"]) for key, both in values.items()]
