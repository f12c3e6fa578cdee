"""The parts of `run.json` about the scheduler mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sipsched.plan.crossover import Instance


@dataclass(frozen=True)
class SettingReport:
    """One setting of a mode: its requested, written and read-back values, or the reason why it is unavailable."""

    setting: str
    asked: Any
    place: str | None
    applied: Any
    read_back: Any
    unavailable: str | None


@dataclass(frozen=True)
class SchedulerReport:
    """The scheduler mode of a run, with the settings as this kernel applied them.

    Attributes
    ----------
    translated
        True if the kernel has another scheduler than the papers, so that the mode's settings were translated.
    base_slice_ns
        The slice that the scheduler EEVDF uses for a task without its own slice; None if the kernel does not report
        this slice.
    """

    mode: str
    label: str
    source: str
    family: str
    found: Mapping[str, str | None]
    steps: tuple[SettingReport, ...]
    quiet: tuple[Mapping[str, Any], ...]
    repaired: bool
    translated: bool
    base_slice_ns: int | None = None

    @property
    def in_force(self) -> dict[str, str]:
        """Return the effective value of each scheduler setting, by file or attribute, even if no value was written."""
        found = {place: value for place, value in self.found.items() if value is not None}
        written = {
            str(step.place): str(step.applied) for step in self.steps if step.unavailable is None
        }
        return found | written


@dataclass(frozen=True)
class CrossoverReport:
    """The modes, windows (stretches in one mode) and proxy instances of a run that compares modes.

    Attributes
    ----------
    modes
        The modes as this kernel applied them, with the reference first.
    unavailable
        The kernel's reason for each refused mode. No window has a refused mode.
    same_settings
        Groups of modes with equal settings on this kernel. Only the first mode of a group has windows.
    window_s, washout_s
        Length of the windows and of their washouts, in s.
    blocks, windows
        Numbers of measured blocks and windows.
    tasks
        Number of proxy processes that were switched.
    instances
        The proxy instances, in the order of their ports; empty if one proxy served in all modes. The last instance
        repeats the first instance, and serves the sham windows.
    instance_of_mode
        Index in `instances` of the instance that served each mode; empty if one proxy served in all modes.
    """

    modes: tuple[SchedulerReport, ...]
    unavailable: Mapping[str, str]
    same_settings: tuple[tuple[str, ...], ...]
    window_s: float
    washout_s: float
    blocks: int
    windows: int
    failed_switches: int
    tasks: int
    instances: tuple[Instance, ...] = ()
    instance_of_mode: tuple[int, ...] = ()
