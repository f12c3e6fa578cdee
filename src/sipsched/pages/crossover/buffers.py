"""Comparison of receive buffers: the message burst that a buffer holds, the longest wait, drops, and the capacity."""

from collections.abc import Sequence

from sipsched.analysis.advice import Advice, ComparedLoad
from sipsched.analysis.buffers import BufferAtLoad, buffers_at, capacity_with_buffer
from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.pages.crossings import crossing_words
from sipsched.pages.crossover.wording import by_proxy, identity, loads_name, short_load
from sipsched.pages.numbers import in_us, told
from sipsched.pages.parts import Cell, Part, Several, Table, Words
from sipsched.words import binary_size, grouped, listed


def page(comparisons: Sequence[Advice]) -> Several:
    """Return sentences and a table per proxy that compare receive buffers. Empty if no run compares buffers."""
    return by_proxy(comparisons, _parts)


def _parts(advice: Advice) -> tuple[Part, ...]:
    loads = [ranking.load for ranking in advice.rankings]
    compared = [(load, buffers) for load in loads if (buffers := buffers_at(load))]
    if not compared:
        return ()
    return (
        # The table has all loads. The sentences name only the lowest load, so that they remain few.
        Words(
            (
                *(_answer(compared[0][0], buffer) for buffer in compared[0][1]),
                *_capacities(compared),
            )
        ),
        _table(advice, compared),
    )


def _answer(load: ComparedLoad, buffer: BufferAtLoad) -> str:
    """Return a sentence: the longest message burst that a buffer holds at a load, and the last message's wait."""
    return (
        f"At {loads_name([load])}, a buffer of {binary_size(buffer.receive_buffer_bytes // 2)} holds a message burst "
        f"of {_ms(buffer.burst_ms)} without a drop. The last message of this burst waits {_ms(buffer.wait_ms)}."
    )


def _capacities(compared: Sequence[tuple[ComparedLoad, Sequence[BufferAtLoad]]]) -> list[str]:
    """Return sentences about the load with 1 % of drops for each buffer; empty if the buffers have only one load."""
    loads = [load for load, _ in compared]
    if len(loads) < 2:
        return []
    limit = f"{100 * PDR_LIMIT:g} %"
    return [
        *(
            f"With a buffer of {binary_size(buffer.receive_buffer_bytes // 2)}, the proxy drops {limit} of the "
            f"messages at this load: {crossing_words(capacity_with_buffer(loads, buffer.mode))} runs."
            for buffer in compared[0][1]
        ),
        "These loads depend on the length of the windows. A buffer only delays the drops of a steady overload, so the "
        "loads differ less in longer windows.",
    ]


def _table(
    advice: Advice, compared: Sequence[tuple[ComparedLoad, Sequence[BufferAtLoad]]]
) -> Table:
    truesizes = dict.fromkeys(
        grouped(buffer.truesize) for _, buffers in compared for buffer in buffers
    )
    return Table(
        identity=identity("table-buffers", *advice.place[1:4]),
        groups=(("", 4), ("computed", 2), ("measured", 3)),
        places=2,
        header=(
            *("load", "buffer", "effective SO_RCVBUF", "messages"),
            *("message burst without a drop", "wait of the slowest message"),
            *("PDR (%)", "K_rcv mean", "K_rcv + T_sip p99"),
        ),
        rows=tuple(_row(load, buffer) for load, buffers in compared for buffer in buffers),
        none="no buffers were compared",
        caption="The message burst that each receive buffer holds, and the measured drops and times.",
        reading=f"The kernel charges each message with its truesize, here {listed(list(truesizes))} bytes on average. "
        'The column "messages" shows how many messages the buffer holds: the effective SO_RCVBUF divided by the '
        "truesize. The messages of a burst arrive at once, or while no worker runs. The length of the burst is "
        "the time in which the same number of messages usually arrives at this load. The table shows the longest "
        "burst that fits into the empty buffer. The slowest message waits until the workers have processed the "
        "whole burst, at the measured CPU time per message. The measured values are means over the windows of "
        "each buffer. If every burst at a load fits into every buffer, the buffers have equal results.",
    )


def _row(load: ComparedLoad, buffer: BufferAtLoad) -> tuple[Cell, ...]:
    return (
        short_load(load),
        load.label(buffer.mode),
        binary_size(buffer.receive_buffer_bytes),
        grouped(buffer.messages),
        _ms(buffer.burst_ms),
        _ms(buffer.wait_ms),
        told(buffer.pdr.map(lambda share: 100 * share), "%"),
        told(buffer.k_rcv_us, "µs"),
        told(buffer.p99_us, "µs"),
    )


def _ms(value_ms: float) -> str:
    return in_us(1000 * value_ms)
