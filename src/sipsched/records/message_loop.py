"""The loop that converts trace records into columns of messages. numba compiles the loop.

Importing numba takes 0.4 s. The loop is a separate module, because reading a finished dataset does not need numba.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from sipsched.records.messages import FLAGS, INTERVALS, MESSAGE_TYPES, MISSING, SATURATED
from sipsched.records.trace import Event, Flag, MessageKind

_RETRANSMISSION = MESSAGE_TYPES["retransmission"]
_SATURATED_FLAG = FLAGS["saturated"]
_CLIPPED_FLAG = FLAGS["clipped"]
_DROP = int(Event.DROP)
_OTHER = int(MessageKind.OTHER)
_NO_SEND = int(Flag.NO_SEND)
_UNMATCHED = int(Flag.UNMATCHED)
_LEFT = int(Flag.LEFT)


class Calls(NamedTuple):
    """A hash table of all SIP transactions in the trace records that were processed so far.

    Attributes
    ----------
    table
        Keys; 0 marks an empty entry. The length is a power of two above 1.5 n for n records.
    seen
        Per entry of `table`, one bit for each type of datagram that has occurred.
    """

    table: npt.NDArray[np.uint64]
    seen: npt.NDArray[np.uint8]


class MessageColumns(NamedTuple):
    """The columns of received messages that the loop fills. Each column has one entry per message.

    Attributes
    ----------
    intervals
        Shape (interval, message), in the order of `INTERVALS`, ns. `MISSING` if a timestamp is unknown, `SATURATED`
        from 4.29 s on.
    """

    t_arr: npt.NDArray[np.int64]
    intervals: npt.NDArray[np.uint32]
    message_type: npt.NDArray[np.uint8]
    tid: npt.NDArray[np.uint32]
    cpu: npt.NDArray[np.uint16]
    flags: npt.NDArray[np.uint16]


class DropColumns(NamedTuple):
    """The columns of refused datagrams that the loop fills. Each column has one entry per datagram."""

    drop_t_arr: npt.NDArray[np.int64]
    drop_type: npt.NDArray[np.uint8]
    drop_reason: npt.NDArray[np.uint8]


def empty_columns(messages: int, drops: int) -> tuple[MessageColumns, DropColumns]:
    """Return uninitialised columns with room for these numbers of messages and drops."""
    return (
        MessageColumns(
            np.empty(messages, np.int64),
            np.empty((len(INTERVALS), messages), np.uint32),
            np.empty(messages, np.uint8),
            np.empty(messages, np.uint32),
            np.empty(messages, np.uint16),
            np.empty(messages, np.uint16),
        ),
        DropColumns(
            np.empty(drops, np.int64), np.empty(drops, np.uint8), np.empty(drops, np.uint8)
        ),
    )


def no_calls(records: int) -> Calls:
    """Return an empty hash table with enough entries for the transactions of this number of trace records."""
    length = 1 << max(4, (3 * records // 2).bit_length())
    return Calls(np.zeros(length, np.uint64), np.zeros(length, np.uint8))


@numba.njit(cache=True, boundscheck=False)
def _slot(table: npt.NDArray[np.uint64], call: Any, cseq: Any) -> Any:
    """Return the index of the pair (call, cseq) in the hash table. Add the pair first if the table lacks the pair."""
    # Hash only the Call-ID (by splitmix64), so that the transactions of a call are neighbours in one cache line.
    mixed = np.uint64(call)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    # ASSUME no two pairs (Call-ID, CSeq) of a run have the same 64-bit key (probability below 1e-7 at 10⁶ messages)
    key = mixed ^ (np.uint64(cseq) * np.uint64(0x9E3779B97F4A7C15))
    if key == np.uint64(0):
        key = np.uint64(1)
    mask = np.uint64(len(table) - 1)
    slot = (mixed + np.uint64(cseq)) & mask
    while table[slot] != np.uint64(0) and table[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    table[slot] = key
    return slot


@numba.njit(cache=True, boundscheck=False)
def _fit(value: Any) -> Any:
    """Convert a time difference in ns to uint32. Return `SATURATED` if the number is too large."""
    return np.uint32(value) if value < SATURATED else np.uint32(SATURATED)


@numba.njit(cache=True, boundscheck=False)
def arrivals(records: npt.NDArray[Any], t_arr: npt.NDArray[np.int64]) -> int:
    """Fill the array `t_arr` with the records' arrival times, and return the number of dropped datagrams.

    Parameters
    ----------
    records
        The trace, dtype `sipsched.records.trace.RECORD`, shape (n,).
    t_arr
        Output, shape (n,), ns: t_arr, or t_sip_in if the arrival is unknown.
    """
    drops = 0
    for index in range(len(records)):
        record = records[index]
        arrived = np.int64(record["t_arr"])
        t_arr[index] = arrived if arrived != 0 else np.int64(record["t_sip_in"])
        drops += record["event"] == _DROP
    return drops


@numba.njit(cache=True, boundscheck=False)
def fill(
    records: npt.NDArray[Any],
    t_arr: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    calls: Calls,
    messages: MessageColumns,
    drops: DropColumns,
) -> None:
    """Fill the columns of received messages and dropped datagrams from the trace, in the order of arrival.

    Parameters
    ----------
    records
        The trace, dtype `sipsched.records.trace.RECORD`, shape (n,).
    t_arr
        Arrival times by which the records are sorted, shape (n,), ns.
    order
        The permutation that sorts `t_arr`, from a stable sort.
    calls
        An empty hash table.
    messages, drops
        Columns that the function writes.
    """
    message = 0
    drop = 0
    for position in range(len(order)):
        index = order[position]
        record = records[index]
        kind = _kind(record, calls)
        if record["event"] == _DROP:
            drops.drop_t_arr[drop] = t_arr[index]
            drops.drop_type[drop] = kind
            drops.drop_reason[drop] = record["drop_reason"]
            drop += 1
            continue
        k_stack, k_sockq, k_copy, k_rcv, flag = _receiving(record, record["flags"])
        t_sip, t_sip_off, k_snd, flag = _serving(record, flag)
        column = (k_stack, k_sockq, k_copy, t_sip, t_sip_off, k_snd, k_rcv)
        for row in range(len(column)):
            messages.intervals[row, message] = column[row]
            if column[row] == SATURATED:
                flag |= _SATURATED_FLAG
        messages.t_arr[message] = t_arr[index]
        messages.message_type[message] = kind
        messages.tid[message] = record["tid"]
        messages.cpu[message] = record["cpu"]
        messages.flags[message] = flag
        message += 1


@numba.njit(cache=True, boundscheck=False)
def _kind(record: Any, calls: Calls) -> Any:
    """Return the message type of a datagram, or "retransmission" if its transaction already had this type."""
    kind = record["kind"]
    if kind != _OTHER and record["call_id_hash"] != 0:
        slot = _slot(calls.table, record["call_id_hash"], record["cseq"])
        bit = np.uint8(1) << kind
        if calls.seen[slot] & bit:
            kind = np.uint8(_RETRANSMISSION)
        calls.seen[slot] |= bit
    return kind


@numba.njit(cache=True, boundscheck=False)
def _receiving(record: Any, flag: Any) -> Any:
    """Return the four times before the proxy reads a message (k_stack, k_sockq, k_copy, k_rcv), and its updated flags.

    If a timestamp is out of order (one in 287,000, by 50 ns), the function moves it between the neighbouring
    timestamps. The sum of the intervals is then still t_sip_in - t_arr.
    """
    k_stack = k_sockq = k_copy = k_rcv = np.uint32(MISSING)
    arrived = np.int64(record["t_arr"])
    stacked = np.int64(record["t_stack"])
    taken = np.int64(record["t_sockq"])
    if flag & _UNMATCHED or arrived == 0:
        return k_stack, k_sockq, k_copy, k_rcv, flag
    received = np.int64(record["t_sip_in"])
    if received < arrived:
        received = arrived
        flag |= _CLIPPED_FLAG
    k_rcv = _fit(received - arrived)
    if stacked != 0:
        in_order = min(max(stacked, arrived), received)
        if in_order != stacked:
            flag |= _CLIPPED_FLAG
            stacked = in_order
        k_stack = _fit(stacked - arrived)
    if taken != 0:
        in_order = min(max(taken, stacked if stacked != 0 else arrived), received)
        if in_order != taken:
            flag |= _CLIPPED_FLAG
            taken = in_order
        k_copy = _fit(received - taken)
        if stacked != 0:
            k_sockq = _fit(taken - stacked)
    return k_stack, k_sockq, k_copy, k_rcv, flag


@numba.njit(cache=True, boundscheck=False)
def _serving(record: Any, flag: Any) -> Any:
    """Return a message's times t_sip, t_sip_off and k_snd minus the probe's own time, and the message's new flags."""
    t_sip = t_sip_off = k_snd = np.uint32(MISSING)
    sent = np.int64(record["t_sip_out"])
    if flag & _NO_SEND or sent == 0:
        return t_sip, t_sip_off, k_snd, flag
    service = sent - (np.int64(record["t_sip_in"]) + np.int64(record["in_cost_ns"]))
    if service < 0:
        service = np.int64(0)
        flag |= _CLIPPED_FLAG
    t_sip = _fit(service)
    if not flag & _LEFT:
        t_sip_off = _fit(np.int64(record["off_cpu_ns"]))
    departed = np.int64(record["t_dep"])
    if departed != 0:
        sending = departed - (sent + np.int64(record["out_cost_ns"]))
        if sending < 0:
            sending = np.int64(0)
            flag |= _CLIPPED_FLAG
        k_snd = _fit(sending)
    return t_sip, t_sip_off, k_snd, flag
