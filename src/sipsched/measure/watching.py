"""Functions that watch a running proxy by reading the probe and the kernel's counters once a second.

Nothing on the proxy's host is changed, and no file is written there. All programs on the host end when their input
closes, or after two minutes without input. So no program remains on the host after the connection is lost or silent.
"""

import json
import os
import select
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from subprocess import Popen, TimeoutExpired
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sipsched.errors import LostError, StableError
from sipsched.measure.running_proxy import Target, parse_socket
from sipsched.records import watch
from sipsched.records.trace import HEADER, RECORD, Event, ProbeMode
from sipsched.records.watch import CpuShare, Second
from sipsched.testbed.machine import Machine
from sipsched.testbed.topology import parse_cpu_list

PROGRAM = "sipprobe"
CAPABILITIES = ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")
HELD = "sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status; nproc; uname -sr; [ -x \"$1\" ] && echo built || true"
NUMBERS = {"CAP_SYS_PTRACE": 19, "CAP_PERFMON": 38, "CAP_BPF": 39}
"""The kernel's numbers of the needed capabilities (include/uapi/linux/capability.h)."""
RING_BYTES = 16 * 2**20
READY_TIMEOUT_S = 30
END_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 30
PIECE_BYTES = 1 << 20
MOST_OTHERS = 3
MOST_CALLS = 200_000
"""Number of Call-ID hashes that are remembered, to distinguish retransmitted INVITEs from new calls."""
TICKS = os.sysconf("SC_CLK_TCK")
THROTTLED_NS = {"throttled_usec": 1000, "throttled_time": 1}
"""Names of the throttled time in cpu.stat, for control groups of version 2 and 1, and their units in ns."""


class Program(NamedTuple):
    """A process on the proxy's host.

    Attributes
    ----------
    ticks
        The CPU time of the process since its start, in clock ticks.
    cpu
        The CPU on which the process last ran.
    policy
        The scheduling policy of the process, such as `os.SCHED_IDLE`.
    """

    name: str
    ticks: int
    cpu: int
    policy: int


@dataclass
class Counters:
    """The kernel's counters at one time, as `sipprobe counters` prints them.

    Attributes
    ----------
    ticks
        Clock ticks per CPU: all ticks, busy ticks, and ticks that the hypervisor stole.
    allowed
        The CPUs on which each task of the proxy may run.
    ran_ns, delayed_ns
        CPU time per task of the proxy, and the time in which the task was runnable but had no CPU.
    programs
        All processes of the host, by process id.
    throttled, throttled_ns
        How often and how long the kernel stopped the proxy's control groups at their CPU limits. The time is the sum
        over all CPUs.
    has_network
        Whether the counters that sipprobe reads through a process of the proxy are known.
    """

    t_s: float = 0.0
    pids: tuple[int, ...] = ()
    datagrams: int = 0
    errors: int = 0
    backlog_drops: int = 0
    queued_bytes: int = 0
    connections: int = 0
    ticks: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    allowed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    socket_drops: dict[int, int] = field(default_factory=dict)
    ran_ns: dict[int, int] = field(default_factory=dict)
    delayed_ns: dict[int, int] = field(default_factory=dict)
    programs: dict[int, Program] = field(default_factory=dict)
    throttled: int = 0
    throttled_ns: int = 0
    has_network: bool = False

    def after(self, before: "Counters") -> "Counters":
        """Return these counters, with values of `before` instead of the counters that could not be read.

        The counters of the sockets, of the network namespace and of the control groups are read through the first
        process of the proxy. If this process ends during the reading, the answer lacks these counters, and the result
        has their values from `before`. If the proxy has no process, its sockets and control groups do not exist, so the
        result has only the numbers of datagrams and errors from `before`.
        """
        if self.has_network:
            return self
        kept = replace(self, datagrams=before.datagrams, errors=before.errors)
        if not self.pids:
            return kept
        return replace(
            kept,
            queued_bytes=before.queued_bytes,
            connections=before.connections,
            socket_drops=before.socket_drops,
            throttled=before.throttled,
            throttled_ns=before.throttled_ns,
            has_network=before.has_network,
        )


def parse_counters(lines: Sequence[str], ports: Sequence[int]) -> Counters:
    """Parse one answer of `sipprobe counters`. Only UDP sockets with the given ports are counted."""
    counters = Counters()
    for line in lines:
        word, _, rest = line.partition(" ")
        values = rest.split()
        if word == "pids":
            counters.pids = tuple(map(int, values))
        elif word == "uptime":
            counters.t_s = float(values[0])
        elif word.startswith("cpu"):
            ticks = [int(value) for value in values[:8]]
            total = sum(ticks)
            counters.ticks[int(word[3:])] = (total, total - ticks[3] - ticks[4], ticks[7])
        elif word == "stat":
            pid, _, after = rest.partition(" (")
            name, _, numbers = after.rpartition(") ")
            parts = numbers.split()
            # proc_pid_stat(5) numbers the fields from 1. The text after the name begins with field 3, so `parts[0]` is
            # field 3.
            used, cpu, policy = int(parts[11]) + int(parts[12]), int(parts[36]), int(parts[38])
            counters.programs[int(pid)] = Program(name, used, cpu, policy)
        elif word == "softnet":
            counters.backlog_drops += int(values[1], 16)
        elif word == "ran":
            counters.ran_ns[int(values[0])] = int(values[1])
            counters.delayed_ns[int(values[0])] = int(values[2])
        elif word == "connections":
            counters.connections = int(rest)
        elif word == "limit" and values[0] == "nr_throttled":
            counters.throttled += int(values[1])
        elif word == "limit" and values[0] in THROTTLED_NS:
            counters.throttled_ns += int(values[1]) * THROTTLED_NS[values[0]]
        elif word == "allowed":
            counters.allowed[int(values[0])] = parse_cpu_list(values[1])
        elif word == "table":
            for socket in parse_socket(values[0], rest.partition(" ")[2]):
                if socket.port in ports:
                    counters.queued_bytes += socket.queued_bytes
                    counters.socket_drops[socket.inode] = socket.drops
        elif word == "snmp":
            counters.has_network = True
            counters.datagrams += int(values[0])
            counters.errors += int(values[2]) - int(values[4])
        elif word == "snmp6" and values[0] in ("InDatagrams", "InErrors", "RcvbufErrors"):
            if values[0] == "InDatagrams":
                counters.datagrams += int(values[1])
            else:
                counters.errors += int(values[1]) * (1 if values[0] == "InErrors" else -1)
    return counters


class ProbeStream:
    """A running probe (`sipprobe watch`), whose trace arrives through a pipe."""

    def __init__(self, machine: Machine, argv: Sequence[str]) -> None:
        self.process = machine.open(argv)
        self._where = str(machine)
        self._pieces: deque[bytes] = deque()
        self._rest = b""
        self._said: list[str] = []
        self.mode = 0
        self._on = True
        self.counts: dict[str, Any] = {}
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        pipe = self.process.stdout
        assert pipe is not None
        while piece := os.read(pipe.fileno(), PIECE_BYTES):
            self._pieces.append(piece)

    def _listen(self) -> None:
        pipe = self.process.stderr
        assert pipe is not None
        for line in pipe:
            text = line.decode(errors="replace").strip()
            if text.startswith("{"):
                with suppress(ValueError):
                    self.counts = json.loads(text)
            else:
                self._said.append(text)

    def wait_ready(self) -> None:
        """Wait until the probe has attached its BPF programs to the kernel.

        Raises
        ------
        StableError
            The probe cannot run. The error message contains the reason.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._header_came():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                said = " ".join(self._said) or f"not ready after {READY_TIMEOUT_S} s"
                raise StableError(f"{self._where}: probe: {said}")
            time.sleep(0.02)

    def _header_came(self) -> bool:
        if not self.mode and sum(map(len, list(self._pieces))) >= HEADER.itemsize:
            self._rest = b"".join(self._pieces)
            self._pieces.clear()
            self.mode = int(np.frombuffer(self._rest, HEADER, count=1)[0]["mode"])
            self._rest = self._rest[HEADER.itemsize :]
        return bool(self.mode)

    @property
    def is_running(self) -> bool:
        """True if the probe is still running."""
        return self.process.poll() is None

    @property
    def said(self) -> str:
        """The text that the probe printed, without the lines that contain the probe's counters in JSON."""
        return " ".join(self._said)

    def take(self) -> npt.NDArray[Any]:
        """Return the records of the probe's trace that have arrived since the last call of this method."""
        pieces = [self._rest]
        while self._pieces:
            pieces.append(self._pieces.popleft())
        data = b"".join(pieces)
        whole = len(data) // RECORD.itemsize * RECORD.itemsize
        self._rest = data[whole:]
        records = np.frombuffer(data[:whole], RECORD).copy()
        if self.mode == ProbeMode.STREAM:
            records["flags"] |= watch.OVER_TCP
        return records

    def record(self, *, on: bool) -> None:
        """Start or stop the recording, by attaching or detaching the BPF programs."""
        if on == self._on:
            return
        self._on = on
        _send(self.process, b"1" if on else b"0")

    def beat(self) -> None:
        """Send a byte that changes nothing, because the probe ends after two minutes without input."""
        _send(self.process, b"\n")

    def end(self) -> None:
        """Stop the probe, which then writes its last records."""
        _end(self.process)
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)


class HistogramStream:
    """A running `sipprobe histograms`. For each line of input, it prints the counts since the previous input line."""

    def __init__(self, machine: Machine, argv: Sequence[str]) -> None:
        self.process = machine.open(argv)
        self._where = str(machine)

    def wait_ready(self) -> None:
        """Wait until the probe has attached its BPF programs to the kernel.

        Raises
        ------
        StableError
            The probe cannot run. The error message contains the reason.
        """
        if not _answer(self.process, self._where):
            raise StableError(f"{self._where}: probe: {_last_words(self.process)}")

    def read(self) -> Mapping[str, Any]:
        """Return the probe's counts since the last call of this method.

        Raises
        ------
        StableError
            The probe has ended.
        LostError
            The connection is lost.
        """
        _send(self.process, b"\n")
        answer = _answer(self.process, self._where)
        if not answer:
            raise StableError(f"the probe ended: {_last_words(self.process)}")
        return json.loads(answer)  # type: ignore[no-any-return]

    def record(self, *, on: bool) -> None:
        """Start or stop the counting, by attaching or detaching the BPF programs."""
        _send(self.process, b"1" if on else b"0")


class CounterStream:
    """A running `sipprobe counters` on the proxy's machine, which prints the kernel's counters on request."""

    def __init__(
        self,
        machine: Machine,
        probe: PurePosixPath,
        program: str,
        netns: int,
        tcp_port: int | None = None,
    ) -> None:
        self._where = str(machine)
        port = [str(tcp_port)] if tcp_port else []
        argv = [str(probe), "counters", program, str(netns), *port]
        self.process = machine.open(argv)

    def read(self, ports: Sequence[int]) -> Counters:
        """Read and return the current counters.

        Raises
        ------
        LostError
            The connection is lost.
        """
        _send(self.process, b"\n")
        answer = _answer(self.process, self._where, b"\nend\n")
        if not answer:
            raise LostError(f"{self._where}: the counters ended: {_last_words(self.process)}")
        return parse_counters(answer.decode(errors="replace").split("\n"), ports)


def _send(process: Popen[bytes], command: bytes) -> None:
    """Write a command to the input of a program.

    If the program has ended, ignore the failed write, because the next read reports the end of the program.
    """
    pipe = process.stdin
    assert pipe is not None
    with suppress(OSError):
        pipe.write(command)
        pipe.flush()


def _last_words(process: Popen[bytes]) -> str:
    """Return the messages that a program printed before it ended, in one line."""
    _end(process)
    pipe = process.stderr
    assert pipe is not None
    return " ".join(pipe.read().decode(errors="replace").split()) or "no message"


def _answer(process: Popen[bytes], where: str, end: bytes = b"\n") -> bytes:
    """Return the next output of a program, up to the bytes `end`. If the program ends before `end`, return no bytes.

    Raises
    ------
    LostError
        The program did not answer in time, for example because the network is silent. The program is killed.
    """
    pipe = process.stdout
    assert pipe is not None
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    answer = b""
    while not answer.endswith(end):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            process.kill()
            raise LostError(f"{where}: no answer after {ANSWER_TIMEOUT_S} s")
        piece = os.read(pipe.fileno(), PIECE_BYTES)
        if not piece:
            return b""
        answer += piece
    return answer


def _end(*processes: Popen[bytes]) -> None:
    """Stop programs by closing their inputs, and kill the programs that do not end in time."""
    for process in processes:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
    deadline = time.monotonic() + END_TIMEOUT_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except TimeoutExpired:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Means:
    """The properties of the machine that decide whether a proxy can be watched, such as the user's capabilities."""

    capabilities: int
    cpus: int
    kernel: str
    built: bool

    @property
    def missing(self) -> list[str]:
        """The Linux capabilities that the watch needs and that this user lacks."""
        return [name for name in CAPABILITIES if not self.capabilities >> NUMBERS[name] & 1]


def read_means(machine: Machine, probe: PurePosixPath) -> Means:
    """Read this user's capabilities, the number of CPUs, the kernel's version, and whether the probe is built."""
    held, cpus, kernel, *built = machine.shell(HELD, str(probe)).splitlines()
    return Means(int(held, 16), int(cpus), kernel, bool(built))


def probe_commands(
    target: Target, probe: PurePosixPath, one_in: int, *, histograms: bool = False
) -> list[list[str]]:
    """Return the probe's command line per watched transport. With `histograms`, the probe records no messages."""
    proxy = target.proxy
    namespace = ("--netns", f"/proc/{proxy.pids[0]}/ns/net")
    ports = ("--port", str((*target.udp_ports, 0)[0]), "--ports", str(len(target.udp_ports)))
    if histograms:
        return [[str(probe), "histograms", *namespace, *ports]]
    common = [
        *(str(probe), "watch", "--comm", proxy.program, *namespace),
        *("--ring-bytes", str(RING_BYTES), "--one-in", str(one_in)),
    ]
    commands = []
    if target.udp_ports:
        commands.append([*common, *ports])
    if target.tcp_port:
        commands.append([*common, "--port", str(target.tcp_port), "--mode", "stream"])
    return commands


@dataclass(frozen=True)
class Received:
    """The messages of one interval, from the records of the trace or from the histograms of the kernel.

    Attributes
    ----------
    names, calls, over_tcp
        Messages by method or status, new calls, and messages over TCP.
    waiting, service
        Histograms of the waiting time and of the service time, as pairs of bin and count.
    by_task
        Messages per task.
    service_ns, off_cpu_ns
        The sum of the service times, and the part of this sum during which the task had no CPU.
    """

    names: Mapping[str, int]
    calls: int
    waiting: Sequence[tuple[int, int]]
    service: Sequence[tuple[int, int]]
    by_task: Mapping[int, int]
    service_ns: int
    off_cpu_ns: int
    largest_queue_bytes: int
    unmatched: int = 0
    over_tcp: int = 0


def parse_histograms(counts: Mapping[str, Any]) -> Received:
    """Convert an answer of `sipprobe histograms` into counts. SIP status codes become the names in `watch.NAMES`."""
    names = Counter[str]()
    for name, count in counts["names"].items():
        names[watch.name_of_status(name) if name.isdigit() else name] += count
    return Received(
        # Convert the Counter to a dict, because asdict of Python 3.11 would make a Counter with pairs as keys.
        names=dict(names),
        calls=names["INVITE"],
        waiting=watch.bins_of_counted(counts["waiting"]),
        service=watch.bins_of_counted(counts["service"]),
        by_task={int(tid): count for tid, count in counts["tasks"].items()},
        service_ns=counts["service_ns"],
        off_cpu_ns=0,
        largest_queue_bytes=counts["largest_queue_bytes"],
        unmatched=counts["unmatched"],
    )


class Watching:
    """The programs that watch one proxy, and the values that the next reading needs, such as the previous counters.

    After a `with` block, no program runs and no BPF program is attached.

    Parameters
    ----------
    one_in
        The probe records the messages of one call out of this number of calls.
    histograms
        Whether the probe counts times in the kernel instead of writing one record per message.
    """

    def __init__(
        self,
        machine: Machine,
        target: Target,
        probe: PurePosixPath,
        one_in: int,
        *,
        histograms: bool = False,
    ) -> None:
        self.target, self._one_in = target, one_in
        proxy = target.proxy
        self._counters = CounterStream(machine, probe, proxy.program, proxy.netns, target.tcp_port)
        self._probes: list[ProbeStream] = []
        self._histograms: HistogramStream | None = None
        self._on = self._has_connections = True
        self._calls: OrderedDict[int, None] = OrderedDict()
        self._workers: set[int] = set()
        self._lost: Mapping[str, int] = {}
        try:
            for argv in probe_commands(target, probe, one_in, histograms=histograms):
                if histograms:
                    self._histograms = HistogramStream(machine, argv)
                    self._histograms.wait_ready()
                else:
                    self._probes.append(ProbeStream(machine, argv))
            for stream in self._probes:
                stream.wait_ready()
            self._before = self._counters.read(target.udp_ports)
            if self._histograms:
                self._histograms.read()  # These counts are older than the first second.
            self._follow_connections(self._before)
        except BaseException:
            self.end()
            raise
        self._first = self._before.t_s

    @property
    def mode(self) -> int:
        """The probe's mode as a number, for the header of the trace; 0 if the probe writes no record per message."""
        return self._probes[0].mode if self._probes else 0

    @property
    def mode_name(self) -> str:
        """The names of the modes of all running probes."""
        if self._histograms:
            return watch.HISTOGRAMS
        return "+".join(str(stream.counts.get("mode", "")) for stream in self._probes).strip("+")

    @property
    def workers(self) -> int:
        """The number of tasks of the proxy that have received a message."""
        return len(self._workers)

    def __enter__(self) -> "Watching":
        """Return this object. The programs of the watch already run."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop all programs that watch the proxy."""
        self.end()

    def record(self, *, on: bool) -> None:
        """Start or stop the recording of all probes, by attaching or detaching their BPF programs."""
        if self._histograms and on != self._on:
            self._histograms.record(on=on)
        self._on = on
        for stream in self._probes:
            stream.record(on=on and (self._has_connections or stream.mode != ProbeMode.STREAM))

    def _follow_connections(self, now: Counters) -> None:
        """Stop the TCP probe while no connection is open, because the probe's BPF programs slow every system call."""
        if self.target.udp_ports and (now.connections > 0) != self._has_connections:
            self._has_connections = now.connections > 0
            self.record(on=self._on)

    def end(self) -> npt.NDArray[Any]:
        """Stop all programs that watch the proxy, and return their last records."""
        # The programs end at the same time, so that a silent network delays the end only once.
        streams = (*self._probes, self._histograms, self._counters)
        _end(*(stream.process for stream in streams if stream))
        for probe in self._probes:
            probe.end()
        parts = [stream.take() for stream in self._probes if stream.mode]
        return np.concatenate(parts) if parts else np.empty(0, RECORD)

    def read(self) -> tuple[Second, npt.NDArray[Any], Counters]:
        """Return the counts of all probes since the last call of this method, and the new records of single messages.

        Raises
        ------
        StableError
            The probe has ended.
        LostError
            The connection to the host is lost.
        """
        now = self._counters.read(self.target.udp_ports).after(self._before)
        for stream in self._probes:
            if not stream.is_running:
                raise StableError(f"the probe ended: {stream.said or 'no message'}")
            stream.beat()
        records = np.concatenate([np.empty(0, RECORD), *(s.take() for s in self._probes)])
        self._follow_connections(now)
        received = (
            parse_histograms(self._histograms.read())
            if self._histograms
            else self._received(records)
        )
        second = self._second(received, _drops(self._before, now), self._before, now)
        self._before = now
        return second, records, now

    def _received(self, records: npt.NDArray[Any]) -> Received:
        received = records[records["event"] == Event.MESSAGE]
        over_tcp = records["flags"] & watch.OVER_TCP != 0
        waiting, service = watch.times_of(received)
        served = ~np.isnan(service)
        tids, by_task = np.unique(received["tid"], return_counts=True)
        names = watch.count_names(received)
        return Received(
            names={name: count * self._one_in for name, count in names.items()},
            calls=self._new_calls(received) * self._one_in,
            waiting=watch.bins_of(waiting),
            service=watch.bins_of(service),
            by_task=dict(zip(map(int, tids), map(int, by_task), strict=True)),
            service_ns=int(np.nansum(service)),
            off_cpu_ns=int(received["off_cpu_ns"][served].astype(np.int64).sum()),
            largest_queue_bytes=int(records["rmem"][~over_tcp].max(initial=0)),
            over_tcp=int(over_tcp.sum()) * self._one_in,
        )

    def _second(
        self, received: Received, drops: Mapping[str, int], before: Counters, now: Counters
    ) -> Second:
        length = max(now.t_s - before.t_s, 1e-3)
        self._workers.update(received.by_task)
        ran, delayed = (
            {tid: ns - earlier[tid] for tid, ns in later.items() if tid in earlier}
            for earlier, later in (
                (before.ran_ns, now.ran_ns),
                (before.delayed_ns, now.delayed_ns),
            )
        )
        workers = sorted(self._workers & ran.keys())
        cpus = _cpus_of(before, now, workers)
        cpu_busy, cpu_stolen = _cpu_use(before, now, cpus)
        throttled, throttled_ns = _throttled(before, now)
        lost = self._counts()
        fresh = {key: max(0, lost[key] - self._lost.get(key, 0)) for key in lost}
        self._lost = lost
        return Second(
            t_s=now.t_s - self._first,
            length_s=length,
            recording=self._on,
            one_in=self._one_in,
            messages=received.names,
            calls=received.calls,
            waiting=received.waiting,
            service=received.service,
            datagrams=max(0, now.datagrams - before.datagrams),
            queued_bytes=now.queued_bytes,
            largest_queue_bytes=received.largest_queue_bytes,
            drops=drops,
            receive_errors=max(0, now.errors - before.errors),
            workers=tuple(
                CpuShare(str(tid), ran[tid] / 1e9 / length, received.by_task.get(tid, 0))
                for tid in workers
            ),
            others=_others(before, now, length),
            competitors=_others(before, now, length, cpus),
            cpus=len(cpus),
            cpu_busy=cpu_busy,
            cpu_stolen=cpu_stolen,
            proxy_cpu_ns=sum(ran.values()),
            same_tasks=before.ran_ns.keys() == now.ran_ns.keys(),
            lost=fresh["lost"],
            unmatched=fresh["unmatched"] + received.unmatched,
            threads_untraced=lost["threads_untraced"],
            service_ns=received.service_ns,
            off_cpu_ns=received.off_cpu_ns,
            delayed_ns=sum(delayed[tid] for tid in workers),
            connections=now.connections,
            processes=len(now.pids),
            over_tcp=received.over_tcp,
            throttled=throttled,
            throttled_ns=throttled_ns,
        )

    def _counts(self) -> dict[str, int]:
        names = ("lost", "unmatched", "threads_untraced")
        return {name: sum(int(s.counts.get(name, 0)) for s in self._probes) for name in names}

    def _new_calls(self, received: npt.NDArray[Any]) -> int:
        """Return the number of new calls, which are INVITEs with a Call-ID that the watch has not seen before."""
        hashes = received["call_id_hash"][received["kind"] == watch.INVITE]
        count = 0
        for call in map(int, np.unique(hashes)):
            if call and call not in self._calls:
                self._calls[call] = None
                count += 1
        while len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)
        return count


def _cpus_of(before: Counters, now: Counters, workers: Sequence[int]) -> set[int]:
    """Return the CPUs on which the workers may run.

    If no worker is known yet, return the CPUs of all tasks of the proxy. If the proxy does not run, return all CPUs.
    """
    allowed = {cpu for tid in workers or now.allowed for cpu in now.allowed.get(tid, ())}
    return (allowed or now.ticks.keys()) & now.ticks.keys() & before.ticks.keys()


def _cpu_use(before: Counters, now: Counters, cpus: Collection[int]) -> tuple[float, float]:
    """Return the busy share of CPUs between two readings, and the share that the hypervisor took."""
    total, busy, stolen = (
        sum(now.ticks[cpu][i] - before.ticks[cpu][i] for cpu in cpus) for i in range(3)
    )
    return busy / max(total, 1), stolen / max(total, 1)


def _drops(before: Counters, now: Counters) -> dict[str, int]:
    """Return the number of datagrams lost between two readings, per cause. Causes without drops are omitted.

    The records of drops in the trace are not counted, because the counter of the socket includes these drops.
    """
    at_socket = sum(
        drops - before.socket_drops.get(inode, 0) for inode, drops in now.socket_drops.items()
    )
    causes = {
        "socket buffer full": at_socket,
        "CPU backlog full": now.backlog_drops - before.backlog_drops,
    }
    return {cause: count for cause, count in causes.items() if count > 0}


def _throttled(before: Counters, now: Counters) -> tuple[int, int]:
    """Return how often and for how many ns the kernel stopped the proxy at its CPU limits between two readings.

    The result is 0 if an earlier value is unknown. A restarted proxy can have other control groups, with other
    counters.
    """
    if not before.has_network or not set(before.pids) & set(now.pids):
        return 0, 0
    return (
        max(0, now.throttled - before.throttled),
        max(0, now.throttled_ns - before.throttled_ns),
    )


def _others(
    before: Counters, now: Counters, length_s: float, cpus: Collection[int] | None = None
) -> tuple[CpuShare, ...]:
    """Return the programs that used the most CPU time between two readings, without the proxy, and their CPU shares.

    Parameters
    ----------
    cpus
        CPUs of the workers. If given, the result has only programs that can compete with workers on these CPUs. A
        program can compete if it last ran on one of these CPUs and its class is not SCHED_IDLE, because a worker
        immediately takes the CPU from a program of class SCHED_IDLE.
    """
    by_name: Counter[str] = Counter()
    for pid, program in now.programs.items():
        competes = cpus is None or (program.cpu in cpus and program.policy != os.SCHED_IDLE)
        if competes and pid not in now.pids and pid in before.programs:
            by_name[program.name] += program.ticks - before.programs[pid].ticks
    return tuple(
        CpuShare(name, ticks / TICKS / length_s)
        for name, ticks in by_name.most_common(MOST_OTHERS)
        if ticks > 0
    )
