"""Which CPUs the SPS has in a run, and what they share."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sipsched.errors import StableError

MOST_CPUS = 8192
"""Linux's NR_CPUS at its largest."""
LSCPU = ("lscpu", "--parse=CPU,CORE,SOCKET,NODE,CACHE")


@dataclass(frozen=True)
class Cpu:
    """One CPU as the kernel numbers it: core, processor (socket), NUMA node, last-level cache."""

    number: int
    core: int
    processor: int
    node: int | None
    cache: int | None


@dataclass(frozen=True)
class Layout:
    """CPUs of the SPS in a run.

    Attributes
    ----------
    cpus
        In the order of the testbed's file.
    """

    cpus: tuple[Cpu, ...]

    @property
    def processors(self) -> int:
        """Number of processors that have one of the CPUs: p of the capacity model."""
        return len({cpu.processor for cpu in self.cpus})

    @property
    def cores(self) -> int:
        """Number of cores, SMT siblings counted once: c of the capacity model."""
        return len({(cpu.processor, cpu.core) for cpu in self.cpus})

    def describe(self) -> dict[str, Any]:
        """Give the layout as run.json has it."""
        return {
            "cpus": [vars(cpu) for cpu in self.cpus],
            "processors": self.processors,
            "cores": self.cores,
            "smt_siblings": len(self.cpus) - self.cores,
            "caches": len({cpu.cache for cpu in self.cpus if cpu.cache is not None}) or None,
            "numa_nodes": len({cpu.node for cpu in self.cpus if cpu.node is not None}) or None,
        }


def parse_lscpu(text: str, cpus: Sequence[int]) -> Layout:
    """Read the lines of `LSCPU`.

    Parameters
    ----------
    text
        What it printed: comments, then one line an online CPU, caches from the first level to the
        last, separated by colons or, as util-linux 2.38 does, by commas after an empty column.
    cpus
        Those of the SPS.

    Raises
    ------
    StableError
        It is not that, or one of them is not online.
    """
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    try:
        found = {
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
        raise StableError(f"not the answer of {' '.join(LSCPU)}: {text!r:.80}") from None
    missing = [cpu for cpu in cpus if cpu not in found]
    if missing:
        raise StableError(f"CPU {', '.join(map(str, missing))} of the SPS is not online")
    return Layout(tuple(found[cpu] for cpu in cpus))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's list format, such as `0-3,8`.

    Raises
    ------
    StableError
        It is no such list, or names a CPU that no Linux has.
    """
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        ends = [int(end) for end in part.split("-") if re.fullmatch("[0-9]{1,4}", end)]
        if len(ends) != part.count("-") + 1 or len(ends) > 2 or max(ends) >= MOST_CPUS:
            raise StableError(f"expected a list of CPUs such as 0-3,8, found {text!r:.80}")
        cpus.extend(range(ends[0], ends[-1] + 1))
    return tuple(cpus)


def cpu_mask(cpus: Sequence[int]) -> str:
    """Write a set of CPUs as the kernel's hexadecimal masks are: groups of 32 bits, high ones first."""
    digits = f"{sum(1 << cpu for cpu in set(cpus)):x}"
    padded = digits.zfill(-(-len(digits) // 8) * 8)
    groups = [padded[start : start + 8] for start in range(0, len(padded), 8)]
    return ",".join((groups[0].lstrip("0") or "0", *groups[1:]))


def _number(text: str) -> int | None:
    return int(text) if text else None
