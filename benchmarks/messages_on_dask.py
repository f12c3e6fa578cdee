"""Measure the cost of computing the 99.9th percentile of many messages, with Dask on this machine or on Slurm.

The benchmark computes the percentile of K_rcv + T_sip for several settings (mode and load), with `--messages` messages
in total. The benchmark prints CPU and wall-clock seconds, the error of each percentile, and the largest memory of a
worker, whose limit is `--limit`. The messages are synthetic. Each setting has two files under many names (symbolic
links), and the benchmark reads every name. The exact percentile therefore follows from the two files. With `--slurm`,
each worker is a job of the Slurm cluster that sbatch finds (SLURM_CONF). The goals are 10⁹ messages, 4 GiB per worker,
and an error of 1 %. uv installs `distributed` and `dask-jobqueue` only for this benchmark (pyproject.toml, `cluster`).
Every job that writes netCDF would import an installed `distributed`.
"""

import argparse
import importlib.util
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
import numpy.typing as npt
import synthetic

from sipsched.paths import PROJECT_ROOT
from sipsched.plan.run import Run
from sipsched.records.messages import k_rcv, messages_from_record, nanoseconds, write_messages
from sipsched.records.pooled import open_runs, quantiles

CELLS = [("default", 1000), ("default", 2000), ("batch", 1000), ("batch", 2000)]
CALLS = 30_000
SHARE = 0.999
PATIENCE_S = 60


def with_distributed() -> int:
    """Run this benchmark again, in an environment with the pinned version of `distributed`."""
    document = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    pins = document["project"]["optional-dependencies"]["cluster"]
    wanted = [word for pin in pins for word in ("--with", pin)]
    uv = [Path(sys.executable).with_name("uv"), "run", "--quiet", "--no-project", "--active"]
    argv = [*uv, *wanted, "python", *sys.argv]
    return subprocess.run(argv, env=os.environ | {"VIRTUAL_ENV": sys.prefix}).returncode


def write_distinct(folder: Path, run: Run) -> tuple[Path, npt.NDArray[np.float64]]:
    """Write the messages of one synthetic run. Return the path, and K_rcv + T_sip of each message in ns."""
    wait = run.cps / 1000 * (2 if run.mode == "batch" else 1)
    record = synthetic.write_record(folder / "raw", run, calls=CALLS, wait=wait)
    messages = messages_from_record(record)
    path = folder / f"{run.mode}-{run.cps}-{run.rep}.nc"
    write_messages(messages, path)
    return path, k_rcv(messages) + nanoseconds(messages, "t_sip")


def start_cluster(options: argparse.Namespace, folder: Path) -> Any:
    """Start Dask workers with one thread each, on this machine or as Slurm jobs on nodes that share its files."""
    from dask_jobqueue import SLURMCluster
    from distributed import LocalCluster

    if not options.slurm:
        return LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit=options.limit,
            dashboard_address=None,
        )
    return SLURMCluster(
        n_workers=options.workers,
        cores=1,
        processes=1,
        memory=options.limit,
        walltime="01:00:00",
        python=sys.executable,
        local_directory=folder,
        log_directory=folder,
        scheduler_options={"dashboard_address": None},
    )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_seconds() -> float:
    return time.process_time()


def main() -> None:
    """Write the files, compute the percentiles, and print the cost."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=10**9)
    arguments.add_argument("--workers", type=int, default=os.cpu_count())
    arguments.add_argument("--limit", default="4GiB")
    arguments.add_argument("--slurm", action="store_true", help="workers are jobs of Slurm")
    options = arguments.parse_args()
    if importlib.util.find_spec("dask_jobqueue") is None:
        sys.exit(with_distributed())
    from distributed import Client

    with tempfile.TemporaryDirectory() as scratch:
        folder, runs, paths, sizes, exact = Path(scratch), [], [], [], {}
        names = math.ceil(options.messages / (2 * 6 * CALLS * len(CELLS)))
        for mode, cps in CELLS:
            first = synthetic.Run(mode=mode, cps=cps)
            written = [write_distinct(folder, replace(first, rep=rep)) for rep in (1, 2)]
            times = np.concatenate([of_run for _, of_run in written])
            exact[mode, cps] = np.quantile(times, SHARE, method="inverted_cdf") / 1000
            for rep in range(1, 2 * names + 1):
                path, of_run = written[rep % 2]
                named = folder / first.mode / f"{cps}-{rep}.nc"
                named.parent.mkdir(exist_ok=True)
                named.symlink_to(path)
                runs.append(replace(first, rep=rep))
                paths.append(named)
                sizes.append(len(of_run))
        with (
            start_cluster(options, folder) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(options.workers, timeout=PATIENCE_S)
            started, before = time.monotonic(), sum(client.run(cpu_seconds).values())
            computed = quantiles(
                open_runs(runs, paths, sizes, {}), "total", [SHARE], ["mode", "cps"]
            )
            took = time.monotonic() - started
            worked = sum(client.run(cpu_seconds).values()) - before
            most = max(client.run(peak_mib).values())
    where = " on Slurm" if options.slurm else ""
    print(
        f"{sum(sizes):,} synthetic messages of {len(runs)} runs in {2 * len(exact)} files: "
        f"p99.9 of {len(exact)} cells in {took:.0f} s, {worked:.0f} CPU s of {options.workers} workers{where}, "
        f"{peak_mib():.0f} MiB here, {most:.0f} MiB at most in a worker with a limit of {options.limit}"
    )
    for (mode, cps), microseconds in exact.items():
        value = float(computed.sel(mode=mode, cps=cps, share=SHARE))
        print(
            f"{mode}, {cps} cps: {value:.1f} us, {value / microseconds - 1:+.2%} from the exact value"
        )
        if abs(value / microseconds - 1) > 0.01:
            sys.exit("more than 1 % from the exact value")


if __name__ == "__main__":
    main()
