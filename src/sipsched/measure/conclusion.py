"""The last step of a run: judge the results of a measured or simulated load, and write them to `run.json`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from sipsched.measure.account import CpuAccount
from sipsched.measure.findings import (
    Evidence,
    causes,
    check_one_thread,
    compare_requests,
    failed_calls,
    instances_of_calls,
    numbers,
    silent_calls,
)
from sipsched.measure.generator import Sipload, Starts
from sipsched.measure.observed import Observed
from sipsched.measure.proxy import lines_by_instance
from sipsched.measure.switching import Playable
from sipsched.measure.tuning import Tuned
from sipsched.plan.loads import Load
from sipsched.plan.run import Run, TestbedLabels
from sipsched.plan.sut import Sut
from sipsched.records.cpu_report import AccountReport, FactorReport, SpeedIndex
from sipsched.records.load_report import GeneratorReport, OfferedLoad
from sipsched.records.probe_report import ProbeReport
from sipsched.records.record import COUNTERS_FILE, TRACE_FILE, UnfinishedRecord
from sipsched.records.run_document import HostReports, RunDocument, Settings, Timeline
from sipsched.records.switch_log import WINDOWS_FILE, WindowsDocument
from sipsched.records.trace import read_trace
from sipsched.validity.certificate import certify
from sipsched.validity.rules import Limits
from sipsched.validity.verdict import judge
from sipsched.words import utc


@dataclass(frozen=True, kw_only=True)
class Performed:
    """The results of a measured or simulated load that are still in memory, before they are written to the record.

    Attributes
    ----------
    proxies
        SUT and number of workers of each instance that the run compares; one entry for all other runs.
    timeline
        Times of the run's steps in seconds since the epoch, by their names in `Timeline`. The start and the end of the
        load are not included.
    seed
        Seed of the arrivals.
    generator_version
        Version number that the generator prints.
    recording_off
        Whether recording was switched off in some modes of the run. In this case, the trace lacks messages.
    windows, modes
        The windows of a run that compares modes, and the modes of these windows; None for other runs.
    allocation_failures
        Lines of the proxy's log that report failed allocations; None without a log.
    account, factors, speed
        CPU time, events that make the proxy wait, and speed of the SPS's CPUs; None if not measured.
    """

    run: Run
    load: Load
    testbed: TestbedLabels
    sut: Sut
    proxies: Sequence[tuple[Sut, int]]
    state: Tuned
    timeline: Mapping[str, float]
    seed: int
    observed: Observed
    probe: ProbeReport
    generator_version: str
    hosts: HostReports
    settings: Settings
    recording_off: bool = False
    windows: WindowsDocument | None = None
    modes: Playable | None = None
    allocation_failures: Sequence[str] | None = None
    account: CpuAccount | None = None
    factors: FactorReport | None = None
    speed: SpeedIndex | None = None


def conclude(
    done: Performed, record: UnfinishedRecord, limits: Mapping[str, Limits]
) -> RunDocument:
    """Write counters and windows to the record, decide whether the run is valid, and return the content of `run.json`.

    Parameters
    ----------
    record
        The unfinished record, whose folder contains the files of the generator and the probe.
    limits
        Limits of each rule of the verdict.

    Raises
    ------
    StableError
        A file of the record is damaged.
    """
    observed = done.observed
    record.write(COUNTERS_FILE, zstandard.compress(json.dumps(observed.counters).encode()))
    if done.windows:
        record.write(WINDOWS_FILE, done.windows.to_bytes())
    starts, of_call = Sipload().starts(record.folder, "uac"), None
    if done.windows and done.modes and len(done.modes.instances.started) > 1:
        of_call = instances_of_calls(starts, done.windows.design, done.modes.instances)
    evidence = _examine(done, record.folder, starts, of_call)
    found = numbers(evidence)
    if done.testbed.kind == "simulated":
        # The simulator counts the stalls of a model as stolen time, but these stalls are part of the simulated machine.
        found["steal_share"] = None
    return RunDocument(
        run=done.run,
        testbed=done.testbed,
        sut=done.sut,
        started_at=utc(done.timeline["started"]),
        finished_at=utc(time.time()),
        timeline=Timeline(
            **done.timeline, load_started=observed.started, load_ended=observed.ended
        ),
        load=OfferedLoad(
            **vars(done.load), calls=observed.statistics.calls_offered, seed=done.seed
        ),
        generator=_generator_report(done.generator_version, observed),
        certificate=evidence.certificate,
        requests=evidence.requests,
        proxy=observed.proxy,
        probe=done.probe,
        hosts=done.hosts,
        settings=done.settings,
        scheduler=done.state.report(),
        layout=done.state.layout.describe(),
        ledger=observed.ledger,
        verdict=judge(found, limits, _causes(done, evidence.account, starts, of_call)),
        crossover=done.modes.report(done.windows) if done.modes and done.windows else None,
        speed=done.speed,
        factors=done.factors,
        account=evidence.account,
    )


def _examine(
    done: Performed, folder: Path, starts: Starts, of_call: npt.NDArray[np.int64] | None
) -> Evidence:
    """Read the files of the generator and the probe, and return all values that the validity rules need."""
    statistics, failures = done.observed.statistics, done.allocation_failures
    trace = None if done.probe.mode == "off" else read_trace(folder / TRACE_FILE)
    completed = [statistics.calls_completed]
    if of_call is not None:
        completed = np.bincount(of_call[starts.completed], minlength=len(done.proxies)).tolist()
    check_one_thread(trace, completed, done.sut.proxy, done.observed.instance_of)
    return Evidence(
        observed=done.observed,
        sut=done.sut,
        proxies=done.proxies,
        certificate=certify(
            starts.actual_ns, done.run.cps, done.load.law, starts.intended_ns, statistics.replays
        ),
        # If the probe did not record in some modes, the trace lacks messages.
        # Such a trace cannot be compared with the counts of the UAC.
        requests=compare_requests(
            statistics.requests, None if done.recording_off else trace, done.probe
        ),
        trace=trace,
        probe=done.probe,
        recording_off=done.recording_off,
        windows=done.windows,
        settings=done.settings,
        unlike_asked=done.state.unlike_asked,
        allocation_failures=None if failures is None else len(failures),
        account=done.account.report(done.probe, trace) if done.account else None,
        silent_calls=0 if of_call is None else silent_calls(starts, of_call),
    )


def _causes(
    done: Performed,
    account: AccountReport | None,
    starts: Starts,
    of_call: npt.NDArray[np.int64] | None,
) -> Mapping[str, str]:
    """Return, per validity rule, a text that names the known cause of a violation of the rule."""
    failed = "" if of_call is None else failed_calls(starts, of_call)
    return {
        **causes(account, done.observed.instance_of),
        "allocation_failures": lines_by_instance(
            done.allocation_failures or (), done.observed.instance_of
        ),
        "calls_failed_unexplained": failed,
        "connections_lost": failed,
    }


def _generator_report(version: str, observed: Observed) -> GeneratorReport:
    """Return the counts of calls, and the CPU time of the load generators per call if it is known."""
    client, server = observed.statistics.cpu_us, observed.served.cpu_us if observed.served else None
    return GeneratorReport(
        version=version,
        cpu_us=None if client is None or server is None else client + server,
        **observed.statistics.counts,
    )
