"""Functions that return tables and sentences which several pages share."""

import hashlib
import itertools
import json
import platform
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sipsched.analysis.crossing_load import PDR_LIMIT, typical_drop_rates
from sipsched.analysis.intervals import FEWEST, Values, typical_interval
from sipsched.analysis.message_times import pooled_quantile
from sipsched.analysis.precision import Known, level_of_a_look, look
from sipsched.analysis.run_length import (
    FULL_PDR,
    LEAST_PERIODS,
    LONGEST_SHARE,
    BusyPeriods,
    busy_periods,
)
from sipsched.analysis.run_table import (
    CPU_SHARES,
    Buffers,
    Campaign,
    attempts_of,
    counted,
    facets,
    findings_of,
    iterate_runs,
    provenance,
    receive_buffers,
)
from sipsched.pages.numbers import NO_ENTRY, in_us, told
from sipsched.pages.parts import Cell, Folded, Heading, Links, Several, Table, Words
from sipsched.plan.loads import Precision
from sipsched.records.histogram import RELATIVE_ERROR
from sipsched.records.publishable import KERNEL_OPTIONS
from sipsched.records.study_summary import INVALID, MEASURED, MISSING
from sipsched.records.summary_variables import ALL
from sipsched.validity.certificate import WINDOWS_MS
from sipsched.validity.verdict import in_words
from sipsched.versions import code_version
from sipsched.words import grouped, number, plural

MAX_RUNS_LISTED = 50
RANGES = (
    f"With fewer than {FEWEST} runs, a cell shows the range of the runs instead of an interval."
)
PROBE_MODES = {
    "exact": "This probe uses fentry and fexit (hooks of the kernel for BPF programs), and measures all six "
    "timestamps.",
    "tracepoint": "This probe uses only tracepoints of the kernel, so it measures only a lower bound of t_sockq, the "
    "time at which a worker takes a message from the queue. The true K_sockq may be about 1 µs larger than shown, and "
    "the true K_copy about 1 µs smaller. K_rcv is exact.",
    "stream": "In these runs, SIP uses TCP. This probe uses only tracepoints of the kernel, and measures all six "
    "timestamps. A message gets the timestamps of the TCP segment and of the read that contain its last byte.",
    "preload": "This probe works without BPF, and measures only t_arr, t_sip_in, t_sip_out and the number of drops. "
    "Therefore t_sockq and the parts of K_rcv are unknown.",
    "off": "No probe ran, so only the counters of the kernel are known.",
    "simulated": "No probe ran. A model computed the timestamps, and nothing was measured.",
}
POINT_HEADER = ("SUT", "mode", "cores", "threads", "cps")
LONG_FACTS = ("files", "lscpu")
"""Recorded facts of a host that the table of hosts omits, because they are too long."""
KERNEL_FACTS = {
    KERNEL_OPTIONS: "kernel options",
    "/proc/sys/kernel/sched_rt_runtime_us": "time of real-time tasks per period (µs)",
    "/proc/sys/kernel/sched_rt_period_us": "period of real-time tasks (µs)",
    "/proc/sys/kernel/sched_autogroup_enabled": "autogroup",
}
"""Settings of the kernels that the table of hosts shows, by their names in `HostReport.files`."""
PACKAGES = (
    "numpy",
    "pandas",
    "xarray",
    "netCDF4",
    "matplotlib",
    "papermill",
    "IPython",
    "jinja2",
)


LEAST_PERCENT = 0.1
"""The smallest upper bound of a share of CPU time that a sentence states, in percent."""
MOST_SUSPECT = 3
"""If a page has more suspect runs than this, the list of suspect runs is folded (hidden until a click)."""
AGREES = 0.9
"""A page answers "yes" only if at least this share of its predictions agrees with the measurement."""


def heading(summary: xr.Dataset, study: str) -> Heading:
    """Return the heading of a page: study, testbed and kernel from which the page's numbers come."""
    attrs = summary.attrs
    return Heading(
        fidelity=attrs["fidelity"],
        testbed=f"Study {study} on testbed {attrs['testbed']} (kind: {attrs['kind']}), kernel {attrs['kernels']}.",
        description=attrs["testbed_description"],
    )


def conditions_of_study(
    summary: xr.Dataset, study: str, labelled: xr.Dataset | None = None
) -> Several:
    """Return the parts of a page that describe the testbed and the runs, with folded (hidden) tables.

    Parameters
    ----------
    labelled
        The same summary, but with the modes named as the kernel applied them. None if the names are equal.
    """
    shown = summary if labelled is None else labelled
    tables = (
        arrivals(shown),
        accounts(shown),
        attempts(shown),
        *filter(None, (repetitions(shown),)),
        runs_not_counted(shown),
        columns_missing(shown),
    )
    return Several(
        (
            heading(summary, study),
            coverage(summary),
            suspicions(shown),
            Links(
                tuple(
                    (f"testbed-{testbed}.html", f"The hosts and settings of testbed {testbed}")
                    for testbed in summary.attrs["testbed"].split("; ")
                )
            ),
            Folded("Evidence: arrivals, drop ledgers, attempts and missing runs", tables),
            Folded("Conditions that varied between runs", (conditions(shown),)),
        )
    )


def drops(summary: xr.Dataset, limit: float = PDR_LIMIT) -> Table:
    """Return a table of drop rates, with one row per measured point (proxy, mode, cores, threads and load)."""
    runs = counted(summary)
    rows: list[tuple[Cell, ...]] = []
    for at, n in _points(summary):
        cells = []
        for name in ("pdr", "call_loss"):
            rates = 100 * summary[name].sel(at).to_numpy()[None]
            cells.append(told(typical_drop_rates(rates, 100 * limit, whole=100.0).at(0), "%", n))
        grades = summary["grade"].sel(at).to_numpy().tolist()
        suspect = str(grades.count("suspect") or "")
        rows.append(
            (*map(str, at.values()), str(n), suspect, *cells, *_busy(busy_periods(runs, at)))
        )
    return Table(
        identity="table-drops",
        header=(
            *(*POINT_HEADER, "runs", "suspect", "PDR (%)", "calls lost (%)"),
            *("fewest busy periods", "longest (%)", "too short"),
        ),
        places=4,
        rows=tuple(rows),
        none="no run was measured",
        caption="Drops at every measured point (one combination of mode, cores, threads and load). The values "
        f"describe the typical run{_intervals(summary)}.",
        reading=f"{RANGES} A call counts as lost if it failed or was set up late. A busy period is a time during which "
        'the SPS always holds at least one message. The column "fewest busy periods" shows the smallest '
        "effective number of busy periods in a run. The effective number is (Σ length)² / Σ length². If all busy "
        "periods are equally long, the effective number is their number. Otherwise, it is smaller. The column "
        '"longest" shows the longest busy period in percent of its run. The column "too short" counts the runs '
        f"that are too short. A run with a PDR of at most {100 * FULL_PDR:g} % is too short if it has fewer than "
        f"{LEAST_PERIODS} effective busy periods, or if one busy period takes more than {100 * LONGEST_SHARE:g} "
        "% of the run.",
        provenance=provenance(summary),
    )


def times(summary: xr.Dataset) -> Table:
    """Return a table of message times, with one row per measured point (proxy, mode, cores, threads and load)."""
    mean = summary["t_sip_mean"]
    columns = (
        *((summary[f"k_rcv_{name}"], "µs") for name in ("mean", "p50", "p99")),
        (mean, "µs"),
        (100 * summary["t_sip_off_mean"] / mean, "%"),
    )
    of_all = [(values.sel(message_type=ALL), unit) for values, unit in columns]
    slowest = pooled_quantile(summary, "total", 0.999)
    rows: list[tuple[Cell, ...]] = []
    for at, n in _points(summary):
        cells = [
            told(typical_interval(values.sel(at).to_numpy()), unit, n) for values, unit in of_all
        ]
        rows.append((*map(str, at.values()), *cells, in_us(float(slowest.sel(at)))))
    return Table(
        identity="table-times",
        header=(*POINT_HEADER, "mean", "p50", "p99", "mean", "off CPU (%)", "p99.9"),
        groups=(("", 5), ("K_rcv", 3), ("T_sip", 2), ("K_rcv + T_sip", 1)),
        places=4,
        rows=tuple(rows),
        none="no run was measured",
        caption="Times of messages in the typical run at every measured point (one combination of mode, cores, "
        f"threads and load){_intervals(summary)}.",
        reading=f"{RANGES} The 99.9th percentile is computed from the messages of all runs of a point, with a relative "
        f"error of at most {100 * RELATIVE_ERROR:g} %. The percentile is missing for runs that stored no "
        "histogram of the times.",
        provenance=provenance(summary),
    )


def _intervals(summary: xr.Dataset) -> str:
    """Return the end of a caption that names intervals, if a point has enough runs for an interval."""
    most = int((summary["status"] == MEASURED).sum("rep").max())
    return ", with 95\u00a0% intervals" if most >= FEWEST else ""


def _points(summary: xr.Dataset) -> Iterator[tuple[dict[Hashable, Any], int]]:
    """Yield each point (proxy, mode, cores, threads and load) with valid runs, and the number of these runs."""
    for sut, mode, cores in facets(summary):
        for threads, cps in itertools.product(
            summary["threads"].to_numpy().tolist(), summary["cps"].to_numpy().tolist()
        ):
            values = (sut, mode, cores, threads, cps)
            at: dict[Hashable, Any] = dict(
                zip(("sut", "mode", "cores", "threads", "cps"), values, strict=True)
            )
            n = int((summary["status"].sel(at) == MEASURED).sum())
            if n:
                yield at, n


def _busy(periods: BusyPeriods | None) -> tuple[str, str, str]:
    if periods is None:
        return NO_ENTRY, NO_ENTRY, NO_ENTRY
    return number(periods.least), number(100 * periods.longest_share), str(periods.short or "")


def runs_not_counted(summary: xr.Dataset) -> Table:
    """Return a table of the planned runs that are missing or invalid, with the reasons. Equal runs share a row."""
    repetitions: dict[tuple[str, ...], list[str]] = {}
    for key, status in iterate_runs(summary):
        if status == MEASURED:
            continue
        why = "no record in raw/"
        if status == INVALID:
            why = in_words(findings_of(summary["findings"].sel(key).item()))
        *point, repetition = (str(value) for value in key.values())
        repetitions.setdefault((*point, status, why), []).append(repetition)
    rows = [
        (*point, ", ".join(numbers), status, why)
        for (*point, status, why), numbers in repetitions.items()
    ]
    return Table(
        identity="table-runs-not-counted",
        header=(*POINT_HEADER, "repetitions", "status", "why"),
        places=4,
        rows=tuple(rows),
        none="none, because every planned run is measured and valid",
        caption="Planned runs without a valid record.",
        provenance=provenance(summary),
        shown=MAX_RUNS_LISTED,
    )


def arrivals(summary: xr.Dataset) -> Table:
    """Return a table that shows for each setting and load how exactly calls arrived on schedule (the certificate)."""
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
        caption="Arrival certificates, which check that the calls of a run arrived at the times of their schedule.",
        reading="Each row describes the runs of a point, and each value is the worst value of these runs.",
        provenance=provenance(summary),
    )


def accounts(summary: xr.Dataset) -> Table:
    """Return a table of the drop ledger of each point. A drop ledger accounts for every sent message."""
    names = {
        "calls that did not complete": "calls_incomplete",
        "calls set up late": "calls_late",
        "drops at UAC, UAS": "generator_drops",
        "link drops": "link_drops",
        "records the probe lost": "lost_records",
        "messages not accounted for": "ledger_residual",
        "retransmitted requests (UAC)": "requests_again_uac",
        "retransmitted requests (SPS)": "requests_again_sps",
        "stolen time (s)": "steal_s",
    }
    columns = {title: _largest(summary[name]) for title, name in names.items()}
    return Table(
        identity="table-accounts",
        header=(*POINT_HEADER, *columns, "verdicts\u00a0of\u00a0runs"),
        places=4,
        rows=_rows_per_point(summary, columns),
        none="no run was measured",
        caption="Drop ledgers, which account for every sent message of a run.",
        reading="Each row describes the runs of a point, and each value is the largest value of these runs. The column "
        '"retransmitted requests (SPS)" includes the requests that the full socket of the SPS refused.',
        provenance=provenance(summary),
    )


def _largest(values: xr.DataArray) -> xr.DataArray:
    return values.max("rep")


def _smallest(values: xr.DataArray) -> xr.DataArray:
    return values.min("rep")


def _rows_per_point(
    summary: xr.Dataset, columns: Mapping[str, xr.DataArray]
) -> tuple[tuple[str, ...], ...]:
    """Return one row per point with runs: the point, the values of the given columns, and the verdicts on its runs."""
    grades: dict[tuple[Any, ...], list[str]] = {}
    for key, status in iterate_runs(summary):
        if status != MISSING:
            point = tuple(value for name, value in key.items() if name != "rep")
            grades.setdefault(point, []).append(str(summary["grade"].sel(key).item()))
    rows = []
    for point, of_point in grades.items():
        place = dict(zip(("sut", "mode", "cores", "threads", "cps"), point, strict=True))
        values = [float(column.sel(place)) for column in columns.values()]
        cells = [NO_ENTRY if np.isnan(value) else number(value) for value in values]
        counted = ", ".join(
            f"{of_point.count(grade)}\u00a0{grade}" for grade in dict.fromkeys(of_point)
        )
        rows.append((*map(str, point), *cells, counted))
    return tuple(rows)


def attempts(summary: xr.Dataset) -> Table:
    """Return a table of the invalid attempts at runs, with the reasons."""
    rows = [(str(attempt.run), str(attempt)) for attempt in attempts_of(summary)]
    return Table(
        identity="table-attempts",
        header=("run", "why it is invalid"),
        rows=tuple(rows),
        none="none, because every attempt was valid",
        caption=f"Invalid attempts at runs: {len(rows)}.",
        reading="The folder of a run also contains the files of its invalid attempts.",
        provenance=provenance(summary),
        shown=MAX_RUNS_LISTED,
    )


def suspect_runs(summary: xr.Dataset) -> str:
    """Return a sentence that counts the suspect runs of a study. Empty if no run is suspect."""
    valid = summary["status"] == MEASURED
    suspect = int((valid & (summary["grade"] == "suspect")).sum())
    of = plural(int(valid.sum()), "valid run")
    return f"{suspect} of {of} {'is' if suspect == 1 else 'are'} suspect." if suspect else ""


def suspicions(summary: xr.Dataset) -> Words | Several:
    """Return sentences that list the suspect runs with the reasons. A long list is folded (hidden until a click)."""
    lines = []
    for key, status in iterate_runs(summary):
        if status == MEASURED and str(summary["grade"].sel(key).item()) == "suspect":
            name = ", ".join(f"{dim} {value}" for dim, value in key.items())
            why = in_words(findings_of(summary["findings"].sel(key).item()))
            lines.append(f"The run {name} is suspect: {why}.")
    every = Words(tuple(lines or ["No valid run is suspect."]))
    if len(lines) <= MOST_SUSPECT:
        return every
    return Several(
        (Words((suspect_runs(summary),)), Folded("The suspect runs and the reasons", (every,)))
    )


def coverage(summary: xr.Dataset) -> Words:
    """Return sentences that count the planned runs by status, and describe the mode of the probe."""
    words = [status for _, status in iterate_runs(summary)]
    lines = [
        f"Number of planned runs: {len(words)} (measured: {words.count(MEASURED)}, invalid: {words.count(INVALID)}, "
        f"missing: {words.count(MISSING)})."
    ]
    modes, counts = np.unique(summary["probe_mode"].to_numpy().astype(str), return_counts=True)
    for mode, count in zip(modes, counts, strict=True):
        if mode:
            lines.append(
                f"The probe ran in mode {mode} in {plural(count, 'run')}. {PROBE_MODES.get(mode, '')}"
            )
    for reason in json.loads(summary.attrs["probe_mode_reasons"]):
        lines.append(f"Reason for this probe mode: {reason}")
    lost = float(np.nansum(summary["lost_records"].to_numpy()))
    lines.append(f"In all runs together, the probe lost {lost:.0f} records of messages.")
    return Words(tuple(lines))


def columns_missing(summary: xr.Dataset) -> Table:
    """Return a table of the columns of messages.nc that some runs lack, with the reasons."""
    rows = [
        (entry["column"], str(entry["runs"]), entry["reason"])
        for entry in json.loads(summary.attrs["columns_missing"])
    ]
    return Table(
        identity="table-columns-missing",
        header=("column", "runs", "why"),
        rows=tuple(rows),
        none="none, because every run has every column",
        caption="Columns that are missing in messages.nc, the file with the single messages of a run.",
        provenance=provenance(summary),
    )


def hosts(summary: xr.Dataset) -> Table:
    """Return a table of the testbed's hosts and settings, from the record of the first run."""
    facts: Mapping[str, Mapping[str, Any]] = json.loads(summary.attrs["hosts"])
    roles = [role for role in ("uac", "sps", "uas") if role in facts]
    keys = dict.fromkeys(key for role in roles for key in facts[role] if key not in LONG_FACTS)
    rows = [(key, *(_text(facts[role].get(key)) for role in roles)) for key in keys]
    for path, title in KERNEL_FACTS.items() if roles else ():
        texts = [facts[role].get("files", {}).get(path) for role in roles]
        rows.append((title, *(_text(" ".join(text.split()) if text else None) for text in texts)))
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
        none="no run was measured, so the hosts are unknown",
        caption="The hosts, their settings and the load, from the record of the first run.",
        provenance=provenance(summary),
    )


def conditions(summary: xr.Dataset) -> Words:
    """Return sentences about conditions that should be equal in all runs: kernel, receive buffer, stolen CPU time."""
    runs = summary["so_rcvbuf"].to_dataframe().reset_index()
    buffers = receive_buffers(runs, "sut", "mode")
    shares = {name: summary[name].to_numpy().ravel() for name in CPU_SHARES}
    steal = summary["steal_s"].to_numpy().ravel()
    return conditions_of(summary.attrs["kernels"], buffers, steal, shares)


def conditions_of(
    kernels: str, buffers: Buffers, steal: Values, shares: Mapping[str, Values]
) -> Words:
    """Return sentences about kernel, receive buffers and stolen CPU time, which should be equal in all runs.

    Parameters
    ----------
    steal
        CPU time that the hypervisor stole, in s, shape (run,). NaN if not recorded.
    shares
        Shares of the SPS's CPU time by the names of `CPU_SHARES`, shape (run,); NaN where not recorded.
    """
    steal = steal[~np.isnan(steal)]
    sizes = ", ".join(map(grouped, buffers.sizes))
    lines = [
        f"Kernels of the SPS: {kernels}.",
        f"Effective receive buffer of the SPS's socket (SO_RCVBUF): {sizes} bytes."
        if sizes
        else "Effective receive buffer of the SPS's socket (SO_RCVBUF): not recorded.",
        *buffers_differ(buffers),
    ]
    if steal.size:
        lines.append(
            f"The hypervisor stole {np.median(steal):.2f} s of the SPS's CPU time in the median run, and "
            f"{steal.max():.2f} s in the worst run (n = {steal.size} runs)."
        )
    return Words((*lines, competitors_of(shares)))


def competitors_of(shares: Mapping[str, Values]) -> str:
    """Return a sentence about the share of the proxy machine's CPU time that other programs used.

    Parameters
    ----------
    shares
        Shares by the names of `CPU_SHARES`, shape (run,); NaN where not recorded.
    """
    of_others, idle_class = (shares[name][~np.isnan(shares[name])] for name in CPU_SHARES)
    if not of_others.size:
        return "The share of the SPS's CPU time that other programs used was not recorded."
    return (
        f"Other programs used {100 * np.median(of_others):.1f} % of the SPS's CPU time in the median run, and "
        f"{100 * of_others.max():.1f} % in the worst run (n = {of_others.size} runs). Programs of the scheduling "
        f"class SCHED_IDLE used at most another {max(100 * idle_class.max(), LEAST_PERCENT):.1f} %. They leave the CPU "
        "at once when the proxy needs it, unless they started while the kernel's autogroup was on."
    )


def competitors(campaigns: Iterable[Campaign]) -> Words:
    """Return a sentence about the share of the proxy machines' CPU time that other programs used, for all testbeds."""
    by_testbed = [campaign.cpu_shares for campaign in campaigns]
    return Words(
        (
            competitors_of(
                {
                    name: np.concatenate([np.empty(0), *(shares[name] for shares in by_testbed)])
                    for name in CPU_SHARES
                }
            ),
        )
    )


def buffers_differ(buffers: Buffers, name: Callable[..., str] = "{}, {}".format) -> list[str]:
    """Return a warning if the compared runs have receive buffers of different sizes. Otherwise, return no sentence.

    Parameters
    ----------
    buffers
        Receive buffer sizes of the compared runs.
    name
        Function that returns the name of a group of runs from its key.
    """
    if not buffers.differ:
        return []
    told = "; ".join(
        f"{size} bytes: {' | '.join(name(*group) for group in buffers.with_size(size))}"
        for size in buffers.sizes
    )
    return [
        f"Not all runs have the same receive buffer. {told}. PDR and capacity depend on the size of this buffer, so "
        "runs with different sizes are not comparable."
    ]


def _text(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def versions(*data: Path) -> Several:
    """Return the versions of the programs that made the page, and the hashes of data files, as page parts."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    programs = f"sipsched {code_version()}; Python {platform.python_version()}, {packages}."
    hashes = (
        f"{'/'.join(path.parts[-3:])}: SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}."
        for path in data
    )
    return Several(
        (
            Words((programs,), css_class="versions"),
            Folded("Data and their hashes", (Words(tuple(hashes), css_class="versions"),)),
        )
    )


def repetitions(data: xr.Dataset) -> Table | None:
    """Return a table of how precise the results of each point are. None if the number of repetitions was fixed.

    The precision of a result is the half-width of its confidence interval, in percent of the result.
    """
    if "precision" not in data.attrs:
        return None
    precision = Precision(**json.loads(data.attrs["precision"]))
    precisions = look(data, precision)
    reached = sum(known.half_width <= precision.relative for known in precisions)
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
        rows=tuple(_known_row(known, precision) for known in precisions),
        none="no run was planned",
        caption=f"Precision of the interval of {precision.of}. {reached} of {len(precisions)} systems reached the "
        "required precision.",
        reading="Runs were repeated until half of the interval's width was at most "
        f"{100 * precision.relative:g}\u00a0% of the value. Each system has at least {precision.at_least} and at "
        f"most {plural(precision.at_most, 'run')}. The interval was computed at most {plural(looks, 'time')}, each "
        "time after further runs. Each of these intervals has a level of "
        f"{100 * level_of_a_look(precision):.3g}\u00a0%, so that the level of the final interval is at least "
        "95\u00a0%. The number of runs therefore depended on the results. The other intervals on this page are not "
        "corrected for this dependence.",
        provenance=provenance(data),
    )


def _known_row(known: Known, precision: Precision) -> tuple[Cell, ...]:
    wide = known.half_width
    if wide <= precision.relative:
        word = "yes"
    elif known.interval.n >= precision.at_most:
        word = f"no, although the largest number of {precision.at_most} runs was made"
    else:
        word = "not yet"
    return (
        *(known.sut, known.mode, *map(str, known.group)),
        told(known.interval, "µs"),
        number(100 * wide) if np.isfinite(wide) else "no interval",
        word,
    )
