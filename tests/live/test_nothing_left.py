"""Test, after all other tests, that `fab down` leaves nothing of sipsched outside the disk."""

import os
import signal
from pathlib import Path

import pytest
from helpers import leftovers, pids, start_run, wait_for, wait_for_load

from sipsched.testbed import local, virtual, vm
from sipsched.testbed.inventory import Testbed

pytestmark = pytest.mark.quiet


def test_killed_probe_leaves_no_program_in_the_kernel(testbed: Testbed, tmp_path: Path) -> None:
    local.take_down()
    with start_run(tmp_path / "raw") as worker:
        wait_for_load(worker)
        if not pids("/sipprobe run "):
            worker.kill()
            pytest.skip("this kernel refuses BPF")
        # Check that the search finds a loaded program. If not, the next test would pass without checking anything.
        assert any("name on_" in line for line in leftovers())
        for probe in pids("^[^ ]*/sipprobe run "):
            os.kill(probe, signal.SIGKILL)
        worker.kill()
    local.take_down()
    # The kernel frees a program a moment after its last user ends.
    wait_for(lambda: not any("name on_" in line for line in leftovers()), 5)


def test_nothing_is_left() -> None:
    local.take_down()
    vm.take_down()
    virtual.take_down()
    assert leftovers() == []
