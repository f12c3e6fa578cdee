"""Test the totals, the probe's cost and the causes of delays that are computed from a watch of a proxy."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from watched import restart, second, workers

from sipsched.analysis.watched import (
    ASSUMED_COST,
    Budget,
    Cause,
    findings,
    percentiles_us,
    probe_cost,
    total,
)
from sipsched.records.watch import CpuShare, Second, bins_of

LONG = bins_of(np.full(200, 5e6))


def test_totals_count_messages_only_in_recorded_seconds() -> None:
    off = second(recording=False, messages={}, calls=0, waiting=[], service=[])
    sums = total([second(), off, second(drops={"socket buffer full": 3})])
    assert sums.seconds == 3
    assert sums.per_s(sums.received) == 200
    assert sums.per_s(sums.calls) == 100
    assert sums.drops == {"socket buffer full": 3}
    assert sums.share(sums.busy_s["12"]) == pytest.approx(0.4)
    assert percentiles_us(sums.waiting)["p99"] == pytest.approx(50, rel=0.01)
    assert np.isnan(percentiles_us(total([]).waiting)["p50"])


def alternating(cost: float, noise: float, cycles: int, off: int = 1) -> list[Second]:
    """Return cycles of one second with recording and `off` seconds without. Recording costs the share `cost`."""
    rng = np.random.default_rng(7)
    seconds = []
    for _ in range(cycles):
        for step in range(1 + off):
            factor = (1 + cost if step == 0 else 1) * np.exp(noise * rng.standard_normal())
            seconds.append(second(recording=step == 0, proxy_cpu_ns=round(4e8 * factor)))
    return seconds


def test_cost_is_the_ratio_of_recorded_to_other_seconds() -> None:
    cost = probe_cost(alternating(0.05, 0.01, 40, off=3))
    assert cost.low < 0.05 < cost.high
    assert cost.high - cost.low < 0.02
    assert not probe_cost([second()] * 20).known


def test_budget_records_the_share_of_time_that_the_limit_allows() -> None:
    budget = Budget(0.01)
    recorded = [budget.next([]) for _ in range(60)]
    assert sum(recorded) == 10
    assert budget.share == pytest.approx(0.01 / ASSUMED_COST)


@pytest.mark.parametrize(("cost", "share"), [(0.3, 1 / 30), (0.015, 1 / 2)])
def test_budget_follows_the_measured_cost(cost: float, share: float) -> None:
    budget = Budget(0.01)
    seconds = alternating(cost, 0.001, 10, off=5)
    for _ in range(6):
        budget.next(seconds)
    assert budget.share == pytest.approx(share, rel=0.1)


def test_budget_keeps_a_least_share_so_that_something_is_seen() -> None:
    budget = Budget(0.0001)
    assert budget.share == pytest.approx(1 / 60)


def watched_with(budget: Budget, steps: int, restarts: Collection[int]) -> list[Second]:
    """Return the seconds of a watch whose probe costs 4.5 %. The proxy is restarted in the given seconds."""
    seconds: list[Second] = []
    ahead: list[Second] = []
    recording = True
    for step in range(steps):
        ahead = restart() if step in restarts else ahead
        now, *ahead = ahead or [second(proxy_cpu_ns=418_000_000 if recording else 400_000_000)]
        seconds.append(replace(now, recording=recording))
        recording = budget.next(seconds)
    return seconds


@pytest.mark.parametrize(
    "restarts", [range(0, 200, 20), range(3, 200, 23), range(5, 200, 9), [199]]
)
def test_seconds_without_traffic_change_neither_cost_nor_sampling(
    restarts: Collection[int],
) -> None:
    steady, interrupted = Budget(0.01), Budget(0.01)
    expected = watched_with(steady, 200, ())
    seconds = watched_with(interrupted, 200, restarts)
    assert probe_cost(expected).estimate == pytest.approx(0.045)
    assert probe_cost(seconds).estimate == pytest.approx(0.045)
    assert probe_cost(seconds).high == pytest.approx(0.045)
    assert interrupted.share == steady.share == pytest.approx(1 / 5)
    assert sum(s.recording for s in seconds) == pytest.approx(40, abs=3)


def test_seconds_in_which_a_worker_is_replaced_do_not_change_the_cost() -> None:
    seconds = alternating(0.05, 0, 40, off=1)
    for number in range(3, 80, 10):
        seconds[number] = replace(seconds[number], proxy_cpu_ns=200_000_000, same_tasks=False)
    assert probe_cost(seconds).estimate == pytest.approx(0.05)


def test_a_proxy_that_is_always_down_keeps_the_assumed_sampling() -> None:
    budget = Budget(0.01)
    down, *_ = restart()
    seconds: list[Second] = []
    for _ in range(120):
        seconds.append(replace(down, recording=budget.next(seconds)))
    assert not probe_cost(seconds).known
    assert sum(s.recording for s in seconds) == 20


def the_cause(*seconds: Second) -> Cause | None:
    found, reason = findings(list(seconds))
    assert reason == ""
    assert len(found) <= 1
    return found[0].cause if found else None


def test_quiet_proxy_has_no_cause() -> None:
    assert the_cause(*[second()] * 20) is None


def test_few_data_give_a_reason_instead_of_causes() -> None:
    busy = second(workers=workers(1, 1), drops={"socket buffer full": 100})
    assert findings([busy] * 5)[0] == []
    assert "5 seconds" in findings([busy] * 5)[1]
    rare = second(messages={"OPTIONS": 1}, workers=workers(1, 1))
    assert "20 messages" in findings([rare] * 20)[1]


def test_drops_of_busy_workers_are_no_burst() -> None:
    drops = {"socket buffer full": 10}
    burst = second(drops=drops, workers=workers(0.3, 0.4), largest_queue_bytes=200_000)
    assert the_cause(*[second()] * 19, burst) is Cause.BURSTS
    overload = second(drops=drops, workers=workers(0.95, 0.99), cpu_busy=0.9)
    assert the_cause(*[second()] * 19, overload) is None


def test_causes_of_busy_seconds() -> None:
    few = second(workers=workers(0.95, 0.97), cpu_busy=0.5, waiting=LONG)
    assert the_cause(*[few] * 20) is Cause.TOO_FEW_WORKERS
    full = second(workers=workers(0.6, 0.7), cpu_busy=0.99, waiting=LONG, delayed_ns=400_000_000)
    assert the_cause(*[full] * 20) is Cause.NO_CPU_LEFT
    shared = replace(full, competitors=(CpuShare("backup", 0.8),))
    # a program of lower priority is no cause, if it uses only the rest of the CPUs and no worker waits for a CPU
    assert the_cause(*[replace(shared, delayed_ns=10_000_000)] * 20) is None
    found, _ = findings([shared] * 20)
    assert found[0].cause is Cause.COMPETITOR
    assert found[0].program == "backup"
    # a program on other CPUs, or of the class SCHED_IDLE, is no competitor
    elsewhere = replace(full, others=(CpuShare("backup", 0.8),))
    assert the_cause(*[elsewhere] * 20) is Cause.NO_CPU_LEFT
    asleep = second(workers=workers(0.1, 0.1), waiting=LONG, off_cpu_ns=18_000_000)
    assert the_cause(*[asleep] * 20) is Cause.SLEEPING_WORKERS
    # long waits without another sign have no known cause
    assert the_cause(*[second(waiting=LONG)] * 20) is None


def test_short_waits_of_a_little_used_worker_are_no_cause() -> None:
    waking = second(
        workers=workers(0.01),
        cpu_busy=1.0,
        competitors=(CpuShare("backup", 0.97),),
        proxy_cpu_ns=10_000_000,
        delayed_ns=4_000_000,
    )
    assert the_cause(*[waking] * 20) is None
    assert the_cause(*[replace(waking, waiting=LONG)] * 20) is Cause.COMPETITOR
    interrupted = replace(waking, off_cpu_ns=waking.service_ns // 5)
    assert the_cause(*[interrupted] * 20) is Cause.COMPETITOR


def test_a_worker_that_fills_its_only_cpu_needs_more_cpus() -> None:
    """Limit one worker to one of the machine's two CPUs."""
    limited = second(workers=workers(0.95), cpus=1, cpu_busy=0.98, waiting=LONG)
    assert the_cause(*[limited] * 20) is Cause.NO_CPU_LEFT
    # the other program must run on the other CPU, because the worker uses almost the whole time of its CPU
    beside = replace(limited, competitors=(CpuShare("backup", 0.9),))
    assert the_cause(*[beside] * 20) is Cause.NO_CPU_LEFT
    # on two CPUs, a second worker would help
    assert the_cause(*[replace(limited, cpus=2, cpu_busy=0.5)] * 20) is Cause.TOO_FEW_WORKERS


def test_workers_that_interrupt_each_other_are_too_many() -> None:
    interrupted = second(
        workers=workers(*[0.1] * 8), off_cpu_ns=15_000_000, delayed_ns=14_000_000, waiting=LONG
    )
    assert the_cause(*[interrupted] * 20) is Cause.TOO_MANY_WORKERS
    assert the_cause(*[replace(interrupted, workers=workers(0.2, 0.2))] * 20) is None
    backup = (CpuShare("backup", 0.5),)
    assert the_cause(*[replace(interrupted, competitors=backup)] * 20) is None
    assert the_cause(*[replace(interrupted, others=backup)] * 20) is Cause.TOO_MANY_WORKERS


def test_a_cpu_limit_explains_sleeping_and_waiting_workers() -> None:
    limited = second(throttled=10, throttled_ns=800_000_000, waiting=LONG)
    found, _ = findings([limited] * 15 + [second()] * 5)
    assert [shown.cause for shown in found] == [Cause.CPU_LIMIT]
    assert found[0].values["times"] == 150
    assert found[0].values["throttled_s"] == pytest.approx(12)
    off = {"off_cpu_ns": 18_000_000}
    asleep = replace(limited, workers=workers(0.1, 0.1), **off)
    crowded = replace(limited, workers=workers(*[0.1] * 8), delayed_ns=17_000_000, **off)
    waiting = replace(limited, cpu_busy=0.99, delayed_ns=900_000_000)
    full = replace(limited, drops={"socket buffer full": 10})
    for throttled in (asleep, crowded, waiting, full):
        assert the_cause(*[throttled] * 20) is Cause.CPU_LIMIT
        assert the_cause(*[replace(throttled, throttled=0)] * 20) is not Cause.CPU_LIMIT
    assert the_cause(*[limited] * 3, *[second()] * 17) is None


def test_one_saturated_worker_points_to_its_connection() -> None:
    hot = second(workers=workers(0.97, 0.1, 0.1, 0.0), connections=3)
    found, _ = findings([hot] * 20)
    assert found[0].cause is Cause.HOT_CONNECTION
    assert found[0].values["share"] == pytest.approx(10 / 200)
    assert the_cause(*[replace(hot, connections=0)] * 20) is None


def test_a_cause_in_few_seconds_is_not_named() -> None:
    few = second(workers=workers(0.95, 0.97), cpu_busy=0.5)
    assert the_cause(*[second()] * 17, *[few] * 3) is None
