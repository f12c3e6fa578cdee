"""The evaluation of a proxy in production, which `fab watch` observes.

The functions compute totals, the cost of the probe, and the causes of waiting and dropped messages.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sipsched.analysis.intervals import Interval, mean_interval
from sipsched.records import histogram
from sipsched.records.watch import Second, add_bins

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BUSY, IDLE, SLEEPING = 0.9, 0.3, 0.5
"""Smallest busy share of a busy worker or CPU, smallest idle share of idle CPUs, largest busy share of a sleeper."""
MOST_SECONDS = 0.2
"""A cause of waiting or drops is reported if the cause is present in at least this share of the watched seconds."""
OFF_CPU = 0.5
"""If workers have no CPU during at least this share of the service time, they sleep, or too many workers exist."""
DELAYED = 0.1
"""The proxy lacks CPU time if its workers waited for a CPU during at least this share of their runnable time."""
COMPETING = 0.1
"""Another program competes with the proxy if the program uses at least this share of a CPU."""
LONG_WAIT_NS = 1e6
FEWEST_SECONDS, FEWEST_MESSAGES = 10, 1000
"""If fewer seconds or messages were recorded, no cause is reported."""
ASSUMED_COST = 0.06
"""Assumed CPU cost of the probe until the cost is measured: the upper end of the interval in docs/watch.md."""
ASSUMED_COST_OF_HISTOGRAMS = 0.02
LEAST_SHARE = 1 / 60
"""The probe records in at least this share of the time, even if the recording exceeds the cost limit."""
FEWEST_CYCLES = 6


def _no_bins() -> npt.NDArray[np.int64]:
    return np.zeros(histogram.BINS, np.int64)


@dataclass
class Totals:
    """Sums of counts and CPU times over several seconds in which a proxy is watched.

    Attributes
    ----------
    recorded_s
        Seconds in which the probe recorded. Counts of messages are from these seconds only.
    busy_s, others_s, cpu_s, stolen_s
        `busy_s` and `others_s`: CPU time per worker and per other program. `cpu_s` and `stolen_s`: the used share and
        the stolen share of the time of the CPUs on which the workers may run, multiplied by the time in seconds.
    """

    seconds: float = 0.0
    recorded_s: float = 0.0
    messages: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    over_tcp: int = 0
    waiting: npt.NDArray[np.int64] = field(default_factory=_no_bins)
    service: npt.NDArray[np.int64] = field(default_factory=_no_bins)
    datagrams: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    receive_errors: int = 0
    lost: int = 0
    unmatched: int = 0
    busy_s: dict[str, float] = field(default_factory=dict)
    others_s: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    stolen_s: float = 0.0

    def add(self, second: Second) -> None:
        """Add the counts and CPU times of one second to the sums."""
        self.seconds += second.length_s
        if second.recording:
            self.recorded_s += second.length_s
        self.messages.update(second.messages)
        self.calls += second.calls
        self.over_tcp += second.over_tcp
        for bins, of in ((self.waiting, second.waiting), (self.service, second.service)):
            for i, count in of:
                bins[i] += count
        self.datagrams += second.datagrams
        self.drops.update(second.drops)
        self.receive_errors += second.receive_errors
        self.lost += second.lost
        self.unmatched += second.unmatched
        for times, shares in ((self.busy_s, second.workers), (self.others_s, second.others)):
            for share in shares:
                used_s = times.get(share.name, 0.0) + share.busy * second.length_s
                times[share.name] = used_s
        self.cpu_s += second.cpu_busy * second.length_s
        self.stolen_s += second.cpu_stolen * second.length_s

    @property
    def received(self) -> int:
        """The number of received messages."""
        return sum(self.messages.values())

    @property
    def arrived(self) -> int:
        """The number of datagrams that arrived: datagrams that programs received from UDP sockets, and drops."""
        return self.datagrams + sum(self.drops.values())

    @property
    def rest(self) -> int:
        """The number of datagrams that arrived but are neither received messages nor drops.

        The kernel counts the datagrams, and the probe counts the messages. So the rest contains datagrams of other
        sockets, datagrams of seconds without recording, and messages that the probe missed.
        """
        return self.datagrams - (self.received - self.over_tcp)

    def per_s(self, count: int) -> float:
        """Convert a count of messages or calls into a rate per recorded second."""
        return count / self.recorded_s if self.recorded_s else math.nan

    def share(self, cpu_s: float) -> float:
        """Convert a CPU time into a share of the elapsed time."""
        return cpu_s / self.seconds if self.seconds else math.nan


def total(seconds: Iterable[Second]) -> Totals:
    """Return the sums of counts and CPU times over several seconds in which a proxy was watched."""
    sums = Totals()
    for second in seconds:
        sums.add(second)
    return sums


def percentiles_us(counts: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return the `PERCENTILES` of a histogram in µs. NaN if the histogram is empty."""
    return {
        name: float(histogram.quantile_ns(counts, share)) / 1000
        for name, share in PERCENTILES.items()
    }


# ---- cost of the probe ----


def probe_cost(seconds: Sequence[Second]) -> Interval:
    """Estimate how much the probe increases the proxy's CPU time per datagram.

    Each value compares a period with recording with the following period without recording. Excluded are seconds
    without datagrams, in which only timers use CPU time, and seconds in which processes or threads of the proxy started
    or ended, because part of the CPU time is then unknown.

    Returns
    -------
    Interval
        The CPU time with recording, divided by the CPU time without recording, minus 1. If the watch has too few
        periods, the interval does not exist.
    """
    stretches: list[tuple[bool, int, int]] = []
    for second in seconds:
        known = second.same_tasks and second.proxy_cpu_ns and second.datagrams
        spent = (second.proxy_cpu_ns, second.datagrams) if known else (0, 0)
        if stretches and stretches[-1][0] == second.recording:
            _, cpu, datagrams = stretches[-1]
            stretches[-1] = (second.recording, cpu + spent[0], datagrams + spent[1])
        else:
            stretches.append((second.recording, *spent))
    ratios = []
    for (recording, on_ns, on_count), (_, off_ns, off_count) in pairwise(stretches):
        if recording and on_ns and off_ns:
            ratios.append(math.log((on_ns / on_count) / (off_ns / off_count)))
    return mean_interval(np.array(ratios)).map(math.expm1)


class Budget:
    """The rule that chooses the seconds in which the probe records, so that the probe's CPU cost stays below a limit.

    Seconds with and without recording alternate. A comparison of both kinds of seconds measures the cost of recording.

    Parameters
    ----------
    limit
        The largest cost, as a share of the proxy's CPU time per message.
    assumed
        The cost until it is measured.
    """

    def __init__(self, limit: float, assumed: float = ASSUMED_COST) -> None:
        self._limit, self._assumed = limit, assumed
        self._step = 0
        self._cycle = self._cycle_of(assumed)

    def _cycle_of(self, cost: float) -> int:
        """Return the length of a recording cycle in seconds: longer if recording costs more CPU time per message.

        The probe records in one second of each cycle, and pauses in the other seconds.
        """
        share = min(1.0, self._limit / cost) if cost > 0 else 1.0
        return min(max(2, math.ceil(1 / share)), round(1 / LEAST_SHARE))

    @property
    def share(self) -> float:
        """The share of time in which the probe records."""
        return 1 / self._cycle

    def next(self, seconds: Sequence[Second]) -> bool:
        """Return True if the probe should record in the next second.

        Parameters
        ----------
        seconds
            All seconds since the start of the watch.
        """
        self._step += 1
        if self._step >= self._cycle:
            self._step = 0
            cost = probe_cost(seconds)
            # The true cost may be as high as the upper end of the cost's confidence interval.
            # So the upper end determines how often the probe records, to keep the cost below the limit.
            known = cost.known and cost.n >= FEWEST_CYCLES
            self._cycle = self._cycle_of(max(cost.high, 0) if known else self._assumed)
        return self._step == 0


# ---- causes ----


class Cause(StrEnum):
    """A cause of waiting or dropped messages that the measurements of a watched proxy can reveal."""

    BURSTS = "the buffer is too small for the bursts"
    TOO_FEW_WORKERS = "too few workers"
    NO_CPU_LEFT = "no CPU time is left"
    COMPETITOR = "another program uses the CPUs"
    SLEEPING_WORKERS = "messages wait while workers sleep"
    TOO_MANY_WORKERS = "workers take the CPUs from each other"
    HOT_CONNECTION = "one worker is saturated while the others are idle"
    CPU_LIMIT = "the CPU limit of the control group stops the proxy"


@dataclass(frozen=True)
class ShownCause:
    """A cause of waiting or dropped messages, with the measured numbers as evidence.

    Attributes
    ----------
    seconds, of
        The number of seconds that show the cause, and the number of seconds that were checked for the cause.
    values
        Further numbers that support the cause, by name.
    program
        For `COMPETITOR`, the other program.
    """

    cause: Cause
    seconds: int
    of: int
    values: Mapping[str, float]
    program: str = ""


def findings(seconds: Sequence[Second]) -> tuple[list[ShownCause], str]:
    """Return the causes of waiting and dropped messages, or a text that explains why no cause can be found.

    The text is empty if enough seconds and messages were recorded. Otherwise, the list of causes is empty.
    """
    usable = [second for second in seconds if second.recording and second.workers]
    received = sum(second.received for second in usable)
    if len(usable) < FEWEST_SECONDS or received < FEWEST_MESSAGES:
        return [], (
            f"{len(usable)} seconds with {received} messages were recorded; causes need at least "
            f"{FEWEST_SECONDS} seconds and {FEWEST_MESSAGES} messages"
        )
    drops_known = [second for second in seconds if second.workers]
    checked = (
        _bursts(drops_known),
        _too_few_workers(usable),
        _hot_connection(usable),
        _cpu_limit(usable),
        _no_cpu_left(usable),
        _sleeping(usable),
        _too_many_workers(usable),
    )
    return [finding for finding in checked if finding], ""


def _workers_busy(second: Second) -> float:
    return float(np.mean([share.busy for share in second.workers]))


def _bursts(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of bursts: seconds with dropped messages although workers and CPUs had idle time; or None.

    Workers that the kernel stops at a CPU limit are idle, too, but could not have served the dropped messages later.
    """
    dropped = [second for second in seconds if second.drops.get("socket buffer full")]
    brief = [
        second
        for second in dropped
        if _workers_busy(second) < BUSY and second.cpu_busy < BUSY and not second.throttled
    ]
    if not brief:
        return None
    return ShownCause(
        Cause.BURSTS,
        len(brief),
        len(dropped),
        {
            "drops": sum(second.drops["socket buffer full"] for second in brief),
            "busy": float(np.mean([_workers_busy(second) for second in brief])),
            "bytes": max(second.largest_queue_bytes for second in seconds),
        },
    )


def _waits(second: Second) -> float:
    """Return the 99th percentile of K_rcv (the time from arrival to reception by a worker) in ns."""
    return float(histogram.quantile_ns(add_bins([second.waiting]), 0.99))


def _too_few_workers(seconds: Sequence[Second]) -> ShownCause | None:
    shown = [
        second
        for second in seconds
        if _workers_busy(second) >= BUSY and second.cpu_busy <= 1 - IDLE
    ]
    return _finding(
        Cause.TOO_FEW_WORKERS,
        shown,
        seconds,
        {"workers": max((len(second.workers) for second in shown), default=0)},
    )


def _cpu_limit(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of a CPU limit: seconds in which the kernel stopped the proxy's control group; or None."""
    shown = [second for second in seconds if second.throttled]
    values = {
        "times": sum(second.throttled for second in shown),
        "throttled_s": sum(second.throttled_ns for second in shown) / 1e9,
    }
    return _finding(Cause.CPU_LIMIT, shown, seconds, values)


def _no_cpu_left(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of lacking CPU time: seconds in which the workers' CPUs had no idle time; or None.

    The workers must have used almost all time of these CPUs, or must have waited for a CPU. Otherwise, the CPUs were
    busy with programs of lower priority, which do not disturb the proxy. If the workers had to wait and another program
    used at least the share `COMPETING` of a CPU, this program is the cause. Workers also wait while the kernel stops
    their control group at its CPU limit, so seconds with such a stop are no evidence.
    """
    shown = [
        second
        for second in seconds
        if second.cpu_busy >= 1 - (1 - BUSY) / 2
        and not second.throttled
        and (_used(second) >= BUSY or (_delayed(second) >= DELAYED and _harmed(second)))
    ]
    delayed, own = (
        float(np.mean([of(second) for second in shown])) if shown else math.nan
        for of in (_delayed, _used)
    )
    others: dict[str, float] = {}
    for second in shown:
        for share in second.competitors:
            others[share.name] = others.get(share.name, 0.0) + share.busy
    name, used = max(others.items(), key=lambda item: item[1], default=("", 0.0))
    # If the workers used almost all time of their CPUs, other programs ran on other CPUs.
    if shown and used / len(shown) >= COMPETING and own < BUSY:
        values = {"share": used / len(shown), "delayed": delayed}
        return _finding(Cause.COMPETITOR, shown, seconds, values, name)
    return _finding(Cause.NO_CPU_LEFT, shown, seconds, {"used": own, "delayed": delayed})


def _used(second: Second) -> float:
    """Return the share of the time of the workers' CPUs that the workers used."""
    return sum(share.busy for share in second.workers) / max(second.cpus, 1)


def _delayed(second: Second) -> float:
    """Return the share of the workers' runnable time in which the workers waited for a CPU."""
    runnable = second.proxy_cpu_ns + second.delayed_ns
    return second.delayed_ns / runnable if runnable else 0.0


def _harmed(second: Second) -> bool:
    """Return True if messages waited long, or if the workers had no CPU during a tenth of the service time.

    A worker waits some microseconds for a CPU whenever it wakes up. If the workers have little work, these short waits
    alone exceed the share `DELAYED` of their runnable time.
    """
    return _waits(second) >= LONG_WAIT_NS or _off_cpu(second) >= DELAYED


def _off_cpu(second: Second) -> float:
    """Return the share of the service time in which the workers had no CPU."""
    return second.off_cpu_ns / second.service_ns if second.service_ns else 0.0


def _lacked_cpu(second: Second) -> bool:
    """Return True if waits for a CPU explain at least half of the service time in which workers had no CPU.

    Otherwise, the workers mostly slept in this time.
    """
    return second.delayed_ns >= second.off_cpu_ns / 2


def _sleeping(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of sleeping workers: seconds with long waits although CPUs were idle; or None."""
    shown = [
        second
        for second in seconds
        if _waits(second) >= LONG_WAIT_NS
        and _workers_busy(second) < SLEEPING
        and second.cpu_busy <= 1 - IDLE
        and not second.throttled
        and _off_cpu(second) >= OFF_CPU
        and not _lacked_cpu(second)
    ]
    return _finding(Cause.SLEEPING_WORKERS, shown, seconds, _service_values(shown))


def _too_many_workers(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of too many workers: seconds in which workers took CPUs from each other; or None.

    The CPUs still had idle time, and no other program competed. So only another worker can have interrupted a worker.
    """
    shown = [
        second
        for second in seconds
        if sum(share.messages > 0 for share in second.workers) > second.cpus
        and second.cpu_busy < BUSY
        and max((share.busy for share in second.competitors), default=0.0) < COMPETING
        and not second.throttled
        and _off_cpu(second) >= OFF_CPU
        and _lacked_cpu(second)
    ]
    numbers = {
        "workers": max((len(second.workers) for second in shown), default=0),
        "cpus": max((second.cpus for second in shown), default=0),
    }
    return _finding(Cause.TOO_MANY_WORKERS, shown, seconds, {**numbers, **_service_values(shown)})


def _service_values(shown: Sequence[Second]) -> dict[str, float]:
    off, served = sum(s.off_cpu_ns for s in shown), sum(s.service_ns for s in shown)
    return {"off_cpu": off / served if served else math.nan}


def _hot_connection(seconds: Sequence[Second]) -> ShownCause | None:
    """Return the evidence of a hot connection: seconds in which only one worker was saturated; or None.

    Workers share a UDP socket, but each TCP connection belongs to one worker. So one busy connection can saturate its
    worker.
    """
    shown = []
    for second in seconds:
        first, *others = sorted((share.busy for share in second.workers), reverse=True)
        if second.connections and others and first >= BUSY and np.mean(others) < SLEEPING:
            shown.append(second)
    hottest = [max(s.workers, key=lambda share: share.busy) for s in shown]
    received = sum(s.received for s in shown)
    values = {
        "hottest": float(np.mean([share.busy for share in hottest])) if shown else math.nan,
        "share": sum(share.messages for share in hottest) / received if received else math.nan,
        "connections": max((s.connections for s in shown), default=0),
    }
    return _finding(Cause.HOT_CONNECTION, shown, seconds, values)


def _finding(
    cause: Cause,
    shown: Sequence[Second],
    of: Sequence[Second],
    values: Mapping[str, float],
    program: str = "",
) -> ShownCause | None:
    if len(shown) < MOST_SECONDS * len(of):
        return None
    known = {
        "busy": float(np.mean([_workers_busy(second) for second in shown])),
        "cpu_busy": float(np.mean([second.cpu_busy for second in shown])),
        "wait_us": float(np.nanmedian([_waits(second) for second in shown])) / 1000,
    }
    return ShownCause(cause, len(shown), len(of), {**known, **values}, program)
