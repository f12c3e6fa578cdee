"""One user of a testbed at a time: who holds its lock, and how another one waits for it."""

import getpass
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sipsched.errors import StableError, TransientError
from sipsched.testbed import places


def say_here(line: str) -> None:
    """Print a line where a waiting user sees it."""
    print(line, file=sys.stderr, flush=True)


def holder(purpose: str) -> str:
    """Say who takes a lock, for whoever waits for it: purpose, process, user, machine, and since when."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return (
        f"{purpose} (pid {os.getpid()} of {getpass.getuser()} on {platform.node()}, since {since})"
    )


def await_lock(
    answers: Iterator[str], what: str, wait_s: float, say: Callable[[str], None]
) -> None:
    """Follow what `places.LOCK` says until the lock is held.

    Parameters
    ----------
    answers
        Its lines.
    what
        Names the thing that the lock is of.
    wait_s
        How long the script waits.
    say
        Takes a line that names the holder, where it has to wait.

    Raises
    ------
    TransientError
        Somebody else held it all that time; names the last holder.
    StableError
        The lock cannot be taken.
    """
    said = ""
    for line in answers:
        word, _, by = line.partition(" ")
        # the holder's own line is there a moment after its lock
        by = by or "a user who has not said who"
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
    lock_file: Path, what: str, purpose: str, wait_s: float, say: Callable[[str], None] = say_here
) -> Iterator[None]:
    """Hold a lock of this machine while the block runs; it goes with this process.

    Raises
    ------
    TransientError
        Somebody else holds it all the time.
    StableError
        It cannot be taken.
    """
    argv = ["sh", "-c", places.LOCK, "sh", str(lock_file), holder(purpose), f"{wait_s:g}"]
    # a session of its own: what Ctrl-C ends must not let go of the lock while we put things in order
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
                # one that still waits does not look at its standard input
                _end_waiting(keeper)


def _end_waiting(keeper: "subprocess.Popen[str]") -> None:
    try:
        keeper.wait(timeout=1)
    except subprocess.TimeoutExpired:
        os.killpg(keeper.pid, 9)
