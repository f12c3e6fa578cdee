"""Audit of the numbers in the two papers.

The audit compares each printed number with other printed numbers, from which its value or a bound follows.

`python tests/published_audit.py` writes the result, config/published/audit.csv, which the page `published` shows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from sipsched.analysis import papers

SETUP_MESSAGES_PER_CALL = 4
"""Messages of the call set-up: INVITE, 180, 200 and ACK. A call also has a BYE and the 200 for the BYE."""

RAISED = {"multicore": None, "singlecore": (2, 16)}
"""Numbers of threads for which the text claims a higher capacity in enhanced mode; None means all."""


def load_ranges(folder: Path = papers.FOLDER) -> pd.DataFrame:
    """Return the ranges that the papers' text states about tables, one row per range, with both ends as printed."""
    ends = {f"{end}_pct": f"{end}_pct_printed" for end in ("low", "high")}
    return pd.read_csv(folder / "ranges.csv", dtype=str).rename(columns=ends)


@dataclass(frozen=True)
class Check:
    """One printed number, compared with its value from other printed numbers.

    Attributes
    ----------
    study, table
        The table or the section of the text that contains the number.
    cell
        The position of the number in the table or section.
    rule
        The rule that the number must follow, in words.
    printed
        The printed text.
    relation
        Required relation of printed to recomputed: =, ≤, < or >.
    recomputed
        The recomputed value, or the bound.
    difference
        printed - recomputed.
    agrees
        Whether the relation holds. An equality holds within half a unit of the last printed digit.
    remark
        Possible reason for a disagreement; usually empty.
    """

    study: str
    table: str
    cell: str
    rule: str
    printed: str
    relation: str
    recomputed: float
    difference: float
    agrees: bool
    remark: str = ""


def audit(folder: Path = papers.FOLDER) -> pd.DataFrame:
    """Return all checks, one row per check with the columns of `Check`."""
    points, comparison = papers.load_points(folder), papers.load_comparison(folder)
    parts = (
        audit_points(points),
        audit_modes(points),
        audit_comparison(points, comparison),
        audit_ranges(comparison, load_ranges(folder)),
        audit_capacity(points, papers.load_capacity(folder)),
    )
    return pd.concat(parts, ignore_index=True)


def audit_points(points: pd.DataFrame) -> pd.DataFrame:
    """Check rates, shares, counts and the limit of 1 % within each table of measurements."""
    checks: list[Check] = []
    texts = papers.texts(points)
    recovered = set(
        points.loc[points["recovered"], papers.COLUMN].itertuples(index=False, name=None)
    )
    for place, cells in texts.items():
        checks += _check_column(place, cells, place in recovered)
    for study, table, cores, threads, mode, loads in _pairs(texts):
        for load, rule, compare in (
            (loads[0], "PDR of the lower load", _at_most),
            (loads[-1], "PDR of the higher load", _above),
        ):
            text = texts[study, table, cores, threads, mode, load]["pdr"]
            at = (study, table, _cell(threads, load, "PDR"))
            sign = "at or under" if compare is _at_most else "above"
            limit = Fraction(str(papers.PDR_LIMIT))
            remark = "at the limit" if Fraction(text) == limit else ""
            rule = f"{rule} {sign} {100 * papers.PDR_LIMIT:g} %"
            checks.append(compare(at, rule, text, limit, remark))
        step = Fraction(loads[-1] - loads[0])
        at = (study, table, f"{threads} threads, loads")
        rule = f"loads {papers.LOAD_STEP_CPS} cps apart"
        checks.append(_equal(at, rule, str(step), Fraction(papers.LOAD_STEP_CPS)))
    return _frame(checks)


def _check_column(
    place: tuple[Any, ...], cells: Mapping[str, str], recovered: bool
) -> Iterator[Check]:
    study, table, _, threads, _, cps = place
    exact = {metric: Fraction(text) for metric, text in cells.items()}
    total = exact["total_messages"]

    def at(metric: str) -> tuple[str, str, str]:
        return study, table, _cell(threads, cps, papers.METRIC_NAMES[metric][0])

    yield _equal(
        at("arrival_rate_pps"),
        f"arrival rate = {papers.MESSAGES_PER_CALL} × cps",
        cells["arrival_rate_pps"],
        Fraction(papers.MESSAGES_PER_CALL * cps),
    )
    rule = "PDR = RCV errors / total messages"
    remark = "RCV errors recovered from call-setup drops" if recovered else ""
    yield _equal(at("pdr"), rule, cells["pdr"], exact["rcv_errors"] / total, remark)
    rule = f"total messages ≤ {papers.MESSAGES_PER_CALL} × calls"
    without = "assumes no retransmissions; retransmissions would count"
    calls = papers.CALLS[study]
    yield _at_most(
        at("total_messages"),
        rule,
        cells["total_messages"],
        papers.MESSAGES_PER_CALL * calls,
        without,
    )
    if "call_setup_messages" not in cells:
        return
    rule = f"call-setup messages ≤ {SETUP_MESSAGES_PER_CALL} × calls"
    bound = SETUP_MESSAGES_PER_CALL * calls
    name = "call_setup_messages"
    yield _at_most(at(name), rule, cells[name], bound, without)
    yield _at_most(at(name), "call-setup messages ≤ total messages", cells[name], total)
    if not recovered:
        name = "call_setup_drops"
        rule = "call-setup drops = RCV errors × call-setup / total messages"
        share = exact["call_setup_messages"] / total
        yield _equal(at(name), rule, cells[name], exact["rcv_errors"] * share)


def audit_modes(points: pd.DataFrame) -> pd.DataFrame:
    """Check the claims of the text on modes: enhanced mode is better at each load and has a higher capacity."""
    checks = []
    cells = _by_point(points)
    for (study, cores, threads, mode, cps), (table, texts) in cells.items():
        there = cells.get((study, cores, threads, "baseline", cps))
        if mode != "enhanced" or there is None:
            continue
        for metric in ("pdr", "k_rcv_us"):
            name = papers.METRIC_NAMES[metric][0]
            at = (study, table, _cell(threads, cps, name))
            rule = f"{name} under enhanced below that under baseline"
            bound = Fraction(there[1][metric])
            checks.append(_below(at, rule, texts[metric], bound, f"baseline: Table {there[0]}"))
    result = papers.crossings(points).set_index(["study", "cores", "threads", "mode"])
    rule = f"last load at or under {100 * papers.PDR_LIMIT:g} % higher under enhanced"
    for (study, cores, threads, mode), row in result.iterrows():
        said = RAISED[study]
        other = (study, cores, threads, "baseline")
        if mode != "enhanced" or other not in result.index:
            continue
        last, bound = row["last_cps"], result.loc[other, "last_cps"]
        if (said is None or threads in said) and pd.notna(last) and pd.notna(bound):
            at = (study, row["table"], f"{threads} threads, last load")
            checks.append(_above(at, rule, str(last), Fraction(int(bound))))
    return _frame(checks)


def audit_comparison(points: pd.DataFrame, comparison: pd.DataFrame) -> pd.DataFrame:
    """Check percentages in the comparison tables, and numbers that these tables repeat from other tables."""
    checks = []
    points_held = _by_point(points)
    loads = {
        (study, cores, threads): loads[-1]
        for study, _, cores, threads, mode, loads in _pairs(papers.texts(points))
        if mode == "baseline"
    }
    for row in comparison.to_dict("records"):
        study, table, cores, threads, cps = (row[name] for name in papers.COLUMN if name != "mode")
        for name in ("pdr", "k_rcv"):
            unit = "_us" if name == "k_rcv" else ""
            label, _ = papers.METRIC_NAMES[f"{name}{unit}"]
            texts = {mode: row[f"{name}_{mode}{unit}_printed"] for mode in papers.MODES}
            for mode, text in texts.items():
                there = points_held.get((study, cores, threads, mode, cps))
                if there is None:
                    continue
                held = there[1][f"{name}{unit}"]
                at = (study, table, _cell(threads, cps, f"{label}, {mode}"))
                rule = "a comparison repeats the table that it compares"
                remark = f"Table {there[0]}: {held}"
                checks.append(_equal(at, rule, text, Fraction(held), remark))
            at = (study, table, _cell(threads, cps, f"{label}, %Lower"))
            lower = 100 * (1 - Fraction(texts["enhanced"]) / Fraction(texts["baseline"]))
            rule = "%Lower = 1 - enhanced / baseline"
            checks.append(_equal(at, rule, row[f"{name}_lower_pct_printed"], lower))
        higher = loads.get((study, cores, threads))
        if higher is not None:
            at = (study, table, f"{threads} threads, load")
            rule = "compared at the higher load of baseline"
            checks.append(_equal(at, rule, str(cps), Fraction(higher)))
    return _frame(checks)


def audit_ranges(comparison: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Check the ranges of improvement in the text against their tables."""
    checks = []
    for row in ranges.to_dict("records"):
        among = (comparison["study"] == row["study"]) & (comparison["table"] == row["table"])
        texts = comparison.loc[among, f"{row['metric']}_printed"]
        name = "PDR" if row["metric"].startswith("pdr") else "K_rcv"
        for end, pick in (("low", min), ("high", max)):
            at = (
                row["study"],
                f"section {row['section']}",
                f"{name} in Table {row['table']}, {end} end",
            )
            rule = "range in the text = least and most %Lower of the table"
            if len(texts):
                bound = pick(Fraction(text) for text in texts)
                checks.append(_equal(at, rule, row[f"{end}_pct_printed"], bound))
    return _frame(checks)


def audit_capacity(points: pd.DataFrame, capacity: pd.DataFrame) -> pd.DataFrame:
    """Check the arithmetic of the capacity model, and that its numbers of threads are the best."""
    checks = []
    for row in papers.predictions(points, capacity).to_dict("records"):
        study, p, c, threads = (row[name] for name in ("study", "processors", "cores", "threads"))
        place = (study, "section V")
        at = (*place, f"T({p},{c})")
        rule = "T(1,c) = c + 2, else T(p,c) = c"
        checks.append(_equal(at, rule, str(threads), Fraction(c + 2 if p == 1 else c)))
        if pd.notna(row["best_threads"]):
            rule = "T(p,c) is the number of threads that carries most"
            checks.append(_equal(at, rule, str(threads), Fraction(int(row["best_threads"]))))
        at = (*place, f"C({p},{c})")
        rule = "C(p,c) = T(p,c) × C(1,1)"
        product = Fraction(threads * row["single_core_cps"])
        checks.append(_equal(at, rule, str(row["capacity_cps"]), product))
    return _frame(checks)


def _by_point(
    points: pd.DataFrame,
) -> dict[tuple[str, int, int, str, int], tuple[str, dict[str, str]]]:
    """Return the table and the printed texts of each point, by (study, cores, threads, mode, cps)."""
    return {
        (study, cores, threads, mode, cps): (table, cells)
        for (study, table, cores, threads, mode, cps), cells in papers.texts(points).items()
    }


def _pairs(
    texts: Iterable[tuple[Any, ...]],
) -> Iterator[tuple[str, str, int, int, str, list[int]]]:
    """Yield the loads of each number of threads of each table, ascending."""
    loads: dict[tuple[Any, ...], list[int]] = {}
    for *place, cps in texts:
        loads.setdefault(tuple(place), []).append(cps)
    for (study, table, cores, threads, mode), result in loads.items():
        yield study, table, cores, threads, mode, sorted(result)


def _cell(threads: int, cps: int, name: str) -> str:
    return f"{threads} threads, {cps} cps, {name}"


def half_unit(printed: str) -> Fraction:
    """Return half a unit of the last printed digit, which is the largest rounding error of a printed number."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def _equal(
    at: tuple[str, str, str], rule: str, printed: str, exact: Fraction, remark: str = ""
) -> Check:
    agrees = abs(Fraction(printed) - exact) <= half_unit(printed)
    if not agrees and 0 <= exact - Fraction(printed) < 2 * half_unit(printed):
        remark = "; ".join(filter(None, (remark, papers.CUT_OFF)))
    return _check(at, rule, printed, "=", exact, agrees, remark)


def _at_most(
    at: tuple[str, str, str], rule: str, printed: str, bound: Fraction | int, remark: str = ""
) -> Check:
    return _check(at, rule, printed, "≤", Fraction(bound), Fraction(printed) <= bound, remark)


def _above(
    at: tuple[str, str, str], rule: str, printed: str, bound: Fraction, remark: str = ""
) -> Check:
    return _check(at, rule, printed, ">", bound, Fraction(printed) > bound, remark)


def _below(
    at: tuple[str, str, str], rule: str, printed: str, bound: Fraction, remark: str = ""
) -> Check:
    return _check(at, rule, printed, "<", bound, Fraction(printed) < bound, remark)


def _check(
    at: tuple[str, str, str],
    rule: str,
    printed: str,
    relation: str,
    to: Fraction,
    agrees: bool,
    remark: str,
) -> Check:
    difference = float(Fraction(printed) - to)
    return Check(*at, rule, printed, relation, float(to), difference, agrees, remark)


def _frame(checks: Sequence[Check]) -> pd.DataFrame:
    return pd.DataFrame(checks, columns=[field.name for field in fields(Check)])


if __name__ == "__main__":
    audit().to_csv(papers.FOLDER / "audit.csv", index=False, lineterminator="\n")
