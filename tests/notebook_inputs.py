"""Inputs of all notebooks: synthetic files, and notebook parameters that name these files."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
import xarray as xr
from synthetic import Run

from sipsched.analysis import guest_effects, papers
from sipsched.analysis.run_table import read_campaigns
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point
from sipsched.records import study_summary, summary_files
from sipsched.records.fitted import CompetingPrograms, Fitted
from sipsched.records.prediction import (
    UNITS,
    CapacityOfCores,
    CapacityPrediction,
    Predicted,
    PredictedSetting,
    Predictions,
    write_capacity,
    write_predictions,
)
from sipsched.records.speedups import Speedup, write_speedups
from sipsched.records.system_capacity import write_capacities
from sipsched.records.windows import write_windows

NOTEBOOK_FILES = {
    path.stem: path
    for folder in ("notebooks", "notebooks/lab")
    for path in sorted((PROJECT_ROOT / folder).glob("*.ipynb"))
}
"""The notebooks by name: those of the pages, and those for interactive work."""
NOTEBOOKS = sorted(NOTEBOOK_FILES)
Parameters = dict[str, Any]
PUBLISHED_SPEEDUPS = PROJECT_ROOT / "config" / "published" / "speedups.csv"
EFFECTS = {
    "default": {},
    "fifo": {"t_sip_mean": -0.5, "total_p99": -0.5, "total_mean": -0.2},
    "batch": {"total_p99": 0.2},
}
CAPACITY_CPS = {
    ("kamailio-udp", 1): 2000,
    ("kamailio-udp", 2): 2400,
    ("kamailio-udp-partitioned", 1): 1900,
    ("kamailio-udp-partitioned", 2): 3600,
    ("kamailio-tcp", 1): 1000,
    ("kamailio-tcp", 2): 1800,
}
"""Capacity of the synthetic proxies of the scaling study, by SUT and cores."""


def parameters(notebook: str, folder: Path) -> Parameters:
    """Write the inputs of a notebook into a folder, and return the parameters of the notebook."""
    writers = {
        "modes": modes,
        "migration_cost": migration_cost,
        "kernels": kernels,
        "packages": packages,
        "calibration": calibration,
        "crossover": crossover,
        "scaling": scaling,
        "capacity_model": capacity_model,
        "predicted": predicted,
        "papers_predicted": papers_predicted,
        "paper": paper,
        "virtual": virtual,
        "published": lambda folder: {"published": papers.FOLDER},
    }
    if notebook in writers:
        own = folder / notebook
        own.mkdir(parents=True, exist_ok=True)
        return writers[notebook](own)
    return campaign(folder / "campaign")[notebook]


@functools.cache
def campaign(folder: Path) -> dict[str, Parameters]:
    """Write a campaign of three studies, and return the parameters of each notebook that evaluates the campaign."""
    folder.mkdir(parents=True)
    summaries = synthetic.write_campaign(folder)
    known = capacities(folder, summaries)
    records = folder / "raw"
    runs = folder / "results" / "runs"
    noise = records / "synthetic" / "noise.json"
    noise.write_text(synthetic.sealed(synthetic.noise()))
    return {
        "load_sweep": {"summary": summaries[0], "messages_root": runs, "capacities": [known]},
        "index": {"summaries": summaries, "outlines": [], "crossings": [], "capacities": [known]},
        "testbed": {"testbed": "synthetic", "summaries": summaries, "noise": noise},
        "messages": {"testbed": "synthetic", "records": [records], "capacities": []},
        "explore": {"testbed": "synthetic", "records": records},
        "question": {"testbed": "synthetic", "records": records},
    }


WITHOUT_DATA = {
    "load_sweep": ("capacities",),
    "modes": ("crossings",),
    "migration_cost": (),
    "kernels": (),
    "packages": (),
    "calibration": ("summaries",),
    "crossover": ("windows", "crossings", "capacities"),
    "index": ("outlines", "crossings", "capacities"),
    "testbed": (),
    "capacity_model": ("summaries", "predictions", "capacities"),
    "scaling": ("summaries", "crossings", "capacities"),
    "predicted": ("summaries", "predictions"),
    "virtual": ("windows",),
    "paper": ("summaries", "windows", "crossings", "capacities", "predictions", "records"),
}
"""Notebooks that make a page before any measurement, with the parameters that are empty lists in this case."""


def parameters_of_nothing(notebook: str, folder: Path) -> Parameters:
    """Return the parameters of a notebook in `WITHOUT_DATA` if runs are planned and no run is measured."""
    folder = folder / notebook / "nothing"
    sweep = synthetic.repeated((500, 1000), 2)
    planned = {
        "load_sweep": sweep,
        "modes": synthetic.modes_plan(),
        "migration_cost": [Run(mode="enhanced+migration_cost_ns=0", cores=2)],
        "crossover": [Run(mode="default,batch")],
    }
    given: Parameters = {name: [] for name in WITHOUT_DATA[notebook]}
    if notebook in planned:
        given["summary"] = written(study_summary.combine([], planned[notebook]), folder, "nothing")
    elif notebook in ("kernels", "packages"):
        run = Run(mode="default")
        nothing = written(study_summary.combine([], [run]), folder, "nothing")
        given["summaries"] = [nothing] * 2
    elif notebook in ("index", "testbed"):
        given["summaries"] = [written(study_summary.combine([], sweep), folder, "nothing")]
    absent = {"testbed": "noise", "paper": "simulated"}
    if notebook in absent:
        given[absent[notebook]] = folder / "nothing.csv"
    elif notebook == "scaling":
        given["files"] = [PUBLISHED_SPEEDUPS, folder / "nothing.csv"]
    return given


def capacities(folder: Path, summaries: Sequence[Path]) -> Path:
    """Write the file with the estimated capacities of all systems in the summaries, and return the file's path."""
    path = folder / "capacity.json"
    campaigns = map(synthetic.with_capacities, read_campaigns(summaries))
    write_capacities([capacity for campaign in campaigns for capacity in campaign.capacities], path)
    return path


def written(ds: xr.Dataset, folder: Path, study: str) -> Path:
    """Write the summary of a study, and return its path."""
    path = folder / "results" / study / "synthetic" / "summary.nc"
    summary_files.write(ds, path)
    return path


def modes(folder: Path) -> Parameters:
    """Write a study in which enhanced mode loses fewer packets, and in which a run is missing."""
    planned = synthetic.modes_plan(threads=(2, 8))
    ds = synthetic.combined(
        planned, lambda run: None if run is planned[0] else synthetic.two_modes(run)
    )
    return {"summary": written(ds, folder, "single_core"), "crossings": []}


def kernels(folder: Path) -> Parameters:
    """Write runs on two kernels, alone and beside another task. Waits are shorter on the second kernel."""
    planned = [
        Run(mode="default", threads=threads, rep=rep) for threads in (2, 8) for rep in (1, 2, 3)
    ]
    files = []
    for number, release in enumerate(("6.12.1", "6.1.0", "6.1.0", "6.12.1")):
        mode = "enhanced" if release == "6.12.1" else "baseline"

        def outcome(run: synthetic.PlannedRun, mode: str = mode) -> dict[str, Any]:
            values = synthetic.two_modes(dataclasses.replace(run, mode=mode), translated=False)
            family = {"baseline": "CFS, debugfs", "enhanced": "EEVDF, debugfs"}[mode]
            return values | {"mode_label": "default", "scheduler_family": family}

        summary = synthetic.combined(planned, outcome)
        summary.attrs["kernels"] = release
        if number > 1:
            summary.attrs["testbed_description"] += "; competitor logger"
        files.append(written(summary, folder / str(number), "kernels_virtual"))
    return {"summaries": files}


def packages(folder: Path) -> Parameters:
    """Write runs in two modes, on one and on two packages. Waits are longer on two packages."""
    planned = [Run(mode="default", rep=rep) for rep in (1, 2, 3)]
    files = []
    for number, cpus in enumerate(("0–3", "0, 4, 1, 5")):
        mode = ("enhanced", "baseline")[number]

        def outcome(run: synthetic.PlannedRun, mode: str = mode) -> dict[str, Any]:
            values = synthetic.two_modes(dataclasses.replace(run, mode=mode), translated=False)
            return values | {"mode_label": "default", "scheduler_family": "CFS, debugfs"}

        summary = synthetic.combined(planned, outcome)
        summary.attrs["kernels"] = "6.1.0"
        summary.attrs["testbed_description"] = (
            f"one QEMU guest (3 sockets of 4 cores): SPS on CPUs {cpus}; UAC on CPU 9"
        )
        files.append(written(summary, folder / str(number), "packages_default_virtual"))
    return {"summaries": files}


def calibration(folder: Path) -> Parameters:
    """Write runs on a real machine and in a guest. Waits are twice as long in reality, and CPU times are equal."""
    studies = {
        "calibration": (1.0, (2, 8), (500, 900)),
        "calibration_reference": (0.3, (8,), (900,)),
        "calibrated": (0.5, (2, 8), (500, 900)),
    }
    files = []
    for study, (factor, workers, loads) in studies.items():
        reps = (1, 2, 3) if study == "calibration" else (1,)
        planned = [
            Run(threads=threads, cps=cps, rep=rep)
            for threads in workers
            for cps in loads
            for rep in reps
        ]

        def outcome(run: synthetic.PlannedRun, factor: float = factor) -> dict[str, Any]:
            messages, speed = 36.0 * run.cps, 1 + 0.01 * (run.rep - 2)
            waits = {"k_stack_mean": 20, "k_sockq_alone": 10, "k_rcv_mean": 10 + 5 * run.threads}
            return {
                **{name: factor * speed * wait for name, wait in waits.items()},
                "t_sip_mean": 40.0 * speed + run.threads,
                "messages": messages,
                "proxy_user_ns": 30_000 * speed * messages,
                "proxy_system_ns": 20_000 * speed * messages,
            }

        files.append(written(synthetic.combined(planned, outcome), folder, study))
    return {"summaries": files}


def migration_cost(folder: Path, unavailable: str = "") -> Parameters:
    """Write a study in which the packet drop rate grows with the migration cost. Some runs are missing.

    `unavailable` is the reason why the kernel does not allow the cost to be set.
    """
    planned = [
        Run(mode=f"enhanced+migration_cost_ns={cost}", cores=cores, threads=4, cps=4200, rep=rep)
        for cost in (0, 100_000, 500_000, 5_000_000)
        for cores in (2, 4)
        for rep in (1, 2, 3)
    ]

    def outcome(run: synthetic.PlannedRun) -> dict[str, Any] | None:
        if (run.cores, run.rep) == (4, 3):
            return None
        cost = int(run.mode.partition("=")[2])
        step = synthetic.step("migration_cost_ns", cost, "a file", unavailable)
        settings = {"translated": False, "steps": [step], "in_force": {"a file": str(cost)}}
        return synthetic.two_modes(run, knee_cps=4200 - cost / 1e4, translated=False) | {
            "mode_settings": json.dumps(settings)
        }

    return {"summary": written(synthetic.combined(planned, outcome), folder, "migration_cost")}


def crossover(folder: Path) -> Parameters:
    """Write runs that compare modes: fifo shortens all times, and batch lengthens the longest times."""
    planned = [Run(mode=",".join(EFFECTS), cps=cps) for cps in (1000, 1600)]
    summary = synthetic.write_study(folder, planned, study="crossover")
    files = [folder / "results" / "runs" / run.path / "windows.nc" for run in planned]
    for run, file in zip(planned, files, strict=True):
        write_windows(synthetic.windows(run, EFFECTS), file)
    crossing = folder / "crossing.json"
    point = Point("synthetic", "kamailio-udp", "default", 1, 8)
    crossing.write_text(synthetic.sealed(synthetic.crossing(point, 2000, 2040)))
    return {"summary": summary, "windows": files, "crossings": [crossing], "capacities": []}


def scaling(folder: Path) -> Parameters:
    """Write runs below and above the capacities of six systems, and simulated capacities with more cores."""
    planned = [
        Run(sut=sut, cores=cores, threads=4, cps=round(cps * share), rep=rep)
        for (sut, cores), cps in CAPACITY_CPS.items()
        for share in (0.5, 0.98, 1.1)
        for rep in (1, 2, 3)
    ]

    def outcome(run: synthetic.PlannedRun) -> dict[str, Any]:
        over = run.cps > CAPACITY_CPS[run.sut, run.cores]
        tcp = run.sut == "kamailio-tcp"
        messages = 36.0 * run.cps
        cpu_us = (59 + run.rep) * (1 if run.cores == 1 else 4 / 3)
        return {
            "transport": "tcp" if tcp else "udp",
            "deployment": "partitioned" if run.sut.endswith("partitioned") else "shared",
            "proxy": "kamailio",
            "pdr": np.nan if tcp else 0.05 * over,
            "call_loss": 0.3 * over,
            "messages": messages,
            "proxy_cpu_ns": 1000 * cpu_us * messages,
            "proxy_user_ns": 600 * cpu_us * messages,
            "proxy_system_ns": 400 * cpu_us * messages,
            "generator_cpu_us": 300.0,
            "wake_ups": (0.5 if run.cores == 1 else 0.9) * messages,
            "probe_mode": "off",
        }

    known = folder / "scaling.json"
    write_capacities(
        [
            synthetic.capacity(cps, sut=sut, cores=cores, threads=4)
            for (sut, cores), cps in CAPACITY_CPS.items()
        ],
        known,
    )
    summary = written(synthetic.combined(planned, outcome), folder, "scaling")
    mode = "default,default+cores=2,default+cores=2+sut=kamailio-udp-partitioned"
    place = Point("synthetic", "kamailio-udp", mode, 1, 4, Capacity(0.01, 0.05))
    paired = folder / "capacity.json"
    search = synthetic.paired_search(place, (1.0, 1.25, 1.5), 20, {7: 0.0})
    paired.write_text(synthetic.sealed(synthetic.search_document(search)))
    return {
        "summaries": [summary],
        "crossings": [paired],
        "capacities": [known],
        "files": [PUBLISHED_SPEEDUPS, speedups(folder)],
    }


def speedups(folder: Path) -> Path:
    """Write simulated capacities of two deployments on up to 16 cores, and return the file's path."""
    path = folder / "speedups.csv"
    rows = [
        Speedup(
            *(deployment, "udp", cores, cores),
            *(factor * 1000 * cores**power for factor in (1, 0.9, 1.1)),
            *(factor * cores**power for factor in (1, 0.9, 1.1)),
            *(receiving, f"a model; {'one CPU' if receiving == 1 else 'each core'} receives"),
        )
        for deployment, power in (("shared", 0.25), ("partitioned", 0.5))
        for cores in (1, 4, 16)
        for receiving in ([1] if cores == 1 else [1, cores])
    ]
    write_speedups(rows, path)
    return path


def capacity_model(folder: Path) -> Parameters:
    """Write a study of one core, and a simulation of up to 16 cores."""
    settings = {("default", 1, 2): 80.0}
    settings |= {(mode, 1, 8): 84.0 for mode in ("default", "baseline", "enhanced")}
    loads = (1000, 1400, 1800, 1900, 2000, 2100, 2200)
    summary = written(synthetic.queue_summary(settings, loads), folder, "one_core")
    handled = [
        CapacityOfCores(cores, 2 * cores, 2000.0 * min(cores, 8), cores / 10, 0.95)
        for cores in (1, 4, 8, 16)
    ]
    prediction = CapacityPrediction(
        Fitted(sut="kamailio-udp", runs=("a", "b"), messages=10, numbers={"switch_ns": 1}),
        *(0.01, 16, tuple(handled)),
        draws=tuple(
            dataclasses.replace(each, cps=factor * each.cps)
            for each, factor in itertools.product(handled, (0.9, 1.1))
        ),
        assumed={"two CPUs receive": (dataclasses.replace(handled[3], cps=30000.0),)},
    )
    file = folder / "predicted_capacity.json"
    write_capacity(prediction, file)
    return {
        "summaries": [summary],
        "predictions": [file],
        "capacities": [],
    }


def predicted(folder: Path) -> Parameters:
    """Write predictions for two modes, and a measured run with which the page compares the predictions."""
    compared_modes = ("default", "fifo")
    run = Run(mode=",".join(compared_modes), cps=1600)
    compared = folder / "windows.nc"
    write_windows(
        synthetic.windows(run, {mode: EFFECTS[mode] for mode in compared_modes}), compared
    )
    rng = np.random.default_rng(1)
    settings = [
        Predicted(
            PredictedSetting(run.sut, mode, run.cores, run.threads, run.cps, True),
            *(rng.uniform(90, 110, (8, len(UNITS))), rng.uniform(90, 110, (8, 5, len(UNITS)))),
        )
        for mode in compared_modes
    ]
    fitted = Fitted(
        sut=run.sut,
        runs=("a",),
        messages=9,
        numbers={"switch_ns": 1},
        competitors=(CompetingPrograms("other", 0, 300, 15_000),),
        competitors_source="the account of CPU time in 1 of 1 run of the fit",
    )
    file = folder / "settings.nc"
    write_predictions(Predictions(fitted, 6.0, tuple(settings)), file)
    return {"predictions": [file], "summaries": [], "windows": [compared]}


def papers_predicted(folder: Path) -> Parameters:
    """Write simulated runs of the papers in which enhanced mode is a fifth better than baseline mode."""
    path = folder / "papers.csv"
    synthetic.predictions(0.2).to_csv(path, index=False)
    return {"predictions": [path]}


def virtual(folder: Path) -> Parameters:
    """Write predictions, and runs in virtual time in which one of two settings has an effect."""
    measured = {("virtual-510", 1): 0.0, ("virtual-510-busy", 2): -0.4}
    files = []
    for (testbed, cores), effect in measured.items():
        run = Run(testbed=testbed, mode="baseline,enhanced", cores=cores, cps=420)
        files.append(folder / f"{testbed}.nc")
        effects = {"baseline": {}, "enhanced": {"k_rcv_mean": effect}}
        write_windows(synthetic.windows(run, effects, kind="virtual"), files[-1])
    table = folder / "predicted.csv"
    columns = (field.name for field in dataclasses.fields(guest_effects.PredictedEffect))
    rows = [
        f"{testbed},5.10,{5 if threads == 8 else 1},{'logger' if 'busy' in testbed else ''},"
        f"kamailio-udp,baseline,enhanced,{cores},{threads},420,-30,-40,-20,6,{'busy' in testbed}"
        for testbed, cores in measured
        for threads in (8, 16)
    ]
    table.write_text("\n".join([",".join(columns), *rows]))
    return {"windows": files, "files": [table]}


def paper(folder: Path) -> Parameters:
    """Write comparisons of modes and of workers, and simulations. No run compares versions of the proxy."""
    shared = campaign(folder.parent / "campaign")
    compared_modes: dict[str, dict[str, dict[str, float]]] = {
        "crossover": {"baseline": {}, "enhanced": {"k_rcv_mean": 0.2, "t_sip_mean": -0.1}},
        "advice": EFFECTS,
        "workers": {"default": {}, "default+threads=4": {"total_p99": -0.3, "t_sip_mean": -0.3}},
    }
    summaries, files = [shared["load_sweep"]["summary"]], []
    for study, effects in compared_modes.items():
        run = Run(mode=",".join(effects), cps=1600)
        summaries.append(synthetic.write_study(folder, [run], study=study))
        files.append(folder / "results" / "runs" / run.path / "windows.nc")
        write_windows(synthetic.windows(run, effects), files[-1])
    return {
        "summaries": summaries,
        "windows": files,
        "crossings": [],
        "capacities": shared["load_sweep"]["capacities"],
        "predictions": predicted(folder)["predictions"],
        "records": shared["messages"]["records"],
        "simulated": papers_predicted(folder)["predictions"][0],
    }
