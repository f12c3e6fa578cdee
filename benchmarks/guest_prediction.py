"""Use the simulator to predict the results of the studies in virtual time.

These studies run in an emulated machine, the guest (docs/virtual-time.md). The simulator uses the guest's numbers: 250
µs of CPU time per message of Kamailio at 2000 million instructions per second (MIPS), 116 µs per message of OpenSIPS,
and the softirq on the first core. In some rows, a task also uses 3 ms in every 20 ms. None of these numbers was fitted
to the effect of a mode. Each line of the CSV output is a change of the mean K_rcv, from the reference mode to the other
mode. The line has the mean, the smallest and the largest change of six seeds.

`--capacities FILE` writes the predictions of the study scaling_virtual: the capacity on 1 to 8 cores of the guest.
`--papers` prints the predictions of the studies in papers_virtual.yaml, with 275 µs per message: the changes of drop
rate and K_rcv for each row of the papers' comparison tables, and for each migration cost of figure 2. `--kernels`
prints the predictions of the study kernels_virtual: the change of the mean K_rcv from CFS (Linux 6.1) to EEVDF (Linux
6.12), each with its own settings. `--packages` prints the predictions of the study packages_default_virtual: K_rcv and
drop rate on one and on two processor packages.
"""

import argparse
import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np

from sipsched.analysis.capacity.deployments import speedups
from sipsched.analysis.guest_effects import PredictedEffect
from sipsched.measure.generator import Arrivals
from sipsched.measure.prediction import _capacity
from sipsched.measure.simulated_point import SimulatedPoint, plan_point
from sipsched.measure.simulator import ModelNumbers, SimulatorReport, simulate
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Config, load_config
from sipsched.plan.documents import read_yaml
from sipsched.plan.run import Point
from sipsched.records.speedups import Deployed, write_speedups
from sipsched.testbed.inventory import Testbed, load_testbed

SEEDS = range(6)
CALLS = 8000
MIPS = 2000
"""Speed of the guest's CPUs, in million instructions per second. The following costs are valid at this speed."""
MESSAGE_NS = 250_000
LOCK_SHARE = 0.08
"""Share of the service time in which a worker of Kamailio holds a lock (6 to 11 %). It was estimated from the waits and
preemptions in runs on one core in real time (docs/simulator/numbers.md)."""
OPENSIPS_NS = 116_000
"""CPU time per message of OpenSIPS on two cores, from one run at 850 calls per second that compared nothing."""
MEASURED_NS = 275_000
"""CPU time per message on one core, as the study scaling_virtual measured it after its predictions."""
LOGGED_NS = 337_000
"""CPU time per message with a line of log per message, from one run at 2000 calls per second and 7000 MIPS."""
COMPUTING = {
    **{"receive_ns": 2000, "wake_ns": 1000, "switch_ns": 1000},
    **{"copy_ns": 500, "send_ns": 1000, "loop_ns": 2000, "link_ns": 10_000},
}
"""Costs of instructions in the guest, in which kernel code takes little time."""
FIXED = {
    **{"interrupt_ns": 0, "idle_exit_ns": 2000, "refill_ns": 0},
    **{"refill_near_ns": 0, "stall_every_ns": 0},
}
"""Numbers of the guest that do not depend on its speed. The guest has no caches."""
CONFIG = load_config()
LOAD = replace(CONFIG.load, retransmissions=False)
SMALL_BUFFER_BYTES = 65_536
"""Receive buffer of the SUTs in the studies scaling_virtual and papers_virtual."""
SMALL_BUFFER = replace(
    CONFIG,
    suts={
        "kamailio-udp": replace(CONFIG.sut("kamailio-udp"), receive_buffer_bytes=SMALL_BUFFER_BYTES)
    },
)


def plan_in_guest(guest: Testbed, point: Point, config: Config) -> SimulatedPoint:
    """Return the simulator's parameters for a point in the guest, except for the guest's costs."""
    bed = load_testbed(point.testbed)
    assert bed.simulated is not None and guest.virtual is not None
    # The simulator numbers the cores of a package one after another.
    packages = Counter(
        cpu // guest.virtual.cores_per_socket for cpu in guest.sps.cpus[: point.cores]
    )
    machine = replace(
        bed.simulated,
        kernel=SIMULATED_KERNELS.get(guest.virtual.kernel, guest.virtual.kernel),
        numa=guest.virtual.numa,
        processors=guest.virtual.sockets,
        cores_per_processor=max(packages.values())
        if len(packages) > 1
        else guest.virtual.cores_per_socket,
    )
    return plan_point(point, config, replace(bed, simulated=machine, competitors=guest.competitors))


def in_guest(guest: Testbed, numbers: ModelNumbers, message_ns: float = MESSAGE_NS) -> ModelNumbers:
    """Replace the costs of a real machine by the guest's costs, with `message_ns` per message at `MIPS`."""
    assert guest.virtual is not None
    machine, clock = guest.virtual, guest.virtual.clock
    slower = MIPS / clock.mips
    costs = {name: round(cost * slower) for name, cost in COMPUTING.items()}
    # The simulator distinguishes the first core from a core that the proxy does not use.
    costs["receive_cpus"] = int(guest.tuning.receive_cpus == (0,))
    services = np.array(numbers["service_ns"], float)
    rest = sum(costs[name] for name in ("copy_ns", "send_ns", "loop_ns", "receive_ns"))
    mean_ns = message_ns * slower - rest
    service_ns = (services * mean_ns / services[1:].mean()).tolist()
    # All CPUs of the guest are online, also those that the proxy may not use.
    online = (
        {}
        if machine.isolated
        else {
            "online": machine.sockets * machine.cores_per_socket,
            "online_per_processor": machine.cores_per_socket,
        }
    )
    return {**numbers, **FIXED, **costs, **online, "service_ns": service_ns}


def simulated(
    guest: Testbed,
    mode: str,
    cores: int,
    workers: int,
    cps: int,
    seed: int,
    config: Config = CONFIG,
    message_ns: float = MESSAGE_NS,
) -> SimulatorReport:
    """Simulate a run in the guest. The proxy is the first SUT of the configuration."""
    (sut, *_) = config.suts
    point = Point("simulated-cfs", sut, mode, cores, workers)
    plan = plan_in_guest(guest, point, config)
    with tempfile.TemporaryDirectory() as folder:
        numbers = in_guest(guest, plan.at(LOAD, Arrivals(cps, CALLS, seed)), message_ns)
        if plan.sut.proxy == "kamailio":
            numbers = {**numbers, "lock_share": LOCK_SHARE}
        return simulate(numbers, Path(folder))


def k_rcv_us(report: SimulatorReport) -> float:
    """Return the mean K_rcv of a simulated run in µs."""
    return report.k_rcv_ns / report.served / 1000


def pdr(report: SimulatorReport) -> float:
    """Return the share of messages that the proxy of a simulated run dropped."""
    return report.refused / report.arrived


SCALING_BUFFERS = {
    "kamailio-udp": SMALL_BUFFER_BYTES,
    "kamailio-udp-sockets": 16_384,
    "kamailio-udp-partitioned": 16_384,
}
"""Receive buffers of the UDP deployments of the study scaling_virtual, in bytes per socket."""


def capacities() -> Iterator[Deployed]:
    """Yield the simulated capacities of the UDP deployments of the study scaling_virtual."""
    guest = load_testbed("virtual-8cores")
    for name, cores in product(SCALING_BUFFERS, (1, 2, 4, 6, 8)):
        sut = replace(CONFIG.sut(name), receive_buffer_bytes=SCALING_BUFFERS[name])
        config = replace(CONFIG, suts={name: sut}, load=LOAD)
        point = Point("simulated-cfs", name, "default", cores, 8)
        plan = plan_in_guest(guest, point, config)
        numbers = in_guest(guest, plan.at(LOAD, Arrivals(1, CALLS, 1)))
        own = ("receive_cpus", "online", "online_per_processor", "service_ns")
        changed = (*COMPUTING, *FIXED, *own)
        changes = {**{cost: numbers[cost] for cost in changed}, "lock_share": LOCK_SHARE}
        capacity = _capacity(plan, changes, config, 0.0, lambda cps: CALLS, 0)
        yield Deployed(
            deployment=sut.deployment,
            transport=sut.transport,
            cores=cores,
            threads=8,
            receive_cpus=1,
            model=f"{MESSAGE_NS / 1000:g} µs of CPU time per message; one CPU receives, lock share {LOCK_SHARE}",
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
    *((f"virtual-510-{where}", *MIGRATION_COST, 2, 2, 850) for where in ("other-core", "rx-away")),
    *(
        ("virtual-510-busy", *MIGRATION_COST, *system)
        for system in ((2, 16, 850), (4, 4, 1700), (4, 16, 1700))
    ),
    *((bed, *PAPERS, *system) for bed, system in product(BEDS, product((1,), (2, 8), (420,)))),
    *(
        (f"virtual-510{beside}", *PAPERS, *system)
        for beside, system in product(("", "-busy"), SEVERAL_CORES)
    ),
)
"""Rows of the table. A row names the testbed, the reference mode, the other mode, cores, workers and cps."""
OPENSIPS_ROWS = tuple(
    (f"virtual-510-opensips{beside}", *MIGRATION_COST, 2, workers, 1800)
    for beside, workers in product(("", "-busy"), (2, 4))
)
"""Rows with OpenSIPS. They are rows of the study migration_cost_opensips_virtual."""
SIMULATED_KERNELS = {"6.12": "6.18", "/usr/local/share/linux-3.2.71/bzImage": "3.2"}
"""The simulator's name of a guest's kernel, if the simulator has another name for it or lacks it."""
KERNELS = (("virtual-2000", "virtual-612"), ("virtual-2000-busy", "virtual-612-busy"))
"""Testbeds with CFS and with EEVDF of the study kernels_virtual."""
PAPERS_STUDIES = (
    "papers_virtual",
    "papers_log_virtual",
    "papers_packages_virtual",
    "papers_old_kernel_virtual",
)
"""Files in config/studies with rows of the papers' comparison tables in virtual time."""


def changes(first: Iterable[float], second: Iterable[float]) -> np.ndarray:
    """Return the change from `first` to `second` in percent, one value per seed."""
    return 100 * (np.array(list(second)) / np.array(list(first)) - 1)


def in_numbers(values: np.ndarray, digits: int = 1) -> list[str]:
    """Return the mean, the smallest and the largest of some values as text."""
    return [f"{value:.{digits}f}" for value in (values.mean(), values.min(), values.max())]


def columns(*names: str) -> list[str]:
    """Return the headings of the numbers that `in_numbers` returns."""
    return [f"{name}_{part}" for name in names for part in ("mean", "lowest", "highest")]


def waits(guest: Testbed, mode: str, *system: int, message_ns: float = MESSAGE_NS) -> list[float]:
    """Return the mean K_rcv in µs for each seed. `system` is the number of cores, of workers, and the load in cps."""
    return [
        k_rcv_us(simulated(guest, mode, *system, seed, message_ns=message_ns)) for seed in SEEDS
    ]


def print_changes() -> None:
    """Print a CSV row for each predicted change of the mean K_rcv."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(field.name for field in fields(PredictedEffect))
    rows = [
        *(("kamailio-udp", MESSAGE_NS, row) for row in ROWS),
        *(("opensips-udp", OPENSIPS_NS, row) for row in OPENSIPS_ROWS),
    ]
    for sut, message_ns, (bed, reference, mode, *system) in rows:
        guest = load_testbed(bed)
        assert guest.virtual is not None
        first, second = (
            waits(guest, each, *system, message_ns=message_ns) for each in (reference, mode)
        )
        change = changes(first, second)
        beside = " ".join(task.name for task in guest.competitors)
        clock = f"{guest.virtual.clock.quantum_ns / 1000:g}"
        names = (bed, guest.virtual.kernel, clock, beside, sut, reference, mode)
        shares = any(not task.cpus or min(task.cpus) < system[0] for task in guest.competitors)
        table.writerow((*names, *system, *in_numbers(change), len(SEEDS), shares))


def print_kernels() -> None:
    """Print a CSV row for each pair of kernels and number of workers of the study kernels_virtual.

    The columns k_rcv are the change of the mean K_rcv in percent from the first testbed to the second: mean, smallest
    and largest change over the seeds.
    """
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("testbed", "other_testbed", "cores", "threads", "cps", *columns("k_rcv")))
    for beds, workers in product(KERNELS, (2, 4, 8)):
        system = (2, workers, 850)
        first, second = (waits(load_testbed(bed), "default", *system) for bed in beds)
        table.writerow((*beds, *system, *in_numbers(changes(first, second))))


def print_papers() -> None:
    """Print a CSV row for each mode, except the first one, at each point of the study files `PAPERS_STUDIES`.

    The columns k_rcv are the change of the mean K_rcv in percent, and the columns pdr the change of the drop rate in
    percentage points, from the first mode to this mode: mean, smallest and largest change over the seeds.
    """
    table = csv.writer(sys.stdout, lineterminator="\n")
    names = ("testbed", "reference", "mode", "cores", "threads", "cps", "pdr_reference_percent")
    table.writerow((*names, *columns("k_rcv", "pdr")))
    files = (PROJECT_ROOT / "config" / "studies" / f"{name}.yaml" for name in PAPERS_STUDIES)
    for study in (study for file in files for study in read_yaml(file)["studies"].values()):
        points = study.get("points") or product(study["cores"], study["threads"], study["cps"])
        for bed, (cores, workers, cps) in product(study["testbeds"], points):
            guest = load_testbed(bed)
            logs = any(task.reads_log for task in guest.competitors)
            message_ns = LOGGED_NS if logs else MEASURED_NS
            first, *others = (
                [
                    simulated(guest, mode, cores, workers, cps, seed, SMALL_BUFFER, message_ns)
                    for seed in SEEDS
                ]
                for mode in study["modes"]
            )
            percent = 100 * np.mean([pdr(run) for run in first])
            for mode, runs in zip(study["modes"][1:], others, strict=True):
                k_rcv = changes(map(k_rcv_us, first), map(k_rcv_us, runs))
                dropped = np.array(
                    [100 * (pdr(b) - pdr(a)) for a, b in zip(first, runs, strict=True)]
                )
                row = (bed, study["modes"][0], mode, cores, workers, cps, f"{percent:.2f}")
                table.writerow((*row, *in_numbers(k_rcv, 2), *in_numbers(dropped, 2)))


def print_packages() -> None:
    """Print a CSV row for each mode at each point of the study packages_default_virtual on each of its testbeds.

    The columns k_rcv are the mean K_rcv in µs, and the columns pdr are the drop rate in percent: mean, smallest and
    largest value over the seeds.
    """
    table = csv.writer(sys.stdout, lineterminator="\n")
    names = ("testbed", "mode", "cores", "threads", "cps", *columns("k_rcv", "pdr"))
    table.writerow(names)
    file = read_yaml(PROJECT_ROOT / "config" / "studies" / "packages_default_virtual.yaml")
    (study,) = file["studies"].values()
    for bed, mode, system in product(file["testbeds"], study["modes"], study["points"]):
        guest = load_testbed(bed)
        runs = [simulated(guest, mode, *system, seed, SMALL_BUFFER, MEASURED_NS) for seed in SEEDS]
        k_rcv, dropped = (
            in_numbers(np.array(values), 2)
            for values in ([k_rcv_us(run) for run in runs], [100 * pdr(run) for run in runs])
        )
        table.writerow((bed, mode, *system, *k_rcv, *dropped))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacities", type=Path, metavar="FILE")
    parser.add_argument("--papers", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--packages", action="store_true")
    arguments = parser.parse_args()
    if arguments.capacities:
        write_speedups(speedups(capacities()), arguments.capacities)
    elif arguments.kernels:
        print_kernels()
    elif arguments.packages:
        print_packages()
    elif arguments.papers:
        print_papers()
    else:
        print_changes()
