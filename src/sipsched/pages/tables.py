"""The tables and sentences of a report that are not figures."""

import hashlib
import html
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.precision import Known, level_of_a_look, look
from sipsched.analysis.run_length import (
    FULL_PDR,
    LEAST_PERIODS,
    LONGEST_SHARE,
    BusyPeriods,
    busy_periods,
)
from sipsched.analysis.run_table import (
    Buffers,
    attempts_of,
    counted,
    facets,
    findings_of,
    iterate_runs,
    provenance,
    receive_buffers,
)
from sipsched.analysis.statistics import (
    FEWEST,
    PDR_LIMIT,
    Values,
    typical_drop_rates,
    typical_interval,
)
from sipsched.pages.numbers import NO_ENTRY, in_us, told
from sipsched.pages.parts import Cell, Several, Table, Words
from sipsched.plan.config import Precision
from sipsched.records.histogram import RELATIVE_ERROR
from sipsched.records.summary import ALL, INVALID, MEASURED, MISSING, pooled_quantile
from sipsched.validity.certificate import WINDOWS_MS
from sipsched.validity.verdict import in_words
from sipsched.versions import code_version
from sipsched.words import number, plural

MAX_RUNS_LISTED = 50
PROBE_MODES = {
    "exact": "By fentry/fexit: all six stamps are measured.",
    "tracepoint": "Tracepoints only: t_sockq is a lower bound (the latest instant before which the "
    "worker cannot have taken the message), so K_sockq is at least and K_copy at most what is "
    "shown, about 1 µs apart; K_rcv is exact.",
    "stream": "SIP over TCP, tracepoints only: all six stamps are measured, of the segment or the read "
    "with a message's last byte.",
    "preload": "No eBPF: only t_arr, t_sip_in, t_sip_out and the drop counter; t_sockq and the "
    "parts of K_rcv are not known.",
    "off": "No probe: counters only.",
    "simulated": "No probe: the instants are those of a model, and nothing was measured.",
}
POINT_HEADER = ("SUT", "mode", "cores", "threads", "cps")
LONG_FACTS = ("files", "lscpu")
"""What a record says of a host at length; a reader of the report is served by the rest."""
PACKAGES = (
    "numpy",
    "pandas",
    "xarray",
    "netCDF4",
    "matplotlib",
    "papermill",
    "IPython",
    "nbconvert",
)


@dataclass(frozen=True)
class Heading:
    """Fidelity first, then testbed, kind and kernel; Jupyter shows it by itself."""

    fidelity: str
    testbed: str
    description: str

    def _repr_html_(self) -> str:
        text = html.escape(self.description)
        return (
            f"<p>{html.escape(self.fidelity.rstrip('.'))}.</p>"
            f'<p class="testbed">{html.escape(self.testbed)} {text}</p>'
        )


def heading(summary: xr.Dataset, study: str) -> Heading:
    """Say what the numbers of this report are worth, and where they come from."""
    attrs = summary.attrs
    return Heading(
        fidelity=attrs["fidelity"],
        testbed=f"Study {study} on testbed {attrs['testbed']}, kind {attrs['kind']}, "
        f"kernel {attrs['kernels']}.",
        description=attrs["testbed_description"],
    )


def conditions_of_study(
    summary: xr.Dataset, study: str, labelled: xr.Dataset | None = None
) -> Several:
    """Say at the end of a page what its numbers rest on: testbed, coverage, probe, arrivals, hosts.

    Parameters
    ----------
    summary
        Combined summary of the study on one testbed.
    study
        Its name.
    labelled
        The same with the modes as they were on the kernel; None where they have no other names.
    """
    shown = summary if labelled is None else labelled
    return Several(
        (
            heading(summary, study),
            coverage(summary),
            conditions(shown),
            suspicions(shown),
            arrivals(shown),
            accounts(shown),
            attempts(shown),
            *filter(None, (repetitions(shown),)),
            runs_not_counted(shown),
            columns_missing(shown),
            hosts(shown),
        )
    )


def points(summary: xr.Dataset, limit: float = PDR_LIMIT) -> Table:
    """List every point with its numbers: the typical run with its 95 % interval."""
    by_name = {
        "k_rcv": (summary["k_rcv_mean"].sel(message_type=ALL), "µs"),
        "p50": (summary["k_rcv_p50"].sel(message_type=ALL), "µs"),
        "p99": (summary["k_rcv_p99"].sel(message_type=ALL), "µs"),
        "t_sip": (summary["t_sip_mean"].sel(message_type=ALL), "µs"),
        "off": (
            100 * (summary["t_sip_off_mean"] / summary["t_sip_mean"]).sel(message_type=ALL),
            "%",
        ),
    }
    slowest = pooled_quantile(summary, "total", 0.999)
    rows: list[tuple[Cell, ...]] = []
    runs = counted(summary)
    for sut, mode, cores in facets(summary):
        for threads in summary["threads"].to_numpy():
            for cps in summary["cps"].to_numpy():
                at: dict[Any, Any] = {
                    "sut": sut,
                    "mode": mode,
                    "cores": cores,
                    "threads": threads,
                    "cps": cps,
                }
                n = int((summary["status"].sel(at) == MEASURED).sum())
                if not n:
                    continue
                rates = 100 * summary["pdr"].sel(at).to_numpy()[None]
                pdr = typical_drop_rates(rates, 100 * limit, whole=100.0).at(0)
                lost = 100 * summary["call_loss"].sel(at).to_numpy()[None]
                calls = typical_drop_rates(lost, 100 * limit, whole=100.0).at(0)
                cells = [
                    told(pdr, "%", n),
                    told(calls, "%", n),
                    *(
                        told(typical_interval(values.sel(at).to_numpy()), unit, n)
                        for values, unit in by_name.values()
                    ),
                ]
                pooled = in_us(float(slowest.sel(at)))
                busy = _busy(busy_periods(runs, at))
                place = (sut, mode, *map(str, (cores, threads, cps, n)))
                rows.append((*place, *cells, pooled, busy))
    return Table(
        identity="table-points",
        header=(
            *("SUT", "mode", "cores", "threads", "cps", "runs", "PDR (%)", "calls lost (%)"),
            *("mean", "p50", "p99", "mean", "off CPU (%)", "p99.9", "busy periods"),
        ),
        groups=(("", 8), ("K_rcv", 3), ("T_sip", 2), ("K_rcv + T_sip", 1), ("", 1)),
        places=4,
        rows=tuple(rows),
        none="no run was measured",
        caption="Every measured point: the typical run with its 95 % interval; of fewer than "
        f"{FEWEST} runs, between which they lie. Calls lost: failed, or set up late. p99.9: of the messages of all its "
        f"runs together, to {100 * RELATIVE_ERROR:g} %; not there where a run has no histogram. Busy periods: those in "
        "which the SPS always holds a message; how many of equal length the run with the fewest amounts "
        "to, and the longest as a share of its run. Too short, at a PDR up to "
        f"{100 * FULL_PDR:g} %: fewer than {LEAST_PERIODS}, or one longer than {100 * LONGEST_SHARE:g} % of the run.",
        provenance=provenance(summary),
    )


def _busy(found: BusyPeriods | None) -> str:
    if found is None:
        return NO_ENTRY
    text = f"{number(found.least)}, longest {100 * found.longest_share:.2g}\u00a0%"
    return f"{text}: {found.short} of {found.runs} too short" if found.short else text


def runs_not_counted(summary: xr.Dataset) -> Table:
    """List the planned runs that are missing or do not count, and why."""
    rows = []
    for key, status in iterate_runs(summary):
        if status == MEASURED:
            continue
        why = "no record in raw/"
        if status == INVALID:
            why = in_words(findings_of(summary["findings"].sel(key).item()))
        rows.append((*(str(value) for value in key.values()), status, why))
    return Table(
        identity="table-runs-not-counted",
        header=("SUT", "mode", "cores", "threads", "cps", "rep", "status", "why"),
        places=4,
        rows=tuple(rows),
        none="none: every planned run was measured and counts",
        caption="Planned runs that no average contains.",
        provenance=provenance(summary),
        shown=MAX_RUNS_LISTED,
    )


def arrivals(summary: xr.Dataset) -> Table:
    """Show for each point whether calls arrived on schedule: the certificates of its runs."""
    columns = {
        "KS distance": _largest(summary["ks_distance"]),
        "KS p-value": _smallest(summary["ks_p_value"]),
        "CV": _largest(summary["cv"]),
        **{
            f"{window} ms": _largest(summary[f"variance_to_mean_{window}ms"])
            for window in WINDOWS_MS
        },
        **{which: _largest(summary[f"lateness_{which}_us"]) for which in ("p50", "p99", "max")},
        "generator CPU (%)": _largest(100 * summary["generator_cpu_share"]),
    }
    return Table(
        identity="table-arrivals",
        header=(*POINT_HEADER, *columns, "verdicts\u00a0of\u00a0runs"),
        places=4,
        groups=(
            *(("", len(POINT_HEADER) + 3), ("variance / mean in windows of", len(WINDOWS_MS))),
            *(("lateness (µs)", 3), ("", 2)),
        ),
        rows=_rows_per_point(summary, columns),
        none="no run was measured",
        caption="Arrival certificates: of each point's runs the worst value, and their verdicts.",
        provenance=provenance(summary),
    )


def accounts(summary: xr.Dataset) -> Table:
    """Show for each point whether every datagram is accounted for."""
    names = {
        "calls that did not complete": "calls_failed",
        "calls set up late": "calls_late",
        "drops at UAC and UAS": "generator_drops",
        "link drops": "link_drops",
        "records the probe lost": "lost_records",
        "not accounted for": "ledger_residual",
        "requests sent again by the UAC": "requests_again_uac",
        "of these at the SPS": "requests_again_sps",
        "stolen time (s)": "steal_s",
    }
    columns = {title: _largest(summary[name]) for title, name in names.items()}
    return Table(
        identity="table-accounts",
        header=(*POINT_HEADER, *columns, "verdicts\u00a0of\u00a0runs"),
        places=4,
        rows=_rows_per_point(summary, columns),
        none="no run was measured",
        caption="Drop ledgers: of each point's runs the largest value, and their verdicts. Requests "
        "that reached the SPS again include those that its full socket refused.",
        provenance=provenance(summary),
    )


def _largest(values: xr.DataArray) -> xr.DataArray:
    return values.max("rep")


def _smallest(values: xr.DataArray) -> xr.DataArray:
    return values.min("rep")


def _rows_per_point(
    summary: xr.Dataset, columns: Mapping[str, xr.DataArray]
) -> tuple[tuple[str, ...], ...]:
    """Give a row for each point that has runs: the point, a cell a column, and the verdicts."""
    grades: dict[tuple[Any, ...], list[str]] = {}
    for key, status in iterate_runs(summary):
        if status != MISSING:
            point = tuple(value for name, value in key.items() if name != "rep")
            grades.setdefault(point, []).append(str(summary["grade"].sel(key).item()))
    rows = []
    for point, found in grades.items():
        place = dict(zip(("sut", "mode", "cores", "threads", "cps"), point, strict=True))
        values = [float(column.sel(place)) for column in columns.values()]
        cells = [NO_ENTRY if np.isnan(value) else number(value) for value in values]
        counted = ", ".join(f"{found.count(grade)}\u00a0{grade}" for grade in dict.fromkeys(found))
        rows.append((*map(str, point), *cells, counted))
    return tuple(rows)


def attempts(summary: xr.Dataset) -> Table:
    """List the attempts that were kept apart and measured again, and why."""
    rows = [(str(attempt.run), str(attempt)) for attempt in attempts_of(summary)]
    return Table(
        identity="table-attempts",
        header=("run", "why it does not count"),
        rows=tuple(rows),
        none="none: every attempt at a run counted",
        caption=f"Attempts that do not count, kept beside the record: {len(rows)}.",
        provenance=provenance(summary),
        shown=MAX_RUNS_LISTED,
    )


def suspicions(summary: xr.Dataset) -> Words:
    """Name the runs that count and are suspect, and say why."""
    lines = []
    for key, status in iterate_runs(summary):
        if status == MEASURED and str(summary["grade"].sel(key).item()) == "suspect":
            name = ", ".join(f"{dim} {value}" for dim, value in key.items())
            why = in_words(findings_of(summary["findings"].sel(key).item()))
            lines.append(f"Suspect: {name}: {why}.")
    return Words(tuple(lines or ["No run that counts is suspect."]))


def coverage(summary: xr.Dataset) -> Words:
    """Say how many runs were planned, measured, invalid, missing; and what the probe was."""
    words = [status for _, status in iterate_runs(summary)]
    lines = [
        f"{plural(len(words), 'run')} planned: {words.count(MEASURED)} measured, "
        f"{words.count(INVALID)} invalid, {words.count(MISSING)} missing."
    ]
    modes, counts = np.unique(summary["probe_mode"].to_numpy().astype(str), return_counts=True)
    for mode, count in zip(modes, counts, strict=True):
        if mode:
            lines.append(
                f"Probe mode {mode} in {plural(count, 'run')}. {PROBE_MODES.get(mode, '')}"
            )
    for reason in json.loads(summary.attrs["probe_mode_reasons"]):
        lines.append(f"Why this probe mode: {reason}")
    lost = float(np.nansum(summary["lost_records"].to_numpy()))
    lines.append(f"Records that the probe lost, over all runs: {lost:.0f}.")
    return Words(tuple(lines))


def columns_missing(summary: xr.Dataset) -> Table:
    """List the columns that some runs do not have, and why."""
    rows = [
        (entry["column"], str(entry["runs"]), entry["reason"])
        for entry in json.loads(summary.attrs["columns_missing"])
    ]
    return Table(
        identity="table-columns-missing",
        header=("column", "runs", "why"),
        rows=tuple(rows),
        none="none: every column is there in every run",
        caption="Columns of messages.nc that are missing.",
        provenance=provenance(summary),
    )


def hosts(summary: xr.Dataset) -> Table:
    """Describe the hosts and settings of the testbed, as the first run recorded them."""
    facts: Mapping[str, Mapping[str, Any]] = json.loads(summary.attrs["hosts"])
    roles = [role for role in ("uac", "sps", "uas") if role in facts]
    keys = dict.fromkeys(key for role in roles for key in facts[role] if key not in LONG_FACTS)
    rows = [(key, *(_text(facts[role].get(key)) for role in roles)) for key in keys]
    for title in ("settings", "load"):
        values: Mapping[str, Any] = json.loads(summary.attrs[title])
        for key, value in values.items():
            if title == "load" and key in ("seed", "calls"):
                continue
            cells = {"settings": "sps", "load": "uac"}
            rows.append(
                (
                    f"{title}: {key}",
                    *(_text(value) if role == cells[title] else "" for role in roles),
                )
            )
    return Table(
        identity="table-hosts",
        header=("", *roles) if roles else ("",),
        rows=tuple(rows),
        none="no run was measured: the hosts are not known",
        caption="Hosts, settings and load, as the first run recorded them.",
        provenance=provenance(summary),
    )


def conditions(summary: xr.Dataset) -> Words:
    """Say what varied between runs that should not: kernel, buffer, stolen time."""
    runs = summary["so_rcvbuf"].to_dataframe().reset_index()
    buffers = receive_buffers(runs, "sut", "mode")
    return conditions_of(summary.attrs["kernels"], buffers, summary["steal_s"].to_numpy().ravel())


def conditions_of(kernels: str, buffers: Buffers, steal: Values) -> Words:
    """Say the same of runs from anywhere.

    Parameters
    ----------
    kernels
        Their names.
    buffers
        Their receive buffers, by (sut, mode).
    steal
        Shape (run,): time stolen in s; NaN where not recorded.
    """
    steal = steal[~np.isnan(steal)]
    sizes = ", ".join(map(str, buffers.sizes))
    lines = [
        f"Kernels of the SPS: {kernels}.",
        f"Effective SO_RCVBUF: {sizes} bytes." if sizes else "Effective SO_RCVBUF: not recorded.",
        *buffers_differ(buffers),
    ]
    if steal.size:
        lines.append(
            f"Time stolen from the SPS's CPUs in a run: median {np.median(steal):.2f} s, "
            f"at most {steal.max():.2f} s, n = {steal.size}."
        )
    return Words(tuple(lines))


def buffers_differ(buffers: Buffers, name: Callable[..., str] = "{}, {}".format) -> list[str]:
    """Say that a comparison is one across receive buffers of different size; nothing if all are alike.

    Parameters
    ----------
    buffers
        Of the runs that are compared.
    name
        Makes the name of a group from what tells it apart.
    """
    if not buffers.differ:
        return []
    told = "; ".join(
        f"{size} bytes: {' | '.join(name(*group) for group in buffers.with_size(size))}"
        for size in buffers.sizes
    )
    return [
        f"Receive buffers differ. {told}. PDR and capacity depend on the size: they are not "
        "comparable between runs with different ones."
    ]


def _text(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def versions(*data: Path) -> Words:
    """Name the versions that made this page, and the hashes of its data."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return Words(
        (
            f"sipsched {code_version()}; Python {platform.python_version()}, {packages}.",
            *(
                f"Data: {'/'.join(path.parts[-3:])}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}."
                for path in data
            ),
        ),
        css_class="versions",
    )


def repetitions(data: xr.Dataset) -> Table | None:
    """Show what the repetitions of a study reached; None where their number was fixed."""
    if "precision" not in data.attrs:
        return None
    precision = Precision(**json.loads(data.attrs["precision"]))
    found = look(data, precision)
    reached = sum(known.half_width <= precision.relative for known in found)
    looks = len(precision.looks)
    return Table(
        identity="table-precision",
        header=(
            "SUT",
            "mode",
            "cores",
            "threads",
            "cps",
            precision.of,
            "half-width (%)",
            "reached",
        ),
        rows=tuple(_known_row(known, precision) for known in found),
        none="nothing was planned",
        caption=f"Runs were added until the interval of {precision.of} was within {100 * precision.relative:g} % of "
        f"it on either side, {precision.at_least} to {plural(precision.at_most, 'run')} each; reached in {reached} of "
        f"{len(found)}. It is looked at {plural(looks, 'time')} at most, and each look's interval has "
        f"{100 * level_of_a_look(precision):.3g} %, so that the one stopped at holds at 95 %. Other intervals "
        "of this page are made as if the number of runs had been fixed.",
        provenance=provenance(data),
    )


def _known_row(known: Known, precision: Precision) -> tuple[Cell, ...]:
    wide = known.half_width
    if wide <= precision.relative:
        word = "yes"
    elif known.interval.n >= precision.at_most:
        word = f"no, with the {precision.at_most} runs that there may be"
    else:
        word = "not yet"
    return (
        *(known.sut, known.mode, *map(str, known.group)),
        told(known.interval, "µs"),
        number(100 * wide) if np.isfinite(wide) else "no interval",
        word,
    )
