"""The kernel settings of a scheduler mode, the commands that apply and revert these settings, and their risks."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import xarray as xr

from sipsched.analysis.advice import Advice, ComparedLoad
from sipsched.pages.crossover.wording import place_name, provenance
from sipsched.pages.parts import Folded, Table, Words
from sipsched.plan.cautions import OF_FILES, OF_INSTANCES, OF_POLICIES, OF_SETTINGS, Caution
from sipsched.plan.modes import Policy, Setting, first_start, split_name
from sipsched.words import binary_size, listed, plural

KAMAILIO_POLICIES = {Policy.RR: 1, Policy.FIFO: 2}
"""Values of Kamailio's parameter `rt_policy`. SEE Kamailio's core cookbook, "Real-Time Parameters"."""
ATTRIBUTES = (Setting.POLICY, Setting.NICE, Setting.PRIORITY, Setting.SLICE)
NO_OTHERS = "The effect on other programs was not measured."
OF_TASKS = "sched_setattr"
"""The first word of a setting's path if the setting belongs to single tasks instead of the whole kernel."""


@dataclass(frozen=True)
class InForce:
    """The settings that a scheduler mode applied in a run, as listed in the record (result files) of the run.

    Attributes
    ----------
    tasks
        Attributes of the proxy's processes.
    files
        Values by path.
    refused
        The reason for each setting that this kernel does not have.
    """

    tasks: Mapping[Setting, int]
    files: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def empty(self) -> bool:
        """True if the mode changes no setting."""
        return not self.tasks and not self.files

    @property
    def policy(self) -> Policy | None:
        """The scheduling policy of the proxy's processes. None if the mode does not change the policy."""
        number = self.tasks.get(Setting.POLICY)
        return None if number is None else list(Policy)[number]

    @property
    def cautions(self) -> list[Caution]:
        """The risks of the settings, each with the command that reverts the setting."""
        found_cautions = [OF_POLICIES[self.policy]] if self.policy else []
        found_cautions += [OF_SETTINGS[setting] for setting in self.tasks if setting in OF_SETTINGS]
        return found_cautions + ([OF_FILES] if self.files else [])


def in_force(steps: Sequence[Mapping[str, Any]]) -> InForce:
    """Return the settings of a mode from the recorded steps. A step describes one applied or refused setting."""
    tasks: dict[Setting, int] = {}
    files: dict[str, str] = {}
    refused: dict[str, str] = {}
    for step in steps:
        place, value = str(step["place"] or ""), step["applied"]
        if step["unavailable"]:
            refused[str(step["setting"])] = str(step["unavailable"])
        elif value is not None and place.startswith(OF_TASKS):
            # If the kernel has no file for the setting min_granularity of the two papers, the mode sets the slice of
            # each task instead.
            setting = Setting(step["setting"])
            tasks[setting if setting in ATTRIBUTES else Setting.SLICE] = int(value)
        elif value is not None and place:
            files[place] = str(value)
    return InForce(tasks, files, refused)


def what(applied: InForce) -> str:
    """Return the settings of a mode as a short text, such as "SCHED_FIFO, priority 1"."""
    words = [f"SCHED_{applied.policy.upper()}"] if applied.policy else []
    for setting, name in ((Setting.PRIORITY, "priority"), (Setting.NICE, "nice")):
        if setting in applied.tasks:
            words.append(f"{name} {applied.tasks[setting]}".replace("-", "−"))
    if Setting.SLICE in applied.tasks:
        slice_ns = applied.tasks[Setting.SLICE]
        length = f"{slice_ns / 1e6:g} ms" if slice_ns >= 1e6 else f"{slice_ns / 1e3:g} µs"
        words.append(f"a slice of {length}")
    words += [f"{path} = {value}" for path, value in applied.files.items()]
    return ", ".join(words) or "nothing"


def how(applied: InForce, sut: str) -> str:
    """Return as text how an operator applies a mode. Modes that differ only in the slice length have the same text."""
    ways = []
    policy = applied.policy
    if policy is not None:
        priority = applied.tasks.get(Setting.PRIORITY, 1) if policy.real_time else 0
        unit = f"CPUSchedulingPolicy={policy}"
        unit += f" and CPUSchedulingPriority={priority}" if policy.real_time else ""
        ways.append(
            f"`chrt --{policy} --pid {priority} PID` for each of the proxy's processes, or `{unit}` in its systemd unit"
        )
        if policy.real_time and sut.startswith("kamailio"):
            number = KAMAILIO_POLICIES[policy]
            ways[0] += (
                f", or Kamailio's own real_time=4, rt_policy={number}, rt_prio={priority}, which excludes the timer "
                "processes"
            )
    if Setting.NICE in applied.tasks:
        nice = applied.tasks[Setting.NICE]
        ways.append(f"`renice -n {nice} -p PID`, or `Nice={nice}` in its systemd unit")
    if Setting.SLICE in applied.tasks:
        ways.append(
            "sched_setattr(2) with sched_runtime = the slice in ns, on each of the proxy's processes (Linux 6.12 and "
            "later, without privileges); the program taskslice of sipsched does this; systemd has no key for a slice"
        )
    ways += [
        f"write {value} to {path} as root after each start" for path, value in applied.files.items()
    ]
    return "; ".join(ways) or "nothing has to be set"


def differences(
    summary: xr.Dataset, suts: Mapping[str, Mapping[str, object]], loads: Iterable[ComparedLoad]
) -> dict[str, str]:
    """Return the differences of each compared SUT from the SUT of the reference as text, by the name of the SUT.

    The versions of the programs come from the record.

    Parameters
    ----------
    suts
        The settings of the SUTs in the configuration. Without these settings, the text has only the versions.
    """
    hosts = json.loads(summary.attrs.get("hosts", "{}"))
    versions = hosts.get("sps", {}).get("versions") or {}
    found = {}
    for load in loads:
        for mode in load.modes:
            sut = split_name(mode)[1].sut
            if not sut:
                continue
            old, new = (
                {"version": _version(versions.get(name, ""))} | dict(suts.get(name, {}))
                for name in (load.place.sut, sut)
            )
            found[sut] = ", ".join(
                f"{key} {value}" + (f" instead of {old[key]}" if old.get(key) else "")
                for key, value in new.items()
                if key != "name" and value and value != old.get(key)
            )
    return {sut: text for sut, text in found.items() if text}


def _version(text: str) -> str:
    """Return the first number with dots from the output of a program's version option; empty without such a number."""
    match = re.search(r"\d+(\.\d+)+", text)
    return match[0] if match else ""


def restarted(mode: str, sut: str, differences: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return as text how to restart a proxy for a mode, for example with another number of workers or cores.

    If the mode needs no restart, return an empty text. If the name of the SUT begins with the name of a known proxy,
    the text names only the configuration keys of this proxy.
    """
    _, other, _ = split_name(mode)
    ways = []
    if other.sut:
        words = f" ({differences[other.sut]})" if other.sut in differences else ""
        ways.append(f"with the configuration of the SUT {other.sut}{words}")
    if other.threads:
        count = other.threads
        keys = _keys(
            sut,
            {
                "Kamailio": f"children={count}, or over TCP tcp_children={count}",
                "OpenSIPS": f"udp_workers={count}, or over TCP tcp_workers={count}",
            },
        )
        ways.append(f"with {plural(count, 'worker')} ({keys})")
    if other.cores:
        ways.append(
            f"on {plural(other.cores, 'CPU')} (taskset --cpu-list, or CPUAffinity= in its systemd unit)"
        )
    if other.receive_buffer_bytes:
        size = other.receive_buffer_bytes
        ways.append(
            f"with a receive buffer of {binary_size(size)} (Kamailio and OpenSIPS: maxbuffer={size}; "
            f"net.core.rmem_default must be at most {size} and net.core.rmem_max at least {size})"
        )
    return (
        " ".join(("restart the proxy", " and ".join(ways))).strip() if ways or other.start else ""
    )


def _keys(sut: str, by_proxy: Mapping[str, str]) -> str:
    """Return the configuration keys of the proxy of a SUT as text. If the proxy is unknown, name the keys of all."""
    own = [proxy for proxy in by_proxy if sut.startswith(proxy.lower())]
    return "; ".join(f"{proxy}: {by_proxy[proxy]}" for proxy in own or by_proxy)


def cautions_of_restart(mode: str) -> list[Caution]:
    """Return the risks of a mode that needs a restart of the proxy, each with the command that reverts the setting."""
    _, other, _ = split_name(mode)
    return [caution for key, caution in OF_INSTANCES.items() if getattr(other, key) is not None]


def _steps(
    applied: InForce, mode: str, sut: str, differences: Mapping[str, str]
) -> list[tuple[str, list[Caution]]]:
    """Return the steps that set a mode: a restart of the proxy, then the scheduler settings of its processes.

    A step is the command as text, and the risks of the command. A mode may need none, one or both steps.
    """
    steps = []
    if restart := restarted(mode, sut, differences):
        steps.append((restart, cautions_of_restart(mode)))
    if not applied.empty:
        steps.append((how(applied, sut), applied.cautions))
    return steps


def advised(
    comparisons: Sequence[Advice], differences: Mapping[str, str] = MappingProxyType({})
) -> Words:
    """Return sentences on how to apply and revert each recommended mode, and on the risk of each mode.

    Parameters
    ----------
    differences
        The differences of each SUT from the reference's SUT, as `differences` returns them.
    """
    lines: dict[str, None] = {}
    for advice in comparisons:
        named = {ranking.best.mode: ranking.load for ranking in advice.rankings if ranking.best}
        for mode, load in named.items():
            applied, label = in_force(load.settings(mode)), load.label(mode)
            steps = _steps(applied, mode, load.place.sut, differences)
            if not steps:
                lines[
                    f"To set {label}: the record of the run names no setting, so read the settings in "
                    "config/modes.yaml."
                ] = None
            if len(steps) > 1:
                lines[f"To set {label}, do {len(steps)} steps in this order."] = None
            for number, (way, cautions) in enumerate(steps, 1):
                name = f"{label}, step {number}" if len(steps) > 1 else label
                lines[f"To set {name}: {way}."] = None
                for caution in cautions:
                    scheduler = caution in applied.cautions
                    lines[f"Risk of {name}: {caution.risk}{f' {NO_OTHERS}' * scheduler}"] = None
                    lines[f"To undo {name}: {caution.undo}."] = None
    return Words(tuple(lines) or ("No setting is recommended, so there is nothing to set.",))


def every_mode(
    loads: Sequence[ComparedLoad], differences: Mapping[str, str] = MappingProxyType({})
) -> Folded:
    """Make the collapsed page section with the table of all modes and the list of modes that were not compared."""
    parts = (table(loads, differences), left_out(loads))
    return Folded("Every mode: settings, commands, risks", parts)


def table(
    loads: Sequence[ComparedLoad], differences: Mapping[str, str] = MappingProxyType({})
) -> Table:
    """Return a table of modes: their settings, the commands that apply and revert the settings, and the risk."""
    # Modes with equal commands share a row. If no command sets a mode other than the reference, the row refers to
    # config/modes.yaml.
    rows: dict[tuple[str, str, str, str], dict[str, tuple[str, ...]]] = {}
    for load in loads:
        for mode in (load.place.reference, *load.modes):
            applied = in_force(load.settings(mode))
            steps = _steps(applied, mode, load.place.sut, differences)
            unset = mode == load.place.reference or first_start(mode) == load.place.reference
            way = "; then ".join(way for way, _ in steps)
            cautions = dict.fromkeys(caution for _, found in steps for caution in found)
            row = (
                load.place.sut,
                way or ("nothing has to be set" if unset else "see config/modes.yaml"),
                " ".join(caution.risk for caution in cautions),
                "; ".join(caution.undo for caution in cautions),
            )
            rows.setdefault(row, {}).setdefault(load.label(mode), tuple(_sets(applied)))
    return Table(
        identity="table-how",
        places=1,
        header=("SUT", "mode", "sets", "how an operator sets it", "risk", "how to undo it"),
        rows=tuple(
            (sut, ", ".join(modes), _of_modes(modes), way, risk, undo)
            for (sut, way, risk, undo), modes in rows.items()
        ),
        none="nothing was compared",
        caption="The settings of each mode on this kernel, the commands that set them permanently, their risk and how "
        "to undo them.",
        provenance=provenance(loads),
    )


def _of_modes(modes: Mapping[str, Sequence[str]]) -> str:
    """Return the settings of the modes in a row of the table as text.

    Settings that only some modes have follow the name of their mode. Settings of all modes are at the end.
    """
    common = [
        part
        for part in next(iter(modes.values()))
        if all(part in parts for parts in modes.values())
    ]
    own = {
        label: ", ".join(part for part in parts if part not in common)
        for label, parts in modes.items()
    }
    return "; ".join((*(f"{label}: {sets}" for label, sets in own.items() if sets), *common))


def _sets(applied: InForce) -> Iterator[str]:
    if not applied.empty or not applied.refused:
        yield what(applied)
    for name, why in applied.refused.items():
        yield f"{name} is not set: {why}"


def left_out(loads: Sequence[ComparedLoad]) -> Words:
    """Return sentences on the modes that the kernel refuses, and on groups of modes with the same settings."""
    lines: dict[str, None] = {}
    for load in loads:
        for mode, why in load.unavailable.items():
            lines.setdefault(
                f"{place_name(load.place)}: mode {mode} is not compared. Reason: {why}."
            )
        for group in load.same_settings:
            lines.setdefault(
                f"{place_name(load.place)}: {listed(group)} have the same settings on this kernel. Only {group[0]} "
                "was measured."
            )
    none = "Every requested mode was compared, and no two modes have the same settings."
    return Words(tuple(lines) or (none if loads else "No mode was compared.",))
