"""The testbed `vm`: the SPS is a QEMU guest with a CFS kernel, and the agents are namespaces of this machine.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──tap── 198.18.1.1 guest 198.18.2.1 ──tap── 198.18.2.2 uas
                           SIP on 198.18.0.1 (lo of the guest); the guest forwards nothing at the IP layer

SSH uses one veth link per agent, and another tap device to the guest. QEMU creates the taps on this machine. Two of the
taps then move into the namespaces. All taps disappear with QEMU.
"""

import dataclasses
import io
import os
import signal
import socket
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sipsched.errors import StableError, TransientError
from sipsched.testbed.guest_image import KERNEL_SUITES, GuestImage, ensure_image, image_name
from sipsched.testbed.inventory import Guest, Testbed
from sipsched.testbed.namespaces import (
    AGENT_NETS,
    SPS_SIP_ADDRESS,
    SSHD_CONFIG,
    STATE_ROOT,
    STOP_GRACE_S,
    MachineTestbed,
    Namespace,
)
from sipsched.testbed.places import RUN_FOLDER

IDLE_S = 120.0
"""Seconds after which the guardian removes an idle guest. Without KVM, a boot takes 7 to 20 s."""
KVM_PATIENCE_S = 10.0
"""Seconds for the first boot with KVM. If KVM works, this boot takes a second or two."""
HUNG_S = 20.0
"""Seconds without an answer of sshd after which a guest is considered hung. An emulated kernel can be slow."""
BOOT_PATIENCE_S = 120.0
EMULATED = "Emulated CPU (QEMU TCG): functional only, timings are not measurements"
NAMESPACES = (
    Namespace("uac", "sipsched-vm-uac", "198.18.254.2", "198.18.254.1"),
    Namespace("uas", "sipsched-vm-uas", "198.18.254.10", "198.18.254.9"),
)
QEMU = "qemu-system-x86_64"
COMM = "sipsched-vm"
"""Name of the QEMU process in /proc."""
GUEST_STATE = str(RUN_FOLDER)
READY = "sipsched-guest: ready"
CONSOLE_TAIL = 3


@dataclasses.dataclass(frozen=True)
class Link:
    """A network interface of the guest, and the tap device at the other end of its link."""

    name: str
    """Name of the interface in the guest."""
    tap: str
    mac: str
    address: str


MANAGEMENT = Link("ssh0", "sipsched-vm-sps", "52:54:00:73:69:01", "198.18.254.6/30")
MANAGEMENT_GATEWAY = "198.18.254.5/30"
AGENT_LINKS = {
    role: Link(f"{role}0", f"sipsched-tap{role}", f"52:54:00:73:69:1{i}", f"{net}.1/30")
    for i, (role, net) in enumerate(AGENT_NETS.items())
}
LINKS = (MANAGEMENT, *AGENT_LINKS.values())


class GuestTestbed(MachineTestbed):
    """The testbed that consists of two network namespaces and a guest."""

    def __init__(self) -> None:
        super().__init__("vm", NAMESPACES, __name__, "fab vm.up")

    def check_machine(self, testbed: Testbed) -> None:
        """Raise an error if this machine cannot run the guest.

        Raises
        ------
        StableError
            The message names the first missing part and the remedy.
        """
        self.check_platform()
        tools = ("ip", "sshd", "ssh-keygen", "taskset", "mmdebstrap", "mke2fs", QEMU)
        self.check_programs(tools)
        self.check_cpus(testbed, (testbed.uac, testbed.uas))

    def bring_up(
        self,
        testbed: Testbed,
        idle_s: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Build the image if necessary, and create the testbed by `ensure_up`."""
        self.check_machine(testbed)
        # The image is built before the lock of the machine is taken, because a build takes minutes.
        ensure_image(_guest(testbed).kernel, say)
        self.ensure_up(testbed, idle_s, say)

    def is_up(self) -> bool:
        """Return whether the namespaces, their sshds and the guest exist."""
        return super().is_up() and self._guest_runs()

    def _serves(self, testbed: Testbed) -> bool:
        # A guest is booted again if it hangs, or if its testbed file, programs or packages have changed.
        booted = self.is_up() and self._booted_file.read_text() == _identity(_guest(testbed))
        return booted and self._answers()

    def _answers(self) -> bool:
        deadline = time.monotonic() + HUNG_S
        while not self._sshd_answers():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def as_booted(self, testbed: Testbed) -> Testbed:
        """Return the testbed with its guest's accelerator. Without KVM, the fidelity becomes an emulated machine."""
        accelerator = self._accelerator_file.read_text().strip()
        fidelity = EMULATED if accelerator == "tcg" else testbed.fidelity
        return dataclasses.replace(testbed, accelerator=accelerator, fidelity=fidelity)

    @property
    def _accelerator_file(self) -> Path:
        return self.state / "accelerator"

    @property
    def _booted_file(self) -> Path:
        return self.state / "booted"

    @property
    def _console(self) -> Path:
        return self.state / "console.log"

    @property
    def _pid_file(self) -> Path:
        return self.state / "qemu.pid"

    def _create(self, testbed: Testbed) -> None:
        guest = _guest(testbed)
        image = ensure_image(guest.kernel)
        addresses = [namespace.management for namespace in self.namespaces]
        self._make_keys([*addresses, MANAGEMENT.address.split("/")[0]])
        (self.state / "seed.tar").write_bytes(self._seed(testbed))
        self._create_namespaces()
        accelerator = self._boot(guest, image)
        self._accelerator_file.write_text(f"{accelerator}\n")
        self._booted_file.write_text(_identity(guest))
        self._start_sshds(testbed)

    def _seed(self, testbed: Testbed) -> bytes:
        """Return a tar archive with the addresses and keys of the guest. The guest unpacks it when it boots."""
        config = SSHD_CONFIG.format(
            address=MANAGEMENT.address.split("/")[0], state=GUEST_STATE, role="sps"
        )
        files = {
            "sshd_config": config,
            "network.sh": network_script(testbed.sps.cpus),
            **{
                name: (self.state / name).read_text()
                for name in ("host_key", "host_key.pub", "id_ed25519.pub")
            },
        }
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(f"{GUEST_STATE.lstrip('/')}/{name}")
                content = text.encode()
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    def _boot(self, guest: Guest, image: GuestImage) -> str:
        """Boot the guest with KVM if KVM works, otherwise with TCG. Return the name of the accelerator.

        The file /dev/kvm does not prove that KVM works: on some machines, a standard kernel crashes or is very slow
        with KVM.
        """
        # The result is stored in /run, so KVM is tried again after the next boot of the machine.
        told = STATE_ROOT / "kvm-works"
        if guest.accelerator != "tcg" and not (
            guest.accelerator == "auto" and told.exists() and told.read_text() != "yes"
        ):
            known_good = told.exists() and told.read_text() == "yes"
            try:
                if not os.access("/dev/kvm", os.R_OK | os.W_OK):
                    raise StableError("this machine has no /dev/kvm")
                self._start_guest(guest, image, "kvm")
                self._wait_for_guest(BOOT_PATIENCE_S if known_good else KVM_PATIENCE_S)
            except (StableError, TransientError) as error:
                self._end_guest()
                if guest.accelerator == "kvm":
                    raise
                told.write_text(f"{error}\n")
            else:
                told.write_text("yes")
                return "kvm"
        self._start_guest(guest, image, "tcg")
        self._wait_for_guest(BOOT_PATIENCE_S)
        return "tcg"

    def _start_guest(self, guest: Guest, image: GuestImage, accelerator: str) -> None:
        self._console.unlink(missing_ok=True)
        self._in_group("sps", qemu_command(guest, image, self.state, accelerator))
        self._ip_root(f"address add {MANAGEMENT_GATEWAY} dev {MANAGEMENT.tap}")
        self._ip_root(f"link set {MANAGEMENT.tap} up")
        for role, link in AGENT_LINKS.items():
            self._ip_root(f"link set {link.tap} netns {self._namespace(role).name} name sip0")
            self._address_agent(role)

    def _wait_for_guest(self, patience_s: float) -> None:
        """Wait until the sshd of the guest answers.

        Raises
        ------
        TransientError
            The guest ended, or its sshd did not answer in time. The message contains the end of the guest's console
            output.
        """
        deadline = time.monotonic() + patience_s
        while not (READY in self._console_text() and self._sshd_answers()):
            if not self._guest_runs():
                raise TransientError(f"testbed vm: the guest ended while booting: {self._tail()}")
            if time.monotonic() > deadline:
                raise TransientError(
                    f"testbed vm: the guest did not come up in {patience_s:g} s: {self._tail()}"
                )
            time.sleep(0.1)

    def _sshd_answers(self) -> bool:
        address = MANAGEMENT.address.split("/")[0]
        try:
            with socket.create_connection((address, 22), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _console_text(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def _tail(self) -> str:
        lines = [line.strip() for line in self._console_text().splitlines() if line.strip()]
        return " | ".join(lines[-CONSOLE_TAIL:]) or "its console is empty"

    def _guest_runs(self) -> bool:
        return self._process_runs(self._pid_file, COMM)

    def _end_guest(self) -> None:
        """Stop QEMU and wait for its end. The kernel then removes QEMU's taps."""
        if not self._guest_runs():
            return
        pid = int(self._pid_file.read_text())
        deadline = time.monotonic() + STOP_GRACE_S
        while _lives(pid) or Path("/sys/class/net", MANAGEMENT.tap).exists():
            late = time.monotonic() > deadline
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(0.05)
        self._pid_file.unlink(missing_ok=True)

    def _remove(self) -> None:
        self._end_guest()
        super()._remove()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


def _guest(testbed: Testbed) -> Guest:
    if testbed.guest is None:
        raise StableError(f"testbed {testbed.name} is of kind {testbed.kind}, not vm: no guest")
    return testbed.guest


def _identity(guest: Guest) -> str:
    return f"{guest} on {image_name(guest.kernel)}"


def network_script(sps_cpus: Sequence[int]) -> str:
    """Return the shell script that sets up the network of the guest.

    Parameters
    ----------
    sps_cpus
        CPUs that process received packets, as in the testbed of network namespaces.
    """
    mask = sum(1 << cpu for cpu in sps_cpus)
    lines = [
        "set -e",
        "ip link set lo up",
        f"ip address add {SPS_SIP_ADDRESS}/32 dev lo",
        "echo 0 > /proc/sys/net/ipv4/ip_forward",
        # Network interfaces may appear while this script runs, because drivers find the network cards late.
        "find_link() {",
        "    for i in $(seq 250); do",
        '        path=$(grep -l "$1" /sys/class/net/*/address) && break',
        "        sleep 0.02",
        "    done",
        '    basename "$(dirname "$path")"',
        "}",
        # Packets are lost until the kernel of the guest has seen the carrier.
        "wait_for_carrier() {",
        "    for i in $(seq 250); do",
        "        grep -q up /sys/class/net/$1/operstate && break",
        "        sleep 0.02",
        "    done",
        "}",
    ]
    for link in LINKS:
        lines += [
            f'ip link set "$(find_link {link.mac})" name {link.name}',
            f"ip address add {link.address} dev {link.name}",
            f"ip link set {link.name} up",
        ]
    for link in AGENT_LINKS.values():
        lines.append(f"echo {mask:x} > /sys/class/net/{link.name}/queues/rx-0/rps_cpus")
        lines.append(f"wait_for_carrier {link.name}")
    return "".join(f"{line}\n" for line in lines)


def qemu_command(guest: Guest, image: GuestImage, state: Path, accelerator: str) -> list[str]:
    """Return the command line of the guest. QEMU continues in the background when its devices exist."""
    held = ["taskset", "--cpu-list", ",".join(map(str, guest.host_cpus))]
    # Debian's cloud kernels have a built-in NVMe driver. Kernels with kvm_guest.config have a built-in virtio driver.
    nvme = guest.kernel in KERNEL_SUITES
    root, seed = ("/dev/nvme0n1", "/dev/nvme1n1") if nvme else ("/dev/vda", "/dev/vdb")
    device = "nvme" if nvme else "virtio-blk-pci"
    kernel_line = [
        # The kernel passes unknown parameters, such as seed, to process 1 as environment variables.
        *(f"root={root}", "ro", "init=/sbin/sipsched-init", f"seed={seed}"),
        *("console=ttyS0", "quiet"),
        # The kernels of the papers had no mitigations. panic=-1 stops QEMU after a kernel panic.
        *("mitigations=off", "panic=-1"),
    ]
    if accelerator == "tcg":
        # Without this option, the kernel rejects the TSCs (time stamp counters) of emulated CPUs and uses the slow
        # clock HPET.
        kernel_line.append("tsc=reliable")
    # All emulated CPUs share one thread. With a thread per CPU, CPUs that spin with interrupts off (stop_machine) can
    # hold QEMU's lock for ever. The CPU for which they wait then never gets the lock. One thread is as fast.
    cpu, options = ("host", "kvm") if accelerator == "kvm" else ("max", "tcg,thread=single")
    argv = [
        *(held if guest.host_cpus else []),
        *(QEMU, "-name", f"{COMM},process={COMM}", "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-machine", "q35", "-accel", options, "-cpu", cpu, "-m", str(guest.memory_mib)),
        "-smp",
        f"{guest.cpus},sockets={guest.sockets},cores={guest.cores_per_socket},threads=1",
        *("-kernel", str(image.kernel), "-append", " ".join(kernel_line)),
        *_disk("root", device, image.root, "snapshot=on,cache=unsafe"),
        *_disk("seed", device, state / "seed.tar", "readonly=on"),
        *("-display", "none", "-serial", f"file:{state / 'console.log'}"),
        *("-daemonize", "-pidfile", str(state / "qemu.pid")),
    ]
    for link in LINKS:
        argv += [
            *("-netdev", f"tap,id={link.name},ifname={link.tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev={link.name},mac={link.mac},romfile="),
        ]
    return argv


def _disk(name: str, device: str, path: Path, options: str) -> list[str]:
    return [
        *("-drive", f"file={path},format=raw,if=none,id={name},{options}"),
        *("-device", f"{device},drive={name},serial={name}"),
    ]


_VM = GuestTestbed()
STATE = _VM.state
check_platform = _VM.check_platform
check_machine = _VM.check_machine
bring_up = _VM.bring_up
take_down = _VM.take_down
is_up = _VM.is_up
as_booted = _VM.as_booted
guard = _VM.guard
