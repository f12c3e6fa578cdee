"""The unreachable testbeds, whose runs wait while other testbeds are measured."""

from dataclasses import dataclass

LOST_IN_A_ROW = 2
"""Number of failed attempts in a row after which a testbed is set aside. A single failure may be a brief fault."""
AGAIN_S = 300.0
"""Seconds between two attempts on a testbed that is set aside."""


@dataclass
class _State:
    lost: int = 0
    tried_at: float = 0.0
    for_the_last_time: bool = False
    given_up: bool = False


class Aside:
    """The unreachable testbeds of one invocation.

    After `LOST_IN_A_ROW` failed attempts, a testbed is set aside and tried again every `AGAIN_S`. When no other job is
    left, the testbed is tried once more. If this attempt fails too, the testbed is given up for this invocation.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def lost(self, testbed: str, now: float) -> bool:
        """Record an attempt that did not reach a host.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.

        Returns
        -------
        bool
            Whether this attempt sets the testbed aside or gives it up.
        """
        state = self._states.setdefault(testbed, _State())
        state.lost, state.tried_at = state.lost + 1, now
        if state.for_the_last_time and not state.given_up:
            state.given_up = True
            return True
        return state.lost == LOST_IN_A_ROW

    def reached(self, testbed: str) -> bool:
        """Record an attempt that reached its hosts. Return whether the testbed was set aside before."""
        state = self._states.pop(testbed, _State())
        return state.lost >= LOST_IN_A_ROW

    def waits(self, testbed: str, now: float) -> bool:
        """Return whether the jobs of a testbed must wait now."""
        state = self._states.get(testbed, _State())
        if state.lost < LOST_IN_A_ROW or (state.for_the_last_time and not state.given_up):
            return False
        return state.given_up or now - state.tried_at < AGAIN_S

    def is_given_up(self, testbed: str) -> bool:
        """Return whether a testbed is given up for this invocation."""
        return self._states.get(testbed, _State()).given_up

    def try_for_the_last_time(self, testbed: str) -> None:
        """Allow one last attempt on a testbed that is set aside."""
        self._states[testbed].for_the_last_time = True
