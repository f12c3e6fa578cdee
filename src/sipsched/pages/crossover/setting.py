"""How an operator sets a mode: by chrt, by systemd, by the proxy's own option, by a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sipsched.analysis.advice import Load
from sipsched.pages.crossover.wording import place_name, provenance
from sipsched.pages.parts import Table, Words
from sipsched.words import listed

POLICIES = ("other", "fifo", "rr", "batch")
"""By the kernel's number. SEE include/uapi/linux/sched.h."""
KAMAILIO_POLICIES = {"rr": 1, "fifo": 2}
"""Of `rt_policy`: Kamailio has numbers of its own. SEE its core cookbook, "Real-Time Parameters"."""
ATTRIBUTES = ("policy", "nice", "priority", "slice_ns")
OF_TASKS = "sched_setattr"
"""What the place of a setting begins with that belongs to single tasks."""


@dataclass(frozen=True)
class InForce:
    """What a mode sets, as the record has it.

    Attributes
    ----------
    policy, nice, priority, slice_ns
        Of the proxy's processes; None where the mode leaves it.
    files
        Path to what is written there.
    refused
        Settings that have no place on this kernel, to the reason.
    """

    policy: str | None
    nice: int | None
    priority: int | None
    slice_ns: int | None
    files: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def empty(self) -> bool:
        """Whether it sets nothing."""
        chosen = (self.policy, self.nice, self.priority, self.slice_ns)
        return not self.files and all(value is None for value in chosen)


def in_force(steps: Sequence[Mapping[str, Any]]) -> InForce:
    """Read the steps of a mode."""
    tasks: dict[str, int] = {}
    files: dict[str, str] = {}
    refused: dict[str, str] = {}
    for step in steps:
        if step["unavailable"]:
            refused[str(step["setting"])] = str(step["unavailable"])
            continue
        place, value = str(step["place"] or ""), step["applied"]
        if value is None:
            continue
        if place.startswith(OF_TASKS):
            # what the papers call min_granularity is the slice of a task where there is nothing else
            name = step["setting"] if step["setting"] in ATTRIBUTES else "slice_ns"
            tasks[name] = int(value)
        elif place:
            files[place] = str(value)
    policy = tasks.get("policy")
    return InForce(
        policy=None if policy is None else POLICIES[policy],
        nice=tasks.get("nice"),
        priority=tasks.get("priority"),
        slice_ns=tasks.get("slice_ns"),
        files=files,
        refused=refused,
    )


def what(found: InForce) -> str:
    """Say what a mode sets."""
    words = []
    if found.policy is not None:
        words.append(f"SCHED_{found.policy.upper()}")
    if found.priority is not None:
        words.append(f"priority {found.priority}")
    if found.nice is not None:
        words.append(f"nice {found.nice}".replace("-", "−"))
    if found.slice_ns is not None:
        words.append(f"a slice of {_slice(found.slice_ns)}")
    words += [f"{path} = {value}" for path, value in found.files.items()]
    return ", ".join(words) or "nothing"


def how(found: InForce, sut: str) -> str:
    """Say how an operator sets it.

    Parameters
    ----------
    found
        What the mode sets.
    sut
        The proxy, for its own option.
    """
    ways = []
    if found.policy in KAMAILIO_POLICIES:
        priority = found.priority or 1
        way = (
            f"chrt --{found.policy} --pid {priority} PID for each of the proxy's processes, or "
            f"CPUSchedulingPolicy={found.policy} and CPUSchedulingPriority={priority} in its systemd unit"
        )
        if sut.startswith("kamailio"):
            way += (
                f", or Kamailio's own real_time=4, rt_policy={KAMAILIO_POLICIES[found.policy]}, "
                f"rt_prio={priority}"
            )
        ways.append(way)
    elif found.policy is not None:
        ways.append(
            f"chrt --{found.policy} --pid 0 PID for each of the proxy's processes, or "
            f"CPUSchedulingPolicy={found.policy} in its systemd unit"
        )
    if found.nice is not None:
        ways.append(f"renice -n {found.nice} -p PID, or Nice={found.nice} in its systemd unit")
    if found.slice_ns is not None:
        ways.append(
            f"sched_setattr(2) with sched_runtime = {found.slice_ns} ns on each of the proxy's processes "
            "(Linux 6.12 and later, no privilege needed): taskslice of this project does it, systemd has "
            "no key for it"
        )
    ways += [
        f"write {value} to {path}, as root, after each start" for path, value in found.files.items()
    ]
    return "; ".join(ways) or "nothing has to be set"


def _slice(slice_ns: int) -> str:
    return f"{slice_ns / 1e6:g} ms" if slice_ns >= 1e6 else f"{slice_ns / 1e3:g} µs"


def table(loads: Sequence[Load]) -> Table:
    """Show what each mode sets, and how an operator does it."""
    rows: dict[tuple[str, ...], None] = {}
    for load in loads:
        for mode in (load.place.reference, *load.modes):
            found = in_force(load.settings(mode))
            told = [what(found)]
            told += [f"without {name}: {why}" for name, why in found.refused.items()]
            sut, way = load.place.sut, how(found, load.place.sut)
            if found.empty and mode != load.place.reference:
                told, way = told[1:] or ["not recorded"], "see config/modes.yaml"
            rows.setdefault((sut, load.label(mode), "; ".join(told), way))
    return Table(
        identity="table-how",
        places=1,
        header=("SUT", "mode", "sets", "how an operator sets it"),
        rows=tuple(rows),
        none="nothing was compared",
        caption="What each mode sets on this kernel, as the records have it, and how to set it for good.",
        provenance=provenance(loads),
    )


def left_out(loads: Sequence[Load]) -> Words:
    """Name the modes that the kernel refuses, and those that come to the same settings."""
    lines: dict[str, None] = {}
    for load in loads:
        for mode, why in load.unavailable.items():
            lines.setdefault(f"{place_name(load.place)}: {mode} is not compared: {why}.")
        for group in load.same_settings:
            lines.setdefault(
                f"{place_name(load.place)}: {listed(group)} come to the same settings on this kernel: an "
                f"A/A comparison, not measured; {group[0]} stands for them."
            )
    none = "Every mode asked for was compared, and no two come to the same settings."
    return Words(tuple(lines) or (none,))
