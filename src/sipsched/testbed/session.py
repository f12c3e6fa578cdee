"""Functions that connect to the hosts of a testbed and reserve the testbed by a lock."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sipsched import scripting
from sipsched.errors import StableError
from sipsched.plan.sut import Sut
from sipsched.testbed import local, virtual, vm
from sipsched.testbed.connection import CommandResult
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.patience import REAL_TIME, Patience


@dataclass(frozen=True)
class Hosts:
    """The hosts of a testbed (UAC, proxy, UAS), with open SSH connections.

    Attributes
    ----------
    testbed
        The testbed. For the kind `vm`, the attributes `accelerator` and `fidelity` describe the running guest.
    front
        The host of the front end; None if the testbed has no such host.
    """

    uac: Host
    sps: Host
    uas: Host
    testbed: Testbed
    front: Host | None = None

    @property
    def all(self) -> tuple[Host, ...]:
        """The hosts in the order UAC, proxy (SPS), UAS, and the host of the front end if it exists."""
        return (self.uac, self.sps, self.uas, *([self.front] if self.front else []))

    def entry(self, sut: Sut) -> Host:
        """Return the host that receives the UAC's messages; see `Testbed.entry`."""
        role = self.testbed.entry(sut).role
        return next(host for host in self.all if host.spec.role == role)

    @property
    def history(self) -> list[CommandResult]:
        """The results of all commands that have run on the hosts, in the order in which the commands started."""
        return sorted(
            (result for host in self.all for result in host.history), key=lambda r: r.started
        )


@contextmanager
def open_hosts(
    testbed: Testbed, purpose: str = "a task", say: Callable[[str], None] = scripting.say
) -> Iterator[Hosts]:
    """Connect to the hosts of a testbed, and hold the testbed's lock while the `with` block runs.

    If a testbed of kind `local`, `vm` or `virtual` does not exist, this function creates the testbed first. A
    background process (the guardian) removes an idle testbed. The lock is on the SPS, or on this machine if the SPS is
    a virtual machine. When the connection is lost, the hosts release the lock and stop all programs of sipsched. If
    the lock is on the SPS, the SPS then also restores its settings.

    Parameters
    ----------
    testbed
        The testbed, whose attribute `lock_wait_s` is the longest time to wait for another user.
    purpose
        Reason for holding the lock. Other users see this reason while they wait for the lock.
    say
        Function that shows a line if another user holds the lock.

    Raises
    ------
    TransientError
        A host is unreachable, or another user still uses the testbed after `lock_wait_s`.
    StableError
        A host refuses the login, this machine cannot create the testbed, or the testbed is simulated.
    """
    if testbed.kind == "simulated":
        raise StableError(f"testbed {testbed.name} is simulated: it has no hosts to reach")
    if testbed.kind == "local":
        local.ensure_up(testbed, local.IDLE_S, say)
    elif testbed.kind == "vm":
        vm.bring_up(testbed, vm.IDLE_S, say)
        testbed = vm.as_booted(testbed)
    elif testbed.kind == "virtual":
        virtual.bring_up(testbed, virtual.IDLE_S, say)
    with ExitStack() as stack:
        hosts = [Host(spec, testbed.workdir, patience(testbed)) for spec in testbed.hosts]
        uac, sps, uas, *others = hosts
        # The testbeds `local` and `vm` share a lock on this machine. A network namespace can take this lock, but a
        # virtual machine cannot. So the UAC, which is a namespace, takes the lock for the testbed `vm`.
        keeper = uac if testbed.kind == "vm" else None if testbed.kind == "virtual" else sps
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(stack.enter_context, hosts))
            lock = keeper.exclusive_lock if keeper else virtual.held
            stack.enter_context(lock(purpose, testbed.lock_wait_s, say))
            watches = [host.ended_with_connection(undone=host is sps is keeper) for host in hosts]
            list(pool.map(stack.enter_context, watches))
        yield Hosts(uac, sps, uas, testbed, *others)


def patience(testbed: Testbed) -> Patience:
    """Return the clock that limits how long sipsched waits for the hosts of a testbed."""
    return virtual.patience() if testbed.kind == "virtual" else REAL_TIME
