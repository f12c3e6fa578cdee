"""Tests of the account of the SPS's CPU time: its parts, the names of competitors, and stops of the proxy."""

from typing import Any

import numpy as np
import pytest

from sipsched.errors import StableError
from sipsched.measure.account import frozen_ns, read_account
from sipsched.measure.findings import account_numbers, causes, mean_rise_us
from sipsched.records.cpu_report import AccountReport
from sipsched.records.probe_report import ProbeReport, TracedThread
from sipsched.records.trace import RECORD, ProbeMode, Trace
from sipsched.validity.rules import RULES

SECOND = 10**9
PROBE = ProbeReport("exact", "", 5, drops=0, lost=0, threads=(TracedThread(11, "kamailio", 5),))


def cpu(number: int, stolen_ns: int = 0, **parts: int) -> dict[str, int]:
    names = ("proxy", "own", "kernel", "realtime", "fair", "idle_class", "softirq", "irq")
    result = {name: parts.get(name, 0) for name in names}
    idle = SECOND - sum(result.values())
    return {"cpu": number, "total_ns": SECOND, "stolen_ns": stolen_ns, "idle": idle, **result}


def task(comm: str, pid: int, part: str, ns: int, nice: int = 0) -> dict[str, Any]:
    numbers = {"policy": 0, "nice": nice, "ns": ns, "bursts": 3, "longest_ns": ns, "cpu": 1}
    return {"comm": comm, "pid": pid, "tgid": pid, "part": part, **numbers}


def report(*cpus: dict[str, int], **changes: Any) -> dict[str, Any]:
    tasks = [
        task("sh", 20, "fair", 300_000_000, -20),
        task("kamailio", 11, "proxy", 200_000_000),
        task("kamailio", 12, "proxy", 1_000_000),
        task("ksoftirqd/1", 14, "kernel", 5),
    ]
    result = {
        "cpus": list(cpus),
        "tasks": tasks,
        "wait": {"ns": 9, "competed_ns": 7, "pid": 11, "cpu": 1, "by": tasks[0]},
        "gaps": [],
        "stopped": {"ns": 0, "pid": 0, "traced": 0},
        "samples": {"t_ns": [], "competed_ns": []},
        "tasks_lost": 0,
        "runs": 0,
        "run_ns": 0,
    }
    return result | changes


def trace(*messages: tuple[int, int]) -> Trace:
    """Return a trace of messages, each with the times at which it was queued and received."""
    records = np.zeros(len(messages), RECORD)
    records["t_stack"], records["t_sockq"] = np.array(messages).T
    return Trace(ProbeMode.EXACT, records)


def test_the_parts_add_up_and_name_the_competitor() -> None:
    two = (
        cpu(1, proxy=201_000_000, fair=300_000_000, softirq=99_000_000),
        cpu(2, stolen_ns=100_000_000, proxy=0, irq=333_333_333, idle_class=66_666_667),
    )
    account = read_account(report(*two), PROBE, None, "report")
    parts = vars(account.parts)
    assert sum(ns for name, ns in parts.items() if name != "total") == parts["total"] == 2 * SECOND
    assert (account.parts.workers, account.parts.proxy) == (200_000_000, 1_000_000)
    assert account.parts.stolen == 100_000_000
    # three quarters of the tasks' time remain, because stolen time is subtracted from the tasks on the same CPU
    assert account.parts.irq == pytest.approx(250_000_000, abs=2)
    assert account.parts.idle_class == pytest.approx(50_000_000, abs=2)
    assert account.parts.idle == pytest.approx(1_000_000_000, abs=4)
    assert account.parts.competitor_share == pytest.approx(0.15)
    (competitor,) = account.competitors
    assert (competitor.comm, competitor.nice, competitor.pid) == ("sh", -20, 20)
    assert account.wait_by == competitor
    # without a report of the probe, as in a trial of a search, workers count as other tasks of the proxy
    without_probe = read_account(report(*two), None, None, "report")
    assert (without_probe.parts.workers, without_probe.parts.proxy) == (0, 201_000_000)


def test_competitors_of_class_idle_follow_those_that_count() -> None:
    """List competitors of class SCHED_IDLE last, because the verdict's rule on competitors does not count them."""
    tasks = [
        *(task("hog", 30 + number, "idle_class", 900 - number) for number in range(7)),
        task("sh", 20, "fair", 3),
    ]
    account = read_account(report(cpu(1), tasks=tasks), None, None, "report")
    assert [competitor.pid for competitor in account.competitors] == [20, 30, 31, 32, 33, 34]


def test_only_declared_competitors_do_not_break_a_run() -> None:
    tasks = [
        task("logger", 40, "own", 150_000_000),
        task("logger", 41, "fair", 60_000_000),
        task("sipprobe", 42, "own", 10_000_000),
    ]
    content = report(cpu(1, own=160_000_000, fair=60_000_000), tasks=tasks)
    account = read_account(content, PROBE, None, "report", {40: "logger"})
    assert [task.pid for task in account.planned] == [40]
    # The verdict must name a program with the same name that the run did not start.
    assert [task.pid for task in account.competitors] == [41]
    number = account_numbers(AccountReport("", account, 0, 0), 1)["competitor_share"]
    assert number == pytest.approx(0.06)
    assert number > RULES["competitor_share"].limits.invalid


@pytest.mark.parametrize("planned", [{40: "cron"}, {41: "logger"}, {}])
def test_a_task_is_planned_only_by_its_id_and_its_name(planned: dict[int, str]) -> None:
    tasks = [task("logger", 40, "own", 5), task("logger", 41, "fair", 5)]
    account = read_account(report(cpu(1), tasks=tasks), None, None, "report", planned)
    assert account.planned == ()
    assert [task.pid for task in account.competitors] == [41]


def test_stolen_time_never_exceeds_the_time_of_tasks() -> None:
    account = read_account(report(cpu(1, stolen_ns=10**8, fair=10**7)), PROBE, None, "report")
    parts = vars(account.parts)
    assert sum(ns for name, ns in parts.items() if name != "total") == SECOND
    assert min(parts.values()) == 0


@pytest.mark.parametrize(
    ("messages", "longest"),
    [
        # the first message that arrives during the gap waits until the end of the gap
        ([(90, 91), (130, 210), (150, 220)], 70),
        # a message waits at the beginning of the gap
        ([(90, 210), (130, 220)], 100),
        # no message arrives: an idle proxy is not frozen
        ([(90, 91), (230, 231)], 0),
        ([(90, 91)], 0),
        # a message without an arrival time is ignored
        ([(0, 210), (90, 91)], 0),
    ],
)
def test_only_the_part_of_a_gap_with_a_waiting_message_counts(
    messages: list[tuple[int, int]], longest: int
) -> None:
    assert frozen_ns([(100, 200)], trace(*messages)) == longest
    assert frozen_ns([(100, 200)], None) == 0


def test_a_stopped_task_is_frozen_without_a_trace() -> None:
    stopped = report(cpu(1), stopped={"ns": 500, "pid": 11, "traced": 2}, gaps=[[100, 200]])
    account = read_account(stopped, PROBE, None, "report")
    assert (account.frozen_ns, account.trace_stops) == (500, 2)
    result = account_numbers(AccountReport("", account, 0, 0), 1)
    assert result["trace_stops"] == 2
    assert result["frozen_us"] == pytest.approx(500**2 / 2e9 / 1e3)


def test_the_instance_of_a_stopped_task_is_named() -> None:
    def cause(instance_of: dict[int, int], **changes: Any) -> str:
        stopped = report(cpu(1), stopped={"ns": SECOND, "pid": 11, "traced": 0}, **changes)
        account = read_account(stopped, PROBE, trace((1, 3 * SECOND)), "report")
        return causes(AccountReport("", account, 0, 0), instance_of)["frozen_us"]

    name = "a process of instance 1 (proxy-1.cfg) was stopped"
    assert cause({10: 0, 11: 1}) == f"frozen for 1.000 s; {name}"
    # a run with one instance, and a longer time in which no instance could run
    assert cause({}) == "frozen for 1.000 s"
    assert cause({11: 1}, gaps=[[1, 2 * SECOND + 1]]) == "frozen for 2.000 s"


def test_without_bpf_only_affinity_and_tracers_are_known() -> None:
    result = account_numbers(AccountReport("no BTF", None, 3, 1), 1)
    assert {rule for rule, number in result.items() if number is None} == {
        "competitor_share",
        "competitor_wait_us",
        "frozen_us",
    }
    assert (result["workers_moved"], result["trace_stops"]) == (3, 1)
    assert set(result) <= set(RULES)


def test_the_rise_of_the_mean_by_a_wait() -> None:
    # a tenth of the messages arrive during the wait, and wait 0.05 s on average
    assert mean_rise_us(10**8, 10**9) == pytest.approx(0.1 * 0.05 * 1e6)


def test_a_simulated_run_has_no_competitors() -> None:
    assert set(account_numbers(None, 1).values()) == {0}


@pytest.mark.parametrize("damaged", [None, {}, {"cpus": [{}]}, report(cpu(1), wait=3)])
def test_a_damaged_report_is_an_error(damaged: Any) -> None:
    with pytest.raises(StableError, match=r"account\.json"):
        read_account(damaged, PROBE, None, "account.json")
