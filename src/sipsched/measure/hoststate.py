"""Functions that read the description of a host and the kernel's counters from text files of the host."""

import shlex

from sipsched.errors import StableError
from sipsched.files import parse_json
from sipsched.records.publishable import FILES, KERNEL_OPTIONS
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
DESCRIPTION_FILES = ("/proc/version", "/proc/cmdline", *FILES)
READ_OPTIONS = """\
{ zcat /proc/config.gz || cat "/boot/config-$(uname -r)"; } 2> /dev/null |
    grep -E '^CONFIG_(HZ|NO_HZ_[A-Z]+|PREEMPT(_NONE|_VOLUNTARY|_LAZY|_RT|_DYNAMIC)?|RT_GROUP_SCHED)=' |
    sed 's/^CONFIG_//'
# With PREEMPT_DYNAMIC, this option of the kernel's command line replaces the preemption model of its configuration.
tr ' ' '\\n' < /proc/cmdline | grep '^preempt='
true
"""
"""Shell script that prints a kernel's options for timer and preemption; nothing if their file is missing."""


def read_files(host: Host, paths: tuple[str, ...]) -> dict[str, str]:
    """Read several files of a host with one command. Return the text of each existing file, by path."""
    script = 'for f; do [ -r "$f" ] && echo "==> $f <==" && cat "$f"; done; true'
    return split_sections(host.shell(script, *paths).stdout)


def split_sections(text: str) -> dict[str, str]:
    """Split the output of the shell command in `read_files` into one text per file."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("==> ") and line.endswith(" <==\n"):
            current = sections.setdefault(line[4:-5], [])
        else:
            current.append(line)
    return {path: "".join(lines) for path, lines in sections.items()}


def clock_offset_s(host: Host) -> float:
    """Return CLOCK_REALTIME of a host minus the time since its boot, in seconds.

    The accuracy is about 10 ms, the resolution of /proc/uptime. The function returns the smallest of three readings,
    because a delay between the readings of the two clocks makes the offset larger. The offset changes only when
    somebody sets CLOCK_REALTIME or adjusts the clock's speed.

    Raises
    ------
    StableError
        The output of the host does not contain the two clocks.
    """
    # ASSUME the host is not suspended during a run, so that /proc/uptime advances like CLOCK_MONOTONIC
    script = "for i in 1 2 3; do cat /proc/uptime; date +%s.%N; done"
    return parse_clock_offset_s(host.shell(script).stdout, f"host {host.spec}: clocks")


def parse_clock_offset_s(text: str, where: str) -> float:
    """Return the smallest of several offsets between the time of day and the time since boot, in seconds.

    In the text, a line of /proc/uptime and a line of `date +%s.%N` alternate.

    Raises
    ------
    StableError
        The text contains no offset, or a line has another form.
    """
    lines = text.splitlines()
    try:
        readings = zip(lines[0::2], lines[1::2], strict=True)
        return min(float(real) - float(boot.split()[0]) for boot, real in readings)
    except (ValueError, IndexError):
        shown = " ".join(text.split())[:60] or "nothing"
        raise StableError(
            f"{where}: expected /proc/uptime and seconds since the epoch, found {shown}"
        ) from None


def describe(host: Host, versions: dict[str, list[str]]) -> HostReport:
    """Return a description of a host for `run.json`, with its kernel, CPU model and program versions.

    Parameters
    ----------
    versions
        Per program, the command that prints the program's version. The field `files` of the description has the whole
        output, because the output of a proxy contains its build options.

    Returns
    -------
    HostReport
        The description. A value that the kernel does not report is None.
    """
    files = read_files(host, DESCRIPTION_FILES)
    if options := host.shell(READ_OPTIONS).stdout:
        files[KERNEL_OPTIONS] = options
    printed = {name: _output(host, argv) for name, argv in versions.items()}
    files |= {shlex.join(argv): printed[name] for name, argv in versions.items()}
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
        versions={name: text.partition("\n")[0].strip() for name, text in printed.items()},
        lscpu=fields,
        files=files,
    )


def parse_lscpu_json(text: str, where: str) -> dict[str, str | None]:
    """Parse the JSON output of `lscpu -J`, and return the value of each field by its name.

    Returns
    -------
    dict
        The value of each field by the field's name without the colon; None for a field without a value.

    Raises
    ------
    StableError
        The text is not output of `lscpu -J`.
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
        raise StableError(
            f"{where}: this is not the output of lscpu -J: {type(error).__name__}"
        ) from None
    return fields


def _output(host: Host, argv: list[str]) -> str:
    done = host.run(argv, check=False)
    return (done.stdout + done.stderr).strip() or "unknown"
