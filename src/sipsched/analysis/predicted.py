"""The comparison of predicted with measured effects of modes, of numbers of threads and of numbers of cores.

Predictions use only measurements in the default mode (`sipsched.analysis.model_fit`, `sipsched.measure.prediction`).
Only this module compares predictions with measured effects.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from sipsched.analysis.advice import ComparedLoad
from sipsched.analysis.crossover import Scale, effect, percent
from sipsched.analysis.families import SIGNIFICANT
from sipsched.analysis.intervals import LEVEL, Interval, Values
from sipsched.analysis.pairs import compare, holm
from sipsched.analysis.run_table import Campaign
from sipsched.plan.modes import DEFAULT, split_name
from sipsched.records.prediction import UNITS, Predicted, PredictedSetting, Predictions

PREDICTED_QUANTITIES = ("k_rcv_p50", "t_sip_mean", "t_sip_p90", "off_share", "cpu_per_message")
OF_RUNS = {
    "k_rcv_p50": "k_rcv_p50",
    "t_sip_mean": "t_sip_mean",
    "t_sip_p95": "t_sip_p95",
    "off_share": "off_share",
    "cpu_per_message": "cpu_per_message",
}
"""Names of columns in a campaign's table of runs, per quantity."""
DIFFERENCES = ("off_share",)
"""Quantities for which two settings are compared by the difference in percentage points, not by the ratio.

All other quantities are compared by their ratio, in percent.
"""


@dataclass(frozen=True)
class Contrast:
    """The measured and the predicted effect of another mode, number of threads or number of cores on a quantity.

    Attributes
    ----------
    reference, other
        Settings that differ in the mode, in the number of threads or in the number of cores.
    quantity
        One of `UNITS`.
    measured
        Measured effect in percent or in percentage points, with its own 95 % interval.
    p_value
        P-value of the hypothesis of no change, adjusted by Holm over all effects of the page; NaN without a test.
    predicted
        Predicted effect in percent or in percentage points, with the 95 % prediction interval of simulated replicates.
    start
        Number of the start, if the run compares several starts of a proxy with equal settings.
    """

    reference: PredictedSetting
    other: PredictedSetting
    quantity: str
    measured: Interval
    p_value: float
    predicted: Interval
    start: int = 1

    @property
    def comparable(self) -> bool:
        """True if the measured effect has a confidence interval and a prediction of the effect exists."""
        return self.measured.known and not np.isnan(self.predicted.estimate)

    @property
    def inside(self) -> bool:
        """True if the predicted effect is inside the confidence interval of the measured effect."""
        return (
            self.comparable and self.measured.low <= self.predicted.estimate <= self.measured.high
        )

    @property
    def told(self) -> bool:
        """True if the measured effect differs significantly from no change."""
        return self.comparable and self.p_value <= SIGNIFICANT

    @property
    def signed(self) -> bool:
        """True if the prediction has a sign: its interval excludes 0, or its only replicate differs from 0."""
        return self.predicted.excludes_zero or (
            not self.predicted.known and self.predicted.estimate != 0
        )

    @property
    def sign_right(self) -> bool:
        """True if the prediction has a sign, and the measured effect has the same sign."""
        return self.signed and self.measured.estimate * self.predicted.estimate > 0

    @property
    def sign_wrong(self) -> bool:
        """True if the prediction has a sign, and the measured effect does not have this sign."""
        return self.signed and not self.sign_right

    @property
    def overlaps(self) -> bool:
        """True if the measured effect's confidence interval and the prediction interval overlap."""
        return (
            self.comparable
            and self.predicted.known
            and self.predicted.low <= self.measured.high
            and self.measured.low <= self.predicted.high
        )


@dataclass(frozen=True)
class Level:
    """A quantity's measured and simulated value in the default mode, to which the simulator was fitted."""

    setting: PredictedSetting
    quantity: str
    runs: tuple[float, ...]
    predicted: Interval


@dataclass(frozen=True)
class Check:
    """The predictions for a campaign (all studies on one testbed), and the corresponding measured effects.

    Attributes
    ----------
    contrasts
        Effects of modes and of numbers of threads. The effects of modes come first.
    levels
        Quantities in the default mode, from separate runs.
    """

    predictions: Predictions
    contrasts: tuple[Contrast, ...]
    levels: tuple[Level, ...]

    @property
    def comparable(self) -> tuple[Contrast, ...]:
        """The effects that have a measured confidence interval and a prediction."""
        return tuple(contrast for contrast in self.contrasts if contrast.comparable)


def check(
    predictions: Predictions, loads: Iterable[ComparedLoad], campaigns: Iterable[Campaign]
) -> Check:
    """Compare the simulator's predictions of effects with the effects that a campaign measured.

    Parameters
    ----------
    loads
        Runs that compare modes, from `advice.read_loads`.
    campaigns
        Summaries of separate runs in the default mode.
    """
    known = {prediction.setting: prediction for prediction in predictions.predicted}
    runs = [_default_runs(campaign, predictions.fitted.sut) for campaign in campaigns]
    compared = [contrast for load in loads for contrast in _modes(load, known)]
    compared += [contrast for table in runs for contrast in _threads(table, known)]
    adjusted = holm([p_value for *_, p_value, _ in compared])
    contrasts = tuple(
        Contrast(
            reference,
            other,
            quantity,
            measured,
            float(p_value),
            _predicted(known[reference], known[other], quantity),
            start,
        )
        for (reference, other, quantity, measured, _, start), p_value in zip(
            compared, adjusted, strict=True
        )
    )
    levels = tuple(level for table in runs for level in _levels(table, known))
    return Check(predictions, contrasts, levels)


_Found = tuple[PredictedSetting, PredictedSetting, str, Interval, float, int]


def _modes(load: ComparedLoad, known: Mapping[PredictedSetting, Predicted]) -> Iterable[_Found]:
    system = load.place
    at = (system.cores, system.threads, load.cps)
    reference = PredictedSetting.of_mode(system.sut, system.reference, *at)
    for mode in load.modes:
        other = PredictedSetting.of_mode(system.sut, mode, *at)
        if reference is None or other is None or other == reference:
            continue
        if reference not in known or other not in known:
            continue
        for quantity in PREDICTED_QUANTITIES:
            if quantity in DIFFERENCES:
                tables = [
                    1 - service / t_sip
                    for service, t_sip in zip(
                        load.tables(mode, "service"), load.tables(mode, "t_sip_mean"), strict=True
                    )
                ]
                judged = effect(tables, (0, 1), 2, Scale.DIFFERENCE)
            else:
                judged = load.effect(mode, quantity)
            interval = judged.interval
            shown = _points(interval) if quantity in DIFFERENCES else percent(interval)
            yield reference, other, quantity, shown, judged.p_value, split_name(mode)[1].start or 1


def _default_runs(campaign: Campaign, sut: str) -> pd.DataFrame:
    runs = campaign.traced
    runs = runs[(runs["sut"] == sut) & (runs["mode"] == DEFAULT)]
    return runs.assign(
        off_share=runs["t_sip_off_mean"] / runs["t_sip_mean"],
        cpu_per_message=runs["proxy_cpu_ns"] / runs["in_datagrams"] / 1000,
    )


def _of_run(sut: str, cores: int, threads: int, cps: int) -> PredictedSetting:
    return PredictedSetting(sut, DEFAULT, cores, threads, cps, False)


def _threads(runs: pd.DataFrame, known: Mapping[PredictedSetting, Predicted]) -> Iterable[_Found]:
    """Compare numbers of threads at equal load and cores. The number of threads with the most runs is the reference."""
    for (sut, cores, cps), group in runs.groupby(["sut", "cores", "cps"]):
        counts = group["threads"].value_counts()
        # Count the runs at all loads, so that different loads have the same reference where possible.
        elsewhere = runs["threads"].value_counts()
        order = sorted(counts.index, key=lambda n: (-elsewhere[n], n))
        reference = _of_run(sut, int(cores), int(order[0]), int(cps))
        for threads in sorted(order[1:]):
            other = _of_run(sut, int(cores), int(threads), int(cps))
            if reference not in known or other not in known:
                continue
            for quantity, column in OF_RUNS.items():
                table = group.pivot_table(index="rep", columns="threads", values=column)
                pair = table[[reference.threads, other.threads]].dropna().to_numpy(float)
                compared = compare(pair[:, 0], pair[:, 1])
                if quantity in DIFFERENCES:
                    shown = _points(compared.difference)
                else:
                    shown = compared.ratio.map(lambda ratio: 100 * (ratio - 1))
                yield reference, other, quantity, shown, compared.p_value, 1


def _points(interval: Interval) -> Interval:
    return interval.map(lambda value: 100 * value)


def _predicted(reference: Predicted, other: Predicted, quantity: str) -> Interval:
    """Return the predicted effect of `other` on a quantity, with a prediction interval over simulated replicates."""
    column = list(UNITS).index(quantity)
    # The simulator reports the CPU time only per run, so the CPU time has no value per window.
    whole = not reference.setting.compared or quantity == "cpu_per_message"
    if whole:
        first, second = (prediction.whole[:, None, column] for prediction in (reference, other))
    else:
        count = min(reference.windows.shape[1], other.windows.shape[1])
        first, second = (prediction.windows[:, :count, column] for prediction in (reference, other))
    if quantity in DIFFERENCES:
        return _points(replicates((second - first).mean(axis=1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return percent(replicates(np.log(second / first).mean(axis=1)))


def replicates(values: Values) -> Interval:
    """Return the mean of simulated replicates with a 95 % prediction interval (Student's t).

    Each replicate has its own arrivals, and its own parameters, which are fitted to a random sample of the runs.
    """
    values = values[np.isfinite(values)]
    if not values.size:
        return Interval.without(np.nan, 0, why="not predicted")
    mean = float(values.mean())
    if values.size < 2:
        return Interval.without(mean, 1)
    quantile = float(special.stdtrit(values.size - 1, (1 + LEVEL) / 2))
    half = quantile * float(values.std(ddof=1)) * float(np.sqrt(1 + 1 / values.size))
    return Interval(mean, mean - half, mean + half, values.size, LEVEL, "t of one more replicate")


def _levels(runs: pd.DataFrame, known: Mapping[PredictedSetting, Predicted]) -> Iterable[Level]:
    for key, group in runs.groupby(["sut", "cores", "threads", "cps"]):
        sut, *numbers = key
        setting = _of_run(sut, *map(int, numbers))
        if setting not in known:
            continue
        for quantity, column in OF_RUNS.items():
            place = list(UNITS).index(quantity)
            values = tuple(float(value) for value in group[column].dropna())
            yield Level(setting, quantity, values, replicates(known[setting].whole[:, place]))


def by_quantity(contrasts: Sequence[Contrast]) -> dict[str, tuple[Contrast, ...]]:
    """Return the effects in one tuple per quantity, with the quantities in the order of `UNITS`."""
    return {
        name: found_contrasts
        for name in UNITS
        if (
            found_contrasts := tuple(
                contrast for contrast in contrasts if contrast.quantity == name
            )
        )
    }
