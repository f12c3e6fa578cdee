"""The tables, figures and sentences of the page of published numbers; nothing in it was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from sipsched.analysis.papers import (
    CALLS,
    CITATIONS,
    CUT_OFF,
    MESSAGES_PER_CALL,
    METRICS,
    MODES,
    NOT_MEASURED,
    PAPERS,
    crossings,
    predictions,
    provenance,
)
from sipsched.analysis.statistics import PDR_LIMIT
from sipsched.pages.drawing import (
    LIMIT,
    MARKERS,
    PAPER,
    SERIES,
    STYLE,
    Layout,
    both,
    legend,
    themed,
)
from sipsched.pages.numbers import NO_ENTRY
from sipsched.pages.parts import Answer, Figure, Table, Words
from sipsched.pages.tables import Heading
from sipsched.words import grouped, number, plural

RELATIONS = {"=": "", "≤": "at most ", "<": "less than ", ">": "more than "}
COLORS = dict(zip(MODES, SERIES, strict=False))
DODGE = {"baseline": -0.14, "enhanced": 0.14}
"""How far the modes stand apart, in steps from one number of threads to the next."""
HEADROOM = 1.08
"""Height of an axis over the largest value, so that its marker is whole."""


def heading(points: pd.DataFrame) -> Heading:
    """Say first that these are published numbers, and whose."""
    papers = [study for study in CITATIONS if study in set(points["study"])]
    return Heading(
        fidelity=f"{NOT_MEASURED}: transcribed from two papers, as printed.",
        testbed="; ".join(f"{PAPERS[study]}: {CITATIONS[study]}" for study in papers) + ".",
        description="OpenSIPS, on Linux 3.2.51 and 2.6.32, on Intel Xeon E5540; a column of a "
        "table is the average of thirty experiments.",
    )


def answer(points: pd.DataFrame, checks: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Answer:
    """Say what the papers report of the two modes, and how much of what they print agrees with itself.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    checks
        As `sipsched.analysis.papers.audit` returns it.
    pdr_limit
        The share of messages dropped at which capacity ends.
    """
    last = crossings(points, pdr_limit).pivot_table(
        index=["study", "cores", "threads"], columns="mode", values="last_cps"
    )
    both = last.dropna() if set(MODES) <= set(last.columns) else last.iloc[:0]
    if both.empty:
        text = "The papers print no load that both modes carry"
    else:
        more = int((both["enhanced"] > both["baseline"]).sum())
        text = (
            f"By the papers' tables enhanced mode carries more calls per second than baseline mode in {more} of "
            f"{len(both)} settings before {100 * pdr_limit:g}\u00a0% of messages are dropped"
        )
    agreeing = int(checks["agrees"].sum())
    return Answer(
        f"{text}; {agreeing} of {plural(len(checks), 'check')} of the printed numbers hold."
    )


def measurements(points: pd.DataFrame, study: str, table: str) -> Table:
    """Show a table of measurements in the paper's form: parameters down, threads × cps across.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    study, table
        Which one.
    """
    among = points[(points["study"] == study) & (points["table"] == table)]
    columns = list(among[["threads", "cps"]].drop_duplicates().itertuples(index=False))
    printed = {(r["threads"], r["cps"], r["metric"]): r["printed"] for r in _rows(among)}
    metrics = [metric for metric in METRICS if metric in set(among["metric"])]
    rows = [
        (METRICS[metric], *(printed.get((*column, metric), "") for column in columns))
        for metric in metrics
    ]
    groups = [("Server threads", 1)]
    for threads in dict.fromkeys(threads for threads, _ in columns):
        loads = sum(1 for count, _ in columns if count == threads)
        groups.append((f"{threads} threads", loads))
    elsewhere = set(points.loc[points["study"] == study, "metric"]) - set(metrics)
    missing = [METRICS[metric] for metric in METRICS if metric in elsewhere]
    left = f" A row that the scan does not show: {', '.join(missing)}." if missing else ""
    first = among.iloc[0] if len(among) else None
    what = (
        f"{first['mode']} mode, {plural(first['cores'], 'core')}"
        if first is not None
        else "nothing"
    )
    return Table(
        identity=f"table-{study}-{table}",
        groups=tuple(groups),
        header=("Load (cps)", *(str(cps) for _, cps in columns)),
        rows=tuple(rows),
        none="the paper has no such table",
        caption=f"{PAPERS[study]}, Table {table}: {what}.{left}",
        provenance="",
    )


def comparison(compared: pd.DataFrame, study: str, table: str) -> Table:
    """Show a table of the modes side by side, in the paper's form.

    Parameters
    ----------
    compared
        As `sipsched.analysis.papers.load_comparison` returns it.
    study, table
        Which one.
    """
    among = compared[(compared["study"] == study) & (compared["table"] == table)]
    rows = []
    for row in _rows(among):
        pdr = (row[f"pdr_{name}_printed"] for name in (*MODES, "lower_pct"))
        names = (*(f"{mode}_us" for mode in MODES), "lower_pct")
        k_rcv = (row[f"k_rcv_{name}_printed"] for name in names)
        rows.append((f"{row['threads']} threads, {row['cps']} cps", *pdr, *k_rcv))
    cores = plural(among["cores"].iloc[0], "core") if len(among) else "nothing"
    return Table(
        identity=f"table-{study}-{table}",
        groups=(("", 1), ("PDR", 3), ("K_rcv (µs)", 3)),
        header=("Threads and load", *(*MODES, "lower by (%)") * 2),
        rows=tuple(rows),
        none="the paper has no such table",
        caption=f"{PAPERS[study]}, Table {table}: baseline and enhanced mode at the same load, "
        f"{cores}.",
        provenance="",
    )


def loads_at_limit(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Table:
    """List, for each system and number of threads, the loads between which PDR passes a limit.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    pdr_limit
        The share of messages dropped at which capacity ends.
    """
    found = crossings(points, pdr_limit)
    rows = []
    for (study, cores, threads), group in found.groupby(["study", "cores", "threads"]):
        by_mode = {row["mode"]: row for row in _rows(group)}
        cells: list[str] = []
        last: dict[str, int] = {}
        for mode in MODES:
            row = by_mode.get(mode)
            for name in ("last_cps", "first_cps"):
                there = row is not None and pd.notna(row[name])
                cells.append(str(row[name]) if row is not None and there else NO_ENTRY)
            if row is not None and pd.notna(row["last_cps"]):
                last[mode] = int(row["last_cps"])
        more = _signed(last["enhanced"] - last["baseline"]) if len(last) == len(MODES) else NO_ENTRY
        place = f"{plural(cores, 'core')}, {threads} threads"
        rows.append((0 if study == "singlecore" else 1, (place, *cells, more)))
    share = f"{100 * pdr_limit:g}\u00a0%"
    return Table(
        identity="table-loads-at-limit",
        groups=(("", 1), *((mode, 2) for mode in MODES), ("", 1)),
        header=("", *(f"last ≤\u00a0{share}", f"first >\u00a0{share}") * 2, "more"),
        rows=tuple(row for _, row in sorted(rows, key=lambda row: row[0])),
        none="no table of measurements",
        caption=f"Loads (cps) between which PDR passes {share}, as printed, and how much more "
        "load enhanced mode carries. One core: the single-core paper, another kernel.",
        provenance="",
    )


def crossing(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Figure:
    """Draw PDR and K_rcv at the two loads between which PDR passes a limit.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    pdr_limit
        The share of messages dropped at which capacity ends.
    """
    found = crossings(points, pdr_limit)
    systems = _systems(found)
    share = f"{100 * pdr_limit:g} %"

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(len(systems), 2, 2.0)
            for axes, (study, cores) in zip(grid, systems, strict=True):
                among = found[(found["study"] == study) & (found["cores"] == cores)]
                for axis, column, scale, label in (
                    (axes[0], "pdr", 100, "PDR (%)"),
                    (axes[1], "k_rcv_us", 1, "K_rcv (µs)"),
                ):
                    _dumbbells(axis, among, column, scale, share)
                    axis.set_ylabel(label)
                    drawn = scale * among[[f"last_{column}", f"first_{column}"]].stack()
                    limit = pd.Series([scale * pdr_limit] if column == "pdr" else [])
                    axis.set_ylim(0, _top(drawn, limit))
                axes[0].axhline(100 * pdr_limit, color=LIMIT, linestyle="--", linewidth=1)
                axes[0].set_title(_system(study, cores), loc="left")
            for axis in grid[-1]:
                axis.set_xlabel("server threads")
            legend(canvas, grid)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(_crossing_words(found, system) for system in systems)
    caption = (
        f"PDR and K_rcv at the last load at or under {share} (open) and at the first load above it "
        "(filled), by server threads and mode. Linear scales from zero, those of K_rcv differ; "
        f"dashed: {share}."
    )
    return Figure(
        identity="figure-crossing",
        svg=svg,
        narrow=narrow,
        alt=f"Published packet drop rate and K_rcv where the drop rate passes {share}. {caption} "
        f"{' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(*found["study"]),
    )


def _dumbbells(axis: Axes, among: pd.DataFrame, column: str, scale: float, share: str) -> None:
    threads = sorted(set(among["threads"]))
    for marker, mode in zip(MARKERS, MODES, strict=False):
        rows = among[among["mode"] == mode]
        at = [threads.index(count) + DODGE[mode] for count in rows["threads"]]
        last, first = (scale * rows[f"{name}_{column}"] for name in ("last", "first"))
        color = COLORS[mode]
        axis.vlines(at, last, first, color=color, linewidth=1)
        for values, face, sign in ((last, PAPER, "≤"), (first, color, ">")):
            axis.plot(
                at,
                values,
                linestyle="none",
                marker=marker,
                markersize=5,
                color=color,
                markerfacecolor=face,
                label=f"{mode} {sign} {share}",
            )
    _categories(axis, threads)


def _crossing_words(found: pd.DataFrame, system: tuple[str, int]) -> str:
    study, cores = system
    among = found[(found["study"] == study) & (found["cores"] == cores)]
    parts = []
    for mode in MODES:
        rows = among[among["mode"] == mode].dropna(subset="last_cps")
        if rows.empty:
            parts.append(f"{mode}: no load at or under the limit")
            continue
        loads, times = rows["last_cps"], rows["last_k_rcv_us"]
        parts.append(
            f"{mode}: {loads.min()} to {loads.max()} cps, K_rcv {number(times.min())} to "
            f"{number(times.max())} µs"
        )
    last = among.pivot(index="threads", columns="mode", values="last_cps").reindex(columns=[*MODES])
    both = last.dropna()
    higher = int((both["enhanced"] > both["baseline"]).sum())
    return (
        f"{_system(study, cores)}, last loads at or under the limit by threads: "
        f"{'; '.join(parts)}. Higher under enhanced for {higher} of {len(both)} numbers of threads."
    )


def capacity(points: pd.DataFrame, predicted: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Figure:
    """Draw the last load at or under a limit by threads, cores and mode, and what the model says.

    Parameters
    ----------
    points, predicted
        As `sipsched.analysis.papers.load_points` and `load_capacity` return them.
    pdr_limit
        The share of messages dropped at which capacity ends.
    """
    found = crossings(points, pdr_limit)
    systems = _systems(found)
    threads = sorted(set(found["threads"]))
    share = f"{100 * pdr_limit:g} %"

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(1, len(MODES), 3.2, shared=("", "all"))
            for axis, mode in zip(grid[0], MODES, strict=True):
                for i, (study, cores) in enumerate(systems):
                    rows = found[(found["study"] == study) & (found["cores"] == cores)]
                    rows = (
                        rows[rows["mode"] == mode].dropna(subset="last_cps").sort_values("threads")
                    )
                    axis.plot(
                        [threads.index(count) for count in rows["threads"]],
                        rows["last_cps"].astype(float),
                        marker=MARKERS[i],
                        markersize=5,
                        color=SERIES[i],
                        label=plural(cores, "core"),
                    )
                if mode == "enhanced":
                    _stars(axis, predicted, systems, threads)
                axis.set_title(mode, loc="left")
                axis.set_xlabel("server threads")
                _categories(axis, threads)
            grid[0][0].set_ylim(0, _top(found["last_cps"], predicted["capacity_cps"]))
            grid[0][0].set_ylabel(f"last load with PDR ≤ {share} (cps)")
            grid[0][0].yaxis.set_major_formatter(FuncFormatter(grouped))
            legend(canvas, grid)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = tuple(_capacity_words(found, mode) for mode in MODES)
    caption = (
        f"Capacity, the last load at or under {share} of dropped messages, by server threads and "
        "cores; stars: what the capacity model (section V) predicts, two of one place side by "
        "side. One core: the single-core paper, another kernel."
    )
    return Figure(
        identity="figure-capacity",
        svg=svg,
        narrow=narrow,
        alt=f"Published capacity. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(*found["study"]),
    )


def _stars(
    axis: Axes, predicted: pd.DataFrame, systems: Sequence[tuple[str, int]], threads: Sequence[int]
) -> None:
    """Mark what the model predicts; predictions of one place stand side by side."""
    taken: list[tuple[int, int]] = []
    for row in _rows(predicted):
        system, place = (row["study"], row["cores"]), (row["threads"], row["capacity_cps"])
        if system not in systems or row["threads"] not in threads:
            continue
        axis.plot(
            threads.index(row["threads"]) + 0.25 * taken.count(place),
            row["capacity_cps"],
            linestyle="none",
            marker="*",
            markersize=11,
            markerfacecolor=PAPER,
            color=SERIES[systems.index(system)],
            label="model",
        )
        taken.append(place)


def _capacity_words(found: pd.DataFrame, mode: str) -> str:
    parts = []
    for study, cores in _systems(found):
        rows = found[(found["study"] == study) & (found["cores"] == cores)]
        rows = rows[rows["mode"] == mode].dropna(subset="last_cps")
        if rows.empty:
            parts.append(f"{plural(cores, 'core')} nothing at or under the limit")
            continue
        most = rows[rows["last_cps"] == rows["last_cps"].max()]
        counts = " or ".join(map(str, most["threads"]))
        parts.append(
            f"{plural(cores, 'core')} {most['last_cps'].iloc[0]} cps with {counts} threads"
        )
    return f"Most under {mode}: {'; '.join(parts)}."


def capacity_model(
    points: pd.DataFrame, predicted: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> Table:
    """Set the capacities that the model predicts beside those of the tables.

    Parameters
    ----------
    points, predicted
        As `sipsched.analysis.papers.load_points` and `load_capacity` return them.
    pdr_limit
        The share of messages dropped at which capacity ends.
    """
    rows = []
    for row in _rows(predictions(points, predicted, pdr_limit)):
        cells = [row[name] for name in ("cores", "processors", "threads", "capacity_cps")]
        if pd.isna(row["best_cps"]):
            rest = (NO_ENTRY,) * 3
        else:
            difference = (
                f"{_signed(row['difference_cps'])} ({_signed(row['difference_pct'], 1)}\u00a0%)"
            )
            rest = (str(row["best_threads"]), str(row["best_cps"]), difference)
        rows.append((*map(str, cells), *rest))
    return Table(
        identity="table-capacity",
        groups=(("system", 1), ("", 1), ("model", 2), ("tables, enhanced mode", 2), ("", 1)),
        header=(
            *("cores", "processors", "threads T", "capacity C (cps)"),
            *("best threads", "capacity (cps)", "model − tables (cps)"),
        ),
        rows=tuple(rows),
        none="the paper predicts nothing",
        caption="Multi-core paper, section V: C(p,c) = T(p,c) × C(1,1), with C(1,1) = "
        f"{', '.join(map(str, predicted['single_core_cps'].unique()))} cps, beside the last load "
        f"at or under {100 * pdr_limit:g} % in Tables II, V and VIII. The paper prints the first "
        "four columns; the others follow from the tables.",
        provenance="",
    )


def audit_summary(checks: pd.DataFrame) -> Table:
    """Count, for each rule, the checks that hold, and those that do not.

    Parameters
    ----------
    checks
        As `sipsched.analysis.papers.audit` returns it.
    """
    cut = checks["remark"].str.contains(CUT_OFF)
    rows = []
    for rule, among in checks.groupby("rule", sort=False):
        off = ~among["agrees"]
        counts = (len(among), (~off).sum(), (off & cut).sum(), (off & ~cut).sum())
        rows.append((str(rule), *map(str, counts)))
    return Table(
        identity="table-audit",
        header=("rule", "checks", "hold", "last digit cut off", "disagree"),
        rows=tuple(rows),
        none="nothing was checked",
        caption="What has to hold between printed numbers. An equality holds to half a unit of the "
        "last printed digit; cut off: it would, had the rest been dropped instead of rounded.",
        provenance="",
    )


def audit_words(checks: pd.DataFrame) -> Words:
    """Say in words what disagrees, digits that are merely cut off aside.

    Parameters
    ----------
    checks
        As `sipsched.analysis.papers.audit` returns it.
    """
    off = checks[~checks["agrees"]]
    cut = off["remark"].str.contains(CUT_OFF)
    lines = [
        f"{len(checks)} checks: {len(checks) - len(off)} hold; in {int(cut.sum())} the last digit "
        f"is cut off instead of rounded; {int((~cut).sum())} disagree."
    ]
    for row in _rows(off[~cut]):
        remark = f" ({row['remark']})" if row["remark"] else ""
        value = _digits(row["recomputed"], row["printed"])
        lines.append(
            f"{_place(row)}, {row['cell']}: printed {row['printed']}, expected "
            f"{RELATIONS[row['relation']]}{value}{remark}. Rule: {row['rule']}."
        )
    return Words(tuple(lines))


def audit_disagreements(checks: pd.DataFrame) -> Table:
    """List every check that does not hold, with what is printed and what should be.

    Parameters
    ----------
    checks
        As `sipsched.analysis.papers.audit` returns it.
    """
    rows = [
        (
            _place(row),
            row["cell"],
            row["printed"],
            f"{row['relation']} {_digits(row['recomputed'], row['printed'])}",
            _digits(row["difference"], row["printed"], signed=True),
            row["rule"],
            row["remark"],
        )
        for row in _rows(checks[~checks["agrees"]])
    ]
    return Table(
        identity="table-disagreements",
        header=("where", "cell", "printed", "expected", "difference", "rule", "remark"),
        rows=tuple(rows),
        none="none: every check holds",
        caption="Every check that does not hold; the numbers are held as printed.",
        provenance="",
    )


def messages_per_call(points: pd.DataFrame) -> Words:
    """Say how many messages a call the papers count, where a call has six.

    Parameters
    ----------
    points
        As `sipsched.analysis.papers.load_points` returns it.
    """
    lines = []
    totals = points[points["metric"] == "total_messages"]
    for study, rows in totals.groupby("study", sort=False):
        share = rows["value"].astype(float) / CALLS[str(study)]
        lines.append(
            f"{PAPERS[str(study)]}: total messages are {share.min():.1f} to {share.max():.1f} times the "
            f"{grouped(CALLS[str(study)])} calls that each experiment started, in {len(share)} columns; a "
            f"call has {MESSAGES_PER_CALL}. The paper does not say which messages it counts."
        )
    return Words(tuple(lines))


def errors_not_shown(bounds: pd.DataFrame) -> Table:
    """Show between which bounds the RCV errors are that no scan shows.

    Parameters
    ----------
    bounds
        As `sipsched.analysis.papers.errors_not_shown` returns it.
    """
    rows = [
        (
            *(f"Table {row['table']}", str(row["threads"]), str(row["cps"])),
            *(str(row["at_least"]), str(row["at_most"])),
        )
        for row in _rows(bounds[bounds["study"] == "multicore"])
    ]
    return Table(
        identity="table-errors-not-shown",
        header=("where", "threads", "cps", "at least", "at most"),
        rows=tuple(rows),
        none="none: every table of measurements has its RCV errors",
        caption="RCV errors that the scan does not show: PDR × total messages, where PDR may be "
        "rounded or cut off.",
        provenance="",
    )


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    yield from frame.to_dict("records")


def _systems(found: pd.DataFrame) -> list[tuple[str, int]]:
    """List (study, cores), fewest cores first."""
    pairs = {(str(row["study"]), int(row["cores"])) for row in _rows(found)}
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def _system(study: str, cores: int) -> str:
    return f"{plural(cores, 'core')} ({PAPERS[study].lower()})"


def _categories(axis: Axes, threads: Sequence[int]) -> None:
    axis.xaxis.set_major_locator(FixedLocator(list(range(len(threads)))))
    axis.set_xticklabels([str(count) for count in threads])
    axis.set_xlim(-0.5, len(threads) - 0.5)


def _top(*values: pd.Series) -> float:
    """Find the upper end of an axis that starts at zero; 1 without a value."""
    numbers = pd.concat([each.astype("float64") for each in values]).dropna()
    return HEADROOM * float(numbers.max()) if len(numbers) else 1.0


def _place(row: dict[str, Any]) -> str:
    table = row["table"]
    where = table if table.startswith("section") else f"Table\u00a0{table}"
    return f"{PAPERS[row['study']]}, {where}"


def _signed(value: float, decimals: int = 0) -> str:
    """Write a difference with its sign, a real minus, and zero without."""
    return f"{value:+.{decimals}f}".replace("-", "−") if value else "0"


def _digits(value: float, printed: str, signed: bool = False) -> str:
    """Write a number with at most two digits more than are printed."""
    decimals = len(printed.partition(".")[2]) + 2
    text = _signed(value, decimals) if signed else f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
