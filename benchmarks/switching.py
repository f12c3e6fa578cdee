"""Measure the time to switch all tasks of a program to another mode, and the cost of sampling the counters.

The benchmark copies the conditions on the SPS of the embedded testbed. The tasks use half of the last CPU. The program
`switcher`, which changes scheduler settings, runs on the first CPU under SCHED_FIFO. For 16 and for 64 tasks,
`switcher` makes 200 switches in random order between SCHED_OTHER, SCHED_BATCH, SCHED_FIFO and SCHED_OTHER with two
slices. The benchmark prints the durations of the switches, the CPU time of a sample of the counters, and the share of
CPU time that the hypervisor stole.
"""

import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sipsched.testbed.inventory import load_testbed, native_folder

TASKS = (16, 64)
SWITCHES = 200
WINDOW_NS = 25_000_000
BUSY_S = 0.0002
PORT = 45060
MODES = (
    "other nice 0 priority 0 slice 0",
    "batch nice 0 priority 0 slice 0",
    "fifo nice 0 priority 1 slice 0",
    "other nice 0 priority 0 slice 100000",
    "other nice 0 priority 0 slice 10000000",
)


def plan(order: list[int], window_ns: int, sample_ns: int) -> str:
    return "\n".join(
        [
            *(f"mode {number} task {task}" for number, task in enumerate(MODES)),
            "first 0",
            f"sample {sample_ns}",
            *(f"window {number * window_ns} {mode}" for number, mode in enumerate(order)),
            f"end {len(order) * window_ns}\n",
        ]
    )


def work(pause_s: float) -> None:
    while True:
        until = time.monotonic() + BUSY_S
        while time.monotonic() < until:
            pass
        time.sleep(pause_s)


@contextmanager
def tasks(number: int, cpu: int) -> Iterator[list[int]]:
    """Run `number` processes that together use half of the CPU `cpu`, and yield their process ids."""
    pids = []
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            os.sched_setaffinity(0, {cpu})
            work(2 * number * BUSY_S)
        pids.append(pid)
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def switch(
    program: Path, text: str, pids: list[int], cpus: list[int]
) -> tuple[dict[str, Any], float]:
    """Run `switcher` with a plan of switches. Return the log and the CPU time of `switcher` in s."""
    with tempfile.TemporaryDirectory() as folder:
        plan_file, log_file = Path(folder, "plan.txt"), Path(folder, "log.json")
        plan_file.write_text(text)
        options = ["--fifo", "50", "--port", str(PORT), "--cpus", ",".join(map(str, cpus))]
        files = ["--plan", str(plan_file), "--log", str(log_file)]
        argv = ["taskset", "-c", str(cpus[0]), str(program), "run", *files, *options]
        process = subprocess.Popen([*argv, *map(str, pids)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"INVITE", ("127.0.0.1", PORT))
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        return json.loads(log_file.read_text()), usage.ru_utime + usage.ru_stime


def spread(values: list[int]) -> str:
    p50, p99 = np.percentile(values, (50, 99))
    return f"median {p50 / 1e3:.0f}, p99 {p99 / 1e3:.0f}, max {max(values) / 1e3:.0f} µs"


def main() -> None:
    program = Path(native_folder(load_testbed("local").workdir, "scheduler")) / "switcher"
    every = sorted(os.sched_getaffinity(0))
    cpus = [every[0], every[-1]]
    draw = random.Random(1)  # noqa: S311
    for number in TASKS:
        order = [draw.randrange(len(MODES)) for _ in range(SWITCHES + 1)]
        with tasks(number, cpus[-1]) as pids:
            log, _ = switch(program, plan(order, WINDOW_NS, 2 * WINDOW_NS), pids, cpus)
            dense = switch(program, plan([0], 2_000_000_000, 1_000_000), pids, cpus)
            sparse = switch(program, plan([0], 2_000_000_000, 1_000_000_000), pids, cpus)
        made = log["windows"][1:]
        bad = sum(bool(window["errors"] or window["unlike"]) for window in made)
        counted = log["samples"]
        elapsed_s = (counted["t_ns"][-1] - counted["t_ns"][0]) / 1e9
        stolen = counted["steal_ticks"][-1] - counted["steal_ticks"][0]
        steal = stolen / log["ticks_per_s"] / elapsed_s / len(set(cpus))
        more = len(dense[0]["samples"]["t_ns"]) - len(sparse[0]["samples"]["t_ns"])
        sample_us = (dense[1] - sparse[1]) / more * 1e6
        print(
            f"{number} tasks, {len(made)} switches (scheduler of switcher: {log['scheduler']}), "
            f"{bad} failed or had another effect: took {spread([w['done_ns'] - w['began_ns'] for w in made])}; "
            f"late by {spread([w['began_ns'] - w['asked_ns'] for w in made])}; "
            f"one sample {sample_us:.0f} µs of CPU; {steal:.1%} of the CPUs' time stolen",
            flush=True,
        )


if __name__ == "__main__":
    main()
