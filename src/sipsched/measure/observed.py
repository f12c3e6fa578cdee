"""The results of a load, before any rule judges them."""

from dataclasses import dataclass

from sipsched.measure.generator import CallStatistics, Served
from sipsched.records.proxy_report import ProxyReport
from sipsched.validity.ledger import Ledger, Snapshots


@dataclass(frozen=True)
class Observed:
    """The counts of a load.

    Attributes
    ----------
    started, ended
        CLOCK_REALTIME of the controller, seconds since the epoch.
    statistics
        The counts of the generator.
    counters
        The counters of the three hosts before and after the load, as in `counters.json`.
    ledger
        The balance of these counters; over TCP, of the messages that UAC, UAS and proxy count.
    no_ports
        Datagrams to closed ports on hosts whose agent or proxy was running.
    clock_step_s
        Largest step of CLOCK_REALTIME against CLOCK_MONOTONIC on any host in seconds, 0 or more.
    proxy
        CPU time, sockets and front end of the proxy.
    served
        The counts of the UAS since its start; None in simulated runs on one shared socket.
    connections_made
        TCP connections that the UAC opened.
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
    connections_made: int = 0


@dataclass(frozen=True)
class WarmUp:
    """The proxy's CPU time during the warm-up.

    Attributes
    ----------
    utilisation
        CPU time of the proxy divided by the time of the SPS's CPUs.
    service_s
        CPU time per message in seconds, divided by the number of CPUs.
    """

    utilisation: float
    service_s: float


@dataclass(frozen=True)
class CpuTime:
    """CPU time in ns of all processes of the SUT, and of its front end among them."""

    all: int
    front: int

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        """Subtract an earlier reading."""
        return CpuTime(self.all - other.all, self.front - other.front)
