"""What tests of several folders share."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import synthetic

from sipsched.analysis import comparison, papers

MEASURE = """\
import sys
from pathlib import Path
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.testbed import local
from sipsched.testbed.inventory import load_testbed
raw, name, mode, cores, idle_s = sys.argv[1:]
local.IDLE_S = float(idle_s)
run = config.Run(name, "kamailio-udp", mode, int(cores), 2, 100, 1)
acquisition.measure(run, config.load_config(), load_testbed(name), Path(raw))
"""


def start_run(
    raw: Path,
    *,
    bed: str = "local",
    mode: str = "default",
    cores: int = 1,
    idle_s: float = 30.0,
) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own, to be killed in the middle."""
    arguments = map(str, (raw, bed, mode, cores, idle_s))
    return subprocess.Popen([sys.executable, "-c", MEASURE, *arguments])


def wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until something holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


def modes_plan(
    cores: Sequence[int] = (1,),
    threads: Sequence[int] = (8,),
    cps: Sequence[int] = (1800, 1900, 2000),
    reps: int = 5,
    modes: Sequence[str] = ("baseline", "enhanced"),
) -> list[synthetic.Run]:
    """Runs of a study of modes."""
    axes = itertools.product(modes, cores, threads, cps, range(1, reps + 1))
    return [
        synthetic.Run(mode=mode, cores=c, threads=t, cps=load, rep=rep)
        for mode, c, t, load, rep in axes
    ]


def modes_case(
    planned: Sequence[synthetic.Run],
    outcome: Callable[[synthetic.Run], dict[str, Any] | None] = synthetic.two_modes,
) -> comparison.Case:
    """What these runs come to, baseline against enhanced, beside what the papers print."""
    ds = synthetic.combined(planned, outcome)
    points, printed = papers.load_points(), papers.load_comparison()
    return comparison.Case(ds, points, printed, "baseline", "enhanced")
