"""The page about the numbers printed in two papers. No number on this page was measured in this project.

The tables `points`, `compared`, `predicted` and `checks` come from the functions `load_points`, `load_comparison`,
`load_capacity` and `load_audit` of `sipsched.analysis.papers`. `pdr_limit` is the share of dropped messages at which
capacity ends.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.papers import (
    CALLS,
    CITATIONS,
    CUT_OFF,
    MESSAGES_PER_CALL,
    METRICS,
    MODES,
    NOT_MEASURED,
    PAPERS,
    RECOVERED,
    crossings,
    predictions,
    provenance,
)
from sipsched.pages.drawing import PAPER
from sipsched.pages.numbers import NO_ENTRY
from sipsched.pages.parts import Answer, Figure, Heading, Table, Words
from sipsched.pages.plots import (
    categories,
    draw_line,
    from_zero,
    limit_line,
    look,
    mode_look,
    panels,
)
from sipsched.words import grouped, number, plural

DODGE = {"baseline": -0.14, "enhanced": 0.14}
"""Horizontal shift of each mode's points, as a share of the distance between two labels of the x axis."""
QUANTITIES = (("pdr", 100, "PDR (%)"), ("k_rcv_us", 1, "K_rcv (µs)"))
"""The quantities that the figure shows: column of the table, factor to the shown unit, and axis label."""


def heading(points: pd.DataFrame) -> Heading:
    """Return the heading of the page: the papers that published the numbers, and their hardware."""
    papers = [study for study in CITATIONS if study in set(points["study"])]
    return Heading(
        fidelity=f"{NOT_MEASURED}: transcribed from two papers, as printed.",
        testbed="; ".join(f"{PAPERS[study]}: {CITATIONS[study]}" for study in papers) + ".",
        description="The papers measured OpenSIPS on Linux 3.2.51 and 2.6.32, with Intel Xeon E5540. Each column of "
        "a table is the average of thirty experiments.",
    )


def answer(points: pd.DataFrame, checks: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Answer:
    """Return sentences about the effect of enhanced mode in the papers, and about checks of the printed numbers."""
    last = crossings(points, pdr_limit).pivot_table(
        index=["study", "cores", "threads"], columns="mode", values="last_cps"
    )
    both = last.dropna() if set(MODES) <= set(last.columns) else last.iloc[:0]
    if both.empty:
        text = "The papers print no setting in which both modes handle a load"
    else:
        more = int((both["enhanced"] > both["baseline"]).sum())
        text = (
            f"According to the papers' tables, enhanced mode handles more calls per second than baseline mode in "
            f"{more} of {len(both)} settings before {100 * pdr_limit:g}\u00a0% of messages are dropped"
        )
    return Answer(
        f"{text}. The numbers that the papers print were checked against each other. {audit_words(checks).lines[0]}"
    )


def measurements(points: pd.DataFrame, study: str, table: str) -> Table:
    """Return one of the papers' tables in its original layout: quantities in rows, threads and loads in columns."""
    among = points[(points["study"] == study) & (points["table"] == table)]
    columns = list(among[["threads", "cps"]].drop_duplicates().itertuples(index=False))
    printed = {(r["threads"], r["cps"], r["metric"]): r["printed"] for r in _rows(among)}
    metrics = [metric for metric in METRICS if metric in set(among["metric"])]
    recovered = set(among.loc[among["recovered"], "metric"])
    rows = [
        (
            METRICS[metric] + (" (recovered)" if metric in recovered else ""),
            *(printed.get((*column, metric), "") for column in columns),
        )
        for metric in metrics
    ]
    groups = [("Server threads", 1)]
    for threads in dict.fromkeys(threads for threads, _ in columns):
        loads = sum(1 for count, _ in columns if count == threads)
        groups.append((f"{threads} threads", loads))
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
        caption=f"{PAPERS[study]}, Table {table}: {what}.",
        reading=RECOVERED if recovered else "",
    )


def comparison(compared: pd.DataFrame, study: str, table: str) -> Table:
    """Return one of the papers' tables that compare baseline and enhanced mode, in its original layout."""
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
    )


def loads_at_limit(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Table:
    """Return a table of the papers' two loads around the drop limit, for each system and mode."""
    edges = crossings(points, pdr_limit)
    rows = []
    for (study, cores, threads), group in edges.groupby(["study", "cores", "threads"]):
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
        caption=f"The two printed loads (cps) between which PDR begins to exceed {share}, and the additional load that "
        "enhanced mode handles.",
        reading="The values for one core are from the single-core paper, which used another kernel.",
    )


def crossing(points: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Figure:
    """Return a figure of drop rate (PDR) and waiting time (K_rcv) at the two loads below and above the drop limit."""
    capacities = crossings(points, pdr_limit)
    systems = _systems(capacities)
    share = f"{100 * pdr_limit:g} %"

    def draw(axis: Axes, row: int, column: int) -> None:
        study, cores = systems[row]
        among = capacities[(capacities["study"] == study) & (capacities["cores"] == cores)]
        name, scale, label = QUANTITIES[column]
        _dumbbells(axis, among, name, scale, share)
        axis.set_ylabel(label)
        if not column:
            limit_line(axis, 100 * pdr_limit)
        from_zero(axis)

    return Figure(
        identity="figure-crossing",
        draw=panels(
            [_system(*system) for system in systems],
            ["", ""],
            draw,
            "server threads",
            shared=("", ""),
            height_in=2.0,
            beside=False,
        ),
        caption="Packet drop rate (PDR) and waiting time (K_rcv) at the last printed load with a PDR of at most "
        f"{share} and at the first printed load with a higher PDR, for each mode and number of server threads.",
        seen=tuple(_crossing_words(capacities, system) for system in systems),
        reading=f"A hollow point shows the last load whose PDR is at most {share}. A filled point shows the first load "
        "with a higher PDR. The table of loads at the limit lists these loads. The dashed line marks a PDR of "
        f"{share}. The scales are linear and begin at zero.",
        provenance=provenance(*capacities["study"]),
    )


def _dumbbells(axis: Axes, among: pd.DataFrame, column: str, scale: float, share: str) -> None:
    threads = sorted(set(among["threads"]))
    for mode in MODES:
        style = mode_look(mode)
        rows = among[among["mode"] == mode]
        at = [threads.index(count) + DODGE[mode] for count in rows["threads"]]
        last, first = (scale * rows[f"{name}_{column}"] for name in ("last", "first"))
        axis.vlines(at, last, first, color=style.color, linewidth=1)
        unit = "%" if column == "pdr" else "µs"
        for values, loads, face, sign in (
            (last, rows["last_cps"], PAPER, "≤"),
            (first, rows["first_cps"], style.color, ">"),
        ):
            titles = [
                f"{mode}, {count} threads, {grouped(load)} cps: {number(value)} {unit}"
                for count, load, value in zip(rows["threads"], loads, values, strict=True)
                if pd.notna(value)
            ]
            draw_line(
                *(axis, at, values, style, titles),
                linestyle="none",
                markersize=5,
                markerfacecolor=face,
                label=f"{mode} {sign} {share}",
            )
    categories(axis, threads)


def _crossing_words(capacities: pd.DataFrame, system: tuple[str, int]) -> str:
    study, cores = system
    among = capacities[(capacities["study"] == study) & (capacities["cores"] == cores)]
    parts = []
    for mode in MODES:
        rows = among[among["mode"] == mode].dropna(subset="last_cps")
        if rows.empty:
            parts.append(f"{mode}: no load at which PDR is within its limit")
            continue
        loads, times = rows["last_cps"], rows["last_k_rcv_us"]
        parts.append(
            f"{mode}: {grouped(loads.min())} to {grouped(loads.max())} cps, K_rcv {number(times.min())} to "
            f"{number(times.max())} µs"
        )
    last = among.pivot(index="threads", columns="mode", values="last_cps").reindex(columns=[*MODES])
    both = last.dropna()
    higher = int((both["enhanced"] > both["baseline"]).sum())
    return (
        f"{_system(study, cores)}: over all numbers of threads, the last load at which PDR is within its limit "
        f"ranges as follows: {'; '.join(parts)}. For {higher} of {len(both)} numbers of threads, this load is higher "
        "in enhanced mode."
    )


def capacity(points: pd.DataFrame, predicted: pd.DataFrame, pdr_limit: float = PDR_LIMIT) -> Figure:
    """Return a figure of the papers' capacities against the number of threads, with the papers' predictions."""
    capacities = crossings(points, pdr_limit)
    systems = _systems(capacities)
    threads = sorted(set(capacities["threads"]))
    share = f"{100 * pdr_limit:g} %"

    def draw(axis: Axes, _: int, column: int) -> None:
        mode = MODES[column]
        for i, (study, cores) in enumerate(systems):
            rows = capacities[(capacities["study"] == study) & (capacities["cores"] == cores)]
            rows = rows[rows["mode"] == mode].dropna(subset="last_cps").sort_values("threads")
            name = plural(cores, "core")
            titles = [
                f"{name}, {count} threads: {grouped(cps)} cps"
                for count, cps in zip(rows["threads"], rows["last_cps"], strict=True)
            ]
            at = [threads.index(count) for count in rows["threads"]]
            loads = rows["last_cps"].astype(float)
            draw_line(axis, at, loads, look(i), titles, markersize=5, label=name)
        if mode == "enhanced":
            _stars(axis, predicted, systems, threads)
        categories(axis, threads)
        from_zero(axis)
        axis.set_ylabel("capacity (cps)")
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))

    return Figure(
        identity="figure-capacity",
        draw=panels(
            [""], MODES, draw, "server threads", shared=("", "all"), height_in=3.2, beside=False
        ),
        caption="Published capacity for each number of server threads, number of cores and mode.",
        seen=tuple(_capacity_words(capacities, mode) for mode in MODES),
        reading=f"The capacity is the last printed load at which at most {share} of messages are dropped. Each star "
        "is a prediction of the papers' capacity model (section V). If predictions are equal, their stars are drawn "
        "side by side. The values for one core are from the single-core paper, which used another kernel.",
        provenance=provenance(*capacities["study"]),
    )


def _stars(
    axis: Axes, predicted: pd.DataFrame, systems: Sequence[tuple[str, int]], threads: Sequence[int]
) -> None:
    """Draw the predictions of the papers' model as stars. Equal predictions are drawn side by side."""
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
            color=look(systems.index(system)).color,
            label="model",
        )
        taken.append(place)


def _capacity_words(capacities: pd.DataFrame, mode: str) -> str:
    parts = []
    for study, cores in _systems(capacities):
        rows = capacities[(capacities["study"] == study) & (capacities["cores"] == cores)]
        rows = rows[rows["mode"] == mode].dropna(subset="last_cps")
        if rows.empty:
            parts.append(f"{plural(cores, 'core')}, no load at which PDR is within its limit")
            continue
        most = rows[rows["last_cps"] == rows["last_cps"].max()]
        counts = " or ".join(map(str, most["threads"]))
        parts.append(
            f"{plural(cores, 'core')}, {grouped(most['last_cps'].iloc[0])} cps with {counts} threads"
        )
    return f"The largest capacity in {mode} mode: {'; '.join(parts)}."


def capacity_model(
    points: pd.DataFrame, predicted: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> Table:
    """Return a table of capacities: predicted by the papers' model, and computed from the papers' tables."""
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
        none="the paper has no prediction",
        caption="Capacities that the papers' model predicts, and capacities in the papers' tables.",
        reading="The model is in section V of the multi-core paper: C(p,c) = T(p,c) × C(1,1), with C(1,1) = "
        f"{', '.join(map(grouped, predicted['single_core_cps'].unique()))} cps. The capacity in the tables II, V "
        f"and VIII is the last load whose PDR is at most {100 * pdr_limit:g} %. The first four columns are "
        "printed in the paper. The other columns are computed from the paper's tables.",
    )


def audit_summary(checks: pd.DataFrame) -> Table:
    """Return a table that counts, for each rule, the checks of printed numbers that hold and that fail."""
    cut = checks["remark"].str.contains(CUT_OFF)
    rows = []
    for rule, among in checks.groupby("rule", sort=False):
        off = ~among["agrees"]
        counts = (len(among), (~off).sum(), (off & cut).sum(), (off & ~cut).sum())
        rows.append((str(rule), *map(str, counts)))
    return Table(
        identity="table-audit",
        header=("rule", "checks", "hold", "truncated", "disagree"),
        rows=tuple(rows),
        none="nothing was checked",
        caption="Checks whether the printed numbers agree with each other, by rule.",
        reading="Two numbers count as equal if they differ by at most half a unit of the last printed digit. The "
        'column "truncated" counts checks in which the numbers agree only if the paper truncated the number instead '
        "of rounding it.",
    )


def audit_words(checks: pd.DataFrame) -> Words:
    """Return a sentence that counts the checks of printed numbers that hold and that fail."""
    off = checks[~checks["agrees"]]
    cut = int(off["remark"].str.contains(CUT_OFF).sum())
    return Words(
        (
            f"Of {plural(len(checks), 'check')}, {len(checks) - len(off)} hold. In {plural(cut, 'check')}, the "
            "numbers agree only if the paper truncated a number instead of rounding it. In "
            f"{plural(len(off) - cut, 'check')}, the numbers disagree.",
        )
    )


def audit_disagreements(checks: pd.DataFrame) -> Table:
    """Return a table of the papers' numbers that failed a check, each with the printed and the expected number.

    Numbers that agree after truncation come last.
    """
    cut = checks["remark"].str.contains(CUT_OFF)
    failed = pd.concat([checks[~checks["agrees"] & ~cut], checks[~checks["agrees"] & cut]])
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
        for row in _rows(failed)
    ]
    return Table(
        identity="table-disagreements",
        header=("paper and table", "cell", "printed", "expected", "difference", "rule", "remark"),
        rows=tuple(rows),
        none="none: every check holds",
        caption="Every check that does not hold, with the printed and the expected number. Numbers that agree after "
        "truncation come last.",
    )


def messages_per_call(points: pd.DataFrame) -> Words:
    """Return sentences about the papers' ratio of messages to calls. A call has six SIP messages."""
    lines = []
    totals = points[points["metric"] == "total_messages"]
    for study, rows in totals.groupby("study", sort=False):
        share = rows["value"].astype(float) / CALLS[str(study)]
        lines.append(
            f"{PAPERS[str(study)]}: the printed number of total messages is {share.min():.1f} to {share.max():.1f} "
            f"times the {grouped(CALLS[str(study)])} calls that each experiment started, in {len(share)} columns. A "
            f"call has {MESSAGES_PER_CALL} messages. The paper does not say which messages it counts."
        )
    return Words(tuple(lines))


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    yield from frame.to_dict("records")


def _systems(table: pd.DataFrame) -> list[tuple[str, int]]:
    """Return the systems (study, number of cores) of a table, in ascending order of the cores."""
    pairs = {(str(row["study"]), int(row["cores"])) for row in _rows(table)}
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def _system(study: str, cores: int) -> str:
    return f"{plural(cores, 'core')} ({PAPERS[study].lower()})"


def _place(row: dict[str, Any]) -> str:
    table = row["table"]
    where = table if table.startswith("section") else f"Table\u00a0{table}"
    return f"{PAPERS[row['study']]}, {where}"


def _signed(value: float, decimals: int = 0) -> str:
    """Return a difference as text with its sign and a typographic minus. Zero has no sign."""
    return f"{value:+.{decimals}f}".replace("-", "−") if value else "0"


def _digits(value: float, printed: str, signed: bool = False) -> str:
    """Return a number as text, with at most two more decimals than the number that the paper prints."""
    decimals = len(printed.partition(".")[2]) + 2
    text = _signed(value, decimals) if signed else f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
