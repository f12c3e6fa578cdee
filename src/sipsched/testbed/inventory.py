"""The description of a testbed (hosts for measurements) in a YAML file: the kind, hosts, CPUs and settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT, TESTBEDS
from sipsched.plan.crossover import cores_of
from sipsched.plan.keys import read, read_named
from sipsched.plan.run import Point, Run, TestbedLabels
from sipsched.plan.sut import Sut
from sipsched.testbed.topology import divide, read_cores
from sipsched.words import listed, plural

LOCK_WAIT_S = 600.0
ROLES = ("uac", "sps", "uas", "front")
"""Roles of the hosts. Only some testbeds have the last host, on which the front end of a proxy can run."""
NEEDED = {
    "local": ("workdir", "hosts"),
    "ssh": ("workdir", "hosts"),
    "vm": ("workdir", "hosts", "vm"),
    "virtual": ("workdir", "hosts", "virtual"),
    "simulated": ("simulated",),
}
"""Required keys of a testbed's YAML file for each kind of testbed, besides `name`, `kind` and `fidelity`."""
OF_HOSTS = ("tuning", "lock_wait_s")
"""Optional keys of a testbed's YAML file, except for simulated testbeds, which have no hosts."""
OF_EMULATED = ("competitors",)
"""Optional keys of the YAML file of a testbed of kind `virtual` or `simulated`."""

Cpus = Annotated[
    tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1, description="CPU numbers.")
]
Port = Annotated[int, Meta(ge=1, le=65_535)]
MECHANISMS = [
    "lock",
    "switches",
    "refills",
    "stalls",
    "receive",
    "placement",
    "herd",
    "migration_cost",
    "competitors",
]
"""Names of the parts of the simulation model that a testbed's YAML file can switch off."""


def native_folder(workdir: PurePosixPath, part: str) -> PurePosixPath:
    """Return the folder on a host in which `fab provision` builds the C programs of a part, such as `probe`."""
    return workdir / "native" / part


def release_root(workdir: PurePosixPath, release: str) -> PurePosixPath:
    """Return the folder on a host in which `fab provision` builds the root file system of a Debian release."""
    return workdir / "roots" / release


@dataclass(frozen=True)
class HostSpec:
    """A host of a testbed: its SSH access, its SIP address and its CPUs."""

    role: str
    address: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9:])?\Z",
            description="Name, IPv4 address or IPv6 address of the host for SSH.",
        ),
    ]
    user: Annotated[
        str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9._-]{0,31}\Z", description="The login user.")
    ]
    identity_file: Annotated[str, Meta(description="The private key for the login.")]
    known_hosts: Annotated[str, Meta(description="The file with the host's public key.")]
    sip_address: Annotated[
        str,
        Meta(
            pattern=r"\A((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(?!\Z)|\Z)){4}\Z",
            description="IPv4 address for SIP.",
        ),
    ]
    sip_port: Annotated[Port, Meta(description="UDP port for SIP.")]
    cpus: Annotated[Cpus, Meta(description="CPUs for the generator or the proxy.")]
    helper_cpus: Annotated[Cpus, Meta(description="CPUs for all other programs of sipsched.")]
    port: Annotated[Port, Meta(description="Port of the host's sshd.")] = 22

    def __str__(self) -> str:
        """Return the role and the address of the host."""
        return f"{self.role} ({self.user}@{self.address}:{self.port})"


@dataclass(frozen=True)
class Tuning:
    """The settings that a run may change on the proxy's host. At its end, the run restores the old values."""

    cores_by: Annotated[
        Literal["cpuset", "hotplug"],
        Meta(
            description="cpuset: the proxy is restricted to its CPUs. hotplug: all other CPUs except the helpers go "
            "offline."
        ),
    ] = "cpuset"
    quiet: Annotated[
        tuple[
            Literal["autogroup", "governor", "turbo", "numa_balancing", "irqbalance", "halt"], ...
        ],
        Meta(description="The sources of noise that a run may stop."),
    ] = ()
    interrupt_cpus: Annotated[
        Cpus, Meta(description="CPUs for interrupts. Without this key, a run moves no interrupts.")
    ] = ()
    service_cpus: Annotated[
        Cpus, Meta(description="CPUs for system services. Without this key, a run moves none.")
    ] = ()
    receive_interfaces: Annotated[
        # The kernel allows more characters in an interface's name than this pattern. SEE net/core/dev.c:
        # dev_valid_name()
        tuple[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,14}\Z")], ...],
        Meta(description="Interfaces whose receive work moves to `receive_cpus` (RPS)."),
    ] = ()
    receive_cpus: Annotated[Cpus, Meta(description="CPUs for the receive work (RPS).")] = ()

    @property
    def changes(self) -> bool:
        """True if a run may stop noise sources, move interrupts, or move the receive work of network interfaces."""
        return bool(self.quiet or self.interrupt_cpus or self.receive_interfaces)


@dataclass(frozen=True)
class GuestMachine:
    """The description of a virtual machine: its kernel, processors and memory."""

    kernel: Annotated[
        str,
        Meta(
            pattern=r"\A(6\.12|6\.1|5\.10|.*/.*)\Z",
            description="6.12 (Debian 13's cloud kernel, EEVDF), 6.1 (Debian 12's, CFS), 5.10 (Debian 11's, CFS), or "
            "the path of a bzImage with ext4 and virtio (the kernel's kvm_guest.config). Six timestamps need BTF in "
            "the kernel.",
        ),
    ]
    sockets: Annotated[int, Meta(ge=1, le=8, description="Number of processors.")]
    cores_per_socket: Annotated[int, Meta(ge=1, le=64, description="Cores per processor.")]
    memory_mib: Annotated[int, Meta(ge=512, description="Memory in MiB.")]
    copies: Annotated[
        tuple[Annotated[str, Meta(pattern=r"\A(/(?!\.\.?(/|\Z))[^/]+)+\Z")], ...],
        Meta(
            description="Files and folders of this machine that the guest also has, for example a proxy that is no "
            "Debian package. The guest has the libraries of Debian 12."
        ),
    ] = field(kw_only=True, default=())

    @property
    def kernel_name(self) -> str:
        """The name of the virtual machine's kernel for descriptions, without the path of the kernel's file.

        The name of a Debian kernel also contains the name of the kernel's scheduler.
        """
        if "/" in self.kernel:
            return Path(self.kernel).name
        return f"Debian's {self.kernel} kernel ({'EEVDF' if self.kernel == '6.12' else 'CFS'})"

    @property
    def cpus(self) -> int:
        """The number of CPUs of the virtual machine."""
        return self.sockets * self.cores_per_socket

    def __str__(self) -> str:
        """Return the processors and the kernel of the virtual machine as text."""
        return (
            f"{plural(self.sockets, 'socket')} of {plural(self.cores_per_socket, 'core')}, "
            f"{self.kernel_name}"
        )


@dataclass(frozen=True)
class Guest(GuestMachine):
    """The virtual machine that runs the proxy in a testbed of kind `vm`."""

    accelerator: Annotated[
        Literal["auto", "kvm", "tcg"],
        Meta(
            description="auto boots with KVM, and with TCG if KVM fails. TCG is an emulator. Times from TCG are no "
            "measurements."
        ),
    ]
    host_cpus: Annotated[
        Cpus, Meta(description="CPUs of this machine for QEMU. Without this key, all CPUs.")
    ] = ()


@dataclass(frozen=True)
class VirtualClock:
    """The settings of a clock that counts the instructions of a guest. docs/virtual-time.md explains this clock."""

    mips: Annotated[
        float,
        Meta(ge=1, le=100_000, description="Million user instructions per second of each core."),
    ]
    quantum_ns: Annotated[
        int,
        Meta(
            ge=100,
            le=1_000_000,
            description="Virtual time in ns after which all running cores wait for each other.",
        ),
    ]
    kernel_weight: Annotated[
        float,
        Meta(
            ge=0.1,
            le=1000,
            description="Time of a kernel instruction, in user instructions.",
        ),
    ]
    wake_ns: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Time in ns that a halted core needs to wake up."),
    ]

    def __str__(self) -> str:
        """Return the settings of the clock as text, which every result of a measurement includes."""
        return (
            f"{self.mips:g} MIPS, kernel weight {self.kernel_weight:g}, wake-up time "
            f"{self.wake_ns / 1000:g} µs, quantum {self.quantum_ns / 1000:g} µs"
        )


@dataclass(frozen=True)
class VirtualGuest(GuestMachine):
    """The virtual machine that contains all hosts of a testbed of kind `virtual`."""

    clock: Annotated[VirtualClock, Meta(description="The clock, which counts instructions.")]
    numa: Annotated[
        bool,
        Meta(
            description="true: each socket is a NUMA node with an equal part of the memory. Access to the memory of "
            "other nodes takes no extra time."
        ),
    ] = False
    isolated: Annotated[
        Cpus,
        Meta(
            description="CPUs that the scheduler does not count (kernel parameter isolcpus), as if they were offline. "
            "Only tasks with an explicit CPU affinity run there."
        ),
    ] = ()


@dataclass(frozen=True)
class DeclaredCompetitor:
    """A program that competes with the proxy for the proxy's CPUs during each measurement."""

    name: Annotated[
        str,
        Meta(pattern=r"\A[a-z][a-z0-9-]{0,14}\Z", description="Name of the task, such as logger."),
    ]
    busy_us: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="CPU time in µs that the task uses per period. If it equals period_us, the task computes all "
            "the time. Without period_us: CPU time per line that the proxy logs.",
        ),
    ]
    period_us: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        Meta(
            description="Length of a period in µs. Without this key, the task reads the lines that a SUT with "
            "log_messages writes to /dev/log, as a syslog daemon does."
        ),
    ] = None
    cpus: Annotated[
        Cpus,
        Meta(description="CPUs for the task. Without this key, it may use all CPUs of the proxy."),
    ] = ()
    policy: Annotated[
        Literal["other", "batch", "idle", "fifo"],
        Meta(
            description="Scheduling policy, as in sched(7). fifo has real-time priority 1, the lowest one."
        ),
    ] = "other"
    nice: Annotated[
        int, Meta(ge=-20, le=19, description="Nice value, for the policies other and batch.")
    ] = 0

    @property
    def is_always_busy(self) -> bool:
        """True if the task computes all the time."""
        return self.busy_us == self.period_us

    @property
    def reads_log(self) -> bool:
        """True if the task works for each line that the proxy logs, and not in periods."""
        return self.period_us is None

    def __str__(self) -> str:
        """Return the name, CPU use, CPUs and scheduling attributes of the competing program as text."""
        where = _name_cpus(self.cpus) if self.cpus else "all CPUs of the SPS"
        policy = "" if self.policy == "other" else f", SCHED_{self.policy.upper()}"
        nice = f", nice {self.nice}" if self.nice else ""
        every = f"every {self.period_us:,} µs" if self.period_us else "CPU time per line of the log"
        time = f"{self.busy_us:,} µs {'of ' if self.period_us else ''}{every} on {where}"
        return f"{self.name} ({time}{policy}{nice})"


@dataclass(frozen=True)
class SimulatedMachine:
    """The kernel and the processors of the simulated machine in a testbed of kind `simulated`."""

    kernel: Annotated[
        str,
        Meta(
            pattern=r"\A(6\.18|6\.1|5\.10|3\.2)\Z",
            description="Linux version whose scheduler is simulated: 6.18 (EEVDF), or 6.1, 5.10 or 3.2 (CFS).",
        ),
    ]
    processors: Annotated[int, Meta(ge=1, le=8, description="Number of processors.")]
    cores_per_processor: Annotated[
        int, Meta(ge=1, le=32, description="Cores per processor, which share a cache.")
    ]
    model: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*\Z",
            description="Name of a file in config/models, without .yaml, or several names that are joined by commas. "
            "A run uses the first model of its SUT's proxy program.",
        ),
    ]
    without: Annotated[
        tuple[Annotated[str, Meta(pattern=rf"\A({'|'.join(MECHANISMS)})\Z")], ...],
        Meta(description=f"Mechanisms that are switched off: {', '.join(MECHANISMS)}."),
    ]
    alternate: Annotated[
        bool,
        Meta(
            description="true: consecutive cores belong to different processors in turn. Modes "
            "still count the processors as if a run filled one processor after another."
        ),
    ] = False
    numa: Annotated[bool, Meta(description="true: each processor is a NUMA node.")] = False
    base_slice_ns: Annotated[
        Annotated[int, Meta(ge=100_000, le=100_000_000)] | None,
        Meta(
            description="Base slice of EEVDF in ns. Without this key, it is the default for the number of CPUs."
        ),
    ] = None
    setattr_ns: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="CPU time in ns that a switch of the mode takes from a worker. 0: another CPU does the switch.",
        ),
    ] = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that runs on this testbed can use."""
        return tuple(self.model.split(","))

    @property
    def is_eevdf(self) -> bool:
        """True if the simulated kernel uses the scheduler EEVDF instead of CFS."""
        return self.kernel == "6.18"

    def cores_together(self, cores: int) -> int:
        """Return how many cores of one processor the simulator numbers one after another, in a run on `cores` cores."""
        return -(-cores // self.processors) if self.alternate else self.cores_per_processor

    @property
    def cpus(self) -> int:
        """The number of CPUs of the simulated machine."""
        return self.processors * self.cores_per_processor


@dataclass(frozen=True)
class DeclaredTestbed:
    """The content of a testbed's YAML file. hardware/testbeds/example-physical.yaml explains the keys."""

    name: Annotated[
        str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", description="Name of the testbed and of its file.")
    ]
    kind: Annotated[
        Literal["local", "ssh", "vm", "virtual", "simulated"],
        Meta(description="Kind of the testbed, which decides how its hosts are started."),
    ]
    fidelity: Annotated[str, Meta(description="One line about the fidelity, for every figure.")]
    based_on: Annotated[
        str, Meta(description="Another testbed. Its file supplies all keys that this file lacks.")
    ] = ""
    description: Annotated[
        str, Meta(description="Free text, such as machines, switches and links.")
    ] = ""
    workdir: Annotated[
        Annotated[str, Meta(pattern=r"\A(/[A-Za-z0-9_][A-Za-z0-9._-]*){2,}\Z")] | None,
        Meta(description="Folder on each host that belongs to the login user alone."),
    ] = None
    lock_wait_s: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)] | None,
        Meta(description="Seconds to wait while another user occupies the testbed. Default: 600."),
    ] = None
    vm: Annotated[Guest | None, Meta(description="The guest that is the SPS, for the kind vm.")] = (
        None
    )
    virtual: Annotated[
        VirtualGuest | None,
        Meta(description="The guest that has all three hosts, for the kind virtual."),
    ] = None
    simulated: Annotated[
        SimulatedMachine | None, Meta(description="The machine, for the kind simulated.")
    ] = None
    hosts: Annotated[
        Mapping[Literal["uac", "sps", "uas", "front"], Mapping[str, Any]] | None,
        Meta(
            min_length=3,
            description="The hosts uac, sps and uas. The kinds local and ssh can also have front, a host for the front "
            "end of a proxy.",
        ),
    ] = None
    tuning: Annotated[
        Tuning | None, Meta(description="The settings that a run may change on the SPS.")
    ] = None
    competitors: Annotated[
        Annotated[tuple[DeclaredCompetitor, ...], Meta(min_length=1)] | None,
        Meta(
            description="Programs that run beside the proxy during each load, for the kinds virtual and simulated."
        ),
    ] = None


@dataclass(frozen=True)
class Testbed:
    """A testbed: hosts (UAC, proxy, UAS) for measurements, with settings and a description for figures."""

    name: str
    kind: str
    fidelity: str
    workdir: PurePosixPath
    """Folder on each host that only the user of the SSH login can access."""
    uac: HostSpec
    sps: HostSpec
    uas: HostSpec
    tuning: Tuning = Tuning()
    remark: str = ""
    """Free text from the testbed's file, such as the names of machines, switches and links."""
    lock_wait_s: float = LOCK_WAIT_S
    """Longest time in seconds to wait until another user releases the testbed."""
    guest: Guest | None = None
    """The virtual machine of a testbed of kind `vm`; None for other kinds."""
    virtual: VirtualGuest | None = None
    """The virtual machine of a testbed of kind `virtual`; None for other kinds."""
    accelerator: str | None = None
    """`kvm` or `tcg` if the testbed has the kind `vm` and the virtual machine runs, otherwise None."""
    simulated: SimulatedMachine | None = None
    """The simulated machine of a testbed of kind `simulated`; None for other kinds."""
    competitors: tuple[DeclaredCompetitor, ...] = ()
    """Programs that compete with the proxy for CPU time during each measurement."""
    front: HostSpec | None = None
    """A host of its own for the front end of a proxy; None if the testbed has no such host."""

    @property
    def control_s(self) -> float:
        """Longest time in s, on the hosts' clocks, that the commands of a run may take.

        After this time, the run's programs end. The clock of a guest in virtual time goes on while the guest waits for
        a command, and this machine may be busy.
        """
        return 600.0 if self.virtual else 60.0

    @property
    def is_on_this_machine(self) -> bool:
        """True if this machine creates the hosts and runs the load generators."""
        return self.kind in ("local", "vm", "virtual")

    @property
    def hosts(self) -> tuple[HostSpec, ...]:
        """The hosts in the order of `ROLES`: UAC, proxy (SPS), UAS, and the host of the front end if it exists."""
        return (self.uac, self.sps, self.uas, *([self.front] if self.front else []))

    @property
    def description(self) -> str:
        """The text for results that describes the testbed's network, hosts, CPUs and competing programs."""
        beside = "".join(f"; competitor {one}" for one in self.competitors)
        if self.simulated is not None:
            return f"{_describe_simulated(self.simulated)}{beside}{self._remark}"
        hosts = "; ".join(f"{host.role.upper()} on {_name_cpus(host.cpus)}" for host in self.hosts)
        helpers = f"probe and helper programs on {_name_cpus(self.sps.helper_cpus)} of the SPS"
        return f"{self._setting}: {hosts}; {helpers}{beside}{self._remark}"

    @property
    def _remark(self) -> str:
        return f". {self.remark}" if self.remark else ""

    @property
    def _setting(self) -> str:
        number = "Four" if self.front else "Three"
        if self.kind == "local":
            return f"{number} network namespaces on one machine, joined by veth"
        if self.guest is not None:
            return (
                f"SPS in a QEMU guest ({self.guest}), UAC and UAS in network namespaces outside it"
            )
        if self.virtual is not None:
            return (
                f"SPS, UAC and UAS in network namespaces of one QEMU guest ({self.virtual}), joined "
                "by veth"
            )
        return f"{number} hosts reached by SSH"

    @property
    def labels(self) -> TestbedLabels:
        """The name, kind and description of this testbed, which every record of a measurement contains."""
        return TestbedLabels(
            self.name, self.kind, self.description, self.fidelity, self.accelerator
        )

    def entry(self, sut: Sut) -> HostSpec:
        """Return the host that receives the UAC's messages: the host of the SUT's front end, or else the SPS.

        Raises
        ------
        StableError
            The SUT needs a host of its own for the front end, and the testbed has no such host.
        """
        # In the simulator, only the SPS takes CPU time, so a simulated testbed names no hosts.
        if sut.front_host == "sps" or self.simulated:
            return self.sps
        if self.front is None:
            raise StableError(
                f"testbed {self.name}: SUT {sut.name} has a front end on its own host (front_host: front), but "
                f"{TESTBEDS / self.name}.yaml names no such host; add hosts.front as in "
                f"{TESTBEDS / 'local-front'}.yaml, or set front_host to sps"
            )
        return self.front

    def check_log(self, sut: Sut) -> None:
        """Raise an error if a SUT logs its messages but no competitor reads the log, or the other way round.

        Raises
        ------
        StableError
            Without a reader, each line is lost. Without lines, the reader does nothing.
        """
        readers = [competitor.name for competitor in self.competitors if competitor.reads_log]
        # On another testbed, a syslog daemon can read the lines. `Serving.start` checks that it runs.
        if sut.log_messages and not readers and self.kind in ("virtual", "simulated"):
            raise StableError(
                f"testbed {self.name}: SUT {sut.name} writes a line per message to /dev/log (log_messages), but no "
                "competitor of the testbed reads the lines; declare a competitor without period_us, or measure the SUT "
                "on another testbed"
            )
        if readers and not sut.log_messages:
            raise StableError(
                f"testbed {self.name}: the competitor {readers[0]} reads the lines that the proxy logs, but SUT "
                f"{sut.name} logs none; set log_messages: true, or add period_us to the competitor"
            )

    def check_cores(self, asked: Iterable[Point | Run]) -> None:
        """Raise an error if a planned measurement (point or run) needs more cores than the proxy's host has.

        Raises
        ------
        StableError
            The SPS has too few cores. The message lists the impossible points and the CPUs of the SPS. Or a run
            compares numbers of cores, and the testbed takes all unused CPUs offline.
        """
        points: dict[str, None] = {}
        for point in asked:
            cores = cores_of(point.mode, point.cores)
            within_run = isinstance(point, Run) and len(set(cores)) > 1
            if within_run and self.tuning.cores_by == "hotplug":
                raise StableError(
                    f"testbed {self.name}: '{point.mode}' compares numbers of cores within a run, but tuning.cores_by "
                    "is hotplug, which takes other CPUs offline for the whole run; set it to cpuset, or measure each "
                    "number of cores in its own runs"
                )
            if max(cores) > len(self.sps.cpus):
                cps = f" cps={point.cps}" if isinstance(point, Run) else ""
                points[f"cores={max(cores)} threads={point.threads}{cps}"] = None
        if points:
            file = f"{TESTBEDS / self.name}.yaml"
            where = f"from the cores of this machine, if not named in {file}"
            raise StableError(
                f"testbed {self.name}: the SPS has {len(self.sps.cpus)} CPU(s) for the proxy "
                f"({list(self.sps.cpus)} {where if self.kind == 'local' else f'in {file}'}); "
                f"{len(points)} point(s) ask for more: {'; '.join(points)}"
            )


def load_testbed(name: str, folder: Path = PROJECT_ROOT / TESTBEDS) -> Testbed:
    """Return the testbed that the file `<folder>/<name>.yaml` describes.

    Raises
    ------
    StableError
        The file does not exist, or a key is missing, unknown or out of range. For a missing file, the message lists the
        existing files.
    """
    where = str(folder / f"{name}.yaml")
    file = read_named(DeclaredTestbed, "testbed", name, folder)
    if file.name != name:
        raise StableError(f"{where}: name: expected '{name}' as in the path, found '{file.name}'")
    _check_kind(file, where)
    roles = [role for role in ROLES if role != "front" or role in (file.hosts or {})]
    hosts = {role: _host(role, file, where) for role in roles}
    guest = file.vm and replace(file.vm, kernel=_kernel_file(file.vm.kernel))
    virtual = file.virtual and replace(file.virtual, kernel=_kernel_file(file.virtual.kernel))
    if guest:
        _check_guest(where, guest, [hosts["sps"]])
    if virtual:
        _check_guest(where, virtual, list(hosts.values()))
        _check_competitors(where, file.competitors or (), hosts["sps"].cpus)
    if file.simulated:
        _check_competitors(where, file.competitors or (), range(file.simulated.cpus))
    return Testbed(
        name=file.name,
        kind=file.kind,
        # Figures show this text, which includes the settings of a virtual clock, because the results depend on these
        # settings.
        fidelity=f"{file.fidelity} ({virtual.clock})"
        if virtual
        else f"{file.fidelity}{_shared(file, hosts)}",
        workdir=PurePosixPath(file.workdir or "/nonexistent"),
        uac=hosts["uac"],
        sps=hosts["sps"],
        uas=hosts["uas"],
        front=hosts.get("front"),
        tuning=file.tuning or Tuning(),
        remark=file.description,
        guest=guest,
        virtual=virtual,
        simulated=file.simulated,
        competitors=file.competitors or (),
        lock_wait_s=LOCK_WAIT_S if file.lock_wait_s is None else file.lock_wait_s,
    )


def _check_kind(file: DeclaredTestbed, where: str) -> None:
    """Raise an error if a testbed's YAML file lacks a key of its kind, or has a key that only another kind allows."""
    needed = NEEDED[file.kind]
    allowed = (
        *needed,
        *(OF_HOSTS if "hosts" in needed else ()),
        *(OF_EMULATED if file.kind in ("virtual", "simulated") else ()),
    )
    known = dict.fromkeys(key for keys in NEEDED.values() for key in keys)
    for key in (*known, *OF_HOSTS, *OF_EMULATED):
        is_given = getattr(file, key) is not None
        if key in needed and not is_given:
            raise StableError(f"{where}: {key} is missing: a testbed of kind {file.kind} needs it")
        if is_given and key not in allowed:
            raise StableError(
                f"{where}: {key}: a testbed of kind {file.kind} has no such key; remove it"
            )
    if "front" in (file.hosts or {}) and file.kind in ("vm", "virtual"):
        raise StableError(
            f"{where}: hosts.front: a testbed of kind {file.kind} has no host for a front end; remove it"
        )
    tuning = file.tuning or Tuning()
    if file.virtual and tuning.cores_by == "hotplug":
        raise StableError(
            f"{where}: tuning.cores_by: hotplug takes CPUs offline that UAC and UAS use in the same guest; "
            "use cpuset"
        )
    if "halt" in tuning.quiet and "autogroup" not in tuning.quiet:
        raise StableError(
            f"{where}: tuning.quiet: halt needs autogroup, because the kernel's autogroup lets the programs that keep "
            "the CPUs awake compete with the proxy; add autogroup"
        )
    if bool(tuning.receive_interfaces) != bool(tuning.receive_cpus):
        raise StableError(
            f"{where}: tuning: receive_interfaces and receive_cpus belong together; add the missing key"
        )


def _host(role: str, file: DeclaredTestbed, where: str) -> HostSpec:
    """Return the host with a role, such as `uac`, from a testbed's file, or a placeholder in a simulated testbed."""
    if file.simulated:
        cpus = tuple(range(file.simulated.cpus)) if role == "sps" else ()
        return HostSpec(role, "simulated", "", "", "", "", 0, cpus=cpus, helper_cpus=())
    bodies: dict[Any, Any] = {**(file.hosts or {})}
    if file.kind == "local":
        # All hosts are on this machine, so the program knows the CPUs, and chooses CPUs for hosts without CPUs in the
        # file.
        division = divide(read_cores())
        own = {"cpus": list(getattr(division, role)), "helper_cpus": list(division.helpers)}
        bodies[role] = own | bodies.get(role, {})
    host = read(HostSpec, bodies.get(role, {}), f"{where}: hosts.{role}", role=role)
    identity_file, known_hosts = (
        str(Path(path).expanduser()) for path in (host.identity_file, host.known_hosts)
    )
    return replace(host, identity_file=identity_file, known_hosts=known_hosts)


def _shared(file: DeclaredTestbed, hosts: Mapping[str, HostSpec]) -> str:
    """Return a text that names the CPU that the proxy shares with the load generators; empty if no CPU is shared."""
    proxy, generators = hosts["sps"].cpus, {*hosts["uac"].cpus, *hosts["uas"].cpus}
    if file.kind != "local" or not generators & set(proxy):
        return ""
    return f", also the {'second' if len(proxy) == 2 else 'last'} CPU of the SPS"


def _kernel_file(kernel: str) -> str:
    """Return the absolute path of a kernel's file, or the unchanged name of a Debian kernel such as `6.1`."""
    return str(PROJECT_ROOT / Path(kernel).expanduser()) if "/" in kernel else kernel


def _name_cpus(cpus: Sequence[int]) -> str:
    """Return CPU numbers as text, such as "CPUs 0, 2–5", with a range for consecutive numbers."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    ends = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in parts)
    return f"CPU{'s' if len(cpus) > 1 else ''} {ends}"


def _describe_simulated(simulated: SimulatedMachine) -> str:
    """Return text that describes the simulated machine and lists the disabled parts of the simulation model."""
    scheduler = "EEVDF" if simulated.is_eevdf else "CFS"
    without = f", without {', '.join(simulated.without)}" if simulated.without else ""
    turn = ", whose cores are numbered in turn" if simulated.alternate else ""
    return (
        f"Discrete-event model {' or '.join(simulated.models)} under the {scheduler} of Linux {simulated.kernel}, "
        f"{plural(simulated.processors, 'processor')} of "
        f"{plural(simulated.cores_per_processor, 'core')}{turn}{without}; UAC, UAS and links take no CPU"
    )


def _check_guest(where: str, guest: GuestMachine, inside: Sequence[HostSpec]) -> None:
    """Raise an error if a guest lacks a CPU that the testbed's file assigns to a host inside the guest."""
    for host in inside:
        missing = [cpu for cpu in host.cpus + host.helper_cpus if cpu >= guest.cpus]
        if missing:
            raise StableError(
                f"{where}: hosts.{host.role}: the guest has CPUs 0 to {guest.cpus - 1} "
                f"({guest.sockets} sockets of {guest.cores_per_socket}), found {missing}"
            )
        # The scheduler would never move a worker of the proxy between isolated CPUs.
        isolated = guest.isolated if isinstance(guest, VirtualGuest) else ()
        shared = sorted(set(isolated) & set(host.cpus)) if host.role == "sps" else []
        if shared:
            raise StableError(
                f"{where}: virtual.isolated: expected no CPU of the proxy, found {shared}"
            )


def _check_competitors(
    where: str, competitors: Sequence[DeclaredCompetitor], cpus: Sequence[int]
) -> None:
    """Raise an error if a competing program has a repeated name, other CPUs than the proxy, or contradictory keys."""
    names = [competitor.name for competitor in competitors]
    readers = [competitor.name for competitor in competitors if competitor.reads_log]
    if len(readers) > 1:
        raise StableError(
            f"{where}: competitors: {listed(readers)} have no period_us, but only one program can read the log; add "
            "period_us to the others"
        )
    for competitor in competitors:
        place = f"{where}: competitors: {competitor.name}"
        outside = [cpu for cpu in competitor.cpus if cpu not in cpus]
        if names.count(competitor.name) > 1:
            raise StableError(f"{place}: two competitors have this name")
        if outside:
            raise StableError(
                f"{place}: the SPS has CPUs {list(cpus)} for the proxy, found {outside}"
            )
        if competitor.period_us is not None and competitor.busy_us > competitor.period_us:
            raise StableError(
                f"{place}: busy_us: expected at most period_us ({competitor.period_us}), "
                f"found {competitor.busy_us}"
            )
        if competitor.nice and competitor.policy in ("idle", "fifo"):
            raise StableError(
                f"{place}: nice: the kernel ignores the nice value with policy {competitor.policy}; remove it"
            )
