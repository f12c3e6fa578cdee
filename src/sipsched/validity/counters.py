"""The kernel's own counters of a host, as text from /proc and as numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sipsched.errors import StableError

# ASSUME USER_HZ is 100, as on every Linux architecture but alpha and ia64 (proc(5))
USER_HZ = 100

Number = TypeVar("Number", int, float)

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


@dataclass(frozen=True)
class Softnet:
    """One CPU's line of /proc/net/softnet_stat (kernel: net/core/net-procfs.c).

    Attributes
    ----------
    processed, dropped, time_squeeze
        Packets handled, packets refused by a full backlog, times the budget ran out.
    """

    processed: int
    dropped: int
    time_squeeze: int


@dataclass(frozen=True)
class UdpSocket:
    """One line of /proc/net/udp (kernel: net/ipv4/udp.c, udp4_format_sock).

    Attributes
    ----------
    address
        Local IPv4 address.
    port
        Local port.
    rx_queue_bytes
        sk_rmem_alloc at the time of reading.
    inode
        Identifies the socket.
    drops
        Datagrams refused since the socket was opened.
    """

    address: str
    port: int
    rx_queue_bytes: int
    inode: int
    drops: int


def parse_snmp(text: str, where: str = "/proc/net/snmp") -> dict[str, dict[str, int]]:
    """Parse /proc/net/snmp or /proc/net/netstat: pairs of a line of names and a line of values.

    Returns
    -------
    dict
        Protocol ("Udp", "TcpExt" …) to counter to value.

    Raises
    ------
    StableError
        Empty text, a line without its partner, or names and values that do not match.
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
                f"{len(numbers.split())}; the file is cut, repeat the run"
            )
        try:
            tables[protocol] = dict(
                zip(keys.split(), [int(number) for number in numbers.split()], strict=True)
            )
        except ValueError:
            raise StableError(
                f"{where}: {protocol[:60]}: expected integers, found {values!r:.80}"
            ) from None
    return tables


UDP_COUNTERS = frozenset(
    ("InDatagrams", "NoPorts", "InErrors", "OutDatagrams", "RcvbufErrors", "SndbufErrors")
)
"""What a ledger needs of the table Udp of /proc/net/snmp."""


def parse_udp_counters(text: str, where: str = "/proc/net/snmp") -> dict[str, int]:
    """Parse the table Udp of /proc/net/snmp.

    Raises
    ------
    StableError
        As `parse_snmp`, or one of `UDP_COUNTERS` is not there.
    """
    udp = parse_snmp(text, where).get("Udp", {})
    missing = sorted(UDP_COUNTERS - udp.keys())
    if missing:
        raise StableError(f"{where}: expected Udp {', '.join(missing)}, not found; repeat the run")
    return udp


def parse_softnet_stat(text: str, where: str = "/proc/net/softnet_stat") -> list[Softnet]:
    """Parse /proc/net/softnet_stat, one line a CPU, hexadecimal.

    Raises
    ------
    StableError
        Empty text, or a line with fewer than three hexadecimal columns.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            processed, dropped, squeezed = (int(word, 16) for word in line.split()[:3])
        except ValueError:
            raise StableError(
                f"{where}: line {number}: expected hexadecimal columns, found {line!r:.80}"
            ) from None
        rows.append(Softnet(processed, dropped, squeezed))
    if not rows:
        raise StableError(f"{where}: expected a line per CPU, found nothing; repeat the run")
    return rows


def parse_udp(text: str, where: str = "/proc/net/udp") -> list[UdpSocket]:
    """Parse /proc/net/udp: the sockets of one network namespace; none is a valid answer.

    Raises
    ------
    StableError
        No header line, or a line that is cut.
    """
    lines = text.splitlines()
    if not lines or "local_address" not in lines[0] or not lines[0].split()[-1] == "drops":
        raise StableError(f"{where}: expected a header ending in 'drops', found {text[:40]!r}")
    sockets = []
    for number, line in enumerate(lines[1:], start=2):
        words = line.split()
        try:
            address, port = words[1].split(":")
            octets = bytes.fromhex(address)[::-1]
            sockets.append(
                UdpSocket(
                    address=".".join(map(str, octets)),
                    port=int(port, 16),
                    rx_queue_bytes=int(words[4].split(":")[1], 16),
                    inode=int(words[9]),
                    drops=int(words[12]),
                )
            )
        except (IndexError, ValueError):
            raise StableError(
                f"{where}: line {number}: expected 13 columns, found {line!r:.80}; repeat the run"
            ) from None
    return sockets


def parse_dev(text: str, where: str = "/proc/net/dev") -> dict[str, tuple[int, int]]:
    """Parse /proc/net/dev (kernel: net/core/net-procfs.c): what each interface dropped.

    Returns
    -------
    dict
        Interface to its `drop` columns: received, sent.

    Raises
    ------
    StableError
        No header of two lines, or a line that is cut.
    """
    return {name: (row[3], row[11]) for name, row in _dev_rows(text, where).items()}


def parse_sent(text: str, where: str = "/proc/net/dev") -> dict[str, int]:
    """Parse /proc/net/dev: interface to packets sent.

    Raises
    ------
    StableError
        As `parse_dev`.
    """
    return {name: row[9] for name, row in _dev_rows(text, where).items()}


def _dev_rows(text: str, where: str) -> dict[str, list[int]]:
    lines = text.splitlines()
    if len(lines) < 2 or "drop" not in lines[1]:
        raise StableError(
            f"{where}: expected a header of two lines; the file is cut, repeat the run"
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
    """Parse the cpu lines of /proc/stat.

    Returns
    -------
    dict
        "cpu" (all), "cpu0" … to state (user, system, steal …) to seconds since boot.

    Raises
    ------
    StableError
        No cpu line, or one with fewer than eight states (kernels before 2.6.11).
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


def difference(before: Mapping[str, Number], after: Mapping[str, Number]) -> dict[str, Number]:
    """Subtract two snapshots of counters that only grow.

    Counters that one of the two lacks are left out.

    Raises
    ------
    StableError
        A counter went backwards: the host or its network namespace started anew in between.
    """
    deltas = {}
    for name in before.keys() & after.keys():
        deltas[name] = after[name] - before[name]
        if deltas[name] < 0:
            raise StableError(
                f"counter {name}: expected at least {before[name]}, found {after[name]}; "
                "the host was restarted during the run, repeat it"
            )
    return deltas
