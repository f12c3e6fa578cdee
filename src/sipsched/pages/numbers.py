"""Functions that return numbers as text, with intervals and p-values, for table cells and sentences."""

import math
from dataclasses import dataclass

from sipsched.analysis.intervals import FEWEST, TOO_FEW, Interval
from sipsched.words import number

LARGEST_TOLD = 9999
"""Largest percentage that is shown. The interval of a ratio from only two pairs of runs may reach 1e30."""
MILLI_FROM = 1000
"""A time of at least this many microseconds is shown in milliseconds."""
MOST_PLACES = 6
"""Largest number of decimals of a number on a page."""
NO_ENTRY = "–"


def trusted(interval: Interval) -> bool:
    """Return whether a page shows the interval of a number: the interval exists and is based on enough runs."""
    return interval.known and (not interval.n or interval.n >= FEWEST)


@dataclass(frozen=True)
class Number:
    """A number in a table, with one cell on the page and several columns in the CSV.

    Attributes
    ----------
    interval
        The number, in `unit`.
    unit
        Unit of the interval. The page writes a time in µs or ms, depending on its size.
    plus
        Sign of a positive number: "+" for a difference, otherwise empty.
    n
        Number of runs or pairs in the row. If the interval comes from a different number, the cell names the number of
        the interval.
    p_value
        P-value of the test of no difference; NaN without a test.
    """

    interval: Interval
    unit: str = ""
    plus: str = ""
    n: int | None = None
    p_value: float = math.nan

    def __str__(self) -> str:
        """Return the number as text for the page, with interval and p-value."""
        interval = self.interval
        if math.isnan(interval.estimate):
            return interval.why or NO_ENTRY
        text = with_unit(interval, self.unit if self.unit == "µs" else "", self.plus)
        if self.n is not None and interval.n not in (self.n, 0):
            text += f", n = {interval.n}"
        return ", ".join(filter(None, (text, p_text(self.p_value))))


def told(interval: Interval, unit: str = "", n: int | None = None, plus: str = "") -> Number:
    """Return a `Number` for a table cell. The parameters are the attributes of `Number`."""
    return Number(interval, unit, plus, n)


def in_words(interval: Interval, unit: str = "", plus: str = "") -> str:
    """Return a number as text for a sentence, such as "131 µs (108 to 157), n = 5"."""
    count = f", n = {interval.n}" if interval.n > 1 and not math.isnan(interval.estimate) else ""
    return with_unit(interval, unit, plus) + count


def with_unit(interval: Interval, unit: str = "", plus: str = "") -> str:
    """Return a number as text, with its unit and the finite ends of its confidence interval."""
    if math.isnan(interval.estimate):
        return interval.why or "not measured"
    if unit == "µs" and _largest(interval) >= MILLI_FROM:
        interval, unit = interval.map(lambda us: us / 1000), "ms"
    after = f"\u00a0{unit}" if unit else ""
    estimate, low, high = rounded(interval, unit, plus)
    if not interval.resolved:
        return f"{_bounds(low, high, 'between {} and {}')}{after}"
    if not estimate:
        beyond = f"over {LARGEST_TOLD // 100 + 1} times as much"
        return beyond if unit == "%" else "beyond the measured range"
    if interval.known and not trusted(interval):
        return f"{_alone(interval.estimate, unit, plus)}{after}{_seen(interval, unit, plus)}"
    shown = f"{estimate}{after}"
    if interval.n == 1 and interval.why == TOO_FEW:
        return f"{shown} (one run)"
    if not (low or high) or estimate == low == high:
        return shown
    return f"{shown} ({_bounds(low, high, '{} to {}')})"


def _largest(interval: Interval) -> float:
    """Return the absolute value of a time in µs, from which `with_unit` decides whether the page shows µs or ms.

    If only the bounds of the time are known, return the larger bound.
    """
    if interval.resolved:
        return abs(interval.estimate)
    return max((abs(end) for end in (interval.low, interval.high) if math.isfinite(end)), default=0)


def _bounds(low: str, high: str, both: str) -> str:
    if low and high:
        return both.format(low, high)
    return f"at least {low}" if low else f"at most {high}" if high else "anything"


def _seen(interval: Interval, unit: str, plus: str) -> str:
    """Return the smallest and the largest value of the runs as text in brackets; empty if both values are equal.

    A page shows this text instead of an interval that is based on too few runs.
    """
    least, most = (_alone(end, unit, plus) for end in (interval.least, interval.most))
    return f" (runs: {least} to {most})" if least and most and least != most else ""


def rounded(interval: Interval, unit: str = "", plus: str = "") -> tuple[str, str, str]:
    """Return a number and the ends of its interval as texts, rounded to the digits that the interval justifies.

    SEE Particle Data Group, Review of Particle Physics, Introduction, 5.3: if the three leading digits of an error are
    at most 354, the error keeps two digits, otherwise one. An end that would round to 0 keeps its first digit, so that
    the text shows whether the interval contains 0.

    Returns
    -------
    estimate, low, high
        Empty for a missing, infinite or extremely large value.
    """
    if not interval.known and interval.resolved:
        return _alone(interval.estimate, unit, plus, 3), "", ""
    ends = [end for end in (interval.low, interval.high) if _tellable(end, unit)]
    if len(ends) == 2:
        error = (ends[1] - ends[0]) / 2
    else:
        error = max((abs(end - interval.estimate) for end in ends), default=0)
    places = _places(error or abs(interval.estimate) / 10)
    low, high = (
        _written(end, places if round(end, places) else _first_digit(end), unit, plus)
        for end in (interval.low, interval.high)
    )
    return _written(interval.estimate, places, unit, plus), low, high


def _first_digit(value: float) -> int:
    """Return the number of decimals up to a number's first digit that is not 0.

    A negative number means tens, hundreds and so on.
    """
    return min(-math.floor(math.log10(abs(value))), MOST_PLACES) if value else 0


def _places(error: float) -> int:
    """Return the number of decimals to which a number with an error of this size is rounded.

    A negative number means tens, hundreds and so on.
    """
    if not error > 0 or not math.isfinite(error):
        return 0
    power = math.floor(math.log10(error))
    if power < -MOST_PLACES:
        return MOST_PLACES
    return min(1 - power if error / 10**power < 3.55 else -power, MOST_PLACES)


def _alone(value: float, unit: str, plus: str, digits: int = 2) -> str:
    """Return a number without a known error as text, rounded to `digits` significant digits.

    With three or more digits, the digits before the decimal point are kept.
    """
    power = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    places = min(digits - 1 - power, 6)
    return _written(value, max(places, 0) if digits > 2 else places, unit, plus)


def _tellable(value: float, unit: str) -> bool:
    return math.isfinite(value) and not (unit == "%" and abs(value) > LARGEST_TOLD)


def _written(value: float, places: int, unit: str, plus: str) -> str:
    if not _tellable(value, unit):
        return ""
    size = f"{round(abs(value), places):,.{max(places, 0)}f}".replace(",", "\u202f")
    if not size.strip("0.\u202f"):
        return "0" if value == 0 else size
    return ("−" if value < 0 else plus) + size


def in_us(value_us: float) -> str:
    """Return a time without an interval as text: in µs below 1000 µs, otherwise in ms."""
    if math.isnan(value_us):
        return NO_ENTRY
    in_ms = value_us >= MILLI_FROM
    return f"{number(value_us / 1000 if in_ms else value_us)}\u00a0{'ms' if in_ms else 'µs'}"


def about(value: float) -> str:
    """Return a number without an interval as text, rounded to two significant digits."""
    return number(float(f"{value:.2g}"))


def signed(value: float) -> str:
    """Return a number without an interval as text, with its sign and three digits."""
    return f"{'+' if value > 0 else ''}{number(value)}"


def p_text(value: float) -> str:
    """Return a p-value as text, such as "p = 0.02". Empty if no test was made."""
    if math.isnan(value):
        return ""
    return "p\u00a0<\u00a00.001" if value < 0.001 else f"p\u00a0=\u00a0{value:.2g}"
