"""Test crossover runs: the proxy switches modes while it serves the same calls in each window of a block."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from faults.checks import make_project
from helpers import Measure, build_native, findings, pids, run_json, start_run, wait_for_load

from sipsched.analysis.advice import read_loads
from sipsched.analysis.buffers import buffers_at
from sipsched.analysis.capacity_ratios import ratios
from sipsched.errors import StableError
from sipsched.files import read_zstd
from sipsched.measure.crossing_search import search_crossing
from sipsched.measure.generator import CALLS_HEADER, read_calls
from sipsched.plan.config import Config
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point
from sipsched.records import windows
from sipsched.records.crossing import read_crossing
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.switch_log import WindowsDocument, read_windows
from sipsched.testbed.inventory import Testbed, release_root
from sipsched.validity.rules import SHARED_MACHINE, Limits

COMPARISON = "default,default+min_granularity_ns=100000"
PROGRAMS = "^/var/lib/sipsched/native/[^ ]*/(switcher|sipload|sipprobe) "
"""Regular expression for the programs of a run. Tests that run at the same time build them in other folders."""


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Return a configuration with a few seconds per mode and wide limits for other programs."""
    folder = tmp_path / "project"
    folder.mkdir()
    return make_project(folder)


def starts_by_window(record: Path, recorded: WindowsDocument) -> list[list[int]]:
    """Return the planned starts of calls per window, in ns from the start of the window."""
    data = read_zstd(record / "uac.calls.zst", "calls file", "repeat the run")
    t0_ns = int(np.frombuffer(data, CALLS_HEADER, count=1)["t0"][0])
    design = recorded.design
    since = read_calls(record / "uac.calls.zst")["t_intended"].astype(np.int64) - t0_ns
    edges = [window.start_ns for window in design.windows]
    place = np.searchsorted(edges, since, side="right") - 1
    return [
        (since[place == number] - window.start_ns).tolist()
        for number, window in enumerate(design.windows)
    ]


def test_crossover_run_offers_the_same_calls_in_each_window_of_a_block(
    measure: Measure, tmp_path: Path
) -> None:
    record = measure(mode=COMPARISON, cps=400, threads=4)
    run = run_json(record)
    recorded = read_windows(record)
    log, design = recorded.log, recorded.design
    assert log.ended == "plan"
    assert len(log.windows) == len(design.windows) >= 18
    assert all(switch.good for switch in log.windows)
    # The tasks are the four workers and the other processes of the proxy.
    assert log.tasks > 4
    assert run["crossover"]["failed_switches"] == 0
    assert run["generator"]["calls_completed"] == run["generator"]["calls_created"]
    assert run["certificate"]["replays"] == 3
    assert run["speed"]["before"] > 0
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows.windows_from_record(tmp_path / "messages.nc", record)
    kept = dataset["left_out"].to_numpy() == windows.COUNTS
    assert kept.sum() >= 12
    # The samples and the trace count the same messages, except for messages at the edges of windows.
    off = dataset["messages"].isel(washout=0) - dataset["datagrams"].isel(washout=0)
    assert float(abs(off[kept]).max()) < 0.3 * float(
        dataset["messages"].isel(washout=0)[kept].min()
    )
    offsets = starts_by_window(record, recorded)
    by_block = zip(recorded.design.windows, offsets, strict=True)
    places = set()
    for _, group in groupby(by_block, lambda pair: pair[0].block):
        block = list(group)
        places |= {place for place, (window, _) in enumerate(block) if window.sham}
        first, *others = (np.array(starts) for _, starts in block)
        assert len(first) > 100
        for other in others:
            assert len(other) == len(first)
            assert (other == first).all()
    # With at least six blocks, the probability that all shams have the same position is 1 in 243.
    assert len(places) > 1
    shams = windows.by_arm(dataset, "k_rcv_mean")[:, -1]
    assert np.isfinite(shams).sum() >= 4


def test_each_window_reaches_its_instance(measure: Measure, tmp_path: Path) -> None:
    mode = "default,batch,default+threads=2,default+sut=kamailio-udp-fm"
    record = measure(mode=mode, cps=300, threads=4)
    run = run_json(record)
    same = {"cores": 1, "receive_buffer_bytes": None, "start": 1}
    four = {"sut": "kamailio-udp", "threads": 4, **same}
    two = {"sut": "kamailio-udp", "threads": 2, **same}
    other = {"sut": "kamailio-udp-fm", "threads": 4, **same}
    assert run["crossover"]["instances"] == [four, two, other, four]
    labels = [result["label"] for result in run["crossover"]["modes"]]
    assert labels == ["default", "batch", "2 workers", "kamailio-udp-fm"]
    assert run["generator"]["calls_completed"] == run["generator"]["calls_created"]
    assert run["probe"]["unmatched"] == run["probe"]["lost"] == 0
    recorded = read_windows(record)
    assert recorded.log.tasks > 4 + 2 + 4 + 4
    cpu_ns = np.array(recorded.log.cpu_ns_of_instances)
    assert (cpu_ns.sum(axis=0) == recorded.log.samples.cpu_ns).all()
    assert (cpu_ns[:, -1] > cpu_ns[:, 0]).all()
    planned = Counter[int]()
    for window, starts in zip(
        recorded.design.windows, starts_by_window(record, recorded), strict=True
    ):
        planned[3 if window.sham else (0, 0, 1, 2)[window.mode]] += len(starts)
    # The UAS counts calls by the address of their sender, in the order of the first calls.
    served = json.loads((record / "uas.json").read_text())["peers"]
    warm_up = run["load"]["warmup_s"] * 300 / 4
    assert len(served) == 4
    for number, count in planned.items():
        assert 0 <= served[number] - count < 2 * warm_up
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows.windows_from_record(tmp_path / "messages.nc", record)
    off = dataset["messages"].isel(washout=0) - dataset["datagrams"].isel(washout=0)
    assert float(abs(off).max()) < 0.3 * float(dataset["messages"].isel(washout=0).min())
    # Three idle instances use a few per cent of the CPU time that one instance uses for 1800 messages per second.
    assert 0 < float(dataset["idle_instances_share"].median()) < 0.2


SOCKETS, PARTITIONED = "kamailio-udp-sockets", "kamailio-udp-partitioned"


@pytest.mark.parametrize(
    ("sut", "mode", "sockets"),
    [
        (
            "kamailio-udp",
            f"default,default+sut={SOCKETS},default+sut={PARTITIONED}+threads=2,batch+sut={SOCKETS}",
            [None, 4, 2, None],
        ),
        (PARTITIONED, f"default,default+threads=2,default+sut={SOCKETS}+threads=3", [4, 2, 3, 4]),
    ],
)
def test_each_call_stays_at_one_socket_of_its_instance(
    measure: Measure, tmp_path: Path, sut: str, mode: str, sockets: list[int | None]
) -> None:
    record = measure(sut=sut, mode=mode, cps=300, threads=4)
    run = run_json(record)
    assert run["generator"]["calls_completed"] == run["generator"]["calls_created"]
    assert run["probe"]["unmatched"] == run["probe"]["lost"] == 0
    assert findings(run)["calls_split"] == findings(run)["share_excess"] == 0
    assert run["proxy"]["shards"] is None
    shards = run["proxy"]["shards_of_instances"]
    assert [one and len(one["selected"]) for one in shards] == sockets
    # The UAS counts calls by the port of their instance, in the order of the first calls.
    served = json.loads((record / "uas.json").read_text())["peers"]
    assert len(served) == len(sockets)
    for counts, calls in zip(shards, served, strict=True):
        if counts:
            assert (counts["without_call_id"], counts["gone"]) == (0, 0)
            assert sum(counts["selected"]) == 6 * calls
            assert min(counts["selected"]) > 0
    recorded = read_windows(record)
    assert all(switch.good for switch in recorded.log.windows)
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows.windows_from_record(tmp_path / "messages.nc", record)
    off = dataset["messages"].isel(washout=0) - dataset["datagrams"].isel(washout=0)
    assert float(abs(off).max()) < 0.3 * float(dataset["messages"].isel(washout=0).min())


COPY_PROXY = """\
set -eu
root=$1
mkdir -p "$root/proc" "$root/dev"
kamailio=$(readlink -f "$(command -v kamailio)")
modules=$(find /usr/lib -type d -path '*/kamailio/modules')
for file in "$kamailio" /bin/sh /bin/mkdir "$modules"/*.so; do
    echo "$file"
    ldd "$file" | grep -o '/[^ ]*' || true
done | sort -u | xargs cp --parents --dereference --target-directory "$root"
"""
"""Shell script that copies Kamailio, its modules and all needed libraries into a root file system."""


def test_a_proxy_of_another_root_file_system_is_compared(
    measure: Measure, testbed: Testbed, campaign: Config
) -> None:
    release = "testrelease"
    root = Path(release_root(testbed.workdir, release))
    other = replace(campaign.sut("kamailio-udp"), name="other", release=release)
    suts = {**campaign.suts, "other": other}
    with pytest.raises(StableError, match="run: fab provision --release=testrelease"):
        measure(mode="default,default+sut=other", cps=200, threads=2, suts=suts)
    try:
        subprocess.run(["sh", "-c", COPY_PROXY, "sh", str(root)], check=True)
        record = measure(mode="default,default+sut=other", cps=200, threads=2, suts=suts)
    finally:
        shutil.rmtree(root)
    run = run_json(record)
    assert [one["sut"] for one in run["crossover"]["instances"]] == [
        "kamailio-udp",
        "other",
        "kamailio-udp",
    ]
    versions = run["hosts"]["sps"]["versions"]
    assert versions["kamailio-udp"] == versions["other"] != ""
    printed = [text for text in run["hosts"]["sps"]["files"].values() if versions["other"] in text]
    # The proxy of each SUT prints its build options, and the other SUT's proxy is in a root file system of its own.
    assert len(printed) == 2
    assert all("flags: " in text and "compiled with gcc" in text for text in printed)
    assert run["generator"]["calls_completed"] == run["generator"]["calls_created"]
    assert run["probe"]["unmatched"] == run["probe"]["lost"] == 0


def test_an_instance_that_ends_is_named(testbed: Testbed, tmp_path: Path, short: Path) -> None:
    said = tmp_path / "said"
    mode = "default,default+threads=4"
    with (
        said.open("w") as stderr,
        start_run(tmp_path / "raw", mode=mode, settings=short, stderr=stderr) as worker,
    ):
        wait_for_load(worker)
        assert pids(PROGRAMS)
        for proxy in pids("^[^ ]*kamailio .*/instance-1/proxy.cfg"):
            os.kill(proxy, signal.SIGKILL)
        assert worker.wait(180) != 0
    assert re.search(
        r"processes of the proxy, such as kamailio of instance 1 .* ended during the run",
        said.read_text(),
    )
    assert not pids(f"{PROGRAMS}|^[^ ]*kamailio ")


def test_modes_with_equal_settings_are_refused(measure: Measure) -> None:
    # This override of the latency changes nothing, because the scheduler EEVDF has no latency period.
    with pytest.raises(StableError, match="would compare a mode with itself"):
        measure(mode="default,default+latency_ns=900000", cps=200)


def test_killed_switcher_is_named_in_the_error(
    testbed: Testbed, tmp_path: Path, short: Path
) -> None:
    said = tmp_path / "said"
    with (
        said.open("w") as stderr,
        start_run(
            tmp_path / "raw", mode=COMPARISON, cps=200, settings=short, stderr=stderr
        ) as worker,
    ):
        wait_for_load(worker)
        for switcher in pids("^[^ ]*/switcher run "):
            os.kill(switcher, signal.SIGKILL)
        assert worker.wait(120) != 0
    assert "switcher left no log" in said.read_text()
    assert not pids(PROGRAMS)


@pytest.mark.parametrize("name", ["kamailio-udp", "kamailio-udp-partitioned"])
def test_a_sut_may_have_a_smaller_receive_buffer_than_the_default(
    name: str, measure: Measure, campaign: Config
) -> None:
    small = replace(campaign.sut(name), receive_buffer_bytes=16_384)
    record = measure(sut=name, suts={name: small}, mode="default", threads=2, duration_s=2)
    run = run_json(record)
    assert run["settings"]["so_rcvbuf_bytes"] == 32_768
    # Without the program `buffers`, the sockets would keep the kernel's default.
    assert int(run["settings"]["rmem_default"]) > 32_768


def test_each_instance_has_its_own_receive_buffer(measure: Measure, tmp_path: Path) -> None:
    small, large = "default+receive_buffer_bytes=65536", "default+receive_buffer_bytes=4194304"
    record = measure(mode=f"default,{small},{large}", cps=300, threads=4)
    run = run_json(record)
    first, *others = run["settings"]["so_rcvbuf_of_instances"]
    assert run["settings"]["so_rcvbuf_bytes"] == first
    assert others == [131_072, 8_388_608, first]
    assert run["crossover"]["instance_of_mode"] == [0, 1, 2]
    sizes = [one["receive_buffer_bytes"] for one in run["crossover"]["instances"]]
    assert sizes == [None, 65_536, 4_194_304, None]
    assert "maxbuffer=65536" in (record / "proxy-1.cfg").read_text()
    assert run["generator"]["calls_completed"] == run["generator"]["calls_created"]
    write_messages(messages_from_record(record), tmp_path / "messages.nc")
    dataset = windows.windows_from_record(tmp_path / "messages.nc", record)
    windows.write_windows(dataset, tmp_path / "windows.nc")
    assert json.loads(dataset.attrs["receive_buffers"]) == [first, 131_072, 8_388_608]
    # the kernel charges more memory for a SIP message than the message's length, because it rounds allocations up
    assert 512 < dataset.attrs["truesize"] < 5000
    (load,) = read_loads([tmp_path / "windows.nc"])
    held = buffers_at(load)
    assert [one.mode for one in held] == [small, "default", large]
    assert held[0].messages == int(131_072 // dataset.attrs["truesize"])


@pytest.mark.parametrize("other", ["cores=2", f"sut={PARTITIONED}+cores=2"])
def test_each_instance_runs_on_its_number_of_cores(
    testbed: Testbed, tmp_path: Path, short: Path, other: str
) -> None:
    if len(testbed.sps.cpus) < 2:
        pytest.skip("the SPS has one CPU")
    first, second = testbed.sps.cpus[:2]
    mode = f"default,default+{other}"
    with start_run(tmp_path / "raw", mode=mode, settings=short) as worker:
        wait_for_load(worker)
        for number, cpus in enumerate(({first}, {first, second}, {first})):
            proxies = pids(f"^[^ ]*kamailio .*/instance-{number}/proxy.cfg")
            assert proxies
            assert all(os.sched_getaffinity(proxy) == cpus for proxy in proxies)
        assert worker.wait(240) == 0
    (record,) = (path.parent for path in tmp_path.rglob("run.json"))
    run = run_json(record)
    assert [one["cores"] for one in run["crossover"]["instances"]] == [1, 2, 1]
    assert run["settings"]["sps_cpus"] == [first, second]
    assert run["account"]["moved"] == 0
    # The embedded testbed receives on the first CPU of the SPS, in every mode.
    received = run["settings"]["receive_cpus"]
    masks = {
        int(received[f"/sys/class/net/{link}0/queues/rx-0/rps_cpus"], 16) for link in ("uac", "uas")
    }
    assert masks == {1 << first}


@pytest.mark.parametrize("length", [600, 900])
def test_a_buffer_holds_the_computed_number_of_messages(tmp_path: Path, length: int) -> None:
    program = build_native("scheduler", tmp_path, "buffers") / "buffers"
    address = ("127.0.0.1", 0)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
    ):
        one.bind(address)
        port = one.getsockname()[1]
        subprocess.run([program, f"{port}=65536", "--", str(os.getpid())], check=True)

        def memory(field: str) -> int:
            argv = ["ss", "-Hlunm", f"sport = :{port}"]
            said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            match = re.search(rf"[(,]{field}(\d+)[,)]", said)
            assert match
            return int(match[1])

        sender.sendto(bytes(length), one.getsockname())
        truesize = memory("r")
        for _ in range(999):
            sender.sendto(bytes(length), one.getsockname())
        assert 1000 - memory("d") == 131_072 // truesize


def test_a_buffer_that_cannot_be_set_is_one_clear_error(tmp_path: Path) -> None:
    program = build_native("scheduler", tmp_path, "buffers") / "buffers"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port, own = one.getsockname()[1], str(os.getpid())
        argv = [program, f"{port}=65536", "--", own]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout == f"{port} 131072\n"
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 131_072
    for arguments, code, message in (
        ([f"{port}=65536", "--", own], 1, f"none of .* has a UDP socket on port {port}"),
        ([f"{port}=65536", "--", "999999999"], 1, "cannot take the sockets of a process"),
        ([f"{port}=65536", "--"], 2, "usage: buffers"),
        ([f"{port}", "--", own], 2, "usage: buffers"),
        (["65536=65536", "--", own], 2, "usage: buffers"),
        ([f"{port}={2**31}", "--", own], 2, "usage: buffers"),
    ):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert re.search(f"^buffers: .*{message}", done.stderr)


def test_trials_of_a_paired_search_alternate_between_systems(
    campaign: Config, testbed: Testbed, tmp_path: Path
) -> None:
    rules = (*SHARED_MACHINE, "unexpected_messages", "uas_lateness_p99_us")
    tolerant = replace(
        campaign,
        load=replace(campaign.load, warmup_s=0.1, drain_s=0.2),
        search=replace(campaign.search, trial_s=0.5, highest_cps=9000, limit_s=30),
        validity={**campaign.validity, **dict.fromkeys(rules, Limits(math.inf, math.inf))},
    )
    modes = ("default", "batch+cores=2+sut=kamailio-udp-partitioned")
    place = Point(testbed.name, "kamailio-udp", ",".join(modes), 1, 2, Capacity(0.01, 0.001))
    path = search_crossing(place, tolerant, testbed, tmp_path / "raw", guess_cps=4000)
    found = read_crossing(path)
    assert found.ended_by == "time" and found.is_paired
    assert [trial.mode for trial in found.rounds[-1]] == list(modes)
    assert all(trial.cpu_us for trial in found.trials)
    (ratio,) = ratios(found)
    assert 1 <= ratio.ratio.n <= len(found.rounds) <= ratio.search.begun_rounds
    assert ratio.other.handled_cps > 100
