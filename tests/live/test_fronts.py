"""Test proxy servers that consist of several instances with one worker, behind each kind of front end."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from helpers import (
    Measure,
    findings,
    leftovers,
    pids,
    run_json,
    start_run,
    under_load,
    values_of,
    wait_for,
    wait_for_load,
)

from sipsched.errors import StableError, TransientError
from sipsched.files import read_zstd
from sipsched.plan.config import Config
from sipsched.records.record import COMMANDS_FILE
from sipsched.testbed import local
from sipsched.testbed.inventory import Testbed, load_testbed

INSTANCE = r"^kamailio .*/sps/.*proxy\.cfg"
FRONTS = {
    "kamailio-udp-front": r"^kamailio .*front\.cfg",
    "kamailio-tcp-dispatcher": r"^[^ ]*/sipdispatch --listen",
}
BYE = b"BYE sip:x@y SIP/2.0\r\nCall-ID: a\r\nContent-Length: 0\r\n\r\n"
STRANGER = """
import socket, sys
kind = socket.SOCK_STREAM if sys.argv[1] == "tcp" else socket.SOCK_DGRAM
for text in sys.argv[4:]:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.connect((sys.argv[2], int(sys.argv[3])))
        sock.sendall(bytes.fromhex(text))
        sock.settimeout(0.3)
        try:
            while sock.recv(65536):
                pass
        except OSError:
            pass
"""


@pytest.mark.parametrize("sut", [*FRONTS, "kamailio-tcp-listeners-per-call"])
def test_each_call_stays_at_one_instance_and_instances_have_equal_shares(
    measure: Measure, sut: str
) -> None:
    record = measure(sut=sut, threads=4, cps=200, duration_s=2.5)
    run = run_json(record)
    ledger, proxy = run["ledger"], run["proxy"]
    assert run["generator"]["calls_completed"] == 500
    assert ledger["to_sps"]["sent"] == ledger["to_sps"]["received"] == 3000
    # Kamailio's module tm adds a 100 response to each INVITE.
    assert ledger["from_sps"]["sent"] == ledger["from_sps"]["received"] == 3500
    assert findings(run)["calls_split"] == 0
    # Each instance gets 125 calls on average, with a standard deviation of 10. UDP counts include the warm-up.
    assert len(proxy["calls_of_instances"]) == 4
    assert all(75 < calls < 185 for calls in proxy["calls_of_instances"])
    assert (proxy["front"] is not None) == (sut in FRONTS)
    assert (record / "front.cfg").exists() == (sut == "kamailio-udp-front")
    assert json.loads((record / "uas.json").read_text())["calls"]["split"] == 0
    if proxy["front"]:
        assert findings(run)["share_excess"] == 0
        assert 0 < proxy["front"]["cpu_ns"] < proxy["cpu_ns"]
        assert proxy["front"]["cpus"] == run["settings"]["sps_cpus"]


@pytest.mark.parametrize("sut", FRONTS)
def test_a_front_end_on_its_own_host_is_recorded_apart_from_the_proxy(
    measure: Measure, campaign: Config, sut: str
) -> None:
    bed = load_testbed("local-front")
    suts = {sut: dataclasses.replace(campaign.sut(sut), front_host="front")}
    record = measure(sut=sut, suts=suts, bed=bed, threads=3, cps=200, duration_s=2.5)
    run = run_json(record)
    ledger, front = run["ledger"], run["proxy"]["front"]
    assert run["generator"]["calls_completed"] == 500
    assert sum(run["proxy"]["calls_of_instances"]) >= 500
    assert ledger["to_sps"]["sent"] == ledger["to_sps"]["received"] == 3000
    assert ledger["from_sps"]["sent"] == ledger["from_sps"]["received"] == 3500
    assert findings(run)["calls_split"] == findings(run)["share_excess"] == 0
    assert bed.front
    assert (front["host"], front["cpus"]) == ("front", list(bed.front.cpus))
    assert front["cpu_ns"] > 0
    assert run["hosts"]["front"]["address"] == bed.front.address
    # The UAC sent every message to the front end, and none to the proxy's host.
    commands = json.loads(read_zstd(record / COMMANDS_FILE, "commands", "repeat the run"))
    remotes = [values_of(command["argv"], "--remote") for command in commands]
    assert {remote for found in remotes for remote in found} == {
        f"{bed.front.sip_address}:{bed.front.sip_port}"
    }
    local.take_down()
    assert leftovers() == []


def test_a_front_end_chooses_the_instance_by_the_called_user(
    measure: Measure, campaign: Config
) -> None:
    name = "kamailio-udp-front"
    suts = {name: dataclasses.replace(campaign.sut(name), shard_by="user")}
    record = measure(sut=name, suts=suts, threads=4, cps=200, duration_s=2.5)
    run = run_json(record)
    assert run["generator"]["calls_completed"] == 500
    assert all(75 < calls < 185 for calls in run["proxy"]["calls_of_instances"])
    assert findings(run)["calls_split"] == findings(run)["share_excess"] == 0
    assert 'ds_select_dst("1", "2")' in (record / "front.cfg").read_text()


def test_few_connections_give_uneven_shares_which_are_recorded(
    measure: Measure,
) -> None:
    run = run_json(measure(sut="kamailio-tcp-listeners", threads=4, cps=200, duration_s=2.5))
    calls = run["proxy"]["calls_of_instances"]
    assert sum(calls) == run["generator"]["calls_completed"] == 500
    # Calls use the 8 connections in turn, and the front end sends all calls of a connection to the same instance.
    eighths = [round(8 * share / 500) for share in calls]
    assert sum(eighths) == 8
    assert all(
        abs(share - 62.5 * eighth) <= 8 for share, eighth in zip(calls, eighths, strict=True)
    )
    assert findings(run)["calls_split"] == 0
    assert findings(run)["share_excess"] is None


@pytest.mark.parametrize("sut", [*FRONTS, "kamailio-tcp-listeners"])
def test_dead_instance_loses_its_calls_and_invalidates_the_run(measure: Measure, sut: str) -> None:
    with under_load(measure, sut=sut, threads=3, cps=200, duration_s=2.5, drain_s=2.0) as made:
        os.kill(max(pids(INSTANCE)), signal.SIGKILL)
        with pytest.raises(TransientError, match=r"processes of the proxy, .* ended") as caught:
            made.result()
    lost = re.search(r"(\d+) of 500 calls did not complete", str(caught.value))
    assert lost
    # A third of the later calls is lost. With listeners, the UAC reconnects and reaches another instance.
    assert int(lost[1]) < 250
    assert sut == "kamailio-tcp-listeners" or int(lost[1]) > 50


@pytest.mark.parametrize(("name", "host"), [("local", "sps"), ("local-front", "front")])
@pytest.mark.parametrize("sut", FRONTS)
def test_dead_front_ends_the_run_with_its_reason(
    measure: Measure, campaign: Config, sut: str, name: str, host: Literal["sps", "front"]
) -> None:
    suts = {sut: dataclasses.replace(campaign.sut(sut), front_host=host)}
    load = {"cps": 200, "duration_s": 1.5, "drain_s": 2.0}
    with under_load(measure, sut=sut, suts=suts, bed=load_testbed(name), threads=2, **load) as made:
        for pid in pids(FRONTS[sut]):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransientError, match=r"the front end \((front|dispatcher)\) .* ended"):
            made.result()
    local.take_down()
    assert leftovers() == []


@pytest.mark.parametrize("sut", [*FRONTS, "kamailio-tcp-listeners", "kamailio-udp-partitioned"])
def test_killed_controller_leaves_nothing(testbed: Testbed, tmp_path: Path, sut: str) -> None:
    local.take_down()
    with start_run(tmp_path / "raw", sut=sut) as worker:
        wait_for_load(worker)
        assert len(pids(INSTANCE)) >= 2
        worker.kill()
    # The hosts stop their processes automatically after the controller was killed.
    wait_for(lambda: not pids(INSTANCE) and not any(map(pids, FRONTS.values())), 15)
    local.take_down()
    wait_for(lambda: leftovers() == [], 5)


@pytest.mark.parametrize(
    ("sut", "sent", "broken", "without_call_id"),
    [
        (
            "kamailio-tcp-dispatcher",
            (
                # The first message has no length, the second is too long, and the third is incomplete.
                BYE.replace(b"Content-Length: 0\r\n", b""),
                BYE.replace(b"Length: 0", b"Length: 70000"),
                BYE[:30],
            ),
            2,
            0,
        ),
        (
            "kamailio-udp-front",
            (BYE.replace(b"Call-ID: a\r\n", b""), b"\xff" * 2000, b"\r\n"),
            0,
            0,
        ),
    ],
)
def test_malformed_messages_of_a_stranger_disturb_no_call(
    measure: Measure,
    testbed: Testbed,
    sut: str,
    sent: tuple[bytes, ...],
    broken: int,
    without_call_id: int,
) -> None:
    with under_load(measure, sut=sut, threads=2, cps=200, duration_s=3.0) as made:
        there = [sut.split("-")[1], testbed.sps.sip_address, str(testbed.sps.sip_port)]
        here = ["ip", "netns", "exec", "sipsched-uac", sys.executable, "-c", STRANGER, *there]
        subprocess.run([*here, *(text.hex() for text in sent)], check=True)
        run = run_json(made.result())
    assert run["generator"]["calls_completed"] == 600
    assert run["ledger"]["to_sps"]["residual"] == run["ledger"]["from_sps"]["residual"] == 0
    dispatched = run["proxy"]["front"]["dispatched"]
    if dispatched:
        assert (dispatched["broken"], dispatched["without_call_id"]) == (broken, without_call_id)


def test_too_many_instances_are_an_error_in_one_line(measure: Measure, testbed: Testbed) -> None:
    late = dataclasses.replace(testbed, sps=dataclasses.replace(testbed.sps, sip_port=65530))
    with pytest.raises(StableError, match="need ports 65530 to 65538, but the last"):
        measure(sut="kamailio-tcp-dispatcher", threads=8, bed=late)
    with pytest.raises(StableError, match="at most 250 workers, found 251; lower threads"):
        measure(sut="kamailio-tcp-dispatcher", threads=251)
