"""Counts of events that make the proxy's processes wait: locks, passed file descriptors and context switches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sipsched.errors import SipschedError, StableError
from sipsched.measure.counting import ReportingProgram
from sipsched.records.conversion import as_part
from sipsched.records.cpu_report import FactorReport, Factors, TaskCounts
from sipsched.testbed.host import Host, Process

PROGRAM = "sipfactors"
COUNT_TASKS = """\
while [ $# -gt 0 ]; do
    cat "$1/cgroup.procs" 2>/dev/null || pgrep --pgroup "$(cat "$2")"
    shift 2
done |
while read -r pid; do
    cat "/proc/$pid/task/"*/status "/proc/$pid/task/"*/sched "/proc/$pid/task/"*/stat
done 2>/dev/null | awk '
/^voluntary_ctxt_switches/ { tasks++; voluntary += $2 }
/^nonvoluntary_ctxt_switches/ { involuntary += $2 }
/nr_migrations/ { migrations += $NF; told++ }
/^[0-9]+ \\(/ { sub(/.*\\) /, ""); user += $12; system_ += $13 }
END { print tasks + 0, voluntary + 0, involuntary + 0, told ? migrations : -1, user + 0, system_ + 0 }'
getconf CLK_TCK"""
"""Shell command that adds up the context switches, migrations and CPU time of all tasks of some process groups.

On a kernel without CONFIG_SCHED_DEBUG, the number of migrations is -1, because such a kernel does not count migrations.
"""


class FactorCounts:
    """The counts of locks and context switches during one load, from the BPF program `sipfactors` and from /proc."""

    def __init__(self, sps: Host, proxy: Sequence[Process], limit_s: float) -> None:
        self._sps, self._proxy = sps, proxy
        self._program = ReportingProgram(sps, "probe", PROGRAM, limit_s)
        self._tasks: TaskCounts | None = None
        self._found: tuple[str, Factors | None] = ("no load was offered", None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count events during the `with` block. If counting fails, the load continues, and `report` has the reason."""
        reason = self._program.start((), self._proxy)
        before = self._count_tasks()
        try:
            yield
            after = self._count_tasks()
            self._tasks = after - before
            self._found = (reason, None) if reason else self._end()
        finally:
            self._program.stop()

    def report(self) -> FactorReport:
        """Return the counts of a load, or the reason why `sipfactors` could not count."""
        unavailable, factors = self._found
        return FactorReport(unavailable=unavailable, tasks=self._tasks, waits=factors)

    def _end(self) -> tuple[str, Factors | None]:
        try:
            return "", as_part(Factors, self._program.end(), self._program.where)
        except SipschedError as error:
            return str(error), None

    def _count_tasks(self) -> TaskCounts:
        groups = [path for process in self._proxy for path in (process.group, process.pid_file)]
        said = self._sps.shell(COUNT_TASKS, *groups).stdout
        return parse_tasks(said, f"host {self._sps.spec}: tasks of the proxy")


def parse_tasks(text: str, where: str) -> TaskCounts:
    """Parse the counts of context switches and CPU time that the shell command `COUNT_TASKS` prints.

    Raises
    ------
    StableError
        The text is not the output of `COUNT_TASKS`.
    """
    try:
        tasks, voluntary, involuntary, migrations, user, system, ticks = map(int, text.split())
    except ValueError:
        raise StableError(f"{where}: expected seven counts, found {text!r:.80}") from None
    second_ns = 10**9
    return TaskCounts(
        tasks=tasks,
        voluntary=voluntary,
        involuntary=involuntary,
        migrations=None if migrations < 0 else migrations,
        user_ns=user * second_ns // ticks,
        system_ns=system * second_ns // ticks,
    )
