"""Scheduler modes: what `config/modes.yaml` asks for at a point, in the papers' terms."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.documents import read_yaml, validate

MODES_FILE = PROJECT_ROOT / "config" / "modes.yaml"
TRANSLATION = " (EEVDF translation)"
"""What the label of a mode ends in on a kernel with another scheduler than the papers'."""
DEFAULT = "default"


class Setting(StrEnum):
    """A scheduler setting; the value is the name of its file since Linux 5.13, used in overrides."""

    LATENCY = "latency_ns"
    MIN_GRANULARITY = "min_granularity_ns"
    WAKEUP_GRANULARITY = "wakeup_granularity_ns"
    MIGRATION_COST = "migration_cost_ns"
    TUNABLE_SCALING = "tunable_scaling"

    @property
    def paper_name(self) -> str:
        """Name in the papers, which is that of Linux 2.6.32 to 3.x."""
        if self is Setting.MIGRATION_COST:
            return "sched_migration_cost"
        return f"sched_{self.value}"


class Scaling(StrEnum):
    """Values of tunable_scaling; the kernel numbers them in this order from 0."""

    NONE = "none"
    LOGARITHMIC = "logarithmic"
    LINEAR = "linear"

    @property
    def number(self) -> int:
        """What is written to the kernel's file."""
        return list(Scaling).index(self)


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
            Nanoseconds; for `TUNABLE_SCALING` the kernel's number. A setting that is not in it is
            left as it is.

        Raises
        ------
        StableError
            No variant is for this number of cores.
        """
        for variant in self.variants:
            if _fits(variant["cores"], counts.cores):
                asked = {
                    setting: _value(variant[setting.paper_name], counts)
                    for setting in Setting
                    if setting.paper_name in variant
                }
                return asked | dict(self.overrides)
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
        The mode is not declared, or an override names no setting, a wrong value, or one setting twice.
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
    return Mode(name, body["source"], tuple(body["variants"]), overrides)


def label(name: str, translated: bool, missing: Iterable[str]) -> str:
    """Name a mode as figures do: a translation is called one, and what is missing is named.

    Parameters
    ----------
    name
        Of the mode, with its overrides.
    translated
        Whether the kernel's scheduler is not the papers'.
    missing
        Settings that were asked for and that the kernel does not have.
    """
    if translated:
        return f"{name}{TRANSLATION}"
    without = ", ".join(missing)
    return f"{name} (without {without})" if without else name


def _override(name: str, setting: Setting, text: str) -> int:
    if setting is Setting.TUNABLE_SCALING:
        if text not in set(Scaling):
            raise StableError(
                f"mode '{name}': {setting}: expected {', '.join(Scaling)}, found '{text}'"
            )
        return Scaling(text).number
    if not re.fullmatch(r"0|[1-9][0-9]*", text):
        raise StableError(
            f"mode '{name}': {setting}: expected nanoseconds without leading zeros, found '{text}'"
        )
    return int(text)


def _fits(cores: str, count: int) -> bool:
    return count >= int(cores[:-1]) if cores.endswith("+") else count == int(cores)


def _value(declared: Any, counts: Counts) -> int:
    if isinstance(declared, int):
        return declared
    if isinstance(declared, str):
        if declared in set(Scaling):
            return Scaling(declared).number
        factor, _, count = declared.partition(" * ")
        return int(factor) * int(getattr(counts, count))
    count = getattr(counts, declared["by"])
    rows = sorted(int(key) for key in declared if key != "by")
    # ASSUME between two counts that the papers list, the smaller one's value holds
    row = max((listed for listed in rows if listed <= count), default=rows[0])
    return _value(declared[str(row)], counts)
