"""Scheduler modes side by side, and beside what the papers print of the same ones: the numbers."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from sipsched.analysis.families import Family, Pair, compare_together
from sipsched.analysis.papers import MESSAGES_PER_CALL, SHORT, crossings
from sipsched.analysis.run_table import counted, provenance
from sipsched.analysis.statistics import (
    LEVEL,
    NOT_MEASURED,
    PDR_LIMIT,
    Capacity,
    Interval,
    capacity,
    crossing,
    crossing_ratio,
    grid_capacity,
    mean_interval,
    mean_intervals,
    simultaneous_level,
)
from sipsched.records.summary import (
    ALL,
    INVALID,
    MISSING,
    NOT_PLANNED,
    overall_service_time,
)
from sipsched.words import number, plural

SETUP = ("INVITE", "180", "200-INVITE", "ACK")
"""The messages that set a call up; BYE and its 200 end it."""
KINDS = (*SETUP, "BYE", "200-BYE")
PARTS = {
    "k_stack": "K_stack (µs)",
    "k_sockq": "K_sockq (µs)",
    "k_copy": "K_copy (µs)",
    "t_sip": "T_sip (µs)",
    "t_sip_off": "T_sip, of it off CPU (µs)",
    "k_snd": "K_snd (µs)",
    "k_sockq_alone": "K_sockq^s (µs)",
    "service": "E[x] (µs)",
}
"""What a message's time in the SPS is made of, and the overall service time."""
SERVICE = (
    "E[x] = K_stack + K_sockq^s + K_copy + T_sip + K_snd, the overall service time of the "
    "single-core paper (section III). K_sockq^s, waking the worker and dequeuing, has no stamp of "
    "its own: it is the mean K_sockq of messages that came when every earlier one had left the SPS."
)
COMPARED = ("pdr", "k_rcv")
LARGEST_TOLD = 9999
"""Percent; the interval of a ratio over two pairs may reach to 1e30."""

Values = npt.NDArray[np.float64]


class Place(NamedTuple):
    """Where modes are compared: everything but mode, load and repetition."""

    sut: str
    cores: int
    threads: int

    def __str__(self) -> str:
        """Name it as a person would."""
        return f"{plural(self.cores, 'core')}, {plural(self.threads, 'thread')}"


class Asked(NamedTuple):
    """What is compared: a quantity at a load of a place."""

    place: Place
    cps: int
    quantity: str


Comparisons = Family[Asked]


@dataclass(frozen=True)
class Case:
    """What is compared with what.

    Attributes
    ----------
    summary
        Combined summary of a study on one testbed.
    points, printed
        As `sipsched.analysis.papers.load_points` and `load_comparison` return them.
    reference, other
        Two modes.
    limit
        Packet drop rate at which capacity ends, as a share.
    """

    summary: xr.Dataset
    points: pd.DataFrame
    printed: pd.DataFrame
    reference: str
    other: str
    limit: float = PDR_LIMIT

    @cached_property
    def counted(self) -> xr.Dataset:
        """The runs that count."""
        return counted(self.summary)

    @cached_property
    def values(self) -> dict[str, xr.DataArray]:
        """What `quantities` gives."""
        return quantities(self.counted)

    @property
    def modes(self) -> tuple[str, ...]:
        """The two compared, then every other mode of the study."""
        rest = (str(mode) for mode in self.summary["mode"].to_numpy())
        return tuple(dict.fromkeys((self.reference, self.other, *rest)))

    @property
    def share(self) -> str:
        """The limit, written out."""
        return f"{100 * self.limit:g}\u00a0%"

    def label(self, mode: str) -> str:
        """Name a mode as it was on this kernel."""
        return labels(self.summary).get(mode, mode)


def labels(summary: xr.Dataset) -> dict[str, str]:
    """Name each mode as it was on the kernels of the runs: "enhanced (EEVDF translation)"."""
    names = {}
    for mode in summary["mode"].to_numpy():
        found = summary["mode_label"].sel(mode=mode).to_numpy().ravel()
        names[str(mode)] = " / ".join(sorted({str(text) for text in found if text})) or str(mode)
    return names


def labelled(summary: xr.Dataset) -> xr.Dataset:
    """Give a summary in which the modes go by their labels, for figures and tables of any study."""
    return summary.assign_coords(mode=list(labels(summary).values()))


def systems(summary: xr.Dataset) -> list[tuple[str, int]]:
    """List the (sut, cores) that anything was planned for."""
    planned = (summary["status"] != NOT_PLANNED).any(("mode", "threads", "cps", "rep"))
    return [
        (str(sut), int(cores))
        for sut in summary["sut"].to_numpy()
        for cores in summary["cores"].to_numpy()
        if bool(planned.sel(sut=sut, cores=cores))
    ]


def places(case: Case, published: bool = False) -> list[Place]:
    """List the places that anything was planned for, with `published` those of the papers too."""
    summary = case.summary
    planned = (summary["status"] != NOT_PLANNED).any(("mode", "cps", "rep"))
    found = []
    for sut, cores in systems(summary):
        threads = {
            int(count)
            for count in summary["threads"].to_numpy()
            if bool(planned.sel(sut=sut, cores=cores, threads=count))
        }
        if published:
            threads |= set(case.points.loc[case.points["cores"] == cores, "threads"])
        found += [Place(sut, cores, int(count)) for count in sorted(threads)]
    return found


def runs_at(values: xr.DataArray, place: Place, mode: str, cps: float | None = None) -> Values:
    """Take the runs of a place under a mode.

    Returns
    -------
    ndarray
        Shape (rep,) at a load, (load, rep) without one; NaN where there is no run.
    """
    at: dict[Any, Any] = dict(zip(("sut", "cores", "threads"), place, strict=True))
    at |= {"mode": mode} | ({} if cps is None else {"cps": cps})
    dims = [dim for dim in ("cps", "rep") if dim not in at]
    if any(value not in values[dim].to_numpy() for dim, value in at.items()):
        return np.full([values.sizes[dim] for dim in dims], np.nan)
    return np.asarray(values.sel(at).transpose(*dims).to_numpy(), float)


def quantities(runs: xr.Dataset) -> dict[str, xr.DataArray]:
    """Compute everything that is compared.

    Parameters
    ----------
    runs
        Those that count, as `sipsched.analysis.run_table.counted` gives them.

    Returns
    -------
    dict
        Over the dimensions of the runs, NaN where a run does not count or its probe cannot give it.
        The papers' metrics by their names in `sipsched.analysis.papers.METRICS`; `pdr` (share), `k_rcv`
        and those of `PARTS` (µs, means over all messages), `t_sip_off_share` (%), `calls`.
    """
    every = runs.sel(message_type=ALL)
    setup = runs.sel(message_type=list(SETUP))
    drops = setup["drops"].sum("message_type", skipna=False)
    return {
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


def refused_share(runs: xr.Dataset) -> xr.DataArray:
    """Compute the share of datagrams of each type that was refused, in %; of the runs that count."""
    return 100 * runs["drops"] / (runs["count"] + runs["drops"])


def loads_met(case: Case, place: Place, mode: str) -> list[int]:
    """List the loads at which a run of a mode counts."""
    there = ~np.isnan(runs_at(case.values["pdr"], place, mode)).all(axis=1)
    return [int(cps) for cps in case.summary["cps"].to_numpy()[there]]


def loads_around(case: Case, place: Place, mode: str) -> tuple[float, float]:
    """Find the last load before the first one whose mean PDR is above the limit, and that one.

    Returns
    -------
    last, first
        As `statistics.grid_capacity`: -inf and inf where there is none, NaN without a run.
    """
    mean, _, _ = mean_intervals(runs_at(case.values["pdr"], place, mode))
    return grid_capacity(case.summary["cps"].to_numpy(), mean, case.limit)


def compared_load(case: Case, place: Place) -> int | None:
    """Choose the load of the papers' comparison: the first above the limit under the reference.

    Where the other mode has no run there, or no load is above: the highest that both have met.
    """
    both = set(loads_met(case, place, case.reference)) & set(loads_met(case, place, case.other))
    _, first = loads_around(case, place, case.reference)
    if first in both:
        return int(first)
    return max(both, default=None)


def loads_compared(case: Case, place: Place) -> list[int]:
    """List the loads next to the crossing of either mode that both have met, and the compared one."""
    both = set(loads_met(case, place, case.reference)) & set(loads_met(case, place, case.other))
    around = {
        load for mode in (case.reference, case.other) for load in loads_around(case, place, mode)
    }
    chosen = compared_load(case, place)
    return sorted(cps for cps in both if cps in around or cps == chosen)


def why_not_measured(summary: xr.Dataset, place: Place, mode: str) -> str:
    """Say why there is no run of a mode at a place."""
    status = summary["status"]
    at: dict[Any, Any] = dict(zip(("sut", "cores", "threads"), place, strict=True))
    at |= {"mode": mode}
    if any(value not in status[dim].to_numpy() for dim, value in at.items()):
        return NOT_PLANNED
    words = status.sel(at).to_numpy().ravel().tolist()
    counts = [f"{words.count(word)} {word}" for word in (INVALID, MISSING) if word in words]
    return f"{NOT_MEASURED}: {', '.join(counts)}" if counts else NOT_MEASURED


def family(case: Case) -> Comparisons:
    """Compare PDR and K_rcv under the two modes at the loads around their crossings."""
    return compare_together(
        {
            Asked(place, cps, name): _pair(case, case.values[name], place, cps)
            for place in places(case)
            for cps in loads_compared(case, place)
            for name in COMPARED
        }
    )


def family_of_parts(case: Case) -> Comparisons:
    """Compare the parts of a message's time under the two modes at the compared load."""
    return compare_together(
        {
            Asked(place, cps, name): _pair(case, case.values[name], place, cps)
            for place in places(case)
            if (cps := compared_load(case, place)) is not None
            for name in PARTS
        }
    )


def family_of_types(case: Case) -> Comparisons:
    """Compare K_rcv and T_sip of each message type; quantities are `<type> <name>`."""
    values = {
        f"{kind} {name}": case.counted[f"{name}_mean"].sel(message_type=kind)
        for kind in KINDS
        for name in ("k_rcv", "t_sip")
    }
    return compare_together(
        {
            Asked(place, cps, name): _pair(case, each, place, cps)
            for place in places(case)
            if (cps := compared_load(case, place)) is not None
            for name, each in values.items()
        }
    )


def _pair(case: Case, values: xr.DataArray, place: Place, cps: int) -> Pair:
    return (
        runs_at(values, place, case.reference, cps),
        runs_at(values, place, case.other, cps),
    )


def capacity_of(case: Case, place: Place, mode: str) -> Capacity:
    """Find where the PDR of a mode passes the limit."""
    return capacity(
        case.summary["cps"].to_numpy(), runs_at(case.values["pdr"], place, mode), case.limit
    )


def more_load(case: Case, place: Place, mode: str, level: float) -> Interval:
    """Say how many percent more load a mode carries to the limit than the reference."""
    first, second = (runs_at(case.values["pdr"], place, each) for each in (case.reference, mode))
    if np.isnan(first).all() or np.isnan(second).all():
        return Interval.without(np.nan, 0, level, NOT_MEASURED)
    cps = case.summary["cps"].to_numpy()
    ratio = crossing_ratio(cps, first, second, case.limit, level)
    return ratio.map(lambda value: 100 * (value - 1))


def more_load_level(case: Case) -> float:
    """Give the level of each interval of `more_load` that makes all of a report hold together."""
    met = [
        (place, mode)
        for place in places(case)
        for mode in case.modes
        if mode != case.reference
        and loads_met(case, place, mode)
        and loads_met(case, place, case.reference)
    ]
    return simultaneous_level(len(met))


def printed_loads(case: Case, place: Place, mode: str) -> tuple[int | None, int | None]:
    """Give the two loads around the limit that a paper prints; None where it prints none such."""
    points = case.points
    among = points[
        (points["cores"] == place.cores)
        & (points["threads"] == place.threads)
        & (points["mode"] == mode)
    ]
    if among.empty:
        return None, None
    row = crossings(among, case.limit).iloc[0]
    last, first = (row[name] for name in ("last_cps", "first_cps"))
    return (
        None if pd.isna(last) else int(last),
        None if pd.isna(first) else int(first),
    )


def printed_values(case: Case, place: Place, mode: str, cps: int | None) -> Mapping[str, str]:
    """Give what a paper prints at a load: metric to text; empty where it prints nothing."""
    points = case.points
    among = points[
        (points["cores"] == place.cores)
        & (points["threads"] == place.threads)
        & (points["mode"] == mode)
        & (points["cps"] == (-1 if cps is None else cps))
    ]
    return dict(zip(among["metric"], among["printed"], strict=True))


def printed_crossing(case: Case, place: Place, mode: str) -> float:
    """Interpolate the load of the limit between the two that a paper prints; NaN without both."""
    loads = [cps for cps in printed_loads(case, place, mode) if cps is not None]
    if len(loads) < 2:
        return np.nan
    rates = [float(printed_values(case, place, mode, cps)["pdr"]) for cps in loads]
    return crossing(loads, rates, case.limit).interval.estimate


def printed_comparison(case: Case, place: Place) -> Mapping[Any, Any] | None:
    """Give the row of a paper's comparison of the modes; None where it has none."""
    if (case.reference, case.other) != ("baseline", "enhanced"):
        return None
    rows = case.printed[
        (case.printed["cores"] == place.cores) & (case.printed["threads"] == place.threads)
    ]
    return None if rows.empty else rows.iloc[0].to_dict()


def settings_of(summary: xr.Dataset, place: Place, mode: str) -> list[dict[str, Any]]:
    """Give what a mode came to at a place: one entry for each that the records know of."""
    texts = summary["mode_settings"]
    at: dict[Any, Any] = dict(zip(("sut", "cores", "threads"), place, strict=True))
    at |= {"mode": mode}
    if any(value not in texts[dim].to_numpy() for dim, value in at.items()):
        return []
    known = dict.fromkeys(str(text) for text in texts.sel(at).to_numpy().ravel())
    return [settings for text in known if text and (settings := json.loads(text))]


def same_settings(case: Case, place: Place) -> bool | None:
    """Tell whether both modes came to the same settings at a place; None where it is not known."""
    found = [settings_of(case.summary, place, mode) for mode in (case.reference, case.other)]
    if not all(found):
        return None
    in_force = [
        {json.dumps(each["in_force"], sort_keys=True) for each in settings} for settings in found
    ]
    return in_force[0] == in_force[1] and len(in_force[0]) == 1


def relative(values: Sequence[float] | Values, printed: float) -> Interval:
    """Compare runs with a printed number, which has no interval: their mean is so many % more."""
    return mean_interval(values, least=0).map(lambda value: 100 * (value / printed - 1))


def signed(value: float) -> str:
    """Write a number with its sign; what is too large to mean anything as a bound."""
    if abs(value) > LARGEST_TOLD:
        bound = number(LARGEST_TOLD)
        return f"below −{bound}" if value < 0 else f"above +{bound}"
    return f"+{number(value)}" if value > 0 else number(value)


def plain(value: float) -> str:
    """Write a number as `signed` does, without its plus."""
    return signed(value).replace("+", "")


def told(interval: Interval, n: int | None = None, say: Any = number) -> str:
    """Write a number with its interval for a cell; its n where that is not the `n` of its row."""
    if np.isnan(interval.estimate):
        return interval.why
    if not interval.known:
        count = "" if interval.n == n else f", n = {interval.n}"
        return f"{say(interval.estimate)}{count}: {interval.why}"
    text = f"{say(interval.estimate)} ({say(interval.low)} to {say(interval.high)})"
    return text if interval.n == n else f"{text}, n = {interval.n}"


def corrected(found: Family[Any]) -> str:
    """Say how the cells of a family are corrected for their number."""
    if not found.tests:
        return "No pair of runs to compare."
    return (
        "Pairs: runs of one load and repetition, which meet the same arrivals. Intervals of "
        f"comparisons hold together at {100 * LEVEL:g} % over {plural(found.tests, 'cell')} "
        f"(each at {100 * found.level:.3g} %, Bonferroni); p: paired t test, after Holm."
    )


def p_text(value: float) -> str:
    """Write a p-value; nothing where there was no test."""
    if np.isnan(value):
        return ""
    text = "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
    return text.replace(" ", "\u00a0")


def where(case: Case, place: Place) -> str:
    """Name a place; the SUT only where there are several."""
    return str(place) if case.summary.sizes["sut"] == 1 else f"{place.sut}, {place}"


def study_of(cores: int) -> str:
    """Name the paper that has tables of this number of cores."""
    return "singlecore" if cores == 1 else "multicore"


def with_papers(case: Case, *studies: str) -> str:
    """Say where the numbers come from, the published ones too."""
    papers = f" Published: {'; '.join(SHORT[study] for study in studies)}." if studies else ""
    return provenance(case.summary).removesuffix(".") + "." + papers


def measured_first(case: Case, among: Iterable[Place], *modes: str) -> list[Place]:
    """Put the places with a run of one of the modes before those that are published only."""
    return sorted(among, key=lambda place: not any(loads_met(case, place, mode) for mode in modes))


def identity(*parts: object) -> str:
    """Make an id of an element that CSS can name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(map(str, parts)))
