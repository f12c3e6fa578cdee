"""Tests of the drop ledger, on counters with a known balance."""

from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.validity.ledger import Tally, balance, balance_messages

NAMES = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors"
DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  sip0: 1180332    2412    0    {received}    0     0          0         0  1234567    2412    0    {sent}    0     0       0          0
"""  # noqa: E501


def host(after: tuple[int, ...], drops: tuple[int, int] = (0, 0)) -> dict[str, dict[str, str]]:
    """Return the counters of a host, which start at 10 and grow by `after`, in the order of `NAMES`."""

    def snapshot(values: list[int], received: int, sent: int) -> dict[str, str]:
        snmp = f"Udp: {NAMES}\nUdp: {' '.join(map(str, values))}\n"
        return {"/proc/net/snmp": snmp, "/proc/net/dev": DEV.format(received=received, sent=sent)}

    return {
        "before": snapshot([10] * 7, 3, 4),
        "after": snapshot([10 + value for value in after], 3 + drops[0], 4 + drops[1]),
    }


def run(**changes: Any) -> dict[str, Any]:
    """Return the counters for 1,000 calls. A stateful SPS receives 6,000 messages and sends 7,000, with 100 Trying."""
    hosts = {
        "uac": host((4000, 0, 0, 3000, 0, 0, 0)),
        "sps": host((6000, 0, 0, 7000, 0, 0, 0)),
        "uas": host((3000, 0, 0, 3000, 0, 0, 0)),
    }
    return hosts | changes


def test_a_clean_run_balances() -> None:
    ledger = balance(run())
    assert (ledger.to_sps.sent, ledger.to_sps.received) == (6000, 6000)
    assert (ledger.from_sps.sent, ledger.from_sps.received) == (7000, 7000)
    assert ledger.residual == ledger.link_drops == 0


def test_refused_datagrams_are_accounted_for() -> None:
    ledger = balance(run(sps=host((5900, 0, 100, 7000, 100, 0, 0))))
    assert ledger.to_sps.refused == 100
    assert ledger.to_sps.other_errors == 0
    assert ledger.residual == 0


@pytest.mark.parametrize("refused", [0, 40])
def test_messages_between_front_and_instances_stay_within_the_sps(refused: int) -> None:
    # 3,000 requests pass in one direction over the loopback interface, and 4,000 answers in the other; some were
    # refused
    sps = host((13000 - refused, 0, refused, 14000, refused, 0, 0))
    sps["after"]["/proc/net/dev"] = sps["after"]["/proc/net/dev"].replace(
        "0       0    0    0    0     0       0          0\n",
        "0    7000    0    0    0     0       0          0\n",
        1,
    )
    hosts = run(sps=sps)
    ledger = balance(hosts, front="sps")
    assert (ledger.to_sps.sent, ledger.to_sps.received) == (6000, 6000 - refused)
    assert (ledger.to_sps.refused, ledger.from_sps.sent, ledger.residual) == (refused, 7000, 0)
    assert balance(hosts).residual == 7000


@pytest.mark.parametrize(("dropped", "lost"), [((0, 0), 0), ((40, 25), 0), ((0, 7), 3)])
def test_a_front_end_on_its_own_host_and_its_instances_count_as_one_proxy(
    dropped: tuple[int, int], lost: int
) -> None:
    # The front end drops the first number of the 3,000 requests of the UAC. The instances drop the second number of
    # the remaining requests. A link from the front end to the instances loses further requests.
    at_front, at_sps = dropped
    passed = 3000 - at_front
    hosts = {
        "uac": host((4000, 0, 0, 3000, 0, 0, 0)),
        "front": host((passed + 4000, 0, at_front, passed + 4000, at_front, 0, 0)),
        "sps": host((passed - at_sps - lost + 3000, 0, at_sps, 7000, at_sps, 0, 0)),
        "uas": host((3000, 0, 0, 3000, 0, 0, 0)),
    }
    ledger = balance(hosts, front="front")
    assert ledger.to_sps.sent == 6000
    assert ledger.to_sps.received == 6000 - sum(dropped) - lost
    assert ledger.to_sps.refused == sum(dropped)
    assert ledger.from_sps.sent == ledger.from_sps.received == 7000
    assert ledger.residual == lost


def test_other_errors_and_closed_ports_are_distinguished() -> None:
    ledger = balance(run(uas=host((2980, 15, 5, 3000, 0, 0, 5))))
    assert (ledger.from_sps.no_port, ledger.from_sps.other_errors) == (15, 5)
    assert ledger.residual == 0


def test_messages_lost_on_a_link_are_the_residual() -> None:
    ledger = balance(run(sps=host((5960, 0, 0, 7000, 0, 0, 0))))
    assert ledger.to_sps.residual == ledger.residual == 40


def test_foreign_messages_are_a_residual_too() -> None:
    ledger = balance(run(sps=host((6003, 0, 0, 7000, 0, 0, 0))))
    assert ledger.to_sps.residual == -3
    assert ledger.residual == 3


def test_drops_of_interfaces_are_summed_over_hosts_and_directions() -> None:
    clean = (3000, 0, 0, 3000, 0, 0, 0)
    assert balance(run(uas=host(clean, drops=(2, 5)))).link_drops == 7


def test_cut_counters_are_one_clear_error() -> None:
    hosts = run()
    hosts["sps"]["after"]["/proc/net/snmp"] = hosts["sps"]["after"]["/proc/net/snmp"][:60]
    with pytest.raises(StableError, match="sps, after: /proc/net/snmp"):
        balance(hosts)


def with_tcp(retransmitted: int) -> dict[str, dict[str, str]]:
    """Return the counters of a host that sent `retransmitted` TCP segments again."""
    result = host((0,) * 7)
    for phase, count in (("before", 5), ("after", 5 + retransmitted)):
        result[phase]["/proc/net/snmp"] += f"Tcp: OutSegs RetransSegs\nTcp: 100 {count}\n"
    return result


def test_over_tcp_the_counts_of_the_programs_balance() -> None:
    hosts = {"uac": with_tcp(1), "sps": with_tcp(0), "uas": with_tcp(2)}
    agents = Tally(sent=3000, received=4000) + Tally(sent=3000, received=3000)
    ledger = balance_messages(hosts, agents, Tally(8200, 7200) - Tally(1200, 1200))
    assert (ledger.unit, ledger.segments_again, ledger.link_drops) == ("messages", 3, 0)
    assert (ledger.to_sps.residual, ledger.from_sps.residual) == (0, 0)
    lost = balance_messages(hosts, agents, Tally(7003, 5998))
    assert (lost.to_sps.residual, lost.from_sps.residual, lost.residual) == (2, 3, 3)
