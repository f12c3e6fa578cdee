"""Helpers for tests of `sipload` over TCP on the loopback, with AddressSanitizer."""

import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers import build_native, wait_for

SANITIZED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
LOOPBACK = "127.0.0.1"
CALLS = 200
RATE = 400
SENT_BY_UAC, SENT_BY_UAS = ("INVITE", "ACK", "BYE"), ("180", "200_INVITE", "200_BYE")


def build(part: str, program: str, folder: Path) -> Path:
    """Build a program in a folder of hardware/ with sanitizers, and return the path of the program."""
    return build_native(part, folder, program, cflags=SANITIZED) / program


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(argv: Sequence[str | Path], ready: Path) -> Iterator[None]:
    """Run a program until the end of the block, and check that its exit code after SIGTERM is 0."""
    process = subprocess.Popen(argv)
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, 10)
        yield
    finally:
        process.terminate()
        assert process.wait(10) == 0


@contextmanager
def server(sipload: Path, folder: Path) -> Iterator[tuple[int, Path]]:
    """Run `sipload uas`. Yield the server's port and the path of the report, which exists after the block."""
    port, report, ready = free_port(), folder / "uas.json", folder / "ready"
    argv = [sipload, "uas", "--transport", "tcp", "--local", f"{LOOPBACK}:{port}"]
    with running([*argv, "--report", report, "--ready", ready, "--ring-ms", "5"], ready):
        yield port, report


def call(sipload: Path, folder: Path, port: int, connections: str, **more: str) -> dict[str, Any]:
    """Make calls with `sipload uac`, and return the report of `sipload`."""
    schedule, report = folder / "s", folder / "uac.json"
    argv = [sipload, "schedule", "--output", schedule, "--rate", str(RATE), "--calls", str(CALLS)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    options = {"hold-ms": "5", "drain-s": "1", "tcp-connections": connections} | {
        name.replace("_", "-"): value for name, value in more.items()
    }
    argv = [
        *(sipload, "uac", "--transport", "tcp", "--local", f"{LOOPBACK}:{free_port()}"),
        *("--remote", f"{LOOPBACK}:{port}", "--schedule", schedule, "--report", report),
        *("--calls-file", folder / "calls"),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    subprocess.run(argv, check=True, timeout=30)
    document: dict[str, Any] = json.loads(report.read_text())
    return document


def sums(report: dict[str, Any], kinds: tuple[str, ...], *columns: str) -> int:
    of_none = dict.fromkeys(columns, 0)
    return sum(report["messages"].get(kind, of_none)[name] for kind in kinds for name in columns)
