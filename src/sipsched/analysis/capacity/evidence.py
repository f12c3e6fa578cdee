"""What is known of capacity, published and measured, gathered from the papers' tables and from summaries."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from sipsched.analysis import papers
from sipsched.analysis.capacity.options import PUBLISHED, measured_option, measured_options
from sipsched.analysis.capacity.predictions import RESAMPLES, fit_models
from sipsched.analysis.capacity.scaling import PAPER_SINGLE_CORE_CPS
from sipsched.analysis.capacity.service_times import KEPT, ServiceTimes, service_times
from sipsched.analysis.capacity.systems import Evidence, Source, System
from sipsched.analysis.run_table import counted, provenance
from sipsched.analysis.statistics import PDR_LIMIT, Interval, capacity
from sipsched.records.summary import ALL, open_summary
from sipsched.records.summary import MEASURED as RUN_MEASURED

PAPERS_SUT = "papers' OpenSIPS"
PAPERS_RUNS = 30
"""Experiments that a column of the papers' tables is the mean of."""
MOST_CORES = 256
NO_SPREAD = "no spread printed"


def collect(
    points: pd.DataFrame,
    summaries: Sequence[str | Path | None] | str | Path | None = None,
    limit: float = PDR_LIMIT,
    cores_per_processor: int = 4,
    message_bytes: float = 2304,
    resamples: int = RESAMPLES,
) -> Evidence:
    """Gather what the papers print and what studies measured.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    summaries
        Combined summaries of studies. One that is not there is left out, and `read` names it. Studies
        of one testbed are put together: a run that two of them share counts once.
    limit
        Packet drop rate at which capacity ends.
    cores_per_processor
        How cores are spread over processors.
    message_bytes
        What the kernel charges a message with.
    resamples
        Of the bootstrap of the laws over cores.

    Raises
    ------
    StableError
        A file is damaged or of another version.
    """
    given = [summaries] if isinstance(summaries, (str, Path)) else summaries or []
    read, testbeds = _read([Path(path) for path in given if path])
    wide = papers.wide(points)
    systems = _published(wide, limit)
    services: list[ServiceTimes] = []
    for testbed, data in testbeds.items():
        if len(testbeds) > 1:
            data = data.assign_coords(sut=[f"{sut} on {testbed}" for sut in data["sut"].values])
        systems += _measured(data, limit)
        services += service_times(data, limit, message_bytes)
    processors = {c: -(-c // cores_per_processor) for c in range(1, MOST_CORES + 1)}
    systems = [replace(each, models=fit_models(each, processors, resamples)) for each in systems]
    fidelity = "; ".join(dict.fromkeys(data.attrs["fidelity"] for data in testbeds.values()))
    return Evidence(
        systems=tuple(systems),
        services=tuple(services),
        points=wide,
        limit=limit,
        processors=processors,
        fidelity=fidelity,
        read=tuple(read),
    )


def _read(paths: Sequence[Path]) -> tuple[list[Source], dict[str, xr.Dataset]]:
    """Open what there is, a dataset a testbed, and list what was found."""
    sources: list[Source] = []
    found: dict[str, list[xr.Dataset]] = {}
    for path in paths:
        # results/STUDY/TESTBED/summary.nc
        name = "/".join(path.parts[-3:])
        if not path.is_file():
            sources.append(Source(name, found=False))
            continue
        data = open_summary(path)
        runs = int((data["status"] == RUN_MEASURED).sum())
        cores = np.unique(data["cores"].to_numpy()[_any_run(data, "cores")])
        sources.append(Source(name, True, runs, tuple(cores.tolist())))
        if runs:
            found.setdefault(data.attrs["testbed"], []).append(data)
    return sources, {testbed: _joined(parts) for testbed, parts in found.items()}


def _any_run(data: xr.Dataset, dim: str) -> npt.NDArray[np.bool_]:
    others = [other for other in data["status"].dims if other != dim]
    return (data["status"] == RUN_MEASURED).any(others).to_numpy()


def _joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put studies of one testbed side by side; a run of several is the same in each."""
    # What one study did not plan another may have measured.
    kept = [counted(part[[*KEPT, "status"]].sel(message_type=ALL))[[*KEPT]] for part in parts]
    joined = kept[0]
    for part in kept[1:]:
        joined = joined.combine_first(part)
    # combine_first sorts; names stay in the order of the configuration.
    order = {
        dim: list(dict.fromkeys(name for part in parts for name in part[dim].to_numpy().tolist()))
        for dim in ("sut", "mode")
    }
    joined = joined.sel(order)
    attrs = dict(parts[0].attrs)
    for key in ("kind", "fidelity", "kernels"):
        attrs[key] = "; ".join(dict.fromkeys(str(part.attrs[key]) for part in parts))
    return joined.assign_attrs(attrs)


def _published(wide: pd.DataFrame, limit: float) -> list[System]:
    """Take capacities from the tables, both papers as one system a mode."""
    systems = []
    for mode in papers.MODES:
        options = []
        among = wide[wide["mode"] == mode].sort_values("cps")
        for (cores, threads), rows in among.groupby(["cores", "threads"]):
            found = capacity(rows["cps"], rows["pdr"], limit)
            option = measured_option(PAPERS_SUT, mode, int(cores), int(threads), found)
            why = NO_SPREAD if option.settled else option.interval.why
            interval = replace(option.interval, n=PAPERS_RUNS, why=why)
            options.append(replace(option, interval=interval, basis=PUBLISHED))
        stated = Interval.without(PAPER_SINGLE_CORE_CPS, PAPERS_RUNS, why="stated in section V")
        systems.append(
            System(
                PAPERS_SUT,
                mode,
                tuple(options),
                papers.provenance("multicore", "singlecore"),
                # The rule is for enhanced mode.
                stated if mode == "enhanced" else None,
                published=True,
            )
        )
    return systems


def _measured(data: xr.Dataset, limit: float) -> list[System]:
    options = measured_options(data, limit)
    names = dict.fromkeys((option.sut, option.mode) for option in options)
    return [
        System(
            *name,
            tuple(each for each in options if (each.sut, each.mode) == name),
            provenance(data),
        )
        for name in names
    ]
