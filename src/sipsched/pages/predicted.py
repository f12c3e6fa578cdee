"""The simulator's predictions of the effects of settings, compared with the measured effects.

The simulator was fitted only to runs in the default mode.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sipsched.analysis.advice import read_loads
from sipsched.analysis.intervals import Interval
from sipsched.analysis.predicted import DIFFERENCES, Check, Contrast, Level, by_quantity, check
from sipsched.analysis.run_table import Campaign, campaigns_of
from sipsched.pages.numbers import Number, in_us, rounded, told
from sipsched.pages.parts import Answer, Figure, Heading, Table, Words
from sipsched.pages.plots import PredictedPoint, draw_predictions, wrapped
from sipsched.pages.tables import AGREES, competitors
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import PredictedSetting, Predictions, open_predictions
from sipsched.records.summary_files import open_summary, split_summary_path
from sipsched.words import grouped, listed, number, plural

TITLES = {
    "k_rcv_mean": "K_rcv mean",
    "k_rcv_p50": "K_rcv p50",
    "t_sip_mean": "T_sip mean",
    "t_sip_p90": "T_sip p90",
    "t_sip_p95": "T_sip p95",
    "off_share": "T_sip off CPU",
    "cpu_per_message": "CPU per message",
}
IN_SENTENCES = {
    "k_rcv_mean": "the mean waiting time K_rcv",
    "k_rcv_p50": "the median waiting time K_rcv",
    "t_sip_mean": "the mean service time T_sip",
    "t_sip_p90": "the 90th percentile of the service time T_sip",
    "t_sip_p95": "the 95th percentile of the service time T_sip",
    "off_share": "the share of the service time T_sip off CPU",
    "cpu_per_message": "the CPU time per message",
}
"""The name of each quantity in sentences."""
PROGRAMS = {
    "other": "normal programs",
    "idle": "SCHED_IDLE programs",
    "fifo": "real-time programs",
}
"""The name of the programs of each scheduling class of competitors."""
MISSES_TOLD = 8
NOTHING = "There is no comparison yet: "
MODEL = "Predicted by simulation, not measured"
BOTH = "Predicted numbers come from a simulation, and measured numbers from runs"


@dataclass(frozen=True)
class CheckedPredictions:
    """The data of the page: predicted and measured effects of settings, and the measured campaigns."""

    check: Check
    campaigns: tuple[Campaign, ...] = ()

    @property
    def provenance(self) -> str:
        """The label that states whether the compared runs were measured or simulated."""
        return "; ".join(dict.fromkeys(campaign.provenance for campaign in self.campaigns))

    @property
    def of_both(self) -> str:
        """The label of tables and figures with predicted and measured numbers."""
        return ". ".join(filter(None, (BOTH, self.provenance)))

    @property
    def description(self) -> str:
        """The descriptions of the measured testbeds, as text."""
        return "; ".join(dict.fromkeys(campaign.description for campaign in self.campaigns))

    @property
    def why_not(self) -> str:
        """The reason why predictions cannot be compared with measurements, as text. Empty if a comparison exists."""
        if self.check.comparable:
            return ""
        fitted = self.check.predictions.fitted
        if not fitted.numbers:
            return fitted.why or "no model was fitted"
        if not self.check.contrasts:
            return "no run compares modes, and only one number of threads was measured"
        return "the measured effects have no interval"


def read(
    predictions: Iterable[Path], summaries: Iterable[Path], windows: Iterable[Path]
) -> CheckedPredictions:
    """Read the simulator's predictions and the summaries of the measured runs.

    Parameters
    ----------
    predictions
        Files `settings.nc`. The page uses the first testbed with a fit.
    """
    opened = [open_predictions(Path(path)) for path in predictions if Path(path).is_file()]
    nothing = Predictions(Fitted(why="nothing was predicted"), 0.0, ())
    chosen = next(
        (predictions for predictions in opened if predictions.fitted.numbers),
        next(iter(opened), nothing),
    )
    paths = [Path(path) for path in summaries if Path(path).is_file()]
    campaigns = campaigns_of((split_summary_path(path).study, open_summary(path)) for path in paths)
    loads = read_loads([Path(path) for path in windows if Path(path).is_file()])
    return CheckedPredictions(check(chosen, loads, campaigns), tuple(campaigns))


def answer(predictions: CheckedPredictions) -> Answer:
    """Return sentences that count the predictions inside the measured 95 % interval, and the right predicted signs."""
    if predictions.why_not:
        return Answer(f"{NOTHING}{predictions.why_not}.")
    comparable = predictions.check.comparable
    inside = sum(contrast.inside for contrast in comparable)
    told = [contrast for contrast in comparable if contrast.told]
    first = (
        f"{inside} of {len(comparable)} predictions lie inside the 95\u00a0% interval of their measurement"
        if len(comparable) > 1
        else f"the only prediction lies {'inside' if inside else 'outside'} the 95\u00a0% interval of its measurement"
    )
    right = sum(contrast.sign_right for contrast in told)
    if told:
        effects = plural(len(told), "effect")
        second = (
            f"Of the {effects} that are distinguishable from chance, the simulator predicts {right} with the right "
            f"sign, {sum(contrast.sign_wrong for contrast in told)} with the wrong sign and "
            f"{sum(not contrast.signed for contrast in told)} without a sign"
        )
    else:
        second = "No measured effect is distinguishable from chance, so the predicted signs cannot be checked"
    share = inside / len(comparable)
    return Answer(f"{_judged(share, right / len(told) if told else share)}: {first}. {second}.")


def _judged(inside: float, right: float) -> str:
    """Return "Yes", "In part" or "No" from the shares of predictions inside the interval and with the right sign."""
    if inside >= AGREES and right >= AGREES:
        return "Yes"
    return "No" if inside < 0.5 and right < 0.5 else "In part"


def fitted_to(predictions: CheckedPredictions) -> Words:
    """Return two sentences: the runs to which the simulator's model was fitted, and the competitors of the model."""
    fitted = predictions.check.predictions.fitted
    if not fitted.numbers:
        return Words((f"No model was fitted. Reason: {fitted.why}.",) if fitted.why else ())
    return Words(
        (
            f"The model was fitted to {plural(len(fitted.runs), 'run')} of the default mode "
            f"({grouped(fitted.messages)} messages), and to no other runs.",
            _competitors(fitted),
        )
    )


def _competitors(fitted: Fitted) -> str:
    """Return a sentence about the competitors of the model and the source of their numbers."""
    source = fitted.competitors_source
    if not fitted.competitors:
        return f"The model has no competitors{f', because {source}' if source else ''}."
    programs = listed(
        [
            f"{PROGRAMS[one.policy]}{f' of nice value {one.nice}' if one.nice else ''} use "
            f"{number(100 * one.share)}\u00a0% of the proxy's first CPU, in bursts of "
            f"{number(one.burst_us)}\u00a0µs every {number(one.every_us / 1000)}\u00a0ms"
            for one in fitted.competitors
        ]
    )
    return f"The numbers of the model's competitors are not fitted, but come from {source}: {programs}."


def conditions(predictions: CheckedPredictions) -> Words:
    """Return a sentence about the share of the proxy machine's CPU time that other programs used in measured runs."""
    return competitors(predictions.campaigns)


def heading(predictions: CheckedPredictions) -> Heading:
    """Return the heading of the page: the origin of the predicted and measured numbers."""
    return Heading(
        fidelity=f"{predictions.of_both}.",
        testbed=" ".join(
            f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}."
            for campaign in predictions.campaigns
        ),
        description=predictions.description,
    )


def by_kind(predictions: CheckedPredictions) -> Table:
    """Return a table that counts, for each quantity, the predictions that agree with the measurement."""
    rows = []
    for name, group in by_quantity(predictions.check.comparable).items():
        told = [contrast for contrast in group if contrast.told]
        errors = [
            abs(contrast.predicted.estimate - contrast.measured.estimate) for contrast in group
        ]
        rows.append(
            (
                *(TITLES[name], str(len(group)), str(sum(contrast.inside for contrast in group))),
                *(str(sum(contrast.overlaps for contrast in group)), str(len(told))),
                *(str(sum(of)) for of in _signs(told)),
                f"{number(float(np.median(errors)))} {_unit(name)}",
            )
        )
    return Table(
        identity="table-predicted-counts",
        header=(
            *("quantity", "predictions", "inside", "intervals overlap", "more than chance"),
            *("sign right", "sign wrong", "no sign", "median error"),
        ),
        rows=tuple(rows),
        none=predictions.why_not or "nothing to compare",
        caption="The number of predictions that agree with the measurement, for each quantity.",
        reading='The column "inside" counts the predictions that lie in the 95\u00a0% interval of their measurement. '
        'Even the predictions of a perfect model lie outside one interval in twenty. The column "intervals '
        'overlap" counts the predictions whose own interval overlaps the measured interval. The column "more '
        "than chance\" counts the measured effects with p ≤ 0.05 after Holm's correction over the whole page. "
        'The columns "sign right" and "sign wrong" count the predictions of these effects. A prediction has no sign '
        "if its interval contains 0. The error is the absolute difference between prediction and measurement.",
        provenance=predictions.of_both,
    )


def _signs(told: Sequence[Contrast]) -> tuple[list[bool], list[bool], list[bool]]:
    """Return which predictions have the right sign, the wrong sign, and no sign."""
    return (
        [contrast.sign_right for contrast in told],
        [contrast.sign_wrong for contrast in told],
        [not contrast.signed for contrast in told],
    )


def _unit(quantity: str) -> str:
    return "percentage points" if quantity in DIFFERENCES else "%"


def figure(predictions: CheckedPredictions) -> Figure | Words:
    """Return a figure of predicted against measured effects of settings, with one panel per quantity."""
    comparable = predictions.check.comparable
    if not comparable:
        return Words((f"{NOTHING}{predictions.why_not}.",))
    groups = by_quantity(comparable)
    panels = list(groups.values())
    return Figure(
        identity="figure-predicted",
        draw=wrapped(
            [f"{TITLES[name]}, {_unit(name)}" for name in groups],
            lambda axis, i, _: draw_predictions(axis, list(map(_point, panels[i]))),
            across=3,
            height_in=2.3,
        ),
        caption="Predicted against measured effects of modes, of numbers of threads and of numbers of cores. Each "
        "panel shows a quantity.",
        seen=tuple(
            f"{TITLES[name]}: {sum(contrast.inside for contrast in group)} of {len(group)} predictions lie inside "
            "the measured interval."
            for name, group in groups.items()
        ),
        reading="Bars are 95 % intervals. On the diagonal line, the prediction equals the "
        "measurement. A point is filled if the prediction lies in the measured interval. A star at the edge of a "
        "panel marks a number outside the panel's range.",
        provenance=predictions.of_both,
    )


def _point(contrast: Contrast) -> PredictedPoint:
    return PredictedPoint(
        contrast.measured, contrast.predicted, contrast.inside, _sentence(contrast)
    )


def misses(predictions: CheckedPredictions) -> Words:
    """Return sentences that list the predictions outside the measured intervals.

    Wrong signs come first, then the predictions farthest outside the measured interval.
    """
    if predictions.why_not:
        return Words((f"{NOTHING}{predictions.why_not}.",))
    comparable = predictions.check.comparable
    wrong = [contrast for contrast in comparable if contrast.told and contrast.sign_wrong]
    outside = [contrast for contrast in comparable if not contrast.inside and contrast not in wrong]
    outside.sort(key=_distance, reverse=True)
    lines = [f"Prediction with the wrong sign: {_sentence(contrast)}" for contrast in wrong]
    lines += [_sentence(contrast) for contrast in outside[:MISSES_TOLD]]
    more = len(outside) - MISSES_TOLD
    if more > 0:
        lines.append(
            f"This list omits {plural(more, 'prediction')} outside the measured interval. The CSV file of the next "
            "table contains all predictions."
        )
    return Words(tuple(lines) or ("No prediction lies outside the measured interval.",))


def _distance(contrast: Contrast) -> float:
    """Return the distance between prediction and measurement, in half-widths of the measured interval."""
    half = (contrast.measured.high - contrast.measured.low) / 2
    return abs(contrast.predicted.estimate - contrast.measured.estimate) / half if half else np.inf


def _sentence(contrast: Contrast) -> str:
    unit = _unit(contrast.quantity)
    return (
        f"{setting_name(contrast)}: the predicted change of {IN_SENTENCES[contrast.quantity]} is "
        f"{_text(contrast.predicted)} {unit}, and the measured change is {_text(contrast.measured)} {unit}."
    )


def setting_name(contrast: Contrast) -> str:
    """Return the changed setting and the load of a prediction as text."""
    other = contrast.other
    start = f" (start {contrast.start})" if contrast.start > 1 else ""
    return f"{_changed(other, contrast.reference)}{start} at {grouped(other.cps)} cps"


def _changed(setting: PredictedSetting, other: PredictedSetting) -> str:
    """Return the parts of a setting that differ from another setting, as text."""
    parts = {
        setting.mode: setting.mode != other.mode,
        f"{setting.threads} threads": setting.threads != other.threads,
        plural(setting.cores, "core"): setting.cores != other.cores,
    }
    return ", ".join(part for part, differs in parts.items() if differs)


def _text(interval: Interval) -> str:
    estimate, low, high = rounded(interval, plus="+")
    return f"{estimate} ({low} to {high})" if low else estimate


def contrasts(predictions: CheckedPredictions) -> Table:
    """Return a table of all predicted effects of settings, beside the measured effects."""
    rows = [
        (
            *(
                _place(contrast.other),
                setting_name(contrast),
                _reference(contrast),
                TITLES[contrast.quantity],
            ),
            *(
                told(contrast.predicted, plus="+"),
                told(contrast.measured, plus="+"),
                _unit(contrast.quantity),
            ),
            _verdict(contrast),
        )
        for contrast in predictions.check.contrasts
    ]
    return Table(
        identity="table-predicted",
        places=3,
        header=(
            *("proxy", "setting", "reference", "quantity"),
            *("predicted", "measured", "unit", "verdict"),
        ),
        rows=tuple(rows),
        none=predictions.why_not or "nothing to compare",
        caption="Every prediction beside its measurement.",
        reading="A prediction is the mean of many simulations. The interval of the prediction contains 95\u00a0% of "
        "these simulations. Each simulation has its own arrivals, and its model is fitted to a random sample of "
        "the runs. Each measurement has a 95\u00a0% confidence interval, computed from the blocks of a run or "
        "from pairs of runs with the same arrivals. If a run compares different numbers of threads or cores, it "
        "compares two started proxies. Two started proxies differ by chance, even with equal settings. The "
        'measured change contains this difference, but its interval does not take this difference into account. "Start '
        '2" marks a second started proxy with the same settings.',
        provenance=predictions.of_both,
        shown=40,
    )


def _place(setting: PredictedSetting) -> str:
    return f"{setting.sut}, {plural(setting.cores, 'core')}"


def _reference(contrast: Contrast) -> str:
    return f"compared with {_changed(contrast.reference, contrast.other)}"


def _verdict(contrast: Contrast) -> str:
    if not contrast.comparable:
        return contrast.measured.why or contrast.predicted.why
    words = "inside" if contrast.inside else "outside"
    if contrast.told:
        words += (
            f", sign {'right' if contrast.sign_right else 'wrong'}"
            if contrast.signed
            else ", no sign predicted"
        )
    return words


def levels(predictions: CheckedPredictions) -> Table:
    """Return a table of simulated and measured waiting, service and CPU times in the default mode."""
    rows = []
    for setting in dict.fromkeys(level.setting for level in predictions.check.levels):
        at = [level for level in predictions.check.levels if level.setting == setting]
        what = f"{grouped(setting.cps)} cps, {plural(setting.threads, 'thread')}"
        for level in at:
            name = TITLES[level.quantity] + " (%)" * (level.quantity in DIFFERENCES)
            rows.append((what, name, _level(level), _runs(level)))
    return Table(
        identity="table-predicted-default",
        places=1,
        header=("setting", "quantity", "simulated", "runs"),
        rows=tuple(rows),
        none="no run of the default mode was predicted and measured",
        caption="Simulated and measured numbers of the default mode, in runs to which the model was not fitted.",
        reading="A simulated number is the mean of many simulations. The interval of the number contains 95\u00a0% "
        'of these simulations. The column "runs" shows the number that each real run measured.',
        provenance=predictions.of_both,
    )


def _scaled(level: Level) -> Callable[[float], float]:
    factor = 100.0 if level.quantity in DIFFERENCES else 1.0
    return lambda value: factor * value


def _level(level: Level) -> Number:
    unit = "%" if level.quantity in DIFFERENCES else "µs"
    return told(level.predicted.map(_scaled(level)), unit)


def _runs(level: Level) -> str:
    scaled = sorted(map(_scaled(level), level.runs))
    shares = level.quantity in DIFFERENCES
    written = [number(value) if shares else in_us(value) for value in scaled]
    if len(scaled) > 3:
        return f"{written[0]} to {written[-1]}, {len(scaled)} runs"
    return ", ".join(written) or "none"


def fit(predictions: CheckedPredictions) -> Table:
    """Return a table of the model's fitted numbers, with their ranges over random samples of the runs."""
    fitted = predictions.check.predictions.fitted
    rows = []
    for name, value in fitted.numbers.items():
        values = value if isinstance(value, list) else [value]
        drawn = [draw[name] if isinstance(value, list) else [draw[name]] for draw in fitted.draws]
        if len(set(values)) == 1:
            values, drawn = values[:1], [sample[:1] for sample in drawn]
        for index, one in enumerate(values):
            if len(values) > 1 and index == 0:
                continue
            ends = [sample[index] for sample in drawn] or [one]
            kind = f" {KINDS_SHOWN[index]}" if len(values) > 1 else ""
            rows.append(
                (f"{name}{kind}", number(one), f"{number(min(ends))} to {number(max(ends))}")
            )
    return Table(
        identity="table-predicted-fit",
        header=("number", "fitted", "range over random samples of the runs"),
        rows=tuple(rows),
        none=fitted.why or "no model was fitted",
        caption="The numbers of the model that were fitted to runs in the default mode, in ns and bytes.",
        reading="A number whose name contains scv is a squared coefficient of variation. To compute the range, the "
        "model was fitted to random samples of the runs. All other numbers of the model are in "
        f"config/models/{fitted.model or '*'}.yaml, each with its source. docs/simulator/numbers.md describes how "
        "the fit determines each number.",
        provenance=MODEL,
    )


KINDS_SHOWN = ("other", "INVITE", "180", "200 of INVITE", "ACK", "BYE", "200 of BYE")
