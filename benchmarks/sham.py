"""Count how often the test of the pages finds a difference between windows of the same mode.

The benchmark reads existing `windows.nc` files and measures nothing. The benchmark divides the valid blocks of each run
into disjoint groups of consecutive blocks. In each group, the benchmark tests whether the sham differs from the
reference, as the pages do. A sham window has the reference mode and a random position in its block, so it differs from
the reference window only by chance. The test should therefore find a difference in 5 % of groups. The quantities of one
group come from the same messages and depend on each other. The interval of the overall rate takes this dependence into
account. In older records, the sham window always follows the reference window, so its position is not random.
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
from sipsched.analysis.intervals import LEVEL
from sipsched.errors import StableError
from sipsched.pages.numbers import in_words
from sipsched.records.windows import by_arm, open_windows

QUANTITIES = {
    "k_rcv_mean": "mean K_rcv",
    "t_sip_mean": "mean T_sip",
    "total_p99": "p99 of K_rcv + T_sip",
    "cpu_per_message": "CPU per message",
}
ALPHA = round(1 - LEVEL, 12)
BLOCKS = 10
COMPARISONS = 200
"""Smallest number of comparisons that can distinguish a correct test from a test with twice as many rejections."""
TARGET = (0.02, 0.09)
FEW = 10
"""Smallest number of rejections that can show whether the rejections within a group are correlated."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rate:
    """The share of comparisons in which the test finds a difference, with the numbers for its confidence interval.

    Attributes
    ----------
    rejected, comparisons
        Number of comparisons with a difference, and number of all comparisons.
    worth
        Number of independent comparisons that would give the share the same precision.
    """

    rejected: int
    comparisons: int
    worth: float

    @property
    def share(self) -> float:
        """Return the number of comparisons with a difference, divided by the number of all comparisons."""
        return self.rejected / self.comparisons

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share by the method of Clopper and Pearson."""
        n, k = self.worth, self.worth * self.share
        low = stats.beta.ppf(ALPHA / 2, k, n - k + 1) if k > 0 else 0.0
        high = stats.beta.ppf(1 - ALPHA / 2, k + 1, n - k) if k < n else 1.0
        return float(low), float(high)

    def __str__(self) -> str:
        """Return text such as "4 of 60 = 6.7 % (1.8 to 16 %)"."""
        low, high = self.interval
        return (
            f"{self.rejected} of {self.comparisons} = {100 * self.share:.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f} %)"
        )


def rate(rejects: Values) -> Rate:
    """Return the share of comparisons with a difference, and its precision.

    Parameters
    ----------
    rejects
        Shape (group, quantity): 1 if the test finds a difference, 0 if not, NaN without a test. Groups are independent.
    """
    tested = ~np.isnan(rejects)
    by_group, of_group = np.nansum(rejects, axis=1), tested.sum(axis=1)
    comparisons, rejected = int(of_group.sum()), int(by_group.sum())
    groups = int((of_group > 0).sum())
    share = rejected / comparisons
    variance = ((by_group - share * of_group) ** 2).sum() / comparisons**2
    if rejected < FEW or variance == 0:
        # count each group as one comparison, as if its quantities were fully correlated, because few rejections cannot
        # show their correlation
        return Rate(rejected, comparisons, float(groups))
    variance *= groups / (groups - 1)
    worth = share * (1 - share) / variance
    return Rate(rejected, comparisons, float(np.clip(worth, groups, comparisons)))


def pairs(ds: xr.Dataset) -> Values:
    """Return the values of the reference window and of the sham window in each valid block.

    Returns
    -------
    ndarray
        Shape (quantity, block, 2); NaN for a quantity that the run lacks.
    """
    tables = np.stack([by_arm(ds, name)[:, [0, -1]] for name in QUANTITIES])
    there = ~np.isnan(tables).all(axis=(1, 2))
    counts = ~np.isnan(tables[there]).any(axis=(0, 2))
    return tables[:, counts]


def groups(table: Values, size: int) -> list[Values]:
    """Divide the blocks of a run into groups of `size` consecutive blocks, and drop an incomplete last group."""
    starts = range(0, table.shape[1] - size + 1, size)
    return [table[:, start : start + size] for start in starts]


def rejected(group: Values) -> float:
    """Return 1 if the test finds that sham and reference differ in a group, 0 if not, and NaN without a test."""
    if np.isnan(group).any():
        return math.nan
    p_value = crossover.effect([group], 0, 1).p_value
    return math.nan if math.isnan(p_value) else float(p_value <= ALPHA)


def find(folders: Iterable[Path]) -> list[xr.Dataset]:
    """Return the `windows.nc` datasets of all runs below the folders.

    A run with several copies of `windows.nc` occurs once.
    """
    runs: dict[tuple[str, ...], xr.Dataset] = {}
    for path in sorted(path for folder in folders for path in folder.rglob("windows.nc")):
        try:
            ds = open_windows(path)
        except StableError as error:
            print(f"sham: excluded: {error}", file=sys.stderr)
            continue
        key = ("testbed", "sut", "mode", "cores", "threads", "cps", "rep", "started_at")
        runs[tuple(str(ds.attrs[name]) for name in key)] = ds
    return list(runs.values())


def verdict(rejections: Rate) -> str:
    """Return text that states whether a rate of found differences lies within `TARGET`."""
    low, high = TARGET
    wanted = f"target {100 * low:.0f} to {100 * high:.0f} % of {COMPARISONS}"
    if rejections.comparisons < COMPARISONS:
        return f"{wanted}: {rejections.comparisons} comparisons are too few to decide"
    reached = "reached" if low <= rejections.share <= high else "missed"
    return f"{wanted}: {reached}"


def show(runs: Sequence[Values], kinds: Mapping[str, int], size: int) -> None:
    """Print the rates of found differences. Each run is a table that `pairs` returned."""
    cut = [group for table in runs for group in groups(table, size)]
    blocks = sum(table.shape[1] for table in runs)
    kinds_text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(
        f"sham: {len(runs)} runs ({kinds_text}), {blocks} valid blocks, "
        f"{len(cut)} groups of {size} consecutive blocks of one run"
    )
    if not cut:
        print(f"sham: no run has {size} valid blocks, so no comparison is possible")
        return
    tests = np.array([[rejected(quantity) for quantity in group] for group in cut])
    print(f"  rejected at {100 * ALPHA:.0f} %:")
    for number, words in enumerate(QUANTITIES.values()):
        column = tests[:, [number]]
        if np.isnan(column).all():
            print(f"    {words}: not measured")
        else:
            print(f"    {words}: {rate(column)}")
    if not np.isnan(tests).all():
        whole = rate(tests)
        print(
            f"    in all: {whole}; quantities of a group are correlated, so these {whole.comparisons} "
            f"comparisons count as {whole.worth:.0f} independent comparisons; {verdict(whole)}"
        )
    print("  sham against reference, all blocks of all runs:")
    for number, words in enumerate(QUANTITIES.values()):
        difference = crossover.effect([table[number] for table in runs], 0, 1)
        print(f"    {words}: {in_words(crossover.percent(difference.interval), '%')} blocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("results")])
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="blocks per group")
    options = parser.parse_args()
    datasets = find(options.folders)
    if not datasets:
        print(
            f"sham: no windows.nc under {', '.join(map(str, options.folders))}, so there are "
            "no A/A comparisons: measure runs that compare modes (make reproduce), or name a folder"
        )
        return
    kinds: dict[str, int] = {}
    for ds in datasets:
        kinds[ds.attrs["kind"]] = kinds.get(ds.attrs["kind"], 0) + 1
    show([pairs(ds) for ds in datasets], kinds, options.blocks)


if __name__ == "__main__":
    main()
