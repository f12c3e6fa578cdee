"""The testbed `local`, which has four network namespaces on this machine as hosts, each with an sshd.

Layout (addresses of RFC 2544's benchmarking range)::

    uac 198.18.1.2 ──veth── 198.18.1.1 sps 198.18.2.1 ──veth── 198.18.2.2 uas
                            SIP on 198.18.0.1 (lo of sps); nothing is forwarded at the IP layer

The namespace of the front end serves only testbeds whose file names the host `front`::

    uac 198.18.1.2 ──veth── 198.18.3.2 front 198.18.3.2 ──veth── 198.18.3.1 sps

SSH uses one more veth link per namespace, between the namespace and the rest of this machine.
"""

from collections.abc import Callable
from pathlib import Path

from sipsched.testbed.inventory import Testbed
from sipsched.testbed.namespaces import (
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
    """The testbed `local`, which consists of four network namespaces and the links between them."""

    def __init__(self) -> None:
        super().__init__("local", NAMESPACES, __name__, "fab up")

    def _create(self, testbed: Testbed, say: Callable[[str], None]) -> None:
        self._make_keys([namespace.management for namespace in self.namespaces])
        self._create_namespaces()
        in_sps = f"ip -n {self._namespace('sps').name}"
        for role in LINK_NETS:
            lines = link_lines(role, self._namespace(role).name, in_sps)
            self._run(["sh", "-ec", "\n".join(lines)])
        self._link_uac_to_front()
        self._ip("sps", f"address add {SPS_SIP_ADDRESS}/32 dev lo")
        self._in_namespace("sps", ["sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"])
        self._steer_receive_work(testbed)
        for role in LINK_NETS:
            self._wait_for_carrier("sps", f"{role}0")
            self._wait_for_carrier(role, "sip0")
        self._wait_for_carrier("uac", "front0")
        self._start_sshds(testbed)

    def _remove(self) -> None:
        super()._remove()
        # The proxy uses the kernel of this machine. Without the undo script, an interrupted run would leave kernel
        # settings of this machine changed.
        if Path(UNDO_FILE).exists():
            self._run(["sh", str(UNDO_FILE)])
            Path(UNDO_FILE).unlink()

    def _link_uac_to_front(self) -> None:
        """Join UAC and front end by a link, so that their messages use no CPU time of the proxy's host."""
        self._ip(
            "uac", f"link add front0 type veth peer name uac0 netns {self._namespace('front').name}"
        )
        for role, link, peer in (("uac", "front0", "front"), ("front", "uac0", "uac")):
            self._ip(role, f"link set {link} up")
            self._ip(role, f"route add {LINK_NETS[peer]}.2/32 dev {link}")

    def _steer_receive_work(self, testbed: Testbed) -> None:
        # A veth link runs the receive softirq on the sender's CPU. In the papers, the proxy's CPUs run this softirq.
        # So the kernel's packet steering (RPS) moves the receive work to the proxy's first CPU.
        # With several CPUs, RPS would choose the CPU of each of the two flows (from UAC, from UAS) by a hash.
        mask = cpu_mask(testbed.sps.cpus[:1])
        for role in LINK_NETS:
            rps = f"/sys/class/net/{role}0/queues/rx-0/rps_cpus"
            self._in_namespace("sps", ["sh", "-c", 'echo "$1" > "$2"', "sh", mask, rps])


_LOCAL = LocalTestbed()
STATE = _LOCAL.state
check_platform = _LOCAL.check_platform
check_machine = _LOCAL.check_machine
ensure_up = _LOCAL.ensure_up
take_down = _LOCAL.take_down
is_up = _LOCAL.is_up
guard = _LOCAL.guard
