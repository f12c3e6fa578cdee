"""Functions that select the parts of a record that may be published: parts that name no person and no machine.

Summaries, pages and archives contain text that a host or a program printed only if the text has a form that this module
lists. The record itself contains all text.
"""

import re
from collections.abc import Mapping
from typing import Any

from sipsched.errors import DISK_FULL, UNREACHABLE
from sipsched.records.record import KILLED, STOPPED

FACTS = (
    *("kernel", "cpu_model", "cpus", "helper_cpus", "online_cpus", "clocksource", "governor"),
    *("versions", "lscpu", "files"),
)
"""Facts about a host that may be published, by the names of the fields of `HostReport`."""
KERNEL_OPTIONS = "kernel options"
"""Name (not the path of a file) of a part of a kernel's configuration: the options for the timer and preemption."""
FILES = (
    KERNEL_OPTIONS,
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/kernel/sched_rt_period_us",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/net/core/rmem_default",
    "/proc/sys/net/core/rmem_max",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/smt/active",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/security/lockdown",
)
"""Files and parts of files of a host that contain only settings of the kernel."""
LSCPU = re.compile(
    r"Architecture|CPU op-mode\(s\)|Address sizes|Byte Order|CPU\(s\)|(On|Off)-line CPU\(s\) list|Vendor ID"
    r"|Model name|CPU family|Model|(Thread|Core)\(s\) per (core|socket|cluster)|(Socket|Cluster)\(s\)|Stepping"
    r"|Frequency boost|CPU(\(s\) scaling| max| min)? MHz|BogoMIPS|Flags|Hypervisor vendor|Virtualization( type)?"
    r"|L[1-4][di]? cache|NUMA node\(s\)|NUMA node[0-9]+ CPU\(s\)|Vulnerability [A-Za-z0-9 ]+"
)
"""Fields of lscpu that may be published."""
VERSION = re.compile(r"[A-Za-z0-9 .,:()/_+~-]{1,120}")
"""Pattern for the first line of a program's version output. A line with @ does not match."""
PLAIN_WORDS = re.compile(r"[A-Za-z0-9_%(\[{'-][A-Za-z0-9_%()\[\]{}'-]*[,;:.]?( |$)")
"""Pattern for a word that is neither a path, nor an address, nor a host name with its domain."""
ERRORS = (KILLED, STOPPED)
"""Errors of failed attempts that may be published without a change."""
NOT_TOLD = "an error that failure.txt of the attempt describes"


def publishable_hosts(hosts: Mapping[str, Mapping[str, Any] | None]) -> dict[str, dict[str, Any]]:
    """Return the facts about a run's hosts that may be published. A value is None if the run lacks the host."""
    return {
        role: {name: _harmless(name, facts[name]) for name in FACTS if name in facts}
        for role, facts in hosts.items()
        if facts
    }


def _harmless(name: str, value: Any) -> Any:
    if name == "files":
        return {path: text for path, text in value.items() if path in FILES}
    if name == "lscpu":
        return {field: text for field, text in value.items() if LSCPU.fullmatch(field)}
    if name == "versions":
        return {program: text for program, text in value.items() if VERSION.fullmatch(text)}
    return value


def publishable_reason(text: str) -> str:
    """Return the reason for the probe's mode, or a neutral text if the reason may contain private names."""
    rest = text
    while word := PLAIN_WORDS.match(rest):
        rest = rest[word.end() :]
    return text if not rest else "a reason that run.json contains"


def publishable_error(text: str) -> str:
    """Return the kind of a failed attempt's error, without names and paths. For an empty text, return an empty text."""
    if not text or text in ERRORS:
        return text
    for role in ("uac", "sps", "uas", "front"):
        if text.startswith(f"host {role} ") and UNREACHABLE in text:
            return f"host {role} {UNREACHABLE}"
    return DISK_FULL if DISK_FULL in text else NOT_TOLD
