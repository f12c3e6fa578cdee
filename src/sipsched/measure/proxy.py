"""SIP proxy programs: how each is configured, started and asked what went wrong."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError
from sipsched.measure.templates import render
from sipsched.plan.config import Sut
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.validity.ledger import Tally

ALLOCATION_FAILURE = (
    "no more (shm|shared|share|pkg|private)? *mem|could not allocate|out of ([a-z]+ )?mem"
    "|not enough (free )?(shm|pkg|mem)"
)
"""In upper or lower case; an extended regular expression, which grep on a host takes too."""

MANY_FILES = ("sh", "-c", 'ulimit -n "$(ulimit -Hn)" && exec "$@"', "sh")
"""A connection is a descriptor, and the usual limit is 1024."""
INSTANCES = """\
folder=$1 option=$2 count=$3
shift 3
while [ "$count" -gt 0 ]; do
    mkdir -p "$folder/instance-$count"
    "$@" "$option" "$folder/instance-$count" &
    count=$((count - 1))
done
wait
"""
"""Instances of a proxy, each in a folder of its own; one that ends leaves the others."""
SMALLEST_SHARED_MIB = 16
CONTROL_SOCKET = "proxy.ctl"
"""In the proxy's folder; what its template names too."""


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
        That which names the folder it runs in.
    deployments
        Those its template knows.
    count_messages
        Asks a running one, by its folder, how many messages it received and sent; None if it cannot be asked, and
        then it is not measured over TCP, where no kernel counts them.
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
        self, sut: Sut, config: PurePosixPath, folder: PurePosixPath, threads: int
    ) -> list[str]:
        """Build the command line; the proxy stays in the foreground and logs to stderr."""
        instances = threads if sut.deployment == "partitioned" else 1
        values = {
            "config": config,
            "shared": max(SMALLEST_SHARED_MIB, sut.shared_memory_mib // instances),
            "package": sut.package_memory_mib,
            "manager": sut.memory_manager,
        }
        argv = [self.program, *(option.format(**values) for option in self.options)]
        if sut.over_tcp:
            argv = [*MANY_FILES, *argv]
        if sut.deployment == "partitioned":
            return [
                "sh",
                "-c",
                INSTANCES,
                "sh",
                str(folder),
                self.folder_option,
                str(threads),
                *argv,
            ]
        return [*argv, self.folder_option, str(folder)]


def _count_kamailio(sps: Host, folder: PurePosixPath, sut: Sut) -> Tally:
    ask = 'kamcmd -s "unixs:$1" stats.get_statistics all'
    if sut.routing == "stateful":
        ask += ' && kamcmd -s "unixs:$1" tm.stats'
    return parse_kamailio_counts(sps.shell(ask, folder / CONTROL_SOCKET).stdout, f"host {sps.spec}")


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


PROXIES: Mapping[str, Proxy] = {
    "kamailio": Proxy(
        program="kamailio",
        options=(
            *("-DD", "-E", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-x", "{manager}", "-X", "{manager}"),
        ),
        folder_option="-Y",
        deployments=("shared", "sockets", "partitioned"),
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
            f"SUT {sut.name}: the adapter for {sut.proxy} knows no deployment '{sut.deployment}'; "
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
