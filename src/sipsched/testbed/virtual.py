"""The testbed `virtual`: three network namespaces in one QEMU guest, whose clock counts CPU instructions.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──veth── 198.18.1.1 sps 198.18.2.1 ──veth── 198.18.2.2 uas
                            SIP on 198.18.0.1 (lo of the guest); the guest forwards nothing at the IP layer

The SPS is the guest's initial network namespace. Each host has a network card for SSH. QEMU forwards three ports of
this machine's loopback interface to these cards. The guest cannot reach any other network.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from sipsched.errors import StableError
from sipsched.testbed.guest import (
    BOOT_PATIENCE_S,
    GUEST_STATE,
    KERNEL_OPTIONS,
    NETWORK_SCRIPT,
    QEMU,
    GuestTestbed,
    guest_options,
)
from sipsched.testbed.guest_image import IMAGES, GuestImage, ensure_image, image_name
from sipsched.testbed.inventory import HostSpec, Testbed, VirtualGuest
from sipsched.testbed.namespaces import AGENT_NETS, SSHD_CONFIG, link_lines
from sipsched.testbed.patience import Patience
from sipsched.testbed.virtual_clock import (
    CLOCK_OPTIONS,
    STANDSTILL_S,
    StandstillCheck,
    built,
    ensure_tested,
    qemu_command,
    qemu_version,
)

IDLE_S = 300.0
"""Seconds without use after which a background process (the guardian) removes the guest."""
IDLE_RATE = 1.0
"""Virtual seconds per real second while all cores are halted. At a higher rate, waits for SSH and disks time out."""
ROOT = Path("/run/sipsched-virtual")
"""Folder of this testbed's lock and state. No common lock is needed, as other testbeds cannot disturb virtual time."""
COMM = "sipsched-virt"
"""Name of the QEMU process in /proc."""
GUEST_ADDRESS = "10.0.2.15"
"""Address of each network card for SSH, to which QEMU forwards connections."""
RECEIVE_BUFFER_BYTES = 4 << 20
"""Largest receive buffer that the guest's kernel allows. The kernel's default is too small for some SUTs."""
MACS = {role: f"52:54:00:73:69:2{i}" for i, role in enumerate(("sps", *AGENT_NETS))}


class VirtualTestbed(GuestTestbed):
    """The testbed `virtual`, which consists of three network namespaces inside a virtual machine."""

    root_for = "the guest's image"
    programs = ("ssh-keygen", "mmdebstrap", "mke2fs", "make", "gcc", QEMU)

    def __init__(self) -> None:
        super().__init__("virtual", (), __name__, "fab virtual.up", COMM, ROOT)

    def check_machine(self, testbed: Testbed) -> None:
        """Raise an error if this machine cannot create the testbed, or if the version of QEMU is wrong."""
        super().check_machine(testbed)
        qemu_version()

    def patience(self) -> Patience:
        """Return the guest's virtual clock, which limits how long sipsched waits for the guest's hosts.

        If the virtual clock has not advanced for a long time, reading the clock raises a LostError.
        """
        return Patience(self._clock(), 2 * STANDSTILL_S)

    def _clock(self) -> Callable[[], float]:
        return StandstillCheck(self.state).now

    def _machine(self, testbed: Testbed) -> VirtualGuest:
        if testbed.virtual is None:
            raise StableError(
                f"testbed {testbed.name} is of kind {testbed.kind}, not virtual: no virtual clock"
            )
        return testbed.virtual

    def _inside(self, testbed: Testbed) -> Sequence[HostSpec]:
        return testbed.hosts

    def _identity(self, testbed: Testbed) -> str:
        machine = self._machine(testbed)
        image = GuestImage(IMAGES / image_name(machine.kernel, machine.copies))
        command = self._command(testbed, image)
        return f"{' '.join(command)}\n{network_script(testbed)}"

    def _command(self, testbed: Testbed, image: GuestImage) -> list[str]:
        return guest_command(testbed, self._machine(testbed), image, built(), self.state)

    def _create(self, testbed: Testbed, say: Callable[[str], None]) -> None:
        machine = self._machine(testbed)
        image = ensure_image(machine.kernel, say, copies=machine.copies)
        ensure_tested(machine.clock, image.kernel, IMAGES, say)
        self._make_keys([f"[{spec.address}]:{spec.port}" for spec in testbed.hosts])
        configs = {
            f"{role}.sshd_config": SSHD_CONFIG.format(
                address=GUEST_ADDRESS, state=GUEST_STATE, role=role
            )
            for role in MACS
        }
        configs["sshd_config"] = configs.pop("sps.sshd_config")
        self._write_seed({**configs, "network.sh": network_script(testbed)})
        say(f"booting the guest of testbed {testbed.name} (about 25 s, longer on a busy machine)")
        self._run(self._command(testbed, image))
        self._wait_for_guest(testbed, BOOT_PATIENCE_S)
        self._booted_file.write_text(self._identity(testbed))


def network_script(testbed: Testbed) -> str:
    """Return a shell script that creates the guest's network namespaces and links, and starts sshds for UAC and UAS."""

    def card(role: str, ip: str) -> list[str]:
        return [f"{ip} address add {GUEST_ADDRESS}/24 dev ssh0", f"{ip} link set ssh0 up"]

    lines = [*NETWORK_SCRIPT, f'ip link set "$(find_link {MACS["sps"]})" name ssh0']
    lines += card("sps", "ip")
    for agent in (testbed.uac, testbed.uas):
        role, ip = agent.role, f"ip -n {agent.role}"
        lines += [
            # On Linux 3.2, `ip netns add` of Debian 12 makes no new namespace.
            f"mkdir -p /run/netns && touch /run/netns/{role} && unshare --net=/run/netns/{role} true",
            f"{ip} link set lo up",
            f'ip link set "$(find_link {MACS[role]})" netns {role} name ssh0',
            *card(role, ip),
            *link_lines(role, role),
            f"wait_for_carrier {role}0",
            f"ip netns exec {role} taskset --cpu-list {_listed(agent.helper_cpus)} "
            f"/usr/sbin/sshd -f {GUEST_STATE}/{role}.sshd_config",
        ]
    lines += [
        f"echo {RECEIVE_BUFFER_BYTES} > /proc/sys/net/core/rmem_max",
        # After this script, process 1 starts the sshd of the proxy's host. The sshd inherits the CPU affinity of
        # process 1.
        f"taskset --cpu-list --pid {_listed(testbed.sps.helper_cpus)} 1 > /dev/null",
    ]
    return "".join(f"{line}\n" for line in lines)


def _listed(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))


def guest_command(
    testbed: Testbed, guest: VirtualGuest, image: GuestImage, library: Path, state: Path
) -> list[str]:
    """Return the QEMU command line that starts the guest. QEMU creates its devices, and then runs in the background.

    Parameters
    ----------
    library
        The folder of the virtual clock's library.
    state
        The folder of the guest, into which QEMU writes the guest's console output and its counters.
    """
    isolated = [f"isolcpus={_listed(guest.isolated)}"] if guest.isolated else []
    argv = [
        *qemu_command(guest.clock, library, state, IDLE_RATE),
        *("-name", f"{COMM},process={COMM}"),
        *guest_options(guest, image, state, (*KERNEL_OPTIONS, *CLOCK_OPTIONS, *isolated)),
    ]
    for node in range(guest.sockets if guest.numa else 0):
        first, last = node * guest.cores_per_socket, (node + 1) * guest.cores_per_socket - 1
        size = guest.memory_mib // guest.sockets + (guest.memory_mib % guest.sockets) * (not node)
        argv += [
            *("-object", f"memory-backend-ram,id=node{node},size={size}M"),
            *("-numa", f"node,nodeid={node},cpus={first}-{last},memdev=node{node}"),
        ]
    for host in testbed.hosts:
        forward = f"hostfwd=tcp:{host.address}:{host.port}-{GUEST_ADDRESS}:22"
        argv += [
            *("-netdev", f"user,id={host.role},ipv6=off,restrict=on,{forward}"),
            *("-device", f"virtio-net-pci,netdev={host.role},mac={MACS[host.role]},romfile="),
        ]
    return argv


_VIRTUAL = VirtualTestbed()
STATE = _VIRTUAL.state
bring_up = _VIRTUAL.bring_up
take_down = _VIRTUAL.take_down
is_up = _VIRTUAL.is_up
held = _VIRTUAL.held
patience = _VIRTUAL.patience
guard = _VIRTUAL.guard
