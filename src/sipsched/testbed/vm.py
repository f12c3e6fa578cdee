"""The testbed `vm`: the proxy runs in a QEMU guest with a CFS kernel; UAC and UAS are namespaces of this machine.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──tap── 198.18.1.1 guest 198.18.2.1 ──tap── 198.18.2.2 uas
                           SIP on 198.18.0.1 (lo of the guest); the guest forwards nothing at the IP layer

SSH uses one veth link for UAC, one veth link for UAS, and another tap device to the guest. QEMU creates the tap devices
on this machine, and two of them then move into the namespaces. All tap devices disappear when QEMU ends.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sipsched.errors import StableError, TransientError
from sipsched.testbed.guest import (
    BOOT_PATIENCE_S,
    GUEST_STATE,
    KERNEL_OPTIONS,
    NETWORK_SCRIPT,
    QEMU,
    GuestTestbed,
    guest_options,
)
from sipsched.testbed.guest_image import GuestImage, ensure_image
from sipsched.testbed.inventory import Guest, HostSpec, Testbed
from sipsched.testbed.namespaces import (
    AGENT_NETS,
    SSHD_CONFIG,
    STATE_ROOT,
    MachineTestbed,
    Namespace,
)

IDLE_S = 120.0
"""Seconds without use after which a background process removes the guest. A boot without KVM takes up to 20 s."""
KVM_PATIENCE_S = 10.0
"""Time limit in seconds for the first boot with KVM. With a working KVM, a boot takes only one or two seconds."""
EMULATED = "Emulated CPU (QEMU TCG): functional only, timings are not measurements"
NAMESPACES = (
    Namespace("uac", "sipsched-vm-uac", "198.18.254.2", "198.18.254.1"),
    Namespace("uas", "sipsched-vm-uas", "198.18.254.10", "198.18.254.9"),
)
COMM = "sipsched-vm"
"""Name of the QEMU process in /proc."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A network interface of the guest, and this machine's tap device to which QEMU connects the interface."""

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


class VmTestbed(GuestTestbed):
    """The testbed `vm`, which consists of two network namespaces and a virtual machine."""

    programs = (*MachineTestbed.programs, "mmdebstrap", "mke2fs", QEMU)

    def __init__(self) -> None:
        super().__init__("vm", NAMESPACES, __name__, "fab vm.up", COMM)

    def _machine(self, testbed: Testbed) -> Guest:
        if testbed.guest is None:
            raise StableError(f"testbed {testbed.name} is of kind {testbed.kind}, not vm: no guest")
        return testbed.guest

    def _inside(self, testbed: Testbed) -> Sequence[HostSpec]:
        return (testbed.sps,)

    def as_booted(self, testbed: Testbed) -> Testbed:
        """Return a copy of the testbed that states the accelerator (KVM or TCG) of the running guest."""
        accelerator = self._accelerator_file.read_text().strip()
        fidelity = EMULATED if accelerator == "tcg" else testbed.fidelity
        return dataclasses.replace(testbed, accelerator=accelerator, fidelity=fidelity)

    @property
    def _accelerator_file(self) -> Path:
        return self.state / "accelerator"

    def _create(self, testbed: Testbed, say: Callable[[str], None]) -> None:
        guest = self._machine(testbed)
        image = ensure_image(guest.kernel, say, copies=guest.copies)
        addresses = [namespace.management for namespace in self.namespaces]
        management = MANAGEMENT.address.split("/")[0]
        self._make_keys([*addresses, management])
        config = SSHD_CONFIG.format(address=management, state=GUEST_STATE, role="sps")
        script = network_script(testbed.sps.cpus)
        self._write_seed({"sshd_config": config, "network.sh": script})
        self._create_namespaces(self.namespaces)
        accelerator = self._boot(testbed, guest, image)
        self._accelerator_file.write_text(f"{accelerator}\n")
        self._booted_file.write_text(self._identity(testbed))
        self._start_sshds(testbed, self.namespaces)

    def _boot(self, testbed: Testbed, guest: Guest, image: GuestImage) -> str:
        """Boot the guest with KVM if KVM works, otherwise with TCG. Return the name of the accelerator.

        The file /dev/kvm does not prove that KVM works: on some machines, a standard kernel crashes or is very slow
        with KVM.
        """
        # The file stores whether KVM works. A reboot removes the file from /run, so KVM is tried again after a reboot.
        told = STATE_ROOT / "kvm-works"
        if guest.accelerator != "tcg" and not (
            guest.accelerator == "auto" and told.exists() and told.read_text() != "yes"
        ):
            known_good = told.exists() and told.read_text() == "yes"
            try:
                if not os.access("/dev/kvm", os.R_OK | os.W_OK):
                    raise StableError("this machine has no /dev/kvm")
                self._start_guest(guest, image, "kvm")
                self._wait_for_guest(testbed, BOOT_PATIENCE_S if known_good else KVM_PATIENCE_S)
            except (StableError, TransientError) as error:
                self._end_guest()
                if guest.accelerator == "kvm":
                    raise
                told.write_text(f"{error}\n")
            else:
                told.write_text("yes")
                return "kvm"
        self._start_guest(guest, image, "tcg")
        self._wait_for_guest(testbed, BOOT_PATIENCE_S)
        return "tcg"

    def _start_guest(self, guest: Guest, image: GuestImage, accelerator: str) -> None:
        self._console.unlink(missing_ok=True)
        self._in_group("sps", qemu_command(guest, image, self.state, accelerator))
        self._ip_root(f"address add {MANAGEMENT_GATEWAY} dev {MANAGEMENT.tap}")
        self._ip_root(f"link set {MANAGEMENT.tap} up")
        for role, link in AGENT_LINKS.items():
            self._ip_root(f"link set {link.tap} netns {self._namespace(role).name} name sip0")
            self._address_agent(role)

    def _is_gone(self) -> bool:
        return not Path("/sys/class/net", MANAGEMENT.tap).exists()


def network_script(sps_cpus: Sequence[int]) -> str:
    """Return the shell script that sets up the network of the guest.

    Parameters
    ----------
    sps_cpus
        The proxy's CPUs. The kernel steers the receive work of both links to these CPUs (RPS).
    """
    mask = sum(1 << cpu for cpu in sps_cpus)
    lines = list(NETWORK_SCRIPT)
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
    """Return the QEMU command line that starts the guest. QEMU creates its devices, and then runs in the background."""
    held = ["taskset", "--cpu-list", ",".join(map(str, guest.host_cpus))]
    # Without the option tsc=reliable, the kernel distrusts the time stamp counter (TSC) of an emulated CPU, and uses
    # the slow clock HPET instead.
    clock = ("tsc=reliable",) if accelerator == "tcg" else ()
    # All emulated CPUs share one QEMU thread, because separate threads can deadlock:
    # CPUs that spin with interrupts off (stop_machine) hold QEMU's lock, and wait for a CPU that never gets this lock.
    cpu, options = ("host", "kvm") if accelerator == "kvm" else ("max", "tcg,thread=single")
    argv = [
        *(held if guest.host_cpus else []),
        *(QEMU, "-name", f"{COMM},process={COMM}", "-accel", options, "-cpu", cpu),
        *guest_options(guest, image, state, (*KERNEL_OPTIONS, *clock)),
    ]
    for link in LINKS:
        argv += [
            *("-netdev", f"tap,id={link.name},ifname={link.tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev={link.name},mac={link.mac},romfile="),
        ]
    return argv


_VM = VmTestbed()
STATE = _VM.state
bring_up = _VM.bring_up
take_down = _VM.take_down
is_up = _VM.is_up
as_booted = _VM.as_booted
guard = _VM.guard
