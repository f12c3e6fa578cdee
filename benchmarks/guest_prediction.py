"""Predict with the simulator the results of the studies that run in a guest in virtual time.

docs/virtual-time.md describes the studies. The simulated machine has the numbers of the guest: 250 µs of CPU time per
message, the softirq on the first core and, for some rows, a task of 3 ms in every 20 ms. No number is fitted to an
effect of a mode. Each row is the change of the mean K_rcv from the first mode to the second mode over six seeds, with
its smallest and largest seed.
"""

import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_point import plan_point
from sipsched.measure.simulator import simulate
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.testbed.inventory import DeclaredCompetitor, load_testbed

SEEDS = range(6)
CALLS = 8000
MESSAGE_NS = 250_000
GUEST = {
    **{"receive_cpus": 1, "receive_ns": 2000, "wake_ns": 1000, "interrupt_ns": 0},
    **{"switch_ns": 1000, "idle_exit_ns": 2000, "refill_ns": 0, "refill_near_ns": 0},
    **{"copy_ns": 500, "send_ns": 1000, "loop_ns": 2000, "stall_every_ns": 0, "link_ns": 10_000},
}
"""Costs of the guest's kernel, which has no caches and cheap kernel code."""
CONFIG = load_config()
LOAD = replace(CONFIG.load, retransmissions=False)


def mean_k_rcv_us(
    kernel: str, mode: str, cores: int, workers: int, cps: int, beside: bool, seed: int
) -> float:
    bed = load_testbed("simulated-cfs")
    assert bed.simulated is not None
    machine = replace(bed.simulated, kernel=kernel)
    task = DeclaredCompetitor("logger", 3000, 20_000, tuple(range(cores)))
    bed = replace(bed, simulated=machine, competitors=(task,) if beside else ())
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
ROWS = (
    *(
        (MIGRATION_COST, *row)
        for row in product(("5.10", "6.1"), (2,), (2, 4, 8), (850,), (False, True))
    ),
    *((PAPERS, *row) for row in product(("5.10", "6.1"), (1,), (2, 8), (420,), (False,))),
)
"""Per row: both modes, kernel, cores, workers, calls per second, and whether the task runs beside the proxy."""

if __name__ == "__main__":
    print("predicted by the simulator, not measured: mean K_rcv in both modes, and the change")
    for modes, kernel, cores, workers, cps, beside in ROWS:
        first, second = (
            np.array(
                [mean_k_rcv_us(kernel, mode, cores, workers, cps, beside, seed) for seed in SEEDS]
            )
            for mode in modes
        )
        change = 100 * (second / first - 1)
        print(
            f"{modes[1]}, kernel {kernel}, {cores} cores, {workers} workers, {cps} cps, "
            f"{'with' if beside else 'without'} the task: {first.mean():.0f} µs, {second.mean():.0f} µs, "
            f"{change.mean():+.0f} % ({change.min():+.0f} to {change.max():+.0f})",
            flush=True,
        )
