"""UDP sockets that share the proxy's port, each with calls of its own: chosen by Call-ID, from outside the proxy."""

from collections.abc import Mapping

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.plan.config import Sut
from sipsched.records.run_document import ShardReport, as_part
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

READY_TIMEOUT_S = 10
LIBRARY = "libsipshard.so"
PROGRAM = "sipshard"


class Shards:
    """The sockets of a sharded SUT's proxy, and the program in the kernel that chooses among them.

    Nothing is to be undone: the kernel drops the program with the proxy's sockets.
    """

    def __init__(self, sps: Host, sut: Sut, threads: int, limit_s: float) -> None:
        self._sps, self._sut, self._threads, self._limit_s = sps, sut, threads, limit_s
        self._folder = native_folder(sps.base, "dispatcher")
        self._report, self._ready = sps.workdir / "shards.json", sps.workdir / "shards.ready"

    def environment(self, others: Mapping[str, str]) -> Mapping[str, str]:
        """Add to a proxy's variables those that let its sockets share the port."""
        loaded = [others["LD_PRELOAD"]] if "LD_PRELOAD" in others else []
        return {
            **others,
            "LD_PRELOAD": ":".join([*loaded, str(self._folder / LIBRARY)]),
            "SIPSHARD_PORT": str(self._sps.spec.sip_port),
            # Kamailio has one socket a port: those of one instance are configured with ports in a row
            "SIPSHARD_SOCKETS": str(self._threads if self._sut.deployment == "sockets" else 1),
        }

    def attach(self, proxy: Process, program: str) -> None:
        """Let each socket of a proxy that listens have its calls.

        Raises
        ------
        StableError
            The kernel or its settings do not allow it; the message is the program's own.
        """
        sps = self._sps
        sps.run(["rm", "-f", str(self._report), str(self._ready)])
        pids = sps.shell('pgrep --pgroup "$(cat "$1")" "$2"', proxy.pid_file, program).stdout
        argv = [
            *(str(self._folder / PROGRAM), "--port", str(sps.spec.sip_port)),
            *("--sockets", str(self._threads), "--report", str(self._report)),
            *("--ready", str(self._ready), *pids.split()),
        ]
        self._process = sps.start("shards", argv, cpus=sps.spec.helper_cpus, limit_s=self._limit_s)
        if not sps.wait_while_running(
            self._process,
            '[ -e "$1" ]',
            self._ready,
            what=f"{PROGRAM} is not ready",
            timeout_s=READY_TIMEOUT_S,
        ):
            said = sps.run(["cat", str(self._process.log_file)], check=False).stdout.strip()
            raise StableError(f"host {sps.spec}: {said or f'{PROGRAM} ended before it was ready'}")

    def end(self) -> ShardReport:
        """Read what each socket got since the proxy was started.

        Raises
        ------
        StableError
            There is no whole report.
        """
        sps = self._sps
        sps.stop(self._process)
        text = sps.run(["cat", str(self._report)], check=False).stdout
        where = f"host {sps.spec}: {self._report.name}"
        try:
            return as_part(ShardReport, parse_json(text), where)
        except ValueError as error:
            raise StableError(f"{where}: {error}") from None
