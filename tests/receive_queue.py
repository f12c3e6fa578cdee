"""The kernel's rule for the memory of a UDP socket's receive queue, applied to a trace."""

from typing import Any

import numpy as np
import numpy.typing as npt


def charged_bytes(records: npt.NDArray[Any], limit_bytes: int) -> npt.NDArray[np.int64]:
    """Return the memory of a socket after each message of a trace, as Linux since 4.10 charges and frees it.

    Readers owe the memory of the messages that they took. They free the memory if they owe a quarter of the limit, or
    if no message is left on the reader's side of the queue. Then all waiting messages move to the reader's side.
    SEE __skb_recv_udp() and udp_rmem_release() in net/ipv4/udp.c.
    """
    size = int(records["rmem"][records["rmem"] > 0].min())
    arrivals = [(int(t), 0, i) for i, t in enumerate(records["t_stack"])]
    takes = [(int(t), 1, 0) for t in records["t_sockq"]]
    charged = owed = waiting = readable = 0
    result = np.zeros(len(records), np.int64)
    for _, taken, i in sorted(arrivals + takes):
        if not taken:
            charged, waiting = charged + size, waiting + 1
            result[i] = charged
            continue
        if not readable:
            readable, waiting = waiting, 0
        readable, owed = readable - 1, owed + size
        if not readable or owed >= limit_bytes / 4:
            charged, owed = charged - owed, 0
            readable, waiting = readable + waiting, 0
    return result
