"""Every run of a testbed in one table, whichever studies asked for it, and what it says together."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis.families import Pair
from sipsched.analysis.statistics import (
    PDR_LIMIT,
    Capacity,
    capacity,
)
from sipsched.errors import StableError
from sipsched.paths import locate
from sipsched.plan.config import Run
from sipsched.plan.crossover import is_comparison
from sipsched.records.record import Attempt
from sipsched.records.run_document import as_part
from sipsched.records.summary import (
    ALL,
    INVALID,
    MEASURED,
    MISSING,
    NOT_PLANNED,
    QUANTITIES,
    RUN_DIMS,
    RUN_LEVEL,
    STATISTICS,
    open_summary,
)
from sipsched.validity.verdict import Finding, in_words
from sipsched.words import plural

IMPOSSIBLE = "impossible"
STATUSES = (MEASURED, INVALID, MISSING, IMPOSSIBLE)
Point = tuple[Any, ...]
Facet = tuple[str, str, int]
"""SUT, mode, cores: what a row of panels shows."""
POINT = ("sut", "mode", "cores", "threads", "cps")
OF_ALL_MESSAGES = tuple(f"{name}_{statistic}" for name in QUANTITIES for statistic in STATISTICS)


def provenance(summary: xr.Dataset) -> str:
    """Say what the numbers are where nothing was measured; of what was the page says once where."""
    return _provenance(summary.attrs["kind"], summary.attrs["fidelity"])


def _provenance(kind: str, fidelity: str) -> str:
    return fidelity if kind == "simulated" else ""


def facets(summary: xr.Dataset) -> list[Facet]:
    """List the (sut, mode, cores) that anything was planned for, comparisons of modes left out.

    The whole of a run that switches between modes says nothing of any of them: its windows do.
    """
    planned = (summary["status"] != NOT_PLANNED).any(("threads", "cps", "rep"))
    return [
        (str(sut), str(mode), int(cores))
        for sut in summary["sut"].to_numpy()
        for mode in summary["mode"].to_numpy()
        if not is_comparison(str(mode))
        for cores in summary["cores"].to_numpy()
        if bool(planned.sel(sut=sut, mode=mode, cores=cores))
    ]


def facet_name(facet: Facet) -> str:
    """Name a facet as a person would."""
    sut, mode, cores = facet
    return f"{sut}, {mode}, {cores} {'core' if cores == 1 else 'cores'}"


def counted(summary: xr.Dataset) -> xr.Dataset:
    """Give the runs that count: a summary in which every number of another run is NaN.

    What a page shows of results comes from here, or of several studies from `Campaign.counted`. Texts
    stay: what a mode came to is known of a run that does not count, too.
    """
    numbers = [
        name
        for name, values in summary.data_vars.items()
        if values.dtype.kind in "fiu" and set(RUN_DIMS) <= set(values.dims)
    ]
    return summary.assign(summary[numbers].where(summary["status"] == MEASURED))


def iterate_runs(summary: xr.Dataset) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the tuple of each planned run and what became of it."""
    status = summary["status"]
    for place in np.ndindex(status.shape):
        word = str(status.to_numpy()[place])
        if word != NOT_PLANNED:
            key = {
                str(dim): status[dim].to_numpy()[i].item()
                for dim, i in zip(status.dims, place, strict=True)
            }
            yield key, word


@dataclass(frozen=True)
class Campaign:
    """What the studies of one testbed come to.

    Attributes
    ----------
    testbed, kind, fidelity, description, kernels
        As the records have them; several are joined by semicolons.
    studies
        Their names, or where that is not known the folders of their summaries.
    runs
        One row a planned run, in the order of the configuration, a run that several studies share once.
        Columns: the tuple, `status` (`STATUSES`), the run-level variables of a summary, and
        `OF_ALL_MESSAGES` in µs; NaN where a run does not count. A run is `invalid` also where attempts
        were made and none counts; `reasons` then has the last one's. It is `impossible` where it needs
        more cores than the SPS has.
    attempts
        Attempts that do not count.
    columns_missing
        Column of messages.nc, reason, number of runs.
    probe_mode_reasons
        Why the probe works as it does.
    hosts, settings, load
        Of the first run that has them.
    first
        The summary of the first study that has runs, for tables that show one run's host.
    """

    testbed: str
    kind: str
    fidelity: str
    description: str
    kernels: str
    studies: tuple[str, ...]
    runs: pd.DataFrame
    attempts: tuple[Attempt, ...]
    columns_missing: tuple[tuple[str, str, int], ...]
    probe_mode_reasons: tuple[str, ...]
    hosts: Mapping[str, Any]
    settings: Mapping[str, Any]
    load: Mapping[str, Any]
    first: xr.Dataset

    @property
    def provenance(self) -> str:
        """Say what the numbers are, as figures do."""
        return _provenance(self.kind, self.fidelity)

    @property
    def counted(self) -> pd.DataFrame:
        """The runs that count."""
        return self.runs[self.runs["status"] == MEASURED]

    @property
    def single(self) -> pd.DataFrame:
        """The runs that count and are of one mode each: the whole of a comparison is of none."""
        counted = self.counted
        return counted[~counted["mode"].map(is_comparison).astype(bool)]

    @property
    def traced(self) -> pd.DataFrame:
        """The runs of one mode each that count and are not control runs."""
        single = self.single
        return single[single["probe_mode"] != "off"]

    @property
    def comparisons(self) -> list[Run]:
        """The runs that count and compare modes."""
        counted = self.counted
        found = counted[counted["mode"].map(is_comparison).astype(bool)]
        names = found[[*RUN_DIMS]].itertuples(index=False)
        return [
            Run(self.testbed, str(sut), str(mode), *map(int, numbers))
            for sut, mode, *numbers in names
        ]


def find_summaries(testbed: str | None = None) -> list[Path]:
    """List the combined summaries that there are under results/, of one testbed or of all."""
    return sorted(locate("results").glob(f"*/{testbed or '*'}/summary.nc"))


def read_campaigns(summaries: Iterable[str | Path]) -> list[Campaign]:
    """Read the combined summaries of all studies, and put those of a testbed together.

    Parameters
    ----------
    summaries
        Files `results/<study>/<testbed>/summary.nc`.

    Raises
    ------
    StableError
        There is none, or one is missing or of another version.
    """
    found = campaigns_of(
        (path.parent.parent.name, open_summary(path)) for path in map(Path, summaries)
    )
    if not found:
        raise StableError(
            "no summary under results/; make them with: make reports (what is recorded), "
            "or snakemake (measures what is missing)"
        )
    return found


def campaigns_of(studies: Iterable[tuple[str, xr.Dataset]]) -> list[Campaign]:
    """Put the studies of a testbed together: names and combined summaries, in any order."""
    by_testbed: dict[str, list[tuple[str, xr.Dataset]]] = {}
    for name, ds in studies:
        by_testbed.setdefault(ds.attrs["testbed"], []).append((name, ds))
    return [_campaign(testbed, of_one) for testbed, of_one in by_testbed.items()]


def _campaign(testbed: str, studies: Sequence[tuple[str, xr.Dataset]]) -> Campaign:
    data = [ds for _, ds in studies]
    with_runs = [ds for ds in data if ds.attrs["hosts"] != "{}"]
    first = (with_runs or data)[0]

    def said(key: str) -> str:
        return "; ".join(dict.fromkeys(ds.attrs[key] for ds in with_runs or data))

    hosts = json.loads(first.attrs["hosts"])
    # Studies that share a run list the same attempts at it, and equal attempts are several.
    tallies: Counter[Attempt] = Counter()
    for ds in data:
        tallies |= Counter(attempts_of(ds))
    attempts = tuple(tallies.elements())
    runs = pd.concat([_rows(ds) for ds in data], ignore_index=True)
    # Missing or invalid in one study's summary, measured in another's: made at different times.
    ranks = runs["status"].map(STATUSES.index).to_numpy()
    runs = runs.iloc[ranks.argsort(kind="stable")]
    runs = runs.drop_duplicates(list(RUN_DIMS)).sort_index().reset_index(drop=True)
    reasons: dict[tuple[str, str], int] = {}
    for ds in data:
        for entry in json.loads(ds.attrs["columns_missing"]):
            key = (entry["column"], entry["reason"])
            reasons[key] = max(reasons.get(key, 0), entry["runs"])
    return Campaign(
        testbed=testbed,
        kind=said("kind"),
        fidelity=said("fidelity"),
        description=said("testbed_description"),
        kernels=said("kernels"),
        studies=tuple(name for name, _ in studies),
        runs=_refined(runs, testbed, attempts, hosts),
        attempts=attempts,
        columns_missing=tuple((*key, count) for key, count in reasons.items()),
        probe_mode_reasons=tuple(
            dict.fromkeys(
                reason for ds in data for reason in json.loads(ds.attrs["probe_mode_reasons"])
            )
        ),
        hosts=hosts,
        settings=json.loads(first.attrs["settings"]),
        load=json.loads(first.attrs["load"]),
        first=first,
    )


def attempts_of(ds: xr.Dataset) -> list[Attempt]:
    """List the attempts at a study's runs that do not count, as its summary has them."""
    listed = json.loads(ds.attrs.get("failed_attempts", "[]"))
    return as_part(list[Attempt], listed, "summary: failed_attempts")


def findings_of(text: str) -> list[Finding]:
    """Read the rules that a run broke, as a summary has them; empty text is none."""
    return as_part(list[Finding], json.loads(text or "[]"), "summary: findings")


def _rows(ds: xr.Dataset) -> pd.DataFrame:
    """Give a study's planned runs as rows."""
    planned = ds["status"].to_numpy().ravel() != NOT_PLANNED
    columns: dict[str, Any] = {}
    for dim, values in zip(
        RUN_DIMS, np.meshgrid(*(ds[dim].to_numpy() for dim in RUN_DIMS), indexing="ij"), strict=True
    ):
        columns[dim] = values.ravel()[planned]
    for name in ("status", *RUN_LEVEL):
        columns[name] = ds[name].transpose(*RUN_DIMS).to_numpy().ravel()[planned]
    for name in OF_ALL_MESSAGES:
        values = ds[name].sel(message_type=ALL).transpose(*RUN_DIMS)
        columns[name] = values.to_numpy().ravel()[planned]
    return pd.DataFrame(columns)


def _refined(
    runs: pd.DataFrame, testbed: str, attempts: Sequence[Attempt], hosts: Mapping[str, Any]
) -> pd.DataFrame:
    """Tell apart what is missing: tried and never valid, more than the testbed has, or not yet tried."""
    cpus = hosts.get("sps", {}).get("cpus")
    status = runs["status"].to_numpy(object)
    reasons = np.array([in_words(findings_of(text)) for text in runs["findings"]], object)
    tried = {attempt.run: attempt for attempt in attempts}
    for place in np.flatnonzero(status == MISSING):
        row = runs.loc[place]
        numbers = (int(row[name]) for name in ("cores", "threads", "cps", "rep"))
        run = Run(testbed, row["sut"], row["mode"], *numbers)
        if cpus is not None and row["cores"] > len(cpus):
            status[place] = IMPOSSIBLE
            reasons[place] = f"it asks for {row['cores']} cores, the SPS has {len(cpus)}"
        elif run in tried:
            status[place], reasons[place] = INVALID, str(tried[run])
    return runs.assign(status=status, reasons=reasons)


class Configuration(NamedTuple):
    """What carries a load: a point without it."""

    sut: str
    mode: str
    cores: int
    threads: int


def configurations(runs: pd.DataFrame) -> dict[Configuration, pd.DataFrame]:
    """Group runs by what carries their load.

    Parameters
    ----------
    runs
        Rows of a campaign.

    Returns
    -------
    dict
        To rows. SUTs and modes in the order of the rows, then cores and threads ascending.
    """
    groups = {
        Configuration(str(sut), str(mode), int(cores), int(threads)): group
        for (sut, mode, cores, threads), group in runs.groupby(list(POINT[:-1]), sort=False)
    }
    suts, modes = (list(dict.fromkeys(runs[name])) for name in ("sut", "mode"))

    def place(key: Configuration) -> tuple[int, int, int, int]:
        return suts.index(key.sut), modes.index(key.mode), key.cores, key.threads

    return {key: groups[key] for key in sorted(groups, key=place)}


def by_load(runs: pd.DataFrame, columns: Iterable[str]) -> xr.Dataset:
    """Lay the runs of one configuration out over (cps, rep), both ascending; NaN where there is none."""
    found: xr.Dataset = runs.set_index(["cps", "rep"])[list(columns)].to_xarray()
    return found.sortby(["cps", "rep"])


@dataclass(frozen=True)
class Buffers:
    """The effective receive buffers of runs that stand side by side.

    Attributes
    ----------
    groups
        What tells the groups of runs apart, such as (sut, mode), to the sizes in bytes that their
        runs had, ascending; groups of which none was recorded are left out.
    """

    groups: Mapping[tuple[str, ...], tuple[int, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every size, ascending."""
        return tuple(sorted({size for sizes in self.groups.values() for size in sizes}))

    @property
    def differ(self) -> bool:
        """Whether a comparison of these runs is one across different buffers."""
        return len(self.sizes) > 1

    def with_size(self, size: int) -> list[tuple[str, ...]]:
        """List the groups that have a run with so many bytes."""
        return [group for group, sizes in self.groups.items() if size in sizes]


def receive_buffers(runs: pd.DataFrame, *by: str) -> Buffers:
    """Gather the receive buffers of groups of runs.

    Parameters
    ----------
    runs
        Rows with `so_rcvbuf` in bytes, NaN where it was not recorded.
    by
        Columns that tell the groups apart.
    """
    recorded = runs.dropna(subset=["so_rcvbuf"])
    return Buffers(
        {
            tuple(map(str, group)): tuple(sorted({int(size) for size in rows["so_rcvbuf"]}))
            for group, rows in recorded.groupby(list(by), sort=False)
        }
    )


@dataclass(frozen=True)
class Carried:
    """Where the packet drop rate of one configuration passes its limit."""

    sut: str
    mode: str
    cores: int
    threads: int
    capacity: Capacity

    @property
    def estimate_cps(self) -> float:
        """The capacity, not more than the highest and not less than the lowest load measured."""
        crossing = self.capacity.crossing
        return float(np.clip(crossing.interval.estimate, crossing.lowest_cps, crossing.highest_cps))

    def __str__(self) -> str:
        """Name the configuration as a person would."""
        size = f"{plural(self.cores, 'core')}, {plural(self.threads, 'thread')}"
        return f"{self.sut}, mode {self.mode}, {size}"


def capacities(
    runs: pd.DataFrame, limit: float = PDR_LIMIT, sut: str | None = None, mode: str | None = None
) -> list[Carried]:
    """Find the capacity of each configuration with at least two loads, the largest first.

    Parameters
    ----------
    runs
        Rows of a campaign that count.
    limit
        Packet drop rate, as a share.
    sut, mode
        Which; None for all.
    """
    found = []
    chosen = runs[(runs["sut"] == (sut or runs["sut"])) & (runs["mode"] == (mode or runs["mode"]))]
    for configuration, group in configurations(chosen).items():
        pdr = by_load(group, ["pdr"])["pdr"]
        if pdr.sizes["cps"] > 1:
            found.append(Carried(*configuration, capacity(pdr["cps"], pdr, limit)))
    return sorted(found, key=lambda one: -one.estimate_cps)


def pairs(
    runs: pd.DataFrame, column: str, by: str, reference: str, other: str
) -> dict[Point, Pair]:
    """Put runs with the same arrivals side by side: two modes, or a SUT and its control.

    Parameters
    ----------
    runs
        Rows of a campaign that count.
    column
        The number to compare.
    by
        `sut` or `mode`: what the two differ in.
    reference, other
        Its two values.

    Returns
    -------
    dict
        Point without `by`, in the order of `POINT`, to two arrays of shape (pair,). What lacks its
        other half is left out.
    """
    rest = [name for name in POINT if name != by]
    chosen = runs[runs[by].isin((reference, other))]
    table = chosen.pivot_table(index=[*rest, "rep"], columns=by, values=column)
    if not {reference, other} <= set(table.columns):
        return {}
    table = table.dropna()
    return {
        key: (group[reference].to_numpy(float), group[other].to_numpy(float))
        for key, group in table.groupby(level=rest, sort=False)
    }
