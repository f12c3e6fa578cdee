"""The functions and classes that `import sipsched` provides for JupyterLab (docs/api.md)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import xarray as xr

from sipsched.errors import StableError
from sipsched.pages import tables
from sipsched.pages.explore.ccdf import ccdf
from sipsched.pages.explore.controls import controls, default_pair
from sipsched.pages.explore.heat import heat_map
from sipsched.pages.explore.lanes import lanes
from sipsched.pages.explore.single import MOST_SINGLE, single
from sipsched.pages.explore.slowest import slowest
from sipsched.pages.explore.timeline import Messages, place_in_time, read_messages, timeline, within
from sipsched.pages.explore.waterfall import waterfall
from sipsched.pages.parts import Figure, Several, Table
from sipsched.pages.watched import run_of
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.run import Run
from sipsched.records import messages
from sipsched.records.catalogue import KEYS, Catalogue, check_key, find_runs
from sipsched.records.frames import message_frame, run_frame, window_frame
from sipsched.records.perfetto import write_trace
from sipsched.records.pooled import open_study, quantiles
from sipsched.records.summary_files import open_summary
from sipsched.records.watch import MESSAGES_FILE, read_seconds, read_watch
from sipsched.words import plural

__all__ = ["Plots", "Runs", "Watched", "open", "open_messages", "open_watched", "quantiles"]
RECORDS = ("raw", "recorded/raw", "recorded/fit")
"""Folders in which to search for recorded runs, in this order: the user's own runs, then the published runs."""
RECORDS_WITH_MESSAGES = ("raw", "recorded/fit", "recorded/raw")
"""Folders in which to search for runs with per-message times. Few runs of `recorded/raw` have such times."""
MOST_LISTED = 8
"""Largest number of different values of a setting that the `repr` of `Runs` lists."""


@dataclass(frozen=True, repr=False)
class Runs(Catalogue):
    """The recorded runs of one testbed, which Jupyter shows as a table.

    `sel` selects runs, `messages` returns their messages, and `summary` returns their counts, means and quantiles.
    `windows` returns the windows of a run that compares modes. `plot` draws figures, and `explore` returns controls.
    """

    @property
    def plot(self) -> "Plots":
        """Return an object with the methods that draw figures of these runs."""
        return Plots(self)

    @property
    def with_messages(self) -> "Runs":
        """Return only the runs for which the files with per-message times are available."""
        return replace(self, runs=tuple(filter(self.has_messages, self.runs)))

    @property
    def pair(self) -> "Runs":
        """Return the runs with the lowest and the highest load in calls per second, if possible in the default mode."""
        return replace(self, runs=default_pair(self.runs))

    def versions(self) -> Several:
        """Return two tables for these runs: versions of programs, and hashes of the files with per-message times."""
        return tables.versions(*map(self.messages_file, self.runs))

    def perfetto(self, path: str | Path) -> Path:
        """Write a trace file of the selected run for the viewer Perfetto (https://ui.perfetto.dev).

        Parameters
        ----------
        path
            Path of the file, usually with the ending `.json.gz`. The viewer does not upload the file.

        Raises
        ------
        StableError
            The selection contains several runs, or the per-message times of the run are not available.
        """
        write_trace(messages.open_messages(self.messages_file(self.one)), Path(path))
        return Path(path)

    def explore(self) -> Any:
        """Return JupyterLab controls for selecting two of these runs, a time span and messages."""
        return controls(self)

    def slowest(self, count: int = 10) -> pd.DataFrame:
        """Return a table of the messages with the longest total time (K_rcv + T_sip), and the reasons for these times.

        Returns
        -------
        DataFrame
            See `sipsched.pages.explore.slowest.slowest`. `plot.lanes(message)` draws one of these messages.

        Raises
        ------
        StableError
            The per-message times of a run are not available.
        """
        opened = ((run, messages.open_messages(self.messages_file(run))) for run in self.runs)
        placed = (
            (
                place_in_time(ds, run, self.records / run.path),
                self.in_force(run, ds["t_arr"].to_numpy()).mode,
            )
            for run, ds in opened
        )
        return slowest(placed, self.modes, count)

    def to_dataframe(
        self, rows: Literal["runs", "windows", "messages"] | None = None
    ) -> pd.DataFrame:
        """Return a pandas table with one row per run, window or message, with names instead of codes and times in µs.

        Parameters
        ----------
        rows
            One row per run, one row per window of runs that compare modes, or one row per message. See `run_frame`,
            `window_frame` and `message_frame` of `sipsched.records.frames`. None means one row per run. A selection of
            windows, such as `sel(mode="fifo")` in runs that compare modes, has one row per window.
        """
        if rows is None:
            rows = "windows" if self.has_only_windows else "runs"
        frames = {"runs": run_frame, "windows": window_frame, "messages": message_frame}
        if rows not in frames:
            raise StableError(f"rows: expected one of {', '.join(frames)}, found {rows}")
        return frames[rows](self)

    def __repr__(self) -> str:
        """Return a few lines of text with the number of selected runs and the values of each setting."""
        lines = [
            f"{plural(len(self), 'run')} of testbed {self.runs[0].testbed} in {_shown(self.records)}"
        ]
        for key in KEYS[1:]:
            values = self.values(key)
            if key == "mode":
                values = sorted({mode for run in self.runs for mode in self.modes_of(run)})
            text = ", ".join(map(str, values[:MOST_LISTED]))
            rest = len(values) - MOST_LISTED
            lines.append(
                f"  {key}: {text}" + (f" and {rest} more, to {values[-1]}" if rest > 0 else "")
            )
        return "\n".join(lines)

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
    """The methods that draw figures of recorded runs in JupyterLab. Every figure needs per-message times."""

    runs: Runs

    def ccdf(self, by: str | Sequence[str] | None = None) -> Figure:
        """Draw the share of messages above each time, for receiving time K_rcv, service time T_sip and the sum.

        Each mode of a run that compares modes is drawn as a separate run. For such a mode, the figure has only the
        messages in valid windows, after the washout (the excluded start of a window). A line is the mean over all runs
        with the settings of the line. A band around the line reaches from the lowest to the highest run.

        Parameters
        ----------
        by
            Names of one or several settings, such as `mode`. The figure has one line per value. None: one line per
            combination of settings, so that only repetitions are averaged.

        Raises
        ------
        StableError
            The per-message times of a run are not available, a name is unknown, or the figure has too many lines.
        """
        keys = (by,) if isinstance(by, str) else by
        for key in keys or ():
            check_key(key)
        return ccdf(self._by_mode(), keys)

    def _by_mode(self) -> list[Messages]:
        """Return the messages of each run and scheduler mode, without messages in excluded parts of the run."""
        return [
            place_in_time(ds, part) for run in self.runs.runs for part, ds in self.runs.by_mode(run)
        ]

    def timeline(self, start_s: float = 0.0, length_s: float | None = None) -> Figure:
        """Draw waiting times, queue length and drops over time, for one run or for two runs side by side.

        Parameters
        ----------
        start_s, length_s
            Start of the time span, counted from the first arrival, and its length. None: the span extends to the end of
            the run.

        Raises
        ------
        StableError
            The selection contains more than two runs, or the per-message times of a run are not available.
        """
        if len(self.runs) > 2:
            raise self.runs.several()
        runs = [read_messages(self.runs, run) for run in self.runs.runs]
        return timeline(runs, start_s, length_s)

    def waterfall(self) -> Figure:
        """Draw the parts of the time that a typical message and a slow message take, by message type.

        Raises
        ------
        StableError
            The runs differ in other settings than the repetition, the per-message times of a run are not available, or
            no message has all timestamps.
        """
        if any(key != "rep" for key in self.runs.varied):
            raise self.runs.several()
        parts = self._by_mode()
        modes = dict.fromkeys(part.run.mode for part in parts)
        if len(modes) > 1:
            raise StableError(
                f"these runs compare {', '.join(modes)}: choose a mode with sel(mode=...)"
            )
        return _drawn(waterfall(parts))

    def lanes(self, message: int | None = None) -> Figure:
        """Draw the activity of the proxy's workers while one message waited and was served.

        Parameters
        ----------
        message
            Number of the message in order of arrival, which `Runs.slowest` lists. None: the message whose waiting time
            is nearest to the 99th percentile.

        Raises
        ------
        StableError
            The selection contains several runs, or no message has a waiting time and a service time.
        """
        return _drawn(lanes(read_messages(self.runs, self.runs.one), message))

    def heat_map(self) -> Figure:
        """Draw how the distribution of message times changes over time, for one run.

        Raises
        ------
        StableError
            The selection contains several runs, or no message has a waiting time and a service time.
        """
        return _drawn(heat_map(read_messages(self.runs, self.runs.one)))

    def single(self, start_s: float, length_s: float) -> Figure:
        """Draw each message of one run that arrives in a time span, given in seconds since the first arrival.

        Raises
        ------
        StableError
            The selection contains several runs, or the time span contains no message or too many messages.
        """
        messages_of_run = read_messages(self.runs, self.runs.one)
        figure = single(messages_of_run, start_s, length_s)
        if figure is None:
            seen = within(messages_of_run.at_s, start_s, start_s + length_s)
            raise StableError(
                f"expected 1 to {MOST_SINGLE} messages in {length_s:g} s from {start_s:g} s, found "
                f"{seen.stop - seen.start}"
            )
        return figure


def open_messages(study: str, testbed: str = "local", **where: Any) -> xr.Dataset:
    """Return the messages of all runs of a study as one dataset, which is read from disk only when needed.

    Parameters
    ----------
    study
        Name of the study. The workflow must have made `results/STUDY/TESTBED/summary.nc`.
    where
        Settings of the runs to select (`sut`, `mode`, `cores`, `threads`, `cps`, `rep`): a value or a list of values.

    Returns
    -------
    Dataset
        Dask arrays with one chunk per run; see `sipsched.records.pooled.open_study`. The function `quantiles` computes
        quantiles of this dataset.

    Raises
    ------
    StableError
        The study or the run does not exist, or a run has no `messages.nc`.
    """
    folder = PROJECT_ROOT / "results"
    return open_study(open_summary(folder / study / testbed / "summary.nc"), folder / "runs", where)


def open(
    testbed: str = "local", records: str | Path | None = None, *, messages: bool = False
) -> Runs:
    """Return the recorded runs of a testbed (a set of hosts for measurements).

    Parameters
    ----------
    testbed
        Name of the testbed, which is the name of its file in hardware/testbeds/.
    records
        Folder of the records. A relative path starts at the project's root. None: the first folder of `RECORDS` with
        runs of this testbed.
    messages
        Whether to select only runs with per-message times. Without `records`, the function uses the first folder of
        `RECORDS_WITH_MESSAGES` with such runs.

    Raises
    ------
    StableError
        No run fits the arguments. The message describes the remedy.
    """
    searched = RECORDS_WITH_MESSAGES if messages else RECORDS
    folders = [PROJECT_ROOT / folder for folder in ((records,) if records else searched)]
    for folder in folders:
        catalogue = find_runs(folder, testbed)
        runs = Runs(catalogue.records, catalogue.results, catalogue.runs)
        runs = runs.with_messages if messages else runs
        if runs:
            return runs
    kind = "run with per-message times" if messages else "run"
    where = " or ".join(map(_shown, folders))
    raise StableError(
        f"no {kind} of testbed {testbed} in {where}; snakemake measures missing runs, and "
        "recorded/fit contains runs of testbed local"
    )


@dataclass(frozen=True)
class Watched:
    """A proxy in production, as `fab watch` recorded it (docs/watch.md).

    Attributes
    ----------
    folder
        The folder of the record.
    """

    folder: Path

    def messages(self) -> xr.Dataset:
        """Return a dataset with one row per message and the same variables as `Runs.messages`."""
        return messages.open_messages(self.folder / MESSAGES_FILE)

    def seconds(self) -> pd.DataFrame:
        """Return a table with one row per recorded second. `sipsched.records.watch.Second` describes the columns."""
        return pd.DataFrame([asdict(second) for second in read_seconds(self.folder)])

    @property
    def plot(self) -> "WatchedPlots":
        """Return an object with the methods that draw figures of the recorded messages."""
        ds = self.messages()
        return WatchedPlots(place_in_time(ds, run_of(ds)))


@dataclass(frozen=True)
class WatchedPlots:
    """The methods that draw figures of the messages of a watched proxy, as `Plots` does for runs."""

    _messages: Messages

    def ccdf(self) -> Figure:
        """Draw the share of messages that take longer than a given time."""
        return ccdf([self._messages])

    def timeline(self, start_s: float = 0.0, length_s: float | None = None) -> Figure:
        """Draw waiting times, queue length and drops over time."""
        return timeline([self._messages], start_s, length_s)

    def waterfall(self) -> Figure:
        """Draw the parts of the time that a typical message and a slow message take, by message type."""
        return _drawn(waterfall([self._messages]))

    def heat_map(self) -> Figure:
        """Draw how the distribution of message times changes over time."""
        return _drawn(heat_map(self._messages))


def open_watched(folder: str | Path) -> Watched:
    """Return the record that `fab watch` made of a proxy in production.

    Raises
    ------
    StableError
        The folder is no record of `fab watch`.
    """
    read_watch(Path(folder))
    return Watched(Path(folder))


def _drawn(figure: Figure | None) -> Figure:
    if figure is None:
        raise StableError("nothing to draw: no message has all timestamps that the figure needs")
    return figure


def _shown(folder: Path) -> str:
    if folder.is_relative_to(PROJECT_ROOT):
        return folder.relative_to(PROJECT_ROOT).as_posix()
    return str(folder)
