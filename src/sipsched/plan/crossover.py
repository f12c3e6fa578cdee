"""Crossover runs: modes compared within one run, in windows drawn beforehand.

The mode of such a run is a *comparison*, the names of its modes joined by commas: `default,batch,fifo`. The
first is the reference. docs/methodology.md says why and how.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sipsched.errors import StableError
from sipsched.plan.modes import Setting, find_mode

SEPARATOR = ","
CALL_TAIL_S = 0.05
"""Calls of the window before are still answered for that long: ring and hold time, and some."""
RELAXATIONS = 3
"""Washout in relaxation times of the queue: of what was carried over a twentieth is left."""
WASHOUT_MAX_S = 1.0
WINDOW_MIN_S = 0.5
WINDOW_WASHOUTS = 5
"""Length of a window in washouts: a fifth of the load is left out."""
JITTER = 0.1
"""A block's windows are up to so much shorter or longer, so that no timer keeps step with them."""
UTILISATION_MAX = 0.97
BLOCKS_MIN = 6
"""With fewer blocks a randomisation test cannot reach 5 %: 2 of 2^6 orders are 3 %."""


@dataclass(frozen=True)
class Crossover:
    """How a crossover run is made, the same for every run of a campaign.

    Attributes
    ----------
    mode_s
        Seconds of load under each mode, and as many for the sham.
    window_s, washout_s
        Length of a window, and of its start that is left out; None: by the load, see `lengths`.
    retransmissions
        As of the load; with them a drop acts for seconds.
    steal_share
        A window in which more of the SPS's CPU time was stolen is left out, in all modes of its block.
    """

    mode_s: float
    window_s: float | None
    washout_s: float | None
    retransmissions: bool
    steal_share: float


@dataclass(frozen=True)
class Window:
    """A stretch of the load under one mode.

    Attributes
    ----------
    block
        Number of its block; in all windows of a block the same calls are played.
    mode
        Index of its mode in the comparison.
    sham
        Whether it plays the reference again, right after the reference's window.
    start_ns, length_ns
        On the clock of the schedule.
    """

    block: int
    mode: int
    sham: bool
    start_ns: int
    length_ns: int


@dataclass(frozen=True)
class Design:
    """The windows of a run, and what their lengths come from.

    Attributes
    ----------
    modes
        In the order of the comparison.
    window_s, washout_s
        As used; the lengths of windows vary about it.
    utilisation
        Share of the SPS's CPUs that the proxy took in the warm-up; None if the lengths were given.
    relaxation_s
        Of the queue at that utilisation; None if the lengths were given.
    """

    modes: tuple[str, ...]
    window_s: float
    washout_s: float
    windows: tuple[Window, ...]
    utilisation: float | None = None
    relaxation_s: float | None = None

    @property
    def end_ns(self) -> int:
        """Where the last window ends."""
        last = self.windows[-1]
        return last.start_ns + last.length_ns

    @property
    def replays(self) -> int:
        """How often the calls of a block are played."""
        return len(self.modes) + 1


def is_comparison(mode: str) -> bool:
    """Tell whether the mode of a run compares modes."""
    return SEPARATOR in mode


def compared(mode: str) -> tuple[str, ...]:
    """Name the modes of a comparison, the reference first; of any other mode, itself."""
    return tuple(mode.split(SEPARATOR))


def check(names: Iterable[str], declared: Mapping[str, Any]) -> None:
    """Refuse modes and comparisons of modes that cannot be.

    Parameters
    ----------
    names
        As in a run's tuple.
    declared
        What `sipsched.plan.modes.load_modes` gives.

    Raises
    ------
    StableError
        A mode is not declared or has a wrong override, a comparison names one twice, or a mode on its own
        is to still the probe.
    """
    for name in names:
        several = compared(name)
        found = [find_mode(mode, declared) for mode in several]
        if len(several) == 1 and Setting.RECORDING in found[0].overrides:
            raise StableError(
                f"mode '{name}': {Setting.RECORDING} is switched in a comparison only, as in "
                f"'default,default+{Setting.RECORDING}=off'; for a run without the probe set probe: off in its SUT"
            )
        twice = next((mode for mode in several if several.count(mode) > 1), None)
        if twice is not None:
            raise StableError(
                f"comparison '{name}': '{twice}' is named twice; each block has a sham window of its "
                "reference anyway"
            )


def duration_s(mode: str, crossover: Crossover) -> float:
    """Give the seconds of load of a comparison."""
    return crossover.mode_s * (len(compared(mode)) + 1)


def lengths(utilisation: float, service_s: float) -> tuple[float, float, float]:
    """Choose the length of windows and of their washout by the load.

    A queue forgets with its relaxation time, of M/M/1 E[S] / (1 - sqrt(rho))^2.
    SEE Cohen, The Single Server Queue, 1982, III.

    Parameters
    ----------
    utilisation
        Share of the SPS's CPUs that the proxy takes.
    service_s
        CPU time of a message, over the number of CPUs.

    Returns
    -------
    window_s, washout_s, relaxation_s
        In seconds.
    """
    busy = min(max(utilisation, 0.0), UTILISATION_MAX)
    relaxation_s = service_s / (1 - math.sqrt(busy)) ** 2
    washout_s = min(CALL_TAIL_S + RELAXATIONS * relaxation_s, WASHOUT_MAX_S)
    return max(WINDOW_MIN_S, WINDOW_WASHOUTS * washout_s), washout_s, relaxation_s


def choose(
    modes: Sequence[str],
    total_s: float,
    crossover: Crossover,
    utilisation: float,
    service_s: float,
    seed: int,
) -> Design:
    """Draw a run's windows with the lengths that the configuration gives, or else the load.

    Parameters
    ----------
    modes
        Those that are played, the reference first.
    total_s
        Seconds of load.
    crossover
        How the run is made.
    utilisation, service_s
        As for `lengths`.
    seed
        Of the orders and lengths.

    Raises
    ------
    StableError
        As `draw`.
    """
    window_s, washout_s, relaxation_s = lengths(utilisation, service_s)
    given_s, given_washout_s = crossover.window_s, crossover.washout_s
    if given_washout_s is not None:
        washout_s = given_washout_s
        window_s = max(WINDOW_MIN_S, WINDOW_WASHOUTS * washout_s)
    design = draw(modes, total_s, given_s or window_s, washout_s, seed)
    return replace(design, utilisation=utilisation, relaxation_s=relaxation_s)


def draw(
    modes: Sequence[str], total_s: float, window_s: float, washout_s: float, seed: int
) -> Design:
    """Draw the windows of a run: the order within each block, and the length of each block's windows.

    Parameters
    ----------
    modes
        The reference first.
    total_s
        Seconds of load; what does not fill a block is left out.
    window_s, washout_s
        Length of a window, and of its start that is left out.
    seed
        The same seed gives the same windows.

    Raises
    ------
    StableError
        The windows are shorter than twice the washout, or the load holds too few blocks.
    """
    # the estimate is made for a second washout, twice as long
    if window_s * (1 - JITTER) <= 2 * washout_s:
        raise StableError(
            f"crossover: windows of {window_s:g} s (less {JITTER:.0%} in some blocks) leave nothing "
            f"beside twice the washout of {washout_s:g} s; set crossover.window_s to "
            f"{WINDOW_WASHOUTS * washout_s:g} or more"
        )
    playing = len(modes) + 1
    blocks = int(total_s / (playing * window_s))
    if blocks < BLOCKS_MIN:
        raise StableError(
            f"crossover: {total_s:g} s of load hold {blocks} blocks of {playing} windows of "
            f"{window_s:.3g} s; at least {BLOCKS_MIN} are needed: set crossover.mode_s to "
            f"{math.ceil(BLOCKS_MIN * window_s)} or more, or crossover.window_s lower"
        )
    rng = random.Random(seed)  # noqa: S311 - orders of windows are no secret
    windows: list[Window] = []
    start_ns = 0
    for block in range(blocks):
        length_ns = round(window_s * 1e9 * rng.uniform(1 - JITTER, 1 + JITTER))
        order = rng.sample(range(len(modes)), len(modes))
        place = order.index(0)
        playlist = [(mode, False) for mode in order]
        playlist.insert(place + 1, (0, True))
        for mode, sham in playlist:
            windows.append(Window(block, mode, sham, start_ns, length_ns))
            start_ns += length_ns
    assert all(a.start_ns + a.length_ns == b.start_ns for a, b in pairwise(windows))
    return Design(tuple(modes), window_s, washout_s, tuple(windows))
