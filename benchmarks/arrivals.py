"""Measure how exactly sipload and SIPp start calls, and the highest call rate of each program without an error.

The benchmark uses the embedded testbed without a proxy. The client is on the UAC's CPU 0, and the server is on the
SPS's CPU 1. The benchmark prints the arrival certificate at 2,000 cps over 20 s. The certificate compares both programs
with the exponential law, because the studies need this law. SIPp can only start calls at a fixed rate. The benchmark
also prints the highest call rate without an incomplete call, a retransmission, a drop or a full send buffer. The
benchmark measures this rate over UDP for both programs. For sipload, the benchmark also measures the rate over TCP with
one connection, and with one connection per call. The client has one CPU, so the rates are calls per second and core.
"""

import csv
import dataclasses
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sipsched.measure.generator import (
    SOCKET_BUFFER_BYTES,
    UDP,
    Arrivals,
    Sipload,
    SipTransport,
)
from sipsched.plan.config import load_config
from sipsched.plan.loads import Load
from sipsched.records.load_report import CallCounts
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import load_testbed, native_folder
from sipsched.testbed.session import Hosts, open_hosts
from sipsched.validity.certificate import Certificate, certify

SCENARIOS = Path(__file__).parent / "sipp"
SIPP_EXIT_CODES = (0, 1, 124)
"""SIPp's exit codes: all calls succeeded, some failed, or some were open at the end of the drain time."""
RATE_CPS = 2000
SECONDS = 20
CLEAN_SECONDS = 3
CLEAN_RATES = (
    2_000,
    4_000,
    6_000,
    8_000,
    10_000,
    12_000,
    15_000,
    18_000,
    22_000,
    26_000,
    32_000,
    40_000,
    50_000,
    60_000,
)
OVER_TCP = {
    "one connection": SipTransport("tcp", 1),
    "one connection per call": SipTransport("tcp", "per-call"),
}
SINK = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.setsockopt(socket.SOL_SOCKET, 35, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.settimeout(5)
with open(sys.argv[3], "wb", buffering=0) as out:
    while True:
        data, control, _, _ = s.recvmsg(64, 64)
        if data.startswith(b"INVITE"):
            seconds, ns = struct.unpack("qq", control[0][2][:16])
            out.write(struct.pack("q", seconds * 10**9 + ns))
"""
"""A program that receives INVITEs without answering, and writes their receive timestamps (SO_TIMESTAMPNS = 35)."""


class Sipp:
    """Run SIPp, a widely used SIP load generator, as client and server over UDP."""

    def start_server(self, sps: Host) -> Process:
        """Start SIPp's server on the SPS."""
        spec = sps.spec
        scenario = self._scenario(sps, "uas.xml")
        argv = ["sipp", "-sf", scenario, "-i", spec.sip_address, "-p", str(spec.sip_port)]
        return sps.start("bench", [*argv, *self._options()], cpus=spec.cpus, limit_s=120)

    def offer(self, hosts: Hosts, load: Load, arrivals: Arrivals) -> CallCounts:
        """Run SIPp's client until all calls have ended or the drain time is over."""
        uac, sps, calls = hosts.uac, hosts.sps.spec, str(arrivals.calls)
        statistics = uac.workdir / "bench.csv"
        argv = [
            *("sipp", f"{sps.sip_address}:{sps.sip_port}"),
            *("-sf", self._scenario(uac, "uac.xml")),
            *("-i", uac.spec.sip_address, "-p", str(uac.spec.sip_port)),
            # allow all calls to be open at once (-l), because SIPp pauses at its default limit of open calls
            *("-r", str(arrivals.cps), "-m", calls, "-l", calls),
            # write statistics every 100 ms (-fd), because the default of one minute is longer than a measurement
            *("-trace_stat", "-stf", str(statistics), "-fd", "100ms"),
            *self._options(),
            *(() if load.retransmissions else ("-nr",)),
        ]
        uac.run(["rm", "-f", str(statistics)])
        longest_s = arrivals.duration_s + load.drain_s
        uac.run_limited(
            "bench", argv, cpus=uac.spec.cpus, limit_s=longest_s, accept=SIPP_EXIT_CODES
        )
        return sipp_counts(uac.run(["cat", str(statistics)]).stdout, arrivals.calls)

    def _scenario(self, host: Host, name: str) -> str:
        path = host.workdir / name
        host.put_text((SCENARIOS / name).read_text(), path)
        return str(path)

    def _options(self) -> list[str]:
        return ["-buff_size", str(SOCKET_BUFFER_BYTES), "-nostdin", "-timer_resol", "1"]


def sipp_counts(text: str, calls_offered: int) -> CallCounts:
    """Return the call counts from SIPp's -trace_stat file, which has a header and one line of numbers per period."""
    # drop the last line, which may be incomplete if SIPp was stopped at the end of the drain time
    rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]), delimiter=";"))
    last = rows[-1]
    created = int(last["TotalCallCreated"])
    return CallCounts(
        calls_offered=calls_offered,
        calls_created=created,
        calls_completed=int(last["SuccessfulCall(C)"]),
        calls_failed=int(last["FailedCall(C)"]),
        achieved_cps=_achieved_cps(rows, created),
        retransmissions=int(last["Retransmissions(C)"]),
        unexpected=int(last["FailedUnexpectedMessage(C)"]),
    )


def _achieved_cps(rows: Sequence[dict[str, str]], created: int) -> float:
    """Return the rate of started calls in cps, from the first period to the last period in which SIPp started calls."""
    running = [row for row in rows if 0 < int(row["TotalCallCreated"]) < created] or rows[:1]
    last = running[-1]
    # SIPp writes a date, a time and the seconds since the epoch, separated by tabs
    begin, end = (
        float(stamp.split("\t")[2]) for stamp in (rows[0]["StartTime"], last["CurrentTime"])
    )
    return int(last["TotalCallCreated"]) / (end - begin)


def show(name: str, certificate: Certificate) -> None:
    late = (
        "unknown"
        if certificate.lateness_p50_us is None
        else f"p50 {certificate.lateness_p50_us:.1f} p99 {certificate.lateness_p99_us:.0f} µs"
    )
    print(
        f"{name}: KS {certificate.ks_distance:.4f}, CV {certificate.cv:.3f}, "
        f"variance/mean at 1 ms {certificate.variance_to_mean[0]:.3f}, lateness {late}, "
        f"{certificate.arrivals} calls, {certificate.achieved_cps:.1f} cps",
        flush=True,
    )


def sipload_server(sps: Host, transport: SipTransport = UDP) -> Process:
    program = str(native_folder(sps.base, "generator") / "sipload")
    local = f"{sps.spec.sip_address}:{sps.spec.sip_port}"
    report = str(sps.workdir / "bench-uas.json")
    argv = [
        *(program, "uas", "--local", local, "--report", report, "--spin-us", "always"),
        *("--transport", transport.protocol),
    ]
    return sps.start("bench", argv, cpus=sps.spec.cpus, limit_s=120)


def certificates(hosts: Hosts, load: Load, folder: Path) -> None:
    sps = hosts.sps
    arrivals = Arrivals(RATE_CPS, RATE_CPS * SECONDS, seed=1)
    server = sipload_server(sps)
    Sipload().offer(hosts, load, "bench", arrivals)
    sps.stop(server)
    Sipload().fetch(hosts, "bench", folder)
    starts = Sipload().starts(folder, "bench")
    show("sipload", certify(starts.actual_ns, RATE_CPS, "exponential", starts.intended_ns))

    times = sps.workdir / "bench-invites.bin"
    address = [sps.spec.sip_address, str(sps.spec.sip_port)]
    argv = [sys.executable, "-c", SINK, *address, str(times)]
    sink = sps.start("bench", argv, cpus=sps.spec.cpus, limit_s=120)
    silent = dataclasses.replace(load, retransmissions=False, drain_s=0.5)
    Sipp().offer(hosts, silent, arrivals)
    sps.stop(sink)
    sps.get_file(times, folder / "invites.bin")
    arrived = np.fromfile(folder / "invites.bin", "<i8")
    show("SIPp (INVITEs as they arrive)", certify(arrived, RATE_CPS, "exponential"))


@contextmanager
def without_receive_steering(sps: Host) -> Iterator[None]:
    """Switch receive steering off during the block, because an interrupt that one CPU sends to another costs 13 µs."""
    steering = "/sys/class/net/uac0/queues/rx-0/rps_cpus"
    before = sps.run(["cat", steering]).stdout.strip()
    sps.shell('echo 0 > "$1"', steering)
    try:
        yield
    finally:
        sps.shell('echo "$1" > "$2"', before, steering)


def unclean(done: CallCounts, cps: int) -> str:
    """Return a text with the errors that occurred at a load; empty if no error occurred."""
    connections = done.connections
    reasons = {
        "calls not completed": done.calls_offered - done.calls_completed,
        "messages sent again": done.retransmissions,
        "datagrams dropped": done.socket_drops,
        "full send buffers": connections and connections.blocked,
        f"of {cps} cps offered": round(done.achieved_cps)
        if abs(done.achieved_cps / cps - 1) >= 0.03
        else 0,
    }
    return ", ".join(f"{count} {what}" for what, count in reasons.items() if count)


def highest_clean_rate(
    hosts: Hosts, load: Load, generator: Sipload | Sipp, transport: SipTransport = UDP
) -> tuple[int, str]:
    """Return the highest rate of `CLEAN_RATES` at which no error occurs, and the error at the next rate."""
    best = 0
    for cps in CLEAN_RATES:
        arrivals = Arrivals(cps, cps * CLEAN_SECONDS, seed=1)
        done: CallCounts
        if isinstance(generator, Sipp):
            server = generator.start_server(hosts.sps)
            done = generator.offer(hosts, load, arrivals)
        else:
            server = sipload_server(hosts.sps, transport)
            done = generator.offer(hosts, load, "bench", arrivals, transport)
        hosts.sps.stop(server)
        reason = unclean(done, cps)
        if reason:
            return best, f"at {cps} cps: {reason}"
        best = cps
    return best, "no higher rate was tried"


def main() -> None:
    if shutil.which("sipp") is None:
        sys.exit(
            "sipp, with which sipload is compared, is not installed; run: fab provision --tests"
        )
    load = dataclasses.replace(
        load_config().load, ring_time_ms=0, hold_time_ms=0, law="exponential", drain_s=1.5
    )
    with tempfile.TemporaryDirectory() as folder, open_hosts(load_testbed("local")) as hosts:
        for host in hosts.all:
            host.stop_strays()
        with without_receive_steering(hosts.sps):
            certificates(hosts, load, Path(folder))
            ours, ended = highest_clean_rate(hosts, load, Sipload())
            theirs, theirs_ended = highest_clean_rate(hosts, load, Sipp())
            over_tcp = {
                name: highest_clean_rate(hosts, load, Sipload(), transport)
                for name, transport in OVER_TCP.items()
            }
    ratio = f"{ours / theirs:.2f}" if theirs else "unknown, because every rate of SIPp had errors"
    print(
        f"highest rate without an error: sipload {ours} cps (next rate: {ended}), SIPp {theirs} cps (next rate: "
        f"{theirs_ended}), ratio {ratio}"
    )
    for name, (rate, ended) in over_tcp.items():
        print(
            f"highest rate without an error over TCP, {name}: {rate} cps (next rate: {ended}), "
            f"{rate / ours:.2f} of the rate over UDP"
        )


if __name__ == "__main__":
    main()
