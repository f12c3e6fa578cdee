"""What tests of several folders share."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import cluster, namespaces

LOAD = r"^[^ ]*/sipload uac --local .*/uac\.schedule"
"""Command line of the UAC of the measured calls."""
TIMING_RULES = (
    *("rate_error", "ks_excess", "cv_error", "lateness_p99_us"),
    *("generator_cpu_share", "steal_share"),
)
"""Rules of the verdict that the other work of a machine can break."""
MEASURE = """\
import sys
from dataclasses import replace
from pathlib import Path
from sipsched import scripting
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.testbed import local
from sipsched.testbed.inventory import load_testbed
raw, sut, name, mode, cores, cps, rep, idle_s, settings, retransmissions = sys.argv[1:]
local.IDLE_S = float(idle_s)
run = config.Run(name, sut, mode, int(cores), 2, int(cps), int(rep))
scripting.end_in_order()
with scripting.one_line_errors():
    campaign = config.load_config(Path(settings))
    load = replace(campaign.load, retransmissions=retransmissions == "True")
    campaign = replace(campaign, load=load)
    acquisition.measure(run, campaign, load_testbed(name), Path(raw))
"""


def start_run(
    raw: Path,
    *,
    sut: str = "kamailio-udp",
    bed: str = "local",
    mode: str = "default",
    cores: int = 1,
    cps: int = 100,
    rep: int = 1,
    idle_s: float = 30.0,
    settings: Path = PROJECT_ROOT / "config" / "config.yaml",
    retransmissions: bool = True,
    stderr: IO[str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own, to be disturbed in the middle; it ends as the workflow's does."""
    arguments = map(str, (raw, sut, bed, mode, cores, cps, rep, idle_s, settings, retransmissions))
    return subprocess.Popen([sys.executable, "-c", MEASURE, *arguments], stderr=stderr)


def wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until something holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


def pids(pattern: str) -> list[int]:
    """Processes, no zombies, whose command line matches."""
    found = subprocess.run(
        ["pgrep", "-f", "--runstates", "D,R,S,T", pattern], capture_output=True, text=True
    )
    return [int(line) for line in found.stdout.split()]


def cgroups() -> list[Path]:
    """Control groups of ours, wherever on this machine."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    return [path for root in roots for path in root.rglob("sipsched-*") if path.is_dir()]


def leftovers() -> list[str]:
    """Everything of ours on this machine but what is on disk."""
    listing = subprocess.run(["ps", "-eo", "stat,pid,args"], capture_output=True, text=True)
    program = re.compile(
        r"([^ ]*/)?(kamailio|opensips|sipp|sipload|sipprobe|sipshard|sipdispatch|switcher|sipsched-vm) "
    )
    other = re.compile(
        r"sshd.*/run/sipsched/|/var/lib/sipsched|sipsched\.testbed\.\w+ import guard"
    )
    running = [line.split(maxsplit=2) for line in listing.stdout.splitlines()]
    shown = [
        f"{pid} {arguments}"
        for state, pid, arguments in running
        if state[0] != "Z" and (program.match(arguments) or other.search(arguments))
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    loaded = subprocess.run(["bpftool", "prog", "show"], capture_output=True, text=True)
    source = (PROJECT_ROOT / "hardware/probe/sipprobe.bpf.c").read_text()
    # the kernel keeps 15 characters of a name
    programs = {name[:15] for name in re.findall(r"BPF_PROG\((\w+)", source)} | {"sipshard"}
    return [
        *shown,
        *(str(path) for path in Path("/run/netns").glob("sipsched*")),
        *(str(path) for path in Path("/sys/class/net").glob("sipsched*")),
        *(line for line in mounts if "sipsched" in line),
        *map(str, cgroups()),
        *(line for line in loaded.stdout.splitlines() if programs & set(line.split())),
        *(str(path) for path in namespaces.STATE_ROOT.glob("*") if path.name != "kvm-works"),
        *(str(path) for path in cluster.STATE.parent.glob(cluster.STATE.name)),
    ]
