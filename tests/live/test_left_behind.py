"""Test that processes of a killed run are found and stopped at the next connection."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from faults.table import proxy_main
from helpers import LOAD, Measure, leftovers, pids, start_run, under_load, wait_for, wait_for_load

from sipsched.errors import TransientError
from sipsched.testbed import groups, local
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

# The tests look for what is left on the whole machine, so no other test may run at the same time.
pytestmark = pytest.mark.quiet
SERVERS = r"^[^ ]*(kamailio|sipload|sipprobe) "


@pytest.fixture(params=["control groups", "control groups without kill", "process groups"])
def found_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the method by which a host finds old processes, and hide control groups for the method without them."""
    if request.param == "process groups":
        monkeypatch.setattr(groups, "FIND", "true")
    if request.param == "control groups without kill":
        # Emulate Linux before 5.14, which has no cgroup.kill.
        monkeypatch.setattr(groups, "END", groups.END.replace("/cgroup.kill", "/no.such.file"))
    local.take_down()
    return str(request.param)


# tests/faults tests the case with control groups.
@pytest.mark.parametrize(
    "found_by", ["control groups without kill", "process groups"], indirect=True
)
def test_killed_main_process_of_the_proxy_spoils_only_one_run(
    found_by: str, testbed: Testbed, measure: Measure
) -> None:
    local.ensure_up(testbed)
    with under_load(measure, threads=4, cps=100, duration_s=3.0) as made:
        os.kill(proxy_main(), signal.SIGKILL)
        with pytest.raises(TransientError, match="the proxy ended during the run"):
            made.result()
    assert pids("^kamailio ") == []
    measure(threads=4, cps=100, duration_s=1.0)
    local.take_down()


def test_orphaned_workers_are_stopped_at_the_next_connection(
    found_by: str, testbed: Testbed
) -> None:
    local.ensure_up(testbed)
    orphans = "sleep 297.5 & sleep 297.5 & wait"
    with Host(testbed.sps, testbed.workdir) as sps:
        process = sps.start("proxy", ["sh", "-c", orphans], cpus=[0], limit_s=300)
        wait_for(lambda: len(pids("^sleep 297.5")) >= 2, 5)
        assert (process.group != "") == (found_by != "process groups")
        assert sps.cpu_time_ns(process) > 0
        sps.shell('pkill -KILL --parent "$(cat "$1")"', process.pid_file)
        wait_for(lambda: not sps.is_running(process), 5)
        assert len(pids("^sleep 297.5")) == 2
    with open_hosts(testbed) as hosts:
        assert hosts.sps.stop_strays() == ["proxy"]
        assert pids("^sleep 297.5") == []
        assert hosts.sps.stop_strays() == []
    local.take_down()
    assert leftovers() == []


def test_process_without_a_pid_file_is_stopped(up: None, testbed: Testbed) -> None:
    with open_hosts(testbed) as hosts:
        process = hosts.sps.start("proxy", ["sleep", "296.5"], cpus=[0], limit_s=300)
        if not process.group:
            pytest.skip("this machine has no control groups of version 2")
        Path(process.pid_file).unlink()
        wait_for(lambda: bool(pids("^sleep 296.5")), 5)
        assert hosts.sps.stop_strays() == ["proxy"]
        assert pids("^sleep 296.5") == []


def test_control_group_does_not_change_cpu_scheduling(up: None, testbed: Testbed) -> None:
    with open_hosts(testbed) as hosts:
        process = hosts.sps.start("proxy", ["sleep", "60"], cpus=[0], limit_s=60)
        if not process.group:
            pytest.skip("this machine has no control groups of version 2")
        controllers = hosts.sps.run(["cat", f"{process.group}/cgroup.controllers"]).stdout.split()
        inside = hosts.sps.run(["cat", f"{process.group}/cgroup.procs"]).stdout.split()
        own = Path(f"/proc/{inside[0]}/cgroup").read_text()
        # The process must be in the control group of its sshd, also with control groups of version 1.
        daemon = (local.STATE / "sps.sshd.pid").read_text().strip()
        cpu_of = [
            next(
                (line for line in text.splitlines() if re.search(r":(cpu|cpu,cpuacct):", line)), ""
            )
            for text in (own, Path(f"/proc/{daemon}/cgroup").read_text())
        ]
    assert "cpu" not in controllers
    assert re.search(r"^0::.*/sipsched-sps/proxy$", own, re.MULTILINE)
    assert cpu_of[0] == cpu_of[1]


def test_interrupt_stops_the_uac_within_a_second(testbed: Testbed, tmp_path: Path) -> None:
    local.ensure_up(testbed)
    with start_run(tmp_path / "raw") as worker:
        wait_for_load(worker)
        worker.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        wait_for(lambda: not pids(LOAD), 5)
        assert time.monotonic() - interrupted < 1
        # Interrupt a second time, as an impatient user does. The hosts must still stop all processes.
        worker.send_signal(signal.SIGINT)
    assert pids(SERVERS) == []
    local.take_down()


def test_namespace_without_a_name_is_replaced_and_removed(found_by: str, testbed: Testbed) -> None:
    local.ensure_up(testbed)
    subprocess.run(["ip", "netns", "delete", "sipsched-uas"], check=True)
    local.ensure_up(testbed)
    assert len(pids("sshd.* -f /run/sipsched/local/uas.sshd_config")) == 1
    with open_hosts(testbed) as hosts:
        assert hosts.uas.run(["true"]).exit_code == 0
    local.take_down()
    assert leftovers() == []


def test_down_leaves_nothing(testbed: Testbed, measure: Measure) -> None:
    local.take_down()
    measure(threads=2, cps=100, duration_s=1.0)
    assert leftovers() != []
    local.take_down()
    assert leftovers() == []
