"""What the probe costs the proxy: windows with its recording, and windows without, of the same runs."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sipsched.analysis.crossover import Effect, effect
from sipsched.plan.modes import Setting
from sipsched.records.windows import by_arm, open_windows

STILLED = f"+{Setting.RECORDING}=off"
"""What the name of a mode ends in whose windows the probe did not record."""


@dataclass(frozen=True)
class ProbeCost:
    """The proxy's CPU time a message, with the probe and without, at one point.

    Attributes
    ----------
    testbed, sut, mode, cores, threads, cps
        The point; `mode` is the one in which the probe records.
    without_us
        Mean over the windows without it.
    effect
        With the probe over without it, a ratio.
    sham
        The reference of the comparison against itself: what the same runs show where nothing changes.
    """

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    without_us: float
    effect: Effect
    sham: Effect


def probe_costs(paths: Iterable[Path]) -> list[ProbeCost]:
    """Compare the windows of runs in which the probe was stilled; of other runs nothing.

    Parameters
    ----------
    paths
        Files windows.nc.

    Raises
    ------
    StableError
        A file is damaged or of another version.
    """
    runs = defaultdict(list)
    for path in paths:
        ds = open_windows(path)
        arms = [str(arm) for arm in ds["arm"].to_numpy()]
        stilled = [arm for arm in arms if arm.endswith(STILLED)]
        for arm in stilled:
            mode = arm.removesuffix(STILLED)
            if mode in arms:
                point = tuple(
                    ds.attrs[key] for key in ("testbed", "sut", "cores", "threads", "cps")
                )
                places = (arms.index(mode), arms.index(arm), len(arms) - 1)
                runs[mode, point, places].append(by_arm(ds, "cpu_per_message"))
    costs = []
    for (mode, (testbed, sut, cores, threads, cps), (on, off, sham)), tables in sorted(
        runs.items()
    ):
        without = np.concatenate([table[:, off] for table in tables])
        known = without[~np.isnan(without)]
        costs.append(
            ProbeCost(
                testbed=str(testbed),
                sut=str(sut),
                mode=mode,
                cores=int(cores),
                threads=int(threads),
                cps=int(cps),
                without_us=float(known.mean()) if known.size else np.nan,
                effect=effect(tables, off, on),
                sham=effect(tables, 0, sham),
            )
        )
    return costs
