"""The translation of a scheduler mode for a kernel: each setting becomes a kernel file's value or a task attribute."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from sipsched.plan import modes
from sipsched.plan.modes import DEFAULT, PAPERS, RANGES, Mode, Policy, Setting

SYSCTL = "/proc/sys/kernel/"
DEBUGFS = "/sys/kernel/debug/sched/"
BASE_SLICE = DEBUGFS + "base_slice_ns"
TASK_SLICE = "sched_setattr of each worker"
"""Name of the system call that sets the slice of a task."""
TASK_PLACES: Mapping[Setting, str] = MappingProxyType(
    {
        Setting.POLICY: f"{TASK_SLICE}: policy",
        Setting.NICE: f"{TASK_SLICE}: nice value",
        Setting.PRIORITY: f"{TASK_SLICE}: priority",
        Setting.SLICE: TASK_SLICE,
    }
)
"""The name that tables and records show for each task attribute. A single system call sets all four attributes."""

PROBE_CONTROL = "control socket of the probe"
"""Name of the socket that switches the recording of the probe on and off."""

FILES = (
    *(SYSCTL + f"sched_{setting}" for setting in PAPERS),
    SYSCTL + "sched_migration_cost",
    *(DEBUGFS + setting for setting in PAPERS),
    BASE_SLICE,
)
"""Every file in which some kernel version has a scheduler setting."""

U32_MAX = 2**32 - 1
SYSCTL_RANGES = {
    # SEE kernel/sysctl.c before Linux 5.13 for the ranges of settings such as min_sched_granularity_ns
    Setting.LATENCY: (100_000, 1_000_000_000),
    Setting.MIN_GRANULARITY: (100_000, 1_000_000_000),
    Setting.WAKEUP_GRANULARITY: (0, 1_000_000_000),
    Setting.MIGRATION_COST: (0, U32_MAX),
    Setting.TUNABLE_SCALING: (0, 2),
}
WITHOUT_EQUIVALENT = {
    Setting.LATENCY: "EEVDF has no latency period: a task's deadline follows from its slice",
    Setting.WAKEUP_GRANULARITY: "EEVDF decides by eligibility and deadline whether a woken task "
    "preempts the running task",
}


class KernelFamily(StrEnum):
    """A family of kernels that have the scheduler settings in the same files."""

    SYSCTL = "CFS, /proc/sys/kernel (Linux 2.6.32 to 5.12)"
    DEBUGFS = "CFS, debugfs (Linux 5.13 to 6.5)"
    EEVDF = "EEVDF (Linux 6.6 and later)"


@dataclass(frozen=True)
class KernelScheduler:
    """The scheduler settings of a kernel, with their files and current values.

    Attributes
    ----------
    files
        The files of `FILES` that exist, with their text. The text is None if the kernel refuses to read the file.
    task_slices
        Whether the kernel can set the slice of a single task.
    base_slice_ns
        The slice that the kernel reports for a task without its own slice. The kernel reports this slice even if the
        file of the base slice cannot be read. None on kernels that do not report the slice.
    """

    files: Mapping[str, str | None]
    task_slices: bool
    base_slice_ns: int | None = None

    @property
    def family(self) -> KernelFamily:
        """The family of the kernel (kernels with the same settings files), found from the kernel's existing files.

        Distributions backport changes, so the version is unreliable.
        """
        if SYSCTL + f"sched_{Setting.LATENCY}" in self.files:
            return KernelFamily.SYSCTL
        return (
            KernelFamily.DEBUGFS if DEBUGFS + Setting.LATENCY in self.files else KernelFamily.EEVDF
        )

    def place(self, setting: Setting) -> str | None:
        """Return the path of the kernel file for a setting, or None if the kernel has no such file."""
        candidates = [SYSCTL + f"sched_{setting}", DEBUGFS + setting]
        if setting is Setting.MIGRATION_COST:
            candidates.append(SYSCTL + "sched_migration_cost")
        return next((path for path in candidates if path in self.files), None)

    def why_not(self, path: str | None, setting: Setting) -> str | None:
        """Return the reason why the kernel file of a setting cannot be written, or None if the file can be written."""
        if path is None or path not in self.files:
            return f"this kernel has no file for {setting}"
        if self.files[path] is None:
            return f"{path} cannot be opened: the kernel is locked down"
        return None


@dataclass(frozen=True)
class Step:
    """One setting of a mode, translated for one kernel.

    Attributes
    ----------
    asked
        The value that the mode requests. None if the step only writes the current value again.
    place
        The path of a file, or one of `TASK_PLACES`; None if the kernel does not have the setting.
    value
        The value to write.
    unavailable
        The reason why the setting cannot be written; None if it can be written.
    """

    setting: Setting
    asked: int | None
    place: str | None = None
    value: int | None = None
    unavailable: str | None = None


@dataclass(frozen=True)
class TaskAttributes:
    """The scheduling attributes that sipsched sets for every process of the proxy.

    Attributes
    ----------
    nice
        Nice value; 0 with a real-time policy, which has no nice value.
    priority
        Priority; 1 to 99 with a real-time policy, otherwise 0.
    slice_ns
        Slice in ns; 0 for the kernel's base slice, and with a real-time policy.
    """

    policy: Policy = Policy.OTHER
    nice: int = 0
    priority: int = 0
    slice_ns: int = 0

    @property
    def words(self) -> tuple[str, str, str, str]:
        """The policy, nice value, priority and slice in ns as arguments of the program `taskslice`."""
        return (str(self.policy), str(self.nice), str(self.priority), str(self.slice_ns))

    def value(self, place: str) -> int:
        """Return the value of the scheduling attribute with the given name (one of the names in `TASK_PLACES`)."""
        return {
            TASK_PLACES[Setting.POLICY]: self.policy.number,
            TASK_PLACES[Setting.NICE]: self.nice,
            TASK_PLACES[Setting.PRIORITY]: self.priority,
            TASK_PLACES[Setting.SLICE]: self.slice_ns,
        }[place]


PLAIN = TaskAttributes()
"""The attributes of a proxy that starts without any setting."""


def is_of_tasks(step: Step) -> bool:
    """Return True if a setting is an attribute of the proxy's processes, and not a kernel file."""
    return step.place in TASK_PLACES.values()


def task_places(steps: Iterable[Step]) -> list[str]:
    """Return the names of the task attributes that a mode sets, as in `TASK_PLACES`."""
    return [
        step.place for step in steps if step.place and is_of_tasks(step) and not step.unavailable
    ]


def writes(steps: Iterable[Step]) -> list[tuple[str, int]]:
    """Return the kernel files that a mode writes, with their values, in the order of writing."""
    return [
        (step.place, step.value)
        for step in steps
        if step.place
        and step.value is not None
        and not is_of_tasks(step)
        and step.place != PROBE_CONTROL
    ]


def task_attributes(steps: Iterable[Step]) -> TaskAttributes:
    """Return the attributes that a mode sets for the proxy's processes."""
    values = {step.place: step.value for step in steps if step.value is not None}
    return TaskAttributes(
        policy=list(Policy)[values.get(TASK_PLACES[Setting.POLICY], Policy.OTHER.number)],
        nice=values.get(TASK_PLACES[Setting.NICE], 0),
        priority=values.get(TASK_PLACES[Setting.PRIORITY], 0),
        slice_ns=values.get(TASK_PLACES[Setting.SLICE], 0),
    )


def refuse_tasks(steps: Sequence[Step], reason: str) -> list[Step]:
    """Mark all task attributes of a mode as unavailable, because the kernel accepts all of them or none."""
    return [
        replace(step, value=None, unavailable=reason) if is_of_tasks(step) else step
        for step in steps
    ]


def same_settings(
    compiled: Mapping[str, Sequence[Step]], kernel: KernelScheduler
) -> tuple[tuple[str, ...], ...]:
    """Return groups of modes that have equal settings on a kernel. Any difference within a group is due to chance.

    Parameters
    ----------
    kernel
        The kernel for which the modes were translated, with the settings before any change.

    Returns
    -------
    tuple of tuple of str
        Groups of two or more names, in the order of `compiled`. A mode whose settings are all unavailable equals a mode
        without settings.
    """
    groups: dict[object, list[str]] = {}
    for name, steps in compiled.items():
        groups.setdefault(_effect(steps, kernel), []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _effect(steps: Sequence[Step], kernel: KernelScheduler) -> object:
    """Return all settings that are in force in a mode: task attributes, slice, kernel files, and the probe's state."""
    files = {path: int(text) for path, text in kernel.files.items() if text is not None}
    files |= dict(writes(steps))
    task = task_attributes(steps)
    base_ns = files.get(BASE_SLICE) or kernel.base_slice_ns
    slice_ns = None if task.policy.real_time else task.slice_ns or base_ns
    return replace(task, slice_ns=0), slice_ns, frozenset(files.items()), records(steps)


def records(steps: Sequence[Step]) -> bool:
    """Return True if the probe records messages in a mode: the mode does not switch the recording off."""
    return not any(step.setting is Setting.RECORDING and step.value == 0 for step in steps)


def switch_lines(compiled: Sequence[Sequence[Step]], kernel: KernelScheduler) -> list[str]:
    """Return the lines that describe the modes of a run in the input file of the program `switcher`.

    The lines of every mode contain all task attributes, and all files that any mode of the run writes. For a file that
    the mode itself does not write, the lines contain the original value. So a switch to the mode reverts the previous
    mode.

    Parameters
    ----------
    compiled
        The settings of each mode, in the order of the modes' numbers.
    kernel
        The kernel for which the modes were translated, with the settings before any change.
    """
    own = [dict(writes(steps)) for steps in compiled]
    paths = dict.fromkeys(path for values in own for path in values)
    # Write tunable_scaling last, because a write to tunable_scaling makes Linux 5.13 to 6.5 recompute latency /
    # granularity.
    order = sorted(paths, key=lambda path: path.endswith(Setting.TUNABLE_SCALING))
    lines = []
    for number, (steps, values) in enumerate(zip(compiled, own, strict=True)):
        policy, nice, priority, slice_ns = task_attributes(steps).words
        lines.append(
            f"mode {number} task {policy} nice {nice} priority {priority} slice {slice_ns}"
        )
        lines += [
            f"mode {number} file {path} {values.get(path, str(kernel.files[path]).strip())}"
            for path in order
        ]
        if not all(map(records, compiled)):
            lines.append(f"mode {number} probe {'on' if records(steps) else 'off'}")
    return lines


def compile_mode(asked: Mapping[Setting, int], kernel: KernelScheduler) -> list[Step]:
    """Translate the settings of a mode into values of kernel files and task attributes, in the order of writing.

    Parameters
    ----------
    asked
        The settings of the mode, from `Mode.settings`.
    kernel
        The kernel of the host. The CPUs of the run must already be online, because a later change of CPUs would reset
        or rescale the settings.

    Returns
    -------
    list of Step
        A step per setting of the mode. For Linux 5.13 to 6.5, another step writes tunable_scaling again, because
        otherwise these kernels keep the old ratio of latency to granularity. Only a trial on a test process shows
        whether the kernel accepts a task's policy or nice value. After a failed trial, call `refuse_tasks`.
    """
    steps = [_compile(setting, asked, kernel) for setting in Setting if setting in asked]
    written = writes(steps)
    scaling = DEBUGFS + Setting.TUNABLE_SCALING
    text = kernel.files.get(scaling)
    if (
        kernel.family is KernelFamily.DEBUGFS
        and written
        and Setting.TUNABLE_SCALING not in asked
        and text is not None
    ):
        # SEE kernel/sched/fair.c of Linux 5.13 to 6.5: sched_update_scaling() recomputes sched_nr_latency.
        # The kernel calls sched_update_scaling() only when tunable_scaling is written, so the old value is written
        # again.
        steps.append(Step(Setting.TUNABLE_SCALING, None, scaling, int(text)))
    return steps


def is_translation(mode: Mode, kernel: KernelScheduler, steps: list[Step]) -> bool:
    """Return True if a mode requests settings of the scheduler CFS, but the kernel has the scheduler EEVDF."""
    asks = any(step.asked is not None and step.setting in PAPERS for step in steps)
    return asks and mode.name != DEFAULT and kernel.family is KernelFamily.EEVDF


def label(mode: Mode, kernel: KernelScheduler, steps: list[Step]) -> str:
    """Return the label of a mode for figures.

    The label also names missing settings, and states whether settings were translated.
    """
    missing = [str(step.setting) for step in steps if step.asked is not None and step.unavailable]
    return modes.label(mode.name, is_translation(mode, kernel, steps), missing)


def _compile(setting: Setting, asked: Mapping[Setting, int], kernel: KernelScheduler) -> Step:
    value = asked[setting]
    if setting is Setting.SLICE and not kernel.task_slices:
        return Step(setting, value, unavailable=_why_no_slices(kernel))
    if setting in TASK_PLACES:
        return Step(setting, value, TASK_PLACES[setting], value)
    if setting is Setting.RECORDING:
        return Step(setting, value, PROBE_CONTROL, value)
    if setting is Setting.BASE_SLICE:
        return _base_slice(value, kernel)
    if kernel.family is KernelFamily.EEVDF:
        return _eevdf(setting, asked, kernel)
    return (_sysctl if kernel.family is KernelFamily.SYSCTL else _debugfs)(setting, value, kernel)


def _why_no_slices(kernel: KernelScheduler) -> str:
    if kernel.family is KernelFamily.EEVDF:
        return "this kernel has no slices of single tasks; Linux 6.12 and later do"
    return (
        "CFS has no slices of single tasks: it divides the latency period among the runnable tasks, "
        f"into parts of at least {Setting.MIN_GRANULARITY.key}"
    )


def _base_slice(value: int, kernel: KernelScheduler) -> Step:
    if kernel.family is not KernelFamily.EEVDF:
        reason = f"CFS has no base slice; the most similar setting is {Setting.MIN_GRANULARITY.key}"
        return Step(Setting.BASE_SLICE, value, unavailable=reason)
    reason_file = kernel.why_not(BASE_SLICE, Setting.BASE_SLICE)
    return Step(Setting.BASE_SLICE, value, BASE_SLICE, None if reason_file else value, reason_file)


def _sysctl(setting: Setting, value: int, kernel: KernelScheduler) -> Step:
    path = kernel.place(setting)
    reason = kernel.why_not(path, setting)
    least, most = SYSCTL_RANGES[setting]
    if reason is None and not least <= value <= most:
        reason = f"this kernel accepts only {least} to {most}"
    return Step(setting, value, path, None if reason else value, reason)


def _debugfs(setting: Setting, value: int, kernel: KernelScheduler) -> Step:
    path = kernel.place(setting)
    reason = kernel.why_not(path, setting)
    if reason is None and value > U32_MAX:
        reason = f"this kernel accepts at most {U32_MAX}"
    return Step(setting, value, path, None if reason else value, reason)


def _eevdf(setting: Setting, asked: Mapping[Setting, int], kernel: KernelScheduler) -> Step:
    value = asked[setting]
    if setting in WITHOUT_EQUIVALENT:
        return Step(setting, value, unavailable=WITHOUT_EQUIVALENT[setting])
    if setting is Setting.MIN_GRANULARITY:
        return _granularity(asked, kernel)
    if setting is Setting.TUNABLE_SCALING and kernel.why_not(BASE_SLICE, setting) is not None:
        return Step(setting, value, unavailable="slices of single tasks are not scaled")
    return _debugfs(setting, value, kernel)


def _granularity(asked: Mapping[Setting, int], kernel: KernelScheduler) -> Step:
    """Translate the minimum granularity of CFS into a slice of EEVDF, which also delays the preemption of a task."""
    setting, value = Setting.MIN_GRANULARITY, asked[Setting.MIN_GRANULARITY]
    reason = kernel.why_not(BASE_SLICE, setting)
    to_tasks = reason is not None and kernel.task_slices
    own = Setting.SLICE if to_tasks else Setting.BASE_SLICE
    if own in asked:
        return Step(
            setting,
            value,
            unavailable=f"the mode already sets {own}, into which this setting is translated",
        )
    if reason is None:
        return Step(setting, value, BASE_SLICE, value)
    if not to_tasks:
        return Step(setting, value, unavailable=reason)
    if Setting.PRIORITY in asked:
        return Step(setting, value, unavailable="a task of a real-time policy has no slice")
    least, most = RANGES[Setting.SLICE]
    return Step(setting, value, TASK_SLICE, min(max(value, least), most))
