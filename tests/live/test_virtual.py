"""Test the testbed in virtual time, whose three hosts are inside one guest."""

import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import PATIENCE_S, Measure, run_json, wait_for
from receive_queue import charged_bytes

from sipsched.errors import StableError, TransientError
from sipsched.plan.config import Config
from sipsched.records.trace import Event, Flag, read_trace
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


@pytest.mark.parametrize(
    ("sut", "probe"),
    [
        ("kamailio-udp", "exact"),
        pytest.param("kamailio-tcp", "stream", marks=pytest.mark.long),
    ],
)
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


@pytest.mark.long
def test_the_kernel_frees_the_memory_of_messages_late(
    bed: Testbed, measure: Measure, campaign: Config
) -> None:
    small = replace(campaign.sut("kamailio-udp"), receive_buffer_bytes=65_536)
    suts = {**campaign.suts, "kamailio-udp": small}
    record = measure(bed=bed, suts=suts, threads=1, cps=2500, duration_s=0.5, retransmissions=False)
    records = read_trace(record / "trace.bin.zst").records
    assert (records["event"] == Event.DROP).sum() > 100
    taken = records[records["event"] == Event.MESSAGE]
    # In the mode exact, the probe reads the memory before the kernel adds the message's own memory.
    size = taken["rmem"][taken["rmem"] > 0].min()
    charged = charged_bytes(taken, 2 * small.receive_buffer_bytes) - size
    assert (charged == taken["rmem"]).mean() > 0.98


SETTING: dict[str, Any] = {"mode": "baseline", "cores": 2, "threads": 4, "cps": 100}


@contextmanager
def during_a_run(bed: Testbed, measure: Measure, raw: Path) -> Iterator["Future[Path]"]:
    """Measure a run with 1 s of load in a thread. The `with` block begins when the run has begun."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(measure, bed=bed, duration_s=1.0, timing=True, **SETTING)
        wait_for(lambda: future.done() or any(raw.rglob("*.partial*")), PATIENCE_S)
        time.sleep(10)
        assert not future.done()
        yield future


def qemu() -> int:
    """Return the process id of the guest."""
    done = subprocess.run(["pgrep", "-x", virtual.COMM], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.long
def test_a_guest_that_stands_still_for_a_minute_measures_the_same(
    bed: Testbed, measure: Measure, tmp_path: Path
) -> None:
    with during_a_run(bed, measure, tmp_path / "raw") as future:
        os.kill(qemu(), signal.SIGSTOP)
        time.sleep(60)
        assert not future.done()
        os.kill(qemu(), signal.SIGCONT)
        stopped = future.result()
    assert run_json(stopped)["verdict"]["grade"] == "valid"
    undisturbed = measure(bed=bed, duration_s=1.0, timing=True, rep=2, **SETTING)
    times = []
    for folder in (stopped, undisturbed):
        records = read_trace(folder / "trace.bin.zst").records
        assert len(records) == 600
        times.append((records["t_sip_out"] - records["t_sip_in"]).mean())
    assert times[0] == pytest.approx(times[1], rel=0.05)


@pytest.mark.long
def test_a_full_disk_of_the_guest_is_named(bed: Testbed, measure: Measure, tmp_path: Path) -> None:
    with open_hosts(bed) as hosts:
        full = hosts.sps.workdir / "full"
        # the file system needs some blocks for itself
        left = hosts.sps.free_bytes(full.parent) - (8 << 20)
        hosts.sps.run(["fallocate", "-l", str(left), str(full)])
    try:
        with pytest.raises(StableError, match="disk full at"):
            measure(bed=bed, duration_s=1.0, **SETTING)
    finally:
        with open_hosts(bed) as hosts:
            hosts.sps.run(["rm", str(full)])
    assert not any((tmp_path / "raw").rglob("run.json"))


@pytest.mark.long
def test_a_killed_guest_leaves_no_record_and_can_boot_again(
    bed: Testbed, measure: Measure, tmp_path: Path
) -> None:
    with during_a_run(bed, measure, tmp_path / "raw") as future:
        os.kill(qemu(), signal.SIGKILL)
        with pytest.raises(TransientError) as raised:
            future.result()
    assert "\n" not in str(raised.value)
    assert not any((tmp_path / "raw").rglob("rep~1/run.json"))
    virtual.bring_up(bed, say=lambda line: None)
    record = measure(bed=bed, duration_s=1.0, timing=True, **SETTING)
    assert run_json(record)["verdict"]["grade"] == "valid"


def test_down_leaves_nothing(bed: Testbed) -> None:
    assert leftovers() != []
    virtual.take_down()
    assert leftovers() == []
    virtual.take_down()
