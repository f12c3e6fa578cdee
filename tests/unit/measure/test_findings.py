"""The numbers of the verdict: what would they say if nothing worked?"""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from sipsched.measure.findings import (
    arrival_numbers,
    buffer_shortfall,
    foreign_datagrams,
    load_numbers,
    probe_numbers,
    spread_numbers,
)
from sipsched.measure.generator import CallStatistics, Served
from sipsched.measure.serving import Observed
from sipsched.plan.config import load_config
from sipsched.records.run_document import ProbeReport, ProxyReport, Settings
from sipsched.records.trace import RECORD, Kind, Mode, Trace
from sipsched.validity.certificate import Certificate
from sipsched.validity.ledger import Balance, Ledger, Tally
from sipsched.validity.verdict import INVALID, RULES, SUSPECT, VALID, in_words, judge

STAT = "cpu  0 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 {idle} 0 0 0 {steal} 0 0\n"
CONFIG = load_config()
SERVED = Served(Tally(0, 0), (600, 400), 0)


def observed(created: int = 2400, completed: int = 2400, refused: int = 0, **more: Any) -> Observed:
    statistics = CallStatistics(2400, created, completed, 0, 400.0, 0, more.pop("unexpected", 0))
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


def graded(numbers: dict[str, float | None]) -> tuple[str, set[str]]:
    verdict = judge(dict.fromkeys(RULES) | numbers, CONFIG.validity)
    return verdict.grade, {finding.rule for finding in verdict.broken}


@pytest.mark.parametrize(
    ("load", "grade", "rules"),
    [
        (observed(), VALID, set()),
        # no call came back: the link to the UAS was down
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
        # an overload: as many drops as failed calls, and more
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
def test_a_load_is_graded_for_what_it_was(load: Observed, grade: str, rules: set[str]) -> None:
    assert graded(load_numbers(load, (0,))) == (grade, rules)


def test_buffer_that_was_not_granted_is_said() -> None:
    sut = CONFIG.sut("kamailio-udp")
    granted = Settings(so_rcvbuf_bytes=2 * sut.receive_buffer_bytes, sps_cpus=(1,))
    assert buffer_shortfall(granted, sut) == 0.0
    guest = Settings(so_rcvbuf_bytes=425_984, sps_cpus=(1,))
    found = buffer_shortfall(guest, sut)
    assert found == pytest.approx(1 - 425_984 / 524_288)
    assert graded({"receive_buffer_shortfall": found}) == (SUSPECT, {"receive_buffer_shortfall"})
    assert buffer_shortfall(Settings(None, (1,)), sut) is None


def test_arrivals_without_a_certificate_break_no_rule_and_bad_ones_do() -> None:
    assert graded(arrival_numbers(None)) == (VALID, set())
    bad = Certificate(
        *("calls", "exponential", 1000, 900.0, 1000.0, 0.1),
        ks_distance=0.4,
        cv=2.6,
        variance_to_mean=(1.0,) * 4,
        lateness_p50_us=1.0,
        lateness_p99_us=9000.0,
        lateness_max_us=math.pi,
    )
    rules = {"rate_error", "ks_excess", "cv_error", "lateness_p99_us"}
    assert graded(arrival_numbers(bad)) == (INVALID, rules)


def test_a_datagram_of_no_kind_of_the_calls_is_foreign() -> None:
    records = np.zeros(9, RECORD)
    records["kind"] = [*(kind for kind in Kind), Kind.OTHER, Kind.INVITE]
    assert foreign_datagrams(Trace(Mode.EXACT, records)) == 2
    assert foreign_datagrams(None) is None


@pytest.mark.parametrize(
    ("records", "lost", "skipped", "stilled", "told"),
    [
        (100, 0, 0, False, 0),
        # the kernel skipped programs, and every datagram has its record
        (100, 0, 2, False, 0),
        (97, 0, 2, False, 3),
        (97, 2, 2, False, 3),
        (100, 5, 2, False, 5),
        # a stilled probe is not to have every datagram
        (60, 1, 1, True, 1),
    ],
)
def test_what_the_probe_lost_is_told_by_the_kernels_count(
    records: int, lost: int, skipped: int, stilled: bool, told: int
) -> None:
    probe = ProbeReport("tracepoint", "", records, drops=0, lost=lost, recursion_misses=skipped)
    ledger = Ledger(Balance(100, 100, 0, 0, 0), Balance(100, 100, 0, 0, 0), 0)
    found = probe_numbers(probe, ledger, stilled)
    assert found == {"probe_lost": told, "probe_skipped": skipped}


@pytest.mark.parametrize("mode", ["exact", "tracepoint", "stream"])
def test_an_arrival_that_was_not_found_is_a_stamp_and_no_record(mode: str) -> None:
    probe = ProbeReport(mode, "", 100, drops=0, lost=0, unmatched=3, recursion_misses=1)
    ledger = Ledger(Balance(100, 100, 0, 0, 0), Balance(100, 100, 0, 0, 0), 0, "messages")
    assert probe_numbers(probe, ledger, False) == {"probe_lost": 0, "probe_skipped": 4}


def test_a_probe_that_sees_no_arrival_makes_no_valid_run() -> None:
    probe = ProbeReport("tracepoint", "", 100, drops=0, lost=0, unmatched=101, recursion_misses=0)
    ledger = Ledger(Balance(100, 100, 0, 0, 0), Balance(100, 100, 0, 0, 0), 0)
    assert graded(probe_numbers(probe, ledger, False)) == (INVALID, {"probe_skipped"})


def test_a_probe_that_counts_no_skips_breaks_no_rule_on_them() -> None:
    probe = ProbeReport("preload", "", 100, drops=0, lost=0)
    ledger = Ledger(Balance(100, 100, 0, 0, 0), Balance(100, 100, 0, 0, 0), 0)
    assert probe_numbers(probe, ledger, False) == {"probe_lost": 0, "probe_skipped": None}


def over_tcp(
    failed: int, waiting: int, residual: int = 0, created: int = 2400, segments_again: int = 0
) -> Observed:
    """A run over TCP of which calls failed, of them some that were waiting still."""
    found = observed(created=created, completed=created - failed)
    reached = Balance(14400, 14400 - residual, 0, 0, 0)
    return dataclasses.replace(
        found,
        statistics=dataclasses.replace(found.statistics, calls_waiting=waiting),
        ledger=Ledger(reached, reached, 0, "messages", segments_again),
    )


@pytest.mark.parametrize(
    ("load", "grade", "rules"),
    [
        (over_tcp(0, 0), VALID, set()),
        # an overload: calls wait, and their messages in buffers
        (over_tcp(1000, 1000, residual=7000), VALID, set()),
        (over_tcp(1000, 1000, residual=7001), INVALID, {"ledger_residual"}),
        # they were rejected, or their connection was lost
        (over_tcp(1000, 0), INVALID, {"calls_failed_unexplained"}),
        # nothing gets through
        (over_tcp(2400, 2400), INVALID, {"calls_failed_unexplained"}),
        (over_tcp(0, 0, residual=1), INVALID, {"ledger_residual"}),
        (over_tcp(0, 0, segments_again=1), SUSPECT, {"segments_again"}),
        (over_tcp(0, 0, segments_again=500), INVALID, {"segments_again"}),
    ],
)
def test_a_load_over_tcp_is_graded_by_messages(load: Observed, grade: str, rules: set[str]) -> None:
    assert graded(load_numbers(load, (0,))) == (grade, rules)


def spread(*workers: int) -> Trace:
    """Six messages a call; the tid of each call's worker. A drop has none."""
    records = np.zeros(6 * len(workers) + 1, RECORD)
    records["call_id_hash"][:-1] = np.repeat(np.arange(1, len(workers) + 1), 6)
    records["tid"][:-1] = np.repeat(workers, 6)
    records["call_id_hash"][-1] = 1
    return Trace(Mode.EXACT, records)


def test_calls_that_two_workers_had_are_split() -> None:
    sut = CONFIG.sut("kamailio-udp-partitioned")
    whole = spread(*[7, 8] * 500)
    assert spread_numbers(whole, None, sut, 2) == {"calls_split": 0, "share_excess": 0.0}
    whole.records["tid"][[0, 6]] = [8, 7]
    found = spread_numbers(whole, None, sut, 2)
    assert graded(found) == (INVALID, {"calls_split"})
    assert found["calls_split"] == 2


@pytest.mark.parametrize(
    ("workers", "threads", "excess"),
    [
        # within 4 standard errors: 4 * sqrt(999) = 126
        ([7] * 560 + [8] * 439, 2, 0.0),
        ([7] * 700 + [8] * 300, 2, (400 - 4 * math.sqrt(1000)) / 1000),
        # one worker got nothing
        ([7, 8] * 500, 3, (1000 - 4 * math.sqrt(2000)) / 1000),
    ],
)
def test_an_uneven_load_is_told_beyond_chance(
    workers: list[int], threads: int, excess: float
) -> None:
    sut = CONFIG.sut("kamailio-udp-sockets")
    found = spread_numbers(spread(*workers), None, sut, threads)
    assert found["share_excess"] == pytest.approx(excess)


def test_of_workers_that_share_a_socket_nothing_is_said() -> None:
    nothing = {"calls_split": None, "share_excess": None}
    assert spread_numbers(spread(7, 8), SERVED, CONFIG.sut("kamailio-udp"), 2) == nothing
    assert spread_numbers(None, SERVED, CONFIG.sut("kamailio-udp-sockets"), 2) == nothing
    assert graded(nothing) == (VALID, set())


@pytest.mark.parametrize("name", ["kamailio-udp-front", "kamailio-tcp-dispatcher"])
def test_instances_are_told_apart_by_the_addresses_that_the_uas_sees(name: str) -> None:
    sut = CONFIG.sut(name)
    even = dataclasses.replace(SERVED, calls=(520, 480))
    assert spread_numbers(None, even, sut, 2) == {"calls_split": 0, "share_excess": 0.0}
    found = spread_numbers(None, dataclasses.replace(SERVED, split=3), sut, 2)
    assert found == {"calls_split": 3, "share_excess": (200 - 4 * math.sqrt(1000)) / 1000}
    # an instance without a call has no address there
    alone = spread_numbers(None, dataclasses.replace(SERVED, calls=(1000,)), sut, 2)
    assert graded(alone) == (INVALID, {"share_excess"})
    none = spread_numbers(None, dataclasses.replace(SERVED, calls=()), sut, 2)
    assert none["share_excess"] is None


def test_where_the_kernel_spreads_connections_shares_are_not_judged() -> None:
    one_sided = dataclasses.replace(SERVED, calls=(1000, 0), split=1)
    found = spread_numbers(None, one_sided, CONFIG.sut("kamailio-tcp-listeners"), 2)
    assert found == {"calls_split": 1, "share_excess": None}


def test_what_is_not_accounted_for_is_said_in_messages() -> None:
    numbers = load_numbers(over_tcp(0, 0, residual=3), (0,))
    verdict = judge(dict.fromkeys(RULES) | numbers, CONFIG.validity)
    assert in_words(verdict.broken) == "3 messages were sent and are not accounted for"
