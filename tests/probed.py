"""A relay with known messages, and the probe that records it."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from helpers import wait_for

from sipsched.records.trace import HEADER, RECORD
from sipsched.testbed.inventory import Testbed, native_folder


@dataclass
class Probed:
    """A relay under traffic, and the probe that records it."""

    folder: Path
    relay: subprocess.Popen[bytes]
    probe: subprocess.Popen[bytes]

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def log(self) -> str:
        return (self.folder / "probe.log").read_text()

    def tell(self) -> None:
        """Send a line to the relay. A TCP relay starts at its first line, and every relay stops at its last line."""
        assert self.relay.stdin is not None
        self.relay.stdin.write(b"\n")
        self.relay.stdin.flush()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(30)
        client.connect(str(self.control))
        return client

    def begin(self, client: socket.socket) -> None:
        """Reset the counters while recording is off, so that no message is in progress during the reset."""
        assert ask(client, "off") == "ok"
        self.probe.send_signal(signal.SIGUSR1)
        wait_for(lambda: "fresh" in (self.folder / "ready").read_text(), 5)
        assert ask(client, "on") == "ok"

    def finish(self) -> tuple[dict[str, Any], npt.NDArray[Any], dict[str, Any]]:
        """Stop traffic and probe. Return the probe's report, the probe's records, and the relay's own timestamps."""
        self.tell()
        wait_for((self.folder / "seen.json").exists, 20)
        time.sleep(0.2)
        self.probe.terminate()
        assert self.probe.wait(10) == 0, self.log
        assert self.relay.stdin is not None
        self.relay.stdin.close()
        self.relay.wait(10)
        trace = (self.folder / "trace.bin").read_bytes()
        return (
            json.loads((self.folder / "probe.json").read_text()),
            np.frombuffer(trace, RECORD, offset=HEADER.itemsize),
            json.loads((self.folder / "seen.json").read_text()),
        )


def ask(client: socket.socket, line: str) -> str:
    """Send a line and return the answer."""
    client.sendall(f"{line}\n".encode())
    return client.makefile().readline().rstrip("\n")


@contextmanager
def probed(testbed: Testbed, folder: Path, relay: Sequence[str], *options: str) -> Iterator[Probed]:
    """Start a relay in its own network namespace, and the probe. The probe may end at once with an error.

    Parameters
    ----------
    relay
        Further options of unshare, and the command line of the relay.
    options
        Options of the probe.
    """
    program = native_folder(testbed.workdir, "probe") / "sipprobe"
    traffic = subprocess.Popen(
        ["unshare", "--net", *relay], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    probe = None
    try:
        assert traffic.stdout is not None
        assert traffic.stdout.readline() == b"serving\n"
        with (folder / "probe.log").open("wb") as log:
            probe = subprocess.Popen(
                [
                    *("nsenter", f"--net=/proc/{traffic.pid}/ns/net", str(program), "run"),
                    *("--output", str(folder / "trace.bin")),
                    *("--report", str(folder / "probe.json")),
                    *("--ready", str(folder / "ready"), "--control", str(folder / "control")),
                    *options,
                ],
                stderr=log,
            )
        ready = folder / "ready"
        wait_for(
            lambda: probe.poll() is not None or (ready.exists() and "ready" in ready.read_text()),
            10,
        )
        yield Probed(folder, traffic, probe)
    finally:
        for process in (traffic, probe):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)
