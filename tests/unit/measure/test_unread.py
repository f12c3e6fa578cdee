"""Tests of the search for SIP messages that wait in sockets, with sockets of the loopback interface."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from sipsched.measure.unread import NOTHING_WAITS, describe_waiting

ROLES = {"127.0.0.1": "uas"}
OWN = {os.getpid(): 1}
NOT_USED = 1
"""The number of a port without a socket."""


def shell(script: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    argv = ["sh", "-c", script, "sh", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def waiting(protocol: str, first: int, last: int, uas: int = NOT_USED) -> str:
    """Return the description of waiting data. Check that the condition agrees with the description."""
    listing = shell(NOTHING_WAITS, protocol, first, last, uas, "p")
    condition = shell(NOTHING_WAITS, protocol, first, last, uas, "")
    assert listing.stderr == condition.stderr == condition.stdout == ""
    assert listing.returncode == condition.returncode == (listing.stdout != "")
    return describe_waiting(listing.stdout, ROLES, OWN)


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the two ends of a TCP connection, of which the first is the server's end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server = listener.accept()[0]
        with server:
            yield server, client


def test_unread_bytes_are_found_on_each_side(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    server, client = connected
    port = server.getsockname()[1]
    assert waiting("tcp", port, port) == ""
    client.sendall(b"x" * 500)
    unread = "1 socket of instance 1 (proxy-1.cfg) with unread data from the UAS"
    assert waiting("tcp", port, port) == waiting("tcp", port - 1, port + 1) == unread
    assert waiting("tcp", NOT_USED, NOT_USED, port) == unread
    assert waiting("tcp", port + 1, port + 1) == ""
    server.recv(500)
    assert waiting("tcp", port, port) == ""


def test_bytes_that_wait_for_a_slow_peer_are_not_reported(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    server, client = connected
    port = server.getsockname()[1]
    client.setblocking(False)
    # The buffers of both ends are full when the client cannot send more.
    with pytest.raises(BlockingIOError):
        while client.send(b"x" * 65536):
            pass
    assert (
        waiting("tcp", port, port)
        == "1 socket of instance 1 (proxy-1.cfg) with unread data from the UAS"
    )


# the output of `ss` while the link to the UAS is down
UNACKNOWLEDGED = """\
ESTAB      0 4312 198.18.2.1:53240 198.18.2.2:5060 users:(("kamailio",pid=7,fd=9)) timer:(on,6.4sec,5)
ESTAB      0 284  198.18.2.1:53242 198.18.2.2:5060 users:(("kamailio",pid=8,fd=9)) timer:(on,3.2sec,4)
FIN-WAIT-1 0 501  198.18.0.1:5060  198.18.1.2:59932 timer:(on,12sec,6)
"""


def test_bytes_that_the_peer_does_not_acknowledge_are_counted_by_instance() -> None:
    roles = {"198.18.1.2": "uac", "198.18.2.2": "uas"}
    assert describe_waiting(UNACKNOWLEDGED, roles, {7: 1, 8: 0}) == (
        "1 socket of instance 1 (proxy-1.cfg) with data that did not reach the UAS, "
        "1 socket of instance 0 (proxy.cfg) with data that did not reach the UAS and "
        "1 socket with data that did not reach the UAC"
    )
    assert (
        describe_waiting(UNACKNOWLEDGED, {}, {})
        == "3 sockets with data that did not reach the peer"
    )


def test_the_end_of_a_stream_is_not_unread_data(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    server, client = connected
    client.shutdown(socket.SHUT_WR)
    assert waiting("tcp", server.getsockname()[1], server.getsockname()[1]) == ""


def test_unread_datagrams_are_found() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert waiting("udp", port, port) == ""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", one.getsockname())
        assert waiting("udp", port, port) == "1 socket of instance 1 (proxy-1.cfg) with unread data"
        one.recv(1)
        assert waiting("udp", port, port) == ""
