"""The type of the file `run.json`, which describes a run. All programs write and read the file through this type.

docs/data-format.md describes each field. Reading ignores unknown keys, so an older program can read a newer record of
the same format version.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sipsched.files import SEAL, read_sealed, seal
from sipsched.paths import RUN_FILE
from sipsched.plan.run import Run, TestbedLabels
from sipsched.plan.sut import Sut
from sipsched.records.conversion import as_part
from sipsched.records.cpu_report import AccountReport, FactorReport, SpeedIndex
from sipsched.records.load_report import GeneratorReport, OfferedLoad, Requests
from sipsched.records.probe_report import ProbeReport
from sipsched.records.proxy_report import ProxyReport
from sipsched.records.scheduler_report import CrossoverReport, SchedulerReport
from sipsched.validity.certificate import Certificate
from sipsched.validity.ledger import Ledger
from sipsched.validity.verdict import Verdict

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Timeline:
    """The times of a run's steps in seconds since the epoch (CLOCK_REALTIME of the machine that controls the run)."""

    started: float
    connected: float
    servers_ready: float
    warmup_started: float
    load_started: float
    load_ended: float
    fetched: float


@dataclass(frozen=True)
class HostReport:
    """The hardware, kernel and programs of a host. A value that the kernel does not report is None."""

    address: str
    kernel: str | None
    cpu_model: str | None
    cpus: tuple[int, ...]
    helper_cpus: tuple[int, ...]
    online_cpus: str | None
    clocksource: str | None
    governor: str | None
    versions: Mapping[str, str]
    lscpu: Mapping[str, Any]
    files: Mapping[str, str]


@dataclass(frozen=True)
class HostReports:
    """The reports about the hosts of a run. `front` is None if the testbed has no host for a front end."""

    uac: HostReport
    sps: HostReport
    uas: HostReport
    front: HostReport | None = None


@dataclass(frozen=True)
class Settings:
    """The receive buffers of the proxy's sockets, and the CPUs of the proxy's host (SPS).

    Attributes
    ----------
    so_rcvbuf_bytes
        Effective SO_RCVBUF of the proxy's socket, or of the reference if the run compares instances; None if unknown.
    receive_cpus
        CPUs of the receive softirqs (RPS), a hexadecimal mask per receive queue of the SPS. The mask 0 means the CPU of
        the interrupt.
    so_rcvbuf_of_instances
        Effective SO_RCVBUF of each instance by port, if the run compares instances.
    """

    so_rcvbuf_bytes: int | None
    sps_cpus: tuple[int, ...]
    rmem_default: str | None = None
    rmem_max: str | None = None
    receive_cpus: Mapping[str, str | None] = field(default_factory=dict)
    so_rcvbuf_of_instances: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class CommandReport:
    """A command that ran on a host for the measurement, with exit code and error output."""

    host: str
    argv: tuple[str, ...]
    started: str
    duration_s: float
    exit_code: int
    stderr: str


@dataclass(frozen=True)
class FileReport:
    """The size and the SHA-256 (hexadecimal) of a file at the time when the record was completed."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class RunDocument:
    """The content of `run.json`.

    Attributes
    ----------
    files
        All other files of the record; empty until the record is complete.
    crossover
        The modes and switches of a run that compares modes; None for a run of a single mode.
    speed
        Speed of a CPU of the SPS; None if it was not measured.
    factors
        Waits of the proxy's processes. None for runs that compare modes, for simulated runs, and if no program counted
        the waits.
    account
        The account of the SPS's CPU time. None for simulated runs, which have no competitors, and if no program counted
        the time.
    sha256
        The SHA-256 of `run.json`. Because `run.json` contains the SHA-256 of every other file, this value identifies
        the whole record. Empty until the record is read.
    """

    run: Run
    testbed: TestbedLabels
    sut: Sut
    started_at: str
    finished_at: str
    timeline: Timeline
    load: OfferedLoad
    generator: GeneratorReport
    certificate: Certificate | None
    requests: Requests
    proxy: ProxyReport
    probe: ProbeReport
    hosts: HostReports
    settings: Settings
    scheduler: SchedulerReport
    layout: Mapping[str, Any]
    ledger: Ledger
    verdict: Verdict
    files: Mapping[str, FileReport] = field(default_factory=dict)
    crossover: CrossoverReport | None = None
    speed: SpeedIndex | None = None
    factors: FactorReport | None = None
    account: AccountReport | None = None
    schema_version: int = SCHEMA_VERSION
    sha256: str = ""

    def to_json(self) -> str:
        """Return the text of `run.json`, including a SHA-256 of the content."""
        content = asdict(self)
        del content[SEAL]
        # Also write values that could be computed from other values, because other programs may read the file.
        content["verdict"]["valid"] = self.verdict.valid
        for way in ("to_sps", "from_sps"):
            content["ledger"][way]["residual"] = getattr(self.ledger, way).residual
        return seal(json.dumps(content, indent=1, allow_nan=False))


def read_run(record: Path) -> RunDocument:
    """Read the `run.json` of a run's record.

    Raises
    ------
    StableError
        The file is missing, is not JSON, has another version, was changed after it was written, lacks a key, or has a
        value of another type.
    """
    path = record / RUN_FILE
    document = read_sealed(
        path,
        SCHEMA_VERSION,
        "expected the record of a finished run, written by this version of sipsched",
    )
    return as_part(RunDocument, document, str(path))
