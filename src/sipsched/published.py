"""The numbers that the two papers print, and a check of each against the others.

Nothing in here was measured by this project. `config/published/README.md` cites the papers and
lists the spots that the scans garble.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sipsched.config import PROJECT_ROOT
from sipsched.errors import StableError

FOLDER = PROJECT_ROOT / "config" / "published"
FILES = ("points.csv", "comparison.csv", "capacity.csv", "ranges.csv")
STUDIES = ("multicore", "singlecore")
TABLES = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
MODES = ("baseline", "enhanced")
METRICS = (
    "arrival_rate_pps",
    "t_sip_us",
    "k_rcv_us",
    "rcv_errors",
    "call_setup_drops",
    "call_setup_messages",
    "total_messages",
    "pdr",
)
COMPARED = ("pdr", "k_rcv")
"""What the comparison tables hold: for each, baseline, enhanced, and by how much it is lower."""
QUANTITIES = (
    *("pdr_baseline", "pdr_enhanced", "pdr_lower_pct"),
    *("k_rcv_baseline_us", "k_rcv_enhanced_us", "k_rcv_lower_pct"),
)
COLUMN = ["study", "table", "cores", "threads", "mode", "cps"]
"""What names a column of a table of measurements."""
PDR_LIMIT = 0.01
MESSAGES_PER_CALL = 6
SETUP_MESSAGES_PER_CALL = 4
CALLS = {"multicore": 100_000, "singlecore": 200_000}
"""Calls of an experiment: section II of the one paper, section III of the other."""
LOAD_STEP_CPS = 200

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_COUNT = re.compile(r"[1-9][0-9]*")


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
        text). A cell that no scan shows has no row.

    Raises
    ------
    StableError
        Unknown columns, a value that is missing or is none, a cell twice; names file and line.
    """
    columns = _PLACE | {
        "mode": _one_of(MODES),
        "cps": _count,
        "metric": _one_of(METRICS),
        "value": _number,
    }
    frame = _read(folder / "points.csv", columns, key=[*COLUMN, "metric"])
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
    for place, group in wide(points).sort_values("cps").groupby(by, sort=True):
        above = group[group["pdr"] > pdr_limit].head(1)
        first_cps = above["cps"].min() if len(above) else group["cps"].max() + 1
        below = group[(group["pdr"] <= pdr_limit) & (group["cps"] < first_cps)].tail(1)
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
