"""The program of the simulator (hardware/simulator): building and running it."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT

HARDWARE = PROJECT_ROOT / "hardware"
SOURCES = (
    *("simulator/*.[ch]", "simulator/Makefile"),
    *("common/*.[ch]", "common/build.mk"),
)
BUILD_TIMEOUT_S = 120
RUN_TIMEOUT_S = 3600
T0_NS = 1_000_000_000
"""Instant of the schedule's beginning in a trace. SEE hardware/simulator/sim.h"""
Value = bool | int | float | str | Sequence[int] | Sequence[float]
Numbers = Mapping[str, Value]
"""Numbers of a model, by their names in hardware/simulator/model.h."""


@dataclass(frozen=True)
class CpuTimes:
    """Parts of a simulated CPU's time in ns. They add up to the time of the run."""

    idle: int
    task: int
    receive: int
    switch: int
    stall: int


@dataclass(frozen=True)
class WorkerCounts:
    """Counts of a simulated worker. `charged_ns` is the CPU time that a kernel would show."""

    messages: int
    ran_ns: int
    spun_ns: int
    switches: int
    preemptions: int
    wakeups: int
    migrations: int
    empty_receives: int
    yields: int
    charged_ns: int


@dataclass(frozen=True)
class SimulatorReport:
    """The counts of a simulated run.

    Attributes
    ----------
    t_end_ns
        Time from the beginning of the schedule until the last message left the SPS.
    arrived, received, refused, served
        Datagrams at the SPS: arrived = received + refused, and served = received.
    datagrams_sent, sent_to_uac
        Datagrams that the SPS sent to both agents, and to the UAC alone.
    k_rcv_ns, t_sip_ns
        Sums over the served messages.
    from_uac
        Datagrams from the UAC among those that arrived.
    wakeups, idle_wakeups
        Wake-ups of workers, and wake-ups to an idle CPU among them.
    selected
        Messages per socket, for deployments with several sockets.
    passed, fronts
        Messages that front ends passed on, and the counts of the front ends.
    calls_started, calls_good
        Over TCP, calls that started, and calls among them that completed and were set up in time.
    """

    version: int
    t_end_ns: int
    events: int
    arrived: int
    received: int
    refused: int
    served: int
    k_rcv_ns: int
    t_sip_ns: int
    datagrams_sent: int
    sent_to_uac: int
    wakeups: int
    idle_wakeups: int
    from_uac: int
    cpus: tuple[CpuTimes, ...]
    workers: tuple[WorkerCounts, ...]
    selected: tuple[int, ...] = ()
    passed: int = 0
    fronts: tuple[WorkerCounts, ...] = ()
    calls_started: int = 0
    calls_good: int = 0

    @property
    def charged_ns(self) -> int:
        """CPU time of all processes in ns, as a kernel would show it."""
        return sum(process.charged_ns for process in (*self.workers, *self.fronts))


@dataclass(frozen=True)
class Outputs:
    """The files of a simulated run.

    Attributes
    ----------
    trace, calls, uac
        Trace of the messages, calls, and report of the UAC.
    plan, blocks, log
        Only for a run that compares modes: the plan of the switches (hardware/simulator/plan.h) and the blocks of
        windows, which the simulator reads, and the log of the switches, which the simulator writes.
    """

    trace: Path
    calls: Path
    uac: Path
    plan: Path | None = None
    blocks: Path | None = None
    log: Path | None = None

    @property
    def given(self) -> tuple[Path, ...]:
        """The files of this run, in the order of the program's arguments."""
        return tuple(path for path in vars(self).values() if path is not None)


def program() -> Path:
    """Return the path of the simulator, and build it if needed.

    Building needs make and a C compiler, but not root.

    Raises
    ------
    StableError
        The build fails. The message has the output of make.
    """
    sources = sorted(path for pattern in SOURCES for path in HARDWARE.glob(pattern))
    content = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sipsched"
    built = cache / f"sipsim-{hashlib.sha256(content).hexdigest()[:16]}"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # several jobs may build at the same time: each job builds in its own folder, and the last result replaces the
        # others
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _run(["make", "-C", str(HARDWARE / "simulator"), f"OUT={folder}"], BUILD_TIMEOUT_S)
            Path(folder, "sipsim").replace(built)
    return built


def version() -> str:
    """Return the simulator's name and version."""
    return _run([str(program()), "version"], 10).strip()


def write_numbers(numbers: Numbers) -> str:
    """Return the numbers of a model in the form that the simulator reads."""
    return "".join(f"{name} = {_text(value)}\n" for name, value in numbers.items())


def simulate(numbers: Numbers, folder: Path, outputs: Outputs | None = None) -> SimulatorReport:
    """Run the simulator.

    Parameters
    ----------
    folder
        Folder for `model.txt` and `report.json`.
    outputs
        Further files to read or write; None if only the counts are needed.

    Raises
    ------
    StableError
        A number is missing, unknown or out of range; the simulation does not end; or the disk is full.
    """
    model, report = folder / "model.txt", folder / "report.json"
    model.write_text(write_numbers(numbers))
    files = () if outputs is None else outputs.given
    _run([str(program()), "run", *map(str, (model, report, *files))], RUN_TIMEOUT_S)
    return msgspec.json.decode(report.read_bytes(), type=SimulatorReport)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    return value if isinstance(value, str) else " ".join(map(repr, value))


def _run(argv: Sequence[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    except FileNotFoundError as error:
        raise StableError(
            f"{error.filename}: not found; the simulator needs make and gcc"
        ) from None
    except subprocess.TimeoutExpired:
        raise StableError(f"{argv[0]}: no end within {timeout_s:g} s") from None
    if done.returncode:
        raise StableError(f"{argv[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
