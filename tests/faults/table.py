"""The table of faults: what is done to a run, when, and what has to come of it.

A fault is a context manager: what it did to the machine, as a person may (a link down, a full disk), is undone
when its block ends. What the *program* did, and left, is not: that is what the tests look at.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from helpers import LOAD, pids

from sipsched.testbed import namespaces
from sipsched.testbed.inventory import Testbed

DATAGRAMS = 2000
"""How many foreign ones are sent, at most."""
INTO_LOAD_S = 0.7
"""How long after the UAC has started something happens."""
PROXY_ENDED = (
    r"the proxy ended during the run, and \d+ of \d+ calls did not complete; its log is proxy\.log"
)


@dataclass(frozen=True)
class Target:
    """A run to be disturbed.

    Attributes
    ----------
    pid
        Of the process that performs it, or of the Snakemake that has it done; None before it starts.
    raw
        Where it records; a file system of its own.
    bed
        The testbed.
    """

    pid: int | None
    raw: Path
    bed: Testbed


Fault = Callable[[Target], AbstractContextManager[None]]


@dataclass(frozen=True)
class Case:
    """A fault, and what has to come of it.

    Attributes
    ----------
    name
        Identifies it.
    inject
        The fault.
    expected
        What the run's error says (a regular expression), or the rules of the verdict that it breaks (any
        grade), or None where the run must survive.
    before
        Whether the fault is there when the run starts; otherwise it comes under load.
    through_snakemake
        Whether the run is a job of Snakemake.
    retransmissions
        Whether agents send again what was lost.
    """

    name: str
    inject: Fault
    expected: str | frozenset[str] | None
    before: bool = False
    through_snakemake: bool = False
    retransmissions: bool = True


class CannotInjectError(Exception):
    """This machine lacks what the fault needs; the text says what."""


# ---- processes ----


def in_host(role: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the network namespace of a host."""
    command = ["ip", "netns", "exec", f"sipsched-{role}", *argv]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def processes_of(role: str) -> dict[int, str]:
    """Processes of a host by id, and their command lines."""
    listing = subprocess.run(
        ["ip", "netns", "pids", f"sipsched-{role}"], check=True, capture_output=True, text=True
    )
    found = {}
    for pid in listing.stdout.split():
        # one may end while we look
        with suppress(OSError):
            found[int(pid)] = Path("/proc", pid, "cmdline").read_text().replace("\0", " ").strip()
    return found


def children(parent: int) -> list[int]:
    """Child processes, the oldest first."""
    listing = subprocess.run(["pgrep", "--parent", str(parent)], capture_output=True, text=True)
    return [int(pid) for pid in listing.stdout.split()]


def proxy_main() -> int:
    """Process id of the proxy's main process, the child of the `timeout` that supervises it."""
    supervisor = int((namespaces.STATE_ROOT / "sps" / "proxy.pid").read_text())
    (main,) = children(supervisor)
    return main


def proxy_worker() -> int:
    """Process id of a worker that takes SIP from the socket: the proxy forks these first."""
    return children(proxy_main())[0]


def only(pattern: str) -> int:
    """Process id of the one process with such a command line."""
    (pid,) = pids(pattern)
    return pid


def kill(find: Callable[[], int]) -> Fault:
    """Kill a process with SIGKILL."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        os.kill(find(), signal.SIGKILL)
        yield

    return fault


@contextmanager
def kill_target(target: Target) -> Iterator[None]:
    """Kill the process that measures, or the Snakemake that has it done, with SIGKILL."""
    assert target.pid is not None
    os.kill(target.pid, signal.SIGKILL)
    yield


@contextmanager
def interrupt_twice(target: Target) -> Iterator[None]:
    """Press Ctrl-C twice: the terminal sends SIGINT to its whole foreground process group."""
    assert target.pid is not None
    for _ in range(2):
        with suppress(ProcessLookupError):
            os.killpg(target.pid, signal.SIGINT)
        time.sleep(0.5)
    yield


@contextmanager
def cut_ssh(target: Target) -> Iterator[None]:
    """End the SSH session of the SPS on its side."""
    daemon = int((namespaces.STATE_ROOT / "local" / "sps.sshd.pid").read_text())
    for session in children(daemon):
        os.kill(session, signal.SIGKILL)
    yield


# ---- links ----


def link_down(netns: str | None, link: str, for_s: float | None = None) -> Fault:
    """Set a link down: for some time, or until the run has ended.

    Parameters
    ----------
    netns
        Namespace of the link; None is that of the machine.
    """
    inside = ["-n", netns] if netns else []

    def switch(state: str) -> None:
        subprocess.run(["ip", *inside, "link", "set", link, state], check=True)

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        switch("down")
        try:
            if for_s is None:
                yield
            else:
                time.sleep(for_s)
        finally:
            switch("up")
        if for_s is not None:
            yield

    return fault


def queueing(role: str, link: str, discipline: str) -> Fault:
    """Give a link another queueing discipline."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        try:
            in_host(role, *f"tc qdisc add dev {link} root {discipline}".split())
        except subprocess.CalledProcessError as error:
            kind = discipline.split()[0]
            raise CannotInjectError(f"tc {kind}: {error.stderr.strip()}") from error
        try:
            yield
        finally:
            in_host(role, *f"tc qdisc del dev {link} root".split())

    return fault


@contextmanager
def lose_acks(target: Target) -> Iterator[None]:
    """Lose every ACK of the UAC on its link: it leaves by the UAS's, where nobody has that address."""
    in_host("sps", *["tc", "qdisc", "add", "dev", "uac0", "clsact"])
    try:
        match = "u32 match u32 0x41434b20 0xffffffff at 28"
        redirect = "action mirred egress redirect dev uas0"
        in_host("sps", *f"tc filter add dev uac0 ingress protocol ip {match} {redirect}".split())
        yield
    finally:
        in_host("sps", *["tc", "qdisc", "del", "dev", "uac0", "clsact"])


# ---- disks ----


def fill(folder: Path) -> Path:
    """Take all that is free on a file system; the file that does."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    return filler


@contextmanager
def full_raw(target: Target) -> Iterator[None]:
    """Fill the disk on which the controller records."""
    filler = fill(target.raw)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def full_sps(target: Target) -> Iterator[None]:
    """Give the SPS a small disk for its files, and fill it under load."""
    folder = str(target.bed.workdir / "sps")
    daemon = (namespaces.STATE_ROOT / "local" / "sps.sshd.pid").read_text().strip()
    # each host has mounts of its own
    inside = ["nsenter", f"--target={daemon}", "--mount"]
    size = "size=80m,mode=700"
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", size, "none", folder], check=True)
    waiter = 'until pgrep -f "$1" > /dev/null; do sleep 0.05; done; sleep 0.7; exec cat /dev/zero'
    command = f'({waiter}) > "$2/filler" 2> /dev/null'
    with subprocess.Popen([*inside, "sh", "-c", command, "sh", LOAD, folder]) as filler:
        try:
            yield
        finally:
            filler.kill()
            subprocess.run([*inside, "umount", "--lazy", folder], check=True)


# ---- clock and strangers ----


@contextmanager
def step_clock(target: Target) -> Iterator[None]:
    """Step the wall clock by a second, and exactly back when the run has ended."""
    realtime, monotonic = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC

    def step(seconds: float) -> None:
        time.clock_settime_ns(realtime, time.clock_gettime_ns(realtime) + round(seconds * 1e9))

    offset_ns = time.clock_gettime_ns(realtime) - time.clock_gettime_ns(monotonic)
    step(1.0)
    try:
        yield
    finally:
        time.clock_settime_ns(realtime, time.clock_gettime_ns(monotonic) + offset_ns)


SEND = """\
import socket, sys, time
address, port, count, payload = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(count):
    # a refusal by ICMP comes back as an error of the next send
    try:
        out.sendto(payload.replace('NUMBER', str(number)).encode(), (address, port))
    except ConnectionRefusedError:
        pass
    if number % 20 == 0:
        time.sleep(0.002)
"""
OPTIONS = (
    "OPTIONS sip:nobody@198.18.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 198.18.1.2:9;branch=z9hG4bKxNUMBER\r\n"
    "From: <sip:a@198.18.1.2>;tag=x\r\nTo: <sip:nobody@198.18.0.1>\r\nCall-ID: NUMBER@stranger\r\n"
    "CSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
)


def send(role: str, address: str, port: int, payload: str) -> Fault:
    """Send datagrams that are none of the load's from a host to one of the testbed's own addresses."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        in_host(role, sys.executable, "-c", SEND, address, str(port), str(DATAGRAMS), payload)
        yield

    return fault


SPS_LINK = ("sipsched-sps", "uas0")
"""The SPS's end of the UAS's link."""
CASES = (
    # somebody kills something
    Case("snakemake killed", kill_target, None, through_snakemake=True),
    Case("measuring process killed", kill_target, "interrupted: the program that measured"),
    Case(
        "probe killed", kill(lambda: only(r"^[^ ]*/sipprobe run ")), "probe ended without a report"
    ),
    Case("proxy killed", kill(proxy_main), PROXY_ENDED),
    Case("worker killed", kill(proxy_worker), PROXY_ENDED),
    Case(
        "UAC killed",
        kill(lambda: only(LOAD)),
        r"host uac .*: uac ended by itself, killed by a signal",
    ),
    Case(
        "UAS killed",
        kill(lambda: only(r"^[^ ]*/sipload uas ")),
        "the UAS ended by itself, before it was told to",
    ),
    Case("Ctrl-C twice", interrupt_twice, "^interrupted: nothing measured", through_snakemake=True),
    # a link goes
    Case("SSH cut", cut_ssh, r"host sps .*connection lost|no end after"),
    Case("management link away for 1 s", link_down(None, "sipsched-sps", 1.0), None),
    Case(
        "management link away", link_down(None, "sipsched-sps"), r"host sps .*connection lost in: "
    ),
    Case(
        "UAS link down from the start",
        link_down(*SPS_LINK),
        r"host uas .*link sip0 to sps is down or has no carrier",
        before=True,
    ),
    Case("UAS link down in mid-run", link_down(*SPS_LINK), frozenset({"calls_failed_unexplained"})),
    # which of them depends on what was on its way, and on how long the kernel takes to pass packets again
    Case(
        "UAS link flaps",
        link_down(*SPS_LINK, for_s=0.3),
        "interfaces dropped|calls did not complete|not accounted for",
    ),
    Case(
        "a link loses datagrams",
        lose_acks,
        r"\b400 messages were sent and are not accounted for",
        before=True,
        retransmissions=False,
    ),
    Case(
        "a link loses at random",
        queueing("uac", "sip0", "netem loss 5%"),
        frozenset({"ledger_residual"}),
        before=True,
    ),
    Case(
        "a sender's own queue refuses",
        queueing("uac", "sip0", "tbf rate 200kbit burst 4kb latency 1ms"),
        "interfaces dropped",
    ),
    # a disk is full
    Case(
        "disk of the SPS full",
        full_sps,
        "host sps .*disk full at .*No space left on device",
        before=True,
    ),
    Case("disk of the controller full", full_raw, "cannot write: No space left on device"),
    # others on the machine
    Case("clock steps by 1 s", step_clock, frozenset({"clock_step_s"})),
    Case(
        "strangers to the UAC's host",
        send("sps", "198.18.1.2", 9, "hello"),
        frozenset({"datagrams_without_port"}),
    ),
    Case(
        "strangers to the proxy: no SIP",
        send("uac", "198.18.0.1", 5060, "hello"),
        frozenset({"foreign_datagrams"}),
    ),
    Case(
        "strangers to the proxy: SIP",
        send("uac", "198.18.0.1", 5060, OPTIONS),
        frozenset({"foreign_datagrams"}),
    ),
)
