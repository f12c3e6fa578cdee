"""Measure the CPU time per message of a proxy over UDP, of a proxy over TCP, and of a front end before proxies.

The files in config/models use these numbers. The first part runs on the embedded testbed without a probe, and repeats
each run three times. The first part measures the proxy's CPU time per message over UDP, over TCP with 8 connections,
and over TCP with one connection per call. Over TCP, the first part also measures the CPU time of the proxy's last
process. The proxy's last process accepts connections and passes the connections to the workers. The second part runs on
the loopback without a testbed. A Kamailio on a CPU of its own forwards datagrams by Call-ID to four `sipload uas`.
"""

import dataclasses
import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

from connection_dispatcher import MESSAGES, build, cpu_us_per_message, start_kamailio

from sipsched.errors import TransientError
from sipsched.measure.acquisition import measure
from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Run
from sipsched.testbed.inventory import load_testbed

SUTS, RATES_CPS = ("kamailio-udp", "kamailio-tcp", "kamailio-tcp-per-call"), (600, 1200)
WORKERS, REPETITIONS = 4, 3
FRONT_RATES_CPS = (2_500, 5_000, 7_500, 10_000)


def last_process_ns(stop: Event) -> int:
    """Return the CPU time in ns of the proxy process that started last, which accepts connections over TCP."""
    cpu_ns: dict[int, int] = {}
    while not stop.wait(0.1):
        listed = subprocess.run(["pgrep", "--exact", "kamailio"], capture_output=True, text=True)
        for pid in map(int, listed.stdout.split()):
            try:
                cpu_ns[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
            except (OSError, IndexError):
                continue
    return cpu_ns[max(cpu_ns)] if cpu_ns else 0


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
    # count the calls of the warm-up too, because the CPU time of the last process includes the warm-up
    passing_us = passing.result() / (calls + cps * campaign.load.warmup_s) / 1000
    rest = "" if sut == "kamailio-udp" else f", its last process {passing_us:.1f} µs per call"
    print(f"{sut} at {cps} cps: {us:.2f} µs per message{rest}", flush=True)


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
            start_front = partial(start_kamailio, "udp")
            us = cpu_us_per_message(sipload, "udp", cps, folder / str(cps), start_front)
            print(f"front at {cps} cps: {us:.2f} µs per message", flush=True)


if __name__ == "__main__":
    main()
