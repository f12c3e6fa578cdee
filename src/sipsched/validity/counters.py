"""Functions that parse the kernel's counters in /proc."""

from collections.abc import Mapping
from typing import TypeVar

from sipsched.errors import StableError

# ASSUME USER_HZ is 100, as on every Linux architecture except alpha and ia64 (proc(5))
USER_HZ = 100

_Number = TypeVar("_Number", int, float)

CPU_STATES = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
)


def parse_snmp(text: str, where: str = "/proc/net/snmp") -> dict[str, dict[str, int]]:
    """Parse /proc/net/snmp or /proc/net/netstat, which have two lines per protocol: names and values.

    Returns
    -------
    dict
        Per protocol ("Udp", "TcpExt" …), a mapping from the name of a counter to its value.

    Raises
    ------
    StableError
        The text is empty, a line of names or values is missing, or the names and the values do not match.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise StableError(f"{where}: expected counters, found nothing; repeat the run")
    tables: dict[str, dict[str, int]] = {}
    for names, values in zip(lines[0::2], [*lines[1::2], ""], strict=False):
        protocol, _, keys = names.partition(":")
        again, _, numbers = values.partition(":")
        if again != protocol or len(keys.split()) != len(numbers.split()):
            raise StableError(
                f"{where}: {protocol[:60]}: expected {len(keys.split())} values, found "
                f"{len(numbers.split())}; the file is truncated, repeat the run"
            )
        try:
            tables[protocol] = dict(
                zip(keys.split(), [int(number) for number in numbers.split()], strict=True)
            )
        except ValueError:
            raise StableError(
                f"{where}: {protocol[:60]}: expected integers, found {values!r:.80}"
            ) from None
    udp = tables.get("Udp", {})
    if {"InErrors", "RcvbufErrors"} <= udp.keys() and "InCsumErrors" not in udp:
        # Linux 3.2 counts most datagrams that a full queue refuses in InErrors, but not in RcvbufErrors. Kernels that
        # have the counter InCsumErrors count each refused datagram in RcvbufErrors, too.
        udp["RcvbufErrors"] = udp["InErrors"]
    return tables


UDP_COUNTERS = frozenset(
    ("InDatagrams", "NoPorts", "InErrors", "OutDatagrams", "RcvbufErrors", "SndbufErrors")
)
"""Counters in the table Udp of /proc/net/snmp that are needed to account for all datagrams of a run."""


def parse_udp_counters(text: str, where: str = "/proc/net/snmp") -> dict[str, int]:
    """Return the UDP counters from the text of /proc/net/snmp.

    Raises
    ------
    StableError
        See `parse_snmp`. Or one of `UDP_COUNTERS` is missing.
    """
    udp = parse_snmp(text, where).get("Udp", {})
    missing = sorted(UDP_COUNTERS - udp.keys())
    if missing:
        raise StableError(f"{where}: expected Udp {', '.join(missing)}, not found; repeat the run")
    return udp


def parse_dev(text: str, where: str = "/proc/net/dev") -> dict[str, tuple[int, int]]:
    """Return the numbers of packets that each interface dropped, from the text of /proc/net/dev.

    Returns
    -------
    dict
        Per interface, its two `drop` columns: received packets and sent packets. SEE net/core/net-procfs.c of the
        kernel.

    Raises
    ------
    StableError
        The header of two lines is missing, or a line is truncated.
    """
    return {name: (row[3], row[11]) for name, row in _dev_rows(text, where).items()}


def parse_sent(text: str, where: str = "/proc/net/dev") -> dict[str, int]:
    """Return the number of packets that each interface sent, from the text of /proc/net/dev.

    Raises
    ------
    StableError
        See `parse_dev`.
    """
    return {name: row[9] for name, row in _dev_rows(text, where).items()}


def _dev_rows(text: str, where: str) -> dict[str, list[int]]:
    lines = text.splitlines()
    if len(lines) < 2 or "drop" not in lines[1]:
        raise StableError(
            f"{where}: expected a header of two lines; the file is truncated, repeat the run"
        )
    rows = {}
    for number, line in enumerate(lines[2:], start=3):
        name, _, columns = line.partition(":")
        words = columns.split()
        if len(words) != 16 or not all(word.isdecimal() for word in words):
            raise StableError(
                f"{where}: line {number}: expected 16 columns, found {line!r:.80}; repeat the run"
            )
        rows[name.strip()] = [int(word) for word in words]
    return rows


def parse_stat(text: str, where: str = "/proc/stat") -> dict[str, dict[str, float]]:
    """Return the seconds that each CPU spent in each state (such as idle), from the text of /proc/stat.

    Returns
    -------
    dict
        Per CPU ("cpu" for all CPUs, "cpu0" …), a mapping from a state (user, system, steal …) to seconds since boot.

    Raises
    ------
    StableError
        No line begins with "cpu", or a line has fewer than eight states (kernels before 2.6.11).
    """
    cpus: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            continue
        name, *ticks = line.split()
        if len(ticks) < 8:
            raise StableError(
                f"{where}: {name}: expected at least 8 states, found {len(ticks)}; repeat the run"
            )
        try:
            seconds = [int(tick) / USER_HZ for tick in ticks]
        except ValueError:
            raise StableError(f"{where}: {name}: expected integers, found {line!r:.80}") from None
        cpus[name] = dict(zip(CPU_STATES, seconds, strict=False))
    if not cpus:
        raise StableError(f"{where}: expected cpu lines, found none; repeat the run")
    return cpus


def difference(before: Mapping[str, _Number], after: Mapping[str, _Number]) -> dict[str, _Number]:
    """Return the increase of each counter from an earlier to a later snapshot.

    Counters that only one snapshot contains are excluded.

    Raises
    ------
    StableError
        A counter has decreased, because the host or its network namespace was restarted.
    """
    deltas = {}
    for name in before.keys() & after.keys():
        deltas[name] = after[name] - before[name]
        if deltas[name] < 0:
            raise StableError(
                f"counter {name}: expected at least {before[name]}, found {after[name]}; "
                "the host was restarted during the run; repeat the run"
            )
    return deltas
