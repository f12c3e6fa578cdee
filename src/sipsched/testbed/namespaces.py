"""The base class of testbeds that this machine creates from network namespaces, each with its own sshd."""

import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sipsched import scripting
from sipsched.errors import StableError, TransientError
from sipsched.paths import TESTBEDS
from sipsched.testbed import groups, places
from sipsched.testbed.inventory import ROLES, HostSpec, Testbed
from sipsched.testbed.lock import locked_here

STATE_ROOT = Path(places.RUN_FOLDER)
LOCK_FILE = STATE_ROOT / places.LOCK_FILE
LOCK_PATIENCE_S = 5.0
"""Seconds that `take_down` waits for the testbed's lock. If a run holds the lock longer, `take_down` fails."""
STOP_GRACE_S = 3.0
START_PATIENCE_S = 10.0
SPS_SIP_ADDRESS = "198.18.0.1"
AGENT_NETS = {"uac": "198.18.1", "uas": "198.18.2"}
"""Address prefix of the link between the proxy and the UAC or UAS. The proxy has .1, and the UAC or UAS has .2."""
LINK_NETS = {**AGENT_NETS, "front": "198.18.3"}
"""Address prefix of each link to the proxy. An embedded testbed can also have a link to the host of the front end."""

# Without the variable SHLVL, bash would read ~/.bashrc before each command, which can take 100 ms.
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
ClientAliveInterval 30
ClientAliveCountMax 2
SetEnv SHLVL=1
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Namespace:
    """A network namespace on this machine that serves as a host of a testbed."""

    role: str
    name: str
    """Name of the namespace and of this machine's interface to the namespace (at most 15 characters)."""
    management: str
    """Address at which the namespace's sshd listens."""
    gateway: str
    """Address of this machine's interface to the namespace, which SSH connections use."""

    @property
    def link(self) -> str:
        """The name of this machine's interface to the namespace, which SSH connections use."""
        return self.name


class MachineTestbed(ABC):
    """A testbed that this machine creates. A separate process, the guardian, removes the testbed when nobody uses it.

    Parameters
    ----------
    kind
        Name of the testbed for messages. The folder `<root>/<kind>` contains the SSH keys and the files of the sshds.
    namespaces
        The hosts that are namespaces. The testbed has those that its file names.
    module
        Name of the module with the function `guard`. The guardian process imports this module.
    command_up
        The command that a user types to create the testbed, for messages.
    root
        Folder of the testbed's lock and state. Testbeds with the same folder share the lock.
    """

    def __init__(
        self,
        kind: str,
        namespaces: Sequence[Namespace],
        module: str,
        command_up: str,
        root: Path = STATE_ROOT,
    ) -> None:
        self.kind = kind
        self.namespaces = tuple(namespaces)
        self.root = root
        self.state = root / kind
        self.lock_file = root / places.LOCK_FILE
        self.module = module
        self.command_up = command_up

    root_for = "network namespaces and eBPF"
    """The parts of the testbed that need root, for the error message that a user without root sees."""

    programs: tuple[str, ...] = ("ip", "sshd", "ssh-keygen", "taskset")
    """The programs that this machine needs to create the testbed."""

    def check_machine(self, testbed: Testbed) -> None:
        """Raise an error if this machine cannot create the testbed, for example without root rights.

        Raises
        ------
        StableError
            The message names the first missing part and the remedy.
        """
        self.check_platform()
        self.check_programs(self.programs)
        roles = {namespace.role for namespace in self.namespaces}
        self.check_cpus(testbed, [spec for spec in testbed.hosts if spec.role in roles])

    @abstractmethod
    def _create(self, testbed: Testbed, say: Callable[[str], None]) -> None:
        """Create all parts of the testbed, and call `say` with a line before each step that takes many seconds.

        The caller guarantees that no part exists yet.
        """

    def is_up(self, testbed: Testbed) -> bool:
        """Return True if all network namespaces of the testbed exist, and an sshd runs in each namespace."""
        roles = {spec.role for spec in testbed.hosts}
        return all(
            Path("/run/netns", namespace.name).exists() and self._sshd_runs(namespace.role)
            for namespace in self.namespaces
            if namespace.role in roles
        )

    def _serves(self, testbed: Testbed) -> bool:
        """Return True if the testbed exists and is usable. Subclasses also detect changes of the testbed's file."""
        return self.is_up(testbed)

    def ensure_up(
        self,
        testbed: Testbed,
        idle_s: float | None = None,
        say: Callable[[str], None] = scripting.say,
    ) -> None:
        """Wait until no other user holds the testbed's lock, and then create the testbed if it does not exist.

        Parameters
        ----------
        testbed
            The testbed, with the CPUs of each host.
        idle_s
            Seconds without a run after which the guardian removes the testbed. The guardian does this even if the
            process that controls the runs was killed. With None, the testbed exists until `take_down`.
        say
            Function that prints a line if another user holds the lock, and before each step that takes many seconds.
        """
        self.check_machine(testbed)
        with self.held(f"bringing up testbed {testbed.name}", testbed.lock_wait_s, say):
            if not self._serves(testbed):
                self._remove()
                try:
                    self._create(testbed, say)
                except BaseException:
                    self._remove()
                    raise
                if idle_s is not None:
                    self._start_guardian(idle_s)
            if idle_s is None:
                self._kept.touch()

    def take_down(self) -> None:
        """Stop every process of the testbed, and remove the testbed. If the testbed does not exist, do nothing."""
        self.check_platform()
        with self.held(f"taking down testbed {self.kind}", LOCK_PATIENCE_S, scripting.say):
            self._remove()
            self._end_guardian()
            self._forget_machine()

    def guard(self, idle_s: float) -> None:
        """Remove the testbed after `idle_s` seconds without a measurement, unless the user wants to keep the testbed.

        This method runs in a separate process, the guardian. While a run holds the lock, the guardian waits.
        """
        while self.state.exists() and not self._kept.exists():
            with self._guarded(fcntl.LOCK_EX) as last_used_ns:
                pass
            time.sleep(idle_s)
            with suppress(BlockingIOError), self._guarded(fcntl.LOCK_EX | fcntl.LOCK_NB) as now_ns:
                # `now_ns` is None if another process has already removed the testbed and its lock file.
                if last_used_ns == now_ns and now_ns is not None and not self._kept.exists():
                    self._remove()
                    self._forget_machine()

    @contextmanager
    def _guarded(self, operation: int) -> Iterator[int | None]:
        """Hold the lock of the testbed, and yield the time in ns at which a run last used the lock.

        The time is None if the lock file does not exist or was deleted in the meantime.
        """
        try:
            lock = self.lock_file.open()
        except FileNotFoundError:
            yield None
            return
        with lock:
            fcntl.flock(lock, operation)
            there = self.lock_file.exists() and self.lock_file.samefile(
                f"/proc/self/fd/{lock.fileno()}"
            )
            yield os.fstat(lock.fileno()).st_mtime_ns if there else None

    def check_platform(self) -> None:
        """Raise an error if the system is not Linux or the user is not root.

        Raises
        ------
        StableError
            The message names the reason and the remedy.
        """
        elsewhere = f"use a testbed of kind ssh ({TESTBEDS / 'example-physical.yaml'})"
        if platform.system() != "Linux":
            raise StableError(
                f"testbed {self.kind}: needs Linux, this machine runs {platform.system()}; "
                f"{elsewhere}"
            )
        if os.geteuid() != 0:
            raise StableError(
                f"testbed {self.kind}: needs root on this machine, for {self.root_for}; "
                f"run as root, or {elsewhere}"
            )

    def check_programs(self, programs: Sequence[str]) -> None:
        """Raise an error if this machine lacks a program."""
        for program in programs:
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
                raise StableError(
                    f"testbed {self.kind}: program {program} is missing on this machine; "
                    f"run: {self.command_install}"
                )

    @property
    def command_install(self) -> str:
        """The command that installs the packages and programs for this testbed, as text for messages."""
        return "fab provision" if self.kind == "local" else f"fab provision --testbed={self.kind}"

    def check_cpus(self, testbed: Testbed, specs: Sequence[HostSpec]) -> None:
        """Raise an error if this machine lacks a CPU that the testbed assigns to a host."""
        wanted = {cpu for spec in specs for cpu in spec.cpus + spec.helper_cpus}
        missing = wanted - os.sched_getaffinity(0)
        if missing:
            raise StableError(
                f"testbed {self.kind}: this machine has no CPU {sorted(missing)}; at least two CPUs "
                f"are needed, named in {TESTBEDS / testbed.name}.yaml"
            )

    @property
    def _kept(self) -> Path:
        return self.state / "kept"

    @contextmanager
    def held(self, purpose: str, wait_s: float, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the testbed's lock on this machine while the `with` block runs. `locked_here` lists the errors."""
        places.claim_here([self.root])
        with locked_here(self.lock_file, f"testbed {self.kind}", purpose, wait_s, say):
            yield

    @property
    def _guardian_file(self) -> Path:
        return self.state / "guardian.pid"

    def _start_guardian(self, idle_s: float) -> None:
        code = f"from {self.module} import guard; guard({idle_s!r})"
        guardian = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._guardian_file.write_text(f"{guardian.pid}\n")

    def _guardian(self) -> int | None:
        """Return the process id of the guardian, or None if no guardian is running."""
        if not self._guardian_file.exists():
            return None
        pid = int(self._guardian_file.read_text())
        command = Path(f"/proc/{pid}/cmdline")
        ours = command.exists() and f"from {self.module} import guard" in command.read_text()
        return pid if ours else None

    # ---- creation ----

    def _make_keys(self, addresses: Sequence[str]) -> None:
        """Create an SSH login key, one SSH host key for all hosts of the testbed, and the file known_hosts."""
        places.claim_here([self.state])
        for key in ("id_ed25519", "host_key"):
            path = str(self.state / key)
            self._run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path])
        public_key = (self.state / "host_key.pub").read_text().strip()
        known = "".join(f"{address} {public_key}\n" for address in addresses)
        (self.state / "known_hosts").write_text(known)

    def _create_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        for namespace in namespaces:
            self._run(["ip", "netns", "add", namespace.name])
            self._ip(namespace.role, "link set lo up")
            self._ip_root(
                f"link add {namespace.link} type veth peer name ssh0 netns {namespace.name}"
            )
            self._ip_root(f"address add {namespace.gateway}/30 dev {namespace.link}")
            self._ip_root(f"link set {namespace.link} up")
            self._ip(namespace.role, f"address add {namespace.management}/30 dev ssh0")
            self._ip(namespace.role, "link set ssh0 up")

    def _address_agent(self, role: str) -> None:
        """Set the IP address of the interface sip0 in the namespace of UAC or UAS, and the route to the proxy."""
        self._run(["sh", "-ec", "\n".join(agent_lines(role, self._namespace(role).name))])

    def _wait_for_carrier(self, role: str, link: str) -> None:
        # The kernel may activate a link as late as 1 s after the carrier is up. Packets before the activation would be
        # lost.
        loop = 'until grep -q up "$1"; do sleep 0.02; done'
        state = f"/sys/class/net/{link}/operstate"
        self._in_namespace(role, ["timeout", "5", "sh", "-c", loop, "sh", state])

    def _start_sshds(self, testbed: Testbed, namespaces: Sequence[Namespace]) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        specs = {spec.role: spec for spec in testbed.hosts}
        for namespace in namespaces:
            config = self.state / f"{namespace.role}.sshd_config"
            config.write_text(
                SSHD_CONFIG.format(
                    address=namespace.management, state=self.state, role=namespace.role
                )
            )
            cpus = ",".join(map(str, specs[namespace.role].helper_cpus))
            sshd = ["/usr/sbin/sshd", "-f", str(config)]
            held = ["taskset", "--cpu-list", cpus, *sshd]
            self._in_group(namespace.role, ["ip", "netns", "exec", namespace.name, *held])
        # Wait for all pid files, because the command that starts an sshd can return before the sshd has written its pid
        # file.
        deadline = time.monotonic() + START_PATIENCE_S
        while not all(self._sshd_runs(namespace.role) for namespace in namespaces):
            if time.monotonic() > deadline:
                raise TransientError(
                    f"testbed {self.kind}: no sshd after {START_PATIENCE_S:g} s; "
                    f"run: {self.command_up}"
                )
            time.sleep(0.01)

    def _sshd_runs(self, role: str) -> bool:
        return self._process_runs(self.state / f"{role}.sshd.pid", "sshd")

    def _process_runs(self, pid_file: Path, comm: str) -> bool:
        """Return True if a pid file contains the id of a running process with the name `comm`."""
        if not pid_file.exists():
            return False
        pid = pid_file.read_text().strip()
        path = Path("/proc", pid or "none", "comm")
        return path.exists() and path.read_text().strip() == comm

    # ---- removal ----

    def _remove(self) -> None:
        present = [n for n in self.namespaces if Path("/run/netns", n.name).exists()]
        self._end_guardian()
        for role in ROLES:
            self._run(["sh", "-c", groups.END, "sh", self._group_name(role), "", "", "0"])
        # On machines without control groups, the lines above stop no process. So also search for processes by
        # namespace.
        self._end_processes(present)
        for namespace in present:
            self._run(["ip", "netns", "delete", namespace.name])
        for namespace in self.namespaces:
            # The kernel removes a link together with its namespace, so the link may have disappeared already.
            if Path("/sys/class/net", namespace.link).exists():
                delete = ["ip", "link", "delete", namespace.link]
                subprocess.run(delete, check=False, capture_output=True)
        shutil.rmtree(self.state, ignore_errors=True)

    def _end_guardian(self) -> None:
        pid = self._guardian()
        if pid is not None and pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _forget_machine(self) -> None:
        """Remove the files that all testbeds of this machine share, unless another testbed still exists.

        The caller must hold the lock.
        """
        if any(
            path.is_dir() and path.name not in (*ROLES, "cgroup") for path in self.root.iterdir()
        ):
            return
        for role in ROLES:
            shutil.rmtree(self.root / role, ignore_errors=True)
        mount = self.root / places.CGROUP_MOUNT.name
        if mount.is_mount():
            self._run(["umount", str(mount)])
        if mount.exists():
            mount.rmdir()
        # A process that waits for the lock notices that its lock file was deleted, and creates a new lock file.
        self.lock_file.unlink(missing_ok=True)

    def _end_processes(self, present: Sequence[Namespace]) -> None:
        """Kill all processes in the network namespaces, including sshds in namespaces whose names are deleted."""
        while pids := [*self._pids(present), *self._stray_sshds()]:
            subprocess.run(["kill", "-KILL", *pids], check=False, capture_output=True)
            time.sleep(0.05)

    def _pids(self, present: Sequence[Namespace]) -> list[str]:
        listings = [self._run(["ip", "netns", "pids", namespace.name]) for namespace in present]
        return "".join(listings).split()

    def _stray_sshds(self) -> list[str]:
        """Return the ids of this testbed's sshds and of all processes in the same network namespaces.

        The search finds an sshd by the path of its configuration file.
        """
        files = [str(self.state / f"{namespace.role}.sshd_config") for namespace in self.namespaces]
        processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
        # sshd changes its process title, so the search covers the original and the changed title.
        sshds = [
            process
            for process in processes
            if (title := _title(process)).startswith(("sshd:", "/usr/sbin/sshd"))
            and any(file in title for file in files)
        ]
        networks = {_network(process) for process in sshds} - {_network(Path("/proc/self")), None}
        inside = [process for process in processes if _network(process) in networks]
        return [process.name for process in (*sshds, *inside)]

    # ---- commands ----

    def _namespace(self, role: str) -> Namespace:
        return next(namespace for namespace in self.namespaces if namespace.role == role)

    def _ip_root(self, arguments: str) -> None:
        self._run(["ip", *arguments.split()])

    def _ip(self, role: str, arguments: str) -> None:
        self._run(["ip", "-n", self._namespace(role).name, *arguments.split()])

    def _in_namespace(self, role: str, argv: Sequence[str]) -> None:
        self._run(["ip", "netns", "exec", self._namespace(role).name, *argv])

    def _group_name(self, role: str) -> str:
        return f"sipsched-{self.kind}-{role}"

    def _in_group(self, role: str, argv: Sequence[str]) -> None:
        """Run a command in a control group, so that the removal of the testbed finds all processes of the command."""
        name, mount = self._group_name(role), str(places.CGROUP_MOUNT)
        group = self._run(["sh", "-c", groups.FIND, "sh", name, mount]).strip()
        self._run(["sh", "-c", groups.START, "sh", group, "", *argv])

    def _run(self, argv: Sequence[str]) -> str:
        return run_here(argv, f"testbed {self.kind}")


def _title(process: Path) -> str:
    # The file is missing if the process has ended during the search.
    with suppress(OSError):
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def _network(process: Path) -> str | None:
    with suppress(OSError):
        return str((process / "ns/net").readlink())
    return None


def link_lines(role: str, namespace: str, ip: str = "ip") -> list[str]:
    """Return shell commands that connect the namespace of UAC, UAS or front end to the proxy by a veth link.

    Parameters
    ----------
    namespace
        Name of the namespace.
    ip
        The command that runs `ip` in the SPS's namespace.
    """
    return [
        f"{ip} link add {role}0 type veth peer name sip0 netns {namespace}",
        f"{ip} address add {LINK_NETS[role]}.1/30 dev {role}0",
        f"{ip} link set {role}0 up",
        *agent_lines(role, namespace),
    ]


def agent_lines(role: str, namespace: str) -> list[str]:
    """Return shell commands that set the address of the interface sip0 of a host, and the route to the proxy."""
    net = LINK_NETS[role]
    return [
        f"ip -n {namespace} address add {net}.2/30 dev sip0",
        f"ip -n {namespace} link set sip0 up",
        f"ip -n {namespace} route add {SPS_SIP_ADDRESS}/32 via {net}.1",
        # After a TCP connection, the kernel blocks the port for a minute (TIME_WAIT), unless tcp_tw_reuse is on.
        f"ip netns exec {namespace} sh -c 'echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse'",
    ]


def run_here(argv: Sequence[str], what: str) -> str:
    """Run a command on this machine, and return its output.

    Raises
    ------
    StableError
        The command failed. The message contains `what`, the command, and the last line of the command's output.
    """
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise StableError(f"{what}: {' '.join(argv)}: {said}")
    return done.stdout
