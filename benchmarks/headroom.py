"""Test how often intervals of `sipsched.analysis.headroom` contain the true capacity and the true message times.

The benchmark first predicts the capacity of simulated proxies, whose true capacity is known. The proxies differ in
workers, cores, service times, stalls and load. The calls follow a Poisson process, come in bursts, or follow a daily
curve. A prediction uses only the messages of 20 s at 30 to 60 % of the capacity. The benchmark then predicts from
recorded runs of a real proxy, if the records still have every single message. The benchmark compares these predictions
with the capacity from all searches and runs of the same campaign. The option `--raw` names further campaigns. The
results are in docs/methodology/headroom.md. The benchmark measures nothing, prints the same numbers each time, and
takes about ten minutes of CPU time.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from one_capacity import estimate, half_width, observe_records

from sipsched.analysis.headroom import FACTORS, Headroom, Server, headroom
from sipsched.measure.generator import Arrivals
from sipsched.measure.replay import Replay, write_schedule
from sipsched.measure.simulated_point import plan_point
from sipsched.measure.simulator import SimulatorReport, replay
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import load_config
from sipsched.plan.crossover import is_comparison
from sipsched.plan.run import Point
from sipsched.records.messages import assemble, columns_of, messages_from_record
from sipsched.records.record import TRACE_FILE, read_record
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import load_testbed

MACHINES, FIRST_SEED = 21, 200
SECONDS, TRUTH_SECONDS, TRUTH_SEEDS = 20.0, 30.0, 2
LIMIT = 0.01
STEPS = 8
LAWS = ("Poisson", "bursts", "daily curve")
KERNEL = "6.18"
RECORDED = PROJECT_ROOT / "recorded" / "raw"
LOWEST, HIGHEST = 0.25, 0.65
"""Smallest and largest ratio of load to measured capacity at which the benchmark predicts from a run."""

Values = npt.NDArray[np.float64]
Result = tuple[bool | None, float, list[bool]]
"""Whether the capacity's interval contains the true capacity (None without a prediction), the half-width of this
interval, and whether the interval of each predicted time contains the true time."""


def starts_s(
    law: str, cps: float, seconds: float, rng: np.random.Generator, day_s: float | None = None
) -> Values:
    """Sample start times of calls in s. In bursts, the call rate triples for 0.2 s, on average once per second.

    The daily curve repeats after `day_s` seconds. Without this number, the whole sample is one day.
    """
    grid = np.linspace(0.0, seconds, 20_001)
    rate = np.ones_like(grid)
    if law == "bursts":
        for begin in np.cumsum(rng.exponential(1.0, int(3 * seconds) + 10)):
            rate[(grid >= begin) & (grid < begin + 0.2)] = 3.0
    elif law == "daily curve":
        rate += 0.4 * np.sin(2 * np.pi * grid / (day_s or seconds))
    passed = np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid))))
    passed *= cps * seconds / passed[-1]
    events = np.cumsum(rng.exponential(1.0, int(1.2 * cps * seconds) + 100))
    return np.interp(events[events < passed[-1]], passed, grid)


@dataclass(frozen=True)
class SimulatedProxy:
    """A simulated proxy, and the law by which its calls arrive."""

    law: str
    cores: int
    workers: int
    numbers: Mapping[str, Any]

    @classmethod
    def sampled(cls, seed: int) -> "SimulatedProxy":
        rng = np.random.default_rng((1, seed))
        cores = 2 if seed % 6 == 5 else 1
        workers = int(rng.choice([4, 8, 16]))
        config = load_config()
        point = Point("simulated", "kamailio-udp", "default", cores, workers)
        plan = plan_point(point, config, load_testbed("simulated"))
        numbers = dict(plan.at(config.load, Arrivals(1, 1, 1)))
        slower = rng.uniform(0.5, 2.0)
        numbers["service_ns"] = [slower * value for value in numbers["service_ns"]]
        numbers["service_scv"] = [float(rng.choice([0.02, 0.3, 1.0]))] * 7
        numbers["refill_ns"] = int(rng.uniform(0, 10_000))
        every_ms, length_ms = [(0, 0), (3, 0.03), (20, 1.0), (100, 4.0)][int(rng.integers(4))]
        numbers["stall_every_ns"] = int(every_ms * 1e6)
        numbers["stall_ns"] = int(length_ms * 1e6)
        numbers["receive_buffer_bytes"] = int(rng.choice([212_992, 524_288, 2_097_152]))
        return cls(LAWS[seed % 3], cores, workers, numbers)

    def play(
        self, cps: float, seconds: float, seed: int, folder: Path, trace: Path | None
    ) -> SimulatorReport:
        """Simulate calls that start by the proxy's law of arrivals, and return the simulator's report."""
        starts = starts_s(self.law, cps, seconds, np.random.default_rng((2, seed)))
        write_schedule((starts * 1e9).astype(np.int64), folder / "schedule")
        numbers = {**self.numbers, "seed": seed, "events_max": 10**9}
        return replay(numbers, folder, folder / "schedule", trace)

    def observe(self, cps: float, seconds: float, seed: int) -> npt.NDArray[Any]:
        """Simulate calls, and return the trace with one record per message or drop."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.bin"
            self.play(cps, seconds, seed, Path(folder), trace)
            return np.fromfile(trace, RECORD, offset=HEADER.itemsize)

    def dropped(self, cps: float) -> float:
        """Return the share of dropped messages at a load."""
        with tempfile.TemporaryDirectory() as folder:
            reports = [
                self.play(cps, TRUTH_SECONDS, 100 + seed, Path(folder), None)
                for seed in range(TRUTH_SEEDS)
            ]
        return sum(report.refused for report in reports) / sum(report.arrived for report in reports)

    def capacity_cps(self) -> float:
        """Search for the load at which the proxy drops 1 % of its messages."""
        per_message = float(np.mean(self.numbers["service_ns"][1:]))
        low, high = (
            0.2 * self.cores * 1e9 / 6 / per_message,
            1.2 * self.cores * 1e9 / 6 / per_message,
        )
        for _ in range(STEPS):
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if self.dropped(middle) > LIMIT else (middle, high)
        return float(np.sqrt(low * high))

    def p99_us(self, cps: float) -> float:
        times = []
        for seed in range(TRUTH_SEEDS):
            records = self.observe(cps, TRUTH_SECONDS, 100 + seed)
            served = records[records["event"] == Event.MESSAGE]
            times.append((served["t_sip_out"] - served["t_arr"]).astype(np.float64))
        return float(np.quantile(np.concatenate(times), 0.99)) / 1e3


def dataset(records: npt.NDArray[Any], machine: SimulatedProxy) -> xr.Dataset:
    """Return the messages of a simulated recording in the format of `messages.nc`."""
    attrs = {
        "cores": machine.cores,
        "threads": machine.workers,
        "receive_buffer_bytes": machine.numbers["receive_buffer_bytes"],
        "transport": "udp",
    }
    columns, drops, tids = columns_of(records)
    return assemble(columns, drops, tids, {}, attrs)


def simulated(seed: int) -> Result:
    """Predict the capacity and the times of one simulated proxy, and print both with their true values."""
    machine = SimulatedProxy.sampled(seed)
    capacity = machine.capacity_cps()
    share = float(np.random.default_rng((3, seed)).uniform(0.3, 0.6))
    cps = share * capacity
    ds = dataset(machine.observe(cps, SECONDS, 1000 + seed), machine)
    found = headroom(ds, Server.of(ds), Replay.on(machine.cores, machine.workers, KERNEL))
    what = (
        f"{seed:2d} {machine.law:11} {machine.cores} cores {machine.workers:2d} workers, "
        f"{cps:5.0f} cps = {share:.0%}: true {1 / share:.2f}"
    )
    if found.growth is None:
        print(f"{what}, no prediction: {found.lack}", flush=True)
        return None, np.nan, []
    held, text = _judge(found, 1 / share)
    times = []
    for at in found.times:
        true = machine.p99_us(at.factor * cps)
        inside = at.p99_us.low <= true <= at.p99_us.high
        times.append(inside)
        text += (
            f"; p99 at {at.factor:g}: true {true:.0f}, {at.p99_us.estimate:.0f} "
            f"({at.p99_us.low:.0f} to {at.p99_us.high:.0f}) {'yes' if inside else 'NO'}"
        )
    if not found.times:
        text += (
            f"; p99 today {found.p99_us:.0f}, replayed {found.replayed_p99_us:.0f}: not predicted"
        )
    print(f"{what}, {text}", flush=True)
    return held, found.half_width, times


def measured(raw: Path) -> Iterator[Result]:
    """Predict the capacity from the messages of each recorded run, and print prediction and measured capacity."""
    capacities = {system: estimate(of) for system, of in observe_records(raw).items()}
    for path in sorted(raw.rglob(TRACE_FILE)):
        document = read_record(path.parent)
        run = document.run
        capacity = capacities.get((run.sut, run.mode, run.cores, run.threads))
        if capacity is None or ".failed-" in str(path) or is_comparison(run.mode):
            continue
        true = capacity.estimate_cps / run.cps
        if not LOWEST <= 1 / true <= HIGHEST:
            continue
        ds = messages_from_record(path.parent)
        server = Server.of(ds, receive_buffer_bytes=document.settings.so_rcvbuf_bytes)
        found = headroom(ds, server, Replay.on(run.cores, run.threads, ds.attrs["kernel"]))
        what = (
            f"{run}: capacity {capacity.estimate_cps:.0f} cps ({capacity.low_cps:.0f} to "
            f"{capacity.high_cps:.0f}, half-width {half_width(capacity):.0%}): true {true:.2f}"
        )
        if found.growth is None:
            print(f"{what}, no prediction: {found.lack}", flush=True)
            yield None, np.nan, []
            continue
        held, text = _judge(found, true)
        print(f"{what}, {text}", flush=True)
        yield held, found.half_width, []


def _judge(found: Headroom, true: float) -> tuple[bool, str]:
    assert found.growth is not None and found.slope is not None
    growth = found.growth
    held = growth.low <= true <= growth.high
    return held, (
        f"predicted {growth.estimate:.2f} ({growth.low:.2f} to {growth.high:.2f}) "
        f"{'yes' if held else 'NO'}, half-width {found.half_width:.0%}, busy {found.busy:.0%}, "
        f"slope {found.slope.estimate:.2f}"
    )


def show(name: str, results: Sequence[Result]) -> None:
    """Print how many predicted intervals contain the true capacity and the true 99th percentile."""
    said = [(held, width) for held, width, _ in results if held is not None]
    if not said:
        print(f"{name}: no prediction")
        return
    times = [held for _, _, several in results for held in several]
    print(
        f"{name}: {sum(held for held, _ in said)} of {len(said)} intervals contain the capacity, "
        f"half-width {np.median([w for _, w in said]):.0%} of the prediction (median), "
        f"{max(w for _, w in said):.0%} (largest); {len(results) - len(said)} without a prediction; "
        f"{sum(times)} of {len(times)} intervals contain the p99 at {FACTORS[0]:g} and {FACTORS[1]:g} times the load"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=MACHINES)
    parser.add_argument("--raw", type=Path, nargs="*", default=[RECORDED])
    asked = parser.parse_args()
    if asked.machines:
        seeds = range(FIRST_SEED, FIRST_SEED + asked.machines)
        show("simulated", [simulated(seed) for seed in seeds])
    show("measured", [result for raw in asked.raw for result in measured(raw)])


if __name__ == "__main__":
    main()
