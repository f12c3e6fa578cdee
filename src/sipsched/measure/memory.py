"""Whether the SPS has the memory that a proxy may come to use."""

from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.measure.hoststate import read_files
from sipsched.measure.proxy import FRONT_SHARED_MIB, instance_shared_mib
from sipsched.plan.config import Sut
from sipsched.testbed.host import Host

MEMINFO = "/proc/meminfo"


@dataclass(frozen=True)
class Need:
    """Memory that a proxy may come to use: what its processes share, and what each worker has for itself."""

    shared_mib: int
    workers: int
    package_mib: int

    @property
    def total_mib(self) -> int:
        """All of it."""
        return self.shared_mib + self.workers * self.package_mib


def memory_need(sut: Sut, threads: int, cores: int) -> Need:
    """Add up what is asked for on the proxy's command lines, that of a front proxy, with a worker a core, included."""
    shared_mib, workers = sut.instances(threads) * instance_shared_mib(sut, threads), threads
    if sut.deployment == "front":
        shared_mib, workers = shared_mib + FRONT_SHARED_MIB, workers + cores
    return Need(shared_mib, workers, sut.package_memory_mib)


def check_memory(sps: Host, sut: Sut, threads: int, cores: int) -> None:
    """Refuse a run whose proxy may use more memory than the SPS has left.

    Parameters
    ----------
    sps
        The host; nothing of an earlier run is on it any more.
    sut
        Says how much the workers share and how much each has for itself.
    threads, cores
        Number of workers, and of CPUs that they are held to.

    Raises
    ------
    StableError
        They do not fit; with what is needed, what is there, and what to change.
    """
    need = memory_need(sut, threads, cores)
    available = available_mib(
        read_files(sps, (MEMINFO,)).get(MEMINFO, ""), f"{sps.spec}: {MEMINFO}"
    )
    if need.total_mib > available:
        raise StableError(
            f"host {sps.spec}: {sut.name} with {need.workers} workers may use {need.total_mib} MiB "
            f"({need.shared_mib} shared, {need.package_mib} for each worker), "
            f"{available} MiB are available; lower threads, shared_memory_mib or package_memory_mib"
        )


def available_mib(text: str, where: str = MEMINFO) -> int:
    """Read MemAvailable: memory that programs can have without swapping (Linux 3.14 and later).

    Raises
    ------
    StableError
        There is no such line.
    """
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemAvailable" and len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            return int(words[0]) // 1024
    raise StableError(f"{where}: expected a line 'MemAvailable: <number> kB', found none")
