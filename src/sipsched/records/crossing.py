"""`crossing.json`: between which loads a point's packet drop rate crosses its limit, and how that was found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.plan.config import Point
from sipsched.plan.documents import validate

SCHEMA_VERSION = 1
REMEDY = "move away what is there and run snakemake"


@dataclass(frozen=True)
class Trial:
    """One load of a search.

    Attributes
    ----------
    cps, duration_s
        Calls per second, and for how long.
    pdr
        The packet drop rate that came of it; over TCP the same as `call_loss`.
    call_loss
        Share of calls that failed or were set up late; None in records before 22 November 2026.
    """

    cps: int
    duration_s: float
    pdr: float
    call_loss: float | None = None


@dataclass(frozen=True)
class Crossing:
    """What a search found.

    Attributes
    ----------
    point
        Where.
    label
        The mode, and how this kernel stands in for it.
    lower_cps, upper_cps
        The highest load found at or under the limit, and the lowest above it.
    trials
        In their order.
    """

    point: Point
    label: str
    lower_cps: int
    upper_cps: int
    trials: tuple[Trial, ...]


def read_crossing(path: Path) -> Crossing:
    """Read a `crossing.json`.

    Raises
    ------
    StableError
        It is missing, not JSON, of another version, or not the record of a crossing
        (workflow/schemas/crossing.schema.yaml).
    """
    document = validate(read_json(path, SCHEMA_VERSION, REMEDY), "crossing", str(path))
    lower, upper = document["lower_cps"], document["upper_cps"]
    if lower >= upper:
        raise StableError(f"{path}: lower_cps ({lower}) must be less than upper_cps ({upper})")
    return Crossing(
        point=Point(**document["point"]),
        label=document["label"],
        lower_cps=lower,
        upper_cps=upper,
        trials=tuple(
            Trial(trial["cps"], trial["duration_s"], trial["pdr"], _call_loss(trial))
            for trial in document["trials"]
        ),
    )


def _call_loss(trial: Mapping[str, Any]) -> float | None:
    lost, calls = trial.get("calls_lost"), trial.get("calls")
    return lost / calls if calls and lost is not None else None


def read_crossings(raw: Path, points: Iterable[Point]) -> dict[Point, tuple[int, int]]:
    """Read the crossings that were found, of these points.

    Raises
    ------
    StableError
        A record is not one of a crossing, or is that of another point.
    """
    found = {}
    for point in points:
        path = raw / point.crossing_path
        if not path.is_file():
            continue
        crossing = read_crossing(path)
        if crossing.point != point:
            raise StableError(f"{path}: this is of {crossing.point}; {REMEDY}")
        found[point] = (crossing.lower_cps, crossing.upper_cps)
    return found
