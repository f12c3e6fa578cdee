"""The arrival certificate, which compares the actual start times of calls with their planned start times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError

WINDOWS_MS = (1, 4, 10, 100)
"""Time windows (ms) in which started calls are counted, for the ratio variance / mean. SIPp starts calls every 4 ms."""


@dataclass(frozen=True)
class Certificate:
    """Statistics of the start times of a run's calls. An unknown statistic is None.

    Attributes
    ----------
    source
        Source of the start times: `calls` is the generator's file, and `trace` is the first INVITEs at the SPS.
    law
        Distribution of the scheduled times between calls: `exponential` or `constant`.
    arrivals
        Number of started calls.
    achieved_cps
        Started calls per second, from the first to the last start.
    schedule_cps
        Rate of the schedule from its first to its last intended start. For an exponential law, this rate differs from
        the offered rate by chance. If no intended starts are known, the value is the offered rate.
    rate_error
        Difference between the achieved and the scheduled rate, divided by the scheduled rate.
    ks_distance
        Kolmogorov–Smirnov distance between the inter-arrival times and the exponential distribution with the offered
        rate. `ks_p_value` computes a p-value from the distance. None for a constant law, which has no distribution to
        test.
    cv
        Coefficient of variation of the inter-arrival times: 1 for an exponential law, 0 for a constant law.
    variance_to_mean
        Variance of the number of starts in windows of `WINDOWS_MS`, divided by the mean. A Poisson process has 1. None
        if the load is shorter than two windows.
    lateness_p50_us, lateness_p99_us, lateness_max_us
        Actual start minus intended start in µs: median, 99th percentile and maximum. None if no intended starts are
        known.
    replays
        Number of times that the generator made each call. More than 1 if the windows of a block repeat the same calls.
    """

    source: str
    law: str
    arrivals: int
    achieved_cps: float
    schedule_cps: float
    rate_error: float
    ks_distance: float | None
    cv: float
    variance_to_mean: tuple[float | None, ...]
    lateness_p50_us: float | None
    lateness_p99_us: float | None
    lateness_max_us: float | None
    replays: float = 1.0

    @property
    def distinct_gaps(self) -> int:
        """Return the number of inter-arrival times without repetitions. Standard errors depend on this number."""
        return max(1, round((self.arrivals - 1) / self.replays))


def certify(
    starts_ns: npt.NDArray[np.int64],
    rate_cps: float,
    law: str,
    intended_ns: npt.NDArray[np.int64] | None = None,
    replays: float = 1.0,
) -> Certificate:
    """Return statistics that compare the actual start times of a run's calls with the planned start times.

    Parameters
    ----------
    starts_ns
        Shape (n,), the actual starts of calls in ns on any clock, in any order.
    rate_cps
        Offered calls per second.
    law
        `exponential` or `constant`.
    intended_ns
        Shape (n,), the intended start of each call on the same clock; None if unknown.
    replays
        Number of times that the generator made each call.

    Raises
    ------
    StableError
        Fewer than two calls were started, or the law is unknown.
    """
    if law not in ("exponential", "constant"):
        raise StableError(f"certificate: unknown law '{law}'; expected exponential or constant")
    if starts_ns.size < 2:
        raise StableError(f"certificate: {starts_ns.size} start(s); at least two are needed")
    ordered = np.sort(starts_ns)
    gaps_s = np.diff(ordered) / 1e9
    achieved_cps = _rate(ordered)
    schedule_cps = rate_cps if intended_ns is None else _rate(np.sort(intended_ns))
    late_us = None if intended_ns is None else (starts_ns - intended_ns) / 1e3
    lateness = (
        (None, None, None)
        if late_us is None
        else (*map(float, np.percentile(late_us, [50, 99])), float(late_us.max()))
    )
    return Certificate(
        source="trace" if intended_ns is None else "calls",
        law=law,
        arrivals=int(starts_ns.size),
        achieved_cps=achieved_cps,
        schedule_cps=schedule_cps,
        rate_error=abs(achieved_cps / schedule_cps - 1),
        ks_distance=_ks_distance(gaps_s * rate_cps) if law == "exponential" else None,
        cv=float(gaps_s.std() / gaps_s.mean()),
        variance_to_mean=variance_to_mean(ordered, WINDOWS_MS),
        lateness_p50_us=lateness[0],
        lateness_p99_us=lateness[1],
        lateness_max_us=lateness[2],
        replays=replays,
    )


def _rate(ordered_ns: npt.NDArray[np.int64]) -> float:
    """Return the number of calls started per second, from the first to the last start."""
    return float((ordered_ns.size - 1) / (ordered_ns[-1] - ordered_ns[0]) * 1e9)


def _ks_distance(gaps: npt.NDArray[np.float64]) -> float:
    """Return the Kolmogorov–Smirnov distance of inter-arrival times to the exponential distribution of mean 1.

    `scipy.stats.kstest` returns the same distance, but importing scipy.stats takes longer than the pause between runs.
    """
    expected = -np.expm1(-np.sort(gaps))
    steps = np.arange(gaps.size + 1) / gaps.size
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def ks_p_value(distance: float, gaps: int) -> float:
    """Return the asymptotic p-value of a Kolmogorov–Smirnov distance for a number of inter-arrival times."""
    from scipy.special import kolmogorov

    return float(kolmogorov(np.sqrt(gaps) * distance))


def variance_to_mean(
    ordered_ns: npt.NDArray[np.int64], windows_ms: Sequence[int]
) -> tuple[float | None, ...]:
    """Return variance / mean of the number of calls started per time window, for each window length.

    This ratio is the index of dispersion of counts (Cox and Lewis).

    Parameters
    ----------
    ordered_ns
        Shape (n,), starts in ns, in ascending order.
    windows_ms
        Lengths of the windows in ms. An incomplete window at the end is excluded.

    Returns
    -------
    tuple
        The index for each window length; None if the load is shorter than two windows.
    """
    since_first = ordered_ns - ordered_ns[0]
    ratios: list[float | None] = []
    for window_ms in windows_ms:
        window_ns = window_ms * 1_000_000
        whole = int(since_first[-1] // window_ns)
        if whole < 2:
            ratios.append(None)
            continue
        counts = np.bincount(since_first // window_ns, minlength=whole)[:whole]
        ratios.append(float(counts.var() / counts.mean()))
    return tuple(ratios)
