"""Systems with every capacity of them that is known, and what a page of capacity rests on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sipsched.analysis.capacity.options import Option, basis_of_prediction, best_by_cores
from sipsched.analysis.capacity.scaling import LeftOut, paper_threads
from sipsched.analysis.capacity.service_times import ServiceTimes
from sipsched.analysis.run_table import Buffers
from sipsched.analysis.statistics import Interval


@dataclass(frozen=True)
class Source:
    """A summary that was asked for.

    Attributes
    ----------
    name
        Its place: study, testbed, file.
    found
        Whether the file is there.
    runs
        How many of its runs count.
    cores
        Numbers of cores that they were made on.
    """

    name: str
    found: bool
    runs: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Model:
    """A model of capacity by cores, fitted to a system.

    Attributes
    ----------
    name
        What it is called.
    points
        Numbers of cores that it is fitted to.
    parameters
        Name, unit and value of each; none if it could not be fitted.
    predict
        Capacity by cores with a prediction interval; None if it could not be fitted.
    left_out
        Each point as the others predict it.
    why
        Why it could not be fitted; empty if it was.
    """

    name: str
    points: int
    parameters: tuple[tuple[str, str, Interval], ...]
    predict: Callable[[int], Interval] | None
    left_out: tuple[LeftOut, ...]
    why: str = ""

    @property
    def rms_percent(self) -> float:
        """Root mean square of the leave-one-out errors; NaN if one of them is missing."""
        errors = [row.error_percent for row in self.left_out]
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan


@dataclass(frozen=True)
class System:
    """One SUT in one mode, and every capacity of it that is known.

    Attributes
    ----------
    sut, mode
        What it is; the SUT names its testbed where there are several.
    options
        A setting each, as measured or as published.
    provenance
        Where the numbers come from.
    stated
        C(1,1) where a paper states it.
    published
        Whether a paper has it.
    models
        Models of capacity by cores, fitted to it.
    """

    sut: str
    mode: str
    options: tuple[Option, ...]
    provenance: str
    stated: Interval | None = None
    published: bool = False
    models: tuple[Model, ...] = ()

    @property
    def name(self) -> str:
        """Name it as a person would."""
        return f"{self.sut}, {self.mode}"

    @property
    def ruled(self) -> bool:
        """Whether the papers' rule is applied: of the published modes, to enhanced only."""
        return self.stated is not None or not self.published

    def basis(self, cores: int) -> str:
        """Say whether a number of cores that was not measured lies between those that were."""
        return basis_of_prediction([option.cores for option in self.options], cores)

    @property
    def best(self) -> tuple[Option, ...]:
        """The best number of threads of each number of cores."""
        return best_by_cores(self.options)

    @property
    def fitted(self) -> tuple[Option, ...]:
        """What a model can be fitted to: the best whose capacity lies between loads."""
        return tuple(option for option in self.best if option.settled)


@dataclass(frozen=True)
class Evidence:
    """What a page of capacity rests on.

    Attributes
    ----------
    systems
        Published ones first.
    services
        A measured setting each.
    points
        The papers' tables, a row a column (`sipsched.analysis.papers.wide`).
    limit
        Packet drop rate at which capacity ends.
    processors
        Cores to the processors that they lie in.
    fidelity
        What the numbers measured here are worth; empty without any.
    read
        The summaries that were asked for, those that are not there too.
    buffers
        Of the runs of `own`, by (sut, mode) as they are named there.
    """

    systems: tuple[System, ...]
    services: tuple[ServiceTimes, ...]
    points: pd.DataFrame
    limit: float
    processors: Mapping[int, int]
    fidelity: str
    read: tuple[Source, ...]
    buffers: Buffers

    @property
    def own(self) -> tuple[System, ...]:
        """The systems measured here."""
        return tuple(system for system in self.systems if not system.published)

    @property
    def provenance(self) -> str:
        """Say where the numbers of the page come from."""
        return " ".join(filter(None, dict.fromkeys(system.provenance for system in self.systems)))

    @property
    def own_provenance(self) -> str:
        """Say where the numbers measured here come from."""
        return " ".join(filter(None, dict.fromkeys(each.provenance for each in self.own)))

    @property
    def suts(self) -> tuple[str, ...]:
        """The SUTs, published ones first."""
        return tuple(dict.fromkeys(system.sut for system in self.systems))

    def threads(self, cores: int) -> int:
        """Give T(p,c) for so many cores."""
        return paper_threads(self.processors.get(cores, 1), cores)
