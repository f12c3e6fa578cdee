"""Whatever a host started is found and ended: after every kill, at the next contact, by who takes it down."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import LOAD, leftovers, pids, start_run, wait_for

from sipsched.errors import TransientError
from sipsched.testbed import groups, local, namespaces
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

Measure = Callable[..., Path]
PROXY_PID = namespaces.STATE_ROOT / "sps" / "proxy.pid"
SERVERS = r"^[^ ]*(kamailio|sipload|sipprobe) "


@pytest.fixture
def up(testbed: Testbed) -> Iterator[None]:
    local.ensure_up(testbed)
    yield
    local.take_down()


@pytest.fixture(params=["control groups", "control groups without kill", "process groups"])
def found_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How processes are found: a host without control groups is one whose own are hidden from us."""
    if request.param == "process groups":
        monkeypatch.setattr(groups, "FIND", "true")
    if request.param == "control groups without kill":
        # as before Linux 5.14
        monkeypatch.setattr(groups, "END", groups.END.replace("/cgroup.kill", "/no.such.file"))
    local.take_down()
    return str(request.param)


def kill_main_process_of_the_proxy() -> None:
    (main,) = (
        pid
        for pid in pids("^kamailio ")
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        == PROXY_PID.read_text().strip()
    )
    os.kill(main, signal.SIGKILL)


# with control groups: tests/faults
@pytest.mark.parametrize(
    "found_by", ["control groups without kill", "process groups"], indirect=True
)
def test_a_proxy_whose_main_process_is_killed_spoils_one_run_only(
    found_by: str, testbed: Testbed, measure: Measure
) -> None:
    local.ensure_up(testbed)
    with start_killer(), pytest.raises(TransientError, match="the proxy ended during the run"):
        measure(threads=4, cps=100, duration_s=3.0)
    assert pids("^kamailio ") == []
    measure(threads=4, cps=100, duration_s=1.0)
    local.take_down()


def start_killer() -> "subprocess.Popen[bytes]":
    """Kill the proxy's main process once the load runs, from a process of its own."""
    code = (
        "import sys; sys.path[:0] = ['tests', 'tests/live'];"
        "from helpers import LOAD, pids, wait_for; import test_left_behind as t;"
        "wait_for(lambda: bool(pids(LOAD)), 20);"
        "t.kill_main_process_of_the_proxy()"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def test_workers_without_a_main_process_are_ended_at_the_next_contact(
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


def test_a_lost_pid_file_loses_no_process(up: None, testbed: Testbed) -> None:
    with open_hosts(testbed) as hosts:
        process = hosts.sps.start("proxy", ["sleep", "296.5"], cpus=[0], limit_s=300)
        if not process.group:
            pytest.skip("this machine has no control groups of version 2")
        Path(process.pid_file).unlink()
        wait_for(lambda: bool(pids("^sleep 296.5")), 5)
        assert hosts.sps.stop_strays() == ["proxy"]
        assert pids("^sleep 296.5") == []


def test_a_group_of_ours_is_no_task_group(up: None, testbed: Testbed) -> None:
    with open_hosts(testbed) as hosts:
        process = hosts.sps.start("proxy", ["sleep", "60"], cpus=[0], limit_s=60)
        if not process.group:
            pytest.skip("this machine has no control groups of version 2")
        controllers = hosts.sps.run(["cat", f"{process.group}/cgroup.controllers"]).stdout.split()
        inside = hosts.sps.run(["cat", f"{process.group}/cgroup.procs"]).stdout.split()
        own = Path(f"/proc/{inside[0]}/cgroup").read_text()
        # of version 1, too, it is where its sshd is
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


def test_an_interrupted_run_ends_the_uac_at_once(testbed: Testbed, tmp_path: Path) -> None:
    local.ensure_up(testbed)
    with start_run(tmp_path / "raw") as worker:
        wait_for(lambda: bool(pids(LOAD)), 20)
        worker.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        wait_for(lambda: not pids(LOAD), 5)
        assert time.monotonic() - interrupted < 1
        # impatience must not make it worse
        worker.send_signal(signal.SIGINT)
    assert pids(SERVERS) == []
    local.take_down()


def test_a_namespace_that_lost_its_name_is_taken_down_too(found_by: str, testbed: Testbed) -> None:
    local.ensure_up(testbed)
    subprocess.run(["ip", "netns", "delete", "sipsched-uas"], check=True)
    local.ensure_up(testbed)
    assert len(pids("sshd.* -f /run/sipsched/local/uas.sshd_config")) == 1
    local.take_down()
    assert leftovers() == []


def test_down_leaves_nothing_after_a_run(testbed: Testbed, measure: Measure) -> None:
    local.take_down()
    measure(threads=2, cps=100, duration_s=1.0)
    assert leftovers() != []
    local.take_down()
    assert leftovers() == []
