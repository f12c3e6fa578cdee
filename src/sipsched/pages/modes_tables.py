"""The tables and sentences of the report on baseline and enhanced mode."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.comparison import (
    KINDS,
    PARTS,
    SERVICE,
    SETUP,
    SIGNIFICANT,
    Case,
    Cell,
    Family,
    Place,
    capacity_of,
    compared_load,
    identity,
    loads_around,
    loads_compared,
    loads_met,
    measured_first,
    more_load,
    more_load_level,
    p_text,
    places,
    plain,
    printed_comparison,
    printed_crossing,
    printed_loads,
    printed_values,
    refused_share,
    relative,
    runs_at,
    same_settings,
    settings_of,
    signed,
    study_of,
    systems,
    told,
    where,
    why_not_measured,
    with_papers,
)
from sipsched.analysis.papers import CALLS, METRICS, PAPERS
from sipsched.analysis.run_table import provenance
from sipsched.analysis.statistics import NOT_MEASURED, mean_interval
from sipsched.pages.figures import Several, Table, Words
from sipsched.plan.modes import Setting
from sipsched.records.crossing import read_crossing
from sipsched.words import number, plural

NOT_PRINTED = "not printed"
NO_ENTRY = "–"
PAPERS_RUNS = 30
"""Experiments that a column of the papers' tables averages. SEE section IV of both."""
PUBLISHED_MODES = " Published numbers are of the papers' own modes of that name, on CFS."
COUNTS = ("rcv_errors", "call_setup_drops", "call_setup_messages", "total_messages")
OFF_CPU = "t_sip_off_share"
SPLIT = ("k_stack", "k_sockq", "k_copy", "k_snd", "k_sockq_alone", "service")


def measurements(case: Case) -> Several:
    """Show, for each system and both modes, the papers' table beside this testbed's."""
    return Several(
        tuple(
            _measurements(case, sut, cores, mode)
            for sut, cores in systems(case.summary)
            for mode in (case.reference, case.other)
        )
    )


def _measurements(case: Case, sut: str, cores: int, mode: str) -> Table:
    among = measured_first(
        case, (p for p in places(case, published=True) if p[:2] == (sut, cores)), mode
    )
    columns = [_column(case, place, mode, which) for place in among for which in ("last", "first")]
    signs = {"last": f"last ≤\u00a0{case.share}", "first": f"first >\u00a0{case.share}"}
    groups = [("", 1)]
    groups += [
        (f"{plural(place.threads, 'thread')}, {sign}", 3)
        for place in among
        for sign in signs.values()
    ]
    names = ["Load (cps)", "Runs (n)"]
    for metric, title in METRICS.items():
        names.append(title)
        if metric == "t_sip_us":
            names.append("T_sip, off CPU (%)")
    names += [PARTS[name] for name in SPLIT]
    rows = [
        (name, *(cell for column in columns for cell in column[i])) for i, name in enumerate(names)
    ]
    study = study_of(cores)
    printed = case.points[(case.points["cores"] == cores) & (case.points["mode"] == mode)]
    beside = (
        f"{PAPERS[study]}, Table {printed['table'].iloc[0]} ({mode}), beside "
        if len(printed)
        else ""
    )
    return Table(
        identity=identity("table-measurements", sut, cores, mode),
        groups=tuple(groups),
        header=("", *(("published", "this testbed", "difference (%)") * len(signs) * len(among))),
        rows=tuple(rows),
        none="nothing was planned",
        caption=f"{beside}{case.label(mode)} on this testbed: {sut}, {plural(cores, 'core')}, at the "
        f"last load with PDR ≤ {case.share} and the first above it, each of its own. Mean over "
        "runs (95 % t interval); a difference of counts is one of counts per call, since "
        f"{_calls(case, sut, cores, mode)}. Call setup counts first sends; what came again is in RCV "
        "errors and total messages; the papers mostly count fewer than six messages a call (page of the "
        f"published numbers). The papers print no intervals. {SERVICE}",
        provenance=with_papers(case, *([study] if len(printed) else [])),
    )


def _column(case: Case, place: Place, mode: str, which: str) -> list[tuple[str, str, str]]:
    """Give published, this testbed and difference for each row of a table of measurements."""
    i = 0 if which == "last" else 1
    printed_cps = printed_loads(case, place, mode)[i]
    printed = printed_values(case, place, mode, printed_cps)
    cps = loads_around(case, place, mode)[i]
    met = loads_met(case, place, mode)
    here = np.isfinite(cps)
    absent = NOT_MEASURED
    load = number(cps)
    if not met:
        load = why_not_measured(case.summary, place, mode)
    elif not here:
        load = absent = (
            f"none: PDR > {case.share} from {min(met)} cps on"
            if which == "last"
            else f"none: PDR ≤ {case.share} up to {max(met)} cps"
        )
        absent = NO_ENTRY
    values = case.values
    n = int(np.count_nonzero(~np.isnan(runs_at(values["pdr"], place, mode, cps)))) if here else 0
    none_printed = NOT_PRINTED if printed_cps is None else str(printed_cps)
    both = here and printed_cps is not None
    share = signed(100 * (cps / printed_cps - 1)) if both and printed_cps else NO_ENTRY
    rows = [
        (none_printed, load, share),
        (str(PAPERS_RUNS) if printed else NO_ENTRY, str(n) if here else NO_ENTRY, NO_ENTRY),
    ]
    calls = runs_at(values["calls"], place, mode, cps)
    for metric in METRICS:
        rows.append(
            _row(
                printed.get(metric, NOT_PRINTED if printed else NO_ENTRY),
                runs_at(values[metric], place, mode, cps) if here else None,
                calls / CALLS[study_of(place.cores)] if metric in COUNTS else None,
                absent,
                n,
            )
        )
        if metric == "t_sip_us":
            runs = runs_at(values[OFF_CPU], place, mode, cps) if here else None
            rows.append(_row(NOT_PRINTED if printed else NO_ENTRY, runs, None, absent, n))
    for name in SPLIT:
        runs = runs_at(values[name], place, mode, cps) if here else None
        rows.append(_row(NOT_PRINTED if printed else NO_ENTRY, runs, None, absent, n))
    return rows


def _row(
    printed: str, runs: Any | None, per_call: Any | None, absent: str, n: int
) -> tuple[str, str, str]:
    """Give published, this testbed, difference; `per_call` scales the runs to the paper's calls."""
    if runs is None:
        return printed, absent, NO_ENTRY
    mean = mean_interval(runs, least=0)
    if np.isnan(mean.estimate):
        return printed, "not seen by the probe", NO_ENTRY
    try:
        value = float(printed)
    except ValueError:
        return printed, told(mean, n), NO_ENTRY
    scaled = runs if per_call is None else runs / per_call
    return printed, told(mean, n), told(relative(scaled, value), n, signed)


def _calls(case: Case, sut: str, cores: int, mode: str) -> str:
    """Say how many calls a run has, here and in the paper."""
    there = case.values["calls"]
    runs = [
        runs_at(there, place, mode).ravel() for place in places(case) if place[:2] == (sut, cores)
    ]
    calls = np.concatenate(runs or [np.array([])])
    calls = calls[~np.isnan(calls)]
    paper = f"one of the paper has {number(CALLS[study_of(cores)])}"
    if not calls.size:
        return f"runs differ in calls: {paper}"
    low, high = number(calls.min()), number(calls.max())
    return f"a run here has {low if low == high else f'{low} to {high}'} calls and {paper}"


def comparisons(case: Case, found: Family) -> Several:
    """Show, for each system, the papers' comparison of the modes beside this testbed's."""
    return Several(
        tuple(_comparisons(case, found, sut, cores) for sut, cores in systems(case.summary))
    )


def _comparisons(case: Case, found: Family, sut: str, cores: int) -> Table:
    among = measured_first(
        case,
        (place for place in places(case, published=True) if place[:2] == (sut, cores)),
        *(case.reference, case.other),
    )
    rows: list[tuple[str, ...]] = []
    table = ""
    for place in among:
        threads = plural(place.threads, "thread")
        printed = printed_comparison(case, place)
        if printed is None:
            rows.append((threads, "published", NOT_PRINTED, *[NO_ENTRY] * 6))
        else:
            table = f", Table {printed['table']}"
            names = [
                *("pdr_baseline", "pdr_enhanced", "pdr_lower_pct"),
                *("k_rcv_baseline_us", "k_rcv_enhanced_us", "k_rcv_lower_pct"),
            ]
            texts = [str(printed[f"{name}_printed"]) for name in names]
            rows.append((threads, "published", str(printed["cps"]), *texts))
        cps = compared_load(case, place)
        if cps is None:
            rows.append((threads, "this testbed", _why_not_compared(case, place), *[NO_ENTRY] * 6))
            continue
        cells = [found.at(place, cps, name) for name in ("pdr", "k_rcv")]
        n = cells[0].comparison.difference.n if cells[0] else 0
        here = [text for cell in cells for text in _cell(cell, n)]
        rows.append((threads, f"this testbed, n = {n}", _load(case, place, cps), *here))
        if printed is not None:
            rows.append((threads, "difference", *_differences(cells, printed, n, cps)))
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    beside = f"{PAPERS[study_of(cores)]}{table}, beside this testbed" if table else "This testbed"
    return Table(
        identity=identity("table-comparison", sut, cores),
        groups=(("", 1), ("", 2), ("PDR", 3), ("K_rcv (µs)", 3)),
        header=("", "whose", "load (cps)", *(first, second, "lower by (%)") * 2),
        rows=tuple(rows),
        none="nothing was planned",
        caption=f"{beside}: {sut}, {plural(cores, 'core')}, {first} against {second}, at the first "
        f"load with PDR > {case.share} under {first}. Means with 95 % t intervals. {found} The "
        "row difference: means in % of the published, percentages in points."
        f"{PUBLISHED_MODES}",
        provenance=with_papers(case, *([study_of(cores)] if table else [])),
    )


def _why_not_compared(case: Case, place: Place) -> str:
    modes = [m for m in (case.reference, case.other) if not loads_met(case, place, m)]
    reasons = {mode: why_not_measured(case.summary, place, mode) for mode in modes}
    if len(reasons) == 2 and len(set(reasons.values())) == 1:
        return reasons[case.reference]
    told_of = [f"{case.label(mode)} {why}" for mode, why in reasons.items()]
    return ", ".join(told_of) or "no load in common"


def _load(case: Case, place: Place, cps: int) -> str:
    _, first = loads_around(case, place, case.reference)
    if cps == first:
        return str(cps)
    return f"{cps} (the highest of both; none > {case.share})"


def _cell(cell: Cell | None, n: int) -> tuple[str, str, str]:
    if cell is None:
        return NO_ENTRY, NO_ENTRY, NO_ENTRY
    lower = told(cell.comparison.percent_lower, n, plain)
    return told(cell.reference, n), told(cell.other, n), _with_p(lower, cell.p_value)


def _with_p(text: str, p_value: float) -> str:
    return ", ".join(filter(None, (text, p_text(p_value))))


def _differences(
    cells: list[Cell | None], printed: Mapping[Any, Any], n: int, cps: int
) -> tuple[str, ...]:
    texts = [signed(100 * (cps / printed["cps"] - 1)) + "\u00a0%"]
    for cell, name, unit in zip(cells, ("pdr", "k_rcv"), ("", "_us"), strict=True):
        if cell is None:
            texts += [NO_ENTRY] * 3
            continue
        for mode, mean in (("baseline", cell.reference), ("enhanced", cell.other)):
            value = float(printed[f"{name}_{mode}{unit}"])
            texts.append(told(mean.map(_relative_to(value)), n, signed))
        points = float(printed[f"{name}_lower_pct"])
        texts.append(told(cell.comparison.percent_lower.map(_less(points)), n, signed))
    return tuple(texts)


def _relative_to(value: float) -> Any:
    return lambda mean: 100 * (mean / value - 1)


def _less(value: float) -> Any:
    return lambda mean: mean - value


def both_loads(case: Case, found: Family) -> Table:
    """Show both modes at every load next to a crossing that both have met."""
    rows = []
    for place in places(case):
        for cps in loads_compared(case, place):
            for name, title, scale in (("pdr", "PDR (%)", 100.0), ("k_rcv", "K_rcv (µs)", 1.0)):
                cell = found.at(place, cps, name)
                if cell is None:
                    continue
                n = cell.comparison.difference.n
                means = [told(mean.map(_times(scale)), n) for mean in (cell.reference, cell.other)]
                rows.append(
                    (
                        where(case, place),
                        str(cps),
                        title,
                        str(n),
                        *means,
                        told(cell.comparison.difference.map(_times(scale)), n, signed),
                        told(cell.comparison.percent_lower, n, plain),
                        p_text(cell.p_value) or NO_ENTRY,
                    )
                )
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    return Table(
        identity="table-both-loads",
        header=("", "cps", "", "pairs", first, second, "difference", "lower by (%)", "p"),
        rows=tuple(rows),
        none=f"no load at which runs of both {first} and {second} count",
        caption=f"{second} against {first} at every load next to the crossing of either that both "
        f"met; difference: {second} minus {first}, over pairs. {found}",
        provenance=provenance(case.summary),
    )


def _times(scale: float) -> Any:
    return lambda value: scale * value


def crossing_loads(case: Case) -> Table:
    """Show the load at which PDR passes the limit: published, here, and against the reference."""
    level = more_load_level(case)
    rows = []
    for place in measured_first(case, places(case, published=True), *case.modes):
        for mode in case.modes:
            last, first = printed_loads(case, place, mode)
            estimate = printed_crossing(case, place, mode)
            met = loads_met(case, place, mode)
            if (
                not met
                and (last, first) == (None, None)
                and mode not in (case.reference, case.other)
            ):
                continue
            published = (
                NOT_PRINTED if last is None else str(last),
                NOT_PRINTED if first is None else str(first),
                NO_ENTRY if np.isnan(estimate) else number(estimate),
            )
            if met:
                capacity = capacity_of(case, place, mode)
                here = (
                    _bound(capacity.grid_cps),
                    _bound(capacity.next_cps),
                    str(capacity.crossing).replace(" cps", ""),
                )
            else:
                here = (why_not_measured(case.summary, place, mode), NO_ENTRY, NO_ENTRY)
            difference = NO_ENTRY
            if met and np.isfinite(estimate) and np.isfinite(capacity.crossing.interval.estimate):
                interval = capacity.crossing.interval
                difference = told(interval.map(_relative_to(estimate)), interval.n, signed)
            rows.append(
                (
                    where(case, place),
                    case.label(mode),
                    *published,
                    *here,
                    difference,
                    *_more(case, place, mode, estimate, level),
                )
            )
    reference = case.label(case.reference)
    return Table(
        identity="table-crossings",
        groups=(
            *(("", 1), ("", 1), ("published (cps)", 3), ("this testbed (cps)", 3), ("", 1)),
            (f"more than {reference} (%)", 2),
        ),
        header=(
            *(
                "",
                "mode",
                *(f"last ≤\u00a0{case.share}", f"first >\u00a0{case.share}", "crossing") * 2,
            ),
            *("difference (%)", "published", "this testbed"),
        ),
        rows=tuple(rows),
        none="nothing was planned",
        caption=f"Loads at which PDR passes {case.share}. Crossing: on a straight line between "
        "loads, whose own error the interval leaves out (95 % "
        "parametric bootstrap, n: runs at all loads; the published one from two printed PDRs, without "
        f"an interval). More than {reference}: each at {100 * level:.3g} %, so that all hold together "
        f"at 95 %.{PUBLISHED_MODES}",
        provenance=with_papers(
            case, *dict.fromkeys(study_of(cores) for _, cores in systems(case.summary))
        ),
    )


def searches(case: Case, crossings: Iterable[str | Path]) -> Table:
    """Show the trials by which the loads around a crossing were chosen, from `crossing.json` files."""
    rows, found = [], []
    for path in map(Path, crossings):
        crossing = read_crossing(path)
        cores, threads = crossing.point.cores, crossing.point.threads
        name = f"{crossing.label}, {plural(cores, 'core')}, {plural(threads, 'thread')}"
        found.append(f"{name}: between {crossing.lower_cps} and {crossing.upper_cps} cps")
        rows += [
            (
                name,
                str(place),
                str(trial.cps),
                f"{trial.duration_s:g}",
                number(100 * trial.pdr),
            )
            for place, trial in enumerate(crossing.trials, start=1)
        ]
    return Table(
        identity="table-searches",
        header=("", "trial", "cps", "seconds", "PDR (%)"),
        rows=tuple(rows),
        none="none: the loads of this study are those of the configuration",
        caption="How the loads were chosen: trials of a search (MLRsearch) for the crossing, each one run "
        f"and in no average. Found: {'; '.join(found) or 'nothing searched'}.",
        provenance=provenance(case.summary),
    )


def _bound(cps: float) -> str:
    return number(cps) if np.isfinite(cps) else "none"


def _more(case: Case, place: Place, mode: str, estimate: float, level: float) -> tuple[str, str]:
    if mode == case.reference:
        return NO_ENTRY, NO_ENTRY
    of_reference = printed_crossing(case, place, case.reference)
    more = 100 * (estimate / of_reference - 1)
    interval = more_load(case, place, mode, level)
    return NO_ENTRY if np.isnan(more) else signed(more), told(interval, None, signed)


def parts(case: Case, found: Family) -> Table:
    """Show the parts of a message's time under both modes at the compared load."""
    rows = []
    for place in places(case):
        cps = compared_load(case, place)
        for name, title in PARTS.items() if cps is not None else ():
            cell = found.at(place, cps or 0, name)
            if cell is None:
                continue
            rows.append((where(case, place), str(cps), title, *_compared(cell)))
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    return Table(
        identity="table-parts",
        header=("", "cps", "", "pairs", first, second, "lower by (%)", "p"),
        rows=tuple(rows),
        none=f"no load at which runs of both {first} and {second} count",
        caption=f"Where a message's time goes, means over all messages, at the compared load. "
        f"{SERVICE} {found}",
        provenance=provenance(case.summary),
    )


def _compared(cell: Cell) -> tuple[str, str, str, str, str]:
    n = cell.comparison.difference.n
    if np.isnan(cell.reference.estimate) or np.isnan(cell.other.estimate):
        return str(n), NO_ENTRY, NO_ENTRY, "not seen by the probe", NO_ENTRY
    return (
        str(n),
        told(cell.reference, n),
        told(cell.other, n),
        told(cell.comparison.percent_lower, n, plain),
        p_text(cell.p_value) or NO_ENTRY,
    )


def types(case: Case, found: Family) -> Table:
    """Show K_rcv, T_sip and refusals by message type under both modes at the compared load."""
    rows = []
    refused = refused_share(case.summary)
    for place in places(case):
        cps = compared_load(case, place)
        for kind in KINDS if cps is not None else ():
            cells = [found.at(place, cps or 0, f"{kind} {name}") for name in ("k_rcv", "t_sip")]
            shares = [
                told(
                    mean_interval(
                        runs_at(refused.sel(message_type=kind), place, mode, cps), least=0
                    )
                )
                for mode in (case.reference, case.other)
            ]
            texts: list[str] = []
            for cell in cells:
                if cell is not None:
                    _, *means, _ = _compared(cell)
                    texts += [*means[:2], _with_p(means[2], cell.p_value)]
            n = cells[0].comparison.difference.n if cells[0] else 0
            rows.append((where(case, place), str(cps), kind, str(n), *texts, *shares))
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    pair = (first, second, "lower by (%)")
    return Table(
        identity="table-types",
        groups=(("", 1), ("", 3), ("K_rcv (µs)", 3), ("T_sip (µs)", 3), ("refused (%)", 2)),
        header=("", "cps", "message", "pairs", *pair * 2, first, second),
        rows=tuple(rows),
        none=f"no load at which runs of both {first} and {second} count",
        caption="By message type at the compared load; refused: datagrams of the type that the full "
        "socket queue refused, of all that came. What came again is a retransmission and in no row. "
        f"Call setup: {', '.join(SETUP)}. {found}",
        provenance=provenance(case.summary),
    )


def settings(case: Case) -> Table:
    """List what each mode came to on this kernel."""
    merged: dict[tuple[str, ...], dict[str, None]] = {}
    for place in places(case):
        for mode in case.modes:
            for each in settings_of(case.summary, place, mode):
                for step in each["steps"]:
                    asked = "as it is" if step["asked"] is None else str(step["asked"])
                    where = step["unavailable"] or f"{step['applied']}: {step['place']}"
                    what = Setting(step["setting"]).paper_name
                    key = (case.label(mode), what, asked, where)
                    merged.setdefault(key, {})[str(place)] = None
                if not each["steps"]:
                    key = (case.label(mode), "none", NO_ENTRY, "changes nothing")
                    merged.setdefault(key, {})[str(place)] = None
    rows = [(*key, _merged(tuple(at))) for key, at in merged.items()]
    return Table(
        identity="table-settings",
        header=("mode", "setting of the papers", "asked", "here", "where"),
        rows=tuple(sorted(rows)),
        none="no record says what a mode came to",
        caption="What each mode came to on this kernel, in ns (tunable_scaling: 0 none, 1 "
        "logarithmic, 2 linear): the value and its place, or why it has none. Scheduler: "
        f"{', '.join(_families(case.summary)) or 'not recorded'}.",
        provenance=provenance(case.summary),
    )


def _merged(at: tuple[str, ...]) -> str:
    """Join places of equal cores: "1 core, 2, 4 threads"."""
    by_cores: dict[str, list[str]] = {}
    for text in at:
        cores, threads = text.split(", ")
        by_cores.setdefault(cores, []).append(threads.split()[0])
    return "; ".join(f"{cores}, {', '.join(each)} threads" for cores, each in by_cores.items())


def _families(summary: xr.Dataset) -> list[str]:
    found = {str(text) for text in summary["scheduler_family"].to_numpy().ravel()}
    return sorted(found - {"", "unknown"})


def settings_words(case: Case) -> Words:
    """Say where both modes came to the same settings, so that nothing can differ but chance."""
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    known = {place: same_settings(case, place) for place in places(case)}
    lines = []
    for mode in (case.reference, case.other):
        if case.label(mode) != mode and "translation" in case.label(mode):
            lines.append(
                f"{case.label(mode)}: the kernel's scheduler is not the papers'. Settings without "
                "an equivalent are left out, so a figure under this name is not one of the papers' "
                f"{mode} mode."
            )
    for place, same in known.items():
        if same:
            lines.append(
                f"{where(case, place)}: {first} and {second} come to the same settings on this "
                "kernel. What differs between them there is chance."
            )
    different = [where(case, place) for place, same in known.items() if same is False]
    if different:
        lines.append(f"Their settings differ at: {'; '.join(different)}.")
    unknown = [where(case, place) for place, same in known.items() if same is None]
    if unknown:
        lines.append(
            f"Not known whether their settings differ, for want of runs: {'; '.join(unknown)}."
        )
    return Words(tuple(lines))


def verdict(case: Case, found: Family) -> Words:
    """Say in words what the modes do at the compared loads."""
    first, second = (case.label(mode) for mode in (case.reference, case.other))
    lines = []
    for place in places(case):
        cps = compared_load(case, place)
        if cps is None:
            lines.append(
                f"{where(case, place)}: no load at which runs of both {first} and {second} count."
            )
            continue
        for name, title in (("pdr", "PDR"), ("k_rcv", "K_rcv")):
            cell = found.at(place, cps, name)
            if cell is not None:
                same = " Both have the same settings there." if same_settings(case, place) else ""
                said = _said(cell, title, second, first)
                lines.append(f"{where(case, place)}, {cps} cps: {said}{same}")
    return Words(tuple(lines))


def _said(cell: Cell, title: str, second: str, first: str) -> str:
    lower = cell.comparison.percent_lower
    difference = cell.comparison.difference
    if np.isnan(lower.estimate):
        return f"{title} cannot be compared: {told(lower)}."
    text = (
        f"{title} under {second} is {number(abs(lower.estimate))}\u00a0% "
        f"{'lower' if lower.estimate >= 0 else 'higher'} than under {first}"
    )
    if not difference.known:
        return f"{text}, n = {difference.n}: {difference.why}."
    if lower.known:
        text += f" (lower by {plain(lower.low)} to {plain(lower.high)}\u00a0%)"
    sure = cell.p_value <= SIGNIFICANT
    return f"{text}, n = {difference.n}, {p_text(cell.p_value)}: " + (
        "more than chance." if sure else "within chance."
    )
