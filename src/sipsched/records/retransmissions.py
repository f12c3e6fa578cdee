"""Requests that were sent again: as the UAC counts them and as they reached the SPS."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.records.run_document import Sends
from sipsched.records.trace import Kind

REQUESTS = (Kind.INVITE, Kind.ACK, Kind.BYE)


def arrived(records: npt.NDArray[Any]) -> dict[str, Sends]:
    """Tell first sends from retransmissions in what reached the SPS.

    Parameters
    ----------
    records
        A trace, dtype `sipsched.records.trace.RECORD`, shape (n,). Messages and drops both count: a request
        that the full socket refused had arrived.

    Returns
    -------
    dict
        Method to its sends. A later datagram of the same Call-ID, CSeq and method is a retransmission
        (RFC 3261, section 17).
    """
    found = {}
    for kind in REQUESTS:
        these = records[records["kind"] == kind]
        # SEE sipsched.records.message_loop: one 64-bit key in the place of Call-ID and CSeq
        keys = these["call_id_hash"] ^ (
            these["cseq"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        )
        first = len(np.unique(keys))
        found[kind.name] = Sends(first, len(these) - first)
    return found


def disagreement(sent: Mapping[str, Sends], reached: Mapping[str, Sends], unseen: int) -> int:
    """Count the requests that UAC and SPS tell apart differently.

    Parameters
    ----------
    sent
        What the UAC says, by method.
    reached
        What `arrived` found, by method.
    unseen
        Datagrams known to have been refused without their content: each explains one difference.

    Returns
    -------
    int
        0 when the two agree.
    """
    different = sum(
        abs(sent[method].first - reached[method].first)
        + abs(sent[method].again - reached[method].again)
        for method in reached
    )
    return max(0, different - unseen)
