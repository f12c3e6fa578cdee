"""What a host is and what its kernel counted, as verbatim text of an explicit list of files."""

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.records.run_document import HostReport
from sipsched.testbed.host import Host

COUNTER_FILES = (
    "/proc/net/snmp",
    "/proc/net/netstat",
    "/proc/net/softnet_stat",
    "/proc/net/udp",
    "/proc/net/dev",
    "/proc/stat",
    "/proc/uptime",
)
DESCRIPTION_FILES = (
    "/proc/version",
    "/proc/cmdline",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/sched_autogroup_enabled",
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


def read_files(host: Host, paths: tuple[str, ...]) -> dict[str, str]:
    """Read files of a host in one command; a file that is not there is left out.

    Returns
    -------
    dict
        Path to verbatim text.
    """
    script = 'for f; do [ -r "$f" ] && echo "==> $f <==" && cat "$f"; done; true'
    return split_sections(host.shell(script, *paths).stdout)


def split_sections(text: str) -> dict[str, str]:
    """Split what `read_files` printed into its files."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("==> ") and line.endswith(" <==\n"):
            current = sections.setdefault(line[4:-5], [])
        else:
            current.append(line)
    return {path: "".join(lines) for path, lines in sections.items()}


def clock_offset_s(host: Host) -> float:
    """Read how far CLOCK_REALTIME is ahead of the time since boot, in seconds.

    To some 10 ms, the resolution of /proc/uptime; of three readings the least disturbed, since what comes
    between the two clocks makes one look later. A constant but for steps and slewing of the clock.

    Raises
    ------
    StableError
        The host shows something else.
    """
    # ASSUME the host is not suspended in a run: /proc/uptime then advances as CLOCK_MONOTONIC
    script = "for i in 1 2 3; do cat /proc/uptime; date +%s.%N; done"
    return parse_clock_offset_s(host.shell(script).stdout, f"host {host.spec}: clocks")


def parse_clock_offset_s(text: str, where: str) -> float:
    """Take the least of the readings: lines of /proc/uptime and of `date +%s.%N`, in turns.

    Raises
    ------
    StableError
        There is none, or a line is something else.
    """
    lines = text.splitlines()
    try:
        readings = zip(lines[0::2], lines[1::2], strict=True)
        return min(float(real) - float(boot.split()[0]) for boot, real in readings)
    except (ValueError, IndexError):
        found = " ".join(text.split())[:60] or "nothing"
        raise StableError(
            f"{where}: expected /proc/uptime and seconds since the epoch, found {found}"
        ) from None


def describe(host: Host, versions: dict[str, list[str]]) -> HostReport:
    """Say what a host is.

    Parameters
    ----------
    host
        The host.
    versions
        Programs whose version to record, with the command that prints it.

    Returns
    -------
    HostReport
        As run.json has it; None where the kernel does not say.
    """
    files = read_files(host, DESCRIPTION_FILES)
    fields = parse_lscpu_json(host.run(["lscpu", "-J"]).stdout, f"host {host.spec}")

    def value(path: str) -> str | None:
        return files[path].strip() if path in files else None

    return HostReport(
        address=host.spec.address,
        kernel=value("/proc/sys/kernel/osrelease"),
        cpu_model=fields.get("Model name"),
        cpus=host.spec.cpus,
        helper_cpus=host.spec.helper_cpus,
        online_cpus=value("/sys/devices/system/cpu/online"),
        clocksource=value("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        governor=value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        versions={name: _first_line(host, argv) for name, argv in versions.items()},
        lscpu=fields,
        files=files,
    )


def parse_lscpu_json(text: str, where: str) -> dict[str, str | None]:
    """Read what `lscpu -J` printed: fields in fields, each with a name and, most, a value.

    Returns
    -------
    dict
        Field, without its colon, to value; None where it has none.

    Raises
    ------
    StableError
        It is not that.
    """
    try:
        rest = [parse_json(text)["lscpu"]]
        fields: dict[str, str | None] = {}
        while rest:
            for entry in rest.pop():
                value = entry.get("data")
                fields[entry["field"].rstrip(":")] = None if value is None else str(value)
                rest.append(entry.get("children", []))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise StableError(f"{where}: not the answer of lscpu -J: {type(error).__name__}") from None
    return fields


def _first_line(host: Host, argv: list[str]) -> str:
    done = host.run(argv, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "unknown"
