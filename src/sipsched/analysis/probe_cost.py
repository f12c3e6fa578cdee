"""The CPU cost of the probe, from windows with and without recording in the same run."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sipsched.analysis.crossover import Effect, effect
from sipsched.plan.modes import Setting
from sipsched.records.windows import by_arm, open_windows

STILLED = f"+{Setting.RECORDING}=off"
"""Suffix of the name of a mode in which the probe does not record."""


@dataclass(frozen=True)
class ProbeCost:
    """The proxy's CPU time per message with and without the probe, for one setting and one load.

    Attributes
    ----------
    sut, mode, cores, threads, cps
        The setting and its load. `mode` is the mode in which the probe records.
    without_us
        Mean CPU time per message over the windows without recording.
    effect
        CPU time with the probe, divided by CPU time without the probe.
    sham
        CPU time in the sham windows, divided by the CPU time in the reference windows of the same runs. Sham windows
        also run in the reference mode, so this ratio shows the size of chance differences.
    """

    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    without_us: float
    effect: Effect
    sham: Effect


def probe_costs(paths: Iterable[Path]) -> list[ProbeCost]:
    """Return the probe's CPU cost per setting and load, from windows with and without recording.

    Raises
    ------
    StableError
        A file is damaged or has another format version.
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
    for (mode, (_, sut, cores, threads, cps), (on, off, sham)), tables in sorted(runs.items()):
        without = np.concatenate([table[:, off] for table in tables])
        known = without[~np.isnan(without)]
        costs.append(
            ProbeCost(
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
