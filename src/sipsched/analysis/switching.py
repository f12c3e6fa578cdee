"""Statistics of runs that switch between modes: valid windows, durations of switches, and disturbances."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sipsched.analysis.advice import ComparedLoad, arms_of
from sipsched.analysis.intervals import Values
from sipsched.records.window_time import COUNTS, STOLEN, SWITCH


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
        Number of blocks, and number of blocks in which all windows are valid.
    left_out
        Number of excluded windows by reason (`records.windows.LEFT_OUT`).
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
class Aligned:
    """The mean message time as a function of the time since the last switch, over all runs at a load.

    Attributes
    ----------
    since_s
        Middle of each bin, in seconds since the switch; shape (bin,).
    by_arm
        Mean of K_rcv + T_sip and its standard error in µs, per mode and for the sham; shape (bin,) each.
    washout_s
        The longest washout of the runs.
    """

    since_s: Values
    by_arm: Mapping[str, tuple[Values, Values]]
    washout_s: float


def switching(run: xr.Dataset) -> Switching:
    """Return statistics of the windows and mode switches in a run that compares modes."""
    attrs = run.attrs
    left_out, blocks = run["left_out"].to_numpy(), run["block"].to_numpy()
    reasons, counts = np.unique(left_out[left_out != COUNTS], return_counts=True)
    spoilt = np.unique(blocks[left_out != COUNTS])
    took, late = run["switch"].to_numpy(), run["late"].to_numpy()
    steal = run["steal_share"].to_numpy()
    speed = json.loads(attrs["speed"]) or {}
    # Older files and runs without instances lack this share.
    idle = run.get("idle_instances_share", xr.full_like(run["steal_share"], np.nan)).to_numpy()
    idle = idle[np.isin(left_out, (COUNTS, STOLEN))]
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

    Runs have windows of different lengths. So the bins of the run with the shortest windows are used for all runs.

    Returns
    -------
    Aligned or None
        The means; None if no run has a valid window.
    """
    if not load.runs:
        return None
    bins = min((run["since_switch"].to_numpy() for run in load.runs), key=lambda times: times[-1])
    responses: dict[str, list[tuple[Values, Values]]] = {}
    for run in load.runs:
        at = run["since_switch"].to_numpy()
        for number, arm in enumerate(arms_of(run)):
            mean = run["aligned_total"].to_numpy()[number]
            error = run["aligned_total_error"].to_numpy()[number]
            known = ~np.isnan(mean)
            if known.any():
                read = (np.interp(bins, at[known], curve[known]) for curve in (mean, error))
                responses.setdefault(arm, []).append((next(read), next(read)))
    if not responses:
        return None
    by_arm = {}
    for arm, several in responses.items():
        means, errors = (np.array(columns) for columns in zip(*several, strict=True))
        by_arm[arm] = (means.mean(axis=0), np.sqrt((errors**2).sum(axis=0)) / len(several))
    return Aligned(bins, by_arm, max(float(run.attrs["washout_s"]) for run in load.runs))
