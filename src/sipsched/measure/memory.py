"""Whether the SPS has the memory that a proxy may come to use."""

from sipsched.errors import StableError
from sipsched.measure.hoststate import read_files
from sipsched.plan.config import Sut
from sipsched.testbed.host import Host

MEMINFO = "/proc/meminfo"


def check_memory(sps: Host, sut: Sut, threads: int) -> None:
    """Refuse a run whose proxy may use more memory than the SPS has left.

    Parameters
    ----------
    sps
        The host; nothing of an earlier run is on it any more.
    sut
        Says how much the workers share and how much each has for itself.
    threads
        Number of workers.

    Raises
    ------
    StableError
        They do not fit; with what is needed, what is there, and what to change.
    """
    needed = sut.shared_memory_mib + threads * sut.package_memory_mib
    available = available_mib(
        read_files(sps, (MEMINFO,)).get(MEMINFO, ""), f"{sps.spec}: {MEMINFO}"
    )
    if needed > available:
        raise StableError(
            f"host {sps.spec}: {sut.name} with {threads} workers may use {needed} MiB "
            f"({sut.shared_memory_mib} shared, {sut.package_memory_mib} for each worker), "
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
