"""The last of all tests: after them, and after `fab down`, nothing of ours is on this machine but what is on disk."""

import os
import signal
from pathlib import Path

import pytest
from helpers import LOAD, leftovers, pids, start_run, wait_for

from sipsched.testbed import local, vm
from sipsched.testbed.inventory import Testbed


def test_the_probe_that_is_killed_leaves_no_program_in_the_kernel(
    testbed: Testbed, tmp_path: Path
) -> None:
    local.take_down()
    with start_run(tmp_path / "raw") as worker:
        wait_for(lambda: bool(pids(LOAD)), 20)
        if not pids("/sipprobe run "):
            worker.kill()
            pytest.skip("this kernel refuses BPF")
        # what the next test looks for is seen where there is some
        assert any("name on_" in line for line in leftovers())
        for probe in pids("^[^ ]*/sipprobe run "):
            os.kill(probe, signal.SIGKILL)
        worker.kill()
    local.take_down()
    # the kernel frees a program a moment after its last user
    wait_for(lambda: not any("name on_" in line for line in leftovers()), 5)


def test_nothing_is_left() -> None:
    local.take_down()
    vm.take_down()
    assert leftovers() == []
