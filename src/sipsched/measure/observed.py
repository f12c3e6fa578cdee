"""Types for everything that was counted during a load, such as calls, messages and CPU time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sipsched.measure.generator import CallStatistics, Served
from sipsched.records.proxy_report import ProxyReport
from sipsched.validity.ledger import Ledger, Snapshots


@dataclass(frozen=True)
class Observed:
    """The numbers of calls, messages and drops that all hosts counted during a load.

    Attributes
    ----------
    started, ended
        CLOCK_REALTIME of the machine that controls the run, in seconds since the epoch.
    statistics
        The counts of the load generator.
    counters
        The kernel's counters on the three hosts before and after the load, as in `counters.json`.
    ledger
        The ledger of all datagrams. Over TCP, the ledger of the messages that UAC, UAS and proxy count.
    no_ports
        Datagrams to closed ports on hosts whose generator or proxy was running.
    clock_step_s
        Largest step of CLOCK_REALTIME against CLOCK_MONOTONIC on any host in seconds, 0 or more.
    proxy
        CPU time, sockets and front end of the proxy.
    served
        The counts of the UAS since its start; None in a simulated run whose workers share one socket.
    connections_made
        TCP connections that the UAC opened, including the connections of the warm-up.
    connections_accepted
        TCP connections that the proxy accepted during the load; None over UDP, or if the proxy does not count them.
    instance_of
        Index of the compared instance of each process and thread of the proxy, by its id; empty if the run has one
        instance.
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
    connections_accepted: int | None = None
    instance_of: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WarmUp:
    """The proxy's CPU time during the warm-up: as a share of the elapsed time, and per message.

    In a run that compares modes, these numbers determine the length of the windows (stretches of time in one mode).

    Attributes
    ----------
    utilisation
        CPU time of the proxy, divided by the duration of the warm-up and by the number of cores.
    service_s
        CPU time per message in seconds, divided by the number of cores. If a run compares instances, the divisor is the
        number of cores of the instance with the fewest cores. If each worker has its own socket, the time is not
        divided.
    """

    utilisation: float
    service_s: float


@dataclass(frozen=True)
class CpuTime:
    """The CPU time in ns of all processes of the proxy on the SPS, and the CPU time of the front end alone.

    `all` includes the front end only if the front end runs on the SPS.
    """

    all: int
    front: int

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        """Return the CPU time that was used between an earlier reading (`other`) and this reading."""
        return CpuTime(self.all - other.all, self.front - other.front)
