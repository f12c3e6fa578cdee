"""Tests of the numbers that the rules of the verdict judge, for loads with known faults."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from sipsched.errors import StableError
from sipsched.measure.findings import (
    Evidence,
    arrival_numbers,
    buffer_shortfall,
    check_one_thread,
    failed_calls,
    foreign_datagrams,
    instances_of_calls,
    load_numbers,
    numbers,
    probe_numbers,
    silent_calls,
    spread_by_instance,
    spread_numbers,
    stream_numbers,
)
from sipsched.measure.generator import CallStatistics, Served, Starts
from sipsched.measure.observed import Observed
from sipsched.plan.config import load_config
from sipsched.plan.crossover import Design, Instance, Instances, Window
from sipsched.records.load_report import Connections, Requests
from sipsched.records.probe_report import ProbeReport
from sipsched.records.proxy_report import DispatchReport, FrontReport, ProxyReport
from sipsched.records.run_document import Settings
from sipsched.records.trace import RECORD, MessageKind, ProbeMode, Trace
from sipsched.validity.certificate import Certificate
from sipsched.validity.ledger import Balance, Ledger, Tally
from sipsched.validity.rules import RULES
from sipsched.validity.verdict import INVALID, SUSPECT, VALID, judge

STAT = "cpu  0 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 {idle} 0 0 0 {steal} 0 0\n"
CONFIG = load_config()
SERVED = Served(Tally(0, 0), (600, 400), 0, 20.0)
BAD_ARRIVALS = Certificate(
    *("calls", "exponential", 1000, 900.0, 1000.0, 0.1),
    ks_distance=0.4,
    cv=2.6,
    variance_to_mean=(1.0,) * 4,
    lateness_p50_us=1.0,
    lateness_p99_us=9000.0,
    lateness_max_us=math.pi,
)


def observed(created: int = 2400, completed: int = 2400, refused: int = 0, **more: Any) -> Observed:
    statistics = CallStatistics(
        *(2400, created, completed, 0, 400.0, 0, more.pop("unexpected", 0)),
        requests={},
        messages=Tally(0, 0),
    )
    steal = more.pop("steal", 0)
    counters = {
        "sps": {
            "before": {"/proc/stat": STAT.format(idle=1000, steal=0)},
            "after": {"/proc/stat": STAT.format(idle=1600 - steal, steal=steal)},
        }
    }
    reached = Balance(14400, 14400 - refused, refused, 0, 0)
    nothing = Observed(
        started=0.0,
        ended=6.0,
        statistics=statistics,
        counters=counters,
        ledger=Ledger(reached, Balance(14400, 14400, 0, 0, 0), 0),
        no_ports=0,
        clock_step_s=0.0,
        proxy=ProxyReport(1),
    )
    return dataclasses.replace(nothing, **more)


def graded(found: dict[str, float | None]) -> tuple[str, set[str]]:
    verdict = judge(dict.fromkeys(RULES) | found, CONFIG.validity)
    return verdict.grade, {finding.rule for finding in verdict.broken}


def evidence_of(**more: Any) -> Evidence:
    """Return the evidence of a run whose arrivals are wrong, with changes."""
    evidence = Evidence(
        observed=observed(),
        sut=CONFIG.sut("kamailio-udp"),
        proxies=[(CONFIG.sut("kamailio-udp"), 2)],
        certificate=BAD_ARRIVALS,
        requests=Requests(None, None, None),
        trace=None,
        probe=ProbeReport("off", "", 0, drops=0, lost=0),
        recording_off=False,
        windows=None,
        settings=Settings(None, (0,)),
        unlike_asked=0,
        allocation_failures=0,
        account=None,
    )
    return dataclasses.replace(evidence, **more)


def test_every_rule_has_a_number() -> None:
    evidence = evidence_of()
    assert set(numbers(evidence)) == set(RULES)
    assert judge(numbers(evidence), CONFIG.validity).grade == INVALID


@pytest.mark.parametrize(
    ("load", "grade", "rules"),
    [
        (observed(), VALID, set()),
        # no call completed, because the link to the UAS was down
        (observed(completed=0), INVALID, {"calls_failed_unexplained"}),
        # the UAS was killed two seconds into the load
        (
            observed(completed=765, no_ports=5736),
            INVALID,
            {"calls_failed_unexplained", "datagrams_without_port"},
        ),
        # the generator made no call at all
        (
            observed(created=0, completed=0),
            INVALID,
            {"calls_failed_unexplained", "calls_not_started"},
        ),
        # in an overload, drops explain the failed calls if the drops are at least as many as the failed calls
        (observed(completed=1400, refused=3000), VALID, set()),
        (observed(completed=1400, refused=990), INVALID, {"calls_failed_unexplained"}),
        (observed(completed=2399), SUSPECT, {"calls_failed_unexplained"}),
        (observed(unexpected=2), SUSPECT, {"unexpected_messages"}),
        (observed(unexpected=25), INVALID, {"unexpected_messages"}),
        (observed(no_ports=1), SUSPECT, {"datagrams_without_port"}),
        (observed(clock_step_s=0.06), SUSPECT, {"clock_step_s"}),
        (observed(clock_step_s=3600.0), INVALID, {"clock_step_s"}),
        (observed(steal=60), INVALID, {"steal_share"}),
    ],
)
def test_a_load_over_udp_is_graded(load: Observed, grade: str, rules: set[str]) -> None:
    assert graded(load_numbers(load, (0,))) == (grade, rules)


def test_a_smaller_receive_buffer_is_suspect() -> None:
    sut = CONFIG.sut("kamailio-udp")
    granted = Settings(so_rcvbuf_bytes=2 * sut.receive_buffer_bytes, sps_cpus=(1,))
    assert buffer_shortfall(granted, sut) == 0.0
    guest = Settings(so_rcvbuf_bytes=425_984, sps_cpus=(1,))
    result = buffer_shortfall(guest, sut)
    assert result == pytest.approx(1 - 425_984 / 524_288)
    assert graded({"receive_buffer_shortfall": result}) == (SUSPECT, {"receive_buffer_shortfall"})
    assert buffer_shortfall(Settings(None, (1,)), sut) is None


def test_bad_arrivals_break_four_rules() -> None:
    rules = {"rate_error", "ks_excess", "cv_error", "lateness_p99_us"}
    assert graded(arrival_numbers(BAD_ARRIVALS)) == (INVALID, rules)


def test_datagrams_of_no_call_are_counted() -> None:
    records = np.zeros(9, RECORD)
    records["kind"] = [*(kind for kind in MessageKind), MessageKind.OTHER, MessageKind.INVITE]
    assert foreign_datagrams(Trace(ProbeMode.EXACT, records)) == 2
    assert foreign_datagrams(None) is None


@pytest.mark.parametrize(
    ("probe", "recording_off", "lost", "skipped"),
    [
        ({"records": 100}, False, 0, None),
        # the kernel skipped programs, but every datagram has its record
        ({"records": 100, "recursion_misses": 2}, False, 0, 2),
        ({"records": 97, "recursion_misses": 2}, False, 3, 2),
        ({"records": 97, "lost": 2, "recursion_misses": 2}, False, 3, 2),
        ({"records": 100, "lost": 5, "recursion_misses": 2}, False, 5, 2),
        # no record is missing if the probe's recording was off for a part of the run
        ({"records": 60, "lost": 1, "recursion_misses": 1}, True, 1, 1),
        # a missing arrival counts as a missing timestamp, not as a missing record
        ({"records": 100, "unmatched": 3, "recursion_misses": 1}, False, 0, 4),
        ({"mode": "stream", "records": 100, "unmatched": 3, "recursion_misses": 1}, False, 0, 4),
        ({"mode": "preload", "records": 97}, False, 0, None),
    ],
)
def test_missing_records_show_in_the_count_of_the_kernel(
    probe: dict[str, Any], recording_off: bool, lost: int, skipped: int | None
) -> None:
    report = ProbeReport(
        **{"mode": "tracepoint", "mode_reason": "", "drops": 0, "lost": 0, **probe}
    )
    ledger = Ledger(Balance(100, 100, 0, 0, 0), Balance(100, 100, 0, 0, 0), 0)
    result = probe_numbers(report, ledger, recording_off)
    assert result == {"probe_lost": lost, "probe_skipped": skipped}


def test_a_probe_that_sees_no_arrival_makes_the_run_invalid() -> None:
    assert graded({"probe_skipped": 101}) == (INVALID, {"probe_skipped"})


def over_tcp(
    failed: int, waiting: int, residual: int = 0, created: int = 2400, segments_again: int = 0
) -> Observed:
    """Return the observation of a load over TCP in which calls failed, of which `waiting` still waited at the end."""
    result = observed(created=created, completed=created - failed)
    reached = Balance(14400, 14400 - residual, 0, 0, 0)
    return dataclasses.replace(
        result,
        statistics=dataclasses.replace(result.statistics, calls_waiting=waiting),
        ledger=Ledger(reached, reached, 0, "messages", segments_again),
    )


def with_connections(
    load: Observed, lost: int = 0, lost_by_uas: int = 0, dispatched: DispatchReport | None = None
) -> Observed:
    """Add TCP connections to an observation: eight by the UAC and four by the proxy, of which some were lost."""
    client = Connections(8 + lost, lost, lost, 0, 0, 0)
    server = Connections(4 + lost_by_uas, 0, lost_by_uas, 0, 0, 0)
    front = FrontReport("sipdispatch", (0,), 1, dispatched) if dispatched else None
    return dataclasses.replace(
        load,
        statistics=dataclasses.replace(load.statistics, connections=client),
        served=dataclasses.replace(SERVED, connections=server),
        connections_made=16 + lost,
        proxy=ProxyReport(1, front=front),
    )


@pytest.mark.parametrize(
    ("load", "grade", "rules"),
    [
        (over_tcp(0, 0), VALID, set()),
        # valid: in an overload, calls wait, and the missing messages are in buffers
        (over_tcp(1000, 1000, residual=7000), VALID, set()),
        (with_connections(over_tcp(1000, 1000, residual=7000)), VALID, set()),
        (over_tcp(1000, 1000, residual=7001), INVALID, {"ledger_residual"}),
        # invalid: calls were rejected, or the connection of calls was lost
        (over_tcp(1000, 0), INVALID, {"calls_failed_unexplained"}),
        # no call completes
        (over_tcp(2400, 2400), INVALID, {"calls_failed_unexplained"}),
        (over_tcp(0, 0, residual=1), INVALID, {"ledger_residual"}),
        (over_tcp(0, 0, segments_again=1), SUSPECT, {"segments_again"}),
        (over_tcp(0, 0, segments_again=500), INVALID, {"segments_again"}),
        # a lost connection breaks a rule even if all calls completed over another connection
        (with_connections(over_tcp(0, 0), lost=1), INVALID, {"connections_lost"}),
        # if a connection was lost, waiting calls do not explain missing messages
        (
            with_connections(over_tcp(598, 598, residual=3), lost_by_uas=2),
            INVALID,
            {"connections_lost", "calls_failed_unexplained", "ledger_residual"},
        ),
    ],
)
def test_a_load_over_tcp_is_graded(load: Observed, grade: str, rules: set[str]) -> None:
    assert graded(load_numbers(load, (0,))) == (grade, rules)


@pytest.mark.parametrize(
    ("told", "grade", "rules"),
    [
        ({"clients": 16}, VALID, set()),
        # valid: the instances opened four more connections to answer clients that had disconnected
        ({"clients": 20, "answering": 4}, VALID, set()),
        ({"clients": 20}, SUSPECT, {"foreign_connections"}),
        ({"clients": 616, "broken": 208}, INVALID, {"foreign_connections", "broken_streams"}),
        ({"clients": 16, "broken": 1}, SUSPECT, {"broken_streams"}),
    ],
)
def test_connections_of_other_clients_break_a_rule(
    told: dict[str, int], grade: str, rules: set[str]
) -> None:
    report = {"without_call_id": 0, "lost": 0, "broken": 0, "refused": 0, "stalls": 0, "unsent": 0}
    dispatched = DispatchReport((3, 3), 7, **{**report, **told})
    load = with_connections(over_tcp(0, 0), dispatched=dispatched)
    assert graded(load_numbers(load, (0,))) == (grade, rules)


def test_over_udp_connections_have_no_numbers() -> None:
    assert set(stream_numbers(observed()).values()) == {None}


def spread(*workers: int) -> Trace:
    """Return a trace with six messages per call. `workers` has the thread id of each call's worker."""
    records = np.zeros(6 * len(workers) + 1, RECORD)
    records["call_id_hash"][:-1] = np.repeat(np.arange(1, len(workers) + 1), 6)
    records["tid"][:-1] = np.repeat(workers, 6)
    records["call_id_hash"][-1] = 1
    return Trace(ProbeMode.EXACT, records)


def test_a_proxy_that_sends_in_another_thread_is_refused() -> None:
    trace = spread(7, 8)
    trace.records["kind"][:-1] = MessageKind.INVITE
    trace.records["t_sip_in"][:-1] = 1
    # no error without a completed call, because the messages can have been lost
    check_one_thread(trace, [0], "kamailio", {})
    check_one_thread(None, [2], "kamailio", {})
    with pytest.raises(StableError, match=r"that kamailio received.*udp_receiver_mode=0"):
        check_one_thread(trace, [2], "kamailio", {})
    trace.records["t_sip_out"][0] = 2
    check_one_thread(trace, [2], "kamailio", {})


def test_a_normal_instance_does_not_hide_an_instance_that_sends_in_another_thread() -> None:
    trace = spread(7, 18, 18)
    trace.records["kind"][:-1] = MessageKind.INVITE
    trace.records["t_sip_in"][:-1] = 1
    trace.records["t_sip_out"][:6] = 2
    # Thread 18 receives the messages of instance 1, and process 17 sends these messages.
    instance_of = {7: 0, 17: 1, 18: 1, 27: 2}
    check_one_thread(trace, [1, 0, 1], "kamailio", instance_of)
    message = r"saw 12 messages that kamailio in instance 1 \(proxy-1\.cfg\) received.* 2 calls"
    with pytest.raises(StableError, match=message):
        check_one_thread(trace, [1, 2, 1], "kamailio", instance_of)
    trace.records["t_sip_out"][-2] = 2
    check_one_thread(trace, [1, 2, 1], "kamailio", instance_of)


def test_calls_are_counted_by_the_instance_of_their_window() -> None:
    order = [(0, False), (1, False), (0, True)]
    windows = tuple(
        Window(0, mode, sham, 1000 * number, 1000) for number, (mode, sham) in enumerate(order)
    )
    design = Design(("default", "default+threads=2"), 1.0, 0.1, windows)
    four, two = Instance("kamailio-tcp", 4), Instance("kamailio-tcp", 2)
    compared = Instances((four, two, four), (0, 1))
    times = np.array([0, 999, 1000, 1500, 1999, 2000])

    def counted(*completed: int) -> tuple[str, int]:
        starts = Starts(times, times, times, np.array(completed, bool))
        of_call = instances_of_calls(starts, design, compared)
        assert of_call.tolist() == [0, 0, 1, 1, 1, 2]
        return failed_calls(starts, of_call), silent_calls(starts, of_call)

    assert counted(1, 1, 1, 1, 1, 1) == ("", 0)
    assert counted(1, 1, 0, 1, 0, 1) == ("failed calls: 2 in instance 1 (proxy-1.cfg)", 0)
    three = "3 in instance 1 (proxy-1.cfg), 1 in instance 2 (proxy-2.cfg)"
    assert counted(1, 0, 0, 0, 0, 0) == (f"failed calls: 1 in instance 0 (proxy.cfg), {three}", 4)


def test_an_instance_that_completes_no_call_is_no_slow_proxy() -> None:
    # All calls of one of three instances wait.
    load = over_tcp(800, 800, residual=800)
    assert graded(load_numbers(load, (0,))) == (VALID, set())
    rules = {"calls_failed_unexplained", "ledger_residual"}
    assert graded(load_numbers(load, (0,), silent=800)) == (INVALID, rules)


@pytest.mark.parametrize(
    ("accepted", "grade"), [(None, VALID), (4, VALID), (8, VALID), (9, SUSPECT), (608, INVALID)]
)
def test_a_proxy_without_dispatcher_counts_connections_of_other_clients(
    accepted: int | None, grade: str
) -> None:
    load = with_connections(over_tcp(0, 0))
    assert load.statistics.connections is not None
    assert load.statistics.connections.opened == 8
    counted = dataclasses.replace(load, connections_accepted=accepted)
    assert graded(load_numbers(counted, (0,)))[0] == grade


def test_calls_at_two_workers_are_counted() -> None:
    sut = CONFIG.sut("kamailio-udp-partitioned")
    whole = spread(*[7, 8] * 500)
    assert spread_numbers(whole, None, sut, 2) == {"calls_split": 0, "share_excess": 0.0}
    whole.records["tid"][[0, 6]] = [8, 7]
    result = spread_numbers(whole, None, sut, 2)
    assert graded(result) == (INVALID, {"calls_split"})
    assert result["calls_split"] == 2


@pytest.mark.parametrize(
    ("workers", "threads", "excess"),
    [
        # within 4 standard errors: 4 * sqrt(999) = 126
        ([7] * 560 + [8] * 439, 2, 0.0),
        ([7] * 700 + [8] * 300, 2, (400 - 4 * math.sqrt(1000)) / 1000),
        # one worker received no message
        ([7, 8] * 500, 3, (1000 - 4 * math.sqrt(2000)) / 1000),
    ],
)
def test_an_uneven_share_counts_beyond_chance(
    workers: list[int], threads: int, excess: float
) -> None:
    sut = CONFIG.sut("kamailio-udp-sockets")
    result = spread_numbers(spread(*workers), None, sut, threads)
    assert result["share_excess"] == pytest.approx(excess)


def test_each_compared_instance_has_its_own_shares() -> None:
    shared, sockets = CONFIG.sut("kamailio-udp"), CONFIG.sut("kamailio-udp-sockets")
    trace = spread(*[7, 8] * 500, *[17, 18] * 500, *[27] * 700, *[28] * 300)
    instance_of = {7: 0, 8: 0, 17: 1, 18: 1, 27: 2, 28: 2, 29: 2}
    # A call of a shared socket has messages at two workers. A call of two sockets must not.
    trace.records["tid"][[0, 6]] = [8, 7]
    evidence = evidence_of(
        trace=trace,
        observed=observed(instance_of=instance_of),
        proxies=[(shared, 2), (sockets, 2), (sockets, 2)],
    )
    excess = (400 - 4 * math.sqrt(1000)) / 1000
    assert spread_by_instance(evidence) == {"calls_split": 0, "share_excess": excess}
    trace.records["tid"][[6000, 12000]] = [18, 28]
    assert spread_by_instance(evidence)["calls_split"] == 2
    alone = [(shared, 2), (sockets, 2), (shared, 2)]
    result = spread_by_instance(dataclasses.replace(evidence, proxies=alone))
    assert result == {"calls_split": 1, "share_excess": 0.0}
    alone = [(shared, 2)] * 3
    result = spread_by_instance(dataclasses.replace(evidence, proxies=alone))
    assert result == {"calls_split": None, "share_excess": None}


def test_workers_that_share_a_socket_have_no_numbers() -> None:
    nothing = {"calls_split": None, "share_excess": None}
    assert spread_numbers(spread(7, 8), SERVED, CONFIG.sut("kamailio-udp"), 2) == nothing
    assert spread_numbers(None, SERVED, CONFIG.sut("kamailio-udp-sockets"), 2) == nothing
    assert graded(nothing) == (VALID, set())


@pytest.mark.parametrize("name", ["kamailio-udp-front", "kamailio-tcp-dispatcher"])
def test_the_uas_tells_instances_apart_by_their_addresses(name: str) -> None:
    sut = CONFIG.sut(name)
    even = dataclasses.replace(SERVED, calls=(520, 480))
    assert spread_numbers(None, even, sut, 2) == {"calls_split": 0, "share_excess": 0.0}
    result = spread_numbers(None, dataclasses.replace(SERVED, split=3), sut, 2)
    assert result == {"calls_split": 3, "share_excess": (200 - 4 * math.sqrt(1000)) / 1000}
    # the counts by address do not list an instance without a call
    alone = spread_numbers(None, dataclasses.replace(SERVED, calls=(1000,)), sut, 2)
    assert graded(alone) == (INVALID, {"share_excess"})
    none = spread_numbers(None, dataclasses.replace(SERVED, calls=()), sut, 2)
    assert none["share_excess"] is None


def test_shares_of_listeners_are_not_judged() -> None:
    one_sided = dataclasses.replace(SERVED, calls=(1000, 0), split=1)
    result = spread_numbers(None, one_sided, CONFIG.sut("kamailio-tcp-listeners"), 2)
    assert result == {"calls_split": 1, "share_excess": None}
