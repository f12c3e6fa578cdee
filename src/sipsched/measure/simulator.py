"""The simulator (hardware/simulator): built where it is needed, and run."""

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
    *("simulator/*.[ch]", "simulator/Makefile", "generator/schedule.[ch]", "generator/calls.h"),
    *("scheduler/sample.[ch]", "probe/trace.h"),
)
BUILD_TIMEOUT_S = 120
RUN_TIMEOUT_S = 3600
T0_NS = 1_000_000_000
"""Of the instants in a trace. SEE hardware/simulator/sim.h"""
Value = bool | int | float | str | Sequence[int] | Sequence[float]
Numbers = Mapping[str, Value]
"""What hardware/simulator/model.h names, by these names."""


@dataclass(frozen=True)
class CpuTimes:
    """What the time of a simulated CPU went to, in ns; the sum is the run's."""

    idle: int
    task: int
    receive: int
    switch: int
    stall: int


@dataclass(frozen=True)
class WorkerCounts:
    """What a simulated worker did; `charged_ns` is what the kernel would show as its CPU time."""

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
    """What the simulator counted.

    Attributes
    ----------
    t_end_ns
        When the last message had left the SPS, since the schedule's start.
    arrived, received, refused, served
        Datagrams at the SPS: arrived = received + refused, and served = received.
    datagrams_sent, sent_to_uac
        By the SPS, to both agents and to the UAC.
    k_rcv_ns, t_sip_ns
        Sums over the messages served.
    from_uac
        Of those that arrived.
    wakeups, idle_wakeups
        Of workers, and those to a CPU with nothing else to run.
    selected
        Messages that each socket was chosen for, where there are several.
    passed, fronts
        What processes before the workers passed on, and what they did.
    calls_started, calls_good
        Over TCP; good are those that completed and were set up in time.
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
        """CPU time of all processes, as the kernel would show it."""
        return sum(each.charged_ns for each in (*self.workers, *self.fronts))


@dataclass(frozen=True)
class Outputs:
    """Where a simulated run leaves what a measured one leaves.

    Attributes
    ----------
    trace, calls, uac
        Trace of the messages, calls, report of the UAC.
    plan, blocks, log
        Of a run that compares modes, all three: what is switched when (hardware/simulator/plan.h) and the
        windows whose calls are played again, both to be read, and the log of the switches, which is written.
    """

    trace: Path
    calls: Path
    uac: Path
    plan: Path | None = None
    blocks: Path | None = None
    log: Path | None = None

    @property
    def given(self) -> tuple[Path, ...]:
        """Those that there are, in the order in which the program takes them."""
        return tuple(path for path in vars(self).values() if path is not None)


def program() -> Path:
    """Give the simulator, built if it was not; that needs make and a C compiler, no root.

    Raises
    ------
    StableError
        It cannot be built; says what make said.
    """
    sources = sorted(path for pattern in SOURCES for path in HARDWARE.glob(pattern))
    content = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sipsched"
    built = cache / f"sipsim-{hashlib.sha256(content).hexdigest()[:16]}"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # several jobs may build at once: each its own, and the last one stays
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _run(["make", "-C", str(HARDWARE / "simulator"), f"OUT={folder}"], BUILD_TIMEOUT_S)
            Path(folder, "sipsim").replace(built)
    return built


def version() -> str:
    """Give the simulator's name and version."""
    return _run([str(program()), "version"], 10).strip()


def write_numbers(numbers: Numbers) -> str:
    """Write a model as the simulator reads it."""
    return "".join(f"{name} = {_text(value)}\n" for name, value in numbers.items())


def simulate(numbers: Numbers, folder: Path, outputs: Outputs | None = None) -> SimulatorReport:
    """Run the simulator.

    Parameters
    ----------
    numbers
        The model, complete.
    folder
        Where `model.txt` and `report.json` are written.
    outputs
        Files to read or write beside them; None where the counts are enough.

    Raises
    ------
    StableError
        A number is missing, unknown or out of range; the run does not end; the disk is full.
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
        raise StableError(f"{argv[0]}: not at its end after {timeout_s:g} s") from None
    if done.returncode:
        raise StableError(f"{argv[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
