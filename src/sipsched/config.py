"""What is studied: the configuration, its validation and the runs it asks for."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from sipsched.errors import StableError
from sipsched.verdict import Limits

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = PROJECT_ROOT / "workflow" / "schemas"
TESTBEDS = PROJECT_ROOT / "hardware" / "testbeds"

LONGEST_VALUE = 60
"""Characters of a wrong value that a message shows."""

RUN_PATTERN = "{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}/cps~{cps}/rep~{rep}"


CROSSING_PATTERN = "{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}/crossing.json"


@dataclass(frozen=True, order=True)
class Run:
    """One repetition of a point: (cores, threads, cps, mode, repetition) on one testbed and SUT."""

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    rep: int

    @property
    def path(self) -> Path:
        """Relative path of everything that belongs to this run."""
        return Path(RUN_PATTERN.format(**vars(self)))

    def __str__(self) -> str:
        """Name the run as a person would say it."""
        return (
            f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} "
            f"cps={self.cps} rep={self.rep} on {self.testbed}"
        )

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Run":
        """Read the tuple back from the text of a path."""
        return cls(
            testbed=wildcards["testbed"],
            sut=wildcards["sut"],
            mode=wildcards["mode"],
            **{name: int(wildcards[name]) for name in ("cores", "threads", "cps", "rep")},
        )


def crossing_path(point: Run) -> Path:
    """Relative path of the record of where a point's packet drop rate crosses its limit."""
    return Path(CROSSING_PATTERN.format(**vars(point)))


@dataclass(frozen=True)
class Sut:
    """What is measured: a proxy program, how it routes and how its memory is managed."""

    name: str
    proxy: str
    routing: str
    memory_manager: str
    shared_memory_mib: int
    package_memory_mib: int
    receive_buffer_bytes: int


@dataclass(frozen=True)
class Load:
    """How calls are offered, the same for every run of a campaign."""

    generator: str
    law: str
    duration_s: float
    warmup_s: float
    ring_time_ms: int
    hold_time_ms: int
    retransmissions: bool
    drain_s: float


@dataclass(frozen=True)
class Search:
    """How the load is searched at which the packet drop rate crosses its limit."""

    lowest_cps: int
    highest_cps: int
    relative_width: float
    trial_s: float
    trials_s: float
    limit_s: float


@dataclass(frozen=True)
class Study:
    """A set of points and the notebook that reads them."""

    name: str
    notebook: str
    suts: tuple[str, ...]
    modes: tuple[str, ...]
    cores: tuple[int, ...]
    threads: tuple[int, ...]
    cps: tuple[int, ...]
    repetitions: int

    def runs(self, testbed: str) -> list[Run]:
        """List the runs in blocks: every point once before any is repeated."""
        return [
            Run(testbed, sut, mode, cores, threads, cps, rep)
            for rep, sut, mode, cores, threads, cps in itertools.product(
                range(1, self.repetitions + 1),
                self.suts,
                self.modes,
                self.cores,
                self.threads,
                self.cps,
            )
        ]


@dataclass(frozen=True)
class Document:
    """A page that rests on files of this repository and on no measurement."""

    name: str
    notebook: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Config:
    """A validated configuration."""

    testbeds: tuple[str, ...]
    probe: str
    load: Load
    pdr_limit: float
    search: Search
    validity: Mapping[str, Limits]
    suts: Mapping[str, Sut]
    studies: Mapping[str, Study]
    documents: Mapping[str, Document]
    only_measured: bool
    records: Path

    def sut(self, name: str) -> Sut:
        """Look a SUT up.

        Raises
        ------
        StableError
            The configuration does not define it.
        """
        if name not in self.suts:
            raise StableError(
                f"config: unknown SUT '{name}'; defined under suts: {', '.join(sorted(self.suts))}"
            )
        return self.suts[name]

    def runs(self, testbed: str | None = None) -> list[Run]:
        """List every run that the studies ask for, once, in the order to measure them."""
        testbeds = self.testbeds if testbed is None else (testbed,)
        runs = itertools.chain.from_iterable(
            study.runs(name) for name in testbeds for study in self.studies.values()
        )
        return list(dict.fromkeys(runs))


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises
    ------
    StableError
        The file is missing or is not YAML; the message names file and line.
    """
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise StableError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" line {where.line + 1}" if where else ""
        raise StableError(
            f"{path}:{line} is not YAML: {getattr(error, 'problem', error)}"
        ) from None


def validate(instance: Any, schema: str, what: str) -> None:
    """Check a document against `workflow/schemas/<schema>.schema.yaml`.

    Raises
    ------
    StableError
        Names the document, the key and what was expected there, in one line.
    """
    # fastjsonschema: importing jsonschema takes 1.5 s beside JupyterLab, in every job
    check = fastjsonschema.compile(read_yaml(SCHEMAS / f"{schema}.schema.yaml"))
    try:
        check(instance)
    except fastjsonschema.JsonSchemaValueException as error:
        message = error.message.removeprefix("data").lstrip(". ")
        raise StableError(f"{what}: {message}, found {_shorten(error.value)}") from None


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def parse_config(document: Mapping[str, Any]) -> Config:
    """Turn a loaded configuration into values.

    Parameters
    ----------
    document
        The mapping that `config/config.yaml` holds, with any overrides applied.

    Raises
    ------
    StableError
        An unknown key, a value out of range, a SUT or mode that is not defined.
    """
    what = "config/config.yaml (or --config)"
    validate(document, "config", what)
    suts = {name: Sut(name=name, **body) for name, body in document["suts"].items()}
    studies = {}
    for name, body in document["studies"].items():
        axes = {key: tuple(body[key]) for key in ("suts", "modes", "cores", "threads", "cps")}
        studies[name] = Study(
            name=name, notebook=body["notebook"], repetitions=body["repetitions"], **axes
        )
        for sut in axes["suts"]:
            if sut not in suts:
                raise StableError(
                    f"{what}: studies.{name}.suts: '{sut}' is not defined under suts "
                    f"({', '.join(sorted(suts))})"
                )
    return Config(
        testbeds=tuple(document["testbeds"]),
        probe=document["probe"],
        load=Load(**document["load"]),
        pdr_limit=document["pdr_limit"],
        search=Search(**document["search"]),
        validity={rule: Limits(**limits) for rule, limits in document["validity"].items()},
        suts=suts,
        studies=studies,
        documents={
            name: Document(name, body["notebook"], tuple(body["files"]))
            for name, body in document.get("documents", {}).items()
        },
        only_measured=document.get("only_measured", False),
        records=Path(document.get("records", "raw")),
    )


def load_config(path: Path = PROJECT_ROOT / "config" / "config.yaml") -> Config:
    """Read and check a configuration file."""
    return parse_config(read_yaml(path))
