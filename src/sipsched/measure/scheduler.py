"""A mode compiled to the kernel at hand: where each setting lives, what is written, what has no place."""

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
"""Place of the slices of single tasks."""
TASK_PLACES: Mapping[Setting, str] = MappingProxyType(
    {
        Setting.POLICY: f"{TASK_SLICE}: policy",
        Setting.NICE: f"{TASK_SLICE}: nice value",
        Setting.PRIORITY: f"{TASK_SLICE}: priority",
        Setting.SLICE: TASK_SLICE,
    }
)
"""Where the attributes of single tasks are set: a place for each, all by one system call."""

PROBE_CONTROL = "control socket of the probe"
"""Place of whether the probe records."""

FILES = (
    *(SYSCTL + f"sched_{setting}" for setting in PAPERS),
    SYSCTL + "sched_migration_cost",
    *(DEBUGFS + setting for setting in PAPERS),
    BASE_SLICE,
)
"""Every file that a kernel may keep a setting in."""

U32_MAX = 2**32 - 1
SYSCTL_RANGES = {
    # SEE kernel/sysctl.c before Linux 5.13: min_sched_granularity_ns and the like
    Setting.LATENCY: (100_000, 1_000_000_000),
    Setting.MIN_GRANULARITY: (100_000, 1_000_000_000),
    Setting.WAKEUP_GRANULARITY: (0, 1_000_000_000),
    Setting.MIGRATION_COST: (0, U32_MAX),
    Setting.TUNABLE_SCALING: (0, 2),
}
WITHOUT_EQUIVALENT = {
    Setting.LATENCY: "EEVDF has no latency period: a task's deadline follows from its slice",
    Setting.WAKEUP_GRANULARITY: "EEVDF decides by eligibility and deadline whether a woken task "
    "takes the place of the running one",
}


class Family(StrEnum):
    """Kernels by where they keep the settings."""

    SYSCTL = "CFS, /proc/sys/kernel (Linux 2.6.32 to 5.12)"
    DEBUGFS = "CFS, debugfs (Linux 5.13 to 6.5)"
    EEVDF = "EEVDF (Linux 6.6 and later)"


@dataclass(frozen=True)
class KernelScheduler:
    """What a host's kernel shows of its scheduler.

    Attributes
    ----------
    files
        Those of `FILES` that are there, with their text; None where reading is refused.
    task_slices
        Whether the slice of a single task can be set.
    base_slice_ns
        The slice of a task that has none of its own, as the kernel tells it of a task, also where its
        file cannot be opened; None if it does not.
    """

    files: Mapping[str, str | None]
    task_slices: bool
    base_slice_ns: int | None = None

    @property
    def family(self) -> Family:
        """Tell the kernels apart by their files, not by their version: distributions carry changes back."""
        if SYSCTL + f"sched_{Setting.LATENCY}" in self.files:
            return Family.SYSCTL
        return Family.DEBUGFS if DEBUGFS + Setting.LATENCY in self.files else Family.EEVDF

    def place(self, setting: Setting) -> str | None:
        """Name the file that holds a setting; None if there is none."""
        candidates = [SYSCTL + f"sched_{setting}", DEBUGFS + setting]
        if setting is Setting.MIGRATION_COST:
            candidates.append(SYSCTL + "sched_migration_cost")
        return next((path for path in candidates if path in self.files), None)

    def why_not(self, path: str | None, setting: Setting) -> str | None:
        """Say why a file cannot be used; None if it can."""
        if path is None or path not in self.files:
            return f"this kernel has no file for {setting}"
        if self.files[path] is None:
            return f"{path} cannot be opened: the kernel is locked down"
        return None


@dataclass(frozen=True)
class Step:
    """One setting of a mode on one kernel.

    Attributes
    ----------
    asked
        What the mode asks for, as `Mode.settings` gives it; None where the kernel needs the file
        written again with the value it has.
    place
        File, or one of `TASK_PLACES`; None if there is no place.
    value
        What is written there.
    unavailable
        Why it is not written; None if it is.
    """

    setting: Setting
    asked: int | None
    place: str | None = None
    value: int | None = None
    unavailable: str | None = None


@dataclass(frozen=True)
class TaskAttributes:
    """What every process of the proxy is started with, or switched to.

    Attributes
    ----------
    nice
        0 under an RT policy, which has none.
    priority
        1 to 99 under an RT policy, else 0.
    slice_ns
        0 where the kernel's base slice holds, and under an RT policy.
    """

    policy: Policy = Policy.OTHER
    nice: int = 0
    priority: int = 0
    slice_ns: int = 0

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Policy, nice value, priority and slice, as `taskslice` takes them."""
        return (str(self.policy), str(self.nice), str(self.priority), str(self.slice_ns))

    def value(self, place: str) -> int:
        """Give the number that stands at one of `TASK_PLACES`."""
        return {
            TASK_PLACES[Setting.POLICY]: self.policy.number,
            TASK_PLACES[Setting.NICE]: self.nice,
            TASK_PLACES[Setting.PRIORITY]: self.priority,
            TASK_PLACES[Setting.SLICE]: self.slice_ns,
        }[place]


PLAIN = TaskAttributes()
"""Of a proxy that is started without any."""


def is_of_tasks(step: Step) -> bool:
    """Tell whether a step is for each process of the proxy, not for the machine."""
    return step.place in TASK_PLACES.values()


def task_places(steps: Iterable[Step]) -> list[str]:
    """Name those of `TASK_PLACES` where a mode sets something."""
    return [
        step.place for step in steps if step.place and is_of_tasks(step) and not step.unavailable
    ]


def writes(steps: Iterable[Step]) -> list[tuple[str, int]]:
    """Give the files that a mode writes, with their values, in the order of writing."""
    return [
        (step.place, step.value)
        for step in steps
        if step.place
        and step.value is not None
        and not is_of_tasks(step)
        and step.place != PROBE_CONTROL
    ]


def task_attributes(steps: Iterable[Step]) -> TaskAttributes:
    """Give what a mode makes of the proxy's processes."""
    values = {step.place: step.value for step in steps if step.value is not None}
    return TaskAttributes(
        policy=list(Policy)[values.get(TASK_PLACES[Setting.POLICY], Policy.OTHER.number)],
        nice=values.get(TASK_PLACES[Setting.NICE], 0),
        priority=values.get(TASK_PLACES[Setting.PRIORITY], 0),
        slice_ns=values.get(TASK_PLACES[Setting.SLICE], 0),
    )


def refuse_tasks(steps: Sequence[Step], reason: str) -> list[Step]:
    """Give the steps of a mode whose attributes of tasks the kernel refuses: it has all of them or none."""
    return [
        replace(step, value=None, unavailable=reason) if is_of_tasks(step) else step
        for step in steps
    ]


def same_settings(
    compiled: Mapping[str, Sequence[Step]], kernel: KernelScheduler
) -> tuple[tuple[str, ...], ...]:
    """Find modes that come to the same settings on a kernel: to compare them is to compare A with A.

    Parameters
    ----------
    compiled
        Name of a mode to its steps.
    kernel
        What they were compiled to, as it was before anything was written.

    Returns
    -------
    tuple of tuple of str
        Groups of two or more names, in the order of `compiled`. A mode of which nothing is available is
        like one that asks for nothing.
    """
    groups: dict[object, list[str]] = {}
    for name, steps in compiled.items():
        groups.setdefault(_effect(steps, kernel), []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _effect(steps: Sequence[Step], kernel: KernelScheduler) -> object:
    """Give what is in force: the attributes of the tasks with the slice that they have, and every file."""
    files = {path: int(text) for path, text in kernel.files.items() if text is not None}
    files |= dict(writes(steps))
    task = task_attributes(steps)
    base_ns = files.get(BASE_SLICE) or kernel.base_slice_ns
    slice_ns = None if task.policy.real_time else task.slice_ns or base_ns
    return replace(task, slice_ns=0), slice_ns, frozenset(files.items()), records(steps)


def records(steps: Sequence[Step]) -> bool:
    """Tell whether the probe records in a mode: where the mode does not say, it does."""
    return not any(step.setting is Setting.RECORDING and step.value == 0 for step in steps)


def switch_lines(compiled: Sequence[Sequence[Step]], kernel: KernelScheduler) -> list[str]:
    """Say to `switcher` what each mode of a comparison is, in the lines of its plan.

    Every mode names all attributes of the tasks, and every file that one of the modes writes, with the
    value found on this kernel where it writes none itself: so a switch to it undoes the one before.

    Parameters
    ----------
    compiled
        The steps of each mode, in the order of their numbers.
    kernel
        What they were compiled to, as it was before anything was written.
    """
    own = [dict(writes(steps)) for steps in compiled]
    paths = dict.fromkeys(path for each in own for path in each)
    # last, as `compile_mode` has it: Linux 5.13 to 6.5 takes the others in when it is written
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
    """Say what to write where, in the order of writing.

    Parameters
    ----------
    asked
        What `Mode.settings` gives.
    kernel
        The kernel at hand, with the CPUs of the run already online: a change of CPUs would reset or
        rescale what is written.

    Returns
    -------
    list of Step
        One for each setting asked for, and on Linux 5.13 to 6.5 the rewriting of tunable_scaling,
        without which that kernel goes on with the old ratio of latency to granularity. Whether the
        kernel lets a task have a policy or nice value is found by trying only: see `refuse_tasks`.
    """
    steps = [_compile(setting, asked, kernel) for setting in Setting if setting in asked]
    written = writes(steps)
    scaling = DEBUGFS + Setting.TUNABLE_SCALING
    text = kernel.files.get(scaling)
    if (
        kernel.family is Family.DEBUGFS
        and written
        and Setting.TUNABLE_SCALING not in asked
        and text is not None
    ):
        # SEE kernel/sched/fair.c: sched_update_scaling() computes sched_nr_latency; 5.13 to 6.5 call it from here only
        steps.append(Step(Setting.TUNABLE_SCALING, None, scaling, int(text)))
    return steps


def is_translation(mode: Mode, kernel: KernelScheduler, steps: list[Step]) -> bool:
    """Tell whether the mode asks for something that this kernel's scheduler has in another form at most."""
    asks = any(step.asked is not None and step.setting in PAPERS for step in steps)
    return asks and mode.name != DEFAULT and kernel.family is Family.EEVDF


def label(mode: Mode, kernel: KernelScheduler, steps: list[Step]) -> str:
    """Name the mode as it is on this kernel."""
    if mode.name == DEFAULT:
        return mode.name
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
    if kernel.family is Family.EEVDF:
        return _eevdf(setting, asked, kernel)
    return (_sysctl if kernel.family is Family.SYSCTL else _debugfs)(setting, value, kernel)


def _why_no_slices(kernel: KernelScheduler) -> str:
    if kernel.family is Family.EEVDF:
        return "this kernel has no slices of single tasks; Linux 6.12 and later do"
    return (
        "CFS has no slices of single tasks: it divides the latency period among those that wait, "
        f"{Setting.MIN_GRANULARITY.key} at least"
    )


def _base_slice(value: int, kernel: KernelScheduler) -> Step:
    if kernel.family is not Family.EEVDF:
        reason = f"CFS has no base slice; {Setting.MIN_GRANULARITY.key} comes nearest"
        return Step(Setting.BASE_SLICE, value, unavailable=reason)
    reason_file = kernel.why_not(BASE_SLICE, Setting.BASE_SLICE)
    return Step(Setting.BASE_SLICE, value, BASE_SLICE, None if reason_file else value, reason_file)


def _sysctl(setting: Setting, value: int, kernel: KernelScheduler) -> Step:
    path = kernel.place(setting)
    reason = kernel.why_not(path, setting)
    least, most = SYSCTL_RANGES[setting]
    if reason is None and not least <= value <= most:
        reason = f"this kernel takes {least} to {most} only"
    return Step(setting, value, path, None if reason else value, reason)


def _debugfs(setting: Setting, value: int, kernel: KernelScheduler) -> Step:
    path = kernel.place(setting)
    reason = kernel.why_not(path, setting)
    if reason is None and value > U32_MAX:
        reason = f"this kernel takes at most {U32_MAX}"
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
    """Translate the minimum granularity: a slice plays its part, the time until another takes its place."""
    setting, value = Setting.MIN_GRANULARITY, asked[Setting.MIN_GRANULARITY]
    reason = kernel.why_not(BASE_SLICE, setting)
    to_tasks = reason is not None and kernel.task_slices
    own = Setting.SLICE if to_tasks else Setting.BASE_SLICE
    if own in asked:
        return Step(setting, value, unavailable=f"the mode names what it would become, {own}")
    if reason is None:
        return Step(setting, value, BASE_SLICE, value)
    if not to_tasks:
        return Step(setting, value, unavailable=reason)
    if Setting.PRIORITY in asked:
        return Step(setting, value, unavailable="a task of a real-time policy has no slice")
    least, most = RANGES[Setting.SLICE]
    return Step(setting, value, TASK_SLICE, min(max(value, least), most))
