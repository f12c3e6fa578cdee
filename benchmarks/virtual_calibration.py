"""Compute the clock of a guest from runs on a real machine.

The program prints `mips`, `kernel_weight` and `wake_ns` for the testbed `virtual-calibrated`. The numbers come from one
setting, which config/studies/calibration.yaml plans on the testbeds `local` and `virtual-uncalibrated`. `make reports`
makes the summaries of the recorded runs. `--results=results` reads the summaries of new runs. The page `calibration`
compares the other settings with the predictions of `virtual-calibrated`.
"""

import argparse
from pathlib import Path

import pandas as pd

from sipsched.analysis.calibration import REAL, REFERENCE, times
from sipsched.analysis.run_table import read_campaigns
from sipsched.paths import PROJECT_ROOT
from sipsched.testbed.inventory import load_testbed

RESULTS = PROJECT_ROOT / "results" / "recorded" / "virtual" / "raw"
GUEST = "virtual-uncalibrated"


def runs_of(results: Path, study: str, testbed: str) -> pd.DataFrame:
    """Return the times per message in µs of each valid run of a study."""
    return times(read_campaigns([results / study / testbed / "summary.nc"])[0])


def clock(results: Path) -> None:
    """Print the clock with which the guest's user time, system time and wake-up time equal those of this machine."""
    guest = load_testbed(GUEST).virtual
    assert guest is not None
    measured, in_guest = runs_of(results, REAL, "local"), runs_of(results, REFERENCE, GUEST)
    # The study of the reference has one setting.
    (setting,) = in_guest.index.droplevel("rep").unique()
    real, reference = (runs.loc[setting].median() for runs in (measured, in_guest))
    mips = guest.clock.mips * reference["user"] / real["user"]
    # At the new speed, the kernel's work of a wake-up takes as many times longer as all of its work.
    slower = real["system"] / reference["system"]
    weight = slower * mips / guest.clock.mips
    wake_us = real["k_sockq_alone"] - slower * reference["k_sockq_alone"]
    print(f"mips: {mips:.0f}")
    print(f"kernel_weight: {guest.clock.kernel_weight * weight:.2f}")
    print(f"wake_ns: {max(0, round(1000 * wake_us, -2)):.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    clock(parser.parse_args().results)
