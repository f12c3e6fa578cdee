"""One host over SSH: commands with a time-out and a log, files, and processes that cannot stay behind."""

import io
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import fabric
import paramiko
from invoke.exceptions import CommandTimedOut

from sipsched.errors import StableError, TransientError
from sipsched.testbed.inventory import HostSpec

CONNECT_TIMEOUT_S = 10
STOP_GRACE_S = 5


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
    """A long process on a host, known there by its pid file."""

    name: str
    pid_file: PurePosixPath
    log_file: PurePosixPath


def remote_command(argv: Sequence[str]) -> str:
    """Build the text that a host's login shell runs: the one place where values become shell text."""
    # sshd's own PATH lacks the folders of start-stop-daemon and of the proxies
    return f'PATH="$PATH:/usr/sbin:/sbin" {shlex.join(argv)}'


class Host:
    """A host of a testbed, open for the time of a `with` block.

    Parameters
    ----------
    spec
        How to reach the host.
    workdir
        Folder on the host for this role's pid files, logs and results; made when opened.

    Raises
    ------
    TransientError
        The host does not answer, or a command overran its time-out.
    StableError
        The key is refused, the host's key is unknown, or a command that had to succeed failed.
    """

    def __init__(self, spec: HostSpec, workdir: PurePosixPath) -> None:
        self.spec = spec
        self.base = workdir
        self.workdir = workdir / spec.role
        self.history: list[CommandResult] = []
        self._connection = fabric.Connection(
            spec.address,
            user=spec.user,
            port=spec.port,
            connect_timeout=CONNECT_TIMEOUT_S,
            connect_kwargs={
                "key_filename": spec.identity_file,
                "look_for_keys": False,
                "allow_agent": False,
            },
        )

    def __enter__(self) -> "Host":
        """Connect and make the work folder."""
        self._connect()
        try:
            self.run(["mkdir", "-p", str(self.workdir)])
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the connection."""
        self._connection.close()

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
            raise TransientError(f"host {self.spec}: SSH failed: {error}") from error
        except (TimeoutError, OSError) as error:
            raise TransientError(
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
        command = shlex.join(argv)
        try:
            result = self._connection.run(
                remote_command(argv),
                hide=True,
                warn=True,
                timeout=timeout_s,
                in_stream=False,
            )
        except CommandTimedOut as error:
            raise TransientError(
                f"host {self.spec}: no end after {timeout_s:g} s: {command}"
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise TransientError(
                f"host {self.spec}: connection lost in: {command}: {error}"
            ) from error
        done = self._note(argv, started, result.return_code, result.stdout, result.stderr)
        if check and done.exit_code != 0:
            raise self._failed(done)
        return done

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
        """Copy a file to the host, with its mode."""
        self._transfer(lambda: self._connection.put(str(local), str(path)), path)

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
        process = Process(name, self._pid_file(name), self.workdir / f"{name}.log")
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        log = str(process.log_file)
        self.run(["rm", "-f", log])
        self.run(
            self._supervised(
                name, ["env", *variables, *argv], cpus, limit_s, ["--background", "--output", log]
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
        """
        command = self._supervised(name, argv, cpus, limit_s, [])
        done = self.run(command, timeout_s=limit_s + 2 * STOP_GRACE_S, check=False)
        if done.exit_code not in accept:
            raise self._failed(done)
        return done

    def _supervised(
        self,
        name: str,
        argv: Sequence[str],
        cpus: Sequence[int],
        limit_s: float,
        options: Sequence[str],
    ) -> list[str]:
        return [
            *("start-stop-daemon", "--start", "--quiet", "--make-pidfile"),
            *("--pidfile", str(self._pid_file(name)), "--chdir", str(self.workdir), *options),
            *(
                "--startas",
                "/usr/bin/timeout",
                "--",
                f"--kill-after={STOP_GRACE_S}",
                f"{limit_s:g}",
            ),
            *("taskset", "--cpu-list", ",".join(map(str, cpus)), *argv),
        ]

    def _pid_file(self, name: str) -> PurePosixPath:
        return self.workdir / f"{name}.pid"

    def _failed(self, done: CommandResult) -> StableError:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return StableError(
            f"host {self.spec}: exit code {done.exit_code} from: {shlex.join(done.argv)}: {said}"
        )

    def stop(self, process: Process) -> None:
        """End a process by its pid file, politely first, then its whole group; no error if it is gone."""
        self._stop(process.pid_file)

    def _stop(self, pid_file: PurePosixPath) -> None:
        self.shell(
            'start-stop-daemon --stop --quiet --oknodo --pidfile "$1" --exec /usr/bin/timeout '
            '--retry "TERM/$2" || kill -KILL -- "-$(cat "$1")"; rm -f "$1"',
            pid_file,
            STOP_GRACE_S,
            timeout_s=3 * STOP_GRACE_S,
        )

    def signal(self, process: Process, name: str) -> None:
        """Send a signal to a process, past the `timeout` that supervises it."""
        self.shell('pkill "-$1" --parent "$(cat "$2")"', name, process.pid_file)

    def cpu_time_ns(self, process: Process) -> int:
        """CPU time that a process and its children have used, from /proc/PID/schedstat."""
        done = self.shell(
            """pgrep --pgroup "$(cat "$1")" | sed 's|.*|/proc/&/schedstat|' | xargs cat""",
            process.pid_file,
        )
        return sum(int(line.split()[0]) for line in done.stdout.splitlines())

    def is_running(self, process: Process) -> bool:
        """Tell whether a process has not ended."""
        alive = self.shell('kill -0 "$(cat "$1")"', process.pid_file, check=False)
        return alive.exit_code == 0

    def stop_strays(self) -> list[str]:
        """End what an earlier, interrupted run left on this host.

        Returns
        -------
        list of str
            Names of the processes whose pid files were found.
        """
        found = self.shell('ls "$1"/*.pid 2>/dev/null', self.workdir, check=False)
        pid_files = [PurePosixPath(line) for line in found.stdout.split()]
        for pid_file in pid_files:
            self._stop(pid_file)
        return [pid_file.stem for pid_file in pid_files]

    def wait_until(self, condition: str, *arguments: object, what: str, timeout_s: float) -> None:
        """Wait on the host until a shell condition, a literal as in `shell`, holds.

        Raises
        ------
        TransientError
            It did not hold in time; `what` names the thing waited for.
        """
        loop = f"until {condition}; do sleep 0.02; done"
        argv = ["timeout", f"{timeout_s:g}", "sh", "-c", loop, "sh", *map(str, arguments)]
        done = self.run(argv, timeout_s=timeout_s + 5, check=False)
        if done.exit_code != 0:
            raise TransientError(f"host {self.spec}: {what} after {timeout_s:g} s")

    @contextmanager
    def exclusive_lock(self, lock_file: PurePosixPath) -> Iterator[None]:
        """Hold a lock on this host while the block runs; it goes with the connection.

        Raises
        ------
        TransientError
            Somebody else holds it.
        """
        inner = 'touch "$1"; echo held; cat'
        lock = str(lock_file)
        argv = ["flock", "--nonblock", lock, "sh", "-c", inner, "sh", lock]
        channel = self._connection.transport.open_session(timeout=CONNECT_TIMEOUT_S)
        channel.settimeout(CONNECT_TIMEOUT_S)
        try:
            started = time.time()
            channel.exec_command(remote_command(argv))
            said = channel.recv(16).decode()
            held = said == "held\n"
            self._note(argv, started, 0 if held else 1, said, "")
            if not held:
                raise TransientError(
                    f"host {self.spec}: the testbed is in use: another run holds {lock_file}"
                )
            yield
        finally:
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
