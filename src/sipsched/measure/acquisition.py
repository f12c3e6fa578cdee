"""Performing a run: from a tuple and three hosts to a record under raw/."""

import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import zstandard

from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.files import free_bytes
from sipsched.measure.factors import FactorCounts
from sipsched.measure.findings import (
    arrival_numbers,
    buffer_shortfall,
    certificate,
    compare_requests,
    foreign_datagrams,
    load_numbers,
    probe_numbers,
    spread_numbers,
    window_numbers,
)
from sipsched.measure.generator import Arrivals
from sipsched.measure.probe import TRACE_BYTES_PER_CALL
from sipsched.measure.proxy import allocation_failures
from sipsched.measure.serving import SPARE_BYTES, Observed, Serving, WarmUp
from sipsched.measure.simulation import simulated_run
from sipsched.measure.switching import Playable, Switcher, playable, speed_index
from sipsched.measure.tuning import Tuned, compiled_here, read_tasks, tuned
from sipsched.plan.config import Config, Load, Run
from sipsched.plan.crossover import choose, compared, duration_s
from sipsched.plan.modes import Setting, find_mode, load_modes
from sipsched.records.record import COMMANDS_FILE, COUNTERS_FILE, TRACE_FILE, UnfinishedRecord
from sipsched.records.run_document import (
    CommandReport,
    GeneratorReport,
    OfferedLoad,
    RunDocument,
    SpeedIndex,
    Timeline,
)
from sipsched.records.switch_log import WINDOWS_FILE
from sipsched.records.trace import read_trace
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import Hosts, open_hosts
from sipsched.validity.verdict import in_words, judge
from sipsched.words import utc


def measure(run: Run, config: Config, testbed: Testbed, raw: Path) -> Path:
    """Perform one run and put its record in place.

    Parameters
    ----------
    run
        The tuple.
    config
        The campaign: SUTs, load and probe.
    testbed
        Three hosts that SSH reaches; nothing else is known of them here.
    raw
        Folder of all records.

    Returns
    -------
    Path
        The record's folder.

    Raises
    ------
    StableError
        The run cannot be done: wrong configuration, missing program, port in use, full disk.
    TransientError
        It was disturbed, or is not valid. What it left is kept as `<run>.failed-<n>` with the reason.
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
        record.fail("interrupted by a signal")
        raise
    except BaseException as error:
        record.fail(repr(error))
        raise
    return record.final


def _perform(run: Run, config: Config, testbed: Testbed, record: UnfinishedRecord) -> RunDocument:
    if testbed.simulated is None:
        return _Acquisition(run, config, testbed, record).perform()
    arrivals = _arrivals(run, config.load_of(run))
    return simulated_run(run, config, testbed, record, arrivals)


class _Acquisition:
    """One run in progress."""

    def __init__(
        self, run: Run, config: Config, testbed: Testbed, record: UnfinishedRecord
    ) -> None:
        self.run = run
        self.load = config.load_of(run)
        self.config = replace(config, load=self.load)
        self.testbed = testbed
        self.record = record
        declared = load_modes()
        self.modes = [find_mode(name, declared) for name in compared(run.mode)]
        self.stilled = any(mode.overrides.get(Setting.RECORDING) == 0 for mode in self.modes)
        self.arrivals = _arrivals(run, self.load)
        self.timeline: dict[str, float] = {}
        self.limit_s = self.load.warmup_s + self.load.duration_s + 2 * self.load.drain_s + 60

    def perform(self) -> RunDocument:
        """Do the run; files go to the record, the content of run.json comes back."""
        self._mark("started")
        with open_hosts(self.testbed, str(self.run)) as hosts:
            self._mark("connected")
            serving = Serving(
                hosts,
                self.run.point,
                self.config,
                self.record,
                self.limit_s,
                controlled=self.stilled,
            )
            try:
                return self._perform_on(hosts, serving)
            finally:
                self.record.write(COMMANDS_FILE, _commands(hosts))

    def _perform_on(self, hosts: Hosts, serving: Serving) -> RunDocument:
        run, load, folder = self.run, self.load, self.record.folder
        serving.clear_hosts()
        # as after the load, beside nothing of ours
        speed_before = speed_index(hosts.sps)
        mode, *others = self.modes
        with ExitStack() as stack:
            stack.enter_context(serving.starting())
            beside = stack.enter_context(ThreadPoolExecutor())
            serving.check_hosts(self.arrivals.calls)
            state = stack.enter_context(
                tuned(hosts.sps, self.testbed, mode, run.cores, run.threads, others)
            )
            describing = beside.submit(serving.describe)
            modes = self._playable(hosts.sps, state)
            serving.start(state)
            self._mark("servers_ready")
            read_tasks(state, hosts.sps, serving.proxy_process, serving.proxy.program)
            described = describing.result()
            settings = serving.settings()
            self._mark("warmup_started")
            warm_up = serving.warm_up(run.cps, self.arrivals.seed + 1)
            switcher = self._switcher(serving, modes, warm_up) if modes else None
            # of a run that compares modes it would be that of none
            factors = None if switcher else FactorCounts(hosts.sps, serving.processes, self.limit_s)
            during = factors.counting() if factors else switcher.running() if switcher else None
            observed = serving.observe("uac", self.arrivals, during)
            self.timeline |= {"load_started": observed.started, "load_ended": observed.ended}
            fetching = beside.submit(serving.generator.fetch, hosts, "uac", folder)
            logging = beside.submit(serving.record_proxy_log)
            probe = serving.probe.end(folder)
            fetching.result()
            log = logging.result()
        windows = switcher.record(self.config.crossover.steal_share) if switcher else None
        if windows:
            self.record.write(WINDOWS_FILE, windows.to_bytes())
        self.record.write(COUNTERS_FILE, zstandard.compress(json.dumps(observed.counters).encode()))
        trace = None if probe.mode == "off" else read_trace(folder / TRACE_FILE)
        certified = certificate(
            serving.generator, folder, trace, run.cps, load.law, observed.statistics.replays
        )
        # what came while the probe was still is in no trace
        whole = None if self.stilled else trace
        requests = compare_requests(observed.statistics.requests, whole, probe)
        self._mark("fetched")
        verdict = judge(
            {
                **arrival_numbers(certified),
                **load_numbers(observed, settings.sps_cpus),
                **window_numbers(windows),
                "foreign_datagrams": foreign_datagrams(trace),
                **spread_numbers(trace, observed.served, serving.sut, run.threads),
                **probe_numbers(probe, observed.ledger, self.stilled),
                "allocation_failures": len(allocation_failures(log)),
                "retransmission_disagreement": requests.disagreement,
                "settings_unlike_asked": state.unlike_asked,
                "receive_buffer_shortfall": buffer_shortfall(settings, serving.sut),
            },
            self.config.validity,
        )
        return RunDocument(
            run=run,
            testbed=hosts.testbed.labels,
            sut=serving.sut,
            started_at=utc(self.timeline["started"]),
            finished_at=utc(time.time()),
            timeline=Timeline(**self.timeline),
            load=OfferedLoad(
                **vars(load), calls=observed.statistics.calls_offered, seed=self.arrivals.seed
            ),
            generator=_generator_report(described.uac.versions[load.generator], observed),
            certificate=certified,
            requests=requests,
            proxy=observed.proxy,
            probe=probe,
            hosts=described,
            settings=settings,
            scheduler=state.report(),
            layout=state.layout.describe(),
            ledger=observed.ledger,
            verdict=verdict,
            crossover=modes.report(windows) if modes and windows else None,
            speed=SpeedIndex(speed_before, speed_index(hosts.sps)),
            factors=factors.report() if factors else None,
        )

    def _playable(self, sps: Host, state: Tuned) -> Playable | None:
        """Say which modes the SPS can be switched between; None in a run of one mode."""
        if len(self.modes) == 1:
            return None
        here = compiled_here(sps, state, self.modes, self.run.threads)
        return playable(self.run.mode, here)

    def _switcher(self, serving: Serving, modes: Playable, warm_up: WarmUp) -> Switcher:
        """Draw the windows, and the calls that are played in each of a block's."""
        seed = self.arrivals.seed
        total_s = duration_s(self.run.mode, self.config.crossover)
        busy = (warm_up.utilisation, warm_up.service_s)
        design = choose(modes.names, total_s, self.config.crossover, *busy, seed)
        blocks = [(window.block, window.length_ns) for window in design.windows]
        self.arrivals = Arrivals.in_blocks(self.run.cps, seed, blocks)
        return Switcher(
            serving.hosts.sps,
            serving.proxy_process,
            serving.proxy.program,
            modes,
            design,
            serving.first_call_ns("uac", self.arrivals),
            over_tcp=serving.sut.over_tcp,
        )

    def _mark(self, name: str) -> None:
        self.timeline[name] = time.time()


def _generator_report(version: str, observed: Observed) -> GeneratorReport:
    """Give the statistics as run.json has them; requests stand beside those of the SPS."""
    client, server = observed.statistics.cpu_us, observed.served.cpu_us if observed.served else None
    return GeneratorReport(
        version=version,
        cpu_us=None if client is None or server is None else client + server,
        **observed.statistics.counts,
    )


def _commands(hosts: Hosts) -> bytes:
    """Every command with its duration and exit code, as zstd; of what it printed only the complaints."""
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
    """Seed of the arrival schedule of a run: the same for every mode, SUT and number of threads.

    Runs that differ only in those can then be compared in pairs. The low bit is free for the warm-up.
    """
    return zlib.crc32(f"{cps} cps, repetition {rep}".encode()) << 1


def call_count(run: Run, load: Load) -> int:
    """Count the calls that a run offers after its warm-up."""
    return max(1, round(run.cps * load.duration_s))


def _check_local_disk(raw: Path, run: Run, load: Load) -> None:
    free = free_bytes(raw)
    needed = call_count(run, load) * TRACE_BYTES_PER_CALL + SPARE_BYTES
    if free < needed:
        raise StableError(
            f"{raw}: disk full: {free >> 20} MiB free, {needed >> 20} MiB needed for the record"
        )
