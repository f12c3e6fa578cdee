"""Load generators: programs that make calls on the UAC and answer them on the UAS."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.files import parse_json, read_zstd
from sipsched.measure.templates import render
from sipsched.plan.config import Load, Sut
from sipsched.plan.documents import validate
from sipsched.records.retransmissions import REQUESTS
from sipsched.records.run_document import CallCounts, Connections, Sends, as_part
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder
from sipsched.testbed.session import Hosts
from sipsched.validity.ledger import Tally

SERVER_LOG = "uas"
SERVER_REPORT = "uas.json"
SOCKET_BUFFER_BYTES = 4_194_304
"""Of UAC and UAS; SIPp's default of 64 KiB drops."""

FIFO_PRIORITY = 10
"""Of sipload, where it may have one: on a shared CPU nothing else then delays a start."""

SIPLOAD_SPARE_S = 5.0
"""Beyond the drain time, after which sipload ends by itself and writes its report."""

CALLS_MAGIC = b"SIPCALLS"
CALLS_VERSION = 1
# SEE hardware/generator/calls.h: struct calls_header and struct call_record, packed, little-endian
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

SIPP_EXIT_CODES = (0, 1, 124)
"""All calls succeeded; some failed; open calls at the end of the drain time. Anything else is SIPp's failure."""


@dataclass(frozen=True)
class CallStatistics(CallCounts):
    """The counts, and more of what the client sent and received.

    Attributes
    ----------
    requests
        By method, first and again; None if it does not tell them apart.
    messages
        All of them; None if it does not tell.
    cpu_us
        CPU time of the client a call; None if it does not tell.
    """

    requests: Mapping[str, Sends] | None = None
    messages: Tally | None = None
    cpu_us: float | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The counts alone."""
        return {field.name: getattr(self, field.name) for field in fields(CallCounts)}


@dataclass(frozen=True)
class Served:
    """What a server answered from its start to its end.

    Attributes
    ----------
    messages
        All that it sent and received.
    calls
        That each address began, an instance of the SPS where each has its own.
    split
        Calls of which INVITE, ACK and BYE did not come from one address.
    cpu_us
        CPU time a call; None if it does not tell.
    """

    messages: Tally
    calls: tuple[int, ...]
    split: int
    cpu_us: float | None = None


@dataclass(frozen=True)
class Transport:
    """What carries SIP; over TCP the UAC has so many persistent connections, or one a call."""

    protocol: str = "udp"
    connections: int | Literal["per-call"] | None = None

    @classmethod
    def of(cls, sut: Sut) -> "Transport":
        """Give a SUT's."""
        return cls(sut.transport, sut.connections)


UDP = Transport()


@dataclass(frozen=True)
class Arrivals:
    """Calls to be offered.

    Attributes
    ----------
    cps
        Calls per second.
    calls
        How many; of blocks about how many, since what falls into a window is drawn.
    seed
        What they are drawn from, where the generator draws.
    blocks
        Windows of the load, in order of playing: number of the block, and length in ns. The calls of a
        block are played again in each of its windows. None where every call is played once.
    """

    cps: int
    calls: int
    seed: int
    blocks: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def in_blocks(cls, cps: int, seed: int, blocks: Sequence[tuple[int, int]]) -> "Arrivals":
        """Offer calls that are played again in each window of a block."""
        length_s = sum(length_ns for _, length_ns in blocks) / 1e9
        return cls(cps, max(1, round(cps * length_s)), seed, tuple(blocks))

    @property
    def duration_s(self) -> float:
        """How long the load lasts."""
        if self.blocks is None:
            return self.calls / self.cps
        return sum(length_ns for _, length_ns in self.blocks) / 1e9


@dataclass(frozen=True)
class Schedule:
    """What was drawn.

    Attributes
    ----------
    calls
        How many calls there are.
    distinct
        How many of them were drawn; the others are a block's, played again.
    first_ns, last_ns
        When the first and the last call start, in ns after the schedule's beginning.
    """

    calls: int
    distinct: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class Starts:
    """When calls started and when they were to start: int64 ns, shape (n,), CLOCK_MONOTONIC of the UAC."""

    actual_ns: npt.NDArray[np.int64]
    intended_ns: npt.NDArray[np.int64]


class Generator(Protocol):
    """A client and a server that drive the six-message call through the SPS."""

    @property
    def installed(self) -> tuple[str, ...]:
        """Programs that an agent's host needs from a package."""

    @property
    def built(self) -> Mapping[str, str]:
        """Native parts that provisioning built on an agent's host, each with its program."""

    def version_argv(self, agent: Host) -> list[str]:
        """Give the command that prints the generator's version."""

    def start_server(
        self, uas: Host, load: Load, limit_s: float, transport: Transport = UDP
    ) -> Process:
        """Start answering calls on the UAS."""

    def offer(
        self,
        hosts: Hosts,
        load: Load,
        label: str,
        arrivals: Arrivals,
        transport: Transport = UDP,
    ) -> CallStatistics:
        """Offer calls from the UAC to the SPS and wait for their end."""

    def served(self, uas: Host) -> Served | None:
        """Say what a server that was stopped answered; None if it does not tell."""

    def fetch(self, hosts: Hosts, label: str, folder: Path) -> None:
        """Copy the files that it left on the agents into the record."""

    def starts(self, folder: Path, label: str) -> Starts | None:
        """Read from a record when calls started; None if the generator does not tell."""


class Sipp:
    """SIPp, with its traps disarmed: socket buffers, call cap, statistics period, 180 after 200."""

    installed = ("sipp",)
    """Debian's package sip-tester."""
    built: Mapping[str, str] = MappingProxyType({})

    def version_argv(self, agent: Host) -> list[str]:
        """Give the command that prints SIPp's version."""
        return ["sipp", "-v"]

    def start_server(
        self, uas: Host, load: Load, limit_s: float, transport: Transport = UDP
    ) -> Process:
        """Start SIPp as UAS, over UDP; it is ready when its socket is bound."""
        scenario = uas.workdir / "uas.xml"
        uas.put_text(
            render(
                Path("scenarios", "uas.xml.j2"),
                ring_time_ms=load.ring_time_ms,
                retransmissions=load.retransmissions,
            ),
            scenario,
        )
        spec = uas.spec
        argv = [
            *("sipp", "-sf", str(scenario), "-i", spec.sip_address, "-p", str(spec.sip_port)),
            *("-buff_size", str(SOCKET_BUFFER_BYTES), "-nostdin", "-timer_resol", "1"),
            *(() if load.retransmissions else ("-nr",)),
        ]
        return uas.start(SERVER_LOG, argv, cpus=spec.cpus, limit_s=limit_s)

    def offer(
        self,
        hosts: Hosts,
        load: Load,
        label: str,
        arrivals: Arrivals,
        transport: Transport = UDP,
    ) -> CallStatistics:
        """Run SIPp as UAC, over UDP, until all calls ended or the drain time is over; it draws nothing from a seed.

        Raises
        ------
        StableError
            The calls are to be played in blocks.
        """
        if arrivals.blocks is not None:
            raise StableError(
                "SIPp has no schedule, so it cannot play the calls of a block again; "
                "set load.generator to sipload"
            )
        uac, calls, cps = hosts.uac, arrivals.calls, arrivals.cps
        scenario = uac.workdir / "uac.xml"
        uac.put_text(
            render(
                Path("scenarios", "uac.xml.j2"),
                hold_time_ms=load.hold_time_ms,
                hold_law=load.hold_law,
                retransmissions=load.retransmissions,
            ),
            scenario,
        )
        statistics = uac.workdir / f"{label}.csv"
        longest_s = arrivals.duration_s + load.drain_s
        spec, sps = uac.spec, hosts.sps.spec
        argv = [
            *("sipp", f"{sps.sip_address}:{sps.sip_port}", "-sf", str(scenario)),
            *("-i", spec.sip_address, "-p", str(spec.sip_port)),
            *("-r", str(cps), "-m", str(calls), "-l", str(calls)),
            *("-buff_size", str(SOCKET_BUFFER_BYTES), "-nostdin", "-timer_resol", "1"),
            *("-trace_stat", "-stf", str(statistics), "-fd", "100ms"),
            *(() if load.retransmissions else ("-nr",)),
        ]
        uac.run(["rm", "-f", str(statistics)])
        uac.run_limited(label, argv, cpus=spec.cpus, limit_s=longest_s, accept=SIPP_EXIT_CODES)
        text = uac.run(["cat", str(statistics)]).stdout
        return read_sipp_statistics(text, calls, str(statistics))

    def served(self, uas: Host) -> Served | None:
        """Give None: SIPp does not tell what its server answered."""
        return None

    def fetch(self, hosts: Hosts, label: str, folder: Path) -> None:
        """Copy the statistics file."""
        hosts.uac.get_file(hosts.uac.workdir / f"{label}.csv", folder / f"{label}.csv")

    def starts(self, folder: Path, label: str) -> Starts | None:
        """Give None: SIPp does not tell when it started a call."""
        return None


class Sipload:
    """`sipload`: arrivals on a seeded schedule, at absolute deadlines, each call's start recorded."""

    installed: tuple[str, ...] = ()
    built: Mapping[str, str] = MappingProxyType({"generator": "sipload"})

    def version_argv(self, agent: Host) -> list[str]:
        """Give the command that prints the generator's version."""
        return [self._program(agent), "version"]

    def start_server(
        self, uas: Host, load: Load, limit_s: float, transport: Transport = UDP
    ) -> Process:
        """Start `sipload uas`."""
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

    def draw(self, uac: Host, load: Load, label: str, arrivals: Arrivals) -> Schedule:
        """Draw the schedule that `offer` plays; the same arrivals are the same schedule each time."""
        calls = ["--calls", str(arrivals.calls)]
        if arrivals.blocks is not None:
            blocks = uac.workdir / f"{label}.blocks"
            lines = (f"{block} {length_ns}\n" for block, length_ns in arrivals.blocks)
            uac.put_text("".join(lines), blocks)
            calls = ["--blocks", str(blocks)]
        argv = [
            *(self._program(uac), "schedule", "--output", str(_schedule_file(uac, label))),
            *("--law", load.law, "--rate", str(arrivals.cps), "--seed", str(arrivals.seed), *calls),
        ]
        return Schedule(**parse_json(uac.run(argv).stdout))

    def offer(
        self,
        hosts: Hosts,
        load: Load,
        label: str,
        arrivals: Arrivals,
        transport: Transport = UDP,
    ) -> CallStatistics:
        """Draw the schedule on the UAC, then make its calls."""
        uac, spec, sps = hosts.uac, hosts.uac.spec, hosts.sps.spec
        report = uac.workdir / f"{label}.json"
        uac.run(["rm", "-f", str(report)])
        self.draw(uac, load, label, arrivals)
        schedule = _schedule_file(uac, label)
        argv = [
            *(self._program(uac), "uac", "--local", f"{spec.sip_address}:{spec.sip_port}"),
            *("--remote", f"{sps.sip_address}:{sps.sip_port}", "--schedule", str(schedule)),
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
        """Say what a server that was stopped answered.

        Raises
        ------
        StableError
            It left no whole report.
        """
        report = uas.workdir / SERVER_REPORT
        return read_server_report(uas.run(["cat", str(report)]).stdout, str(report))

    def fetch(self, hosts: Hosts, label: str, folder: Path) -> None:
        """Copy the reports and, compressed, the calls."""
        uac = hosts.uac
        calls = uac.workdir / f"{label}.calls"
        uac.run(["zstd", "-q", "-f", "-1", "--rm", str(calls)])
        for name in (f"{label}.calls.zst", f"{label}.json"):
            uac.get_file(uac.workdir / name, folder / name)
        hosts.uas.get_file(hosts.uas.workdir / SERVER_REPORT, folder / SERVER_REPORT)

    def starts(self, folder: Path, label: str) -> Starts | None:
        """Read the calls that were started."""
        calls = read_calls(folder / f"{label}.calls.zst")
        started = calls[calls["t_invite"] > 0]
        return Starts(started["t_invite"].astype("i8"), started["t_intended"].astype("i8"))

    def _program(self, agent: Host) -> str:
        return str(native_folder(agent.base, "generator") / "sipload")


def _schedule_file(uac: Host, label: str) -> PurePosixPath:
    return uac.workdir / f"{label}.schedule"


def _hold(load: Load) -> str:
    exponential = "exp:" if load.hold_law == "exponential" else ""
    return f"{exponential}{load.hold_time_ms}"


def read_sipload_report(text: str, source: str) -> CallStatistics:
    """Read the report of `sipload uac` (hardware/generator/report.h).

    Raises
    ------
    StableError
        It is not JSON, or not like workflow/schemas/sipload.schema.yaml.
    """
    report = _read_report(text, source)
    calls, messages = report["calls"], report["messages"]
    failed = ("timeout_invite", "timeout_bye", "rejected_invite", "rejected_bye", "no_connection")
    waiting = ("unfinished_at_end", "timeout_invite", "timeout_bye")
    over_tcp = report.get("transport") == "tcp"
    return CallStatistics(
        calls_offered=calls["offered"],
        calls_created=calls["started"],
        calls_completed=calls["completed"],
        calls_failed=sum(calls.get(name, 0) for name in failed),
        achieved_cps=report["achieved_cps"],
        retransmissions=sum(kind["sent_again"] for kind in messages.values()),
        unexpected=sum(kind["unexpected"] for kind in messages.values()) + report["unparsable"],
        cpu_share=report["cpu_ns"] / report["wall_ns"],
        socket_drops=report["sockets"]["drops"],
        scheduler=report["scheduler"],
        no_ports=report.get("no_ports"),
        requests={
            kind.name: _sends(messages.get(kind.name, {"sent": 0, "sent_again": 0}))
            for kind in REQUESTS
        },
        overtaken=report["overtaken"],
        no_ringing=calls["no_ringing"],
        calls_distinct=calls.get("distinct"),
        calls_late=calls.get("late"),
        calls_waiting=sum(calls.get(name, 0) for name in waiting),
        connections=as_part(Connections, report["connections"], source) if over_tcp else None,
        cpu_us=_cpu_us(report, calls["started"]),
        messages=_tally(report),
    )


def read_server_report(text: str, source: str) -> Served:
    """Read the report of `sipload uas`.

    Raises
    ------
    StableError
        As `read_sipload_report`.
    """
    report = _read_report(text, source, "server")
    calls = report["calls"]
    return Served(
        _tally(report), tuple(report["peers"]), calls["split"], _cpu_us(report, calls["begun"])
    )


def _cpu_us(report: Mapping[str, Any], calls: int) -> float | None:
    return report["cpu_ns"] / calls / 1000 if calls else None


def _tally(report: Mapping[str, Any]) -> Tally:
    def total(*columns: str) -> int:
        return sum(kind.get(name, 0) for kind in report["messages"].values() for name in columns)

    return Tally(
        sent=total("sent", "sent_again"),
        received=total("received", "received_again", "unexpected") + report["unparsable"],
    )


def _read_report(text: str, source: str, part: str | None = None) -> dict[str, Any]:
    what = f"{source}: not a complete sipload report"
    try:
        report: dict[str, Any] = validate(parse_json(text), "sipload", what, part)
        return report
    except ValueError as error:
        raise StableError(f"{what}: {error}") from None


def _sends(counts: Mapping[str, int]) -> Sends:
    return Sends(counts["sent"], counts["sent_again"])


def read_calls(path: Path) -> npt.NDArray[Any]:
    """Read what became of each call.

    Returns
    -------
    ndarray
        Shape (calls,), dtype `CALL`, in the order of the schedule; instants are CLOCK_MONOTONIC of
        the UAC in ns, 0 where it did not happen.

    Raises
    ------
    StableError
        The file is missing, truncated, or of another version.
    """
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
    return np.frombuffer(data, CALL, offset=CALLS_HEADER.itemsize)


def read_sipp_statistics(text: str, calls_offered: int, source: str) -> CallStatistics:
    """Read the CSV file that SIPp writes with -trace_stat.

    Parameters
    ----------
    text
        The file's text: a header line and one line a period, separated by semicolons.
    calls_offered
        Calls that SIPp was told to make.
    source
        Name of the file for messages.

    Raises
    ------
    StableError
        The file is empty or lacks a column.
    """
    # SIPp that is ended at the drain time may leave half a line
    whole_lines = text[: text.rfind("\n") + 1]
    try:
        rows = list(csv.DictReader(io.StringIO(whole_lines), delimiter=";"))
        last = rows[-1]
        created = int(last["TotalCallCreated"])
        return CallStatistics(
            calls_offered=calls_offered,
            calls_created=created,
            calls_completed=int(last["SuccessfulCall(C)"]),
            calls_failed=int(last["FailedCall(C)"]),
            achieved_cps=_achieved_cps(rows, created),
            retransmissions=int(last["Retransmissions(C)"]),
            unexpected=int(last["FailedUnexpectedMessage(C)"]),
        )
    except (
        *(IndexError, KeyError, TypeError, ValueError, ZeroDivisionError),
        *(AttributeError, OverflowError, csv.Error),
    ) as error:
        raise StableError(
            f"{source}: not a complete SIPp statistics file: {error!r:.200}"
        ) from error


def _achieved_cps(rows: Sequence[Mapping[str, str]], created: int) -> float:
    """Rate from the start to the last period that ended while calls were still being started."""
    start = _epoch_s(rows[0]["StartTime"])
    running = [row for row in rows if 0 < int(row["TotalCallCreated"]) < created] or rows[:1]
    return int(running[-1]["TotalCallCreated"]) / (_epoch_s(running[-1]["CurrentTime"]) - start)


def _epoch_s(stamp: str) -> float:
    # date, time and seconds since the epoch, separated by tabs
    return float(stamp.split("\t")[2])
