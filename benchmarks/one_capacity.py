"""Test how many capacity intervals of repeated campaigns on one machine contain the capacity from all campaigns.

    python benchmarks/one_capacity.py raw-of-monday raw-of-tuesday ...

Each argument is the folder of records (`raw/`) of one campaign, all on one testbed. The benchmark uses the systems that
occur in at least two campaigns. For each system, the benchmark estimates a capacity from the records of each campaign,
and the pooled capacity from the records of all campaigns. The benchmark prints the number of intervals that contain the
pooled capacity, and the widths of the intervals.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from sipsched.analysis.capacity.drift import Observations, Posterior, fit
from sipsched.analysis.capacity.estimate import of_search
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.plan.crossover import is_comparison
from sipsched.records.crossing import read_crossing
from sipsched.records.run_document import RunDocument, read_run

System = tuple[str, str, int, int]


def observe_records(raw: Path) -> dict[System, Observations]:
    """Return the trials and the valid runs of each system, without the runs that compare modes."""
    parts: dict[System, list[Observations]] = defaultdict(list)
    for path in sorted([*raw.rglob("crossing.json"), *raw.rglob("capacity~*.json")]):
        search = read_crossing(path)
        point = search.point
        parts[point.sut, point.mode, point.cores, point.threads].append(of_search(search))
    for path in sorted(raw.rglob("run.json")):
        if "failed" not in path.parent.name:
            document = read_run(path.parent)
            run = document.run
            if document.verdict.valid and not is_comparison(run.mode):
                parts[run.sut, run.mode, run.cores, run.threads].append(of_run(document))
    return {
        system: Observations(*(np.concatenate(columns) for columns in zip(*of, strict=True)))
        for system, of in parts.items()
    }


def of_run(document: RunDocument) -> Observations:
    """Return the observation from a run over UDP: time, load, drop rate, CPU time per message, share not stolen."""
    ledger = document.ledger.to_sps
    stolen = [
        finding.value for finding in document.verdict.findings if finding.rule == "steal_share"
    ]
    values = (
        datetime.fromisoformat(document.started_at).timestamp(),
        float(document.run.cps),
        ledger.refused / max(ledger.received + ledger.refused, 1),
        document.proxy.cpu_ns / 1000 / max(ledger.received, 1),
        1 - (stolen[0] if stolen and stolen[0] is not None else 0.0),
    )
    return Observations(*(np.array([value]) for value in values))


def estimate(observed: Observations) -> Posterior | None:
    """Estimate a capacity. Return None if all drop rates lie above the limit, or all below it."""
    above = observed.loss > PDR_LIMIT
    return fit(observed, PDR_LIMIT) if above.any() and not above.all() else None


def half_width(capacity: Posterior) -> float:
    """Return half the width of the interval, as a share of the capacity."""
    return float(np.sqrt(capacity.high_cps / capacity.low_cps) - 1)


def show(system: System, campaigns: Sequence[Observations]) -> None:
    """Print a table with the estimates of all campaigns for one system."""
    together = Observations(*(np.concatenate(columns) for columns in zip(*campaigns, strict=True)))
    pooled = estimate(together)
    if pooled is None:
        print(f"{system}: no capacity, because all drop rates are on one side of the limit")
        return
    sut, mode, cores, threads = system
    hours = np.ptp(together.time_s) / 3600
    print(
        f"{sut}, mode {mode}, {cores} cores, {threads} threads: {len(campaigns)} campaigns in {hours:.1f} h; pooled "
        f"{pooled.estimate_cps:.0f} cps ({pooled.low_cps:.0f} to {pooled.high_cps:.0f})"
    )
    print(
        "| began (UTC) | trials and runs | capacity (cps) | interval | half-width | contains pooled capacity |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    held, halves, estimates = [], [], []
    for observed in campaigns:
        capacity = estimate(observed)
        if capacity is None:
            continue
        held.append(capacity.low_cps <= pooled.estimate_cps <= capacity.high_cps)
        halves.append(half_width(capacity))
        estimates.append(capacity.estimate_cps)
        began = datetime.fromtimestamp(observed.time_s.min(), UTC)
        print(
            f"| {began:%d %b %H:%M} | {len(observed.cps)} | {capacity.estimate_cps:.0f} | {capacity.low_cps:.0f} to "
            f"{capacity.high_cps:.0f} | {100 * halves[-1]:.0f} % | {'yes' if held[-1] else 'no'} |"
        )
    spread = np.std(np.log(estimates), ddof=1)
    print(
        f"{sum(held)} of {len(held)} intervals contain the pooled estimate; half-width {100 * np.median(halves):.0f} % "
        f"(median), {100 * max(halves):.0f} % (largest); standard deviation of the estimates {100 * spread:.0f} %"
    )


def main(folders: Sequence[str]) -> None:
    """Read the records and print one table per system."""
    if len(folders) < 2:
        raise SystemExit(__doc__)
    systems: dict[System, list[Observations]] = defaultdict(list)
    for folder in folders:
        for system, observed in observe_records(Path(folder)).items():
            systems[system].append(observed)
    for system, campaigns in systems.items():
        if len(campaigns) > 1:
            show(system, sorted(campaigns, key=lambda campaign: float(campaign.time_s.min())))


if __name__ == "__main__":
    main(sys.argv[1:])
