"""A mode compiled to the kernel at hand: where each setting lives, what is written, what has no place."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sipsched.plan import modes
from sipsched.plan.modes import DEFAULT, Mode, Setting

SYSCTL = "/proc/sys/kernel/"
DEBUGFS = "/sys/kernel/debug/sched/"
BASE_SLICE = DEBUGFS + "base_slice_ns"
TASK_SLICE = "sched_setattr of each worker"
SLICE_RANGE_NS = (100_000, 100_000_000)
"""The kernel keeps slices of single tasks within it. SEE kernel/sched/syscalls.c: __setparam_fair()"""

FILES = (
    *(SYSCTL + f"sched_{setting}" for setting in Setting),
    SYSCTL + "sched_migration_cost",
    *(DEBUGFS + setting for setting in Setting),
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
    """

    files: Mapping[str, str | None]
    task_slices: bool

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
        What the mode asks for, ns or the number of a scaling; None where the kernel needs the file
        written again with the value it has.
    place
        File, or `TASK_SLICE`; None if there is no place.
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
        without which that kernel goes on with the old ratio of latency to granularity.
    """
    compiled = {Family.SYSCTL: _sysctl, Family.DEBUGFS: _debugfs, Family.EEVDF: _eevdf}
    steps = [
        compiled[kernel.family](setting, asked[setting], kernel)
        for setting in Setting
        if setting in asked
    ]
    written = [step for step in steps if step.unavailable is None]
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
    asks = mode.name != DEFAULT and any(step.asked is not None for step in steps)
    return asks and kernel.family is Family.EEVDF


def label(mode: Mode, kernel: KernelScheduler, steps: list[Step]) -> str:
    """Name the mode as it is on this kernel."""
    if mode.name == DEFAULT:
        return mode.name
    missing = [str(step.setting) for step in steps if step.asked is not None and step.unavailable]
    return modes.label(mode.name, is_translation(mode, kernel, steps), missing)


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


def _eevdf(setting: Setting, value: int, kernel: KernelScheduler) -> Step:
    if setting in WITHOUT_EQUIVALENT:
        return Step(setting, value, unavailable=WITHOUT_EQUIVALENT[setting])
    if setting is Setting.MIN_GRANULARITY:
        # the slice plays its part: the time a task may run before another takes its place
        if kernel.why_not(BASE_SLICE, setting) is None:
            return Step(setting, value, BASE_SLICE, value)
        if kernel.task_slices:
            least, most = SLICE_RANGE_NS
            return Step(setting, value, TASK_SLICE, min(max(value, least), most))
        return Step(setting, value, unavailable=kernel.why_not(BASE_SLICE, setting))
    if setting is Setting.TUNABLE_SCALING and kernel.why_not(BASE_SLICE, setting) is not None:
        return Step(setting, value, unavailable="slices of single tasks are not scaled")
    return _debugfs(setting, value, kernel)
