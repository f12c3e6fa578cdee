"""What the machine did in the windows of a crossover run, and which of them its log lets count."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sipsched.records.switch_log import WindowsDocument

TICKS_PER_S = 100
"""Of /proc/stat: USER_HZ, part of the kernel's ABI."""
COUNTS, SWITCH, UNFINISHED, STOLEN = range(4)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spans:
    """Where windows lie on the clock of the SPS: int64 ns, shape (window,); those that the log reached."""

    done: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Machine:
    """By window, the washout included: shape (window,), NaN where nothing is known.

    Attributes
    ----------
    steal_share
        Of the time of the SPS's CPUs.
    time_squeeze
        How often the receive softirq was cut short.
    """

    steal_share: Floats
    time_squeeze: Floats


@dataclass(frozen=True)
class Usable:
    """How much of a run its log leaves to count.

    Attributes
    ----------
    blocks_left_out
        Share of the blocks with a window that is left out.
    steal_share
        Mean over the windows that count; 0 if none does.
    """

    blocks_left_out: float
    steal_share: float


def spans(recorded: WindowsDocument) -> Spans:
    """Place the windows: each ends where the next switch begins, the last where it was to end."""
    windows, switches = recorded.design.windows, recorded.log.windows
    began = [switch.began_ns for switch in switches]
    lasts = [
        switch.asked_ns + window.length_ns
        for switch, window in zip(switches, windows, strict=False)
    ]
    return Spans(
        # the first switch is made before the load
        np.array([max(switch.asked_ns, switch.done_ns) for switch in switches], np.int64),
        np.array([*began[1:], *lasts[-1:]], np.int64),
    )


def machine(recorded: WindowsDocument, placed: Spans) -> Machine:
    """Say what the machine did in each window, from the samples next to its ends."""
    samples = recorded.log.samples
    t_ns = np.array(samples.t_ns, np.int64)
    steal, squeezed = (np.full(len(recorded.design.windows), np.nan) for _ in range(2))
    for window, (done, end) in enumerate(zip(placed.done, placed.end, strict=True)):
        # the sample right before a switch belongs to both sides of it
        before = max(int(np.searchsorted(t_ns, done, side="left")) - 1, 0)
        last = int(np.searchsorted(t_ns, end, side="right")) - 1
        if last <= before:
            continue
        elapsed_s = float(t_ns[last] - t_ns[before]) / 1e9 * len(recorded.cpus)
        ticks = samples.steal_ticks[last] - samples.steal_ticks[before]
        steal[window] = ticks / TICKS_PER_S / elapsed_s
        squeezed[window] = samples.time_squeeze[last] - samples.time_squeeze[before]
    return Machine(steal, squeezed)


def left_out(recorded: WindowsDocument, steal_share: Floats) -> npt.NDArray[np.uint8]:
    """Say of each window why it does not count, as far as the log tells.

    Returns
    -------
    ndarray
        uint8, shape (window,): `COUNTS`, `SWITCH`, `UNFINISHED` or `STOLEN`; what was stolen in one window
        leaves all windows of its block out, and of the next one's if it was the block's last.
    """
    windows, log = recorded.design.windows, recorded.log
    blocks = np.array([window.block for window in windows])
    found = np.zeros(len(windows), np.uint8)
    found[len(log.windows) :] = UNFINISHED
    if log.ended != "plan":
        found[max(len(log.windows) - 1, 0)] = UNFINISHED
    over = np.nan_to_num(steal_share) > recorded.steal_share
    # what queued up while time was stolen is served in the window after it, whose block it may begin: left
    # in, it makes the reference slower than the sham, which is never first (docs/methodology.md)
    touched = over | np.concatenate(([False], over[:-1]))
    found[(found == COUNTS) & np.isin(blocks, np.unique(blocks[touched]))] = STOLEN
    for place, switch in enumerate(log.windows):
        if not switch.good:
            found[place] = SWITCH
    return found


def usable(recorded: WindowsDocument) -> Usable:
    """Say how much of a run its log leaves to count."""
    steal_share = machine(recorded, spans(recorded)).steal_share
    found = left_out(recorded, steal_share)
    blocks = np.array([window.block for window in recorded.design.windows])
    touched = np.unique(blocks[found != COUNTS])
    kept = steal_share[found == COUNTS]
    return Usable(
        len(touched) / (int(blocks.max()) + 1),
        float(np.nanmean(kept)) if np.isfinite(kept).any() else 0.0,
    )
