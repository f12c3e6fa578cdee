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
from sipsched.analysis.capacity.service_times import ServiceTimes, service_times
from sipsched.analysis.capacity.systems import Evidence, Source, System
from sipsched.analysis.run_table import Buffers, Campaign, campaigns_of, receive_buffers
from sipsched.analysis.statistics import PDR_LIMIT, Interval, capacity
from sipsched.records.summary import MEASURED as RUN_MEASURED
from sipsched.records.summary import open_summary

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
    read, campaigns = _read([Path(path) for path in given if path])
    wide = papers.wide(points)
    systems = _published(wide, limit)
    services: list[ServiceTimes] = []
    buffers = Buffers({})
    for campaign in campaigns:
        runs = campaign.single
        if len(campaigns) > 1:
            runs = runs.assign(sut=[f"{sut} on {campaign.testbed}" for sut in runs["sut"]])
        systems += _measured(runs, campaign.provenance, limit)
        services += service_times(runs, limit, message_bytes)
        buffers = Buffers({**buffers.groups, **receive_buffers(runs, "sut", "mode").groups})
    processors = {c: -(-c // cores_per_processor) for c in range(1, MOST_CORES + 1)}
    systems = [replace(each, models=fit_models(each, processors, resamples)) for each in systems]
    fidelity = "; ".join(dict.fromkeys(campaign.fidelity for campaign in campaigns))
    return Evidence(
        systems=tuple(systems),
        services=tuple(services),
        points=wide,
        limit=limit,
        processors=processors,
        fidelity=fidelity,
        read=tuple(read),
        buffers=buffers,
    )


def _read(paths: Sequence[Path]) -> tuple[list[Source], list[Campaign]]:
    """Open what there is, a campaign a testbed, and list what was found."""
    sources: list[Source] = []
    found: list[tuple[str, xr.Dataset]] = []
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
            found.append((path.parent.parent.name, data))
    return sources, campaigns_of(found)


def _any_run(data: xr.Dataset, dim: str) -> npt.NDArray[np.bool_]:
    others = [other for other in data["status"].dims if other != dim]
    return (data["status"] == RUN_MEASURED).any(others).to_numpy()


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


def _measured(runs: pd.DataFrame, provenance: str, limit: float) -> list[System]:
    options = measured_options(runs, limit)
    names = dict.fromkeys((option.sut, option.mode) for option in options)
    return [
        System(
            *name,
            tuple(each for each in options if (each.sut, each.mode) == name),
            provenance,
        )
        for name in names
    ]
