"""The CPUs of the SPS in a run: their cores, processors, NUMA nodes and caches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sipsched.errors import StableError

MOST_CPUS = 8192
"""Largest NR_CPUS of Linux."""
LSCPU = ("lscpu", "--parse=CPU,CORE,SOCKET,NODE,CACHE")


@dataclass(frozen=True)
class Cpu:
    """A CPU, with the kernel's numbers of its core, processor (socket), NUMA node and last-level cache."""

    number: int
    core: int
    processor: int
    node: int | None
    cache: int | None


@dataclass(frozen=True)
class CpuLayout:
    """CPUs of the SPS in a run.

    Attributes
    ----------
    cpus
        The CPUs, in the order of the testbed's file.
    """

    cpus: tuple[Cpu, ...]

    @property
    def processors(self) -> int:
        """Number of processors to which the CPUs belong: p of the capacity model."""
        return len({cpu.processor for cpu in self.cpus})

    @property
    def cores(self) -> int:
        """Number of cores, where SMT siblings count once: c of the capacity model."""
        return len({(cpu.processor, cpu.core) for cpu in self.cpus})

    def describe(self) -> dict[str, Any]:
        """Return the layout in the form of `run.json`."""
        return {
            "cpus": [vars(cpu) for cpu in self.cpus],
            "processors": self.processors,
            "cores": self.cores,
            "smt_siblings": len(self.cpus) - self.cores,
            "caches": len({cpu.cache for cpu in self.cpus if cpu.cache is not None}) or None,
            "numa_nodes": len({cpu.node for cpu in self.cpus if cpu.node is not None}) or None,
        }


def parse_lscpu(text: str, cpus: Sequence[int]) -> CpuLayout:
    """Parse the output of `LSCPU`.

    Parameters
    ----------
    text
        The output: comments, then one line per online CPU. Caches are listed from the first level to the last. They
        are separated by colons or, from util-linux 2.38 on, by commas after an empty column.
    cpus
        The CPUs of the SPS.

    Raises
    ------
    StableError
        The text is not such output, or a CPU of the SPS is not online.
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
        The text is not such a list, or a CPU number is 8192 or more.
    """
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        ends = [int(end) for end in part.split("-") if re.fullmatch("[0-9]{1,4}", end)]
        if len(ends) != part.count("-") + 1 or len(ends) > 2 or max(ends) >= MOST_CPUS:
            raise StableError(f"expected a list of CPUs such as 0-3,8, found {text!r:.80}")
        cpus.extend(range(ends[0], ends[-1] + 1))
    return tuple(cpus)


def cpu_mask(cpus: Sequence[int]) -> str:
    """Return the kernel's hexadecimal mask of some CPUs: groups of 32 bits, the highest CPUs first."""
    digits = f"{sum(1 << cpu for cpu in set(cpus)):x}"
    padded = digits.zfill(-(-len(digits) // 8) * 8)
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return ",".join((groups[0].lstrip("0") or "0", *groups[1:]))


def _number(text: str) -> int | None:
    return int(text) if text else None
