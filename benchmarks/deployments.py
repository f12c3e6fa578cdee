"""What deployments cost a message, as config/models has it: TCP, passing connections, and a front without transactions.

On the embedded testbed, without a probe: the proxy's CPU time a message over UDP and over TCP, with 8 connections and
with one a call, and of its last process, which accepts and passes them; three repetitions each. On the loopback, no
testbed: a Kamailio that forwards datagrams by Call-ID, on a CPU of its own, before four `sipload uas`.
"""

import dataclasses
import json
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from connection_dispatcher import (
    AGENTS_CPU,
    FRONT_CPU,
    FRONT_PORT,
    INSTANCES,
    KAMAILIO,
    LOOPBACK,
    SECONDS,
    build,
    cpu_ns,
    ended,
    pinned,
    wait_for,
)

from sipsched.errors import TransientError
from sipsched.measure.acquisition import measure
from sipsched.plan.config import Config, Run, load_config
from sipsched.testbed.inventory import load_testbed

SUTS, RATES_CPS = ("kamailio-udp", "kamailio-tcp", "kamailio-tcp-per-call"), (600, 1200)
WORKERS, REPETITIONS, MESSAGES = 4, 3, 6
FRONT_RATES_CPS = (2_500, 5_000, 7_500, 10_000)
LISTENS = 2


def last_process_ns(stop: Event) -> int:
    """CPU time of the proxy's youngest process until it ends: over TCP the one that accepts."""
    found: dict[int, int] = {}
    while not stop.wait(0.1):
        listed = subprocess.run(["pgrep", "--exact", "kamailio"], capture_output=True, text=True)
        for pid in map(int, listed.stdout.split()):
            try:
                found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
            except (OSError, IndexError):
                continue
    return found[max(found)] if found else 0


def show_run(campaign: Config, sut: str, cps: int, rep: int) -> None:
    run, stop = Run("local", sut, "default", 1, WORKERS, cps, rep), Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        passing = pool.submit(last_process_ns, stop)
        try:
            record = measure(run, campaign, load_testbed("local"), Path(folder))
        except TransientError as error:
            print(f"{sut} at {cps} cps: {error}", flush=True)
            return
        finally:
            stop.set()
        document = json.loads((record / "run.json").read_text())
    calls = document["generator"]["calls_completed"]
    us = document["proxy"]["cpu_ns"] / (MESSAGES * calls) / 1000
    # it has seen the warm-up, too
    passing_us = passing.result() / (calls + cps * campaign.load.warmup_s) / 1000
    rest = "" if sut == "kamailio-udp" else f", its last process {passing_us:.1f} µs a call"
    print(f"{sut} at {cps} cps: {us:.2f} µs a message{rest}", flush=True)


def front_us(sipload: Path, folder: Path, cps: int) -> float:
    """CPU time a message of a proxy that forwards without transactions; NaN if a call did not complete."""
    folder.mkdir()
    draw = ("--output", folder / "schedule", "--rate", cps, "--calls", cps * SECONDS)
    argv = [str(word) for word in (sipload, "schedule", *draw)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        ports = range(FRONT_PORT + 1, FRONT_PORT + 1 + INSTANCES)
        for port in ports:
            ready = folder / f"{port}.ready"
            told = ("--report", folder / f"{port}.json", "--ready", ready)
            server = (sipload, "uas", "--local", f"{LOOPBACK}:{port}", *told)
            stack.enter_context(ended(pinned(AGENTS_CPU, *server)))
            wait_for(ready)
        (folder / "instances").write_text("".join(f"1 sip:{LOOPBACK}:{port}\n" for port in ports))
        text = KAMAILIO.format(front=f"{LOOPBACK}:{FRONT_PORT}", folder=folder)
        for over_tcp, over_udp in (
            *(("listen=tcp:", "listen=udp:"), ("tcp_children=4", "disable_tcp=yes")),
            ("tcp_connection_lifetime=7200\n", ""),
        ):
            text = text.replace(over_tcp, over_udp)
        (folder / "front.cfg").write_text(text)
        options = ("-DD", "-E", "-m", "256", "-x", "fm", "-X", "fm", "-Y", folder)
        process = pinned(FRONT_CPU, "kamailio", "-f", folder / "front.cfg", *options)
        stack.enter_context(ended(process))
        time.sleep(LISTENS)
        before_ns, report = cpu_ns(process.pid), folder / "uac.json"
        client = (
            *(sipload, "uac", "--local", f"{LOOPBACK}:{FRONT_PORT + 100}"),
            *("--remote", f"{LOOPBACK}:{FRONT_PORT}", "--schedule", folder / "schedule"),
            *("--calls-file", folder / "calls", "--report", report, "--drain-s", "3"),
        )
        pinned(AGENTS_CPU, *client).wait()
        used_ns = cpu_ns(process.pid) - before_ns
    calls = json.loads(report.read_text())["calls"]
    whole = calls["completed"] == calls["offered"]
    return used_ns / (MESSAGES * calls["completed"]) / 1000 if whole else float("nan")


def main() -> None:
    campaign = load_config()
    suts = {name: dataclasses.replace(campaign.sut(name), probe="off") for name in SUTS}
    load = dataclasses.replace(campaign.load, duration_s=4)
    campaign = dataclasses.replace(campaign, suts=suts, load=load)
    for rep in range(1, REPETITIONS + 1):
        for sut in SUTS:
            for cps in RATES_CPS:
                show_run(campaign, sut, cps, rep)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sipload = build("generator", "sipload", folder)
        for cps in FRONT_RATES_CPS:
            us = front_us(sipload, folder / str(cps), cps)
            print(f"front at {cps} cps: {us:.2f} µs a message", flush=True)


if __name__ == "__main__":
    main()
