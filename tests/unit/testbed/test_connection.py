"""Tests of the SSH connection to a host of a testbed."""

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sipsched.errors import LostError
from sipsched.testbed.connection import Connection
from sipsched.testbed.inventory import load_testbed


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-Host\r\n"])
def test_a_host_that_closes_the_connection_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], greeting: bytes
) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def close_at_once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)

        pool.submit(close_at_once)
        spec = replace(
            load_testbed("local").uac,
            address="127.0.0.1",
            port=server.getsockname()[1],
            known_hosts=str(known),
        )
        with pytest.raises(LostError, match=r"host uac .*127\.0\.0\.1") as error:
            Connection(spec).connect()
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
