"""Functions that compute times per message from the summaries of runs."""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.analysis.run_table import Configuration
from sipsched.records import histogram
from sipsched.records.study_summary import HISTOGRAM_RUNS
from sipsched.records.summary_variables import ALL, HISTOGRAM


def overall_service_time(ds: xr.Dataset) -> xr.DataArray:
    """Return the service time per message as the single-core paper defines E[x], from the runs' mean times.

    E[x] = K_stack + K_sockq^s + K_copy + T_sip + K_snd, which is all parts except waiting. K_sockq^s is the time to
    wake the worker and to dequeue the message (`k_sockq_alone`).

    Source: Krishnamurthy and Rouskas 2015, section III.

    Parameters
    ----------
    ds
        Summary of one run or of several runs, over all message types or for the type `all`.

    Returns
    -------
    DataArray
        E[x] in µs over the dimensions of the runs; NaN if a part is missing.
    """
    total = _sum_of_means(ds, "k_stack", "k_copy", "t_sip", "k_snd") + ds["k_sockq_alone"]
    return total.assign_attrs(
        long_name="overall service time E[x]",
        units="us",
        definition="K_stack + K_sockq^s + K_copy + T_sip + K_snd, means over messages",
    )


def cpu_time(ds: xr.Dataset) -> xr.DataArray:
    """Return a lower bound of the CPU time per message, from the mean times of all messages of runs.

    The bound is K_stack + K_copy + (T_sip - time of the worker off CPU during T_sip) + K_snd. The sum excludes the cost
    of waking the worker, because this cost is a part of K_sockq. Parameters and result have the form of
    `overall_service_time`.
    """
    on_and_off = _sum_of_means(ds, "k_stack", "k_copy", "t_sip", "k_snd")
    total = on_and_off - _sum_of_means(ds, "t_sip_off")
    return total.assign_attrs(
        long_name="CPU time of a message, without waking the worker",
        units="us",
        definition="K_stack + K_copy + T_sip - T_sip off CPU + K_snd, means over messages",
    )


def _sum_of_means(ds: xr.Dataset, *parts: str) -> xr.DataArray:
    every = ds.sel(message_type=ALL, drop=True) if "message_type" in ds.dims else ds
    means = (every[f"{name}_mean"] for name in parts)
    return reduce(operator.add, means)


def pooled_quantile(ds: xr.Dataset, quantity: str, share: float) -> xr.DataArray:
    """Return a quantile of message times in µs, over the messages of all repetitions with equal load and settings.

    Parameters
    ----------
    ds
        A dataset from `combine`.
    quantity
        One of `COUNTED`.
    share
        Quantile in (0, 1]: 0.999 for the 99.9th percentile.

    Returns
    -------
    DataArray
        Quantile in µs over the remaining dimensions, within `histogram.RELATIVE_ERROR`; NaN if no message exists or a
        measured run has no histogram.
    """
    counts = ds[HISTOGRAM].sel(quantity=quantity, drop=True)
    quantile = xr.apply_ufunc(
        histogram.quantile_ns, counts, kwargs={"share": share}, input_core_dims=[["bin"]]
    )
    has_messages = ds["k_rcv_n"].sel(message_type=ALL, drop=True) > 0
    pooled = (quantile / 1000).where(has_messages.sum("rep") == ds["histogram_runs"])
    described: xr.DataArray = pooled.assign_attrs(
        long_name=f"{100 * share:g}th percentile of {quantity}",
        units="us",
        definition="of all messages of the runs together, from their histograms",
    )
    return described


class LoadTimes(NamedTuple):
    """A histogram of message times at one load, over the messages of all runs of one system.

    Attributes
    ----------
    counts
        Number of messages per histogram bin, shape (`histogram.BINS`,).
    """

    cps: int
    counts: npt.NDArray[np.int64]
    runs: int

    def quantile_us(self, share: float) -> float:
        """Return a quantile of the message times in µs: the time that the given share of messages does not exceed."""
        return float(histogram.quantile_ns(self.counts, share)) / 1000

    @property
    def exceedance(self) -> npt.NDArray[np.float64]:
        """The share of messages that take longer than the upper edge of each bin of the histogram, shape (bin,)."""
        return np.asarray(1 - np.cumsum(self.counts) / self.counts.sum())


def times_by_load(
    summaries: Iterable[xr.Dataset], system: Configuration, quantity: str
) -> list[LoadTimes]:
    """Return the histograms of a system's message times, in ascending order of loads.

    Parameters
    ----------
    summaries
        Summaries of studies. The studies may share runs. Each load comes from the study with most runs at this load.
    system
        The system. For a system without histograms, the result is empty.
    quantity
        One of `COUNTED`.
    """
    by_load: dict[int, LoadTimes] = {}
    for ds in summaries:
        at = system._asdict()
        if any(value not in ds[name].to_numpy() for name, value in at.items()):
            continue
        there = ds[[HISTOGRAM, HISTOGRAM_RUNS]].sel(at | {"quantity": quantity})
        for cps in there["cps"].to_numpy().tolist():
            here = there.sel(cps=cps)
            times = LoadTimes(cps, here[HISTOGRAM].to_numpy(), int(here[HISTOGRAM_RUNS]))
            if times.counts.any() and (cps not in by_load or times.runs > by_load[cps].runs):
                by_load[cps] = times
    return [by_load[cps] for cps in sorted(by_load)]
