"""What spreading calls of one TCP connection costs: sipdispatch, and a Kamailio that forwards without transactions.

Both stand between one `sipload uac` and four `sipload uas` on this machine's loopback, with a CPU of their own, under
the same calls; no testbed is up. Printed for each load at which every call completed: messages passed on, either way, a
second of CPU time. At the highest such load, where most messages share a read, at least 300,000 are wanted of
sipdispatch, and three times what the Kamailio front does.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sipsched.paths import PROJECT_ROOT

INSTANCES, SECONDS = 4, 3
RATES_CPS = (2_500, 5_000, 10_000, 20_000, 30_000, 40_000)
LOOPBACK, FRONT_PORT = "127.0.0.1", 26000
AGENTS_CPU, FRONT_CPU = "0", "1"
KAMAILIO = """\
children=1
tcp_children=4
listen=tcp:{front}
auto_aliases=no
dns=no
rev_dns=no
use_dns_cache=off
log_stderror=yes
tcp_connection_lifetime=7200
loadmodule "sl.so"
loadmodule "pv.so"
loadmodule "dispatcher.so"
modparam("dispatcher", "list_file", "{folder}/instances")
request_route {{
    ds_select_dst("1", "0");
    forward();
}}
"""


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
    there = folder / part
    shutil.copytree(PROJECT_ROOT / "hardware" / part, there)
    subprocess.run(["make", "--silent", "-C", str(there), program], check=True)
    return there / program


def cpu_ns(group: int) -> int:
    """CPU time of all processes of a group that run."""
    listed = subprocess.run(["pgrep", "--pgroup", str(group)], capture_output=True, text=True)
    return sum(
        int(Path("/proc", pid, "schedstat").read_text().split()[0]) for pid in listed.stdout.split()
    )


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def front(name: str, programs: dict[str, Path], folder: Path) -> subprocess.Popen[bytes]:
    instances = [f"{LOOPBACK}:{FRONT_PORT + 1 + number}" for number in range(INSTANCES)]
    at = f"{LOOPBACK}:{FRONT_PORT}"
    if name == "sipdispatch":
        named = [word for one in instances for word in ("--instance", one)]
        report = ("--report", folder / "front.json", "--ready", folder / "front.ready")
        process = pinned(FRONT_CPU, programs[name], "--listen", at, *report, *named)
        wait_for(folder / "front.ready")
        return process
    lines = (f"1 sip:{one};transport=tcp\n" for one in instances)
    (folder / "instances").write_text("".join(lines))
    (folder / "front.cfg").write_text(KAMAILIO.format(front=at, folder=folder))
    options = ("-DD", "-E", "-m", "256", "-x", "fm", "-X", "fm", "-Y", folder)
    process = pinned(FRONT_CPU, "kamailio", "-f", folder / "front.cfg", *options)
    for _ in range(500):
        time.sleep(0.02)
        with socket.socket() as sock:
            if sock.connect_ex((LOOPBACK, FRONT_PORT)) == 0:
                return process
    raise SystemExit("kamailio does not listen")


def messages_a_cpu_second(name: str, programs: dict[str, Path], folder: Path, cps: int) -> float:
    """Pass calls on; 0 if one of them did not complete."""
    folder.mkdir()
    sipload = programs["sipload"]
    draw = ("--output", folder / "schedule", "--rate", cps, "--calls", cps * SECONDS)
    argv = [str(word) for word in (sipload, "schedule", *draw)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        reports = [folder / f"uas-{number}.json" for number in range(INSTANCES)]
        for number, report in enumerate(reports):
            at = ("--local", f"{LOOPBACK}:{FRONT_PORT + 1 + number}")
            ready = ("--ready", report.with_suffix(".ready"))
            server = (sipload, "uas", "--transport", "tcp", *at, "--report", report, *ready)
            stack.enter_context(ended(pinned(AGENTS_CPU, *server)))
            wait_for(report.with_suffix(".ready"))
        process = front(name, programs, folder)
        stack.enter_context(ended(process))
        before_ns = cpu_ns(process.pid)
        report = folder / "uac.json"
        client = (
            *(sipload, "uac", "--transport", "tcp", "--tcp-connections", "1"),
            *("--local", f"{LOOPBACK}:{FRONT_PORT + 100}", "--remote", f"{LOOPBACK}:{FRONT_PORT}"),
            *("--schedule", folder / "schedule", "--calls-file", folder / "calls"),
            *("--report", report, "--drain-s", "3"),
        )
        pinned(AGENTS_CPU, *client).wait()
        used_ns = cpu_ns(process.pid) - before_ns
    calls = json.loads(report.read_text())["calls"]
    return 6e9 * calls["completed"] / used_ns if calls["completed"] == calls["offered"] else 0.0


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        programs = {
            "sipload": build("generator", "sipload", folder),
            "sipdispatch": build("dispatcher", "sipdispatch", folder),
        }
        found = {}
        for name in ("sipdispatch", "kamailio"):
            for cps in RATES_CPS:
                messages = messages_a_cpu_second(name, programs, folder / f"{name}-{cps}", cps)
                if not messages:
                    break
                found[name] = messages
                print(f"{name} at {cps} cps: {messages:.0f} messages a CPU second", flush=True)
        if len(found) == 2:
            print(f"ratio {found['sipdispatch'] / found['kamailio']:.1f}")


if __name__ == "__main__":
    main()
