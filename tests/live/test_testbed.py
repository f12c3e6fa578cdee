"""The embedded testbed: nothing stays behind, one user at a time, and SSH hosts are all a run knows."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import leftovers, start_run, wait_for

from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.measure import acquisition, crossing_search, proxy, serving
from sipsched.plan import config
from sipsched.records import record
from sipsched.testbed import inventory, local, namespaces, places
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts

Measure = Callable[..., Path]


def running(pattern: str) -> bool:
    """Tell whether a process has this in its command line."""
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True).returncode == 0


def test_down_leaves_nothing(testbed: Testbed) -> None:
    local.ensure_up(testbed)
    assert local.is_up()
    local.take_down()
    assert leftovers() == []


def test_up_and_down_twice_are_no_errors(testbed: Testbed) -> None:
    for _ in range(2):
        local.ensure_up(testbed)
    for _ in range(2):
        local.take_down()
    assert not local.is_up()


def test_half_a_testbed_is_mended(testbed: Testbed) -> None:
    local.ensure_up(testbed)
    subprocess.run(["ip", "netns", "delete", "sipsched-uas"], check=True)
    local.ensure_up(testbed)
    with open_hosts(testbed) as hosts:
        assert hosts.uas.run(["true"]).exit_code == 0
    local.take_down()


def test_a_second_user_waits_and_is_told_for_whom(testbed: Testbed, measure: Measure) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with open_hosts(testbed, "the first"):

            def second() -> float:
                with open_hosts(testbed, "the second", said.append):
                    return time.monotonic()

            asked = pool.submit(second)
            wait_for(lambda: bool(said), 10)
            time.sleep(0.5)
            let_go = time.monotonic()
        assert let_go < asked.result() < let_go + 3
    (line,) = said
    assert re.search(rf"in use by the first \(pid {os.getpid()} of root .*since 20\d\d-", line)
    assert "up to 600 s" in line


def test_a_second_user_who_cannot_wait_is_told_who_holds_it(
    testbed: Testbed, tmp_path: Path, measure: Measure
) -> None:
    bed = dataclasses.replace(testbed, lock_wait_s=1)
    with (
        open_hosts(testbed, "the first"),
        pytest.raises(TransientError, match=r"in use by the first \(pid .*waited 1 s"),
    ):
        measure(bed=bed)
    # of kind ssh, the lock is taken on the host only
    with (
        open_hosts(testbed, "the first"),
        pytest.raises(TransientError, match=r"host sps .*in use by the first .*waited 1 s"),
    ):
        measure(bed=dataclasses.replace(bed, kind="ssh"))


def test_a_lock_that_is_no_file_is_one_clear_error(up: None, measure: Measure) -> None:
    namespaces.LOCK_FILE.unlink()
    namespaces.LOCK_FILE.mkdir(mode=0o700)
    try:
        with pytest.raises(StableError, match=r"its lock /run/sipsched/lock is not a file"):
            measure()
    finally:
        namespaces.LOCK_FILE.rmdir()


def test_killed_run_leaves_nothing_and_the_next_one_works(
    testbed: Testbed, tmp_path: Path, measure: Measure
) -> None:
    local.take_down()
    raw = tmp_path / "raw"
    with start_run(raw, idle_s=1.0) as worker:
        wait_for(lambda: any("sipload uac" in line for line in leftovers()), 15)
        os.kill(worker.pid, signal.SIGKILL)
    partial = list(raw.rglob("rep~1.partial"))
    assert len(partial) == 1
    assert list(raw.rglob("run.json")) == []
    # the guardian takes everything down once the testbed was idle for a second
    wait_for(lambda: leftovers() == [], 20)
    kept = measure(threads=2, cps=100, duration_s=1.0)
    assert (kept / "run.json").is_file()
    failed = kept.with_name("rep~1.failed-1")
    assert "interrupted" in (failed / "failure.txt").read_text()


def test_strays_of_an_interrupted_run_are_ended_first(testbed: Testbed, measure: Measure) -> None:
    local.ensure_up(testbed)
    # past open_hosts: what is left when a machine goes without a word
    with Host(testbed.sps, testbed.workdir) as sps:
        sps.start("proxy", ["sleep", "299.25"], cpus=[0], limit_s=300)
    assert running("sleep 299.25")
    measure(threads=2, cps=100, duration_s=1.0)
    assert not running("sleep 299.25")
    local.take_down()


def test_an_inventory_of_ssh_hosts_goes_through_the_same_code(
    testbed: Testbed, measure: Measure, monkeypatch: Any
) -> None:
    local.ensure_up(testbed)
    physical = dataclasses.replace(testbed, name="three-hosts", kind="ssh")

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a run on SSH hosts must know nothing of namespaces")

    with monkeypatch.context() as patch:
        for name in ("ensure_up", "take_down", "is_up", "check_machine"):
            patch.setattr(local, name, forbidden)
        patch.setattr(namespaces, "run_here", forbidden)
        folder = measure(bed=physical, threads=2, cps=200, duration_s=1.0)
    run = json.loads((folder / "run.json").read_text())
    assert run["testbed"]["kind"] == "ssh"
    assert run["probe"]["records"] == 1200
    local.take_down()


def on_host(testbed: Testbed, role: str, **changes: Any) -> Testbed:
    spec = dataclasses.replace(getattr(testbed, role), **changes)
    return dataclasses.replace(testbed, kind="ssh", **{role: spec})


@pytest.fixture
def up(testbed: Testbed) -> Any:
    local.ensure_up(testbed)
    yield
    local.take_down()


def refused(measure: Measure, raw: Path, match: str, **run: Any) -> None:
    with pytest.raises(SipschedError, match=match) as error:
        measure(**run)
    assert "\n" not in str(error.value)
    assert list(raw.rglob("run.json")) == []
    assert list(raw.rglob("*.partial")) == []


def test_unreachable_host(up: None, testbed: Testbed, measure: Measure, tmp_path: Path) -> None:
    bed = on_host(testbed, "uas", port=2)
    refused(measure, tmp_path / "raw", r"host uas .*:2\) is unreachable", bed=bed)


def test_unknown_host_key(up: None, testbed: Testbed, measure: Measure, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("")
    bed = on_host(testbed, "sps", known_hosts=str(tmp_path / "known_hosts"))
    refused(measure, tmp_path / "raw", r"host sps .*its key is not in", bed=bed)


def test_missing_program(
    up: None, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = dataclasses.replace(proxy.PROXIES["opensips"], program="no-such-proxy")
    monkeypatch.setattr(serving, "find_proxy", lambda sut: absent)
    monkeypatch.setattr(proxy.Proxy, "config_text", lambda *args: "")
    refused(measure, tmp_path / "raw", r"missing program: no-such-proxy", sut="opensips-udp")


def test_port_in_use(up: None, testbed: Testbed, measure: Measure, tmp_path: Path) -> None:
    squatter = (
        "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "s.bind(('198.18.0.1', 5060)); time.sleep(60)"
    )
    command = ["ip", "netns", "exec", "sipsched-sps", sys.executable, "-c", squatter]
    with subprocess.Popen(command) as process:
        time.sleep(0.5)
        refused(measure, tmp_path / "raw", "UDP port 5060 is in use: .*python")
        process.kill()


def test_more_cores_than_there_are(
    campaign: config.Config, testbed: Testbed, tmp_path: Path
) -> None:
    run = config.Run("local", "kamailio-udp", "default", 64, 2, 100, 1)
    with pytest.raises(StableError, match="ask for more: cores=64 threads=2 cps=100"):
        acquisition.measure(run, campaign, testbed, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.fixture
def small_disk(testbed: Testbed, tmp_path: Path) -> Callable[[str], Testbed]:
    """Give the SPS a work folder on a file system of its own, of a size such as `4m`."""

    def make(size: str) -> Testbed:
        # each host has mounts of its own, as its sshd was started in a mount namespace
        mount = tmp_path / "small"
        mount.mkdir()
        native = testbed.workdir / "native"
        shutil.copytree(native, mount / "native")
        with open_hosts(testbed) as hosts:
            options = f"size={size},mode=700"
            hosts.sps.run(["mount", "-t", "tmpfs", "-o", options, "none", str(mount)])
            hosts.sps.run(["mkdir", str(mount / "native")])
            hosts.sps.run(["mount", "--bind", str(native), str(mount / "native")])
        return dataclasses.replace(testbed, workdir=type(testbed.workdir)(mount), kind="ssh")

    return make


def test_full_disk_on_a_host_is_seen_before_the_load(
    up: None, small_disk: Callable[[str], Testbed], measure: Measure, tmp_path: Path
) -> None:
    full = "host sps .*disk full at .* MiB needed"
    refused(measure, tmp_path / "raw", full, bed=small_disk("4m"))


def test_a_search_needs_room_for_its_largest_trial(
    up: None, small_disk: Callable[[str], Testbed], campaign: config.Config, tmp_path: Path
) -> None:
    point = config.Point("local", "kamailio-udp", "default", 1, 2)
    search = campaign.search
    calls = search.highest_cps * search.trial_s
    with pytest.raises(StableError, match=f"disk full at .* needed for {calls:g} calls"):
        crossing_search.search_crossing(point, campaign, small_disk("70m"), tmp_path)
    assert not any(tmp_path.rglob("crossing.json"))


def test_full_disk_here_keeps_what_was_measured_before(
    up: None, measure: Measure, tmp_path: Path
) -> None:
    mount = tmp_path / "raw"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "none", str(mount)], check=True)
    try:
        kept = measure(threads=2, cps=100, duration_s=1.0)
        content = {path.name: path.read_bytes() for path in kept.iterdir()}
        (mount / "filler").write_bytes(bytes(16 << 20))
        with pytest.raises(StableError, match="disk full"):
            measure(threads=2, cps=100, duration_s=1.0, rep=2)
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == content
        assert [path.parent.name for path in mount.rglob("run.json")] == ["rep~1"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_probe_that_loses_records_makes_the_run_invalid(
    up: None, measure: Measure, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sipsched.measure.probe.RING_BYTES", 4096)
    with pytest.raises(TransientError, match=r"not valid: .*the probe lost \d+ records"):
        measure(threads=4, cps=1000, duration_s=2.0)
    (failed,) = (tmp_path / "raw").rglob("rep~1.failed-1")
    document = record.read_record(failed)
    assert not document.verdict.valid
    assert set(document.files or {}) == {path.name for path in failed.iterdir()} - {
        *("run.json", "failure.txt"),
    }
    assert not record.is_recorded(
        tmp_path / "raw", config.Run("local", "kamailio-udp", "default", 1, 4, 1000, 1)
    )


def test_without_bpf_the_preload_library_takes_over_and_says_why(
    testbed: Testbed, measure: Measure, tmp_path: Path
) -> None:
    local.take_down()
    shutil.copytree(testbed.workdir / "native", tmp_path / "native")
    native = tmp_path / "native" / "probe"
    program = native / "sipprobe"
    program.write_text("#!/bin/sh\necho 'sipprobe: BPF is refused: EPERM' >&2\nexit 1\n")
    subprocess.run(["sh", "-c", places.RECORD_BUILD, "sh", str(native)], check=True)
    bed = dataclasses.replace(testbed, workdir=type(testbed.workdir)(tmp_path))
    record_folder = measure(bed=bed, threads=4, cps=200, duration_s=1.0)
    run = json.loads((record_folder / "run.json").read_text())
    assert run["probe"]["mode"] == "preload"
    assert "BPF is refused: EPERM" in run["probe"]["mode_reason"]
    assert run["probe"]["records"] == 1200
    local.take_down()


def test_roles_are_those_of_the_inventory() -> None:
    assert [namespace.role for namespace in local.NAMESPACES] == list(inventory.ROLES)
