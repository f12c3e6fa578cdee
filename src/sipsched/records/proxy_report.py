"""The parts of `run.json` about the proxy and its front end."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardReport:
    """The counts of sipshard, which assigns datagrams to the sockets of one port, since the start of the proxy.

    Attributes
    ----------
    selected
        Datagrams per socket.
    without_call_id
        Datagrams without a Call-ID, or without a user if the user selects the socket. sipshard assigns them to the
        first socket.
    gone
        Datagrams that were dropped because the socket of their call was closed.
    runs, run_ns
        Number of executions and CPU time of the BPF program that assigns sockets; 0 if the kernel does not count them.
    """

    selected: tuple[int, ...]
    without_call_id: int
    gone: int
    runs: int
    run_ns: int


@dataclass(frozen=True)
class DispatchReport:
    """The counts of sipdispatch, a front end that distributes the calls of TCP connections to instances.

    Attributes
    ----------
    to_instances
        Messages that sipdispatch forwarded to each instance.
    to_clients
        Messages that sipdispatch forwarded to clients.
    unsent
        Messages in both directions that were still queued when sipdispatch was stopped. None in records before 23
        November 2026.
    without_call_id
        Messages without a Call-ID, which sipdispatch forwards to the first instance.
    lost
        Messages that were lost because the instance or the client had closed its connection.
    broken
        Streams that sipdispatch could not parse. sipdispatch closed the connections of these streams.
    clients
        Connections that sipdispatch accepted.
    answering
        Accepted connections that an instance opened to answer a client that had closed its connection. None in records
        before 23 November 2026.
    refused
        Accepted connections that sipdispatch closed at once, because no file descriptor was free.
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
    """The front end, a program that distributes messages to the instances of a proxy.

    Attributes
    ----------
    program
        Name of the program.
    cpus
        CPUs of its host to which the front end is pinned.
    cpu_ns
        CPU time in ns of all processes of the front end during the load.
    dispatched
        Counts of sipdispatch; None if the front end is a proxy.
    host
        Role of the front end's host: `sps`, or `front` for a host of its own.
    """

    program: str
    cpus: tuple[int, ...]
    cpu_ns: int
    dispatched: DispatchReport | None = None
    host: str = "sps"


@dataclass(frozen=True)
class ProxyReport:
    """The CPU time and the counts of the SUT's processes during the load.

    Attributes
    ----------
    cpu_ns
        CPU time in ns of all processes on the SPS, including a front end on the SPS.
    shards
        Counts of sipshard; None if each UDP port has only one socket, or if the run compares instances.
    front
        The front end; None if the SUT has none.
    calls_of_instances
        Calls that reached the UAS from each instance since the start of the UAS. The UAS distinguishes instances by
        their addresses. None if the instances share an address.
    shards_of_instances
        If the run compares instances, counts of sipshard per instance, by port. None for an instance with one socket.
        Empty for other runs, and in older records.
    """

    cpu_ns: int
    shards: ShardReport | None = None
    front: FrontReport | None = None
    calls_of_instances: tuple[int, ...] | None = None
    shards_of_instances: tuple[ShardReport | None, ...] = ()
