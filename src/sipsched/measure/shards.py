"""UDP sockets that share the proxy's port. A BPF program selects the socket of a message by its Call-ID or its user."""

from collections.abc import Mapping, Sequence

from sipsched.errors import StableError, TransientError
from sipsched.measure.counting import ReportingProgram
from sipsched.plan.sut import Sut
from sipsched.records.conversion import as_part
from sipsched.records.proxy_report import ShardReport
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

LIBRARY = "libsipshard.so"
PROGRAM = "sipshard"


class Shards:
    """The UDP sockets of a proxy that share one port, and the BPF program that selects a socket.

    The kernel removes the BPF program together with the proxy's sockets.

    Parameters
    ----------
    instance
        Index of the proxy in a run that compares proxy instances. The index is added to the host's SIP port.
    """

    def __init__(
        self, sps: Host, sut: Sut, threads: int, limit_s: float, *, instance: int = 0
    ) -> None:
        self._sps, self._sut, self._threads = sps, sut, threads
        self._port = sps.spec.sip_port + instance
        self._folder = native_folder(sps.base, "dispatcher")
        self._suffix = f"-{instance}" if instance else ""
        self._program = ReportingProgram(sps, "dispatcher", PROGRAM, limit_s, self._suffix)

    def preloading(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return a proxy's command with environment variables that make the proxy's sockets share one port.

        Parameters
        ----------
        environment
            Further variables with which the command starts.
        """
        loaded = [environment["LD_PRELOAD"]] if "LD_PRELOAD" in environment else []
        variables = {
            "LD_PRELOAD": ":".join([*loaded, str(self._folder / LIBRARY)]),
            "SIPSHARD_PORT": self._port,
            # Kamailio allows one socket per port, so the sockets of an instance have consecutive ports.
            # libsipshard.so binds all sockets of an instance to the instance's first port, and therefore needs the
            # number of sockets. The configured ports of two compared instances may overlap, but their sockets are bound
            # to different ports.
            "SIPSHARD_SOCKETS": 1 if self._sut.arrangement.instances else self._threads,
        }
        return ["env", *(f"{name}={value}" for name, value in variables.items()), *command]

    def attach(self, proxy: Process, program: str) -> None:
        """Attach the BPF program to the sockets of a proxy. The proxy must already listen.

        Raises
        ------
        StableError
            The kernel refuses the BPF program. The StableError contains the error message of sipshard.
        """
        sps = self._sps
        pids = sps.shell('pgrep --pgroup "$(cat "$1")" "$2"', proxy.pid_file, program).stdout
        port = ("--port", str(self._port))
        sockets = ("--sockets", str(self._threads))
        key = ("--key", self._sut.shard_by)
        if reason := self._program.start([*port, *sockets, *key, *pids.split()]):
            raise StableError(f"host {sps.spec}: {reason}")

    def end(self) -> ShardReport:
        """Stop counting, and return the number of datagrams per socket since the start of the proxy.

        Raises
        ------
        TransientError
            sipshard ended unexpectedly. The BPF program still selects sockets, but nothing counts the datagrams.
        StableError
            The report is missing or incomplete.
        """
        if not self._program.is_running:
            raise TransientError(
                f"host {self._sps.spec}: {PROGRAM} ended unexpectedly during the run, so the datagrams of "
                f"each socket were not counted; its log is {PROGRAM}{self._suffix}.log"
            )
        return as_part(ShardReport, self._program.end(), self._program.where)
