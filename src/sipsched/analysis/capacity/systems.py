"""The types for systems and known capacities. The capacity page shows values of these types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity.options import Option, best_by_cores
from sipsched.analysis.capacity.scaling import paper_threads
from sipsched.analysis.capacity.service_times import MeasuredService
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import Buffers, Campaign


@dataclass(frozen=True)
class ReadSummary:
    """A study summary that was requested for the capacity page. `found` is false if the file does not exist."""

    name: str
    found: bool
    runs: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class CapacityModel:
    """A model of capacity as a function of the number of cores, fitted to the capacities of a system.

    Attributes
    ----------
    points
        Number of points of the fit: one capacity per number of cores.
    parameters
        Name, unit and value of each parameter; empty if no fit was possible.
    predict
        Function that returns the predicted capacity in cps for a number of cores; None if no fit was possible.
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
        """The root mean square of the leave-one-out errors in percent; NaN if an error is missing."""
        errors = self.left_out
        return float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan


@dataclass(frozen=True)
class System:
    """One system under test in one scheduler mode, with all known capacities of the system.

    Attributes
    ----------
    sut, mode
        SUT and mode. If several testbeds exist, the name of the SUT includes the name of the testbed.
    options
        Measured or published settings.
    stated
        C(1,1) according to a paper, if a paper states it.
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
        """The SUT and the scheduler mode as text."""
        return f"{self.sut}, {self.mode}"

    @property
    def best(self) -> tuple[Option, ...]:
        """The setting with the best number of threads, for each number of cores."""
        return best_by_cores(self.options)

    @property
    def fitted(self) -> tuple[Option, ...]:
        """The settings to which scaling laws are fitted: only settings with a capacity between two measured loads."""
        return tuple(option for option in self.best if option.settled)


@dataclass(frozen=True)
class CapacityEvidence:
    """All known capacities and service times: the data of the capacity page.

    Attributes
    ----------
    systems
        Systems with their capacities. The published systems come first.
    services
        Service times for the measured settings.
    fidelity
        Fidelity of the project's own measurements; empty if no measurements exist.
    read
        The study summaries that were requested for the page, including missing files.
    buffers
        Receive buffers of the runs of `own`, by SUT and mode.
    campaigns
        The measured runs of `own`, by testbed.
    """

    systems: tuple[System, ...]
    services: tuple[MeasuredService, ...]
    limit: float
    processors: Mapping[int, int]
    fidelity: str
    read: tuple[ReadSummary, ...]
    buffers: Buffers
    campaigns: tuple[Campaign, ...] = ()

    @property
    def own(self) -> tuple[System, ...]:
        """The systems that this project measured itself."""
        return tuple(system for system in self.systems if not system.published)

    @property
    def provenance(self) -> str:
        """The sources of all numbers on the capacity page as text."""
        return " ".join(filter(None, dict.fromkeys(system.provenance for system in self.systems)))

    @property
    def own_provenance(self) -> str:
        """The source of the project's own measurements as text."""
        return " ".join(filter(None, dict.fromkeys(system.provenance for system in self.own)))

    @property
    def suts(self) -> tuple[str, ...]:
        """The names of all SUTs. The published SUTs come first."""
        return tuple(dict.fromkeys(system.sut for system in self.systems))

    def threads(self, cores: int) -> int:
        """Return T(p,c), the number of threads that the papers use for a number of cores."""
        return paper_threads(self.processors.get(cores, 1), cores)
