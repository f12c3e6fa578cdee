"""The declared competitors of a testbed: other programs that use the proxy's CPUs on purpose during a load."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sipsched.errors import StableError, TransientError
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import DeclaredCompetitor, native_folder

PART, PROGRAM = "scheduler", "competitor"
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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the competitors during the `with` block.

        Raises
        ------
        StableError
            The program is not built, or the program ended at its start.
        TransientError
            A competitor ended during the `with` block.
        """
        if not self._declared:
            yield
            return
        self._sps.require_built(PART, [PROGRAM])
        with ExitStack() as stack:
            started = []
            for competitor in self._declared:
                process = self._start(competitor)
                stack.callback(self._sps.stop, process)
                self._await_name(competitor, process)
                started.append(process)
            self.tasks = {
                pid: competitor.name
                for competitor, process in zip(self._declared, started, strict=True)
                for pid, name in self._sps.processes(process).items()
                if name == competitor.name
            }
            yield
            for process in started:
                if not self._sps.is_running(process):
                    raise TransientError(f"{process.name} ended during the run")

    def _start(self, competitor: DeclaredCompetitor) -> Process:
        path = native_folder(self._sps.base, PART) / PROGRAM
        times = (competitor.busy_us, competitor.period_us)
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
