"""Measure the additional CPU time that sipaccount needs to write the file of bursts (times when a program ran).

During one run, the benchmark starts two more processes of `sipaccount` with the options of the run's own process.
Only one of the two processes writes bursts. The two processes see the same events, so their costs can be compared. The
two processes start in alternating order, because the process that starts first runs first at each event. The kernel
measures the time of its BPF programs (kernel.bpf_stats_enabled). The measured time includes the cost of the kernel's
measurement.

    python benchmarks/account_bursts.py --cps 1000 --pairs 6
"""

import argparse
import dataclasses
import json
import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from competitors import loads
from dispatcher import programs_timed

from sipsched.analysis.intervals import mean_interval
from sipsched.measure.acquisition import measure
from sipsched.plan.config import load_config
from sipsched.plan.run import Run
from sipsched.testbed.inventory import load_testbed
from sipsched.validity.rules import RULES, Limits

COUNTED_S, START_S = 4.0, 1.5
OWN_FILES = ("--report", "--ready", "--bursts", "--sample")


@dataclass(frozen=True)
class AccountCost:
    """The cost of one sipaccount process: executions and CPU time of its BPF programs, CPU time of the process."""

    runs_per_s: float
    bpf_share: float
    user_share: float
    bursts_per_s: float
    bytes_per_s: float


def account_of_run() -> list[str]:
    """Return path and options of the run's sipaccount process, or an empty list if no such process is running."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_text().split("\0")[:-1]
        except OSError:
            continue
        if argv and argv[0].endswith("/sipaccount"):
            options = zip(argv[1::2], argv[2::2], strict=True)
            kept = [pair for pair in options if pair[0] not in OWN_FILES]
            return [argv[0], *(text for pair in kept for text in pair)]
    return []


class FurtherAccount:
    """An additional sipaccount process, which counts CPU time from its creation until `end` is called."""

    def __init__(self, argv: Sequence[str], folder: Path, cpus: Sequence[int], bursts: bool):
        self._folder, self._bursts = folder, folder / "bursts" if bursts else None
        folder.mkdir()
        files = ["--report", str(folder / "report"), "--ready", str(folder / "ready")]
        files += ["--bursts", str(self._bursts)] if self._bursts else []
        self._process = subprocess.Popen(
            [*argv, *files], preexec_fn=lambda: os.sched_setaffinity(0, cpus)
        )
        while not (folder / "ready").exists():
            assert self._process.poll() is None
            time.sleep(0.01)
        self._began, self._before = time.monotonic(), self._cpu_ns()

    def _cpu_ns(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0])

    def end(self) -> AccountCost:
        lasted, used = time.monotonic() - self._began, self._cpu_ns() - self._before
        self._process.terminate()
        self._process.wait(10)
        report = json.loads((self._folder / "report").read_text())
        text = self._bursts.read_text() if self._bursts else '{"bursts": [], "lost": 0}'
        bursts = json.loads(text)
        assert not bursts["lost"]
        return AccountCost(
            report["runs"] / lasted,
            report["run_ns"] / lasted / 1e9,
            used / lasted / 1e9,
            len(bursts["bursts"]) / lasted,
            len(text) / lasted if self._bursts else 0.0,
        )


def compare(
    pairs: int, cpus: Sequence[int], folder: Path, found: list[dict[bool, AccountCost]]
) -> None:
    """Measure the cost of sipaccount with and without its file `bursts.json.zst`, while a proxy serves calls."""
    # wait until the run has written proxy.cfg, which happens as soon as the run holds the testbed's lock
    while not any((folder / "raw").rglob("proxy.cfg")) or not loads():
        time.sleep(0.1)
    time.sleep(START_S)
    argv = account_of_run()
    with programs_timed():
        for pair in range(pairs):
            order = (True, False) if pair % 2 else (False, True)
            accounts = {
                bursts: FurtherAccount(argv, folder / f"{pair}-{bursts}", cpus, bursts)
                for bursts in order
            }
            time.sleep(COUNTED_S)
            found.append({bursts: account.end() for bursts, account in accounts.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cps", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=6)
    arguments = parser.parse_args()
    campaign, testbed = load_config(), load_testbed("local")
    duration_s = 2 * START_S + arguments.pairs * (COUNTED_S + 1.0)
    limits = dict.fromkeys(RULES, Limits(math.inf, math.inf))
    load = dataclasses.replace(campaign.load, duration_s=duration_s)
    campaign = dataclasses.replace(campaign, load=load, validity=limits)
    found: list[dict[bool, AccountCost]] = []
    with tempfile.TemporaryDirectory() as folder:
        cpus = testbed.sps.helper_cpus
        counting = threading.Thread(
            target=compare, args=(arguments.pairs, cpus, Path(folder), found), daemon=True
        )
        counting.start()
        run = Run("local", "kamailio-udp", "default", 1, 8, arguments.cps, 1)
        measure(run, campaign, testbed, Path(folder, "raw"))
        counting.join(30)
    for field in dataclasses.fields(AccountCost):
        without, using = (
            np.array([getattr(pair[bursts], field.name) for pair in found])
            for bursts in (False, True)
        )
        more = mean_interval(using - without)
        print(
            f"{field.name}: {without.mean():.4g} without bursts, {using.mean():.4g} with bursts, difference "
            f"{more.estimate:.3g} ({more.low:.3g} to {more.high:.3g})"
        )


if __name__ == "__main__":
    main()
