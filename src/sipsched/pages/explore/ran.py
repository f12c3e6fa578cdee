"""The programs that ran while messages waited, known from the kernel's context switches."""

from collections.abc import Iterable, Sequence

import numpy as np

from sipsched.pages.explore.timeline import US, Messages
from sipsched.pages.numbers import in_us
from sipsched.pages.parts import Table, Words
from sipsched.records.bursts import SHORTEST_US, Program
from sipsched.words import grouped, listed, number, plural

SLOW_PERCENTILE = 99.0
"""The table covers the messages whose wait K_rcv is at least this percentile of all waits."""
MOST_ROWS = 20
"""The largest number of programs in the table on the page. The CSV has all programs."""
MOST_NAMED = 2
"""The largest number of programs that a sentence names."""
OWNERS = {
    "own": "program of sipsched",
    "kernel": "kernel thread",
    "realtime": "real-time program",
    "fair": "other program",
    "idle_class": "SCHED_IDLE program",
    "softirq": "softirq",
}
"""Names on pages for the kinds of programs that ran on a CPU."""
NOT_RECORDED = (
    "It is unknown which programs ran while the slowest messages waited, because the record has no bursts of other "
    "programs."
)
REST = "the proxy, idle time, interrupts and bursts below 20 µs"


def ran_us(
    messages: Messages, place: int, start_us: float, end_us: float
) -> dict[Program, float] | None:
    """Return the time in µs that each program ran on a message's CPU; None if the run recorded no other programs.

    Parameters
    ----------
    place
        Number of the message. The message's CPU is the CPU on which a worker received the message.
    start_us, end_us
        The period of time, in µs since the first arrival.
    """
    if messages.bursts is None:
        return None
    start, end = (messages.start_ns + round(us * 1000) for us in (start_us, end_us))
    ran = messages.bursts.ran_ns(int(messages.cpu[place]), start, end)
    return {program: ns / 1000 for program, ns in ran.items()}


def ran_words(messages: Messages, index: int, start_us: float, end_us: float) -> str:
    """Return a sentence on the programs that ran longest on a message's CPU in a period; empty without such records."""
    ran = ran_us(messages, index, start_us, end_us)
    if ran is None:
        return ""
    cpu = f"CPU {messages.cpu[index]}"
    if not ran:
        return f"Meanwhile, no other program kept {cpu} busy for {SHORTEST_US} µs or longer."
    times = [f"{named(program)} for {number(us)} µs" for program, us in ran.items()]
    rest = len(times) - MOST_NAMED
    shown = [*times[:MOST_NAMED], *([f"{rest} more"] if rest > 0 else [])]
    return f"Meanwhile, {cpu} ran {listed(shown)}."


def named(program: Program) -> str:
    """Return a program's name and kind, such as `NET_RX (softirq)`."""
    return f"{program.name} ({OWNERS[program.owner]})"


def slow_messages(messages: Messages) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the indices of the messages whose wait K_rcv is at least the 99th percentile."""
    wait = np.where(np.isnan(messages.service_us), np.nan, messages.wait_us)
    if np.isnan(wait).all():
        return np.empty(0, np.int64)
    return np.flatnonzero(wait >= np.nanpercentile(wait, SLOW_PERCENTILE))


def who_ran(runs: Iterable[Messages], provenance: str = "") -> Table | Words:
    """Return a table of the programs that ran while the slowest messages waited, with the time of each program."""
    known = [run for run in runs if run.bursts is not None]
    if not known:
        return Words((NOT_RECORDED,))
    sums: dict[Program, float] = {}
    counts: dict[Program, int] = {}
    whole = 0.0
    slow = 0
    for run in known:
        for slow_message in slow_messages(run).tolist():
            begin = float(run.at_s[slow_message] * US)
            ran = ran_us(run, slow_message, begin, float(run.taken_us[slow_message])) or {}
            for program, us in ran.items():
                sums[program] = sums.get(program, 0.0) + us
                counts[program] = counts.get(program, 0) + 1
            whole += float(run.wait_us[slow_message])
            slow += 1
    lost = sum(run.bursts.lost for run in known if run.bursts is not None)
    return Table(
        identity="table-ran",
        header=("name", "kind", "messages", "time during the waits", "share of the waits"),
        rows=tuple(_rows(sums, counts, whole, slow)),
        none="No message of these runs has both times, K_rcv and T_sip.",
        caption="Programs that ran while the slowest 1\u00a0% of messages (the messages with the longest K_rcv) "
        f"waited. The table describes {plural(slow, 'message')}."
        + (
            f" {plural(lost, 'burst')} are missing, because the probe's ring buffer was full."
            if lost
            else ""
        ),
        reading=f"The table counts a program if it ran on the CPU on which the waiting message was later received. The "
        f"kernel's context switches mark the start and the end of each burst. Bursts shorter than "
        f"{SHORTEST_US} µs are not recorded. The time of a softirq that interrupts a program counts as softirq "
        f"time. The last row is the rest of the waiting time.",
        provenance=provenance,
        shown=MOST_ROWS,
    )


def _rows(
    sums: dict[Program, float], counts: dict[Program, int], whole: float, slow: int
) -> Sequence[tuple[str, ...]]:
    if not slow:
        return []
    ordered = sorted(sums, key=lambda program: -sums[program])
    times = [
        *(
            (program.name, OWNERS[program.owner], grouped(counts[program]), sums[program])
            for program in ordered
        ),
        (REST, "", "", max(0.0, whole - sum(sums.values()))),
    ]
    return [
        (name, kind, messages, in_us(us), f"{100 * us / whole:.1f} %" if whole else "")
        for name, kind, messages, us in times
    ]
