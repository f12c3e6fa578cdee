"""Functions that format numbers, counts and times as text for pages and records."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

LEAST_WRITTEN = 1e-6
"""Smallest positive number that pages show in digits. Smaller numbers appear as "<0.000001"."""


def number(value: float) -> str:
    """Return a number as text without an exponent.

    Numbers from 100 on become whole numbers, and smaller numbers have three digits.
    """
    text = grouped(value) if abs(value) >= 100 else f"{value:.3g}"
    if "e-" in text:
        text = f"{value:.6f}".rstrip("0") if abs(value) >= LEAST_WRITTEN else f"<{LEAST_WRITTEN:f}"
    return text.replace("-", "−")


def grouped(value: float, _: object = None) -> str:
    """Return a whole number as text in groups of three digits. Ignore the second argument, which matplotlib passes."""
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1 or value == 0 else f"{value:g}"


def binary_size(size: int) -> str:
    """Return a number of bytes as text, such as "64 KiB", in the largest unit that needs no fraction."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}\u00a0{unit}"
    return f"{grouped(size)} bytes"


def plural(count: int, noun: str) -> str:
    """Return a count and a noun as text, such as "1 core" or "2 cores"."""
    return f"{grouped(count)} {noun}{'' if count == 1 else 's'}"


def listed_cores(counts: Sequence[int]) -> str:
    """Return several numbers of cores as text, such as "1 core" or "1, 2 and 4 cores"."""
    return f"{listed([*map(str, counts)])} core{'s' * ([*counts] != [1])}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Return words joined as text in the form "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def ranged(values: Iterable[float], write: Callable[[float], str] = number) -> str:
    """Return the smallest and the largest value as text, such as "3 to 5".

    If both texts are equal, return a single text.
    """
    ordered = sorted(values)
    low, high = write(ordered[0]), write(ordered[-1])
    return low if low == high else f"{low} to {high}"


def utc(epoch_s: float) -> str:
    """Return a time in seconds since the epoch as text in ISO 8601 format (UTC, with milliseconds)."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
