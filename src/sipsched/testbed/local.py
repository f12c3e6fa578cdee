"""The testbed `local`, which has network namespaces on this machine as hosts, each with an sshd.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──veth── 198.18.1.1 sps 198.18.2.1 ──veth── 198.18.2.2 uas
                            SIP on 198.18.0.1 (lo of sps); nothing is forwarded at the IP layer

If the testbed's file names the host `front`, the testbed has a fourth namespace for the front end of the proxy::

    uac 198.18.1.2 ──veth── 198.18.3.2 front 198.18.3.2 ──veth── 198.18.3.1 sps

SSH uses one more veth link per namespace, between the namespace and the rest of this machine.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from sipsched.testbed.inventory import Testbed
from sipsched.testbed.namespaces import (
    AGENT_NETS,
    LINK_NETS,
    SPS_SIP_ADDRESS,
    MachineTestbed,
    Namespace,
    link_lines,
)
from sipsched.testbed.places import UNDO_FILE
from sipsched.testbed.topology import cpu_mask

IDLE_S = 30.0
NAMESPACES = (
    Namespace("uac", "sipsched-uac", "198.18.255.2", "198.18.255.1"),
    Namespace("sps", "sipsched-sps", "198.18.255.6", "198.18.255.5"),
    Namespace("uas", "sipsched-uas", "198.18.255.10", "198.18.255.9"),
    Namespace("front", "sipsched-front", "198.18.255.14", "198.18.255.13"),
)


class LocalTestbed(MachineTestbed):
    """The testbed `local`, which consists of network namespaces and the links between them."""

    def __init__(self) -> None:
        super().__init__("local", NAMESPACES, __name__, "fab up")

    def _create(self, testbed: Testbed, say: Callable[[str], None]) -> None:
        self._make_keys([namespace.management for namespace in self.namespaces])
        namespaces = [self._namespace(role) for role in ("uac", "sps", "uas")]
        self._create_namespaces(namespaces)
        for role in AGENT_NETS:
            self._link_to_sps(role)
        self._ip("sps", f"address add {SPS_SIP_ADDRESS}/32 dev lo")
        self._in_namespace("sps", ["sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"])
        for role in AGENT_NETS:
            self._serve_link(role, testbed)
        self._start_sshds(testbed, namespaces)
        if testbed.front:
            self._create_front(testbed)

    def _serves(self, testbed: Testbed) -> bool:
        # Other users may already use the three namespaces that each testbed has, so only a missing front end is added.
        front, others = self._namespace("front"), dataclasses.replace(testbed, front=None)
        if testbed.front and self.is_up(others) and not Path("/run/netns", front.name).exists():
            self._create_front(testbed)
        return self.is_up(testbed)

    def _remove(self) -> None:
        super()._remove()
        # The proxy uses the kernel of this machine. Without the undo script, an interrupted run would leave kernel
        # settings of this machine changed.
        if Path(UNDO_FILE).exists():
            self._run(["sh", str(UNDO_FILE)])
            Path(UNDO_FILE).unlink()

    def _create_front(self, testbed: Testbed) -> None:
        """Create the namespace of the front end, its links and its sshd. The other namespaces must exist."""
        namespaces = [self._namespace("front")]
        self._create_namespaces(namespaces)
        self._link_to_sps("front")
        self._link_uac_to_front()
        self._serve_link("front", testbed)
        self._wait_for_carrier("uac", "front0")
        self._start_sshds(testbed, namespaces)

    def _link_to_sps(self, role: str) -> None:
        in_sps = f"ip -n {self._namespace('sps').name}"
        lines = link_lines(role, self._namespace(role).name, in_sps)
        self._run(["sh", "-ec", "\n".join(lines)])

    def _link_uac_to_front(self) -> None:
        """Join UAC and front end by a link, so that their messages use no CPU time of the proxy's host."""
        self._ip(
            "uac", f"link add front0 type veth peer name uac0 netns {self._namespace('front').name}"
        )
        for role, link, peer in (("uac", "front0", "front"), ("front", "uac0", "uac")):
            self._ip(role, f"link set {link} up")
            self._ip(role, f"route add {LINK_NETS[peer]}.2/32 dev {link}")

    def _serve_link(self, role: str, testbed: Testbed) -> None:
        """Move the receive work of a link to the proxy's first CPU, and wait until the link transmits."""
        # A veth link runs the receive softirq on the sender's CPU. In the papers, the proxy's CPUs run this softirq.
        # So the kernel's packet steering (RPS) moves the receive work to the proxy's first CPU.
        # With several CPUs, RPS would choose the CPU of each of the two flows (from UAC, from UAS) by a hash.
        mask = cpu_mask(testbed.sps.cpus[:1])
        rps = f"/sys/class/net/{role}0/queues/rx-0/rps_cpus"
        self._in_namespace("sps", ["sh", "-c", 'echo "$1" > "$2"', "sh", mask, rps])
        self._wait_for_carrier("sps", f"{role}0")
        self._wait_for_carrier(role, "sip0")


_LOCAL = LocalTestbed()
STATE = _LOCAL.state
check_platform = _LOCAL.check_platform
check_machine = _LOCAL.check_machine
ensure_up = _LOCAL.ensure_up
take_down = _LOCAL.take_down
is_up = _LOCAL.is_up
guard = _LOCAL.guard
