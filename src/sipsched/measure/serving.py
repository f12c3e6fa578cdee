"""The running system under test: UAS, proxy and probe on the hosts of a testbed, and the loads from the UAC."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import PurePosixPath
from typing import TypeVar

from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.measure import switching, unread
from sipsched.measure.account import CpuAccount
from sipsched.measure.competitors import LOG_SOCKET, Competitors
from sipsched.measure.fronts import MOST_INSTANCES, Front
from sipsched.measure.generator import (
    Arrivals,
    CallStatistics,
    Served,
    Sipload,
    SipTransport,
)
from sipsched.measure.hostneeds import HostNeeds
from sipsched.measure.hoststate import COUNTER_FILES, clock_offset_s, describe, read_files
from sipsched.measure.observed import CpuTime, Observed, WarmUp
from sipsched.measure.probe import Probe
from sipsched.measure.probing import Probing
from sipsched.measure.proxy import (
    Proxy,
    ProxyCounts,
    config_name,
    find_proxy,
    in_root,
    instance_name,
    parse_instances,
    shortened_log,
    together,
)
from sipsched.measure.quiet import RECEIVE_QUEUES, awake
from sipsched.measure.restoring import read_settings
from sipsched.measure.shards import Shards
from sipsched.measure.tuning import Tuned, task_prefix
from sipsched.plan.config import Config
from sipsched.plan.crossover import Instance
from sipsched.plan.run import Point
from sipsched.plan.sut import Sut
from sipsched.records.proxy_report import ProxyReport
from sipsched.records.record import UnfinishedRecord
from sipsched.records.run_document import HostReport, HostReports, Settings
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder
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
from sipsched.words import listed

START_TIMEOUT_S = 10
DRAIN_TIMEOUT_S = 5
STREAM_DRAIN_TIMEOUT_S = 30
"""Seconds to wait until the buffers are empty after a load over TCP. After an overload, the buffers take this long."""
REPEAT_S = 2.0
"""Seconds until the proxy has repeated an unanswered request twice (after 0.5 and 1.5 s), and the UAS has answered."""
MESSAGES_A_CALL = 6
SET_BUFFERS = """\
program=$1 pid_file=$2 proxy=$3
shift 3
exec "$program" "$@" -- $(pgrep --pgroup "$(cat "$pid_file")" "$proxy")
"""
"""Shell script that sets receive buffers with the program `buffers`.

Arguments: the path of `buffers`, the file with the proxy's process group, the proxy's program, PORT=BYTES per socket.
"""
LISTENING = '[ "$(ss -Hln "--$1" "( sport >= :$2 and sport <= :$3 )" | wc -l)" -ge "$4" ]'
Result = TypeVar("Result")


class Serving:
    """The programs of a measurement on the hosts of a testbed. The method `start` starts them.

    Parameters
    ----------
    record
        The record, into which the proxy's configuration and log are written.
    limit_s
        Seconds after which a host stops every process that this object started there.
    controlled
        Whether the run can switch the probe's recording off and on.
    instances
        The proxy instances of a run that compares instances, in the order of their ports. Without an argument: one
        instance with the SUT and the number of workers of the point.

    Attributes
    ----------
    proxy_process, probe
        The running proxy and its probe, after `start`.
    proxies
        SUT and number of workers of each proxy instance, in the order of their ports.
    traced
        Whether the probe writes a trace with one record per message.
    """

    proxy_process: Process
    probe: Probe
    _server: Process

    def __init__(
        self,
        hosts: Hosts,
        point: Point,
        config: Config,
        record: UnfinishedRecord,
        limit_s: float,
        *,
        controlled: bool = False,
        instances: Sequence[Instance] = (),
    ) -> None:
        self.hosts = hosts
        self.point = point
        self.load = config.load
        self.sut = config.sut(point.sut)
        started = instances or (Instance(point.sut, point.threads, point.cores),)
        self.proxies = [
            (sut_of(instance, config.sut(instance.sut)), instance.threads) for instance in started
        ]
        # All instances run the same program, so their adapters are equal.
        self.proxy, *_ = [_adapter(sut, threads) for sut, threads in self.proxies]
        self._cores = [instance.cores or point.cores for instance in started]
        self._buffers = {
            number: instance.receive_buffer_bytes
            for number, instance in enumerate(started)
            if instance.receive_buffer_bytes
        }
        self.transport = SipTransport.of(self.sut)
        self.generator = Sipload()
        probe = self.sut.probe or config.probe
        self.traced = probe != "off"
        self._needs = HostNeeds(
            self.sut, self.proxy, self.point, self.transport, probe, self.proxies
        )
        self._probing = Probing(
            hosts,
            self.sut,
            self.proxy.program,
            probe,
            limit_s,
            controlled=controlled,
            ports=len(self.proxies),
        )
        self._record = record
        self._limit_s = limit_s
        self._shards = {
            number: Shards(hosts.sps, sut, threads, limit_s, instance=number)
            for number, (sut, threads) in enumerate(self.proxies)
            if sut.sharded
        }
        self._entry = hosts.entry(self.sut)
        self._front = (
            Front(hosts, self.proxy, self.sut, point.threads, self.cpus, limit_s)
            if self.sut.fronted
            else None
        )
        self._competitors = Competitors(hosts.sps, hosts.testbed.competitors, limit_s)
        self._connections_made = 0
        self._instance_of: Mapping[int, int] = {}
        self._sockets = sum(sut.listening_sockets(threads) for sut, threads in self.proxies)

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs on which the proxy, or any of its instances, may run."""
        return self.hosts.sps.spec.cpus[: max(self._cores)]

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the proxy and its front end on the SPS, after `start`."""
        front = self._front
        return (self.proxy_process, *([front.process] if front and front.is_on_sps else []))

    @property
    def _proxy_hosts(self) -> tuple[Host, ...]:
        """The hosts of the proxy and its front end, without repetition, in the order in which a request passes them."""
        return tuple(dict.fromkeys((self._entry, self.hosts.sps)))

    def account(self, *, sampled: bool = False, with_bursts: bool = False) -> CpuAccount:
        """Prepare an account of the CPU time on the proxy's host. Call `start` first."""
        return CpuAccount(
            self.hosts,
            self.processes,
            self.cpus,
            self._limit_s,
            sampled=sampled,
            with_bursts=with_bursts,
            planned=self._competitors,
        )

    def clear_hosts(self) -> None:
        """Stop the processes of earlier runs, and check programs, memory and free ports on all hosts.

        Raises
        ------
        StableError
            A program is missing or differs from the built program, memory is insufficient, or another program uses a
            port.
        """
        self.on_each(self._needs.clear)

    def check_hosts(self, calls: int) -> None:
        """Check the compiled programs, ports, disks and network links of all hosts.

        Parameters
        ----------
        calls
            Number of calls whose files must fit on the disks of the hosts.

        Raises
        ------
        StableError
            A program is not built or differs from its source code, or a disk is full.
        TransientError
            A network link has no carrier, or datagrams do not arrive.
        """
        with ThreadPoolExecutor(1) as pool:
            links = pool.submit(check_links, self.hosts)
            self.on_each(partial(self._needs.check, calls=calls))
            links.result()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Load the probe in the background of the `with` block. At the end of the block, stop the proxy and the UAS."""
        with ExitStack() as stack:
            for host in (*self._proxy_hosts, self.hosts.uas):
                stack.callback(host.stop_strays)
            stack.enter_context(self._competitors.reading_log())
            stack.enter_context(self._probing.starting())
            yield

    def start(self, state: Tuned) -> None:
        """Start the UAS, the proxy and the probe, and wait for all of them.

        Call this method in a `with starting()` block.

        Raises
        ------
        StableError
            The proxy logs its messages, but no program reads the log.
        """
        sps = self.hosts.sps
        if self.sut.log_messages and sps.run(["test", "-S", LOG_SOCKET], check=False).exit_code:
            raise StableError(
                f"host {sps.spec}: SUT {self.sut.name} writes a line per message to {LOG_SOCKET} (log_messages), but "
                "no program reads this socket; start a syslog daemon, but not on the proxy's CPUs"
            )
        commands = [self._configure(number) for number in range(len(self.proxies))]
        if self._front and self._front.config:
            self._record.write("front.cfg", self._front.config)
        with ThreadPoolExecutor(1) as pool:
            uas = pool.submit(self._start_server)
            self.proxy_process, self.probe = self._probing.start(
                partial(self._start_proxy, commands, task_prefix(state, sps))
            )
            uas.result()

    def _configure(self, number: int) -> list[str]:
        """Write the configuration of a proxy instance to its host and to the record, and return its command line."""
        sps, (sut, threads) = self.hosts.sps, self.proxies[number]
        folder = self._folder(number)
        text = self.proxy.config_text(sut, self.hosts.testbed, threads, folder, instance=number)
        sps.run(["mkdir", "-p", str(folder)])
        sps.put_text(text, folder / "proxy.cfg")
        self._record.write(config_name(number), text)
        command = self.proxy.command(sut, folder / "proxy.cfg", folder, threads, sps.spec)
        cpus = ",".join(map(str, self.cpus[: self._cores[number]]))
        pinned = ["taskset", "--cpu-list", cpus] if self._cores[number] < len(self.cpus) else []
        return [*pinned, *in_root(sut, sps), *command]

    def _folder(self, number: int) -> PurePosixPath:
        """Return the working folder of a proxy instance on its host."""
        workdir = self.hosts.sps.workdir
        return workdir if len(self.proxies) == 1 else workdir / f"instance-{number}"

    def warm_up(self, cps: int, seed: int) -> WarmUp:
        """Start calls from the UAC before the measurement, and check that the UAS answers at least one call.

        Under an overload, it is possible that no call completes before the end of the warm-up.

        Raises
        ------
        TransientError
            The UAC received no answer of the UAS.
        """
        calls = max(1, round(cps * self.load.warmup_s))
        before_ns = self._cpu_ns().all
        arrivals = Arrivals(cps, calls, seed)
        if len(self.proxies) > 1:
            # Each proxy instance serves an equal part of the warm-up.
            length_ns = round(self.load.warmup_s * 1e9 / len(self.proxies))
            blocks = [(number, length_ns, number) for number in range(len(self.proxies))]
            arrivals = Arrivals.in_blocks(cps, seed, blocks)
        statistics = self._offer("warmup", arrivals)
        calls, completed = statistics.calls_offered, statistics.calls_completed
        # The UAC sends an ACK when it receives the answer 200 of the UAS.
        if not statistics.requests["ACK"].first:
            self.record_proxy_log()
            raise TransientError(
                f"no call from the UAC reached the UAS through the proxy: {calls} offered at {cps} cps, none "
                "answered; see proxy.log"
            )
        cpu_s = (self._cpu_ns().all - before_ns) / 1e9
        if completed < calls or self.sut.over_tcp:
            if not self.sut.over_tcp:
                # A restarted UAS does not know the call of a repeated request, so its answer 481 would reach the proxy
                # during the measurement.
                self.hosts.uas.run(["sleep", f"{max(0.0, REPEAT_S - self.load.drain_s):g}"])
            # Without a restart, the UAS would retransmit answers of unfinished calls during the measurement.
            # Over TCP, a restart also excludes the warm-up from the counts of the UAS.
            self._silence()
            self._start_server()
        # The instance with the fewest cores is busiest, so the utilisation of this instance decides how long windows
        # must be.
        cores = min(self._cores)
        # If each worker has its own socket, only this worker empties the socket's queue. Other CPUs then do not shorten
        # the time until the queue has its usual length again.
        servers = 1 if any(sut.sharded for sut, _ in self.proxies) else cores
        return WarmUp(
            cpu_s / (calls / cps) / cores, cpu_s / (MESSAGES_A_CALL * max(completed, 1)) / servers
        )

    def observe(
        self,
        label: str,
        arrivals: Arrivals,
        during: Sequence[AbstractContextManager[None]] = (),
    ) -> Observed:
        """Start the calls of a load, stop UAS and proxy after the load, and return the counts of the load.

        The competitors that the testbed declares run while the UAC offers the calls.

        Parameters
        ----------
        label
            First part of the names of the generator's files.
        during
            Context managers that are active while the UAC offers the calls.

        Raises
        ------
        TransientError
            The proxy, the UAS or a competitor ended unexpectedly. Or messages still wait in sockets after the load.
        """
        self.probe.begin()
        before, clocks = self._counters(), self.on_each(clock_offset_s)
        self._instance_of = self._expect_instances()
        counts = self._proxy_counts()
        members = self._members()
        cpu_before = self._cpu_ns()
        started = time.time()
        with ExitStack() as stack:
            idle = awake(self.hosts.sps, self.hosts.testbed, self.cpus, self._limit_s)
            for context in (idle, self._competitors.running(), *during):
                stack.enter_context(context)
            statistics = self._offer(label, arrivals)
        ended = time.time()
        uas_counters = self._silence()
        self._expect_alive(members, statistics)
        used = self._cpu_ns() - cpu_before
        counts_after = self._proxy_counts()
        if counts is not None and counts_after is not None:
            counts = counts_after - counts
        # Stop the proxy before reading the counters of the hosts.
        # A running proxy would send retransmissions between the readings of two hosts, so the counts would not match.
        self.hosts.sps.stop(self.proxy_process)
        served = self.generator.served(self.hosts.uas)
        proxy = self._proxy_report(used, served)
        after, clocks_after = self._counters(), self.on_each(clock_offset_s)
        counters = {role: {"before": before[role], "after": after[role]} for role in before}
        return Observed(
            started=started,
            ended=ended,
            statistics=statistics,
            counters=counters,
            ledger=self._ledger(counters, statistics, served, counts.messages if counts else None),
            no_ports=_no_ports(counters, statistics, uas_counters),
            clock_step_s=max(
                abs(last - first) for first, last in zip(clocks, clocks_after, strict=True)
            ),
            proxy=proxy,
            served=served,
            connections_made=self._connections_made,
            instance_of=self._instance_of,
            connections_accepted=counts.accepted if counts else None,
        )

    def _proxy_report(self, used: CpuTime, served: Served) -> ProxyReport:
        """Stop the front end and the counting of datagrams per socket. Return the CPU time and counts of the proxy."""
        counts = {number: shards.end() for number, shards in self._shards.items()}
        alone = len(self.proxies) == 1
        return ProxyReport(
            used.all,
            shards=counts.get(0) if alone else None,
            shards_of_instances=() if alone else tuple(map(counts.get, range(len(self.proxies)))),
            front=self._front.end(used.front) if self._front else None,
            calls_of_instances=self._calls_of_instances(served),
        )

    def _listens(self, host: Host) -> bool:
        """Return True if all sockets of the proxy and its front end listen on the SIP ports of a host."""
        arguments = (self.transport.protocol, *self._needs.ports(host), self._sockets_on(host))
        return host.shell(LISTENING, *arguments, check=False).exit_code == 0

    def _sockets_on(self, host: Host) -> int:
        """Return the number of sockets on which the proxy and its front end listen on a host."""
        instances = self._sockets if host is self.hosts.sps else 0
        return instances + (self._front is not None and host is self._front.host)

    def _proxy_counts(self) -> ProxyCounts | None:
        """Return the sums of the counts of all instances since their start; None over UDP."""
        counts = [self._counts_of(number) for number in range(len(self.proxies))]
        known = [count for count in counts if count is not None]
        return reduce(add, known) if known else None

    def _counts_of(self, number: int) -> ProxyCounts | None:
        sut, threads = self.proxies[number]
        try:
            return self.proxy.counts(self.hosts.sps, self._folder(number), sut, threads)
        except SipschedError as error:
            if len(self.proxies) == 1:
                raise
            raise type(error)(f"no counts from {instance_name(number)}: {error}") from error

    def _ledger(
        self,
        counters: Snapshots,
        statistics: CallStatistics,
        served: Served,
        proxy: Tally | None,
    ) -> Ledger:
        if proxy is None:
            return balance(counters, front=self.sut.front_host if self.sut.fronted else None)
        return balance_messages(counters, statistics.messages + served.messages, proxy)

    def _calls_of_instances(self, served: Served) -> tuple[int, ...] | None:
        """Return the number of calls per proxy instance, or None if the UAS cannot distinguish the instances.

        The UAS reports only instances with calls. All other instances have 0 calls.
        """
        if not self.sut.told_apart:
            return None
        return (*served.calls, *(0,) * (self.point.threads - len(served.calls)))

    def first_call_ns(self, label: str, arrivals: Arrivals) -> int:
        """Return the time in ns from the beginning of a load's schedule to the first call of the schedule."""
        return self.generator.draw(self.hosts.uac, self.load, label, arrivals)

    def _cpu_ns(self) -> CpuTime:
        """Read the CPU time that the proxy and its front end have used since their start."""
        instances = self.hosts.sps.cpu_time_ns(self.proxy_process)
        if self._front is None:
            return CpuTime(instances, 0)
        front = self._front.cpu_time_ns()
        return CpuTime(instances + (front if self._front.is_on_sps else 0), front)

    def _offer(self, label: str, arrivals: Arrivals) -> CallStatistics:
        """Start calls from the UAC, and wait until the calls have ended."""
        statistics = self.generator.offer(
            self.hosts, self.load, label, arrivals, self.transport, self._entry
        )
        if statistics.connections is not None:
            self._connections_made += statistics.connections.opened
        return statistics

    def _silence(self) -> dict[str, str]:
        """Stop the UAS and wait until no message waits. Return the UAS host's counters from before the stop.

        Over UDP, the UAS is stopped first, because the UAS retransmits even after the UAC has ended. Over TCP, the UAS
        is stopped last, because the UAS must read its messages.
        """
        uas = self.hosts.uas
        counted = read_files(uas, (SNMP,))
        if not uas.is_running(self._server):
            raise TransientError("the UAS ended before the end of the load")
        if self.sut.over_tcp:
            # The UAC has ended, but its kernel still sends the messages that the UAC wrote.
            for host in (*self._proxy_hosts, self.hosts.uac, uas):
                self._await_empty(host, STREAM_DRAIN_TIMEOUT_S)
            uas.stop(self._server)
            return counted
        uas.stop(self._server)
        # Answers leave through a front end on its own host, so this host is checked before and after the SPS.
        for host in (*self._proxy_hosts, *self._proxy_hosts[:-1]):
            self._await_empty(host, DRAIN_TIMEOUT_S)
        return counted

    def _await_empty(self, host: Host, timeout_s: float) -> None:
        """Wait until no SIP socket of a host has unread data, or over TCP data that did not reach the peer.

        Without this check, a stopped program or a broken link would look like a slow proxy.

        Raises
        ------
        TransientError
            Data still wait after `timeout_s`. The message states the number of sockets per instance and peer.
        """
        ports = [port for one in self._proxy_hosts for port in self._needs.ports(one)]
        last = self.hosts.uas.spec.sip_port
        arguments = (self.transport.protocol, min(ports), max(ports), last)
        what = "SIP messages still wait in sockets"
        try:
            host.wait_until(unread.NOTHING_WAITS, *arguments, "", what=what, timeout_s=timeout_s)
        except TransientError as error:
            sockets = host.shell(unread.NOTHING_WAITS, *arguments, "p", check=False).stdout
            # The SPS has an address on each link, but its specification has only one of these addresses. So ask the
            # host for all of them.
            script = "ip -o address | awk '{ print $4 }' | cut -d / -f 1"
            addresses = self.hosts.sps.shell(script, check=False).stdout.split()
            roles = dict.fromkeys(addresses, self.hosts.sps.spec.role)
            roles |= {one.spec.sip_address: one.spec.role for one in self.hosts.all}
            waiting = unread.describe_waiting(sockets, roles, self._instance_of)
            raise TransientError(f"{error}: {waiting}") from error

    def _members(self) -> Mapping[int, str]:
        """Return the names of the proxy's processes, by process id."""
        return self.hosts.sps.processes(self.proxy_process)

    def _find_instances(self, process: Process) -> Mapping[int, int]:
        """Return the index of the instance of each task, by its id; empty if the run has one instance."""
        if len(self.proxies) == 1:
            return {}
        listing = self.hosts.sps.shell(
            switching.TASKS, process.pid_file, self.proxy.program, check=False
        )
        return parse_instances(listing.stdout)

    def _ended_instances(self, instance_of: Mapping[int, int]) -> str:
        """Return the names of compared instances that have no process in `instance_of`; empty if all instances run."""
        if len(self.proxies) == 1:
            return ""
        ended = set(range(len(self.proxies))) - set(instance_of.values())
        return listed([*map(instance_name, sorted(ended))])

    def _expect_instances(self) -> Mapping[int, int]:
        """Return the index of the instance of each task; see `_find_instances`.

        Raises
        ------
        TransientError
            A compared instance ended during the warm-up. The shell that started the instances keeps running, so the run
            would continue without the ended instance.
        """
        instance_of = self._find_instances(self.proxy_process)
        ended = self._ended_instances(instance_of)
        if ended:
            raise TransientError(
                f"{ended} ended before the load; its log is proxy.log: {last_line(self.record_proxy_log())}"
            )
        return instance_of

    def _expect_alive(self, members: Mapping[int, str], statistics: CallStatistics) -> None:
        """Raise a TransientError if a process of the proxy ended during the load.

        Open sockets do not prove that all processes live, because workers continue when the main process of their
        instance is killed. The error message quotes the proxy's log.
        """
        sps, front = self.hosts.sps, self._front
        front_ended = front is not None and not front.host.is_running(front.process)
        living = self._members()
        ended = {pid: name for pid, name in members.items() if pid not in living}
        if not ended and not front_ended and all(map(self._listens, self._proxy_hosts)):
            return
        what, log_name, log = "the proxy", "proxy.log", self.record_proxy_log()
        if front is not None and front_ended:
            what, log_name = f"the front end ({self.sut.deployment}) of the proxy", "front.log"
            tail = ["tail", "-n", "40", str(front.process.log_file)]
            log = front.host.run(tail, check=False).stdout
            self._record.write(log_name, log)
        elif ended and sps.is_running(self.proxy_process):
            pid, name = next(iter(ended.items()))
            if pid in self._instance_of:
                name += f" of instance {self._instance_of[pid]}"
            what = f"{len(ended)} of {len(members)} processes of the proxy, such as {name} (process {pid}),"
        elif self._sockets > 1 and sps.is_running(self.proxy_process):
            what = f"one of the {self._sockets} sockets of the proxy"
        lost = statistics.calls_created - statistics.calls_completed
        raise TransientError(
            f"{what} ended during the run, and {lost} of {statistics.calls_created} calls did not complete; "
            f"its log is {log_name}: {last_line(log)}"
        )

    def _counters(self) -> dict[str, dict[str, str]]:
        """Read the counter files of all hosts. Return the text of each file, by the host's role and the file's path."""
        files = self.on_each(lambda host: read_files(host, COUNTER_FILES))
        return {host.spec.role: read for host, read in zip(self.hosts.all, files, strict=True)}

    def describe(self) -> HostReports:
        """Return a description of each host for the record."""
        return HostReports(*self.on_each(self._describe))

    def settings(self) -> Settings:
        """Read the effective receive buffers, their limits and the CPUs of the running proxy."""
        sps = self.hosts.sps
        first, _ = self._needs.ports(self._entry)
        sizes = self._effective_buffers(self._entry)
        of_instances = [sizes.get(first + number) for number in range(len(self.proxies))]
        limits = ("rmem_default", "rmem_max")
        paths = {name: f"/proc/sys/net/core/{name}" for name in limits}
        values = read_files(sps, tuple(paths.values()))
        return Settings(
            so_rcvbuf_bytes=of_instances[0],
            so_rcvbuf_of_instances=tuple(of_instances) if len(of_instances) > 1 else (),
            sps_cpus=self.cpus,
            receive_cpus=read_settings(sps, (RECEIVE_QUEUES.format("*"),)),
            **{
                name: values[path].strip() if path in values else None
                for name, path in paths.items()
            },
        )

    def record_proxy_log(self) -> str:
        """Write the shortened log of the proxy to the record, and return its text."""
        log = shortened_log(self.hosts.sps)
        self._record.write("proxy.log", log)
        return log

    def on_each(self, action: Callable[[Host], Result]) -> list[Result]:
        """Call a function for all hosts in parallel. Return the results in the order of `Hosts.all`."""
        with ThreadPoolExecutor(len(self.hosts.all)) as pool:
            return list(pool.map(action, self.hosts.all))

    def _start_server(self) -> None:
        """Start the UAS, and wait until the UAS listens."""
        uas = self.hosts.uas
        self._server = self.generator.start_server(uas, self.load, self._limit_s, self.transport)
        self._wait_for_socket(uas, self._server)

    def _start_proxy(
        self,
        commands: Sequence[Sequence[str]],
        prefix: Sequence[str],
        environment: Mapping[str, str],
    ) -> Process:
        """Start all instances of the proxy, and wait until they listen. `commands` has their command lines."""
        sps = self.hosts.sps
        started = list(commands)
        for number, shards in self._shards.items():
            started[number] = shards.preloading(commands[number], environment)
        process = sps.start(
            "proxy",
            [*prefix, *together(started)],
            cpus=self.cpus,
            limit_s=self._limit_s,
            environment=environment,
        )
        self._wait_for_socket(sps, process, self._sockets)
        self._set_buffers(process)
        for shards in self._shards.values():
            shards.attach(process, self.proxy.program)
        if self._front:
            front = self._front.start(prefix)
            self._wait_for_socket(self._entry, front, self._sockets_on(self._entry))
        return process

    def _set_buffers(self, process: Process) -> None:
        """Set the receive buffers whose sizes the proxy cannot set itself.

        These buffers have another size per compared instance, or a smaller size than the kernel's default. A proxy
        enlarges a buffer, but does not shrink it.

        Raises
        ------
        StableError
            A socket is missing, or the kernel refuses a size.
        """
        sps = self.hosts.sps
        asked = self._buffers or self._smaller_buffers()
        if not asked:
            return
        first, program = sps.spec.sip_port, str(native_folder(sps.base, "scheduler") / "buffers")
        wanted = {first + number: size for number, size in asked.items()}
        argv = [f"{port}={size}" for port, size in wanted.items()]
        done = sps.shell(
            SET_BUFFERS, program, process.pid_file, self.proxy.program, *argv, check=False
        )
        granted = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        # SEE socket(7): the kernel doubles the requested size for its own bookkeeping
        if done.exit_code or granted != [(port, 2 * size) for port, size in wanted.items()]:
            raise StableError(
                f"host {sps.spec}: the receive buffers {', '.join(argv)} (PORT=BYTES) cannot be set: "
                f"{done.stderr.strip() or f'the kernel granted {done.stdout.strip()}'}"
            )

    def _smaller_buffers(self) -> dict[int, int]:
        """Return the declared buffer size of the sockets whose buffer is larger, by the number of the socket's port."""
        if self.sut.over_tcp:
            return {}
        sps, declared = self.hosts.sps, self.sut.receive_buffer_bytes
        sizes = self._effective_buffers(sps)
        return {
            port - sps.spec.sip_port: declared
            for port, size in sizes.items()
            # SEE socket(7): the effective size is twice the declared size
            if size > 2 * declared
        }

    def _effective_buffers(self, host: Host) -> dict[int, int]:
        """Return the effective SO_RCVBUF in bytes of the proxy's sockets on a host, by port."""
        first, last = self._needs.ports(host)
        sockets = ["ss", "-Hlunm", f"( sport >= :{first} and sport <= :{last} )"]
        return _receive_buffers(host.run(sockets).stdout)

    def _wait_for_socket(self, host: Host, process: Process, sockets: int = 1) -> None:
        """Wait until a server listens. If the server ends instead, raise an error that quotes the server's log."""
        (first, last), protocol = self._needs.ports(host), self.transport.protocol
        ports = f"port {first}" if first == last else f"ports {first} to {last}"
        where, ended = f"{protocol.upper()} {ports}", process.name
        try:
            listens = host.wait_while_running(
                process,
                LISTENING,
                *(protocol, first, last, sockets),
                what=f"{process.name} does not listen on {where}",
                timeout_s=START_TIMEOUT_S,
            )
        except TransientError:
            # If one instance ends, the shell that started the instances keeps running. So check every instance.
            at_sps = host is self.hosts.sps
            ended = self._ended_instances(self._find_instances(process)) if at_sps else ""
            if not ended:
                raise
            listens = False
        if not listens:
            log = host.run(["tail", "-n", "40", str(process.log_file)], check=False).stdout
            self._record.write(process.log_file.name, log)
            errors = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
            raise StableError(
                f"host {host.spec}: {ended} ended before listening on {where}: "
                f"{(errors or log.splitlines() or ['it wrote no log'])[0].strip()}"
            )

    def _describe(self, host: Host) -> HostReport:
        if host.spec.role == "sps":
            # The key of each version is the name of the SUT, or the name of the program if there is only one SUT.
            suts = {sut.name: sut for sut, _ in self.proxies}.values()
            versions = {
                sut.name if len(suts) > 1 else self.proxy.program: self.proxy.version_argv(
                    sut, host
                )
                for sut in suts
            }
        elif host.spec.role == "front":
            with_proxy = self._front is not None and self._front.host is host and self._front.config
            versions = (
                {self.proxy.program: self.proxy.version_argv(self.sut, host)} if with_proxy else {}
            )
        else:
            versions = {"sipload": self.generator.version_argv(host)}
        return describe(host, versions)


def _no_ports(counters: Snapshots, statistics: CallStatistics, uas: Mapping[str, str]) -> int:
    """Return the number of datagrams that arrived at ports without a socket while generators and proxy were running.

    `uas` has the counters of the UAS's host that were read before the UAS was stopped. Later datagrams do not count.
    """
    at_proxy = sum(
        no_ports(counters[role]["before"], counters[role]["after"])
        for role in ("sps", "front")
        if role in counters
    )
    return (statistics.no_ports or 0) + at_proxy + no_ports(counters["uas"]["before"], uas)


def _adapter(sut: Sut, threads: int) -> Proxy:
    """Return the adapter of a proxy instance's program.

    Raises
    ------
    StableError
        The program has no adapter, or the adapter does not support the SUT or its number of workers.
    """
    if threads > MOST_INSTANCES and (sut.sharded or sut.fronted):
        raise StableError(
            f"SUT {sut.name}: the dispatcher supports at most {MOST_INSTANCES} workers, found "
            f"{threads}; lower threads"
        )
    return find_proxy(sut)


def last_line(log: str) -> str:
    """Return the last line of a program's log for an error message."""
    return log.strip().splitlines()[-1].strip() if log.strip() else "it wrote no log"


def sut_of(instance: Instance, sut: Sut) -> Sut:
    """Return the SUT of a proxy instance, with the instance's own receive buffer size if the instance has one."""
    size = instance.receive_buffer_bytes
    return replace(sut, receive_buffer_bytes=size) if size else sut


def _receive_buffers(sockets: str) -> dict[int, int]:
    """Return the effective SO_RCVBUF in bytes by port, from the output of `ss -Hlunm`."""
    counts: dict[int, int] = {}
    for port, size in re.findall(r":(\d+)\s+\S+:\*.*?skmem:\(r\d+,rb(\d+)", sockets, re.DOTALL):
        counts.setdefault(int(port), int(size))
    return counts
