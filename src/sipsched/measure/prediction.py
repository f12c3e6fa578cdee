"""What the simulator, fitted to mode `default`, says of settings that it was not fitted to.

Nothing here reads a measurement: the fit comes as numbers, and what is to be predicted as settings.
"""

import itertools
import os
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sipsched.measure.generator import Arrivals
from sipsched.measure.simulation import Plan, plan_point
from sipsched.measure.simulator import T0_NS, Numbers, Outputs, SimulatorReport, Value, simulate
from sipsched.plan.config import Config, Point, Run
from sipsched.plan.crossover import compared, is_comparison, lengths
from sipsched.plan.modes import DEFAULT, find_mode, load_modes
from sipsched.plan.modes import Setting as Key
from sipsched.plan.simulated import COSTS, KINDS, load_model
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import (
    UNITS,
    CapacityPrediction,
    Carried,
    Predicted,
    Predictions,
    Setting,
)
from sipsched.records.speedups import Deployed
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import Simulated, Testbed, load_testbed

SECONDS = 6.0
"""Of load a replicate; there is one for each draw of the fit."""
ANY_BED = "simulated"
CORES = (1, 2, 4, 8, 16, 32, 64)
THREADS = (4, 8, 16)
"""Tried on any number of cores, beside as many as cores, two more and twice as many."""
CORES_PER_PROCESSOR = 16
TRIAL_CALLS = 8_000
"""Of a trial of a capacity: the receive buffer is full after some hundred."""
TRIAL_S_MIN = 0.5
"""Of one of a deployment: calls ring and hold for 20 ms."""
WINDOWS_MIN = 2
MESSAGES = len(KINDS)
"""Of a call."""
HALVINGS = 6
"""Of a bracket of loads, for a capacity."""
SPEEDUP_HALVINGS, SPEEDUP_DRAWS = 4, 4
"""Likewise around a guess for those of deployments, of which there are many; and samples of the fit for each."""
SPEEDUP_THREADS = (1, 2, 4, 8)
"""Tried, of those that are no fewer than cores; else as many as cores."""
SPEEDUP_CORES_RECEIVED_BY_ONE = (1, 2, 4, 8, 16)
"""More of them add nothing."""
CONNECTIONS = 8
"""Over TCP, of the UAC: as of the SUTs in config/config.yaml."""
LOCKED_MODEL = "opensips-papers"
"""Whose share of the service time under a lock is assumed where the fitted model has none."""
ASSUMED = {
    "migrations cost nothing": {"refill_near_ns": 0, "refill_far_ns": 0, "balance_ns": 0},
    "migrations cost thrice as much": {
        **{"refill_near_ns": 9_000, "refill_far_ns": 45_000},
        **{"balance_ns": 1_500},
    },
    "two CPUs receive": {"receive_cpus": 2},
}
"""What no record of one core tells, and what else it might be."""

Changes = Mapping[str, Any]
Floats = npt.NDArray[np.float64]
Each = TypeVar("Each")
Result = TypeVar("Result")


def predict(fitted: Fitted, runs: Iterable[Run], config: Config) -> Predictions:
    """Predict every setting of runs of the SUT that the model was fitted to.

    Parameters
    ----------
    fitted
        The model; if it is of nothing, nothing is predicted.
    runs
        Planned ones. Of a comparison each mode is a setting; a probe that is stilled is none.
    config
        The campaign.
    """
    chosen = _settings(fitted, runs)
    return Predictions(
        fitted, SECONDS, tuple(_predicted(setting, fitted, config) for setting in chosen)
    )


def still_predicted(
    before: Predictions, fitted: Fitted, runs: Iterable[Run], config: Config
) -> bool:
    """Tell whether `predict` would give this: by fit, settings, and the first of them simulated again."""
    settings = [each.setting for each in before.predicted]
    if (before.fitted, before.seconds, settings) != (fitted, SECONDS, _settings(fitted, runs)):
        return False
    for each in before.predicted[:1]:
        again = _predicted(each.setting, fitted, config)
        for one, other in ((each.whole, again.whole), (each.windows, again.windows)):
            if not np.array_equal(one, other, equal_nan=True):
                return False
    return True


def _predicted(setting: Setting, fitted: Fitted, config: Config) -> Predicted:
    point = Point(ANY_BED, setting.sut, setting.mode, setting.cores, setting.threads)
    plan = plan_point(point, config, _testbed(fitted, setting.cores))
    load = config.load
    if setting.compared:
        load = replace(load, retransmissions=config.crossover.retransmissions)
    window_s, washout_s = _window(setting, fitted, config)
    seconds = max(SECONDS, (1 + WINDOWS_MIN) * window_s) if setting.compared else SECONDS

    def replicate(place: int) -> tuple[Floats, Floats]:
        arrivals = Arrivals(setting.cps, round(seconds * setting.cps), 1 + place)
        records, cpu_us = _served({**plan.at(load, arrivals), **fitted.draws[place]})
        since_s = (records["t_arr"] - T0_NS).astype("f8") / 1e9
        number, within_s = np.divmod(since_s, window_s)
        # the first window fills the queue
        windows = range(1, int(seconds / window_s) if setting.compared else 1)
        cuts = [records[(number == each) & (within_s >= washout_s)] for each in windows]
        return _of(records, cpu_us), np.array([_of(cut, cpu_us) for cut in cuts])

    whole, windows = zip(*_at_once(replicate, range(len(fitted.draws))), strict=True)
    shape = (len(fitted.draws), -1, len(UNITS))
    return Predicted(setting, np.array(whole), np.array(windows).reshape(shape))


def _settings(fitted: Fitted, runs: Iterable[Run]) -> list[Setting]:
    return sorted(set(_settings_of(fitted, runs)))


def _settings_of(fitted: Fitted, runs: Iterable[Run]) -> Iterator[Setting]:
    declared = load_modes()
    for run in runs:
        if run.sut != fitted.sut:
            continue
        for mode in compared(run.mode):
            if Key.RECORDING not in find_mode(mode, declared).overrides:
                several = is_comparison(run.mode)
                yield Setting(run.sut, mode, run.cores, run.threads, run.cps, several)


def _testbed(fitted: Fitted, cores: int) -> Testbed:
    """Put the fit in the place of a machine."""
    machine = Simulated(
        kernel=fitted.kernel,
        processors=-(-cores // CORES_PER_PROCESSOR),
        cores_per_processor=min(cores, CORES_PER_PROCESSOR),
        model=fitted.model,
        without=(),
        base_slice_ns=fitted.base_slice_ns,
    )
    return replace(load_testbed(ANY_BED), simulated=machine)


def _window(setting: Setting, fitted: Fitted, config: Config) -> tuple[float, float]:
    """Give length and washout of windows as a comparison at that load would have them, in s."""
    numbers, design = fitted.numbers, config.crossover
    rest = ("copy_ns", "send_ns", "loop_ns", "receive_ns")
    message_ns = sum(numbers["service_ns"]) / MESSAGES + sum(numbers[name] for name in rest)
    service_s = message_ns / 1e9 / setting.cores
    window_s, washout_s, _ = lengths(service_s * MESSAGES * setting.cps, service_s)
    return design.window_s or window_s, design.washout_s or washout_s


def _served(numbers: Numbers) -> tuple[npt.NDArray[Any], float]:
    """Simulate a run: the records of messages that were served, and the CPU time of one in µs."""
    with tempfile.TemporaryDirectory(prefix="sipsched-predicted-") as name:
        folder = Path(name)
        outputs = Outputs(folder / "trace", folder / "calls", folder / "uac")
        report = simulate(numbers, folder, outputs)
        records = np.frombuffer(outputs.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
    cpu_us = report.charged_ns / max(report.served, 1) / 1000
    return records[records["event"] == Event.MESSAGE], cpu_us


def _of(records: npt.NDArray[Any], cpu_us: float) -> Floats:
    """Give the quantities of `UNITS`, shape (quantity,)."""
    if not len(records):
        return np.full(len(UNITS), np.nan)
    k_rcv = (records["t_sip_in"] - records["t_arr"]).astype("f8") / 1000
    t_sip = (records["t_sip_out"] - records["t_sip_in"]).astype("f8") / 1000
    p90, p95 = np.percentile(t_sip, (90, 95))
    off_share = records["off_cpu_ns"].astype("f8").sum() / 1000 / t_sip.sum()
    waits = (k_rcv.mean(), np.median(k_rcv))
    return np.array([*waits, t_sip.mean(), p90, p95, off_share, cpu_us])


def predict_capacity(fitted: Fitted, config: Config) -> CapacityPrediction:
    """Predict where the packet drop rate crosses its limit, by cores and threads.

    The best number of threads of each number of cores is simulated again with each draw of the fit, and
    with what is assumed of several cores.

    Parameters
    ----------
    fitted
        The model; if it is of nothing, nothing is predicted.
    config
        The campaign: load and limit.
    """
    none = CapacityPrediction(fitted, config.pdr_limit, CORES_PER_PROCESSOR)
    if not fitted.numbers:
        return none
    before = _cpu_s()
    settings = [
        (cores, threads)
        for cores in CORES
        for threads in sorted({*THREADS, cores, cores + 2, 2 * cores})
    ]

    carries = partial(_carries, fitted, config)
    central = replace(none, carried=tuple(_at_once(lambda s: carries(*s, {}), settings)))
    best = [found for cores in CORES if (found := central.best(cores))]

    def again(changes: Changes) -> tuple[Carried, ...]:
        # so many CPUs receive as there are at least
        known = [each for each in best if changes.get("receive_cpus", 1) <= each.cores]
        return tuple(
            _at_once(lambda each: carries(each.cores, each.threads, changes, each.cps), known)
        )

    return replace(
        central,
        draws=tuple(itertools.chain.from_iterable(map(again, fitted.draws))),
        assumed={name: again(changes) for name, changes in ASSUMED.items()},
        cpu_s=_cpu_s() - before,
    )


def still_carried(before: CapacityPrediction, fitted: Fitted, config: Config) -> bool:
    """Tell whether `predict_capacity` would give this: by fit, limit, and the first setting again."""
    if (before.fitted, before.limit) != (fitted, config.pdr_limit):
        return False
    return all(
        _carries(fitted, config, each.cores, each.threads, {}) == each
        for each in before.carried[:1]
    )


def _carries(
    fitted: Fitted,
    config: Config,
    cores: int,
    threads: int,
    changes: Changes,
    guess_cps: float = 0.0,
) -> Carried:
    point = Point(ANY_BED, fitted.sut, DEFAULT, cores, threads)
    plan = plan_point(point, config, _testbed(fitted, cores))
    numbers = {**fitted.numbers, **changes}
    return _capacity(plan, numbers, config, guess_cps, lambda _: TRIAL_CALLS, HALVINGS)


def predict_deployments(fitted: Fitted, config: Config) -> tuple[Deployed, ...]:
    """Predict what each deployment carries by cores, with the number of threads that carries most.

    Received by one CPU, as the model has it; and by each of the cores, from agents of as many addresses.

    Parameters
    ----------
    fitted
        The model; if it is of nothing, nothing is predicted.
    config
        The campaign: load, limit, and the length of a trial over TCP.
    """
    if not fitted.numbers:
        return ()
    model = load_model(fitted.model)
    known = [kind for kind, costs in COSTS.items() if all(name in model.costs for name in costs)]
    locked = [kind for kind in known if kind[1] in ("shared", "sockets")]
    lock_share = float(load_model(LOCKED_MODEL).numbers["lock_share"])
    jobs = [
        *((kind, False, None) for kind in known),
        *((kind, True, None) for kind in known),
        *((kind, True, lock_share) for kind in locked),
    ]
    found = _at_once(lambda job: _deployed(*job, fitted, config), jobs)
    return tuple(itertools.chain.from_iterable(found))


def _deployed(
    kind: tuple[str, str], spread: bool, lock_share: float | None, fitted: Fitted, config: Config
) -> list[Deployed]:
    """Predict one deployment on every number of cores, each from what the one before it carried."""
    transport, deployment = kind
    over_tcp = transport == "tcp"
    name = f"{transport}-{deployment}"
    sut = replace(config.sut(fitted.sut), name=name, transport=transport, deployment=deployment)
    sut = replace(sut, connections=CONNECTIONS if over_tcp else None)
    sut = replace(sut, probe="off" if sut.over_tcp or sut.fronted else None)
    config = replace(config, suts={name: sut})

    def carried(cores: int, threads: int, numbers: Changes, guess_cps: float) -> Carried:
        plan = plan_point(
            Point(ANY_BED, name, DEFAULT, cores, threads), config, _testbed(fitted, cores)
        )
        changes: dict[str, Value] = {"receive_cpus": cores, "peers": cores} if spread else {}
        if lock_share:
            changes["lock_share"] = lock_share
        calls = partial(_trial_calls, plan, config)
        changed = {**numbers, **changes}
        return _capacity(plan, changed, config, guess_cps, calls, SPEEDUP_HALVINGS)

    assumed = (
        *((f"{CONNECTIONS} connections",) if over_tcp else ()),
        "each core receives" if spread else "one CPU receives",
        f"assumed lock share {lock_share:g}" if lock_share else "no lock",
    )
    rows: list[Deployed] = []
    for cores in CORES if spread else SPEEDUP_CORES_RECEIVED_BY_ONE:
        guess_cps = rows[-1].cps * cores / rows[-1].cores if rows else 0.0
        tried = []
        options = {max(cores, each) for each in SPEEDUP_THREADS}
        # on the CPU that receives a worker gets less: another one helps where a socket has one worker
        for threads in sorted(options if spread else {*options, 2 * cores}):
            tried.append(carried(cores, threads, fitted.numbers, guess_cps))
            guess_cps = tried[-1].cps
        best = max(tried, key=lambda each: (each.cps, -each.threads))
        draws = () if lock_share else fitted.draws[:SPEEDUP_DRAWS]
        rows.append(
            Deployed(
                deployment=deployment,
                transport=transport,
                cores=cores,
                threads=best.threads,
                receive_cpus=cores if spread else 1,
                model=f"{fitted.model} fitted to {len(fitted.runs)} runs; {', '.join(assumed)}",
                cps=best.cps,
                drawn=tuple(carried(cores, best.threads, each, best.cps).cps for each in draws),
            )
        )
    return rows


def _trial_calls(plan: Plan, config: Config, cps: float) -> int:
    """Count the calls of a trial: its beginning, and what its sockets' buffers hold, are to be little of it."""
    if plan.sut.over_tcp:
        return round(cps * config.search.trial_s)
    sockets = plan.point.threads if plan.sut.deployment != "shared" else 1
    return max(TRIAL_CALLS * max(1, sockets // 2), round(cps * TRIAL_S_MIN))


def _capacity(
    plan: Plan,
    numbers: Changes,
    config: Config,
    guess_cps: float,
    calls: Callable[[float], int],
    halvings: int,
) -> Carried:
    """Close in on the crossing, from both sides of a guess or of what the service times allow.

    A load is carried where the packet drop rate, over TCP the share of calls that fail or are late, is at or under
    the limit and no CPU is full with receiving.
    """
    cores, threads = plan.point.cores, plan.point.threads

    def trial(cps: float) -> SimulatorReport:
        arrivals = Arrivals(round(cps), calls(cps), 1)
        whole = {**plan.at(config.load, arrivals), **numbers}
        with tempfile.TemporaryDirectory(prefix="sipsched-predicted-") as folder:
            return simulate(whole, Path(folder))

    def receive_share(report: SimulatorReport, cps: float) -> float:
        return max(cpu.receive for cpu in report.cpus) * cps / calls(cps) / 1e9

    def is_carried(report: SimulatorReport, cps: float) -> bool:
        # ASSUME a CPU that is full with receiving loses datagrams before the socket (netdev_max_backlog): the model's
        # backlog has no end
        lost, reached = report.refused, report.received + report.refused
        if plan.sut.over_tcp:
            lost, reached = report.calls_started - report.calls_good, report.calls_started
        return lost <= config.pdr_limit * max(reached, 1) and receive_share(report, cps) < 1

    lower, upper = guess_cps * 0.85, guess_cps * 1.15
    if not guess_cps:
        # a bit of what the service times alone allow, by workers and by the CPU that receives
        upper = min(cores, threads) * 1e9 / sum(numbers["service_ns"])
        upper = min(upper, 1e9 / MESSAGES / max(numbers["receive_ns"], 1))
        lower = upper / 3
    found = trial(lower)
    while not is_carried(found, lower):
        lower, upper = lower / 1.5, lower
        found = trial(lower)
    while is_carried(trial(upper), upper):
        lower, upper = upper, upper * 1.5
    for _ in range(halvings if guess_cps else HALVINGS):
        middle = (lower * upper) ** 0.5
        report = trial(middle)
        if is_carried(report, middle):
            lower, found = middle, report
        else:
            upper = middle
    busy = [1 - cpu.idle / found.t_end_ns for cpu in found.cpus]
    cps = (lower * upper) ** 0.5
    return Carried(cores, threads, cps, receive_share(found, lower), float(np.mean(busy)))


def _at_once(do: Callable[[Each], Result], jobs: Sequence[Each]) -> list[Result]:
    """Do jobs side by side: the simulator is a process of its own."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(do, jobs))


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
