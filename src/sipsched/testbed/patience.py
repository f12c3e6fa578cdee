"""Time limits for waiting for a host, in seconds of the host's clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass

STEP_S, LEAST_STEP_S = 1.0, 0.01
"""Longest and shortest real time in seconds between two readings of the host's clock during a wait."""


@dataclass(frozen=True)
class Patience:
    """The clock (real, or the virtual clock of a guest) that limits how long sipsched waits for a host.

    Attributes
    ----------
    now
        The function that returns the host's time in seconds. A host with a real clock uses this machine's time.
    least_s
        Smallest time limit, in real seconds, for waits that can only use this machine's clock.
    """

    now: Callable[[], float] = time.monotonic
    least_s: float = 0.0

    def real(self, limit_s: float) -> float:
        """Convert a limit of the host's clock to real seconds, for waits that can only use this machine's clock."""
        return max(limit_s, self.least_s)

    def wait(self, done: Callable[[float], bool], deadline: float) -> bool:
        """Wait until a condition is true or the host's clock reaches a deadline. Return True if the condition is true.

        Parameters
        ----------
        done
            The function that waits for the condition and returns whether the condition is true. The argument of the
            function is the longest wait in real seconds.
        deadline
            The time of the host's clock, in seconds, at which the wait ends.
        """
        while True:
            left_s = deadline - self.now()
            if done(min(STEP_S, max(LEAST_STEP_S, left_s)) if left_s > 0 else 0):
                return True
            if left_s <= 0:
                return False


REAL_TIME = Patience()
