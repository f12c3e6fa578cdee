"""The number of cores that a load needs, from measured, extrapolated and simulated capacities, and in virtual time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity.options import (
    EXTRAPOLATED,
    IN_VIRTUAL_TIME,
    MEASURED,
    PUBLISHED,
    SIMULATED,
    Option,
    predicted_option,
)
from sipsched.analysis.capacity.predictions import extrapolated, in_virtual_time, predictor
from sipsched.analysis.capacity.simulated import Simulated
from sipsched.analysis.capacity.systems import CapacityEvidence, System
from sipsched.plan.modes import DEFAULT
from sipsched.records.system_capacity import SystemCapacity

MOST_CORES = 64
"""The largest number of cores for which a law may predict the capacity."""


@dataclass(frozen=True)
class Sizing:
    """The capacities of a system from one source, for several numbers of cores.

    Attributes
    ----------
    basis
        `MEASURED`, `PUBLISHED`, `EXTRAPOLATED`, `SIMULATED` or `IN_VIRTUAL_TIME`.
    options
        The best setting for each number of cores, in ascending order of cores; empty if no capacity is known.
    fidelity
        The settings of the virtual clock, for capacities in virtual time; empty for other sources.
    """

    basis: str
    options: tuple[Option, ...]
    fidelity: str = ""

    @property
    def steps(self) -> tuple[Option, ...]:
        """The settings that handle a higher load than every setting with fewer cores."""
        steps: list[Option] = []
        for option in self.options:
            if option.carries_cps > max((step.carries_cps for step in steps), default=0.0):
                steps.append(option)
        return tuple(steps)

    def enough(self, cps: float) -> Option | None:
        """Return the setting with the fewest cores that handles the load `cps`, or None if no setting does."""
        return next((option for option in self.steps if option.carries_cps >= cps), None)


@dataclass(frozen=True)
class SizedSystem:
    """A system under test with its known, extrapolated and simulated capacities, and those in virtual time.

    `law` is the name of the law that extrapolates the capacities; empty if no law applies.
    """

    system: System
    law: str
    known: Sizing
    extrapolated: Sizing
    simulated: Sizing
    virtual: Sizing

    @property
    def all(self) -> tuple[Sizing, Sizing, Sizing, Sizing]:
        """The system's capacities: known, extrapolated, simulated, and from speed-ups in virtual time."""
        return self.known, self.extrapolated, self.simulated, self.virtual


def sized(
    evidence: CapacityEvidence,
    simulated: Sequence[Simulated] = (),
    simulated_sut: str = "",
    virtual: Sequence[SystemCapacity] = (),
    virtual_sut: str = "",
) -> tuple[SizedSystem, ...]:
    """Return the known and predicted capacities of each SUT, in one scheduler mode per SUT.

    The function chooses the default mode. If a SUT has no capacities in the default mode, the function chooses the mode
    with the SUT's largest capacity.

    Parameters
    ----------
    evidence
        Measured and published capacities.
    simulated, simulated_sut
        Simulated capacities by number of cores, and the name of the simulated SUT.
    virtual, virtual_sut
        Capacities in virtual time by number of cores, and the name of the SUT that they predict.

    Returns
    -------
    tuple
        Measured systems come before published systems. In each group, the system with the most known capacities comes
        first.
    """
    systems = []
    for sut in evidence.suts:
        system = max(
            (system for system in evidence.systems if system.sut == sut),
            key=lambda system: (system.mode == DEFAULT, _largest(system.options)),
        )
        # With several testbeds, `sut` has the form "SUT on TESTBED", so only the part before " on " is compared.
        name = sut.partition(" on ")[0] if system.mode == DEFAULT else ""
        systems.append(
            SizedSystem(
                system=system,
                law=(predictor(system, evidence) or ("",))[0],
                known=Sizing(PUBLISHED if system.published else MEASURED, system.best),
                extrapolated=Sizing(
                    EXTRAPOLATED, extrapolated(system, evidence, range(1, MOST_CORES + 1))
                ),
                simulated=Sizing(
                    SIMULATED,
                    tuple(_of_simulation(sut, simulated)) if name and name == simulated_sut else (),
                ),
                virtual=Sizing(
                    IN_VIRTUAL_TIME,
                    in_virtual_time(system, virtual) if name and name == virtual_sut else (),
                    "; ".join(dict.fromkeys(capacity.fidelity for capacity in virtual)),
                ),
            )
        )
    return tuple(sorted(systems, key=_order))


def _largest(options: Iterable[Option]) -> float:
    return max((option.carries_cps for option in options), default=0.0)


def _of_simulation(sut: str, rows: Iterable[Simulated]) -> Iterable[Option]:
    for row in rows:
        if np.isfinite(row.capacity.estimate):
            yield predicted_option(sut, DEFAULT, row.cores, row.threads, row.capacity, SIMULATED)


def _order(sized: SizedSystem) -> tuple[bool, bool, int, float]:
    system = sized.system
    return (
        system.published,
        not sized.simulated.options,
        -len(system.fitted),
        -_largest(system.options),
    )
