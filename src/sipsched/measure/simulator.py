"""Functions that build and run the simulator, which is a C program in hardware/simulator."""

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
"""Time in the trace at which the schedule begins. SEE hardware/simulator/sim.h"""
Value = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str]
ModelNumbers = Mapping[str, Value]
"""Parameters of the simulator, by their names in hardware/simulator/model.h."""


@dataclass(frozen=True)
class CpuTimes:
    """The time in ns that a simulated CPU spent on each activity. The sum is the duration of the run."""

    idle: int
    task: int
    receive: int
    switch: int
    stall: int


@dataclass(frozen=True)
class WorkerCounts:
    """Counts of a simulated worker.

    `charged_ns` is the CPU time that a kernel would report. `transfers` counts the messages before which a worker on
    another CPU used the socket.
    """

    messages: int
    ran_ns: int
    spun_ns: int
    migrations: int
    transfers: int
    charged_ns: int


@dataclass(frozen=True)
class SimulatorReport:
    """The counts of messages and calls in a simulated run, and its CPU times. `report.json` contains further counts.

    Attributes
    ----------
    t_end_ns
        Time in ns from the beginning of the schedule to the departure of the last message from the SPS.
    arrived, received, refused, served
        Datagrams at the SPS: arrived = received + refused, and served = received.
    datagrams_sent, sent_to_uac
        Datagrams that the SPS sent to UAC and UAS, and datagrams that the SPS sent to the UAC alone.
    k_rcv_ns, t_sip_ns
        Sums of K_rcv and T_sip in ns over the served messages.
    from_uac
        Datagrams from the UAC that arrived at the SPS.
    selected
        Messages per socket, for deployments with several sockets.
    passed, fronts
        Messages that the front ends forwarded, and the counts of the front ends.
    others
        Counts of the competitors and of the logger.
    calls_started, calls_good
        Over TCP, number of started calls, and number of calls that completed and were set up in time.
    """

    t_end_ns: int
    arrived: int
    received: int
    refused: int
    served: int
    k_rcv_ns: int
    t_sip_ns: int
    datagrams_sent: int
    sent_to_uac: int
    from_uac: int
    cpus: tuple[CpuTimes, ...]
    workers: tuple[WorkerCounts, ...]
    selected: tuple[int, ...] = ()
    passed: int = 0
    fronts: tuple[WorkerCounts, ...] = ()
    others: tuple[WorkerCounts, ...] = ()
    calls_started: int = 0
    calls_good: int = 0

    @property
    def charged_ns(self) -> int:
        """The CPU time of all processes in ns, as a kernel would report it."""
        return sum(process.charged_ns for process in (*self.workers, *self.fronts))


@dataclass(frozen=True)
class Outputs:
    """The paths of the files of a simulated run.

    Attributes
    ----------
    trace, calls, uac
        Trace of the messages, file of the calls, and report of the UAC.
    plan, blocks, log
        Only for a run that compares modes: the plan of the switches (hardware/simulator/plan.h), the blocks of windows,
        and the log of the switches. The simulator reads the plan and the blocks, and writes the log.
    """

    trace: Path
    calls: Path
    uac: Path
    plan: Path | None = None
    blocks: Path | None = None
    log: Path | None = None

    @property
    def given(self) -> tuple[Path, ...]:
        """The paths of all requested output files, in the order of the simulator's command-line arguments."""
        return tuple(path for path in vars(self).values() if path is not None)


def program() -> Path:
    """Return the path of the simulator, and build the simulator if necessary.

    Building needs make and a C compiler, but not root.

    Raises
    ------
    StableError
        The build fails. The message contains the output of make.
    """
    sources = sorted(path for pattern in SOURCES for path in HARDWARE.glob(pattern))
    content = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sipsched"
    built = cache / f"sipsim-{hashlib.sha256(content).hexdigest()[:16]}"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Several jobs may build at the same time, so each job builds in its own folder.
        # Each job then renames the finished program atomically, so that no job runs a partly written program.
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _run(["make", "-C", str(HARDWARE / "simulator"), f"OUT={folder}"], BUILD_TIMEOUT_S)
            Path(folder, "sipsim").replace(built)
    return built


def version() -> str:
    """Return the name and the version of the simulator."""
    return _run([str(program()), "version"], 10).strip()


def write_numbers(numbers: ModelNumbers) -> str:
    """Return the simulator's parameters as text, with one line `name = value` per parameter."""
    return "".join(f"{name} = {_text(value)}\n" for name, value in numbers.items())


def simulate(
    numbers: ModelNumbers, folder: Path, outputs: Outputs | None = None
) -> SimulatorReport:
    """Run the simulator, and return its counts.

    Parameters
    ----------
    folder
        Folder in which `model.txt` and `report.json` are written.
    outputs
        Further files that the simulator reads or writes; None if only the counts are needed.

    Raises
    ------
    StableError
        A parameter is missing, unknown or out of range, the simulation does not end in time, or the disk is full.
    """
    return _simulate("run", numbers, folder, () if outputs is None else outputs.given)


def replay(
    numbers: ModelNumbers, folder: Path, schedule: Path, trace: Path | None = None
) -> SimulatorReport:
    """Run the simulator with the calls of a schedule (hardware/common/schedule.h), and return its counts.

    Parameters
    ----------
    folder
        Folder in which `model.txt` and `report.json` are written.
    trace
        Trace of the messages, which the simulator writes; None if only the counts are needed.

    Raises
    ------
    StableError
        See `simulate`. Or the schedule is damaged.
    """
    return _simulate("replay", numbers, folder, (schedule,) if trace is None else (schedule, trace))


def _simulate(
    command: str, numbers: ModelNumbers, folder: Path, files: Sequence[Path]
) -> SimulatorReport:
    model, report = folder / "model.txt", folder / "report.json"
    model.write_text(write_numbers(numbers))
    _run([str(program()), command, *map(str, (model, report, *files))], RUN_TIMEOUT_S)
    return msgspec.json.decode(report.read_bytes(), type=SimulatorReport)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    return value if isinstance(value, str) else " ".join(map(_text, value))


def _run(argv: Sequence[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    except FileNotFoundError as error:
        raise StableError(
            f"{error.filename}: not found; the simulator needs make and gcc"
        ) from None
    except subprocess.TimeoutExpired:
        raise StableError(f"{argv[0]}: did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise StableError(f"{argv[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
