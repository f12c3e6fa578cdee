"""Load generators: programs that make calls on the UAC and answer them on the UAS."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sipsched.config import Load
from sipsched.errors import StableError
from sipsched.templates import render
from sipsched.testbed import Host, Hosts, Process

SERVER_LOG = "uas"
SOCKET_BUFFER_BYTES = 4_194_304
"""SIPp's own sockets drop at their default of 64 KiB."""

SIPP_EXIT_CODES = (0, 1, 124)
"""All calls succeeded; some failed; open calls at the end of the drain time. Anything else is SIPp's failure."""


@dataclass(frozen=True)
class CallStatistics:
    """What a generator says of one load.

    Attributes
    ----------
    achieved_cps
        Calls started per second from the first to the last start.
    retransmissions
        Requests and responses that the client sent again.
    unexpected
        Messages that did not fit the call's state.
    """

    calls_offered: int
    calls_created: int
    calls_completed: int
    calls_failed: int
    achieved_cps: float
    retransmissions: int
    unexpected: int


class Generator(Protocol):
    """A client and a server that drive the six-message call through the SPS."""

    programs: tuple[str, ...]
    version_argv: tuple[str, ...]

    def start_server(self, uas: Host, load: Load, limit_s: float) -> Process:
        """Start answering calls on the UAS."""

    def offer(self, hosts: Hosts, load: Load, label: str, calls: int, cps: int) -> CallStatistics:
        """Offer calls from the UAC to the SPS and wait for their end."""

    def files(self, label: str) -> tuple[str, ...]:
        """Name the files that `offer` leaves in the UAC's work folder."""


class Sipp:
    """SIPp, with its traps disarmed: socket buffers, call cap, statistics period, 180 after 200."""

    programs: tuple[str, ...] = ("sipp",)
    version_argv: tuple[str, ...] = ("sipp", "-v")

    def start_server(self, uas: Host, load: Load, limit_s: float) -> Process:
        """Start SIPp as UAS; it is ready when its socket is bound."""
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

    def offer(self, hosts: Hosts, load: Load, label: str, calls: int, cps: int) -> CallStatistics:
        """Run SIPp as UAC until all calls ended or the drain time is over."""
        uac = hosts.uac
        scenario = uac.workdir / "uac.xml"
        uac.put_text(
            render(
                Path("scenarios", "uac.xml.j2"),
                hold_time_ms=load.hold_time_ms,
                retransmissions=load.retransmissions,
            ),
            scenario,
        )
        statistics = uac.workdir / f"{label}.csv"
        longest_s = calls / cps + load.drain_s
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

    def files(self, label: str) -> tuple[str, ...]:
        """Name the statistics file."""
        return (f"{label}.csv",)


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
    rows = list(csv.DictReader(io.StringIO(whole_lines), delimiter=";"))
    try:
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
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StableError(f"{source}: not a complete SIPp statistics file: {error!r}") from error


def _achieved_cps(rows: Sequence[Mapping[str, str]], created: int) -> float:
    """Rate from the start to the last period that ended while calls were still being started."""
    start = _epoch_s(rows[0]["StartTime"])
    running = [row for row in rows if 0 < int(row["TotalCallCreated"]) < created] or rows[:1]
    return int(running[-1]["TotalCallCreated"]) / (_epoch_s(running[-1]["CurrentTime"]) - start)


def _epoch_s(stamp: str) -> float:
    # date, time and seconds since the epoch, separated by tabs
    return float(stamp.split("\t")[2])
