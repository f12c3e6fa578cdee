"""Numbers of a model for the simulator, from recorded runs on one core and a recorded look at the idle CPU.

What a message costs depends on what came before it: who is switched in finds the caches of another worker, an
arrival interrupts, and a sleeping worker has to be woken. Each of these is taken from the instants that show it,
of mode `default` alone; docs/simulator.md has the table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from sipsched.errors import StableError
from sipsched.plan.config import Run, Sut
from sipsched.plan.modes import DEFAULT
from sipsched.plan.simulated import KINDS, fitted_numbers, model_of
from sipsched.records.fitted import Fitted
from sipsched.records.record import TRACE_FILE, read_record
from sipsched.records.trace import RECORD, Event, read_trace

TAIL = 0.001
"""Share of the longest services of a type that is left out: stalls, which the model has by themselves."""
EARLY = 0.05
"""Quantile of the services of a type within which arrivals are counted, too: few end before it."""
SHORTEST_STALL_NS = 5_000
NEIGHBOURS, TURNS = 65, 10
"""Messages over which the speed of a CPU is taken, some 5 ms at 2000 cps; turns until nothing changes by 1 %."""
RUNS_A_LOAD = 3
DRAWS = 8
"""Fits to samples of the runs, for what their number and their differences leave open."""
SEED = 1

Nanoseconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Service:
    """Of one message type: mean CPU time between recv and send with warm caches, and variance over its square."""

    mean_ns: float
    scv: float


@dataclass(frozen=True)
class Fit:
    """What records tell of a model's numbers.

    Attributes
    ----------
    service, lengths
        By message type.
    numbers
        By the names of a model's file.
    messages
        How many messages it is from.
    """

    service: dict[str, Service]
    lengths: dict[str, int]
    numbers: dict[str, int]
    messages: int

    def simulator_numbers(self) -> dict[str, Any]:
        """Give the numbers by the simulator's names."""
        mean_ns = {kind: each.mean_ns for kind, each in self.service.items()}
        scv = {kind: each.scv for kind, each in self.service.items()}
        return fitted_numbers(self.numbers, self.lengths, mean_ns, scv)


@dataclass(frozen=True)
class Messages:
    """Messages of runs on one core, in the order in which workers received them; times in ns.

    Attributes
    ----------
    kind, length
        Number of the type; bytes of payload.
    served
        T_sip without the time off CPU and without the probe's work.
    whole
        Whether the worker was not switched out meanwhile.
    cold
        Whether another worker had received the message before.
    woke, met
        Arrivals within the service that woke a worker, and that found none waiting.
    woke_early, met_early
        Of these, those within the time that nearly all services of the type last: of how long this one is by
        itself they know nothing.
    stack
        K_stack.
    first
        Whether no other datagram was on its way to the socket when it arrived.
    alone
        Whether the SPS held no other message when it arrived.
    start
        From the socket to the worker of those alone, K_sockq + K_copy.
    loop
        From a worker's departure to its next t_sip_in, of those that waited in the queue by then and
        met no arrival; NaN of others.
    copy, send
        K_copy, K_snd.
    rmem
        Charged to the socket.
    """

    kind: npt.NDArray[np.uint8]
    length: npt.NDArray[np.uint16]
    served: Nanoseconds
    whole: Mask
    cold: Mask
    woke: Nanoseconds
    met: Nanoseconds
    woke_early: Nanoseconds
    met_early: Nanoseconds
    stack: Nanoseconds
    first: Mask
    alone: Mask
    start: Nanoseconds
    loop: npt.NDArray[np.float64]
    copy: Nanoseconds
    send: Nanoseconds
    rmem: npt.NDArray[np.uint32]


def read_messages(folder: Path) -> Messages:
    """Take from a run's record what the fit needs.

    Raises
    ------
    StableError
        The record is missing or damaged, has no trace, or is of more than one core.
    """
    run = read_record(folder).run
    if run.cores != 1:
        raise StableError(f"{folder}: a model is fitted to runs on one core, found {run.cores}")
    found = read_trace(folder / TRACE_FILE).records
    stacked = np.sort(found["t_stack"].astype("i8"))
    found = found[(found["event"] == Event.MESSAGE) & (found["t_dep"] > 0)]
    found = found[np.argsort(found["t_sip_in"], kind="stable")]
    at = {name: found[name].astype("i8") for name in RECORD.fields or ()}
    departed = np.sort(at["t_dep"])
    # how many the SPS held when each datagram came to the socket, itself left out
    held = np.arange(len(stacked)) - np.searchsorted(departed, stacked)
    waking = np.concatenate(([0], np.cumsum(held < run.threads)))
    within = [
        np.searchsorted(stacked, instants)
        for instants in (at["t_sip_in"], at["t_sip_out"], at["t_sip_in"] + _early_ns(found))
    ]
    (arrivals, woke), (arrivals_early, woke_early) = (
        (end - within[0], waking[end] - waking[within[0]]) for end in within[1:]
    )
    arrived = np.sort(at["t_arr"])
    held_before = np.searchsorted(stacked, at["t_arr"]) - np.searchsorted(departed, at["t_arr"])
    on_their_way = np.searchsorted(arrived, at["t_arr"]) - np.searchsorted(stacked, at["t_arr"])
    cold = np.concatenate(([True], found["tid"][1:] != found["tid"][:-1]))
    before = np.concatenate(([0], at["t_dep"][:-1]))
    undisturbed = np.searchsorted(stacked, before) == within[0]
    direct = ~cold & (at["t_stack"] < before) & undisturbed
    return Messages(
        kind=found["kind"],
        length=found["length"],
        served=at["t_sip_out"] - at["t_sip_in"] - at["in_cost_ns"] - at["off_cpu_ns"],
        whole=found["switches"] == 0,
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
        rmem=found["rmem"],
    )


def _early_ns(records: npt.NDArray[Any]) -> Nanoseconds:
    """Give for each message the time that nearly all services of its type last."""
    t_sip = (records["t_sip_out"] - records["t_sip_in"]).astype("i8")
    early = np.zeros(len(records), "i8")
    for kind in np.unique(records["kind"]):
        of_kind = records["kind"] == kind
        early[of_kind] = np.quantile(t_sip[of_kind], EARLY)
    return early


def fit(runs: Iterable[Messages], noise: Path | None) -> Fit:
    """Fit a model to the messages of runs, pooled.

    Parameters
    ----------
    runs
        Of each run, `read_messages`.
    noise
        A `noise.json` of the machine; None: it has no stalls.

    Raises
    ------
    StableError
        There is no run, a type of message is missing, no load tells the costs apart, or a time between two
        instants comes to less than 0.
    """
    pooled = _pool(list(runs))
    lengths = {}
    for number, kind in enumerate(KINDS, start=1):
        of_kind = pooled.length[pooled.kind == number]
        if not of_kind.size:
            raise StableError(f"no message {kind} to fit a model to")
        lengths[kind] = int(np.median(of_kind))
    every_ns, stall_ns = _stalls(noise)
    service, cold_ns, woke_ns, met_ns = _services(pooled)
    # the stalls are in the service times, too, and the model has them by themselves
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
            raise StableError(f"records to fit a model to: {name} comes to {numbers[name]:.0f}")
    return Fit(
        service={
            kind: Service(each.mean_ns * unstalled, each.scv) for kind, each in service.items()
        },
        lengths=lengths,
        # a cost that is a difference of two means may come to less than 0 where it is not seen
        numbers={name: max(round(value), 0) for name, value in numbers.items()},
        messages=len(pooled.kind),
    )


def _chosen(runs: Mapping[Path, Run]) -> list[Path]:
    """Take the number of threads that was measured at most loads, and of each load some runs."""
    loads: dict[int, set[int]] = {}
    for run in runs.values():
        loads.setdefault(run.threads, set()).add(run.cps)
    threads = max(loads, key=lambda count: (len(loads[count]), count))
    return [f for f, run in runs.items() if run.threads == threads and run.rep <= RUNS_A_LOAD]


def _pool(runs: list[Messages]) -> Messages:
    if not runs:
        raise StableError("no records to fit a model to")
    return Messages(
        *(np.concatenate([getattr(run, each.name) for run in runs]) for each in fields(Messages))
    )


def _services(messages: Messages) -> tuple[dict[str, Service], float, float, float]:
    """Regress T_sip on the CPU on what came before and meanwhile, by least squares in two stages.

    A service that is long by itself meets more arrivals. So the arrivals of its first part, which it did not
    choose, stand for all of them.
    SEE Angrist and Pischke, Mostly Harmless Econometrics, 2009, 4.1

    A CPU whose other half somebody else uses is slower for seconds; queues are longer then, and arrivals
    find no worker waiting. So each message is divided by the speed about it, in turns with the regression:
    the median of what its neighbours took over what is expected of them. Speeds are 1 on average.

    Returns
    -------
    service, cold_ns, woke_ns, met_ns
        Of a warm worker that nothing interrupts; and what is more after another worker, with an arrival
        that woke a worker, and with one that did not.
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
                "records to fit a model to: no load at which workers take turns and wait"
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


def _stalls(noise: Path | None) -> tuple[float, float]:
    """Give the mean time between gaps that count as stalls, and their mean length; 0 without any."""
    if noise is None:
        return 0.0, 0.0
    cpus = json.loads(noise.read_text())["cpus"]
    gaps = np.concatenate([np.asarray(cpu["gaps_ns"], np.int64) for cpu in cpus])
    gaps = gaps[gaps >= SHORTEST_STALL_NS]
    if not gaps.size:
        return 0.0, 0.0
    return sum(cpu["duration_ns"] for cpu in cpus) / len(gaps), float(gaps.mean())


def fit_campaign(
    records: Iterable[Path], noise: Path | None, suts: Mapping[str, Sut], draws: int = DRAWS
) -> Fitted:
    """Fit the simulator to what a campaign has of mode `default` on one core with its traces.

    Parameters
    ----------
    records
        Folders of runs; those of other modes, of more cores, of SUTs that there is no model of, and without
        a trace are left out. Of several SUTs the first is taken, of several numbers of threads the one of most
        loads: what others do is to be predicted.
    noise
        A `noise.json` of the machine; None: it has no stalls.
    suts
        Of the campaign.
    draws
        How many samples of the runs, drawn with replacement, are fitted too.
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
            why="no run of mode default on one core, of a SUT that there is a model of, has its trace"
        )
    sut = next(iter(usable.values())).run.sut
    model = model_of(suts[sut])
    assert model is not None
    chosen = _chosen({f: document.run for f, document in usable.items() if document.run.sut == sut})
    runs = [read_messages(folder) for folder in chosen]
    try:
        found = fit(runs, noise)
    except StableError as error:
        return Fitted(why=str(error))
    samples = tuple(_fits_of_samples(runs, noise, draws))
    if not samples:
        return Fitted(why="records to fit a model to: no sample of the runs tells the costs apart")
    first = usable[chosen[0]]
    slices = [each.scheduler.base_slice_ns for each in documents.values()]
    return Fitted(
        sut=sut,
        model=model.name,
        runs=tuple(str(usable[folder].run.path) for folder in chosen),
        messages=found.messages,
        kernel="6.18" if first.scheduler.family.startswith("EEVDF") else "5.10",
        base_slice_ns=next((slice_ns for slice_ns in slices if slice_ns), None),
        numbers=found.simulator_numbers(),
        draws=tuple(again.simulator_numbers() for again in samples),
    )


def _fits_of_samples(runs: Sequence[Messages], noise: Path | None, draws: int) -> Iterator[Fit]:
    """Fit samples of the runs; one whose runs do not tell the costs apart is none."""
    rng = np.random.default_rng(SEED)
    for _ in range(draws):
        with suppress(StableError):
            yield fit([runs[i] for i in rng.integers(0, len(runs), len(runs))], noise)
