"""Test the testbed in virtual time, whose three hosts are inside one guest."""

import itertools
import socket
import subprocess
from collections.abc import Iterator

import pytest
from helpers import Measure, run_json

from sipsched.records.trace import Flag, read_trace
from sipsched.testbed import provision, virtual
from sipsched.testbed.guest_image import IMAGES
from sipsched.testbed.inventory import Testbed, load_testbed
from sipsched.testbed.session import open_hosts
from sipsched.testbed.virtual_clock import TESTED_FILE

STAMPS = ("t_arr", "t_stack", "t_sockq", "t_sip_in", "t_sip_out", "t_dep")


@pytest.fixture(scope="module")
def bed(live_machine: None) -> Iterator[Testbed]:
    """Boot one guest (an emulated machine) for all tests, and build the guest's image the first time."""
    virtual_bed = load_testbed("virtual")
    provision.prepare_machine(virtual_bed, say=lambda line: None)
    virtual.bring_up(virtual_bed, say=lambda line: None)
    yield virtual_bed
    virtual.take_down()


def leftovers() -> list[str]:
    """Return the files and processes of the testbed."""
    done = subprocess.run(
        ["pgrep", "-a", "-x", "-r", "R,S,D,T", virtual.COMM], capture_output=True, text=True
    )
    return [*map(str, virtual.ROOT.rglob("*")), *done.stdout.splitlines()]


@pytest.mark.parametrize(("sut", "probe"), [("kamailio-udp", "exact"), ("kamailio-tcp", "stream")])
def test_run_is_valid_on_a_shared_machine_and_names_its_clock(
    bed: Testbed, measure: Measure, sut: str, probe: str
) -> None:
    # Use the rules on timing (`timing=True`), because other programs of the machine cannot change virtual time.
    folder = measure(
        sut, bed=bed, mode="baseline", cores=2, threads=4, cps=100, duration_s=1.0, timing=True
    )
    run = run_json(folder)
    assert run["verdict"]["grade"] == "valid", run["verdict"]
    assert run["generator"]["calls_completed"] == run["load"]["calls"] == 100
    assert run["settings"]["sps_cpus"] == [0, 1]
    assert run["scheduler"]["family"].startswith("CFS")
    assert run["testbed"]["kind"] == "virtual"
    clock = "7000 MIPS, kernel weight 1, wake-up time 0 µs, quantum 5 µs"
    assert run["testbed"]["fidelity"] == (
        f"Real kernel and proxy, virtual time: instructions counted, no caches ({clock})"
    )
    assert run["probe"]["mode"] == probe
    records = read_trace(folder / "trace.bin.zst").records
    assert len(records) == run["probe"]["records"] == 600
    for earlier, later in itertools.pairwise(STAMPS):
        assert (records[earlier] <= records[later]).all(), (earlier, later)
    # Over TCP, one system call may read several messages. The other flags mark uncertain times.
    assert not (records["flags"] & ~Flag.SHARED_READ).any()
    # An emulated processor with 7000 MIPS needs less than 1 ms of virtual time per message.
    service_ns = records["t_sip_out"] - records["t_sip_in"]
    assert 10_000 < service_ns.mean() < 1_000_000


def test_the_clock_was_tested_before_the_boot(bed: Testbed) -> None:
    assert bed.virtual is not None
    assert repr(bed.virtual.clock) in (IMAGES / TESTED_FILE).read_text()


def test_the_guest_reaches_nothing_but_its_controller(bed: Testbed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, open_hosts(bed) as hosts:
        port = server.getsockname()[1]
        # 10.0.2.2 is this machine in QEMU's network.
        connect = 'timeout 2 bash -c "exec 3<> /dev/tcp/10.0.2.2/$1"'
        for host in hosts.all:
            assert host.shell(connect, port, check=False).exit_code != 0
        assert hosts.uac.run(["ip", "route", "get", "198.18.2.2"], check=False).exit_code != 0


def test_down_leaves_nothing(bed: Testbed) -> None:
    assert leftovers() != []
    virtual.take_down()
    assert leftovers() == []
    virtual.take_down()
