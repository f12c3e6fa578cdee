"""Test how many capacity intervals contain the true capacity, on simulated machines with a varying speed.

    python benchmarks/capacity_drift.py [--campaigns 100] [--seed 1]

The logarithm of a machine's speed is the sum of three random parts. The first part changes over hours, the second
over minutes, and the third in each trial. A simulated campaign is a search of seven trials, followed by three runs at
each of five loads. The trials and runs are spread over 12 minutes (`spread`) or directly follow one another
(`at once`). The column `held` is the share of campaigns whose interval contains the machine's median capacity.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity.drift import Observations, Values, fit

TRUE_CPS = 1700.0
LIMIT = 0.01
SEARCHED = (4000, 1327, 2020, 1637, 1818, 1637, 1818)
SWEPT = (1000, 1600, 1800, 2000, 2200) * 3
SPREAD_OUT = np.concatenate(
    [
        np.arange(7) * 9,
        90 + np.arange(4) * 10,
        270 + np.arange(4) * 10,
        450 + np.arange(4) * 10,
        630 + np.arange(3) * 10,
    ]
).astype(float)
AT_ONCE = np.arange(22) * 10.0
HOURS_S, MINUTES_S = 5 * 3600.0, 300.0


@dataclass(frozen=True)
class DriftingMachine:
    """A simulated machine whose speed drifts.

    `hours`, `minutes` and `trial` are the standard deviations of the three parts of the speed's logarithm. `steepness`
    is the exponent with which the drop rate grows with the load.
    """

    hours: float
    minutes: float
    trial: float
    steepness: float = 20.0
    measured: bool = True
    """Whether each run records the CPU time per message, which shows the machine's speed with an error of 2 %."""

    def campaign(self, times: Values, rng: np.random.Generator) -> Observations:
        """Simulate the trials and runs of one campaign."""
        cps = np.array([*SEARCHED, *SWEPT], float)
        n = len(cps)
        log_speed = (
            _process(rng, times, self.hours, HOURS_S)
            + _process(rng, times, self.minutes, MINUTES_S)
            + self.trial * rng.normal(size=n)
        )
        own = TRUE_CPS * np.exp(log_speed)
        # add noise, because the drop rates of short runs differ even if the machine's speed does not
        loss = LIMIT * (cps / own) ** self.steepness * np.exp(rng.normal(size=n))
        fluid = 1 - own / cps
        loss = np.clip(np.where(fluid > 0, np.minimum(loss, fluid + 0.05), loss), 0, 0.7)
        loss[loss < LIMIT / 100] = 0
        cpu_us = 90 * (cps / 1800) ** -0.3 * np.exp(-log_speed + 0.02 * rng.normal(size=n))
        unknown = np.full(n, np.nan)
        return Observations(times, cps, loss, cpu_us if self.measured else unknown, unknown)


def _process(rng: np.random.Generator, times: Values, spread: float, memory_s: float) -> Values:
    """Sample a random drift around a mean (an Ornstein-Uhlenbeck process) at the given times."""
    apart = np.abs(times[:, None] - times)
    sampled = rng.multivariate_normal(np.zeros(len(times)), np.exp(-apart / memory_s))
    return np.asarray(spread * sampled)


MACHINES = {
    "does not drift": DriftingMachine(0, 0, 0.02),
    "differs by 10 % from trial to trial": DriftingMachine(0, 0, 0.10),
    "drifts by 10 % in minutes, 5 % by trial": DriftingMachine(0, 0.10, 0.05),
    "drifts by 10 % in hours, 8 % by trial": DriftingMachine(0.10, 0, 0.08),
    "drifts by 10 % in hours, 10 % in minutes, 5 % by trial": DriftingMachine(0.10, 0.10, 0.05),
    "drifts by 25 % in minutes, 5 % by trial": DriftingMachine(0, 0.25, 0.05),
    "the same, CPU time not recorded": DriftingMachine(0, 0.25, 0.05, measured=False),
}


def main() -> None:
    """Print a row for each combination of a machine and an order of its runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.campaigns} campaigns per row; 95 % intervals")
    print("| machine | trials | held | half-width, median | error of the estimate, median |")
    print("| --- | --- | --- | --- | --- |")
    for name, machine in MACHINES.items():
        for design, times in (("spread", SPREAD_OUT), ("at once", AT_ONCE)):
            rng = np.random.default_rng(options.seed)
            posteriors = [
                fit(machine.campaign(times, rng), LIMIT) for _ in range(options.campaigns)
            ]
            held = np.mean([fitted.low_cps <= TRUE_CPS <= fitted.high_cps for fitted in posteriors])
            half = np.median(
                [np.sqrt(fitted.high_cps / fitted.low_cps) - 1 for fitted in posteriors]
            )
            error = np.median([abs(fitted.estimate_cps / TRUE_CPS - 1) for fitted in posteriors])
            print(
                f"| {name} | {design} | {100 * held:.0f} % | {100 * half:.1f} % | {100 * error:.1f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
