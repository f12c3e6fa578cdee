"""Opening a testbed: bring it up if that is ours to do, connect to its hosts, take its lock."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.testbed import local, vm
from sipsched.testbed.host import CommandResult, Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.lock import say_here


@dataclass(frozen=True)
class Hosts:
    """The three open hosts of a testbed.

    Attributes
    ----------
    testbed
        The testbed as it was found: of kind `vm` with its accelerator, and the fidelity that goes with it.
    """

    uac: Host
    sps: Host
    uas: Host
    testbed: Testbed

    @property
    def all(self) -> tuple[Host, Host, Host]:
        """The hosts in the order of the signal's way."""
        return (self.uac, self.sps, self.uas)

    @property
    def history(self) -> list[CommandResult]:
        """Every command run on any host so far, in the order of their start."""
        return sorted(
            (result for host in self.all for result in host.history), key=lambda r: r.started
        )


@contextmanager
def open_hosts(
    testbed: Testbed, purpose: str = "a task", say: Callable[[str], None] = say_here
) -> Iterator[Hosts]:
    """Connect to the hosts of a testbed and hold it for one user.

    A testbed of kind `local` or `vm` is brought up first if it is down; a guardian takes it down
    when it has been idle. The lock is on the SPS, or on this machine where that is a guest of it,
    and goes with the connection, so a killed controller never leaves it held; what it had started
    on a host ends then, too, and an SPS with a lock of its own has its settings back.

    Parameters
    ----------
    testbed
        Its `lock_wait_s` says how long to wait while somebody else holds it.
    purpose
        What it is held for; whoever waits for it is told.
    say
        Takes a line when it has to wait.

    Raises
    ------
    TransientError
        A host is unreachable, or the testbed was in use all the time.
    StableError
        A host refuses us, the testbed cannot be brought up on this machine, or it is simulated.
    """
    if testbed.kind == "simulated":
        raise StableError(f"testbed {testbed.name} is simulated: it has no hosts to reach")
    if testbed.kind == "local":
        local.ensure_up(testbed, local.IDLE_S, say)
    elif testbed.kind == "vm":
        vm.bring_up(testbed, vm.IDLE_S, say)
        testbed = vm.as_booted(testbed)
    with ExitStack() as stack:
        hosts = [Host(spec, testbed.workdir) for spec in testbed.hosts]
        uac, sps, uas = hosts
        # a namespace shares this machine's lock with every testbed on it; a guest does not
        keeper = uac if testbed.kind == "vm" else sps
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(stack.enter_context, hosts))
            stack.enter_context(keeper.exclusive_lock(purpose, testbed.lock_wait_s, say))
            watches = [host.ended_with_connection(undone=host is sps is keeper) for host in hosts]
            list(pool.map(stack.enter_context, watches))
        yield Hosts(uac, sps, uas, testbed)
