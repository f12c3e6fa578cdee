"""Measure quantiles over all messages of a campaign, on files that no testbed made.

Shows: wall and CPU seconds, and the largest memory of a worker, of the 99.9th percentile of K_rcv by cell, by Dask
on `--workers` processes of this machine, of `--messages` messages in runs of 600,000. The messages are those of a few
synthetic runs, each copied under many names: every copy is read from disk and counted by itself.
Reach: 10⁹ messages within 4 GiB a worker.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
import synthetic
import xarray as xr
from dask.distributed import Client, LocalCluster

from sipsched.records import summary
from sipsched.records.messages import k_rcv, open_messages
from sipsched.records.pooled import open_study, quantiles

LOADS = (500, 1000, 1500, 2000)
SHARE = 0.999


def write_campaign(folder: Path, messages: int, calls: int) -> tuple[xr.Dataset, dict[int, float]]:
    """Write a record a load and copies of its messages; the study's summary and exact quantiles come back."""
    repetitions = max(1, round(messages / (6 * calls * len(LOADS))))
    planned = [synthetic.Run(cps=cps, rep=1) for cps in LOADS]
    path = synthetic.write_study(
        folder, planned, lambda run: {"calls": calls, "wait": run.cps / 500}
    )
    combined = summary.open_summary(path)
    exact = {}
    for run in planned:
        place = folder / "results" / "runs" / run.path
        exact[run.cps] = float(
            np.quantile(k_rcv(open_messages(place / "messages.nc")), SHARE) / 1000
        )
        for rep in range(2, repetitions + 1):
            copy = place.with_name(f"rep~{rep}")
            copy.mkdir()
            shutil.copy(place / "messages.nc", copy)
    every = combined[["status", "count"]].isel(rep=np.zeros(repetitions, int))
    return every.assign_coords(rep=np.arange(1, repetitions + 1)), exact


def peak_mib() -> float:
    """Give the largest memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_s() -> float:
    """Give the CPU time of this process."""
    return time.process_time()


def main() -> None:
    """Write the campaign, reduce it once, print what it took."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=float, default=5e7)
    arguments.add_argument("--calls", type=int, default=100_000)
    arguments.add_argument("--workers", type=int, default=os.cpu_count())
    arguments.add_argument("--folder", default=None, help="where the copies are for the time being")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        combined, exact = write_campaign(folder, int(options.messages), options.calls)
        runs = folder / "results" / "runs"
        written = sum(path.stat().st_size for path in runs.rglob("messages.nc"))
        cluster = LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit="4GiB",
            dashboard_address=None,
        )
        with cluster, Client(cluster) as client:
            client.run(np.zeros, 1)
            before = sum(client.run(cpu_s).values()) + time.process_time()
            began = time.monotonic()
            ds = open_study(combined, runs, {})
            found = quantiles(ds, "k_rcv", [SHARE], ["cps"])
            wall = time.monotonic() - began
            spent = sum(client.run(cpu_s).values()) + time.process_time() - before
            peaks = client.run(peak_mib).values()
        total = ds.sizes["message"]
        worst = max(abs(found.sel(cps=cps).item() / exact[cps] - 1) for cps in LOADS)
        print(
            f"{total:.3g} messages in {ds.sizes['runs']} runs, {written / 1e9:.2f} GB on disk; p99.9 of K_rcv by "
            f"{len(LOADS)} cells: {wall:.0f} s, {spent:.0f} CPU s ({total / spent / 1e6:.1f} million a CPU s), "
            f"at most {max(peaks):.0f} MiB in a worker of {options.workers} and {peak_mib():.0f} MiB here; "
            f"off the exact ones by {100 * worst:.2f} %"
        )


if __name__ == "__main__":
    main()
