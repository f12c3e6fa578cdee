"""Service times and waiting times of messages per setting, and the capacity according to queueing models."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis.capacity.options import Option
from sipsched.analysis.capacity.queues import queue_capacity_cps, system_places
from sipsched.analysis.crossing_load import PDR_LIMIT, grid_capacity
from sipsched.analysis.intervals import (
    Interval,
    Values,
    mean_intervals,
    typical_interval,
    typical_intervals,
)
from sipsched.analysis.message_times import cpu_time
from sipsched.analysis.run_table import Facet, by_load, configurations, facet_name
from sipsched.words import plural

MESSAGE_PARTS = ("t_sip_mean", "t_sip_sd", "t_sip_off_mean", "t_sip_off_sd", "k_sockq_mean")
KERNEL_PARTS = ("k_stack_mean", "k_copy_mean", "k_snd_mean")
KEPT = ("pdr", "so_rcvbuf", *MESSAGE_PARTS, *KERNEL_PARTS)
"""Columns of a campaign's table of runs that the queueing models need."""


@dataclass(frozen=True)
class MeasuredService:
    """The service times, waiting times and drop rates of messages in one setting (SUT, mode, cores and threads).

    Attributes
    ----------
    at_cps
        Load at which the service times were measured: the highest load at or below the limit, or else the lowest load.
    cpu_us, t_sip_us
        CPU time per message in kernel and proxy, and T_sip, in a typical run at this load.
    cpu_scv, t_sip_scv
        Squared coefficients of variation of these times over messages; NaN if they were not measured. `cpu_scv` is from
        the load with the smallest share of T_sip off CPU.
    room
        Number of messages that fit into the receive buffer; NaN if the record lacks the size of the buffer.
    loads, pdr, waits_us
        Measured loads, ascending. Packet drop rate, and mean K_sockq in µs, shape (load, rep).
    """

    facet: Facet
    threads: int
    measured: Option
    at_cps: float
    cpu_us: Interval
    t_sip_us: Interval
    cpu_scv: float
    t_sip_scv: float
    room: float
    loads: Values
    pdr: Values
    waits_us: Values

    @property
    def name(self) -> str:
        """The setting (SUT, mode, cores and threads) as text."""
        return f"{facet_name(self.facet)}, {plural(self.threads, 'thread')}"

    def servers(self, by: str) -> int:
        """Return the number of servers in the queueing model: the threads, or for `by="cores"` the cores in use.

        Each thread uses at most one core at a time. So the cores in use are min(cores, threads).
        """
        return min(self.facet[2], self.threads) if by == "cores" else self.threads

    def predict(self, by: str, general: bool, limit: float = PDR_LIMIT) -> Interval:
        """Predict the capacity in cps by a queueing model with a finite number of places.

        Parameters
        ----------
        by
            "cores": the servers are the cores, and the service time is the CPU time. "threads": the servers are the
            threads, and the service time is T_sip.
        general
            Whether the model is M/G/c/K with the measured variation of service times. Otherwise the model is M/M/c/K.
        """
        service, scv = (
            (self.cpu_us, self.cpu_scv) if by == "cores" else (self.t_sip_us, self.t_sip_scv)
        )
        if np.isnan(service.estimate):
            return service
        if np.isnan(self.room) or (general and np.isnan(scv)):
            missing = "SO_RCVBUF" if np.isnan(self.room) else "spread of service times"
            return Interval.without(np.nan, service.n, why=f"{missing} not recorded")
        servers = self.servers(by)

        def cps(time_us: float) -> float:
            if not time_us > 0:
                return np.nan if np.isnan(time_us) else np.inf
            places = int(self.room) + servers
            return queue_capacity_cps(time_us, servers, places, scv if general else 1.0, limit)

        return service.map(cps)


def service_times(
    runs: pd.DataFrame, options: Sequence[Option], limit: float, message_bytes: float
) -> list[MeasuredService]:
    """Return the service times of each measured setting in `options`.

    `runs` must contain runs of exactly these settings, in the same order.
    """
    return [
        _service(by_load(group, KEPT), option, limit, message_bytes)
        for option, group in zip(options, configurations(runs).values(), strict=True)
    ]


def _service(at: xr.Dataset, option: Option, limit: float, message_bytes: float) -> MeasuredService:
    loads = at["cps"].to_numpy().astype(float)
    means, *_ = mean_intervals(at["pdr"].to_numpy())
    carried, _ = grid_capacity(loads, means, limit)
    at_cps = carried if np.isfinite(carried) else loads[0]
    times = {name: at[name].to_numpy() for name in (*MESSAGE_PARTS, "so_rcvbuf")}
    cpu = cpu_time(at).to_numpy()
    there = int(np.flatnonzero(loads == at_cps)[0])
    # ASSUME within T_sip, time on and off CPU are independent, and the CPU time varies equally at all loads
    # The variation is therefore estimated at the load with the smallest share of T_sip off CPU. There, the assumption
    # matters least.
    with np.errstate(invalid="ignore"):
        off = _means(times["t_sip_off_mean"] / times["t_sip_mean"])
        on_square = times["t_sip_sd"] ** 2 - times["t_sip_off_sd"] ** 2
        cpu_scv = _means(np.maximum(on_square, 0) / cpu**2)
        t_sip_scv = _means((times["t_sip_sd"] / times["t_sip_mean"]) ** 2)
    calm = int(np.nanargmin(off)) if np.isfinite(off).any() else there
    buffers = times["so_rcvbuf"]
    room = np.nan
    if np.isfinite(buffers).any():
        room = float(system_places(float(np.nanmedian(buffers)), message_bytes, 0))
    return MeasuredService(
        facet=(option.sut, option.mode, option.cores),
        threads=option.threads,
        measured=option,
        at_cps=float(at_cps),
        cpu_us=_mean(cpu[there], "the probe did not see the kernel's part"),
        t_sip_us=_mean(times["t_sip_mean"][there], "the probe did not time the proxy"),
        cpu_scv=float(cpu_scv[calm]),
        t_sip_scv=float(t_sip_scv[there]),
        room=room,
        loads=loads,
        pdr=at["pdr"].to_numpy(),
        waits_us=times["k_sockq_mean"],
    )


def _means(values: Values) -> Values:
    return typical_intervals(values).estimate


def _mean(values: Values, why: str) -> Interval:
    mean = typical_interval(values)
    return mean if mean.n else replace(mean, why=why)
