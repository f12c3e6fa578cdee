"""Helpers for tests of the simulator: small models, runs, and comparisons with theory."""

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from sipsched.measure.simulator import ModelNumbers, Outputs, SimulatorReport, simulate
from sipsched.records.trace import HEADER, RECORD, Event

SEEDS = range(1, 11)
SERVICE_NS = 100_000
NOTHING = dict.fromkeys(
    (
        *("link_ns", "interrupt_ns", "receive_ns", "wake_ns", "switch_ns", "idle_exit_ns"),
        *("refill_ns", "refill_doubling_ns", "refill_near_ns", "refill_far_ns", "balance_ns"),
        *("irq_time_accounting", "receive_first_cpu"),
        *("stall_every_ns", "stall_ns", "copy_ns", "send_ns", "loop_ns"),
        *("socket_lock_ns", "transfer_ns", "online", "online_per_processor", "numa"),
        *("empty_receive_ns", "receive_cpus", "ring_ns", "hold_ns", "migration_cost_ns", "nice"),
    ),
    0,
)
SERVER: ModelNumbers = NOTHING | {
    "rate_cps": 1000.0,
    "calls": 100_000,
    "seed": 1,
    "constant_arrivals": False,
    "retransmissions": False,
    "hold_exponential": False,
    "answered": False,
    "drain_ns": 10_000_000_000,
    "t1_ns": 500_000_000,
    "t2_ns": 4_000_000_000,
    "cores": 1,
    "cores_per_processor": 8,
    "receive_step": 1,
    "tick_ns": 4_000_000,
    "receive_buffer_bytes": 10**12,
    "truesize": [1] * 7,
    "queue_rule": "within",
    "deferred_release": False,
    "wake_all": False,
    "length": [0] * 7,
    "workers": 1,
    "trying": False,
    "service_law": "exponential",
    "service_ns": [SERVICE_NS] * 7,
    "service_scv": [0.0] * 7,
    "lock_share": 0.0,
    "spin_ns": 1000,
    "yield_ns": 1000,
    "rules": "eevdf",
    "policy": "other",
    "placement": True,
    "slice_ns": 1_400_000,
    "base_slice_ns": 700_000,
    "place_lag": True,
    "run_to_parity": True,
    "preempt_short": True,
    "delay_dequeue": True,
    "latency_ns": 12_000_000,
    "min_granularity_ns": 1_500_000,
    "wakeup_granularity_ns": 2_000_000,
    "nr_latency": 8,
    "events_max": 10**9,
    "setup_limit_ns": 500_000_000,
    "peers": 1,
    "sockets": 1,
    "choice": "call",
    "dispatch_ns": 0,
    "streams": False,
    "stream_ns": 0,
    "connections": 0,
    "instances": 1,
    "compared": 0,
    **dict.fromkeys(("compared_workers", "compared_cores", "compared_buffer_bytes"), [0] * 32),
    "fronts": 0,
    "front_ns": 0,
    "keep_ns": 0,
    "release": "6.1",
    "competitors": 0,
    "competitor_period_ns": [0] * 16,
    "competitor_work_ns": [0] * 16,
    "competitor_policy": ["other"] * 16,
    "competitor_nice": [0] * 16,
    "competitor_first_cpu": [0] * 16,
    "competitor_cpus": [1] * 16,
    "competitor_slice_ns": 1_400_000,
    "burst_every_ns": 0,
    "burst_ns": 0,
    "burst_weight": 1024,
    "logger_ns": 0,
    "logger_queue": 0,
    "logger_apart": False,
}
"""Parameters of a model: one worker, no cost except the service time, and calls that consist of one INVITE."""

CALLS: ModelNumbers = SERVER | {
    "rate_cps": 4000.0,
    "calls": 5_000,
    "answered": True,
    "retransmissions": True,
    "link_ns": 20_000,
    "interrupt_ns": 10_000,
    "receive_ns": 3_000,
    "wake_ns": 2_000,
    "receive_cpus": 1,
    "switch_ns": 1_500,
    "idle_exit_ns": 1_000,
    "refill_ns": 4_000,
    "refill_near_ns": 2_000,
    "refill_far_ns": 5_000,
    "balance_ns": 500,
    "copy_ns": 700,
    "send_ns": 1_200,
    "loop_ns": 3_000,
    "empty_receive_ns": 1_000,
    "ring_ns": 10_000_000,
    "hold_ns": 10_000_000,
    "drain_ns": 1_500_000_000,
    "stall_every_ns": 50_000_000,
    "stall_ns": 2_000_000,
    "receive_buffer_bytes": 131_072,
    "truesize": [1280] * 7,
    "deferred_release": True,
    "trying": True,
    "cores": 4,
    "cores_per_processor": 2,
    "workers": 8,
    "service_law": "lognormal",
    "service_ns": [0, 290_000, 50_000, 40_000, 90_000, 120_000, 50_000],
    "service_scv": [0.5] * 7,
    "lock_share": 0.1,
    "spin_ns": 2_000,
    "yield_ns": 500,
    "migration_cost_ns": 500_000,
}
"""Parameters of a model with all costs: calls of six messages, four cores on two processors, near the capacity."""


def outputs(folder: Path) -> Outputs:
    """Return the paths of the files that the simulator writes into a folder."""
    return Outputs(folder / "trace.bin", folder / "uac.calls", folder / "uac.json")


def trace(numbers: ModelNumbers, folder: Path) -> tuple[SimulatorReport, npt.NDArray[Any]]:
    """Run the simulator, and return its report and its trace."""
    files = outputs(folder)
    report = simulate(numbers, folder, files)
    return report, np.frombuffer(files.trace.read_bytes(), RECORD, offset=HEADER.itemsize)


def agrees(
    expected: float, changes: ModelNumbers, found: Callable[[npt.NDArray[Any]], float], folder: Path
) -> None:
    """Fail unless the 99 % interval of the mean over the seeds covers the theoretical value."""
    values = [found(trace({**SERVER, **changes, "seed": seed}, folder)[1]) for seed in SEEDS]
    half = stats.t.ppf(0.995, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.mean(values)
    assert abs(mean - expected) <= half, f"expected {expected:g}, found {mean:g} ± {half:g}"
    # require a narrow interval, because a wide interval would contain the theoretical value in any case
    assert half < 0.15 * expected


def waiting(records: npt.NDArray[Any]) -> float:
    """Return the mean time from arrival to service, in mean service times."""
    served = records[records["event"] == Event.MESSAGE]
    return float((served["t_sip_in"] - served["t_arr"]).mean()) / SERVICE_NS
