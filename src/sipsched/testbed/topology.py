"""The CPU cores of this machine, and their division among the proxy, load generators and other programs."""

import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from sipsched.errors import StableError

CPUS = Path("/sys/devices/system/cpu")
"""Folder in which Linux describes the CPUs."""
MOST_CPUS = 8192
"""Largest value of the kernel's build option NR_CPUS, which limits the number of CPUs."""
CORES_TO_SEPARATE = 4
"""Smallest number of cores with which the proxy shares no core with the load generators."""
CORES_PER_AGENT = 5
"""One of every five cores is for the UAC, and one is for the UAS. The core for helper programs is not counted."""


@dataclass(frozen=True)
class Core:
    """A physical core: the number of its processor (socket), and its hyper-threads, which Linux calls CPUs."""

    processor: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """The division of this machine's CPUs among the UAC, the UAS, the proxy and all other programs of sipsched."""

    uac: tuple[int, ...]
    uas: tuple[int, ...]
    sps: tuple[int, ...]
    helpers: tuple[int, ...]

    @property
    def front(self) -> tuple[int, ...]:
        """The CPUs of a front end on its own host: all CPUs of the load generators, and no CPU of the proxy alone."""
        return tuple(dict.fromkeys((*self.uac, *self.uas)))


ONE_CORE = Division(uac=(0,), uas=(0,), sps=(1, 0), helpers=(0,))
"""The division of CPUs on a machine with one core or without Linux, where runs fail because a CPU is missing."""


def read_cores(folder: Path = CPUS, allowed: Collection[int] | None = None) -> tuple[Core, ...]:
    """Return the cores of this machine, in the order of their lowest CPU; empty if this machine does not run Linux.

    Parameters
    ----------
    folder
        The folder that describes the CPUs.
    allowed
        The CPUs that this process may use; all other CPUs are ignored. None stands for this process's CPU affinity.
    """
    if not (folder / "online").exists():
        return ()
    usable = os.sched_getaffinity(0) if allowed is None else allowed
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in parse_cpu_list((folder / "online").read_text()):
        path = folder / f"cpu{cpu}" / "topology"
        if cpu in usable and path.exists():
            processor = int((path / "physical_package_id").read_text())
            first = parse_cpu_list((path / "thread_siblings_list").read_text())[0]
            cores.setdefault((processor, first), []).append(cpu)
    found_cores = [Core(processor, tuple(sorted(cpus))) for (processor, _), cpus in cores.items()]
    return tuple(sorted(found_cores, key=lambda core: core.cpus))


def divide(cores: Sequence[Core]) -> Division:
    """Divide the cores of this machine among the proxy, the load generators and the helper programs.

    With two or three cores, the generators and the helpers share one core, and the proxy uses this core last. With more
    cores, the helpers, the generators and the proxy have separate cores. The proxy uses one hyper-thread per core, and
    uses all cores of one processor before it uses the next processor.
    """
    if len(cores) < 2:
        return ONE_CORE
    first, rest = cores[0].cpus, cores[1:]
    if len(cores) < CORES_TO_SEPARATE:
        others = tuple(core.cpus[0] for core in rest)
        return Division(first[:1], first[:1], (*others, first[0]), first[-1:])
    per_agent = len(rest) // CORES_PER_AGENT
    agents, proxy = rest[: max(1, 2 * per_agent)], list(rest[max(1, 2 * per_agent) :])
    uac = tuple(cpu for core in agents[: max(1, per_agent)] for cpu in core.cpus)
    uas = tuple(cpu for core in agents[-max(1, per_agent) :] for cpu in core.cpus)
    left = Counter(core.processor for core in proxy)
    proxy.sort(key=lambda core: (-left[core.processor], core.processor, core.cpus))
    return Division(uac, uas, tuple(core.cpus[0] for core in proxy), first)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPU numbers in a list in the kernel's format, such as `0-3,8`.

    Raises
    ------
    StableError
        The text is not a list of CPUs, or a CPU number is 8192 or more.
    """
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        ends = [int(end) for end in part.split("-") if re.fullmatch("[0-9]{1,4}", end)]
        if len(ends) != part.count("-") + 1 or len(ends) > 2 or max(ends) >= MOST_CPUS:
            raise StableError(f"expected a list of CPUs such as 0-3,8, found {text!r:.80}")
        cpus.extend(range(ends[0], ends[-1] + 1))
    return tuple(cpus)


def cpu_mask(cpus: Sequence[int]) -> str:
    """Return a CPU mask in the kernel's hexadecimal format, with the highest CPUs first."""
    digits = f"{sum(1 << cpu for cpu in set(cpus)):x}"
    padded = digits.zfill(-(-len(digits) // 8) * 8)
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return ",".join((groups[0].lstrip("0") or "0", *groups[1:]))
