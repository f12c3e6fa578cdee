"""The settings of the proxy's host during a run: CPUs, scheduler mode, and sources of noise."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from sipsched.errors import SipschedError, StableError
from sipsched.measure import scheduler
from sipsched.measure.cpu_layout import LSCPU, CpuLayout, parse_lscpu
from sipsched.measure.quiet import check_interfaces, quiet_files, service_commands, stop_noise
from sipsched.measure.restoring import (
    CPU_FOLDER,
    HOTPLUG_TIMEOUT_S,
    HostService,
    read_settings,
    repair,
    undo_script,
    write_settings,
    write_undo,
)
from sipsched.measure.scheduler import (
    PLAIN,
    KernelScheduler,
    Step,
    TaskAttributes,
    compile_mode,
    is_translation,
    label,
    refuse_tasks,
    task_attributes,
    task_places,
    writes,
)
from sipsched.plan.modes import RANGES, Counts, Mode, Policy, Setting
from sipsched.records.scheduler_report import SchedulerReport, SettingReport
from sipsched.testbed.host import Host, Process
from sipsched.testbed.inventory import Testbed, native_folder
from sipsched.testbed.topology import parse_cpu_list

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


@dataclass
class Tuned:
    """The settings of the proxy's host during a run.

    Attributes
    ----------
    steps
        The settings of the mode, translated for this kernel.
    read_back
        The value of each setting after writing; None if the value cannot be read. For an attribute of tasks, the value
        is a list with one entry per process of the proxy.
    quiet
        The state of each source of noise.
    repaired
        Whether the settings of an earlier, interrupted run had to be restored first.
    """

    mode: Mode
    layout: CpuLayout
    kernel: KernelScheduler
    steps: list[Step]
    read_back: dict[str, Any] = field(default_factory=dict)
    quiet: list[dict[str, Any]] = field(default_factory=list)
    repaired: bool = False

    @property
    def label(self) -> str:
        """The label of the mode in figures, which also names translated and missing settings."""
        return label(self.mode, self.kernel, self.steps)

    @property
    def unlike_asked(self) -> int:
        """The number of settings for which the kernel later reports no value, or another than the written value."""
        # The setting that turns the probe's recording on or off is not compared. Every run begins with recording on,
        # and the program `switcher` checks later changes of this setting.
        written = [
            step
            for step in self.steps
            if step.unavailable is None and step.place != scheduler.PROBE_CONTROL
        ]
        return sum(not _reads_back(step, self.read_back.get(step.place or "")) for step in written)

    def report(self) -> SchedulerReport:
        """Return each setting with the requested value, the written value and the value read back, for `run.json`."""
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


def _reads_back(step: Step, read_back: Any) -> bool:
    if isinstance(read_back, list):
        return bool(read_back) and all(value == step.value for value in read_back)
    return read_back is not None and int(read_back) == step.value


def read_kernel(sps: Host) -> KernelScheduler:
    """Read the scheduler settings of a host's kernel."""
    sliced = TaskAttributes(slice_ns=RANGES[Setting.SLICE][0])
    plain_found, sliced_found = try_attributes(sps, (PLAIN, sliced))
    base_slice_ns = plain_found.slice_ns if isinstance(plain_found, TaskAttributes) else 0
    return KernelScheduler(
        files=read_settings(sps, scheduler.FILES),
        task_slices=isinstance(sliced_found, TaskAttributes),
        base_slice_ns=base_slice_ns or None,
    )


def read_layout(sps: Host, cpus: Sequence[int]) -> CpuLayout:
    """Read the core, processor and cache of some online CPUs of a host."""
    return parse_lscpu(sps.run(LSCPU).stdout, cpus)


def compile_modes(
    sps: Host, modes: Sequence[Mode], kernel: KernelScheduler, counts: Counts
) -> dict[str, list[Step]]:
    """Translate modes for the kernel of a host, and try the modes' task attributes on a test process.

    Parameters
    ----------
    sps
        The host of the proxy.
    counts
        The run's own numbers of cores and workers, which the modes' names can override.

    Returns
    -------
    The translated settings by the name of the mode, in the order of `modes`. If the kernel refuses a task attribute of
    a mode (RT group scheduling, no CAP_SYS_NICE), all task attributes of the mode are unavailable.

    Raises
    ------
    StableError
        A mode has no settings for this number of cores.
    """
    compiled = {mode.name: compile_mode(mode.settings(counts), kernel) for mode in modes}
    asked = {name: task_attributes(steps) for name, steps in compiled.items()}
    to_try = [attributes for attributes in dict.fromkeys(asked.values()) if attributes != PLAIN]
    refused = {
        attributes: f"the kernel refuses: {answer}"
        for attributes, answer in zip(to_try, try_attributes(sps, to_try), strict=True)
        if isinstance(answer, str)
    }
    return {
        name: refuse_tasks(steps, refused[asked[name]]) if asked[name] in refused else steps
        for name, steps in compiled.items()
    }


def compiled_here(
    sps: Host, state: Tuned, modes: Sequence[Mode], cores: int, threads: int
) -> list[Tuned]:
    """Translate modes for a host that a run has already configured, without applying the modes."""
    counts = Counts(cores, threads, state.layout.processors)
    compiled = compile_modes(sps, modes, state.kernel, counts)
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
    """Apply a number of cores and a scheduler mode to the proxy's host while the `with` block runs.

    A script that restores the original settings is written to the host first. The script runs at the end of the `with`
    block, even after an error. If the connection breaks, the host or the next run executes the script.

    Parameters
    ----------
    sps
        The host of the proxy.
    testbed
        The testbed, whose file contains the order of the CPUs and the settings that a run may change.
    cores
        Number of CPUs of the proxy, which are the first CPUs in the testbed's list. If a mode starts an instance with
        more cores, the SPS uses this larger number of CPUs.
    others
        Other modes to which the `with` block switches. The settings of these modes are also restored.

    Raises
    ------
    StableError
        The kernel refuses to write a setting, or to take a CPU offline.
    """
    repaired = repair(sps)
    check_interfaces(sps, testbed.tuning)
    cpus = sps.spec.cpus[: max(declared.other.cores or cores for declared in (mode, *others))]
    hotplug = _hotplug(sps, testbed, cpus)
    services = service_commands(sps, testbed.tuning)
    counts = Counts(cores, threads, 1)
    asks = any(declared.settings(counts) for declared in (mode, *others))
    may_change = bool(hotplug or services or testbed.tuning.changes or asks)
    if may_change:
        before = read_settings(
            sps,
            (*scheduler.FILES, *quiet_files(testbed.tuning), *(path for path, _ in hotplug)),
        )
        undo = undo_script(before, [path for path, _ in hotplug], services)
        write_undo(sps, undo)
    try:
        state = _change(sps, testbed, mode, cpus, counts, hotplug, services)
        state.repaired = repaired
        yield state
    except BaseException as error:
        try:
            repair(sps)
        except SipschedError as second:
            error.add_note(f"{second}; the next run tries again to restore the settings")
        raise
    else:
        repair(sps)


def _change(
    sps: Host,
    testbed: Testbed,
    mode: Mode,
    cpus: Sequence[int],
    counts: Counts,
    hotplug: Sequence[tuple[str, str]],
    services: Sequence[HostService],
) -> Tuned:
    """Write all settings, with the CPUs first, and read the settings back from the kernel."""
    refused = write_settings(sps, hotplug, timeout_s=HOTPLUG_TIMEOUT_S)
    for service in services:
        sps.run(service.stop)
    quiet = stop_noise(sps, testbed.tuning)
    layout, kernel = read_layout(sps, cpus), read_kernel(sps)
    counts = replace(counts, processors=layout.processors)
    steps = compile_modes(sps, [mode], kernel, counts)[mode.name]
    to_write = [(path, str(value)) for path, value in writes(steps)]
    refused += write_settings(sps, to_write)
    if refused:
        told = ", ".join(f"{dict((*hotplug, *to_write))[path]} to {path}" for path in refused)
        raise StableError(f"host {sps.spec}: the kernel refuses: {told}")
    written = read_settings(sps, [path for path, _ in to_write])
    read_back = {path: written.get(path) for path, _ in to_write}
    return Tuned(mode, layout, kernel, steps, read_back, quiet)


def task_prefix(state: Tuned, sps: Host) -> list[str]:
    """Return the command prefix that starts a program with the scheduling attributes of the mode."""
    if not task_places(state.steps):
        return []
    return [str(_taskslice(sps)), "run", *task_attributes(state.steps).words]


def read_tasks(state: Tuned, sps: Host, proxy: Process, program: str) -> None:
    """Store the scheduling attributes of each process of the proxy, to check later that the mode is in force."""
    places = task_places(state.steps)
    if not places:
        return
    done = sps.shell(
        '"$1" read $(pgrep --pgroup "$(cat "$2")" "$3")', _taskslice(sps), proxy.pid_file, program
    )
    tasks = [_attributes(line.split()[1:]) for line in done.stdout.splitlines()]
    for place in places:
        state.read_back[place] = [attributes.value(place) for attributes in tasks]


def _taskslice(sps: Host) -> PurePosixPath:
    return native_folder(sps.base, "scheduler") / "taskslice"


def try_attributes(sps: Host, wanted: Sequence[TaskAttributes]) -> list[TaskAttributes | str]:
    """Try several sets of scheduling attributes, each on a test process.

    For each set, the result is the attributes of the process after the attempt, or the reason for the kernel's refusal.
    """
    if not wanted:
        return []
    words = [word for attributes in wanted for word in attributes.words]
    answers = sps.shell(TRY_SCRIPT, _taskslice(sps), *words).stdout.splitlines()
    return [
        _attributes(said.split()) if answer == "yes" else said
        for answer, _, said in (line.partition(" ") for line in answers)
    ]


def _attributes(words: Sequence[str]) -> TaskAttributes:
    """Parse the scheduling attributes of a task from the output of the program `taskslice`."""
    policy, nice, priority, slice_ns = words
    return TaskAttributes(Policy(policy), int(nice), int(priority), int(slice_ns))


def _hotplug(sps: Host, testbed: Testbed, cpus: Sequence[int]) -> list[tuple[str, str]]:
    """Return the kernel files and values that switch needed CPUs on and other CPUs off, in the order of writing."""
    if testbed.tuning.cores_by != "hotplug":
        return []
    online = parse_cpu_list(sps.run(["cat", CPU_FOLDER + "online"]).stdout)
    switches = read_settings(sps, (CPU_FOLDER + "cpu[0-9]*/online",))
    wanted = {*cpus, *sps.spec.helper_cpus, *testbed.tuning.interrupt_cpus}
    fixed = set(online) - {int(path.split("/")[-2][3:]) for path in switches}
    up = sorted(wanted - set(online))
    down = sorted(set(online) - wanted - fixed)
    return [
        *((f"{CPU_FOLDER}cpu{cpu}/online", "1") for cpu in up),
        *((f"{CPU_FOLDER}cpu{cpu}/online", "0") for cpu in down),
    ]
