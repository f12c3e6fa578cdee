"""Testbeds whose hosts are not reached: set aside, so that what is left to measure there waits, and nothing else."""

from dataclasses import dataclass

LOST_IN_A_ROW = 2
"""Attempts on a testbed, one after the other, of which each found a host unreachable: one alone may be a hiccup."""
AGAIN_S = 300.0
"""Seconds from one attempt on a testbed that is set aside to the next, while others measure."""


@dataclass
class _State:
    lost: int = 0
    tried_at: float = 0.0
    for_the_last_time: bool = False
    given_up: bool = False


class Aside:
    """The testbeds of one invocation.

    A testbed is set aside after `LOST_IN_A_ROW` attempts, and then tried every `AGAIN_S`. When nothing else is left to
    do it is tried once more; what finds it lost then gives it up for this invocation.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def lost(self, testbed: str, now: float) -> bool:
        """Take note of an attempt that did not reach a host.

        Parameters
        ----------
        testbed
            Its name.
        now
            Seconds on any clock that does not jump.

        Returns
        -------
        bool
            Whether that is what sets it aside, or gives it up.
        """
        state = self._states.setdefault(testbed, _State())
        state.lost, state.tried_at = state.lost + 1, now
        if state.for_the_last_time and not state.given_up:
            state.given_up = True
            return True
        return state.lost == LOST_IN_A_ROW

    def reached(self, testbed: str) -> bool:
        """Take note of an attempt that reached its hosts, however it ended; say whether they were set aside."""
        state = self._states.pop(testbed, _State())
        return state.lost >= LOST_IN_A_ROW

    def waits(self, testbed: str, now: float) -> bool:
        """Tell whether nothing is to be started on a testbed now."""
        state = self._states.get(testbed, _State())
        if state.lost < LOST_IN_A_ROW or (state.for_the_last_time and not state.given_up):
            return False
        return state.given_up or now - state.tried_at < AGAIN_S

    def is_given_up(self, testbed: str) -> bool:
        """Tell whether a testbed was tried for the last time."""
        return self._states.get(testbed, _State()).given_up

    def try_for_the_last_time(self, testbed: str) -> None:
        """Let one more attempt on a testbed that is set aside decide."""
        self._states[testbed].for_the_last_time = True
