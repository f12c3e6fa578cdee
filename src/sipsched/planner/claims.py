"""The Snakemake resources of measuring jobs, which decide how many measurements run at the same time."""

from collections.abc import Callable, Mapping
from functools import partial

from sipsched.plan.run import Run
from sipsched.planner.campaign import Plan
from sipsched.planner.needs import Wildcards

SHARES = 1000
"""Total amount of the Snakemake resource `machine`, which limits the simultaneous measurements on this machine.

A run on a testbed that this machine creates occupies the whole amount. Any other job occupies one unit.
"""


class Claims:
    """The Snakemake resources that measuring jobs occupy.

    Testbeds measure at the same time, one run per testbed. A simulated testbed measures one run per CPU. While a
    testbed of this machine measures, no other job of the workflow runs.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._turns = {name: f"turn_{name.replace('-', '_')}" for name in plan.testbeds}

    @property
    def limits(self) -> Mapping[str, int]:
        """Return the total amount of each Snakemake resource, such as 1000 shares of this machine."""
        return {"machine": SHARES} | dict.fromkeys(self._turns.values(), 1)

    @property
    def turns(self) -> Mapping[str, Callable[[Wildcards], int]]:
        """Return one function per testbed, by the name of the testbed's Snakemake resource.

        The function computes how much of the resource a job occupies: 1 for a measurement on this testbed, 0 for any
        other job. The total amount is 1, so a testbed measures one run at a time. A simulated testbed can simulate
        several runs at a time, so its measurements occupy 0.
        """
        return {turn: partial(self._takes_turn, turn) for turn in self._turns.values()}

    def _takes_turn(self, turn: str, wildcards: Wildcards) -> int:
        name = wildcards.testbed
        return int(self._turns[name] == turn and name not in self._plan.simulated)

    def machine(self, wildcards: Wildcards) -> int:
        """Return the amount of the resource `machine` (this machine) that a measurement occupies."""
        return SHARES if self._plan.testbeds[wildcards.testbed].is_on_this_machine else 1

    def threads(self, wildcards: Wildcards) -> int:
        """Return the number of CPUs that a measurement occupies; 0 if the job only waits for other machines."""
        return 0 if self._plan.testbeds[wildcards.testbed].kind == "ssh" else 1

    def order(self, wildcards: Mapping[str, str]) -> int:
        """Return the position of a run in the order of measuring; 0 for a run that no study contains."""
        return self._plan.order.position(Run.from_wildcards(wildcards))

    def expected_s(self, wildcards: Mapping[str, str]) -> int:
        """Return the expected duration of a run in seconds."""
        return self._plan.order.expected_s(Run.from_wildcards(wildcards))

    @staticmethod
    def attempt(wildcards: object, attempt: int) -> int:
        """Return Snakemake's attempt number of a job, so that the job's script can read the number as a resource."""
        return attempt
