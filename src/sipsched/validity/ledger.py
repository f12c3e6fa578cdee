"""The drop ledger: every message that was sent is received, counted as dropped, or missing."""

from collections.abc import Mapping
from dataclasses import dataclass

from sipsched.validity import counters

SNMP = "/proc/net/snmp"
DEV = "/proc/net/dev"
PHASES = ("before", "after")
Snapshots = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Role, then `before` or `after`, then path: the verbatim text of `counters.json`."""


@dataclass(frozen=True)
class Balance:
    """One direction of the signal's way, in datagrams; over TCP in messages, none of which can be refused.

    Attributes
    ----------
    sent
        OutDatagrams of the senders.
    received
        InDatagrams of the receivers.
    refused
        RcvbufErrors of the receivers: the socket's queue was full.
    other_errors
        InErrors that are not RcvbufErrors: checksum, memory.
    no_port
        NoPorts of the receivers: nobody listened.
    residual
        What is left: sent, and neither received nor counted as dropped at its destination. Dropped
        on the way, by a link, a queueing discipline or a packet filter, or sent by somebody else.
    """

    sent: int
    received: int
    refused: int
    other_errors: int
    no_port: int

    @property
    def residual(self) -> int:
        """Datagrams that nobody accounts for; 0 when the ledger balances."""
        return self.sent - self.received - self.refused - self.other_errors - self.no_port


@dataclass(frozen=True)
class Ledger:
    """Both directions, and what the interfaces of all hosts say they dropped.

    Attributes
    ----------
    link_drops
        The `drop` columns of all interfaces, and SndbufErrors: what a sender's own queueing discipline
        refused is not in its OutDatagrams.
    unit
        What is balanced: `datagrams`, by the kernels' counters, or over TCP `messages`, by the programs' own.
    segments_again
        Over TCP, what the kernels of the three hosts sent again (RetransSegs), SSH's segments included.
    """

    to_sps: Balance
    from_sps: Balance
    link_drops: int
    unit: str = "datagrams"
    segments_again: int | None = None

    @property
    def residual(self) -> int:
        """Largest number of datagrams that a direction cannot account for."""
        return max(abs(self.to_sps.residual), abs(self.from_sps.residual))


def balance(snapshots: Snapshots, *, fronted: bool = False) -> Ledger:
    """Balance the counters of a run.

    Parameters
    ----------
    snapshots
        Counters of uac, sps and uas before and after the load, when no message was on its way.
    fronted
        Whether the SPS sends itself every message once, from its front to an instance or back.

    Raises
    ------
    StableError
        A counter file is missing or cut off.
    """
    # ASSUME nothing but SIP uses UDP on the three hosts while a run lasts
    udp = {role: _delta(snapshots, role) for role in ("uac", "sps", "uas")}
    agents = [udp["uac"], udp["uas"]]
    if fronted:
        # ASSUME nothing else uses the loopback interface of the SPS while a run of such a SUT lasts
        within = _looped(snapshots)
        sps = udp["sps"]
        udp["sps"] = sps | {name: sps[name] - within for name in ("InDatagrams", "OutDatagrams")}
    return Ledger(
        to_sps=_balance(agents, [udp["sps"]]),
        from_sps=_balance([udp["sps"]], agents),
        link_drops=sum(_link_drops(snapshots, role) + udp[role]["SndbufErrors"] for role in udp),
    )


@dataclass(frozen=True)
class Tally:
    """SIP messages that a program sent and received, each as often as it went over the wire."""

    sent: int
    received: int

    def __add__(self, other: "Tally") -> "Tally":
        """Add what another program sent and received."""
        return Tally(self.sent + other.sent, self.received + other.received)

    def __sub__(self, other: "Tally") -> "Tally":
        """Take off what was counted before."""
        return Tally(self.sent - other.sent, self.received - other.received)


def balance_messages(snapshots: Snapshots, agents: Tally, proxy: Tally) -> Ledger:
    """Balance a run over TCP, where the kernels count no messages.

    Parameters
    ----------
    snapshots
        As of `balance`: what the interfaces dropped and TCP sent again.
    agents, proxy
        What UAC and UAS together, and the proxy, count of the same load.

    Raises
    ------
    StableError
        A counter file is missing or cut off.
    """
    return Ledger(
        to_sps=Balance(agents.sent, proxy.received, 0, 0, 0),
        from_sps=Balance(proxy.sent, agents.received, 0, 0, 0),
        link_drops=sum(_link_drops(snapshots, role) for role in snapshots),
        unit="messages",
        segments_again=sum(_segments_again(snapshots, role) for role in snapshots),
    )


def _segments_again(snapshots: Snapshots, role: str) -> int:
    before, after = (
        counters.parse_snmp(text, where).get("Tcp", {}).get("RetransSegs", 0)
        for text, where in (_text(snapshots, role, phase, SNMP) for phase in PHASES)
    )
    return after - before


def no_ports(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Count the datagrams that met no open port on a host between two snapshots of its counters."""
    first, last = (counters.parse_snmp(files[SNMP], SNMP)["Udp"] for files in (before, after))
    return counters.difference(first, last)["NoPorts"]


def _balance(senders: list[dict[str, int]], receivers: list[dict[str, int]]) -> Balance:
    def total(name: str) -> int:
        return sum(one[name] for one in receivers)

    return Balance(
        sent=sum(one["OutDatagrams"] for one in senders),
        received=total("InDatagrams"),
        refused=total("RcvbufErrors"),
        other_errors=total("InErrors") - total("RcvbufErrors"),
        no_port=total("NoPorts"),
    )


def _delta(snapshots: Snapshots, role: str) -> dict[str, int]:
    before, after = (
        counters.parse_udp_counters(*_text(snapshots, role, phase, SNMP)) for phase in PHASES
    )
    return counters.difference(before, after)


def _link_drops(snapshots: Snapshots, role: str) -> int:
    before, after = (
        sum(map(sum, counters.parse_dev(text, where).values()))
        for text, where in (_text(snapshots, role, phase, DEV) for phase in PHASES)
    )
    return after - before


def _looped(snapshots: Snapshots) -> int:
    """Count what the SPS sent itself."""
    before, after = (
        counters.parse_sent(text, where).get("lo", 0)
        for text, where in (_text(snapshots, "sps", phase, DEV) for phase in PHASES)
    )
    return after - before


def _text(snapshots: Snapshots, role: str, phase: str, path: str) -> tuple[str, str]:
    """Give the text of a file, and what to call it."""
    text = snapshots.get(role, {}).get(phase, {}).get(path, "")
    return text, f"{role}, {phase}: {path}"
