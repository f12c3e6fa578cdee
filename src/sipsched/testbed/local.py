"""The embedded testbed: three network namespaces of this machine, each with its own sshd.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──veth── 198.18.1.1 sps 198.18.2.1 ──veth── 198.18.2.2 uas
                            SIP on 198.18.0.1 (lo of sps); nothing is forwarded at the IP layer

and one more veth a namespace, to the machine itself, for SSH.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError, TransientError
from sipsched.testbed.inventory import UNDO_FILE, Testbed

STATE = Path("/run/sipsched/local")
LOCK_FILE = PurePosixPath("/run/lock/sipsched.lock")
IDLE_S = 30.0
LOCK_PATIENCE_S = 5.0
STOP_GRACE_S = 3.0
START_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Namespace:
    """One host of the embedded testbed, as the kernel sees it."""

    role: str
    management: str
    """Address of its sshd; the machine's end of that link is the address before it."""
    gateway: str

    @property
    def name(self) -> str:
        """Name of the network namespace."""
        return f"sipsched-{self.role}"

    @property
    def link(self) -> str:
        """Name of the machine's end of the management link (at most 15 characters)."""
        return f"sipsched-{self.role}"


NAMESPACES = (
    Namespace("uac", "198.18.255.2", "198.18.255.1"),
    Namespace("sps", "198.18.255.6", "198.18.255.5"),
    Namespace("uas", "198.18.255.10", "198.18.255.9"),
)
SPS_SIP_ADDRESS = "198.18.0.1"
AGENT_LINKS = (("uac", "198.18.1"), ("uas", "198.18.2"))

# SHLVL: bash then takes no ~/.bashrc for a command, which can cost 100 ms each
SSHD_CONFIG = """\
ListenAddress {address}:22
HostKey {state}/host_key
AuthorizedKeysFile {state}/id_ed25519.pub
PidFile {state}/{role}.sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
StrictModes no
MaxSessions 64
LogLevel ERROR
SetEnv SHLVL=1
Subsystem sftp internal-sftp
"""


def check_platform() -> None:
    """Refuse a system that is not Linux, or a user who is not root.

    Raises
    ------
    StableError
        Says which, and what to do.
    """
    elsewhere = "use a testbed of kind ssh (hardware/testbeds/example-physical.yaml)"
    if platform.system() != "Linux":
        raise StableError(
            f"testbed local: needs Linux, this machine runs {platform.system()}; {elsewhere}"
        )
    if os.geteuid() != 0:
        raise StableError(
            "testbed local: needs root on this machine, for network namespaces and eBPF; "
            f"run as root, or {elsewhere}"
        )


def check_machine(testbed: Testbed) -> None:
    """Refuse a machine on which the embedded testbed cannot run.

    Raises
    ------
    StableError
        Names the first thing that is missing and what to do.
    """
    check_platform()
    for program in ("ip", "sshd", "ssh-keygen", "taskset"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise StableError(
                f"testbed local: program {program} is missing on this machine; run: fab provision"
            )
    wanted = {cpu for spec in testbed.hosts for cpu in spec.cpus + spec.helper_cpus}
    missing = wanted - os.sched_getaffinity(0)
    if missing:
        raise StableError(
            f"testbed local: this machine has no CPU {sorted(missing)}; at least two CPUs are "
            f"needed, named in hardware/testbeds/{testbed.name}.yaml"
        )


def ensure_up(testbed: Testbed, idle_s: float | None = None) -> None:
    """Bring the testbed up unless it is up.

    Parameters
    ----------
    testbed
        Says which CPUs are the SPS's and which are for everything else.
    idle_s
        A guardian takes the testbed down when no run has held it for this long, also after the
        controller was killed. None keeps it up until `take_down`.
    """
    check_machine(testbed)
    with _machine_lock():
        if not is_up():
            _remove()
            try:
                _create(testbed)
            except BaseException:
                _remove()
                raise
            if idle_s is not None:
                _start_guardian(idle_s)


def take_down() -> None:
    """End every process in the namespaces and remove them; no error if there are none."""
    check_platform()
    with _machine_lock():
        _remove()


def is_up() -> bool:
    """Tell whether all three namespaces and their sshds are there."""
    return all(
        Path("/run/netns", namespace.name).exists() and _sshd_runs(namespace.role)
        for namespace in NAMESPACES
    )


def guard(idle_s: float) -> None:
    """Take the testbed down once it has been idle for `idle_s` seconds; a run in progress is waited for."""
    lock_file = Path(LOCK_FILE)
    while STATE.exists():
        with lock_file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            last_used = lock_file.stat().st_mtime_ns
        time.sleep(idle_s)
        with lock_file.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if lock_file.stat().st_mtime_ns == last_used:
                _remove()


@contextmanager
def _machine_lock() -> Iterator[None]:
    lock_file = Path(LOCK_FILE)
    with lock_file.open("a") as lock:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"testbed local is in use: another run holds {lock_file}; "
                        f"wait for it (fuser {lock_file} names it)"
                    ) from None
                time.sleep(0.05)
        os.utime(lock_file)
        yield


def _create(testbed: Testbed) -> None:
    STATE.mkdir(parents=True, mode=0o700, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("id_ed25519", "host_key"):
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(STATE / key)])
    for namespace in NAMESPACES:
        _run(["ip", "netns", "add", namespace.name])
        _ip(namespace.role, "link set lo up")
        _ip_root(f"link add {namespace.link} type veth peer name ssh0 netns {namespace.name}")
        _ip_root(f"address add {namespace.gateway}/30 dev {namespace.link}")
        _ip_root(f"link set {namespace.link} up")
        _ip(namespace.role, f"address add {namespace.management}/30 dev ssh0")
        _ip(namespace.role, "link set ssh0 up")
    for role, net in AGENT_LINKS:
        _ip("sps", f"link add {role}0 type veth peer name sip0 netns sipsched-{role}")
        _ip("sps", f"address add {net}.1/30 dev {role}0")
        _ip("sps", f"link set {role}0 up")
        _ip(role, f"address add {net}.2/30 dev sip0")
        _ip(role, "link set sip0 up")
        _ip(role, f"route add {SPS_SIP_ADDRESS}/32 via {net}.1")
    _ip("sps", f"address add {SPS_SIP_ADDRESS}/32 dev lo")
    _in_namespace("sps", ["sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"])
    _steer_receive_work(testbed)
    _wait_for_carrier()
    public_key = (STATE / "host_key.pub").read_text().strip()
    known = [f"{namespace.management} {public_key}\n" for namespace in NAMESPACES]
    (STATE / "known_hosts").write_text("".join(known))
    for namespace in NAMESPACES:
        config = STATE / f"{namespace.role}.sshd_config"
        config.write_text(
            SSHD_CONFIG.format(address=namespace.management, state=STATE, role=namespace.role)
        )
        sshd = ["/usr/sbin/sshd", "-f", str(config)]
        cpus = ",".join(map(str, testbed.sps.helper_cpus))
        _in_namespace(namespace.role, ["taskset", "--cpu-list", cpus, *sshd])
    # sshd writes its process id only after its parent has returned
    deadline = time.monotonic() + START_PATIENCE_S
    while not is_up():
        if time.monotonic() > deadline:
            raise TransientError(
                f"testbed local: no sshd after {START_PATIENCE_S:g} s; run: fab up"
            )
        time.sleep(0.01)


def _steer_receive_work(testbed: Testbed) -> None:
    # veth runs the receive softirq on the sender's CPU; the papers charge it to the SPS
    mask = sum(1 << cpu for cpu in testbed.sps.cpus)
    for role, _ in AGENT_LINKS:
        rps = f"/sys/class/net/{role}0/queues/rx-0/rps_cpus"
        _in_namespace("sps", ["sh", "-c", f"echo {mask:x} > {rps}"])


def _wait_for_carrier() -> None:
    # the kernel activates a link's queue up to 1 s after its carrier; packets sent before are lost
    for role, _ in AGENT_LINKS:
        for where, link in (("sps", f"{role}0"), (role, "sip0")):
            state = f"/sys/class/net/{link}/operstate"
            loop = f"until grep -q up {state}; do sleep 0.02; done"
            _in_namespace(where, ["timeout", "5", "sh", "-c", loop])


def _remove() -> None:
    present = [n for n in NAMESPACES if Path("/run/netns", n.name).exists()]
    _end_processes(present)
    for namespace in NAMESPACES:
        if Path("/sys/class/net", namespace.link).exists():
            _ip_root(f"link delete {namespace.link}")
    for namespace in present:
        _run(["ip", "netns", "delete", namespace.name])
    if Path(UNDO_FILE).exists():
        _run(["sh", str(UNDO_FILE)])
        Path(UNDO_FILE).unlink()
    shutil.rmtree(STATE, ignore_errors=True)


def _end_processes(namespaces: Sequence[Namespace]) -> None:
    """Everything inside these namespaces is ours: ask it to end, then make it."""
    deadline = time.monotonic() + STOP_GRACE_S
    signal = "-TERM"
    while pids := [pid for namespace in namespaces for pid in _pids(namespace)]:
        if time.monotonic() > deadline:
            signal = "-KILL"
        subprocess.run(["kill", signal, *pids], check=False, capture_output=True)
        time.sleep(0.05)


def _pids(namespace: Namespace) -> list[str]:
    return _run(["ip", "netns", "pids", namespace.name]).split()


def _sshd_runs(role: str) -> bool:
    pid_file = STATE / f"{role}.sshd.pid"
    if not pid_file.exists():
        return False
    pid = pid_file.read_text().strip()
    comm = Path("/proc", pid or "none", "comm")
    return comm.exists() and comm.read_text().strip() == "sshd"


def _start_guardian(idle_s: float) -> None:
    code = f"from sipsched.testbed.local import guard; guard({idle_s!r})"
    subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _ip_root(arguments: str) -> None:
    _run(["ip", *arguments.split()])


def _ip(role: str, arguments: str) -> None:
    _run(["ip", "-n", f"sipsched-{role}", *arguments.split()])


def _in_namespace(role: str, argv: Sequence[str]) -> None:
    _run(["ip", "netns", "exec", f"sipsched-{role}", *argv])


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise StableError(f"testbed local: {' '.join(argv)}: {said}")
    return done.stdout
