"""Text of numbers, counts and instants for pages and records."""

from collections.abc import Sequence
from datetime import UTC, datetime

LEAST_WRITTEN = 1e-6
"""Smallest nonzero number that pages write as a number. Pages write a smaller number as a bound."""


def number(value: float) -> str:
    """Format a number without an exponent, to three digits, or as a whole number from 100 on."""
    text = grouped(value) if abs(value) >= 100 else f"{value:.3g}"
    if "e-" in text:
        text = f"{value:.6f}".rstrip("0") if abs(value) >= LEAST_WRITTEN else f"<{LEAST_WRITTEN:f}"
    return text.replace("-", "−")


def grouped(value: float, _: object = None) -> str:
    """Format a whole number in groups of three digits. matplotlib passes the position of a tick as well."""
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1 or value == 0 else f"{value:g}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as in "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def utc(epoch_s: float) -> str:
    """Format an instant as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
