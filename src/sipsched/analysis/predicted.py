"""What the simulator predicted beside what was measured: effects of modes and of numbers of threads.

The prediction is made of mode `default` (`sipsched.analysis.model_fit`, `sipsched.measure.prediction`) and read
here; only here do the two meet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from sipsched.analysis.advice import Load, settled
from sipsched.analysis.crossover import Scale, effect, percent
from sipsched.analysis.families import SIGNIFICANT
from sipsched.analysis.run_table import Campaign
from sipsched.analysis.statistics import LEVEL, Interval, Values, compare, holm
from sipsched.plan.modes import DEFAULT
from sipsched.records.prediction import UNITS, Predicted, Predictions, Setting

QUANTITIES = ("k_rcv_p50", "t_sip_mean", "t_sip_p90", "off_share", "cpu_per_message")
OF_RUNS = {
    "k_rcv_p50": "k_rcv_p50",
    "t_sip_mean": "t_sip_mean",
    "t_sip_p95": "t_sip_p95",
    "off_share": "off_share",
    "cpu_per_message": "cpu_per_message",
}
"""Of separate runs, whose summaries have other percentiles: names here to columns of a campaign."""
DIFFERENCES = ("off_share",)
"""Compared by their difference, in points; all else by ratio, in percent."""


@dataclass(frozen=True)
class Contrast:
    """A quantity of a setting beside that of a reference, measured and predicted.

    Attributes
    ----------
    reference, other
        Settings that differ in mode or in threads.
    quantity
        Of `UNITS`.
    measured
        In percent, or in points; its interval at 95 % for itself.
    p_value
        That nothing changes, after Holm over all contrasts of the page; NaN without a test.
    predicted
        Likewise; the interval is where 95 % of replicates lie.
    """

    reference: Setting
    other: Setting
    quantity: str
    measured: Interval
    p_value: float
    predicted: Interval

    @property
    def comparable(self) -> bool:
        """Whether there is an interval to lie in, and a prediction."""
        return self.measured.known and not np.isnan(self.predicted.estimate)

    @property
    def inside(self) -> bool:
        """Whether the prediction lies in the measured interval."""
        return (
            self.comparable and self.measured.low <= self.predicted.estimate <= self.measured.high
        )

    @property
    def told(self) -> bool:
        """Whether what was measured is more than chance."""
        return self.comparable and self.p_value <= SIGNIFICANT

    @property
    def sign_right(self) -> bool:
        """Whether the two go the same way."""
        return self.measured.estimate * self.predicted.estimate > 0

    @property
    def overlaps(self) -> bool:
        """Whether the two intervals have a value in common."""
        return (
            self.comparable
            and self.predicted.known
            and self.predicted.low <= self.measured.high
            and self.measured.low <= self.predicted.high
        )


@dataclass(frozen=True)
class Level:
    """A quantity of a setting in mode `default`, which the model was fitted to: measured and simulated."""

    setting: Setting
    quantity: str
    runs: tuple[float, ...]
    predicted: Interval


@dataclass(frozen=True)
class Check:
    """What was predicted of a campaign, and what of it was measured.

    Attributes
    ----------
    predictions
        As they were read.
    contrasts
        Those that were measured, modes first.
    levels
        Of mode `default` in separate runs.
    """

    predictions: Predictions
    contrasts: tuple[Contrast, ...]
    levels: tuple[Level, ...]

    @property
    def comparable(self) -> tuple[Contrast, ...]:
        """Those with an interval and a prediction."""
        return tuple(each for each in self.contrasts if each.comparable)


def check(predictions: Predictions, loads: Iterable[Load], campaigns: Iterable[Campaign]) -> Check:
    """Put predictions beside measurements.

    Parameters
    ----------
    predictions
        What was predicted.
    loads
        Comparisons of modes within runs, as `advice.read_loads` gives them.
    campaigns
        Summaries, for separate runs of mode `default`.
    """
    known = {each.setting: each for each in predictions.predicted}
    runs = [_default_runs(campaign, predictions.fitted.sut) for campaign in campaigns]
    found = [each for load in loads for each in _modes(load, known)]
    found += [each for table in runs for each in _threads(table, known)]
    adjusted = holm([p_value for *_, p_value in found])
    contrasts = tuple(
        Contrast(
            reference,
            other,
            quantity,
            measured,
            float(p_value),
            _predicted(known[reference], known[other], quantity),
        )
        for (reference, other, quantity, measured, _), p_value in zip(found, adjusted, strict=True)
    )
    levels = tuple(each for table in runs for each in _levels(table, known))
    return Check(predictions, contrasts, levels)


_Found = tuple[Setting, Setting, str, Interval, float]


def _modes(load: Load, known: Mapping[Setting, Predicted]) -> Iterable[_Found]:
    place = load.place

    def setting(mode: str) -> Setting:
        return Setting(place.sut, mode, place.cores, place.threads, load.cps, True)

    reference = setting(place.reference)
    for mode in load.modes:
        other = setting(mode)
        if reference not in known or other not in known:
            continue
        for quantity in QUANTITIES:
            if quantity in DIFFERENCES:
                tables = [
                    1 - service / t_sip
                    for service, t_sip in zip(
                        load.tables(mode, "service"), load.tables(mode, "t_sip_mean"), strict=True
                    )
                ]
                judged = effect(tables, 0, 1, Scale.DIFFERENCE)
            else:
                judged = load.effect(mode, quantity)
            interval = settled(judged)
            shown = _points(interval) if quantity in DIFFERENCES else percent(interval)
            yield reference, other, quantity, shown, judged.p_value


def _default_runs(campaign: Campaign, sut: str) -> pd.DataFrame:
    runs = campaign.traced
    runs = runs[(runs["sut"] == sut) & (runs["mode"] == DEFAULT)]
    return runs.assign(
        off_share=runs["t_sip_off_mean"] / runs["t_sip_mean"],
        cpu_per_message=runs["proxy_cpu_ns"] / runs["in_datagrams"] / 1000,
    )


def _of_run(sut: str, cores: int, threads: int, cps: int) -> Setting:
    return Setting(sut, DEFAULT, cores, threads, cps, False)


def _threads(runs: pd.DataFrame, known: Mapping[Setting, Predicted]) -> Iterable[_Found]:
    """Compare numbers of threads with the most often measured one, over runs with the same arrivals."""
    for (sut, cores, cps), group in runs.groupby(["sut", "cores", "cps"]):
        counts = group["threads"].value_counts()
        # of equals the one that more loads have been measured with
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
                yield reference, other, quantity, shown, compared.p_value


def _points(interval: Interval) -> Interval:
    return interval.map(lambda value: 100 * value)


def _predicted(reference: Predicted, other: Predicted, quantity: str) -> Interval:
    """Give the effect over replicates: of windows side by side, or of whole runs."""
    column = list(UNITS).index(quantity)
    # of CPU time there is one number a run
    whole = not reference.setting.compared or quantity == "cpu_per_message"
    if whole:
        first, second = (each.whole[:, None, column] for each in (reference, other))
    else:
        count = min(reference.windows.shape[1], other.windows.shape[1])
        first, second = (each.windows[:, :count, column] for each in (reference, other))
    if quantity in DIFFERENCES:
        return _points(replicates((second - first).mean(axis=1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return percent(replicates(np.log(second / first).mean(axis=1)))


def replicates(values: Values) -> Interval:
    """Give the mean of replicates, and where 95 % of such replicates lie: t for one more of them.

    Each has arrivals of its own and numbers fitted to a sample of the runs of its own.
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


def _levels(runs: pd.DataFrame, known: Mapping[Setting, Predicted]) -> Iterable[Level]:
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
    """Sort contrasts by their quantity, in the order of `UNITS`."""
    return {
        name: found
        for name in UNITS
        if (found := tuple(each for each in contrasts if each.quantity == name))
    }
