"""SIP proxy programs: how each is configured, started and asked what went wrong."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.measure.templates import render
from sipsched.plan.config import Sut
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import HostSpec, Testbed
from sipsched.validity.ledger import Tally

ALLOCATION_FAILURE = (
    "no more (shm|shared|share|pkg|private)? *mem|could not allocate|out of ([a-z]+ )?mem"
    "|not enough (free )?(shm|pkg|mem)"
)
"""In upper or lower case; an extended regular expression, which grep on a host takes too."""

MANY_FILES = ("sh", "-c", 'ulimit -n "$(ulimit -Hn)" && exec "$@"', "sh")
"""A connection is a descriptor, and the usual limit is 1024."""
INSTANCES = """\
folder=$1 option=$2 count=$3 address=$4 port=$5
shift 5
while [ "$count" -gt 0 ]; do
    mkdir -p "$folder/instance-$count"
    "$@" "$option" "$folder/instance-$count" ${address:+-l "$address:$((port + count))"} &
    count=$((count - 1))
done
wait
"""
"""Instances of a proxy, each in a folder of its own, with an address on a port of its own; one that ends leaves the
others."""
SMALLEST_SHARED_MIB = 16
FRONT_SHARED_MIB = 64


@dataclass(frozen=True)
class Proxy:
    """A proxy program.

    Attributes
    ----------
    program
        Name of the binary, and of the worker processes (`comm`).
    options
        Command-line options that take the place of `{config}`, `{shared}`, `{package}` and `{manager}`.
    folder_option
        That which names the folder it runs in; `-l` names what it listens on.
    deployments
        Those its template knows.
    cannot
        Why not, of those that it could be thought to know.
    count_messages
        Asks a running instance, by its folder, how many messages it received and sent; None if it cannot be asked,
        and then it is not measured over TCP, where no kernel counts them.
    programs
        Other binaries that asking needs.
    """

    program: str
    options: tuple[str, ...]
    folder_option: str
    version_option: str
    deployments: tuple[str, ...] = ("shared",)
    count_messages: Callable[[Host, PurePosixPath, Sut], Tally] | None = None
    programs: tuple[str, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)

    def config_text(self, sut: Sut, testbed: Testbed, threads: int, folder: PurePosixPath) -> str:
        """Render the configuration file for a number of workers."""
        return render(
            Path("proxies", f"{self.program}.cfg.j2"),
            sut=sut,
            threads=threads,
            folder=folder,
            sps=testbed.sps,
            uas=testbed.uas,
        )

    def command(
        self, sut: Sut, config: PurePosixPath, folder: PurePosixPath, threads: int, sps: HostSpec
    ) -> list[str]:
        """Build the command line; the proxy stays in the foreground and logs to stderr."""
        instances = sut.instances(threads)
        argv = self._argv(sut, config, instance_shared_mib(sut, threads))
        if sut.over_tcp:
            argv = [*MANY_FILES, *argv]
        if sut.deployment in ("shared", "sockets"):
            return [*argv, self.folder_option, str(folder)]
        address = f"{sut.transport}:{sps.sip_address}" if sut.fronted else ""
        own = (folder, self.folder_option, instances, address, sps.sip_port)
        return ["sh", "-c", INSTANCES, "sh", *map(str, own), *argv]

    def front_command(self, sut: Sut, config: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """Build the command line of what keeps no transactions, before instances."""
        argv = self._argv(sut, config, FRONT_SHARED_MIB)
        return [*argv, self.folder_option, str(folder)]

    def _argv(self, sut: Sut, config: PurePosixPath, shared_mib: int) -> list[str]:
        values = {
            "config": config,
            "shared": shared_mib,
            "package": sut.package_memory_mib,
            "manager": sut.memory_manager,
        }
        return [self.program, *(option.format(**values) for option in self.options)]

    def messages(self, sps: Host, folder: PurePosixPath, sut: Sut, threads: int) -> Tally | None:
        """Ask all instances for their messages since they started; over UDP the kernels count them."""
        if not sut.over_tcp or self.count_messages is None:
            return None
        folders = instance_folders(sut, folder, threads)
        return sum((self.count_messages(sps, one, sut) for one in folders), Tally(0, 0))


def instance_shared_mib(sut: Sut, threads: int) -> int:
    """Give what the processes of each instance share, in MiB: its part of the SUT's, or the least it runs with."""
    return max(SMALLEST_SHARED_MIB, sut.shared_memory_mib // sut.instances(threads))


def instance_folders(sut: Sut, folder: PurePosixPath, threads: int) -> list[PurePosixPath]:
    """List the folders that instances run in; `INSTANCES` makes them."""
    if sut.deployment in ("shared", "sockets"):
        return [folder]
    return [folder / f"instance-{number}" for number in range(1, sut.instances(threads) + 1)]


def _count_kamailio(sps: Host, folder: PurePosixPath, sut: Sut) -> Tally:
    ask = 'kamcmd -s "unixs:$1" stats.get_statistics all'
    if sut.routing == "stateful":
        ask += ' && kamcmd -s "unixs:$1" tm.stats'
    # what its module ctl names it in the folder it runs in
    said = sps.shell(ask, folder / "kamailio_ctl").stdout
    return parse_kamailio_counts(said, f"host {sps.spec}")


def parse_kamailio_counts(text: str, where: str) -> Tally:
    """Read what kamcmd printed of `stats.get_statistics all`, and of `tm.stats` where tm is loaded.

    A transaction sends its request on itself, and all its answers; what belongs to none, as ACK, the core does.

    Raises
    ------
    StableError
        A count is missing.
    """
    found = {name: int(count) for name, count in re.findall(r"([\w:]+) ?[=:] (\d+)", text)}
    received = ("core:rcv_requests", "core:rcv_replies")
    sent = ["core:fwd_requests", "core:fwd_replies", "sl:sent_replies"]
    if "rpl_sent" in found:
        sent += ["created", "rpl_sent"]
    missing = [name for name in (*received, *sent) if name not in found]
    if missing:
        raise StableError(f"{where}: kamcmd does not tell {', '.join(missing)}; see proxy.log")
    return Tally(sum(found[name] for name in sent), sum(found[name] for name in received))


# what a folder it runs in has is named there, not in its configuration, which all instances share
ASK_OPENSIPS = """\
cd "$1" || exit 1
rm -f reply
mkfifo -m 600 reply
{ timeout 5 cat reply & }
echo ':reply:{"jsonrpc":"2.0","id":1,"method":"get_statistics","params":[["core:","tm:","sl:"]]}' |
    timeout 5 tee opensips_fifo > /dev/null
wait
rm -f reply
"""


def _count_opensips(sps: Host, folder: PurePosixPath, sut: Sut) -> Tally:
    return parse_opensips_counts(sps.shell(ASK_OPENSIPS, folder).stdout, f"host {sps.spec}")


def parse_opensips_counts(text: str, where: str) -> Tally:
    """Read what OpenSIPS answered to `get_statistics` of core, tm where that is loaded, and sl.

    A transaction sends its request on, and the answers that it relays or makes; what belongs to none, as ACK, the core
    does.

    Raises
    ------
    StableError
        It is no such answer, or a count is missing.
    """
    try:
        found = dict(parse_json(text)["result"])
        sent = ["core:fwd_requests", "core:fwd_replies", "sl:sent_replies"]
        if "tm:UAS_transactions" in found:
            sent += ["tm:UAS_transactions", "tm:relayed_replies", "tm:local_replies"]
        return Tally(
            sum(int(found[name]) for name in sent),
            int(found["core:rcv_requests"]) + int(found["core:rcv_replies"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StableError(
            f"{where}: opensips does not tell its statistics ({error!r:.80}); found {text!r:.80}, see proxy.log"
        ) from None


PROXIES: Mapping[str, Proxy] = {
    "kamailio": Proxy(
        program="kamailio",
        options=(
            *("-DD", "-E", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-x", "{manager}", "-X", "{manager}"),
        ),
        folder_option="-Y",
        deployments=("shared", "sockets", "partitioned", "front", "listeners", "dispatcher"),
        version_option="-v",
        count_messages=_count_kamailio,
        programs=("kamcmd",),
    ),
    "opensips": Proxy(
        program="opensips",
        options=(
            *("-F", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-a", "{manager}"),
        ),
        folder_option="-w",
        version_option="-V",
        deployments=("shared", "partitioned", "dispatcher"),
        count_messages=_count_opensips,
        cannot={
            "sockets": "it has one process group for each socket, not one socket a worker of a group",
            "front": "its module dispatcher reads instances from a database",
            "listeners": "with reuse_port it binds connections that it opens to the listening port as "
            "well, and only one instance can have one from there to the UAS",
        },
    ),
}


def find_proxy(sut: Sut) -> Proxy:
    """Look the SUT's proxy program up.

    Raises
    ------
    StableError
        There is no adapter for it, or not over the SUT's transport.
    """
    if sut.proxy not in PROXIES:
        raise StableError(
            f"SUT {sut.name}: no adapter for proxy '{sut.proxy}'; there are: {', '.join(PROXIES)}"
        )
    proxy = PROXIES[sut.proxy]
    if sut.over_tcp and proxy.count_messages is None:
        able = (name for name, one in PROXIES.items() if one.count_messages)
        raise StableError(
            f"SUT {sut.name}: the adapter for {sut.proxy} is for UDP; over TCP there are: {', '.join(able)}"
        )
    if sut.deployment not in proxy.deployments:
        raise StableError(
            f"SUT {sut.name}: the adapter for {sut.proxy} knows no deployment '{sut.deployment}'"
            f"{': ' if sut.deployment in proxy.cannot else ''}{proxy.cannot.get(sut.deployment, '')}; "
            f"there are: {', '.join(proxy.deployments)}"
        )
    return proxy


def allocation_failures(log: str) -> list[str]:
    """Find the lines of a proxy's log that say it ran out of memory.

    Such a run looks like one with receive drops, and is none (Kamailio: shared memory holds a
    finished transaction for about 5 s).
    """
    failure = re.compile(ALLOCATION_FAILURE, re.IGNORECASE)
    return [line for line in log.splitlines() if failure.search(line)]
