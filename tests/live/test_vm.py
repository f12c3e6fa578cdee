"""The guest testbed: a CFS kernel under the same run code, and nothing left when it is down."""

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import pids

from sipsched.records.trace import read_trace
from sipsched.testbed import vm
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import Hosts, open_hosts

pytestmark = pytest.mark.guest
Measure = Callable[..., Path]
SCHEDULER = "/sys/kernel/debug/sched"


@pytest.fixture
def hosts(guest: Testbed) -> Iterator[Hosts]:
    with open_hosts(guest) as opened:
        yield opened


def setting(sps: Host, name: str) -> int:
    return int(sps.run(["cat", f"{SCHEDULER}/{name}"]).stdout)


def leftovers() -> list[str]:
    """Namespaces, links, state and processes of ours."""
    names = [n.name for n in vm.NAMESPACES if Path("/run/netns", n.name).exists()]
    links = [n.link for n in vm.NAMESPACES] + [link.tap for link in vm.LINKS]
    names += [link for link in links if Path("/sys/class/net", link).exists()]
    names += [str(vm.STATE)] if vm.STATE.exists() else []
    found = subprocess.run(
        ["pgrep", "-a", "-x", "-r", "R,S,D,T", vm.COMM], capture_output=True, text=True
    )
    return names + found.stdout.splitlines()


def test_three_hosts_answer_and_only_the_sps_is_a_guest(hosts: Hosts) -> None:
    kernels = [host.run(["uname", "-r"]).stdout.strip() for host in hosts.all]
    assert kernels[1].startswith("6.1.")
    assert kernels[0] == kernels[2] != kernels[1]
    assert hosts.testbed.accelerator in ("kvm", "tcg")
    assert (hosts.testbed.fidelity == vm.EMULATED) == (hosts.testbed.accelerator == "tcg")


def test_two_sockets_of_four_cores(hosts: Hosts) -> None:
    listing = hosts.sps.run(["lscpu", "--parse=CPU,SOCKET"]).stdout
    rows = [line.split(",") for line in listing.splitlines() if not line.startswith("#")]
    assert [int(socket) for _, socket in rows] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_settings_of_cfs_can_be_read_and_written(hosts: Hosts) -> None:
    for name in ("latency_ns", "min_granularity_ns", "wakeup_granularity_ns", "migration_cost_ns"):
        before = setting(hosts.sps, name)
        hosts.sps.shell('echo "$1" > "$2"', before // 2, f"{SCHEDULER}/{name}")
        assert setting(hosts.sps, name) == before // 2
        hosts.sps.shell('echo "$1" > "$2"', before, f"{SCHEDULER}/{name}")
        assert setting(hosts.sps, name) == before


def test_a_guest_has_control_groups_too(hosts: Hosts) -> None:
    process = hosts.sps.start("x", ["sleep", "60"], cpus=[0], limit_s=60)
    assert process.group == "/sys/fs/cgroup/sipsched-sps/x"
    hosts.sps.stop(process)
    assert not hosts.sps.is_running(process)
    assert hosts.sps.run(["ls", process.group], check=False).exit_code != 0


def test_a_cpu_can_be_taken_offline(hosts: Hosts) -> None:
    switch = "/sys/devices/system/cpu/cpu1/online"
    try:
        hosts.sps.shell('echo 0 > "$1"', switch)
        online = hosts.sps.run(["cat", "/sys/devices/system/cpu/online"]).stdout.strip()
        assert online == "0,2-7"
    finally:
        hosts.sps.shell('echo 1 > "$1"', switch)


def test_the_agents_reach_each_other_only_through_the_proxy(hosts: Hosts) -> None:
    assert hosts.sps.run(["cat", "/proc/sys/net/ipv4/ip_forward"]).stdout.strip() == "0"
    assert hosts.uac.run(["ip", "route", "get", "198.18.2.2"], check=False).exit_code != 0


def test_a_run_has_six_stamps_and_says_what_it_is_worth(guest: Testbed, measure: Measure) -> None:
    # one worker: of two, a 200 may overtake its 180, which the proxy then does not send on
    folder = measure(bed=guest, threads=1, cps=20, duration_s=2.0)
    run = json.loads((folder / "run.json").read_text())
    assert run["generator"]["calls_completed"] == run["load"]["calls"] == 40
    assert run["testbed"]["kind"] == "vm"
    assert run["testbed"]["accelerator"] in ("kvm", "tcg")
    if run["testbed"]["accelerator"] == "tcg":
        assert run["testbed"]["fidelity"] == vm.EMULATED
    assert run["hosts"]["sps"]["kernel"].startswith("6.1.")
    assert run["probe"]["mode"] == "exact"
    assert run["probe"]["lost"] == 0
    records = read_trace(folder / "trace.bin.zst").records
    assert len(records) == run["probe"]["records"] == 240
    stamps = ("t_arr", "t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep")
    for earlier, later in itertools.pairwise(stamps):
        assert (records[earlier] <= records[later]).all(), (earlier, later)
    assert not (records["flags"] != 0).any()


def test_a_mode_of_the_papers_is_in_force_and_undone(guest: Testbed, measure: Measure) -> None:
    with open_hosts(guest) as hosts:
        before = setting(hosts.sps, "latency_ns")
    folder = measure(bed=guest, threads=2, cps=20, duration_s=1.0, mode="enhanced")
    run = json.loads((folder / "run.json").read_text())
    assert run["scheduler"]["family"].startswith("CFS")
    steps = run["scheduler"]["steps"]
    assert len(steps) > 3
    for step in steps:
        assert step["unavailable"] is None, step
        assert int(step["read_back"]) == step["applied"], step
    # one core and the helper: the others are offline while the run lasts
    assert run["hosts"]["sps"]["online_cpus"] == "0,7"
    with open_hosts(guest) as hosts:
        assert hosts.sps.run(["cat", "/sys/devices/system/cpu/online"]).stdout.strip() == "0-7"
        assert setting(hosts.sps, "latency_ns") == before


def test_an_overload_is_counted_to_the_unit(guest: Testbed, measure: Measure) -> None:
    # without receive steering the kernel delivers lists: the last one seen is not the one refused
    with open_hosts(guest) as hosts:
        for link in vm.AGENT_LINKS.values():
            steering = f"/sys/class/net/{link.name}/queues/rx-0/rps_cpus"
            hosts.sps.shell('echo 0 > "$1"', steering)
    folder = measure(bed=guest, threads=4, cps=400, duration_s=3.0)
    probe = json.loads((folder / "run.json").read_text())["probe"]
    assert probe["queued"] == probe["received"] == probe["records"]
    assert probe["unmatched"] == 0
    records = read_trace(folder / "trace.bin.zst").records
    drops = records[records["event"] == 1]
    assert len(drops) == probe["drops"] == probe["refused"]
    assert (drops["t_arr"] > 0).all()
    assert (drops["kind"] > 0).all()


def test_a_guest_that_hangs_is_booted_anew_and_down_leaves_nothing(guest: Testbed) -> None:
    (hung,) = pids(f"^qemu-system.* -name {vm.COMM},")
    os.kill(hung, signal.SIGSTOP)
    vm.bring_up(guest, say=lambda line: None)
    assert vm.is_up()
    assert pids(f"^qemu-system.* -name {vm.COMM},") != [hung]
    with open_hosts(guest) as hosts:
        assert hosts.sps.run(["uname", "-r"]).stdout.startswith("6.1.")
    assert leftovers() != []
    vm.take_down()
    assert leftovers() == []
    vm.take_down()
