"""Measure the cost of idle instances of a proxy: their own CPU time and memory, and the CPU time of a working instance.

A run that compares instances has idle instances beside the working one. In this benchmark, one instance serves calls on
a CPU. Beside this working instance, 0, 1 and 4 idle instances run on the same CPU, in random order within each block.
The benchmark compares the CPU time per datagram of the working instance. For the idle instances, the benchmark prints
the CPU time, the number of times that a process got a CPU, and the memory (proportional set size). The benchmark uses a
network namespace of its own. The benchmark needs root and two CPUs.
"""

import argparse
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from headroom_live import PROXY_CPU, Bench, bench, proxy_command

from sipsched.analysis.crossover import effect, percent
from sipsched.pages.numbers import in_words

FIRST_PORT = 5700
NEIGHBOURS = (0, 1, 4)
"""Numbers of idle instances. The first number is the reference."""
SETTLE_S = 1.5
"""Seconds from the start of idle instances to the measurement, in which they read their configuration."""


def tasks(parent: int) -> list[int]:
    """Return the process ids of `parent` and of its child processes."""
    listed = subprocess.run(["pgrep", "--parent", str(parent)], capture_output=True, text=True)
    return [parent, *map(int, listed.stdout.split())]


def used(pids: Sequence[int]) -> tuple[int, int]:
    """Return the total CPU time of processes in ns, and the number of times that the processes got a CPU."""
    read = [Path(f"/proc/{pid}/schedstat").read_text().split() for pid in pids]
    return sum(int(line[0]) for line in read), sum(int(line[2]) for line in read)


def memory_kib(pids: Sequence[int]) -> int:
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.findall(r"(?m)^Pss:\s+(\d+)", text)[0]) for text in texts)


def datagrams(at: Bench) -> int:
    """Return the number of datagrams that all sockets of the namespace received.

    Every call needs the same number of datagrams.
    """
    rows = Path(f"/proc/{at.holder}/net/snmp").read_text().splitlines()
    names, values = (row.split() for row in rows if row.startswith("Udp:"))
    return int(values[names.index("InDatagrams")])


def measure(at: Bench, count: int, options: argparse.Namespace) -> float:
    """Return the CPU time per datagram of the working instance in ns, beside `count` idle instances."""
    with ExitStack() as stack:
        idle = []
        for number in range(count):
            folder = at.folder / f"idle-{number}"
            folder.mkdir(exist_ok=True)
            address = f"127.0.0.1:{FIRST_PORT + number}"
            argv = proxy_command(options.sut, options.threads, folder, address)
            process = at.start(PROXY_CPU, *argv)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            idle.append(process)
        time.sleep(SETTLE_S)
        working, sleeping = tasks(at.pid), [pid for one in idle for pid in tasks(one.pid)]
        before, slept, received = used(working), used(sleeping), datagrams(at)
        time.sleep(options.seconds)
        after, woken, last = used(working), used(sleeping), datagrams(at)
        if count == max(NEIGHBOURS):
            print(
                f"{count} idle instances with {len(sleeping)} processes: "
                f"{(woken[0] - slept[0]) / 1e6 / options.seconds:.2f} ms of CPU time per second, a process got a CPU "
                f"{(woken[1] - slept[1]) / options.seconds:.0f} times per second, "
                f"{memory_kib(sleeping) / 1024:.0f} MiB",
                flush=True,
            )
    return (after[0] - before[0]) / (last - received)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--cps", type=float, default=500)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4, help="length of a measurement")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    each_s = SETTLE_S + options.seconds + 1
    with bench(options.sut, options.threads) as at:
        load_s = options.blocks * len(NEIGHBOURS) * each_s + 5
        load = at.offer("Poisson", options.cps, load_s, 1)
        time.sleep(2)
        costs = np.empty((options.blocks, len(NEIGHBOURS)))
        for block in range(options.blocks):
            for place in rng.permutation(len(NEIGHBOURS)):
                costs[block, place] = measure(at, NEIGHBOURS[place], options)
        load.terminate()
        load.wait()
    print(
        f"{options.sut} at {options.cps:g} cps: {np.median(costs[:, 0]) / 1000:.1f} µs per datagram alone"
    )
    for place, count in enumerate(NEIGHBOURS[1:], 1):
        found = effect([costs], 0, place)
        print(f"  beside {count} idle instances: {in_words(percent(found.interval), '%')}")


if __name__ == "__main__":
    main()
