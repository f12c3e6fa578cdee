"""The hot loop from trace records to message columns, compiled by numba.

Kept apart from `sipsched.records.messages` because importing numba costs 0.4 s that reading a dataset does
not need.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from sipsched.records.trace import Event, Flag, Kind

MISSING = 0xFFFFFFFF
SATURATED = 0xFFFFFFFE
RETRANSMISSION = 7
FLAG_SATURATED = 1 << 7
FLAG_CLIPPED = 1 << 8

_DROP = int(Event.DROP)
_OTHER = int(Kind.OTHER)
_NO_SEND = int(Flag.NO_SEND)
_UNMATCHED = int(Flag.UNMATCHED)
_LEFT = int(Flag.LEFT)


@numba.njit(cache=True, boundscheck=False)
def _slot(table: npt.NDArray[np.uint64], call: Any, cseq: Any) -> Any:
    """Find where (call, cseq) is in an open-addressing table, or put it where it belongs."""
    # splitmix64 of the call: its transactions lie side by side, in one line of the cache
    mixed = np.uint64(call)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    # ASSUME no two (Call-ID, CSeq) of a run share 64 bits (p < 1e-7 at 10⁶ messages)
    key = mixed ^ (np.uint64(cseq) * np.uint64(0x9E3779B97F4A7C15))
    if key == np.uint64(0):
        key = np.uint64(1)
    mask = np.uint64(len(table) - 1)
    place = (mixed + np.uint64(cseq)) & mask
    while table[place] != np.uint64(0) and table[place] != key:
        place = (place + np.uint64(1)) & mask
    table[place] = key
    return place


@numba.njit(cache=True, boundscheck=False)
def _fit(value: Any) -> Any:
    """Squeeze a non-negative interval into u32, SATURATED when it does not fit."""
    return np.uint32(value) if value < SATURATED else np.uint32(SATURATED)


@numba.njit(cache=True, boundscheck=False)
def arrivals(records: npt.NDArray[Any], t_arr: npt.NDArray[np.int64]) -> int:
    """Fill in the instants to sort by, and count the drops.

    Parameters
    ----------
    records
        The trace, dtype `sipsched.records.trace.RECORD`, shape (n,).
    t_arr
        Output, shape (n,), ns: t_arr, or t_sip_in where the arrival was not found.
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
    table: npt.NDArray[np.uint64],
    seen: npt.NDArray[np.uint8],
    message_t_arr: npt.NDArray[np.int64],
    intervals: npt.NDArray[np.uint32],
    message_type: npt.NDArray[np.uint8],
    tid: npt.NDArray[np.uint32],
    cpu: npt.NDArray[np.uint16],
    flags: npt.NDArray[np.uint16],
    drop_t_arr: npt.NDArray[np.int64],
    drop_type: npt.NDArray[np.uint8],
    drop_reason: npt.NDArray[np.uint8],
) -> None:
    """Fill the columns of messages and drops in one pass in the order of arrival.

    Parameters
    ----------
    records
        The trace, dtype `sipsched.records.trace.RECORD`, shape (n,).
    t_arr
        Instants to sort by, shape (n,), ns.
    order
        The permutation that sorts `t_arr`, stable.
    table
        Zeros; a power of two long, more than 1.5 n.
    seen
        Zeros, of the same length: a bit for each kind of datagram.
    message_t_arr, message_type, tid, cpu, flags
        Outputs, one element a message.
    intervals
        Output, shape (7, messages): k_stack, k_sockq, k_copy, t_sip, t_sip_off, k_snd, k_rcv in ns;
        MISSING where an instant was not seen, SATURATED from 4.29 s up.
    drop_t_arr, drop_type, drop_reason
        Outputs, one element a refused datagram.
    """
    message = 0
    drop = 0
    for position in range(len(order)):
        index = order[position]
        record = records[index]
        kind = record["kind"]
        if kind != _OTHER and record["call_id_hash"] != 0:
            place = _slot(table, record["call_id_hash"], record["cseq"])
            bit = np.uint8(1) << kind
            if seen[place] & bit:
                kind = np.uint8(RETRANSMISSION)
            seen[place] |= bit

        if record["event"] == _DROP:
            drop_t_arr[drop] = t_arr[index]
            drop_type[drop] = kind
            drop_reason[drop] = record["drop_reason"]
            drop += 1
            continue

        flag = record["flags"]
        k_stack = k_sockq = k_copy = t_sip = t_sip_off = k_snd = k_rcv = np.uint32(MISSING)
        arrived = np.int64(record["t_arr"])
        stacked = np.int64(record["t_stack"])
        taken = np.int64(record["t_sockq"])
        received = np.int64(record["t_sip_in"])
        sent = np.int64(record["t_sip_out"])
        departed = np.int64(record["t_dep"])

        # Stamps out of order (one in 287,000, by 50 ns) are pulled into order from both ends, so
        # that the parts still add up to t_sip_in - t_arr.
        if not flag & _UNMATCHED and arrived != 0:
            if received < arrived:
                received_in_order = arrived
                flag |= FLAG_CLIPPED
            else:
                received_in_order = received
            k_rcv = _fit(received_in_order - arrived)
            if stacked != 0:
                in_order = min(max(stacked, arrived), received_in_order)
                if in_order != stacked:
                    flag |= FLAG_CLIPPED
                    stacked = in_order
                k_stack = _fit(stacked - arrived)
            if taken != 0:
                lower = stacked if stacked != 0 else arrived
                in_order = min(max(taken, lower), received_in_order)
                if in_order != taken:
                    flag |= FLAG_CLIPPED
                    taken = in_order
                k_copy = _fit(received_in_order - taken)
                if stacked != 0:
                    k_sockq = _fit(taken - stacked)
        if not flag & _NO_SEND and sent != 0:
            service = sent - (received + np.int64(record["in_cost_ns"]))
            if service < 0:
                service = np.int64(0)
                flag |= FLAG_CLIPPED
            t_sip = _fit(service)
            if not flag & _LEFT:
                t_sip_off = _fit(np.int64(record["off_cpu_ns"]))
            if departed != 0:
                sending = departed - (sent + np.int64(record["out_cost_ns"]))
                if sending < 0:
                    sending = np.int64(0)
                    flag |= FLAG_CLIPPED
                k_snd = _fit(sending)

        if (
            k_stack == SATURATED
            or k_sockq == SATURATED
            or k_copy == SATURATED
            or k_rcv == SATURATED
            or t_sip == SATURATED
            or t_sip_off == SATURATED
            or k_snd == SATURATED
        ):
            flag |= FLAG_SATURATED
        message_t_arr[message] = t_arr[index]
        intervals[0, message] = k_stack
        intervals[1, message] = k_sockq
        intervals[2, message] = k_copy
        intervals[3, message] = t_sip
        intervals[4, message] = t_sip_off
        intervals[5, message] = k_snd
        intervals[6, message] = k_rcv
        message_type[message] = kind
        tid[message] = record["tid"]
        cpu[message] = record["cpu"]
        flags[message] = flag
        message += 1
