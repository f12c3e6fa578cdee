"""The layout of the CPUs of the proxy's host: their cores, processors, NUMA nodes and caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sipsched.errors import StableError

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
    """The CPUs of the proxy's host that a run uses.

    Attributes
    ----------
    cpus
        The CPUs, in the order of the testbed's file.
    """

    cpus: tuple[Cpu, ...]

    @property
    def processors(self) -> int:
        """The number of processors (sockets) that contain the run's CPUs."""
        return len({cpu.processor for cpu in self.cpus})

    @property
    def cores(self) -> int:
        """The number of physical cores of the run's CPUs. Two hardware threads (SMT) of a core count once."""
        return len({(cpu.processor, cpu.core) for cpu in self.cpus})

    def describe(self) -> dict[str, Any]:
        """Return the CPUs and the numbers of cores, caches and NUMA nodes as a dictionary for `run.json`."""
        return {
            "cpus": [vars(cpu) for cpu in self.cpus],
            "processors": self.processors,
            "cores": self.cores,
            "smt_siblings": len(self.cpus) - self.cores,
            "caches": len({cpu.cache for cpu in self.cpus if cpu.cache is not None}) or None,
            "numa_nodes": len({cpu.node for cpu in self.cpus if cpu.node is not None}) or None,
        }


def parse_lscpu(text: str, cpus: Sequence[int]) -> CpuLayout:
    """Parse the output of `lscpu`, and return the layout of some CPUs.

    Parameters
    ----------
    text
        The output: comments, then one line per online CPU. A line lists the caches from the first level to the last,
        separated by colons. From util-linux 2.38 on, an empty column and commas separate the caches.
    cpus
        The CPUs of the SPS.

    Raises
    ------
    StableError
        The text is not the output of the command `LSCPU`, or a CPU of the SPS is not online.
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


def _number(text: str) -> int | None:
    return int(text) if text else None
