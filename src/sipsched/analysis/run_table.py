"""Tables of all runs on a testbed, from the summaries of all studies."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis.families import Pair
from sipsched.analysis.intervals import Values
from sipsched.errors import StableError
from sipsched.paths import locate
from sipsched.plan.crossover import is_comparison
from sipsched.plan.run import Run
from sipsched.records.conversion import as_part
from sipsched.records.record import Attempt
from sipsched.records.study_summary import INVALID, MEASURED, MISSING, NOT_PLANNED
from sipsched.records.summary_files import open_summary, split_summary_path
from sipsched.records.summary_variables import ALL, RUN_DIMS, RUN_LEVEL, STATISTICS, SUMMARY_TIMES
from sipsched.records.system_capacity import SystemCapacity, read_capacities
from sipsched.validity.verdict import Finding, in_words

IMPOSSIBLE = "impossible"
STATUSES = (MEASURED, INVALID, MISSING, IMPOSSIBLE)
SettingKey = tuple[Any, ...]
Facet = tuple[str, str, int]
"""SUT, mode and number of cores. Figures on pages have one row of panels for each combination."""
POINT = ("sut", "mode", "cores", "threads", "cps")
OF_ALL_MESSAGES = tuple(f"{name}_{statistic}" for name in SUMMARY_TIMES for statistic in STATISTICS)


LABELLED_KINDS = ("simulated", "vm", "virtual")
"""Kinds of testbeds that are not real machines. A label marks the figures and tables of runs on such testbeds."""
IN_VIRTUAL_TIME = "The numbers are in virtual time, in which a cache miss costs no time."
"""A sentence for answers from runs on testbeds of kind `virtual`."""


def provenance(summary: xr.Dataset) -> str:
    """Return a sentence for figures about the source of simulated or emulated numbers; empty for other numbers.

    A page states the source of other numbers only once, and not in each figure.
    """
    return _provenance(summary.attrs["kind"], summary.attrs["fidelity"])


def _provenance(kind: str, fidelity: str) -> str:
    return fidelity if kind in LABELLED_KINDS else ""


def facets(summary: xr.Dataset) -> list[Facet]:
    """Return all planned combinations of SUT, mode and cores, except runs that compare modes.

    A run that compares modes has no numbers for a single mode. Only its windows have such numbers.
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
    """Return a combination of SUT, mode and cores as text, such as "opensips-udp, baseline, 2 cores"."""
    sut, mode, cores = facet
    return f"{sut}, {mode}, {cores} {'core' if cores == 1 else 'cores'}"


def counted(summary: xr.Dataset) -> xr.Dataset:
    """Return a copy of the summary in which every number of an invalid or missing run is NaN.

    Pages show only results of this function, or of `Campaign.counted` for several studies. The result keeps all texts
    of invalid runs, because texts such as the settings of a mode are valid even then.
    """
    numbers = [
        name
        for name, values in summary.data_vars.items()
        if values.dtype.kind in "fiu" and set(RUN_DIMS) <= set(values.dims)
    ]
    return summary.assign(summary[numbers].where(summary["status"] == MEASURED))


def iterate_runs(summary: xr.Dataset) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the settings and the status (measured, invalid, missing) of each planned run in a summary."""
    status = summary["status"]
    for place in np.ndindex(status.shape):
        word = str(status.to_numpy()[place])
        if word != NOT_PLANNED:
            key = {
                str(dim): status[dim].to_numpy()[i].item()
                for dim, i in zip(status.dims, place, strict=True)
            }
            yield key, word


CPU_SHARES = ("competitor_share", "idle_class_share")
"""Variables of a summary with the shares of the SPS's CPU time that other programs used."""


@dataclass(frozen=True)
class Campaign:
    """The runs of all studies on one testbed.

    Attributes
    ----------
    testbed, kind, fidelity, description, kernels
        Descriptions from the records. If records differ, the descriptions are joined by semicolons.
    studies
        Names of the studies, or the folders of their summaries if the names are unknown.
    runs
        One row per planned run, in the order of the configuration. A run that several studies share has one row. The
        columns are the settings, `status` (`STATUSES`), the run-level variables of a summary, and `OF_ALL_MESSAGES` in
        µs; NaN for invalid and missing runs. The status is also `invalid` if all attempts were invalid; then `reasons`
        has the reasons of the last attempt. The status is `impossible` if the run needs more cores than the SPS has.
    attempts
        Invalid attempts to measure runs.
    columns_missing
        Missing columns of messages.nc: name of the column, reason, number of runs.
    hosts
        Description of the hosts from the study that lists the most CPUs of the SPS.
    load
        The load from the first study that has runs.
    summaries
        The summaries of the studies, in the order of `studies`.
    capacities
        Capacity of each system that was measured at several loads.
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
    hosts: Mapping[str, Any]
    load: Mapping[str, Any]
    summaries: tuple[xr.Dataset, ...]
    capacities: tuple[SystemCapacity, ...] = ()

    @property
    def first(self) -> xr.Dataset:
        """The summary of the first study that has runs.

        The testbed page uses this summary for its table of the hosts.
        """
        return _with_runs(self.summaries)[0]

    @property
    def provenance(self) -> str:
        """The source of simulated or emulated numbers as text, for figures; empty for other numbers."""
        return _provenance(self.kind, self.fidelity)

    @property
    def counted(self) -> pd.DataFrame:
        """The rows of the valid runs in the table of all runs."""
        return self.runs[self.runs["status"] == MEASURED]

    @property
    def cpu_shares(self) -> dict[str, Values]:
        """The shares of the SPS's CPU time that other programs used in each valid run; NaN if not recorded.

        The keys are the names in `CPU_SHARES`. Each array has one share per run.
        """
        return {name: self.counted[name].to_numpy(float) for name in CPU_SHARES}

    @property
    def single(self) -> pd.DataFrame:
        """The rows of valid runs that use only one mode, and so do not compare modes."""
        counted = self.counted
        return counted[~counted["mode"].map(is_comparison).astype(bool)]

    @property
    def traced(self) -> pd.DataFrame:
        """The rows of valid runs with only one mode and with messages that a probe recorded."""
        single = self.single
        return single[single["probe_mode"] != "off"]

    @property
    def comparisons(self) -> list[Run]:
        """The valid runs that compare modes, as a list of `Run` (settings and repetition of a run)."""
        counted = self.counted
        comparing = counted[counted["mode"].map(is_comparison).astype(bool)]
        names = comparing[[*RUN_DIMS]].itertuples(index=False)
        return [
            Run(self.testbed, str(sut), str(mode), *map(int, numbers))
            for sut, mode, *numbers in names
        ]


def find_summaries(testbed: str | None = None) -> list[Path]:
    """Return the paths of the study summaries under results/, of one testbed or of all testbeds."""
    return sorted(locate("results").glob(f"*/{testbed or '*'}/summary.nc"))


def known_capacities(paths: Iterable[str | Path] | None = None) -> tuple[SystemCapacity, ...]:
    """Read the estimated capacity of each system from the files `results/capacity/TESTBED.json`.

    Parameters
    ----------
    paths
        The paths of the files. None: all such files under results/.
    """
    files = sorted(locate("results").glob("capacity/*.json")) if paths is None else paths
    return tuple(system for path in files for system in read_capacities(locate(path)))


def read_campaigns(
    summaries: Iterable[str | Path], capacities: Iterable[SystemCapacity] = ()
) -> list[Campaign]:
    """Read study summaries, and return one campaign (the runs of all studies) per testbed.

    Parameters
    ----------
    summaries
        Paths `results/<study>/<testbed>/summary.nc`.

    Raises
    ------
    StableError
        The argument is empty, or a file is missing or has another format version.
    """
    studies = (
        (split_summary_path(path).study, open_summary(path)) for path in map(Path, summaries)
    )
    campaigns = campaigns_of(studies, capacities)
    if not campaigns:
        raise StableError(
            "no summary under results/; run: make reports (summarises recorded runs), "
            "or: snakemake (measures missing runs)"
        )
    return campaigns


def campaigns_of(
    studies: Iterable[tuple[str, xr.Dataset]], capacities: Iterable[SystemCapacity] = ()
) -> list[Campaign]:
    """Merge the studies of each testbed into a campaign. Each study is given by its name and its summary."""
    by_testbed: dict[str, list[tuple[str, xr.Dataset]]] = {}
    for name, ds in studies:
        by_testbed.setdefault(ds.attrs["testbed"], []).append((name, ds))
    known = tuple(capacities)
    return [
        replace(
            _campaign(testbed, of_one),
            capacities=tuple(system for system in known if system.testbed == testbed),
        )
        for testbed, of_one in by_testbed.items()
    ]


def _campaign(testbed: str, studies: Sequence[tuple[str, xr.Dataset]]) -> Campaign:
    data = [ds for _, ds in studies]
    with_runs = _with_runs(data)
    first = with_runs[0]

    def said(key: str) -> str:
        return "; ".join(dict.fromkeys(ds.attrs[key] for ds in with_runs))

    # A study with more cores lists more CPUs of the SPS, so the longest list is the most complete list.
    hosts = max(
        (json.loads(ds.attrs["hosts"]) for ds in with_runs or data),
        key=lambda hosts: len(hosts.get("sps", {}).get("cpus", ())),
    )
    # If two studies contain the same run, both summaries list the run's attempts. The union `|` counts an attempt once.
    tallies: Counter[Attempt] = Counter()
    for ds in data:
        tallies |= Counter(attempts_of(ds))
    attempts = tuple(tallies.elements())
    runs = pd.concat([_rows(ds) for ds in data], ignore_index=True)
    # If two summaries contain the same run, the older summary may lack the run's results. The row with results is kept.
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
        hosts=hosts,
        load=json.loads(first.attrs["load"]),
        summaries=tuple(data),
    )


def _with_runs(summaries: Sequence[xr.Dataset]) -> Sequence[xr.Dataset]:
    """Return the summaries of studies with at least one run, or all summaries if no study has a run."""
    return [ds for ds in summaries if ds.attrs["hosts"] != "{}"] or summaries


def attempts_of(ds: xr.Dataset) -> list[Attempt]:
    """Return the invalid attempts that the summary of a study lists."""
    listed = json.loads(ds.attrs.get("failed_attempts", "[]"))
    return as_part(list[Attempt], listed, "summary: failed_attempts")


def findings_of(text: str) -> list[Finding]:
    """Return the validity rules that a run broke, from the text in a summary. An empty text means no broken rule."""
    return as_part(list[Finding], json.loads(text or "[]"), "summary: findings")


def _rows(ds: xr.Dataset) -> pd.DataFrame:
    """Return the planned runs of a study as a table with one row per run."""
    planned = ds["status"].to_numpy().ravel() != NOT_PLANNED
    columns: dict[str, Any] = {}
    for dim, values in zip(
        RUN_DIMS, np.meshgrid(*(ds[dim].to_numpy() for dim in RUN_DIMS), indexing="ij"), strict=True
    ):
        columns[dim] = values.ravel()[planned]
    # With ds[name] instead of ds.variables[name], this function would take ten times as long.
    for name in ("status", *RUN_LEVEL):
        columns[name] = ds.variables[name].transpose(*RUN_DIMS).to_numpy().ravel()[planned]
    all_types = ds["message_type"].to_numpy().tolist().index(ALL)
    for name in OF_ALL_MESSAGES:
        values = ds.variables[name].isel(message_type=all_types).transpose(*RUN_DIMS)
        columns[name] = values.to_numpy().ravel()[planned]
    return pd.DataFrame(columns)


def _refined(
    runs: pd.DataFrame, testbed: str, attempts: Sequence[Attempt], hosts: Mapping[str, Any]
) -> pd.DataFrame:
    """Add a column with the reasons of invalid runs, and replace the status of missing runs if the reason is known.

    The status becomes `impossible` if the SPS has too few cores for the run. The status becomes `invalid` if all
    attempts to measure the run were invalid.
    """
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
            reasons[place] = f"the run needs {row['cores']} cores, but the SPS has {len(cpus)}"
        elif run in tried:
            status[place], reasons[place] = INVALID, str(tried[run])
    return runs.assign(status=status, reasons=reasons)


def lost(runs: pd.DataFrame) -> pd.Series:
    """Return the loss of each run as a share: dropped packets over UDP, and failed or late calls over TCP.

    The drop limit applies to this share.
    """
    return runs["call_loss"].where(runs["transport"] == "tcp", runs["pdr"])


class Configuration(NamedTuple):
    """The settings SUT, mode, cores and threads, which runs at several loads and repetitions have in common."""

    sut: str
    mode: str
    cores: int
    threads: int


def configurations(runs: pd.DataFrame) -> dict[Configuration, pd.DataFrame]:
    """Return the rows of runs in groups with equal SUT, mode, cores and threads.

    Returns
    -------
    dict
        Rows by settings. SUTs and modes have the order of the rows; cores and threads ascend.
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
    """Return the values of one setting's runs as a dataset with the dimensions cps and rep; NaN for missing runs."""
    table: xr.Dataset = runs.set_index(["cps", "rep"])[list(columns)].to_xarray()
    return table.sortby(["cps", "rep"])


@dataclass(frozen=True)
class Buffers:
    """The effective sizes of the sockets' receive buffers, for groups of runs such as one group per mode.

    Attributes
    ----------
    groups
        Sizes in bytes, ascending, by the key of the group, such as (sut, mode). Groups without a recorded size are
        excluded.
    """

    groups: Mapping[tuple[str, ...], tuple[int, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes of receive buffers in bytes, in ascending order."""
        return tuple(sorted({size for sizes in self.groups.values() for size in sizes}))

    @property
    def differ(self) -> bool:
        """True if the runs have receive buffers of different sizes."""
        return len(self.sizes) > 1

    def with_size(self, size: int) -> list[tuple[str, ...]]:
        """Return the keys of the groups in which a run has a receive buffer of this size in bytes."""
        return [group for group, sizes in self.groups.items() if size in sizes]


def receive_buffers(runs: pd.DataFrame, *by: str) -> Buffers:
    """Return the receive buffers' effective sizes for the groups of runs that the columns `by` define.

    Parameters
    ----------
    runs
        Rows with `so_rcvbuf` in bytes; NaN if the size was not recorded.
    """
    recorded = runs.dropna(subset=["so_rcvbuf"])
    return Buffers(
        {
            tuple(map(str, group)): tuple(sorted({int(size) for size in rows["so_rcvbuf"]}))
            for group, rows in recorded.groupby(list(by), sort=False)
        }
    )


def pairs(runs: pd.DataFrame, column: str, reference: str, other: str) -> dict[SettingKey, Pair]:
    """Return the values of a column for pairs of runs that have the same arrivals and differ only in their mode.

    Parameters
    ----------
    reference, other
        The two modes.

    Returns
    -------
    dict
        Two arrays of shape (pair,) per point. The keys have the settings in the order of `POINT` without the mode. Runs
        without a partner are excluded.
    """
    rest = [name for name in POINT if name != "mode"]
    chosen = runs[runs["mode"].isin((reference, other))]
    table = chosen.pivot_table(index=[*rest, "rep"], columns="mode", values=column)
    if not {reference, other} <= set(table.columns):
        return {}
    table = table.dropna()
    return {
        key: (group[reference].to_numpy(float), group[other].to_numpy(float))
        for key, group in table.groupby(level=rest, sort=False)
    }
