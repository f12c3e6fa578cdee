"""The measurement of one run: offering the load on a testbed, and writing a record under raw/."""

import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import zstandard

from sipsched.errors import DISK_FULL, SipschedError, StableError, TransientError
from sipsched.files import free_bytes
from sipsched.measure.conclusion import Performed, conclude
from sipsched.measure.factors import FactorCounts
from sipsched.measure.generator import Arrivals
from sipsched.measure.hostneeds import SPARE_BYTES
from sipsched.measure.observed import WarmUp
from sipsched.measure.probe import TRACE_BYTES_PER_CALL
from sipsched.measure.proxy import allocation_failures
from sipsched.measure.serving import Serving
from sipsched.measure.simulation import simulated_run
from sipsched.measure.switching import Playable, Switcher, playable, speed_index
from sipsched.measure.tuning import Tuned, compiled_here, read_tasks, tuned
from sipsched.plan.config import Config
from sipsched.plan.crossover import choose, compared, instances
from sipsched.plan.loads import Load
from sipsched.plan.modes import Setting, find_mode, load_modes
from sipsched.plan.run import Run
from sipsched.records.cpu_report import SpeedIndex
from sipsched.records.record import COMMANDS_FILE, STOPPED, UnfinishedRecord
from sipsched.records.run_document import CommandReport, RunDocument
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import Hosts, open_hosts
from sipsched.validity.verdict import in_words
from sipsched.words import utc


def measure(run: Run, config: Config, testbed: Testbed, raw: Path) -> Path:
    """Perform one run on a testbed, and write its record.

    Returns
    -------
    Path
        The record's folder.

    Raises
    ------
    StableError
        The testbed cannot perform the run: the configuration is wrong, a program is missing, a port is used, or a disk
        is full.
    TransientError
        Something disturbed the run, or the run is invalid. `<run>.failed-<n>` keeps the run's files and the reason.
    """
    testbed.check_cores([run])
    _check_local_disk(raw, run, config.load_of(run))
    record = UnfinishedRecord.begin(raw, run)
    try:
        document = _perform(run, config, testbed, record)
        if not document.verdict.valid:
            record.close(document)
            raise TransientError(f"run is not valid: {in_words(document.verdict.broken)}")
        record.finish(document)
    except SipschedError as error:
        kept = record.fail(str(error))
        where = f" (kept in {kept})" if kept else ""
        raise type(error)(f"{run}: {error}{where}") from error
    except KeyboardInterrupt:
        record.fail(STOPPED)
        raise
    except BaseException as error:
        record.fail(repr(error))
        raise
    return record.final


def _perform(run: Run, config: Config, testbed: Testbed, record: UnfinishedRecord) -> RunDocument:
    load = config.load_of(run)
    config, arrivals = replace(config, load=load), _arrivals(run, load)
    if testbed.simulated:
        done = simulated_run(run, config, testbed, record, arrivals)
    else:
        done = _Acquisition(run, config, testbed, record, arrivals).perform()
    return conclude(done, record, config.validity)


class _Acquisition:
    """The state of a run that is being measured on three hosts."""

    def __init__(
        self,
        run: Run,
        config: Config,
        testbed: Testbed,
        record: UnfinishedRecord,
        arrivals: Arrivals,
    ) -> None:
        self.run, self.config, self.testbed, self.record = run, config, testbed, record
        declared = load_modes()
        self.modes = [find_mode(name, declared) for name in compared(run.mode)]
        self.instances = instances(self.modes, run.sut, run.threads, run.cores)
        self.recording_off = any(mode.overrides.get(Setting.RECORDING) == 0 for mode in self.modes)
        self.arrivals = arrivals
        self.timeline: dict[str, float] = {}
        load = config.load
        self.limit_s = load.warmup_s + load.duration_s + 2 * load.drain_s + testbed.control_s

    def perform(self) -> Performed:
        """Offer the load, store the files of generator and probe in the run's record, and return all other results."""
        self._mark("started")
        with open_hosts(self.testbed, str(self.run)) as hosts:
            self._mark("connected")
            serving = Serving(
                hosts,
                self.run.point,
                self.config,
                self.record,
                self.limit_s,
                controlled=self.recording_off,
                instances=self.instances.started,
            )
            try:
                serving.clear_hosts()
                # The speed of the CPU is measured before and after the load, while no other program of sipsched runs.
                speed_before = speed_index(hosts.sps)
                done = self._perform_on(hosts, serving)
                return replace(done, speed=SpeedIndex(speed_before, speed_index(hosts.sps)))
            finally:
                self.record.write(COMMANDS_FILE, _commands(hosts))

    def _perform_on(self, hosts: Hosts, serving: Serving) -> Performed:
        run, sps, (mode, *others) = self.run, hosts.sps, self.modes
        with ExitStack() as stack:
            stack.enter_context(serving.starting())
            beside = stack.enter_context(ThreadPoolExecutor())
            serving.check_hosts(self.arrivals.calls)
            state = stack.enter_context(
                tuned(sps, self.testbed, mode, run.cores, run.threads, others)
            )
            describing = beside.submit(serving.describe)
            modes = self._playable(sps, state)
            serving.start(state)
            self._mark("servers_ready")
            read_tasks(state, sps, serving.proxy_process, serving.proxy.program)
            described = describing.result()
            settings = serving.settings()
            self._mark("warmup_started")
            warm_up = serving.warm_up(run.cps, self.arrivals.seed + 1)
            switcher = self._switcher(serving, modes, warm_up) if modes else None
            # A run that compares modes does not count waits, because the counts would mix the waits of all modes.
            factors = None if switcher else FactorCounts(sps, serving.processes, self.limit_s)
            account = serving.account(sampled=switcher is not None, with_bursts=serving.traced)
            during = [account.counting()]
            if factors:
                during.append(factors.counting())
            if switcher:
                during.append(switcher.running())
            observed = serving.observe("uac", self.arrivals, during)
            fetching = beside.submit(serving.generator.fetch, hosts, "uac", self.record.folder)
            logging = beside.submit(serving.record_proxy_log)
            probe = serving.probe.end(self.record.folder)
            account.fetch_bursts(self.record.folder)
            fetching.result()
            log = logging.result()
            # A proxy that logs its messages writes its errors to the same place, so proxy.log does not show them.
            failures = None if serving.sut.log_messages else allocation_failures(log)
            self._mark("fetched")
        steal_share = self.config.crossover.steal_share
        return Performed(
            run=run,
            load=self.config.load,
            testbed=hosts.testbed.labels,
            sut=serving.sut,
            proxies=serving.proxies,
            state=state,
            timeline=self.timeline,
            seed=self.arrivals.seed,
            observed=observed,
            probe=probe,
            generator_version=described.uac.versions["sipload"],
            hosts=described,
            settings=settings,
            recording_off=self.recording_off,
            windows=switcher.record(steal_share, account.competed()) if switcher else None,
            modes=modes,
            allocation_failures=failures,
            account=account,
            factors=factors.report() if factors else None,
        )

    def _playable(self, sps: Host, state: Tuned) -> Playable | None:
        """Return the scheduler modes between which the run can switch the proxy, or None for a run of one mode."""
        if len(self.modes) == 1:
            return None
        here = compiled_here(sps, state, self.modes, self.run.cores, self.run.threads)
        return playable(self.run.mode, here, self.instances)

    def _switcher(self, serving: Serving, modes: Playable, warm_up: WarmUp) -> Switcher:
        """Choose random windows (short stretches of time in one mode), and return the control of the mode switches."""
        seed = self.arrivals.seed
        busy = (warm_up.utilisation, warm_up.service_s)
        design = choose(modes.names, self.config.load, self.config.crossover, *busy, seed)
        blocks = [
            (window.block, window.length_ns, modes.instances.of_window(window))
            for window in design.windows
        ]
        self.arrivals = Arrivals.in_blocks(self.run.cps, seed, blocks)
        return Switcher(
            serving.hosts.sps,
            serving.proxy_process,
            serving.proxy.program,
            modes,
            design,
            serving.first_call_ns("uac", self.arrivals),
            self.testbed.control_s,
            serving.sut.over_tcp,
        )

    def _mark(self, name: str) -> None:
        self.timeline[name] = time.time()


def _commands(hosts: Hosts) -> bytes:
    """Return all commands that ran on the hosts, with duration, exit code and stderr, as compressed JSON."""
    commands = [
        CommandReport(
            host=done.host,
            argv=done.argv,
            started=utc(done.started),
            duration_s=round(done.duration_s, 6),
            exit_code=done.exit_code,
            stderr=done.stderr,
        )
        for done in hosts.history
    ]
    return zstandard.compress(json.dumps(list(map(asdict, commands))).encode())


def _arrivals(run: Run, load: Load) -> Arrivals:
    return Arrivals(run.cps, call_count(run, load), arrival_seed(run.cps, run.rep))


def arrival_seed(cps: int, rep: int) -> int:
    """Return the random seed of a run's arrivals, which depends only on the load and the repetition.

    So runs of different modes have the same arrivals and can be compared in pairs. The lowest bit of the seed is 0. So
    the seed of the warm-up, which is the run's seed plus 1, differs from the seed of every run.
    """
    return zlib.crc32(f"{cps} cps, repetition {rep}".encode()) << 1


def call_count(run: Run, load: Load) -> int:
    """Return the number of calls that a run offers after the warm-up."""
    return max(1, round(run.cps * load.duration_s))


def _check_local_disk(raw: Path, run: Run, load: Load) -> None:
    free = free_bytes(raw)
    needed = call_count(run, load) * TRACE_BYTES_PER_CALL + SPARE_BYTES
    if free < needed:
        raise StableError(
            f"{raw}: {DISK_FULL}: {free >> 20} MiB free, {needed >> 20} MiB needed for the record"
        )
