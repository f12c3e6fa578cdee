"""Tables for the terminal with the settings of each scheduler mode and the kernel files for these settings."""

from collections.abc import Sequence

from sipsched.errors import StableError
from sipsched.measure.scheduler import same_settings
from sipsched.measure.tuning import compile_modes, read_kernel, read_layout
from sipsched.plan.modes import NAMED, Counts, Setting, find_mode, load_modes, value_name
from sipsched.testbed.host import Host
from sipsched.words import plural


def modes_table(sps: Host, cores: int, threads: int) -> list[str]:
    """Return a table of the settings of all declared modes, with the kernel file or task attribute of each setting.

    Returns
    -------
    list of str
        Lines with the mode, the setting, the value, the file or attribute, and whether the kernel accepts the value.
        Further lines name the modes with equal settings.
    """
    declared = load_modes()
    rows = [("mode", "setting", "value", "goes to", "can be set")]
    layout, kernel = read_layout(sps, sps.spec.cpus[:cores]), read_kernel(sps)
    modes = [find_mode(name, declared) for name in declared]
    counts = Counts(cores, threads, layout.processors)
    fitting = []
    for mode in modes:
        try:
            mode.settings(counts)
        except StableError as error:
            rows.append((mode.name, "not declared", "", "", str(error)))
        else:
            fitting.append(mode)
    compiled = compile_modes(sps, fitting, kernel, counts)
    for name, steps in compiled.items():
        if not steps:
            rows.append((name, "none", "", "", "changes nothing"))
        for step in steps:
            value = "as it is" if step.asked is None else _with_unit(step.setting, step.asked)
            if step.value is not None and step.asked not in (None, step.value):
                value += f" (as {_with_unit(step.setting, step.value)})"
            can = "no: " + step.unavailable if step.unavailable else "yes"
            rows.append((name, step.setting.key, value, step.place or "nowhere", can))
    where = f"{layout.processors} processor(s); {kernel.family}"
    if kernel.base_slice_ns is not None:
        where += f"; base slice {kernel.base_slice_ns:,} ns"
    heading = f"{sps.spec}: {plural(cores, 'core')}, {plural(threads, 'thread')}; {where}"
    return [
        heading,
        *_aligned(rows),
        *(f"the same settings here: {', '.join(same)}" for same in same_settings(compiled, kernel)),
    ]


def asked_table(cores: int, threads: int) -> list[str]:
    """Return a table of the settings that each declared mode requests, independent of the kernel of a host.

    Returns
    -------
    list of str
        Lines with the mode, the setting and the value.
    """
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
    return [
        f"{plural(cores, 'core')} of one processor, {plural(threads, 'thread')}; any kernel",
        *_aligned(rows),
    ]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _with_unit(setting: Setting, value: int) -> str:
    if setting in NAMED:
        return value_name(setting, value)
    return f"{value:,} ns" if setting.endswith("_ns") else str(value)
