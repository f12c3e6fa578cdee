"""The page about single messages: their times near 80 % of capacity, and why some messages are slow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sipsched.analysis.run_table import LABELLED_KINDS
from sipsched.pages import tables
from sipsched.pages.capacities import estimate
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.heat import heat_map
from sipsched.pages.explore.lanes import lanes
from sipsched.pages.explore.ran import who_ran
from sipsched.pages.explore.timeline import Messages, provenance, read_messages
from sipsched.pages.explore.waterfall import STAGES, slow_way, waterfall
from sipsched.pages.numbers import in_us
from sipsched.pages.parts import Answer, Figure, Several, Table, Words
from sipsched.plan.modes import DEFAULT
from sipsched.plan.run import Run
from sipsched.records.catalogue import Catalogue, find_runs
from sipsched.records.cpu_report import Account
from sipsched.records.system_capacity import SystemCapacity
from sipsched.words import grouped, listed, number, plural

SHOWN_SHARE = 0.8
"""The page shows the load (calls per second) that is nearest to this share of the capacity."""
NEAR = 0.1
"""If the shown load, as a share of the capacity, differs from `SHOWN_SHARE` by more than this, the page says so."""
SHORT_S = 2.0
"""The page calls a run short if it takes less than this many seconds, because it may contain no disturbance."""
MOST_REPETITIONS = 3
NOTHING = "There is no answer, because no run of the default mode recorded single messages."
UNKNOWN_PROGRAMS = (
    "It is unknown which other programs ran while messages waited, and which programs used the CPUs during the whole "
    "run, because these records do not contain such data. Measure a run with this version of sipsched to record both."
)
NO_STAGES = (
    "This figure is missing. Either too few messages were recorded, or the probe worked without BPF and could not "
    "measure the parts of a message's time."
)
PERCENTILES = (50.0, 99.0, 99.9)
PARTS = {
    "workers": "the workers",
    "proxy": "other processes of the proxy",
    "softirq": "packet processing of the kernel (softirq)",
    "irq": "interrupts",
    "kernel": "kernel threads",
    "own": "programs of sipsched",
    "competitors": "other programs",
    "stolen": "the hypervisor",
    "idle": "idle",
}
"""Names for the uses of a run's CPU time, such as workers or interrupts, for sentences."""


@dataclass(frozen=True)
class ShownRuns:
    """The runs that the page shows, at up to three loads.

    Attributes
    ----------
    by_load
        The runs at the lowest load, the shown load and the highest load, ascending. All have equal settings except load
        and repetition, and at least one message with K_rcv and T_sip.
    shown_cps
        The load nearest to `SHOWN_SHARE` of the capacity. If the capacity is unknown, the load in the middle.
    account
        The CPU account of the first shown run. None if its record has no account.
    """

    by_load: Mapping[int, Sequence[Messages]]
    shown_cps: int = 0
    capacity: SystemCapacity | None = None
    account: Account | None = None
    files: tuple[Path, ...] = ()

    @property
    def all(self) -> list[Messages]:
        """The runs at all shown loads."""
        return [run for runs in self.by_load.values() for run in runs]

    @property
    def shown(self) -> Sequence[Messages]:
        """The runs at the load near 80 % of the capacity. Empty if no such runs exist."""
        return self.by_load.get(self.shown_cps, ())


def read(
    testbed: str,
    folders: Iterable[Path],
    capacities: Sequence[SystemCapacity] = (),
) -> ShownRuns:
    """Read the times of single messages from runs in the default mode, at up to three loads.

    Parameters
    ----------
    folders
        Folders of records. The page uses the folder whose runs cover the most loads. Of this folder, it uses the
        setting with the most runs.
    """
    catalogues = [_with_messages(find_runs(folder, testbed)) for folder in folders]
    chosen = max(catalogues, key=lambda catalogue: len(catalogue.values("cps")), default=None)
    if chosen is None or not chosen.runs:
        return ShownRuns({})
    capacity = _capacity(chosen.runs[0], capacities)
    by_load = {cps: [run for run in chosen.runs if run.cps == cps] for cps in chosen.values("cps")}
    loads = sorted(by_load)
    shown = _shown_load(loads, capacity)
    opened = {
        cps: [
            messages
            for run in by_load[cps][:MOST_REPETITIONS]
            if len(_totals(messages := read_messages(chosen, run)))
        ]
        for cps in sorted({loads[0], shown, loads[-1]})
    }
    known = {cps: runs for cps, runs in opened.items() if runs}
    if not known:
        return ShownRuns({})
    shown = min(known, key=lambda cps: abs(cps - shown))
    report = chosen.document(known[shown][0].run).account
    files = [chosen.messages_file(run.run) for runs in known.values() for run in runs]
    return ShownRuns(known, shown, capacity, report.account if report else None, tuple(files))


def _with_messages(runs: Catalogue) -> Catalogue:
    """Return the catalogue (list of runs) reduced to runs in the default mode that recorded single messages.

    If several settings have such runs, use the setting with the most runs.
    """
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs.runs:
        if run.mode == DEFAULT and runs.has_messages(run):
            groups.setdefault((run.sut, run.cores, run.threads), []).append(run)
    most: list[Run] = max(groups.values(), key=len, default=[])
    return Catalogue(runs.records, runs.results, tuple(most))


def _capacity(run: Run, capacities: Sequence[SystemCapacity]) -> SystemCapacity | None:
    """Return the capacity of a run's proxy. None if no capacity was estimated.

    If capacities were estimated for several limits of the drop rate, return the capacity for the smallest limit.
    """
    system = (run.testbed, run.sut, run.mode, run.cores, run.threads)
    known = [
        capacity
        for capacity in capacities
        if (capacity.testbed, capacity.sut, capacity.mode, capacity.cores, capacity.threads)
        == system
    ]
    return min(known, key=lambda capacity: capacity.limit, default=None)


def _shown_load(loads: Sequence[int], capacity: SystemCapacity | None) -> int:
    """Return the load that is nearest to 80 % of the capacity.

    If the capacity is unknown, return the load in the middle.
    """
    if capacity is None or capacity.estimate_cps is None:
        return loads[(len(loads) - 1) // 2]
    wanted = SHOWN_SHARE * capacity.estimate_cps
    return min(loads, key=lambda cps: abs(cps - wanted))


def answer(shown_runs: ShownRuns) -> Answer:
    """Return sentences about the shown runs, the time of a slow message, and its longest stage."""
    runs = shown_runs.shown
    if not runs:
        return Answer(NOTHING)
    run = runs[0].run
    usual, slow, _ = np.percentile(_pooled(runs), PERCENTILES)
    lengths = [f"{length(run.length_s for run in runs):.2g}" for length in (min, max)]
    sentences = [
        f"For {run.sut} on {plural(run.cores, 'core')} with {plural(run.threads, 'worker')}, one message in a "
        f"hundred takes longer than {in_us(slow)} from its arrival until the proxy sends it on. This time is "
        f"{number(slow / usual)} times the median.",
        f"The numbers come from {plural(len(runs), 'run')} of {' to '.join(dict.fromkeys(lengths))} s at "
        f"{grouped(shown_runs.shown_cps)} calls per second.",
        *_share_words(shown_runs),
    ]
    if max(run.length_s for run in runs) < SHORT_S:
        sentences.append(
            "Such short runs miss rare disturbances, so longer runs on other pages may show longer times."
        )
    way = slow_way(runs)
    if way is not None:
        most = int(np.argmax(way.stages_us))
        share = 100 * way.stages_us[most] / way.stages_us.sum()
        sentences.append(
            f"Of the time of such a slow message, {share:.0f} % is spent {list(STAGES.values())[most]}."
        )
    return Answer(" ".join(sentences))


def _share_words(shown_runs: ShownRuns) -> list[str]:
    """Return sentences on how many percent of the capacity the shown load (calls per second) is.

    If the share is far from `SHOWN_SHARE`, a sentence explains the choice of the load.
    """
    capacity = shown_runs.capacity
    if capacity is None or capacity.estimate_cps is None:
        return ["The capacity is not known."]
    share = shown_runs.shown_cps / capacity.estimate_cps
    text = f"This load is {100 * share:.0f} % of the capacity of {estimate(capacity)} cps."
    if abs(share - SHOWN_SHARE) <= NEAR:
        return [text]
    return [
        text,
        f"Of the recorded loads, this load is the nearest to {100 * SHOWN_SHARE:.0f} % of the capacity.",
    ]


def distributions(shown_runs: ShownRuns) -> Figure | Words:
    """Return a figure of the share of messages that take longer than a given time, with one line per load."""
    return _of_page(ccdf(shown_runs.all), shown_runs) if shown_runs.by_load else Words((NOTHING,))


def by_load(shown_runs: ShownRuns) -> Table:
    """Return a table of message times with one row per load, and with the parts of a slow message's time."""
    rows = []
    for cps, runs in shown_runs.by_load.items():
        total = _pooled(runs)
        refused = sum(len(run.drop_at_s) for run in runs)
        way = slow_way(runs)
        shares: tuple[str, ...] = ("not seen",) * 3
        if way is not None:
            stages = 100 * way.stages_us / way.stages_us.sum()
            shares = tuple(f"{value:.0f} %" for value in (stages[:3].sum(), stages[3], stages[4]))
        rows.append(
            (
                grouped(cps),
                str(len(runs)),
                grouped(len(total)),
                grouped(refused),
                *(in_us(value) for value in np.percentile(total, PERCENTILES)),
                *shares,
            )
        )
    return Table(
        identity="table-messages",
        header=(
            *("cps", "runs", "messages", "refused", "median", "p99", "99.9 %"),
            *("wait", "service on a CPU", "service off CPU"),
        ),
        groups=(("", 4), ("K_rcv + T_sip", 3), ("of a slow message's time", 3)),
        rows=tuple(rows),
        none=NOTHING,
        caption="Times of messages at each load. Each row combines the messages of all runs at the load."
        f"{_unfilled(shown_runs)}",
        reading='The column "messages" counts the messages with both times, K_rcv and T_sip. A slow message is a '
        "message whose time is near the 99th percentile. The last three columns show which share of a slow message's "
        "time each part takes.",
        provenance=_provenance(shown_runs),
    )


def _unfilled(shown_runs: ShownRuns) -> str:
    """Return a sentence about short runs above the capacity that refused no message. Empty without such runs."""
    capacity = shown_runs.capacity
    if capacity is None or capacity.estimate_cps is None:
        return ""
    loads = [
        f"{grouped(cps)}"
        for cps, runs in shown_runs.by_load.items()
        if cps > capacity.estimate_cps
        and not any(len(run.drop_at_s) for run in runs)
        and max(run.length_s for run in runs) < SHORT_S
    ]
    if not loads:
        return ""
    return (
        f" At {listed(loads)} cps, the socket refused no message although the load is above the capacity, because "
        "the runs are too short for the socket's queue to fill."
    )


def ways(shown_runs: ShownRuns) -> Several:
    """Return a figure of the stages of a message's time for each message type, at the load near 80 % of capacity."""
    return _several(
        waterfall(shown_runs.shown) if shown_runs.shown else None, shown_runs, NO_STAGES
    )


def around(shown_runs: ShownRuns) -> Several:
    """Return a figure of the work on the CPUs while a slow message waited, and a table of the programs that ran."""
    drawn = _several(lanes(shown_runs.shown[0]) if shown_runs.shown else None, shown_runs, NOTHING)
    if not shown_runs.shown:
        return drawn
    ran = who_ran(shown_runs.shown, _provenance(shown_runs))
    if isinstance(ran, Words) and shown_runs.account is None:
        return Several((*drawn.parts, Words((UNKNOWN_PROGRAMS,))))
    return Several((*drawn.parts, ran, Words((account_words(shown_runs.account),))))


def account_words(account: Account | None) -> str:
    """Return sentences about the programs that used the proxy machine's CPUs during a run, with their shares."""
    if account is None:
        return (
            "It is unknown which programs used the CPUs during the whole run, because the record of the run has no "
            "account of CPU time."
        )
    parts = account.parts
    times = {name: getattr(parts, name, 0) for name in PARTS}
    times["competitors"] = parts.realtime + parts.fair + parts.idle_class
    used = sorted((name for name in times if times[name]), key=lambda name: -times[name])
    shares = [f"{PARTS[name]} {100 * times[name] / parts.total:.2g} %" for name in used]
    text = f"The CPU time of the whole run, according to the kernel's context switches: {listed(shares)}."
    if account.competitors:
        text += f" Of the other programs, {account.competitors[0]} used the most CPU time."
    if account.planned:
        text += (
            " The file of the testbed lists these programs, which ran as competitors on purpose: "
            f"{listed([*map(str, account.planned)])}."
        )
    return text


def over_time(shown_runs: ShownRuns) -> Several:
    """Return a heat map that shows how long messages took (K_rcv + T_sip) at each time of one run."""
    return _several(
        heat_map(shown_runs.shown[0]) if shown_runs.shown else None, shown_runs, NOTHING
    )


def versions(shown_runs: ShownRuns) -> Several:
    """Return the versions of the programs that made this page, and the hashes of its data files, as page parts."""
    return tables.versions(*shown_runs.files)


def conditions(shown_runs: ShownRuns) -> Words:
    """Return sentences with the proxy, the mode, the number and the testbed of the runs on the page."""
    runs = shown_runs.all
    if not runs:
        return Words((NOTHING,))
    run = runs[0].run
    setting = (
        f"{run.sut}, {run.mode} mode, {plural(run.cores, 'core')}, {plural(run.threads, 'thread')}"
    )
    return Words(
        (f"The page shows {plural(len(runs), 'run')} of {setting}.", f"{provenance(runs)}.")
    )


def _provenance(shown_runs: ShownRuns) -> str:
    """Return a label that marks the page's numbers as simulated or emulated, or an empty text for other numbers.

    Other numbers have no label, because the end of the page states their origin.
    """
    return (
        provenance(shown_runs.all)
        if any(r.testbed_kind in LABELLED_KINDS for r in shown_runs.all)
        else ""
    )


def _of_page(figure: Figure, shown_runs: ShownRuns) -> Figure:
    return replace(figure, provenance=_provenance(shown_runs))


def _several(figure: Figure | None, shown_runs: ShownRuns, otherwise: str) -> Several:
    return Several((Words((otherwise,)) if figure is None else _of_page(figure, shown_runs),))


def _totals(run: Messages) -> npt.NDArray[np.float64]:
    total = run.wait_us + run.service_us
    return total[~np.isnan(total)]


def _pooled(runs: Iterable[Messages]) -> npt.NDArray[np.float64]:
    return np.concatenate([_totals(run) for run in runs])
