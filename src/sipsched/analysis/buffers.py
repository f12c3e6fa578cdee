"""The longest message burst that a receive buffer can hold, the wait of the burst's last message, and the capacity.

The messages of a message burst arrive at once, or while no worker runs. An empty buffer holds all messages of the
burst if the sum of their truesizes fits into SO_RCVBUF. The last message of the burst waits until the workers have
processed all other messages of the burst.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.advice import ComparedLoad
from sipsched.analysis.crossing_load import CrossingLoad, crossing
from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers import MESSAGES_PER_CALL
from sipsched.plan.modes import split_name


@dataclass(frozen=True)
class BufferAtLoad:
    """A receive buffer at one load: the largest burst that fits into the buffer, measured drops and waiting times.

    Attributes
    ----------
    mode
        The mode whose proxy instance has this buffer.
    receive_buffer_bytes
        Effective SO_RCVBUF, which is twice the size that the proxy asks for.
    truesize
        Mean number of bytes that the kernel charges to the buffer per message.
    messages
        Number of messages that the empty buffer holds.
    burst_ms
        Time in which this number of messages arrives at the load. A burst of this length loses no message.
    wait_ms
        CPU time of the proxy for this number of messages, divided by its cores. The burst's last message waits for
        this time.
    pdr, k_rcv_us, p99_us
        Measured means over the windows: share of dropped messages, K_rcv, and the 99th percentile of K_rcv + T_sip.
    """

    mode: str
    receive_buffer_bytes: int
    truesize: float
    messages: int
    burst_ms: float
    wait_ms: float
    pdr: Interval
    k_rcv_us: Interval
    p99_us: Interval


def buffers_at(load: ComparedLoad) -> tuple[BufferAtLoad, ...]:
    """Return the receive buffers that runs compare at a load, the smallest first; empty if no mode sets a buffer size.

    The result excludes a mode if its buffer, the messages' truesize or the proxy's CPU time per message is unknown.
    """
    if not any(split_name(mode)[1].receive_buffer_bytes for mode in load.modes):
        return ()
    buffers = [_buffer_at(load, mode) for mode in (load.place.reference, *load.modes)]
    return tuple(sorted(filter(None, buffers), key=lambda buffer: buffer.receive_buffer_bytes))


def capacity_with_buffer(loads: Sequence[ComparedLoad], mode: str) -> CrossingLoad:
    """Return the load at which a proxy with the mode's receive buffer drops 1 % of the messages in a typical run.

    The drop rate of a run is the mean over the valid windows of the mode.

    Parameters
    ----------
    loads
        The loads at which the buffers were compared. The runs at a load may compare different buffers.
    """
    rates = [
        [float(windows.mean()) for windows in load.windows(mode, "pdr") if windows.size]
        for load in loads
    ]
    table = np.full((len(loads), max(map(len, rates), default=0)), np.nan)
    for row, of_load in zip(table, rates, strict=True):
        row[: len(of_load)] = of_load
    return crossing([load.cps for load in loads], table)


def _buffer_at(load: ComparedLoad, mode: str) -> BufferAtLoad | None:
    other = split_name(mode)[1]
    size, truesize = load.receive_buffer_bytes(mode), load.truesize
    service = load.mean(mode, "cpu_per_message").estimate
    if size is None or not truesize > 0 or not service > 0:
        return None
    # The kernel accepts one message into an empty queue, even if the message is larger than the buffer.
    messages = max(1, int(size // truesize))
    # ASSUME the calls in a window have the offered rate
    # If the actual rate differs from the offered rate, it does so equally in all modes, because all windows of a block
    # replay the same calls.
    rate_per_ms = MESSAGES_PER_CALL * load.cps / 1e3
    return BufferAtLoad(
        mode=mode,
        receive_buffer_bytes=size,
        truesize=truesize,
        messages=messages,
        burst_ms=messages / rate_per_ms,
        wait_ms=messages * service / (other.cores or load.place.cores) / 1e3,
        pdr=load.mean(mode, "pdr"),
        k_rcv_us=load.mean(mode, "k_rcv_mean"),
        p99_us=load.mean(mode, "total_p99"),
    )
