"""The parts of `run.json` about the offered load and the load generators."""

from collections.abc import Mapping
from dataclasses import dataclass

from sipsched.plan.loads import Load


@dataclass(frozen=True, kw_only=True)
class OfferedLoad(Load):
    """The configured load of a run, with the number of calls and the seed of the random arrivals."""

    calls: int
    seed: int


@dataclass(frozen=True)
class Connections:
    """The counts of the TCP connections of a load generator.

    Attributes
    ----------
    opened, again, lost, cut
        Numbers of connections: opened or accepted connections, connections that replaced a lost connection, lost
        connections, and connections that ended in the middle of a message.
    blocked, blocked_ns
        Number of times that a full send buffer delayed messages, and the sum of these delays in ns.
    """

    opened: int
    again: int
    lost: int
    cut: int
    blocked: int
    blocked_ns: int


@dataclass(frozen=True)
class CallCounts:
    """The load generator's counts of calls and messages for one load. A number that was not reported is None.

    Attributes
    ----------
    achieved_cps
        Started calls per second, from the first to the last start.
    retransmissions
        Requests and responses that the client retransmitted.
    unexpected
        Messages that the state of their call does not allow.
    cpu_share
        CPU time of the client, divided by the elapsed time.
    socket_drops
        Datagrams that the client's full socket refused.
    scheduler
        Scheduling policy of the client: `fifo` or `other`.
    no_ports
        Datagrams to closed ports of the UAC's host (counter NoPorts) while the client's ports were open.
    overtaken
        Responses 180 that arrived after the final answer of their calls, because the SPS changed the order.
        `unexpected` excludes these responses.
    no_ringing
        Answered calls without any response 180. Either the SPS's full socket refused the 180, or a stateful SPS dropped
        the 180 because the final answer came first.
    calls_distinct
        Number of offered calls that were sampled. All other calls repeat the calls of a block. None: all calls were
        sampled.
    calls_late
        Completed calls whose INVITE was answered by 200 later than the ring time plus `setup_limit_ms` of the load.
    calls_waiting
        Uncompleted calls without an answer: the answer was not due yet at the end of the run, or did not come in time
        (64 T1).
    connections
        Connections of the client over TCP; None over UDP.
    """

    calls_offered: int
    calls_created: int
    calls_completed: int
    calls_failed: int
    achieved_cps: float
    retransmissions: int
    unexpected: int
    cpu_share: float | None = None
    socket_drops: int | None = None
    scheduler: str | None = None
    no_ports: int | None = None
    overtaken: int | None = None
    no_ringing: int | None = None
    calls_distinct: int | None = None
    calls_late: int | None = None
    calls_waiting: int | None = None
    connections: Connections | None = None

    @property
    def replays(self) -> float:
        """Return how many times the load generator makes each sampled call.

        The number is 1 for a run of one mode. A run that compares modes makes the same calls in every window of a
        block.
        """
        return self.calls_offered / (self.calls_distinct or self.calls_offered)


@dataclass(frozen=True, kw_only=True)
class GeneratorReport(CallCounts):
    """The counts of one load generator, with the generator's version and CPU time.

    Attributes
    ----------
    cpu_us
        CPU time of client and server per call in µs; None if the client or the server does not report its CPU time.
    """

    version: str
    cpu_us: float | None = None


@dataclass(frozen=True)
class Sends:
    """For one SIP method, such as INVITE: how many requests were sent first, and how many were retransmissions."""

    first: int
    again: int


@dataclass(frozen=True)
class Requests:
    """The numbers of requests by SIP method, as counted by the UAC and by the SPS.

    `disagreement` is the number of requests by which the two counts differ.
    """

    uac: Mapping[str, Sends] | None
    sps: Mapping[str, Sends] | None
    disagreement: int | None
