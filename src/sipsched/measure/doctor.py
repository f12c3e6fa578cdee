"""A check that lists the measurements that a machine allows, and a remedy for each restriction."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sipsched.errors import SipschedError, StableError
from sipsched.measure.account import name_competitors
from sipsched.measure.hostneeds import needed_bytes
from sipsched.measure.machine_facts import PROXIES, Facts, look_here, look_there, programs_of
from sipsched.measure.scheduler import DEBUGFS, KernelFamily
from sipsched.plan.config import Config
from sipsched.plan.modes import PAPERS
from sipsched.testbed import virtual, vm
from sipsched.testbed.inventory import HostSpec, Testbed
from sipsched.testbed.requirements import PACKAGES
from sipsched.testbed.topology import parse_cpu_list
from sipsched.testbed.virtual_clock import qemu_version

YES, LESS, NO = "yes", "less", "no"
"""The three results of a check: the checked property of the machine allows all measurements, only some, or none."""
BUSY = 0.05
"""Share of the SPS's CPU time above which the check names the other programs that use the time."""
EEVDF_SINCE = (6, 6)


@dataclass(frozen=True)
class MachineFinding:
    """One property of a machine, and whether the property allows measurements."""

    subject: str
    state: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Wanted:
    """The requirements that a machine must meet to serve as a testbed.

    Attributes
    ----------
    cpus, sps_cpus
        CPUs of all hosts on this machine, and the CPUs of the SPS among them.
    programs
        Names of the required programs, without the proxies.
    built
        Native programs of the project, such as `probe/sipprobe`.
    proxy, namespaces
        Whether the machine runs the proxy, and whether the hosts of the testbed are network namespaces of the machine.
    free_bytes
        Disk space that the files of the largest run need.
    steal
        Two shares of stolen CPU time: a run above the first share is suspect, and a run above the second share is
        invalid.
    packages
        Debian packages to install.
    provision
        The command that installs missing packages and builds missing programs.
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


def examine(facts: Facts, wanted: Wanted) -> list[MachineFinding]:
    """Compare the facts about a machine with the requirements of a testbed, and return one finding per property."""
    if facts["system"] != "Linux":
        elsewhere = "measure on a testbed of kind ssh; pages and the simulator need no Linux"
        return [
            MachineFinding("system", NO, f"{facts['system'] or 'not known'}, not Linux", elsewhere)
        ]
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
        *([_realtime(facts)] if facts["fifo"] else []),
        *([_quiet(facts, wanted)] if wanted.sps_cpus else []),
        _disk(facts, wanted),
        *([_guest(facts)] if wanted.namespaces else []),
    ]


def _system(facts: Facts) -> MachineFinding:
    guest = ", a virtual machine" if facts["guest"] not in ("", "0") else ""
    text = f"Linux {facts['kernel']}, {facts['os'] or 'distribution not known'}{guest}; {facts['model']}"
    return MachineFinding("system", YES, text)


def _root(facts: Facts) -> MachineFinding:
    if facts.root:
        return MachineFinding("root", YES, "yes")
    return MachineFinding(
        "root",
        NO,
        "no; network namespaces, scheduler settings and BPF need root",
        "run as root (sudo -i); without root, these work: make reports, JupyterLab, config/studies/simulated.yaml, "
        "and testbeds of kind ssh",
    )


def _cpus(facts: Facts, wanted: Wanted) -> MachineFinding:
    online = set(parse_cpu_list(facts["online"]))
    missing = [cpu for cpu in wanted.cpus if cpu not in online]
    if missing:
        text = f"{len(online)} online; offline CPUs of the testbed's file: {', '.join(map(str, missing))}"
        return MachineFinding(
            "CPUs", NO, text, "give the machine more CPUs, or change the CPUs in the testbed's file"
        )
    return MachineFinding("CPUs", YES, f"{len(online)} online{_of_sps(wanted.sps_cpus)}")


def _namespaces(facts: Facts) -> MachineFinding:
    if facts["namespaces"]:
        return MachineFinding("network namespaces", YES, "can be created")
    why = "not allowed here (a container?)" if facts.root else "not tried: needs root"
    return MachineFinding(
        "network namespaces", NO, why, "use a machine without a container, or a testbed of kind ssh"
    )


def _proxy(facts: Facts, wanted: Wanted) -> MachineFinding:
    programs = [facts[f"program {name}"] for name in PROXIES if facts[f"program {name}"]]
    if not programs:
        text = f"none of {', '.join(PROXIES)} in PATH, /usr/sbin or /sbin"
        return MachineFinding("SIP proxy", NO, text, _install(facts, wanted, ("kamailio",)))
    missing = [name for name in PROXIES if not facts[f"program {name}"]]
    rest = f"; no {', no '.join(missing)}" if missing else ""
    return MachineFinding("SIP proxy", YES, f"{', '.join(programs)}{rest}")


def _programs(facts: Facts, wanted: Wanted) -> MachineFinding:
    missing = [name for name in wanted.programs if not facts[f"program {name}"]]
    if missing:
        text = f"missing: {', '.join(missing)}"
        return MachineFinding("other programs", NO, text, _install(facts, wanted, wanted.packages))
    return MachineFinding("other programs", YES, f"all {len(wanted.programs)} found")


def _install(facts: Facts, wanted: Wanted, packages: Iterable[str]) -> str:
    if facts["apt"]:
        return f"{wanted.provision} installs and builds the missing parts, as root"
    return f"install the equivalents of the Debian packages {', '.join(packages)}, then run {wanted.provision}"


def _built(facts: Facts, wanted: Wanted) -> MachineFinding:
    missing = [part for part in wanted.built if not facts[f"built {part}"]]
    if not missing:
        return MachineFinding("native parts", YES, f"all {len(wanted.built)} are built")
    unseen = "" if facts.root else " (or not visible without root)"
    text = f"not built{unseen}: {', '.join(missing)}"
    return MachineFinding("native parts", NO, text, f"{wanted.provision} builds them")


def _probe(facts: Facts) -> MachineFinding:
    btf = "BTF" if facts["btf"] else "no BTF (/sys/kernel/btf/vmlinux)"
    try:
        answer: dict[str, Any] = json.loads(facts["probe"])
        best, modes = answer["best"], answer["modes"]
        reasons = {name: mode["reason"] for name, mode in modes.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        why = "the probe is not built" if facts.root else "needs root"
        return MachineFinding("BPF", LESS, f"not tried: {why}; {btf}", "")
    if best == "exact":
        return MachineFinding("BPF", YES, f"all six timestamps of a message; {btf}")
    if best == "tracepoint":
        text = f"six timestamps, but t_sockq is a lower bound: {reasons['exact']}; {btf}"
        return MachineFinding(
            "BPF",
            LESS,
            text,
            "K_rcv is still exact; in a guest, all six timestamps are exact: fab vm.up",
        )
    text = f"no timestamps by BPF: {reasons['tracepoint']}; {btf}"
    return MachineFinding(
        "BPF", LESS, text, "a preloaded library takes three of the six timestamps instead"
    )


def _realtime(facts: Facts) -> MachineFinding:
    subject = "SCHED_FIFO"
    if facts["fifo"] == "yes":
        return MachineFinding(subject, YES, "allowed")
    if not facts.root:
        return MachineFinding(subject, LESS, "not tried: needs root")
    group = facts["cpu group"]
    where = f" in the cpu control group {group}" if group not in ("", "/") else ""
    return MachineFinding(
        subject,
        LESS,
        f"refused by the kernel{where}; the BPF probe and the modes fifo and rr do not work",
        "measure from a shell outside the group, or raise cpu.rt_runtime_us of the group and its parents",
    )


def _lockdown(facts: Facts) -> MachineFinding:
    chosen = facts["lockdown"].partition("[")[2].partition("]")[0]
    if not chosen:
        why = "the kernel has none, or does not show it" if facts.root else "not shown without root"
        return MachineFinding("lockdown", YES if facts.root else LESS, why)
    if chosen == "none":
        return MachineFinding("lockdown", YES, "none")
    text = f"{chosen}; the lines about BPF and debugfs show the effects"
    return MachineFinding(
        "lockdown", LESS, text, "boot without lockdown (Secure Boot off), or use a guest: fab vm.up"
    )


def _tracefs(facts: Facts) -> MachineFinding:
    mode, _, folder = facts["tracefs"].partition(" ")
    state = {"rw": f"writable at {folder}", "ro": f"read-only at {folder}"}.get(mode, "not mounted")
    return MachineFinding("tracefs", YES, f"{state}; the probe does not need tracefs")


def _scheduler(facts: Facts) -> MachineFinding:
    translated = (
        "the papers' modes are translated; a guest has the papers' scheduler, CFS: fab vm.up"
    )
    kernel = facts.scheduler
    if kernel is not None:
        if kernel.family is KernelFamily.EEVDF:
            return MachineFinding("scheduler", LESS, str(kernel.family), translated)
        return MachineFinding("scheduler", YES, str(kernel.family))
    version = _version(facts["kernel"])
    if version >= EEVDF_SINCE:
        text = f"EEVDF, judged by the version alone ({facts['kernel']})"
        return MachineFinding("scheduler", LESS, text, translated)
    return MachineFinding("scheduler", YES, f"CFS, judged by the version alone ({facts['kernel']})")


def _debugfs(facts: Facts) -> MachineFinding:
    kernel = facts.scheduler
    if kernel is None:
        why = "cannot be read" + ("" if facts.root else " without root")
        return MachineFinding(
            "debugfs", LESS, f"{why}, so the settings of the whole machine are unknown"
        )
    refused = [Path(path).name for path, value in kernel.files.items() if value is None]
    if refused:
        text = f"the kernel refuses {', '.join(refused)}"
        remedy = "modes of single tasks (slice-*, batch, nice-10, fifo, rr) work without debugfs: fab modes"
        return MachineFinding("debugfs", LESS, text, remedy)
    settings = [name for name in PAPERS if kernel.place(name)]
    if (
        not any(path.startswith(DEBUGFS) for path in kernel.files)
        and kernel.family is KernelFamily.SYSCTL
    ):
        return MachineFinding(
            "debugfs", YES, "not needed: this kernel has its settings in /proc/sys/kernel"
        )
    return MachineFinding(
        "debugfs", YES, f"readable; it has {len(settings)} of the papers' {len(PAPERS)} settings"
    )


def _quiet(facts: Facts, wanted: Wanted) -> MachineFinding:
    stolen, busy = facts.shares(wanted.sps_cpus)
    suspect, invalid = wanted.steal
    text = (
        f"in a short test, {100 * stolen:.1f} % of the SPS's CPU time was stolen by the hypervisor, and "
        f"{100 * busy:.1f} % was used by other programs"
    )
    if competitors := facts.competitors:
        text += f": {name_competitors(competitors)}"
    if stolen > suspect:
        grade = "invalid" if stolen > invalid else "suspect"
        text += f"; a run with so much stolen time is {grade}"
    if stolen > suspect or busy > BUSY:
        return MachineFinding("quiet now", LESS, text, 'see README.md, "If the machine is noisy"')
    return MachineFinding("quiet now", YES, text)


def _disk(facts: Facts, wanted: Wanted) -> MachineFinding:
    if not facts["free_kib"].isdigit():
        return MachineFinding("disk", NO, "the free space is unknown", "check the disk with df")
    free = int(facts["free_kib"]) << 10
    text = f"{_gib(free)} free, the largest run needs {_gib(wanted.free_bytes)}"
    if free < wanted.free_bytes:
        return MachineFinding("disk", NO, text, "delete files, or put raw/ on another disk")
    return MachineFinding("disk", YES, text)


def _guest(facts: Facts) -> MachineFinding:
    if facts["kvm"]:
        return MachineFinding("virtual machine (fab vm.up)", YES, "/dev/kvm can be opened")
    if not facts.root:
        return MachineFinding("virtual machine (fab vm.up)", LESS, "not tried: needs root")
    text = "no KVM: a guest works, but it is emulated, and its timings are no measurements"
    return MachineFinding("virtual machine (fab vm.up)", LESS, text)


GUESTS = {"vm": vm.is_up, "virtual": virtual.is_up}
"""Per kind of testbed with a virtual machine: the function that returns whether this virtual machine runs."""


def virtual_time() -> MachineFinding:
    """Report whether this machine can run a virtual machine whose clock counts instructions ("virtual time").

    The function checks only the version of QEMU. The command `fab virtual.check` runs the long self-test of the clock.
    """
    subject = "virtual time (fab virtual.check)"
    try:
        return MachineFinding(subject, YES, f"QEMU {qemu_version()}; the command tests it")
    except StableError as error:
        return MachineFinding(subject, LESS, str(error))


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _of_sps(cpus: Sequence[int]) -> str:
    return f", of which the SPS has {', '.join(map(str, cpus))}" if cpus else ""


def _version(release: str) -> tuple[int, ...]:
    numbers = release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def doctor(testbed: Testbed, config: Config) -> tuple[list[str], bool]:
    """Return lines of text that describe the possible measurements on a testbed, and whether a run is possible.

    Parameters
    ----------
    testbed
        The kind of the testbed determines which machines are checked. `local`: this machine. `vm`, `virtual`: this
        machine, and the guest if it runs. `ssh`: each host. The check starts no host and changes nothing.
    config
        The campaign, which determines the size of a run and the limits of the verdict.

    Returns
    -------
    lines, possible
        The lines to print, and whether a run is possible on this testbed.
    """
    if testbed.simulated:
        return [f"testbed {testbed.name} is simulated; it needs a C compiler and no host"], True
    lines: list[str] = []
    blocked: list[str] = []
    if testbed.kind == "virtual":
        finding = virtual_time()
        lines += _told("this machine", [finding])
        # Without virtual time, the testbed `virtual` cannot work, so the state becomes NO. All other testbeds work
        # without virtual time.
        blocked += _blocked("this machine", [replace(finding, state=NO)] * (finding.state != YES))
    elif testbed.is_on_this_machine:
        here = testbed.hosts if testbed.kind == "local" else (testbed.uac, testbed.uas)
        findings = examine(look_here(testbed, here), _wanted(testbed, here, config))
        findings.append(virtual_time())
        lines += _told("this machine", findings)
        blocked += _blocked("this machine", findings)
    hosts: tuple[HostSpec, ...] = () if testbed.kind == "local" else testbed.hosts
    if testbed.kind in GUESTS:
        hosts = (testbed.sps,) if GUESTS[testbed.kind](testbed) else ()
        if not hosts:
            lines.append(
                f"the guest is not running; fab {testbed.kind}.up boots the guest, so that its kernel can be checked"
            )
    for spec in hosts:
        findings = _findings_there(testbed, spec, config)
        lines += _told(str(spec), findings)
        blocked += _blocked(spec.role, findings)
    if blocked:
        lines.append(
            f"testbed {testbed.name}: nothing can be measured now; missing: {'; '.join(blocked)}"
        )
    else:
        lines.append(f"testbed {testbed.name}: can be measured on; restrictions are marked above")
    return lines, not blocked


def _findings_there(testbed: Testbed, spec: HostSpec, config: Config) -> list[MachineFinding]:
    try:
        facts = look_there(testbed, spec)
    except SipschedError as error:
        return [MachineFinding("reached by SSH", NO, str(error))]
    return examine(facts, _wanted(testbed, [spec], config))


def _wanted(testbed: Testbed, specs: Sequence[HostSpec], config: Config) -> Wanted:
    roles = {spec.role for spec in specs}
    sps = next((spec for spec in specs if spec.role == "sps"), None)
    parts = {
        "sps": ("probe/sipprobe", "scheduler/taskslice", "scheduler/switcher"),
        "uac": ("generator/sipload",),
        "uas": ("generator/sipload",),
        "front": ("dispatcher/sipdispatch",),
    }
    calls = round(config.search.highest_cps * config.load.duration_s)
    limits = config.validity["steal_share"]
    name = "" if testbed.name == "local" else f" --testbed={testbed.name}"
    return Wanted(
        cpus=tuple(sorted({cpu for spec in specs for cpu in spec.cpus + spec.helper_cpus})),
        sps_cpus=sps.cpus if sps else (),
        programs=programs_of(testbed, specs),
        built=tuple(dict.fromkeys(part for role in sorted(roles) for part in parts[role])),
        proxy=sps is not None,
        namespaces=testbed.is_on_this_machine and len(specs) > 1,
        free_bytes=needed_bytes(calls),
        steal=(limits.suspect, limits.invalid),
        packages=tuple(dict.fromkeys(name for role in sorted(roles) for name in PACKAGES[role])),
        provision=f"fab provision{name}",
    )


def _blocked(where: str, findings: Sequence[MachineFinding]) -> list[str]:
    missing = [finding.subject for finding in findings if finding.state == NO]
    return [f"{where}: {', '.join(missing)}"] if missing else []


def _told(where: str, findings: Sequence[MachineFinding]) -> list[str]:
    width = max(len(finding.subject) for finding in findings)
    lines = [where]
    for finding in findings:
        lines.append(f"  {finding.state:4}  {finding.subject:{width}}  {finding.text}")
        if finding.remedy and finding.state != YES:
            lines.append(f"  {'':4}  {'':{width}}  -> {finding.remedy}")
    return lines
