"""Predictions of the simulator for settings whose measurements were not used to fit the simulator.

The simulator is fitted to runs of the default mode. This module reads no measurement. Its only inputs are the fitted
parameters and the settings to predict.
"""

import itertools
import os
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
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulator import (
    T0_NS,
    ModelNumbers,
    Outputs,
    SimulatorReport,
    Value,
    simulate,
)
from sipsched.plan.config import Config
from sipsched.plan.crossover import compared, is_comparison, lengths, washout_tail_s
from sipsched.plan.modes import DEFAULT, find_mode, load_modes
from sipsched.plan.modes import Setting as Key
from sipsched.plan.run import Point, Run
from sipsched.plan.simulated import KINDS, load_model
from sipsched.plan.sut import DEPLOYMENTS, Deployment, Transport
from sipsched.records.fitted import Fitted, is_same_fit
from sipsched.records.prediction import (
    UNITS,
    CapacityOfCores,
    CapacityPrediction,
    Floats,
    Predicted,
    PredictedSetting,
    Predictions,
)
from sipsched.records.speedups import Deployed
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import DeclaredCompetitor, SimulatedMachine, Testbed, load_testbed

SECONDS = 6.0
"""Duration of the load of a simulated run, in seconds. The simulator runs once per sample of the fitted parameters."""
ANY_BED = "simulated"
CORES = (1, 2, 4, 8, 16, 32, 64)
THREADS = (4, 8, 16)
"""Numbers of threads to try in addition to n, n + 2 and 2n, where n is the number of cores."""
CORES_PER_PROCESSOR = 16
TRIAL_CALLS = 8_000
"""Least number of calls of a trial over UDP, per two sockets. An overload fills a receive buffer in some 100 calls."""
WINDOWS_MIN = 2
MESSAGES = len(KINDS)
"""Number of messages of a call."""
HALVINGS = 6
"""Number of times that the search for a capacity halves the interval of loads."""
SPEEDUP_HALVINGS, SPEEDUP_DRAWS = 4, 4
"""For capacities of deployments: number of halvings of the interval, and number of bootstrap samples of the fit."""
SPEEDUP_THREADS = (1, 2, 4, 8)
"""Numbers of threads to try per deployment. The number of cores replaces a smaller number of threads."""
SPEEDUP_CORES_RECEIVED_BY_ONE = (1, 2, 4, 8, 16)
"""Numbers of cores to simulate if one CPU receives all messages. More than 16 cores would not raise the capacity."""
CONNECTIONS = 8
"""Number of persistent TCP connections of the UAC, as in the SUTs of config/config.yaml."""
LOCKED_MODEL = "opensips-papers"
"""Name of the model whose lock share is assumed if the fitted model has no lock share."""
ASSUMED = {
    "migrations cost nothing": {"refill_near_ns": 0, "refill_far_ns": 0, "balance_ns": 0},
    "migrations cost thrice as much": {
        **{"refill_near_ns": 9_000, "refill_far_ns": 45_000},
        **{"balance_ns": 1_500},
    },
    "two CPUs receive": {"receive_cpus": 2},
}
"""Alternative assumptions about proxies on several cores. Records from one core cannot decide between them."""

Changes = Mapping[str, Any]
Each = TypeVar("Each")
Result = TypeVar("Result")


def predict(fitted: Fitted, runs: Iterable[Run], config: Config) -> Predictions:
    """Simulate each setting of the planned runs with the fitted parameters, and return the predictions.

    Parameters
    ----------
    fitted
        The fitted model. If no run was available for the fit, nothing is predicted.
    runs
        The planned runs. In a run that compares modes or proxy instances, each mode or instance is a separate setting.
        Modes that switch the probe's recording off are excluded, and so are instances with another SUT or receive
        buffer.
    """
    chosen = _settings(fitted, runs)
    return Predictions(
        fitted, SECONDS, tuple(_predicted(setting, fitted, config) for setting in chosen)
    )


def still_predicted(
    before: Predictions, fitted: Fitted, runs: Iterable[Run], config: Config
) -> bool:
    """Return True if earlier predictions are still valid, because `predict` would return the same predictions again.

    The fit and the settings must be equal, and a new simulation of the first setting must give the same numbers. The
    new simulation uses the parameters of the earlier predictions, which can differ from the new fit by rounding errors.
    """
    settings = [predicted.setting for predicted in before.predicted]
    if (before.seconds, settings) != (SECONDS, _settings(fitted, runs)):
        return False
    if not is_same_fit(before.fitted, fitted):
        return False
    for first in before.predicted[:1]:
        again = _predicted(first.setting, before.fitted, config)
        for one, other in ((first.whole, again.whole), (first.windows, again.windows)):
            if not np.array_equal(one, other, equal_nan=True):
                return False
    return True


def _predicted(setting: PredictedSetting, fitted: Fitted, config: Config) -> Predicted:
    point = Point(ANY_BED, setting.sut, setting.mode, setting.cores, setting.threads)
    plan = plan_point(point, config, _testbed(fitted, setting.cores))
    load = config.load
    if setting.compared:
        load = replace(load, retransmissions=config.crossover.retransmissions)
    window_s, washout_s = _window(setting, fitted, config)
    seconds = max(SECONDS, (1 + WINDOWS_MIN) * window_s) if setting.compared else SECONDS

    def replicate(index: int) -> tuple[Floats, Floats]:
        arrivals = Arrivals(setting.cps, round(seconds * setting.cps), 1 + index)
        records, cpu_us = _served({**plan.at(load, arrivals), **fitted.draws[index]})
        since_s = (records["t_arr"] - T0_NS).astype("f8") / 1e9
        number, within_s = np.divmod(since_s, window_s)
        # The first window is excluded, because the queue is empty at its start.
        windows = range(1, int(seconds / window_s) if setting.compared else 1)
        cuts = [records[(number == window) & (within_s >= washout_s)] for window in windows]
        return _of(records, cpu_us), np.array([_of(cut, cpu_us) for cut in cuts])

    whole, windows = zip(*_at_once(replicate, range(len(fitted.draws))), strict=True)
    shape = (len(fitted.draws), -1, len(UNITS))
    return Predicted(setting, np.array(whole), np.array(windows).reshape(shape))


def _settings(fitted: Fitted, runs: Iterable[Run]) -> list[PredictedSetting]:
    return sorted(set(_settings_of(fitted, runs)))


def _settings_of(fitted: Fitted, runs: Iterable[Run]) -> Iterator[PredictedSetting]:
    declared = load_modes()
    for run in runs:
        if run.sut != fitted.sut:
            continue
        if not is_comparison(run.mode):
            yield PredictedSetting(run.sut, run.mode, run.cores, run.threads, run.cps, False)
            continue
        for mode in compared(run.mode):
            setting = PredictedSetting.of_mode(run.sut, mode, run.cores, run.threads, run.cps)
            if setting and Key.RECORDING not in find_mode(mode, declared).overrides:
                yield setting


def _testbed(fitted: Fitted, cores: int) -> Testbed:
    """Return a simulated testbed with the fitted parameters, and with competitors on the first CPU.

    The model is fitted to runs on one core, so the competitors were seen only on the proxy's first CPU.
    """
    machine = SimulatedMachine(
        kernel=fitted.kernel,
        processors=-(-cores // CORES_PER_PROCESSOR),
        cores_per_processor=min(cores, CORES_PER_PROCESSOR),
        model=fitted.model,
        without=(),
        base_slice_ns=fitted.base_slice_ns,
    )
    competitors = tuple(
        DeclaredCompetitor(
            name=f"sched-{one.policy}",
            busy_us=one.burst_us,
            period_us=one.every_us,
            cpus=(0,),
            policy=one.policy,
            nice=one.nice,
        )
        for one in fitted.competitors
    )
    return replace(load_testbed(ANY_BED), simulated=machine, competitors=competitors)


def _window(setting: PredictedSetting, fitted: Fitted, config: Config) -> tuple[float, float]:
    """Return the length in seconds of a window (a stretch of time in one mode), and of its excluded start."""
    numbers = fitted.numbers
    rest = ("copy_ns", "send_ns", "loop_ns", "receive_ns")
    message_ns = sum(numbers["service_ns"]) / MESSAGES + sum(numbers[name] for name in rest)
    service_s = message_ns / 1e9 / setting.cores
    busy = service_s * MESSAGES * setting.cps
    tail_s = washout_tail_s(config.load)
    window_s, washout_s, _ = lengths(config.crossover, busy, service_s, tail_s)
    return window_s, washout_s


def _served(numbers: ModelNumbers) -> tuple[npt.NDArray[Any], float]:
    """Simulate a run, and return the records of the served messages and the CPU time per message in µs."""
    with tempfile.TemporaryDirectory(prefix="sipsched-predicted-") as name:
        folder = Path(name)
        outputs = Outputs(folder / "trace", folder / "calls", folder / "uac")
        report = simulate(numbers, folder, outputs)
        records = np.frombuffer(outputs.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
    cpu_us = report.charged_ns / max(report.served, 1) / 1000
    return records[records["event"] == Event.MESSAGE], cpu_us


def _of(records: npt.NDArray[Any], cpu_us: float) -> Floats:
    """Return the quantities in `UNITS`, such as the mean waiting time, for the messages in the given trace records."""
    if not len(records):
        return np.full(len(UNITS), np.nan)
    k_rcv = (records["t_sip_in"] - records["t_arr"]).astype("f8") / 1000
    t_sip = (records["t_sip_out"] - records["t_sip_in"]).astype("f8") / 1000
    p90, p95 = np.percentile(t_sip, (90, 95))
    off_share = records["off_cpu_ns"].astype("f8").sum() / 1000 / t_sip.sum()
    waits = (k_rcv.mean(), np.median(k_rcv))
    return np.array([*waits, t_sip.mean(), p90, p95, off_share, cpu_us])


def predict_capacity(fitted: Fitted, config: Config) -> CapacityPrediction:
    """Predict the load at which the packet drop rate passes its limit, for several numbers of cores and threads.

    For each number of cores, the number of threads with the highest capacity is simulated again: with each sample of
    the fit, and with each assumption about proxies on several cores.
    """
    none = CapacityPrediction(fitted, config.pdr_limit, CORES_PER_PROCESSOR)
    if not fitted.numbers:
        return none
    settings = [
        (cores, threads)
        for cores in CORES
        for threads in sorted({*THREADS, cores, cores + 2, 2 * cores})
    ]

    carries = partial(predict_carried, fitted, config)
    central = replace(none, carried=tuple(_at_once(lambda s: carries(*s, {}), settings)))
    best = [capacity for cores in CORES if (capacity := central.best(cores))]

    def again(changes: Changes) -> tuple[CapacityOfCores, ...]:
        # A proxy with fewer than N cores cannot have N receiving CPUs, so apply the assumption only to proxies with at
        # least N cores.
        known = [carried for carried in best if changes.get("receive_cpus", 1) <= carried.cores]
        return tuple(
            _at_once(
                lambda carried: carries(carried.cores, carried.threads, changes, carried.cps), known
            )
        )

    return replace(
        central,
        draws=tuple(itertools.chain.from_iterable(map(again, fitted.draws))),
        assumed={name: again(changes) for name, changes in ASSUMED.items()},
    )


def still_carried(before: CapacityPrediction, fitted: Fitted, config: Config) -> bool:
    """Return True if an earlier capacity prediction is still valid: `predict_capacity` would return the same result.

    The fit and the limit must be equal, and a new simulation of the first setting must find the same capacity. As in
    `still_predicted`, the new simulation uses the parameters of the earlier prediction.
    """
    if before.limit != config.pdr_limit or not is_same_fit(before.fitted, fitted):
        return False
    return all(
        predict_carried(before.fitted, config, carried.cores, carried.threads, {}) == carried
        for carried in before.carried[:1]
    )


def predict_carried(
    fitted: Fitted,
    config: Config,
    cores: int,
    threads: int,
    changes: Changes,
    guess_cps: float = 0.0,
) -> CapacityOfCores:
    """Predict the capacity of the SUT `fitted.sut` with a number of cores and workers, in the default mode.

    Parameters
    ----------
    changes
        Parameters of the simulator that replace the fitted ones.
    guess_cps
        A guess of the capacity in calls per second; 0 means no guess.
    """
    point = Point(ANY_BED, fitted.sut, DEFAULT, cores, threads)
    plan = plan_point(point, config, _testbed(fitted, cores))
    numbers = {**fitted.numbers, **changes}
    calls = partial(_trial_calls, plan, config)
    return _capacity(plan, numbers, config, guess_cps, calls, HALVINGS)


def predict_deployments(fitted: Fitted, config: Config) -> tuple[Deployed, ...]:
    """Predict the capacity of each deployment for several numbers of cores, with the best number of threads.

    The first prediction assumes a single CPU that receives all messages, as in the model. The second prediction assumes
    that all cores receive messages, and that UAC and UAS have one address per core.
    """
    if not fitted.numbers:
        return ()
    model = load_model(fitted.model)
    known = [
        kind
        for kind, arrangement in DEPLOYMENTS.items()
        if all(name in model.costs for name in arrangement.costs.values())
    ]
    locked = [kind for kind in known if kind[1] in ("shared", "sockets")]
    lock_share = float(load_model(LOCKED_MODEL).numbers["lock_share"])
    jobs = [
        *((kind, False, None) for kind in known),
        *((kind, True, None) for kind in known),
        *((kind, True, lock_share) for kind in locked),
    ]
    rows = _at_once(lambda job: _deployed(*job, fitted, config), jobs)
    return tuple(itertools.chain.from_iterable(rows))


def _deployed(
    kind: tuple[Transport, Deployment],
    spread: bool,
    lock_share: float | None,
    fitted: Fitted,
    config: Config,
) -> list[Deployed]:
    """Predict the capacity of one deployment for each number of cores, from few to many cores."""
    transport, deployment = kind
    over_tcp = transport == "tcp"
    name = f"{transport}-{deployment}"
    sut = replace(config.sut(fitted.sut), name=name, transport=transport, deployment=deployment)
    sut = replace(sut, connections=CONNECTIONS if over_tcp else None)
    sut = replace(sut, probe="off" if sut.over_tcp or sut.fronted else None)
    config = replace(config, suts={name: sut})

    def carried(cores: int, threads: int, numbers: Changes, guess_cps: float) -> CapacityOfCores:
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
        options = {max(cores, threads) for threads in SPEEDUP_THREADS}
        # If one CPU receives all messages, workers on this CPU are slower, so more workers than cores can increase
        # the capacity.
        for threads in sorted(options if spread else {*options, 2 * cores}):
            tried.append(carried(cores, threads, fitted.numbers, guess_cps))
            guess_cps = tried[-1].cps
        best = max(tried, key=lambda carried_by: (carried_by.cps, -carried_by.threads))
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
                drawn=tuple(carried(cores, best.threads, sample, best.cps).cps for sample in draws),
            )
        )
    return rows


def _trial_calls(plan: SimulatedPoint, config: Config, cps: float) -> int:
    """Return the number of calls in a trial, which is at least as long as a trial on a real testbed.

    In a shorter trial, the empty queues at its start influence the share of lost messages, and retransmissions hardly
    begin, because the first retransmission follows after T1 = 500 ms. The predicted capacity would be too high.
    """
    calls = round(cps * config.search.trial_s)
    if plan.sut.over_tcp:
        return calls
    sockets = plan.point.threads if plan.sut.deployment != "shared" else 1
    return max(TRIAL_CALLS * max(1, sockets // 2), calls)


def _capacity(
    plan: SimulatedPoint,
    numbers: Changes,
    config: Config,
    guess_cps: float,
    calls: Callable[[float], int],
    halvings: int,
) -> CapacityOfCores:
    """Search by bisection for the capacity, which is the highest load (calls per second) within the drop limit.

    A load is below the capacity if the packet drop rate is at most the limit, and if receive softirqs saturate no CPU.
    Over TCP, the share of calls that fail or are late replaces the packet drop rate.
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
        # ASSUME a CPU that is saturated by receiving loses datagrams before they reach the socket (netdev_max_backlog).
        # The model has no such loss, because its queue before the socket is unlimited. A load that saturates a
        # receiving CPU therefore counts as above the capacity.
        lost, reached = report.refused, report.received + report.refused
        if plan.sut.over_tcp:
            lost, reached = report.calls_started - report.calls_good, report.calls_started
        return lost <= config.pdr_limit * max(reached, 1) and receive_share(report, cps) < 1

    lower, upper = guess_cps * 0.85, guess_cps * 1.15
    if not guess_cps:
        # The capacity is below the load at which the workers or the receiving CPU would be busy all the time.
        upper = min(cores, threads) * 1e9 / sum(numbers["service_ns"])
        upper = min(upper, 1e9 / MESSAGES / max(numbers["receive_ns"], 1))
        lower = upper / 3
    best = trial(lower)
    while not is_carried(best, lower):
        lower, upper = lower / 1.5, lower
        best = trial(lower)
    while is_carried(trial(upper), upper):
        lower, upper = upper, upper * 1.5
    for _ in range(halvings if guess_cps else HALVINGS):
        middle = (lower * upper) ** 0.5
        report = trial(middle)
        if is_carried(report, middle):
            lower, best = middle, report
        else:
            upper = middle
    busy = [1 - cpu.idle / best.t_end_ns for cpu in best.cpus]
    cps = (lower * upper) ** 0.5
    return CapacityOfCores(cores, threads, cps, receive_share(best, lower), float(np.mean(busy)))


def _at_once(do: Callable[[Each], Result], jobs: Sequence[Each]) -> list[Result]:
    """Call a function for each job in parallel threads, and return the results in the order of the jobs.

    Threads use all CPUs, because each job runs the simulator as a separate process.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(do, jobs))
