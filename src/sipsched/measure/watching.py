"""Functions that watch a running proxy by reading the probe and the kernel's counters once a second.

Nothing on the proxy's host is changed, and no file is written there. Both programs on the host read their input, so
that they end when the connection is lost.
"""

import json
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from subprocess import Popen, TimeoutExpired
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.errors import LostError, StableError
from sipsched.measure.running_proxy import Target, parse_socket
from sipsched.records import watch
from sipsched.records.trace import HEADER, RECORD, Event, ProbeMode
from sipsched.records.watch import Second, Share
from sipsched.testbed.machine import Machine
from sipsched.testbed.topology import parse_cpu_list

PROGRAM = "sipprobe"
CAPABILITIES = ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")
HELD = "sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status; nproc; uname -sr; [ -x \"$1\" ] && echo built || true"
NUMBERS = {"CAP_SYS_PTRACE": 19, "CAP_PERFMON": 38, "CAP_BPF": 39}
"""The kernel's numbers of the needed capabilities (include/uapi/linux/capability.h)."""
ESTABLISHED = "01"
"""The state of an open TCP connection (net/tcp_states.h)."""
RING_BYTES = 16 * 2**20
READY_TIMEOUT_S = 30
END_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 30
PIECE_BYTES = 1 << 20
MOST_OTHERS = 3
MOST_CALLS = 200_000
"""Number of remembered Call-ID hashes. A retransmitted INVITE has a remembered hash, and a new call does not."""
TICKS = os.sysconf("SC_CLK_TCK")
COUNTERS = r"""
name=$1 net=$2 port=$3
while read -r _; do
    pids=
    for file in $(grep -lsxF -- "$name" /proc/[0-9]*/comm); do
        folder=${file%/comm}
        [ "$(stat -L -c %i "$folder/ns/net" 2>/dev/null)" = "$net" ] && pids="$pids ${folder#/proc/}"
    done
    echo "pids$pids"
    cat /proc/uptime | sed 's/^/uptime /'
    sed -n 's/^cpu /cpu /p' /proc/stat
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^/stat /'
    sed 's/^/softnet /' /proc/net/softnet_stat
    first=
    for pid in $pids; do
        for task in /proc/$pid/task/*; do
            { read -r ns _ < "$task/schedstat" && echo "ran ${task##*/} $ns"; } 2>/dev/null
        done
        [ -n "$first" ] && continue
        first=$pid
        sed -n 's/^Cpus_allowed_list:[[:space:]]*/allowed /p' "/proc/$pid/status"
        [ -n "$port" ] && echo "connections $(grep -cE "$4" "/proc/$pid/net/tcp")"
        for table in udp udp6; do sed "1d; s/^/table $table /" "/proc/$pid/net/$table"; done
        sed -n 's/^Udp: \([0-9]\)/snmp \1/p' "/proc/$pid/net/snmp"
        sed -n 's/^Udp6\([A-Za-z]*\)[[:space:]]*/snmp6 \1 /p' "/proc/$pid/net/snmp6"
    done 2>/dev/null
    echo end
done"""
"""Shell script that prints the counters of a proxy and of its host each time it reads a line."""


@dataclass
class Counters:
    """The kernel's counters at one time, as the shell script `COUNTERS` prints them.

    Attributes
    ----------
    busy, total, stolen
        Ticks of all CPUs.
    ran_ns
        CPU time per task of the proxy.
    programs
        Ticks of CPU time per process, with the name of its program.
    """

    t_s: float = 0.0
    pids: tuple[int, ...] = ()
    busy: int = 0
    total: int = 0
    stolen: int = 0
    allowed: int = 0
    datagrams: int = 0
    errors: int = 0
    backlog_drops: int = 0
    queued_bytes: int = 0
    connections: int = 0
    socket_drops: dict[int, int] = field(default_factory=dict)
    ran_ns: dict[int, int] = field(default_factory=dict)
    programs: dict[int, tuple[str, int]] = field(default_factory=dict)


def parse_counters(lines: Sequence[str], ports: Sequence[int]) -> Counters:
    """Parse the output of the shell script `COUNTERS`. Only UDP sockets with the given ports are counted."""
    counters = Counters()
    for line in lines:
        word, _, rest = line.partition(" ")
        values = rest.split()
        if word == "pids":
            counters.pids = tuple(map(int, values))
        elif word == "uptime":
            counters.t_s = float(values[0])
        elif word == "cpu":
            ticks = [int(value) for value in values[:8]]
            counters.total, counters.stolen = sum(ticks), ticks[7]
            counters.busy = counters.total - ticks[3] - ticks[4]
        elif word == "stat":
            pid, _, after = rest.partition(" (")
            name, _, numbers = after.rpartition(") ")
            parts = numbers.split()
            if len(parts) > 12:
                counters.programs[int(pid)] = (name, int(parts[11]) + int(parts[12]))
        elif word == "softnet":
            counters.backlog_drops += int(values[1], 16)
        elif word == "ran":
            counters.ran_ns[int(values[0])] = int(values[1])
        elif word == "connections":
            counters.connections = int(rest)
        elif word == "allowed":
            counters.allowed = len(parse_cpu_list(rest))
        elif word == "table":
            for socket in parse_socket(values[0], rest.partition(" ")[2]):
                if socket.port in ports:
                    counters.queued_bytes += socket.queued_bytes
                    counters.socket_drops[socket.inode] = socket.drops
        elif word == "snmp":
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
        self._process = machine.open(argv)
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
        pipe = self._process.stdout
        assert pipe is not None
        while piece := os.read(pipe.fileno(), PIECE_BYTES):
            self._pieces.append(piece)

    def _listen(self) -> None:
        pipe = self._process.stderr
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
            The probe cannot run. The message has the reason.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._header_came():
            if self._process.poll() is not None or time.monotonic() > deadline:
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
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The lines that the probe printed, without its counters."""
        return " ".join(self._said)

    def take(self) -> npt.NDArray[Any]:
        """Return the records that have arrived since the last call of this method."""
        pieces = [self._rest]
        while self._pieces:
            pieces.append(self._pieces.popleft())
        data = b"".join(pieces)
        whole = len(data) // RECORD.itemsize * RECORD.itemsize
        self._rest = data[whole:]
        return np.frombuffer(data[:whole], RECORD)

    def record(self, *, on: bool) -> None:
        """Start or stop the recording, by attaching or detaching the BPF programs."""
        if on == self._on:
            return
        self._on = on
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError):
            pipe.write(b"1" if on else b"0")
            pipe.flush()

    def end(self) -> None:
        """Stop the probe, which then writes its last records."""
        _end(self._process)
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)


class CounterStream:
    """The running shell script `COUNTERS` on the proxy's machine."""

    def __init__(
        self, machine: Machine, program: str, netns: int, tcp_port: int | None = None
    ) -> None:
        self._where = str(machine)
        tcp = (str(tcp_port), connection_pattern(tcp_port)) if tcp_port else ("", "")
        argv = ["sh", "-c", COUNTERS, "sh", program, str(netns), *tcp]
        self._process: Popen[bytes] = machine.open(argv)

    def read(self, ports: Sequence[int]) -> Counters:
        """Read and return the current counters.

        Raises
        ------
        LostError
            The connection is lost.
        """
        pipe, answer = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answer is not None
        lines: list[str] = []
        try:
            pipe.write(b"\n")
            pipe.flush()
            while not lines or lines[-1] != "end":
                line = answer.readline()
                if not line:
                    raise OSError("the connection ended")
                lines.append(line.decode(errors="replace").rstrip("\n"))
        except OSError as error:
            raise LostError(f"{self._where}: counters: {error}") from None
        return parse_counters(lines, ports)

    def end(self) -> None:
        """Stop the shell script."""
        _end(self._process)


def _end(process: Popen[bytes]) -> None:
    """Stop a program by closing its input, and kill the program if it does not end in time."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except TimeoutExpired:
        process.kill()
        process.wait()


def connection_pattern(port: int) -> str:
    """Return a regular expression for rows of /proc/net/tcp with an open connection from or to a port."""
    any_end, end = "[0-9A-F]{8}:[0-9A-F]{4}", f"[0-9A-F]{{8}}:{port:04X}"
    return f"^ *[0-9]+: ({end} {any_end}|{any_end} {end}) {ESTABLISHED} "


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
    """Read the properties of the machine, without changing anything."""
    held, cpus, kernel, *built = machine.shell(HELD, str(probe)).splitlines()
    return Means(int(held, 16), int(cpus), kernel, bool(built))


def probe_commands(target: Target, probe: PurePosixPath, one_in: int) -> list[list[str]]:
    """Return the command line of the probe for each watched transport."""
    proxy = target.proxy
    common = [
        *(str(probe), "watch", "--comm", proxy.program, "--netns", f"/proc/{proxy.pids[0]}/ns/net"),
        *("--ring-bytes", str(RING_BYTES), "--one-in", str(one_in)),
    ]
    commands = []
    if target.udp_ports:
        first, many = str(target.udp_ports[0]), str(len(target.udp_ports))
        commands.append([*common, "--port", first, "--ports", many])
    if target.tcp_port:
        commands.append([*common, "--port", str(target.tcp_port), "--mode", "stream"])
    return commands


class Watching:
    """The programs that watch one proxy, and the state that is kept from one second to the next.

    After a `with` block, no program runs and no BPF program is attached.

    Parameters
    ----------
    one_in
        The probe records the messages of one call in this number.
    """

    def __init__(self, machine: Machine, target: Target, probe: PurePosixPath, one_in: int) -> None:
        self.target, self._one_in = target, one_in
        proxy = target.proxy
        self._counters = CounterStream(machine, proxy.program, proxy.netns, target.tcp_port)
        self._probes: list[ProbeStream] = []
        self._on = self._has_connections = True
        self._calls: OrderedDict[int, None] = OrderedDict()
        self._workers: set[int] = set()
        self._lost: Mapping[str, int] = {}
        try:
            for argv in probe_commands(target, probe, one_in):
                self._probes.append(ProbeStream(machine, argv))
            for stream in self._probes:
                stream.wait_ready()
            self._before = self._counters.read(target.udp_ports)
            self._follow_connections(self._before)
        except BaseException:
            self.end()
            raise
        self._first = self._before.t_s

    @property
    def mode(self) -> int:
        """The mode of the first probe as a number, for the header of the trace."""
        return self._probes[0].mode

    @property
    def mode_name(self) -> str:
        """The names of the modes of all running probes."""
        return "+".join(str(stream.counts.get("mode", "")) for stream in self._probes).strip("+")

    @property
    def workers(self) -> int:
        """The number of tasks of the proxy that have received a message."""
        return len(self._workers)

    def __enter__(self) -> "Watching":
        """Return this object. The programs of the watch already run."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop all programs of the watch."""
        self.end()

    def record(self, *, on: bool) -> None:
        """Start or stop the recording of all probes."""
        self._on = on
        for stream in self._probes:
            stream.record(on=on and (self._has_connections or stream.mode != ProbeMode.STREAM))

    def _follow_connections(self, now: Counters) -> None:
        """Stop the TCP probe while no connection is open, because its BPF programs slow every system call."""
        if self.target.udp_ports and (now.connections > 0) != self._has_connections:
            self._has_connections = now.connections > 0
            self.record(on=self._on)

    def end(self) -> npt.NDArray[Any]:
        """Stop all programs of the watch, and return the last records."""
        for stream in self._probes:
            stream.end()
        self._counters.end()
        parts = [stream.take() for stream in self._probes if stream.mode]
        return np.concatenate(parts) if parts else np.empty(0, RECORD)

    def read(self) -> tuple[Second, npt.NDArray[Any], Counters]:
        """Return the counts since the last call of this method, and the new records of the trace.

        Raises
        ------
        StableError
            The probe has ended.
        LostError
            The connection to the host is lost.
        """
        now = self._counters.read(self.target.udp_ports)
        for stream in self._probes:
            if not stream.is_running:
                raise StableError(f"the probe ended: {stream.said or 'no message'}")
        records = np.concatenate([stream.take() for stream in self._probes])
        self._follow_connections(now)
        second = self._second(records, self._before, now)
        self._before = now
        return second, records, now

    def _second(self, records: npt.NDArray[Any], before: Counters, now: Counters) -> Second:
        received = records[records["event"] == Event.MESSAGE]
        waiting, service = watch.times_of(received)
        served = ~np.isnan(service)
        length = max(now.t_s - before.t_s, 1e-3)
        tids, by_worker = np.unique(received["tid"], return_counts=True)
        self._workers.update(map(int, tids))
        counts = dict(zip(map(int, tids), map(int, by_worker), strict=True))
        ran = {
            tid: ns - before.ran_ns[tid] for tid, ns in now.ran_ns.items() if tid in before.ran_ns
        }
        total = max(now.total - before.total, 1)
        lost = self._counts()
        fresh = {key: max(0, lost[key] - self._lost.get(key, 0)) for key in lost}
        self._lost = lost
        names = Counter(watch.count_names(received))
        return Second(
            t_s=now.t_s - self._first,
            length_s=length,
            recording=self._on,
            one_in=self._one_in,
            messages={name: count * self._one_in for name, count in names.items()},
            calls=self._new_calls(received) * self._one_in,
            waiting=watch.bins_of(waiting),
            service=watch.bins_of(service),
            datagrams=now.datagrams - before.datagrams,
            queued_bytes=now.queued_bytes,
            largest_queue_bytes=int(records["rmem"].max(initial=0)),
            drops=_drops(records, before, now),
            receive_errors=max(0, now.errors - before.errors),
            workers=tuple(
                Share(str(tid), ran[tid] / 1e9 / length, counts.get(tid, 0))
                for tid in sorted(self._workers & ran.keys())
            ),
            others=_others(before, now, length),
            cpus=now.allowed,
            cpu_busy=(now.busy - before.busy) / total,
            cpu_stolen=(now.stolen - before.stolen) / total,
            proxy_cpu_ns=sum(ran.values()),
            lost=fresh["lost"],
            unmatched=fresh["unmatched"],
            threads_untraced=lost["threads_untraced"],
            service_ns=int(np.nansum(service)),
            off_cpu_ns=int(received["off_cpu_ns"][served].astype(np.int64).sum()),
            processes=len(now.pids),
        )

    def _counts(self) -> dict[str, int]:
        names = ("lost", "unmatched", "threads_untraced")
        return {name: sum(int(s.counts.get(name, 0)) for s in self._probes) for name in names}

    def _new_calls(self, received: npt.NDArray[Any]) -> int:
        """Count the new calls, which are INVITEs with a Call-ID that was not seen before."""
        hashes = received["call_id_hash"][received["kind"] == watch.INVITE]
        count = 0
        for call in map(int, np.unique(hashes)):
            if call and call not in self._calls:
                self._calls[call] = None
                count += 1
        while len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)
        return count


def _drops(records: npt.NDArray[Any], before: Counters, now: Counters) -> dict[str, int]:
    """Return the number of lost datagrams per cause. Causes without drops are omitted."""
    at_socket = sum(
        drops - before.socket_drops.get(inode, 0) for inode, drops in now.socket_drops.items()
    )
    causes = {
        "socket buffer full": at_socket,
        "CPU backlog full": now.backlog_drops - before.backlog_drops,
    }
    seen = int((records["event"] == Event.DROP).sum())
    if seen:
        causes["seen by the probe"] = seen
    return {cause: count for cause, count in causes.items() if count > 0}


def _others(before: Counters, now: Counters, length_s: float) -> tuple[Share, ...]:
    """Return the programs other than the proxy that used the most CPU time."""
    by_name: Counter[str] = Counter()
    for pid, (name, ticks) in now.programs.items():
        if pid not in now.pids and pid in before.programs:
            by_name[name] += ticks - before.programs[pid][1]
    return tuple(
        Share(name, ticks / TICKS / length_s)
        for name, ticks in by_name.most_common(MOST_OTHERS)
        if ticks > 0
    )
