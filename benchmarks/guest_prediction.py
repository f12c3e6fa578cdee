"""Use the simulator to predict the results of the studies in virtual time.

These studies run in an emulated machine, the guest (docs/virtual-time.md). The simulator uses the guest's numbers: 250
µs of CPU time per message, and the softirq on the first core. In some rows, a task also uses 3 ms in every 20 ms. None
of these numbers was fitted to the effect of a mode. Each line of the CSV output is a change of the mean K_rcv, from the
reference mode to the other mode. It has the mean, the smallest and the largest change of six seeds.
"""

import csv
import sys
import tempfile
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np

from sipsched.analysis.guest_effects import PredictedEffect
from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_point import plan_point
from sipsched.measure.simulator import simulate
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.testbed.inventory import Testbed, load_testbed

SEEDS = range(6)
CALLS = 8000
MESSAGE_NS = 250_000
GUEST = {
    **{"receive_cpus": 1, "receive_ns": 2000, "wake_ns": 1000, "interrupt_ns": 0},
    **{"switch_ns": 1000, "idle_exit_ns": 2000, "refill_ns": 0, "refill_near_ns": 0},
    **{"copy_ns": 500, "send_ns": 1000, "loop_ns": 2000, "stall_every_ns": 0, "link_ns": 10_000},
}
"""Costs in the guest, an emulated machine without caches, in which kernel code takes little time."""
CONFIG = load_config()
LOAD = replace(CONFIG.load, retransmissions=False)


def mean_k_rcv_us(
    guest: Testbed, mode: str, cores: int, workers: int, cps: int, seed: int
) -> float:
    bed = load_testbed("simulated-cfs")
    assert bed.simulated is not None and guest.virtual is not None
    machine = replace(bed.simulated, kernel=guest.virtual.kernel)
    bed = replace(bed, simulated=machine, competitors=guest.competitors)
    plan = plan_point(Point(bed.name, "kamailio-udp", mode, cores, workers), CONFIG, bed)
    numbers = {**plan.at(LOAD, Arrivals(cps, CALLS, seed)), **GUEST}
    services = np.array(numbers["service_ns"], float)
    rest = GUEST["copy_ns"] + GUEST["send_ns"] + GUEST["loop_ns"] + GUEST["receive_ns"]
    numbers["service_ns"] = (services * (MESSAGE_NS - rest) / services[1:].mean()).tolist()
    with tempfile.TemporaryDirectory() as folder:
        report = simulate(numbers, Path(folder))
    return report.k_rcv_ns / report.served / 1000


MIGRATION_COST = ("baseline", "baseline+migration_cost_ns=0")
PAPERS = ("baseline", "enhanced")
BEDS = ("virtual-510", "virtual-2000")
SEVERAL_CORES = ((2, 2, 850), (2, 8, 850), (4, 4, 1700), (4, 8, 1700))
"""Cores, workers and cps of the study multi_core_virtual."""
ROWS = (
    *(
        (f"{bed}{beside}", *MIGRATION_COST, *system)
        for beside, bed, system in product(("", "-busy"), BEDS, product((2,), (2, 4, 8), (850,)))
    ),
    *((bed, *PAPERS, *system) for bed, system in product(BEDS, product((1,), (2, 8), (420,)))),
    *(
        (f"virtual-510{beside}", *PAPERS, *system)
        for beside, system in product(("", "-busy"), SEVERAL_CORES)
    ),
)
"""Rows of the table. A row names the testbed, the reference mode, the other mode, cores, workers and cps."""

if __name__ == "__main__":
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(field.name for field in fields(PredictedEffect))
    for bed, reference, mode, cores, workers, cps in ROWS:
        guest = load_testbed(bed)
        assert guest.virtual is not None
        first, second = (
            np.array([mean_k_rcv_us(guest, name, cores, workers, cps, seed) for seed in SEEDS])
            for name in (reference, mode)
        )
        change = 100 * (second / first - 1)
        numbers = (f"{value:.1f}" for value in (change.mean(), change.min(), change.max()))
        beside = " ".join(task.name for task in guest.competitors)
        names = (bed, guest.virtual.kernel, beside, "kamailio-udp", reference, mode)
        row = (*names, cores, workers, cps, *numbers, len(SEEDS))
        table.writerow(row)
