"""Test whether virtual time in an emulated machine is accurate, on an idle host and on a busy host.

The benchmark boots the emulated machine (the guest) with a self-test. During half of the boots, the host should run no
other program. During the other half, busy loops run at idle priority, which is also the guest's priority. The benchmark
prints the results and the real time of each boot, and the difference between the mean waits of both halves. The
argument is a kernel release (default: 6.1), or the path of a bzImage on machines without a guest image.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sipsched.testbed.inventory import VirtualClock
from sipsched.testbed.virtual_clock import find_kernel, judge, self_test

BOOTS = 10
LOOPS_PER_CPU = 3
CORES = 4
CLOCK = VirtualClock(mips=2000, quantum_ns=5000, kernel_weight=1, wake_ns=0)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep the CPUs busy with `count` endless loops at idle priority until the end of the block."""
    argv = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    """Boot the guest several times, and print the results."""
    kernel = find_kernel(sys.argv[1] if len(sys.argv) > 1 else "6.1")
    waits: dict[int, list[float]] = {}
    print(f"{CORES} cores, {CLOCK}")
    for loops in (0, LOOPS_PER_CPU * (os.cpu_count() or 1)):
        with busy_loops(loops):
            for boot in range(BOOTS):
                start = time.monotonic()
                result, counters = self_test(CLOCK, CORES, kernel)
                failed = judge(result, counters)[1]
                waits.setdefault(loops, []).append(result.wait_ns)
                errors = ", ".join(
                    f"{name} {error:.2%}" for name, (error, _) in result.errors.items()
                )
                print(
                    f"{loops} busy loops, boot {boot}: {errors}; {time.monotonic() - start:.1f} s real"
                    f"{''.join(f'; FAILED: {line}' for line in failed)}",
                    flush=True,
                )
    alone, beside = (statistics.fmean(values) for values in waits.values())
    spread = max(max(values) / min(values) - 1 for values in waits.values())
    print(
        f"change of the mean wait by busy loops: {beside / alone - 1:+.2%}; spread per half: {spread:.2%}"
    )


if __name__ == "__main__":
    main()
