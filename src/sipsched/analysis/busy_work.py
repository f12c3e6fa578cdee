"""The CPU time per message of a busy proxy, estimated from messages that were recorded at a moderate load.

While messages wait, the proxy's CPU works all the time. The time between two departures is then the whole cost of a
message: user, kernel and softirq time, the probe, and the CPU time that competitors take from a busy proxy. At half the
capacity, about half of all messages show this cost. The method follows the service function of operational analysis
(Denning and Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys 10(3), 1978).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.analysis.intervals import Values
from sipsched.records.messages import MESSAGE_TYPES, k_rcv, nanoseconds

LOCAL = 64
"""Number of arrivals before a busy cycle (time in which a CPU is never idle) from which the local load is computed."""
LEAST_OF_TYPE = 30
"""Message types with fewer messages than this number in the busy cycles are counted as type `other`."""
BLOCKS = 20
DEPARTED, QUEUED, RECEIVED = range(3)
LONG = 10.0
"""A busy cycle contains a pause if the cycle's time per message exceeds this multiple of the median time."""


@dataclass(frozen=True)
class Stamps:
    """The timestamps of messages in ns since the first arrival. Each array has the shape (message,).

    Attributes
    ----------
    arrived, queued, received, departed
        t_arr, t_stack, t_sip_in, and the time when the message left or, if unknown, when the worker received it.
    """

    arrived: Values
    queued: Values
    received: Values
    departed: Values
    kind: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ds: xr.Dataset) -> "Stamps":
        """Compute the timestamps from the columns of `messages.nc`. Messages without K_rcv are excluded."""
        waited = k_rcv(ds)
        known = np.isfinite(waited)
        start = ds["t_arr"].to_numpy()[:1]
        arrived = (ds["t_arr"].to_numpy() - start).astype(np.float64)[known]
        stack, served, sent = (
            np.nan_to_num(nanoseconds(ds, name))[known] for name in ("k_stack", "t_sip", "k_snd")
        )
        received = arrived + waited[known]
        return cls(
            arrived,
            arrived + stack,
            received,
            received + served + sent,
            ds["message_type"].to_numpy().astype(np.int64)[known],
            ds["cpu"].to_numpy().astype(np.int64)[known],
        )


@dataclass(frozen=True)
class Cycles:
    """Periods in which a CPU of the proxy worked without a pause, and the messages of each period.

    A cycle begins when a message departs, no worker of this CPU has an unfinished message, and at least one message
    per CPU waits. A cycle ends at the next departure that leaves no worker of this CPU with an unfinished message. So a
    cycle contains the whole work of its messages, even if workers preempted each other. The shape of each array is
    (cycle,) or (cycle, type).

    Attributes
    ----------
    start_ns, length_ns
        Beginning in ns since the first arrival, and length in ns.
    served
        Number of messages of each type that departed within the cycle.
    """

    start_ns: Values
    length_ns: Values
    served: Values


@dataclass(frozen=True)
class Work:
    """The estimated time that one busy CPU needs per message, and the variation of this time.

    Attributes
    ----------
    cycles
        Number of busy cycles from which the time is estimated.
    mean_ns
        Time per message at the recorded load, including pauses, averaged over the types of all recorded messages.
    slope
        Exponent with which the time per message changes: twice the load multiplies the time by 2 ** slope.
    scv
        Squared coefficient of variation of the time per message, without pauses.
    pauses
        Pauses take this share of the busy time. During a pause, no message of the CPU makes progress.
    pause_ns
        Mean length of a pause; 0 if the recording contains no pause.
    draws
        `mean_ns`, `slope`, `pauses` and `pause_ns` for bootstrap samples of blocks of the recording, shape (draw, 4).
        The first column includes the variation between blocks. So the first column describes the proxy during one
        further block, and not the mean of many blocks.
    """

    cycles: int
    mean_ns: float
    slope: float
    scv: float
    pauses: float
    pause_ns: float
    draws: Values


def busy_cycles(stamps: Stamps, cores: int) -> Cycles:
    """Return the periods in which a CPU of the proxy was busy without a break, for a proxy on `cores` CPUs."""
    size, width = len(stamps.arrived), max(MESSAGE_TYPES.values()) + 1
    # A worker may receive its next message in the same nanosecond in which its previous message departs.
    # The sort therefore puts departures before receipts. Each message still departs after its own receipt.
    departed = np.maximum(stamps.departed, stamps.received + 1)
    at = np.concatenate((departed, stamps.queued, stamps.received))
    event = np.repeat([DEPARTED, QUEUED, RECEIVED], size)
    order = np.lexsort((event, at))
    at, event, message = at[order], event[order], np.tile(np.arange(size), 3)[order]
    waiting = np.cumsum(np.choose(event, [0, 1, -1]))
    starts, lengths, counts = [], [], []
    for cpu in np.unique(stamps.cpu):
        here = (event != QUEUED) & (stamps.cpu[message] == cpu)
        left = event[here] == DEPARTED
        in_service = np.cumsum(np.where(left, -1, 1))
        free = np.flatnonzero(left & (in_service == 0))
        moments = at[here][free]
        cycle = np.searchsorted(free, np.flatnonzero(left))
        code = cycle * width + stamps.kind[message[here][left]]
        served = np.bincount(code, minlength=(len(free) + 1) * width).reshape(-1, width)
        begins = np.flatnonzero(waiting[here][free][:-1] >= cores)
        starts.append(moments[begins])
        lengths.append(moments[begins + 1] - moments[begins])
        counts.append(served[begins + 1])
    none = np.empty((0, width))
    return Cycles(
        np.concatenate([np.empty(0), *starts]),
        np.concatenate([np.empty(0), *lengths]),
        np.concatenate([none, *counts]),
    )


def work(stamps: Stamps, cycles: Cycles, draws: int, rng: np.random.Generator) -> Work:
    """Estimate a busy CPU's time per message from periods in which the CPU was busy without a break.

    The lengths of the cycles are regressed on the numbers of messages of each type, and on the local load. The local
    load is the rate of the last `LOCAL` arrivals before the cycle. The mean uses the shares of the types among all
    messages, because busy cycles contain the types in other shares. The bootstrap resamples `BLOCKS` equal parts
    (blocks) of the recording.
    """
    share = np.bincount(stamps.kind, minlength=cycles.served.shape[1]) / len(stamps.kind)
    served, share = _merge_rare(cycles.served, share)
    before = np.searchsorted(stamps.arrived, cycles.start_ns)
    enough = before >= LOCAL
    start, length, served = cycles.start_ns[enough], cycles.length_ns[enough], served[enough]
    number = served.sum(axis=1)
    since = start - stamps.arrived[before[enough] - LOCAL]
    mean_rate = len(stamps.arrived) / stamps.arrived[-1]
    load = np.log(LOCAL / np.maximum(since, 1.0) / mean_rate)
    x = np.column_stack((served, load * number))
    block = np.minimum((start / stamps.arrived[-1] * BLOCKS).astype(int), BLOCKS - 1)
    squares, products = _normal_equations(x, length, 1 / number, block)

    def solve(blocks: npt.NDArray[np.int64]) -> tuple[float, float]:
        coefficients = np.linalg.lstsq(squares[blocks].sum(axis=0), products[blocks].sum(axis=0))[0]
        mean = float(coefficients[:-1] @ share)
        return mean, float(np.clip(coefficients[-1] / mean, -0.5, 0.5))

    mean_ns, slope = solve(np.arange(BLOCKS))
    solution = np.linalg.lstsq(squares.sum(axis=0), products.sum(axis=0))[0]
    expected = x @ solution
    used = [i for i in range(BLOCKS) if np.any(block == i)]
    speeds = [np.log(length[block == i].sum() / expected[block == i].sum()) for i in used]
    spread = float(np.std(speeds, ddof=1)) if len(used) > 1 else 0.0
    mean_length = length / number
    paused = mean_length > LONG * np.median(mean_length)
    excess = length - number * mean_length[~paused].mean()
    sums = np.array(
        [
            (length[these].sum(), excess[these & paused].sum(), np.count_nonzero(these & paused))
            for these in (block == i for i in range(BLOCKS))
        ]
    )

    def pauses(blocks: npt.NDArray[np.int64]) -> tuple[float, float]:
        total, lost, times = sums[blocks].sum(axis=0)
        return (lost / total, lost / times) if times else (0.0, 0.0)

    samples = np.array(
        [(*solve(blocks), *pauses(blocks)) for blocks in rng.integers(0, BLOCKS, (draws, BLOCKS))]
    )
    samples[:, 0] *= np.exp(rng.normal(0.0, spread, draws))
    typical = mean_length[~paused]
    return Work(
        len(length),
        mean_ns,
        slope,
        float(typical.var() / typical.mean() ** 2),
        *pauses(np.arange(BLOCKS)),
        samples,
    )


def _normal_equations(
    x: Values, y: Values, weights: Values, block: npt.NDArray[np.int64]
) -> tuple[Values, Values]:
    """Return both sides of the normal equations of a weighted regression of y on x, for each block of the recording."""
    squares = np.zeros((BLOCKS, x.shape[1], x.shape[1]))
    products = np.zeros((BLOCKS, x.shape[1]))
    for i in range(BLOCKS):
        rows, weight = x[block == i], weights[block == i]
        squares[i] = rows.T @ (rows * weight[:, None])
        products[i] = rows.T @ (weight * y[block == i])
    return squares, products


def _merge_rare(served: Values, share: Values) -> tuple[Values, Values]:
    """Merge message types with few messages into the type `other`, and remove types without messages."""
    other = MESSAGE_TYPES["other"]
    rare = served.sum(axis=0) < LEAST_OF_TYPE
    rare[other] = False
    served, share = served.copy(), share.copy()
    served[:, other] += served[:, rare].sum(axis=1)
    share[other] += share[rare].sum()
    kept = ~rare & (served.sum(axis=0) > 0)
    if not kept[other] and share[other] > 0:
        # A type without messages in busy cycles has no estimate, so assume that its work is the mean of all other
        # types.
        share[kept] /= share[kept].sum()
    return served[:, kept], share[kept]
