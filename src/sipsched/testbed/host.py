"""One host over SSH: commands with a time-out and a log, files, and processes that cannot stay behind."""

import io
import select
import shlex
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import fabric
import paramiko

from sipsched.errors import LostError, StableError, TransientError
from sipsched.testbed import groups, places
from sipsched.testbed.inventory import HostSpec, native_folder
from sipsched.testbed.lock import await_lock, holder

HANDSHAKE_TIMEOUT_S = 30
"""To connect and exchange keys: an emulated guest that serves a load took more than 10 s."""
CONNECT_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 3
CHUNK_BYTES = 65536
LATE = 124
"""Exit code of `timeout` where the time was over."""
KILLED = -1
"""Exit code of a command that a signal ended, as SSH has it."""
STOP_GRACE_S = 5
LOCK_SPARE_S = 30


@dataclass(frozen=True)
class CommandResult:
    """What a command on a host did."""

    host: str
    argv: tuple[str, ...]
    started: float
    """CLOCK_REALTIME of the controller, seconds since the epoch."""
    duration_s: float
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Process:
    """A long process on a host, known there by its control group and its pid file."""

    name: str
    pid_file: PurePosixPath
    log_file: PurePosixPath
    group: str
    """Folder of its control group; empty where the host has none."""


def remote_command(argv: Sequence[str]) -> str:
    """Build the text that a host's login shell runs: the one place where values become shell text."""
    # sshd's own PATH lacks the folders of start-stop-daemon and of the proxies
    return f'PATH="$PATH:/usr/sbin:/sbin" {shlex.join(argv)}'


def _shown(argv: Sequence[str]) -> str:
    """Show a command in a line: of a script of several lines the first."""
    return shlex.join(arg if "\n" not in arg else f"{arg.splitlines()[0]} ..." for arg in argv)


def _lines(answers: Iterable[str], said: list[str]) -> Iterator[str]:
    for line in answers:
        said.append(line.rstrip("\n"))
        yield said[-1]


class Host:
    """A host of a testbed, open for the time of a `with` block.

    Parameters
    ----------
    spec
        How to reach the host.
    workdir
        Folder on the host for native parts, and for this role's logs and results; made when opened.

    Raises
    ------
    TransientError
        The host does not answer, or a command overran its time-out.
    StableError
        The key is refused, the host's key is unknown, a command that had to succeed failed, or a folder
        of ours there is not its user's alone.
    """

    def __init__(self, spec: HostSpec, workdir: PurePosixPath) -> None:
        self.spec = spec
        self.base = workdir
        self.workdir = workdir / spec.role
        self.run_folder = places.RUN_FOLDER if spec.user == "root" else workdir / "run"
        self._pids = self.run_folder / spec.role
        self._group = ""
        self.history: list[CommandResult] = []
        self._connection = fabric.Connection(
            spec.address,
            user=spec.user,
            port=spec.port,
            connect_timeout=HANDSHAKE_TIMEOUT_S,
            connect_kwargs={
                "key_filename": spec.identity_file,
                "look_for_keys": False,
                "allow_agent": False,
            },
        )

    def __enter__(self) -> "Host":
        """Connect, claim the folders and find out whether the host has control groups."""
        self._connect()
        try:
            self._claim()
            found = self.shell(groups.FIND, self._group_name, places.CGROUP_MOUNT, check=False)
            self._group = found.stdout.strip()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def undo_file(self) -> PurePosixPath:
        """On the SPS while its settings are changed: the script that brings them back."""
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
            raise self._failed(done)

    def _connect(self) -> None:
        known_hosts = Path(self.spec.known_hosts)
        client = self._connection.client
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.load_host_keys(str(known_hosts))
            self._connection.open()
        except FileNotFoundError as error:
            raise StableError(f"host {self.spec}: no file {error.filename}") from error
        except paramiko.AuthenticationException as error:
            raise StableError(
                f"host {self.spec}: refuses key {self.spec.identity_file}: {error}"
            ) from error
        except paramiko.SSHException as error:
            if "not found in known_hosts" in str(error):
                raise StableError(
                    f"host {self.spec}: its key is not in {known_hosts}; "
                    f"log in once by hand, or add it with ssh-keyscan"
                ) from error
            raise LostError(f"host {self.spec}: SSH failed: {error}") from error
        except (TimeoutError, OSError) as error:
            raise LostError(
                f"host {self.spec} is unreachable: {error}; is it up? (fab check)"
            ) from error
        # paramiko leaves Nagle's algorithm on: 44 ms a command instead of 12
        transport = self._connection.transport
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 20,
        check: bool = True,
    ) -> CommandResult:
        """Run a command to its end.

        Parameters
        ----------
        argv
            Program and arguments; quoted for the remote shell here.
        timeout_s
            Longest time to wait for its end.
        check
            Whether an exit code other than 0 is an error.
        """
        started = time.time()
        command = _shown(argv)
        try:
            exit_code, stdout, stderr = self._exchange(argv, timeout_s)
        except TimeoutError as error:
            if not self._answers():
                self._give_up()
                raise LostError(
                    f"host {self.spec}: connection lost: no answer after {timeout_s:g} s in: {command}"
                ) from error
            raise TransientError(
                f"host {self.spec}: no end after {timeout_s:g} s: {command}"
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._give_up()
            raise LostError(f"host {self.spec}: connection lost in: {command}: {error}") from error
        done = self._note(argv, started, exit_code, stdout, stderr)
        if check and done.exit_code != 0:
            raise self._failed(done)
        return done

    def _exchange(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
        """Run a command; exit code, output and complaints come back.

        Not by Fabric, which waits for the end of a command that Ctrl-C should have left alone.
        """
        deadline = time.monotonic() + timeout_s
        output, complaints = bytearray(), bytearray()
        transport = self._connection.transport
        with transport.open_session(timeout=CONNECT_TIMEOUT_S) as channel:
            channel.exec_command(remote_command(argv))
            ended = False
            while not ended:
                left_s = max(0.0, deadline - time.monotonic())
                if not select.select([channel], [], [], left_s)[0]:
                    raise TimeoutError
                # looked at before the last bytes are taken
                ended = channel.eof_received or channel.closed
                while channel.recv_ready():
                    output += channel.recv(CHUNK_BYTES)
                while channel.recv_stderr_ready():
                    complaints += channel.recv_stderr(CHUNK_BYTES)
            # a program that closed its output may still run
            if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            if channel.exit_status == -1 and not transport.is_active():
                raise EOFError("the host is gone")
            return (
                channel.exit_status,
                output.decode(errors="replace"),
                complaints.decode(errors="replace"),
            )

    def _answers(self) -> bool:
        """Tell whether the host still opens a channel on our connection."""
        try:
            self._connection.transport.open_session(timeout=ANSWER_TIMEOUT_S).close()
        except (paramiko.SSHException, EOFError, OSError):
            return False
        return True

    def _give_up(self) -> None:
        """Close the connection: what is still to be put in order there does not wait for it each time."""
        self._connection.close()

    def _note(
        self, argv: Sequence[str], started: float, exit_code: int, stdout: str, stderr: str
    ) -> CommandResult:
        done = CommandResult(
            host=self.spec.role,
            argv=tuple(argv),
            started=started,
            duration_s=time.time() - started,
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
        )
        self.history.append(done)
        return done

    def shell(
        self, script: str, *arguments: object, timeout_s: float = 20, check: bool = True
    ) -> CommandResult:
        """Run a few lines of POSIX shell.

        Parameters
        ----------
        script
            A literal: no value is ever part of it.
        arguments
            Values, which the script has as "$1", "$2" and so on.
        """
        argv = ["sh", "-c", script, "sh", *map(str, arguments)]
        return self.run(argv, timeout_s=timeout_s, check=check)

    def put_text(self, text: str, path: PurePosixPath) -> None:
        """Write a text file."""
        self._transfer(lambda: self._connection.put(io.StringIO(text), str(path)), path)

    def put_file(self, local: Path, path: PurePosixPath) -> None:
        """Copy a file to the host."""
        self._transfer(
            lambda: self._connection.put(str(local), str(path), preserve_mode=False), path
        )

    def get_file(self, path: PurePosixPath, local: Path) -> None:
        """Copy a file from the host."""
        self._transfer(lambda: self._connection.get(str(path), str(local)), path)

    def _transfer(self, action: Callable[[], object], path: PurePosixPath) -> None:
        try:
            action()
        except FileNotFoundError as error:
            raise StableError(f"host {self.spec}: no file {path}: {error}") from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise TransientError(f"host {self.spec}: copying {path} failed: {error}") from error

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cpus: Sequence[int],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process that outlives the command but not its time limit.

        Parameters
        ----------
        name
            Names its pid file and log under the work folder.
        argv
            Program and arguments.
        cpus
            CPUs it is held to.
        limit_s
            The host itself ends the process after this time, so that a lost controller leaves nothing behind.
        environment
            Variables to add to its environment.
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
        accept: Sequence[int] = (0,),
    ) -> CommandResult:
        """Run a process like `start` does, and wait for its end.

        Raises
        ------
        StableError
            Its exit code is not one of `accept`.
        TransientError
            It was killed.
        """
        command = self._supervised(name, argv, cpus, limit_s, [])
        try:
            done = self.run(command, timeout_s=limit_s + 2 * STOP_GRACE_S, check=False)
        except BaseException:
            # whoever no longer waits for it does not want it
            self._end(name, grace_s=0)
            raise
        if done.exit_code == KILLED:
            raise TransientError(
                f"host {self.spec}: {name} ended by itself, killed by a signal: {shlex.join(argv)}"
            )
        if done.exit_code not in accept:
            raise self._failed(done)
        return done

    def free_bytes(self, folder: PurePosixPath) -> int:
        """Say how much is free on the disk of a folder."""
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
        # in the group before anything of it runs
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

    def _failed(self, done: CommandResult) -> StableError:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return StableError(
            f"host {self.spec}: exit code {done.exit_code} from: {_shown(done.argv)}: {said}"
        )

    def stop(self, process: Process) -> None:
        """End a process, politely first, then all that it has started; no error if it is gone."""
        self._end(process.name, grace_s=STOP_GRACE_S)

    def _end(self, name: str, *, grace_s: int) -> list[str]:
        """End one process, or with an empty name all of this role; the names of all come back."""
        arguments = (self._group_name, self._pids, name, grace_s)
        return self.shell(groups.END, *arguments, timeout_s=3 * STOP_GRACE_S).stdout.split()

    def signal(self, process: Process, name: str) -> None:
        """Send a signal to a process, past the `timeout` that supervises it."""
        self.shell('pkill "-$1" --parent "$(cat "$2")"', name, process.pid_file)

    def cpu_time_ns(self, process: Process) -> int:
        """CPU time that a process and its children have used, from /proc/PID/schedstat."""
        done = self.shell(
            """{ cat "$1/cgroup.procs" 2>/dev/null || pgrep --pgroup "$(cat "$2")"; } |
            sed 's|.*|/proc/&/schedstat|' | xargs cat""",
            process.group,
            process.pid_file,
        )
        return sum(int(line.split()[0]) for line in done.stdout.splitlines())

    def is_running(self, process: Process) -> bool:
        """Tell whether a process has not ended; one that nobody has collected has."""
        script = 'ps -o state= -p "$(cat "$1")" | grep -qv Z'
        return self.shell(script, process.pid_file, check=False).exit_code == 0

    def stop_strays(self) -> list[str]:
        """End what an earlier, interrupted run left on this host.

        Returns
        -------
        list of str
            Names of the processes that were found.
        """
        return sorted(set(self._end("", grace_s=0)))

    def wait_until(self, condition: str, *arguments: object, what: str, timeout_s: float) -> None:
        """Wait on the host until a shell condition, a literal as in `shell`, holds.

        Raises
        ------
        TransientError
            It did not hold in time; `what` names the thing waited for.
        """
        loop = f"until {condition}; do sleep 0.01; done"
        if not self._wait(loop, *arguments, what=what, timeout_s=timeout_s):
            raise TransientError(f"host {self.spec}: {what}: the wait was ended")

    def wait_while_running(
        self, process: Process, condition: str, *arguments: object, what: str, timeout_s: float
    ) -> bool:
        """Wait on the host until a shell condition holds or a process has ended; say whether it holds.

        Raises
        ------
        TransientError
            Neither in time; `what` names the thing waited for.
        """
        loop = f"""\
pid=$1
shift
until {condition}; do
    # what it did last it may have done since
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
        """Hold this host's lock while the block runs; it goes with the connection.

        Parameters
        ----------
        purpose
            What it is held for: whoever waits for it is told.
        wait_s
            How long to wait for it while somebody else holds it.
        say
            Takes a line that names who holds it.

        Raises
        ------
        TransientError
            Somebody else holds it all that time.
        """
        arguments = (self.run_folder / places.LOCK_FILE, holder(purpose), f"{wait_s:g}")

        def held(answers: Iterator[str]) -> None:
            await_lock(answers, f"testbed of host {self.spec}", wait_s, say)

        with self._opened(places.LOCK, *arguments, ready=held, timeout_s=wait_s + LOCK_SPARE_S):
            yield

    @contextmanager
    def ended_with_connection(self, *, undone: bool = False) -> Iterator[None]:
        """See to it that the host ends what was started there once the block, or the controller, is gone.

        Parameters
        ----------
        undone
            Whether it then brings back settings that are still changed; for the host that has the lock.
        """
        undo = self.undo_file if undone else ""
        lock = self.run_folder / places.LOCK_FILE
        arguments = (groups.END, self._group_name, self._pids, undo, lock)
        with self._opened(groups.WATCH, *arguments, ready=next, timeout_s=CONNECT_TIMEOUT_S):
            yield

    @contextmanager
    def _opened(
        self,
        script: str,
        *arguments: object,
        ready: Callable[[Iterator[str]], object],
        timeout_s: float,
    ) -> Iterator[None]:
        """Run a script until the block ends, which ends its standard input.

        Parameters
        ----------
        ready
            Takes the lines that it says, as far as it must say some before the block begins.
        timeout_s
            Longest time between two lines.
        """
        argv = ["sh", "-c", script, "sh", *map(str, arguments)]
        said: list[str] = []
        started = time.time()
        exit_code = 1
        try:
            channel = self._connection.transport.open_session(timeout=CONNECT_TIMEOUT_S)
            try:
                channel.settimeout(timeout_s)
                channel.set_combine_stderr(True)
                channel.exec_command(remote_command(argv))
                try:
                    ready(_lines(channel.makefile("r"), said))
                    exit_code = 0
                finally:
                    self._note(argv, started, exit_code, "\n".join(said), "")
            except BaseException:
                channel.close()
                raise
        except (paramiko.SSHException, EOFError, StopIteration, OSError) as error:
            raise LostError(
                f"host {self.spec}: connection lost in: {_shown(argv)}: {error}"
            ) from error
        try:
            yield
        finally:
            # it ends what it has to end, or lets go, before the next one is told that it may
            channel.shutdown_write()
            if self._connection.transport.is_active():
                channel.status_event.wait(CONNECT_TIMEOUT_S)
            channel.close()

    def require_programs(self, programs: Sequence[str]) -> None:
        """Check that programs are installed.

        Raises
        ------
        StableError
            Names all that are missing and how to install them.
        """
        missing = self.shell(
            'for p; do command -v -- "$p" >/dev/null || echo "$p"; done', *programs
        ).stdout.splitlines()
        if missing:
            raise StableError(
                f"host {self.spec}: missing program: {', '.join(missing)}; run: fab provision"
            )

    def require_built(self, part: str, programs: Sequence[str]) -> None:
        """Check that a native part has these programs, and is as it was built there.

        Raises
        ------
        StableError
            Names what is missing, and files unlike those that provisioning left.
        """
        folder = native_folder(self.base, part)
        found = self.shell(places.CHECK_BUILD, folder, *programs).stdout.splitlines()
        problem = places.build_problem(folder, found)
        if problem:
            raise StableError(f"host {self.spec}: {problem}; run: fab provision")
