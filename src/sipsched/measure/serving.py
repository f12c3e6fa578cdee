"""A point being served: UAS, proxy and probe on the hosts of an open testbed, and loads offered to them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TypeVar

from sipsched.errors import StableError, TransientError
from sipsched.measure.fronts import DISPATCHER, MOST_INSTANCES, Front
from sipsched.measure.generator import (
    Arrivals,
    CallStatistics,
    Generator,
    Served,
    Sipload,
    Sipp,
    Transport,
)
from sipsched.measure.hoststate import COUNTER_FILES, clock_offset_s, describe, read_files
from sipsched.measure.memory import check_memory
from sipsched.measure.probe import (
    TRACE_BYTES_PER_CALL,
    BpfProbe,
    NoProbe,
    PreloadProbe,
    Probe,
)
from sipsched.measure.proxy import ALLOCATION_FAILURE, find_proxy
from sipsched.measure.shards import LIBRARY, PROGRAM, Shards
from sipsched.measure.tuning import Tuned, task_prefix
from sipsched.plan.config import Config, Point
from sipsched.records.record import UnfinishedRecord
from sipsched.records.run_document import HostReport, HostReports, ProxyReport, Settings
from sipsched.testbed.host import Host, Process
from sipsched.testbed.links import check_links
from sipsched.testbed.session import Hosts
from sipsched.validity.ledger import (
    SNMP,
    Ledger,
    Snapshots,
    Tally,
    balance,
    balance_messages,
    no_ports,
)

START_TIMEOUT_S = 10
DRAIN_TIMEOUT_S = 5
STREAM_DRAIN_TIMEOUT_S = 30
"""Over TCP what is too much waits: as long as the load had lasted, at twice what the SPS can do, and longer beyond."""
SPARE_BYTES = 64 * 2**20
LAST_PORT = 65535
HOST_PROGRAMS = ("start-stop-daemon", "timeout", "taskset", "chrt", "ss", "lscpu", "zstd", "pkill")
GENERATORS: dict[str, Generator] = {"sipload": Sipload(), "sipp": Sipp()}
LOG_BYTES = 512 * 1024
MESSAGES_A_CALL = 6
SHORTENED = """\
size=$(stat -c %s "$1") || exit 0
if [ "$size" -le $((2 * $2)) ]; then
    cat "$1"
else
    head -c "$2" "$1"
    printf '\\n[%s bytes left out but for failed allocations]\\n' $((size - 2 * $2))
    tail -c +$(($2 + 1)) "$1" | head -c $((size - 2 * $2)) | grep -aEim 100 "$3"
    printf '[the last %s bytes]\\n' "$2"
    tail -c "$2" "$1"
fi
"""
"""Of a file, at most so many bytes at each end, and lines of a pattern between them."""
NOTHING_WAITS = """\
own="( sport >= :$2 and sport <= :$3 )"
case $1 in
udp) waiting=$(ss -Hlun "$own" | awk '$2 > 0') ;;
tcp) waiting=$(ss -Hnt state established "( $own or ( dport >= :$2 and dport <= :$3 ) )" | awk '$1 > 0') ;;
esac
[ -z "$waiting" ]"""
"""No socket for SIP has anything to be read: protocol, first and last port."""
LISTENERS = 'ss -Hlnp "--$1" "( sport >= :$2 and sport <= :$3 )"'
"""Protocol, first and last port."""
LISTENING = '[ "$(ss -Hln "--$1" "( sport >= :$2 and sport <= :$3 )" | wc -l)" -ge "$4" ]'
REUSE, PORTS = "/proc/sys/net/ipv4/tcp_tw_reuse", "/proc/sys/net/ipv4/ip_local_port_range"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Observed:
    """What became of a load.

    Attributes
    ----------
    started, ended
        CLOCK_REALTIME of the controller, seconds since the epoch.
    statistics
        What the generator says.
    counters
        Of the three hosts before and after, the text of `counters.json`.
    ledger
        The same, balanced; over TCP the messages that UAC, UAS and proxy count themselves.
    no_ports
        Datagrams that met no open port on a host whose agent or proxy was up.
    clock_step_s
        Largest step of CLOCK_REALTIME against CLOCK_MONOTONIC on any host, in seconds; at least 0.
    proxy
        What its processes used and were given.
    served
        What the UAS answered since it was started; None if the generator does not tell.
    """

    started: float
    ended: float
    statistics: CallStatistics
    counters: Snapshots
    ledger: Ledger
    no_ports: int
    clock_step_s: float
    proxy: ProxyReport
    served: Served | None = None


@dataclass(frozen=True)
class WarmUp:
    """What the warm-up shows of the proxy.

    Attributes
    ----------
    utilisation
        CPU time of the proxy over that of the SPS's CPUs.
    service_s
        CPU time of a message, over the number of CPUs.
    """

    utilisation: float
    service_s: float


@dataclass(frozen=True)
class CpuTime:
    """CPU time in ns of all processes of the SUT, and of them of what stands before its instances."""

    all: int
    front: int

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        """Take off what was used before."""
        return CpuTime(self.all - other.all, self.front - other.front)


class Serving:
    """The SUT of a point on three hosts; nothing runs until `starting`.

    Parameters
    ----------
    hosts
        The hosts of an open testbed.
    point
        What is measured.
    config
        The campaign: SUTs, load and probe.
    record
        Gets the proxy's configuration and log.
    limit_s
        Longest life of what is started.
    controlled
        Whether the probe's recording can be switched off and on.

    Attributes
    ----------
    proxy_process, probe
        Of the proxy that runs; once `start` has returned.
    """

    proxy_process: Process
    probe: Probe
    _server: Process
    _bpf: Future[BpfProbe | None]

    def __init__(
        self,
        hosts: Hosts,
        point: Point,
        config: Config,
        record: UnfinishedRecord,
        limit_s: float,
        *,
        controlled: bool = False,
    ) -> None:
        self.hosts = hosts
        self.point = point
        self.load = config.load
        self.sut = config.sut(point.sut)
        self.proxy = find_proxy(self.sut)
        if self.point.threads > MOST_INSTANCES and (self.sut.sharded or self.sut.fronted):
            raise StableError(
                f"SUT {self.sut.name}: calls are spread over at most {MOST_INSTANCES} workers, asked are "
                f"{self.point.threads}; lower threads"
            )
        self.transport = Transport.of(self.sut)
        self.generator = GENERATORS[config.load.generator]
        self._probe_wanted = self.sut.probe or config.probe
        self._record = record
        self._limit_s = limit_s
        self._shards = (
            Shards(hosts.sps, self.sut, point.threads, limit_s) if self.sut.sharded else None
        )
        self._front = (
            Front(hosts.sps, self.proxy, self.sut, point.threads, self.cpus, limit_s)
            if self.sut.fronted
            else None
        )
        self._controlled = controlled

    @property
    def cpus(self) -> tuple[int, ...]:
        """CPUs of the SPS that the proxy is held to."""
        return self.hosts.sps.spec.cpus[: self.point.cores]

    @property
    def processes(self) -> tuple[Process, ...]:
        """The proxy, and what stands before it; once `start` has returned."""
        return (self.proxy_process, *([self._front.process] if self._front else []))

    def clear_hosts(self) -> None:
        """End strays, and see that there are the programs, switcher and probe, the memory and free ports for SIP.

        Raises
        ------
        StableError
            A program is missing or not as it was built, memory is short, a port is in use.
        """
        self.on_each(self._clear)

    def check_hosts(self, calls: int) -> None:
        """See that each host has whatever else the run needs.

        Parameters
        ----------
        calls
            How many of them the files of one load have to hold.

        Raises
        ------
        StableError
            A native part is missing or not as it was built, a disk is full.
        TransientError
            A link has no carrier, or no datagram passes.
        """
        with ThreadPoolExecutor(1) as pool:
            links = pool.submit(check_links, self.hosts)
            self.on_each(partial(self._check_host, calls=calls))
            links.result()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start the probe beside what the block does first; when it ends, all that was started does."""
        with ExitStack() as stack:
            stack.callback(self.hosts.sps.stop_strays)
            stack.callback(self.hosts.uas.stop_strays)
            pool = stack.enter_context(ThreadPoolExecutor(1))
            self._bpf = pool.submit(self._start_bpf_probe)
            yield

    def start(self, state: Tuned) -> None:
        """Start UAS and, on a tuned SPS, proxy; wait until both and the probe are ready. Within `starting`."""
        sps = self.hosts.sps
        config_file = sps.workdir / "proxy.cfg"
        config_text = self.proxy.config_text(
            self.sut, self.hosts.testbed, self.point.threads, sps.workdir
        )
        sps.put_text(config_text, config_file)
        self._record.write("proxy.cfg", config_text)
        if self._front and self._front.config:
            self._record.write("front.cfg", self._front.config)
        with ThreadPoolExecutor(1) as pool:
            uas = pool.submit(self._start_server)
            self.proxy_process, self.probe = self._start_probed_proxy(
                partial(self._start_proxy, config_file, task_prefix(state, sps))
            )
            uas.result()

    def warm_up(self, cps: int, seed: int) -> "WarmUp":
        """Offer calls that are not measured, one at least: a call gets through from end to end.

        Raises
        ------
        TransientError
            Not one of them completed.
        """
        calls = max(1, round(cps * self.load.warmup_s))
        before_ns = self._cpu_ns().all
        completed = self._offer("warmup", Arrivals(cps, calls, seed)).calls_completed
        if not completed:
            self.record_proxy_log()
            raise TransientError(
                f"no call gets through from UAC by SPS to UAS: {calls} offered, none completed; "
                "see proxy.log"
            )
        cpu_s = (self._cpu_ns().all - before_ns) / 1e9
        if completed < calls or self.sut.over_tcp:
            # open calls would be answered, again and again, into the measurement; and over TCP what the UAS counts
            # from its start on is to be the measurement's alone
            self._silence()
            self._start_server()
        cores = len(self.cpus)
        return WarmUp(cpu_s / (calls / cps) / cores, cpu_s / (MESSAGES_A_CALL * completed) / cores)

    def observe(
        self,
        label: str,
        arrivals: Arrivals,
        during: AbstractContextManager[None] | None = None,
    ) -> Observed:
        """Offer calls and count what became of them; UAS and proxy have ended when it returns.

        Parameters
        ----------
        label
            Names the generator's files.
        arrivals
            The calls.
        during
            What goes on while they are offered.

        Raises
        ------
        TransientError
            The proxy or the UAS ended by itself.
        """
        sps = self.hosts.sps
        self.probe.begin()
        before, clocks = self._counters(), self.on_each(clock_offset_s)
        messages_before = self._proxy_messages()
        cpu_before = self._cpu_ns()
        started = time.time()
        with during or nullcontext():
            statistics = self._offer(label, arrivals)
        ended = time.time()
        uas_no_ports = self._silence()
        self._expect_alive(statistics)
        used = self._cpu_ns() - cpu_before
        messages = self._proxy_messages()
        if messages is not None and messages_before is not None:
            messages -= messages_before
        # its retransmissions would go on between the counters of one host and those of the next
        sps.stop(self.proxy_process)
        served = self.generator.served(self.hosts.uas)
        proxy = ProxyReport(
            used.all,
            shards=self._shards.end() if self._shards else None,
            front=self._front.end(used.front) if self._front else None,
            calls_of_instances=self._calls_of_instances(served),
        )
        after, clocks_after = self._counters(), self.on_each(clock_offset_s)
        roles = [host.spec.role for host in self.hosts.all]
        counters = {
            role: {"before": first, "after": last}
            for role, first, last in zip(roles, before, after, strict=True)
        }
        return Observed(
            started=started,
            ended=ended,
            statistics=statistics,
            counters=counters,
            ledger=self._ledger(counters, statistics, served, messages),
            no_ports=(statistics.no_ports or 0)
            + no_ports(counters["sps"]["before"], counters["sps"]["after"])
            + no_ports(counters["uas"]["before"], uas_no_ports),
            clock_step_s=max(
                abs(last - first) for first, last in zip(clocks, clocks_after, strict=True)
            ),
            proxy=proxy,
            served=served,
        )

    @property
    def _sockets(self) -> int:
        """Sockets that the proxy listens on, without what stands before it."""
        if self.sut.deployment == "sockets":
            return self.point.threads
        return self.sut.instances(self.point.threads)

    def _ports(self, host: Host) -> tuple[int, int]:
        """Give the first and the last of a host's ports for SIP: instances behind a front have one each."""
        first = host.spec.sip_port
        behind = host.spec.role == "sps" and self.sut.fronted
        return first, first + (self.point.threads if behind else 0)

    def _listens(self, host: Host, sockets: int) -> bool:
        """Say whether so many sockets are open on a host's ports for SIP."""
        arguments = (self.transport.protocol, *self._ports(host), sockets)
        return host.shell(LISTENING, *arguments, check=False).exit_code == 0

    def _proxy_messages(self) -> Tally | None:
        sps = self.hosts.sps
        return self.proxy.messages(sps, sps.workdir, self.sut, self.point.threads)

    def _ledger(
        self,
        counters: Snapshots,
        statistics: CallStatistics,
        served: Served | None,
        proxy: Tally | None,
    ) -> Ledger:
        if proxy is None:
            return balance(counters, fronted=self.sut.fronted)
        if served is None or statistics.messages is None:
            raise StableError(f"{self.load.generator} counts no messages over TCP; use sipload")
        return balance_messages(counters, statistics.messages + served.messages, proxy)

    def _calls_of_instances(self, served: Served | None) -> tuple[int, ...] | None:
        """Give the calls of each instance that has an address of its own; one that got none is not seen."""
        if served is None or not self.sut.told_apart:
            return None
        return (*served.calls, *(0,) * (self.point.threads - len(served.calls)))

    def first_call_ns(self, label: str, arrivals: Arrivals) -> int:
        """Say how long after the beginning of the load its first call starts.

        Raises
        ------
        StableError
            The generator draws nothing.
        """
        if not isinstance(self.generator, Sipload):
            raise StableError(f"{self.load.generator} draws no calls beforehand; use sipload")
        return self.generator.draw(self.hosts.uac, self.load, label, arrivals).first_ns

    def _cpu_ns(self) -> "CpuTime":
        """Read what the SUT has used since it was started."""
        instances = self.hosts.sps.cpu_time_ns(self.proxy_process)
        front = self._front.cpu_time_ns() if self._front else 0
        return CpuTime(instances + front, front)

    def _offer(self, label: str, arrivals: Arrivals) -> CallStatistics:
        """Offer calls and wait for their end."""
        return self.generator.offer(self.hosts, self.load, label, arrivals, self.transport)

    def _silence(self) -> dict[str, str]:
        """Stop the UAS, whose retransmissions outlive the UAC, and wait until the SPS's queue is empty.

        What the UAS's host had counted until then comes back.
        """
        sps, uas = self.hosts.sps, self.hosts.uas
        counted = read_files(uas, (SNMP,))
        if not uas.is_running(self._server):
            raise TransientError("the UAS ended by itself, before it was told to")
        if self.sut.over_tcp:
            self._await_empty(sps, "the SPS's receive queues are not empty")
            self._await_empty(uas, "the UAS does not read what it is sent")
            uas.stop(self._server)
            return counted
        uas.stop(self._server)
        self._await_empty(sps, "the SPS's receive queue is not empty")
        return counted

    def _await_empty(self, host: Host, what: str) -> None:
        """Wait until no socket for SIP on a host has anything to be read."""
        host.wait_until(
            NOTHING_WAITS,
            self.transport.protocol,
            *self._ports(host),
            what=what,
            timeout_s=STREAM_DRAIN_TIMEOUT_S if self.sut.over_tcp else DRAIN_TIMEOUT_S,
        )

    def _expect_alive(self, statistics: CallStatistics) -> None:
        """Raise a TransientError, with the last words of the proxy, if any of it has ended under the load."""
        sps, front = self.hosts.sps, self._front
        all_there = self._sockets + (front is not None)
        front_ended = front is not None and not sps.is_running(front.process)
        if sps.is_running(self.proxy_process) and not front_ended and self._listens(sps, all_there):
            return
        what, log_name, log = "the proxy", "proxy.log", self.record_proxy_log()
        if front is not None and front_ended:
            what, log_name = f"the {self.sut.deployment} before the proxy", "front.log"
            log = sps.run(["tail", "-n", "40", str(front.process.log_file)], check=False).stdout
            self._record.write(log_name, log)
        elif self._sockets > 1 and sps.is_running(self.proxy_process):
            what = f"an instance of the proxy, or one of its {self._sockets} sockets,"
        lost = statistics.calls_created - statistics.calls_completed
        last = log.strip().splitlines()[-1].strip() if log.strip() else "it wrote no log"
        raise TransientError(
            f"{what} ended during the run, and {lost} of {statistics.calls_created} calls did not complete; "
            f"its log is {log_name}: {last}"
        )

    def _counters(self) -> list[dict[str, str]]:
        """Read the counters of each host: path to text."""
        return self.on_each(lambda host: read_files(host, COUNTER_FILES))

    def describe(self) -> HostReports:
        """Say what each host is."""
        return HostReports(*self.on_each(self._describe))

    def settings(self) -> Settings:
        """Read what the SPS's sockets and CPUs are while the proxy serves."""
        sps = self.hosts.sps
        sockets = sps.run(["ss", "-Hlunmp", f"sport = :{sps.spec.sip_port}"]).stdout
        limits = ("rmem_default", "rmem_max")
        paths = {name: f"/proc/sys/net/core/{name}" for name in limits}
        values = read_files(sps, tuple(paths.values()))
        return Settings(
            so_rcvbuf_bytes=_receive_buffer(sockets),
            sps_cpus=self.cpus,
            **{
                name: values[path].strip() if path in values else None
                for name, path in paths.items()
            },
        )

    def record_proxy_log(self) -> str:
        """Copy the proxy's log into the record; its text comes back.

        Of a long one, as a flood of datagrams that are no SIP leaves it, the beginning, the end, and what
        tells of failed allocations in between.
        """
        sps = self.hosts.sps
        arguments = (sps.workdir / "proxy.log", LOG_BYTES, ALLOCATION_FAILURE)
        log = sps.shell(SHORTENED, *arguments, timeout_s=60, check=False).stdout
        self._record.write("proxy.log", log)
        return log

    def on_each(self, action: Callable[[Host], Found]) -> list[Found]:
        """Do the same on all hosts at once."""
        with ThreadPoolExecutor(len(self.hosts.all)) as pool:
            return list(pool.map(action, self.hosts.all))

    def _start_server(self) -> None:
        """Start the UAS and wait until it listens."""
        uas = self.hosts.uas
        self._server = self.generator.start_server(uas, self.load, self._limit_s, self.transport)
        self._wait_for_socket(uas, self._server)

    @property
    def _wants_bpf(self) -> bool:
        """Whether the probe that the kernel runs is wanted: over TCP there is no other."""
        return self._probe_wanted != "off" and (
            self.sut.over_tcp or self._probe_wanted != "preload"
        )

    def _start_bpf_probe(self) -> BpfProbe | None:
        """Start the probe that the kernel runs, with the proxy or before it; None where it is not wanted."""
        if not self._wants_bpf:
            return None
        over_tcp = self.sut.over_tcp
        return BpfProbe.start(
            self.hosts.sps,
            self.proxy.program,
            "stream" if over_tcp else self._probe_wanted,
            self._limit_s,
            peer_port=self.hosts.uas.spec.sip_port if over_tcp else None,
            controlled=self._controlled,
        )

    def _start_probed_proxy(
        self, start: Callable[[Mapping[str, str]], Process]
    ) -> tuple[Process, Probe]:
        """Start the proxy, and take the probe that the kernel runs once it is there.

        A library that is preloaded has to be there first: where BPF is refused, the proxy starts again.
        """
        sps, reason = self.hosts.sps, "asked for"
        if self._probe_wanted == "off":
            return start({}), NoProbe()
        if self._wants_bpf:
            process = start({})
            try:
                probe = self._bpf.result()
            except StableError as error:
                if self._probe_wanted != "auto" or self.sut.over_tcp:
                    raise
                reason = str(error)
                sps.stop(process)
            else:
                assert probe is not None
                # before the first message: its workers are there by now
                probe.begin()
                return process, probe
        if self._controlled:
            raise StableError(
                f"host {sps.spec}: only the BPF probe can be stilled and go on, and here it cannot run: "
                f"{reason}"
            )
        preload = PreloadProbe(sps, reason)
        return start(preload.environment()), preload

    def _start_proxy(
        self,
        config_file: PurePosixPath,
        prefix: Sequence[str],
        environment: Mapping[str, str],
    ) -> Process:
        sps, threads = self.hosts.sps, self.point.threads
        command = self.proxy.command(self.sut, config_file, sps.workdir, threads, sps.spec)
        process = sps.start(
            "proxy",
            [*prefix, *command],
            cpus=self.cpus,
            limit_s=self._limit_s,
            environment=self._shards.environment(environment) if self._shards else environment,
        )
        self._wait_for_socket(sps, process, self._sockets)
        if self._shards:
            self._shards.attach(process, self.proxy.program)
        if self._front:
            self._wait_for_socket(sps, self._front.start(prefix), self._sockets + 1)
        return process

    def _wait_for_socket(self, host: Host, process: Process, sockets: int = 1) -> None:
        """Wait until a server listens; one that ends instead is an error with its own words."""
        port, protocol = host.spec.sip_port, self.transport.protocol
        listens = host.wait_while_running(
            process,
            LISTENING,
            protocol,
            *self._ports(host),
            sockets,
            what=f"nothing listens on {protocol.upper()} port {port}",
            timeout_s=START_TIMEOUT_S,
        )
        if not listens:
            log = host.run(["tail", "-n", "40", str(process.log_file)], check=False).stdout
            self._record.write(process.log_file.name, log)
            errors = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
            raise StableError(
                f"host {host.spec}: {process.name} ended before it listened on {protocol.upper()} "
                f"port {port}: "
                f"{(errors or log.splitlines() or ['it wrote no log'])[0].strip()}"
            )

    def _clear(self, host: Host) -> None:
        host.stop_strays()
        own = self.generator.installed
        if host.spec.role == "sps":
            own = (self.proxy.program, *(self.proxy.programs if self.sut.over_tcp else ()))
        host.require_programs((*own, *HOST_PROGRAMS))
        if host.spec.role == "sps":
            check_memory(host, self.sut, self.point.threads, self.point.cores)
            host.require_built("scheduler", ["taskslice", "switcher"])
            if self._probe_wanted != "off":
                host.require_built("probe", ["sipprobe"])
        (first, last), protocol = self._ports(host), self.transport.protocol
        if last > LAST_PORT:
            raise StableError(
                f"host {host.spec}: {self.sut.name} with {self.point.threads} instances needs ports {first} to {last}, "
                f"and the last there is is {LAST_PORT}; lower threads or sip_port"
            )
        users = host.shell(LISTENERS, protocol, first, last).stdout.strip()
        if users:
            ports = f"port {first}" if first == last else f"one of the ports {first} to {last}"
            raise StableError(
                f"host {host.spec}: {protocol.upper()} {ports} is in use: {' '.join(users.split())}; "
                f"end that program or choose another sip_port"
            )

    def _check_host(self, host: Host, calls: int) -> None:
        """See that a host has the other native parts, the ports and the disk that the run needs."""
        role = host.spec.role
        built = {part: [name] for part, name in self.generator.built.items()}
        if role == "sps":
            built = {}
            if self._shards:
                built["dispatcher"] = [PROGRAM, LIBRARY]
            elif self.sut.deployment == "dispatcher":
                built["dispatcher"] = [DISPATCHER]
        for part, names in built.items():
            host.require_built(part, names)
        if role == "uac" and self.transport.connections == "per-call":
            _check_ports(host, calls)
        free = host.free_bytes(host.workdir)
        needed = calls * TRACE_BYTES_PER_CALL * 2 + SPARE_BYTES
        if free < needed:
            raise StableError(
                f"host {host.spec}: disk full at {host.workdir}: {free >> 20} MiB free, "
                f"{needed >> 20} MiB needed for {calls} calls"
            )

    def _describe(self, host: Host) -> HostReport:
        if host.spec.role == "sps":
            versions = {self.proxy.program: [self.proxy.program, self.proxy.version_option]}
        else:
            versions = {self.load.generator: self.generator.version_argv(host)}
        return describe(host, versions)


def _check_ports(uac: Host, calls: int) -> None:
    """Refuse calls with a connection each where the ports run out: the UAC closes, and its port waits a minute.

    Raises
    ------
    StableError
        With what to set on the host.
    """
    files = read_files(uac, (REUSE, PORTS))
    first, last = map(int, files[PORTS].split())
    if files[REUSE].strip() != "1" and calls > last - first:
        raise StableError(
            f"host {uac.spec}: {calls} calls with a connection each, and {last - first + 1} ports, each of which "
            "waits 60 s for the next; there: sysctl net.ipv4.tcp_tw_reuse=1"
        )


def _receive_buffer(sockets: str) -> int | None:
    """Effective SO_RCVBUF in bytes, from the skmem field of ss."""
    for field in sockets.replace("(", ",").replace(")", ",").split(","):
        if field.startswith("rb") and field[2:].isdigit():
            return int(field[2:])
    return None
