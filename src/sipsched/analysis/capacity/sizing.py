"""The number of cores that a load needs, from measured, extrapolated and simulated capacities."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity.options import (
    EXTRAPOLATED,
    MEASURED,
    PUBLISHED,
    SIMULATED,
    Option,
    predicted_option,
)
from sipsched.analysis.capacity.predictions import extrapolated, predictor
from sipsched.analysis.capacity.simulated import Simulated
from sipsched.analysis.capacity.systems import CapacityEvidence, System
from sipsched.plan.modes import DEFAULT

MOST_CORES = 64
"""The largest number of cores for which a law may predict the capacity."""


@dataclass(frozen=True)
class Sizing:
    """The measured, published, extrapolated or simulated capacities of a system, for several numbers of cores.

    Attributes
    ----------
    basis
        `MEASURED`, `PUBLISHED`, `EXTRAPOLATED` or `SIMULATED`.
    options
        The best setting for each number of cores, in ascending order of cores; empty if no capacity is known.
    """

    basis: str
    options: tuple[Option, ...]

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
    """A system under test with known (measured or published), extrapolated and simulated capacities.

    `law` is the name of the law that extrapolates the capacities; empty if no law applies.
    """

    system: System
    law: str
    known: Sizing
    extrapolated: Sizing
    simulated: Sizing

    @property
    def all(self) -> tuple[Sizing, Sizing, Sizing]:
        """The system's capacities from the three sources: known, extrapolated and simulated."""
        return self.known, self.extrapolated, self.simulated


def sized(
    evidence: CapacityEvidence, simulated: Sequence[Simulated] = (), simulated_sut: str = ""
) -> tuple[SizedSystem, ...]:
    """Return the known, extrapolated and simulated capacities of each SUT, in one scheduler mode per SUT.

    The function chooses the default mode. If a SUT has no capacities in the default mode, the function chooses the mode
    with the SUT's largest capacity.

    Parameters
    ----------
    evidence
        Measured and published capacities.
    simulated, simulated_sut
        Simulated capacities by number of cores, and the name of the simulated SUT.

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
        is_simulated = system.mode == DEFAULT and sut.partition(" on ")[0] == simulated_sut
        systems.append(
            SizedSystem(
                system=system,
                law=(predictor(system, evidence) or ("",))[0],
                known=Sizing(PUBLISHED if system.published else MEASURED, system.best),
                extrapolated=Sizing(
                    EXTRAPOLATED, extrapolated(system, evidence, range(1, MOST_CORES + 1))
                ),
                simulated=Sizing(
                    SIMULATED, tuple(_of_simulation(sut, simulated)) if is_simulated else ()
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
