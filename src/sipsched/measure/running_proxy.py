"""Functions that find a running SIP proxy and its sockets, without changing anything on its host."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.testbed.machine import Machine
from sipsched.words import listed

PROGRAMS = ("kamailio", "opensips")
"""Names of the proxy processes to search for if the user names no process."""
LISTEN, UNCONNECTED = "0A", "07"
"""The states of a TCP socket that accepts connections, and of a UDP socket without a peer (net/tcp_states.h)."""
SIP_PORT = 5060
CONTAINER = re.compile(r"[0-9a-f]{64}")
"""The identifier of a container in the name of its control group."""
FIND = r"""
seen=
for folder in /proc/[0-9]*; do
    { read -r name < "$folder/comm"; } 2>/dev/null || continue
    case " $* " in *" $name "* | "  ") ;; *) continue ;; esac
    net=$(stat -L -c %i "$folder/ns/net" 2>/dev/null) || net=
    echo "process ${folder#/proc/} ${net:-0} $name"
    sed 's/^/cgroup /' "$folder/cgroup" 2>/dev/null
    ls -l "$folder/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\].*/socket \1/p'
    case "$seen" in *" $net "*) continue ;; esac
    seen="$seen $net "
    for table in udp udp6 tcp tcp6; do
        sed "1d; s/^/table $table /" "$folder/net/$table" 2>/dev/null
    done
done
true"""
"""Shell script that prints the processes with given names, and their sockets. Without arguments: all processes."""


BUFFERS = 'nsenter --target "$1" --net ss --no-header -uamn "sport = :$2" 2>/dev/null || true'
"""Shell script that prints the memory of the UDP sockets of a port, in the network namespace of a process."""


@dataclass(frozen=True, order=True)
class Socket:
    """A listening socket of a proxy.

    Attributes
    ----------
    transport
        `udp` or `tcp`.
    family
        4 or 6: the version of IP.
    inode
        The number of the socket in /proc.
    queued_bytes, drops
        For UDP: bytes of memory in the queue, and datagrams that the socket has refused since its creation.
    """

    transport: str
    port: int
    family: int
    inode: int
    queued_bytes: int = 0
    drops: int = 0

    def __str__(self) -> str:
        """Return the transport and the port as text."""
        return (
            f"{self.transport.upper()} port {self.port}{' over IPv6' if self.family == 6 else ''}"
        )


@dataclass(frozen=True)
class Running:
    """A running proxy: the processes of one program in one network namespace, and their sockets.

    Attributes
    ----------
    netns
        The inode number of the network namespace; 0 if this user may not read the number.
    container
        The beginning of the container's identifier; empty outside containers.
    """

    program: str
    pids: tuple[int, ...]
    netns: int
    container: str
    sockets: tuple[Socket, ...]

    def __str__(self) -> str:
        """Return the program's name, one of its process ids, and its network namespace as text."""
        where = f" in container {self.container}" if self.container else ""
        return f"{self.program} (process {self.pids[0]}, network namespace {self.netns}{where})"

    def ports(self, transport: str) -> list[int]:
        """Return the ports of the listening sockets of a transport, in ascending order."""
        return sorted({socket.port for socket in self.sockets if socket.transport == transport})


@dataclass(frozen=True)
class Target:
    """The part of a running proxy that the probe watches.

    Attributes
    ----------
    udp_ports
        Consecutive UDP ports; empty without UDP.
    tcp_port
        The TCP port; None without TCP.
    unwatched
        Listening sockets that the probe does not watch.
    """

    proxy: Running
    udp_ports: tuple[int, ...]
    tcp_port: int | None
    unwatched: tuple[Socket, ...]

    @property
    def transports(self) -> str:
        """Return the names of the watched transports, such as `udp+tcp`."""
        watched = (("udp", self.udp_ports), ("tcp", self.tcp_port))
        return "+".join(name for name, part in watched if part)


def find_proxy(
    machine: Machine,
    pid: int | None = None,
    port: int | None = None,
    others: Collection[int] = (),
) -> Target:
    """Find a running proxy by its process name, by a process id, or by a port. Exactly one proxy must match.

    Parameters
    ----------
    others
        Network namespaces of proxies that cannot match.

    Raises
    ------
    StableError
        No proxy runs, several proxies run, or this user may not read the proxy's sockets. The message lists the
        candidates and the remedy.
    """
    if pid is None:
        programs = parse_processes(machine.shell(FIND, *PROGRAMS))
        if port is not None and not any(_has(proxy, port) for proxy in programs):
            programs = parse_processes(machine.shell(FIND))
    else:
        name = machine.shell('cat "/proc/$1/comm" 2>/dev/null || true', str(pid)).strip()
        named = parse_processes(machine.shell(FIND, name)) if name else []
        programs = [proxy for proxy in named if pid in proxy.pids]
        if not programs:
            raise StableError(f"{machine}: no process {pid}")
    able = [proxy for proxy in programs if proxy.netns not in others]
    return choose(able, str(machine), port)


def namespaces(machine: Machine) -> frozenset[int]:
    """Return the network namespaces of all running proxies on a machine."""
    return frozenset(proxy.netns for proxy in parse_processes(machine.shell(FIND, *PROGRAMS)))


def choose(programs: Sequence[Running], where: str, port: int | None = None) -> Target:
    """Choose the ports of a running proxy to watch. Exactly one of the programs must have listening sockets.

    Raises
    ------
    StableError
        No proxy or several proxies have a listening socket, or a listening socket on `port`.
    """
    if (
        programs
        and all(proxy.netns == 0 or not proxy.sockets for proxy in programs)
        and port is None
    ):
        names = listed([str(proxy) for proxy in programs])
        raise StableError(
            f"{where}: {names} runs, but this user cannot read its listening sockets: reading the sockets "
            "of other users' processes needs root, or CAP_SYS_PTRACE"
        )
    able = [proxy for proxy in programs if proxy.sockets and (port is None or _has(proxy, port))]
    if not able:
        names = " or ".join(PROGRAMS)
        wanted = (
            f"has a listening socket on port {port}" if port is not None else f"named {names} runs"
        )
        raise StableError(
            f"{where}: no process {wanted}; start the proxy, or name it by --pid PID or --port PORT"
        )
    if len(able) > 1:
        raise StableError(
            f"{where}: several proxies run: {listed([str(proxy) for proxy in able])}; choose one by --pid PID"
        )
    (proxy,) = able
    udp, tcp = proxy.ports("udp"), proxy.ports("tcp")
    first = port if port is not None else SIP_PORT if SIP_PORT in (*udp, *tcp) else min(udp or tcp)
    watched = tuple(_consecutive(udp, first)) if first in udp else ()
    tcp_port = first if first in tcp else None
    unwatched = tuple(
        socket
        for socket in proxy.sockets
        if not (socket.port in watched if socket.transport == "udp" else socket.port == tcp_port)
    )
    return Target(proxy, watched, tcp_port, unwatched)


def receive_buffer_bytes(machine: Machine, target: Target) -> int | None:
    """Return the effective receive buffer of the first watched UDP port, or None if this user cannot read it.

    The program `ss` reads the buffer in the network namespace of the proxy, which needs root. If several sockets share
    the port, the result is the smallest buffer.
    """
    if not target.udp_ports:
        return None
    port, pid = str(target.udp_ports[0]), str(target.proxy.pids[0])
    text = machine.shell(BUFFERS, pid, port)
    return min(map(int, re.findall(r"skmem:\(r\d+,rb(\d+)", text)), default=None)


def parse_processes(text: str) -> list[Running]:
    """Parse the output of the shell script `FIND`. Processes with one name in one network namespace form a proxy."""
    sockets: dict[int, list[Socket]] = {}
    rows: list[tuple[int, int, str, list[int], list[str]]] = []
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "process":
            pid, netns, name = rest.split(" ", 2)
            rows.append((int(pid), int(netns), name, [], []))
        elif not rows:
            continue
        elif word == "socket":
            rows[-1][3].append(int(rest))
        elif word == "cgroup":
            rows[-1][4].extend(CONTAINER.findall(rest))
        elif word == "table":
            table, _, row = rest.partition(" ")
            sockets.setdefault(rows[-1][1], []).extend(parse_socket(table, row))
    groups: dict[tuple[str, int], list[tuple[int, list[int], list[str]]]] = {}
    for number, namespace, name, inodes, containers in rows:
        groups.setdefault((name, namespace), []).append((number, inodes, containers))
    return [
        Running(
            program=name,
            pids=tuple(sorted(pid for pid, _, _ in members)),
            netns=netns,
            container=next((ids[0][:12] for _, _, ids in members if ids), ""),
            sockets=tuple(
                sorted(
                    socket
                    for socket in sockets.get(netns, ())
                    if any(socket.inode in inodes for _, inodes, _ in members)
                )
            ),
        )
        for (name, netns), members in groups.items()
    ]


def parse_socket(table: str, row: str) -> Iterator[Socket]:
    """Parse a row of /proc/net/udp, udp6, tcp or tcp6. Yield the socket if it is a listening socket."""
    fields = row.split()
    transport, family = table.removesuffix("6"), 6 if table.endswith("6") else 4
    if len(fields) < 10 or fields[3] != (LISTEN if transport == "tcp" else UNCONNECTED):
        return
    yield Socket(
        transport=transport,
        port=int(fields[1].rpartition(":")[2], 16),
        family=family,
        inode=int(fields[9]),
        queued_bytes=int(fields[4].partition(":")[2], 16) if transport == "udp" else 0,
        drops=int(fields[12]) if transport == "udp" and len(fields) > 12 else 0,
    )


def _has(proxy: Running, port: int) -> bool:
    return any(socket.port == port for socket in proxy.sockets)


def _consecutive(ports: Sequence[int], first: int) -> Iterator[int]:
    while first in ports:
        yield first
        first += 1
