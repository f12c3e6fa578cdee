"""Control of the load generator `sipload`, which makes calls on the UAC and answers calls on the UAS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from sipsched.errors import StableError
from sipsched.files import parse_json, read_zstd
from sipsched.plan.loads import Load
from sipsched.plan.sut import Sut
from sipsched.records.conversion import as_part, part_of_json
from sipsched.records.load_report import CallCounts, Connections, Sends
from sipsched.records.retransmissions import REQUESTS
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder
from sipsched.testbed.session import Hosts
from sipsched.validity.ledger import Tally

SERVER_LOG = "uas"
SERVER_REPORT = "uas.json"
INCOMPLETE = "not a complete sipload report"
SOCKET_BUFFER_BYTES = 4_194_304
"""Size of the receive buffer of the sockets of UAC and UAS. The default of 64 KiB drops datagrams at high loads."""

FIFO_PRIORITY = 10
"""Real-time priority of sipload on hosts that allow one. Without the priority, other programs would delay calls."""

SIPLOAD_SPARE_S = 5.0
"""Seconds that sipload may take after the drain time to write its report and end."""

CALLS_MAGIC = b"SIPCALLS"
CALLS_VERSION = 1
# SEE hardware/common/calls.h: struct calls_header and struct call_record, packed, little-endian
CALLS_HEADER = np.dtype(
    [("magic", "S8"), ("version", "<u4"), ("record_size", "<u4"), ("count", "<u8"), ("t0", "<u8")]
)
CALL = np.dtype(
    [
        ("t_intended", "<u8"),
        ("t_invite", "<u8"),
        ("t_first_response", "<u8"),
        ("t_ringing", "<u8"),
        ("t_ok_invite", "<u8"),
        ("t_ack", "<u8"),
        ("t_bye", "<u8"),
        ("t_ok_bye", "<u8"),
        ("call_id_hash", "<u8"),
        ("status", "<u2"),
        ("invite_again", "<u2"),
        ("bye_again", "<u2"),
        ("ok_again", "<u2"),
        ("outcome", "u1"),
        ("thread", "u1"),
        ("reserved", "<u2", 3),
    ]
)


@dataclass(frozen=True, kw_only=True)
class CallStatistics(CallCounts):
    """The counts of the calls of a load, and of the messages that the client (UAC) sent and received.

    Attributes
    ----------
    requests
        Requests that the client sent, by method, as first sends and retransmissions.
    messages
        All messages that the client sent and received.
    cpu_us
        CPU time of the client per call in µs; None without a call.
    """

    requests: Mapping[str, Sends]
    messages: Tally
    cpu_us: float | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The fields of `CallCounts` (such as `calls_completed`) as a dictionary, without requests and messages."""
        return {field.name: getattr(self, field.name) for field in fields(CallCounts)}


@dataclass(frozen=True)
class Served:
    """The counts of the server (UAS) of the load generator, from its start to its end.

    Attributes
    ----------
    messages
        All messages that the server sent and received.
    calls
        Number of calls per sender address. If proxy instances have their own addresses, these are the calls per
        instance.
    split
        Number of calls whose INVITE, ACK and BYE did not all come from the same address.
    lateness_p99_us
        99th percentile in µs of the lateness of the server's threads (hardware/generator/server.c).
    connections
        Counts of the accepted TCP connections; None over UDP.
    cpu_us
        CPU time of the server per call in µs; None without a call.
    """

    messages: Tally
    calls: tuple[int, ...]
    split: int
    lateness_p99_us: float
    connections: Connections | None = None
    cpu_us: float | None = None


@dataclass(frozen=True)
class SipTransport:
    """The transport of SIP: UDP, TCP with a fixed number of connections, or TCP with one connection per call."""

    protocol: str = "udp"
    connections: int | Literal["per-call"] | None = None

    @classmethod
    def of(cls, sut: Sut) -> "SipTransport":
        """Return the transport that a SUT uses."""
        return cls(sut.transport, sut.connections)


UDP = SipTransport()


@dataclass(frozen=True)
class Arrivals:
    """The number, rate and random seed of the calls in a load.

    Attributes
    ----------
    calls
        Number of calls. If calls repeat in blocks, the number is approximate, because the number of calls in a window
        is random.
    seed
        Seed of the random schedule.
    blocks
        Windows of the load, in order: number of the block, length in ns, and index of the proxy instance that receives
        the calls. All windows of a block repeat the same calls. None if no call is repeated.
    """

    cps: int
    calls: int
    seed: int
    blocks: tuple[tuple[int, int, int], ...] | None = None

    @classmethod
    def in_blocks(cls, cps: int, seed: int, blocks: Sequence[tuple[int, int, int]]) -> "Arrivals":
        """Return the calls for a load that is divided into windows. All windows of a block repeat the same calls."""
        length_s = sum(length_ns for _, length_ns, _ in blocks) / 1e9
        return cls(cps, max(1, round(cps * length_s)), seed, tuple(blocks))

    @property
    def blocks_text(self) -> str:
        """The windows in the text format that the generator reads to make a schedule (hardware/common/schedule.h)."""
        return "".join(" ".join(map(str, window)) + "\n" for window in self.blocks or ())

    @property
    def duration_s(self) -> float:
        """The duration of the load in seconds."""
        if self.blocks is None:
            return self.calls / self.cps
        return sum(length_ns for _, length_ns, _ in self.blocks) / 1e9


@dataclass(frozen=True)
class Starts:
    """The start times of calls in ns, and the results of these calls. All arrays have the shape (calls,).

    Attributes
    ----------
    actual_ns, intended_ns
        Actual and intended start times, on the UAC's clock CLOCK_MONOTONIC.
    scheduled_ns
        Intended start times, counted from the beginning of the schedule.
    completed
        Whether the call completed.
    """

    actual_ns: npt.NDArray[np.int64]
    intended_ns: npt.NDArray[np.int64]
    scheduled_ns: npt.NDArray[np.int64]
    completed: npt.NDArray[np.bool_]


class Sipload:
    """The load generator `sipload`, which starts calls at the times of a seeded schedule and records each start."""

    def version_argv(self, agent: Host) -> list[str]:
        """Return the command that prints the generator's version."""
        return [self._program(agent), "version"]

    def start_server(
        self, uas: Host, load: Load, limit_s: float, transport: SipTransport = UDP
    ) -> Process:
        """Start `sipload uas`, the server that answers calls."""
        spec, report = uas.spec, uas.workdir / SERVER_REPORT
        uas.run(["rm", "-f", str(report)])
        argv = [
            *(self._program(uas), "uas", "--local", f"{spec.sip_address}:{spec.sip_port}"),
            *("--report", str(report), "--ring-ms", str(load.ring_time_ms)),
            *("--transport", transport.protocol),
            *("--buffer-bytes", str(SOCKET_BUFFER_BYTES), "--fifo", str(FIFO_PRIORITY)),
            *("--retransmissions", "on" if load.retransmissions else "off"),
        ]
        return uas.start(SERVER_LOG, argv, cpus=spec.cpus, limit_s=limit_s)

    def draw(self, uac: Host, load: Load, label: str, arrivals: Arrivals) -> int:
        """Create the random schedule of the calls that `offer` starts, and return the start time of the first call.

        The start time is in ns after the beginning of the schedule. Equal arguments lead to equal schedules.
        """
        calls = ["--calls", str(arrivals.calls)]
        if arrivals.blocks is not None:
            blocks = uac.workdir / f"{label}.blocks"
            uac.put_text(arrivals.blocks_text, blocks)
            calls = ["--blocks", str(blocks)]
        argv = [
            *(self._program(uac), "schedule", "--output", str(_schedule_file(uac, label))),
            *("--law", load.law, "--rate", str(arrivals.cps), "--seed", str(arrivals.seed), *calls),
        ]
        return int(parse_json(uac.run(argv).stdout)["first_ns"])

    def offer(
        self,
        hosts: Hosts,
        load: Load,
        label: str,
        arrivals: Arrivals,
        transport: SipTransport = UDP,
        entry: Host | None = None,
    ) -> CallStatistics:
        """Create a random schedule on the UAC, start the scheduled calls, and return the counts of the calls.

        Parameters
        ----------
        entry
            The host to which the UAC sends its messages; None for the SPS.
        """
        uac, spec, remote = hosts.uac, hosts.uac.spec, (entry or hosts.sps).spec
        report = uac.workdir / f"{label}.json"
        uac.run(["rm", "-f", str(report)])
        self.draw(uac, load, label, arrivals)
        schedule = _schedule_file(uac, label)
        argv = [
            *(self._program(uac), "uac", "--local", f"{spec.sip_address}:{spec.sip_port}"),
            *("--remote", f"{remote.sip_address}:{remote.sip_port}", "--schedule", str(schedule)),
            *("--calls-file", str(uac.workdir / f"{label}.calls"), "--report", str(report)),
            *("--hold-ms", _hold(load), "--drain-s", f"{load.drain_s:g}"),
            *("--buffer-bytes", str(SOCKET_BUFFER_BYTES), "--fifo", str(FIFO_PRIORITY)),
            *("--retransmissions", "on" if load.retransmissions else "off"),
            *("--late-ms", str(load.ring_time_ms + load.setup_limit_ms)),
            *("--transport", transport.protocol),
            *(
                ()
                if transport.connections is None
                else ("--tcp-connections", str(transport.connections))
            ),
        ]
        longest_s = arrivals.duration_s + load.drain_s + SIPLOAD_SPARE_S
        uac.run_limited(label, argv, cpus=spec.cpus, limit_s=longest_s)
        return read_sipload_report(uac.run(["cat", str(report)]).stdout, str(report))

    def served(self, uas: Host) -> Served:
        """Return the counts of a server (UAS) that has ended.

        Raises
        ------
        StableError
            The report is missing or incomplete.
        """
        report = uas.workdir / SERVER_REPORT
        return read_server_report(uas.run(["cat", str(report)]).stdout, str(report))

    def fetch(self, hosts: Hosts, label: str, folder: Path) -> None:
        """Copy the generator's reports and its compressed file of calls to a folder on this machine."""
        uac = hosts.uac
        calls = uac.workdir / f"{label}.calls"
        uac.run(["zstd", "-q", "-f", "-1", "--rm", str(calls)])
        for name in (f"{label}.calls.zst", f"{label}.json"):
            uac.get_file(uac.workdir / name, folder / name)
        hosts.uas.get_file(hosts.uas.workdir / SERVER_REPORT, folder / SERVER_REPORT)

    def starts(self, folder: Path, label: str) -> Starts:
        """Read the file of calls, and return the start times and the results of all started calls."""
        calls, t0_ns = _read_calls(folder / f"{label}.calls.zst")
        started = calls[calls["t_invite"] > 0]
        intended_ns = started["t_intended"].astype("i8")
        return Starts(
            actual_ns=started["t_invite"].astype("i8"),
            intended_ns=intended_ns,
            scheduled_ns=intended_ns - t0_ns,
            completed=started["t_ok_bye"] > 0,
        )

    def _program(self, agent: Host) -> str:
        return str(native_folder(agent.base, "generator") / "sipload")


def _schedule_file(uac: Host, label: str) -> PurePosixPath:
    return uac.workdir / f"{label}.schedule"


def _hold(load: Load) -> str:
    exponential = "exp:" if load.hold_law == "exponential" else ""
    return f"{exponential}{load.hold_time_ms}"


_Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class _Messages:
    """The counts of one message type in a report of sipload."""

    sent: _Count
    sent_again: _Count
    unexpected: _Count
    received: _Count = 0
    received_again: _Count = 0


@dataclass(frozen=True)
class _Sockets:
    drops: _Count


@dataclass(frozen=True)
class _ClientCalls:
    offered: _Count
    started: _Count
    completed: _Count
    timeout_invite: _Count
    timeout_bye: _Count
    rejected_invite: _Count
    rejected_bye: _Count
    no_ringing: _Count
    no_connection: _Count = 0
    unfinished_at_end: _Count = 0
    distinct: _Count | None = None
    late: _Count | None = None


@dataclass(frozen=True)
class _ServerCalls:
    begun: _Count
    split: _Count


@dataclass(frozen=True)
class _Lateness:
    p99: _Count


@dataclass(frozen=True, kw_only=True)
class _Report:
    """The keys that the reports of the client and of the server have in common (hardware/generator/report.h)."""

    messages: Mapping[str, _Messages]
    unparsable: _Count
    cpu_ns: _Count
    transport: str = "udp"
    connections: Mapping[str, Any] | None = None

    @property
    def tally(self) -> Tally:
        kinds = self.messages.values()
        return Tally(
            sent=sum(kind.sent + kind.sent_again for kind in kinds),
            received=sum(kind.received + kind.received_again + kind.unexpected for kind in kinds)
            + self.unparsable,
        )

    def cpu_us(self, calls: int) -> float | None:
        """Return the CPU time per call in µs; None if no call was made."""
        return self.cpu_ns / calls / 1000 if calls else None

    def connection_counts(self, source: str) -> Connections | None:
        """Return the counts of TCP connections; None over UDP."""
        if self.transport != "tcp":
            return None
        return as_part(Connections, self.connections, source)


@dataclass(frozen=True, kw_only=True)
class _ClientReport(_Report):
    calls: _ClientCalls
    achieved_cps: Annotated[float, Meta(ge=0)]
    wall_ns: Annotated[int, Meta(ge=1)]
    overtaken: _Count
    scheduler: Literal["fifo", "other"]
    sockets: _Sockets
    no_ports: _Count | None = None


@dataclass(frozen=True, kw_only=True)
class _ServerReport(_Report):
    calls: _ServerCalls
    peers: tuple[_Count, ...]
    lateness_ns: _Lateness


def read_sipload_report(text: str, source: str) -> CallStatistics:
    """Read the report of `sipload uac` (hardware/generator/report.h).

    Raises
    ------
    StableError
        The text is not JSON, lacks a key, or has a value of another type.
    """
    report = part_of_json(_ClientReport, text, f"{source}: {INCOMPLETE}")
    calls, messages = report.calls, report.messages
    failed = calls.timeout_invite + calls.timeout_bye + calls.rejected_invite + calls.rejected_bye
    return CallStatistics(
        calls_offered=calls.offered,
        calls_created=calls.started,
        calls_completed=calls.completed,
        calls_failed=failed + calls.no_connection,
        achieved_cps=report.achieved_cps,
        retransmissions=sum(kind.sent_again for kind in messages.values()),
        unexpected=sum(kind.unexpected for kind in messages.values()) + report.unparsable,
        cpu_share=report.cpu_ns / report.wall_ns,
        socket_drops=report.sockets.drops,
        scheduler=report.scheduler,
        no_ports=report.no_ports,
        requests={kind.name: _sends(messages.get(kind.name)) for kind in REQUESTS},
        overtaken=report.overtaken,
        no_ringing=calls.no_ringing,
        calls_distinct=calls.distinct,
        calls_late=calls.late,
        calls_waiting=calls.unfinished_at_end + calls.timeout_invite + calls.timeout_bye,
        connections=report.connection_counts(source),
        cpu_us=report.cpu_us(calls.started),
        messages=report.tally,
    )


def read_server_report(text: str, source: str) -> Served:
    """Read the report of `sipload uas`.

    Raises
    ------
    StableError
        The text is not JSON, lacks a key, or has a value of another type.
    """
    report = part_of_json(_ServerReport, text, f"{source}: {INCOMPLETE}")
    return Served(
        messages=report.tally,
        calls=report.peers,
        split=report.calls.split,
        lateness_p99_us=report.lateness_ns.p99 / 1000,
        connections=report.connection_counts(source),
        cpu_us=report.cpu_us(report.calls.begun),
    )


def _sends(counts: _Messages | None) -> Sends:
    return Sends(counts.sent, counts.sent_again) if counts else Sends(0, 0)


def read_calls(path: Path) -> npt.NDArray[Any]:
    """Read the generator's file of calls, which contains the times and the result of each call.

    Returns
    -------
    ndarray
        Shape (calls,), dtype `CALL`, in the order of the schedule. Each time is in ns on the UAC's clock
        CLOCK_MONOTONIC, or 0 if the event did not happen.

    Raises
    ------
    StableError
        The file is missing, truncated, or of another version.
    """
    return _read_calls(path)[0]


def _read_calls(path: Path) -> tuple[npt.NDArray[Any], int]:
    """Return the calls of a file as in `read_calls`, and the start time of the schedule in ns (CLOCK_MONOTONIC)."""
    data = read_zstd(path, "calls file", "repeat the run")
    header = (
        np.frombuffer(data, CALLS_HEADER, count=1)[0]
        if len(data) >= CALLS_HEADER.itemsize
        else None
    )
    if header is None or header["magic"] != CALLS_MAGIC or header["version"] != CALLS_VERSION:
        raise StableError(f"{path}: not a calls file of version {CALLS_VERSION}; repeat the run")
    expected = CALLS_HEADER.itemsize + int(header["count"]) * CALL.itemsize
    if header["record_size"] != CALL.itemsize or len(data) != expected:
        raise StableError(
            f"{path}: truncated: expected {expected} bytes for {header['count']} calls, "
            f"found {len(data)}; repeat the run"
        )
    return np.frombuffer(data, CALL, offset=CALLS_HEADER.itemsize), int(header["t0"])
