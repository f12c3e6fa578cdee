"""Measure the CPU time, the wake-ups and the memory of an idle instance of Kamailio or OpenSIPS.

The instances listen on the loopback interface and receive no messages. The benchmark reads the CPU time, and the number
of times that a process got a CPU, from /proc/PID/schedstat. The memory is the proportional set size, which only root
can read.
"""

import argparse
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

from sipsched.measure.proxy import find_proxy
from sipsched.plan.config import load_config
from sipsched.testbed.inventory import load_testbed

SETTLE_S = 2
FIRST_PORT = 5700


def tasks(parent: int) -> list[int]:
    """Return the process ids of `parent` and of its child processes."""
    listed = subprocess.run(["pgrep", "--parent", str(parent)], capture_output=True, text=True)
    return [parent, *map(int, listed.stdout.split())]


def used(pids: list[int]) -> tuple[int, int]:
    """Return the total CPU time of processes in ns, and the number of times that the processes got a CPU."""
    read = [Path(f"/proc/{pid}/schedstat").read_text().split() for pid in pids]
    return sum(int(line[0]) for line in read), sum(int(line[2]) for line in read)


def memory_kib(pids: list[int]) -> int:
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.findall(r"(?m)^Pss:\s+(\d+)", text)[0]) for text in texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sut", default="kamailio-udp")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    sut = load_config().sut(options.sut)
    proxy, bed = find_proxy(sut), load_testbed("local")
    bed = replace(bed, sps=replace(bed.sps, sip_address="127.0.0.1", sip_port=FIRST_PORT))
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for number in range(options.instances):
                folder = Path(scratch, str(number))
                folder.mkdir()
                config, own = folder / "proxy.cfg", PurePosixPath(folder)
                text = proxy.config_text(sut, bed, options.threads, own, instance=number)
                config.write_text(text)
                argv = proxy.command(sut, PurePosixPath(config), own, options.threads, bed.sps)
                log = (folder / "log").open("wb")
                started.append(subprocess.Popen(argv, stdout=log, stderr=log))
            time.sleep(SETTLE_S)
            groups = [tasks(process.pid) for process in started]
            before = [used(group) for group in groups]
            time.sleep(options.seconds)
            after = [used(group) for group in groups]
            for group, (ns, times), (ns_after, times_after) in zip(
                groups, before, after, strict=True
            ):
                cpu_ms = (ns_after - ns) / 1e6 / options.seconds
                print(
                    f"{options.sut}: {len(group)} processes used {cpu_ms:.3f} ms of CPU time per second, got a CPU "
                    f"{(times_after - times) / options.seconds:.0f} times per second, and have "
                    f"{memory_kib(group) / 1024:.0f} MiB"
                )
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait()


if __name__ == "__main__":
    main()
