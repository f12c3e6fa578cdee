"""What a run changes on the SPS: CPUs, scheduler mode, what would blur a comparison; and its undoing."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from sipsched.errors import SipschedError, StableError
from sipsched.measure import scheduler
from sipsched.measure.cpu_layout import LSCPU, Layout, cpu_mask, parse_cpu_list, parse_lscpu
from sipsched.measure.scheduler import (
    PLAIN,
    KernelScheduler,
    Step,
    TaskAttributes,
    compile_mode,
    is_translation,
    label,
    refuse_tasks,
    same_settings,
    task_attributes,
    task_places,
    writes,
)
from sipsched.plan.modes import (
    NAMED,
    RANGES,
    Counts,
    Mode,
    Policy,
    Setting,
    find_mode,
    load_modes,
    value_name,
)
from sipsched.records.run_document import SchedulerReport, SettingReport
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import Testbed, Tuning, native_folder

CPU_FOLDER = "/sys/devices/system/cpu/"
HOTPLUG_TIMEOUT_S = 60
QUIET = {
    "autogroup": (("/proc/sys/kernel/sched_autogroup_enabled", "0"),),
    "governor": ((CPU_FOLDER + "cpu[0-9]*/cpufreq/scaling_governor", "performance"),),
    "turbo": (
        (CPU_FOLDER + "intel_pstate/no_turbo", "1"),
        (CPU_FOLDER + "cpufreq/boost", "0"),
    ),
    "numa_balancing": (("/proc/sys/kernel/numa_balancing", "0"),),
}
"""What would blur a comparison of modes: files (shell patterns), and the value that stills it."""
INTERRUPTS = "/proc/irq/[0-9]*/smp_affinity_list"
RECEIVE_QUEUES = "/sys/class/net/{}/queues/rx-*/rps_cpus"
STEERED = ("interrupts", "receive steering")

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
TRY_SCRIPT = """\
taskslice=$1
shift
while [ $# -gt 0 ]; do
    if said=$("$taskslice" try "$1" "$2" "$3" "$4" 2>&1); then
        echo "yes $said"
    else
        echo "no ${said#taskslice: }"
    fi
    shift 4
done
"""
WRITE_SCRIPT = """\
while [ $# -gt 0 ]; do
    printf '%s' "$2" 2>/dev/null > "$1" || echo "$1"
    shift 2
done
"""


@dataclass(frozen=True)
class Service:
    """A service to be stilled: the command that does it, and the one that undoes it."""

    still: tuple[str, ...]
    undo: tuple[str, ...]


@dataclass
class Tuned:
    """The SPS as a run has it.

    Attributes
    ----------
    mode
        What was asked for.
    layout
        The CPUs of the SPS.
    kernel
        What the kernel shows of its scheduler.
    steps
        The mode, compiled to this kernel.
    read_back
        By place, what stands there now; of attributes of single tasks one value for each of the proxy's
        processes. None where it cannot be read.
    quiet
        One entry for each thing that would blur a comparison.
    repaired
        Whether an earlier, interrupted run had left the host changed.
    """

    mode: Mode
    layout: Layout
    kernel: KernelScheduler
    steps: list[Step]
    read_back: dict[str, Any] = field(default_factory=dict)
    quiet: list[dict[str, Any]] = field(default_factory=list)
    repaired: bool = False

    @property
    def label(self) -> str:
        """Name of the mode as figures have it."""
        return label(self.mode, self.kernel, self.steps)

    @property
    def unlike_asked(self) -> int:
        """Number of settings that were written and do not read back as written."""
        # the probe records when a comparison begins; its switches are read back by themselves
        written = [
            step
            for step in self.steps
            if step.unavailable is None and step.place != scheduler.PROBE_CONTROL
        ]
        return sum(not _reads_back(step, self.read_back.get(step.place or "")) for step in written)

    def report(self) -> SchedulerReport:
        """Give asked, applied, read back and unavailable-because, as run.json has them."""
        current = {
            path: text.strip() if text is not None else None
            for path, text in self.kernel.files.items()
        }
        return SchedulerReport(
            mode=self.mode.name,
            label=self.label,
            translated=is_translation(self.mode, self.kernel, self.steps),
            source=self.mode.source,
            family=str(self.kernel.family),
            found=current,
            steps=tuple(
                SettingReport(
                    setting=str(step.setting),
                    asked=step.asked,
                    place=step.place,
                    applied=step.value,
                    read_back=self.read_back.get(step.place or ""),
                    unavailable=step.unavailable,
                )
                for step in self.steps
            ),
            quiet=tuple(self.quiet),
            repaired=self.repaired,
            base_slice_ns=self.kernel.base_slice_ns,
        )


def _reads_back(step: Step, found: Any) -> bool:
    if isinstance(found, list):
        return bool(found) and all(value == step.value for value in found)
    return found is not None and int(found) == step.value


def read_kernel(sps: Host) -> KernelScheduler:
    """Find out where the host's kernel keeps the scheduler's settings."""
    sliced = TaskAttributes(slice_ns=RANGES[Setting.SLICE][0])
    plain_found, sliced_found = try_attributes(sps, (PLAIN, sliced))
    base_slice_ns = plain_found.slice_ns if isinstance(plain_found, TaskAttributes) else 0
    return KernelScheduler(
        files=_read(sps, scheduler.FILES),
        task_slices=isinstance(sliced_found, TaskAttributes),
        base_slice_ns=base_slice_ns or None,
    )


def read_layout(sps: Host, cpus: Sequence[int]) -> Layout:
    """Find out what these CPUs of the host, which have to be online, share."""
    return parse_lscpu(sps.run(LSCPU).stdout, cpus)


def compile_modes(
    sps: Host, modes: Sequence[Mode], layout: Layout, kernel: KernelScheduler, threads: int
) -> dict[str, list[Step]]:
    """Compile modes to a host's kernel; attributes of tasks are tried on a process of their own.

    Parameters
    ----------
    sps
        The host of the proxy.
    modes
        Scheduler settings.
    layout, kernel
        What was read of the host.
    threads
        Workers of the proxy.

    Returns
    -------
    dict
        Name of each mode to its steps, in the order of `modes`. Where the kernel refuses a task what the
        mode asks for (RT group scheduling, no CAP_SYS_NICE), its attributes are unavailable, all of them.

    Raises
    ------
    StableError
        A mode has no variant for so many cores.
    """
    counts = Counts(cores=len(layout.cpus), threads=threads, processors=layout.processors)
    compiled = {mode.name: compile_mode(mode.settings(counts), kernel) for mode in modes}
    asked = {name: task_attributes(steps) for name, steps in compiled.items()}
    to_try = [attributes for attributes in dict.fromkeys(asked.values()) if attributes != PLAIN]
    refused = {
        attributes: f"the kernel refuses: {found}"
        for attributes, found in zip(to_try, try_attributes(sps, to_try), strict=True)
        if isinstance(found, str)
    }
    return {
        name: refuse_tasks(steps, refused[asked[name]]) if asked[name] in refused else steps
        for name, steps in compiled.items()
    }


def compiled_here(sps: Host, state: Tuned, modes: Sequence[Mode], threads: int) -> list[Tuned]:
    """Say what other modes would come to on a host that is tuned; nothing of them is set."""
    compiled = compile_modes(sps, modes, state.layout, state.kernel, threads)
    return [Tuned(mode, state.layout, state.kernel, compiled[mode.name]) for mode in modes]


@contextmanager
def tuned(
    sps: Host,
    testbed: Testbed,
    mode: Mode,
    cores: int,
    threads: int,
    others: Sequence[Mode] = (),
) -> Iterator[Tuned]:
    """Bring the SPS to its cores and mode, and back again when the block ends.

    What is changed is first written to a script on the host that undoes it. It is run at the end,
    also after an error; where the connection was lost, the next contact runs it.

    Parameters
    ----------
    sps
        The host of the proxy.
    testbed
        Its file says which CPUs in which order, how to take the others away, and what else may be set.
    mode
        Scheduler settings.
    cores
        The first so many CPUs are the SPS's.
    threads
        Workers of the proxy.
    others
        Modes that the block brings about by itself; what they change is undone, too.

    Raises
    ------
    StableError
        The kernel refuses a setting that it has, or does not take a CPU offline.
    """
    repaired = repair(sps)
    _check_interfaces(sps, testbed.tuning)
    cpus = sps.spec.cpus[:cores]
    hotplug = _hotplug(sps, testbed, cpus)
    services = _service_commands(sps, testbed.tuning)
    counts = Counts(cores, threads, 1)
    asks = any(each.settings(counts) for each in (mode, *others))
    may_change = bool(hotplug or services or testbed.tuning.changes or asks)
    if may_change:
        before = _read(
            sps,
            (*scheduler.FILES, *_quiet_files(testbed.tuning), *(path for path, _ in hotplug)),
        )
        undo = _undo_script(before, [path for path, _ in hotplug], services)
        _write_undo(sps, undo)
    try:
        state = _change(sps, testbed, mode, cpus, threads, hotplug, services)
        state.repaired = repaired
        yield state
    except BaseException as error:
        try:
            repair(sps)
        except SipschedError as second:
            error.add_note(f"{second}; the next run undoes it")
        raise
    else:
        repair(sps)


def _change(
    sps: Host,
    testbed: Testbed,
    mode: Mode,
    cpus: Sequence[int],
    threads: int,
    hotplug: Sequence[tuple[str, str]],
    services: Sequence[Service],
) -> Tuned:
    """Change what is to be changed, CPUs first, and read it back."""
    refused = _write(sps, hotplug, timeout_s=HOTPLUG_TIMEOUT_S)
    for service in services:
        sps.run(service.still)
    quiet = _still(sps, testbed.tuning)
    layout, kernel = read_layout(sps, cpus), read_kernel(sps)
    steps = compile_modes(sps, [mode], layout, kernel, threads)[mode.name]
    to_write = [(path, str(value)) for path, value in writes(steps)]
    refused += _write(sps, to_write)
    if refused:
        told = ", ".join(f"{dict((*hotplug, *to_write))[path]} to {path}" for path in refused)
        raise StableError(f"host {sps.spec}: the kernel refuses: {told}")
    found = _read(sps, [path for path, _ in to_write])
    read_back = {path: found.get(path) for path, _ in to_write}
    return Tuned(mode, layout, kernel, steps, read_back, quiet)


def task_prefix(state: Tuned, sps: Host) -> list[str]:
    """Give the command that starts a program with the mode's attributes; empty where it has none."""
    if not task_places(state.steps):
        return []
    return [str(_taskslice(sps)), "run", *task_attributes(state.steps).words]


def read_tasks(state: Tuned, sps: Host, proxy: Process, program: str) -> None:
    """Read the attributes of each of the proxy's processes back, as far as the mode sets them."""
    places = task_places(state.steps)
    if not places:
        return
    done = sps.shell(
        '"$1" read $(pgrep --pgroup "$(cat "$2")" "$3")', _taskslice(sps), proxy.pid_file, program
    )
    found = [_attributes(line.split()[1:]) for line in done.stdout.splitlines()]
    for place in places:
        state.read_back[place] = [attributes.value(place) for attributes in found]


def repair(sps: Host) -> bool:
    """Undo what a run changed on the SPS, if it has not been undone.

    Returns
    -------
    bool
        Whether there was something to undo.

    Raises
    ------
    StableError
        Something does not read back as it was; the script that undoes it stays on the host.
    """
    if not _succeeds(sps, ["test", "-e", str(sps.undo_file)]):
        return False
    done = sps.run(["sh", str(sps.undo_file)], check=False, timeout_s=HOTPLUG_TIMEOUT_S)
    if done.exit_code != 0:
        raise StableError(
            f"host {sps.spec}: settings could not be restored: "
            f"{'; '.join((done.stdout + done.stderr).split(chr(10))).strip('; ')}; "
            f"look at {sps.undo_file} there, set them by hand and remove it"
        )
    sps.run(["rm", "-f", str(sps.undo_file)])
    return True


def modes_table(sps: Host, cores: int, threads: int) -> list[str]:
    """Say for every declared mode what it asks for at a point and where that goes on a host.

    Returns
    -------
    list of str
        Lines of a table: mode, setting, value, place, and whether it can be set; and which modes come to
        the same settings.
    """
    declared = load_modes()
    rows = [("mode", "setting", "value", "goes to", "can be set")]
    layout, kernel = read_layout(sps, sps.spec.cpus[:cores]), read_kernel(sps)
    modes = [find_mode(name, declared) for name in declared]
    compiled = compile_modes(sps, modes, layout, kernel, threads)
    for name, steps in compiled.items():
        if not steps:
            rows.append((name, "none", "", "", "changes nothing"))
        for step in steps:
            value = "as it is" if step.asked is None else _with_unit(step.setting, step.asked)
            if step.value is not None and step.asked not in (None, step.value):
                value += f" (as {_with_unit(step.setting, step.value)})"
            can = "no: " + step.unavailable if step.unavailable else "yes"
            rows.append((name, step.setting.key, value, step.place or "nowhere", can))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    where = f"{layout.processors} processor(s); {kernel.family}"
    if kernel.base_slice_ns is not None:
        where += f"; base slice {kernel.base_slice_ns:,} ns"
    heading = f"{sps.spec}: {cores} core(s), {threads} threads; {where}"
    return [
        heading,
        *("  ".join((*map(str.ljust, row[:4], widths), row[4])).rstrip() for row in rows),
        *(f"the same settings here: {', '.join(same)}" for same in same_settings(compiled, kernel)),
    ]


def asked_table(cores: int, threads: int) -> list[str]:
    """Say for every declared mode what it asks for at a point, whatever the kernel; one processor.

    Returns
    -------
    list of str
        Lines of a table: mode, setting, value.

    Raises
    ------
    StableError
        A number is none that a point can have.
    """
    if cores < 1 or threads < 1:
        raise StableError(f"expected at least one core and one thread, found {cores} and {threads}")
    declared = load_modes()
    counts = Counts(cores=cores, threads=threads, processors=1)
    rows = [("mode", "setting", "asks for")]
    for name in declared:
        try:
            settings = find_mode(name, declared).settings(counts)
        except StableError as error:
            rows.append((name, "not declared", str(error)))
            continue
        for setting, value in settings.items():
            rows.append((name, setting.key, _with_unit(setting, value)))
        if not settings:
            rows.append((name, "none", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [
        f"{cores} core(s) of one processor, {threads} threads; any kernel",
        *("  ".join((*map(str.ljust, row[:2], widths), row[2])).rstrip() for row in rows),
    ]


def _with_unit(setting: Setting, value: int) -> str:
    if setting in NAMED:
        return value_name(setting, value)
    return f"{value:,} ns" if setting.endswith("_ns") else str(value)


def _taskslice(sps: Host) -> PurePosixPath:
    return native_folder(sps.base, "scheduler") / "taskslice"


def try_attributes(sps: Host, wanted: Sequence[TaskAttributes]) -> list[TaskAttributes | str]:
    """Give processes of their own these attributes: what each then has, or why the kernel refuses."""
    if not wanted:
        return []
    words = [word for attributes in wanted for word in attributes.words]
    answers = sps.shell(TRY_SCRIPT, _taskslice(sps), *words).stdout.splitlines()
    return [
        _attributes(said.split()) if answer == "yes" else said
        for answer, _, said in (line.partition(" ") for line in answers)
    ]


def _attributes(words: Sequence[str]) -> TaskAttributes:
    """Read what `taskslice` prints of a task."""
    policy, nice, priority, slice_ns = words
    return TaskAttributes(Policy(policy), int(nice), int(priority), int(slice_ns))


def _read(sps: Host, patterns: Sequence[str]) -> dict[str, str | None]:
    """Read files of one line; those that are not there are left out, None where reading is refused."""
    found: dict[str, str | None] = {}
    for line in sps.shell(READ_SCRIPT, *patterns).stdout.splitlines():
        path, separator, value = line.partition("\t")
        found[path] = value if separator else None
    return found


def _write(sps: Host, writes: Sequence[tuple[str, str]], timeout_s: float = 20) -> list[str]:
    """Write files in this order; those that the kernel refuses come back."""
    if not writes:
        return []
    arguments = [text for write in writes for text in write]
    return sps.shell(WRITE_SCRIPT, *arguments, timeout_s=timeout_s).stdout.splitlines()


def _write_undo(sps: Host, text: str) -> None:
    partial = sps.undo_file.with_suffix(".partial")
    sps.put_text(text, partial)
    sps.run(["mv", str(partial), str(sps.undo_file)])


def _undo_script(
    before: Mapping[str, str | None],
    hotplugged: Sequence[str],
    services: Sequence[Service],
) -> str:
    """Write the script that brings everything back: CPUs first, since that resets the settings."""
    scaling = f"{Setting.TUNABLE_SCALING}"
    known = {path: value for path, value in before.items() if value is not None}
    cpus = sorted(
        (path for path in known if path in hotplugged), key=lambda path: known[path] == "0"
    )
    # the scaling last: Linux 5.13 to 6.5 takes the others in when it is written
    others = sorted((path for path in known if path not in cpus), key=lambda p: p.endswith(scaling))
    lines = [
        "# Brings the settings of this host back to what they were before a run of sipsched.",
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
        # written even where it already has its value
        *(shlex.join(("put", path, known[path])) for path in others if path.endswith(scaling)),
        *(shlex.join(service.undo) for service in services),
        *(shlex.join(("check", path, known[path])) for path in (*cpus, *others)),
        'exit "${failed:-0}"',
    ]
    return "\n".join(lines) + "\n"


def _hotplug(sps: Host, testbed: Testbed, cpus: Sequence[int]) -> list[tuple[str, str]]:
    """Say which CPUs to bring online and take offline, in this order."""
    if testbed.tuning.cores_by != "hotplug":
        return []
    online = parse_cpu_list(sps.run(["cat", CPU_FOLDER + "online"]).stdout)
    switches = _read(sps, (CPU_FOLDER + "cpu[0-9]*/online",))
    wanted = {*cpus, *sps.spec.helper_cpus, *testbed.tuning.interrupt_cpus}
    fixed = set(online) - {int(path.split("/")[-2][3:]) for path in switches}
    up = sorted(wanted - set(online))
    down = sorted(set(online) - wanted - fixed)
    return [
        *((f"{CPU_FOLDER}cpu{cpu}/online", "1") for cpu in up),
        *((f"{CPU_FOLDER}cpu{cpu}/online", "0") for cpu in down),
    ]


def _check_interfaces(sps: Host, tuning: Tuning) -> None:
    """Refuse interfaces to steer that the host has not.

    Raises
    ------
    StableError
        Names them, and those that there are.
    """
    if not tuning.receive_interfaces:
        return
    there = sps.run(["ls", "/sys/class/net"]).stdout.split()
    missing = [name for name in tuning.receive_interfaces if name not in there]
    if missing:
        raise StableError(
            f"host {sps.spec}: tuning.receive_interfaces: no interface {', '.join(missing)}; "
            f"there are: {', '.join(there)}"
        )


def _quiet_files(tuning: Tuning) -> list[str]:
    """Give the patterns of all files that may be written for quiet."""
    patterns = [pattern for names in QUIET.values() for pattern, _ in names]
    if tuning.interrupt_cpus:
        patterns.append(INTERRUPTS)
    return patterns + [RECEIVE_QUEUES.format(name) for name in tuning.receive_interfaces]


def _still(sps: Host, tuning: Tuning) -> list[dict[str, Any]]:
    """Still what would blur a comparison, where the testbed's file allows it, and say how it stands."""
    entries: list[dict[str, Any]] = []
    patterns = _quiet_files(tuning)
    for path, found in _read(sps, patterns).items():
        pattern = next(pattern for pattern in patterns if fnmatchcase(path, pattern))
        name, value = _quiet_value(pattern, tuning)
        asked = value if name in tuning.quiet or name in STEERED else None
        entries.append({"name": name, "path": path, "found": found, "asked": asked})
    _write(sps, [(e["path"], e["asked"]) for e in entries if e["asked"] and e["found"] is not None])
    now = _read(sps, [entry["path"] for entry in entries])
    # some interrupts cannot be moved: what is read back says which
    return [entry | {"read_back": now.get(entry["path"])} for entry in entries]


def _quiet_value(pattern: str, tuning: Tuning) -> tuple[str, str]:
    """Say what a pattern is about, and the value that stills it."""
    for name, files in QUIET.items():
        if pattern in dict(files):
            return name, dict(files)[pattern]
    if pattern == INTERRUPTS:
        return "interrupts", ",".join(map(str, tuning.interrupt_cpus))
    return "receive steering", cpu_mask(tuning.receive_cpus)


def _service_commands(sps: Host, tuning: Tuning) -> list[Service]:
    services = []
    if "irqbalance" in tuning.quiet and _succeeds(sps, ["pgrep", "-x", "irqbalance"]):
        services.append(
            Service(("service", "irqbalance", "stop"), ("service", "irqbalance", "start"))
        )
    if tuning.service_cpus and _succeeds(sps, ["test", "-d", "/run/systemd/system"]):
        to_set = ("systemctl", "set-property", "--runtime", "system.slice")
        cpus = ",".join(map(str, tuning.service_cpus))
        services.append(Service((*to_set, f"AllowedCPUs={cpus}"), (*to_set, "AllowedCPUs=")))
    return services


def _succeeds(sps: Host, argv: Sequence[str]) -> bool:
    return sps.run(argv, check=False).exit_code == 0
