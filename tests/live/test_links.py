"""Links of the signal's way, looked at from inside the hosts, and a datagram each way."""

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sipsched.errors import StableError, TransientError
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.links import check_links
from sipsched.testbed.session import open_hosts


@pytest.fixture(autouse=True)
def up(testbed: Testbed) -> Iterator[None]:
    local.take_down()
    local.ensure_up(testbed)
    yield
    local.take_down()


def in_host(role: str, command: str) -> None:
    subprocess.run(["ip", "netns", "exec", f"sipsched-{role}", *command.split()], check=True)


@pytest.mark.parametrize("kind", ["local", "ssh"])
def test_a_way_that_is_whole_costs_a_run_a_command_a_host(testbed: Testbed, kind: str) -> None:
    with open_hosts(dataclasses.replace(testbed, kind=kind)) as hosts:
        before = len(hosts.history)
        check_links(hosts)
        assert sorted(done.host for done in hosts.history[before:]) == ["sps", "uac", "uas"]


@pytest.mark.parametrize(
    ("role", "link", "said"),
    [
        ("uac", "sip0", r"host uac .*no route to 198\.18\.0\.1; links that are down: sip0"),
        ("sps", "uac0", r"host uac .*link sip0 to sps is down or has no carrier"),
        ("sps", "uas0", r"host uas .*link sip0 to sps is down or has no carrier"),
        ("uas", "sip0", r"host sps .*link uas0 to uas is down or has no carrier"),
    ],
)
def test_a_link_that_is_down_is_named_with_its_host(
    testbed: Testbed, role: str, link: str, said: str
) -> None:
    in_host(role, f"ip link set {link} down")
    with open_hosts(testbed) as hosts, pytest.raises(TransientError, match=said) as error:
        check_links(hosts)
    assert "\n" not in str(error.value)
    for command in (["up"], ["check"]):
        fab = [str(Path(sys.executable).with_name("fab")), *command]
        done = subprocess.run(fab, capture_output=True, text=True)
        assert done.returncode == 1
        assert "is up" not in done.stdout
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert "SIP does not get through" in line


@pytest.mark.parametrize(
    ("host", "device", "said"),
    [
        ("uac", "uac0", "host sps .*no datagram from uac .* on link uac0"),
        ("uas", "uas0", "host sps .*no datagram from uas .* on link uas0"),
    ],
)
def test_a_link_that_passes_nothing_is_found(
    testbed: Testbed, host: str, device: str, said: str
) -> None:
    # a carrier, and every datagram from this agent leaves by the other's link, where nobody has its address
    other = "uas0" if device == "uac0" else "uac0"
    in_host("sps", f"tc qdisc add dev {device} clsact")
    redirect = "protocol ip u32 match ip protocol 17 0xff action mirred egress redirect dev"
    in_host("sps", f"tc filter add dev {device} ingress {redirect} {other}")
    with open_hosts(testbed) as hosts, pytest.raises(TransientError, match=said) as error:
        check_links(hosts)
    assert f"no datagram from {'uas' if host == 'uac' else 'uac'}" not in str(error.value)


def test_one_way_only_is_found(testbed: Testbed) -> None:
    in_host("sps", "tc qdisc add dev uas0 root tbf rate 8bit burst 10b latency 1ms")
    with (
        open_hosts(testbed) as hosts,
        pytest.raises(TransientError, match=r"host uas .*no datagram from sps .* on link sip0"),
    ):
        check_links(hosts)


def test_a_port_that_somebody_has_is_an_error_of_its_own(testbed: Testbed) -> None:
    squatter = (
        "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.bind(('198.18.0.1', 5060)); time.sleep(60)"
    )
    command = ["ip", "netns", "exec", "sipsched-sps", sys.executable, "-c", squatter]
    with subprocess.Popen(command) as process:
        time.sleep(0.5)
        with (
            open_hosts(testbed) as hosts,
            pytest.raises(StableError, match=r"host sps .*cannot use UDP 198\.18\.0\.1:5060: "),
        ):
            check_links(hosts)
        process.kill()
