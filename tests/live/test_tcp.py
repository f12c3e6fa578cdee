"""Test SIP over TCP through Kamailio."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from helpers import Measure, pids, run_json, under_load

from sipsched.records.messages import FLAGS, MISSING, messages_from_record
from sipsched.records.switch_log import read_windows
from sipsched.records.window_time import in_force
from sipsched.testbed.inventory import Testbed

PROXY = r"^kamailio .*/sps/.*proxy\.cfg"
HALF_A_MESSAGE = """
import socket, sys
for cut in (20, 60):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
        sock.sendall(b"INVITE sip:x@y SIP/2.0\\r\\nVia: SIP/2.0/TCP 198.18.1.2;branch=z9hG4bKx\\r\\n"[:cut])
"""


@pytest.mark.parametrize(
    ("sut", "opened", "sent_by_sps"),
    # Kamailio's module tm sends an additional 100 response per INVITE.
    [
        ("kamailio-tcp", 8, 3500),
        ("kamailio-tcp-per-call", 500, 3500),
        ("kamailio-tcp-stateless", 8, 3000),
    ],
)
def test_every_message_is_counted_on_both_sides(
    measure: Measure, sut: str, opened: int, sent_by_sps: int
) -> None:
    record = measure(sut=sut, threads=4, cps=200, duration_s=2.5)
    run = run_json(record)
    generator, ledger = run["generator"], run["ledger"]
    assert generator["calls_completed"] == 500
    assert generator["calls_late"] == generator["calls_waiting"] == 0
    assert generator["connections"]["opened"] == opened
    assert generator["connections"]["again"] == generator["connections"]["lost"] == 0
    assert (ledger["unit"], ledger["to_sps"]["residual"]) == ("messages", 0)
    assert ledger["to_sps"]["sent"] == ledger["to_sps"]["received"] == 3000
    assert ledger["from_sps"]["sent"] == ledger["from_sps"]["received"] == sent_by_sps
    assert run["certificate"]["arrivals"] == 500
    probe = run["probe"]
    assert probe["mode"] == "stream"
    assert probe["records"] == probe["received"] == 3000
    assert probe["sent"] == sent_by_sps
    assert probe["lost"] == probe["broken"] == probe["cut"] == 0
    # The proxy passes each new connection to a worker, and also to another worker that has to send on the connection.
    assert probe["descriptors_received"] >= (500 if opened == 500 else 0)
    ds = messages_from_record(record)
    assert Counter(ds.message_type.to_numpy().tolist()) == dict.fromkeys(range(1, 7), 500)
    # The kernel sometimes skips the probe's BPF programs (docs/methodology/tcp.md). A flag marks the missing timestamp.
    flags = ds["flags"].to_numpy()
    assert np.count_nonzero(flags & FLAGS["arrival_not_found"]) == probe["unmatched"]
    unseen = dict.fromkeys(("k_stack", "k_sockq", "k_copy"), "arrival_not_found")
    for name, flag in {**unseen, "t_sip": "nothing_sent", "k_snd": "departure_not_seen"}.items():
        missing = (ds[name] == MISSING).to_numpy()
        assert "missing_reason" not in ds[name].attrs
        assert np.array_equal(missing, flags & FLAGS[flag] != 0), name
        assert np.count_nonzero(missing) < 0.01 * ds.sizes["message"], name


@pytest.mark.parametrize("sut", ["kamailio-tcp", "kamailio-tcp-per-call"])
def test_each_window_reaches_its_instance(measure: Measure, sut: str) -> None:
    two = "default+threads=2"
    record = measure(sut=sut, mode=f"default,{two}", threads=4, cps=200)
    run = run_json(record)
    generator, probe, ledger = run["generator"], run["probe"], run["ledger"]
    assert generator["calls_completed"] == generator["calls_created"]
    # Each of the three instances, including the sham, has its own 8 connections, which stay open.
    of_calls = generator["calls_created"]
    assert generator["connections"]["opened"] == (3 * 8 if sut == "kamailio-tcp" else of_calls)
    assert generator["connections"]["again"] == generator["connections"]["lost"] == 0
    assert ledger["to_sps"]["residual"] == ledger["from_sps"]["residual"] == 0
    assert probe["records"] == probe["received"] == ledger["to_sps"]["received"] == 6 * of_calls
    ds = messages_from_record(record)
    placed = in_force(read_windows(record), ds["t_arr"].to_numpy())
    served = {}
    for name in ("default", two):
        workers, counts = np.unique(
            ds["worker"].to_numpy()[placed.evaluated & (placed.mode == name)], return_counts=True
        )
        # The first message of a window may arrive some µs before the switcher ends the window before it.
        served[name] = set(workers[counts > 10])
    assert 1 <= len(served[two]) <= 2
    assert 3 <= len(served["default"]) <= 8
    assert not served[two] & served["default"]


def test_messages_that_share_a_read_under_overload_have_their_own_rows(measure: Measure) -> None:
    record = measure(sut="kamailio-tcp", threads=2, cps=3000, duration_s=1.5, drain_s=8.0)
    run = run_json(record)
    assert run["probe"]["records"] == run["ledger"]["to_sps"]["received"] >= 6 * 4000
    ds = messages_from_record(record)
    flags = ds["flags"].to_numpy()
    assert np.count_nonzero(flags & FLAGS["read_with_others"]) > 1000
    assert np.count_nonzero(flags & FLAGS["read_in_pieces"]) > 100
    # Messages wait in the queue, and in the worker's buffer behind messages of the same read.
    k_sockq = ds["k_sockq"].to_numpy()
    assert np.median(k_sockq[k_sockq != MISSING]) > 1e6


def test_partial_message_of_a_stranger_disturbs_no_call(measure: Measure, testbed: Testbed) -> None:
    with under_load(measure, sut="kamailio-tcp", threads=2, cps=200, duration_s=2.5) as made:
        there = [testbed.sps.sip_address, str(testbed.sps.sip_port)]
        here = ["ip", "netns", "exec", "sipsched-uac", sys.executable, "-c", HALF_A_MESSAGE]
        subprocess.run([*here, *there], check=True)
        run = run_json(made.result())
    assert run["generator"]["calls_completed"] == 500
    assert run["ledger"]["to_sps"]["residual"] == run["ledger"]["from_sps"]["residual"] == 0
    # The probe counts the two cut streams, not messages.
    assert run["probe"]["cut"] == 2
    assert run["probe"]["records"] == run["ledger"]["to_sps"]["received"] == 3000


def test_calls_are_late_but_not_lost_while_the_proxy_is_stopped(measure: Measure) -> None:
    with under_load(measure, sut="kamailio-tcp", threads=2, cps=200, duration_s=2.5) as made:
        workers = pids(PROXY)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        run = run_json(made.result())
    assert run["generator"]["calls_completed"] == 500
    # Only calls from the first half of the stopped second waited for more than half a second, which is late.
    assert 60 < run["generator"]["calls_late"] < 140
    assert run["ledger"]["to_sps"]["residual"] == run["ledger"]["from_sps"]["residual"] == 0
