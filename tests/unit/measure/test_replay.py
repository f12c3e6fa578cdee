"""Tests that the simulator serves messages that arrive at given times."""

from pathlib import Path

import numpy as np
import pytest

from sipsched.errors import StableError
from sipsched.measure.replay import Replay
from sipsched.measure.simulator import replay

SERVICE_NS = 100_000
NUMBERS = {
    "receive_buffer_bytes": 5,
    "truesize": [1] * 7,
    "deferred_release": False,
    "copy_ns": 0,
    "send_ns": 0,
    "idle_exit_ns": 0,
    "service_law": "constant",
    "service_ns": [SERVICE_NS] * 7,
    "stall_every_ns": 0,
}


def test_each_message_is_served_in_turn_and_a_full_queue_refuses() -> None:
    server = Replay.on(1, 1, "6.18.44")
    # All eight messages arrive before the worker wakes up. Five messages wait, and the queue refuses three.
    refused, times = server(np.zeros(8, np.int64), NUMBERS, True)
    assert refused == 3
    assert times.tolist() == [SERVICE_NS * (i + 1) for i in range(5)]
    apart = np.arange(10, dtype=np.int64) * 3 * SERVICE_NS
    refused, times = server(apart, NUMBERS, True)
    assert refused == 0 and set(times.tolist()) == {SERVICE_NS}
    assert server(apart, NUMBERS, False)[1].size == 0


def test_two_cores_serve_two_messages_at_once() -> None:
    _, times = Replay.on(2, 2, "5.10")(np.zeros(2, np.int64), NUMBERS, True)
    assert times.tolist() == [SERVICE_NS, SERVICE_NS]


@pytest.mark.parametrize(("kernel", "rules"), [("Linux 6.1.0-25-amd64", "cfs"), ("6.12", "eevdf")])
def test_the_kernel_decides_the_scheduler(kernel: str, rules: str) -> None:
    assert Replay.on(1, 4, kernel).numbers["rules"] == rules


def test_a_damaged_schedule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schedule").write_text("0.5\n")
    with pytest.raises(StableError, match=r"schedule.*truncated"):
        replay(Replay.on(1, 1, "6.18").numbers, tmp_path, tmp_path / "schedule")
