"""The page about a testbed: valid runs, noise (interruptions) of its CPUs, cost of the probe, arrivals of calls."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.crossover import percent
from sipsched.analysis.probe_cost import probe_costs
from sipsched.analysis.run_table import (
    IMPOSSIBLE,
    POINT,
    Campaign,
    configurations,
    findings_of,
    iterate_runs,
    receive_buffers,
)
from sipsched.pages import tables
from sipsched.pages.drawing import titled
from sipsched.pages.numbers import NO_ENTRY, in_us, told, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Folded, Heading, Several, Table, Words
from sipsched.pages.plots import look, panels
from sipsched.pages.tables import MAX_RUNS_LISTED, conditions_of
from sipsched.records.noise_record import CpuNoise, Noise, read_noise
from sipsched.records.study_summary import INVALID, MEASURED, MISSING
from sipsched.validity.verdict import SUSPECT, Finding, in_general
from sipsched.words import grouped, listed, number, plural

MARKED_GAPS = 12
LONG_GAP_US = 1000
"""A gap of at least this length comes from another program or from the hypervisor, and not from an interrupt."""
STATES = {
    MEASURED: "valid",
    SUSPECT: "suspect",
    INVALID: "invalid",
    MISSING: "missing",
    IMPOSSIBLE: "impossible",
}
"""The words of the page for the states of a planned run, from the best to the worst."""
ARRIVAL_RULES = ("rate_error", "ks_excess", "cv_error", "lateness_p99_us", "generator_cpu_share")
"""The rules of the verdict about the arrivals of calls."""


def heading(campaign: Campaign) -> Heading:
    """Return the heading of the page: the origin of the numbers, the testbed and its kernel."""
    return Heading(
        fidelity=campaign.fidelity,
        testbed=f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}. Studies: "
        f"{', '.join(campaign.studies)}.",
        description=campaign.description,
    )


def answer(campaign: Campaign, noise_file: Path, windows: Sequence[Path]) -> Answer:
    """Return sentences about the testbed, the states of the runs, the interruptions of the CPUs, and the probe."""
    tally = _states(campaign.runs).value_counts()
    states = [
        f"{tally[state]} {'is' if tally[state] == 1 else 'are'} {word}"
        for state, word in STATES.items()
        if state in tally
    ]
    setting = campaign.description.partition(":")[0]
    said = [
        # Without a run, the records do not describe the testbed.
        *([f"Testbed {campaign.testbed}: {setting}. {campaign.fidelity}."] if setting else []),
        f"Of {plural(len(campaign.runs), 'planned run')}, {listed(states)}.",
    ]
    limits = _exceeded(campaign)
    if limits:
        findings = max(limits.values(), key=len)
        median = float(np.median([finding.value or 0 for finding in findings]))
        said.append(
            "Pages include suspect runs, each of which exceeds a limit slightly. The most frequent reason, with the "
            f"median value over {plural(len(findings), 'run')}: {replace(findings[0], value=median, cause='')}."
        )
    cpu_noises = read_noise(noise_file).cpus if noise_file.is_file() else ()
    if cpu_noises:
        lost = max(cpu.lost_share for cpu in cpu_noises)
        said.append(f"An idle CPU is interrupted for {100 * lost:.2g}\u00a0% of its time.")
    costs = [percent(cost.effect.interval) for cost in probe_costs(windows)]
    known = [cost for cost in costs if not np.isnan(cost.estimate)]
    if known:
        most = max(known, key=lambda cost: cost.estimate)
        said.append(
            f"The probe changes the proxy's CPU time per message by up to {with_unit(most, '%', '+')}."
        )
    return Answer(" ".join(said))


def coverage(campaign: Campaign) -> Table:
    """Return a table of the planned runs of each study: loads, and the number of runs of each status."""
    states = campaign.runs.assign(state=_states(campaign.runs))
    rows = []
    for study, summary in zip(campaign.studies, campaign.summaries, strict=True):
        planned = pd.DataFrame([key for key, _ in iterate_runs(summary)], columns=[*POINT, "rep"])
        runs = planned.merge(states, on=[*POINT, "rep"])
        tally = runs["state"].value_counts()
        counts = (str(tally.get(state, "")) for state in STATES)
        rows.append((study, str(len(runs)), *counts, _range(runs["cps"])))
    return Table(
        identity="table-coverage",
        header=("study", "planned", *STATES.values(), "loads (cps)"),
        rows=tuple(rows),
        none="no run was planned",
        caption="The planned runs of each study.",
        reading="A suspect run exceeds a limit of the verdict slightly, and pages include its results. A run is "
        "invalid if every attempt to measure it exceeded a limit by more. A run is impossible if the testbed has too "
        "few cores for it. Studies may share runs, so the sum of a column may be larger than the number of runs.",
        provenance=campaign.provenance,
    )


def _states(runs: pd.DataFrame) -> pd.Series:
    """Return the status of each planned run, in which `SUSPECT` is apart from the other valid runs."""
    suspect = (runs["status"] == MEASURED) & (runs["grade"] == SUSPECT)
    return runs["status"].where(~suspect, SUSPECT)


def noise(path: Path, campaign: Campaign) -> Figure | Words:
    """Return a figure of how often and how long an idle CPU of the proxy machine is interrupted.

    Parameters
    ----------
    path
        The testbed's `noise.json`. Without it, a sentence replaces the figure.
    """
    if not path.is_file():
        return Words(
            (
                f"The noise was not measured, because the file {path.name} is missing. The command `snakemake` "
                f"measures the noise.",
            )
        )
    return draw_noise(read_noise(path), campaign)


def draw_noise(found_noise: Noise, campaign: Campaign) -> Figure:
    """Return a figure of the rate of interruptions that are longer than the time on the x axis, for each CPU."""

    def draw_panel(axis: Axes, *_: int) -> None:
        for i, cpu in enumerate(found_noise.cpus):
            lengths = np.sort(cpu.gaps_us)
            rate = np.arange(len(lengths), 0, -1) / cpu.duration_s
            shape = look(i)
            axis.step(lengths, rate, where="pre", color=shape.color, label=f"CPU {cpu.cpu}")
            shown = slice(None, None, max(1, len(lengths) // MARKED_GAPS))
            (points,) = axis.plot(
                *(lengths[shown], rate[shown], shape.marker), color=shape.color, markersize=3.5
            )
            titled(
                points,
                [
                    f"CPU {cpu.cpu}: {number(per_second)} gaps per second of {in_us(us)} or longer"
                    for us, per_second in zip(lengths[shown], rate[shown], strict=True)
                ],
            )
        if any(cpu.gaps_us.size for cpu in found_noise.cpus):
            axis.set_xscale("log")
            axis.set_yscale("log")
        axis.set_ylabel("longer gaps per second")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(FuncFormatter(grouped))

    return Figure(
        identity="figure-noise",
        draw=panels([""], [""], draw_panel, "length of a gap (µs)"),
        caption="How often per second an idle CPU of the SPS is interrupted for longer than the time on the x axis.",
        reading="The noise was measured by a program that reads the clock without a pause. A gap between two "
        "readings is an interruption of this program. Both scales are logarithmic. The noise was measured only once, "
        f"so no number has an interval. The measurement started at {found_noise.started_at}, with kernel "
        f"{found_noise.kernel}.",
        seen=tuple(map(_noise_words, found_noise.cpus)),
        provenance=campaign.provenance,
    )


def _noise_words(cpu: CpuNoise) -> str:
    start = (
        f"On CPU {cpu.cpu} (observed for {cpu.duration_s:.1f} s, every {cpu.resolution_ns:.0f} ns),"
    )
    if not cpu.gaps_us.size:
        return f"{start} no gap was longer than {cpu.threshold_ns / 1000:g} µs."
    middle, slow = np.percentile(cpu.gaps_us, (50, 99))
    unlisted = f" ({cpu.gaps_unlisted} more not listed)" if cpu.gaps_unlisted else ""
    return (
        f"{start} the number of gaps (interruptions) longer than {cpu.threshold_ns / 1000:g} µs is "
        f"{number(cpu.gaps_us.size / cpu.duration_s)} per second{unlisted}. Together, the gaps take "
        f"{100 * cpu.lost_share:.2g} % of the time. The median gap is {number(float(middle))} µs long, the 99th "
        f"percentile is {number(float(slow))} µs, and the longest gap is {number(float(cpu.gaps_us.max()))} µs. "
        f"{number(float((cpu.gaps_us >= LONG_GAP_US).sum() / cpu.duration_s))} gaps per second are "
        f"{in_us(LONG_GAP_US)} or longer. During the observation, the hypervisor stole {cpu.steal_s:.2f} s of CPU "
        "time."
    )


def conditions(campaign: Campaign) -> Words:
    """Return sentences about kernels, receive buffers and stolen CPU time in the runs of all studies."""
    buffers = receive_buffers(campaign.runs, "sut", "mode")
    steal = campaign.runs["steal_s"].to_numpy(float)
    return conditions_of(campaign.kernels, buffers, steal, campaign.cpu_shares)


def cost_of_the_probe(campaign: Campaign, windows: Sequence[Path]) -> Table:
    """Return a table of the proxy's CPU time per message with and without the probe, per configuration and load."""
    rows: list[tuple[Cell, ...]] = []
    for cost in probe_costs(windows):
        rows.append(
            (
                *(cost.sut, cost.mode, str(cost.cores), str(cost.threads), str(cost.cps)),
                f"{cost.without_us:.1f}",
                told(percent(cost.effect.interval), "%", plus="+"),
                told(percent(cost.sham.interval), "%", plus="+"),
                str(sum(cost.effect.blocks)),
            )
        )
    return Table(
        identity="table-probe-cost",
        places=4,
        header=(
            *("SUT", "mode", "cores", "threads", "cps", "without the probe (µs)"),
            *("the probe adds (%)", "sham (%)", "blocks"),
        ),
        rows=tuple(rows),
        none="not measured: no run compares windows with the probe and windows without the probe (mode recording=off)",
        caption="CPU time of the proxy per message, with and without the probe.",
        reading="The CPU times with and without the probe are measured in the same runs, in alternating windows. "
        'Intervals are 95\u00a0% confidence intervals. The column "sham" compares two windows with the same '
        "probe setting, so its true value is 0.",
        provenance=campaign.provenance,
    )


def certificates(campaign: Campaign) -> Several:
    """Return a table of how closely calls arrived on schedule, per proxy and load, and the number of suspect runs."""
    rows = []
    for (sut, cps), runs in campaign.counted.groupby(["sut", "cps"], sort=True):
        grades = runs["grade"].value_counts()
        rate_error = 100 * (runs["achieved_cps"] / runs["offered_cps"] - 1).abs()
        rows.append(
            (
                *(str(sut), str(cps), str(len(runs))),
                _range(runs["ks_distance"]),
                _range(runs["cv"]),
                _range(runs["lateness_p99_us"]),
                _range(100 * runs["generator_cpu_share"]),
                number(rate_error.max()),
                ", ".join(f"{count}\u00a0{grade}" for grade, count in grades.items()),
            )
        )
    table = Table(
        identity="table-certificates",
        places=1,
        header=(
            *("SUT", "cps", "runs", "KS distance", "CV", "lateness p99 (µs)"),
            *("generator CPU (%)", "worst rate error (%)", "verdicts"),
        ),
        rows=tuple(rows),
        none="no run is valid",
        caption="Arrival certificates of the valid and suspect runs. A certificate describes how closely the calls "
        "of a run followed their schedule.",
        reading="Each cell shows the smallest and the largest value of the runs at a load.",
        provenance=campaign.provenance,
    )
    limits = _exceeded(campaign)
    missed = [
        f"{in_general(rule)} ({plural(len(limits[rule]), 'run')})"
        for rule in ARRIVAL_RULES
        if rule in limits
    ]
    if not rows:
        return Several((table,))
    said = (
        f"Some runs missed these expectations, so they are suspect: {'; '.join(missed)}."
        if missed
        else "No run is suspect because of its arrivals."
    )
    return Several((table, Words((said,))))


def _range(values: pd.Series) -> str:
    there = values.dropna()
    if not len(there):
        return NO_ENTRY
    low, high = number(float(there.min())), number(float(there.max()))
    return low if low == high else f"{low} to {high}"


def reasons(campaign: Campaign) -> Table:
    """Return a table that counts the reasons for suspect runs and for invalid attempts."""
    told = Counter({rule: len(findings) for rule, findings in _exceeded(campaign).items()})
    suspect = int((_states(campaign.runs) == SUSPECT).sum())
    refused = Counter(cause for attempt in campaign.attempts for cause in attempt.causes)
    rows = [
        (in_general(cause), str(told[cause] or ""), str(refused[cause] or ""))
        for cause, _ in (told + refused).most_common()
    ]
    return Table(
        identity="table-reasons",
        header=("why", "suspect\u00a0runs", "invalid\u00a0attempts"),
        rows=tuple(rows),
        none="none, because no run is suspect and every attempt was valid",
        caption=f"Reasons for {plural(suspect, 'suspect run')} and "
        f"{plural(len(campaign.attempts), 'invalid attempt')}.",
        reading="A run may have several reasons.",
        provenance=campaign.provenance,
    )


def _exceeded(campaign: Campaign) -> dict[str, list[Finding]]:
    """Return the limits that suspect runs exceed: per rule, the rule's result for each of these runs."""
    suspect = campaign.counted[campaign.counted["grade"] == SUSPECT]["findings"]
    by_rule: dict[str, list[Finding]] = {}
    for finding in chain.from_iterable(map(findings_of, suspect)):
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


def doubtful_runs(campaign: Campaign) -> Several:
    """Return a table of the runs without a result, and a folded (hidden) table of the suspect runs, with reasons."""
    states = campaign.runs.assign(state=_states(campaign.runs))
    suspect = states["state"] == SUSPECT
    failed = _runs_table(
        campaign,
        states[(states["state"] != MEASURED) & ~suspect],
        "table-runs-without-result",
        "Planned runs without a result.",
        "none, because every planned run is valid or suspect",
    )
    table = _runs_table(
        campaign,
        states[suspect],
        "table-suspect-runs",
        "Suspect runs, sorted by load.",
        "none, because no run is suspect",
    )
    summary = (
        f"The {plural(int(suspect.sum()), 'suspect run')}, with the limits that each run exceeds"
    )
    return Several((failed, *([Folded(summary, (table,))] if suspect.any() else [])))


def _runs_table(
    campaign: Campaign, runs: pd.DataFrame, identity: str, caption: str, none: str
) -> Table:
    """Return a table of planned runs with their reasons. The runs of a configuration are sorted by load."""
    rows = [
        (*map(str, row[:-1]), str(row[-1]) or "no record")
        for group in configurations(runs).values()
        for row in group.sort_values(["cps", "rep"])[
            [*POINT, "rep", "state", "reasons"]
        ].itertuples(index=False)
    ]
    return Table(
        identity=identity,
        places=4,
        header=(*POINT, "rep", "status", "why"),
        rows=tuple(rows),
        none=none,
        caption=caption,
        provenance=campaign.provenance,
        shown=MAX_RUNS_LISTED,
    )


def hosts(campaign: Campaign) -> Table:
    """Return a table of the hosts and settings of the first run. A sentence states how many kernels the runs used."""
    table = tables.hosts(campaign.first)
    kernels = campaign.kernels.split("; ")
    if len(kernels) < 2:
        return table
    text = f"The runs used {len(kernels)} kernels ({listed(kernels)}), of which the table shows only the first run's."
    return replace(table, caption=f"{table.caption} {text}")
