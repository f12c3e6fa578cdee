"""Scheduler modes: what `config/modes.yaml` asks for at a point, in the papers' terms and in the kernel's."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.documents import read_yaml, validate

MODES_FILE = PROJECT_ROOT / "config" / "modes.yaml"
TRANSLATION = " (EEVDF translation)"
"""What the label of a mode ends in on a kernel with another scheduler than the papers'."""
DEFAULT = "default"
LOWEST_PRIORITY = 1
"""Of fifo and rr, where a mode does not name one: before all tasks that have a nice value, after all others."""


class Setting(StrEnum):
    """A scheduler setting; the value is its name in overrides: that of its file since Linux 5.13, if it has one.

    The first five are the papers'. The last four are of single tasks: a mode gives them to every process of
    the proxy.
    """

    LATENCY = "latency_ns"
    MIN_GRANULARITY = "min_granularity_ns"
    WAKEUP_GRANULARITY = "wakeup_granularity_ns"
    MIGRATION_COST = "migration_cost_ns"
    TUNABLE_SCALING = "tunable_scaling"
    BASE_SLICE = "base_slice_ns"
    POLICY = "policy"
    NICE = "nice"
    PRIORITY = "priority"
    SLICE = "slice_ns"
    RECORDING = "recording"
    """Whether the probe records, in a run that compares modes: what it costs is told by switching it off."""

    @property
    def key(self) -> str:
        """Name in modes.yaml: of the papers' settings their name in the papers, that of Linux 2.6.32 to 3.x."""
        if self is Setting.MIGRATION_COST:
            return "sched_migration_cost"
        return f"sched_{self.value}" if self in PAPERS else self.value


PAPERS = (
    Setting.LATENCY,
    Setting.MIN_GRANULARITY,
    Setting.WAKEUP_GRANULARITY,
    Setting.MIGRATION_COST,
    Setting.TUNABLE_SCALING,
)
"""The settings of the papers, which are CFS's."""
RANGES = {
    # SEE kernel/sysctl.c before Linux 5.13 for what stood in the place of a base slice
    Setting.BASE_SLICE: (100_000, 1_000_000_000),
    Setting.NICE: (-20, 19),
    Setting.PRIORITY: (1, 99),
    # SEE kernel/sched/syscalls.c: __setparam_fair() keeps a slice within these
    Setting.SLICE: (100_000, 100_000_000),
}
"""Least and largest value of the kernel's own settings."""


class Scaling(StrEnum):
    """Values of tunable_scaling; the kernel numbers them in this order from 0."""

    NONE = "none"
    LOGARITHMIC = "logarithmic"
    LINEAR = "linear"

    @property
    def number(self) -> int:
        """What is written to the kernel's file."""
        return list(Scaling).index(self)


class Recording(StrEnum):
    """What the probe does while the proxy serves."""

    OFF = "off"
    ON = "on"

    @property
    def number(self) -> int:
        """0 or 1."""
        return list(Recording).index(self)


class Policy(StrEnum):
    """Scheduling policies that a mode may ask for, by their names in sched(7), in small letters."""

    OTHER = "other"
    FIFO = "fifo"
    RR = "rr"
    BATCH = "batch"

    @property
    def number(self) -> int:
        """The kernel's number. SEE include/uapi/linux/sched.h."""
        return list(Policy).index(self)

    @property
    def real_time(self) -> bool:
        """Whether it goes by a priority, before every task that has a nice value."""
        return self in (Policy.FIFO, Policy.RR)


NAMED: Mapping[Setting, type[Scaling] | type[Policy] | type[Recording]] = MappingProxyType(
    {
        Setting.TUNABLE_SCALING: Scaling,
        Setting.POLICY: Policy,
        Setting.RECORDING: Recording,
    }
)
"""Settings whose values have names; a value is the kernel's number of it."""


@dataclass(frozen=True)
class Counts:
    """What a value may depend on: cores of the SPS, workers of the proxy, processors with such a core."""

    cores: int
    threads: int
    processors: int


@dataclass(frozen=True)
class Mode:
    """A mode as the file declares it, with the overrides of its name.

    Attributes
    ----------
    name
        Name as in a run's tuple, overrides included.
    source
        Where the values come from.
    """

    name: str
    source: str
    variants: tuple[Mapping[str, Any], ...]
    overrides: Mapping[Setting, int]

    def settings(self, counts: Counts) -> dict[Setting, int]:
        """Give each setting that this mode asks for its value at a point.

        Returns
        -------
        dict
            Nanoseconds; for settings that are `NAMED` the kernel's number. A setting that is not in it is
            left as it is.

        Raises
        ------
        StableError
            No variant is for this number of cores.
        """
        for variant in self.variants:
            if _fits(variant["cores"], counts.cores):
                asked = {
                    setting: _value(setting, variant[setting.key], counts)
                    for setting in Setting
                    if setting.key in variant
                } | dict(self.overrides)
                if _policy(asked).real_time:
                    asked.setdefault(Setting.PRIORITY, LOWEST_PRIORITY)
                return asked
        raise StableError(
            f"mode {self.name}: no variant for {counts.cores} core(s) in config/modes.yaml; "
            f"there are: {', '.join(variant['cores'] for variant in self.variants)}"
        )


def load_modes(path: Path = MODES_FILE) -> Mapping[str, Any]:
    """Read and check the file of modes.

    Raises
    ------
    StableError
        It is missing, or a key is missing, unknown or out of range.
    """
    document: Mapping[str, Any] = validate(read_yaml(path), "modes", str(path))
    return document


def find_mode(name: str, declared: Mapping[str, Any]) -> Mode:
    """Take a mode's name apart: `<declared mode>[+<setting>=<value>]...`.

    Parameters
    ----------
    name
        As in a run's tuple, e.g. `enhanced+migration_cost_ns=500000`.
    declared
        What `load_modes` gives.

    Raises
    ------
    StableError
        The mode is not declared, an override names no setting, a wrong value, or one setting twice, or
        what it asks for does not go together.
    """
    base, *parts = name.split("+")
    if base not in declared:
        raise StableError(
            f"mode '{name}': '{base}' is not declared in config/modes.yaml "
            f"({', '.join(sorted(declared))})"
        )
    overrides: dict[Setting, int] = {}
    for part in parts:
        key, separator, text = part.partition("=")
        if not separator or key not in set(Setting):
            raise StableError(
                f"mode '{name}': '{part}': expected SETTING=VALUE with one of {', '.join(Setting)}"
            )
        setting = Setting(key)
        if setting in overrides:
            raise StableError(f"mode '{name}': {setting} is overridden twice")
        overrides[setting] = _override(name, setting, text)
    body = declared[base]
    for variant in body["variants"]:
        _check_together(name, variant, overrides)
    return Mode(name, body["source"], tuple(body["variants"]), overrides)


def value_name(setting: Setting, value: int) -> str:
    """Name a setting's value as modes.yaml does."""
    names = list(NAMED.get(setting, ()))
    return names[value] if 0 <= value < len(names) else str(value)


def label(name: str, translated: bool, missing: Iterable[str]) -> str:
    """Name a mode as figures do: a translation is called one, and what is missing is named.

    Parameters
    ----------
    name
        Of the mode, with its overrides.
    translated
        Whether the kernel's scheduler is not the papers'.
    missing
        Settings that were asked for and that the kernel does not have or give. A translation has none of
        the papers' settings as they were, and names the others only.
    """
    without = ", ".join(each for each in missing if not (translated and each in PAPERS))
    return name + (TRANSLATION if translated else "") + (f" (without {without})" if without else "")


def plain(name: str) -> str:
    """Give a mode's label without that it is a translation, which a page says once."""
    return name.replace(TRANSLATION, "")


def is_translation(name: str) -> bool:
    """Tell from a mode's label whether it is a translation."""
    return TRANSLATION in name


def _override(name: str, setting: Setting, text: str) -> int:
    if setting in NAMED:
        if text not in set(NAMED[setting]):
            raise StableError(
                f"mode '{name}': {setting}: expected {', '.join(NAMED[setting])}, found '{text}'"
            )
        return NAMED[setting](text).number
    expected = "nanoseconds"
    if setting in RANGES:
        least, most = RANGES[setting]
        expected = f"{least} to {most}"
        if re.fullmatch(r"0|-?[1-9][0-9]{0,11}", text) and least <= int(text) <= most:
            return int(text)
    elif re.fullmatch(r"0|[1-9][0-9]*", text):
        return int(text)
    raise StableError(
        f"mode '{name}': {setting}: expected {expected} without leading zeros, found '{text}'"
    )


def _policy(asked: Mapping[Setting, int]) -> Policy:
    return list(Policy)[asked.get(Setting.POLICY, Policy.OTHER.number)]


def _check_together(
    name: str, variant: Mapping[str, Any], overrides: Mapping[Setting, int]
) -> None:
    """Refuse what a policy has no use for: the kernel would take it and forget it."""
    policy = Policy(variant.get(Setting.POLICY.key, Policy.OTHER))
    if Setting.POLICY in overrides:
        policy = _policy(overrides)
    asked = {setting for setting in Setting if setting.key in variant} | set(overrides)
    useless = (Setting.NICE, Setting.SLICE) if policy.real_time else (Setting.PRIORITY,)
    for setting in useless:
        if setting in asked:
            raise StableError(
                f"mode '{name}': {setting} means nothing to policy {policy}; "
                f"{'other and batch have' if policy.real_time else 'fifo and rr have'} one"
            )


def _fits(cores: str, count: int) -> bool:
    return count >= int(cores[:-1]) if cores.endswith("+") else count == int(cores)


def _value(setting: Setting, declared: Any, counts: Counts) -> int:
    if isinstance(declared, int):
        return declared
    if setting in NAMED:
        return NAMED[setting](declared).number
    if isinstance(declared, str):
        factor, _, count = declared.partition(" * ")
        return int(factor) * int(getattr(counts, count))
    count = getattr(counts, declared["by"])
    rows = sorted(int(key) for key in declared if key != "by")
    # ASSUME between two counts that the papers list, the smaller one's value holds
    row = max((listed for listed in rows if listed <= count), default=rows[0])
    return _value(setting, declared[str(row)], counts)
