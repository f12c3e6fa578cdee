"""The adapters of SIP proxy programs, which configure and start a proxy and read its counts and its log."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.measure.templates import render
from sipsched.plan.sut import Sut
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import HostSpec, Testbed, release_root
from sipsched.validity.ledger import Tally
from sipsched.words import grouped

ALLOCATION_FAILURE = (
    "no more (shm|shared|share|pkg|private)? *mem|could not allocate|out of ([a-z]+ )?mem"
    "|not enough (free )?(shm|pkg|mem)"
)
"""Regular expression for the lines of a proxy's log that report failed allocations, to be used with `grep -Ei`."""

MANY_FILES = ("sh", "-c", 'ulimit -n "$(ulimit -Hn)" && exec "$@"', "sh")
"""Prefix of a command that raises the limit of open files.

Each TCP connection of the proxy needs an open file, and the usual limit is 1024.
"""
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
"""Shell script that starts the instances of a proxy. Each instance has its own folder and possibly its own port.

If an instance ends, the other instances continue.
"""
TOGETHER = """\
for command in "$@"; do
    sh -c "exec $command" &
done
wait
"""
"""Shell script that starts several commands. If one command ends, the other commands continue."""
IN_ROOT = """\
exec unshare --mount --propagation private sh -c '
    root=$1 work=$2
    shift 2
    mkdir -p "$root$work" &&
        mount --bind "$work" "$root$work" &&
        mount --rbind /proc "$root/proc" &&
        mount --rbind /dev "$root/dev" &&
        exec chroot "$root" "$@"
' sh "$@"
"""
"""Shell script that runs a program inside another root file system, in which the run's working folder is mounted.

The mounts are visible only to the program and its children. The kernel removes the mounts when these processes end.
"""
LOG_BYTES = 512 * 1024
SHORTENED = """\
size=$(stat -c %s "$1") || exit 0
if [ "$size" -le $((2 * $2)) ]; then
    cat "$1"
else
    head -c "$2" "$1"
    printf '\\n[%s bytes left out but for failed allocations]\\n' $((size - 2 * $2))
    tail -c +$(($2 + 1)) "$1" | head -c $((size - 2 * $2)) | grep -aEim 100 "$3"
    printf '[the last %s bytes]\\n' "$2"
    tail -c "$2" "$1"
fi
"""
"""Shell script that prints a file. Of a long file, it prints only "$2" bytes at each end and lines that match "$3"."""
SMALLEST_SHARED_MIB = 16
FRONT_SHARED_MIB = 64


@dataclass(frozen=True)
class ProxyCounts:
    """The counts of a proxy over TCP since its start: SIP messages, and accepted connections (None if not counted)."""

    messages: Tally
    accepted: int | None = None

    def __add__(self, other: "ProxyCounts") -> "ProxyCounts":
        """Return the sums of the counts of two proxies."""
        known = self.accepted is not None and other.accepted is not None
        accepted = (self.accepted or 0) + (other.accepted or 0)
        return ProxyCounts(self.messages + other.messages, accepted if known else None)

    def __sub__(self, other: "ProxyCounts") -> "ProxyCounts":
        """Return the counts since an earlier count of the same proxy."""
        known = self.accepted is not None and other.accepted is not None
        accepted = (self.accepted or 0) - (other.accepted or 0)
        return ProxyCounts(self.messages - other.messages, accepted if known else None)


@dataclass(frozen=True)
class Proxy:
    """The adapter of a proxy program, which contains all properties in which proxy programs differ.

    Attributes
    ----------
    program
        Name of the binary, and of the worker processes (`comm`).
    options
        Command-line options, with the placeholders `{config}`, `{shared}`, `{package}` and `{manager}`.
    folder_option
        Option for the working folder. The option for the address is `-l` in every program, so no attribute contains it.
    stderr_options
        Options that send the log to stderr even before the program has read its configuration.
    deployments
        Names of the deployments for which the program's template has a configuration.
    cannot
        Deployments that seem possible with the program but are not, with the reasons.
    count
        Function that asks the proxy instance in a folder for its counts. A program without this function cannot be
        measured over TCP, because the kernel does not count messages.
    programs
        Other programs that `count` runs.
    """

    program: str
    options: tuple[str, ...]
    folder_option: str
    version_option: str
    stderr_options: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ("shared",)
    count: Callable[[Host, PurePosixPath, Sut], ProxyCounts] | None = None
    programs: tuple[str, ...] = ()
    cannot: Mapping[str, str] = field(default_factory=dict)

    def config_text(
        self, sut: Sut, testbed: Testbed, threads: int, folder: PurePosixPath, *, instance: int = 0
    ) -> str:
        """Return the text of the proxy's configuration file for a number of workers.

        Parameters
        ----------
        instance
            Index of the instance in a run that compares instances. The index is added to the host's SIP port.
        """
        entry = testbed.entry(sut)
        return render(
            Path("proxies", f"{self.program}.cfg.j2"),
            sut=sut,
            threads=threads,
            folder=folder,
            sps=replace(testbed.sps, sip_port=testbed.sps.sip_port + instance),
            uas=testbed.uas,
            entry=replace(entry, sip_port=entry.sip_port + instance),
        )

    def command(
        self, sut: Sut, config: PurePosixPath, folder: PurePosixPath, threads: int, sps: HostSpec
    ) -> list[str]:
        """Return the command line that starts the proxy in the foreground with its log on stderr."""
        instances = sut.instances(threads)
        argv = self._argv(sut, config, instance_shared_mib(sut, threads))
        if sut.over_tcp:
            argv = [*MANY_FILES, *argv]
        if not sut.arrangement.instances:
            return [*argv, self.folder_option, str(folder)]
        address = f"{sut.transport}:{sps.sip_address}" if sut.fronted else ""
        own = (folder, self.folder_option, instances, address, sps.sip_port)
        return ["sh", "-c", INSTANCES, "sh", *map(str, own), *argv]

    def front_command(self, sut: Sut, config: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """Return the command line of a front end that is a proxy without transactions."""
        argv = self._argv(sut, config, FRONT_SHARED_MIB)
        return [*argv, self.folder_option, str(folder)]

    def _argv(self, sut: Sut, config: PurePosixPath, shared_mib: int) -> list[str]:
        values = {
            "config": config,
            "shared": shared_mib,
            "package": sut.package_memory_mib,
            "manager": sut.memory_manager,
        }
        to_stderr = () if sut.log_messages else self.stderr_options
        options = (option.format(**values) for option in self.options)
        return [self.file(sut), *to_stderr, *options]

    def file(self, sut: Sut) -> str:
        """Return the name or the path of the proxy program, inside the root file system in which the program runs."""
        return sut.program or self.program

    def version_argv(self, sut: Sut, host: Host) -> list[str]:
        """Return the command line that prints the version of the proxy program."""
        return [*in_root(sut, host), self.file(sut), self.version_option]

    def require(self, sut: Sut, host: Host) -> None:
        """Check that the proxy program is installed on a host.

        Raises
        ------
        StableError
            The program or the root file system of the SUT's release is missing. The message names the remedy.
        """
        if not sut.release:
            host.require_programs([self.file(sut)])
            return
        file = release_root(host.base, sut.release) / "usr" / "sbin" / self.program
        if host.run(["test", "-x", str(file)], check=False).exit_code != 0:
            raise StableError(
                f"host {host.spec}: SUT {sut.name} needs {file}, which does not exist; run: "
                f"fab provision --release={sut.release}, with the option --testbed for another testbed"
            )

    def counts(
        self, sps: Host, folder: PurePosixPath, sut: Sut, threads: int
    ) -> ProxyCounts | None:
        """Return the sums of the counts of all proxy instances since their start; None over UDP."""
        if not sut.over_tcp or self.count is None:
            return None
        folders = instance_folders(sut, folder, threads)
        return reduce(add, (self.count(sps, one, sut) for one in folders))


def in_root(sut: Sut, host: Host) -> list[str]:
    """Return the command prefix that runs a program in the root file system of another Debian release."""
    if not sut.release:
        return []
    return ["sh", "-c", IN_ROOT, "sh", str(release_root(host.base, sut.release)), str(host.workdir)]


def together(commands: Sequence[Sequence[str]]) -> list[str]:
    """Combine several commands into one command line that starts all of them in one process group."""
    if len(commands) == 1:
        return list(commands[0])
    return ["sh", "-c", TOGETHER, "sh", *map(shlex.join, commands)]


def instance_shared_mib(sut: Sut, threads: int) -> int:
    """Return the shared memory of each proxy instance in MiB, which is at least the program's minimum."""
    return max(SMALLEST_SHARED_MIB, sut.shared_memory_mib // sut.instances(threads))


def instance_folders(sut: Sut, folder: PurePosixPath, threads: int) -> list[PurePosixPath]:
    """Return the working folders of the proxy instances, which the shell script `INSTANCES` creates."""
    if not sut.arrangement.instances:
        return [folder]
    return [folder / f"instance-{number}" for number in range(1, sut.instances(threads) + 1)]


def _count_kamailio(sps: Host, folder: PurePosixPath, sut: Sut) -> ProxyCounts:
    ask = 'kamcmd -s "unixs:$1" stats.get_statistics all'
    if sut.routing == "stateful":
        ask += ' && kamcmd -s "unixs:$1" tm.stats'
    # Kamailio's module ctl creates the control socket in the working folder of the instance.
    said = sps.shell(ask, folder / "kamailio_ctl").stdout
    return parse_kamailio_counts(said, f"host {sps.spec}")


def parse_kamailio_counts(text: str, where: str) -> ProxyCounts:
    """Parse the numbers of messages and accepted connections from the statistics that Kamailio's `kamcmd` prints.

    The module tm forwards the requests of its transactions, and all answers. The core forwards other messages, such as
    ACK.

    Raises
    ------
    StableError
        A count is missing.
    """
    counts = {name: int(count) for name, count in re.findall(r"([\w:]+) ?[=:] (\d+)", text)}
    received = ("core:rcv_requests", "core:rcv_replies")
    sent = ["core:fwd_requests", "core:fwd_replies", "sl:sent_replies"]
    if "rpl_sent" in counts:
        sent += ["created", "rpl_sent"]
    missing = [name for name in (*received, *sent) if name not in counts]
    if missing:
        raise StableError(f"{where}: kamcmd did not report {', '.join(missing)}; see proxy.log")
    messages = Tally(sum(counts[name] for name in sent), sum(counts[name] for name in received))
    return ProxyCounts(messages, counts.get("tcp:passive_open"))


# All instances share one configuration file, so the FIFO in this file has a name relative to the working folder.
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


def _count_opensips(sps: Host, folder: PurePosixPath, sut: Sut) -> ProxyCounts:
    said = sps.shell(ASK_OPENSIPS, folder).stdout
    return ProxyCounts(parse_opensips_counts(said, f"host {sps.spec}"))


def parse_opensips_counts(text: str, where: str) -> Tally:
    """Parse the numbers of sent and received messages from OpenSIPS's answer to `get_statistics`.

    The module tm forwards the requests of its transactions, and the answers that it relays or creates. The core
    forwards other messages, such as ACK.

    Raises
    ------
    StableError
        The text is not an answer to `get_statistics`, or a count is missing.
    """
    try:
        counts = dict(parse_json(text)["result"])
        sent = ["core:fwd_requests", "core:fwd_replies", "sl:sent_replies"]
        if "tm:UAS_transactions" in counts:
            sent += ["tm:UAS_transactions", "tm:relayed_replies", "tm:local_replies"]
        return Tally(
            sum(int(counts[name]) for name in sent),
            int(counts["core:rcv_requests"]) + int(counts["core:rcv_replies"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StableError(
            f"{where}: opensips did not report its statistics ({error!r:.80}); found {text!r:.80}, see proxy.log"
        ) from None


PROXIES: Mapping[str, Proxy] = {
    "kamailio": Proxy(
        program="kamailio",
        options=(
            *("-DD", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-x", "{manager}", "-X", "{manager}"),
        ),
        folder_option="-Y",
        deployments=("shared", "sockets", "partitioned", "front", "listeners", "dispatcher"),
        version_option="-v",
        stderr_options=("-E",),
        count=_count_kamailio,
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
        count=_count_opensips,
        cannot={
            "sockets": "it has one group of processes per socket, and not one socket per worker",
            "front": "its module dispatcher reads instances from a database",
            "listeners": "with reuse_port it opens its own connections from the listening port, and "
            "only one instance can have a connection from this port to the UAS",
        },
    ),
}


def find_proxy(sut: Sut) -> Proxy:
    """Return the adapter of the proxy program of a SUT.

    Raises
    ------
    StableError
        The program has no adapter, or its adapter does not support the transport or the deployment of the SUT.
    """
    if sut.proxy not in PROXIES:
        raise StableError(
            f"SUT {sut.name}: no adapter for proxy '{sut.proxy}'; existing adapters: {', '.join(PROXIES)}"
        )
    proxy = PROXIES[sut.proxy]
    if sut.over_tcp and proxy.count is None:
        able = (name for name, one in PROXIES.items() if one.count)
        raise StableError(
            f"SUT {sut.name}: the adapter for {sut.proxy} supports UDP alone; adapters for TCP: {', '.join(able)}"
        )
    if sut.deployment not in proxy.deployments:
        raise StableError(
            f"SUT {sut.name}: the adapter for {sut.proxy} does not support deployment '{sut.deployment}'"
            f"{': ' if sut.deployment in proxy.cannot else ''}{proxy.cannot.get(sut.deployment, '')}; "
            f"supported deployments: {', '.join(proxy.deployments)}"
        )
    return proxy


def allocation_failures(log: str) -> list[str]:
    """Return the lines of a proxy's log that report failed allocations.

    Failed allocations can look like drops at the socket, but their cause is a lack of memory. For example, Kamailio
    keeps a finished transaction in shared memory for about 5 s.
    """
    failure = re.compile(ALLOCATION_FAILURE, re.IGNORECASE)
    return [line for line in log.splitlines() if failure.search(line)]


def parse_instances(processes: str) -> dict[int, int]:
    """Return the index of the compared instance of each process or thread, by its id.

    Parameters
    ----------
    processes
        One line per process or thread with its id and its command line, as `TASKS` prints them. The command line of
        an instance contains the path of the instance's configuration. The command line of the shell that starts all
        instances contains the paths of all configurations, so the result excludes the shell.
    """
    result = {}
    for line in processes.splitlines():
        pid, _, command = line.partition(" ")
        numbers = set(re.findall(r"/instance-(\d+)/proxy\.cfg\b", command))
        if pid.isdecimal() and len(numbers) == 1:
            result[int(pid)] = int(numbers.pop())
    return result


def lines_by_instance(lines: Iterable[str], instances: Mapping[int, int]) -> str:
    """Return a text with the number of log lines per compared instance; empty if no line is from an instance.

    Parameters
    ----------
    lines
        Lines of the common log of all instances. The first number in round or square brackets is the id of the process
        that wrote the line.
    instances
        Index of the instance of each process, by process id.
    """
    writers = (re.search(r"[(\[](\d+)[)\]]", line) for line in lines)
    pids = [int(found[1]) for found in writers if found]
    return count_by_instance(instances[pid] for pid in pids if pid in instances)


def count_by_instance(instances: Iterable[int]) -> str:
    """Return a text with the number of occurrences of each instance, such as `2 in instance 1 (proxy-1.cfg)`."""
    return ", ".join(
        f"{grouped(count)} in {instance_name(number)}"
        for number, count in sorted(Counter(instances).items())
    )


def instance_name(number: int) -> str:
    """Return the number and the configuration of a compared instance as text for an error or a verdict."""
    return f"instance {number} ({config_name(number)})"


def config_name(number: int) -> str:
    """Return the name that the configuration of the instance with this index has in the record."""
    return f"proxy-{number}.cfg" if number else "proxy.cfg"


def shortened_log(sps: Host) -> str:
    """Return the proxy's log. For a long log, return only the beginning, the end and lines about failed allocations.

    A log becomes long if the proxy receives many datagrams that are not SIP.
    """
    arguments = (sps.workdir / "proxy.log", LOG_BYTES, ALLOCATION_FAILURE)
    return sps.shell(SHORTENED, *arguments, timeout_s=60, check=False).stdout
