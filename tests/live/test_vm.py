"""Test the guest testbed, which has a CFS kernel."""

import dataclasses
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from helpers import Measure, pids, run_json

from sipsched.plan.config import Config
from sipsched.records.bursts import read_bursts
from sipsched.records.trace import read_trace
from sipsched.testbed import vm
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import Hosts, open_hosts


@pytest.fixture
def hosts(guest: Testbed) -> Iterator[Hosts]:
    with open_hosts(guest) as opened:
        yield opened


def leftovers() -> list[str]:
    """Return the namespaces, links, state and processes of the guest testbed."""
    names = [n.name for n in vm.NAMESPACES if Path("/run/netns", n.name).exists()]
    links = [n.link for n in vm.NAMESPACES] + [link.tap for link in vm.LINKS]
    names += [link for link in links if Path("/sys/class/net", link).exists()]
    names += [str(vm.STATE)] if vm.STATE.exists() else []
    done = subprocess.run(
        ["pgrep", "-a", "-x", "-r", "R,S,D,T", vm.COMM], capture_output=True, text=True
    )
    return names + done.stdout.splitlines()


def test_three_hosts_answer_and_only_the_sps_is_a_guest(hosts: Hosts) -> None:
    kernels = [host.run(["uname", "-r"]).stdout.strip() for host in hosts.all]
    assert kernels[1].startswith("6.1.")
    assert kernels[0] == kernels[2] != kernels[1]
    assert hosts.testbed.accelerator in ("kvm", "tcg")
    assert (hosts.testbed.fidelity == vm.EMULATED) == (hosts.testbed.accelerator == "tcg")


def test_guest_has_two_sockets_of_four_cores(hosts: Hosts) -> None:
    listing = hosts.sps.run(["lscpu", "--parse=CPU,SOCKET"]).stdout
    rows = [line.split(",") for line in listing.splitlines() if not line.startswith("#")]
    assert [int(socket) for _, socket in rows] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_guest_has_control_groups(hosts: Hosts) -> None:
    process = hosts.sps.start("x", ["sleep", "60"], cpus=[0], limit_s=60)
    assert process.group == "/sys/fs/cgroup/sipsched-sps/x"
    hosts.sps.stop(process)
    assert not hosts.sps.is_running(process)
    assert hosts.sps.run(["ls", process.group], check=False).exit_code != 0


def test_agents_reach_each_other_only_through_the_proxy(hosts: Hosts) -> None:
    assert hosts.sps.run(["cat", "/proc/sys/net/ipv4/ip_forward"]).stdout.strip() == "0"
    assert hosts.uac.run(["ip", "route", "get", "198.18.2.2"], check=False).exit_code != 0


def test_run_has_six_timestamps_and_its_fidelity(guest: Testbed, measure: Measure) -> None:
    # Use one worker. With two workers, a 200 may overtake its 180, and the proxy would not forward the 180.
    folder = measure(bed=guest, threads=1, cps=20, duration_s=2.0)
    run = run_json(folder)
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
    # the BPF verifier of the guest's kernel must accept the programs of sipaccount and their ring buffer
    assert run["account"]["unavailable"] == ""
    bursts = read_bursts(folder)
    assert bursts is not None and bursts.lost == 0
    assert {program.owner for program in bursts.programs} & {"softirq", "kernel", "fair", "own"}


@pytest.mark.parametrize("shard_by", [pytest.param("call-id", marks=pytest.mark.long), "user"])
def test_calls_reach_instances_by_key(
    guest: Testbed, measure: Measure, campaign: Config, shard_by: Literal["call-id", "user"]
) -> None:
    # the BPF verifier of the guest's kernel must accept the program of sipshard
    name = "kamailio-udp-partitioned"
    suts = {name: dataclasses.replace(campaign.sut(name), shard_by=shard_by)}
    run = run_json(measure(bed=guest, sut=name, suts=suts, threads=2, cps=20, duration_s=2.0))
    assert run["generator"]["calls_completed"] == run["load"]["calls"] == 40
    assert min(run["proxy"]["shards"]["selected"]) > 0


@pytest.mark.long
def test_drops_under_overload_are_counted_exactly(guest: Testbed, measure: Measure) -> None:
    # Switch receive steering off. The kernel then delivers packets in lists, and can refuse single packets of a list.
    with open_hosts(guest) as hosts:
        for link in vm.AGENT_LINKS.values():
            steering = f"/sys/class/net/{link.name}/queues/rx-0/rps_cpus"
            hosts.sps.shell('echo 0 > "$1"', steering)
    folder = measure(bed=guest, threads=4, cps=400, duration_s=3.0)
    probe = run_json(folder)["probe"]
    assert probe["queued"] == probe["received"] == probe["records"]
    assert probe["unmatched"] == 0
    records = read_trace(folder / "trace.bin.zst").records
    drops = records[records["event"] == 1]
    assert len(drops) == probe["drops"] == probe["refused"]
    assert (drops["t_arr"] > 0).all()
    assert (drops["kind"] > 0).all()


def test_hanging_guest_is_rebooted_and_down_leaves_nothing(guest: Testbed) -> None:
    (hung,) = pids(f"^qemu-system.* -name {vm.COMM},")
    os.kill(hung, signal.SIGSTOP)
    vm.bring_up(guest, say=lambda line: None)
    assert vm.is_up(guest)
    assert pids(f"^qemu-system.* -name {vm.COMM},") != [hung]
    with open_hosts(guest) as hosts:
        assert hosts.sps.run(["uname", "-r"]).stdout.startswith("6.1.")
    assert leftovers() != []
    vm.take_down()
    assert leftovers() == []
    vm.take_down()
