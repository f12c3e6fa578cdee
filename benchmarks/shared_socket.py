"""Predict how the capacity grows with the cores, with a shared UDP socket and with one proxy instance per worker.

The simulator uses the model that is fitted to the recorded campaign. The variant "largest costs" adds the largest costs
of a shared socket that agree with the recorded runs. Each proxy has two workers per core. Each line states a capacity,
and its ratio to the capacity of a shared socket on one core with the same costs. docs/simulator/deployments.md compares
the ratios with measurements. At the end, the benchmark prints the share of messages that find the socket on another
core, in overloads of two cores. The benchmark takes about two minutes on two CPUs.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sipsched.measure.generator import Arrivals
from sipsched.measure.prediction import predict_carried
from sipsched.measure.simulated_point import plan_point
from sipsched.measure.simulator import simulate
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Point
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import read_capacity
from sipsched.testbed.inventory import load_testbed

CORES = (1, 2, 4, 8, 12)
SUTS = ("kamailio-udp", "kamailio-udp-partitioned")
VARIANTS = {
    "fitted costs": {"socket_lock_ns": 0, "transfer_ns": 0},
    "largest costs": {"socket_lock_ns": 2900, "transfer_ns": 42_000},
}
OVERLOADS_CPS = (3200, 3800)


def share_of_transfers(fitted: Fitted, config: Config, costs: Mapping[str, int], cps: int) -> float:
    """Return the share of messages before which a worker on the other of two cores used the socket."""
    plan = plan_point(
        Point("simulated", SUTS[0], "default", 2, 4), config, load_testbed("simulated")
    )
    whole = {**plan.at(config.load, Arrivals(cps, 10 * cps, 1)), **fitted.numbers, **costs}
    with tempfile.TemporaryDirectory() as folder:
        report = simulate(whole, Path(folder))
    return sum(worker.transfers for worker in report.workers) / report.served


def main() -> None:
    """Print a line per variant, SUT and number of cores."""
    config = load_config()
    fitted = read_capacity(PROJECT_ROOT / "recorded/predicted/local/capacity.json").fitted
    for variant, costs in VARIANTS.items():
        one = predict_carried(replace(fitted, sut=SUTS[0]), config, 1, 2, costs).cps
        for sut in SUTS:
            for cores in CORES:
                found = predict_carried(replace(fitted, sut=sut), config, cores, 2 * cores, costs)
                print(
                    f"{variant}, {sut}, {cores} cores: {found.cps:.0f} cps, ratio {found.cps / one:.2f}, "
                    f"receiving CPU {found.receive_share:.0%} busy with receiving",
                    flush=True,
                )
    for variant, costs in VARIANTS.items():
        for cps in OVERLOADS_CPS:
            share = share_of_transfers(fitted, config, costs, cps)
            print(
                f"{variant}, 2 cores, {cps} cps: {share:.0%} of the messages find the socket on the other core"
            )


if __name__ == "__main__":
    main()
