"""The list of unreachable testbeds. Runs on an unreachable testbed wait, while runs on other testbeds continue."""

from dataclasses import dataclass

LOST_IN_A_ROW = 2
"""Number of failed connections in a row after which a testbed has to wait. A single failure may be a brief fault."""
AGAIN_S = 300.0
"""Seconds between two attempts to reach the hosts of a testbed that has to wait."""


@dataclass
class _State:
    lost: int = 0
    tried_at: float = 0.0
    for_the_last_time: bool = False
    given_up: bool = False


class Aside:
    """The list of testbeds that were unreachable since the start of the workflow.

    After `LOST_IN_A_ROW` failed attempts, a testbed is set aside: the jobs of the testbed wait, and one job tries again
    every `AGAIN_S` seconds. When no other job remains, the testbed gets one last attempt. If this last attempt fails
    too, the workflow gives up the testbed.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def lost(self, testbed: str, now: float) -> bool:
        """Record that an attempt did not reach a host of a testbed.

        Return True if the testbed's jobs have to wait from now on.

        Parameters
        ----------
        now
            Time of the attempt, in seconds of a monotonic clock.

        Returns
        -------
        bool
            Whether this failed attempt causes the testbed to be set aside or given up.
        """
        state = self._states.setdefault(testbed, _State())
        state.lost, state.tried_at = state.lost + 1, now
        if state.for_the_last_time and not state.given_up:
            state.given_up = True
            return True
        return state.lost == LOST_IN_A_ROW

    def reached(self, testbed: str) -> bool:
        """Record that an attempt reached all hosts of a testbed. Return True if the testbed's jobs had to wait."""
        state = self._states.pop(testbed, _State())
        return state.lost >= LOST_IN_A_ROW

    def waits(self, testbed: str, now: float) -> bool:
        """Return True if the jobs of a testbed have to wait now, because the testbed's hosts are unreachable."""
        state = self._states.get(testbed, _State())
        if state.lost < LOST_IN_A_ROW or (state.for_the_last_time and not state.given_up):
            return False
        return state.given_up or now - state.tried_at < AGAIN_S

    def is_given_up(self, testbed: str) -> bool:
        """Return True if the workflow no longer tries to reach a testbed."""
        return self._states.get(testbed, _State()).given_up

    def try_for_the_last_time(self, testbed: str) -> None:
        """Let the waiting jobs of an unreachable testbed try once more to connect to the testbed."""
        self._states[testbed].for_the_last_time = True
