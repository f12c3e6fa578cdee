"""The declared competitors of a testbed: other programs that use the proxy's CPUs on purpose during a load."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sipsched.errors import StableError, TransientError
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import DeclaredCompetitor, native_folder

PART, PROGRAM = "scheduler", "competitor"
LOG_SOCKET = "/dev/log"
"""The socket to which syslog(3) writes."""
READY_TIMEOUT_S = 10
CHRT = {
    "other": [],
    "batch": ["chrt", "--batch", "0"],
    "idle": ["chrt", "--idle", "0"],
    "fifo": ["chrt", "--fifo", "1"],
}
"""First words of the command that starts a competitor, by its scheduling policy."""
HAS_NAME = 'pgrep --parent "$(cat "$1")" --exact "$2" > /dev/null'
"""Shell condition that is true if a supervised process runs a program with a given name. Arguments: pid file, name."""


class Competitors:
    """The programs that compete with the proxy for its CPUs during one run, as the testbed declares them.

    Parameters
    ----------
    limit_s
        Seconds after which the host stops a competitor.

    Attributes
    ----------
    tasks
        Names of the competitors' tasks, by process id, after their start.
    """

    def __init__(self, sps: Host, declared: Sequence[DeclaredCompetitor], limit_s: float) -> None:
        self._sps, self._declared, self._limit_s = sps, declared, limit_s
        self.tasks: Mapping[int, str] = {}
        self._started: dict[DeclaredCompetitor, Process] = {}

    @contextmanager
    def reading_log(self) -> Iterator[None]:
        """Run the competitor that reads the proxy's log during the `with` block, if the testbed declares one.

        Start the proxy in the `with` block, because a line is lost if no program reads it.

        Raises
        ------
        StableError
            See `running`.
        """
        with self._running([one for one in self._declared if one.reads_log]):
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the competitors with periods during the `with` block, beside the reader of the log.

        Raises
        ------
        StableError
            The program is not built, or the program ended at its start. Or the proxy logged no line during the `with`
            block, although a competitor reads its log.
        TransientError
            A competitor ended during the `with` block.
        """
        with self._running([one for one in self._declared if not one.reads_log]):
            self.tasks = {
                pid: competitor.name
                for competitor, process in self._started.items()
                for pid, name in self._sps.processes(process).items()
                if name == competitor.name
            }
            readers = {one: process for one, process in self._started.items() if one.reads_log}
            before = {one: self._sps.cpu_time_ns(process) for one, process in readers.items()}
            yield
            for process in self._started.values():
                if not self._sps.is_running(process):
                    raise TransientError(f"{process.name} ended during the run")
            for one, process in readers.items():
                if self._sps.cpu_time_ns(process) - before[one] < one.busy_us * 1000:
                    raise StableError(
                        f"host {self._sps.spec}: the proxy logged no line to {LOG_SOCKET} during the load, so "
                        f"{process.name} did nothing; check log_messages in the proxy's configuration (proxy.cfg)"
                    )

    @contextmanager
    def _running(self, declared: Sequence[DeclaredCompetitor]) -> Iterator[None]:
        if declared:
            self._sps.require_built(PART, [PROGRAM])
        with ExitStack() as stack:
            for competitor in declared:
                process = self._started[competitor] = self._start(competitor)
                stack.callback(self._sps.stop, process)
                self._await_name(competitor, process)
            yield

    def _start(self, competitor: DeclaredCompetitor) -> Process:
        path = native_folder(self._sps.base, PART) / PROGRAM
        times = (competitor.busy_us, competitor.period_us or LOG_SOCKET)
        nice = ["nice", "-n", str(competitor.nice)] if competitor.nice else []
        return self._sps.start(
            f"competitor-{competitor.name}",
            [*nice, *CHRT[competitor.policy], str(path), competitor.name, *map(str, times)],
            cpus=competitor.cpus or self._sps.spec.cpus,
            limit_s=self._limit_s,
        )

    def _await_name(self, competitor: DeclaredCompetitor, process: Process) -> None:
        """Wait until a competitor runs under its declared name.

        If the competitor ends instead, raise an error with its log.
        """
        if self._sps.wait_while_running(
            process,
            HAS_NAME,
            process.pid_file,
            competitor.name,
            what=f"{process.name} is not ready",
            timeout_s=READY_TIMEOUT_S,
        ):
            return
        log = self._sps.run(["cat", str(process.log_file)], check=False).stdout.strip()
        raise StableError(f"host {self._sps.spec}: {process.name}: {log or 'it wrote no log'}")
