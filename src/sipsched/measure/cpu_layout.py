"""The layout of the SPS's CPUs: their cores, processors, NUMA nodes and caches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sipsched.errors import StableError

MOST_CPUS = 8192
"""Largest value of the kernel's build option NR_CPUS, which limits the number of CPUs."""
LSCPU = ("lscpu", "--parse=CPU,CORE,SOCKET,NODE,CACHE")


@dataclass(frozen=True)
class Cpu:
    """A CPU, with the kernel's numbers of its core, its processor (socket), its NUMA node and its last-level cache."""

    number: int
    core: int
    processor: int
    node: int | None
    cache: int | None


@dataclass(frozen=True)
class CpuLayout:
    """The CPUs of the SPS that a run uses.

    Attributes
    ----------
    cpus
        The CPUs, in the order of the testbed's file.
    """

    cpus: tuple[Cpu, ...]

    @property
    def processors(self) -> int:
        """Number of processors that contain the CPUs: p in the capacity model."""
        return len({cpu.processor for cpu in self.cpus})

    @property
    def cores(self) -> int:
        """Number of cores, where two SMT siblings count as one core: c in the capacity model."""
        return len({(cpu.processor, cpu.core) for cpu in self.cpus})

    def describe(self) -> dict[str, Any]:
        """Return the layout as a value for `run.json`."""
        return {
            "cpus": [vars(cpu) for cpu in self.cpus],
            "processors": self.processors,
            "cores": self.cores,
            "smt_siblings": len(self.cpus) - self.cores,
            "caches": len({cpu.cache for cpu in self.cpus if cpu.cache is not None}) or None,
            "numa_nodes": len({cpu.node for cpu in self.cpus if cpu.node is not None}) or None,
        }


def parse_lscpu(text: str, cpus: Sequence[int]) -> CpuLayout:
    """Parse the output of the command `LSCPU`.

    Parameters
    ----------
    text
        The output: comments, then one line per online CPU. Caches are listed from the first level to the last. Colons
        separate the caches. From util-linux 2.38 on, commas after an empty column separate them.
    cpus
        The CPUs of the SPS.

    Raises
    ------
    StableError
        The text is not output of `LSCPU`, or a CPU of the SPS is not online.
    """
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    try:
        online = {
            int(row[0]): Cpu(
                int(row[0]),
                int(row[1] or row[0]),
                int(row[2] or 0),
                _number(row[3]),
                _number(":".join(row[4:]).split(":")[-1]),
            )
            for row in rows
        }
    except (IndexError, ValueError):
        raise StableError(f"expected the output of {' '.join(LSCPU)}, found {text!r:.80}") from None
    missing = [cpu for cpu in cpus if cpu not in online]
    if missing:
        raise StableError(
            f"CPU {', '.join(map(str, missing))} of the SPS is not online; "
            "bring it online, or change the CPUs in the testbed's file"
        )
    return CpuLayout(tuple(online[cpu] for cpu in cpus))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs in the kernel's format, such as `0-3,8`.

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
    """Return the kernel's hexadecimal mask of some CPUs, in groups of 32 bits with the highest CPUs first."""
    digits = f"{sum(1 << cpu for cpu in set(cpus)):x}"
    padded = digits.zfill(-(-len(digits) // 8) * 8)
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return ",".join((groups[0].lstrip("0") or "0", *groups[1:]))


def _number(text: str) -> int | None:
    return int(text) if text else None
