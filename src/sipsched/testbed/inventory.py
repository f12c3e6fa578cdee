"""Testbed files: which hosts there are and what is known of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT, TESTBEDS
from sipsched.plan.config import Point, Run, TestbedLabels
from sipsched.plan.documents import read_yaml, validate
from sipsched.words import plural

LOCK_WAIT_S = 600.0
ROLES = ("uac", "sps", "uas")


def native_folder(workdir: PurePosixPath, part: str) -> PurePosixPath:
    """Folder on a host in which provisioning built a native part: `probe`, `generator` or `scheduler`."""
    return workdir / "native" / part


@dataclass(frozen=True)
class HostSpec:
    """One host: how to reach it and what it offers a run."""

    role: str
    address: str
    user: str
    identity_file: str
    known_hosts: str
    sip_address: str
    sip_port: int
    cpus: tuple[int, ...]
    helper_cpus: tuple[int, ...]
    port: int = 22

    def __str__(self) -> str:
        """Name the host for messages: role and address."""
        return f"{self.role} ({self.user}@{self.address}:{self.port})"


@dataclass(frozen=True)
class Tuning:
    """What a run may change on the SPS, and restores when it ends.

    Attributes
    ----------
    cores_by
        `cpuset`: the proxy is held to its CPUs; `hotplug`: all others but the helpers go offline.
    quiet
        Of autogroup, governor, turbo, numa_balancing and irqbalance those that may be stilled.
    interrupt_cpus, service_cpus
        CPUs for interrupts and for the system's services; empty: left where they are.
    receive_interfaces, receive_cpus
        Interfaces whose receive work is steered (RPS), and the CPUs it goes to.
    """

    cores_by: str = "cpuset"
    quiet: tuple[str, ...] = ()
    interrupt_cpus: tuple[int, ...] = ()
    service_cpus: tuple[int, ...] = ()
    receive_interfaces: tuple[str, ...] = ()
    receive_cpus: tuple[int, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything but the cores may be changed."""
        return bool(self.quiet or self.interrupt_cpus or self.receive_interfaces)


@dataclass(frozen=True)
class Guest:
    """The virtual machine that is the SPS of a testbed of kind `vm`."""

    kernel: str
    """A Debian kernel (`6.1`, `5.10`) or the path of a bzImage."""
    sockets: int
    cores_per_socket: int
    memory_mib: int
    accelerator: str
    """`kvm`, `tcg`, or `auto`: KVM where it works."""
    host_cpus: tuple[int, ...]
    """CPUs of this machine that QEMU is held to; empty: all."""

    @property
    def kernel_name(self) -> str:
        """Name the kernel without saying where its file is; both of Debian's are older than EEVDF."""
        own = "/" in self.kernel
        return Path(self.kernel).name if own else f"Debian's {self.kernel} kernel (CFS)"

    @property
    def cpus(self) -> int:
        """Number of its CPUs."""
        return self.sockets * self.cores_per_socket


@dataclass(frozen=True)
class Simulated:
    """The machine that the simulator takes the place of, of a testbed of kind `simulated`."""

    kernel: str
    """Whose scheduler it has: `6.18` (EEVDF) or `5.10` (CFS)."""
    processors: int
    cores_per_processor: int
    model: str
    """A file of config/models."""
    without: tuple[str, ...]
    """Mechanisms that are switched off."""
    base_slice_ns: int | None = None
    """Of EEVDF: the slice of a task that has none of its own; None: the kernel's for the CPUs of the run."""
    setattr_ns: int = 0
    """What it takes of a worker's CPU to switch it to another mode; 0: whatever switches it is elsewhere."""

    @property
    def is_eevdf(self) -> bool:
        """Whether its kernel has EEVDF, not CFS."""
        return self.kernel == "6.18"

    @property
    def cpus(self) -> int:
        """Number of its CPUs."""
        return self.processors * self.cores_per_processor


@dataclass(frozen=True)
class Testbed:
    """Three hosts, and the words that label every figure measured on them."""

    name: str
    kind: str
    fidelity: str
    workdir: PurePosixPath
    """Folder on each host; its user's alone."""
    uac: HostSpec
    sps: HostSpec
    uas: HostSpec
    tuning: Tuning = Tuning()
    remark: str = ""
    """What the file says beside what this class knows: switches, links, machines."""
    lock_wait_s: float = LOCK_WAIT_S
    """How long a run waits while somebody else uses the testbed."""
    guest: Guest | None = None
    """Of kind `vm` only."""
    accelerator: str | None = None
    """What runs the guest: `kvm` or `tcg`; known once it is up. None where there is no guest."""
    simulated: Simulated | None = None
    """Of kind `simulated` only, which has no hosts: nothing is reached at the addresses of its three."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether this machine makes the hosts itself, and the load generators run on it."""
        return self.kind in ("local", "vm")

    @property
    def hosts(self) -> tuple[HostSpec, HostSpec, HostSpec]:
        """The hosts in the order of the signal's way: uac, sps, uas."""
        return (self.uac, self.sps, self.uas)

    @property
    def description(self) -> str:
        """Say what it is, from what its file makes it: a file that was copied and changed says so."""
        if self.simulated is not None:
            return f"{_describe_simulated(self.simulated)}{self._remark}"
        hosts = "; ".join(f"{host.role.upper()} on {_name_cpus(host.cpus)}" for host in self.hosts)
        helpers = f"what watches the SPS on its {_name_cpus(self.sps.helper_cpus)}"
        return f"{self._setting}: {hosts}, {helpers}{self._remark}"

    @property
    def _remark(self) -> str:
        return f". {self.remark}" if self.remark else ""

    @property
    def _setting(self) -> str:
        if self.kind == "local":
            return "Three network namespaces on one machine, joined by veth"
        if self.guest is not None:
            return (
                f"SPS in a QEMU guest ({plural(self.guest.sockets, 'socket')} of "
                f"{plural(self.guest.cores_per_socket, 'core')}, {self.guest.kernel_name}), UAC and "
                "UAS in network namespaces outside it"
            )
        return "Three hosts reached by SSH"

    @property
    def labels(self) -> TestbedLabels:
        """What a record says of the testbed that it comes from."""
        return TestbedLabels(
            self.name, self.kind, self.description, self.fidelity, self.accelerator
        )

    def check_cores(self, asked: Iterable[Point | Run]) -> None:
        """Refuse what needs more cores than the SPS has.

        Raises
        ------
        StableError
            Lists the points that cannot run, and the CPUs that the testbed's file gives the SPS.
        """
        points = dict.fromkeys(
            f"cores={each.cores} threads={each.threads}"
            + (f" cps={each.cps}" if isinstance(each, Run) else "")
            for each in asked
            if each.cores > len(self.sps.cpus)
        )
        if points:
            raise StableError(
                f"testbed {self.name}: the SPS has {len(self.sps.cpus)} CPU(s) for the proxy "
                f"({list(self.sps.cpus)} in {TESTBEDS / self.name}.yaml); "
                f"{len(points)} point(s) ask for more: {'; '.join(points)}"
            )


def load_testbed(name: str, folder: Path = PROJECT_ROOT / TESTBEDS) -> Testbed:
    """Read `<folder>/<name>.yaml`.

    Raises
    ------
    StableError
        No such file (lists those there are), or a key that is missing, unknown or out of range.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise StableError(f"testbed '{name}': no file {path}; there are: {known}")
    document = validate(read_yaml(path), "testbed", str(path))
    if document["name"] != name:
        raise StableError(
            f"{path}: name: expected '{name}' as the file, found '{document['name']}'"
        )
    simulated = _read_simulated(document["simulated"]) if document["kind"] == "simulated" else None
    hosts: dict[str, HostSpec] = {}
    for role in ROLES:
        if simulated:
            hosts[role] = _no_host(role, simulated)
            continue
        body = dict(document["hosts"][role])
        for key in ("cpus", "helper_cpus"):
            body[key] = tuple(body[key])
        for key in ("identity_file", "known_hosts"):
            body[key] = str(Path(body[key]).expanduser())
        hosts[role] = HostSpec(role=role, **body)
    guest = _read_guest(document["vm"]) if document["kind"] == "vm" else None
    if guest:
        _check_guest(path, guest, hosts["sps"])
    return Testbed(
        name=document["name"],
        kind=document["kind"],
        fidelity=document["fidelity"],
        workdir=PurePosixPath(document.get("workdir", "/nonexistent")),
        uac=hosts["uac"],
        sps=hosts["sps"],
        uas=hosts["uas"],
        tuning=_tuning(document.get("tuning", {})),
        remark=document.get("description", ""),
        guest=guest,
        simulated=simulated,
        lock_wait_s=float(document.get("lock_wait_s", LOCK_WAIT_S)),
    )


def _name_cpus(cpus: Sequence[int]) -> str:
    """Name CPUs in their order, the runs among them by their ends."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    ends = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in parts)
    return f"CPU{'s' if len(cpus) > 1 else ''} {ends}"


def _tuning(body: Mapping[str, Any]) -> Tuning:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in body.items()
    }
    return Tuning(**values)


def _read_simulated(body: Mapping[str, Any]) -> Simulated:
    return Simulated(**{**body, "without": tuple(body["without"])})


def _describe_simulated(simulated: Simulated) -> str:
    """Say what is simulated, and what is not."""
    scheduler = "EEVDF" if simulated.is_eevdf else "CFS"
    without = f", without {', '.join(simulated.without)}" if simulated.without else ""
    return (
        f"Discrete-event model {simulated.model} under the {scheduler} of Linux {simulated.kernel}, "
        f"{plural(simulated.processors, 'processor')} of "
        f"{plural(simulated.cores_per_processor, 'core')}{without}; UAC, UAS and links take no CPU"
    )


def _no_host(role: str, simulated: Simulated) -> HostSpec:
    """Give the CPUs of what is no host; `session.open_hosts` refuses to look for it."""
    cpus = tuple(range(simulated.cpus)) if role == "sps" else ()
    return HostSpec(role, "simulated", "", "", "", "", 0, cpus=cpus, helper_cpus=())


def _read_guest(body: Mapping[str, Any]) -> Guest:
    kernel = body["kernel"]
    if "/" in kernel:
        kernel = str(PROJECT_ROOT / Path(kernel).expanduser())
    return Guest(
        kernel=kernel,
        sockets=body["sockets"],
        cores_per_socket=body["cores_per_socket"],
        memory_mib=body["memory_mib"],
        accelerator=body["accelerator"],
        host_cpus=tuple(body.get("host_cpus", ())),
    )


def _check_guest(path: Path, guest: Guest, sps: HostSpec) -> None:
    missing = [cpu for cpu in sps.cpus + sps.helper_cpus if cpu >= guest.cpus]
    if missing:
        raise StableError(
            f"{path}: hosts.sps: the guest has CPUs 0 to {guest.cpus - 1} "
            f"({guest.sockets} sockets of {guest.cores_per_socket}), found {missing}"
        )
