"""Functions that count retransmitted requests at the SPS and compare the counts with the counts of the UAC."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.records.load_report import Sends
from sipsched.records.trace import MessageKind

REQUESTS = (MessageKind.INVITE, MessageKind.ACK, MessageKind.BYE)


def arrived(records: npt.NDArray[Any]) -> dict[str, Sends]:
    """Return the numbers of first sends and retransmissions of requests that reached the SPS, by SIP method.

    Parameters
    ----------
    records
        A trace, dtype `sipsched.records.trace.RECORD`, shape (n,). Received and dropped messages are counted, because a
        request that the full socket refused has also reached the SPS.

    Returns
    -------
    dict
        Numbers by method. A later datagram with the same Call-ID, CSeq and method is a retransmission (RFC 3261,
        section 17).
    """
    sends = {}
    for kind in REQUESTS:
        these = records[records["kind"] == kind]
        # Combine Call-ID and CSeq into one 64-bit key, so that np.unique counts distinct transactions.
        keys = these["call_id_hash"] ^ (
            these["cseq"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        )
        first = len(np.unique(keys))
        sends[kind.name] = Sends(first, len(these) - first)
    return sends


def disagreement(sent: Mapping[str, Sends], reached: Mapping[str, Sends], unseen: int) -> int:
    """Return by how many requests the counts of the UAC and the SPS differ (first sends and retransmissions).

    Parameters
    ----------
    sent
        Numbers by method that the UAC counted.
    reached
        Numbers by method that `arrived` returned.
    unseen
        Number of refused datagrams with unknown content. Each such datagram can explain a difference of one request.
    """
    different = sum(
        abs(sent[method].first - reached[method].first)
        + abs(sent[method].again - reached[method].again)
        for method in reached
    )
    return max(0, different - unseen)
