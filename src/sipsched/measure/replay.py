"""Simulations of messages that arrive at given times, such as the recorded arrivals of a real proxy."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_point import WITHOUT, plan_point
from sipsched.measure.simulator import ModelNumbers, replay
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import load_testbed

BED, SUT = "simulated", "kamailio-udp"
"""Testbed and proxy (SUT) of the model that provides parameters which a recording lacks, such as the timer tick."""
SCHEDULE_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("law", "<u4"),
        ("count", "<u8"),
        ("distinct", "<u8"),
        ("seed", "<u8"),
        ("rate_cps", "<f8"),
    ]
)
SCHEDULED_CALL = np.dtype([("offset_ns", "<u8"), ("random", "<u8"), ("instance", "<u4")])
FIRST_EEVDF = (6, 6)
"""The first version of Linux with the scheduler EEVDF."""
AGENTS: Mapping[str, Any] = {
    "answered": False,
    "retransmissions": False,
    "trying": False,
    "link_ns": 0,
    "drain_ns": 10_000_000_000,
}
"""Parameters with which each simulated call is a single message without an answer, like a recorded arrival."""
COSTS = ("interrupt_ns", "receive_ns", "wake_ns", "switch_ns", "empty_receive_ns", "loop_ns")
"""CPU costs that are 0 in a replay, because the recorded service times already contain these costs."""


@dataclass(frozen=True)
class Replay:
    """A simulated proxy that serves recorded arrivals.

    `numbers` are the parameters of the simulator that do not depend on the recording.
    """

    numbers: ModelNumbers

    @classmethod
    def on(cls, cores: int, workers: int, kernel: str) -> "Replay":
        """Create a simulated proxy with some cores and workers, and the scheduler of a kernel such as `6.1.0-25`."""
        config, bed = load_config(), load_testbed(BED)
        assert bed.simulated is not None
        version = re.search(r"(\d+)\.(\d+)", kernel)
        is_old = version is not None and tuple(map(int, version.groups())) < FIRST_EEVDF
        machine = replace(bed.simulated, kernel="5.10" if is_old else "6.18")
        point = Point(BED, SUT, "default", cores, workers)
        plan = plan_point(point, config, replace(bed, simulated=machine))
        numbers = {
            **plan.at(config.load, Arrivals(1, 1, 1)),
            **AGENTS,
            **dict.fromkeys(COSTS, 0),
            **WITHOUT["refills"],
            **WITHOUT["lock"],
        }
        return cls(numbers)

    def __call__(
        self, arrivals_ns: npt.NDArray[np.int64], numbers: Mapping[str, Any], times: bool
    ) -> tuple[int, npt.NDArray[np.int64]]:
        """Simulate messages with given arrival times, and return the refused messages and the times of served messages.

        Parameters
        ----------
        arrivals_ns
            Arrival times in ascending order; no time is negative.
        numbers
            Parameters of the simulator that override the parameters of this proxy.
        times
            Whether to return the times of the served messages.

        Returns
        -------
        tuple
            Number of refused messages, and K_rcv + T_sip of each served message in ns (empty without `times`).
        """
        with tempfile.TemporaryDirectory(prefix="sipsched-replay-") as scratch:
            here = Path(scratch)
            write_schedule(arrivals_ns, here / "schedule")
            trace = here / "trace.bin" if times else None
            changed = {
                **self.numbers,
                **numbers,
                "events_max": 1_000_000 + 1_000 * len(arrivals_ns),
            }
            report = replay(changed, here, here / "schedule", trace)
            if trace is None:
                return report.refused, np.empty(0, np.int64)
            records = np.fromfile(trace, RECORD, offset=HEADER.itemsize)
        served = records[records["event"] == Event.MESSAGE]
        return report.refused, (served["t_sip_out"] - served["t_arr"]).astype(np.int64)


def write_schedule(starts_ns: npt.NDArray[np.int64], path: Path) -> None:
    """Write start times of calls to a binary schedule file for generator and simulator (hardware/common/schedule.h)."""
    header = np.zeros(1, SCHEDULE_HEADER)
    header["magic"], header["version"], header["law"] = b"SIPSCHED", 3, 3
    header["count"] = header["distinct"] = len(starts_ns)
    calls = np.zeros(len(starts_ns), SCHEDULED_CALL)
    calls["offset_ns"] = starts_ns
    calls["random"] = np.arange(len(starts_ns))
    with path.open("wb") as file:
        header.tofile(file)
        calls.tofile(file)
