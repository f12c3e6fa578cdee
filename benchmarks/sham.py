"""How often an A/A comparison is called a difference: sham windows against the reference's own.

Reads the `windows.nc` that are there; nothing is measured. The blocks of each run that count are cut into disjoint
groups of consecutive ones. In each group the sham arm is compared with the reference as pages compare a mode with
it: by the 95 % interval, and by the randomisation test at 5 %. The test should reject in 5 % of groups, the interval
in about 3 % where blocks are independent, since few blocks cannot show that they are (1500 draws of 8 to 30 lognormal
blocks: 2.5 to 3.3 %). Quantities of one group come from the same messages: they are no independent comparisons, and
the interval of the rate in all takes groups as its units. With all blocks of all runs: what a switch by itself does.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from sipsched.analysis import crossover
from sipsched.analysis.statistics import LEVEL
from sipsched.errors import StableError
from sipsched.pages.numbers import in_words
from sipsched.records.windows import by_arm, open_windows

QUANTITIES = {
    "k_rcv_mean": "mean K_rcv",
    "t_sip_mean": "mean T_sip",
    "total_p99": "p99 of K_rcv + T_sip",
    "cpu_per_message": "CPU a message",
}
ALPHA = round(1 - LEVEL, 12)
BLOCKS = 10
COMPARISONS = 200
"""Fewer do not tell a test that rejects at its level from one that rejects twice as often."""
TARGET = (0.02, 0.09)
FEW = 10
"""Rejections below which it cannot be seen whether they come together."""
WAYS = ("interval", "randomisation test")

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rate:
    """How often a test rejects.

    Attributes
    ----------
    rejected, comparisons
        Counts.
    worth
        Of how many independent comparisons the rate is as well known.
    """

    rejected: int
    comparisons: int
    worth: float

    @property
    def share(self) -> float:
        """Rejected of all."""
        return self.rejected / self.comparisons

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of Clopper and Pearson."""
        n, k = self.worth, self.worth * self.share
        low = stats.beta.ppf(ALPHA / 2, k, n - k + 1) if k > 0 else 0.0
        high = stats.beta.ppf(1 - ALPHA / 2, k + 1, n - k) if k < n else 1.0
        return float(low), float(high)

    def __str__(self) -> str:
        """Write it: "4 of 60 = 6.7 % (1.8 to 16 %)"."""
        low, high = self.interval
        return (
            f"{self.rejected} of {self.comparisons} = {100 * self.share:.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f} %)"
        )


def rate(rejects: Values) -> Rate:
    """Count rejections, and what comparisons that hang together are worth.

    Parameters
    ----------
    rejects
        Shape (group, quantity): 1 or 0, NaN where there is no test. Groups are independent.
    """
    tested = ~np.isnan(rejects)
    by_group, of_group = np.nansum(rejects, axis=1), tested.sum(axis=1)
    comparisons, rejected = int(of_group.sum()), int(by_group.sum())
    groups = int((of_group > 0).sum())
    share = rejected / comparisons
    variance = ((by_group - share * of_group) ** 2).sum() / comparisons**2
    if rejected < FEW or variance == 0:
        # too little tells how they hang together: as if those of a group were all the same
        return Rate(rejected, comparisons, float(groups))
    variance *= groups / (groups - 1)
    worth = share * (1 - share) / variance
    return Rate(rejected, comparisons, float(np.clip(worth, groups, comparisons)))


def pairs(ds: xr.Dataset) -> Values:
    """Take reference and sham of the blocks that count.

    Returns
    -------
    ndarray
        Shape (quantity, block, 2); all NaN for a quantity that the run does not have.
    """
    tables = np.stack([by_arm(ds, name)[:, [0, -1]] for name in QUANTITIES])
    there = ~np.isnan(tables).all(axis=(1, 2))
    counts = ~np.isnan(tables[there]).any(axis=(0, 2))
    return tables[:, counts]


def groups(table: Values, size: int) -> list[Values]:
    """Cut blocks into disjoint groups of consecutive ones; what does not fill a group is left out."""
    starts = range(0, table.shape[1] - size + 1, size)
    return [table[:, start : start + size] for start in starts]


def rejected(group: Values) -> tuple[float, float]:
    """Compare sham with reference in one group, shape (block, 2).

    Returns
    -------
    tuple
        As `WAYS`: 1 rejected, 0 not, NaN no test.
    """
    if np.isnan(group).any():
        return math.nan, math.nan
    found = crossover.effect([group], 0, 1)
    interval, p_value = found.interval, found.p_randomisation
    return (
        float(not interval.low <= 0 <= interval.high) if interval.known else math.nan,
        math.nan if math.isnan(p_value) else float(p_value <= ALPHA),
    )


def find(folders: Iterable[Path]) -> list[xr.Dataset]:
    """Read every `windows.nc` below some folders, each run once."""
    runs: dict[tuple[str, ...], xr.Dataset] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("windows.nc")):
        try:
            ds = open_windows(path)
        except StableError as error:
            print(f"sham: left out: {error}", file=sys.stderr)
            continue
        key = ("testbed", "sut", "mode", "cores", "threads", "cps", "rep", "started_at")
        runs[tuple(str(ds.attrs[name]) for name in key)] = ds
    return list(runs.values())


def verdict(found: Rate) -> str:
    """Hold a rate against the target."""
    low, high = TARGET
    wanted = f"target {100 * low:.0f} to {100 * high:.0f} % of {COMPARISONS}"
    if found.comparisons < COMPARISONS:
        return f"{wanted}: not to be told from {found.comparisons} comparisons"
    reached = "reached" if low <= found.share <= high else "missed"
    return f"{wanted}: {reached}"


def show(runs: Sequence[Values], kinds: Mapping[str, int], size: int) -> None:
    """Print the rates of runs, each as `pairs` gives them."""
    cut = [group for table in runs for group in groups(table, size)]
    blocks = sum(table.shape[1] for table in runs)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(
        f"sham: {len(runs)} runs ({told}), {blocks} blocks that count, "
        f"{len(cut)} groups of {size} consecutive blocks of one run"
    )
    if not cut:
        print(f"sham: no run has {size} blocks that count: nothing to say")
        return
    tests = np.array([[rejected(quantity) for quantity in group] for group in cut])
    for way, name in enumerate(WAYS):
        print(f"  rejected at {100 * ALPHA:.0f} % by the {name}:")
        for place, words in enumerate(QUANTITIES.values()):
            column = tests[:, [place], way]
            if np.isnan(column).all():
                print(f"    {words}: not measured")
            else:
                print(f"    {words}: {rate(column)}")
        if np.isnan(tests[:, :, way]).all():
            continue
        whole = rate(tests[:, :, way])
        print(
            f"    in all: {whole}; quantities of a group hang together, so these {whole.comparisons} "
            f"comparisons are taken as {whole.worth:.0f} independent ones; {verdict(whole)}"
        )
    print("  sham against reference, all blocks of all runs:")
    for place, words in enumerate(QUANTITIES.values()):
        found = crossover.effect([table[place] for table in runs], 0, 1)
        print(f"    {words}: {in_words(crossover.percent(found.interval), '%')} blocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("results")])
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="in a group")
    options = parser.parse_args()
    found = find(options.folders)
    if not found:
        print(
            f"sham: no windows.nc under {', '.join(map(str, options.folders))}, so nothing is known of "
            "A/A comparisons: measure runs that compare modes (make reproduce), or name a folder"
        )
        return
    kinds: dict[str, int] = {}
    for ds in found:
        kinds[ds.attrs["kind"]] = kinds.get(ds.attrs["kind"], 0) + 1
    show([pairs(ds) for ds in found], kinds, options.blocks)


if __name__ == "__main__":
    main()
