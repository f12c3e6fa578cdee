"""A model fitted to runs of a campaign, as the workflow passes it from the fit to what is predicted with it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.files import read_json, whole
from sipsched.records.run_document import as_part

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Fitted:
    """What runs of mode `default` tell of the simulator's numbers.

    Attributes
    ----------
    sut
        Whose runs they are.
    model
        Of config/models, which has the numbers that are assumed.
    why
        Why there is no fit; then all else is empty.
    runs
        Paths of the records' tuples.
    messages
        How many messages it is from.
    kernel
        Whose scheduler is simulated, as in a testbed's file.
    base_slice_ns
        Of EEVDF; None if the records do not tell it.
    numbers
        By the simulator's names; the others are the model's.
    draws
        The same, each of as many runs drawn with replacement.
    """

    why: str = ""
    sut: str = ""
    model: str = ""
    runs: tuple[str, ...] = ()
    messages: int = 0
    kernel: str = ""
    base_slice_ns: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    draws: tuple[Mapping[str, Any], ...] = ()


def to_json(fitted: Fitted) -> str:
    """Write a fit as text."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(fitted)}, indent=1)


def from_json(text: str, where: Path) -> Fitted:
    """Read a fit from text.

    Raises
    ------
    StableError
        It is not one, or of another version.
    """
    content = json.loads(text)
    if content.pop("schema_version", None) != SCHEMA_VERSION:
        raise StableError(f"{where}: a fit of another version; delete it and run snakemake")
    return as_part(Fitted, content, str(where))


def write_fitted(fitted: Fitted, path: Path) -> None:
    """Write a fit; the file appears whole."""
    with whole(path) as partial:
        partial.write_text(to_json(fitted) + "\n")


def read_fitted(path: Path) -> Fitted:
    """Read a fit.

    Raises
    ------
    StableError
        The file is missing, damaged or of another version.
    """
    return as_part(
        Fitted, read_json(path, SCHEMA_VERSION, "delete it and run snakemake"), str(path)
    )
