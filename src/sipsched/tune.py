"""The command `fab tune`, which derives scheduler settings for a proxy by the method of two papers, and tests them.

The papers set the minimum granularity to T_sip at the load at which the proxy begins to drop messages. The papers set
the latency to 800 µs times the number of cores. Snakemake first measures T_sip, the service time of the proxy, at this
load. Snakemake then measures runs that compare settings, with one changed setting at a time.

Source: Krishnamurthy and Rouskas 2015, section III-B; 2016, section III-A.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sipsched.analysis import advice
from sipsched.analysis.comparison import Place, quantities, runs_at, settings_of
from sipsched.analysis.intervals import Interval, typical_interval
from sipsched.analysis.run_table import counted
from sipsched.errors import StableError
from sipsched.pages.crossover.answer import advised
from sipsched.pages.numbers import in_words
from sipsched.plan.modes import DEFAULT
from sipsched.records.summary_files import open_summary

KNEE, TUNE = "tune_knee", "tune"
"""Names of the study that measures the service time T_sip, and of the study that compares scheduler settings."""
KNEE_MODE = "baseline"
STEP_NS = 50_000
"""Step in ns. The papers round the scheduler's minimum granularity to multiples of this step."""
LEAST_NS = 100_000
"""Smallest minimum granularity (CFS) and smallest slice (EEVDF) in ns that kernels accept."""
LATENCY_NS = 800_000
"""The scheduling latency per core in ns that the papers found to be best."""
BASELINE_WAKEUP_NS = 25_000
OTHER_MIGRATION_NS = 1_000_000
"""Neighbour of the migration cost: twice the kernel's default.

Enhanced mode sets the migration cost to 0 on one processor, and to the kernel's default on two processors. If the
neighbour were equal to one of these values, the comparison would fail.
"""
SHARES = (0.8, 0.95)
"""Loads at which modes are compared, as shares of the load at which the proxy drops 1 % of its messages."""


@dataclass(frozen=True)
class Derived:
    """A scheduler mode (set of settings) derived from the service time T_sip, and comparisons that test the mode.

    Attributes
    ----------
    comparisons
        Modes that a run compares: the kernel's default mode with the derived mode, and the derived mode with modes in
        which one setting differs.
    """

    mode: str
    comparisons: tuple[str, ...]


def derive(t_sip_us: float, cores: int, eevdf: bool) -> Derived:
    """Derive a scheduler mode (settings) from the service time T_sip in µs, by the papers' rule for CFS or EEVDF."""
    own_ns = max(LEAST_NS, math.ceil(1000 * t_sip_us / STEP_NS) * STEP_NS)
    if eevdf:
        slices = [f"{DEFAULT}+slice_ns={value}" for value in _neighbours(own_ns)]
        mode = f"{DEFAULT}+slice_ns={own_ns}"
        return Derived(mode, (f"{DEFAULT},{mode}", ",".join((mode, *slices))))
    latency_ns = max(LATENCY_NS * cores, own_ns)

    def enhanced(latency: int = latency_ns, granularity: int = own_ns, more: str = "") -> str:
        return f"enhanced+latency_ns={latency}+min_granularity_ns={granularity}{more}"

    mode = enhanced()
    groups = [
        [enhanced(granularity=value) for value in _neighbours(own_ns)],
        [enhanced(latency=value) for value in _neighbours(latency_ns)],
        [enhanced(more=f"+wakeup_granularity_ns={BASELINE_WAKEUP_NS}")],
    ]
    if cores > 1:
        groups.append([enhanced(more=f"+migration_cost_ns={OTHER_MIGRATION_NS}")])
    return Derived(mode, (f"{DEFAULT},{mode}", *(",".join((mode, *group)) for group in groups)))


def _neighbours(value_ns: int) -> list[int]:
    """Return half and twice the value of a scheduler setting, without values that the kernel refuses."""
    return [near for near in (value_ns // 2, 2 * value_ns) if near >= LEAST_NS]


@dataclass(frozen=True)
class TuneOptions:
    """The options of `fab tune`."""

    testbed: str
    sut: str
    cores: int
    threads: int
    runs: int
    settings: Path | None = None


def tune(options: TuneOptions, say: Callable[[str], None]) -> None:
    """Measure the service time T_sip, derive a scheduler mode, test the mode, and print the settings to use.

    Raises
    ------
    StableError
        Snakemake could not make the measurements, or no valid run has T_sip.
    """
    system = {"suts": [options.sut], "cores": [options.cores], "threads": [options.threads]}
    knee = {"modes": [KNEE_MODE], "cps": _around([1.0]), "repetitions": options.runs}
    summary = Path("results", KNEE, options.testbed, "summary.nc")
    _snakemake(options, {KNEE: system | knee}, summary)
    t_sip, eevdf = _t_sip(summary, options)
    derived = derive(t_sip.estimate, options.cores, eevdf)
    say(f"T_sip at the knee: {in_words(t_sip, 'µs')}. The derived mode is {derived.mode}.")
    compared = {"notebook": "notebooks/crossover.ipynb", "modes": [*derived.comparisons]}
    study = system | compared | {"cps": _around(SHARES), "repetitions": options.runs}
    page = Path("reports", f"{TUNE}-{options.testbed}.html")
    _snakemake(options, {TUNE: study}, page)
    for line in _answers(Path("results", TUNE, options.testbed, "summary.nc"), derived.mode):
        say(line)
    say(f"Open: {page.resolve()}")


def _around(shares: Sequence[float]) -> dict[str, Any]:
    return {"around_crossing_of": KNEE_MODE, "shares": [*shares]}


def _snakemake(options: TuneOptions, studies: dict[str, Any], target: Path) -> None:
    """Make the file `target` with Snakemake, from a configuration that contains only the given studies."""
    path = Path("results", "tune", f"{next(iter(studies))}-{options.testbed}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "only": [*studies],
        # Windows near the capacity must last several seconds, because the previous mode influences the queue for a long
        # time.
        "crossover": {"mode_s": 30},
        "search": {"highest_cps": 25_600},
        "studies": studies,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    files = [str(path), *([str(options.settings)] if options.settings else [])]
    setting = ("--config", f"testbed={options.testbed}", "--", str(target))
    command = [sys.executable, "-m", "snakemake", "--configfile", *files, *setting]
    if subprocess.run(command, check=False).returncode:
        raise StableError(f"tune: snakemake did not make {target}; the lines above state why")


def _t_sip(path: Path, options: TuneOptions) -> tuple[Interval, bool]:
    """Return the service time T_sip in µs with its 95 % interval, and whether the kernel's scheduler is EEVDF."""
    summary = open_summary(path)
    place = Place(options.sut, options.cores, options.threads)
    runs = runs_at(quantities(counted(summary))["t_sip_us"], place, KNEE_MODE, None)
    t_sip = typical_interval(runs.ravel())
    if math.isnan(t_sip.estimate):
        raise StableError(f"tune: no valid run of {path} has T_sip; the probe needs timestamps")
    settings = settings_of(summary, place, KNEE_MODE)
    return t_sip, any(setting["translated"] for setting in settings)


def _answers(path: Path, mode: str) -> list[str]:
    """Return sentences: one per comparison of scheduler modes, and a last sentence with the settings to use."""
    loads = advice.read_loads(advice.find_windows(path), Path("raw").rglob("crossing.json"))
    comparisons = advice.advise(loads)
    lines = [
        f"Against {comparison.place.reference}: {advised(comparison)}" for comparison in comparisons
    ]
    return [*lines, setting(comparisons, mode)]


def setting(comparisons: Sequence[advice.Advice], mode: str) -> str:
    """Return a sentence with the scheduler settings to use, from the comparisons of modes at the highest load.

    The sentence recommends a neighbour (half or twice a setting) that beats the derived mode, or else the derived mode.
    If the derived mode is worse than the kernel's default mode, the sentence recommends the default mode.
    """
    highest = {
        comparison.place.reference: max(comparison.rankings, key=lambda ranking: ranking.load.cps)
        for comparison in comparisons
        if comparison.rankings
    }
    kernel, own = highest.get(DEFAULT), highest.get(mode)
    if kernel and any(
        candidate.verdict is advice.ModeEffect.WORSE for candidate in kernel.candidates
    ):
        return f"The setting: {DEFAULT}. The derived mode is worse than the kernel's default mode."
    best = own.best.mode if own and own.best else mode
    if kernel and kernel.best:
        return f"The setting: {best}. The derived mode is better than the kernel's default mode."
    return f"The setting: {best}. The runs do not show that the derived mode is better than the kernel's default mode."
