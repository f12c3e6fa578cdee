"""Measure how much CPU time the hypervisor takes from a virtual machine whose CPUs halt, and whose CPUs never halt.

The benchmark offers the same load alternately on the testbeds `local` and `local-awake`. On `local-awake`, a program of
class SCHED_IDLE keeps each CPU from halting. For each run, the benchmark prints the verdict, and the share of the
machine's CPU time that the hypervisor took (steal time in /proc/stat). The benchmark needs root.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sipsched.errors import SipschedError
from sipsched.measure.acquisition import measure
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.testbed.inventory import load_testbed

BEDS = ("local", "local-awake")
CORES, THREADS, CPS = 2, 8, 800


def ticks() -> tuple[int, int]:
    """Return the clock ticks of all CPUs since boot, and the ticks among them that the hypervisor took."""
    numbers = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return sum(numbers), numbers[7]


def steal_of(run: Run, folder: Path) -> float:
    """Perform a run, print a line about it, and return the share of CPU time that the hypervisor took."""
    before = ticks()
    try:
        record = measure(run, load_config(), load_testbed(run.testbed), folder)
        document = json.loads((record / "run.json").read_text())
        words = f"valid ({document['verdict']['grade']})"
    except SipschedError as error:
        words = str(error)
    total, stolen = (now - then for now, then in zip(ticks(), before, strict=True))
    print(f"{run.testbed} {run.rep}: {stolen / total:.1%} stolen, {words}", flush=True)
    return stolen / total


def main(arguments: Sequence[str] | None = None) -> None:
    """Perform the runs, and print the median and the largest share per testbed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="number of runs on each testbed")
    pairs = parser.parse_args(arguments).pairs
    shares: dict[str, list[float]] = {bed: [] for bed in BEDS}
    with tempfile.TemporaryDirectory() as folder:
        for rep in range(1, pairs + 1):
            for bed in BEDS:
                run = Run(bed, "kamailio-udp", "default", CORES, THREADS, CPS, rep)
                shares[bed].append(steal_of(run, Path(folder)))
    for bed, found in shares.items():
        print(f"{bed}: median {statistics.median(found):.1%}, largest {max(found):.1%}")


if __name__ == "__main__":
    main()
