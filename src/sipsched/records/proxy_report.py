"""Parts of `run.json` about the proxy and its front end."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardReport:
    """Datagrams since the start of the proxy, by the socket to which sipshard assigned them.

    Attributes
    ----------
    selected
        Datagrams per socket.
    without_call_id
        Datagrams without a Call-ID, which go to the first socket.
    gone
        Datagrams dropped because the socket of their call was closed.
    runs, run_ns
        Executions of the kernel program that assigns sockets, and its CPU time; 0 where the kernel does not count them.
    """

    selected: tuple[int, ...]
    without_call_id: int
    gone: int
    runs: int
    run_ns: int


@dataclass(frozen=True)
class DispatchReport:
    """Counts of sipdispatch since its start (hardware/dispatcher/sipdispatch.c).

    Attributes
    ----------
    to_instances
        Messages passed to each instance.
    to_clients
        Messages passed to clients.
    unsent
        Messages in both directions that were still queued when sipdispatch was stopped. None in records before 23
        November 2026.
    without_call_id
        Messages without a Call-ID, which go to the first instance.
    lost
        Messages that were lost because the instance or the client had disconnected.
    broken
        Streams that sipdispatch could not parse. It closed their connections.
    clients
        Accepted connections.
    answering
        Accepted connections that an instance opened to answer a disconnected client. None in the same records as
        `unsent`.
    refused
        Accepted connections that were closed at once for lack of a file descriptor.
    stalls
        Number of times that sipdispatch stopped reading one side of a connection, because the other side accepted no
        data.
    """

    to_instances: tuple[int, ...]
    to_clients: int
    without_call_id: int
    lost: int
    broken: int
    clients: int
    refused: int
    stalls: int
    unsent: int | None = None
    answering: int | None = None


@dataclass(frozen=True)
class FrontReport:
    """The front end of a proxy's instances.

    Attributes
    ----------
    program
        Name of its binary.
    cpus
        CPUs of the SPS to which it is pinned.
    cpu_ns
        CPU time of all its processes during the load, in ns.
    dispatched
        Counts of sipdispatch; None if the front end is a proxy.
    """

    program: str
    cpus: tuple[int, ...]
    cpu_ns: int
    dispatched: DispatchReport | None = None


@dataclass(frozen=True)
class ProxyReport:
    """The SUT's processes during the load.

    Attributes
    ----------
    cpu_ns
        CPU time of all processes, including the front end, in ns.
    shards
        Counts of sipshard; None unless several UDP sockets share the port.
    front
        The front end; None without one.
    calls_of_instances
        Calls that reached the UAS from each instance since the UAS was started. The UAS distinguishes instances by
        their addresses; None where it cannot.
    """

    cpu_ns: int
    shards: ShardReport | None = None
    front: FrontReport | None = None
    calls_of_instances: tuple[int, ...] | None = None
