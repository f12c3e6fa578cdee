"""Numbers, counts and instants as reports and records write them."""

from collections.abc import Sequence
from datetime import UTC, datetime


def number(value: float) -> str:
    """Write a number with three significant digits, whole from 100 up."""
    text = grouped(value) if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


def grouped(value: float, _: object = None) -> str:
    """Write a whole number in groups of three digits, a smaller one as it is; also for an axis's ticks."""
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1 or value == 0 else f"{value:g}"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Put words into a row: "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def utc(epoch_s: float) -> str:
    """Write an instant as ISO 8601, UTC, to the millisecond."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
