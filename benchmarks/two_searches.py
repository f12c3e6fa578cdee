"""Whether two searches of one point agree: both crossings, and what the machine did during each.

Prints of each search the crossing with its 95 % interval, its trials, its wall time, the share of the SPS's CPU time
that the hypervisor took meanwhile, and the speed index (`switcher speed`) of that CPU before and after.
How to read it: the intervals should overlap. Where they do not and the index differs, the machine changed.
It takes about three minutes; a SUT of config/config.yaml may be named.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sipsched.analysis.search import search_interval
from sipsched.analysis.statistics import Interval
from sipsched.errors import SipschedError
from sipsched.measure import crossing_search
from sipsched.pages.numbers import in_words
from sipsched.plan.config import Config, Point, load_config
from sipsched.records.crossing import read_crossing
from sipsched.testbed.inventory import Testbed, load_testbed, native_folder

SUT, MODE, CORES, THREADS = "kamailio-udp", "baseline", 1, 8
SPEED_S = 0.3
SEARCHES = 2


def steal_share(before: list[int], after: list[int]) -> float:
    """Say which part of a CPU's time was stolen between two lines of /proc/stat."""
    passed = [late - early for early, late in zip(before, after, strict=True)]
    # proc(5): user nice system idle iowait irq softirq steal; guest is in user
    return passed[7] / sum(passed[:8])


def ticks(cpu: int) -> list[int]:
    lines = Path("/proc/stat").read_text().splitlines()
    return [
        int(word) for line in lines if line.startswith(f"cpu{cpu} ") for word in line.split()[1:]
    ]


def speed(testbed: Testbed, cpu: int) -> float:
    program = native_folder(testbed.workdir, "scheduler") / "switcher"
    argv = ["taskset", "-c", str(cpu), str(program), "speed", "--seconds", str(SPEED_S)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["index"])


def search(point: Point, config: Config, testbed: Testbed) -> Interval:
    cpu = testbed.sps.cpus[0]
    with tempfile.TemporaryDirectory() as folder:
        speeds, before, started = [speed(testbed, cpu)], ticks(cpu), time.monotonic()
        found = read_crossing(crossing_search.search_crossing(point, config, testbed, Path(folder)))
        took, stolen = time.monotonic() - started, steal_share(before, ticks(cpu))
        speeds.append(speed(testbed, cpu))
    told = search_interval(found.trials, config.pdr_limit)
    trials = ", ".join(f"{trial.cps}: {100 * trial.pdr:.3g}" for trial in found.trials)
    print(
        f"  {in_words(told, 'cps')} trials, bounds {found.lower_cps} and {found.upper_cps}; {took:.0f} s, "
        f"{100 * stolen:.1f} % stolen, speed index {speeds[0]:.0f} before and {speeds[1]:.0f} after\n"
        f"    trials, cps: PDR in %: {trials}",
        flush=True,
    )
    return told


def main() -> None:
    config, testbed = load_config(), load_testbed("local")
    point = Point("local", sys.argv[1] if sys.argv[1:] else SUT, MODE, CORES, THREADS)
    print(f"{SEARCHES} searches of {point}:", flush=True)
    try:
        found = [search(point, config, testbed) for _ in range(SEARCHES)]
    except SipschedError as error:
        print(f"  not measured: {error}")
        return
    agree = max(each.low for each in found) <= min(each.high for each in found)
    print(f"  they {'agree within their intervals' if agree else 'do not agree'}")


if __name__ == "__main__":
    main()
