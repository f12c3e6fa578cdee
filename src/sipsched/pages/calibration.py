"""The page that compares the times per message of a real machine with the times that a calibrated guest predicts."""

from collections.abc import Sequence

import numpy as np

from sipsched.analysis.calibration import Calibration, ComparedTime
from sipsched.analysis.intervals import Interval
from sipsched.pages.numbers import NO_ENTRY, about, signed, told
from sipsched.pages.parts import Answer, Figure, Heading, Table, Words
from sipsched.pages.plots import PredictedPoint, draw_predictions, wrapped
from sipsched.pages.tables import AGREES, competitors
from sipsched.words import grouped, number, plural

TITLES = {
    "cpu": "CPU time",
    "user": "user time",
    "system": "system time",
    "k_stack_mean": "K_stack",
    "k_sockq_alone": "wake-up",
    "t_sip_mean": "T_sip",
    "k_rcv_mean": "K_rcv",
}
NOTHING = (
    "There is no comparison yet, because the real machine or the calibrated guest has no valid run."
)


def answer(calibration: Calibration) -> Answer:
    """Return sentences: how many predictions lie within the measured runs, and the errors of each time."""
    tests = calibration.tests
    if not tests:
        return Answer(NOTHING)
    inside = sum(test.inside for test in tests)
    share = inside / len(tests)
    verdict = "Yes" if share >= AGREES else "No" if share < 0.5 else "In part"
    lines = [
        f"{verdict}: {inside} of {len(tests)} predictions lie between the smallest and the largest measured "
        "run."
    ]
    lines += [
        f"{TITLES[time][0].upper()}{TITLES[time][1:]} is {_error_range(group)}."
        for time, group in _by_time(tests)
    ]
    changes = [each for each in calibration.workers if np.isfinite(each.predicted)]
    if changes:
        right = sum(each.inside for each in changes)
        lines.append(
            f"Of {len(changes)} predicted changes with the number of workers, {right} lie between the "
            "smallest and the largest measured change."
        )
    return Answer(" ".join(lines))


def _provenance(calibration: Calibration) -> str:
    """Return the origin of the measured and of the predicted numbers as text."""
    guest = "; ".join(campaign.provenance for campaign in calibration.campaigns[1:])
    return f"Measured on a real machine. Predicted by a guest: {guest}" if guest else ""


def _by_time(times: Sequence[ComparedTime]) -> list[tuple[str, list[ComparedTime]]]:
    """Return the comparisons by time, in the order of `TITLES`."""
    groups = ((name, [time for time in times if time.time == name]) for name in TITLES)
    return [(name, group) for name, group in groups if group]


def _error_range(group: Sequence[ComparedTime]) -> str:
    """Return the smallest and the largest relative error of several predictions as text."""
    low, high = (100 * end([time.error for time in group]) for end in (min, max))
    if low < 0 < high:
        return f"predicted up to {about(-low)}\u00a0% too short and up to {about(high)}\u00a0% too long"
    small, large = sorted(map(abs, (low, high)))
    word = "too long" if high > 0 else "too short"
    ends = dict.fromkeys((about(small), about(large)))
    return f"predicted {' to '.join(ends)}\u00a0% {word}"


def heading(calibration: Calibration) -> Heading:
    """Return the heading of the page: the origin of the measured and of the predicted numbers."""
    return Heading(
        fidelity=_provenance(calibration) or NOTHING,
        testbed=" ".join(
            f"Testbed {campaign.testbed} (kind: {campaign.kind}), kernel {campaign.kernels}."
            for campaign in calibration.campaigns
        ),
        description="; ".join(campaign.description for campaign in calibration.campaigns),
    )


def conditions(calibration: Calibration) -> Words:
    """Return a sentence about the share of the CPU time that other programs used in the measured runs."""
    return competitors(calibration.campaigns)


def figure(calibration: Calibration) -> Figure | Words:
    """Return a figure of predicted against measured times, with one panel per time."""
    groups = _by_time(calibration.tests)
    if not groups:
        return Words((NOTHING,))
    return Figure(
        identity="figure-calibration",
        draw=wrapped(
            [f"{TITLES[name]}, µs" for name, _ in groups],
            lambda axis, i, _: draw_predictions(axis, list(map(_point, groups[i][1]))),
            across=3,
            height_in=2.3,
        ),
        caption="Predicted against measured times per message. Each panel shows one time.",
        seen=tuple(
            f"{TITLES[name]}: {sum(time.inside for time in group)} of {len(group)} predictions lie within "
            "the measured runs."
            for name, group in groups
        ),
        reading="Bars end at the smallest and the largest measured run. On the diagonal line, the prediction equals "
        "the measurement. A point is filled if the prediction lies within the measured runs. The setting from which "
        "the clock was computed is not drawn.",
        provenance=_provenance(calibration),
    )


def _point(time: ComparedTime) -> PredictedPoint:
    predicted = Interval.without(time.predicted, 1)
    title = f"{_setting(time)}: {told(time.measured, 'µs')} measured, {number(time.predicted)} µs predicted"
    return PredictedPoint(time.measured, predicted, time.inside, title)


def _setting(time: ComparedTime) -> str:
    return f"{plural(time.threads, 'worker')}, {grouped(time.cps)} cps"


def table(calibration: Calibration) -> Table:
    """Return a table of all times: measured, predicted, and the error of the prediction."""
    return Table(
        identity="table-calibration",
        places=1,
        header=("setting", "time", "measured", "predicted (µs)", "error (%)", "verdict"),
        rows=tuple(
            (
                *(_setting(time), TITLES[time.time], told(time.measured, "µs")),
                number(time.predicted) if np.isfinite(time.predicted) else NO_ENTRY,
                _signed(100 * time.error),
                _verdict(time),
            )
            for time in calibration.times
        ),
        none=NOTHING,
        caption="Times per message on the real machine, and as the guest predicts them.",
        reading="The measured number is the typical run, and the numbers in brackets are the smallest and the largest "
        "run. The CPU time is the sum of user and system time of all processes of the proxy. The wake-up is the wait "
        "of a message that arrives when no other message is in the proxy. The other times are means over all messages. "
        'A prediction is "inside" if it lies between the smallest and the largest run. The guest\'s clock was '
        "computed from user time, system time and wake-up of one setting. All rows of this setting have the verdict "
        '"fitted", and do not test the clock.',
        provenance=_provenance(calibration),
        shown=60,
    )


def _signed(percent: float) -> str:
    """Return a percentage without an interval as text, with its sign and two digits."""
    return signed(float(f"{percent:.2g}")) if np.isfinite(percent) else NO_ENTRY


def _verdict(time: ComparedTime) -> str:
    if not np.isfinite(time.error):
        return "not predicted"
    if not np.isfinite(time.measured.low):
        return "one run"
    where = "inside" if time.inside else "too long" if time.error > 0 else "too short"
    return f"fitted, {where}" if time.fitted else where


def workers(calibration: Calibration) -> Table:
    """Return a table of the changes of each time with the number of workers: measured and predicted."""
    return Table(
        identity="table-calibration-workers",
        places=1,
        header=("load", "workers", "time", "measured change", "predicted (%)"),
        rows=tuple(
            (
                f"{grouped(each.cps)} cps",
                f"{each.many} instead of {each.few}",
                TITLES[each.time],
                told(each.measured.map(_percent), "%", plus="+"),
                _signed(_percent(each.predicted)),
            )
            for each in calibration.workers
        ),
        none=NOTHING,
        caption="The change of each time per message with more workers, measured and predicted.",
        reading="The change is the geometric mean over pairs of runs with the same arrivals. The numbers in brackets "
        "are the smallest and the largest change of a pair. The prediction comes from the runs of the guest.",
        provenance=_provenance(calibration),
        shown=40,
    )


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)
