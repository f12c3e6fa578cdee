"""Compare the cost of two programs, sipdispatch and Kamailio, that distribute the calls of one TCP connection.

Each program is the front end between one `sipload uac` and four `sipload uas` on the loopback of this machine. The
front end has a CPU of its own, and both programs serve the same calls. The benchmark needs no testbed. The benchmark
prints the messages per second of CPU time, in both directions, for each load at which every call completed. At the
highest of these loads, one read of the socket usually returns several messages. At this load, sipdispatch should handle
300,000 messages per second of CPU time, and three times as many messages as Kamailio.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from sipsched.paths import PROJECT_ROOT

SECONDS, MESSAGES = 3, 6
RATES_CPS = (2_500, 5_000, 10_000, 20_000, 30_000, 40_000)
LOOPBACK, FRONT_PORT = "127.0.0.1", 26000
PORTS = range(FRONT_PORT + 1, FRONT_PORT + 5)
"""Ports of the four servers behind the front end. The servers are `sipload uas` instead of proxy instances."""
AGENTS_CPU, FRONT_CPU = "0", "1"
KAMAILIO = """\
children=1
listen={transport}:{front}
{own}
auto_aliases=no
dns=no
rev_dns=no
use_dns_cache=off
log_stderror=yes
loadmodule "sl.so"
loadmodule "pv.so"
loadmodule "dispatcher.so"
modparam("dispatcher", "list_file", "{folder}/instances")
request_route {{
    ds_select_dst("1", "0");
    forward();
}}
"""
OF_TRANSPORT = {"tcp": "tcp_children=4\ntcp_connection_lifetime=7200", "udp": "disable_tcp=yes"}
"""Lines of Kamailio's configuration that depend on the transport."""


def pinned(cpu: str, *argv: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["taskset", "--cpu-list", cpu, *map(str, argv)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def build(part: str, program: str, folder: Path) -> Path:
    """Copy a folder of hardware/, and build one of its programs in the copy."""
    for name in {"common", part}:
        shutil.copytree(PROJECT_ROOT / "hardware" / name, folder / name, dirs_exist_ok=True)
    subprocess.run(["make", "--silent", "-C", str(folder / part), program], check=True)
    return folder / part / program


def cpu_ns(group: int) -> int:
    """Return the total CPU time of the running processes of a process group in ns."""
    listed = subprocess.run(["pgrep", "--pgroup", str(group)], capture_output=True, text=True)
    return sum(
        int(Path("/proc", pid, "schedstat").read_text().split()[0]) for pid in listed.stdout.split()
    )


@contextmanager
def stopped_after(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def start_sipdispatch(program: Path, folder: Path) -> subprocess.Popen[bytes]:
    instances = [word for port in PORTS for word in ("--instance", f"{LOOPBACK}:{port}")]
    files = ("--report", folder / "front.json", "--ready", folder / "front.ready")
    process = pinned(FRONT_CPU, program, "--listen", f"{LOOPBACK}:{FRONT_PORT}", *files, *instances)
    wait_for(folder / "front.ready")
    return process


def start_kamailio(transport: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a Kamailio that chooses an instance by the Call-ID of a message, and wait until Kamailio listens."""
    lines = (f"1 sip:{LOOPBACK}:{port};transport={transport}\n" for port in PORTS)
    (folder / "instances").write_text("".join(lines))
    front = f"{LOOPBACK}:{FRONT_PORT}"
    text = KAMAILIO.format(
        own=OF_TRANSPORT[transport], transport=transport, front=front, folder=folder
    )
    (folder / "front.cfg").write_text(text)
    options = ("-DD", "-E", "-m", "256", "-x", "fm", "-X", "fm", "-Y", folder)
    process = pinned(FRONT_CPU, "kamailio", "-f", folder / "front.cfg", *options)
    listens = ["ss", "--listening", "--numeric", f"--{transport}", f"sport = :{FRONT_PORT}"]
    for _ in range(500):
        time.sleep(0.02)
        if str(FRONT_PORT) in subprocess.run(listens, capture_output=True, text=True).stdout:
            return process
    raise SystemExit("kamailio does not listen")


def cpu_us_per_message(
    sipload: Path,
    transport: str,
    cps: int,
    folder: Path,
    start_front: Callable[[Path], subprocess.Popen[bytes]],
) -> float:
    """Return the front end's CPU time per message in µs, or NaN if a call did not complete."""
    folder.mkdir()
    sizes = ("--output", folder / "schedule", "--rate", cps, "--calls", cps * SECONDS)
    argv = [str(word) for word in (sipload, "schedule", *sizes)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        for port in PORTS:
            ready = folder / f"{port}.ready"
            server = (
                *(sipload, "uas", "--transport", transport, "--local", f"{LOOPBACK}:{port}"),
                *("--report", folder / f"{port}.json", "--ready", ready),
            )
            stack.enter_context(stopped_after(pinned(AGENTS_CPU, *server)))
            wait_for(ready)
        process = start_front(folder)
        stack.enter_context(stopped_after(process))
        before_ns = cpu_ns(process.pid)
        report = folder / "uac.json"
        client = (
            *(sipload, "uac", "--transport", transport, "--tcp-connections", "1"),
            *("--local", f"{LOOPBACK}:{FRONT_PORT + 100}", "--remote", f"{LOOPBACK}:{FRONT_PORT}"),
            *("--schedule", folder / "schedule", "--calls-file", folder / "calls"),
            *("--report", report, "--drain-s", "3"),
        )
        pinned(AGENTS_CPU, *client).wait()
        used_ns = cpu_ns(process.pid) - before_ns
    calls = json.loads(report.read_text())["calls"]
    completed = calls["completed"]
    return used_ns / (MESSAGES * completed) / 1000 if completed == calls["offered"] else math.nan


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sipload = build("generator", "sipload", folder)
        sipdispatch = build("dispatcher", "sipdispatch", folder)
        fronts = {
            "sipdispatch": partial(start_sipdispatch, sipdispatch),
            "kamailio": partial(start_kamailio, "tcp"),
        }
        highest = {}
        for name, start_front in fronts.items():
            for cps in RATES_CPS:
                us = cpu_us_per_message(sipload, "tcp", cps, folder / f"{name}-{cps}", start_front)
                if math.isnan(us):
                    break
                highest[name] = 1e6 / us
                print(
                    f"{name} at {cps} cps: {highest[name]:.0f} messages per CPU second", flush=True
                )
        if len(highest) == len(fronts):
            print(f"ratio {highest['sipdispatch'] / highest['kamailio']:.1f}")


if __name__ == "__main__":
    main()
