"""Scheduler modes, which are named sets of kernel settings, as declared in `config/modes.yaml`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.keys import key_types, options, place, read_file, read_value
from sipsched.words import binary_size, listed, plural

MODES_FILE = PROJECT_ROOT / "config" / "modes.yaml"
TRANSLATION = " (EEVDF translation)"
"""Suffix of a mode's label on a kernel with the scheduler EEVDF. The papers used the scheduler CFS."""
WITHOUT = " (without "
"""First words of the note in a mode's label that lists the settings which the kernel lacks."""
DEFAULT = "default"
NO_LOOK = "5o"
"""Colour and marker on pages for a mode without the key `look`."""
LOWEST_PRIORITY = 1
"""Priority of a mode with the policy fifo or rr but without a priority.

A real-time task with this lowest priority still runs before all tasks that are not real-time.
"""


class Setting(StrEnum):
    """A scheduler setting.

    The value of the enum is the setting's name in mode names, and in the kernel since Linux 5.13. The first five
    settings are the papers' settings. Policy, nice, priority and slice are attributes of a task. A mode sets these
    attributes for every process of the proxy.
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
    """Whether the probe records. A run that switches the recording on and off measures the cost of the probe."""

    @property
    def key(self) -> str:
        """Return the name of the setting in modes.yaml.

        The papers' settings have their names from the papers, which are the names of Linux 2.6.32 to 3.x.
        """
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
"""The settings that the papers changed, which are settings of the scheduler CFS."""


INSTANCE_KEYS = ("sut", "threads", "cores", "receive_buffer_bytes", "start")
"""Overrides in a mode's name that need another proxy instance. Only a mode in a comparison can have such overrides."""
INSTANCE_RANGES: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "threads": ("a number of workers", 1, 9999),
        "cores": ("a number of CPUs", 1, 9999),
        "receive_buffer_bytes": ("a size in bytes", 4096, 2**30),
        "start": ("the number of a further start", 2, 9),
    }
)
"""The description, the smallest value and the largest value of each override of an instance that is a number."""


class Numbered(StrEnum):
    """A base class for enums in which each word stands for one of the kernel's numbers 0, 1, 2 and so on."""

    @property
    def number(self) -> int:
        """Return the number by which the kernel represents this word."""
        return list(type(self)).index(self)


class Scaling(Numbered):
    """The values of the kernel setting tunable_scaling."""

    NONE = "none"
    LOGARITHMIC = "logarithmic"
    LINEAR = "linear"


class Recording(Numbered):
    """The setting that decides whether the probe records timestamps while the proxy serves calls."""

    OFF = "off"
    ON = "on"


class Policy(Numbered):
    """The scheduling policies that a mode can set, with their names from sched(7) in lower case."""

    # SEE include/uapi/linux/sched.h for the numbers of the policies

    OTHER = "other"
    FIFO = "fifo"
    RR = "rr"
    BATCH = "batch"

    @property
    def real_time(self) -> bool:
        """Return True for a real-time policy, whose tasks run before every task with a nice value."""
        return self in (Policy.FIFO, Policy.RR)


NAMED: Mapping[Setting, type[Numbered]] = MappingProxyType(
    {
        Setting.TUNABLE_SCALING: Scaling,
        Setting.POLICY: Policy,
        Setting.RECORDING: Recording,
    }
)
"""Settings whose values have names. Each name stands for a number of the kernel."""

Count = Literal["cores", "threads", "processors"]
WholeNumber = Annotated[int, Meta(ge=0, le=10**12)]
Product = Annotated[
    str,
    Meta(
        pattern=r"\A[0-9]+ [*] (cores|threads|processors)\Z",
        description="A number times a count, such as `800000 * cores`.",
    ),
]
"""A text that multiplies a number by a count, such as the number of threads."""
# msgspec 0.22 crashes on a union of a mapping and a text with a pattern, so `_check_value` checks the pattern.
Nanoseconds = WholeNumber | str | Mapping[str, Any]
"""A number, a product, or a table with one row per count: `{by: threads, 2: 100000, 4: 150000}`.

A row can contain a further table.
"""
RowCount = Annotated[str, Meta(pattern=r"\A[1-9][0-9]*\Z")]


@dataclass(frozen=True)
class Variant:
    """The settings of a mode for certain numbers of cores, as config/modes.yaml declares them."""

    cores: Annotated[
        str,
        Meta(
            pattern=r"\A[1-9][0-9]*[+]?\Z",
            description='Number of cores of this variant: "2" means two, "2+" means two or more.',
        ),
    ]
    sched_latency_ns: Annotated[
        Nanoseconds | None,
        Meta(description="Period in which every runnable task runs once, in ns."),
    ] = None
    sched_min_granularity_ns: Annotated[
        Nanoseconds | None,
        Meta(description="Time that a task may run before another task preempts it, in ns."),
    ] = None
    sched_wakeup_granularity_ns: Annotated[
        Nanoseconds | None,
        Meta(
            description="Lead in virtual runtime that lets a woken task preempt the running task, in ns."
        ),
    ] = None
    sched_migration_cost: Annotated[
        Nanoseconds | None,
        Meta(description="Time after its last run for which a task counts as cache-hot, in ns."),
    ] = None
    sched_tunable_scaling: Annotated[
        Literal["none", "logarithmic", "linear"] | None,
        Meta(
            description="How the kernel scales latency and granularities with the number of CPUs."
        ),
    ] = None
    # SEE kernel/sysctl.c before Linux 5.13 for the range of the minimum granularity, which the base slice replaces
    base_slice_ns: Annotated[
        Annotated[int, Meta(ge=100_000, le=1_000_000_000)] | None,
        Meta(
            description="Time that a task without its own slice may run before another task preempts it, in ns. This "
            "setting of EEVDF applies to all tasks of the machine."
        ),
    ] = None
    policy: Annotated[
        Literal["other", "batch", "fifo", "rr"] | None,
        Meta(description="Scheduling policy of every process of the proxy, as in sched(7)."),
    ] = None
    nice: Annotated[
        Annotated[int, Meta(ge=-20, le=19)] | None,
        Meta(
            description="Nice value of every process of the proxy, for the policies other and batch."
        ),
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=1, le=99)] | None,
        Meta(
            description="Priority of every process of the proxy, for the policies fifo and rr. Default: 1."
        ),
    ] = None
    # SEE __setparam_fair() in kernel/sched/syscalls.c, which limits a slice to 0.1 to 100 ms
    slice_ns: Annotated[
        Annotated[int, Meta(ge=100_000, le=100_000_000)] | None,
        Meta(
            description="Slice of every process of the proxy in ns, for the policies other and batch and EEVDF since "
            "Linux 6.12."
        ),
    ] = None

    def declared(self, setting: Setting) -> Any:
        """Return the declared value of a setting, or None if this variant does not change the setting."""
        return getattr(self, setting.key, None)

    @property
    def settings(self) -> list[Setting]:
        """Return the settings that this variant of the mode changes."""
        return [setting for setting in Setting if self.declared(setting) is not None]

    def fits(self, cores: int) -> bool:
        """Return True if this variant of the mode applies to a number of cores."""
        least = int(self.cores.rstrip("+"))
        return cores >= least if self.cores.endswith("+") else cores == least


@dataclass(frozen=True)
class DeclaredMode:
    """A scheduler mode, as config/modes.yaml declares it."""

    source: Annotated[str, Meta(description="The source of the values.")]
    variants: Annotated[
        tuple[Variant, ...],
        Meta(
            min_length=1,
            description="Sets of settings. A run uses the first variant whose cores fit.",
        ),
    ]
    look: Annotated[
        str,
        Meta(
            pattern=r"\A[0-7][osD^vP]\Z",
            description="The colour of the mode on all pages, 0 to 7, and its marker, as matplotlib names markers.",
        ),
    ] = NO_LOOK


PlainModeName = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_-]*\Z")]
Modes = Mapping[str, DeclaredMode]
"""All declared modes, by name."""
RANGES = {
    setting: (bounds.ge, bounds.le)
    for setting in Setting
    for option in options(key_types(Variant).get(setting.key, str))
    for bounds in getattr(option, "__metadata__", ())
    if setting not in PAPERS
}
"""Smallest and largest value of each setting whose range the kernel itself enforces."""


@dataclass(frozen=True)
class Counts:
    """The numbers of CPU cores, proxy workers and processor chips, on which the value of a setting can depend."""

    cores: int
    threads: int
    processors: int


@dataclass(frozen=True)
class OtherInstance:
    """Proxy settings in a mode's name, as in `default+threads=2`, which need a separate proxy instance.

    The proxy settings in a mode's name replace the settings of the run. If a field is None, the setting of the run
    applies.

    Attributes
    ----------
    start
        Number of a further instance with equal settings, from 2. The further instance shows how much two starts of the
        proxy differ.
    """

    sut: str | None = None
    threads: int | None = None
    cores: int | None = None
    receive_buffer_bytes: int | None = None
    start: int | None = None


@dataclass(frozen=True)
class Mode:
    """A declared scheduler mode, changed by the overrides in its name, as in `enhanced+migration_cost_ns=500000`.

    Attributes
    ----------
    name
        Name as in `Run.mode`, including the overrides.
    source
        The source of the values.
    look
        Number of the mode's colour on pages, and its marker. Overrides do not change colour and marker.
    other
        The settings of the proxy instance that the name overrides. Only a comparison of modes can override them.
    """

    name: str
    source: str
    variants: tuple[Variant, ...]
    overrides: Mapping[Setting, int]
    look: str = NO_LOOK
    other: "OtherInstance" = OtherInstance()

    def settings(self, counts: Counts) -> dict[Setting, int]:
        """Return the value of each setting of this mode for given numbers of cores and workers.

        Parameters
        ----------
        counts
            The numbers of the run. The mode's instance can override these numbers.

        Returns
        -------
        dict
            Values in nanoseconds, or the kernel's numbers for settings in `NAMED`. The result has only settings that
            the mode changes.

        Raises
        ------
        StableError
            No variant of the mode applies to this number of cores.
        """
        counts = replace(
            counts,
            cores=self.other.cores or counts.cores,
            threads=self.other.threads or counts.threads,
        )
        for variant in self.variants:
            if variant.fits(counts.cores):
                values = {
                    setting: _resolve(setting, variant.declared(setting), counts)
                    for setting in variant.settings
                } | dict(self.overrides)
                if _policy(values).real_time:
                    values.setdefault(Setting.PRIORITY, LOWEST_PRIORITY)
                return values
        raise StableError(
            f"mode {self.name}: no variant for {plural(counts.cores, 'core')} in config/modes.yaml; "
            f"variants: {', '.join(variant.cores for variant in self.variants)}"
        )


def load_modes(path: Path = MODES_FILE) -> Modes:
    """Read and check the file that declares the scheduler modes, config/modes.yaml.

    Raises
    ------
    StableError
        The file is missing, or a key is missing, unknown or out of range.
    """
    where = str(path)
    modes: Modes = read_file(Mapping[PlainModeName, DeclaredMode], path)
    if DEFAULT not in modes:
        raise StableError(f"{where}: {DEFAULT} is missing: the mode without any setting")
    for name, mode in modes.items():
        for number, variant in enumerate(mode.variants):
            for setting in PAPERS:
                value = variant.declared(setting)
                if value is not None and setting not in NAMED:
                    _check_value(value, place(where, f"{name}.variants[{number}].{setting.key}"))
    return modes


def _check_value(value: Any, where: str) -> None:
    """Raise an error unless a value is a number, a product such as `800000 * cores`, or a table of such values."""
    if not isinstance(value, Mapping):
        read_value(Product if isinstance(value, str) else WholeNumber, value, where)
        return
    rows = {count: row for count, row in value.items() if count != "by"}
    read_value(Count, value.get("by"), place(where, "by"))
    if not rows:
        raise StableError(f"{where}: expected a row per number of {value['by']}, found none")
    for count, row in rows.items():
        read_value(RowCount, count, where)
        _check_value(row, place(where, count))


def find_mode(name: str, declared: Modes) -> Mode:
    """Return the mode with a name of the form `<declared mode>[+<setting>=<value>]...`.

    Parameters
    ----------
    name
        Name as in `Run.mode`, such as `enhanced+migration_cost_ns=500000`.
    declared
        Modes from `load_modes`.

    Raises
    ------
    StableError
        The mode is not declared. Or an override has an unknown setting, a wrong value or a repeated setting. Or the
        settings contradict each other.
    """
    base, other, parts = split_name(name)
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
                f"mode '{name}': '{part}': expected SETTING=VALUE with one of "
                f"{', '.join((*Setting, *INSTANCE_KEYS))}"
            )
        setting = Setting(key)
        if setting in overrides:
            raise StableError(f"mode '{name}': {setting} is overridden twice")
        overrides[setting] = _override(name, setting, text)
    mode = declared[base]
    for variant in mode.variants:
        _check_together(name, variant, overrides)
    return Mode(name, mode.source, mode.variants, overrides, mode.look, other)


def split_name(name: str) -> tuple[str, OtherInstance, list[str]]:
    """Split a mode's name into the declared mode, the overrides of the proxy instance, and all other overrides.

    Raises
    ------
    StableError
        A key of the instance is overridden twice, or a number is outside its range in `INSTANCE_RANGES`.
    """
    base, *parts = name.split("+")
    others: dict[str, str] = {}
    rest = []
    for part in parts:
        key, separator, text = part.partition("=")
        if key not in INSTANCE_KEYS or not separator:
            rest.append(part)
        elif key in others:
            raise StableError(f"mode '{name}': {key} is overridden twice")
        else:
            others[key] = text
    numbers = {
        key: _instance_number(name, key, others[key]) for key in INSTANCE_RANGES if key in others
    }
    return base, OtherInstance(others.get("sut"), **numbers), rest


def _instance_number(name: str, key: str, text: str) -> int:
    what, least, most = INSTANCE_RANGES[key]
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text) or not least <= int(text) <= most:
        raise StableError(
            f"mode '{name}': {key}: expected {what} from {least} to {most}, found '{text}'"
        )
    return int(text)


def first_start(name: str) -> str:
    """Return the name of a mode without the override `start`, as in `default` for `default+start=2`.

    A mode with `start=2` runs on a second proxy instance with equal settings. The returned name is the mode of the
    first instance.
    """
    return "+".join(part for part in name.split("+") if not part.startswith("start="))


def value_name(setting: Setting, value: int) -> str:
    """Return the value of a setting as text, as written in modes.yaml."""
    names = list(NAMED.get(setting, ()))
    return names[value] if 0 <= value < len(names) else str(value)


def relabel(name: str, recorded: str) -> str:
    """Return the label of a mode in today's words from a label in a record, whose words may be older.

    The returned label keeps the note on missing settings, but has no note on the scheduler.
    """
    _, without, missing = recorded.partition(WITHOUT)
    return _with_instance(name) + without + missing


def label(name: str, translated: bool, missing: Iterable[str]) -> str:
    """Return a mode's label for figures. Notes in the label report another scheduler than CFS, and missing settings.

    Parameters
    ----------
    translated
        Whether the kernel has another scheduler than the papers' kernels, which had CFS.
    missing
        Settings of the mode that the kernel lacks or that the host does not allow. With another scheduler, the label
        does not list the papers' settings, because such a kernel never has these settings.
    """
    without = ", ".join(setting for setting in missing if not (translated and setting in PAPERS))
    return (
        _with_instance(name)
        + (TRANSLATION if translated else "")
        + (f"{WITHOUT}{without})" if without else "")
    )


def _with_instance(name: str) -> str:
    """Return a readable name of a mode, with proxy settings as words, such as `2 workers` for `default+threads=2`.

    The name contains no comma, so it can be an entry of a list.
    """
    base, other, rest = split_name(name)
    words = [other.sut] if other.sut else []
    if other.threads:
        words.append(plural(other.threads, "worker"))
    if other.cores:
        words.append(plural(other.cores, "core"))
    if other.receive_buffer_bytes:
        words.append(f"{binary_size(other.receive_buffer_bytes)} buffer")
    mode = "+".join((base, *rest))
    if not words or mode != DEFAULT:
        words.insert(0, mode)
    start = f" (start {other.start})" if other.start else ""
    return " with ".join(filter(None, (words[0], listed(words[1:])))) + start


def plain(name: str) -> str:
    """Return the label of a mode without the note that the kernel has EEVDF instead of the papers' scheduler CFS."""
    return name.replace(TRANSLATION, "")


def is_translation(name: str) -> bool:
    """Return True if a mode's label notes that the kernel has EEVDF instead of the papers' scheduler CFS."""
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


def _policy(values: Mapping[Setting, int]) -> Policy:
    return list(Policy)[values.get(Setting.POLICY, Policy.OTHER.number)]


def _check_together(name: str, variant: Variant, overrides: Mapping[Setting, int]) -> None:
    """Raise an error for settings that the scheduling policy of the mode would silently ignore."""
    policy = Policy(variant.policy or Policy.OTHER)
    if Setting.POLICY in overrides:
        policy = _policy(overrides)
    useless = (Setting.NICE, Setting.SLICE) if policy.real_time else (Setting.PRIORITY,)
    for setting in useless:
        if setting in {*variant.settings, *overrides}:
            raise StableError(
                f"mode '{name}': policy {policy} ignores {setting}; "
                f"only {'other and batch' if policy.real_time else 'fifo and rr'} use it"
            )


def _resolve(setting: Setting, declared: Any, counts: Counts) -> int:
    if isinstance(declared, int):
        return declared
    if setting in NAMED:
        return NAMED[setting](declared).number
    if isinstance(declared, str):
        factor, _, count = declared.partition(" * ")
        return int(factor) * int(getattr(counts, count))
    count = getattr(counts, declared["by"])
    rows = sorted(int(key) for key in declared if key != "by")
    # ASSUME for a count between two counts in the papers' tables, the value for the smaller count is valid
    row = max((listed for listed in rows if listed <= count), default=rows[0])
    return _resolve(setting, declared[str(row)], counts)
