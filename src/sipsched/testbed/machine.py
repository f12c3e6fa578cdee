"""A machine that sipsched observes but does not change: this machine, or a host in the user's SSH configuration."""

import subprocess
from collections.abc import Sequence

from sipsched.errors import LostError, StableError
from sipsched.testbed.connection import remote_command

SSH = ("ssh", "-oBatchMode=yes", "-oServerAliveInterval=10", "-oServerAliveCountMax=3")
"""The user's `ssh` command, which reads keys, users and jump hosts of production hosts from ~/.ssh/config.

If the network is silent for 30 s, `ssh` ends.
"""
SSH_FAILED = 255
ANSWER_TIMEOUT_S = 60


class Machine:
    """The machine on which a proxy runs: this machine, or a remote host that `ssh` can reach.

    Parameters
    ----------
    host
        The argument of `ssh`, such as `root@proxy.example.org`. None: this machine.
    """

    def __init__(self, host: str | None = None) -> None:
        if host is not None and (not host or host.startswith("-")):
            raise StableError(f"--host: expected a name for ssh, found '{host}'")
        self._host = host

    def __str__(self) -> str:
        """Return the name of the machine for messages."""
        return f"host {self._host}" if self._host else "this machine"

    def open(self, argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a program on the machine, with pipes for input and output. A lost connection closes the input."""
        command = [*SSH, self._host, remote_command(argv)] if self._host else list(argv)
        try:
            # The program gets its own session, so that it does not receive Ctrl-C and can still write its last records.
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise StableError(f"{self}: no program {error.filename}") from None

    def shell(self, script: str, *arguments: str) -> str:
        """Run a shell script on the machine, and return the output of the script.

        Raises
        ------
        StableError
            The script failed.
        LostError
            The host is unreachable, or does not answer.
        """
        process = self.open(["sh", "-c", script, "sh", *arguments])
        try:
            out, said = process.communicate(timeout=ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise LostError(f"{self}: no answer after {ANSWER_TIMEOUT_S} s") from None
        if process.returncode:
            reason = said.decode(errors="replace").strip() or f"exit code {process.returncode}"
            if self._host and process.returncode == SSH_FAILED:
                raise LostError(f"{self}: ssh failed: {reason}")
            raise StableError(f"{self}: {reason}")
        return out.decode(errors="replace")
