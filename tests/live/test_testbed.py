"""Test the embedded testbed: its lock, the removal of leftovers, and errors of hosts."""

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import (
    Measure,
    build_native,
    findings,
    leftovers,
    pids,
    run_json,
    squatter,
    start_run,
    wait_for,
    wait_for_load,
)

from sipsched.errors import SipschedError, StableError, TransientError
from sipsched.measure import acquisition, crossing_search, proxy, serving
from sipsched.plan import config
from sipsched.plan.run import Point, Run
from sipsched.records import record
from sipsched.testbed import inventory, local, namespaces, places
from sipsched.testbed.host import Host
from sipsched.testbed.inventory import Testbed
from sipsched.testbed.session import open_hosts


def test_up_and_down_can_be_repeated(testbed: Testbed) -> None:
    for _ in range(2):
        local.ensure_up(testbed)
        assert local.is_up(testbed)
    for _ in range(2):
        local.take_down()
        assert leftovers() == []
    assert not local.is_up(testbed)


def test_only_a_testbed_with_a_front_end_has_its_namespace(testbed: Testbed) -> None:
    front = inventory.load_testbed("local-front")
    local.ensure_up(testbed)
    assert Path("/run/netns/sipsched-sps").exists()
    assert not Path("/run/netns/sipsched-front").exists()
    assert not local.is_up(front)
    local.ensure_up(front, local.IDLE_S)
    assert local.is_up(front)
    # A run on the other testbed ends neither what `fab up` keeps nor the namespace of the front end.
    assert (local.STATE / "kept").exists()
    created = Path("/run/netns/sipsched-front").stat().st_ino
    local.ensure_up(testbed, local.IDLE_S)
    assert Path("/run/netns/sipsched-front").stat().st_ino == created
    local.take_down()
    assert leftovers() == []


@pytest.mark.quiet
def test_cpus_that_never_halt_have_no_idle_time(measure: Measure) -> None:
    bed = inventory.load_testbed("local-awake")
    run = run_json(measure(bed=bed, threads=2, cps=200, duration_s=2.0))
    parts = run["account"]["account"]["parts"]
    # The programs that keep the CPU awake are programs of sipsched, and not competitors.
    assert parts["own"] > 0.3 * parts["total"]
    assert parts["idle"] < 0.1 * parts["total"]
    assert not any(
        "awake" in competitor["comm"] for competitor in run["account"]["account"]["competitors"]
    )
    assert "never halt" in run["testbed"]["fidelity"]
    assert {"name": "halt", "asked": "prevented"} in run["scheduler"]["quiet"]
    assert not pids("scheduler/awake")
    local.take_down()
    assert leftovers() == []


def test_second_user_waits_and_learns_who_holds_the_testbed(
    testbed: Testbed, measure: Measure
) -> None:
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


def test_error_after_waiting_names_who_holds_the_testbed(
    testbed: Testbed, tmp_path: Path, measure: Measure
) -> None:
    bed = dataclasses.replace(testbed, lock_wait_s=1)
    with (
        open_hosts(testbed, "the first"),
        pytest.raises(TransientError, match=r"in use by the first \(pid .*waited 1 s"),
    ):
        measure(bed=bed)
    # On a testbed of kind ssh, the lock is on the host, because other controllers can use the same host.
    with (
        open_hosts(testbed, "the first"),
        pytest.raises(TransientError, match=r"host sps .*in use by the first .*waited 1 s"),
    ):
        measure(bed=dataclasses.replace(bed, kind="ssh"))


def test_lock_that_is_a_folder_is_an_error_in_one_line(up: None, measure: Measure) -> None:
    namespaces.LOCK_FILE.unlink()
    namespaces.LOCK_FILE.mkdir(mode=0o700)
    try:
        with pytest.raises(StableError, match=r"its lock /run/sipsched/lock is not a file"):
            measure()
    finally:
        namespaces.LOCK_FILE.rmdir()


def test_killed_run_leaves_nothing_and_the_next_run_works(
    testbed: Testbed, tmp_path: Path, measure: Measure
) -> None:
    local.take_down()
    raw = tmp_path / "raw"
    with start_run(raw, idle_s=1.0) as worker:
        wait_for_load(worker)
        os.kill(worker.pid, signal.SIGKILL)
    partial = list(raw.rglob("rep~1.partial"))
    assert len(partial) == 1
    assert list(raw.rglob("run.json")) == []
    # The guardian process stops the testbed after it was idle for a second.
    wait_for(lambda: leftovers() == [], 20)
    kept = measure(threads=2, cps=100, duration_s=1.0)
    assert (kept / "run.json").is_file()
    failed = kept.with_name("rep~1.failed-1")
    assert "interrupted" in (failed / "failure.txt").read_text()


def test_next_run_stops_strays_first(testbed: Testbed, measure: Measure) -> None:
    local.ensure_up(testbed)
    # Connect without open_hosts, which restores settings, to emulate a power failure of the controller.
    with Host(testbed.sps, testbed.workdir) as sps:
        sps.start("proxy", ["sleep", "299.25"], cpus=[0], limit_s=300)
    assert pids("sleep 299.25")
    measure(threads=2, cps=100, duration_s=1.0)
    assert not pids("sleep 299.25")
    local.take_down()


def test_ssh_hosts_need_no_namespaces(testbed: Testbed, measure: Measure, monkeypatch: Any) -> None:
    local.ensure_up(testbed)
    physical = dataclasses.replace(testbed, name="three-hosts", kind="ssh")

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a run on SSH hosts must know nothing of namespaces")

    with monkeypatch.context() as patch:
        for name in ("ensure_up", "take_down", "is_up", "check_machine"):
            patch.setattr(local, name, forbidden)
        patch.setattr(namespaces, "run_here", forbidden)
        folder = measure(bed=physical, threads=2, cps=200, duration_s=1.0)
    run = run_json(folder)
    assert run["testbed"]["kind"] == "ssh"
    assert run["probe"]["records"] == 1200
    local.take_down()


def on_host(testbed: Testbed, role: str, **changes: Any) -> Testbed:
    spec = dataclasses.replace(getattr(testbed, role), **changes)
    return dataclasses.replace(testbed, kind="ssh", **{role: spec})


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


@pytest.mark.parametrize("name", ["kamailio-udp", "opensips-udp"])
def test_a_proxy_that_logs_writes_a_line_per_message(
    name: str, up: None, measure: Measure, tmp_path: Path, campaign: config.Config
) -> None:
    socket = Path("/dev/log")
    if socket.exists():
        pytest.skip("a syslog daemon of this machine reads /dev/log")
    if shutil.which(name.removesuffix("-udp")) is None:
        pytest.skip(f"not installed: {name.removesuffix('-udp')}")
    logging = dataclasses.replace(campaign.sut(name), log_messages=True)
    settings: dict[str, Any] = {"sut": name, "suts": {name: logging}, "duration_s": 2}
    refused(measure, tmp_path / "raw", "no program reads this socket; start a syslog", **settings)
    program = build_native("scheduler", tmp_path, "competitor") / "competitor"
    argv = [program, "syslogd", "1", socket]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as reader:
        try:
            wait_for(socket.exists, 10)
            run = run_json(measure(**settings))
        finally:
            reader.terminate()
        said, _ = reader.communicate(timeout=30)
    # Retransmissions of the UAS at the end of a load, if any, are lines, too.
    (lines,) = re.findall(r"^(\d+) lines$", said, re.MULTILINE)
    warm_up = run["load"]["warmup_s"] * run["run"]["cps"] * 6
    assert run["probe"]["records"] <= int(lines) <= run["probe"]["records"] + 1.5 * warm_up + 100
    assert "INVITE" in said
    # The errors of the proxy are in the same log, so sipsched claims nothing about failed allocations.
    assert findings(run).get("allocation_failures") is None


def test_port_in_use(up: None, testbed: Testbed, measure: Measure, tmp_path: Path) -> None:
    with squatter():
        refused(measure, tmp_path / "raw", "UDP port 5060 is in use: .*python")


def test_more_cores_than_there_are(
    campaign: config.Config, testbed: Testbed, tmp_path: Path
) -> None:
    run = Run("local", "kamailio-udp", "default", 64, 2, 100, 1)
    with pytest.raises(StableError, match="ask for more: cores=64 threads=2 cps=100"):
        acquisition.measure(run, campaign, testbed, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.fixture
def small_disk(testbed: Testbed, tmp_path: Path) -> Callable[[str], Testbed]:
    """Return a function that gives the SPS a work folder on a small file system, with a size such as `4m`."""

    def make(size: str) -> Testbed:
        # Mount in the mount namespace of the host's sshd, because each host has its own mounts.
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


def test_search_needs_room_for_its_largest_trial(
    up: None, small_disk: Callable[[str], Testbed], campaign: config.Config, tmp_path: Path
) -> None:
    point = Point("local", "kamailio-udp", "default", 1, 2)
    search = campaign.search
    calls = search.highest_cps * search.trial_s
    with pytest.raises(StableError, match=f"disk full at .* needed for {calls:g} calls"):
        crossing_search.search_crossing(point, campaign, small_disk("70m"), tmp_path)
    assert not any(tmp_path.rglob("crossing.json"))


def test_full_disk_here_keeps_earlier_records(up: None, measure: Measure, tmp_path: Path) -> None:
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
    with pytest.raises(TransientError, match=r"not valid: .*the probe lost [\d\u202f]+ records"):
        measure(threads=4, cps=1000, duration_s=2.0)
    (failed,) = (tmp_path / "raw").rglob("rep~1.failed-1")
    document = record.read_record(failed)
    assert not document.verdict.valid
    assert set(document.files or {}) == {path.name for path in failed.iterdir()} - {
        *("run.json", "failure.txt"),
    }
    assert not record.is_recorded(
        tmp_path / "raw", Run("local", "kamailio-udp", "default", 1, 4, 1000, 1)
    )


def test_preload_mode_replaces_bpf_and_gives_the_reason(
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
    run = run_json(record_folder)
    assert run["probe"]["mode"] == "preload"
    assert "BPF is refused: EPERM" in run["probe"]["mode_reason"]
    assert run["probe"]["records"] == 1200
    local.take_down()


def test_roles_are_those_of_the_inventory() -> None:
    assert [namespace.role for namespace in local.NAMESPACES] == list(inventory.ROLES)
