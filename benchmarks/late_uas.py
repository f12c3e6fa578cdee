"""Measure the effect of a late UAS on the mean receiving time K_rcv, in runs in which the UAS stops repeatedly.

A late UAS sends its answers in bursts, and a burst makes messages wait at the SPS. Runs with stops of several lengths
and runs without a stop alternate, so that the machine's drift affects all of them equally. The table has one row per
length of a stop. A row shows the lateness that the rule `uas_lateness_p99_us` judges, and the mean K_rcv. The benchmark
cuts each run into 20 equal parts, and computes the mean of each part. The row shows the typical part with its 95 %
interval, because a short disturbance of the machine hardly changes the typical part. The row also shows the change of
the mean K_rcv relative to the runs without a stop.
"""

import argparse
import dataclasses
import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import numpy.typing as npt

from sipsched.analysis.intervals import typical_interval
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.plan.run import Run
from sipsched.records import record
from sipsched.records.trace import Event as TraceEvent
from sipsched.records.trace import read_trace
from sipsched.testbed.inventory import load_testbed
from sipsched.validity.rules import Limits

STOPS_MS = (0, 1, 0, 3, 0, 10)
EVERY_MS = 50
PARTS = 20


def processes(pattern: str) -> list[int]:
    """Return the PIDs of the processes whose command line matches a pattern."""
    listed = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
    return list(map(int, listed.stdout.split()))


def stop_again_and_again(stop_ms: float, over: Event) -> None:
    """Stop the UAS for `stop_ms` in each period of `EVERY_MS`, from the first measured call until `over` is set."""
    while not (processes(r"^[^ ]*/sipload uac .*/uac\.schedule") or over.wait(0.05)):
        pass
    (uas,) = processes(r"^[^ ]*/sipload uas ") or (0,)
    with suppress(ProcessLookupError):
        while uas and stop_ms and not over.wait((EVERY_MS - stop_ms) / 1e3):
            os.kill(uas, signal.SIGSTOP)
            time.sleep(stop_ms / 1e3)
            os.kill(uas, signal.SIGCONT)


def waiting_us(folder: Path) -> npt.NDArray[np.float64]:
    """Return the mean K_rcv in µs of each of `PARTS` equal parts of a run, with shape (PARTS,)."""
    records = read_trace(folder / record.TRACE_FILE).records
    taken = records[(records["event"] == TraceEvent.MESSAGE) & (records["t_arr"] > 0)]
    waited = taken["t_sip_in"].astype("i8") - taken["t_arr"].astype("i8")
    return np.array([part.mean() for part in np.array_split(waited, PARTS)]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    campaign, bed = config.load_config(), load_testbed("local")
    limits = dict.fromkeys(campaign.validity, Limits(math.inf, math.inf))
    campaign = dataclasses.replace(campaign, validity=limits)
    late, waited = defaultdict(list), defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        for rep, stop_ms in enumerate(STOPS_MS * options.rounds, start=1):
            run = Run("local", "kamailio-udp", "default", 1, 4, options.cps, rep)
            over = Event()
            stopping = Thread(target=stop_again_and_again, args=(stop_ms, over))
            stopping.start()
            try:
                folder = acquisition.measure(run, campaign, bed, Path(scratch))
            finally:
                over.set()
                stopping.join()
            report = json.loads((folder / "uas.json").read_text())
            late[stop_ms].append(report["lateness_ns"]["p99"] / 1e3)
            waited[stop_ms].append(waiting_us(folder))
    print(f"{options.cps} cps, kamailio-udp, 4 threads; the UAS is stopped every {EVERY_MS} ms")
    print("stopped  runs  lateness p99  K_rcv")
    for stop_ms, parts in sorted(waited.items()):
        means = np.concatenate(parts)
        typical = typical_interval(means)
        change = typical.estimate / typical_interval(np.concatenate(waited[0])).estimate - 1
        print(
            f"{stop_ms:4d} ms  {len(parts):4d}  {np.median(late[stop_ms]):9.0f} µs  "
            f"{typical.estimate:6.1f} ({typical.low:.1f} to {typical.high:.1f}) µs, {change:+.0%}"
        )


if __name__ == "__main__":
    main()
