"""Systems with all their known capacities, and the data of the capacity page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity.options import Option, best_by_cores
from sipsched.analysis.capacity.scaling import paper_threads
from sipsched.analysis.capacity.service_times import ServiceTimes
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import Buffers, Campaign


@dataclass(frozen=True)
class Source:
    """A summary file that the page was asked to read."""

    name: str
    found: bool
    runs: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class CapacityModel:
    """A model of capacity by cores, fitted to a system.

    Attributes
    ----------
    points
        Number of points in the fit, by distinct number of cores.
    parameters
        Name, unit and value of each parameter; empty without a fit.
    predict
        Capacity by cores with a prediction interval; None without a fit.
    left_out
        Leave-one-out errors in percent, one per point.
    """

    name: str
    points: int
    parameters: tuple[tuple[str, str, Interval], ...]
    predict: Callable[[int], Interval] | None
    left_out: tuple[float, ...]
    why: str = ""

    @property
    def rms_percent(self) -> float:
        """Root mean square of the leave-one-out errors; NaN if an error is missing."""
        errors = self.left_out
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan


@dataclass(frozen=True)
class System:
    """One SUT in one mode, with all its known capacities.

    Attributes
    ----------
    sut, mode
        SUT and mode; the SUT includes the testbed's name if several testbeds exist.
    options
        Measured or published settings.
    stated
        C(1,1) if a paper states it.
    """

    sut: str
    mode: str
    options: tuple[Option, ...]
    provenance: str
    stated: Interval | None = None
    published: bool = False
    models: tuple[CapacityModel, ...] = ()

    @property
    def name(self) -> str:
        """Name the system in ordinary words."""
        return f"{self.sut}, {self.mode}"

    @property
    def best(self) -> tuple[Option, ...]:
        """Per number of cores, the setting with the best number of threads."""
        return best_by_cores(self.options)

    @property
    def fitted(self) -> tuple[Option, ...]:
        """Settings for a fit: the best settings with a capacity between measured loads."""
        return tuple(option for option in self.best if option.settled)


@dataclass(frozen=True)
class CapacityEvidence:
    """The data of the capacity page.

    Attributes
    ----------
    systems
        Systems with their capacities, published systems first.
    services
        Service times of measured settings.
    fidelity
        Fidelity of the project's own measurements; empty without measurements.
    read
        The requested summaries, including missing ones.
    buffers
        Receive buffers of the runs of `own`, by the (sut, mode) of `own`.
    campaigns
        The measured runs behind `own`, by testbed.
    """

    systems: tuple[System, ...]
    services: tuple[ServiceTimes, ...]
    limit: float
    processors: Mapping[int, int]
    fidelity: str
    read: tuple[Source, ...]
    buffers: Buffers
    campaigns: tuple[Campaign, ...] = ()

    @property
    def own(self) -> tuple[System, ...]:
        """The systems that this project measured."""
        return tuple(system for system in self.systems if not system.published)

    @property
    def provenance(self) -> str:
        """Describe the origin of the page's numbers."""
        return " ".join(filter(None, dict.fromkeys(system.provenance for system in self.systems)))

    @property
    def own_provenance(self) -> str:
        """Describe the origin of the project's own measurements."""
        return " ".join(filter(None, dict.fromkeys(system.provenance for system in self.own)))

    @property
    def suts(self) -> tuple[str, ...]:
        """All SUTs, with the published SUTs first."""
        return tuple(dict.fromkeys(system.sut for system in self.systems))

    def threads(self, cores: int) -> int:
        """Return T(p,c), the papers' number of threads for a number of cores."""
        return paper_threads(self.processors.get(cores, 1), cores)
