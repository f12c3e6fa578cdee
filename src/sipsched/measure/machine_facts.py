"""Facts about a machine that decide whether it can be a testbed, such as its CPUs and its kernel.

A shell script collects the facts and changes no settings of the machine.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from sipsched.files import parse_json
from sipsched.measure.account import read_account
from sipsched.measure.hostneeds import HOST_PROGRAMS
from sipsched.measure.scheduler import FILES, KernelScheduler
from sipsched.paths import PROJECT_ROOT
from sipsched.records.cpu_report import Competitor
from sipsched.testbed.guest import QEMU
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import HostSpec, Testbed, native_folder
from sipsched.testbed.session import patience
from sipsched.validity.counters import parse_stat

LOOK_TIMEOUT_S = 30
PROXIES = ("kamailio", "opensips")
MACHINE_PROGRAMS = ("ip", "sshd", "ssh-keygen", "taskset")
"""Programs that are needed to create a testbed on this machine."""
PRIVATE = """\
look=$1
shift
# The script mounts file systems to inspect them. A separate mount namespace hides these mounts from other programs.
if unshare --mount true 2> /dev/null; then
    exec unshare --mount sh -c "$look" sh "$@"
fi
exec sh -c "$look" sh "$@"
"""
LOOK = """\
export PATH="$PATH:/usr/sbin:/sbin"
say() { printf '%s\\t%s\\n' "$1" "$2"; }
mounted() { awk -v type="$1" '$3 == type { split($4, o, ","); print o[1], $2; exit }' /proc/mounts; }
native=$1 folder=$2 programs=$3 files=$4 cpus=$5
report=$(mktemp)
grep '^cpu' /proc/stat | sed 's/^/before\\t/'
if [ "$cpus" ] && [ -x "$native/probe/sipaccount" ]; then
    "$native/probe/sipaccount" $cpus --own $$ --report "$report" --ready /dev/null 2> /dev/null & account=$!
    sleep 2
    kill "$account" 2> /dev/null
    wait "$account" && say account "$(tr '\\n' ' ' < "$report")"
else
    sleep 1
fi
grep '^cpu' /proc/stat | sed 's/^/after\\t/'
rm -f "$report"
say system "$(uname -s)"
say kernel "$(uname -r)"
say os "$(. /etc/os-release && echo "$PRETTY_NAME")" 2> /dev/null
say apt "$(command -v apt-get)"
say uid "$(id -u)"
say model "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
say online "$(cat /sys/devices/system/cpu/online)"
say guest "$(grep -c '^flags.* hypervisor' /proc/cpuinfo)"
for type in tracefs debugfs securityfs; do
    say "$type" "$(mounted "$type")"
done
[ "$(mounted securityfs)" ] || mount -t securityfs none /sys/kernel/security 2> /dev/null
[ "$(mounted debugfs)" ] || mount -t debugfs none /sys/kernel/debug 2> /dev/null
say lockdown "$(cat /sys/kernel/security/lockdown 2> /dev/null)"
say listed "$(ls /sys/kernel/debug/sched 2> /dev/null | head -n 1)"
for file in $files; do
    [ -e "$file" ] || continue
    if value=$(cat "$file" 2> /dev/null); then say "file $file" "$value"; else say "refused $file" ""; fi
done
[ -r /sys/kernel/btf/vmlinux ] && say btf yes
[ -w /dev/kvm ] && say kvm yes
unshare --net true 2> /dev/null && say namespaces yes
if command -v chrt > /dev/null; then
    chrt --fifo 1 true 2> /dev/null && say fifo yes || say fifo no
fi
say "cpu group" "$(sed -n 's/^[0-9]*:\\([^:]*,\\)*cpu\\(,[^:]*\\)*://p' /proc/self/cgroup)"
for program in $programs; do
    say "program $program" "$(command -v "$program")"
done
for part in probe/sipprobe generator/sipload scheduler/taskslice scheduler/switcher; do
    [ -x "$native/$part" ] && say "built $part" yes
done
[ -x "$native/probe/sipprobe" ] && say probe "$("$native/probe/sipprobe" check 2> /dev/null | tr '\\n' ' ')"
while [ ! -e "$folder" ]; do folder=${folder%/*}; done
say free_kib "$(df -Pk "${folder:-/}" | awk 'NR == 2 { print $4 }')"
"""


@dataclass(frozen=True)
class Facts:
    """The facts that the shell script `LOOK` printed about a machine: values by name, and snapshots of /proc/stat."""

    values: Mapping[str, str]
    stat: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "Facts":
        """Parse the output of the shell script `LOOK`, and ignore lines that other programs printed."""
        values, stat = {}, {"before": "", "after": ""}
        for line in text.splitlines():
            key, separator, value = line.partition("\t")
            if key in stat:
                stat[key] += f"{value}\n"
            elif separator:
                values[key] = value.strip()
        return cls(values, stat)

    def __getitem__(self, key: str) -> str:
        """Return the value that the script printed for a name, or an empty text if the script printed no value."""
        return self.values.get(key, "")

    @property
    def root(self) -> bool:
        """True if root ran the script."""
        return self["uid"] == "0"

    @property
    def scheduler(self) -> KernelScheduler | None:
        """The kernel's scheduler settings; None if this user cannot list the folder with the settings' files."""
        files: dict[str, str | None] = {
            key.removeprefix("file "): value
            for key, value in self.values.items()
            if key.startswith("file ")
        }
        files |= {
            key.removeprefix("refused "): None for key in self.values if key.startswith("refused ")
        }
        # Linux 5.13 and later have the files of the scheduler settings in debugfs. Only root can list the folders of
        # debugfs.
        return KernelScheduler(files, task_slices=False) if files or self["listed"] else None

    @property
    def competitors(self) -> tuple[Competitor, ...]:
        """The programs that used the most CPU time on the proxy's CPUs; empty if `sipaccount` did not run."""
        if not self["account"]:
            return ()
        account = read_account(parse_json(self["account"]), None, None, "sipaccount")
        return account.competitors

    def shares(self, cpus: Sequence[int]) -> tuple[float, float]:
        """Return the shares of CPU time that the hypervisor and other programs took while the script `LOOK` ran."""
        before, after = (parse_stat(self.stat[moment]) for moment in ("before", "after"))
        names = [f"cpu{cpu}" for cpu in cpus if f"cpu{cpu}" in after] or ["cpu"]
        spent = {
            state: sum(after[name][state] - before[name][state] for name in names)
            for state in after[names[0]]
            if state not in ("guest", "guest_nice")
        }
        total = sum(spent.values()) or 1.0
        idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
        return spent["steal"] / total, (total - idle - spent["steal"]) / total


def look_here(testbed: Testbed, specs: Sequence[HostSpec]) -> Facts:
    """Collect the facts about this machine. If this process does not run as root, some facts are missing."""
    done = subprocess.run(
        ["sh", "-c", PRIVATE, "sh", LOOK, *_arguments(testbed, specs, PROJECT_ROOT / "raw")],
        capture_output=True,
        text=True,
        timeout=LOOK_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    facts = Facts.parse(done.stdout)
    # Of the online CPUs, only the CPUs in the affinity of this process are usable.
    held = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return Facts({**facts.values, "online": held}, facts.stat)


def look_there(testbed: Testbed, spec: HostSpec) -> Facts:
    """Collect the facts about a host over an SSH connection.

    Raises
    ------
    SipschedError
        SSH does not reach the host, or the script fails.
    """
    with Host(spec, testbed.workdir, patience(testbed)) as host:
        arguments = _arguments(testbed, [spec], testbed.workdir)
        return Facts.parse(host.shell(PRIVATE, LOOK, *arguments, timeout_s=LOOK_TIMEOUT_S).stdout)


def _arguments(
    testbed: Testbed, specs: Sequence[HostSpec], folder: PurePath
) -> tuple[str, str, str, str, str]:
    native = str(native_folder(testbed.workdir, "probe").parent)
    programs = (*PROXIES, *programs_of(testbed, specs))
    cpus = " ".join(f"--cpu {cpu}" for spec in specs if spec.role == "sps" for cpu in spec.cpus)
    return native, str(folder), " ".join(programs), " ".join(FILES), cpus


def programs_of(testbed: Testbed, specs: Sequence[HostSpec]) -> tuple[str, ...]:
    """Return the names of the programs that the machine of the given hosts (`specs`) must have, except SIP proxies.

    If all hosts of a testbed are on one machine, this machine also needs the programs that create the testbed.
    """
    on_it = MACHINE_PROGRAMS if testbed.is_on_this_machine and len(specs) > 1 else ()
    qemu = (QEMU, "mmdebstrap", "mke2fs") if testbed.kind == "vm" and len(specs) > 1 else ()
    return tuple(dict.fromkeys((*on_it, *qemu, *HOST_PROGRAMS)))
