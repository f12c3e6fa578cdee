"""What a machine can measure, what not, and what to do about it: looked at without changing anything."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from sipsched.errors import SipschedError
from sipsched.measure.probe import TRACE_BYTES_PER_CALL
from sipsched.measure.scheduler import DEBUGFS, FILES, Family, KernelScheduler
from sipsched.measure.serving import HOST_PROGRAMS, SPARE_BYTES
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Config
from sipsched.plan.modes import PAPERS
from sipsched.testbed import vm
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import HostSpec, Testbed, native_folder
from sipsched.testbed.requirements import PACKAGES
from sipsched.validity.counters import parse_stat

YES, LESS, NO = "yes", "less", "no"
"""It is as wanted; it takes something away from what can be measured; nothing can be measured."""
LOOK_TIMEOUT_S = 30
PROXIES = ("kamailio", "opensips")
MACHINE_PROGRAMS = ("ip", "sshd", "ssh-keygen", "taskset")
"""What a testbed on this machine is made with."""
BUSY = 0.05
"""Share of the SPS's CPUs from which on other programs are named."""
EEVDF_SINCE = (6, 6)
PRIVATE = """\
look=$1
shift
# what is mounted to look at it is gone with the namespace
if unshare --mount true 2> /dev/null; then
    exec unshare --mount sh -c "$look" sh "$@"
fi
exec sh -c "$look" sh "$@"
"""
LOOK = """\
export PATH="$PATH:/usr/sbin:/sbin"
say() { printf '%s\\t%s\\n' "$1" "$2"; }
mounted() { awk -v type="$1" '$3 == type { split($4, o, ","); print o[1], $2; exit }' /proc/mounts; }
native=$1 folder=$2 programs=$3 files=$4
grep '^cpu' /proc/stat | sed 's/^/before\\t/'
sleep 1
grep '^cpu' /proc/stat | sed 's/^/after\\t/'
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
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    subject
        Such as `root`.
    state
        `YES`, `LESS` or `NO`.
    told
        What was found.
    remedy
        What to do about it, if anything.
    """

    subject: str
    state: str
    told: str
    remedy: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a machine has to have.

    Attributes
    ----------
    cpus, sps_cpus
        Those that hosts on it have, and of them the SPS's.
    programs
        Without the proxies.
    built
        Native parts.
    proxy, namespaces
        Whether it runs the proxy; whether hosts are its network namespaces.
    free_bytes
        For the files of a run.
    steal
        Share of stolen time from which a run is suspect, and from which it does not count.
    packages
        Debian's names of what to install.
    provision
        What to type to have it installed and built.
    """

    cpus: tuple[int, ...]
    sps_cpus: tuple[int, ...]
    programs: tuple[str, ...]
    built: tuple[str, ...]
    proxy: bool
    namespaces: bool
    free_bytes: int
    steal: tuple[float, float]
    packages: tuple[str, ...]
    provision: str


@dataclass(frozen=True)
class Facts:
    """What `LOOK` printed."""

    values: Mapping[str, str]
    stat: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "Facts":
        """Take the lines apart; a line that is none of ours is left out."""
        values, stat = {}, {"before": "", "after": ""}
        for line in text.splitlines():
            key, separator, value = line.partition("\t")
            if key in stat:
                stat[key] += f"{value}\n"
            elif separator:
                values[key] = value.strip()
        return cls(values, stat)

    def __getitem__(self, key: str) -> str:
        """Give a value; empty if it was not found."""
        return self.values.get(key, "")

    @property
    def root(self) -> bool:
        """Whether root looked."""
        return self["uid"] == "0"

    @property
    def scheduler(self) -> KernelScheduler | None:
        """What the kernel's files show of its scheduler; None if its folder cannot be listed."""
        files: dict[str, str | None] = {
            key.removeprefix("file "): value
            for key, value in self.values.items()
            if key.startswith("file ")
        }
        files |= {
            key.removeprefix("refused "): None for key in self.values if key.startswith("refused ")
        }
        # a kernel before 5.13 has them where everybody may look
        return KernelScheduler(files, task_slices=False) if files or self["listed"] else None

    def shares(self, cpus: Sequence[int]) -> tuple[float, float]:
        """Give the share of CPUs' time that was stolen, and that other programs had, in the last second."""
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


def examine(facts: Facts, wanted: Wanted) -> list[Finding]:
    """Judge what was found on a machine."""
    if facts["system"] != "Linux":
        elsewhere = "measure on a testbed of kind ssh; pages and the simulator need no Linux"
        return [Finding("system", NO, f"{facts['system'] or 'not known'}, not Linux", elsewhere)]
    return [
        _system(facts),
        _root(facts),
        _cpus(facts, wanted),
        *([_namespaces(facts)] if wanted.namespaces else []),
        *([_proxy(facts, wanted)] if wanted.proxy else []),
        _programs(facts, wanted),
        _built(facts, wanted),
        *([_probe(facts), _lockdown(facts), _tracefs(facts)] if wanted.proxy else []),
        *([_scheduler(facts), _debugfs(facts)] if wanted.proxy else []),
        *([_quiet(facts, wanted)] if wanted.sps_cpus else []),
        _disk(facts, wanted),
        *([_guest(facts)] if wanted.namespaces else []),
    ]


def _system(facts: Facts) -> Finding:
    guest = ", a virtual machine" if facts["guest"] not in ("", "0") else ""
    told = f"Linux {facts['kernel']}, {facts['os'] or 'distribution not known'}{guest}; {facts['model']}"
    return Finding("system", YES, told)


def _root(facts: Facts) -> Finding:
    if facts.root:
        return Finding("root", YES, "yes")
    return Finding(
        "root",
        NO,
        "no: network namespaces, scheduler settings and BPF need it",
        "run as root (sudo -i); without it: make reports, JupyterLab, config/studies/simulated.yaml, or a "
        "testbed of kind ssh",
    )


def _cpus(facts: Facts, wanted: Wanted) -> Finding:
    online = set(_cpu_list(facts["online"]))
    missing = [cpu for cpu in wanted.cpus if cpu not in online]
    if missing:
        told = (
            f"{len(online)} online; CPU {', '.join(map(str, missing))} of the testbed's file is not"
        )
        return Finding("CPUs", NO, told, "give the machine more, or name others in the file")
    return Finding("CPUs", YES, f"{len(online)} online{_of_sps(wanted.sps_cpus)}")


def _namespaces(facts: Facts) -> Finding:
    if facts["namespaces"]:
        return Finding("network namespaces", YES, "can be made")
    why = "not allowed here (a container?)" if facts.root else "not tried: needs root"
    return Finding("network namespaces", NO, why, "a machine of its own, or a testbed of kind ssh")


def _proxy(facts: Facts, wanted: Wanted) -> Finding:
    found = [facts[f"program {name}"] for name in PROXIES if facts[f"program {name}"]]
    if not found:
        told = f"none of {', '.join(PROXIES)} in PATH, /usr/sbin or /sbin"
        return Finding("SIP proxy", NO, told, _install(facts, wanted, ("kamailio",)))
    missing = [name for name in PROXIES if not facts[f"program {name}"]]
    rest = f"; no {', no '.join(missing)}" if missing else ""
    return Finding("SIP proxy", YES, f"{', '.join(found)}{rest}")


def _programs(facts: Facts, wanted: Wanted) -> Finding:
    missing = [name for name in wanted.programs if not facts[f"program {name}"]]
    if missing:
        told = f"missing: {', '.join(missing)}"
        return Finding("other programs", NO, told, _install(facts, wanted, wanted.packages))
    return Finding("other programs", YES, f"all {len(wanted.programs)} found")


def _install(facts: Facts, wanted: Wanted, packages: Iterable[str]) -> str:
    if facts["apt"]:
        return f"{wanted.provision} installs and builds what is missing, as root"
    return (
        f"no apt-get here: install what Debian calls {', '.join(packages)}, then {wanted.provision}"
    )


def _built(facts: Facts, wanted: Wanted) -> Finding:
    missing = [part for part in wanted.built if not facts[f"built {part}"]]
    if not missing:
        return Finding("native parts", YES, f"all {len(wanted.built)} are built")
    unseen = "" if facts.root else " (or not to be seen without root)"
    told = f"not built{unseen}: {', '.join(missing)}"
    return Finding("native parts", NO, told, f"{wanted.provision} builds them")


def _probe(facts: Facts) -> Finding:
    btf = "BTF" if facts["btf"] else "no BTF (/sys/kernel/btf/vmlinux)"
    try:
        answer: dict[str, Any] = json.loads(facts["probe"])
        best, modes = answer["best"], answer["modes"]
        reasons = {name: mode["reason"] for name, mode in modes.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        why = "the probe is not built" if facts.root else "needs root"
        return Finding("BPF", LESS, f"not tried: {why}; {btf}", "")
    if best == "exact":
        return Finding("BPF", YES, f"all six stamps of a message; {btf}")
    if best == "tracepoint":
        told = f"six stamps, of which t_sockq is a lower bound: {reasons['exact']}; {btf}"
        return Finding(
            "BPF", LESS, told, "K_rcv is exact all the same; a guest has all six: fab vm.up"
        )
    told = f"none: {reasons['tracepoint']}; {btf}"
    return Finding("BPF", LESS, told, "a preloaded library takes three of the six stamps instead")


def _lockdown(facts: Facts) -> Finding:
    chosen = facts["lockdown"].partition("[")[2].partition("]")[0]
    if not chosen:
        why = "the kernel has none, or does not tell" if facts.root else "not told without root"
        return Finding("lockdown", YES if facts.root else LESS, why)
    if chosen == "none":
        return Finding("lockdown", YES, "none")
    told = f"{chosen}: what it keeps closed is named at BPF and debugfs"
    return Finding(
        "lockdown", LESS, told, "a kernel booted without it (Secure Boot off), or fab vm.up"
    )


def _tracefs(facts: Facts) -> Finding:
    mode, _, place = facts["tracefs"].partition(" ")
    state = {"rw": f"writable at {place}", "ro": f"read-only at {place}"}.get(mode, "not mounted")
    return Finding("tracefs", YES, f"{state}; the probe needs none of it")


def _scheduler(facts: Facts) -> Finding:
    translated = "the papers' modes are translated; the papers' own scheduler, CFS: fab vm.up"
    kernel = facts.scheduler
    if kernel is not None:
        if kernel.family is Family.EEVDF:
            return Finding("scheduler", LESS, str(kernel.family), translated)
        return Finding("scheduler", YES, str(kernel.family))
    version = _version(facts["kernel"])
    if version >= EEVDF_SINCE:
        told = f"EEVDF, by the version alone ({facts['kernel']})"
        return Finding("scheduler", LESS, told, translated)
    return Finding("scheduler", YES, f"CFS, by the version alone ({facts['kernel']})")


def _debugfs(facts: Facts) -> Finding:
    kernel = facts.scheduler
    if kernel is None:
        why = "cannot be looked into" + ("" if facts.root else " without root")
        return Finding("debugfs", LESS, f"{why}: settings of the whole machine are not known")
    refused = [Path(path).name for path, value in kernel.files.items() if value is None]
    if refused:
        told = f"the kernel refuses {', '.join(refused)}"
        remedy = (
            "modes of single tasks (slice-*, batch, nice-10, fifo, rr) need none of it: fab modes"
        )
        return Finding("debugfs", LESS, told, remedy)
    there = [name for name in PAPERS if kernel.place(name)]
    if (
        not any(path.startswith(DEBUGFS) for path in kernel.files)
        and kernel.family is Family.SYSCTL
    ):
        return Finding(
            "debugfs", YES, "not needed: this kernel has its settings in /proc/sys/kernel"
        )
    return Finding(
        "debugfs", YES, f"open; of the papers' settings it has {len(there)} of {len(PAPERS)}"
    )


def _quiet(facts: Facts, wanted: Wanted) -> Finding:
    stolen, busy = facts.shares(wanted.sps_cpus)
    suspect, invalid = wanted.steal
    told = (
        f"in the last second {100 * stolen:.1f} % of the SPS's CPU time was stolen by the hypervisor and "
        f"{100 * busy:.1f} % went to other programs"
    )
    if stolen > suspect:
        worth = "does not count" if stolen > invalid else "is suspect"
        told += f"; a run with as much stolen {worth}"
    if stolen > suspect or busy > BUSY:
        return Finding("quiet now", LESS, told, "README.md, A noisy machine")
    return Finding("quiet now", YES, told)


def _disk(facts: Facts, wanted: Wanted) -> Finding:
    if not facts["free_kib"].isdigit():
        return Finding("disk", NO, "how much is free could not be told", "look with df")
    free = int(facts["free_kib"]) << 10
    told = f"{_gib(free)} free, the largest run needs {_gib(wanted.free_bytes)}"
    if free < wanted.free_bytes:
        return Finding("disk", NO, told, "make room; raw/ may lie on another disk")
    return Finding("disk", YES, told)


def _guest(facts: Facts) -> Finding:
    if facts["kvm"]:
        return Finding("a guest of its own (fab vm.up)", YES, "/dev/kvm can be opened")
    if not facts.root:
        return Finding("a guest of its own (fab vm.up)", LESS, "not tried: needs root")
    told = "no KVM: emulated, so it works but its timings are no measurements"
    return Finding("a guest of its own (fab vm.up)", LESS, told)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _cpu_list(text: str) -> list[int]:
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _of_sps(cpus: Sequence[int]) -> str:
    return f", of which the SPS has {', '.join(map(str, cpus))}" if cpus else ""


def _version(release: str) -> tuple[int, ...]:
    numbers = release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def doctor(testbed: Testbed, config: Config) -> tuple[list[str], bool]:
    """Say what a testbed's machines can measure.

    Parameters
    ----------
    testbed
        Of kind local: this machine. Of kind vm: this machine, and the guest if it is up. Of kind ssh: each
        host. Nothing is brought up and nothing is changed.
    config
        For the size of a run and the limits of its verdict.

    Returns
    -------
    lines, possible
        What to print, and whether a run on this testbed is possible.
    """
    if testbed.simulated:
        return [f"testbed {testbed.name} is simulated: it needs a C compiler and no host"], True
    lines: list[str] = []
    blocked: list[str] = []
    if testbed.is_on_this_machine:
        here = testbed.hosts if testbed.kind == "local" else (testbed.uac, testbed.uas)
        found = examine(look_here(testbed, here), _wanted(testbed, here, config))
        lines += _told("this machine", found)
        blocked += _blocked("this machine", found)
    there: tuple[HostSpec, ...] = () if testbed.kind == "local" else testbed.hosts
    if testbed.kind == "vm":
        there = (testbed.sps,) if vm.is_up() else ()
        if not there:
            lines.append(
                "the guest is not up: fab vm.up boots it, then its kernel can be looked at"
            )
    for spec in there:
        found = _look_there(testbed, spec, config)
        lines += _told(str(spec), found)
        blocked += _blocked(spec.role, found)
    if blocked:
        lines.append(
            f"testbed {testbed.name}: nothing can be measured now, for want of: {'; '.join(blocked)}"
        )
    else:
        lines.append(f"testbed {testbed.name}: can be measured on; what is less is named above")
    return lines, not blocked


def look_here(testbed: Testbed, specs: Sequence[HostSpec]) -> Facts:
    """Look at this machine; without root at what everybody may see."""
    done = subprocess.run(
        ["sh", "-c", PRIVATE, "sh", LOOK, *_arguments(testbed, specs, PROJECT_ROOT / "raw")],
        capture_output=True,
        text=True,
        timeout=LOOK_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    facts = Facts.parse(done.stdout)
    # a process may be held to fewer CPUs than are online
    held = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return Facts({**facts.values, "online": held}, facts.stat)


def _look_there(testbed: Testbed, spec: HostSpec, config: Config) -> list[Finding]:
    try:
        with Host(spec, testbed.workdir) as host:
            arguments = _arguments(testbed, [spec], testbed.workdir)
            done = host.shell(PRIVATE, LOOK, *arguments, timeout_s=LOOK_TIMEOUT_S)
    except SipschedError as error:
        return [Finding("reached by SSH", NO, str(error))]
    return examine(Facts.parse(done.stdout), _wanted(testbed, [spec], config))


def _arguments(
    testbed: Testbed, specs: Sequence[HostSpec], folder: PurePath
) -> tuple[str, str, str, str]:
    native = str(native_folder(testbed.workdir, "probe").parent)
    programs = (*PROXIES, *_programs_of(testbed, specs))
    return native, str(folder), " ".join(programs), " ".join(FILES)


def _programs_of(testbed: Testbed, specs: Sequence[HostSpec]) -> tuple[str, ...]:
    on_it = MACHINE_PROGRAMS if testbed.is_on_this_machine and len(specs) > 1 else ()
    qemu = (vm.QEMU, "mmdebstrap", "mke2fs") if testbed.kind == "vm" and len(specs) > 1 else ()
    return tuple(dict.fromkeys((*on_it, *qemu, *HOST_PROGRAMS)))


def _wanted(testbed: Testbed, specs: Sequence[HostSpec], config: Config) -> Wanted:
    roles = {spec.role for spec in specs}
    sps = next((spec for spec in specs if spec.role == "sps"), None)
    parts = {
        "sps": ("probe/sipprobe", "scheduler/taskslice", "scheduler/switcher"),
        "uac": ("generator/sipload",),
        "uas": ("generator/sipload",),
    }
    calls = round(config.search.highest_cps * config.load.duration_s)
    limits = config.validity["steal_share"]
    name = "" if testbed.name == "local" else f" --testbed={testbed.name}"
    return Wanted(
        cpus=tuple(sorted({cpu for spec in specs for cpu in spec.cpus + spec.helper_cpus})),
        sps_cpus=sps.cpus if sps else (),
        programs=_programs_of(testbed, specs),
        built=tuple(dict.fromkeys(part for role in sorted(roles) for part in parts[role])),
        proxy=sps is not None,
        namespaces=testbed.is_on_this_machine and len(specs) > 1,
        free_bytes=calls * TRACE_BYTES_PER_CALL * 2 + SPARE_BYTES,
        steal=(limits.suspect, limits.invalid),
        packages=tuple(dict.fromkeys(name for role in sorted(roles) for name in PACKAGES[role])),
        provision=f"fab provision{name}",
    )


def _blocked(where: str, findings: Sequence[Finding]) -> list[str]:
    missing = [each.subject for each in findings if each.state == NO]
    return [f"{where}: {', '.join(missing)}"] if missing else []


def _told(where: str, findings: Sequence[Finding]) -> list[str]:
    width = max(len(each.subject) for each in findings)
    lines = [where]
    for each in findings:
        lines.append(f"  {each.state:4}  {each.subject:{width}}  {each.told}")
        if each.remedy and each.state != YES:
            lines.append(f"  {'':4}  {'':{width}}  -> {each.remedy}")
    return lines
