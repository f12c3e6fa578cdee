"""Predict with the simulator the results of the study migration_cost_virtual, which runs in a guest.

docs/virtual-time.md describes the study. The simulated machine has the numbers of the guest: 850 calls per second,
250 µs of CPU time per message, 2 cores, the softirq on the first core, and a task of 3 ms in every 20 ms. No number is
fitted to an effect of the migration cost. Each row is the change of the mean K_rcv by migration cost 0 instead of 5 ms
over six seeds, with its smallest and largest seed.
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
CPS, CALLS = 850, 8000
MESSAGE_NS = 250_000
GUEST = {
    **{"receive_cpus": 1, "receive_ns": 2000, "wake_ns": 1000, "interrupt_ns": 0},
    **{"switch_ns": 1000, "idle_exit_ns": 2000, "refill_ns": 0, "refill_near_ns": 0},
    **{"copy_ns": 500, "send_ns": 1000, "loop_ns": 2000, "stall_every_ns": 0, "link_ns": 10_000},
}
"""Costs of the guest's kernel, which has no caches and cheap kernel code."""
TASK = DeclaredCompetitor("logger", 3000, 20_000, (0, 1))
CONFIG = load_config()
LOAD = replace(CONFIG.load, retransmissions=False)


def mean_k_rcv_us(kernel: str, workers: int, beside: bool, cost_ns: int, seed: int) -> float:
    bed = load_testbed("simulated-cfs")
    assert bed.simulated is not None
    machine = replace(bed.simulated, kernel=kernel)
    bed = replace(bed, simulated=machine, competitors=(TASK,) if beside else ())
    mode = f"baseline+migration_cost_ns={cost_ns}"
    plan = plan_point(Point(bed.name, "kamailio-udp", mode, 2, workers), CONFIG, bed)
    numbers = {**plan.at(LOAD, Arrivals(CPS, CALLS, seed)), **GUEST}
    services = np.array(numbers["service_ns"], float)
    rest = GUEST["copy_ns"] + GUEST["send_ns"] + GUEST["loop_ns"] + GUEST["receive_ns"]
    numbers["service_ns"] = (services * (MESSAGE_NS - rest) / services[1:].mean()).tolist()
    with tempfile.TemporaryDirectory() as folder:
        report = simulate(numbers, Path(folder))
    return report.k_rcv_ns / report.served / 1000


if __name__ == "__main__":
    print("predicted by the simulator, not measured: mean K_rcv with 5 ms, with 0, and the change")
    for kernel, workers, beside in product(("5.10", "6.1"), (2, 4, 8), (False, True)):
        long, none = (
            np.array([mean_k_rcv_us(kernel, workers, beside, cost, seed) for seed in SEEDS])
            for cost in (5_000_000, 0)
        )
        change = 100 * (none / long - 1)
        print(
            f"kernel {kernel}, {workers} workers, {'with' if beside else 'without'} the task: "
            f"{long.mean():.0f} µs, {none.mean():.0f} µs, {change.mean():+.0f} % "
            f"({change.min():+.0f} to {change.max():+.0f})",
            flush=True,
        )
