"""Measure how fast the simulator is for models of several sizes, and print its predictions for one core.

The speed is the number of messages per second of CPU time, in the best of three runs without a trace. The loads are
shares of the capacity that follows from the service times. The benchmark then simulates all settings of the papers, at
loads near the capacity limit, on all CPUs and without traces, as for `results/predicted`. The predictions compare the
mode `default` with other slices and policies (docs/simulator.md has the measurements). The predictions use eight seeds
of 20 s, equal arrivals and service times in each mode, and 95 % intervals of the ratios.
"""

import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from sipsched.analysis import papers, papers_predicted
from sipsched.measure.generator import Arrivals
from sipsched.measure.simulated_means import GridPredictor
from sipsched.measure.simulated_point import plan_point
from sipsched.measure.simulator import ModelNumbers, Outputs, SimulatorReport, simulate
from sipsched.plan.config import load_config
from sipsched.plan.run import Point
from sipsched.records.trace import HEADER, RECORD, Event
from sipsched.testbed.inventory import load_testbed

CONFIG = load_config()
LOAD = replace(CONFIG.load, retransmissions=False)
SHARES = (0.5, 0.8, 1.0, 1.3)
GROWTH = ((1, 8), (2, 8), (8, 16), (16, 32), (64, 128), (256, 1024), (1, 1024))
"""Sizes of the model: pairs of number of cores and number of workers."""
SEEDS = range(2, 18, 2)
SECONDS = 20
CHANGES = {
    1200: ("default+slice_ns=100000", "default+policy=batch", "default+policy=fifo"),
    1600: (
        *("default+slice_ns=10000000", "default+policy=batch"),
        *("default+policy=fifo", "default+policy=rr"),
    ),
}
STATISTICS = ("K_rcv mean", "T_sip mean", "T_sip p99", "sum mean", "sum p99", "CPU per message")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def numbers(bed: str, mode: str, cps: int, calls: int, seed: int) -> ModelNumbers:
    plan = plan_point(Point(bed, "kamailio-udp", mode, 1, 8), CONFIG, load_testbed(bed))
    return plan.at(LOAD, Arrivals(cps, calls, seed))


def speed(model: ModelNumbers) -> float:
    best = 0.0
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            before = cpu_s()
            served = simulate(model, Path(folder)).served
            best = max(best, served / (cpu_s() - before))
    return best


def show_speed(bed: str, cores: int, workers: int, shares: tuple[float, ...]) -> None:
    per_core_cps = 1e9 / (6 * 74_000)
    for share in shares:
        cps = round(cores * per_core_cps * share)
        model = {
            **numbers(bed, "default", cps, calls=20_000 * (1 + cores // 4), seed=1),
            "cores": cores,
            "cores_per_processor": min(cores, 32),
            "workers": workers,
        }
        text = f"{speed(model) / 1e6:.2f} million messages per CPU second"
        print(f"{bed}, {cores} cores, {workers} workers, load {share:.0%}: {text}", flush=True)


def show_grid() -> None:
    predictor = GridPredictor(
        CONFIG, load_testbed("simulated-papers"), "opensips-udp", papers_predicted.CALLS
    )
    cells = papers_predicted.grid()
    limits = (papers.PDR_LIMIT, papers.LOAD_STEP_CPS, papers_predicted.MOST_CPS)
    before, began = cpu_s(), time.perf_counter()
    runs = predictor.near_limit(cells, *limits, papers_predicted.GRID_REPETITIONS)
    seconds, spent = time.perf_counter() - began, cpu_s() - before
    print(
        f"the papers' grid near its knees: {len(cells)} cells and modes, {len(runs)} runs with "
        f"{papers_predicted.CALLS} calls each, and their search: {seconds:.0f} s, {spent:.0f} s of CPU time"
    )


def statistics_of(mode: str, cps: int, seed: int) -> npt.NDArray[np.float64]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = Outputs(folder / "trace", folder / "calls", folder / "uac")
        model = numbers("simulated", mode, cps, cps * SECONDS, seed)
        report: SimulatorReport = simulate(model, folder, files)
        records = np.frombuffer(files.trace.read_bytes(), RECORD, offset=HEADER.itemsize)
    records = records[records["event"] == Event.MESSAGE]
    k_rcv = (records["t_sip_in"] - records["t_arr"]).astype("f8")
    t_sip = (records["t_sip_out"] - records["t_sip_in"]).astype("f8")
    both = k_rcv + t_sip
    cpu_ns = sum(cpu.task + cpu.switch for cpu in report.cpus) / report.served
    tails = (np.percentile(t_sip, 99), both.mean(), np.percentile(both, 99))
    return np.array([k_rcv.mean(), t_sip.mean(), *tails, cpu_ns])


def predict(cps: int, modes: tuple[str, ...]) -> None:
    reference = np.array([statistics_of("default", cps, seed) for seed in SEEDS])
    microseconds = reference.mean(axis=0) / 1000
    values = zip(STATISTICS, microseconds, strict=True)
    print(f"{cps} cps, default:", ", ".join(f"{name} {value:.0f} µs" for name, value in values))
    for mode in modes:
        ratios = np.log(np.array([statistics_of(mode, cps, seed) for seed in SEEDS]) / reference)
        error = ratios.std(axis=0, ddof=1) / len(SEEDS) ** 0.5
        half = stats.t.ppf(0.975, len(SEEDS) - 1) * error
        print(f"{cps} cps, {mode}: ", end="")
        changes = zip(STATISTICS, np.expm1(ratios.mean(axis=0)), half, strict=True)
        print(", ".join(f"{name} {change:+.0%} ± {by:.0%}" for name, change, by in changes))


if __name__ == "__main__":
    for bed in ("simulated", "simulated-cfs"):
        show_speed(bed, 4, 8, SHARES)
    for cores, workers in GROWTH:
        show_speed("simulated", cores, workers, (0.8,))
    show_grid()
    for cps, modes in CHANGES.items():
        predict(cps, modes)
