"""Test the capacity that `fab headroom` predicts for a real proxy from a recording at a low load.

Each case has its own proxy on one CPU, in a network namespace. sipload offers calls on the other CPU. The calls follow
a Poisson process, come in bursts, or follow a daily curve. The capacity is the load at which the proxy's socket refuses
1 % of the messages. `fab headroom` predicts the capacity with an interval. A search by bisection measures the capacity
before and after the recording. `fab watch` records 40 s at 35 to 60 % of the first capacity. The prediction uses only
the recorded messages. The benchmark prints both capacities, and whether the predicted interval contains their mean.
`fab watch` also records 20 s at 1.5 and 2 times this load, and the benchmark prints whether the predicted interval
contains the 99th percentile of these messages. The benchmark needs root, two CPUs, and four minutes per case. The
option `--first` is the number of the first case, and `--sut` names the proxy in config.yaml.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from headroom import LAWS, LIMIT, Result, show, starts_s

from sipsched.analysis.headroom import FACTORS, Server, TimeAt, headroom
from sipsched.measure.proxy import find_proxy
from sipsched.measure.replay import Replay, write_schedule
from sipsched.measure.running_proxy import parse_socket
from sipsched.plan.config import load_config
from sipsched.records.messages import k_rcv, nanoseconds, open_messages
from sipsched.records.watch import MESSAGES_FILE
from sipsched.testbed.inventory import HostSpec, load_testbed, native_folder
from sipsched.watch import PROBE, WatchOptions, watch

PROXY, SERVER, CLIENT = "127.0.0.1:5060", "127.0.0.1:5070", "127.0.0.1:5080"
PROXY_CPU, AGENT_CPU = "1", "0"
RECORDING_S, HIGHER_S, TRIAL_S = 40.0, 20.0, 8.0
"""Length of the recording, of the recordings at higher loads, and of a trial.

A trial and a recording have the same law of arrivals, because the daily curve repeats after the length
of a trial.
"""
LEAST_ACHIEVED = 0.9
"""Smallest accepted ratio of started to planned calls per second. The ratio of random arrivals is rarely exactly 1."""
LOWEST_CPS, HIGHEST_CPS, TRIALS, TRIALS_AFTER = 300.0, 6000.0, 7, 4
CAPACITY_FILE = "capacity.json"
"""File with three values in calls per second: load of the recording, capacity before it, and capacity after it."""
SIPLOAD = native_folder(load_testbed("local").workdir, "generator") / "sipload"


@dataclass
class Bench:
    """A network namespace with a proxy and a SIP server."""

    folder: Path
    holder: int
    pid: int = 0
    """Process id of the proxy."""

    def start(self, cpu: str, *argv: object, fifo: bool = False) -> "subprocess.Popen[bytes]":
        """Start a program in the namespace, on one CPU."""
        inside = ["nsenter", f"--net=/proc/{self.holder}/ns/net", "taskset", "-c", cpu]
        policy = ["chrt", "--fifo", "1"] if fifo else []
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*inside, *policy, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def refused(self) -> int:
        """Return the number of datagrams that the proxy's socket refused."""
        rows = Path(f"/proc/{self.holder}/net/udp").read_text().splitlines()[1:]
        return sum(s.drops for row in rows for s in parse_socket("udp", row) if s.port == 5060)

    def offer(self, law: str, cps: float, seconds: float, seed: int) -> "subprocess.Popen[bytes]":
        """Start a load generator whose calls follow a law of arrivals, and return its process."""
        starts = starts_s(law, cps, seconds, np.random.default_rng((4, seed)), day_s=TRIAL_S)
        write_schedule((starts * 1e9).astype(np.int64), self.folder / "schedule")
        files = ("--calls-file", "calls", "--report", "report", "--schedule", "schedule")
        ends = ("--local", CLIENT, "--remote", PROXY, "--drain-s", "1")
        # Switch retransmissions off, because the prediction from the recorded messages cannot foresee them.
        return self.start(
            AGENT_CPU, SIPLOAD, "uac", *ends, *files, "--retransmissions", "off", fifo=True
        )

    def finish(self, load: "subprocess.Popen[bytes]", cps: float) -> None:
        """Wait for the end of all calls. Exit if the proxy rejected calls, or if too few calls started per second.

        A proxy without free memory rejects calls. A rejected call needs less work than an accepted call, so the
        capacity for rejected calls is larger.
        """
        load.wait()
        report = json.loads((self.folder / "report").read_text())
        calls = report["calls"]
        if calls["rejected_invite"] or calls["rejected_bye"]:
            raise SystemExit(f"error: at {cps:.0f} cps, the proxy rejected calls: {calls}")
        if report["achieved_cps"] < LEAST_ACHIEVED * cps:
            achieved = report["achieved_cps"]
            raise SystemExit(f"error: sipload started {achieved:.0f} cps instead of {cps:.0f} cps")

    def dropped(self, law: str, cps: float, seed: int) -> float:
        """Offer calls for some seconds, and return the share of the proxy's messages that its socket refused."""
        refused = self.refused()
        self.finish(self.offer(law, cps, TRIAL_S, seed), cps)
        # Multiply by 6, because each call sends six messages through the proxy.
        return (self.refused() - refused) / (6 * cps * TRIAL_S)

    def capacity_cps(self, law: str, low: float, high: float, trials: int, seed: int) -> float:
        """Search by bisection for the load in cps at which the socket refuses 1 % of the messages."""
        for trial in range(trials):
            middle = float(np.sqrt(low * high))
            exceeded = self.dropped(law, middle, 100 * seed + trial) > LIMIT
            low, high = (low, middle) if exceeded else (middle, high)
        return float(np.sqrt(low * high))


@contextmanager
def bench(sut_name: str, workers: int) -> Iterator[Bench]:
    """Run a proxy and a SIP server behind the proxy in a new network namespace, until the end of the block."""
    held = ["unshare", "--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 600"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        holder = stack.enter_context(subprocess.Popen(held, stdout=subprocess.PIPE))
        stack.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()
        made = Bench(folder, holder.pid)
        server = made.start(
            AGENT_CPU, SIPLOAD, "uas", "--local", SERVER, "--report", "server", fifo=True
        )
        proxy = made.start(PROXY_CPU, *proxy_command(sut_name, workers, folder))
        for process in (proxy, server):
            stack.callback(process.wait)
            stack.callback(process.terminate)
        # nsenter and taskset replace themselves by the proxy, so the proxy has the process id of the first program.
        made.pid = proxy.pid
        time.sleep(2)
        yield made


def proxy_command(sut_name: str, workers: int, folder: Path, address: str = PROXY) -> list[str]:
    """Write the configuration of a proxy that sends all requests to the SIP server, and return its command line."""
    sut, testbed = load_config().sut(sut_name), load_testbed("local")
    program, folder_on_host = find_proxy(sut), PurePosixPath(folder)
    testbed = replace(
        testbed, sps=at_address(testbed.sps, address), uas=at_address(testbed.uas, SERVER)
    )
    config = folder_on_host / "proxy.cfg"
    Path(config).write_text(program.config_text(sut, testbed, workers, folder_on_host))
    return program.command(sut, config, folder_on_host, workers, testbed.sps)


def at_address(host: HostSpec, address: str) -> HostSpec:
    """Return a host with another SIP address and port."""
    ip, _, port = address.partition(":")
    return replace(host, sip_address=ip, sip_port=int(port))


@dataclass(frozen=True)
class Case:
    """A test case: proxy, number of workers, law of arrivals, and recorded load as a share of the capacity."""

    number: int
    sut: str

    @property
    def law(self) -> str:
        return LAWS[self.number % 3]

    @property
    def workers(self) -> int:
        return (4, 8)[self.number // 3 % 2]

    @property
    def share(self) -> float:
        return float(np.random.default_rng((5, self.number)).uniform(0.35, 0.6))


def measure(case: Case, probe: PurePosixPath, output: Path) -> tuple[float, float, float]:
    """Measure one case. Return the load of the recording, and the capacity before and after the recording, in cps."""
    with bench(case.sut, case.workers) as at:
        before = at.capacity_cps(case.law, LOWEST_CPS, HIGHEST_CPS, TRIALS, case.number)
        cps = case.share * before

        def recorded(factor: float, seconds: float, folder: Path) -> None:
            load = at.offer(case.law, factor * cps, seconds + 4, round(1000 * factor) + case.number)
            time.sleep(2)
            watch(
                WatchOptions(pid=at.pid, seconds=seconds, output=folder, probe=probe),
                say=lambda _: None,
            )
            at.finish(load, factor * cps)

        recorded(1, RECORDING_S, output)
        for factor in FACTORS:
            recorded(factor, HIGHER_S, output / f"{factor:g}")
        after = at.capacity_cps(
            case.law, before / 1.5, before * 1.5, TRIALS_AFTER, 10_000 + case.number
        )
    return cps, before, after


def predict(case: Case, record: Path) -> Result:
    """Predict the capacity from the recording of a case, and print the prediction with the measured capacities."""
    cps, before, after = json.loads((record / CAPACITY_FILE).read_text())
    capacity = (before + after) / 2
    ds = open_messages(record / MESSAGES_FILE)
    server = Server.of(ds, cores=1, workers=case.workers)
    found = headroom(ds, server, Replay.on(1, case.workers, ds.attrs["kernel"]))
    what = (
        f"{case.number:2d} {case.law:11} {case.workers} workers, {cps:5.0f} cps = {cps / capacity:.0%}: "
        f"capacity {before:.0f} and {after:.0f} cps"
    )
    if found.growth is None:
        print(f"{what}, no prediction: {found.lack}", flush=True)
        return None, np.nan, []
    predicted = found.growth.map(lambda factor: factor * cps)
    held = predicted.low <= capacity <= predicted.high
    print(
        f"{what}, predicted {predicted.estimate:.0f} ({predicted.low:.0f} to {predicted.high:.0f}) "
        f"{'yes' if held else 'NO'}, half-width {found.half_width:.0%}, busy {found.busy:.0%}",
        flush=True,
    )
    return held, found.half_width, [contains_time(record, time_at) for time_at in found.times]


def contains_time(record: Path, predicted: TimeAt) -> bool:
    """Print the measured and the predicted 99th percentile at a higher load, and return whether they agree."""
    ds = open_messages(record / f"{predicted.factor:g}" / MESSAGES_FILE)
    p99_us = float(np.nanquantile(k_rcv(ds) + nanoseconds(ds, "t_sip"), 0.99)) / 1e3
    interval = predicted.p99_us
    held = interval.low <= p99_us <= interval.high
    print(
        f"    {predicted.factor:g} times the load: 99th percentile {p99_us:.0f} µs, predicted {interval.estimate:.0f} "
        f"({interval.low:.0f} to {interval.high:.0f}) {'yes' if held else 'NO'}",
        flush=True,
    )
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument(
        "--records",
        type=Path,
        help="folder for the records; cases with a record in this folder are not measured again",
    )
    parser.add_argument("--only-measure", action="store_true")
    parser.add_argument("--probe", type=PurePosixPath, default=PROBE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        records = asked.records or Path(scratch)
        numbers = range(asked.first, asked.first + asked.cases)
        cases = [Case(number, asked.sut) for number in numbers]
        for case in cases:
            record = records / str(case.number)
            if not (record / CAPACITY_FILE).exists():
                measured = measure(case, asked.probe, record)
                (record / CAPACITY_FILE).write_text(json.dumps(measured))
                print(f"{case.number:2d}: {measured}", flush=True)
        if not asked.only_measure:
            show("measured", [predict(case, records / str(case.number)) for case in cases])


if __name__ == "__main__":
    main()
