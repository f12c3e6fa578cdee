"""Performing a run: from a tuple and three hosts to a record under raw/."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sipsched.config import Config, Load, Run, Sut
from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.generator import CallStatistics, Generator, Sipp
from sipsched.hoststate import COUNTER_FILES, describe, read_files
from sipsched.probe import (
    TRACE_BYTES_PER_CALL,
    BpfProbe,
    NoProbe,
    PreloadProbe,
    Probe,
    native_folder,
)
from sipsched.proxy import allocation_failures, find_proxy
from sipsched.record import COUNTERS_FILE, SCHEMA_VERSION, UnfinishedRecord
from sipsched.testbed import Host, Hosts, Process, Testbed, open_hosts

START_TIMEOUT_S = 10
DRAIN_TIMEOUT_S = 5
SPARE_BYTES = 64 * 2**20
HOST_PROGRAMS = ("start-stop-daemon", "timeout", "taskset", "ss", "lscpu", "zstd", "pkill")
GENERATORS: dict[str, Generator] = {"sipp": Sipp()}


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


class _Acquisition:
    """One run in progress."""

    def __init__(
        self, run: Run, sut: Sut, config: Config, testbed: Testbed, record: UnfinishedRecord
    ) -> None:
        self.run = run
        self.sut = sut
        self.load = config.load
        self.probe_wanted = config.probe
        self.testbed = testbed
        self.record = record
        self.proxy = find_proxy(sut)
        self.generator = GENERATORS[config.load.generator]
        self.calls = call_count(run, config.load)
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
        descriptions = dict(
            zip(("uac", "sps", "uas"), self._each(hosts, self._describe), strict=True)
        )
        with self._servers(hosts) as (server, proxy_process, probe):
            settings = self._read_settings(hosts.sps)
            server = self._warm_up(hosts, server)
            probe.begin()
            before = self._each(hosts, self._counters)
            cpu_before_ns = hosts.sps.cpu_time_ns(proxy_process)
            self._mark("load_started")
            statistics = self.generator.offer(hosts, self.load, "uac", self.calls, self.run.cps)
            self._mark("load_ended")
            self._silence(hosts, server)
            proxy_cpu_ns = hosts.sps.cpu_time_ns(proxy_process) - cpu_before_ns
            after = self._each(hosts, self._counters)
            proxy_alive = hosts.sps.is_running(proxy_process)
            probe_report = probe.end(self.record.folder)
        counters = {
            host.spec.role: {"before": first, "after": last}
            for host, first, last in zip(hosts.all, before, after, strict=True)
        }
        self.record.write(COUNTERS_FILE, json.dumps(counters, indent=1))
        log = self._fetch_files(hosts)
        self._mark("fetched")
        reasons = _reasons_against(statistics, probe_report, log, proxy_alive)
        return {
            "schema_version": SCHEMA_VERSION,
            "run": vars(self.run),
            "testbed": {
                name: getattr(self.testbed, name)
                for name in ("name", "kind", "description", "fidelity")
            },
            "sut": vars(self.sut),
            "started_at": _utc(self.timeline["started"]),
            "finished_at": _utc(time.time()),
            "timeline": self.timeline,
            # SIPp starts calls at a fixed rate: there is nothing to seed
            "load": {**vars(self.load), "calls": self.calls, "seed": None},
            "generator": {
                "version": descriptions["uac"]["versions"][self.load.generator],
                **vars(statistics),
            },
            "proxy": {"cpu_ns": proxy_cpu_ns},
            "probe": probe_report,
            "hosts": descriptions,
            "settings": settings,
            "verdict": {"valid": not reasons, "reasons": reasons},
            "commands": _commands(hosts),
        }

    def _warm_up(self, hosts: Hosts, server: Process) -> Process:
        """Offer calls that are not measured; the UAS that answers the measured ones comes back."""
        self._mark("warmup_started")
        if self.load.warmup_s == 0:
            return server
        calls = max(1, round(self.run.cps * self.load.warmup_s))
        done = self.generator.offer(hosts, self.load, "warmup", calls, self.run.cps)
        if done.calls_completed < calls:
            # open calls would be answered, again and again, into the measurement
            self._silence(hosts, server)
            server = self._start_server(hosts.uas)
        return server

    def _silence(self, hosts: Hosts, server: Process) -> None:
        """Stop the UAS, whose retransmissions outlive the UAC, and wait until the SPS's queue is empty."""
        hosts.uas.stop(server)
        hosts.sps.wait_until(
            f"[ -z \"$(ss -Hlun 'sport = :{hosts.sps.spec.sip_port}' | awk '$2 > 0')\" ]",
            what="the SPS's receive queue is not empty",
            timeout_s=DRAIN_TIMEOUT_S,
        )

    def _start_server(self, uas: Host) -> Process:
        server = self.generator.start_server(uas, self.load, self.limit_s)
        self._wait_for_socket(uas, server)
        return server

    @contextmanager
    def _servers(self, hosts: Hosts) -> Iterator[Any]:
        """UAS, probe and proxy, running while the block does."""
        sps = hosts.sps
        config_file = sps.workdir / "proxy.cfg"
        config_text = self.proxy.config_text(self.sut, self.testbed, self.run.threads)
        sps.put_text(config_text, config_file)
        self.record.write("proxy.cfg", config_text)
        with ExitStack() as stack:
            stack.callback(sps.stop_strays)
            stack.callback(hosts.uas.stop_strays)
            server = self._start_server(hosts.uas)
            proxy_process, probe = self._start_probed_proxy(sps, config_file)
            self._mark("servers_ready")
            yield server, proxy_process, probe

    def _start_probed_proxy(self, sps: Host, config_file: PurePosixPath) -> tuple[Process, Probe]:
        """Start the proxy, then the probe, which has to find its workers.

        A library that is preloaded has to be there first: where BPF is refused, the proxy starts again.
        """
        if self.probe_wanted == "off":
            return self._start_proxy(sps, config_file, {}), NoProbe()
        reason = "asked for"
        if self.probe_wanted != "preload":
            process = self._start_proxy(sps, config_file, {})
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
        return self._start_proxy(sps, config_file, preload.environment()), preload

    def _start_proxy(
        self, sps: Host, config_file: PurePosixPath, environment: Mapping[str, str]
    ) -> Process:
        process = sps.start(
            "proxy",
            self.proxy.command(self.sut, config_file, sps.workdir),
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
        own = (self.proxy.program,) if role == "sps" else self.generator.programs
        host.require_programs((*own, *HOST_PROGRAMS))
        if role == "sps" and self.probe_wanted != "off":
            host.require_programs((str(native_folder(host.base) / "sipprobe"),))
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
            versions = {self.load.generator: list(self.generator.version_argv)}
        return describe(host, versions)

    def _read_settings(self, sps: Host) -> dict[str, Any]:
        port = sps.spec.sip_port
        sockets = sps.run(["ss", "-Hlunmp", f"sport = :{port}"]).stdout
        values = read_files(
            sps,
            (
                "/proc/sys/net/core/rmem_default",
                "/proc/sys/net/core/rmem_max",
                "/proc/sys/kernel/sched_autogroup_enabled",
            ),
        )
        return {
            "so_rcvbuf_bytes": _receive_buffer(sockets),
            "sps_cpus": list(sps.spec.cpus[: self.run.cores]),
            **{Path(name).name: value.strip() for name, value in values.items()},
        }

    def _counters(self, host: Host) -> dict[str, str]:
        return read_files(host, COUNTER_FILES)

    def _fetch_files(self, hosts: Hosts) -> str:
        """Copy logs and generator files into the record; the proxy's log comes back."""
        for name in self.generator.files("uac"):
            self.record.write(name, hosts.uac.run(["cat", str(hosts.uac.workdir / name)]).stdout)
        log = hosts.sps.run(["cat", str(hosts.sps.workdir / "proxy.log")], check=False).stdout
        self.record.write("proxy.log", log)
        return log

    def _each(self, hosts: Hosts, action: Any) -> list[Any]:
        with ThreadPoolExecutor(len(hosts.all)) as pool:
            return list(pool.map(action, hosts.all))

    def _mark(self, name: str) -> None:
        self.timeline[name] = time.time()


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


def call_count(run: Run, load: Load) -> int:
    """Count the calls that a run offers after its warm-up."""
    return max(1, round(run.cps * load.duration_s))


def _reasons_against(
    statistics: CallStatistics, probe: dict[str, Any], log: str, proxy_alive: bool
) -> list[str]:
    reasons = []
    if probe["lost"]:
        reasons.append(f"the probe lost {probe['lost']} records")
    if probe.get("threads_untraced"):
        reasons.append(f"the probe had no room for {probe['threads_untraced']} threads")
    if statistics.calls_created != statistics.calls_offered:
        reasons.append(
            f"the generator started {statistics.calls_created} of {statistics.calls_offered} calls"
        )
    if failures := allocation_failures(log):
        reasons.append(f"the proxy ran out of memory: {failures[0]}")
    if not proxy_alive:
        reasons.append("the proxy ended during the run")
    return reasons


def _receive_buffer(sockets: str) -> int | None:
    """Effective SO_RCVBUF in bytes, from the skmem field of ss."""
    for field in sockets.replace("(", ",").replace(")", ",").split(","):
        if field.startswith("rb") and field[2:].isdigit():
            return int(field[2:])
    return None


def _check_local_disk(raw: Path, run: Run, load: Load) -> None:
    folder = next(path for path in (raw, *raw.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    needed = call_count(run, load) * TRACE_BYTES_PER_CALL + SPARE_BYTES
    if free < needed:
        raise StableError(
            f"{raw}: disk full: {free >> 20} MiB free, {needed >> 20} MiB needed for the record"
        )


def _utc(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
