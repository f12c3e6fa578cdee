"""The SSH connection to a host, which runs commands with a time limit and a log, and copies files."""

import io
import logging
import select
import shlex
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import fabric
import paramiko

from sipsched.errors import UNREACHABLE, LostError, StableError, TransientError
from sipsched.testbed.inventory import HostSpec
from sipsched.testbed.patience import REAL_TIME, Patience

HANDSHAKE_TIMEOUT_S = 30
"""Time limit in seconds for SSH's connection and key exchange, which took more than 10 s in a busy emulated guest."""
CONNECT_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 3
CHUNK_BYTES = 65536

# Paramiko logs the errors that it also raises. Without a handler, Python would print these logs with tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class CommandResult:
    """The result of a command on a host."""

    host: str
    argv: tuple[str, ...]
    started: float
    """Start time in seconds since the epoch, on the CLOCK_REALTIME of the machine that controls the run."""
    duration_s: float
    exit_code: int
    stdout: str
    stderr: str


def remote_command(argv: Sequence[str]) -> str:
    """Return a command as text with shell quoting, for the login shell of a host. No other function quotes values."""
    # The PATH of an SSH session lacks /usr/sbin, which contains start-stop-daemon and the proxies.
    return f'PATH="$PATH:/usr/sbin:/sbin" {shlex.join(argv)}'


def shown(argv: Sequence[str]) -> str:
    """Return a command as one line of text for messages.

    If the command is a script, the text contains only the script's first line.
    """
    return shlex.join(arg if "\n" not in arg else f"{arg.splitlines()[0]} ..." for arg in argv)


def _readable(channel: paramiko.Channel, limit_s: float) -> bool:
    return bool(select.select([channel], [], [], limit_s)[0])


def _lines(answers: Iterable[str], said: list[str]) -> Iterator[str]:
    for line in answers:
        said.append(line.rstrip("\n"))
        yield said[-1]


class Connection:
    """An SSH connection that runs commands on a host, and copies files to and from the host.

    Parameters
    ----------
    spec
        The host: its address, user and key.
    patience
        The clock that limits how long sipsched waits for the host.

    Attributes
    ----------
    history
        Every finished command, in the order in which the commands finished.

    Raises
    ------
    TransientError
        The host does not answer, or a command exceeded its time limit.
    StableError
        The host refuses the login key, the host's own key is unknown, or a required command failed.
    """

    def __init__(self, spec: HostSpec, patience: Patience = REAL_TIME) -> None:
        self.spec = spec
        self._patience = patience
        self.history: list[CommandResult] = []
        self._connection = fabric.Connection(
            spec.address,
            user=spec.user,
            port=spec.port,
            connect_timeout=HANDSHAKE_TIMEOUT_S,
            connect_kwargs={
                "banner_timeout": patience.real(HANDSHAKE_TIMEOUT_S),
                "auth_timeout": patience.real(HANDSHAKE_TIMEOUT_S),
                "transport_factory": self._transport,
                "key_filename": spec.identity_file,
                "look_for_keys": False,
                "allow_agent": False,
            },
        )

    def _transport(self, *args: Any, **kwargs: Any) -> paramiko.Transport:
        transport = paramiko.Transport(*args, **kwargs)
        transport.handshake_timeout = self._patience.real(HANDSHAKE_TIMEOUT_S)
        return transport

    def connect(self) -> None:
        """Connect to the host by SSH with the login key of `spec`. The known_hosts file must contain the host's key."""
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
        except (TimeoutError, EOFError, OSError) as error:
            # An EOFError has no text. Paramiko raises it if the host closes the connection during the handshake.
            reason = str(error) or "it closed the connection"
            raise LostError(
                f"host {self.spec} {UNREACHABLE}: {reason}; is it up? (fab check)"
            ) from error
        # TCP_NODELAY switches Nagle's algorithm off, so that a command takes 12 ms instead of 44 ms.
        transport = self._connection.transport
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 20,
        check: bool = True,
    ) -> CommandResult:
        """Run a command on the host, wait for the end of the command, and return the result.

        Parameters
        ----------
        argv
            Program and arguments, which this method quotes for the shell of the host.
        timeout_s
            Longest duration of the command in seconds.
        check
            Whether an exit code other than 0 raises an error.
        """
        started = time.time()
        command = shown(argv)
        try:
            exit_code, stdout, stderr = self._exchange(argv, timeout_s)
        except TimeoutError as error:
            if not self._answers():
                self.close()
                raise LostError(
                    f"host {self.spec}: connection lost: no answer after {timeout_s:g} s in: {command}"
                ) from error
            raise TransientError(
                f"host {self.spec}: no end after {timeout_s:g} s: {command}"
            ) from error
        except LostError:
            # The clock of the host does not advance, so the host hangs. Close the connection, so that later commands
            # fail at once.
            self.close()
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            self.close()
            raise LostError(f"host {self.spec}: connection lost in: {command}: {error}") from error
        done = self._note(argv, started, exit_code, stdout, stderr)
        if check and done.exit_code != 0:
            raise self.failed(done)
        return done

    def _exchange(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
        """Run a command on the host, and return the exit code, standard output and standard error.

        Fabric's method `run` is unsuitable, because even after Ctrl-C, `run` waits for the end of the command.
        """
        patience = self._patience
        deadline = patience.now() + timeout_s
        output, complaints = bytearray(), bytearray()
        transport = self._connection.transport
        with transport.open_session(timeout=patience.real(CONNECT_TIMEOUT_S)) as channel:
            channel.exec_command(remote_command(argv))
            ended = False
            while not ended:
                if not patience.wait(partial(_readable, channel), deadline):
                    raise TimeoutError
                # Read the state of the channel before its bytes. In the opposite order, bytes that arrive between the
                # two reads would be lost.
                ended = channel.eof_received or channel.closed
                while channel.recv_ready():
                    output += channel.recv(CHUNK_BYTES)
                while channel.recv_stderr_ready():
                    complaints += channel.recv_stderr(CHUNK_BYTES)
            # A program can continue to run after it has closed its output.
            if not patience.wait(channel.status_event.wait, deadline):
                raise TimeoutError
            if channel.exit_status == -1 and not transport.is_active():
                raise EOFError("the host is gone")
            return (
                channel.exit_status,
                output.decode(errors="replace"),
                complaints.decode(errors="replace"),
            )

    def _answers(self) -> bool:
        """Return True if the host still accepts commands on this connection."""
        try:
            limit_s = self._patience.real(ANSWER_TIMEOUT_S)
            self._connection.transport.open_session(timeout=limit_s).close()
        except (paramiko.SSHException, EOFError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the SSH connection, so that later commands fail at once instead of waiting for a lost host."""
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
        """Run a POSIX shell script on the host, and return the result.

        Parameters
        ----------
        script
            The text of the script, which must be a literal, because only `arguments` are quoted for the shell.
        arguments
            The values of "$1", "$2" and so on in the script.
        """
        argv = ["sh", "-c", script, "sh", *map(str, arguments)]
        return self.run(argv, timeout_s=timeout_s, check=check)

    def put_text(self, text: str, path: PurePosixPath) -> None:
        """Write a text to a file on the host."""
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

    def failed(self, done: CommandResult) -> StableError:
        """Return an exception whose message describes a failed command."""
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return StableError(
            f"host {self.spec}: exit code {done.exit_code} from: {shown(done.argv)}: {said}"
        )

    @contextmanager
    def opened(
        self,
        script: str,
        *arguments: object,
        ready: Callable[[Iterator[str]], object],
        timeout_s: float,
    ) -> Iterator[None]:
        """Run a shell script on the host during the `with` block. At the block's end, the script's input closes.

        Parameters
        ----------
        ready
            The function that reads the first lines of the script's output. The block begins when the function returns.
        timeout_s
            Longest time in seconds between two lines.
        """
        argv = ["sh", "-c", script, "sh", *map(str, arguments)]
        said: list[str] = []
        started = time.time()
        exit_code = 1
        try:
            limit_s = self._patience.real(CONNECT_TIMEOUT_S)
            channel = self._connection.transport.open_session(timeout=limit_s)
            try:
                channel.settimeout(self._patience.real(timeout_s))
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
                f"host {self.spec}: connection lost in: {shown(argv)}: {error}"
            ) from error
        try:
            yield
        finally:
            # When its input ends, the script finishes its work, such as releasing a lock, and then exits.
            channel.shutdown_write()
            if self._connection.transport.is_active():
                channel.status_event.wait(self._patience.real(CONNECT_TIMEOUT_S))
            channel.close()
