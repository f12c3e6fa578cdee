"""The numbers that the two papers print, and a check of each against the others.

Nothing in here was measured by this project. `config/published/README.md` cites the papers and
lists the spots that the scans garble.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from sipsched.analysis.statistics import PDR_LIMIT, grid_capacity
from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "config" / "published"
FILES = ("points.csv", "comparison.csv", "capacity.csv", "ranges.csv")
STUDIES = ("multicore", "singlecore")
TABLES = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
MODES = ("baseline", "enhanced")
METRIC_NAMES = {
    "arrival_rate_pps": ("Arrival rate", "packets/s"),
    "t_sip_us": ("T_sip", "µs"),
    "k_rcv_us": ("K_rcv", "µs"),
    "rcv_errors": ("RCV errors", ""),
    "call_setup_drops": ("Call-setup drops", ""),
    "call_setup_messages": ("Call-setup messages", ""),
    "total_messages": ("Total messages", ""),
    "pdr": ("PDR", ""),
}
"""The metrics in the order of the tables: what the papers call them, and their units."""
METRICS = {
    metric: f"{name} ({unit})" if unit else name for metric, (name, unit) in METRIC_NAMES.items()
}
"""The same, name and unit as one."""
NEEDED = {"arrival_rate_pps", "t_sip_us", "k_rcv_us", "total_messages", "pdr"}
"""The rows that every table of measurements has."""
COMPARED = ("pdr", "k_rcv")
"""What the comparison tables hold: for each, baseline, enhanced, and by how much it is lower."""
QUANTITIES = (
    *("pdr_baseline", "pdr_enhanced", "pdr_lower_pct"),
    *("k_rcv_baseline_us", "k_rcv_enhanced_us", "k_rcv_lower_pct"),
)
COLUMN = ["study", "table", "cores", "threads", "mode", "cps"]
"""What names a column of a table of measurements."""
MESSAGES_PER_CALL = 6
SETUP_MESSAGES_PER_CALL = 4
"""INVITE, 180, 200 and ACK; BYE and its 200 are the other two."""
CALLS = {"multicore": 100_000, "singlecore": 200_000}
"""Calls of an experiment: section II of the one paper, section III of the other."""
LOAD_STEP_CPS = 200
RAISED = {"multicore": None, "singlecore": (2, 16)}
"""Threads for which the text says that enhanced mode carries more load; None: for all."""
CUT_OFF = "cut off, not rounded"
NOT_MEASURED = "Published numbers, not measured here"
PAPERS = {"multicore": "Multi-core paper", "singlecore": "Single-core paper"}
CITATIONS = {
    "multicore": "R. Krishnamurthy and G. N. Rouskas, Performance Evaluation of Multi-Core, "
    "Multi-Threaded SIP Proxy Servers (SPS), IEEE ICC 2016",
    "singlecore": "R. Krishnamurthy and G. N. Rouskas, On the Impact of Scheduler Settings on the "
    "Performance of Multi-Threaded SIP Servers, IEEE ICC 2015",
}
SHORT = {
    "multicore": "Krishnamurthy and Rouskas, IEEE ICC 2016",
    "singlecore": "Krishnamurthy and Rouskas, IEEE ICC 2015",
}

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_COUNT = re.compile(r"[1-9][0-9]*")


def provenance(*studies: str) -> str:
    """Say of a figure or table that its numbers are published, and where."""
    return f"{NOT_MEASURED}: {' and '.join(SHORT[study] for study in dict.fromkeys(studies))}."


def _one_of(choices: Iterable[str]) -> Callable[[str], str]:
    allowed = tuple(choices)

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text

    return parse


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError("expected a whole number above 0")
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("expected a number as printed")
    return float(text)


_PLACE: dict[str, Callable[[str], Any]] = {
    "study": _one_of(STUDIES),
    "table": _one_of(TABLES),
    "cores": _count,
    "threads": _count,
}


def load_points(folder: Path = FOLDER) -> pd.DataFrame:
    """Read every number of the tables of measurements.

    Parameters
    ----------
    folder
        Where points.csv is.

    Returns
    -------
    DataFrame
        A row a number: study, table (Roman numeral), cores, threads, mode, cps (calls per
        second), metric (one of `METRICS`, its unit in its name), value (float), printed (its
        text). A table has all of a metric or, where no scan shows it, nothing.

    Raises
    ------
    StableError
        Unknown columns, a value that is missing or is none, a cell twice; names file and line. A
        cell that the rest of its table has; names the cell.
    """
    columns = _PLACE | {
        "mode": _one_of(MODES),
        "cps": _count,
        "metric": _one_of(METRICS),
        "value": _number,
    }
    path = folder / "points.csv"
    frame = _read(path, columns, key=[*COLUMN, "metric"])
    for (study, table), cells in frame.groupby(["study", "table"]):
        wanted = NEEDED | set(cells["metric"])
        for place, column in cells.groupby(COLUMN):
            missing = sorted(wanted - set(column["metric"]))
            if missing:
                _, _, cores, threads, mode, cps = place
                raise StableError(
                    f"{path}: {study}, Table {table}, {cores} cores, {threads} threads, {mode}, "
                    f"{cps} cps: expected {', '.join(missing)}, found no such row"
                )
    return frame.rename(columns={"value_printed": "printed"})


def load_comparison(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the tables that set the modes side by side.

    Parameters
    ----------
    folder
        Where comparison.csv is.

    Returns
    -------
    DataFrame
        A row a row of the tables: study, table, cores, threads, cps, and each of `QUANTITIES`
        (float; a share, µs, or %) with its text as `<quantity>_printed`.

    Raises
    ------
    StableError
        As `load_points`.
    """
    columns = _PLACE | {"cps": _count} | dict.fromkeys(QUANTITIES, _number)
    return _read(folder / "comparison.csv", columns, key=["study", "table", "threads", "cps"])


def load_capacity(folder: Path = FOLDER) -> pd.DataFrame:
    """Read what the capacity model of the multi-core paper (section V) predicts.

    Parameters
    ----------
    folder
        Where capacity.csv is.

    Returns
    -------
    DataFrame
        A row a system: study, section, processors (p), cores (c), threads (T(p,c)),
        single_core_cps (C(1,1)), capacity_cps (C(p,c)).

    Raises
    ------
    StableError
        As `load_points`.
    """
    numbers = ("processors", "cores", "threads", "single_core_cps", "capacity_cps")
    columns = {"study": _one_of(STUDIES), "section": _one_of(("V",))} | dict.fromkeys(
        numbers, _count
    )
    return _read(folder / "capacity.csv", columns, key=["study", "processors", "cores"])


def load_ranges(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the ranges of improvement that the papers' text states.

    Parameters
    ----------
    folder
        Where ranges.csv is.

    Returns
    -------
    DataFrame
        A row a range: study, section, table (the one that it sums up), metric (a column of
        `load_comparison`), low_pct and high_pct (%), each with its text as `<name>_printed`.

    Raises
    ------
    StableError
        As `load_points`.
    """
    columns = {
        "study": _one_of(STUDIES),
        "section": _one_of(("IV",)),
        "table": _one_of(TABLES),
        "metric": _one_of(f"{name}_lower_pct" for name in COMPARED),
        "low_pct": _number,
        "high_pct": _number,
    }
    return _read(folder / "ranges.csv", columns, key=["study", "table", "metric"])


def _read(
    path: Path, columns: Mapping[str, Callable[[str], Any]], key: Sequence[str]
) -> pd.DataFrame:
    """Read a CSV file; numbers as printed keep their text in `<name>_printed`."""
    try:
        lines = csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True)
        table = [(lines.line_num, row) for row in lines]
    except FileNotFoundError:
        raise StableError(f"{path}: no such file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise StableError(f"{path}: not a CSV file in UTF-8: {error}") from None
    header = table[0][1] if table else []
    if header != list(columns):
        raise StableError(
            f"{path}: line 1: expected the columns {', '.join(columns)}; "
            f"found {', '.join(header) or 'none'}"
        )
    records: list[dict[str, Any]] = []
    seen: dict[tuple[str, ...], int] = {}
    for line, row in table[1:]:
        if len(row) != len(header):
            raise StableError(
                f"{path}: line {line}: expected {len(header)} values, found {len(row)}"
            )
        cells = dict(zip(header, row, strict=True))
        record: dict[str, Any] = {}
        for name, text in cells.items():
            try:
                record[name] = columns[name](text)
            except ValueError as error:
                found = f"'{text}'" if text else "nothing"
                raise StableError(f"{path}: line {line}: {name}: {error}, found {found}") from None
            if columns[name] is _number:
                record[f"{name}_printed"] = text
        place = tuple(cells[name] for name in key)
        if place in seen:
            raise StableError(
                f"{path}: line {line}: {', '.join(place)} is there already, in line {seen[place]}"
            )
        seen[place] = line
        records.append(record)
    if not records:
        raise StableError(f"{path}: line 1: columns, and no row below them")
    return pd.DataFrame(records)


def wide(points: pd.DataFrame) -> pd.DataFrame:
    """Put the metrics side by side.

    Parameters
    ----------
    points
        As `load_points` returns it.

    Returns
    -------
    DataFrame
        A row a column of the papers' tables: `COLUMN`, then each of `METRICS` (float, NaN where
        there is none). Merge it on cores, threads, mode and cps to compare it with anything.
    """
    table = points.pivot(index=COLUMN, columns="metric", values="value")
    return table.reindex(columns=list(METRICS)).rename_axis(columns=None).reset_index()


def crossings(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> pd.DataFrame:
    """Find where the packet drop rate passes a limit, in the numbers as printed.

    Parameters
    ----------
    points
        As `load_points` returns it.
    pdr_limit
        The share of messages dropped at which capacity ends.

    Returns
    -------
    DataFrame
        A row for each study, cores, threads, mode: table; last_cps (the last load at or below
        the limit, before the first above), first_cps (the first above), both Int64 and missing
        where no load of the table is such; and pdr and k_rcv_us there, as `last_pdr`,
        `last_k_rcv_us`, `first_pdr`, `first_k_rcv_us` (float, NaN where missing).
    """
    by = ["study", "cores", "threads", "mode"]
    rows = []
    for place, group in wide(points).groupby(by, sort=True):
        edges = grid_capacity(group["cps"], group["pdr"], pdr_limit)
        below, above = (group[group["cps"] == edge] for edge in edges)
        row = dict(zip(by, place, strict=True)) | {"table": group["table"].iloc[0]}
        for name, found in (("last", below), ("first", above)):
            for column in ("cps", "pdr", "k_rcv_us"):
                row[f"{name}_{column}"] = found[column].iloc[0] if len(found) else None
        rows.append(row)
    types = {
        f"{name}_{column}": "Int64" if column == "cps" else "float64"
        for name in ("last", "first")
        for column in ("cps", "pdr", "k_rcv_us")
    }
    return pd.DataFrame(rows).astype(types)


@dataclass(frozen=True)
class Check:
    """One printed number against what other printed numbers make of it.

    Attributes
    ----------
    study, table
        Where it is printed: a table, or a section of the text.
    cell
        Which number.
    rule
        What has to hold.
    printed
        Its text.
    relation
        How printed has to stand to recomputed: =, ≤, < or >.
    recomputed
        What it should be, or the bound it has to keep.
    difference
        printed - recomputed.
    agrees
        Whether the rule holds; for an equality, to half a unit of the last printed digit.
    remark
        Why it may disagree; mostly empty.
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


def audit(
    points: pd.DataFrame,
    comparison: pd.DataFrame,
    capacity: pd.DataFrame,
    ranges: pd.DataFrame,
) -> pd.DataFrame:
    """Check every printed number that others determine or bound.

    Parameters
    ----------
    points, comparison, capacity, ranges
        As the loaders return them.

    Returns
    -------
    DataFrame
        A row a check, with the columns of `Check`.
    """
    parts = (
        audit_points(points),
        audit_modes(points),
        audit_comparison(points, comparison),
        audit_ranges(comparison, ranges),
        audit_capacity(points, capacity),
    )
    return pd.concat(parts, ignore_index=True)


def audit_points(points: pd.DataFrame) -> pd.DataFrame:
    """Check each table of measurements in itself: rates, shares, counts, and where PDR passes 1 %.

    Parameters and the columns of the result are those of `audit`.
    """
    checks: list[Check] = []
    texts = _texts(points)
    for place, cells in texts.items():
        checks += _check_column(place, cells)
    for study, table, cores, threads, mode, loads in _pairs(texts):
        for load, rule, compare in (
            (loads[0], "PDR of the lower load", _at_most),
            (loads[-1], "PDR of the higher load", _above),
        ):
            text = texts[study, table, cores, threads, mode, load]["pdr"]
            at = (study, table, _cell(threads, load, "PDR"))
            sign = "at or under" if compare is _at_most else "above"
            limit = Fraction(str(PDR_LIMIT))
            remark = "at the limit" if Fraction(text) == limit else ""
            rule = f"{rule} {sign} {100 * PDR_LIMIT:g} %"
            checks.append(compare(at, rule, text, limit, remark))
        step = Fraction(loads[-1] - loads[0])
        at = (study, table, f"{threads} threads, loads")
        rule = f"loads {LOAD_STEP_CPS} cps apart"
        checks.append(_equal(at, rule, str(step), Fraction(LOAD_STEP_CPS)))
    return _frame(checks)


def _check_column(place: tuple[Any, ...], cells: Mapping[str, str]) -> Iterator[Check]:
    study, table, _, threads, _, cps = place
    exact = {metric: Fraction(text) for metric, text in cells.items()}
    total = exact["total_messages"]

    def at(metric: str) -> tuple[str, str, str]:
        return study, table, _cell(threads, cps, METRIC_NAMES[metric][0])

    yield _equal(
        at("arrival_rate_pps"),
        f"arrival rate = {MESSAGES_PER_CALL} × cps",
        cells["arrival_rate_pps"],
        Fraction(MESSAGES_PER_CALL * cps),
    )
    if "rcv_errors" in cells:
        rule = "PDR = RCV errors / total messages"
        yield _equal(at("pdr"), rule, cells["pdr"], exact["rcv_errors"] / total)
    rule = f"total messages ≤ {MESSAGES_PER_CALL} × calls"
    without = "nothing sent twice; retransmissions would count"
    calls = CALLS[study]
    yield _at_most(
        at("total_messages"), rule, cells["total_messages"], MESSAGES_PER_CALL * calls, without
    )
    if "call_setup_messages" not in cells:
        return
    rule = f"call-setup messages ≤ {SETUP_MESSAGES_PER_CALL} × calls"
    bound = SETUP_MESSAGES_PER_CALL * calls
    name = "call_setup_messages"
    yield _at_most(at(name), rule, cells[name], bound, without)
    yield _at_most(at(name), "call-setup messages ≤ total messages", cells[name], total)
    name = "call_setup_drops"
    if "rcv_errors" in cells:
        yield _at_most(at(name), "call-setup drops ≤ RCV errors", cells[name], exact["rcv_errors"])
    else:
        rule = "call-setup drops ≤ PDR × total messages"
        remark = "RCV errors are not in the scan"
        yield _at_most(at(name), rule, cells[name], _errors_allowed(cells)[1], remark)


def errors_not_shown(points: pd.DataFrame) -> pd.DataFrame:
    """Bound the RCV errors where the scan does not show them.

    Parameters
    ----------
    points
        As `load_points` returns it.

    Returns
    -------
    DataFrame
        A row for each column of a table without `rcv_errors`: `COLUMN`, at_least and at_most
        (messages), which is PDR × total messages where PDR is rounded or cut off: the papers
        do both.
    """
    rows = []
    for place, cells in _texts(points).items():
        if "rcv_errors" not in cells:
            least, most = _errors_allowed(cells)
            rows.append(
                dict(zip(COLUMN, place, strict=True)) | {"at_least": least, "at_most": most}
            )
    return pd.DataFrame(rows, columns=[*COLUMN, "at_least", "at_most"])


def _errors_allowed(cells: Mapping[str, str]) -> tuple[int, int]:
    share, half = Fraction(cells["pdr"]), _half_unit(cells["pdr"])
    total = Fraction(cells["total_messages"])
    return math.ceil((share - half) * total), math.floor((share + 2 * half) * total)


def audit_modes(points: pd.DataFrame) -> pd.DataFrame:
    """Check what the text says of the modes: enhanced is better at each load, and carries more.

    Parameters and the columns of the result are those of `audit`.
    """
    checks = []
    cells = _by_point(points)
    for (study, cores, threads, mode, cps), (table, texts) in cells.items():
        there = cells.get((study, cores, threads, "baseline", cps))
        if mode != "enhanced" or there is None:
            continue
        for metric in ("pdr", "k_rcv_us"):
            name = METRIC_NAMES[metric][0]
            at = (study, table, _cell(threads, cps, name))
            rule = f"{name} under enhanced below that under baseline"
            bound = Fraction(there[1][metric])
            checks.append(_below(at, rule, texts[metric], bound, f"baseline: Table {there[0]}"))
    found = crossings(points).set_index(["study", "cores", "threads", "mode"])
    rule = f"last load at or under {100 * PDR_LIMIT:g} % higher under enhanced"
    for (study, cores, threads, mode), row in found.iterrows():
        said = RAISED[study]
        other = (study, cores, threads, "baseline")
        if mode != "enhanced" or other not in found.index:
            continue
        last, bound = row["last_cps"], found.loc[other, "last_cps"]
        if (said is None or threads in said) and pd.notna(last) and pd.notna(bound):
            at = (study, row["table"], f"{threads} threads, last load")
            checks.append(_above(at, rule, str(last), Fraction(int(bound))))
    return _frame(checks)


def audit_comparison(points: pd.DataFrame, comparison: pd.DataFrame) -> pd.DataFrame:
    """Check the comparison tables: their percentages, and what they repeat of other tables.

    Parameters and the columns of the result are those of `audit`.
    """
    checks = []
    points_held = _by_point(points)
    loads = {
        (study, cores, threads): loads[-1]
        for study, _, cores, threads, mode, loads in _pairs(_texts(points))
        if mode == "baseline"
    }
    for row in comparison.to_dict("records"):
        study, table, cores, threads, cps = (row[name] for name in COLUMN if name != "mode")
        for name in COMPARED:
            unit = "_us" if name == "k_rcv" else ""
            label, _ = METRIC_NAMES[f"{name}{unit}"]
            texts = {mode: row[f"{name}_{mode}{unit}_printed"] for mode in MODES}
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
    """Check the ranges of improvement in the text against the tables that they sum up.

    Parameters and the columns of the result are those of `audit`.
    """
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
    """Check the capacity model: its arithmetic, and whether its threads are the best ones.

    Parameters and the columns of the result are those of `audit`.
    """
    checks = []
    for row in predictions(points, capacity).to_dict("records"):
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


def predictions(
    points: pd.DataFrame, capacity: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> pd.DataFrame:
    """Set the capacity that the model predicts beside the one in the tables.

    Parameters
    ----------
    points, capacity
        As the loaders return them.
    pdr_limit
        The share of messages dropped at which capacity ends.

    Returns
    -------
    DataFrame
        The rows of `capacity`, and: best_threads and best_cps, the number of threads with the
        highest last load at or below the limit under enhanced mode, and that load (Int64; the
        least threads of several); difference_cps and difference_pct, predicted - best.
    """
    found = crossings(points, pdr_limit).dropna(subset="last_cps")
    found = found[found["mode"] == "enhanced"].sort_values(
        ["last_cps", "threads"], ascending=[False, True]
    )
    best = found.drop_duplicates(["study", "cores"])[["study", "cores", "threads", "last_cps"]]
    best = best.rename(columns={"threads": "best_threads", "last_cps": "best_cps"})
    best = best.astype({"best_threads": "Int64"})
    table = capacity.merge(best, how="left", on=["study", "cores"])
    table["difference_cps"] = table["capacity_cps"] - table["best_cps"]
    table["difference_pct"] = 100 * table["difference_cps"] / table["best_cps"]
    return table


def _texts(points: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, str]]:
    """Turn points into printed text by metric, for each column of the tables."""
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in points.to_dict("records"):
        place = tuple(row[name] for name in COLUMN)
        texts.setdefault(place, {})[row["metric"]] = row["printed"]
    return texts


def _by_point(
    points: pd.DataFrame,
) -> dict[tuple[str, int, int, str, int], tuple[str, dict[str, str]]]:
    """Find table and texts by (study, cores, threads, mode, cps): no two tables share one."""
    return {
        (study, cores, threads, mode, cps): (table, cells)
        for (study, table, cores, threads, mode, cps), cells in _texts(points).items()
    }


def _pairs(
    texts: Iterable[tuple[Any, ...]],
) -> Iterator[tuple[str, str, int, int, str, list[int]]]:
    """Yield the loads of each number of threads of each table, ascending."""
    loads: dict[tuple[Any, ...], list[int]] = {}
    for *place, cps in texts:
        loads.setdefault(tuple(place), []).append(cps)
    for (study, table, cores, threads, mode), found in loads.items():
        yield study, table, cores, threads, mode, sorted(found)


def _cell(threads: int, cps: int, name: str) -> str:
    return f"{threads} threads, {cps} cps, {name}"


def _half_unit(printed: str) -> Fraction:
    """Half a unit of the last printed digit."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def _equal(
    at: tuple[str, str, str], rule: str, printed: str, exact: Fraction, remark: str = ""
) -> Check:
    agrees = abs(Fraction(printed) - exact) <= _half_unit(printed)
    if not agrees and 0 <= exact - Fraction(printed) < 2 * _half_unit(printed):
        remark = "; ".join(filter(None, (remark, CUT_OFF)))
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
