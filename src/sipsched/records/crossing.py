"""What searches found: between which loads a point's packet drop rate crosses a limit, and how that was found.

`crossing.json` is of the loads of other measurements, `capacity~LIMIT~WIDTH.json` of a capacity.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.plan.config import Capacity, Point
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
        The highest load found at or under the limit, and the lowest above it. Of a capacity one of them may
        be None: the limit was exceeded at the lowest load of the search, or not at the highest.
    trials
        In their order.
    ended_by
        Of a capacity, what ended its search: `width`, `time` or `range`. None: it is none.
    took_s
        Seconds that the search took; None if its record does not say.
    """

    point: Point
    label: str
    lower_cps: int | None
    upper_cps: int | None
    trials: tuple[Trial, ...]
    ended_by: str | None = None
    took_s: float | None = None

    @property
    def is_bracketed(self) -> bool:
        """Whether there is a load on either side."""
        return self.lower_cps is not None and self.upper_cps is not None

    @property
    def loads(self) -> tuple[int, int]:
        """Give the loads to measure: the two around the crossing, or twice the one that the range ends at."""
        ends = [cps for cps in (self.lower_cps, self.upper_cps) if cps is not None]
        return ends[0], ends[-1]

    @property
    def found(self) -> str:
        """Say where the limit is crossed."""
        if self.lower_cps is None:
            return f"below {self.upper_cps} cps, the lowest load of the search, where more than it is dropped"
        if self.upper_cps is None:
            return f"above {self.lower_cps} cps, the highest load of the search, where no more than it is dropped"
        late = ", where the time of the search was up" if self.ended_by == "time" else ""
        return f"between {self.lower_cps} and {self.upper_cps} cps{late}"


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
    goal = Capacity(**document["goal"]) if "goal" in document else None
    if lower is None or upper is None:
        if goal is None or lower == upper:
            raise StableError(
                f"{path}: lower_cps ({lower}) and upper_cps ({upper}) must be loads; {REMEDY}"
            )
    elif lower >= upper:
        raise StableError(f"{path}: lower_cps ({lower}) must be less than upper_cps ({upper})")
    return Crossing(
        point=Point(**document["point"], goal=goal),
        label=document["label"],
        lower_cps=lower,
        upper_cps=upper,
        trials=tuple(
            Trial(trial["cps"], trial["duration_s"], trial["pdr"], _call_loss(trial))
            for trial in document["trials"]
        ),
        ended_by=document.get("ended_by"),
        took_s=_took_s(document),
    )


def _took_s(document: Mapping[str, Any]) -> float | None:
    try:
        ends = (datetime.fromisoformat(document[key]) for key in ("started_at", "finished_at"))
        started, finished = ends
    except (KeyError, ValueError):
        return None
    return (finished - started).total_seconds()


def _call_loss(trial: Mapping[str, Any]) -> float | None:
    lost, calls = trial.get("calls_lost"), trial.get("calls")
    return lost / calls if calls and lost is not None else None


def read_crossings(raw: Path, points: Iterable[Point]) -> dict[Point, tuple[int, int]]:
    """Read between which loads the crossings of these points were found, where they were.

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
        found[point] = crossing.loads
    return found
