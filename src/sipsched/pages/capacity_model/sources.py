"""The evidence behind the capacity page: the files with results of runs, and a table of every known capacity."""

import numpy as np

from sipsched.analysis.capacity.options import MEASURED, Option
from sipsched.analysis.capacity.systems import CapacityEvidence, ReadSummary
from sipsched.pages.capacities import HOW
from sipsched.pages.numbers import told
from sipsched.pages.parts import Cell, Heading, Table, Words
from sipsched.pages.tables import buffers_differ
from sipsched.words import grouped, number, plural


def heading(evidence: CapacityEvidence) -> Heading:
    """Return the page's heading, which states which capacities were measured here and which the papers published."""
    return Heading(
        fidelity=evidence.fidelity or "Nothing was measured here",
        testbed=" ".join(campaign.description for campaign in evidence.campaigns),
        description="The capacities of the papers' server are published numbers, not measured here. Extrapolated and "
        "simulated capacities are predictions.",
    )


def read(evidence: CapacityEvidence) -> Words:
    """Return a sentence per study summary (the file with a study's runs) from which the page was computed."""
    lines = [_source_words(source) for source in evidence.read]
    return Words(
        (*(lines or ["No study was given to this page."]), *buffers_differ(evidence.buffers))
    )


def _source_words(source: ReadSummary) -> str:
    if not source.found:
        return f"{source.name}: the file does not exist."
    if not source.runs:
        return f"{source.name}: the file has no valid run."
    cores = f"{', '.join(map(str, source.cores))} core{'s' * (source.cores != (1,))}"
    return f"{source.name}: {plural(source.runs, 'valid run')}, on {cores}."


def _capacity_cell(option: Option) -> Cell:
    """Return the table cell of a capacity. If measurements only bound the capacity, the cell contains the bound."""
    if option.basis == MEASURED and not option.settled:
        bound = option.interval.estimate
        return f"at least {number(bound)}" if bound else "below every offered load"
    return told(option.interval, "cps")


def settings(evidence: CapacityEvidence) -> Table:
    """Return a table with the capacity of every published and measured setting (proxy, mode, cores and threads)."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        for option in sorted(system.options, key=lambda option: (option.cores, option.threads)):
            grid = grouped(option.grid_cps) if np.isfinite(option.grid_cps) else "none"
            best = "best" if option in system.best else ""
            place = (system.sut, system.mode, str(option.cores), str(option.threads))
            rows.append((*place, grid, _capacity_cell(option), best))
    share = f"{100 * evidence.limit:g}\u00a0%"
    return Table(
        identity="table-settings",
        places=2,
        header=(
            *("SUT", "mode", "cores", "threads", f"last load ≤\u00a0{share} (cps)"),
            *("capacity (cps)", "best on its cores"),
        ),
        rows=tuple(rows),
        none="no capacity is known",
        caption=f"The capacity of every setting: the load at which {share} of messages are dropped.",
        reading=f"The last load is the highest measured load with a PDR of at most {share}. The capacity has a "
        "95\u00a0% interval. For measured capacities, n is the number of trials and runs. The capacity of the "
        "papers' server is the last load, as in the papers. Its n is the number of experiments whose mean the papers "
        'print. The word "best" marks the number of threads with the largest capacity on this number of cores. '
        f"{HOW}.",
        provenance=evidence.provenance,
    )
