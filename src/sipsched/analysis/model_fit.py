"""The estimation of the simulator's parameters from recorded runs on one core, and from interruptions of idle CPUs.

The numbers of the competitors are not estimated, because the runs' account of CPU time contains these numbers.

The cost of a message depends on earlier events. For example, another worker may have filled the caches, an arrival may
interrupt the worker, or the worker must be woken. Each of these costs is estimated from timestamps in the default mode.
docs/simulator/numbers.md has a table of all parameters.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from sipsched.errors import StableError
from sipsched.plan.modes import DEFAULT
from sipsched.plan.run import Run
from sipsched.plan.simulated import KINDS, fitted_numbers, model_of
from sipsched.plan.sut import Sut
from sipsched.records.cpu_report import Account, Competitor
from sipsched.records.fitted import CompetingPrograms, Fitted
from sipsched.records.record import TRACE_FILE, read_record
from sipsched.records.trace import RECORD, Event, read_trace
from sipsched.words import plural

TAIL = 0.001
"""Share of the longest service times of a message type that the fit excludes.

A stall of the CPU may have extended these services, and the model has separate parameters for stalls.
"""
EARLY = 0.05
"""The early time of a message type is this quantile of the type's service times. Few services are shorter.

The fit counts the arrivals within the early time of a service.
"""
SHORTEST_STALL_NS = 5_000
LEAST_SHARE = 0.005
"""If the programs of a scheduling class used a smaller share of the CPU's time, the model has no such competitors.

A share of 0.5 % changes the capacity by 0.5 %, but the search for a simulated capacity ends at an uncertainty of 2 %.
"""
PARTS: Mapping[str, Literal["other", "idle", "fifo"]] = MappingProxyType(
    {"fair": "other", "idle_class": "idle", "realtime": "fifo"}
)
"""The parts of the account of CPU time that belong to competitors, and the simulator's policy for each part."""
PARTS_OF_POLICIES = {
    **dict.fromkeys(("SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE"), "realtime"),
    "SCHED_IDLE": "idle_class",
}
"""The part of the account per scheduling policy. All other policies belong to the part `fair`."""
NEIGHBOURS, TURNS = 65, 10
"""Number of messages per estimate of a CPU's speed (5 ms at 2000 cps), and number of iterations of the fit.

The last iteration changes the estimates by less than 1 %.
"""
RUNS_A_LOAD = 3
DRAWS = 8
"""Number of bootstrap samples of the runs. The scatter of the fits to these samples shows the fit's uncertainty."""
SEED = 1

NanosecondArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Service:
    """The mean and the squared coefficient of variation of a message type's CPU time between recv and send."""

    mean_ns: float
    scv: float


@dataclass(frozen=True)
class Fit:
    """The parameters of the simulator that the fit estimates from the records of runs.

    Attributes
    ----------
    service, lengths
        Service times, and payload lengths in bytes, by message type.
    numbers
        Other parameters, by their names in a model's file.
    messages
        Number of messages from which the parameters were estimated.
    """

    service: dict[str, Service]
    lengths: dict[str, int]
    numbers: dict[str, int]
    messages: int

    def simulator_numbers(self) -> dict[str, Any]:
        """Return the fitted parameters under the names and in the units of the simulator's parameters."""
        mean_ns = {kind: service.mean_ns for kind, service in self.service.items()}
        scv = {kind: service.scv for kind, service in self.service.items()}
        return fitted_numbers(self.numbers, self.lengths, mean_ns, scv)


@dataclass(frozen=True)
class ReceivedMessages:
    """Messages of runs on one core, in the order in which workers received them. Times are in ns.

    Attributes
    ----------
    kind, length
        Number of the message type, and bytes of payload.
    served
        T_sip without the worker's time off CPU and without the work of the probe.
    whole
        Whether the worker stayed on its CPU during the service.
    cold
        Whether another worker received the previous message, so that the caches may hold the data of that worker.
    woke, met
        Number of arrivals during the service that woke a worker, and number of arrivals that found no worker waiting.
    woke_early, met_early
        The same numbers for arrivals within the early time, which nearly all services of the type exceed. So these
        numbers do not depend on the length of this service.
    stack
        K_stack.
    first
        Whether no other datagram was between the driver and the socket when the message arrived.
    alone
        Whether the SPS had no other message when the message arrived.
    start
        Time from the socket to the worker, K_sockq + K_copy. The fit uses this time only for messages with `alone`.
    Time from the departure of a worker's previous message to t_sip_in of this message. NaN unless this message already
    waited in the queue at this departure, and no message arrived during this time.
        already waited in the queue, and no message arrived during the time.
    copy, send
        K_copy and K_snd.
    rmem
        Bytes that the kernel charged to the socket.
    """

    kind: npt.NDArray[np.uint8]
    length: npt.NDArray[np.uint16]
    served: NanosecondArray
    whole: Mask
    cold: Mask
    woke: NanosecondArray
    met: NanosecondArray
    woke_early: NanosecondArray
    met_early: NanosecondArray
    stack: NanosecondArray
    first: Mask
    alone: Mask
    start: NanosecondArray
    loop: npt.NDArray[np.float64]
    copy: NanosecondArray
    send: NanosecondArray
    rmem: npt.NDArray[np.uint32]


def read_messages(folder: Path) -> ReceivedMessages:
    """Read the messages that the fit needs from the record of a run.

    Raises
    ------
    StableError
        The record is missing or damaged, has no trace, or is the record of a run on more than one core.
    """
    run = read_record(folder).run
    if run.cores != 1:
        raise StableError(f"{folder}: the fit needs runs on one core, found {run.cores} cores")
    records = read_trace(folder / TRACE_FILE).records
    stacked = np.sort(records["t_stack"].astype("i8"))
    records = records[(records["event"] == Event.MESSAGE) & (records["t_dep"] > 0)]
    records = records[np.argsort(records["t_sip_in"], kind="stable")]
    at = {name: records[name].astype("i8") for name in RECORD.fields or ()}
    departed = np.sort(at["t_dep"])
    # `held` counts the other datagrams that the proxy has not yet sent on when a datagram reaches the socket.
    held = np.arange(len(stacked)) - np.searchsorted(departed, stacked)
    waking = np.concatenate(([0], np.cumsum(held < run.threads)))
    within = [
        np.searchsorted(stacked, instants)
        for instants in (at["t_sip_in"], at["t_sip_out"], at["t_sip_in"] + _early_ns(records))
    ]
    (arrivals, woke), (arrivals_early, woke_early) = (
        (end - within[0], waking[end] - waking[within[0]]) for end in within[1:]
    )
    arrived = np.sort(at["t_arr"])
    held_before = np.searchsorted(stacked, at["t_arr"]) - np.searchsorted(departed, at["t_arr"])
    on_their_way = np.searchsorted(arrived, at["t_arr"]) - np.searchsorted(stacked, at["t_arr"])
    cold = np.concatenate(([True], records["tid"][1:] != records["tid"][:-1]))
    before = np.concatenate(([0], at["t_dep"][:-1]))
    undisturbed = np.searchsorted(stacked, before) == within[0]
    direct = ~cold & (at["t_stack"] < before) & undisturbed
    return ReceivedMessages(
        kind=records["kind"],
        length=records["length"],
        served=at["t_sip_out"] - at["t_sip_in"] - at["in_cost_ns"] - at["off_cpu_ns"],
        whole=records["switches"] == 0,
        cold=cold,
        woke=woke,
        met=arrivals - woke,
        woke_early=woke_early,
        met_early=arrivals_early - woke_early,
        stack=at["t_stack"] - at["t_arr"],
        first=on_their_way <= 0,
        alone=held_before <= 0,
        start=at["t_sip_in"] - at["t_stack"],
        loop=np.where(direct, at["t_sip_in"] - before, np.nan),
        copy=at["t_sip_in"] - at["t_sockq"],
        send=at["t_dep"] - at["t_sip_out"] - at["out_cost_ns"],
        rmem=records["rmem"],
    )


def _early_ns(records: npt.NDArray[Any]) -> NanosecondArray:
    """Return the early time of each message: a time that nearly all service times of the message's type exceed.

    The fit counts arrivals within the early time, because their number does not depend on the length of the service.
    """
    t_sip = (records["t_sip_out"] - records["t_sip_in"]).astype("i8")
    early = np.zeros(len(records), "i8")
    for kind in np.unique(records["kind"]):
        of_kind = records["kind"] == kind
        early[of_kind] = np.quantile(t_sip[of_kind], EARLY)
    return early


def fit(
    runs: Iterable[ReceivedMessages],
    noise: Path | None,
    competitors: Sequence[CompetingPrograms] = (),
) -> Fit:
    """Estimate the simulator's parameters from the pooled messages of runs.

    Parameters
    ----------
    noise
        Path of a `noise.json` of the machine. None: the model has no stalls.
    competitors
        The competitors of the model. The fit excludes gaps that may be bursts of these competitors from the stalls.

    Raises
    ------
    StableError
        No run exists, a message type is missing, the costs cannot be separated at any load, or a time between two
        timestamps is negative.
    """
    pooled = _pool(list(runs))
    lengths = {}
    for number, kind in enumerate(KINDS, start=1):
        of_kind = pooled.length[pooled.kind == number]
        if not of_kind.size:
            raise StableError(f"the fit needs messages of type {kind}, found none")
        lengths[kind] = int(np.median(of_kind))
    every_ns, stall_ns = _stalls(noise, competitors)
    service, cold_ns, woke_ns, met_ns = _services(pooled)
    # The simulator adds stalls of the CPU to the service times, so this code removes stalls from the fitted times.
    unstalled = 1 - stall_ns / every_ns if every_ns else 1.0
    copy_ns = float(np.median(pooled.copy))
    idle, busy = pooled.first & pooled.alone, pooled.first & ~pooled.alone
    stack_ns = float(np.median(pooled.stack[busy]))
    wake_ns = max(woke_ns - met_ns, 0.0)
    numbers = {
        "copy_ns": copy_ns,
        "send_ns": float(np.median(pooled.send)),
        "loop_ns": float(np.nanmean(_without_tail(pooled.loop))) - copy_ns,
        "refill_ns": cold_ns,
        "receive_ns": met_ns,
        "wake_ns": wake_ns,
        "interrupt_ns": stack_ns - met_ns,
        "idle_exit_ns": float(np.median(pooled.stack[idle])) - stack_ns,
        "switch_ns": float(np.median(pooled.start[idle])) - copy_ns - wake_ns,
        "stall_every_ns": every_ns,
        "stall_ns": stall_ns,
        "truesize": int(np.gcd.reduce(pooled.rmem)),
    }
    for name in ("copy_ns", "send_ns", "loop_ns"):
        if not numbers[name] >= 0:
            raise StableError(f"the fit estimates {name} as {numbers[name]:.0f}, which is negative")
    return Fit(
        service={
            kind: Service(times.mean_ns * unstalled, times.scv) for kind, times in service.items()
        },
        lengths=lengths,
        # A cost is the difference of two measured times, so the estimate of a small cost may be negative.
        numbers={name: max(round(value), 0) for name, value in numbers.items()},
        messages=len(pooled.kind),
    )


def _chosen(runs: Mapping[Path, Run]) -> list[Path]:
    """Return up to `RUNS_A_LOAD` runs per load, all with the same number of threads.

    The function chooses the number of threads with runs at the most loads.
    """
    loads: dict[int, set[int]] = {}
    for run in runs.values():
        loads.setdefault(run.threads, set()).add(run.cps)
    threads = max(loads, key=lambda count: (len(loads[count]), count))
    return [f for f, run in runs.items() if run.threads == threads and run.rep <= RUNS_A_LOAD]


def _pool(runs: list[ReceivedMessages]) -> ReceivedMessages:
    if not runs:
        raise StableError("the fit needs records, found none")
    return ReceivedMessages(
        *(
            np.concatenate([getattr(run, field.name) for run in runs])
            for field in fields(ReceivedMessages)
        )
    )


def _services(messages: ReceivedMessages) -> tuple[dict[str, Service], float, float, float]:
    """Estimate the service time per message type, and the CPU time that other events add to a service.

    A regression explains the CPU time within T_sip by the message type, by arrivals during the service, and by a
    previous message that another worker received. The regression uses least squares in two stages. A longer service has
    more arrivals, so the number of arrivals is also an effect of the service time. The instruments for all arrivals are
    therefore the early arrivals, because the number of early arrivals does not depend on the service's length.

    SEE Angrist and Pischke, Mostly Harmless Econometrics, 2009, 4.1

    If another program uses the other hyper-thread of a core, the CPU is slower for seconds. Queues are then longer, and
    no worker waits for arrivals. So each service is divided by the local slowness, alternating with the regression. The
    local slowness is the median ratio of measured to expected service among neighbouring messages. The mean of the
    local slowness is 1.

    Returns
    -------
    service, cold_ns, woke_ns, met_ns
        Service with warm caches and without interruption, and three additional costs: per service that follows a
        service of another worker, per arrival that woke a worker, and per arrival that woke no worker.
    """
    types = messages.kind[:, None] == np.arange(1, len(KINDS) + 1)
    used = messages.whole & types.any(axis=1)
    for of_type in types.T:
        these = messages.served[of_type & messages.whole]
        used &= ~of_type | (messages.served <= np.quantile(these, 1 - TAIL))
    known = np.column_stack((types, messages.cold))
    causes = np.column_stack((known, messages.woke, messages.met))[used].astype("f8")
    early = np.column_stack((known, messages.woke_early, messages.met_early))[used].astype("f8")
    times = messages.served[used].astype("f8")
    slowness = np.ones(len(times))
    for _ in range(TURNS):
        served, _, rank, _ = np.linalg.lstsq(early.T @ causes, early.T @ (times / slowness))
        if rank < causes.shape[1]:
            raise StableError(
                "the fit needs a load at which workers take turns and wait for messages"
            )
        slowness = median_filter(times / (causes @ served), NEIGHBOURS, mode="nearest")
        slowness /= slowness.mean()
    left = times - causes @ served
    service = {
        kind: Service(float(served[i]), float(left[types[used, i]].var() / served[i] ** 2))
        for i, kind in enumerate(KINDS)
    }
    cold_ns, woke_ns, met_ns = map(float, served[len(KINDS) :])
    return service, cold_ns, woke_ns, met_ns


def _without_tail(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return values[values <= np.nanquantile(values, 1 - TAIL)]


def _stalls(noise: Path | None, competitors: Sequence[CompetingPrograms]) -> tuple[float, float]:
    """Return the mean time between two stalls of an idle CPU, and the mean length of a stall; 0 without stalls.

    A gap of an idle CPU may be a burst of a competitor. The simulator adds the bursts of competitors separately, so the
    function excludes the longest gaps from the stalls. The excluded gaps are at least as long as a mean burst, and
    take at most the share of the CPU's time that the competitors use. SCHED_IDLE programs cause hardly any gaps,
    because the program that finds the gaps has the policy SCHED_OTHER.
    """
    if noise is None:
        return 0.0, 0.0
    cpus = json.loads(noise.read_text())["cpus"]
    duration_ns = sum(cpu["duration_ns"] for cpu in cpus)
    gaps = np.concatenate([np.asarray(cpu["gaps_ns"], np.int64) for cpu in cpus])
    gaps = np.sort(gaps[gaps >= SHORTEST_STALL_NS])[::-1]
    interrupting = [one for one in competitors if one.policy != "idle"]
    if interrupting:
        burst_ns = 1000 * min(one.burst_us for one in interrupting)
        used_ns = duration_ns * sum(one.share for one in interrupting)
        gaps = gaps[(gaps < burst_ns) | (np.cumsum(gaps) > used_ns)]
    if not gaps.size:
        return 0.0, 0.0
    return duration_ns / len(gaps), float(gaps.mean())


def find_competitors(accounts: Sequence[Account]) -> tuple[CompetingPrograms, ...]:
    """Return the competitors in the accounts of runs on one core, one entry per scheduling class with `LEAST_SHARE`.

    The share of the CPU's time includes all programs of a class. The length of a burst is the mean over the programs
    that the accounts list by name. Competitors that the testbed declares are included.
    """
    total_ns = sum(account.parts.total for account in accounts)
    found = []
    for part, policy in PARTS.items():
        declared = [task for one in accounts for task in one.planned if _part(task) == part]
        others = [task for one in accounts for task in one.competitors if _part(task) == part]
        tasks = declared + others
        # The account adds the time of declared competitors to the programs of sipsched.
        used_ns = sum(getattr(one.parts, part) for one in accounts)
        used_ns += sum(task.ns for task in declared)
        if not tasks or used_ns < LEAST_SHARE * total_ns:
            continue
        mean_ns = sum(task.ns for task in tasks) / sum(task.bursts for task in tasks)
        burst_us = max(1, round(mean_ns / 1000))
        every_us = round(burst_us * total_ns / used_ns)
        # The simulator's other policies have no nice value.
        nice = max(tasks, key=lambda task: task.ns).nice if policy == "other" else 0
        found.append(CompetingPrograms(policy, nice, burst_us, every_us))
    return tuple(found)


def _part(task: Competitor) -> str:
    """Return the part of the account that contains the CPU time of a competitor with the task's policy."""
    return PARTS_OF_POLICIES.get(task.policy, "fair")


def _source(
    competitors: Sequence[CompetingPrograms], accounts: Sequence[Account], runs: int
) -> str:
    """Return the source of the competitors' numbers, or the reason why the model has no competitors."""
    if not accounts:
        return "no run of the fit has an account of CPU time"
    source = f"the account of CPU time in {len(accounts)} of {plural(runs, 'run')} of the fit"
    if competitors:
        return source
    least = f"{100 * LEAST_SHARE:g}\u00a0%"
    return f"each class of competitors used less than {least} of the CPU's time in {source}"


def fit_campaign(
    records: Iterable[Path], noise: Path | None, suts: Mapping[str, Sut], draws: int = DRAWS
) -> Fitted:
    """Fit the simulator to a campaign's runs in the default mode on one core.

    Parameters
    ----------
    records
        Folders of runs. The fit excludes invalid runs, and runs in other modes, on more cores, of SUTs without a model,
        or without a trace. The fit uses the first SUT and the number of threads with the most loads, because the
        simulator predicts all other settings.
    draws
        Number of bootstrap samples of the runs to which the simulator is also fitted.
    """
    documents = {folder: read_record(folder) for folder in records}
    usable = {
        folder: document
        for folder, document in documents.items()
        if document.run.mode == DEFAULT
        and document.run.cores == 1
        and document.verdict.valid
        and (folder / TRACE_FILE).exists()
        and document.run.sut in suts
        and model_of(suts[document.run.sut])
    }
    if not usable:
        return Fitted(
            why="no trace of a run in the default mode on one core exists for a SUT that a model describes"
        )
    sut = next(iter(usable.values())).run.sut
    model = model_of(suts[sut])
    assert model is not None
    chosen = _chosen({f: document.run for f, document in usable.items() if document.run.sut == sut})
    runs = [read_messages(folder) for folder in chosen]
    reports = [usable[folder].account for folder in chosen]
    accounts = [report.account for report in reports if report and report.account]
    competitors = find_competitors(accounts)
    try:
        fitted = fit(runs, noise, competitors)
    except StableError as error:
        return Fitted(why=str(error))
    samples = tuple(_fits_of_samples(runs, noise, competitors, draws))
    if not samples:
        return Fitted(why="no bootstrap sample of the runs allows the fit to separate the costs")
    first = usable[chosen[0]]
    slices = [document.scheduler.base_slice_ns for document in documents.values()]
    return Fitted(
        sut=sut,
        model=model.name,
        runs=tuple(str(usable[folder].run.path) for folder in chosen),
        messages=fitted.messages,
        kernel="6.18" if first.scheduler.family.startswith("EEVDF") else "5.10",
        base_slice_ns=next((slice_ns for slice_ns in slices if slice_ns), None),
        numbers=fitted.simulator_numbers(),
        draws=tuple(again.simulator_numbers() for again in samples),
        competitors=competitors,
        competitors_source=_source(competitors, accounts, len(chosen)),
    )


def _fits_of_samples(
    runs: Sequence[ReceivedMessages],
    noise: Path | None,
    competitors: Sequence[CompetingPrograms],
    draws: int,
) -> Iterator[Fit]:
    """Fit the simulator to bootstrap samples of the runs. Skip samples from which the costs cannot be estimated."""
    rng = np.random.default_rng(SEED)
    for _ in range(draws):
        with suppress(StableError):
            yield fit([runs[i] for i in rng.integers(0, len(runs), len(runs))], noise, competitors)
