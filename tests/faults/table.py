"""The table of faults that tests inject into runs: each disturbance, its time, and the run's expected result.

A fault is a context manager. At the end of its block, the fault reverts its own change, such as a link that is down or
a full disk. The fault restores nothing that sipsched changed, because the tests check that sipsched does so.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import LOAD, pids, squatter

from sipsched.testbed import namespaces
from sipsched.testbed.inventory import Testbed

DATAGRAMS = 2000
"""The number of foreign datagrams that a fault sends."""
HOG_S = 2
INTO_LOAD_S = 0.7
"""Seconds from the start of the UAC to the fault."""
BUSY_S, BUSY_SHARE = 0.1, 0.02
"""Seconds during which a test measures CPU time, and the share of a CPU above which an instance serves calls.

At 200 calls per second, an instance uses about 6 % of a CPU in its windows, and 0.1 % in all other windows.
"""
WARM_UP = r"^[^ ]*/sipload uac --local .*/warmup\.schedule"
"""Regular expression for the command line of the UAC during the warm-up."""
PTRACE_SEIZE = 0x4206
"""SEE include/uapi/linux/ptrace.h."""
PROXY_ENDED = (
    r"the proxy ended during the run, and \d+ of \d+ calls did not complete; its log is proxy\.log"
)

PROXY_ENDS = r"\d+ of \d+ processes of the proxy, such as kamailio .* ended during the run"


@dataclass(frozen=True)
class Target:
    """A run that a fault disturbs.

    Attributes
    ----------
    pid
        Process id of the process that performs the run, or of its Snakemake; None before the run starts.
    raw
        The folder of the records, on its own file system.
    bed
        The testbed.
    """

    pid: int | None
    raw: Path
    bed: Testbed


Fault = Callable[[Target], AbstractContextManager[None]]
LEAKY = "kamailio-udp-leaky"
"""Name of the SUT whose proxy leaks memory."""
BROKEN = "kamailio-udp-broken"
"""Name of the SUT whose proxy cannot start."""
FAULTY = {
    LEAKY: """\
#!/bin/sh
# Start a Kamailio that keeps each transaction for ten minutes instead of 5 s.
# About 200 calls use up its 6 MiB of shared memory.
for argument; do
    case $argument in
    */proxy.cfg) sed -i '/^loadmodule "rr.so"/i modparam("tm", "wt_timer", 600000)' "$argument" ;;
    esac
done
exec kamailio "$@" -m 6
""",
    BROKEN: """\
#!/bin/sh
exec kamailio "$@" -f /nonexistent.cfg
""",
}
"""The programs of faulty SUTs, by the name of the SUT. `checks.declare_faulty` declares these SUTs."""


@dataclass(frozen=True)
class Case:
    """A fault and its expected result.

    Attributes
    ----------
    name
        Name that identifies the case.
    inject
        The fault.
    expected
        The rules of the verdict that the run breaks, or a regular expression for the error of the run. None means that
        the run must succeed.
    before
        Whether the fault begins before the run. If false, the fault begins during the load.
    through_snakemake
        Whether the run is a job of Snakemake.
    retransmissions
        Whether agents retransmit lost messages.
    sut
        The SUT that the fault needs; None for any SUT.
    competes
        Whether rules on other programs have their default limits. If false, the limits are wider, for busy machines.
    mode
        The mode of the run, or the list of compared instances.
    """

    name: str
    inject: Fault
    expected: str | frozenset[str] | None
    before: bool = False
    through_snakemake: bool = False
    retransmissions: bool = True
    sut: str | None = None
    competes: bool = False
    mode: str = "default"


class CannotInjectError(Exception):
    """The error for a machine that lacks a feature that the fault needs. The error's text names the feature."""


# ---- processes ----


def in_host(role: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the network namespace of a host."""
    command = ["ip", "netns", "exec", f"sipsched-{role}", *argv]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def processes_of(role: str) -> dict[int, str]:
    """Return the command lines of a host's processes, by process id."""
    listing = subprocess.run(
        ["ip", "netns", "pids", f"sipsched-{role}"], check=True, capture_output=True, text=True
    )
    result = {}
    for pid in listing.stdout.split():
        # Skip processes that end during the loop.
        with suppress(OSError):
            result[int(pid)] = Path("/proc", pid, "cmdline").read_text().replace("\0", " ").strip()
    return result


def children(parent: int) -> list[int]:
    """Return the ids of child processes, the oldest first."""
    listing = subprocess.run(["pgrep", "--parent", str(parent)], capture_output=True, text=True)
    return [int(pid) for pid in listing.stdout.split()]


def proxy_main() -> int:
    """Return the process id of the proxy's main process, the child of its supervising `timeout`."""
    supervisor = int((namespaces.STATE_ROOT / "sps" / "proxy.pid").read_text())
    (main,) = children(supervisor)
    return main


def proxy_worker() -> int:
    """Return the process id of a worker that receives SIP: the oldest child, because the proxy forks workers first."""
    return children(proxy_main())[0]


def only(pattern: str) -> int:
    """Return the id of the only process whose command line matches a pattern."""
    (pid,) = pids(pattern)
    return pid


def kill(find: Callable[[], int]) -> Fault:
    """Kill a process with SIGKILL."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        os.kill(find(), signal.SIGKILL)
        yield

    return fault


def instance_main() -> int:
    """Return the id of an instance's main process. A shell starts the instances of a partitioned proxy."""
    return children(proxy_main())[0]


def compared_instance() -> int:
    """Return the process id of the main process of the second of the instances that a run compares."""
    return pids("^[^ ]*kamailio .*/instance-1/proxy.cfg")[0]


def compared_worker() -> int:
    """Return the process id of a worker of the second of the instances that a run compares."""
    return children(compared_instance())[0]


def compared_instance_all() -> list[int]:
    """Return the ids of all processes of the second instance that a run compares."""
    return pids("^[^ ]*kamailio .*/instance-1/proxy.cfg")


def proxy_all() -> list[int]:
    """Return the ids of the proxy's main process and all of its descendants."""
    result = [proxy_main()]
    for parent in result:
        result += children(parent)
    return result


def stop(find: Callable[[], list[int]], seconds: float | None = None) -> Fault:
    """Stop processes with SIGSTOP for some time, or until the end of the run."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        result = find()
        for pid in result:
            os.kill(pid, signal.SIGSTOP)
        try:
            if seconds is None:
                yield
            else:
                time.sleep(seconds)
        finally:
            for pid in result:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        if seconds is not None:
            yield

    return fault


def in_window(find: Callable[[], list[int]], fault: Fault) -> Fault:
    """Inject a fault when the processes of a compared instance become busy, at the start of one of its windows."""

    def busy() -> bool:
        def used_ns() -> int:
            texts = (Path("/proc", str(pid), "schedstat").read_text() for pid in find())
            return sum(int(text.split()[0]) for text in texts)

        before = used_ns()
        time.sleep(BUSY_S)
        return used_ns() - before > BUSY_SHARE * BUSY_S * 1e9

    @contextmanager
    def later(target: Target) -> Iterator[None]:
        while busy():
            pass
        while not busy():
            pass
        with fault(target):
            yield

    return later


@contextmanager
def kill_in_warm_up(target: Target) -> Iterator[None]:
    """Kill all processes of a compared instance during the warm-up. The fault begins before the run."""

    def wait_and_kill() -> None:
        while not pids(WARM_UP) and not over.is_set():
            time.sleep(0.01)
        for pid in compared_instance_all():
            os.kill(pid, signal.SIGKILL)

    over = threading.Event()
    killer = threading.Thread(target=wait_and_kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def hog(*prefix: str, loops: int = 1, pinned: bool = True, for_s: float = HOG_S) -> Fault:
    """Run busy loops for some time. Pinned loops run on the first CPU of the SPS.

    Parameters
    ----------
    prefix
        The command that gives a loop its class, such as `nice -n -20`.
    """

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        cpus = ["taskset", "-c", str(target.bed.sps.cpus[0])] if pinned else []
        argv = [*prefix, *cpus, "sh", "-c", "while :; do :; done"]
        running = [subprocess.Popen(argv) for _ in range(loops)]
        try:
            time.sleep(for_s)
        finally:
            for process in running:
                # Give the loop a normal class again, because a process of the idle class never ends on a busy CPU.
                os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
                os.sched_setaffinity(process.pid, range(os.cpu_count() or 1))
                process.kill()
                process.wait()
        yield

    return fault


@contextmanager
def move_workers(target: Target) -> Iterator[None]:
    """Move the proxy's processes to the CPU of UAC and UAS, as a user might do with taskset."""
    for pid in proxy_all():
        os.sched_setaffinity(pid, target.bed.uac.cpus)
    yield


def uas() -> int:
    """Return the process id of the UAS."""
    return only(r"^[^ ]*/sipload uas ")


@contextmanager
def kill_target(target: Target) -> Iterator[None]:
    """Kill the process that performs the run, or its Snakemake, with SIGKILL."""
    assert target.pid is not None
    os.kill(target.pid, signal.SIGKILL)
    yield


@contextmanager
def interrupt_twice(target: Target) -> Iterator[None]:
    """Send SIGINT to the process group twice, as a terminal does for Ctrl-C."""
    assert target.pid is not None
    for _ in range(2):
        with suppress(ProcessLookupError):
            os.killpg(target.pid, signal.SIGINT)
        time.sleep(0.5)
    yield


@contextmanager
def cut_ssh(target: Target) -> Iterator[None]:
    """Kill the SSH sessions of the SPS on the SPS."""
    daemon = int((namespaces.STATE_ROOT / "local" / "sps.sshd.pid").read_text())
    for session in children(daemon):
        os.kill(session, signal.SIGKILL)
    yield


@contextmanager
def nothing(target: Target) -> Iterator[None]:
    """Inject no fault, because the SUT of the run is itself faulty."""
    yield


# ---- other programs ----


def trace(find: Callable[[], int]) -> Fault:
    """Attach to a process as a debugger does, without stopping it."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if ptrace(PTRACE_SEIZE, find(), None, None):
            raise CannotInjectError(os.strerror(ctypes.get_errno()))
        yield

    return fault


# ---- links ----


def link_down(netns: str | None, link: str, for_s: float | None = None) -> Fault:
    """Set a link down for some time, or until the end of the run.

    Parameters
    ----------
    netns
        Namespace of the link; None for the namespace of the machine.
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
    """Change the queueing discipline of a link."""

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
    """Lose every ACK of the UAC, by sending the ACKs out on the UAS's link."""
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
    """Fill a file system, and return the file that fills it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    return filler


@contextmanager
def full_raw(target: Target) -> Iterator[None]:
    """Fill the disk of the records."""
    filler = fill(target.raw)
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def full_sps(target: Target) -> Iterator[None]:
    """Give the SPS a small disk for its files, and fill the disk under load."""
    folder = str(target.bed.workdir / "sps")
    daemon = (namespaces.STATE_ROOT / "local" / "sps.sshd.pid").read_text().strip()
    # Mount inside the host's mount namespace, because a mount outside would be invisible to the host.
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
    """Step the wall clock forward by a second, and step the clock back by the same time at the end of the run."""
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
    # The kernel reports an ICMP refusal as an error of the next send.
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
    """Send foreign datagrams from a host to an address of the testbed."""

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        in_host(role, sys.executable, "-c", SEND, address, str(port), str(DATAGRAMS), payload)
        yield

    return fault


CONNECT = """\
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connections = [socket.create_connection((address, port)) for _ in range(count)]
for connection in connections[::3]:
    # Send more bytes than any message has, so that the stream cannot be parsed.
    try:
        connection.sendall(b"x" * 70_000)
    except ConnectionError:
        pass
print("connected", flush=True)
sys.stdin.read()
"""
STRANGERS = 600


@contextmanager
def connect_strangers(target: Target) -> Iterator[None]:
    """Open foreign TCP connections to the SPS. Every third connection sends bytes that are not SIP."""
    inside = ["ip", "netns", "exec", "sipsched-uac", sys.executable, "-c", CONNECT]
    argv = [*inside, "198.18.0.1", "5060", str(STRANGERS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as strangers:
        assert strangers.stdin is not None
        assert strangers.stdout is not None
        if not strangers.stdout.readline():
            raise OSError("nobody listens on TCP")
        yield
        strangers.stdin.close()


TO_UAS = "dst = 198.18.2.2:5060"
"""Filter of `ss` for the TCP connections from the proxy to the UAS."""


def to_compared_instance() -> list[str]:
    """Return a filter of `ss` for the TCP connections from the UAC to the second of the compared instances."""
    return ["sport = :5061"]


def from_compared_instance() -> list[str]:
    """Return filters of `ss`, one for each TCP connection from the second of the compared instances to the UAS."""
    owners = {f"pid={pid}," for pid in compared_instance_all()}
    lines = in_host("sps", "ss", "-Htnp", TO_UAS).stdout.splitlines()
    return [
        f"sport = :{line.split()[3].rpartition(':')[2]}"
        for line in lines
        if any(owner in line for owner in owners)
    ]


def cut(find: Callable[[], list[str]], for_s: float = 0) -> Fault:
    """Reset TCP connections of the SPS once, or again and again for some time.

    Parameters
    ----------
    find
        The function that returns the filters of `ss` for the connections.
    """

    @contextmanager
    def fault(target: Target) -> Iterator[None]:
        end = time.monotonic() + for_s
        killed = ""
        while True:
            killed += "".join(in_host("sps", "ss", "-HKtn", one).stdout for one in find())
            if time.monotonic() >= end:
                break
            time.sleep(0.05)
        if not killed.strip():
            raise CannotInjectError(
                "ss -K: no connection, or a kernel without CONFIG_INET_DIAG_DESTROY"
            )
        yield

    return fault


SPS_LINK = ("sipsched-sps", "uas0")
"""The interface of the SPS on the link to the UAS."""
UAC_LINK = ("sipsched-sps", "uac0")
"""The interface of the SPS on the link to the UAC."""
OVER_TCP = "kamailio-tcp"
UNREAD = "SIP messages still wait in sockets after"
CASES = (
    # The following faults kill processes.
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
        r"host uac .*: uac ended unexpectedly, killed by a signal",
    ),
    Case(
        "UAS killed",
        kill(uas),
        "the UAS ended before the end of the load",
    ),
    Case("Ctrl-C twice", interrupt_twice, "^interrupted: nothing measured", through_snakemake=True),
    Case(
        "main process of an instance killed",
        kill(instance_main),
        PROXY_ENDS,
        sut="kamailio-udp-partitioned",
    ),
    Case(
        "sipshard killed",
        kill(lambda: only(r"^[^ ]*/sipshard ")),
        "sipshard ended unexpectedly during the run",
        sut="kamailio-udp-sockets",
    ),
    # The SUT of the following fault leaks memory.
    Case("proxy leaks memory", nothing, frozenset({"allocation_failures"}), sut=LEAKY),
    # The following faults stop processes for some time.
    Case("UAS stopped for 0.5 s", stop(lambda: [uas()], 0.5), frozenset({"uas_lateness_p99_us"})),
    # The following faults compete for the proxy's CPU, or interfere with the proxy's processes.
    Case("a busy loop of nice -20", hog("nice", "-n", "-20"), r"sh \(nice -20", competes=True),
    Case("a real-time busy loop", hog("chrt", "-f", "50"), r"sh \(SCHED_FIFO", competes=True),
    Case("a busy loop for 0.5 s", hog(for_s=0.5), r"sh \(nice 0", competes=True),
    Case(
        "four busy loops anywhere",
        hog(loops=4, pinned=False),
        frozenset({"competitor_share"}),
        competes=True,
    ),
    Case("proxy stopped for 1 s", stop(proxy_all, 1.0), r"frozen for \d\.\d+ s", competes=True),
    Case("workers moved to another CPU", move_workers, "were given other CPUs"),
    Case("a worker is traced", trace(proxy_worker), "a debugger or strace"),
    # The following faults disturb links.
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
    # The results of the following faults vary with the messages in transit, and with the time until packets flow again.
    Case(
        "UAS link flaps",
        link_down(*SPS_LINK, for_s=0.3),
        "interfaces dropped|calls did not complete|missing in all other counts",
    ),
    Case(
        "a link loses datagrams",
        lose_acks,
        r"\b400 sent messages are missing in all other counts",
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
    # The following faults fill disks.
    Case(
        "disk of the SPS full",
        full_sps,
        "host sps .*disk full at .*No space left on device",
        before=True,
    ),
    Case("disk of the controller full", full_raw, "cannot write: No space left on device"),
    # The following faults step the clock, or send foreign messages.
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
    Case(
        "strangers to the dispatcher",
        connect_strangers,
        frozenset({"foreign_connections", "broken_streams"}),
        sut="kamailio-tcp-dispatcher",
    ),
    # The following faults disturb connections of TCP, which has no drops.
    Case(
        "connections to the UAS cut",
        cut(lambda: [TO_UAS]),
        frozenset({"connections_lost"}),
        sut=OVER_TCP,
    ),
    Case(
        "strangers to the proxy over TCP",
        connect_strangers,
        frozenset({"foreign_connections"}),
        sut=OVER_TCP,
    ),
    Case(
        "UAS link down in mid-run, over TCP",
        link_down(*SPS_LINK),
        # The UAS's own data to the proxy wait, too, if no data of the proxy were under way.
        rf"{UNREAD} 30 s: .* with data that did not reach the (UAS|SPS)",
        sut=OVER_TCP,
    ),
    Case(
        "UAC link down in mid-run, over TCP",
        link_down(*UAC_LINK),
        rf"{UNREAD} 30 s: .* with data that did not reach the (UAC|SPS)",
        sut=OVER_TCP,
    ),
    Case(
        "a link loses at random, over TCP",
        queueing("uac", "sip0", "netem loss 5%"),
        frozenset({"segments_again"}),
        before=True,
        sut=OVER_TCP,
    ),
    Case(
        "UAS link flaps, over TCP",
        link_down(*SPS_LINK, for_s=0.3),
        frozenset({"segments_again"}),
        sut=OVER_TCP,
    ),
)
INSTANCES = "default,default+threads=1"
"""The mode of a run that compares two numbers of workers. The run has three instances, including the sham."""
INSTANCE_ENDS = r"such as kamailio of instance 1 \(process \d+\), ended during the run"
LEAKS_IN_INSTANCE = f"default,default+sut={LEAKY}"
"""The mode of a run in which only the second of three instances leaks memory."""
INSTANCE = r"instance 1 \(proxy-1\.cfg\)"
FAILED_IN_INSTANCE = (
    rf"TCP connections of UAC and UAS were lost .*: failed calls: [\d\u202f]+ in {INSTANCE}(;|$)"
)
FROZEN_INSTANCE = rf"frozen for \d\.\d+ s; a process of {INSTANCE} was stopped"
OWN_CASES = (
    "worker killed",
    "a worker is traced",
    "a busy loop for 0.5 s",
    "a link loses datagrams",
)
"""Names of the faults for which OF_INSTANCES has a case of its own instead of a copy of the case in CASES."""
OF_INSTANCES = (
    Case("a compared instance killed", kill(compared_instance), INSTANCE_ENDS, mode=INSTANCES),
    Case(
        "worker of a compared instance killed", kill(compared_worker), INSTANCE_ENDS, mode=INSTANCES
    ),
    Case(
        "a compared instance stopped for 2 s",
        stop(compared_instance_all, 2.0),
        FROZEN_INSTANCE,
        competes=True,
        mode=INSTANCES,
    ),
    Case(
        "a compared instance stopped in one of its windows",
        in_window(compared_instance_all, stop(compared_instance_all, 0.3)),
        FROZEN_INSTANCE,
        competes=True,
        mode=INSTANCES,
    ),
    Case(
        "a compared instance hangs",
        stop(compared_instance_all),
        rf"{UNREAD} 5 s: 1 socket of {INSTANCE} with unread data",
        mode=INSTANCES,
    ),
    Case(
        "a compared instance cannot start",
        nothing,
        rf"{INSTANCE} ended before listening on UDP ports 5060 to 5062: .*nonexistent",
        before=True,
        mode=f"default,default+sut={BROKEN}",
    ),
    Case(
        "a compared instance killed in the warm-up",
        kill_in_warm_up,
        rf"{INSTANCE} ended before the load",
        before=True,
        mode=INSTANCES,
    ),
    Case(
        "the port of a compared instance in use",
        lambda target: squatter(5061),
        r"UDP one of the ports 5060 to 5062 is in use: .*:5061 .*python",
        before=True,
        mode=INSTANCES,
    ),
    Case(
        "a compared instance leaks memory",
        nothing,
        r"log contains ([\d\u202f]+) failed allocations: \1 in instance 1 \(proxy-1\.cfg\)",
        mode=LEAKS_IN_INSTANCE,
    ),
    Case(
        "worker of a compared instance traced",
        trace(compared_worker),
        "a debugger or strace",
        mode=INSTANCES,
    ),
    # The load is longer with instances, so a loop needs more time for the same share of the CPU time.
    Case(
        "a busy loop for 2 s, with instances", hog(), r"sh \(nice 0", competes=True, mode=INSTANCES
    ),
    # The number of lost messages depends on the lengths of the windows, which are random.
    Case(
        "a link loses datagrams, with instances",
        lose_acks,
        r"\b[12]\u202f\d{3} sent messages are missing in all other counts",
        before=True,
        retransmissions=False,
        mode=INSTANCES,
    ),
    Case(
        "sipshard of a compared instance killed",
        kill(lambda: only(r"^[^ ]*/sipshard ")),
        r"sipshard ended unexpectedly during the run, .* its log is sipshard-1\.log",
        mode="default,default+sut=kamailio-udp-sockets",
    ),
    Case(
        "main process of a partitioned instance of a comparison killed",
        kill(compared_instance),
        INSTANCE_ENDS,
        mode="default,default+sut=kamailio-udp-partitioned",
    ),
    # A faulty SUT has a case of its own. The remaining faults with their own SUT need a dispatcher, and a run cannot
    # compare instances behind a dispatcher (`plan.crossover.REFUSED`).
    *(
        replace(case, name=f"{case.name}, with instances", mode=INSTANCES)
        for case in CASES
        if case.sut in (None, OVER_TCP) and case.name not in OWN_CASES
    ),
)
"""Faults in a run that compares instances. Each fault of CASES that can occur in such a run has a case here."""
OF_TCP_INSTANCES = (
    Case(
        "connections to a compared instance cut",
        cut(to_compared_instance, 2.0),
        FAILED_IN_INSTANCE,
    ),
    Case(
        "connections from a compared instance cut",
        cut(from_compared_instance, 2.0),
        FAILED_IN_INSTANCE,
    ),
    Case(
        "a compared instance hangs",
        stop(compared_instance_all),
        # Data of the UAS are only unread if the UAS answered the instance just before the stop.
        rf"no counts from {INSTANCE}: host sps .*no end after|{UNREAD} 30 s: 1 socket of {INSTANCE} with unread data",
    ),
    Case(
        "the port of a compared instance in use",
        lambda target: squatter(5061, over_tcp=True),
        r"TCP one of the ports 5060 to 5062 is in use: .*:5061 .*python",
        before=True,
    ),
    *(
        case
        for case in (*CASES, *OF_INSTANCES)
        if case.name
        in (
            "a compared instance killed",
            "worker of a compared instance killed",
            "a compared instance killed in the warm-up",
            "a compared instance stopped for 2 s",
            "a compared instance stopped in one of its windows",
            "probe killed",
            "UAC killed",
            "UAS killed",
            "UAS stopped for 0.5 s",
        )
    ),
)
"""Faults in a run that compares instances over TCP, besides the faults of CASES that need TCP."""
OF_INSTANCES = (
    *OF_INSTANCES,
    *(
        replace(case, name=f"{case.name}, over TCP", sut=OVER_TCP, mode=INSTANCES)
        for case in OF_TCP_INSTANCES
    ),
)
LONG = frozenset(
    {
        *("UAC link down in mid-run, over TCP", "UAS link down in mid-run, over TCP"),
        *("UAS link flaps, over TCP", "a compared instance killed, over TCP"),
        "connections from a compared instance cut, over TCP",
        *("worker of a compared instance traced", "sipshard of a compared instance killed"),
        "main process of a partitioned instance of a comparison killed",
        *("a compared instance killed in the warm-up", "a compared instance stopped for 2 s"),
        *(
            f"{name}, with instances"
            for name in (
                *("a busy loop of nice -20", "four busy loops anywhere"),
                *("snakemake killed", "measuring process killed", "Ctrl-C twice", "SSH cut"),
                *("management link away", "management link away for 1 s", "clock steps by 1 s"),
                *("UAS link down from the start", "disk of the controller full"),
                *("strangers to the UAC's host", "a sender's own queue refuses"),
                *("UAC link down in mid-run, over TCP", "UAS link down in mid-run, over TCP"),
                *("a link loses at random, over TCP", "UAS link flaps, over TCP"),
                *("UAS link down in mid-run", "UAS link flaps", "a link loses datagrams"),
                *("disk of the SPS full", "connections to the UAS cut"),
                *("workers moved to another CPU", "strangers to the proxy: no SIP"),
                *("probe killed", "proxy killed", "UAC killed", "UAS killed"),
                *("UAS stopped for 0.5 s", "a link loses at random"),
                *("strangers to the proxy: SIP", "strangers to the proxy over TCP"),
            )
        ),
        *(
            f"{name}, over TCP"
            for name in (
                *("probe killed", "UAC killed", "UAS killed", "UAS stopped for 0.5 s"),
                *(
                    "a compared instance stopped for 2 s",
                    "a compared instance killed in the warm-up",
                ),
                *("worker of a compared instance killed", "the port of a compared instance in use"),
                "a compared instance hangs",
            )
        ),
    }
)
"""Names of faults that only `make soak` injects, because `make test` injects similar faults."""
COMPETITION = (
    Case("a busy loop of SCHED_BATCH", hog("chrt", "--batch", "0"), None),
    Case("a busy loop of SCHED_IDLE", hog("chrt", "--idle", "0"), None),
)
"""Faults whose result is not known in advance. The soak test compares the numbers of each run that stays valid."""
