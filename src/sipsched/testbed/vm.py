"""The testbed `vm`: the SPS is a QEMU guest with a CFS kernel, the agents are namespaces of this machine.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──tap── 198.18.1.1 guest 198.18.2.1 ──tap── 198.18.2.2 uas
                           SIP on 198.18.0.1 (lo of the guest); the guest forwards nothing at the IP layer

and for SSH one veth an agent and one more tap to the guest. QEMU makes the taps on this machine; two of them
then move into the namespaces and go with QEMU.
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
"""Longer than the embedded testbed's: a boot takes 7 to 20 s under TCG."""
KVM_PATIENCE_S = 10.0
"""For the first boot with KVM; a second or two where it works."""
HUNG_S = 20.0
"""A guest whose sshd does not answer for so long hangs: its kernel is emulated, and may be busy."""
BOOT_PATIENCE_S = 120.0
EMULATED = "Emulated CPU (QEMU TCG): functional only, timings are not measurements"
NAMESPACES = (
    Namespace("uac", "sipsched-vm-uac", "198.18.254.2", "198.18.254.1"),
    Namespace("uas", "sipsched-vm-uas", "198.18.254.10", "198.18.254.9"),
)
QEMU = "qemu-system-x86_64"
COMM = "sipsched-vm"
"""What QEMU calls itself in /proc."""
GUEST_STATE = str(RUN_FOLDER)
READY = "sipsched-guest: ready"
CONSOLE_TAIL = 3


@dataclasses.dataclass(frozen=True)
class Link:
    """A network card of the guest and the tap at its other end."""

    name: str
    """In the guest."""
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
    """Two namespaces and a guest."""

    def __init__(self) -> None:
        super().__init__("vm", NAMESPACES, __name__, "fab vm.up")

    def check_machine(self, testbed: Testbed) -> None:
        """Refuse a machine that cannot run the guest.

        Raises
        ------
        StableError
            Names the first thing that is missing and what to do.
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
        """Build the image if there is none, then do what `ensure_up` does."""
        self.check_machine(testbed)
        # not under the machine's lock: it takes minutes
        ensure_image(_guest(testbed).kernel, say)
        self.ensure_up(testbed, idle_s, say)

    def is_up(self) -> bool:
        """Tell whether the namespaces, their sshds and the guest are there."""
        return super().is_up() and self._guest_runs()

    def _serves(self, testbed: Testbed) -> bool:
        # another file's guest, or one from before its probe or its packages changed, will not do; nor one that hangs
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
        """Label a testbed with what its guest runs on: timings under TCG are no measurements."""
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
        """Pack the guest's addresses and keys into a tar archive, which it unpacks before anything else."""
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
        """Boot with KVM where it works, else with TCG; the accelerator's name comes back.

        A /dev/kvm proves nothing: some machines offer one that dies on, or crawls through, a stock kernel.
        """
        # in /run: asked again after the machine's next boot
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
        """Wait until the guest's sshd answers.

        Raises
        ------
        TransientError
            It does not, or the guest ended; with the end of its console.
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
        """End QEMU and wait for it; its taps go with it."""
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
    """Write the shell script with which the guest sets up its network.

    Parameters
    ----------
    sps_cpus
        CPUs to which receive steering points, as in the embedded testbed.
    """
    mask = sum(1 << cpu for cpu in sps_cpus)
    lines = [
        "set -e",
        "ip link set lo up",
        f"ip address add {SPS_SIP_ADDRESS}/32 dev lo",
        "echo 0 > /proc/sys/net/ipv4/ip_forward",
        # drivers find their cards while this script runs
        "find_link() {",
        "    for i in $(seq 250); do",
        '        path=$(grep -l "$1" /sys/class/net/*/address) && break',
        "        sleep 0.02",
        "    done",
        '    basename "$(dirname "$path")"',
        "}",
        # packets sent before the kernel has seen the carrier are lost
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
    """Build the command line of the guest; it goes to the background once its devices are there."""
    held = ["taskset", "--cpu-list", ",".join(map(str, guest.host_cpus))]
    # Debian's cloud kernels have NVMe built in; one made with the kernel's kvm_guest.config, virtio
    nvme = guest.kernel in KERNEL_SUITES
    root, seed = ("/dev/nvme0n1", "/dev/nvme1n1") if nvme else ("/dev/vda", "/dev/vdb")
    device = "nvme" if nvme else "virtio-blk-pci"
    kernel_line = [
        # what the kernel does not know becomes a variable of process 1: seed
        *(f"root={root}", "ro", "init=/sbin/sipsched-init", f"seed={seed}"),
        *("console=ttyS0", "quiet"),
        # the papers' kernels had no mitigations; a panic ends QEMU
        *("mitigations=off", "panic=-1"),
    ]
    if accelerator == "tcg":
        # the kernel distrusts the TSCs of several emulated CPUs and falls back to HPET, a slow clock
        kernel_line.append("tsc=reliable")
    # with a thread each, emulated CPUs that spin with interrupts off (stop_machine) keep QEMU's lock from the one that
    # they wait for, for ever; one thread takes them in turn and needs no longer
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
