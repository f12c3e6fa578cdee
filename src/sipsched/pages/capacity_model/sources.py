"""What the page of capacity rests on: what was read, and every capacity that is known."""

import numpy as np

from sipsched.analysis.capacity.predictions import SingleCore, single_core
from sipsched.analysis.capacity.systems import Evidence, Source
from sipsched.pages.crossings import HOW
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Cell, Table, Words
from sipsched.pages.tables import Heading, buffers_differ
from sipsched.words import grouped, number


def heading(evidence: Evidence) -> Heading:
    """Say first what the numbers are worth: those measured here, and the published ones."""
    own = evidence.fidelity or "nothing measured here; published numbers alone"
    # The papers' provenance is a sentence, that of a testbed ends with what it is worth.
    stop = "." if evidence.own else ""
    return Heading(
        fidelity=f"{own}. Beside it published numbers, not measured here.",
        testbed=f"{evidence.provenance}{stop}",
        description="What a model says is labelled predicted, or beyond the data where it leaves the "
        "numbers of cores measured.",
    )


def read(evidence: Evidence) -> Words:
    """Say what was read, and what C(1,1) is for each system."""
    lines = [_source_words(source) for source in evidence.read]
    if not lines:
        lines.append("No summary of a study was given.")
    lines += [
        f"C(1,1) of {system.name}: {_single_words(single_core(system))}"
        for system in evidence.systems
        if system.ruled
    ]
    lines += buffers_differ(evidence.buffers)
    return Words(tuple(lines))


def _source_words(source: Source) -> str:
    if not source.found:
        return f"{source.name}: not there, left out."
    if not source.runs:
        return f"{source.name}: no run measured, left out."
    cores = f"{', '.join(map(str, source.cores))} core{'s' * (source.cores != (1,))}"
    return f"{source.name}: {source.runs} runs that count, on {cores}."


def _single_words(single: SingleCore) -> str:
    if np.isnan(single.capacity.estimate):
        return f"none: {single.capacity.why}."
    if single.threads is None:
        words = f"{number(single.capacity.estimate)} cps, as section V states it for one thread."
        if single.best is not None:
            words += (
                " The tables of one core have no single thread; their best is "
                f"{number(single.best.capacity.estimate)} cps with {single.best.threads} threads."
            )
        return words
    if single.threads == 1:
        return f"{in_words(single.capacity, 'cps')}; one thread, as the papers define it."
    return (
        f"{in_words(single.capacity, 'cps')}; {single.threads} threads, the best measured on one "
        "core. The papers' one thread was not measured: what follows is too high where "
        f"{single.threads} threads carry more than one."
    )


def settings(evidence: Evidence) -> Table:
    """List the capacity of every setting, published and measured."""
    rows: list[tuple[Cell, ...]] = []
    for system in evidence.systems:
        for option in sorted(system.options, key=lambda each: (each.cores, each.threads)):
            grid = grouped(option.grid_cps) if np.isfinite(option.grid_cps) else "none"
            best = "best" if option in system.best else ""
            place = (system.sut, system.mode, str(option.cores), str(option.threads))
            rows.append((*place, grid, told(option.interval, "cps"), best))
    share = f"{100 * evidence.limit:g}\u00a0%"
    return Table(
        identity="table-settings",
        places=2,
        header=(
            *("SUT", "mode", "cores", "threads", f"last load ≤\u00a0{share} (cps)"),
            *("crossing (cps)", "of its cores"),
        ),
        rows=tuple(rows),
        none="no capacity is known",
        caption=f"Capacity at {share}: the last load measured at or under it, and the load at which a "
        "typical run's drop rate crosses it, with its 95 % interval; n counts runs, or the papers' "
        f"experiments of a column. {HOW}.",
        provenance=evidence.provenance,
    )
