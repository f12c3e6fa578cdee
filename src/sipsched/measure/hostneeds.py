"""The checks of each host before a load: programs, memory, free ports and free disk space."""

from collections.abc import Sequence
from dataclasses import dataclass

from sipsched.errors import DISK_FULL, StableError
from sipsched.measure.fronts import DISPATCHER
from sipsched.measure.generator import SipTransport
from sipsched.measure.hoststate import read_files
from sipsched.measure.memory import check_memory, front_need, memory_need
from sipsched.measure.probe import TRACE_BYTES_PER_CALL
from sipsched.measure.proxy import Proxy
from sipsched.measure.shards import LIBRARY, PROGRAM
from sipsched.plan.run import Point
from sipsched.plan.sut import Sut
from sipsched.testbed.host import Host

SPARE_BYTES = 64 * 2**20
LAST_PORT = 65535
HOST_PROGRAMS = ("start-stop-daemon", "timeout", "taskset", "chrt", "ss", "lscpu", "zstd", "pkill")
LISTENERS = 'ss -Hlnp "--$1" "( sport >= :$2 and sport <= :$3 )"'
"""Shell command that prints the programs that listen on a range of ports. Arguments: protocol, first and last port."""
REUSE, PORTS = "/proc/sys/net/ipv4/tcp_tw_reuse", "/proc/sys/net/ipv4/ip_local_port_range"


def needed_bytes(calls: int) -> int:
    """Return the disk space in bytes that the files of a load need on a host."""
    return calls * TRACE_BYTES_PER_CALL * 2 + SPARE_BYTES


@dataclass(frozen=True)
class HostNeeds:
    """The requirements that the hosts must meet before a run.

    Attributes
    ----------
    sut, proxy, point
        The SUT, the adapter of its proxy program, and the point with the numbers of cores and threads.
    probe
        The probe that the configuration asks for; `off` means no probe.
    proxies
        SUT and number of workers of each instance that the run compares; one entry for all other runs.
    """

    sut: Sut
    proxy: Proxy
    point: Point
    transport: SipTransport
    probe: str
    proxies: Sequence[tuple[Sut, int]]

    def ports(self, host: Host) -> tuple[int, int]:
        """Return the first and the last SIP port of a host.

        Each proxy instance has its own port if the instances are behind a front end, or if a run compares instances.
        """
        first = host.spec.sip_port
        if host.spec.role != "sps":
            return first, first
        return first, first + (self.point.threads if self.sut.fronted else len(self.proxies) - 1)

    def _front_on(self, host: Host) -> str | None:
        """Return the kind of the front end that runs on a host (see `Arrangement`); None if no front end runs there."""
        return self.sut.arrangement.front if host.spec.role == self.sut.front_host else None

    def clear(self, host: Host) -> None:
        """Stop the processes that an earlier run left on a host, and check the host's programs, memory and ports.

        Raises
        ------
        StableError
            A program is missing, memory is insufficient, or another program uses a port.
        """
        host.stop_strays()
        own: tuple[str, ...] = ()
        if host.spec.role == "sps":
            for sut in dict.fromkeys(sut for sut, _ in self.proxies):
                self.proxy.require(sut, host)
            own = self.proxy.programs if self.sut.over_tcp else ()
        elif self._front_on(host) == "proxy":
            self.proxy.require(self.sut, host)
            check_memory(host, [self.sut.name], [front_need(self.sut, len(host.spec.cpus))])
        host.require_programs((*own, *HOST_PROGRAMS))
        if host.spec.role == "sps":
            needs = [memory_need(sut, threads, self.point.cores) for sut, threads in self.proxies]
            check_memory(host, [sut.name for sut, _ in self.proxies], needs)
            host.require_built("scheduler", ["taskslice", "buffers", "switcher"])
            if self.probe != "off":
                wanted = "libsipstamp.so" if self.probe == "preload" else "sipprobe"
                host.require_built("probe", [wanted])
        (first, last), protocol = self.ports(host), self.transport.protocol
        if last > LAST_PORT:
            raise StableError(
                f"host {host.spec}: the instances of {self.sut.name} need ports {first} to {last}, "
                f"but the last port is {LAST_PORT}; lower the number of instances or sip_port"
            )
        users = host.shell(LISTENERS, protocol, first, last).stdout.strip()
        if users:
            ports = f"port {first}" if first == last else f"one of the ports {first} to {last}"
            raise StableError(
                f"host {host.spec}: {protocol.upper()} {ports} is in use: {' '.join(users.split())}; "
                f"end that program or choose another sip_port"
            )

    def check(self, host: Host, calls: int) -> None:
        """Check that a host has the compiled programs of sipsched, enough ephemeral ports and enough disk space.

        Raises
        ------
        StableError
            A program is not built, or the host has too few ports or too little disk space.
        """
        role = host.spec.role
        if role in ("uac", "uas"):
            host.require_built("generator", ["sipload"])
        elif role == "sps" and any(sut.sharded for sut, _ in self.proxies):
            host.require_built("dispatcher", [PROGRAM, LIBRARY])
        elif self._front_on(host) == "dispatcher":
            host.require_built("dispatcher", [DISPATCHER])
        if role == "uac" and self.transport.connections == "per-call":
            _check_ports(host, calls)
        free = host.free_bytes(host.workdir)
        needed = needed_bytes(calls)
        if free < needed:
            raise StableError(
                f"host {host.spec}: {DISK_FULL} at {host.workdir}: {free >> 20} MiB free, "
                f"{needed >> 20} MiB needed for {calls} calls"
            )


def _check_ports(uac: Host, calls: int) -> None:
    """Raise an error if a load opens a connection per call and the UAC has too few ports.

    The UAC closes each connection. The kernel then blocks the port of the connection for a minute.

    Raises
    ------
    StableError
        The UAC has too few ports. The message names the setting to change.
    """
    files = read_files(uac, (REUSE, PORTS))
    first, last = map(int, files[PORTS].split())
    if files[REUSE].strip() != "1" and calls > last - first:
        raise StableError(
            f"host {uac.spec}: {calls} calls need one connection each, but only {last - first + 1} ports exist, and "
            "the kernel blocks a used port for 60 s; run on this host: sysctl net.ipv4.tcp_tw_reuse=1"
        )
