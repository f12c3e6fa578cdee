"""Tests of the layout of CPUs, cores and processors that is read from the output of lscpu."""

import pytest

from sipsched.errors import StableError
from sipsched.measure.cpu_layout import parse_lscpu
from sipsched.testbed.topology import cpu_mask, parse_cpu_list

# the output of lscpu --parse=CPU,CORE,SOCKET,NODE,CACHE on two sockets of four cores; CPU 3 is offline
TWO_SOCKETS = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,L1d:L1i:L2:L3
0,0,0,0,0:0:0:0
1,1,0,0,1:1:1:0
2,2,0,0,2:2:2:0
4,4,1,1,4:4:4:1
5,5,1,1,5:5:5:1
6,6,1,1,6:6:6:1
7,7,1,1,7:7:7:1
"""
# the output of util-linux 2.38.1 (Debian 12) in the guest of testbed vm, all CPUs online
DEBIAN_12 = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,2,0,0,,2,2,2,0
3,3,0,0,,3,3,3,0
4,4,1,0,,4,4,4,4
5,5,1,0,,5,5,5,4
6,6,1,0,,6,6,6,4
7,7,1,0,,7,7,7,4
"""
# on this machine with SMT, CPUs 0 and 2 are one core
SIBLINGS = "# CPU,Core,Socket,Node\n0,0,0,,\n1,1,0,,\n2,0,0,,\n3,1,0,,\n"


def test_processors_and_cores() -> None:
    layout = parse_lscpu(TWO_SOCKETS, [0, 1, 2, 4, 5])
    assert (layout.processors, layout.cores) == (2, 5)
    assert layout.describe()["caches"] == layout.describe()["numa_nodes"] == 2
    assert parse_lscpu(TWO_SOCKETS, [0, 1]).processors == 1


def test_caches_of_debian_12() -> None:
    layout = parse_lscpu(DEBIAN_12, range(8))
    assert [cpu.cache for cpu in layout.cpus] == [0] * 4 + [4] * 4
    assert (layout.processors, layout.describe()["caches"]) == (2, 2)


def test_siblings_are_one_core() -> None:
    layout = parse_lscpu(SIBLINGS, [0, 1, 2])
    assert (layout.cores, layout.describe()["smt_siblings"]) == (2, 1)
    assert layout.describe()["caches"] is None


def test_a_cpu_that_is_offline_is_an_error() -> None:
    with pytest.raises(StableError, match="CPU 3 of the SPS is not online"):
        parse_lscpu(TWO_SOCKETS, [2, 3])


def test_the_kernels_lists_and_masks() -> None:
    assert parse_cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)
    assert parse_cpu_list("\n") == ()
    assert cpu_mask([0, 1, 3]) == "b"
    assert cpu_mask([32]) == "1,00000000"
    assert cpu_mask([]) == "0"
