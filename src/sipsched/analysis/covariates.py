"""Adjustment of measured values for disturbances, such as CPU time that the hypervisor took (stolen time).

A run that compares modes consists of windows. In each window, the proxy runs in one mode. A block is a group of windows
with one window per mode, and its windows may have different disturbances.

The order of the windows in a block is random, so a disturbance affects every mode equally on average. In a single run,
one mode may be affected more than the others by chance. So a regression over all windows estimates the effect of a
disturbance, from differences between windows of the same block. The adjustment subtracts this effect. Disturbed blocks
scatter more even after the adjustment, so they have less weight.

SEE Deng, Xu, Kohavi and Walker, Improving the Sensitivity of Online Controlled Experiments (CUPED; WSDM 2013)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.analysis.intervals import Values
from sipsched.records.window_time import COUNTS, STOLEN
from sipsched.records.windows import laid_out

Flags = npt.NDArray[np.bool_]
COVARIATES = ("steal_share", "competitor_share")
"""Variables of `windows.nc`: per window, the shares of the SPS's CPU time that the hypervisor and other programs took.

The adjustment would remove a part of a mode's effect if the mode changed these variables. So `competitor_share`
excludes tasks of class SCHED_IDLE, which use all CPU time that a mode leaves idle.
"""
KNEES = (0.01, 0.03, 0.1)
"""Shares of CPU time at which a disturbance may begin to have an effect. The fit chooses one of these shares.

A disturbance x multiplies a value by (1 + (x / knee)²) to a fitted power. Far below the knee, x has almost no effect.
The regression uses the knee with the best fit, or a straight line in x if a line fits better. If modes are compared by
differences, it always uses the straight line. A disturbance that is below the smallest knee in all windows is ignored.
"""


KEPT = (COUNTS, STOLEN)
"""Codes in `left_out` of the windows that comparisons of modes use: valid windows, and windows with stolen time."""
FEWEST_CALM = 3
"""With fewer undisturbed blocks, the weight of disturbed blocks would be imprecise, so all blocks have equal weight."""


@dataclass(frozen=True)
class Adjusted:
    """Values of windows after the adjustment for disturbances such as stolen CPU time.

    Attributes
    ----------
    table
        Shape (block, arm); NaN for invalid windows.
    weights
        Shape (block,): 1 for undisturbed blocks, smaller for disturbed blocks.
    """

    table: Values
    weights: Values


def adjusted(run: xr.Dataset, name: str, washout: int = 0, *, ratio: bool) -> Adjusted:
    """Return the values of a quantity per block and mode, adjusted for disturbances such as stolen CPU time.

    Parameters
    ----------
    run
        Windows from `open_windows`.
    name
        One of `records.windows.VARIABLES`.
    washout
        Index of the washout.
    ratio
        Whether modes are compared by the ratio of the quantity. The adjustment then divides by the effect of a
        disturbance. Otherwise it subtracts the effect.
    """
    table = laid_out(run, run[name].isel(washout=washout).to_numpy(), KEPT)
    disturbed = laid_out(run, run["left_out"].to_numpy() == STOLEN, KEPT) == 1
    return adjust(table, _covariates(run), disturbed.any(axis=1), ratio=ratio)


def _covariates(run: xr.Dataset) -> list[Values]:
    """Return the disturbances of each window, and the disturbances of the previous window.

    The disturbances of the previous window matter, because a disturbance can fill the queue of the socket, and the next
    window then begins with this queue.
    """
    covariates = []
    for name in filter(run.variables.__contains__, COVARIATES):
        shares = np.nan_to_num(run[name].to_numpy())
        before = np.concatenate(([0.0], shares[:-1]))
        covariates += [
            np.nan_to_num(laid_out(run, covariate, KEPT)) for covariate in (shares, before)
        ]
    return covariates


def adjust(
    table: Values, covariates: Sequence[Values], disturbed: Flags, *, ratio: bool
) -> Adjusted:
    """Estimate and subtract the effect of disturbances on windows, and compute a weight for each block.

    Parameters
    ----------
    table
        Shape (block, arm); NaN for invalid windows.
    covariates
        Disturbances as shares, shape (block, arm) each.
    disturbed
        Shape (block,): whether the block is expected to scatter more.
    ratio
        See `adjusted`.
    """
    weights = np.ones(len(table))
    usable = np.isfinite(table) & ((table > 0) | (not ratio))
    # A disturbance that is small in all windows is excluded, because its estimated effect would only add scatter.
    used = [shares for shares in covariates if (shares[usable] >= KNEES[0]).any()]
    free = usable.sum() - usable.any(axis=1).sum() - table.shape[1] - len(used)
    if free < 1:
        return Adjusted(table, weights)
    response = np.zeros_like(table)
    if ratio:
        np.log(table, where=usable, out=response)
    else:
        response[usable] = table[usable]
    shapes = [used]
    if ratio:
        shapes += [[np.log1p((covariate / knee) ** 2) for covariate in used] for knee in KNEES]
    # The weights depend on the regression, and the regression depends on the weights. So compute each of them twice.
    for _ in range(2):
        fits = [_fit(response, shape, usable, weights) for shape in shapes]
        effect, left = min(fits, key=lambda fit: float((weights * fit[1]).sum()))
        weights = _weigh(left, usable, disturbed)
    moved = table * np.exp(-effect) if ratio else table - effect
    return Adjusted(np.where(usable, moved, table), weights)


def _fit(
    response: Values, shapes: Sequence[Values], usable: Flags, weights: Values
) -> tuple[Values, Values]:
    """Fit a weighted linear regression of window values on disturbances, with a mean per block and a mean per mode.

    Returns
    -------
    effect
        Effect of the disturbances, shape (block, arm).
    left
        Sum of the squared residuals per block.
    """
    arms = np.broadcast_to(
        np.eye(response.shape[1])[1:, None], (response.shape[1] - 1, *response.shape)
    )
    columns = np.array([_within(column, usable) for column in (*arms, *shapes)])
    centred = _within(response, usable)
    root = np.sqrt(weights)[:, None]
    design = (columns * root).reshape(len(columns), -1).T
    factors, *_ = np.linalg.lstsq(design, (centred * root).ravel(), rcond=None)
    left = centred - np.tensordot(factors, columns, 1)
    effect = np.zeros_like(response)
    for factor, shape in zip(factors[len(arms) :], shapes, strict=True):
        effect += factor * shape
    return effect, (left**2).sum(axis=1)


def _within(values: Values, usable: Flags) -> Values:
    """Return each valid window's value minus the mean of the block's valid windows; 0 for invalid windows."""
    count = np.maximum(usable.sum(axis=1, keepdims=True), 1)
    mean = np.where(usable, values, 0).sum(axis=1, keepdims=True) / count
    return np.where(usable, values - mean, 0)


def _weigh(left: Values, usable: Flags, disturbed: Flags) -> Values:
    """Return a weight per block. Disturbed blocks have smaller weights if their values scatter more."""
    compared = usable.sum(axis=1) > 1
    calm, others = left[compared & ~disturbed], left[compared & disturbed]
    weights = np.ones(len(left))
    if calm.size >= FEWEST_CALM and others.any() and calm.any():
        weights[disturbed] = min(1.0, calm.mean() / others.mean())
    return weights
