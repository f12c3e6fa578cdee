"""Sources of noise on the proxy's host, such as interrupts and services, and the settings that stop them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

from sipsched.errors import StableError, TransientError
from sipsched.measure.restoring import (
    CPU_FOLDER,
    HostService,
    read_settings,
    succeeds,
    write_settings,
)
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed, Tuning, native_folder
from sipsched.testbed.topology import cpu_mask

QUIET = {
    "autogroup": (("/proc/sys/kernel/sched_autogroup_enabled", "0"),),
    "governor": ((CPU_FOLDER + "cpu[0-9]*/cpufreq/scaling_governor", "performance"),),
    "turbo": (
        (CPU_FOLDER + "intel_pstate/no_turbo", "1"),
        (CPU_FOLDER + "cpufreq/boost", "0"),
    ),
    "numa_balancing": (("/proc/sys/kernel/numa_balancing", "0"),),
}
"""For each source of noise: the shell patterns of its files, and the value that stops the noise."""
INTERRUPTS = "/proc/irq/[0-9]*/smp_affinity_list"
RECEIVE_QUEUES = "/sys/class/net/{}/queues/rx-*/rps_cpus"
STEERED = ("interrupts", "receive steering")
HALT = "halt"
"""The source of noise that `awake` stops. A hypervisor gives a halted CPU back late."""
PART, PROGRAM = "scheduler", "awake"


def check_interfaces(sps: Host, tuning: Tuning) -> None:
    """Raise an error if the testbed's file names a network interface that the host does not have.

    Raises
    ------
    StableError
        The message names the missing interfaces and the existing interfaces.
    """
    if not tuning.receive_interfaces:
        return
    there = sps.run(["ls", "/sys/class/net"]).stdout.split()
    missing = [name for name in tuning.receive_interfaces if name not in there]
    if missing:
        raise StableError(
            f"host {sps.spec}: tuning.receive_interfaces: no interface {', '.join(missing)}; "
            f"existing interfaces: {', '.join(there)}"
        )


def quiet_files(tuning: Tuning) -> list[str]:
    """Return the shell patterns of all kernel settings files that `stop_noise` may change."""
    patterns = [pattern for names in QUIET.values() for pattern, _ in names]
    if tuning.interrupt_cpus:
        patterns.append(INTERRUPTS)
    return patterns + [RECEIVE_QUEUES.format(name) for name in tuning.receive_interfaces]


def stop_noise(sps: Host, tuning: Tuning) -> list[dict[str, Any]]:
    """Stop the sources of noise that the testbed's file names, and return old and new settings of all sources."""
    entries: list[dict[str, Any]] = []
    patterns = quiet_files(tuning)
    for path, text in read_settings(sps, patterns).items():
        pattern = next(pattern for pattern in patterns if fnmatchcase(path, pattern))
        name, value = _quiet_value(pattern, tuning)
        asked = value if name in tuning.quiet or name in STEERED else None
        entries.append({"name": name, "path": path, "found": text, "asked": asked})
    write_settings(
        sps, [(e["path"], e["asked"]) for e in entries if e["asked"] and e["found"] is not None]
    )
    now = read_settings(sps, [entry["path"] for entry in entries])
    # The kernel refuses to move some interrupts, so the result also contains the value that the interrupt's file has
    # after writing.
    entries = [entry | {"read_back": now.get(entry["path"])} for entry in entries]
    # A run whose CPUs halted nevertheless, because a program of `awake` ended, is no valid run.
    return entries + ([{"name": HALT, "asked": "prevented"}] if HALT in tuning.quiet else [])


@contextmanager
def awake(sps: Host, testbed: Testbed, cpus: Sequence[int], limit_s: float) -> Iterator[None]:
    """Keep the CPUs of the proxy from halting during the `with` block, if the testbed's file asks for it.

    On each CPU, a program of class SCHED_IDLE runs while no other program can run. Every other task preempts it at
    once. On the testbed `local`, the CPUs of the load generators are included.

    Parameters
    ----------
    cpus
        The CPUs of the proxy.
    limit_s
        Seconds after which the host stops the programs.

    Raises
    ------
    StableError
        The program is not built.
    TransientError
        A program ended during the `with` block.
    """
    if HALT not in testbed.tuning.quiet:
        yield
        return
    sps.require_built(PART, [PROGRAM])
    command = ["chrt", "--idle", "0", str(native_folder(sps.base, PART) / PROGRAM)]
    generators = (testbed.uac, testbed.uas) if testbed.kind == "local" else ()
    with ExitStack() as stack:
        started = []
        for cpu in sorted({*cpus, *(cpu for spec in generators for cpu in spec.cpus)}):
            started.append(sps.start(f"awake-{cpu}", command, cpus=[cpu], limit_s=limit_s))
            stack.callback(sps.stop, started[-1])
        yield
        for process in started:
            if not sps.is_running(process):
                raise TransientError(f"{process.name} ended during the run")


def _quiet_value(pattern: str, tuning: Tuning) -> tuple[str, str]:
    """Return the name of the source of noise for a file pattern, and the value that stops this noise."""
    for name, files in QUIET.items():
        if pattern in dict(files):
            return name, dict(files)[pattern]
    if pattern == INTERRUPTS:
        return "interrupts", ",".join(map(str, tuning.interrupt_cpus))
    return "receive steering", cpu_mask(tuning.receive_cpus)


def service_commands(sps: Host, tuning: Tuning) -> list[HostService]:
    """Return the commands that stop or move services, as the testbed's file requests, to keep the CPUs free."""
    services = []
    if "irqbalance" in tuning.quiet and succeeds(sps, ["pgrep", "-x", "irqbalance"]):
        services.append(
            HostService(("service", "irqbalance", "stop"), ("service", "irqbalance", "start"))
        )
    if tuning.service_cpus and succeeds(sps, ["test", "-d", "/run/systemd/system"]):
        to_set = ("systemctl", "set-property", "--runtime", "system.slice")
        cpus = ",".join(map(str, tuning.service_cpus))
        services.append(HostService((*to_set, f"AllowedCPUs={cpus}"), (*to_set, "AllowedCPUs=")))
    return services
