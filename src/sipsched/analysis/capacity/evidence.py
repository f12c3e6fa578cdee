"""Functions that collect published capacities from the papers' tables, and measured capacities from study summaries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from sipsched.analysis import papers
from sipsched.analysis.capacity.options import (
    PUBLISHED,
    Option,
    measured_option,
    measured_options,
    option_of,
)
from sipsched.analysis.capacity.predictions import RESAMPLES, fit_models
from sipsched.analysis.capacity.scaling import PAPER_SINGLE_CORE_CPS
from sipsched.analysis.capacity.service_times import MeasuredService, service_times
from sipsched.analysis.capacity.systems import CapacityEvidence, ReadSummary, System
from sipsched.analysis.crossing_load import PDR_LIMIT, capacity
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import (
    Buffers,
    Campaign,
    Configuration,
    campaigns_of,
    receive_buffers,
)
from sipsched.records.study_summary import MEASURED as RUN_MEASURED
from sipsched.records.summary_files import open_summary, split_summary_path
from sipsched.records.system_capacity import SystemCapacity

PAPERS_SUT = "papers' OpenSIPS"
MOST_CORES = 256
NO_SPREAD = "no spread printed"


def collect(
    points: pd.DataFrame,
    summaries: Sequence[str | Path | None] | str | Path | None = None,
    limit: float = PDR_LIMIT,
    cores_per_processor: int = 4,
    message_bytes: float = 2304,
    resamples: int = RESAMPLES,
    capacities: Sequence[SystemCapacity] = (),
) -> CapacityEvidence:
    """Collect published capacities from the papers, and measured capacities from studies.

    Parameters
    ----------
    summaries
        Paths of study summaries. A missing file is skipped and reported in `CapacityEvidence.read`. Studies on the same
        testbed are merged, so that a run in two studies is counted once.
    message_bytes
        Number of bytes that the kernel charges to the receive buffer per message.
    resamples
        Number of bootstrap samples for the laws that relate capacity to cores.

    Raises
    ------
    StableError
        A file is damaged or has another version.
    """
    given = [summaries] if isinstance(summaries, (str, Path)) else summaries or []
    read, campaigns = _read([Path(path) for path in given if path])
    wide = papers.wide(points)
    systems = _published(wide, limit)
    services: list[MeasuredService] = []
    buffers = Buffers({})
    for campaign in campaigns:
        where = f" on {campaign.testbed}" if len(campaigns) > 1 else ""
        runs = campaign.single
        runs = runs.assign(sut=runs["sut"] + where)
        known = {
            Configuration(*(system.sut + where, system.mode, system.cores, system.threads)): system
            for system in capacities
            if (system.testbed, system.limit) == (campaign.testbed, limit)
        }
        options = measured_options(runs, limit, known)
        systems += _measured([*options, *_searched(options, known)], campaign.provenance)
        services += filter(_is_usable, service_times(runs, options, limit, message_bytes))
        buffers = Buffers({**buffers.groups, **receive_buffers(runs, "sut", "mode").groups})
    processors = {c: -(-c // cores_per_processor) for c in range(1, MOST_CORES + 1)}
    systems = [
        replace(system, models=fit_models(system, processors, resamples)) for system in systems
    ]
    fidelity = "; ".join(dict.fromkeys(campaign.fidelity for campaign in campaigns))
    return CapacityEvidence(
        systems=tuple(systems),
        services=tuple(services),
        limit=limit,
        processors=processors,
        fidelity=fidelity,
        read=tuple(read),
        buffers=buffers,
        campaigns=tuple(campaigns),
    )


def _is_usable(service: MeasuredService) -> bool:
    """Return True if service times were measured at several loads and at least one service time is known."""
    known = np.isfinite((service.cpu_us.estimate, service.t_sip_us.estimate))
    return len(service.loads) > 1 and bool(known.any())


def _searched(
    options: Sequence[Option], known: Mapping[Configuration, SystemCapacity]
) -> list[Option]:
    """Return the settings without measured runs. The capacity of such a setting comes only from a search."""
    settings = {(option.sut, option.mode, option.cores, option.threads) for option in options}
    return [
        replace(option_of(system), sut=key.sut)
        for key, system in known.items()
        if tuple(key) not in settings
    ]


def _read(paths: Sequence[Path]) -> tuple[list[ReadSummary], list[Campaign]]:
    """Return descriptions of all requested summary files, and the runs of the existing files as campaigns."""
    sources: list[ReadSummary] = []
    summaries: list[tuple[str, xr.Dataset]] = []
    for path in paths:
        _, study, testbed = split_summary_path(path)
        name = f"{study}/{testbed}/{path.name}"
        if not path.is_file():
            sources.append(ReadSummary(name, found=False))
            continue
        data = open_summary(path)
        measured = data["status"] == RUN_MEASURED
        runs = int(measured.sum())
        others = [dim for dim in measured.dims if dim != "cores"]
        cores = np.unique(data["cores"].to_numpy()[measured.any(others)])
        sources.append(ReadSummary(name, True, runs, tuple(cores.tolist())))
        if runs:
            summaries.append((study, data))
    return sources, campaigns_of(summaries)


def _published(wide: pd.DataFrame, limit: float) -> list[System]:
    """Return the published capacities from the tables of the two papers, as one system per mode."""
    systems = []
    for mode in papers.MODES:
        options = []
        among = wide[wide["mode"] == mode].sort_values("cps")
        for (cores, threads), rows in among.groupby(["cores", "threads"]):
            published = capacity(rows["cps"], rows["rate"], limit)
            option = measured_option(PAPERS_SUT, mode, int(cores), int(threads), published)
            interval = replace(option.interval, n=papers.PAPERS_RUNS)
            if option.settled:
                # The papers call the last load within the limit the capacity, and do not interpolate.
                interval = replace(interval, estimate=option.grid_cps, why=NO_SPREAD)
            options.append(replace(option, interval=interval, basis=PUBLISHED))
        stated = Interval.without(
            PAPER_SINGLE_CORE_CPS, papers.PAPERS_RUNS, why="stated in section V"
        )
        systems.append(
            System(
                PAPERS_SUT,
                mode,
                tuple(options),
                papers.provenance("multicore", "singlecore"),
                # The papers derive their rule from a capacity of one core, which they state only for enhanced mode.
                stated if mode == "enhanced" else None,
                published=True,
            )
        )
    return systems


def _measured(options: Sequence[Option], provenance: str) -> list[System]:
    names = dict.fromkeys((option.sut, option.mode) for option in options)
    return [
        System(
            *name,
            tuple(option for option in options if (option.sut, option.mode) == name),
            provenance,
        )
        for name in names
    ]
