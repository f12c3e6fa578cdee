"""The data of the paper: the comparisons per study, all runs of a testbed, the published numbers, the simulations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import xarray as xr

from sipsched.analysis import papers, papers_predicted
from sipsched.analysis.advice import Advice, ComparedLoad, Ranking, advise, find_windows, read_loads
from sipsched.analysis.probe_cost import ProbeCost, probe_costs
from sipsched.analysis.run_table import Campaign, known_capacities, read_campaigns
from sipsched.pages import messages, predicted
from sipsched.pages.index.tiles import main_system
from sipsched.records.summary_files import open_summary, split_summary_path
from sipsched.records.system_capacity import SystemCapacity

PAPERS_MODES, SETTINGS, WORKERS, VERSIONS = "crossover", "advice", "workers", "versions"
"""Names of the studies that compare the papers' modes, current kernels' settings, numbers of workers, and versions."""
COMPARED = (PAPERS_MODES, SETTINGS, WORKERS, VERSIONS)
PROBE = "probe_cost"
"""Name of the study that measures the CPU cost of the probe (the BPF program that records messages)."""
REPLACING = (SETTINGS, WORKERS, VERSIONS)
"""Names of the studies (sets of runs) that look for a replacement of the papers' settings."""
QUANTITIES = ("k_rcv_mean", "t_sip_mean", "cpu_per_message")
"""Quantities that the paper shows in addition to the quantities that decide a recommendation."""
SWEEP = "load_sweep"
PREDICTED = (SWEEP, "threads", PAPERS_MODES, SETTINGS)
"""Names of the studies (sets of runs) with measurements that the simulator predicts."""


@dataclass(frozen=True)
class Material:
    """All data that the paper shows: measured comparisons, published numbers and simulated predictions.

    Attributes
    ----------
    campaign
        All runs of the first testbed with runs; None without any summary.
    sweep
        The summary of the load sweep; None if it is missing.
    compared
        The comparisons of each study of `COMPARED`, by the name of the study. Studies without a valid run have none.
    costs
        The cost of the probe.
    points, comparison, checks
        The published numbers, the published comparisons of modes, and the audit of these numbers.
    predictions
        The simulator's predictions for the campaign, beside the measurements.
    simulated
        The published effects beside the simulation of the papers' testbed.
    traced
        Runs with single messages.
    limit
        Packet drop rate at which capacity ends, as a share.
    files
        The files from which the numbers are computed.
    """

    campaign: Campaign | None
    sweep: xr.Dataset | None
    compared: Mapping[str, tuple[Advice, ...]]
    costs: Sequence[ProbeCost]
    points: pd.DataFrame
    comparison: pd.DataFrame
    checks: pd.DataFrame
    predictions: predicted.CheckedPredictions
    simulated: Sequence[papers_predicted.PublishedEffect]
    traced: messages.ShownRuns
    limit: float
    files: tuple[Path, ...]

    def advice(self, *studies: str) -> list[Advice]:
        """Return the comparisons of scheduler modes in the named studies, in the order of the names."""
        return [advice for study in studies for advice in self.compared.get(study, ())]

    def rankings(self, *studies: str) -> list[Ranking]:
        """Return the rankings of modes in the named studies, one for each load at which confidence intervals exist."""
        ranked = (ranking for advice in self.advice(*studies) for ranking in advice.rankings)
        return [ranking for ranking in ranked if ranking.judged]

    @property
    def loads(self) -> list[ComparedLoad]:
        """The loads of all studies that compare modes, each with its runs."""
        return [ranking.load for advice in self.advice(*COMPARED) for ranking in advice.rankings]

    @property
    def system(self) -> SystemCapacity | None:
        """The proxy configuration with the most evidence about its capacity; None if no capacity was estimated."""
        return main_system(self.campaign, self.limit)[0] if self.campaign else None


# The function `read` has one parameter per input of the page, because the Snakemake rule passes inputs separately.
# The function `read` is longer than others, because it reads each input once and fills a field with each result.
def read(
    summaries: Iterable[Path],
    windows: Sequence[str | Path] | None,
    crossings: Sequence[Path],
    capacities: Iterable[str | Path] | None,
    predictions: Iterable[Path],
    records: Sequence[Path],
    *,
    published: Path,
    simulated: Path,
    limit: float,
) -> Material:
    """Read the data of the paper. Missing files are not an error.

    Parameters
    ----------
    windows
        Files `windows.nc` of all runs that compare modes. None: all existing files of these runs.
    records
        Folders of runs with single messages.
    published
        Folder of the published numbers.
    simulated
        File with simulated runs of the papers' testbed.
    """
    known = known_capacities(capacities)
    predicted_files = [path for path in predictions if path.is_file()]
    existing = [path for path in summaries if path.is_file()]
    campaigns = read_campaigns(existing, known) if existing else []
    campaign = next(
        (campaign for campaign in campaigns if len(campaign.counted)), next(iter(campaigns), None)
    )
    testbed = campaign.testbed if campaign else "local"
    parts = {path: split_summary_path(path) for path in existing}
    files = {part.study: path for path, part in parts.items() if part.testbed == testbed}
    comparison = papers.load_comparison(published)
    runs = [path for path in (simulated,) if path.is_file()]
    compared_runs = {
        study: find_windows(files[study], windows) for study in (*COMPARED, PROBE) if study in files
    }
    compared = {
        study: advise(read_loads(compared_runs[study], crossings, known), QUANTITIES)
        for study in COMPARED
        if study in files
    }
    predicted_studies = [files[study] for study in PREDICTED if study in files]
    of_modes = [path for study in (PAPERS_MODES, SETTINGS) for path in compared_runs.get(study, ())]
    return Material(
        campaign=campaign,
        sweep=open_summary(files[SWEEP]) if SWEEP in files else None,
        compared={study: comparisons for study, comparisons in compared.items() if comparisons},
        costs=probe_costs([path for paths in compared_runs.values() for path in paths]),
        points=papers.load_points(published),
        comparison=comparison,
        checks=papers.load_audit(published),
        predictions=predicted.read(predicted_files, predicted_studies, of_modes),
        simulated=[
            effect
            for path in runs
            for effect in papers_predicted.effects(
                papers_predicted.load_predictions(path), comparison
            )
        ],
        traced=messages.read(testbed, records, known),
        limit=limit,
        files=(
            *files.values(),
            *predicted_files,
            *(published / name for name in papers.FILES),
            *runs,
        ),
    )
