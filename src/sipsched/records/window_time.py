"""Functions that find the disturbed and the invalid windows (stretches in one mode) of a run that compares modes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sipsched.records.switch_log import WindowsDocument

TICKS_PER_S = 100
"""Ticks per second in /proc/stat (USER_HZ). The kernel's ABI fixes this number."""
COUNTS, SWITCH, UNFINISHED, STOLEN = range(4)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spans:
    """The start and end of each measured window in ns on the clock of the SPS, as int64 with shape (window,)."""

    done: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Disturbances:
    """The disturbances (such as stolen CPU time) in each window, including the washout; NaN if unknown.

    Attributes
    ----------
    steal_share
        Share of the SPS's CPU time that the hypervisor took.
    time_squeeze
        Number of times that the kernel stopped a receive softirq early, because the softirq had used up its budget.
    competitor_share
        Share of the SPS's CPU time that other programs used, without tasks of class SCHED_IDLE.
    """

    steal_share: Floats
    time_squeeze: Floats
    competitor_share: Floats


@dataclass(frozen=True)
class Usable:
    """The share of unusable blocks and the stolen time of a run that compares modes, from the log of mode switches.

    Attributes
    ----------
    blocks_left_out
        Share of the blocks with an invalid window. Stolen time does not make a block invalid.
    steal_share
        Mean share of stolen time over the valid windows; 0 if no window is valid.
    """

    blocks_left_out: float
    steal_share: float


def spans(recorded: WindowsDocument) -> Spans:
    """Return the start and the end of each window (a short stretch of time in one mode) in ns.

    A window starts when the switch to its mode is done, and ends when the next switch begins. The last window ends as
    planned.
    """
    windows, switches = recorded.design.windows, recorded.log.windows
    began = [switch.began_ns for switch in switches]
    lasts = [
        switch.asked_ns + window.length_ns
        for switch, window in zip(switches, windows, strict=False)
    ]
    return Spans(
        # Use the planned time of the first switch, because the first switch is done before the load begins.
        np.array([max(switch.asked_ns, switch.done_ns) for switch in switches], np.int64),
        np.array([*began[1:], *lasts[-1:]], np.int64),
    )


@dataclass(frozen=True)
class ModesInForce:
    """The window, the block of windows and the mode in which each of several times of a run lies.

    All arrays have one entry per time.

    Attributes
    ----------
    window, block
        Numbers counted from 0; -1 outside all windows.
    mode
        Name of the mode of the window; empty outside all windows.
    evaluated
        Whether the time is after the washout of a valid window.
    """

    window: npt.NDArray[np.int32]
    block: npt.NDArray[np.int32]
    mode: npt.NDArray[np.str_]
    evaluated: npt.NDArray[np.bool_]


def in_force(recorded: WindowsDocument, t_ns: npt.NDArray[np.int64]) -> ModesInForce:
    """Return the window, block and mode at each time in `t_ns` (ns, CLOCK_MONOTONIC of the SPS)."""
    design, placed = recorded.design, spans(recorded)
    window = np.searchsorted(placed.done, t_ns, side="right") - 1
    inside = window >= 0
    inside[inside] = t_ns[inside] < placed.end[window[inside]]
    window[~inside] = -1
    # Times outside all windows have the window index -1. Append an entry for such times, because -1 selects the last
    # entry.
    block = np.array([*(window.block for window in design.windows), -1], np.int32)
    mode = np.array([*(design.modes[window.mode] for window in design.windows), ""])
    counts = left_out(recorded, machine(recorded, placed).steal_share) == COUNTS
    washed_out = np.append(placed.done, 0)[window] + round(design.washout_s * 1e9)
    evaluated = inside & np.append(counts, False)[window] & (t_ns >= washed_out)
    return ModesInForce(window.astype(np.int32), block[window], mode[window], evaluated)


def machine(recorded: WindowsDocument, placed: Spans) -> Disturbances:
    """Return stolen time and other disturbances per window, from counter samples near the window's start and end."""
    samples = recorded.log.samples
    t_ns = np.array(samples.t_ns, np.int64)
    steal, squeezed = (np.full(len(recorded.design.windows), np.nan) for _ in range(2))
    for window, (done, end) in enumerate(zip(placed.done, placed.end, strict=True)):
        # The last sample before a switch is the end of one window and the beginning of the next window.
        before = max(int(np.searchsorted(t_ns, done, side="left")) - 1, 0)
        last = int(np.searchsorted(t_ns, end, side="right")) - 1
        if last <= before:
            continue
        elapsed_s = float(t_ns[last] - t_ns[before]) / 1e9 * len(recorded.cpus)
        ticks = samples.steal_ticks[last] - samples.steal_ticks[before]
        steal[window] = ticks / TICKS_PER_S / elapsed_s
        squeezed[window] = samples.time_squeeze[last] - samples.time_squeeze[before]
    return Disturbances(steal, squeezed, _competitor_share(recorded, placed))


def _competitor_share(recorded: WindowsDocument, placed: Spans) -> Floats:
    """Return the share of CPU time that other programs took in each window, by interpolation between samples."""
    shares = np.full(len(recorded.design.windows), np.nan)
    competed = recorded.competed
    if competed is None or len(competed.t_ns) < 2:
        return shares
    # Count times from the first sample, because a float cannot represent every ns of a long uptime.
    first = competed.t_ns[0]
    t_ns = np.array(competed.t_ns, np.int64) - first
    done, end = (
        np.interp(ends - first, t_ns, competed.competed_ns, np.nan, np.nan)
        for ends in (placed.done, placed.end)
    )
    lasted_ns = (placed.end - placed.done) * len(recorded.cpus)
    np.divide(end - done, lasted_ns, out=shares[: len(lasted_ns)], where=lasted_ns > 0)
    return shares


def left_out(recorded: WindowsDocument, steal_share: Floats) -> npt.NDArray[np.uint8]:
    """Return a code for each window of a run, from the log of mode switches: valid, or why the window is excluded.

    Returns
    -------
    ndarray
        uint8, shape (window,): `COUNTS` (valid), `SWITCH`, `UNFINISHED` or `STOLEN`. Stolen time in one window marks
        all windows of its block. Stolen time in the last window of a block also marks the next block. Comparisons of
        modes use windows marked `STOLEN`, with an adjustment for stolen time (`analysis.covariates`).
    """
    windows, log = recorded.design.windows, recorded.log
    blocks = np.array([window.block for window in windows])
    reasons = np.zeros(len(windows), np.uint8)
    reasons[len(log.windows) :] = UNFINISHED
    if log.ended != "plan":
        reasons[max(len(log.windows) - 1, 0)] = UNFINISHED
    over = np.nan_to_num(steal_share) > recorded.steal_share
    # Mark the next window, too, because it serves messages that queued up during the stolen time.
    touched = over | np.concatenate(([False], over[:-1]))
    reasons[(reasons == COUNTS) & np.isin(blocks, np.unique(blocks[touched]))] = STOLEN
    for index, switch in enumerate(log.windows):
        if not switch.good:
            reasons[index] = SWITCH
    return reasons


def usable(recorded: WindowsDocument) -> Usable:
    """Return the share of unusable blocks and the share of stolen time in a run, from the log of the mode switches."""
    steal_share = machine(recorded, spans(recorded)).steal_share
    reasons = left_out(recorded, steal_share)
    blocks = np.array([window.block for window in recorded.design.windows])
    kept_windows = np.isin(reasons, (COUNTS, STOLEN))
    touched = np.unique(blocks[~kept_windows])
    kept = steal_share[kept_windows]
    return Usable(
        len(touched) / (int(blocks.max()) + 1),
        float(np.nanmean(kept)) if np.isfinite(kept).any() else 0.0,
    )
