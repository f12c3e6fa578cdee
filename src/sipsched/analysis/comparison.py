"""The comparison of two scheduler modes in a study, and the published numbers of the papers for both modes."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from sipsched.analysis.papers import (
    MESSAGES_PER_CALL,
    crossings,
    load_comparison,
    load_points,
)
from sipsched.analysis.run_table import Buffers, counted, receive_buffers
from sipsched.errors import StableError
from sipsched.plan.modes import DEFAULT, is_translation, plain
from sipsched.records.study_summary import INVALID, MISSING, NOT_PLANNED
from sipsched.records.summary_variables import ALL
from sipsched.words import plural

SETUP = ("INVITE", "180", "200-INVITE", "ACK")
"""Types of the messages that set up a call."""
KINDS = (*SETUP, "BYE", "200-BYE")
PARTS = {
    "k_stack": "K_stack",
    "k_sockq": "K_sockq",
    "k_copy": "K_copy",
    "t_sip": "T_sip",
    "t_sip_off": "T_sip, part off CPU",
    "k_snd": "K_snd",
    "k_sockq_alone": "K_sockq^s",
    "service": "E[x]",
}
"""The parts of a message's time in the SPS (the proxy's host) and the total, with their names on pages. Unit: µs."""
COMPETITOR = "competitor"
"""The word that precedes each competing task in the description of a testbed."""
BESIDE_TASK = " + task"
"""The end of a SUT's name on the page that compares kernels, if another task ran on the proxy's CPUs."""
COMPARED = ("pdr", "k_rcv")
COMPARED_BY_TYPE = ("k_rcv", "t_sip")
SutOnCores = tuple[str, int]
"""SUT and number of cores. Pages have one figure or table for each combination."""


class Place(NamedTuple):
    """A setting in which two scheduler modes are compared: system under test, number of cores and threads."""

    sut: str
    cores: int
    threads: int

    def __str__(self) -> str:
        """Return the numbers of cores and threads as text."""
        return f"{plural(self.cores, 'core')}, {plural(self.threads, 'thread')}"


class ComparedQuantity(NamedTuple):
    """The quantity, the load and the setting for which a page compares two modes."""

    place: Place
    cps: int
    quantity: str


Comparisons = Family[ComparedQuantity]
JOINED: Mapping[str, Any] = {
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "join": "exact",
}
"""Options of `xarray.concat` for summaries with equal loads, threads and repetitions."""


@dataclass(frozen=True)
class Case:
    """The two modes that a page compares, and the runs of the study.

    Attributes
    ----------
    points, printed
        Published tables from `sipsched.analysis.papers.load_points` and `load_comparison`.
    compares
        The word for the two sides of the comparison: "mode" or "kernel".
    """

    summary: xr.Dataset
    points: pd.DataFrame
    printed: pd.DataFrame
    reference: str
    other: str
    limit: float = PDR_LIMIT
    compares: str = "mode"

    @cached_property
    def values(self) -> dict[str, xr.DataArray]:
        """The values of all compared quantities in the valid runs. The keys are the names from `quantities`."""
        return quantities(counted(self.summary))

    @cached_property
    def labels(self) -> dict[str, str]:
        """The text by which pages name each mode, from the function `labels`. The key is the mode's name."""
        return labels(self.summary)

    @property
    def modes(self) -> tuple[str, ...]:
        """The two compared modes, and then all other modes of the study."""
        rest = (str(mode) for mode in self.summary["mode"].to_numpy())
        return tuple(dict.fromkeys((self.reference, self.other, *rest)))

    @property
    def loads_cps(self) -> Values:
        """The loads of the study, in ascending order."""
        return np.asarray(self.summary["cps"].to_numpy(), float)

    @property
    def share(self) -> str:
        """The limit of the packet drop rate in percent, as text."""
        return f"{100 * self.limit:g}\u00a0%"

    def label(self, mode: str) -> str:
        """Return a mode's name for pages, including the settings that the kernel could not apply."""
        return self.labels.get(mode, mode)

    def translated(self, mode: str) -> bool:
        """Return True if the kernel of at least one run could only approximate the mode.

        The papers defined such a mode for CFS, and the kernel has a different scheduler.
        """
        return any(
            settings["translated"]
            for place in self.places()
            for settings in self.side(place, mode).settings
        )

    @property
    def competitors(self) -> list[str]:
        """The declared tasks that ran on the proxy's CPUs, each with its CPU time, from the testbed's description."""
        description = str(self.summary.attrs["testbed_description"])
        return [*dict.fromkeys(re.findall(f"{COMPETITOR} ([^;]+)", description))]

    @property
    def both(self) -> tuple[str, str]:
        """The names of the two compared modes, as pages show them."""
        return self.label(self.reference), self.label(self.other)

    @property
    def buffers(self) -> dict[str, Buffers]:
        """The sizes of the receive buffers per SUT and mode, from the valid runs of the two compared modes."""
        runs = counted(self.summary)["so_rcvbuf"].to_dataframe().reset_index()
        runs = runs[runs["mode"].isin((self.reference, self.other))]
        return {
            str(sut): receive_buffers(rows, "mode") for sut, rows in runs.groupby("sut", sort=False)
        }

    def name(self, place: Place) -> str:
        """Return a setting as text: cores and threads, and the SUT only if the study has several SUTs."""
        return str(place) if self.summary.sizes["sut"] == 1 else f"{place.sut}, {place}"

    @property
    def systems(self) -> list[SutOnCores]:
        """All planned combinations of SUT and number of cores."""
        planned = (self.summary["status"] != NOT_PLANNED).any(("mode", "threads", "cps", "rep"))
        return [
            (str(sut), int(cores))
            for sut in self.summary["sut"].to_numpy()
            for cores in self.summary["cores"].to_numpy()
            if bool(planned.sel(sut=sut, cores=cores))
        ]

    def places(self, system: SutOnCores | None = None, published: bool = False) -> list[Place]:
        """Return all planned settings of the study. If `published` is true, add the settings of the papers."""
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

    def measured_first(self, system: SutOnCores | None, *modes: str) -> list[Place]:
        """Return the planned and published settings. Settings with a run in one of the given modes come first."""

        def unmeasured(place: Place) -> bool:
            return not any(self.side(place, mode).loads_met for mode in modes)

        return sorted(self.places(system, published=True), key=unmeasured)

    def side(self, place: Place, mode: str) -> "Side":
        """Return the measured runs and the published numbers of one mode in a setting."""
        return Side(self, place, mode)

    def sides(self, place: Place) -> tuple["Side", "Side"]:
        """Return the runs and the published numbers of the two compared modes for a setting."""
        return self.side(place, self.reference), self.side(place, self.other)

    def compared_load(self, place: Place) -> int | None:
        """Return the load of the papers' comparison: the first load above the drop limit in the reference mode.

        If the other mode has no run at this load, or if no load is above the limit, return the highest load at which
        both modes have a valid run; None without such a load.
        """
        reference, other = self.sides(place)
        met = set(reference.loads_met) & set(other.loads_met)
        _, first = reference.loads_around
        return int(first) if first in met else max(met, default=None)

    def loads_compared(self, place: Place) -> list[int]:
        """Return the loads (cps) just below and above each mode's capacity, and the load of the papers' comparison."""
        sides = self.sides(place)
        met = set(sides[0].loads_met) & set(sides[1].loads_met)
        around = {load for side in sides for load in side.loads_around}
        chosen = self.compared_load(place)
        return sorted(cps for cps in met if cps in around or cps == chosen)

    def family(self) -> Comparisons:
        """Compare the drop rate and the mean receiving time of the two modes at the loads from `loads_compared`."""
        return self._together(
            ComparedQuantity(place, cps, name)
            for place in self.places()
            for cps in self.loads_compared(place)
            for name in COMPARED
        )

    def family_of_parts(self) -> Comparisons:
        """Compare the parts of a message's time between the two modes, at the load of the papers' comparison."""
        return self._together(self._at_compared_load(PARTS))

    def family_of_types(self) -> Comparisons:
        """Compare receiving and service time of the two modes per message type, at the load from `compared_load`."""
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
        """Return by how many percent the capacity in a mode exceeds the capacity in the reference mode."""
        first, second = (self.side(place, name).runs("pdr") for name in (self.reference, mode))
        if np.isnan(first).all() or np.isnan(second).all():
            return Interval.without(np.nan, 0, level, NOT_MEASURED)
        ratio = crossing_ratio(self.loads_cps, first, second, self.limit, level)
        return ratio.map(lambda value: 100 * (value - 1))

    @property
    def more_load_level(self) -> float:
        """The confidence level for intervals of `more_load`, chosen so that all intervals hold simultaneously."""
        met = [
            (place, mode)
            for place in self.places()
            if self.side(place, self.reference).loads_met
            for mode in self.modes
            if mode != self.reference and self.side(place, mode).loads_met
        ]
        return simultaneous_level(len(met))

    @property
    def beside_papers(self) -> bool:
        """True if the page shows published numbers beside the measured runs."""
        return not self.printed.empty

    def printed_comparison(self, place: Place) -> Mapping[Any, Any] | None:
        """Return the row of a paper's comparison table for the two modes in a setting; None without such a row."""
        if (self.reference, self.other) != ("baseline", "enhanced"):
            return None
        rows = self.printed[
            (self.printed["cores"] == place.cores) & (self.printed["threads"] == place.threads)
        ]
        return None if rows.empty else rows.iloc[0].to_dict()

    def same_settings(self, place: Place) -> bool | None:
        """Return True if the kernel applied equal settings in both modes; None if the settings are unknown."""
        of_sides = [side.settings for side in self.sides(place)]
        if not all(of_sides):
            return None
        in_force = [
            {json.dumps(setting["in_force"], sort_keys=True) for setting in settings}
            for settings in of_sides
        ]
        return in_force[0] == in_force[1] and len(in_force[0]) == 1


@dataclass(frozen=True)
class Side:
    """One scheduler mode in one setting, with measured and published numbers."""

    case: Case
    place: Place
    mode: str

    @property
    def label(self) -> str:
        """The mode's name for pages, including the settings that the kernel could not apply."""
        return self.case.label(self.mode)

    def runs(self, quantity: str, cps: float | None = None) -> Values:
        """Return a quantity's values in the valid runs: shape (rep,) for one load, (load, rep) for all loads."""
        return runs_at(self.case.values[quantity], self.place, self.mode, cps)

    def mean(self, quantity: str, cps: float) -> Interval:
        """Return the value of a quantity in a typical run at a load (`intervals.typical_intervals`)."""
        runs = self.runs(quantity, cps)
        if quantity == "pdr":
            return typical_drop_rates(runs[None], self.case.limit).at(0)
        return typical_interval(runs)

    @property
    def loads_met(self) -> list[int]:
        """The loads (cps) at which the mode has a valid run in the setting."""
        there = ~np.isnan(self.runs("pdr")).all(axis=1)
        return [int(cps) for cps in self.case.loads_cps[there]]

    @property
    def loads_around(self) -> tuple[float, float]:
        """The last load (cps) before the mean packet drop rate exceeds the limit, and the next higher load.

        See `crossing_load.grid_capacity`: -inf and inf if no such load exists, NaN if no run exists.
        """
        mean, _, _ = mean_intervals(self.runs("pdr"))
        return grid_capacity(self.case.loads_cps, mean, self.case.limit)

    @property
    def capacity(self) -> SweepCapacity:
        """The capacity by two definitions: largest load within the limit of the packet drop rate, and interpolation."""
        return capacity(self.case.loads_cps, self.runs("pdr"), self.case.limit)

    @property
    def why_not_measured(self) -> str:
        """The reason why runs of the mode in the setting are missing."""
        return why_not_measured(self.case.summary, self.place, self.mode)

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The recorded settings of the mode. Settings that several runs share are listed once."""
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
        """The papers' loads just below and just above the drop limit; None if the papers have no such load."""
        if self._printed.empty:
            return None, None
        row = crossings(self._printed, self.case.limit).iloc[0]
        last, first = (row[name] for name in ("last_cps", "first_cps"))
        return (
            None if pd.isna(last) else int(last),
            None if pd.isna(first) else int(first),
        )

    def printed_values(self, cps: int | None) -> Mapping[str, str]:
        """Return the text that the papers print for each metric at a load; empty if they have no such load."""
        among = self._printed[self._printed["cps"] == (-1 if cps is None else cps)]
        return dict(zip(among["metric"], among["printed"], strict=True))

    @property
    def printed_crossing(self) -> float:
        """The load at which the published packet drop rate passes the limit, by interpolation; NaN if unknown."""
        if None in self.printed_loads:
            return np.nan
        row = crossings(self._printed, self.case.limit).iloc[0]
        loads, rates = (
            [row[f"{end}_{name}"] for end in ("last", "first")] for name in ("cps", "rate")
        )
        return crossing(loads, rates, self.case.limit).interval.estimate


def of_type(kind: str, name: str) -> str:
    """Return the key in the result of `quantities` for the quantity `name` of the message type `kind`."""
    return f"{kind} {name}"


def quantities(runs: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the values of all quantities that pages compare between modes, with one array per quantity.

    Returns
    -------
    dict
        Quantities over the dimensions of the runs. NaN if a run is invalid or its probe cannot measure the quantity.
        The papers' metrics have the names in `sipsched.analysis.papers.METRICS`. Other quantities are `pdr` (share),
        `k_rcv` and the names of `PARTS` (µs, means over all messages), `t_sip_off_share` (%) and `calls`. Per message
        type, with names from `of_type`, the quantities are `k_rcv`, `t_sip` (µs, means) and `refused`, the share of
        refused datagrams (%).
    """
    every = runs.sel(message_type=ALL)
    setup = runs.sel(message_type=list(SETUP))
    drops = setup["drops"].sum("message_type", skipna=False)
    setup_messages = setup["count"].sum("message_type", skipna=False) + drops
    messages = runs["in_datagrams"] + runs["rcvbuf_errors"]
    columns = {
        "arrival_rate_pps": MESSAGES_PER_CALL * runs["achieved_cps"],
        "t_sip_us": every["t_sip_mean"],
        "k_rcv_us": every["k_rcv_mean"],
        "rcv_errors": runs["rcvbuf_errors"],
        # The papers count no drops per type. They multiply all drops by the share of call-setup messages, so this code
        # does the same.
        "call_setup_drops": runs["rcvbuf_errors"] * setup_messages / messages,
        "call_setup_messages": setup_messages,
        "total_messages": messages,
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
        ds = runs.sel(message_type=kind)
        columns |= {of_type(kind, name): ds[f"{name}_mean"] for name in COMPARED_BY_TYPE}
        columns[of_type(kind, "refused")] = 100 * ds["drops"] / (ds["count"] + ds["drops"])
    return columns


def labels(summary: xr.Dataset) -> dict[str, str]:
    """Return the text by which pages name each mode, such as "enhanced (without latency_ns)".

    The part in brackets names the settings of the mode that the kernel could not apply.
    """
    return {
        mode: " / ".join(sorted(set(map(plain, texts)))) or mode
        for mode, texts in _recorded_labels(summary).items()
    }


def translations(summary: xr.Dataset) -> tuple[str, ...]:
    """Return the modes that the kernel of at least one run could only approximate.

    The papers defined these modes for CFS, and the kernel has a different scheduler.
    """
    by_mode = _recorded_labels(summary)
    return tuple(mode for mode in by_mode if any(map(is_translation, by_mode[mode])))


def _recorded_labels(summary: xr.Dataset) -> dict[str, list[str]]:
    by_mode = {}
    for mode in summary["mode"].to_numpy():
        texts = summary["mode_label"].sel(mode=mode).to_numpy().ravel()
        by_mode[str(mode)] = [str(text) for text in texts if text]
    return by_mode


def labelled(summary: xr.Dataset) -> xr.Dataset:
    """Return the summary of a study with the labels of the modes instead of their names, for figures and tables."""
    return summary.assign_coords(mode=list(labels(summary).values()))


def kernels_case(summaries: Sequence[xr.Dataset]) -> Case:
    """Compare kernels as modes: the runs of a study with one mode, on testbeds that differ in the kernel.

    The modes are the kernels in alphabetical order, such as "CFS (Linux 6.1)" and "EEVDF (Linux 6.12)". Runs on a
    testbed with declared competitors (other programs on the proxy's CPUs) count as a separate SUT. The case excludes
    testbeds without a run.

    Raises
    ------
    StableError
        The summaries are from only one kernel.
    """

    def beside(summary: xr.Dataset) -> str:
        return BESIDE_TASK if COMPETITOR in summary.attrs["testbed_description"] else ""

    return _testbeds_case(summaries, _kernel, beside, "kernel")


def packages_case(summaries: Sequence[xr.Dataset]) -> Case:
    """Compare numbers of processor packages as modes: the runs in the default mode, on testbeds that differ in them.

    The modes are "2 packages", which is the reference, and "1 package". Runs on different kernels count as separate
    SUTs. The case excludes testbeds without a run.

    Raises
    ------
    StableError
        The summaries are from testbeds with the same number of packages, or a testbed's description names no packages.
    """
    return _testbeds_case(
        [summary.sel(mode=[DEFAULT]) for summary in summaries],
        lambda summary: _packages(summary) if _kernel(summary) else "",
        lambda summary: f", {_kernel(summary)}",
        "testbed",
        descending=True,
    )


def _testbeds_case(
    summaries: Sequence[xr.Dataset],
    side_of: Callable[[xr.Dataset], str],
    group_of: Callable[[xr.Dataset], str],
    compares: str,
    descending: bool = False,
) -> Case:
    """Compare testbeds as modes.

    Parameters
    ----------
    summaries
        Summaries of a study with one mode, one per testbed.
    side_of
        Returns the name of the mode for a summary; empty without a run.
    group_of
        Returns the end of the SUT's name for a summary. Only testbeds with the same end are compared.
    compares
        The word for what the modes are.
    descending
        Whether the reference is the last name in alphabetical order, instead of the first.
    """
    groups: dict[str, dict[str, xr.Dataset]] = {}
    for summary in summaries:
        if side := side_of(summary):
            groups.setdefault(group_of(summary), {})[side] = summary
    complete = {end: group for end, group in groups.items() if len(group) == 2}
    if not complete:
        # The page needs two modes even if nothing can be compared, so the first two summaries stand for two modes.
        pair = enumerate(summaries[:2])
        complete = {"": {side_of(s) or f"{compares} {i + 1}, not measured": s for i, s in pair}}
    by_group = [
        xr.concat(
            [_named(group[side], side, end) for side in sorted(group, reverse=descending)],
            "mode",
            **JOINED,
        )
        for end, group in complete.items()
    ]
    joined = xr.concat(by_group, "sut", **JOINED)
    if joined.sizes["mode"] != 2:
        raise StableError(
            f"comparison of {compares}s: expected two {compares}s, found {joined.sizes['mode']}"
        )
    used = [summary for group in complete.values() for summary in group.values()]
    for name in ("testbed", "kernels", "testbed_description"):
        joined.attrs[name] = "; ".join(dict.fromkeys(str(s.attrs[name]) for s in used))
    reference, other = map(str, joined["mode"].to_numpy())
    # No paper compares testbeds, so the case has no published numbers.
    return Case(
        joined, load_points()[:0], load_comparison()[:0], reference, other, compares=compares
    )


def _packages(summary: xr.Dataset) -> str:
    """Return the number of processor packages to which the SPS's CPUs belong, as text."""
    description = str(summary.attrs["testbed_description"])
    shape = re.search(r"sockets? of (\d+) cores", description)
    cpus = re.search(r"SPS on CPUs? ([\d, –]+)", description)
    if not (shape and cpus):
        raise StableError(
            f"comparison of packages: the description of testbed {summary.attrs['testbed']} names no sockets and "
            f"CPUs; compare testbeds of kind virtual (found: {description})"
        )
    ranges = re.findall(r"(\d+)(?:–(\d+))?", cpus[1])
    numbers = [cpu for first, last in ranges for cpu in range(int(first), int(last or first) + 1)]
    return plural(len({cpu // int(shape[1]) for cpu in numbers}), "package")


def _kernel(summary: xr.Dataset) -> str:
    """Return the scheduler and the Linux version of a summary's testbed as text; empty without a run."""
    family = next(filter(None, map(str, summary["scheduler_family"].to_numpy().ravel())), "")
    release = ".".join(str(summary.attrs["kernels"]).split(".")[:2])
    return f"{family.split()[0].rstrip(',')} (Linux {release})" if family else ""


def _named(summary: xr.Dataset, side: str, end: str) -> xr.Dataset:
    """Return a summary with `side` as the name of its mode, and with `end` after the names of the SUTs."""
    label = summary["mode_label"]
    return summary.assign(mode_label=label.where(label == "", side)).assign_coords(
        mode=[side], sut=[f"{sut}{end}" for sut in summary["sut"].to_numpy()]
    )


def runs_at(values: xr.DataArray, place: Place, mode: str, cps: float | None = None) -> Values:
    """Return the values of a quantity in the valid runs that have a given mode and setting.

    Returns
    -------
    ndarray
        Shape (rep,) for a load, shape (load, rep) without a load; NaN if no run exists.
    """
    dims = ("cps", "rep") if cps is None else ("rep",)
    at = _at(values, place, mode, **({} if cps is None else {"cps": cps}))
    if at is None:
        return np.full([values.sizes[dim] for dim in dims], np.nan)
    return np.asarray(values.sel(at).transpose(*dims).to_numpy(), float)


def why_not_measured(summary: xr.Dataset, place: Place, mode: str) -> str:
    """Return the reason why runs with a mode and a setting are missing."""
    status = summary["status"]
    at = _at(status, place, mode)
    if at is None:
        return NOT_PLANNED
    words = status.sel(at).to_numpy().ravel().tolist()
    counts = [f"{words.count(word)} {word}" for word in (INVALID, MISSING) if word in words]
    return f"{NOT_MEASURED}: {', '.join(counts)}" if counts else NOT_MEASURED


def settings_of(summary: xr.Dataset, place: Place, mode: str) -> list[dict[str, Any]]:
    """Return the recorded settings of a mode. Settings that several runs share are listed once."""
    texts = summary["mode_settings"]
    at = _at(texts, place, mode)
    if at is None:
        return []
    known = dict.fromkeys(str(text) for text in texts.sel(at).to_numpy().ravel())
    return [settings for text in known if text and (settings := json.loads(text))]


def _at(values: xr.DataArray, place: Place, mode: str, **more: float) -> dict[Any, Any] | None:
    """Return the coordinates that select a mode and a setting in a dataset; None if the dataset lacks one of them."""
    at: dict[Any, Any] = place._asdict() | {"mode": mode} | more
    return None if any(value not in values[dim].to_numpy() for dim, value in at.items()) else at


def relative(values: Sequence[float] | Values, printed: float) -> Interval:
    """Return by how many percent the value of a typical measured run exceeds a published number."""
    return typical_interval(values).map(lambda value: 100 * (value / printed - 1))
