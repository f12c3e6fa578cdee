"""The lock that ensures that only one process at a time uses the hosts of a testbed."""

import getpass
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sipsched import scripting
from sipsched.errors import StableError, TransientError
from sipsched.testbed import places


def holder(purpose: str) -> str:
    """Return the purpose, id, user and start time of this process as text, for users who wait for the lock."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return (
        f"{purpose} (pid {os.getpid()} of {getpass.getuser()} on {platform.node()}, since {since})"
    )


def await_lock(
    answers: Iterator[str], what: str, wait_s: float, say: Callable[[str], None]
) -> None:
    """Wait until the shell script `places.LOCK`, whose output is in `answers`, holds the lock.

    Parameters
    ----------
    answers
        Lines of the script's output.
    what
        Name of the locked machine or testbed, for messages.
    wait_s
        Seconds that the script waits for the lock.
    say
        Function that shows a line with the name of another user who holds the lock.

    Raises
    ------
    TransientError
        Another user still holds the lock after `wait_s`. The message names the last holder.
    StableError
        The lock file cannot be locked.
    """
    said = ""
    for line in answers:
        word, _, by = line.partition(" ")
        # The holder takes the lock first and then writes its description, so the description can be empty.
        by = by or "an unknown user"
        if word == "held":
            return
        if word == "late":
            raise TransientError(
                f"{what} is in use by {by}; waited {wait_s:g} s (lock_wait_s in the testbed's file)"
            )
        if word == "busy" and wait_s > 0:
            say(f"{what} is in use by {by}; waiting for it, up to {wait_s:g} s")
        if word == "odd":
            raise StableError(f"{what}: its lock {by} is not a file; remove it")
        said = line
    raise StableError(f"{what}: its lock cannot be taken: {said or 'no reason given'}")


@contextmanager
def locked_here(
    lock_file: Path,
    what: str,
    purpose: str,
    wait_s: float,
    say: Callable[[str], None] = scripting.say,
) -> Iterator[None]:
    """Hold a lock on this machine while the `with` block runs. If this process is killed, the lock is released too.

    Raises
    ------
    TransientError
        Another user still holds the lock after the waiting time.
    StableError
        The lock file cannot be locked.
    """
    argv = ["sh", "-c", places.LOCK, "sh", str(lock_file), holder(purpose), f"{wait_s:g}"]
    # The script that holds the lock has its own session, so that it does not receive Ctrl-C.
    # In a common session, Ctrl-C would release the lock before the settings are restored.
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        try:
            await_lock((line.rstrip("\n") for line in keeper.stdout), what, wait_s, say)
            yield
        finally:
            keeper.stdin.close()
            if keeper.poll() is None and wait_s > 0:
                # A script that still waits for the lock does not notice the end of its input, so it is stopped.
                _end_waiting(keeper)


def _end_waiting(keeper: "subprocess.Popen[str]") -> None:
    try:
        keeper.wait(timeout=1)
    except subprocess.TimeoutExpired:
        os.killpg(keeper.pid, 9)
