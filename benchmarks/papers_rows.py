"""Compare the measured rows of the papers' tables in virtual time with the published and the predicted effects.

`make reports` makes the summaries that this program reads. docs/virtual-time/settings.md describes the studies. Each
line shows by how many percent the receiving time K_rcv or the drop rate PDR is lower in enhanced mode: the published
value, the value of the means (%Lower), and the geometric mean over pairs of runs with its 95 % interval. These
intervals are not corrected for several comparisons, but the intervals on the pages of the studies are.

The lines about figure 2 show by how many percent K_rcv or PDR is lower with another migration cost than with 500 µs,
over all rows of a study. The next lines show by how many percent K_rcv, the service time T_sip and their sum are lower
under EEVDF than under CFS. The last lines show K_rcv and PDR on one and on two processor packages, with the kernel's
own settings and with a migration cost of 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from sipsched.analysis.comparison import Case
from sipsched.analysis.intervals import LEVEL, Interval
from sipsched.analysis.pairs import compare, percent_lower, ratio_interval
from sipsched.analysis.papers import MODES, load_comparison, load_points
from sipsched.paths import PROJECT_ROOT
from sipsched.records.summary_files import open_summary

RESULTS = PROJECT_ROOT / "results" / "recorded" / "virtual" / "raw"
FREE = (MODES[0], "enhanced+migration_cost_ns=0")
OLD_KERNEL = "old_kernel_virtual", "old_kernel_packages_virtual"
"""Studies of Linux 3.2: in one package, and on two packages that have more online cores than the proxy uses."""
OFFLINE = {2: FREE, 4: FREE, 6: MODES}
"""The modes of the studies in which the scheduler counts only the proxy's cores, by the number of cores."""
STUDIES = (
    (("papers_virtual", "virtual-papers", MODES),),
    (("papers_logger_virtual", "virtual-papers-logger", MODES),),
    (("papers_load_virtual", "virtual-papers-logger", MODES),),
    (("one_package_virtual", "virtual-papers", MODES),),
    (("packages_virtual", "virtual-papers-packages", MODES),),
    (("packages_virtual", "virtual-papers-packages", FREE),),
    (("packages_load_virtual", "virtual-papers-packages", MODES),),
    (("packages_load_virtual", "virtual-papers-packages", FREE),),
    ((OLD_KERNEL[0], "virtual-papers-32", MODES),),
    ((OLD_KERNEL[1], "virtual-papers-packages-32", FREE),),
    ((OLD_KERNEL[1], "virtual-papers-packages-32", MODES),),
    *(
        tuple(
            (f"old_kernel_offline_{cores}_virtual", f"virtual-32-{kind}-{cores}", modes)
            for cores, modes in OFFLINE.items()
        )
        for kind in ("packages", "nodes")
    ),
)
"""Groups of studies, each with its testbed and the compared modes. The rows of a group are one table."""
FIGURE_2 = {
    "figure_2_virtual": "virtual-papers",
    "figure_2_logger_virtual": "virtual-papers-logger",
}
"""The studies of the migration cost and their testbeds."""
USUAL_COST = "enhanced+migration_cost_ns=500000"
KERNELS = (("virtual-2000", "virtual-612"), ("virtual-2000-busy", "virtual-612-busy"))
"""Testbeds with CFS and with EEVDF of the study kernels_virtual, without and with another task."""
PACKAGES = (("virtual-8cores", "virtual-packages"), ("virtual-8cores-612", "virtual-packages-612"))
"""Testbeds with one and with two processor packages of the study packages_default_virtual, with CFS and with EEVDF."""
PREDICTIONS = PROJECT_ROOT / "recorded" / "virtual" / "predicted_papers.csv"
QUANTITIES = {"k_rcv": "k_rcv_lower_pct", "pdr": "pdr_lower_pct"}
"""The quantities, each with the column of the published decrease."""


class Row(NamedTuple):
    """One quantity in all runs of both modes, for one row of the papers' tables at one load, in the order of the pairs.

    `published` and `predicted` are decreases in percent. `predicted` is NaN for PDR, whose prediction is a difference.
    """

    cores: int
    threads: int
    cps: int
    quantity: str
    baseline: npt.NDArray[np.float64]
    enhanced: npt.NDArray[np.float64]
    published: float
    predicted: float

    @property
    def log_ratios(self) -> npt.NDArray[np.float64]:
        """The logarithm of enhanced / baseline per pair, without pairs in which a run is missing or drops nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.enhanced / self.baseline)
        return logs[np.isfinite(logs)]

    @property
    def lower(self) -> Interval:
        """The decrease of the quantity over pairs of runs, in percent."""
        return percent_lower(ratio_interval(self.baseline, self.enhanced))


def predicted_changes(reference: str, mode: str) -> pd.Series:
    """Return the predicted change of K_rcv to a mode in percent, by testbed, cores, threads and cps."""
    table = pd.read_csv(PREDICTIONS)
    chosen = table[(table["reference"] == reference) & (table["mode"] == mode)]
    return chosen.set_index(["testbed", "cores", "threads", "cps"])["k_rcv_mean"]


def rows(study: str, testbed: str, modes: tuple[str, str]) -> Iterator[Row]:
    """Yield the rows of a study, with one row per quantity and load."""
    summary = open_summary(RESULTS / study / testbed / "summary.nc")
    case, papers = (
        Case(summary, load_points(), load_comparison(), *compared) for compared in (modes, MODES)
    )
    predictions = predicted_changes(*modes)
    for place in case.places():
        printed = papers.printed_comparison(place)
        assert printed is not None
        first, second = (case.side(place, mode) for mode in modes)
        for cps in first.loads_met:
            predicted = -predictions[testbed, place.cores, place.threads, cps]
            for quantity, column in QUANTITIES.items():
                yield Row(
                    *(place.cores, place.threads, cps, quantity),
                    *(first.runs(quantity, cps), second.runs(quantity, cps)),
                    printed[column],
                    predicted if quantity == "k_rcv" else np.nan,
                )


def together(found: Sequence[Row]) -> Interval:
    """Return the decrease over all rows in percent, from the mean logarithm of the ratio over pairs and then rows.

    Rows with fewer than two pairs are excluded.
    """
    pairs = [row.log_ratios for row in found]
    many = [logs for logs in pairs if logs.size > 1]
    free = sum(logs.size - 1 for logs in many)
    error = np.sqrt(sum(logs.var(ddof=1) / logs.size for logs in many)) / len(many)
    half = float(special.stdtrit(free, (1 + LEVEL) / 2) * error)
    mean = float(np.mean([logs.mean() for logs in many]))
    interval = Interval(mean, mean - half, mean + half, len(many))
    return percent_lower(interval.map(lambda log: float(np.exp(log))))


def told(lower: Interval) -> str:
    """Return a decrease with its interval as text, or without an interval if none exists."""
    ends = f" ({lower.low:.1f} to {lower.high:.1f})" if lower.known else ""
    return f"{lower.estimate:.1f}{ends}"


def counts(quantity: str, found: Sequence[Row]) -> str:
    """Return the sentence that counts effects, published effects and predictions outside the intervals."""
    known = [row for row in found if row.lower.known]
    lower = sum(row.lower.low > 0 for row in known)
    higher = sum(row.lower.high < 0 for row in known)
    other = sum(not row.lower.low <= row.published <= row.lower.high for row in known)
    right = sum(row.lower.low <= row.predicted <= row.lower.high for row in known)
    predictions = f", {right} contain the prediction" if quantity == "k_rcv" else ""
    return (
        f"{quantity}: of {len(known)} intervals, {lower} lie above 0, {higher} below 0, "
        f"{other} exclude the published value{predictions}"
    )


def over_loads(found: Iterable[Row]) -> list[Row]:
    """Return one row per quantity, number of cores and number of threads, with the pairs of all loads."""
    groups: dict[tuple[int, int, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row.cores, row.threads, row.quantity), []).append(row)
    return [
        group[0]._replace(
            baseline=np.concatenate([row.baseline for row in group]),
            enhanced=np.concatenate([row.enhanced for row in group]),
        )
        for group in groups.values()
    ]


def told_typical(row: Row) -> str:
    """Return the typical decrease over the pairs with a ratio, and the means of the row, as text."""
    logs = row.log_ratios
    typical = f"{100 * (1 - np.exp(logs.mean())):.0f}" if logs.size else "unknown"
    return (
        f"all loads, {row.cores} cores, {row.threads} threads, {row.quantity}: mean {np.nanmean(row.baseline):.4g} and "
        f"{np.nanmean(row.enhanced):.4g}; over {logs.size} pairs {typical}; published {row.published:g}"
    )


def report(group: Sequence[tuple[str, str, tuple[str, str]]]) -> Iterator[str]:
    """Yield the lines about two modes of a group of studies."""
    found = [
        row
        for part in group
        for row in rows(*part)
        if np.isfinite(row.baseline - row.enhanced).any()
    ]
    for study, testbed, modes in group:
        yield f"{study}, {testbed}, {' and '.join(modes)}:"
    for row in found:
        of_means = compare(row.baseline, row.enhanced).percent_lower_of_means.estimate
        yield (
            f"{row.cores} cores, {row.threads} threads, {row.cps} cps, {row.quantity}: mean "
            f"{np.nanmean(row.baseline):.4g} and {np.nanmean(row.enhanced):.4g}; published {row.published:g}, "
            f"of means {of_means:.0f}, over pairs {told(row.lower)}, predicted {row.predicted:.1f}"
        )
    merged = over_loads(found)
    for quantity in QUANTITIES if len(merged) < len(found) else ():
        same = [row for row in merged if row.quantity == quantity]
        yield from map(told_typical, same)
        several = [row for row in same if row.cores > 2]
        if any(row.log_ratios.size > 1 for row in several):
            lower = together(several)
            yield f"{quantity}, all loads, 4 and 6 cores: {told(lower)} in {lower.n} rows"
    for quantity in QUANTITIES:
        same = [row for row in found if row.quantity == quantity]
        yield counts(quantity, same)
        drops = [row for row in same if row.baseline.all() and row.enhanced.all()]
        parts = {
            "all": drops,
            "1 core": [row for row in drops if row.cores == 1],
            "2 cores": [row for row in drops if row.cores == 2],
            "more workers than cores": [row for row in drops if row.threads > row.cores],
            "at most as many": [row for row in drops if row.threads <= row.cores],
            "4 and 6 cores": [row for row in drops if row.cores > 2],
        }
        for name, part in parts.items():
            if any(row.log_ratios.size > 1 for row in part):
                lower = together(part)
                yield f"{quantity}, {name}: {told(lower)} in {lower.n} rows"


def report_costs(study: str, testbed: str) -> Iterator[str]:
    """Yield a line per migration cost: the decrease of K_rcv and of PDR against 500 µs over all rows of a study."""
    summary = open_summary(RESULTS / study / testbed / "summary.nc")
    yield f"{study}:"
    waits: list[Row] = []
    for mode in summary["mode"].values.tolist():
        if mode == USUAL_COST:
            continue
        predictions = predicted_changes(USUAL_COST, mode)
        case = Case(summary, load_points(), load_comparison(), USUAL_COST, mode)
        for quantity in QUANTITIES:
            found = [
                Row(
                    *(place.cores, place.threads, cps, quantity),
                    *(case.side(place, name).runs(quantity, cps) for name in case.both),
                    np.nan,
                    -predictions[testbed, place.cores, place.threads, cps]
                    if quantity == "k_rcv"
                    else np.nan,
                )
                for place in case.places()
                for cps in case.side(place, USUAL_COST).loads_met
            ]
            for row in found:
                yield f"{mode}, {quantity}, {row.cores} cores, {row.threads} threads: {told(row.lower)}"
            waits += found if quantity == "k_rcv" else []
            # Without drops, the ratio of the drop rates does not exist.
            compared = [row for row in found if row.baseline.all() and row.enhanced.all()]
            yield f"{mode}, {quantity}: {told(together(compared))} in {len(compared)} rows"
    inside = sum(row.lower.low <= row.predicted <= row.lower.high for row in waits)
    changed = sum(row.lower.excludes_zero for row in waits)
    yield f"k_rcv: {changed} of {len(waits)} intervals exclude 0, {inside} contain the prediction"


def report_kernels(cfs: str, eevdf: str) -> Iterator[str]:
    """Yield a line per number of workers and time: the decrease from CFS to EEVDF over pairs of runs."""
    first, second = (
        open_summary(RESULTS / "kernels_virtual" / testbed / "summary.nc").sel(message_type="all")
        for testbed in (cfs, eevdf)
    )
    for workers in first["threads"].values.tolist():
        for names in (("k_rcv_mean",), ("t_sip_mean",), ("k_rcv_mean", "t_sip_mean")):
            before, after = (
                sum(summary[name].sel(threads=workers).values.ravel() for name in names)
                for summary in (first, second)
            )
            lower = percent_lower(ratio_interval(before, after))
            yield f"{eevdf} instead of {cfs}, {workers} workers, {' + '.join(names)}: {told(lower)}"


def report_packages(one: str, two: str) -> Iterator[str]:
    """Yield a line per comparison, setting and quantity: the values, and the change in percent over pairs of runs.

    The comparisons are two packages against one, and a migration cost of 0 against the kernel's own settings.
    """
    summaries = {
        bed: open_summary(RESULTS / "packages_default_virtual" / bed / "summary.nc").sel(
            message_type="all"
        )
        for bed in (one, two)
    }
    usual, free = summaries[one]["mode"].values.tolist()
    sides = {
        f"{two} instead of {one}": ((one, usual), (two, usual)),
        f"{free} on {one}": ((one, usual), (one, free)),
        f"{free} on {two}": ((two, usual), (two, free)),
    }
    for (name, both), quantity in product(sides.items(), ("k_rcv_mean", "pdr")):
        first, second = (
            summaries[bed][quantity].sel(mode=mode).squeeze("sut").stack(at=("cores", "cps"))
            for bed, mode in both
        )
        for at in first["at"].values.tolist():
            before, after = first.sel(at=at).values.ravel(), second.sel(at=at).values.ravel()
            if np.isfinite(before).any():
                change = ratio_interval(before, after).map(lambda ratio: 100 * (ratio - 1))
                yield (
                    f"{name}, {at[0]} cores, {at[1]} cps, {quantity}: mean {np.nanmean(before):.4g} "
                    f"and {np.nanmean(after):.4g}, change {told(change)}"
                )


def main() -> None:
    for group in STUDIES:
        print("\n".join(report(group)))
    for study, testbed in FIGURE_2.items():
        print("\n".join(report_costs(study, testbed)))
    for testbeds in KERNELS:
        print("\n".join(report_kernels(*testbeds)))
    for testbeds in PACKAGES:
        print("\n".join(report_packages(*testbeds)))


if __name__ == "__main__":
    main()
