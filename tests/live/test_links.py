"""Test the check of the links between UAC, SPS and UAS."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import squatter

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
def test_check_of_working_links_is_one_command_per_host(testbed: Testbed, kind: str) -> None:
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
def test_link_that_is_down_is_named_with_its_host(
    testbed: Testbed, role: str, link: str, said: str
) -> None:
    in_host(role, f"ip link set {link} down")
    with open_hosts(testbed) as hosts, pytest.raises(TransientError, match=said) as error:
        check_links(hosts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["up", "check"])
def test_fab_reports_a_link_that_is_down_in_one_line(command: str) -> None:
    in_host("sps", "ip link set uas0 down")
    fab = [str(Path(sys.executable).with_name("fab")), command]
    done = subprocess.run(fab, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is up" not in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "SIP messages do not arrive" in line


@pytest.mark.parametrize(
    ("host", "device", "said"),
    [
        ("uac", "uac0", "host sps .*no datagram from uac .* on link uac0"),
        ("uas", "uas0", "host sps .*no datagram from uas .* on link uas0"),
    ],
)
def test_link_that_passes_no_datagram_is_found(
    testbed: Testbed, host: str, device: str, said: str
) -> None:
    # The link of an agent has a carrier, but all datagrams from the agent leave by the other agent's link.
    other = "uas0" if device == "uac0" else "uac0"
    in_host("sps", f"tc qdisc add dev {device} clsact")
    redirect = "protocol ip u32 match ip protocol 17 0xff action mirred egress redirect dev"
    in_host("sps", f"tc filter add dev {device} ingress {redirect} {other}")
    with open_hosts(testbed) as hosts, pytest.raises(TransientError, match=said) as error:
        check_links(hosts)
    assert f"no datagram from {'uas' if host == 'uac' else 'uac'}" not in str(error.value)


def test_link_that_passes_datagrams_in_one_direction_is_found(testbed: Testbed) -> None:
    in_host("sps", "tc qdisc add dev uas0 root tbf rate 8bit burst 10b latency 1ms")
    with (
        open_hosts(testbed) as hosts,
        pytest.raises(TransientError, match=r"host uas .*no datagram from sps .* on link sip0"),
    ):
        check_links(hosts)


def test_occupied_port_is_named(testbed: Testbed) -> None:
    with (
        squatter(),
        open_hosts(testbed) as hosts,
        pytest.raises(StableError, match=r"host sps .*cannot use UDP 198\.18\.0\.1:5060: "),
    ):
        check_links(hosts)
