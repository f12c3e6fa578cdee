"""Tests of the distinction between first sends and retransmissions at UAC and SPS."""

import numpy as np
import pytest

from sipsched.records import trace
from sipsched.records.load_report import Sends
from sipsched.records.retransmissions import arrived, disagreement


def records(*datagrams: tuple[int, int, int, int]) -> np.ndarray:
    """Make a trace in which each datagram is described by (call, cseq, kind, event)."""
    result = np.zeros(len(datagrams), trace.RECORD)
    for row, (call, cseq, kind, event) in zip(result, datagrams, strict=True):
        row["call_id_hash"], row["cseq"], row["kind"], row["event"] = call, cseq, kind, event
    return result


INVITE, RINGING, ACK, BYE = 1, 2, 4, 5
MESSAGE, DROP = 0, 1
TRACE = records(
    (7, 1, INVITE, DROP),
    (8, 1, INVITE, MESSAGE),
    (7, 1, INVITE, DROP),
    (7, 1, INVITE, MESSAGE),
    (7, 1, RINGING, MESSAGE),
    (7, 1, RINGING, MESSAGE),
    (7, 1, ACK, MESSAGE),
    (7, 2, BYE, MESSAGE),
    (8, 2, BYE, MESSAGE),
    (7, 2, BYE, MESSAGE),
)
SENT = {"INVITE": Sends(2, 2), "ACK": Sends(1, 0), "BYE": Sends(2, 1)}


def test_a_refused_first_send_counts_as_the_first_send() -> None:
    assert arrived(TRACE) == SENT


def test_a_record_without_arrivals_has_no_retransmissions() -> None:
    assert arrived(records()) == dict.fromkeys(SENT, Sends(0, 0))


@pytest.mark.parametrize(
    ("sent", "unseen", "expected"),
    [
        (SENT, 0, 0),
        (SENT | {"BYE": Sends(2, 2)}, 0, 1),
        (SENT | {"BYE": Sends(2, 2)}, 1, 0),
        (SENT | {"INVITE": Sends(3, 1)}, 1, 1),
    ],
)
def test_disagreement(sent: dict[str, Sends], unseen: int, expected: int) -> None:
    assert disagreement(sent, arrived(TRACE), unseen) == expected
