"""What keeps the proxy's processes from each other while a load lasts: waits for locks, descriptors, switches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sipsched.errors import SipschedError, StableError
from sipsched.files import parse_json
from sipsched.records.run_document import FactorReport, Factors, TaskCounts, as_part
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import native_folder

READY_TIMEOUT_S = 10
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
"""Of all tasks of process groups. The kernel shows migrations where it was built with CONFIG_SCHED_DEBUG."""


class FactorCounts:
    """What is counted while a load lasts, without the proxy's knowledge.

    Parameters
    ----------
    sps
        The host of the proxy.
    proxy
        What runs there: the proxy, and what stands before it.
    limit_s
        Longest life of what counts.
    """

    def __init__(self, sps: Host, proxy: Sequence[Process], limit_s: float) -> None:
        self._sps, self._proxy, self._limit_s = sps, proxy, limit_s
        self._report, self._ready = sps.workdir / "factors.json", sps.workdir / "factors.ready"
        self._process: Process | None = None
        self._tasks: TaskCounts | None = None
        self._found: tuple[str, Factors | None] = ("nothing was offered", None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block lasts; what cannot be counted stops nothing."""
        reason = self._start()
        before = self._count_tasks()
        try:
            yield
            after = self._count_tasks()
            self._tasks = after - before
            self._found = (reason, None) if reason else self._end()
        finally:
            if self._process:
                self._sps.stop(self._process)

    def report(self) -> FactorReport:
        """Give what was counted, and why not what was not."""
        unavailable, factors = self._found
        return FactorReport(unavailable=unavailable, tasks=self._tasks, waits=factors)

    def _start(self) -> str:
        """Start the program that counts; why it does not run comes back."""
        sps = self._sps
        program = native_folder(sps.base, "probe") / PROGRAM
        if sps.run(["test", "-x", str(program)], check=False).exit_code != 0:
            return f"{PROGRAM} is not built on this host"
        sps.run(["rm", "-f", str(self._report), str(self._ready)])
        argv = [str(program)]
        for process in self._proxy:
            argv += ["--group", sps.run(["cat", str(process.pid_file)]).stdout.strip()]
        argv += ["--report", str(self._report), "--ready", str(self._ready)]
        self._process = sps.start("factors", argv, cpus=sps.spec.helper_cpus, limit_s=self._limit_s)
        if sps.wait_while_running(
            self._process,
            '[ -e "$1" ]',
            self._ready,
            what=f"{PROGRAM} is not ready",
            timeout_s=READY_TIMEOUT_S,
        ):
            return ""
        said = sps.run(["cat", str(self._process.log_file)], check=False).stdout.strip()
        return said or f"{PROGRAM} ended before it was ready"

    def _end(self) -> tuple[str, Factors | None]:
        sps = self._sps
        if self._process:
            sps.stop(self._process)
        text = sps.run(["cat", str(self._report)], check=False).stdout
        where = f"host {sps.spec}: {self._report.name}"
        try:
            return "", as_part(Factors, parse_json(text), where)
        except (ValueError, SipschedError) as error:
            return f"{where}: {error}", None

    def _count_tasks(self) -> TaskCounts:
        groups = [place for one in self._proxy for place in (one.group, one.pid_file)]
        said = self._sps.shell(COUNT_TASKS, *groups).stdout
        return parse_tasks(said, f"host {self._sps.spec}: tasks of the proxy")


def parse_tasks(text: str, where: str) -> TaskCounts:
    """Read what `COUNT_TASKS` prints: six counts, and the clock's ticks a second.

    Raises
    ------
    StableError
        It is something else.
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
