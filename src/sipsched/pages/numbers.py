"""Numbers with their intervals and p-values, as the cells and sentences of pages write them."""

from collections.abc import Callable

import numpy as np

from sipsched.analysis.statistics import Interval
from sipsched.words import number

LARGEST_TOLD = 9999
"""Percent; the interval of a ratio over two pairs may reach to 1e30."""


def signed(value: float) -> str:
    """Write a number with its sign; what is too large to mean anything as a bound."""
    return _bounded(value, "+")


def plain(value: float) -> str:
    """Write a number as `signed` does, without its plus."""
    return _bounded(value, "")


def _bounded(value: float, plus: str) -> str:
    if value < -LARGEST_TOLD:
        return f"below {number(-LARGEST_TOLD)}"
    if value > LARGEST_TOLD:
        return f"above {plus}{number(LARGEST_TOLD)}"
    return f"{plus if value > 0 else ''}{number(value)}"


def told(interval: Interval, n: int | None = None, say: Callable[[float], str] = number) -> str:
    """Write a number with its interval for a cell; its n where that is not the `n` of its row."""
    if np.isnan(interval.estimate):
        return interval.why
    if not interval.resolved:
        count = "" if interval.n == n else f", n = {interval.n}"
        return f"{interval.range(say)}{count}" + ("" if interval.known else f": {interval.why}")
    if not interval.known:
        count = "" if interval.n == n else f", n = {interval.n}"
        return f"{say(interval.estimate)}{count}: {interval.why}"
    text = f"{say(interval.estimate)} ({say(interval.low)} to {say(interval.high)})"
    return text if interval.n == n else f"{text}, n = {interval.n}"


def p_text(value: float) -> str:
    """Write a p-value; nothing where there was no test."""
    if np.isnan(value):
        return ""
    return "p\u00a0<\u00a00.001" if value < 0.001 else f"p\u00a0=\u00a0{value:.2g}"


def with_p(text: str, p_value: float) -> str:
    """Add a p-value to a cell, where there was a test."""
    return ", ".join(filter(None, (text, p_text(p_value))))
