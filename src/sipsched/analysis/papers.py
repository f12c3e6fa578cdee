"""The published numbers of the two papers, and checks that these numbers are consistent.

The project did not measure these numbers. `config/published/README.md` cites the papers and lists the illegible parts
of the scans.
"""

import csv
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from msgspec import Meta, defstruct

from sipsched.analysis.crossing_load import PDR_LIMIT, grid_capacity
from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records.conversion import as_part
from sipsched.words import plural

FOLDER = PROJECT_ROOT / "config" / "published"
FILES = ("points.csv", "comparison.csv", "capacity.csv", "audit.csv")
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
"""Metrics in the order of the papers' tables, with the papers' names and units."""


def titled(name: str, unit: str) -> str:
    """Return the name of a quantity, followed by the unit in brackets if the quantity has a unit."""
    return f"{name} ({unit})" if unit else name


METRICS = {metric: titled(*name_and_unit) for metric, name_and_unit in METRIC_NAMES.items()}
"""The title of each metric for pages: name and unit."""
NEEDED = {"arrival_rate_pps", "t_sip_us", "k_rcv_us", "total_messages", "pdr"}
"""Metrics that each table of measurements must have."""
PAPER_QUANTITIES = (
    *("pdr_baseline", "pdr_enhanced", "pdr_lower_pct"),
    *("k_rcv_baseline_us", "k_rcv_enhanced_us", "k_rcv_lower_pct"),
)
COLUMN = ["study", "table", "cores", "threads", "mode", "cps"]
"""Keys that identify a column of the papers' tables of measurements."""
AT_LIMIT = ("cps", "pdr", "k_rcv_us", "rate")
"""Values that `crossings` returns for two loads: the last load below and the first load above the drop limit."""
MESSAGES_PER_CALL = 6
"""Number of messages per call that reach the SPS: INVITE, 180, 200, ACK, BYE, 200."""
PAPERS_RUNS = 30
"""Number of experiments that the papers average per column of a table (section IV of both papers)."""
CALLS = {"multicore": 100_000, "singlecore": 200_000}
"""Number of calls per experiment, from section II of one paper and section III of the other paper."""
LOAD_STEP_CPS = 200
RECOVERED = (
    "The scan does not show the row RCV errors of the multi-core paper's Table I. The numbers of this row are "
    "computed as call-setup drops times total messages, divided by call-setup messages."
)
CUT_OFF = "truncated, not rounded"
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

PrintedCount = Annotated[str, Meta(pattern="^[1-9][0-9]*$")]
PrintedNumber = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
"""A number as text, as the paper prints the number."""
_PLACE: dict[str, Any] = {
    "study": Literal[STUDIES],
    "table": Literal[TABLES],
    "cores": PrintedCount,
    "threads": PrintedCount,
}


def provenance(*studies: str) -> str:
    """Return a sentence for pages about the papers that published the numbers of a figure or table."""
    return f"{NOT_MEASURED}: {' and '.join(SHORT[study] for study in dict.fromkeys(studies))}."


def load_points(folder: Path = FOLDER) -> pd.DataFrame:
    """Read all numbers in the papers' tables of measurements.

    Returns
    -------
    DataFrame
        One row per number: study, table (Roman numeral), cores, threads, mode, cps (calls per second), metric (one of
        `METRICS`, with its unit in the name), value (float), printed (its text), recovered. A table has all numbers of
        a metric, or no number if the paper does not have the metric. `recovered` is true for RCV errors that the scan
        does not show; `_recovered_errors` computes them.

    Raises
    ------
    StableError
        The file has unknown columns, a missing or invalid value, or a repeated cell; the message names the file and the
        line. Or the file lacks a cell of a table; the message names the cell.
    """
    columns = _PLACE | {
        "mode": Literal[MODES],
        "cps": PrintedCount,
        "metric": Literal[tuple(METRICS)],
        "value": PrintedNumber,
    }
    path = folder / "points.csv"
    frame = read_table(path, columns, key=[*COLUMN, "metric"])
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
    points = frame.rename(columns={"value_printed": "printed"}).assign(recovered=False)
    return pd.concat([points, _recovered_errors(points)], ignore_index=True)


def _recovered_errors(points: pd.DataFrame) -> pd.DataFrame:
    """Compute the receive errors that are unreadable in a paper's scan. Return the errors in the form of `points`.

    The computation inverts a rule that all other columns of the multi-core paper obey. In these columns, the call-setup
    drops are RCV errors × call-setup messages / total messages, rounded or cut off.
    """
    rows = []
    for place, cells in texts(points).items():
        if "rcv_errors" not in cells and "call_setup_drops" in cells:
            names = ("call_setup_drops", "total_messages", "call_setup_messages")
            drops, total, setup = (Fraction(cells[name]) for name in names)
            errors = round(drops * total / setup)
            row = dict(zip(COLUMN, place, strict=True)) | {"metric": "rcv_errors"}
            rows.append(row | {"value": float(errors), "printed": str(errors), "recovered": True})
    return pd.DataFrame(rows, columns=points.columns)


def load_comparison(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the papers' tables that compare baseline mode with enhanced mode.

    Returns
    -------
    DataFrame
        One row per row of the papers' tables: study, table, cores, threads, cps, and each of `PAPER_QUANTITIES` (float;
        a share, µs, or %) with its text as `<quantity>_printed`.

    Raises
    ------
    StableError
        See `load_points`.
    """
    columns = _PLACE | {"cps": PrintedCount} | dict.fromkeys(PAPER_QUANTITIES, PrintedNumber)
    return read_table(folder / "comparison.csv", columns, key=["study", "table", "threads", "cps"])


def load_capacity(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the capacities that the multi-core paper's model predicts (section V).

    Returns
    -------
    DataFrame
        One row per system: study, section, processors (p), cores (c), threads (T(p,c)), single_core_cps (C(1,1)),
        capacity_cps (C(p,c)).

    Raises
    ------
    StableError
        See `load_points`.
    """
    numbers = ("processors", "cores", "threads", "single_core_cps", "capacity_cps")
    columns = {"study": Literal[STUDIES], "section": Literal["V"]} | dict.fromkeys(
        numbers, PrintedCount
    )
    return read_table(folder / "capacity.csv", columns, key=["study", "processors", "cores"])


def load_audit(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the results of the checks whether the papers' printed numbers are consistent with each other.

    `tests/published_audit.py` makes the checks and writes the results to a file.

    Returns
    -------
    DataFrame
        One row per check. `study`, `table` (or section) and `cell` locate the printed number, and `rule` names the
        rule. The rule demands that `printed` (text) has the `relation` (=, ≤, < or >) to `recomputed`, which is the
        expected number or bound. `difference` is printed - recomputed. `agrees` is true if the rule holds. The relation
        = allows half a unit of the last printed digit. `remark` gives a possible reason for a failed rule.

    Raises
    ------
    StableError
        The file is missing.
    """
    path = folder / "audit.csv"
    try:
        return pd.read_csv(path, dtype={"printed": str}, keep_default_na=False)
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; run python tests/published_audit.py") from None


def read_table(path: Path, columns: Mapping[str, Any], key: list[str]) -> pd.DataFrame:
    """Read a CSV file and check the types of its columns. `<name>_printed` has the text of each printed number.

    Raises
    ------
    StableError
        See `load_points`.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows, header = list(reader), list(reader.fieldnames or ())
    except FileNotFoundError:
        raise StableError(f"{path}: no such file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise StableError(f"{path}: not a CSV file in UTF-8: {error}") from None
    if header != list(columns) or not rows:
        raise StableError(
            f"{path}: line 1: expected the columns {', '.join(columns)}, and rows below them; "
            f"found {', '.join(header) or 'none'}, and {plural(len(rows), 'row')}"
        )
    kind = defstruct("Row", list(columns.items()))
    for line, row in enumerate(rows, start=2):
        as_part(kind, row, f"{path}: line {line}", "see config/published/README.md")
    frame = pd.DataFrame(rows)
    for i in np.flatnonzero(frame.duplicated(key)):
        place = ", ".join(frame.loc[i, key])
        raise StableError(f"{path}: line {i + 2}: {place} occurs twice")
    printed = [name for name, column in columns.items() if column is PrintedNumber]
    frame[[f"{name}_printed" for name in printed]] = frame[printed]
    counts = [name for name, column in columns.items() if column is PrintedCount]
    return frame.astype(dict.fromkeys(printed, float) | dict.fromkeys(counts, int))


def wide(points: pd.DataFrame) -> pd.DataFrame:
    """Convert a table with one row per number to a table with one column per metric.

    Returns
    -------
    DataFrame
        One row per column of the papers' tables: `COLUMN`, then each of `METRICS` (float, NaN where missing). The
        columns cores, threads, mode and cps are keys for a merge with other data. The last column, `rate`, is
        RCV errors / total messages. This share is compared with a limit, because the printed PDR is rounded.
    """
    table = points.pivot(index=COLUMN, columns="metric", values="value")
    table = table.reindex(columns=list(METRICS)).rename_axis(columns=None).reset_index()
    rate = (table["rcv_errors"] / table["total_messages"]).fillna(table["pdr"])
    return table.assign(rate=rate)


def crossings(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> pd.DataFrame:
    """Return a table of the published loads just below and just above the limit of the packet drop rate.

    Returns
    -------
    DataFrame
        One row per study, cores, threads and mode. The column `table` names the table. `first_cps` is the first load
        above the limit, and `last_cps` is the last load before it that is at or below the limit (both Int64; missing if
        no such load exists). `last_pdr`, `last_k_rcv_us`, `first_pdr` and `first_k_rcv_us` are the values at these
        loads (float, NaN where missing). `last_rate` and `first_rate` are the values of `rate` (see `wide`), which are
        compared with the limit.
    """
    by = ["study", "cores", "threads", "mode"]
    rows = []
    for place, group in wide(points).groupby(by, sort=True):
        edges = grid_capacity(group["cps"], group["rate"], pdr_limit)
        below, above = (group[group["cps"] == edge] for edge in edges)
        row = dict(zip(by, place, strict=True)) | {"table": group["table"].iloc[0]}
        for name, at_edge in (("last", below), ("first", above)):
            for column in AT_LIMIT:
                row[f"{name}_{column}"] = at_edge[column].iloc[0] if len(at_edge) else None
        rows.append(row)
    types = {
        f"{name}_{column}": "Int64" if column == "cps" else "float64"
        for name in ("last", "first")
        for column in AT_LIMIT
    }
    return pd.DataFrame(rows).astype(types)


def predictions(
    points: pd.DataFrame, capacity: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> pd.DataFrame:
    """Return a table that compares the capacities of the paper's model with the capacities of the paper's tables.

    Returns
    -------
    DataFrame
        The rows of `capacity` with four more columns. `best_cps` is the highest load at or below the limit in enhanced
        mode, and `best_threads` is its number of threads (Int64; the smallest such number). `difference_cps` and
        `difference_pct` are predicted - best.
    """
    by_limit = crossings(points, pdr_limit).dropna(subset="last_cps")
    by_limit = by_limit[by_limit["mode"] == "enhanced"].sort_values(
        ["last_cps", "threads"], ascending=[False, True]
    )
    best = by_limit.drop_duplicates(["study", "cores"])[["study", "cores", "threads", "last_cps"]]
    best = best.rename(columns={"threads": "best_threads", "last_cps": "best_cps"})
    best = best.astype({"best_threads": "Int64"})
    table = capacity.merge(best, how="left", on=["study", "cores"])
    table["difference_cps"] = table["capacity_cps"] - table["best_cps"]
    table["difference_pct"] = 100 * table["difference_cps"] / table["best_cps"]
    return table


def texts(points: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, str]]:
    """Return the text of each printed number, by column of the papers' tables and by metric.

    The key of a column is a tuple with its study, table, cores, threads, mode and load (see `COLUMN`).
    """
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in points.to_dict("records"):
        place = tuple(row[name] for name in COLUMN)
        texts.setdefault(place, {})[row["metric"]] = row["printed"]
    return texts
