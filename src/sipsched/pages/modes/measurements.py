"""Tables with the papers' published numbers beside this testbed's values.

Each value has three columns: published, this testbed, difference.
"""

from collections.abc import Mapping

import numpy as np

from sipsched.analysis.comparison import PARTS, Case, Side, SutOnCores, relative
from sipsched.analysis.intervals import NOT_MEASURED, Values, typical_interval
from sipsched.analysis.papers import (
    CALLS,
    METRIC_NAMES,
    PAPERS,
    PAPERS_RUNS,
    RECOVERED,
    titled,
)
from sipsched.pages.modes.wording import (
    MEANS_OF_ZERO,
    NOT_PRINTED,
    NOT_SEEN,
    SERVICE,
    by_system,
    identity,
    study_of,
    with_papers,
)
from sipsched.pages.numbers import NO_ENTRY, signed, told
from sipsched.pages.parts import Cell, Several, Table
from sipsched.pages.tables import RANGES
from sipsched.words import grouped, listed, number, plural

COUNTS = ("rcv_errors", "call_setup_drops", "call_setup_messages", "total_messages")
SPLIT = ("k_stack", "k_sockq", "k_copy", "k_snd", "k_sockq_alone", "service")
Triple = tuple[Cell, Cell, Cell]
"""Three table cells of a value: published, measured on this testbed, and the difference."""


def _quantities() -> dict[str, tuple[str, str]]:
    """Return the name and the unit of each quantity of a table, in order.

    The papers' metrics come first, then the quantities that only the probe measures.
    """
    quantities: dict[str, tuple[str, str]] = {}
    for metric, name_and_unit in METRIC_NAMES.items():
        quantities[metric] = name_and_unit
        if metric == "t_sip_us":
            quantities["t_sip_off_share"] = ("T_sip, off CPU", "%")
    return quantities | {name: (PARTS[name], "µs") for name in SPLIT}


def tables(case: Case) -> Several:
    """Return a table per proxy, number of cores and mode: the papers' numbers beside this testbed's numbers."""
    return by_system(
        case,
        lambda system: [_table(case, system, mode) for mode in (case.reference, case.other)],
        " and ".join(case.both),
    )


def _table(case: Case, system: SutOnCores, mode: str) -> Table:
    sut, cores = system
    among = [
        place for place in case.places(system, published=True) if case.side(place, mode).loads_met
    ]
    left_out = [
        str(place.threads) for place in case.places(system, published=True) if place not in among
    ]
    signs = (f"last ≤\u00a0{case.share}", f"first >\u00a0{case.share}")
    names = ["Load (cps)", "Runs (n)"]
    for name, name_and_unit in _quantities().items():
        names.append(titled(*name_and_unit) + ", difference per call" * (name in COUNTS))
    rows: list[tuple[Cell, ...]] = []
    for place in among:
        side = case.side(place, mode)
        last, first = (_column(side, which) for which in (False, True))
        threads = plural(place.threads, "thread")
        rows += [(threads, name, *last[i], *first[i]) for i, name in enumerate(names)]
    study = study_of(cores)
    printed = case.points[(case.points["cores"] == cores) & (case.points["mode"] == mode)]
    recovered = f" {RECOVERED}" if printed["recovered"].any() else ""
    beside = (
        f"{PAPERS[study]}, Table {printed['table'].iloc[0]} ({mode}), beside "
        if len(printed)
        else ""
    )
    return Table(
        identity=identity("table-measurements", sut, cores, mode),
        groups=(("", 2), *((sign, 3) for sign in signs)),
        header=("", "", *(("published", "this testbed", "difference (%)") * 2)),
        places=1,
        rows=tuple(rows),
        none="no load was measured",
        caption=f"{beside}{case.label(mode)} on this testbed: {sut}, {plural(cores, 'core')}."
        f"{f' Not measured: {listed(left_out)} threads.' * bool(left_out)}",
        reading=f"The left half of the table shows the last load with PDR ≤ {case.share}, and the right half shows the "
        "first load with a higher PDR. The values of this testbed describe typical runs, with 95\u00a0% "
        f"intervals. {MEANS_OF_ZERO} {RANGES} The papers print no intervals. Differences of counts are computed from "
        "counts per call, "
        f'because {_calls(case, system, mode)}. The rows "Call-setup" count only the first sending of each '
        'message. The rows "RCV errors" and "Total messages" include retransmissions. As in the papers, the '
        "number of call-setup drops is RCV errors times call-setup messages, divided by total "
        f"messages.{recovered} The papers mostly count fewer than six messages per call (see the page of "
        f"published numbers). {SERVICE}",
        provenance=with_papers(case.summary, *([study] if len(printed) else [])),
    )


def _column(side: Side, first: bool) -> list[Triple]:
    """Return the cells (published, this testbed, difference) of each row, for one of the loads around the drop limit.

    If `first` is true, this load is the first load above the limit, otherwise the last load within the limit.
    """
    printed_cps, cps = side.printed_loads[first], side.loads_around[first]
    printed = side.printed_values(printed_cps)
    load = _load(side, first, cps)
    share = NO_ENTRY
    if np.isfinite(cps) and printed_cps:
        share = signed(100 * (cps / printed_cps - 1))
    rows: list[Triple] = [
        (NOT_PRINTED if printed_cps is None else grouped(printed_cps), load, share)
    ]
    papers_runs = str(PAPERS_RUNS) if printed else NO_ENTRY
    if not np.isfinite(cps):
        # If the drop rates of all runs are below the limit, or all above it, no load reaches the limit, so the column
        # has no entries. If no runs exist, the column says that nothing was measured.
        absent = NO_ENTRY if side.loads_met else NOT_MEASURED
        rows.append((papers_runs, NO_ENTRY, NO_ENTRY))
        return rows + [(_printed(printed, name), absent, NO_ENTRY) for name in _quantities()]
    n = int(np.count_nonzero(~np.isnan(side.runs("pdr", cps))))
    rows.append((papers_runs, str(n), NO_ENTRY))
    return rows + [
        (_printed(printed, name), *_measured(side, name, cps, printed.get(name), n))
        for name in _quantities()
    ]


def _load(side: Side, first: bool, cps: float) -> str:
    """Return the load of a table column as text, or the reason why the column has no load."""
    met, share = side.loads_met, side.case.share
    if not met:
        return side.why_not_measured
    if np.isfinite(cps):
        return grouped(cps)
    if first:
        return f"none: PDR ≤ {share} up to {grouped(max(met))} cps"
    return f"none: PDR > {share} from {min(met)} cps on"


def _printed(printed: Mapping[str, str], name: str) -> str:
    return printed.get(name, NOT_PRINTED if printed else NO_ENTRY)


def _measured(side: Side, name: str, cps: float, printed: str | None, n: int) -> tuple[Cell, Cell]:
    """Return two table cells of a quantity: this testbed's value, and the difference from the paper's value.

    To compute the difference, counts are scaled to the paper's number of calls.
    """
    runs = side.runs(name, cps)
    mean = typical_interval(runs)
    if np.isnan(mean.estimate):
        return NOT_SEEN, NO_ENTRY
    if printed is None:
        return told(mean, n=n), NO_ENTRY
    if name in COUNTS:
        runs = runs / _per_call(side, cps)
    # The name of the row contains the unit, so the cell has the unit of the published number.
    return told(mean, n=n), told(relative(runs, float(printed)), "%", n, "+")


def _per_call(side: Side, cps: float) -> Values:
    """Return this testbed's number of calls per run, divided by the paper's number of calls per run."""
    return side.runs("calls", cps) / CALLS[study_of(side.place.cores)]


def _calls(case: Case, system: SutOnCores, mode: str) -> str:
    """Return as text the number of calls per run, on this testbed and in the paper."""
    _, cores = system
    runs = [case.side(place, mode).runs("calls").ravel() for place in case.places(system)]
    calls = np.concatenate(runs or [np.array([])])
    calls = calls[~np.isnan(calls)]
    paper = f"a run of the paper has {number(CALLS[study_of(cores)])} calls"
    if not calls.size:
        return f"the numbers of calls per run differ: {paper}"
    low, high = number(calls.min()), number(calls.max())
    return (
        f"a run on this testbed has {low if low == high else f'{low} to {high}'} calls, and {paper}"
    )
