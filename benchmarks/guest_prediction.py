"""Use the simulator to predict the results of the studies in virtual time.

These studies run in an emulated machine, the guest (docs/virtual-time.md). The simulator uses the guest's numbers: 250
µs of CPU time per message, and the softirq on the first core. In some rows, a task also uses 3 ms in every 20 ms. None
of these numbers was fitted to the effect of a mode. Each line of the CSV output is a change of the mean K_rcv, from the
reference mode to the other mode. It has the mean, the smallest and the largest change of six seeds.

`--capacities FILE` writes the predictions of the study scaling_virtual: the capacity on 1 to 8 cores of the guest.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np

from sipsched.analysis.capacity.deployments import speedups
from sipsched.analysis.guest_effects import PredictedEffect
from sipsched.measure.generator import Arrivals
from sipsched.measure.prediction import _capacity
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulator import ModelNumbers, simulate
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Point
from sipsched.records.speedups import Deployed, write_speedups
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


def plan_in_guest(guest: Testbed, point: Point, config: Config) -> SimulatedPoint:
    """Return the simulator's parameters for a point in the guest, except for the guest's costs."""
    bed = load_testbed(point.testbed)
    assert bed.simulated is not None and guest.virtual is not None
    machine = replace(
        bed.simulated,
        kernel=guest.virtual.kernel,
        processors=guest.virtual.sockets,
        cores_per_processor=guest.virtual.cores_per_socket,
    )
    return plan_point(point, config, replace(bed, simulated=machine, competitors=guest.competitors))


def in_guest(numbers: ModelNumbers) -> ModelNumbers:
    """Replace the costs of a real machine by the guest's costs. A message then takes `MESSAGE_NS` of CPU time."""
    services = np.array(numbers["service_ns"], float)
    rest = GUEST["copy_ns"] + GUEST["send_ns"] + GUEST["loop_ns"] + GUEST["receive_ns"]
    service_ns = (services * (MESSAGE_NS - rest) / services[1:].mean()).tolist()
    return {**numbers, **GUEST, "service_ns": service_ns}


def mean_k_rcv_us(
    guest: Testbed, mode: str, cores: int, workers: int, cps: int, seed: int
) -> float:
    point = Point("simulated-cfs", "kamailio-udp", mode, cores, workers)
    plan = plan_in_guest(guest, point, CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        report = simulate(in_guest(plan.at(LOAD, Arrivals(cps, CALLS, seed))), Path(folder))
    return report.k_rcv_ns / report.served / 1000


def capacities() -> Iterator[Deployed]:
    """Yield the simulated capacities of the study scaling_virtual, and of the instances that this study gave up."""
    guest = load_testbed("virtual-8cores")
    for name, cores in product(("kamailio-udp", "kamailio-udp-partitioned"), (1, 2, 4, 8)):
        # The SUT of the study has this buffer.
        sut = replace(CONFIG.sut(name), receive_buffer_bytes=65_536)
        config = replace(CONFIG, suts={name: sut}, load=LOAD)
        point = Point("simulated-cfs", name, "default", cores, 8)
        plan = plan_in_guest(guest, point, config)
        numbers = in_guest(plan.at(LOAD, Arrivals(1, CALLS, 1)))
        changes = {cost: numbers[cost] for cost in (*GUEST, "service_ns")}
        capacity = _capacity(plan, changes, config, 0.0, lambda cps: CALLS, 0)
        yield Deployed(
            deployment=sut.deployment,
            transport=sut.transport,
            cores=cores,
            threads=8,
            receive_cpus=1,
            model=f"{MESSAGE_NS / 1000:g} µs of CPU time per message; one CPU receives, no lock",
            cps=capacity.cps,
            drawn=(),
        )


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
    *((f"{bed}-busy-1us", *MIGRATION_COST, 2, 2, 850) for bed in BEDS),
    *((bed, *PAPERS, *system) for bed, system in product(BEDS, product((1,), (2, 8), (420,)))),
    *(
        (f"virtual-510{beside}", *PAPERS, *system)
        for beside, system in product(("", "-busy"), SEVERAL_CORES)
    ),
)
"""Rows of the table. A row names the testbed, the reference mode, the other mode, cores, workers and cps."""


def print_changes() -> None:
    """Print a CSV row for each predicted change of the mean K_rcv."""
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
        clock = f"{guest.virtual.clock.quantum_ns / 1000:g}"
        names = (bed, guest.virtual.kernel, clock, beside, "kamailio-udp", reference, mode)
        row = (*names, cores, workers, cps, *numbers, len(SEEDS))
        table.writerow(row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacities", type=Path, metavar="FILE")
    file = parser.parse_args().capacities
    if file:
        write_speedups(speedups(capacities()), file)
    else:
        print_changes()
