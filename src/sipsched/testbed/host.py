"""The class of a host on which sipsched runs programs, with methods for folders, locks and processes."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

from sipsched.errors import StableError, TransientError
from sipsched.testbed import groups, places
from sipsched.testbed.connection import CONNECT_TIMEOUT_S, CommandResult, Connection
from sipsched.testbed.inventory import HostSpec, native_folder
from sipsched.testbed.lock import await_lock, holder
from sipsched.testbed.patience import REAL_TIME, Patience

LATE = 124
"""Exit code with which the program `timeout` ends after it has stopped a command."""
KILLED = -1
"""Exit code that the SSH library paramiko reports if a signal killed the command."""
STOP_GRACE_S = 5
LOCK_SPARE_S = 30


@dataclass(frozen=True)
class Process:
    """A process that sipsched started on a host, identified by its control group and its pid file."""

    name: str
    pid_file: PurePosixPath
    log_file: PurePosixPath
    group: str
    """Folder of the control group; empty for a host without control groups."""


class Host(Connection):
    """A host of a testbed, with an SSH connection that is open during a `with` block.

    Parameters
    ----------
    spec
        The host: its address, user and key.
    workdir
        Folder on the host for C programs, logs and results. The `with` statement creates this folder.
    patience
        The clock that limits how long sipsched waits for the host.

    Raises
    ------
    StableError
        One of the reasons of `Connection`, or another user can change a folder of the host.
    """

    def __init__(
        self, spec: HostSpec, workdir: PurePosixPath, patience: Patience = REAL_TIME
    ) -> None:
        super().__init__(spec, patience)
        self.base = workdir
        self.workdir = workdir / spec.role
        self.run_folder = places.RUN_FOLDER if spec.user == "root" else workdir / "run"
        self._pids = self.run_folder / spec.role
        self._group = ""

    def __enter__(self) -> "Host":
        """Connect to the host, create sipsched's folders, and find out whether the host has control groups."""
        self.connect()
        try:
            self._claim()
            answer = self.shell(groups.FIND, self._group_name, places.CGROUP_MOUNT, check=False)
            self._group = answer.stdout.strip()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the SSH connection."""
        self.close()

    @property
    def undo_file(self) -> PurePosixPath:
        """The path of the script that restores kernel settings. The file exists only while settings are changed."""
        return self.run_folder / places.UNDO_FILE.name

    @property
    def _group_name(self) -> str:
        return f"sipsched-{self.spec.role}"

    def _claim(self) -> None:
        arguments = (self.spec.role, self.base, self.run_folder)
        done = self.shell(places.CLAIM, *arguments, check=False)
        if done.exit_code == places.NOT_OURS:
            raise StableError(places.not_ours(f"host {self.spec}", self.spec.user, done.stdout))
        if done.exit_code != 0:
            raise self.failed(done)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cpus: Sequence[int],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a background process, which the host stops after a time limit. Return its pid file, log file and group.

        Parameters
        ----------
        name
            Name of the process. The pid file and the log file also have this name.
        argv
            Program and arguments.
        cpus
            CPUs on which the process may run.
        limit_s
            Seconds after which the host stops the process. The process thus ends even if the connection is lost.
        environment
            Variables to add to the environment.
        """
        process = self._process(name)
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        log = str(process.log_file)
        self.run(
            self._supervised(
                name,
                ["env", *variables, *argv],
                cpus,
                limit_s,
                ["--background", "--output", log],
                log,
            )
        )
        return process

    def run_limited(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cpus: Sequence[int],
        limit_s: float,
    ) -> CommandResult:
        """Run a process with a time limit, wait until the process ends, and return the result.

        Raises
        ------
        StableError
            The exit code is not 0.
        TransientError
            A signal killed the process.
        """
        command = self._supervised(name, argv, cpus, limit_s, [])
        try:
            done = self.run(command, timeout_s=limit_s + 2 * STOP_GRACE_S, check=False)
        except BaseException:
            # After an error, no caller waits for the process, so this method stops the process.
            self._end(name, grace_s=0)
            raise
        if done.exit_code == KILLED:
            raise TransientError(
                f"host {self.spec}: {name} ended unexpectedly, killed by a signal: {shlex.join(argv)}"
            )
        if done.exit_code != 0:
            raise self.failed(done)
        return done

    def free_bytes(self, folder: PurePosixPath) -> int:
        """Return the number of free bytes on the host's disk that contains a folder."""
        said = self.run(["df", "--output=avail", "-B1", str(folder)]).stdout
        return int(said.split()[-1])

    def _supervised(
        self,
        name: str,
        argv: Sequence[str],
        cpus: Sequence[int],
        limit_s: float,
        options: Sequence[str],
        log: str = "",
    ) -> list[str]:
        # The process joins its control group before it runs the program, so every descendant is in the group.
        group = f"{self._group}/{name}" if self._group else ""
        return [
            *("sh", "-c", groups.START, "sh", group, log),
            *("start-stop-daemon", "--start", "--quiet", "--make-pidfile"),
            *(
                "--pidfile",
                str(self._process(name).pid_file),
                "--chdir",
                str(self.workdir),
                *options,
            ),
            *(
                "--startas",
                "/usr/bin/timeout",
                "--",
                f"--kill-after={STOP_GRACE_S}",
                f"{limit_s:g}",
            ),
            *("taskset", "--cpu-list", ",".join(map(str, cpus)), *argv),
        ]

    def _process(self, name: str) -> Process:
        return Process(
            name,
            self._pids / f"{name}.pid",
            self.workdir / f"{name}.log",
            f"{self._group}/{name}" if self._group else "",
        )

    def stop(self, process: Process) -> None:
        """Stop a process and all descendants by SIGTERM. After 5 s, send SIGKILL to processes that still run.

        If the process has already ended, do nothing.
        """
        self._end(process.name, grace_s=STOP_GRACE_S)

    def _end(self, name: str, *, grace_s: int) -> list[str]:
        """Stop a process, or all processes of sipsched on this host if `name` is empty. Return the stopped names."""
        arguments = (self._group_name, self._pids, name, grace_s)
        return self.shell(groups.END, *arguments, timeout_s=3 * STOP_GRACE_S).stdout.split()

    def signal(self, process: Process, name: str) -> None:
        """Send a signal to a process on the host, but not to the program `timeout` that started the process."""
        self.shell('pkill "-$1" --parent "$(cat "$2")"', name, process.pid_file)

    def cpu_time_ns(self, process: Process) -> int:
        """Return the CPU time in ns of a process and its descendants, from /proc/PID/schedstat."""
        done = self.shell(
            """{ cat "$1/cgroup.procs" 2>/dev/null || pgrep --pgroup "$(cat "$2")"; } |
            sed 's|.*|/proc/&/schedstat|' | xargs cat""",
            process.group,
            process.pid_file,
        )
        return sum(int(line.split()[0]) for line in done.stdout.splitlines())

    def processes(self, process: Process) -> Mapping[int, str]:
        """Return the process ids and names of a process and its descendants, without zombies."""
        done = self.shell(
            """{ cat "$1/cgroup.procs" 2>/dev/null || pgrep --pgroup "$(cat "$2")"; } |
            xargs -r ps -o pid=,state=,comm= -p""",
            process.group,
            process.pid_file,
            check=False,
        )
        listed = (line.split(maxsplit=2) for line in done.stdout.splitlines())
        return {int(pid): name for pid, state, name in listed if state != "Z"}

    def is_running(self, process: Process) -> bool:
        """Return True if a process is running. A zombie counts as ended."""
        script = 'ps -o state= -p "$(cat "$1")" | grep -qv Z'
        return self.shell(script, process.pid_file, check=False).exit_code == 0

    def stop_strays(self) -> list[str]:
        """Stop all processes of sipsched on this host that an earlier, interrupted measurement left behind.

        Returns
        -------
        list of str
            Names of the stopped processes.
        """
        return sorted(set(self._end("", grace_s=0)))

    def wait_until(self, condition: str, *arguments: object, what: str, timeout_s: float) -> None:
        """Wait until a shell condition is true on the host.

        The condition reads its values as "$1", "$2" and so on from `arguments`.

        Raises
        ------
        TransientError
            The condition did not become true in time. The message contains `what`.
        """
        loop = f"until {condition}; do sleep 0.01; done"
        if not self._wait(loop, *arguments, what=what, timeout_s=timeout_s):
            raise TransientError(f"host {self.spec}: {what}: the wait was interrupted")

    def wait_while_running(
        self, process: Process, condition: str, *arguments: object, what: str, timeout_s: float
    ) -> bool:
        """Wait until a shell condition is true or a process ends. Return True if the condition is true.

        Raises
        ------
        TransientError
            The condition did not become true in time, and the process is still running. The message contains `what`.
        """
        loop = f"""\
pid=$1
shift
until {condition}; do
    # The condition may have become true just before the process ended, so the condition is checked again.
    kill -0 "$(cat "$pid")" 2>/dev/null || {{ {condition}; exit; }}
    sleep 0.01
done"""
        return self._wait(loop, process.pid_file, *arguments, what=what, timeout_s=timeout_s)

    def _wait(self, loop: str, *arguments: object, what: str, timeout_s: float) -> bool:
        argv = ["timeout", f"{timeout_s:g}", "sh", "-c", loop, "sh", *map(str, arguments)]
        done = self.run(argv, timeout_s=timeout_s + 5, check=False)
        if done.exit_code == LATE:
            raise TransientError(f"host {self.spec}: {what} after {timeout_s:g} s")
        return done.exit_code == 0

    @contextmanager
    def exclusive_lock(
        self, purpose: str, wait_s: float, say: Callable[[str], None]
    ) -> Iterator[None]:
        """Hold the lock that reserves this host during a `with` block. A lost connection also releases the lock.

        Parameters
        ----------
        purpose
            Reason for holding the lock. Other users see this reason while they wait for the lock.
        wait_s
            Seconds to wait if another user holds the lock.
        say
            Function that shows a line with the name of the user who holds the lock.

        Raises
        ------
        TransientError
            Another user still holds the lock after `wait_s`.
        """
        arguments = (self.run_folder / places.LOCK_FILE, holder(purpose), f"{wait_s:g}")

        def held(answers: Iterator[str]) -> None:
            await_lock(answers, f"testbed of host {self.spec}", wait_s, say)

        with self.opened(places.LOCK, *arguments, ready=held, timeout_s=wait_s + LOCK_SPARE_S):
            yield

    @contextmanager
    def ended_with_connection(self, *, undone: bool = False) -> Iterator[None]:
        """Make the host stop sipsched's processes at the end of the `with` block, or when the SSH connection is lost.

        Parameters
        ----------
        undone
            Whether the host also restores its settings at that time. True is only correct for a host with its own lock.
        """
        undo = self.undo_file if undone else ""
        lock = self.run_folder / places.LOCK_FILE
        arguments = (groups.END, self._group_name, self._pids, undo, lock)
        with self.opened(groups.WATCH, *arguments, ready=next, timeout_s=CONNECT_TIMEOUT_S):
            yield

    def require_programs(self, programs: Sequence[str]) -> None:
        """Check that programs are installed on the host.

        Raises
        ------
        StableError
            The message names the missing programs and the remedy.
        """
        missing = self.shell(
            'for p; do command -v -- "$p" >/dev/null || echo "$p"; done', *programs
        ).stdout.splitlines()
        if missing:
            raise StableError(
                f"host {self.spec}: missing program: {', '.join(missing)}; run: fab provision"
            )

    def require_built(self, part: str, programs: Sequence[str]) -> None:
        """Check that sipsched's C programs exist on the host, and that nothing in their folder changed after the build.

        Raises
        ------
        StableError
            The message names missing programs and changed files.
        """
        folder = native_folder(self.base, part)
        problems = self.shell(places.CHECK_BUILD, folder, *programs).stdout.splitlines()
        problem = places.build_problem(folder, problems)
        if problem:
            raise StableError(f"host {self.spec}: {problem}; run: fab provision")
