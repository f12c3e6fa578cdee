"""Functions that read and write kernel settings of the proxy's host, and a script that restores these settings."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.plan.modes import Setting
from sipsched.testbed.host import Host

CPU_FOLDER = "/sys/devices/system/cpu/"
HOTPLUG_TIMEOUT_S = 60

READ_SCRIPT = """\
debugfs=/sys/kernel/debug
[ -d $debugfs/sched ] || mount -t debugfs none $debugfs 2>/dev/null
for path; do
    for file in $path; do
        [ -e "$file" ] || continue
        if value=$(cat "$file" 2>/dev/null); then
            printf '%s\\t%s\\n' "$file" "$value"
        else
            echo "$file"
        fi
    done
done
"""
WRITE_SCRIPT = """\
while [ $# -gt 0 ]; do
    printf '%s' "$2" 2>/dev/null > "$1" || echo "$1"
    shift 2
done
"""


@dataclass(frozen=True)
class HostService:
    """The command that stops or moves a service, and the command that reverts this change."""

    stop: tuple[str, ...]
    undo: tuple[str, ...]


def repair(sps: Host) -> bool:
    """Restore the kernel settings that an interrupted run had changed. Return True if an undo script existed.

    Raises
    ------
    StableError
        A setting does not have its original value after restoring. After such an error, the undo script remains on the
        host.
    """
    if not succeeds(sps, ["test", "-e", str(sps.undo_file)]):
        return False
    done = sps.run(["sh", str(sps.undo_file)], check=False, timeout_s=HOTPLUG_TIMEOUT_S)
    if done.exit_code != 0:
        raise StableError(
            f"host {sps.spec}: settings could not be restored: "
            f"{'; '.join((done.stdout + done.stderr).split(chr(10))).strip('; ')}; "
            f"read {sps.undo_file} on this host, restore the settings by hand, and remove this file"
        )
    sps.run(["rm", "-f", str(sps.undo_file)])
    return True


def read_settings(sps: Host, patterns: Sequence[str]) -> dict[str, str | None]:
    """Read kernel settings from files that match shell patterns, and return the text of each file by path.

    The result excludes files that do not exist. A file that the kernel refuses to read has the value None.
    """
    values: dict[str, str | None] = {}
    for line in sps.shell(READ_SCRIPT, *patterns).stdout.splitlines():
        path, separator, value = line.partition("\t")
        values[path] = value if separator else None
    return values


def write_settings(
    sps: Host, writes: Sequence[tuple[str, str]], timeout_s: float = 20
) -> list[str]:
    """Write kernel settings to files in the given order. Return the files that the kernel refuses to write."""
    if not writes:
        return []
    arguments = [text for write in writes for text in write]
    return sps.shell(WRITE_SCRIPT, *arguments, timeout_s=timeout_s).stdout.splitlines()


def write_undo(sps: Host, text: str) -> None:
    """Write the undo script to a temporary file on the host, and rename it, so that no partial script can exist."""
    partial = sps.undo_file.with_suffix(".partial")
    sps.put_text(text, partial)
    sps.run(["mv", str(partial), str(sps.undo_file)])


def undo_script(
    before: Mapping[str, str | None],
    hotplugged: Sequence[str],
    services: Sequence[HostService],
) -> str:
    """Return a shell script that restores settings.

    CPUs are restored first, because switching a CPU on resets settings.
    """
    scaling = f"{Setting.TUNABLE_SCALING}"
    known = {path: value for path, value in before.items() if value is not None}
    cpus = sorted(
        (path for path in known if path in hotplugged), key=lambda path: known[path] == "0"
    )
    # Write tunable_scaling last, because a write to tunable_scaling makes Linux 5.13 to 6.5 recompute latency /
    # granularity.
    others = sorted((path for path in known if path not in cpus), key=lambda p: p.endswith(scaling))
    lines = [
        "# Restores the settings of this host that a run of sipsched has changed.",
        "put() {",
        '    printf %s "$2" > "$1"',
        "}",
        "restore() {",
        '    [ "$(cat "$1")" = "$2" ] || put "$1" "$2"',
        "}",
        "check() {",
        '    [ "$(cat "$1")" = "$2" ] || { echo "$1: expected $2, found $(cat "$1")"; failed=1; }',
        "}",
        *(shlex.join(("restore", path, known[path])) for path in (*cpus, *others)),
        # tunable_scaling is written even if it has its original value, because Linux 5.13 to 6.5 recompute the ratio of
        # latency to granularity only when tunable_scaling is written.
        *(shlex.join(("put", path, known[path])) for path in others if path.endswith(scaling)),
        *(shlex.join(service.undo) for service in services),
        *(shlex.join(("check", path, known[path])) for path in (*cpus, *others)),
        'exit "${failed:-0}"',
    ]
    return "\n".join(lines) + "\n"


def succeeds(sps: Host, argv: Sequence[str]) -> bool:
    """Run a command on the host, and return True if its exit code is 0."""
    return sps.run(argv, check=False).exit_code == 0
