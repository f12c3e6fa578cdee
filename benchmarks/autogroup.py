"""Measure how long a busy loop of class SCHED_IDLE keeps another program from its CPU, with and without autogroup.

The other program computes for 2 ms between pauses of 0.5 ms, on the last CPU. The benchmark prints by how much these
pauses are too long. The loop starts either while the kernel's autogroup is on or while it is off. The other program
always runs while autogroup is off. The benchmark needs root, and restores the setting of autogroup.
"""

import os
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
PAUSE_S, COMPUTES_S, PAUSES = 0.0005, 0.002, 4000
LOOP = "while :; do :; done"


def late_ms() -> list[float]:
    """Return for each pause by how many milliseconds it was too long."""
    times = []
    for _ in range(PAUSES):
        began = time.perf_counter()
        time.sleep(PAUSE_S)
        ended = time.perf_counter()
        times.append(1000 * (ended - began - PAUSE_S))
        while time.perf_counter() < ended + COMPUTES_S:
            pass
    return times


def beside_a_loop(cpu: int, autogroup: str) -> list[float]:
    """Start a loop with a setting of autogroup, and return the result of `late_ms` with autogroup off."""
    AUTOGROUP.write_text(autogroup)
    argv = ["taskset", "--cpu-list", str(cpu), "chrt", "--idle", "0", "sh", "-c", LOOP]
    loop = subprocess.Popen(argv, start_new_session=True)
    try:
        time.sleep(0.5)
        AUTOGROUP.write_text("0")
        # A program stays in the scheduler group of its start, so another process measures.
        with ProcessPoolExecutor(1, get_context("fork")) as pool:
            return pool.submit(late_ms).result()
    finally:
        loop.kill()
        loop.wait()


def main() -> None:
    before, cpu = AUTOGROUP.read_text(), max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    try:
        for autogroup, name in (("1", "on"), ("0", "off")):
            late = beside_a_loop(cpu, autogroup)
            print(
                f"loop started with autogroup {name}: {np.median(late):.2f} ms late (median), "
                f"{np.quantile(late, 0.99):.1f} ms (99th percentile)",
                flush=True,
            )
    finally:
        AUTOGROUP.write_text(before)


if __name__ == "__main__":
    main()
