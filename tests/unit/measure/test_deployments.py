"""Tests of deployments in the simulator, against queueing theory and calculations by hand."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from simulated import CALLS, SERVER, SERVICE_NS, agrees, outputs, trace, waiting

from sipsched.measure.simulator import ModelNumbers, simulate
from sipsched.records.trace import Event

N = 4
EACH: ModelNumbers = {"cores": N, "workers": N, "sockets": N}
PASSING: ModelNumbers = {"choice": "holder", "fronts": 1, "streams": True, "keep_ns": 5 * 10**9}
DEPLOYMENTS: dict[str, ModelNumbers] = {
    "sockets": {"sockets": 8, "dispatch_ns": 800},
    "two workers a socket": {"sockets": 4, "instances": 2, "socket_lock_ns": 3_000},
    "partitioned": {"sockets": 8, "instances": 8, "dispatch_ns": 800},
    "front": {"sockets": 8, "instances": 8, "fronts": 1, "front_ns": 8_000},
    "several fronts": {"sockets": 8, "instances": 8, "fronts": 3, "front_ns": 30_000},
    "fronts, socket lock": {
        **{"sockets": 4, "fronts": 3, "front_ns": 30_000},
        **{"socket_lock_ns": 3_000, "transfer_ns": 8_000},
    },
    "sockets, herd": {"sockets": 2, "wake_all": True},
    "tcp": {**PASSING, "sockets": 8, "connections": 5, "front_ns": 30_000},
    "tcp, a connection a call": {**PASSING, "sockets": 8, "front_ns": 30_000},
    "tcp, kept for an instant": {**PASSING, "sockets": 8, "front_ns": 9_000, "keep_ns": 100_000},
    "listeners": {"sockets": 8, "instances": 8, "choice": "connection", "streams": True},
    "dispatcher": {"sockets": 8, "instances": 8, "streams": True, "fronts": 1, "front_ns": 800},
}


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize(("law", "scv"), [("exponential", 1.0), ("constant", 0.0)])
def test_each_socket_is_a_queue_with_one_server(
    load: float, law: str, scv: float, tmp_path: Path
) -> None:
    """Randomly split Poisson arrivals are Poisson, so the waits of M/M/1 and M/D/1 follow Pollaczek and Khinchine."""
    changes = {**EACH, "rate_cps": N * load * 1e9 / SERVICE_NS, "service_law": law}
    agrees(load / (1 - load) * (1 + scv) / 2, changes, waiting, tmp_path)


def test_a_front_end_is_one_more_queue(tmp_path: Path) -> None:
    """Set the workers' service time to 0. Messages then wait for the front end as in the queue M/D/1."""
    load, front_ns = 0.8, 100_000
    changes = {
        **{**EACH, "cores": N + 1, "instances": N, "fronts": 1, "front_ns": front_ns},
        **{"service_ns": [0.0] * 7, "rate_cps": load * 1e9 / front_ns},
    }
    agrees(load / (1 - load) / 2 + 1, changes, waiting, tmp_path)


def test_instances_without_a_lock_are_sockets(tmp_path: Path) -> None:
    result = []
    for instances in (1, 8):
        files = outputs(tmp_path)
        numbers = {**CALLS, "sockets": 8, "instances": instances, "lock_share": 0.0}
        report = simulate(numbers, tmp_path, files)
        result.append((report, *(path.read_bytes() for path in files.given)))
    assert result[0] == result[1]


def test_instances_with_one_worker_do_not_wait_for_locks(tmp_path: Path) -> None:
    spun = [
        sum(
            worker.spun_ns
            for worker in simulate(
                {**CALLS, "sockets": 8, "instances": instances}, tmp_path
            ).workers
        )
        for instances in (1, 8)
    ]
    assert spun[0] > 0
    assert spun[1] == 0


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_lock_of_a_socket_limits_the_throughput(cores: int, tmp_path: Path) -> None:
    """Offer all messages at once. On any number of cores, softirq and worker each hold the lock once per message."""
    calls, lock_ns = 2_000, 3_000
    changes = {
        **{"cores": cores, "workers": cores, "calls": calls, "rate_cps": 1e9},
        **{"constant_arrivals": True, "service_ns": [0.0] * 7, "socket_lock_ns": lock_ns},
    }
    report, records = trace({**SERVER, **changes}, tmp_path)
    assert records["t_dep"].max() - records["t_arr"].min() == 2 * calls * lock_ns
    spun_ns = sum(worker.spun_ns for worker in report.workers)
    assert spun_ns > 0
    assert sum(worker.ran_ns for worker in report.workers) == calls * lock_ns + spun_ns


ALTERNATING: ModelNumbers = SERVER | {
    **{"calls": 6, "constant_arrivals": True, "service_law": "constant"},
    **{"cores": 2, "workers": 2, "placement": False},
}
"""Parameters with a message per ms, which wakes the worker on CPU 0 and the worker on CPU 1 in turn."""


@pytest.mark.parametrize(
    ("changes", "transfer_ns"), [({}, 30_000), ({"cores": 1}, 0), ({"sockets": 2}, 0)]
)
def test_a_socket_that_changes_its_core_prolongs_the_service(
    changes: ModelNumbers, transfer_ns: int, tmp_path: Path
) -> None:
    _, records = trace({**ALTERNATING, "transfer_ns": 30_000, **changes}, tmp_path)
    served_ns = (records["t_sip_out"] - records["t_sip_in"])[np.argsort(records["t_arr"])]
    assert served_ns.tolist() == [SERVICE_NS, *[SERVICE_NS + transfer_ns] * 5]


def test_a_worker_on_another_core_waits_for_the_lock_of_the_softirq(tmp_path: Path) -> None:
    """Let CPU 0 receive. A worker on CPU 0 runs after the softirq, and a worker on CPU 1 runs at the same time."""
    changes = {"receive_cpus": 1, "receive_ns": 7_000, "socket_lock_ns": 3_000}
    report, records = trace({**ALTERNATING, **changes}, tmp_path)
    received_ns = (records["t_sip_in"] - records["t_sockq"])[np.argsort(records["t_arr"])]
    assert received_ns.tolist() == [3_000, 6_000] * 3
    assert [worker.spun_ns for worker in report.workers] == [0, 3 * 3_000]
    assert [cpu.receive for cpu in report.cpus] == [6 * (7_000 + 3_000), 0]


@pytest.mark.parametrize("rules", ["eevdf", "cfs"])
@pytest.mark.parametrize("rate_cps", [2000.0, 12_000.0])
@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_messages_and_time_add_up(
    deployment: str, rate_cps: float, rules: str, tmp_path: Path
) -> None:
    numbers = {**CALLS, "rate_cps": rate_cps, "rules": rules, **DEPLOYMENTS[deployment]}
    report, records = trace(numbers, tmp_path)
    assert report.arrived == len(records) == report.served + report.refused
    assert sum(worker.messages for worker in report.workers) == report.served
    for cpu in report.cpus:
        assert sum(dataclasses.astuple(cpu)) == report.t_end_ns
    ran_ns = sum(each.ran_ns for each in (*report.workers, *report.fronts))
    assert sum(cpu.task for cpu in report.cpus) == ran_ns
    assert sum(front.messages for front in report.fronts) == report.passed
    if numbers["streams"]:
        assert report.refused == 0
    if numbers["fronts"] and numbers["choice"] == "call":
        refused_before = report.arrived - report.passed
        assert sum(report.selected) == report.passed
        assert report.refused >= refused_before
    elif not numbers["fronts"]:
        assert sum(report.selected) == report.arrived
    # all messages of a call must arrive at the same socket
    served = records[records["event"] == Event.MESSAGE]
    if numbers["choice"] == "call":
        sockets = (served["tid"] - 1000) % numbers["sockets"]
        pairs = np.unique(np.stack([served["call_id_hash"], sockets]), axis=1)
        assert pairs.shape[1] == np.unique(served["call_id_hash"]).size


STREAMS: ModelNumbers = SERVER | {
    **PASSING,
    **{"calls": 6, "constant_arrivals": True, "service_law": "constant", "front_ns": 30_000},
    **{"cores": 3, "workers": 2, "sockets": 2},
}
"""Parameters with six messages, a service time of 100 µs per message, and 30 µs for passing a connection."""


@pytest.mark.parametrize(("connections", "passed"), [(2, 2), (0, 6)])
def test_a_connection_is_passed_to_the_worker_that_holds_fewest(
    connections: int, passed: int, tmp_path: Path
) -> None:
    """Messages arrive every 20 µs, on two connections in turn or on one connection each.

    The accepting process passes the first connection from 0 to 30 µs to worker A, and the second from 30 to 60 µs to
    worker B. A serves messages 0, 2 and 4 from 30, 130 and 230 µs on. B serves messages 1, 3 and 5 from 60, 160 and 260
    µs on. With one connection per message, the accepting process passes connections until 180 µs, each to the worker
    with fewer connections, and to A if both have equally many. Message 2 goes to A at 90 µs, 3 to B at 120 µs, 4 to A
    at 150 µs, and 5 to B at 180 µs. The two workers stay busy.
    """
    changes = {"rate_cps": 50_000.0, "connections": connections}
    report, records = trace({**STREAMS, **changes}, tmp_path)
    first = records["t_arr"].min()
    began_us = {
        int(record["t_arr"] - first) // 20_000: (
            int(record["tid"]) - 1000,
            int(record["t_sip_in"] - first) / 1000,
        )
        for record in records
    }
    assert began_us == {
        **{0: (0, 30), 2: (0, 130), 4: (0, 230)},
        **{1: (1, 60), 3: (1, 160), 5: (1, 260)},
    }
    assert report.passed == passed
    assert report.fronts[0].ran_ns == passed * 30_000


@pytest.mark.parametrize(("keep_us", "passed"), [(60, 6), (150, 2)])
def test_a_quiet_connection_goes_back_to_the_accepting_process(
    keep_us: int, passed: int, tmp_path: Path
) -> None:
    """Offer a message every 100 µs on two connections in turn, so each connection is quiet for 200 µs."""
    changes = {"rate_cps": 20_000.0, "connections": 2, "keep_ns": keep_us * 1000}
    report, records = trace({**STREAMS, **changes}, tmp_path)
    assert report.passed == passed
    waits_us = (records["t_sip_in"] - records["t_arr"]) / 1000
    assert waits_us.tolist() == [30] * 6


def test_messages_of_a_connection_stay_in_order_and_at_one_worker(tmp_path: Path) -> None:
    changes = {**DEPLOYMENTS["tcp"], "retransmissions": False, "stall_every_ns": 0}
    _, records = trace({**CALLS, **changes}, tmp_path)
    responses = records[np.isin(records["kind"], (2, 3, 6))]
    assert np.unique(responses["tid"]).size == 1
    assert np.all(np.diff(responses["t_sip_in"][np.argsort(responses["t_arr"])].astype("i8")) > 0)


def test_flows_of_several_peers_are_received_on_several_cpus(tmp_path: Path) -> None:
    busy = [
        sum(
            cpu.receive > 0
            for cpu in simulate({**CALLS, "receive_cpus": 4, "peers": peers}, tmp_path).cpus
        )
        for peers in (1, 2, 8)
    ]
    # each peer has two flows, from the UAC and from the UAS, and one CPU receives each flow
    assert busy == [2, 4, 4]
