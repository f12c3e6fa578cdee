"""How calls arrive without a proxy: sipload and SIPp, in one session on the embedded testbed.

The client is on the UAC (CPU 0), the server in the SPS's place (CPU 1), one link apart. Printed: the arrival
certificate at 2,000 cps over 20 s (exponential for sipload; SIPp knows only its own fixed rate, so it is held
against the exponential law that the studies need), and the highest rate at which every call completes
without a retransmission, a drop or a full send buffer: of both over UDP, and of sipload over TCP, on a trunk and with
a connection a call. The client has one CPU, so these are clean calls a second of a core.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sipsched.measure.generator import (
    UDP,
    Arrivals,
    CallStatistics,
    Generator,
    Sipload,
    Sipp,
    Transport,
)
from sipsched.plan.config import Load, load_config
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import load_testbed, native_folder
from sipsched.testbed.session import Hosts, open_hosts
from sipsched.validity.certificate import Certificate, certify

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
    "one connection": Transport("tcp", 1),
    "a connection a call": Transport("tcp", "per-call"),
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
"""Takes INVITEs, answers nothing, notes the kernel's receive time stamps (SO_TIMESTAMPNS = 35)."""


def show(name: str, found: Certificate) -> None:
    late = (
        "not known"
        if found.lateness_p50_us is None
        else f"p50 {found.lateness_p50_us:.1f} p99 {found.lateness_p99_us:.0f} µs"
    )
    print(
        f"{name}: KS {found.ks_distance:.4f}, CV {found.cv:.3f}, "
        f"variance/mean at 1 ms {found.variance_to_mean[0]:.3f}, lateness {late}, "
        f"{found.arrivals} calls, {found.achieved_cps:.1f} cps",
        flush=True,
    )


def sipload_server(sps: Host, transport: Transport = UDP) -> Process:
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
    assert starts is not None
    show("sipload", certify(starts.actual_ns, RATE_CPS, "exponential", starts.intended_ns))

    times = sps.workdir / "bench-invites.bin"
    address = [sps.spec.sip_address, str(sps.spec.sip_port)]
    argv = [sys.executable, "-c", SINK, *address, str(times)]
    sink = sps.start("bench", argv, cpus=sps.spec.cpus, limit_s=120)
    silent = dataclasses.replace(load, retransmissions=False, drain_s=0.5)
    Sipp().offer(hosts, silent, "bench", arrivals)
    sps.stop(sink)
    sps.get_file(times, folder / "invites.bin")
    arrived = np.fromfile(folder / "invites.bin", "<i8")
    show("SIPp (INVITEs as they arrive)", certify(arrived, RATE_CPS, "exponential"))


@contextmanager
def without_receive_steering(sps: Host) -> Iterator[None]:
    """Let the link's receive work run on the sender's CPU: an interrupt to another one costs 13 µs a send."""
    steering = "/sys/class/net/uac0/queues/rx-0/rps_cpus"
    before = sps.run(["cat", steering]).stdout.strip()
    sps.shell('echo 0 > "$1"', steering)
    try:
        yield
    finally:
        sps.shell('echo "$1" > "$2"', before, steering)


def unclean(done: CallStatistics, cps: int) -> str:
    """Say what a load was not, to be clean; nothing if it was."""
    connections = done.connections
    found = {
        "calls not completed": done.calls_offered - done.calls_completed,
        "messages sent again": done.retransmissions,
        "datagrams dropped": done.socket_drops,
        "full send buffers": connections and connections.blocked,
        f"of {cps} cps offered": round(done.achieved_cps)
        if abs(done.achieved_cps / cps - 1) >= 0.03
        else 0,
    }
    return ", ".join(f"{count} {what}" for what, count in found.items() if count)


def highest_clean_rate(
    hosts: Hosts, load: Load, name: str, generator: Generator, transport: Transport = UDP
) -> tuple[int, str]:
    """Give the highest of `CLEAN_RATES` up to which all were clean, and what ended it."""
    best = 0
    for cps in CLEAN_RATES:
        server = (
            sipload_server(hosts.sps, transport)
            if name == "sipload"
            else generator.start_server(hosts.sps, load, 120)
        )
        arrivals = Arrivals(cps, cps * CLEAN_SECONDS, seed=1)
        done = generator.offer(hosts, load, "bench", arrivals, transport)
        hosts.sps.stop(server)
        reason = unclean(done, cps)
        if reason:
            return best, f"at {cps} cps: {reason}"
        best = cps
    return best, "no higher one was tried"


def main() -> None:
    load = dataclasses.replace(
        load_config().load, ring_time_ms=0, hold_time_ms=0, law="exponential", drain_s=1.5
    )
    with tempfile.TemporaryDirectory() as folder, open_hosts(load_testbed("local")) as hosts:
        for host in hosts.all:
            host.stop_strays()
        with without_receive_steering(hosts.sps):
            certificates(hosts, load, Path(folder))
            ours, ended = highest_clean_rate(hosts, load, "sipload", Sipload())
            theirs, theirs_ended = highest_clean_rate(hosts, load, "sipp", Sipp())
            over_tcp = {
                name: highest_clean_rate(hosts, load, "sipload", Sipload(), transport)
                for name, transport in OVER_TCP.items()
            }
    ratio = f"{ours / theirs:.2f}" if theirs else "no clean rate of SIPp"
    print(
        f"highest clean rate: sipload {ours} cps ({ended}), SIPp {theirs} cps ({theirs_ended}), ratio {ratio}"
    )
    for name, (rate, ended) in over_tcp.items():
        print(
            f"highest clean rate over TCP, {name}: {rate} cps ({ended}), {rate / ours:.2f} of that over UDP"
        )


if __name__ == "__main__":
    main()
