"""Performing a run: from a tuple and three hosts to a record under raw/."""

import json
import math
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.files import free_bytes, whole
from sipsched.measure.crossing_search import Trial, find_crossing
from sipsched.measure.generator import CallStatistics, Generator, Sipload, Sipp
from sipsched.measure.hoststate import COUNTER_FILES, describe, read_files
from sipsched.measure.memory import check_memory
from sipsched.measure.probe import (
    TRACE_BYTES_PER_CALL,
    BpfProbe,
    NoProbe,
    PreloadProbe,
    Probe,
)
from sipsched.measure.proxy import allocation_failures, find_proxy
from sipsched.measure.tuning import Tuned, read_task_slices, task_slice_prefix, tuned
from sipsched.plan.config import Config, Load, Run, Sut, crossing_path
from sipsched.plan.modes import find_mode, load_modes
from sipsched.records.crossing import SCHEMA_VERSION as CROSSING_VERSION
from sipsched.records.record import COUNTERS_FILE, SCHEMA_VERSION, TRACE_FILE, UnfinishedRecord
from sipsched.records.retransmissions import arrived, disagreement
from sipsched.records.trace import Kind, Mode, Trace, read_trace
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import Testbed, native_folder
from sipsched.testbed.session import Hosts, open_hosts
from sipsched.validity.certificate import certify
from sipsched.validity.counters import difference, parse_snmp, parse_stat
from sipsched.validity.ledger import SNMP, Ledger, Snapshots, balance
from sipsched.validity.verdict import INVALID, judge

START_TIMEOUT_S = 10
DRAIN_TIMEOUT_S = 5
SPARE_BYTES = 64 * 2**20
HOST_PROGRAMS = ("start-stop-daemon", "timeout", "taskset", "chrt", "ss", "lscpu", "zstd", "pkill")
GENERATORS: dict[str, Generator] = {"sipload": Sipload(), "sipp": Sipp()}


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
    sut = config.sut(run.sut)
    testbed.check_points([run])
    _check_local_disk(raw, run, config.load)
    record = UnfinishedRecord.begin(raw, run)
    try:
        document = _Acquisition(run, sut, config, testbed, record).perform()
        if not document["verdict"]["valid"]:
            record.write("run.json", json.dumps(document, indent=1))
            raise TransientError(f"run is not valid: {'; '.join(document['verdict']['reasons'])}")
        record.finish(document)
    except BaseException as error:
        kept = record.fail(str(error) or repr(error))
        if isinstance(error, SipschedError):
            where = f" (kept in {kept})" if kept else ""
            raise type(error)(f"{run}: {error}{where}") from error
        raise
    return record.final


def search_crossing(point: Run, config: Config, testbed: Testbed, raw: Path) -> Path:
    """Find where the packet drop rate crosses its limit at a point, and record it.

    Parameters
    ----------
    point
        SUT, mode, cores and threads; its load and repetition say nothing here.
    config
        The campaign: limit, range and width of the search.
    testbed
        Three hosts that SSH reaches.
    raw
        Folder of all records.

    Returns
    -------
    Path
        The `crossing.json`, beside the folders of that point's loads.

    Raises
    ------
    StableError
        The limit is not crossed within the range of loads, or a run cannot be done here.
    TransientError
        It was disturbed.
    """
    testbed.check_points([point])
    path = raw / crossing_path(point)
    # nothing of a run is kept: the proxy's log would be the record of many loads
    with tempfile.TemporaryDirectory(prefix="sipsched-search-") as scratch:
        record = UnfinishedRecord.begin(Path(scratch), point)
        run = _Acquisition(point, config.sut(point.sut), config, testbed, record)
        document = run.search(config)
    with whole(path) as partial:
        partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


class _Acquisition:
    """One run in progress."""

    def __init__(
        self, run: Run, sut: Sut, config: Config, testbed: Testbed, record: UnfinishedRecord
    ) -> None:
        self.run = run
        self.sut = sut
        self.load = config.load
        self.probe_wanted = sut.probe or config.probe
        self.validity = config.validity
        self.testbed = testbed
        self.record = record
        self.proxy = find_proxy(sut)
        self.mode = find_mode(run.mode, load_modes())
        self.generator = GENERATORS[config.load.generator]
        self.calls = call_count(run, config.load)
        self.seed = arrival_seed(run)
        self.limit_s = config.load.warmup_s + config.load.duration_s + 2 * config.load.drain_s + 60
        self.timeline: dict[str, float] = {}

    def perform(self) -> dict[str, Any]:
        """Do the run; files go to the record, the content of run.json comes back."""
        self._mark("started")
        with open_hosts(self.testbed) as hosts:
            self._mark("connected")
            try:
                return self._perform_on(hosts)
            except BaseException:
                self.record.write("commands.json", json.dumps(_commands(hosts), indent=1))
                raise

    def _perform_on(self, hosts: Hosts) -> dict[str, Any]:
        self._each(hosts, self._check_host)
        with (
            tuned(hosts.sps, self.testbed, self.mode, self.run.cores, self.run.threads) as state,
            self.servers(hosts, state) as (server, proxy_process, probe),
        ):
            self._mark("servers_ready")
            read_task_slices(state, hosts.sps, proxy_process, self.proxy.program)
            descriptions = dict(
                zip(("uac", "sps", "uas"), self._each(hosts, self._describe), strict=True)
            )
            settings = self._read_settings(hosts.sps)
            server = self.warm_up(hosts, server)
            probe.begin()
            before = self._each(hosts, self._counters)
            cpu_before_ns = hosts.sps.cpu_time_ns(proxy_process)
            self._mark("load_started")
            statistics = self.generator.offer(
                hosts, self.load, "uac", self.calls, self.run.cps, self.seed
            )
            self._mark("load_ended")
            self.silence(hosts, server)
            self.expect_alive(hosts.sps, proxy_process)
            proxy_cpu_ns = hosts.sps.cpu_time_ns(proxy_process) - cpu_before_ns
            # its retransmissions would go on between the counters of one host and those of the next
            hosts.sps.stop(proxy_process)
            after = self._each(hosts, self._counters)
            probe_report = probe.end(self.record.folder)
        counters = {
            host.spec.role: {"before": first, "after": last}
            for host, first, last in zip(hosts.all, before, after, strict=True)
        }
        self.record.write(COUNTERS_FILE, json.dumps(counters, indent=1))
        self.generator.fetch(hosts, "uac", self.record.folder)
        log = self._record_proxy_log(hosts.sps)
        trace = self._trace(probe_report["mode"])
        certificate = self._certificate(trace)
        requests = _compare_requests(statistics, trace, probe_report)
        self._mark("fetched")
        balanced = balance(counters)
        verdict = judge(
            _numbers(statistics, certificate, balanced, probe_report, log, counters, settings)
            | {
                "retransmission_disagreement": requests["disagreement"],
                "settings_unlike_asked": state.unlike_asked,
            },
            self.validity,
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "run": vars(self.run),
            "testbed": hosts.testbed.labels,
            "sut": vars(self.sut),
            "started_at": _utc(self.timeline["started"]),
            "finished_at": _utc(time.time()),
            "timeline": self.timeline,
            "load": {**vars(self.load), "calls": self.calls, "seed": self.seed},
            "generator": {
                "version": descriptions["uac"]["versions"][self.load.generator],
                **without_requests(statistics),
            },
            "certificate": certificate,
            "requests": requests,
            "proxy": {"cpu_ns": proxy_cpu_ns},
            "probe": probe_report,
            "hosts": descriptions,
            "settings": settings,
            "scheduler": state.describe(),
            "layout": state.layout.describe(),
            "ledger": {
                "to_sps": {**vars(balanced.to_sps), "residual": balanced.to_sps.residual},
                "from_sps": {**vars(balanced.from_sps), "residual": balanced.from_sps.residual},
                "link_drops": balanced.link_drops,
            },
            "verdict": {
                "valid": verdict.grade != INVALID,
                "grade": verdict.grade,
                "reasons": verdict.reasons,
                "findings": [vars(finding) for finding in verdict.findings],
            },
            "commands": _commands(hosts),
        }

    def search(self, config: Config) -> dict[str, Any]:
        """Offer loads until the crossing of the limit is known; its document comes back."""
        self._mark("started")
        self.limit_s = config.search.limit_s + 60
        # each trial's files take the place of the last one's
        self.calls = round(config.search.highest_cps * config.search.trial_s)
        with open_hosts(self.testbed) as hosts:
            self._each(hosts, self._check_host)
            with tuned(
                hosts.sps, self.testbed, self.mode, self.run.cores, self.run.threads
            ) as state:
                trials = _Trials(self, hosts, state)
                found = find_crossing(trials.offer, config.pdr_limit, config.search)
                kernel = self._describe(hosts.sps)["kernel"]
        return {
            "schema_version": CROSSING_VERSION,
            "testbed": hosts.testbed.labels,
            "point": {
                name: getattr(self.run, name)
                for name in ("testbed", "sut", "mode", "cores", "threads")
            },
            "label": state.label,
            "kernel": kernel,
            "started_at": _utc(self.timeline["started"]),
            "finished_at": _utc(time.time()),
            "pdr_limit": config.pdr_limit,
            "search": vars(config.search),
            "load": vars(self.load),
            "lower_cps": found.lower_cps,
            "upper_cps": found.upper_cps,
            "trials": [vars(trial) | {"pdr": trial.pdr} for trial in found.trials],
        }

    def warm_up(self, hosts: Hosts, server: Process) -> Process:
        """Offer calls that are not measured; the UAS that answers the measured ones comes back."""
        self._mark("warmup_started")
        if self.load.warmup_s == 0:
            return server
        calls = max(1, round(self.run.cps * self.load.warmup_s))
        done = self.generator.offer(hosts, self.load, "warmup", calls, self.run.cps, self.seed + 1)
        if done.calls_completed < calls:
            # open calls would be answered, again and again, into the measurement
            self.silence(hosts, server)
            server = self.start_server(hosts.uas)
        return server

    def silence(self, hosts: Hosts, server: Process) -> None:
        """Stop the UAS, whose retransmissions outlive the UAC, and wait until the SPS's queue is empty."""
        hosts.uas.stop(server)
        hosts.sps.wait_until(
            f"[ -z \"$(ss -Hlun 'sport = :{hosts.sps.spec.sip_port}' | awk '$2 > 0')\" ]",
            what="the SPS's receive queue is not empty",
            timeout_s=DRAIN_TIMEOUT_S,
        )

    def expect_alive(self, sps: Host, proxy: Process) -> None:
        """Raise a TransientError, with the last words of the proxy, if it has ended under the load."""
        if sps.is_running(proxy):
            return
        log = self._record_proxy_log(sps).strip()
        last = log.splitlines()[-1].strip() if log else "it wrote no log"
        raise TransientError(f"the proxy ended during the run; its log is proxy.log: {last}")

    def start_server(self, uas: Host) -> Process:
        """Start the UAS and wait until it listens."""
        server = self.generator.start_server(uas, self.load, self.limit_s)
        self._wait_for_socket(uas, server)
        return server

    @contextmanager
    def servers(self, hosts: Hosts, state: Tuned) -> Iterator[Any]:
        """UAS, probe and proxy, running while the block does."""
        sps = hosts.sps
        config_file = sps.workdir / "proxy.cfg"
        config_text = self.proxy.config_text(self.sut, self.testbed, self.run.threads)
        sps.put_text(config_text, config_file)
        self.record.write("proxy.cfg", config_text)
        with ExitStack() as stack:
            stack.callback(sps.stop_strays)
            stack.callback(hosts.uas.stop_strays)
            server = self.start_server(hosts.uas)
            start = partial(self._start_proxy, sps, config_file, task_slice_prefix(state, sps))
            proxy_process, probe = self._start_probed_proxy(sps, start)
            yield server, proxy_process, probe

    def _start_probed_proxy(
        self, sps: Host, start: Callable[[Mapping[str, str]], Process]
    ) -> tuple[Process, Probe]:
        """Start the proxy, then the probe, which has to find its workers.

        A library that is preloaded has to be there first: where BPF is refused, the proxy starts again.
        """
        if self.probe_wanted == "off":
            return start({}), NoProbe()
        reason = "asked for"
        if self.probe_wanted != "preload":
            process = start({})
            try:
                return process, BpfProbe.start(
                    sps, self.proxy.program, self.probe_wanted, self.limit_s
                )
            except StableError as error:
                if self.probe_wanted != "auto":
                    raise
                reason = str(error)
                sps.stop(process)
        preload = PreloadProbe(sps, reason)
        return start(preload.environment()), preload

    def _start_proxy(
        self,
        sps: Host,
        config_file: PurePosixPath,
        prefix: Sequence[str],
        environment: Mapping[str, str],
    ) -> Process:
        process = sps.start(
            "proxy",
            [*prefix, *self.proxy.command(self.sut, config_file, sps.workdir)],
            cpus=sps.spec.cpus[: self.run.cores],
            limit_s=self.limit_s,
            environment=environment,
        )
        self._wait_for_socket(sps, process)
        return process

    def _wait_for_socket(self, host: Host, process: Process) -> None:
        """Wait until a server listens; one that ends instead is an error with its own words."""
        port = host.spec.sip_port
        listens = f"ss -Hlun 'sport = :{port}' | grep -q ."
        ended = f"! kill -0 $(cat {process.pid_file}) 2>/dev/null"
        host.wait_until(
            f"{listens} || {ended}",
            what=f"nothing listens on UDP port {port}",
            timeout_s=START_TIMEOUT_S,
        )
        if host.shell(listens, check=False).exit_code != 0:
            log = host.run(["tail", "-n", "40", str(process.log_file)], check=False).stdout
            self.record.write(process.log_file.name, log)
            errors = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
            raise StableError(
                f"host {host.spec}: {process.name} ended before it listened on UDP port {port}: "
                f"{(errors or log.splitlines() or ['it wrote no log'])[0].strip()}"
            )

    def _check_host(self, host: Host) -> None:
        host.stop_strays()
        role = host.spec.role
        own = (self.proxy.program,) if role == "sps" else self.generator.programs(host)
        host.require_programs((*own, *HOST_PROGRAMS))
        if role == "sps":
            built = {"scheduler": "taskslice"}
            if self.probe_wanted != "off":
                built["probe"] = "sipprobe"
            host.require_programs(
                [str(native_folder(host.base, part) / name) for part, name in built.items()]
            )
            check_memory(host, self.sut, self.run.threads)
        port = host.spec.sip_port
        users = host.run(["ss", "-Hlunp", f"sport = :{port}"]).stdout.strip()
        if users:
            raise StableError(
                f"host {host.spec}: UDP port {port} is in use: {' '.join(users.split())}; "
                f"end that program or choose another sip_port"
            )
        free = int(host.run(["df", "--output=avail", "-B1", str(host.workdir)]).stdout.split()[-1])
        needed = self.calls * TRACE_BYTES_PER_CALL * 2 + SPARE_BYTES
        if free < needed:
            raise StableError(
                f"host {host.spec}: disk full at {host.workdir}: {free >> 20} MiB free, "
                f"{needed >> 20} MiB needed for {self.calls} calls"
            )

    def _describe(self, host: Host) -> dict[str, Any]:
        if host.spec.role == "sps":
            versions = {self.proxy.program: [self.proxy.program, self.proxy.version_option]}
        else:
            versions = {self.load.generator: self.generator.version_argv(host)}
        return describe(host, versions)

    def _read_settings(self, sps: Host) -> dict[str, Any]:
        port = sps.spec.sip_port
        sockets = sps.run(["ss", "-Hlunmp", f"sport = :{port}"]).stdout
        values = read_files(
            sps,
            (
                "/proc/sys/net/core/rmem_default",
                "/proc/sys/net/core/rmem_max",
            ),
        )
        return {
            "so_rcvbuf_bytes": _receive_buffer(sockets),
            "sps_cpus": list(sps.spec.cpus[: self.run.cores]),
            **{Path(name).name: value.strip() for name, value in values.items()},
        }

    def _counters(self, host: Host) -> dict[str, str]:
        return read_files(host, COUNTER_FILES)

    def _record_proxy_log(self, sps: Host) -> str:
        """Copy the proxy's log into the record; its text comes back."""
        log = sps.run(["cat", str(sps.workdir / "proxy.log")], check=False).stdout
        self.record.write("proxy.log", log)
        return log

    def _trace(self, probe_mode: str) -> Trace | None:
        return None if probe_mode == "off" else read_trace(self.record.folder / TRACE_FILE)

    def _certificate(self, trace: Trace | None) -> dict[str, Any] | None:
        """Certify the arrivals: from the generator's calls, else from the first INVITEs at the SPS."""
        starts = self.generator.starts(self.record.folder, "uac")
        if starts is not None:
            source, actual_ns, intended_ns = "calls", starts.actual_ns, starts.intended_ns
        elif trace is not None:
            invites = trace.records[trace.records["kind"] == Kind.INVITE]
            _, first = np.unique(invites["call_id_hash"], return_index=True)
            source, actual_ns, intended_ns = "trace", invites["t_arr"][first].astype("i8"), None
        else:
            return None
        found = certify(actual_ns, self.run.cps, self.load.law, intended_ns)
        numbers = vars(found) | {"variance_to_mean": list(found.variance_to_mean)}
        return {"source": source, "law": self.load.law, **without_nan(numbers)}

    def _each(self, hosts: Hosts, action: Any) -> list[Any]:
        with ThreadPoolExecutor(len(hosts.all)) as pool:
            return list(pool.map(action, hosts.all))

    def _mark(self, name: str) -> None:
        self.timeline[name] = time.time()


class _Trials:
    """Loads of a search, each on a proxy started for it: an overload leaves memory and transactions behind."""

    def __init__(self, run: _Acquisition, hosts: Hosts, state: Tuned) -> None:
        self._run = run
        self._hosts = hosts
        self._state = state

    def offer(self, cps: int, duration_s: float) -> Trial:
        """Do what a run does, and read what the SPS's sockets refused; nothing else is kept."""
        run, hosts = self._run, self._hosts
        run.run = replace(run.run, cps=cps)
        run.seed = arrival_seed(run.run)
        calls = max(1, round(cps * duration_s))
        with run.servers(hosts, self._state) as (server, proxy, probe):
            server = run.warm_up(hosts, server)
            probe.begin()
            before = self._udp()
            run.generator.offer(hosts, run.load, "trial", calls, cps, run.seed)
            run.silence(hosts, server)
            run.expect_alive(hosts.sps, proxy)
            after = self._udp()
        delta = difference(before, after)
        return Trial(cps, duration_s, delta["InDatagrams"], delta["RcvbufErrors"])

    def _udp(self) -> dict[str, int]:
        return parse_snmp(read_files(self._hosts.sps, (SNMP,))[SNMP], SNMP)["Udp"]


def _commands(hosts: Hosts) -> list[dict[str, Any]]:
    """Every command with its duration and exit code; of what it printed only the complaints."""
    return [
        {
            "host": done.host,
            "argv": list(done.argv),
            "started": _utc(done.started),
            "duration_s": round(done.duration_s, 6),
            "exit_code": done.exit_code,
            "stderr": done.stderr,
        }
        for done in hosts.history
    ]


def without_nan(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON has not, by None."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return {name: plain(value) for name, value in numbers.items()}


def without_requests(statistics: CallStatistics) -> dict[str, Any]:
    """Give the statistics as run.json has them; requests stand beside those of the SPS."""
    return {name: value for name, value in vars(statistics).items() if name != "requests"}


def arrival_seed(run: Run) -> int:
    """Seed of a run's arrival schedule: the same for every mode, SUT and number of threads.

    Runs that differ only in those can then be compared in pairs. The low bit is free for the warm-up.
    """
    return zlib.crc32(f"{run.cps} cps, repetition {run.rep}".encode()) << 1


def call_count(run: Run, load: Load) -> int:
    """Count the calls that a run offers after its warm-up."""
    return max(1, round(run.cps * load.duration_s))


def _numbers(
    statistics: CallStatistics,
    certificate: Mapping[str, Any] | None,
    balanced: Ledger,
    probe: Mapping[str, Any],
    log: str,
    counters: Snapshots,
    settings: Mapping[str, Any],
) -> dict[str, float | None]:
    """Give every rule of the verdict its number."""
    agents = balanced.from_sps
    return {
        **_arrival_numbers(certificate or {}),
        "generator_cpu_share": statistics.cpu_share,
        "generator_drops": agents.refused + agents.other_errors,
        "calls_not_started": statistics.calls_offered - statistics.calls_created,
        "link_drops": balanced.link_drops,
        "ledger_residual": balanced.residual,
        "probe_lost": probe["lost"] + probe.get("threads_untraced", 0),
        "steal_share": _steal_share(counters["sps"], settings["sps_cpus"]),
        "allocation_failures": len(allocation_failures(log)),
    }


def _compare_requests(
    statistics: CallStatistics, trace: Trace | None, probe: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare first sends and retransmissions of requests, by method, at the UAC and at the SPS.

    None where a side does not tell: SIPp gives one sum, and the preload library sees no refused datagram.
    """
    # ASSUME nothing is lost between UAC and SPS: the ledger and the links say so in the same run
    sent = statistics.requests
    reached = None if trace is None or trace.mode is Mode.PRELOAD else arrived(trace.records)
    return {
        "uac": sent and {method: vars(sends) for method, sends in sent.items()},
        "sps": reached and {method: vars(sends) for method, sends in reached.items()},
        "disagreement": disagreement(sent, reached, probe.get("refused_unseen", 0))
        if sent is not None and reached is not None
        else None,
    }


def _arrival_numbers(certificate: Mapping[str, Any]) -> dict[str, float | None]:
    """Arrivals against their law, less what chance does to a sample of this size."""
    found = {key: certificate.get(key) for key in ("rate_error", "ks_distance", "cv")}
    gaps = certificate.get("arrivals", 1) - 1
    law_cv = 1.0 if certificate.get("law") == "exponential" else 0.0
    return {
        "rate_error": found["rate_error"],
        # SEE Stephens (1974): the 1 % point of a Kolmogorov-Smirnov distance is 1.63 / sqrt(n)
        "ks_excess": _beyond(found["ks_distance"], 1.63 / math.sqrt(gaps or 1)),
        # the coefficient of variation of n exponential variates has standard error 1 / sqrt(n)
        "cv_error": _beyond(
            None if found["cv"] is None else abs(found["cv"] - law_cv),
            3 * law_cv / math.sqrt(gaps or 1),
        ),
        "lateness_p99_us": certificate.get("lateness_p99_us"),
    }


def _beyond(value: float | None, chance: float) -> float | None:
    return None if value is None else max(0.0, value - chance)


def _steal_share(snapshots: Mapping[str, Mapping[str, str]], cpus: Sequence[int]) -> float:
    """Share of the time between two snapshots of /proc/stat that was stolen from some CPUs."""
    before, after = (parse_stat(snapshots[phase]["/proc/stat"]) for phase in ("before", "after"))
    names = [f"cpu{cpu}" for cpu in cpus]
    # the kernel lets single states, such as iowait, go backwards: only the sum grows
    total = sum(sum(after[name].values()) - sum(before[name].values()) for name in names)
    stolen = sum(after[name]["steal"] - before[name]["steal"] for name in names)
    return stolen / total if total > 0 else 0.0


def _receive_buffer(sockets: str) -> int | None:
    """Effective SO_RCVBUF in bytes, from the skmem field of ss."""
    for field in sockets.replace("(", ",").replace(")", ",").split(","):
        if field.startswith("rb") and field[2:].isdigit():
            return int(field[2:])
    return None


def _check_local_disk(raw: Path, run: Run, load: Load) -> None:
    free = free_bytes(raw)
    needed = call_count(run, load) * TRACE_BYTES_PER_CALL + SPARE_BYTES
    if free < needed:
        raise StableError(
            f"{raw}: disk full: {free >> 20} MiB free, {needed >> 20} MiB needed for the record"
        )


def _utc(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
