"""Models for the simulator: config/models/*.yaml, each number with its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Sut
from sipsched.plan.documents import read_yaml, validate

MODELS = PROJECT_ROOT / "config" / "models"
KINDS = ("INVITE", "180", "200_INVITE", "ACK", "BYE", "200_BYE")
"""Message types of a call, in the order of `enum trace_kind` from 1."""
CELL = ["mode", "cores", "threads"]
CASE = [*CELL, "cps", "rep", "without"]
"""What names a run of which the means alone are kept: `without` has mechanisms joined by commas, or nothing."""
MEANS = ["k_rcv_us", "t_sip_us", "pdr"]
"""Those means, over the messages served; `pdr` is the share of messages refused."""
COSTS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("udp", "shared"): (),
        ("udp", "sockets"): ("dispatch_ns",),
        ("udp", "partitioned"): ("dispatch_ns",),
        ("udp", "front"): ("front_ns",),
        ("tcp", "shared"): ("stream_ns", "pass_ns", "keep_ns"),
        ("tcp", "listeners"): ("stream_ns",),
        ("tcp", "dispatcher"): ("stream_ns", "dispatcher_ns"),
    }
)
"""Transport and deployment to what a model has to say of them."""


@dataclass(frozen=True)
class Model:
    """A proxy and a machine as the simulator takes them.

    Attributes
    ----------
    description, fitted_to
        Of what it is a model, and what its numbers come from.
    from_records
        Whether its machine is one of our records.
    sut
        Proxy, routing and memory manager of the SUT that it is of.
    numbers
        By the names of hardware/simulator/model.h.
    costs
        Of deployments, by the names in `COSTS`.
    """

    name: str
    description: str
    fitted_to: str
    from_records: bool
    sut: Mapping[str, str]
    numbers: Mapping[str, Any]
    costs: Mapping[str, int]

    def check_sut(self, sut: Sut) -> None:
        """Refuse a SUT that it is no model of.

        Raises
        ------
        StableError
            Another proxy, routing or memory manager, a deployment that it has no costs of, or a control run without a
            probe.
        """
        for key, value in self.sut.items():
            if getattr(sut, key) != value:
                raise StableError(
                    f"SUT {sut.name}: {key}: model {self.name} is of {value}, found "
                    f"{getattr(sut, key)}; name a model of it in the testbed's file"
                )
        missing = [name for name in COSTS[sut.transport, sut.deployment] if name not in self.costs]
        if missing:
            raise StableError(
                f"SUT {sut.name}: {sut.transport}, {sut.deployment}: model {self.name} has no "
                f"deployments.{missing[0]}; give it, with its source, or name another model"
            )
        if sut.probe == "off" and not (sut.over_tcp or sut.fronted):
            raise StableError(f"SUT {sut.name}: a model has no probe that could be off")

    def deployed(self, sut: Sut, threads: int, cores: int) -> dict[str, Any]:
        """Give the simulator's numbers of a deployment; `Model.check_sut` says whether it has one.

        A front has a process a core, as hardware/proxies/kamailio-front.cfg.j2.
        """
        transport, deployment, costs = sut.transport, sut.deployment, self.costs
        shared: dict[str, Any] = {
            **{"peers": 1, "sockets": 1, "choice": "call", "dispatch_ns": 0, "instances": 1},
            **{"streams": sut.over_tcp, "stream_ns": costs["stream_ns"] if sut.over_tcp else 0},
            "connections": 0 if sut.connections in (None, "per-call") else sut.connections,
            **{"fronts": 0, "front_ns": 0, "keep_ns": 0},
        }
        each = {"sockets": threads, "instances": threads}
        changes: Mapping[tuple[str, str], Mapping[str, Any]] = {
            ("udp", "shared"): {},
            ("udp", "sockets"): {"sockets": threads, "dispatch_ns": costs.get("dispatch_ns")},
            ("udp", "partitioned"): {**each, "dispatch_ns": costs.get("dispatch_ns")},
            ("udp", "front"): {**each, "fronts": cores, "front_ns": costs.get("front_ns")},
            ("tcp", "shared"): {
                **{"sockets": threads, "choice": "holder", "fronts": 1},
                **{"front_ns": costs.get("pass_ns"), "keep_ns": costs.get("keep_ns")},
            },
            ("tcp", "listeners"): {**each, "choice": "connection"},
            ("tcp", "dispatcher"): {
                **each,
                **{"fronts": 1, "front_ns": costs.get("dispatcher_ns")},
            },
        }
        return {**shared, **changes[transport, deployment]}


def load_model(name: str, folder: Path = MODELS) -> Model:
    """Read `<folder>/<name>.yaml`.

    Raises
    ------
    StableError
        No such file (lists those there are), or a key that is missing, unknown or out of range.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise StableError(f"model '{name}': no file {path}; there are: {known}")
    body = validate(read_yaml(path), "model", str(path))
    service = body["service"]["types"]
    return Model(
        name=name,
        description=body["description"],
        fitted_to=body["fitted_to"],
        from_records=body["from"] == "records",
        sut=body["sut"],
        numbers={
            **fitted_numbers(
                {key: each["value"] for key, each in body["numbers"].items()},
                body["lengths"]["types"],
                {kind: each["mean_ns"] for kind, each in service.items()},
                {kind: each["scv"] for kind, each in service.items()},
            ),
            "service_law": body["service"]["law"],
            "trying": body["sut"]["routing"] == "stateful",
            "wake_all": body["wakes_all"],
        },
        costs={key: each["value"] for key, each in body.get("deployments", {}).items()},
    )


def fitted_numbers(
    numbers: Mapping[str, Any],
    lengths: Mapping[str, int],
    mean_ns: Mapping[str, float],
    scv: Mapping[str, float],
) -> dict[str, Any]:
    """Give numbers of a model by the simulator's names; of what is no message of a call there is none.

    Parameters
    ----------
    numbers
        By the names of a model's file; `truesize` is of every datagram.
    lengths, mean_ns, scv
        By message type: bytes, and mean and variance over mean square of the service time.
    """
    return {
        **numbers,
        "truesize": [numbers["truesize"]] * (len(KINDS) + 1),
        "length": [0, *(lengths[kind] for kind in KINDS)],
        "service_ns": [0.0, *(float(mean_ns[kind]) for kind in KINDS)],
        "service_scv": [0.0, *(float(scv[kind]) for kind in KINDS)],
    }


def model_of(sut: Sut, folder: Path = MODELS) -> Model | None:
    """Find the first model, by name, of a SUT on a machine of our records; None if there is none.

    A model of another machine is left out: what is assumed of that one holds for no other.
    """
    for path in sorted(folder.glob("*.yaml")):
        model = load_model(path.stem, folder)
        if not model.from_records:
            continue
        try:
            model.check_sut(sut)
        except StableError:
            continue
        return model
    return None
