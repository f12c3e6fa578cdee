"""A table of the settings of each scheduler mode, as this kernel applied them."""

from collections.abc import Iterable

import xarray as xr

from sipsched.analysis.comparison import Case
from sipsched.analysis.run_table import provenance
from sipsched.pages.numbers import NO_ENTRY
from sipsched.pages.parts import Table, Words
from sipsched.pages.tables import buffers_differ
from sipsched.plan.modes import Setting, value_name
from sipsched.words import plural

Size = tuple[int, int]
"""The number of cores and the number of threads."""


def table(case: Case) -> Table:
    """Return a table of each mode's settings: the requested value, and the value that this kernel applied."""
    sizes: dict[tuple[str, ...], dict[Size, None]] = {}
    for place in case.places():
        for mode in case.modes:
            for setting in case.side(place, mode).settings:
                lines = [_step(step) for step in setting["steps"]]
                for line in lines or [("none", NO_ENTRY, "changes nothing")]:
                    key = (case.label(mode), *line)
                    sizes.setdefault(key, {})[place.cores, place.threads] = None
    rows = [(*key, _merged(at)) for key, at in sizes.items()]
    return Table(
        identity="table-settings",
        header=("mode", "setting", "requested", "on this kernel", "cores and threads"),
        rows=tuple(sorted(rows)),
        none="no record contains the applied settings of a mode",
        caption='The settings of each mode on this kernel, in ns. The column "on this kernel" shows the applied value '
        "and the file or call with which it was set, or the reason why the kernel has no such setting. The "
        f"kernel's scheduler: {', '.join(_schedulers(case.summary)) or 'not recorded'}.",
        provenance=provenance(case.summary),
    )


def _step(step: dict[str, object]) -> tuple[str, str, str]:
    """Return three table cells of a setting: the name, the requested value, and the applied value or a reason."""
    setting, asked = Setting(str(step["setting"])), step["asked"]
    return (
        setting.key,
        "as it is" if asked is None else _value(setting, asked),
        str(step["unavailable"] or f"{_value(setting, step['applied'])}: {step['place']}"),
    )


def _value(setting: Setting, value: object) -> str:
    return value_name(setting, value) if isinstance(value, int) else str(value)


def _merged(sizes: Iterable[Size]) -> str:
    """Return thread counts per core count as text: "1 core, 2, 4 threads" means 2 or 4 threads on one core."""
    by_cores: dict[int, list[str]] = {}
    for cores, threads in sizes:
        by_cores.setdefault(cores, []).append(str(threads))
    return "; ".join(
        f"{plural(cores, 'core')}, {', '.join(counts)} threads"
        for cores, counts in by_cores.items()
    )


def _schedulers(summary: xr.Dataset) -> list[str]:
    families = {str(text) for text in summary["scheduler_family"].to_numpy().ravel()}
    return sorted(families - {"", "unknown"})


def words(case: Case) -> Words:
    """Return sentences on the settings of the two compared modes.

    The sentences name translated modes, whose settings this kernel lacks and sipsched replaced by similar ones. The
    sentences also name proxies for which the two modes have the same settings.
    """
    first, second = case.both
    lines = []
    for mode in (case.reference, case.other):
        if case.translated(mode):
            lines.append(
                f"{case.label(mode)}: this kernel has another scheduler than the papers' kernels. The mode omits "
                "settings that have no equivalent on this kernel. Its results therefore do not describe the papers' "
                f"{mode} mode."
            )
    known = {place: case.same_settings(place) for place in case.places()}
    for place, same in known.items():
        if same:
            lines.append(
                f"{case.name(place)}: {first} and {second} have the same settings on this kernel. Any difference "
                "between the two modes is due to chance."
            )
    different = [case.name(place) for place, same in known.items() if same is False]
    if different:
        lines.append(f"The two modes have different settings with: {'; '.join(different)}.")
    unknown = [case.name(place) for place, same in known.items() if same is None]
    if unknown:
        lines.append(
            "Because runs are missing, it is unknown whether the two modes have different settings with: "
            f"{'; '.join(unknown)}."
        )
    for sut, buffers in case.buffers.items():
        lines += [f"{sut}: {line}" for line in buffers_differ(buffers, case.label)]
    return Words(tuple(lines))
