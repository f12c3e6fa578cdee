"""The files `config/models/*.yaml`, which describe proxies and machines to simulate, with a source for each number."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.keys import Name, read_named
from sipsched.plan.sut import Sut

MODELS = PROJECT_ROOT / "config" / "models"
KINDS = ("INVITE", "180", "200_INVITE", "ACK", "BYE", "200_BYE")
"""Types of the six messages of a call. The position, counted from 1, is the number in `enum trace_kind`."""
LOG_QUEUE = 11
"""Number of lines that wait in /dev/log before a further line blocks its sender.

SEE unix_recvq_full() in net/unix/af_unix.c, and net.unix.max_dgram_qlen, which is 10 by default.
"""
CELL = ["mode", "cores", "threads"]
CASE = [*CELL, "cps", "rep", "without"]
"""Columns that identify a simulated run without a record. `without` lists the mechanisms that are switched off."""
MEANS = ["k_rcv_us", "t_sip_us", "pdr"]
"""Columns with the means of a simulated run over its served messages. `pdr` is the share of dropped messages."""
FRONTS = {None: 0, "acceptor": 1, "dispatcher": 1}
"""Number of processes of a front end. A proxy as front end is not listed, because it has one process per core."""

Kind = Literal["INVITE", "180", "200_INVITE", "ACK", "BYE", "200_BYE"]
NumberSource = Annotated[Name, Meta(description="Source of the number.")]


@dataclass(frozen=True)
class Whole:
    """A whole number in a model's file, and the source of this number."""

    value: Annotated[int, Meta(ge=0, le=10**12, description="The number.")]
    source: NumberSource


@dataclass(frozen=True)
class Fraction:
    """A share from 0 to 1 in a model's file, and the source of this number."""

    value: Annotated[float, Meta(ge=0, le=1, description="The share.")]
    source: NumberSource


@dataclass(frozen=True)
class YesNo:
    """A yes-or-no property in a model's file, and the source of this property."""

    value: Annotated[bool, Meta(description="Whether the property exists.")]
    source: NumberSource


@dataclass(frozen=True)
class ModelSut:
    """The kind of proxy that a model describes. The simulator rejects every other proxy."""

    proxy: Annotated[str, Meta(description="The proxy program, as in a SUT.")]
    routing: Annotated[
        Literal["stateful", "stateless"], Meta(description="The routing, as in a SUT.")
    ]
    memory_manager: Annotated[str, Meta(description="The proxy's allocator, as in a SUT.")]


@dataclass(frozen=True)
class ServiceTime:
    """The service time of a message type, which is the CPU time of a worker between recv and send."""

    mean_ns: Annotated[float, Meta(gt=0, description="Mean in ns.")]
    scv: Annotated[
        float, Meta(ge=0, description="Variance over the square of the mean, for a lognormal law.")
    ]


@dataclass(frozen=True)
class ServiceTimes:
    """The service times of all message types, which are CPU times of a worker between recv and send."""

    law: Annotated[
        Literal["constant", "exponential", "lognormal"],
        Meta(description="Distribution of the service time."),
    ]
    source: NumberSource
    types: Annotated[
        Mapping[Kind, ServiceTime],
        Meta(
            min_length=len(KINDS),
            description="Mean and variance for each of the six message types.",
        ),
    ]


@dataclass(frozen=True)
class Lengths:
    """The payload length of each message type in bytes."""

    source: NumberSource
    types: Annotated[
        Mapping[Kind, Annotated[int, Meta(ge=0, le=65_535)]],
        Meta(
            min_length=len(KINDS), description="Payload in bytes for each of the six message types."
        ),
    ]


@dataclass(frozen=True)
class ModelParameters:
    """The parameters of hardware/simulator/model.h, each with its source.

    A model's file may omit the last four parameters, which are newer than the first models.
    """

    copy_ns: Annotated[
        Whole, Meta(description="Time of recv after recv has removed the datagram from the queue.")
    ]
    send_ns: Annotated[Whole, Meta(description="Time of send until the datagram leaves.")]
    loop_ns: Annotated[Whole, Meta(description="Time from send to the next recv.")]
    switch_ns: Annotated[Whole, Meta(description="Time of a context switch.")]
    idle_exit_ns: Annotated[Whole, Meta(description="Time that an idle CPU takes to start.")]
    empty_receive_ns: Annotated[Whole, Meta(description="Time of a recv that finds no datagram.")]
    interrupt_ns: Annotated[
        Whole,
        Meta(
            description="Time from the arrival of a datagram to the receive softirq, unless a softirq is "
            "pending. The CPU continues its work meanwhile."
        ),
    ]
    receive_ns: Annotated[Whole, Meta(description="Time of the receive softirq per datagram.")]
    wake_ns: Annotated[
        Whole, Meta(description="Additional time of the softirq for waking a worker.")
    ]
    receive_cpus: Annotated[
        Whole,
        Meta(description="Number of the SPS's CPUs that run receive softirqs. 0 means other CPUs."),
    ]
    irq_time_accounting: Annotated[
        YesNo,
        Meta(
            description="CONFIG_IRQ_TIME_ACCOUNTING: the time of softirqs is not charged to the interrupted "
            "task."
        ),
    ]
    link_ns: Annotated[Whole, Meta(description="Time between agent and SPS, one way.")]
    tick_ns: Annotated[Whole, Meta(description="Time between two ticks.")]
    refill_ns: Annotated[
        Whole,
        Meta(description="Time to refill the caches for a worker that runs after another worker."),
    ]
    refill_near_ns: Annotated[
        Whole, Meta(description="Time to refill the caches after a migration within a processor.")
    ]
    refill_far_ns: Annotated[
        Whole, Meta(description="Time to refill the caches after a migration across processors.")
    ]
    balance_ns: Annotated[Whole, Meta(description="Time to inspect the run queue of one CPU.")]
    stall_every_ns: Annotated[
        Whole, Meta(description="Mean time between stalls of a CPU. 0 means no stalls.")
    ]
    stall_ns: Annotated[Whole, Meta(description="Mean length of a stall.")]
    truesize: Annotated[Whole, Meta(description="Bytes of the receive buffer per datagram.")]
    lock_share: Annotated[
        Fraction, Meta(description="Share of the service time that needs the shared lock.")
    ]
    spin_ns: Annotated[Whole, Meta(description="Time of spinning before sched_yield().")]
    yield_ns: Annotated[Whole, Meta(description="Time of sched_yield().")]
    burst_every_ns: Annotated[
        Whole,
        Meta(
            description="Mean time between bursts of another program on each CPU. 0 means no bursts."
        ),
    ]
    burst_ns: Annotated[Whole, Meta(description="Mean CPU time of a burst.")]
    burst_weight: Annotated[
        Whole, Meta(description="Weight of the programs with bursts: 1024 for nice 0.")
    ]
    logger_ns: Annotated[
        Whole,
        Meta(
            description="CPU time of a logging program per message of the proxy. 0 means no such program."
        ),
    ]
    logger_queue: Annotated[
        Whole,
        Meta(
            description="Largest number of messages that wait for the logging program. Beyond it, a worker waits. 0 "
            "means any number."
        ),
    ]
    logger_apart: Annotated[
        Whole,
        Meta(
            description="1 if the logging program has a CPU of its own, which no worker uses. 0 if it uses the proxy's "
            "CPUs."
        ),
    ] = Whole(0, "Not in the model's file.")
    socket_lock_ns: Annotated[
        Whole,
        Meta(
            description="Time for which a worker that receives a datagram, or the softirq, holds the lock of the "
            "socket's queue. Other CPUs spin meanwhile."
        ),
    ] = Whole(0, "Not in the model's file.")
    transfer_ns: Annotated[
        Whole,
        Meta(
            description="Additional time per message if a worker on another CPU received the socket's previous "
            "message, because the cache lines of the socket and of the shared memory are on that CPU."
        ),
    ] = Whole(0, "Not in the model's file.")
    refill_doubling_ns: Annotated[
        Whole,
        Meta(
            description="Further time to refill the caches, per doubling of 1 + N. N is the number of other workers "
            "and other programs that have run on the CPU since the worker last ran on the CPU."
        ),
    ] = Whole(0, "Not in the model's file.")
    receive_first_cpu: Annotated[
        Whole,
        Meta(
            description="Number of the first CPU that runs receive softirqs. The proxy's CPUs have the numbers from 0 "
            "on. A CPU with a larger number only receives."
        ),
    ] = Whole(0, "Not in the model's file.")


@dataclass(frozen=True)
class Costs:
    """The CPU time per message that each deployment adds. The simulator rejects deployments without this number."""

    dispatch_ns: Annotated[
        Whole | None,
        Meta(description="Time of the BPF program that chooses a socket by Call-ID, per datagram."),
    ] = None
    front_ns: Annotated[
        Whole | None,
        Meta(description="CPU time per message of a proxy without transactions as front end."),
    ] = None
    stream_ns: Annotated[
        Whole | None,
        Meta(description="Additional time per message over TCP, compared with a datagram."),
    ] = None
    pass_ns: Annotated[
        Whole | None,
        Meta(description="Time of the accepting process to pass a connection to a worker."),
    ] = None
    keep_ns: Annotated[
        Whole | None,
        Meta(description="Time for which a worker keeps a connection after its last message."),
    ] = None
    dispatcher_ns: Annotated[
        Whole | None, Meta(description="CPU time of sipdispatch per message.")
    ] = None


@dataclass(frozen=True)
class DeclaredModel:
    """A proxy and a machine to simulate, as a model's file declares them."""

    version: Annotated[
        Literal[1], Meta(description="Version of the simulator for which the model was made.")
    ]
    description: Annotated[str, Meta(description="Name of the proxy and of the machine.")]
    fitted_to: Annotated[str, Meta(description="Source of the fitted numbers.")]
    from_: Annotated[
        Literal["records", "papers"],
        Meta(
            description="records: the machine has records, and a campaign's own fit replaces the fitted numbers. "
            "papers: only papers describe the machine."
        ),
    ]
    sut: Annotated[ModelSut, Meta(description="The SUT of the model.")]
    service: Annotated[ServiceTimes, Meta(description="CPU time between recv and send.")]
    numbers: Annotated[
        ModelParameters, Meta(description="Parameters of hardware/simulator/model.h.")
    ]
    lengths: Annotated[Lengths, Meta(description="Lengths of the messages.")]
    wakes_all: Annotated[bool, Meta(description="Whether a datagram wakes every waiting worker.")]
    deployments: Annotated[
        Costs,
        Meta(description="Costs of other deployments than workers with one shared UDP socket."),
    ] = Costs()


@dataclass(frozen=True)
class Model:
    """A proxy and a machine to simulate, with the parameters of the simulator.

    Attributes
    ----------
    description, fitted_to
        Name of the proxy and of the machine, and source of the fitted parameters.
    from_records
        Whether the project has records of measurements on the model's machine.
    sut
        Proxy, routing and memory manager.
    numbers
        Parameters by the names of hardware/simulator/model.h.
    costs
        Costs of deployments, with the keys of `Arrangement.costs`.
    """

    name: str
    description: str
    fitted_to: str
    from_records: bool
    sut: ModelSut
    numbers: Mapping[str, Any]
    costs: Mapping[str, int]

    def check_sut(self, sut: Sut) -> None:
        """Raise an error for a SUT that the model does not describe.

        Raises
        ------
        StableError
            The SUT has another proxy, routing or memory manager than the model. Or the model lacks costs of the
            deployment. Or the SUT is a control run without a probe.
        """
        for key, value in vars(self.sut).items():
            if getattr(sut, key) != value:
                raise StableError(
                    f"SUT {sut.name}: {key}: model {self.name} describes {value}, found "
                    f"{getattr(sut, key)}; name another model in the testbed's file"
                )
        missing = [name for name in sut.arrangement.costs.values() if name not in self.costs]
        if missing:
            raise StableError(
                f"SUT {sut.name}: {sut.transport}, {sut.deployment}: model {self.name} has no "
                f"deployments.{missing[0]}; add it with its source, or name another model"
            )
        if sut.probe == "off" and not (sut.over_tcp or sut.fronted):
            raise StableError(f"SUT {sut.name}: the simulator has no probe; remove probe: off")

    def deployed(self, sut: Sut, threads: int, cores: int) -> dict[str, Any]:
        """Return the simulator's parameters for the deployment of a SUT, after `check_sut` has checked the SUT.

        A proxy as front end has one process per core, as in hardware/proxies/kamailio-front.cfg.j2. A front end on its
        own host takes no time, like UAC and UAS.
        """
        kind = sut.arrangement
        return {
            "peers": 1,
            "sockets": threads if kind.queues else 1,
            "instances": sut.instances(threads),
            "choice": kind.choice,
            "streams": sut.over_tcp,
            "connections": 0 if sut.connections in (None, "per-call") else sut.connections,
            "fronts": FRONTS.get(kind.front, cores) if sut.front_host == "sps" else 0,
            **dict.fromkeys(("dispatch_ns", "stream_ns", "front_ns", "keep_ns"), 0),
            **{number: self.costs[name] for number, name in kind.costs.items()},
        }


def load_model(name: str, folder: Path = MODELS) -> Model:
    """Read the model in `<folder>/<name>.yaml`.

    Raises
    ------
    StableError
        The file does not exist; the message lists the existing files. Or a key is missing, unknown or out of range.
    """
    model = read_named(DeclaredModel, "model", name, folder)
    service = model.service.types
    return Model(
        name=name,
        description=model.description,
        fitted_to=model.fitted_to,
        from_records=model.from_ == "records",
        sut=model.sut,
        numbers={
            **fitted_numbers(
                {key: number.value for key, number in vars(model.numbers).items()},
                {str(kind): length for kind, length in model.lengths.types.items()},
                {str(kind): time.mean_ns for kind, time in service.items()},
                {str(kind): time.scv for kind, time in service.items()},
            ),
            "service_law": model.service.law,
            "trying": model.sut.routing == "stateful",
            "wake_all": model.wakes_all,
        },
        costs={key: cost.value for key, cost in vars(model.deployments).items() if cost},
    )


def fitted_numbers(
    numbers: Mapping[str, Any],
    lengths: Mapping[str, int],
    mean_ns: Mapping[str, float],
    scv: Mapping[str, float],
) -> dict[str, Any]:
    """Convert fitted parameters to the simulator's parameter names and units.

    Parameters
    ----------
    numbers
        Parameters by their names in a model's file. Every datagram has the same `truesize`.
    lengths, mean_ns, scv
        Bytes, mean service time, and squared coefficient of variation of the service time, per message type.
    """
    return {
        **numbers,
        "truesize": [numbers["truesize"]] * (len(KINDS) + 1),
        "length": [0, *(lengths[kind] for kind in KINDS)],
        "service_ns": [0.0, *(float(mean_ns[kind]) for kind in KINDS)],
        "service_scv": [0.0, *(float(scv[kind]) for kind in KINDS)],
    }


def model_of(sut: Sut) -> Model | None:
    """Return the first model, in alphabetical order, that describes a SUT, or None without such a model.

    Models of machines without records are excluded, because their assumptions hold only for the described machines.
    """
    for path in sorted(MODELS.glob("*.yaml")):
        model = load_model(path.stem)
        if not model.from_records:
            continue
        try:
            model.check_sut(sut)
        except StableError:
            continue
        return model
    return None
