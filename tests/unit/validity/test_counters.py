import pytest

from sipsched.errors import StableError
from sipsched.validity import counters

# contents of files in /proc, copied from Linux 6.18
SNMP = """\
Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos
Ip: 2 64 28076 0 0 0 0
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens
Tcp: 1 200 120000 -1 114
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors \
IgnoredMulti MemErrors
Udp: 231 0 7 376 7 0 0 0 0
"""
STAT = """\
cpu  4654 0 2018 186104 405 0 59 24 0 0
cpu0 1446 0 775 94364 32 0 9 9 0 0
cpu1 3207 0 1243 91740 373 0 49 14 0 0
intr 214464 0 0
ctxt 1024
"""


def test_snmp():
    result = counters.parse_snmp(SNMP)
    assert result["Udp"]["InDatagrams"] == 231
    assert result["Udp"]["RcvbufErrors"] == 7
    assert result["Tcp"]["MaxConn"] == -1


def test_drops_of_a_kernel_that_counts_only_some_of_them_as_full_queues() -> None:
    # contents of /proc/net/snmp on Linux 3.2.71, after a run in which the proxy's queue was full
    old = (
        "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n"
        "Udp: 11627 0 444 13681 132 0\n"
    )
    assert counters.parse_snmp(old)["Udp"]["RcvbufErrors"] == 444
    new = old.replace("SndbufErrors", "SndbufErrors InCsumErrors").replace("132 0", "132 0 0")
    assert counters.parse_snmp(new)["Udp"]["RcvbufErrors"] == 132


def test_stat():
    result = counters.parse_stat(STAT)
    assert set(result) == {"cpu", "cpu0", "cpu1"}
    assert result["cpu1"]["steal"] == pytest.approx(0.14)
    assert result["cpu0"]["user"] == pytest.approx(14.46)


def test_difference():
    after = {"InDatagrams": 300, "RcvbufErrors": 7, "New": 1}
    assert counters.difference({"InDatagrams": 231, "RcvbufErrors": 7, "Old": 2}, after) == {
        "InDatagrams": 69,
        "RcvbufErrors": 0,
    }


def test_difference_refuses_a_counter_that_went_back():
    with pytest.raises(StableError, match="InDatagrams: expected at least 231, found 5"):
        counters.difference({"InDatagrams": 231}, {"InDatagrams": 5})


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (counters.parse_snmp, "", "expected counters, found nothing"),
        (counters.parse_snmp, SNMP[: SNMP.index("Udp: 231") + 9], "Udp: expected 9 values"),
        (counters.parse_snmp, SNMP[: SNMP.index("Udp: 231")], "Udp: expected 9 values, found 0"),
        (counters.parse_snmp, "Udp: A\nUdp: x\n", "expected integers"),
        (counters.parse_stat, "", "expected cpu lines"),
        (counters.parse_stat, STAT[:20], "cpu: expected at least 8 states, found 4"),
        (counters.parse_stat, STAT.replace("4654", "x"), "cpu: expected integers"),
    ],
)
def test_bad_text_is_one_line_naming_the_file(parse, text, message):
    with pytest.raises(StableError, match=message) as caught:
        parse(text, "sps before /proc/x")
    assert str(caught.value).startswith("sps before /proc/x: ")
    assert "\n" not in str(caught.value)
