"""The arrival certificate: whether calls arrived as the schedule's law says."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError

WINDOWS_MS = (1, 4, 10, 100)
"""Windows of the counts' variance-to-mean ratio; 4 ms is SIPp's tick at HZ=250."""


@dataclass(frozen=True)
class Certificate:
    """How calls arrived, as numbers a reader can check; None for what cannot be said.

    Attributes
    ----------
    source
        What tells of the starts: `calls`, the generator's own file, or `trace`, the first INVITEs at the SPS.
    law
        Of the schedule: `exponential` or `constant`.
    arrivals
        Calls that were started.
    achieved_cps
        Starts per second from the first to the last.
    schedule_cps
        The schedule's own rate, from its first to its last intended start: a sample of an exponential
        law has one. The offered rate where no intended starts are known.
    rate_error
        Distance of the achieved rate to the schedule's, as a share of it.
    ks_distance
        Kolmogorov–Smirnov distance of the inter-arrival times to the exponential distribution with
        the offered rate; `ks_p_value` gives its p-value. For a constant law there is no distribution
        to test.
    cv
        Coefficient of variation of the inter-arrival times: 1 if exponential, 0 if constant.
    variance_to_mean
        Variance over mean of the number of starts in windows of `WINDOWS_MS`; 1 if Poisson. None where
        the load is shorter than two windows.
    lateness_p50_us, lateness_p99_us, lateness_max_us
        Start minus intended start in µs; None where no intended starts are known.
    replays
        How often each call was played: 1, unless a block's calls are played again in each of its windows.
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
        """Inter-arrival times that were drawn: what chance does to the numbers goes by these."""
        return max(1, round((self.arrivals - 1) / self.replays))


def certify(
    starts_ns: npt.NDArray[np.int64],
    rate_cps: float,
    law: str,
    intended_ns: npt.NDArray[np.int64] | None = None,
    replays: float = 1.0,
) -> Certificate:
    """Compare starts with the law of their schedule.

    Parameters
    ----------
    starts_ns
        Shape (n,), the instants at which calls were started, in ns on any clock; need not be sorted.
    rate_cps
        Offered calls per second.
    law
        `exponential` or `constant`.
    intended_ns
        Shape (n,), when each call was to start, on the same clock; None if not known.
    replays
        How often each call was played.

    Raises
    ------
    StableError
        Fewer than two starts, or an unknown law.
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
    """Give the starts per second from the first to the last."""
    return float((ordered_ns.size - 1) / (ordered_ns[-1] - ordered_ns[0]) * 1e9)


def _ks_distance(gaps: npt.NDArray[np.float64]) -> float:
    """Distance to the exponential distribution of mean 1, as scipy.stats.kstest gives it.

    Written out, since importing scipy.stats takes longer than a run may wait for the next one.
    """
    expected = -np.expm1(-np.sort(gaps))
    steps = np.arange(gaps.size + 1) / gaps.size
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def ks_p_value(distance: float, gaps: int) -> float:
    """Give the asymptotic p-value of a Kolmogorov–Smirnov distance over `gaps` inter-arrival times."""
    from scipy.special import kolmogorov

    return float(kolmogorov(np.sqrt(gaps) * distance))


def variance_to_mean(
    ordered_ns: npt.NDArray[np.int64], windows_ms: Sequence[int]
) -> tuple[float | None, ...]:
    """Index of dispersion of counts (Cox and Lewis): variance over mean of starts a window.

    Parameters
    ----------
    ordered_ns
        Shape (n,), starts in ns, ascending.
    windows_ms
        Lengths of the windows in ms; the last, incomplete window is left out.

    Returns
    -------
    tuple
        One for each window; None where the load is shorter than two windows.
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
