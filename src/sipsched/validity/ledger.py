"""The ledger of a run, which compares the number of sent messages with the received and the dropped messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from sipsched.validity import counters

SNMP = "/proc/net/snmp"
DEV = "/proc/net/dev"
PHASES = ("before", "after")
Snapshots = Mapping[str, Mapping[str, Mapping[str, str]]]
"""The text of each counter file in `counters.json`, by role, then by phase (`before` or `after`), then by path."""


@dataclass(frozen=True)
class Balance:
    """The numbers of sent, received and dropped datagrams (over TCP: messages) in one direction of the SIP traffic.

    Attributes
    ----------
    sent
        Counter OutDatagrams of the sending hosts.
    received
        Counter InDatagrams of the receiving hosts.
    refused
        Counter RcvbufErrors of the receiving hosts: datagrams for which the socket's queue was full.
    other_errors
        Counter InErrors of the receiving hosts without RcvbufErrors, such as wrong checksums and lack of memory.
    no_port
        Counter NoPorts of the receiving hosts: datagrams to a port without a socket.
    residual
        Sent datagrams that the destination neither received nor counted as dropped. Possible causes: a link, a queueing
        discipline or a packet filter dropped datagrams, or another program sent some.
    """

    sent: int
    received: int
    refused: int
    other_errors: int
    no_port: int

    @property
    def residual(self) -> int:
        """Return the number of sent datagrams that no counter explains; 0 if all sent datagrams are accounted for."""
        return self.sent - self.received - self.refused - self.other_errors - self.no_port


@dataclass(frozen=True)
class Ledger:
    """The numbers of sent, received and dropped messages in both directions, and of packets dropped by interfaces.

    Attributes
    ----------
    link_drops
        Sum of the `drop` columns of all interfaces and of the counter SndbufErrors. OutDatagrams excludes datagrams
        that the queueing discipline of the sending host refuses.
    unit
        `datagrams` if the numbers are counters of the kernels. Over TCP, `messages`: the numbers are the programs'
        counters.
    segments_again
        Over TCP, segments that the kernels of all hosts retransmitted (RetransSegs), including segments of SSH.
    """

    to_sps: Balance
    from_sps: Balance
    link_drops: int
    unit: str = "datagrams"
    segments_again: int | None = None

    @property
    def residual(self) -> int:
        """Return the number of sent datagrams that no counter explains, in the direction with the larger number."""
        return max(abs(self.to_sps.residual), abs(self.from_sps.residual))


def balance(snapshots: Snapshots, *, front: str | None = None) -> Ledger:
    """Return a run's numbers of sent, received and dropped datagrams, from the kernels' counters.

    Parameters
    ----------
    snapshots
        Counters of UAC, SPS and UAS before and after the load, when no message was on the network. Also the counters
        of the host `front`, if the front end runs there.
    front
        Role of the host of the front end, `sps` or `front`; None without a front end. The ledger counts the front end
        and the instances as one proxy, and excludes the messages between both.

    Raises
    ------
    StableError
        A counter file is missing or truncated.
    """
    # ASSUME only SIP uses UDP on the hosts during a run
    udp = {role: _delta(snapshots, role) for role in ("uac", "sps", "uas")}
    agents, proxy, within = [udp["uac"], udp["uas"]], udp["sps"], 0
    if front == "sps":
        # ASSUME only SIP uses the loopback interface of the proxy's host if a front end passes calls to instances
        within = _looped(snapshots)
    elif front:
        udp[front] = _delta(snapshots, front)
        proxy = {name: proxy[name] + udp[front][name] for name in proxy}
        # ASSUME all datagrams that leave the proxy arrive at UAC and UAS. The counters of the hosts do not tell the
        # datagrams to UAC and UAS from the datagrams within the proxy. All losses are therefore in `to_sps`.
        within = proxy["OutDatagrams"] - sum(
            one[name] for one in agents for name in ("InDatagrams", "InErrors", "NoPorts")
        )
    proxy = proxy | {name: proxy[name] - within for name in ("InDatagrams", "OutDatagrams")}
    return Ledger(
        to_sps=_balance(agents, [proxy]),
        from_sps=_balance([proxy], agents),
        link_drops=sum(_link_drops(snapshots, role) + udp[role]["SndbufErrors"] for role in udp),
    )


@dataclass(frozen=True)
class Tally:
    """The numbers of SIP messages that a program sent and received, including retransmissions."""

    sent: int
    received: int

    def __add__(self, other: "Tally") -> "Tally":
        """Return the sums of the messages that two programs counted."""
        return Tally(self.sent + other.sent, self.received + other.received)

    def __sub__(self, other: "Tally") -> "Tally":
        """Return the numbers of messages since an earlier count of the same program."""
        return Tally(self.sent - other.sent, self.received - other.received)


def balance_messages(snapshots: Snapshots, agents: Tally, proxy: Tally) -> Ledger:
    """Return a run's numbers of sent and received SIP messages over TCP, from counters of the programs.

    Parameters
    ----------
    snapshots
        See `balance`. The snapshots contain the interfaces' drops and the retransmitted segments.

    Raises
    ------
    StableError
        A counter file is missing or truncated.
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
    """Return the number of datagrams that arrived at ports without a socket, from two counter snapshots of a host."""
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
    """Return the number of packets that the proxy's host sent over its loopback interface during the run."""
    before, after = (
        counters.parse_sent(text, where).get("lo", 0)
        for text, where in (_text(snapshots, "sps", phase, DEV) for phase in PHASES)
    )
    return after - before


def _text(snapshots: Snapshots, role: str, phase: str, path: str) -> tuple[str, str]:
    """Return the recorded text of a counter file such as /proc/net/snmp, and the file's name for error messages."""
    text = snapshots.get(role, {}).get(phase, {}).get(path, "")
    return text, f"{role}, {phase}: {path}"
