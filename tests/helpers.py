"""What tests of several folders share."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
