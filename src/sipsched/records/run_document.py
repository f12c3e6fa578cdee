"""`run.json`: what a record says of its run, as one value that the writer makes and every reader gets.

Field by field: docs/data-format.md. A key that a reader does not know is left out, so that an older
reader takes a newer record of the same version.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.paths import RUN_FILE
from sipsched.plan import modes
from sipsched.plan.config import Load, Run, Sut, TestbedLabels
from sipsched.validity.certificate import Certificate
from sipsched.validity.ledger import Ledger
from sipsched.validity.verdict import Verdict

SCHEMA_VERSION = 1
Part = TypeVar("Part")


@dataclass(frozen=True)
class Timeline:
    """Instants of a run, CLOCK_REALTIME of the controller, seconds since the epoch."""

    started: float
    connected: float
    servers_ready: float
    warmup_started: float
    load_started: float
    load_ended: float
    fetched: float


@dataclass(frozen=True, kw_only=True)
class OfferedLoad(Load):
    """The load as configured, and what came of it for this run."""

    calls: int
    seed: int


@dataclass(frozen=True)
class Connections:
    """TCP connections of an agent.

    Attributes
    ----------
    opened, again, lost, cut
        Opened or accepted; of them, in the place of one that was lost; lost; ended within a message.
    blocked, blocked_ns
        How often a full send buffer made messages wait, and for how long in all.
    """

    opened: int
    again: int
    lost: int
    cut: int
    blocked: int
    blocked_ns: int


@dataclass(frozen=True)
class CallCounts:
    """What a generator says of one load.

    Attributes
    ----------
    achieved_cps
        Calls started per second from the first to the last start.
    retransmissions
        Requests and responses that the client sent again.
    unexpected
        Messages that did not fit the call's state.
    cpu_share
        CPU time over wall time of the client; None if it does not tell.
    socket_drops
        Datagrams that the client's full socket refused; None if it does not tell.
    scheduler
        Policy that the client ran under: `fifo` or `other`; None if it does not tell.
    no_ports
        Datagrams to the UAC's host that met no open port while the client's were open (NoPorts); None if
        it does not tell.
    overtaken
        180 that came after the final answer of their calls: overtaken in the SPS. They are no
        unexpected messages. None if it does not tell.
    no_ringing
        Calls that were answered and of which no 180 ever came: refused by the SPS's full socket, or
        overtaken in a stateful SPS, which then does not send it on. None if it does not tell.
    calls_distinct
        Of the calls offered, those that were drawn; the others are a block's, played again. None if it
        draws no schedule, and in records before November 2026: then all.
    calls_late
        Of those completed, calls whose INVITE was answered with 200 later than the ring time and
        `setup_limit_ms` of the load. None if it does not tell, and in older records.
    calls_waiting
        Of those not completed, calls that had no answer yet, or not in time (64 T1). None as `calls_late`.
    connections
        Over TCP, of the client; else None.
    """

    calls_offered: int
    calls_created: int
    calls_completed: int
    calls_failed: int
    achieved_cps: float
    retransmissions: int
    unexpected: int
    cpu_share: float | None = None
    socket_drops: int | None = None
    scheduler: str | None = None
    no_ports: int | None = None
    overtaken: int | None = None
    no_ringing: int | None = None
    calls_distinct: int | None = None
    calls_late: int | None = None
    calls_waiting: int | None = None
    connections: Connections | None = None

    @property
    def replays(self) -> float:
        """How often each call is played: 1, unless a block's calls are played again."""
        return self.calls_offered / (self.calls_distinct or self.calls_offered)


@dataclass(frozen=True, kw_only=True)
class GeneratorReport(CallCounts):
    """The counts, and more of the program.

    Attributes
    ----------
    version
        Its version.
    cpu_us
        CPU time of client and server a call; None if one does not tell, and in older records.
    """

    version: str
    cpu_us: float | None = None


@dataclass(frozen=True)
class Sends:
    """Datagrams of one kind of request: those sent for the first time, and those sent again."""

    first: int
    again: int


@dataclass(frozen=True)
class Requests:
    """First sends and retransmissions by method, at both ends; None where a side does not tell."""

    uac: Mapping[str, Sends] | None
    sps: Mapping[str, Sends] | None
    disagreement: int | None


@dataclass(frozen=True)
class ShardReport:
    """Datagrams since the proxy was started, by the socket that the dispatcher chose.

    Attributes
    ----------
    selected
        By socket.
    without_call_id
        Of them, those that have no Call-ID; they go to the first.
    gone
        Dropped, for the socket of their call was closed.
    runs, run_ns
        Of the program that chooses, and its CPU time; 0 where the kernel does not count them.
    """

    selected: tuple[int, ...]
    without_call_id: int
    gone: int
    runs: int
    run_ns: int


@dataclass(frozen=True)
class DispatchReport:
    """What sipdispatch passed on since it was started (hardware/dispatcher/sipdispatch.c).

    Attributes
    ----------
    to_instances
        Messages handed to each instance.
    to_clients
        Messages that came back.
    without_call_id
        Of those to instances; they go to the first.
    lost
        For an instance or a client that was gone.
    broken
        Streams that could not be followed: their connection was closed.
    clients
        Connections that it accepted.
    refused
        Of them, those that it closed at once: it had no descriptor left.
    stalls
        Times that a side was not read, since the other did not take what was there.
    """

    to_instances: tuple[int, ...]
    to_clients: int
    without_call_id: int
    lost: int
    broken: int
    clients: int
    refused: int
    stalls: int


@dataclass(frozen=True)
class FrontReport:
    """What stands before the instances of a proxy.

    Attributes
    ----------
    program
        Its binary.
    cpus
        CPUs of the SPS that it is held to.
    cpu_ns
        CPU time of all its processes during the load.
    dispatched
        What sipdispatch tells; None of a proxy.
    """

    program: str
    cpus: tuple[int, ...]
    cpu_ns: int
    dispatched: DispatchReport | None = None


@dataclass(frozen=True)
class ProxyReport:
    """The SUT's processes during the load.

    Attributes
    ----------
    cpu_ns
        CPU time of all of them, the front's included.
    shards
        Where UDP sockets share the port.
    front
        Where something stands before the instances.
    calls_of_instances
        Calls that each instance began at the UAS since that was started, which tells them by their addresses; None
        where it cannot.
    """

    cpu_ns: int
    shards: ShardReport | None = None
    front: FrontReport | None = None
    calls_of_instances: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TaskCounts:
    """What the kernel counted of all tasks of the proxy during the load.

    Attributes
    ----------
    tasks
        How many there were.
    voluntary, involuntary
        Context switches: of a task that waits, each of which ends with a wake-up; and of one that had to go, or
        went by sched_yield.
    migrations
        To another CPU; None where the kernel does not tell.
    user_ns, system_ns
        CPU time of the program and of the kernel for it, by the clock's ticks.
    """

    tasks: int
    voluntary: int
    involuntary: int
    migrations: int | None
    user_ns: int
    system_ns: int

    def __sub__(self, other: "TaskCounts") -> "TaskCounts":
        """Take off what was counted before."""
        told = self.migrations is not None and other.migrations is not None
        return TaskCounts(
            tasks=self.tasks,
            voluntary=self.voluntary - other.voluntary,
            involuntary=self.involuntary - other.involuntary,
            migrations=(self.migrations or 0) - (other.migrations or 0) if told else None,
            user_ns=self.user_ns - other.user_ns,
            system_ns=self.system_ns - other.system_ns,
        )


@dataclass(frozen=True)
class Wait:
    """How often tasks waited for something, and ns in all."""

    count: int
    ns: int


@dataclass(frozen=True)
class Waits:
    """What tasks waited for.

    Attributes
    ----------
    kernel_spin, kernel_sleep
        Locks of the kernel, spinning (of a native spinlock only from the second waiter on) and asleep.
    futex, sched_yield
        Locks of the program: asleep, and given way by sched_yield.
    descriptors
        File descriptors sent to another process (SCM_RIGHTS).
    """

    kernel_spin: Wait
    kernel_sleep: Wait
    futex: Wait
    sched_yield: Wait
    descriptors: int


@dataclass(frozen=True)
class Factors:
    """What `sipfactors` counted: of the proxy, and of all other tasks of the host with their interrupts.

    `runs` and `run_ns` are of its programs in the kernel; 0 where that does not count them.
    """

    proxy: Waits
    others: Waits
    runs: int
    run_ns: int


@dataclass(frozen=True)
class FactorReport:
    """What keeps the proxy's processes from each other, during the load.

    Attributes
    ----------
    unavailable
        Why there are no `waits`; empty if there are.
    tasks, waits
        None where they were not counted.
    """

    unavailable: str
    tasks: TaskCounts | None
    waits: Factors | None


@dataclass(frozen=True)
class TracedThread:
    """A worker of the proxy as the probe saw it."""

    tid: int
    comm: str
    messages: int


@dataclass(frozen=True)
class ProbeReport:
    """What the probe says of itself; None where its kind does not count it.

    SEE hardware/probe/probe.h for the counters, hardware/probe/streams.h for those of streams,
    hardware/probe/recording.h for those of recording switched off.
    """

    mode: str
    mode_reason: str
    records: int
    drops: int
    lost: int
    refused_unseen: int = 0
    threads_untraced: int = 0
    version: int | None = None
    arrived: int | None = None
    queued: int | None = None
    received: int | None = None
    sent: int | None = None
    refused: int | None = None
    lost_ring: int | None = None
    lost_write: int | None = None
    unmatched: int | None = None
    evicted: int | None = None
    duplicates: int | None = None
    broken: int | None = None
    skipped_bytes: int | None = None
    cut: int | None = None
    descriptors_sent: int | None = None
    descriptors_received: int | None = None
    descriptor_send_ns: int | None = None
    descriptor_receive_ns: int | None = None
    unclassified: int | None = None
    recursion_misses: int | None = None
    switches_off: int | None = None
    off_ns: int | None = None
    cut_arrivals: int | None = None
    cut_services: int | None = None
    slowest_off_ns: int | None = None
    slowest_on_ns: int | None = None
    threads: tuple[TracedThread, ...] = ()
    writer_cpu_ns: int | None = None
    t_fresh_ns: int | None = None
    t_end_ns: int | None = None
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostReport:
    """What a host was; None where its kernel does not say."""

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
    """The three hosts of a run."""

    uac: HostReport
    sps: HostReport
    uas: HostReport


@dataclass(frozen=True)
class Settings:
    """What the SPS's sockets and CPUs were."""

    so_rcvbuf_bytes: int | None
    sps_cpus: tuple[int, ...]
    rmem_default: str | None = None
    rmem_max: str | None = None


@dataclass(frozen=True)
class SettingReport:
    """A setting of the mode: asked, applied and read back, or unavailable because."""

    setting: str
    asked: Any
    place: str | None
    applied: Any
    read_back: Any
    unavailable: str | None


@dataclass(frozen=True)
class SchedulerReport:
    """The mode as it was on this kernel; `translated` is None in records before November 2026.

    `base_slice_ns` is what a task without a slice of its own has under EEVDF; None if the kernel does not
    tell it, and in records before November 2026.
    """

    mode: str
    label: str
    source: str
    family: str
    found: Mapping[str, str | None]
    steps: tuple[SettingReport, ...]
    quiet: tuple[Mapping[str, Any], ...]
    repaired: bool
    translated: bool | None = None
    base_slice_ns: int | None = None

    @property
    def is_translation(self) -> bool:
        """Whether the kernel's scheduler has the mode's settings in another form at most."""
        if self.translated is None:
            return self.label == modes.label(self.mode, True, ())
        return self.translated

    @property
    def in_force(self) -> dict[str, str]:
        """Place of a setting to its value, as written or as found."""
        found = {place: value for place, value in self.found.items() if value is not None}
        written = {
            str(step.place): str(step.applied) for step in self.steps if step.unavailable is None
        }
        return found | written


@dataclass(frozen=True)
class CrossoverReport:
    """The modes of a crossover run, and how they were switched; `windows.json.zst` has each switch.

    Attributes
    ----------
    modes
        As they were on this kernel, the reference first.
    unavailable
        Modes that the kernel refuses, to its reason; no window played them.
    same_settings
        Groups of modes that come to the same settings here: only the first of a group was played.
    window_s, washout_s
        As used.
    blocks, windows
        Played, and of the windows those whose switch failed.
    tasks
        Processes of the proxy that were switched.
    """

    modes: tuple[SchedulerReport, ...]
    unavailable: Mapping[str, str]
    same_settings: tuple[tuple[str, ...], ...]
    window_s: float
    washout_s: float
    blocks: int
    windows: int
    failed_switches: int
    tasks: int


@dataclass(frozen=True)
class SpeedIndex:
    """Of a fixed piece of work on a CPU of the SPS, work per CPU microsecond; before the run and after it."""

    before: float
    after: float


@dataclass(frozen=True)
class CommandReport:
    """A command on a host; of what it printed only the complaints."""

    host: str
    argv: tuple[str, ...]
    started: str
    duration_s: float
    exit_code: int
    stderr: str


@dataclass(frozen=True)
class FileReport:
    """A file of the record as it was when the record was closed; `sha256` in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class RunDocument:
    """The content of `run.json`.

    `files` is None in records before November 2026, which name none; `crossover` in runs of a single mode;
    `speed` where it was not measured; `factors` in runs that compare modes, in simulated ones, and in records before
    22 November 2026.
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
    commands: tuple[CommandReport, ...] = ()
    files: Mapping[str, FileReport] | None = None
    crossover: CrossoverReport | None = None
    speed: SpeedIndex | None = None
    factors: FactorReport | None = None
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Write it as the text of `run.json`."""
        content = asdict(self)
        # what follows from the rest is written down too, for readers that are not this program
        content["verdict"]["valid"] = self.verdict.valid
        for way in ("to_sps", "from_sps"):
            content["ledger"][way]["residual"] = getattr(self.ledger, way).residual
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_part(kind: type[Part], content: Any, where: str) -> Part:
    """Check loose content against a part of the document.

    Parameters
    ----------
    kind
        Class of the part.
    content
        Mappings, lists and plain values.
    where
        What the content is of, for the error's text.

    Raises
    ------
    StableError
        A key is missing or a value has another type; names the place.
    """
    # Imported here: 30 ms that the workflow's start need not spend.
    import msgspec

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise StableError(f"{where}: {error}; repeat the run") from error


def read_run(record: Path) -> RunDocument:
    """Read the `run.json` of a run's record.

    Raises
    ------
    StableError
        It is missing, is not JSON, has another version, lacks a key or has one of another type.
    """
    path = record / RUN_FILE
    document = read_json(
        path,
        SCHEMA_VERSION,
        "expected the record of a finished run, by the sipsched that wrote it",
    )
    return as_part(RunDocument, document, str(path))
