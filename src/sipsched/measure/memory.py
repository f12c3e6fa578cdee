"""The check that a host has enough memory for the proxy or its front end."""

from collections.abc import Sequence
from dataclasses import dataclass

from sipsched.errors import StableError
from sipsched.measure.hoststate import read_files
from sipsched.measure.proxy import FRONT_SHARED_MIB, instance_shared_mib
from sipsched.plan.sut import Sut
from sipsched.testbed.host import Host

MEMINFO = "/proc/meminfo"


@dataclass(frozen=True)
class Need:
    """The maximum memory of a proxy: memory that all processes share, and private memory per worker, in MiB."""

    shared_mib: int
    workers: int
    package_mib: int

    @property
    def total_mib(self) -> int:
        """The maximum memory of a proxy in MiB: the shared memory plus the private memory of all workers."""
        return self.shared_mib + self.workers * self.package_mib


def memory_need(sut: Sut, threads: int, cores: int) -> Need:
    """Return the amount of memory that a proxy and its front end on the same host request on their command lines."""
    shared_mib, workers = sut.instances(threads) * instance_shared_mib(sut, threads), threads
    if sut.arrangement.front == "proxy" and sut.front_host == "sps":
        front = front_need(sut, cores)
        shared_mib, workers = shared_mib + front.shared_mib, workers + front.workers
    return Need(shared_mib, workers, sut.package_memory_mib)


def front_need(sut: Sut, cores: int) -> Need:
    """Return the amount of memory that a front end, a proxy with one worker per core, requests on its command line."""
    return Need(FRONT_SHARED_MIB, cores, sut.package_memory_mib)


def check_memory(host: Host, names: Sequence[str], needs: Sequence[Need]) -> None:
    """Raise an error if the programs of a host together can use more memory than is available.

    Parameters
    ----------
    host
        The host. Processes of earlier runs must have ended.
    names, needs
        Name of the SUT, and maximum memory, of each proxy or front end on this host.

    Raises
    ------
    StableError
        The memory is insufficient. The error message states the needed and the available memory, and the settings to
        change.
    """
    total_mib, workers = sum(need.total_mib for need in needs), sum(need.workers for need in needs)
    shared_mib = sum(need.shared_mib for need in needs)
    available = available_mib(
        read_files(host, (MEMINFO,)).get(MEMINFO, ""), f"{host.spec}: {MEMINFO}"
    )
    if total_mib > available:
        programs = ", ".join(dict.fromkeys(names))
        several = f" in {len(needs)} instances" if len(needs) > 1 else ""
        raise StableError(
            f"host {host.spec}: {programs} with {workers} workers{several} may use {total_mib} MiB "
            f"({shared_mib} shared, {total_mib - shared_mib} private), but only "
            f"{available} MiB are available; lower threads, shared_memory_mib or package_memory_mib"
        )


def available_mib(text: str, where: str = MEMINFO) -> int:
    """Return MemAvailable in MiB: the memory that programs can use without swapping.

    Linux before 3.14 has no MemAvailable: there, Buffers follows MemFree. Then the result is MemFree, which is smaller.

    Raises
    ------
    StableError
        The text has no line MemAvailable, and is not the text of such an old kernel.
    """
    kib: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            kib[name] = int(words[0])
    if "MemAvailable" in kib:
        return kib["MemAvailable"] // 1024
    if {"MemFree", "Buffers"} <= kib.keys() and "MemAvailable" not in text:
        return kib["MemFree"] // 1024
    raise StableError(f"{where}: expected a line 'MemAvailable: <number> kB', found none")
