"""The base class of testbeds (hosts for measurements) with a QEMU guest. The class boots and stops the guest."""

import io
import os
import signal
import socket
import tarfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sipsched.errors import TransientError
from sipsched.testbed.guest_image import KERNEL_SUITES, GuestImage, ensure_image, image_name
from sipsched.testbed.inventory import GuestMachine, HostSpec, Testbed
from sipsched.testbed.namespaces import (
    SPS_SIP_ADDRESS,
    STATE_ROOT,
    STOP_GRACE_S,
    MachineTestbed,
    Namespace,
)
from sipsched.testbed.places import RUN_FOLDER

HUNG_S = 20.0
"""Seconds without an answer from sshd after which a guest counts as hung. An emulated guest answers slowly."""
BOOT_PATIENCE_S = 120.0
QEMU = "qemu-system-x86_64"
PLAIN_MACHINE = ("-nodefaults", "-no-user-config", "-no-reboot", "-machine", "q35")
GUEST_STATE = str(RUN_FOLDER)
READY = "sipsched-guest: ready"
CONSOLE_TAIL = 3
KERNEL_OPTIONS = (
    *("console=ttyS0", "quiet"),
    # Mitigations of CPU vulnerabilities are off, because the kernels of the papers had no mitigations.
    # The parameter panic=-1 makes the guest reboot after a kernel panic. QEMU runs with -no-reboot, so QEMU stops
    # instead of rebooting the guest.
    *("mitigations=off", "panic=-1"),
    # With norandmaps, a program has the same addresses at each start, so QEMU can reuse its translation of the program.
    "norandmaps",
)
NETWORK_SCRIPT = (
    "set -e",
    "ip link set lo up",
    f"ip address add {SPS_SIP_ADDRESS}/32 dev lo",
    "echo 0 > /proc/sys/net/ipv4/ip_forward",
    # The script waits for network interfaces, because drivers may find the network cards after the script starts.
    "find_link() {",
    "    for i in $(seq 250); do",
    '        path=$(grep -l "$1" /sys/class/net/*/address) && break',
    "        sleep 0.02",
    "    done",
    '    basename "$(dirname "$path")"',
    "}",
    # The script waits for the carrier, because the guest loses packets on a link without a carrier.
    "wait_for_carrier() {",
    "    for i in $(seq 250); do",
    "        grep -q up /sys/class/net/$1/operstate && break",
    "        sleep 0.02",
    "    done",
    "}",
)
"""First lines of the shell script that sets up a guest's network."""


class GuestTestbed(MachineTestbed):
    """A testbed (hosts for measurements) that contains a QEMU virtual machine (guest) on this machine.

    Parameters
    ----------
    kind, namespaces, module, command_up, root
        See `MachineTestbed`.
    comm
        Name of the QEMU process in /proc.
    """

    def __init__(
        self,
        kind: str,
        namespaces: Sequence[Namespace],
        module: str,
        command_up: str,
        comm: str,
        root: Path = STATE_ROOT,
    ) -> None:
        super().__init__(kind, namespaces, module, command_up, root)
        self.comm = comm

    @abstractmethod
    def _machine(self, testbed: Testbed) -> GuestMachine:
        """Return the guest described in the testbed's file. Raise a StableError for a testbed without such a guest."""

    @abstractmethod
    def _inside(self, testbed: Testbed) -> Sequence[HostSpec]:
        """Return the hosts of the testbed that run inside the guest."""

    def _clock(self) -> Callable[[], float]:
        """Return a function that returns the guest's time in seconds. Time limits use this clock."""
        return time.monotonic

    def bring_up(
        self,
        testbed: Testbed,
        idle_s: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Build the guest's disk image if necessary, and create the testbed with its network and guest."""
        self.check_machine(testbed)
        # A build takes minutes. So this method builds the image before it takes the lock, to block no other user.
        machine = self._machine(testbed)
        ensure_image(machine.kernel, say, copies=machine.copies)
        self.ensure_up(testbed, idle_s, say)

    def is_up(self, testbed: Testbed) -> bool:
        """Return True if the network namespaces exist, the guest runs, and an sshd runs in each namespace."""
        return super().is_up(testbed) and self._guest_runs()

    def _identity(self, testbed: Testbed) -> str:
        machine = self._machine(testbed)
        return f"{machine!r} with {self._inside(testbed)} on {image_name(machine.kernel, machine.copies)}"

    def _serves(self, testbed: Testbed) -> bool:
        # The guest boots again if this method returns False: if it hangs, or if its testbed file, programs or packages
        # have changed.
        booted = self.is_up(testbed) and self._booted_file.exists()
        same = booted and self._booted_file.read_text() == self._identity(testbed)
        return same and self._answers(testbed)

    def _answers(self, testbed: Testbed) -> bool:
        now = self._clock()
        with suppress(TransientError):
            deadline = now() + HUNG_S
            while not self._sshds_answer(testbed):
                if now() > deadline:
                    return False
                time.sleep(0.1)
            return True
        return False

    @property
    def _booted_file(self) -> Path:
        return self.state / "booted"

    @property
    def _console(self) -> Path:
        return self.state / "console.log"

    @property
    def _pid_file(self) -> Path:
        return self.state / "qemu.pid"

    def _write_seed(self, files: Mapping[str, str]) -> None:
        """Write SSH keys and the given files to a tar archive, which the guest unpacks during its boot."""
        keys = ("host_key", "host_key.pub", "id_ed25519.pub")
        whole = {**files, **{name: (self.state / name).read_text() for name in keys}}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, text in whole.items():
                entry = tarfile.TarInfo(f"{GUEST_STATE.lstrip('/')}/{name}")
                content = text.encode()
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
        (self.state / "seed.tar").write_bytes(buffer.getvalue())

    def _wait_for_guest(self, testbed: Testbed, patience_s: float) -> None:
        """Wait until the sshds of the guest answer.

        Raises
        ------
        TransientError
            The guest ended, or an sshd did not answer in time. The message contains the end of the console's output.
        """
        now = self._clock()
        deadline = now() + patience_s
        while not (READY in self._console_text() and self._sshds_answer(testbed)):
            if not self._guest_runs():
                raise TransientError(
                    f"testbed {self.kind}: the guest ended while booting: {self._tail()}"
                )
            if now() > deadline:
                raise TransientError(
                    f"testbed {self.kind}: the guest did not come up in {patience_s:g} s: {self._tail()}"
                )
            time.sleep(0.1)

    def _sshds_answer(self, testbed: Testbed) -> bool:
        return all(_answers(spec.address, spec.port) for spec in self._inside(testbed))

    def _console_text(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def _tail(self) -> str:
        lines = [line.strip() for line in self._console_text().splitlines() if line.strip()]
        return " | ".join(lines[-CONSOLE_TAIL:]) or "its console is empty"

    def _guest_runs(self) -> bool:
        return self._process_runs(self._pid_file, self.comm)

    def _end_guest(self) -> None:
        """Stop QEMU, and wait until QEMU has ended."""
        if not self._guest_runs():
            return
        pid = int(self._pid_file.read_text())
        deadline = time.monotonic() + STOP_GRACE_S
        while _lives(pid) or not self._is_gone():
            late = time.monotonic() > deadline
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(0.05)
        self._pid_file.unlink(missing_ok=True)

    def _is_gone(self) -> bool:
        """Return True if all devices that QEMU created on this machine, such as tap devices, have disappeared."""
        return True

    def _remove(self) -> None:
        self._end_guest()
        super()._remove()


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _lives(pid: int) -> bool:
    process = Path("/proc", str(pid))
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        # The first thread of a process can end before the other threads, which then still occupy the process's ports.
        return state not in ("Z", "X") or len(list((process / "task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def guest_options(
    machine: GuestMachine, image: GuestImage, state: Path, kernel_options: Sequence[str]
) -> list[str]:
    """Return QEMU's command-line options for the memory, CPUs, kernel, disks and console of a guest.

    With these options, QEMU creates its devices and then runs in the background.
    """
    # The kernel needs a built-in disk driver: NVMe in Debian's cloud kernels, virtio in kernels with kvm_guest.config.
    nvme = machine.kernel in KERNEL_SUITES
    root, seed = ("/dev/nvme0n1", "/dev/nvme1n1") if nvme else ("/dev/vda", "/dev/vdb")
    device = "nvme" if nvme else "virtio-blk-pci"
    # The kernel passes parameters that it does not know, such as seed, to process 1 as environment variables.
    disks = (f"root={root}", "ro", "init=/sbin/sipsched-init", f"seed={seed}")
    return [
        *(*PLAIN_MACHINE, "-m", str(machine.memory_mib), "-smp"),
        f"{machine.cpus},sockets={machine.sockets},cores={machine.cores_per_socket},threads=1",
        *("-kernel", str(image.kernel), "-append", " ".join((*disks, *kernel_options))),
        *_disk("root", device, image.root, "snapshot=on,cache=unsafe"),
        *_disk("seed", device, state / "seed.tar", "readonly=on"),
        *("-display", "none", "-serial", f"file:{state / 'console.log'}"),
        *("-daemonize", "-pidfile", str(state / "qemu.pid")),
    ]


def _disk(name: str, device: str, path: Path, options: str) -> list[str]:
    return [
        *("-drive", f"file={path},format=raw,if=none,id={name},{options}"),
        *("-device", f"{device},drive={name},serial={name}"),
    ]
