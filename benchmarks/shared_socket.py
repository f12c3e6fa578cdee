"""Predict how the capacity grows with the cores, with a shared UDP socket and with one proxy instance per worker.

The simulator uses the model that is fitted to the recorded campaign. The variant "largest costs" adds the largest costs
of a shared socket that agree with the recorded runs. Each proxy has two workers per core. Each line states a capacity,
and its ratio to the capacity of a shared socket on one core with the same costs. docs/simulator/deployments.md compares
the ratios with measurements. The benchmark takes about two minutes on two CPUs.
"""

from dataclasses import replace

from sipsched.measure.prediction import predict_carried
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.records.prediction import read_capacity

CORES = (1, 2, 4, 8, 12)
SUTS = ("kamailio-udp", "kamailio-udp-partitioned")
VARIANTS = {
    "fitted costs": {"socket_lock_ns": 0, "transfer_ns": 0},
    "largest costs": {"socket_lock_ns": 2900, "transfer_ns": 42_000},
}


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


if __name__ == "__main__":
    main()
