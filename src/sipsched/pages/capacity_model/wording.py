"""How the page of capacity writes numbers."""

import numpy as np

from sipsched.analysis.capacity.options import Option
from sipsched.analysis.statistics import Interval

NOT_MEASURED = "not measured"


def percent(value: float, decimals: int | None = None) -> str:
    """Write a difference in percent with its sign, and a real minus; below 10 % with a decimal."""
    digits = decimals if decimals is not None else int(abs(value) < 10)
    return f"{value:+.{digits}f}\u00a0%".replace("-", "−")


def off_by(model: Interval, option: Option) -> str:
    """Say by how much a model is off; nothing where one of the two is not known."""
    measured = option.capacity.estimate
    if not option.settled or not np.isfinite(model.estimate) or not measured > 0:
        return ""
    return percent(100 * (model.estimate / measured - 1))
