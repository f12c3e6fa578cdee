"""Two scheduler modes compared, with measured and published numbers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis.crossing_load import (
    PDR_LIMIT,
    SweepCapacity,
    capacity,
    crossing,
    crossing_ratio,
    grid_capacity,
    typical_drop_rates,
)
from sipsched.analysis.families import Family, compare_together
from sipsched.analysis.intervals import (
    NOT_MEASURED,
    Interval,
    Values,
    mean_intervals,
    simultaneous_level,
    typical_interval,
)
from sipsched.analysis.message_times import overall_service_time
from sipsched.analysis.papers import MESSAGES_PER_CALL, crossings
from sipsched.analysis.run_table import Buffers, counted, receive_buffers
from sipsched.plan.modes import is_translation, plain
from sipsched.records.study_summary import INVALID, MISSING, NOT_PLANNED
from sipsched.records.summary_variables import ALL
from sipsched.words import plural

SETUP = ("INVITE", "180", "200-INVITE", "ACK")
"""The messages that set up a call."""
KINDS = (*SETUP, "BYE", "200-BYE")
PARTS = {
    "k_stack": "K_stack",
    "k_sockq": "K_sockq",
    "k_copy": "K_copy",
    "t_sip": "T_sip",
    "t_sip_off": "T_sip, of it off CPU",
    "k_snd": "K_snd",
    "k_sockq_alone": "K_sockq^s",
    "service": "E[x]",
}
"""Parts of a message's time in the SPS, and the overall service time; all in µs."""
COMPARED = ("pdr", "k_rcv")
COMPARED_BY_TYPE = ("k_rcv", "t_sip")
System = tuple[str, int]
"""SUT and cores. Each system has its own figure or table."""


class Place(NamedTuple):
    """A setting in which modes are compared: all keys except mode, load and repetition."""

    sut: str
    cores: int
    threads: int

    @property
    def system(self) -> System:
        """SUT and cores of the place."""
        return self.sut, self.cores

    def __str__(self) -> str:
        """Name the setting in ordinary words."""
        return f"{plural(self.cores, 'core')}, {plural(self.threads, 'thread')}"


class ComparedQuantity(NamedTuple):
    """A requested comparison: a quantity at a load in a setting."""

    place: Place
    cps: int
    quantity: str


Comparisons = Family[ComparedQuantity]


@dataclass(frozen=True)
class Case:
    """The two modes that a report compares, and their data.

    Attributes
    ----------
    points, printed
        Tables from `sipsched.analysis.papers.load_points` and `load_comparison`.
    """

    summary: xr.Dataset
    points: pd.DataFrame
    printed: pd.DataFrame
    reference: str
    other: str
    limit: float = PDR_LIMIT

    @cached_property
    def values(self) -> dict[str, xr.DataArray]:
        """Quantities of the valid runs, from `quantities`."""
        return quantities(counted(self.summary))

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels of the modes, from `labels`."""
        return labels(self.summary)

    @property
    def modes(self) -> tuple[str, ...]:
        """The two compared modes, then all other modes of the study."""
        rest = (str(mode) for mode in self.summary["mode"].to_numpy())
        return tuple(dict.fromkeys((self.reference, self.other, *rest)))

    @property
    def loads_cps(self) -> Values:
        """The loads of the study, ascending."""
        return np.asarray(self.summary["cps"].to_numpy(), float)

    @property
    def share(self) -> str:
        """The limit in percent, as text."""
        return f"{100 * self.limit:g}\u00a0%"

    def label(self, mode: str) -> str:
        """Name a mode as the kernel applied it."""
        return self.labels.get(mode, mode)

    def translated(self, mode: str) -> bool:
        """Report whether a mode was a translation on one of the runs' kernels."""
        return any(
            settings["translated"]
            for place in self.places()
            for settings in self.side(place, mode).settings
        )

    @property
    def both(self) -> tuple[str, str]:
        """Labels of the two compared modes."""
        return self.label(self.reference), self.label(self.other)

    @property
    def buffers(self) -> dict[str, Buffers]:
        """Receive buffers of each SUT by (mode,), over the valid runs of the two compared modes."""
        runs = counted(self.summary)["so_rcvbuf"].to_dataframe().reset_index()
        runs = runs[runs["mode"].isin((self.reference, self.other))]
        return {
            str(sut): receive_buffers(rows, "mode") for sut, rows in runs.groupby("sut", sort=False)
        }

    def name(self, place: Place) -> str:
        """Name a setting; the name includes the SUT only if several SUTs exist."""
        return str(place) if self.summary.sizes["sut"] == 1 else f"{place.sut}, {place}"

    @property
    def systems(self) -> list[System]:
        """All planned (sut, cores)."""
        planned = (self.summary["status"] != NOT_PLANNED).any(("mode", "threads", "cps", "rep"))
        return [
            (str(sut), int(cores))
            for sut in self.summary["sut"].to_numpy()
            for cores in self.summary["cores"].to_numpy()
            if bool(planned.sel(sut=sut, cores=cores))
        ]

    def places(self, system: System | None = None, published: bool = False) -> list[Place]:
        """List all planned settings; if `published` is true, also the papers' settings."""
        planned = (self.summary["status"] != NOT_PLANNED).any(("mode", "cps", "rep"))
        listed = []
        for sut, cores in self.systems if system is None else [system]:
            threads = {
                int(count)
                for count in self.summary["threads"].to_numpy()
                if bool(planned.sel(sut=sut, cores=cores, threads=count))
            }
            if published:
                threads |= set(self.points.loc[self.points["cores"] == cores, "threads"])
            listed += [Place(sut, cores, int(count)) for count in sorted(threads)]
        return listed

    def measured_first(self, system: System | None, *modes: str) -> list[Place]:
        """List planned and published settings, starting with settings with a run of one of the modes."""

        def unmeasured(place: Place) -> bool:
            return not any(self.side(place, mode).loads_met for mode in modes)

        return sorted(self.places(system, published=True), key=unmeasured)

    def side(self, place: Place, mode: str) -> "Side":
        """Return one mode in one setting."""
        return Side(self, place, mode)

    def sides(self, place: Place) -> tuple["Side", "Side"]:
        """Return the two compared modes in a setting."""
        return self.side(place, self.reference), self.side(place, self.other)

    def compared_load(self, place: Place) -> int | None:
        """Choose the load of the papers' comparison: the first load above the limit in the reference mode.

        If the other mode has no run at this load, or no load is above the limit, the highest common load of both modes
        is chosen.
        """
        reference, other = self.sides(place)
        met = set(reference.loads_met) & set(other.loads_met)
        _, first = reference.loads_around
        return int(first) if first in met else max(met, default=None)

    def loads_compared(self, place: Place) -> list[int]:
        """List the common loads around the crossing of either mode, and the compared load."""
        sides = self.sides(place)
        met = set(sides[0].loads_met) & set(sides[1].loads_met)
        around = {load for side in sides for load in side.loads_around}
        chosen = self.compared_load(place)
        return sorted(cps for cps in met if cps in around or cps == chosen)

    def family(self) -> Comparisons:
        """Compare PDR and K_rcv under the two modes at the loads around their crossings."""
        return self._together(
            ComparedQuantity(place, cps, name)
            for place in self.places()
            for cps in self.loads_compared(place)
            for name in COMPARED
        )

    def family_of_parts(self) -> Comparisons:
        """Compare the parts of a message's time under the two modes at the compared load."""
        return self._together(self._at_compared_load(PARTS))

    def family_of_types(self) -> Comparisons:
        """Compare K_rcv and T_sip by message type; `of_type` makes the names of the quantities."""
        return self._together(
            self._at_compared_load(
                [of_type(kind, name) for kind in KINDS for name in COMPARED_BY_TYPE]
            )
        )

    def _at_compared_load(self, names: Iterable[str]) -> list[ComparedQuantity]:
        return [
            ComparedQuantity(place, cps, name)
            for place in self.places()
            if (cps := self.compared_load(place)) is not None
            for name in names
        ]

    def _together(self, asked: Iterable[ComparedQuantity]) -> Comparisons:
        pairs = {}
        for question in asked:
            reference, other = self.sides(question.place)
            pairs[question] = (
                reference.runs(question.quantity, question.cps),
                other.runs(question.quantity, question.cps),
            )
        return compare_together(pairs)

    def more_load(self, place: Place, mode: str, level: float) -> Interval:
        """Return the increase of a mode's crossing over the reference's crossing in percent."""
        first, second = (self.side(place, name).runs("pdr") for name in (self.reference, mode))
        if np.isnan(first).all() or np.isnan(second).all():
            return Interval.without(np.nan, 0, level, NOT_MEASURED)
        ratio = crossing_ratio(self.loads_cps, first, second, self.limit, level)
        return ratio.map(lambda value: 100 * (value - 1))

    @property
    def more_load_level(self) -> float:
        """Level of each interval of `more_load` at which all intervals of a page are simultaneous."""
        met = [
            (place, mode)
            for place in self.places()
            if self.side(place, self.reference).loads_met
            for mode in self.modes
            if mode != self.reference and self.side(place, mode).loads_met
        ]
        return simultaneous_level(len(met))

    def printed_comparison(self, place: Place) -> Mapping[Any, Any] | None:
        """Return the row of a paper's comparison of the modes; None without such a row."""
        if (self.reference, self.other) != ("baseline", "enhanced"):
            return None
        rows = self.printed[
            (self.printed["cores"] == place.cores) & (self.printed["threads"] == place.threads)
        ]
        return None if rows.empty else rows.iloc[0].to_dict()

    def same_settings(self, place: Place) -> bool | None:
        """Report whether both modes have the same settings; None if unknown."""
        found = [side.settings for side in self.sides(place)]
        if not all(found):
            return None
        in_force = [
            {json.dumps(setting["in_force"], sort_keys=True) for setting in settings}
            for settings in found
        ]
        return in_force[0] == in_force[1] and len(in_force[0]) == 1


@dataclass(frozen=True)
class Side:
    """One mode in one setting: its measured and published numbers."""

    case: Case
    place: Place
    mode: str

    @property
    def label(self) -> str:
        """Name of the mode as the kernel applied it."""
        return self.case.label(self.mode)

    def runs(self, quantity: str, cps: float | None = None) -> Values:
        """Return a quantity of the valid runs: shape (rep,) at a load, (load, rep) without a load."""
        return runs_at(self.case.values[quantity], self.place, self.mode, cps)

    def mean(self, quantity: str, cps: float) -> Interval:
        """Average a quantity over the runs at a load."""
        runs = self.runs(quantity, cps)
        if quantity == "pdr":
            return typical_drop_rates(runs[None], self.case.limit).at(0)
        return typical_interval(runs)

    @property
    def loads_met(self) -> list[int]:
        """The loads with a valid run."""
        there = ~np.isnan(self.runs("pdr")).all(axis=1)
        return [int(cps) for cps in self.case.loads_cps[there]]

    @property
    def loads_around(self) -> tuple[float, float]:
        """The last load before the mean PDR exceeds the limit, and the next load.

        See `crossing_load.grid_capacity`: -inf and inf if no such load exists, NaN without a run.
        """
        mean, _, _ = mean_intervals(self.runs("pdr"))
        return grid_capacity(self.case.loads_cps, mean, self.case.limit)

    @property
    def capacity(self) -> SweepCapacity:
        """The load at which the PDR passes the limit."""
        return capacity(self.case.loads_cps, self.runs("pdr"), self.case.limit)

    @property
    def why_not_measured(self) -> str:
        """Reason for a missing run."""
        return why_not_measured(self.case.summary, self.place, self.mode)

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Settings of the mode in the records, one entry per distinct set."""
        return settings_of(self.case.summary, self.place, self.mode)

    @property
    def _printed(self) -> pd.DataFrame:
        points = self.case.points
        return points[
            (points["cores"] == self.place.cores)
            & (points["threads"] == self.place.threads)
            & (points["mode"] == self.mode)
        ]

    @property
    def printed_loads(self) -> tuple[int | None, int | None]:
        """The two published loads around the limit; None if they were not published."""
        if self._printed.empty:
            return None, None
        row = crossings(self._printed, self.case.limit).iloc[0]
        last, first = (row[name] for name in ("last_cps", "first_cps"))
        return (
            None if pd.isna(last) else int(last),
            None if pd.isna(first) else int(first),
        )

    def printed_values(self, cps: int | None) -> Mapping[str, str]:
        """Return the published texts at a load, by metric; empty without a publication."""
        among = self._printed[self._printed["cps"] == (-1 if cps is None else cps)]
        return dict(zip(among["metric"], among["printed"], strict=True))

    @property
    def printed_crossing(self) -> float:
        """The load of the limit, interpolated between the two published loads; NaN without both loads."""
        loads = [cps for cps in self.printed_loads if cps is not None]
        if len(loads) < 2:
            return np.nan
        rates = [float(self.printed_values(cps)["pdr"]) for cps in loads]
        return crossing(loads, rates, self.case.limit).interval.estimate


def of_type(kind: str, name: str) -> str:
    """Return the name of a quantity of one message type, as in `quantities`."""
    return f"{kind} {name}"


def quantities(runs: xr.Dataset) -> dict[str, xr.DataArray]:
    """Compute all compared quantities.

    Returns
    -------
    dict
        Quantities over the dimensions of the runs; NaN where a run is invalid or its probe cannot measure the quantity.
        The papers' metrics have their names in `sipsched.analysis.papers.METRICS`. Other quantities are `pdr` (share),
        `k_rcv` and the names of `PARTS` (µs, means over all messages), `t_sip_off_share` (%) and `calls`. Per message
        type, named by `of_type`, they are `k_rcv`, `t_sip` (µs, means) and `refused`, the share of refused datagrams
        (%).
    """
    every = runs.sel(message_type=ALL)
    setup = runs.sel(message_type=list(SETUP))
    drops = setup["drops"].sum("message_type", skipna=False)
    found = {
        "arrival_rate_pps": MESSAGES_PER_CALL * runs["achieved_cps"],
        "t_sip_us": every["t_sip_mean"],
        "k_rcv_us": every["k_rcv_mean"],
        "rcv_errors": runs["rcvbuf_errors"],
        "call_setup_drops": drops,
        "call_setup_messages": setup["count"].sum("message_type", skipna=False) + drops,
        "total_messages": runs["in_datagrams"] + runs["rcvbuf_errors"],
        "pdr": runs["pdr"],
        "k_rcv": every["k_rcv_mean"],
        "t_sip_off_share": 100 * every["t_sip_off_mean"] / every["t_sip_mean"],
        "k_sockq_alone": runs["k_sockq_alone"],
        "service": overall_service_time(runs),
        "calls": runs["calls_created"],
        **{
            name: every[f"{name}_mean"]
            for name in ("k_stack", "k_sockq", "k_copy", "t_sip", "t_sip_off", "k_snd")
        },
    }
    for kind in KINDS:
        each = runs.sel(message_type=kind)
        found |= {of_type(kind, name): each[f"{name}_mean"] for name in COMPARED_BY_TYPE}
        found[of_type(kind, "refused")] = 100 * each["drops"] / (each["count"] + each["drops"])
    return found


def labels(summary: xr.Dataset) -> dict[str, str]:
    """Name each mode as the kernels of the runs applied it, such as "enhanced (without latency_ns)"."""
    return {
        mode: " / ".join(sorted(set(map(plain, found)))) or mode
        for mode, found in _recorded_labels(summary).items()
    }


def translations(summary: xr.Dataset) -> tuple[str, ...]:
    """List the modes that were translations on one of the runs' kernels."""
    found = _recorded_labels(summary)
    return tuple(mode for mode in found if any(map(is_translation, found[mode])))


def _recorded_labels(summary: xr.Dataset) -> dict[str, list[str]]:
    found = {}
    for mode in summary["mode"].to_numpy():
        texts = summary["mode_label"].sel(mode=mode).to_numpy().ravel()
        found[str(mode)] = [str(text) for text in texts if text]
    return found


def labelled(summary: xr.Dataset) -> xr.Dataset:
    """Return the summary with the labels of the modes instead of their names, for figures and tables."""
    return summary.assign_coords(mode=list(labels(summary).values()))


def runs_at(values: xr.DataArray, place: Place, mode: str, cps: float | None = None) -> Values:
    """Return a quantity of the valid runs of a mode in a setting.

    Returns
    -------
    ndarray
        Shape (rep,) at a load, (load, rep) without a load; NaN without a run.
    """
    dims = ("cps", "rep") if cps is None else ("rep",)
    at = _at(values, place, mode, **({} if cps is None else {"cps": cps}))
    if at is None:
        return np.full([values.sizes[dim] for dim in dims], np.nan)
    return np.asarray(values.sel(at).transpose(*dims).to_numpy(), float)


def why_not_measured(summary: xr.Dataset, place: Place, mode: str) -> str:
    """Return the reason for missing runs of a mode in a setting."""
    status = summary["status"]
    at = _at(status, place, mode)
    if at is None:
        return NOT_PLANNED
    words = status.sel(at).to_numpy().ravel().tolist()
    counts = [f"{words.count(word)} {word}" for word in (INVALID, MISSING) if word in words]
    return f"{NOT_MEASURED}: {', '.join(counts)}" if counts else NOT_MEASURED


def settings_of(summary: xr.Dataset, place: Place, mode: str) -> list[dict[str, Any]]:
    """Return the recorded settings of a mode, one entry per distinct set."""
    texts = summary["mode_settings"]
    at = _at(texts, place, mode)
    if at is None:
        return []
    known = dict.fromkeys(str(text) for text in texts.sel(at).to_numpy().ravel())
    return [settings for text in known if text and (settings := json.loads(text))]


def _at(values: xr.DataArray, place: Place, mode: str, **more: float) -> dict[Any, Any] | None:
    """Return the coordinates of a mode in a setting; None if the study lacks a coordinate."""
    at: dict[Any, Any] = place._asdict() | {"mode": mode} | more
    return None if any(value not in values[dim].to_numpy() for dim, value in at.items()) else at


def relative(values: Sequence[float] | Values, printed: float) -> Interval:
    """Return the excess of the mean of runs over a published number without an interval, in percent."""
    return typical_interval(values).map(lambda value: 100 * (value / printed - 1))
