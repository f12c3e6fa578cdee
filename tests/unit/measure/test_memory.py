"""Memory of the SPS, from the kernel's own words."""

import pytest

from sipsched.errors import StableError
from sipsched.measure.memory import available_mib

MEMINFO = """\
MemTotal:       24682980 kB
MemFree:        19183304 kB
MemAvailable:   23671460 kB
Buffers:          112540 kB
HugePages_Total:       0
"""


def test_available_memory() -> None:
    assert available_mib(MEMINFO) == 23116


@pytest.mark.parametrize("text", ["", MEMINFO[:70], "MemAvailable: much kB", "MemAvailable: 1"])
def test_a_file_that_does_not_tell(text: str) -> None:
    with pytest.raises(StableError, match="expected a line 'MemAvailable: <number> kB'"):
        available_mib(text)
