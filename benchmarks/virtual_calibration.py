"""Compute the clock of a guest from runs on a real machine, and compare both machines.

`python benchmarks/virtual_calibration.py --clock` prints `mips`, `kernel_weight` and `wake_ns` for the testbed
`virtual-calibrated`. The numbers come from one setting, the same on the testbeds `local` and `virtual-uncalibrated`.
Without an option, the program prints the times per message of all settings: on `local`, and predicted by
`virtual-calibrated`. config/studies/calibration.yaml plans the runs, and `make reports` makes the summaries of the
recorded runs. `--results=results` reads the summaries of new runs.
"""

import argparse
from pathlib import Path

import pandas as pd

from sipsched.analysis.run_table import read_campaigns
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.inventory import load_testbed

RESULTS = PROJECT_ROOT / "results" / "recorded" / "virtual" / "raw"
REAL = ("calibration", "local")
REFERENCE = ("calibration_reference", "virtual-uncalibrated")
PREDICTED = ("calibrated", "virtual-calibrated")
SETTING = (8, 900)
"""Workers and calls per second of the setting from which the clock is computed."""
TIMES = {
    "user": "user",
    "system": "system",
    "k_stack_mean": "K_stack",
    "k_sockq_alone": "wake-up",
    "t_sip_mean": "T_sip",
    "k_rcv_mean": "K_rcv",
}
"""The times per message in µs, with their headings."""


def times(results: Path, study: str, testbed: str) -> pd.DataFrame:
    """Return the times per message of each valid run in µs, by workers and calls per second."""
    runs = read_campaigns([results / study / testbed / "summary.nc"])[0].single
    messages = 1000 * runs["messages"]
    runs = runs.assign(
        user=runs["proxy_user_ns"] / messages, system=runs["proxy_system_ns"] / messages
    )
    return runs.set_index(["threads", "cps"])[list(TIMES)].sort_index()


def clock(results: Path) -> None:
    """Print the clock with which the guest's user time, system time and wake-up time equal those of this machine."""
    guest = load_testbed(REFERENCE[1]).virtual
    assert guest is not None
    real, reference = (times(results, *of).loc[[SETTING]].median() for of in (REAL, REFERENCE))
    mips = guest.clock.mips * reference["user"] / real["user"]
    # At the new speed, the kernel's work of a wake-up takes as many times longer as all of its work.
    slower = real["system"] / reference["system"]
    weight = slower * mips / guest.clock.mips
    wake_us = real["k_sockq_alone"] - slower * reference["k_sockq_alone"]
    print(f"mips: {mips:.0f}")
    print(f"kernel_weight: {guest.clock.kernel_weight * weight:.2f}")
    print(f"wake_ns: {max(0, round(1000 * wake_us, -2)):.0f}")


def compare(results: Path) -> None:
    """Print the median and the range of each time on this machine, and the time that the guest predicts."""
    real, predicted = times(results, *REAL), times(results, *PREDICTED)
    print("workers  cps  time       measured (range)            predicted  inside")
    for setting, runs in real.groupby(level=[0, 1]):
        for time, heading in TIMES.items():
            low, middle, high = runs[time].min(), runs[time].median(), runs[time].max()
            value = predicted.loc[[setting], time].median()
            inside = "yes" if low <= value <= high else "no"
            workers, cps = setting
            interval = f"{middle:.1f} ({low:.1f} to {high:.1f})"
            print(f"{workers:7} {cps:4}  {heading:8} {interval:>28} {value:10.1f}  {inside}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    (clock if arguments.clock else compare)(arguments.results)
