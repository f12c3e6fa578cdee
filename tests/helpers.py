"""Functions that tests in several folders use."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from sipsched.paths import PROJECT_ROOT
from sipsched.testbed import namespaces, virtual
from sipsched.testbed.requirements import native_sources

Measure = Callable[..., Path]
"""Type of the fixture `measure`, a function that measures a run with the given keys and returns the run's record."""
PATIENCE_S = 300.0
"""Seconds for which a test waits for the load of a run. On a slow machine, an emulated guest needs over a minute."""
LOAD = r"^[^ ]*/sipload uac --local .*/uac\.schedule"
"""Regular expression for the command line of the UAC during the load."""
MEASURE = """\
import sys
from dataclasses import replace
from pathlib import Path
from sipsched import scripting
from sipsched.measure import acquisition
from sipsched.plan import config
from sipsched.plan.run import Run
from sipsched.testbed import local
from sipsched.testbed.inventory import load_testbed
raw, sut, name, mode, cores, cps, rep, idle_s, settings, retransmissions = sys.argv[1:]
local.IDLE_S = float(idle_s)
run = Run(name, sut, mode, int(cores), 2, int(cps), int(rep))
scripting.end_in_order()
with scripting.one_line_errors():
    campaign = config.load_config(Path(settings))
    load = replace(campaign.load, retransmissions=retransmissions == "True")
    campaign = replace(campaign, load=load)
    acquisition.measure(run, campaign, load_testbed(name), Path(raw))
"""


def build_native(part: str, folder: Path, *targets: str, cflags: str = "-O2 -g") -> Path:
    """Copy a folder of hardware/ to `folder`, build its programs as provisioning does, and return the copy's path."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    for name in ("common", part):
        (folder / name).mkdir()
        for source in native_sources(name):
            shutil.copy(source, folder / name)
    argv = ["make", "--silent", "-C", str(folder / part), *targets]
    subprocess.run(argv, check=True, env={**os.environ, "CFLAGS": cflags})
    return folder / part


def copy_project(folder: Path) -> None:
    """Copy the project without generated files into a folder. Programs in the copy use the installed library."""
    for name in ("Snakefile", "config", "hardware", "workflow", "profiles", "notebooks"):
        source = PROJECT_ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)


def change_config(project: Path, change: Callable[[Any], Any]) -> Path:
    """Change the configuration of a project by a function, and return the path of the configuration."""
    path = project / "config" / "config.yaml"
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))
    return path


def change_study(project: Path, **keys: object) -> Path:
    """Change keys of the study `load_sweep` in a project's configuration, and return the configuration's path."""
    return change_config(project, lambda document: document["studies"]["load_sweep"].update(keys))


def snakemake(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a project, and wait for its end."""
    return python(project, "-m", "snakemake", *arguments)


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, and wait for its end."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, capture_output=True, text=True, check=False
    )


# The function has eleven parameters, because each test sets only the few that it needs.
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
    """Start a run in another process, for tests that disturb the run. Signals end the run as in the workflow."""
    arguments = map(str, (raw, sut, bed, mode, cores, cps, rep, idle_s, settings, retransmissions))
    return subprocess.Popen([sys.executable, "-c", MEASURE, *arguments], stderr=stderr)


def values_of(argv: Sequence[str], option: str) -> list[str]:
    """Return the argument after each occurrence of an option on a command line."""
    return [value for name, value in itertools.pairwise(argv) if name == option]


def wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until the condition holds, and fail after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


def wait_for_load(process: subprocess.Popen[Any]) -> None:
    """Wait until the load of a run begins. Fail if the process that measures the run ends before."""
    wait_for(lambda: bool(pids(LOAD)) or process.poll() is not None, PATIENCE_S)
    assert process.poll() is None


@contextmanager
def under_load(measure: Measure, **run: Any) -> Iterator["Future[Path]"]:
    """Measure a run in a thread. The `with` block begins half a second after the start of the load."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(measure, **run)
        wait_for(lambda: bool(pids(LOAD)) or future.done(), PATIENCE_S)
        time.sleep(0.5)
        yield future


@contextmanager
def squatter(port: int = 5060, *, over_tcp: bool = False) -> Iterator[None]:
    """Occupy a port of the proxy on the SPS with another program, until the end of the block."""
    kind, listen = ("STREAM", "s.listen()") if over_tcp else ("DGRAM", "pass")
    code = (
        f"import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_{kind});"
        f"s.bind(('198.18.0.1', {port})); {listen}; print(flush=True); sys.stdin.read()"
    )
    command = ["ip", "netns", "exec", "sipsched-sps", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the port is in use"
        try:
            yield
        finally:
            process.kill()


def run_json(record: Path) -> dict[str, Any]:
    """Return the content of a record's run.json."""
    document: dict[str, Any] = json.loads((record / "run.json").read_text())
    return document


def findings(run: dict[str, Any]) -> dict[str, Any]:
    """Return the value that each rule of the verdict judged, by rule."""
    return {finding["rule"]: finding["value"] for finding in run["verdict"]["findings"]}


def pids(pattern: str) -> list[int]:
    """Return the ids of processes (not zombies) whose command line matches."""
    done = subprocess.run(
        ["pgrep", "-f", "--runstates", "D,R,S,T", pattern], capture_output=True, text=True
    )
    return [int(line) for line in done.stdout.split()]


def cgroups() -> list[Path]:
    """Return all control groups of sipsched on this machine."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    result = []
    for root in roots:
        # Use os.walk instead of rglob, because rglob fails when a group vanishes meanwhile.
        for folder, names, _ in os.walk(root):
            result += [Path(folder, name) for name in names if name.startswith("sipsched-")]
    return result


def leftovers() -> list[str]:
    """Return all processes, namespaces, links, mounts, groups and BPF programs of sipsched on this machine."""
    listing = subprocess.run(["ps", "-eo", "stat,pid,args"], capture_output=True, text=True)
    program = re.compile(
        r"([^ ]*/)?(kamailio|opensips|sipload|sipprobe|sipshard|sipdispatch|switcher|sipsched-v\w+) "
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
    # Shorten the names, because the kernel stores only 15 characters of a program's name.
    programs = {name[:15] for name in re.findall(r"BPF_PROG\((\w+)", source)} | {"sipshard"}
    return [
        *shown,
        *(str(path) for path in Path("/run/netns").glob("sipsched*")),
        *(str(path) for path in Path("/sys/class/net").glob("sipsched*")),
        *(line for line in mounts if "sipsched" in line),
        *map(str, cgroups()),
        *(line for line in loaded.stdout.splitlines() if programs & set(line.split())),
        *(str(path) for path in namespaces.STATE_ROOT.glob("*") if path.name != "kvm-works"),
        *map(str, virtual.ROOT.glob("*")),
    ]
