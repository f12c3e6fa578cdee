"""A system under test: a proxy program, its settings and its deployment."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from sipsched.plan.keys import ProbeChoice

Transport = Literal["udp", "tcp"]
Deployment = Literal["shared", "sockets", "partitioned", "front", "listeners", "dispatcher"]


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The properties of a deployment, which determine how messages reach the workers of a proxy.

    Attributes
    ----------
    instances
        Whether each worker is its own instance of the proxy, with its own address space.
    queues
        Whether each worker has its own receive queue.
    choice
        The property of a message that selects its worker: the call, the TCP connection, or the worker that owns the
        connection.
    front
        The process that receives messages or connections first: a proxy without transactions, sipdispatch, or the
        accepting process of the proxy. None: the kernel alone distributes messages.
    costs
        Parameters of the simulator for this deployment. A model's file has the value of each parameter under
        `deployments`, at the key that this mapping names.
    """

    instances: bool = False
    queues: bool = True
    choice: Literal["call", "connection", "holder"] = "call"
    front: Literal["proxy", "dispatcher", "acceptor"] | None = None
    costs: Mapping[str, str]


_STREAM = {"stream_ns": "stream_ns"}
_STEERED = {"dispatch_ns": "dispatch_ns"}
DEPLOYMENTS: Mapping[tuple[Transport, Deployment], Arrangement] = MappingProxyType(
    {
        ("udp", "shared"): Arrangement(queues=False, costs={}),
        ("udp", "sockets"): Arrangement(costs=_STEERED),
        ("udp", "partitioned"): Arrangement(instances=True, costs=_STEERED),
        ("udp", "front"): Arrangement(
            instances=True, front="proxy", costs={"front_ns": "front_ns"}
        ),
        ("tcp", "shared"): Arrangement(
            choice="holder",
            front="acceptor",
            costs={**_STREAM, "front_ns": "pass_ns", "keep_ns": "keep_ns"},
        ),
        ("tcp", "listeners"): Arrangement(instances=True, choice="connection", costs=_STREAM),
        ("tcp", "dispatcher"): Arrangement(
            instances=True, front="dispatcher", costs={**_STREAM, "front_ns": "dispatcher_ns"}
        ),
    }
)
"""All deployments, by transport and name. The configuration, the measurement and the simulator use this table."""


@dataclass(frozen=True)
class Sut:
    """A system under test: a proxy program, its settings and its deployment."""

    name: str
    proxy: Annotated[
        Literal["kamailio", "opensips"],
        Meta(description="The proxy program; its template is hardware/proxies/<proxy>.cfg.j2."),
    ]
    routing: Annotated[
        Literal["stateful", "stateless"],
        Meta(
            description="stateful keeps transactions and adds Record-Route. stateless forwards each message "
            "independently."
        ),
    ]
    memory_manager: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z_]+\Z",
            description="The proxy's allocator. Kamailio's default, qm, is a debugging allocator. fm and F_MALLOC "
            "are faster.",
        ),
    ]
    shared_memory_mib: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="Shared memory of all instances together, in MiB. A stateful proxy needs about 16 kB × cps × "
            "2 × 5 s.",
        ),
    ]
    package_memory_mib: Annotated[
        int, Meta(ge=1, le=4096, description="Private memory per worker in MiB.")
    ]
    receive_buffer_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            le=2**30,
            description="The size to which the proxy raises SO_RCVBUF (its maxbuffer). The kernel limits this size to "
            "net.core.rmem_max and doubles the result. A comparison can set other sizes, without this limit. "
            "Over TCP: the proxy's read buffer per connection (tcp_rd_buf_size).",
        ),
    ]
    program: Annotated[
        Annotated[str, Meta(pattern=r"\A(/[A-Za-z0-9_+][A-Za-z0-9._+-]*)+\Z")] | None,
        Meta(
            description="Path of the proxy's program on the SPS, such as /opt/kamailio/sbin/kamailio. Default: the "
            "program of the SPS's own package."
        ),
    ] = None
    release: Annotated[
        Annotated[str, Meta(pattern=r"\A[a-z]+\Z")] | None,
        Meta(
            description="Another Debian release, such as trixie. The proxy is then the package of this release, in a "
            "root file system of its own, which fab provision --release builds."
        ),
    ] = None
    probe: Annotated[
        ProbeChoice | None,
        Meta(
            description="Overrides the campaign's probe. off is for control runs that show the cost of the probe. "
            "Over TCP: auto or off."
        ),
    ] = None
    transport: Annotated[
        Transport, Meta(description="The transport protocol of SIP, from the UAC to the UAS.")
    ] = "udp"
    connections: Annotated[
        Annotated[int, Meta(ge=1, le=60_000)] | Literal["per-call"] | None,
        Meta(
            description="Over TCP: the number of persistent connections of the UAC, which calls use in turn. "
            "per-call: one connection per call."
        ),
    ] = None
    deployment: Annotated[
        Deployment,
        Meta(
            description="Over UDP: shared, all workers use one socket; sockets, a socket per worker on the same port; "
            "partitioned, an instance per worker; front, instances of one worker behind a proxy without "
            "transactions. Over TCP: shared, one process passes connections to the workers; listeners, "
            "instances of one worker that listen on the same port; dispatcher, instances of one worker behind "
            "sipdispatch."
        ),
    ] = "shared"
    front_host: Annotated[
        Literal["sps", "front"],
        Meta(
            description="In the deployments front and dispatcher: the host of the front end. sps is the proxy's host. "
            "front is a host of its own, which the testbed's file must name (hosts.front)."
        ),
    ] = "sps"
    shard_by: Annotated[
        Literal["call-id", "user"],
        Meta(
            description="In the deployments sockets, partitioned and front: the part of a message that selects its "
            "socket or instance. call-id is the Call-ID. user is the user of the URI in the To header "
            "(docs/partitioned.md)."
        ),
    ] = "call-id"
    log_messages: Annotated[
        bool,
        Meta(
            description="Whether the proxy writes a line per message to the socket /dev/log of syslog(3). On a testbed "
            "of kind virtual or simulated, a competitor without period_us reads these lines. On other testbeds, a "
            "syslog daemon reads them."
        ),
    ] = False

    @property
    def arrangement(self) -> Arrangement:
        """Return the properties of the SUT's deployment."""
        return DEPLOYMENTS[self.transport, self.deployment]

    @property
    def sharded(self) -> bool:
        """Return True if several UDP sockets share one port, and a BPF program chooses the socket."""
        return not self.over_tcp and self.arrangement.queues and self.arrangement.front is None

    @property
    def fronted(self) -> bool:
        """Return True if messages pass a front end, and each proxy instance behind the front end has its own port."""
        return self.arrangement.front in ("proxy", "dispatcher")

    @property
    def told_apart(self) -> bool:
        """Return True if each proxy instance sends messages to the UAS from its own address."""
        return self.arrangement.instances and not self.sharded

    def instances(self, threads: int) -> int:
        """Return the number of proxy instances for a total number of workers."""
        return threads if self.arrangement.instances else 1

    def listening_sockets(self, threads: int) -> int:
        """Return the number of sockets on which the proxy listens, without the sockets of a front end."""
        return threads if self.arrangement.instances or self.sharded else 1

    @property
    def over_tcp(self) -> bool:
        """Return True if SIP uses TCP. Over TCP, an overloaded proxy delays messages and does not drop them."""
        return self.transport == "tcp"
