"""SIP proxy programs: how each is configured, started and asked what went wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sipsched.errors import StableError
from sipsched.measure.templates import render
from sipsched.plan.config import Sut
from sipsched.testbed.inventory import Testbed

ALLOCATION_FAILURE = (
    "no more (shm|shared|share|pkg|private)? *mem|could not allocate|out of ([a-z]+ )?mem"
    "|not enough (free )?(shm|pkg|mem)"
)
"""In upper or lower case; an extended regular expression, which grep on a host takes too."""


@dataclass(frozen=True)
class Proxy:
    """A proxy program.

    Attributes
    ----------
    program
        Name of the binary, and of the worker processes (`comm`).
    options
        Command-line options that take the place of `{config}`, `{shared}`, `{package}`, `{manager}` and `{folder}`.
    """

    program: str
    options: tuple[str, ...]
    version_option: str

    def config_text(self, sut: Sut, testbed: Testbed, threads: int) -> str:
        """Render the configuration file for a number of workers."""
        return render(
            Path("proxies", f"{self.program}.cfg.j2"),
            sut=sut,
            threads=threads,
            sps=testbed.sps,
            uas=testbed.uas,
        )

    def command(self, sut: Sut, config: PurePosixPath, folder: PurePosixPath) -> list[str]:
        """Build the command line; the proxy stays in the foreground and logs to stderr."""
        values = {
            "config": config,
            "shared": sut.shared_memory_mib,
            "package": sut.package_memory_mib,
            "manager": sut.memory_manager,
            "folder": folder,
        }
        return [self.program, *(option.format(**values) for option in self.options)]


PROXIES: Mapping[str, Proxy] = {
    "kamailio": Proxy(
        program="kamailio",
        options=(
            *("-DD", "-E", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-x", "{manager}", "-X", "{manager}", "-Y", "{folder}"),
        ),
        version_option="-v",
    ),
    "opensips": Proxy(
        program="opensips",
        options=(
            *("-F", "-f", "{config}", "-m", "{shared}", "-M", "{package}"),
            *("-a", "{manager}", "-w", "{folder}"),
        ),
        version_option="-V",
    ),
}


def find_proxy(sut: Sut) -> Proxy:
    """Look the SUT's proxy program up.

    Raises
    ------
    StableError
        There is no adapter for it.
    """
    if sut.proxy not in PROXIES:
        raise StableError(
            f"SUT {sut.name}: no adapter for proxy '{sut.proxy}'; there are: {', '.join(PROXIES)}"
        )
    return PROXIES[sut.proxy]


def allocation_failures(log: str) -> list[str]:
    """Find the lines of a proxy's log that say it ran out of memory.

    Such a run looks like one with receive drops, and is none (Kamailio: shared memory holds a
    finished transaction for about 5 s).
    """
    failure = re.compile(ALLOCATION_FAILURE, re.IGNORECASE)
    return [line for line in log.splitlines() if failure.search(line)]
