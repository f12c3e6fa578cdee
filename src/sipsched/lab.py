"""What `import sipsched` offers: runs by their tuple, their messages as xarray, pictures, controls (docs/api.md)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from sipsched.errors import StableError
from sipsched.pages import tables
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.controls import controls, default_pair
from sipsched.pages.explore.heat import heat_map
from sipsched.pages.explore.lanes import lanes
from sipsched.pages.explore.single import MOST_SINGLE, single
from sipsched.pages.explore.timeline import read_messages, timeline, within
from sipsched.pages.explore.waterfall import waterfall
from sipsched.pages.parts import Figure, Table, Words
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Run
from sipsched.records import messages
from sipsched.records.catalogue import Catalogue, find_runs
from sipsched.records.perfetto import write_trace
from sipsched.records.pooled import open_study, quantiles
from sipsched.records.summary import open_summary

__all__ = ["Plots", "Runs", "open", "open_messages", "quantiles"]
RECORDS = ("raw", "recorded/raw", "recorded/fit")
"""One's own, then what comes with the repository: the campaign, reduced, and six runs with their messages."""


@dataclass(frozen=True)
class Runs(Catalogue):
    """Recorded runs of one testbed; Jupyter shows them as a table.

    `sel` chooses of them, `messages` opens their messages, `summary` their numbers, `windows` those of one run
    that compares modes, `plot` draws, `explore` gives controls.
    """

    @property
    def plot(self) -> "Plots":
        """Pictures of these runs."""
        return Plots(self)

    @property
    def with_messages(self) -> "Runs":
        """Those whose single messages are kept."""
        return replace(self, runs=tuple(filter(self.has_messages, self.runs)))

    @property
    def pair(self) -> "Runs":
        """Of the first configuration a run at the lowest load and, if there is another, one at the highest."""
        return replace(self, runs=default_pair(self.runs))

    def versions(self) -> Words:
        """Name the versions of what makes numbers and pictures of these runs, and the hashes of their messages."""
        return tables.versions(*map(self.messages_file, self.runs))

    def perfetto(self, path: str | Path) -> Path:
        """Write the only run as a trace for https://ui.perfetto.dev: workers, waiting messages, drops.

        Parameters
        ----------
        path
            The file, by custom `.json.gz`. Its bytes stay here until you open them there.

        Raises
        ------
        StableError
            There are several runs, or the messages of it are not kept.
        """
        write_trace(messages.open_messages(self.messages_file(self.one)), Path(path))
        return Path(path)

    def explore(self) -> Any:
        """Give controls for JupyterLab: any two of these runs, any stretch of time, single messages."""
        return controls(self)

    def _repr_html_(self) -> str:
        repetitions: dict[tuple[Any, ...], list[Run]] = {}
        for run in self.runs:
            repetitions.setdefault((run.sut, run.mode, run.cores, run.threads, run.cps), []).append(
                run
            )
        rows = [
            (*map(str, key), str(len(runs)), str(sum(map(self.has_messages, runs))))
            for key, runs in repetitions.items()
        ]
        labels = self.document(self.runs[0]).testbed
        return Table(
            identity="table-runs",
            header=("SUT", "mode", "cores", "threads", "cps", "repetitions", "with messages"),
            rows=tuple(rows),
            none="no run",
            caption=f"{len(self)} runs of testbed {labels.name} in {_shown(self.records)}.",
            provenance=f"Kind {labels.kind}. Fidelity: {labels.fidelity}",
        )._repr_html_()


@dataclass(frozen=True)
class Plots:
    """Pictures of runs, for JupyterLab; each needs single messages.

    Attributes
    ----------
    runs
        Which.
    """

    runs: Runs

    def ccdf(self) -> Figure:
        """Draw what share of the messages takes longer than a time: K_rcv, T_sip and their sum.

        Repetitions are one line, their mean, in a band from the lowest run to the highest; runs that differ
        otherwise are lines of their own.

        Raises
        ------
        StableError
            The messages of a run are not kept, or there are more lines than can be told apart.
        """
        return ccdf([read_messages(self.runs, run) for run in self.runs.runs])

    def timeline(self, start_s: float = 0.0, length_s: float | None = None) -> Figure:
        """Draw one run, or two side by side, over time: waits, the queue, drops.

        Parameters
        ----------
        start_s, length_s
            The stretch, from the first arrival; to the end if no length is given.

        Raises
        ------
        StableError
            There are more than two runs, or the messages of one are not kept.
        """
        if len(self.runs) > 2:
            self.runs.one  # noqa: B018 - says what to choose from
        found = [read_messages(self.runs, run) for run in self.runs.runs]
        return timeline(found, start_s, length_s)

    def waterfall(self) -> Figure:
        """Draw what the time of a usual message, and of a slow one, is made of, by its type.

        Raises
        ------
        StableError
            The runs differ in more than the repetition, the messages of one are not kept, or none has every stamp.
        """
        others = [key for key in self.runs.varied if key != "rep"]
        if others:
            self.runs.one  # noqa: B018 - says what to choose from
        return _drawn(waterfall([read_messages(self.runs, run) for run in self.runs.runs]))

    def lanes(self) -> Figure:
        """Draw who ran while a message of the only run waited whose wait is next to the 99th percentile.

        Raises
        ------
        StableError
            There are several runs, or no message has wait and service.
        """
        return _drawn(lanes(read_messages(self.runs, self.runs.one)))

    def heat_map(self) -> Figure:
        """Draw how many messages of the only run took how long, over time.

        Raises
        ------
        StableError
            There are several runs, or no message has wait and service.
        """
        return _drawn(heat_map(read_messages(self.runs, self.runs.one)))

    def single(self, start_s: float, length_s: float) -> Figure:
        """Draw each message of the only run that arrives in a stretch of time.

        Raises
        ------
        StableError
            There are several runs, or the stretch has no message, or more than can be told apart.
        """
        found = read_messages(self.runs, self.runs.one)
        figure = single(found, start_s, length_s)
        if figure is None:
            seen = within(found.at_s, start_s, start_s + length_s)
            raise StableError(
                f"expected 1 to {MOST_SINGLE} messages in {length_s:g} s from {start_s:g} s, found "
                f"{seen.stop - seen.start}"
            )
        return figure


def open_messages(study: str, testbed: str = "local", **where: Any) -> xr.Dataset:
    """Open all messages of a study as one; nothing is read until it is asked for.

    Parameters
    ----------
    study
        Its name: the workflow has to have made `results/STUDY/TESTBED/summary.nc`.
    testbed
        Its name.
    where
        `sut`, `mode`, `cores`, `threads`, `cps`, `rep`: a value, or a list of them; only such runs.

    Returns
    -------
    Dataset
        Over Dask, a chunk a run: see `sipsched.records.pooled.open_study`. `quantiles` reduces it.

    Raises
    ------
    StableError
        There is no such study or run, or `messages.nc` of some are not there.
    """
    folder = PROJECT_ROOT / "results"
    return open_study(open_summary(folder / study / testbed / "summary.nc"), folder / "runs", where)


def open(
    testbed: str = "local", records: str | Path | None = None, *, messages: bool = False
) -> Runs:
    """Open the recorded runs of a testbed.

    Parameters
    ----------
    testbed
        Its name, as in hardware/testbeds/.
    records
        Folder of the records; relative ones start at the project's root. None: of `RECORDS` the first
        that has runs of this testbed, so your own where there are any.
    messages
        Only runs whose single messages are kept; without `records`, of the first folder that has such.

    Raises
    ------
    StableError
        There is no such run; the message says what to do.
    """
    folders = [PROJECT_ROOT / folder for folder in ((records,) if records else RECORDS)]
    for folder in folders:
        found = find_runs(folder, testbed)
        runs = Runs(found.records, found.results, found.runs)
        runs = runs.with_messages if messages else runs
        if runs:
            return runs
    kind = "run whose single messages are kept" if messages else "run"
    where = " or ".join(map(_shown, folders))
    raise StableError(
        f"no {kind} of testbed {testbed} in {where}; snakemake measures what is missing there, and "
        "recorded/fit has some of testbed local"
    )


def _drawn(figure: Figure | None) -> Figure:
    if figure is None:
        raise StableError("no message has all the times that this picture needs: nothing to draw")
    return figure


def _shown(folder: Path) -> str:
    if folder.is_relative_to(PROJECT_ROOT):
        return folder.relative_to(PROJECT_ROOT).as_posix()
    return str(folder)
