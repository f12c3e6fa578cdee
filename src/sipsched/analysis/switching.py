"""Statistics of runs that switch between modes: valid windows, durations of switches, and disturbances."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from sipsched.analysis.advice import ComparedLoad, arms_of
from sipsched.analysis.blocks import widening
from sipsched.analysis.covariates import KEPT
from sipsched.analysis.intervals import Values
from sipsched.records.window_time import COUNTS, SWITCH

ERRORS_MOST = 3.0
"""The largest change of the message time after the washout (settling time) that chance explains, in standard errors.

The limit applies to the mode with the largest change, out of about ten modes.
"""
BINS_LEAST = 8
"""Smallest number of bins after the washout in which a change is detectable."""


@dataclass(frozen=True)
class Switching:
    """Statistics of the windows and mode switches in one run that compares modes.

    Attributes
    ----------
    window_s, washout_s
        Mean lengths of the windows and of their washouts. The lengths vary from block to block.
    utilisation, relaxation_s
        Utilisation and relaxation time from which the lengths were computed; NaN if the configuration sets lengths.
    blocks, whole_blocks
        Number of blocks, and number of blocks in which all windows are valid. Windows with stolen time are valid.
    left_out
        Number of windows with each reason in `records.windows.LEFT_OUT`. Windows with stolen time have less weight, and
        windows with any other reason are excluded.
    switch_median_us, switch_max_us
        Median and maximum duration of a switch; NaN without a switch.
    late_max_us
        Largest delay between the planned time and the start of a switch.
    failed
        Number of switches that failed, or after which a setting had a value other than the written value.
    tasks
        Number of processes that each switch changed.
    steal_mean, steal_max
        Mean and largest share of the SPS's CPU time that the hypervisor took in a window.
    idle_instances, idle_share
        Number of proxy instances without calls in a window, and the mean share of the proxy's CPU time that they used
        in valid windows; 0 and NaN if the run compares no instances or has no CPU time of each instance.
    speed_before, speed_after
        Speed of a CPU before and after the run: units of a fixed workload per microsecond of CPU time; NaN if unknown.
    """

    mode: str
    rep: int
    window_s: float
    washout_s: float
    utilisation: float
    relaxation_s: float
    blocks: int
    whole_blocks: int
    windows: int
    left_out: Mapping[int, int]
    switch_median_us: float
    switch_max_us: float
    late_max_us: float
    failed: int
    tasks: int
    steal_mean: float
    steal_max: float
    idle_instances: int
    idle_share: float
    speed_before: float
    speed_after: float


@dataclass(frozen=True)
class Drift:
    """The change of a mode's message time between the end of the washout and the end of a window.

    Attributes
    ----------
    share
        Mean message time in the first quarter of the window after the washout, divided by the mean in the last half of
        the window, minus 1. NaN if the window has too few bins.
    errors
        `share` in standard errors.
    constant_s
        Time since the switch from which the change is within random variation; NaN if the time is unknown.
    """

    share: float
    errors: float
    constant_s: float

    @property
    def beyond_chance(self) -> bool:
        """Whether the change exceeds random variation."""
        return abs(self.errors) > ERRORS_MOST


@dataclass(frozen=True)
class Aligned:
    """The mean message time as a function of the time since the last switch, over all runs at a load.

    Attributes
    ----------
    since_s
        Middle of each bin, in seconds since the switch; shape (bin,).
    by_arm
        Mean of K_rcv + T_sip and its standard error in µs, per mode and for the sham; shape (bin,) each.
    washouts_s
        The shortest and the longest washout of the runs.
    drifts
        The change of the message time after the washout, per mode and for the sham.
    """

    since_s: Values
    by_arm: Mapping[str, tuple[Values, Values]]
    washouts_s: tuple[float, float]
    drifts: Mapping[str, Drift]


class _Response(NamedTuple):
    """The message time of one mode in one run, divided by its mean after the washout, for each bin."""

    since_s: Values
    mean: Values
    error: Values
    level_us: float
    washout_s: float


def switching(run: xr.Dataset) -> Switching:
    """Return statistics of the windows and mode switches in a run that compares modes."""
    attrs = run.attrs
    left_out, blocks = run["left_out"].to_numpy(), run["block"].to_numpy()
    reasons, counts = np.unique(left_out[left_out != COUNTS], return_counts=True)
    valid = np.isin(left_out, KEPT)
    spoilt = np.unique(blocks[~valid])
    took, late = run["switch"].to_numpy(), run["late"].to_numpy()
    steal = run["steal_share"].to_numpy()
    speed = json.loads(attrs["speed"]) or {}
    # The share of CPU time that idle instances used is missing in older files and in runs that compare no instances.
    idle = run.get("idle_instances_share", xr.full_like(run["steal_share"], np.nan)).to_numpy()
    idle = idle[valid]
    return Switching(
        mode=str(attrs["mode"]),
        rep=int(attrs["rep"]),
        window_s=float(attrs["window_s"]),
        washout_s=float(attrs["washout_s"]),
        utilisation=float(attrs["utilisation"]),
        relaxation_s=float(attrs["relaxation_s"]),
        blocks=int(blocks.max()) + 1,
        whole_blocks=int(blocks.max()) + 1 - len(spoilt),
        windows=len(blocks),
        left_out=dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        switch_median_us=float(np.median(took[~np.isnan(took)])) if _any(took) else np.nan,
        switch_max_us=float(np.nanmax(took)) if _any(took) else np.nan,
        late_max_us=float(np.nanmax(late)) if _any(late) else np.nan,
        failed=int((left_out == SWITCH).sum()),
        tasks=int(attrs["tasks"]),
        steal_mean=float(np.nanmean(steal)) if _any(steal) else np.nan,
        steal_max=float(np.nanmax(steal)) if _any(steal) else np.nan,
        idle_instances=int(attrs["instances"]) - 1 if _any(idle) else 0,
        idle_share=float(np.nanmean(idle)) if _any(idle) else np.nan,
        speed_before=float(speed.get("before", np.nan)),
        speed_after=float(speed.get("after", np.nan)),
    )


def _any(values: Values) -> bool:
    return bool((~np.isnan(values)).any())


def aligned(load: ComparedLoad) -> Aligned | None:
    """Return the mean message time as a function of the time since the last switch, over all runs at a load.

    The runs of a load may compare different modes, and one run may be slower than another. So the means over the bins
    come from each run's message times divided by their mean after the washout. These ratios are then multiplied by the
    mean of the reference and by the mode's effect, which is measured within runs.

    Runs have windows of different lengths. So the bins of the run with the shortest windows are used for all runs.

    Returns
    -------
    Aligned or None
        The means; None if no run has a valid window.
    """
    if not load.runs:
        return None
    bins = min((run["since_switch"].to_numpy() for run in load.runs), key=lambda times: times[-1])
    responses: dict[str, list[_Response]] = {}
    for run in load.runs:
        for number, arm in enumerate(arms_of(run)):
            response = _response(run, number)
            if response is not None:
                responses.setdefault(arm, []).append(response)
    if not responses:
        return None
    by_arm = {}
    for arm, several in responses.items():
        means, errors = (
            np.array([np.interp(bins, each.since_s, curve) for each, curve in curves])
            for curves in (
                [(each, each.mean) for each in several],
                [(each, each.error) for each in several],
            )
        )
        level = _level(load, arm, several)
        by_arm[arm] = (
            level * means.mean(axis=0),
            level * np.sqrt((errors**2).sum(axis=0)) / len(several),
        )
    washouts = [float(run.attrs["washout_s"]) for run in load.runs]
    drifts = {arm: _drift(several) for arm, several in responses.items()}
    return Aligned(bins, by_arm, (min(washouts), max(washouts)), drifts)


def _response(run: xr.Dataset, number: int) -> _Response | None:
    """Return the message time of an arm of a run since the switch; None without a valid window."""
    mean, error = (
        run[name].to_numpy()[number] for name in ("aligned_total", "aligned_total_error")
    )
    since_s, washout_s = run["since_switch"].to_numpy(), float(run.attrs["washout_s"])
    known = ~np.isnan(mean)
    after = known & (since_s >= washout_s)
    if not after.any():
        return None
    level = float(mean[after].mean())
    return _Response(since_s[known], mean[known] / level, error[known] / level, level, washout_s)


def _level(load: ComparedLoad, arm: str, responses: Sequence[_Response]) -> float:
    """Return the mean message time of an arm in µs: the mean of the reference, multiplied by the effect of the arm."""
    reference = load.place.reference
    level = load.mean(reference, "total_mean").estimate
    if arm != reference:
        level *= math.exp(load.effect(arm, "total_mean").interval.estimate)
    return level if math.isfinite(level) else float(np.mean([each.level_us for each in responses]))


def _drift(responses: Sequence[_Response]) -> Drift:
    """Return the change of an arm's message time after the washout, averaged over runs."""
    share, errors, _ = _compare(responses, 0)
    constant_s, skipped = math.nan, 1
    while abs(errors) > ERRORS_MOST:
        _, later, since_s = _compare(responses, skipped)
        if math.isnan(later):
            break
        if abs(later) <= ERRORS_MOST:
            constant_s = since_s
            break
        skipped += 1
    return Drift(share, errors, constant_s)


def _compare(responses: Sequence[_Response], skipped: int) -> tuple[float, float, float]:
    """Compare the first quarter of the window after the washout with the last half of the window.

    Parameters
    ----------
    skipped
        Number of bins after the washout that are excluded.

    Returns
    -------
    share, errors, since_s
        As in `Drift`, and the time since the switch at which the compared part of the window begins. NaN if no run has
        enough bins.
    """
    shares, errors, starts = [], [], []
    for response in responses:
        first = int(np.searchsorted(response.since_s, response.washout_s)) + skipped
        mean, error = response.mean[first:], response.error[first:]
        bins = len(mean)
        if bins < BINS_LEAST:
            continue
        early, late = slice(0, bins // 4), slice(bins - bins // 2, bins)
        level = float(mean[late].mean())
        shares.append(float(mean[early].mean()) / level - 1)
        spread = math.hypot(
            *(float(np.sqrt((error[at] ** 2).sum())) / len(error[at]) for at in (early, late))
        )
        # A long queue outlasts a bin, so the errors of neighbouring bins are correlated.
        errors.append(widening([mean]) * spread / level)
        starts.append(float(response.since_s[first]))
    if not shares:
        return math.nan, math.nan, math.nan
    share, spread = float(np.mean(shares)), math.hypot(*errors) / len(errors)
    return share, share / spread if spread else 0.0, max(starts)
